//! The meganodes of a pair: one a slot in use, each with its free tree nodes and its count of entries.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cell_memory::Region;
use cell_terms::{RegionId, SlotIndex};
use cell_tree::{Geometry, LeafSnapshot, Meganode, MeganodeRole, NodeIndex, ReadError, Slot, SlotAllocator};

use crate::error::PairError;

/// How far the tree nodes of each slot go, as its owner announces and others may ask at any time: a
/// checkpoint's copier and checks. Zero: the slot holds nothing.
#[derive(Debug)]
pub struct SlotEnds {
    ends: Box<[AtomicU32]>,
    routers: Box<[AtomicBool]>,
}

impl SlotEnds {
    fn new(slots: u32) -> SlotEnds {
        let ends = (0..slots).map(|_| AtomicU32::new(0)).collect();
        SlotEnds { ends, routers: (0..slots).map(|_| AtomicBool::new(false)).collect() }
    }

    /// Whether a slot holds a router: its entries lead to meganodes.
    #[must_use]
    pub fn is_router(&self, slot: SlotIndex) -> bool {
        let router = usize::try_from(slot.0).ok().and_then(|slot| self.routers.get(slot));
        router.is_some_and(|router| router.load(Ordering::Acquire))
    }

    /// New tree nodes are about to become reachable.
    pub(crate) fn announce(&self, slot: SlotIndex, end: NodeIndex) {
        self.set(slot, end);
    }

    /// One above the slot's highest tree node that was ever in use.
    #[must_use]
    pub fn end(&self, slot: SlotIndex) -> NodeIndex {
        NodeIndex(self.of(slot).map_or(0, |end| end.load(Ordering::Acquire)))
    }

    /// The slots that hold something.
    pub fn used(&self) -> impl Iterator<Item = SlotIndex> + '_ {
        (0u32..)
            .zip(&self.ends)
            .filter(|(_, end)| end.load(Ordering::Acquire) > 0)
            .map(|(slot, _)| SlotIndex(slot))
    }

    fn of(&self, slot: SlotIndex) -> Option<&AtomicU32> {
        usize::try_from(slot.0).ok().and_then(|slot| self.ends.get(slot))
    }

    fn set(&self, slot: SlotIndex, end: NodeIndex) {
        if let Some(of) = self.of(slot) {
            of.store(end.0, Ordering::Release);
        }
    }
}

/// A meganode in its owner's hands.
#[derive(Debug)]
pub(crate) struct OwnedMeganode {
    pub(crate) allocator: SlotAllocator,
    pub(crate) entries: u64,
    /// Bytes of its entries' extents; a router's have none.
    pub(crate) extent_bytes: u64,
    /// Tree nodes that were freed and wait for their reuse.
    pub(crate) resting: usize,
    /// Entries removed since a compaction looked at it.
    pub(crate) removed: u64,
    /// Writes of clients since the owner has it.
    pub(crate) writes: u64,
    /// It is to be looked at.
    noted: bool,
}

impl OwnedMeganode {
    /// Tree nodes in use, those that rest left out.
    pub(crate) fn nodes_used(&self) -> usize {
        self.allocator.nodes_used().saturating_sub(self.resting)
    }
}

/// The range of a meganode: its root's fences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fences {
    /// Keys at or above this.
    pub low: Box<[u8]>,
    /// Keys below this; `None` for plus infinity.
    pub high: Option<Box<[u8]>>,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Meganodes {
    geometry: Geometry,
    region: RegionId,
    slots: Vec<Option<OwnedMeganode>>,
    ends: Arc<SlotEnds>,
    /// Reads by the owner for clients, by slot. Apart from the meganodes: a read touches nothing else of
    /// them.
    reads: Box<[Cell<u64>]>,
    /// One-sided reads that clients report, by slot.
    reported_reads: Box<[u64]>,
    /// Meganodes that a compaction should look at, in their order.
    sparse: VecDeque<SlotIndex>,
    /// Slots that were freed and wait for their reuse.
    slots_resting: usize,
}

/// Entries removed for each tree node in use that make a meganode worth a look.
const REMOVED_A_NODE: u64 = 2;

impl Meganodes {
    pub(crate) fn new(geometry: Geometry, region: RegionId, slots: u32) -> Meganodes {
        let ends = Arc::new(SlotEnds::new(slots));
        let reads = (0..slots).map(|_| Cell::new(0)).collect();
        let reported_reads = (0..slots).map(|_| 0).collect();
        let slots = (0..slots).map(|_| None).collect();
        let (sparse, slots_resting) = (VecDeque::new(), 0);
        Meganodes { geometry, region, slots, ends, reads, reported_reads, sparse, slots_resting }
    }

