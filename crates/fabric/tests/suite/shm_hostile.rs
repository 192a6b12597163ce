//! Peers over shared memory that write whatever they like into it, and acceptors that share nonsense.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]
#![allow(clippy::disallowed_methods, reason = "a call that may never return is waited for so long")]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use cell_fabric::{
    Address, CloseReason, Endpoint, FabricLimits, HelloRefusal, OneSided, RegionKey, ShmEndpoint, SocketName,
    Stranger,
};
use cell_memory::Region;
use proptest::prelude::*;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};

use crate::harness::{Peer, Seen, Shm, World, region, socket_name, until};

/// Words of the file, as the module's table says.
const TAIL: u64 = 64;
const HEAD: u64 = 80;
const SLEEPING: u64 = 96;
const HEAD_BACK: u64 = 144;
const SLEEPING_BACK: u64 = 160;
const DATA: u64 = 512;
const VERSION: u64 = 2;
const RING_WORDS: u64 = 32_768;

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

    /// Through the door of a server: file and ledger.
    fn admitted(server: &mut Peer<ShmEndpoint>) -> Hostile {
        let mut hostile = Hostile::connect(server.endpoint.name().unwrap());
        hostile.send(&hello());
        let known = server.order.len();
        until(&mut Shm, &mut [server], |peers| peers[0].order.len() > known);
        hostile.descriptors = hostile.receive().1;
        assert_eq!(hostile.descriptors.len(), 2);
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

fn server(limits: FabricLimits) -> Peer<ShmEndpoint> {
    Shm.listen(limits).0
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
        let mut server = server(FabricLimits::default());
        let stranger = Hostile::connect(server.endpoint.name().unwrap());
        stranger.send(bytes);
        until(&mut Shm, &mut [&mut server], |peers| !peers[0].refused.is_empty());
        assert_eq!((server.refused[0], server.endpoint.connections()), (expected, 0));
    }
}

/// What the acceptor says of a hello, and the beginning of its answer to it.
fn answer_to(hello: &[u8]) -> (CloseReason, Vec<u8>) {
    let mut server = server(FabricLimits::default());
    let stranger = Hostile::connect(server.endpoint.name().unwrap());
    stranger.send(hello);
    until(&mut Shm, &mut [&mut server], |peers| !peers[0].refused.is_empty());
    let (answer, descriptors) = stranger.receive();
    assert_eq!((server.endpoint.connections(), server.order.len(), descriptors.len()), (0, 0, 0));
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
    // The one-sided service has nobody here: reads are loads of mapped memory.
    for number in [1, 7, u16::MAX] {
        let mut bytes = hello();
        bytes[14..16].copy_from_slice(&number.to_le_bytes());
        let refused = CloseReason::Refused(HelloRefusal::NoSuchWorker);
        assert_eq!(answer_to(&bytes), (refused, b"CELLFABR\x01\0\x03\0".to_vec()));
    }
}

#[test]
fn accept_silence_is_refused_after_the_handshake_timeout() {
    let mut server = server(FabricLimits::default());
    let _stranger = Hostile::connect(server.endpoint.name().unwrap());
    server.endpoint.tick(1_000);
    until(&mut Shm, &mut [&mut server], |peers| peers[0].endpoint.connections() == 1);
    server.endpoint.tick(5_100_000_000);
    server.turn();
    server.endpoint.tick(5_200_000_000);
    server.turn();
    assert_eq!(server.refused, [CloseReason::HandshakeTimeout]);
    assert_eq!(server.endpoint.counters().timed_out, 1);
}

