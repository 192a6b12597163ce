//! Splits of this worker's meganodes, in the source's role. What each does next, the table of splits and what
//! is known of its target say ([`step_of_source`]); here it is done.

use cell_pair::{AdoptionRange, NoRoom, Pair, TruncatedHalf};
use cell_recovery::{
    CompletionTable, NodeRecord, SourceSplit, SourceState, SourceStep, SplitAnswer, SplitName, SplitRecord,
    TargetProgress, step_of_source,
};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, ExtentOffset, PairId, Pointer};

use super::effects::{Effects, SplitMessage, Stepped};
use crate::directory::MeganodeAt;
use crate::outbox::PairAt;
use crate::pairs::Pairs;

/// A silent target is given up after so long.
const DEADLINE_NS: u64 = 30_000_000_000;
/// One that has taken no step for so long is stuck: nobody waits any more for the room that it would make.
const STUCK_NS: u64 = 30_000_000_000;
/// Extents that go to the grace queue in one turn.
const EXTENTS_AT_ONCE: usize = 4_096;
/// Bytes of results and floors in one record of an adoption.
const KEPT_BYTES: usize = 4_000;

/// A split of one of the worker's meganodes: what is not in its pair's table.
#[derive(Debug)]
struct Source {
    name: SplitName,
    there: MeganodeAt,
    target: PairId,
    progress: TargetProgress,
    /// Why it is aborted, if it is.
    why: &'static str,
    /// An earlier owner began it.
    recovered: bool,
    /// It is a merge.
    merges: bool,
    since_ns: u64,
    /// When it was stepped first since it or its target got further.
    moved_at_ns: Option<u64>,
    left_behind: Option<Vec<(ExtentOffset, u32)>>,
    half: Option<TruncatedHalf>,
}

/// Whether the other side may hear of this record of a split, of whichever side. It does what it cannot take
/// back: a source throws its half away once that is adopted and forgets the split once the target is open; a
/// target takes writes once its source is truncated and forgets the split once that is over. From then on
/// what has become of the half is known by this record alone: damage to it must not look like a torn write.
/// With a defect planted it is enough that the record is durable.
pub(super) fn is_sealed(pair: &Pair, csn: Csn, durable_is_enough: bool) -> bool {
    csn <= pair.sealed() || durable_is_enough && csn <= pair.durable()
}

/// Whether a target may take writes, by the record that has truncated its source.
fn may_open(pair: &Pair, applied: Csn) -> bool {
    is_sealed(pair, applied, planted(Mutant::OpenToldUnsealed)) || planted(Mutant::OpenToldEarly)
}

/// Whether a target may be shown, by the record that links it. What a merge's target changes then is not
/// taken back.
fn may_show(pair: &Pair, linked: Csn, merges: bool) -> bool {
    linked <= pair.sealed() || linked <= pair.durable() && (!merges || planted(Mutant::MergeToldUnsealed))
}

/// Whether a target may forget the split, by the record that has ended it.
fn may_end(pair: &Pair, ended: Csn) -> bool {
    is_sealed(pair, ended, planted(Mutant::EndToldUnsealed)) || planted(Mutant::SplitEndedEarly)
}

/// What a source's owner says of a split: what is durable, and that the half is given away once damage to
/// that record would be found, too.
pub(super) fn answer_of(pair: &Pair, name: SplitName) -> SplitAnswer {
    let table = pair.split_table();
    let given_away =
        |of: &SourceSplit| of.state == SourceState::Applied && !planted(Mutant::OpenNotedUnsealed);
    let merges = |of: &SourceSplit| of.merges && !planted(Mutant::MergeToldUnsealed);
    let by_seal = table.source(name).is_some_and(|split| given_away(split) || merges(split));
    table.answer(name, if by_seal { pair.sealed() } else { pair.durable() })
}

/// All of them, oldest first.
#[derive(Debug, Default)]
pub(super) struct Sources {
    list: Vec<Source>,
}

impl Source {
    /// Whether the meganode may not be split again yet.
    fn is_truncating(&self) -> bool {
        self.progress < TargetProgress::NotifiedOpen
    }

