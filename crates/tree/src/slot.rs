//! Which tree nodes of a slot are free.

use std::ops::Range;

use crate::geometry::NodeIndex;

/// Nodes set aside at a time for inner nodes; in small slots fewer.
const INNER_STRETCH_MAX: u32 = 64;

/// Hands out the tree nodes of one slot.
///
/// A freed node is handed out again before the high-water mark is raised.
///
/// Inner nodes come from stretches of their own. Every search passes them, and side by side they take a
/// quarter of the pages, so the TLB holds them.
#[derive(Clone, Debug)]
pub struct SlotAllocator {
    nodes: u32,
    /// Nodes that have memory; none above them is handed out. Never below the high-water mark.
    granted: u32,
    high_water: u32,
    free: Vec<u32>,
    /// What is left of the stretch for inner nodes, below the high-water mark and never used.
    inner: Range<u32>,
    height: u8,
}

impl SlotAllocator {
    /// All nodes but the root are free; the root is a leaf.
    ///
    /// # Panics
    /// If the slot has no node.
    #[must_use]
    pub fn new(nodes: usize) -> SlotAllocator {
        SlotAllocator::restore(nodes, 1, std::iter::once(NodeIndex::ROOT))
    }

    /// What is free when these nodes are in use, in ascending order, the root among them.
    ///
    /// # Panics
    /// If they are out of order or out of the slot, or the root is not among them.
    #[must_use]
    pub fn restore(nodes: usize, height: u8, used: impl Iterator<Item = NodeIndex>) -> SlotAllocator {
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        let mut allocator =
            SlotAllocator { nodes, granted: nodes, high_water: 0, free: Vec::new(), inner: 0..0, height };
        for node in used {
            assert!(node.0 >= allocator.high_water && node.0 < nodes, "used nodes come in ascending order");
            allocator.free.extend(allocator.high_water..node.0);
            allocator.high_water = node.0 + 1;
        }
        assert!(allocator.high_water > 0 && allocator.free.first() != Some(&0), "the root is always in use");
        // The lowest is handed out first: used nodes stay together.
        allocator.free.reverse();
        allocator
    }

    /// Says how many nodes from the slot's first have memory; all of them do unless this is called. What is
    /// below the high-water mark has it in any case.
    pub fn set_granted(&mut self, nodes: usize) {
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        self.granted = nodes.clamp(self.high_water, self.nodes);
    }

    /// Nodes that have memory.
    #[must_use]
    pub fn granted(&self) -> NodeIndex {
        NodeIndex(self.granted)
    }

    /// Whether there are nodes that have no memory yet.
    #[must_use]
    pub fn can_be_granted_more(&self) -> bool {
        self.granted < self.nodes
    }

    /// Nodes that a leaf may get.
    #[must_use]
    pub fn nodes_free(&self) -> usize {
        (self.granted - self.high_water) as usize + self.free.len() + self.inner.len()
    }

    /// Nodes in use.
    #[must_use]
    pub fn nodes_used(&self) -> usize {
        self.high_water as usize - self.free.len() - self.inner.len()
    }

    /// One above the highest node that was ever in use or set aside: a checkpointer copies up to here.
    #[must_use]
    pub fn high_water(&self) -> NodeIndex {
        NodeIndex(self.high_water)
    }

    /// Levels of the tree, leaves included.
    #[must_use]
    pub fn height(&self) -> u8 {
        self.height
    }

    /// Nodes that a put may need: one a level for splits, one more because a root split takes two, one to
    /// spare.
    #[must_use]
    pub fn room_for_put(&self) -> usize {
        usize::from(self.height) + 2
    }

    /// Whether a put is sure to find the nodes that it needs.
    #[must_use]
    pub fn has_room_for_put(&self) -> bool {
        self.nodes_free() >= self.room_for_put()
    }

    /// Takes a free node for a level: 0 for leaves.
    pub fn allocate(&mut self, level: u8) -> Option<NodeIndex> {
        if level > 0
            && let Some(node) = self.inner_node()
        {
            return Some(node);
        }
        if let Some(node) = self.free.pop() {
            return Some(NodeIndex(node));
        }
        if self.high_water < self.granted {
            self.high_water += 1;
            return Some(NodeIndex(self.high_water - 1));
        }
        self.inner.next().map(NodeIndex)
    }

    /// The next of the stretch for inner nodes; a new stretch if there is room for one.
    fn inner_node(&mut self) -> Option<NodeIndex> {
        let stretch = (self.nodes / 128).clamp(1, INNER_STRETCH_MAX);
        if self.inner.is_empty() && self.granted - self.high_water >= stretch {
            self.inner = self.high_water..self.high_water + stretch;
            self.high_water += stretch;
        }
        self.inner.next().map(NodeIndex)
    }

