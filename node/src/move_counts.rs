//! What a node counts of planned moves of pairs, for metrics: those away from it and those to it, what became
//! of them, how long they took, and how long their pairs were not served.

use cell_cluster::MoveOutcome;

/// Buckets of durations: where each of them ends, and one more for what took longer.
pub const MOVE_BUCKETS: usize = MOVE_ENDS_MS.len() + 1;
const MOVE_ENDS_MS: [u64; 15] =
    [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000];

/// Where a bucket of durations of moves ends, in milliseconds; none for the last one.
#[must_use]
pub fn move_bucket_end_ms(bucket: usize) -> Option<u64> {
    MOVE_ENDS_MS.get(bucket).copied()
}

/// How long something of moves took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveDurations {
    /// How often it took how long.
    pub buckets: [u64; MOVE_BUCKETS],
    /// The sum.
    pub sum_ms: u64,
}

impl MoveDurations {
    pub(crate) fn count(&mut self, took_ms: u64) {
        self.buckets[MOVE_ENDS_MS.partition_point(|end_ms| *end_ms < took_ms)] += 1;
        self.sum_ms += took_ms;
    }
}

/// Of the moves in which a node is the one end, or the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveEndCounts {
    /// Those that it has seen begin.
    pub started: u64,
    /// Of them, those that are under way.
    pub under_way: u64,
    /// Those whose target serves the pair.
    pub moved: u64,
    /// Those that somebody cancelled.
    pub cancelled: u64,
    /// Those that an end gave up before the handing.
    pub given_up: u64,
    /// Those whose pair went back after the handing.
    pub back: u64,
}

/// What became of a move, without the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveEnd {
    Moved,
    Cancelled,
    GivenUp,
    Back,
}

impl MoveEnd {
    pub(crate) fn of(outcome: &MoveOutcome) -> MoveEnd {
        match outcome {
            MoveOutcome::Moved => MoveEnd::Moved,
            MoveOutcome::Cancelled => MoveEnd::Cancelled,
            MoveOutcome::GivenUp { .. } => MoveEnd::GivenUp,
            MoveOutcome::Back { .. } => MoveEnd::Back,
        }
    }
}

impl MoveEndCounts {
    pub(crate) fn begin(&mut self) {
        self.started += 1;
        self.under_way += 1;
    }

    pub(crate) fn end(&mut self, end: MoveEnd) {
        self.under_way -= 1;
        let count = match end {
            MoveEnd::Moved => &mut self.moved,
            MoveEnd::Cancelled => &mut self.cancelled,
            MoveEnd::GivenUp => &mut self.given_up,
            MoveEnd::Back => &mut self.back,
        };
        *count += 1;
    }
}

/// Since the start of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveCounts {
    /// Moves away from here.
    pub source: MoveEndCounts,
    /// Moves to here.
    pub target: MoveEndCounts,
    /// Bytes of images and logs that copies have read, about once a second.
    pub copied_bytes: u64,
    /// Of pairs that moved here, from when this node saw the move to the pair's publication.
    pub took: MoveDurations,
    /// Of them, from the freeze to the publication: the pair was not served.
    pub frozen: MoveDurations,
    /// Since when, by CLOCK_BOOTTIME, the move has made no progress that has made none for longest; none
    /// without a move.
    pub still_since_ns: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_where_they_end() {
        let mut durations = MoveDurations::default();
        for (took_ms, bucket) in [(0, 0), (5, 0), (6, 1), (1_000, 7), (1_800_000, 14), (1_800_001, 15)] {
            let before = durations.buckets[bucket];
            durations.count(took_ms);
            assert_eq!(durations.buckets[bucket], before + 1, "{took_ms}");
            assert!(move_bucket_end_ms(bucket).is_none_or(|end_ms| took_ms <= end_ms));
        }
        assert_eq!(durations.sum_ms, 3_601_012);
    }
}
