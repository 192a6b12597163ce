//! All providers of a real host in one endpoint: a worker serves peers over TCP and over shared memory at
//! once, a client connects by whichever the address says. A provider that is added is a variant of
//! [`ProviderEndpoint`] and a row in [`Provider::new`].

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use cell_memory::Region;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::address::Address;
use crate::connections::{MARK_SHM, MARK_TCP, mark_of};
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Endpoint, Event};
use crate::error::{FabricError, SendError};
use crate::limits::FabricLimits;
use crate::mapped::MappedRegion;
use crate::one_sided::OneSided;
use crate::poller::poll_error;
use crate::registry::Registry;
use crate::remote_access::{ReadTag, RegionAccess, RegionKey, RemoteAccess};
use crate::shm::{ShmEndpoint, ShmOptions};
use crate::socket_name::SocketName;
use crate::tcp::{TcpEndpoint, TcpOptions};

/// How a host's endpoints are set up.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// Limits, greeting, users and sizes; of both providers, as far as they concern both. A greeting that
    /// names no socket is given `socket`.
    pub shm: ShmOptions,
    /// The unix socket for peers of this host; none: TCP alone.
    pub socket: Option<SocketName>,
}

/// An endpoint over all providers of a host. Ids of their connections differ, and registrations are served by
/// all under one key.
#[derive(Debug)]
pub struct HostEndpoint {
    /// In the order in which they are polled.
    providers: Vec<Provider>,
    registry: Option<Arc<Registry>>,
    /// Over the epolls of all.
    epoll: OwnedFd,
}

/// The endpoints that a host's endpoint may be made of.
#[derive(Debug)]
enum ProviderEndpoint {
    Shm(ShmEndpoint),
    Tcp(TcpEndpoint),
}

/// The same call on whichever endpoint it is. Sends and polls are hot, so the call is chosen by a branch and
/// not by a table of functions.
macro_rules! on {
    ($provider:expr, $endpoint:ident => $call:expr) => {
        match $provider {
            ProviderEndpoint::Shm($endpoint) => $call,
            ProviderEndpoint::Tcp($endpoint) => $call,
        }
    };
}

/// One row of a host's list of providers.
#[derive(Debug)]
struct Provider {
    endpoint: ProviderEndpoint,
    /// As [`Host::provider`] of the addresses that it reaches.
    name: &'static str,
    /// Of the ids of its connections.
    mark: u64,
    /// Turns between two polls while it is silent and one that is polled each turn is in use.
    polled_every: u32,
    /// Turns since it was polled.
    age: u32,
    /// It had something when it was last polled.
    busy: bool,
}

impl Provider {
    fn new(endpoint: ProviderEndpoint) -> Provider {
        let (name, mark, polled_every) = match endpoint {
            ProviderEndpoint::Shm(_) => ("shm", MARK_SHM, 1),
            // A poll is a system call.
            ProviderEndpoint::Tcp(_) => ("tcp", MARK_TCP, 8),
        };
        Provider { endpoint, name, mark, polled_every, age: 0, busy: false }
    }
}

impl HostEndpoint {
    /// An endpoint that only connects.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn client(limits: FabricLimits) -> Result<HostEndpoint, FabricError> {
        HostEndpoint::client_of(limits, &[])
    }

    /// As [`HostEndpoint::client`]; see [`ShmEndpoint::client_of`].
    ///
    /// # Errors
    /// As there.
    pub fn client_of(limits: FabricLimits, users: &[u32]) -> Result<HostEndpoint, FabricError> {
        let shm = ProviderEndpoint::Shm(ShmEndpoint::client_of(limits, users)?);
        let tcp = ProviderEndpoint::Tcp(TcpEndpoint::client(limits)?);
        HostEndpoint::join([shm, tcp], None)
    }

    /// One endpoint a worker, all behind one TCP address and one unix socket.
    ///
    /// # Errors
    /// As for [`TcpEndpoint::listen`] and [`ShmEndpoint::listen`].
    pub fn listen(
        address: SocketAddr,
        workers: u16,
        options: &HostOptions,
    ) -> Result<Vec<HostEndpoint>, FabricError> {
        let mut shm_options = options.shm.clone();
        let said = &mut shm_options.greeting.shared_memory_socket;
        if let (Some(name), true) = (options.socket, said.is_empty()) {
            name.as_str().clone_into(said);
        }
        let registry = match options.socket {
            Some(_) => Arc::new(Registry::with_ledger()?),
            None => Arc::new(Registry::default()),
        };
        let tcp_options = TcpOptions {
            limits: shm_options.limits,
            greeting: shm_options.greeting.clone(),
            one_sided: shm_options.one_sided,
            partition: shm_options.partition.clone(),
        };
        let tcp = TcpEndpoint::listen_with(address, workers, &tcp_options, &registry)?;
        let mut shm = match options.socket {
            Some(name) => ShmEndpoint::listen_with(name, workers, &shm_options, &registry)?,
            None => Vec::new(),
        }
        .into_iter();
        let registry = shm_options.one_sided.then_some(registry);
        let endpoint = |tcp| {
            let shm = shm.next().map(ProviderEndpoint::Shm);
            HostEndpoint::join(shm.into_iter().chain([ProviderEndpoint::Tcp(tcp)]), registry.clone())
        };
        tcp.into_iter().map(endpoint).collect()
    }

    fn join(
        endpoints: impl IntoIterator<Item = ProviderEndpoint>,
        registry: Option<Arc<Registry>>,
    ) -> Result<HostEndpoint, FabricError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(poll_error)?;
        let providers: Vec<Provider> = endpoints.into_iter().map(Provider::new).collect();
        for provider in &providers {
            if let Some(descriptor) = on!(&provider.endpoint, endpoint => endpoint.wake_descriptor()) {
                epoll::add(&epoll, descriptor, EventData::new_u64(0), EventFlags::IN).map_err(poll_error)?;
            }
        }
        Ok(HostEndpoint { providers, registry, epoll })
    }

    /// Where this endpoint listens over TCP; `None` unless it is the one of its group that accepts.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.providers.iter().find_map(|provider| match &provider.endpoint {
            ProviderEndpoint::Tcp(tcp) => tcp.address(),
            ProviderEndpoint::Shm(_) => None,
        })
    }

    /// The unix socket where it listens for peers of this host.
    #[must_use]
    pub fn socket(&self) -> Option<SocketName> {
        self.providers.iter().find_map(|provider| match &provider.endpoint {
            ProviderEndpoint::Shm(shm) => shm.name(),
            ProviderEndpoint::Tcp(_) => None,
        })
    }

    /// The provider that has a connection.
    #[inline]
    fn of(&self, connection: ConnectionId) -> Option<&Provider> {
        self.providers.iter().find(|provider| provider.mark == mark_of(connection))
    }

    /// The provider that has a connection.
    #[inline]
    fn of_mut(&mut self, connection: ConnectionId) -> Option<&mut Provider> {
        self.providers.iter_mut().find(|provider| provider.mark == mark_of(connection))
    }
}

