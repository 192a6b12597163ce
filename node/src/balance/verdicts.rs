//! What became of moves: those that came to nothing are not tried again at once.

use std::collections::BTreeMap;

use cell_cluster::{ClusterView, MoveName, MoveOutcome, MoveRow};
use cell_placement::MoveFailure;
use cell_terms::{NodeId, PairId};

use crate::command::StayReason;
use crate::moves::{
    BEHIND, BOTH_ENDED, MEMORY_KEPT, ROW_UNREADABLE, SOURCE_ENDED, SOURCE_STOPS, STALLED, TARGET_ENDED,
    TARGET_STOPS,
};

/// What reasons say, and what that is; the first that fits counts. An error of the disk may be of a log, and
/// its words name both: what the disk says comes first.
const REASONS: &[(&str, MoveFailure)] = &[
    (StayReason::Splits.words(), MoveFailure::SplitOpen),
    (BEHIND, MoveFailure::Behind),
    (STALLED, MoveFailure::Silence),
    (ROW_UNREADABLE, MoveFailure::Silence),
    (SOURCE_STOPS, MoveFailure::EndGone),
    (TARGET_STOPS, MoveFailure::EndGone),
    (SOURCE_ENDED, MoveFailure::EndGone),
    (TARGET_ENDED, MoveFailure::EndGone),
    (BOTH_ENDED, MoveFailure::EndGone),
    // An error's, of a lease.
    (" has ended", MoveFailure::EndGone),
    ("the disk has no room for", MoveFailure::NoDiskRoom),
    ("No space left on device", MoveFailure::NoDiskRoom),
    ("Disk quota exceeded", MoveFailure::NoDiskRoom),
    (MEMORY_KEPT, MoveFailure::NoMemory),
    ("no memory", MoveFailure::NoMemory),
    ("bytes of memory", MoveFailure::NoMemory),
    ("free huge pages", MoveFailure::NoMemory),
    ("Cannot allocate memory", MoveFailure::NoMemory),
    ("the log folder of", MoveFailure::Unreadable),
    ("the log segment", MoveFailure::Unreadable),
    ("the log is damaged", MoveFailure::Unreadable),
    ("the log root", MoveFailure::Unreadable),
    ("log format version", MoveFailure::Unreadable),
    ("the logs of", MoveFailure::Unreadable),
    ("the two logs of", MoveFailure::Unreadable),
    ("checkpoint image `", MoveFailure::Unreadable),
    ("checkpoint `", MoveFailure::Unreadable),
    ("the log ends at", MoveFailure::Unreadable),
    ("log cannot be read", MoveFailure::Unreadable),
    ("cannot open `", MoveFailure::Unreadable),
    ("cannot read `", MoveFailure::Unreadable),
    ("cannot list `", MoveFailure::Unreadable),
    ("cannot ask the length of `", MoveFailure::Unreadable),
];

/// The moves whose end is known: the last one of each pair.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    judged: Option<BTreeMap<PairId, u64>>,
    /// The move that this node has cancelled itself: that says nothing of its target.
    cancelled: Option<MoveName>,
}

impl Verdicts {
    /// This node cancels a move.
    pub(super) fn cancels(&mut self, name: MoveName) {
        self.cancelled = Some(name);
    }

    /// The moves that have come to nothing since the last look. Of those that had before the first one nobody
    /// knows when.
    pub(super) fn failures(&mut self, view: &ClusterView) -> Vec<(PairId, NodeId, MoveFailure)> {
        let over = view.moves.values().filter(|of| !of.is_under_way());
        let Some(judged) = &mut self.judged else {
            self.judged = Some(over.map(|of| (of.pair, of.number)).collect());
            return Vec::new();
        };
        let mut failures = Vec::new();
        for of in over {
            let is_known = judged.insert(of.pair, of.number) == Some(of.number);
            if is_known || self.cancelled == Some(of.name()) {
                continue;
            }
            failures.extend(failure_of(of).map(|why| (of.pair, of.target.node, why)));
        }
        failures
    }
}

/// Why a move came to nothing, as far as its words say.
fn failure_of(of: &MoveRow) -> Option<MoveFailure> {
    let why = match of.outcome.as_ref()? {
        MoveOutcome::Moved => return None,
        MoveOutcome::Cancelled => return Some(MoveFailure::Cancelled),
        MoveOutcome::GivenUp { why } | MoveOutcome::Back { why } => why,
    };
    let said = REASONS.iter().find(|(words, _)| why.contains(words));
    Some(said.map_or(MoveFailure::Declined, |(_, failure)| *failure))
}

#[cfg(test)]
mod tests {
    use cell_cluster::{MoveMotive, MoveSide, MoveStage, MoveTimes};
    use cell_recovery::RecoveryError;
    use cell_terms::text::with_causes;
    use cell_terms::{Csn, Epoch, Incarnation, RegionKind};
    use cell_wal::corruption::{Corruption, Damage, Proof};
    use cell_wal::{DiskOperation, Errno, LogId, LogPlace, StorageError, WalError};

    use super::*;
    use crate::error::NodeError;

    fn row(pair: u32, number: u64, outcome: Option<MoveOutcome>) -> MoveRow {
        let side =
            |node: u32| MoveSide { incarnation: Incarnation(node.into()), node: NodeId(node), host: None };
        MoveRow {
            pair: PairId(pair),
            number,
            epoch: Epoch(1),
            source: side(1),
            target: side(2),
            why: String::new(),
            cause: MoveMotive::Balance,
            stage: MoveStage::Copying,
            bytes_done: 0,
            bytes_total: 0,
            checked: 0,
            outcome,
            cancelled_by: None,
            times: MoveTimes::default(),
        }
    }

