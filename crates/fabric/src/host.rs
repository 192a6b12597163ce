//! Both providers of a real host in one endpoint: a worker serves peers over TCP and over shared memory at
//! once, a client connects by whichever the address says.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use cell_memory::Region;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::address::{Address, Host};
use crate::connections::{MARK_SHM, mark_of};
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

/// A poll of TCP is a system call; while shared memory is in use and TCP is silent, one in so many turns
/// has it.
const TCP_EVERY: u32 = 8;

/// How a host's endpoints are set up.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// Limits, greeting, users and sizes; of both providers, as far as they concern both. A greeting that
    /// names no socket is given `socket`.
    pub shm: ShmOptions,
    /// The unix socket for peers of this host; none: TCP alone.
    pub socket: Option<SocketName>,
}

/// An endpoint over TCP and shared memory. Ids of the two kinds of connections differ, and registrations are
/// served by both under one key.
#[derive(Debug)]
pub struct HostEndpoint {
    tcp: TcpEndpoint,
    shm: Option<ShmEndpoint>,
    registry: Option<Arc<Registry>>,
    /// Over the epolls of both.
    epoll: OwnedFd,
    /// Turns since TCP was polled.
    tcp_age: u32,
    /// TCP had something when it was last polled.
    tcp_busy: bool,
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
        HostEndpoint::join(TcpEndpoint::client(limits)?, Some(ShmEndpoint::client_of(limits, users)?), None)
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
        let shm: Vec<Option<ShmEndpoint>> = match options.socket {
            Some(name) => {
                let shm = ShmEndpoint::listen_with(name, workers, &shm_options, &registry)?;
                shm.into_iter().map(Some).collect()
            }
            None => tcp.iter().map(|_| None).collect(),
        };
        let registry = shm_options.one_sided.then_some(registry);
        tcp.into_iter().zip(shm).map(|(tcp, shm)| HostEndpoint::join(tcp, shm, registry.clone())).collect()
    }

    fn join(
        tcp: TcpEndpoint,
        shm: Option<ShmEndpoint>,
        registry: Option<Arc<Registry>>,
    ) -> Result<HostEndpoint, FabricError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(poll_error)?;
        let shm_descriptor = shm.as_ref().and_then(Endpoint::wake_descriptor);
        for descriptor in [tcp.wake_descriptor(), shm_descriptor].into_iter().flatten() {
            epoll::add(&epoll, descriptor, EventData::new_u64(0), EventFlags::IN).map_err(poll_error)?;
        }
        Ok(HostEndpoint { tcp, shm, registry, epoll, tcp_age: 0, tcp_busy: false })
    }

    /// Where this endpoint listens over TCP; `None` unless it is the one of its group that accepts.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp.address()
    }

    /// The unix socket where it listens for peers of this host.
    #[must_use]
    pub fn socket(&self) -> Option<SocketName> {
        self.shm.as_ref().and_then(ShmEndpoint::name)
    }

    /// The half that has a connection.
    fn of(&mut self, connection: ConnectionId) -> &mut dyn OneSided {
        match &mut self.shm {
            Some(shm) if mark_of(connection) == MARK_SHM => shm,
            _ => &mut self.tcp,
        }
    }

    fn tcp_is_due(&self) -> bool {
        let shm_in_use = self.shm.as_ref().is_some_and(|shm| shm.connections() > 0);
        self.tcp_busy || !shm_in_use || self.tcp_age >= TCP_EVERY
    }
}

impl Endpoint for HostEndpoint {
    fn connect(&mut self, address: &Address) -> Result<ConnectionId, FabricError> {
        match (address.host, &mut self.shm) {
            (Host::Shm(_), Some(shm)) => shm.connect(address),
            _ => self.tcp.connect(address),
        }
    }

    fn send_parts(&mut self, connection: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        match &mut self.shm {
            Some(shm) if mark_of(connection) == MARK_SHM => shm.send_parts(connection, parts),
            _ => self.tcp.send_parts(connection, parts),
        }
    }

    fn flush(&mut self) {
        if let Some(shm) = &mut self.shm {
            shm.flush();
        }
        self.tcp.flush();
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let mut events = self.shm.as_mut().map_or(0, |shm| shm.poll(sink));
        self.tcp_age += 1;
        if self.tcp_is_due() {
            self.tcp_age = 0;
            let of_tcp = self.tcp.poll(sink);
            self.tcp_busy = of_tcp > 0;
            events += of_tcp;
        }
        events
    }

    fn tick(&mut self, now_ns: u64) {
        if let Some(shm) = &mut self.shm {
            shm.tick(now_ns);
        }
        self.tcp.tick(now_ns);
    }

    fn close(&mut self, connection: ConnectionId) {
        self.of(connection).close(connection);
    }

    fn output_pending(&self, connection: ConnectionId) -> usize {
        match &self.shm {
            Some(shm) if mark_of(connection) == MARK_SHM => shm.output_pending(connection),
            _ => self.tcp.output_pending(connection),
        }
    }

    fn connections(&self) -> usize {
        self.tcp.connections() + self.shm.as_ref().map_or(0, Endpoint::connections)
    }

    fn prepare_sleep(&mut self) -> bool {
        let ready = self.shm.as_mut().is_none_or(Endpoint::prepare_sleep) && self.tcp.prepare_sleep();
        // What ended the sleep, or would not let it begin, may be TCP's.
        self.tcp_age = TCP_EVERY;
        ready
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn counters(&self) -> FabricCounters {
        let mut counters = self.tcp.counters();
        if let Some(shm) = &self.shm {
            counters.add(&shm.counters());
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
        match &mut self.shm {
            Some(shm) if mark_of(connection) == MARK_SHM => shm.post(connection, access, tag),
            _ => self.tcp.post(connection, access, tag),
        }
    }

    fn mapped(&self, connection: ConnectionId, key: RegionKey) -> Option<MappedRegion> {
        self.shm.as_ref().filter(|_| mark_of(connection) == MARK_SHM)?.mapped(connection, key)
    }

    fn reads_ordered(&self) -> bool {
        self.tcp.reads_ordered() && self.shm.as_ref().is_none_or(OneSided::reads_ordered)
    }
}

/// Endpoints are made in one place and moved to the threads that use them.
const _: fn() = || {
    fn moves_between_threads<T: Send>() {}
    moves_between_threads::<HostEndpoint>();
};
