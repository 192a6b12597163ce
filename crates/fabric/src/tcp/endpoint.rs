//! The TCP endpoint as its users see it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use cell_memory::Region;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::address::Address;
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Endpoint, Event};
use crate::error::{FabricError, SendError};
use crate::greeting::Greeting;
use crate::handoff::Group;
use crate::hello::{Hello, WORKER_ONE_SIDED};
use crate::limits::FabricLimits;
use crate::one_sided::OneSided;
use crate::partition::Partition;
use crate::poller::poll_error;
use crate::registry::Registry;
use crate::remote_access::{ReadTag, RegionKey, RemoteRead};
use crate::slots::is_lane;

use super::lanes::Lanes;
use super::listener::Listener;
use super::messenger::{HANDOFF_TOKEN, Messenger};
use super::service::{Service, service_limits};

/// How an endpoint is set up.
#[derive(Clone, Debug, Default)]
pub struct TcpOptions {
    /// What peers can make it hold.
    pub limits: FabricLimits,
    /// What it says of itself to those who connect.
    pub greeting: Greeting,
    /// Whether regions can be registered for one-sided reads; this starts a thread that serves them.
    pub one_sided: bool,
    /// The filter under all connections.
    pub partition: Partition,
}

/// An endpoint over TCP: a worker's, which accepts, or a client's, which only connects.
#[derive(Debug)]
pub struct TcpEndpoint {
    messenger: Messenger,
    lanes: Lanes,
    service: Option<Arc<Service>>,
}

impl TcpEndpoint {
    /// An endpoint that only connects.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn client(limits: FabricLimits) -> Result<TcpEndpoint, FabricError> {
        Ok(TcpEndpoint::of(Messenger::new(limits, Greeting::default())?, None))
    }

    /// One endpoint a worker, all behind one address; port 0 takes a free one (see [`TcpEndpoint::address`]).
    /// Worker 0 accepts for all, so it must be polled for anyone to get in.
    ///
    /// # Errors
    /// An address that is not loopback or is taken, a greeting that is too long, no descriptors, or no
    /// thread.
    pub fn listen(
        address: SocketAddr,
        workers: u16,
        options: &TcpOptions,
    ) -> Result<Vec<TcpEndpoint>, FabricError> {
        TcpEndpoint::listen_with(address, workers, options, &Arc::new(Registry::default()))
    }

    /// As [`TcpEndpoint::listen`], with the registrations that another provider serves too.
    pub(crate) fn listen_with(
        address: SocketAddr,
        workers: u16,
        options: &TcpOptions,
        registry: &Arc<Registry>,
    ) -> Result<Vec<TcpEndpoint>, FabricError> {
        // Refused here, because later it could only be answered by refusing every peer.
        let answer = Hello { greeting: options.greeting.clone(), ..Hello::of_connector(0, 0) };
        answer.encode()?;
        let listener = Listener::open(address)?;
        // The last number names the one-sided service.
        let workers = workers.clamp(1, WORKER_ONE_SIDED - 1);
        let group = Arc::new(Group::new(workers, options.one_sided)?);
        let messenger_of = |worker, limits| acceptor_messenger(&group, worker, limits, options);
        let service = if options.one_sided {
            let messenger = messenger_of(WORKER_ONE_SIDED, service_limits(options.limits))?;
            Some(Arc::new(Service::start(messenger, Arc::clone(registry))?))
        } else {
            None
        };
        let mut endpoints = (0..workers)
            .map(|worker| Ok(TcpEndpoint::of(messenger_of(worker, options.limits)?, service.clone())))
            .collect::<Result<Vec<_>, FabricError>>()?;
        endpoints[0].messenger.install_listener(listener)?;
        Ok(endpoints)
    }

    /// Where this endpoint listens; `None` unless it is the one of its group that accepts.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.messenger.listener.as_ref().map(|listener| listener.address)
    }

    fn of(messenger: Messenger, service: Option<Arc<Service>>) -> TcpEndpoint {
        TcpEndpoint { messenger, lanes: Lanes::default(), service }
    }
}

/// A messenger that finds its accepted sockets on a worker's queue.
fn acceptor_messenger(
    group: &Arc<Group>,
    worker: u16,
    limits: FabricLimits,
    options: &TcpOptions,
) -> Result<Messenger, FabricError> {
    let mut messenger = Messenger::new(limits, options.greeting.clone())?;
    messenger.partition = options.partition.clone();
    if let Some(queue) = group.queue(worker) {
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&messenger.epoll, &queue.bell, EventData::new_u64(HANDOFF_TOKEN), flags)
            .map_err(poll_error)?;
    }
    messenger.acceptor = Some((Arc::clone(group), worker));
    Ok(messenger)
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
        let TcpEndpoint { messenger, lanes, .. } = self;
        let failed = lanes.report_failed(sink);
        let events = messenger.poll(&mut |event| match event {
            Event::Message { connection, .. }
            | Event::Connected { connection, .. }
            | Event::Writable { connection }
                if is_lane(connection) =>
            {
                lanes.take(&event, sink);
            }
            Event::Closed { connection, .. } if is_lane(connection) => lanes.take(&event, sink),
            Event::Closed { connection, .. } => {
                lanes.user_closed(connection, sink);
                sink(event);
            }
            event => sink(event),
        });
        lanes.close_lost(messenger);
        failed + events
    }

    fn tick(&mut self, now_ns: u64) {
        self.messenger.tick(now_ns);
    }

    fn close(&mut self, connection: ConnectionId) {
        self.lanes.close(&mut self.messenger, connection);
        self.messenger.close(connection);
    }

    fn output_pending(&self, connection: ConnectionId) -> usize {
        self.messenger.output_pending(connection)
    }

    fn connections(&self) -> usize {
        self.messenger.slots.len().saturating_sub(self.lanes.len())
    }

    fn prepare_sleep(&mut self) -> bool {
        self.messenger.prepare_sleep() && self.lanes.is_quiet()
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.messenger.epoll.as_fd())
    }

    fn counters(&self) -> FabricCounters {
        let counts = self.lanes.counts;
        let mut counters = FabricCounters {
            reads_posted: counts.posted,
            reads_done: counts.done,
            reads_failed: counts.failed,
            ..self.messenger.counters()
        };
        // Once a group: by the endpoint that accepts.
        if let (Some(service), true) = (&self.service, self.messenger.listener.is_some()) {
            counters.add(&service.counters());
        }
        counters
    }
}

impl OneSided for TcpEndpoint {
    fn register(&mut self, region: &Region) -> Result<RegionKey, FabricError> {
        self.service.as_ref().ok_or(FabricError::OneSidedUnavailable)?.registry().register(region)
    }

    fn deregister(&mut self, key: RegionKey) {
        if let Some(service) = &self.service {
            service.registry().deregister(key);
        }
    }

    fn post_read(
        &mut self,
        connection: ConnectionId,
        read: RemoteRead,
        tag: ReadTag,
    ) -> Result<(), SendError> {
        self.lanes.post(&mut self.messenger, connection, read, tag)
    }

    fn reads_ordered(&self) -> bool {
        true
    }
}

/// Endpoints are made in one place and moved to the threads that use them.
const _: fn() = || {
    fn moves_between_threads<T: Send>() {}
    moves_between_threads::<TcpEndpoint>();
};
