//! A pair without its log: regions, tree and extents, driven as the node drives them (`crates/pair/`): a
//! write is planned, its extent encoded, placed and stored, then each change applied under a CSN of its own;
//! a read searches, validates, copies the extent out of live memory and checks its CRC-64.

use cell_memory::extent::{self, ExtentEncoder, ExtentHeader, ExtentReader, ExtentShape};
use cell_memory::{
    ExtentAllocator, ExtentError, HEADER_BYTES, HugePages, MemoryError, PairWriter, Region, RegionPopulator,
    RegionSpec,
};
use cell_terms::{Csn, Epoch, PairId, SlotIndex};
use cell_tree::{
    Change, Geometry, GeometryError, Image, LeafEntry, LeafSnapshot, Meganode, NodeIndex, Plan, PlanError,
    ReadError, SearchResult, Slot, SlotAllocator, apply, empty_root, plan_ahead, plan_put,
};

use crate::data::{Batch, Packed};

/// Keys that a pipelined server has in hand at once, as `node` gathers them.
pub const BATCH: usize = 16;

const PAIR: PairId = PairId(1);
const EPOCH: Epoch = Epoch(1);
/// Memory is given to regions this far ahead of their allocators, as the node does.
const CHUNK_BYTES: u64 = 64 << 20;

