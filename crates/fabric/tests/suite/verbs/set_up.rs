//! How connections over RDMA are made: under TLS, with a token, by which address; and who learns where
//! regions are.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use cell_fabric::{
    Address, CloseReason, ConnectionId, Endpoint, FabricError, FabricLimits, HelloRefusal, HostEndpoint,
    HostOptions, NodeTls, OneSided, ReadFailure, ReadPermission, ReadTag, RegionKey, RemoteRead, ShmOptions,
    Stranger, TlsFailure, TlsTrust, VerbsOffer, VerbsOptions,
};

use crate::harness::certificates::Authority;
use crate::harness::{Peer, Verbs, node_tls, open, region, until};
use crate::readers::Tokens;

/// Addresses of the device in `tests/rdma-vm`, and one that another network device has there.
const OF_DEVICE: &str = "10.9.0.1";
const OF_DEVICE_V6: &str = "fd00:9::1";
const OF_ANOTHER: &str = "10.8.0.1";

impl Tokens {
    fn of(known: &[&[u8]]) -> Arc<Tokens> {
        let tokens = Tokens::default();
        tokens.set(known);
        Arc::new(tokens)
    }
}

fn options(tls: Option<NodeTls>, readers: Option<Arc<Tokens>>) -> HostOptions {
    let HostOptions { shm, .. } = Verbs::options(FabricLimits::default());
    let readers = readers.map(|readers| readers as Arc<dyn ReadPermission>);
    let shm = ShmOptions { readers, ..shm };
    HostOptions { shm, tls, beyond_loopback: true, ..Verbs::options(FabricLimits::default()) }
}

/// A server that listens at one address and is reached at another, with a port of its own.
fn listen(listens: &str, reached: &str, options: &HostOptions) -> (Peer<HostEndpoint>, Address) {
    let listens = SocketAddr::new(listens.parse().unwrap(), 0);
    let endpoint = HostEndpoint::listen(listens, options).unwrap();
    let port = endpoint.address().unwrap().port();
    (Peer::new(endpoint), Address::Verbs(SocketAddr::new(reached.parse().unwrap(), port)))
}

fn client_of(verbs: &VerbsOptions, trust: Option<&TlsTrust>, token: &[u8]) -> Peer<HostEndpoint> {
    let mut endpoint = HostEndpoint::client_over_verbs(FabricLimits::default(), &[], verbs).unwrap();
    if let Some(trust) = trust {
        endpoint.trust(trust);
    }
    endpoint.set_token(token);
    Peer::new(endpoint)
}

fn client(trust: Option<&TlsTrust>, token: &[u8]) -> Peer<HostEndpoint> {
    client_of(&VerbsOptions::default(), trust, token)
}

/// What a read of a region that the server has registered is answered.
fn read(
    client: &mut Peer<HostEndpoint>,
    server: &mut Peer<HostEndpoint>,
    here: ConnectionId,
    key: RegionKey,
) -> Result<Vec<u64>, ReadFailure> {
    let known = client.reads(here).len();
    client.endpoint.post_read(here, RemoteRead { key, offset: 8_000, length: 8 }, ReadTag(1)).unwrap();
    until(&mut Verbs, &mut [client, server], |peers| peers[0].reads(here).len() > known);
    client.reads(here).pop().unwrap().1
}

/// How the connection of a client ends that is not let in, and what the server says of it.
fn ends(
    client: &mut Peer<HostEndpoint>,
    server: &mut Peer<HostEndpoint>,
    address: Address,
) -> (CloseReason, CloseReason) {
    let here = client.endpoint.connect(&address).unwrap();
    until(&mut Verbs, &mut [client, server], |peers| {
        let is_refused = peers[0].closed(here).is_some() && !peers[1].refused.is_empty();
        is_refused || !peers[1].order.is_empty()
    });
    assert!(server.order.is_empty(), "it never was a connection");
    (client.closed(here).unwrap(), server.refused.pop().unwrap())
}

/// Whether this machine has an address; says so if it has not.
fn has(address: &str) -> bool {
    let there = std::net::TcpListener::bind((address, 0)).is_ok();
    if !there {
        println!("SKIPPED: this machine has no address {address}");
    }
    there
}

