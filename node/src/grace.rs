//! What was freed waits here before it is used again: extents, tree nodes, slots.
//!
//! Two conditions, both needed (DESIGN.md, "Memory and the tree"):
//!
//! 1. the record that freed it is durable: a crash would bring the old entry back, and its bytes must be
//!    there;
//! 2. a grace period that covers the longest permitted one-sided operation has passed since the free: a
//!    reader that found the pointer just before may still be reading.

use std::collections::VecDeque;

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, ExtentOffset, SlotIndex};
use cell_tree::NodeIndex;

/// What is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// An extent of so many bytes.
    Extent(ExtentOffset, u32),
    /// A tree node of a meganode that goes on.
    Node(SlotIndex, NodeIndex),
    /// A whole slot.
    Slot(SlotIndex),
}

/// What was freed, and when it may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resting {
    csn: Csn,
    reusable_at_ns: u64,
    freed: Freed,
}

impl Resting {
    /// What it is, for its allocator.
    ///
    /// # Panics
    /// If one of the two conditions does not hold: a checksum tells a reader of an extent that was used again
    /// too early, but nobody would tell its owner.
    pub(crate) fn into_freed(self, durable: Csn, now_ns: u64) -> Freed {
        let rested = self.csn <= durable && self.reusable_at_ns <= now_ns;
        assert!(rested, "{:?} is used again before it has rested", self.freed);
        self.freed
    }
}

/// What is on its way back to the allocators, oldest first.
#[derive(Debug, Default)]
pub(crate) struct GraceQueue {
    resting: VecDeque<Resting>,
    bytes: u64,
}

impl GraceQueue {
    /// Something that the record `csn` frees, to be reusable from `reusable_at_ns` on.
    pub(crate) fn push(&mut self, csn: Csn, reusable_at_ns: u64, freed: Freed) {
        self.resting.push_back(Resting { csn, reusable_at_ns, freed });
        self.bytes += extent_bytes(&freed);
    }

    /// The next whose two conditions hold. The time grows along the queue; a record that is older than the
    /// one before it is durable when that is. So the front decides.
    pub(crate) fn pop(&mut self, durable: Csn, now_ns: u64) -> Option<Resting> {
        let front = self.resting.front()?;
        let rests = front.reusable_at_ns > now_ns && !planted(Mutant::GraceSkipped);
        if front.csn > durable || rests {
            return None;
        }
        let rested = self.resting.pop_front()?;
        self.bytes -= extent_bytes(&rested.freed);
        Some(rested)
    }

    /// Bytes of extents that wait.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn extent_bytes(freed: &Freed) -> u64 {
    match freed {
        Freed::Extent(_, bytes) => u64::from(*bytes),
        Freed::Node(..) | Freed::Slot(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pop_waits_for_durability_and_for_the_grace_period() {
        let mut queue = GraceQueue::default();
        let extent = Freed::Extent(ExtentOffset(4), 64);
        queue.push(Csn(10), 1_000, extent);
        queue.push(Csn(10), 1_000, Freed::Slot(SlotIndex(2)));
        assert_eq!(queue.pop(Csn(9), 5_000), None, "not durable");
        assert_eq!(queue.pop(Csn(10), 999), None, "within the grace period");
        assert_eq!(queue.bytes(), 64);
        let mut pop = |at| queue.pop(Csn(10), at).map(|rested| rested.into_freed(Csn(10), at));
        assert_eq!(pop(1_000), Some(extent));
        assert_eq!(pop(1_000), Some(Freed::Slot(SlotIndex(2))));
        assert_eq!(queue.pop(Csn(99), 9_999), None);
        assert_eq!(queue.bytes(), 0);
    }
}
