//! How far a planned move is, and when it came so far. The times are for people: they are by the wall clocks
//! of those who wrote its row, and nothing is decided by them.

use serde::{Deserialize, Serialize};

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveStage {
    /// It is asked for.
    Wanted,
    /// The source keeps image and log; the target copies.
    Copying,
    /// The copy is whole, verified, and follows the log closely: the source may hand the pair over.
    Ready,
    /// The pair is the target's; it is served from its publication on.
    Handed,
}

impl MoveStage {
    /// The stage in one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            MoveStage::Wanted => "wanted",
            MoveStage::Copying => "copying",
            MoveStage::Ready => "ready",
            MoveStage::Handed => "handed",
        }
    }
}

/// Milliseconds since 1970. Zero: it did not come so far yet, or its writer had no such clock.
///
/// None of them is earlier than one before it: clocks of two writers may differ, and what follows is shown to
/// follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MoveTimes {
    /// It was asked for.
    pub wanted_ms: u64,
    /// The source kept the log.
    pub copying_ms: u64,
    /// The copy was ready, the last time.
    pub ready_ms: u64,
    /// The source froze the pair that it handed over.
    pub frozen_ms: u64,
    /// It was handed over.
    pub handed_ms: u64,
    /// It was over.
    pub over_ms: u64,
}

impl MoveTimes {
    /// Of a move that is asked for at this time.
    pub(crate) fn wanted(at_ms: u64) -> MoveTimes {
        MoveTimes { wanted_ms: at_ms, ..MoveTimes::default() }
    }

    /// Whether nothing is known of any.
    pub(crate) fn are_unknown(&self) -> bool {
        *self == MoveTimes::default()
    }

    /// It comes to a stage.
    pub(crate) fn note_stage(&mut self, stage: MoveStage, at_ms: u64) {
        let at_ms = self.not_before(at_ms);
        match stage {
            MoveStage::Wanted => {}
            MoveStage::Copying if self.copying_ms == 0 => self.copying_ms = at_ms,
            MoveStage::Copying => {}
            MoveStage::Ready => self.ready_ms = at_ms,
            MoveStage::Handed => self.handed_ms = at_ms,
        }
    }

    /// The pair that is handed over was frozen at this time.
    pub(crate) fn note_freeze(&mut self, at_ms: u64) {
        self.frozen_ms = self.not_before(at_ms);
    }

    /// It is over.
    pub(crate) fn note_end(&mut self, at_ms: u64) {
        self.over_ms = self.not_before(at_ms);
    }

    /// A time that is not before what was noted; zero stays zero.
    fn not_before(&self, at_ms: u64) -> u64 {
        let MoveTimes { wanted_ms, copying_ms, ready_ms, frozen_ms, handed_ms, over_ms } = *self;
        let noted = [wanted_ms, copying_ms, ready_ms, frozen_ms, handed_ms, over_ms];
        match at_ms {
            0 => 0,
            at_ms => noted.into_iter().fold(at_ms, u64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_each_other_whatever_the_writers_clocks_show() {
        let mut times = MoveTimes::wanted(1_000);
        times.note_stage(MoveStage::Copying, 900);
        times.note_stage(MoveStage::Ready, 2_000);
        times.note_stage(MoveStage::Copying, 2_500);
        times.note_stage(MoveStage::Ready, 3_000);
        times.note_freeze(2_999);
        times.note_stage(MoveStage::Handed, 3_010);
        times.note_end(5);
        let noted = MoveTimes {
            wanted_ms: 1_000,
            copying_ms: 1_000,
            ready_ms: 3_000,
            frozen_ms: 3_000,
            handed_ms: 3_010,
            over_ms: 3_010,
        };
        assert_eq!(times, noted);
    }

    #[test]
    fn writer_without_a_wall_clock_leaves_what_is_not_known() {
        let mut times = MoveTimes::wanted(0);
        times.note_stage(MoveStage::Copying, 0);
        times.note_end(0);
        assert!(times.are_unknown());
    }
}
