//! Settings that were changed for the whole cluster while it runs: the values in force, and who changed what.
//! A change is one transaction, made for the revision that its author has seen; nodes follow the row by their
//! watch, and a node that starts finds it there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::attempts::Attempts;
use crate::coordinator::{Coordinator, parse, text};
use crate::error::ClusterError;
use crate::request::{CoordinatorRefusal, KeyCondition, Quota, Transaction, TransactionOutcome};

/// Where the values lie that are in force.
pub(crate) const KEY_TUNING: &str = "tuning/current";
/// Under which the changes lie, by their revisions.
const KEY_CHANGES: &str = "tuning/change/";
/// Changes that are kept: so many that nobody flushes the trail of what they did by doing more.
pub const CHANGES_MAX: u64 = 10_000;
/// Changes that go at once, the oldest ones, when their bytes leave no room for another.
const DROPPED_MAX: usize = 100;
/// So many bytes are enough then: a few changes' worth, so that not each one has to ask for them.
const FREED_BYTES: usize = 256 << 10;
/// Values with an end that may wait below another one with an end.
const STEPS_MAX: usize = 4;
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
    /// The ends of `after` and of what follows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<TunedStep>,
}

/// The end of one of several values that follow each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunedStep {
    /// When it ends, in milliseconds since 1970.
    pub expires_unix_ms: u64,
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
    /// The ends of `after` and of what follows it, each later than the one before: an outer time to live goes
    /// on when an inner one is over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<TunedStep>,
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
    /// When that ends, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_expires_unix_ms: Option<u64>,
}

impl TunedSetting {
    /// What takes the change of this setting back at this time: the value, and its end. A value that would
    /// have ended meanwhile is not restored, but what was to follow it.
    #[must_use]
    pub fn reverted(self, now_unix_ms: u64) -> (Option<String>, Option<TunedEnd>) {
        at(self.old, self.old_end, now_unix_ms)
    }
}

