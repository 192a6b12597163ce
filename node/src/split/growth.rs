//! Whether one more pair is wanted, when splits rest, and which pair takes how much of a meganode. What goes
//! to another node comes first: `spread`.
//!
//! What counts is what entries take, not what slabs hold them: those can be packed.

use std::ops::RangeInclusive;

use cell_pair::Pair;
use cell_terms::mutant::{Mutant, planted};
use cell_tree::Division;

use super::cause::Cause;
use super::effects::Effects;
use super::parent;
use super::spread::{Going, Spread};
use crate::directory::MeganodeAt;
use crate::limits::PAIR_BYTES_MIN;
use crate::outbox::PairAt;
use crate::pairs::Pairs;

/// A pair was refused: it is asked for again after so long.
const GROWTH_RETRY_NS: u64 = 10_000_000_000;
/// After a split that failed, the next one waits so long.
const RETRY_NS: u64 = 100_000_000;
/// After so many such in a row, it waits as long as for a pair.
const ABORTED_MAX: u32 = 3;
/// A pair is asked for when a split leaves so few places for the next ones, the one that it takes included.
const PLACES_AHEAD: usize = 2;

/// An extent that is moved brings the version along under which it was written.
const VERSION_BYTES: u64 = 16;
/// Slabs of a few classes that are not full.
const SLABS_BYTES: u64 = 256 << 10;
/// Tree nodes of a few levels that are not full.
const NODES_BYTES: u64 = 8 << 10;
/// What is divided off is one of so many parts of a meganode at least.
const PART_MAX: u64 = 8;
/// Of the extent region: what a pair with much room takes at least; what is worth a split at all.
const ROOMY_PART: u64 = 8;
const TIGHT_PART: u64 = 32;

/// Whether a pair was asked for or refused, and until when no split begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Growth {
    asked: bool,
    /// Since one was last asked for there was no memory for another.
    short_of_memory: bool,
    refused_until_ns: u64,
    /// No split begins before; after splits that failed.
    split_after_ns: u64,
    /// Pairs that are short of extents found no place; they are looked at again then.
    short_after_ns: u64,
    /// Splits that failed in a row, and that had been finished before.
    finished_seen: u64,
    aborted_in_row: u32,
}

/// Where entries of a meganode can go.
pub(super) enum Placement {
    /// There, those that are divided off so.
    At(MeganodeAt, Division),
    /// A pair is to be added, which may take them.
    PairMayCome,
    /// Another pair's sparse slabs are to be packed; it may take them then.
    AfterPacking(PairAt),
    /// Nowhere.
    Nowhere,
}

/// How hard a place is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// Only where there is much room: a pair can be added as well.
    Roomy,
    /// Wherever it helps.
    Tight,
}

/// A meganode that entries are to leave.
struct Leaving {
    there: MeganodeAt,
    cause: Cause,
    entries: u64,
    extent_bytes: u64,
    node_bytes: u64,
    /// Of its pair's extent region, as of any pair's.
    capacity: u64,
    /// What its pair has left for extents.
    source_left: u64,
}

/// What goes, and what it takes where it goes.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// Bytes of extents as they are.
    extent_bytes: u64,
    extents_needed: u64,
    nodes_needed: u64,
}

impl Leaving {
    fn new(pairs: &Pairs, there: MeganodeAt, cause: Cause) -> Leaving {
        let pair = pairs.pair(there.pair);
        let (entries, extent_bytes) = pair.weight(there.slot);
        Leaving {
            there,
            cause,
            entries,
            extent_bytes,
            node_bytes: pair.nodes_bytes(there.slot),
            capacity: pair.extent_bytes(),
            source_left: pair.extent_bytes_left(),
        }
    }

    /// So many bytes of extents, with what they take elsewhere: each brings its version along, is rounded up
    /// to the slot of a class, and the last slab of each class is not full.
    fn share(&self, extent_bytes: u64) -> Share {
        let all = self.extent_bytes.max(1);
        let part = |of: u64| {
            let part = u128::from(of) * u128::from(extent_bytes) / u128::from(all);
            u64::try_from(part).unwrap_or(of)
        };
        let moved = extent_bytes + VERSION_BYTES * part(self.entries);
        // No more than an empty pair has: what does not fit there, fits nowhere, and more pairs do not help.
        let extents_needed = (moved / 8 * 9 + SLABS_BYTES).min(self.capacity / 8 * 7);
        Share { extent_bytes, extents_needed, nodes_needed: part(self.node_bytes) / 4 * 5 + NODES_BYTES }
    }

