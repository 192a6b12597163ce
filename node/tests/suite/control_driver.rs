//! What the control thread decides, call by call, over the simulated coordinator and disk.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::sync::Arc;

use cell_cluster::{
    ClusterTerms, Coordinator, Fault, Joining, Layout, LeaseTerms, MemberRow, NewPair, PairGeometry,
    PairState, Sim, Tuning, WantedTuning,
};
use cell_node::{
    CheckpointCommand, Command, ControlDriver, ControlEffect, ControlEvent, MembershipOptions, RefusedKind,
    SETTINGS, TakeoverJob, TakeoverQueue, TakeoverRun, WorkerOptions, join_cluster,
};
use cell_pair::{CheckpointFailure, ImageEnd, ImageJob, ImageTurn, Pair};
use cell_recovery::image::ImageBase;
use cell_recovery::{CompletionTable, Progress, PublishRequest, RecoveryError, Turn};
use cell_terms::setting::Settings;
use cell_terms::{Csn, Durability, Epoch, NodeId, PairId, Root};
use cell_test_kit::{NODE, Process};
use cell_wal::sim::{SimDevice, SimDisk};

const MS: u64 = 1_000_000;
const EVERY_NS: u64 = 50 * MS;
/// Steps of a takeover here, at most.
const STEPS_MAX: u32 = 10_000;
const GEOMETRY: PairGeometry = PairGeometry {
    node_region_bytes: 4096 + 4 * (64 << 10),
    extent_region_bytes: 4 << 20,
    slot_bytes: 64 << 10,
    node_bytes: 512,
};

/// A node of a cluster, with what its driver asks its shell for.
struct Node {
    sim: Sim,
    process: Process,
    driver: ControlDriver<SimDevice>,
    jobs: TakeoverQueue,
    notified: Vec<ControlEvent>,
    served: Vec<PairId>,
    tuned: Vec<u64>,
}

/// A node that has joined a cluster of so many.
fn join(nodes: u32) -> Node {
    let (sim, disk) = (Sim::new(1), SimDisk::new(2));
    let process = Process::start(&disk, &sim);
    let (incarnation, environment) = (process.lease, &process.environment);
    let coordinator: Arc<dyn Coordinator> = Arc::new(process.link.clone());
    let row = MemberRow {
        incarnation,
        node: NODE,
        fabric: "sim:0".to_owned(),
        http: String::new(),
        pid: 1,
        memory_limit_bytes: 0,
    };
    let wanted = || Ok::<_, RecoveryError>((Layout::even(nodes, 1), GEOMETRY));
    let host = environment.table.host();
    let terms = ClusterTerms::new(1, host, Durability::Sync, LeaseTerms::new(500, 0.05));
    let joining = Joining { terms, host, home: "node-0".to_owned() };
    join_cluster(environment, &row, wanted, |_| Ok(joining)).unwrap();
    let options =
        MembershipOptions { incarnation, node: NODE, joined_ns: sim.now_ns(), grace_ns: 2_000 * MS };
    let progress = Arc::new(Progress::new(sim.now_ns()));
    let driver = ControlDriver::new(environment, &coordinator, options, EVERY_NS, progress);
    let (jobs, notified, served, tuned) = (TakeoverQueue::default(), Vec::new(), Vec::new(), Vec::new());
    Node { sim, process, driver, jobs, notified, served, tuned }
}

impl Node {
    fn publish(&self) -> PublishRequest {
        self.process.publish_request(Durability::Sync)
    }

    /// Steps a takeover to its end, and notifies the driver.
    fn complete(&mut self, mut run: TakeoverRun) {
        let (pair, dead) = (run.pair(), run.dead());
        let mut device = self.process.disk.device_alone();
        for _ in 0..STEPS_MAX {
            match run.step(&mut device, || self.sim.now_ns()).unwrap() {
                Turn::More => {}
                Turn::Wait(for_ns) => {
                    assert!(self.process.pause(for_ns.min(10 * MS)));
                }
                Turn::Done => break,
            }
        }
        let (recovered, times) = run.finish();
        assert!(times.claimed_ms <= times.cut_ms && times.cut_ms <= times.serving_ms, "{times:?}");
        let settings = Settings::new(&[
            SETTINGS,
            cell_cluster::SETTINGS,
            cell_memory::SETTINGS,
            cell_wal::SETTINGS,
            cell_fabric::SETTINGS,
        ]);
        let options = WorkerOptions { tree_node_bytes: 512, ..WorkerOptions::from_settings(&settings) };
        let store = Pair::new(recovered, &options.pair);
        match dead {
            Some(dead) => {
                self.driver.times(pair, dead, times);
                let effect = self.driver.taken(store, device);
                self.follow(effect);
            }
            None => {
                let effects = self.driver.created(store, device);
                self.follow(effects);
            }
        }
    }

