//! What a cluster of many nodes asks of its coordinator, idle and busy: the control drivers and the lease
//! keepers of its nodes over the simulated one, with all counted that passes its interface. What the test
//! prints is the table: `cargo nextest run -p cell-node --no-capture coordinator_calls`.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cell_cluster::{
    CheckpointRow, ClusterError, Coordinator, CoordinatorRequest, CopyProgress, KeyValue, LeaseCommand,
    LeaseKeeper, LeaseTerms, MemberRow, Members, MoveOutcome, Moves, NewPair, Notices, Ownership,
    PairGeometry, Renewal, Response, Sessions, Sim, SimLink, Table,
};
use cell_node::{
    BalanceOptions, BalanceRules, Command, ControlDriver, ControlEffect, MembershipOptions, PairUse,
    WorkerFigures,
};
use cell_recovery::Progress;
use cell_terms::{Csn, Durability, Epoch, Incarnation, NodeId};
use cell_test_kit::{OPTIONS, environment, serving_address};
use cell_wal::sim::{SimDevice, SimDisk};

const MS: u64 = 1_000_000;
const NODES: [u32; 2] = [10, 50];
const PAIRS: [u32; 3] = [50, 250, 1_000];
const LEASE_MS: u64 = 500;
/// Four looks a second at least; by default (`membership_poll_ms`) there are twenty.
const LOOK_NS: u64 = 250 * MS;
const STEP_NS: u64 = 50 * MS;
const STEPS_A_SECOND: u64 = 20;
/// Until all have looked and reported; together with what is measured less than balance's window, within
/// which a new balancer moves nothing.
const WARM_S: u64 = 16;
const MEASURED_S: u64 = 30;
/// What a whole busy cluster does in a second, whatever its size.
const CHECKPOINTS: usize = 10;
const SESSIONS: usize = 5;
const SPLITS: usize = 2;
const GEOMETRY: PairGeometry =
    PairGeometry { node_region_bytes: 4, extent_region_bytes: 4, slot_bytes: 1, node_bytes: 1 };
/// Figures are reported so often while nothing changes: four times a window of a minute.
const REPORT_EVERY_S: u64 = 15;
/// Bytes of a row of figures at most, without pairs and for each pair.
const ROW_BYTES: u64 = 400;
const PAIR_BYTES: u64 = 96;

/// What has passed the coordinator's interface.
#[derive(Debug, Default)]
struct Counts {
    calls: BTreeMap<&'static str, u64>,
    /// Rows that were read, and their bytes.
    rows: u64,
    bytes: u64,
}

impl Counts {
    fn all_calls(&self) -> u64 {
        self.calls.values().sum()
    }
}

/// A coordinator whose calls are counted.
struct Counted {
    link: SimLink,
    counts: Mutex<Counts>,
}

impl Coordinator for Counted {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        let answered = self.link.call(request);
        let bytes = |row: &KeyValue| (row.key.len() + row.value.len()) as u64;
        let read: Vec<u64> = match &answered {
            Ok(Response::Value(row)) => row.iter().map(bytes).collect(),
            Ok(Response::Page(page)) => page.entries.iter().map(bytes).collect(),
            Ok(Response::Changes { changes, .. }) => {
                let of_change =
                    |row: &Option<KeyValue>, key: &str| row.as_ref().map_or(key.len() as u64, bytes);
                changes.iter().map(|change| of_change(&change.value, &change.key)).collect()
            }
            _ => Vec::new(),
        };
        let mut counts = self.counts.lock().unwrap();
        *counts.calls.entry(kind(request)).or_default() += 1;
        counts.rows += read.len() as u64;
        counts.bytes += read.iter().sum::<u64>();
        answered
    }
}

fn kind(request: &CoordinatorRequest) -> &'static str {
    match request {
        CoordinatorRequest::Transact(_) => "writes",
        CoordinatorRequest::Read { .. } => "reads",
        CoordinatorRequest::List { .. } => "listings",
        CoordinatorRequest::ChangesSince { .. } => "looks",
        CoordinatorRequest::Grant { .. } => "grants",
        CoordinatorRequest::KeepAlive { .. } => "renewals",
        CoordinatorRequest::Remaining { .. } => "leases asked for",
        CoordinatorRequest::End { .. } => "leases ended",
    }
}

struct Node {
    member: MemberRow,
    keeper: LeaseKeeper,
    driver: ControlDriver<SimDevice>,
}

struct World {
    sim: Sim,
    counted: Arc<Counted>,
    table: Table,
    nodes: Vec<Node>,
    /// Each with the place of its node.
    owned: Vec<(usize, Ownership)>,
    second: u64,
}

