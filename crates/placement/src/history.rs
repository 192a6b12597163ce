//! What the balancer remembers from look to look. All of it may be lost: a new balancer watches for a window,
//! and what must outlast it, the rest of a pair, is in the figures.

use std::collections::{BTreeMap, BTreeSet};

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{NodeId, PairId};

use crate::figures::{Arrival, Figures, HeldPair, MemberFigures, MoveCause, MoveUnderWay, PairLoad};
use crate::obstacle::{MoveFailure, PairObstacle};
use crate::rules::BalanceRules;

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    first_ms: Option<u64>,
    /// When a node was last seen to be emptied.
    drain_ms: Option<u64>,
    /// The load of pairs that were moved, as their last owner measured it, and when that was. Their new owner
    /// knows it only after a window: until then it would look idle, and its old one relieved of nothing.
    carried: BTreeMap<PairId, (u64, u64)>,
    /// What pairs took that were moved: their new owner reports it a moment later.
    came: BTreeMap<PairId, Coming>,
    /// When nodes last took a pair, and gave one, for balance.
    took: BTreeMap<NodeId, u64>,
    gave: BTreeMap<NodeId, u64>,
    /// When relief last took a pair from nodes.
    relieved: BTreeMap<NodeId, u64>,
    /// The pair of the move that has started last, if that is one of relief.
    relieving: Option<PairId>,
    /// The pair of the move of balance or of a drain that has started, or was under way at the last look, and
    /// its ends.
    under_way: Option<(PairId, [NodeId; 2])>,
    /// When such a move of a node was first seen to be over, and the pair that the node was to get by it.
    ended: BTreeMap<NodeId, (u64, Option<PairId>)>,
    failed: BTreeMap<(PairId, NodeId), (u64, MoveFailure)>,
    /// Since when pairs keep a drain from going on.
    blocked: BTreeMap<PairId, u64>,
    /// Pairs of nodes that drain of which moves came to nothing.
    failing: BTreeMap<PairId, Failing>,
    /// Moves of pairs that were made for other nodes, since balance last moved one.
    fresh_in_row: u32,
    /// The pair of a move that the balancer has cancelled, and its ends, until it is seen what became of it.
    cancelled: Option<(PairId, [NodeId; 2])>,
    /// Where the pairs of nodes that drain go, since there last was a place for all of them.
    places: BTreeMap<PairId, NodeId>,
}

/// A pair that comes to a node, or has come and is not reported there yet.
#[derive(Clone, Copy, Debug)]
struct Coming {
    at_ms: u64,
    /// As its last owner reported it.
    load: PairLoad,
    to: NodeId,
    /// What the node has left once the pair has come. It takes memory for it when the copy begins, and
    /// reports so before it reports the pair.
    left_bytes: u64,
}

/// A pair that was to leave, and did not.
#[derive(Clone, Copy, Debug)]
struct Failing {
    /// When the first move of it came to nothing.
    since_ms: u64,
    moves: u32,
    to: NodeId,
    why: MoveFailure,
}

/// What is left of a length of time that began then.
fn left(now_ms: u64, since_ms: u64, length_ms: u64) -> Option<u64> {
    length_ms.checked_sub(now_ms.saturating_sub(since_ms)).filter(|left| *left > 0)
}

