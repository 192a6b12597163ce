//! Sides of a split at different nodes: what each owner writes down for the other, by way of the coordinator
//! (`cell_cluster::Notes`). Both go by what the notes say *now*, as often as they look: a note that is late,
//! lost or written twice does no harm.
//!
//! 1. the target's owner writes how far it is, and so asks;
//! 2. the source's owner sees it, takes its own side as far as that permits, and answers what is durable;
//! 3. the target's owner goes by the answer; at the end it removes both notes.
//!
//! The router's entry is a note of its own, removed by the router's owner when it is durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_cluster::{NoteKind, NoteRow, SourceNote, TargetNote, note_key, parse_note_key};
use cell_recovery::{Answer, SplitName};
use cell_terms::PairId;

use super::{Splits, parent};
use crate::worker::pairs::Pairs;

/// A note that is not seen yet is written again after so long.
const AGAIN_NS: u64 = 500_000_000;

/// The notes of all nodes, as they were at a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotesView {
    /// The revision.
    pub revision: u64,
    /// The notes, by their keys.
    pub notes: BTreeMap<String, NoteRow>,
}

/// A note to be written, or with none to be removed.
pub(crate) type NoteWish = (String, Option<NoteRow>);

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct SplitNotes {
    seen: Arc<NotesView>,
    /// What was asked for lately, and when.
    asked: BTreeMap<String, (Option<NoteRow>, u64)>,
    /// Notes of router entries that are durable.
    inserted: Vec<String>,
    wishes: Vec<NoteWish>,
}

impl SplitNotes {
    /// The entry that a note asked for is durable.
    pub(super) fn is_inserted(&mut self, note: String) {
        self.inserted.push(note);
    }

    /// Asks for a note, or for its removal, unless it is so already or was asked for a moment ago.
    fn wish(&mut self, key: String, note: Option<NoteRow>, now_ns: u64) {
        if self.seen.notes.get(&key) == note.as_ref() {
            self.asked.remove(&key);
            return;
        }
        let fresh = |(of, at): &(Option<NoteRow>, u64)| *of == note && now_ns < at.saturating_add(AGAIN_NS);
        if !self.asked.get(&key).is_some_and(fresh) {
            self.asked.insert(key.clone(), (note.clone(), now_ns));
            self.wishes.push((key, note));
        }
    }
}

impl Splits {
    /// The notes as they are now.
    pub(crate) fn notes_came(&mut self, notes: Arc<NotesView>) {
        self.notes.seen = notes;
    }

    /// A note was written, at this revision.
    pub(crate) fn note_written(&mut self, key: &str, revision: u64) {
        for entry in self.parents.queue_mut().filter(|entry| note_key_of(entry.name, NoteKind::Parent) == key)
        {
            entry.asked = entry.asked.or(Some(revision));
        }
    }

    /// What is to be written.
    pub(crate) fn take_note_wishes(&mut self) -> Vec<NoteWish> {
        std::mem::take(&mut self.notes.wishes)
    }

    /// Goes by what others have written, and says what is to be written of the pairs that are here.
    pub(super) fn exchange_notes(&mut self, pairs: &mut Pairs, now_ns: u64) {
        let elsewhere = self.targets.iter().any(|target| pairs.at(target.name().pair).is_none());
        let routes = parent::root_pair(pairs).is_none() && self.parents.queue().next().is_some();
        if self.notes.seen.notes.is_empty() && !elsewhere && !routes && self.notes.inserted.is_empty() {
            self.notes.asked.clear();
            return;
        }
        let seen = self.notes.seen.clone();
        for (key, note) in &seen.notes {
            let named = parse_note_key(key).and_then(|(name, _)| SplitName::from_word(name));
            let Some(name) = named else { continue };
            match note {
                NoteRow::Target { source, target, state } => {
                    self.source_hears(pairs, name, (*source, *target), *state, now_ns);
                    self.tidy(pairs, name, *target, now_ns);
                }
                NoteRow::Source { target, answer } => {
                    self.target_hears(pairs, *target, name, *answer, now_ns);
                    self.tidy(pairs, name, *target, now_ns);
                }
                NoteRow::Parent { .. } => self.router_hears(pairs, name, key, note),
            }
        }
        self.tell_targets(pairs, now_ns);
        self.tell_parents(pairs, &seen, now_ns);
        for key in std::mem::take(&mut self.notes.inserted) {
            if seen.notes.contains_key(&key) {
                self.notes.wish(key.clone(), None, now_ns);
                self.notes.inserted.push(key); // until it is seen to be gone
            }
        }
    }