    /// What is an entry's, on average.
    fn one(&self) -> Share {
        self.share(self.extent_bytes / self.entries.max(1))
    }

    /// What should go to a slot of a pair: nothing, if that is no place for it.
    fn share_for(&self, pairs: &Pairs, to: MeganodeAt, search: Search) -> Option<Share> {
        let pair = pairs.pair(to.pair);
        let fits = |share: &Share| pair.can_adopt(to.slot, share.nodes_needed, share.extents_needed);
        match self.cause {
            Cause::Nodes | Cause::Early | Cause::Oversized => {
                let least = if search == Search::Roomy { 2 } else { PART_MAX };
                self.part_for(pairs, to, 2..=least)
            }
            Cause::Extents => {
                // What goes must not come back: both have the same left afterwards.
                let spare = pair.extent_bytes_free().checked_sub(self.source_left)? / 2;
                let share = self.share(spare.min(self.extent_bytes / 4 * 3));
                let least = match search {
                    Search::Roomy => self.capacity / ROOMY_PART,
                    // A slot takes memory too.
                    Search::Tight => {
                        let slot_bytes = pair.slot_bytes_short(to.slot, share.nodes_needed);
                        (self.capacity / TIGHT_PART).max(slot_bytes.min(pair.slot_bytes()))
                    }
                };
                (to.pair != self.there.pair && spare >= least && fits(&share)).then_some(share)
            }
        }
    }

    /// One of so many parts, where that fits: the largest one.
    fn part_for(&self, pairs: &Pairs, to: MeganodeAt, parts: RangeInclusive<u64>) -> Option<Share> {
        let pair = pairs.pair(to.pair);
        [2, 4, PART_MAX]
            .into_iter()
            .filter(|part| parts.contains(part))
            .map(|part| self.share(self.extent_bytes / part))
            .find(|share| pair.can_adopt(to.slot, share.nodes_needed, share.extents_needed))
    }

    /// Whether there is a key at which half of it can be divided off.
    fn can_be_divided(&self, pairs: &Pairs) -> bool {
        let (from, slot) = (pairs.pair(self.there.pair), self.there.slot);
        match self.cause {
            Cause::Nodes | Cause::Early => from.split_key(slot, 50).is_some(),
            Cause::Extents | Cause::Oversized => from.division(slot, self.extent_bytes / 2).is_some(),
        }
    }

    /// Where the share is divided off: by leaves where those are short, and else by bytes.
    fn divide(&self, pairs: &Pairs, candidate: &Candidate) -> Option<Division> {
        let (from, slot) = (pairs.pair(self.there.pair), self.there.slot);
        let share = &candidate.share;
        match self.cause {
            Cause::Nodes | Cause::Early => {
                let part = share.extent_bytes.saturating_mul(100) / self.extent_bytes.max(1);
                let left_percent = 100 - usize::try_from(part).unwrap_or(50).min(50);
                let key = from.split_key(slot, left_percent)?;
                Some(Division { key, fenced: true, weight: share.extent_bytes })
            }
            Cause::Extents | Cause::Oversized => {
                let division = from.division(slot, share.extent_bytes)?;
                let (to, share) = (pairs.pair(candidate.at.pair), self.share(division.weight));
                let fits = to.can_adopt(candidate.at.slot, share.nodes_needed, share.extents_needed);
                let relieves = self.cause == Cause::Oversized
                    || division.weight + self.source_left <= to.extent_bytes_free();
                (fits && relieves).then_some(division)
            }
        }
    }
}

/// A pair that can take entries of a meganode.
struct Candidate {
    at: MeganodeAt,
    share: Share,
    extent_bytes_free: u64,
    /// How many could go there, as far as slots go.
    slots: usize,
}

