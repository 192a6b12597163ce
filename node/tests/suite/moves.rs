//! Planned moves between two nodes' control sides, over one simulated coordinator and disk. The workers are
//! the test's: they freeze a pair at once.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::sync::Arc;

use cell_cluster::{
    ClaimReason, ClusterTerms, Coordinator, Joining, Layout, LeaseTerms, MemberRow, MoveOutcome, MoveStage,
    Moves, PairGeometry, PairRow, Sim,
};
use cell_node::{
    Command, ControlDriver, ControlEffect, ControlEvent, CopyEnd, CopyJob, CopyRun, MembershipOptions,
    MoveCounts, MoveEndCounts, SETTINGS, StayReason, TakeoverQueue, TakeoverRun, WorkerOptions, join_cluster,
};
use cell_pair::Pair;
use cell_recovery::{Progress, Recovered, RecoveryError, Turn};
use cell_terms::setting::Settings;
use cell_terms::{Csn, Durability, Epoch, NodeId, PairId};
use cell_test_kit::Process;
use cell_wal::sim::{SimDevice, SimDisk};

const MS: u64 = 1_000_000;
const EVERY_NS: u64 = 50 * MS;
/// What the wall clock shows when the simulation begins.
const WALL_ZERO_MS: u64 = 1_000_000;
const PAIR: PairId = PairId(1);
const ROUNDS_MAX: u32 = 20_000;
const GEOMETRY: PairGeometry = PairGeometry {
    node_region_bytes: 4096 + 4 * (64 << 10),
    extent_region_bytes: 4 << 20,
    slot_bytes: 64 << 10,
    node_bytes: 512,
};

struct Node {
    sim: Sim,
    process: Process,
    row: MemberRow,
    driver: ControlDriver<SimDevice>,
    jobs: TakeoverQueue,
    copy: Option<(CopyJob, CopyRun, SimDevice)>,
    /// Copies stand still.
    is_stuck: bool,
    /// What they read at most; zero: as fast as may be.
    bytes_per_second: u64,
    /// The worker is at it when it was to freeze a pair, for ever.
    is_slow: bool,
    /// What the worker answers, in place of freezing a pair.
    stays: Option<StayReason>,
    /// Freezes that were not ended yet.
    frozen: Vec<u64>,
    thawed: u32,
    /// The worker's pairs.
    served: Vec<Pair>,
    /// How many of them came with the memory that they had had here.
    kept: u32,
}

fn join(sim: &Sim, disk: &SimDisk, node: u32) -> Node {
    let process = Process::start(disk, sim);
    let (incarnation, environment, node) = (process.lease, &process.environment, NodeId(node));
    let coordinator: Arc<dyn Coordinator> = Arc::new(process.link.clone());
    let row = MemberRow {
        incarnation,
        node,
        fabric: format!("sim:{}", node.0),
        http: String::new(),
        pid: 1,
        memory_limit_bytes: 0,
    };
    let wanted = || Ok::<_, RecoveryError>((Layout::even(2, 1), GEOMETRY));
    let host = environment.table.host();
    let terms = ClusterTerms::new(1, host, Durability::Sync, LeaseTerms::new(500, 0.05));
    let joining = Joining { terms, host, home: format!("node-{}", node.0) };
    join_cluster(environment, &row, wanted, |_| Ok(joining)).unwrap();
    let options = MembershipOptions { incarnation, node, joined_ns: sim.now_ns(), grace_ns: 2_000 * MS };
    let progress = Arc::new(Progress::new(sim.now_ns()));
    let mut driver = ControlDriver::new(environment, &coordinator, options, EVERY_NS, progress);
    driver.set_wall_zero_ms(WALL_ZERO_MS);
    Node {
        sim: sim.clone(),
        process,
        row,
        driver,
        jobs: TakeoverQueue::default(),
        copy: None,
        is_stuck: false,
        bytes_per_second: 0,
        is_slow: false,
        stays: None,
        frozen: Vec::new(),
        thawed: 0,
        served: Vec::new(),
        kept: 0,
    }
}

fn store(recovered: Recovered) -> Pair {
    let settings = Settings::new(&[
        SETTINGS,
        cell_cluster::SETTINGS,
        cell_memory::SETTINGS,
        cell_wal::SETTINGS,
        cell_fabric::SETTINGS,
    ]);
    let options = WorkerOptions { tree_node_bytes: 512, ..WorkerOptions::from_settings(&settings) };
    Pair::new(recovered, &options.pair)
}

