//! Crashes: power cuts with torn, reordered and lost writes, kills with writes that land late, cuts in the
//! middle of preparing a segment. What was acknowledged is always there; nothing is there that was never
//! written.
#![allow(missing_docs, clippy::cast_possible_truncation, clippy::unwrap_used)] // tests

use crate::harness;
use crate::harness::{Pair, WAYS, Written, assert_holds, disk, random_kind, read, request, small};
use cell_terms::{Csn, RegionKind};
use cell_wal::sim::{Landing, PowerCut, SimDisk};
use cell_wal::{LogDevice, LogOptions, ReadRequest, Space, WalError};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Writes at random until the power fails or `steps` are done.
fn work(pair: &mut Pair, random: &mut Xoshiro256PlusPlus, steps: u64) {
    for _ in 0..steps {
        match random.random_range(..8_u64) {
            0..=2 => {
                let kind = random_kind(random);
                let length = if random.random_range(..10_u64) == 0 {
                    random.random_range(..200_000_usize)
                } else {
                    random.random_range(..3000_usize)
                };
                if pair.room(kind, length, Space::Ordinary).is_ok() {
                    pair.put(kind, length);
                }
            }
            3 => drop(pair.submit()),
            4..=6 => {
                pair.disk.step();
                let _ = pair.pump();
            }
            _ => {
                let _ = pair.tick(small().seal_idle / 2);
                if random.random_range(..10_u64) == 0 {
                    // As if a checkpoint had been recorded; reading then begins at its base.
                    pair.base =
                        Csn(pair.acked.0 - random.random_range(..10_u64).min(pair.acked.0 - pair.base.0));
                    pair.log.release_below(pair.base, &mut pair.device);
                }
            }
        }
    }
}

fn assert_recovers(disk: &SimDisk, pair: &Pair, what: &str) {
    let request = ReadRequest { base: pair.base, ..request(1) };
    let (ended, found) = match read(disk, request) {
        Ok(read) => read,
        Err(error) => panic!("{what}: {error}"),
    };
    assert!(ended.cut >= pair.acked, "{what}: {} was acknowledged, {} survived", pair.acked, ended.cut);
    assert!(ended.cut <= pair.log.csn_appended());
    let after = |all: &Written| -> Written {
        all.range(pair.base.0 + 1..).map(|(csn, record)| (*csn, record.clone())).collect()
    };
    assert_holds(&after(&found), &after(&pair.written), ended.cut);
    let recorded = ReadRequest { cut: Some(ended.cut), ..request };
    let (again, found_again) = read(disk, recorded).unwrap();
    let expected = if ended.cut > pair.base { found } else { Written::new() };
    assert_eq!(
        (again.cut, found_again),
        (ended.cut, expected),
        "{what}: a second recovery takes the same cut"
    );
}

#[test]
fn power_cut_at_random_moments_keeps_every_acknowledged_batch() {
    let mut tears = 0;
    for (seed, log_flush) in (0..300).flat_map(|seed| WAYS.map(|way| (seed, way))) {
        let disk = disk(seed, log_flush);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut pair = Pair::open(&disk, small());
        let steps = random.random_range(..600_u64);
        work(&mut pair, &mut random, steps);
        // The same moment, cut in several ways.
        for way in 0..4 {
            let fork = disk.fork(seed * 7 + way);
            fork.power_cut(PowerCut::random(seed * 31 + way));
            assert_recovers(&fork, &pair, &format!("seed {seed}, {log_flush:?}, way {way}"));
            let request = ReadRequest { base: pair.base, ..request(1) };
            tears += usize::from(read(&fork, request).unwrap().0.tear.is_some());
        }
    }
    assert!(tears > 50, "the cuts must tear: {tears}");
}

