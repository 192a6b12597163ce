//! What strangers and broken peers can do to a TCP endpoint: be turned away, each with a reason.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use cell_fabric::{
    Address, CloseReason, Endpoint, Event, FabricError, FabricLimits, HelloRefusal, OneSided, Poller,
    ReadFailure, ReadTag, RegionKey, RemoteRead, Stranger, TcpEndpoint, TcpOptions,
};
use proptest::prelude::*;

use crate::harness::{Peer, Seen, Tcp, World, open, region, until};

/// A hello as the module's table says, with room for mischief.
fn hello() -> Vec<u8> {
    let mut bytes = b"CELLFABR".to_vec();
    bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&65_536_u32.to_le_bytes());
    bytes.extend_from_slice(&[4, 0, 0, 0]);
    bytes.extend_from_slice(&[0; 16 + 4]);
    bytes
}

fn server(limits: FabricLimits) -> (Peer<TcpEndpoint>, SocketAddr) {
    let options = TcpOptions { limits, ..TcpOptions::default() };
    let server = TcpEndpoint::listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let address = server.address().unwrap();
    (Peer::new(server), address)
}

fn refusal_of(bytes: &[u8], then_close: bool) -> CloseReason {
    let (mut server, address) = server(FabricLimits::default());
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(bytes).unwrap();
    if then_close {
        stranger.shutdown(std::net::Shutdown::Write).unwrap();
    }
    until(&mut Tcp, &mut [&mut server], |peers| !peers[0].refused.is_empty());
    assert_eq!((server.endpoint.connections(), server.order.len()), (0, 0));
    server.refused[0]
}

fn end_after_hello(bytes: &[u8]) -> (Vec<Vec<u8>>, CloseReason) {
    let (mut server, address) = server(FabricLimits::default());
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(&hello()).unwrap();
    stranger.write_all(bytes).unwrap();
    stranger.shutdown(std::net::Shutdown::Write).unwrap();
    until(&mut Tcp, &mut [&mut server], |peers| {
        peers[0].order.first().is_some_and(|there| peers[0].closed(*there).is_some())
    });
    let there = server.order[0];
    (server.messages(there), server.closed(there).unwrap())
}

#[test]
fn accept_stranger_is_refused_by_name() {
    assert_eq!(refusal_of(b"GET / HTTP/1.1\r\n\r\n", false), CloseReason::Stranger(Stranger::Http));
    assert_eq!(refusal_of(b"*1\r\n$4\r\nPING\r\n", false), CloseReason::Stranger(Stranger::Redis));
    assert_eq!(refusal_of(&[0x16, 3, 1, 0, 5, 1], false), CloseReason::Stranger(Stranger::Tls));
    assert_eq!(refusal_of(&[0], false), CloseReason::Stranger(Stranger::Unknown));
    assert_eq!(refusal_of(b"CELLFABX", false), CloseReason::Stranger(Stranger::Unknown));
}

#[test]
fn accept_half_a_hello_is_refused() {
    assert_eq!(refusal_of(b"CELL", true), CloseReason::Truncated { received: 4 });
    assert_eq!(refusal_of(b"", true), CloseReason::PeerClosed);
    assert_eq!(refusal_of(&hello()[..41], true), CloseReason::Truncated { received: 41 });
}

/// Each command that looked whether somebody listens was once counted as a peer that was turned away.
#[test]
fn accept_peer_that_leaves_by_itself_is_not_counted_as_refused() {
    let (mut server, address) = server(FabricLimits::default());
    drop(TcpStream::connect(address).unwrap());
    until(&mut Tcp, &mut [&mut server], |peers| !peers[0].refused.is_empty());
    assert_eq!((server.refused[0], server.endpoint.counters().refused), (CloseReason::PeerClosed, 0));
}

/// A command's own question to a node that had stood still was warned of as a client of Redis.
#[test]
fn accept_probe_of_a_command_is_neither_redis_nor_counted_as_refused() {
    let (mut server, address) = server(FabricLimits::default());
    let mut command = TcpStream::connect(address).unwrap();
    command.write_all(Stranger::PROBE).unwrap();
    until(&mut Tcp, &mut [&mut server], |peers| !peers[0].refused.is_empty());
    let reason = CloseReason::Stranger(Stranger::Probe);
    assert_eq!((server.refused[0], server.endpoint.counters().refused), (reason, 0));
}