/// Why our side of a bench broke off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OursError {
    /// A region could not be made or populated.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The sizes do not fit together.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A write could not be planned: the slot is full.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A search failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An extent was not what its leaf said.
    #[error(transparent)]
    Extent(#[from] ExtentError),
    /// The extent region is full.
    #[error("the extent region is full")]
    ExtentsFull,
    /// A leaf's value length has undefined flags.
    #[error("a leaf names an extent of no possible shape")]
    Shape,
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

/// A pair's memory and what writes it.
pub struct Ours {
    node: Region,
    extent: Region,
    writer: PairWriter,
    geometry: Geometry,
    slot: Slot,
    nodes: SlotAllocator,
    extents: ExtentAllocator,
    encoder: ExtentEncoder,
    plan: Plan,
    csn: Csn,
    populators: [RegionPopulator; 2],
}

impl Ours {
    /// An empty store.
    ///
    /// # Errors
    /// Too little memory, or sizes that do not fit.
    pub fn new(sizes: Sizes, pages: HugePages) -> Result<Self, OursError> {
        let node_bytes = u32::try_from(sizes.node_bytes).unwrap_or(u32::MAX);
        let slot_bytes = sizes.slot_bytes as u64;
        let node = RegionSpec::node(PAIR, EPOCH, slot_bytes, slot_bytes, node_bytes)?;
        let extent = RegionSpec::extent(PAIR, EPOCH, sizes.extent_bytes)?;
        let header_bytes = usize::try_from(HEADER_BYTES).unwrap_or(usize::MAX);
        let geometry = Geometry::new(sizes.node_bytes, sizes.slot_bytes, header_bytes)?;
        let (node, node_writer) = Region::create(&node, pages)?;
        let (extent, extent_writer) = Region::create(&extent, pages)?;
        let populators = [&node, &extent].map(|region| RegionPopulator::new(region.clone(), CHUNK_BYTES));
        let mut ours = Self {
            slot: Slot { region: PAIR.node_region(), index: SlotIndex(0) },
            nodes: SlotAllocator::new(geometry.nodes()),
            extents: ExtentAllocator::new(extent.spec().bytes),
            encoder: ExtentEncoder::new(),
            plan: Plan::new(),
            csn: Csn::ZERO,
            writer: PairWriter::new(node_writer, extent_writer),
            populators,
            node,
            extent,
            geometry,
        };
        ours.populate()?;
        ours.csn = ours.csn.next();
        let root = empty_root(geometry);
        let fill = Change::Fill { node: NodeIndex::ROOT, image: Image::new(&root) };
        apply(&mut ours.writer.node, geometry, ours.slot, &fill, ours.csn);
        Ok(ours)
    }

    /// Gives memory to the regions ahead of their allocators; the node has a thread for it.
    ///
    /// # Errors
    /// No memory.
    pub fn populate(&self) -> Result<(), OursError> {
        let tree_bytes =
            HEADER_BYTES + u64::from(self.nodes.high_water().0) * self.geometry.node_bytes() as u64;
        for (populator, high_water) in self.populators.iter().zip([tree_bytes, self.extents.high_water()]) {
            populator.populate_ahead(0, high_water)?;
        }
        Ok(())
    }

    /// Inserts or replaces one entry.
    ///
    /// # Errors
    /// A full region.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), OursError> {
        let csn = self.csn.next();
        let tree = Meganode::new(&self.node, self.geometry, self.slot);
        plan_ahead(&tree, key, &mut self.plan)?;
        let header = ExtentHeader { epoch: EPOCH, csn, ..ExtentHeader::default() };
        let shape = header.shape(value.len())?;
        let offset = self.extents.allocate(shape.extent_bytes()).ok_or(OursError::ExtentsFull)?;
        extent::prefetch(&self.extent, offset, shape);
        let encoded = self.encoder.encode(&header, value)?;
        let entry = LeafEntry { offset, value_len: encoded.shape.bits(), crc: encoded.checksum };
        plan_put(&tree, &mut self.nodes, key, entry, &mut self.plan)?;
        extent::store(&mut self.writer.extent, offset, encoded.bytes);
        self.csn = csn;
        for change in self.plan.changes() {
            self.csn = self.csn.next();
            apply(&mut self.writer.node, self.geometry, self.slot, &change, self.csn);
        }
        self.plan.commit(&mut self.nodes);
        if let Some(old) = self.plan.old() {
            let shape = ExtentShape::from_bits(old.value_len).ok_or(OursError::Shape)?;
            self.extents.free(old.offset, shape.extent_bytes());
        }
        Ok(())
    }

    /// Puts all of a batch.
    ///
    /// # Errors
    /// A full region.
    pub fn insert(&mut self, batch: &Batch) -> Result<(), OursError> {
        (0..batch.keys.len()).try_for_each(|index| self.put(batch.keys.get(index), batch.values.get(index)))
    }

    /// The tree, to be read.
    #[inline]
    pub fn tree(&self) -> Meganode<'_, Region> {
        Meganode::new(&self.node, self.geometry, self.slot)
    }

    /// The node region.
    pub fn node_region(&self) -> &Region {
        &self.node
    }

    /// Its sizes and the tree's place in it.
    pub fn place(&self) -> (Geometry, Slot) {
        (self.geometry, self.slot)
    }

    /// A reader of this store.
    pub fn reader(&self) -> OursReader<'_> {
        OursReader {
            tree: self.tree(),
            extent: &self.extent,
            extents: ExtentReader::new(),
            leaves: [LeafSnapshot::new(), LeafSnapshot::new()],
        }
    }

    /// How many levels the tree has.
    pub fn height(&self) -> u8 {
        self.nodes.height()
    }

    /// What it takes.
    pub fn footprint(&self) -> Footprint {
        let stats = self.extents.stats();
        Footprint {
            tree: self.nodes.nodes_used() as u64 * self.geometry.node_bytes() as u64,
            extents: stats.allocated_bytes,
            extents_wasted: stats.allocated_bytes - stats.live_bytes,
            populated: self.node.populated_bytes() + self.extent.populated_bytes(),
        }
    }
}

/// Reads a store, as any thread may.
pub struct OursReader<'a> {
    tree: Meganode<'a, Region>,
    extent: &'a Region,
    extents: ExtentReader,
    leaves: [LeafSnapshot; 2],
}

