//! Reads of a pair by its owner: searches, alone and in batches, and what their answers depend on.

use cell_memory::extent::{self, ExtentHeader, ExtentShape, byte_offset};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, SlotIndex, Version};
use cell_tree::{LeafEntry, ReadError, SearchResult};

use crate::error::{PairError, extent_fault, form_fault};
use crate::memory::MemoryObserver;
use crate::pair::Pair;

/// Keys that are searched together at most.
pub const BATCH: usize = 16;

/// What a search found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Located {
    /// The key's entry, if there is one.
    pub entry: Option<LeafEntry>,
    /// The last change of the leaf that was searched.
    pub csn_changed: Csn,
    /// The last removal from that leaf.
    pub csn_removed: Csn,
}

/// What an extent says of its entry.
#[derive(Clone, Copy, Debug)]
pub struct EntryHead {
    /// Its version.
    pub version: Version,
    /// The write that made it.
    pub csn: Csn,
}

impl From<&SearchResult> for Located {
    fn from(found: &SearchResult) -> Located {
        let SearchResult { entry, csn_changed, csn_removed, .. } = *found;
        Located { entry, csn_changed, csn_removed }
    }
}

impl<O: MemoryObserver> Pair<O> {
    /// Searches up to [`BATCH`] keys of one meganode together and asks for their extents.
    ///
    /// # Errors
    /// The tree is damaged.
    pub fn locate_batch(
        &self,
        slot: SlotIndex,
        keys: &[&[u8]],
        located: &mut [Located],
    ) -> Result<(), PairError> {
        let mut found: [Result<SearchResult, ReadError>; BATCH] = [Err(ReadError::NotHere); BATCH];
        self.meganode(slot).search_batch(keys, &mut found[..keys.len()]);
        self.meganodes.count_reads(slot, keys.len() as u64);
        for (located, found) in located.iter_mut().zip(&found[..keys.len()]) {
            *located = Located::from(&(*found)?);
        }
        let entries = located[..keys.len()].iter().filter_map(|located| located.entry);
        let place = |entry: LeafEntry| Some((entry.offset, shape_of(&entry)?));
        extent::prefetch_all(self.memory.extent(), entries.filter_map(place));
        Ok(())
    }

    /// What a search in a meganode found, and asks for its extent.
    pub fn located(&self, slot: SlotIndex, found: &SearchResult) -> Located {
        self.meganodes.count_reads(slot, 1);
        if let Some((entry, shape)) = found.entry.and_then(|entry| Some((entry, shape_of(&entry)?))) {
            extent::prefetch(self.memory.extent(), entry.offset, shape);
        }
        Located::from(found)
    }

    /// The meganode in a slot, to be read.
    #[inline]
    pub fn meganode(&self, slot: SlotIndex) -> cell_tree::Meganode<'_, cell_memory::Region> {
        self.memory.meganode(slot, self.meganodes.role(slot))
    }

    /// What an answer that carries no value depends on: for a miss the last removal of the leaf; for a hit
    /// its last change, and if that is too new, the extent's CSN.
    ///
    /// # Errors
    /// The extent's header cannot be read.
    pub fn search_depends_on(&self, located: &Located) -> Result<Csn, PairError> {
        match &located.entry {
            None if planted(Mutant::SearchMissNotHeld) => Ok(Csn::ZERO),
            None => Ok(located.csn_removed),
            Some(_) if planted(Mutant::SearchHitNotHeld) => Ok(Csn::ZERO),
            Some(_) if located.csn_changed <= self.visible() => Ok(located.csn_changed),
            Some(entry) => Ok(self.head(entry)?.csn),
        }
    }

    /// Copies an entry's value out and checks it.
    ///
    /// # Errors
    /// The extent is damaged.
    pub fn read(&self, entry: &LeafEntry, value: &mut Vec<u8>) -> Result<EntryHead, PairError> {
        value.clear();
        self.append(entry, value)
    }

    /// Appends an entry's value to `out` and checks it; `out` stays as it is if that fails.
    ///
    /// # Errors
    /// The extent is damaged.
    #[inline]
    pub fn append(&self, entry: &LeafEntry, out: &mut Vec<u8>) -> Result<EntryHead, PairError> {
        let shape = shape_of(entry).ok_or_else(|| form_fault(entry))?;
        let mut reader = self.reader.borrow_mut();
        let header = reader
            .append(self.memory.extent(), entry.offset, shape, entry.crc, out)
            .map_err(|error| extent_fault(entry, &error))?;
        Ok(EntryHead { version: header.version(self.id), csn: header.csn })
    }

    /// Reads an entry's header alone.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn head(&self, entry: &LeafEntry) -> Result<EntryHead, PairError> {
        let shape = shape_of(entry).ok_or_else(|| form_fault(entry))?;
        let mut bytes = [0; extent::HEADER_BYTES_MAX as usize];
        let header = &mut bytes[..shape.header_bytes() as usize];
        self.memory.extent().read_bytes(byte_offset(entry.offset), header);
        let header = ExtentHeader::decode(shape, header).ok_or_else(|| form_fault(entry))?;
        Ok(EntryHead { version: header.version(self.id), csn: header.csn })
    }

    /// The version of a key's entry, if it has one.
    ///
    /// # Errors
    /// The tree or the extent is damaged.
    pub fn version_of(&self, slot: SlotIndex, key: &[u8]) -> Result<Option<Version>, PairError> {
        match self.meganode(slot).search(key)?.entry {
            Some(entry) => Ok(Some(self.head(&entry)?.version)),
            None => Ok(None),
        }
    }
}

/// The leaf keeps an extent's shape where `cell_tree` says value length: the length in the low bits, flags
/// above. `None`: no extent has it.
#[must_use]
pub fn shape_of(entry: &LeafEntry) -> Option<ExtentShape> {
    ExtentShape::from_bits(entry.value_len)
}

/// Length of an entry's value in bytes.
#[must_use]
pub fn value_len(entry: &LeafEntry) -> u32 {
    shape_of(entry).map_or(0, ExtentShape::value_bytes)
}