/// What the acceptor says of a hello, and the beginning of its answer to it.
fn answer_to(hello: &[u8]) -> (CloseReason, Vec<u8>) {
    let (mut server, address) = server(FabricLimits::default());
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(hello).unwrap();
    until(&mut Tcp, &mut [&mut server], |peers| !peers[0].refused.is_empty());
    let mut answer = Vec::new();
    stranger.read_to_end(&mut answer).unwrap();
    (server.refused[0], answer[..12].to_vec())
}

#[test]
fn accept_other_version_is_known_to_both_ends() {
    let mut bytes = hello();
    bytes[8] = 7;
    let refused = CloseReason::VersionUnknown { theirs: 7 };
    assert_eq!(answer_to(&bytes), (refused, b"CELLFABR\x01\0\x02\0".to_vec()));
}

#[test]
fn accept_number_that_nobody_answers_to_is_reported_by_both_ends() {
    // One that serves no one-sided reads has no service either.
    for number in [1, 7, u16::MAX] {
        let mut bytes = hello();
        bytes[14..16].copy_from_slice(&number.to_le_bytes());
        let refused = CloseReason::Refused(HelloRefusal::NoSuchWorker);
        assert_eq!(answer_to(&bytes), (refused, b"CELLFABR\x01\0\x03\0".to_vec()));
    }
}

#[test]
fn accept_unknown_extension_that_must_be_understood_is_known_to_both_ends() {
    let mut bytes = hello();
    bytes[20] += 5;
    bytes.extend_from_slice(&[3, 0x80, 1, 0, 42]);
    let refused = CloseReason::ExtensionUnknown { kind: 0x8003 };
    assert_eq!(answer_to(&bytes), (refused, b"CELLFABR\x01\0\x05\0".to_vec()));
}

/// However many strangers say nothing: who speaks gets in, and the oldest of them makes room.
#[test]
fn accept_silent_crowd_locks_nobody_out() {
    let limits = FabricLimits { connections_max: 4, handshakes_max: 8, ..FabricLimits::default() };
    let (mut server, address) = server(limits);
    let mut silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    until(&mut Tcp, &mut [&mut server], |peers| peers[0].refused.len() == 32);
    let refusal = CloseReason::Refused(HelloRefusal::TooManyConnections);
    assert!(server.refused.iter().all(|reason| *reason == refusal), "{:?}", server.refused);
    assert_eq!(server.endpoint.counters().evicted, 32);
    // The oldest were asked to come again, the youngest wait on.
    let mut answer = Vec::new();
    silent[0].read_to_end(&mut answer).unwrap();
    assert_eq!(&answer[..12], b"CELLFABR\x01\0\x01\0");
    silent[39].set_nonblocking(true).unwrap();
    assert_eq!(silent[39].read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    // They take no place of those who speak, whose number is the limit's.
    let mut client = Peer::new(TcpEndpoint::client(FabricLimits::default()).unwrap());
    for _ in 0..4 {
        open(&mut Tcp, &mut client, &mut server, Address::Tcp(address));
    }
    let fifth = client.endpoint.connect(&Address::Tcp(address)).unwrap();
    until(&mut Tcp, &mut [&mut client, &mut server], |peers| peers[0].closed(fifth).is_some());
    assert_eq!(client.closed(fifth), Some(CloseReason::RefusedByPeer(HelloRefusal::TooManyConnections)));
    // Who waited is served when it speaks and there is a place.
    client.endpoint.close(client.order[0]);
    until(&mut Tcp, &mut [&mut client, &mut server], |peers| peers[1].endpoint.connections() == 3 + 7);
    silent[39].write_all(&hello()).unwrap();
    until(&mut Tcp, &mut [&mut server], |peers| peers[0].endpoint.counters().accepted == 5);
}

#[test]
fn accept_silence_is_refused_after_the_handshake_timeout() {
    let (mut server, address) = server(FabricLimits::default());
    let _stranger = TcpStream::connect(address).unwrap();
    server.endpoint.tick(1_000);
    until(&mut Tcp, &mut [&mut server], |peers| peers[0].endpoint.connections() == 1);
    server.endpoint.tick(5_000_000_999);
    server.turn();
    assert!(server.refused.is_empty());
    server.endpoint.tick(5_200_000_000);
    server.turn();
    assert_eq!(server.refused, [CloseReason::HandshakeTimeout]);
    assert_eq!(server.endpoint.counters().timed_out, 1);
}

/// Who waits is not to blame for it.
#[test]
fn accept_hello_that_came_while_the_endpoint_stood_still_is_read() {
    let (mut server, address) = server(FabricLimits::default());
    server.endpoint.tick(1_000);
    let mut peer = TcpStream::connect(address).unwrap();
    until(&mut Tcp, &mut [&mut server], |peers| peers[0].endpoint.connections() == 1);
    peer.write_all(&hello()).unwrap();
    server.endpoint.tick(60_000_000_000);
    until(&mut Tcp, &mut [&mut server], |peers| !peers[0].order.is_empty() || !peers[0].refused.is_empty());
    server.endpoint.tick(60_200_000_000);
    server.turn();
    assert!(server.refused.is_empty());
    assert_eq!(server.closed(server.order[0]), None);
}

#[test]
fn connect_peer_never_answers_closes_after_the_handshake_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = Peer::new(TcpEndpoint::client(FabricLimits::default()).unwrap());
    client.endpoint.tick(0);
    let connection = client.endpoint.connect(&Address::Tcp(listener.local_addr().unwrap())).unwrap();
    client.endpoint.send(connection, b"anyone?").unwrap();
    client.turn();
    client.endpoint.tick(5_900_000_000);
    client.turn();
    client.endpoint.tick(6_000_000_000);
    client.turn();
    assert_eq!(client.seen(connection), [Seen::Closed(CloseReason::HandshakeTimeout)]);
}

