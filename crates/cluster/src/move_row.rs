//! The row of a planned move (`docs/design/moves.md`): one a pair, which says who gives it to whom, and how
//! far that is. A row that is over stays, so that people see what became of the move, until the next move of
//! the pair takes its place.

use cell_terms::{Epoch, Incarnation, NodeId, PairId};
use serde::{Deserialize, Serialize};

use crate::drain_row::DrainRow;
use crate::host::HostId;
use crate::move_stage::{MoveStage, MoveTimes};
use crate::number;
use crate::row::PairRow;

/// Why a move came to nothing whose pair another node has.
pub const PAIR_CLAIMED: &str = "another node has claimed the pair";
/// Why one did whose source's node has the pair, in its next life.
const SOURCE_RESTARTED: &str = "its source has ended, and was started again";
/// Why one did whose source recovers the pair itself.
const SOURCE_CLAIMED: &str = "its source has claimed the pair anew";
/// Why a pair is its source's node's once more that claimed it after the handing.
const NOT_SERVED: &str = "its target did not serve it";

/// Under which the moves' rows lie.
pub(crate) const KEY_MOVES: &str = "move/";

/// One move among those of its pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MoveName {
    /// The pair.
    pub pair: PairId,
    /// Counts the pair's moves, from 1.
    pub number: u64,
}

/// One end of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveSide {
    /// The process.
    #[serde(with = "number")]
    pub incarnation: Incarnation,
    /// Its node.
    #[serde(with = "number")]
    pub node: NodeId,
    /// Its host; none where it is not known, or not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostId>,
}

/// In whose name a pair is moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveMotive {
    /// An operator asked for it.
    #[default]
    Operator,
    /// Its node drains.
    Drain,
    /// For balance.
    Balance,
    /// It was made for another node.
    Fresh,
}

impl MoveMotive {
    /// The cause in one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            MoveMotive::Operator => "operator",
            MoveMotive::Drain => "drain",
            MoveMotive::Balance => "balance",
            MoveMotive::Fresh => "fresh",
        }
    }

    fn is_operator(&self) -> bool {
        *self == MoveMotive::Operator
    }
}

/// What became of a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveOutcome {
    /// The target serves the pair.
    Moved,
    /// Somebody wanted it no more.
    Cancelled,
    /// An end of it could not go on before the handing: the pair stays with the source, or whoever takes it
    /// over has it. After the handing: its target did not serve the pair, and neither end's node has it.
    GivenUp {
        /// Why.
        why: String,
    },
    /// The target did not serve the pair after the handing: the source recovers it.
    Back {
        /// Why.
        why: String,
    },
}

