//! What a node notes of the moves in which it is an end, for metrics. Nothing of a move is decided by it.

use cell_cluster::{ClusterError, MoveRow, MoveStage};

use crate::move_counts::{MoveCounts, MoveEnd, MoveEndCounts};

const NS_PER_MS: u64 = 1_000_000;
/// How often what a copy has read is counted: each change of a count is reported to the worker.
const COUNT_NS: u64 = 1_000_000_000;

/// Of one move, at one of its ends.
#[derive(Debug)]
pub(super) struct MoveFigures {
    seen_ns: u64,
    /// How far it was when it was looked at last, and since when.
    progress: Option<(MoveStage, u64, u64)>,
    still_since_ns: u64,
    /// When the handing was seen first.
    handed_ns: Option<u64>,
    /// What is counted of its copy.
    copied_bytes: u64,
    copied_ns: u64,
    /// What has become of it, as this end wrote it or was to.
    wrote: Option<MoveEnd>,
}

impl MoveFigures {
    /// Of a move that is seen for the first time.
    pub(super) fn begin(counts: &mut MoveEndCounts, now_ns: u64) -> MoveFigures {
        counts.begin();
        MoveFigures {
            seen_ns: now_ns,
            progress: None,
            still_since_ns: now_ns,
            handed_ns: None,
            copied_bytes: 0,
            copied_ns: now_ns,
            wrote: None,
        }
    }

    /// The row as it is now.
    pub(super) fn look(&mut self, of: Option<&MoveRow>, now_ns: u64) {
        let progress = of.map(MoveRow::progress);
        if self.progress != progress {
            (self.progress, self.still_since_ns) = (progress, now_ns);
        }
        if of.is_some_and(|of| of.stage == MoveStage::Handed) {
            self.handed_ns.get_or_insert(now_ns);
        }
    }

    /// Since when it has made no progress.
    pub(super) fn still_since_ns(&self) -> u64 {
        self.still_since_ns
    }

    /// A copy that is started anew counts anew.
    pub(super) fn copy_began(&mut self) {
        self.copied_bytes = 0;
    }

    /// What its copy has read by now; once it has ended, all of it is counted.
    pub(super) fn copied(&mut self, counts: &mut MoveCounts, bytes: u64, has_ended: bool, now_ns: u64) {
        if has_ended || now_ns.saturating_sub(self.copied_ns) >= COUNT_NS {
            counts.copied_bytes += bytes.saturating_sub(self.copied_bytes);
            (self.copied_bytes, self.copied_ns) = (self.copied_bytes.max(bytes), now_ns);
        }
    }

    /// The pair is served here. The freeze was the source's, by its wall clock; where that is not known, or
    /// shows less than this node has seen itself, what this node has seen counts.
    pub(super) fn served(&self, counts: &mut MoveCounts, of: Option<&MoveRow>, now_ns: u64, at_ms: u64) {
        let since_ms = |begin_ns: u64| now_ns.saturating_sub(begin_ns) / NS_PER_MS;
        counts.took.count(since_ms(self.seen_ns));
        let seen_ms = self.handed_ns.map_or(0, since_ms);
        let frozen_ms = of.map_or(0, |of| of.times.frozen_ms);
        let by_wall_ms = if frozen_ms > 0 { at_ms.saturating_sub(frozen_ms) } else { 0 };
        counts.frozen.count(seen_ms.max(by_wall_ms));
    }

    /// This end has written something, or has not; what the move becomes by that.
    pub(super) fn note_write(&mut self, wrote: &Result<(), ClusterError>, becomes: Option<MoveEnd>) {
        self.wrote = becomes.filter(|_| wrote.is_ok()).or(self.wrote);
    }

    /// The pair's row has decided what becomes of it, whether that can be written or not.
    pub(super) fn decided(&mut self, end: MoveEnd) {
        self.wrote = Some(end);
    }