#[test]
fn connect_to_a_stranger_closes_by_name() {
    for (says, stranger) in [
        (&b"-ERR unknown command\r\n"[..], Stranger::Redis),
        (b"220 mail.example ESMTP\r\n", Stranger::Unknown),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = Peer::new(TcpEndpoint::client(FabricLimits::default()).unwrap());
        let connection = client.endpoint.connect(&Address::Tcp(listener.local_addr().unwrap())).unwrap();
        listener.accept().unwrap().0.write_all(says).unwrap();
        until(&mut Tcp, &mut [&mut client], |peers| peers[0].closed(connection).is_some());
        assert_eq!(client.closed(connection), Some(CloseReason::Stranger(stranger)));
    }
}

#[test]
fn receive_hostile_length_closes_after_the_good_messages() {
    let bytes = [&[2, 0, 0, 0, b'o', b'k'], &u32::MAX.to_le_bytes()[..], b"whatever"].concat();
    let (messages, reason) = end_after_hello(&bytes);
    assert_eq!(messages, [b"ok"]);
    assert_eq!(reason, CloseReason::TooLong { length: u32::MAX, max: 65_536 });
    let (_, reason) = end_after_hello(&65_537_u32.to_le_bytes());
    assert_eq!(reason, CloseReason::TooLong { length: 65_537, max: 65_536 });
}

#[test]
fn receive_half_a_message_closes_as_truncated() {
    let (messages, reason) = end_after_hello(&[1, 0, 0, 0, 7, 9, 0, 0, 0, 1, 2]);
    assert_eq!((messages, reason), (vec![vec![7]], CloseReason::Truncated { received: 6 }));
    assert_eq!(end_after_hello(&[1, 0]).1, CloseReason::Truncated { received: 2 });
    assert_eq!(end_after_hello(&[]).1, CloseReason::PeerClosed);
}

#[test]
fn receive_peer_resets_closes_with_the_networks_word() {
    let (mut server, address) = server(FabricLimits::default());
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(&hello()).unwrap();
    until(&mut Tcp, &mut [&mut server], |peers| !peers[0].order.is_empty());
    let there = server.order[0];
    server.endpoint.send(there, &[1; 100]).unwrap();
    server.turn();
    // Closing a socket with unread bytes resets the connection.
    drop(stranger);
    until(&mut Tcp, &mut [&mut server], |peers| peers[0].closed(there).is_some());
    assert_eq!(server.closed(there), Some(CloseReason::Network(ErrorKind::ConnectionReset)));
}

