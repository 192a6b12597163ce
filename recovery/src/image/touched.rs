//! How much memory the extents of an image take.

use std::collections::BTreeSet;
use std::ops::Range;

/// What regions are granted memory by.
pub(crate) const UNIT_BYTES: u64 = 2 << 20;

/// The units of a region that something lies in; the region's header is in the first one.
#[derive(Debug)]
pub(super) struct TouchedUnits(BTreeSet<u64>);

impl TouchedUnits {
    pub(super) fn new() -> TouchedUnits {
        TouchedUnits(BTreeSet::from([0]))
    }

    /// Notes a range of bytes. How many units there are with it.
    pub(super) fn touch(&mut self, range: Range<u64>) -> u64 {
        self.0.extend(range.start / UNIT_BYTES..range.end.div_ceil(UNIT_BYTES));
        self.0.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touch_counts_each_unit_once_and_the_headers_always() {
        let mut touched = TouchedUnits::new();
        assert_eq!(touched.touch(4096..8192), 1);
        assert_eq!(touched.touch(2 * UNIT_BYTES - 16..2 * UNIT_BYTES), 2);
        assert_eq!(touched.touch(2 * UNIT_BYTES - 16..2 * UNIT_BYTES + 16), 3);
        assert_eq!(touched.touch(7 * UNIT_BYTES..9 * UNIT_BYTES), 5);
        assert_eq!(touched.touch(8 * UNIT_BYTES..8 * UNIT_BYTES + 16), 5);
    }
}
