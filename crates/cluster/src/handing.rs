//! What planned moves change of the region table: the handing, and the way back (`docs/design/moves.md`).

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Epoch, Incarnation};

use crate::attempts::Attempts;
use crate::claim::Ownership;
use crate::coordinator::text;
use crate::error::ClusterError;
use crate::moves::{MoveName, MoveOutcome, MoveRefusal, MoveRow, MoveStage, Moves, as_it_was};
use crate::request::{KeyCondition, Transaction, TransactionOutcome};
use crate::row::{PairRow, PairState};
use crate::table::{Table, unchanged};

/// That a lease lives, which a handing goes by.
fn lives(lease: Incarnation) -> KeyCondition {
    if planted(Mutant::HandingLeaseUnasked) {
        return KeyCondition::LeaseEnded { lease: Incarnation(0) }; // there never was one
    }
    KeyCondition::LeaseAlive { lease }
}

impl Table {
    /// The *handing*: makes the move's target the pair's owner, in the next epoch; the logs of the present
    /// one end at `cut`. Before this the owner has stopped appending and answering for the pair, all that it
    /// appended is durable, and all trust in its registrations has ended: its lease says nothing of the pair
    /// any more.
    ///
    /// After any error an earlier try may be carried out late: see [`Table::put_again`].
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`] of either end; [`MoveRefusal::NotUnderWay`]: the move is over, or its
    /// target has lost its copy; [`ClusterError::Superseded`]: the pair is another's.
    pub fn hand(&self, ownership: Ownership, cut: Csn, name: MoveName) -> Result<PairRow, ClusterError> {
        let Ownership { pair, epoch, incarnation } = ownership;
        let moves = Moves::new(self.coordinator().clone());
        let mut attempts = Attempts::default();
        while attempts.left() {
            let (row, revision) = self.read(pair)?;
            let found = moves.read(pair)?.filter(|(of, _)| of.number == name.number);
            if let Some((of, _)) = &found
                && of.is_handed(&row)
            {
                return Ok(row); // an earlier try, whose answer was lost
            }
            if row.epoch != epoch || row.owner != Some(incarnation) {
                return Err(ClusterError::Superseded { pair, epoch: row.epoch, owner: row.owner });
            }
            let ready = |of: &MoveRow| {
                let is_of_owner = (of.epoch, of.source.incarnation) == (epoch, incarnation);
                is_of_owner && of.is_under_way() && of.stage == MoveStage::Ready
            };
            let Some((of, move_revision)) = found.filter(|(of, _)| ready(of)) else {
                return Err(MoveRefusal::NotUnderWay { pair }.into());
            };
            let handed = handed_row(row, &of, cut)?;
            let target = of.target.incarnation;
            let hand = Transaction::new()
                .when(lives(incarnation))
                .when(lives(target))
                .when(unchanged(pair, revision))
                .when(as_it_was(pair, Some(move_revision)))
                .put(PairRow::key(pair), text(&handed))
                .put(MoveRow::key(pair), text(&MoveRow { stage: MoveStage::Handed, ..of }));
            match self.coordinator().transact(hand) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(handed),
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease: incarnation });
                }
                Ok(TransactionOutcome::Refused { condition: 1 }) => {
                    return Err(ClusterError::LeaseEnded { lease: target });
                }
                Ok(TransactionOutcome::Refused { .. }) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(_)) => attempts.unanswered(),
                Err(error) => return Err(error),
            }
        }
        Err(ClusterError::Contended { what: "a pair that was to be handed over" })
    }

    /// Puts a pair's row again as it is, in its owner's name. Once that has been answered, nothing takes
    /// effect any more that was sent before and is conditional on the row: the pair surely stays with its
    /// owner, who may serve it on. A look at the row would not do:
    ///
    /// 1. the source sends the handing, and gets no answer;
    /// 2. it looks, finds the row as it was, and serves on;
    /// 3. the handing arrives, and is carried out: two serve the pair.
    ///
    /// # Errors
    /// [`ClusterError::Superseded`]: the pair is another's. After any other error it may be.
    pub fn put_again(&self, ownership: Ownership) -> Result<(), ClusterError> {
        let Ownership { pair, epoch, incarnation } = ownership;
        let mut attempts = Attempts::default();
        while attempts.left() {
            let (row, revision) = self.read(pair)?;
            if row.epoch != epoch || row.owner != Some(incarnation) {
                return Err(ClusterError::Superseded { pair, epoch: row.epoch, owner: row.owner });
            }
            if planted(Mutant::ThawByLook) {
                return Ok(());
            }
            let put = Transaction::new()
                .when(KeyCondition::LeaseAlive { lease: incarnation })
                .when(unchanged(pair, revision))
                .put(PairRow::key(pair), text(&row));
            match self.coordinator().transact(put) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(()),
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease: incarnation });
                }
                Ok(TransactionOutcome::Refused { .. }) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(_)) if planted(Mutant::UnansweredBelieved) => return Ok(()),
                Err(ClusterError::OutcomeUnknown(_)) => attempts.unanswered(),
                Err(error) => return Err(error),
            }
        }
        Err(ClusterError::Contended { what: "a pair's row" })
    }

    /// Makes the move's source the pair's owner once more, in the epoch after the target's: the target did
    /// not serve the pair. Written by either end. The source recovers the pair like any that it claims.
    ///
    /// # Errors
    /// [`ClusterError::Superseded`]: the target serves the pair, or it is another's;
    /// [`ClusterError::LeaseEnded`] of the source.
    pub fn take_back(&self, of: &MoveRow, why: &str) -> Result<PairRow, ClusterError> {
        let (pair, target, source) = (of.pair, of.target.incarnation, of.source);
        let moves = Moves::new(self.coordinator().clone());
        let back_epoch = Epoch(of.epoch_of_target().0 + 1);
        let mut attempts = Attempts::default();
        while attempts.left() {
            let (row, revision) = self.read(pair)?;
            if row.epoch == back_epoch && row.owner == Some(source.incarnation) {
                return Ok(row); // an earlier try, or the other end's
            }
            let is_served = row.is_published() && !planted(Mutant::ServedTakenBack);
            if row.epoch != of.epoch_of_target() || row.owner != Some(target) || is_served {
                return Err(ClusterError::Superseded { pair, epoch: row.epoch, owner: row.owner });
            }
            let found = moves.read(pair)?.filter(|(found, _)| found.number == of.number);
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
                transaction = transaction
                    .when(as_it_was(pair, Some(move_revision)))
                    .put(MoveRow::key(pair), text(&MoveRow { outcome, ..found }));
            }
            match self.coordinator().transact(transaction) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(back),
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease: source.incarnation });
                }
                Ok(TransactionOutcome::Refused { .. }) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(_)) => attempts.unanswered(),
                Err(error) => return Err(error),
            }
        }
        Err(ClusterError::Contended { what: "a pair that was to go back" })
    }
}

/// What the pair's row becomes by the handing.
fn handed_row(row: PairRow, of: &MoveRow, cut: Csn) -> Result<PairRow, ClusterError> {
    let mut handed = row;
    let served = handed.history.iter_mut().find(|served| served.epoch == of.epoch);
    served.ok_or(ClusterError::State { pair: of.pair })?.cut = Some(cut);
    handed.epoch = of.epoch_of_target();
    handed.owner = Some(of.target.incarnation);
    handed.node = of.target.node;
    handed.host = of.target.host;
    handed.state = PairState::Recovering;
    handed.place = None;
    Ok(handed)
}
