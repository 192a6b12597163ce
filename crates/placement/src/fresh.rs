//! Where a pair goes that is made for a split.
//!
//! A node that has more than the mean gives the upper half of a meganode to a *fresh* pair, and that one to
//! another node as soon as the split is open, when there is next to nothing to copy. That is footnote 2 of
//! the paper (Cell, ATC 2016, section 2.2) without copying between machines. It goes by bytes as of now: a
//! load fills a node within seconds, and a figure over a window would send all of it to the same place.

use std::fmt;

use cell_random::mix;
use cell_terms::{NodeId, PairId};

use crate::figures::{BalancePause, Figures, MemberFigures};
use crate::rules::BalanceRules;
use crate::targets::{pairs_left, takes};
use crate::words::percent;

/// A split that needs a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreshSplit {
    /// Whose meganode splits.
    pub from: NodeId,
    /// The pair that is made; or, before it has its number, one that no other split names.
    pub pair: PairId,
    /// Bytes that go there.
    pub bytes: u64,
    /// Memory that its regions take.
    pub memory_bytes: u64,
}

/// Where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreshPlace {
    /// The node; that of the split itself, if it stays.
    pub node: NodeId,
    /// Why.
    pub why: FreshReason,
}

/// Why it goes there. Parts of the mean are in percent of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreshReason {
    /// It goes to a node that has less.
    HasLess {
        /// What the node of the split has.
        percent: u32,
        /// What the other one has.
        there_percent: u32,
    },
    /// It stays: the node of the split is not above the mean, or by little.
    NotAbove {
        /// What it has.
        percent: u32,
    },
    /// It stays: no node below the mean has room for it and would have less than is left here.
    NobodyBelow {
        /// What the node of the split has.
        percent: u32,
    },
    /// It stays: only drains move pairs now.
    Paused(BalancePause),
    /// It stays: a node drains.
    Drain {
        /// Which.
        node: NodeId,
    },
    /// It stays: nobody knows what the node of the split has.
    Unknown,
}

impl fmt::Display for FreshReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FreshReason::HasLess { percent, there_percent } => {
                write!(f, "it has {there_percent} % of the mean bytes, and the node that splits {percent} %")
            }
            FreshReason::NotAbove { percent } => {
                write!(f, "it stays, because its node has {percent} % of the mean bytes")
            }
            FreshReason::NobodyBelow { percent } => {
                write!(
                    f,
                    "it stays, though its node has {percent} % of the mean bytes: no node below the mean "
                )?;
                f.write_str("has room for it and would have less afterwards")
            }
            FreshReason::Paused(pause) => write!(f, "it stays, because {pause}"),
            FreshReason::Drain { node } => write!(f, "it stays, because {node} drains"),
            FreshReason::Unknown => f.write_str("it stays, because its node's figures are not known"),
        }
    }
}

/// Where the pair goes that is made for a split.
///
/// The node of the split must be above the mean by half the tolerance: what others have was reported a moment
/// ago, and of nodes that fill up alike each thinks that it has more than the rest.
///
/// Nodes that split at the same time do not see each other's choices. So that they do not all choose the same
/// node, two of those that may take it are drawn by the pair's number, and the one with fewer bytes is taken.
#[must_use]
pub fn fresh_place(figures: &Figures, rules: &BalanceRules, split: &FreshSplit) -> FreshPlace {
    let stays = |why| FreshPlace { node: split.from, why };
    if let Some(pause) = figures.pause {
        return stays(FreshReason::Paused(pause));
    }
    if let Some(member) = figures.members.iter().find(|member| member.is_being_emptied()) {
        return stays(FreshReason::Drain { node: member.node });
    }
    let known = Known::new(figures, rules);
    let Some(here) = known.bytes_of(split.from) else { return stays(FreshReason::Unknown) };
    if !known.is_above(here) || (here as f64) < known.mean() * (1.0 + rules.tolerance() / 2.0) {
        return stays(FreshReason::NotAbove { percent: known.share(here) });
    }
    let candidates: Vec<&(&MemberFigures, u64)> =
        known.members.iter().filter(|(member, bytes)| known.fits(split, here, member, *bytes)).collect();
    let two = drawn(candidates.len(), split.pair).into_iter().flatten().filter_map(|at| candidates.get(at));
    match two.min_by_key(|(member, bytes)| (*bytes, member.node)) {
        Some((member, bytes)) => {
            let (percent, there_percent) = (known.share(here), known.share(*bytes));
            FreshPlace { node: member.node, why: FreshReason::HasLess { percent, there_percent } }
        }
        None => stays(FreshReason::NobodyBelow { percent: known.share(here) }),
    }
}

