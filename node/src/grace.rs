//! Freed extents wait here before they are used again.
//!
//! Two conditions, both needed (DESIGN.md, "Memory and the tree"):
//!
//! 1. the record that freed the extent is durable: a crash would bring the old entry back, and its bytes must
//!    be there;
//! 2. a grace period that covers the longest permitted one-sided operation has passed since the free: a
//!    reader that
//!    found the pointer just before may still be reading.

use std::collections::VecDeque;

use cell_terms::{Csn, ExtentOffset};

#[derive(Clone, Copy, Debug)]
struct Freed {
    csn: Csn,
    reusable_at_ns: u64,
    offset: ExtentOffset,
    bytes: u32,
}

/// Extents on their way back to the allocator, oldest first.
#[derive(Debug, Default)]
pub(crate) struct GraceQueue {
    freed: VecDeque<Freed>,
    bytes: u64,
}

impl GraceQueue {
    /// An extent that the record `csn` frees, to be reusable from `reusable_at_ns` on.
    pub(crate) fn push(&mut self, csn: Csn, reusable_at_ns: u64, offset: ExtentOffset, bytes: u32) {
        self.freed.push_back(Freed { csn, reusable_at_ns, offset, bytes });
        self.bytes += u64::from(bytes);
    }

    /// The next extent whose two conditions hold. Both grow along the queue, so the front decides.
    pub(crate) fn pop(&mut self, durable: Csn, now_ns: u64) -> Option<(ExtentOffset, u32)> {
        let front = self.freed.front()?;
        if front.csn > durable || front.reusable_at_ns > now_ns {
            return None;
        }
        let freed = self.freed.pop_front()?;
        self.bytes -= u64::from(freed.bytes);
        Some((freed.offset, freed.bytes))
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pop_waits_for_durability_and_for_the_grace_period() {
        let mut queue = GraceQueue::default();
        queue.push(Csn(10), 1_000, ExtentOffset(4), 64);
        assert_eq!(queue.pop(Csn(9), 5_000), None, "not durable");
        assert_eq!(queue.pop(Csn(10), 999), None, "within the grace period");
        assert_eq!(queue.bytes(), 64);
        assert_eq!(queue.pop(Csn(10), 1_000), Some((ExtentOffset(4), 64)));
        assert_eq!(queue.pop(Csn(99), 9_999), None);
        assert_eq!(queue.bytes(), 0);
    }
}
