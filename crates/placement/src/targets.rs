//! Who can take a pair.

use cell_terms::NodeId;

use crate::figures::{Figures, HeldPair, MemberFigures, MemberState, PairLoad};
use crate::history::History;
use crate::obstacle::NoTarget;
use crate::rules::BalanceRules;
use crate::survey::{Shares, Survey};

/// A node that takes pairs, as long as it has room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taker {
    pub(crate) node: NodeId,
    pub(crate) memory_left_bytes: u64,
    pub(crate) pairs_left: u32,
    pub(crate) shares: Shares,
}

impl Taker {
    pub(crate) fn has_room(&self, load: &PairLoad) -> bool {
        self.pairs_left > 0 && self.memory_left_bytes >= load.memory_bytes
    }

    /// It takes a pair.
    pub(crate) fn take(&mut self, load: &PairLoad, shares: Shares) {
        self.memory_left_bytes = self.memory_left_bytes.saturating_sub(load.memory_bytes);
        self.pairs_left = self.pairs_left.saturating_sub(1);
        self.shares = self.shares.plus(shares);
    }
}

/// How many more pairs a member may get: none while its disk has no room for their logs, or while it keeps
/// its memory for others.
pub(crate) fn pairs_left(member: &MemberFigures) -> u32 {
    if member.disk_full || member.keeps_memory {
        return 0;
    }
    member.pairs_max.saturating_sub(u32::try_from(member.pairs.len()).unwrap_or(u32::MAX))
}

/// Whether a member takes pairs at all, whatever its room.
pub(crate) fn takes(member: &MemberFigures, rules: &BalanceRules) -> bool {
    member.shares_load() && member.reported_within(rules.window_ms)
}

/// All that take pairs and are not to be emptied, by place among the members.
pub(crate) fn takers(
    figures: &Figures,
    survey: &Survey,
    (history, rules): (&History, &BalanceRules),
    leaves: impl Fn(&MemberFigures) -> bool,
) -> Vec<Taker> {
    let members = figures.members.iter().zip(&survey.nodes);
    members
        .filter(|(member, _)| takes(member, rules) && !leaves(member))
        .map(|(member, standing)| Taker {
            node: member.node,
            memory_left_bytes: history.memory_left(member),
            pairs_left: pairs_left(member),
            shares: standing.shares,
        })
        .collect()
}

/// Why none takes a pair, with so many bytes to grow by; None if one does, as things are.
pub(crate) fn no_target(
    figures: &Figures,
    history: &History,
    rules: &BalanceRules,
    (held, grows_bytes): (&HeldPair, u64),
    from: NodeId,
    leaves: impl Fn(&MemberFigures) -> bool,
) -> Option<NoTarget> {
    let needs_bytes = held.load.unwrap_or_default().memory_bytes;
    let mut why = NoTarget { needs_bytes, grows_bytes, ..NoTarget::default() };
    for member in figures.members.iter().filter(|member| member.node != from) {
        why.others += 1;
        let failure = history.failure(held.pair, member.node);
        let left_bytes = history.memory_left(member);
        if leaves(member) {
            why.draining += 1;
        } else if member.state != MemberState::Serving {
            why.not_serving += 1;
        } else if !member.reported_within(rules.window_ms) {
            why.unreported += 1;
        } else if member.disk_full {
            why.no_disk += 1;
        } else if member.keeps_memory {
            why.keeping += 1;
        } else if pairs_left(member) == 0 {
            why.full += 1;
        } else if left_bytes < needs_bytes.saturating_add(grows_bytes) {
            why.no_memory += 1;
            why.most_left_bytes = why.most_left_bytes.max(left_bytes);
        } else if let Some(failure) = failure {
            why.failed += 1;
            why.failure = Some((member.node, failure));
        } else {
            return None;
        }
    }
    Some(why)
}
