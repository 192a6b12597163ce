//! Running figures of a pair, and what a worker counts for those who watch it.

use cell_protocol::{ReadOnlyReason, Refusal};

/// Sync times that are kept, at most.
const WINDOW: usize = 512;
/// A sync that ended longer ago says nothing of now.
const PERIOD_NS: u64 = 1_000_000_000;
/// Buckets of sync times, each twice as wide as the one before it.
pub const SYNC_BUCKETS: usize = 16;
/// Where the first bucket ends.
const SYNC_FIRST_US: u64 = 32;

/// Where a bucket of sync times ends, in microseconds; none for the last one, which has all longer times.
#[must_use]
pub fn sync_bucket_end_us(bucket: usize) -> Option<u64> {
    (bucket + 1 < SYNC_BUCKETS).then(|| SYNC_FIRST_US << bucket)
}

fn sync_bucket(sync_ns: u64) -> usize {
    let firsts = sync_ns / (SYNC_FIRST_US * 1_000);
    ((u64::BITS - firsts.leading_zeros()) as usize).min(SYNC_BUCKETS - 1)
}

/// Counts a pair's batches and the times of the last ones.
#[derive(Debug)]
pub(crate) struct BatchCounters {
    pub(crate) batches: u64,
    pub(crate) log_bytes: u64,
    pub(crate) checkpoints: u64,
    /// Batches by their sync times.
    pub(crate) sync_buckets: [u64; SYNC_BUCKETS],
    /// When a sync ended, and how long it took.
    sync_ns: [(u64, u64); WINDOW],
    syncs: usize,
}

impl BatchCounters {
    pub(crate) fn new() -> BatchCounters {
        let sync_buckets = [0; SYNC_BUCKETS];
        BatchCounters {
            batches: 0,
            log_bytes: 0,
            checkpoints: 0,
            sync_buckets,
            sync_ns: [(0, 0); WINDOW],
            syncs: 0,
        }
    }

    /// A batch became durable now, after so long.
    pub(crate) fn batch(&mut self, now_ns: u64, sync_ns: u64, bytes: u64) {
        self.sync_ns[self.syncs % WINDOW] = (now_ns, sync_ns);
        self.syncs += 1;
        self.sync_buckets[sync_bucket(sync_ns)] += 1;
        self.batches += 1;
        self.log_bytes += bytes;
    }

    /// p50, p99 and the longest of the last batches of the last second, in microseconds; 0: there were none.
    pub(crate) fn sync_us(&self, now_ns: u64) -> [u64; 3] {
        let kept = self.sync_ns[..self.syncs.min(WINDOW)].iter();
        let late = kept.filter(|(at_ns, _)| now_ns.saturating_sub(*at_ns) < PERIOD_NS);
        let mut times: Vec<u64> = late.map(|(_, sync_ns)| *sync_ns).collect();
        times.sort_unstable();
        let at = |share: usize| times.get((times.len() * share / 100).min(times.len().saturating_sub(1)));
        [50, 99, 100].map(|share| at(share).copied().unwrap_or(0) / 1_000)
    }
}

/// The reason of hellos for which there was no place.
const TOO_MANY_CONNECTIONS: &str = "too_many_connections";
/// Why requests were refused, as metrics name it.
const REFUSALS: [&str; 21] = [
    "busy",
    "condition_failed",
    "coordinator_away",
    "coordinator_full",
    "disk_full",
    "internal",
    "key_invalid",
    "log_failed",
    "malformed",
    "not_owner",
    "number_below_floor",
    "recovering",
    "region_full",
    "session_unknown",
    "shutdown",
    "too_long",
    TOO_MANY_CONNECTIONS,
    "unauthorized",
    "value_too_large",
    "version_unsupported",
    "other",
];

fn reason(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Busy => "busy",
        Refusal::ConditionFailed { .. } => "condition_failed",
        Refusal::CoordinatorAway => "coordinator_away",
        Refusal::ReadOnly { reason: ReadOnlyReason::CoordinatorFull } => "coordinator_full",
        Refusal::ReadOnly { reason: ReadOnlyReason::DiskFull } => "disk_full",
        Refusal::ReadOnly { reason: ReadOnlyReason::LogFailed } => "log_failed",
        Refusal::ReadOnly { reason: ReadOnlyReason::RegionFull } => "region_full",
        Refusal::Internal => "internal",
        Refusal::KeyInvalid { .. } => "key_invalid",
        Refusal::Malformed { .. } => "malformed",
        Refusal::NotOwner => "not_owner",
        Refusal::NumberBelowFloor { .. } => "number_below_floor",
        Refusal::Recovering => "recovering",
        Refusal::SessionUnknown => "session_unknown",
        Refusal::Shutdown => "shutdown",
        Refusal::TooLong { .. } => "too_long",
        Refusal::Unauthorized => "unauthorized",
        Refusal::ValueTooLarge { .. } => "value_too_large",
        Refusal::VersionUnsupported { .. } => "version_unsupported",
        _ => "other",
    }
}

