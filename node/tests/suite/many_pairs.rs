//! Issue 11, finding 3: a node of very many pairs dies. Its plan is not to grow out of what the coordinator
//! takes: over the simulated one, and over the embedded one with its real limits.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_cluster::{
    Coordinator, Embedded, EpochRow, HostId, IncidentRow, Incidents, ManualClock, PairGeometry, PairRow,
    PairState, ServingAddress, ShareTimes, Sim, Table, Transaction,
};
use cell_node::{ClusterAgent, MembershipOptions, TakeoverWanted};
use cell_terms::{Csn, Durability, Epoch, Incarnation, NodeId, PairId};

const MS: u64 = 1_000_000;
const LEASE_MS: u64 = 500;
const PAIRS: u32 = 2_000;
/// A survivor needs a look for each step, and one more for each page of changes; far fewer than this.
const LOOKS_MAX: u32 = 200;

type Time = Box<dyn Fn(u64) -> u64>;

/// Calls the check with a coordinator, and what moves its clock and gives the time.
fn each(check: impl Fn(&Arc<dyn Coordinator>, &Time)) {
    let sim = Sim::new(7);
    let link: Arc<dyn Coordinator> = Arc::new(sim.link());
    let time: Time = Box::new(move |by| {
        sim.advance(by);
        sim.now_ns()
    });
    check(&link, &time);
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1));
    let embedded: Arc<dyn Coordinator> =
        Arc::new(Embedded::open_with_clock(folder.path(), clock.clone()).unwrap());
    let time: Time = Box::new(move |by| {
        clock.advance(by);
        cell_cluster::Clock::now_ns(&*clock)
    });
    check(&embedded, &time);
}

struct Member {
    incarnation: Incarnation,
    node: NodeId,
    coordinator: Arc<dyn Coordinator>,
    table: Table,
    agent: ClusterAgent,
}

fn join(coordinator: &Arc<dyn Coordinator>, node: u32, now_ns: u64) -> Member {
    let incarnation = coordinator.grant(LEASE_MS).unwrap().lease;
    let node = NodeId(node);
    let options = MembershipOptions { incarnation, node, joined_ns: now_ns, grace_ns: 2_000 * MS };
    let agent = crate::joined::enter(coordinator, options, 50 * MS);
    let table = Table::new(coordinator.clone()).on_host(Some(HostId::new(1, 1)));
    Member { incarnation, node, coordinator: coordinator.clone(), table, agent }
}

impl Member {
    /// Enters pairs that this node serves.
    fn serve(&self, pairs: impl Iterator<Item = u32>) {
        let row = |pair: PairId| PairRow {
            pair,
            node_region: pair.node_region(),
            extent_region: pair.extent_region(),
            owner: Some(self.incarnation),
            node: self.node,
            served_by: None,
            host: None,
            epoch: Epoch(1),
            state: PairState::Serving,
            place: Some(self.place()),
            geometry: PairGeometry {
                node_region_bytes: 4,
                extent_region_bytes: 4,
                slot_bytes: 1,
                node_bytes: 1,
            },
            history: vec![EpochRow { epoch: Epoch(1), durability: Durability::Sync, cut: None }],
            checkpoint: None,
            trusted: Vec::new(),
            findings: Vec::new(),
            refuted: Vec::new(),
        };
        let pairs: Vec<PairId> = pairs.map(PairId).collect();
        for some in pairs.chunks(64) {
            let enter = some.iter().fold(Transaction::new(), |all, pair| {
                all.put(PairRow::key(*pair), serde_json::to_string(&row(*pair)).unwrap())
            });
            self.coordinator.transact(enter).unwrap();
        }
    }

    fn place(&self) -> ServingAddress {
        ServingAddress { address: format!("sim:{}", self.node.0), worker: 0, node_key: 0, extent_key: 0 }
    }

    /// A look, and whatever it asks for done. How many takeovers that were.
    fn step(&mut self, now_ns: u64) -> usize {
        let wanted = self.agent.look(now_ns).unwrap().take_over;
        wanted.iter().for_each(|wanted| self.take_over(*wanted));
        wanted.len()
    }

    fn take_over(&mut self, wanted: TakeoverWanted) {
        let TakeoverWanted { pair, reason, dead, .. } = wanted;
        let claim = self.table.claim(pair, self.incarnation, self.node, reason).unwrap();
        for old in claim.row.epochs_needed().filter(|old| old.cut.is_none()) {
            self.table.record_cut(claim.ownership, old.epoch, Csn(1)).unwrap();
        }
        self.table.publish(claim.ownership, Durability::Sync, &self.place()).unwrap();
        self.agent.times(pair, dead, ShareTimes { serving_ms: 7, ..ShareTimes::default() });
        self.agent.taken(pair);
    }
}

fn incident(coordinator: &Arc<dyn Coordinator>, dead: Incarnation) -> Option<IncidentRow> {
    let incidents = Incidents::new(coordinator.clone()).list().unwrap();
    incidents.into_iter().find(|incident| incident.dead == dead)
}

fn settle(members: &mut [Member], coordinator: &Arc<dyn Coordinator>, dead: Incarnation, time: &Time) {
    for _ in 0..LOOKS_MAX {
        for member in &mut *members {
            member.step(time(0));
        }
        if incident(coordinator, dead).is_some_and(|incident| incident.is_over()) {
            return;
        }
    }
    panic!("the incident is not over after {LOOKS_MAX} looks: {:?}", incident(coordinator, dead));
}

#[test]
fn dead_node_of_2000_pairs_is_shared_out_taken_over_and_closed() {
    each(|coordinator, time| {
        let dead = join(coordinator, 0, time(0));
        dead.serve(1..=PAIRS);
        let mut survivors = [join(coordinator, 1, time(0)), join(coordinator, 2, time(0))];
        survivors.iter_mut().for_each(|survivor| assert_eq!(survivor.step(time(0)), 0));
        for _ in 0..2 {
            time(400 * MS);
            survivors.iter().for_each(|survivor| coordinator.keep_alive(survivor.incarnation).unwrap());
        }
        settle(&mut survivors, coordinator, dead.incarnation, time);

        let (rows, _) = survivors[0].table.pairs().unwrap();
        let mut owned = BTreeMap::<_, u32>::new();
        rows.iter().for_each(|row| *owned.entry(row.owner).or_default() += 1);
        let half = |survivor: &Member| (Some(survivor.incarnation), PAIRS / 2);
        assert_eq!(owned, survivors.iter().map(half).collect());
        let plan = incident(coordinator, dead.incarnation).unwrap().plan;
        assert_eq!(plan.len(), PAIRS as usize);
        for (share, row) in plan.iter().zip(&rows) {
            assert_eq!((share.pair, share.survivor, share.times.serving_ms), (row.pair, row.owner, 7));
        }
    });
}

#[test]
fn node_of_2000_pairs_that_is_restarted_has_all_of_them_again() {
    each(|coordinator, time| {
        let before = join(coordinator, 0, time(0));
        before.serve(1..=PAIRS);
        let other = join(coordinator, 1, time(0));
        let mut after = [join(coordinator, 0, time(0))];
        for _ in 0..2 {
            time(400 * MS);
            [&other, &after[0]].iter().for_each(|member| coordinator.keep_alive(member.incarnation).unwrap());
        }
        settle(&mut after, coordinator, before.incarnation, time);
        let (rows, _) = after[0].table.pairs().unwrap();
        assert!(rows.iter().all(|row| row.owner == Some(after[0].incarnation)));
        assert_eq!(incident(coordinator, before.incarnation).unwrap().plan.len(), PAIRS as usize);
    });
}
