//! Running figures of a pair.

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

#[cfg(test)]
mod tests {
    use super::*;

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
