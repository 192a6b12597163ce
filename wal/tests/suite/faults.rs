//! A disk that fails or is full: nothing is acknowledged after a failure, nothing is retried, a full disk
//! refuses writes clearly and recovers.
#![allow(missing_docs, clippy::cast_possible_truncation, clippy::unwrap_used)] // tests

use std::time::Duration;

use crate::harness::{Pair, WAYS, Written, assert_holds, disk, fill_segments, log_id, read, request, small};
use cell_terms::{Csn, Epoch, RegionKind};
use cell_wal::folder::remove_past_cut;
use cell_wal::sim::{PowerCut, SimDisk};
use cell_wal::{Errno, FlushWay, LogRefusal, Predecessor, ReadRequest, Space, WalError};

fn assert_poisoned(pair: &mut Pair, errno: Errno, log_flush: FlushWay) {
    let poisoned =
        |error: &WalError| matches!(error, WalError::Poisoned { errno: found, .. } if *found == errno);
    assert!(pair.log.poison().is_some_and(poisoned));
    assert!(poisoned(&pair.submit().unwrap_err()));
    assert!(poisoned(&pair.tick(Duration::from_secs(9)).unwrap_err()));
    assert_eq!(pair.room(RegionKind::Node, 1, Space::Reserve), Err(LogRefusal::Poisoned));
    let acked = pair.acked;
    while pair.disk.step() {
        // A plain write that completes is not reported before its flush is in.
        assert!(pair.pump().is_err() || log_flush == FlushWay::PerDevice);
    }
    assert_eq!((pair.acked, pair.log.csn_durable()), (acked, acked), "nothing is acknowledged any more");
}

#[test]
fn failed_write_or_sync_poisons_the_log_for_good() {
    for (sync, log_flush) in [false, true].into_iter().flat_map(|sync| WAYS.map(|way| (sync, way))) {
        // One flush makes both writes durable, so there is one that can fail.
        let last = if sync && log_flush == FlushWay::PerDevice { 1 } else { 2 };
        for which in 0..last {
            let disk = disk(which, log_flush);
            let mut pair = Pair::open(&disk, small());
            pair.put(RegionKind::Node, 10);
            pair.settle().unwrap();
            pair.put(RegionKind::Node, 10);
            pair.put(RegionKind::Extent, 10);
            if sync {
                disk.arm_sync_error(which, Errno::EIO);
            } else {
                disk.arm_write_error(which, Errno::EIO);
            }
            let error = pair.settle().unwrap_err();
            assert!(matches!(error, WalError::Poisoned { errno: Errno::EIO, .. }), "{error}");
            assert_eq!(pair.acked, Csn(1));
            assert_poisoned(&mut pair, Errno::EIO, log_flush);
            disk.power_cut(PowerCut::random(which));
            let (ended, found) = read(&disk, request(1)).unwrap();
            assert!(ended.cut >= Csn(1));
            assert_holds(&found, &pair.written, ended.cut);
        }
    }
}

#[test]
fn failed_sync_of_a_segment_being_prepared_poisons_the_log() {
    let disk = SimDisk::new(3);
    let mut pair = Pair::create(&disk, small());
    disk.arm_sync_error(4, Errno::EIO);
    let error = pair.settle().unwrap_err();
    assert!(matches!(error, WalError::Poisoned { errno: Errno::EIO, .. }), "{error}");
}

/// What two logs hold that have just been opened: a short segment and a short spare each.
fn held() -> u64 {
    2 * (2 * small().first_segment_bytes)
}

/// Writes extents until the log refuses, and says why.
fn fill(pair: &mut Pair, space: Space) -> LogRefusal {
    loop {
        pair.settle().unwrap();
        match pair.room(RegionKind::Extent, 50_000, space) {
            Ok(()) => drop(pair.put(RegionKind::Extent, 50_000)),
            Err(refusal) => return refusal,
        }
    }
}

