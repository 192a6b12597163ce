//! Splits of meganodes (`docs/design/splits.md`): a core that is stepped by the worker. It begins splits
//! where slots fill up, and takes each through its steps, in both roles, every step only when what it relies
//! on is durable.
//!
//! The two roles talk in messages ([`SplitMessage`]), also where both pairs are this worker's, so that a
//! target may be elsewhere. What a pair must not forget is in its log and its table of splits
//! (`cell_recovery`); what is here is only where each split's next step stands.
//!
//! ```text
//! source: Start ...................... Linked ........ Applied ................. Finished
//! target:       Adopt, fills, Adopted ........ readable ..... Opened, takes writes
//! root:                                                              parent entry
//! ```

mod compaction;
mod notice;
mod parent;
mod source;
mod target;
mod trigger;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cell_pair::{AdoptionRange, PairError};
use cell_recovery::{Settlement, SourceState, SplitAnswer, SplitName, TargetState, settle};
use cell_terms::{Csn, ExtentOffset, PairId, SessionId, SlotIndex};

use crate::directory::{MeganodeAt, Range};
use crate::outbox::PairAt;
use crate::worker::pairs::Pairs;
use compaction::Compactions;
use notice::SplitNotices;
use parent::Parents;
use source::Source;
use target::Target;

pub use notice::NoticesView;
pub(crate) use trigger::Growth;

/// How often a target that waits for an answer asks.
const ASK_NS: u64 = 20_000_000;

/// What the pairs of a split tell each other.
#[derive(Debug)]
pub(crate) enum SplitMessage {
    /// To the target: adopt a range, with these results and floors.
    Adopt { to: PairId, range: AdoptionRange, from: SlotIndex, kept: Vec<Vec<u8>> },
    /// To the source: what was adopted is durable. `left_behind` are the source's extents, if they were
    /// counted.
    Adopted { name: SplitName, left_behind: Vec<(ExtentOffset, u32)> },
    /// To the source: it cannot be adopted.
    Failed { name: SplitName },
    /// To the target: make it readable.
    Linked { to: PairId, name: SplitName },
    /// To the source: it is readable.
    Readable { name: SplitName },
    /// To the target: take writes.
    Open { to: PairId, name: SplitName },
    /// To the source: it takes writes, durably.
    Opened { name: SplitName },
    /// To the target: forget the split.
    Finished { to: PairId, name: SplitName },
    /// To the source: what became of a split?
    Ask { name: SplitName, by: PairId },
    /// To the target.
    Answer { to: PairId, name: SplitName, answer: SplitAnswer },
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Splits {
    messages: VecDeque<SplitMessage>,
    sources: Vec<Source>,
    targets: Vec<Target>,
    parents: Parents,
    notices: SplitNotices,
    growth: Growth,
    compactions: Compactions,
    /// Meganodes that have no room for a put and may get some.
    starved: BTreeSet<MeganodeAt>,
    /// Up to which record extents may have been freed that starved meganodes still wait for.
    awaited: BTreeMap<MeganodeAt, Csn>,
    /// Something changed for which writes may have waited.
    changed: bool,
    /// Something failed that nobody can put right but a recovery.
    broken: Option<PairError>,
    counts: SplitCounts,
}

/// Splits of meganodes since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitCounts {
    /// Begun.
    pub begun: u64,
    /// Finished.
    pub finished: u64,
    /// Come to nothing.
    pub aborted: u64,
    /// Of those that began, the ones that are under way now.
    pub under_way: u64,
}

impl Splits {
    /// Takes up what the recovered pairs have left to do, before anybody is served: what must be readable is
    /// made so, and the directory is completed.
    pub(crate) fn install(&mut self, pairs: &mut Pairs) {
        pairs.all().for_each(|at| self.install_pair(pairs, at));
    }

    /// [`Splits::install`] for one pair. What it has to settle with a pair that comes later, or that is
    /// elsewhere, waits for that.
    pub(crate) fn install_pair(&mut self, pairs: &mut Pairs, at: PairAt) {
        let store = pairs.store(at);
        let root = store.root();
        let left = settle(store.split_table(), root, store.router(), |_| None);
        for settlement in left {
            match settlement {
                Settlement::Source { name, .. } => self.sources.extend(Source::recovered(pairs, at, name)),
                Settlement::Target { name, slot, .. } => self.install_target(pairs, at, name, slot),
                Settlement::FreeRouter { slot } => self.parents.free_router(at, slot),
            }
        }
    }

    fn install_target(&mut self, pairs: &mut Pairs, at: PairAt, name: SplitName, slot: SlotIndex) {
        let table = pairs.store(at).split_table();
        let Some(split) = table.target(name) else { return };
        let state = split.state;
        let range =
            Range { low: split.low.clone(), high: split.high.clone(), at: MeganodeAt { pair: at, slot } };
        let mut target = Target::recovered(at, name, slot, state);
        // A source that is cut has handed the range over: it must be readable when the pairs are served.
        let source = pairs.at(name.pair).and_then(|source| pairs.store(source).split_table().source(name));
        let cut =
            source.is_some_and(|source| matches!(source.state, SourceState::Applied | SourceState::Finished));
        if state == TargetState::Adopted && cut {
            while let Some(next) = pairs.store_mut(at).show(slot, cell_tree::NodeIndex::ROOT, u32::MAX) {
                debug_assert!(next.0 > 0);
            }
            // One whose pair came before this one has said so already, to nobody.
            let open = pairs.at(name.pair).map(|source| pairs.store(source)).is_some_and(|source| {
                source.split_table().answer(name, source.durable()) == SplitAnswer::Open
            });
            target.is_shown(open);
            pairs.directory.insert(range);
        }
        self.targets.push(target);
    }

