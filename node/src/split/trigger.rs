//! When a meganode is split, and where its upper half goes.

use cell_pair::Pair;

use super::{Splits, parent};
use crate::directory::MeganodeAt;
use crate::memory_plan::PAIR_BYTES_MIN;
use crate::outbox::PairAt;
use crate::worker::pairs::Pairs;

/// A pair was refused: it is asked for again after so long.
const GROWTH_RETRY_NS: u64 = 10_000_000_000;
/// After a split that came to nothing, the next one waits so long.
const RETRY_NS: u64 = 100_000_000;
/// After so many such in a row, it waits as long as for a pair.
const ABORTED_MAX: u32 = 3;
/// A pair is asked for when a split leaves so few places for the next ones, the one that it takes included.
const PLACES_AHEAD: usize = 2;
/// A pair is short of extents when less than this part of its region is free.
const SHORT_PART: u64 = 16;

/// Whether a pair is to be added, or was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Growth {
    wanted: bool,
    asked: bool,
    refused_until_ns: u64,
    /// No split begins before; after splits that came to nothing.
    split_after_ns: u64,
    /// Splits that came to nothing, as counted, and how many in a row.
    aborted_seen: u64,
    finished_seen: u64,
    aborted_in_row: u32,
}

/// What a split needs of its target.
#[derive(Clone, Copy, Debug)]
struct Needs {
    node_bytes: u64,
    extent_bytes: u64,
    /// Not the source's own pair: that is short of extents.
    elsewhere: bool,
}

/// A pair that can take the upper half of a meganode.
struct Candidate {
    extent_bytes_free: u64,
    at: MeganodeAt,
    /// How many could go there, as far as slots go.
    slots: usize,
}

/// The pairs that have a slot, and memory and extents enough.
fn candidates(pairs: &Pairs, there: MeganodeAt, needs: Needs) -> impl Iterator<Item = Candidate> + '_ {
    let root = parent::root_pair(pairs);
    let source_free = pairs.store(there.pair).extent_bytes_free();
    pairs.all().filter_map(move |at| {
        let store = pairs.store(at);
        // The router wants a slot of its own.
        let kept = usize::from(Some(at) == root && store.router().is_none());
        let mut free = store.free_slots();
        let slot = free.next()?;
        let slots = (1 + free.count()).checked_sub(kept).filter(|slots| *slots > 0)?;
        let extent_bytes_free = store.extent_bytes_free();
        let has_memory = store.can_adopt(slot, needs.node_bytes, needs.extent_bytes);
        // What goes elsewhere must not come back: the target keeps more room than the source had.
        let relieves = at != there.pair && extent_bytes_free > needs.extent_bytes + source_free;
        let fits = has_memory && (!needs.elsewhere || relieves);
        fits.then_some(Candidate { extent_bytes_free, at: MeganodeAt { pair: at, slot }, slots })
    })
}

impl Splits {
    /// Begins a split if one is due: one at a time.
    pub(super) fn trigger(&mut self, pairs: &mut Pairs, now_ns: u64) {
        self.look_back(now_ns);
        if now_ns < self.growth.split_after_ns || self.sources.iter().any(|source| source.is_cutting()) {
            return;
        }
        for at in pairs.all() {
            let crowded = pairs.store_mut(at).take_crowded();
            let crowded = crowded.filter(|slot| pairs.store(at).is_crowded(*slot));
            let there = crowded.map(|slot| MeganodeAt { pair: at, slot });
            if let Some(there) = there.filter(|there| self.is_idle(pairs, *there)) {
                self.split(pairs, there, false, now_ns);
                return;
            }
        }
        if let Some(there) = pairs.all().find_map(|at| self.heaviest_of_short(pairs, at)) {
            self.split(pairs, there, true, now_ns);
        }
    }

    /// Splits that come to nothing are not tried again and again.
    fn look_back(&mut self, now_ns: u64) {
        let growth = &mut self.growth;
        if self.counts.finished != growth.finished_seen {
            growth.finished_seen = self.counts.finished;
            growth.aborted_in_row = 0;
        }
        if self.counts.aborted != growth.aborted_seen {
            growth.aborted_seen = self.counts.aborted;
            growth.aborted_in_row += 1;
            let rest_ns = if growth.aborted_in_row < ABORTED_MAX { RETRY_NS } else { GROWTH_RETRY_NS };
            growth.split_after_ns = now_ns + rest_ns;
        }
    }

    /// The meganode that should leave a pair which is short of extents.
    fn heaviest_of_short(&self, pairs: &Pairs, at: PairAt) -> Option<MeganodeAt> {
        let store = pairs.store(at);
        if store.slot_count() < 2 || store.extent_bytes_free() >= store.extent_bytes() / SHORT_PART {
            return None;
        }
        let places = store.leaf_slots().into_iter().map(|slot| MeganodeAt { pair: at, slot });
        let idle = places.filter(|there| self.is_idle(pairs, *there));
        idle.max_by_key(|there| store.weight(there.slot).0)
    }

