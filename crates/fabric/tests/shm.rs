//! What is particular to shared memory: peers that write whatever they like into it, wake-ups, deaths of
//! processes, users, regions that end.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

mod harness;

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cell_fabric::{
    Address, CloseReason, Endpoint, FabricError, HostEndpoint, HostOptions, Limits, OneSided, Poller,
    ReadFailure, ReadTag, Refusal, RegionKey, RemoteRead, ShmEndpoint, ShmOptions, SocketName, Stranger,
};
use cell_memory::{Region, RegionSpec};
use cell_terms::{Epoch, PairId};
use proptest::prelude::*;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};

use harness::{Host, Peer, Seen, Shm, World, open, region, shm_options, socket_name, until};

/// Words of the file, as the module's table says.
const TAIL: u64 = 64;
const HEAD: u64 = 80;
const HEAD_BACK: u64 = 144;
const SLEEPING_BACK: u64 = 160;
const DATA: u64 = 512;
const RING_WORDS: u64 = 8_192;

fn hello() -> Vec<u8> {
    let mut bytes = b"CELLFABR".to_vec();
    bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&65_536_u32.to_le_bytes());
    bytes.extend_from_slice(&[4, 0, 0, 0]);
    bytes.extend_from_slice(&[0; 16 + 4]);
    bytes
}

/// A peer that is no endpoint: it has what an acceptor hands over and does with it what it likes.
struct Hostile {
    socket: OwnedFd,
    descriptors: Vec<OwnedFd>,
}

impl Hostile {
    fn connect(name: SocketName) -> Hostile {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let socket = socket.unwrap();
        let name = name.as_str().strip_prefix('@').unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        Hostile { socket, descriptors: Vec::new() }
    }

    fn send(&self, bytes: &[u8]) {
        rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL).unwrap();
    }

    /// A packet and its descriptors.
    fn receive(&self) -> (Vec<u8>, Vec<OwnedFd>) {
        let mut bytes = vec![0; 4_096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let got =
            rustix::net::recvmsg(&self.socket, &mut slices, &mut ancillary, RecvFlags::empty()).unwrap();
        let descriptors = ancillary.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let descriptors = descriptors.collect();
        bytes.truncate(got.bytes);
        (bytes, descriptors)
    }

    /// Through the door of a server: file, bell, the pipe's end, ledger.
    fn admitted(server: &mut Peer<ShmEndpoint>) -> Hostile {
        let mut hostile = Hostile::connect(server.endpoint.name().unwrap());
        hostile.send(&hello());
        let known = server.order.len();
        until(&mut Shm, &mut [server], |peers| peers[0].order.len() > known);
        hostile.descriptors = hostile.receive().1;
        assert_eq!(hostile.descriptors.len(), 4);
        hostile
    }

    fn store(&self, word: u64, value: u64) {
        rustix::io::pwrite(&self.descriptors[0], &value.to_le_bytes(), word * 8).unwrap();
    }

    fn load(&self, word: u64) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::pread(&self.descriptors[0], &mut bytes, word * 8).unwrap();
        u64::from_le_bytes(bytes)
    }
}

fn server(limits: Limits) -> Peer<ShmEndpoint> {
    Shm.listen(1, limits).0.remove(0)
}

fn end_of(server: &mut Peer<ShmEndpoint>) -> CloseReason {
    let there = *server.order.last().unwrap();
    until(&mut Shm, &mut [server], |peers| peers[0].closed(there).is_some());
    assert_eq!(server.endpoint.connections(), 0);
    server.closed(there).unwrap()
}

#[test]
fn accept_stranger_or_half_a_hello_is_refused() {
    let half = hello()[..20].to_vec();
    let cases: [(&[u8], CloseReason); 3] = [
        (b"GET / HTTP/1.1", CloseReason::Stranger(Stranger::Http)),
        (&half, CloseReason::Truncated { received: 20 }),
        (&[7; 3_000], CloseReason::Truncated { received: 0 }),
    ];
    for (bytes, expected) in cases {
        let mut server = server(Limits::default());
        let stranger = Hostile::connect(server.endpoint.name().unwrap());
        stranger.send(bytes);
        until(&mut Shm, &mut [&mut server], |peers| !peers[0].refused.is_empty());
        assert_eq!((server.refused[0], server.endpoint.connections()), (expected, 0));
    }
}

