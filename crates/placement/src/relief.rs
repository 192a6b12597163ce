//! Relief of a node at which puts find no memory: one of its pairs leaves at once.
//!
//! Balance moves pairs for what they take and do over a window, and both ends rest afterwards. Writes do not
//! wait for that long. So relief waits for no window, and heeds no rest but that of a pair that an operator
//! has moved. It goes by the memory that nodes say they have left.
//!
//! It comes to an end. A node that gets a pair keeps more than the full one had, by an eighth of the pair and
//! by 4 MiB at least. So much has to be written there before it is full and gives a pair itself.
//!
//! Drains go before it, and may last for ever: a pair that fits nowhere does not leave. So a full node gives
//! a pair while none of a drain can move, and only into room that the drain's pairs are not to find.

use cell_terms::NodeId;

use crate::drain::{DrainLook, Emptying};
use crate::figures::{Arrival, Figures, HeldPair, MemberFigures, MoveCause, PairLoad};
use crate::history::History;
use crate::obstacle::PairObstacle;
use crate::reason::{MoveReason, NextStep, NoRelief, PlannedMove};
use crate::rules::BalanceRules;
use crate::targets::{pairs_left, takes};

/// What a move gives, if there is a pair that gives so much: a larger one takes longer.
const ENOUGH_BYTES: u64 = 64 << 20;
/// A move's target keeps more than its node had: by this part of the pair,
const GAIN_PART: u64 = 8;
/// and by this at least. It is what a pair grows by, twice, where memory is short.
const GAIN_BYTES_MIN: u64 = 4 << 20;

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
        // Once it is handed over it is its target's, and nobody has reported yet what it takes there.
        held.and_then(|held| held.load).map_or(ENOUGH_BYTES, |load| load.memory_bytes)
    });
    leaves.max(could_give(figures, rules, node))
}

/// How much memory a node would get back by the pair that could leave it if nothing was left there.
fn could_give(figures: &Figures, rules: &BalanceRules, node: NodeId) -> Option<u64> {
    if !is_heeded(figures) {
        return None;
    }
    let none = History::default();
    let drains = figures.members.iter().any(MemberFigures::is_being_emptied);
    let drain = drains.then(|| Emptying { figures, history: &none, rules, also: &[] }.step());
    if drain.as_ref().is_some_and(|drain| !waits(drain)) {
        return None;
    }
    let others = drain.map(|drain| drain.left_to_others(figures));
    let known = others.as_ref().unwrap_or(figures);
    let gives = |member: &&MemberFigures| member.node == node && member.can_give() && !member.draining;
    let from = known.members.iter().find(gives)?;
    let found = of_node((known, 0), &none, rules, (from, 0))?;
    Some(found.load.memory_bytes)
}

/// Whether nothing but a drain goes before it: no takeover, no pause.
fn is_heeded(figures: &Figures) -> bool {
    figures.pause.is_none() && figures.takeovers_open == 0
}

/// Whether no pair of a drain can move now, and it is known what each needs.
fn waits(drain: &DrainLook) -> bool {
    let is_unknown = |why: &PairObstacle| matches!(why, PairObstacle::Unreported { .. });
    matches!(drain.step, NextStep::Rest(_)) && !drain.blocked.iter().any(|(_, _, why)| is_unknown(why))
}

/// The move of a full node's pair while nodes drain.
pub(crate) fn beside_drain(
    now_ms: u64,
    figures: &Figures,
    drain: &DrainLook,
    history: &History,
    rules: &BalanceRules,
) -> Option<PlannedMove> {
    let may_go = is_heeded(figures) && waits(drain) && !full(figures).is_empty();
    may_go.then(|| next(now_ms, &drain.left_to_others(figures), history, rules)).flatten()
}

/// The pair that leaves a node at which puts find no memory, and where it goes: of the node with the least
/// memory left the smallest pair that gives enough, to who has most left.
pub(crate) fn next(
    now_ms: u64,
    figures: &Figures,
    history: &History,
    rules: &BalanceRules,
) -> Option<PlannedMove> {
    let is_known = |member: &&MemberFigures| is_known(now_ms, member, history, rules);
    full(figures).into_iter().filter(is_known).find_map(|from| {
        let found = of_node((figures, now_ms), history, rules, (from, from.memory_left_bytes))?;
        let Found { held, load, to } = found;
        let why = MoveReason::Full { left_bytes: to.memory_left_bytes };
        Some(PlannedMove { pair: held.pair, from: from.node, to: to.node, bytes: load.bytes, why })
    })
}

