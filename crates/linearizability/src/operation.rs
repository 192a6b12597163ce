//! What clients did and saw, by key, on one logical clock.
//!
//! The clock is a counter that every client draws from right before it calls and right after it has the
//! answer, so its order agrees with real time wherever two operations did not overlap. Values are names:
//! tests write each value once, so that who read what is never in doubt.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A value's name; tests never write the same one twice to a key.
pub type WrittenValue = u64;

/// What a client asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The value of the key.
    Get,
    /// Store whatever was there before.
    Put(WrittenValue),
    /// Remove.
    Delete,
    /// Store if the key is not there.
    PutIfAbsent(WrittenValue),
    /// Store if the key is there.
    PutIfPresent(WrittenValue),
    /// Store if the key holds `expected` (a client asks by version; the test knows whose version that is).
    Replace {
        /// What must be there.
        expected: WrittenValue,
        /// What to store.
        value: WrittenValue,
    },
    /// Remove if the key holds this value.
    Remove(WrittenValue),
}

/// What it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To a get: this value, or no such key.
    Found(Option<WrittenValue>),
    /// To a get that does not want the value: there is one.
    Exists,
    /// A write was done.
    Done,
    /// A delete found nothing; a condition did not hold.
    Refused,
    /// No answer that decides it: the write may have happened, may happen yet, or never.
    Unknown,
}

/// One operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryOperation {
    /// What was asked.
    pub call: Call,
    /// What was answered.
    pub outcome: Outcome,
    /// The clock before the call.
    pub invoked: u64,
    /// The clock after the answer; `u64::MAX` of an unknown outcome.
    pub returned: u64,
}

/// Records what all clients of a test do.
#[derive(Debug, Default)]
pub struct Recorder {
    clock: AtomicU64,
    keys: Mutex<BTreeMap<Vec<u8>, Vec<HistoryOperation>>>,
}

impl Recorder {
    /// Call right before an operation is sent; pass what it gives to [`Self::done`].
    pub fn begin(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Call right after the answer, or when it is clear that none will come.
    pub fn done(&self, key: &[u8], call: Call, invoked: u64, outcome: Outcome) {
        let now = self.clock.fetch_add(1, Ordering::SeqCst);
        let returned = if outcome == Outcome::Unknown { u64::MAX } else { now };
        let operation = HistoryOperation { call, outcome, invoked, returned };
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.entry(key.to_vec()).or_default().push(operation);
    }

    /// Calls and answers so far, two an operation.
    pub fn ticks(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    /// Everything recorded, by key.
    pub fn into_history(self) -> BTreeMap<Vec<u8>, Vec<HistoryOperation>> {
        self.keys.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