#[test]
fn power_cut_while_segments_are_recycled_keeps_every_acknowledged_batch() {
    let mut recycled = 0;
    for (seed, log_flush) in (0..60).flat_map(|seed| WAYS.map(|way| (seed, way))) {
        let disk = disk(seed, log_flush);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut pair = Pair::open(&disk, small());
        // Fill a few segments in a hurry, then go on at random, in files that hold stale frames.
        let steps = 100 + random.random_range(..200_u64);
        while pair.log.counts().recycled < 3 {
            pair.put(cell_terms::RegionKind::Extent, 50_000 + random.random_range(..10_000_usize));
            if random.random_range(..2_u64) == 0 {
                pair.settle().unwrap(); // a batch of its own
            }
            pair.put(cell_terms::RegionKind::Node, 30_000);
            pair.settle().unwrap();
            if random.random_range(..5_u64) == 0 {
                pair.base = Csn(pair.acked.0 - random.random_range(..3_u64));
                pair.log.release_below(pair.base, &mut pair.device);
            }
        }
        work(&mut pair, &mut random, steps);
        recycled += pair.log.counts().recycled;
        for way in 0..4 {
            let fork = disk.fork(seed * 5 + way);
            fork.power_cut(PowerCut::random(seed * 37 + way));
            assert_recovers(&fork, &pair, &format!("seed {seed}, {log_flush:?}, way {way}"));
        }
    }
    assert!(recycled >= 360, "{recycled}");
}

#[test]
fn power_cut_inside_any_disk_operation_keeps_every_acknowledged_batch() {
    for (operations, log_flush) in (0..150).flat_map(|operations| WAYS.map(|way| (operations, way))) {
        let disk = disk(operations, log_flush);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(operations);
        let mut pair = Pair::open(&disk, small());
        disk.arm_power_cut(operations);
        work(&mut pair, &mut random, 2000);
        assert!(disk.is_off(), "the cut came");
        disk.power_cut(PowerCut::random(operations));
        assert_recovers(&disk, &pair, &format!("after {operations} operations, {log_flush:?}"));
    }
}

/// Writes as much as it takes until segments have the configured length, and one record that only such a
/// segment holds, while checkpoints release what is filled.
fn grow(pair: &mut Pair, options: &LogOptions, long: u64) {
    for round in 0..40 {
        let length = if round == long { options.operation_bytes_max() - 8 } else { 12_000 };
        if pair.room(RegionKind::Extent, length, Space::Ordinary).is_err() {
            let _ = pair.settle();
        }
        for (kind, length) in [(RegionKind::Extent, length), (RegionKind::Node, 100)] {
            if pair.room(kind, length, Space::Ordinary).is_ok() {
                pair.put(kind, length);
            }
        }
        let _ = pair.settle();
        if round % 12 == 11 {
            pair.base = pair.acked;
            pair.log.release_below(pair.base, &mut pair.device);
            let _ = pair.settle();
        }
    }
}

#[test]
fn power_cut_at_each_operation_of_a_log_that_grows_keeps_every_acknowledged_batch() {
    let options = LogOptions {
        segment_bytes: 256 << 10,
        first_segment_bytes: 64 << 10,
        batch_bytes: 16 << 10,
        ..small()
    };
    // When the long record comes, if it does, and what the disk has room for besides the first segments.
    let cases = [(2, None), (9, None), (u64::MAX, None), (u64::MAX, Some(160 << 10))];
    for ((long, room), log_flush) in cases.into_iter().flat_map(|case| WAYS.map(|way| (case, way))) {
        for operations in 0.. {
            let disk = disk(operations, log_flush);
            let mut pair = Pair::open(&disk, options);
            disk.set_capacity(room.map(|room: u64| disk.used() + room));
            disk.arm_power_cut(operations);
            grow(&mut pair, &options, long);
            if !disk.is_off() {
                let (counts, [_, extent]) = (pair.log.counts(), pair.log.segments());
                let has_grown = extent.current_bytes_all == options.segment_bytes && counts.removed >= 2;
                let is_done = if room.is_none() { has_grown } else { counts.recycled > 0 };
                assert!(is_done && operations > 40, "{operations}, {long}: {counts:?}, {extent:?}");
                break;
            }
            for way in 0..2 {
                let fork = disk.fork(operations * 7 + way);
                fork.power_cut(PowerCut::random(operations * 31 + way));
                assert_recovers(&fork, &pair, &format!("{operations}, {long}, {log_flush:?}, way {way}"));
            }
        }
    }
}