#[test]
fn accept_other_version_tells_both_ends() {
    let mut server = server(Limits::default());
    let stranger = Hostile::connect(server.endpoint.name().unwrap());
    let mut bytes = hello();
    bytes[8] = 7;
    stranger.send(&bytes);
    until(&mut Shm, &mut [&mut server], |peers| !peers[0].refused.is_empty());
    assert_eq!(server.refused, [CloseReason::VersionUnknown { theirs: 7 }]);
    let (answer, descriptors) = stranger.receive();
    assert_eq!((&answer[..12], descriptors.len()), (b"CELLFABR\x01\0\x02\0".as_slice(), 0));
}

#[test]
fn accept_silence_is_refused_after_the_handshake_timeout() {
    let mut server = server(Limits::default());
    let _stranger = Hostile::connect(server.endpoint.name().unwrap());
    server.endpoint.tick(1_000);
    until(&mut Shm, &mut [&mut server], |peers| peers[0].endpoint.connections() == 1);
    server.endpoint.tick(5_200_000_000);
    server.turn();
    assert_eq!(server.refused, [CloseReason::HandshakeTimeout]);
    assert_eq!(server.endpoint.counters().timed_out, 1);
}

#[test]
fn receive_counts_that_cannot_be_close_the_connection() {
    for tail in [u64::MAX, RING_WORDS + 1, 1 << 63] {
        let mut server = server(Limits::default());
        let hostile = Hostile::admitted(&mut server);
        hostile.store(TAIL, tail);
        assert_eq!(end_of(&mut server), CloseReason::SharedMemoryBroken, "{tail}");
    }
    // The other ring's head: noticed when its room is needed.
    let mut server = server(Limits::default());
    let hostile = Hostile::admitted(&mut server);
    let there = server.order[0];
    hostile.store(HEAD_BACK, 1 << 40);
    for _ in 0..2 {
        server.endpoint.send(there, &[1; 60_000]).unwrap();
    }
    assert_eq!(end_of(&mut server), CloseReason::SharedMemoryBroken);
}

#[test]
fn receive_hostile_frames_close_after_the_good_messages() {
    let cases = [
        (65_537, CloseReason::TooLong { length: 65_537, max: 65_536 }),
        (u64::from(u32::MAX), CloseReason::TooLong { length: u32::MAX, max: 65_536 }),
        (1 << 32, CloseReason::SharedMemoryBroken),
    ];
    for (head, expected) in cases {
        let mut server = server(Limits::default());
        let hostile = Hostile::admitted(&mut server);
        for (at, word) in [(0, 2), (1, u64::from(u16::from_le_bytes(*b"ok"))), (2, head)] {
            hostile.store(DATA + at, word);
        }
        hostile.store(TAIL, 3);
        assert_eq!(end_of(&mut server), expected);
        assert_eq!(server.messages(server.order[0]), [b"ok"]);
    }
}

#[test]
fn receive_half_a_message_closes_as_truncated() {
    let mut server = server(Limits::default());
    let hostile = Hostile::admitted(&mut server);
    hostile.store(DATA, 20);
    hostile.store(TAIL, 2);
    until(&mut Shm, &mut [&mut server], |_| hostile.load(HEAD) == 2);
    drop(hostile);
    assert_eq!(end_of(&mut server), CloseReason::Truncated { received: 16 });
}

#[test]
fn share_file_keeps_its_size_and_holes_are_zeros() {
    let mut server = server(Limits::default());
    let hostile = Hostile::admitted(&mut server);
    let file = &hostile.descriptors[0];
    assert!(rustix::fs::ftruncate(file, 0).is_err() && rustix::fs::ftruncate(file, 1 << 30).is_err());
    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, 0, (DATA + 2 * RING_WORDS) * 8).unwrap();
    let there = server.order[0];
    server.endpoint.send(there, b"still here").unwrap();
    server.turn();
    hostile.store(DATA, 1);
    hostile.store(TAIL, 2);
    until(&mut Shm, &mut [&mut server], |peers| !peers[0].messages(there).is_empty());
    assert_eq!(server.messages(there), [[0]]);
    // The ledger is for looking at.
    assert!(rustix::io::pwrite(&hostile.descriptors[3], &[1; 8], 0).is_err());
}

