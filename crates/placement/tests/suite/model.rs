//! A cluster that does what the balancer says, with a clock of its own: moves take as long as their bytes
//! need, owners know a pair's load only after a window, nodes join, die, come back and drain.
//!
//! Whatever happens, each step is checked against what must always hold.

use std::collections::{BTreeMap, HashMap};

use cell_placement::{
    Arrival, BalanceRules, Balancer, Figures, HeldPair, MemberFigures, MoveCause, MoveFailure, MoveReason,
    MoveUnderWay, NextStep, PairHold, PairLoad, PlannedMove,
};
use cell_random::Random;
use cell_terms::{NodeId, PairId};

use crate::cluster::{MIB, held, member};

/// Bytes that a move copies in a millisecond: 200 MB/s.
const COPIED_EACH_MS: u64 = 200_000;
/// Freeze, handing and publication.
const HANDING_MS: u64 = 60;
/// How long the log of a dead node's pairs takes to be replayed.
const TAKEOVER_MS: u64 = 8_000;

/// A move that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) at_ms: u64,
    pub(crate) planned: PlannedMove,
}

pub(crate) struct Model {
    pub(crate) random: Random,
    pub(crate) now_ms: u64,
    pub(crate) figures: Figures,
    pub(crate) balancer: Balancer,
    /// What each pair takes in truth.
    truth: HashMap<PairId, PairLoad>,
    moving: Option<(PlannedMove, u64)>,
    /// Pairs of dead nodes, and when they are taken over.
    orphans: Vec<(HeldPair, u64)>,
    /// When balance last moved each pair; when nodes last took, and gave, a pair for balance.
    moved: HashMap<PairId, u64>,
    took: BTreeMap<NodeId, u64>,
    gave: BTreeMap<NodeId, u64>,
    /// So many moves of a hundred come to nothing.
    pub(crate) failing_percent: u64,
    pub(crate) made: Vec<Made>,
}

pub(crate) fn cause(planned: &PlannedMove) -> MoveCause {
    match planned.why {
        MoveReason::Drain { .. } => MoveCause::Drain,
        MoveReason::Fresh => MoveCause::Fresh,
        MoveReason::Full { .. } | MoveReason::Above { .. } | MoveReason::Below { .. } => MoveCause::Balance,
    }
}

impl Model {
    /// Nodes from 1 on, with so many pairs each, of sizes that differ by up to four times.
    pub(crate) fn new(seed: u64, pairs: &[u32]) -> Model {
        let mut random = Random::new(seed);
        let mut truth = HashMap::new();
        let mut number = 0;
        let members = (1..).zip(pairs).map(|(node, count)| {
            let pairs = (0..*count).map(|_| {
                number += 1;
                let held = held(number, random.between(20, 80), random.between(5, 20));
                truth.insert(held.pair, held.load.unwrap());
                held
            });
            member(node, pairs.collect())
        });
        let figures = Figures { members: members.collect(), ..Figures::default() };
        Model {
            random,
            now_ms: 0,
            figures,
            balancer: Balancer::new(BalanceRules::default()).unwrap(),
            truth,
            moving: None,
            orphans: Vec::new(),
            moved: HashMap::new(),
            took: BTreeMap::new(),
            gave: BTreeMap::new(),
            failing_percent: 0,
            made: Vec::new(),
        }
    }

    /// Nodes from 1 on, with idle pairs of so many MiB. Pair `100 * node + place`.
    pub(crate) fn of_sizes(seed: u64, sizes: &[Vec<u64>]) -> Model {
        let mut model = Model::new(seed, &vec![0; sizes.len()]);
        for (member, sizes) in model.figures.members.iter_mut().zip(sizes) {
            let pairs = (0..).zip(sizes).map(|(place, mib)| held(member.node.0 * 100 + place, *mib, 0));
            member.pairs = pairs.collect();
            model.truth.extend(member.pairs.iter().map(|held| (held.pair, held.load.unwrap())));
        }
        model
    }

