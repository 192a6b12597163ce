//! The store's side of splits: steps into the log and the table of splits, truncating the source's half,
//! showing and freeing meganodes, the router's entries. When each may happen is `crate::split`'s to know.

use cell_recovery::{BoundaryNodes, NodeRecord, SlotUse, SourceState, SplitName, SplitRecord, SplitTable};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, ExtentOffset, PairId, Pointer, Root, SlotIndex};
use cell_tree::{
    Change, Division, Image, LeafEntry, MeganodeRole, NodeIndex, PlanError, SlotAllocator, SplitPlan,
};

use crate::error::{NoRoom, PairError, WriteError};
use crate::figures::MeganodeFigures;
use crate::grace::Freed;
use crate::log::LogNeed;
use crate::memory::MemoryObserver;
use crate::pair::Pair;
use crate::read::shape_of;
use crate::write::extent_bytes_of;

/// Extents of a half that was truncated away, which go to the grace queue a part at a time.
#[derive(Debug)]
pub struct TruncatedHalf {
    csn: Csn,
    extents: Vec<(ExtentOffset, u32)>,
}

/// Whether a key has become a fence between two leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// It is one.
    Done,
    /// The log has no room now, or somebody reads the whole pair: ask again later.
    Waits,
    /// It cannot be one: the slot or the disk has no room for it.
    Refused,
}

impl<O: MemoryObserver> Pair<O> {
    /// The splits and slots of the pair, as the log has them.
    pub fn split_table(&self) -> &SplitTable {
        &self.splits
    }

    /// The pair has finished a split as its target: the source asks for it no more.
    pub fn forget_split(&mut self, name: SplitName) {
        self.splits.forget(name);
    }

    /// The pointer to a meganode's root tree node.
    pub fn pointer(&self, slot: SlotIndex) -> Pointer {
        self.memory.pointer(slot)
    }

    /// The pointer to a meganode's root tree node in another pair: all have the same sizes.
    pub fn pointer_to(&self, pair: PairId, index: SlotIndex) -> Pointer {
        self.memory.geometry().pointer(cell_tree::Slot { region: pair.node_region(), index }, NodeIndex::ROOT)
    }

    /// Where the keys behind a meganode are.
    pub fn right_of(&self, slot: SlotIndex) -> Option<Pointer> {
        let right = self.meganode(slot).right_link(NodeIndex::ROOT).ok()?;
        Some(right).filter(|right| !right.is_null())
    }

    /// Entries of the meganodes that this pair answers for.
    pub(crate) fn entries(&self) -> u64 {
        let leaves = self.leaf_slots().into_iter().filter(|slot| !self.splits.is_hidden(*slot));
        leaves.filter_map(|slot| self.meganodes.get(slot)).map(|owned| owned.entries).sum()
    }

    /// Where the tree begins, if this pair keeps that.
    pub fn root(&self) -> Root {
        Root::from_word(self.memory.node().first_word())
    }

    /// The slot that a pointer to a root tree node of this pair names.
    pub(crate) fn slot_of(&self, pointer: Pointer) -> Option<SlotIndex> {
        self.memory.slot_of(pointer)
    }

    /// Slots of the node region.
    pub fn slot_count(&self) -> u32 {
        self.memory.node().spec().slots()
    }

