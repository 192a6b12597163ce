//! What holds over RDMA alone, on whatever device the machine has: writes, what a device does with the key of
//! an ended registration, reads that are torn, peers that die.
#![cfg(feature = "verbs")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

mod set_up;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cell_fabric::{
    Address, CloseReason, Endpoint, FabricError, FabricLimits, HelloRefusal, HostEndpoint, HostOptions,
    OneSided, QueuePairFailure, READS_MAX, ReadFailure, ReadTag, RegionAccess, RegionKey, RemoteAccess,
    RemoteRead, RemoteSwap, RemoteWrite, SendError, VerbsOffer, VerbsOptions,
};
use cell_memory::{HugePages, Region, RegionOptions, RegionSpec};
use cell_terms::{Csn, Epoch, ExtentOffset, PairId, RegionId, SlotIndex, Words, WordsMut};
use cell_tree::{Change, CopyError, Geometry, LeafEntry, NodeIndex, NodeRef, Slot, apply, empty_root};

use crate::harness::{Peer, Seen, Verbs, World, open, region, until};

fn pair() -> (Verbs, Peer<HostEndpoint>, Peer<HostEndpoint>, Address) {
    let mut world = Verbs::new();
    let (server, address) = world.listen(FabricLimits::default());
    let client = world.client(FabricLimits::default());
    (world, client, server, address)
}

#[test]
fn write_and_swap_of_a_region_that_permits_them_change_its_words() {
    if !Verbs::is_there() {
        return;
    }
    let (mut world, mut client, mut server, address) = pair();
    let (here, _) = open(&mut world, &mut client, &mut server, address);
    let (region, _writer) = region();
    let key = server.endpoint.register_for(&region, RegionAccess::ReadAndWrite).unwrap();
    let swap = |expected, new| RemoteAccess::CompareAndSwap(RemoteSwap { key, offset: 8_000, expected, new });
    let write = RemoteAccess::Write(RemoteWrite { key, offset: 8_008, words: &[71, 72, 73] });
    let batch = [swap(1_000, 70), swap(1_000, 99), write];
    for (tag, access) in (0..).zip(batch) {
        client.endpoint.post(here, access, ReadTag(tag)).unwrap();
    }
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 3);
    assert_eq!(client.reads(here), [(0, Ok(vec![1_000])), (1, Ok(vec![70])), (2, Ok(vec![]))]);
    assert_eq!([999, 1_000, 1_001, 1_003, 1_004].map(|at| region.load(at)), [999, 70, 71, 73, 1_004]);
}

#[test]
fn region_on_huge_pages_is_registered_whole_and_read() {
    if !Verbs::is_there() {
        return;
    }
    let (mut world, mut client, mut server, address) = pair();
    let (here, _) = open(&mut world, &mut client, &mut server, address);
    let spec = RegionSpec::extent(PairId(1), Epoch(1), 8 << 20).unwrap();
    let options = RegionOptions { pages: HugePages::Huge2M, memory_check: false };
    let (region, mut writer) = Region::create(&spec, options).unwrap();
    let last = region.len() - 1;
    let key = server.endpoint.register(&region).unwrap();
    // Written after the registration: the device reads what is there now.
    writer.store(last, 77);
    let read = RemoteRead { key, offset: last as u64 * 8, length: 8 };
    client.endpoint.post_read(here, read, ReadTag(1)).unwrap();
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 1);
    assert_eq!(client.reads(here), [(1, Ok(vec![77]))]);
}

/// What takes long is done before, on another thread: an endpoint that is polled has a region at once.
#[test]
fn region_that_the_device_has_taken_before_is_registered_once_and_read() {
    if !Verbs::is_there() {
        return;
    }
    let (mut world, mut client, mut server, address) = pair();
    let (here, _) = open(&mut world, &mut client, &mut server, address);
    let (region, _writer) = region();
    let taker = server.endpoint.region_taker();
    let take = || taker.take(&region).unwrap().expect("there is a device");
    let taken = std::thread::scope(|scope| scope.spawn(take).join().unwrap());
    let key = server.endpoint.register(&region).unwrap();
    let again = server.endpoint.register(&region).unwrap();
    assert_ne!(key, again, "it was taken once");
    drop(taken); // what is registered does not end by this
    for (tag, key) in [(1, key), (2, again)] {
        let read = RemoteRead { key, offset: 8_000, length: 8 };
        client.endpoint.post_read(here, read, ReadTag(tag)).unwrap();
    }
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 2);
    assert_eq!(client.reads(here), [(1, Ok(vec![1_000])), (2, Ok(vec![1_000]))]);
}