#[test]
fn send_peer_gone_what_it_sent_is_still_received() {
    let (mut server, address) = server(FabricLimits::default());
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(&hello()).unwrap();
    until(&mut Tcp, &mut [&mut server], |peers| !peers[0].order.is_empty());
    let there = server.order[0];
    stranger.write_all(&[3, 0, 0, 0, b'b', b'y', b'e']).unwrap();
    let mut answer = [0; 44];
    stranger.read_exact(&mut answer).unwrap();
    drop(stranger);
    // Nothing was polled in between: the writes fail before the reads are done.
    for _ in 0..3 {
        server.endpoint.send(there, b"anyone?").unwrap_or_default();
        server.endpoint.flush();
    }
    until(&mut Tcp, &mut [&mut server], |peers| peers[0].closed(there).is_some());
    assert_eq!(server.messages(there), [b"bye"]);
}

#[test]
fn receive_byte_by_byte_gives_the_messages() {
    let (mut server, address) = server(FabricLimits::default());
    let mut slow = TcpStream::connect(address).unwrap();
    slow.set_nodelay(true).unwrap();
    let bytes = [&hello()[..], &[3, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 1, 0, 0, 0, 9]].concat();
    for byte in bytes {
        slow.write_all(&[byte]).unwrap();
        server.turn();
    }
    until(&mut Tcp, &mut [&mut server], |peers| {
        peers[0].order.first().is_some_and(|there| peers[0].messages(*there).len() == 3)
    });
    assert_eq!(server.messages(server.order[0]), [vec![1, 2, 3], vec![], vec![9]]);
}

#[test]
fn receive_stalled_peer_is_closed_as_stalled() {
    let limits = FabricLimits { idle_timeout_ns: 1_000_000_000, ..FabricLimits::default() };
    let (mut server, address) = server(limits);
    server.endpoint.tick(0);
    let mut stalled = TcpStream::connect(address).unwrap();
    stalled.write_all(&hello()).unwrap();
    until(&mut Tcp, &mut [&mut server], |peers| !peers[0].order.is_empty());
    let there = server.order[0];
    for _ in 0..10_000 {
        let _ = server.endpoint.send(there, &[0; 60_000]);
        server.turn();
    }
    assert!(server.endpoint.output_pending(there) > 0);
    server.endpoint.tick(1_900_000_000);
    server.turn();
    server.endpoint.tick(2_000_000_000);
    server.turn();
    assert_eq!(server.closed(there), Some(CloseReason::Stalled));
}

#[test]
fn listen_outside_loopback_is_refused() {
    let refused = TcpEndpoint::listen("0.0.0.0:0".parse().unwrap(), &TcpOptions::default());
    assert!(matches!(refused, Err(FabricError::NotLoopback { .. })));
    let permitted = TcpOptions { beyond_loopback: true, ..TcpOptions::default() };
    for any in ["0.0.0.0:0", "[::]:0"] {
        let endpoint = TcpEndpoint::listen(any.parse().unwrap(), &permitted).unwrap();
        assert!(endpoint.address().unwrap().ip().is_unspecified());
    }
    let sim = TcpEndpoint::client(FabricLimits::default()).unwrap().connect(&Address::Sim(1));
    assert!(matches!(sim, Err(FabricError::AddressUnsupported { .. })));
}

#[test]
fn listen_address_taken_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = TcpEndpoint::listen(taken.local_addr().unwrap(), &TcpOptions::default());
    assert!(matches!(refused, Err(FabricError::Listen { .. })));
}

#[test]
fn read_host_without_the_service_fails_as_unsupported() {
    let (mut server, address) = server(FabricLimits::default());
    let mut client = Peer::new(TcpEndpoint::client(FabricLimits::default()).unwrap());
    // Posted before the acceptor's hello can say so, and after.
    let here = client.endpoint.connect(&Address::Tcp(address)).unwrap();
    let read = RemoteRead { key: RegionKey(1), offset: 0, length: 8 };
    client.endpoint.post_read(here, read, ReadTag(1)).unwrap();
    until(&mut Tcp, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 1);
    client.endpoint.post_read(here, read, ReadTag(2)).unwrap();
    assert!(!client.endpoint.prepare_sleep());
    client.turn();
    assert_eq!(client.reads(here), [1, 2].map(|tag| (tag, Err(ReadFailure::Unsupported))));
    let register = server.endpoint.register(&region().0);
    assert!(matches!(register, Err(FabricError::OneSidedUnavailable)));
}

