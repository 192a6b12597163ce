//! A peer's region that this process has mapped: where one-sided reads are loads, a reader may as well look
//! at the memory in place.

use std::sync::Arc;

use cell_memory::Region;

use crate::one_sided::RegionKey;
use crate::registry::LedgerView;

/// A region of the peer, mapped for reading, and the word that tells whether its registration lasts.
///
/// What is looked at in place is looked at by the rules of every other reader: versions, fences, checksums;
/// and it counts only if [`MappedRegion::lasts`] says so *after* the last load.
#[derive(Clone, Debug)]
pub struct MappedRegion {
    region: Region,
    key: RegionKey,
    ledger: Arc<LedgerView>,
    slot: u32,
}

impl MappedRegion {
    pub(crate) fn new(
        region: Region,
        key: RegionKey,
        (ledger, slot): (Arc<LedgerView>, u32),
    ) -> MappedRegion {
        MappedRegion { region, key, ledger, slot }
    }

    /// The memory.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Whether the registration lasted when everything before this call was loaded.
    #[inline]
    #[must_use]
    pub fn lasts(&self) -> bool {
        self.ledger.lasts(self.slot, self.key)
    }
}
