//! Planned moves of pairs (`docs/design/moves.md`): how a move's row is written, and what moves change of the
//! region table.
//!
//! The row is the agreement of three parties. An operator writes it, or ends it; the source says that it
//! keeps the log; the target says how far its copy is. The *handing* is one transaction of the source: it
//! makes the target the pair's owner, in the next epoch, and is conditional on the pair's row, on the move's
//! row, and on both leases. So whoever ends the move's row before has cancelled the move.

use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Durability, Incarnation, PairId};

use crate::attempts::Attempts;
use crate::balance::SeatSeen;
use crate::claim::Ownership;
use crate::coordinator::{Coordinator, parse, readable, text};
use crate::drain_look::drain_of;
use crate::error::ClusterError;
use crate::member::MemberRow;
use crate::move_row::{
    CopyProgress, KEY_MOVES, MoveMotive, MoveName, MoveOutcome, MoveRefusal, MoveRow, MoveSide,
};
use crate::move_stage::{MoveStage, MoveTimes};
use crate::request::{KeyCondition, Revision, Transaction, TransactionOutcome};
use crate::row::{PairRow, PairState};
use crate::table::{Table, unchanged};

/// A move that the balancer wants.
#[derive(Clone, Copy, Debug)]
pub struct BalancerWish<'a> {
    /// In whose name.
    pub cause: MoveMotive,
    /// Why, for people.
    pub why: &'a str,
    /// The balancer's seat, as it was when the move was decided.
    pub seat: &'a SeatSeen,
}

/// A row that was written, and the answer was lost.
struct Unanswered {
    row: MoveRow,
    error: io::Error,
}

/// What failed, or that an earlier try of unknown outcome may have been carried out.
fn unanswered_or(unanswered: Option<Unanswered>, error: ClusterError) -> ClusterError {
    match unanswered {
        Some(tried) if error.is_transient() => ClusterError::OutcomeUnknown(tried.error),
        _ => error,
    }
}

/// Both ends live (conditions 0 and 1), nothing that the row was made from has changed, and the balancer, if
/// it asks, has its seat still (the last condition).
fn beginning(row: &MoveRow, conditions: [KeyCondition; 3], wish: Option<&BalancerWish<'_>>) -> Transaction {
    let ends = [&row.source, &row.target];
    let live = ends.map(|end| KeyCondition::LeaseAlive { lease: end.incarnation });
    let begin = live.into_iter().chain(conditions).fold(Transaction::new(), Transaction::when);
    let begin = begin.put(MoveRow::key(row.pair), text(row));
    let Some(wish) = wish else { return begin };
    let begin = if planted(Mutant::BalancerUnasked) { begin } else { begin.when(wish.seat.unchanged()) };
    wish.seat.count_move(begin)
}

/// What a look shows of a try to begin a move whose answer was lost.
enum Fate {
    /// It was carried out: the move's row as it is by now.
    Started(Box<MoveRow>),
    /// It never will be: another's move has its number.
    Never,
    /// It may still be carried out.
    Open,
    /// Another move has started since, and this one may have been one of those before it.
    Unknown,
}

/// The moves. Clones share the coordinator.
#[derive(Clone)]
pub struct Moves {
    coordinator: Arc<dyn Coordinator>,
    at_ms: u64,
}

impl Moves {
    /// The moves that `coordinator` holds.
    #[must_use]
    pub fn new(coordinator: Arc<dyn Coordinator>) -> Moves {
        Moves { coordinator, at_ms: 0 }
    }

    /// The same moves; what is written of them from here on happens at this time ([`MoveTimes`]).
    #[must_use]
    pub fn at(self, at_ms: u64) -> Moves {
        Moves { at_ms, ..self }
    }