    /// A slot holds a meganode from here on.
    pub(crate) fn add(
        &mut self,
        slot: SlotIndex,
        allocator: SlotAllocator,
        (entries, extent_bytes): (u64, u64),
    ) {
        self.ends.set(slot, allocator.high_water());
        if let Some(owned) = usize::try_from(slot.0).ok().and_then(|slot| self.slots.get_mut(slot)) {
            let (resting, removed, writes, noted) = (0, 0, 0, false);
            *owned =
                Some(OwnedMeganode { allocator, entries, extent_bytes, resting, removed, writes, noted });
        }
    }

    pub(crate) fn ends(&self) -> Arc<SlotEnds> {
        self.ends.clone()
    }

    #[inline]
    pub(crate) fn get(&self, slot: SlotIndex) -> Option<&OwnedMeganode> {
        usize::try_from(slot.0).ok().and_then(|slot| self.slots.get(slot)).and_then(Option::as_ref)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: SlotIndex) -> Option<&mut OwnedMeganode> {
        usize::try_from(slot.0).ok().and_then(|slot| self.slots.get_mut(slot)).and_then(Option::as_mut)
    }

    fn used(&self) -> impl Iterator<Item = (SlotIndex, &OwnedMeganode)> {
        let slots = (0u32..).zip(&self.slots);
        slots.filter_map(|(slot, owned)| owned.as_ref().map(|owned| (SlotIndex(slot), owned)))
    }

    /// All of them, which are somebody else's from here on.
    pub(crate) fn take_all(&mut self) -> Vec<(SlotIndex, OwnedMeganode)> {
        let slots = (0u32..).map(SlotIndex).zip(std::mem::take(&mut self.slots));
        slots.filter_map(|(slot, owned)| Some((slot, owned?))).collect()
    }

    /// Levels of a meganode's tree.
    pub(crate) fn height(&self, slot: SlotIndex) -> u8 {
        self.get(slot).map_or(1, |owned| owned.allocator.height())
    }

    /// Shows copiers how far the slot's nodes go, before new ones become reachable.
    pub(crate) fn announce(&self, slot: SlotIndex) {
        if let Some(owned) = self.get(slot) {
            self.ends.set(slot, owned.allocator.high_water());
        }
    }

    /// Entries were added, or with a negative number removed.
    pub(crate) fn count(&mut self, slot: SlotIndex, added: i64) {
        if let Some(owned) = self.get_mut(slot) {
            owned.entries = owned.entries.saturating_add_signed(added);
        }
    }

    /// Extents of so many bytes have come to a meganode's entries, and others have gone.
    #[inline]
    pub(crate) fn weigh(&mut self, slot: SlotIndex, come: u64, gone: u64) {
        if let Some(owned) = self.get_mut(slot) {
            owned.extent_bytes = (owned.extent_bytes + come).saturating_sub(gone);
        }
    }

    /// An entry was removed.
    pub(crate) fn removed(&mut self, slot: SlotIndex) {
        let Some(owned) = self.get_mut(slot) else { return };
        owned.entries = owned.entries.saturating_sub(1);
        owned.removed += 1;
        // One that is empty becomes one tree node, so that it can be merged.
        let is_emptied = owned.entries == 0 && owned.allocator.height() > 1;
        if !owned.noted && (is_emptied || owned.removed >= REMOVED_A_NODE * owned.nodes_used() as u64) {
            self.note_sparse(slot);
        }
    }

    /// A compaction should look at a meganode.
    pub(crate) fn note_sparse(&mut self, slot: SlotIndex) {
        if let Some(owned) = self.get_mut(slot)
            && !std::mem::replace(&mut owned.noted, true)
        {
            self.sparse.push_back(slot);
        }
    }

    /// The next meganode that a compaction should look at.
    pub(crate) fn take_sparse(&mut self) -> Option<SlotIndex> {
        while let Some(slot) = self.sparse.pop_front() {
            if let Some(owned) = self.get_mut(slot).filter(|owned| owned.noted) {
                (owned.noted, owned.removed) = (false, 0);
                return Some(slot);
            }
        }
        None
    }

    /// What the meganode in a slot is.
    pub(crate) fn role(&self, slot: SlotIndex) -> MeganodeRole {
        if self.ends.is_router(slot) { MeganodeRole::Router } else { MeganodeRole::Data }
    }

    /// A slot's meganode leads to others.
    pub(crate) fn set_router(&self, slot: SlotIndex) {
        if let Some(router) = usize::try_from(slot.0).ok().and_then(|slot| self.ends.routers.get(slot)) {
            router.store(true, Ordering::Release);
        }
    }

    /// So many tree nodes of a meganode are free and wait for their reuse.
    pub(crate) fn rest(&mut self, slot: SlotIndex, nodes: usize) {
        if let Some(owned) = self.get_mut(slot) {
            owned.resting += nodes;
        }
    }

    /// A tree node's grace period is over.
    pub(crate) fn free_node(&mut self, slot: SlotIndex, node: NodeIndex) {
        if let Some(owned) = self.get_mut(slot) {
            owned.allocator.free(node);
            owned.resting = owned.resting.saturating_sub(1);
        }
    }

