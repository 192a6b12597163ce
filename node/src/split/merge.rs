//! When meganodes that were emptied are merged: a meganode and its left neighbour, both empty, become one, so
//! that the slot of the other is free for entries with other keys. Keys that move on, as those of a queue or
//! of a time do, leave a row of empty meganodes behind.
//!
//! One at a time, of this worker's. A merge goes the way of a split (`docs/design/splits.md`, "Merges").

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cell_terms::Csn;

use super::source::Sources;
use super::spread::Spread;
use crate::directory::MeganodeAt;
use crate::outbox::PairAt;
use crate::pairs::Pairs;

/// How often empty meganodes are looked for.
const LOOK_NS: u64 = 250_000_000;
/// How often those who wait for room look.
const STARVED_LOOK_NS: u64 = 10_000_000;
/// A put that finds no room waits so long for merges.
const WAIT_NS: u64 = 30_000_000_000;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Merges {
    rest_ns: u64,
    look_at_ns: u64,
    starved_look_at_ns: u64,
    /// Since when meganodes have been seen to be empty, and by which record they are.
    empty_since: BTreeMap<MeganodeAt, (Csn, u64)>,
    /// Those that are to be merged, in the order of their keys.
    due: VecDeque<(MeganodeAt, Csn)>,
    /// Since when puts wait for merges at a meganode that has no room.
    waits_since: BTreeMap<MeganodeAt, u64>,
}

/// By which record a meganode is empty, if it may take part in a merge.
fn emptied_by(pairs: &Pairs, spread: &Spread, there: MeganodeAt) -> Option<Csn> {
    let owned = pairs.get(there.pair);
    let stays = owned.leaving.is_none() && !spread.is_fresh(owned.pair.id());
    stays.then(|| owned.pair.mergeable_by(there.slot)).flatten()
}

impl Merges {
    /// Of those that have been empty for so long.
    pub(super) fn new(rest_ns: u64) -> Merges {
        Merges { rest_ns, ..Merges::default() }
    }

    /// Nothing is done at a pair any more.
    pub(super) fn forget_pair(&mut self, at: PairAt) {
        self.empty_since.retain(|there, _| there.pair != at);
        self.due.retain(|(there, _)| there.pair != at);
        self.waits_since.retain(|there, _| there.pair != at);
    }

    /// Who has found room waits anew the next time; who has waited in vain does not at once.
    pub(super) fn forget_waits(&mut self, full: &BTreeSet<MeganodeAt>, now_ns: u64) {
        self.waits_since.retain(|there, since_ns| {
            let waited_ns = now_ns.saturating_sub(*since_ns);
            if waited_ns < WAIT_NS { full.contains(there) } else { waited_ns < 2 * WAIT_NS }
        });
    }

    /// Begins a merge if one is due.
    pub(super) fn tick(&mut self, pairs: &mut Pairs, spread: &Spread, sources: &mut Sources, now_ns: u64) {
        if now_ns >= self.look_at_ns {
            self.look_at_ns = now_ns + LOOK_NS.min(self.rest_ns / 4);
            self.look(pairs, spread, self.rest_ns, now_ns);
        }
        self.begin(pairs, spread, sources, now_ns);
    }

    /// Whether a slot becomes free to which entries of a meganode that has no room may go: what is empty is
    /// merged at once then.
    pub(super) fn slot_comes(
        &mut self,
        pairs: &mut Pairs,
        spread: &Spread,
        sources: &mut Sources,
        (there, now_ns): (MeganodeAt, u64),
    ) -> bool {
        if now_ns >= self.starved_look_at_ns {
            self.starved_look_at_ns = now_ns + STARVED_LOOK_NS;
            self.look(pairs, spread, 0, now_ns);
            if self.begin(pairs, spread, sources, now_ns) {
                return true; // it may be of this very meganode, which takes no writes from here on
            }
        }
        let comes = sources.are_merging(now_ns) || pairs.iter().any(|owned| owned.pair.has_resting_slot());
        if !comes {
            self.waits_since.remove(&there);
            return false;
        }
        let since_ns = *self.waits_since.entry(there).or_insert(now_ns);
        now_ns.saturating_sub(since_ns) < WAIT_NS
    }

    /// Looks which meganodes have been empty for so long, each beside one that is empty, too.
    fn look(&mut self, pairs: &Pairs, spread: &Spread, rest_ns: u64, now_ns: u64) {
        let mut seen = BTreeMap::new();
        self.due.clear();
        // Whether the one before is empty, and where it ends.
        let mut left: Option<Option<&[u8]>> = None;
        for range in pairs.directory.behind(None) {
            let by = emptied_by(pairs, spread, range.at);
            let joined = left.is_some_and(|high| high == Some(&*range.low));
            left = by.map(|_| range.high.as_deref());
            let Some(by) = by.filter(|_| joined) else { continue };
            let before = self.empty_since.get(&range.at).filter(|(of, _)| *of == by);
            let since_ns = before.map_or(now_ns, |(_, since_ns)| *since_ns);
            seen.insert(range.at, (by, since_ns));
            if now_ns.saturating_sub(since_ns) >= rest_ns {
                self.due.push_back((range.at, by));
            }
        }
        self.empty_since = seen;
    }

    /// Begins the next merge that is due, into whoever is on the left by now. One whose left neighbour takes
    /// part in another merge waits for that. Whether one has begun.
    fn begin(&mut self, pairs: &mut Pairs, spread: &Spread, sources: &mut Sources, now_ns: u64) -> bool {
        while let Some((there, by)) = self.due.front().copied() {
            if sources.are_truncating() {
                return false;
            }
            let low = pairs.directory.of(there).map(|range| range.low.clone());
            let low = low.filter(|_| emptied_by(pairs, spread, there) == Some(by));
            let Some(low) = low else {
                self.due.pop_front();
                continue;
            };
            let left = pairs.directory.range_below(&low).map(|left| left.at);
            let into = left.filter(|left| emptied_by(pairs, spread, *left).is_some());
            let begun = into.is_some_and(|into| sources.begin_merge(pairs, there, &low, into, now_ns));
            if begun {
                self.due.pop_front();
            }
            return begun;
        }
        false
    }
}
