//! Building an adopted meganode: entries and extents are copied from where the source has them, a bounded
//! number of bytes at a time, into a slot whose tree nodes nobody can read.

use cell_memory::Region;
use cell_memory::extent::{self, ExtentHeader, ExtentShape, byte_offset};
use cell_recovery::{NodeRecord, SplitName, SplitRecord};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, ExtentOffset, Pointer, SessionId, SlotIndex, Version};
use cell_tree::{
    BulkBuilder, BulkFrame, Change, LeafEntry, LeafSnapshot, MeganodeRole, SlotAllocator, TreeNodeState,
};

use crate::error::{NoRoom, PairError, extent_fault, form_fault};
use crate::log::LogNeed;
use crate::memory::MemoryObserver;
use crate::pair::Pair;
use crate::read::shape_of;

/// How full adopted tree nodes become, in percent.
const FILL_PERCENT: usize = 85;

/// What a target is to adopt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptionRange {
    /// Of which split.
    pub name: SplitName,
    /// Where it goes.
    pub slot: SlotIndex,
    /// Keys at or above this.
    pub low: Box<[u8]>,
    /// Keys below this; `None` for plus infinity.
    pub high: Option<Box<[u8]>>,
    /// Where the keys from `high` on are.
    pub right: Pointer,
    /// It is a merge: the slot's meganode takes over the range, in which there is nothing.
    pub merges: bool,
}

/// An adoption in progress.
#[derive(Debug)]
pub struct Adoption {
    range: AdoptionRange,
    /// Results and floors that are still to be logged, last first.
    kept: Vec<Vec<u8>>,
    /// Sessions that ended since those were copied.
    ended: Vec<SessionId>,
    builder: Option<BulkBuilder>,
    leaf: LeafSnapshot,
    /// The next entry of the leaf.
    at: usize,
    started: bool,
    bytes: Vec<u8>,
    value: Vec<u8>,
    /// The source's extents of what was copied, which become free when it is truncated.
    left_behind: Vec<(ExtentOffset, u32)>,
    /// The target's extents of entries that are in no leaf yet: nobody else would free them.
    loose: Vec<(ExtentOffset, u32)>,
}

/// What a step of an adoption left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptionStep {
    /// Step again.
    More,
    /// The log has no room now: step again after its next event.
    Waits,
    /// Everything is in the log, the last record under this CSN.
    Whole(Csn),
    /// The pair has no room for it.
    Full(NoRoom),
}

impl Adoption {
    /// Nothing of it is done. `kept`: results and floors of the source that go along, as records of at most
    /// some KiB.
    #[must_use]
    pub fn new(range: AdoptionRange, mut kept: Vec<Vec<u8>>) -> Adoption {
        kept.reverse();
        Adoption {
            range,
            kept,
            ended: Vec::new(),
            builder: None,
            leaf: LeafSnapshot::new(),
            at: 0,
            started: false,
            bytes: Vec::new(),
            value: Vec::new(),
            left_behind: Vec::new(),
            loose: Vec::new(),
        }
    }

    /// A session has ended: what is still to come of it goes at once.
    pub fn forget_session(&mut self, session: SessionId) {
        if !self.kept.is_empty() && !planted(Mutant::EndedResultsAdopted) {
            self.ended.push(session);
        }
    }

    /// What is adopted.
    #[must_use]
    pub fn range(&self) -> &AdoptionRange {
        &self.range
    }

    /// The next results and floors that are to be logged.
    pub(crate) fn take_kept(&mut self) -> Option<Vec<u8>> {
        self.kept.pop()
    }

    /// They are still to be logged.
    pub(crate) fn put_back_kept(&mut self, kept: Vec<u8>) {
        self.kept.push(kept);
    }

    /// Sessions that ended since what goes along was copied.
    pub(crate) fn ended(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.ended.iter().copied()
    }

    /// Of the extents that were written last, so many belong to entries that are in no leaf.
    fn keep_loose(&mut self, entries: usize) {
        let in_leaves = self.loose.len().saturating_sub(entries);
        self.loose.drain(..in_leaves);
    }

    /// The source's extents of what was copied.
    pub fn take_left_behind(&mut self) -> Vec<(ExtentOffset, u32)> {
        std::mem::take(&mut self.left_behind)
    }
}

/// An entry as it was read at the source.
struct Moved {
    header: ExtentHeader,
}

