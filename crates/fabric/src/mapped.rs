//! A peer's region that this process has mapped: where one-sided reads are loads, a reader may as well look
//! at the memory in place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cell_memory::Region;

use crate::registry::LedgerView;
use crate::remote_access::{ReadFailure, RegionKey, RemoteRead};

/// A region of the peer, mapped for reading, and the word that says whether its registration lasts.
///
/// What is looked at in place is looked at by the rules of every other reader: versions, fences, checksums;
/// and it counts only if [`MappedRegion::lasts`] says so *after* the last load.
#[derive(Clone, Debug)]
pub struct MappedRegion {
    region: Region,
    word: Word,
}

/// Where it is recorded that a registration has ended.
#[derive(Clone, Debug)]
pub(crate) enum Word {
    /// In the owner's ledger.
    Ledger(Arc<LedgerView>, u32, RegionKey),
    /// In this process.
    Local(Arc<AtomicBool>),
}

impl MappedRegion {
    pub(crate) fn new(region: Region, word: Word) -> MappedRegion {
        MappedRegion { region, word }
    }

    /// A region of this very process, registered until `ended` is set: for simulated networks and tests.
    #[must_use]
    pub fn local(region: Region, ended: Arc<AtomicBool>) -> MappedRegion {
        MappedRegion::new(region, Word::Local(ended))
    }

    /// The memory.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Does a read of this region here and now, into `words`, with the order of loads that a read has.
    ///
    /// # Errors
    /// [`ReadFailure::RangeInvalid`]; [`ReadFailure::KeyUnknown`] if the registration has ended.
    pub fn read(&self, read: &RemoteRead, words: &mut Vec<u64>) -> Result<(), ReadFailure> {
        read.load(&self.region, words)?;
        if self.lasts() { Ok(()) } else { Err(ReadFailure::KeyUnknown) }
    }

    /// Whether the registration lasted when everything before this call was loaded.
    #[inline]
    #[must_use]
    pub fn lasts(&self) -> bool {
        match &self.word {
            Word::Ledger(ledger, slot, key) => ledger.lasts(*slot, *key),
            Word::Local(ended) => !ended.load(Ordering::Acquire),
        }
    }
}
