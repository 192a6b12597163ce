//! The times that the web shows. Nothing is decided by them but ages.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

#[allow(clippy::disallowed_methods, reason = "web is a shell: it shows ages")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The time since this was first asked for. It only grows.
pub(crate) fn running() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(now);
    let start = *START;
    now().saturating_duration_since(start)
}

/// Milliseconds since 1970, for people: nothing is decided by them.
#[allow(clippy::disallowed_methods, reason = "web is a shell: it shows when something was")]
pub(crate) fn now_unix_ms() -> u64 {
    milliseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Milliseconds of CLOCK_BOOTTIME, the clock of the cluster's incidents.
pub(crate) fn now_boottime_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec * 1_000 + now.tv_nsec / 1_000_000).unwrap_or(0)
}

/// When a look was made, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LookTime {
    /// By CLOCK_BOOTTIME, which nobody sets.
    pub(crate) boottime_ms: u64,
    /// Since 1970, by the wall clock, which may be set.
    pub(crate) unix_ms: u64,
}

impl LookTime {
    /// Now.
    pub(crate) fn now() -> LookTime {
        LookTime { boottime_ms: now_boottime_ms(), unix_ms: now_unix_ms() }
    }
}

/// `12:03:04 UTC`, of a time in milliseconds since 1970.
pub(crate) fn time_of_day(unix_ms: u64) -> String {
    let second = unix_ms / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02} UTC", second / 3_600, second / 60 % 60, second % 60)
}

/// A time in whole milliseconds.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
