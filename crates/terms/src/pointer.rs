//! A place in the cluster's memory: region id and offset in 64 bits, never an address.

use std::fmt;

use crate::RegionId;

/// Upper bits: the region id. 16,777,215 regions over a cluster's life.
pub const REGION_ID_BITS: u32 = 24;
/// Lower bits: the byte offset in the region, up to 1 TiB.
pub const OFFSET_BITS: u32 = 40;

const _: () = assert!(REGION_ID_BITS + OFFSET_BITS == 64);

/// A pointer stays good when its region changes hands: it names the region, and the region table says who
/// serves it. Zero is the null pointer (region ids begin at 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer(pub u64);

impl Pointer {
    /// Points nowhere.
    pub const NULL: Pointer = Pointer(0);

    /// Joins region and byte offset.
    ///
    /// # Panics
    /// If the id or the offset do not fit their bits: both come from the region's own geometry.
    #[must_use]
    pub const fn new(region: RegionId, offset: u64) -> Pointer {
        assert!(region.0 < 1 << REGION_ID_BITS && offset < 1 << OFFSET_BITS);
        Pointer(((region.0 as u64) << OFFSET_BITS) | offset)
    }

    /// The region.
    #[must_use]
    pub const fn region(self) -> RegionId {
        RegionId((self.0 >> OFFSET_BITS) as u32)
    }

    /// The byte offset in the region.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.0 & ((1 << OFFSET_BITS) - 1)
    }

    /// Whether this points nowhere.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_null() { f.write_str("null") } else { write!(f, "{}+{:#x}", self.region(), self.offset()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointer_round_trip_keeps_region_and_offset() {
        let pointer = Pointer::new(RegionId((1 << 24) - 1), (1 << 40) - 1);
        assert_eq!(pointer.region(), RegionId((1 << 24) - 1));
        assert_eq!(pointer.offset(), (1 << 40) - 1);
        assert!(!pointer.is_null());
    }
}
