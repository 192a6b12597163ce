//! Sides of a split at different nodes: what each owner writes down for the other, by way of the coordinator
//! (`cell_cluster::Notices`). Both go by what the notices say *now*, as often as they look: a notice that is
//! late, lost or written twice does no harm.
//!
//! 1. the target's owner writes how far it is, and so asks;
//! 2. the source's owner sees it, takes its own side as far as that permits, and answers what is durable;
//! 3. the target's owner goes by the answer; at the end it removes both notices.
//!
//! The router's entry is a notice of its own, removed by the router's owner when it is durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_cluster::{NoticeKind, NoticeRow, SourceNotice, TargetNotice, notice_key, parse_notice_key};
use cell_recovery::{SplitAnswer, SplitName};
use cell_terms::PairId;

use super::{Splits, parent};
use crate::worker::pairs::Pairs;

/// A notice that is not seen yet is written again after so long.
const AGAIN_NS: u64 = 500_000_000;

/// The notices of all nodes, as they were at a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoticesView {
    /// The revision.
    pub revision: u64,
    /// The notices, by their keys.
    pub notices: BTreeMap<String, NoticeRow>,
}

/// A notice to be written, or with none to be removed.
pub(crate) type NoticeWish = (String, Option<NoticeRow>);

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct SplitNotices {
    seen: Arc<NoticesView>,
    /// What was asked for lately, and when.
    asked: BTreeMap<String, (Option<NoticeRow>, u64)>,
    /// Notices of router entries that are durable.
    inserted: Vec<String>,
    wishes: Vec<NoticeWish>,
}

impl SplitNotices {
    /// The entry that a notice asked for is durable.
    pub(super) fn is_inserted(&mut self, notice: String) {
        self.inserted.push(notice);
    }

    /// Asks for a notice, or for its removal, unless it is so already or was asked for a moment ago.
    fn wish(&mut self, key: String, notice: Option<NoticeRow>, now_ns: u64) {
        if self.seen.notices.get(&key) == notice.as_ref() {
            self.asked.remove(&key);
            return;
        }
        let fresh =
            |(of, at): &(Option<NoticeRow>, u64)| *of == notice && now_ns < at.saturating_add(AGAIN_NS);
        if !self.asked.get(&key).is_some_and(fresh) {
            self.asked.insert(key.clone(), (notice.clone(), now_ns));
            self.wishes.push((key, notice));
        }
    }
}

impl Splits {
    /// The notices as they are now.
    pub(crate) fn on_notices(&mut self, notices: Arc<NoticesView>) {
        self.notices.seen = notices;
    }

    /// A notice was written, at this revision.
    pub(crate) fn notice_written(&mut self, key: &str, revision: u64) {
        for entry in
            self.parents.queue_mut().filter(|entry| notice_key_of(entry.name, NoticeKind::Parent) == key)
        {
            entry.asked = entry.asked.or(Some(revision));
        }
    }

    /// What is to be written.
    pub(crate) fn take_notice_wishes(&mut self) -> Vec<NoticeWish> {
        std::mem::take(&mut self.notices.wishes)
    }

    /// Goes by what others have written, and says what is to be written of the pairs that are here.
    pub(super) fn exchange_notices(&mut self, pairs: &mut Pairs, now_ns: u64) {
        let elsewhere = self.targets.iter().any(|target| pairs.at(target.name().pair).is_none());
        let routes = parent::root_pair(pairs).is_none() && self.parents.queue().next().is_some();
        if self.notices.seen.notices.is_empty() && !elsewhere && !routes && self.notices.inserted.is_empty() {
            self.notices.asked.clear();
            return;
        }
        let seen = self.notices.seen.clone();
        for (key, notice) in &seen.notices {
            let named = parse_notice_key(key).and_then(|(name, _)| SplitName::from_word(name));
            let Some(name) = named else { continue };
            match notice {
                NoticeRow::Target { source, target, state } => {
                    self.on_target_notice(pairs, name, (*source, *target), *state, now_ns);
                    self.tidy(pairs, name, *target, now_ns);
                }
                NoticeRow::Source { target, answer } => {
                    self.on_source_notice(pairs, *target, name, *answer, now_ns);
                    self.tidy(pairs, name, *target, now_ns);
                }
                NoticeRow::Parent { .. } => self.on_parent_notice(pairs, name, key, notice),
            }
        }
        self.tell_targets(pairs, now_ns);
        self.tell_parents(pairs, &seen, now_ns);
        for key in std::mem::take(&mut self.notices.inserted) {
            if seen.notices.contains_key(&key) {
                self.notices.wish(key.clone(), None, now_ns);
                self.notices.inserted.push(key); // until it is seen to be gone
            }
        }
    }