    /// Whether it has not got further for long: nobody serves its target's pair or the router's, say, or a
    /// log has no room.
    fn is_stuck(&self, now_ns: u64) -> bool {
        self.moved_at_ns.is_some_and(|moved_at_ns| now_ns.saturating_sub(moved_at_ns) >= STUCK_NS)
    }

    /// One step, if it is due.
    fn step(&mut self, pairs: &mut Pairs, now_ns: u64, effects: &mut Effects) -> Stepped {
        let name = self.name;
        let pair = pairs.pair_mut(self.there.pair);
        if let Some(half) = &mut self.half
            && pair.rest_truncated_half(half, EXTENTS_AT_ONCE)
        {
            self.half = None;
        }
        let Some(split) = pair.split_table().source(name) else { return self.end(effects) };
        let (state, csn) = (split.state, split.csn);
        let durable = csn <= pair.durable();
        let silent = self.progress < TargetProgress::Adopted;
        if silent && now_ns.saturating_sub(self.since_ns) > DEADLINE_NS {
            (self.progress, self.why) = (TargetProgress::Refused, "its target is silent");
        }
        let before = self.progress;
        let logged = match step_of_source(state, self.progress) {
            SourceStep::Ask if durable || planted(Mutant::AskedEarly) => {
                let why = "its meganode left";
                effects.send(self.adoption(pairs).unwrap_or(SplitMessage::Refused { name, why }));
                self.progress = TargetProgress::Asked;
                false
            }
            SourceStep::Link => pair.try_step(SplitRecord::Linked { name }, 0).is_some(),
            SourceStep::NotifyLinked
                if may_show(pair, csn, self.merges) || planted(Mutant::TruncatedEarly) =>
            {
                self.notify(SplitAnswer::Linked, effects);
                self.progress = TargetProgress::NotifiedLinked;
                false
            }
            SourceStep::Truncate if self.merges => self.retire(pairs, effects),
            SourceStep::Truncate => self.truncate(pairs, effects),
            SourceStep::NotifyOpen if may_open(pair, csn) => {
                self.notify(SplitAnswer::Open, effects);
                self.progress = TargetProgress::NotifiedOpen;
                false
            }
            SourceStep::Finish if self.half.is_none() => {
                pair.try_step(SplitRecord::Finished { name }, 0).is_some()
            }
            SourceStep::Abort => {
                let logged = pair.try_step(SplitRecord::Aborted { name }, 0).is_some();
                if logged {
                    effects.changed(); // the range is its own again
                }
                logged
            }
            SourceStep::Done if may_end(pair, csn) => return self.end(effects),
            SourceStep::NotifyLinked | SourceStep::NotifyOpen | SourceStep::Done if durable => {
                pair.want_seal(csn);
                false
            }
            _ => false,
        };
        if logged || self.progress != before { Stepped::Moved } else { Stepped::Waits }
    }

    fn notify(&self, answer: SplitAnswer, effects: &mut Effects) {
        effects.send(SplitMessage::Answer { to: self.target, name: self.name, answer });
    }

    /// Its end is durable, and damage to it would be found: the target forgets the split, or throws away what
    /// it adopted.
    fn end(&self, effects: &mut Effects) -> Stepped {
        self.notify(SplitAnswer::No, effects);
        if self.progress == TargetProgress::Routed {
            let counts = &mut effects.counts;
            *(if self.merges { &mut counts.merged } else { &mut counts.finished }) += 1;
        } else if self.merges {
            tracing::info!(name = %self.name, why = self.why, "a merge was aborted");
        } else {
            tracing::info!(name = %self.name, why = self.why, "a split was aborted");
            effects.counts.aborted += 1;
            // One that a recovery found is no sign that the next one fails.
            if !self.recovered || planted(Mutant::RecoveredSplitRests) {
                effects.failed_into.push(self.target);
            }
        }
        Stepped::Over
    }