/// The node that would give a pair, but for a move of balance that is not for its sake: that one would be
/// waited for, and writes do not wait so long. It goes by all that [`next`] goes by: else a move would be
/// cancelled for a pair that then does not leave, and so would the next one.
pub(crate) fn held_up(
    now_ms: u64,
    figures: &Figures,
    history: &History,
    rules: &BalanceRules,
) -> Option<NodeId> {
    let planned = is_heeded(figures).then(|| next(now_ms, figures, history, rules));
    planned.flatten().map(|planned| planned.from)
}

/// Why none leaves the fullest node at which puts find no memory; none: there is no such node.
pub(crate) fn nothing(
    now_ms: u64,
    figures: &Figures,
    history: &History,
    rules: &BalanceRules,
) -> Option<(NodeId, NoRelief)> {
    let from = full(figures).into_iter().next()?;
    let others = || {
        let is_other = move |member: &&MemberFigures| member.node != from.node && may_take(member, rules);
        figures.members.iter().filter(is_other)
    };
    let mut why = NoRelief {
        left_bytes: from.memory_left_bytes,
        unreported: !is_known(now_ms, from, history, rules)
            || others().any(|member| !history.has_reported_since(now_ms, member)),
        most_left_bytes: others().map(|member| member.memory_left_bytes).max().unwrap_or(0),
        ..NoRelief::default()
    };
    for held in &from.pairs {
        let counted = match held.load {
            _ if held.hold.is_some() => &mut why.held,
            None => &mut why.held,
            Some(_) if !may_leave(held, rules) => &mut why.kept,
            Some(load) if load.memory_bytes <= from.memory_left_bytes => &mut why.small,
            Some(_) => &mut why.no_room,
        };
        *counted += 1;
    }
    Some((from.node, why))
}

/// The nodes at which puts find no memory, and whose pairs can leave; who has least left first. Pairs of
/// nodes that drain leave by the drain.
fn full(figures: &Figures) -> Vec<&MemberFigures> {
    let is_full = |member: &&MemberFigures| member.writes_wait && member.can_give() && !member.draining;
    let mut full: Vec<&MemberFigures> = figures.members.iter().filter(is_full).collect();
    full.sort_by_key(|member| (member.memory_left_bytes, member.node));
    full
}

fn is_known(now_ms: u64, member: &MemberFigures, history: &History, rules: &BalanceRules) -> bool {
    member.reported_within(rules.window_ms) && history.has_reported_since(now_ms, member)
}

/// Whether a node takes pairs of full ones, as far as it has room. That it gave one itself a short time ago
/// does not matter: it has reported since what it has left.
fn may_take(member: &MemberFigures, rules: &BalanceRules) -> bool {
    takes(member, rules) && pairs_left(member) > 0 && !member.writes_wait
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
                && may_take(member, rules)
                && history.has_reported_since(now_ms, member)
                && history.failure(held.pair, member.node).is_none()
                && gains(left_bytes, member.memory_left_bytes, load.memory_bytes)
        };
        let others = figures.members.iter().filter(can_take);
        let to = others.max_by_key(|member| (member.memory_left_bytes, std::cmp::Reverse(member.node)))?;
        Some(Found { held, load, to })
    })
}

/// Whether nothing has hold of a pair. Where an operator has put it, it stays for a while.
pub(crate) fn may_leave(held: &HeldPair, rules: &BalanceRules) -> bool {
    let rests = held.arrival == Arrival::Moved(MoveCause::Operator) && held.held_ms < rules.pair_rest_ms;
    held.hold.is_none() && !rests
}

/// The smallest that gives enough comes first: it is copied soonest. If none does, the largest.
fn rank(bytes: u64) -> (bool, u64) {
    if bytes >= ENOUGH_BYTES { (false, bytes) } else { (true, ENOUGH_BYTES - bytes) }
}

/// Whether the target keeps so much more than the node had that the move is worth it.
fn gains(left_bytes: u64, left_there_bytes: u64, bytes: u64) -> bool {
    let least = left_bytes.saturating_add(GAIN_BYTES_MIN.max(bytes / GAIN_PART));
    left_there_bytes.checked_sub(bytes).is_some_and(|after| after >= least)
}