#[test]
fn wake_peer_that_never_reads_its_bell_makes_nobody_wait() {
    let mut server = server(Limits::default());
    let hostile = Hostile::admitted(&mut server);
    let there = server.order[0];
    // Its own bell's flags are shared with the server: blocking, and full.
    let flags = rustix::fs::fcntl_getfl(&hostile.descriptors[1]).unwrap();
    rustix::fs::fcntl_setfl(&hostile.descriptors[1], flags & !rustix::fs::OFlags::NONBLOCK).unwrap();
    rustix::io::write(&hostile.descriptors[1], &(u64::MAX - 1).to_le_bytes()).unwrap();
    let flags = rustix::fs::fcntl_getfl(&hostile.descriptors[2]).unwrap();
    rustix::fs::fcntl_setfl(&hostile.descriptors[2], flags & !rustix::fs::OFlags::NONBLOCK).unwrap();
    let mut sent = 0_u64;
    for _ in 0..20_000 {
        hostile.store(SLEEPING_BACK, 1);
        server.endpoint.send(there, b"wake up").unwrap();
        server.turn();
        sent += 2;
        hostile.store(HEAD_BACK, sent);
    }
    assert_eq!(server.endpoint.counters().wakes, 20_000);
    assert_eq!(server.closed(there), None);
}

#[test]
fn wake_peer_sleeps_until_its_answer_comes_and_not_for_its_question() {
    let mut server = server(Limits::default());
    let hostile = Hostile::admitted(&mut server);
    let there = server.order[0];
    hostile.store(SLEEPING_BACK, 1);
    hostile.store(DATA, 0);
    hostile.store(TAIL, 1);
    until(&mut Shm, &mut [&mut server], |peers| peers[0].messages(there).len() == 1);
    server.turn();
    assert_eq!((hostile.load(HEAD), server.endpoint.counters().wakes), (1, 0));
    server.endpoint.send(there, b"the answer").unwrap();
    server.turn();
    assert_eq!((hostile.load(SLEEPING_BACK), server.endpoint.counters().wakes), (0, 1));
}

#[test]
fn ask_for_regions_and_read_no_answers_closes_as_stalled() {
    let mut server = server(Limits::default());
    let key = server.endpoint.register(&region().0).unwrap();
    let hostile = Hostile::admitted(&mut server);
    for _ in 0..10_000 {
        if rustix::net::send(&hostile.socket, &key.0.to_le_bytes(), SendFlags::NOSIGNAL).is_err() {
            break;
        }
        server.turn();
    }
    assert_eq!(end_of(&mut server), CloseReason::Stalled);
    // Nonsense over the socket is as bad.
    let hostile = Hostile::admitted(&mut server);
    hostile.send(b"what?");
    assert_eq!(end_of(&mut server), CloseReason::SharedMemoryBroken);
}

#[test]
fn ask_for_a_region_gives_a_descriptor_that_cannot_write() {
    let mut server = server(Limits::default());
    let (region, _writer) = region();
    let key = server.endpoint.register(&region).unwrap();
    let hostile = Hostile::admitted(&mut server);
    let ask = |server: &mut Peer<ShmEndpoint>, key: RegionKey| {
        hostile.send(&key.0.to_le_bytes());
        for _ in 0..100 {
            server.turn();
        }
        hostile.receive()
    };
    let (answer, descriptors) = ask(&mut server, key);
    assert_eq!((&answer[8..12], descriptors.len()), ([0; 4].as_slice(), 1));
    assert!(rustix::io::pwrite(&descriptors[0], &[1; 8], 0).is_err());
    let mapped = Region::open(std::fs::File::from(descriptors.into_iter().next().unwrap())).unwrap();
    assert_eq!(mapped.spec(), region.spec());
    server.endpoint.deregister(key);
    for key in [key, RegionKey(7)] {
        let (answer, descriptors) = ask(&mut server, key);
        assert_eq!((&answer[8..], descriptors.len()), ([1, 0, 0, 0, 0, 0, 0, 0].as_slice(), 0));
    }
}

/// An acceptor that is no endpoint.
fn hostile_acceptor() -> (OwnedFd, SocketName) {
    let name = socket_name();
    let bytes = name.as_str().strip_prefix('@').unwrap().as_bytes();
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(bytes).unwrap()).unwrap();
    rustix::net::listen(&socket, 8).unwrap();
    (socket, name)
}

