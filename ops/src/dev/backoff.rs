//! How long to wait before a node that died is started again: longer each time, short again once it has
//! lived.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// A node that lived so long did not die of its start.
const LIVED: Duration = Duration::from_secs(30);

/// The waits of one node.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { next: FIRST }
    }
}

impl Backoff {
    /// The wait after a death at the age of `lived`.
    pub(crate) fn wait(&mut self, lived: Duration) -> Duration {
        if lived >= LIVED {
            self.next = FIRST;
        }
        let wait = self.next;
        self.next = (wait * 2).min(LONGEST);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_doubles_to_a_bound_and_begins_anew_after_a_life() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..8).map(|_| backoff.wait(Duration::from_secs(1)).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(backoff.wait(Duration::from_secs(60)).as_millis(), 100);
    }
}
