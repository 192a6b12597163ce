//! When a meganode is split, and what a put that finds no room in one waits for.

use cell_pair::Pair;

use super::Splits;
use super::compaction::Compactions;
use super::growth::Placement;
use crate::directory::MeganodeAt;
use crate::outbox::PairAt;
use crate::pairs::Pairs;

/// A pair is short of extents when less than this part of its region is free.
const SHORT_PART: u64 = 16;

/// The meganode that should leave a pair which is short of extents.
fn heaviest_of_short(pairs: &Pairs, at: PairAt) -> Option<MeganodeAt> {
    let pair = pairs.pair(at);
    if pair.slot_count() < 2 || pair.extent_bytes_free() >= pair.extent_bytes() / SHORT_PART {
        return None;
    }
    let settled = pair.leaf_slots().into_iter().filter(|slot| pair.is_settled(*slot));
    settled.max_by_key(|slot| pair.weight(*slot).0).map(|slot| MeganodeAt { pair: at, slot })
}

impl Splits {
    /// Begins a split if one is due: one at a time.
    pub(super) fn trigger(&mut self, pairs: &mut Pairs, now_ns: u64) {
        self.growth.look_back(self.effects.counts, now_ns);
        if !self.growth.may_split(now_ns) || self.sources.are_truncating() {
            return;
        }
        for at in pairs.all() {
            let pair = pairs.pair_mut(at);
            let nearly_full =
                pair.take_nearly_full().filter(|slot| pair.is_nearly_full(*slot) && pair.is_settled(*slot));
            if let Some(slot) = nearly_full {
                self.split(pairs, MeganodeAt { pair: at, slot }, false, now_ns);
                return;
            }
        }
        if let Some(there) = pairs.all().find_map(|at| heaviest_of_short(pairs, at)) {
            self.split(pairs, there, true, now_ns);
        }
    }

    /// Splits a meganode, or asks for a pair that can take its upper half. Whether there is hope.
    fn split(&mut self, pairs: &mut Pairs, there: MeganodeAt, elsewhere: bool, now_ns: u64) -> bool {
        match self.growth.place(pairs, there, elsewhere, now_ns, &mut self.effects) {
            Placement::At(to, key) => {
                let started = self.sources.begin(pairs, there, &key, to, now_ns);
                self.effects.counts.begun += u64::from(started);
                true
            }
            Placement::PairMayCome => true,
            Placement::Nowhere => false,
        }
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

    /// A put finds no room in a meganode. Whether it should wait: room may come.
    pub(crate) fn starve(
        &mut self,
        pairs: &mut Pairs,
        there: MeganodeAt,
        needs_extents: bool,
        now_ns: u64,
    ) -> bool {
        let comes = self.room_comes(pairs, there, needs_extents, now_ns);
        if comes {
            self.full.insert(there);
        }
        comes
    }

    fn room_comes(&mut self, pairs: &mut Pairs, there: MeganodeAt, needs_extents: bool, now_ns: u64) -> bool {
        let pair = pairs.pair(there.pair);
        let rests =
            if needs_extents { self.awaits_extents(pair, there) } else { pair.has_resting(there.slot) };
        if rests || !needs_extents && self.compactions.is_at(there) || self.sources.truncates_soon(there) {
            return true;
        }
        if self.sources.are_truncating() {
            return pair.slot_count() > 1; // its turn comes
        }
        if !pair.is_settled(there.slot) {
            return true;
        }
        if !self.growth.may_split(now_ns) {
            return self.growth.splits_soon(now_ns);
        }
        self.split(pairs, there, needs_extents, now_ns)
            || !needs_extents && Compactions::may_help(pairs, there)
    }
}
