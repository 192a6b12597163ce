//! Copies for planned moves: made while the owner writes, counted by the handing alone, and then the pair.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use std::sync::Arc;

use cell_cluster::{ClaimReason, CopyProgress, MemberRow, Moves, PairRow, Sim};
use cell_random::Random;
use cell_recovery::{
    CopyFault, CopyTurn, PairCopy, Progress, Recovered, RecoveryError, Restore, Takeover, Turn,
};
use cell_terms::{Csn, Durability, Epoch, NodeId};
use cell_test_kit::Process;
use cell_wal::sim::SimDisk;

use crate::owner::{GEOMETRY, MS, Owner, PAIR, start};

const TARGET: NodeId = NodeId(1);

struct World {
    disk: SimDisk,
    sim: Sim,
    life: Process,
    owner: Owner,
    target: Process,
}

impl World {
    /// An owner, and a process that is to have its pair.
    fn new(seed: u64) -> World {
        let (disk, sim) = (SimDisk::new(seed), Sim::new(7));
        let life = start(&disk, &sim, 1);
        let session = life.environment.sessions.open(life.lease).unwrap();
        let owner = Owner::publish(&life, life.restore(life.create(GEOMETRY)).unwrap(), session).unwrap();
        let target = start(&disk, &sim, 1);
        World { disk, sim, life, owner, target }
    }

    fn row(&self) -> PairRow {
        self.life.environment.table.pair(PAIR).unwrap()
    }

    fn copy(&self) -> PairCopy {
        self.copy_with(&Arc::new(Progress::new(0)))
    }

    /// A copy that says how far it is.
    fn copy_with(&self, progress: &Arc<Progress>) -> PairCopy {
        let Process { environment, lease, .. } = &self.target;
        PairCopy::begin(environment, &self.row(), *lease, TARGET, progress).unwrap()
    }

    fn write(&mut self, keys: std::ops::Range<u32>, value_bytes: usize) {
        for key in keys {
            let name = format!("key {:04}", key % 300);
            while !self.owner.put(name.as_bytes(), &vec![key as u8; value_bytes]) {
                self.owner.settle();
            }
        }
    }

    /// The source's handing, at its last CSN.
    fn hand(&mut self) -> PairRow {
        self.owner.settle();
        let moves = Moves::new(Arc::new(self.sim.link()));
        let target = MemberRow {
            incarnation: self.target.lease,
            node: TARGET,
            fabric: String::new(),
            http: String::new(),
            pid: 0,
            memory_limit_bytes: 0,
        };
        let name = moves.begin(PAIR, &target, "test").unwrap().name();
        moves.accept(name).unwrap();
        moves.progress(name, &CopyProgress { is_ready: true, ..CopyProgress::default() }).unwrap();
        let (ownership, cut) = (self.owner.ownership, self.owner.durable());
        self.life.environment.table.hand(ownership, cut, name).unwrap()
    }

    /// What is left after the handing, up to the publication.
    fn finish(&self, restore: Restore) -> Recovered {
        let publish = self.target.publish_request(Durability::Sync);
        let progress = Arc::new(Progress::new(0));
        let mut takeover = Takeover::handed(&self.target.environment, restore, publish, &progress);
        let mut device = self.target.disk.device_alone();
        for _ in 0..100_000 {
            match takeover.step(&mut device).unwrap() {
                Turn::More => {}
                Turn::Wait(for_ns) => assert!(self.target.pause(for_ns.min(MS))),
                Turn::Done => return takeover.finish(),
            }
        }
        panic!("it has no end");
    }
}

/// Until the pair may be handed over.
fn catch_up(copy: &mut PairCopy) {
    for _ in 0..100_000 {
        if copy.step().unwrap() == (CopyTurn::CaughtUp { ready: true }) {
            return;
        }
    }
    panic!("it does not catch up");
}

