//! All providers of a real host in one endpoint: a node serves peers over TCP, over shared memory and, in
//! builds with the feature `verbs`, over RDMA at once, a client connects by whichever the address says. A
//! provider that is added is a variant of [`ProviderEndpoint`] and a row in [`ProviderRow::new`].

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use cell_memory::Region;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::address::Address;
#[cfg(feature = "verbs")]
use crate::connections::MARK_VERBS;
use crate::connections::{MARK_SHM, MARK_TCP, mark_of};
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Endpoint, Event};
use crate::error::{FabricError, SendError};
use crate::limits::FabricLimits;
use crate::mapped::MappedRegion;
use crate::one_sided::OneSided;
use crate::poller::poll_error;
use crate::ready_parts::ReadyParts;
use crate::registry::Registry;
use crate::remote_access::{ReadTag, RegionAccess, RegionKey, RemoteAccess};
use crate::shm::{ShmEndpoint, ShmOptions};
use crate::socket_name::SocketName;
use crate::taken::RegionTaker;
use crate::tcp::{TcpEndpoint, TcpOptions};
use crate::tls::{NodeTls, TlsTrust};
#[cfg(feature = "verbs")]
use crate::verbs::VerbsEndpoint;
use crate::verbs_options::VerbsOptions;

/// How a host's endpoint is set up.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// Limits, greeting, users and sizes; of both providers, as far as they concern both. A greeting that
    /// names no socket is given `socket`.
    pub shm: ShmOptions,
    /// The unix socket for peers of this host; none: no shared memory.
    pub socket: Option<SocketName>,
    /// Whether TCP may listen on an address that is not loopback: the caller knows who reaches it.
    pub beyond_loopback: bool,
    /// Whether peers can come over RDMA, and how.
    pub verbs: VerbsOptions,
    /// With which TLS is spoken to who connects over TCP, or begins there; none: in the clear.
    pub tls: Option<NodeTls>,
}

/// An endpoint over all providers of a host. Ids of their connections differ, and registrations are served by
/// all under one key.
#[derive(Debug)]
pub struct HostEndpoint {
    /// In the order in which they are polled.
    providers: Vec<ProviderRow>,
    registry: Option<Arc<Registry>>,
    /// Over the epolls of all, where somebody wants them in one.
    epoll: OwnedFd,
    /// Whether it watches them.
    is_joined: OnceLock<bool>,
}

/// The endpoints that a host's endpoint may be made of.
#[derive(Debug)]
enum ProviderEndpoint {
    Shm(ShmEndpoint),
    Tcp(TcpEndpoint),
    #[cfg(feature = "verbs")]
    Verbs(VerbsEndpoint),
}

/// The same call on whichever endpoint it is. Sends and polls are hot, so the call is chosen by a branch and
/// not by a table of functions.
macro_rules! on {
    ($provider:expr, $endpoint:ident => $call:expr) => {
        match $provider {
            ProviderEndpoint::Shm($endpoint) => $call,
            ProviderEndpoint::Tcp($endpoint) => $call,
            #[cfg(feature = "verbs")]
            ProviderEndpoint::Verbs($endpoint) => $call,
        }
    };
}

/// One row of a host's list of providers.
#[derive(Debug)]
struct ProviderRow {
    endpoint: ProviderEndpoint,
    /// As [`Address::provider`] of those that it reaches.
    name: &'static str,
    /// Of the ids of its connections.
    mark: u64,
    /// Turns between two polls while it is silent and one that is polled each turn is in use.
    polled_every: u32,
    /// Turns since it was polled.
    age: u32,
    /// It had something when it was last polled.
    busy: bool,
    /// It had nothing when a sleep ended: the next poll is not for it.
    slept_through: bool,
}