/// What a connector makes of an acceptor's answer.
fn first_event_after(bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Seen {
    let (listener, name) = hostile_acceptor();
    let mut client = Shm.client(Limits::default());
    let connection = client.endpoint.connect(&Address::shm(name)).unwrap();
    let there = rustix::net::accept(&listener).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(descriptors));
    }
    let slices = [IoSlice::new(bytes)];
    rustix::net::sendmsg(&there, &slices, &mut ancillary, SendFlags::empty()).unwrap();
    until(&mut Shm, &mut [&mut client], |peers| !peers[0].seen(connection).is_empty());
    client.seen(connection)[0].clone()
}

#[test]
fn connect_to_an_acceptor_that_shares_nonsense_closes() {
    let stranger = CloseReason::Stranger(Stranger::Unknown);
    assert_eq!(first_event_after(b"220 smtp", &[]), Seen::Closed(stranger));
    assert_eq!(first_event_after(&hello(), &[]), Seen::Closed(CloseReason::HelloInvalid));
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("hostile", flags).unwrap();
    rustix::fs::ftruncate(&file, (DATA + 2 * RING_WORDS) * 8).unwrap();
    let store = |word: u64, value: u64| {
        rustix::io::pwrite(&file, &value.to_le_bytes(), word * 8).unwrap();
    };
    let magic = u64::from_le_bytes(*b"CELLRING");
    [(0, magic), (1, 1), (2, RING_WORDS)].into_iter().for_each(|(word, value)| store(word, value));
    let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    let descriptors = [file.as_fd(), bell.as_fd(), bell.as_fd()];
    let broken = Seen::Closed(CloseReason::SharedMemoryBroken);
    assert_eq!(first_event_after(&hello(), &descriptors), broken, "its size is not sealed");
    rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::SHRINK).unwrap();
    assert!(matches!(first_event_after(&hello(), &descriptors), Seen::Connected(_)), "now it is good");
    for (word, wrong, right) in
        [(0, 7, magic), (1, 2, 1), (2, RING_WORDS * 2, RING_WORDS), (2, 0, RING_WORDS)]
    {
        store(word, wrong);
        assert_eq!(first_event_after(&hello(), &descriptors), broken, "word {word} is {wrong}");
        store(word, right);
    }
    let small = rustix::fs::memfd_create("small", flags).unwrap();
    rustix::fs::fcntl_add_seals(&small, rustix::fs::SealFlags::SHRINK).unwrap();
    let descriptors = [small.as_fd(), bell.as_fd(), bell.as_fd()];
    assert_eq!(first_event_after(&hello(), &descriptors), broken, "it is empty");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn receive_any_words_at_any_time_end_with_a_reason_or_not_at_all(
        stores in proptest::collection::vec(
            (
                prop_oneof![Just(TAIL), Just(HEAD_BACK), Just(SLEEPING_BACK), 0_u64..700, DATA..DATA + 20],
                prop_oneof![any::<u64>(), 0_u64..100, Just(RING_WORDS)],
            ),
            1..60,
        ),
    ) {
        let mut server = server(Limits::default());
        let hostile = Hostile::admitted(&mut server);
        let there = server.order[0];
        for (word, value) in stores {
            hostile.store(word, value);
            let _ = server.endpoint.send(there, &[1; 3_000]);
            server.turn();
            server.endpoint.prepare_sleep();
        }
    }
}

/// Both ends sleep whenever they may, and a wake-up that is lost ends the test.
fn sleep_between_messages(bytes: usize, rounds: usize, ahead: usize) {
    const PATIENCE: Duration = Duration::from_secs(20);
    let mut server = server(Limits::default());
    let address = Address::shm(server.endpoint.name().unwrap());
    let turn = |peer: &mut Peer<ShmEndpoint>, poller: &mut Poller| {
        if peer.turn() == 0 && peer.endpoint.prepare_sleep() {
            let wait = poller.wait(Some(PATIENCE));
            assert!(wait.ready > 0, "a wake-up was lost");
        }
    };
    let poller_of = |peer: &Peer<ShmEndpoint>| {
        let mut poller = Poller::new().unwrap();
        poller.add(peer.endpoint.wake_descriptor().unwrap()).unwrap();
        poller
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            server.echoes = true;
            let mut poller = poller_of(&server);
            while server.order.first().is_none_or(|there| server.closed(*there).is_none()) {
                turn(&mut server, &mut poller);
            }
        });
        let mut client = Shm.client(Limits::default());
        let mut poller = poller_of(&client);
        let connection = client.endpoint.connect(&address).unwrap();
        let mut sent = 0;
        while client.seen(connection).len() < rounds + 1 {
            let got = client.seen(connection).len().saturating_sub(1);
            while sent < rounds && sent < got + ahead {
                client.endpoint.send(connection, &vec![u8::try_from(sent % 251).unwrap(); bytes]).unwrap();
                sent += 1;
            }
            turn(&mut client, &mut poller);
        }
        for (number, seen) in client.seen(connection)[1..].iter().enumerate() {
            let expected = vec![u8::try_from(number % 251).unwrap(); bytes];
            assert!(*seen == Seen::Message(expected), "message {number}");
        }
        client.endpoint.close(connection);
    });
}