/// A move, or the last one of a pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRow {
    /// The pair.
    #[serde(with = "number")]
    pub pair: PairId,
    /// Counts the pair's moves.
    pub number: u64,
    /// The source's epoch. The handing makes the next one the target's.
    #[serde(with = "number")]
    pub epoch: Epoch,
    /// Who has the pair.
    pub source: MoveSide,
    /// Who is to have it.
    pub target: MoveSide,
    /// Who wanted it, and why.
    pub why: String,
    /// In whose name.
    #[serde(default, skip_serializing_if = "MoveMotive::is_operator")]
    pub cause: MoveMotive,
    /// How far it is.
    pub stage: MoveStage,
    /// Bytes of image and logs that the target has read.
    pub bytes_done: u64,
    /// Bytes of image and logs that it has to read, as far as it knows: of a file that is still being
    /// written, what it has read. Once it is ready that is all that it has read.
    pub bytes_total: u64,
    /// Entries of the copy that the target has checked: where nothing is written to the pair, that alone
    /// says that its check goes on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub checked: u64,
    /// What became of it; none while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<MoveOutcome>,
    /// Who cancelled it, if somebody did and said who.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<String>,
    /// When it came how far.
    #[serde(default, skip_serializing_if = "MoveTimes::are_unknown")]
    pub times: MoveTimes,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's way to ask")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl MoveRow {
    /// The row's key.
    #[must_use]
    pub fn key(pair: PairId) -> String {
        format!("{KEY_MOVES}{:08}", pair.0)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> MoveName {
        MoveName { pair: self.pair, number: self.number }
    }

    /// Whether it is under way.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.outcome.is_none()
    }

    /// How far it is: the same again as long as nothing happens.
    #[must_use]
    pub fn progress(&self) -> (MoveStage, u64, u64) {
        (self.stage, self.bytes_done, self.checked)
    }

    /// The epoch in which the target has the pair.
    #[must_use]
    pub fn epoch_of_target(&self) -> Epoch {
        Epoch(self.epoch.0 + 1)
    }

    /// The names of all that a look at a move shows, but for how far it is: others where it is another move,
    /// or would be.
    #[must_use]
    pub fn revision(&self) -> String {
        let MoveRow { pair, number, epoch, source, target, .. } = self;
        format!("{}.{number}.{}.{}.{}", pair.0, epoch.0, source.incarnation.0, target.incarnation.0)
    }

    /// Whether it is the move that was started with the row `wanted`, however far it is by now: it has its
    /// number and its ends, the words and the moment of who wanted it. Of two that agree in all of that one
    /// is started, and either is what both wanted.
    #[must_use]
    pub fn began_as(&self, wanted: &MoveRow) -> bool {
        let author = |row: &MoveRow| (row.cause, row.times.wanted_ms);
        self.revision() == wanted.revision() && self.why == wanted.why && author(self) == author(wanted)
    }

    /// Whether a pair's row shows this move's handing, published or not.
    #[must_use]
    pub fn is_handed(&self, row: &PairRow) -> bool {
        let cut = row.history.iter().find(|old| old.epoch == self.epoch).and_then(|old| old.cut);
        let is_targets = row.epoch == self.epoch_of_target() && row.owner == Some(self.target.incarnation);
        // Once it is published, a checkpoint may have dropped the source's epoch.
        is_targets && (cut.is_some() || row.is_published())
    }

    /// Whether its pair may still come to a node that does not have it by its row: it is on its way there, or
    /// the node has handed it over, and it is not served yet and may go back: nothing goes back to a source
    /// that has died.
    #[must_use]
    pub fn may_come(&self, node: NodeId, row: &PairRow, lives: &impl Fn(Incarnation) -> bool) -> bool {
        let is_to_come = self.target.node == node && row.epoch == self.epoch;
        let is_unserved = || self.is_handed(row) && !row.is_published();
        let may_go_back = || self.source.node == node && is_unserved() && lives(self.source.incarnation);
        self.is_under_way() && row.node != node && (is_to_come || may_go_back())
    }

    /// What has become of a move by what the pair's row shows, whatever its ends know of it: its target
    /// serves the pair, or did, or another has it. Nothing of such a move is left to be done but to say so
    /// in its row. None: that is not decided yet.
    ///
    /// Where the target had not served it, the pair is by the node that has it now: the target's, in its next
    /// life, say.
    ///
    /// A later owner's checkpoint drops the epochs before it from the pair's row. Whether the target had
    /// served the pair cannot be known then; as its source has handed it over, that is no failure.
    #[must_use]
    pub fn verdict(&self, row: &PairRow) -> Option<MoveOutcome> {
        let of_target = self.epoch_of_target();
        let was_served = row.history.iter().any(|served| served.epoch == of_target);
        let is_dropped = row.history.first().is_some_and(|oldest| oldest.epoch > of_target);
        if self.stage == MoveStage::Handed && (was_served || is_dropped) {
            return Some(MoveOutcome::Moved);
        }
        let is_anothers = row.epoch > self.epoch && !self.is_handed(row);
        is_anothers.then(|| self.claimed(row))
    }

    /// What becomes of it whose pair was claimed in a later epoch than its own, and not served by its target.
    fn claimed(&self, row: &PairRow) -> MoveOutcome {
        let is_handed = self.stage == MoveStage::Handed && row.owner.is_some();
        if is_handed && row.node == self.target.node {
            return MoveOutcome::Moved;
        }
        if is_handed && row.node == self.source.node {
            return MoveOutcome::Back { why: NOT_SERVED.to_owned() };
        }
        MoveOutcome::GivenUp { why: self.why_claimed(row).to_owned() }
    }

    /// Why it comes to nothing, of a pair that was claimed in a later epoch than its own.
    #[must_use]
    pub fn why_claimed(&self, row: &PairRow) -> &'static str {
        match row.owner.filter(|_| row.node == self.source.node) {
            Some(owner) if owner == self.source.incarnation => SOURCE_CLAIMED,
            Some(_) => SOURCE_RESTARTED,
            None => PAIR_CLAIMED,
        }
    }
}

