//! How long single operations take: what half of them stays below, and all but one of a hundred.

use std::io;
use std::time::{Duration, Instant};

use crate::figure::{Figure, Goal, Report};
use crate::options::BenchError;

/// Nanoseconds, ascending.
pub(crate) struct Times(Vec<u64>);

impl Times {
    /// Does something again and again for so long, once at least.
    #[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
    pub(crate) fn during(
        time: Duration,
        mut once: impl FnMut() -> Result<(), BenchError>,
    ) -> Result<Self, BenchError> {
        let (started, mut times) = (Instant::now(), Vec::new());
        loop {
            let began = Instant::now();
            once()?;
            times.push(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
            if started.elapsed() >= time {
                times.sort_unstable();
                return Ok(Self(times));
            }
        }
    }

    /// What so many of a hundred stay below, in microseconds.
    pub(crate) fn at(&self, of_100: usize) -> f64 {
        self.0[(self.0.len() - 1) * of_100 / 100] as f64 / 1e3
    }

    /// Adds a row of each figure, beside those of a limit.
    pub(crate) fn report(
        &self,
        bench: &str,
        limit: Option<(&str, &Times)>,
        report: &mut Report<'_>,
    ) -> io::Result<()> {
        for (part, of_100) in [("p50", 50), ("p99", 99)] {
            let (bench, ours) = (format!("{bench}, {part}"), self.at(of_100));
            report.add(match limit {
                Some((name, limit)) => Figure::beside(bench, "us", ours, name, limit.at(of_100), Goal::None),
                None => Figure::alone(bench, "us", ours),
            })?;
        }
        Ok(())
    }
}

/// Nanoseconds of one of `count` operations that are done together, and what they give.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
pub(crate) fn timed<T>(count: usize, work: impl FnOnce() -> T) -> (f64, T) {
    let started = Instant::now();
    let result = std::hint::black_box(work());
    (started.elapsed().as_nanos() as f64 / count as f64, result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_times_are_theirs() {
        let times = Times((0..=100).map(|us| us * 1_000).collect());
        assert_eq!((times.at(50), times.at(99)), (50.0, 99.0));
        let mut count = 0;
        let once = || {
            count += 1;
            Ok(())
        };
        assert_eq!(Times::during(Duration::ZERO, once).unwrap().0.len(), 1);
        assert_eq!(count, 1);
    }
}
