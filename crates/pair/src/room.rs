//! How a pair's allocators come to memory: a chunk of a region at a time, granted by the process's budget
//! before anything is placed there. An operation never asks; who finds no room does, before the operation
//! begins, and so does every tick, ahead of need.
//!
//! Extents leave the last of the budget to tree nodes. A pair that is full can give entries to another pair's
//! free extents only if there is memory for a slot there.

use cell_memory::extent::{ExtentHeader, ExtentShape};
use cell_terms::SlotIndex;
use cell_tree::NodeIndex;

use crate::memory::MemoryObserver;
use crate::pair::Pair;

/// Chunks that the budget must have left for memory to be taken ahead of need.
const AHEAD_CHUNKS_LEFT: u64 = 8;
/// Chunks that extents leave to tree nodes, if that is no more than a part of an extent region.
const RESERVED_CHUNKS: u64 = 2;
const RESERVED_PART: u64 = 4;
/// What a budget grants at a time at least.
const UNIT_BYTES: u64 = 2 << 20;

impl<O: MemoryObserver> Pair<O> {
    /// Keeps the allocators to what the regions have been granted. Asked once, before anything is allocated.
    pub(crate) fn keep_to_grants(&mut self) {
        let extent = self.memory.extent();
        self.extents.close_unless(|range| extent.is_granted(range));
        for slot in (0..self.slot_count()).map(SlotIndex) {
            self.take_granted(slot);
        }
    }

    /// Lets a slot's allocator use what the slot has been granted.
    pub(crate) fn take_granted(&mut self, slot: SlotIndex) {
        let nodes = self.slot_granted_bytes(slot) / self.tree_node_bytes() as u64;
        if let Some(owned) = self.meganodes.get_mut(slot) {
            owned.allocator.set_granted(usize::try_from(nodes).unwrap_or(usize::MAX));
        }
    }

    /// Bytes from the slot's start on that have been granted.
    fn slot_granted_bytes(&self, slot: SlotIndex) -> u64 {
        let begin = self.memory.node_offset(slot, NodeIndex::ROOT);
        (self.memory.node().granted_end(begin) - begin).min(self.memory.geometry().slot_bytes() as u64)
    }

    /// Grants a free slot the memory of its first tree nodes. False: there is none.
    pub fn grant_first(&mut self, slot: SlotIndex) -> bool {
        let begin = self.memory.node_offset(slot, NodeIndex::ROOT);
        self.memory.node().grow(begin..begin + self.tree_node_bytes() as u64).is_ok()
    }

    /// Grants more of a slot, a chunk or what is left of one. Whether there is more now.
    fn grow_slot(&mut self, slot: SlotIndex) -> bool {
        let Some(owned) = self.meganodes.get(slot) else { return false };
        if !owned.allocator.can_be_granted_more() {
            return false;
        }
        let before = owned.allocator.granted();
        let begin = self.memory.node_offset(slot, before);
        let end = self.memory.node_offset(slot, NodeIndex::ROOT) + self.memory.geometry().slot_bytes() as u64;
        for bytes in [self.grown_bytes(), 1] {
            if self.memory.node().grow(begin..(begin + bytes).min(end)).is_ok() {
                break;
            }
        }
        self.take_granted(slot);
        self.meganodes.get(slot).is_some_and(|owned| owned.allocator.granted() > before)
    }

    /// What is granted at a time: little while the budget has little, so that nobody keeps what others need.
    fn grown_bytes(&self) -> u64 {
        if self.has_plenty() { self.grant_chunk_bytes } else { 1 }
    }

    /// Grants more of the extent region, a chunk or what is left of one. Whether there is more now.
    fn grow_extents(&mut self) -> bool {
        let Some(closed) = self.extents.closed() else { return false };
        let grantable = self.grantable_to_extents();
        for bytes in [self.grown_bytes(), 1] {
            let permitted = bytes.next_multiple_of(UNIT_BYTES) <= grantable;
            let end = (closed.start + bytes).min(closed.end);
            if permitted && self.memory.extent().grow(closed.start..end).is_ok() {
                break;
            }
        }
        self.extents.open(self.memory.extent().granted_end(closed.start).min(closed.end));
        self.extents.closed() != Some(closed)
    }

    /// Whether a put of so many bytes is sure to find tree nodes and an extent. Memory is taken for it, if
    /// the budget permits that.
    pub fn make_room(&mut self, slot: SlotIndex, value_bytes: usize) -> (bool, bool) {
        let shape = ExtentHeader::default().shape(value_bytes);
        self.make_room_for(slot, shape.ok().map(ExtentShape::extent_bytes))
    }

