//! Nodes that divide what is too large to move, beside a balancer: it ends, with all nodes alike, however
//! few pairs there were and however late figures are reported.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use cell_placement::{
    Arrival, BalanceRules, Figures, FreshSplit, HeldPair, fresh_fits, fresh_place, has_to_divide,
};
use cell_random::Random;
use cell_terms::{NodeId, PairId};

use crate::cluster::MIB;
use crate::model::Model;

/// Longer than a pair rests: what was held up by that has moved by then.
const QUIET_MS: u64 = 700_000;
/// Pairs that wait to be handed over, and meganodes that are tried, as a worker has it.
const FRESH_MAX: usize = 2;
const TRIED_MAX: usize = 8;
const PARTS: [u64; 3] = [2, 4, 8];

struct Dividing {
    model: Model,
    rules: BalanceRules,
    /// What each meganode of a pair has.
    meganodes: HashMap<PairId, Vec<u64>>,
    /// The cluster as it was, the newest last: others are seen as they were so many looks ago.
    past: VecDeque<Figures>,
    lag: usize,
    made: u32,
}

impl Dividing {
    fn new(seed: u64, sizes: &[Vec<u64>], meganode_mib: u64, lag: usize) -> Dividing {
        let model = Model::of_sizes(seed, sizes);
        let pairs = model.figures.members.iter().flat_map(|member| &member.pairs);
        let divided = |held: &HeldPair| {
            let bytes = held.load.unwrap().bytes;
            let count = bytes.div_ceil(meganode_mib * MIB).max(1);
            (held.pair, vec![bytes / count; count as usize])
        };
        let meganodes = pairs.map(divided).collect();
        let past = VecDeque::new();
        Dividing { model, rules: BalanceRules::default(), meganodes, past, lag, made: 0 }
    }

    fn is_fresh(&self, held: &HeldPair) -> bool {
        let is_made = matches!(held.arrival, Arrival::Created { meant_for: Some(_) });
        is_made && held.held_ms < self.rules.window_ms
    }

    /// The cluster as a node's worker knows it: itself as it is, the others as they were; what waits to be
    /// handed over counts as if it were there.
    fn seen_by(&self, node: NodeId) -> Figures {
        let mut seen = self.past.front().unwrap_or(&self.model.figures).clone();
        let mut own = self.model.figures.members.iter().find(|member| member.node == node).unwrap().clone();
        let (fresh, kept): (Vec<_>, Vec<_>) = own.pairs.drain(..).partition(|held| self.is_fresh(held));
        own.pairs = kept;
        for member in &mut seen.members {
            if member.node == node {
                *member = own.clone();
            }
            let goes_there =
                |held: &&HeldPair| held.arrival == Arrival::Created { meant_for: Some(member.node) };
            member.pairs.extend(fresh.iter().filter(goes_there).copied());
        }
        seen
    }

    /// A node's look: whether it divides something.
    fn divide(&mut self, node: NodeId) -> bool {
        let member = self.model.figures.members.iter().find(|member| member.node == node).unwrap();
        let (fresh, kept): (Vec<&HeldPair>, Vec<&HeldPair>) =
            member.pairs.iter().partition(|held| self.is_fresh(held));
        let mut own: Vec<(PairId, u64)> =
            kept.iter().map(|held| (held.pair, held.load.unwrap().bytes)).collect();
        let bytes: Vec<u64> = own.iter().map(|(_, bytes)| *bytes).collect();
        let seen = self.seen_by(node);
        if fresh.len() >= FRESH_MAX || !has_to_divide(&seen, &self.rules, node, &bytes) {
            return false;
        }
        own.sort_by_key(|(_, bytes)| Reverse(*bytes));
        let Some((place, from, slot, bytes)) = self.part(node, &own, None) else { return false };
        let pair = PairId(10_000 + self.made);
        self.model.divide(from, bytes, pair, place);
        self.meganodes.get_mut(&from).unwrap()[slot] -= bytes;
        self.meganodes.insert(pair, vec![bytes]);
        self.made += 1;
        self.gather(node, pair, place, &mut own);
        true
    }

