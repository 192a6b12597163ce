//! A pair as its worker holds it: memory, meganodes, extents, logs, completion table. All writes go through
//! here, in the write order of `docs/design/log.md`:
//!
//! 0. have log and region space in hand; 1. append the records; 2. change memory, stamping the CSNs;
//! 3. submit; 4. raise the watermark on completion; 5. acknowledge.
//!
//! Steps 3 to 5 are the worker's; a refusal at step 0 leaves nothing behind.

mod adoption;
mod compaction;
mod growth;
mod log;
mod meganodes;
mod scan;
mod split;

use std::collections::BTreeSet;
use std::sync::Arc;

use cell_memory::extent::{self, ExtentEncoder, ExtentHeader, ExtentReader, ExtentShape, byte_offset};
use cell_memory::{ExtentAllocator, ExtentError, PairWriter, Region};
use cell_recovery::image::ImageSource;
use cell_recovery::{
    CompletionTable, NodeRecord, Recovered, SlotUse, SplitTable, WriteCompletion, WriteOutcome,
};
use cell_terms::{Csn, Durability, Epoch, PairId, SessionId, SlotIndex, Version};
use cell_tree::{Change, CompactionPlan, Geometry, LeafEntry, Meganode, Plan, PlanError, ReadError, Slot};
use cell_wal::PairLog;

use crate::grace::{Freed, GraceQueue};
use crate::settings::WorkerOptions;
use log::{Need, append_extent};
use meganodes::Meganodes;

pub(crate) use adoption::{Adoption, AdoptionRange, AdoptionStep, SourceView};
pub(crate) use compaction::{CompactionCounts, CompactionStep, CompactionWalk};
pub(crate) use meganodes::Fences;
pub use meganodes::SlotEnds;
pub(crate) use scan::{ScanDirection, ScanRange};
pub(crate) use split::CutHalf;

/// What is taken from the grace queue in one turn at most.
const REUSED_AT_ONCE: usize = 16_384;
/// Keys that are searched together.
pub(crate) const BATCH: usize = 16;

/// What a search found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Located {
    pub(crate) entry: Option<LeafEntry>,
    pub(crate) csn_changed: Csn,
    pub(crate) csn_removed: Csn,
}

/// What an extent says of its entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryHead {
    pub(crate) version: Version,
    pub(crate) csn: Csn,
}

/// Memory that is not what it must be: damage, or a defect. Nothing is guessed; the request is refused.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StoreError {
    /// The tree could not be searched by its own writer.
    #[error("the tree cannot be searched: {0}")]
    Tree(#[from] ReadError),
    /// A leaf points to an extent that is not it.
    #[error("a leaf's extent at {offset} is damaged: {why}")]
    Extent {
        /// Where.
        offset: cell_terms::ExtentOffset,
        /// Why.
        why: ExtentFault,
    },
    /// A plan failed for a reason that the room check excludes.
    #[error("a change could not be planned: {0}")]
    Plan(PlanError),
    /// A slot that holds no meganode was asked for.
    #[error("{0} holds no meganode")]
    NoMeganode(SlotIndex),
    /// A reply could not be encoded although sizes were checked.
    #[error("a reply could not be encoded")]
    Reply,
}

/// What is wrong with an extent.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum ExtentFault {
    /// Its checksum is not its leaf's.
    #[error("checksum {found:#018x}, the leaf has {expected:#018x}")]
    Checksum {
        /// The leaf's.
        expected: u64,
        /// What was computed.
        found: u64,
    },
    /// Place or form cannot be.
    #[error("its place or form cannot be")]
    Form,
}

/// Why a write was not begun. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The batch that fills must be submitted first, or a segment is being prepared: the request waits.
    LogBusy,
    /// The disk has no room for the next segment.
    DiskFull,
    /// The extent region has no room for the entry.
    Region,
    /// The meganode has no tree nodes for the splits that a put may need: it must be split itself.
    Slot,
}

/// Why a write was not done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteError {
    NoRoom(NoRoom),
    Store(StoreError),
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> WriteError {
        WriteError::Store(error)
    }
}

/// Sizes, for status and snapshot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) entries: u64,
    pub(crate) tree_nodes: u64,
    pub(crate) tree_node_bytes: u64,
    pub(crate) node_region_bytes: u64,
    pub(crate) extents_live_bytes: u64,
    pub(crate) extents_allocated_bytes: u64,
    pub(crate) extent_region_bytes: u64,
    pub(crate) populated_bytes: u64,
    pub(crate) huge_page_bytes: u64,
    pub(crate) grace_bytes: u64,
    pub(crate) completions: u64,
    pub(crate) compactions: CompactionCounts,
}