    /// The move of a pair that is under way, or was the last one.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn of(&self, pair: PairId) -> Result<Option<MoveRow>, ClusterError> {
        Ok(self.read(pair)?.map(|(row, _)| row))
    }

    /// All of them, by pair.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn list(&self) -> Result<Vec<MoveRow>, ClusterError> {
        let listing = self.coordinator.list(KEY_MOVES)?;
        Ok(readable("a move", &listing.entries).collect())
    }

    /// What [`Moves::begin`] would write now.
    ///
    /// # Errors
    /// As there.
    pub fn plan(&self, pair: PairId, target: &MemberRow, why: &str) -> Result<MoveRow, ClusterError> {
        Ok(self.plan_with(pair, target, why)?.0)
    }

    /// Asks for a move of a pair, by its owner, to a member: nothing of the pair changes by that. The row is
    /// the move's as it is by now: further, or even over, if an answer was lost.
    ///
    /// # Errors
    /// [`MoveRefusal`]; [`ClusterError::PairUnknown`]; [`ClusterError::LeaseEnded`] of either end;
    /// [`ClusterError::OutcomeUnknown`]: whether this call has started a move cannot be known.
    pub fn begin(&self, pair: PairId, target: &MemberRow, why: &str) -> Result<MoveRow, ClusterError> {
        self.begin_if(pair, target, why, None, None)
    }

    /// The same, if it is what was seen to be planned: the [`MoveRow::revision`] of that. A refusal says that
    /// no try of this call has started a move.
    ///
    /// # Errors
    /// As there; [`MoveRefusal::Changed`].
    pub fn begin_as_seen(
        &self,
        pair: PairId,
        target: &MemberRow,
        why: &str,
        seen: Option<&str>,
    ) -> Result<MoveRow, ClusterError> {
        self.begin_if(pair, target, why, seen, None)
    }

    /// The same for the balancer: conditional on its seat as it was when it decided, which counts the move.
    /// So of two moves that were decided from one seat one is started at most.
    ///
    /// # Errors
    /// As of [`Moves::begin`]; [`MoveRefusal::NotBalancer`].
    pub fn begin_as(
        &self,
        pair: PairId,
        target: &MemberRow,
        wish: &BalancerWish<'_>,
    ) -> Result<MoveRow, ClusterError> {
        self.begin_if(pair, target, wish.why, None, Some(wish))
    }

    fn begin_if(
        &self,
        pair: PairId,
        target: &MemberRow,
        why: &str,
        seen: Option<&str>,
        wish: Option<&BalancerWish<'_>>,
    ) -> Result<MoveRow, ClusterError> {
        let mut attempts = Attempts::default();
        let mut unanswered: Option<Unanswered> = None;
        while attempts.left() {
            // Planned first: a try that is carried out after this look has left its row by the next one.
            let planned = self.plan_with(pair, target, why);
            if let Some(tried) = unanswered.take() {
                match self.fate(&tried.row) {
                    Ok(Fate::Started(row)) => return Ok(*row),
                    Ok(Fate::Never) => {}
                    Ok(Fate::Open) => unanswered = Some(tried),
                    Ok(Fate::Unknown) | Err(_) => return Err(ClusterError::OutcomeUnknown(tried.error)),
                }
            }
            let (row, conditions) = match planned {
                Ok(planned) => planned,
                Err(error) => return Err(unanswered_or(unanswered, error)),
            };
            if seen.is_some_and(|seen| seen != row.revision()) {
                return Err(MoveRefusal::Changed { pair }.into());
            }
            let row = MoveRow { cause: wish.map_or(MoveMotive::Operator, |wish| wish.cause), ..row };
            let begin = beginning(&row, conditions, wish);
            let last_condition = begin.conditions.len() - 1;
            match self.coordinator.transact(begin) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(row),
                Ok(TransactionOutcome::Refused { condition: at @ 0..2 }) => {
                    let lease = [row.source, row.target][at].incarnation;
                    return Err(ClusterError::LeaseEnded { lease });
                }
                // The seat is as it was no more: an earlier try is as little carried out from now on.
                Ok(TransactionOutcome::Refused { condition })
                    if wish.is_some() && condition == last_condition =>
                {
                    return match unanswered.map(|tried| self.fate(&tried.row)).transpose()? {
                        Some(Fate::Started(row)) => Ok(*row),
                        _ => Err(MoveRefusal::NotBalancer.into()),
                    };
                }
                Ok(TransactionOutcome::Refused { .. }) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(error)) => {
                    attempts.unanswered(&error);
                    unanswered = Some(Unanswered { row, error });
                }
                Err(error) => return Err(unanswered_or(unanswered, error)),
            }
        }
        Err(match unanswered {
            Some(tried) => ClusterError::OutcomeUnknown(tried.error),
            None => ClusterError::Contended { what: "a move that was to begin" },
        })
    }

    /// What has become of a try whose answer was lost. Its transaction is conditional on the row of the move
    /// before it: once another move has its number, it is refused.
    fn fate(&self, tried: &MoveRow) -> Result<Fate, ClusterError> {
        let Some((row, _)) = self.read(tried.pair)? else { return Ok(Fate::Open) };
        Ok(match row.number.cmp(&tried.number) {
            Ordering::Equal if row.began_as(tried) => Fate::Started(Box::new(row)),
            Ordering::Equal => Fate::Never,
            Ordering::Less => Fate::Open,
            Ordering::Greater => Fate::Unknown,
        })
    }

    /// The row, and that all is still so that it was made from: the pair's row, the earlier move's, and that
    /// the target does not drain.
    fn plan_with(
        &self,
        pair: PairId,
        target: &MemberRow,
        why: &str,
    ) -> Result<(MoveRow, [KeyCondition; 3]), ClusterError> {
        let entry = self.coordinator.read(&PairRow::key(pair))?.ok_or(ClusterError::PairUnknown { pair })?;
        let row: PairRow = parse("a row of the region table", &entry.value)?;
        let serves = row.state == PairState::Serving && row.is_published();
        let owner = row.owner.filter(|_| serves).ok_or(MoveRefusal::NotServed { pair })?;
        if row.node == target.node {
            return Err(MoveRefusal::AlreadyThere { pair, node: row.node }.into());
        }
        if row.history.last().is_some_and(|served| served.durability == Durability::None) {
            return Err(MoveRefusal::NoLog { pair }.into());
        }
        let (drain, drain_unchanged) = drain_of(&*self.coordinator, target.node)?;
        if let Some(drain) = drain {
            return Err(MoveRefusal::by_drain(&drain).into());
        }
        let drain_unchanged = match planted(Mutant::MoveToDrain) {
            true => KeyCondition::LeaseEnded { lease: Incarnation(0) }, // there never was one
            false => drain_unchanged,
        };
        let earlier = self.read(pair)?;
        if let Some((earlier, _)) = &earlier
            && earlier.is_under_way()
            && earlier.epoch == row.epoch
        {
            // An end that is dead has cancelled it.
            let ends = [earlier.source.incarnation, earlier.target.incarnation];
            let mut live = true;
            for end in ends {
                live &= self.coordinator.remaining_ns(end)?.is_some();
            }
            if live {
                let (from, to) = (earlier.source.node, earlier.target.node);
                return Err(MoveRefusal::UnderWay { pair, from, to }.into());
            }
        }
        let wanted = MoveRow {
            pair,
            number: earlier.as_ref().map_or(0, |(earlier, _)| earlier.number) + 1,
            epoch: row.epoch,
            source: MoveSide { incarnation: owner, node: row.node, host: row.host },
            target: MoveSide { incarnation: target.incarnation, node: target.node, host: None },
            why: why.to_owned(),
            cause: MoveMotive::Operator,
            stage: MoveStage::Wanted,
            bytes_done: 0,
            bytes_total: 0,
            checked: 0,
            outcome: None,
            cancelled_by: None,
            times: MoveTimes::wanted(self.at_ms),
        };
        let earlier = as_it_was(pair, earlier.map(|(_, revision)| revision));
        Ok((wanted, [unchanged(pair, entry.revision), earlier, drain_unchanged]))
    }

    /// The source keeps image and log from here on: the target may copy.
    ///
    /// # Errors
    /// [`MoveRefusal::NotUnderWay`].
    pub fn accept(&self, name: MoveName) -> Result<MoveRow, ClusterError> {
        self.change(name, |row| {
            row.stage = row.stage.max(MoveStage::Copying);
            row.times.note_stage(MoveStage::Copying, self.at_ms);
            Ok(())
        })
    }

    /// How far the target's copy is.
    ///
    /// # Errors
    /// [`MoveRefusal::NotUnderWay`].
    pub fn progress(&self, name: MoveName, copy: &CopyProgress) -> Result<MoveRow, ClusterError> {
        self.change(name, |row| {
            if row.stage == MoveStage::Handed {
                return Ok(()); // too late for news
            }
            (row.bytes_done, row.bytes_total) = (copy.bytes_done, copy.bytes_total);
            row.checked = copy.checked;
            row.target.host = copy.host;
            let stage = if copy.is_ready { MoveStage::Ready } else { MoveStage::Copying };
            if row.stage != stage {
                row.times.note_stage(stage, self.at_ms);
            }
            row.stage = stage;
            Ok(())
        })
    }

    /// Ends a move of which nothing is handed over yet.
    ///
    /// # Errors
    /// [`MoveRefusal::HandedOver`], [`MoveRefusal::NotUnderWay`].
    pub fn end(&self, name: MoveName, outcome: &MoveOutcome) -> Result<MoveRow, ClusterError> {
        self.end_by(name, outcome, None)
    }

    /// Cancels a move of which nothing is handed over yet, in somebody's name.
    ///
    /// # Errors
    /// As [`Moves::end`].
    pub fn cancel(&self, name: MoveName, by: &str) -> Result<MoveRow, ClusterError> {
        self.end_by(name, &MoveOutcome::Cancelled, Some(by))
    }

    fn end_by(
        &self,
        name: MoveName,
        outcome: &MoveOutcome,
        by: Option<&str>,
    ) -> Result<MoveRow, ClusterError> {
        self.change(name, |row| {
            if row.stage == MoveStage::Handed {
                return Err(MoveRefusal::HandedOver { pair: row.pair, to: row.target.node }.into());
            }
            row.outcome = Some(outcome.clone());
            row.cancelled_by = by.map(str::to_owned);
            row.times.note_end(self.at_ms);
            Ok(())
        })
    }

    /// Notes what has become of a move that was handed over.
    ///
    /// # Errors
    /// [`MoveRefusal::NotUnderWay`].
    pub fn close(&self, name: MoveName, outcome: &MoveOutcome) -> Result<MoveRow, ClusterError> {
        self.change(name, |row| {
            row.outcome = Some(outcome.clone());
            row.times.note_end(self.at_ms);
            Ok(())
        })
    }

    pub(crate) fn read(&self, pair: PairId) -> Result<Option<(MoveRow, Revision)>, ClusterError> {
        let entry = self.coordinator.read(&MoveRow::key(pair))?;
        entry.map(|entry| Ok((parse_move(&entry.value)?, entry.revision))).transpose()
    }

    /// Edits a row, unless it is of another move or over.
    fn change(
        &self,
        name: MoveName,
        edit: impl Fn(&mut MoveRow) -> Result<(), ClusterError>,
    ) -> Result<MoveRow, ClusterError> {
        let pair = name.pair;
        let mut attempts = Attempts::default();
        let mut tried: Option<Unanswered> = None;
        while attempts.left() {
            let found = match self.read(pair) {
                Ok(found) => found.filter(|(row, _)| row.number == name.number),
                Err(error) => return Err(unanswered_or(tried, error)),
            };
            let Some((row, revision)) = found else {
                return Err(match tried {
                    Some(tried) => ClusterError::OutcomeUnknown(tried.error), // another move took its place
                    None => MoveRefusal::NotUnderWay { pair }.into(),
                });
            };
            if tried.as_ref().is_some_and(|tried| tried.row == row) {
                return Ok(row); // the earlier try, whose answer was lost
            }
            if !row.is_under_way() {
                return Err(MoveRefusal::NotUnderWay { pair }.into());
            }
            let mut changed = row.clone();
            edit(&mut changed)?;
            if changed == row {
                return Ok(row);
            }
            let change = Transaction::new()
                .when(as_it_was(pair, Some(revision)))
                .put(MoveRow::key(pair), text(&changed));
            match self.coordinator.transact(change) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(changed),
                Ok(TransactionOutcome::Refused { .. }) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(error)) => {
                    attempts.unanswered(&error);
                    tried = Some(Unanswered { row: changed, error });
                }
                Err(error) => return Err(unanswered_or(tried, error)),
            }
        }
        Err(attempts.given_up("a move's row"))
    }
}

