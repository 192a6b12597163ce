//! Applying records and image blocks to a pair's fresh memory.
//!
//! Tree changes name the node, extent records the offset: nothing is searched, and what is needed next is
//! asked of memory ahead. Applying anything twice is applying it once: a tree node skips what it has by its
//! CSN, an extent is written over with the same bytes, a completion replaces itself.

use std::collections::BTreeSet;
use std::ops::Range;

use cell_memory::extent::{self, ExtentShape, byte_offset};
use cell_memory::{HEADER_BYTES, Region, RegionSpec, RegionWriter};
use cell_terms::mutant::planted;
use cell_terms::{Csn, Epoch, ExtentOffset, RegionId, RegionKind, Root, SlotIndex, Words};
use cell_tree::{
    Change, Geometry, Image, NodeIndex, NodeRef, Replayed, Slot, TreeNodeState, apply, prefetch, replay, show,
};

use crate::completion::CompletionTable;
use crate::content;
use crate::error::{ContentFault, RecoveryError};
use crate::first::FirstContent;
use crate::lane::Applier;
use crate::mutant::{self, Mutant};
use crate::record::{ExtentRecord, NodeRecord};
use crate::split::{SlotUse, SplitRecord, SplitTable, TargetState};
use crate::touched::{TouchedUnits, UNIT_BYTES, units_of};

/// A chunk is handed on once it has so many bytes.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// How many records ahead memory is asked for.
const AHEAD: usize = 8;

/// Records of one log, gathered over batches.
#[derive(Default)]
pub(crate) struct Chunk {
    /// The epoch whose log they are of.
    pub(crate) epoch: Epoch,
    bytes: Vec<u8>,
    records: Vec<(Csn, Range<usize>)>,
}

impl Chunk {
    pub(crate) fn push(&mut self, csn: Csn, payload: &[u8]) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.records.push((csn, begin..self.bytes.len()));
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= CHUNK_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }

    fn iter(&self) -> impl Iterator<Item = (Csn, &[u8])> {
        self.records.iter().map(|(csn, range)| (*csn, &self.bytes[range.clone()]))
    }
}

/// A block of an image.
pub(crate) struct ImageBlock {
    pub(crate) number: u32,
    pub(crate) slot: SlotIndex,
    pub(crate) bytes: Vec<u8>,
}

/// What a lane is given.
pub(crate) enum Work {
    Records(Chunk),
    Image(ImageBlock),
    /// What an image holds beside its items.
    Kept(Box<Kept>),
}

/// What an image holds beside its items.
pub(crate) struct Kept {
    pub(crate) completions: CompletionTable,
    pub(crate) splits: SplitTable,
    pub(crate) root: Root,
}

impl Work {
    /// A chunk to fill, out of spent work if it was one.
    pub(crate) fn reuse(spent: Option<Work>) -> Chunk {
        match spent {
            Some(Work::Records(mut chunk)) => {
                chunk.clear();
                chunk
            }
            _ => Chunk::default(),
        }
    }
}

/// Gives memory to the parts of a region that are about to be written, a large piece at a time: one call of
/// the system in place of hundreds of page faults.
struct Populated {
    region: Region,
    /// Those that memory was asked for.
    units: TouchedUnits,
}

impl Populated {
    fn new(region: Region) -> Populated {
        Populated { units: TouchedUnits::of(region.spec().bytes), region }
    }

    /// Sees to it that `begin..end` has memory. Both are inside the region.
    #[inline]
    fn touch(&mut self, begin: u64, end: u64) -> Result<(), RecoveryError> {
        for unit in units_of(begin..end) {
            if self.units.touch(unit) {
                self.populate(unit)?;
            }
        }
        Ok(())
    }

    #[cold]
    fn populate(&self, unit: u64) -> Result<(), RecoveryError> {
        let bytes = self.region.spec().bytes;
        let end = ((unit + 1) * UNIT_BYTES).min(bytes);
        let done = self.region.populate_ready(unit * UNIT_BYTES..end);
        done.map_err(|source| RecoveryError::Memory { bytes, source })
    }
}

/// The image that blocks come from: nothing in it is newer than `csn_max`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageSource {
    pub(crate) path: Box<str>,
    pub(crate) csn_max: Csn,
}

impl ImageSource {
    fn refuse(&self, why: ContentFault) -> RecoveryError {
        RecoveryError::Content { path: self.path.clone(), why }
    }

