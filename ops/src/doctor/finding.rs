//! What was found of one thing, and how good that is.

use std::time::Duration;

/// How well something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Health {
    /// As it should be.
    Well,
    /// A node runs with it; an operator should know.
    Doubtful,
    /// A node does not run with it, or not safely.
    Bad,
}

impl Health {
    /// Its word.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Health::Well => "well",
            Health::Doubtful => "doubtful",
            Health::Bad => "bad",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// What.
    pub(crate) name: &'static str,
    /// How it is.
    pub(crate) health: Health,
    /// What was seen, in words.
    pub(crate) seen: String,
    /// What to do about it; none where all is well.
    pub(crate) next: Option<&'static str>,
}

impl Finding {
    pub(super) fn well(name: &'static str, seen: impl Into<String>) -> Finding {
        Finding { name, health: Health::Well, seen: seen.into(), next: None }
    }

    pub(super) fn doubtful(name: &'static str, seen: impl Into<String>, next: &'static str) -> Finding {
        Finding { name, health: Health::Doubtful, seen: seen.into(), next: Some(next) }
    }

    pub(super) fn bad(name: &'static str, seen: impl Into<String>, next: &'static str) -> Finding {
        Finding { name, health: Health::Bad, seen: seen.into(), next: Some(next) }
    }
}

/// The middle one and the 99th of a hundred.
pub(super) fn percentiles(times: &mut [Duration]) -> Option<(Duration, Duration)> {
    times.sort_unstable();
    let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len().saturating_sub(1)));
    Some((*at(50)?, *at(99)?))
}

/// For people.
pub(super) fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_times_in_any_order() {
        let mut times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        let (middle, late) = percentiles(&mut times).unwrap();
        assert_eq!((middle, late), (Duration::from_millis(51), Duration::from_millis(100)));
        assert_eq!(percentiles(&mut [Duration::from_millis(7)]).unwrap().1, Duration::from_millis(7));
        assert_eq!(percentiles(&mut []), None);
    }
}
