//! A worker whose lease has run out, and who does not know what the coordinator thinks of it. Until that has
//! answered the worker is *silent*: it sends nothing, takes no requests, submits nothing to its logs, and
//! keeps all that it has.
//!
//! 1. The lease runs out. What is in flight at the logs completes and raises the watermarks; the replies that
//!    waited for it join those that were ready, and stay.
//! 2. The lease holds again. At no moment since has it ended at the coordinator, so nobody else has claimed
//!    the pairs: what was decided is still true, what is durable is in logs that nobody has cut, and what
//!    waits may leave.
//! 3. Or the lease has ended: others may have the pairs. The worker fails, what waits is dropped, and the
//!    process exits.
//!
//! A worker that is to stop does not wait: it fails, and what is in its logs is found by whoever comes next.

use cell_terms::mutant::{Mutant, planted};

use super::{Worker, WorkerPhase, lease_over};
use crate::command::Command;
use crate::snapshot::FailureKind;

impl Worker {
    /// Takes in what the lease's thread knows; whether the lease holds.
    pub(super) fn take_lease(&mut self) -> bool {
        let holds = !lease_over(self.now_ns, self.lease_until_ns);
        if !holds {
            self.lease_has_run_out();
        } else if std::mem::take(&mut self.silent) {
            self.go_on();
        }
        holds
    }

    /// Whether nothing may leave at this time; the lease was read after the clock.
    pub(super) fn must_not_send(&mut self) -> bool {
        if lease_over(self.now_ns, self.lease_until_ns) {
            self.lease_has_run_out();
        }
        self.silent && !planted(Mutant::SilentSends)
    }

    /// The lease is not to be relied on. Zero: it has ended.
    fn lease_has_run_out(&mut self) {
        if self.lease_until_ns == 0 || self.phase == WorkerPhase::Stopping {
            self.fail(FailureKind::LeaseLost);
        } else {
            self.silent = true;
        }
    }

    /// The lease holds again.
    fn go_on(&mut self) {
        // Nobody could be heard: that is no reason to end a session.
        self.sessions.touch_all(self.now_ns);
        self.commands.append(&mut self.unanswered);
        self.drain_backlogs();
    }

    /// The coordinator did not answer: it is asked again. In silence that waits, because a coordinator that
    /// is not there at all fails at once, and the two threads would do nothing else.
    pub(super) fn ask_again(&mut self, command: Command) {
        let commands = if self.silent { &mut self.unanswered } else { &mut self.commands };
        commands.push(command);
    }

    /// Whether the lease has run out: nothing is sent and nothing is done until it holds again.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.silent && !planted(Mutant::SilentWorks)
    }
}