    /// A node divides so many bytes off into a pair that is made for another node.
    pub(crate) fn divide(&mut self, from: PairId, bytes: u64, into: PairId, meant_for: NodeId) {
        let has = |member: &&mut MemberFigures| member.pairs.iter().any(|held| held.pair == from);
        let member = self.figures.members.iter_mut().find(has).unwrap();
        let source = member.pairs.iter_mut().find(|held| held.pair == from).unwrap();
        let load = source.load.as_mut().unwrap();
        load.bytes -= bytes;
        self.truth.insert(from, *load);
        let load = PairLoad { bytes, memory_bytes: bytes, load_ns: 0 };
        let arrival = Arrival::Created { meant_for: Some(meant_for) };
        member.pairs.push(HeldPair { pair: into, load: Some(load), held_ms: 0, arrival, hold: None });
        member.memory_left_bytes -= bytes;
        self.truth.insert(into, load);
    }

    /// A pair that is made for another node gets so many bytes more.
    pub(crate) fn gather(&mut self, from: PairId, bytes: u64, into: PairId) {
        let has = |member: &&mut MemberFigures| member.pairs.iter().any(|held| held.pair == from);
        let member = self.figures.members.iter_mut().find(has).unwrap();
        for held in &mut member.pairs {
            let load = held.load.as_mut().unwrap();
            match held.pair {
                pair if pair == from => load.bytes -= bytes,
                pair if pair == into => {
                    (load.bytes, load.memory_bytes) = (load.bytes + bytes, load.memory_bytes + bytes)
                }
                _ => continue,
            }
            self.truth.insert(held.pair, *load);
        }
        member.memory_left_bytes -= bytes;
    }

    /// Writes go to a pair, wherever it is.
    pub(crate) fn grow(&mut self, pair: PairId, bytes: u64) {
        let truth = self.truth.get_mut(&pair).unwrap();
        (truth.bytes, truth.memory_bytes) = (truth.bytes + bytes, truth.memory_bytes + bytes);
        let grown = *truth;
        let has = |member: &&mut MemberFigures| member.pairs.iter().any(|held| held.pair == pair);
        let member = self.figures.members.iter_mut().find(has).unwrap();
        if !member.draining {
            member.memory_left_bytes = member.memory_left_bytes.checked_sub(bytes).expect("it has room");
        }
        let held = member.pairs.iter_mut().find(|held| held.pair == pair).unwrap();
        let load = held.load.as_mut().unwrap();
        (load.bytes, load.memory_bytes) = (grown.bytes, grown.memory_bytes);
    }

    /// Something has hold of a pair, or has no more.
    pub(crate) fn hold(&mut self, pair: PairId, hold: Option<PairHold>) {
        let pairs = self.figures.members.iter_mut().flat_map(|member| &mut member.pairs);
        pairs.filter(|held| held.pair == pair).for_each(|held| held.hold = hold);
    }

    fn member(&mut self, node: NodeId) -> Option<&mut MemberFigures> {
        self.figures.members.iter_mut().find(|member| member.node == node)
    }

    /// One look, and the time until the next one: a second, or what is left of a move.
    pub(crate) fn step(&mut self) {
        let advice = self.balancer.look(self.now_ms, &self.figures);
        match advice.step {
            NextStep::Move(planned) => self.begin(planned),
            NextStep::Cancel { pair, .. } => {
                let (planned, _) = self.moving.take().expect("there is a move");
                assert_eq!(planned.pair, pair);
                self.figures.moving = None;
            }
            NextStep::Rest(_) => {}
        }
        let until_ms = self.moving.map_or(1000, |(_, ends_ms)| (ends_ms - self.now_ms).clamp(1, 1000));
        self.pass(until_ms);
        if let Some((planned, _)) = self.moving.filter(|(_, ends_ms)| *ends_ms <= self.now_ms) {
            self.moving = None;
            self.figures.moving = None;
            self.hand(planned);
        }
    }

    pub(crate) fn steps_until(&mut self, until_ms: u64) {
        while self.now_ms < until_ms {
            self.step();
        }
    }

