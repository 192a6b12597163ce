//! Disks that lost or changed what was acknowledged, tables that are older than the logs: refused with the
//! place, never served. And what a recovery must not be confused by: steps at which it dies, ended sessions,
//! epochs without logs.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]
#![allow(clippy::cast_possible_truncation, reason = "small random numbers")]

use std::sync::Arc;

use cell_cluster::{ClaimReason, ClusterError, Coordinator, Missing, PairState, Sim, Table};
use cell_memory::RegionOptions;
use cell_random::Random;
use cell_recovery::{
    Admission, Progress, RecoveryError, RecoveryStage, RegionSource, Step, Takeover, Turn, find_logs,
};
use cell_terms::{Csn, Durability, Epoch, NodeId, OperationNumber, RegionKind, SessionId};
use cell_test_kit::{NODE, Process, finish};
use cell_tree::LeafSnapshot;
use cell_wal::segment::LogName;
use cell_wal::sim::SimDisk;
use cell_wal::storage::remove_files;
use cell_wal::{Errno, Storage};

use crate::owner::{GEOMETRY, MS, Model, Owner, PAIR, SLOT, start};

struct World {
    disk: SimDisk,
    sim: Sim,
    session: SessionId,
    model: Model,
}

impl World {
    /// A pair with some hundred entries, killed after everything was durable and sealed.
    fn with_entries(checkpoint: bool) -> World {
        let (disk, sim) = (SimDisk::new(1), Sim::new(7));
        let life = start(&disk, &sim, 1);
        let session = life.environment.sessions.open(life.lease).unwrap();
        let mut owner = Owner::publish(&life, life.restore(life.create(GEOMETRY)).unwrap(), session).unwrap();
        write(&mut owner, 0..200);
        if checkpoint {
            owner.begin_checkpoint();
            write(&mut owner, 100..250);
            owner.end_checkpoint();
        }
        write(&mut owner, 200..300);
        life.crash();
        World { disk, sim, session, model: owner.model }
    }

    fn life(&self) -> Process {
        start(&self.disk, &self.sim, 1)
    }

    /// Recovers, which must fail; how, and what the table says then.
    fn fail(&self) -> (RecoveryError, PairState) {
        let life = self.life();
        let restore = life.claim(PAIR, ClaimReason::HostLock).unwrap();
        let error = match Owner::publish(&life, restore, self.session) {
            Ok(_) => panic!("a damaged pair is served"),
            Err(error) => error,
        };
        (error, life.environment.table.pair(PAIR).unwrap().state)
    }

    fn missing(&self) -> Missing {
        match self.fail() {
            (_, PairState::Unavailable { missing }) => missing,
            (error, state) => panic!("{state:?} after {error}"),
        }
    }

    fn recover(&mut self, durability: Durability) -> (Process, Owner) {
        let life = self.life();
        let restore = life.claim(PAIR, ClaimReason::HostLock).unwrap();
        let (recovered, device) = life.publish(restore, durability).unwrap();
        self.model.check(&recovered);
        let mut owner = Owner::of(&life, recovered, device, self.session);
        owner.model = self.model.clone();
        (life, owner)
    }
}

fn write(owner: &mut Owner, keys: std::ops::Range<u32>) {
    for key in keys {
        assert!(owner.put(format!("key {key:05}").as_bytes(), &vec![key as u8; 10 + key as usize]));
        if key % 7 == 0 {
            owner.settle();
        }
    }
    owner.settle();
}

fn log(kind: RegionKind) -> LogName {
    LogName { region: PAIR.region(kind), epoch: Epoch(1) }
}

fn segment(kind: RegionKind) -> String {
    log(kind).segment(0).path()
}

#[test]
fn takeover_missing_log_folder_is_reported_and_not_served() {
    for kind in [RegionKind::Node, RegionKind::Extent] {
        let world = World::with_entries(false);
        remove_files(&world.disk.process(), &log(kind).folder()).unwrap();
        let missing = Missing::Log { region: PAIR.region(kind), epoch: Epoch(1) };
        assert_eq!(world.missing(), missing);
        assert_eq!(world.missing(), missing, "and again");
    }
}

