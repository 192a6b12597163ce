//! How many pairs a node has taken over, how long that took, and what became of the other attempts.

use cell_cluster::ShareTimes;

use crate::membership::RefusedKind;

/// Buckets of durations: where each of them ends, and one more for what took longer.
pub const TAKEOVER_BUCKETS: usize = TAKEOVER_ENDS_MS.len() + 1;
const TAKEOVER_ENDS_MS: [u64; 11] = [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000];

/// Where a bucket of takeovers ends, in milliseconds; none for the last one.
#[must_use]
pub fn takeover_bucket_end_ms(bucket: usize) -> Option<u64> {
    TAKEOVER_ENDS_MS.get(bucket).copied()
}

/// Since the start of the node, which takes its own pairs over, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakeoverCounts {
    /// Pairs that were taken over, by how long it took from the claim until the pair was served.
    pub buckets: [u64; TAKEOVER_BUCKETS],
    /// The sum of these times.
    pub sum_ms: u64,
    /// Attempts that found the pair damaged.
    pub damaged: u64,
    /// Attempts for which this node lacked memory, or could not read.
    pub declined: u64,
    /// Attempts that failed and may be repeated.
    pub failed: u64,
}

impl TakeoverCounts {
    pub(crate) fn taken(&mut self, times: &ShareTimes) {
        let took_ms = times.serving_ms.saturating_sub(times.claimed_ms);
        self.buckets[TAKEOVER_ENDS_MS.partition_point(|end_ms| *end_ms < took_ms)] += 1;
        self.sum_ms += took_ms;
    }

    /// That others have the pair is no failure.
    pub(crate) fn refused(&mut self, kind: RefusedKind) {
        match kind {
            RefusedKind::Others => {}
            RefusedKind::Declined => self.declined += 1,
            RefusedKind::Damaged => self.damaged += 1,
            RefusedKind::Passing => self.failed += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_are_counted_by_the_time_from_claim_to_service() {
        let mut counts = TakeoverCounts::default();
        for (took_ms, bucket) in [(0, 0), (50, 0), (51, 1), (2_500, 5), (300_000, 10), (300_001, 11)] {
            let before = counts.buckets[bucket];
            counts.taken(&ShareTimes { claimed_ms: 7, serving_ms: 7 + took_ms, ..ShareTimes::default() });
            assert_eq!(counts.buckets[bucket], before + 1, "{took_ms}");
            assert!(takeover_bucket_end_ms(bucket).is_none_or(|end_ms| took_ms <= end_ms));
        }
        assert_eq!(counts.sum_ms, 602_602);
    }

    #[test]
    fn refused_pairs_of_others_are_no_failures() {
        let mut counts = TakeoverCounts::default();
        [RefusedKind::Others, RefusedKind::Damaged, RefusedKind::Declined, RefusedKind::Passing]
            .into_iter()
            .for_each(|kind| counts.refused(kind));
        assert_eq!((counts.damaged, counts.declined, counts.failed), (1, 1, 1));
    }
}