    /// It is over at this end.
    pub(super) fn end(&self, counts: &mut MoveEndCounts, of: Option<&MoveRow>) {
        let in_row = of.and_then(|of| of.outcome.as_ref()).map(MoveEnd::of);
        // A row that another move has taken the place of was of a move whose other end had died.
        counts.end(in_row.or(self.wrote).unwrap_or(MoveEnd::GivenUp));
    }
}

#[cfg(test)]
mod tests {
    use cell_cluster::{MoveOutcome, MoveTimes};

    use super::super::fixtures::{SECOND, move_row};
    use super::*;

    #[test]
    fn figures_of_a_move_that_ends_here_are_its_whole_time_and_that_from_the_freeze_on() {
        let mut counts = MoveCounts::default();
        let mut of = move_row(MoveStage::Copying);
        let mut figures = MoveFigures::begin(&mut counts.target, SECOND);
        figures.look(Some(&of), SECOND);
        figures.copied(&mut counts, 70, false, SECOND + COUNT_NS);
        figures.copied(&mut counts, 80, false, SECOND + COUNT_NS + 1);
        assert_eq!(counts.copied_bytes, 70, "once a second");
        (of.stage, of.times) = (MoveStage::Handed, MoveTimes { frozen_ms: 2_950, ..MoveTimes::default() });
        figures.look(Some(&of), 3 * SECOND);
        figures.copied(&mut counts, 90, true, 3 * SECOND);
        figures.served(&mut counts, Some(&of), 3 * SECOND + 20 * NS_PER_MS, 3_020);
        of.outcome = Some(MoveOutcome::Moved);
        figures.end(&mut counts.target, Some(&of));
        assert_eq!((counts.copied_bytes, counts.took.sum_ms, counts.frozen.sum_ms), (90, 2_020, 70));
        assert_eq!((counts.target.started, counts.target.under_way, counts.target.moved), (1, 0, 1));
        // The source's clock is ahead: what was seen here is what is known.
        of.times.frozen_ms = 9_000;
        figures.served(&mut counts, Some(&of), 3 * SECOND + 20 * NS_PER_MS, 3_020);
        assert_eq!(counts.frozen.sum_ms, 90);
    }

    #[test]
    fn move_stands_still_since_its_row_showed_something_new() {
        let mut counts = MoveEndCounts::default();
        let mut of = move_row(MoveStage::Copying);
        let mut figures = MoveFigures::begin(&mut counts, 0);
        figures.look(Some(&of), SECOND);
        figures.look(Some(&of), 9 * SECOND);
        assert_eq!(figures.still_since_ns(), SECOND);
        of.bytes_done += 1;
        figures.look(Some(&of), 10 * SECOND);
        assert_eq!(figures.still_since_ns(), 10 * SECOND);
        of.checked += 1;
        figures.look(Some(&of), 11 * SECOND);
        assert_eq!(figures.still_since_ns(), 11 * SECOND);
    }

    #[test]
    fn end_is_what_the_row_says_or_else_what_this_end_wrote() {
        let mut counts = MoveEndCounts::default();
        let mut of = move_row(MoveStage::Copying);
        let mut figures = MoveFigures::begin(&mut counts, 0);
        let lost = Err(ClusterError::Contended { what: "a test" });
        figures.note_write(&lost, Some(MoveEnd::Moved));
        figures.note_write(&Ok(()), Some(MoveEnd::Back));
        figures.note_write(&Ok(()), None);
        figures.end(&mut counts, Some(&of));
        let figures = MoveFigures::begin(&mut counts, 0);
        of.outcome = Some(MoveOutcome::Cancelled);
        figures.end(&mut counts, Some(&of));
        MoveFigures::begin(&mut counts, 0).end(&mut counts, None);
        of.outcome = None;
        let mut figures = MoveFigures::begin(&mut counts, 0);
        figures.decided(MoveEnd::Moved);
        figures.note_write(&lost, Some(MoveEnd::Moved));
        figures.end(&mut counts, Some(&of));
        let ends = MoveEndCounts { started: 4, moved: 1, back: 1, ..Default::default() };
        let expected = MoveEndCounts { cancelled: 1, given_up: 1, ..ends };
        assert_eq!(counts, expected);
    }
}
