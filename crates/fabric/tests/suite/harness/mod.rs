//! What the conformance suite runs on: a world of one provider, and peers that remember what they saw.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared by several test binaries; a failed unwrap fails a test"
)]

#[path = "../../../src/tls/test_certificates.rs"]
pub(crate) mod certificates;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use cell_fabric::{
    Address, CloseReason, ConnectionId, Endpoint, Event, FabricLimits, Greeting, HostEndpoint, HostOptions,
    NodeTls, OneSided, ReadFailure, ShmEndpoint, ShmOptions, SimEndpoint, SimNetwork, SimOptions, SocketName,
    TcpEndpoint, TcpOptions, TlsFiles, TlsTrust,
};
#[cfg(feature = "verbs")]
use cell_fabric::{VerbsOffer, VerbsOptions};
use cell_memory::{HugePages, Region, RegionOptions, RegionSpec, RegionWriter};
use cell_terms::{Epoch, PairId, Words, WordsMut};

use certificates::{Authority, Folder};

/// Turns before a test gives up waiting.
const TURNS_MAX: usize = 400_000;

/// A provider's surroundings.
pub(crate) trait World {
    /// The provider's endpoint.
    type E: OneSided;

    fn new() -> Self;
    /// An endpoint that accepts, and its address.
    fn listen(&mut self, limits: FabricLimits) -> (Peer<Self::E>, Address);
    fn client(&mut self, limits: FabricLimits) -> Peer<Self::E>;
    /// An address of a host that is there, where nobody listens.
    fn deserted(&mut self) -> Address;
    /// Lets a little time pass.
    fn turn(&mut self);
}

/// The tests of a provider that lets peers write, and whose device not every machine has.
#[cfg(feature = "verbs")]
#[allow(unused_macros, reason = "for the test of conformance alone")]
macro_rules! provider_with_device {
    ($provider:ident, $world:ty, { $($test:ident)+ }) => {
        mod $provider {
            $(#[test] fn $test() {
                if <$world>::is_there() {
                    super::$test::<$world>();
                }
            })+
        }
    };
}

/// An event, kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Accepted,
    Connected(Greeting),
    Message(Vec<u8>),
    Writable,
    Closed(CloseReason),
    Read(u64, Result<Vec<u64>, ReadFailure>),
}

/// An endpoint and what it reported.
pub(crate) struct Peer<E> {
    pub(crate) endpoint: E,
    pub(crate) seen: HashMap<ConnectionId, Vec<Seen>>,
    pub(crate) order: Vec<ConnectionId>,
    pub(crate) refused: Vec<CloseReason>,
    pub(crate) echoes: bool,
}

impl<E: Endpoint> Peer<E> {
    pub(crate) fn new(endpoint: E) -> Peer<E> {
        Peer { endpoint, seen: HashMap::new(), order: Vec::new(), refused: Vec::new(), echoes: false }
    }

    /// One round of a shell's loop.
    pub(crate) fn turn(&mut self) -> usize {
        let Peer { endpoint, seen, order, refused, .. } = self;
        let mut replies = Vec::new();
        let echoes = self.echoes;
        let count = endpoint.poll(&mut |event| {
            let (connection, event) = match event {
                Event::Accepted { connection, .. } => (connection, Seen::Accepted),
                Event::Connected { connection, greeting } => (connection, Seen::Connected(greeting.clone())),
                Event::Message { connection, message } if echoes => {
                    replies.push((connection, message.to_vec()));
                    return;
                }
                Event::Message { connection, message } => (connection, Seen::Message(message.to_vec())),
                Event::Writable { connection } => (connection, Seen::Writable),
                Event::Closed { connection, reason } => (connection, Seen::Closed(reason)),
                Event::Refused { reason, .. } => return refused.push(reason),
                Event::ReadDone { connection, tag, outcome } => {
                    (connection, Seen::Read(tag.0, outcome.map(<[u64]>::to_vec)))
                }
            };
            if !seen.contains_key(&connection) {
                order.push(connection);
            }
            let list = seen.entry(connection).or_default();
            assert!(!matches!(list.last(), Some(Seen::Closed(_))), "an event after the connection's end");
            list.push(event);
        });
        for (connection, message) in replies {
            self.endpoint.send(connection, &message).unwrap();
        }
        self.endpoint.flush();
        count
    }

