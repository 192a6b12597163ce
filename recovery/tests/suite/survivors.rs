//! Takeovers by other incarnations: a dead owner, survivors that die at any step, writes that land late.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use std::sync::Arc;

use cell_cluster::{ClaimReason, ClusterError, Sim};
use cell_recovery::{ClaimRequest, Progress, Recovered, RecoveryError, Takeover, Turn};
use cell_terms::{Csn, Durability, Epoch, NodeId, RegionKind, SessionId};
use cell_test_kit::Process;
use cell_wal::folder::list_segments;
use cell_wal::sim::{PowerCut, SimDisk};
use cell_wal::{Errno, LogName, LogOptions};

use crate::owner::{GEOMETRY, MS, Model, Owner, PAIR, start};

struct World {
    disk: SimDisk,
    sim: Sim,
    session: SessionId,
    model: Model,
}

/// A takeover that ended in so many steps.
type Taken = (Recovered, cell_wal::sim::SimDevice, usize);

impl World {
    /// An owner that wrote so many entries, acknowledged all but the last ones, and is killed with those on
    /// their way to the disk. Its lease has ended.
    fn new(seed: u64, entries: u32, value_bytes: usize) -> World {
        World::with_end(seed, entries, value_bytes, |_| ())
    }

    /// What happens to the disk at its end.
    fn with_end(seed: u64, entries: u32, value_bytes: usize, end: impl Fn(&SimDisk)) -> World {
        let (disk, sim) = (SimDisk::new(seed), Sim::new(7));
        let life = start(&disk, &sim, 1);
        let session = life.environment.sessions.open(life.lease).unwrap();
        let mut owner = Owner::publish(&life, life.restore(life.create(GEOMETRY)).unwrap(), session).unwrap();
        write(&mut owner, 0..entries, value_bytes);
        owner.settle();
        write_unsynced(&mut owner, 20);
        end(&life.disk);
        let mut world = World { disk, sim, session, model: owner.model.clone() };
        drop(owner);
        life.crash();
        world.end_lease();
        world
    }

    fn end_lease(&mut self) {
        self.sim.advance(500 * MS);
    }

    /// A survivor's takeover, which dies before its step of this number.
    fn take_over(&self, life: &Process, steps: usize) -> Option<Taken> {
        self.try_to_take_over(life, steps).unwrap()
    }

    fn try_to_take_over(&self, life: &Process, steps: usize) -> Result<Option<Taken>, RecoveryError> {
        let node = NodeId(life.lease.0 as u32);
        let reason = ClaimReason::LeaseEnded;
        let claim = ClaimRequest { pair: PAIR, incarnation: life.lease, node, reason };
        let publish = life.publish_request(Durability::Sync);
        let progress = Arc::new(Progress::new(0));
        let mut takeover = Takeover::new(&life.environment, claim, publish, &progress);
        let mut device = life.disk.device_alone();
        for step in 0..steps {
            match takeover.step(&mut device)? {
                Turn::More => {}
                Turn::Wait(for_ns) => assert!(life.pause(for_ns)),
                Turn::Done => {
                    device.share();
                    return Ok(Some((takeover.finish(), device, step + 1)));
                }
            }
        }
        Ok(None)
    }

    fn survivor(&self) -> Process {
        start(&self.disk, &self.sim, 1)
    }

    /// A survivor that dies before its step of this number; false: it was done by then, and dies serving.
    fn survivor_that_dies(&mut self, steps: usize) -> bool {
        let life = self.survivor();
        let taken = self.take_over(&life, steps);
        if steps.is_multiple_of(2) {
            life.crash();
            while steps.is_multiple_of(4) && self.disk.land_late() {}
        } else {
            life.disk.power_cut(PowerCut::random(steps as u64));
        }
        self.end_lease();
        taken.is_none()
    }

    fn survivor_that_serves(&self) -> (Process, Recovered, cell_wal::sim::SimDevice) {
        let life = self.survivor();
        let (recovered, device, _) = self.take_over(&life, usize::MAX).unwrap();
        (life, recovered, device)
    }

    /// A survivor whose cut holds, although only what was synced outlives it. Where it cut.
    fn serve_and_cut_the_power(&mut self) -> Csn {
        let (life, recovered, _) = self.survivor_that_serves();
        life.disk.power_cut(PowerCut::CLEAN);
        self.end_lease();
        let (_, again, _) = self.survivor_that_serves();
        assert!(again.csn_cut >= recovered.csn_cut);
        self.model.check(&again);
        recovered.csn_cut
    }

    fn owner(&self, life: &Process, recovered: Recovered, device: cell_wal::sim::SimDevice) -> Owner {
        let mut owner = Owner::of(life, recovered, device, self.session);
        owner.model = self.model.clone();
        owner
    }
}