impl Endpoint for HostEndpoint {
    fn connect(&mut self, address: &Address) -> Result<ConnectionId, FabricError> {
        let name = address.host.provider();
        match self.providers.iter_mut().find(|provider| provider.name == name) {
            Some(provider) => on!(&mut provider.endpoint, endpoint => endpoint.connect(address)),
            None => Err(FabricError::AddressUnsupported { host: address.host }),
        }
    }

    fn send_parts(&mut self, connection: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        let provider = self.of_mut(connection).ok_or(SendError::Closed)?;
        on!(&mut provider.endpoint, endpoint => endpoint.send_parts(connection, parts))
    }

    fn flush(&mut self) {
        for provider in &mut self.providers {
            on!(&mut provider.endpoint, endpoint => endpoint.flush());
        }
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let (mut events, mut in_use) = (0, false);
        for provider in &mut self.providers {
            provider.age += 1;
            if in_use && !provider.busy && provider.age < provider.polled_every {
                continue;
            }
            let of_provider = on!(&mut provider.endpoint, endpoint => endpoint.poll(sink));
            (provider.age, provider.busy) = (0, of_provider > 0);
            events += of_provider;
            in_use |=
                provider.polled_every == 1 && on!(&provider.endpoint, endpoint => endpoint.connections()) > 0;
        }
        events
    }

    fn tick(&mut self, now_ns: u64) {
        for provider in &mut self.providers {
            on!(&mut provider.endpoint, endpoint => endpoint.tick(now_ns));
        }
    }

    fn close(&mut self, connection: ConnectionId) {
        if let Some(provider) = self.of_mut(connection) {
            on!(&mut provider.endpoint, endpoint => endpoint.close(connection));
        }
    }

    fn output_pending(&self, connection: ConnectionId) -> usize {
        self.of(connection)
            .map_or(0, |provider| on!(&provider.endpoint, endpoint => endpoint.output_pending(connection)))
    }

    fn connections(&self) -> usize {
        self.providers
            .iter()
            .map(|provider| on!(&provider.endpoint, endpoint => endpoint.connections()))
            .sum()
    }

    fn prepare_sleep(&mut self) -> bool {
        let mut ready = true;
        for provider in &mut self.providers {
            ready = ready && on!(&mut provider.endpoint, endpoint => endpoint.prepare_sleep());
            // What ended the sleep, or would not let it begin, may be this one's.
            provider.age = provider.polled_every;
        }
        ready
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn counters(&self) -> FabricCounters {
        let mut counters = FabricCounters::default();
        for provider in &self.providers {
            counters.add(&on!(&provider.endpoint, endpoint => endpoint.counters()));
        }
        counters
    }
}

impl OneSided for HostEndpoint {
    fn register_for(&mut self, region: &Region, access: RegionAccess) -> Result<RegionKey, FabricError> {
        self.registry.as_ref().ok_or(FabricError::OneSidedUnavailable)?.register(region, access)
    }

    fn deregister(&mut self, key: RegionKey) {
        if let Some(registry) = &self.registry {
            registry.deregister(key);
        }
    }

    fn post(
        &mut self,
        connection: ConnectionId,
        access: RemoteAccess<'_>,
        tag: ReadTag,
    ) -> Result<(), SendError> {
        let provider = self.of_mut(connection).ok_or(SendError::Closed)?;
        on!(&mut provider.endpoint, endpoint => endpoint.post(connection, access, tag))
    }

    fn mapped(&self, connection: ConnectionId, key: RegionKey) -> Option<MappedRegion> {
        on!(&self.of(connection)?.endpoint, endpoint => endpoint.mapped(connection, key))
    }

    fn reads_ordered(&self) -> bool {
        self.providers.iter().all(|provider| on!(&provider.endpoint, endpoint => endpoint.reads_ordered()))
    }
}

/// Endpoints are made in one place and moved to the threads that use them.
const _: fn() = || {
    fn moves_between_threads<T: Send>() {}
    moves_between_threads::<HostEndpoint>();
};
