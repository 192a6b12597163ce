//! Events of a run, and their order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Its time, its slot and what happens, which decide in this order which of two comes first. In one number,
/// because a run moves and compares millions of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event(u128);

impl Event {
    fn new(time_ns: u64, slot: usize, what: u8) -> Event {
        Event((u128::from(time_ns) << 64) | ((slot as u128) << 8) | u128::from(what))
    }

    #[allow(clippy::cast_possible_truncation, reason = "each part has bits of its own")]
    fn parts(self) -> (u64, usize, u8) {
        ((self.0 >> 64) as u64, ((self.0 as u64) >> 8) as usize, self.0 as u8)
    }
}

/// Those to come.
#[derive(Default)]
pub(crate) struct Events(BinaryHeap<Reverse<Event>>);

impl Events {
    pub(crate) fn push(&mut self, time_ns: u64, slot: usize, what: u8) {
        self.0.push(Reverse(Event::new(time_ns, slot, what)));
    }

    /// The first one: its time, its slot and what happens.
    pub(crate) fn pop(&mut self) -> Option<(u64, usize, u8)> {
        self.0.pop().map(|Reverse(event)| event.parts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_slot_then_what_happens() {
        let ordered = [(0, 7, 5), (1, 0, 255), (1, 300, 0), (1, 300, 1), (u64::MAX, 1 << 40, 2)];
        let mut events = Events::default();
        ordered.iter().rev().for_each(|(time_ns, slot, what)| events.push(*time_ns, *slot, *what));
        let popped: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        assert_eq!(popped, ordered);
    }
}
