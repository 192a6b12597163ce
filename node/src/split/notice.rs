//! Sides of a split at different nodes: what each owner writes down for the other, by way of the coordinator
//! (`cell_cluster::Notices`). Both go by what the notices say *now*, as often as they look: a notice that is
//! late, lost or written twice does no harm, but that of a router's entry is written once at a time.
//!
//! 1. the target's owner writes how far it is, and so asks;
//! 2. the source's owner sees it, takes its own side as far as that permits, and answers what is durable;
//! 3. the target's owner goes by the answer; at the end it removes both notices.
//!
//! The router's entry is a notice of its own, removed by the router's owner when it is durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_pair::Pair;
use cell_recovery::{SplitAnswer, SplitName};
use cell_terms::PairId;

use super::effects::{Effects, NoticeWish, SplitMessage};
use super::notice_row::{NoticeKind, NoticeRow, SourceNotice, TargetNotice, notice_key, parse_notice_key};
use super::parent::{self, ParentEntry, Parents};
use super::source::answer_of;
use super::target::Targets;
use crate::pairs::Pairs;

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

    /// Asks for a notice in a pair's name, or for its removal, unless it is so already or was asked for a
    /// moment ago. Whether it asks.
    fn wish(&mut self, of: &Pair, key: String, notice: Option<NoticeRow>, now_ns: u64) -> bool {
        if self.seen.notices.get(&key) == notice.as_ref() {
            self.asked.remove(&key);
            return false;
        }
        let fresh =
            |(of, at): &(Option<NoticeRow>, u64)| *of == notice && now_ns < at.saturating_add(AGAIN_NS);
        let asks = !self.asked.get(&key).is_some_and(fresh);
        if asks {
            self.asked.insert(key.clone(), (notice.clone(), now_ns));
            self.wishes.push(NoticeWish { key, notice, pair: of.id(), epoch: of.epoch() });
        }
        asks
    }

    /// The notices as they are now.
    pub(super) fn on_notices(&mut self, notices: Arc<NoticesView>) {
        self.seen = notices;
    }

    /// What is to be written.
    pub(super) fn take_wishes(&mut self) -> Vec<NoticeWish> {
        std::mem::take(&mut self.wishes)
    }

    /// Goes by what others have written, and says what is to be written of the pairs that are here.
    pub(super) fn exchange(
        &mut self,
        pairs: &Pairs,
        targets: &mut Targets,
        parents: &mut Parents,
        now_ns: u64,
        effects: &mut Effects,
    ) {
        let elsewhere = targets.elsewhere(pairs);
        let routes = parent::root_pair(pairs).is_none() && parents.queue().next().is_some();
        let nothing = elsewhere.is_empty() && !routes && self.inserted.is_empty();
        if self.seen.notices.is_empty() && nothing {
            self.asked.clear();
            return;
        }
        let seen = self.seen.clone();
        for (key, notice) in &seen.notices {
            let named = parse_notice_key(key).and_then(|(name, _)| SplitName::from_word(name));
            let Some(name) = named else { continue };
            match notice {
                NoticeRow::Target { source, target, state } => {
                    self.on_target_notice(pairs, name, (*source, *target), *state, now_ns, effects);
                    self.remove_answered(pairs, targets, name, *target, now_ns);
                }
                NoticeRow::Source { target, answer } => {
                    targets.on_source_notice(pairs, *target, name, *answer);
                    self.remove_answered(pairs, targets, name, *target, now_ns);
                }
                NoticeRow::Parent { .. } => self.on_parent_notice(pairs, parents, name, key, notice),
            }
        }
        for (name, at, state) in elsewhere {
            let of = pairs.pair(at);
            let notice = NoticeRow::Target { source: name.pair, target: of.id(), state };
            self.wish(of, notice_key_of(name, NoticeKind::Target), Some(notice), now_ns);
        }
        self.notify_parents(pairs, parents, &seen, now_ns, effects);
        for key in std::mem::take(&mut self.inserted) {
            // One whose router has left is removed by the next owner, who inserts it once more.
            let router = parent::root_pair(pairs).filter(|_| seen.notices.contains_key(&key));
            if let Some(router) = router {
                self.wish(pairs.pair(router), key.clone(), None, now_ns);
                self.inserted.push(key); // until it is seen to be gone
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
        effects: &mut Effects,
    ) {
        let Some(at) = pairs.at(source).filter(|_| pairs.at(target).is_none()) else { return };
        match state {
            TargetNotice::Hidden => {}
            TargetNotice::Readable => effects.send(SplitMessage::Readable { name }),
            TargetNotice::Opened => effects.send(SplitMessage::Opened { name }),
        }
        let pair = pairs.pair(at);
        let answer = match answer_of(pair, name) {
            SplitAnswer::Wait => return,
            SplitAnswer::No => SourceNotice::No,
            SplitAnswer::Linked => SourceNotice::Linked,
            SplitAnswer::Open => SourceNotice::Open,
        };
        self.wish(
            pair,
            notice_key_of(name, NoticeKind::Source),
            Some(NoticeRow::Source { target, answer }),
            now_ns,
        );
    }

    /// Removes notices of a target that is here and has nothing to ask any more.
    fn remove_answered(
        &mut self,
        pairs: &Pairs,
        targets: &Targets,
        name: SplitName,
        target: PairId,
        now_ns: u64,
    ) {
        let Some(at) = pairs.at(target) else { return };
        if !targets.has(at, name) || pairs.at(name.pair).is_some() {
            for kind in [NoticeKind::Target, NoticeKind::Source] {
                self.wish(pairs.pair(at), notice_key_of(name, kind), None, now_ns);
            }
        }
    }

    /// An entry for the router, if it is here.
    fn on_parent_notice(
        &self,
        pairs: &Pairs,
        parents: &mut Parents,
        name: SplitName,
        key: &str,
        notice: &NoticeRow,
    ) {
        let queued = |notice: &Option<String>| notice.as_deref() == Some(key);
        let known = parents.queue().any(|entry| queued(&entry.notice))
            || self.inserted.iter().any(|inserted| inserted == key);
        let router = parent::root_pair(pairs).filter(|at| !pairs.get(*at).is_unlisted());
        if router.is_none() || known {
            return;
        }
        match notice.parent_entry() {
            Some(entry) => parents.push_noted(name, entry, key.to_owned()),
            None => tracing::error!(%name, "a notice of a router's entry cannot be read"),
        }
    }

    /// Entries for a router that is elsewhere: asked for by notices, done when those are gone. Each is asked
    /// for by one write at a time, as far as the outcome of a write gets known, and is not done before that
    /// has ended. A second one that came after the split's end would bring the entry of a meganode back that
    /// has been merged away since.
    fn notify_parents(
        &mut self,
        pairs: &Pairs,
        parents: &mut Parents,
        seen: &NoticesView,
        now_ns: u64,
        effects: &mut Effects,
    ) {
        if parent::root_pair(pairs).is_some() {
            return;
        }
        let gone = |key: &String, asked: u64| seen.revision >= asked && !seen.notices.contains_key(key);
        let done = parents.take_done(|entry| {
            let key = notice_key_of(entry.name, NoticeKind::Parent);
            entry.notice.is_none() && entry.asked.is_some_and(|asked| gone(&key, asked))
        });
        done.into_iter().for_each(|name| effects.send(SplitMessage::Routed { name, notice: None }));
        let unasked =
            |entry: &&mut ParentEntry| entry.notice.is_none() && entry.asked.is_none() && !entry.is_asking;
        for entry in parents.queue_mut().filter(unasked) {
            let (key, notice) = (
                notice_key_of(entry.name, NoticeKind::Parent),
                NoticeRow::parent(&entry.low, entry.to, entry.gone),
            );
            if seen.notices.get(&key) == Some(&notice) {
                entry.asked = Some(seen.revision); // an earlier owner of the source asked
            } else if let Some(source) = pairs.at(entry.name.pair) {
                entry.is_asking = self.wish(pairs.pair(source), key, Some(notice), now_ns);
            }
        }
    }
}

/// The key of a split's notice.
pub(super) fn notice_key_of(name: SplitName, kind: NoticeKind) -> String {
    notice_key(&name.to_word(), kind)
}

#[cfg(test)]
mod tests {
    use cell_pair::AdoptionRange;
    use cell_terms::{Csn, Epoch, Pointer};

    use super::*;
    use crate::split::tests::{LEFT, SIZES, Story};

    /// The source forgets the split then, and the meganode may be merged away: a notice that is there still,
    /// or comes later, would bring its entry back.
    #[test]
    fn entry_for_a_router_elsewhere_is_done_once_its_notice_has_been_there_and_is_gone() {
        let name = SplitName::default();
        let asked = (notice_key_of(name, NoticeKind::Parent), NoticeRow::parent(b"low", Pointer::NULL, None));
        let routed = |revision: u64, is_there: bool| {
            let mut parents = Parents::default();
            parents.push(name, b"low".as_slice().into(), Pointer::NULL, None);
            parents.queue_mut().for_each(|entry| entry.asked = Some(5));
            let notices = is_there.then(|| asked.clone()).into_iter().collect();
            let (seen, mut effects) = (NoticesView { revision, notices }, Effects::default());
            let mut all = SplitNotices::default();
            all.notify_parents(&Pairs::default(), &mut parents, &seen, 0, &mut effects);
            (effects.messages.len(), parents.is_busy())
        };
        for (revision, is_there) in [(4, false), (4, true), (5, true), (6, true)] {
            assert_eq!(routed(revision, is_there), (0, true), "{revision}");
        }
        assert_eq!(routed(5, false), (1, false));
    }

    /// Each tick would write it once more, or a notice that is lost would never come.
    #[test]
    fn notice_is_asked_for_again_after_half_a_second_unless_it_is_there_or_another_is_wanted() {
        let story = Story::begin(SIZES);
        let (pair, mut all) = (story.pairs.pair(story.at), SplitNotices::default());
        let key = notice_key_of(SplitName::default(), NoticeKind::Source);
        let [linked, open] = [SourceNotice::Linked, SourceNotice::Open]
            .map(|answer| NoticeRow::Source { target: PairId(7), answer });
        let mut asks = |notice: &NoticeRow, now_ns| all.wish(pair, key.clone(), Some(notice.clone()), now_ns);
        assert!(asks(&linked, 5) && !asks(&linked, 5) && !asks(&linked, 4 + AGAIN_NS));
        assert!(asks(&linked, 5 + AGAIN_NS) && asks(&open, 6 + AGAIN_NS));
        assert_eq!(all.take_wishes().len(), 3);
        let notices = [(key.clone(), open.clone())].into();
        all.on_notices(Arc::new(NoticesView { revision: 1, notices }));
        assert!(!all.wish(pair, key, Some(open), u64::MAX) && all.take_wishes().is_empty());
    }

    /// Inserted twice, it would come back once its meganode has been merged away.
    #[test]
    fn entry_that_a_notice_asks_for_is_taken_once_and_only_where_the_router_is() {
        let (story, name) = (Story::begin(SIZES), SplitName::default());
        let (key, notice) =
            (notice_key_of(name, NoticeKind::Parent), NoticeRow::parent(b"low", Pointer::NULL, None));
        let come = |pairs: &Pairs, all: &SplitNotices, parents: &mut Parents| {
            all.on_parent_notice(pairs, parents, name, &key, &notice);
            parents.queue().count()
        };
        let (mut all, mut parents) = (SplitNotices::default(), Parents::default());
        assert_eq!(come(&Pairs::default(), &all, &mut parents), 0, "the router is elsewhere");
        assert_eq!([(); 2].map(|()| come(&story.pairs, &all, &mut parents)), [1, 1], "it is on its way");
        all.is_inserted("another".to_owned());
        assert_eq!(come(&story.pairs, &all, &mut Parents::default()), 1);
        all.is_inserted(key.clone());
        assert_eq!(come(&story.pairs, &all, &mut Parents::default()), 0, "it is there for good");
    }

    /// Those of an adoption that asks still would be written again and again; others would stay for ever.
    #[test]
    fn notices_of_an_adoption_are_removed_once_its_pair_has_nothing_to_ask() {
        let mut story = Story::begin(SIZES);
        let target = story.add_pair(SIZES);
        let (mut targets, mut effects) = (Targets::default(), Effects::default());
        let [asks, settled] = [1, 2].map(|csn| SplitName { pair: PairId(1), epoch: Epoch(1), csn: Csn(csn) });
        let (low, right) = (b"low".as_slice().into(), Pointer::NULL);
        let range = AdoptionRange { name: asks, slot: LEFT, low, high: None, right, merges: false };
        targets.adopt(&mut story.pairs, PairId(2), range, LEFT, Vec::new(), &mut effects);
        assert!(targets.has(target, asks));
        drop(story.pairs.remove(story.at)); // the source's owner is another one from here on
        let notice = NoticeRow::Source { target: PairId(2), answer: SourceNotice::No };
        let kinds = [NoticeKind::Target, NoticeKind::Source];
        let keys = |name: SplitName| kinds.map(|kind| notice_key_of(name, kind));
        let notices = [keys(asks), keys(settled)].concat().into_iter().map(|key| (key, notice.clone()));
        let seen = NoticesView { revision: 1, notices: notices.collect() };
        let mut all = SplitNotices { seen: Arc::new(seen), ..SplitNotices::default() };
        all.remove_answered(&story.pairs, &targets, asks, PairId(2), 0);
        assert!(all.take_wishes().is_empty());
        all.remove_answered(&story.pairs, &targets, settled, PairId(2), 0);
        let removed = all.take_wishes().into_iter().map(|wish| (wish.key, wish.notice));
        assert!(removed.eq(keys(settled).map(|key| (key, None::<NoticeRow>))));
    }
}
