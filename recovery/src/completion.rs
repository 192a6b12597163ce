//! The exactly-once table of a pair (RIFL, SOSP 2015; DESIGN.md "Exactly once"): what each session's writes
//! ended as, until their client has seen it, and the floor below which a session's numbers are refused.
//!
//! A session's floor is its lowest unacknowledged number. It travels with every write and only grows. A
//! number below it was acknowledged, so a copy of it that arrives late is refused and not applied again. The
//! table is rebuilt from checkpoint and log; a floor that was raised only in memory is not lost with a crash
//! in any way that matters: the results between the logged floor and the raised one are in the log.
//!
//! When a meganode is split, the target must answer repeats of writes to the keys that it takes over. A
//! result does not say which key its write was for (a key that was deleted, or that a condition kept out, is
//! in no tree), so the whole table goes along: a result answers by session and number, and at worst it is
//! never asked for. Each is bounded by its session's window and dropped with the session's floor. The target
//! merges what comes ([`CompletionTable::merge`]): floors by the higher one, results under the CSN of the
//! record that brought them, because it is the target's watermark that a repeated answer waits for.

use std::collections::{HashMap, VecDeque};

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, OperationNumber, SessionId};

use crate::record::{Completion, Fields, Outcome, RecordError};

/// Bytes of a session without results, and the most that a result has.
const SESSION_BYTES: usize = 20;
const RESULT_BYTES_MAX: usize = 16 + 18;

/// What the table says of a write that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Not seen before: carry it out.
    New,
    /// Carried out before: repeat the answer, once the watermark covers `csn`.
    Repeat {
        /// How it ended.
        outcome: Outcome,
        /// The CSN of the record that says so.
        csn: Csn,
    },
    /// Below the session's floor: a delayed copy of a write whose answer the client has seen.
    BelowFloor,
}

#[derive(Clone, Debug, Default)]
struct Session {
    floor: OperationNumber,
    /// Ascending by number, all at or above the floor.
    results: VecDeque<Kept>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Kept {
    number: OperationNumber,
    csn: Csn,
    outcome: Outcome,
}

/// Results and floors of every session that a pair has met.
#[derive(Clone, Debug, Default)]
pub struct CompletionTable {
    sessions: HashMap<SessionId, Session>,
}

impl CompletionTable {
    /// Looks a write up and takes note of its client's floor.
    pub fn admit(
        &mut self,
        session: SessionId,
        number: OperationNumber,
        floor: OperationNumber,
    ) -> Admission {
        let entry = self.sessions.entry(session).or_default();
        entry.raise_floor(floor);
        if number < entry.floor && !planted(Mutant::FloorIgnored) {
            return Admission::BelowFloor;
        }
        match entry.find(number) {
            Ok(_) if planted(Mutant::RepeatApplied) => Admission::New,
            Ok(at) => Admission::Repeat { outcome: entry.results[at].outcome, csn: entry.results[at].csn },
            Err(_) => Admission::New,
        }
    }

    /// Keeps a write's result. Repeating it, as replay does, changes nothing.
    pub fn record(&mut self, completion: &Completion, csn: Csn) {
        let entry = self.sessions.entry(completion.session).or_default();
        entry.raise_floor(completion.floor);
        if completion.number < entry.floor {
            return;
        }
        let kept = Kept { number: completion.number, csn, outcome: completion.outcome };
        match entry.find(completion.number) {
            Ok(at) => entry.results[at] = kept,
            Err(at) => entry.results.insert(at, kept),
        }
    }

    /// Drops an ended session. Only after its end is recorded in the coordinator.
    pub fn forget(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// The sessions that have left something here.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.sessions.keys().copied()
    }

    /// Results kept, over all sessions.
    #[must_use]
    pub fn results(&self) -> usize {
        self.sessions.values().map(|session| session.results.len()).sum()
    }

