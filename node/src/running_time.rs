//! Time in which a thread ran. Whoever was stopped or starved, or whose machine slept, has waited for nobody
//! meanwhile, whatever the clock says.

/// What the time between two ticks counts for at most; they follow one another by ten milliseconds.
const GAP_MAX_NS: u64 = 100_000_000;

/// See the module's text. It is asked with each tick.
#[derive(Debug, Default)]
pub(crate) struct RunningTime {
    /// The last tick.
    last_ns: u64,
}

impl RunningTime {
    pub(crate) fn new(now_ns: u64) -> RunningTime {
        RunningTime { last_ns: now_ns }
    }

    /// The time since the last tick, as far as it counts.
    pub(crate) fn pass(&mut self, now_ns: u64) -> u64 {
        let passed_ns = now_ns.saturating_sub(self.last_ns).min(GAP_MAX_NS);
        self.last_ns = now_ns;
        passed_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pass_counts_ticks_whole_and_gaps_in_part() {
        let mut time = RunningTime::new(1_000);
        assert_eq!([1_000, 1_001, 900].map(|now_ns| time.pass(now_ns)), [0, 1, 0]);
        assert_eq!(time.pass(900 + GAP_MAX_NS), GAP_MAX_NS);
        assert_eq!(time.pass(900 + 50 * GAP_MAX_NS), GAP_MAX_NS, "it was stopped");
    }
}