impl History {
    /// Takes in what is to be seen, and forgets what counts no more.
    pub(crate) fn observe(&mut self, now_ms: u64, figures: &Figures, rules: &BalanceRules) {
        self.first_ms.get_or_insert(now_ms);
        let drains = figures.members.iter().any(|member| member.is_being_emptied());
        if drains || figures.moving.is_some_and(|moving| moving.cause == MoveCause::Drain) {
            self.drain_ms = Some(now_ms);
        }
        self.observe_ends(now_ms, figures);
        self.forget_reported(figures);
        if let Some(moving) = figures.moving {
            let member = |node| figures.members.iter().find(|member| member.node == node);
            let held =
                member(moving.from).and_then(|from| from.pairs.iter().find(|held| held.pair == moving.pair));
            if let Some(held) = held {
                if let Some(to) = member(moving.to) {
                    self.comes(now_ms, held, to, false);
                }
                self.carry(now_ms, held, rules);
            } else if let Some((_, at_ms)) = self.carried.get_mut(&moving.pair) {
                *at_ms = now_ms;
            }
            let ends = [moving.from, moving.to];
            match moving.cause {
                _ if self.cancelled == Some((moving.pair, ends)) => {}
                MoveCause::Balance => self.moved(now_ms, moving.pair, ends),
                MoveCause::Drain => self.note_under_way(moving.pair, ends),
                MoveCause::Operator | MoveCause::Fresh => {}
            }
        }
        if !drains {
            self.places.clear();
        }
        // While a pair is handed over its target has it, and it may come back.
        let moving = figures.moving.map(|moving| moving.pair);
        let members = figures.members.iter().filter(|member| member.draining);
        let leaving: BTreeSet<PairId> =
            members.flat_map(|member| &member.pairs).map(|held| held.pair).chain(moving).collect();
        self.failing.retain(|pair, _| leaving.contains(pair));
        let rest_ms = rules.node_rest_ms;
        self.carried.retain(|_, (_, at)| left(now_ms, *at, rules.window_ms.saturating_mul(2)).is_some());
        self.came.retain(|_, came| left(now_ms, came.at_ms, rules.window_ms.saturating_mul(2)).is_some());
        self.took.retain(|_, at| left(now_ms, *at, rest_ms).is_some());
        self.gave.retain(|_, at| left(now_ms, *at, rest_ms).is_some());
        self.relieved.retain(|_, at| left(now_ms, *at, rules.pair_rest_ms).is_some());
        self.ended.retain(|_, (at, _)| left(now_ms, *at, rules.window_ms.saturating_mul(2)).is_some());
        self.failed.retain(|_, (at, _)| left(now_ms, *at, rules.retry_ms).is_some());
    }

    /// What has come and is reported there counts as reported.
    fn forget_reported(&mut self, figures: &Figures) {
        let is_reported = |pair: PairId, to: NodeId| {
            let mut members = figures.members.iter().filter(|member| member.node == to);
            members.any(|to| to.pairs.iter().any(|held| held.pair == pair && held.load.is_some()))
        };
        self.came.retain(|pair, came| !is_reported(*pair, came.to));
    }

    /// Takes in whether the move that was under way, or was cancelled, is over. One that is under way has
    /// changed nothing yet of what its ends have reported. One that was cancelled never does, unless it was
    /// handed over before.
    fn observe_ends(&mut self, now_ms: u64, figures: &Figures) {
        let goes_on = |of: (PairId, [NodeId; 2])| {
            figures.moving.filter(|moving| (moving.pair, [moving.from, moving.to]) == of)
        };
        let has = |node: NodeId, pair: PairId| {
            let mut members = figures.members.iter().filter(|member| member.node == node);
            members.any(|member| member.pairs.iter().any(|held| held.pair == pair))
        };
        let cancelled = self.cancelled.take();
        self.cancelled = cancelled.filter(|of| goes_on(*of).is_some_and(|moving| !moving.handed));
        let came_late = cancelled.filter(|(pair, [_, to])| has(*to, *pair));
        let over = self.under_way.take().or(came_late).filter(|of| goes_on(*of).is_none());
        if let Some((pair, [from, to])) = over {
            self.ended.extend([(from, (now_ms, None)), (to, (now_ms, Some(pair)))]);
        }
    }

    /// A move of balance begins, or goes on.
    pub(crate) fn moved(&mut self, now_ms: u64, pair: PairId, [from, to]: [NodeId; 2]) {
        self.gave.insert(from, now_ms);
        self.took.insert(to, now_ms);
        self.note_under_way(pair, [from, to]);
    }

    /// A move begins, or goes on: once it is over, its ends have other room than they have reported.
    pub(crate) fn note_under_way(&mut self, pair: PairId, ends: [NodeId; 2]) {
        self.under_way = Some((pair, ends));
    }

    /// The balancer cancels a move: neither end has more or less by it, and none has to report that.
    pub(crate) fn cancels(&mut self, moving: MoveUnderWay) {
        self.cancelled = Some((moving.pair, [moving.from, moving.to]));
        self.under_way = None;
    }

    /// Relief takes a pair from a node.
    pub(crate) fn relieve(&mut self, now_ms: u64, pair: PairId, node: NodeId) {
        self.relieved.insert(node, now_ms);
        self.relieving = Some(pair);
    }

