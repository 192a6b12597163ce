//! The TCP endpoint as its users see it.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use cell_memory::Region;

use crate::address::Address;
use crate::connections::{Acceptor, MARK_LANE, MARK_TCP, Messenger, mark_of};
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Endpoint, Event};
use crate::error::{FabricError, SendError};
use crate::greeting::Greeting;
use crate::limits::FabricLimits;
use crate::one_sided::OneSided;
use crate::partition::Partition;
use crate::registry::Registry;
use crate::remote_access::{ReadTag, RegionAccess, RegionKey, RemoteAccess};

use super::lanes::Lanes;
use super::listener::TcpListener;
use super::service::{Service, service_limits};
use super::transport::{TcpMessenger, TcpTransport};

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
    messenger: TcpMessenger,
    lanes: Lanes,
    service: Option<Service>,
}

impl TcpEndpoint {
    /// An endpoint that only connects.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn client(limits: FabricLimits) -> Result<TcpEndpoint, FabricError> {
        Ok(TcpEndpoint::of(Messenger::new(limits, TcpTransport::new())?, None))
    }

    /// An endpoint that accepts at that address; port 0 takes a free one (see [`TcpEndpoint::address`]). It
    /// must be polled for anyone to get in, readers included.
    ///
    /// # Errors
    /// An address that is not loopback or is taken, a greeting that is too long, no descriptors, or no
    /// thread.
    pub fn listen(address: SocketAddr, options: &TcpOptions) -> Result<TcpEndpoint, FabricError> {
        TcpEndpoint::listen_with(address, options, &Arc::new(Registry::default()))
    }

    /// As [`TcpEndpoint::listen`], with the registrations that another provider serves too.
    pub(crate) fn listen_with(
        address: SocketAddr,
        options: &TcpOptions,
        registry: &Arc<Registry>,
    ) -> Result<TcpEndpoint, FabricError> {
        let TcpOptions { limits, greeting, one_sided, partition } = options;
        let mut acceptor = Acceptor::new(greeting, *one_sided, partition)?;
        let listener = TcpListener::open(address)?;
        let messenger = |limits, acceptor| Messenger::accepting(limits, TcpTransport::new(), acceptor);
        let service = if *one_sided {
            let messenger = messenger(service_limits(*limits), acceptor.add_service()?)?;
            Some(Service::start(messenger, Arc::clone(registry))?)
        } else {
            None
        };
        let mut messenger = messenger(*limits, acceptor)?;
        messenger.listen(listener)?;
        Ok(TcpEndpoint::of(messenger, service))
    }

    /// Where this endpoint listens; `None` of one that only connects.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.messenger.listener().map(|listener| listener.address)
    }

    /// How the endpoint over `verbs` takes connections, which come to this one's address; `None` of one that
    /// only connects.
    ///
    /// # Errors
    /// No descriptors.
    #[cfg(feature = "verbs")]
    pub(crate) fn add_verbs(&mut self) -> Result<Option<Acceptor>, FabricError> {
        self.messenger.acceptor_mut().map(Acceptor::add_verbs).transpose()
    }

    fn of(messenger: TcpMessenger, service: Option<Service>) -> TcpEndpoint {
        TcpEndpoint { messenger, lanes: Lanes::default(), service }
    }
}

impl Endpoint for TcpEndpoint {
    fn connect(&mut self, address: &Address) -> Result<ConnectionId, FabricError> {
        self.messenger.connect(address, MARK_TCP)
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
                if mark_of(connection) == MARK_LANE =>
            {
                lanes.take(&event, sink);
            }
            Event::Closed { connection, .. } if mark_of(connection) == MARK_LANE => lanes.take(&event, sink),
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

    fn set_limits(&mut self, limits: FabricLimits) {
        self.messenger.table.set_limits(limits);
        if let Some(service) = &self.service {
            service.set_limits(limits);
        }
    }

    fn close(&mut self, connection: ConnectionId) {
        self.lanes.close(&mut self.messenger, connection);
        self.messenger.close(connection);
    }

    fn output_pending(&self, connection: ConnectionId) -> usize {
        self.messenger.output_pending(connection)
    }

    fn connections(&self) -> usize {
        self.messenger.table.len().saturating_sub(self.lanes.len())
    }

    fn prepare_sleep(&mut self) -> bool {
        self.messenger.prepare_sleep() && self.lanes.is_quiet()
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.messenger.wake_descriptor())
    }

    fn counters(&self) -> FabricCounters {
        let counts = self.lanes.counts;
        let mut counters = FabricCounters {
            reads_posted: counts.posted,
            reads_done: counts.done,
            reads_failed: counts.failed,
            ..self.messenger.table.counters()
        };
        if let Some(service) = &self.service {
            counters.add(&service.counters());
        }
        counters
    }
}

impl OneSided for TcpEndpoint {
    fn register_for(&mut self, region: &Region, access: RegionAccess) -> Result<RegionKey, FabricError> {
        self.service.as_ref().ok_or(FabricError::OneSidedUnavailable)?.registry().register(region, access)
    }

    fn deregister(&mut self, key: RegionKey) {
        if let Some(service) = &self.service {
            service.registry().deregister(key);
        }
    }

    fn post(
        &mut self,
        connection: ConnectionId,
        access: RemoteAccess<'_>,
        tag: ReadTag,
    ) -> Result<(), SendError> {
        self.lanes.post(&mut self.messenger, connection, &access, tag)
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