#[test]
fn read_under_a_key_whose_registration_has_ended_breaks_the_connection_and_says_why() {
    if !Verbs::is_there() {
        return;
    }
    let (mut world, mut client, mut server, address) = pair();
    let (here, _) = open(&mut world, &mut client, &mut server, address);
    let (region, _writer) = region();
    let key = server.endpoint.register(&region).unwrap();
    let read = RemoteRead { key, offset: 8_000, length: 8 };
    client.endpoint.post_read(here, read, ReadTag(1)).unwrap();
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 1);
    server.endpoint.deregister(key);
    // The same memory under another key, as after a takeover: the old one must not reach it.
    let again = server.endpoint.register(&region).unwrap();
    for tag in 2..=3 {
        client.endpoint.post_read(here, read, ReadTag(tag)).unwrap();
    }
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].closed(here).is_some());
    let expected =
        [(1, Ok(vec![1_000])), (2, Err(ReadFailure::KeyUnknown)), (3, Err(ReadFailure::ConnectionClosed))];
    assert_eq!(client.reads(here), expected);
    let reason = CloseReason::QueuePair(QueuePairFailure::AccessRefused);
    assert_eq!(client.closed(here), Some(reason));
    assert!(reason.to_string().contains("not registered any more"), "{reason}");
    // A new connection works, with the new key.
    let (here, _) = open(&mut world, &mut client, &mut server, address);
    client.endpoint.post_read(here, RemoteRead { key: again, ..read }, ReadTag(4)).unwrap();
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 1);
    assert_eq!(client.reads(here), [(4, Ok(vec![1_000]))]);
}

#[test]
fn server_that_is_gone_fails_what_is_under_way_and_closes() {
    if !Verbs::is_there() {
        return;
    }
    let (mut world, mut client, mut server, address) = pair();
    let (here, _) = open(&mut world, &mut client, &mut server, address);
    let key = server.endpoint.register(&region().0).unwrap();
    let read = RemoteRead { key, offset: 0, length: 32_768 };
    client.endpoint.post_read(here, read, ReadTag(0)).unwrap();
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 1);
    for tag in 1..=200 {
        client.endpoint.post_read(here, read, ReadTag(tag)).unwrap();
    }
    client.endpoint.flush();
    drop(server);
    until(&mut world, &mut [&mut client], |peers| peers[0].closed(here).is_some());
    let outcomes = client.reads(here);
    assert_eq!(outcomes.len(), 201, "each ends once");
    let failed = Err(ReadFailure::ConnectionClosed);
    assert!(outcomes.iter().all(|(_, outcome)| outcome.is_ok() || *outcome == failed));
    assert!(outcomes.iter().any(|(_, outcome)| *outcome == failed));
}

#[test]
fn full_queue_is_full_then_writable_over_several_rounds() {
    if !Verbs::is_there() {
        return;
    }
    let (mut world, mut client, mut server, address) = pair();
    let (here, _) = open(&mut world, &mut client, &mut server, address);
    let key = server.endpoint.register(&region().0).unwrap();
    let read = RemoteRead { key, offset: 4_096, length: 512 };
    for round in 1..=3 {
        let mut posted = 0;
        while client.endpoint.post_read(here, read, ReadTag(posted)).is_ok() {
            posted += 1;
        }
        assert_eq!(posted, READS_MAX as u64);
        assert_eq!(client.endpoint.post_read(here, read, ReadTag(9)), Err(SendError::Full));
        until(&mut world, &mut [&mut client, &mut server], |peers| {
            let writable = peers[0].seen(here).iter().filter(|seen| **seen == Seen::Writable).count();
            peers[0].reads(here).len() == round * READS_MAX && writable == round
        });
    }
}

/// A tree node with other entries under the same keys, and as many changes behind it: the versions are equal.
fn node_with(geometry: Geometry, entries: u64) -> Vec<u64> {
    let slot = Slot { region: RegionId(2), index: SlotIndex(0) };
    let mut words = empty_root(geometry);
    words.resize(64 << 7, 0);
    for n in 0..12_u32 {
        let entry = LeafEntry { offset: ExtentOffset(n), value_len: n, crc: entries << 32 | u64::from(n) };
        let key = format!("key-{n:02}");
        let change = Change::Put { node: NodeIndex::ROOT, key: key.as_bytes(), entry };
        apply(&mut words[..], geometry, slot, &change, Csn(u64::from(n) + 1));
    }
    words.truncate(128);
    words
}

