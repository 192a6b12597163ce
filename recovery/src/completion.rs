//! The exactly-once table of a pair (RIFL, SOSP 2015; `docs/design/log.md`): what each session's writes
//! ended as, until their client has seen it, and the floor below which a session's numbers are refused.
//!
//! A session's floor is its lowest unacknowledged number. It travels with every write and only grows. A
//! number below it was acknowledged, so a copy of it that arrives late is refused and not applied again. The
//! table is restored from checkpoint and log; a floor that was raised only in memory is not lost with a crash
//! in any way that matters: the results between the logged floor and the raised one are in the log.
//!
//! A session's results lie in a window of numbers from its floor on: [`RESULT_WINDOW`] of them, or
//! [`RESULT_WINDOW_SHORT`] when results have taken all the memory that they may. A number above it is not
//! carried out ([`Admission::Full`]): its client asks again, and gets on when its lowest number ends. That
//! one is always in the window.
//!
//! An image holds the table as of one moment. A clone shares the sessions with the table; one that changes
//! while there is a clone is copied first. So the owner is done at once, and who has the clone encodes it.
//!
//! When a meganode is split, the target must answer repeats of writes to the keys that it takes over. A
//! result does not say which key its write was for (a key that was deleted, or that a condition kept out, is
//! in no tree), so the whole table goes along: a result answers by session and number, and at worst it is
//! never asked for. Each is bounded by its session's window and dropped with the session's floor.
//!
//! What goes along is what is durable at the source ([`CompletionTable::parts`]), and it counts at the target
//! only from the moment in which that takes writes. The two logs know nothing of each other, so otherwise:
//!
//! 1. the source carries a put out and appends it; its batch is not durable yet;
//! 2. the table is copied, put and all, and the target logs the copy, durably;
//! 3. power fails: the source never had the put, and the split is aborted;
//! 4. the client retries the put, whose key has come to the target by another split: it is answered
//!    `Written`, and the entry is nowhere.
//!
//! The target lacks nothing for that. It will be asked for writes to the keys that it takes over. All of
//! them, those of failed conditions and deletes of what was not there among them, were appended before the
//! split's `Start`, because since then they wait; and the table is copied when `Start` is durable. Floors
//! need no record at all: they are what clients say.
//!
//! So results that come with an adoption lie aside under the split's name until its `Opened`, or until its
//! `Discarded`, which leaves nothing of them ([`CompletionTable::apply`]). `Opened` follows the source's
//! `Linked`, which its log has behind everything that was copied. Floors are merged by the higher one,
//! results under the CSN of the record that brought them, because it is the target's watermark that a
//! repeated answer waits for. What the target knows itself stays.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, IdMap, OperationNumber, SessionId};

use crate::fields::{Fields, RecordError};
use crate::record::{WriteCompletion, WriteOutcome};
use crate::split::{SplitName, SplitRecord};

/// Bytes of a session without results, and the most that a result has.
const SESSION_BYTES: usize = 20;
const RESULT_BYTES_MAX: usize = 16 + 18;

/// Numbers from a session's floor on of which results are kept: as many as a client uses in a second or so,
/// while its lowest number waits.
pub const RESULT_WINDOW: u64 = 1 << 16;
/// The same while results take all the memory that they may: a client goes on, though not with much at once.
pub const RESULT_WINDOW_SHORT: u64 = 64;

/// What the table says of a write that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Not seen before: carry it out.
    New,
    /// Carried out before: repeat the answer, once the watermark covers `csn`.
    Repeat {
        /// How it ended.
        outcome: WriteOutcome,
        /// The CSN of the record that says so.
        csn: Csn,
    },
    /// Below the session's floor: a delayed copy of a write whose answer the client has seen.
    BelowFloor,
    /// Above the session's window: not now.
    Full,
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
    outcome: WriteOutcome,
}

/// Results and floors of every session that a pair has met.
#[derive(Clone, Debug, Default)]
pub struct CompletionTable {
    sessions: Sessions,
    /// What came with adoptions that are not open: it answers nobody.
    adopted: BTreeMap<SplitName, Sessions>,
    /// Results of all of these.
    results: usize,
}

/// Each write asks twice for its session.
type Sessions = IdMap<SessionId, Arc<Session>>;

