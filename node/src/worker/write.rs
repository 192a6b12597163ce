//! Writes: named by session and number, decided once, answered when durable.

use cell_fabric::ConnectionId;
use cell_pair::{NoRoom, Pair, WriteError};
use cell_protocol::{Condition, Delete, Put, ReadOnlyReason, Refusal, Reply, RequestHeader, WriteName};
use cell_recovery::{Admission, WriteCompletion, WriteOutcome};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, SessionId, SlotIndex, Version};

use super::{Worker, WorkerPhase};
use crate::directory::MeganodeAt;
use crate::limits::VALUE_PART;
use crate::outbox::PairAt;
use crate::pairs::Dependence;

impl Worker {
    pub(super) fn put(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        put: &Put<'_>,
        there: Option<MeganodeAt>,
    ) {
        let there = match self.write_place(put.key, put.value.len(), &put.name, there) {
            Ok(there) => there,
            Err(refusal) => return self.refuse_write(connection, header, put.key, refusal),
        };
        if self.answer_repeat(connection, header, there.pair, &put.name) {
            return;
        }
        self.operations.put += 1;
        let result = decide_put(self.pairs.pair_mut(there.pair), there.slot, put);
        self.answer_write(connection, header, (there, put.name.session), result);
    }

    pub(super) fn delete(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        delete: &Delete<'_>,
        there: Option<MeganodeAt>,
    ) {
        let there = match self.write_place(delete.key, 0, &delete.name, there) {
            Ok(there) => there,
            Err(refusal) => return self.refuse_write(connection, header, delete.key, refusal),
        };
        if self.answer_repeat(connection, header, there.pair, &delete.name) {
            return;
        }
        self.operations.delete += 1;
        let result = decide_delete(self.pairs.pair_mut(there.pair), there.slot, delete);
        self.answer_write(connection, header, (there, delete.name.session), result);
    }

    fn answer_write(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        (there, session): (MeganodeAt, SessionId),
        result: Result<(WriteOutcome, Csn), WriteError>,
    ) {
        match result {
            Ok((outcome, csn)) => self.answer_outcome(connection, header, there.pair, outcome, csn),
            Err(WriteError::NoRoom(NoRoom::LogBusy)) => self.refuse(connection, header, Refusal::Busy),
            Err(WriteError::NoRoom(NoRoom::DiskFull)) => {
                self.refuse(connection, header, Refusal::ReadOnly { reason: ReadOnlyReason::DiskFull });
            }
            Err(WriteError::NoRoom(NoRoom::Region | NoRoom::Slot)) => {
                let refusal = self.no_room(there.pair, session);
                self.refuse(connection, header, refusal);
            }
            Err(WriteError::Pair(error)) => self.broken(connection, header, error),
        }
        self.pairs.raise(there.pair); // moves at once unless writes are synchronous
    }

    /// What a put of a session is answered that finds no room in this pair.
    fn no_room(&mut self, at: PairAt, session: SessionId) -> Refusal {
        let is_known = self.splits.lacks_memory(self.now_ns);
        let comes_again = self.splits.awaits_relief(&self.pairs, at, session, self.now_ns);
        if !is_known && self.splits.lacks_memory(self.now_ns) {
            self.figures.due_ns = self.now_ns; // the sooner it is reported, the sooner a pair leaves
        }
        if comes_again { Refusal::Busy } else { Refusal::ReadOnly { reason: ReadOnlyReason::RegionFull } }
    }

    fn answer_outcome(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        pair: PairAt,
        outcome: WriteOutcome,
        csn: Csn,
    ) {
        let reply = match outcome {
            WriteOutcome::Written { version, .. } => Reply::Written { version },
            WriteOutcome::Deleted => Reply::Deleted,
            WriteOutcome::NotFound => Reply::NotFound,
            WriteOutcome::ConditionFailed { current } => Reply::Refused(Refusal::ConditionFailed { current }),
        };
        let csn = if planted(Mutant::AcknowledgeEarly) { Csn::ZERO } else { csn };
        self.reply(connection, header, Dependence::on(pair, csn), &reply);
    }

    /// Answers a write that was carried out before, or must not be now; true if so.
    pub(super) fn answer_repeat(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        pair: PairAt,
        name: &WriteName,
    ) -> bool {
        let short = self.result_bytes >= self.options.result_bytes_max;
        let completions = self.pairs.pair_mut(pair).completions();
        match completions.admit(name.session, name.number, name.floor, short) {
            Admission::New => false,
            Admission::Repeat { outcome, csn } => {
                self.operations.repeated += 1;
                let csn = if planted(Mutant::RepeatNotHeld) { Csn::ZERO } else { csn };
                self.answer_outcome(connection, header, pair, outcome, csn);
                true
            }
            Admission::BelowFloor => {
                self.refuse(connection, header, Refusal::NumberBelowFloor { floor: name.floor });
                true
            }
            Admission::Full => {
                self.refuse(connection, header, Refusal::Busy);
                true
            }
        }
    }