    /// What the target is asked: the upper half's range with all floors of the pair and the results that are
    /// durable. `Start` is, so that none of the upper half is missing.
    fn adoption(&self, pairs: &mut Pairs) -> Option<SplitMessage> {
        let high = pairs.directory.of(self.there)?.high.clone();
        let pair = pairs.pair_mut(self.there.pair);
        let split = pair.split_table().source(self.name)?;
        // Keys from `high` on are where the meganode's own right link leads.
        let right = match &high {
            Some(_) => pair.right_of(split.slot)?,
            None => Pointer::NULL,
        };
        let (from, low, slot) = (split.slot, split.key.clone(), split.target_slot);
        let range = AdoptionRange { name: self.name, slot, low, high, right, merges: self.merges };
        let durable = pair.durable();
        // Within one pair nothing need go along.
        let kept = match self.merges && self.target == pair.id() {
            true => CompletionTable::default().parts(durable, KEPT_BYTES),
            false => pair.completions().parts(durable, KEPT_BYTES),
        };
        Some(SplitMessage::Adopt { to: self.target, range, from, kept })
    }

    /// Truncates the meganode and hands its upper half over: readers go to the target from here on. Whether
    /// the log had room for it.
    fn truncate(&mut self, pairs: &mut Pairs, effects: &mut Effects) -> bool {
        let to = pairs.at(self.target);
        let pair = pairs.pair_mut(self.there.pair);
        let Some(split) = pair.split_table().source(self.name) else { return false };
        let (slot, key, target_slot) = (split.slot, split.key.clone(), split.target_slot);
        let right = pair.pointer_to(self.target, target_slot);
        match pair.truncate(self.name, slot, &key, right, self.left_behind.clone()) {
            Ok(None) => false,
            Ok(Some(half)) => {
                (self.half, self.left_behind) = (Some(half), None);
                hand_over(pairs, &key, to.map(|pair| MeganodeAt { pair, slot: target_slot }));
                effects.changed(); // writes wait at the target now
                true
            }
            Err(error) => {
                effects.broken(error);
                false
            }
        }
    }
}

impl Source {
    /// The meganode goes, and its range is the left neighbour's from here on. Whether the log had room for
    /// it.
    fn retire(&mut self, pairs: &mut Pairs, effects: &mut Effects) -> bool {
        let to = pairs.at(self.target);
        let pair = pairs.pair_mut(self.there.pair);
        let Some(split) = pair.split_table().source(self.name) else { return false };
        let (slot, key, target_slot) = (split.slot, split.key.clone(), split.target_slot);
        if !pair.retire(self.name, slot) {
            return false;
        }
        let fits = match to.map(|pair| MeganodeAt { pair, slot: target_slot }) {
            Some(to) => pairs.directory.merge(&key, to),
            None => pairs.directory.remove(&key),
        };
        if !fits {
            tracing::error!(key = %key.escape_ascii(), ?to, "a merge does not fit the directory");
        }
        effects.changed(); // writes wait at the target now
        true
    }
}

/// The range from `key` on is in another meganode from here on, of this worker or of another one.
fn hand_over(pairs: &mut Pairs, key: &[u8], to: Option<MeganodeAt>) {
    let fits = match to {
        Some(to) => pairs.directory.of(to).is_some() || pairs.directory.split(key, to),
        None => pairs.directory.truncate(key),
    };
    if !fits {
        tracing::error!(key = %key.escape_ascii(), ?to, "a split does not fit the directory");
    }
}

impl Sources {
    /// Begins to split a meganode. Nothing happens while the log has no room: whoever waits asks again,
    /// unless it is the disk that has none.
    pub(super) fn begin(
        &mut self,
        pairs: &mut Pairs,
        there: MeganodeAt,
        key: &[u8],
        to: MeganodeAt,
        now_ns: u64,
    ) -> Result<(), NoRoom> {
        let (slot, target, target_slot) = (there.slot, pairs.pair(to.pair).id(), to.slot);
        let start = SplitRecord::Start { slot, key, target, target_slot };
        self.start(pairs, (there, target), start, key.len(), now_ns)
    }