/// How far a target's copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyProgress {
    /// Bytes of image and logs that were read.
    pub bytes_done: u64,
    /// Bytes of image and logs that have to be read, as far as that is known.
    pub bytes_total: u64,
    /// Entries that were checked.
    pub checked: u64,
    /// Whether the source may hand the pair over.
    pub is_ready: bool,
    /// The target's host, if it is known.
    pub host: Option<HostId>,
}

/// Why a move is not started, or not ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MoveRefusal {
    /// Nobody serves it.
    #[error("{pair} is not served just now: wait until it is, and ask again")]
    NotServed {
        /// The pair.
        pair: PairId,
    },
    /// A move to its owner.
    #[error("{node} has {pair} already")]
    AlreadyThere {
        /// The pair.
        pair: PairId,
        /// Its owner's node.
        node: NodeId,
    },
    /// A move to a node that is to be emptied.
    #[error("{node} is to be emptied (it drains): it gets no pairs")]
    TargetDrains {
        /// The node.
        node: NodeId,
    },
    /// A move to a node that was removed, and may still run.
    #[error("{node} was removed from the cluster for good: it gets no pairs")]
    TargetRemoved {
        /// The node.
        node: NodeId,
    },
    /// A move without a log would lose all.
    #[error("{pair} has no log (`durability = none`): what it holds would be lost on the way")]
    NoLog {
        /// The pair.
        pair: PairId,
    },
    /// Who wanted it balances no more, or has started a move since.
    #[error("another node balances now, or a move was started since this one was decided")]
    NotBalancer,
    /// Another move of the pair.
    #[error("{pair} is on its way from {from} to {to}: wait for that, or cancel it first")]
    UnderWay {
        /// The pair.
        pair: PairId,
        /// From where.
        from: NodeId,
        /// To where.
        to: NodeId,
    },
    /// It was to be done as it was shown, and would be another move by now.
    #[error("{pair} is not where it was any more, or has moved since: look at it again, and decide anew")]
    Changed {
        /// The pair.
        pair: PairId,
    },
    /// There is no such move, or it is over.
    #[error("no move of {pair} is under way")]
    NotUnderWay {
        /// The pair.
        pair: PairId,
    },
    /// Too late to cancel it.
    #[error("{pair} has been handed over to {to}, which serves it in a moment: move it back if need be")]
    HandedOver {
        /// The pair.
        pair: PairId,
        /// To where.
        to: NodeId,
    },
}

