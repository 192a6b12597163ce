//! How long a pair's log has waited for its disk. A sync that does not end is in no figure of those that have
//! ended: a log root that stands still would look as one that nobody writes to.

use cell_terms::{Csn, PairId};

/// A wait of this length is told.
const LONG_NS: u64 = 3_000_000_000;

/// See the module's text. It is looked at with each tick.
#[derive(Debug)]
pub(crate) struct LogWait {
    /// The watermark at the last look.
    durable: Csn,
    /// When the log was last seen without a write on its way, or further than before.
    since_ns: u64,
    /// How long it has waited since then; 0: it does not.
    waited_ns: u64,
    is_told: bool,
}

impl LogWait {
    pub(crate) fn new(durable: Csn, now_ns: u64) -> LogWait {
        LogWait { durable, since_ns: now_ns, waited_ns: 0, is_told: false }
    }

    /// Looks at the log of a pair: whether a write of it is on its way, and how far it is durable.
    pub(crate) fn look(&mut self, pair: PairId, is_busy: bool, durable: Csn, now_ns: u64) {
        if !is_busy || durable != self.durable {
            if self.is_told {
                let waited_ms = now_ns.saturating_sub(self.since_ns) / 1_000_000;
                tracing::info!(%pair, waited_ms, "the disk of the logs has answered");
            }
            *self = LogWait::new(durable, now_ns);
            return;
        }
        self.waited_ns = now_ns.saturating_sub(self.since_ns);
        if self.is_long() && !self.is_told {
            self.is_told = true;
            tracing::warn!(%pair, "the disk of the logs does not answer: writes wait, and reads go on");
        }
    }

    /// How long the log has waited by now; 0: nothing of it is on its way, or it gets on.
    pub(crate) fn waited_ms(&self) -> u64 {
        self.waited_ns / 1_000_000
    }

    /// Whether that is long.
    pub(crate) fn is_long(&self) -> bool {
        self.waited_ns >= LONG_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: PairId = PairId(1);

    #[test]
    fn wait_is_of_one_write_and_ends_with_it() {
        let mut wait = LogWait::new(Csn(7), 0);
        wait.look(PAIR, true, Csn(7), LONG_NS - 1);
        assert!(!wait.is_long());
        wait.look(PAIR, true, Csn(7), LONG_NS);
        assert!(wait.is_long());
        assert_eq!(wait.waited_ms(), LONG_NS / 1_000_000);
        wait.look(PAIR, false, Csn(9), LONG_NS + 1);
        assert!(!wait.is_long());
        assert_eq!(wait.waited_ms(), 0);
    }

    #[test]
    fn log_that_is_busy_and_gets_on_does_not_wait() {
        let mut wait = LogWait::new(Csn(0), 0);
        for look in 1..10 {
            wait.look(PAIR, true, Csn(look), look * LONG_NS);
            assert_eq!(wait.waited_ms(), 0);
        }
    }

    #[test]
    fn log_without_a_write_on_its_way_never_waits() {
        let mut wait = LogWait::new(Csn(3), 0);
        wait.look(PAIR, false, Csn(3), 10 * LONG_NS);
        wait.look(PAIR, true, Csn(3), 10 * LONG_NS + 1);
        assert_eq!((wait.waited_ms(), wait.is_long()), (0, false));
    }
}
