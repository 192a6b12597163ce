//! The source's role: Start, Linked, Applied, the parent's entry, Finished.

use cell_pair::{AdoptionRange, CutHalf};
use cell_recovery::{NodeRecord, SourceState, SplitName, SplitRecord};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{ExtentOffset, PairId, Pointer, SlotIndex};

use super::{SplitMessage, Splits};
use crate::directory::MeganodeAt;
use crate::outbox::PairAt;
use crate::worker::pairs::Pairs;

/// A silent target is given up after so long.
const DEADLINE_NS: u64 = 30_000_000_000;
/// Extents that go to the grace queue in one turn.
const EXTENTS_AT_ONCE: usize = 4_096;
/// Bytes of results and floors in one record of an adoption.
const KEPT_BYTES: usize = 4_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourcePhase {
    /// `Start` is in the log.
    Started,
    /// The target was asked.
    Asked,
    /// The target has adopted durably: `Linked` is to be logged.
    Adopted,
    /// `Linked` is in the log.
    Linking,
    /// The target was told to make it readable.
    Told,
    /// It is readable: the meganode is to be cut.
    Readable,
    /// `Applied` is in the log.
    Cut,
    /// The target was told to open.
    Opening,
    /// It is open durably; the parent's entry is on its way.
    Inserting,
    /// `Finished` is to be logged.
    Inserted,
    /// `Finished` is in the log.
    Finishing,
    /// `Aborted` is to be logged.
    Failed,
    /// `Aborted` is in the log.
    Aborting,
}

/// A split of one of the worker's meganodes.
#[derive(Debug)]
pub(super) struct Source {
    name: SplitName,
    at: PairAt,
    slot: SlotIndex,
    key: Box<[u8]>,
    target: PairId,
    target_slot: SlotIndex,
    phase: SourcePhase,
    since_ns: u64,
    left_behind: Option<Vec<(ExtentOffset, u32)>>,
    half: Option<CutHalf>,
}

impl Source {
    /// A split that a recovery found unfinished.
    pub(super) fn recovered(pairs: &Pairs, at: PairAt, name: SplitName) -> Option<Source> {
        let split = pairs.store(at).split_table().source(name)?;
        let phase = match split.state {
            SourceState::Started => SourcePhase::Failed,
            SourceState::Linked => SourcePhase::Linking,
            SourceState::Applied => SourcePhase::Cut,
            SourceState::Finished | SourceState::Aborted => return None,
        };
        Some(Source {
            name,
            at,
            slot: split.slot,
            key: split.key.clone(),
            target: split.target,
            target_slot: split.target_slot,
            phase,
            since_ns: 0,
            left_behind: None,
            half: None,
        })
    }

    fn there(&self) -> MeganodeAt {
        MeganodeAt { pair: self.at, slot: self.slot }
    }

    pub(super) fn is_of(&self, there: MeganodeAt) -> bool {
        self.there() == there
    }

    /// Whether the meganode may not be split again yet.
    pub(super) fn is_cutting(&self) -> bool {
        !matches!(
            self.phase,
            SourcePhase::Opening | SourcePhase::Inserting | SourcePhase::Inserted | SourcePhase::Finishing
        )
    }

    /// Writes to the upper half wait from `Start` on, until its range is another meganode's.
    pub(super) fn holds_back(&self, there: MeganodeAt, key: &[u8]) -> bool {
        let handed_over = !matches!(
            self.phase,
            SourcePhase::Started
                | SourcePhase::Asked
                | SourcePhase::Adopted
                | SourcePhase::Linking
                | SourcePhase::Told
                | SourcePhase::Readable
                | SourcePhase::Failed
        );
        self.there() == there && !handed_over && *key >= *self.key
    }
}

impl Splits {
    /// Begins to split a meganode. Nothing happens while the log has no room: whoever waits asks again.
    pub(super) fn begin_split(
        &mut self,
        pairs: &mut Pairs,
        there: MeganodeAt,
        key: &[u8],
        to: MeganodeAt,
        now_ns: u64,
    ) {
        let target = pairs.store(to.pair).id();
        let store = pairs.store_mut(there.pair);
        if store.step_room(key.len()).is_err() {
            return;
        }
        let start = SplitRecord::Start { slot: there.slot, key, target, target_slot: to.slot };
        let csn = store.append_step(&NodeRecord::Split(start));
        let name = SplitName { pair: store.id(), epoch: store.epoch(), csn };
        tracing::debug!(%name, slot = there.slot.0, target = target.0, target_slot = to.slot.0, "a split begins");
        self.counts.begun += 1;
        self.sources.push(Source {
            name,
            at: there.pair,
            slot: there.slot,
            key: key.into(),
            target,
            target_slot: to.slot,
            phase: SourcePhase::Started,
            since_ns: now_ns,
            left_behind: None,
            half: None,
        });
    }

    pub(super) fn step_sources(&mut self, pairs: &mut Pairs, now_ns: u64) -> bool {
        let mut moved = false;
        let mut sources = std::mem::take(&mut self.sources);
        sources.retain_mut(|source| {
            let before = source.phase;
            let goes_on = self.step_source(pairs, source, now_ns);
            moved |= source.phase != before || !goes_on;
            goes_on
        });
        debug_assert!(self.sources.is_empty());
        self.sources = sources;
        moved
    }

