//! What became of moves: those that came to nothing are not tried again at once.

use std::collections::BTreeMap;

use cell_cluster::{ClusterView, MoveName, MoveOutcome, MoveRow};
use cell_placement::MoveFailure;
use cell_terms::{NodeId, PairId};

use crate::command::StayReason;
use crate::moves::BEHIND;

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
    let says = |words: &str| why.contains(words);
    Some(if says(StayReason::Splits.words()) {
        MoveFailure::SplitOpen
    } else if says(BEHIND) {
        MoveFailure::Behind
    } else if says("memory") {
        MoveFailure::NoMemory
    } else if says("for a minute") {
        MoveFailure::Silence
    } else if says("has ended") || says("stops") {
        MoveFailure::EndGone
    } else if says("log") || says("image") || says("file") {
        MoveFailure::Unreadable
    } else {
        MoveFailure::Declined
    })
}

#[cfg(test)]
mod tests {
    use cell_cluster::{MoveMotive, MoveSide, MoveStage, MoveTimes};
    use cell_terms::{Epoch, Incarnation};

    use super::*;

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
        let after = view(vec![row(1, 1, given_up("no memory")), row(2, 1, given_up("its source has ended"))]);
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
}