    fn view(rows: Vec<MoveRow>) -> ClusterView {
        let moves = rows.into_iter().map(|of| (of.pair, of)).collect();
        ClusterView { moves, ..ClusterView::default() }
    }

    #[test]
    fn each_move_that_comes_to_nothing_is_reported_once() {
        let given_up = |why: &str| Some(MoveOutcome::GivenUp { why: why.to_owned() });
        let mut verdicts = Verdicts::default();
        let before = view(vec![row(1, 1, given_up("no memory")), row(2, 1, None)]);
        assert!(verdicts.failures(&before).is_empty(), "that may be long ago");
        let after = view(vec![row(1, 1, given_up("no memory")), row(2, 1, given_up(SOURCE_ENDED))]);
        assert_eq!(verdicts.failures(&after), [(PairId(2), NodeId(2), MoveFailure::EndGone)]);
        assert!(verdicts.failures(&after).is_empty());
        let again =
            view(vec![row(2, 2, given_up(StayReason::Splits.words())), row(3, 1, Some(MoveOutcome::Moved))]);
        assert_eq!(verdicts.failures(&again), [(PairId(2), NodeId(2), MoveFailure::SplitOpen)]);
        let behind = view(vec![row(2, 3, given_up(BEHIND))]);
        assert_eq!(verdicts.failures(&behind), [(PairId(2), NodeId(2), MoveFailure::Behind)]);
    }

    #[test]
    fn what_this_node_has_cancelled_says_nothing_of_the_target() {
        let mut verdicts = Verdicts::default();
        verdicts.failures(&ClusterView::default());
        let own = row(1, 4, Some(MoveOutcome::Cancelled));
        verdicts.cancels(own.name());
        let cancelled = view(vec![own, row(2, 1, Some(MoveOutcome::Cancelled))]);
        assert_eq!(verdicts.failures(&cancelled), [(PairId(2), NodeId(2), MoveFailure::Cancelled)]);
    }

    fn failure(why: &str) -> MoveFailure {
        failure_of(&row(1, 1, Some(MoveOutcome::GivenUp { why: why.to_owned() }))).unwrap()
    }

    fn failure_by(error: NodeError) -> MoveFailure {
        failure(&with_causes(&error))
    }

    /// A disk without room for logs was called a log root that cannot be read.
    #[test]
    fn copy_that_a_full_disk_refuses_is_not_taken_for_one_that_cannot_read_the_logs() {
        assert_eq!(failure_by(NodeError::DiskFull { free: 0, needed: 8_388_608 }), MoveFailure::NoDiskRoom);
        for errno in [Errno::ENOSPC, Errno::EIO] {
            let full = StorageError { operation: DiskOperation::Open, path: "log".into(), errno };
            let wanted = if errno.is_full() { MoveFailure::NoDiskRoom } else { MoveFailure::Unreadable };
            assert_eq!(failure_by(NodeError::Wal(full.into())), wanted);
        }
    }

    #[test]
    fn each_reason_of_an_error_is_what_its_words_say() {
        let log = LogId { pair: PairId(1), epoch: Epoch(3) }.log(RegionKind::Node);
        let (segment, by_log) = (log.segment(1), |error: WalError| failure_by(NodeError::Wal(error)));
        assert_eq!(by_log(WalError::SegmentMissing { segment }), MoveFailure::Unreadable);
        let folder = WalError::FolderMissing { region: PairId(1).node_region(), epoch: Epoch(3) };
        assert_eq!(by_log(folder), MoveFailure::Unreadable);
        assert_eq!(by_log(WalError::Mismatch { pair: PairId(1), epoch: Epoch(3) }), MoveFailure::Unreadable);
        let place = LogPlace { segment, offset: 4_096 };
        let damaged = Corruption { csn: Csn(5), place, damage: Damage::Order, proof: Proof::Sound };
        assert_eq!(by_log(WalError::Corrupt(Box::new(damaged))), MoveFailure::Unreadable);
        assert_eq!(failure_by(NodeError::Recovery(RecoveryError::GivenUp)), MoveFailure::Declined);
    }

    #[test]
    fn each_reason_of_an_end_of_a_move_is_what_its_words_say() {
        for (why, wanted) in [
            (STALLED, MoveFailure::Silence),
            (ROW_UNREADABLE, MoveFailure::Silence),
            (TARGET_ENDED, MoveFailure::EndGone),
            (SOURCE_ENDED, MoveFailure::EndGone),
            (BOTH_ENDED, MoveFailure::EndGone),
            ("its source has ended, and was started again", MoveFailure::EndGone),
            ("incarnation 7 has ended", MoveFailure::EndGone),
            (SOURCE_STOPS, MoveFailure::EndGone),
            (TARGET_STOPS, MoveFailure::EndGone),
            (BEHIND, MoveFailure::Behind),
            ("no memory of 67108864 bytes for the pair", MoveFailure::NoMemory),
            (MEMORY_KEPT, MoveFailure::NoMemory),
            (StayReason::Splits.words(), MoveFailure::SplitOpen),
            // Of its source, and of no log that cannot be read.
            (StayReason::NoLog.words(), MoveFailure::Declined),
            (StayReason::NotServed.words(), MoveFailure::Declined),
            (StayReason::Busy.words(), MoveFailure::Declined),
            ("its target has lost the copy", MoveFailure::Declined),
            ("another node has the pair now", MoveFailure::Declined),
            (cell_cluster::PAIR_CLAIMED, MoveFailure::Declined),
        ] {
            assert_eq!(failure(why), wanted, "{why}");
        }
    }
}
