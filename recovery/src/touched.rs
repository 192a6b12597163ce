//! Which parts of a region something lies in: by what it is granted memory, and populated.

use std::ops::Range;

/// What regions are granted memory by.
pub(crate) const UNIT_BYTES: u64 = 2 << 20;

/// The units of a region that something lies in: a bit each.
#[derive(Debug)]
pub(crate) struct TouchedUnits {
    bits: Vec<u64>,
    /// All of the region's, and those that were touched.
    units: u64,
    touched: u64,
}

impl TouchedUnits {
    /// Of a region of so many bytes: none.
    pub(crate) fn of(region_bytes: u64) -> TouchedUnits {
        let units = region_bytes.div_ceil(UNIT_BYTES);
        let words = usize::try_from(units.div_ceil(u64::from(u64::BITS))).unwrap_or(0);
        TouchedUnits { bits: vec![0; words], units, touched: 0 }
    }

    /// Of a region of so many bytes: the first one, in which its header is.
    pub(crate) fn with_header(region_bytes: u64) -> TouchedUnits {
        let mut touched = TouchedUnits::of(region_bytes);
        touched.touch(0);
        touched
    }

    /// Notes one. Whether it is the region's, and nobody has touched it before.
    #[inline]
    pub(crate) fn touch(&mut self, unit: u64) -> bool {
        let word = usize::try_from(unit / u64::from(u64::BITS)).ok().and_then(|at| self.bits.get_mut(at));
        let Some(word) = word.filter(|_| unit < self.units) else { return false };
        let bit = 1_u64 << (unit % u64::from(u64::BITS));
        let is_new = *word & bit == 0;
        *word |= bit;
        self.touched += u64::from(is_new);
        is_new
    }

    /// Notes those of a range of bytes. How many there are with them.
    pub(crate) fn touch_all(&mut self, bytes: Range<u64>) -> u64 {
        for unit in units_of(bytes) {
            self.touch(unit);
        }
        self.touched
    }
}

/// The units that a range of bytes lies in.
#[inline]
pub(crate) fn units_of(bytes: Range<u64>) -> Range<u64> {
    bytes.start / UNIT_BYTES..bytes.end.div_ceil(UNIT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_counts_once_and_the_headers_always() {
        let mut touched = TouchedUnits::with_header(100 * UNIT_BYTES);
        assert_eq!(touched.touch_all(4096..8192), 1);
        assert_eq!(touched.touch_all(2 * UNIT_BYTES - 16..2 * UNIT_BYTES), 2);
        assert_eq!(touched.touch_all(2 * UNIT_BYTES - 16..2 * UNIT_BYTES + 16), 3);
        assert_eq!(touched.touch_all(7 * UNIT_BYTES..9 * UNIT_BYTES), 5);
        assert_eq!(touched.touch_all(8 * UNIT_BYTES..8 * UNIT_BYTES + 16), 5);
        assert_eq!(touched.touch_all(62 * UNIT_BYTES..66 * UNIT_BYTES), 9, "over a word's end");
    }

    /// The last one may be a part of one.
    #[test]
    fn each_unit_of_a_region_is_new_once_and_none_lies_beyond_it() {
        for units in [1, 63, 64, 65, 200] {
            for bytes in [units * UNIT_BYTES, units * UNIT_BYTES - UNIT_BYTES + 4096] {
                let mut touched = TouchedUnits::of(bytes);
                assert!((0..units).all(|unit| touched.touch(unit)), "{bytes}");
                assert!(!(0..units).any(|unit| touched.touch(unit)), "{bytes}");
                assert!(!touched.touch(units) && !touched.touch(u64::MAX), "{bytes}");
                assert_eq!(touched.touch_all(0..bytes), units);
            }
        }
    }
}
