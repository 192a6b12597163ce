//! Whether one more pair is wanted, when splits rest, and which pair takes a meganode's upper half.

use super::effects::{Effects, SplitCounts};
use super::parent;
use crate::directory::MeganodeAt;
use crate::limits::PAIR_BYTES_MIN;
use crate::pairs::Pairs;

/// A pair was refused: it is asked for again after so long.
const GROWTH_RETRY_NS: u64 = 10_000_000_000;
/// After a split that failed, the next one waits so long.
const RETRY_NS: u64 = 100_000_000;
/// After so many such in a row, it waits as long as for a pair.
const ABORTED_MAX: u32 = 3;
/// A pair is asked for when a split leaves so few places for the next ones, the one that it takes included.
const PLACES_AHEAD: usize = 2;

/// Whether a pair was asked for or refused, and until when no split begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Growth {
    asked: bool,
    refused_until_ns: u64,
    /// No split begins before; after splits that failed.
    split_after_ns: u64,
    /// Splits that failed, as counted, and how many in a row.
    aborted_seen: u64,
    finished_seen: u64,
    aborted_in_row: u32,
}

/// Where the upper half of a meganode can go.
pub(super) enum Placement {
    /// There, from this key on.
    At(MeganodeAt, Vec<u8>),
    /// A pair is to be added, which may take it.
    PairMayCome,
    /// Nowhere.
    Nowhere,
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
    let source_free = pairs.pair(there.pair).extent_bytes_free();
    pairs.all().filter_map(move |at| {
        let pair = pairs.pair(at);
        // The router wants a slot of its own.
        let kept = usize::from(Some(at) == root && pair.router().is_none());
        let mut free = pair.free_slots();
        let slot = free.next()?;
        let slots = (1 + free.count()).checked_sub(kept).filter(|slots| *slots > 0)?;
        let extent_bytes_free = pair.extent_bytes_free();
        let has_memory = pair.can_adopt(slot, needs.node_bytes, needs.extent_bytes);
        // What goes elsewhere must not come back: the target keeps more room than the source had.
        let relieves = at != there.pair && extent_bytes_free > needs.extent_bytes + source_free;
        let fits = has_memory && (!needs.elsewhere || relieves);
        fits.then_some(Candidate { extent_bytes_free, at: MeganodeAt { pair: at, slot }, slots })
    })
}

impl Growth {
    /// Whether splits may begin.
    pub(super) fn may_split(&self, now_ns: u64) -> bool {
        now_ns >= self.split_after_ns
    }

    /// Whether splits that rest now may begin soon, so that a write may wait for one.
    pub(super) fn splits_soon(&self, now_ns: u64) -> bool {
        self.split_after_ns.saturating_sub(now_ns) <= RETRY_NS
    }

    /// Splits that fail are not tried again and again.
    pub(super) fn look_back(&mut self, counts: SplitCounts, now_ns: u64) {
        if counts.finished != self.finished_seen {
            self.finished_seen = counts.finished;
            self.aborted_in_row = 0;
        }
        if counts.aborted != self.aborted_seen {
            self.aborted_seen = counts.aborted;
            self.aborted_in_row += 1;
            let rest_ns = if self.aborted_in_row < ABORTED_MAX { RETRY_NS } else { GROWTH_RETRY_NS };
            self.split_after_ns = now_ns + rest_ns;
        }
    }

    /// Where the upper half of a meganode goes: to the pair with most room, if need be to one that is to be
    /// added. `elsewhere`: not to its own pair, which is short of extents.
    pub(super) fn place(
        &mut self,
        pairs: &Pairs,
        there: MeganodeAt,
        elsewhere: bool,
        now_ns: u64,
        effects: &mut Effects,
    ) -> Placement {
        let pair = pairs.pair(there.pair);
        let Some(key) = pair.split_key(there.slot) else { return Placement::Nowhere };
        let (_, bytes) = pair.weight(there.slot);
        // No more than an empty pair has: what does not fit there, fits nowhere, and more pairs do not help.
        let most = pair.extent_bytes() / 8 * 7;
        let node_bytes = pair.nodes_bytes(there.slot) / 8 * 5;
        let needs = Needs { node_bytes, extent_bytes: (bytes / 8 * 5 + (256 << 10)).min(most), elsewhere };
        let mut places = 0;
        let counted = candidates(pairs, there, needs).inspect(|place| places += place.slots);
        let best = counted.max_by_key(|place| place.extent_bytes_free).map(|place| place.at);
        // A pair takes its time to be made: it is asked for before writes wait for it.
        let comes =
            (best.is_none() || places <= PLACES_AHEAD) && self.want_pair(pairs, needs, now_ns, effects);
        match best {
            Some(to) => Placement::At(to, key),
            None if comes => Placement::PairMayCome,
            None => Placement::Nowhere,
        }
    }

    /// Asks for one more pair. Whether one may come: with memory for itself and for what is to go there.
    fn want_pair(&mut self, pairs: &Pairs, needs: Needs, now_ns: u64, effects: &mut Effects) -> bool {
        let splits = pairs.iter().any(|owned| owned.pair.slot_count() > 1);
        let bytes = PAIR_BYTES_MIN + needs.node_bytes + needs.extent_bytes;
        let fits = pairs.iter().next().is_some_and(|owned| owned.pair.grantable_bytes() >= bytes);
        if !splits || !fits || now_ns < self.refused_until_ns {
            return false;
        }
        effects.outcome.add_pair |= !std::mem::replace(&mut self.asked, true);
        true
    }

    /// A pair was added, or there is no memory for one.
    pub(super) fn pair_added(&mut self, added: bool, now_ns: u64) {
        self.asked = false;
        if !added {
            self.refused_until_ns = now_ns + GROWTH_RETRY_NS;
        }
    }
}