impl Node {
    fn pair(&self) -> PairRow {
        self.process.environment.table.pair(PAIR).unwrap()
    }

    fn serves(&self) -> bool {
        self.served.iter().any(|served| served.id() == PAIR)
    }

    fn owns(&self) -> bool {
        self.driver.ownerships().any(|own| own.pair == PAIR)
    }

    /// One look, if it is due, and what follows.
    fn turn(&mut self) {
        self.process.link.keep_alive(self.process.lease).unwrap();
        self.process.disk.step();
        if self.sim.now_ns() >= self.driver.due_ns() {
            let effects = self.driver.look(self.sim.now_ns()).unwrap();
            effects.into_iter().for_each(|effect| self.follow(effect));
        }
        self.step_copy();
    }

    /// Takes over what it is to take over.
    fn take_over(&mut self) {
        while let Some(job) = self.jobs.take_smallest() {
            let publish = self.process.publish_request(Durability::Sync);
            let mut run = TakeoverRun::begin(&self.process.environment, job, publish);
            self.kept += u32::from(run.is_kept());
            let mut device = self.process.disk.device_alone();
            loop {
                match run.step(&mut device, || self.sim.now_ns()).unwrap() {
                    Turn::More => {}
                    Turn::Wait(for_ns) => assert!(self.process.pause(for_ns.min(MS))),
                    Turn::Done => break,
                }
            }
            let (recovered, _) = run.finish();
            let effect = self.driver.taken(store(recovered), device);
            effect.into_iter().for_each(|effect| self.follow(effect));
        }
    }

    fn step_copy(&mut self) {
        let Some((job, mut run, mut device)) = self.copy.take_if(|_| !self.is_stuck) else { return };
        match run.step(&mut device, self.sim.now_ns(), self.bytes_per_second) {
            Ok(Turn::Done) => {
                let effect = self.driver.taken(store(run.finish()), device);
                effect.into_iter().for_each(|effect| self.follow(effect));
                self.driver.copied(&job, CopyEnd::Served);
            }
            Ok(Turn::More | Turn::Wait(_)) => self.copy = Some((job, run, device)),
            Err(error) => self.driver.copied(&job, CopyEnd::of(&error, job.row.epoch)),
        }
    }

    fn follow(&mut self, effect: ControlEffect<SimDevice>) {
        match effect {
            ControlEffect::Notify(event) => self.notify_worker(event),
            ControlEffect::Install { pairs, .. } => {
                self.served.extend(pairs.into_iter().map(|(store, _)| store));
            }
            ControlEffect::AddPair(pair) => self.served.push(pair.0),
            ControlEffect::TakeOver(jobs) => self.jobs.push(jobs),
            ControlEffect::Copy(job) => {
                let (environment, publish) =
                    (&self.process.environment, self.process.publish_request(Durability::Sync));
                let run = CopyRun::begin(environment, job.clone(), publish, self.sim.now_ns()).unwrap();
                self.copy = Some((job, run, self.process.disk.device_alone()));
            }
            _ => {}
        }
    }

    fn notify_worker(&mut self, event: ControlEvent) {
        let epoch = self.driver.ownerships().find(|own| own.pair == PAIR).map_or(Epoch(0), |own| own.epoch);
        let answer = match event {
            ControlEvent::Freeze { pair, ticket } => match self.stays {
                Some(why) => Command::Stays { pair, why },
                None => {
                    self.frozen.push(ticket);
                    if self.is_slow {
                        return;
                    }
                    let now_ns = self.sim.now_ns();
                    Command::Frozen { pair, ticket, epoch, cut: Csn::ZERO, since_ns: now_ns, now_ns }
                }
            },
            ControlEvent::Thaw { ticket, .. } => {
                assert_eq!(self.frozen.pop(), Some(ticket));
                self.thawed += 1;
                return;
            }
            ControlEvent::Handed { pair, ticket } => {
                assert_eq!(self.frozen.pop(), Some(ticket));
                let at = self.served.iter().position(|served| served.id() == pair).unwrap();
                let frozen = Some(Box::new(self.served.remove(at)));
                Command::Left { pair, epoch, cut: Csn::ZERO, handed: true, frozen }
            }
            _ => return,
        };
        let effect = self.driver.carry_out(answer);
        effect.into_iter().for_each(|effect| self.follow(effect));
    }
}