/// What a worker has counted since its start, over all pairs that it had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    pub(crate) refusals: [u64; REFUSALS.len()],
    /// Batches by their sync times: bucket `i` ends at [`sync_bucket_end_us`].
    pub sync_buckets: [u64; SYNC_BUCKETS],
    /// The sum of their sync times.
    pub sync_sum_ns: u64,
    /// Requests that met memory which breaks an invariant.
    pub damage_met: u64,
    /// Violations that checks of the tree have found.
    pub damage_checked: u64,
}

impl WorkerCounts {
    /// Requests that were refused, by why; every reason is there.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REFUSALS.into_iter().zip(self.refusals)
    }

    pub(crate) fn refused(&mut self, refusal: &Refusal) {
        self.count(reason(refusal));
    }

    /// A hello was refused because there were as many connections as may be.
    pub(crate) fn turned_away(&mut self) {
        self.count(TOO_MANY_CONNECTIONS);
    }

    fn count(&mut self, reason: &str) {
        let at = REFUSALS.iter().position(|known| *known == reason);
        self.refusals[at.unwrap_or(REFUSALS.len() - 1)] += 1;
    }

    pub(crate) fn synced(&mut self, sync_ns: u64) {
        self.sync_buckets[sync_bucket(sync_ns)] += 1;
        self.sync_sum_ns += sync_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_counts_each_under_a_reason_of_its_own() {
        let full = |reason| Refusal::ReadOnly { reason };
        let mut counts = WorkerCounts::default();
        let refusals = [
            Refusal::Busy,
            Refusal::Busy,
            Refusal::NotOwner,
            full(ReadOnlyReason::DiskFull),
            full(ReadOnlyReason::CoordinatorFull),
            Refusal::CoordinatorAway,
            Refusal::TooLong { len: 2, max: 1 },
            Refusal::Unauthorized,
        ];
        refusals.iter().for_each(|refusal| counts.refused(refusal));
        counts.turned_away();
        let counted: Vec<_> = counts.refusals().filter(|(_, count)| *count > 0).collect();
        let wanted = [
            ("busy", 2),
            ("coordinator_away", 1),
            ("coordinator_full", 1),
            ("disk_full", 1),
            ("not_owner", 1),
            ("too_long", 1),
            ("too_many_connections", 1),
            ("unauthorized", 1),
        ];
        assert_eq!(counted, wanted, "each reason is in the list, and none is `other`");
        assert_eq!(counts.refusals().count(), REFUSALS.len());
    }

    #[test]
    fn synced_adds_times_up() {
        let mut counts = WorkerCounts::default();
        [1_000, 31_999, 32_000].into_iter().for_each(|sync_ns| counts.synced(sync_ns));
        assert_eq!((counts.sync_buckets[0], counts.sync_buckets[1], counts.sync_sum_ns), (2, 1, 64_999));
    }

    /// Those of the last batches were shown for as long as no other came, however long that was.
    #[test]
    fn sync_us_of_the_last_second() {
        let mut counters = BatchCounters::new();
        assert_eq!(counters.sync_us(0), [0, 0, 0]);
        for i in 1..=100 {
            counters.batch(i, i * 1_000, 4_096);
        }
        assert_eq!(counters.sync_us(100), [51, 100, 100]);
        assert_eq!(counters.sync_us(50 + PERIOD_NS), [76, 100, 100], "half of them");
        assert_eq!(counters.sync_us(100 + PERIOD_NS), [0, 0, 0]);
        counters.batch(200 + PERIOD_NS, 7_000, 1);
        assert_eq!(counters.sync_us(200 + PERIOD_NS), [7, 7, 7]);
    }

    #[test]
    fn sync_buckets_end_where_they_say() {
        let mut counters = BatchCounters::new();
        for bucket in 0..SYNC_BUCKETS - 1 {
            let end_ns = sync_bucket_end_us(bucket).unwrap() * 1_000;
            assert_eq!((sync_bucket(end_ns - 1), sync_bucket(end_ns)), (bucket, bucket + 1));
            counters.batch(0, end_ns - 1, 1);
        }
        counters.batch(0, u64::MAX, 1);
        assert_eq!(counters.sync_buckets, [1; SYNC_BUCKETS]);
        assert_eq!(sync_bucket_end_us(SYNC_BUCKETS - 1), None);
    }
}