    /// Another move begins.
    pub(crate) fn forget_relief(&mut self) {
        self.relieving = None;
    }

    /// Whether the move of a pair is relief's, as far as this balancer has started it.
    pub(crate) fn relieves(&self, pair: PairId) -> bool {
        self.relieving == Some(pair)
    }

    /// Whether relief has taken a pair from a node a short time ago.
    pub(crate) fn is_relieved(&self, node: NodeId) -> bool {
        self.relieved.contains_key(&node)
    }

    /// Whether a node is full, or was a short time ago: then it takes no pair for balance, and none that was
    /// made for it. By its bytes it may have less than others all the time.
    pub(crate) fn was_full(&self, member: &MemberFigures) -> bool {
        let was_full = member.writes_wait || self.is_relieved(member.node);
        was_full && !planted(Mutant::FullNodeTakes)
    }

    /// Whether a node has reported what it has since balance or a drain last moved a pair there or away. One
    /// that says what a pair takes that it got has: it may not report anything new for a quarter of a window.
    pub(crate) fn has_reported_since(&self, now_ms: u64, member: &MemberFigures) -> bool {
        let Some((ended_ms, got)) = self.ended.get(&member.node) else { return true };
        let got = got.and_then(|got| member.pairs.iter().find(|held| held.pair == got));
        let reported_ms = member.reported_ms_ago.map(|ago_ms| now_ms.saturating_sub(ago_ms));
        // Both times are rounded.
        got.is_some_and(|held| held.load.is_some())
            || reported_ms.is_some_and(|reported_ms| reported_ms > ended_ms + 1)
            || planted(Mutant::ReliefByOldFigures)
    }

    /// Remembers a pair's load, because it is about to leave who has measured it.
    pub(crate) fn carry(&mut self, now_ms: u64, held: &HeldPair, rules: &BalanceRules) {
        if self.unmeasured_ms(held, rules).is_none()
            && let Some(load) = held.load
        {
            let load_ns = self.carried_load(held, rules).unwrap_or(load.load_ns);
            self.carried.insert(held.pair, (load_ns, now_ms));
        }
    }

    /// Remembers what a pair takes, and what is left where it goes, because it is about to come to who has
    /// not reported that. Of a move that is not new its target may have reported already that it has less.
    pub(crate) fn comes(&mut self, now_ms: u64, held: &HeldPair, to: &MemberFigures, is_new: bool) {
        let Some(load) = held.load else { return };
        let known = self.came.get(&held.pair).filter(|came| !is_new && came.to == to.node);
        let left_bytes = match known {
            Some(came) => came.left_bytes,
            None => self.memory_left(to).saturating_sub(load.memory_bytes),
        };
        self.came.insert(held.pair, Coming { at_ms: now_ms, load, to: to.node, left_bytes });
    }

    /// What a pair took at its last owner.
    pub(crate) fn came(&self, pair: PairId) -> Option<PairLoad> {
        self.came.get(&pair).map(|came| came.load)
    }

    /// Memory that a node has left: what it has reported, and no more than what pairs leave there that have
    /// come and that it has not reported yet.
    pub(crate) fn memory_left(&self, member: &MemberFigures) -> u64 {
        if self.came.is_empty() {
            return member.memory_left_bytes;
        }
        let unreported = member.pairs.iter().filter(|held| held.load.is_none());
        let came = unreported.filter_map(|held| self.came.get(&held.pair));
        let left = came.filter(|came| came.to == member.node).map(|came| came.left_bytes);
        left.fold(member.memory_left_bytes, u64::min)
    }

    /// A move came to nothing.
    pub(crate) fn fail(&mut self, now_ms: u64, pair: PairId, to: NodeId, why: MoveFailure) {
        self.failed.insert((pair, to), (now_ms, why));
        let before = self.failing.get(&pair);
        let since_ms = before.map_or(now_ms, |before| before.since_ms);
        let moves = before.map_or(0, |before| before.moves).saturating_add(1);
        self.failing.insert(pair, Failing { since_ms, moves, to, why });
    }

