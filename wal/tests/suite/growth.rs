//! Segments that grow: little is zeroed for a log that is written little, writers of one that is written much
//! do not wait, frames find segments that hold them, and files of whatever length serve on a full disk.
#![allow(missing_docs, clippy::cast_possible_truncation, clippy::unwrap_used)] // tests

use std::sync::Arc;
use std::time::Duration;

use crate::harness::{Pair, assert_holds, log_id, read, request, small};
use cell_terms::RegionKind;
use cell_wal::folder::list_segments;
use cell_wal::inspect::walk_log;
use cell_wal::sim::SimDisk;
use cell_wal::storage::Access;
use cell_wal::{Errno, LogOptions, LogPlace, LogRefusal, ReadOptions, ReadRequest, Space, Storage};

/// The longest record that a log takes; twice as long as the first segments.
fn longest() -> usize {
    small().operation_bytes_max() - 8
}

/// How long the current segment of the extents' log is.
fn current_bytes(pair: &Pair) -> u64 {
    pair.log.segments()[1].current_bytes_all
}

fn generations(pair: &Pair) -> Vec<u32> {
    list_segments(&pair.disk.process(), log_id(1).log(RegionKind::Extent)).unwrap()
}

/// Puts what takes 52 KiB of the extents' log, of whose first segment four of them take all.
fn put(pair: &mut Pair) {
    pair.put(RegionKind::Extent, 50_000);
    pair.settle().unwrap();
}

/// 264 MiB were zeroed for each pair that was made, moved or taken over, also if nobody wrote to it.
#[test]
fn logs_that_nobody_writes_to_are_two_short_segments_each() {
    for (options, bytes) in [(small(), 1 << 20), (LogOptions::default(), 16 << 20)] {
        let disk = SimDisk::new(1);
        let mut pair = Pair::open(&disk, options);
        assert_eq!(disk.used(), bytes);
        pair.put(RegionKind::Node, 10);
        pair.put(RegionKind::Extent, 10);
        pair.seal();
        assert_eq!((disk.used(), pair.log.counts().held_bytes), (bytes, bytes));
    }
}

#[test]
fn segments_double_as_a_log_is_written_until_they_have_the_configured_length() {
    let disk = SimDisk::new(2);
    let mut pair = Pair::open(&disk, small());
    let mut kib = vec![current_bytes(&pair) >> 10];
    while kib.len() < 8 {
        assert_eq!(pair.room(RegionKind::Extent, 50_000, Space::Ordinary), Ok(()));
        put(&mut pair);
        if pair.log.segments()[1].current as usize == kib.len() {
            kib.push(current_bytes(&pair) >> 10);
        }
    }
    assert_eq!(kib, [256, 256, 512, 512, 1024, 1024, 1024, 1024]);
    let [node, _] = pair.log.segments();
    assert_eq!(node.bytes, 512 << 10, "nothing was written to the other log");
    for chunk_bytes in [4096, 64 << 10, 4 << 20] {
        for ahead in [false, true] {
            let request = ReadRequest { options: ReadOptions { chunk_bytes, ahead }, ..request(1) };
            let (ended, found) = read(&disk, request).unwrap();
            assert_eq!((ended.cut, ended.tear), (pair.acked, None));
            assert_holds(&found, &pair.written, ended.cut);
        }
    }
}

/// A spare is asked for soon enough, and is not too long.
#[test]
fn writers_do_not_wait_on_a_disk_that_zeroes_three_times_as_fast_as_they_write() {
    const FRAME_BYTES: u64 = 4096;
    let disk = SimDisk::new(3);
    let mut pair = Pair::open(&disk, small());
    // What the disk has zeroed of the segment that it is asked for.
    let mut zeroed = 0;
    for number in 0..1_500 {
        let room = pair.room(RegionKind::Extent, 10, Space::Ordinary);
        assert_eq!(room, Ok(()), "{number}: {:?}", pair.log.segments());
        pair.put(RegionKind::Extent, 10);
        pair.submit().unwrap();
        while let Some(write) = disk.pending().into_iter().find(|pending| pending.is_log_write) {
            disk.complete(write.id);
            pair.pump().unwrap();
        }
        match disk.pending()[..] {
            [] => zeroed = 0,
            [segment] if segment.bytes > zeroed + 3 * FRAME_BYTES => zeroed += 3 * FRAME_BYTES,
            [segment] => {
                zeroed = 0;
                disk.complete(segment.id);
                pair.pump().unwrap();
            }
            _ => panic!("a log asks for one segment at a time"),
        }
    }
    assert_eq!(current_bytes(&pair), small().segment_bytes);
}