    fn begin(&mut self, planned: PlannedMove) {
        assert!(self.moving.is_none(), "one at a time: {planned}");
        self.check(&planned);
        let PlannedMove { pair, from, to, .. } = planned;
        if self.random.percent(self.failing_percent) {
            let why = self.random.pick(&[MoveFailure::NoMemory, MoveFailure::Behind, MoveFailure::Declined]);
            self.balancer.on_failure(self.now_ms, pair, to, why);
            return;
        }
        let ends_ms = self.now_ms + planned.bytes / COPIED_EACH_MS + HANDING_MS;
        self.moving = Some((planned, ends_ms));
        let cause = cause(&planned);
        self.figures.moving = Some(MoveUnderWay { pair, from, to, cause, handed: false });
    }

    /// What must hold of each move.
    fn check(&mut self, planned: &PlannedMove) {
        let rules = self.balancer.rules().clone();
        let now_ms = self.now_ms;
        let needs = self.truth[&planned.pair].memory_bytes;
        let drains = self.figures.members.iter().any(|member| member.draining && !member.pairs.is_empty());
        let to = self.member(planned.to).expect("the target is there");
        assert!(!to.draining && to.memory_left_bytes >= needs, "room: {planned}");
        assert!((to.pairs.len() as u32) < to.pairs_max, "pairs: {planned}");
        let is_balance = cause(planned) == MoveCause::Balance;
        assert!(!(is_balance && drains), "a drain goes first: {planned}");
        if is_balance {
            let rested = |at: Option<&u64>, rest_ms| at.is_none_or(|at| now_ms - at >= rest_ms);
            let pair_rested = rested(self.moved.get(&planned.pair), rules.pair_rest_ms);
            assert!(pair_rested, "the pair rests: {planned}");
            assert!(
                rested(self.took.get(&planned.from), rules.node_rest_ms),
                "filled and emptied: {planned}"
            );
            assert!(rested(self.gave.get(&planned.to), rules.node_rest_ms), "emptied and filled: {planned}");
            self.took.insert(planned.to, now_ms);
            self.gave.insert(planned.from, now_ms);
        }
    }

    fn hand(&mut self, planned: PlannedMove) {
        let needs = self.truth[&planned.pair].memory_bytes;
        let Some(from) = self.member(planned.from) else { return };
        let Some(at) = from.pairs.iter().position(|held| held.pair == planned.pair) else { return };
        let mut held = from.pairs.remove(at);
        from.memory_left_bytes += needs;
        held.held_ms = 0;
        held.arrival = Arrival::Moved(cause(&planned));
        held.load.as_mut().unwrap().load_ns = 0;
        // What others move does not rest.
        match cause(&planned) {
            MoveCause::Balance => drop(self.moved.insert(planned.pair, self.now_ms)),
            _ => drop(self.moved.remove(&planned.pair)),
        }
        let to = self.member(planned.to).expect("a move to a node that dies is over");
        to.memory_left_bytes -= needs;
        to.pairs.push(held);
        self.made.push(Made { at_ms: self.now_ms, planned });
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        let window_ms = self.balancer.rules().window_ms;
        for member in &mut self.figures.members {
            member.serving_ms += ms;
            member.reported_ms_ago = Some(self.random.below(3000));
            for held in &mut member.pairs {
                held.held_ms += ms;
                if held.held_ms >= window_ms && held.held_ms < window_ms + ms {
                    held.load = Some(self.truth[&held.pair]);
                }
            }
        }
        let now_ms = self.now_ms;
        let (due, later) = self.orphans.drain(..).partition(|(_, at_ms)| *at_ms <= now_ms);
        self.orphans = later;
        for (held, _) in due {
            self.adopt(held);
        }
        self.figures.takeovers_open = u32::try_from(self.orphans.len()).unwrap();
    }

    /// The survivor with the fewest pairs takes an orphan over.
    fn adopt(&mut self, mut held: HeldPair) {
        held.held_ms = 0;
        held.arrival = Arrival::TakenOver;
        held.load.as_mut().unwrap().load_ns = 0;
        self.moved.remove(&held.pair);
        let survivors = self.figures.members.iter_mut().filter(|member| !member.draining);
        let survivor = survivors.min_by_key(|member| member.pairs.len()).expect("one survives");
        survivor.memory_left_bytes -= held.load.unwrap().memory_bytes;
        survivor.pairs.push(held);
    }