    /// The first part of a heavy meganode that goes to another node, or to this one: where from, how much.
    fn part(
        &self,
        node: NodeId,
        own: &[(PairId, u64)],
        to: Option<NodeId>,
    ) -> Option<(NodeId, PairId, usize, u64)> {
        let heaviest = own.iter().flat_map(|(pair, _)| {
            let slots = (0..).zip(&self.meganodes[pair]);
            let mut slots: Vec<_> = slots.map(|(slot, bytes)| (*pair, slot, *bytes)).collect();
            slots.sort_by_key(|(_, _, bytes)| Reverse(*bytes));
            slots
        });
        let parts =
            heaviest.take(TRIED_MAX).flat_map(|(from, slot, all)| PARTS.map(|part| (from, slot, all / part)));
        let seen = self.seen_by(node);
        let goes = |(from, slot, bytes): (PairId, usize, u64)| {
            let pair = PairId(10_000 + self.made);
            let split = FreshSplit { from: node, pair, bytes, memory_bytes: bytes };
            let place = match to {
                Some(to) => fresh_fits(&seen, &self.rules, &split, to).then_some(to),
                None => Some(fresh_place(&seen, &self.rules, &split).node).filter(|place| *place != node),
            };
            place.map(|place| (place, from, slot, bytes))
        };
        parts.into_iter().find_map(goes)
    }

    /// A pair that was made gets part after part.
    fn gather(&mut self, node: NodeId, into: PairId, to: NodeId, own: &mut [(PairId, u64)]) {
        loop {
            for (pair, bytes) in own.iter_mut() {
                *bytes = self.meganodes[pair].iter().sum();
            }
            own.sort_by_key(|(_, bytes)| Reverse(*bytes));
            let bytes: Vec<u64> = own.iter().map(|(_, bytes)| *bytes).collect();
            if !has_to_divide(&self.seen_by(node), &self.rules, node, &bytes) {
                return;
            }
            let Some((_, from, slot, bytes)) = self.part(node, own, Some(to)) else { return };
            self.model.gather(from, bytes, into);
            self.meganodes.get_mut(&from).unwrap()[slot] -= bytes;
            self.meganodes.get_mut(&into).unwrap().push(bytes);
        }
    }

    /// Runs until nothing has moved or was divided for long.
    fn settle(&mut self, made_max: u32) {
        let mut quiet_since_ms = self.model.now_ms;
        while self.model.now_ms - quiet_since_ms < QUIET_MS {
            let moves = self.model.made.len();
            self.model.step();
            self.past.push_back(self.model.figures.clone());
            if self.past.len() > self.lag + 1 {
                self.past.pop_front();
            }
            let nodes: Vec<NodeId> = self.model.figures.members.iter().map(|member| member.node).collect();
            let divided = nodes.into_iter().filter(|node| self.divide(*node)).count();
            if divided > 0 || self.model.made.len() > moves || self.model.figures.moving.is_some() {
                quiet_since_ms = self.model.now_ms;
            }
            assert!(self.made <= made_max, "it does not end: {} pairs, {:?}", self.made, self.model.sums());
        }
    }
}

/// A few large pairs, on one node or some of them, of meganodes of any size.
#[test]
fn nodes_that_divide_end_alike() {
    for seed in 0..200 {
        let mut random = Random::new(seed ^ 0x6469_7669);
        let nodes = random.between(2, 8);
        let filled = random.between(1, 2);
        let mut sizes: Vec<Vec<u64>> = (0..nodes)
            .map(|node| {
                let pairs = if node < filled { random.between(1, 4) } else { random.between(0, 1) };
                let largest = if node < filled { 1_000 } else { 20 };
                (0..pairs).map(|_| random.between(10, largest)).collect()
            })
            .collect();
        sizes[0].push(150); // or there may be too little to care
        let lag = random.pick(&[0, 1, 7]);
        let mut dividing = Dividing::new(seed, &sizes, random.pick(&[8, 40, 2_000]), lag);
        // Each takes as much as its node may have, so that few are made: pairs are never merged.
        dividing.settle(4 * nodes as u32);
        let (bytes, _) = dividing.model.spread();
        assert!(bytes <= 125, "seed {seed}: {bytes} % {:?}", dividing.model.sums());
    }
}
