//! When a meganode is split, and what a put that finds no room in one waits for.

use cell_pair::{Fencing, NoRoom, Pair};
use cell_terms::mutant::{Mutant, planted};
use cell_tree::Division;

use super::Splits;
use super::cause::Cause;
use super::compaction::Compactions;
use super::growth::Placement;
use crate::directory::MeganodeAt;
use crate::outbox::PairAt;
use crate::pairs::Pairs;

/// A pair is short of extents when less than this part of its region is free.
const SHORT_PART: u64 = 16;

/// A put waits so long for memory that is kept for pairs that are being recovered. It is kept as long as one
/// of them has nobody with memory enough, which may be until an operator helps.
const HELD_NS: u64 = 30_000_000_000;

/// Meganodes of a short pair that are tried at a time.
const TRIED_MAX: usize = 4;

/// Whether a pair is short of extents. What rests, and sparse slabs that can be packed, count as room:
///
/// 1. a split takes half of the extents out of a full pair, and they rest for a quarter of a second;
/// 2. if they did not count, the pair would be as short as before, and the next tick would split it again,
///    until it is nearly empty and all slots are used.
fn is_short(pair: &Pair) -> bool {
    let few = pair.extent_bytes() / SHORT_PART;
    pair.slot_count() > 1 && pair.extent_bytes_free() < few && pair.extent_bytes_left() < few
}

/// The meganodes that entries should leave if their pair is short of extents, those with most first.
fn heaviest(pairs: &Pairs, at: PairAt) -> Vec<MeganodeAt> {
    let pair = pairs.pair(at);
    let mut slots = pair.leaf_slots();
    slots.retain(|slot| pair.is_settled(*slot));
    slots.sort_by_key(|slot| std::cmp::Reverse(pair.weight(*slot).1));
    slots.truncate(TRIED_MAX);
    slots.into_iter().map(|slot| MeganodeAt { pair: at, slot }).collect()
}

/// Whether no pair may grow: all of them have one budget.
fn is_growth_held(pairs: &Pairs) -> bool {
    pairs.iter().next().is_some_and(|owned| owned.pair.is_growth_held())
}

impl Splits {
    /// Begins a split if one is due: one at a time.
    pub(super) fn trigger(&mut self, pairs: &mut Pairs, now_ns: u64) {
        let mut failed_here = false;
        for pair in std::mem::take(&mut self.effects.failed_into) {
            failed_here |= !self.spread.aborted(pair, now_ns);
        }
        let held = failed_here && is_growth_held(pairs);
        self.growth.look_back(self.effects.counts.finished, failed_here, held, now_ns);
        if !self.growth.may_split(now_ns) || self.sources.are_truncating() {
            return;
        }
        if self.fill_fresh(pairs, now_ns) {
            return;
        }
        for at in pairs.staying().collect::<Vec<_>>() {
            let pair = pairs.pair_mut(at);
            let nearly_full =
                pair.take_nearly_full().filter(|slot| pair.is_nearly_full(*slot) && pair.is_settled(*slot));
            if let Some(slot) = nearly_full {
                self.split_one_of(pairs, [(MeganodeAt { pair: at, slot }, Cause::Nodes)], now_ns);
                return;
            }
        }
        let Splits { spread, sources, targets, .. } = &mut *self;
        let splits_at = |at: PairAt| {
            let pair = pairs.pair(at).id();
            sources.are_at(at, pair) || targets.are_at(at, pair)
        };
        let due = spread.due(pairs, splits_at, now_ns);
        if self.split_one_of(pairs, due.iter().copied(), now_ns) {
            return;
        }
        if due.iter().any(|(_, cause)| *cause == Cause::Oversized) {
            self.spread.gathered();
        }
        if !self.growth.may_look(now_ns) {
            return;
        }
        // A write that found no place may not come again: what it would have waited for is done all the same,
        // or the pair would call itself full as long as nobody asks.
        let lacks_place = |at: &PairAt| pairs.pair(*at).no_room() == Some(NoRoom::Region);
        let refused: Vec<PairAt> = pairs.staying().filter(lacks_place).collect();
        let (packs, splits): (Vec<PairAt>, Vec<PairAt>) =
            refused.into_iter().partition(|at| self.packings.may_help(pairs, *at));
        let is_short = |at: &PairAt| {
            (is_short(pairs.pair(*at)) || splits.contains(at))
                && !packs.contains(at)
                && !self.sources.are_freeing(*at)
        };
        let short: Vec<PairAt> = pairs.staying().filter(is_short).collect();
        let looks_again = !short.is_empty() || !packs.is_empty();
        if looks_again && !short.into_iter().any(|at| self.relieve(pairs, at, now_ns)) {
            self.growth.found_nothing(now_ns); // not each turn
        }
    }