/// It waits for one segment, and for no write that would fill the short ones.
#[test]
fn frame_that_no_spare_holds_gets_a_segment_that_does_and_passes_the_short_ones_over() {
    for puts in 0..20 {
        let disk = SimDisk::new(puts);
        let mut pair = Pair::open(&disk, small());
        (0..=puts).for_each(|_| put(&mut pair));
        let room = pair.room(RegionKind::Extent, longest(), Space::Ordinary);
        // Later on the second spare, and then both, have the whole length.
        if room == Ok(()) {
            assert!(pair.log.segments()[1].current >= 2, "{puts}");
        } else {
            assert_eq!(room, Err(LogRefusal::Preparing), "{puts}");
            assert_eq!(pair.log.due(pair.now), Some(Duration::ZERO), "{puts}");
            pair.tick(Duration::ZERO).unwrap();
            assert_ne!(pair.log.due(pair.now), Some(Duration::ZERO), "{puts}");
            let asked: Vec<u64> = disk.pending().iter().map(|pending| pending.bytes).collect();
            assert_eq!(asked, [small().segment_bytes], "{puts}");
            pair.settle().unwrap();
            assert_eq!(pair.room(RegionKind::Extent, longest(), Space::Ordinary), Ok(()), "{puts}");
        }
        pair.put(RegionKind::Extent, longest());
        pair.settle().unwrap();
        assert_eq!(current_bytes(&pair), small().segment_bytes, "{puts}");
        // No short spare is left, nor is anything asked for.
        let [_, extent] = pair.log.segments();
        let in_use = generations(&pair).len() as u64 - extent.spare - extent.released;
        assert_eq!(in_use, extent.in_use, "{puts}");
        assert!((1..=2).contains(&extent.spare) && extent.released == 0, "{puts}: {extent:?}");
        (0..30).for_each(|_| put(&mut pair));
        assert_eq!(current_bytes(&pair), small().segment_bytes, "{puts}");
        let (ended, found) = read(&disk, request(1)).unwrap();
        assert_eq!((ended.cut, ended.tear), (pair.acked, None), "{puts}");
        assert_holds(&found, &pair.written, ended.cut);
    }
}

/// A crash can keep the spare that was passed over, and have all gone that was older.
#[test]
fn spare_that_was_passed_over_is_not_taken_for_the_beginning_of_the_log() {
    let disk = SimDisk::new(4);
    let mut pair = Pair::open(&disk, small());
    put(&mut pair);
    assert!(pair.room(RegionKind::Extent, longest(), Space::Ordinary).is_err());
    pair.settle().unwrap();
    pair.put(RegionKind::Extent, longest());
    pair.settle().unwrap();
    (0..30).for_each(|_| put(&mut pair));
    pair.base = pair.acked;
    pair.log.release_below(pair.base, &mut pair.device);
    put(&mut pair);
    assert!(generations(&pair)[0] > 1, "the spare, and what is older, are gone");
    let spare = log_id(1).log(RegionKind::Extent).segment(1).path();
    disk.open(&spare, Access::Create).unwrap().write_at(0, &vec![0; 256 << 10]).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(disk.process());
    let mut frames = 0;
    let walked = walk_log(&storage, log_id(1), RegionKind::Extent, pair.base, |_| frames += 1).unwrap();
    assert_eq!((walked.end.later, walked.skipped), (None, None));
    assert!(frames > 0);
    let (ended, found) = read(&disk, ReadRequest { base: pair.base, ..request(1) }).unwrap();
    assert_eq!(
        (ended.cut, ended.tear, found.last_key_value()),
        (pair.acked, None, pair.written.last_key_value())
    );
}

/// The power fails before it is known that the spare was unlinked; what follows begins above the first number
/// that is needed, because that one is the other log's.
pub(crate) fn spare_that_comes_back_is_passed_over() -> bool {
    let disk = SimDisk::new(4);
    let mut pair = Pair::open(&disk, small());
    pair.put(RegionKind::Node, 100);
    pair.settle().unwrap();
    assert!(pair.room(RegionKind::Extent, longest(), Space::Ordinary).is_err());
    pair.settle().unwrap();
    pair.put(RegionKind::Extent, longest());
    pair.settle().unwrap();
    assert!(generations(&pair)[0] > 1, "the spare, and the first segment, which holds nothing, are gone");
    let spare = log_id(1).log(RegionKind::Extent).segment(1).path();
    disk.open(&spare, Access::Create).unwrap().write_at(0, &vec![0; 256 << 10]).unwrap();
    read(&disk, request(1)).is_ok_and(|(ended, found)| {
        (ended.cut, ended.tear) == (pair.acked, None) && found.iter().eq(pair.written.range(..=ended.cut.0))
    })
}

