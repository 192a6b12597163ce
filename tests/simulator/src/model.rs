//! What is known of each key: what every client asked and was answered, which version had which value, and
//! what a recovery brought back. Rules that can be checked at once are held here; whether all of it fits
//! together is asked at the end (`check`), key by key.

use std::collections::BTreeMap;

use cell_client::Operation as ClientOperation;
use cell_random::mix;
use cell_terms::Version;
use cell_tests::linearizability::{Call, HistoryOperation, Outcome, WrittenValue};

use crate::action::Action;

/// The name of all empty values: they cannot say which one they are.
pub const EMPTY: WrittenValue = u64::MAX;
/// A value says its name in its first bytes.
const NAME_BYTES: usize = 8;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Broken {
    /// Which, in words.
    pub what: String,
}

/// Makes a broken rule out of words.
pub fn broken(what: impl std::fmt::Display) -> Broken {
    Broken { what: what.to_string() }
}

/// A key of the model.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Everything asked of it.
    pub operations: Vec<HistoryOperation>,
    /// What it was last known to hold, for conditions.
    pub latest: Option<(Version, WrittenValue)>,
    /// Writes of unknown outcome: the checker keeps only so many apart.
    pub unknown: usize,
    /// Writes of it that are outstanding.
    pub writing: u32,
    /// The versions that anyone has seen, each higher than those before, and when.
    observed: Vec<(u64, Version)>,
}

/// When an operation began, and what was known then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// The logical clock.
    pub at: u64,
}

/// A version that somebody saw without its value.
#[derive(Clone, Copy, Debug)]
struct Glimpse {
    key: usize,
    version: Version,
    invoked: u64,
    returned: u64,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The keys, by number.
    pub keys: Vec<Key>,
    /// Keys by their bytes.
    pub by_bytes: BTreeMap<Vec<u8>, usize>,
    /// A crash may lose what was acknowledged: versions may fall, and histories are not held to any order.
    pub forgets: bool,
    /// Length of each value, by name.
    lengths: Vec<u32>,
    versions: BTreeMap<Version, (usize, WrittenValue)>,
    glimpses: Vec<Glimpse>,
    clock: u64,
}

impl Model {
    /// A model of these keys, all absent.
    #[must_use]
    pub fn new(keys: impl IntoIterator<Item = Vec<u8>>) -> Model {
        let mut model = Model::default();
        for bytes in keys {
            if !model.by_bytes.contains_key(&bytes) {
                model.by_bytes.insert(bytes.clone(), model.keys.len());
                model.keys.push(Key {
                    bytes,
                    operations: Vec::new(),
                    latest: None,
                    unknown: 0,
                    writing: 0,
                    observed: Vec::new(),
                });
            }
        }
        model
    }

    /// Whether a crash may lose what was acknowledged.
    #[must_use]
    pub fn forgetful(self, forgets: bool) -> Model {
        Model { forgets, ..self }
    }

    /// Names a new value of this length, and makes its bytes.
    pub fn new_value(&mut self, length: usize) -> (WrittenValue, Vec<u8>) {
        if length == 0 {
            return (EMPTY, Vec::new());
        }
        let name = self.lengths.len() as u64;
        let length = length.max(NAME_BYTES);
        self.lengths.push(u32::try_from(length).unwrap_or(u32::MAX));
        (name, value_bytes(name, length))
    }

    /// The name of a value, if somebody wrote it.
    ///
    /// # Errors
    /// Nobody wrote these bytes.
    pub fn name_of(&self, bytes: &[u8]) -> Result<WrittenValue, Broken> {
        if bytes.is_empty() {
            return Ok(EMPTY);
        }
        let name = bytes.first_chunk::<NAME_BYTES>().map(|name| u64::from_le_bytes(*name));
        let length = name.and_then(|name| self.lengths.get(usize::try_from(name).ok()?));
        match (name, length) {
            (Some(name), Some(length)) if *length as usize == bytes.len() && is_value(name, bytes) => {
                Ok(name)
            }
            _ => Err(broken(format_args!("phantom: {} bytes that nobody wrote", bytes.len()))),
        }
    }