/// The pairs that have a slot, and memory and extents enough. Those that are made for other nodes are for
/// what they were made for.
fn candidates<'a>(
    pairs: &'a Pairs,
    leaving: &'a Leaving,
    spread: &'a Spread,
    search: Search,
) -> impl Iterator<Item = Candidate> + 'a {
    let root = parent::root_pair(pairs);
    let stays = move |at: &PairAt| !spread.is_fresh(pairs.pair(*at).id());
    pairs.staying().filter(stays).filter_map(move |at| {
        let pair = pairs.pair(at);
        // The router wants a slot of its own.
        let kept = usize::from(Some(at) == root && pair.router().is_none());
        let mut free = pair.free_slots();
        let slot = free.next()?;
        let slots = (1 + free.count()).checked_sub(kept).filter(|slots| *slots > 0)?;
        let at = MeganodeAt { pair: at, slot };
        let share = leaving.share_for(pairs, at, search)?;
        Some(Candidate { at, share, extent_bytes_free: pair.extent_bytes_free(), slots })
    })
}

/// The one that takes most, and of these the one with most room.
fn best(candidates: impl Iterator<Item = Candidate>) -> Option<Candidate> {
    candidates.max_by_key(|candidate| (candidate.share.extent_bytes, candidate.extent_bytes_free))
}

impl Growth {
    /// Whether splits may begin.
    pub(super) fn may_split(&self, now_ns: u64) -> bool {
        now_ns >= self.split_after_ns
    }

    /// Whether the last pair that was wanted could not be: there was no memory for it.
    pub(super) fn is_short_of_memory(&self) -> bool {
        self.short_of_memory
    }

    /// Whether pairs that are short of extents are to be looked at.
    pub(super) fn may_look(&self, now_ns: u64) -> bool {
        now_ns >= self.short_after_ns
    }

    /// There was no place for what they have: that is not looked for each turn.
    pub(super) fn found_nothing(&mut self, now_ns: u64) {
        self.short_after_ns = now_ns + RETRY_NS;
    }

    /// Whether splits that rest now may begin soon, so that a write may wait for one.
    pub(super) fn splits_soon(&self, now_ns: u64) -> bool {
        self.split_after_ns.saturating_sub(now_ns) <= RETRY_NS
    }

    /// Splits that fail are not tried again and again. `finished` so far; `failed_here` since this was asked
    /// last, other than for other nodes, whose splits rest apart and hold up nothing here; `held`: no pair
    /// may grow now.
    pub(super) fn look_back(&mut self, finished: u64, failed_here: bool, held: bool, now_ns: u64) {
        if finished != self.finished_seen {
            self.finished_seen = finished;
            self.aborted_in_row = 0;
        }
        if failed_here {
            // While growth is held, a failure is no sign that the next one fails: there may be memory then.
            self.aborted_in_row += u32::from(!held || planted(Mutant::HeldSplitRests));
            let rest_ns = if self.aborted_in_row < ABORTED_MAX { RETRY_NS } else { GROWTH_RETRY_NS };
            self.split_after_ns = now_ns + rest_ns;
        }
    }

    /// Where entries of a meganode go, if need be to a pair that is to be added. Only when none can be, they
    /// go where there is little room.
    pub(super) fn place(
        &mut self,
        pairs: &Pairs,
        there: MeganodeAt,
        cause: Cause,
        now_ns: u64,
        spread: &mut Spread,
        effects: &mut Effects,
    ) -> Placement {
        let leaving = Leaving::new(pairs, there, cause);
        if leaving.entries < 2 {
            return Placement::Nowhere;
        }
        if let Some(elsewhere) = self.place_elsewhere(pairs, &leaving, now_ns, spread, effects) {
            return elsewhere;
        }
        if cause == Cause::Oversized {
            return Placement::Nowhere;
        }
        let spread = &*spread;
        let mut places = 0;
        let roomy = candidates(pairs, &leaving, spread, Search::Roomy).inspect(|place| places += place.slots);
        let roomy = best(roomy);
        // A pair takes its time to be made: it is asked for before writes wait for it.
        let few = cause != Cause::Early && (roomy.is_none() || places <= PLACES_AHEAD);
        let comes = few && self.want_pair(pairs, &leaving, spread, now_ns, effects);
        if roomy.is_none() && comes {
            return Placement::PairMayCome;
        }
        let tight = || match cause {
            Cause::Early | Cause::Oversized => None,
            Cause::Nodes | Cause::Extents => best(candidates(pairs, &leaving, spread, Search::Tight)),
        };
        let Some(to) = roomy.or_else(tight) else {
            return packed(pairs, &leaving).map_or(Placement::Nowhere, Placement::AfterPacking);
        };
        match leaving.divide(pairs, &to) {
            Some(division) => Placement::At(to.at, division),
            None => Placement::Nowhere,
        }
    }

