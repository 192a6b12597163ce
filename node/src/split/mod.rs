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

mod cause;
mod compaction;
mod effects;
mod growth;
mod merge;
mod notice;
mod notice_row;
mod packing;
mod parent;
mod relief;
mod source;
mod spread;
mod target;
mod trigger;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cell_recovery::{Unsettled, unsettled};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, NodeId, PairId, SessionId};

use crate::directory::MeganodeAt;
use crate::limits::PAIR_BYTES_MIN;
use crate::outbox::PairAt;
use crate::pairs::Pairs;
use compaction::Compactions;
use effects::{Effects, SplitMessage};
use growth::Growth;
use merge::Merges;
use notice::{SplitNotices, notice_key_of};
use notice_row::NoticeKind;
use packing::Packings;
use parent::Parents;
use relief::Relief;
use source::Sources;
use spread::Spread;
use target::Targets;

pub use effects::SplitCounts;
pub(crate) use effects::{NoticeWish, SplitOutcome};
pub use notice::NoticesView;
pub use notice_row::{NoticeRow, SourceNotice, TargetNotice};
pub use spread::SpreadView;

/// Rounds of messages and steps in one turn at most.
const STEPS_AT_ONCE: usize = 64;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Splits {
    sources: Sources,
    targets: Targets,
    parents: Parents,
    notices: SplitNotices,
    growth: Growth,
    spread: Spread,
    compactions: Compactions,
    packings: Packings,
    merges: Merges,
    /// Meganodes that have no room for a put and may get some.
    full: BTreeSet<MeganodeAt>,
    /// Up to which record extents may have been freed that full meganodes still wait for.
    awaited: BTreeMap<MeganodeAt, Csn>,
    /// Since when full meganodes wait for memory that is kept for pairs that are being recovered.
    held_since: BTreeMap<MeganodeAt, u64>,
    relief: Relief,
    effects: Effects,
}

impl Splits {
    /// None; meganodes that have been empty for so long are merged.
    pub(crate) fn new(merge_rest_ns: u64) -> Splits {
        Splits { merges: Merges::new(merge_rest_ns), ..Splits::default() }
    }

    /// Takes up what the recovered pairs have left to do, before anybody is served: what must be readable is
    /// made so, and the directory is completed.
    pub(crate) fn install(&mut self, pairs: &mut Pairs) {
        pairs.all().for_each(|at| self.install_pair(pairs, at));
    }

    /// [`Splits::install`] for one pair. What it has to settle with a pair that comes later, or that is
    /// elsewhere, waits for that.
    pub(crate) fn install_pair(&mut self, pairs: &mut Pairs, at: PairAt) {
        let pair = pairs.pair(at);
        for left in unsettled(pair.split_table(), pair.root(), pair.router()) {
            match left {
                Unsettled::Source { name } => self.sources.resume(pairs.pair(at), at, name),
                Unsettled::Target { name, slot } => self.targets.resume(pairs, at, name, slot),
                Unsettled::LostRouter { slot } => self.parents.free_router(at, slot),
            }
        }
    }

    /// A session has ended: what of it goes along with an adoption is for nobody.
    pub(crate) fn forget_session(&mut self, session: SessionId) {
        self.targets.forget_session(session);
        self.relief.forget_session(session);
    }

    /// Whether a write to a key of this meganode has to wait for a split.
    pub(crate) fn holds_back(&self, pairs: &Pairs, there: MeganodeAt, key: &[u8]) -> bool {
        if self.sources.is_empty() && self.targets.is_empty() && self.full.is_empty() {
            return false;
        }
        let closed = pairs.pair(there.pair).split_table().is_closed(there.slot);
        self.sources.holds_back(pairs, there, key)
            || closed && !planted(Mutant::WritableEarly)
            || self.full.contains(&there)
    }

    /// Carries everything on as far as it goes now.
    pub(crate) fn step(&mut self, pairs: &mut Pairs, now_ns: u64) -> SplitOutcome {
        if pairs.iter().all(|owned| !owned.pair.is_checking()) {
            let has_work = self.step_all(pairs, now_ns);
            self.effects.outcome.has_work = has_work;
        }
        self.effects.outcome.notices.append(&mut self.notices.take_wishes());
        std::mem::take(&mut self.effects.outcome)
    }

    /// Whether there is more to do that waits for nothing.
    fn step_all(&mut self, pairs: &mut Pairs, now_ns: u64) -> bool {
        let mut busy = self.targets.build(pairs, &mut self.effects);
        busy |= self.compactions.step(pairs, &mut self.effects);
        busy |= self.packings.step(pairs, &mut self.effects);
        for _ in 0..STEPS_AT_ONCE {
            let mut moved = false;
            while let Some(message) = self.effects.messages.pop_front() {
                self.deliver(pairs, message);
                moved = true;
            }
            moved |= self.sources.step(pairs, now_ns, &mut self.effects);
            moved |= self.targets.step(pairs, now_ns, &mut self.effects);
            moved |= self.parents.step(pairs, &mut self.effects);
            if !moved {
                return busy;
            }
            busy = true;
        }
        busy
    }

    /// Looks for meganodes that should be split.
    pub(crate) fn tick(&mut self, pairs: &mut Pairs, now_ns: u64) {
        // Who has found room waits for nothing more: what is freed next is waited for anew.
        let Splits { awaited, full, merges, .. } = self;
        awaited.retain(|there, _| full.contains(there));
        merges.forget_waits(full, now_ns);
        self.forget_held(pairs, now_ns);
        if !self.full.is_empty() && pairs.iter().all(|owned| !owned.pair.is_checking()) {
            // A full one asks again: its split may have failed, or room may have come.
            self.full.clear();
            self.effects.changed();
        }
        let Splits { notices, targets, parents, effects, .. } = self;
        notices.exchange(pairs, targets, parents, now_ns, effects);
        self.spread.tick(pairs, now_ns);
        self.trigger(pairs, now_ns);
        self.merges.tick(pairs, &self.spread, &mut self.sources, now_ns);
        self.compactions.trigger(pairs);
        self.packings.trigger(pairs);
    }

