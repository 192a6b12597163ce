//! How old a snapshot is. It carries no clock reading of its own, so the web looks each second whether the
//! node's uptime has moved on; if it stands still, the node's control thread hangs, and the figures are of
//! the past.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Past this age the figures are not believed.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(5);

/// When the uptime last moved.
#[derive(Debug)]
pub(crate) struct Freshness {
    seen: Mutex<(u64, Instant)>,
}

impl Freshness {
    /// Begins with what is known now.
    pub(crate) fn new(uptime_ms: u64, now: Instant) -> Freshness {
        Freshness { seen: Mutex::new((uptime_ms, now)) }
    }

    /// Takes note of an uptime, and says how long it has been standing still.
    pub(crate) fn observe(&self, uptime_ms: u64, now: Instant) -> Duration {
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if seen.0 != uptime_ms {
            *seen = (uptime_ms, now);
        }
        now.saturating_duration_since(seen.1)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a starting point; the test adds to it")]
mod tests {
    use super::*;

    #[test]
    fn observe_an_uptime_that_stands_still_grows_old() {
        let start = Instant::now();
        let freshness = Freshness::new(1000, start);
        assert_eq!(freshness.observe(1000, start + Duration::from_secs(9)), Duration::from_secs(9));
        assert_eq!(freshness.observe(2000, start + Duration::from_secs(10)), Duration::ZERO);
        assert_eq!(freshness.observe(2000, start + Duration::from_secs(11)), Duration::from_secs(1));
    }
}