impl MoveRefusal {
    /// Of a move to the node of this row.
    pub(crate) fn by_drain(drain: &DrainRow) -> MoveRefusal {
        let node = drain.node;
        if drain.removed { MoveRefusal::TargetRemoved { node } } else { MoveRefusal::TargetDrains { node } }
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::Durability;

    use super::*;
    use crate::pairs_left::pairs_left;
    use crate::row::{EpochRow, PairGeometry, PairState};

    /// A move of pair 3 from node 0 to node 1.
    fn move_row(stage: MoveStage) -> MoveRow {
        let side = |incarnation, node| MoveSide {
            incarnation: Incarnation(incarnation),
            node: NodeId(node),
            host: None,
        };
        MoveRow {
            pair: PairId(3),
            number: 1,
            epoch: Epoch(5),
            source: side(8, 0),
            target: side(9, 1),
            why: "test".to_owned(),
            cause: MoveMotive::Operator,
            stage,
            bytes_done: 0,
            bytes_total: 0,
            checked: 0,
            outcome: None,
            cancelled_by: None,
            times: MoveTimes::default(),
        }
    }

    /// The pair's row in this epoch, of this owner; nobody has published it since the source.
    fn pair_row(epoch: u32, node: u32, owner: Option<u64>) -> PairRow {
        let pair = PairId(3);
        PairRow {
            pair,
            node_region: pair.node_region(),
            extent_region: pair.extent_region(),
            owner: owner.map(Incarnation),
            node: NodeId(node),
            served_by: None,
            host: None,
            epoch: Epoch(epoch),
            state: PairState::Recovering,
            place: None,
            geometry: PairGeometry {
                node_region_bytes: 1,
                extent_region_bytes: 1,
                slot_bytes: 1,
                node_bytes: 1,
            },
            history: vec![EpochRow { epoch: Epoch(5), durability: Durability::Sync, cut: None }],
            checkpoint: None,
            trusted: Vec::new(),
            findings: Vec::new(),
            refuted: Vec::new(),
        }
    }

    fn given_up(why: &str) -> Option<MoveOutcome> {
        Some(MoveOutcome::GivenUp { why: why.to_owned() })
    }

    /// "Another node has claimed the pair" was said of its source's own node, which had been started again.
    #[test]
    fn move_whose_source_was_started_again_says_so() {
        let of = move_row(MoveStage::Copying);
        assert_eq!(of.verdict(&pair_row(5, 0, Some(8))), None);
        assert_eq!(of.verdict(&pair_row(6, 0, Some(70))), given_up(SOURCE_RESTARTED));
        assert_eq!(of.verdict(&pair_row(6, 0, Some(8))), given_up(SOURCE_CLAIMED));
        assert_eq!(of.verdict(&pair_row(6, 2, Some(71))), given_up(PAIR_CLAIMED));
        assert_eq!(of.verdict(&pair_row(6, 1, Some(9))), given_up(PAIR_CLAIMED), "without a handing");
    }

    /// A node was called empty that had a pair a moment later.
    #[test]
    fn pair_may_come_to_its_target_until_the_handing_and_back_to_its_source_until_it_is_served() {
        let left = |of: &MoveRow, row: &PairRow, dead: u64| {
            let (pairs, moves) = (std::slice::from_ref(row), std::slice::from_ref(of));
            [0, 1, 2].map(|node| pairs_left(NodeId(node), pairs, moves, |of| of != Incarnation(dead)))
        };
        let may_come = |of: &MoveRow, row: &PairRow| left(of, row, 0);
        let (mut of, served) = (move_row(MoveStage::Copying), pair_row(5, 0, Some(8)));
        assert_eq!(may_come(&of, &served), [1, 1, 0], "node 0 has it");
        of.stage = MoveStage::Handed;
        let mut handed = pair_row(6, 1, Some(9));
        handed.history[0].cut = Some(cell_terms::Csn(7));
        assert_eq!(may_come(&of, &handed), [1, 1, 0], "node 1 has it");
        assert_eq!(left(&of, &handed, 8), [0, 1, 0], "its source has died");
        handed.history.push(EpochRow { epoch: Epoch(6), durability: Durability::Sync, cut: None });
        assert_eq!(may_come(&of, &handed), [0, 1, 0]);
        of.outcome = Some(MoveOutcome::Cancelled);
        assert_eq!(may_come(&of, &served), [1, 0, 0]);
    }

    /// All of these were given up, though the target's node had the pair, or the source's.
    #[test]
    fn move_that_was_handed_over_is_by_the_node_that_has_the_pair() {
        let of = move_row(MoveStage::Handed);
        let back = Some(MoveOutcome::Back { why: NOT_SERVED.to_owned() });
        assert_eq!(of.verdict(&pair_row(7, 1, Some(90))), Some(MoveOutcome::Moved), "its next life");
        assert_eq!(of.verdict(&pair_row(7, 1, Some(9))), Some(MoveOutcome::Moved), "it recovers the pair");
        assert_eq!(of.verdict(&pair_row(7, 0, Some(8))), back);
        assert_eq!(of.verdict(&pair_row(7, 0, Some(80))), back, "its next life");
        assert_eq!(of.verdict(&pair_row(7, 2, Some(71))), given_up(PAIR_CLAIMED));
        assert_eq!(of.verdict(&pair_row(7, 1, None)), given_up(PAIR_CLAIMED), "nobody has it");
    }
}
