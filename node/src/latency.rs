//! How long requests take at the server, from the poll that brought one to its reply leaving. Both times are
//! clock readings that a turn makes anyway, so an operation costs a subtraction and a count. A request that
//! waited for its log, for room or for a split counts from when it came; one that was put off because its
//! client takes no replies counts from its turn; a value that goes in chunks is not counted.

use std::sync::Arc;

use cell_protocol::Request;
use serde::Serialize;

use crate::latency_histogram::{LatencyHistogram, RANGES, UNIT_SHIFT, last_of, range_of};

const PERIOD_NS: u64 = 1_000_000_000;

/// What requests are distinguished by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimedOperation {
    Get,
    Search,
    Put,
    Delete,
    Scan,
}

pub(crate) const OPERATIONS: usize = 5;

/// When the request that a reply answers came, and what it was; none of those that are not timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrival {
    at: u32,
    operation: Option<TimedOperation>,
}

impl Arrival {
    /// Of a request that came at this time.
    pub(crate) fn new(request: &Request<'_>, now_ns: u64) -> Arrival {
        let operation = match request {
            Request::Get { .. } | Request::MultiGet(_) => TimedOperation::Get,
            Request::Search { .. } => TimedOperation::Search,
            Request::Put(_) => TimedOperation::Put,
            Request::Delete(_) => TimedOperation::Delete,
            Request::Scan(_) => TimedOperation::Scan,
            _ => return Arrival::default(),
        };
        Arrival { at: units(now_ns), operation: Some(operation) }
    }
}

/// The time on a clock that wraps.
#[allow(clippy::cast_possible_truncation, reason = "differences of wrapping times are what is used")]
fn units(now_ns: u64) -> u32 {
    (now_ns >> UNIT_SHIFT) as u32
}

/// What the requests of one kind took in the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencySummary {
    /// How many were answered.
    pub count: u64,
    /// Half of them took no longer, in nanoseconds; at most an eighth too high, as are all but the longest.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// The last second, by kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OperationLatencies {
    /// `get`; a multi-get is one.
    pub get: LatencySummary,
    /// `search`.
    pub search: LatencySummary,
    /// `put`, conditional ones included.
    pub put: LatencySummary,
    /// `delete`.
    pub delete: LatencySummary,
    /// Pages of scans.
    pub scan: LatencySummary,
    /// How long a request that came at a random time of that second waited, on average, until the worker
    /// took it: half of the turn that it met.
    pub queue_estimate_ns: u64,
}

/// What requests took, by kind: `get`, `search`, `put`, `delete`, `scan`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationHistograms {
    /// In the last second.
    pub last_second: [LatencyHistogram; OPERATIONS],
    /// Since the node's start.
    pub since_start: [LatencyHistogram; OPERATIONS],
}

/// The counts of the second that is under way.
#[derive(Debug)]
struct Histogram {
    counts: [u32; RANGES],
    sum: u64,
    max: u32,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; RANGES], sum: 0, max: 0 }
    }
}

impl Histogram {
    #[inline]
    fn count(&mut self, time: u32) {
        self.counts[range_of(time)] += 1;
        self.sum += u64::from(time);
        self.max = self.max.max(time);
    }

    fn summary(&self) -> LatencySummary {
        let count: u64 = self.counts.iter().copied().map(u64::from).sum();
        let [p50, p99] = [50, 99].map(|percent| self.percentile(count, percent));
        let ns = |time: u32| u64::from(time) << UNIT_SHIFT;
        LatencySummary { count, p50_ns: ns(p50), p99_ns: ns(p99), max_ns: ns(self.max) }
    }

    /// The time that so many percent did not pass.
    fn percentile(&self, count: u64, percent: u64) -> u32 {
        let wanted = (count * percent).div_ceil(100).max(1);
        let mut below = 0;
        for (range, in_it) in self.counts.iter().enumerate() {
            below += u64::from(*in_it);
            if below >= wanted {
                return last_of(range).min(self.max);
            }
        }
        0
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    by_operation: [Histogram; OPERATIONS],
    /// The squares of the turns' times, added up.
    turns_squared: u64,
    since_ns: u64,
    last: OperationLatencies,
    histograms: Arc<OperationHistograms>,
}

impl Latencies {
    /// A reply leaves.
    #[inline]
    pub(crate) fn answered(&mut self, arrival: Arrival, now_ns: u64) {
        if let Some(operation) = arrival.operation {
            self.by_operation[operation as usize].count(units(now_ns).wrapping_sub(arrival.at));
        }
    }

    /// A turn that did something, or after which the worker looked for requests at once, took so long.
    #[inline]
    pub(crate) fn turned(&mut self, took_ns: u64) {
        let took = took_ns >> UNIT_SHIFT;
        self.turns_squared = self.turns_squared.saturating_add(took.saturating_mul(took));
    }