fn copy_is_behind_while_a_round_brings_many_megabytes() {
    let mut world = World::new(11);
    let mut copy = world.copy();
    catch_up(&mut copy);
    world.write(0..300, 300);
    world.owner.settle();
    catch_up(&mut copy);
    assert!(!copy.is_behind());
    world.write(300..6_000, 2_000);
    world.owner.settle();
    let mut was_behind = false;
    while copy.reached() < world.owner.durable() {
        let turn = copy.step().unwrap();
        was_behind |= copy.is_behind();
        assert!(!copy.is_behind() || turn != (CopyTurn::CaughtUp { ready: true }));
    }
    assert!(was_behind);
    catch_up(&mut copy);
    catch_up(&mut copy);
    assert!(!copy.is_behind(), "nothing has come since");
}

#[test]
fn copy_that_was_handed_the_pair_has_all_of_it() {
    for checkpoint in [false, true] {
        let mut world = World::new(1);
        world.write(0..500, 300);
        world.owner.settle();
        if checkpoint {
            world.owner.begin_checkpoint();
            world.owner.end_checkpoint();
            world.write(500..700, 300);
        }
        let mut copy = world.copy();
        catch_up(&mut copy);
        let reached = copy.reached();
        world.write(700..900, 200);
        world.owner.settle();
        catch_up(&mut copy);
        assert!(copy.reached() > reached, "it follows");
        world.write(900..910, 200);
        let row = world.hand();
        let restore = copy.handed(&row).unwrap();
        let recovered = world.finish(restore);
        assert_eq!((recovered.epoch, recovered.csn_cut), (Epoch(2), world.owner.durable()));
        world.owner.model.check(&recovered);
        let row = world.row();
        assert!(row.is_published() && row.owner == Some(world.target.lease));
        assert_eq!(row.history.first().and_then(|old| old.cut), Some(world.owner.durable()));
    }
}

/// Of 388 MiB the copy of a pair of 5 had read 10, and was ready: its log's files counted at their lengths.
#[test]
fn copy_that_has_caught_up_has_read_all_that_it_said_it_had_to() {
    for checkpoint in [false, true] {
        let mut world = World::new(3);
        world.write(0..500, 300);
        world.owner.settle();
        if checkpoint {
            world.owner.begin_checkpoint();
            world.owner.end_checkpoint();
            world.write(500..700, 300);
            world.owner.settle();
        }
        let progress = Arc::new(Progress::new(0));
        let mut copy = world.copy_with(&progress);
        catch_up(&mut copy);
        let first = progress.view(0);
        assert!(first.bytes_done > 0, "{first:?}");
        assert_eq!(first.bytes_done, first.bytes_total);
        world.write(700..900, 200);
        world.owner.settle();
        catch_up(&mut copy);
        let then = progress.view(0);
        assert!(then.bytes_done > first.bytes_done, "{then:?}");
        assert_eq!(then.bytes_done, then.bytes_total);
    }
}

/// Whatever is in flight when the copier looks, and whatever a checkpoint takes away behind it.
#[test]
fn copy_beside_writes_and_checkpoints_is_the_pair() {
    let mut restarted = 0;
    for seed in 0..12 {
        let mut world = World::new(seed);
        let mut random = Random::new(seed);
        world.write(0..300, 400);
        let mut copy = world.copy();
        let mut step = |world: &World, copy: &mut PairCopy| match copy.step() {
            Ok(_) => {}
            Err(error) => {
                assert!(matches!(error, RecoveryError::Log(_)), "{error}");
                restarted += 1;
                *copy = world.copy();
            }
        };
        for key in 0..1_500_u32 {
            world.write(key..key + 1, 1_000);
            match random.below(8) {
                0 => world.owner.settle(),
                1 => world.owner.pump(),
                2 if random.below(40) == 0 => {
                    world.owner.begin_checkpoint();
                    world.write(key..key + 5, 500);
                    world.owner.end_checkpoint();
                }
                3 => drop(world.owner.delete(format!("key {:04}", key % 97).as_bytes())),
                _ => step(&world, &mut copy),
            }
        }
        world.owner.settle();
        for _ in 0..100 {
            step(&world, &mut copy);
        }
        catch_up(&mut copy);
        let row = world.hand();
        let restore = copy.handed(&row).unwrap();
        let recovered = world.finish(restore);
        world.owner.model.check(&recovered);
    }
    println!("{restarted} copies were restarted");
}

