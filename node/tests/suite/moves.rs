//! Planned moves between two nodes' control sides, over one simulated coordinator and disk. The workers are
//! the test's: they freeze a pair at once.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::sync::Arc;

use cell_cluster::{
    ClusterTerms, Coordinator, Joining, Layout, LeaseTerms, MemberRow, MoveOutcome, MoveStage, Moves,
    PairGeometry, PairRow, Sim,
};
use cell_node::{
    Command, ControlDriver, ControlEffect, ControlEvent, CopyEnd, CopyJob, CopyRun, MembershipOptions,
    SETTINGS, StayReason, TakeoverQueue, TakeoverRun, WorkerOptions, join_cluster,
};
use cell_pair::Pair;
use cell_recovery::{Progress, Recovered, RecoveryError, Turn};
use cell_terms::setting::Settings;
use cell_terms::{Csn, Durability, Epoch, NodeId, PairId};
use cell_test_kit::Process;
use cell_wal::sim::{SimDevice, SimDisk};

const MS: u64 = 1_000_000;
const EVERY_NS: u64 = 50 * MS;
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
    /// What the worker answers, in place of freezing a pair.
    stays: Option<StayReason>,
    /// Freezes that were not ended yet.
    frozen: Vec<u64>,
    thawed: u32,
    served: Vec<PairId>,
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
    let driver = ControlDriver::new(environment, &coordinator, options, EVERY_NS, progress);
    Node {
        sim: sim.clone(),
        process,
        row,
        driver,
        jobs: TakeoverQueue::default(),
        copy: None,
        is_stuck: false,
        stays: None,
        frozen: Vec::new(),
        thawed: 0,
        served: Vec::new(),
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
            let mut run = TakeoverRun::begin(&self.process.environment, &job, publish);
            let mut device = self.process.disk.device();
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
        match run.step(&mut device, self.sim.now_ns(), 0) {
            Ok(Turn::Done) => {
                let effect = self.driver.taken(store(run.finish()), device);
                effect.into_iter().for_each(|effect| self.follow(effect));
                self.driver.copied(&job, CopyEnd::Served);
            }
            Ok(Turn::More | Turn::Wait(_)) => self.copy = Some((job, run, device)),
            Err(error) => self.driver.copied(&job, CopyEnd::of(&error)),
        }
    }

    fn follow(&mut self, effect: ControlEffect<SimDevice>) {
        match effect {
            ControlEffect::Notify(event) => self.tell_worker(event),
            ControlEffect::Install { pairs, .. } => {
                self.served.extend(pairs.iter().map(|(store, _)| store.id()));
            }
            ControlEffect::AddPair(pair) => self.served.push(pair.0.id()),
            ControlEffect::TakeOver(jobs) => self.jobs.push(jobs),
            ControlEffect::Copy(job) => {
                let (environment, publish) =
                    (&self.process.environment, self.process.publish_request(Durability::Sync));
                let run = CopyRun::begin(environment, job.clone(), publish, self.sim.now_ns()).unwrap();
                self.copy = Some((job, run, self.process.disk.device()));
            }
            _ => {}
        }
    }

    fn tell_worker(&mut self, event: ControlEvent) {
        let epoch = self.driver.ownerships().find(|own| own.pair == PAIR).map_or(Epoch(0), |own| own.epoch);
        let answer = match event {
            ControlEvent::Freeze { pair, ticket } => match self.stays {
                Some(why) => Command::Stays { pair, why },
                None => {
                    self.frozen.push(ticket);
                    Command::Frozen { pair, ticket, epoch, cut: Csn::ZERO }
                }
            },
            ControlEvent::Thaw { ticket, .. } => {
                assert_eq!(self.frozen.pop(), Some(ticket));
                self.thawed += 1;
                return;
            }
            ControlEvent::Handed { pair, ticket } => {
                assert_eq!(self.frozen.pop(), Some(ticket));
                self.served.retain(|served| *served != pair);
                Command::Left { pair, epoch, cut: Csn::ZERO, handed: true }
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

#[test]
fn pair_moves_while_both_nodes_live_and_its_source_keeps_the_others() {
    let (sim, _disk, mut nodes) = two_nodes();
    begin(&sim, &nodes);
    until(&sim, &mut nodes, "the move's end", |_| outcome(&sim).is_some());
    assert_eq!(outcome(&sim), Some(MoveOutcome::Moved));
    let row = nodes[1].pair();
    assert_eq!((row.owner, row.epoch, row.is_published()), (Some(nodes[1].row.incarnation), Epoch(2), true));
    assert!(nodes[1].owns() && nodes[1].served.contains(&PAIR));
    assert!(!nodes[0].owns() && !nodes[0].served.contains(&PAIR));
    assert!(nodes[0].frozen.is_empty() && nodes[0].thawed == 0);
    assert!(nodes.iter_mut().all(|node| node.jobs.take_smallest().is_none()), "nobody took anything over");
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

#[test]
fn target_that_stands_still_after_the_handing_loses_the_pair_to_its_source_which_recovers_it() {
    let (sim, _disk, mut nodes) = two_nodes();
    begin(&sim, &nodes);
    let stage = || moves(&sim).of(PAIR).unwrap().unwrap().stage;
    until(&sim, &mut nodes, "readiness", |_| stage() >= MoveStage::Ready);
    nodes[1].is_stuck = true;
    until(&sim, &mut nodes, "the handing", |_| stage() == MoveStage::Handed);
    let handed_ns = sim.now_ns();
    until(&sim, &mut nodes, "the way back", |nodes| {
        assert!(nodes[1].jobs.take_smallest().is_none(), "its target claims nothing beside its copy");
        outcome(&sim).is_some()
    });
    assert!(matches!(outcome(&sim), Some(MoveOutcome::Back { .. })));
    assert!(sim.now_ns() - handed_ns >= 1_000 * MS, "not before it has had its time");
    until(&sim, &mut nodes, "service", |nodes| {
        nodes[0].take_over();
        nodes[0].owns()
    });
    let row = nodes[0].pair();
    assert!(row.is_published() && row.owner == Some(nodes[0].row.incarnation));
    nodes[1].is_stuck = false;
    until(&sim, &mut nodes, "the end of the copy", |nodes| nodes[1].copy.is_none());
    assert!(!nodes[1].owns());
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
