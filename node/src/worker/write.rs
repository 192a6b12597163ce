//! Writes: named by session and number, decided once, answered when durable.

use cell_fabric::ConnectionId;
use cell_protocol::{Condition, Delete, Put, ReadOnlyReason, Refusal, Reply, RequestHeader, WriteName};
use cell_recovery::{Admission, Completion, Outcome};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Version};

use super::{Phase, Worker};
use crate::store::{NoRoom, StoreError, WriteError};

impl Worker {
    pub(super) fn put(&mut self, connection: ConnectionId, header: RequestHeader, put: &Put<'_>) {
        if let Some(refusal) = self.write_refusal(put.key, put.value.len(), &put.name) {
            return self.refuse(connection, header, refusal);
        }
        if self.answer_repeat(connection, header, &put.name) {
            return;
        }
        self.counters.operations.put += 1;
        let result = self.decide_put(&put.name, put.condition, put.key, put.value);
        self.answer_write(connection, header, result);
    }

    pub(super) fn delete(&mut self, connection: ConnectionId, header: RequestHeader, delete: &Delete<'_>) {
        if let Some(refusal) = self.write_refusal(delete.key, 0, &delete.name) {
            return self.refuse(connection, header, refusal);
        }
        if self.answer_repeat(connection, header, &delete.name) {
            return;
        }
        self.counters.operations.delete += 1;
        let result = self.decide_delete(&delete.name, delete.condition, delete.key);
        self.answer_write(connection, header, result);
    }

    fn decide_put(
        &mut self,
        name: &WriteName,
        condition: Condition,
        key: &[u8],
        value: &[u8],
    ) -> Result<(Outcome, Csn), WriteError> {
        let now_ns = self.now_ns;
        let store = self.store.as_mut().ok_or(WriteError::Store(StoreError::Reply))?;
        if condition != Condition::Always {
            let current = store.version_of(key)?;
            if !holds(condition, current) {
                let outcome = Outcome::ConditionFailed { current };
                return Ok((outcome, store.log_outcome(&completion(name, outcome))?));
            }
        }
        store.put(key, value, now_ns, |version, replaced| {
            completion(name, Outcome::Written { version, replaced })
        })
    }

    fn decide_delete(
        &mut self,
        name: &WriteName,
        condition: Condition,
        key: &[u8],
    ) -> Result<(Outcome, Csn), WriteError> {
        let now_ns = self.now_ns;
        let store = self.store.as_mut().ok_or(WriteError::Store(StoreError::Reply))?;
        let current = store.version_of(key)?;
        if current.is_none() && condition == Condition::Always {
            return Ok((Outcome::NotFound, store.log_outcome(&completion(name, Outcome::NotFound))?));
        }
        if !holds(condition, current) {
            let outcome = Outcome::ConditionFailed { current };
            return Ok((outcome, store.log_outcome(&completion(name, outcome))?));
        }
        store.delete(key, now_ns, &completion(name, Outcome::Deleted))
    }

    fn answer_write(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        result: Result<(Outcome, Csn), WriteError>,
    ) {
        match result {
            Ok((outcome, csn)) => self.answer_outcome(connection, header, outcome, csn),
            Err(WriteError::NoRoom(NoRoom::LogBusy)) => self.refuse(connection, header, Refusal::Busy),
            Err(WriteError::NoRoom(NoRoom::DiskFull)) => {
                self.refuse(connection, header, Refusal::ReadOnly { reason: ReadOnlyReason::DiskFull });
            }
            Err(WriteError::NoRoom(NoRoom::Region)) => {
                self.refuse(connection, header, Refusal::ReadOnly { reason: ReadOnlyReason::RegionFull });
            }
            Err(WriteError::Store(error)) => self.broken(connection, header, error),
        }
        if let Some(store) = &self.store {
            self.outbox.raise(store.visible()); // moves at once unless writes are synchronous
        }
    }

    fn answer_outcome(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        outcome: Outcome,
        csn: Csn,
    ) {
        let reply = match outcome {
            Outcome::Written { version, .. } => Reply::Written { version },
            Outcome::Deleted => Reply::Deleted,
            Outcome::NotFound => Reply::NotFound,
            Outcome::ConditionFailed { current } => Reply::Refused(Refusal::ConditionFailed { current }),
        };
        let csn = if planted(Mutant::AcknowledgeEarly) { Csn::ZERO } else { csn };
        self.reply(connection, header, csn, &reply);
    }

    /// Answers a write that was carried out before; true if it was.
    pub(super) fn answer_repeat(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        name: &WriteName,
    ) -> bool {
        let Some(store) = &mut self.store else { return false };
        match store.completions().admit(name.session, name.number, name.floor) {
            Admission::New => false,
            Admission::Repeat { outcome, csn } => {
                self.counters.operations.repeated += 1;
                self.answer_outcome(connection, header, outcome, csn);
                true
            }
            Admission::BelowFloor => {
                self.refuse(connection, header, Refusal::NumberBelowFloor { floor: name.floor });
                true
            }
        }
    }

    /// What is wrong with a write before anything is looked up.
    pub(super) fn write_refusal(
        &mut self,
        key: &[u8],
        value_len: usize,
        name: &WriteName,
    ) -> Option<Refusal> {
        if self.store.is_none() {
            return Some(Refusal::Recovering);
        }
        if self.phase == Phase::Stopping {
            return Some(Refusal::Shutdown);
        }
        if value_len > self.options.value_bytes_max {
            let clamp = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
            return Some(Refusal::ValueTooLarge {
                len: clamp(value_len),
                max: clamp(self.options.value_bytes_max),
            });
        }
        if !self.sessions.touch(name.session, self.now_ns) {
            return Some(Refusal::SessionUnknown);
        }
        self.key_refusal(key)
    }
}

fn completion(name: &WriteName, outcome: Outcome) -> Completion {
    Completion { session: name.session, number: name.number, floor: name.floor, outcome }
}

fn holds(condition: Condition, current: Option<Version>) -> bool {
    match condition {
        Condition::Always => true,
        Condition::IfAbsent => current.is_none(),
        Condition::IfPresent => current.is_some(),
        Condition::IfVersion(version) => current == Some(version),
    }
}