    /// A slot is free and waits for its reuse.
    pub(crate) fn rest_slot(&mut self) {
        self.slots_resting += 1;
    }

    /// Whether slots wait for their reuse.
    pub(crate) fn has_resting_slot(&self) -> bool {
        self.slots_resting > 0
    }

    /// A slot's grace period is over: it holds nothing.
    pub(crate) fn free_slot(&mut self, slot: SlotIndex) {
        self.slots_resting = self.slots_resting.saturating_sub(1);
        let Ok(at) = usize::try_from(slot.0) else { return };
        if let (Some(owned), Some(router)) = (self.slots.get_mut(at), self.ends.routers.get(at)) {
            *owned = None;
            router.store(false, Ordering::Release);
        }
        self.ends.set(slot, NodeIndex(0));
    }

    /// Whether so many percent of a meganode's tree nodes are in use, so that it is to be split. A router is
    /// not, however full: readers go by right links then. (Drills with slots of 128 tree nodes found a worker
    /// that tried, and so did each that followed it.)
    pub(crate) fn is_nearly_full(&self, slot: SlotIndex, percent: usize) -> bool {
        let nearly_full = |owned: &OwnedMeganode| owned.nodes_used() * 100 >= self.geometry.nodes() * percent;
        !self.ends.is_router(slot) && self.get(slot).is_some_and(nearly_full)
    }

    /// The owner has read so often in a meganode for clients.
    #[inline]
    pub(crate) fn count_reads(&self, slot: SlotIndex, count: u64) {
        if let Some(reads) = usize::try_from(slot.0).ok().and_then(|slot| self.reads.get(slot)) {
            reads.set(reads.get() + count);
        }
    }

    /// A client reports one-sided reads in a slot; false if it holds no meganode of entries.
    pub(crate) fn count_reported_reads(&mut self, slot: SlotIndex, count: u64) -> bool {
        if self.ends.is_router(slot) || self.get(slot).is_none() {
            return false;
        }
        let reported = usize::try_from(slot.0).ok().and_then(|slot| self.reported_reads.get_mut(slot));
        if let Some(reported) = reported {
            *reported = reported.saturating_add(count);
            return true;
        }
        false
    }

    /// One-sided reads in a slot's meganodes that clients have reported, since the owner has the pair.
    pub(crate) fn reported_reads(&self, slot: SlotIndex) -> u64 {
        usize::try_from(slot.0)
            .ok()
            .and_then(|slot| self.reported_reads.get(slot))
            .map_or(0, |reported| *reported)
    }

    /// Reads by the owner for clients in all slots, and one-sided ones that clients have reported, since the
    /// owner has the pair.
    pub(crate) fn reads_counted(&self) -> (u64, u64) {
        let reads = self.reads.iter().fold(0_u64, |sum, reads| sum.saturating_add(reads.get()));
        let reported = self.reported_reads.iter().fold(0_u64, |sum, reported| sum.saturating_add(*reported));
        (reads, reported)
    }

    /// Reads by the owner for clients in a slot's meganodes, since the owner has the pair.
    pub(crate) fn reads(&self, slot: SlotIndex) -> u64 {
        usize::try_from(slot.0).ok().and_then(|slot| self.reads.get(slot)).map_or(0, Cell::get)
    }

    pub(crate) fn nodes_used(&self) -> u64 {
        self.used().map(|(_, owned)| owned.allocator.nodes_used() as u64).sum()
    }

    /// The slots of which fewer tree nodes have memory and are free, though more could be granted.
    pub(crate) fn short_of(&self, nodes: usize) -> impl Iterator<Item = SlotIndex> + '_ {
        let short = move |owned: &OwnedMeganode| {
            owned.allocator.can_be_granted_more() && owned.allocator.nodes_free() < nodes
        };
        self.used().filter(move |(_, owned)| short(owned)).map(|(slot, _)| slot)
    }

    /// The ranges of meganodes of entries that can be read, as their outermost leaves say.
    pub(crate) fn fences(&self, node: &Region) -> Result<Vec<(SlotIndex, Fences)>, PairError> {
        let mut leaf = LeafSnapshot::new();
        self.used()
            .filter(|(slot, _)| !self.ends.is_router(*slot))
            .filter_map(|(slot, _)| {
                let there = Slot { region: self.region, index: slot };
                let meganode = Meganode::new(node, self.geometry, there);
                match meganode.leaf_first(&mut leaf) {
                    Err(ReadError::NotHere) => return None, // hidden: no reader's business yet
                    Err(error) => return Some(Err(error.into())),
                    Ok(()) => {}
                }
                let low = leaf.low().into();
                let high = meganode.leaf_last(&mut leaf).map(|()| leaf.high().map(Into::into));
                Some(high.map(|high| (slot, Fences { low, high })).map_err(Into::into))
            })
            .collect()
    }
}