/// What a checkpoint can do for a log that the disk has no room for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Relief {
    /// A write was kept back for want of room.
    wanted: bool,
    /// A checkpoint makes room, or is about to: writes wait for it.
    comes: bool,
}

/// See the module's text.
pub struct Store {
    pair: PairId,
    epoch: Epoch,
    geometry: Geometry,
    durability: Durability,
    memory: PairWriter,
    node: Region,
    extent: Region,
    meganodes: Meganodes,
    extents: ExtentAllocator,
    log: Option<PairLog>,
    /// The last CSN, where no log counts.
    csn_unlogged: Csn,
    completions: CompletionTable,
    /// The sessions that were open when the pair was recovered, until its worker has taken note.
    sessions_open: Vec<SessionId>,
    splits: SplitTable,
    grace: GraceQueue,
    plan: Plan,
    encoder: ExtentEncoder,
    reader: std::cell::RefCell<ExtentReader>,
    checkpointed: Csn,
    log_bytes_recovered: u64,
    no_room: Option<NoRoom>,
    relief: Relief,
    checking: bool,
    /// Memory that is taken at a time.
    grant_chunk_bytes: u64,
    split_fill_percent: usize,
    /// A meganode that has come to the fill at which it is to be split.
    crowded: Option<SlotIndex>,
    /// Slots of adoptions that have logged nothing yet.
    reserved: BTreeSet<SlotIndex>,
    /// Runs of tree nodes that hold less are rebuilt, in thousandths; 0: none.
    rebuild_permille: usize,
    compaction_plan: CompactionPlan,
    compactions: CompactionCounts,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("pair", &self.pair).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Store {
    /// Takes over what recovery made.
    #[must_use]
    pub fn new(recovered: Recovered, options: &WorkerOptions) -> Store {
        let (node, extent) =
            (recovered.memory.node.region().clone(), recovered.memory.extent.region().clone());
        let slots = node.spec().slots();
        let mut meganodes = Meganodes::new(recovered.geometry, node.spec().id, slots);
        for found in recovered.meganodes {
            meganodes.add(found.slot.index, found.allocator, found.stats.entries);
            match found.used {
                SlotUse::Router => meganodes.set_router(found.slot.index),
                // What was deleted before is not known.
                SlotUse::Leaf | SlotUse::Free => meganodes.note_thinned(found.slot.index),
            }
        }
        let mut store = Store {
            pair: recovered.pair,
            epoch: recovered.epoch,
            geometry: recovered.geometry,
            durability: options.durability,
            memory: recovered.memory,
            node,
            extent,
            meganodes,
            extents: recovered.extents,
            log: recovered.log,
            csn_unlogged: recovered.csn_cut,
            completions: recovered.completions,
            sessions_open: recovered.sessions.sessions,
            splits: recovered.splits,
            grace: GraceQueue::new(options.reuse_grace_ns),
            plan: Plan::new(),
            encoder: ExtentEncoder::new(),
            reader: std::cell::RefCell::new(ExtentReader::new()),
            checkpointed: recovered.csn_checkpoint,
            log_bytes_recovered: recovered.log_bytes,
            no_room: None,
            relief: Relief::default(),
            checking: false,
            grant_chunk_bytes: options.grant_chunk_bytes,
            split_fill_percent: options.split_fill_percent,
            crowded: None,
            reserved: BTreeSet::new(),
            rebuild_permille: options.rebuild_permille,
            compaction_plan: CompactionPlan::new(),
            compactions: CompactionCounts::default(),
        };
        store.keep_to_grants();
        store
    }

    /// How far each meganode's nodes go, as others may ask at any time.
    #[must_use]
    pub fn slot_ends(&self) -> Arc<SlotEnds> {
        self.meganodes.ends()
    }

    /// Slots with their fences, of all leaf meganodes.
    pub(crate) fn fences(&self) -> Result<Vec<(SlotIndex, Fences)>, StoreError> {
        self.meganodes.fences(&self.node)
    }

    /// The pair.
    #[must_use]
    pub fn pair(&self) -> PairId {
        self.pair
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn tree_node_bytes(&self) -> usize {
        self.geometry.node_bytes()
    }

    pub(crate) fn checkpointed(&self) -> Csn {
        self.checkpointed
    }

    pub(crate) fn completions(&mut self) -> &mut CompletionTable {
        &mut self.completions
    }

    /// The sessions that were open after the pair's claim, ascending: results of others were forgotten. Once.
    pub(crate) fn take_sessions_open(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.sessions_open)
    }

    pub(crate) fn log_bytes_recovered(&self) -> u64 {
        self.log_bytes_recovered
    }

    /// Bytes that a checkpoint would hold, about.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.meganodes.nodes_used() * self.geometry.node_bytes() as u64 + self.extents.stats().live_bytes
    }

