//! How a drill's clients fare while it runs, in steps of a fifth of a second.

use std::time::Duration;

use crate::journal::JournalSample;

/// How long a step is meant to be; a busy machine makes one longer.
pub const LANE_STEP: Duration = Duration::from_millis(200);

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanePoint {
    /// When it began, on CLOCK_BOOTTIME, in nanoseconds. It lasts until the next one.
    pub at_ns: u64,
    /// Operations that were under way at some time in it: started in it, or still unanswered from before.
    pub attempted: u64,
    /// Those of them that were answered in it.
    pub succeeded: u64,
    /// Those of them that ended in it otherwise. The rest was still under way at its end.
    pub failed: u64,
    /// Of a hundred operations that were answered, one took longer than this, in microseconds; none if none
    /// was.
    pub p99_us: Option<u64>,
}

/// Makes steps out of samples of the journal.
#[derive(Debug)]
pub(crate) struct Lane {
    at_ns: u64,
    /// Operations that had ended when the step began.
    ended: u64,
}

impl Lane {
    /// The first step begins.
    pub(crate) fn new(now_ns: u64) -> Lane {
        Lane { at_ns: now_ns, ended: 0 }
    }

    /// The step ends, and the next one begins. `sample` is what the journal has counted in it.
    pub(crate) fn step(&mut self, now_ns: u64, mut sample: JournalSample) -> LanePoint {
        let answered = &mut sample.answered_us;
        answered.sort_unstable();
        let at = (answered.len() * 99).div_ceil(100).saturating_sub(1);
        let point = LanePoint {
            at_ns: self.at_ns,
            attempted: sample.started.saturating_sub(self.ended),
            succeeded: answered.len() as u64,
            failed: sample.ended.saturating_sub(self.ended + answered.len() as u64),
            p99_us: answered.get(at).copied(),
        };
        (self.at_ns, self.ended) = (now_ns, sample.ended);
        point
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was under way once counted as failed.
    #[test]
    fn step_counts_what_was_under_way_and_what_of_it_was_answered() {
        let mut lane = Lane::new(5);
        let sample = |started, ended, answered_us| JournalSample { started, ended, answered_us };
        let point = lane.step(10, sample(100, 98, (1..=97).rev().collect()));
        assert_eq!(point, LanePoint { at_ns: 5, attempted: 100, succeeded: 97, failed: 1, p99_us: Some(97) });
        // Nothing is answered: what is started is added to what is under way.
        let point = lane.step(15, sample(150, 98, vec![]));
        assert_eq!(point, LanePoint { at_ns: 10, attempted: 52, succeeded: 0, failed: 0, p99_us: None });
        let point = lane.step(20, sample(160, 160, vec![9; 62]));
        assert_eq!(point, LanePoint { at_ns: 15, attempted: 62, succeeded: 62, failed: 0, p99_us: Some(9) });
    }
}