    /// Gives a node back that no reader can reach any more: the record that freed it is durable and the grace
    /// period is over. That is the caller's to know.
    ///
    /// # Panics
    /// If it is the root or was never handed out.
    pub fn free(&mut self, node: NodeIndex) {
        assert!(node != NodeIndex::ROOT && node.0 < self.high_water, "{node} was not handed out");
        debug_assert!(!self.free.contains(&node.0), "{node} was freed twice");
        self.free.push(node.0);
    }

    /// Takes back a node that was handed out for a plan that was given up, as if it had never been.
    pub(crate) fn unallocate(&mut self, node: NodeIndex) {
        if !self.inner.is_empty() && node.0 + 1 == self.inner.start {
            self.inner.start -= 1;
        } else if node.0 + 1 == self.high_water {
            self.high_water -= 1;
        } else {
            self.free(node);
        }
    }

    pub(crate) fn set_height(&mut self, height: u8) {
        self.height = height;
    }

    pub(crate) fn grow(&mut self) {
        self.height += 1;
    }

    pub(crate) fn shrink(&mut self) {
        self.height -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocate_prefers_freed_nodes() {
        let mut allocator = SlotAllocator::new(8);
        let nodes: Vec<_> = (0..3).map(|_| allocator.allocate(0).unwrap()).collect();
        assert_eq!(nodes, [NodeIndex(1), NodeIndex(2), NodeIndex(3)]);
        allocator.free(NodeIndex(2));
        assert_eq!((allocator.nodes_free(), allocator.allocate(0)), (5, Some(NodeIndex(2))));
        assert_eq!((allocator.nodes_free(), allocator.allocate(0)), (4, Some(NodeIndex(4))));
        assert_eq!(allocator.nodes_used(), 5);
        assert_eq!(std::iter::from_fn(|| allocator.allocate(0)).count(), 3);
    }

    #[test]
    fn allocate_for_inner_nodes_keeps_them_together() {
        let mut allocator = SlotAllocator::new(1024);
        let taken: Vec<_> = (0..6).map(|i| allocator.allocate(i % 2).unwrap().0).collect();
        assert_eq!(taken, [1, 2, 10, 3, 11, 4]);
        assert_eq!((allocator.nodes_used(), allocator.nodes_free()), (7, 1017));
        allocator.unallocate(NodeIndex(4));
        assert_eq!(allocator.allocate(3), Some(NodeIndex(4)));
        assert_eq!(allocator.allocate(1), Some(NodeIndex(5)));
        // What is left of the stretch comes last.
        let rest: Vec<_> = std::iter::from_fn(|| allocator.allocate(0)).map(|node| node.0).collect();
        assert_eq!((rest.len(), allocator.nodes_free()), (1016, 0));
        assert_eq!((rest[0], &rest[1011..]), (12, &[1023, 6, 7, 8, 9][..]));
    }

    #[test]
    fn allocate_hands_out_nothing_that_is_not_granted() {
        let mut allocator = SlotAllocator::new(1024);
        allocator.set_granted(20);
        assert_eq!(allocator.nodes_free(), 19);
        let leaves = std::iter::from_fn(|| allocator.allocate(0)).count();
        assert_eq!((leaves, allocator.nodes_free(), allocator.allocate(1)), (19, 0, None));
        allocator.free(NodeIndex(7));
        assert_eq!(allocator.allocate(0), Some(NodeIndex(7)), "what is freed is used again");
        allocator.set_granted(5);
        assert_eq!(allocator.granted(), NodeIndex(20), "what was handed out stays");
        allocator.set_granted(4096);
        assert_eq!((allocator.nodes_free(), allocator.can_be_granted_more()), (1004, false));
        // An inner node comes from a stretch, which is not started where there is no memory for all of it.
        let mut allocator = SlotAllocator::new(1024);
        allocator.set_granted(6);
        assert_eq!(allocator.allocate(1), Some(NodeIndex(1)));
    }

    #[test]
    fn restore_from_used_nodes_finds_the_holes() {
        let used = [0, 1, 4].map(NodeIndex);
        let mut allocator = SlotAllocator::restore(8, 2, used.into_iter());
        assert_eq!((allocator.nodes_free(), allocator.high_water()), (5, NodeIndex(5)));
        let rest: Vec<_> = std::iter::from_fn(|| allocator.allocate(0)).map(|node| node.0).collect();
        assert_eq!(rest, [2, 3, 5, 6, 7]);
    }

    #[test]
    fn unallocate_of_the_newest_lowers_the_high_water_mark() {
        let mut allocator = SlotAllocator::new(8);
        let node = allocator.allocate(0).unwrap();
        allocator.unallocate(node);
        assert_eq!(allocator.high_water(), NodeIndex(1));
    }
}
