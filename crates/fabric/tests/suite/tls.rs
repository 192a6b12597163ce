//! TLS on the fabric's TCP: who gets in, who is turned away and why, and files that change meanwhile.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use cell_fabric::{
    Address, CloseReason, ConnectionId, Endpoint, FabricLimits, HelloRefusal, OneSided, ReadFailure,
    ReadPermission, ReadTag, RemoteRead, Stranger, TcpEndpoint, TcpOptions, TlsFailure, TlsTrust,
};

use crate::harness::certificates::{Authority, Folder};
use crate::harness::{Peer, Tcp, Tls, World, node_tls, open, region, until};

/// The alert to whom there is no room for.
const NO_ROOM: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 240];
/// How a client of TLS begins: the head of a record, and of its hello.
const HALF_A_CLIENT_HELLO: [u8; 9] = [0x16, 3, 1, 0, 200, 1, 0, 0, 196];

fn socket_address(address: Address) -> SocketAddr {
    match address {
        Address::Tcp(address) => address,
        other => panic!("{other}"),
    }
}

/// How the connection of a client ends that is not let in, and what the server says of it.
fn ends(
    client: &mut Peer<TcpEndpoint>,
    server: &mut Peer<TcpEndpoint>,
    address: Address,
) -> (CloseReason, CloseReason) {
    let here = client.endpoint.connect(&address).unwrap();
    until(&mut Tcp, &mut [client, server], |peers| {
        let is_refused = peers[0].closed(here).is_some() && !peers[1].refused.is_empty();
        is_refused || !peers[1].order.is_empty()
    });
    assert!(server.order.is_empty(), "it never was a connection");
    (client.closed(here).unwrap(), server.refused.pop().unwrap())
}

#[test]
fn client_in_the_clear_learns_that_tls_is_spoken() {
    let (mut server, address) = Tls::new().listen(FabricLimits::default());
    let mut client = Tls::client_of(FabricLimits::default(), None);
    let refused = CloseReason::RefusedByPeer(HelloRefusal::TlsWanted);
    assert_eq!(ends(&mut client, &mut server, address), (refused, CloseReason::TlsWanted));
    assert_eq!(refused.to_string(), "the peer refused the connection: it speaks TLS alone");
}

#[test]
#[cfg(debug_assertions)]
fn mutant_clear_taken_is_caught() {
    use cell_terms::mutant::{Mutant, plant};
    cell_terms::mutant::in_own_process(|| {
        plant(Some(Mutant::ClearTaken));
        let passed = std::panic::catch_unwind(client_in_the_clear_learns_that_tls_is_spoken).is_ok();
        plant(None);
        assert!(!passed);
        println!("mutant {} caught by cell-fabric's TLS", Mutant::ClearTaken.name());
    });
}

#[test]
fn client_with_tls_at_a_port_without_learns_that_and_so_does_the_server() {
    let (mut server, address) = Tcp.listen(FabricLimits::default());
    let mut client = Tls::new().client(FabricLimits::default());
    let unanswered = CloseReason::Tls(TlsFailure::Unanswered);
    let stranger = CloseReason::Stranger(Stranger::Tls);
    assert_eq!(ends(&mut client, &mut server, address), (unanswered, stranger));
}

#[test]
fn strangers_at_a_port_with_tls_are_named_as_without() {
    for (said, wanted) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], CloseReason::Stranger(Stranger::Http)),
        (b"SSH-2.0-OpenSSH\r\n", CloseReason::Stranger(Stranger::Ssh)),
        (Stranger::PROBE, CloseReason::Stranger(Stranger::Probe)),
        (b"\0", CloseReason::Stranger(Stranger::Unknown)),
        (b"CELLFABR\x09\0\0\0", CloseReason::VersionUnknown { theirs: 9 }),
        (b"\x16\x03\x01\x00\x08\x01\x00\x00\x04what", CloseReason::Tls(TlsFailure::Broken)),
        (&[0x16; 600], CloseReason::Tls(TlsFailure::Broken)),
    ] {
        let (mut server, address) = Tls::new().listen(FabricLimits::default());
        let mut stranger = TcpStream::connect(socket_address(address)).unwrap();
        stranger.write_all(said).unwrap();
        until(&mut Tcp, &mut [&mut server], |peers| !peers[0].refused.is_empty());
        assert_eq!((server.refused[0], server.endpoint.connections()), (wanted, 0), "{said:?}");
    }
}