/// That nobody has written a move's row since it was read.
pub(crate) fn as_it_was(pair: PairId, revision: Option<Revision>) -> KeyCondition {
    let key = MoveRow::key(pair);
    match revision {
        Some(_) if planted(Mutant::HandingMoveUnasked) => {
            KeyCondition::LeaseEnded { lease: Incarnation(0) } // there never was one
        }
        Some(revision) => KeyCondition::Revision { key, revision },
        None => KeyCondition::Absent { key },
    }
}

fn parse_move(value: &str) -> Result<MoveRow, ClusterError> {
    parse("a move", value)
}

/// That a lease lives, which a handing goes by.
fn lives(lease: Incarnation) -> KeyCondition {
    if planted(Mutant::HandingLeaseUnasked) {
        return KeyCondition::LeaseEnded { lease: Incarnation(0) }; // there never was one
    }
    KeyCondition::LeaseAlive { lease }
}

/// What moves change of the region table.
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
    /// target has lost its copy; [`ClusterError::Superseded`]: the pair is another's;
    /// [`ClusterError::Unreadable`]: the move's row, or the pair's, does not read.
    pub fn hand(&self, ownership: Ownership, cut: Csn, name: MoveName) -> Result<PairRow, ClusterError> {
        let Ownership { pair, epoch, incarnation } = ownership;
        let moves = Moves::new(self.coordinator().clone());
        let mut attempts = Attempts::default();
        while attempts.left() {
            let (row, revision) = self.read(pair)?;
            let is_anothers = row.epoch != epoch || row.owner != Some(incarnation);
            let superseded = ClusterError::Superseded { pair, epoch: row.epoch, owner: row.owner };
            let found = match moves.read(pair) {
                // Whose the pair is does not depend on a move's row that does not read.
                Err(ClusterError::Unreadable { .. }) if is_anothers => return Err(superseded),
                found => found?.filter(|(of, _)| of.number == name.number),
            };
            if let Some((of, _)) = &found
                && of.is_handed(&row)
            {
                return Ok(row); // an earlier try, whose answer was lost
            }
            if is_anothers {
                return Err(superseded);
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
            let mut moved = MoveRow { stage: MoveStage::Handed, ..of };
            moved.times.note_freeze(self.dates().frozen_ms);
            moved.times.note_stage(MoveStage::Handed, self.dates().at_ms);
            let hand = Transaction::new()
                .when(lives(incarnation))
                .when(lives(target))
                .when(unchanged(pair, revision))
                .when(as_it_was(pair, Some(move_revision)))
                .put(PairRow::key(pair), text(&handed))
                .put(MoveRow::key(pair), text(&moved));
            match self.coordinator().transact(hand) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(handed),
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease: incarnation });
                }
                Ok(TransactionOutcome::Refused { condition: 1 }) => {
                    return Err(ClusterError::LeaseEnded { lease: target });
                }
                Ok(TransactionOutcome::Refused { .. }) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(error)) => attempts.unanswered(&error),
                Err(error) => return Err(error),
            }
        }
        Err(attempts.given_up("a pair that was to be handed over"))
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
                Err(ClusterError::OutcomeUnknown(error)) => attempts.unanswered(&error),
                Err(error) => return Err(error),
            }
        }
        Err(attempts.given_up("a pair's row"))
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

