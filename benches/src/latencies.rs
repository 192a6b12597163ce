//! How long operations took, counted by length: each counter is for times a sixteenth longer than the one
//! before, so that any number of operations takes a few kilobytes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of times of as many bits.
const STEPS: u64 = 16;
const STEP_BITS: u32 = 4;
const COUNTERS: usize = 61 * 16;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Latencies(Vec<AtomicU64>);

impl Default for Latencies {
    fn default() -> Self {
        Self((0..COUNTERS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Latencies {
    /// One took so long.
    pub(crate) fn count(&self, ns: u64) {
        self.0[counter(ns)].fetch_add(1, Ordering::Relaxed);
    }

    /// What so many of a hundred stayed below since this was asked last, in milliseconds; zero if there was
    /// none.
    pub(crate) fn take_ms(&self, of_100: u64) -> f64 {
        let counts: Vec<u64> = self.0.iter().map(|count| count.swap(0, Ordering::Relaxed)).collect();
        let wanted = (counts.iter().sum::<u64>() * of_100).div_ceil(100);
        let mut so_far = 0;
        let reached = counts.iter().position(|count| {
            so_far += count;
            so_far >= wanted && so_far > 0
        });
        reached.map_or(0.0, |counter| longest(counter) as f64 / 1e6)
    }
}

/// Where a time is counted.
fn counter(ns: u64) -> usize {
    let bits = u64::BITS - ns.leading_zeros();
    let shift = bits.saturating_sub(STEP_BITS + 1);
    let place = u64::from(shift) * STEPS + (ns >> shift);
    usize::try_from(place).unwrap_or(COUNTERS - 1)
}

/// The longest time that is counted there.
fn longest(counter: usize) -> u64 {
    let place = counter as u64;
    let shift = (place / STEPS).saturating_sub(1);
    let first = u128::from(place - shift * STEPS) << shift;
    u64::try_from(first + (1 << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_where_they_belong() {
        for ns in (0..2_000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX / 3, u64::MAX]) {
            let at = counter(ns);
            assert!(at < COUNTERS && ns <= longest(at), "{ns} in {at}: {}", longest(at));
            assert!(at == 0 || ns > longest(at - 1), "{ns} in {at}");
            assert!(u128::from(longest(at)) * 16 <= u128::from(ns) * 17, "{ns}");
        }
    }

    #[test]
    fn take_says_what_most_stayed_below_and_begins_anew() {
        let latencies = Latencies::default();
        for ms in 1..=100 {
            latencies.count(ms * 1_000_000);
        }
        let p99 = latencies.take_ms(99);
        assert!((99.0..107.0).contains(&p99), "{p99}");
        assert_eq!(latencies.take_ms(99), 0.0);
    }
}