#[test]
fn spare_that_comes_back_is_not_taken_for_what_a_recovery_needs() {
    assert!(spare_that_comes_back_is_passed_over());
}

/// It reads as zeroes, as a spare does.
#[test]
fn first_segment_that_has_lost_its_first_block_is_no_spare() {
    let disk = SimDisk::new(11);
    let mut pair = Pair::open(&disk, small());
    (0..10).for_each(|_| put(&mut pair));
    let first = log_id(1).log(RegionKind::Extent).segment(0);
    disk.process().open(&first.path(), Access::Write).unwrap().write_at(0, &[0; 4096]).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(disk.process());
    let walked = walk_log(&storage, log_id(1), RegionKind::Extent, pair.base, |_| {}).unwrap();
    assert_eq!(walked.end.place, LogPlace { segment: first, offset: 0 });
    assert_eq!(walked.end.later, Some(LogPlace { segment: first, offset: 4096 }));
}

/// The reserve may be short, too: it is no place for a long frame.
#[test]
fn long_frame_of_who_may_use_the_reserve_waits_for_a_segment_that_holds_it() {
    let disk = SimDisk::new(5);
    let mut pair = Pair::open(&disk, small());
    put(&mut pair);
    let room = |pair: &mut Pair| pair.room(RegionKind::Extent, longest(), Space::Reserve);
    assert_eq!(room(&mut pair), Err(LogRefusal::Preparing));
    disk.set_capacity(Some(disk.used()));
    pair.settle().unwrap();
    assert_eq!(room(&mut pair), Err(LogRefusal::NoSpace { errno: Errno::ENOSPC }));
    assert!(!pair.log.can_be_reclaimed_for(0, longest()), "no checkpoint makes room for it");
    assert!(pair.log.can_be_reclaimed() && pair.log.can_be_reclaimed_for(0, 4_000));
    assert_eq!(pair.room(RegionKind::Extent, 4_000, Space::Reserve), Ok(()));
    disk.set_capacity(None);
    pair.tick(Duration::ZERO).unwrap();
    pair.tick(small().prepare_retry).unwrap();
    pair.settle().unwrap();
    assert_eq!(room(&mut pair), Ok(()));
}

/// The disk is full while the log is at segments of 256 and 512 KiB: they serve by turns. What was too short
/// for the next segment was unlinked at first; then the log had no reserve for ever, and took nothing.
pub(crate) fn short_segments_serve_by_turns_on_a_full_disk() -> bool {
    let disk = SimDisk::new(6);
    let mut pair = Pair::open(&disk, small());
    // A spare of 512 KiB fits, and not another one.
    disk.set_capacity(Some(disk.used() + (640 << 10)));
    let mut kib = Vec::new();
    for round in 0..12 {
        let refusal = loop {
            match pair.room(RegionKind::Extent, 50_000, Space::Ordinary) {
                Ok(()) => put(&mut pair),
                Err(refusal) => break refusal,
            }
            kib.push(current_bytes(&pair) >> 10);
        };
        assert_eq!(refusal, LogRefusal::NoSpace { errno: Errno::ENOSPC }, "{round}");
        assert!(pair.log.can_be_reclaimed(), "{round}");
        pair.base = pair.acked;
        pair.log.release_below(pair.base, &mut pair.device);
        pair.settle().unwrap();
        for space in [Space::Ordinary, Space::Reserve] {
            assert_eq!(pair.room(RegionKind::Extent, 50_000, space), Ok(()), "{round}");
        }
    }
    kib.dedup();
    assert!(kib.len() > 6 && kib.iter().all(|kib| [256, 512].contains(kib)), "{kib:?}");
    // With room it grows on.
    disk.set_capacity(None);
    (0..60).for_each(|_| put(&mut pair));
    assert_eq!(current_bytes(&pair), small().segment_bytes);
    let (ended, found) = read(&disk, ReadRequest { base: pair.base, ..request(1) }).unwrap();
    let mut above = pair.written.range(pair.base.0 + 1..);
    ended.cut == pair.acked && above.all(|(csn, record)| found.get(csn) == Some(record))
}

#[test]
fn log_that_the_disk_let_grow_no_further_goes_on_in_the_files_that_it_has() {
    assert!(short_segments_serve_by_turns_on_a_full_disk());
}