/// Nothing comes back, so the sender is woken for room and for nothing else.
#[test]
fn wake_ups_for_room_alone_are_never_lost() {
    const PATIENCE: Duration = Duration::from_secs(20);
    const COUNT: usize = 3_000;
    let mut server = server(Limits::default());
    let address = Address::shm(server.endpoint.name().unwrap());
    let poller_of = |peer: &Peer<ShmEndpoint>| {
        let mut poller = Poller::new().unwrap();
        poller.add(peer.endpoint.wake_descriptor().unwrap()).unwrap();
        poller
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut poller = poller_of(&server);
            while server.order.first().is_none_or(|there| server.closed(*there).is_none()) {
                if server.turn() == 0 && server.endpoint.prepare_sleep() {
                    assert!(poller.wait(Some(PATIENCE)).ready > 0, "the receiver was not woken");
                }
            }
            assert_eq!(server.messages(server.order[0]).len(), COUNT);
        });
        let mut client = Shm.client(Limits::default());
        let mut poller = poller_of(&client);
        let connection = client.endpoint.connect(&address).unwrap();
        let mut sent = 0;
        while sent < COUNT || client.endpoint.output_pending(connection) > 0 {
            while sent < COUNT && client.endpoint.send(connection, &[3; 20_000]).is_ok() {
                sent += 1;
            }
            let happened = client.turn();
            let waits = client.endpoint.output_pending(connection) > 0;
            if happened == 0 && waits && client.endpoint.prepare_sleep() {
                assert!(poller.wait(Some(PATIENCE)).ready > 0, "the sender was not woken");
            }
        }
        client.endpoint.close(connection);
    });
}

#[test]
fn wake_ups_of_small_messages_are_never_lost() {
    sleep_between_messages(8, 20_000, 1);
}

#[test]
fn wake_ups_for_room_are_never_lost() {
    sleep_between_messages(60_000, 600, 5);
}

const ROLE: &str = "CELL_FABRIC_SHM_ROLE";

/// Not a test: what this binary does as somebody's child.
#[test]
fn child_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, name) = role.split_once(' ').unwrap();
    let address = Address::shm(SocketName::new(name).unwrap());
    match role {
        "client" => {
            let mut client = Shm.client(Limits::default());
            let connection = client.endpoint.connect(&address).unwrap();
            client.endpoint.send(connection, b"from the child").unwrap();
            until(&mut Shm, &mut [&mut client], |peers| peers[0].closed(connection).is_some());
            let reason = client.closed(connection).unwrap();
            let refused = reason == CloseReason::RefusedByPeer(Refusal::NotPermitted);
            std::process::exit(if refused { 42 } else { 43 });
        }
        _ => {
            let options = shm_options(Limits::default());
            let mut servers = ShmEndpoint::listen(SocketName::new(name).unwrap(), 1, &options).unwrap();
            let mut server = Peer::new(servers.remove(0));
            let (region, _writer) = region();
            let key = server.endpoint.register(&region).unwrap();
            until(&mut Shm, &mut [&mut server], |peers| !peers[0].order.is_empty());
            let there = server.order[0];
            server.endpoint.send(there, &key.0.to_le_bytes()).unwrap();
            loop {
                server.turn();
                std::thread::yield_now();
            }
        }
    }
}

fn child(role: &str, name: SocketName, user: Option<u32>) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_role"]).env(ROLE, format!("{role} {name}"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(user) = user {
        command.uid(user);
    }
    command.spawn()
}