    pub(crate) fn seen(&self, connection: ConnectionId) -> &[Seen] {
        self.seen.get(&connection).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn connected(&self, connection: ConnectionId) -> bool {
        matches!(self.seen(connection).first(), Some(Seen::Connected(_)))
    }

    pub(crate) fn closed(&self, connection: ConnectionId) -> Option<CloseReason> {
        match self.seen(connection).last() {
            Some(Seen::Closed(reason)) => Some(*reason),
            _ => None,
        }
    }

    pub(crate) fn reads(&self, connection: ConnectionId) -> Vec<(u64, Result<Vec<u64>, ReadFailure>)> {
        let read = |seen: &Seen| match seen {
            Seen::Read(tag, outcome) => Some((*tag, outcome.clone())),
            _ => None,
        };
        self.seen(connection).iter().filter_map(read).collect()
    }

    pub(crate) fn messages(&self, connection: ConnectionId) -> Vec<Vec<u8>> {
        let message = |seen: &Seen| match seen {
            Seen::Message(message) => Some(message.clone()),
            _ => None,
        };
        self.seen(connection).iter().filter_map(message).collect()
    }
}

/// Turns everyone until the condition holds.
pub(crate) fn until<W: World>(
    world: &mut W,
    peers: &mut [&mut Peer<W::E>],
    mut done: impl FnMut(&mut [&mut Peer<W::E>]) -> bool,
) {
    for _ in 0..TURNS_MAX {
        peers.iter_mut().for_each(|peer| {
            peer.turn();
        });
        if done(peers) {
            return;
        }
        world.turn();
    }
    panic!("what was waited for did not happen");
}

/// A client's connection to a server, open on both ends.
pub(crate) fn open<W: World>(
    world: &mut W,
    client: &mut Peer<W::E>,
    server: &mut Peer<W::E>,
    address: Address,
) -> (ConnectionId, ConnectionId) {
    let connection = client.endpoint.connect(&address).unwrap();
    let known = server.order.len();
    until(world, &mut [client, server], |peers| {
        peers[0].connected(connection) && peers[1].order.len() > known
    });
    (connection, server.order[known])
}

/// TCP over loopback.
pub(crate) struct Tcp;

impl World for Tcp {
    type E = TcpEndpoint;

    fn new() -> Tcp {
        Tcp
    }

    fn listen(&mut self, limits: FabricLimits) -> (Peer<TcpEndpoint>, Address) {
        let options = TcpOptions { limits, greeting: greeting(), one_sided: true, ..TcpOptions::default() };
        let endpoint = TcpEndpoint::listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let address = Address::Tcp(endpoint.address().unwrap());
        (Peer::new(endpoint), address)
    }

    fn client(&mut self, limits: FabricLimits) -> Peer<TcpEndpoint> {
        Peer::new(TcpEndpoint::client(limits).unwrap())
    }

    fn deserted(&mut self) -> Address {
        Address::Tcp(std::net::SocketAddr::from(([127, 0, 0, 1], 1)))
    }

    fn turn(&mut self) {
        std::thread::yield_now();
    }
}

/// TCP over loopback, under TLS.
pub(crate) struct Tls {
    pub(crate) node: NodeTls,
}

/// A node's TLS with the files of a folder.
pub(crate) fn node_tls(folder: &Folder) -> NodeTls {
    let [certificate, key] = ["node.pem", "node.key"].map(|name| folder.path(name));
    NodeTls::open(TlsFiles { certificate, key, trust: Some(folder.path("ca.pem")) }).unwrap()
}

impl Tls {
    pub(crate) fn of(folder: &Folder) -> Tls {
        Tls { node: node_tls(folder) }
    }

