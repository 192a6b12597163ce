//! Load that goes on beside something else: as much as one client reaches, or so many operations a second;
//! what was done, what failed, and how long the longest operation took. Where operations have a rate, their
//! times count from when each was due: one that a stall kept from being submitted has waited, too.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cell_client::{Client, Condition, OneSidedCounters, Operation};

use crate::disk;
use crate::figure::note;
use crate::latencies::Latencies;
use crate::options::BenchError;

/// Operations that a client has outstanding that goes as fast as it can.
const OUTSTANDING: usize = 64;
/// The most of one that keeps to a rate: what a stall of some hundred milliseconds leaves waiting. It is no
/// more than is started in a second: on a machine that has become slower, the last of more would fail.
const WAITING_MAX: usize = 4_000;
/// How long a look for completions waits at most.
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
    latencies: Latencies,
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

    /// What 99 of 100 operations stayed below since this was asked last, in milliseconds.
    pub(crate) fn take_p99_ms(&self) -> f64 {
        self.latencies.take_ms(99)
    }

    /// What ends the load when it is dropped.
    pub(crate) fn ending(&self) -> cell_tests::ending::Ending<'_> {
        cell_tests::ending::Ending(&self.stop)
    }

    /// An operation has ended that was asked for then, or was due.
    pub(crate) fn count(&self, asked: Instant, is_done: bool) {
        let took = u64::try_from((now() - asked).as_nanos()).unwrap_or(u64::MAX);
        self.longest_ns.fetch_max(took, Ordering::Relaxed);
        self.latencies.count(took);
        let counter = if is_done { &self.done } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// When operations are due of which one begins each so often; the first at once.
#[derive(Clone, Copy, Debug)]
struct Pace(Duration);

impl Pace {
    /// How many are due after so long.
    fn due(self, elapsed: Duration) -> usize {
        let due = elapsed.as_nanos() / self.interval().as_nanos() + 1;
        usize::try_from(due).unwrap_or(usize::MAX)
    }

    /// After how long one of them is due.
    fn due_after(self, index: usize) -> Duration {
        self.interval().saturating_mul(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// How many may wait.
    fn waiting_max(self) -> usize {
        let in_a_second = 1_000_000_000 / self.interval().as_nanos();
        usize::try_from(in_a_second).unwrap_or(usize::MAX).clamp(OUTSTANDING, WAITING_MAX)
    }

    fn interval(self) -> Duration {
        self.0.max(Duration::from_nanos(1))
    }
}

fn operation<'a>((key, writes): &'a Probe, value: &'a [u8]) -> Operation<'a> {
    if *writes { Operation::Put { key, value, condition: Condition::Always } } else { Operation::Get { key } }
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
    let pace = interval.map(Pace);
    let waiting_max = pace.map_or(OUTSTANDING, Pace::waiting_max);
    let (started, mut submitted) = (now(), 0);
    let mut under_way = BTreeMap::new();
    loop {
        let goes_on = !pulse.stop.load(Ordering::Relaxed);
        let due = match pace {
            None => submitted + OUTSTANDING.saturating_sub(under_way.len()),
            Some(pace) => pace.due(started.elapsed()),
        };
        while goes_on && submitted < due && under_way.len() < waiting_max {
            let asked = pace.map_or_else(now, |pace| started + pace.due_after(submitted));
            let ticket = client.submit(&operation(&probes[submitted % probes.len()], value))?;
            under_way.insert(ticket, asked);
            submitted += 1;
        }
        if !goes_on && under_way.is_empty() {
            return Ok(());
        }
        let waits = match pace {
            // What is due meanwhile would wait for the look's end.
            Some(pace) if goes_on && under_way.len() < waiting_max => {
                pace.due_after(submitted).saturating_sub(started.elapsed()).min(POLL)
            }
            _ => POLL,
        };
        let mut next = client.poll(waits);
        while let Some(completion) = next {
            if let Some(asked) = under_way.remove(&completion.ticket) {
                if let Err(error) = &completion.outcome {
                    note(&format!("an operation failed: {error}"));
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

/// Between two operations at half of the rate that this client alone reaches with [`OUTSTANDING`] operations
/// outstanding.
pub(crate) fn half_rate(
    client: &mut Client,
    probes: &[Probe],
    value: &[u8],
    times: [Duration; 2],
) -> Result<Duration, BenchError> {
    let pulse = Pulse::default();
    let span = std::thread::scope(|scope| {
        let ending = pulse.ending();
        let load = scope.spawn(|| drive(client, probes, value, None, &pulse));
        let span = watch(&pulse, times);
        drop(ending);
        load.join().expect("the load does not panic").map(|()| span)
    })?;
    Ok(Duration::from_secs_f64(2.0 / span.rate().max(1.0)))
}

/// What is done in a time, after another one.
pub(crate) fn watch(pulse: &Pulse, [settles, lasts]: [Duration; 2]) -> Span {
    let began = now();
    disk::pause(settles);
    pulse.take_longest_ms();
    pulse.take_p99_ms();
    let before = pulse.look(began);
    disk::pause(lasts);
    Span::between(&before, &pulse.look(began))
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
        let of = |rate: f64| Pace(Duration::from_secs_f64(1.0 / rate)).waiting_max();
        assert_eq!([1.0, 500.0, 1e6].map(of), [64, 500, 4_000]);
        assert_eq!(Pace(Duration::ZERO).waiting_max(), 4_000);
    }

    /// However late the client looks, as after a stall.
    #[test]
    fn operation_is_due_at_its_place_in_the_rate() {
        for interval in [Duration::ZERO, Duration::from_nanos(7), Duration::from_micros(333)] {
            let pace = Pace(interval);
            for ns in [0, 6, 7, 8, 333_000, 999_999, 1_000_000_000] {
                let elapsed = Duration::from_nanos(ns);
                let due = pace.due(elapsed);
                let (last, next) = (pace.due_after(due - 1), pace.due_after(due));
                assert!(last <= elapsed && elapsed < next, "{due} each {interval:?} after {elapsed:?}");
            }
        }
        let pace = Pace(Duration::from_millis(1));
        let after_stall = pace.due(Duration::from_secs(1));
        let waited: Vec<u128> =
            [0, 400, after_stall - 1].map(|index| 1_000 - pace.due_after(index).as_millis()).to_vec();
        assert_eq!(waited, [1_000, 600, 0]);
    }
}