/// Two nodes that serve a pair each.
fn two_nodes() -> (Sim, SimDisk, [Node; 2]) {
    let (sim, disk) = (Sim::new(1), SimDisk::new(2));
    let mut nodes = [0, 1].map(|node| join(&sim, &disk, node));
    for _ in 0..3 {
        for node in &mut nodes {
            node.turn();
            node.take_over();
        }
        sim.advance(EVERY_NS);
    }
    assert!(nodes.iter().all(|node| node.served.len() == 1), "each has its own");
    (sim, disk, nodes)
}

/// Turns of both until something is so; what is waited for is said if it never is.
fn until(sim: &Sim, nodes: &mut [Node; 2], what: &str, mut is_so: impl FnMut(&mut [Node; 2]) -> bool) {
    for _ in 0..ROUNDS_MAX {
        if is_so(nodes) {
            return;
        }
        sim.advance(MS);
        nodes.iter_mut().for_each(Node::turn);
    }
    panic!("it never comes: {what}");
}

fn moves(sim: &Sim) -> Moves {
    Moves::new(Arc::new(sim.link()))
}

fn begin(sim: &Sim, nodes: &[Node; 2]) {
    moves(sim).begin(PAIR, &nodes[1].row, "test").unwrap();
}

fn outcome(sim: &Sim) -> Option<MoveOutcome> {
    moves(sim).of(PAIR).unwrap().unwrap().outcome
}

/// Both ends count a move that has gone well, and its row says when that was.
fn has_counted_and_dated_it(sim: &Sim, nodes: &mut [Node; 2]) {
    let counts = |nodes: &[Node; 2]| nodes.each_ref().map(|node| node.driver.move_counts());
    until(sim, nodes, "the counts of both ends", |nodes| {
        let [of_source, of_target] = counts(nodes);
        of_source.source.moved == 1 && of_target.target.moved == 1
    });
    let [of_source, of_target] = counts(nodes);
    let ended = MoveEndCounts { started: 1, moved: 1, ..MoveEndCounts::default() };
    assert_eq!((of_source.source, of_source.target), (ended, MoveEndCounts::default()));
    assert_eq!((of_target.source, of_target.target), (MoveEndCounts::default(), ended));
    let of = moves(sim).of(PAIR).unwrap().unwrap();
    assert!(of_target.copied_bytes >= of.bytes_done && of_source.copied_bytes == 0);
    let times = |counts: &MoveCounts| [&counts.took, &counts.frozen].map(|of| of.buckets.iter().sum::<u64>());
    assert_eq!((times(&of_source), times(&of_target)), ([0, 0], [1, 1]));
    assert!(of_target.frozen.sum_ms <= of_target.took.sum_ms, "{of_target:?}");
    assert_eq!((of_source.still_since_ns, of_target.still_since_ns), (None, None));
    let times = of.times;
    let order = [times.copying_ms, times.ready_ms, times.frozen_ms, times.handed_ms, times.over_ms];
    assert!(order.is_sorted() && order[0] >= WALL_ZERO_MS, "{times:?}");
}

#[test]
fn pair_moves_while_both_nodes_live_and_its_source_keeps_the_others() {
    let (sim, _disk, mut nodes) = two_nodes();
    begin(&sim, &nodes);
    until(&sim, &mut nodes, "the move's end", |_| outcome(&sim).is_some());
    assert_eq!(outcome(&sim), Some(MoveOutcome::Moved));
    let row = nodes[1].pair();
    assert_eq!((row.owner, row.epoch, row.is_published()), (Some(nodes[1].row.incarnation), Epoch(2), true));
    assert!(nodes[1].owns() && nodes[1].serves());
    assert!(!nodes[0].owns() && !nodes[0].serves());
    assert!(nodes[0].frozen.is_empty() && nodes[0].thawed == 0);
    assert!(nodes.iter_mut().all(|node| node.jobs.take_smallest().is_none()), "nobody took anything over");
    has_counted_and_dated_it(&sim, &mut nodes);
    // And back.
    moves(&sim).begin(PAIR, &nodes[0].row, "test").unwrap();
    nodes.swap(0, 1);
    until(&sim, &mut nodes, "the way back", |_| outcome(&sim).is_some());
    assert_eq!(outcome(&sim), Some(MoveOutcome::Moved));
    assert!(nodes[1].owns() && nodes[1].pair().epoch == Epoch(3));
}

