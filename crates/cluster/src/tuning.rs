//! Settings that were changed for the whole cluster while it runs: the values in force, and who changed what.
//! A change is one transaction, made for the revision that its author has seen; nodes follow the row by their
//! watch, and a node that starts finds it there.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::attempts::Attempts;
use crate::coordinator::{Coordinator, parse, text};
use crate::error::ClusterError;
use crate::request::{KeyCondition, KeyValue, Transaction, TransactionOutcome};

/// Where the values lie that are in force.
pub(crate) const KEY_TUNING: &str = "tuning/current";
/// Under which the changes lie, by their revisions.
const KEY_CHANGES: &str = "tuning/change/";
/// Changes that are kept.
const CHANGES_MAX: u64 = 200;
/// Longest row of values, in bytes: what the coordinator takes, with some room.
const ROW_BYTES_MAX: usize = 30 << 10;
/// Longest reason, and longest name of an author, in bytes.
pub const WORDS_BYTES_MAX: usize = 500;

/// A value that is in force on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunedValue {
    /// As people write it.
    pub text: String,
    /// When it ends, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_ms: Option<u64>,
    /// What is in force after that; none: what each node was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// The values in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TuningRow {
    /// Counts the changes; 0: there was none.
    pub revision: u64,
    /// By the settings' names.
    pub values: BTreeMap<String, TunedValue>,
}

/// The end of a value that holds for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunedEnd {
    /// When it ends, in milliseconds since 1970.
    pub expires_unix_ms: u64,
    /// What is in force after that; none: what each node was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// One setting of a change. None: what each node was started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunedSetting {
    /// Its name.
    pub name: String,
    /// The value before.
    pub old: Option<String>,
    /// The end that the value before had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_end: Option<TunedEnd>,
    /// The value from then on.
    pub new: Option<String>,
}

impl TunedSetting {
    /// What takes the change of this setting back at this time: the value, and its end. A value that would
    /// have ended meanwhile is not restored, but what was to follow it.
    #[must_use]
    pub fn reverted(self, now_unix_ms: u64) -> (Option<String>, Option<TunedEnd>) {
        match self.old_end {
            Some(end) if end.expires_unix_ms <= now_unix_ms => (end.after, None),
            end => (self.old, end),
        }
    }
}

/// Settings that were changed together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TuningChange {
    /// The revision that it made.
    pub revision: u64,
    /// Distinguishes this change from another of the same revision: drawn by its author.
    pub id: u64,
    /// When, in milliseconds since 1970, by its author's clock.
    pub at_unix_ms: u64,
    /// Who.
    pub who: String,
    /// Why, in the author's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_ms: Option<u64>,
    /// Of which change it takes the values back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverts: Option<u64>,
    /// What.
    pub settings: Vec<TunedSetting>,
}

/// A change that somebody wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedTuning {
    /// As in [`TuningChange`].
    pub id: u64,
    /// As in [`TuningChange`].
    pub at_unix_ms: u64,
    /// As in [`TuningChange`], cut at [`WORDS_BYTES_MAX`].
    pub who: String,
    /// As in [`TuningChange`], cut at [`WORDS_BYTES_MAX`].
    pub reason: Option<String>,
    /// As in [`TuningChange`].
    pub expires_unix_ms: Option<u64>,
    /// As in [`TuningChange`].
    pub reverts: Option<u64>,
    /// By the settings' names; none takes a value back.
    pub values: BTreeMap<String, Option<String>>,
    /// By names, the ends of single values, instead of `expires_unix_ms` and what the row has.
    pub ends: BTreeMap<String, TunedEnd>,
}

/// What became of a wanted change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tuned {
    /// It is in force, or will be wherever a node looks.
    Changed(TuningChange),
    /// All values are what they were: nothing was written.
    Unchanged,
    /// Somebody else was faster: this revision is in force.
    Stale(u64),
}

impl TunedValue {
    /// Its end, if it has one.
    fn end(&self) -> Option<TunedEnd> {
        let expires_unix_ms = self.expires_unix_ms?;
        Some(TunedEnd { expires_unix_ms, after: self.after.clone() })
    }
}

impl WantedTuning {
    /// The end that a value is to have, which follows `known`. What is taken back has no end.
    fn end_of(&self, name: &str, known: Option<&TunedValue>) -> Option<TunedEnd> {
        self.values.get(name)?.as_ref()?;
        if let Some(end) = self.ends.get(name) {
            return Some(end.clone());
        }
        let expires_unix_ms = self.expires_unix_ms?;
        let after = match known {
            // What was to end anyway ends as it was to.
            Some(value) if value.expires_unix_ms.is_some() => value.after.clone(),
            _ => known.map(|value| value.text.clone()),
        };
        Some(TunedEnd { expires_unix_ms, after })
    }
}

impl TuningRow {
    /// The row after a wanted change, and what of it differs.
    #[must_use]
    pub fn after(&self, wanted: &WantedTuning) -> (TuningRow, Vec<TunedSetting>) {
        let mut row = TuningRow { revision: self.revision + 1, values: self.values.clone() };
        let mut settings = Vec::new();
        for (name, new) in &wanted.values {
            let known = self.values.get(name);
            let old = known.map(|value| value.text.clone());
            let old_end = known.and_then(TunedValue::end);
            let end = wanted.end_of(name, known);
            if old == *new
                && old_end.as_ref().map(|end| end.expires_unix_ms)
                    == end.as_ref().map(|end| end.expires_unix_ms)
            {
                continue;
            }
            match new {
                None => drop(row.values.remove(name)),
                Some(text) => {
                    let (expires_unix_ms, after) = match end {
                        Some(TunedEnd { expires_unix_ms, after }) => (Some(expires_unix_ms), after),
                        None => (None, None),
                    };
                    row.values
                        .insert(name.clone(), TunedValue { text: text.clone(), expires_unix_ms, after });
                }
            }
            settings.push(TunedSetting { name: name.clone(), old, old_end, new: new.clone() });
        }
        (row, settings)
    }