    pub(crate) fn no_room(&self) -> Option<NoRoom> {
        self.no_room
    }

    pub(crate) fn backing(&self) -> [&'static str; 2] {
        [self.node.backing().name(), self.extent.backing().name()]
    }

    pub(crate) fn figures(&self) -> Figures {
        let extents = self.extents.stats();
        Figures {
            entries: self.entries(),
            tree_nodes: self.meganodes.nodes_used(),
            tree_node_bytes: self.geometry.node_bytes() as u64,
            node_region_bytes: self.node.spec().bytes,
            extents_live_bytes: extents.live_bytes,
            extents_allocated_bytes: extents.allocated_bytes,
            extent_region_bytes: self.extent.spec().bytes,
            populated_bytes: self.node.populated_bytes() + self.extent.populated_bytes(),
            huge_page_bytes: self.node.huge_bytes() + self.extent.huge_bytes(),
            grace_bytes: self.grace.bytes(),
            completions: self.completions.results() as u64,
            compactions: self.compactions,
        }
    }

    /// The pair's memory, for checkpoints and checks: readers like any other.
    #[must_use]
    pub fn source(&self) -> ImageSource {
        ImageSource {
            pair: self.pair,
            epoch: self.epoch,
            node: self.node.clone(),
            extent: self.extent.clone(),
            geometry: self.geometry,
            filled: self.meganodes.filled().clone(),
        }
    }

    fn slot(&self, index: SlotIndex) -> Slot {
        Slot { region: self.node.spec().id, index }
    }