impl CompletionTable {
    /// Looks a write up and takes note of its client's floor. `short`: results take all the memory that they
    /// may.
    pub fn admit(
        &mut self,
        session: SessionId,
        number: OperationNumber,
        floor: OperationNumber,
        short: bool,
    ) -> Admission {
        let entry = self.sessions.entry(session).or_default();
        if floor > entry.floor {
            edit(entry, &mut self.results, |session| session.raise_floor(floor));
        }
        if number < entry.floor && !planted(Mutant::FloorIgnored) {
            return Admission::BelowFloor;
        }
        match entry.find(number) {
            Ok(_) if planted(Mutant::RepeatApplied) => Admission::New,
            Ok(at) => Admission::Repeat { outcome: entry.results[at].outcome, csn: entry.results[at].csn },
            Err(_) => {
                let window = if short { RESULT_WINDOW_SHORT } else { RESULT_WINDOW };
                let fits = number.0.saturating_sub(entry.floor.0) < window;
                if fits { Admission::New } else { Admission::Full }
            }
        }
    }

    /// Keeps a write's result. Repeating it, as replay does, changes nothing.
    pub fn record(&mut self, completion: &WriteCompletion, csn: Csn) {
        let entry = self.sessions.entry(completion.session).or_default();
        edit(entry, &mut self.results, |session| {
            session.raise_floor(completion.floor);
            session.keep(Kept { number: completion.number, csn, outcome: completion.outcome });
        });
    }

    /// Drops an ended session. Only after its end is recorded in the coordinator.
    pub fn forget(&mut self, session: SessionId) {
        let sessions = std::iter::once(&mut self.sessions).chain(self.adopted.values_mut());
        for gone in sessions.filter_map(|sessions| sessions.remove(&session)) {
            self.results -= gone.results.len();
        }
        self.adopted.retain(|_, sessions| !sessions.is_empty());
    }