    /// The table's bytes in parts of about so many bytes, at least one part, each a table by itself: for the
    /// records of an adoption.
    #[must_use]
    pub fn parts(&self, bytes_max: usize) -> Vec<Vec<u8>> {
        let (mut parts, mut part) = (Vec::new(), Vec::new());
        let mut sessions: Vec<_> = self.sessions.iter().collect();
        sessions.sort_unstable_by_key(|(id, _)| **id);
        for (id, session) in sessions {
            let results: Vec<_> = session.results.iter().copied().collect();
            let per_part = (bytes_max.saturating_sub(SESSION_BYTES) / RESULT_BYTES_MAX).max(1);
            let mut chunks = results.chunks(per_part);
            let mut chunk = chunks.next().unwrap_or_default();
            loop {
                let needed = SESSION_BYTES + chunk.len() * RESULT_BYTES_MAX;
                if !part.is_empty() && part.len() + needed > bytes_max {
                    parts.push(std::mem::take(&mut part));
                }
                encode_session(*id, session.floor, chunk.iter(), &mut part);
                match chunks.next() {
                    Some(next) => chunk = next,
                    None => break,
                }
            }
        }
        parts.push(part);
        parts
    }

    /// Takes over what another pair's table had, its bytes being a part of [`CompletionTable::parts`]; `csn`
    /// is the record that brought them. Repeating it changes nothing.
    ///
    /// # Errors
    /// See [`RecordError`]; the table is as before.
    pub fn merge(&mut self, bytes: &[u8], csn: Csn) -> Result<(), RecordError> {
        for (id, other) in CompletionTable::decode(bytes)?.sessions {
            let session = self.sessions.entry(id).or_default();
            session.raise_floor(other.floor);
            for kept in other.results {
                if kept.number < session.floor {
                    continue;
                }
                if let Err(at) = session.find(kept.number) {
                    session.results.insert(at, Kept { csn, ..kept });
                }
            }
        }
        Ok(())
    }

    /// Appends the table's bytes, for a checkpoint: sessions ascending, each: session `u64`, floor `u64`,
    /// count `u32`, then number `u64`, CSN `u64`, outcome for each result.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut sessions: Vec<_> = self.sessions.iter().collect();
        sessions.sort_unstable_by_key(|(id, _)| **id);
        for (id, session) in sessions {
            encode_session(*id, session.floor, session.results.iter(), out);
        }
    }

    /// Reads a table's bytes.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn decode(bytes: &[u8]) -> Result<CompletionTable, RecordError> {
        let mut fields = Fields { bytes, at: 0 };
        let mut table = CompletionTable::default();
        while fields.at < bytes.len() {
            let id = SessionId(fields.u64()?);
            let mut session = Session { floor: OperationNumber(fields.u64()?), results: VecDeque::new() };
            for _ in 0..fields.u32()? {
                let (number, csn) = (OperationNumber(fields.u64()?), Csn(fields.u64()?));
                session.results.push_back(Kept { number, csn, outcome: Outcome::decode(&mut fields)? });
            }
            table.sessions.insert(id, session);
        }
        Ok(table)
    }
}

fn encode_session<'k>(
    id: SessionId,
    floor: OperationNumber,
    results: impl ExactSizeIterator<Item = &'k Kept>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(&id.0.to_le_bytes());
    out.extend_from_slice(&floor.0.to_le_bytes());
    let count = u32::try_from(results.len()).expect("a session has a bounded window");
    out.extend_from_slice(&count.to_le_bytes());
    for kept in results {
        out.extend_from_slice(&kept.number.0.to_le_bytes());
        out.extend_from_slice(&kept.csn.0.to_le_bytes());
        kept.outcome.encode(out);
    }
}

impl Session {
    fn raise_floor(&mut self, floor: OperationNumber) {
        if floor > self.floor {
            self.floor = floor;
            while self.results.front().is_some_and(|kept| kept.number < floor) {
                self.results.pop_front();
            }
        }
    }

