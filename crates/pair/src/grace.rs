//! What was freed waits here before it is used again: extents, tree nodes, slots.
//!
//! Two conditions, one after the other (`docs/design/tree.md`):
//!
//! 1. the record that freed it is durable: a crash would bring the old entry back, and its bytes must be
//!    there;
//! 2. from then on a grace period has passed that covers the longest permitted one-sided operation: a reader
//!    that found the pointer just before the free may still be reading.
//!
//! The grace period is counted from a clock that is read *after* the free. A worker is given the time at the
//! beginning of its turns, and its thread can be stopped at any instruction of one:
//!
//! 1. the worker is given the time T, and its thread is stopped until T + grace;
//! 2. a reader finds an entry's place in its leaf;
//! 3. the worker frees the entry. Counted from T its place may be used again at once;
//! 4. it is written, and the reader of step 2 reads another entry's header as its own.

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
    /// If one of the two conditions does not hold: a checksum shows a reader an extent that was used again
    /// too early, but its owner would not notice.
    pub(crate) fn into_freed(self, durable: Csn, now_ns: u64) -> Freed {
        let rested = self.csn <= durable && self.reusable_at_ns <= now_ns;
        assert!(rested, "{:?} is used again before it has rested", self.freed);
        self.freed
    }
}

/// What is on its way back to the allocators, oldest first.
#[derive(Debug)]
pub(crate) struct GraceQueue {
    grace_ns: u64,
    /// What is not known to be freed durably.
    pending: VecDeque<(Csn, Freed)>,
    resting: VecDeque<Resting>,
    bytes: u64,
    /// The time of the last [`GraceQueue::begin_grace`].
    time_ns: u64,
}

impl GraceQueue {
    /// An empty one, with this grace period.
    pub(crate) fn new(grace_ns: u64) -> GraceQueue {
        GraceQueue { grace_ns, pending: VecDeque::new(), resting: VecDeque::new(), bytes: 0, time_ns: 0 }
    }

    /// Something that the record `csn` frees.
    pub(crate) fn push(&mut self, csn: Csn, freed: Freed) {
        self.pending.push_back((csn, freed));
        self.bytes += extent_bytes(&freed);
    }

    /// Begins the grace period of what has become durable. `now_ns` is a time that was read after it did. A
    /// record that is older than the one before it is durable when that is, so the front decides.
    pub(crate) fn begin_grace(&mut self, durable: Csn, now_ns: u64) {
        let time_before_ns = std::mem::replace(&mut self.time_ns, now_ns);
        let from_ns = if planted(Mutant::GraceBackdated) { time_before_ns } else { now_ns };
        let reusable_at_ns = from_ns.saturating_add(self.grace_ns);
        while let Some((csn, freed)) = self.pending.pop_front_if(|(csn, _)| *csn <= durable) {
            self.resting.push_back(Resting { csn, reusable_at_ns, freed });
        }
    }

    /// The next whose grace period is over. The time grows along the queue, so the front decides.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<Resting> {
        let over = |front: &mut Resting| front.reusable_at_ns <= now_ns || planted(Mutant::GraceSkipped);
        let rested = self.resting.pop_front_if(over)?;
        self.bytes -= extent_bytes(&rested.freed);
        Some(rested)
    }

    /// The record that freed the extent which has waited for the longest.
    pub(crate) fn oldest_extent(&self) -> Option<Csn> {
        let resting = self.resting.iter().map(|resting| (resting.csn, resting.freed));
        let mut all = resting.chain(self.pending.iter().copied());
        all.find_map(|(csn, freed)| matches!(freed, Freed::Extent(..)).then_some(csn))
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
    fn oldest_extent_is_reported_whether_it_rests_or_is_pending_and_nodes_are_not() {
        let mut queue = GraceQueue::new(1_000);
        assert_eq!(queue.oldest_extent(), None);
        queue.push(Csn(8), Freed::Slot(SlotIndex(1)));
        queue.push(Csn(9), Freed::Extent(ExtentOffset(4), 64));
        queue.push(Csn(10), Freed::Extent(ExtentOffset(8), 64));
        assert_eq!(queue.oldest_extent(), Some(Csn(9)), "pending");
        queue.begin_grace(Csn(9), 5);
        assert_eq!(queue.oldest_extent(), Some(Csn(9)), "resting");
        while queue.pop(1_005).is_some() {}
        assert_eq!(queue.oldest_extent(), Some(Csn(10)));
    }

    #[test]
    fn grace_period_begins_once_the_record_is_durable() {
        let mut queue = GraceQueue::new(1_000);
        let extent = Freed::Extent(ExtentOffset(4), 64);
        queue.push(Csn(10), extent);
        queue.push(Csn(10), Freed::Slot(SlotIndex(2)));
        queue.begin_grace(Csn(9), 5_000);
        assert_eq!(queue.pop(9_000), None, "not durable");
        queue.begin_grace(Csn(10), 9_000);
        assert_eq!(queue.pop(9_999), None, "within the grace period");
        assert_eq!(queue.bytes(), 64);
        let mut pop = |at| queue.pop(at).map(|rested| rested.into_freed(Csn(10), at));
        assert_eq!(pop(10_000), Some(extent));
        assert_eq!(pop(10_000), Some(Freed::Slot(SlotIndex(2))));
        assert_eq!(pop(u64::MAX), None);
        assert_eq!(queue.bytes(), 0);
    }

    /// The last guard: what comes out of the queue too early would be written over while it is read.
    #[test]
    fn what_lacks_one_of_the_two_conditions_is_not_given_back() {
        let resting = Resting { csn: Csn(7), reusable_at_ns: 500, freed: Freed::Slot(SlotIndex(1)) };
        let given =
            |durable, now_ns| std::panic::catch_unwind(|| resting.into_freed(Csn(durable), now_ns)).is_ok();
        assert_eq!([given(7, 500), given(8, 501)], [true; 2]);
        assert_eq!([given(6, 500), given(7, 499), given(6, 499)], [false; 3]);
    }

    #[test]
    fn record_that_is_older_than_the_one_before_it_rests_behind_that() {
        let mut queue = GraceQueue::new(1_000);
        queue.push(Csn(10), Freed::Slot(SlotIndex(1)));
        queue.push(Csn(7), Freed::Slot(SlotIndex(2)));
        queue.begin_grace(Csn(8), 1_000);
        assert_eq!(queue.pop(u64::MAX), None);
        queue.begin_grace(Csn(10), 3_000);
        assert_eq!(
            (queue.pop(3_999), queue.pop(4_000).is_some(), queue.pop(4_000).is_some()),
            (None, true, true)
        );
    }
}