    /// Whether a meganode takes part in no split that is not settled.
    pub(super) fn is_idle(&self, pairs: &Pairs, there: MeganodeAt) -> bool {
        let splits = pairs.store(there.pair).split_table().source_of(there.slot).is_some();
        !splits && self.targets.iter().all(|target| !target.is_of(there) || target.is_open())
    }

    /// Splits a meganode, or asks for a pair that can take its upper half. Whether there is hope.
    fn split(&mut self, pairs: &mut Pairs, there: MeganodeAt, elsewhere: bool, now_ns: u64) -> bool {
        let Some(key) = pairs.store(there.pair).split_key(there.slot) else { return false };
        let (_, bytes) = pairs.store(there.pair).weight(there.slot);
        // No more than an empty pair has: what does not fit there, fits nowhere, and more pairs do not help.
        let most = pairs.store(there.pair).extent_bytes() / 8 * 7;
        let node_bytes = pairs.store(there.pair).nodes_bytes(there.slot) / 8 * 5;
        let needs = Needs { node_bytes, extent_bytes: (bytes / 8 * 5 + (256 << 10)).min(most), elsewhere };
        let mut places = 0;
        let counted = candidates(pairs, there, needs).inspect(|place| places += place.slots);
        match counted.max_by_key(|place| place.extent_bytes_free).map(|place| place.at) {
            Some(to) => {
                // A pair takes its time to be made: it is asked for before writes wait for it.
                if places <= PLACES_AHEAD {
                    self.want_pair(pairs, needs, now_ns);
                }
                self.begin_split(pairs, there, &key, to, now_ns);
                true
            }
            None => self.want_pair(pairs, needs, now_ns),
        }
    }

    /// Asks for one more pair. Whether one may come: with memory for itself and for what is to go there.
    fn want_pair(&mut self, pairs: &Pairs, needs: Needs, now_ns: u64) -> bool {
        let splits = pairs.iter().any(|pair| pair.store.slot_count() > 1);
        let bytes = PAIR_BYTES_MIN + needs.node_bytes + needs.extent_bytes;
        let fits = pairs.iter().next().is_some_and(|pair| pair.store.grantable_bytes() >= bytes);
        if !splits || !fits || now_ns < self.growth.refused_until_ns {
            return false;
        }
        if !self.growth.asked {
            self.growth.wanted = true;
        }
        true
    }

    /// Whether extents rest that a put may wait for: those that were freed before it first found no room. Of
    /// what is freed later there is always more, beside steady updates, and the put would wait for ever.
    fn awaits_extents(&mut self, store: &Pair, there: MeganodeAt) -> bool {
        let until = *self.awaited.entry(there).or_insert_with(|| store.appended());
        let rests = store.has_resting_extents(until);
        if !rests {
            self.awaited.remove(&there);
        }
        rests
    }

    /// Whether a put that finds no room now may find some soon.
    pub(super) fn room_comes(
        &mut self,
        pairs: &mut Pairs,
        there: MeganodeAt,
        needs_extents: bool,
        now_ns: u64,
    ) -> bool {
        let store = pairs.store(there.pair);
        let rests =
            if needs_extents { self.awaits_extents(store, there) } else { store.has_resting(there.slot) };
        if rests || !needs_extents && self.compacts_now(there) {
            return true;
        }
        if self.sources.iter().any(|source| source.is_of(there) && source.is_cutting()) {
            return true;
        }
        if self.sources.iter().any(|source| source.is_cutting()) {
            return store.slot_count() > 1; // its turn comes
        }
        if !self.is_idle(pairs, there) {
            return true;
        }
        if now_ns < self.growth.split_after_ns {
            return self.growth.split_after_ns - now_ns <= RETRY_NS;
        }
        self.split(pairs, there, needs_extents, now_ns)
            || !needs_extents && self.compaction_helps(pairs, there)
    }

    /// Whether the worker is to ask for one more pair, once.
    pub(crate) fn take_wanted_pair(&mut self) -> bool {
        let wanted = std::mem::take(&mut self.growth.wanted);
        self.growth.asked |= wanted;
        wanted
    }

    /// A pair was added, or there is no memory for one.
    pub(crate) fn pair_added(&mut self, added: bool, now_ns: u64) {
        self.growth.asked = false;
        if !added {
            self.growth.refused_until_ns = now_ns + GROWTH_RETRY_NS;
        }
        self.starved.clear();
        self.changed = true;
    }
}
