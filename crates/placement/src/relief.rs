//! Relief of a node at which writes wait for memory: one of its pairs leaves at once.
//!
//! Balance moves pairs for what they take and do over a window, and both ends rest afterwards. Writes wait
//! for some seconds only. So relief waits for no window and heeds no rest but that of a pair that an operator
//! has moved. It goes by what memory nodes have left, which each tells of itself.
//!
//! It settles: the smaller one of what both ends have left grows with each such move. So while pairs stay as
//! they are, no sequence of them comes back to where it began.

use std::cmp::Reverse;

use cell_terms::NodeId;

use crate::figures::{Arrival, Figures, HeldPair, MemberFigures, MoveCause};
use crate::history::History;
use crate::reason::{MoveReason, PlannedMove};
use crate::rules::BalanceRules;
use crate::targets::{pairs_left, takes};

/// Whether a move could give a node memory at which writes wait for some: `left_bytes` is what it has left,
/// and `pairs` what each of its pairs takes that could leave.
#[must_use]
pub fn can_be_relieved(
    figures: &Figures,
    rules: &BalanceRules,
    node: NodeId,
    left_bytes: u64,
    pairs: impl IntoIterator<Item = u64>,
) -> bool {
    let drains = || figures.members.iter().any(MemberFigures::is_being_emptied);
    if figures.pause.is_some() || figures.takeovers_open > 0 || drains() {
        return false;
    }
    let others = figures.members.iter().filter(|member| is_target(member, node, rules));
    let Some(most) = others.map(|member| member.memory_left_bytes).max() else { return false };
    pairs.into_iter().any(|bytes| helps(left_bytes, most, bytes))
}

/// The pair that leaves a node at which writes wait, and where it goes: of the node with the least memory
/// left the pair that takes most of it, to who has most left.
pub(crate) fn next(figures: &Figures, history: &History, rules: &BalanceRules) -> Option<PlannedMove> {
    let is_full = |member: &&MemberFigures| {
        member.writes_wait && member.can_give() && member.told_within(rules.window_ms)
    };
    let mut full: Vec<&MemberFigures> = figures.members.iter().filter(is_full).collect();
    full.sort_by_key(|member| (member.memory_left_bytes, member.node));
    full.into_iter().find_map(|from| of_node(figures, history, rules, from))
}

fn of_node(
    figures: &Figures,
    history: &History,
    rules: &BalanceRules,
    from: &MemberFigures,
) -> Option<PlannedMove> {
    let free = from.pairs.iter().filter(|held| may_leave(held, rules));
    let mut pairs: Vec<_> = free.filter_map(|held| Some((held, held.load?))).collect();
    pairs.sort_by_key(|(held, load)| (Reverse(load.memory_bytes), held.pair));
    pairs.into_iter().find_map(|(held, load)| {
        let can_take = |member: &&MemberFigures| {
            is_target(member, from.node, rules)
                && history.failure(held.pair, member.node).is_none()
                && helps(from.memory_left_bytes, member.memory_left_bytes, load.memory_bytes)
        };
        let others = figures.members.iter().filter(can_take);
        let to = others.max_by_key(|member| (member.memory_left_bytes, Reverse(member.node)))?;
        let why = MoveReason::Full { left_bytes: to.memory_left_bytes };
        Some(PlannedMove { pair: held.pair, from: from.node, to: to.node, bytes: load.bytes, why })
    })
}

/// Whether nothing has hold of a pair. Where an operator has put it, it stays for a while.
fn may_leave(held: &HeldPair, rules: &BalanceRules) -> bool {
    let rests = held.arrival == Arrival::Moved(MoveCause::Operator) && held.held_ms < rules.pair_rest_ms;
    held.hold.is_none() && !rests
}

fn is_target(member: &MemberFigures, from: NodeId, rules: &BalanceRules) -> bool {
    member.node != from && takes(member, rules) && !member.writes_wait && pairs_left(member) > 0
}

/// Whether the move of a pair that takes so many bytes is worth it: it gives its node more than that has
/// left, and its target keeps more than its node had.
fn helps(left_bytes: u64, left_there_bytes: u64, bytes: u64) -> bool {
    let after = left_there_bytes.checked_sub(bytes);
    bytes > left_bytes && after.is_some_and(|after| after > left_bytes)
}
