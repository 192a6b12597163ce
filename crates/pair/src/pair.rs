//! A pair in its owner's hands: memory, meganodes, extents, log, completion table, table of splits. Whoever
//! holds it is its only writer.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

use cell_memory::ExtentAllocator;
use cell_memory::extent::{ExtentEncoder, ExtentReader};
use cell_recovery::image::{ImageBase, ImageSource};
use cell_recovery::{CompletionTable, Recovered, SlotUse, SplitTable};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Epoch, PairId, SessionId, SlotIndex};
use cell_tree::{CompactionPlan, Plan};
use cell_wal::{LogCounts, LogDevice, LogEvent, LogSegments, LogTimes, WalError};

use crate::error::{NoRoom, PairError};
use crate::figures::{CompactionCounts, PairFigures};
use crate::grace::{Freed, GraceQueue};
use crate::log::{CommitLog, LogNeed, SyncedBatch};
use crate::meganodes::{Fences, Meganodes, SlotEnds};
use crate::memory::{MemoryObserver, PairMemory};
use crate::options::PairOptions;
use crate::packing_state::Packing;
use crate::scan_buffers::ScanBuffers;

/// What is taken from the grace queue in one turn at most.
const REUSED_AT_ONCE: usize = 16_384;

/// The longest write that was refused for want of room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    why: NoRoom,
    /// What it wants of the logs.
    need: LogNeed,
    /// The extent for which there was no place; zero if something else was lacking.
    extent_bytes: u32,
}

/// See the module's text. What it does is described by role: [`crate::write`] and its kin.
pub struct Pair<O = ()> {
    pub(crate) id: PairId,
    pub(crate) epoch: Epoch,
    pub(crate) memory: PairMemory<O>,
    pub(crate) log: CommitLog,
    pub(crate) meganodes: Meganodes,
    pub(crate) extents: ExtentAllocator,
    pub(crate) completions: CompletionTable,
    pub(crate) splits: SplitTable,
    pub(crate) grace: GraceQueue,
    /// The sessions that were open when the pair was recovered, until its worker has taken note.
    sessions_open: Vec<SessionId>,
    checkpointed: Csn,
    log_bytes_recovered: u64,
    recoveries: u32,
    /// Until it, or one that is as long, would be carried out.
    pub(crate) refused: Option<Refused>,
    pub(crate) checking: bool,
    pub(crate) grant_chunk_bytes: u64,
    pub(crate) split_fill_percent: usize,
    /// A meganode that has come to the fill at which it is to be split.
    pub(crate) nearly_full: Option<SlotIndex>,
    /// Slots of adoptions that have logged nothing yet.
    pub(crate) reserved: BTreeSet<SlotIndex>,
    pub(crate) compaction_permille: usize,
    pub(crate) compactions: CompactionCounts,
    pub(crate) packing: Packing,
    // Scratch, kept from operation to operation.
    pub(crate) plan: Plan,
    pub(crate) compaction_plan: CompactionPlan,
    pub(crate) encoder: ExtentEncoder,
    pub(crate) reader: RefCell<ExtentReader>,
    pub(crate) scan_buffers: Cell<Option<Box<ScanBuffers>>>,
}

impl<O> std::fmt::Debug for Pair<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("id", &self.id).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Pair {
    /// Takes over what recovery made.
    #[must_use]
    pub fn new(recovered: Recovered, options: &PairOptions) -> Pair {
        Pair::observed(recovered, options, ())
    }
}