impl Node {
    fn join(sim: &Sim, coordinator: &Arc<dyn Coordinator>, number: u32) -> Node {
        let (now_ns, node) = (sim.now_ns(), NodeId(number));
        let mut keeper = LeaseKeeper::new(LeaseTerms::new(LEASE_MS, 0.05));
        assert!(matches!(keeper.step(now_ns), LeaseCommand::Grant));
        let incarnation = coordinator.grant(LEASE_MS).unwrap().lease;
        keeper.answered(Renewal::Granted(incarnation), now_ns);
        let member = MemberRow {
            incarnation,
            node,
            fabric: format!("sim:{number}"),
            http: String::new(),
            pid: number,
            memory_limit_bytes: 0,
        };
        Members::new(coordinator.clone()).enter(&member).unwrap();
        let options = MembershipOptions { incarnation, node, joined_ns: now_ns, grace_ns: 2_000 * MS };
        let storage = Arc::new(SimDisk::new(0));
        let environment = environment(storage, coordinator.clone(), OPTIONS);
        let progress = Arc::new(Progress::new(now_ns));
        let driver = ControlDriver::new(&environment, coordinator, options, LOOK_NS, progress)
            .balancing(BalanceOptions::new(true, BalanceRules::default()));
        Node { member, keeper, driver }
    }

    fn step(&mut self, coordinator: &dyn Coordinator, now_ns: u64) {
        match self.keeper.step(now_ns) {
            LeaseCommand::Wait { .. } => {}
            LeaseCommand::Renew(lease) => {
                coordinator.keep_alive(lease).unwrap();
                self.keeper.answered(Renewal::Alive(None), now_ns);
            }
            _ => panic!("the lease is renewed in time"),
        }
        if now_ns >= self.driver.due_ns() {
            let effects = self.driver.look(now_ns).unwrap();
            assert!(!effects.iter().any(|effect| matches!(effect, ControlEffect::TakeOver(_))), "all live");
        }
    }
}

impl World {
    fn new(nodes: u32, pairs: u32) -> World {
        let sim = Sim::new(1);
        let counted = Arc::new(Counted { link: sim.link(), counts: Mutex::default() });
        let coordinator: Arc<dyn Coordinator> = counted.clone();
        let joined = (0..nodes).map(|number| Node::join(&sim, &coordinator, number)).collect();
        let table = Table::new(coordinator);
        let mut world = World { sim, counted, table, nodes: joined, owned: Vec::new(), second: 0 };
        for pair in 0..pairs {
            world.create((pair % nodes) as usize);
        }
        world
    }

    fn coordinator(&self) -> Arc<dyn Coordinator> {
        self.counted.clone()
    }

    fn lease(&self, at: usize) -> Incarnation {
        self.nodes[at].member.incarnation
    }

    /// A node makes a pair and serves it.
    fn create(&mut self, at: usize) -> Ownership {
        let new =
            NewPair { incarnation: self.lease(at), node: self.nodes[at].member.node, geometry: GEOMETRY };
        let ownership = self.table.create_pair(&new).unwrap().ownership;
        self.table.publish(ownership, Durability::Sync, &serving_address()).unwrap();
        self.owned.push((at, ownership));
        ownership
    }

    /// Some pair, another one each time.
    fn some(&self, number: usize) -> (usize, Ownership) {
        self.owned[number % self.owned.len()]
    }

    /// What all workers have: as ever, or a little more each second.
    fn report(&mut self, busy: bool) {
        let (now_ns, grown) = (self.sim.now_ns(), if busy { self.second } else { 0 });
        let bytes = (1 << 30) + grown * (16 << 20);
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let own = self.owned.iter().filter(|(of, _)| *of == at);
            let used = |(_, own): &(usize, Ownership)| PairUse {
                pair: own.pair,
                epoch: own.epoch,
                bytes,
                granted_bytes: bytes,
                work_ns: 0,
                hold: None,
            };
            let pairs = own.map(used).collect();
            let figures = WorkerFigures { at_ns: now_ns, pairs, ..WorkerFigures::default() };
            assert!(node.driver.carry_out(Command::Figures(Box::new(figures))).is_none());
        }
    }

    /// What puts, splits, moves and clients lead to.
    fn work(&mut self) {
        let first = usize::try_from(self.second).unwrap() * CHECKPOINTS;
        for number in first..first + CHECKPOINTS {
            let (_, ownership) = self.some(number);
            let csn = Csn(self.second);
            let row = CheckpointRow { epoch: ownership.epoch, csn, csn_max: csn, file: "image".into() };
            self.table.record_checkpoint(ownership, &row).unwrap();
        }
        let sessions = Sessions::new(self.coordinator());
        for number in first..first + SESSIONS {
            let (at, _) = self.some(number);
            let session = sessions.open(self.lease(at)).unwrap();
            sessions.end(session).unwrap();
        }
        for number in first..first + SPLITS {
            let (at, source) = self.some(number);
            let target = self.create((at + 1) % self.nodes.len());
            self.note_split(source, target);
        }
        self.move_one();
    }

    /// The two sides of a split say to each other that it has come so far, and at its end no more.
    fn note_split(&self, source: Ownership, target: Ownership) {
        let notices = Notices::new(self.coordinator());
        let text = "s".repeat(200);
        for (side, writer) in [("source", source), ("target", target)] {
            let key = format!("split/{}-{}/{side}", source.pair.0, target.pair.0);
            notices.set(&key, Some(&text), writer).unwrap();
            notices.set(&key, None, writer).unwrap();
        }
    }

    /// A pair of the node with the most moves to the one with the fewest.
    fn move_one(&mut self) {
        let count = |at: usize| self.owned.iter().filter(|(of, _)| *of == at).count();
        let from = (0..self.nodes.len()).max_by_key(|at| count(*at)).unwrap();
        let to = (0..self.nodes.len()).filter(|at| *at != from).min_by_key(|at| count(*at)).unwrap();
        let place = self.owned.iter().position(|(of, _)| *of == from).unwrap();
        let (_, source) = self.owned[place];
        let moves = Moves::new(self.coordinator());
        let name = moves.begin(source.pair, &self.nodes[to].member, "test").unwrap().name();
        moves.accept(name).unwrap();
        let copy = CopyProgress { bytes_done: 1, bytes_total: 1, is_ready: true, ..CopyProgress::default() };
        moves.progress(name, &copy).unwrap();
        self.table.hand(source, Csn(self.second), name).unwrap();
        let epoch = Epoch(source.epoch.0 + 1);
        let target = Ownership { pair: source.pair, epoch, incarnation: self.lease(to) };
        self.table.publish(target, Durability::Sync, &serving_address()).unwrap();
        moves.close(name, &MoveOutcome::Moved).unwrap();
        self.owned[place] = (to, target);
    }

    fn pass(&mut self, seconds: u64, busy: bool) {
        for _ in 0..seconds {
            self.second += 1;
            self.report(busy);
            if busy {
                self.work();
            }
            for _ in 0..STEPS_A_SECOND {
                self.sim.advance(STEP_NS);
                let now_ns = self.sim.now_ns();
                self.nodes.iter_mut().for_each(|node| node.step(&*self.counted, now_ns));
            }
        }
    }
}