    /// A pair that was made for another node gets what it was made for, before it is handed over. Whether
    /// that begins.
    fn fill_fresh(&mut self, pairs: &mut Pairs, now_ns: u64) -> bool {
        let Some((there, cause)) = self.spread.awaits() else { return false };
        let can_split = pairs.known(there.pair).is_some_and(|owned| {
            let pair = &owned.pair;
            let is_settled = pair.is_settled(there.slot) || planted(Mutant::SplitTwice);
            owned.leaving.is_none() && is_settled && pair.leaf_slots().contains(&there.slot)
        });
        can_split && self.split_one_of(pairs, [(there, cause)], now_ns)
    }

    /// Lets entries go from a pair that is short of extents. Whether there is hope.
    fn relieve(&mut self, pairs: &mut Pairs, at: PairAt, now_ns: u64) -> bool {
        let short = heaviest(pairs, at).into_iter().map(|there| (there, Cause::Extents));
        self.split_one_of(pairs, short, now_ns)
    }

    /// Splits the first of these meganodes that can be split. Whether there is hope.
    fn split_one_of(
        &mut self,
        pairs: &mut Pairs,
        of: impl IntoIterator<Item = (MeganodeAt, Cause)>,
        now_ns: u64,
    ) -> bool {
        self.spread.begin_trying();
        of.into_iter().any(|(there, cause)| self.split(pairs, there, cause, now_ns))
    }

    /// Splits a meganode, or asks for what makes room for its upper part. Whether there is hope.
    fn split(&mut self, pairs: &mut Pairs, there: MeganodeAt, cause: Cause, now_ns: u64) -> bool {
        match self.growth.place(pairs, there, cause, now_ns, &mut self.spread, &mut self.effects) {
            Placement::At(to, division) => self.begin(pairs, there, to, &division, now_ns),
            Placement::PairMayCome => true,
            Placement::AfterPacking(at) => {
                self.packings.want(at);
                true
            }
            Placement::Nowhere => false,
        }
    }

    /// Begins a split. Whether it may begin, now or soon.
    fn begin(
        &mut self,
        pairs: &mut Pairs,
        there: MeganodeAt,
        to: MeganodeAt,
        division: &Division,
        now_ns: u64,
    ) -> bool {
        let leaves =
            |at: MeganodeAt| pairs.get(at.pair).leaving.is_some() && !planted(Mutant::SplitWhileLeaving);
        if leaves(there) || leaves(to) && !planted(Mutant::SplitIntoLeaving) {
            return false;
        }
        if !division.fenced {
            match pairs.pair_mut(there.pair).fence(there.slot, &division.key) {
                Ok(Fencing::Done) => {}
                Ok(Fencing::Waits) => return true,
                Ok(Fencing::Refused) => return false,
                Err(error) => {
                    self.effects.broken(error);
                    return false;
                }
            }
        }
        let started = self.sources.begin(pairs, there, &division.key, to, now_ns);
        if started.is_ok() {
            self.effects.counts.begun += 1;
            self.spread.split_started(pairs.pair(to.pair).id());
        }
        started != Err(NoRoom::DiskFull)
    }

