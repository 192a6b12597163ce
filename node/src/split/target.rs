//! The target's role: Adopt, Adopted, readable, Opened; or Discarded.

use cell_cluster::{SourceNotice, TargetNotice};
use cell_pair::{Adoption, AdoptionRange, AdoptionStep, Pair, SourceView};
use cell_recovery::{SplitAnswer, SplitName, SplitRecord, TargetState, TargetStep, step_of_target};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{PairId, SessionId, SlotIndex};
use cell_tree::NodeIndex;

use super::{ASK_NS, SplitMessage, Splits};
use crate::directory::{MeganodeAt, Range};
use crate::outbox::PairAt;
use crate::worker::pairs::Pairs;

/// Bytes that an adoption copies in one turn of its worker.
const BYTES_AT_ONCE: usize = 128 << 10;
/// Tree nodes that are made readable in one turn.
const NODES_AT_ONCE: u32 = 1_024;

#[derive(Debug)]
enum TargetPhase {
    /// What goes along is logged, then entries are copied.
    Building { adoption: Box<Adoption>, source: SourceView, begun: bool },
    /// `Adopted` is in the log.
    Adopted { left_behind: Vec<(cell_terms::ExtentOffset, u32)> },
    /// The source knows.
    Told,
    /// It is being made readable; `open` is to follow at once.
    Showing { next: NodeIndex, open: bool },
    /// It is readable.
    Shown,
    /// The source is cut: `Opened` is to be logged.
    Open,
    /// `Opened` is in the log: writes are taken.
    Opening,
    /// `Opened` is durable, and the source knows.
    Opened,
    /// It cannot be adopted: the source was told, and aborts.
    Failed,
    /// A recovery found it, and its source is asked.
    Asking { due_ns: u64 },
    /// It is to be thrown away.
    Discarding,
}

/// An adoption of one of the worker's pairs.
#[derive(Debug)]
pub(super) struct Target {
    name: SplitName,
    at: PairAt,
    slot: SlotIndex,
    phase: TargetPhase,
}

impl Target {
    /// An adoption that a recovery found unsettled.
    pub(super) fn recovered(at: PairAt, name: SplitName, slot: SlotIndex, state: TargetState) -> Target {
        let phase = match state {
            TargetState::Opened => TargetPhase::Opening,
            _ => TargetPhase::Asking { due_ns: 0 },
        };
        Target { name, at, slot, phase }
    }

    /// It is readable, and if its source is cut durably it is to be opened.
    pub(super) fn is_shown(&mut self, open: bool) {
        self.phase = if open { TargetPhase::Open } else { TargetPhase::Shown };
    }

    pub(super) fn name(&self) -> SplitName {
        self.name
    }

    pub(super) fn at(&self) -> PairAt {
        self.at
    }

    /// How far it is, as its source's owner is told.
    pub(super) fn notice_state(&self) -> TargetNotice {
        match self.phase {
            TargetPhase::Opened => TargetNotice::Opened,
            TargetPhase::Shown | TargetPhase::Open | TargetPhase::Opening => TargetNotice::Readable,
            _ => TargetNotice::Hidden,
        }
    }

    fn is_asking(&self) -> bool {
        matches!(self.phase, TargetPhase::Asking { .. })
    }

    fn there(&self) -> MeganodeAt {
        MeganodeAt { pair: self.at, slot: self.slot }
    }

    pub(super) fn is_of(&self, there: MeganodeAt) -> bool {
        self.there() == there
    }

    pub(super) fn forget_session(&mut self, session: SessionId) {
        if let TargetPhase::Building { adoption, .. } = &mut self.phase {
            adoption.forget_session(session);
        }
    }

    /// It comes to nothing, wherever it was.
    fn end_building(&mut self, store: &mut Pair, phase: TargetPhase) {
        if let TargetPhase::Building { adoption, .. } = &mut self.phase {
            store.give_up_adoption(adoption);
        }
        self.phase = phase;
    }

    /// Whether the meganode may be split itself.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, TargetPhase::Opening | TargetPhase::Opened)
    }

    /// Writes wait until it is open.
    pub(super) fn holds_back(&self, there: MeganodeAt) -> bool {
        !self.is_open() && self.there() == there && !planted(Mutant::WritableEarly)
    }
}

/// Whether a split is linked durably, as far as this worker has its source.
fn may_be_shown(pairs: &Pairs, name: SplitName) -> bool {
    let Some(source) = pairs.at(name.pair).map(|at| pairs.store(at)) else { return true };
    matches!(source.split_table().answer(name, source.durable()), SplitAnswer::Linked | SplitAnswer::Open)
}

/// The range is this meganode's from here on: where its source is elsewhere, or came later, nobody has handed
/// it over.
fn enter_directory(pairs: &mut Pairs, there: MeganodeAt, name: SplitName) {
    if pairs.directory.of(there).is_some() {
        return;
    }
    if let Some(split) = pairs.store(there.pair).split_table().target(name) {
        let (low, high) = (split.low.clone(), split.high.clone());
        pairs.directory.insert(Range { low, high, at: there });
    }
}