    /// What goes to another node goes into a pair that is made for it. None: it stays here.
    fn place_elsewhere(
        &mut self,
        pairs: &Pairs,
        leaving: &Leaving,
        now_ns: u64,
        spread: &mut Spread,
        effects: &mut Effects,
    ) -> Option<Placement> {
        let mut going = (Going::Nowhere, 2, 0);
        for part in leaving.cause.parts() {
            let share = leaving.share(leaving.extent_bytes / part);
            let needed = PAIR_BYTES_MIN + share.nodes_needed + share.extents_needed;
            let bytes = share.extent_bytes + leaving.node_bytes / part;
            let half = (leaving.there, leaving.cause, *part);
            going = (spread.going(pairs, half, (bytes, needed), now_ns), *part, needed);
            if going.0 != Going::Nowhere {
                break;
            }
        }
        match going {
            (Going::Nowhere, ..) => None,
            (Going::Into(at, part), ..) => {
                let division = into(pairs, leaving, at, part);
                if division.is_none() && spread.awaits().is_some() {
                    spread.give_up(now_ns);
                }
                division.map(|(to, division)| Placement::At(to, division))
            }
            (Going::To(node), part, needed) => {
                let splits = pairs.iter().any(|owned| owned.pair.slot_count() > 1);
                let fits = pairs.pair(leaving.there.pair).obtainable_bytes() >= needed;
                let may_ask = splits && fits && now_ns >= self.refused_until_ns;
                if !may_ask || !leaving.can_be_divided(pairs) {
                    return None;
                }
                if !std::mem::replace(&mut self.asked, true) {
                    effects.outcome.add_pair = true;
                    effects.outcome.meant_for = Some(node);
                    spread.asked(leaving.there, leaving.cause, part);
                }
                Some(Placement::PairMayCome)
            }
        }
    }

    /// Asks for one more pair. Whether one may come: with memory for itself and for what is to go there.
    fn want_pair(
        &mut self,
        pairs: &Pairs,
        leaving: &Leaving,
        spread: &Spread,
        now_ns: u64,
        effects: &mut Effects,
    ) -> bool {
        let splits = pairs.iter().any(|owned| owned.pair.slot_count() > 1);
        // Where there is an empty one, another does not help.
        let stays = |pair: &Pair| !spread.is_fresh(pair.id());
        let empty = pairs.iter().any(|owned| stays(&owned.pair) && is_empty(&owned.pair));
        let needed = match leaving.cause {
            Cause::Nodes | Cause::Early | Cause::Oversized => {
                let share = leaving.share(leaving.extent_bytes / 8);
                share.nodes_needed + share.extents_needed
            }
            Cause::Extents => {
                let (one, least) = (leaving.one(), 2 * leaving.capacity / TIGHT_PART + leaving.source_left);
                one.nodes_needed + one.extents_needed.max(least)
            }
        };
        let pair = pairs.pair(leaving.there.pair);
        let fits = pair.obtainable_bytes() >= PAIR_BYTES_MIN + needed;
        if !splits || empty || now_ns < self.refused_until_ns || pair.is_growth_held() {
            return false;
        }
        self.ask(fits, effects)
    }

    /// Asks for a pair that there is memory for. One that there is none for is counted, once until another
    /// is asked for.
    fn ask(&mut self, fits: bool, effects: &mut Effects) -> bool {
        if !fits {
            effects.counts.pairs_short += u64::from(!std::mem::replace(&mut self.short_of_memory, true));
        } else if !std::mem::replace(&mut self.asked, true) {
            self.short_of_memory = false;
            effects.outcome.add_pair = true;
        }
        fits
    }

    /// A pair was added, or there is no memory for one.
    pub(super) fn pair_added(&mut self, added: bool, now_ns: u64) {
        self.asked = false;
        if !added {
            self.refused_until_ns = now_ns + GROWTH_RETRY_NS;
        }
    }
}

