//! The memory of a pair in its owner's hands: both regions, and the one way in which each kind of content
//! changes. Nothing in here appends to a log: who calls has done so.

use std::sync::Arc;

use cell_memory::extent;
use cell_memory::{PairWriter, Region};
use cell_recovery::image::{FilledNodes, ImageSource};
use cell_terms::{Csn, Epoch, ExtentOffset, PairId, Pointer, Root, SlotIndex};
use cell_tree::{Change, Geometry, Meganode, MeganodeRole, NodeIndex, PlacedChange, Slot, TreeNodeState};

/// Is called after each change of a pair's tree nodes or extents, before the next one. `()` in production. A
/// test of images lets the copier go on there, which may read memory between any two changes.
pub trait MemoryObserver {
    /// Memory has changed.
    fn changed(&mut self);
}

impl MemoryObserver for () {
    #[inline]
    fn changed(&mut self) {}
}

/// See the module's text.
pub(crate) struct PairMemory<O> {
    geometry: Geometry,
    writer: PairWriter,
    node: Region,
    extent: Region,
    filled: Arc<FilledNodes>,
    observer: O,
}

impl<O: MemoryObserver> PairMemory<O> {
    pub(crate) fn new(writer: PairWriter, geometry: Geometry, observer: O) -> PairMemory<O> {
        let (node, extent) = (writer.node.region().clone(), writer.extent.region().clone());
        let filled = Arc::new(FilledNodes::new(node.spec().slots(), geometry));
        PairMemory { geometry, writer, node, extent, filled, observer }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn node(&self) -> &Region {
        &self.node
    }

    pub(crate) fn extent(&self) -> &Region {
        &self.extent
    }

    /// For the next owner of the same memory.
    pub(crate) fn into_writer(self) -> PairWriter {
        self.writer
    }

    /// Tree nodes that copiers of images have come to.
    pub(crate) fn copied(&self) -> u64 {
        self.filled.copied()
    }

    /// What copiers of images and checks read.
    pub(crate) fn source(&self, pair: PairId, epoch: Epoch) -> ImageSource {
        ImageSource {
            pair,
            epoch,
            node: self.node.clone(),
            extent: self.extent.clone(),
            geometry: self.geometry,
            filled: self.filled.clone(),
        }
    }

    pub(crate) fn slot(&self, index: SlotIndex) -> Slot {
        Slot { region: self.node.spec().id, index }
    }

    /// The meganode in a slot, to be read.
    #[inline]
    pub(crate) fn meganode(&self, slot: SlotIndex, role: MeganodeRole) -> Meganode<'_, Region> {
        Meganode::new(&self.node, self.geometry, self.slot(slot)).with_role(role)
    }

    /// The pointer to the root tree node of a slot's meganode.
    pub(crate) fn pointer(&self, slot: SlotIndex) -> Pointer {
        self.geometry.pointer(self.slot(slot), NodeIndex::ROOT)
    }

    /// The slot that a pointer to a root tree node of this pair names.
    pub(crate) fn slot_of(&self, pointer: Pointer) -> Option<SlotIndex> {
        let (slot, node) = self.geometry.locate(pointer)?;
        (slot.region == self.node.spec().id && node == NodeIndex::ROOT).then_some(slot.index)
    }

    /// Where a tree node begins in the node region, in bytes.
    pub(crate) fn node_offset(&self, slot: SlotIndex, node: NodeIndex) -> u64 {
        self.geometry.node_offset(slot, node) as u64
    }

    /// Changes a tree node, and shows the copier of an image where it must look again.
    pub(crate) fn change_node(&mut self, slot: SlotIndex, change: &Change<'_>, csn: Csn) {
        self.change_placed(slot, &PlacedChange::from(*change), csn);
    }

    /// As [`PairMemory::change_node`], of a change with its place.
    pub(crate) fn change_placed(&mut self, slot: SlotIndex, placed: &PlacedChange<'_>, csn: Csn) {
        let there = self.slot(slot);
        self.filled.apply_placed(&mut self.writer.node, self.geometry, there, placed, csn);
        self.observer.changed();
    }

    /// Frees tree nodes: no reader believes them from here on.
    pub(crate) fn free_nodes(
        &mut self,
        slot: SlotIndex,
        nodes: impl Iterator<Item = NodeIndex> + Clone,
        csn: Csn,
    ) {
        let there = self.slot(slot);
        cell_tree::free_nodes(&mut self.writer.node, self.geometry, there, nodes, csn);
        self.observer.changed();
    }

    /// Makes a hidden tree node readable.
    pub(crate) fn show(&mut self, slot: SlotIndex, node: NodeIndex) {
        let there = self.slot(slot);
        cell_tree::show(&mut self.writer.node, self.geometry, there, node, TreeNodeState::Valid);
        self.observer.changed();
    }

    /// Writes an extent's bytes.
    pub(crate) fn store_extent(&mut self, offset: ExtentOffset, bytes: &[u8]) {
        extent::store(&mut self.writer.extent, offset, bytes);
        self.observer.changed();
    }

    pub(crate) fn set_root(&mut self, root: Root) {
        self.writer.node.set_first_word(root.to_word());
    }

    /// What is durable and what may be seen, for one-sided readers.
    pub(crate) fn set_watermark(&mut self, durable: Csn, visible: Csn) {
        self.writer.set_watermark(durable, visible);
    }
}
