//! How the process that hosts a store notices that it stood still: stopped, or starved of its processors.
//!
//! Leases end by the clock, and the clock goes on while the process does not. One that goes on after 1.5 s
//! would end every lease of half a second before it read what their holders had asked meanwhile:
//!
//! 1. a thread ticks; calls tick too. A tick that comes long after the one before it is a gap;
//! 2. who answers a call takes the gap first, and with it each lease that it was long for gets its whole
//!    length anew (`CoordinatorStore::stood_still`), as after a restart;
//! 3. then only it asks which leases are over.
//!
//! A lease that was over before the gap began stays over: its holder had all the time until then. So a lease
//! never comes back whose end has been decided, also while that is on its way to a disk without room. For
//! that a gap is taken, and the end of leases decided, by one call at a time and by one look at the clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::ClusterError;
use crate::urgent;

/// Between two ticks.
pub(crate) const TICK_NS: u64 = 20_000_000;

/// A time in which the process did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// How long it was.
    pub(crate) lasted_ns: u64,
    /// When the process was last seen at work before it.
    pub(crate) began_ns: u64,
    /// When it was over, at the latest.
    pub(crate) ended_ns: u64,
}

/// When the process was last at work, and the gap that nobody has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Ticks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// None: nobody ticks, and calls alone show no gap.
    last_ns: Option<u64>,
    gap: Option<Gap>,
}

/// The thread that ticks. Dropping it ends it.
pub(crate) struct Ticker {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ticks {
    /// The process is at work at this time; from the first tick on gaps are noticed.
    pub(crate) fn tick(&self, now_ns: u64) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.last_ns.get_or_insert(now_ns);
        state.note(now_ns);
    }

    /// The gap that was noticed since the last call of this, for a call that is carried out at this time.
    pub(crate) fn take_gap(&self, now_ns: u64) -> Option<Gap> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.note(now_ns);
        state.gap.take()
    }
}

impl State {
    fn note(&mut self, now_ns: u64) {
        let Some(last_ns) = &mut self.last_ns else { return };
        let gap = Gap { lasted_ns: now_ns.saturating_sub(*last_ns), began_ns: *last_ns, ended_ns: now_ns };
        *last_ns = now_ns.max(*last_ns);
        if gap.lasted_ns > 2 * TICK_NS {
            // Several are as one, from the beginning of the first to the end of the last, in which the
            // process stood still for as long as in the longest: leases only get longer by that.
            self.gap = Some(self.gap.map_or(gap, |first| Gap {
                lasted_ns: gap.lasted_ns.max(first.lasted_ns),
                began_ns: first.began_ns,
                ended_ns: gap.ended_ns,
            }));
        }
    }
}

impl Ticker {
    /// Ticks by this clock.
    pub(crate) fn start(ticks: Arc<Ticks>, clock: Arc<dyn Clock>) -> Result<Ticker, ClusterError> {
        ticks.tick(clock.now_ns());
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = stopping.clone();
        let thread = std::thread::Builder::new().name("coordinator-tick".to_owned()).spawn(move || {
            urgent::run_first();
            while !stop.load(Ordering::SeqCst) {
                ticks.tick(clock.now_ns());
                std::thread::park_timeout(Duration::from_nanos(TICK_NS));
            }
        });
        Ok(Ticker { stopping, thread: Some(thread.map_err(ClusterError::Thread)?) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn take_gap_is_that_since_the_last_tick_or_call_and_is_taken_once() {
        let ticks = Ticks::default();
        assert_eq!(ticks.take_gap(1_000 * MS), None);
        assert_eq!(ticks.take_gap(9_000 * MS), None, "nobody ticks");
        ticks.tick(10_000 * MS);
        ticks.tick(10_040 * MS);
        assert_eq!(ticks.take_gap(10_080 * MS), None, "a thread is late now and then");
        let gap = Gap { lasted_ns: 1_500 * MS, began_ns: 10_080 * MS, ended_ns: 11_580 * MS };
        assert_eq!(ticks.take_gap(11_580 * MS), Some(gap));
        assert_eq!(ticks.take_gap(11_580 * MS), None);
    }

    /// The ticker goes on before the call does, whose look at the clock is from before the gap.
    #[test]
    fn take_gap_that_the_ticker_noticed_ended_when_that_was() {
        let ticks = Ticks::default();
        ticks.tick(10_000 * MS);
        ticks.tick(11_500 * MS);
        ticks.tick(11_540 * MS);
        ticks.tick(11_600 * MS);
        let gap = Gap { lasted_ns: 1_500 * MS, began_ns: 10_000 * MS, ended_ns: 11_600 * MS };
        assert_eq!(ticks.take_gap(10_001 * MS), Some(gap));
    }
}