    /// As [`Pair::make_room`], for an extent of this length.
    pub(crate) fn make_room_for(&mut self, slot: SlotIndex, extent_bytes: Option<u32>) -> (bool, bool) {
        loop {
            let (nodes, extent) = self.has_room(slot, extent_bytes);
            if nodes && extent {
                return (nodes, extent);
            }
            // What will not do in the end is not started: others could use it.
            let may_grow = extent_bytes.is_some_and(|bytes| self.extent_bytes_free() >= u64::from(bytes));
            let grown = !nodes && self.grow_slot(slot) || !extent && may_grow && self.grow_extents();
            if !grown {
                return (nodes, extent);
            }
        }
    }

    /// Sees to it that so many tree nodes of a slot are free, as far as slot and budget have them.
    pub(crate) fn make_nodes(&mut self, slot: SlotIndex, nodes: usize) {
        let is_short =
            |pair: &Self| pair.meganodes.get(slot).is_some_and(|owned| owned.allocator.nodes_free() < nodes);
        while is_short(self) && self.grow_slot(slot) {}
    }

    /// Takes memory ahead of need, as long as the budget has plenty.
    pub fn grow_ahead(&mut self) {
        let chunk = self.grant_chunk_bytes;
        if self.extent_bytes_open() < chunk / 2 && self.has_plenty() {
            self.grow_extents();
        }
        let nodes = usize::try_from(chunk / 4).unwrap_or(usize::MAX) / self.tree_node_bytes();
        let nodes = nodes.min(self.memory.geometry().nodes() / 8);
        let short: Vec<SlotIndex> = self.meganodes.short_of(nodes).collect();
        for slot in short {
            if self.has_plenty() {
                self.grow_slot(slot);
            }
        }
    }

    fn has_plenty(&self) -> bool {
        self.memory.node().grantable_bytes() >= AHEAD_CHUNKS_LEFT * self.grant_chunk_bytes
    }

    /// Bytes of the extent region that ordinary writes can still take of what was granted.
    fn extent_bytes_open(&self) -> u64 {
        self.extents.stats().free_bytes
    }

    /// Bytes that the budget would grant to extents now.
    fn grantable_to_extents(&self) -> u64 {
        self.obtainable_bytes().saturating_sub(self.reserved_bytes())
    }

    /// Bytes of the extent region that extents of any length can still take: free ranges of what is granted,
    /// and what the budget would grant.
    pub fn extent_bytes_free(&self) -> u64 {
        let grantable = self.extents.stats().closed_bytes.min(self.grantable_to_extents());
        self.extent_bytes_open() + grantable
    }

    /// As [`Pair::extent_bytes_free`], with what rests, and what a packing would make of sparse slabs.
    pub fn extent_bytes_left(&self) -> u64 {
        let packable = if self.packing_helps() { self.extents.packable_bytes() } else { 0 };
        self.extent_bytes_free() + self.grace.bytes() + packable
    }

    /// Whether slot and extents of a meganode to be adopted fit into what is granted and what the budget
    /// would grant.
    pub fn can_adopt(&self, slot: SlotIndex, node_bytes: u64, extent_bytes: u64) -> bool {
        let nodes_short = self.slot_bytes_short(slot, node_bytes);
        let extents_short = extent_bytes.saturating_sub(self.extent_bytes_open());
        extent_bytes <= self.extent_bytes_free() && nodes_short + extents_short <= self.obtainable_bytes()
    }

    /// What the budget would have to grant for so many bytes of a slot.
    pub fn slot_bytes_short(&self, slot: SlotIndex, node_bytes: u64) -> u64 {
        let begin = self.memory.node_offset(slot, NodeIndex::ROOT);
        let granted = self.memory.node().granted_end(begin);
        let end = begin + node_bytes.min(self.slot_bytes());
        let from = if granted > begin { granted } else { begin / UNIT_BYTES * UNIT_BYTES };
        end.saturating_sub(from).next_multiple_of(UNIT_BYTES)
    }

    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> u64 {
        self.memory.geometry().slot_bytes() as u64
    }

    /// Bytes of the budget that extents leave to tree nodes.
    fn reserved_bytes(&self) -> u64 {
        (RESERVED_CHUNKS * self.grant_chunk_bytes).min(self.extent_bytes() / RESERVED_PART)
    }

    /// Bytes that any pair's regions could be granted now, ready memory included.
    pub fn obtainable_bytes(&self) -> u64 {
        self.memory.node().obtainable_bytes()
    }

    /// Whether no pair is granted more now: what is left is kept for pairs that are being recovered.
    pub fn is_growth_held(&self) -> bool {
        self.memory.node().is_growth_held()
    }

    /// Bytes of a meganode's tree nodes in use.
    pub fn nodes_bytes(&self, slot: SlotIndex) -> u64 {
        (self.nodes_used(slot) * self.tree_node_bytes()) as u64
    }

    /// Bytes of both regions that have been granted.
    pub fn granted_bytes(&self) -> u64 {
        self.memory.node().granted_bytes() + self.memory.extent().granted_bytes()
    }
}
