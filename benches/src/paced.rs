//! Load that goes on beside something else: as much as a node takes, or so many operations a second; what was
//! done, what failed, and how long the longest operation took.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cell_client::{Client, Condition, OneSidedCounters, Operation};

use crate::options::BenchError;

/// Operations that a client has outstanding that goes as fast as it can.
const OUTSTANDING: usize = 64;
/// The most of one that keeps to a rate: what a stall of some hundred milliseconds leaves waiting. It is no
/// more than is begun in a second: on a machine that has become slower, the last of more would fail.
const WAITING_MAX: usize = 4_000;
/// How long a look for completions waits.
const POLL: Duration = Duration::from_millis(1);

/// An operation of the load: its key, and whether it writes.
pub(crate) type Probe = (Vec<u8>, bool);

/// What load and its observer share.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    stop: AtomicBool,
    done: AtomicU64,
    failed: AtomicU64,
    longest_ns: AtomicU64,
    /// What the client counted, if it searches itself.
    counters: Mutex<OneSidedCounters>,
}

/// What was done in a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    pub(crate) done: u64,
    pub(crate) time: Duration,
    pub(crate) one_sided: OneSidedCounters,
}

impl Span {
    /// Operations a second.
    pub(crate) fn rate(&self) -> f64 {
        self.done as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Between two looks.
    pub(crate) fn between(from: &Span, to: &Span) -> Span {
        let (old, new) = (&from.one_sided, &to.one_sided);
        let one_sided = OneSidedCounters {
            started: new.started - old.started,
            done: new.done - old.done,
            cached: new.cached - old.cached,
            in_place: new.in_place - old.in_place,
            ..OneSidedCounters::default()
        };
        Span { done: to.done - from.done, time: to.time.saturating_sub(from.time), one_sided }
    }

    /// Adds what was done in another time.
    pub(crate) fn add(&mut self, other: &Span) {
        self.done += other.done;
        self.time += other.time;
    }
}

impl Pulse {
    /// What was done so far, at which time since `began`.
    pub(crate) fn look(&self, began: Instant) -> Span {
        let one_sided = self.counters.lock().map(|counters| *counters).unwrap_or_default();
        Span { done: self.done.load(Ordering::Relaxed), time: began.elapsed(), one_sided }
    }

    /// Operations that failed.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// The longest operation since this was asked last, in milliseconds.
    pub(crate) fn take_longest_ms(&self) -> f64 {
        self.longest_ns.swap(0, Ordering::Relaxed) as f64 / 1e6
    }

    /// What ends the load when it is dropped.
    pub(crate) fn ending(&self) -> cell_tests::ending::Ending<'_> {
        cell_tests::ending::Ending(&self.stop)
    }

    fn count(&self, asked: Instant, is_done: bool) {
        let took = u64::try_from((now() - asked).as_nanos()).unwrap_or(u64::MAX);
        self.longest_ns.fetch_max(took, Ordering::Relaxed);
        let counter = if is_done { &self.done } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Carries operations out until it is stopped, one each `interval` or as many as can be; then waits for the
/// rest. Those that write put `value`.
pub(crate) fn drive(
    client: &mut Client,
    probes: &[Probe],
    value: &[u8],
    interval: Option<Duration>,
    pulse: &Pulse,
) -> Result<(), BenchError> {
    let (started, mut begun) = (now(), 0);
    let mut under_way = BTreeMap::new();
    let waiting_max = interval.map_or(OUTSTANDING, waiting_max);
    loop {
        let goes_on = !pulse.stop.load(Ordering::Relaxed);
        let due = match interval {
            None => begun + OUTSTANDING.saturating_sub(under_way.len()),
            Some(interval) => {
                let due = started.elapsed().as_nanos() / interval.as_nanos().max(1);
                usize::try_from(due).unwrap_or(usize::MAX)
            }
        };
        while goes_on && begun < due && under_way.len() < waiting_max {
            let (key, writes) = &probes[begun % probes.len()];
            let operation = if *writes {
                Operation::Put { key, value, condition: Condition::Always }
            } else {
                Operation::Get { key }
            };
            under_way.insert(client.submit(&operation)?, now());
            begun += 1;
        }
        if !goes_on && under_way.is_empty() {
            return Ok(());
        }
        let mut next = client.poll(POLL);
        while let Some(completion) = next {
            if let Some(asked) = under_way.remove(&completion.ticket) {
                if let Err(error) = &completion.outcome {
                    eprintln!("# an operation failed: {error}");
                }
                pulse.count(asked, completion.outcome.is_ok());
            }
            next = client.poll(Duration::ZERO);
        }
        if let (Some(counters), Ok(mut shared)) = (client.one_sided_counters(), pulse.counters.lock()) {
            *shared = *counters;
        }
    }
}

/// How many operations may wait where one begins each `interval`.
fn waiting_max(interval: Duration) -> usize {
    let in_a_second = 1_000_000_000 / interval.as_nanos().max(1);
    usize::try_from(in_a_second).unwrap_or(usize::MAX).clamp(OUTSTANDING, WAITING_MAX)
}

#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_max_is_what_a_second_begins_within_bounds() {
        let of = |rate: f64| waiting_max(Duration::from_secs_f64(1.0 / rate));
        assert_eq!([1.0, 500.0, 1e6].map(of), [64, 500, 4_000]);
        assert_eq!(waiting_max(Duration::ZERO), 4_000);
    }
}