/// Whether a node can take what is divided off, into a pair that is made for it already.
#[must_use]
pub fn fresh_fits(figures: &Figures, rules: &BalanceRules, split: &FreshSplit, to: NodeId) -> bool {
    let known = Known::new(figures, rules);
    let fits = |here: u64| {
        let mut members = known.members.iter().filter(|(member, _)| member.node == to);
        members.any(|(member, bytes)| known.fits(split, here, member, *bytes))
    };
    known.bytes_of(split.from).is_some_and(fits)
}

/// The members that take pairs, each with its bytes.
struct Known<'f> {
    members: Vec<(&'f MemberFigures, u64)>,
    all: u64,
}

impl Known<'_> {
    fn new<'f>(figures: &'f Figures, rules: &BalanceRules) -> Known<'f> {
        let members = figures.members.iter().filter(|member| takes(member, rules));
        let members: Vec<_> = members.map(|member| (member, bytes(member))).collect();
        let all = members.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        Known { members, all }
    }

    fn bytes_of(&self, node: NodeId) -> Option<u64> {
        self.members.iter().find(|(member, _)| member.node == node).map(|(_, bytes)| *bytes)
    }

    fn mean(&self) -> f64 {
        self.all as f64 / self.members.len() as f64
    }

    /// In percent of the mean.
    fn share(&self, bytes: u64) -> u32 {
        percent(bytes as f64 * self.members.len() as f64 / self.all.max(1) as f64)
    }

    fn is_above(&self, bytes: u64) -> bool {
        u128::from(bytes) * self.members.len() as u128 > u128::from(self.all)
    }

    /// Whether a member below the mean has room for it, and would have no more than is left where it was.
    fn fits(&self, split: &FreshSplit, here: u64, member: &MemberFigures, bytes: u64) -> bool {
        let takes = !member.writes_wait && pairs_left(member) > 0;
        let room = takes && member.memory_left_bytes >= split.memory_bytes;
        let left = here.saturating_sub(split.bytes);
        let helps = !self.is_above(bytes) && bytes.saturating_add(split.bytes) <= left;
        room && member.node != split.from && helps
    }
}

/// Whether a node has to divide what it holds, because its pairs are too large for balance: it has too many
/// bytes, and those of its pairs that balance could move to the node with the fewest are less than half of
/// what it has too many.
///
/// A load that is faster than figures are reported leaves a node one pair with nearly all of it. That one
/// cannot move, because the other node would have as much afterwards; and nothing splits once the load is
/// over. Nor can two pairs of one and a half times the mean each, which a node has while two others are
/// empty.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of what fits")]
pub fn has_to_divide(figures: &Figures, rules: &BalanceRules, node: NodeId, pairs: &[u64]) -> bool {
    if figures.pause.is_some() || figures.members.iter().any(MemberFigures::is_being_emptied) {
        return false;
    }
    let known = Known::new(figures, rules);
    let takers = known.members.iter().filter(|(other, _)| other.node != node && pairs_left(other) > 0);
    let least = takers.map(|(_, bytes)| *bytes).min();
    let (Some(least), Some(here)) = (least, known.bytes_of(node)) else { return false };
    let mean = known.all / known.members.len() as u64;
    let excess = here.saturating_sub(mean);
    let tolerated = (mean as f64 * rules.tolerance()) as u64;
    if mean < rules.bytes_floor || excess <= tolerated {
        return false;
    }
    // As balance has it: the other one is not lifted over the tolerance, and there is something gained.
    let most = (here - excess / 4).min(mean.saturating_add(tolerated));
    let can_move = |bytes: &&u64| least.saturating_add(**bytes) <= most;
    pairs.iter().filter(can_move).fold(0_u64, |sum, bytes| sum.saturating_add(*bytes)) < excess / 2
}

fn bytes(member: &MemberFigures) -> u64 {
    member.pairs.iter().filter_map(|held| held.load).fold(0, |sum, load| sum.saturating_add(load.bytes))
}

/// Two different places of so many, by a pair's number.
fn drawn(count: usize, pair: PairId) -> [Option<usize>; 2] {
    let place = |number: u64, of: usize| usize::try_from(number % of.max(1) as u64).unwrap_or(0);
    let first = place(mix(u64::from(pair.0)), count);
    let step = 1 + place(mix(u64::from(pair.0) ^ (1 << 32)), count.saturating_sub(1));
    [Some(first), (count > 1).then(|| (first + step) % count)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_places_are_two_and_each_comes_up() {
        for count in 1..6 {
            let mut seen = vec![0; count];
            for pair in 0..200 {
                let [first, second] = drawn(count, PairId(pair));
                assert_ne!(first, second);
                assert_eq!(second.is_some(), count > 1);
                for at in [first, second].into_iter().flatten() {
                    seen[at] += 1;
                }
            }
            assert!(seen.iter().all(|seen| *seen > 40), "{seen:?}");
        }
    }
}