/// The next spare is only being asked for when a checkpoint frees a segment that is too short for it; then
/// the disk has no room for that spare.
#[test]
fn released_segment_is_kept_for_a_reserve_until_the_log_has_another() {
    let disk = SimDisk::new(7);
    let mut pair = Pair::open(&disk, small());
    // As on a disk that is slow to zero: log writes alone are done.
    let write = |pair: &mut Pair| {
        pair.put(RegionKind::Extent, 50_000);
        pair.submit().unwrap();
        while let Some(write) = disk.pending().into_iter().find(|pending| pending.is_log_write) {
            disk.complete(write.id);
            pair.pump().unwrap();
        }
    };
    (0..4).for_each(|_| write(&mut pair));
    assert_eq!(pair.room(RegionKind::Extent, 50_000, Space::Ordinary), Err(LogRefusal::Preparing));
    pair.log.release_below(pair.acked, &mut pair.device);
    assert_eq!(pair.room(RegionKind::Extent, 50_000, Space::Ordinary), Ok(()), "into the reserve");
    write(&mut pair);
    let extent = pair.log.segments()[1];
    assert_eq!((extent.current, extent.in_use, extent.released), (1, 1, 1), "{extent:?}");
    disk.set_capacity(Some(disk.used()));
    pair.settle().unwrap();
    let extent = pair.log.segments()[1];
    assert_eq!((extent.spare, extent.released, generations(&pair)), (1, 0, vec![1, 3]), "{extent:?}");
    assert_eq!((pair.log.counts().recycled, pair.log.shortage()), (1, None));
}

/// A frame that spares of less than its length were counted for would find no place.
pub(crate) fn long_frame_finds_a_place() -> bool {
    let disk = SimDisk::new(8);
    let mut pair = Pair::open(&disk, small());
    // Two spares: one of 256, one of 512 KiB.
    (0..2).for_each(|_| put(&mut pair));
    if pair.room(RegionKind::Extent, longest(), Space::Ordinary).is_err() {
        pair.settle().unwrap();
    }
    pair.put(RegionKind::Extent, longest());
    pair.settle().unwrap();
    let (ended, found) = read(&disk, request(1)).unwrap();
    ended.cut == pair.acked && found == pair.written
}

#[test]
fn frame_longer_than_both_spares_finds_a_place() {
    assert!(long_frame_finds_a_place());
}

/// A long frame for which the disk has no room took the room from short ones that a checkpoint makes for
/// them: the pair was read-only until there was room for a whole segment.
#[test]
fn short_frames_go_on_by_turns_on_a_disk_that_has_no_room_for_a_long_one() {
    let disk = SimDisk::new(9);
    let mut pair = Pair::open(&disk, small());
    disk.set_capacity(Some(disk.used()));
    assert_eq!(pair.room(RegionKind::Extent, longest(), Space::Ordinary), Err(LogRefusal::Preparing));
    pair.settle().unwrap();
    let no_space = Err(LogRefusal::NoSpace { errno: Errno::ENOSPC });
    for round in 0..4 {
        let refused = loop {
            match pair.room(RegionKind::Extent, 50_000, Space::Ordinary) {
                Ok(()) => put(&mut pair),
                refused => break refused,
            }
        };
        assert_eq!(refused, no_space, "{round}");
        assert!(pair.log.can_be_reclaimed() && pair.log.can_be_reclaimed_for(0, 50_000), "{round}");
        assert!(!pair.log.can_be_reclaimed_for(0, longest()), "{round}");
        pair.base = pair.acked;
        pair.log.release_below(pair.base, &mut pair.device);
        pair.settle().unwrap();
        assert_eq!(pair.room(RegionKind::Extent, 50_000, Space::Ordinary), Ok(()), "{round}");
    }
    assert_eq!(current_bytes(&pair), small().first_segment_bytes);
}

/// The second log asked only once the first one had its segment; where it was short, never.
#[test]
fn operation_that_neither_log_has_room_for_has_both_ask_at_once() {
    let disk = SimDisk::new(10);
    let mut pair = Pair::open(&disk, small());
    let most = small().operation_bytes_max();
    assert_eq!(pair.log.room_for(most, most, Space::Ordinary), Err(LogRefusal::Preparing));
    pair.tick(Duration::ZERO).unwrap();
    let asked: Vec<u64> = disk.pending().iter().map(|pending| pending.bytes).collect();
    assert_eq!(asked, [small().segment_bytes; 2]);
    pair.settle().unwrap();
    assert_eq!(pair.log.room_for(most, most, Space::Ordinary), Ok(()));
}