    /// A target elsewhere is so far: the source goes on, and answers.
    fn source_hears(
        &mut self,
        pairs: &Pairs,
        name: SplitName,
        (source, target): (PairId, PairId),
        state: TargetNote,
        now_ns: u64,
    ) {
        let Some(at) = pairs.at(source).filter(|_| pairs.at(target).is_none()) else { return };
        match state {
            TargetNote::Hidden => {}
            TargetNote::Readable => self.source_readable(name),
            TargetNote::Opened => self.source_opened(pairs, name),
        }
        let store = pairs.store(at);
        let answer = match store.book().answer(name, store.durable()) {
            Answer::Wait => return,
            Answer::No => SourceNote::No,
            Answer::Linked => SourceNote::Linked,
            Answer::Open => SourceNote::Open,
        };
        let key = note_key_of(name, NoteKind::Source);
        self.notes.wish(key, Some(NoteRow::Source { target, answer }), now_ns);
    }

    /// Notes of a target that is here, and has nothing to ask any more.
    fn tidy(&mut self, pairs: &Pairs, name: SplitName, target: PairId, now_ns: u64) {
        let Some(at) = pairs.at(target) else { return };
        let asks = self.targets.iter().any(|target| target.at() == at && target.name() == name);
        if !asks || pairs.at(name.pair).is_some() {
            for kind in [NoteKind::Target, NoteKind::Source] {
                self.notes.wish(note_key_of(name, kind), None, now_ns);
            }
        }
    }

    fn tell_targets(&mut self, pairs: &Pairs, now_ns: u64) {
        for target in self.targets.iter().filter(|target| pairs.at(target.name().pair).is_none()) {
            let (name, state) = (target.name(), target.told());
            let (source, pair) = (name.pair, pairs.store(target.at()).pair());
            let note = NoteRow::Target { source, target: pair, state };
            self.notes.wish(note_key_of(name, NoteKind::Target), Some(note), now_ns);
        }
    }

    /// An entry for the router, if it is here.
    fn router_hears(&mut self, pairs: &Pairs, name: SplitName, key: &str, note: &NoteRow) {
        let queued = |note: &Option<String>| note.as_deref() == Some(key);
        let known = self.parents.queue().any(|entry| queued(&entry.note))
            || self.notes.inserted.iter().any(|inserted| inserted == key);
        if parent::root_pair(pairs).is_none() || known {
            return;
        }
        match note.parent_entry() {
            Some((low, to)) => self.parents.push_noted(name, low.into(), to, key.to_owned()),
            None => tracing::error!(%name, "a note of a router's entry cannot be read"),
        }
    }

    /// Entries for a router that is elsewhere: asked for by notes, done when those are gone.
    fn tell_parents(&mut self, pairs: &Pairs, seen: &NotesView, now_ns: u64) {
        if parent::root_pair(pairs).is_some() {
            return;
        }
        let gone = |key: &String, asked: u64| seen.revision >= asked && !seen.notes.contains_key(key);
        let done = self.parents.take_done(|entry| {
            let key = note_key_of(entry.name, NoteKind::Parent);
            entry.note.is_none() && entry.asked.is_some_and(|asked| gone(&key, asked))
        });
        done.into_iter().for_each(|name| self.source_inserted(name));
        let unasked = |entry: &&mut parent::Entry| entry.note.is_none() && entry.asked.is_none();
        for entry in self.parents.queue_mut().filter(unasked) {
            let (key, note) =
                (note_key_of(entry.name, NoteKind::Parent), NoteRow::parent(&entry.low, entry.to));
            if seen.notes.get(&key) == Some(&note) {
                entry.asked = Some(seen.revision); // an earlier owner of the source asked
            } else {
                self.notes.wish(key, Some(note), now_ns);
            }
        }
    }
}

fn note_key_of(name: SplitName, kind: NoteKind) -> String {
    note_key(&name.to_word(), kind)
}
