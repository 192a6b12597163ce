//! A log is never without a durable frame, whatever a checkpoint covers: to a reader it would be a log that
//! was lost.
#![allow(clippy::unwrap_used)] // tests

use cell_terms::RegionKind;
use cell_wal::folder::list_segments;
use cell_wal::sim::SimDisk;

use crate::harness::{Pair, log_id, small};

/// A checkpoint covers all of a log that has just moved to its next segment, where nothing is durable yet;
/// then its process dies. Whether the log has a frame.
fn released_after_a_rotation_has_a_frame() -> bool {
    let disk = SimDisk::new(9);
    let mut pair = Pair::open(&disk, small());
    while pair.log.counts().rotations == 0 {
        pair.put(RegionKind::Extent, 60_000);
        pair.submit().unwrap();
        while pair.log.counts().rotations == 0 && disk.step() {
            pair.pump().unwrap();
        }
    }
    let [batch] = disk.pending()[..] else {
        panic!("the first batch of the new segment is on its way, alone")
    };
    pair.log.release_below(pair.acked, &mut pair.device);
    while let Some(pending) = disk.pending().iter().find(|pending| pending.id != batch.id).copied() {
        disk.complete(pending.id);
        pair.pump().unwrap();
    }
    disk.kill();
    let log = log_id(1).log(RegionKind::Extent);
    let segments = list_segments(&disk.process(), log).unwrap();
    assert!(!segments.is_empty());
    let has_frame = |generation: &u32| {
        let content = disk.content(&log.segment(*generation).path()).unwrap();
        content.iter().any(|byte| *byte != 0)
    };
    segments.iter().any(has_frame)
}

#[test]
fn log_that_is_covered_wholly_keeps_its_last_durable_frame() {
    assert!(released_after_a_rotation_has_a_frame());
}

#[test]
#[cfg(debug_assertions)]
fn mutant_last_segment_released_is_caught() {
    use cell_terms::mutant::{Mutant, plant};
    cell_terms::mutant::in_own_process(|| {
        plant(Some(Mutant::LastSegmentReleased));
        let passed = released_after_a_rotation_has_a_frame();
        plant(None);
        assert!(!passed);
        println!("mutant {} caught by cell-wal's last segment", Mutant::LastSegmentReleased.name());
    });
}
