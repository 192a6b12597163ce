//! Relief of a node at which writes wait for memory: one of its pairs leaves at once.
//!
//! Balance moves pairs for what they take and do over a window, and both ends rest afterwards. Writes do not
//! wait for that long. So relief waits for no window, and heeds no rest but that of a pair that an operator
//! has moved. It goes by the memory that nodes say they have left.
//!
//! It comes to an end. A node of which relief has taken a pair gets none for as long as pairs rest, be it for
//! balance, by a split, or by relief. So within that time pairs go from full nodes to others, and never back.

use cell_terms::NodeId;

use crate::figures::{Arrival, Figures, HeldPair, MemberFigures, MoveCause, PairLoad};
use crate::history::History;
use crate::reason::{MoveReason, PlannedMove};
use crate::rules::BalanceRules;
use crate::targets::{pairs_left, takes};

/// What a move gives, if there is a pair that gives so much; and by how much more its target keeps than its
/// node had, at least.
const LEAST_BYTES: u64 = 64 << 20;

/// What goes, and to whom.
struct Found<'f> {
    held: &'f HeldPair,
    load: PairLoad,
    to: &'f MemberFigures,
}

/// How much memory a node gets back by the pair that is leaving it, or by the one that could leave it if
/// writes waited there and nothing was left: by the larger one. None: none leaves, and none could. What only
/// the balancer remembers is left out.
#[must_use]
pub fn relief_bytes(figures: &Figures, rules: &BalanceRules, node: NodeId) -> Option<u64> {
    let from = figures.members.iter().find(|member| member.node == node)?;
    let leaves = figures.moving.filter(|moving| moving.from == node).map(|moving| {
        let held = from.pairs.iter().find(|held| held.pair == moving.pair);
        // Once it is handed over it is its target's, and nobody has told yet what it takes there.
        held.and_then(|held| held.load).map_or(LEAST_BYTES, |load| load.memory_bytes)
    });
    let drains = figures.members.iter().any(MemberFigures::is_being_emptied);
    let may_leave = !drains && figures.pause.is_none() && figures.takeovers_open == 0 && from.can_give();
    let found = may_leave.then(|| of_node((figures, 0), &History::default(), rules, (from, 0)));
    leaves.max(found.flatten().map(|found| found.load.memory_bytes))
}

/// The pair that leaves a node at which writes wait, and where it goes: of the node with the least memory
/// left the smallest pair that gives enough, to who has most left.
pub(crate) fn next(
    now_ms: u64,
    figures: &Figures,
    history: &History,
    rules: &BalanceRules,
) -> Option<PlannedMove> {
    let is_full = |member: &&MemberFigures| {
        let is_known = member.told_within(rules.window_ms) && history.has_told_since(now_ms, member);
        member.writes_wait && member.can_give() && is_known
    };
    let mut full: Vec<&MemberFigures> = figures.members.iter().filter(is_full).collect();
    full.sort_by_key(|member| (member.memory_left_bytes, member.node));
    full.into_iter().find_map(|from| {
        let found = of_node((figures, now_ms), history, rules, (from, from.memory_left_bytes))?;
        let Found { held, load, to } = found;
        let why = MoveReason::Full { left_bytes: to.memory_left_bytes };
        Some(PlannedMove { pair: held.pair, from: from.node, to: to.node, bytes: load.bytes, why })
    })
}

fn of_node<'f>(
    (figures, now_ms): (&'f Figures, u64),
    history: &History,
    rules: &BalanceRules,
    (from, left_bytes): (&'f MemberFigures, u64),
) -> Option<Found<'f>> {
    let free = from.pairs.iter().filter(|held| may_leave(held, rules));
    let mut pairs: Vec<(&HeldPair, PairLoad)> = free
        .filter_map(|held| Some((held, held.load?)))
        .filter(|(_, load)| load.memory_bytes > left_bytes)
        .collect();
    pairs.sort_by_key(|(held, load)| (rank(load.memory_bytes), held.pair));
    pairs.into_iter().find_map(|(held, load)| {
        let can_take = |member: &&MemberFigures| {
            member.node != from.node
                && takes(member, rules)
                && pairs_left(member) > 0
                && !history.was_full(member)
                && history.has_told_since(now_ms, member)
                && history.failure(held.pair, member.node).is_none()
                && gains(left_bytes, member.memory_left_bytes, load.memory_bytes)
        };
        let others = figures.members.iter().filter(can_take);
        let to = others.max_by_key(|member| (member.memory_left_bytes, std::cmp::Reverse(member.node)))?;
        Some(Found { held, load, to })
    })
}

/// Whether nothing has hold of a pair. Where an operator has put it, it stays for a while.
fn may_leave(held: &HeldPair, rules: &BalanceRules) -> bool {
    let rests = held.arrival == Arrival::Moved(MoveCause::Operator) && held.held_ms < rules.pair_rest_ms;
    held.hold.is_none() && !rests
}

/// The smallest that gives enough comes first: it is copied soonest. If none does, the largest.
fn rank(bytes: u64) -> (bool, u64) {
    if bytes >= LEAST_BYTES { (false, bytes) } else { (true, LEAST_BYTES - bytes) }
}

/// Whether the target keeps so much more than the node had that the move is worth it.
fn gains(left_bytes: u64, left_there_bytes: u64, bytes: u64) -> bool {
    let least = left_bytes.saturating_add(LEAST_BYTES.max(bytes / 8));
    left_there_bytes.checked_sub(bytes).is_some_and(|after| after >= least)
}
