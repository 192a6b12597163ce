//! When meganodes that were emptied are merged: a meganode and its left neighbour, both empty, become one, so
//! that the slot of the other is free for entries with other keys. Keys that move on, as those of a queue or
//! of a time do, leave a row of empty meganodes behind.
//!
//! One at a time, of this worker's. A merge goes the way of a split (`docs/design/splits.md`, "Merges").

use std::collections::BTreeMap;

use cell_terms::Csn;

use super::source::Sources;
use super::spread::Spread;
use crate::directory::{MeganodeAt, Range};
use crate::outbox::PairAt;
use crate::pairs::Pairs;

/// How often empty neighbours are looked for.
const LOOK_NS: u64 = 250_000_000;
/// How often those who wait for room look.
const STARVED_LOOK_NS: u64 = 10_000_000;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Merges {
    rest_ns: u64,
    look_at_ns: u64,
    starved_look_at_ns: u64,
    /// Since when meganodes have been seen to be empty, and by which record they are.
    empty_since: BTreeMap<MeganodeAt, (Csn, u64)>,
}

impl Merges {
    /// Of those that have been empty for so long.
    pub(super) fn new(rest_ns: u64) -> Merges {
        Merges { rest_ns, ..Merges::default() }
    }

    /// Nothing is done at a pair any more.
    pub(super) fn forget_pair(&mut self, at: PairAt) {
        self.empty_since.retain(|there, _| there.pair != at);
    }

    /// Since when this one is empty, which is so now.
    fn since_ns(&mut self, there: MeganodeAt, by: Csn, now_ns: u64) -> u64 {
        let since = self.empty_since.entry(there).or_insert((by, now_ns));
        if since.0 != by {
            *since = (by, now_ns);
        }
        since.1
    }

    /// Begins a merge if one is due.
    pub(super) fn tick(&mut self, pairs: &mut Pairs, spread: &Spread, sources: &mut Sources, now_ns: u64) {
        if now_ns >= self.look_at_ns {
            self.look_at_ns = now_ns + LOOK_NS.min(self.rest_ns / 4);
            self.begin(pairs, spread, sources, (self.rest_ns, now_ns));
        }
    }

    /// Whether a slot becomes free to which entries of a meganode that has no room may go: what is empty is
    /// merged at once then.
    pub(super) fn slot_comes(
        &mut self,
        pairs: &mut Pairs,
        spread: &Spread,
        sources: &mut Sources,
        now_ns: u64,
    ) -> bool {
        if now_ns >= self.starved_look_at_ns {
            self.starved_look_at_ns = now_ns + STARVED_LOOK_NS;
            self.begin(pairs, spread, sources, (0, now_ns));
        }
        sources.are_merging() || pairs.iter().any(|owned| owned.pair.has_resting_slot())
    }

    /// Begins a merge of a meganode that has been empty for so long, unless one is under way.
    fn begin(
        &mut self,
        pairs: &mut Pairs,
        spread: &Spread,
        sources: &mut Sources,
        (rest_ns, now_ns): (u64, u64),
    ) {
        if sources.are_truncating() || sources.are_merging() {
            return;
        }
        let empty = candidates(pairs, spread);
        self.empty_since.retain(|there, _| empty.iter().any(|of| of.there == *there));
        // Each is noted, and the first that is due is merged.
        let mut due = None;
        for candidate in empty {
            let since_ns = self.since_ns(candidate.there, candidate.by, now_ns);
            if due.is_none() && now_ns.saturating_sub(since_ns) >= rest_ns {
                due = Some(candidate);
            }
        }
        if let Some(Candidate { there, low, into, .. }) = due {
            sources.begin_merge(pairs, there, &low, into, now_ns);
        }
    }
}

/// An empty meganode beside an empty left neighbour.
struct Candidate {
    there: MeganodeAt,
    /// By which record it is empty.
    by: Csn,
    low: Box<[u8]>,
    into: MeganodeAt,
}

/// All of them, in key order.
fn candidates(pairs: &Pairs, spread: &Spread) -> Vec<Candidate> {
    let stays: Vec<PairAt> = pairs.staying().collect();
    let emptied_by = |range: &Range| {
        let pair = pairs.pair(range.at.pair);
        let is_here = stays.contains(&range.at.pair) && !spread.is_fresh(pair.id());
        pair.mergeable_by(range.at.slot).filter(|_| is_here)
    };
    let candidate = |two: &[Range]| {
        let [left, right] = two else { return None };
        let by = (left.high.as_deref() == Some(&*right.low)).then(|| emptied_by(right)).flatten()?;
        emptied_by(left)?;
        Some(Candidate { there: right.at, by, low: right.low.clone(), into: left.at })
    };
    pairs.directory.behind(None).windows(2).filter_map(candidate).collect()
}
