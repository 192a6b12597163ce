//! What systemd is notified of: ready, status, more time while a recovery or a last checkpoint advances and
//! while a lease is about to end, the watchdog. A supervisor speaks for its nodes. Without systemd (no
//! NOTIFY_SOCKET) all of it does nothing.

use std::time::{Duration, Instant};

use cell_node::{NodeSnapshot, NodeState};
use sd_notify::NotifyState;

/// More time is asked for in such pieces, and again before they run out.
const EXTENSION: Duration = Duration::from_secs(30);
pub(crate) const EXTEND_EVERY: Duration = Duration::from_secs(5);
/// A node whose uptime stands still for so long hangs: the watchdog is not fed.
const HANG_AFTER: Duration = Duration::from_secs(5);
/// So often within the time that systemd waits for it, the watchdog is fed.
const FEEDS: u32 = 3;

/// Notifies systemd of how a node is doing.
pub(crate) struct Service {
    ready: bool,
    status: String,
    extended_at: Option<Instant>,
    progress: u64,
    watchdog: Option<Watchdog>,
}

impl Service {
    pub(crate) fn new(now: Instant) -> Service {
        Service {
            ready: false,
            status: String::new(),
            extended_at: None,
            progress: 0,
            watchdog: sd_notify::watchdog_enabled().map(|patience| Watchdog::new(patience, now)),
        }
    }

    /// Looks at a snapshot; call it several times a second.
    pub(crate) fn observe(&mut self, snapshot: &NodeSnapshot, status: &str, now: Instant) {
        if self.status != status {
            status.clone_into(&mut self.status);
            notify(&[NotifyState::Status(status)]);
        }
        let serves = matches!(snapshot.state, NodeState::Serving | NodeState::ReadOnly(_));
        if serves && !self.ready {
            self.ready = true;
            notify(&[NotifyState::Ready]);
        }
        self.extend(&snapshot.state, now);
        if self.watchdog.as_mut().is_some_and(|watchdog| watchdog.is_due(snapshot.uptime_ms, now)) {
            notify(&[NotifyState::Watchdog]);
        }
    }

    /// The last checkpoint begins.
    pub(crate) fn stopping(&mut self, now: Instant) {
        self.extended_at = Some(now);
        notify(&[NotifyState::Stopping, extension()]);
    }

    /// The worker ended at `ended_at`, and shows no progress any more; the node waits for so long until it
    /// ends its lease. Call it several times a second. One that takes much longer than that hangs.
    pub(crate) fn ending(&mut self, ended_at: Instant, wait: Duration, now: Instant) {
        let states = self.states_at_end(ended_at, wait, now);
        if !states.is_empty() {
            notify(&states);
        }
    }

    fn states_at_end(
        &mut self,
        ended_at: Instant,
        wait: Duration,
        now: Instant,
    ) -> Vec<NotifyState<'static>> {
        let mut states = Vec::new();
        if now.duration_since(ended_at) >= wait + EXTENSION {
            return states;
        }
        if self.extended_at.is_none_or(|at| now.duration_since(at) >= EXTEND_EVERY) {
            self.extended_at = Some(now);
            states.push(extension());
        }
        if self.watchdog.as_mut().is_some_and(|watchdog| watchdog.is_hungry(now)) {
            states.push(NotifyState::Watchdog);
        }
        states
    }

    /// A recovery gets more time only while it advances, so that one that hangs is ended.
    fn extend(&mut self, state: &NodeState, now: Instant) {
        let progress = match state {
            NodeState::Recovering(progress) => progress.bytes_done,
            // Whether there is a coordinator is not for the service manager to decide.
            NodeState::Starting(_) => self.progress.wrapping_add(1),
            NodeState::Stopping => self.progress.wrapping_add(1), // its own deadline is the operator's
            _ => return,
        };
        let is_due = self.extended_at.is_none_or(|at| now.duration_since(at) >= EXTEND_EVERY);
        if is_due && progress != self.progress {
            self.progress = progress;
            self.extended_at = Some(now);
            notify(&[extension()]);
        }
    }
}

/// Notifies systemd of how a supervisor is doing, whose nodes say nothing to systemd themselves.
pub(crate) struct SupervisorService {
    ready: bool,
    stops: bool,
    extended_at: Option<Instant>,
    /// How long systemd waits for the watchdog, and when it was fed.
    watchdog: Option<(Duration, Instant)>,
}

impl SupervisorService {
    pub(crate) fn new(now: Instant) -> SupervisorService {
        let watchdog = sd_notify::watchdog_enabled().map(|patience| (patience, now));
        SupervisorService { ready: false, stops: false, extended_at: None, watchdog }
    }

    /// The supervisor turns: the watchdog is about that. A node that hangs is for the others to see.
    pub(crate) fn turn(&mut self, now: Instant) {
        if let Some((patience, fed_at)) = &mut self.watchdog
            && now.duration_since(*fed_at) >= *patience / FEEDS
        {
            *fed_at = now;
            notify(&[NotifyState::Watchdog]);
        }
    }

