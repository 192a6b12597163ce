//! Counts of times by ranges that grow with the time itself. Histograms of several nodes, or of several
//! seconds, add up; their percentiles do not.

use serde::{Deserialize, Serialize};

/// Times are counted in units of 64 ns: 32 bits of them are 274 s.
pub(crate) const UNIT_SHIFT: u32 = 6;
/// Each power of two has 8 of the ranges that are counted.
const SUB_BITS: u32 = 3;
const SUBS: usize = 1 << SUB_BITS;
/// The ranges that are counted.
pub(crate) const RANGES: usize = (32 - SUB_BITS as usize + 1) * SUBS;
/// A bucket is so many ranges, so that a histogram is short: a quarter of a power of two.
const RANGES_OF_BUCKET: usize = 2;
/// Buckets of a histogram, at most.
pub const LATENCY_BUCKETS_MAX: usize = RANGES / RANGES_OF_BUCKET;

/// The range that a time is in.
#[inline]
pub(crate) fn range_of(time: u32) -> usize {
    let power = (u32::BITS - time.leading_zeros()).saturating_sub(SUB_BITS + 1);
    let sub = (time >> power) as usize;
    power as usize * SUBS + sub
}

/// The longest time of a range.
pub(crate) fn last_of(range: usize) -> u32 {
    let power = (range / SUBS).saturating_sub(1);
    let sub = range - power * SUBS;
    let end = (sub as u64 + 1) << power;
    u32::try_from(end - 1).unwrap_or(u32::MAX)
}

/// How often which times were measured; at most [`LATENCY_BUCKETS_MAX`] buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyHistogram {
    /// Number of a bucket, and how many times are in it; by number, none of them empty.
    buckets: Vec<(u8, u64)>,
    sum_ns: u64,
    max_ns: u64,
}

impl LatencyHistogram {
    /// Of the counts of each range; sum and longest time in units.
    pub(crate) fn of_ranges(ranges: &[u32; RANGES], sum: u64, max: u32) -> LatencyHistogram {
        let counts = ranges.chunks(RANGES_OF_BUCKET).map(|of| of.iter().copied().map(u64::from).sum());
        let buckets = (0..).zip(counts).filter(|(_, count): &(u8, u64)| *count > 0).collect();
        let sum_ns = u64::try_from(u128::from(sum) << UNIT_SHIFT).unwrap_or(u64::MAX);
        LatencyHistogram { buckets, sum_ns, max_ns: u64::from(max) << UNIT_SHIFT }
    }

    /// Adds what another one counted.
    pub fn add(&mut self, other: &LatencyHistogram) {
        for &(bucket, count) in &other.buckets {
            match self.buckets.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
                Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(count),
                Err(at) if usize::from(bucket) < LATENCY_BUCKETS_MAX => {
                    self.buckets.insert(at, (bucket, count));
                }
                Err(_) => {} // no node counts such times
            }
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many times were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// All times together, in nanoseconds.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The longest, in nanoseconds; none if nothing was counted.
    #[must_use]
    pub fn max_ns(&self) -> Option<u64> {
        (!self.buckets.is_empty()).then_some(self.max_ns)
    }

    /// The time that so many of 1,000 do not pass, in nanoseconds: times of a bucket count as if they were
    /// spread over it evenly. None if nothing was counted.
    #[must_use]
    pub fn percentile_ns(&self, per_thousand: u64) -> Option<u64> {
        let wanted = (u128::from(self.count()) * u128::from(per_thousand)).div_ceil(1_000).max(1);
        let mut below = 0;
        for &(bucket, count) in &self.buckets {
            let count = u128::from(count);
            if below + count >= wanted {
                let (begin, end) = bounds_ns(bucket);
                let into = u128::from(end - begin) * (wanted - below) / count;
                let time = u128::from(begin) + into;
                return Some(u64::try_from(time).unwrap_or(u64::MAX).min(self.max_ns));
            }
            below += count;
        }
        None
    }

    /// How many times were shorter than this one. It is exact for powers of two of 64 ns.
    #[must_use]
    pub fn count_below(&self, time_ns: u64) -> u64 {
        let below = self.buckets.iter().filter(|(bucket, _)| bounds_ns(*bucket).1 <= time_ns);
        below.map(|(_, count)| count).sum()
    }
}

/// Where a bucket begins and where the next one does, in nanoseconds.
fn bounds_ns(bucket: u8) -> (u64, u64) {
    let first = usize::from(bucket).min(LATENCY_BUCKETS_MAX - 1) * RANGES_OF_BUCKET;
    let begin = first.checked_sub(1).map_or(0, |before| u64::from(last_of(before)) + 1);
    let end = u64::from(last_of(first + RANGES_OF_BUCKET - 1)) + 1;
    (begin << UNIT_SHIFT, end << UNIT_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of times in units.
    fn histogram(times: impl IntoIterator<Item = u32>) -> LatencyHistogram {
        let (mut ranges, mut sum, mut max) = ([0; RANGES], 0, 0);
        for time in times {
            ranges[range_of(time)] += 1;
            sum += u64::from(time);
            max = max.max(time);
        }
        LatencyHistogram::of_ranges(&ranges, sum, max)
    }

    #[test]
    fn range_of_is_never_more_than_an_eighth_wide_and_they_meet() {
        assert_eq!(range_of(u32::MAX), RANGES - 1);
        for at in 0..RANGES - 1 {
            let end = last_of(at);
            assert_eq!((range_of(end), range_of(end + 1)), (at, at + 1), "{at}");
        }
        for power in 4..32 {
            let time = 1_u32 << power;
            assert!(last_of(range_of(time)) - time < time / 8, "{time}");
        }
    }

    /// The p50 of two nodes was once that of the slower one.
    #[test]
    fn percentile_of_two_that_were_added_is_that_of_all_times() {
        let mut all = histogram(std::iter::repeat_n(1_000, 99));
        all.add(&histogram([1_000_000]));
        assert_eq!(all.count(), 100);
        let p50 = all.percentile_ns(500).unwrap();
        assert!((56_000..72_000).contains(&p50), "{p50}");
        assert_eq!(all.percentile_ns(1_000), Some(64_000_000));
        assert_eq!((all.max_ns(), all.sum_ns()), (Some(64_000_000), 64 * (99_000 + 1_000_000)));
    }

    #[test]
    fn percentile_of_many_times_is_within_a_tenth() {
        let all = histogram(1_000..=100_000);
        for (per_thousand, units) in [(500, 50_500.0), (990, 99_010.0), (999, 99_901.0)] {
            let measured = all.percentile_ns(per_thousand).unwrap() as f64 / 64.0;
            assert!((measured - units).abs() < units / 10.0, "{per_thousand}: {measured}");
        }
        assert_eq!(histogram([]).percentile_ns(500), None);
        assert_eq!(histogram([]).max_ns(), None);
    }

    #[test]
    fn count_below_powers_of_two_is_exact() {
        let all = histogram([0, 63, 64, 65, 1 << 20, u32::MAX]);
        assert_eq!(all.count_below(64 << UNIT_SHIFT), 2);
        assert_eq!(all.count_below(128 << UNIT_SHIFT), 4);
        assert_eq!(all.count_below(1 << (32 + UNIT_SHIFT)), 6);
    }

    #[test]
    fn add_of_buckets_that_no_node_has_is_bounded() {
        let mut all = histogram([7]);
        let text = r#"{"buckets": [[3, 2], [255, 9]], "sum_ns": 1, "max_ns": 1}"#;
        all.add(&serde_json::from_str(text).unwrap());
        assert_eq!(all.buckets, [(3, 3)]);
    }
}