/// What goes into a pair that was made for it: one of so many parts, or less; none: it cannot take it.
fn into(pairs: &Pairs, leaving: &Leaving, at: PairAt, part: u64) -> Option<(MeganodeAt, Division)> {
    let slot = pairs.pair(at).free_slots().next()?;
    let to = MeganodeAt { pair: at, slot };
    let share = match leaving.cause {
        Cause::Extents => leaving.share_for(pairs, to, Search::Tight)?,
        Cause::Nodes | Cause::Early | Cause::Oversized => leaving.part_for(pairs, to, part..=PART_MAX)?,
    };
    let candidate = Candidate { at: to, share, extent_bytes_free: 0, slots: 1 };
    leaving.divide(pairs, &candidate).map(|division| (to, division))
}

/// Whether a pair has no entries, and slots for some: for a router, too.
fn is_empty(pair: &Pair) -> bool {
    pair.free_slots().nth(1).is_some() && pair.leaf_slots().into_iter().all(|slot| pair.weight(slot).0 == 0)
}

/// A pair whose sparse slabs have the room that nobody else has.
fn packed(pairs: &Pairs, leaving: &Leaving) -> Option<PairAt> {
    let takes = |at: &PairAt| {
        let pair = pairs.pair(*at);
        let spare = pair.extent_bytes_left().saturating_sub(leaving.source_left) / 2;
        let worth = *at != leaving.there.pair && spare >= leaving.capacity / TIGHT_PART;
        worth && pair.may_pack() && pair.free_slots().next().is_some()
    };
    pairs.staying().find(takes).filter(|_| leaving.cause == Cause::Extents)
}

#[cfg(test)]
mod tests {
    use cell_cluster::PairGeometry;

    use super::*;
    use crate::split::tests::{LEFT, RIGHT, SIZES, Story};

    /// Writes to full meganodes were refused because a split for another node's sake had failed.
    #[test]
    fn splits_that_failed_elsewhere_hold_up_none_here() {
        let mut growth = Growth::default();
        growth.look_back(0, false, false, 1);
        assert!(growth.may_split(1));
        growth.look_back(0, true, false, 1);
        assert!(!growth.may_split(1) && growth.may_split(1 + RETRY_NS));
    }

    /// A node that was full once seemed never to have wanted memory.
    #[test]
    fn ask_without_memory_is_counted_once_until_a_pair_is_asked_for() {
        let (mut growth, mut effects) = (Growth::default(), Effects::default());
        assert!(!growth.ask(false, &mut effects) && !growth.ask(false, &mut effects));
        assert_eq!((effects.counts.pairs_short, effects.outcome.add_pair), (1, false));
        assert!(growth.ask(true, &mut effects));
        assert!(std::mem::take(&mut effects.outcome.add_pair));
        assert!(!growth.ask(false, &mut effects));
        assert!(growth.ask(true, &mut effects) && !growth.ask(false, &mut effects));
        assert_eq!((effects.counts.pairs_short, effects.outcome.add_pair), (2, false), "it was asked for");
        growth.pair_added(true, 0);
        assert!(growth.ask(true, &mut effects) && effects.outcome.add_pair);
    }

    #[test]
    fn splits_that_fail_one_after_the_other_rest_longer_until_one_is_finished() {
        let mut growth = Growth::default();
        let rests_shortly = |growth: &Growth| !growth.may_split(RETRY_NS - 1) && growth.may_split(RETRY_NS);
        for _ in 1..ABORTED_MAX {
            growth.look_back(0, true, false, 0);
            assert!(rests_shortly(&growth) && growth.splits_soon(0), "a write waits for it");
        }
        growth.look_back(0, true, true, 0);
        assert!(rests_shortly(&growth), "while growth is held it is no sign");
        growth.look_back(0, true, false, 0);
        assert!(!growth.may_split(GROWTH_RETRY_NS - 1) && growth.may_split(GROWTH_RETRY_NS));
        let soon_ns = GROWTH_RETRY_NS - RETRY_NS;
        assert!(!growth.splits_soon(soon_ns - 1) && growth.splits_soon(soon_ns));
        growth.look_back(1, true, false, 0);
        assert!(rests_shortly(&growth), "one was finished in between");
    }

    /// It is looked again: what a pair lacks may have come.
    #[test]
    fn pairs_that_are_short_are_looked_at_again_after_a_rest() {
        let mut growth = Growth::default();
        assert!(growth.may_look(0));
        growth.found_nothing(5);
        assert!(!growth.may_look(4 + RETRY_NS) && growth.may_look(5 + RETRY_NS));
    }

