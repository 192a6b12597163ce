//! Which of many ranges of keys, in key order, begins last at a key or below it: found by the first eight
//! bytes of their low fences, of which whole ones are compared only where those are equal.

use std::ops::Range;

/// The first eight bytes of the low fences of ranges, in the order of the ranges. They lie side by side, so a
/// search touches few cache lines.
#[derive(Clone, Debug, Default)]
pub struct FenceHeads(Vec<u64>);

/// The first eight bytes of a key as a number, zero padded: numbers that differ compare as their keys do.
#[inline]
#[must_use]
pub fn fence_head(key: &[u8]) -> u64 {
    key.first_chunk::<8>().map_or_else(
        || {
            let mut first = [0; 8];
            first[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(first)
        },
        |first| u64::from_be_bytes(*first),
    )
}

impl FenceHeads {
    /// The last of the ranges that begins at a key or below it; `low` is a range's low fence.
    ///
    /// # Panics
    /// If there are fewer ranges than heads.
    #[inline]
    pub fn position<T>(&self, ranges: &[T], key: &[u8], low: impl Fn(&T) -> &[u8]) -> Option<usize> {
        let wanted = fence_head(key);
        let upto = self.0.partition_point(|head| *head <= wanted);
        if upto == 0 || self.0[upto - 1] != wanted {
            return upto.checked_sub(1);
        }
        let from = self.0[..upto].partition_point(|head| *head < wanted);
        let among = ranges[from..upto].partition_point(|range| low(range) <= key);
        (from + among).checked_sub(1)
    }

    /// Replaces ranges by one that begins at `low`, or by none.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn splice(&mut self, replaced: Range<usize>, low: Option<&[u8]>) {
        self.0.splice(replaced, low.map(fence_head));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Keys of few letters and many lengths, so that first bytes are often alike.
        #[test]
        fn position_is_that_of_the_last_fence_that_is_not_above(
            lows in prop::collection::btree_set("[ab]{0,12}", 0..30),
            removed in 0..30_usize,
            keys in prop::collection::vec("[ab]{0,12}", 1..20),
        ) {
            let mut lows: Vec<String> = lows.into_iter().collect();
            let mut heads = FenceHeads::default();
            for (at, low) in lows.iter().enumerate().rev() {
                heads.splice(0..0, Some(low.as_bytes()));
                prop_assert_eq!(heads.0.len(), lows.len() - at);
            }
            if removed < lows.len() {
                lows.remove(removed);
                heads.splice(removed..removed + 1, None);
            }
            for key in keys {
                let expected = lows.iter().rposition(|low| *low <= key);
                prop_assert_eq!(heads.position(&lows, key.as_bytes(), |low| low.as_bytes()), expected);
            }
        }
    }
}