    /// Whether extents rest that a put may wait for: those that were freed before it first found no room. Of
    /// what is freed later there is always more, beside steady updates, and the put would wait for ever.
    fn awaits_extents(&mut self, pair: &Pair, there: MeganodeAt) -> bool {
        let until = *self.awaited.entry(there).or_insert_with(|| pair.appended());
        let rests = pair.has_resting_extents(until);
        if !rests {
            self.awaited.remove(&there);
        }
        rests
    }

    /// Whether what is left is kept for pairs that are being recovered, and a put may wait for it: what is
    /// free is known once they are.
    fn awaits_held(&mut self, pair: &Pair, there: MeganodeAt, now_ns: u64) -> bool {
        if !pair.is_growth_held() || planted(Mutant::RefusedWhileHeld) {
            return false;
        }
        let since_ns = *self.held_since.entry(there).or_insert(now_ns);
        now_ns.saturating_sub(since_ns) < HELD_NS
    }

    /// Who has found room waits anew the next time. Who has waited in vain does not, as long as memory is
    /// kept.
    pub(super) fn forget_held(&mut self, pairs: &Pairs, now_ns: u64) {
        let Splits { held_since, full, .. } = self;
        if held_since.is_empty() {
            return;
        }
        let held = is_growth_held(pairs);
        let in_vain = |since_ns: u64| held && now_ns.saturating_sub(since_ns) >= HELD_NS;
        held_since.retain(|there, since_ns| full.contains(there) || in_vain(*since_ns));
    }

    /// A put finds no room in a meganode. Whether it should wait: room may come.
    pub(crate) fn starve(
        &mut self,
        pairs: &mut Pairs,
        there: MeganodeAt,
        needs_extents: bool,
        now_ns: u64,
    ) -> bool {
        let comes = self.room_comes(pairs, there, needs_extents, now_ns)
            || self.merges.slot_comes(pairs, &self.spread, &mut self.sources, (there, now_ns))
            || self.awaits_held(pairs.pair(there.pair), there, now_ns);
        if comes {
            self.full.insert(there);
        }
        comes
    }

    fn room_comes(&mut self, pairs: &mut Pairs, there: MeganodeAt, needs_extents: bool, now_ns: u64) -> bool {
        // Places that are free already, but not where they are wanted, come first.
        if needs_extents && self.packings.may_help(pairs, there.pair) {
            return true;
        }
        let pair = pairs.pair(there.pair);
        let rests =
            if needs_extents { self.awaits_extents(pair, there) } else { pair.has_resting(there.slot) };
        let truncates = self.sources.truncates_soon(there, now_ns);
        if rests || !needs_extents && self.compactions.is_at(there) || truncates {
            return true;
        }
        // Its turn comes, or its end does: unless what is before it is stuck.
        if self.sources.are_truncating() {
            return pair.slot_count() > 1 && !self.sources.are_stuck(now_ns);
        }
        if !pair.is_settled(there.slot) {
            return !self.sources.is_stuck_at(there, now_ns);
        }
        if !self.growth.may_split(now_ns) {
            return self.growth.splits_soon(now_ns);
        }
        if needs_extents {
            return self.relieve(pairs, there.pair, now_ns);
        }
        self.split_one_of(pairs, [(there, Cause::Nodes)], now_ns) || Compactions::may_help(pairs, there)
    }
}

#[cfg(test)]
mod tests {
    use cell_cluster::PairGeometry;
    use cell_terms::SlotIndex;

    use super::*;
    use crate::split::tests::{LEFT, RIGHT, SIZES, Story};

    static LONG: [u8; 50_000] = [7; 50_000];

    /// Long values are written until less than a sixteenth of the extents is left; how many.
    fn fill(story: &mut Story, each: impl Fn(&Pair)) -> u64 {
        let mut written = 0;
        loop {
            let pair = story.pairs.pair(story.at);
            if pair.extent_bytes_free() < pair.extent_bytes() / 16 {
                return written;
            }
            each(pair);
            written += 1;
            story.put_into(LEFT, written, &written.to_be_bytes(), &LONG);
        }
    }

