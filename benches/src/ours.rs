//! A pair in the hands of this process and without its logs, written and read as the node writes and reads
//! its own: a bench of tree and extents alone.

use std::ops::Bound;

use cell_cluster::{PairGeometry, Sim};
use cell_memory::{HEADER_BYTES, HugePages, MemoryError, Region};
use cell_pair::{Located, NoRoom, Pair, PairError, PairOptions, WriteError};
use cell_recovery::image::ImageSource;
use cell_recovery::{RecoveryError, RecoveryOptions, RegionSource, WriteCompletion, WriteOutcome};
use cell_terms::{Csn, Durability, OperationNumber, SessionId, SlotIndex};
use cell_test_kit::{OPTIONS, Process, finish};
use cell_tree::{Geometry, KeyRange, Meganode, ReadError, ScanDirection, SearchResult, Slot};
use cell_wal::sim::SimDisk;

use crate::data::{Batch, Packed};

pub use cell_pair::BATCH;

/// The pair's one meganode.
pub(crate) const SLOT: SlotIndex = SlotIndex(0);
/// Regions consist of whole units.
const UNIT_BYTES: u64 = 2 << 20;
/// Memory is granted and populated so much at a time.
const CHUNK_BYTES: u64 = 64 << 20;

/// Why our side of a bench broke off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OursError {
    /// A region could not be made or populated.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The pair could not be started: too little memory, or sizes that do not fit together.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// A search failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The pair is not what it must be.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The slot or the extent region is full.
    #[error("there is no room: {0:?}")]
    NoRoom(NoRoom),
}

impl From<WriteError> for OursError {
    fn from(error: WriteError) -> OursError {
        match error {
            WriteError::NoRoom(room) => OursError::NoRoom(room),
            WriteError::Pair(error) => OursError::Pair(error),
        }
    }
}

/// Sizes of a store.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// A slot, which is the whole tree; a power of two.
    pub slot_bytes: usize,
    /// The extent region.
    pub extent_bytes: u64,
    /// A tree node.
    pub node_bytes: usize,
}

impl Sizes {
    /// Room for so many entries of the paper's data, twice over.
    pub fn for_entries(entries: u64) -> Self {
        let entries = entries.max(10_000);
        let slot_bytes = usize::try_from(entries * 160).unwrap_or(usize::MAX).next_power_of_two();
        Self { slot_bytes, extent_bytes: entries * 400, node_bytes: 1024 }
    }

    /// Of a pair with one slot.
    pub(crate) fn geometry(self) -> PairGeometry {
        let slot_bytes = self.slot_bytes as u64;
        PairGeometry {
            node_region_bytes: (HEADER_BYTES + slot_bytes).next_multiple_of(UNIT_BYTES),
            extent_region_bytes: self.extent_bytes.next_multiple_of(UNIT_BYTES),
            slot_bytes,
            node_bytes: u32::try_from(self.node_bytes).unwrap_or(u32::MAX),
        }
    }
}

/// Bytes that our side takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Footprint {
    /// Tree nodes in use.
    pub tree: u64,
    /// Slabs and blocks of extents.
    pub extents: u64,
    /// Of those, bytes that hold no extent.
    pub extents_wasted: u64,
    /// What the regions have from the kernel, chunks populated ahead included.
    pub populated: u64,
}

/// The pair.
pub struct Ours {
    pair: Pair,
    source: ImageSource,
    /// Of the last write.
    number: OperationNumber,
}

/// A new pair: as a first owner gets it from its recovery, before it has logs.
fn begin(sizes: Sizes, pages: HugePages) -> Result<Pair, OursError> {
    let options = RecoveryOptions { regions: RegionSource::Shared(pages.into()), ..OPTIONS };
    let process = Process::with(&SimDisk::new(1), &Sim::new(1), options);
    let recovered = finish(process.restore(process.create(sizes.geometry()))?)?;
    let options = PairOptions {
        durability: Durability::None,
        reuse_grace_ns: 0,
        grant_chunk_bytes: CHUNK_BYTES,
        split_fill_percent: 100,
        compaction_permille: 0,
    };
    Ok(Pair::new(recovered, &options))
}