/// Whether a source that is here has finished a split, durably: nobody asks for it any more.
fn source_is_done(pairs: &Pairs, name: SplitName) -> bool {
    let source = pairs.at(name.pair).map(|at| pairs.store(at));
    source.is_some_and(|store| store.split_table().answer(name, store.durable()) == SplitAnswer::No)
}

impl Splits {
    pub(super) fn adopt(
        &mut self,
        pairs: &mut Pairs,
        to: PairId,
        range: AdoptionRange,
        from: SlotIndex,
        kept: Vec<Vec<u8>>,
    ) {
        let name = range.name;
        let (Some(at), Some(source)) = (pairs.at(to), pairs.at(name.pair)) else {
            return self.messages.push_back(SplitMessage::Failed { name });
        };
        let store = pairs.store_mut(at);
        if !store.grant_first(range.slot) || !store.reserve_slot(range.slot) {
            return self.messages.push_back(SplitMessage::Failed { name });
        }
        let source = pairs.store(source).source_view(from);
        let slot = range.slot;
        let adoption = Box::new(Adoption::new(range, kept));
        let phase = TargetPhase::Building { adoption, source, begun: false };
        self.targets.push(Target { name, at, slot, phase });
    }

    /// Lets adoptions copy the next part; true while one has more to do that waits for nothing.
    pub(super) fn step_adoptions(&mut self, pairs: &mut Pairs) -> bool {
        let mut busy = false;
        for target in &mut self.targets {
            let store = pairs.store_mut(target.at);
            let TargetPhase::Building { adoption, source, begun } = &mut target.phase else { continue };
            if !*begun {
                match store.begin_adoption(adoption) {
                    Ok(done) => *begun = done,
                    Err(error) => self.broken = Some(error),
                }
            }
            if !*begun {
                continue;
            }
            match store.adopt(adoption, source, BYTES_AT_ONCE) {
                Ok(AdoptionStep::More) => busy = true,
                Ok(AdoptionStep::Waits) => {}
                Ok(AdoptionStep::Whole(csn)) => {
                    tracing::debug!(name = %target.name, csn = csn.0, "adopted");
                    target.phase = TargetPhase::Adopted { left_behind: adoption.take_left_behind() };
                    busy = true;
                }
                Ok(AdoptionStep::Full) => {
                    self.messages.push_back(SplitMessage::Failed { name: target.name });
                    target.end_building(store, TargetPhase::Failed);
                    busy = true;
                }
                Err(error) => {
                    tracing::error!(%error, name = %target.name, "an adoption cannot go on");
                    self.messages.push_back(SplitMessage::Failed { name: target.name });
                    target.end_building(store, TargetPhase::Failed);
                }
            }
        }
        busy
    }

    /// Whether a pair is taking over entries that no leaf leads to yet.
    pub(crate) fn is_building(&self, at: PairAt) -> bool {
        let building = |target: &Target| matches!(target.phase, TargetPhase::Building { .. });
        self.targets.iter().any(|target| target.at == at && building(target))
    }

    pub(super) fn step_targets(&mut self, pairs: &mut Pairs, now_ns: u64) -> bool {
        let mut moved = false;
        let mut targets = std::mem::take(&mut self.targets);
        targets.retain_mut(|target| {
            let goes_on = self.step_target(pairs, target, now_ns, &mut moved);
            moved |= !goes_on;
            goes_on
        });
        debug_assert!(self.targets.is_empty());
        self.targets = targets;
        moved
    }

    fn step_target(&mut self, pairs: &mut Pairs, target: &mut Target, now_ns: u64, moved: &mut bool) -> bool {
        let (name, slot) = (target.name, target.slot);
        if matches!(target.phase, TargetPhase::Opened) && source_is_done(pairs, name) {
            pairs.store_mut(target.at).forget_split(name);
            return false;
        }
        if let TargetPhase::Open = target.phase {
            enter_directory(pairs, target.there(), name);
        }
        if let TargetPhase::Showing { .. } = target.phase {
            assert!(may_be_shown(pairs, name), "{name} is readable before it is linked durably");
        }
        let store = pairs.store_mut(target.at);
        let durable = store.split_table().target(name).is_none_or(|split| split.csn <= store.durable());
        let next = match &mut target.phase {
            TargetPhase::Adopted { left_behind } if durable => {
                let left_behind = std::mem::take(left_behind);
                self.messages.push_back(SplitMessage::Adopted { name, left_behind });
                if planted(Mutant::ReadableEarly) {
                    TargetPhase::Showing { next: NodeIndex(0), open: false }
                } else {
                    TargetPhase::Told
                }
            }
            TargetPhase::Showing { next, open } => match store.show(slot, *next, NODES_AT_ONCE) {
                Some(next) => TargetPhase::Showing { next, open: *open },
                None if *open => TargetPhase::Open,
                None => {
                    self.messages.push_back(SplitMessage::Readable { name });
                    TargetPhase::Shown
                }
            },
            TargetPhase::Open => match store.try_step(SplitRecord::Opened { name }, 0) {
                Some(_) => {
                    self.changed = true;
                    TargetPhase::Opening
                }
                None => return true,
            },
            TargetPhase::Opening if durable => {
                self.messages.push_back(SplitMessage::Opened { name });
                TargetPhase::Opened
            }
            TargetPhase::Asking { due_ns } if *due_ns <= now_ns => {
                self.messages.push_back(SplitMessage::Ask { name, by: store.id() });
                TargetPhase::Asking { due_ns: now_ns + ASK_NS }
            }
            TargetPhase::Discarding => {
                if store.split_table().target(name).is_none() {
                    return false; // nothing of it was logged
                }
                return !store.discard(name, slot);
            }
            _ => return true,
        };
        *moved = true;
        target.phase = next;
        true
    }

