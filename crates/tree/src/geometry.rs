//! Where tree nodes are: sizes, slots, node indices, pointers, and the longest key.

use cell_terms::{Pointer, RegionId, SlotIndex};

use crate::layout::{NODE_BYTES, WORD_BYTES, key_max};

/// A tree node's place in its slot. The root is always the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub u32);

impl NodeIndex {
    /// A meganode's root stays here: a root split pushes its content down.
    pub const ROOT: NodeIndex = NodeIndex(0);

    pub(crate) const fn get(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Display for NodeIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tree node {}", self.0)
    }
}

/// A meganode's place: one slot of a node region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The node region; right links name it.
    pub region: RegionId,
    /// The slot in it.
    pub index: SlotIndex,
}

/// Why sizes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// A tree node has 512, 1024, 2048 or 4096 bytes.
    #[error("a tree node cannot have {0} bytes: 512, 1024, 2048 or 4096")]
    NodeBytes(usize),
    /// A slot holds a whole number of tree nodes: at least eight, at most 2^24.
    #[error("a slot of {slot_bytes} bytes does not hold 8 to 16777216 tree nodes of {node_bytes} bytes")]
    SlotBytes {
        /// What was asked for.
        slot_bytes: usize,
        /// The tree node size.
        node_bytes: usize,
    },
    /// Slots begin on a tree node's boundary behind the region's header.
    #[error("a header of {header_bytes} bytes is no multiple of a tree node of {node_bytes} bytes")]
    HeaderBytes {
        /// What was asked for.
        header_bytes: usize,
        /// The tree node size.
        node_bytes: usize,
    },
}

/// The sizes of a node region, the same for all of its slots. Checked once, when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    node_bytes: usize,
    /// Its power of two: searches ask for tree nodes, and dividing is slow.
    node_bits: u32,
    slot_bytes: usize,
    header_bytes: usize,
    node_crc: bool,
}

impl Geometry {
    /// Checks and keeps the sizes, all in bytes: slot `i` begins at `header_bytes + i * slot_bytes`.
    ///
    /// # Errors
    /// See [`GeometryError`].
    pub const fn new(
        node_bytes: usize,
        slot_bytes: usize,
        header_bytes: usize,
    ) -> Result<Geometry, GeometryError> {
        if !(node_bytes.is_power_of_two() && node_bytes >= NODE_BYTES[0] && node_bytes <= NODE_BYTES[3]) {
            return Err(GeometryError::NodeBytes(node_bytes));
        }
        let nodes = slot_bytes / node_bytes;
        if !slot_bytes.is_multiple_of(node_bytes) || nodes < 8 || nodes > 1 << 24 {
            return Err(GeometryError::SlotBytes { slot_bytes, node_bytes });
        }
        if !header_bytes.is_multiple_of(node_bytes) {
            return Err(GeometryError::HeaderBytes { header_bytes, node_bytes });
        }
        let node_bits = node_bytes.trailing_zeros();
        Ok(Geometry { node_bytes, node_bits, slot_bytes, header_bytes, node_crc: false })
    }

    /// The same sizes, with every written tree node carrying its CRC-64: for fabrics whose reads are not in
    /// address order. It costs a checksum of the whole node at each change (about 40 ns at 1 KiB).
    #[must_use]
    pub const fn with_node_crc(self, node_crc: bool) -> Geometry {
        Geometry { node_crc, ..self }
    }

    /// Bytes of a tree node.
    #[must_use]
    pub const fn node_bytes(&self) -> usize {
        self.node_bytes
    }

    /// Words (8 bytes) of a tree node.
    #[must_use]
    pub const fn node_words(&self) -> usize {
        self.node_bytes / WORD_BYTES
    }

    /// Bytes of a slot.
    #[must_use]
    pub const fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Bytes before the first slot.
    #[must_use]
    pub const fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// Whether tree nodes carry their CRC-64.
    #[must_use]
    pub const fn node_crc(&self) -> bool {
        self.node_crc
    }

