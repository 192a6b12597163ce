//! The clock of leases: CLOCK_BOOTTIME, which neither jumps with the wall clock nor stops while the machine
//! sleeps.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds since boot, suspended time included. Every process of a machine reads the same clock.
#[must_use]
pub fn boottime_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Where a shell takes the time from.
pub trait Clock: Send + Sync {
    /// Nanoseconds that only grow.
    fn now_ns(&self) -> u64;
}

/// [`boottime_ns`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BootClock;

impl Clock for BootClock {
    fn now_ns(&self) -> u64 {
        boottime_ns()
    }
}

/// A clock that moves when it is set: for tests and the simulator.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that begins at `now_ns`.
    #[must_use]
    pub fn new(now_ns: u64) -> ManualClock {
        ManualClock(AtomicU64::new(now_ns))
    }

    /// Moves the clock on.
    pub fn advance(&self, by_ns: u64) {
        self.0.fetch_add(by_ns, Ordering::SeqCst);
    }

    /// Moves the clock to `now_ns`; a time before the present is ignored, clocks do not go back.
    pub fn set(&self, now_ns: u64) {
        self.0.fetch_max(now_ns, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
