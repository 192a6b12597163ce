//! The proof after a drill: every acknowledged key read back over both search paths and by a full scan, and
//! every key's history put before the checker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use cell_linearizability::checker::{self, Violation};
use cell_linearizability::{Call, HistoryOperation, Outcome, WrittenValue, payload};

use crate::error::DrillError;
use crate::journal::{Closed, Found};
use crate::keys::Keys;

/// Keys that a report names.
const NAMED_MAX: usize = 10;
/// Keys asked for at once.
pub(crate) const KEYS_AT_ONCE: usize = 128;

/// Where a way of reading gets its answers from. The cluster in production, a map in tests.
pub(crate) trait Reader {
    /// The values of some keys, in their order.
    fn get(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, DrillError>;

    /// Every entry that there is, in order.
    fn scan(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), DrillError>;

    /// Of the keys that were got, those whose answer did not come the way that this reader is named after.
    fn strayed(&self) -> u64 {
        0
    }
}

/// What one way of reading found, of the keys with an acknowledged write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFindings {
    /// As they must be.
    pub found: u64,
    /// Not there.
    pub lost: u64,
    /// With a value that was replaced or removed.
    pub stale: u64,
    /// Keys or values that nobody wrote.
    pub phantom: u64,
}

/// What the proof came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrillProof {
    /// Keys with an acknowledged write.
    pub acknowledged: u64,
    /// Of these: right, whichever way they were read.
    pub found: u64,
    /// Missing by one way at least.
    pub lost: u64,
    /// Not missing, but old, by one way at least.
    pub stale: u64,
    /// Keys or values that nobody wrote, by one way at least.
    pub phantom: u64,
    /// Keys whose history has no order.
    pub not_linearizable: u64,
    /// Keys whose history the checker gave up on.
    pub undecided: u64,
    /// Keys whose history was checked.
    pub histories: u64,
    /// Keys that one-sided search did not answer: the server did, and so they were read by one way less.
    pub strayed: u64,
    /// Each way by its name.
    pub ways: Vec<(&'static str, PathFindings)>,
    /// Some of the keys that are wrong, with what is wrong.
    pub named: Vec<(Vec<u8>, &'static str)>,
}

impl DrillProof {
    /// Whether anything is wrong.
    pub fn has_failed(&self) -> bool {
        self.lost + self.stale + self.phantom + self.not_linearizable > 0
    }

    fn name(&mut self, key: &[u8], what: &'static str) {
        if self.named.len() < NAMED_MAX {
            self.named.push((key.to_vec(), what));
        }
    }
}

/// Reads everything back and judges it, unless it is interrupted while it reads. `ways` are readers with
/// their names; the last one also scans.
pub(crate) fn prove(
    mut closed: Closed,
    keys: &Keys,
    ways: &mut [(&'static str, &mut dyn Reader)],
    interrupted: &AtomicBool,
) -> Result<DrillProof, DrillError> {
    let mut worst: BTreeMap<Vec<u8>, Found> = BTreeMap::new();
    let mut proof = DrillProof { acknowledged: closed.accounts.acknowledged(), ..DrillProof::default() };
    let wanted: Vec<Vec<u8>> = closed.accounts.keys().map(<[u8]>::to_vec).collect();
    let shared: Vec<Vec<u8>> = closed.history.keys().filter(|key| keys.is_shared(key)).cloned().collect();
    let all: Vec<&[u8]> = wanted.iter().chain(&shared).map(Vec::as_slice).collect();
    for (name, reader) in &mut *ways {
        let mut found = BTreeMap::new();
        for group in all.chunks(KEYS_AT_ONCE) {
            if interrupted.load(Ordering::Relaxed) {
                return Err(DrillError::Interrupted);
            }
            let values = reader.get(group)?;
            found.extend(group.iter().zip(values).map(|(key, value)| (key.to_vec(), value)));
        }
        let way = take(&mut closed, &found, &BTreeSet::new(), &mut worst);
        proof.ways.push((name, way));
        proof.strayed += reader.strayed();
    }
    if let Some((_, reader)) = ways.last_mut() {
        let (mut found, mut strangers) = (BTreeMap::new(), BTreeSet::new());
        reader.scan(&mut |key, value| {
            if keys.is_own(key) {
                found.insert(key.to_vec(), Some(value.to_vec()));
                if !keys.is_shared(key) && !closed.accounts.knows(key) {
                    strangers.insert(key.to_vec());
                }
            }
        })?;
        for key in &all {
            found.entry(key.to_vec()).or_insert(None);
        }
        let way = take(&mut closed, &found, &strangers, &mut worst);
        proof.ways.push(("scan", way));
    }
    sum_up(&closed, &worst, &mut proof);
    check_histories(&closed.history, &mut proof);
    Ok(proof)
}

/// Judges what one way found, and notes it in the history as reads after everything else.
fn take(
    closed: &mut Closed,
    found: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    strangers: &BTreeSet<Vec<u8>>,
    worst: &mut BTreeMap<Vec<u8>, Found>,
) -> PathFindings {
    let mut way = PathFindings::default();
    let at = closed.end;
    closed.end += 2;
    for (key, value) in found {
        let decoded: Result<Option<WrittenValue>, ()> =
            value.as_deref().map(|value| payload::decode(value).ok_or(())).transpose();
        let seen = decoded.map_or(Some(u64::MAX), |value| value);
        if let Some(history) = closed.history.get_mut(key) {
            let (call, outcome) = (Call::Get, Outcome::Found(seen));
            history.push(HistoryOperation { call, outcome, invoked: at, returned: at + 1 });
        }
        let judged = if strangers.contains(key) {
            Found::Phantom
        } else if closed.accounts.knows(key) {
            closed.accounts.judge(key, decoded)
        } else if decoded.is_err() {
            Found::Phantom // a key that several write: the checker finds the rest
        } else {
            continue;
        };
        let acknowledged = u64::from(closed.accounts.is_acknowledged(key));
        match judged {
            Found::Right => way.found += acknowledged,
            Found::Lost => way.lost += 1,
            Found::Stale => way.stale += 1,
            Found::Phantom => way.phantom += 1,
        }
        let rank = |found: &Found| {
            [Found::Right, Found::Phantom, Found::Stale, Found::Lost].iter().position(|f| f == found)
        };
        let kept = worst.entry(key.clone()).or_insert(judged);
        if rank(&judged) > rank(kept) {
            *kept = judged;
        }
    }
    way
}

fn sum_up(closed: &Closed, worst: &BTreeMap<Vec<u8>, Found>, proof: &mut DrillProof) {
    for (key, found) in worst {
        match found {
            Found::Right => proof.found += u64::from(closed.accounts.is_acknowledged(key)),
            Found::Lost => {
                proof.lost += 1;
                proof.name(key, "lost");
            }
            Found::Stale => {
                proof.stale += 1;
                proof.name(key, "stale");
            }
            Found::Phantom => {
                proof.phantom += 1;
                proof.name(key, "phantom");
            }
        }
    }
}

fn check_histories(history: &BTreeMap<Vec<u8>, Vec<HistoryOperation>>, proof: &mut DrillProof) {
    for (key, operations) in history {
        proof.histories += 1;
        match checker::check(operations, None) {
            Ok(()) => {}
            Err(Violation::NotLinearizable(_)) => {
                proof.not_linearizable += 1;
                proof.name(key, "not linearizable");
            }
            Err(Violation::TooWide | Violation::Undecided) => proof.undecided += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Ending, Journal};

    /// A store that may answer wrongly.
    #[derive(Clone, Default)]
    struct Model(BTreeMap<Vec<u8>, Vec<u8>>);

    impl Reader for Model {
        fn get(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, DrillError> {
            Ok(keys.iter().map(|key| self.0.get(*key).cloned()).collect())
        }

        fn scan(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), DrillError> {
            self.0.iter().for_each(|(key, value)| each(key, value));
            Ok(())
        }
    }

    /// A drill's journal and the store that it describes.
    fn drilled(keys: &Keys) -> (Journal, Model) {
        let (journal, mut model) = (Journal::default(), Model::default());
        for number in 1..=20 {
            put(&journal, &mut model, keys.own(1, number), true);
        }
        put(&journal, &mut model, keys.own(1, 3), true);
        put(&journal, &mut model, keys.shared(1, 3), false);
        model.0.insert(b"somebody else's".to_vec(), b"x".to_vec());
        (journal, model)
    }

    fn put(journal: &Journal, model: &mut Model, key: Vec<u8>, own: bool) {
        let value = journal.value();
        let started = journal.begin(key.clone(), Call::Put(value), own, false);
        model.0.insert(key, payload::encode(value));
        journal.end(started, Ending::Answered(Outcome::Done), Some(1));
    }

    fn prove_with(journal: Journal, keys: &Keys, server: Model, client: Model) -> DrillProof {
        let (mut server, mut client) = (server, client);
        let ways: &mut [(&'static str, &mut dyn Reader)] =
            &mut [("client", &mut client), ("server", &mut server)];
        prove(journal.close(), keys, ways, &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn prove_ends_when_it_is_interrupted() {
        let keys = Keys::new(1);
        let (journal, mut model) = drilled(&keys);
        let ways: &mut [(&'static str, &mut dyn Reader)] = &mut [("client", &mut model)];
        let ended = prove(journal.close(), &keys, ways, &AtomicBool::new(true));
        assert!(matches!(ended, Err(DrillError::Interrupted)));
    }

    #[test]
    fn prove_everything_there_passes() {
        let keys = Keys::new(1);
        let (journal, model) = drilled(&keys);
        let proof = prove_with(journal, &keys, model.clone(), model);
        assert!(!proof.has_failed(), "{proof:?}");
        assert_eq!((proof.acknowledged, proof.found, proof.histories), (20, 20, 21));
        assert_eq!(
            proof.ways.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            ["client", "server", "scan"]
        );
    }

    /// The planted loss: an entry of the ledger that was never written.
    #[test]
    fn prove_a_ledger_entry_that_was_never_written_is_lost() {
        let keys = Keys::new(1);
        let (journal, model) = drilled(&keys);
        put(&journal, &mut Model::default(), keys.own(1, 21), true);
        let proof = prove_with(journal, &keys, model.clone(), model);
        assert_eq!((proof.lost, proof.found, proof.not_linearizable), (1, 20, 1));
        assert_eq!(proof.named[0], (keys.own(1, 21), "lost"));
        assert!(proof.has_failed());
    }

    #[test]
    fn prove_a_loss_by_one_way_alone_is_a_loss() {
        let keys = Keys::new(1);
        let (journal, model) = drilled(&keys);
        let mut blind = model.clone();
        blind.0.remove(&keys.own(1, 7));
        let proof = prove_with(journal, &keys, model, blind);
        let ways: Vec<_> = proof.ways.iter().map(|(_, way)| (way.found, way.lost)).collect();
        assert_eq!((proof.lost, proof.found, ways), (1, 19, vec![(19, 1), (20, 0), (20, 0)]));
    }

    #[test]
    fn prove_old_values_and_strangers_are_reported() {
        let keys = Keys::new(1);
        let (journal, mut model) = drilled(&keys);
        model.0.insert(keys.own(1, 3), payload::encode(2)); // its first value
        model.0.insert(keys.own(2, 99), payload::encode(1));
        model.0.insert(keys.own(1, 4), b"nobody's bytes".to_vec());
        let proof = prove_with(journal, &keys, model.clone(), model);
        assert_eq!((proof.stale, proof.phantom, proof.lost, proof.found), (1, 2, 0, 18), "{proof:?}");
    }

    #[test]
    fn prove_a_key_that_several_write_is_judged_by_its_history() {
        let keys = Keys::new(1);
        let (journal, mut model) = drilled(&keys);
        model.0.remove(&keys.shared(1, 3));
        let proof = prove_with(journal, &keys, model.clone(), model);
        assert_eq!((proof.not_linearizable, proof.lost), (1, 0));
        assert!(proof.has_failed());
    }
}