impl ProviderRow {
    fn new(endpoint: ProviderEndpoint) -> ProviderRow {
        let (name, mark, polled_every) = match endpoint {
            ProviderEndpoint::Shm(_) => ("shm", MARK_SHM, 1),
            // A poll is a system call.
            ProviderEndpoint::Tcp(_) => ("tcp", MARK_TCP, 8),
            #[cfg(feature = "verbs")]
            ProviderEndpoint::Verbs(_) => ("verbs", MARK_VERBS, 1),
        };
        ProviderRow { endpoint, name, mark, polled_every, age: 0, busy: false, slept_through: false }
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        on!(&self.endpoint, endpoint => endpoint.wake_descriptor())
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

    /// As [`HostEndpoint::client_of`], and over RDMA.
    ///
    /// # Errors
    /// As there; no such device, or this build has no RDMA.
    pub fn client_over_verbs(
        limits: FabricLimits,
        users: &[u32],
        verbs: &VerbsOptions,
    ) -> Result<HostEndpoint, FabricError> {
        let verbs = over_verbs::client(limits, verbs)?;
        let shm = ProviderEndpoint::Shm(ShmEndpoint::client_of(limits, users)?);
        let tcp = ProviderEndpoint::Tcp(TcpEndpoint::client(limits)?);
        HostEndpoint::join([verbs, shm, tcp], None)
    }

    /// An endpoint that accepts at a TCP address and at a unix socket.
    ///
    /// # Errors
    /// As for [`TcpEndpoint::listen`] and [`ShmEndpoint::listen`]; RDMA was asked for and there is none.
    pub fn listen(address: SocketAddr, options: &HostOptions) -> Result<HostEndpoint, FabricError> {
        let mut shm_options = options.shm.clone();
        let said = &mut shm_options.greeting.shared_memory_socket;
        if let (Some(name), true) = (options.socket, said.is_empty()) {
            name.as_str().clone_into(said);
        }
        let registry = match options.socket {
            Some(_) => Registry::with_ledger()?,
            None => Registry::default(),
        };
        let registry = Arc::new(over_verbs::with_device(registry, &options.verbs, address.ip())?);
        let tcp_options = TcpOptions {
            limits: shm_options.limits,
            greeting: shm_options.greeting.clone(),
            one_sided: shm_options.one_sided,
            partition: shm_options.partition.clone(),
            readers: shm_options.readers.clone(),
            beyond_loopback: options.beyond_loopback,
            tls: options.tls.clone(),
        };
        let mut tcp = TcpEndpoint::listen_with(address, &tcp_options, &registry)?;
        let shm = options.socket.map(|name| ShmEndpoint::listen_with(name, &shm_options, &registry));
        let shm = shm.transpose()?.map(ProviderEndpoint::Shm);
        let verbs = over_verbs::beside(&mut tcp, &shm_options, &registry)?;
        let endpoints = verbs.into_iter().chain(shm).chain([ProviderEndpoint::Tcp(tcp)]);
        HostEndpoint::join(endpoints, shm_options.one_sided.then_some(registry))
    }

    fn join(
        endpoints: impl IntoIterator<Item = ProviderEndpoint>,
        registry: Option<Arc<Registry>>,
    ) -> Result<HostEndpoint, FabricError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(poll_error)?;
        let providers = endpoints.into_iter().map(ProviderRow::new).collect();
        Ok(HostEndpoint { providers, registry, epoll, is_joined: OnceLock::new() })
    }

    /// Has one descriptor show what any provider has.
    fn watch_all(&self) -> bool {
        let watch = |descriptor| epoll::add(&self.epoll, descriptor, EventData::new_u64(0), EventFlags::IN);
        let outcome = self.wake_descriptors().into_iter().try_for_each(watch);
        if let Err(error) = outcome {
            tracing::error!(%error, "the kernel does not watch the fabric's sockets");
        }
        outcome.is_ok()
    }

    /// Connects under TLS from now on, over TCP and where RDMA begins, to ends that this trusts.
    pub fn trust(&mut self, trust: &TlsTrust) {
        for provider in &mut self.providers {
            match &mut provider.endpoint {
                ProviderEndpoint::Tcp(tcp) => tcp.trust(trust.clone()),
                #[cfg(feature = "verbs")]
                ProviderEndpoint::Verbs(verbs) => verbs.trust(trust.clone()),
                ProviderEndpoint::Shm(_) => {}
            }
        }
    }

