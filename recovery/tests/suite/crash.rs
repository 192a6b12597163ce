//! Owners that crash, and their successors: by seed, on a simulated disk with a simulated coordinator. What
//! is permitted: power cuts that tear and reorder what was not synced, killed processes whose writes land
//! later or never, crashes between any two steps of a recovery, lost answers of the coordinator. What is not
//! checked here: damage (`damage.rs`).
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]
#![allow(clippy::cast_possible_truncation, reason = "small random numbers")]

use crate::owner;
use cell_cluster::{ClaimReason, Fault, Sim};
use cell_random::Random;
use cell_recovery::{CompletionTable, Step, WriteCompletion, WriteOutcome};
use cell_terms::{Csn, Durability, OperationNumber, SessionId};
use cell_test_kit::{Process, finish};
use cell_wal::sim::{PowerCut, SimDisk};

use crate::owner::{GEOMETRY, MS, Model, Owner, PAIR, start};

struct World {
    disk: SimDisk,
    sim: Sim,
    random: Random,
    session: SessionId,
    model: Model,
    threads: usize,
    /// Few keys are written over and over; many fill the slot.
    keys: u64,
}

impl World {
    fn new(seed: u64, threads: usize) -> World {
        let (disk, sim) = (SimDisk::new(seed), Sim::new(7));
        let keys = if seed.is_multiple_of(3) { 20_000 } else { 400 };
        let mut world = World {
            keys,
            disk,
            sim,
            random: Random::new(seed),
            session: SessionId(0),
            model: Model::default(),
            threads,
        };
        let life = start(&world.disk, &world.sim, threads);
        world.session = life.environment.sessions.open(life.lease).unwrap();
        world
    }

    fn life(&self) -> Process {
        start(&self.disk, &self.sim, self.threads)
    }

    fn crash(&mut self, life: &Process) {
        if self.random.below(2) == 0 {
            life.crash();
            while self.random.below(3) == 0 {
                self.disk.land_late();
            }
        } else {
            life.disk.power_cut(PowerCut::random(self.random.next()));
        }
    }

    /// A recovery that dies after some steps, perhaps.
    fn recovery_that_dies(&mut self) {
        let life = self.life();
        let steps = self.random.below(12);
        let mut restore = life.claim(PAIR, ClaimReason::HostLock).unwrap();
        for _ in 0..steps {
            if restore.step().unwrap() == Step::Done {
                break;
            }
        }
        drop(restore);
        self.crash(&life);
        if self.random.below(2) == 0 {
            self.sim.advance(500 * MS);
        }
    }

    fn recover(&mut self, first: bool) -> (Process, Owner) {
        while !first && self.random.below(3) == 0 {
            self.recovery_that_dies();
        }
        let life = self.life();
        if self.random.below(2) == 0 {
            let faults = [Fault::None, Fault::Lost, Fault::AnswerLost, Fault::Late];
            let random = &mut self.random;
            let plan: Vec<_> = (0..random.below(10)).map(|_| faults[random.below(4) as usize]).collect();
            life.link.plan(if first { vec![] } else { plan });
        }
        let restore = if first {
            life.restore(life.create(GEOMETRY)).unwrap()
        } else {
            loop {
                match life.claim(PAIR, ClaimReason::HostLock) {
                    Ok(restore) => break restore,
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
            }
        };
        let (recovered, device) = life.publish(restore, Durability::Sync).unwrap_or_else(|error| {
            panic!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string))
        });
        self.model.check(&recovered);
        let mut owner = Owner::of(&life, recovered, device, self.session);
        owner.model = self.model.clone();
        life.link.mend();
        (life, owner)
    }

    fn write(&mut self, owner: &mut Owner) {
        let random = &mut self.random;
        let key = format!("{:0width$}", random.below(self.keys), width = 3 + random.below(3) as usize * 7);
        if random.below(if self.keys > 1000 { 40 } else { 4 }) == 0 {
            owner.delete(key.as_bytes());
        } else {
            let longest = if self.keys > 1000 { 60 } else { 9000 };
            let length =
                [random.below(40), random.below(300), random.below(longest)][random.below(3) as usize];
            let first = random.below(256);
            let value: Vec<u8> = (0..length).map(|i| (i * 7 + first) as u8).collect();
            owner.put(key.as_bytes(), &value);
        }
    }

    fn serve(&mut self, life: &Process, owner: &mut Owner, operations: u64) {
        owner.copy_between_changes();
        for _ in 0..operations {
            self.write(owner);
            match self.random.below(6) {
                0 => owner.pump(),
                1 => drop(life.disk.step()),
                2 => {
                    life.disk.step();
                    owner.pump();
                }
                _ => {}
            }
            match self.random.below(300) {
                0 => owner.begin_checkpoint(),
                1 => owner.end_checkpoint(),
                2 => owner.settle(),
                3..40 => owner.step_checkpoint(self.random.below(20) as u32),
                _ => {}
            }
        }
    }

    fn run(&mut self, lives: u64) {
        for life in 0..lives {
            let (alive, mut owner) = self.recover(life == 0);
            let operations = self.random.below(if self.keys > 1000 { 5000 } else { 1500 });
            self.serve(&alive, &mut owner, operations);
            self.model = owner.model.clone();
            drop(owner);
            self.crash(&alive);
        }
        let (_, mut owner) = self.recover(lives == 0);
        owner.settle();
    }
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let given = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let from = given("CELL_SEED").unwrap_or(0);
    from..from + given("CELL_SEEDS").unwrap_or(default)
}