    /// Begins to merge a meganode, whose range begins at `key`, into its left neighbour, as
    /// [`Sources::begin`]. Whether it has started.
    pub(super) fn begin_merge(
        &mut self,
        pairs: &mut Pairs,
        there: MeganodeAt,
        key: &[u8],
        to: MeganodeAt,
        now_ns: u64,
    ) -> bool {
        let (slot, target, target_slot) = (there.slot, pairs.pair(to.pair).id(), to.slot);
        let merge = SplitRecord::Merge { slot, key, target, target_slot };
        self.start(pairs, (there, target), merge, key.len(), now_ns).is_ok()
    }

    /// Logs the first record of a split or a merge.
    fn start(
        &mut self,
        pairs: &mut Pairs,
        (there, target): (MeganodeAt, PairId),
        first: SplitRecord<'_>,
        key_bytes: usize,
        now_ns: u64,
    ) -> Result<(), NoRoom> {
        let pair = pairs.pair_mut(there.pair);
        pair.step_room(key_bytes)?;
        let csn = pair.append_step(&NodeRecord::Split(first));
        let name = SplitName { pair: pair.id(), epoch: pair.epoch(), csn };
        let merges = matches!(first, SplitRecord::Merge { .. });
        tracing::debug!(%name, slot = there.slot.0, target = target.0, merges, "a split begins");
        self.push(name, there, target, TargetProgress::Unasked, now_ns, merges);
        Ok(())
    }

    /// Goes on with a split that a recovery found unfinished.
    pub(super) fn resume(&mut self, pair: &Pair, at: PairAt, name: SplitName) {
        if let Some(split) = pair.split_table().source(name) {
            let there = MeganodeAt { pair: at, slot: split.slot };
            self.push(name, there, split.target, TargetProgress::Unknown, 0, split.merges);
        }
    }

    fn push(
        &mut self,
        name: SplitName,
        there: MeganodeAt,
        target: PairId,
        progress: TargetProgress,
        since_ns: u64,
        merges: bool,
    ) {
        let recovered = progress == TargetProgress::Unknown;
        let (why, moved_at_ns, left_behind, half) = ("an earlier owner left it unfinished", None, None, None);
        self.list.push(Source {
            name,
            there,
            target,
            progress,
            why,
            recovered,
            merges,
            since_ns,
            moved_at_ns,
            left_behind,
            half,
        });
    }

    /// Takes each split a step further. Whether one went on.
    pub(super) fn step(&mut self, pairs: &mut Pairs, now_ns: u64, effects: &mut Effects) -> bool {
        let mut moved = false;
        self.list.retain_mut(|source| {
            let stepped = source.step(pairs, now_ns, effects);
            moved |= stepped != Stepped::Waits;
            if stepped != Stepped::Waits || source.moved_at_ns.is_none() {
                source.moved_at_ns = Some(now_ns);
            }
            stepped != Stepped::Over
        });
        moved
    }

    /// A target has adopted, durably; these are the source's extents.
    pub(super) fn on_adopted(&mut self, name: SplitName, left_behind: Vec<(ExtentOffset, u32)>) {
        if let Some(source) = self.advance(name, TargetProgress::Asked, TargetProgress::Adopted) {
            source.left_behind = Some(left_behind);
        }
    }

    /// A target cannot adopt.
    pub(super) fn on_refused(&mut self, name: SplitName, why: &'static str) {
        if let Some(source) = self.advance(name, TargetProgress::Asked, TargetProgress::Refused) {
            source.why = why;
        }
    }

    /// A target is readable.
    pub(super) fn on_readable(&mut self, name: SplitName) {
        self.advance(name, TargetProgress::NotifiedLinked, TargetProgress::Readable);
    }

    /// A target takes writes, durably: readers are to find it by the router.
    pub(super) fn on_opened(&mut self, pairs: &Pairs, name: SplitName, effects: &mut Effects) {
        let Some(source) = self.advance(name, TargetProgress::NotifiedOpen, TargetProgress::Opened) else {
            return;
        };
        let pair = pairs.pair(source.there.pair);
        if let Some(split) = pair.split_table().source(name) {
            let to = pair.pointer_to(split.target, split.target_slot);
            let gone = split.merges.then(|| pair.pointer(split.slot));
            effects.send(SplitMessage::Route { name, low: split.key.clone(), to, gone });
        }
    }