    /// Another member balances from now on.
    pub(crate) fn replace_balancer(&mut self) {
        self.balancer = Balancer::new(BalanceRules::default()).unwrap();
    }

    /// Memory that is left at a node.
    pub(crate) fn set_memory_left(&mut self, node: u32, bytes: u64) {
        self.member(NodeId(node)).unwrap().memory_left_bytes = bytes;
    }

    /// A node comes, empty.
    pub(crate) fn join(&mut self, node: u32) {
        let mut new = member(node, Vec::new());
        new.serving_ms = 0;
        self.figures.members.push(new);
    }

    /// A node dies; what was moved from or to it is not.
    pub(crate) fn kill(&mut self, node: u32) {
        let node = NodeId(node);
        if self.moving.is_some_and(|(planned, _)| planned.from == node || planned.to == node) {
            self.moving = None;
            self.figures.moving = None;
        }
        let at = self.figures.members.iter().position(|member| member.node == node).unwrap();
        let dead = self.figures.members.remove(at);
        let ready_ms = self.now_ms + TAKEOVER_MS;
        self.orphans.extend(dead.pairs.into_iter().map(|held| (held, ready_ms)));
        self.figures.takeovers_open = u32::try_from(self.orphans.len()).unwrap();
    }

    pub(crate) fn drain(&mut self, node: u32, drains: bool) {
        self.member(NodeId(node)).unwrap().draining = drains;
    }

    /// What a pair takes changes, and its owner knows it.
    pub(crate) fn set_load(&mut self, pair: PairId, load_ns: u64) {
        self.truth.get_mut(&pair).unwrap().load_ns = load_ns;
        let window_ms = self.balancer.rules().window_ms;
        let pairs = self.figures.members.iter_mut().flat_map(|member| &mut member.pairs);
        for held in pairs.filter(|held| held.pair == pair && held.held_ms >= window_ms) {
            held.load.as_mut().unwrap().load_ns = load_ns;
        }
    }

    /// The load of each pair, node by node.
    pub(crate) fn loads(&self) -> Vec<(PairId, u64)> {
        let pairs = self.figures.members.iter().flat_map(|member| &member.pairs);
        pairs.map(|held| (held.pair, self.truth[&held.pair].load_ns)).collect()
    }

    /// Bytes and load of each node that shares the load, in truth.
    pub(crate) fn sums(&self) -> Vec<(NodeId, u64, u64)> {
        let members = self.figures.members.iter().filter(|member| !member.draining);
        let sums = members.map(|member| {
            let loads = member.pairs.iter().map(|held| self.truth[&held.pair]);
            let (bytes, load_ns) =
                loads.fold((0, 0), |(bytes, ns), load| (bytes + load.bytes, ns + load.load_ns));
            (member.node, bytes / MIB, load_ns)
        });
        sums.collect()
    }

    /// Largest over mean, in percent, of bytes and of load.
    pub(crate) fn spread(&self) -> (u64, u64) {
        let sums = self.sums();
        let over = |values: Vec<u64>| {
            let largest = values.iter().max().copied().unwrap_or(0);
            largest * 100 * values.len() as u64 / values.iter().sum::<u64>().max(1)
        };
        (over(sums.iter().map(|sum| sum.1).collect()), over(sums.iter().map(|sum| sum.2).collect()))
    }

    /// Runs on until nothing has moved for so long, and gives the number of moves until then.
    pub(crate) fn settle(&mut self, quiet_ms: u64, moves_max: usize) -> usize {
        let before = self.made.len();
        let mut quiet_since_ms = self.now_ms;
        while self.now_ms - quiet_since_ms < quiet_ms {
            self.step();
            if self.moving.is_some() {
                quiet_since_ms = self.now_ms;
            }
            let moves = self.made.len() - before;
            let last = self.made.len().saturating_sub(6);
            assert!(moves <= moves_max, "it does not settle: {moves} moves, {:#?}", &self.made[last..]);
        }
        self.made.len() - before
    }
}
