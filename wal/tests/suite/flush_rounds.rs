//! One flush for the logs of several pairs: what it makes durable, what it does not, and what a failed one
//! ends.
#![allow(missing_docs, clippy::cast_possible_truncation, clippy::unwrap_used)] // tests

use cell_terms::{Csn, PairId, RegionKind};
use cell_wal::sim::{Landing, PowerCut, SimDisk};
use cell_wal::{Errno, FlushWay, LogDevice, ReadRequest, Space, WalError};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::harness::{Pair, Written, disk, random_kind, read, request, small};

/// So many pairs of one process, with open logs.
fn pairs(disk: &SimDisk, count: u32) -> Vec<Pair> {
    let first = Pair::open(disk, small());
    let others: Vec<Pair> = (1..count).map(|more| first.beside(PairId(5 + more), small())).collect();
    [first].into_iter().chain(others).collect()
}

/// Completes the log writes that are pending, and no flush.
fn complete_writes(disk: &SimDisk) {
    disk.pending().iter().filter(|pending| pending.is_log_write).for_each(|write| disk.complete(write.id));
}

/// The flush that is pending.
fn flush(disk: &SimDisk) -> Option<u64> {
    let pending = disk.pending();
    let mut flushes = pending.iter().filter(|pending| pending.is_flush);
    let flush = flushes.next().map(|flush| flush.id);
    assert!(flushes.next().is_none(), "one flush at a time");
    flush
}

fn put(pair: &mut Pair) {
    pair.put(RegionKind::Node, 100);
    pair.put(RegionKind::Extent, 300);
}

/// As a worker's turn: what has come is taken, all commit, then all send.
fn turn(pairs: &mut [Pair]) {
    pairs.iter_mut().for_each(|pair| pair.pump().unwrap());
    for pair in &mut *pairs {
        pair.log.submit(&mut pair.device).unwrap();
    }
    pairs.iter_mut().for_each(|pair| pair.device.submit().unwrap());
}

/// Whether all that was acknowledged is there, as it was written, and nothing that was not.
fn holds(disk: &SimDisk, pair: &Pair) -> bool {
    read(disk, ReadRequest { log: pair.log.id(), base: pair.base, ..request(1) }).is_ok_and(
        |(ended, found)| {
            let after = |all: &Written| -> Written {
                let above = all.range(pair.base.0 + 1..).take_while(|(csn, _)| **csn <= ended.cut.0);
                above.map(|(csn, record)| (*csn, record.clone())).collect()
            };
            ended.cut >= pair.acked && after(&found) == after(&pair.written)
        },
    )
}

/// A pair's writes complete while the flush of another pair's is under way; that ends, and the power goes.
/// Whether all that was acknowledged is there.
pub(crate) fn late_completion() -> bool {
    let disk = disk(1, FlushWay::PerDevice);
    let mut pairs = pairs(&disk, 2);
    put(&mut pairs[0]);
    turn(&mut pairs);
    complete_writes(&disk);
    turn(&mut pairs);
    let flush = flush(&disk).expect("the first pair's writes have completed");
    put(&mut pairs[1]);
    turn(&mut pairs);
    complete_writes(&disk);
    turn(&mut pairs);
    disk.complete(flush);
    turn(&mut pairs);
    assert_eq!(pairs[0].acked, Csn(2));
    disk.power_cut(PowerCut::CLEAN);
    pairs.iter().all(|pair| holds(&disk, pair))
}

#[test]
fn flush_that_began_before_a_completion_makes_nothing_durable() {
    let disk = disk(1, FlushWay::PerDevice);
    let mut pairs = pairs(&disk, 2);
    put(&mut pairs[0]);
    turn(&mut pairs);
    complete_writes(&disk);
    assert_eq!(flush(&disk), None, "nobody has seen that they completed");
    turn(&mut pairs);
    let first = flush(&disk).unwrap();
    put(&mut pairs[1]);
    turn(&mut pairs);
    complete_writes(&disk);
    turn(&mut pairs);
    disk.complete(first);
    turn(&mut pairs);
    assert_eq!((pairs[0].acked, pairs[1].acked), (Csn(2), Csn::ZERO));
    let second = flush(&disk).expect("what came meanwhile is flushed next");
    disk.complete(second);
    turn(&mut pairs);
    assert_eq!(pairs[1].acked, Csn(2));
    assert!(late_completion());
}

