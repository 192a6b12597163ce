//! One-sided operations, on every provider that has them.

use cell_fabric::{
    Endpoint, Event, FabricError, FabricLimits, OneSided, READ_BYTES_MAX, READS_MAX, ReadFailure, ReadTag,
    RegionAccess, RegionKey, RemoteAccess, RemoteRead, RemoteSwap, RemoteWrite, SendError,
};
use cell_terms::Words;

use crate::harness::{Seen, World, open, region, until};

pub(super) fn read_registered_region_gives_its_words<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let (here, _) = open(&mut world, &mut client, &mut server, address);
    let (region, _writer) = region();
    let key = server.endpoint.register(&region).unwrap();
    assert_ne!(server.endpoint.register(&region).unwrap(), key);
    let reads = [(4_096, 8), (4_104, 64), (8_192, 1_024), (10_008, 32_768), ((2 << 20) - 8, 8)];
    for (tag, (offset, length)) in (0..).zip(reads) {
        client.endpoint.post_read(here, RemoteRead { key, offset, length }, ReadTag(tag)).unwrap();
    }
    client.endpoint.send(here, b"beside").unwrap();
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == reads.len());
    for (tag, outcome) in client.reads(here) {
        let (offset, length) = reads[usize::try_from(tag).unwrap()];
        let expected: Vec<u64> = (offset / 8..(offset + u64::from(length)) / 8).collect();
        assert_eq!(outcome, Ok(expected), "read {tag}");
    }
    let counters = client.endpoint.counters();
    assert_eq!((counters.reads_posted, counters.reads_done, counters.reads_failed), (5, 5, 0));
}

pub(super) fn read_ended_or_unknown_key_fails<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let (here, _) = open(&mut world, &mut client, &mut server, address);
    let (region, _writer) = region();
    let ended = server.endpoint.register(&region).unwrap();
    let key = server.endpoint.register(&region).unwrap();
    server.endpoint.deregister(ended);
    server.endpoint.deregister(RegionKey(5));
    for (tag, key) in [(1, ended), (2, RegionKey(key.0 ^ 1)), (3, key)] {
        client.endpoint.post_read(here, RemoteRead { key, offset: 8_000, length: 8 }, ReadTag(tag)).unwrap();
    }
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 3);
    let mut reads = client.reads(here);
    reads.sort_unstable_by_key(|(tag, _)| *tag);
    let unknown = Err(ReadFailure::KeyUnknown);
    assert_eq!(reads, [(1, unknown.clone()), (2, unknown), (3, Ok(vec![1_000]))]);
}

pub(super) fn read_range_not_permitted_fails<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let (here, _) = open(&mut world, &mut client, &mut server, address);
    let key = server.endpoint.register(&region().0).unwrap();
    let wrong = [(0, 0), (4, 8), (0, 12), ((2 << 20) - 8, 16), (u64::MAX - 7, 8), (0, READ_BYTES_MAX + 8)];
    for (tag, (offset, length)) in (0..).zip(wrong) {
        client.endpoint.post_read(here, RemoteRead { key, offset, length }, ReadTag(tag)).unwrap();
    }
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == wrong.len());
    assert!(client.reads(here).iter().all(|(_, outcome)| *outcome == Err(ReadFailure::RangeInvalid)));
    assert_eq!(client.closed(here), None);
}

pub(super) fn read_too_many_in_flight_full_then_writable<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let (here, _) = open(&mut world, &mut client, &mut server, address);
    let key = server.endpoint.register(&region().0).unwrap();
    let read = |tag: u64| RemoteRead { key, offset: 4_096 + 8 * tag, length: 4_096 };
    for tag in 0..READS_MAX as u64 {
        client.endpoint.post_read(here, read(tag), ReadTag(tag)).unwrap();
    }
    let more = client.endpoint.post_read(here, read(0), ReadTag(0));
    assert_eq!(more, Err(SendError::Full));
    until(&mut world, &mut [&mut client, &mut server], |peers| {
        peers[0].reads(here).len() == READS_MAX && peers[0].seen(here).contains(&Seen::Writable)
    });
    let mut tags: Vec<u64> = client.reads(here).iter().map(|(tag, _)| *tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..READS_MAX as u64).collect::<Vec<_>>(), "each ends once");
    for (tag, outcome) in client.reads(here) {
        assert_eq!(outcome.unwrap()[0], 512 + tag);
    }
}