/// The last writes are read after the handing, and what its owner had in flight past the cut never.
#[test]
fn target_dies_after_the_handing_and_the_next_owner_finds_the_recorded_cut() {
    let mut world = World::new(3);
    world.write(0..200, 300);
    world.owner.settle();
    let mut copy = world.copy();
    catch_up(&mut copy);
    let cut = world.hand().history[0].cut;
    world.target.crash();
    for _ in 0..2 {
        world.sim.advance(400 * MS);
        assert!(world.life.pause(0), "the source lives");
    }
    let next = start(&world.disk, &world.sim, 1);
    let restore = next.claim(PAIR, ClaimReason::LeaseEnded).unwrap();
    let (recovered, _device) = next.publish(restore, Durability::Sync).unwrap();
    assert_eq!((Some(recovered.csn_cut), recovered.epoch), (cut, Epoch(3)));
    world.owner.model.check(&recovered);
}

fn copy_counts_for_the_handing_alone() {
    let mut world = World::new(4);
    world.write(0..100, 300);
    world.owner.settle();
    let mut copy = world.copy();
    catch_up(&mut copy);
    world.life.crash();
    for _ in 0..2 {
        world.sim.advance(400 * MS);
        assert!(world.target.pause(0));
    }
    let restore = world.target.claim(PAIR, ClaimReason::LeaseEnded).unwrap();
    let (_recovered, _device) = world.target.publish(restore, Durability::Sync).unwrap();
    let row = world.row();
    assert_eq!((row.owner, row.epoch), (Some(world.target.lease), Epoch(2)), "as after the handing");
    let refused = copy.handed(&row).map(drop);
    let is_foreign = matches!(refused, Err(RecoveryError::Copy(CopyFault::Foreign { epoch: Epoch(2) })));
    assert!(is_foreign, "{refused:?}");
}

fn copy_past_the_cut_does_not_count() {
    let mut world = World::new(5);
    world.write(0..100, 300);
    world.owner.settle();
    let mut copy = world.copy();
    catch_up(&mut copy);
    let mut row = world.hand();
    let copied = copy.reached();
    row.history[0].cut = Some(Csn(copied.0 - 1));
    let refused = copy.handed(&row).map(drop);
    assert!(matches!(refused, Err(RecoveryError::Copy(CopyFault::PastCut { .. }))), "{refused:?}");
}

/// Who has finished it gives it to the worker, which shows clients its registrations.
fn copied_pair_is_finished_once_it_is_published() {
    let mut world = World::new(6);
    world.write(0..100, 300);
    world.owner.settle();
    let mut copy = world.copy();
    catch_up(&mut copy);
    let row = world.hand();
    let recovered = world.finish(copy.handed(&row).unwrap());
    let row = world.row();
    assert_eq!((row.epoch, row.is_published()), (recovered.epoch, true));
}

#[test]
fn copy_that_was_ready_is_behind_while_a_round_brings_many_megabytes() {
    copy_is_behind_while_a_round_brings_many_megabytes();
}

#[test]
fn copied_pair_is_shown_to_nobody_before_its_publication() {
    copied_pair_is_finished_once_it_is_published();
}

#[test]
fn copy_of_a_pair_that_others_have_had_does_not_count() {
    copy_counts_for_the_handing_alone();
}

#[test]
fn copy_that_has_more_than_the_cut_does_not_count() {
    copy_past_the_cut_does_not_count();
}

#[test]
#[cfg(debug_assertions)]
fn mutants_of_copies_are_caught() {
    use std::panic::catch_unwind;

    use cell_terms::mutant::{Mutant, plant};
    cell_terms::mutant::in_own_process(|| {
        let twins: [(Mutant, fn()); 4] = [
            (Mutant::BehindUnseen, copy_is_behind_while_a_round_brings_many_megabytes),
            (Mutant::ForeignEpochTaken, copy_counts_for_the_handing_alone),
            (Mutant::CutBelowCopy, copy_past_the_cut_does_not_count),
            (Mutant::ToldUnpublished, copied_pair_is_finished_once_it_is_published),
        ];
        for (mutant, test) in twins {
            plant(Some(mutant));
            let passed = catch_unwind(test).is_ok();
            plant(None);
            assert!(!passed, "{} was not caught", mutant.name());
            println!("mutant {} caught by cell-recovery's copies", mutant.name());
        }
    });
}
