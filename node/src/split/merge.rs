//! When meganodes that were emptied are merged: a meganode and its left neighbour, both empty, become one, so
//! that the slot of the other is free for entries with other keys. Keys that move on, as those of a queue or
//! of a time do, leave a row of empty meganodes behind.
//!
//! One at a time, of this worker's. A merge goes the way of a split (`docs/design/splits.md`, "Merges").

use std::collections::BTreeMap;

use super::Splits;
use crate::directory::{MeganodeAt, Range};
use crate::outbox::PairAt;
use crate::pairs::Pairs;

/// How often empty neighbours are looked for.
const LOOK_NS: u64 = 250_000_000;
/// A meganode that has been empty for so long is merged: its keys may come again at once.
const EMPTY_NS: u64 = 1_000_000_000;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Merges {
    look_at_ns: u64,
    /// Since when meganodes have been seen to be empty.
    empty_since: BTreeMap<MeganodeAt, u64>,
}

impl Merges {
    /// Nothing is done at a pair any more.
    pub(super) fn forget_pair(&mut self, at: PairAt) {
        self.empty_since.retain(|there, _| there.pair != at);
    }
}

/// The meganodes of a worker that are empty beside an empty left neighbour, each with that one.
fn candidates<'a>(
    pairs: &'a Pairs,
    may_merge: impl Fn(&Range) -> bool + 'a,
) -> impl Iterator<Item = (&'a Range, &'a Range)> {
    let neighbours = pairs.directory.behind(None).windows(2).map(|two| (&two[0], &two[1]));
    let joined = |(left, right): &(&Range, &Range)| left.high.as_deref() == Some(&*right.low);
    neighbours.filter(joined).filter(move |(left, right)| may_merge(left) && may_merge(right))
}

impl Splits {
    /// Begins a merge if one is due.
    pub(super) fn merge(&mut self, pairs: &mut Pairs, now_ns: u64) {
        if now_ns < self.merges.look_at_ns {
            return;
        }
        self.merges.look_at_ns = now_ns + LOOK_NS;
        // Who waits for room does not wait for that: what is empty now has been emptied.
        let rests_ns = if self.full.is_empty() { EMPTY_NS } else { 0 };
        self.begin_merge(pairs, rests_ns, now_ns);
    }

    /// Begins a merge of a meganode that has been empty for so long. Whether one is under way.
    pub(super) fn begin_merge(&mut self, pairs: &mut Pairs, rests_ns: u64, now_ns: u64) -> bool {
        if self.sources.are_truncating() || self.sources.are_merging() {
            return self.sources.are_merging();
        }
        let stays: Vec<PairAt> = pairs.staying().collect();
        let spread = &self.spread;
        let may_merge = |range: &Range| {
            let pair = pairs.pair(range.at.pair);
            stays.contains(&range.at.pair) && !spread.is_fresh(pair.id()) && pair.may_merge(range.at.slot)
        };
        let empty: Vec<(MeganodeAt, MeganodeAt, Box<[u8]>)> = candidates(pairs, may_merge)
            .map(|(left, right)| (left.at, right.at, right.low.clone()))
            .collect();
        let Merges { empty_since, .. } = &mut self.merges;
        empty_since.retain(|there, _| empty.iter().any(|(_, right, _)| right == there));
        for (left, right, low) in empty {
            let since_ns = *empty_since.entry(right).or_insert(now_ns);
            if now_ns.saturating_sub(since_ns) >= rests_ns {
                return self.sources.begin_merge(pairs, right, &low, left, now_ns);
            }
        }
        false
    }
}
