//! How long renewals of a lease take: for metrics, and for a warning before the lease runs out.
//!
//! The time of a renewal is from when it was due until it was confirmed. So it has in it what kept the
//! lease's thread from asking, and the tries that had no answer. The thread writes, others read; nobody
//! waits.

use std::sync::atomic::{AtomicU64, Ordering};

/// The longest times are kept of so many spans, the present one among them.
const SPANS: usize = 7;
/// Six of them are the last minute.
const SPAN_NS: u64 = 10_000_000_000;
/// What no span has as its number.
const NONE: u64 = u64::MAX;

/// How renewals went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenewalFigures {
    /// The longest time of the last minute. A renewal that is waited for counts with what it has taken so
    /// far.
    pub slowest_ns: u64,
    /// What a renewal may take: then the lease has run out. Zero before there is one.
    pub most_ns: u64,
    /// Renewals since the start that took so long that the lease had nearly run out.
    pub slow: u64,
}

impl RenewalFigures {
    /// Whether the lease had nearly run out in the last minute, or had.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        is_slow(self.slowest_ns, self.most_ns)
    }

    /// How long the slowest took of what it may, for people.
    #[must_use]
    pub fn words(&self) -> String {
        let [took_ms, most_ms] = [self.slowest_ns, self.most_ns].map(|ns| ns / 1_000_000);
        format!(
            "a renewal of its lease took {took_ms} ms, of {most_ms} ms that it may before the node is silent"
        )
    }
}

/// Two thirds of the time that there is are too much: half of a lease, with its margin by default.
pub(crate) fn is_slow(took_ns: u64, most_ns: u64) -> bool {
    took_ns > most_ns / 3 * 2
}

#[derive(Debug)]
struct Span {
    number: AtomicU64,
    longest_ns: AtomicU64,
}

/// The longest time of the last minute.
#[derive(Debug)]
pub(crate) struct LongestOfLate([Span; SPANS]);

impl Default for LongestOfLate {
    fn default() -> LongestOfLate {
        LongestOfLate(std::array::from_fn(|_| Span {
            number: AtomicU64::new(NONE),
            longest_ns: AtomicU64::new(0),
        }))
    }
}

impl LongestOfLate {
    /// One thread alone notes.
    pub(crate) fn note(&self, now_ns: u64, took_ns: u64) {
        let number = now_ns / SPAN_NS;
        let Some(span) = self.0.iter().find(|span| span.number.load(Ordering::Relaxed) == number) else {
            let oldest = self.0.iter().min_by_key(|span| span.number.load(Ordering::Relaxed).wrapping_add(1));
            let oldest = oldest.expect("there are some");
            oldest.longest_ns.store(took_ns, Ordering::Relaxed);
            oldest.number.store(number, Ordering::Release);
            return;
        };
        span.longest_ns.fetch_max(took_ns, Ordering::Relaxed);
    }

    pub(crate) fn longest_ns(&self, now_ns: u64) -> u64 {
        let number = now_ns / SPAN_NS;
        let is_late = |span: &&Span| {
            let of = span.number.load(Ordering::Acquire);
            of != NONE && of.saturating_add(SPANS as u64) > number
        };
        let late = self.0.iter().filter(is_late);
        late.map(|span| span.longest_ns.load(Ordering::Relaxed)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn longest_is_forgotten_after_a_minute_and_some_seconds() {
        let late = LongestOfLate::default();
        assert_eq!(late.longest_ns(5), 0);
        late.note(3 * SECOND, 7);
        late.note(4 * SECOND, 5);
        for second in 5..=63 {
            late.note(second * SECOND, 2);
            assert_eq!(late.longest_ns(second * SECOND), 7, "after {second} s");
        }
        assert_eq!(late.longest_ns(69 * SECOND), 7);
        assert_eq!(late.longest_ns(70 * SECOND), 2);
        (70..500).for_each(|second| late.note(second * SECOND, second));
        assert_eq!(late.longest_ns(499 * SECOND), 499);
        assert_eq!(late.longest_ns(1_000 * SECOND), 0, "nothing was noted for long");
    }

    #[test]
    fn slow_is_what_leaves_a_third_of_the_time_that_there_is() {
        let of = |slowest_ns| RenewalFigures { slowest_ns, most_ns: 375, slow: 0 };
        assert_eq!([250, 251, 500].map(|took| of(took).is_slow()), [false, true, true]);
        assert!(!RenewalFigures::default().is_slow());
    }
}
