//! Token buckets, one for each of a bounded number of callers. A pure core: the time is given to it, from any
//! fixed start.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Callers that are remembered. If there are more, those that asked least lately are forgotten.
const CALLERS_MAX: usize = 1_024;

/// How often each caller may do something.
#[derive(Debug)]
pub struct RateLimit<K> {
    per_second: f64,
    burst: f64,
    buckets: HashMap<K, Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// What is left of the burst.
    left: f64,
    at: Duration,
}

impl<K: Clone + Eq + Hash> RateLimit<K> {
    /// So many times a second, and `burst` times at once. Both are larger than 0.
    #[must_use]
    pub fn new(per_second: f64, burst: f64) -> RateLimit<K> {
        RateLimit { per_second, burst, buckets: HashMap::new() }
    }

    /// So many times from now on. What callers have left stays, as far as it is no more than the burst.
    pub fn set_rate(&mut self, per_second: f64, burst: f64) {
        (self.per_second, self.burst) = (per_second, burst);
    }

    /// Whether a caller may do it now.
    ///
    /// # Errors
    /// When it may.
    pub fn check(&self, caller: &K, now: Duration) -> Result<(), Duration> {
        let left = self.buckets.get(caller).map_or(self.burst, |bucket| self.left(bucket, now));
        if left >= 1.0 { Ok(()) } else { Err(Duration::from_secs_f64((1.0 - left) / self.per_second)) }
    }

    /// Counts that a caller does it, if it may.
    ///
    /// # Errors
    /// When it may.
    pub fn take(&mut self, caller: &K, now: Duration) -> Result<(), Duration> {
        self.check(caller, now)?;
        if !self.buckets.contains_key(caller) && self.buckets.len() >= CALLERS_MAX {
            self.forget_one(now);
        }
        let left = self.buckets.get(caller).map_or(self.burst, |bucket| self.left(bucket, now));
        self.buckets.insert(caller.clone(), Bucket { left: left - 1.0, at: now });
        Ok(())
    }

    fn left(&self, bucket: &Bucket, now: Duration) -> f64 {
        let passed = now.saturating_sub(bucket.at).as_secs_f64();
        (bucket.left + passed * self.per_second).min(self.burst)
    }

    /// Forgets those that are as new, or else the one that has most left.
    fn forget_one(&mut self, now: Duration) {
        let (per_second, burst) = (self.per_second, self.burst);
        let left = |bucket: &Bucket| bucket.left + now.saturating_sub(bucket.at).as_secs_f64() * per_second;
        self.buckets.retain(|_, bucket| left(bucket) < burst);
        if self.buckets.len() >= CALLERS_MAX {
            let most = self.buckets.iter().max_by(|one, other| left(one.1).total_cmp(&left(other.1)));
            if let Some(caller) = most.map(|(caller, _)| caller.clone()) {
                self.buckets.remove(&caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const START: Duration = Duration::from_secs(9);

    #[test]
    fn take_past_the_burst_waits_and_other_callers_do_not() {
        let (mut limit, start) = (RateLimit::new(2.0, 3.0), START);
        assert_eq!([(); 3].map(|()| limit.take(&"a", start)), [Ok(()); 3]);
        assert_eq!(limit.take(&"a", start), Err(SECOND / 2));
        assert_eq!(limit.take(&"b", start), Ok(()));
        assert_eq!(limit.take(&"a", start + SECOND / 2), Ok(()));
        assert_eq!(limit.take(&"a", start + SECOND / 2), Err(SECOND / 2));
        let later = start + 60 * SECOND;
        assert_eq!([(); 3].map(|()| limit.take(&"a", later)), [Ok(()); 3]);
        assert!(limit.take(&"a", later).is_err(), "rest does not add to the burst");
    }

    #[test]
    fn set_rate_counts_at_once_and_what_callers_had_left_is_bounded_by_it() {
        let (mut limit, start) = (RateLimit::new(2.0, 8.0), START);
        limit.take(&"a", start).unwrap();
        limit.set_rate(1.0, 2.0);
        assert_eq!([(); 2].map(|()| limit.take(&"a", start)), [Ok(()); 2]);
        assert_eq!(limit.take(&"a", start), Err(SECOND));
        limit.set_rate(4.0, 8.0);
        assert_eq!(limit.take(&"a", start), Err(SECOND / 4));
    }

    #[test]
    fn take_of_many_callers_remembers_a_bounded_number_and_the_busiest_of_them() {
        let (mut limit, start) = (RateLimit::new(1.0, 2.0), START);
        assert_eq!([(); 2].map(|()| limit.take(&0, start)), [Ok(()); 2]);
        for caller in 1..3 * CALLERS_MAX {
            assert_eq!(limit.take(&caller, start), Ok(()));
            assert!(limit.buckets.len() <= CALLERS_MAX);
        }
        assert!(limit.check(&0, start).is_err());
        limit.take(&usize::MAX, start + 9 * SECOND).unwrap();
        assert_eq!(limit.buckets.len(), 1, "those that are as new are forgotten");
    }
}