#[test]
fn full_disk_refuses_writes_keeps_a_reserve_for_deletes_and_recovers_by_itself() {
    let disk = SimDisk::new(4);
    let mut pair = Pair::open(&disk, small());
    // Room for what there is, and a little that is of no use.
    disk.set_capacity(Some(held() + small().first_segment_bytes / 2));
    let refusal = fill(&mut pair, Space::Ordinary);
    assert_eq!(refusal, LogRefusal::NoSpace { errno: Errno::ENOSPC });
    assert_eq!(pair.log.shortage(), Some(Errno::ENOSPC));
    assert_eq!(disk.used(), held(), "what could not be prepared leaves nothing behind");
    // Deletes go on, through the whole reserve.
    let (before, rotations) = (pair.acked, pair.log.counts().rotations);
    while pair.room(RegionKind::Extent, 4000, Space::Reserve).is_ok() {
        pair.put(RegionKind::Extent, 4000);
        pair.settle().unwrap();
    }
    assert!(pair.acked.0 - before.0 >= 30 && pair.log.counts().rotations == rotations + 1);
    // Room again: it is noticed after a while.
    disk.set_capacity(None);
    assert!(pair.log.due(pair.now).is_some_and(|due| due <= small().prepare_retry));
    pair.tick(Duration::ZERO).unwrap();
    pair.tick(small().prepare_retry).unwrap();
    pair.settle().unwrap();
    assert_eq!(pair.log.shortage(), None);
    assert_eq!(pair.room(RegionKind::Extent, 50_000, Space::Ordinary), Ok(()));
    let (ended, found) = read(&disk, request(1)).unwrap();
    assert_eq!(ended.cut, pair.acked);
    assert_holds(&found, &pair.written, ended.cut);
}

/// Neither log has room for a seal, and the reserve is all that there is: it is for who waits for the seal.
/// And once that is full, too, who waits goes on waiting, until there is room.
#[test]
fn seal_on_a_full_disk_takes_the_reserve_for_who_waits_for_it_and_waits_where_there_is_none() {
    let disk = SimDisk::new(4);
    let mut pair = Pair::open(&disk, small());
    let first = small().first_segment_bytes;
    // Both logs get a second spare, of twice the length.
    disk.set_capacity(Some(held() + 2 * (2 * first)));
    fill_segments(&mut pair, first);
    let kinds = [RegionKind::Node, RegionKind::Extent];
    let put_both = |pair: &mut Pair| {
        kinds.into_iter().for_each(|kind| _ = pair.put(kind, 10));
        pair.settle().unwrap();
    };
    put_both(&mut pair);
    fill_segments(&mut pair, first);
    assert_eq!(
        pair.room(RegionKind::Node, 10, Space::Ordinary),
        Err(LogRefusal::NoSpace { errno: Errno::ENOSPC })
    );
    let (last, rotations) = (pair.log.csn_durable(), pair.log.counts().rotations);
    pair.seal();
    assert!(pair.log.csn_sealed() < last);
    assert_eq!(pair.log.counts().rotations, rotations, "nobody waits");
    assert_ne!(pair.log.due(pair.now), Some(Duration::ZERO), "nor is it tried all the time");
    pair.log.want_seal(last);
    assert_eq!(pair.log.due(pair.now), Some(Duration::ZERO));
    pair.settle().unwrap();
    assert_eq!((pair.log.csn_sealed(), pair.log.counts().rotations), (last, rotations + 1));
    // The other log moves on, too, and both are filled to the end.
    pair.put(RegionKind::Extent, 10);
    pair.settle().unwrap();
    pair.put(RegionKind::Node, 10);
    pair.settle().unwrap();
    fill_segments(&mut pair, 2 * first);
    let last = pair.log.csn_durable();
    pair.log.want_seal(last);
    pair.settle().unwrap();
    assert!(pair.log.csn_sealed() < last);
    assert_ne!(pair.log.due(pair.now), Some(Duration::ZERO));
    disk.set_capacity(None);
    pair.tick(Duration::ZERO).unwrap();
    pair.tick(small().prepare_retry).unwrap();
    pair.settle().unwrap();
    assert_eq!(pair.log.csn_sealed(), last);
    let (ended, found) = read(&disk, request(1)).unwrap();
    assert_eq!(ended.cut, pair.acked);
    assert_holds(&found, &pair.written, ended.cut);
}

#[test]
fn full_disk_is_relieved_by_a_checkpoint_that_releases_segments() {
    let disk = SimDisk::new(5);
    let mut pair = Pair::open(&disk, small());
    disk.set_capacity(Some(7 << 20));
    assert_eq!(fill(&mut pair, Space::Ordinary), LogRefusal::NoSpace { errno: Errno::ENOSPC });
    pair.log.release_below(pair.acked, &mut pair.device);
    pair.settle().unwrap();
    assert_eq!(pair.room(RegionKind::Extent, 50_000, Space::Ordinary), Ok(()));
    assert!(pair.log.counts().recycled > 0);
}

