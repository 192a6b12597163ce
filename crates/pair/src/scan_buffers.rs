//! What a pair keeps from scan to scan.

use std::ops::Range;

use cell_tree::{KeyRange, LeafEntry, LeafSnapshot};

/// The leaves of a scan, in memory that is kept from scan to scan.
#[derive(Debug, Default)]
pub(crate) struct ScanBuffers {
    pub(crate) now: RangedLeaf,
    pub(crate) next: RangedLeaf,
}

/// A leaf, and what of it is in a range.
#[derive(Debug, Default)]
pub(crate) struct RangedLeaf {
    pub(crate) leaf: LeafSnapshot,
    /// The leaf's entries that are in the range.
    pub(crate) inside: Range<usize>,
    /// What the leaf says of these: each is wanted twice, to ask for its extent and to read it.
    pub(crate) entries: Vec<LeafEntry>,
}

impl RangedLeaf {
    /// Finds what of the leaf is in the range.
    pub(crate) fn find_inside(&mut self, range: &KeyRange<'_>) {
        self.inside = range.inside(&self.leaf);
        self.entries.clear();
        self.leaf.append_leaf_entries(self.inside.clone(), &mut self.entries);
    }

    /// What the leaf says of one of its entries in the range.
    #[inline]
    pub(crate) fn entry(&self, at: usize) -> LeafEntry {
        self.entries[at - self.inside.start]
    }
}