#[test]
fn power_cut_before_the_log_is_open_leaves_nothing_that_looks_published() {
    for (operations, log_flush) in (0..20).flat_map(|operations| WAYS.map(|way| (operations, way))) {
        let disk = disk(operations, log_flush);
        disk.arm_power_cut(operations);
        let mut pair = Pair::create(&disk, small());
        let _ = pair.settle();
        let opened = pair.log.is_open();
        disk.power_cut(PowerCut::CLEAN);
        match read(&disk, request(1)) {
            Ok((ended, _)) => assert_eq!(ended.cut, Csn::ZERO),
            Err(error) => assert!(!opened, "{operations}: {error}"),
        }
    }
}

#[test]
fn power_cut_right_after_a_rotation_relies_on_no_unsynced_name() {
    // A segment that was created, renamed and written, but whose folder was not synced, may vanish: the
    // writer must not have acknowledged anything in it.
    for (seed, log_flush) in (0..40).flat_map(|seed| WAYS.map(|way| (seed, way))) {
        let disk = disk(seed, log_flush);
        let mut pair = Pair::open(&disk, small());
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        while pair.log.counts().rotations == 0 {
            pair.put(cell_terms::RegionKind::Extent, 60_000);
            pair.settle().unwrap();
        }
        work(&mut pair, &mut random, seed);
        let names = if seed % 2 == 0 { Landing::Nothing } else { Landing::Random };
        disk.power_cut(PowerCut { writes: Landing::Random, names, sector_bytes: 512 });
        assert_recovers(&disk, &pair, &format!("seed {seed}, {log_flush:?}"));
    }
}

#[test]
fn kill_with_writes_that_land_after_the_cut_was_recorded_changes_nothing() {
    let mut landed = 0;
    for (seed, log_flush) in (0..200).flat_map(|seed| WAYS.map(|way| (seed, way))) {
        let disk = disk(seed, log_flush);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut pair = Pair::open(&disk, small());
        let steps = 50 + random.random_range(..300_u64);
        work(&mut pair, &mut random, steps);
        pair.disk.kill();
        let request = ReadRequest { base: pair.base, ..request(1) };
        let (ended, found) = read(&disk, request).unwrap();
        assert!(ended.cut >= pair.acked);
        let mut grown = false;
        while disk.land_late() {
            let recorded = ReadRequest { cut: Some(ended.cut), ..request };
            let (again, found_again) = read(&disk, recorded).unwrap();
            assert_eq!(again.cut, ended.cut);
            assert!(found_again == found || ended.cut == pair.base);
            grown |= read(&disk, request).unwrap().0.cut > ended.cut;
        }
        landed += usize::from(grown);
    }
    assert!(landed > 5, "late writes must sometimes complete a batch: {landed}");
}

#[test]
fn killed_process_can_do_nothing_more() {
    let disk = SimDisk::new(1);
    let mut pair = Pair::open(&disk, small());
    pair.put(cell_terms::RegionKind::Node, 10);
    pair.disk.kill();
    pair.submit().unwrap();
    assert!(matches!(pair.device.submit(), Err(WalError::RingUnavailable { .. })));
    assert!(!disk.step());
}

#[test]
fn recorded_cut_with_a_frame_lost_below_it_is_corruption() {
    let disk = SimDisk::new(3);
    let mut pair = Pair::open(&disk, small());
    pair.put(cell_terms::RegionKind::Node, 10);
    pair.settle().unwrap();
    let cut = pair.acked;
    pair.put(cell_terms::RegionKind::Node, 10);
    pair.settle().unwrap();
    // Unsealed and last: without a cut this is a tear, with one it is a loss.
    let path = harness::log_id(1).log(cell_terms::RegionKind::Node).segment(0).path();
    assert!(disk.flip(&path, 2 * 4096 + 5, 1));
    assert_eq!(read(&disk, request(1)).unwrap().0.cut, cut);
    for fate in [
        ReadRequest { cut: Some(Csn(2)), ..request(1) },
        ReadRequest { required: Csn(2), ..request(1) },
        ReadRequest { cut: Some(Csn(3)), ..request(1) },
    ] {
        assert!(matches!(read(&disk, fate), Err(WalError::Corrupt(_))), "{fate:?}");
    }
}