    /// A client that trusts this, or connects in the clear.
    pub(crate) fn client_of(limits: FabricLimits, trust: Option<&TlsTrust>) -> Peer<TcpEndpoint> {
        let mut endpoint = TcpEndpoint::client(limits).unwrap();
        if let Some(trust) = trust {
            endpoint.trust(trust.clone());
        }
        Peer::new(endpoint)
    }
}

impl World for Tls {
    type E = TcpEndpoint;

    fn new() -> Tls {
        Tls::of(&Authority::new("test").folder(&["127.0.0.1"]))
    }

    fn listen(&mut self, limits: FabricLimits) -> (Peer<TcpEndpoint>, Address) {
        let tls = Some(self.node.clone());
        let options =
            TcpOptions { limits, greeting: greeting(), one_sided: true, tls, ..TcpOptions::default() };
        let endpoint = TcpEndpoint::listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let address = Address::Tcp(endpoint.address().unwrap());
        (Peer::new(endpoint), address)
    }

    fn client(&mut self, limits: FabricLimits) -> Peer<TcpEndpoint> {
        Tls::client_of(limits, Some(self.node.trust()))
    }

    fn deserted(&mut self) -> Address {
        Tcp.deserted()
    }

    fn turn(&mut self) {
        std::thread::yield_now();
    }
}

/// Shared memory between endpoints of one process, which could as well be two.
pub(crate) struct Shm;

/// A name of its own for each listener.
pub(crate) fn socket_name() -> SocketName {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    SocketName::new(&format!("@cell-fabric-test-{}-{number}", std::process::id())).unwrap()
}

pub(crate) fn shm_options(limits: FabricLimits) -> ShmOptions {
    ShmOptions { limits, greeting: greeting(), one_sided: true, ..ShmOptions::default() }
}

impl World for Shm {
    type E = ShmEndpoint;

    fn new() -> Shm {
        Shm
    }

    fn listen(&mut self, limits: FabricLimits) -> (Peer<ShmEndpoint>, Address) {
        let name = socket_name();
        let endpoint = ShmEndpoint::listen(name, &shm_options(limits)).unwrap();
        assert_eq!(endpoint.name(), Some(name));
        (Peer::new(endpoint), Address::Shm(name))
    }

    fn client(&mut self, limits: FabricLimits) -> Peer<ShmEndpoint> {
        Peer::new(ShmEndpoint::client(limits).unwrap())
    }

    fn deserted(&mut self) -> Address {
        Address::Shm(socket_name())
    }

    fn turn(&mut self) {
        std::thread::yield_now();
    }
}

/// Both in one endpoint, reached over TCP or over shared memory.
pub(crate) struct Host<const SHM: bool>;

impl<const SHM: bool> World for Host<SHM> {
    type E = HostEndpoint;

    fn new() -> Host<SHM> {
        Host
    }

    fn listen(&mut self, limits: FabricLimits) -> (Peer<HostEndpoint>, Address) {
        let name = socket_name();
        let options = HostOptions { shm: shm_options(limits), socket: Some(name), ..HostOptions::default() };
        let endpoint = HostEndpoint::listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        assert_eq!(endpoint.socket(), Some(name));
        let tcp = Address::Tcp(endpoint.address().unwrap());
        let address = if SHM { Address::Shm(name) } else { tcp };
        (Peer::new(endpoint), address)
    }

    fn client(&mut self, limits: FabricLimits) -> Peer<HostEndpoint> {
        Peer::new(HostEndpoint::client(limits).unwrap())
    }

    fn deserted(&mut self) -> Address {
        if SHM { Shm.deserted() } else { Tcp.deserted() }
    }

