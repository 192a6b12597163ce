//! What a drill's clients did and were answered, with the times: kept here, outside the cluster.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use cell_cluster::boottime_ns;
use cell_linearizability::ledger::Ledger;
use cell_linearizability::{Call, HistoryOperation, Outcome, Recorder, WrittenValue, payload};

/// Keys whose one writer has one write outstanding at a time: the entries that must be found again.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    ledger: Ledger,
    /// Every value that was ever sent for a key.
    sent: BTreeMap<Vec<u8>, Vec<WrittenValue>>,
    acknowledged: BTreeMap<Vec<u8>, u64>,
}

/// One operation's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) key: Vec<u8>,
    /// What was asked.
    pub(crate) call: Call,
    /// From, on CLOCK_BOOTTIME.
    pub(crate) started_ns: u64,
    pub(crate) ended_ns: u64,
    /// Whether it was given up early by design: its time says nothing about the cluster.
    pub(crate) impatient: bool,
    /// The pair whose owner acknowledged it as written.
    pub(crate) written_to: Option<u32>,
}

impl Wait {
    /// What was asked, in words.
    pub(crate) fn words(&self) -> String {
        match self.call {
            Call::Get => "get".to_owned(),
            Call::Put(value) | Call::PutIfAbsent(value) => {
                format!("put of {} bytes", payload::encode(value).len())
            }
            _ => "delete".to_owned(),
        }
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations that ended.
    pub operations: u64,
    /// Writes acknowledged.
    pub writes: u64,
    /// Writes of unknown outcome.
    pub unknown: u64,
    /// Operations that were surely not done.
    pub refused: u64,
}

/// The journal of all clients of a drill.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    recorder: Recorder,
    values: AtomicU64,
    started: AtomicU64,
    state: Mutex<JournalState>,
}

/// What a journal has counted up to some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalSample {
    /// Operations that were started, from the start on.
    pub(crate) started: u64,
    /// Those of them that have ended.
    pub(crate) ended: u64,
    /// How long those took that were answered since the last sample, microseconds.
    pub(crate) answered_us: Vec<u64>,
}

#[derive(Debug, Default)]
struct JournalState {
    accounts: Accounts,
    waits: Vec<Wait>,
    tally: Tally,
    /// Since the last sample.
    answered_us: Vec<u64>,
}

/// An operation that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(crate) key: Vec<u8>,
    /// What is asked.
    pub(crate) call: Call,
    /// Whether the key has this one writer.
    pub(crate) own: bool,
    tick: u64,
    started_ns: u64,
    impatient: bool,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With an answer, or with a write of unknown fate.
    Answered(Outcome),
    /// Surely not done, or a read without an answer: it has no place in a history.
    NotDone,
}

/// What remains when the traffic is over.
pub(crate) struct Closed {
    /// The entries that must be found again.
    pub(crate) accounts: Accounts,
    /// All operations, by key.
    pub(crate) history: BTreeMap<Vec<u8>, Vec<HistoryOperation>>,
    pub(crate) waits: Vec<Wait>,
    pub(crate) tally: Tally,
    /// A tick after all of them.
    pub(crate) end: u64,
}

impl Journal {
    /// A name for a value that no other write of this drill has.
    pub(crate) fn value(&self) -> WrittenValue {
        self.values.fetch_add(1, Ordering::Relaxed)
    }

    /// Call right before an operation is sent.
    pub(crate) fn begin(&self, key: Vec<u8>, call: Call, own: bool, impatient: bool) -> Started {
        self.started.fetch_add(1, Ordering::Relaxed);
        if let (true, Call::Put(value)) = (own, call) {
            self.state().accounts.sent.entry(key.clone()).or_default().push(value);
        }
        Started { key, call, own, tick: self.recorder.begin(), started_ns: boottime_ns(), impatient }
    }

    /// Call right after its end. `written_to` is the pair that a write went to, where the answer says so.
    pub(crate) fn end(&self, started: Started, ending: Ending, written_to: Option<u32>) {
        let ended_ns = boottime_ns();
        let write = started.call != Call::Get;
        if let Ending::Answered(outcome) = ending {
            self.recorder.done(&started.key, started.call, started.tick, outcome);
        }
        let mut state = self.state();
        state.tally.operations += 1;
        match ending {
            Ending::NotDone => state.tally.refused += 1,
            Ending::Answered(Outcome::Unknown) => state.tally.unknown += 1,
            Ending::Answered(_) => {
                state.tally.writes += u64::from(write);
                state.answered_us.push(ended_ns.saturating_sub(started.started_ns) / 1_000);
            }
        }
        if started.own {
            state.accounts.settle(&started.key, started.call, ending);
        }
        let Started { key, call, started_ns, impatient, .. } = started;
        state.waits.push(Wait { key, call, started_ns, ended_ns, impatient, written_to });
    }

    /// What there is by now.
    pub(crate) fn sample(&self) -> JournalSample {
        let mut state = self.state();
        // Read under the lock: whatever has ended was started before.
        let started = self.started.load(Ordering::Relaxed);
        let answered_us = std::mem::take(&mut state.answered_us);
        JournalSample { started, ended: state.tally.operations, answered_us }
    }