impl OursReader<'_> {
    /// How many of the keys `[first, last)` are there; one search at a time.
    ///
    /// # Errors
    /// A search that failed.
    pub fn search(&self, keys: &Packed, first: usize, last: usize) -> Result<u64, OursError> {
        let mut found = 0;
        for index in first..last {
            found += u64::from(self.tree.search(keys.get(index))?.entry.is_some());
        }
        Ok(found)
    }

    /// Copies each value of the keys `[first, last)` out, checked; returns how many bytes.
    ///
    /// # Errors
    /// A search or an extent that failed.
    pub fn get(
        &mut self,
        keys: &Packed,
        first: usize,
        last: usize,
        out: &mut Vec<u8>,
    ) -> Result<u64, OursError> {
        let mut bytes = 0;
        for index in first..last {
            if let Some(entry) = self.tree.search(keys.get(index))?.entry {
                out.clear();
                self.copy(&entry, out)?;
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
        let mut found = 0;
        for start in (first..last).step_by(BATCH) {
            let answers = self.answers(keys, start, last.min(start + BATCH));
            for answer in &answers[..last.min(start + BATCH) - start] {
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
        &mut self,
        keys: &Packed,
        first: usize,
        last: usize,
        out: &mut Vec<u8>,
    ) -> Result<u64, OursError> {
        let mut bytes = 0;
        for start in (first..last).step_by(BATCH) {
            let count = last.min(start + BATCH) - start;
            let answers = self.answers(keys, start, start + count);
            for answer in &answers[..count] {
                (*answer)?;
            }
            self.prefetch(answers[..count].iter().filter_map(|answer| answer.ok()?.entry));
            for answer in &answers[..count] {
                if let Some(entry) = (*answer)?.entry {
                    out.clear();
                    self.copy(&entry, out)?;
                    bytes += out.len() as u64;
                }
            }
        }
        Ok(bytes)
    }

    /// From each of the keys `[first, last)` on copies up to `limit` entries, leaf by leaf; returns how many
    /// bytes.
    ///
    /// # Errors
    /// A leaf or an extent that could not be read.
    pub fn scan(
        &mut self,
        keys: &Packed,
        first: usize,
        last: usize,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<u64, OursError> {
        let mut bytes = 0;
        let mut leaves = std::mem::take(&mut self.leaves);
        for index in first..last {
            out.clear();
            self.scan_from(keys.get(index), limit, &mut leaves, out)?;
            bytes += out.len() as u64;
        }
        self.leaves = leaves;
        Ok(bytes)
    }

    fn scan_from(
        &mut self,
        key: &[u8],
        limit: usize,
        [leaf, next]: &mut [LeafSnapshot; 2],
        out: &mut Vec<u8>,
    ) -> Result<(), OursError> {
        self.tree.leaf(key, leaf)?;
        self.tree.prefetch_after(leaf);
        let mut position = leaf.position(key);
        let mut end = leaf.len().min(position + limit);
        let mut left = limit - (end - position);
        self.prefetch((position..end).map(|index| leaf.entry(index)));
        loop {
            // The extents of the next leaf are asked for before those of this one are copied.
            let more = left > 0 && self.tree.leaf_ahead(leaf, next)?;
            let next_end = if more { next.len().min(left) } else { 0 };
            left -= next_end;
            if left > 0 && more {
                self.tree.prefetch_after(next);
            }
            self.prefetch((0..next_end).map(|index| next.entry(index)));
            for index in position..end {
                leaf.append_key(index, out);
                self.copy(&leaf.entry(index), out)?;
            }
            if !more {
                return Ok(());
            }
            std::mem::swap(leaf, next);
            (position, end) = (0, next_end);
        }
    }

    #[inline]
    fn answers(&self, keys: &Packed, first: usize, last: usize) -> [Result<SearchResult, ReadError>; BATCH] {
        let mut in_hand: [&[u8]; BATCH] = [&[]; BATCH];
        for (place, index) in in_hand.iter_mut().zip(first..last) {
            *place = keys.get(index);
        }
        let mut answers = [Err(ReadError::NotHere); BATCH];
        self.tree.search_batch(&in_hand[..last - first], &mut answers);
        answers
    }

    #[inline]
    fn prefetch(&self, entries: impl Iterator<Item = LeafEntry> + Clone) {
        let place = |entry: LeafEntry| Some((entry.offset, ExtentShape::from_bits(entry.value_len)?));
        extent::prefetch_all(self.extent, entries.filter_map(place));
    }

    fn copy(&mut self, entry: &LeafEntry, out: &mut Vec<u8>) -> Result<(), OursError> {
        let shape = ExtentShape::from_bits(entry.value_len).ok_or(OursError::Shape)?;
        self.extents.append(self.extent, entry.offset, shape, entry.crc, out)?;
        Ok(())
    }
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
        let mut reader = ours.reader();
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