fn write(owner: &mut Owner, keys: std::ops::Range<u32>, value_bytes: usize) {
    for key in keys {
        let name = format!("key {:04}", key % 300);
        while !owner.put(name.as_bytes(), &vec![key as u8; value_bytes]) {
            owner.settle();
        }
    }
}

/// Writes that are on their way when their owner dies.
fn write_unsynced(owner: &mut Owner, count: u32) {
    for key in 0..count {
        owner.put(format!("late {key:04}").as_bytes(), b"unacknowledged");
    }
    owner.pump();
}

#[test]
fn takeover_dying_at_every_step_twice_is_taken_up_by_the_next_survivor() {
    for steps in 0.. {
        let mut world = World::new(steps as u64, 200, 300);
        let died = world.survivor_that_dies(steps);
        world.survivor_that_dies(steps);
        let (_, recovered, _) = world.survivor_that_serves();
        world.model.check(&recovered);
        if !died {
            assert!(steps > 10, "{steps} steps are no takeover");
            return;
        }
    }
}

/// After a sync that failed the next one says yes to what was never written (found by a simulator's seed).
#[test]
fn sync_that_failed_is_not_believed_by_the_next_survivor() {
    let mut failed = 0;
    for (seed, which) in (0..20).flat_map(|seed| [(seed, 1), (seed, 2)]) {
        let mut world = World::new(seed, 50, 300);
        while world.disk.land_late() {}
        world.disk.arm_sync_error(which, Errno::EIO);
        let life = world.survivor();
        failed += u32::from(world.try_to_take_over(&life, usize::MAX).is_err());
        world.disk.disarm();
        life.crash();
        world.end_lease();
        // Nor by the one after a survivor that dies on the way.
        world.survivor_that_dies(2 * (seed as usize % 4));
        world.serve_and_cut_the_power();
    }
    assert!(failed >= 20, "{failed} takeovers could not sync");
}

/// The owner's own: nobody has acknowledged what it wrote last, but its survivor does.
#[test]
fn owners_sync_that_failed_is_not_believed_by_its_survivor() {
    let mut beyond = 0;
    for seed in 0..20 {
        let mut world = World::with_end(seed, 50, 300, |disk| {
            disk.arm_sync_error(0, Errno::EIO);
            disk.settle();
            disk.disarm();
        });
        let acknowledged = world.model.acknowledged;
        beyond += u32::from(world.serve_and_cut_the_power() > acknowledged);
    }
    assert!(beyond >= 10, "{beyond} survivors found what was not acknowledged");
}

#[test]
fn survivor_killed_at_every_tenth_of_its_replay_leaves_nothing_behind() {
    let whole = World::new(3, 6_000, 6_000);
    let (_, _, steps) = whole.take_over(&whole.survivor(), usize::MAX).unwrap();
    assert!(steps > 20, "{steps} steps do not show tenths");
    for tenth in 0..10 {
        let mut world = World::new(3, 6_000, 6_000);
        assert!(world.survivor_that_dies(steps * tenth / 10));
        let (_, recovered, _) = world.survivor_that_serves();
        world.model.check(&recovered);
    }
}

#[test]
pub(crate) fn dead_owners_writes_that_land_while_a_survivor_serves_are_never_read() {
    for seed in 0..20 {
        let mut world = World::new(seed, 100, 200);
        let (life, recovered, device) = world.survivor_that_serves();
        world.model.check(&recovered);
        let cut = recovered.csn_cut;
        let mut owner = world.owner(&life, recovered, device);
        // Its CSNs are those that the dead owner gave to what is still on its way.
        write(&mut owner, 500..520, 100);
        owner.settle();
        while world.disk.land_late() {}
        world.model = owner.model.clone();
        drop(owner);
        life.crash();
        world.end_lease();
        let (next, recovered, _) = world.survivor_that_serves();
        assert!(recovered.csn_cut > cut);
        world.model.check(&recovered);
        let row = next.environment.table.pair(PAIR).unwrap();
        let cuts: Vec<_> = row.history.iter().map(|old| old.cut).collect();
        assert_eq!(cuts[0], Some(cut), "the first epoch ends where the first survivor said");
    }
}