    /// The sessions that have left something here; some come twice.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.all().flat_map(|sessions| sessions.keys().copied())
    }

    /// Results kept, over all sessions, those of adoptions that are not open among them.
    #[must_use]
    pub fn results(&self) -> usize {
        self.results
    }

    /// Memory that they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.results * size_of::<Kept>()
    }

    fn all(&self) -> impl Iterator<Item = &Sessions> {
        std::iter::once(&self.sessions).chain(self.adopted.values())
    }

    /// What goes along with an adoption: every floor, and the results that are durable, in parts of about so
    /// many bytes, at least one part, each a table by itself.
    #[must_use]
    pub fn parts(&self, durable: Csn, bytes_max: usize) -> Vec<Vec<u8>> {
        let (mut parts, mut part) = (Vec::new(), Vec::new());
        for (id, session) in sorted(&self.sessions) {
            let goes_along = |kept: &&Kept| kept.csn <= durable || planted(Mutant::ResultsUndurable);
            let results: Vec<_> = session.results.iter().filter(goes_along).copied().collect();
            let per_part = (bytes_max.saturating_sub(SESSION_BYTES) / RESULT_BYTES_MAX).max(1);
            let mut chunks = results.chunks(per_part);
            let mut chunk = chunks.next().unwrap_or_default();
            loop {
                let needed = SESSION_BYTES + chunk.len() * RESULT_BYTES_MAX;
                if !part.is_empty() && part.len() + needed > bytes_max {
                    parts.push(std::mem::take(&mut part));
                }
                encode_session(id, session.floor, chunk.iter(), &mut part);
                match chunks.next() {
                    Some(next) => chunk = next,
                    None => break,
                }
            }
        }
        parts.push(part);
        parts
    }

    /// Takes note of a step of a split, live and in replay. Repeating it changes nothing.
    ///
    /// # Errors
    /// See [`RecordError`]; the table is as before.
    pub fn apply(&mut self, step: &SplitRecord<'_>, csn: Csn) -> Result<(), RecordError> {
        match *step {
            SplitRecord::Adopt { name, kept, .. } | SplitRecord::Absorb { name, kept, .. } => {
                return self.adopt(name, kept, csn);
            }
            SplitRecord::Opened { name } => self.open(name),
            SplitRecord::Discarded { name, .. } => self.discard(name),
            SplitRecord::Start { .. }
            | SplitRecord::Merge { .. }
            | SplitRecord::Adopted { .. }
            | SplitRecord::Linked { .. }
            | SplitRecord::Applied { .. }
            | SplitRecord::Retired { .. }
            | SplitRecord::Finished { .. }
            | SplitRecord::Aborted { .. } => {}
        }
        Ok(())
    }

    /// Lays aside what came with an adoption: one of the [`CompletionTable::parts`] of its source's table;
    /// `csn` is the record that brought it.
    fn adopt(&mut self, name: SplitName, part: &[u8], csn: Csn) -> Result<(), RecordError> {
        let mut sessions = decode_sessions(part)?;
        let results = sessions.values_mut().flat_map(|session| &mut Arc::make_mut(session).results);
        results.for_each(|kept| kept.csn = csn);
        let aside = match planted(Mutant::ResultsUndurable) {
            false => self.adopted.entry(name).or_default(),
            true => &mut self.sessions,
        };
        merge(aside, sessions, &mut self.results);
        Ok(())
    }

    /// The adoption takes writes: what came with it counts.
    fn open(&mut self, name: SplitName) {
        if let Some(sessions) = self.adopted.remove(&name) {
            self.results -= count(&sessions);
            merge(&mut self.sessions, sessions, &mut self.results);
        }
    }

    /// The adoption failed: what came with it is dropped.
    fn discard(&mut self, name: SplitName) {
        if !planted(Mutant::DiscardedResultsKept)
            && let Some(sessions) = self.adopted.remove(&name)
        {
            self.results -= count(&sessions);
        }
    }

    /// Appends the table's bytes without those of [`CompletionTable::encode_adopted`], for a checkpoint:
    /// sessions ascending, each: session `u64`, floor `u64`, count `u32`, then number `u64`, CSN `u64`,
    /// outcome for each result.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode_sessions(&self.sessions, out);
    }

    /// Appends what lies aside, for a checkpoint: splits ascending, each: name, length `u32`, sessions as in
    /// [`CompletionTable::encode`].
    pub fn encode_adopted(&self, out: &mut Vec<u8>) {
        for (name, sessions) in &self.adopted {
            name.encode(out);
            let mut bytes = Vec::new();
            encode_sessions(sessions, &mut bytes);
            let length = u32::try_from(bytes.len()).expect("sessions have bounded windows");
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&bytes);
        }
    }

    /// Reads a table's bytes, and what lies aside.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn decode(bytes: &[u8], adopted: &[u8]) -> Result<CompletionTable, RecordError> {
        let mut table = CompletionTable { sessions: decode_sessions(bytes)?, ..CompletionTable::default() };
        let mut fields = Fields { bytes: adopted, at: 0 };
        while fields.at < adopted.len() {
            let name = fields.name()?;
            let length = fields.u32()?;
            let sessions = fields.bytes(usize::try_from(length).unwrap_or(usize::MAX))?;
            table.adopted.insert(name, decode_sessions(sessions)?);
        }
        table.results = table.all().map(count).sum();
        Ok(table)
    }
}

/// Changes a session, and the count of results with it.
fn edit(session: &mut Arc<Session>, results: &mut usize, change: impl FnOnce(&mut Session)) {
    let session = Arc::make_mut(session);
    let before = session.results.len();
    change(session);
    *results = *results + session.results.len() - before;
}

/// Their results.
fn count(sessions: &Sessions) -> usize {
    sessions.values().map(|session| session.results.len()).sum()
}

fn sorted(sessions: &Sessions) -> Vec<(SessionId, &Session)> {
    let mut sorted: Vec<_> = sessions.iter().map(|(id, session)| (*id, &**session)).collect();
    sorted.sort_unstable_by_key(|(id, _)| *id);
    sorted
}

/// Takes over what others know: floors by the higher one. What is known stays as it is.
fn merge(sessions: &mut Sessions, others: Sessions, results: &mut usize) {
    for (id, other) in others {
        edit(sessions.entry(id).or_default(), results, |session| {
            session.raise_floor(other.floor);
            for kept in &other.results {
                if session.find(kept.number).is_err() {
                    session.keep(*kept);
                }
            }
        });
    }
}