    fn check(&self, csn: Csn) -> Result<(), RecoveryError> {
        let is_older = csn <= self.csn_max || planted(cell_terms::mutant::Mutant::ImageNewerTaken);
        if is_older { Ok(()) } else { Err(self.refuse(ContentFault::Newer(csn))) }
    }
}

/// What was filled of a slot.
#[derive(Clone, Copy, Default)]
struct SlotFilled {
    /// One above the highest tree node that was ever filled: behind it the slot has not even got memory.
    nodes_end: NodeIndex,
    /// Whether a hidden tree node was among them: then the end of the replay decides what all are.
    hidden: bool,
}

/// The node region's part.
pub(crate) struct NodeApplier {
    pub(crate) writer: RegionWriter,
    pub(crate) completions: CompletionTable,
    pub(crate) splits: SplitTable,
    geometry: Geometry,
    region: RegionId,
    slots: Vec<SlotFilled>,
    image: ImageSource,
    /// Changed, but not there: the image was taken when they were free already, so a later record frees or
    /// fills them.
    missing: BTreeSet<(SlotIndex, NodeIndex)>,
    populated: Populated,
    words: Vec<u64>,
}

impl NodeApplier {
    /// Over fresh memory; `splits` is what the table says before the first record.
    pub(crate) fn new(
        writer: RegionWriter,
        geometry: Geometry,
        image: ImageSource,
        splits: SplitTable,
    ) -> NodeApplier {
        NodeApplier {
            completions: CompletionTable::default(),
            splits,
            geometry,
            region: writer.region().spec().id,
            slots: vec![SlotFilled::default(); slots_of(writer.region().spec())],
            image,
            missing: BTreeSet::new(),
            populated: Populated::new(writer.region().clone()),
            words: vec![0; geometry.node_words()],
            writer,
        }
    }

    /// Makes what the pair begins with, older than every record. It is not logged.
    pub(crate) fn begin(&mut self, first: &FirstContent) -> Result<(), RecoveryError> {
        let mut failed = None;
        let built = first.build(|slot, change| {
            if slot_at(slot) >= self.slots.len() {
                failed = failed.take().or(Some(RecoveryError::Slot { csn: Csn::ZERO, slot }));
            } else if let Err(error) = self.fill(slot, change.node(), TreeNodeState::Valid) {
                failed = failed.take().or(Some(error));
            } else {
                let there = self.slot(slot);
                apply(&mut self.writer, self.geometry, there, &change, Csn::ZERO);
            }
        });
        built?;
        self.writer.set_first_word(first.root.to_word());
        failed.map_or(Ok(()), Err)
    }

    /// A node is about to be filled.
    fn fill(&mut self, slot: SlotIndex, node: NodeIndex, state: TreeNodeState) -> Result<(), RecoveryError> {
        let filled = &mut self.slots[slot_at(slot)];
        filled.hidden |= state == TreeNodeState::Hidden;
        if node >= filled.nodes_end {
            filled.nodes_end = NodeIndex(node.0 + 1);
            let begin = self.geometry.node_offset(slot, node) as u64;
            self.populated.touch(begin, begin + self.geometry.node_bytes() as u64)?;
        }
        Ok(())
    }

    /// Everything was given, up to the cut: whether it makes sense as a whole. Tree nodes get the state that
    /// the table says, because what readers may see follows the state of a split, and not what its tree nodes
    /// were when they were copied or logged.
    pub(crate) fn complete(&mut self, cut: Csn) -> Result<(), RecoveryError> {
        if let Some((slot, node)) = self.missing.first() {
            return Err(RecoveryError::NodeMissing { slot: *slot, node: *node });
        }
        self.splits.prune(cut);
        for index in (0..self.slots.len()).filter_map(|at| u32::try_from(at).ok()).map(SlotIndex) {
            let (filled, slot) = (self.slots[slot_at(index)], self.slot(index));
            // Who takes over a range is read all the while.
            let adopted = self.splits.target_of(index).filter(|(_, split)| !split.merges);
            let state = match adopted.map(|(_, split)| split.state) {
                // Its builder is dead: nothing will come of it, and what it has built is not even whole.
                Some(TargetState::Adopting) => TreeNodeState::Free,
                Some(TargetState::Adopted) if mutant::planted(Mutant::AdoptionShown) => TreeNodeState::Valid,
                Some(TargetState::Adopted) => TreeNodeState::Hidden,
                // All are valid already, as of most slots.
                Some(TargetState::Opened | TargetState::Discarded) | None if !filled.hidden => continue,
                Some(TargetState::Opened | TargetState::Discarded) | None => TreeNodeState::Valid,
            };
            for node in (0..filled.nodes_end.0).map(NodeIndex) {
                show(&mut self.writer, self.geometry, slot, node, state);
            }
        }
        Ok(())
    }