#[cfg(test)]
mod tests {
    use cell_terms::{Epoch, NodeId};

    use super::*;

    #[test]
    fn move_row_text_is_pinned() {
        let side = |incarnation, node| MoveSide {
            incarnation: Incarnation(incarnation),
            node: NodeId(node),
            host: None,
        };
        let row = MoveRow {
            pair: PairId(3),
            number: 2,
            epoch: Epoch(5),
            source: side(8, 0),
            target: side(9, 1),
            why: "operator".into(),
            cause: MoveMotive::Operator,
            stage: MoveStage::Copying,
            bytes_done: 1,
            bytes_total: 4,
            checked: 0,
            outcome: Some(MoveOutcome::GivenUp { why: "w".into() }),
            cancelled_by: None,
            times: MoveTimes::default(),
        };
        let text = concat!(
            r#"{"pair":3,"number":2,"epoch":5,"source":{"incarnation":8,"node":0},"#,
            r#""target":{"incarnation":9,"node":1},"why":"operator","stage":"copying","#,
            r#""bytes_done":1,"bytes_total":4,"outcome":{"given_up":{"why":"w"}}}"#,
        );
        assert_eq!(serde_json::to_string(&row).unwrap(), text);
        assert_eq!(serde_json::from_str::<MoveRow>(text).unwrap(), row);
        let dated = MoveRow {
            outcome: Some(MoveOutcome::Cancelled),
            cancelled_by: Some("ann".into()),
            times: MoveTimes { wanted_ms: 7, over_ms: 9, ..MoveTimes::default() },
            ..row
        };
        let text = serde_json::to_string(&dated).unwrap();
        let end = concat!(
            r#""outcome":"cancelled","cancelled_by":"ann","times":{"wanted_ms":7,"copying_ms":0,"#,
            r#""ready_ms":0,"frozen_ms":0,"handed_ms":0,"over_ms":9}}"#,
        );
        assert!(text.ends_with(end), "{text}");
        assert_eq!(serde_json::from_str::<MoveRow>(&text).unwrap(), dated);
    }
}
