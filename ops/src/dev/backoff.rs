//! How long to wait before a node that died is started again: not at all if it had served, longer each time
//! if it dies of its start.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// The waits of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    last: Option<Duration>,
}

impl Backoff {
    /// The wait after a death. What served will serve again: recovery is its way back.
    pub(crate) fn wait(&mut self, had_served: bool) -> Duration {
        if had_served {
            self.last = None;
            return Duration::ZERO;
        }
        let wait = self.last.map_or(FIRST, |last| (last * 2).min(LONGEST));
        self.last = Some(wait);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_doubles_to_a_bound_while_it_dies_of_its_start() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..8).map(|_| backoff.wait(false).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(backoff.wait(true), Duration::ZERO);
        assert_eq!(backoff.wait(false).as_millis(), 100);
    }
}