    /// One step, if it is due; false when the split is over.
    fn step_source(&mut self, pairs: &mut Pairs, source: &mut Source, now_ns: u64) -> bool {
        let (name, to) = (source.name, source.target);
        let store = pairs.store_mut(source.at);
        if let Some(half) = &mut source.half
            && store.rest_cut_half(half, EXTENTS_AT_ONCE)
        {
            source.half = None;
        }
        let durable = store.split_table().source(name).is_none_or(|split| split.csn <= store.durable());
        source.phase = match source.phase {
            SourcePhase::Started if durable => {
                match self.adoption_of(pairs, source) {
                    Some(adopt) => self.messages.push_back(adopt),
                    None => self.messages.push_back(SplitMessage::Failed { name }),
                }
                SourcePhase::Asked
            }
            SourcePhase::Started | SourcePhase::Asked
                if now_ns.saturating_sub(source.since_ns) > DEADLINE_NS =>
            {
                SourcePhase::Failed
            }
            SourcePhase::Adopted => match store.try_step(SplitRecord::Linked { name }, 0) {
                Some(_) => SourcePhase::Linking,
                None => SourcePhase::Adopted,
            },
            SourcePhase::Linking if durable || planted(Mutant::CutEarly) => {
                self.messages.push_back(SplitMessage::Linked { to, name });
                SourcePhase::Told
            }
            SourcePhase::Readable => self.cut(pairs, source),
            SourcePhase::Cut if durable => {
                self.messages.push_back(SplitMessage::Open { to, name });
                SourcePhase::Opening
            }
            SourcePhase::Inserted if source.half.is_none() => {
                match store.try_step(SplitRecord::Finished { name }, 0) {
                    Some(_) => SourcePhase::Finishing,
                    None => SourcePhase::Inserted,
                }
            }
            SourcePhase::Finishing if durable => {
                self.messages.push_back(SplitMessage::Finished { to, name });
                self.counts.finished += 1;
                return false;
            }
            SourcePhase::Failed => match store.try_step(SplitRecord::Aborted { name }, 0) {
                Some(_) => {
                    self.changed = true; // the range is its own again
                    SourcePhase::Aborting
                }
                None => SourcePhase::Failed,
            },
            SourcePhase::Aborting if durable => {
                tracing::info!(%name, "a split was aborted");
                let answer = cell_recovery::SplitAnswer::No;
                self.messages.push_back(SplitMessage::Answer { to, name, answer });
                self.counts.aborted += 1;
                return false;
            }
            phase => phase,
        };
        true
    }

    /// What the target is asked: the upper half's range with all floors of the pair and the results that are
    /// durable. `Start` is, so that none of the upper half is missing.
    fn adoption_of(&self, pairs: &mut Pairs, source: &Source) -> Option<SplitMessage> {
        let range = pairs.directory.of(source.there())?;
        let high = range.high.clone();
        // Keys from `high` on are where the meganode's own right link leads.
        let right = match &high {
            Some(_) => pairs.store(source.at).right_of(source.slot)?,
            None => Pointer::NULL,
        };
        let range = AdoptionRange {
            name: source.name,
            slot: source.target_slot,
            low: source.key.clone(),
            high,
            right,
        };
        let store = pairs.store_mut(source.at);
        let durable = store.durable();
        let kept = store.completions().parts(durable, KEPT_BYTES);
        Some(SplitMessage::Adopt { to: source.target, range, from: source.slot, kept })
    }

    /// Cuts the meganode and hands its upper half over: readers go to the target from here on.
    fn cut(&mut self, pairs: &mut Pairs, source: &mut Source) -> SourcePhase {
        let to = pairs.at(source.target).map(|pair| MeganodeAt { pair, slot: source.target_slot });
        let right = pairs.store(source.at).pointer_to(source.target, source.target_slot);
        let extents = source.left_behind.clone();
        let store = pairs.store_mut(source.at);
        match store.cut(source.name, source.slot, &source.key, right, extents) {
            Ok(None) => SourcePhase::Readable,
            Ok(Some(half)) => {
                source.half = Some(half);
                source.left_behind = None;
                match to {
                    Some(to) => self.hand_over(pairs, source.there(), &source.key, to),
                    None if pairs.directory.cut(&source.key) => {}
                    None => tracing::error!(name = %source.name, "a split does not fit the directory"),
                }
                self.changed = true; // writes wait at the target now
                SourcePhase::Cut
            }
            Err(error) => {
                self.broken = Some(error);
                SourcePhase::Readable
            }
        }
    }

    fn source_mut(&mut self, name: SplitName) -> Option<&mut Source> {
        self.sources.iter_mut().find(|source| source.name == name)
    }

    pub(super) fn source_adopted(&mut self, name: SplitName, left_behind: Vec<(ExtentOffset, u32)>) {
        if let Some(source) = self.source_mut(name).filter(|source| source.phase == SourcePhase::Asked) {
            source.left_behind = Some(left_behind);
            source.phase = SourcePhase::Adopted;
        }
    }

    pub(super) fn source_failed(&mut self, name: SplitName) {
        if let Some(source) = self.source_mut(name).filter(|source| source.phase == SourcePhase::Asked) {
            source.phase = SourcePhase::Failed;
        }
    }

    pub(super) fn source_readable(&mut self, name: SplitName) {
        if let Some(source) = self.source_mut(name).filter(|source| source.phase == SourcePhase::Told) {
            source.phase = SourcePhase::Readable;
        }
    }

    /// The target takes writes, durably: readers are to find it by the parent.
    pub(super) fn source_opened(&mut self, pairs: &Pairs, name: SplitName) {
        let Some(source) = self.source_mut(name).filter(|source| source.phase == SourcePhase::Opening) else {
            return;
        };
        source.phase = SourcePhase::Inserting;
        let key = source.key.clone();
        let to = pairs.store(source.at).pointer_to(source.target, source.target_slot);
        self.parents.push(name, key, to);
    }

    /// The parent's entry is durable.
    pub(super) fn source_inserted(&mut self, name: SplitName) {
        if let Some(source) = self.source_mut(name).filter(|source| source.phase == SourcePhase::Inserting) {
            source.phase = SourcePhase::Inserted;
        }
    }
}
