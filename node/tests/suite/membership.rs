//! Nodes that die and survivors that race, by seed: the agent of each, with its membership core, over the
//! simulated coordinator, with takeovers that only claim, cut, wait and publish. What must hold: nobody
//! publishes a pair before the leases of all who served it have ended; a cut is recorded once; in the end
//! every pair is served by one living node, whatever happened.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use crate::joined;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cell_cluster::{
    Claim, ClusterError, Coordinator, Fault, Incidents, ServingAddress, ShareTimes, Sim, SimLink, Table,
};
use cell_node::{ClusterAgent, RefusedKind, TakeoverWanted};
use cell_random::Random;
use cell_terms::{Csn, Durability, Incarnation, NodeId, PairId};

use crate::joined::{Joined, MS};

const NODES: u32 = 4;

/// A takeover under way.
struct Job {
    wanted: TakeoverWanted,
    claim: Option<Claim>,
}

struct Node {
    node: NodeId,
    incarnation: Incarnation,
    link: SimLink,
    table: Table,
    agent: ClusterAgent,
    jobs: Vec<Job>,
}

struct World {
    sim: Sim,
    random: Random,
    nodes: Vec<Node>,
    /// Who has ever served a pair.
    served: BTreeMap<PairId, BTreeSet<Incarnation>>,
}

impl World {
    fn new(seed: u64) -> World {
        World { sim: Sim::new(7), random: Random::new(seed), nodes: Vec::new(), served: BTreeMap::new() }
    }

    fn start(&mut self, node: u32) {
        let Joined { node, incarnation, link, table, agent } = joined::join(&self.sim, node, NODES, 0);
        self.nodes.push(Node { node, incarnation, link, table, agent, jobs: Vec::new() });
    }

    /// Time passes; the living renew their leases, on links without faults.
    fn pass(&mut self, by_ns: u64) {
        self.sim.advance(by_ns);
        let honest = self.sim.link();
        self.nodes.retain(|node| honest.keep_alive(node.incarnation).is_ok());
    }

    fn step(&mut self, faults: bool) {
        if self.nodes.is_empty() {
            return;
        }
        let at = self.random.index(self.nodes.len());
        if faults && self.random.below(8) == 0 {
            let kinds = [Fault::Lost, Fault::AnswerLost, Fault::Late, Fault::NotReached];
            let count = self.random.below(4);
            let random = &mut self.random;
            let plan = (0..count).map(|_| random.pick(&kinds));
            self.nodes[at].link.plan(plan.collect::<Vec<_>>());
        }
        let World { sim, random, nodes, served } = self;
        if random.below(2) == 0 {
            nodes[at].look(sim);
        } else {
            nodes[at].work(sim, random, served);
        }
    }

    /// Everything is served, each pair by one living node.
    fn settle(&mut self) {
        self.nodes.iter().for_each(|node| node.link.mend());
        for _ in 0..4_000 {
            self.step(false);
            self.pass(MS * 10);
            let (rows, _) = Table::new(Arc::new(self.sim.link())).pairs().unwrap();
            let alive = |owner| self.nodes.iter().any(|node| Some(node.incarnation) == owner);
            if rows.iter().all(|row| row.is_published() && alive(row.owner)) {
                return;
            }
        }
        let (rows, _) = Table::new(Arc::new(self.sim.link())).pairs().unwrap();
        panic!("pairs are left over: {rows:#?}");
    }
}

impl Node {
    fn look(&mut self, sim: &Sim) {
        if let Ok(looked) = self.agent.look(sim.now_ns()) {
            self.jobs.extend(looked.take_over.into_iter().map(|wanted| Job { wanted, claim: None }));
        }
    }

    /// One step of one takeover.
    fn work(&mut self, sim: &Sim, random: &mut Random, served: &mut BTreeMap<PairId, BTreeSet<Incarnation>>) {
        if self.jobs.is_empty() {
            return;
        }
        let at = random.index(self.jobs.len());
        let TakeoverWanted { pair, dead, .. } = self.jobs[at].wanted;
        match self.advance(at, sim, served) {
            Ok(false) => {}
            Ok(true) => {
                self.jobs.swap_remove(at);
                let times = ShareTimes { serving_ms: sim.now_ns() / MS, ..ShareTimes::default() };
                self.agent.times(pair, dead, times);
                self.agent.taken(pair);
            }
            Err(error) if error.is_transient() => {}
            Err(error) => {
                self.jobs.swap_remove(at);
                if let ClusterError::CutRecorded { .. } | ClusterError::CutMissing { .. } = error {
                    panic!("{pair}: {error}");
                }
                let kind = RefusedKind::of_cluster(&error);
                assert!(self.agent.refused(pair, dead, kind, sim.now_ns()), "several nodes have pairs");
            }
        }
    }