#[test]
fn kill_client_process_its_messages_arrive_and_then_its_end() {
    let mut server = server(Limits::default());
    let mut child = child("client", server.endpoint.name().unwrap(), None).unwrap();
    until(&mut Shm, &mut [&mut server], |peers| {
        peers[0].order.first().is_some_and(|there| !peers[0].messages(*there).is_empty())
    });
    let there = server.order[0];
    server.endpoint.send(there, &[1; 50_000]).unwrap();
    child.kill().unwrap();
    until(&mut Shm, &mut [&mut server], |peers| peers[0].closed(there).is_some());
    let ended = Seen::Closed(CloseReason::PeerClosed);
    assert_eq!(server.seen(there), [Seen::Accepted, Seen::Message(b"from the child".to_vec()), ended]);
    child.wait().unwrap();
}

#[test]
fn kill_server_process_its_memory_is_read_until_its_end_is_seen() {
    let name = socket_name();
    let mut child = child("server", name, None).unwrap();
    let mut client = Shm.client(Limits::default());
    let connection = loop {
        let connection = client.endpoint.connect(&Address::shm(name)).unwrap();
        until(&mut Shm, &mut [&mut client], |peers| !peers[0].seen(connection).is_empty());
        if client.connected(connection) {
            break connection;
        }
    };
    until(&mut Shm, &mut [&mut client], |peers| !peers[0].messages(connection).is_empty());
    let key = RegionKey(u64::from_le_bytes(client.messages(connection)[0].clone().try_into().unwrap()));
    let read = RemoteRead { key, offset: 8_000, length: 8 };
    client.endpoint.post_read(connection, read, ReadTag(1)).unwrap();
    until(&mut Shm, &mut [&mut client], |peers| peers[0].reads(connection).len() == 1);
    assert_eq!(client.reads(connection), [(1, Ok(vec![1_000]))]);
    child.kill().unwrap();
    child.wait().unwrap();
    until(&mut Shm, &mut [&mut client], |peers| peers[0].closed(connection).is_some());
    assert_eq!(client.closed(connection), Some(CloseReason::PeerClosed));
}

#[test]
fn connect_as_another_user_needs_a_place_on_the_list() {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for (users, admitted) in [(vec![], false), (vec![NOBODY], true)] {
        let name = socket_name();
        let options = ShmOptions { users, ..shm_options(Limits::default()) };
        let mut server = Peer::new(ShmEndpoint::listen(name, 1, &options).unwrap().remove(0));
        let Ok(mut child) = child("client", name, Some(NOBODY)) else {
            println!("the test's own binary cannot be run by another user");
            return;
        };
        if admitted {
            until(&mut Shm, &mut [&mut server], |peers| !peers[0].order.is_empty());
            child.kill().unwrap();
        } else {
            until(&mut Shm, &mut [&mut server], |peers| !peers[0].refused.is_empty());
            assert_eq!(server.refused, [CloseReason::Refused(Refusal::NotPermitted)]);
            assert_eq!(child.wait().unwrap().code(), Some(42));
        }
        child.wait().unwrap();
    }
}

#[test]
fn read_mapped_region_fails_when_its_registration_ends() {
    let (mut servers, address) = Shm.listen(1, Limits::default());
    let mut client = Shm.client(Limits::default());
    let (here, _) = open(&mut Shm, &mut client, &mut servers[0], address);
    let (region, _writer) = region();
    let key = servers[0].endpoint.register(&region).unwrap();
    let read = RemoteRead { key, offset: 8_000, length: 8 };
    for tag in 1..=3 {
        client.endpoint.post_read(here, read, ReadTag(tag)).unwrap();
        client.endpoint.flush();
        if tag == 3 {
            servers[0].endpoint.deregister(key);
            // The word in the ledger is another's now: that does not bring the old key back.
            servers[0].endpoint.register(&region).unwrap();
        }
        until(&mut Shm, &mut [&mut client, &mut servers[0]], |peers| {
            peers[0].reads(here).len() as u64 == tag
        });
    }
    let outcomes: Vec<_> = client.reads(here).into_iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(outcomes, [Ok(vec![1_000]), Ok(vec![1_000]), Err(ReadFailure::KeyUnknown)]);
}

#[test]
fn read_mapped_region_needs_nothing_of_the_server() {
    let (mut servers, address) = Shm.listen(1, Limits::default());
    let mut client = Shm.client(Limits::default());
    let (here, _) = open(&mut Shm, &mut client, &mut servers[0], address);
    let key = servers[0].endpoint.register(&region().0).unwrap();
    let read = |tag: u64| RemoteRead { key, offset: 8_000 + 8 * tag, length: 8 };
    client.endpoint.post_read(here, read(0), ReadTag(0)).unwrap();
    until(&mut Shm, &mut [&mut client, &mut servers[0]], |peers| peers[0].reads(here).len() == 1);
    for tag in 1..500 {
        client.endpoint.post_read(here, read(tag), ReadTag(tag)).unwrap();
        client.turn();
        client.turn();
        assert_eq!(client.reads(here).last(), Some(&(tag, Ok(vec![1_000 + tag]))));
    }
}

