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
        entry.keep(Kept { number: completion.number, csn, outcome: completion.outcome });
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

    /// Reads a table's bytes. A session may come several times: a part of a table may hold the end of one
    /// chunk of its results and the next chunk, each under a header of its own.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn decode(bytes: &[u8]) -> Result<CompletionTable, RecordError> {
        let mut fields = Fields { bytes, at: 0 };
        let mut table = CompletionTable::default();
        while fields.at < bytes.len() {
            let id = SessionId(fields.u64()?);
            if planted(Mutant::SessionReplaced) {
                table.sessions.remove(&id);
            }
            let session = table.sessions.entry(id).or_default();
            session.raise_floor(OperationNumber(fields.u64()?));
            for _ in 0..fields.u32()? {
                let (number, csn) = (OperationNumber(fields.u64()?), Csn(fields.u64()?));
                session.keep(Kept { number, csn, outcome: Outcome::decode(&mut fields)? });
            }
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

    /// Keeps a result unless it is below the floor; the last one of a number counts.
    fn keep(&mut self, kept: Kept) {
        if kept.number < self.floor {
            return;
        }
        match self.find(kept.number) {
            Ok(at) => self.results[at] = kept,
            Err(at) => self.results.insert(at, kept),
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
    use std::collections::BTreeMap;

    use cell_terms::{Epoch, PairId, Version};
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

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

    /// An outcome of each form, by turns or all alike.
    fn outcome(form: usize, number: u64) -> Outcome {
        let version = Version { pair: PairId(3), epoch: Epoch(2), csn: Csn(number) };
        [
            Outcome::Deleted,
            Outcome::NotFound,
            Outcome::Written { version, replaced: number.is_multiple_of(2) },
            Outcome::ConditionFailed { current: None },
            Outcome::ConditionFailed { current: Some(version) },
        ][form % OUTCOME_FORMS]
    }

    const OUTCOME_FORMS: usize = 5;

    /// Everything that a table knows, to be compared.
    fn content(table: &CompletionTable) -> BTreeMap<SessionId, (OperationNumber, Vec<(u64, Outcome)>)> {
        let of = |session: &Session| {
            let results = session.results.iter().map(|kept| (kept.number.0, kept.outcome)).collect();
            (session.floor, results)
        };
        table.sessions.iter().map(|(id, session)| (*id, of(session))).collect()
    }

    /// So many results of each session, numbered from its floor on; all of one form, or of all by turns.
    fn table_of(counts: &[u64], form: Option<usize>) -> CompletionTable {
        let mut table = CompletionTable::default();
        for (session, count) in (1..).zip(counts) {
            table.sessions.entry(SessionId(session)).or_default().raise_floor(OperationNumber(session));
            for number in session..session + count {
                let form = form.unwrap_or(usize::try_from(number).unwrap());
                let (number, floor) = (OperationNumber(number), OperationNumber(session));
                let outcome = outcome(form, number.0);
                table.record(&Completion { session: SessionId(session), number, floor, outcome }, Csn(9));
            }
        }
        table
    }

    /// The parts of a table, merged in this order, each twice, are the table.
    fn expect_whole(table: &CompletionTable, bytes_max: usize, order: impl Fn(&mut Vec<Vec<u8>>)) {
        let mut parts = table.parts(bytes_max);
        assert!(parts.iter().all(|part| part.len() <= bytes_max.max(SESSION_BYTES + RESULT_BYTES_MAX)));
        order(&mut parts);
        let mut merged = CompletionTable::default();
        for _ in 0..2 {
            parts.iter().for_each(|part| merged.merge(part, Csn(5)).unwrap());
        }
        assert_eq!(content(&merged), content(table), "parts of {bytes_max} bytes");
    }

    /// A session's last results may come into the part that holds the ones before them, under a header of
    /// their own: a part with a session twice is read as one with all of its results. (The simulator found a
    /// write carried out twice, of a session with more than a part of results, most of them short.)
    #[test]
    fn parts_of_any_size_merged_are_the_whole_table_whatever_its_results() {
        for count in 1..=400 {
            for form in (0..OUTCOME_FORMS).map(Some).chain([None]) {
                let table = table_of(&[count], form);
                for bytes_max in [1, 54, 100, 1_000, 4_000, 1 << 20] {
                    expect_whole(&table, bytes_max, |_| {});
                }
            }
        }
        assert_eq!(CompletionTable::default().parts(10), [Vec::<u8>::new()]);
    }

    proptest! {
        #[test]
        fn parts_of_any_table_merged_in_any_order_are_the_whole_table(
            counts in vec(0..300_u64, 0..8), form in option::of(0..OUTCOME_FORMS),
            bytes_max in 1..6_000_usize, first in any::<usize>()
        ) {
            expect_whole(&table_of(&counts, form), bytes_max, |parts| {
                let len = parts.len();
                parts.rotate_left(first % len);
            });
        }

        #[test]
        fn table_cut_anywhere_and_put_together_is_the_table(
            counts in vec(0..200_u64, 0..6), form in option::of(0..OUTCOME_FORMS), block in 1..5_000_usize
        ) {
            let table = table_of(&counts, form);
            let mut bytes = Vec::new();
            table.encode(&mut bytes);
            let together = bytes.chunks(block).collect::<Vec<_>>().concat();
            prop_assert_eq!(content(&CompletionTable::decode(&together).unwrap()), content(&table));
        }

        #[test]
        fn any_bytes_decode_to_a_table_or_to_an_error(bytes in vec(any::<u8>(), 0..200)) {
            if let Ok(table) = CompletionTable::decode(&bytes) {
                let mut again = Vec::new();
                table.encode(&mut again);
                prop_assert_eq!(content(&CompletionTable::decode(&again).unwrap()), content(&table));
            }
        }
    }

    #[cfg(cell_mutants)]
    #[test]
    fn mutant_that_replaces_a_session_by_its_second_header_is_caught() {
        use cell_terms::mutant::plant;
        let passes = || std::panic::catch_unwind(|| expect_whole(&table_of(&[118], Some(0)), 4_000, |_| {}));
        assert!(passes().is_ok());
        plant(Some(Mutant::SessionReplaced));
        assert!(passes().is_err(), "{} was not caught", Mutant::SessionReplaced.name());
        plant(None);
        println!("mutant {} caught by cell-recovery's completion table", Mutant::SessionReplaced.name());
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