    /// The meganode in a slot, to be read.
    pub(crate) fn meganode(&self, slot: SlotIndex) -> Meganode<'_, Region> {
        Meganode::new(&self.node, self.geometry, self.slot(slot)).with_role(self.meganodes.role(slot))
    }

    /// Searches up to [`BATCH`] keys of one meganode together and asks for their extents.
    pub(crate) fn locate_batch(
        &self,
        slot: SlotIndex,
        keys: &[&[u8]],
        located: &mut [Located],
    ) -> Result<(), StoreError> {
        let mut found: [Result<cell_tree::SearchResult, ReadError>; BATCH] = [Err(ReadError::NotHere); BATCH];
        self.meganode(slot).search_batch(keys, &mut found[..keys.len()]);
        for (located, found) in located.iter_mut().zip(&found[..keys.len()]) {
            let found = (*found)?;
            *located = Located {
                entry: found.entry,
                csn_changed: found.csn_changed,
                csn_removed: found.csn_removed,
            };
        }
        let entries = located[..keys.len()].iter().filter_map(|located| located.entry);
        let place = |entry: LeafEntry| Some((entry.offset, shape_of(&entry)?));
        extent::prefetch_all(&self.extent, entries.filter_map(place));
        Ok(())
    }

    /// What a search found, and asks for its extent.
    pub(crate) fn located(&self, found: &cell_tree::SearchResult) -> Located {
        if let Some((entry, shape)) = found.entry.and_then(|entry| Some((entry, shape_of(&entry)?))) {
            extent::prefetch(&self.extent, entry.offset, shape);
        }
        let cell_tree::SearchResult { entry, csn_changed, csn_removed, .. } = *found;
        Located { entry, csn_changed, csn_removed }
    }

    /// What an answer to `search` depends on: for a miss the last removal of the leaf; for a hit its last
    /// change, and if that is too new, the extent's CSN.
    pub(crate) fn search_depends_on(&self, located: &Located) -> Result<Csn, StoreError> {
        match &located.entry {
            None => Ok(located.csn_removed),
            Some(_) if located.csn_changed <= self.visible() => Ok(located.csn_changed),
            Some(entry) => Ok(self.head(entry)?.csn),
        }
    }

    /// Copies an entry's value out and checks it.
    pub(crate) fn read(&self, entry: &LeafEntry, value: &mut Vec<u8>) -> Result<EntryHead, StoreError> {
        let shape = shape_of(entry).ok_or_else(|| form_fault(entry))?;
        let mut reader = self.reader.borrow_mut();
        value.clear();
        let header = reader
            .append(&self.extent, entry.offset, shape, entry.crc, value)
            .map_err(|error| extent_fault(entry, &error))?;
        Ok(EntryHead { version: header.version(self.pair), csn: header.csn })
    }

    /// Reads an entry's header alone.
    pub(crate) fn head(&self, entry: &LeafEntry) -> Result<EntryHead, StoreError> {
        let shape = shape_of(entry).ok_or_else(|| form_fault(entry))?;
        let mut bytes = [0; extent::HEADER_BYTES_MAX as usize];
        let header = &mut bytes[..shape.header_bytes() as usize];
        self.extent.read_bytes(byte_offset(entry.offset), header);
        let header = ExtentHeader::decode(shape, header).ok_or_else(|| form_fault(entry))?;
        Ok(EntryHead { version: header.version(self.pair), csn: header.csn })
    }

    /// The version of a key's entry.
    pub(crate) fn version_of(&self, slot: SlotIndex, key: &[u8]) -> Result<Option<Version>, StoreError> {
        match self.meganode(slot).search(key)?.entry {
            Some(entry) => Ok(Some(self.head(&entry)?.version)),
            None => Ok(None),
        }
    }

    /// Writes an entry. `completion` is told the version and whether an entry was replaced.
    pub(crate) fn put(
        &mut self,
        slot: SlotIndex,
        key: &[u8],
        value: &[u8],
        completion: impl FnOnce(Version, bool) -> WriteCompletion,
    ) -> Result<(WriteOutcome, Csn), WriteError> {
        let there = self.slot(slot);
        let meganode = Meganode::new(&self.node, self.geometry, there);
        // The leaf comes while the entry is encoded.
        cell_tree::plan_ahead(&meganode, key, &mut self.plan).map_err(StoreError::Tree)?;
        assert!(!self.splits.is_hidden(slot), "{slot} is written before it is open");
        let need = Need::put(key.len(), value.len(), &self.geometry, self.meganodes.height(slot));
        self.log_room(&need).map_err(WriteError::NoRoom)?;
        let csn = self.appended().next();
        let header = ExtentHeader { epoch: self.epoch, csn, ..ExtentHeader::default() };
        let version = header.version(self.pair);
        let shape = header.shape(value.len()).map_err(|_| WriteError::NoRoom(NoRoom::Region))?;
        let Some(offset) = self.extents.allocate(shape.extent_bytes()) else {
            return Err(self.region_full());
        };
        extent::prefetch(&self.extent, offset, shape);
        let encoded = self.encoder.encode(&header, value).map_err(|_| WriteError::NoRoom(NoRoom::Region))?;
        let entry = LeafEntry { offset, value_len: encoded.shape.bits(), crc: encoded.checksum };
        let meganode = Meganode::new(&self.node, self.geometry, there);
        let Some(owned) = self.meganodes.get_mut(slot) else {
            self.extents.free(offset, shape.extent_bytes());
            return Err(StoreError::NoMeganode(slot).into());
        };
        if let Err(error) = cell_tree::plan_put(&meganode, &mut owned.allocator, key, entry, &mut self.plan) {
            self.extents.free(offset, shape.extent_bytes());
            return Err(match error {
                PlanError::Full { .. } => WriteError::NoRoom(NoRoom::Slot),
                error => WriteError::Store(StoreError::Plan(error)),
            });
        }
        let replaced = self.plan.old();
        let completion = completion(version, replaced.is_some());
        append_extent(self.log.as_mut(), offset, encoded.bytes);
        extent::store(&mut self.memory.extent, offset, encoded.bytes);
        self.csn_unlogged = csn;
        let last = self.change_tree(slot, Some(&completion));
        match replaced {
            Some(old) => self.release(&old, last),
            None => self.meganodes.count(slot, 1),
        }
        self.no_room = None;
        Ok((completion.outcome, last))
    }

    /// Removes an entry that is there.
    pub(crate) fn delete(
        &mut self,
        slot: SlotIndex,
        key: &[u8],
        completion: &WriteCompletion,
    ) -> Result<(WriteOutcome, Csn), WriteError> {
        assert!(!self.splits.is_hidden(slot), "{slot} is written before it is open");
        self.log_room(&Need::delete(key.len())).map_err(WriteError::NoRoom)?;
        let meganode = Meganode::new(&self.node, self.geometry, self.slot(slot));
        cell_tree::plan_remove(&meganode, key, &mut self.plan).map_err(StoreError::Plan)?;
        let Some(old) = self.plan.old() else { return Err(WriteError::Store(StoreError::Reply)) };
        let last = self.change_tree(slot, Some(completion));
        self.release(&old, last);
        self.meganodes.removed(slot);
        self.no_room = None;
        Ok((completion.outcome, last))
    }

    /// Records a write that changes nothing: its result must not change with a repeat.
    pub(crate) fn log_outcome(&mut self, completion: &WriteCompletion) -> Result<Csn, WriteError> {
        self.log_room(&Need::outcome()).map_err(WriteError::NoRoom)?;
        let csn = self.append_node(&NodeRecord::Outcome(*completion));
        self.completions.record(completion, csn);
        self.written(csn);
        Ok(csn)
    }

    /// Records every change of the plan, then changes memory. The completion goes with the last record.
    fn change_tree(&mut self, slot: SlotIndex, completion: Option<&WriteCompletion>) -> Csn {
        let mut plan = std::mem::take(&mut self.plan);
        let first = self.appended().next();
        let last_index = plan.len() - 1;
        for (index, change) in plan.changes().enumerate() {
            let completion = completion.filter(|_| index == last_index).copied();
            self.append_node(&NodeRecord::Tree { slot, completion, change });
        }
        // Before any of the changes: who comes to a new node must know that the slot goes so far.
        self.meganodes.announce(slot);
        let mut csn = first;
        for (index, change) in plan.changes().enumerate() {
            csn = Csn(first.0 + index as u64);
            self.change_node(slot, &change, csn);
        }
        if let Some(owned) = self.meganodes.get_mut(slot) {
            plan.commit(&mut owned.allocator);
        }
        if plan.len() > 1 {
            self.note_crowded(slot);
        }
        self.plan = plan;
        if let Some(completion) = completion {
            self.completions.record(completion, csn);
        }
        self.written(csn);
        csn
    }

    /// Changes a tree node, and tells the copier of an image where it must look again.
    fn change_node(&mut self, slot: SlotIndex, change: &Change<'_>, csn: Csn) {
        let there = self.slot(slot);
        self.meganodes.filled().apply(&mut self.memory.node, self.geometry, there, change, csn);
    }

    /// An extent that nothing points to any more goes to the grace queue.
    fn release(&mut self, old: &LeafEntry, csn: Csn) {
        if let Some(shape) = shape_of(old) {
            let freed = Freed::Extent(old.offset, shape.extent_bytes());
            self.grace.push(csn, freed);
        }
    }

    /// Hands back what was freed durably and whose grace period is over, a bounded part of it. Whether that
    /// was anything. `now_ns` is read after the last event that the pair was told: the grace period of what
    /// has become durable since the last call begins now.
    pub(crate) fn reuse(&mut self, now_ns: u64) -> bool {
        self.prune_book();
        let mut any = false;
        let durable = self.durable();
        self.grace.begin_grace(durable, now_ns);
        for _ in 0..REUSED_AT_ONCE {
            let Some(rested) = self.grace.pop(now_ns) else { break };
            match rested.into_freed(durable, now_ns) {
                Freed::Extent(offset, bytes) => self.extents.free(offset, bytes),
                Freed::Node(slot, node) => self.meganodes.free_node(slot, node),
                Freed::Slot(slot) => self.meganodes.free_slot(slot),
            }
            any = true;
        }
        any
    }

    fn region_full(&mut self) -> WriteError {
        self.no_room = Some(NoRoom::Region);
        WriteError::NoRoom(NoRoom::Region)
    }
}

/// The leaf keeps an extent's shape where `cell_tree` says value length: the length in the low bits, flags
/// above.
pub(crate) fn shape_of(entry: &LeafEntry) -> Option<ExtentShape> {
    ExtentShape::from_bits(entry.value_len)
}

/// Length of an entry's value.
pub(crate) fn value_len(entry: &LeafEntry) -> u32 {
    shape_of(entry).map_or(0, ExtentShape::value_bytes)
}

fn form_fault(entry: &LeafEntry) -> StoreError {
    StoreError::Extent { offset: entry.offset, why: ExtentFault::Form }
}

fn extent_fault(entry: &LeafEntry, error: &ExtentError) -> StoreError {
    let why = match error {
        ExtentError::Checksum { expected, found } => {
            ExtentFault::Checksum { expected: *expected, found: *found }
        }
        _ => ExtentFault::Form,
    };
    StoreError::Extent { offset: entry.offset, why }
}
