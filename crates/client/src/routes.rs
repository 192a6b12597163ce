//! Cached paths: ranges of keys and the pairs that have them, as hints gave them. Advice: a stale one costs a
//! step, because every worker knows its own keys.

use std::collections::BTreeMap;
use std::ops::Bound;

use cell_protocol::Route;
use cell_terms::PairId;
use cell_tree::Aim;

/// Most ranges that are kept.
pub(crate) const ROUTES_MAX: usize = 4_096;

/// So many go when there are more.
const FORGOTTEN_AT_ONCE: usize = ROUTES_MAX / 16;

#[derive(Debug)]
struct Known {
    high: Option<Box<[u8]>>,
    pair: PairId,
    used: u64,
}

/// See the module's text. No two ranges overlap.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    ranges: BTreeMap<Box<[u8]>, Known>,
    uses: u64,
}

impl Routes {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Takes a hint in; what it contradicts is cut.
    pub(crate) fn learn(&mut self, route: &Route<'_>) {
        if route.high.is_some_and(|high| high <= route.low) {
            return;
        }
        self.cut(route.low, route.high);
        if self.ranges.len() >= ROUTES_MAX {
            self.forget_oldest();
        }
        self.uses += 1;
        let known = Known { high: route.high.map(Box::from), pair: route.pair, used: self.uses };
        self.ranges.insert(route.low.into(), known);
    }

    /// Forgets those used longest ago: many at a time, because each time all are looked at.
    fn forget_oldest(&mut self) {
        let mut uses: Vec<u64> = self.ranges.values().map(|known| known.used).collect();
        let (_, last, _) = uses.select_nth_unstable(FORGOTTEN_AT_ONCE - 1);
        let last = *last;
        self.ranges.retain(|_, known| known.used > last);
    }

    /// Takes a range out of those that are known.
    fn cut(&mut self, low: &[u8], high: Option<&[u8]>) {
        let left = self.ranges.range_mut::<[u8], _>((Bound::Unbounded, Bound::Excluded(low))).next_back();
        let mut rest = None;
        if let Some((_, known)) = left
            && known.high.as_deref().is_none_or(|its_high| its_high > low)
        {
            rest = Some((known.high.take(), known.pair, known.used));
            known.high = Some(low.into());
        }
        let upper = high.map_or(Bound::Unbounded, Bound::Excluded);
        let inside = self.ranges.range::<[u8], _>((Bound::Included(low), upper));
        let inside: Vec<Box<[u8]>> = inside.map(|(low, _)| low.clone()).collect();
        for low in inside {
            rest = self.ranges.remove(&low).map(|known| (known.high, known.pair, known.used));
        }
        // What goes on behind the cut is kept.
        if let (Some(high), Some((its_high, pair, used))) = (high, rest)
            && its_high.as_deref().is_none_or(|its_high| its_high > high)
        {
            self.ranges.insert(high.into(), Known { high: its_high, pair, used });
        }
    }

    /// The pair that has the keys at an aim, as far as is known.
    pub(crate) fn find(&mut self, aim: Aim<'_>) -> Option<PairId> {
        let upper = match aim {
            Aim::First => Bound::Included(&[][..]),
            Aim::At(key) => Bound::Included(key),
            Aim::Below(bound) => Bound::Excluded(bound),
            Aim::Last => Bound::Unbounded,
        };
        let (_, known) = self.ranges.range_mut::<[u8], _>((Bound::Unbounded, upper)).next_back()?;
        let inside = known.high.as_deref().is_none_or(|high| match aim {
            Aim::First => true,
            Aim::At(key) => key < high,
            Aim::Below(bound) => bound <= high,
            Aim::Last => false,
        });
        if !inside {
            return None;
        }
        self.uses += 1;
        known.used = self.uses;
        Some(known.pair)
    }

    /// Forgets where the keys at an aim are said to be.
    pub(crate) fn forget(&mut self, aim: Aim<'_>) {
        let low = match aim {
            Aim::First => Some(Box::default()),
            Aim::Last => self.ranges.keys().next_back().cloned(),
            Aim::At(key) => self.low_upto(Bound::Included(key)),
            Aim::Below(bound) => self.low_upto(Bound::Excluded(bound)),
        };
        low.map(|low| self.ranges.remove(&low));
    }

    fn low_upto(&self, bound: Bound<&[u8]>) -> Option<Box<[u8]>> {
        self.ranges.range::<[u8], _>((Bound::Unbounded, bound)).next_back().map(|(low, _)| low.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn route<'a>(low: &'a [u8], high: Option<&'a [u8]>, pair: u32) -> Route<'a> {
        Route { low, high, pair: PairId(pair) }
    }

    #[test]
    fn learn_within_a_range_keeps_what_is_left_and_right_of_it() {
        let mut routes = Routes::default();
        routes.learn(&route(b"", None, 1));
        routes.learn(&route(b"g", Some(b"p"), 2));
        let found: Vec<_> = [&b"a"[..], b"g", b"o", b"p", b"z"]
            .iter()
            .map(|key| routes.find(Aim::At(key)).map(|pair| pair.0))
            .collect();
        assert_eq!(found, [Some(1), Some(2), Some(2), Some(1), Some(1)]);
        assert_eq!(routes.find(Aim::First), Some(PairId(1)));
        assert_eq!(routes.find(Aim::Last), Some(PairId(1)));
        assert_eq!(routes.find(Aim::Below(b"p")), Some(PairId(2)));
        assert_eq!(routes.find(Aim::Below(b"g")), Some(PairId(1)));
        routes.forget(Aim::At(b"h"));
        assert_eq!(routes.find(Aim::At(b"h")), None);
    }

    #[test]
    fn learn_past_the_limit_drops_those_used_longest_ago() {
        let mut routes = Routes::default();
        let key = |number: usize| u32::try_from(number).unwrap().to_be_bytes();
        for number in 0..ROUTES_MAX {
            routes.learn(&route(&key(number), Some(&key(number + 1)), 1));
        }
        assert!(routes.find(Aim::At(&key(0))).is_some());
        routes.learn(&route(&key(ROUTES_MAX), None, 1));
        assert_eq!(routes.ranges.len(), ROUTES_MAX - FORGOTTEN_AT_ONCE + 1);
        assert!(routes.find(Aim::At(&key(0))).is_some());
        assert_eq!(routes.find(Aim::At(&key(1))), None);
        assert!(routes.find(Aim::At(&key(FORGOTTEN_AT_ONCE + 1))).is_some());
    }

    proptest! {
        #[test]
        fn routes_of_any_hints_are_the_last_ones_said(
            hints in proptest::collection::vec((0u8..20, 0u8..21, 1u32..9), 0..30)
        ) {
            let mut routes = Routes::default();
            let mut model = [0u32; 20];
            for (low, high, pair) in hints {
                let bound = [high];
                routes.learn(&route(&[low], (high < 20).then_some(&bound), pair));
                model[usize::from(low)..usize::from(high.max(low))].fill(pair);
            }
            for key in 0..20u8 {
                let expected = Some(PairId(model[usize::from(key)])).filter(|pair| pair.0 > 0);
                prop_assert_eq!(routes.find(Aim::At(&[key])), expected);
            }
        }
    }
}
