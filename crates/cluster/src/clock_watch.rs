//! Whether the own clock has stood still: a core without clock or I/O.
//!
//! A lease is counted on the node's clock from before it asked, and on the coordinator's from when the
//! question came. That is safe while both clocks go on. The clocks of a virtual machine that its host stops,
//! or moves, may stop with it:
//!
//! 1. the node renews its lease of 500 ms at 100 ms, and relies on it until 575 ms;
//! 2. its machine is stopped for 2 s; the lease ends, a survivor takes over;
//! 3. its machine goes on, with its clock where it was: at 110 ms. For the node the lease holds for 465 ms
//!    more.
//!
//! No clock of such a machine shows it; the coordinator's, if that is on another machine, does. Its readings
//! lie between a question and its answer, so that the time between two of them is at most that from before
//! the first question to after the second answer. What is more than this the own clock has lost.

use serde::{Deserialize, Serialize};

/// What a coordinator's clock said while it carried a request out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// Names the clock: another life of a coordinator has another. Only readings of one clock are compared.
    pub clock: u64,
    /// Nanoseconds that only grow.
    pub now_ns: u64,
}

/// Compares the own clock with the coordinator's, from answer to answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockWatch {
    /// What the coordinator's clock may be faster by, in parts of a million.
    drift_parts: u64,
    /// When the last answer with a time was asked for, and that time.
    last: Option<(u64, ClockReading)>,
}

impl ClockWatch {
    pub(crate) fn new(drift_parts: u64) -> ClockWatch {
        ClockWatch { drift_parts, last: None }
    }

    /// Takes in a reading, asked for at `asked_ns` and received at `answered_ns`. How much time the own clock
    /// has lost since the reading before, beyond what clocks drift; none if it has not surely lost any.
    pub(crate) fn observe(&mut self, asked_ns: u64, answered_ns: u64, reading: ClockReading) -> Option<u64> {
        let (asked_before_ns, before) = self.last.replace((asked_ns, reading))?;
        if before.clock != reading.clock {
            return None;
        }
        let there_ns = reading.now_ns.saturating_sub(before.now_ns);
        let here_ns = answered_ns.saturating_sub(asked_before_ns);
        let drift_ns = u128::from(there_ns) * u128::from(self.drift_parts) / 1_000_000;
        let permitted_ns = here_ns.saturating_add(u64::try_from(drift_ns).unwrap_or(u64::MAX));
        there_ns.checked_sub(permitted_ns).filter(|lost_ns| *lost_ns > 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn at(now_ms: u64) -> ClockReading {
        ClockReading { clock: 7, now_ns: now_ms * MS }
    }

    fn watch() -> ClockWatch {
        let mut watch = ClockWatch::new(50_000);
        assert_eq!(watch.observe(1_000 * MS, 1_002 * MS, at(9_001)), None);
        watch
    }

    #[test]
    fn observe_clock_that_stood_still_is_reported_with_what_it_lost() {
        assert_eq!(watch().observe(1_100 * MS, 1_102 * MS, at(11_101)), Some(1_893 * MS));
        // Also where the pause was between a question and its answer.
        let mut watch = watch();
        assert_eq!(watch.observe(1_100 * MS, 1_102 * MS, at(9_101)), None);
        assert_eq!(watch.observe(1_200 * MS, 1_202 * MS, at(11_201)), Some(1_893 * MS));
        assert_eq!(watch.observe(1_300 * MS, 1_302 * MS, at(11_301)), None, "reported once");
    }

    #[test]
    fn observe_slow_answers_and_other_clocks_say_nothing() {
        // The question waited for two seconds, and the own clock went on.
        assert_eq!(watch().observe(1_100 * MS, 3_100 * MS, at(11_050)), None);
        // A coordinator that stood still itself, or was started anew.
        assert_eq!(watch().observe(5_000 * MS, 5_002 * MS, at(9_002)), None);
        assert_eq!(
            watch().observe(1_100 * MS, 1_102 * MS, ClockReading { clock: 8, now_ns: u64::MAX }),
            None
        );
        assert_eq!(watch().observe(1_100 * MS, 1_102 * MS, at(3)), None);
    }

    proptest! {
        /// However long questions and answers travel, and with the coordinator's clock up to the margin
        /// faster: a clock that goes on is never taken for one that stood still, and one that lost more than
        /// drift and travel explain is always found out.
        #[test]
        fn observe_reports_lost_time_and_nothing_else(
            steps in proptest::collection::vec((1_u64..40, 1_u64..40, 0_u64..200, 0_u64..300), 1..60),
            drift in 0_u64..50_000,
        ) {
            let mut watch = ClockWatch::new(50_000);
            let there = |world: u64| ClockReading { clock: 1, now_ns: world + world * drift / 1_000_000 };
            // The world's time, and what the own clock has lost of it.
            let (mut world, mut lost, mut first) = (0, 0, true);
            for (out, back, pause, stop) in steps {
                let stop = if stop < 200 { 0 } else { stop * MS };
                world += pause * MS + stop;
                lost += stop;
                let asked = world - lost;
                let reading = there(world + out * MS);
                world += (out + back) * MS;
                let observed = watch.observe(asked, world - lost, reading);
                if first || stop == 0 {
                    prop_assert_eq!(observed, None);
                } else {
                    // More than two journeys and the drift of one step.
                    prop_assert!(observed.is_some_and(|observed| observed <= stop + stop / 20), "{observed:?} of {stop}");
                }
                first = false;
            }
        }
    }
}