impl<O: MemoryObserver> Pair<O> {
    /// Takes the slot and logs what goes along with the range. True when all of that is in the log.
    pub fn begin_adoption(&mut self, adoption: &mut Adoption) -> bool {
        let AdoptionRange { name, slot, low, high, right, .. } = adoption.range.clone();
        while let Some(kept) = adoption.kept.pop() {
            let keys = low.len() + high.as_ref().map_or(0, |high| high.len());
            if self.step_room(keys + kept.len()).is_err() {
                adoption.kept.push(kept);
                return false;
            }
            let record =
                SplitRecord::Adopt { name, slot, low: &low, high: high.as_deref(), right, kept: &kept };
            let csn = self.append_step(&NodeRecord::Split(record));
            adoption.ended.iter().for_each(|session| self.completions.forget(*session));
            if adoption.builder.is_none() {
                self.reserved.remove(&slot); // the table of splits has it from here on
                self.meganodes.add(slot, SlotAllocator::new(self.memory.geometry().nodes()), (0, 0));
                self.take_granted(slot);
                let frame = BulkFrame {
                    low: &low,
                    high: high.as_deref(),
                    right,
                    csn_removed: csn,
                    state: TreeNodeState::Hidden,
                    fill_percent: FILL_PERCENT,
                    role: MeganodeRole::Data,
                };
                adoption.builder =
                    Some(BulkBuilder::new(*self.memory.geometry(), self.memory.slot(slot), &frame));
            }
        }
        true
    }

    /// Copies what is next, about so many bytes.
    pub fn adopt(
        &mut self,
        adoption: &mut Adoption,
        source: &SourceView,
        budget_bytes: usize,
    ) -> Result<AdoptionStep, PairError> {
        let mut left = budget_bytes;
        loop {
            if !self.next_entry(adoption, source)? {
                return self.finish_adoption(adoption);
            }
            let entry = adoption.leaf.entry(adoption.at);
            let shape = shape_of(&entry).ok_or_else(|| form_fault(&entry))?;
            let value_bytes = shape.value_bytes() as usize;
            if left < value_bytes.min(budget_bytes) {
                return Ok(AdoptionStep::More);
            }
            // It comes with the version under which it was written, and may take a slot of a larger class.
            let moved = ExtentShape::new(shape.value_bytes(), true, shape.expiry());
            self.make_room_for(adoption.range.slot, moved.map(ExtentShape::extent_bytes));
            let need = LogNeed::put(
                0,
                value_bytes,
                self.memory.geometry(),
                self.meganodes.height(adoption.range.slot),
            );
            match self.adoption_room(&need) {
                Ok(()) => {}
                Err(NoRoom::LogBusy) => return Ok(AdoptionStep::Waits),
                Err(lacks) => return Ok(AdoptionStep::Full(lacks)),
            }
            let moved = source.read(&entry, &mut adoption.bytes, &mut adoption.value)?;
            if let Some(lacks) = self.adopt_entry(adoption, &moved) {
                return Ok(AdoptionStep::Full(lacks));
            }
            adoption.left_behind.push((entry.offset, shape.extent_bytes()));
            adoption.at += 1;
            left = left.saturating_sub(value_bytes + 64);
        }
    }

    fn adoption_room(&mut self, need: &LogNeed) -> Result<(), NoRoom> {
        // It does not wait for a checkpoint, because that waits for its end.
        let expected = self.log.set_reclaim_expected(false);
        let room = self.log_room_apart(need);
        self.log.set_reclaim_expected(expected);
        room
    }

    /// Sees to it that the leaf has an entry at `at`; false at the end of the range.
    fn next_entry(&self, adoption: &mut Adoption, source: &SourceView) -> Result<bool, PairError> {
        let meganode = source.meganode();
        let low = &adoption.range.low;
        if !adoption.started {
            meganode.leaf(low, &mut adoption.leaf)?;
            adoption.at = adoption.leaf.position(low);
            adoption.started = true;
        }
        while adoption.at == adoption.leaf.len() {
            let past = match (adoption.leaf.high(), adoption.range.high.as_deref()) {
                (None, _) => true,
                (Some(high), Some(end)) => high >= end,
                (Some(_), None) => false,
            };
            if past || !meganode.leaf_after(&mut adoption.leaf)? {
                return Ok(false);
            }
            adoption.at = 0;
        }
        Ok(true)
    }

    /// Copies the entry that was read: extent first, then what of the tree became full. What it lacks, if it
    /// does not go on.
    fn adopt_entry(&mut self, adoption: &mut Adoption, moved: &Moved) -> Option<NoRoom> {
        let csn = self.appended().next();
        let header = ExtentHeader { epoch: self.epoch, csn, ..moved.header };
        let Some((entry, shape)) = self.write_extent(&header, &adoption.value) else {
            return Some(NoRoom::Region);
        };
        self.written(csn);
        adoption.loose.push((entry.offset, shape.extent_bytes()));
        let Some(mut builder) = adoption.builder.take() else { return Some(NoRoom::Slot) };
        let key = adoption.leaf.key(adoption.at);
        let pushed = self.build(adoption.range.slot, |allocator, emit| {
            builder.push(allocator, key, entry, emit).map_err(drop)
        });
        self.meganodes.count(adoption.range.slot, 1);
        self.meganodes.weigh(adoption.range.slot, shape.extent_bytes().into(), 0);
        adoption.keep_loose(builder.entries_open() + usize::from(pushed.is_err()));
        adoption.builder = Some(builder);
        pushed.is_err().then_some(NoRoom::Slot)
    }