    /// What takes back the values whose time is over; none if there are none.
    #[must_use]
    pub fn expired(&self, now_unix_ms: u64) -> Option<BTreeMap<String, Option<String>>> {
        let over = |value: &TunedValue| value.expires_unix_ms.is_some_and(|at| at <= now_unix_ms);
        let values = self.values.iter().filter(|(_, value)| over(value));
        let values: BTreeMap<_, _> =
            values.map(|(name, value)| (name.clone(), value.after.clone())).collect();
        (!values.is_empty()).then_some(values)
    }
}

/// The tuning. Clones share the coordinator.
#[derive(Clone)]
pub struct Tuning {
    coordinator: Arc<dyn Coordinator>,
}

impl Tuning {
    /// The tuning that `coordinator` holds.
    #[must_use]
    pub fn new(coordinator: Arc<dyn Coordinator>) -> Tuning {
        Tuning { coordinator }
    }

    /// The values in force.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn current(&self) -> Result<TuningRow, ClusterError> {
        Ok(self.read()?.0)
    }

    /// The row, the condition under which it is replaced, and whether it reads: where it does not, what the
    /// changes made of it.
    fn read(&self) -> Result<(TuningRow, KeyCondition, bool), ClusterError> {
        let key = KEY_TUNING.to_owned();
        match self.coordinator.read(KEY_TUNING)? {
            None => Ok((TuningRow::default(), KeyCondition::Absent { key }, true)),
            Some(entry) => {
                let condition = KeyCondition::Revision { key, revision: entry.revision };
                match parse("the tuning", &entry.value) {
                    Ok(row) => Ok((row, condition, true)),
                    Err(_) => Ok((self.from_changes()?, condition, false)),
                }
            }
        }
    }

    /// The row that the changes make which are kept: for when the row itself does not read.
    pub(crate) fn from_changes(&self) -> Result<TuningRow, ClusterError> {
        let made = |row: TuningRow, change: TuningChange| {
            let values = change.settings.into_iter().map(|setting| (setting.name, setting.new)).collect();
            let wanted =
                WantedTuning { expires_unix_ms: change.expires_unix_ms, values, ..WantedTuning::default() };
            TuningRow { revision: change.revision, ..row.after(&wanted).0 }
        };
        Ok(self.changes()?.into_iter().rev().fold(TuningRow::default(), made))
    }

    /// The last changes, the newest first. One that does not read is passed over.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn changes(&self) -> Result<Vec<TuningChange>, ClusterError> {
        let entries = self.coordinator.list(KEY_CHANGES)?.entries;
        let read = |entry: &KeyValue| {
            let row = parse("a change of the tuning", &entry.value);
            row.inspect_err(|error| tracing::warn!(key = entry.key, %error, "passed over")).ok()
        };
        Ok(entries.iter().rev().filter_map(read).collect())
    }

    /// Changes values if the revision is still the one that the author has seen.
    ///
    /// # Errors
    /// [`ClusterError::TooLong`] for more values than a row takes; else see [`Coordinator::call`].
    pub fn change(&self, expected: u64, wanted: &WantedTuning) -> Result<Tuned, ClusterError> {
        let mut attempts = Attempts::default();
        while attempts.left() {
            let (row, condition, reads) = self.read()?;
            if row.revision != expected {
                // Possibly by this very change, whose answer was lost.
                return match self.own(expected + 1, wanted.id)? {
                    Some(change) => Ok(Tuned::Changed(change)),
                    None => Ok(Tuned::Stale(row.revision)),
                };
            }
            let (row, settings) = row.after(wanted);
            // One that does not read is written anew, by whatever change comes.
            if settings.is_empty() && reads {
                return Ok(Tuned::Unchanged);
            }
            let change = TuningChange {
                revision: row.revision,
                id: wanted.id,
                at_unix_ms: wanted.at_unix_ms,
                who: cut(&wanted.who),
                reason: wanted.reason.as_deref().map(cut),
                expires_unix_ms: wanted.expires_unix_ms,
                reverts: wanted.reverts,
                settings,
            };
            let value = text(&row);
            if value.len() > ROW_BYTES_MAX {
                return Err(ClusterError::TooLong { what: "the tuning" });
            }
            let mut write = Transaction::new()
                .when(condition)
                .put(KEY_TUNING, value)
                .put(change_key(row.revision), text(&change));
            if let Some(old) = row.revision.checked_sub(CHANGES_MAX).filter(|old| *old > 0) {
                write = write.delete(change_key(old));
            }
            match self.coordinator.transact(write) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(Tuned::Changed(change)),
                Ok(TransactionOutcome::Refused { .. }) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(_)) => attempts.unanswered(),
                Err(error) => return Err(error),
            }
        }
        Err(ClusterError::Contended { what: "the tuning" })
    }

    /// The change that made a revision, if it is this author's.
    fn own(&self, revision: u64, id: u64) -> Result<Option<TuningChange>, ClusterError> {
        let Some(entry) = self.coordinator.read(&change_key(revision))? else { return Ok(None) };
        let change: TuningChange = parse("a change of the tuning", &entry.value)?;
        Ok(Some(change).filter(|change| change.id == id))
    }
}

/// Keys sort as revisions do.
fn change_key(revision: u64) -> String {
    format!("{KEY_CHANGES}{revision:016x}")
}

fn cut(words: &str) -> String {
    words[..words.floor_char_boundary(WORDS_BYTES_MAX)].to_owned()
}