    /// The notices of all nodes, as they are now.
    pub(crate) fn on_notices(&mut self, notices: Arc<NoticesView>) {
        self.notices.on_notices(notices);
    }

    /// A notice was written, at this revision; none: it was not.
    pub(crate) fn on_notice_written(&mut self, key: &str, revision: Option<u64>) {
        let asked = |entry: &&mut parent::ParentEntry| notice_key_of(entry.name, NoticeKind::Parent) == key;
        for entry in self.parents.queue_mut().filter(asked) {
            (entry.is_asking, entry.asked) = (false, entry.asked.or(revision));
        }
    }

    /// What the others have from now on; none: all stays here.
    pub(crate) fn on_spread(&mut self, view: Option<Arc<SpreadView>>, now_ns: u64) {
        self.spread.on_view(view, now_ns);
    }

    /// Whether a pair was made for another node and waits for what it is to take there.
    pub(crate) fn is_awaited(&self, pair: PairId) -> bool {
        self.spread.is_awaited(pair)
    }

    /// A pair was added, for another node or this one, or none could be.
    pub(crate) fn on_pair_added(&mut self, added: Option<(PairId, Option<NodeId>)>, now_ns: u64) {
        self.growth.pair_added(added.is_some(), now_ns);
        self.spread.pair_added(added, now_ns);
        self.full.clear();
        self.effects.changed();
    }

    /// A put of a session was refused for want of room in this pair. Whether it may come again: what lacks is
    /// memory, and balance lets a pair leave, or could.
    pub(crate) fn awaits_relief(
        &mut self,
        pairs: &Pairs,
        at: PairAt,
        session: SessionId,
        now_ns: u64,
    ) -> bool {
        let left_bytes = pairs.pair(at).obtainable_bytes();
        if let Some(leaves) = self.spread.relief(left_bytes, now_ns) {
            return self.relief.comes_again(session, leaves, now_ns);
        }
        // That none can leave is the balancer's word, which says why if it knows what for.
        if left_bytes < PAIR_BYTES_MIN || self.growth.is_short_of_memory() {
            self.relief.lacks(now_ns);
        }
        false
    }

    /// Whether puts find no memory just now.
    pub(crate) fn lacks_memory(&self, now_ns: u64) -> bool {
        self.relief.is_lacking(now_ns)
    }

    /// A pair is not this node's any more.
    pub(crate) fn pair_left(&mut self) {
        self.relief.pair_left();
    }

    /// Whether a pair is taking over entries that no leaf leads to yet.
    pub(crate) fn is_building(&self, at: PairAt) -> bool {
        self.targets.are_building(at)
    }

    /// Whether something of several turns is at a pair: a split in which it takes part, in whichever role, or
    /// an entry for its router.
    pub(crate) fn are_at(&self, pairs: &Pairs, at: PairAt) -> bool {
        let pair = pairs.pair(at).id();
        let routes = parent::root_pair(pairs) == Some(at) && self.parents.is_busy();
        self.sources.are_at(at, pair) || self.targets.are_at(at, pair) || routes
    }

    /// Splits of a pair, or into it, that are not linked yet come to nothing. Whether there are such.
    pub(crate) fn abort_unlinked(&mut self, pairs: &Pairs, at: PairAt) -> bool {
        self.sources.abort_unlinked(pairs, at)
    }

    /// Nothing is done at a pair any more.
    pub(crate) fn forget_pair(&mut self, at: PairAt) {
        self.full.retain(|there| there.pair != at);
        self.awaited.retain(|there, _| there.pair != at);
        self.held_since.retain(|there, _| there.pair != at);
        self.spread.forget_pair(at);
        self.parents.forget_pair(at);
        self.compactions.forget_pair(at);
        self.merges.forget_pair(at);
        self.packings.forget_pair(at);
    }

    /// Splits since the start.
    pub(crate) fn counts(&self) -> SplitCounts {
        let merging = self.sources.merging() as u64;
        let under_way = self.sources.len() as u64 - merging;
        SplitCounts { under_way, merging, ..self.effects.counts }
    }

    fn deliver(&mut self, pairs: &mut Pairs, message: SplitMessage) {
        match message {
            SplitMessage::Adopt { to, range, from, kept } => {
                self.targets.adopt(pairs, to, range, from, kept, &mut self.effects);
            }
            SplitMessage::Answer { to, name, answer } => self.targets.on_answer(pairs, to, name, answer),
            SplitMessage::Ask { name, by } => {
                // An owner that is not here answers by a notice; one that has no trace of a split says no.
                if let Some(pair) = pairs.at(name.pair).map(|at| pairs.pair(at)) {
                    self.targets.on_answer(pairs, by, name, source::answer_of(pair, name));
                }
            }
            SplitMessage::Adopted { name, left_behind } => self.sources.on_adopted(name, left_behind),
            SplitMessage::Refused { name, why } => self.sources.on_refused(name, why),
            SplitMessage::Readable { name } => self.sources.on_readable(name),
            SplitMessage::Opened { name } => self.sources.on_opened(pairs, name, &mut self.effects),
            SplitMessage::Route { name, low, to, gone } => self.parents.push(name, low, to, gone),
            SplitMessage::Routed { name, notice: None } => self.sources.on_routed(name),
            SplitMessage::Routed { notice: Some(notice), .. } => self.notices.is_inserted(notice),
        }
    }
}

#[cfg(test)]
mod tests;