    /// Begins to create a pair.
    fn create(&self) -> Result<TakeoverRun, RecoveryError> {
        let new = NewPair { incarnation: self.process.lease, node: NODE, geometry: GEOMETRY };
        let progress = Arc::new(Progress::new(0));
        TakeoverRun::create(&self.process.environment, &new, self.publish(), &progress)
    }

    fn look(&mut self) {
        let effects = self.driver.look(self.sim.now_ns()).unwrap();
        self.follow(effects);
    }

    fn next_job(&mut self) -> TakeoverJob {
        self.jobs.take_smallest().expect("a pair is to be taken over")
    }

    fn take_next(&mut self) {
        let job = self.next_job();
        self.complete(TakeoverRun::begin(&self.process.environment, job, self.publish()));
    }

    fn follow(&mut self, effects: impl IntoIterator<Item = ControlEffect<SimDevice>>) {
        for effect in effects {
            match effect {
                ControlEffect::Notify(event) => self.notified.push(event),
                ControlEffect::Install { pairs, .. } => {
                    self.served.extend(pairs.iter().map(|(store, _)| store.id()));
                }
                ControlEffect::AddPair(pair) => self.served.push(pair.0.id()),
                ControlEffect::TakeOver(jobs) => self.jobs.push(jobs),
                ControlEffect::HoldGrowth(_) => {}
                ControlEffect::Tune(tuning) => self.tuned.push(tuning.revision),
                ControlEffect::Create => {
                    let run = self.create().unwrap();
                    self.complete(run);
                }
                ControlEffect::Check { .. } | ControlEffect::WriteImage(_) | ControlEffect::Copy(_) => {
                    panic!("nobody asked for it")
                }
            }
        }
    }

    fn image(&mut self, pair: PairId) -> ImageJob {
        let base = ImageBase {
            csn: Csn(1),
            csn_appended: Csn(1),
            root: Root::NONE,
            slots: Vec::new(),
            completions: CompletionTable::default(),
            splits: Vec::new(),
            attempt: 1,
        };
        let command = CheckpointCommand::WriteImage { base: Box::new(base) };
        match self.driver.carry_out(Command::Checkpoint(pair, command)) {
            Some(ControlEffect::WriteImage(job)) => job,
            _ => panic!("no image is to be written"),
        }
    }

    /// Records an image; whether that was done.
    fn record(&mut self, pair: PairId) -> bool {
        let command = CheckpointCommand::Record { base: Csn(1), csn_max: Csn(1) };
        match self.driver.carry_out(Command::Checkpoint(pair, command)) {
            Some(ControlEffect::Notify(ControlEvent::CheckpointRecorded { pair: of, recorded })) => {
                assert_eq!(of, pair);
                recorded
            }
            _ => panic!("the worker is not notified"),
        }
    }
}

#[test]
fn own_pair_is_taken_and_installed_and_one_more_is_created() {
    let mut node = join(1);
    node.look();
    assert!(node.served.is_empty());
    node.take_next();
    assert!(node.driver.is_gathering(), "the cluster is looked at once more before");
    node.look();
    assert!(!node.driver.is_gathering());
    assert_eq!(node.served, [PairId(1)]);
    assert!(node.notified.iter().any(|event| matches!(event, ControlEvent::Cluster(_))));

    let meant_for = Some(NodeId(NODE.0 + 1));
    let effect = node.driver.carry_out(Command::AddPair { meant_for });
    node.follow(effect);
    assert_eq!(node.served, [PairId(1), PairId(2)]);
    let added = |event: &ControlEvent| match event {
        ControlEvent::PairAdded { pair, meant_for } => Some((*pair, *meant_for)),
        _ => None,
    };
    assert_eq!(node.notified.last().and_then(added), Some((PairId(2), meant_for)));
    assert_eq!(node.driver.ownerships().map(|ownership| ownership.pair.0).collect::<Vec<_>>(), [1, 2]);

    node.driver.release();
    let (rows, _) = node.process.environment.table.pairs().unwrap();
    assert!(rows.iter().all(|row| row.owner.is_none()), "{rows:?}");
}

/// The layout was asked for when the row was there: without an answer the pair stayed New.
#[test]
fn creation_one_of_whose_calls_has_no_answer_leaves_no_row_or_goes_on() {
    for call in 0..3 {
        let node = join(1);
        let faults = [Fault::None; 2].into_iter().take(call).chain([Fault::Lost]);
        node.process.link.plan(faults);
        let created = node.create().map(|run| run.pair()).ok();
        node.process.link.mend();
        let (rows, _) = node.process.environment.table.pairs().unwrap();
        let pairs: Vec<_> = rows.iter().map(|row| row.pair).collect();
        let expected: Vec<_> = [PairId(1)].into_iter().chain(created).collect();
        assert_eq!(pairs, expected, "call {call}");
    }
}