#[test]
fn receive_counts_that_cannot_be_close_the_connection() {
    for tail in [u64::MAX, RING_WORDS + 1, 1 << 63] {
        let mut server = server(FabricLimits::default());
        let hostile = Hostile::admitted(&mut server);
        hostile.store(TAIL, tail);
        assert_eq!(end_of(&mut server), CloseReason::SharedMemoryBroken, "{tail}");
    }
    // The other ring's head: noticed when its room is needed.
    let mut server = server(FabricLimits::default());
    let hostile = Hostile::admitted(&mut server);
    let there = server.order[0];
    hostile.store(HEAD_BACK, 1 << 40);
    for _ in 0..=RING_WORDS * 8 / 60_000 {
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
        let mut server = server(FabricLimits::default());
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
    let mut server = server(FabricLimits::default());
    let hostile = Hostile::admitted(&mut server);
    hostile.store(DATA, 20);
    hostile.store(TAIL, 2);
    until(&mut Shm, &mut [&mut server], |_| hostile.load(HEAD) == 2);
    drop(hostile);
    assert_eq!(end_of(&mut server), CloseReason::Truncated { received: 16 });
}

#[test]
fn share_file_keeps_its_size_and_holes_are_zeros() {
    let mut server = server(FabricLimits::default());
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
    assert!(rustix::io::pwrite(&hostile.descriptors[1], &[1; 8], 0).is_err());
}

/// A server once woke its peers by a pipe. Its lock is held while a reader copies, and a peer that read into
/// memory whose pages somebody else serves (a file system of its own, userfaultfd) held it as long as it
/// liked, and with it the server's next write.
#[test]
fn share_hands_over_memory_and_nothing_else() {
    let mut server = server(FabricLimits::default());
    let hostile = Hostile::admitted(&mut server);
    for descriptor in &hostile.descriptors {
        assert!(rustix::fs::fcntl_get_seals(descriptor).is_ok(), "{descriptor:?} is no memory");
    }
}

#[test]
fn wake_peer_that_never_reads_its_socket_makes_nobody_wait() {
    let mut server = server(FabricLimits::default());
    let hostile = Hostile::admitted(&mut server);
    let there = server.order[0];
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
    let mut server = server(FabricLimits::default());
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
    let mut server = server(FabricLimits::default());
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
    let mut server = server(FabricLimits::default());
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
    let mut client = Shm.client(FabricLimits::default());
    let connection = client.endpoint.connect(&Address::Shm(name)).unwrap();
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

/// A file of memory as an acceptor makes it.
fn ring_file() -> OwnedFd {
    let file = rustix::fs::memfd_create("hostile", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&file, (DATA + 2 * RING_WORDS) * 8).unwrap();
    rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::SHRINK).unwrap();
    for (word, value) in [(0, u64::from_le_bytes(*b"CELLRING")), (1, VERSION), (2, RING_WORDS)] {
        rustix::io::pwrite(&file, &value.to_le_bytes(), word * 8).unwrap();
    }
    file
}

/// A connector that lost its patience would be a thread that never ends: it is waited for so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Sends messages to an acceptor that shared those descriptors, always wants to be woken and takes nothing
/// from its socket, until it was woken more often than a socket holds packets. The reason for the
/// connection's end, if it ended before; the test fails if a call never returns.
fn send_to_an_acceptor_that_never_hears(more: Vec<OwnedFd>) -> Option<CloseReason> {
    const WAKES: u64 = 1_000;
    let (listener, name) = hostile_acceptor();
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let mut client = Shm.client(FabricLimits::default());
        let connection = client.endpoint.connect(&Address::Shm(name)).unwrap();
        until(&mut Shm, &mut [&mut client], |peers| !peers[0].seen(connection).is_empty());
        while client.endpoint.counters().wakes < WAKES && client.closed(connection).is_none() {
            let _ = client.endpoint.send(connection, b"wake up");
            client.turn();
        }
        let _ = ended.send(client.closed(connection));
    });
    let there = rustix::net::accept(&listener).unwrap();
    let file = ring_file();
    let descriptors: Vec<_> = std::iter::once(&file).chain(&more).map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(&there, &[IoSlice::new(&hello())], &mut ancillary, SendFlags::empty()).unwrap();
    let until = Instant::now() + PATIENCE;
    loop {
        let mut tail = [0; 8];
        rustix::io::pread(&file, &mut tail, TAIL * 8).unwrap();
        rustix::io::pwrite(&file, &tail, HEAD * 8).unwrap();
        rustix::io::pwrite(&file, &1_u64.to_le_bytes(), SLEEPING * 8).unwrap();
        match end.try_recv() {
            Ok(reason) => return reason,
            Err(_) => assert!(Instant::now() < until, "the client waits for the acceptor for ever"),
        }
        std::thread::yield_now();
    }
}