    /// Less than that fits by what is computed here, and comes to nothing in the adoption; more is refused
    /// where there is room.
    #[test]
    fn share_takes_elsewhere_what_its_entries_and_tree_nodes_take_there() {
        let leaving = |capacity: u64| Leaving {
            there: MeganodeAt::default(),
            cause: Cause::Nodes,
            entries: 1_000,
            extent_bytes: 8_000_000,
            node_bytes: 400_000,
            capacity,
            source_left: 0,
        };
        // 500 entries with 16 bytes more each, an eighth of that, and slabs that are not full; half of the
        // tree nodes, a quarter of that, and some levels.
        let half = leaving(1 << 30).share(4_000_000);
        assert_eq!(half.extent_bytes, 4_000_000);
        assert_eq!(half.extents_needed, 4_008_000 / 8 * 9 + 262_144);
        assert_eq!(half.nodes_needed, 200_000 + 50_000 + 8_192);
        assert_eq!(leaving(1 << 30).one().extents_needed, 8_016 / 8 * 9 + 262_144);
        let empty_pair_has = (4 << 20) / 8 * 7;
        assert_eq!(leaving(4 << 20).share(4_000_000).extents_needed, empty_pair_has, "not more");
    }

    /// Without it an empty pair is asked for again and again, or none is where there is no place.
    #[test]
    fn pair_is_empty_that_has_no_entries_and_slots_for_a_meganode_and_the_router() {
        let mut story = Story::begin(SIZES);
        assert!(is_empty(story.pairs.pair(story.at)));
        story.put(1, b"key");
        assert!(!is_empty(story.pairs.pair(story.at)));
        let of_two_slots = Story::begin(sizes(2));
        assert!(!is_empty(of_two_slots.pairs.pair(of_two_slots.at)));
    }

    fn sizes(slots: u64) -> PairGeometry {
        PairGeometry { node_region_bytes: 4096 + slots * SIZES.slot_bytes, ..SIZES }
    }

    /// A meganode that takes it leaves no place for the router, and readers go by right links for good.
    #[test]
    fn last_free_slot_of_the_roots_pair_is_for_the_router_until_there_is_one() {
        let slots = |story: &Story| {
            let there = MeganodeAt { pair: story.at, slot: LEFT };
            let (leaving, spread) = (Leaving::new(&story.pairs, there, Cause::Nodes), Spread::default());
            let places = candidates(&story.pairs, &leaving, &spread, Search::Tight);
            places.map(|place| (place.at.pair, place.slots)).collect::<Vec<_>>()
        };
        assert!(slots(&Story::begin(sizes(2))).is_empty());
        let mut story = Story::begin(sizes(3));
        assert_eq!(slots(&story), [(story.at, 1)]);
        let other = story.add_pair(sizes(3));
        assert_eq!(slots(&story), [(story.at, 1), (other, 3)]);
        let mut story = Story::begin(SIZES);
        (1..=100_u64).for_each(|number| story.put(number, &number.to_be_bytes()));
        story.divide();
        assert!(story.pairs.pair(story.at).router().is_some());
        assert_eq!(slots(&story), [(story.at, 1)]);
    }

    /// Too much comes back at once, and too little is not worth a split.
    #[test]
    fn extents_leave_for_another_pair_so_many_that_both_have_the_same_left() {
        let story = Story::begin(SIZES);
        let (pair, to) = (story.pairs.pair(story.at), MeganodeAt { pair: story.at, slot: RIGHT });
        let (free, capacity) = (pair.extent_bytes_free(), pair.extent_bytes());
        let share = |from: PairAt, extent_bytes: u64, source_left: u64, search: Search| {
            let there = MeganodeAt { pair: from, slot: LEFT };
            let (cause, entries, node_bytes) = (Cause::Extents, 100, 4096);
            let leaving = Leaving { there, cause, entries, extent_bytes, node_bytes, capacity, source_left };
            leaving.share_for(&story.pairs, to, search).map(|share| share.extent_bytes)
        };
        let (other, much) = (PairAt(to.pair.0 + 1), 3 << 20);
        for (search, least) in [(Search::Roomy, capacity / 8), (Search::Tight, capacity / 32)] {
            assert_eq!(share(other, much, free - 2 * least, search), Some(least));
            assert_eq!(share(other, much, free - 2 * (least - 1), search), None);
            assert_eq!(share(to.pair, much, free - 2 * least, search), None, "it is the same pair");
        }
        assert_eq!(share(other, 400_000, free - (2 << 20), Search::Tight), Some(300_000), "a quarter stays");
        assert_eq!(share(other, much, free + 1, Search::Tight), None, "it has less left");
    }

