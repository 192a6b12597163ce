//! The endpoint over TCP: how it is set up, and its lanes and its service for one-sided reads.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::connections::{Acceptor, MARK_LANE, Messenger, MessengerEndpoint, Provider, Sink, mark_of};
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Event};
use crate::error::{FabricError, SendError};
use crate::greeting::Greeting;
use crate::limits::FabricLimits;
use crate::partition::Partition;
use crate::read_permission::ReadPermission;
use crate::registry::Registry;
use crate::remote_access::{ReadTag, RemoteAccess};
use crate::tls::{NodeTls, TlsTrust};

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
    /// Who may read one-sided; none: whoever reaches the address.
    pub readers: Option<Arc<dyn ReadPermission>>,
    /// Whether it may listen on an address that is not loopback.
    pub beyond_loopback: bool,
    /// With which TLS is spoken to who connects; none: in the clear.
    pub tls: Option<NodeTls>,
}

/// An endpoint over TCP.
pub type TcpEndpoint = MessengerEndpoint<Tcp>;

/// The provider: reads travel on lanes, and a thread serves them.
#[derive(Debug, Default)]
pub struct Tcp {
    lanes: Lanes,
    /// An acceptor's; none where no one-sided reads are served.
    service: Option<Service>,
}

impl TcpEndpoint {
    /// An endpoint that only connects.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn client(limits: FabricLimits) -> Result<TcpEndpoint, FabricError> {
        let messenger = Messenger::new(limits, TcpTransport::new())?;
        Ok(TcpEndpoint { messenger, provider: Tcp::default(), registry: None })
    }

    /// An endpoint that accepts at that address; port 0 takes a free one (see [`TcpEndpoint::address`]). It
    /// must be polled for anyone to get in, readers included.
    ///
    /// # Errors
    /// An address that is not loopback, unless the options permit it, or is taken, a greeting that is too
    /// long, no descriptors, or no thread.
    pub fn listen(address: SocketAddr, options: &TcpOptions) -> Result<TcpEndpoint, FabricError> {
        TcpEndpoint::listen_with(address, options, &Arc::new(Registry::default()))
    }

    /// As [`TcpEndpoint::listen`], with the registrations that another provider serves too.
    pub(crate) fn listen_with(
        address: SocketAddr,
        options: &TcpOptions,
        registry: &Arc<Registry>,
    ) -> Result<TcpEndpoint, FabricError> {
        let TcpOptions { limits, greeting, one_sided, partition, readers, beyond_loopback, tls } = options;
        let mut acceptor = Acceptor::new(greeting, *one_sided, partition)?;
        let listener = TcpListener::open(address, *beyond_loopback, tls.clone())?;
        let messenger = |limits, acceptor| Messenger::accepting(limits, TcpTransport::new(), acceptor);
        let service = if *one_sided {
            let messenger = messenger(service_limits(*limits), acceptor.add_service(readers.clone())?)?;
            Some(Service::start(messenger, Arc::clone(registry), readers.clone())?)
        } else {
            None
        };
        let mut messenger = messenger(*limits, acceptor)?;
        messenger.listen(listener)?;
        let registry = one_sided.then(|| Arc::clone(registry));
        Ok(TcpEndpoint { messenger, provider: Tcp { lanes: Lanes::default(), service }, registry })
    }

    /// Connects under TLS from now on, to ends that this trusts.
    pub fn trust(&mut self, trust: TlsTrust) {
        self.messenger.transport.tls.trust(trust);
    }

    /// What shows peers by whom this end reads their memory.
    pub fn set_token(&mut self, token: &[u8]) {
        self.provider.lanes.token = token.into();
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
}

impl Provider for Tcp {
    type Transport = TcpTransport;

    fn post(
        &mut self,
        messenger: &mut TcpMessenger,
        connection: ConnectionId,
        access: &RemoteAccess<'_>,
        tag: ReadTag,
    ) -> Result<(), SendError> {
        self.lanes.post(messenger, connection, access, tag)
    }

    fn poll(&mut self, messenger: &mut TcpMessenger, sink: &mut Sink<'_>) -> usize {
        let lanes = &mut self.lanes;
        let failed = lanes.report_failed(sink);
        let events = messenger.poll(&mut |event| match event {
            Event::Message { connection, .. }
            | Event::Connected { connection, .. }
            | Event::Writable { connection }
            | Event::Closed { connection, .. }
                if mark_of(connection) == MARK_LANE =>
            {
                lanes.take(&event, sink);
            }
            Event::Closed { connection, .. } => {
                lanes.user_closed(connection, sink);
                sink(event);
            }
            event => sink(event),
        });
        lanes.close_lost(messenger);
        failed + events
    }

    fn closing(&mut self, messenger: &mut TcpMessenger, connection: ConnectionId) {
        self.lanes.close(messenger, connection);
    }

    fn set_limits(&mut self, _messenger: &mut TcpMessenger, limits: FabricLimits) {
        if let Some(service) = &self.service {
            service.set_limits(limits);
        }
    }

    fn own_connections(&self) -> usize {
        self.lanes.len()
    }

    fn is_quiet(&self) -> bool {
        self.lanes.is_quiet()
    }

    fn counters(&self) -> FabricCounters {
        let mut counters = self.lanes.counters;
        if let Some(service) = &self.service {
            counters.add(&service.counters());
        }
        counters
    }
}