    /// The pairs of nodes that drain of which moves came to nothing, since when, and why the last one did.
    pub(crate) fn failing(&self, now_ms: u64) -> impl Iterator<Item = (PairId, u64, PairObstacle)> {
        self.failing.iter().map(move |(pair, failing)| {
            let Failing { since_ms, moves, to, why } = *failing;
            (*pair, now_ms.saturating_sub(since_ms), PairObstacle::Fails { moves, to, why })
        })
    }

    /// A pair that was made for another node moves there, or balance moves one.
    pub(crate) fn note_fresh(&mut self, is_fresh: bool) {
        self.fresh_in_row = if is_fresh { self.fresh_in_row.saturating_add(1) } else { 0 };
    }

    /// Moves of pairs that were made for other nodes, since balance last moved one.
    pub(crate) fn fresh_in_row(&self) -> u32 {
        self.fresh_in_row
    }

    /// Why a pair is not sent to a node, if it could not be a moment ago.
    pub(crate) fn failure(&self, pair: PairId, to: NodeId) -> Option<MoveFailure> {
        if self.failed.is_empty() {
            return None;
        }
        self.failed.get(&(pair, to)).map(|(_, why)| *why)
    }

    /// The load of a pair that its owner has not measured for a window, as its last owner measured it.
    pub(crate) fn carried_load(&self, held: &HeldPair, rules: &BalanceRules) -> Option<u64> {
        let is_young = held.held_ms < rules.window_ms && matches!(held.arrival, Arrival::Moved(_));
        if !is_young {
            return None;
        }
        self.carried.get(&held.pair).map(|(load_ns, _)| *load_ns)
    }

    /// What is left of the window until a pair's load is known.
    pub(crate) fn unmeasured_ms(&self, held: &HeldPair, rules: &BalanceRules) -> Option<u64> {
        let left_ms = rules.window_ms.checked_sub(held.held_ms).filter(|left| *left > 0)?;
        self.carried_load(held, rules).is_none().then_some(left_ms)
    }

    /// For how long a node gives no pair, because it took one.
    pub(crate) fn gives_in_ms(&self, now_ms: u64, node: NodeId, rules: &BalanceRules) -> Option<u64> {
        self.took.get(&node).and_then(|at| left(now_ms, *at, rules.node_rest_ms))
    }

    /// For how long a node takes no pair, because it gave one.
    pub(crate) fn takes_in_ms(&self, now_ms: u64, node: NodeId, rules: &BalanceRules) -> Option<u64> {
        let relieved = self.relieved.get(&node).filter(|_| !planted(Mutant::FullNodeTakes));
        let rests_ms = relieved.and_then(|at| left(now_ms, *at, rules.pair_rest_ms));
        rests_ms.max(self.gave.get(&node).and_then(|at| left(now_ms, *at, rules.node_rest_ms)))
    }

    /// For how long a new balancer only watches.
    pub(crate) fn watches_ms(&self, now_ms: u64, rules: &BalanceRules) -> Option<u64> {
        left(now_ms, self.first_ms.unwrap_or(now_ms), rules.window_ms.max(rules.node_rest_ms))
    }

    /// For how long balance waits after a drain.
    pub(crate) fn after_drain_ms(&self, now_ms: u64, rules: &BalanceRules) -> Option<u64> {
        self.drain_ms.and_then(|at| left(now_ms, at, rules.window_ms))
    }

    /// Where all pairs of nodes that drain go. As long as that can be, they do: if each were placed anew
    /// after each move, the last ones might find no room any more.
    pub(crate) fn keep_places(&mut self, places: BTreeMap<PairId, NodeId>) {
        self.places = places;
    }

    /// Where a pair of a node that drains goes.
    pub(crate) fn place(&self, pair: PairId) -> Option<NodeId> {
        self.places.get(&pair).copied()
    }

    /// Takes in which pairs keep a drain from going on.
    pub(crate) fn note_blocked(&mut self, now_ms: u64, pairs: impl Iterator<Item = PairId>) {
        let since = |pair| (pair, self.blocked.get(&pair).copied().unwrap_or(now_ms));
        self.blocked = pairs.map(since).collect();
    }

    /// For how long a pair has kept a drain from going on.
    pub(crate) fn blocked_ms(&self, now_ms: u64, pair: PairId) -> u64 {
        self.blocked.get(&pair).map_or(0, |since| now_ms.saturating_sub(*since))
    }
}