    fn advance(
        &mut self,
        at: usize,
        sim: &Sim,
        served: &mut BTreeMap<PairId, BTreeSet<Incarnation>>,
    ) -> Result<bool, ClusterError> {
        let job = &mut self.jobs[at];
        let Some(claim) = &job.claim else {
            let TakeoverWanted { pair, reason, .. } = job.wanted;
            job.claim = Some(self.table.claim(pair, self.incarnation, self.node, reason)?);
            return Ok(false);
        };
        let uncut = claim.row.epochs_needed().filter(|old| old.cut.is_none());
        for old in uncut {
            self.table.record_cut(claim.ownership, old.epoch, Csn(u64::from(old.epoch.0) * 10))?;
        }
        if self.table.trust_remaining_ns(claim)?.is_some() {
            return Ok(false);
        }
        let place =
            ServingAddress { address: format!("sim:{}", self.node.0), worker: 0, node_key: 0, extent_key: 0 };
        match self.table.publish(claim.ownership, Durability::Sync, &place) {
            Ok(_) => {}
            Err(ClusterError::TrustRemains { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        let before = served.entry(job.wanted.pair).or_default();
        for owner in before.iter().filter(|owner| **owner != self.incarnation) {
            let left = sim.link().remaining_ns(*owner).unwrap();
            assert_eq!(left, None, "{} is served twice: {owner} and {}", job.wanted.pair, self.incarnation);
        }
        before.insert(self.incarnation);
        Ok(true)
    }
}

/// Nodes come and go; the survivors race.
fn run(seed: u64) {
    let mut world = World::new(seed);
    let first = 1 + u32::try_from(world.random.below(u64::from(NODES))).unwrap();
    (0..first).for_each(|node| world.start(node));
    for _ in 0..400 {
        let by_ns = world.random.below(30) * MS;
        world.pass(by_ns);
        for _ in 0..3 {
            world.step(true);
        }
        match world.random.below(60) {
            0 if world.nodes.len() > 1 => {
                let at = world.random.index(world.nodes.len());
                let killed = world.nodes.swap_remove(at).node;
                // A supervisor that starts it again at once: within the lease of its predecessor.
                if world.random.below(3) == 0 {
                    world.start(killed.0);
                }
            }
            1 => {
                let absent = (0..NODES).find(|node| world.nodes.iter().all(|one| one.node.0 != *node));
                absent.into_iter().for_each(|node| world.start(node));
            }
            2 => world.sim.restart(),
            _ => {}
        }
    }
    if world.nodes.is_empty() {
        world.start(0);
    }
    world.settle();
}

#[test]
fn survivors_and_restarted_nodes_racing_a_thousand_times_serve_every_pair_once() {
    let from = std::env::var("CELL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = from.map_or(0..1_000, |seed| seed..seed + 1);
    for seed in seeds {
        let ran = std::panic::catch_unwind(|| run(seed));
        assert!(ran.is_ok(), "seed {seed}");
    }
}

/// Two survivors see the same death: exactly one claims the incident, the pairs are split between them, and
/// nobody claims a share of the other's.
#[test]
fn two_survivors_of_one_death_share_its_pairs_a_thousand_times() {
    for seed in 0..1_000 {
        let mut world = World::new(seed);
        (0..3).for_each(|node| world.start(node));
        world.settle();
        let dead = world.nodes.iter().position(|node| node.node == NodeId(0)).unwrap();
        let dead = world.nodes.swap_remove(dead).incarnation;
        world.settle();
        let incidents = Incidents::new(Arc::new(world.sim.link())).list().unwrap();
        let incident = incidents.iter().find(|incident| incident.dead == dead).unwrap();
        let (rows, _) = Table::new(Arc::new(world.sim.link())).pairs().unwrap();
        for share in &incident.plan {
            let owner = rows.iter().find(|row| row.pair == share.pair).unwrap().owner;
            assert_eq!(owner, share.survivor, "seed {seed}: the plan is kept to");
        }
        let claimed: BTreeSet<_> = incident.plan.iter().map(|share| share.pair).collect();
        assert_eq!(claimed.len(), incident.plan.len());
    }
}