/// Their move was shown as under way for ever.
#[test]
fn move_whose_ends_have_both_died_is_closed_by_another_member() {
    let (sim, disk, mut nodes) = two_nodes();
    nodes[1].is_stuck = true;
    begin(&sim, &nodes);
    until(&sim, &mut nodes, "a copy", |nodes| nodes[1].copy.is_some());
    drop(nodes);
    let mut survivor = join(&sim, &disk, 2);
    for _ in 0..ROUNDS_MAX {
        sim.advance(MS);
        survivor.turn();
        if let Some(outcome) = outcome(&sim) {
            assert!(matches!(outcome, MoveOutcome::GivenUp { why } if why.contains("both")));
            return;
        }
    }
    panic!("it is under way for ever");
}

/// What a copy that was ready lacked was read after the freeze, while nobody served the pair.
#[test]
fn copy_that_falls_behind_while_its_source_freezes_the_pair_is_waited_for() {
    let (sim, _disk, mut nodes) = two_nodes();
    nodes[0].is_slow = true;
    begin(&sim, &nodes);
    let stage = || moves(&sim).of(PAIR).unwrap().unwrap().stage;
    until(&sim, &mut nodes, "a freeze", |nodes| !nodes[0].frozen.is_empty());
    // What it has read would take many seconds at this rate. It has caught up all the same.
    nodes[1].bytes_per_second = 100;
    let until_ns = sim.now_ns() + 3_000 * MS;
    until(&sim, &mut nodes, "some seconds", |_| {
        assert_eq!(stage(), MoveStage::Ready, "nothing has come to the log");
        sim.now_ns() >= until_ns
    });
    nodes[1].is_stuck = true;
    until(&sim, &mut nodes, "the source serves on", |nodes| nodes[0].thawed == 1);
    assert_eq!((stage(), outcome(&sim)), (MoveStage::Copying, None));
    (nodes[0].is_slow, nodes[1].is_stuck) = (false, false);
    until(&sim, &mut nodes, "the move's end", |_| outcome(&sim).is_some());
    assert_eq!(outcome(&sim), Some(MoveOutcome::Moved));
}

/// A move up to the handing, after which the target does nothing.
fn handed_to_the_deaf() -> (Sim, SimDisk, [Node; 2]) {
    let (sim, disk, mut nodes) = two_nodes();
    begin(&sim, &nodes);
    let stage = || moves(&sim).of(PAIR).unwrap().unwrap().stage;
    until(&sim, &mut nodes, "readiness", |_| stage() >= MoveStage::Ready);
    nodes[1].is_stuck = true;
    until(&sim, &mut nodes, "the handing", |_| stage() == MoveStage::Handed);
    (sim, disk, nodes)
}

/// Until the source serves the pair again; its row.
fn served_again(sim: &Sim, nodes: &mut [Node; 2]) -> PairRow {
    until(sim, nodes, "service", |nodes| {
        nodes[0].take_over();
        nodes[0].owns() && nodes[0].serves()
    });
    let row = nodes[0].pair();
    assert!(row.is_published() && row.owner == Some(nodes[0].row.incarnation));
    row
}

#[test]
fn target_that_stands_still_after_the_handing_loses_the_pair_to_its_source_which_has_its_memory_still() {
    let (sim, _disk, mut nodes) = handed_to_the_deaf();
    let handed_ns = sim.now_ns();
    assert!(!nodes[0].owns() && !nodes[0].serves());
    until(&sim, &mut nodes, "the way back", |nodes| {
        assert!(nodes[1].jobs.take_smallest().is_none(), "its target claims nothing beside its copy");
        outcome(&sim).is_some()
    });
    assert!(matches!(outcome(&sim), Some(MoveOutcome::Back { .. })));
    assert!(sim.now_ns() - handed_ns >= 900 * MS, "not before it has had its time");
    let row = served_again(&sim, &mut nodes);
    assert_eq!((row.epoch, nodes[0].kept), (Epoch(3), 1), "without another claim");
    let served = nodes[0].served.iter().find(|served| served.id() == PAIR).unwrap();
    let marks = served.source().node.watermark();
    assert_eq!((served.epoch(), marks.epoch, served.has_log()), (Epoch(3), Epoch(3), true));
    nodes[1].is_stuck = false;
    until(&sim, &mut nodes, "the end of the copy", |nodes| nodes[1].copy.is_none());
    assert!(!nodes[1].owns());
    // Once more, and on to the target.
    begin(&sim, &nodes);
    until(&sim, &mut nodes, "the next move's end", |_| outcome(&sim).is_some());
    assert_eq!((outcome(&sim), nodes[1].pair().epoch), (Some(MoveOutcome::Moved), Epoch(4)));
}