fn encode_sessions(sessions: &Sessions, out: &mut Vec<u8>) {
    for (id, session) in sorted(sessions) {
        encode_session(id, session.floor, session.results.iter(), out);
    }
}

/// Reads sessions' bytes. A session may come several times: a part of a table may hold the end of one chunk
/// of its results and the next chunk, each under a header of its own.
fn decode_sessions(bytes: &[u8]) -> Result<Sessions, RecordError> {
    let mut fields = Fields { bytes, at: 0 };
    let mut sessions = Sessions::default();
    while fields.at < bytes.len() {
        let id = SessionId(fields.u64()?);
        if planted(Mutant::SessionReplaced) {
            sessions.remove(&id);
        }
        let session = Arc::make_mut(sessions.entry(id).or_default());
        session.raise_floor(OperationNumber(fields.u64()?));
        for _ in 0..fields.u32()? {
            let (number, csn) = (OperationNumber(fields.u64()?), Csn(fields.u64()?));
            session.keep(Kept { number, csn, outcome: WriteOutcome::decode(&mut fields)? });
        }
    }
    Ok(sessions)
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
            Err(at) if at == self.results.len() => self.results.push_back(kept),
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

    use cell_terms::{Epoch, PairId, Pointer, SlotIndex, Version};
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    const SESSION: SessionId = SessionId(5);
    const SPLIT: SplitName = SplitName { pair: PairId(1), epoch: Epoch(2), csn: Csn(7) };

    fn encoded(table: &CompletionTable) -> (Vec<u8>, Vec<u8>) {
        let (mut bytes, mut adopted) = (Vec::new(), Vec::new());
        table.encode(&mut bytes);
        table.encode_adopted(&mut adopted);
        (bytes, adopted)
    }

    fn ask(table: &mut CompletionTable, number: u64, floor: u64) -> Admission {
        table.admit(SESSION, OperationNumber(number), OperationNumber(floor), false)
    }

    fn write(table: &mut CompletionTable, number: u64, floor: u64, csn: u64) {
        let (number, floor) = (OperationNumber(number), OperationNumber(floor));
        let completion = WriteCompletion { session: SESSION, number, floor, outcome: WriteOutcome::Deleted };
        table.record(&completion, Csn(csn));
    }

    #[test]
    fn admit_repeat_gets_the_first_answer() {
        let mut table = CompletionTable::default();
        assert_eq!(ask(&mut table, 2, 1), Admission::New);
        write(&mut table, 2, 1, 10);
        write(&mut table, 1, 1, 11);
        let repeat = ask(&mut table, 2, 1);
        assert_eq!(repeat, Admission::Repeat { outcome: WriteOutcome::Deleted, csn: Csn(10) });
        assert_eq!(table.results(), 2);
    }

    #[test]
    fn admit_delayed_first_copy_below_the_floor_is_refused() {
        let mut table = CompletionTable::default();
        write(&mut table, 1, 1, 10);
        assert_eq!(ask(&mut table, 2, 2), Admission::New);
        assert_eq!(ask(&mut table, 1, 1), Admission::BelowFloor);
        assert_eq!(table.results(), 0, "what the client has seen is dropped");
    }

    #[test]
    fn admit_above_the_window_is_full_until_the_floor_rises() {
        let mut table = CompletionTable::default();
        let last = 3 + RESULT_WINDOW - 1;
        for number in [3, last] {
            assert_eq!(ask(&mut table, number, 3), Admission::New);
            write(&mut table, number, 3, 10);
        }
        assert_eq!(ask(&mut table, last + 1, 3), Admission::Full);
        assert_eq!(ask(&mut table, u64::MAX, 3), Admission::Full);
        let repeat = Admission::Repeat { outcome: WriteOutcome::Deleted, csn: Csn(10) };
        assert_eq!(ask(&mut table, last, 3), repeat, "what is there is answered");
        assert_eq!(ask(&mut table, last + 1, 4), Admission::New);
        assert_eq!(table.results(), 1);
    }

    #[test]
    fn admit_when_memory_is_short_has_a_short_window_and_the_lowest_number_is_in_it() {
        let mut table = CompletionTable::default();
        let mut short =
            |number, floor| table.admit(SESSION, OperationNumber(number), OperationNumber(floor), true);
        assert_eq!(short(7, 7), Admission::New);
        assert_eq!(short(7 + RESULT_WINDOW_SHORT - 1, 7), Admission::New);
        assert_eq!(short(7 + RESULT_WINDOW_SHORT, 7), Admission::Full);
        assert_eq!(short(7 + RESULT_WINDOW_SHORT, 7 + RESULT_WINDOW_SHORT), Admission::New);
    }

    #[test]
    fn clone_is_of_its_moment() {
        let mut table = CompletionTable::default();
        write(&mut table, 4, 2, 10);
        table.adopt(SPLIT, &table.clone().parts(Csn(10), 1 << 10)[0], Csn(20)).unwrap();
        let before = encoded(&table);
        let moment = table.clone();
        write(&mut table, 5, 3, 30);
        assert_eq!(ask(&mut table, 6, 6), Admission::New);
        table.open(SPLIT);
        table.forget(SESSION);
        assert_eq!((encoded(&moment), moment.results()), (before, 2));
        assert_eq!(table.results(), 0);
    }

    /// An outcome of each form, by turns or all alike.
    fn outcome(form: usize, number: u64) -> WriteOutcome {
        let version = Version { pair: PairId(3), epoch: Epoch(2), csn: Csn(number) };
        [
            WriteOutcome::Deleted,
            WriteOutcome::NotFound,
            WriteOutcome::Written { version, replaced: number.is_multiple_of(2) },
            WriteOutcome::ConditionFailed { current: None },
            WriteOutcome::ConditionFailed { current: Some(version) },
        ][form % OUTCOME_FORMS]
    }

    const OUTCOME_FORMS: usize = 5;

    /// Everything that a table knows, to be compared.
    fn content(table: &CompletionTable) -> BTreeMap<SessionId, (OperationNumber, Vec<(u64, WriteOutcome)>)> {
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
            table.admit(SessionId(session), OperationNumber(session), OperationNumber(session), false);
            for number in session..session + count {
                let form = form.unwrap_or(usize::try_from(number).unwrap());
                let (number, floor) = (OperationNumber(number), OperationNumber(session));
                let outcome = outcome(form, number.0);
                table
                    .record(&WriteCompletion { session: SessionId(session), number, floor, outcome }, Csn(9));
            }
        }
        table
    }

    /// The parts of a table, merged in this order, each twice, are the table.
    fn expect_whole(table: &CompletionTable, bytes_max: usize, order: impl Fn(&mut Vec<Vec<u8>>)) {
        let mut parts = table.parts(Csn(9), bytes_max);
        assert!(parts.iter().all(|part| part.len() <= bytes_max.max(SESSION_BYTES + RESULT_BYTES_MAX)));
        order(&mut parts);
        let mut merged = CompletionTable::default();
        for _ in 0..2 {
            parts.iter().for_each(|part| merged.adopt(SPLIT, part, Csn(5)).unwrap());
        }
        merged.open(SPLIT);
        assert_eq!(content(&merged), content(table), "parts of {bytes_max} bytes");
        let counted = merged.all().map(count).sum::<usize>();
        assert_eq!((merged.results(), counted), (table.results(), table.results()));
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
        assert_eq!(CompletionTable::default().parts(Csn(9), 10), [Vec::<u8>::new()]);
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
            prop_assert_eq!(content(&CompletionTable::decode(&together, &[]).unwrap()), content(&table));
        }

        #[test]
        fn any_bytes_decode_to_a_table_or_to_an_error(
            bytes in vec(any::<u8>(), 0..200), adopted in vec(any::<u8>(), 0..200)
        ) {
            if let Ok(table) = CompletionTable::decode(&bytes, &adopted) {
                let (bytes, adopted) = encoded(&table);
                let again = CompletionTable::decode(&bytes, &adopted).unwrap();
                prop_assert_eq!((content(&again), encoded(&again)), (content(&table), (bytes, adopted)));
            }
        }
    }

    #[cfg(debug_assertions)]
    #[test]
    fn mutant_that_replaces_a_session_by_its_second_header_is_caught() {
        cell_terms::mutant::in_own_process(|| {
            use cell_terms::mutant::plant;
            let passes =
                || std::panic::catch_unwind(|| expect_whole(&table_of(&[118], Some(0)), 4_000, |_| {}));
            assert!(passes().is_ok());
            plant(Some(Mutant::SessionReplaced));
            assert!(passes().is_err(), "{} was not caught", Mutant::SessionReplaced.name());
            plant(None);
            println!("mutant {} caught by cell-recovery's completion table", Mutant::SessionReplaced.name());
        });
    }

    #[test]
    fn open_keeps_own_results_and_the_higher_floor() {
        let (mut own, mut other) = (CompletionTable::default(), CompletionTable::default());
        write(&mut own, 6, 5, 10);
        write(&mut other, 6, 3, 90);
        write(&mut other, 4, 3, 91);
        write(&mut other, 8, 3, 92);
        let part = &other.parts(Csn(92), 1 << 10)[0];
        for _ in 0..2 {
            own.adopt(SPLIT, part, Csn(20)).unwrap();
        }
        // A result of its own that comes later counts as well.
        write(&mut own, 9, 5, 21);
        own.open(SPLIT);
        assert_eq!(ask(&mut own, 4, 1), Admission::BelowFloor);
        for (number, csn) in [(6, 10), (8, 20), (9, 21)] {
            let repeat = Admission::Repeat { outcome: WriteOutcome::Deleted, csn: Csn(csn) };
            assert_eq!(ask(&mut own, number, 1), repeat, "{number}");
        }
        assert!(own.adopt(SPLIT, &[1, 2, 3], Csn(30)).is_err());
    }

    #[test]
    fn parts_have_what_is_durable_and_every_floor() {
        let mut table = CompletionTable::default();
        write(&mut table, 6, 5, 10);
        write(&mut table, 7, 6, 11);
        let mut adopted = CompletionTable::default();
        adopted.adopt(SPLIT, &table.parts(Csn(10), 1 << 10)[0], Csn(20)).unwrap();
        adopted.open(SPLIT);
        let deleted = |csn| Admission::Repeat { outcome: WriteOutcome::Deleted, csn: Csn(csn) };
        assert_eq!(ask(&mut adopted, 5, 1), Admission::BelowFloor);
        assert_eq!(ask(&mut adopted, 6, 1), deleted(20));
        assert_eq!(ask(&mut adopted, 7, 1), Admission::New);
    }

    /// What came with an adoption answers nobody before that is open, in this life or after a checkpoint, and
    /// goes with it, and with its session.
    #[test]
    fn adopted_results_wait_for_their_adoption() {
        let other = SplitName { csn: Csn(8), ..SPLIT };
        let mut source = CompletionTable::default();
        write(&mut source, 6, 5, 10);
        let part = &source.parts(Csn(10), 1 << 10)[0];
        let mut table = CompletionTable::default();
        write(&mut table, 3, 3, 11);
        table.adopt(SPLIT, part, Csn(20)).unwrap();
        table.adopt(other, part, Csn(21)).unwrap();
        let (bytes, adopted) = encoded(&table);
        let ask = |table: &CompletionTable| ask(&mut table.clone(), 6, 1);
        for mut table in [table, CompletionTable::decode(&bytes, &adopted).unwrap()] {
            assert_eq!((ask(&table), table.results()), (Admission::New, 3));
            table.discard(other);
            assert_eq!((ask(&table), table.results()), (Admission::New, 2));
            let mut opened = table.clone();
            opened.open(other);
            assert_eq!(ask(&opened), Admission::New, "what was discarded");
            opened.open(SPLIT);
            let repeat = Admission::Repeat { outcome: WriteOutcome::Deleted, csn: Csn(20) };
            assert_eq!((ask(&opened), opened.results()), (repeat, 1), "the higher floor is the source's");
            table.forget(SESSION);
            table.open(SPLIT);
            assert_eq!((table.results(), table.sessions().count()), (0, 0));
        }
    }

    /// As live and as in replay: the records alone say what counts.
    #[test]
    fn steps_of_an_adoption_bring_results_open_them_and_drop_them() {
        let other = SplitName { csn: Csn(8), ..SPLIT };
        let mut source = CompletionTable::default();
        write(&mut source, 6, 5, 10);
        let kept = &source.parts(Csn(10), 1 << 10)[0];
        let (slot, low, high, right) = (SlotIndex(1), &b"k"[..], None, Pointer::NULL);
        let mut table = CompletionTable::default();
        for (csn, name) in [(20, SPLIT), (21, other)] {
            let adopt = SplitRecord::Adopt { name, slot, low, high, right, kept };
            for _ in 0..2 {
                table.apply(&adopt, Csn(csn)).unwrap();
            }
        }
        assert_eq!((ask(&mut table.clone(), 6, 1), table.results()), (Admission::New, 2));
        table.apply(&SplitRecord::Discarded { name: other, slot }, Csn(22)).unwrap();
        table.apply(&SplitRecord::Opened { name: other }, Csn(23)).unwrap();
        assert_eq!((ask(&mut table.clone(), 6, 1), table.results()), (Admission::New, 1));
        table.apply(&SplitRecord::Adopted { name: SPLIT, slot, nodes: 1, entries: 0 }, Csn(24)).unwrap();
        assert_eq!(ask(&mut table.clone(), 6, 1), Admission::New);
        table.apply(&SplitRecord::Opened { name: SPLIT }, Csn(25)).unwrap();
        let repeat = Admission::Repeat { outcome: WriteOutcome::Deleted, csn: Csn(20) };
        assert_eq!(ask(&mut table, 6, 1), repeat);
        let damaged = SplitRecord::Absorb { name: other, slot, low, high, right, kept: &[1, 2, 3] };
        assert!(table.apply(&damaged, Csn(26)).is_err());
    }

    /// A takeover forgets the ended ones among them; what it does not learn of stays for ever.
    #[test]
    fn sessions_are_those_that_have_results_here_or_aside() {
        let mut source = CompletionTable::default();
        write(&mut source, 6, 5, 10);
        let mut table = CompletionTable::default();
        table.adopt(SPLIT, &source.parts(Csn(10), 1 << 10)[0], Csn(20)).unwrap();
        table.admit(SessionId(9), OperationNumber(1), OperationNumber(1), false);
        let mut sessions: Vec<_> = table.sessions().collect();
        sessions.sort_unstable();
        assert_eq!(sessions, [SESSION, SessionId(9)]);
    }

    /// Without its results a write of the other one would be carried out twice.
    #[test]
    fn forget_of_a_session_leaves_what_came_with_an_adoption_of_another() {
        let (other, number, outcome) = (SessionId(6), OperationNumber(7), WriteOutcome::NotFound);
        let mut source = CompletionTable::default();
        write(&mut source, 6, 5, 10);
        source.record(&WriteCompletion { session: other, number, floor: number, outcome }, Csn(11));
        let mut table = CompletionTable::default();
        table.adopt(SPLIT, &source.parts(Csn(11), 1 << 10)[0], Csn(20)).unwrap();
        table.forget(SESSION);
        assert_eq!(table.results(), 1);
        table.open(SPLIT);
        let repeat = Admission::Repeat { outcome, csn: Csn(20) };
        assert_eq!(table.admit(other, number, number, false), repeat);
        assert_eq!(ask(&mut table, 6, 5), Admission::New, "this one has ended");
    }

    /// What a worker bounds.
    #[test]
    fn bytes_grow_with_each_result() {
        let mut table = CompletionTable::default();
        assert_eq!(table.bytes(), 0);
        write(&mut table, 5, 5, 10);
        let one = table.bytes();
        write(&mut table, 6, 5, 11);
        assert!(one >= 16 && table.bytes() == 2 * one, "{one}, {}", table.bytes());
    }

    #[test]
    fn table_bytes_round_trip() {
        let mut table = CompletionTable::default();
        write(&mut table, 4, 2, 10);
        write(&mut table, 5, 2, 12);
        let (bytes, adopted) = encoded(&table);
        let mut read = CompletionTable::decode(&bytes, &adopted).unwrap();
        assert_eq!(ask(&mut read, 1, 1), Admission::BelowFloor);
        let repeat = ask(&mut read, 5, 2);
        assert_eq!(repeat, Admission::Repeat { outcome: WriteOutcome::Deleted, csn: Csn(12) });
        assert!(CompletionTable::decode(&bytes[..bytes.len() - 1], &[]).is_err());
        assert!(CompletionTable::decode(&bytes, &[0; 19]).is_err());
    }
}
