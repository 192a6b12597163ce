//! Sizes and counts of a pair, as status and metrics show them.

use cell_recovery::SlotUse;

/// Sizes of a pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct PairFigures {
    /// Entries of the meganodes that the pair answers for.
    pub entries: u64,
    /// Tree nodes in use.
    pub tree_nodes: u64,
    /// Bytes of a tree node.
    pub tree_node_bytes: u64,
    /// Bytes of the node region.
    pub node_region_bytes: u64,
    /// Bytes of the extents that entries lead to.
    pub extents_live_bytes: u64,
    /// Bytes of the slabs and blocks that hold extents.
    pub extents_allocated_bytes: u64,
    /// Of these, bytes of free slots of slabs.
    pub extents_slots_free_bytes: u64,
    /// Bytes of the extent region that were granted and hold neither slabs nor blocks.
    pub extents_free_bytes: u64,
    /// Bytes of the extent region.
    pub extent_region_bytes: u64,
    /// Bytes of both regions that were granted.
    pub granted_bytes: u64,
    /// Bytes of both regions that have memory.
    pub populated_bytes: u64,
    /// Bytes of these on huge pages.
    pub huge_page_bytes: u64,
    /// Bytes of extents that were freed and rest.
    pub grace_bytes: u64,
    /// Results of writes that are kept.
    pub completions: u64,
    /// Compactions since the start.
    pub compactions: CompactionCounts,
    /// Packings of extents since the start.
    pub packings: PackingCounts,
}

/// A meganode's shape.
#[derive(Clone, Copy, Debug)]
pub struct MeganodeFigures {
    /// What its slot holds.
    pub used: SlotUse,
    /// It is an adoption that is not settled.
    pub hidden: bool,
    /// Levels of its tree.
    pub height: u8,
    /// Tree nodes in use.
    pub nodes: usize,
    /// Tree nodes that the slot has.
    pub nodes_all: usize,
    /// Entries.
    pub entries: u64,
    /// It is the source of a split that is not over.
    pub splitting: bool,
    /// Writes of clients since the owner has it.
    pub writes: u64,
    /// Reads by the owner for clients in the slot, since the owner has the pair. One-sided reads pass it by.
    pub reads: u64,
    /// Those that clients have reported, likewise: see [`crate::Pair::count_reported_reads`].
    pub reported_reads: u64,
}

/// Compactions of a pair's meganodes since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionCounts {
    /// Meganodes that were gone through and gave up tree nodes.
    pub done: u64,
    /// Tree nodes that they gave up.
    pub nodes_freed: u64,
}

/// Packings of a pair's extents since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackingCounts {
    /// Times that all leaves were gone through.
    pub done: u64,
    /// Bytes of extents that were moved.
    pub moved_bytes: u64,
}