    /// A target elsewhere is so far: the source goes on, and answers.
    fn on_target_notice(
        &mut self,
        pairs: &Pairs,
        name: SplitName,
        (source, target): (PairId, PairId),
        state: TargetNotice,
        now_ns: u64,
    ) {
        let Some(at) = pairs.at(source).filter(|_| pairs.at(target).is_none()) else { return };
        match state {
            TargetNotice::Hidden => {}
            TargetNotice::Readable => self.source_readable(name),
            TargetNotice::Opened => self.source_opened(pairs, name),
        }
        let store = pairs.store(at);
        let answer = match store.split_table().answer(name, store.durable()) {
            SplitAnswer::Wait => return,
            SplitAnswer::No => SourceNotice::No,
            SplitAnswer::Linked => SourceNotice::Linked,
            SplitAnswer::Open => SourceNotice::Open,
        };
        let key = notice_key_of(name, NoticeKind::Source);
        self.notices.wish(key, Some(NoticeRow::Source { target, answer }), now_ns);
    }

    /// Notices of a target that is here, and has nothing to ask any more.
    fn tidy(&mut self, pairs: &Pairs, name: SplitName, target: PairId, now_ns: u64) {
        let Some(at) = pairs.at(target) else { return };
        let asks = self.targets.iter().any(|target| target.at() == at && target.name() == name);
        if !asks || pairs.at(name.pair).is_some() {
            for kind in [NoticeKind::Target, NoticeKind::Source] {
                self.notices.wish(notice_key_of(name, kind), None, now_ns);
            }
        }
    }

    fn tell_targets(&mut self, pairs: &Pairs, now_ns: u64) {
        for target in self.targets.iter().filter(|target| pairs.at(target.name().pair).is_none()) {
            let (name, state) = (target.name(), target.notice_state());
            let (source, pair) = (name.pair, pairs.store(target.at()).id());
            let notice = NoticeRow::Target { source, target: pair, state };
            self.notices.wish(notice_key_of(name, NoticeKind::Target), Some(notice), now_ns);
        }
    }

    /// An entry for the router, if it is here.
    fn on_parent_notice(&mut self, pairs: &Pairs, name: SplitName, key: &str, notice: &NoticeRow) {
        let queued = |notice: &Option<String>| notice.as_deref() == Some(key);
        let known = self.parents.queue().any(|entry| queued(&entry.notice))
            || self.notices.inserted.iter().any(|inserted| inserted == key);
        if parent::root_pair(pairs).is_none() || known {
            return;
        }
        match notice.parent_entry() {
            Some((low, to)) => self.parents.push_noted(name, low.into(), to, key.to_owned()),
            None => tracing::error!(%name, "a note of a router's entry cannot be read"),
        }
    }

    /// Entries for a router that is elsewhere: asked for by notices, done when those are gone.
    fn tell_parents(&mut self, pairs: &Pairs, seen: &NoticesView, now_ns: u64) {
        if parent::root_pair(pairs).is_some() {
            return;
        }
        let gone = |key: &String, asked: u64| seen.revision >= asked && !seen.notices.contains_key(key);
        let done = self.parents.take_done(|entry| {
            let key = notice_key_of(entry.name, NoticeKind::Parent);
            entry.notice.is_none() && entry.asked.is_some_and(|asked| gone(&key, asked))
        });
        done.into_iter().for_each(|name| self.source_inserted(name));
        let unasked = |entry: &&mut parent::Entry| entry.notice.is_none() && entry.asked.is_none();
        for entry in self.parents.queue_mut().filter(unasked) {
            let (key, notice) =
                (notice_key_of(entry.name, NoticeKind::Parent), NoticeRow::parent(&entry.low, entry.to));
            if seen.notices.get(&key) == Some(&notice) {
                entry.asked = Some(seen.revision); // an earlier owner of the source asked
            } else {
                self.notices.wish(key, Some(notice), now_ns);
            }
        }
    }
}

fn notice_key_of(name: SplitName, kind: NoticeKind) -> String {
    notice_key(&name.to_word(), kind)
}