#[test]
fn server_whose_certificate_does_not_hold_is_not_talked_to() {
    let (one, two) = (Authority::new("one"), Authority::new("two"));
    let trust = TlsTrust::open(&one.folder(&["127.0.0.1"]).path("ca.pem")).unwrap();
    for (folder, wanted) in [
        (two.folder(&["127.0.0.1"]), TlsFailure::Untrusted),
        (one.folder(&["127.0.0.2", "localhost"]), TlsFailure::WrongName),
        (one.folder_until(&["127.0.0.1"], 2_001), TlsFailure::Ended),
    ] {
        let (mut server, address) = Tls::of(&folder).listen(FabricLimits::default());
        let mut client = Tls::client_of(FabricLimits::default(), Some(&trust));
        let said = (CloseReason::Tls(wanted), CloseReason::Tls(TlsFailure::NotTrustedByPeer));
        assert_eq!(ends(&mut client, &mut server, address), said);
    }
}

#[test]
fn server_that_was_found_by_a_name_is_known_by_it() {
    let authority = Authority::new("one");
    let mut world = Tls::of(&authority.folder(&["node.example"]));
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut by_address = world.client(FabricLimits::default());
    let (reason, _) = ends(&mut by_address, &mut server, address);
    assert_eq!(reason, CloseReason::Tls(TlsFailure::WrongName));
    let mut by_name = world.client(FabricLimits::default());
    by_name.endpoint.name_address(socket_address(address), "node.example");
    open(&mut world, &mut by_name, &mut server, address);
}

/// A name that once led to an address stood for whoever was met there later.
#[test]
fn server_that_is_known_by_its_address_again_is_not_known_by_an_earlier_name() {
    let authority = Authority::new("one");
    let mut world = Tls::of(&authority.folder(&["node.example"]));
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    for host in ["node.example", "127.0.0.1"] {
        client.endpoint.name_address(socket_address(address), host);
    }
    let (reason, _) = ends(&mut client, &mut server, address);
    assert_eq!(reason, CloseReason::Tls(TlsFailure::WrongName));
    client.endpoint.name_address(socket_address(address), "node.example");
    client.endpoint.name_address(socket_address(address), "no host!");
    open(&mut world, &mut client, &mut server, address);
}

/// However many begin TLS and go no further: who does gets in, and the oldest of them makes room.
#[test]
fn silent_crowd_before_tls_locks_nobody_out() {
    let limits = FabricLimits { handshakes_max: 8, ..FabricLimits::default() };
    let mut world = Tls::new();
    let (mut server, address) = world.listen(limits);
    let silent: Vec<TcpStream> = (0..40)
        .map(|number| {
            let mut stream = TcpStream::connect(socket_address(address)).unwrap();
            let said: &[u8] = if number % 2 == 0 { &HALF_A_CLIENT_HELLO } else { &[] };
            stream.write_all(said).unwrap();
            stream
        })
        .collect();
    until(&mut world, &mut [&mut server], |peers| peers[0].refused.len() == 32);
    assert_eq!(server.endpoint.counters().evicted, 32);
    for mut turned_away in silent.iter().take(2) {
        let mut answer = Vec::new();
        turned_away.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, NO_ROOM);
    }
    let mut client = world.client(FabricLimits::default());
    open(&mut world, &mut client, &mut server, address);
}

#[test]
fn client_that_is_turned_away_before_tls_knows_why() {
    let limits = FabricLimits { handshakes_max: 1, ..FabricLimits::default() };
    let mut world = Tls::new();
    let (mut server, address) = world.listen(limits);
    let mut client = world.client(FabricLimits::default());
    let here = client.endpoint.connect(&address).unwrap();
    // It is accepted before its first message comes, which its endpoint sends when it is polled.
    until(&mut world, &mut [&mut server], |peers| peers[0].endpoint.connections() == 1);
    let _next = TcpStream::connect(socket_address(address)).unwrap();
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].closed(here).is_some());
    assert_eq!(client.closed(here), Some(CloseReason::Tls(TlsFailure::NoRoom)));
}