    fn turn(&mut self) {
        std::thread::yield_now();
    }
}

/// RDMA, where the machine has a device.
#[cfg(feature = "verbs")]
pub(crate) struct Verbs;

#[cfg(feature = "verbs")]
impl Verbs {
    /// Whether there is a device; says so on a line of its own if there is none.
    pub(crate) fn is_there() -> bool {
        let client = HostEndpoint::client_over_verbs(FabricLimits::default(), &[], &VerbsOptions::default());
        if let Err(error) = &client {
            println!("SKIPPED: {error}");
        }
        client.is_ok()
    }

    /// The options of a host that serves it.
    pub(crate) fn options(limits: FabricLimits) -> HostOptions {
        let verbs = VerbsOptions { offer: VerbsOffer::On, ..VerbsOptions::default() };
        HostOptions { shm: shm_options(limits), verbs, ..HostOptions::default() }
    }
}

#[cfg(feature = "verbs")]
impl World for Verbs {
    type E = HostEndpoint;

    fn new() -> Verbs {
        Verbs
    }

    fn listen(&mut self, limits: FabricLimits) -> (Peer<HostEndpoint>, Address) {
        let any = "127.0.0.1:0".parse().unwrap();
        let endpoint = HostEndpoint::listen(any, &Verbs::options(limits)).unwrap();
        let address = Address::Verbs(endpoint.address().unwrap());
        (Peer::new(endpoint), address)
    }

    fn client(&mut self, limits: FabricLimits) -> Peer<HostEndpoint> {
        Peer::new(HostEndpoint::client_over_verbs(limits, &[], &VerbsOptions::default()).unwrap())
    }

    fn deserted(&mut self) -> Address {
        Address::Verbs(std::net::SocketAddr::from(([127, 0, 0, 1], 1)))
    }

    fn turn(&mut self) {
        std::thread::yield_now();
    }
}

/// The simulated network, with whatever options.
pub(crate) struct Sim {
    pub(crate) network: SimNetwork,
    pub(crate) now_ns: u64,
    hosts: u32,
}

impl Sim {
    pub(crate) fn with(seed: u64, options: SimOptions) -> Sim {
        Sim { network: SimNetwork::new(seed, options), now_ns: 0, hosts: 0 }
    }

    fn host(&mut self) -> u32 {
        self.hosts += 1;
        self.hosts
    }
}

impl World for Sim {
    type E = SimEndpoint;

    fn new() -> Sim {
        Sim::with(1, SimOptions::calm())
    }

    fn listen(&mut self, limits: FabricLimits) -> (Peer<SimEndpoint>, Address) {
        let host = self.host();
        (Peer::new(self.network.listen(host, limits, greeting())), Address::Sim(host))
    }

    fn client(&mut self, limits: FabricLimits) -> Peer<SimEndpoint> {
        let host = self.host();
        Peer::new(self.network.client(host, limits))
    }

    fn deserted(&mut self) -> Address {
        let host = self.host();
        // A process that listens nowhere keeps the host there.
        std::mem::forget(self.network.client(host, FabricLimits::default()));
        Address::Sim(host)
    }

    fn turn(&mut self) {
        self.now_ns += 20_000;
        self.network.step(self.now_ns);
    }
}

pub(crate) fn greeting() -> Greeting {
    Greeting {
        boot_id: [3; 16],
        shared_memory_socket: "/run/cell/0".to_owned(),
        http_address: "127.0.0.1:7480".to_owned(),
    }
}

/// A region of 2 MiB whose words are their own index, but for the header.
pub(crate) fn region() -> (Region, RegionWriter) {
    let spec = RegionSpec::extent(PairId(1), Epoch(1), 2 << 20).unwrap();
    let options = RegionOptions { pages: HugePages::Small, memory_check: false };
    let (region, mut writer) = Region::create(&spec, options).unwrap();
    for index in 512..region.len() {
        writer.store(index, index as u64);
    }
    (region, writer)
}