pub(super) fn read_connection_ends_reads_fail_before_closed<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let (here, there) = open(&mut world, &mut client, &mut server, address);
    let key = server.endpoint.register(&region().0).unwrap();
    // Nothing is flushed, so nothing is answered.
    for tag in 0..3 {
        client.endpoint.post_read(here, RemoteRead { key, offset: 0, length: 8 }, ReadTag(tag)).unwrap();
    }
    server.endpoint.close(there);
    let mut events = Vec::new();
    while events.len() < 4 {
        world.turn();
        server.turn();
        client.endpoint.poll(&mut |event| {
            events.push(match event {
                Event::ReadDone { outcome, .. } => outcome.err(),
                Event::Closed { .. } => None,
                other => panic!("{other:?}"),
            });
        });
    }
    let failed = Some(ReadFailure::ConnectionClosed);
    assert_eq!(events, [failed, failed, failed, None]);
    assert_eq!(client.endpoint.connections(), 0);
    let late = client.endpoint.post_read(here, RemoteRead { key, offset: 0, length: 8 }, ReadTag(9));
    assert_eq!(late, Err(SendError::Closed));
}

pub(super) fn read_over_an_accepted_connection_is_unsupported<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let (_, there) = open(&mut world, &mut client, &mut server, address);
    let read = RemoteRead { key: RegionKey(1), offset: 0, length: 8 };
    server.endpoint.post_read(there, read, ReadTag(7)).unwrap();
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[1].reads(there).len() == 1);
    assert_eq!(server.reads(there), [(7, Err(ReadFailure::Unsupported))]);
}

pub(super) fn write_of_a_region_registered_for_reading_is_refused<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let (here, _) = open(&mut world, &mut client, &mut server, address);
    let (region, _writer) = region();
    let key = server.endpoint.register(&region).unwrap();
    let write = |offset, words| RemoteAccess::Write(RemoteWrite { key, offset, words });
    let swap = |offset, expected| RemoteAccess::CompareAndSwap(RemoteSwap { key, offset, expected, new: 7 });
    let read = RemoteAccess::Read(RemoteRead { key, offset: 8_000, length: 16 });
    let batch = [
        (write(8_000, &[7, 7]), Err(ReadFailure::NotPermitted)),
        (swap(8_000, 1_000), Err(ReadFailure::NotPermitted)),
        (swap(8_000, 1), Err(ReadFailure::NotPermitted)),
        (write(8_004, &[7]), Err(ReadFailure::RangeInvalid)),
        (write(8_000, &[]), Err(ReadFailure::RangeInvalid)),
        (swap(u64::MAX - 7, 0), Err(ReadFailure::RangeInvalid)),
        (read, Ok(vec![1_000, 1_001])),
    ];
    for (tag, (access, _)) in (0..).zip(&batch) {
        client.endpoint.post(here, *access, ReadTag(tag)).unwrap();
    }
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == batch.len());
    let mut outcomes = client.reads(here);
    outcomes.sort_unstable_by_key(|(tag, _)| *tag);
    let expected: Vec<_> = (0..).zip(batch.map(|(_, outcome)| outcome)).collect();
    assert_eq!(outcomes, expected);
    assert_eq!((region.load(1_000), region.load(1_001)), (1_000, 1_001));
    assert_eq!(client.closed(here), None);
}

pub(super) fn write_refused_is_polled_before_sleep_and_ends_with_its_connection<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let (here, there) = open(&mut world, &mut client, &mut server, address);
    let write = RemoteAccess::Write(RemoteWrite { key: RegionKey(1), offset: 0, words: &[7] });
    client.endpoint.post(here, write, ReadTag(1)).unwrap();
    assert!(!client.endpoint.prepare_sleep(), "its end is to be polled");
    client.endpoint.close(here);
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[1].closed(there).is_some());
    assert_eq!(client.reads(here), [], "the closing end receives no more");
    assert_eq!(client.endpoint.post(here, write, ReadTag(2)), Err(SendError::Closed));
}

pub(super) fn register_for_writing_is_refused<W: World>() {
    let mut world = W::new();
    let (mut server, _) = world.listen(FabricLimits::default());
    let refused = server.endpoint.register_for(&region().0, RegionAccess::ReadAndWrite);
    assert!(matches!(refused, Err(FabricError::AccessUnavailable)), "{refused:?}");
}