    /// While a pair can be added as well, less than half is not worth a split; in the end a part is better
    /// than none.
    #[test]
    fn half_goes_where_there_is_much_room_and_in_the_end_what_fits() {
        let mut story = Story::begin(SIZES);
        for number in 1..=20_u64 {
            story.put_into(LEFT, number, &number.to_be_bytes(), &[7; 50_000]);
        }
        let [there, to] = [LEFT, RIGHT].map(|slot| MeganodeAt { pair: story.at, slot });
        let pair = story.pairs.pair(story.at);
        let (cause, entries, node_bytes, capacity) = (Cause::Nodes, 100, 4096, pair.extent_bytes());
        let extent_bytes = pair.extent_bytes_free() / 4 * 7;
        let leaving = Leaving { there, cause, entries, extent_bytes, node_bytes, capacity, source_left: 0 };
        let goes = |search| leaving.share_for(&story.pairs, to, search).map(|share| share.extent_bytes);
        assert_eq!([Search::Roomy, Search::Tight].map(goes), [None, Some(extent_bytes / 4)]);
    }

    #[test]
    fn meganode_that_is_divided_leaves_what_fits_where_it_goes() {
        let mut story = Story::begin(SIZES);
        for number in 1..=100_u64 {
            story.put_into(LEFT, number, &number.to_be_bytes(), &[7; 1_000]);
        }
        let [there, at] = [LEFT, RIGHT].map(|slot| MeganodeAt { pair: story.at, slot });
        let pair = story.pairs.pair(story.at);
        let divide = |cause: Cause, bytes: u64, source_left: u64| {
            let leaving = Leaving { source_left, ..Leaving::new(&story.pairs, there, cause) };
            let share = leaving.share(bytes);
            leaving.divide(&story.pairs, &Candidate { at, share, extent_bytes_free: 0, slots: 1 })
        };
        let (_, all) = pair.weight(LEFT);
        assert_eq!(divide(Cause::Nodes, all / 4, 0).map(|of| Some(of.key)), Some(pair.split_key(LEFT, 75)));
        let division = pair.division(LEFT, 40_000).unwrap();
        let spare = pair.extent_bytes_free() - division.weight;
        assert_eq!(divide(Cause::Extents, 40_000, spare).map(|of| of.key), Some(division.key));
        assert!(divide(Cause::Extents, 40_000, spare + 1).is_none(), "it would come back");
        assert!(divide(Cause::Oversized, 40_000, spare + 1).is_some());
    }

    /// A put would be refused though there is room, or wait for room that does not come.
    #[test]
    fn pair_whose_sparse_slabs_have_the_room_is_packed_for_others_that_are_short_of_extents() {
        let (sparse, fresh) = (Story::sparse(), Story::begin(SIZES));
        let packs = |story: &Story, from: PairAt, cause: Cause, spare: u64| {
            let pair = story.pairs.pair(story.at);
            let source_left = pair.extent_bytes_left() - spare;
            let (there, capacity) = (MeganodeAt { pair: from, slot: LEFT }, pair.extent_bytes());
            let (entries, extent_bytes, node_bytes) = (100, 1 << 20, 4096);
            let leaving = Leaving { there, cause, entries, extent_bytes, node_bytes, capacity, source_left };
            packed(&story.pairs, &leaving)
        };
        let (at, other) = (sparse.at, PairAt(sparse.at.0 + 1));
        let least = 2 * (sparse.pairs.pair(at).extent_bytes() / 32);
        assert_eq!(packs(&sparse, other, Cause::Extents, least), Some(at));
        assert_eq!(packs(&sparse, other, Cause::Extents, least - 1), None, "it is not worth it");
        assert_eq!(packs(&sparse, other, Cause::Nodes, least), None, "extents are not what lacks");
        assert_eq!(packs(&sparse, at, Cause::Extents, least), None, "it is the same pair");
        assert_eq!(packs(&fresh, other, Cause::Extents, least), None, "nothing in it is sparse");
    }
}
