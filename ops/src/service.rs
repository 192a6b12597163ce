//! What systemd is told: ready, status, more time while a recovery or a last checkpoint advances, the
//! watchdog. Without systemd (no NOTIFY_SOCKET) all of it does nothing.

use std::time::{Duration, Instant};

use cell_node::{NodeSnapshot, NodeState};
use sd_notify::NotifyState;

/// More time is asked for in such pieces, and again before they run out.
const EXTENSION: Duration = Duration::from_secs(30);
const EXTEND_EVERY: Duration = Duration::from_secs(5);
/// A node whose uptime stands still for so long hangs: the watchdog is not fed.
const HANG_AFTER: Duration = Duration::from_secs(5);

/// Tells systemd how a node is doing.
pub(crate) struct Service {
    ready: bool,
    status: String,
    extended_at: Option<Instant>,
    progress: u64,
    fed_at: Instant,
    watchdog: Option<Duration>,
    uptime_ms: u64,
    alive_at: Instant,
}

impl Service {
    /// Begins.
    pub(crate) fn new(now: Instant) -> Service {
        Service {
            ready: false,
            status: String::new(),
            extended_at: None,
            progress: 0,
            fed_at: now,
            watchdog: sd_notify::watchdog_enabled(),
            uptime_ms: 0,
            alive_at: now,
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
        self.feed(snapshot.uptime_ms, now);
    }

    /// The last checkpoint begins.
    pub(crate) fn stopping(&mut self, now: Instant) {
        self.extended_at = Some(now);
        notify(&[NotifyState::Stopping, extension()]);
    }

    /// A recovery gets more time only while it advances, so that one that hangs is ended.
    fn extend(&mut self, state: &NodeState, now: Instant) {
        let progress = match state {
            NodeState::Recovering(progress) => progress.bytes_done,
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

    fn feed(&mut self, uptime_ms: u64, now: Instant) {
        if uptime_ms != self.uptime_ms {
            self.uptime_ms = uptime_ms;
            self.alive_at = now;
        }
        let Some(watchdog) = self.watchdog else { return };
        if now.duration_since(self.alive_at) < HANG_AFTER && now.duration_since(self.fed_at) >= watchdog / 3 {
            self.fed_at = now;
            notify(&[NotifyState::Watchdog]);
        }
    }
}

fn extension() -> NotifyState<'static> {
    NotifyState::ExtendTimeoutUsec(u32::try_from(EXTENSION.as_micros()).unwrap_or(u32::MAX))
}

/// A service manager that does not listen is no reason to stop.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager was not told");
    }
}