    /// The router's entry is durable.
    pub(super) fn on_routed(&mut self, name: SplitName) {
        self.advance(name, TargetProgress::Opened, TargetProgress::Routed);
    }

    /// A target got further. What comes late, or twice, changes nothing.
    fn advance(&mut self, name: SplitName, from: TargetProgress, to: TargetProgress) -> Option<&mut Source> {
        let source = self.list.iter_mut().find(|source| source.name == name && source.progress == from)?;
        (source.progress, source.moved_at_ns) = (to, None);
        Some(source)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Those of a pair, or into it, that are not linked yet are given up, as if their targets had refused.
    /// Whether there are such.
    pub(super) fn abort_unlinked(&mut self, pairs: &Pairs, at: PairAt) -> bool {
        let pair = pairs.pair(at).id();
        let mut any = false;
        if planted(Mutant::UnlinkedKept) {
            return any;
        }
        for source in self.list.iter_mut().filter(|of| of.there.pair == at || of.target == pair) {
            let split = pairs.pair(source.there.pair).split_table().source(source.name);
            if split.is_some_and(|split| split.state == SourceState::Started) {
                any |= source.progress != TargetProgress::Refused;
                (source.progress, source.why) = (TargetProgress::Refused, "its pair leaves");
            }
        }
        any
    }

    /// Whether a pair takes part in one of them.
    pub(super) fn are_at(&self, at: PairAt, pair: PairId) -> bool {
        self.list.iter().any(|source| source.there.pair == at || source.target == pair)
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether a meganode may not be split yet, because another one is.
    pub(super) fn are_truncating(&self) -> bool {
        self.list.iter().any(Source::is_truncating)
    }

    /// Whether the one because of which another meganode may not be split yet is stuck.
    pub(super) fn are_stuck(&self, now_ns: u64) -> bool {
        self.list.iter().any(|source| source.is_truncating() && source.is_stuck(now_ns))
    }

    /// Whether a meganode's split is stuck.
    pub(super) fn is_stuck_at(&self, there: MeganodeAt, now_ns: u64) -> bool {
        self.list.iter().any(|source| source.there == there && source.is_stuck(now_ns))
    }

    /// Whether merges go on that may free a slot.
    pub(super) fn are_merging(&self, now_ns: u64) -> bool {
        self.list.iter().any(|source| source.merges && !source.is_stuck(now_ns))
    }

    /// How many of them are merges.
    pub(super) fn merging(&self) -> usize {
        self.list.iter().filter(|source| source.merges).count()
    }

    /// Whether extents of a pair's truncated meganodes are still to be freed.
    pub(super) fn are_freeing(&self, at: PairAt) -> bool {
        self.list.iter().any(|source| source.there.pair == at && source.half.is_some())
    }

    /// Whether a meganode is about to be truncated.
    pub(super) fn truncates_soon(&self, there: MeganodeAt, now_ns: u64) -> bool {
        let is_soon = |source: &Source| source.is_truncating() && !source.is_stuck(now_ns);
        self.list.iter().any(|source| source.there == there && is_soon(source))
    }

    /// Writes to the upper half wait from `Start` on, until its range is another meganode's.
    pub(super) fn holds_back(&self, pairs: &Pairs, there: MeganodeAt, key: &[u8]) -> bool {
        self.list.iter().filter(|source| source.there == there).any(|source| {
            let split = pairs.pair(there.pair).split_table().source(source.name);
            split.is_some_and(|split| {
                let is_linked = split.state == SourceState::Linked && !planted(Mutant::LinkedHalfWritten);
                (split.state == SourceState::Started || is_linked) && *key >= *split.key
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::SlotIndex;

    use super::*;
    use crate::split::tests::{LEFT, RIGHT, SIZES, Story};

    const HERE: MeganodeAt = MeganodeAt { pair: PairAt(1), slot: SlotIndex(2) };
    const BESIDE: MeganodeAt = MeganodeAt { pair: PairAt(1), slot: SlotIndex(3) };
    const TARGET: PairId = PairId(7);

    /// One split, or merge, that got so far at zero, and no further.
    fn only(progress: TargetProgress, merges: bool) -> Sources {
        let mut sources = Sources::default();
        sources.push(SplitName::default(), HERE, TARGET, progress, 0, merges);
        sources.list[0].moved_at_ns = Some(0);
        sources
    }

    /// A put waits for the room that its meganode's split makes, or for that split's end, but not for one
    /// that is stuck.
    #[test]
    fn split_holds_others_up_until_it_is_truncated_and_nobody_once_it_is_stuck() {
        use TargetProgress::{NotifiedOpen, Opened, Routed};
        for progress in TargetProgress::ALL {
            let sources = only(progress, false);
            let truncates = ![NotifiedOpen, Opened, Routed].contains(&progress);
            assert_eq!(sources.are_truncating(), truncates, "{progress:?}");
            assert_eq!(sources.truncates_soon(HERE, STUCK_NS - 1), truncates, "{progress:?}");
            assert!(!sources.are_stuck(STUCK_NS - 1) && !sources.is_stuck_at(HERE, STUCK_NS - 1));
            assert_eq!(sources.are_stuck(STUCK_NS), truncates, "{progress:?}");
            assert!(sources.is_stuck_at(HERE, STUCK_NS) && !sources.truncates_soon(HERE, STUCK_NS));
            assert!(!sources.truncates_soon(BESIDE, 0) && !sources.is_stuck_at(BESIDE, STUCK_NS));
        }
    }

    /// A put waits for the slot that a merge frees; a split frees none.
    #[test]
    fn merge_frees_a_slot_unless_it_is_stuck() {
        let (merge, split) = (only(TargetProgress::Asked, true), only(TargetProgress::Asked, false));
        assert!(merge.are_merging(STUCK_NS - 1) && !merge.are_merging(STUCK_NS));
        assert!(!split.are_merging(0));
        assert_eq!([merge.merging(), split.merging(), split.len(), Sources::default().len()], [1, 0, 1, 0]);
    }

    /// Such a pair does not leave.
    #[test]
    fn split_is_at_both_of_its_pairs_and_at_no_other() {
        let sources = only(TargetProgress::Asked, false);
        assert!(sources.are_at(HERE.pair, PairId(1)) && sources.are_at(PairAt(2), TARGET));
        assert!(!sources.are_at(PairAt(2), PairId(1)));
    }

    /// A second `Readable` would have a meganode truncated before its target is readable.
    #[test]
    fn word_of_a_target_that_comes_out_of_turn_changes_nothing() {
        let name = SplitName::default();
        let mut sources = only(TargetProgress::Asked, false);
        sources.on_readable(name);
        sources.on_routed(name);
        sources.on_refused(SplitName { csn: Csn(9), ..name }, "it is another one's");
        assert_eq!(sources.list[0].progress, TargetProgress::Asked);
        sources.on_refused(name, "it has no room");
        assert_eq!(sources.list[0].progress, TargetProgress::Refused);
        sources.on_adopted(name, Vec::new());
        assert_eq!(sources.list[0].progress, TargetProgress::Refused, "it is aborted");
    }

    /// Room that never comes is not waited for: the put would wait for ever.
    #[test]
    fn put_waits_for_a_split_in_its_pair_until_that_is_stuck() {
        for (progress, slots) in [(TargetProgress::Opened, 1), (TargetProgress::Asked, 2)] {
            let mut story = Story::begin(SIZES);
            (0..100_u64).for_each(|number| story.put(number + 1, &number.to_be_bytes()));
            let [left, right] = [LEFT, RIGHT].map(|slot| MeganodeAt { pair: story.at, slot });
            let low = story.pairs.pair(story.at).split_key(LEFT, 50).unwrap();
            story.splits.sources.begin(&mut story.pairs, left, &low, right, 0).unwrap();
            let split = &mut story.splits.sources.list[0];
            (split.progress, split.moved_at_ns) = (progress, Some(0));
            // While it is not truncated, others wait for it, too.
            for there in [left, right].into_iter().take(slots) {
                let mut waits = |now_ns| story.splits.starve(&mut story.pairs, there, false, now_ns);
                assert!(waits(STUCK_NS - 1), "{progress:?}");
                assert!(!waits(STUCK_NS), "{progress:?}");
            }
        }
    }

    /// How far a split is that was started at zero, after a step at this time.
    fn state_at(progress: TargetProgress, now_ns: u64) -> Option<SourceState> {
        let mut story = Story::begin(SIZES);
        let name = story.begin_split(MeganodeAt { pair: story.at, slot: RIGHT });
        story.splits.sources.list[0].progress = progress;
        story.splits.sources.step(&mut story.pairs, now_ns, &mut Effects::default());
        story.pairs.pair(story.at).split_table().source(name).map(|split| split.state)
    }

    /// Nobody may serve its pair any more. What one that has adopted waits for is the link.
    #[test]
    fn target_that_says_nothing_for_half_a_minute_is_given_up_unless_it_has_adopted() {
        assert_eq!(state_at(TargetProgress::Asked, DEADLINE_NS), Some(SourceState::Started));
        assert_eq!(state_at(TargetProgress::Asked, DEADLINE_NS + 1), Some(SourceState::Aborted));
        assert_eq!(state_at(TargetProgress::Adopted, DEADLINE_NS + 1), Some(SourceState::Linked));
    }

    /// A pair leaves once there are none; another one's would fail with it.
    #[test]
    fn unlinked_splits_of_a_pair_or_into_it_are_aborted_and_reported_once_and_no_others() {
        for (goes_to_other, of_other) in [(false, [false, false]), (true, [true, false])] {
            let mut story = Story::begin(SIZES);
            let other = story.add_pair(SIZES);
            let to = if goes_to_other { other } else { story.at };
            story.begin_split(MeganodeAt { pair: to, slot: RIGHT });
            let sources = &mut story.splits.sources;
            assert_eq!([(); 2].map(|()| sources.abort_unlinked(&story.pairs, other)), of_other);
            let is_refused = sources.list[0].progress == TargetProgress::Refused;
            assert_eq!(is_refused, goes_to_other);
            assert_eq!(sources.abort_unlinked(&story.pairs, story.at), !is_refused);
            assert!(!sources.abort_unlinked(&story.pairs, story.at));
        }
    }

    #[test]
    fn writes_below_a_splits_key_go_on_and_those_from_it_on_wait() {
        let mut story = Story::begin(SIZES);
        let name = story.begin_split(MeganodeAt { pair: story.at, slot: RIGHT });
        let left = MeganodeAt { pair: story.at, slot: LEFT };
        let key = story.pairs.pair(story.at).split_table().source(name).unwrap().key.clone();
        let waits = |there, key: &[u8]| story.splits.sources.holds_back(&story.pairs, there, key);
        assert!(waits(left, &key) && waits(left, &u64::MAX.to_be_bytes()));
        let below = &key[..key.len() - 1];
        assert!(below < &key[..] && !waits(left, below) && !waits(left, &[]));
        assert!(!waits(MeganodeAt { slot: RIGHT, ..left }, &key), "it is another meganode");
    }

    /// Without them a write that comes again after the merge is carried out twice. Within a pair they are
    /// there already.
    #[test]
    fn results_go_along_with_what_goes_to_another_pair() {
        let kept = |merges: bool, goes_to_other: bool| {
            let mut story = Story::begin(SIZES);
            let other = story.add_pair(SIZES);
            let to = MeganodeAt { pair: if goes_to_other { other } else { story.at }, slot: RIGHT };
            story.begin_split(to);
            story.splits.sources.list[0].merges = merges;
            let pair = story.pairs.pair_mut(story.at);
            let durable = pair.durable();
            let all = pair.completions().parts(durable, KEPT_BYTES);
            match story.splits.sources.list[0].adoption(&mut story.pairs) {
                Some(SplitMessage::Adopt { kept, .. }) => kept == all,
                other => panic!("{other:?}"),
            }
        };
        assert!(kept(false, true) && kept(true, true) && !kept(true, false));
    }
}