    /// By slot, one above the highest tree node that was ever filled.
    pub(crate) fn nodes_end(&self) -> Vec<NodeIndex> {
        self.slots.iter().map(|filled| filled.nodes_end).collect()
    }

    /// Whether every change so far found its tree node: the image is whole with the log so far.
    pub(crate) fn lacks_nothing(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether a slot has tree nodes whose state is settled at the end of the replay alone.
    pub(crate) fn has_hidden(&self, slot: SlotIndex) -> bool {
        self.slots[slot_at(slot)].hidden
    }

    fn has_node(&self, node: NodeIndex) -> bool {
        usize::try_from(node.0).is_ok_and(|node| node < self.geometry.nodes())
    }

    fn slot(&self, index: SlotIndex) -> Slot {
        Slot { region: self.region, index }
    }

    fn apply_records(&mut self, chunk: &Chunk) -> Result<(), RecoveryError> {
        let mut records = Vec::with_capacity(chunk.records.len());
        for (csn, bytes) in chunk.iter() {
            let record = NodeRecord::decode(bytes);
            let failed = |source| RecoveryError::Record { kind: RegionKind::Node, csn, source };
            records.push((csn, record.map_err(failed)?));
        }
        for at in 0..records.len() {
            if let Some((_, NodeRecord::Tree { slot, change, .. })) = records.get(at + AHEAD)
                && slot_at(*slot) < self.slots.len()
            {
                prefetch(&self.writer, self.geometry, self.slot(*slot), change.node());
            }
            let (csn, record) = &records[at];
            self.apply_record(chunk.epoch, *csn, record)?;
        }
        Ok(())
    }

    fn apply_record(&mut self, epoch: Epoch, csn: Csn, record: &NodeRecord<'_>) -> Result<(), RecoveryError> {
        match record {
            NodeRecord::Outcome(completion) => self.completions.record(completion, csn),
            NodeRecord::Tree { slot, completion, change } => {
                self.check_slot(*slot, csn)?;
                if let Change::Fill { node, image } = change
                    && self.has_node(*node)
                {
                    self.fill(*slot, *node, image.state())?;
                }
                self.replay(*slot, change, csn)?;
                if let Some(completion) = completion {
                    self.completions.record(completion, csn);
                }
            }
            NodeRecord::Split(_) | NodeRecord::RootSet(_) | NodeRecord::SlotUse { .. } => {
                self.splits
                    .apply(record, epoch, csn)
                    .map_err(|source| RecoveryError::Split { csn, source })?;
                self.carry_out(csn, record)?;
                if let NodeRecord::Split(step) = record
                    && !mutant::planted(Mutant::ResultsLeftBehind)
                {
                    let failed = |source| RecoveryError::Record { kind: RegionKind::Node, csn, source };
                    self.completions.apply(step, csn).map_err(failed)?;
                }
            }
        }
        Ok(())
    }

    /// What a record of a split or a slot changes beside the table.
    fn carry_out(&mut self, csn: Csn, record: &NodeRecord<'_>) -> Result<(), RecoveryError> {
        match *record {
            NodeRecord::Tree { .. } | NodeRecord::Outcome(_) => {}
            NodeRecord::RootSet(root) => self.writer.set_first_word(root.to_word()),
            NodeRecord::SlotUse { slot, used } => {
                self.check_slot(slot, csn)?;
                if used == SlotUse::Free {
                    self.free_slot(slot, csn)?;
                }
            }
            NodeRecord::Split(SplitRecord::Discarded { name, slot }) => {
                self.check_slot(slot, csn)?;
                if !self.splits.target(name).is_some_and(|split| split.merges) {
                    self.free_slot(slot, csn)?;
                }
            }
            NodeRecord::Split(SplitRecord::Retired { slot, .. }) => {
                self.check_slot(slot, csn)?;
                self.free_slot(slot, csn)?;
            }
            NodeRecord::Split(SplitRecord::Applied { slot, right, boundary, high, freed, .. }) => {
                self.check_slot(slot, csn)?;
                for node in boundary.nodes().iter().filter(|_| !mutant::planted(Mutant::EdgeNotTruncated)) {
                    self.replay(slot, &Change::Truncate { node: *node, high, right }, csn)?;
                }
                if !mutant::planted(Mutant::UpperHalfKept) {
                    freed.iter().try_for_each(|node| self.free_node(slot, node, csn))?;
                }
            }
            NodeRecord::Split(
                SplitRecord::Start { slot, .. }
                | SplitRecord::Merge { slot, .. }
                | SplitRecord::Adopt { slot, .. }
                | SplitRecord::Absorb { slot, .. }
                | SplitRecord::Adopted { slot, .. },
            ) => self.check_slot(slot, csn)?,
            NodeRecord::Split(
                SplitRecord::Linked { .. }
                | SplitRecord::Opened { .. }
                | SplitRecord::Finished { .. }
                | SplitRecord::Aborted { .. },
            ) => {}
        }
        Ok(())
    }

    fn check_slot(&self, slot: SlotIndex, csn: Csn) -> Result<(), RecoveryError> {
        if slot_at(slot) < self.slots.len() { Ok(()) } else { Err(RecoveryError::Slot { csn, slot }) }
    }

    fn replay(&mut self, slot: SlotIndex, change: &Change<'_>, csn: Csn) -> Result<(), RecoveryError> {
        let there = self.slot(slot);
        let replayed = replay(&mut self.writer, self.geometry, there, change, csn)
            .map_err(|source| RecoveryError::Replay { csn, source })?;
        self.note(slot, change, replayed);
        Ok(())
    }

    fn free_slot(&mut self, slot: SlotIndex, csn: Csn) -> Result<(), RecoveryError> {
        if mutant::planted(Mutant::DiscardedKept) {
            return Ok(());
        }
        let nodes_end = self.slots[slot_at(slot)].nodes_end;
        (0..nodes_end.0).map(NodeIndex).try_for_each(|node| self.free_node(slot, node, csn))?;
        self.missing.retain(|(of, _)| *of != slot);
        Ok(())
    }

    /// Frees a tree node, unless a later record has filled it anew.
    fn free_node(&mut self, slot: SlotIndex, node: NodeIndex, csn: Csn) -> Result<(), RecoveryError> {
        if self.has_node(node) && node >= self.slots[slot_at(slot)].nodes_end {
            self.missing.remove(&(slot, node)); // it never had memory, so it is free
            return Ok(());
        }
        self.replay(slot, &Change::Mark { node, state: TreeNodeState::Free }, csn)
    }

    fn note(&mut self, slot: SlotIndex, change: &Change<'_>, replayed: Replayed) {
        match replayed {
            Replayed::Missing => {
                self.missing.insert((slot, change.node()));
            }
            Replayed::Applied | Replayed::Skipped if self.missing.is_empty() => {}
            Replayed::Applied | Replayed::Skipped => {
                if matches!(change, Change::Fill { .. } | Change::Mark { .. }) {
                    self.missing.remove(&(slot, change.node()));
                }
            }
        }
    }

    fn apply_image(&mut self, block: &ImageBlock) -> Result<(), RecoveryError> {
        let source = self.image.clone();
        let fault = || source.refuse(ContentFault::Block(block.number));
        if slot_at(block.slot) >= self.slots.len() {
            return Err(fault());
        }
        let slot = self.slot(block.slot);
        for item in content::nodes(&block.bytes, self.geometry.node_bytes()) {
            let (node, words) = item.ok_or_else(fault)?;
            if !self.has_node(node) {
                return Err(fault());
            }
            self.words.iter_mut().zip(words).for_each(|(to, word)| *to = u64::from_le_bytes(*word));
            // The image's writer may have run with another setting of the nodes' own CRC-64; blocks have
            // theirs.
            let plain = self.geometry.with_node_crc(false);
            let copy = NodeRef::new(plain, node, &self.words).map_err(|_| fault())?;
            let (csn, state) = (copy.csn_changed(), copy.state());
            self.image.check(csn)?;
            self.fill(block.slot, node, state)?;
            let fill = Change::Fill { node, image: Image::new(&self.words) };
            apply(&mut self.writer, self.geometry, slot, &fill, csn);
        }
        Ok(())
    }
}

impl Applier for NodeApplier {
    type Work = Work;