    /// A session has ended: what of it goes along with an adoption is for nobody.
    pub(crate) fn forget_session(&mut self, session: SessionId) {
        self.targets.iter_mut().for_each(|target| target.forget_session(session));
    }

    /// Whether a write to a key of this meganode has to wait for a split.
    pub(crate) fn holds_back(&self, there: MeganodeAt, key: &[u8]) -> bool {
        if self.sources.is_empty() && self.targets.is_empty() && self.starved.is_empty() {
            return false;
        }
        self.sources.iter().any(|source| source.holds_back(there, key))
            || self.targets.iter().any(|target| target.holds_back(there))
            || self.starved.contains(&there)
    }

    /// A put finds no room in a meganode. Whether it should wait: room may come.
    pub(crate) fn starve(
        &mut self,
        pairs: &mut Pairs,
        there: MeganodeAt,
        needs_extents: bool,
        now_ns: u64,
    ) -> bool {
        let comes = self.room_comes(pairs, there, needs_extents, now_ns);
        if comes {
            self.starved.insert(there);
        }
        comes
    }

    /// Carries everything on as far as it goes now. Whether there is work that waits for nothing.
    pub(crate) fn step(&mut self, pairs: &mut Pairs, now_ns: u64) -> bool {
        if pairs.iter().any(|pair| pair.store.is_checking()) {
            return false;
        }
        let mut busy = self.step_adoptions(pairs);
        busy |= self.step_compaction(pairs);
        for _ in 0..STEPS_AT_ONCE {
            let mut moved = false;
            while let Some(message) = self.messages.pop_front() {
                self.deliver(pairs, message, now_ns);
                moved = true;
            }
            moved |= self.step_sources(pairs, now_ns);
            moved |= self.step_targets(pairs, now_ns);
            moved |= self.step_parents(pairs);
            if !moved {
                return busy;
            }
            busy = true;
        }
        busy
    }

    /// Looks for meganodes that should be split.
    pub(crate) fn tick(&mut self, pairs: &mut Pairs, now_ns: u64) {
        if !self.starved.is_empty() && pairs.iter().all(|pair| !pair.store.is_checking()) {
            // Whoever is starved asks again: its split may have failed, or room may have come.
            let Splits { awaited, starved, .. } = self;
            awaited.retain(|there, _| starved.contains(there));
            self.starved.clear();
            self.changed = true;
        }
        self.exchange_notices(pairs, now_ns);
        self.trigger(pairs, now_ns);
        self.trigger_compaction(pairs);
    }

    /// Whether writes that waited may go on, once.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// What failed, if something did.
    pub(crate) fn take_broken(&mut self) -> Option<PairError> {
        self.broken.take()
    }

    pub(crate) fn counts(&self) -> SplitCounts {
        SplitCounts { under_way: self.sources.len() as u64, ..self.counts }
    }

    /// A meganode's range is in another one from here on: readers go there at once.
    fn hand_over(&mut self, pairs: &mut Pairs, from: MeganodeAt, key: &[u8], to: MeganodeAt) {
        if pairs.directory.of(to).is_none() && !pairs.directory.split(key, to) {
            tracing::error!(?from, ?to, "a split does not fit the directory");
        }
    }

    fn deliver(&mut self, pairs: &mut Pairs, message: SplitMessage, now_ns: u64) {
        match message {
            SplitMessage::Adopt { to, range, from, kept } => self.adopt(pairs, to, range, from, kept),
            // A target that is elsewhere learns it by a notice.
            SplitMessage::Linked { to, .. } | SplitMessage::Open { to, .. } if pairs.at(to).is_none() => {}
            SplitMessage::Linked { to, name } => self.target_linked(pairs, to, name),
            SplitMessage::Open { to, name } => self.target_open(pairs, to, name),
            SplitMessage::Finished { to, name } => self.target_finished(pairs, to, name),
            SplitMessage::Answer { to, name, answer } => {
                self.target_answered(pairs, to, name, answer, now_ns)
            }
            SplitMessage::Ask { name, by } => {
                // An owner that is not here answers by a notice; one that has no trace of a split says no.
                if let Some(store) = pairs.at(name.pair).map(|at| pairs.store(at)) {
                    let answer = store.split_table().answer(name, store.durable());
                    self.messages.push_back(SplitMessage::Answer { to: by, name, answer });
                }
            }
            SplitMessage::Adopted { name, left_behind } => self.source_adopted(name, left_behind),
            SplitMessage::Failed { name } => self.source_failed(name),
            SplitMessage::Readable { name } => self.source_readable(name),
            SplitMessage::Opened { name } => self.source_opened(pairs, name),
        }
    }
}

/// Rounds of messages and steps in one turn at most.
const STEPS_AT_ONCE: usize = 64;
