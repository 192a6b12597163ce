//! A check of a pair by its owner, a tree node at a time and between its other operations: nothing waits for
//! it, and what one look compares cannot change meanwhile. Beside the structure it asks whether the extents
//! of a leaf are there; their checksums are compared by [`crate::check()`].

use cell_memory::extent::byte_offset;
use cell_terms::{ExtentOffset, SlotIndex};
use cell_tree::{MeganodeRole, NodeIndex, StructureViolation};

use crate::memory::MemoryObserver;
use crate::pair::Pair;
use crate::read::shape_of;

/// What a look at a tree node found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeLook {
    /// Whether readers may come to it.
    pub in_use: bool,
    /// Entries of clients in it.
    pub entries: u64,
}

/// The rule that a tree node breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeViolation {
    /// One of the tree's.
    #[error(transparent)]
    Structure(#[from] StructureViolation),
    /// An extent ends behind its region.
    #[error("{node} leads to {offset}, which is outside of the extent region")]
    ExtentOutside {
        /// The leaf.
        node: NodeIndex,
        /// The extent.
        offset: ExtentOffset,
    },
    /// Nothing is allocated where an extent should be, or something of another length.
    #[error("{node} leads to {offset}, where no such extent is")]
    ExtentMissing {
        /// The leaf.
        node: NodeIndex,
        /// The extent.
        offset: ExtentOffset,
    },
    /// The meganode behind this one does not begin where this one ends.
    #[error("the meganode ends where the one in slot {} does not begin", .0.0)]
    NextMeganode(SlotIndex),
}

impl<O: MemoryObserver> Pair<O> {
    /// Looks at one tree node.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check_node(&self, slot: SlotIndex, node: NodeIndex) -> Result<NodeLook, TreeViolation> {
        let Some(checked) = self.meganode(slot).validate_node(node)? else { return Ok(NodeLook::default()) };
        if node == NodeIndex::ROOT {
            self.check_next_meganode(slot)?;
        }
        let is_of_clients = self.meganodes.role(slot) == MeganodeRole::Data && checked.level == 0;
        if is_of_clients {
            self.check_extents_of(slot, node)?;
        }
        Ok(NodeLook { in_use: true, entries: if is_of_clients { checked.entries } else { 0 } })
    }

    /// One above the highest tree node of a slot that was ever in use; zero: the slot holds nothing.
    #[must_use]
    pub fn nodes_end(&self, slot: SlotIndex) -> NodeIndex {
        self.meganodes.get(slot).map_or(NodeIndex(0), |owned| owned.allocator.high_water())
    }

    fn check_extents_of(&self, slot: SlotIndex, node: NodeIndex) -> Result<(), TreeViolation> {
        let region_bytes = self.memory.extent().spec().bytes;
        let mut entries = Vec::new();
        self.meganode(slot).leaf_entries(node, &mut entries);
        for entry in entries {
            let offset = entry.offset;
            let Some(shape) = shape_of(&entry) else {
                return Err(TreeViolation::ExtentMissing { node, offset });
            };
            if byte_offset(offset).saturating_add(u64::from(shape.extent_bytes())) > region_bytes {
                return Err(TreeViolation::ExtentOutside { node, offset });
            }
            if !self.extents.is_allocated(offset, shape.extent_bytes()) {
                return Err(TreeViolation::ExtentMissing { node, offset });
            }
        }
        Ok(())
    }

    /// The meganode on the right, where it is in this pair.
    fn check_next_meganode(&self, slot: SlotIndex) -> Result<(), TreeViolation> {
        let mut words = vec![0; self.memory.geometry().node_words()];
        let root = |slot, words: &mut [u64]| {
            let copy = self.meganode(slot).copy_node(NodeIndex::ROOT, words);
            copy.map(|root| (root.low(), root.high(), root.right()))
        };
        let torn = StructureViolation::Torn(NodeIndex::ROOT);
        let (_, high, right) = root(slot, &mut words).map_err(|_| torn)?;
        let Some(next) = self.slot_of(right).filter(|next| self.meganodes.get(*next).is_some()) else {
            return Ok(());
        };
        let (low, _, _) = root(next, &mut words).map_err(|_| torn)?;
        if high == Some(low) { Ok(()) } else { Err(TreeViolation::NextMeganode(next)) }
    }
}
