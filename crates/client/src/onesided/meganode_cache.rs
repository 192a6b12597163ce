//! Where in mapped memory the meganodes are, by the ranges of their keys: it saves searches in place the walk
//! through the router. What is kept is advice: a stale place costs a right link or a walk from the root,
//! never a wrong answer, because leaves say which keys are theirs.

use std::ops::Range;

use cell_tree::{FenceHeads, MeganodeFences, fence_head};

use super::place::{MeganodePlace, PairAt};

/// Most meganodes that are kept. What comes after goes through the router.
pub(crate) const MEGANODES_MAX: usize = 4_096;

#[derive(Clone, Debug)]
struct Known {
    low: Box<[u8]>,
    high: Option<Box<[u8]>>,
    /// The high fence's first bytes; nothing is above the number where there is none.
    high_head: u64,
    place: MeganodePlace,
}

/// See the module's text. No two ranges overlap.
#[derive(Debug, Default)]
pub(crate) struct MeganodeCache {
    heads: FenceHeads,
    known: Vec<Known>,
}

impl MeganodeCache {
    /// Where the meganode of a key is said to be.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<MeganodePlace> {
        let known = &self.known[self.position(key)?];
        let inside = fence_head(key) < known.high_head || known.high.as_deref().is_none_or(|high| key < high);
        inside.then_some(known.place)
    }

    /// The last range that begins at a key or below it.
    #[inline]
    fn position(&self, key: &[u8]) -> Option<usize> {
        self.heads.position(&self.known, key, |known| &known.low)
    }

    /// Whether one more is kept.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.known.len() < MEGANODES_MAX
    }

    /// Takes in where a meganode is; what overlaps it was stale.
    pub(crate) fn insert(&mut self, fences: MeganodeFences, place: MeganodePlace) {
        let MeganodeFences { low, high } = fences;
        if high.as_ref().is_some_and(|high| *high <= low) {
            return;
        }
        let ends_before = |known: &Known| known.high.as_ref().is_some_and(|end| end[..] <= low[..]);
        let begins_below = |known: &Known| high.as_ref().is_none_or(|high| known.low[..] < high[..]);
        let stale = self.known.partition_point(ends_before)..self.known.partition_point(begins_below);
        self.replace(stale.clone(), None);
        if self.has_room() {
            let high_head = high.as_deref().map_or(u64::MAX, fence_head);
            let known = Known { low: low.into(), high: high.map(Vec::into_boxed_slice), high_head, place };
            self.replace(stale.start..stale.start, Some(known));
        }
    }

    fn replace(&mut self, replaced: Range<usize>, by: Option<Known>) {
        self.heads.splice(replaced.clone(), by.as_ref().map(|known| &*known.low));
        self.known.splice(replaced, by);
    }

    /// Forgets where a key's meganode is said to be.
    #[cold]
    pub(crate) fn forget(&mut self, key: &[u8]) {
        if let Some(at) = self.position(key) {
            self.replace(at..at + 1, None);
        }
    }

    /// Forgets the meganodes of a pair.
    pub(crate) fn forget_pair(&mut self, pair: PairAt) {
        for at in (0..self.known.len()).rev() {
            if self.known[at].place.at == pair {
                self.replace(at..at + 1, None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::{RegionId, SlotIndex};
    use cell_tree::Slot;
    use proptest::prelude::*;

    use super::*;

    fn place(number: u32) -> MeganodePlace {
        MeganodePlace { at: 0, slot: Slot { region: RegionId(2), index: SlotIndex(number) } }
    }

    fn fences(low: &[u8], high: Option<&[u8]>) -> MeganodeFences {
        MeganodeFences { low: low.to_vec(), high: high.map(<[u8]>::to_vec) }
    }

    #[test]
    fn insert_drops_what_overlaps() {
        let mut cache = MeganodeCache::default();
        cache.insert(fences(b"", None), place(1));
        assert_eq!(cache.find(b"k"), Some(place(1)));
        cache.insert(fences(b"g", Some(b"p")), place(2));
        let found = [&b"a"[..], b"g", b"o", b"p"].map(|key| cache.find(key).map(|found| found.slot.index.0));
        assert_eq!(found, [None, Some(2), Some(2), None], "the wider range was stale");
        cache.insert(fences(b"", Some(b"g")), place(3));
        cache.insert(fences(b"p", None), place(4));
        cache.forget(b"h");
        let found = [&b"a"[..], b"g", b"p"].map(|key| cache.find(key).map(|found| found.slot.index.0));
        assert_eq!(found, [Some(3), None, Some(4)]);
        let elsewhere = MeganodePlace { at: 1, ..place(5) };
        cache.insert(fences(b"g", Some(b"p")), elsewhere);
        cache.forget_pair(0);
        assert_eq!([&b"a"[..], b"g", b"p"].map(|key| cache.find(key)), [None, Some(elsewhere), None]);
    }

    #[test]
    fn insert_past_the_limit_keeps_what_is_known() {
        let mut cache = MeganodeCache::default();
        let count = u32::try_from(MEGANODES_MAX).unwrap() + 10;
        for number in 0..count {
            let (low, high) = (number.to_be_bytes(), (number + 1).to_be_bytes());
            cache.insert(fences(&low, Some(&high)), place(number));
        }
        let found = |number: u32| cache.find(&number.to_be_bytes());
        assert_eq!(found(0), Some(place(0)));
        assert_eq!(found(count - 11), Some(place(count - 11)));
        assert_eq!((found(count - 1), cache.has_room()), (None, false));
        cache.insert(fences(&[], Some(&2_u32.to_be_bytes())), place(7));
        let found = cache.find(&1_u32.to_be_bytes());
        assert_eq!((found, cache.has_room()), (Some(place(7)), true), "in place of two");
    }

    #[test]
    fn insert_of_an_empty_range_is_ignored() {
        let mut cache = MeganodeCache::default();
        cache.insert(fences(b"b", Some(b"b")), place(1));
        assert_eq!(cache.find(b"b"), None);
    }

    proptest! {
        /// Keys of few letters and many lengths, so that first bytes are often alike.
        #[test]
        fn find_returns_the_last_range_that_was_learnt_for_a_key(
            learnt in prop::collection::vec(("[ab]{0,12}", prop::option::of("[ab]{0,12}")), 0..20),
            keys in prop::collection::vec("[ab]{1,12}", 1..20),
        ) {
            let mut cache = MeganodeCache::default();
            let mut model: Vec<(&str, Option<&str>, u32)> = Vec::new();
            for (number, (low, high)) in (0..).zip(&learnt) {
                cache.insert(fences(low.as_bytes(), high.as_ref().map(String::as_bytes)), place(number));
                let (low, high) = (low.as_str(), high.as_deref());
                if high.is_none_or(|high| low < high) {
                    let is_apart = |(of, end): (&str, Option<&str>)| {
                        end.is_some_and(|end| end <= low) || high.is_some_and(|high| high <= of)
                    };
                    model.retain(|(of, end, _)| is_apart((of, *end)));
                    model.push((low, high, number));
                }
            }
            for key in &keys {
                let key = key.as_str();
                let has = |(low, high): (&str, Option<&str>)| {
                    low <= key && high.is_none_or(|high| key < high)
                };
                let expected = model.iter().find(|(low, high, _)| has((low, *high)));
                let expected = expected.map(|(_, _, number)| place(*number));
                prop_assert_eq!(cache.find(key.as_bytes()), expected);
            }
        }
    }
}
