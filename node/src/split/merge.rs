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
const FULL_LOOK_NS: u64 = 10_000_000;
/// A put that finds no room waits so long for merges.
const WAIT_NS: u64 = 30_000_000_000;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Merges {
    rest_ns: u64,
    look_at_ns: u64,
    full_look_at_ns: u64,
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
        if now_ns >= self.full_look_at_ns {
            self.full_look_at_ns = now_ns + FULL_LOOK_NS;
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
    /// part in another merge waits for that. Whether one has started.
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
            let started = into.is_some_and(|into| sources.begin_merge(pairs, there, &low, into, now_ns));
            if started {
                self.due.pop_front();
            }
            return started;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use cell_pair::Pair;
    use cell_recovery::WriteOutcome;
    use cell_terms::NodeId;

    use super::*;
    use crate::leave_step::LeaveStep;
    use crate::split::Splits;
    use crate::split::tests::{LEFT, RIGHT, SIZES, Story, completion};

    const ENTRIES: u64 = 100;

    fn key(number: u64) -> Vec<u8> {
        format!("key {number:05}").into_bytes()
    }

    /// Two meganodes side by side that had entries and have none any more.
    fn two_that_were_emptied() -> Story {
        let mut story = Story::begin(SIZES);
        (1..=ENTRIES).for_each(|number| story.put(number, &key(number)));
        story.divide();
        for number in 1..=ENTRIES {
            let there = story.pairs.find(&key(number)).unwrap();
            let deleted = completion(ENTRIES + number, WriteOutcome::Deleted);
            story.pairs.pair_mut(there.pair).delete(there.slot, &key(number), &deleted).unwrap();
        }
        let is_bare = |pair: &Pair| [LEFT, RIGHT].iter().all(|slot| pair.mergeable_by(*slot).is_some());
        story.until("one tree node each", |story| is_bare(story.pairs.pair(story.at)));
        story
    }

    /// Others' merges have not helped for long, and the next one is of the meganode itself: what was refused
    /// could as well have been written, into a meganode that is gone.
    #[test]
    fn put_that_begins_a_merge_of_its_own_meganode_waits() {
        let Story { mut pairs, mut splits, at, now_ns, .. } = two_that_were_emptied();
        let there = MeganodeAt { pair: at, slot: RIGHT };
        let low = pairs.directory.of(there).unwrap().low.clone();
        let Splits { merges, spread, sources, .. } = &mut splits;
        merges.waits_since.insert(there, now_ns);
        let in_vain_ns = now_ns + WAIT_NS;
        assert!(merges.slot_comes(&mut pairs, spread, sources, (there, in_vain_ns)));
        assert_eq!(sources.merging(), 1);
        assert!(splits.holds_back(&pairs, there, &low), "it takes no writes from here on");
    }

    /// Merges of others may go on and on.
    #[test]
    fn put_waits_for_merges_of_others_for_half_a_minute() {
        let Story { mut pairs, mut splits, at, now_ns, .. } = two_that_were_emptied();
        let there = MeganodeAt { pair: at, slot: LEFT };
        let Splits { merges, spread, sources, .. } = &mut splits;
        let mut comes = |at_ns: u64| merges.slot_comes(&mut pairs, spread, sources, (there, at_ns));
        assert!(comes(now_ns), "a merge begins");
        assert!(comes(now_ns + 1), "it goes on");
        assert!(comes(now_ns + WAIT_NS));
        assert!(!comes(now_ns + 1 + WAIT_NS));
    }

    #[test]
    fn put_that_has_waited_in_vain_for_merges_does_not_wait_again_at_once() {
        let [waits, found_room] = [LEFT, RIGHT].map(|slot| MeganodeAt { pair: PairAt(0), slot });
        let full = BTreeSet::from([waits]);
        let left_at = |now_ns: u64| {
            let waits_since = [(waits, 0), (found_room, 0)].into();
            let mut merges = Merges { waits_since, ..Merges::default() };
            merges.forget_waits(&full, now_ns);
            merges.waits_since.into_keys().collect::<Vec<MeganodeAt>>()
        };
        assert_eq!(left_at(WAIT_NS - 1), [waits], "who has found room waits anew");
        for in_vain_ns in [WAIT_NS, 2 * WAIT_NS - 1] {
            assert_eq!(left_at(in_vain_ns), [waits, found_room]);
        }
        assert!(left_at(2 * WAIT_NS).is_empty(), "who asks then waits anew");
    }

    #[test]
    fn pair_that_leaves_has_nothing_to_be_merged() {
        let [stays, leaves] = [0, 1].map(|pair| MeganodeAt { pair: PairAt(pair), slot: LEFT });
        let mut merges = Merges {
            empty_since: [(stays, (Csn(1), 0)), (leaves, (Csn(1), 0))].into(),
            due: [(stays, Csn(1)), (leaves, Csn(1))].into(),
            waits_since: [(stays, 0), (leaves, 0)].into(),
            ..Merges::default()
        };
        merges.forget_pair(leaves.pair);
        assert!(merges.empty_since.keys().eq([&stays]));
        assert!(merges.due.iter().eq([&(stays, Csn(1))]));
        assert!(merges.waits_since.keys().eq([&stays]));
    }

    /// What is written into one that goes would go with it; and who takes a pair over finds a merge that was
    /// started after its log was cut in no log.
    #[test]
    fn meganode_with_entries_or_of_a_pair_that_leaves_takes_part_in_no_merge() {
        let mut story = two_that_were_emptied();
        let there = MeganodeAt { pair: story.at, slot: RIGHT };
        let is_empty = |story: &Story| emptied_by(&story.pairs, &story.splits.spread, there).is_some();
        assert!(is_empty(&story));
        let leaves = LeaveStep::Settling { since_ns: 0, copied: (0, 0) };
        story.pairs.get_mut(story.at).leaving = Some(leaves);
        assert!(!is_empty(&story));
        story.pairs.get_mut(story.at).leaving = None;
        let id = story.pairs.pair(story.at).id();
        story.splits.spread.pair_added(Some((id, Some(NodeId(1)))), story.now_ns);
        assert!(!is_empty(&story), "it was made for another node");
        story.splits.spread = Spread::default();
        assert!(is_empty(&story));
        let low = story.pairs.directory.of(there).unwrap().low.clone();
        story.put_into(RIGHT, 3 * ENTRIES, &low, b"v");
        assert!(!is_empty(&story));
    }
}