    /// Too early, meganodes are split for nothing; too late, writes are refused.
    #[test]
    fn pair_is_short_once_less_than_a_sixteenth_is_left_and_not_while_as_much_rests() {
        let mut story = Story::begin(SIZES);
        let written = fill(&mut story, |pair| assert!(!is_short(pair)));
        assert!(is_short(story.pairs.pair(story.at)));
        (1..=2_u64).for_each(|number| story.delete(written + number, &number.to_be_bytes()));
        let pair = story.pairs.pair(story.at);
        assert!(pair.extent_bytes_free() < pair.extent_bytes() / 16 && !is_short(pair));
        let one_slot = PairGeometry { node_region_bytes: 4096 + (64 << 10), ..SIZES };
        let mut alone = Story::begin(one_slot);
        fill(&mut alone, |_| {});
        assert!(!is_short(alone.pairs.pair(alone.at)), "nothing in it can be split");
    }

    /// The others would be split for little, or in the middle of a split.
    #[test]
    fn meganodes_with_most_extents_leave_a_short_pair_first_and_none_that_is_being_split() {
        let mut story = Story::begin(SIZES);
        let [left, right] = [LEFT, RIGHT].map(|slot| MeganodeAt { pair: story.at, slot });
        (1..=100_u64).for_each(|number| story.put(number, &number.to_be_bytes()));
        story.divide();
        story.put_into(RIGHT, 101, &u64::MAX.to_be_bytes(), &LONG);
        assert_eq!(heaviest(&story.pairs, story.at), [right, left]);
        (1..=2).for_each(|key: u64| story.put_into(LEFT, 101 + key, &key.to_be_bytes(), &LONG));
        assert_eq!(heaviest(&story.pairs, story.at), [left, right]);
        let to = MeganodeAt { pair: story.at, slot: SlotIndex(3) };
        let low = story.pairs.pair(story.at).split_key(LEFT, 50).unwrap();
        story.splits.sources.begin(&mut story.pairs, left, &low, to, 0).unwrap();
        assert_eq!(heaviest(&story.pairs, story.at), [right]);
    }

    /// It may be kept for longer than anybody waits; then the put is refused.
    #[test]
    fn put_waits_half_a_minute_for_memory_that_is_kept_for_other_pairs() {
        let Story { pairs, mut splits, at, process, .. } = Story::begin(SIZES);
        let (pair, there) = (pairs.pair(at), MeganodeAt { pair: at, slot: LEFT });
        assert!(!splits.awaits_held(pair, there, 5), "none is kept");
        process.environment.budget.hold_growth(true);
        for now_ns in [5, 4 + HELD_NS] {
            assert!(splits.awaits_held(pair, there, now_ns));
        }
        assert!(!splits.awaits_held(pair, there, 5 + HELD_NS));
    }

    #[test]
    fn put_that_waited_in_vain_for_kept_memory_waits_anew_once_that_is_there_for_all() {
        let Story { pairs, mut splits, at, process, .. } = Story::begin(SIZES);
        let [waits, found_room] = [LEFT, RIGHT].map(|slot| MeganodeAt { pair: at, slot });
        let mut left_at = |held: bool, now_ns: u64| {
            process.environment.budget.hold_growth(held);
            splits.full = [waits].into();
            splits.held_since = [(waits, 0), (found_room, 0)].into();
            splits.forget_held(&pairs, now_ns);
            splits.held_since.keys().copied().collect::<Vec<MeganodeAt>>()
        };
        assert_eq!(left_at(true, HELD_NS - 1), [waits]);
        assert_eq!(left_at(true, HELD_NS), [waits, found_room], "it would wait again at once");
        assert_eq!(left_at(false, HELD_NS), [waits]);
    }
}