impl Ours {
    /// An empty store.
    ///
    /// # Errors
    /// Too little memory, or sizes that do not fit.
    pub fn new(sizes: Sizes, pages: HugePages) -> Result<Self, OursError> {
        let pair = begin(sizes, pages)?;
        let mut ours = Self { source: pair.source(), pair, number: OperationNumber(0) };
        ours.populate()?;
        Ok(ours)
    }

    /// Takes memory ahead of need and gives it its pages; the node has a thread for the latter.
    ///
    /// # Errors
    /// No memory.
    pub fn populate(&mut self) -> Result<(), OursError> {
        self.pair.grow_ahead();
        Ok([&self.source.extent, &self.source.node].into_iter().try_for_each(Region::populate_granted)?)
    }

    /// Gives both regions their memory whole: no write waits for any.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn populate_whole(&self) -> Result<(), OursError> {
        let whole = |region: &Region| region.populate_to(region.spec().bytes);
        Ok([&self.source.extent, &self.source.node].into_iter().try_for_each(whole)?)
    }

    /// Inserts or replaces one entry.
    ///
    /// # Errors
    /// A full region.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), OursError> {
        self.pair.make_room(SLOT, value.len());
        self.number.0 += 1;
        let (session, number) = (SessionId(1), self.number);
        self.pair.put(SLOT, key, value, |version, replaced| {
            let outcome = WriteOutcome::Written { version, replaced };
            WriteCompletion { session, number, floor: number, outcome }
        })?;
        Ok(())
    }

    /// Puts all of a batch.
    ///
    /// # Errors
    /// A full region.
    pub fn insert(&mut self, batch: &Batch) -> Result<(), OursError> {
        for index in 0..batch.keys.len() {
            self.put(batch.keys.get(index), batch.values.get(index))?;
        }
        self.reuse();
        Ok(())
    }

    /// Lets what was replaced be used again; the worker does so in its turns.
    pub fn reuse(&mut self) {
        self.pair.reuse(0);
    }

    /// The node region.
    pub fn node_region(&self) -> &Region {
        &self.source.node
    }

    /// Its sizes and the tree's place in it.
    pub fn place(&self) -> (Geometry, Slot) {
        (self.source.geometry, Slot { region: self.source.node.spec().id, index: SLOT })
    }

    /// A reader of this store.
    pub fn reader(&self) -> OursReader<'_> {
        OursReader { pair: &self.pair }
    }

    /// How many levels the tree has.
    pub fn height(&self) -> u8 {
        self.pair.meganode_figures(SLOT).height
    }

    /// What it takes.
    pub fn footprint(&self) -> Footprint {
        let figures = self.pair.figures();
        Footprint {
            tree: figures.tree_nodes * figures.tree_node_bytes,
            extents: figures.extents_allocated_bytes,
            extents_wasted: figures.extents_allocated_bytes - figures.extents_live_bytes,
            populated: figures.populated_bytes,
        }
    }
}

/// Reads a store as its owner does.
pub struct OursReader<'a> {
    pair: &'a Pair,
}

