//! Logs that are read while their owner writes them: what is there is read once and in order, what is not
//! there yet is not missed, and a recorded cut ends the reading.
#![allow(missing_docs, clippy::cast_possible_truncation, clippy::unwrap_used)] // tests

use std::sync::Arc;

use cell_terms::{Csn, RegionKind};
use cell_wal::sim::SimDisk;
use cell_wal::{Errno, PairReader, ReadOptions, Space, Storage, WalError};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::harness::{Pair, Written, log_id, random_kind, small};

fn follow(disk: &SimDisk, base: Csn, chunk_bytes: usize) -> PairReader {
    let storage: Arc<dyn Storage> = Arc::new(disk.process());
    PairReader::follow(&storage, log_id(1), base, ReadOptions { chunk_bytes, ahead: true }).unwrap()
}

/// Takes what is there; each record comes once.
fn take(reader: &mut PairReader, found: &mut Written) {
    while let Some(batch) = reader.next_batch().unwrap() {
        for (kind, record) in batch.records() {
            assert!(found.insert(record.csn.0, (kind, record.payload.to_vec())).is_none(), "{}", record.csn);
        }
    }
}

#[test]
fn follower_reads_each_batch_once_across_rotations_and_ends_at_the_cut() {
    for (seed, chunk_bytes) in [(1, 4096), (2, 64 << 10), (3, 4 << 20)] {
        let disk = SimDisk::new(seed);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut pair = Pair::open(&disk, small());
        let (mut reader, mut found) = (follow(&disk, Csn::ZERO, chunk_bytes), Written::new());
        for _ in 0..300 {
            let (kind, length) = (random_kind(&mut random), random.random_range(..30_000_usize));
            if pair.room(kind, length, Space::Ordinary).is_err() {
                pair.settle().unwrap();
                pair.room(kind, length, Space::Ordinary).unwrap();
            }
            pair.put(kind, length);
            match random.random_range(..4_u32) {
                0 => pair.settle().unwrap(),
                1 => drop(pair.submit().unwrap()),
                2 => {
                    disk.step();
                    pair.pump().unwrap();
                }
                _ => {}
            }
            take(&mut reader, &mut found);
            assert!(reader.ended().is_none() && reader.reached() <= pair.log.csn_appended());
            if reader.look_again(None).is_err() {
                pair.settle().unwrap(); // the next segment is not listed yet
                reader.look_again(None).unwrap();
            }
        }
        pair.settle().unwrap();
        assert!(pair.log.counts().rotations >= 3, "{:?}", pair.log.counts());
        assert!(found.len() > 100, "it read {} records on the way", found.len());
        reader.look_again(Some(pair.acked)).unwrap();
        take(&mut reader, &mut found);
        assert_eq!(reader.ended().map(|ended| ended.cut), Some(pair.acked));
        assert_eq!(found, pair.written);
    }
}

#[test]
fn follower_begins_above_a_base_and_takes_nothing_past_the_cut() {
    let disk = SimDisk::new(4);
    let mut pair = Pair::open(&disk, small());
    for length in [10, 20, 30] {
        pair.put(RegionKind::Node, length);
        pair.settle().unwrap();
    }
    let (mut reader, mut found) = (follow(&disk, Csn(1), 4096), Written::new());
    take(&mut reader, &mut found);
    assert_eq!((found.keys().copied().collect::<Vec<_>>(), reader.reached()), (vec![2, 3], Csn(3)));
    pair.put(RegionKind::Extent, 10);
    let cut = pair.put(RegionKind::Node, 10);
    pair.submit().unwrap();
    assert!(disk.step(), "one of the two logs has it");
    reader.look_again(None).unwrap();
    take(&mut reader, &mut found);
    pair.settle().unwrap();
    pair.put(RegionKind::Node, 40);
    pair.settle().unwrap();
    reader.look_again(Some(cut)).unwrap();
    take(&mut reader, &mut found);
    assert_eq!(reader.ended().map(|ended| ended.cut), Some(cut));
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [2, 3, 4, 5]);
    assert!(reader.next_batch().unwrap().is_none(), "and stays there");
}

/// It was taken for one that is not there yet: whoever followed waited for ever, and seemed to have caught
/// up.
fn released_segment_is_not_waited_for() {
    let disk = SimDisk::new(5);
    let mut pair = Pair::open(&disk, small());
    pair.put(RegionKind::Extent, 10);
    pair.settle().unwrap();
    let (mut reader, mut found) = (follow(&disk, Csn::ZERO, 4096), Written::new());
    take(&mut reader, &mut found);
    assert_eq!(reader.reached(), Csn(1));
    while pair.log.counts().rotations < 6 {
        if pair.room(RegionKind::Extent, 50_000, Space::Ordinary).is_ok() {
            pair.put(RegionKind::Extent, 50_000);
        }
        pair.settle().unwrap();
        pair.log.release_below(pair.acked, &mut pair.device);
    }
    pair.settle().unwrap();
    let gone = reader.look_again(None).unwrap_err();
    assert!(matches!(&gone, WalError::Storage(error) if error.errno == Errno::ENOENT), "{gone}");
}

#[test]
fn follower_whose_segment_was_given_back_gets_that_as_its_error() {
    released_segment_is_not_waited_for();
}

#[test]
#[cfg(debug_assertions)]
fn mutant_released_awaited_is_caught() {
    use cell_terms::mutant::{Mutant, plant};
    cell_terms::mutant::in_own_process(|| {
        plant(Some(Mutant::ReleasedAwaited));
        let passed = std::panic::catch_unwind(released_segment_is_not_waited_for).is_ok();
        plant(None);
        assert!(!passed);
        println!("mutant {} caught by cell-wal's followers", Mutant::ReleasedAwaited.name());
    });
}