impl<O: MemoryObserver> Pair<O> {
    /// As [`Pair::new`]; the observer is called between any two changes of memory.
    #[must_use]
    pub fn observed(recovered: Recovered, options: &PairOptions, observer: O) -> Pair<O> {
        let memory = PairMemory::new(recovered.memory, recovered.geometry, observer);
        let node = memory.node().spec();
        let mut meganodes = Meganodes::new(recovered.geometry, node.id, node.slots());
        for found in recovered.meganodes {
            let holds = (found.stats.entries, found.extent_bytes);
            meganodes.add(found.slot.index, found.allocator, holds);
            match found.used {
                SlotUse::Router => meganodes.set_router(found.slot.index),
                // What was deleted before is not known.
                SlotUse::Leaf | SlotUse::Free => meganodes.note_sparse(found.slot.index),
            }
        }
        let mut pair = Pair {
            id: recovered.pair,
            epoch: recovered.epoch,
            memory,
            log: CommitLog::new(recovered.log, recovered.csn_cut, options.durability),
            meganodes,
            extents: recovered.extents,
            completions: recovered.completions,
            splits: recovered.splits,
            grace: GraceQueue::new(options.reuse_grace_ns),
            sessions_open: recovered.sessions.sessions,
            checkpointed: recovered.csn_checkpoint,
            log_bytes_recovered: recovered.log_bytes,
            recoveries: recovered.recoveries,
            refused: None,
            checking: false,
            grant_chunk_bytes: options.grant_chunk_bytes,
            split_fill_percent: options.split_fill_percent,
            nearly_full: None,
            reserved: BTreeSet::new(),
            compaction_permille: options.compaction_permille,
            compactions: CompactionCounts::default(),
            packing: Packing::default(),
            plan: Plan::new(),
            compaction_plan: CompactionPlan::new(),
            encoder: ExtentEncoder::new(),
            reader: RefCell::new(ExtentReader::new()),
            scan_buffers: Cell::default(),
        };
        pair.keep_to_grants();
        pair
    }

    /// Takes over of these options what can change while the pair is served: from the next split, packing and
    /// grant of memory on. Durability and grace stay what they were.
    pub fn apply_live(&mut self, options: &PairOptions) {
        let PairOptions { grant_chunk_bytes, split_fill_percent, compaction_permille, .. } = *options;
        self.grant_chunk_bytes = grant_chunk_bytes;
        (self.split_fill_percent, self.compaction_permille) = (split_fill_percent, compaction_permille);
    }

    /// When its logs are sealed, and when a segment is tried again.
    pub fn set_log_times(&mut self, times: LogTimes) {
        self.log.set_times(times);
    }

    /// The pair's id.
    #[must_use]
    pub fn id(&self) -> PairId {
        self.id
    }

    /// The epoch in which it is owned.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Bytes of a tree node.
    #[must_use]
    pub fn tree_node_bytes(&self) -> usize {
        self.memory.geometry().node_bytes()
    }

    /// How far each meganode's nodes go, as others may ask at any time.
    #[must_use]
    pub fn slot_ends(&self) -> Arc<SlotEnds> {
        self.meganodes.ends()
    }

    /// Slots with their fences, of all meganodes of entries that readers may enter.
    ///
    /// # Errors
    /// A tree is damaged.
    pub fn fences(&self) -> Result<Vec<(SlotIndex, Fences)>, PairError> {
        self.meganodes.fences(self.memory.node())
    }

    /// Results of writes, by session.
    pub fn completions(&mut self) -> &mut CompletionTable {
        &mut self.completions
    }

    /// Memory that results of writes take.
    #[must_use]
    pub fn result_bytes(&self) -> usize {
        self.completions.bytes()
    }