    /// What shows peers by whom this end reads their memory, where the kernel does not say it; over RDMA
    /// also who connects.
    pub fn set_token(&mut self, token: &[u8]) {
        for provider in &mut self.providers {
            match &mut provider.endpoint {
                ProviderEndpoint::Tcp(tcp) => tcp.set_token(token),
                #[cfg(feature = "verbs")]
                ProviderEndpoint::Verbs(verbs) => verbs.set_token(token),
                ProviderEndpoint::Shm(_) => {}
            }
        }
    }

    /// Where this endpoint listens over TCP; `None` of one that only connects.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.providers.iter().find_map(|provider| match &provider.endpoint {
            ProviderEndpoint::Tcp(tcp) => tcp.address(),
            _ => None,
        })
    }

    /// The unix socket where it listens for peers of this host.
    #[must_use]
    pub fn socket(&self) -> Option<SocketName> {
        self.providers.iter().find_map(|provider| match &provider.endpoint {
            ProviderEndpoint::Shm(shm) => shm.name(),
            _ => None,
        })
    }

    /// Whether a region that is registered here takes all of its memory at once: a device that reads it for
    /// peers must have it.
    #[must_use]
    pub fn takes_whole_regions(&self) -> bool {
        self.registry.as_ref().is_some_and(|registry| registry.serves_verbs())
    }

    /// Has a device take regions before they are registered here.
    #[must_use]
    pub fn region_taker(&self) -> RegionTaker {
        #[cfg(feature = "verbs")]
        if let Some(registry) = self.registry.clone().filter(|registry| registry.serves_verbs()) {
            return RegionTaker::of(registry);
        }
        RegionTaker::default()
    }

    /// The provider that has a connection.
    #[inline]
    fn of(&self, connection: ConnectionId) -> Option<&ProviderRow> {
        self.providers.iter().find(|provider| provider.mark == mark_of(connection))
    }

    /// The provider that has a connection.
    #[inline]
    fn of_mut(&mut self, connection: ConnectionId) -> Option<&mut ProviderRow> {
        self.providers.iter_mut().find(|provider| provider.mark == mark_of(connection))
    }
}

impl Endpoint for HostEndpoint {
    fn connect(&mut self, address: &Address) -> Result<ConnectionId, FabricError> {
        let name = address.provider();
        match self.providers.iter_mut().find(|provider| provider.name == name) {
            Some(provider) => on!(&mut provider.endpoint, endpoint => endpoint.connect(address)),
            None => Err(FabricError::AddressUnsupported { address: *address }),
        }
    }