#[test]
fn messages_and_reads_go_on_a_connection_that_was_made_under_tls_with_a_token() {
    if !Verbs::is_there() {
        return;
    }
    let tls = node_tls(&Authority::new("one").folder(&["127.0.0.1"]));
    let options = options(Some(tls.clone()), Some(Tokens::of(&[b"reader"])));
    let (mut server, address) = listen("127.0.0.1", "127.0.0.1", &options);
    server.echoes = true;
    let key = server.endpoint.register(&region().0).unwrap();
    for (token, wanted) in [
        (&b"reader"[..], Ok(vec![1_000])),
        (b"guessed", Err(ReadFailure::KeyUnknown)),
        (b"", Err(ReadFailure::KeyUnknown)),
    ] {
        let mut client = client(Some(tls.trust()), token);
        let (here, _) = open(&mut Verbs, &mut client, &mut server, address);
        client.endpoint.send(here, b"are you there?").unwrap();
        until(&mut Verbs, &mut [&mut client, &mut server], |peers| !peers[0].messages(here).is_empty());
        assert_eq!(read(&mut client, &mut server, here, key), wanted, "{token:?}");
        assert_eq!(client.closed(here), None, "messages are its worker's affair");
    }
}

#[test]
fn who_does_not_speak_as_the_server_does_gets_no_connection() {
    if !Verbs::is_there() {
        return;
    }
    let [one, two] = ["one", "two"].map(|name| node_tls(&Authority::new(name).folder(&["127.0.0.1"])));
    let (mut server, address) = listen("127.0.0.1", "127.0.0.1", &options(Some(one.clone()), None));
    let said = ends(&mut client(None, b"token"), &mut server, address);
    assert_eq!(said, (CloseReason::RefusedByPeer(HelloRefusal::TlsWanted), CloseReason::TlsWanted));
    let said = ends(&mut client(Some(two.trust()), b"token"), &mut server, address);
    let untrusted = [TlsFailure::Untrusted, TlsFailure::NotTrustedByPeer].map(CloseReason::Tls);
    assert_eq!([said.0, said.1], untrusted);
    let (mut server, address) = listen("127.0.0.1", "127.0.0.1", &options(None, None));
    let said = ends(&mut client(Some(one.trust()), b"token"), &mut server, address);
    let unanswered = CloseReason::Tls(TlsFailure::Unanswered);
    assert_eq!(said, (unanswered, CloseReason::Stranger(Stranger::Tls)));
}

/// The device went on answering whoever had learnt where a region is, and whoever had asked nothing yet.
#[test]
fn token_that_is_taken_back_ends_the_connection_on_which_reads_went() {
    if !Verbs::is_there() {
        return;
    }
    let tokens = Tokens::of(&[b"reader", b"other"]);
    let (mut server, address) = listen("127.0.0.1", "127.0.0.1", &options(None, Some(tokens.clone())));
    let key = server.endpoint.register(&region().0).unwrap();
    let [mut reader, mut silent, mut other, mut viewer] =
        [&b"reader"[..], b"reader", b"other", b"viewer"].map(|token| client(None, token));
    let (at_reader, of_reader) = open(&mut Verbs, &mut reader, &mut server, address);
    let (at_silent, of_silent) = open(&mut Verbs, &mut silent, &mut server, address);
    let (at_other, _) = open(&mut Verbs, &mut other, &mut server, address);
    let (at_viewer, _) = open(&mut Verbs, &mut viewer, &mut server, address);
    assert_eq!(read(&mut reader, &mut server, at_reader, key), Ok(vec![1_000]));
    assert_eq!(read(&mut other, &mut server, at_other, key), Ok(vec![1_000]));
    tokens.set(&[b"other"]);
    until(&mut Verbs, &mut [&mut reader, &mut silent, &mut server], |peers| {
        peers[0].closed(at_reader).is_some() && peers[1].closed(at_silent).is_some()
    });
    let closed = [of_reader, of_silent].map(|connection| server.closed(connection));
    assert_eq!(closed, [Some(CloseReason::ReadsNoMore); 2]);
    assert_eq!(read(&mut other, &mut server, at_other, key), Ok(vec![1_000]), "others read on");
    viewer.turn();
    assert_eq!(viewer.closed(at_viewer), None, "whose reads were never let through is left alone");
    // The key is known, and brings nothing.
    let (again, _) = open(&mut Verbs, &mut reader, &mut server, address);
    assert_eq!(read(&mut reader, &mut server, again, key), Err(ReadFailure::KeyUnknown));
}