    /// The time goes on. After a second what was counted is summed up, and counting begins anew.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.since_ns);
        if passed_ns < PERIOD_NS {
            return;
        }
        let [get, search, put, delete, scan] = [0, 1, 2, 3, 4].map(|at| self.by_operation[at].summary());
        // A request meets a turn of time t with a chance of t to the whole, and waits for half of it.
        let wide = (u128::from(self.turns_squared) << UNIT_SHIFT) / u128::from(2 * (passed_ns >> UNIT_SHIFT));
        let queue_estimate_ns = u64::try_from(wide).unwrap_or(u64::MAX);
        let last = OperationLatencies { get, search, put, delete, scan, queue_estimate_ns };
        let histograms = Arc::new(self.summed_up());
        *self = Latencies { since_ns: now_ns, last, histograms, ..Latencies::default() };
    }

    /// The histograms, with the second that ends now.
    fn summed_up(&self) -> OperationHistograms {
        let of = |of: &Histogram| LatencyHistogram::of_ranges(&of.counts, of.sum, of.max);
        let last_second = std::array::from_fn(|at| of(&self.by_operation[at]));
        let mut since_start = self.histograms.since_start.clone();
        since_start.iter_mut().zip(&last_second).for_each(|(all, last)| all.add(last));
        OperationHistograms { last_second, since_start }
    }

    /// Of the last whole second, and since the start.
    pub(crate) fn histograms(&self) -> Arc<OperationHistograms> {
        Arc::clone(&self.histograms)
    }

    /// The last whole second.
    pub(crate) fn last(&self) -> OperationLatencies {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn get(now_ns: u64) -> Arrival {
        Arrival::new(&Request::Get { key: b"k" }, now_ns)
    }

    #[test]
    fn tick_after_a_second_sums_up_what_left_in_it() {
        let mut latencies = Latencies::default();
        latencies.tick(1_000 * MS);
        for i in 1..=100 {
            latencies.answered(get(1_000 * MS), (1_000 + i) * MS);
        }
        latencies.answered(Arrival::new(&Request::Status, 0), 1_500 * MS);
        latencies.tick(1_999 * MS);
        assert_eq!(latencies.last().get.count, 0, "the second is not over");
        latencies.tick(2_000 * MS);
        let LatencySummary { count, p50_ns, p99_ns, max_ns } = latencies.last().get;
        assert_eq!((count, latencies.last().put.count), (100, 0));
        assert!((50 * MS..57 * MS).contains(&p50_ns) && (99 * MS..=100 * MS).contains(&p99_ns), "{p50_ns}");
        assert_eq!(max_ns >> UNIT_SHIFT, (100 * MS) >> UNIT_SHIFT);
        let second = latencies.histograms();
        assert_eq!((second.last_second[0].count(), second.last_second[2].count()), (100, 0));
        latencies.answered(get(2_000 * MS), 2_001 * MS);
        latencies.tick(3_000 * MS);
        let both = latencies.histograms();
        assert_eq!((both.last_second[0].count(), both.since_start[0].count()), (1, 101));
        latencies.tick(4_000 * MS);
        assert_eq!(latencies.last(), OperationLatencies::default());
        assert_eq!(latencies.histograms().since_start[0].count(), 101);
    }

    #[test]
    fn answered_across_the_wrap_of_the_short_clock_is_right() {
        let mut latencies = Latencies::default();
        let wrap_ns = u64::from(u32::MAX) << UNIT_SHIFT;
        latencies.tick(wrap_ns);
        latencies.answered(get(wrap_ns - MS), wrap_ns + MS);
        latencies.tick(wrap_ns + 1_000 * MS);
        assert_eq!(latencies.last().get.max_ns, 2 * MS);
    }

    #[test]
    fn queue_estimate_is_half_a_turn_while_turns_follow_each_other_and_none_while_idle() {
        let mut latencies = Latencies::default();
        latencies.tick(1_000 * MS);
        (0..500).for_each(|_| latencies.turned(2 * MS));
        latencies.tick(2_000 * MS);
        assert_eq!(latencies.last().queue_estimate_ns, MS);
        (0..50).for_each(|_| latencies.turned(2 * MS));
        latencies.tick(3_000 * MS);
        assert_eq!(latencies.last().queue_estimate_ns, MS / 10);
        latencies.tick(4_000 * MS);
        assert_eq!(latencies.last().queue_estimate_ns, 0);
    }

    /// A turn of more than 34 s once lost its highest bits.
    #[test]
    fn queue_estimate_of_a_turn_of_a_minute_is_half_of_it() {
        let mut latencies = Latencies::default();
        latencies.tick(1_000 * MS);
        latencies.turned(64_000 * MS);
        latencies.tick(65_000 * MS);
        assert_eq!(latencies.last().queue_estimate_ns, 32_000 * MS);
    }
}