/// It stood still past its lease, and what its claim's row names is gone (found by a simulator's seed). While
/// it cannot ask whose the pair is, it does not take the data for damaged.
#[test]
fn superseded_survivor_that_cannot_ask_blames_no_data() {
    for checkpoint in [true, false] {
        let mut world = World::new(5, 100, 200);
        if checkpoint {
            let (life, recovered, device) = world.survivor_that_serves();
            let mut owner = world.owner(&life, recovered, device);
            owner.begin_checkpoint();
            owner.end_checkpoint();
            life.crash();
            world.end_lease();
        }
        let slow = world.survivor();
        let (node, reason) = (NodeId(slow.lease.0 as u32), ClaimReason::LeaseEnded);
        let claim = ClaimRequest { pair: PAIR, incarnation: slow.lease, node, reason };
        let (publish, progress) = (slow.publish_request(Durability::Sync), Arc::new(Progress::new(0)));
        let mut takeover = Takeover::new(&slow.environment, claim, publish, &progress);
        let mut its_device = slow.disk.device_alone();
        assert_eq!(takeover.step(&mut its_device).unwrap(), Turn::More, "it claims");
        world.end_lease();
        let (life, recovered, device) = world.survivor_that_serves();
        let mut owner = world.owner(&life, recovered, device);
        write(&mut owner, 500..520, 100);
        owner.begin_checkpoint();
        owner.end_checkpoint();
        slow.link.set_cut(true);
        for _ in 0..20 {
            assert_ne!(takeover.step(&mut its_device).unwrap(), Turn::Done);
        }
        slow.link.set_cut(false);
        let refused = takeover.step(&mut its_device).unwrap_err();
        let RecoveryError::Cluster(ClusterError::Superseded { owner: other, .. }) = refused else {
            panic!("{refused}")
        };
        assert_eq!(other, Some(life.lease));
        assert!(life.environment.table.pair(PAIR).unwrap().is_published(), "the pair is as it was");
    }
}

#[test]
fn two_survivors_of_one_owner_one_wins_and_the_other_touches_nothing() {
    for first_steps in 0..12 {
        let world = World::new(5, 100, 200);
        let (one, two) = (world.survivor(), world.survivor());
        let claim = |life: &Process| ClaimRequest {
            pair: PAIR,
            incarnation: life.lease,
            node: NodeId(life.lease.0 as u32),
            reason: ClaimReason::LeaseEnded,
        };
        let takeover = |life: &Process| {
            let publish = life.publish_request(Durability::Sync);
            Takeover::new(&life.environment, claim(life), publish, &Arc::new(Progress::new(0)))
        };
        let (mut first, mut device) = (takeover(&one), one.disk.device_alone());
        let mut done = false;
        for _ in 0..=first_steps {
            match first.step(&mut device).unwrap() {
                Turn::More => {}
                Turn::Wait(for_ns) => assert!(one.pause(for_ns)),
                Turn::Done => done = true,
            }
        }
        let mut second = takeover(&two);
        let refused = second.step(&mut two.disk.device_alone()).unwrap_err();
        let RecoveryError::Cluster(ClusterError::OwnerLives { owner, .. }) = refused else {
            panic!("{refused}")
        };
        assert_eq!(owner, one.lease);
        while !done {
            match first.step(&mut device).unwrap() {
                Turn::More => {}
                Turn::Wait(for_ns) => assert!(one.pause(for_ns)),
                Turn::Done => done = true,
            }
        }
        let row = one.environment.table.pair(PAIR).unwrap();
        assert_eq!((row.owner, row.epoch.0), (Some(one.lease), 2));
    }
}

/// How many segments the first owner's log of tree nodes has.
fn segments_left(life: &Process) -> usize {
    let log = LogName { region: PAIR.region(RegionKind::Node), epoch: Epoch(1) };
    list_segments(&*life.environment.storage, log).unwrap().len()
}

/// It takes the disk's time, for which nobody is to wait.
#[test]
fn what_earlier_owners_left_is_removed_once_the_pair_is_published() {
    let world = World::new(5, 40, 100);
    let (life, mut recovered, _) = world.survivor_that_serves();
    let left = segments_left(&life);
    recovered.remove_leftovers(&life.environment);
    assert!((1..left).contains(&segments_left(&life)), "of {left} segments {}", segments_left(&life));
    assert!(recovered.leftovers.is_none());
}

/// A survivor that was killed right after it had published had not removed it.
#[test]
fn what_an_owner_before_the_last_one_left_is_removed_by_the_next() {
    let mut world = World::new(5, 40, 100);
    let (life, ..) = world.survivor_that_serves();
    let left = segments_left(&life);
    life.crash();
    world.end_lease();
    let (life, mut recovered, _) = world.survivor_that_serves();
    recovered.remove_leftovers(&life.environment);
    assert!((1..left).contains(&segments_left(&life)), "of {left} segments {}", segments_left(&life));
}

/// On a full disk it is the room that the new logs need, at once.
#[test]
fn takeover_on_a_full_disk_goes_on_with_the_room_that_earlier_owners_left() {
    let world = World::new(5, 40, 100);
    world.disk.set_capacity(Some(world.disk.used()));
    let life = world.survivor();
    let left = segments_left(&life);
    let began = world.sim.now_ns();
    assert!(world.take_over(&life, usize::MAX).is_some());
    assert!((1..left).contains(&segments_left(&life)), "of {left} segments {}", segments_left(&life));
    let retry_ns = u64::try_from(LogOptions::default().prepare_retry.as_nanos()).unwrap();
    assert!(world.sim.now_ns() - began < retry_ns, "{} ns", world.sim.now_ns() - began);
}
