//! Which tree nodes the owner of a pair has filled: where the copier of an image must look again.

use std::sync::atomic::{AtomicU64, Ordering};

use cell_terms::{Csn, SlotIndex, WordsMut};
use cell_tree::{Change, Geometry, NodeIndex, PlacedChange, Slot};

/// One bit for each tree node of a pair: set by the owner when it has filled the node, taken by the copier.
/// Neither waits for the other.
///
/// Entries move from leaf to leaf only by a fill (of a split, of a root that is pushed down, of a
/// compaction), so the filled nodes are those to which a copier may have been too early. The module's text
/// above says why looking at them again is enough, and why a fill must be noted exactly when it is.
#[derive(Debug)]
pub struct FilledNodes {
    slots: Box<[Box<[AtomicU64]>]>,
    /// Tree nodes that copiers have come to.
    copied: AtomicU64,
}

impl FilledNodes {
    /// Nothing is noted, of so many slots.
    #[must_use]
    pub fn new(slots: u32, geometry: Geometry) -> FilledNodes {
        let words = geometry.nodes().div_ceil(64);
        let slot = || (0..words).map(|_| AtomicU64::new(0)).collect();
        FilledNodes { slots: (0..slots).map(|_| slot()).collect(), copied: AtomicU64::new(0) }
    }

    /// How many tree nodes copiers have come to: an owner that waits for an image sees whether that goes on.
    #[must_use]
    pub fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    pub(super) fn note_copied(&self) {
        self.copied.fetch_add(1, Ordering::Relaxed);
    }

    /// Applies a change to live memory ([`cell_tree::apply`]) and notes it, before the owner applies the next
    /// one. Owners change meganodes of entries in no other way.
    #[inline]
    pub fn apply<W: WordsMut + ?Sized>(
        &self,
        words: &mut W,
        geometry: Geometry,
        slot: Slot,
        change: &Change<'_>,
        csn: Csn,
    ) {
        self.apply_placed(words, geometry, slot, &PlacedChange::from(*change), csn);
    }

    /// As [`FilledNodes::apply`], of a change with its place ([`cell_tree::apply_placed`]).
    #[inline]
    pub fn apply_placed<W: WordsMut + ?Sized>(
        &self,
        words: &mut W,
        geometry: Geometry,
        slot: Slot,
        placed: &PlacedChange<'_>,
        csn: Csn,
    ) {
        cell_tree::apply_placed(words, geometry, slot, placed, csn);
        self.note(slot.index, placed.change());
    }

    #[inline]
    fn note(&self, slot: SlotIndex, change: &Change<'_>) {
        if let Change::Fill { node, .. } = change
            && let Some(word) = self.slot(slot).get(node.0 as usize / 64)
        {
            // Released: who takes the bit finds the node filled.
            word.fetch_or(1 << (node.0 % 64), Ordering::Release);
        }
    }

    /// Takes what is noted of a slot; true if that was anything.
    pub(super) fn take(&self, slot: SlotIndex, nodes: &mut Vec<NodeIndex>) -> bool {
        let before = nodes.len();
        for (word, first) in self.slot(slot).iter().zip((0u32..).step_by(64)) {
            if word.load(Ordering::Relaxed) == 0 {
                continue; // what is set only now is seen when the slot is looked at again
            }
            let mut bits = word.swap(0, Ordering::Acquire);
            while bits != 0 {
                nodes.push(NodeIndex(first + bits.trailing_zeros()));
                bits &= bits - 1;
            }
        }
        nodes.len() > before
    }

    fn slot(&self, slot: SlotIndex) -> &[AtomicU64] {
        let slot = usize::try_from(slot.0).ok().and_then(|slot| self.slots.get(slot));
        slot.map_or(&[], |slot| slot)
    }
}

#[cfg(test)]
mod tests {
    use cell_tree::{Image, TreeNodeState, empty_root};

    use super::*;

    #[test]
    fn take_gives_each_filled_node_once_and_nothing_else() {
        let geometry = Geometry::new(512, 128 * 512, 4096).unwrap();
        let filled = FilledNodes::new(2, geometry);
        let words = empty_root(geometry);
        let fill = |node| Change::Fill { node: NodeIndex(node), image: Image::new(&words) };
        for node in [0, 63, 64, 127, 63] {
            filled.note(SlotIndex(1), &fill(node));
        }
        filled.note(SlotIndex(1), &Change::Mark { node: NodeIndex(5), state: TreeNodeState::Free });
        filled.note(SlotIndex(1), &Change::Remove { node: NodeIndex(6), key: b"key" });
        filled.note(SlotIndex(2), &fill(1)); // there is no such slot
        let mut nodes = Vec::new();
        assert!(!filled.take(SlotIndex(0), &mut nodes));
        assert!(filled.take(SlotIndex(1), &mut nodes));
        assert_eq!(nodes, [0, 63, 64, 127].map(NodeIndex));
        assert!(!filled.take(SlotIndex(1), &mut nodes) && nodes.len() == 4);
    }
}
