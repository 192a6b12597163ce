//! How long requests take at the server, from the poll that brought one to its reply leaving. Both times are
//! clock readings that a turn makes anyway, so an operation costs a subtraction and a count. A request that
//! waited for its log, for room or for a split counts from when it came; one that was put off because its
//! client takes no replies counts from its turn; a value that goes in chunks is not counted.

use cell_protocol::Request;
use serde::Serialize;

/// Times are counted in units of 64 ns: 32 bits of them are 274 s.
const UNIT_SHIFT: u32 = 6;
/// Each power of two has 8 buckets, so a percentile is at most an eighth too high.
const SUB_BITS: u32 = 3;
const SUBS: usize = 1 << SUB_BITS;
const BUCKETS: usize = (32 - SUB_BITS as usize + 1) * SUBS;
const PERIOD_NS: u64 = 1_000_000_000;

/// What requests are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimedOperation {
    Get,
    Search,
    Put,
    Delete,
    Scan,
}

const OPERATIONS: usize = 5;

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

/// Counts by ranges of time that grow with the time itself.
#[derive(Debug)]
struct Histogram {
    counts: [u32; BUCKETS],
    max: u32,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; BUCKETS], max: 0 }
    }
}

impl Histogram {
    #[inline]
    fn count(&mut self, time: u32) {
        self.counts[bucket(time)] += 1;
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
        for (bucket, in_it) in self.counts.iter().enumerate() {
            below += u64::from(*in_it);
            if below >= wanted {
                return last_of(bucket).min(self.max);
            }
        }
        0
    }
}

/// The bucket that a time is in.
#[inline]
fn bucket(time: u32) -> usize {
    let power = (u32::BITS - time.leading_zeros()).saturating_sub(SUB_BITS + 1);
    let sub = (time >> power) as usize;
    power as usize * SUBS + sub
}

/// The longest time of a bucket.
fn last_of(bucket: usize) -> u32 {
    let power = (bucket / SUBS).saturating_sub(1);
    let sub = bucket - power * SUBS;
    let end = (sub as u64 + 1) << power;
    u32::try_from(end - 1).unwrap_or(u32::MAX)
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    by_operation: [Histogram; OPERATIONS],
    /// The squares of the turns' times, added up.
    turns_squared: u64,
    since_ns: u64,
    last: OperationLatencies,
}

impl Latencies {
    /// A reply leaves.
    #[inline]
    pub(crate) fn answered(&mut self, arrival: Arrival, now_ns: u64) {
        if let Some(operation) = arrival.operation {
            self.by_operation[operation as usize].count(units(now_ns).wrapping_sub(arrival.at));
        }
    }

    /// A turn after which the worker looked for requests at once took so long.
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
        let queue_estimate_ns = (self.turns_squared << UNIT_SHIFT) / (2 * (passed_ns >> UNIT_SHIFT));
        let last = OperationLatencies { get, search, put, delete, scan, queue_estimate_ns };
        *self = Latencies { since_ns: now_ns, last, ..Latencies::default() };
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
    fn bucket_is_never_more_than_an_eighth_wide_and_they_meet() {
        assert_eq!(bucket(u32::MAX), BUCKETS - 1);
        for at in 0..BUCKETS - 1 {
            let end = last_of(at);
            assert_eq!((bucket(end), bucket(end + 1)), (at, at + 1), "{at}");
        }
        for power in 4..32 {
            let time = 1_u32 << power;
            assert!(last_of(bucket(time)) - time < time / 8, "{time}");
        }
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
        latencies.tick(3_000 * MS);
        assert_eq!(latencies.last(), OperationLatencies::default());
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
}