#[test]
fn takeover_that_finds_damage_leaves_the_pair_to_others_until_a_second_node_finds_some() {
    let world = World::with_entries(false);
    remove_files(&world.disk.process(), &log(RegionKind::Node).folder()).unwrap();
    world.missing();
    let life = world.life();
    let table = &life.environment.table;
    let row = table.pair(PAIR).unwrap();
    assert_eq!((row.owner, row.findings.len()), (None, 1), "others may look");
    let other = NodeId(NODE.0 + 1);
    let claim = table.claim(PAIR, life.lease, other, ClaimReason::LeaseEnded).unwrap();
    assert!(Owner::publish(&life, life.restore(claim).unwrap(), world.session).is_err());
    let row = table.pair(PAIR).unwrap();
    assert_eq!((row.owner, row.is_damage_believed()), (Some(life.lease), true));
    let nodes: Vec<_> = row.findings.iter().map(|finding| finding.node).collect();
    assert_eq!(nodes, [NODE, other]);
}

#[test]
fn takeover_that_cannot_report_at_once_reports_once_it_can() {
    let world = World::with_entries(false);
    remove_files(&world.disk.process(), &log(RegionKind::Node).folder()).unwrap();
    let life = world.life();
    let claimed = life.claim(PAIR, ClaimReason::HostLock).unwrap();
    let (publish, progress) = (life.publish_request(Durability::Sync), Arc::new(Progress::new(0)));
    let mut takeover = Takeover::claimed(&life.environment, claimed, publish, &progress);
    let mut device = life.disk.device_alone();
    life.link.set_cut(true);
    for _ in 0..20 {
        assert_ne!(takeover.step(&mut device).unwrap(), Turn::Done);
    }
    life.link.set_cut(false);
    let error = takeover.step(&mut device).err().unwrap();
    let missing = Missing::Log { region: PAIR.region(RegionKind::Node), epoch: Epoch(1) };
    assert_eq!(error.missing(PAIR), Some(missing.clone()));
    let state = life.environment.table.pair(PAIR).unwrap().state;
    assert_eq!(state, PairState::Unavailable { missing });
    assert!(takeover.step(&mut device).is_err(), "it is over");
}

#[test]
#[cfg(debug_assertions)]
fn mutant_report_unanswered_is_caught() {
    cell_terms::mutant::in_own_process(|| {
        use cell_terms::mutant::{Mutant, plant};
        let passes =
            || std::panic::catch_unwind(takeover_that_cannot_report_at_once_reports_once_it_can).is_ok();
        assert!(passes());
        plant(Some(Mutant::ReportUnanswered));
        let passed = passes();
        plant(None);
        assert!(!passed);
        println!("mutant {} caught by cell-recovery's takeover", Mutant::ReportUnanswered.name());
    });
}