    fn apply(&mut self, work: &Work) -> Result<(), RecoveryError> {
        match work {
            Work::Records(chunk) => self.apply_records(chunk),
            Work::Image(block) => self.apply_image(block),
            Work::Kept(kept) => {
                self.completions = kept.completions.clone();
                self.splits = kept.splits.clone();
                self.writer.set_first_word(kept.root.to_word());
                Ok(())
            }
        }
    }
}

fn slot_at(slot: SlotIndex) -> usize {
    slot.0 as usize
}

/// Slots of a node region.
fn slots_of(spec: &RegionSpec) -> usize {
    usize::try_from((spec.bytes - HEADER_BYTES) / spec.slot_bytes.max(1)).unwrap_or(0)
}

/// The extent region's part.
pub(crate) struct ExtentApplier {
    pub(crate) writer: RegionWriter,
    region: Region,
    image: ImageSource,
    populated: Populated,
}

impl ExtentApplier {
    pub(crate) fn new(writer: RegionWriter, image: ImageSource) -> ExtentApplier {
        let region = writer.region().clone();
        ExtentApplier { populated: Populated::new(region.clone()), region, writer, image }
    }

    fn apply_records(&mut self, chunk: &Chunk) -> Result<(), RecoveryError> {
        let mut records = Vec::with_capacity(chunk.records.len());
        for (csn, bytes) in chunk.iter() {
            let record = ExtentRecord::decode(bytes);
            let failed = |source| RecoveryError::Record { kind: RegionKind::Extent, csn, source };
            records.push(record.map_err(failed)?);
        }
        for at in 0..records.len() {
            if let Some(ahead) = records.get(at + AHEAD) {
                self.prefetch(ahead.offset, ahead.extent);
            }
            let there = usize::try_from(byte_offset(records[at].offset) / 8).unwrap_or(usize::MAX);
            if planted(cell_terms::mutant::Mutant::ExtentNotRewritten)
                && there < self.region.len()
                && self.region.load(there) != 0
            {
                continue;
            }
            self.store(records[at].offset, records[at].extent)?;
        }
        Ok(())
    }