/// One segment of each log and its reserve fit, and no more: each time a checkpoint covers the current
/// segment, ordinary writes go on in the reserve, and the current one's file becomes the next reserve.
#[test]
fn full_disk_with_one_segment_and_its_reserve_goes_on_with_checkpoints() {
    let disk = SimDisk::new(5);
    let mut pair = Pair::open(&disk, small());
    disk.set_capacity(Some(held() + small().first_segment_bytes / 2));
    for round in 0..12 {
        assert_eq!(fill(&mut pair, Space::Ordinary), LogRefusal::NoSpace { errno: Errno::ENOSPC }, "{round}");
        assert!(pair.log.can_be_reclaimed(), "{round}");
        pair.base = pair.acked;
        pair.log.release_below(pair.base, &mut pair.device);
        pair.settle().unwrap();
        assert_eq!(pair.room(RegionKind::Extent, 50_000, Space::Ordinary), Ok(()), "{round}");
        assert_eq!(pair.room(RegionKind::Extent, 50_000, Space::Reserve), Ok(()), "{round}");
    }
    assert!(pair.log.counts().recycled > 8);
    let last = ReadRequest { base: pair.base, ..request(1) };
    fill(&mut pair, Space::Ordinary);
    let (ended, found) = read(&disk, last).unwrap();
    assert_eq!(ended.cut, pair.acked);
    let above: Written = pair.written.range(pair.base.0 + 1..).map(|(csn, it)| (*csn, it.clone())).collect();
    assert!(above.iter().all(|(csn, record)| found.get(csn) == Some(record)));
}

#[test]
fn full_disk_leaves_a_next_epoch_room_in_place_of_the_old_ones_spares() {
    let disk = SimDisk::new(6);
    let mut pair = Pair::open(&disk, small());
    disk.set_capacity(Some(held() + small().first_segment_bytes / 2));
    fill(&mut pair, Space::Ordinary);
    pair.disk.kill();
    let (ended, _) = read(&disk, request(1)).unwrap();
    let predecessor = Predecessor { epoch: Epoch(1), cut: ended.cut };
    let mut blocked = Pair::create_after(&disk, small(), 2, predecessor);
    blocked.settle().unwrap();
    assert!(!blocked.log.is_open());
    assert_eq!(
        blocked.room(RegionKind::Node, 1, Space::Reserve),
        Err(LogRefusal::NoSpace { errno: Errno::ENOSPC })
    );
    for kind in [RegionKind::Node, RegionKind::Extent] {
        assert_eq!(remove_past_cut(&disk.process(), log_id(1).log(kind), ended.cut).unwrap(), 1);
    }
    blocked.tick(Duration::ZERO).unwrap();
    blocked.tick(small().prepare_retry).unwrap();
    blocked.settle().unwrap();
    assert!(blocked.log.is_open());
}

#[test]
fn busy_log_whose_next_segment_is_not_ready_waits_without_using_the_reserve() {
    let disk = SimDisk::new(7);
    let mut pair = Pair::open(&disk, small());
    // Complete log writes only: the preparer is slow.
    let refusal = loop {
        if let Err(refusal) = pair.room(RegionKind::Extent, 60_000, Space::Ordinary) {
            break refusal;
        }
        pair.put(RegionKind::Extent, 60_000);
        pair.submit().unwrap();
        while let Some(write) = disk.pending().into_iter().find(|pending| pending.is_log_write) {
            disk.complete(write.id);
            pair.pump().unwrap();
        }
    };
    assert_eq!(refusal, LogRefusal::Preparing);
    assert_eq!(pair.room(RegionKind::Extent, 60_000, Space::Reserve), Ok(()));
    pair.settle().unwrap();
    assert_eq!(pair.room(RegionKind::Extent, 60_000, Space::Ordinary), Ok(()));
}

#[test]
fn events_of_another_owner_are_ignored() {
    let disk = SimDisk::new(8);
    let mut pair = Pair::open(&disk, small());
    pair.put(RegionKind::Node, 10);
    pair.submit().unwrap();
    let stale = cell_wal::LogEvent::Written {
        log: log_id(7),
        kind: RegionKind::Node,
        segment: log_id(7).log(RegionKind::Node).segment(0),
        offset: 0,
        buffer: None,
        result: Err(Errno::EIO),
    };
    assert_eq!(pair.log.on_event(stale, &mut pair.device), Ok(None));
    pair.settle().unwrap();
    assert_eq!(pair.acked, Csn(1));
}