    /// An adoption fails: frees at once what discarding its meganode would not find. No leaf has
    /// ever led to it, and of a slot that was only reserved nobody knows.
    pub fn give_up_adoption(&mut self, adoption: &mut Adoption) {
        for (offset, bytes) in adoption.loose.drain(..) {
            self.extents.free(offset, bytes);
        }
        self.reserved.remove(&adoption.range.slot);
    }

    fn finish_adoption(&mut self, adoption: &mut Adoption) -> Result<AdoptionStep, PairError> {
        let AdoptionRange { name, slot, .. } = adoption.range;
        // Each level closes two nodes at the most, and there may be one more level; then the last step.
        let height = adoption.builder.as_ref().map_or(1, BulkBuilder::height);
        self.make_nodes(slot, 2 * (height + 1));
        match self.adoption_room(&LogNeed::fills(2 * (height + 1), self.memory.geometry())) {
            Ok(()) => {}
            Err(NoRoom::LogBusy) => return Ok(AdoptionStep::Waits),
            Err(lacks) => return Ok(AdoptionStep::Full(lacks)),
        }
        let Some(mut builder) = adoption.builder.take() else { return Err(PairError::NoMeganode(slot)) };
        let mut summary = None;
        let built = self.build(slot, |allocator, emit| {
            summary = Some(builder.finish(allocator, emit).map_err(drop)?);
            Ok(())
        });
        adoption.keep_loose(builder.entries_open());
        let Some(summary) = summary.filter(|_| built.is_ok()) else {
            return Ok(AdoptionStep::Full(NoRoom::Slot));
        };
        let nodes = u32::try_from(summary.nodes).unwrap_or(u32::MAX);
        let record = SplitRecord::Adopted { name, slot, nodes, entries: summary.entries };
        Ok(AdoptionStep::Whole(self.append_step(&NodeRecord::Split(record))))
    }

    /// Lets a builder go on: what it emits is logged, announced and put into memory, hidden.
    fn build(
        &mut self,
        slot: SlotIndex,
        go_on: impl FnOnce(&mut SlotAllocator, &mut dyn FnMut(Change<'_>)) -> Result<(), ()>,
    ) -> Result<(), ()> {
        let Pair { log, memory, meganodes, .. } = self;
        let ends = meganodes.ends();
        let Some(owned) = meganodes.get_mut(slot) else { return Err(()) };
        let mut high = ends.end(slot);
        let mut emit = |change: Change<'_>| {
            let csn = log.append_node(&NodeRecord::Tree { slot, completion: None, change });
            high = high.max(cell_tree::NodeIndex(change.node().0 + 1));
            ends.announce(slot, high);
            memory.change_node(slot, &change, csn);
        };
        let gone = go_on(&mut owned.allocator, &mut emit);
        let last = self.appended();
        self.written(last);
        gone
    }
}

/// The source's memory: what any reader may hold.
#[derive(Clone, Debug)]
pub struct SourceView {
    node: Region,
    extent: Region,
    geometry: cell_tree::Geometry,
    slot: cell_tree::Slot,
    pair: cell_terms::PairId,
}

impl SourceView {
    fn meganode(&self) -> cell_tree::Meganode<'_, Region> {
        cell_tree::Meganode::new(&self.node, self.geometry, self.slot)
    }

    /// Reads an entry that does not change: writes to its range wait.
    fn read(&self, entry: &LeafEntry, bytes: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<Moved, PairError> {
        let shape = shape_of(entry).ok_or_else(|| form_fault(entry))?;
        bytes.resize(shape.extent_bytes() as usize, 0);
        self.extent.read_bytes(byte_offset(entry.offset), bytes);
        let view =
            extent::ExtentView::verify(bytes, entry.crc).map_err(|error| extent_fault(entry, &error))?;
        value.clear();
        value.extend_from_slice(view.value);
        let version: Version = view.header.version(self.pair);
        Ok(Moved { header: ExtentHeader { moved: Some(version), ..view.header } })
    }
}

impl<O: MemoryObserver> Pair<O> {
    /// One of the pair's meganodes, for whoever adopts a part of it.
    pub fn source_view(&self, slot: SlotIndex) -> SourceView {
        SourceView {
            node: self.memory.node().clone(),
            extent: self.memory.extent().clone(),
            geometry: *self.memory.geometry(),
            slot: self.memory.slot(slot),
            pair: self.id,
        }
    }
}