    fn apply_image(&mut self, block: &ImageBlock) -> Result<(), RecoveryError> {
        for item in content::extents(&block.bytes) {
            let fault = || self.image.refuse(ContentFault::Block(block.number));
            let (offset, extent) = item.ok_or_else(fault)?;
            let stamp = extent.get(8..).and_then(|bytes| bytes.first_chunk()).ok_or_else(fault)?;
            self.image.check(Csn(u64::from_le_bytes(*stamp)))?;
            self.store(offset, extent)?;
        }
        Ok(())
    }

    fn prefetch(&self, offset: ExtentOffset, extent: &[u8]) {
        if let Some(shape) = shape_of(extent) {
            extent::prefetch(&self.region, offset, shape);
        }
    }

    fn store(&mut self, offset: ExtentOffset, extent: &[u8]) -> Result<(), RecoveryError> {
        let wrong = RecoveryError::Extent { offset, bytes: extent.len() };
        let Some(shape) = shape_of(extent) else { return Err(wrong) };
        let begin = byte_offset(offset);
        let end = begin + u64::from(shape.stored_bytes());
        let whole = shape.extent_bytes() as usize == extent.len();
        if !whole || begin < HEADER_BYTES || end > self.region.spec().bytes {
            return Err(wrong);
        }
        self.populated.touch(begin, end)?;
        extent::store(&mut self.writer, offset, extent);
        Ok(())
    }
}

fn shape_of(extent: &[u8]) -> Option<ExtentShape> {
    extent.first_chunk().and_then(|bits| ExtentShape::from_bits(u32::from_le_bytes(*bits)))
}

impl Applier for ExtentApplier {
    type Work = Work;