    /// What the owner of a source that is elsewhere answers. It may be late, never wrong.
    pub(super) fn on_source_notice(
        &mut self,
        pairs: &mut Pairs,
        to: PairId,
        name: SplitName,
        answer: SourceNotice,
        now_ns: u64,
    ) {
        let Some(target) = self.target_mut(pairs, to, name) else { return };
        let (asking, shown) = (target.is_asking(), matches!(target.phase, TargetPhase::Shown));
        match answer {
            SourceNotice::No if asking || matches!(target.phase, TargetPhase::Opened) => {
                self.target_answered(pairs, to, name, SplitAnswer::No, now_ns);
            }
            SourceNotice::Linked if asking => self.target_linked(pairs, to, name),
            SourceNotice::Open if asking || shown => self.target_open(pairs, to, name),
            _ => {}
        }
    }

    fn target_mut(&mut self, pairs: &Pairs, to: PairId, name: SplitName) -> Option<&mut Target> {
        let at = pairs.at(to)?;
        self.targets.iter_mut().find(|target| target.at == at && target.name == name)
    }

    pub(super) fn target_linked(&mut self, pairs: &Pairs, to: PairId, name: SplitName) {
        let Some(target) = self.target_mut(pairs, to, name) else {
            return tracing::error!(%name, "a linked split has no target");
        };
        match target.phase {
            TargetPhase::Told | TargetPhase::Asking { .. } => {
                target.phase = TargetPhase::Showing { next: NodeIndex::ROOT, open: false };
            }
            TargetPhase::Shown | TargetPhase::Open | TargetPhase::Opening | TargetPhase::Opened => {
                self.messages.push_back(SplitMessage::Readable { name });
            }
            _ => {}
        }
    }

    pub(super) fn target_open(&mut self, pairs: &Pairs, to: PairId, name: SplitName) {
        let Some(target) = self.target_mut(pairs, to, name) else {
            return tracing::error!(%name, "a split that is cut has no target");
        };
        match target.phase {
            TargetPhase::Shown => target.phase = TargetPhase::Open,
            TargetPhase::Told | TargetPhase::Asking { .. } => {
                target.phase = TargetPhase::Showing { next: NodeIndex::ROOT, open: true };
            }
            TargetPhase::Opened => self.messages.push_back(SplitMessage::Opened { name }),
            TargetPhase::Showing { next, .. } => target.phase = TargetPhase::Showing { next, open: true },
            _ => {}
        }
    }

    pub(super) fn target_finished(&mut self, pairs: &mut Pairs, to: PairId, name: SplitName) {
        let Some(at) = pairs.at(to) else { return };
        pairs.store_mut(at).forget_split(name);
        self.targets.retain(|target| target.at != at || target.name != name);
    }

    pub(super) fn target_answered(
        &mut self,
        pairs: &mut Pairs,
        to: PairId,
        name: SplitName,
        answer: SplitAnswer,
        now_ns: u64,
    ) {
        let Some(at) = pairs.at(to) else { return };
        let state = pairs.store(at).split_table().target(name).map(|split| split.state);
        let Some(target) = self.target_mut(pairs, to, name) else { return };
        // A living adoption that its source has aborted is thrown away, whatever it was at.
        let Some(state) = state else {
            if answer == SplitAnswer::No {
                target.end_building(pairs.store_mut(at), TargetPhase::Discarding);
            }
            return;
        };
        match step_of_target(state, Some(answer)) {
            TargetStep::Discard => target.end_building(pairs.store_mut(at), TargetPhase::Discarding),
            TargetStep::Show if matches!(target.phase, TargetPhase::Asking { .. }) => {
                target.phase = TargetPhase::Showing { next: NodeIndex::ROOT, open: false };
            }
            TargetStep::Open if matches!(target.phase, TargetPhase::Asking { .. }) => {
                target.phase = TargetPhase::Showing { next: NodeIndex::ROOT, open: true };
            }
            TargetStep::Ask if matches!(target.phase, TargetPhase::Asking { .. }) => {
                target.phase = TargetPhase::Asking { due_ns: now_ns + ASK_NS };
            }
            TargetStep::Forget => self.target_finished(pairs, to, name),
            TargetStep::Contradiction => {
                tracing::error!(%name, ?state, ?answer, "two logs contradict each other: the slot stays hidden");
            }
            _ => {}
        }
    }
}