#[test]
fn takeover_after_any_crash_has_everything_acknowledged() {
    for seed in seeds(60) {
        println!("seed {seed}");
        World::new(seed, 1).run(5);
    }
}

#[test]
fn takeover_on_several_threads_has_everything_acknowledged() {
    for seed in seeds(15) {
        println!("seed {seed}");
        World::new(seed, 3).run(4);
    }
}

#[test]
fn restore_twice_from_the_same_disk_is_the_same() {
    for seed in seeds(10) {
        let mut world = World::new(seed, 1);
        let (life, mut owner) = world.recover(true);
        world.serve(&life, &mut owner, 1000);
        world.model = owner.model.clone();
        world.crash(&life);
        let second = world.life();
        let restored = finish(second.claim(PAIR, ClaimReason::HostLock).unwrap()).unwrap();
        world.model.check(&restored);
        second.disk.kill();
        while world.disk.land_late() {}
        let third = world.life();
        let again = finish(third.claim(PAIR, ClaimReason::HostLock).unwrap()).unwrap();
        assert_eq!(again.csn_cut, restored.csn_cut, "the recorded cut is taken, whatever landed since");
        assert_eq!(owner::entries_of(&again), owner::entries_of(&restored));
        assert_eq!(again.extents.stats(), restored.extents.stats());
        assert_eq!(again.meganodes[0].allocator.nodes_free(), restored.meganodes[0].allocator.nodes_free());
    }
}

/// The table is cut into blocks anywhere, and its readers may come to them in any order.
#[test]
fn completion_table_of_several_blocks_comes_back_from_a_checkpoint() {
    for threads in [1, 3] {
        let mut world = World::new(4, threads);
        let (life, mut owner) = world.recover(true);
        assert!(owner.put(b"key", b"value"));
        owner.settle();
        for number in (10..260_000).map(OperationNumber) {
            let (session, floor, outcome) = (world.session, OperationNumber(1), WriteOutcome::Deleted);
            let completion = WriteCompletion { session, number, floor, outcome };
            let csn = owner.durable();
            owner.pair.completions().record(&completion, csn);
        }
        let bytes = |table: &CompletionTable| {
            let mut bytes = Vec::new();
            table.encode(&mut bytes);
            bytes
        };
        let kept = bytes(owner.pair.completions());
        assert!(kept.len() > 4 << 20, "more than a block");
        owner.begin_checkpoint();
        owner.end_checkpoint();
        life.crash();
        let life = world.life();
        let recovered = finish(life.claim(PAIR, ClaimReason::HostLock).unwrap()).unwrap();
        assert!(recovered.csn_checkpoint > Csn::ZERO);
        assert!(bytes(&recovered.completions) == kept, "{threads} threads");
    }
}
