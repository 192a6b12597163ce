//! What is planned on the simulated network, by time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::link::{LinkId, Side};
use super::read_state::ReadId;

/// Something that comes due.
#[derive(Debug)]
pub(super) enum Due {
    /// The next segment from this side of the link.
    Delivery(LinkId, Side),
    /// A read's request reaches the host that it reads from.
    ReadStarted(ReadId),
    /// Some of a read's words are loaded.
    ReadMoment(ReadId, usize),
    /// A read's data is back.
    ReadBack(ReadId),
}

/// What is planned. Of two things for one time the one that was planned first comes first.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    planned: BinaryHeap<Planned>,
    count: u64,
}

/// The earliest is the greatest, which a heap has on top.
#[derive(Debug)]
struct Planned {
    due_ns: u64,
    /// How many things were planned before it.
    number: u64,
    due: Due,
}

impl Planned {
    fn order(&self) -> (u64, u64) {
        (self.due_ns, self.number)
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Planned) -> Ordering {
        other.order().cmp(&self.order())
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Planned) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Planned {
    fn eq(&self, other: &Planned) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Planned {}

impl Schedule {
    pub(super) fn plan(&mut self, due_ns: u64, due: Due) {
        self.planned.push(Planned { due_ns, number: self.count, due });
        self.count += 1;
    }

    /// When the next thing is due.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.planned.peek().map(|planned| planned.due_ns)
    }

    /// The next thing that is due by then, and its time.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<(u64, Due)> {
        self.next_due_ns().filter(|due_ns| *due_ns <= now_ns)?;
        self.planned.pop().map(|Planned { due_ns, due, .. }| (due_ns, due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_due_goes_by_time_and_then_by_the_order_of_planning() {
        let mut schedule = Schedule::default();
        for (read, due_ns) in [(1, 30), (2, 10), (3, 30), (4, 20), (5, 10)] {
            schedule.plan(due_ns, Due::ReadStarted(read));
        }
        let mut taken = Vec::new();
        while let Some((due_ns, Due::ReadStarted(read))) = schedule.take_due(25) {
            taken.push((due_ns, read));
        }
        assert_eq!(taken, [(10, 2), (10, 5), (20, 4)]);
        assert_eq!(schedule.next_due_ns(), Some(30));
        assert!(matches!(schedule.take_due(30), Some((30, Due::ReadStarted(1)))));
    }
}