/// Its pair was New, and not served, for as long as its owner lived.
#[test]
fn pair_of_a_creation_that_was_given_up_is_taken_over_by_its_owner() {
    let mut node = join(1);
    node.look();
    node.take_next();
    node.look();
    let effect = node.driver.carry_out(Command::AddPair { meant_for: None });
    assert!(matches!(effect, Some(ControlEffect::Create)));
    // Layout, counter and transaction: what was tried is looked for in vain.
    node.process.link.plan([Fault::None, Fault::None, Fault::AnswerLost]);
    node.process.link.plan([Fault::Lost; 100]);
    assert!(node.create().is_err_and(|error| error.is_transient()));
    node.process.link.mend();
    let row = node.process.environment.table.pair(PairId(2)).unwrap();
    assert_eq!((row.owner, row.state), (Some(node.process.lease), PairState::New));
    node.look();
    assert!(node.jobs.take_smallest().is_none(), "for all that is known here it is being created");

    let effect = node.driver.not_created();
    node.follow([effect]);
    assert!(matches!(node.notified.last(), Some(ControlEvent::PairRefused)));
    node.look();
    node.take_next();
    assert_eq!(node.served, [PairId(1), PairId(2)]);
    let row = node.process.environment.table.pair(PairId(2)).unwrap();
    assert_eq!((row.epoch, row.state), (Epoch(2), PairState::Serving));
}

/// A creation that fails after its row was written is no other case: its run is dropped.
#[test]
fn pair_of_a_creation_that_was_dropped_half_way_is_taken_over_by_its_owner() {
    let mut node = join(1);
    node.look();
    node.take_next();
    node.look();
    assert!(node.driver.carry_out(Command::AddPair { meant_for: None }).is_some());
    let mut run = node.create().unwrap();
    let mut device = node.process.disk.device_alone();
    for _ in 0..4 {
        run.step(&mut device, || node.sim.now_ns()).unwrap();
    }
    drop((run, device));
    let effect = node.driver.not_created();
    node.follow([effect]);
    node.look();
    node.take_next();
    assert_eq!(node.served, [PairId(1), PairId(2)]);
}

#[test]
fn tuning_is_sent_once_a_revision_also_to_a_node_that_joins_later() {
    let mut node = join(1);
    let tuning = Tuning::new(Arc::new(node.process.link.clone()));
    let change = |revision, text: &str| {
        let values = [("split_fill_percent".to_owned(), Some(text.to_owned()))].into();
        tuning.change(revision, &WantedTuning { id: revision, values, ..WantedTuning::default() }).unwrap()
    };
    change(0, "70");
    node.look();
    assert_eq!(node.tuned, [1]);
    node.look();
    change(1, "80");
    node.look();
    assert_eq!(node.tuned, [1, 2]);
    let notified = node.notified.iter().rev().find_map(|event| match event {
        ControlEvent::Cluster(cluster) => Some(cluster.tuning.values["split_fill_percent"].text.clone()),
        _ => None,
    });
    assert_eq!(notified.as_deref(), Some("80"));
}

#[test]
fn refused_pair_ends_a_node_that_is_alone_and_stopped_node_takes_nothing_over() {
    let mut node = join(1);
    node.look();
    let job = node.next_job();
    let (pair, dead) = (job.claim.pair, job.dead);
    assert!(!node.driver.refused(pair, dead, RefusedKind::Passing, node.sim.now_ns()));

    let mut node = join(1);
    node.driver.stop();
    node.look();
    assert!(node.jobs.take_smallest().is_none());
}

#[test]
fn image_is_recorded_once_and_one_that_failed_is_not() {
    let mut node = join(1);
    node.look();
    node.take_next();
    node.look();
    let pair = PairId(1);
    assert!(!node.record(pair), "there is no image");

    let storage = node.process.environment.storage.clone();
    let mut turn = node.image(pair).begin(storage.clone(), 1);
    while let ImageTurn::More(run) = turn {
        turn = run.step(1);
    }
    assert!(matches!(turn, ImageTurn::Written(ImageEnd { written: Ok(Csn(1)), .. })));
    assert!(node.record(pair));
    assert!(!node.record(pair), "it is recorded already");

    let mut turn = node.image(pair).begin(storage, 1);
    while let ImageTurn::More(run) = turn {
        turn = run.step(1);
    }
    let disk = node.process.disk.process();
    let mut turn = node.image(pair).begin(Arc::new(disk.clone()), 1);
    disk.kill();
    while let ImageTurn::More(run) = turn {
        turn = run.step(1);
    }
    let ImageTurn::Failed { end: ImageEnd { written: Err(CheckpointFailure::Disk(_)), .. }, .. } = turn
    else {
        panic!("an image is written on a disk that does not answer");
    };
    assert!(!node.record(pair), "nor is the one before");
}