/// What passes the interface within the seconds that are measured.
fn measure(nodes: u32, pairs: u32, busy: bool) -> Counts {
    let mut world = World::new(nodes, pairs);
    world.pass(WARM_S, busy);
    *world.counted.counts.lock().unwrap() = Counts::default();
    world.pass(MEASURED_S, busy);
    let counts = std::mem::take(&mut *world.counted.counts.lock().unwrap());
    let number = |count: u64| f64::from(u32::try_from(count).unwrap());
    let a_second = |count: u64| number(count) / number(MEASURED_S);
    let calls: Vec<_> =
        counts.calls.iter().map(|(kind, count)| format!("{kind} {:.1}", a_second(*count))).collect();
    println!(
        "{nodes} nodes, {pairs} pairs, {}: {:.1} calls a second ({}), {:.1} rows and {:.1} KiB read",
        if busy { "busy" } else { "idle" },
        a_second(counts.all_calls()),
        calls.join(", "),
        a_second(counts.rows),
        a_second(counts.bytes) / 1024.0,
    );
    counts
}

/// A twentieth more is the same: looks and reports fall on this or that side of a second.
fn about(count: u64) -> u64 {
    count + count / 20 + 20
}

#[test]
fn coordinator_calls_follow_the_nodes_and_not_the_pairs() {
    for busy in [false, true] {
        let [few, many] = NODES.map(|nodes| PAIRS.map(|pairs| measure(nodes, pairs, busy)));
        let more = u64::from(NODES[1] / NODES[0]);
        for (few, many) in few.iter().zip(&many) {
            let (calls, at_most) = (many.all_calls(), about(few.all_calls() * more));
            assert!(calls <= at_most, "a node's share grows with the nodes: {calls} calls, not {at_most}");
            // Each node reads what each one reports.
            let (rows, at_most) = (many.rows, about(few.rows * more * more));
            assert!(rows <= at_most, "{rows} rows, not {at_most}");
        }
        for (nodes, of_pairs) in NODES.iter().zip([&few, &many]) {
            for (pairs, counts) in PAIRS.iter().zip(of_pairs) {
                let (calls, rows) = (about(of_pairs[0].all_calls()), about(of_pairs[0].rows));
                assert!(counts.all_calls() <= calls, "{pairs} pairs at {nodes} nodes: {counts:?}");
                assert!(counts.rows <= rows, "{pairs} pairs at {nodes} nodes: {counts:?}");
            }
        }
        for (nodes, of_pairs) in NODES.iter().zip([&few, &many]).filter(|_| !busy) {
            for (pairs, counts) in PAIRS.iter().zip(of_pairs) {
                let row_bytes = u64::from(*nodes) * ROW_BYTES + u64::from(*pairs) * PAIR_BYTES;
                let at_most = u64::from(*nodes) * row_bytes * MEASURED_S / REPORT_EVERY_S;
                assert!(counts.bytes <= at_most, "{} bytes, not {at_most}", counts.bytes);
            }
        }
    }
}

#[test]
fn coordinator_calls_that_fail_count_too() {
    let counted = Counted { link: Sim::new(1).link(), counts: Mutex::default() };
    counted.link.set_cut(true);
    assert!(counted.read("a").is_err());
    assert_eq!(counted.counts.lock().unwrap().all_calls(), 1);
}