    /// Slots that can be used at once.
    pub fn free_slots(&self) -> impl Iterator<Item = SlotIndex> + '_ {
        let unused = |slot: &SlotIndex| self.meganodes.get(*slot).is_none() && !self.reserved.contains(slot);
        let listed = |slot: &SlotIndex| {
            // One that is merged away is free before the router has forgotten it.
            let merges = self.splits.source_of(*slot).is_some() && !planted(Mutant::MergedSlotReusedEarly);
            self.splits.slot_use(*slot) != SlotUse::Free || merges
        };
        (0..self.slot_count()).map(SlotIndex).filter(move |slot| unused(slot) && !listed(slot))
    }

    /// Keeps a slot that can be used for an adoption that has logged nothing yet. False if it cannot be used.
    /// Without that the first router takes it:
    ///
    /// 1. the log is slow, and the `Opened` of one split becomes durable with the `Start` of the next;
    /// 2. the second split's target is asked to adopt, and logs that with its next step, or later;
    /// 3. the first split's entry wants a router, which takes the first free slot in the same step.
    pub fn reserve_slot(&mut self, slot: SlotIndex) -> bool {
        let free = self.free_slots().any(|free| free == slot);
        free && (planted(Mutant::SlotUnreserved) || self.reserved.insert(slot))
    }

    /// Whether the log surely takes a step with so many bytes of keys and the like.
    pub fn step_room(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.log_room(&LogNeed::step(bytes))
    }

    /// Logs a step and notes it in the table of splits and the completion table. [`Pair::step_room`] was
    /// asked.
    pub fn append_step(&mut self, record: &NodeRecord<'_>) -> Csn {
        let csn = self.log.append_node(record);
        let applied = self.splits.apply(record, self.epoch, csn);
        assert!(applied.is_ok(), "a step that does not follow: {applied:?}");
        if let NodeRecord::Split(step) = record {
            let kept = self.completions.apply(step, csn);
            assert!(kept.is_ok(), "results that came with an adoption cannot be read: {kept:?}");
        }
        self.written(csn);
        csn
    }

    /// Logs a step of a split, if there is room.
    pub fn try_step(&mut self, record: SplitRecord<'_>, bytes: usize) -> Option<Csn> {
        self.step_room(bytes).ok()?;
        Some(self.append_step(&NodeRecord::Split(record)))
    }

    /// Where a meganode can be split: the fence between two leaves that leaves so many percent of them.
    pub fn split_key(&self, slot: SlotIndex, left_percent: usize) -> Option<Vec<u8>> {
        self.meganode(slot).split_key(left_percent).ok().flatten()
    }

    /// Where a meganode can be split so that entries with about so many bytes of extents go.
    pub fn division(&self, slot: SlotIndex, extent_bytes: u64) -> Option<Division> {
        self.meganode(slot).division(extent_bytes, extent_bytes_of).ok().flatten()
    }

    /// Sees to it that a key is a fence between two leaves.
    ///
    /// # Errors
    /// The tree is damaged.
    pub fn fence(&mut self, slot: SlotIndex, key: &[u8]) -> Result<Fencing, PairError> {
        if self.checking {
            return Ok(Fencing::Waits);
        }
        let height = self.meganodes.height(slot);
        self.make_nodes(slot, usize::from(height) + 2);
        match self.log_room_apart(&LogNeed::put(key.len(), 0, self.memory.geometry(), height)) {
            Ok(()) => {}
            Err(NoRoom::LogBusy) => return Ok(Fencing::Waits),
            Err(_) => return Ok(Fencing::Refused),
        }
        let meganode = self.memory.meganode(slot, MeganodeRole::Data);
        let Some(owned) = self.meganodes.get_mut(slot) else { return Err(PairError::NoMeganode(slot)) };
        match cell_tree::plan_fence(&meganode, &mut owned.allocator, key, &mut self.plan) {
            Ok(()) => {}
            Err(PlanError::Full { .. } | PlanError::NoBoundary) => return Ok(Fencing::Refused),
            Err(error) => return Err(PairError::Plan(error)),
        }
        if !self.plan.is_empty() {
            self.change_tree(slot, None);
        }
        Ok(Fencing::Done)
    }

    /// What truncating a meganode at a key would change.
    pub(crate) fn plan_truncation(&self, slot: SlotIndex, key: &[u8]) -> Result<SplitPlan, PairError> {
        self.meganode(slot).plan_meganode_split(key).map_err(PairError::Plan)
    }

    /// Truncates a meganode: logs the step, then changes the boundary nodes and frees the upper half.
    /// `extents` are those of the upper half, where somebody has counted them. `None`: the log has no room
    /// now.
    pub fn truncate(
        &mut self,
        name: SplitName,
        slot: SlotIndex,
        key: &[u8],
        right: Pointer,
        extents: Option<Vec<(ExtentOffset, u32)>>,
    ) -> Result<Option<TruncatedHalf>, PairError> {
        let linked = self
            .splits
            .source(name)
            .is_some_and(|split| split.state == SourceState::Linked && split.csn <= self.durable());
        assert!(linked, "{name} is truncated before it is linked durably");
        let plan = self.plan_truncation(slot, key)?;
        let bits = plan.freed.bits();
        if self.step_room(key.len() + bits.bytes.len() + 4 * plan.boundary.len()).is_err() {
            return Ok(None);
        }
        let boundary = BoundaryNodes::new(&plan.boundary).ok_or(PairError::NoMeganode(slot))?;
        let record = SplitRecord::Applied { name, slot, right, boundary, high: key, freed: bits };
        let csn = self.append_step(&NodeRecord::Split(record));
        let extents = extents.unwrap_or_else(|| self.extents_of(slot, plan.leaves.iter().copied()));
        self.meganodes.count(slot, -i64::try_from(extents.len()).unwrap_or(0));
        self.meganodes.weigh(slot, 0, extents.iter().map(|(_, bytes)| u64::from(*bytes)).sum());
        for node in boundary.nodes() {
            self.memory.change_node(slot, &Change::Truncate { node: *node, high: key, right }, csn);
        }
        self.memory.free_nodes(slot, bits.iter(), csn);
        self.meganodes.rest(slot, bits.len());
        let freed_by = if planted(Mutant::TruncatedHalfUnrested) { Csn::ZERO } else { csn };
        for node in bits.iter() {
            self.grace.push(freed_by, Freed::Node(slot, node));
        }
        Ok(Some(TruncatedHalf { csn, extents }))
    }

    /// The extents of leaves that are in use.
    fn extents_of(
        &self,
        slot: SlotIndex,
        nodes: impl Iterator<Item = NodeIndex>,
    ) -> Vec<(ExtentOffset, u32)> {
        let mut entries: Vec<LeafEntry> = Vec::new();
        let meganode = self.meganode(slot);
        nodes.for_each(|node| meganode.leaf_entries(node, &mut entries));
        let extents = entries.iter().filter(|entry| entry.offset.0 != 0);
        extents.filter_map(|entry| Some((entry.offset, shape_of(entry)?.extent_bytes()))).collect()
    }

    /// Gives a part of a truncated half to the grace queue; true when nothing is left of it.
    pub fn rest_truncated_half(&mut self, half: &mut TruncatedHalf, extents_max: usize) -> bool {
        let keep = half.extents.len().saturating_sub(extents_max);
        let freed_by = if planted(Mutant::TruncatedHalfUnrested) { Csn::ZERO } else { half.csn };
        for (offset, bytes) in half.extents.drain(keep..) {
            self.grace.push(freed_by, Freed::Extent(offset, bytes));
        }
        half.extents.is_empty()
    }

    /// Makes tree nodes of an adopted meganode readable, from `from` on, at most so many; the root comes
    /// last. Where to go on; `None` when all are.
    pub fn show(&mut self, slot: SlotIndex, from: NodeIndex, nodes_max: u32) -> Option<NodeIndex> {
        let end = self.meganodes.get(slot).map_or(NodeIndex(0), |owned| owned.allocator.high_water());
        let to = end.0.min(from.0.max(1).saturating_add(nodes_max));
        (from.0.max(1)..to).for_each(|node| self.memory.show(slot, NodeIndex(node)));
        if to < end.0 {
            return Some(NodeIndex(to));
        }
        self.memory.show(slot, NodeIndex::ROOT);
        None
    }

    /// Throws away what was adopted into a slot: logs that, frees its tree nodes and extents. Its slot can be
    /// used again when that is durable and the grace period is over.
    pub fn discard(&mut self, name: SplitName, slot: SlotIndex) -> bool {
        let merges = self.splits.target(name).is_some_and(|split| split.merges);
        let Some(csn) = self.try_step(SplitRecord::Discarded { name, slot }, 0) else { return false };
        if !merges {
            self.free_slot(slot, csn);
        }
        true
    }

    /// A router that the root does not lead to is thrown away.
    pub fn free_router(&mut self, slot: SlotIndex) -> bool {
        if self.step_room(0).is_err() {
            return false;
        }
        let csn = self.append_step(&NodeRecord::SlotUse { slot, used: SlotUse::Free });
        self.free_slot(slot, csn);
        true
    }

    pub(crate) fn free_slot(&mut self, slot: SlotIndex, csn: Csn) {
        // An adoption that a crash cut short left nothing in memory, and its slot is free from here on: what
        // came to rest would wipe the next adoption out. (Seed 232 of the simulator found one lost so.)
        if self.meganodes.get(slot).is_none() {
            return;
        }
        let end = self.meganodes.get(slot).map_or(0, |owned| owned.allocator.high_water().0);
        let extents = self.extents_of(slot, (0..end).map(NodeIndex));
        self.memory.free_nodes(slot, (0..end).map(NodeIndex), csn);
        let freed_by = if planted(Mutant::DiscardedAdoptionUnrested) { Csn::ZERO } else { csn };
        for (offset, bytes) in extents {
            self.grace.push(freed_by, Freed::Extent(offset, bytes));
        }
        self.meganodes.count(slot, i64::MIN);
        self.grace.push(freed_by, Freed::Slot(slot));
        self.meganodes.rest_slot();
    }

    /// Begins a router in a slot: an empty meganode, not reachable before the root is set.
    pub fn begin_router(&mut self, slot: SlotIndex) -> bool {
        if self.log_room(&LogNeed::fills(2, self.memory.geometry())).is_err() || !self.grant_first(slot) {
            return false;
        }
        self.append_step(&NodeRecord::SlotUse { slot, used: SlotUse::Router });
        self.meganodes.add(slot, SlotAllocator::new(self.memory.geometry().nodes()), (0, 0));
        self.take_granted(slot);
        self.meganodes.set_router(slot);
        let image = cell_tree::empty_router(*self.memory.geometry());
        let change = Change::Fill { node: NodeIndex::ROOT, image: Image::new(&image) };
        let csn = self.log.append_node(&NodeRecord::Tree { slot, completion: None, change });
        self.memory.change_node(slot, &change, csn);
        self.written(csn);
        true
    }

    /// Leads keys from `low` on to a meganode. Repeating it changes nothing. The CSN that must be durable
    /// before anybody relies on it.
    pub fn route(&mut self, router: SlotIndex, low: &[u8], to: Pointer) -> Result<Csn, WriteError> {
        let key = if low.is_empty() { &[0][..] } else { low };
        let entry = LeafEntry::to_meganode(to);
        let found = self.meganode(router).search(key).map_err(PairError::Tree)?;
        if found.entry == Some(entry) {
            return Ok(found.csn_changed);
        }
        self.make_room(router, 0);
        let need = LogNeed::put(key.len(), 0, self.memory.geometry(), self.meganodes.height(router));
        self.log_room(&need).map_err(WriteError::NoRoom)?;
        let meganode = self.memory.meganode(router, MeganodeRole::Router);
        let Some(owned) = self.meganodes.get_mut(router) else {
            return Err(PairError::NoMeganode(router).into());
        };
        match cell_tree::plan_put(&meganode, &mut owned.allocator, key, entry, &mut self.plan) {
            Ok(()) => {}
            Err(cell_tree::PlanError::Full { .. }) => return Err(WriteError::NoRoom(NoRoom::Slot)),
            Err(error) => return Err(PairError::Plan(error).into()),
        }
        let added = i64::from(self.plan.old().is_none());
        let last = self.change_tree(router, None);
        self.meganodes.count(router, added);
        Ok(last)
    }

    /// The tree begins elsewhere from here on.
    pub fn set_root(&mut self, root: Root) -> Option<Csn> {
        self.step_room(8).ok()?;
        let csn = self.append_step(&NodeRecord::RootSet(root));
        self.memory.set_root(root);
        Some(csn)
    }

    /// The slot of the router that the root leads to, if it is in this pair.
    pub fn router(&self) -> Option<SlotIndex> {
        let root = self.root();
        root.router.then(|| self.slot_of(root.pointer)).flatten()
    }

    /// The meganode that waits longest for a split of its own, if one does.
    pub fn take_nearly_full(&mut self) -> Option<SlotIndex> {
        self.nearly_full.take()
    }

    /// After tree nodes were split: is the meganode so full that it should be split?
    pub(crate) fn note_nearly_full(&mut self, slot: SlotIndex) {
        if self.meganodes.is_nearly_full(slot, self.split_fill_percent) {
            self.nearly_full = Some(slot);
        }
    }

    /// Whether a meganode should be split, or was truncated and will have room soon.
    pub fn is_nearly_full(&self, slot: SlotIndex) -> bool {
        self.meganodes.is_nearly_full(slot, self.split_fill_percent)
    }

    /// Whether tree nodes of a meganode rest, so that it will have room without anybody's doing.
    pub fn has_resting(&self, slot: SlotIndex) -> bool {
        self.meganodes.get(slot).is_some_and(|owned| owned.resting > 0)
    }

    /// Whether extents rest that a record up to `csn` has freed.
    pub fn has_resting_extents(&self, csn: Csn) -> bool {
        self.grace.oldest_extent().is_some_and(|oldest| oldest <= csn)
    }

    /// Whether a put is sure to find tree nodes, and a place for an extent of this length, in what is
    /// granted. There is none for what has no length.
    pub(crate) fn has_room(&self, slot: SlotIndex, extent_bytes: Option<u32>) -> (bool, bool) {
        let nodes = self.meganodes.get(slot).is_none_or(|owned| owned.allocator.has_room_for_put());
        (nodes, extent_bytes.is_some_and(|bytes| self.extents.can_allocate(bytes)))
    }

    /// Whether a meganode takes part in no split that is not settled: it may be split, or compacted.
    #[must_use]
    pub fn is_settled(&self, slot: SlotIndex) -> bool {
        self.splits.source_of(slot).is_none() && !self.splits.is_closed(slot)
    }

    /// Whether a slot is free and waits for its reuse.
    pub fn has_resting_slot(&self) -> bool {
        self.meganodes.has_resting_slot()
    }

    /// Entries of a meganode, and bytes of their extents.
    pub fn weight(&self, slot: SlotIndex) -> (u64, u64) {
        self.meganodes.get(slot).map_or((0, 0), |owned| (owned.entries, owned.extent_bytes))
    }

    /// Bytes of the extent region that there are.
    pub fn extent_bytes(&self) -> u64 {
        self.extents.stats().capacity_bytes
    }

    /// Size of the extent region, header included.
    pub fn extent_region_bytes(&self) -> u64 {
        self.memory.extent().spec().bytes
    }

    /// Slots that are in use.
    pub fn used_slots(&self) -> Vec<SlotIndex> {
        self.splits.slots().map(|(slot, _)| slot).collect()
    }

    /// A meganode's shape, as status shows it.
    #[must_use]
    pub fn meganode_figures(&self, slot: SlotIndex) -> MeganodeFigures {
        let owned = self.meganodes.get(slot);
        MeganodeFigures {
            used: self.splits.slot_use(slot),
            hidden: self.splits.is_hidden(slot),
            height: owned.map_or(0, |owned| owned.allocator.height()),
            nodes: owned.map_or(0, |owned| owned.nodes_used()),
            nodes_all: self.memory.geometry().nodes(),
            entries: owned.map_or(0, |owned| owned.entries),
            splitting: self.splits.source_of(slot).is_some(),
            writes: owned.map_or(0, |owned| owned.writes),
            reads: self.meganodes.reads(slot),
            reported_reads: self.meganodes.reported_reads(slot),
        }
    }

    /// A client reports so many one-sided reads of a meganode. That is a figure for people: nothing rests on
    /// it. False if the slot holds no meganode of entries.
    pub fn count_reported_reads(&mut self, slot: SlotIndex, count: u64) -> bool {
        self.meganodes.count_reported_reads(slot, count)
    }

    /// Reads that the owner has carried out for clients, and one-sided ones that clients have reported, since
    /// the owner has the pair.
    #[must_use]
    pub fn reads_counted(&self) -> (u64, u64) {
        self.meganodes.reads_counted()
    }

    /// Slots that hold meganodes of entries, adoptions among them.
    pub fn leaf_slots(&self) -> Vec<SlotIndex> {
        self.splits.slots().filter(|(_, used)| *used == SlotUse::Leaf).map(|(slot, _)| slot).collect()
    }
}