#[test]
fn read_worker_does_not_poll_is_served() {
    let (mut server, address) = Tcp.listen(FabricLimits::default());
    let mut client = Tcp.client(FabricLimits::default());
    let (here, _) = open(&mut Tcp, &mut client, &mut server, address);
    let key = server.endpoint.register(&region().0).unwrap();
    let read = RemoteRead { key, offset: 8_000, length: 8 };
    client.endpoint.post_read(here, read, ReadTag(1)).unwrap();
    // The lane is accepted by the worker; from then on it has no part in it.
    until(&mut Tcp, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 1);
    for tag in 2..100 {
        client.endpoint.post_read(here, read, ReadTag(tag)).unwrap();
        until(&mut Tcp, &mut [&mut client], |peers| peers[0].reads(here).len() as u64 == tag);
        assert_eq!(client.reads(here).last(), Some(&(tag, Ok(vec![1_000]))));
    }
}

#[test]
fn read_broken_request_ends_the_lane_only() {
    let (mut server, address) = Tcp.listen(FabricLimits::default());
    let mut client = Tcp.client(FabricLimits::default());
    let (here, _) = open(&mut Tcp, &mut client, &mut server, address);
    // Number 65,535 is the service: ordinary messages are not reads.
    let mut stranger = TcpStream::connect(server.endpoint.address().unwrap()).unwrap();
    let mut bytes = hello();
    bytes[14..16].copy_from_slice(&u16::MAX.to_le_bytes());
    bytes.extend_from_slice(b"\x0a\0\0\0not a read");
    stranger.write_all(&bytes).unwrap();
    stranger.set_nonblocking(true).unwrap();
    let mut answer = Vec::new();
    until(&mut Tcp, &mut [&mut server], |_| stranger.read_to_end(&mut answer).is_ok());
    assert_eq!(answer[..12], *b"CELLFABR\x01\0\0\0", "it was welcomed, then closed");
    assert_eq!(answer[14..16], u16::MAX.to_le_bytes());
    let key = server.endpoint.register(&region().0).unwrap();
    client.endpoint.post_read(here, RemoteRead { key, offset: 8_000, length: 8 }, ReadTag(1)).unwrap();
    until(&mut Tcp, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 1);
    assert_eq!(client.reads(here), [(1, Ok(vec![1_000]))]);
}

#[test]
fn wait_message_from_another_thread_ends_the_sleep() {
    let (mut server, address) = server(FabricLimits::default());
    let mut poller = Poller::new().unwrap();
    poller.add(server.endpoint.wake_descriptor().unwrap()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Peer::new(TcpEndpoint::client(FabricLimits::default()).unwrap());
            let connection = client.endpoint.connect(&Address::Tcp(address)).unwrap();
            client.endpoint.send(connection, b"wake up").unwrap();
            until(&mut Tcp, &mut [&mut client], |peers| !peers[0].messages(connection).is_empty());
        });
        let mut answered = false;
        while !answered {
            server.turn();
            if let Some(there) = server.order.first().copied() {
                answered = !server.messages(there).is_empty();
            }
            if !answered && server.endpoint.prepare_sleep() {
                // For ever, if the descriptor does not wake it.
                poller.wait(None);
            }
        }
        server.endpoint.send(server.order[0], b"awake").unwrap();
        server.endpoint.flush();
    });
}

#[test]
fn poll_flood_is_served_in_bounded_batches() {
    let mut world = Tcp;
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let (here, _) = open(&mut world, &mut client, &mut server, address);
    let message = [0; 60];
    (0..15_000).for_each(|_| client.endpoint.send(here, &message).unwrap());
    client.endpoint.flush();
    let (mut received, mut largest) = (0, 0);
    while received < 15_000 {
        client.endpoint.flush();
        let count = server.endpoint.poll(&mut |event| assert!(matches!(event, Event::Message { .. })));
        received += count;
        largest = largest.max(count);
    }
    // One read's worth and what is allowed before the next connection is served.
    assert!(largest <= 128 * 1024 / 64 + 1_024, "{largest}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn receive_any_bytes_end_with_a_reason(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        small in proptest::collection::vec(0_u8..4, 0..400),
        after_hello in any::<bool>(),
    ) {
        for bytes in [bytes, small] {
            if after_hello {
                end_after_hello(&bytes);
            } else {
                refusal_of(&bytes, true);
            }
        }
    }
}