    /// Hands the action to `submit` as the client takes it.
    pub fn with_operation<T>(&self, action: &Action, submit: impl FnOnce(&ClientOperation<'_>) -> T) -> T {
        let bytes = |key: usize| self.keys[key].bytes.as_slice();
        match action {
            Action::Write { key, call: Call::Delete | Call::Remove(_), condition, .. } => {
                submit(&ClientOperation::Delete { key: bytes(*key), condition: *condition })
            }
            Action::Write { key, condition, value, .. } => {
                submit(&ClientOperation::Put { key: bytes(*key), value, condition: *condition })
            }
            Action::Get(key) => submit(&ClientOperation::Get { key: bytes(*key) }),
            Action::Search(key) => submit(&ClientOperation::Search { key: bytes(*key) }),
            Action::MultiGet(keys) => {
                let keys: Vec<&[u8]> = keys.iter().map(|key| bytes(*key)).collect();
                submit(&ClientOperation::MultiGet { keys: &keys })
            }
            Action::Scan(range) => submit(&ClientOperation::Scan(range.request())),
            Action::Check => submit(&ClientOperation::Check),
        }
    }

    /// A write is outstanding from now on, or (-1) no more.
    pub fn writing(&mut self, action: &Action, change: i32) {
        if let Action::Write { key, .. } = action {
            let writing = &mut self.keys[*key].writing;
            *writing = writing.saturating_add_signed(change);
        }
    }

    /// An operation begins.
    pub fn begin(&mut self) -> Started {
        Started { at: self.now() }
    }

    /// The clock, for an answer that has just come.
    pub fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Somebody was answered that a key holds this value in this version.
    ///
    /// # Errors
    /// The version had another value or key, or time ran backwards: an older version than was seen before the
    /// question.
    pub fn saw(
        &mut self,
        key: usize,
        version: Version,
        value: WrittenValue,
        started: Started,
    ) -> Result<(), Broken> {
        self.saw_version(key, version, started)?;
        let first = *self.versions.entry(version).or_insert((key, value));
        if first != (key, value) {
            return Err(broken(format_args!(
                "version {version} is {value:x} of key {key} now, but was {:x} of key {}",
                first.1, first.0
            )));
        }
        let latest = self.keys[key].latest;
        if latest.is_none_or(|(old, _)| old.pair != version.pair || old <= version) {
            self.keys[key].latest = Some((version, value));
        }
        Ok(())
    }

    /// Somebody was answered that a key has this version.
    ///
    /// # Errors
    /// As [`Model::saw`].
    pub fn saw_version(&mut self, key: usize, version: Version, started: Started) -> Result<(), Broken> {
        if self.forgets {
            return Ok(());
        }
        let observed = &mut self.keys[key].observed;
        let before = observed.partition_point(|(at, _)| *at < started.at);
        // Versions grow within a pair; a key moves to another one with a split.
        let same = |(_, other): &&(u64, Version)| other.pair == version.pair;
        let older = observed[..before].iter().rev().find(same).filter(|(_, before)| version < *before);
        if let Some((_, before)) = older {
            return Err(broken(format_args!("key {key}: version {version} after {before} had been seen")));
        }
        if observed.iter().rev().find(same).is_none_or(|(_, last)| version > *last) {
            observed.push((self.clock, version));
        }
        Ok(())
    }

    /// An operation's end goes into the history. Whether its outcome is known decides when it ended.
    pub fn record(&mut self, key: usize, call: Call, outcome: Outcome, started: Started, returned: u64) {
        let returned = if outcome == Outcome::Unknown { u64::MAX } else { returned };
        self.keys[key].unknown += usize::from(outcome == Outcome::Unknown && call != Call::Get);
        self.keys[key].operations.push(HistoryOperation { call, outcome, invoked: started.at, returned });
    }

    /// A key was seen to have this version, without its value: a read whose answer is looked up at the end.
    pub fn glimpse(&mut self, key: usize, version: Version, started: Started, returned: u64) {
        self.glimpses.push(Glimpse { key, version, invoked: started.at, returned });
    }

    /// Turns the glimpses into reads, now that all versions are known whose values anybody saw.
    pub fn settle_glimpses(&mut self) {
        for glimpse in std::mem::take(&mut self.glimpses) {
            let outcome = match self.versions.get(&glimpse.version) {
                Some((key, value)) if *key == glimpse.key => Outcome::Found(Some(*value)),
                // Another key's version is caught where it is returned with a value; an unknown one at least
                // exists.
                _ => Outcome::Exists,
            };
            let (invoked, returned) = (glimpse.invoked, glimpse.returned);
            self.keys[glimpse.key].operations.push(HistoryOperation {
                call: Call::Get,
                outcome,
                invoked,
                returned,
            });
        }
    }
}

/// Each eighth byte begins a block: the first one is the name, the others follow from it.
fn block_bytes(name: WrittenValue, block: usize) -> [u8; NAME_BYTES] {
    if block == 0 { name } else { mix(name ^ (block as u64) << 40) }.to_le_bytes()
}

fn value_bytes(name: WrittenValue, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let (whole, rest) = bytes.as_chunks_mut::<NAME_BYTES>();
    whole.iter_mut().enumerate().for_each(|(block, bytes)| *bytes = block_bytes(name, block));
    rest.copy_from_slice(&block_bytes(name, whole.len())[..rest.len()]);
    bytes
}

/// Whether these are the bytes of the value of that name.
fn is_value(name: WrittenValue, bytes: &[u8]) -> bool {
    let (whole, rest) = bytes.as_chunks::<NAME_BYTES>();
    whole.iter().enumerate().all(|(block, bytes)| *bytes == block_bytes(name, block))
        && *rest == block_bytes(name, whole.len())[..rest.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_terms::{Csn, Epoch, PairId};

    fn version(csn: u64) -> Version {
        Version { pair: PairId(1), epoch: Epoch(1), csn: Csn(csn) }
    }

    #[test]
    fn name_of_altered_or_cut_value_is_a_phantom() {
        let mut model = Model::default();
        let (name, bytes) = model.new_value(100);
        assert_eq!(model.name_of(&bytes), Ok(name));
        assert!(model.name_of(&bytes[..99]).is_err());
        let mut altered = bytes;
        altered[50] ^= 1;
        assert!(model.name_of(&altered).is_err());
        assert_eq!(model.name_of(b""), Ok(EMPTY));
    }

    #[test]
    fn saw_older_version_than_was_seen_is_broken() {
        let mut model = Model::new([b"k".to_vec()]);
        let (first, _) = model.new_value(8);
        let (second, _) = model.new_value(8);
        let early = model.begin();
        let started = model.begin();
        model.saw(0, version(5), second, started).unwrap();
        let later = model.begin();
        assert!(model.saw(0, version(4), first, later).is_err());
        assert_eq!(model.saw(0, version(4), first, early), Ok(()), "it had started before");
        assert!(model.saw(0, version(5), first, later).is_err(), "one version, two values");
    }
}
