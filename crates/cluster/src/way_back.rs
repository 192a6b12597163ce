//! The way back of a planned move: a pair that was handed over, and that its target does not serve, becomes
//! its source's once more (`docs/design/moves.md`, "Handed and not published: back").

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Epoch, Incarnation};

use crate::attempts::Attempts;
use crate::coordinator::text;
use crate::error::ClusterError;
use crate::move_row::{MoveOutcome, MoveRow};
use crate::moves::{Moves, as_it_was};
use crate::request::{KeyCondition, Transaction, TransactionOutcome};
use crate::row::{PairRow, PairState};
use crate::table::{Table, unchanged};

/// A pair that is its source's once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenBack {
    /// Its row, in the epoch after the target's.
    pub row: PairRow,
    /// A write of this very call made it so, and was answered: at that moment the row showed the handing,
    /// unpublished. Of a row that was only looked at, nobody knows who has had the pair since.
    pub is_own: bool,
}

impl Table {
    /// Makes the move's source the pair's owner once more, in the epoch after the target's: the target did
    /// not serve the pair. Written by either end. The source recovers the pair like any that it claims,
    /// unless it has kept its memory and [`TakenBack::is_own`].
    ///
    /// # Errors
    /// [`ClusterError::Superseded`]: the target serves the pair, or it is another's;
    /// [`ClusterError::LeaseEnded`] of the source.
    pub fn take_back(&self, of: &MoveRow, why: &str) -> Result<TakenBack, ClusterError> {
        let (pair, target, source) = (of.pair, of.target.incarnation, of.source);
        let moves = Moves::new(self.coordinator().clone());
        let back_epoch = Epoch(of.epoch_of_target().0 + 1);
        let mut attempts = Attempts::default();
        while attempts.left() {
            let (row, revision) = self.read(pair)?;
            if row.epoch == back_epoch && row.owner == Some(source.incarnation) {
                // An earlier try, or the other end's.
                return Ok(TakenBack { row, is_own: planted(Mutant::ThawOnALook) });
            }
            let is_served = row.is_published() && !planted(Mutant::ServedTakenBack);
            if row.epoch != of.epoch_of_target() || row.owner != Some(target) || is_served {
                return Err(ClusterError::Superseded { pair, epoch: row.epoch, owner: row.owner });
            }
            let found = match moves.read(pair) {
                // Whose the pair is does not depend on a move's row that does not read: that stays as it is.
                Err(ClusterError::Unreadable { .. }) => None,
                found => found?.filter(|(found, _)| found.number == of.number),
            };
            let back = PairRow {
                epoch: back_epoch,
                owner: Some(source.incarnation),
                node: source.node,
                host: source.host,
                state: PairState::Recovering,
                place: None,
                ..row
            };
            let is_unchanged = match planted(Mutant::BackOutrun) {
                true => KeyCondition::LeaseEnded { lease: Incarnation(0) }, // there never was one
                false => unchanged(pair, revision),
            };
            let mut transaction = Transaction::new()
                .when(KeyCondition::LeaseAlive { lease: source.incarnation })
                .when(is_unchanged)
                .put(PairRow::key(pair), text(&back));
            if let Some((found, move_revision)) = found {
                let outcome = Some(MoveOutcome::Back { why: why.to_owned() });
                let mut over = MoveRow { outcome, ..found };
                over.times.note_end(self.dates().at_ms);
                transaction = transaction
                    .when(as_it_was(pair, Some(move_revision)))
                    .put(MoveRow::key(pair), text(&over));
            }
            match self.coordinator().transact(transaction) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(TakenBack { row: back, is_own: true }),
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease: source.incarnation });
                }
                Ok(TransactionOutcome::Refused { .. }) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(error)) => attempts.unanswered(&error),
                Err(error) => return Err(error),
            }
        }
        Err(attempts.given_up("a pair that was to go back"))
    }
}