    /// The sessions that were open after the pair's claim, ascending: results of others were forgotten. Once.
    pub fn take_sessions_open(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.sessions_open)
    }

    /// Log bytes that the recovery replayed.
    #[must_use]
    pub fn log_bytes_recovered(&self) -> u64 {
        self.log_bytes_recovered
    }

    /// Earlier owners since the last checkpoint, whose logs are kept.
    #[must_use]
    pub fn recoveries(&self) -> u32 {
        self.recoveries
    }

    /// Bytes that a checkpoint would hold, about.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.meganodes.nodes_used() * self.tree_node_bytes() as u64 + self.extents.stats().live_bytes
    }

    /// Why a write found no room and was refused, until one that is as long finds room again, or there is
    /// room for it.
    #[must_use]
    pub fn no_room(&self) -> Option<NoRoom> {
        self.refused.map(|refused| refused.why)
    }

    /// What the pages of node and extent region are.
    #[must_use]
    pub fn backing(&self) -> [&'static str; 2] {
        [self.memory.node().backing().name(), self.memory.extent().backing().name()]
    }

    /// Sizes, as of now.
    #[must_use]
    pub fn figures(&self) -> PairFigures {
        let (node, extent, extents) = (self.memory.node(), self.memory.extent(), self.extents.stats());
        PairFigures {
            entries: self.entries(),
            tree_nodes: self.meganodes.nodes_used(),
            tree_node_bytes: self.tree_node_bytes() as u64,
            node_region_bytes: node.spec().bytes,
            extents_live_bytes: extents.live_bytes,
            extents_allocated_bytes: extents.allocated_bytes,
            extents_slots_free_bytes: extents.slots_free_bytes,
            extents_free_bytes: extents.free_bytes,
            extent_region_bytes: extent.spec().bytes,
            granted_bytes: self.granted_bytes(),
            populated_bytes: node.populated_bytes() + extent.populated_bytes(),
            huge_page_bytes: node.huge_bytes() + extent.huge_bytes(),
            grace_bytes: self.grace.bytes(),
            completions: self.completions.results() as u64,
            compactions: self.compactions,
            packings: self.packing.counts,
        }
    }

    /// The pair's memory, for checkpoints and checks: readers like any other.
    #[must_use]
    pub fn source(&self) -> ImageSource {
        self.memory.source(self.id, self.epoch)
    }

    /// Whether the log surely takes what an operation appends. Only then may it begin.
    pub(crate) fn log_room(&mut self, need: &LogNeed) -> Result<(), NoRoom> {
        let room = self.log.room(need);
        if room == Err(NoRoom::DiskFull) {
            self.refused_for(NoRoom::DiskFull, need, 0);
        }
        room
    }

    /// A write was refused that wants so much of the logs, and an extent of a length if that is what there
    /// was no place for.
    pub(crate) fn refused_for(&mut self, why: NoRoom, need: &LogNeed, extent_bytes: u32) {
        let need = self.refused.map_or(*need, |refused| refused.need.longest(need));
        self.refused = Some(Refused { why, need, extent_bytes });
    }

    /// A write that wants so many bytes of the extent log was carried out: shorter ones find room, too.
    pub(crate) fn found_room(&mut self, log_bytes: usize) {
        self.refused = self.refused.filter(|refused| refused.need.extent_bytes > log_bytes);
    }

    fn has_room_again(&self, refused: &Refused) -> bool {
        match refused.why {
            // Not that the disk is only being asked: a segment that it has been asked for is none yet.
            NoRoom::DiskFull => self.log.has_space_for(&refused.need),
            NoRoom::Region => refused.extent_bytes > 0 && self.extents.can_allocate(refused.extent_bytes),
            NoRoom::Slot | NoRoom::LogBusy => false,
        }
    }

    /// As [`Pair::log_room`], for the owner's own work: writes are not refused for it.
    pub(crate) fn log_room_apart(&mut self, need: &LogNeed) -> Result<(), NoRoom> {
        self.log.room(need)
    }

    /// Whether the disk has no room for the log's next segment.
    #[must_use]
    pub fn is_log_short(&self) -> bool {
        self.log.is_short()
    }

    /// Whether a checkpoint helps if the disk has, or will have, no room for the log's next segment.
    #[must_use]
    pub fn can_be_reclaimed(&self) -> bool {
        self.log.can_be_reclaimed()
    }

    /// A checkpoint will make room for the log, or none will: writes wait, or are refused. What it was
    /// before.
    pub fn set_reclaim_expected(&mut self, expected: bool) -> bool {
        self.log.set_reclaim_expected(expected)
    }

    /// Whether a write was kept back for want of log space, which a checkpoint can make.
    #[must_use]
    pub fn needs_reclaim(&self) -> bool {
        self.log.needs_reclaim()
    }

    /// Bytes of log that a checkpoint gives back, and of the longest segments.
    #[must_use]
    pub fn log_bytes_closed(&self) -> (u64, u64) {
        self.log.closed_bytes()
    }

    /// Whether a write with such a value has to wait: for the batch in flight, the next segment, a checkpoint
    /// that makes room for it, or a check.
    pub fn write_must_wait(&mut self, slot: SlotIndex, value_bytes: usize) -> bool {
        let need = LogNeed::put(0, value_bytes, self.memory.geometry(), self.meganodes.height(slot));
        self.checking || self.log_room(&need) == Err(NoRoom::LogBusy)
    }

    /// Whether there is a log at all.
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.log.is_kept()
    }

    /// The last CSN handed out.
    #[must_use]
    pub fn appended(&self) -> Csn {
        self.log.appended()
    }

    /// The durable watermark; without a log, what has been written.
    #[must_use]
    pub fn durable(&self) -> Csn {
        self.log.durable()
    }

    /// Up to which CSN damage to the log is found; above, that of the last batch looks like a torn write.
    #[must_use]
    pub fn sealed(&self) -> Csn {
        self.log.sealed()
    }

    /// Has what is durable up to here sealed soon.
    pub fn want_seal(&mut self, upto: Csn) {
        self.log.want_seal(upto);
    }

    /// Up to which CSN readers may see.
    #[must_use]
    pub fn visible(&self) -> Csn {
        self.log.visible()
    }

    /// Whether a write of its log is on its way to the disk.
    #[must_use]
    pub fn is_log_busy(&self) -> bool {
        self.log.is_busy()
    }

    /// Bytes of records that are not durable yet.
    #[must_use]
    pub fn log_bytes_pending(&self) -> u64 {
        self.log.bytes_pending()
    }

    /// The segments of the node log and of the extent log, as this owner has written them; none without logs.
    #[must_use]
    pub fn log_segments(&self) -> Option<[LogSegments; 2]> {
        self.log.segments()
    }

    /// What the log has counted; nothing without one.
    #[must_use]
    pub fn log_counts(&self) -> LogCounts {
        self.log.counts()
    }

    /// Whether nothing waits for the log.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.log.is_idle()
    }

    /// Memory holds everything up to `csn`: what is visible at once is.
    pub(crate) fn written(&mut self, csn: Csn) {
        if let Some((durable, visible)) = self.log.raised_by(csn) {
            self.memory.set_watermark(durable, visible);
        }
    }

    /// Submits the batch that filled, unless one is in flight: its last CSN, if it was submitted.
    ///
    /// # Errors
    /// The log failed, for good.
    pub fn submit(&mut self, device: &mut dyn LogDevice) -> Result<Option<Csn>, WalError> {
        self.log.submit(device)
    }

    /// Seals an idle log, tries again what failed for a shortage.
    ///
    /// # Errors
    /// The log failed, for good.
    pub fn log_tick(&mut self, now_ns: u64, device: &mut dyn LogDevice) -> Result<(), WalError> {
        self.log.tick(now_ns, device)?;
        if self.refused.is_some_and(|refused| self.has_room_again(&refused)) {
            self.refused = None;
        }
        Ok(())
    }

    /// Takes an event of the device; says what became durable. The watermarks in memory are raised.
    ///
    /// # Errors
    /// The log failed, for good.
    pub fn log_event(
        &mut self,
        event: LogEvent,
        device: &mut dyn LogDevice,
    ) -> Result<Option<SyncedBatch>, WalError> {
        let Some((batch, durable)) = self.log.on_event(event, device)? else { return Ok(None) };
        self.memory.set_watermark(durable, self.log.visible());
        Ok(Some(batch))
    }

    /// Tree nodes that copiers of images have come to so far: it grows while an image is written.
    #[must_use]
    pub fn image_nodes_copied(&self) -> u64 {
        self.memory.copied()
    }

    /// The base of the last checkpoint that is recorded.
    #[must_use]
    pub fn checkpointed(&self) -> Csn {
        self.checkpointed
    }

    /// What an image begins with.
    #[must_use]
    pub fn image_base(&self) -> ImageBase {
        ImageBase::capture(self.durable(), self.appended(), self.root(), &self.completions, &self.splits)
    }

    /// A checkpoint with base `base` is recorded: log below it may go.
    pub fn release_log(&mut self, base: Csn, device: &mut dyn LogDevice) {
        self.checkpointed = base;
        let base = if planted(Mutant::ReleaseTooMuch) { self.durable() } else { base };
        self.log.release_below(base, device);
    }

    /// Whether a check walks the trees.
    #[must_use]
    pub fn is_checking(&self) -> bool {
        self.checking
    }

    /// A check begins: writes wait, reads go on.
    pub fn begin_check(&mut self) {
        self.checking = true;
    }

    /// The trees have been walked: writes may go on.
    pub fn end_check(&mut self) {
        self.checking = false;
    }

    /// Hands back what was freed durably and whose grace period is over, a bounded part of it. Whether that
    /// was anything. `now_ns` is read after the last event that was reported to the pair: the grace period of
    /// what has become durable since the last call begins now.
    pub fn reuse(&mut self, now_ns: u64) -> bool {
        let durable = self.durable();
        self.splits.prune_slots(durable);
        // Who asks for one that is forgotten is answered that it is over: that must not be taken back.
        let is_early = planted(Mutant::SplitPrunedEarly);
        self.splits.forget_over(if is_early { self.appended() } else { self.sealed() });
        let mut any = false;
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
}