    /// How long it may be until the next turn, if systemd waits for it.
    pub(crate) fn period(&self) -> Option<Duration> {
        self.watchdog.map(|(patience, _)| patience / FEEDS)
    }

    /// A node has come on with its start.
    pub(crate) fn progress(&mut self, now: Instant) {
        if !self.ready && self.takes_extension(now) {
            notify(&[extension()]);
        }
    }

    fn takes_extension(&mut self, now: Instant) -> bool {
        let is_due = self.extended_at.is_none_or(|at| now.duration_since(at) >= EXTEND_EVERY);
        if is_due {
            self.extended_at = Some(now);
        }
        is_due
    }

    /// No node is waited for any more.
    pub(crate) fn ready(&mut self) {
        if !std::mem::replace(&mut self.ready, true) {
            notify(&[NotifyState::Ready]);
        }
    }

    /// The last checkpoints are taken; call it each [`EXTEND_EVERY`] of that at least.
    pub(crate) fn stopping(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.stops, true) {
            self.extended_at = Some(now);
            notify(&[NotifyState::Stopping, extension()]);
        } else if self.takes_extension(now) {
            notify(&[extension()]);
        }
    }
}

/// When the watchdog is fed: as long as the worker shows that it makes progress. The uptime is written by the
/// worker's own thread, at the end of a turn of its loop, into each snapshot; a worker that waits for ever in
/// one turn leaves it as it is, whatever the process's other threads do.
struct Watchdog {
    patience: Duration,
    fed_at: Instant,
    uptime_ms: u64,
    alive_at: Instant,
}

impl Watchdog {
    fn new(patience: Duration, now: Instant) -> Watchdog {
        Watchdog { patience, fed_at: now, uptime_ms: 0, alive_at: now }
    }

    fn is_due(&mut self, uptime_ms: u64, now: Instant) -> bool {
        if uptime_ms != self.uptime_ms {
            self.uptime_ms = uptime_ms;
            self.alive_at = now;
        }
        now.duration_since(self.alive_at) < HANG_AFTER && self.is_hungry(now)
    }

    /// Whatever the worker shows. It is taken to be fed then.
    fn is_hungry(&mut self, now: Instant) -> bool {
        let is_hungry = now.duration_since(self.fed_at) >= self.patience / FEEDS;
        if is_hungry {
            self.fed_at = now;
        }
        is_hungry
    }
}

fn extension() -> NotifyState<'static> {
    NotifyState::ExtendTimeoutUsec(u32::try_from(EXTENSION.as_micros()).unwrap_or(u32::MAX))
}

/// A service manager that does not listen is no reason to stop.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager was not notified");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds after which the watchdog is fed, looked at ten times a second for a minute; the worker's last
    /// sign of life is at `hangs_at`.
    fn fed(patience: u64, hangs_at: u64) -> Vec<u64> {
        let start = Instant::now();
        let mut watchdog = Watchdog::new(Duration::from_secs(patience), start);
        let looks = (0..600_u64).map(|tenth| Duration::from_millis(tenth * 100));
        let due = looks.filter(|after| {
            let uptime = after.as_secs().min(hangs_at) * 1_000; // published once a second
            watchdog.is_due(uptime, start + *after)
        });
        due.map(|after| after.as_secs()).collect()
    }

    #[test]
    fn watchdog_is_fed_three_times_in_its_time_while_the_worker_turns() {
        assert_eq!(fed(30, u64::MAX), [10, 20, 30, 40, 50]);
        assert_eq!(fed(6, u64::MAX).len(), 29);
    }

    #[test]
    fn watchdog_is_not_fed_for_a_worker_that_hangs_whatever_looks_at_it() {
        assert_eq!(fed(30, 21), [10, 20]);
        assert_eq!(fed(6, 20), [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24]);
    }

    /// A worker that has ended shows nothing any more; a node that stays for longer than its lease may hangs.
    #[test]
    fn node_whose_lease_is_about_to_end_is_alive_until_it_takes_too_long() {
        let start = Instant::now();
        let (second, patience) = (Duration::from_secs(1), Duration::from_secs(6));
        let watchdog = Some(Watchdog::new(patience, start));
        let (status, extended_at) = (String::new(), Some(start));
        let mut service = Service { ready: true, status, extended_at, progress: 0, watchdog };
        let (mut fed, mut extended) = (Vec::new(), Vec::new());
        for after in 0..=60_u32 {
            let states = service.states_at_end(start, 15 * second, start + after * second);
            let has = |is: fn(&NotifyState<'_>) -> bool| states.iter().any(is);
            fed.extend(has(|state| matches!(state, NotifyState::Watchdog)).then_some(after));
            extended.extend(has(|state| matches!(state, NotifyState::ExtendTimeoutUsec(_))).then_some(after));
        }
        assert_eq!(fed, (2..45).step_by(2).collect::<Vec<u32>>());
        assert_eq!(extended, (5..45).step_by(5).collect::<Vec<u32>>());
    }
}
