//! Regions of a peer that this process has mapped (`shm`), and when the fabric is asked for them.

use cell_fabric::MappedRegion;

/// Operations after which a fabric that has nothing mapped is asked again whether it has.
const MAPPING_EVERY_MAX: u32 = 4_096;

/// When the fabric is asked again which regions are mapped: after twice as many operations each time that
/// none was.
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
    pub(super) fn is_due(self) -> bool {
        self.left == 0
    }

    /// An operation was started one-sided, or could not be.
    pub(super) fn started(&mut self, one_sided: bool) {
        self.left -= u32::from(one_sided && self.left > 0);
    }

    /// The fabric was asked, and had some mapped or not.
    pub(super) fn asked(&mut self, found: bool) {
        self.every = if found { 1 } else { self.every.saturating_mul(2).min(MAPPING_EVERY_MAX) };
        self.left = self.every;
    }
}

/// A pair's regions, mapped.
#[derive(Clone, Debug)]
pub(crate) struct MappedPair {
    pub(super) node: MappedRegion,
    pub(super) extent: MappedRegion,
}

impl MappedPair {
    /// Whether both registrations lasted when everything before this call was loaded.
    pub(super) fn lasts(&self) -> bool {
        self.node.lasts() && self.extent.lasts()
    }
}