    /// Tree nodes of a slot.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        // Not by a division, which takes tens of cycles: each operation asks.
        self.slot_bytes >> self.node_bits
    }

    /// The longest key, in bytes.
    #[must_use]
    pub const fn key_max(&self) -> usize {
        key_max(self.node_bytes)
    }

    /// Byte offset in the region of a tree node.
    #[must_use]
    pub const fn node_offset(&self, slot: SlotIndex, node: NodeIndex) -> usize {
        self.header_bytes + slot.0 as usize * self.slot_bytes + node.get() * self.node_bytes
    }

    /// Index of the first word of a slot in the region's words.
    #[must_use]
    pub const fn slot_word(&self, slot: SlotIndex) -> usize {
        self.node_offset(slot, NodeIndex::ROOT) / WORD_BYTES
    }

    /// The pointer to a tree node.
    ///
    /// # Panics
    /// If the node is not in a region that a pointer can name.
    #[must_use]
    pub const fn pointer(&self, slot: Slot, node: NodeIndex) -> Pointer {
        Pointer::new(slot.region, self.node_offset(slot.index, node) as u64)
    }

    /// Slot and tree node that a pointer names, if it is on a tree node's boundary behind the header. Whether
    /// the region has that slot is the caller's to check.
    #[must_use]
    pub fn locate(&self, pointer: Pointer) -> Option<(Slot, NodeIndex)> {
        let offset = usize::try_from(pointer.offset()).ok()?.checked_sub(self.header_bytes)?;
        let node = u32::try_from((offset % self.slot_bytes) >> self.node_bits).ok()?;
        let index = u32::try_from(offset / self.slot_bytes).ok()?;
        (self.is_node_boundary(offset) && !pointer.is_null())
            .then_some((Slot { region: pointer.region(), index: SlotIndex(index) }, NodeIndex(node)))
    }

    /// The tree node that a pointer names, if it is in this slot.
    #[inline]
    pub(crate) fn node_of(&self, slot: Slot, pointer: Pointer) -> Option<NodeIndex> {
        let begin = self.node_offset(slot.index, NodeIndex::ROOT);
        let offset = usize::try_from(pointer.offset()).ok()?.checked_sub(begin)?;
        let node = u32::try_from(offset >> self.node_bits).ok()?;
        let is_here = pointer.region() == slot.region && offset < self.slot_bytes && !pointer.is_null();
        (is_here && self.is_node_boundary(offset)).then_some(NodeIndex(node))
    }

    /// Whether a tree node may begin so many bytes behind the first one.
    #[inline]
    fn is_node_boundary(&self, offset: usize) -> bool {
        offset & (self.node_bytes - 1) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometry_of_wrong_sizes_is_refused() {
        assert_eq!(Geometry::new(768, 1 << 20, 4096), Err(GeometryError::NodeBytes(768)));
        assert!(matches!(Geometry::new(1024, 4096, 4096), Err(GeometryError::SlotBytes { .. })));
        assert!(matches!(Geometry::new(1024, (1 << 20) + 8, 4096), Err(GeometryError::SlotBytes { .. })));
        assert!(matches!(Geometry::new(1024, 1 << 20, 100), Err(GeometryError::HeaderBytes { .. })));
    }

    #[test]
    fn nodes_of_any_size_fill_a_slot_that_need_be_no_power_of_two() {
        for (node_bytes, nodes) in [(512, 9), (1024, 8), (2048, 1000), (4096, 1 << 24)] {
            let geometry = Geometry::new(node_bytes, nodes * node_bytes, 4096).unwrap();
            assert_eq!(geometry.nodes(), nodes, "of {node_bytes} bytes");
        }
    }

    #[test]
    fn pointer_to_a_node_of_a_slot_is_no_other_slots() {
        // A slot need not be a power of two.
        let geometry = Geometry::new(512, 9 * 512, 4096).unwrap();
        assert_eq!(geometry.nodes(), 9);
        for (region, index) in [(6, 2), (6, 3), (6, 4), (7, 3)] {
            let slot = Slot { region: RegionId(region), index: SlotIndex(index) };
            for offset in (4096..4096 + 8 * 9 * 512).step_by(256) {
                let pointer = Pointer::new(RegionId(6), offset);
                let located = geometry.locate(pointer).filter(|(there, _)| *there == slot);
                assert_eq!(
                    geometry.node_of(slot, pointer),
                    located.map(|(_, node)| node),
                    "{slot:?} {offset}"
                );
            }
            let nowhere =
                [Pointer::NULL, Pointer::new(slot.region, 0), Pointer::new(slot.region, 4096 - 512)];
            assert_eq!(nowhere.map(|pointer| geometry.node_of(slot, pointer)), [None; 3]);
        }
    }

    #[test]
    fn pointer_of_a_node_locates_it_again() {
        let geometry = Geometry::new(1024, 1 << 20, 4096).unwrap();
        let slot = Slot { region: RegionId(6), index: SlotIndex(3) };
        let pointer = geometry.pointer(slot, NodeIndex(77));
        assert_eq!(geometry.locate(pointer), Some((slot, NodeIndex(77))));
        assert_eq!(geometry.locate(Pointer(pointer.0 + 8)), None);
        assert_eq!(geometry.locate(Pointer::NULL), None);
        assert_eq!(geometry.locate(Pointer::new(RegionId(6), 0)), None);
    }
}
