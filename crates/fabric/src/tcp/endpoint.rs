//! The TCP endpoint as its users see it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};

use crate::address::Address;
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Endpoint, Event};
use crate::error::{FabricError, SendError};
use crate::greeting::Greeting;
use crate::hello::Hello;
use crate::limits::Limits;
use crate::poller::poll_error;

use super::desk::Group;
use super::door::Door;
use super::messenger::{DESK_TOKEN, Messenger};

/// How an endpoint is set up.
#[derive(Clone, Debug, Default)]
pub struct TcpOptions {
    /// What peers can make it hold.
    pub limits: Limits,
    /// What it says of itself to those who connect.
    pub greeting: Greeting,
}

/// An endpoint over TCP: a worker's, which accepts, or a client's, which only connects.
#[derive(Debug)]
pub struct TcpEndpoint {
    messenger: Messenger,
}

impl TcpEndpoint {
    /// An endpoint that only connects.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn client(limits: Limits) -> Result<TcpEndpoint, FabricError> {
        Ok(TcpEndpoint { messenger: Messenger::new(limits, Greeting::default())? })
    }

    /// One endpoint a worker, all behind one address; port 0 takes a free one (see [`TcpEndpoint::address`]). Worker 0
    /// accepts for all, so it must be polled for anyone to get in.
    ///
    /// # Errors
    /// An address that is not loopback or is taken, a greeting that is too long, or no descriptors.
    pub fn listen(
        address: SocketAddr,
        workers: u16,
        options: &TcpOptions,
    ) -> Result<Vec<TcpEndpoint>, FabricError> {
        // Refused here, because later it could only be answered by refusing every peer.
        let answer = Hello { greeting: options.greeting.clone(), ..Hello::of_connector(0, 0) };
        answer.encode()?;
        let group = Arc::new(Group::new(workers.max(1), false)?);
        let mut endpoints = (0..workers.max(1))
            .map(|worker| TcpEndpoint::seated(&group, worker, options))
            .collect::<Result<Vec<_>, _>>()?;
        endpoints[0].messenger.install_door(Door::open(address)?)?;
        Ok(endpoints)
    }

    /// Where this endpoint listens; `None` unless it is the one of its group that accepts.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.messenger.door.as_ref().map(|door| door.address)
    }

    fn seated(group: &Arc<Group>, worker: u16, options: &TcpOptions) -> Result<TcpEndpoint, FabricError> {
        let mut messenger = Messenger::new(options.limits, options.greeting.clone())?;
        if let Some(desk) = group.desk(worker) {
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(&messenger.epoll, &desk.bell, EventData::new_u64(DESK_TOKEN), flags)
                .map_err(poll_error)?;
        }
        messenger.seat = Some((Arc::clone(group), worker));
        Ok(TcpEndpoint { messenger })
    }
}

impl Endpoint for TcpEndpoint {
    fn connect(&mut self, address: &Address) -> Result<ConnectionId, FabricError> {
        self.messenger.connect(address, false)
    }

    fn send_parts(&mut self, connection: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        self.messenger.send_parts(connection, parts)
    }

    fn flush(&mut self) {
        self.messenger.flush();
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        self.messenger.poll(sink)
    }

    fn tick(&mut self, now_ns: u64) {
        self.messenger.tick(now_ns);
    }

    fn close(&mut self, connection: ConnectionId) {
        self.messenger.close(connection);
    }

    fn output_pending(&self, connection: ConnectionId) -> usize {
        self.messenger.output_pending(connection)
    }

    fn connections(&self) -> usize {
        self.messenger.slots.len()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.messenger.prepare_sleep()
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.messenger.epoll.as_fd())
    }

    fn counters(&self) -> FabricCounters {
        self.messenger.counters()
    }
}

impl Drop for TcpEndpoint {
    fn drop(&mut self) {
        if let Some((group, worker)) = &self.messenger.seat
            && let Some(desk) = group.desk(*worker)
        {
            desk.close();
        }
    }
}

/// Endpoints are made in one place and moved to the threads that use them.
const _: fn() = || {
    fn moves_between_threads<T: Send>() {}
    moves_between_threads::<TcpEndpoint>();
};