    fn find(&self, number: OperationNumber) -> Result<usize, usize> {
        match self.results.back() {
            Some(last) if last.number < number => Err(self.results.len()), // the common case: numbers grow
            _ => self.results.binary_search_by_key(&number, |kept| kept.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId(5);

    fn write(table: &mut CompletionTable, number: u64, floor: u64, csn: u64) {
        let (number, floor) = (OperationNumber(number), OperationNumber(floor));
        let completion = Completion { session: SESSION, number, floor, outcome: Outcome::Deleted };
        table.record(&completion, Csn(csn));
    }

    #[test]
    fn admit_repeat_gets_the_first_answer() {
        let mut table = CompletionTable::default();
        assert_eq!(table.admit(SESSION, OperationNumber(2), OperationNumber(1)), Admission::New);
        write(&mut table, 2, 1, 10);
        write(&mut table, 1, 1, 11);
        let repeat = table.admit(SESSION, OperationNumber(2), OperationNumber(1));
        assert_eq!(repeat, Admission::Repeat { outcome: Outcome::Deleted, csn: Csn(10) });
        assert_eq!(table.results(), 2);
    }

    #[test]
    fn admit_delayed_first_copy_below_the_floor_is_refused() {
        let mut table = CompletionTable::default();
        write(&mut table, 1, 1, 10);
        assert_eq!(table.admit(SESSION, OperationNumber(2), OperationNumber(2)), Admission::New);
        assert_eq!(table.admit(SESSION, OperationNumber(1), OperationNumber(1)), Admission::BelowFloor);
        assert_eq!(table.results(), 0, "what the client has seen is dropped");
    }

    #[test]
    fn parts_merged_are_the_whole_table() {
        let mut table = CompletionTable::default();
        for number in 5..200 {
            write(&mut table, number, 5, 100 + number);
        }
        let other = Completion {
            session: SessionId(9),
            number: OperationNumber(1),
            floor: OperationNumber(1),
            outcome: Outcome::NotFound,
        };
        table.record(&other, Csn(77));
        for bytes_max in [1, 100, 1000, 1 << 20] {
            let parts = table.parts(bytes_max);
            assert!(parts.iter().all(|part| part.len() <= bytes_max.max(SESSION_BYTES + RESULT_BYTES_MAX)));
            let mut merged = CompletionTable::default();
            for _ in 0..2 {
                parts.iter().for_each(|part| merged.merge(part, Csn(5)).unwrap());
            }
            assert_eq!((merged.results(), merged.sessions().count()), (table.results(), 2));
            let repeat = merged.admit(SESSION, OperationNumber(9), OperationNumber(5));
            assert_eq!(repeat, Admission::Repeat { outcome: Outcome::Deleted, csn: Csn(5) });
            assert_eq!(merged.admit(SESSION, OperationNumber(4), OperationNumber(1)), Admission::BelowFloor);
        }
        assert_eq!(CompletionTable::default().parts(10), [Vec::<u8>::new()]);
    }

    #[test]
    fn merge_keeps_own_results_and_the_higher_floor() {
        let (mut own, mut other) = (CompletionTable::default(), CompletionTable::default());
        write(&mut own, 6, 5, 10);
        write(&mut other, 6, 3, 90);
        write(&mut other, 4, 3, 91);
        write(&mut other, 8, 3, 92);
        own.merge(&other.parts(1 << 10)[0], Csn(20)).unwrap();
        let mut ask = |number| own.admit(SESSION, OperationNumber(number), OperationNumber(1));
        assert_eq!(ask(4), Admission::BelowFloor);
        assert_eq!(ask(6), Admission::Repeat { outcome: Outcome::Deleted, csn: Csn(10) });
        assert_eq!(ask(8), Admission::Repeat { outcome: Outcome::Deleted, csn: Csn(20) });
        assert!(own.merge(&[1, 2, 3], Csn(30)).is_err());
    }

    #[test]
    fn table_bytes_round_trip() {
        let mut table = CompletionTable::default();
        write(&mut table, 4, 2, 10);
        write(&mut table, 5, 2, 12);
        let mut bytes = Vec::new();
        table.encode(&mut bytes);
        let mut read = CompletionTable::decode(&bytes).unwrap();
        assert_eq!(read.admit(SESSION, OperationNumber(1), OperationNumber(1)), Admission::BelowFloor);
        let repeat = read.admit(SESSION, OperationNumber(5), OperationNumber(2));
        assert_eq!(repeat, Admission::Repeat { outcome: Outcome::Deleted, csn: Csn(12) });
        assert!(CompletionTable::decode(&bytes[..bytes.len() - 1]).is_err());
    }
}