/// A key that somebody else knows is enough for the device, unless it is kept from answering.
#[test]
fn queue_pair_of_who_may_not_read_lets_no_reads_through() {
    if !Verbs::is_there() {
        return;
    }
    let tokens = Tokens::of(&[b"reader"]);
    let (mut server, address) = listen("127.0.0.1", "127.0.0.1", &options(None, Some(tokens.clone())));
    let key = server.endpoint.register(&region().0).unwrap();
    let mut late = client(None, b"late");
    let (here, _) = open(&mut Verbs, &mut late, &mut server, address);
    // It learns where the region is from now on; its queue pair is that of before.
    tokens.set(&[b"late"]);
    let refused = read(&mut late, &mut server, here, key);
    assert!(refused.is_err(), "{refused:?}");
    until(&mut Verbs, &mut [&mut late, &mut server], |peers| peers[0].closed(here).is_some());
    let (again, _) = open(&mut Verbs, &mut late, &mut server, address);
    assert_eq!(read(&mut late, &mut server, again, key), Ok(vec![1_000]));
}

/// Whoever guesses tokens is counted by who admits them, and learns nothing before.
#[test]
fn place_of_a_region_is_sent_to_who_is_admitted() {
    if !Verbs::is_there() {
        return;
    }
    let readers = Some(Tokens::of(&[b"reader"]));
    let (mut server, address) = listen("127.0.0.1", "127.0.0.1", &options(None, readers));
    server.endpoint.await_admission();
    let key = server.endpoint.register(&region().0).unwrap();
    let mut reader = client(None, b"reader");
    let (here, there) = open(&mut Verbs, &mut reader, &mut server, address);
    assert_eq!(read(&mut reader, &mut server, here, key), Err(ReadFailure::KeyUnknown));
    server.endpoint.admit(there);
    assert_eq!(read(&mut reader, &mut server, here, key), Ok(vec![1_000]));
}

#[test]
fn connections_are_made_and_read_on_by_ipv4_and_ipv6_addresses() {
    if !Verbs::is_there() {
        return;
    }
    for (listens, reached) in [
        (OF_DEVICE, OF_DEVICE),
        ("0.0.0.0", OF_DEVICE),
        ("::", OF_DEVICE),
        (OF_DEVICE_V6, OF_DEVICE_V6),
        ("::", OF_DEVICE_V6),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "::1"),
    ] {
        if !has(reached) {
            continue;
        }
        let tls = node_tls(&Authority::new("one").folder(&[reached]));
        let (mut server, address) = listen(listens, reached, &options(Some(tls.clone()), None));
        let key = server.endpoint.register(&region().0).unwrap();
        let mut client = client(Some(tls.trust()), b"");
        let (here, _) = open(&mut Verbs, &mut client, &mut server, address);
        assert_eq!(read(&mut client, &mut server, here, key), Ok(vec![1_000]), "{listens} {reached}");
    }
}

#[test]
fn address_that_the_device_does_not_have_is_named_by_whichever_end_it_is() {
    if !Verbs::is_there() || !has(OF_ANOTHER) {
        return;
    }
    let address: IpAddr = OF_ANOTHER.parse().unwrap();
    let lacking = CloseReason::NoGid { address };
    let (mut server, reached) = listen("0.0.0.0", OF_ANOTHER, &options(None, None));
    let mut here_lacks = client(None, b"");
    let (said, _) = ends(&mut here_lacks, &mut server, reached);
    assert_eq!(said, lacking);
    assert!(said.to_string().contains("client_verbs_device"), "{said}");
    // One who has named a GID comes as far as the server.
    let named = (0..16).map(|index| VerbsOptions { gid: Some(index), ..VerbsOptions::default() });
    let mut clients = named.filter_map(|verbs| {
        HostEndpoint::client_over_verbs(FabricLimits::default(), &[], &verbs).ok().map(|_| verbs)
    });
    let mut there_lacks = client_of(&clients.next().unwrap(), None, b"");
    let said = ends(&mut there_lacks, &mut server, reached);
    assert_eq!(said, (CloseReason::RefusedByPeer(HelloRefusal::NoGid), lacking));
    // A server that listens there and nowhere else has no use for the device.
    let listens = SocketAddr::new(address, 0);
    let refused = HostEndpoint::listen(listens, &options(None, None)).unwrap_err();
    assert!(matches!(refused, FabricError::Verbs { .. }), "{refused}");
    let words = refused.to_string();
    assert!(words.contains(OF_ANOTHER) && words.contains("fabric_verbs_device"), "{words}");
    let verbs = VerbsOptions { offer: VerbsOffer::Auto, ..VerbsOptions::default() };
    let options = HostOptions { verbs, ..options(None, None) };
    let endpoint = HostEndpoint::listen(listens, &options).unwrap();
    assert!(!endpoint.takes_whole_regions(), "it starts without RDMA");
}