    /// Longest value that is accepted: what the setting says, as far as a pair can replace it.
    pub(super) fn value_bytes_max(&self) -> usize {
        self.options.value_bytes_max.min(self.value_bytes_fitting)
    }

    /// All pairs' regions have the sizes of the first ones.
    pub(super) fn fit_values(&mut self, pair: &Pair) {
        let fitting = usize::try_from(pair.extent_region_bytes() / VALUE_PART).unwrap_or(usize::MAX);
        let before = std::mem::replace(&mut self.value_bytes_fitting, fitting);
        let permitted = self.options.value_bytes_max;
        if fitting < permitted && before != fitting {
            let why = "a value has at most a quarter of extent_region_bytes, so that it can be replaced";
            tracing::info!(fitting, permitted, "{why}: value_bytes_max is not reached");
        }
    }

    /// Where a write is carried out, or what is wrong with it. `there`: where its key is, if that is known.
    pub(super) fn write_place(
        &mut self,
        key: &[u8],
        value_len: usize,
        name: &WriteName,
        there: Option<MeganodeAt>,
    ) -> Result<MeganodeAt, Refusal> {
        if self.is_awaiting_pairs() {
            return Err(Refusal::Recovering);
        }
        if self.phase == WorkerPhase::Stopping {
            return Err(Refusal::Shutdown);
        }
        if value_len > self.value_bytes_max() {
            let clamp = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
            return Err(Refusal::ValueTooLarge { len: clamp(value_len), max: clamp(self.value_bytes_max()) });
        }
        if let Some(refusal) = self.key_refusal(key) {
            return Err(refusal);
        }
        let there = there.or_else(|| self.pairs.find(key)).ok_or(Refusal::NotOwner)?;
        if !self.sessions.touch(name.session, self.now_ns) {
            return Err(Refusal::SessionUnknown);
        }
        Ok(there)
    }
}

fn decide_put(pair: &mut Pair, slot: SlotIndex, put: &Put<'_>) -> Result<(WriteOutcome, Csn), WriteError> {
    if put.condition != Condition::Always {
        let current = pair.version_of(slot, put.key)?;
        if !holds(put.condition, current) {
            return condition_failed(pair, &put.name, current);
        }
    }
    pair.put(slot, put.key, put.value, |version, replaced| {
        completion(&put.name, WriteOutcome::Written { version, replaced })
    })
}

fn decide_delete(
    pair: &mut Pair,
    slot: SlotIndex,
    delete: &Delete<'_>,
) -> Result<(WriteOutcome, Csn), WriteError> {
    let (name, condition) = (&delete.name, delete.condition);
    let current = pair.version_of(slot, delete.key)?;
    if current.is_none() && condition == Condition::Always {
        if planted(Mutant::DeletedNothingUnlogged) {
            return Ok((WriteOutcome::NotFound, pair.appended()));
        }
        return Ok((WriteOutcome::NotFound, pair.log_outcome(&completion(name, WriteOutcome::NotFound))?));
    }
    if !holds(condition, current) {
        return condition_failed(pair, name, current);
    }
    pair.delete(slot, delete.key, &completion(name, WriteOutcome::Deleted))
}

/// Keeps the result: after a change a repeat would find the condition met.
fn condition_failed(
    pair: &mut Pair,
    name: &WriteName,
    current: Option<Version>,
) -> Result<(WriteOutcome, Csn), WriteError> {
    let outcome = WriteOutcome::ConditionFailed { current };
    if planted(Mutant::FailedConditionUnlogged) {
        return Ok((outcome, pair.appended()));
    }
    Ok((outcome, pair.log_outcome(&completion(name, outcome))?))
}

fn completion(name: &WriteName, outcome: WriteOutcome) -> WriteCompletion {
    WriteCompletion { session: name.session, number: name.number, floor: name.floor, outcome }
}

fn holds(condition: Condition, current: Option<Version>) -> bool {
    match condition {
        Condition::Always => true,
        Condition::IfAbsent => current.is_none(),
        Condition::IfPresent => current.is_some(),
        Condition::IfVersion(version) => current == Some(version),
    }
}