#[test]
fn writes_of_all_pairs_share_one_flush_and_stay_in_step() {
    let disk = disk(2, FlushWay::PerDevice);
    let mut pairs = pairs(&disk, 4);
    // Out of step: two pairs write while the flush of the others is under way.
    pairs[..2].iter_mut().for_each(put);
    turn(&mut pairs);
    complete_writes(&disk);
    turn(&mut pairs);
    pairs[2..].iter_mut().for_each(put);
    turn(&mut pairs);
    disk.complete(flush(&disk).unwrap());
    for round in 1..20_u64 {
        pairs.iter_mut().for_each(put);
        turn(&mut pairs);
        let writes: Vec<_> = disk.pending().into_iter().filter(|pending| pending.is_log_write).collect();
        for write in writes {
            assert_eq!(flush(&disk), None, "a write is on its way");
            disk.complete(write.id);
            turn(&mut pairs);
        }
        disk.complete(flush(&disk).unwrap());
        turn(&mut pairs);
        assert!(pairs.iter().all(|pair| pair.acked >= Csn(2 * round)), "{round}");
    }
}

/// EIO of a flush ends each log that waits for it, and those whose writes come later; nothing is tried again.
#[test]
fn failed_flush_poisons_every_log_that_waits_and_is_never_tried_again() {
    let disk = disk(4, FlushWay::PerDevice);
    let mut pairs = pairs(&disk, 3);
    pairs[..2].iter_mut().for_each(put);
    turn(&mut pairs);
    complete_writes(&disk);
    turn(&mut pairs);
    put(&mut pairs[2]);
    turn(&mut pairs);
    complete_writes(&disk);
    disk.arm_sync_error(0, Errno::EIO);
    disk.complete(flush(&disk).unwrap());
    for pair in &mut pairs {
        let error = pair.pump().unwrap_err();
        assert!(matches!(error, WalError::Poisoned { errno: Errno::EIO, .. }), "{error}");
        assert!(pair.submit().is_err());
        assert_eq!((pair.acked, pair.log.csn_durable()), (Csn::ZERO, Csn::ZERO));
    }
    assert_eq!(flush(&disk), None);
    disk.power_cut(PowerCut::CLEAN);
    assert!(pairs.iter().all(|pair| holds(&disk, pair)));
}

/// One that has nothing in flight notices with its next write.
#[test]
fn log_that_was_idle_when_a_flush_failed_acknowledges_nothing_more() {
    let disk = disk(5, FlushWay::PerDevice);
    let mut pairs = pairs(&disk, 2);
    put(&mut pairs[0]);
    turn(&mut pairs);
    complete_writes(&disk);
    turn(&mut pairs);
    disk.arm_sync_error(0, Errno::EIO);
    disk.complete(flush(&disk).unwrap());
    assert!(pairs[0].pump().is_err());
    let idle = &mut pairs[1];
    put(idle);
    idle.submit().unwrap();
    complete_writes(&disk);
    assert!(idle.pump().is_err());
    assert_eq!(idle.acked, Csn::ZERO);
}

/// A takeover that breaks off takes its device with it, writes on their way too: others' flushes go on.
#[test]
fn device_that_is_dropped_with_writes_on_their_way_holds_up_nobody() {
    let disk = disk(6, FlushWay::PerDevice);
    let mut pairs = pairs(&disk, 2);
    pairs.iter_mut().for_each(put);
    turn(&mut pairs);
    drop(pairs.pop());
    for _ in 0..4 {
        disk.settle();
        turn(&mut pairs);
    }
    assert_eq!(pairs[0].acked, Csn(2));
}

#[test]
fn power_cut_of_several_pairs_at_random_moments_keeps_every_acknowledged_batch() {
    let mut held_back = 0;
    for seed in 0..150 {
        let disk = disk(seed, FlushWay::PerDevice);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut pairs = pairs(&disk, 1 + (seed % 4) as u32);
        for _ in 0..random.random_range(..400_u64) {
            let pair = random.random_range(..pairs.len());
            let pair = &mut pairs[pair];
            match random.random_range(..8_u64) {
                0..=2 => {
                    let length_max = if random.random_range(..10_u64) == 0 { 200_000_usize } else { 3_000 };
                    let length = random.random_range(..length_max);
                    let kind = random_kind(&mut random);
                    if pair.room(kind, length, Space::Ordinary).is_ok() {
                        pair.put(kind, length);
                    }
                }
                3 => {
                    pair.submit().unwrap();
                }
                4..=6 => {
                    pair.disk.step();
                    pair.pump().unwrap();
                }
                _ => {
                    pair.tick(small().seal_idle / 2).unwrap();
                    if random.random_range(..10_u64) == 0 {
                        pair.base = pair.acked;
                        pair.log.release_below(pair.base, &mut pair.device);
                    }
                }
            }
        }
        held_back += usize::from(flush(&disk).is_some());
        for way in 0..3 {
            let fork = disk.fork(seed * 7 + way);
            let cut = match way {
                0 => PowerCut { writes: Landing::Nothing, ..PowerCut::random(seed) },
                _ => PowerCut::random(seed * 31 + way),
            };
            fork.power_cut(cut);
            for (number, pair) in pairs.iter().enumerate() {
                assert!(holds(&fork, pair), "seed {seed}, way {way}, pair {number}");
            }
        }
    }
    assert!(held_back > 10, "cuts must meet flushes: {held_back}");
}