/// One thread replaces a tree node by another of equal versions, all the time, while the device reads it.
#[test]
fn torn_reads_happen_and_the_checksum_finds_each() {
    if !Verbs::is_there() {
        return;
    }
    let (mut world, mut client, mut server, address) = pair();
    let (here, _) = open(&mut world, &mut client, &mut server, address);
    let geometry = Geometry::new(1_024, 64 << 10, 0).unwrap().with_node_crc(true);
    let nodes = [1, 2].map(|entries| node_with(geometry, entries));
    let spec = RegionSpec::extent(PairId(1), Epoch(1), 2 << 20).unwrap();
    let options = RegionOptions { pages: HugePages::Small, memory_check: false };
    let (region, mut writer) = Region::create(&spec, options).unwrap();
    let first = 512;
    writer.write_words(first, &nodes[0]);
    let key = server.endpoint.register(&region).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, images) = (Arc::clone(&stop), nodes.clone());
    let thread = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            images.iter().for_each(|image| writer.write_words(first, image));
        }
    });
    let read = RemoteRead { key, offset: first as u64 * 8, length: 1_024 };
    let plain = geometry.with_node_crc(false);
    let (mut torn, mut whole) = (0, 0);
    for _ in 0..400 {
        for tag in 0..32 {
            client.endpoint.post_read(here, read, ReadTag(tag)).unwrap();
        }
        until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 32);
        for (_, outcome) in client.reads(here) {
            let words = outcome.unwrap();
            assert!(
                NodeRef::new(plain, NodeIndex::ROOT, &words).is_ok(),
                "versions alone prove nothing here"
            );
            let is_whole = nodes.contains(&words);
            match NodeRef::new(geometry, NodeIndex::ROOT, &words) {
                Ok(_) => assert!(is_whole, "a torn node is believed"),
                Err(CopyError::Torn) => assert!(!is_whole, "a whole node is refused"),
                Err(error) => panic!("{error:?}"),
            }
            (torn, whole) = (torn + u32::from(!is_whole), whole + u32::from(is_whole));
        }
        client.seen.get_mut(&here).unwrap().retain(|seen| !matches!(seen, Seen::Read(..)));
        if torn > 100 && whole > 100 {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    println!("reads beside a writer: {torn} torn, each found by its checksum; {whole} whole");
    assert!(torn > 0, "none was torn: the test shows nothing");
}

#[test]
fn listener_without_rdma_refuses_by_name() {
    if !Verbs::is_there() {
        return;
    }
    let any = "127.0.0.1:0".parse().unwrap();
    let options = HostOptions { verbs: VerbsOptions::default(), ..Verbs::options(FabricLimits::default()) };
    let mut server = Peer::new(HostEndpoint::listen(any, &options).unwrap());
    let address = Address::Verbs(server.endpoint.address().unwrap());
    let mut world = Verbs::new();
    let mut client = world.client(FabricLimits::default());
    let connection = client.endpoint.connect(&address).unwrap();
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].closed(connection).is_some());
    assert_eq!(client.closed(connection), Some(CloseReason::RefusedByPeer(HelloRefusal::NoVerbs)));
}

#[test]
fn device_port_or_gid_that_is_not_there_is_named() {
    if !Verbs::is_there() {
        return;
    }
    let refusals = [
        (VerbsOptions { device: "mlx9_7".into(), ..VerbsOptions::default() }, "mlx9_7; there is: "),
        (VerbsOptions { port: 200, ..VerbsOptions::default() }, "no active port 200"),
        (VerbsOptions { gid: Some(9_999), ..VerbsOptions::default() }, "GID 9999 of the RDMA device"),
    ];
    for (options, words) in refusals {
        let error = HostEndpoint::client_over_verbs(FabricLimits::default(), &[], &options).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        let offer = VerbsOptions { offer: VerbsOffer::On, ..options.clone() };
        let any = "127.0.0.1:0".parse().unwrap();
        let host = HostOptions { verbs: offer, ..Verbs::options(FabricLimits::default()) };
        let error = HostEndpoint::listen(any, &host).unwrap_err();
        assert!(matches!(error, FabricError::Verbs { .. }), "{error}");
        // A host that only would like to starts without.
        let offer = VerbsOptions { offer: VerbsOffer::Auto, ..options };
        let host = HostOptions { verbs: offer, ..host };
        assert!(HostEndpoint::listen(any, &host).is_ok());
    }
    assert_eq!(RegionKey(1).to_string(), "key-0000000000000001");
}
