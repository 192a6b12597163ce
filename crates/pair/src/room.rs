//! How a pair's allocators come to memory: a chunk of a region at a time, granted by the process's budget
//! before anything is placed there. An operation never asks; who finds no room does, before the operation
//! begins, and so does every tick, ahead of need.

use cell_memory::extent::ExtentHeader;
use cell_terms::SlotIndex;
use cell_tree::NodeIndex;

use crate::memory::MemoryObserver;
use crate::pair::Pair;

/// Chunks that the budget must have left for memory to be taken ahead of need.
const AHEAD_CHUNKS_LEFT: u64 = 8;

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
        for bytes in [self.grant_chunk_bytes, 1] {
            if self.memory.node().grow(begin..(begin + bytes).min(end)).is_ok() {
                break;
            }
        }
        self.take_granted(slot);
        self.meganodes.get(slot).is_some_and(|owned| owned.allocator.granted() > before)
    }

    /// Grants more of the extent region, a chunk or what is left of one. Whether there is more now.
    fn grow_extents(&mut self) -> bool {
        let Some(closed) = self.extents.closed() else { return false };
        for bytes in [self.grant_chunk_bytes, 1] {
            if self.memory.extent().grow(closed.start..(closed.start + bytes).min(closed.end)).is_ok() {
                break;
            }
        }
        self.extents.open(self.memory.extent().granted_end(closed.start).min(closed.end));
        self.extents.closed() != Some(closed)
    }

    /// Whether a put of so many bytes is sure to find tree nodes and an extent. Memory is taken for it, if
    /// the budget permits that.
    pub fn make_room(&mut self, slot: SlotIndex, value_bytes: usize) -> (bool, bool) {
        loop {
            let (nodes, extent) = self.has_room(slot, value_bytes);
            let grown = !nodes && self.grow_slot(slot)
                || !extent && ExtentHeader::default().shape(value_bytes).is_ok() && self.grow_extents();
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

    /// Bytes of the extent region that ordinary writes can still take, whole slabs: what is granted, and what
    /// the budget would grant.
    pub fn extent_bytes_free(&self) -> u64 {
        let grantable = self.extents.stats().closed_bytes.min(self.memory.extent().grantable_bytes());
        self.extent_bytes_open() + grantable
    }

    /// Whether slot and extents of a meganode to be adopted fit into what is granted and what the budget
    /// would grant.
    pub fn can_adopt(&self, slot: SlotIndex, node_bytes: u64, extent_bytes: u64) -> bool {
        let nodes_short = node_bytes.saturating_sub(self.slot_granted_bytes(slot));
        let extents_short = extent_bytes.saturating_sub(self.extent_bytes_open());
        extents_short <= self.extents.stats().closed_bytes
            && nodes_short + extents_short <= self.memory.node().grantable_bytes()
    }

    /// Bytes that the budget would grant now, to any pair.
    pub fn grantable_bytes(&self) -> u64 {
        self.memory.node().grantable_bytes()
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