#[test]
fn register_what_cannot_be_shared_is_refused() {
    let spec = RegionSpec::extent(PairId(1), Epoch(1), 2 << 20).unwrap();
    let (private, _writer) = Region::create_private(&spec).unwrap();
    let mut server = server(Limits::default());
    let refused = server.endpoint.register(&private);
    assert!(matches!(refused, Err(FabricError::RegionNotShared { .. })));
    let options = ShmOptions { one_sided: false, ..shm_options(Limits::default()) };
    let mut server = ShmEndpoint::listen(socket_name(), 1, &options).unwrap().remove(0);
    assert!(matches!(server.register(&region().0), Err(FabricError::OneSidedUnavailable)));
    let mut client = Shm.client(Limits::default());
    assert!(matches!(client.endpoint.register(&region().0), Err(FabricError::OneSidedUnavailable)));
    let tcp = client.endpoint.connect(&Address::sim(1));
    assert!(matches!(tcp, Err(FabricError::AddressUnsupported { .. })));
}

#[test]
fn read_host_without_one_sided_reads_fails_as_unsupported() {
    let options = ShmOptions { one_sided: false, ..shm_options(Limits::default()) };
    let name = socket_name();
    let mut server = Peer::new(ShmEndpoint::listen(name, 1, &options).unwrap().remove(0));
    let mut client = Shm.client(Limits::default());
    let here = client.endpoint.connect(&Address::shm(name)).unwrap();
    client
        .endpoint
        .post_read(here, RemoteRead { key: RegionKey(1), offset: 0, length: 8 }, ReadTag(1))
        .unwrap();
    until(&mut Shm, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 1);
    assert_eq!(client.reads(here), [(1, Err(ReadFailure::Unsupported))]);
}

#[test]
fn host_one_registration_is_read_over_both() {
    let mut world = Host::<true>;
    let (mut servers, shm) = world.listen(1, Limits::default());
    let tcp = Address::tcp(servers[0].endpoint.address().unwrap());
    let mut client = world.client(Limits::default());
    let key = servers[0].endpoint.register(&region().0).unwrap();
    let read = RemoteRead { key, offset: 8_000, length: 8 };
    let connections = [shm, tcp].map(|address| open(&mut world, &mut client, &mut servers[0], address).0);
    assert_ne!(connections[0], connections[1]);
    for connection in connections {
        client.endpoint.post_read(connection, read, ReadTag(1)).unwrap();
    }
    until(&mut world, &mut [&mut client, &mut servers[0]], |peers| {
        connections.iter().all(|connection| peers[0].reads(*connection).len() == 1)
    });
    for connection in connections {
        assert_eq!(client.reads(connection), [(1, Ok(vec![1_000]))]);
    }
    servers[0].endpoint.deregister(key);
    for connection in connections {
        client.endpoint.post_read(connection, read, ReadTag(2)).unwrap();
        until(&mut world, &mut [&mut client, &mut servers[0]], |peers| peers[0].reads(connection).len() == 2);
        assert_eq!(client.reads(connection)[1], (2, Err(ReadFailure::KeyUnknown)));
    }
}

#[test]
fn host_tells_its_socket_in_the_hello_of_tcp() {
    let name = socket_name();
    let mut options = HostOptions { socket: Some(name), ..HostOptions::default() };
    options.shm.limits = Limits::default();
    let any = "127.0.0.1:0".parse().unwrap();
    let mut server = Peer::new(HostEndpoint::listen(any, 1, &options).unwrap().remove(0));
    let mut client = Peer::new(HostEndpoint::client(Limits::default()).unwrap());
    let tcp = Address::tcp(server.endpoint.address().unwrap());
    let mut world = Host::<false>;
    let (connection, _) = open(&mut world, &mut client, &mut server, tcp);
    let Seen::Connected(greeting) = &client.seen(connection)[0] else { panic!("it is connected") };
    assert_eq!(greeting.shared_memory_socket, name.to_string());
}