    fn apply(&mut self, work: &Work) -> Result<(), RecoveryError> {
        match work {
            Work::Records(chunk) => self.apply_records(chunk),
            Work::Image(block) => self.apply_image(block),
            Work::Kept(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use cell_memory::extent::{ExtentEncoder, ExtentHeader, GRANULE_BYTES};
    use cell_terms::{OperationNumber, PairId, Pointer, SessionId};
    use cell_tree::{BulkFrame, LeafEntry, Meganode, SlotAllocator, bulk_build};

    use super::*;
    use crate::record::{WriteCompletion, WriteOutcome};
    use crate::split::SplitName;

    const REGION_BYTES: u64 = 2 << 20;

    /// Older records that come again after newer ones of a place bring back what was overwritten.
    #[test]
    fn chunk_that_is_used_again_has_none_of_its_records() {
        let mut chunk = Chunk::default();
        assert!(chunk.is_empty());
        chunk.push(Csn(1), b"one");
        chunk.push(Csn(2), b"two");
        assert!(!chunk.is_empty() && chunk.iter().eq([(Csn(1), &b"one"[..]), (Csn(2), &b"two"[..])]));
        let mut again = Work::reuse(Some(Work::Records(chunk)));
        assert!(again.is_empty());
        again.push(Csn(3), b"three");
        assert!(again.iter().eq([(Csn(3), &b"three"[..])]));
    }

    /// What a damaged log could ask for: it would be written over the region's header, or past its end.
    #[test]
    fn extent_that_is_not_in_its_region_or_has_another_length_is_refused() {
        let spec = RegionSpec::extent(PairId(1), Epoch(1), REGION_BYTES).unwrap();
        let (region, writer) = Region::create_private(&spec).unwrap();
        let mut applier = ExtentApplier::new(writer, ImageSource::default());
        let mut encoder = ExtentEncoder::new();
        let extent = encoder.encode(&ExtentHeader::default(), &[7; 112]).unwrap().bytes.to_vec();
        let place = |bytes: u64| ExtentOffset(u32::try_from(bytes / u64::from(GRANULE_BYTES)).unwrap());
        let (first, last) = (place(HEADER_BYTES), place(REGION_BYTES - 128));
        for offset in [first, last] {
            applier.store(offset, &extent).unwrap();
            let mut stored = vec![0; extent.len()];
            region.read_bytes(byte_offset(offset), &mut stored);
            assert_eq!(stored, extent, "{offset:?}");
        }
        let longer = [&extent[..], &[0]].concat();
        let refused = [
            (ExtentOffset(first.0 - 1), &extent[..]),
            (ExtentOffset(last.0 + 1), &extent[..]),
            (ExtentOffset(u32::MAX), &extent[..]),
            (first, &extent[..127]),
            (first, &longer[..]),
            (first, &extent[..0]),
        ];
        for (offset, bytes) in refused {
            let stored = applier.store(offset, bytes);
            assert!(matches!(stored, Err(RecoveryError::Extent { .. })), "{offset:?}, {}", bytes.len());
        }
    }

    /// What is not granted is in no budget: a takeover would take more memory than its process may hold.
    #[test]
    fn memory_is_granted_where_an_extent_is_stored_and_nowhere_else() {
        let spec = RegionSpec::extent(PairId(1), Epoch(1), 4 * UNIT_BYTES).unwrap();
        let (region, writer) = Region::create_private(&spec).unwrap();
        let mut applier = ExtentApplier::new(writer, ImageSource::default());
        let mut encoder = ExtentEncoder::new();
        let extent = encoder.encode(&ExtentHeader::default(), &[7; 112]).unwrap().bytes.to_vec();
        let is_granted = |unit: u64| region.is_granted(unit * UNIT_BYTES..(unit + 1) * UNIT_BYTES);
        let (third, end) = (2 * UNIT_BYTES, 4 * UNIT_BYTES);
        for (begin, expected) in [
            (third, [false, true, false]),
            (end - 128, [false, true, true]),
            (third - 64, [true, true, true]),
        ] {
            let offset = ExtentOffset(u32::try_from(begin / u64::from(GRANULE_BYTES)).unwrap());
            applier.store(offset, &extent).unwrap();
            assert_eq!([1, 2, 3].map(is_granted), expected, "an extent at {begin}");
        }
    }

    /// The image was taken when the node was free already. If no record says so, one of the two is damaged.
    #[test]
    fn tree_node_that_was_changed_and_is_not_there_is_freed_by_a_record_or_missed() {
        let geometry = Geometry::new(512, 64 << 10, 4096).unwrap();
        let spec = RegionSpec::node(PairId(1), Epoch(1), 64 << 10, 64 << 10, 512).unwrap();
        let (_, writer) = Region::create_private(&spec).unwrap();
        let splits = SplitTable::new(PairId(1));
        let mut applier = NodeApplier::new(writer, geometry, ImageSource::default(), splits);
        let node = NodeIndex(3);
        let record = |change| NodeRecord::Tree { slot: SlotIndex(0), completion: None, change };
        applier.apply_record(Epoch(1), Csn(5), &record(Change::Remove { node, key: b"key" })).unwrap();
        let missed = applier.complete(Csn(5)).unwrap_err();
        let is_it = matches!(missed, RecoveryError::NodeMissing { slot: SlotIndex(0), node: NodeIndex(3) });
        assert!(is_it && !applier.lacks_nothing(), "{missed}");
        let freed = Change::Mark { node, state: TreeNodeState::Free };
        applier.apply_record(Epoch(1), Csn(6), &record(freed)).unwrap();
        assert!(applier.lacks_nothing());
        applier.complete(Csn(6)).unwrap();
    }

    fn node_applier() -> NodeApplier {
        let geometry = Geometry::new(512, 64 << 10, 4096).unwrap();
        let spec = RegionSpec::node(PairId(1), Epoch(1), 64 << 10, 64 << 10, 512).unwrap();
        let (_, writer) = Region::create_private(&spec).unwrap();
        NodeApplier::new(writer, geometry, ImageSource::default(), SplitTable::new(PairId(1)))
    }

    /// An empty meganode, whose root is in this state, is built by a record.
    fn build(applier: &mut NodeApplier, slot: SlotIndex, state: TreeNodeState, csn: Csn) {
        let frame = BulkFrame { state, ..BulkFrame::WHOLE };
        let (geometry, there) = (applier.geometry, applier.slot(slot));
        let mut allocator = SlotAllocator::new(geometry.nodes());
        let entries = std::iter::empty::<(&[u8], LeafEntry)>();
        let built = bulk_build(geometry, there, &frame, &mut allocator, entries, |change| {
            let record = NodeRecord::Tree { slot, completion: None, change };
            applier.apply_record(Epoch(1), csn, &record).unwrap();
        });
        assert!(built.is_ok());
    }

    fn root_state(applier: &NodeApplier, slot: SlotIndex) -> TreeNodeState {
        let mut words = vec![0; applier.geometry.node_words()];
        let meganode = Meganode::new(applier.writer.region(), applier.geometry, applier.slot(slot));
        meganode.copy_node(NodeIndex::ROOT, &mut words).unwrap().state()
    }

    /// What an adoption has built is read from the moment in which it was opened, and never if nobody is left
    /// who builds it.
    #[test]
    fn tree_nodes_of_an_adoption_are_after_the_replay_what_its_split_says() {
        let (taken, slot) = (SlotIndex(0), SlotIndex(1));
        let name = SplitName { pair: PairId(2), epoch: Epoch(1), csn: Csn(1) };
        let (session, number, floor) = (SessionId(5), OperationNumber(1), OperationNumber(1));
        let mut results = CompletionTable::default();
        results.record(&WriteCompletion { session, number, floor, outcome: WriteOutcome::Deleted }, Csn(1));
        let kept = &results.parts(Csn(1), 1_000)[0];
        let (low, high, right) = (&b"k"[..], None, Pointer::NULL);
        let adopt = SplitRecord::Adopt { name, slot, low, high, right, kept };
        let adopted = SplitRecord::Adopted { name, slot, nodes: 1, entries: 0 };
        let (opened, discarded) = (SplitRecord::Opened { name }, SplitRecord::Discarded { name, slot });
        for (rest, expected, results) in [
            (vec![], TreeNodeState::Free, 1),
            (vec![adopted], TreeNodeState::Hidden, 1),
            (vec![adopted, opened], TreeNodeState::Valid, 1),
            (vec![adopted, discarded], TreeNodeState::Free, 0),
        ] {
            let mut applier = node_applier();
            build(&mut applier, taken, TreeNodeState::Valid, Csn(5));
            applier.apply_record(Epoch(1), Csn(6), &NodeRecord::Split(adopt)).unwrap();
            build(&mut applier, slot, TreeNodeState::Hidden, Csn(7));
            for (step, csn) in rest.iter().zip(8..) {
                applier.apply_record(Epoch(1), Csn(csn), &NodeRecord::Split(*step)).unwrap();
            }
            assert_eq!((applier.has_hidden(taken), applier.has_hidden(slot)), (false, true));
            applier.complete(Csn(20)).unwrap();
            let states = [taken, slot].map(|slot| root_state(&applier, slot));
            assert_eq!(states, [TreeNodeState::Valid, expected], "after {rest:?}");
            assert_eq!(applier.completions.results(), results, "after {rest:?}");
        }
    }

    /// With its slot goes what of it was changed and is not there, and nothing of another slot.
    #[test]
    fn slot_that_a_record_frees_has_no_tree_nodes_and_lacks_none() {
        let (freed, other) = (SlotIndex(0), SlotIndex(2));
        let mut applier = node_applier();
        let remove = |slot, node| {
            let change = Change::Remove { node: NodeIndex(node), key: b"key" };
            NodeRecord::Tree { slot, completion: None, change }
        };
        build(&mut applier, freed, TreeNodeState::Valid, Csn(5));
        build(&mut applier, other, TreeNodeState::Valid, Csn(6));
        applier.apply_record(Epoch(1), Csn(7), &remove(freed, 3)).unwrap();
        let free = NodeRecord::SlotUse { slot: freed, used: SlotUse::Free };
        let take = NodeRecord::SlotUse { slot: other, used: SlotUse::Router };
        applier.apply_record(Epoch(1), Csn(8), &take).unwrap();
        assert!(!applier.lacks_nothing());
        applier.apply_record(Epoch(1), Csn(9), &free).unwrap();
        assert!(applier.lacks_nothing());
        let states = [freed, other].map(|slot| root_state(&applier, slot));
        assert_eq!(states, [TreeNodeState::Free, TreeNodeState::Valid]);

        let mut applier = node_applier();
        applier.apply_record(Epoch(1), Csn(7), &remove(other, 3)).unwrap();
        applier.apply_record(Epoch(1), Csn(8), &free).unwrap();
        let missed = applier.complete(Csn(8)).unwrap_err();
        assert!(matches!(missed, RecoveryError::NodeMissing { slot: SlotIndex(2), .. }), "{missed}");
    }

    /// What a damaged log could ask for.
    #[test]
    fn record_of_a_slot_or_tree_node_that_the_region_does_not_have_is_refused() {
        let mut applier = node_applier();
        let beyond = SlotIndex(applier.writer.region().spec().slots());
        let mark = |slot, node| {
            let change = Change::Mark { node, state: TreeNodeState::Free };
            NodeRecord::Tree { slot, completion: None, change }
        };
        let last = SlotIndex(beyond.0 - 1);
        applier.apply_record(Epoch(1), Csn(5), &mark(last, NodeIndex::ROOT)).unwrap();
        let take = NodeRecord::SlotUse { slot: beyond, used: SlotUse::Leaf };
        for record in [mark(beyond, NodeIndex::ROOT), take] {
            let refused = applier.apply_record(Epoch(1), Csn(6), &record);
            assert!(matches!(refused, Err(RecoveryError::Slot { csn: Csn(6), slot }) if slot == beyond));
        }
        let node = NodeIndex(u32::try_from(applier.geometry.nodes()).unwrap());
        let refused = applier.free_node(last, node, Csn(7));
        assert!(matches!(refused, Err(RecoveryError::Replay { csn: Csn(7), .. })));
        applier.free_node(last, NodeIndex(node.0 - 1), Csn(8)).unwrap();
    }

    /// Its takeover waited until all below that number was durable, and for nothing above.
    fn image_has_nothing_newer_than_it_says() {
        let image = ImageSource { path: "image".into(), csn_max: Csn(7) };
        image.check(Csn(7)).unwrap();
        let refused = image.check(Csn(8)).unwrap_err();
        let RecoveryError::Content { path, why } = refused else { panic!("{refused}") };
        assert_eq!((&*path, why), ("image", ContentFault::Newer(Csn(8))));
    }

    #[test]
    fn content_of_an_image_that_is_newer_than_the_image_is_refused() {
        image_has_nothing_newer_than_it_says();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_image_newer_taken_is_caught() {
        use cell_terms::mutant::{Mutant, plant};
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::ImageNewerTaken));
            let passed = std::panic::catch_unwind(image_has_nothing_newer_than_it_says).is_ok();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-recovery's replay", Mutant::ImageNewerTaken.name());
        });
    }
}
