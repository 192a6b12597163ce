//! What is written is read back: batches, rotation, large records, seals, release, recycling, epochs.
#![allow(missing_docs, clippy::cast_possible_truncation, clippy::unwrap_used)] // tests

use std::sync::Arc;
use std::time::Duration;

use crate::harness::{PAIR, Pair, assert_holds, fill_segments, log_id, random_kind, read, request, small};
use cell_terms::{Csn, Epoch, RegionKind};
use cell_wal::folder::{list_segments, remove_past_cut};
use cell_wal::frame::FrameKind;
use cell_wal::inspect::{verify_pair, walk_log};
use cell_wal::reader::{LogReader, LogStartAt};
use cell_wal::sim::SimDisk;
use cell_wal::storage::Access;
use cell_wal::{
    Errno, LogRefusal, LogTimes, Predecessor, ReadOptions, ReadRequest, Space, Storage, WalError,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

#[test]
fn read_after_settling_returns_every_record_in_order() {
    let disk = SimDisk::new(1);
    let mut pair = Pair::open(&disk, small());
    for batch in 0..20u64 {
        for record in 0..batch % 5 + 1 {
            let kind = if (batch + record) % 3 == 0 { RegionKind::Node } else { RegionKind::Extent };
            pair.put(kind, (batch * 37 + record * 11) as usize);
        }
        pair.settle().unwrap();
    }
    assert_eq!(pair.acked, pair.log.csn_appended());
    let (ended, found) = read(&disk, request(1)).unwrap();
    assert_eq!((ended.cut, ended.tear), (pair.acked, None));
    assert_eq!(ended.batches, 20);
    assert_holds(&found, &pair.written, ended.cut);
}

#[test]
fn append_while_a_batch_is_in_flight_fills_the_next_one() {
    let disk = SimDisk::new(2);
    let mut pair = Pair::open(&disk, small());
    let first = pair.put(RegionKind::Node, 10);
    assert!(pair.submit().unwrap());
    let second = pair.put(RegionKind::Extent, 10);
    assert!(!pair.submit().unwrap(), "one batch in flight");
    assert!(disk.step());
    pair.pump().unwrap();
    assert_eq!(pair.acked, first);
    pair.settle().unwrap();
    assert_eq!(pair.acked, second);
}

#[test]
fn durable_watermark_rises_only_when_both_logs_have_completed() {
    let disk = SimDisk::new(3);
    let mut pair = Pair::open(&disk, small());
    pair.put(RegionKind::Node, 10);
    pair.put(RegionKind::Extent, 10);
    pair.submit().unwrap();
    assert_eq!(disk.pending().iter().filter(|pending| pending.bytes == 4096).count(), 2);
    let before = pair.acked;
    let writes: Vec<_> = disk.pending().into_iter().filter(|pending| pending.bytes == 4096).collect();
    disk.complete(writes[1].id);
    pair.pump().unwrap();
    assert_eq!(pair.acked, before);
    disk.complete(writes[0].id);
    pair.pump().unwrap();
    assert_eq!(pair.acked, Csn(2));
}

#[test]
fn rotation_and_records_of_half_a_segment_read_back_with_every_chunk_size() {
    let disk = SimDisk::new(4);
    let mut pair = Pair::open(&disk, small());
    let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
    let largest = small().operation_bytes_max() - 8;
    for round in 0..200 {
        let kind = random_kind(&mut random);
        let length = if round % 25 == 0 { largest } else { random.random_range(..40_000_usize) };
        // The batch is full, or the segment that a long frame needs is prepared, or one after the other.
        for _ in 0..2 {
            let Err(refusal) = pair.room(kind, length, Space::Ordinary) else { break };
            assert!(matches!(refusal, LogRefusal::BatchFull | LogRefusal::Preparing), "{refusal}");
            pair.settle().unwrap();
        }
        pair.room(kind, length, Space::Ordinary).unwrap();
        pair.put(kind, length);
    }
    pair.settle().unwrap();
    assert!(pair.log.counts().rotations >= 6, "{:?}", pair.log.counts());
    for chunk_bytes in [4096, 12288, 64 << 10, 4 << 20] {
        for ahead in [false, true] {
            let request = ReadRequest { options: ReadOptions { chunk_bytes, ahead }, ..request(1) };
            let (ended, found) = read(&disk, request).unwrap();
            assert_eq!((ended.cut, ended.tear), (pair.acked, None));
            assert_holds(&found, &pair.written, ended.cut);
        }
    }
}

#[test]
fn room_for_refuses_what_a_segment_can_never_hold() {
    let disk = SimDisk::new(5);
    let mut pair = Pair::open(&disk, small());
    let max = small().operation_bytes_max();
    assert_eq!(pair.log.room_for(0, max, Space::Ordinary), Err(LogRefusal::Preparing));
    pair.settle().unwrap();
    assert_eq!(pair.log.room_for(0, max, Space::Ordinary), Ok(()));
    assert_eq!(
        pair.log.room_for(0, max + 1, Space::Ordinary),
        Err(LogRefusal::TooLarge { bytes: max + 1, max })
    );
}

#[test]
fn room_for_before_the_log_is_open_is_refused() {
    let mut pair = Pair::create(&SimDisk::new(6), small());
    assert_eq!(pair.log.room_for(8, 8, Space::Reserve), Err(LogRefusal::Opening));
}

#[test]
fn idle_log_is_sealed_once_in_both_logs() {
    let disk = SimDisk::new(7);
    let mut pair = Pair::open(&disk, small());
    assert_eq!(pair.log.due(Duration::ZERO), None, "an opening frame is a seal");
    pair.put(RegionKind::Node, 10);
    pair.settle().unwrap();
    assert_eq!(pair.log.due(Duration::ZERO), Some(small().seal_idle));
    let times = LogTimes { seal_idle: 3 * small().seal_idle, prepare_retry: small().prepare_retry };
    pair.log.set_times(times);
    assert_eq!(pair.log.due(Duration::ZERO), Some(times.seal_idle), "of the wait that has started, too");
    pair.log.set_times(LogTimes { seal_idle: small().seal_idle, ..times });
    pair.seal();
    pair.seal();
    assert_eq!(pair.log.counts().seals, 1);
    assert_eq!(pair.log.due(pair.now), None);
    let storage: Arc<dyn Storage> = Arc::new(disk.process());
    for kind in [RegionKind::Node, RegionKind::Extent] {
        let mut kinds = Vec::new();
        walk_log(&storage, log_id(1), kind, Csn::ZERO, |frame| kinds.push(frame.header.kind)).unwrap();
        let mut expected = vec![FrameKind::Open, FrameKind::Batch { other: false }, FrameKind::Seal];
        if kind == RegionKind::Extent {
            expected.remove(1);
        }
        assert_eq!(kinds, expected);
    }
}

/// A batch behind it served as well; the log wrote a seal all the same, as soon as it was idle.
#[test]
fn seal_that_is_wanted_is_written_unless_a_batch_has_come_behind_the_record() {
    let mut pair = Pair::open(&SimDisk::new(7), small());
    let first = pair.put(RegionKind::Node, 10);
    pair.log.want_seal(first);
    assert!(pair.submit().unwrap(), "the batch itself");
    let second = pair.put(RegionKind::Extent, 10);
    pair.settle().unwrap();
    assert_eq!((pair.log.csn_durable(), pair.log.csn_sealed()), (second, first));
    assert!(!pair.log.is_busy());
    assert_eq!(pair.log.counts().seals, 0, "the second batch stands behind the first");
    assert_eq!(pair.log.due(Duration::ZERO), Some(small().seal_idle), "nobody waits for the second");
    pair.log.want_seal(second);
    assert_eq!(pair.log.due(Duration::ZERO), Some(Duration::ZERO));
    pair.settle().unwrap();
    assert_eq!((pair.log.csn_sealed(), pair.log.counts().seals), (second, 1));
    pair.log.want_seal(first);
    pair.settle().unwrap();
    assert_eq!((pair.log.counts().seals, pair.log.due(Duration::ZERO)), (1, None), "it is proved long since");
}

/// Both segments end where a seal would begin: one log moves to its next segment, and its rotate frame is the
/// seal.
#[test]
fn seal_that_fits_neither_log_moves_one_to_its_next_segment() {
    let disk = SimDisk::new(7);
    let mut pair = Pair::open(&disk, small());
    let kinds = [RegionKind::Node, RegionKind::Extent];
    let used = |pair: &Pair| pair.log.segments().map(|log| log.current_bytes);
    let full = small().first_segment_bytes - 4096;
    fill_segments(&mut pair, small().first_segment_bytes);
    let last = pair.log.csn_durable();
    assert!(pair.log.csn_sealed() < last);
    pair.log.want_seal(last);
    pair.settle().unwrap();
    assert_eq!((pair.log.csn_sealed(), pair.log.counts().rotations), (last, 1));
    assert_eq!((used(&pair), pair.log.due(Duration::ZERO)), ([0, full], None));
    for kind in kinds {
        let path = log_id(1).log(kind).segment(0).path();
        assert!(disk.flip(&path, full - 4096, 1));
        let error = read(&disk, request(1)).unwrap_err();
        assert!(matches!(error, WalError::Corrupt(_)), "{kind}: {error}");
        disk.flip(&path, full - 4096, 1);
    }
    kinds.into_iter().for_each(|kind| _ = pair.put(kind, 10));
    pair.settle().unwrap();
    assert_eq!(pair.log.counts().rotations, 2);
    let (ended, found) = read(&disk, request(1)).unwrap();
    assert_eq!(ended.cut, pair.acked);
    assert_holds(&found, &pair.written, pair.acked);
}

#[test]
fn release_recycles_files_within_the_epoch_and_reading_from_the_base_goes_on() {
    let disk = SimDisk::new(8);
    let mut pair = Pair::open(&disk, small());
    let (mut base, mut most_in_use) = (Csn::ZERO, 0);
    // Until segments of the whole length are released while the log has one spare.
    for round in 0..120 {
        for _ in 0..3 {
            pair.put(RegionKind::Extent, 20_000);
            pair.put(RegionKind::Node, 2000);
        }
        pair.settle().unwrap();
        if round % 10 == 9 {
            base = Csn(pair.acked.0 - 7);
            most_in_use = most_in_use.max(pair.log.segments()[1].in_use);
            pair.log.release_below(base, &mut pair.device);
            pair.settle().unwrap();
        }
    }
    let counts = pair.log.counts();
    assert!(counts.recycled > 0 && counts.rotations > 2, "{counts:?}");
    let files = list_segments(&disk, log_id(1).log(RegionKind::Extent)).unwrap();
    assert!(files.len() <= 5, "{files:?}");
    assert_eq!(counts.held_bytes, disk.used());
    let [node, extent] = pair.log.segments();
    assert_eq!(extent.in_use + extent.spare + extent.released, files.len() as u64);
    assert!(extent.current > 2 && extent.current_bytes > 0 && most_in_use > 1, "{extent:?}");
    assert_eq!((node.bytes + extent.bytes, extent.current_bytes_all), (disk.used(), 1 << 20));
    assert!(extent.csn_oldest > Csn(1) && extent.csn_oldest <= base.next(), "{extent:?}");
    let storage: Arc<dyn Storage> = Arc::new(disk.process());
    walk_log(&storage, log_id(1), RegionKind::Extent, base, |frame| {
        assert!(frame.header.csn_first >= extent.csn_oldest, "{:?}", frame.header);
    })
    .unwrap();
    let (ended, found) = read(&disk, ReadRequest { base, ..request(1) }).unwrap();
    assert_eq!((ended.cut, ended.tear), (pair.acked, None));
    for csn in base.0 + 1..=pair.acked.0 {
        assert_eq!(found.get(&csn), pair.written.get(&csn));
    }
    let missing = read(&disk, request(1)).unwrap_err();
    assert!(matches!(missing, WalError::Corrupt(_)), "released records are not silently skipped: {missing}");
}

/// The first frame behind the base need not follow it at once: what is between may be in the other log alone
/// (found by a simulator's seed).
#[test]
fn released_segment_that_comes_back_without_its_successor_is_passed_over() {
    let extent = log_id(1).log(RegionKind::Extent);
    let mut passed = 0;
    for rounds in 60..80 {
        let disk = SimDisk::new(rounds);
        let mut pair = Pair::open(&disk, small());
        let by_turns = |pair: &mut Pair, rounds: u64| {
            for kind in (0..rounds).flat_map(|_| [RegionKind::Node, RegionKind::Extent]) {
                pair.put(kind, 60_000);
                pair.settle().unwrap();
            }
        };
        by_turns(&mut pair, rounds);
        let base = pair.acked;
        by_turns(&mut pair, 3);
        let path = extent.segment(4).path(); // the first one of the whole length
        let mut bytes = vec![0; 1 << 20];
        let read_all = |bytes: &mut [u8]| disk.open(&path, Access::Read).unwrap().read_at(0, bytes).unwrap();
        assert_eq!(read_all(&mut bytes), bytes.len());
        pair.log.release_below(base, &mut pair.device);
        by_turns(&mut pair, 30); // in the files that were released
        let files = list_segments(&disk, extent).unwrap();
        assert!(files[0] > 5, "its successor is gone: {files:?}");
        disk.open(&path, Access::Create).unwrap().write_at(0, &bytes).unwrap();
        let request = ReadRequest { base, ..request(1) };
        let is_whole = |disk: &SimDisk| {
            let (ended, found) = read(disk, request)?;
            let whole = pair.written.range(base.0 + 1..).all(|(csn, record)| found.get(csn) == Some(record));
            assert!(whole && (ended.cut, ended.tear) == (pair.acked, None), "{rounds}: {files:?}");
            Ok::<_, WalError>(())
        };
        is_whole(&disk).unwrap();
        let at = LogStartAt::After(base);
        let storage = Arc::new(disk.clone());
        let options = ReadOptions::default();
        let mut log = LogReader::open(storage, log_id(1), RegionKind::Extent, at, options).unwrap();
        while log.advance().unwrap() {}
        passed += u32::from(log.skipped() == Some(extent.segment(5)));
        // Who walks through all of it, and knows of the image, gets the same; else it is missing.
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let walk = |base| walk_log(&storage, log_id(1), RegionKind::Extent, base, |_| ());
        assert_eq!(walk(base).unwrap().skipped, Some(extent.segment(5)));
        let missing = walk(Csn::ZERO).unwrap_err();
        let successor = extent.segment(5);
        assert!(matches!(missing, WalError::SegmentMissing { segment } if segment == successor), "{missing}");
        // What is needed is missed all the same.
        let without = |generation: &u32| {
            let disk = disk.fork(rounds);
            disk.unlink(&extent.segment(*generation).path()).unwrap();
            is_whole(&disk)
        };
        let missed: Vec<_> = files.iter().map(without).filter_map(Result::err).collect();
        let named = |error: &WalError| matches!(error, WalError::SegmentMissing { .. });
        assert!(!missed.is_empty() && missed.iter().all(named), "{rounds}: {files:?}: {missed:?}");
    }
    assert!(passed > 0, "no base lies before a gap");
}

#[test]
fn last_frame_that_reads_differently_is_not_written_again() {
    let disk = SimDisk::new(13);
    let mut pair = Pair::open(&disk, small());
    pair.put(RegionKind::Node, 100);
    pair.settle().unwrap();
    let (storage, options) = (Arc::new(disk.process()), ReadOptions::default());
    let at = LogStartAt::Oldest(Csn::ZERO);
    let mut log = LogReader::open(storage, log_id(1), RegionKind::Node, at, options).unwrap();
    let mut last = None;
    while log.advance().unwrap() {
        last = log.frame_place();
    }
    log.rewrite_last().unwrap();
    let place = last.unwrap();
    let file = disk.process().open(&place.segment.path(), Access::Write).unwrap();
    // Its header's magic, then a byte of its payload.
    for offset in [0, 200] {
        let mut byte = [0];
        file.read_at(place.offset + offset, &mut byte).unwrap();
        file.write_at(place.offset + offset, &[byte[0] ^ 1]).unwrap();
        let refused = log.rewrite_last().unwrap_err();
        assert!(matches!(&refused, WalError::Storage(error) if error.errno == Errno::EIO), "{refused}");
        file.write_at(place.offset + offset, &byte).unwrap();
        log.rewrite_last().unwrap();
    }
}

#[test]
fn release_right_after_a_rotation_keeps_a_segment_with_a_durable_frame() {
    let disk = SimDisk::new(9);
    let mut pair = Pair::open(&disk, small());
    while pair.log.counts().rotations == 0 {
        pair.put(RegionKind::Extent, 60_000);
        pair.submit().unwrap();
        while pair.log.counts().rotations == 0 && disk.step() {
            pair.pump().unwrap();
        }
    }
    // The rotate frame is durable, the first frame of the new segment is not.
    pair.log.release_below(pair.acked, &mut pair.device);
    while let Some(pending) = disk.pending().iter().find(|pending| pending.bytes != 65536).copied() {
        disk.complete(pending.id);
        pair.pump().unwrap();
    }
    disk.kill();
    let (ended, _) = read(&disk, ReadRequest { base: pair.acked, ..request(1) }).unwrap();
    assert_eq!(ended.cut, pair.acked);
}

#[test]
fn next_epoch_continues_csns_after_the_cut_and_carries_its_predecessor() {
    let disk = SimDisk::new(10);
    let mut first = Pair::open(&disk, small());
    first.put(RegionKind::Node, 100);
    first.settle().unwrap();
    let predecessor = Predecessor { epoch: Epoch(1), cut: first.acked };
    let mut second = Pair::create_after(&disk, small(), 2, predecessor);
    second.settle().unwrap();
    assert_eq!(second.put(RegionKind::Node, 9), Csn(2));
    second.settle().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(disk.process());
    let base = first.acked;
    let mut reader = cell_wal::PairReader::open(&storage, ReadRequest { base, ..request(2) }).unwrap();
    assert_eq!(reader.next_batch().unwrap().unwrap().csn_first, Csn(2));
    assert_eq!(reader.predecessor(), Some(predecessor));
}

#[test]
fn remove_past_cut_leaves_what_the_recorded_cut_needs() {
    let disk = SimDisk::new(11);
    let mut pair = Pair::open(&disk, small());
    while pair.log.counts().rotations < 2 {
        pair.put(RegionKind::Extent, 60_000);
        pair.put(RegionKind::Node, 60);
        pair.settle().unwrap();
    }
    pair.disk.kill();
    let cut = Csn(pair.acked.0 / 2 / 2 * 2);
    let used = disk.used();
    for kind in [RegionKind::Node, RegionKind::Extent] {
        assert!(remove_past_cut(&disk.process(), log_id(1).log(kind), cut).unwrap() > 0);
    }
    // A spare of each log, and what of the extents' log lies past the cut.
    assert!(disk.used() <= used - (1 << 20));
    let (ended, found) = read(&disk, ReadRequest { cut: Some(cut), ..request(1) }).unwrap();
    assert_eq!(ended.cut, cut);
    assert_holds(&found, &pair.written, cut);
}

#[test]
fn verify_pair_and_walk_log_agree_on_a_sound_log() {
    let disk = SimDisk::new(12);
    let mut pair = Pair::open(&disk, small());
    for _ in 0..10 {
        pair.put(RegionKind::Node, 100);
        pair.put(RegionKind::Extent, 100);
        pair.settle().unwrap();
    }
    let storage: Arc<dyn Storage> = Arc::new(disk.process());
    let ended = verify_pair(&storage, request(1)).unwrap();
    let mut records = 0;
    let mut frames = 0;
    for kind in [RegionKind::Node, RegionKind::Extent] {
        let walked = walk_log(&storage, log_id(1), kind, Csn::ZERO, |frame| {
            records += frame.records().map(Result::unwrap).count();
            frames += 1;
            assert_eq!(frame.header.pair, PAIR);
        });
        let walked = walked.unwrap();
        assert_eq!((walked.end.later, walked.skipped), (None, None));
    }
    assert_eq!((records, frames), (20, ended.frames));
}