impl OursReader<'_> {
    fn tree(&self) -> Meganode<'_, Region> {
        self.pair.meganode(SLOT)
    }

    /// How many of the keys `[first, last)` are there; one search at a time.
    ///
    /// # Errors
    /// A search that failed.
    pub fn search(&self, keys: &Packed, first: usize, last: usize) -> Result<u64, OursError> {
        let tree = self.tree();
        let mut found = 0;
        for index in first..last {
            found += u64::from(tree.search(keys.get(index))?.entry.is_some());
        }
        Ok(found)
    }

    /// Copies each value of the keys `[first, last)` out, checked; returns how many bytes.
    ///
    /// # Errors
    /// A search or an extent that failed.
    pub fn get(&self, keys: &Packed, first: usize, last: usize, out: &mut Vec<u8>) -> Result<u64, OursError> {
        let tree = self.tree();
        let mut bytes = 0;
        for index in first..last {
            if let Some(entry) = tree.search(keys.get(index))?.entry {
                self.pair.read(&entry, out)?;
                bytes += out.len() as u64;
            }
        }
        Ok(bytes)
    }

    /// As [`Self::search`], with [`BATCH`] keys in hand, as a pipelined server has them.
    ///
    /// # Errors
    /// A search that failed.
    pub fn search_batched(&self, keys: &Packed, first: usize, last: usize) -> Result<u64, OursError> {
        let tree = self.tree();
        let mut answers: [Result<SearchResult, ReadError>; BATCH] = [Err(ReadError::NotHere); BATCH];
        let mut found = 0;
        for start in (first..last).step_by(BATCH) {
            let count = (last - start).min(BATCH);
            tree.search_batch(&in_hand(keys, start, count)[..count], &mut answers);
            for answer in &answers[..count] {
                found += u64::from((*answer)?.entry.is_some());
            }
        }
        Ok(found)
    }

    /// As [`Self::get`], with [`BATCH`] keys in hand: searched together, their extents fetched together.
    ///
    /// # Errors
    /// A search or an extent that failed.
    pub fn get_batched(
        &self,
        keys: &Packed,
        first: usize,
        last: usize,
        out: &mut Vec<u8>,
    ) -> Result<u64, OursError> {
        let mut located = [Located::default(); BATCH];
        let mut bytes = 0;
        for start in (first..last).step_by(BATCH) {
            let count = (last - start).min(BATCH);
            self.pair.locate_batch(SLOT, &in_hand(keys, start, count)[..count], &mut located)?;
            for entry in located[..count].iter().filter_map(|located| located.entry) {
                self.pair.read(&entry, out)?;
                bytes += out.len() as u64;
            }
        }
        Ok(bytes)
    }

    /// From each of the keys `[first, last)` on copies up to `limit` entries; returns how many bytes.
    ///
    /// # Errors
    /// A leaf or an extent that could not be read.
    pub fn scan(
        &self,
        keys: &Packed,
        first: usize,
        last: usize,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<u64, OursError> {
        let mut bytes = 0;
        for index in first..last {
            out.clear();
            let (mut left, mut leaves) = (limit, usize::MAX);
            let range = KeyRange {
                start: Bound::Included(keys.get(index)),
                end: Bound::Unbounded,
                direction: ScanDirection::Forward,
            };
            self.pair.scan(SLOT, &range, limit, &mut leaves, |found| {
                if left == 0 {
                    return Ok::<Option<Csn>, PairError>(None);
                }
                left -= 1;
                found.append_key(out);
                Ok(Some(self.pair.append(&found.entry(), out)?.csn))
            })?;
            bytes += out.len() as u64;
        }
        Ok(bytes)
    }
}

/// The `count` keys from `first` on.
#[inline]
fn in_hand(keys: &Packed, first: usize, count: usize) -> [&[u8]; BATCH] {
    let mut in_hand: [&[u8]; BATCH] = [&[]; BATCH];
    for (place, index) in in_hand.iter_mut().zip(first..first + count) {
        *place = keys.get(index);
    }
    in_hand
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Choice, Dataset};
    use crate::rival::{Rival, Standard};

    #[test]
    fn ours_same_data_agrees_with_the_standard_map() {
        let data = Dataset { entries: 20_000, seed: 5 };
        let mut ours = Ours::new(Sizes::for_entries(data.entries), HugePages::Auto).unwrap();
        let mut standard = Standard::new();
        for first in (0..data.entries).step_by(5_000) {
            let batch = data.batch(first, first + 5_000);
            ours.populate().unwrap();
            ours.insert(&batch).unwrap();
            standard.insert(&batch);
        }
        let reader = ours.reader();
        let mut out = Vec::new();
        for choice in [Choice::Uniform, Choice::Zipf, Choice::Missing] {
            let probes = data.probes(choice, 2_000, 1);
            let keys = || (0..probes.len()).map(|index| probes.get(index));
            assert_eq!(reader.search(&probes, 0, probes.len()).unwrap(), standard.search(&mut keys()));
            let bytes = standard.get(&mut keys(), &mut out);
            assert_eq!(reader.get(&probes, 0, probes.len(), &mut out).unwrap(), bytes);
            assert_eq!(reader.get_batched(&probes, 0, probes.len(), &mut out).unwrap(), bytes);
            let found = reader.search(&probes, 1, probes.len()).unwrap();
            assert_eq!(reader.search_batched(&probes, 1, probes.len()).unwrap(), found);
            let bytes = standard.scan(&mut keys(), 50, &mut out);
            assert_eq!(reader.scan(&probes, 0, probes.len(), 50, &mut out).unwrap(), bytes);
        }
        let footprint = ours.footprint();
        assert!(footprint.tree + footprint.extents < 2 * data.raw_bytes());
    }
}