/// An acceptor handed over the eventfd that woke it. Both ends share such a descriptor's flags and count: one
/// that is full, and not non-blocking any more, makes whoever writes to it wait for ever.
#[test]
fn wake_acceptor_whose_bell_takes_nothing_makes_no_client_wait() {
    let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
    rustix::io::write(&bell, &(u64::MAX - 1).to_le_bytes()).unwrap();
    let (reading_end, _writing_end) = rustix::pipe::pipe().unwrap();
    let reason = send_to_an_acceptor_that_never_hears(vec![bell, reading_end]);
    assert_eq!(reason, Some(CloseReason::HelloInvalid), "a connector takes memory and nothing else");
    assert_eq!(send_to_an_acceptor_that_never_hears(Vec::new()), None);
}

/// Files that are not what they should be are distinguished without a question that their maker could answer
/// late.
#[test]
fn connect_to_an_acceptor_that_shares_other_files_closes() {
    let size = (DATA + 2 * RING_WORDS) * 8;
    let made = |flags, seals| {
        let file = rustix::fs::memfd_create("other", rustix::fs::MemfdFlags::ALLOW_SEALING | flags).ok()?;
        rustix::fs::ftruncate(&file, size.next_multiple_of(2 << 20)).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        Some(file)
    };
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    let unsealed = made(rustix::fs::MemfdFlags::empty(), rustix::fs::SealFlags::empty());
    let huge = made(rustix::fs::MemfdFlags::HUGETLB, rustix::fs::SealFlags::SHRINK);
    let folder = std::fs::File::open("/").unwrap().into();
    for file in [Some(pipe), Some(folder), unsealed, huge].into_iter().flatten() {
        assert_eq!(
            first_event_after(&hello(), &[file.as_fd()]),
            Seen::Closed(CloseReason::SharedMemoryBroken)
        );
    }
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
    [(0, magic), (1, VERSION), (2, RING_WORDS)].into_iter().for_each(|(word, value)| store(word, value));
    let descriptors = [file.as_fd()];
    let broken = Seen::Closed(CloseReason::SharedMemoryBroken);
    assert_eq!(first_event_after(&hello(), &descriptors), broken, "its size is not sealed");
    rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::SHRINK).unwrap();
    assert!(matches!(first_event_after(&hello(), &descriptors), Seen::Connected(_)), "now it is good");
    for (word, wrong, right) in [(0, 7, magic), (2, RING_WORDS * 2, RING_WORDS), (2, 0, RING_WORDS)] {
        store(word, wrong);
        assert_eq!(first_event_after(&hello(), &descriptors), broken, "word {word} is {wrong}");
        store(word, right);
    }
    // Version 1 handed more over: it is refused by its name.
    store(1, 1);
    let more = [file.as_fd(), file.as_fd(), file.as_fd(), file.as_fd()];
    let other = Seen::Closed(CloseReason::SharedMemoryVersion { theirs: 1 });
    assert_eq!(first_event_after(&hello(), &more), other);
    let small = rustix::fs::memfd_create("small", flags).unwrap();
    rustix::fs::fcntl_add_seals(&small, rustix::fs::SealFlags::SHRINK).unwrap();
    assert_eq!(first_event_after(&hello(), &[small.as_fd()]), broken, "it is empty");
}

#[test]
#[cfg(debug_assertions)]
fn mutant_peer_file_unjudged_is_caught() {
    cell_terms::mutant::in_own_process(|| {
        use cell_terms::mutant::{Mutant, plant};
        let passes = || std::panic::catch_unwind(connect_to_an_acceptor_that_shares_nonsense_closes).is_ok();
        assert!(passes());
        plant(Some(Mutant::PeerFileUnjudged));
        let passed = passes();
        plant(None);
        assert!(!passed);
        println!("mutant {} caught by cell-fabric's hostile acceptor", Mutant::PeerFileUnjudged.name());
    });
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
        let mut server = server(FabricLimits::default());
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
