//! How long a pair's log has waited for its disk. A sync that does not end is in no figure of those that have
//! ended: a log root that stands still would look as one that nobody writes to.

use cell_terms::{Csn, PairId};

use crate::running_time::RunningTime;

/// A wait of this length is reported.
const LONG_NS: u64 = 3_000_000_000;

/// See the module's text. It is looked at with each tick.
#[derive(Debug)]
pub(crate) struct LogWait {
    /// The watermark at the last look.
    durable: Csn,
    time: RunningTime,
    /// How long the log has waited since it was last seen without a write on its way, or further than before;
    /// 0: it does not wait.
    waited_ns: u64,
    is_reported: bool,
}

impl LogWait {
    pub(crate) fn new(durable: Csn, now_ns: u64) -> LogWait {
        LogWait { durable, time: RunningTime::new(now_ns), waited_ns: 0, is_reported: false }
    }

    /// Looks at the log of a pair: whether a write of it is on its way, and how far it is durable.
    pub(crate) fn look(&mut self, pair: PairId, is_busy: bool, durable: Csn, now_ns: u64) {
        self.waited_ns += self.time.pass(now_ns);
        if !is_busy || durable != self.durable {
            if self.is_reported {
                tracing::info!(%pair, waited_ms = self.waited_ms(), "the disk of the logs has answered");
            }
            *self = LogWait::new(durable, now_ns);
            return;
        }
        if self.is_long() && !self.is_reported {
            self.is_reported = true;
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
    const TICK_NS: u64 = 10_000_000;

    /// A log with a write on its way that gets no further is looked at with each tick of such a time.
    fn look_on(wait: &mut LogWait, from_ns: u64, until_ns: u64) {
        let mut now_ns = from_ns;
        while now_ns < until_ns {
            now_ns = until_ns.min(now_ns + TICK_NS);
            wait.look(PAIR, true, wait.durable, now_ns);
        }
    }

    #[test]
    fn wait_is_of_one_write_and_ends_with_it() {
        let mut wait = LogWait::new(Csn(7), 0);
        look_on(&mut wait, 0, LONG_NS - 1);
        assert!(!wait.is_long());
        wait.look(PAIR, true, Csn(7), LONG_NS);
        assert!(wait.is_long());
        assert_eq!(wait.waited_ms(), LONG_NS / 1_000_000);
        wait.look(PAIR, false, Csn(9), LONG_NS + 1);
        assert!(!wait.is_long());
        assert_eq!(wait.waited_ms(), 0);
    }

    /// A node was stopped for some seconds by SIGSTOP, or its machine slept: it said that its disk did not
    /// answer, which had answered long before.
    #[test]
    fn time_in_which_nobody_looked_is_no_wait() {
        let mut wait = LogWait::new(Csn(7), 0);
        look_on(&mut wait, 0, LONG_NS / 2);
        let stopped_ns = 100 * LONG_NS;
        wait.look(PAIR, true, Csn(7), stopped_ns);
        assert!(!wait.is_long(), "{} ms", wait.waited_ms());
        // It waits on, and what it has waited before counts.
        look_on(&mut wait, stopped_ns, stopped_ns + LONG_NS / 2);
        assert!(wait.is_long());
    }

    #[test]
    fn log_that_is_busy_and_gets_on_does_not_wait() {
        let mut wait = LogWait::new(Csn(0), 0);
        for look in 1..1_000 {
            wait.look(PAIR, true, Csn(look), look * TICK_NS);
            assert_eq!(wait.waited_ms(), 0);
        }
    }

    #[test]
    fn log_without_a_write_on_its_way_never_waits() {
        let mut wait = LogWait::new(Csn(3), 0);
        for look in 1..1_000 {
            wait.look(PAIR, false, Csn(3), look * TICK_NS);
        }
        wait.look(PAIR, true, Csn(3), 999 * TICK_NS + 1);
        assert_eq!((wait.waited_ms(), wait.is_long()), (0, false));
    }
}