/// Of a value and what follows it, what is in force at a time, and the end that this has.
fn at(value: Option<String>, end: Option<TunedEnd>, now_unix_ms: u64) -> (Option<String>, Option<TunedEnd>) {
    let Some(TunedEnd { expires_unix_ms, after, later }) = end else { return (value, None) };
    let steps = std::iter::once(TunedStep { expires_unix_ms, after }).chain(later);
    let (mut value, mut left) = (value, steps.peekable());
    while let Some(step) = left.next_if(|step| step.expires_unix_ms <= now_unix_ms) {
        value = step.after;
    }
    let end = left.next().map(|TunedStep { expires_unix_ms, after }| {
        let later = left.collect();
        TunedEnd { expires_unix_ms, after, later }
    });
    (value, end)
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
    /// The last change that took its values back. Nothing else of a change is written later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted_by: Option<u64>,
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
        Some(TunedEnd { expires_unix_ms, after: self.after.clone(), later: self.later.clone() })
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
        // What would have ended by then is not in force again.
        let (text, end) = (known.map(|value| value.text.clone()), known.and_then(TunedValue::end));
        let (after, end) = at(text, end, expires_unix_ms);
        let later = end.map(|TunedEnd { expires_unix_ms, after, later }| {
            std::iter::once(TunedStep { expires_unix_ms, after }).chain(later).collect()
        });
        Some(TunedEnd { expires_unix_ms, after, later: later.unwrap_or_default() })
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
            if old == *new && old_end == end {
                continue;
            }
            match new {
                None => drop(row.values.remove(name)),
                Some(text) => {
                    let (text, end) = (text.clone(), end.clone());
                    let (expires_unix_ms, after, later) = end.map_or((None, None, Vec::new()), |end| {
                        (Some(end.expires_unix_ms), end.after, end.later)
                    });
                    row.values.insert(name.clone(), TunedValue { text, expires_unix_ms, after, later });
                }
            }
            let (name, new) = (name.clone(), new.clone());
            let new_expires_unix_ms = end.map(|end| end.expires_unix_ms);
            settings.push(TunedSetting { name, old, old_end, new, new_expires_unix_ms });
        }
        (row, settings)
    }

    /// The row after a change that was made once, of which `reverted` is the change that it takes back. It
    /// says when a restored value ends and not what follows then: that was to follow it before, too.
    fn made_again(&self, change: &TuningChange, reverted: Option<&TuningChange>) -> TuningRow {
        let mut wanted = WantedTuning { expires_unix_ms: change.expires_unix_ms, ..WantedTuning::default() };
        for TunedSetting { name, new, new_expires_unix_ms, .. } in &change.settings {
            wanted.values.insert(name.clone(), new.clone());
            if let (None, Some(expires_unix_ms)) = (change.expires_unix_ms, *new_expires_unix_ms) {
                let taken = reverted.and_then(|of| of.settings.iter().find(|taken| taken.name == *name));
                let taken = taken.and_then(|taken| taken.old_end.clone());
                let before = [taken, self.values.get(name).and_then(TunedValue::end)].into_iter();
                let mut left = before.filter_map(|end| at(None, end, expires_unix_ms.saturating_sub(1)).1);
                let known = left.find(|end| end.expires_unix_ms == expires_unix_ms);
                let bare = || TunedEnd { expires_unix_ms, after: None, later: Vec::new() };
                wanted.ends.insert(name.clone(), known.unwrap_or_else(bare));
            }
        }
        TuningRow { revision: change.revision, ..self.after(&wanted).0 }
    }

    /// What takes back the values whose time is over, with nothing but values and ends; none if there are
    /// none.
    #[must_use]
    pub fn expired(&self, now_unix_ms: u64) -> Option<WantedTuning> {
        let mut wanted = WantedTuning::default();
        let over = |value: &TunedValue| value.expires_unix_ms.is_some_and(|at| at <= now_unix_ms);
        for (name, value) in self.values.iter().filter(|(_, value)| over(value)) {
            let (after, end) = at(Some(value.text.clone()), value.end(), now_unix_ms);
            wanted.ends.extend(end.map(|end| (name.clone(), end)));
            wanted.values.insert(name.clone(), after);
        }
        (!wanted.values.is_empty()).then_some(wanted)
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
                    Err(_) => Ok((self.row_of_changes()?, condition, false)),
                }
            }
        }
    }

    /// The row that the changes make which are kept: for when the row itself does not read.
    pub(crate) fn row_of_changes(&self) -> Result<TuningRow, ClusterError> {
        let (changes, _) = self.kept(1..u64::MAX)?;
        let made = |row: TuningRow, change: &TuningChange| {
            let reverted = changes.iter().find(|of| Some(of.revision) == change.reverts);
            row.made_again(change, reverted)
        };
        Ok(changes.iter().fold(TuningRow::default(), made))
    }

    /// The last changes before a revision, or of all, the newest first; at most so many. One that does not
    /// read is passed over.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn changes(&self, before: Option<u64>, limit: u64) -> Result<Vec<TuningChange>, ClusterError> {
        let end = self.current()?.revision + 1;
        let mut end = before.map_or(end, |before| before.min(end));
        let mut changes = Vec::new();
        // Revisions are dense: the first of those that are wanted is known, unless one does not read.
        loop {
            let missing = limit.saturating_sub(changes.len() as u64);
            let first = end.saturating_sub(missing).max(1);
            let (part, seen) = self.kept(first..end)?;
            changes.extend(part.into_iter().rev());
            end = first;
            if seen == 0 || end == 1 || changes.len() as u64 >= limit {
                return Ok(changes);
            }
        }
    }

    /// The changes of these revisions that are kept and read, the oldest first, and how many are kept.
    fn kept(&self, revisions: Range<u64>) -> Result<(Vec<TuningChange>, u64), ClusterError> {
        let (mut after, end) = (change_key(revisions.start - 1), change_key(revisions.end));
        let (mut changes, mut count) = (Vec::new(), 0);
        loop {
            let page = self.coordinator.page(KEY_CHANGES, Some(&after))?;
            for entry in page.entries.iter().filter(|entry| entry.key < end) {
                count += 1;
                match parse("a change of the tuning", &entry.value) {
                    Ok(change) => changes.push(change),
                    Err(error) => tracing::warn!(key = entry.key, %error, "passed over"),
                }
            }
            match page.entries.last() {
                Some(last) if page.more && last.key < end => after.clone_from(&last.key),
                _ => return Ok((changes, count)),
            }
        }
    }

    /// The change that made a revision, if it is kept.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn change_of(&self, revision: u64) -> Result<Option<TuningChange>, ClusterError> {
        let Some(entry) = self.coordinator.read(&change_key(revision))? else { return Ok(None) };
        parse("a change of the tuning", &entry.value).map(Some)
    }

    /// Changes values if the revision is still the one that the author has seen.
    ///
    /// # Errors
    /// [`ClusterError::TooLong`] for more values than a row takes; else see [`Coordinator::call`].
    pub fn change(&self, expected: u64, wanted: &WantedTuning) -> Result<Tuned, ClusterError> {
        Attempts::of(|attempts| self.change_in(attempts, expected, wanted))
    }

    fn change_in(
        &self,
        attempts: &mut Attempts,
        expected: u64,
        wanted: &WantedTuning,
    ) -> Result<Tuned, ClusterError> {
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
                reverted_by: None,
                settings,
            };
            let is_deep = |value: &TunedValue| value.later.len() > STEPS_MAX;
            let (value, made) = (text(&row), text(&change));
            if value.len().max(made.len()) > ROW_BYTES_MAX || row.values.values().any(is_deep) {
                return Err(ClusterError::TooLong { what: "the tuning" });
            }
            let write =
                Transaction::new().when(condition).put(KEY_TUNING, value).put(change_key(row.revision), made);
            match self.coordinator.transact(self.with_changes(write, row.revision, wanted.reverts)?) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(Tuned::Changed(change)),
                Ok(TransactionOutcome::Refused { .. }) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(error)) => attempts.unanswered(&error),
                // Those that are kept leave no room for it: the oldest ones go, until they do.
                Err(error @ ClusterError::Refused(CoordinatorRefusal::Quota { what: Quota::Bytes, .. })) => {
                    if !self.drop_oldest()? {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(attempts.given_up("the tuning"))
    }

    /// What goes with a change: the oldest one that is kept goes, and one that it takes back says so.
    fn with_changes(
        &self,
        mut write: Transaction,
        revision: u64,
        reverts: Option<u64>,
    ) -> Result<Transaction, ClusterError> {
        let old = revision.checked_sub(CHANGES_MAX).filter(|old| *old > 0);
        if let Some(old) = old {
            write = write.delete(change_key(old));
        }
        let reverted = reverts.filter(|reverted| Some(*reverted) != old);
        // No other change can come between: the condition covers this row, too.
        if let Some(mut reverted) = reverted.map(|it| self.change_of(it)).transpose()?.flatten() {
            reverted.reverted_by = Some(revision);
            write = write.put(change_key(reverted.revision), text(&reverted));
        }
        Ok(write)
    }

    /// Removes the oldest changes that are kept, some of them; whether there were any.
    fn drop_oldest(&self) -> Result<bool, ClusterError> {
        let page = self.coordinator.page(KEY_CHANGES, None)?;
        if page.entries.is_empty() {
            return Ok(false);
        }
        let mut bytes = 0;
        let few = page.entries.iter().take(DROPPED_MAX).take_while(|entry| {
            let before = bytes;
            bytes += entry.value.len();
            before < FREED_BYTES
        });
        let write = few.fold(Transaction::new(), |write, entry| write.delete(entry.key.clone()));
        self.coordinator.transact(write)?;
        Ok(true)
    }

    /// The change that made a revision, if it is this author's.
    fn own(&self, revision: u64, id: u64) -> Result<Option<TuningChange>, ClusterError> {
        Ok(self.change_of(revision)?.filter(|change| change.id == id))
    }
}

/// Keys sort as revisions do.
fn change_key(revision: u64) -> String {
    format!("{KEY_CHANGES}{revision:016x}")
}

fn cut(words: &str) -> String {
    words[..words.floor_char_boundary(WORDS_BYTES_MAX)].to_owned()
}