#[test]
fn pair_that_its_target_gives_back_is_read_from_its_logs() {
    let (sim, _disk, mut nodes) = handed_to_the_deaf();
    let of = moves(&sim).of(PAIR).unwrap().unwrap();
    nodes[1].process.environment.table.take_back(&of, "test").unwrap();
    let row = served_again(&sim, &mut nodes);
    assert_eq!((row.epoch, nodes[0].kept), (Epoch(4), 0), "the source has not seen who had it");
}

#[test]
fn node_that_stops_takes_nothing_back_and_keeps_no_memory() {
    let (sim, _disk, mut nodes) = handed_to_the_deaf();
    nodes[0].driver.stop();
    let handed_ns = sim.now_ns();
    until(&sim, &mut nodes, "two seconds", |_| sim.now_ns() >= handed_ns + 2_000 * MS);
    assert_eq!(outcome(&sim), None);
    nodes[1].is_stuck = false;
    until(&sim, &mut nodes, "the move's end", |_| outcome(&sim).is_some());
    assert_eq!((outcome(&sim), nodes[1].owns(), nodes[0].kept), (Some(MoveOutcome::Moved), true, 0));
}

/// The pair has come back by the source's own write, and then there is another row before the memory is used.
fn frozen_memory_counts_under_one_row() {
    let (sim, _disk, mut nodes) = handed_to_the_deaf();
    until(&sim, &mut nodes, "the way back", |_| outcome(&sim).is_some());
    assert_eq!(nodes[0].pair().epoch, Epoch(3));
    let (table, row) = (&nodes[0].process.environment.table, &nodes[0].row);
    table.claim(PAIR, row.incarnation, row.node, ClaimReason::HostLock).unwrap();
    let row = served_again(&sim, &mut nodes);
    assert_eq!((row.epoch, nodes[0].kept), (Epoch(5), 0));
}

#[test]
fn frozen_memory_is_thrown_away_after_another_row() {
    frozen_memory_counts_under_one_row();
}

#[test]
#[cfg(debug_assertions)]
fn mutant_frozen_served_after_another_row_is_caught() {
    use cell_terms::mutant::{Mutant, plant};
    cell_terms::mutant::in_own_process(|| {
        plant(Some(Mutant::FrozenServedAfterAnotherRow));
        let passed = std::panic::catch_unwind(frozen_memory_counts_under_one_row).is_ok();
        plant(None);
        assert!(!passed);
        println!("mutant {} caught by cell-node's moves", Mutant::FrozenServedAfterAnotherRow.name());
    });
}

#[test]
fn move_that_is_cancelled_or_whose_pair_does_not_settle_leaves_the_pair_where_it_was() {
    let (sim, _disk, mut nodes) = two_nodes();
    nodes[1].is_stuck = true;
    begin(&sim, &nodes);
    until(&sim, &mut nodes, "a copy", |nodes| nodes[1].copy.is_some());
    let name = moves(&sim).of(PAIR).unwrap().unwrap().name();
    moves(&sim).end(name, &MoveOutcome::Cancelled).unwrap();
    nodes[1].is_stuck = false;
    until(&sim, &mut nodes, "the end of the copy", |nodes| nodes[1].copy.is_none());
    nodes[0].stays = Some(StayReason::Splits);
    begin(&sim, &nodes);
    until(&sim, &mut nodes, "the move's end", |_| outcome(&sim).is_some());
    assert!(matches!(outcome(&sim), Some(MoveOutcome::GivenUp { why }) if why.contains("split")));
    until(&sim, &mut nodes, "the end of the copy", |nodes| nodes[1].copy.is_none());
    let row = nodes[0].pair();
    assert_eq!((row.owner, row.epoch), (Some(nodes[0].row.incarnation), Epoch(1)));
    assert!(nodes[0].owns());
}
