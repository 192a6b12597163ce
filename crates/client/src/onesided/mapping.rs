//! Regions of a peer that this process has mapped (`shm`), and when the fabric is asked for them.
//!
//! A fabric that maps regions does so when one is first read. A search in place needs the node region of each
//! pair on its way, and the extent region of the pair that has the entry. No more may ever be mapped: nothing
//! reads the extents of a pair without entries, as the one with the root may be.

use cell_fabric::MappedRegion;

/// Reads after which a fabric that has nothing mapped is asked again whether it has.
const MAPPING_EVERY_MAX: u32 = 4_096;

/// One of a pair's two regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairRegion {
    Nodes,
    Extents,
}

/// When the fabric is asked again which regions of a connection are mapped: after the first read of one that
/// is not known to be, and after twice as many each time that none was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    left: u32,
    every: u32,
}

impl Default for Mapping {
    fn default() -> Mapping {
        Mapping { left: 1, every: 1 }
    }
}

impl Mapping {
    /// A read of a region that is not known to be mapped has come back. Whether the fabric is to be asked.
    pub(super) fn is_due_after_read(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// The fabric was asked, and had some mapped that were not known to be, or none.
    pub(super) fn asked(&mut self, found: bool) {
        if found {
            *self = Mapping::default();
        } else if self.left == 0 {
            self.every = self.every.saturating_mul(2).min(MAPPING_EVERY_MAX);
            self.left = self.every;
        }
    }
}

/// A pair's node region, mapped, and its extent region if that is.
#[derive(Clone, Debug)]
pub(crate) struct MappedPair {
    pub(super) node: MappedRegion,
    pub(super) extent: Option<MappedRegion>,
}

impl MappedPair {
    /// Whether the registrations of all that is mapped lasted when everything before this call was loaded.
    pub(super) fn lasts(&self) -> bool {
        self.node.lasts() && self.extent.as_ref().is_none_or(MappedRegion::lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many of so many reads the fabric was asked, `finds` being whether it had something mapped.
    fn asked_after(reads: u32, mut finds: impl FnMut(u32) -> bool) -> Vec<u32> {
        let mut mapping = Mapping::default();
        let mut asked = Vec::new();
        for read in 1..=reads {
            if mapping.is_due_after_read() {
                asked.push(read);
                mapping.asked(finds(read));
            }
        }
        asked
    }

    #[test]
    fn fabric_that_has_nothing_mapped_is_asked_ever_more_seldom() {
        let asked = asked_after(20_000, |_| false);
        let expected = (1..=13).map(|times| 2_u32.pow(times) - 1).chain([12_287, 16_383]);
        assert_eq!(asked, expected.collect::<Vec<u32>>());
    }

    #[test]
    fn fabric_that_had_something_mapped_is_asked_after_the_next_read() {
        assert_eq!(asked_after(5, |_| true), [1, 2, 3, 4, 5]);
        assert_eq!(asked_after(10, |read| read == 7), [1, 3, 7, 8, 10]);
        // Something was found on account of another connection's read.
        let mut mapping = Mapping::default();
        assert!(mapping.is_due_after_read());
        mapping.asked(false);
        mapping.asked(true);
        assert!(mapping.is_due_after_read());
    }
}