#[test]
fn takeover_flipped_bit_below_the_watermark_names_file_and_offset() {
    for kind in [RegionKind::Node, RegionKind::Extent] {
        for offset in [4096 + 5, 3 * 4096 + 200, 6 * 4096 + 130] {
            let world = World::with_entries(false);
            assert!(world.disk.flip(&segment(kind), offset, 4));
            match world.missing() {
                Missing::Corruption { file, offset: at } => {
                    assert_eq!(file, segment(kind));
                    assert!(at <= offset && at + 64 * 4096 > offset, "{at} for {offset}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Takes the pair over again and again, without a write; what the disk has more of after each.
fn recover_often(world: &mut World) -> Vec<u64> {
    let mut used = Vec::new();
    for _ in 0..5 {
        let (life, _) = world.recover(Durability::Sync);
        world.disk.settle();
        life.crash();
        used.push(world.disk.used());
    }
    used.windows(2).map(|pair| pair[1] - pair[0].min(pair[1])).collect()
}

/// Each left its first segments, of which it had filled next to nothing.
#[test]
fn takeovers_one_after_the_other_leave_what_was_written_and_no_more() {
    for checkpoint in [false, true] {
        let grown = recover_often(&mut World::with_entries(checkpoint));
        assert!(grown.iter().all(|bytes| *bytes <= 32 << 10), "{grown:?}");
    }
}

#[test]
#[cfg(debug_assertions)]
fn mutant_frames_given_back_is_caught() {
    cell_terms::mutant::in_own_process(|| {
        use cell_terms::mutant::{Mutant, plant};
        let passes = || {
            let run = || drop(recover_often(&mut World::with_entries(false)));
            std::panic::catch_unwind(run).is_ok()
        };
        assert!(passes());
        plant(Some(Mutant::FramesGivenBack));
        let passed = passes();
        plant(None);
        assert!(!passed);
        println!("mutant {} caught by cell-recovery's takeover", Mutant::FramesGivenBack.name());
    });
}

#[test]
fn takeover_damaged_or_missing_checkpoint_is_not_replaced_by_the_log_alone() {
    let world = World::with_entries(true);
    let row = Table::new(Arc::new(world.sim.link())).pair(PAIR).unwrap();
    let file = row.checkpoint.unwrap().file;
    let damaged = World { disk: world.disk.fork(2), sim: world.sim.clone(), ..world };
    assert!(damaged.disk.flip(&file, 5000, 1));
    assert_eq!(damaged.missing(), Missing::Checkpoint { file: file.clone() });
    damaged.disk.process().unlink(&file).unwrap();
    assert_eq!(damaged.missing(), Missing::Checkpoint { file });
}

/// The last block of a segment that has bytes.
fn last_block(disk: &SimDisk, path: &str) -> u64 {
    let content = disk.content(path).unwrap();
    let used = content.iter().rposition(|byte| *byte != 0).unwrap();
    (used / 4096 * 4096) as u64
}

#[test]
fn takeover_damaged_end_that_the_checkpoint_needs_is_no_tear() {
    let (disk, sim) = (SimDisk::new(1), Sim::new(7));
    let life = start(&disk, &sim, 1);
    let session = life.environment.sessions.open(life.lease).unwrap();
    let mut owner = Owner::publish(&life, life.restore(life.create(GEOMETRY)).unwrap(), session).unwrap();
    write(&mut owner, 0..50);
    owner.begin_checkpoint();
    write(&mut owner, 50..60);
    owner.end_checkpoint(); // holds what was written meanwhile; nothing is written after it
    life.crash();
    for kind in [RegionKind::Node, RegionKind::Extent] {
        let path = segment(kind);
        let world = World { disk: disk.fork(2), sim: sim.clone(), session, model: owner.model.clone() };
        let row = life.environment.table.pair(PAIR).unwrap();
        assert_eq!(row.checkpoint.unwrap().csn_max, owner.durable());
        assert!(world.disk.flip(&path, last_block(&world.disk, &path) + 9, 1));
        assert!(matches!(world.missing(), Missing::Corruption { file, .. } if file == path));
    }
}

#[test]
fn takeover_disk_that_does_not_answer_is_reported_and_recovers_once_it_does() {
    type Arm = fn(&SimDisk);
    let read: Arm = |disk| disk.arm_read_error(3, Errno::EIO);
    let write: Arm = |disk| disk.arm_write_error(0, Errno::EIO);
    let sync: Arm = |disk| disk.arm_sync_error(1, Errno::EIO);
    for (checkpoint, arm) in [(true, read), (false, write), (false, sync)] {
        let mut world = World::with_entries(checkpoint);
        arm(&world.disk);
        assert!(matches!(world.missing(), Missing::Unreadable { errno, .. } if errno == Errno::EIO.0));
        let owner = world.life().environment.table.pair(PAIR).unwrap().owner;
        assert_eq!(owner, None, "others may try");
        world.recover(Durability::Sync);
    }
}

#[test]
fn takeover_without_memory_says_so() {
    let world = World::with_entries(false);
    let mut life = world.life();
    let row = life.environment.table.pair(PAIR).unwrap();
    life.environment.options.regions = RegionSource::Shared(RegionOptions::default());
    // Less than the first unit of a region.
    life.environment.budget = cell_memory::Budget::new(1 << 20, 0);
    let claim = life.environment.table.claim(PAIR, life.lease, NODE, ClaimReason::HostLock).unwrap();
    let failed = Owner::publish(&life, life.restore(claim).unwrap(), world.session).err().unwrap();
    let bytes = row.geometry.extent_region_bytes + row.geometry.node_region_bytes;
    assert!(matches!(failed, RecoveryError::Memory { bytes: wanted, .. } if wanted == bytes), "{failed}");
    let state = life.environment.table.pair(PAIR).unwrap().state;
    assert_eq!(state, PairState::Unavailable { missing: Missing::Memory { bytes } });
}

#[test]
fn takeover_dying_after_any_step_is_taken_up_again_with_the_same_cut() {
    let mut world = World::with_entries(true);
    let mut cuts = Vec::new();
    for steps in 0.. {
        let life = world.life();
        let mut restore = life.claim(PAIR, ClaimReason::HostLock).unwrap();
        let mut done = false;
        for _ in 0..steps {
            done = restore.step().unwrap() == Step::Done;
        }
        life.crash();
        world.sim.advance(500 * MS);
        let row = life.environment.table.pair(PAIR).unwrap();
        cuts.extend(row.history.iter().find(|old| old.epoch == Epoch(1)).and_then(|old| old.cut));
        if done {
            break;
        }
    }
    assert!(cuts.len() > 2 && cuts.iter().all(|cut| *cut == cuts[0]), "{cuts:?}");
    let (_, owner) = world.recover(Durability::Sync);
    assert_eq!(owner.durable(), cuts[0]);
}

#[test]
fn claim_table_without_or_older_than_the_logs_is_refused() {
    let mut world = World::with_entries(false);
    drop(world.recover(Durability::Sync)); // the logs know epoch 2 now
    let storage = world.disk.process();
    let found = find_logs(&storage).unwrap();
    assert_eq!(found, [(PAIR.node_region(), Epoch(2)), (PAIR.extent_region(), Epoch(2))]);
    let other = Sim::new(8);
    let life = start(&world.disk, &other, 1);
    let lost = life.environment.table.check_logs_found(&found);
    assert!(matches!(lost, Err(ClusterError::LogWithoutRow { .. })), "an empty table is no first start");
    let _ = life.create(GEOMETRY);
    let old = life.environment.table.check_logs_found(&found);
    assert!(matches!(old, Err(ClusterError::TableOlder { table: Epoch(1), found: Epoch(2), .. })));
    let refused = life.claim(PAIR, ClaimReason::HostLock).unwrap_err();
    assert!(matches!(refused, RecoveryError::Cluster(ClusterError::TableOlder { .. })));
    assert_eq!(life.environment.table.pair(PAIR).unwrap().epoch, Epoch(1), "nothing was claimed");
}

#[test]
fn takeover_epoch_without_logs_loses_what_it_wrote_and_nothing_else() {
    let mut world = World::with_entries(true);
    let (life, mut owner) = world.recover(Durability::None);
    assert!(!owner.pair.has_log());
    assert!(owner.put(b"unlogged", b"value") && owner.delete(b"key 00007"));
    life.crash();
    let (life, mut owner) = world.recover(Durability::Sync);
    assert_eq!(owner.pair.version_of(SLOT, b"unlogged").unwrap(), None);
    write(&mut owner, 300..350);
    world.model = owner.model.clone();
    life.crash();
    world.recover(Durability::Sync);
}

#[test]
fn takeover_forgets_results_of_ended_sessions_only() {
    let mut world = World::with_entries(false);
    let (life, mut owner) = world.recover(Durability::Sync);
    let other = life.environment.sessions.open(life.lease).unwrap();
    let number = world.model.number;
    let admission =
        owner.pair.completions().admit(world.session, OperationNumber(number), OperationNumber(1), false);
    assert!(matches!(admission, Admission::Repeat { .. }));
    life.environment.sessions.end(world.session).unwrap();
    life.crash();
    let second = world.life();
    let restored = finish(second.claim(PAIR, ClaimReason::HostLock).unwrap()).unwrap();
    assert_eq!(restored.completions.results(), 0);
    assert!(life.environment.sessions.exists(other).unwrap());
}

#[test]
fn takeover_before_the_old_lease_ended_waits_with_serving() {
    let world = World::with_entries(false);
    let first_epoch_owner = world.sim.link();
    let life = world.life();
    let restore = life.claim(PAIR, ClaimReason::HostLock).unwrap();
    let old = life.environment.table.pair(PAIR).unwrap().trusted;
    assert_eq!(old.len(), 1);
    let remaining = first_epoch_owner.remaining_ns(old[0]).unwrap().unwrap();
    let before = world.sim.now_ns();
    Owner::publish(&life, restore, world.session).unwrap();
    assert!(world.sim.now_ns() >= before + remaining);
}

#[test]
fn progress_ends_with_everything_read() {
    let world = World::with_entries(true);
    let life = world.life();
    let progress = Arc::new(Progress::new(0));
    let request = cell_recovery::ClaimRequest {
        pair: PAIR,
        incarnation: life.lease,
        node: NODE,
        reason: ClaimReason::HostLock,
    };
    let mut restore = cell_recovery::Restore::claim(&life.environment, &request, &progress).unwrap();
    let mut last = 0;
    while restore.step().unwrap() == Step::More {
        let view = progress.view(1_000_000_000);
        assert!(view.bytes_done >= last && view.bytes_done <= view.bytes_total);
        last = view.bytes_done;
    }
    let view = progress.view(1_000_000_000);
    assert_eq!((view.stage, view.bytes_done), (RecoveryStage::Verifying, view.bytes_total));
    assert_eq!(view.entries, 300);
    assert!(view.records > 100);
}

#[test]
fn checkpoint_taken_while_the_owner_writes_recovers() {
    let mut world = World::with_entries(false);
    for round in 0..5_u32 {
        let (life, mut owner) = world.recover(Durability::Sync);
        owner.settle();
        let (source, base, ends) = (owner.pair.source(), owner.pair.image_base(), owner.pair.slot_ends());
        let csn_base = base.csn;
        let storage = Arc::new(life.disk.clone());
        let image = std::thread::scope(|scope| {
            let copier = scope.spawn(|| {
                cell_recovery::image::write_image(&source, storage, 1, base, &|slot| ends.end(slot))
            });
            let mut key = 0_u32;
            while !copier.is_finished() || key < 100 {
                key += 1;
                let name = format!("key {:05}", key.wrapping_mul(2_654_435_761) % (400 + round * 100));
                match key % 5 {
                    0 => drop(owner.delete(name.as_bytes())),
                    _ => drop(owner.put(name.as_bytes(), &vec![key as u8; (key % 700) as usize])),
                }
                if key.is_multiple_of(3) {
                    owner.settle();
                }
            }
            copier.join().unwrap().unwrap()
        });
        owner.settle();
        assert!(owner.durable() >= image.csn_max);
        owner.record_image(csn_base, image.csn_max, image.path);
        world.model = owner.model.clone();
        life.crash();
    }
    let (_, owner) = world.recover(Durability::Sync);
    assert!(owner.pair.checkpointed() > Csn::ZERO);
}

/// The image has the extents of the leaves that it copies. When a slot ran full, the allocator gave a leaf
/// one of the nodes set aside for inner nodes, below what the copier had passed: what moved there had its
/// tree node in the log, but its extents nowhere.
#[test]
fn checkpoint_while_the_slot_runs_full_has_the_extents_of_every_leaf() {
    // Large enough for a stretch of more nodes than a put asks for.
    let geometry =
        cell_cluster::PairGeometry { node_region_bytes: 4096 + (4 << 20), slot_bytes: 4 << 20, ..GEOMETRY };
    let (disk, sim) = (SimDisk::new(1), Sim::new(7));
    let life = start(&disk, &sim, 1);
    let session = life.environment.sessions.open(life.lease).unwrap();
    let mut owner = Owner::publish(&life, life.restore(life.create(geometry)).unwrap(), session).unwrap();
    let mut random = Random::new(5);
    let mut put = |owner: &mut Owner| {
        let written = owner.put(&random.below(1 << 40).to_be_bytes(), b"value");
        if !written || owner.next_csn().0.is_multiple_of(50) {
            owner.settle();
        }
        written
    };
    let is_roomy = |owner: &Owner| {
        let figures = owner.pair.meganode_figures(SLOT);
        figures.nodes_all - figures.nodes > 100
    };
    while is_roomy(&owner) {
        put(&mut owner);
    }
    owner.settle();
    owner.begin_checkpoint();
    let copied = owner.nodes_end() - 400;
    owner.step_checkpoint(copied);
    // A refusal for want of log space passes once the disk has worked, one for want of tree nodes does not.
    while owner.nodes_end() < 8192 && (put(&mut owner) || put(&mut owner)) {}
    // Leaves that the copier has still before it are split once more.
    let keys = lows_of_leaves_from(&owner, copied);
    assert!(keys.len() > 50);
    for at in 0..20 {
        for low in keys.iter().filter(|low| !low.is_empty()).take(3) {
            owner.put(&[low.as_slice(), &[at]].concat(), b"value");
            owner.settle();
        }
    }
    owner.end_checkpoint();
    life.crash();
    let mut world = World { disk, sim, session, model: owner.model.clone() };
    world.recover(Durability::Sync);
}

/// The low fences of the leaves whose places are at or behind a tree node's.
fn lows_of_leaves_from(owner: &Owner, node: u32) -> Vec<Vec<u8>> {
    let meganode = owner.pair.meganode(SLOT);
    let mut leaf = LeafSnapshot::new();
    let mut lows = Vec::new();
    meganode.leaf_first(&mut leaf).unwrap();
    loop {
        if leaf.node().0 >= node {
            lows.push(leaf.low().to_vec());
        }
        if !meganode.leaf_after(&mut leaf).unwrap() {
            return lows;
        }
    }
}

/// A copier left the tree nodes out that it found free, and the CSN of the record that had freed them: the
/// image could be recorded before that record was durable.
#[test]
fn image_counts_the_records_that_freed_its_tree_nodes() {
    let (_, owner) = World::with_entries(false).recover(Durability::Sync);
    owner.image_counts_what_freed_its_nodes((0..300).map(|key| format!("key {key:05}").into_bytes()));
}

#[test]
fn geometry_that_is_no_trees_is_refused() {
    let (disk, sim) = (SimDisk::new(1), Sim::new(7));
    let life = start(&disk, &sim, 1);
    let geometry = cell_cluster::PairGeometry { node_bytes: 700, ..GEOMETRY };
    let refused = life.restore(life.create(geometry));
    assert!(matches!(refused, Err(RecoveryError::Geometry(_))));
}