/// Hand-shakes take some of each poll, and no more: others are served meanwhile.
#[test]
fn hand_shakes_of_a_crowd_are_gone_on_with_a_few_a_poll() {
    const STEPS_PER_POLL: usize = 8;
    let mut world = Tls::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut crowd: Vec<(Peer<TcpEndpoint>, ConnectionId)> = (0..40)
        .map(|_| {
            let mut client = world.client(FabricLimits::default());
            let here = client.endpoint.connect(&address).unwrap();
            (client, here)
        })
        .collect();
    let connected = |crowd: &[(Peer<TcpEndpoint>, ConnectionId)]| {
        crowd.iter().filter(|(client, here)| client.connected(*here)).count()
    };
    let mut polls = 0;
    while connected(&crowd) < crowd.len() {
        for (client, _) in &mut crowd {
            client.turn();
        }
        server.turn();
        polls += 1;
        // Two steps a connection: its first message, and its last one.
        assert!(connected(&crowd) <= polls * STEPS_PER_POLL / 2, "after {polls} polls");
        assert!(polls < 400_000, "they all come through");
        std::thread::yield_now();
    }
}

/// One authority takes the place of another without an end of any connection, in three steps: both are
/// trusted, the certificate is another one, the old authority is trusted no more.
#[test]
fn authority_is_replaced_while_connections_go_on() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let (at_server, at_client): (Folder, Folder) = (old.folder(&["127.0.0.1"]), old.folder(&[]));
    let node = node_tls(&at_server);
    let mut world = Tls { node: node.clone() };
    let (mut server, address) = world.listen(FabricLimits::default());
    server.echoes = true;
    let trust = TlsTrust::open(&at_client.path("ca.pem")).unwrap();
    let mut client = Tls::client_of(FabricLimits::default(), Some(&trust));
    let (first, _) = open(&mut world, &mut client, &mut server, address);
    let mut asked = 0;
    let mut goes_on = |client: &mut Peer<TcpEndpoint>, server: &mut Peer<TcpEndpoint>| {
        asked += 1;
        client.endpoint.send(first, b"are you there?").unwrap();
        until(&mut Tcp, &mut [client, server], |peers| peers[0].messages(first).len() == asked);
    };
    at_client.write("ca.pem", &[old.pem.as_str(), &new.pem].concat());
    open(&mut world, &mut client, &mut server, address);
    goes_on(&mut client, &mut server);
    new.replace(&at_server, &["127.0.0.1"]);
    assert!(node.read_if_changed().unwrap());
    open(&mut world, &mut client, &mut server, address);
    goes_on(&mut client, &mut server);
    at_client.write("ca.pem", &new.pem);
    open(&mut world, &mut client, &mut server, address);
    goes_on(&mut client, &mut server);
    old.replace(&at_server, &["127.0.0.1"]);
    assert!(node.read_if_changed().unwrap());
    let refused = client.endpoint.connect(&address).unwrap();
    until(&mut Tcp, &mut [&mut client, &mut server], |peers| peers[0].closed(refused).is_some());
    assert_eq!(client.closed(refused), Some(CloseReason::Tls(TlsFailure::Untrusted)));
    goes_on(&mut client, &mut server);
}

/// The token that may read.
#[derive(Debug)]
struct Token(&'static [u8]);

impl ReadPermission for Token {
    fn permits(&self, token: &[u8]) -> bool {
        token == self.0
    }

    fn revision(&self) -> u64 {
        1
    }
}

#[test]
fn read_under_tls_is_for_who_shows_a_token_that_may() {
    let mut world = Tls::new();
    let readers: Option<Arc<dyn ReadPermission>> = Some(Arc::new(Token(b"reader")));
    let tls = Some(world.node.clone());
    let options = TcpOptions { one_sided: true, readers, tls, ..TcpOptions::default() };
    let endpoint = TcpEndpoint::listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let address = Address::Tcp(endpoint.address().unwrap());
    let mut server = Peer::new(endpoint);
    let key = server.endpoint.register(&region().0).unwrap();
    for (token, wanted) in [(&b"reader"[..], Ok(vec![1_000])), (b"guessed", Err(ReadFailure::Unsupported))] {
        let mut client = world.client(FabricLimits::default());
        client.endpoint.set_token(token);
        let (here, _) = open(&mut world, &mut client, &mut server, address);
        client.endpoint.post_read(here, RemoteRead { key, offset: 8_000, length: 8 }, ReadTag(1)).unwrap();
        until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 1);
        assert_eq!(client.reads(here), [(1, wanted)]);
    }
}