    fn name_address(&mut self, address: SocketAddr, host: &str) {
        for provider in &mut self.providers {
            on!(&mut provider.endpoint, endpoint => endpoint.name_address(address, host));
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
            let slept_through = std::mem::take(&mut provider.slept_through);
            let is_due = !in_use || provider.busy || provider.age >= provider.polled_every;
            if slept_through || !is_due {
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

    fn set_limits(&mut self, limits: FabricLimits) {
        for provider in &mut self.providers {
            on!(&mut provider.endpoint, endpoint => endpoint.set_limits(limits));
        }
    }

    fn close(&mut self, connection: ConnectionId) {
        if let Some(provider) = self.of_mut(connection) {
            on!(&mut provider.endpoint, endpoint => endpoint.close(connection));
        }
    }

    fn await_admission(&mut self) {
        for provider in &mut self.providers {
            on!(&mut provider.endpoint, endpoint => endpoint.await_admission());
        }
    }

    fn admit(&mut self, connection: ConnectionId) {
        if let Some(provider) = self.of_mut(connection) {
            on!(&mut provider.endpoint, endpoint => endpoint.admit(connection));
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
        self.is_joined.get_or_init(|| self.watch_all()).then(|| self.epoll.as_fd())
    }

    fn wake_descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.providers.iter().filter_map(ProviderRow::wake_descriptor).collect()
    }

    fn woken(&mut self, parts: ReadyParts) {
        for (part, provider) in self.providers.iter_mut().enumerate() {
            if !parts.has(part) {
                on!(&mut provider.endpoint, endpoint => endpoint.woken(ReadyParts::default()));
                // Where a look is not a call of the kernel it is taken all the same.
                provider.slept_through = provider.polled_every > 1;
                provider.age = 0;
            }
        }
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

/// What of a host's endpoint is RDMA's.
#[cfg(feature = "verbs")]
mod over_verbs {
    use std::net::IpAddr;

    use super::{Arc, FabricError, FabricLimits, ProviderEndpoint, Registry, ShmOptions, TcpEndpoint};
    use crate::verbs::{Device, VerbsEndpoint, VerbsError};
    use crate::verbs_options::{VerbsOffer, VerbsOptions};

    pub(super) fn client(
        limits: FabricLimits,
        options: &VerbsOptions,
    ) -> Result<ProviderEndpoint, FabricError> {
        let device = Device::open(options, None)?;
        Ok(ProviderEndpoint::Verbs(VerbsEndpoint::client(limits, &device)?))
    }

    /// The registry with the device that the options ask for, if there is one, at a host that listens there.
    pub(super) fn with_device(
        registry: Registry,
        options: &VerbsOptions,
        listens: IpAddr,
    ) -> Result<Registry, FabricError> {
        let listens = Some(listens).filter(|address| !address.is_unspecified());
        let device = match (options.offer, Device::open(options, listens)) {
            (VerbsOffer::Off, _) => None,
            (_, Ok(device)) => {
                tracing::info!(device = device.describe(), "RDMA (verbs) is offered");
                Some(device)
            }
            (VerbsOffer::On, Err(error)) => return Err(error.into()),
            (VerbsOffer::Auto, Err(error @ VerbsError::NoDevice)) => {
                tracing::info!(%error, "RDMA (verbs) is not offered");
                None
            }
            (VerbsOffer::Auto, Err(error)) => {
                tracing::warn!(%error, "RDMA (verbs) is not offered");
                None
            }
        };
        Ok(registry.with_device(device))
    }

    /// The endpoint over RDMA beside that over TCP, where there is a device.
    pub(super) fn beside(
        tcp: &mut TcpEndpoint,
        options: &ShmOptions,
        registry: &Arc<Registry>,
    ) -> Result<Option<ProviderEndpoint>, FabricError> {
        let Some(device) = registry.device() else { return Ok(None) };
        let Some(acceptor) = tcp.add_verbs()? else { return Ok(None) };
        let registry = options.one_sided.then(|| Arc::clone(registry));
        let readers = options.readers.clone();
        let endpoint = VerbsEndpoint::accepting(options.limits, device, acceptor, registry, readers)?;
        Ok(Some(ProviderEndpoint::Verbs(endpoint)))
    }
}

/// As with RDMA, for a build without it.
#[cfg(not(feature = "verbs"))]
mod over_verbs {
    use std::net::IpAddr;

    use super::{Arc, FabricError, FabricLimits, ProviderEndpoint, Registry, ShmOptions, TcpEndpoint};
    use crate::verbs_options::{VerbsOffer, VerbsOptions};

    pub(super) fn client(_: FabricLimits, _: &VerbsOptions) -> Result<ProviderEndpoint, FabricError> {
        Err(FabricError::VerbsNotBuilt)
    }

    pub(super) fn with_device(
        registry: Registry,
        options: &VerbsOptions,
        _: IpAddr,
    ) -> Result<Registry, FabricError> {
        match options.offer {
            VerbsOffer::On => Err(FabricError::VerbsNotBuilt),
            VerbsOffer::Off | VerbsOffer::Auto => Ok(registry),
        }
    }

    pub(super) fn beside(
        _: &mut TcpEndpoint,
        _: &ShmOptions,
        _: &Arc<Registry>,
    ) -> Result<Option<ProviderEndpoint>, FabricError> {
        Ok(None)
    }
}