    /// The traffic is over.
    pub(crate) fn close(self) -> Closed {
        let end = self.recorder.begin();
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let JournalState { accounts, waits, tally, .. } = state;
        Closed { accounts, history: self.recorder.into_history(), waits, tally, end }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a key of the accounts holds, against what it must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// As answered, or as a later write of unknown outcome left it.
    Right,
    /// Nothing, though a write was acknowledged.
    Lost,
    /// What an acknowledged write has replaced or removed.
    Stale,
    /// What nobody wrote there.
    Phantom,
}

impl Accounts {
    fn settle(&mut self, key: &[u8], call: Call, ending: Ending) {
        let value = match call {
            Call::Put(value) => Some(value),
            Call::Delete => None,
            _ => return,
        };
        match ending {
            Ending::Answered(Outcome::Done) => {
                self.ledger.acknowledge(key, value);
                *self.acknowledged.entry(key.to_vec()).or_default() += 1;
            }
            // A delete that found nothing was carried out too: nothing is there.
            Ending::Answered(Outcome::Refused) if value.is_none() => {
                self.ledger.acknowledge(key, None);
                *self.acknowledged.entry(key.to_vec()).or_default() += 1;
            }
            Ending::Answered(Outcome::Unknown) => self.ledger.doubt(key, value),
            Ending::Answered(_) | Ending::NotDone => {}
        }
    }

    /// Every key that was written, or may have been.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.sent.keys().map(Vec::as_slice)
    }

    /// Whether a write of the key was acknowledged.
    pub(crate) fn is_acknowledged(&self, key: &[u8]) -> bool {
        self.acknowledged.contains_key(key)
    }

    /// Keys with an acknowledged write.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.len() as u64
    }

    /// Whether anybody wrote the key at all.
    pub(crate) fn knows(&self, key: &[u8]) -> bool {
        self.sent.contains_key(key)
    }

    /// Judges what was found at a key; `Err` is a value whose bytes are nobody's.
    pub(crate) fn judge(&self, key: &[u8], found: Result<Option<WrittenValue>, ()>) -> Found {
        let Ok(found) = found else { return Found::Phantom };
        if self.ledger.check(key, found).is_ok() {
            return Found::Right;
        }
        match found {
            None => Found::Lost,
            Some(value) if self.sent.get(key).is_some_and(|sent| sent.contains(&value)) => Found::Stale,
            Some(_) => Found::Phantom,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(journal: &Journal, key: &[u8], call: Call, outcome: Outcome) {
        let started = journal.begin(key.to_vec(), call, true, false);
        journal.end(started, Ending::Answered(outcome), None);
    }

    #[test]
    fn sample_has_the_times_of_what_was_answered_since_the_last_one() {
        let journal = Journal::default();
        write(&journal, b"k", Call::Put(1), Outcome::Done);
        write(&journal, b"k", Call::Put(2), Outcome::Unknown);
        let open = journal.begin(b"m".to_vec(), Call::Put(3), true, false);
        let sample = journal.sample();
        assert_eq!((sample.started, sample.ended, sample.answered_us.len()), (3, 2, 1));
        journal.end(open, Ending::NotDone, None);
        assert_eq!(journal.sample(), JournalSample { started: 3, ended: 3, answered_us: vec![] });
    }

    #[test]
    fn judge_distinguishes_lost_stale_and_phantom() {
        let journal = Journal::default();
        write(&journal, b"k", Call::Put(1), Outcome::Done);
        write(&journal, b"k", Call::Put(2), Outcome::Done);
        write(&journal, b"gone", Call::Put(3), Outcome::Done);
        write(&journal, b"gone", Call::Delete, Outcome::Done);
        let accounts = journal.close().accounts;
        let judge = |key: &[u8], found| accounts.judge(key, found);
        assert_eq!(judge(b"k", Ok(Some(2))), Found::Right);
        assert_eq!(judge(b"k", Ok(Some(1))), Found::Stale);
        assert_eq!(judge(b"k", Ok(None)), Found::Lost);
        assert_eq!(judge(b"k", Ok(Some(3))), Found::Phantom);
        assert_eq!(judge(b"k", Err(())), Found::Phantom);
        assert_eq!(judge(b"gone", Ok(None)), Found::Right);
        assert_eq!(judge(b"gone", Ok(Some(3))), Found::Stale);
        assert_eq!(accounts.acknowledged(), 2);
        assert!(!accounts.knows(b"other"));
    }

    #[test]
    fn judge_an_unknown_write_may_be_there_or_not() {
        let journal = Journal::default();
        write(&journal, b"k", Call::Put(1), Outcome::Done);
        write(&journal, b"k", Call::Put(2), Outcome::Unknown);
        let started = journal.begin(b"k".to_vec(), Call::Put(3), true, false);
        journal.end(started, Ending::NotDone, None);
        let closed = journal.close();
        for (found, judged) in [(1, Found::Right), (2, Found::Right), (3, Found::Stale)] {
            assert_eq!(closed.accounts.judge(b"k", Ok(Some(found))), judged);
        }
        assert_eq!((closed.tally.writes, closed.tally.unknown, closed.tally.refused), (1, 1, 1));
        assert_eq!(closed.history[&b"k".to_vec()].len(), 2);
    }
}
