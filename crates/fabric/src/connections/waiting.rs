//! Accepted connections that wait for something to be known of their peers, the oldest first: for their
//! hello, or to be admitted. Where there is no room the oldest makes some, so that whoever says nothing keeps
//! nobody out, however many they are.

use std::collections::VecDeque;

use crate::endpoint::ConnectionId;

/// Connections that wait no longer, and are not yet forgotten.
const FORGOTTEN_LATE: usize = 64;

/// Who waits is for its owner to say, by the connection; some in here do not any more.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Nobody makes room who has waited for less.
    patience_ns: u64,
    /// Each with the time since which it has waited.
    line: VecDeque<(ConnectionId, u64)>,
}

impl Waiting {
    pub(super) fn with_patience(patience_ns: u64) -> Waiting {
        Waiting { patience_ns, line: VecDeque::new() }
    }

    /// One more waits, of at most so many.
    pub(super) fn push(
        &mut self,
        id: ConnectionId,
        now_ns: u64,
        most: usize,
        waits: impl Fn(ConnectionId) -> bool,
    ) {
        self.line.push_back((id, now_ns));
        if self.line.len() > 2 * most + FORGOTTEN_LATE {
            self.line.retain(|(id, _)| waits(*id));
        }
    }

    /// Takes out who has waited for longest, once that is too long.
    pub(super) fn take_oldest(
        &mut self,
        now_ns: u64,
        waits: impl Fn(ConnectionId) -> bool,
    ) -> Option<ConnectionId> {
        while let Some((id, since_ns)) = self.line.front().copied() {
            let still_waits = waits(id);
            if still_waits && now_ns < since_ns.saturating_add(self.patience_ns) {
                return None;
            }
            self.line.pop_front();
            if still_waits {
                return Some(id);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ConnectionId {
        ConnectionId(number)
    }

    #[test]
    fn take_oldest_passes_over_who_waits_no_longer() {
        let mut waiting = Waiting::with_patience(0);
        (1..=4).for_each(|number| waiting.push(id(number), 0, 4, |_| true));
        let waits = |of| of != id(1) && of != id(3);
        assert_eq!(waiting.take_oldest(0, waits), Some(id(2)));
        assert_eq!(waiting.take_oldest(0, waits), Some(id(4)));
        assert_eq!(waiting.take_oldest(0, waits), None);
    }

    #[test]
    fn take_oldest_leaves_everybody_their_time() {
        let mut waiting = Waiting::with_patience(100);
        waiting.push(id(1), 50, 2, |_| true);
        waiting.push(id(2), 60, 2, |_| true);
        assert_eq!(waiting.take_oldest(149, |_| true), None);
        assert_eq!(waiting.take_oldest(150, |_| true), Some(id(1)));
        assert_eq!(waiting.take_oldest(159, |_| true), None);
        assert_eq!(waiting.take_oldest(159, |of| of != id(2)), None, "who is known waits no longer");
        assert!(waiting.line.is_empty());
    }

    #[test]
    fn push_forgets_those_who_wait_no_longer_once_they_are_many() {
        let mut waiting = Waiting::with_patience(0);
        for number in 0..10_000 {
            waiting.push(id(number), 0, 1, |of| of == id(number));
            assert!(waiting.line.len() <= 2 + FORGOTTEN_LATE, "{}", waiting.line.len());
        }
    }
}
