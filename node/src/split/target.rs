//! Adoptions into this worker's pairs: the target's role. What each does next, the table of splits and what
//! its source has said decide ([`step_of_target`]); here it is done.

use cell_pair::{Adoption, AdoptionRange, AdoptionStep, NoRoom, Pair, SourceView};
use cell_recovery::{SplitAnswer, SplitName, SplitRecord, TargetState, TargetStep, step_of_target};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, ExtentOffset, PairId, SessionId, SlotIndex};
use cell_tree::NodeIndex;

use super::effects::{Effects, SplitMessage, Stepped};
use super::notice_row::{SourceNotice, TargetNotice};
use super::source::{answer_of, is_sealed};
use crate::directory::{MeganodeAt, Range};
use crate::outbox::PairAt;
use crate::pairs::Pairs;

/// Bytes that an adoption copies in one turn of its worker.
const BYTES_AT_ONCE: usize = 128 << 10;
/// Tree nodes that are made readable in one turn.
const NODES_AT_ONCE: u32 = 1_024;
/// How often a target that waits for an answer asks.
const ASK_NS: u64 = 20_000_000;

/// What is done to a target's tree nodes.
#[derive(Debug)]
enum Nodes {
    /// What goes along is logged, then entries are copied.
    Building { adoption: Box<Adoption>, source: SourceView, started: bool },
    /// All are in the log. The source is to be informed of that, with its extents, once they are sealed.
    Built { left_behind: Vec<(ExtentOffset, u32)> },
    /// They stay hidden; those of a merge are what they were.
    Hidden,
    /// They are made readable, from this one on.
    Showing { next: NodeIndex },
    /// They are readable; whether that was reported to the source.
    Shown { source_notified: bool },
}

/// An adoption of one of the worker's pairs: what is not in its pair's table.
#[derive(Debug)]
struct Target {
    name: SplitName,
    at: PairAt,
    slot: SlotIndex,
    nodes: Nodes,
    /// How far its source is, durably, as was said last.
    answer: Option<SplitAnswer>,
    /// A recovery found it, so it asks its source, next at this time.
    asks_at_ns: Option<u64>,
    /// It was reported to the source that it takes writes.
    opened_reported: bool,
    /// That the two logs contradict each other was reported.
    reported: bool,
}

/// All of them, oldest first.
#[derive(Debug, Default)]
pub(super) struct Targets {
    list: Vec<Target>,
}

/// What was said last counts, but for what was under way for long: a split that is open is not merely linked.
fn later(before: Option<SplitAnswer>, now: SplitAnswer) -> SplitAnswer {
    match (before, now) {
        (_, SplitAnswer::No) | (Some(SplitAnswer::No), _) => SplitAnswer::No,
        (Some(SplitAnswer::Open), _) => SplitAnswer::Open,
        (Some(SplitAnswer::Linked), SplitAnswer::Wait) => SplitAnswer::Linked,
        (_, now) => now,
    }
}

/// Whether a split is linked durably, as far as this worker has its source.
fn may_be_shown(pairs: &Pairs, name: SplitName) -> bool {
    let answer = answer_here(pairs, name);
    answer.is_none_or(|answer| matches!(answer, SplitAnswer::Linked | SplitAnswer::Open))
}

/// What a source that is here says of a split.
fn answer_here(pairs: &Pairs, name: SplitName) -> Option<SplitAnswer> {
    Some(answer_of(pairs.pair(pairs.at(name.pair)?), name))
}

/// The range is this meganode's from here on: where its source is elsewhere, or came later, nobody has handed
/// it over.
fn enter_directory(pairs: &mut Pairs, there: MeganodeAt, name: SplitName) {
    let Some(split) = pairs.pair(there.pair).split_table().target(name) else { return };
    let (low, high, merges) = (split.low.clone(), split.high.clone(), split.merges);
    if merges {
        pairs.directory.extend(there, high);
    } else if pairs.directory.of(there).is_none() {
        pairs.directory.insert(Range { low, high, at: there });
    }
}

/// Whether a split is a merge.
fn merges(pair: &Pair, name: SplitName) -> bool {
    pair.split_table().target(name).is_some_and(|split| split.merges)
}

/// Why a meganode cannot take over the range of another one, if it cannot.
fn why_not_absorbed(pairs: &Pairs, there: MeganodeAt, range: &AdoptionRange) -> Option<&'static str> {
    let ends = pairs.directory.of(there).is_some_and(|left| left.high.as_deref() == Some(&*range.low));
    match () {
        () if !ends => Some("its left neighbour is another one by now"),
        () if pairs.pair(there.pair).mergeable_by(there.slot).is_none() => {
            Some("its left neighbour is not empty")
        }
        () if pairs.get(there.pair).leaving.is_some() => Some("its left neighbour's pair leaves"),
        () => None,
    }
}

/// How far an adoption is in its pair's table, and by which record.
fn state_of(pair: &Pair, name: SplitName) -> Option<(TargetState, Csn)> {
    pair.split_table().target(name).map(|split| (split.state, split.csn))
}

/// Whether the source may throw its half away, by the record that it is adopted.
fn may_be_heard_of(pair: &Pair, adopted: Csn) -> bool {
    is_sealed(pair, adopted, planted(Mutant::AdoptedToldUnsealed)) || planted(Mutant::AdoptedToldEarly)
}

/// Whether the source may forget the split, by the record that this takes writes.
fn may_be_reported(pair: &Pair, opened: Csn) -> bool {
    is_sealed(pair, opened, planted(Mutant::OpenedToldUnsealed)) || planted(Mutant::OpenedToldEarly)
}

/// The same of a source that is elsewhere.
fn may_be_noted(pair: &Pair, opened: Csn) -> bool {
    is_sealed(pair, opened, planted(Mutant::OpenedNotedUnsealed))
}

impl Target {
    /// An adoption that a recovery found unsettled.
    fn recovered(at: PairAt, name: SplitName, slot: SlotIndex, state: TargetState) -> Target {
        let open = state == TargetState::Opened;
        Target {
            name,
            at,
            slot,
            nodes: if open { Nodes::Shown { source_notified: true } } else { Nodes::Hidden },
            answer: open.then_some(SplitAnswer::Open),
            asks_at_ns: (!open).then_some(0),
            opened_reported: false,
            reported: false,
        }
    }

    fn is_shown(&self) -> bool {
        matches!(self.nodes, Nodes::Shown { .. })
    }

    /// Goes on with copying, if it is at that. Whether there is more to do that waits for nothing.
    fn build(&mut self, pairs: &mut Pairs, effects: &mut Effects) -> bool {
        if let Nodes::Building { adoption, .. } = &self.nodes
            && adoption.range().merges
        {
            return self.absorb(pairs, effects);
        }
        let pair = pairs.pair_mut(self.at);
        let Nodes::Building { adoption, source, started } = &mut self.nodes else { return false };
        if !*started {
            *started = pair.begin_adoption(adoption);
            if !*started {
                return false;
            }
        }
        let why = match pair.adopt(adoption, source, BYTES_AT_ONCE) {
            Ok(AdoptionStep::More) => return true,
            Ok(AdoptionStep::Waits) => return false,
            Ok(AdoptionStep::Whole(csn)) => {
                tracing::debug!(name = %self.name, csn = csn.0, "adopted");
                self.nodes = Nodes::Built { left_behind: adoption.take_left_behind() };
                return true;
            }
            Ok(AdoptionStep::Full(NoRoom::Region)) => "its target has no extents left",
            Ok(AdoptionStep::Full(NoRoom::Slot)) => "its target's slot is full",
            Ok(AdoptionStep::Full(_)) => "the disk has no room for its target's log",
            Err(error) => {
                tracing::error!(%error, name = %self.name, "an adoption cannot go on");
                "an error of its target"
            }
        };
        // The source aborts; then it is thrown away.
        effects.send(SplitMessage::Refused { name: self.name, why });
        self.give_up(pair);
        true
    }

    /// Logs that a merge's meganode is to take over the range. From its first record on it takes no writes;
    /// in the same turn it is looked at whether it has had some. Whether there is more to do that waits for
    /// nothing.
    fn absorb(&mut self, pairs: &mut Pairs, effects: &mut Effects) -> bool {
        let Nodes::Building { adoption, .. } = &mut self.nodes else { return false };
        let there = MeganodeAt { pair: self.at, slot: self.slot };
        let is_new = state_of(pairs.pair(self.at), self.name).is_none();
        let why = why_not_absorbed(pairs, there, adoption.range());
        if let Some(why) = why.filter(|_| is_new && !planted(Mutant::AbsorbedUnseen)) {
            effects.send(SplitMessage::Refused { name: self.name, why });
            self.nodes = Nodes::Hidden;
            return true;
        }
        let is_whole = pairs.pair_mut(self.at).begin_absorbing(adoption);
        if is_whole {
            self.nodes = Nodes::Built { left_behind: Vec::new() };
        }
        is_whole
    }

    /// It fails, wherever it was.
    fn give_up(&mut self, pair: &mut Pair) {
        if let Nodes::Building { adoption, .. } = &mut self.nodes {
            pair.give_up_adoption(adoption);
        }
        self.nodes = Nodes::Hidden;
    }

    /// Makes the next tree nodes readable, or has a merge's meganode end where the range ends. Whether all
    /// are.
    fn show(&mut self, pairs: &mut Pairs, effects: &mut Effects) -> bool {
        let next = match self.nodes {
            Nodes::Shown { .. } => return true,
            Nodes::Showing { next } => next,
            _ => NodeIndex::ROOT,
        };
        assert!(may_be_shown(pairs, self.name), "{} is readable before it is linked durably", self.name);
        if merges(pairs.pair(self.at), self.name) {
            return self.extend(pairs, effects);
        }
        self.nodes = match pairs.pair_mut(self.at).show(self.slot, next, NODES_AT_ONCE) {
            Some(next) => Nodes::Showing { next },
            None => Nodes::Shown { source_notified: false },
        };
        self.is_shown()
    }

    /// A merge's meganode ends where the range ends; no, while its log has no room. That need not be durable:
    /// it follows from the source's state.
    fn extend(&mut self, pairs: &mut Pairs, effects: &mut Effects) -> bool {
        let pair = pairs.pair_mut(self.at);
        let Some(split) = pair.split_table().target(self.name) else { return false };
        let (high, right) = (split.high.clone(), split.right);
        match pair.extend(self.slot, high.as_deref(), right) {
            Ok(true) => self.nodes = Nodes::Shown { source_notified: false },
            Ok(false) => {}
            Err(error) => effects.broken(error),
        }
        self.is_shown()
    }

    /// One step, if it is due.
    fn step(&mut self, pairs: &mut Pairs, now_ns: u64, effects: &mut Effects) -> Stepped {
        let name = self.name;
        let pair = pairs.pair_mut(self.at);
        let Some((state, csn)) = state_of(pair, name) else {
            if self.answer == Some(SplitAnswer::No) {
                self.give_up(pair); // nothing of it was logged
                return Stepped::Over;
            }
            return Stepped::Waits;
        };
        if let Nodes::Built { left_behind } = &mut self.nodes {
            if may_be_heard_of(pair, csn) {
                let left_behind = std::mem::take(left_behind);
                effects.send(SplitMessage::Adopted { name, left_behind });
                self.nodes = Nodes::Hidden;
                self.answer = planted(Mutant::ReadableEarly).then_some(SplitAnswer::Linked);
                return Stepped::Moved;
            }
            if csn <= pair.durable() {
                pair.want_seal(csn);
            }
        }
        if state == TargetState::Opened && (csn <= pair.durable() || planted(Mutant::OpenedToldEarly)) {
            if !self.opened_reported && !may_be_reported(pair, csn) {
                pair.want_seal(csn);
                return Stepped::Waits;
            }
            if !std::mem::replace(&mut self.opened_reported, true) {
                effects.send(SplitMessage::Opened { name });
                return Stepped::Moved;
            }
            // Nobody notifies a target whose source was over before it came.
            if answer_here(pairs, name) == Some(SplitAnswer::No) {
                self.answer = Some(SplitAnswer::No);
            }
        }
        match step_of_target(state, self.answer) {
            TargetStep::Ask => self.ask(pairs, now_ns, effects),
            TargetStep::Discard => self.discard(pairs, effects),
            TargetStep::Show => self.become_readable(pairs, effects),
            TargetStep::Open => self.open(pairs, effects),
            // Its source is over once it has learnt that this is open, and it learns that once it is sealed.
            TargetStep::Forget => {
                pairs.pair_mut(self.at).forget_split(name);
                Stepped::Over
            }
            TargetStep::Contradiction if !std::mem::replace(&mut self.reported, true) => {
                let answer = self.answer;
                tracing::error!(%name, ?state, ?answer, "two logs contradict each other: the slot stays hidden");
                Stepped::Waits
            }
            TargetStep::Contradiction | TargetStep::Done => Stepped::Waits,
        }
    }

    /// What was adopted is thrown away, once the log has room for that.
    fn discard(&mut self, pairs: &mut Pairs, effects: &mut Effects) -> Stepped {
        let pair = pairs.pair_mut(self.at);
        self.give_up(pair);
        if !pair.discard(self.name, self.slot) {
            return Stepped::Waits;
        }
        effects.changed(); // a meganode that was to be merged into takes writes again
        Stepped::Over
    }

    fn ask(&mut self, pairs: &Pairs, now_ns: u64, effects: &mut Effects) -> Stepped {
        if self.asks_at_ns.is_none_or(|due_ns| due_ns > now_ns) {
            return Stepped::Waits;
        }
        self.asks_at_ns = Some(now_ns + ASK_NS);
        effects.send(SplitMessage::Ask { name: self.name, by: pairs.pair(self.at).id() });
        Stepped::Moved
    }

    fn become_readable(&mut self, pairs: &mut Pairs, effects: &mut Effects) -> Stepped {
        if let Nodes::Shown { source_notified: true } = self.nodes {
            return Stepped::Waits;
        }
        if self.show(pairs, effects) {
            effects.send(SplitMessage::Readable { name: self.name });
            self.nodes = Nodes::Shown { source_notified: true };
        }
        self.went_on()
    }

    /// Whether a step at the nodes did anything: a merge waits while its log has no room.
    fn went_on(&self) -> Stepped {
        if matches!(self.nodes, Nodes::Hidden) { Stepped::Waits } else { Stepped::Moved }
    }

    /// Takes writes, once all tree nodes are readable and the log has room for the step.
    fn open(&mut self, pairs: &mut Pairs, effects: &mut Effects) -> Stepped {
        if !self.is_shown() {
            self.show(pairs, effects);
            return self.went_on();
        }
        enter_directory(pairs, MeganodeAt { pair: self.at, slot: self.slot }, self.name);
        let opened = SplitRecord::Opened { name: self.name };
        if pairs.pair_mut(self.at).try_step(opened, 0).is_none() {
            return Stepped::Waits;
        }
        effects.changed();
        Stepped::Moved
    }
}

impl Targets {
    /// Begins to adopt a range.
    pub(super) fn adopt(
        &mut self,
        pairs: &mut Pairs,
        to: PairId,
        range: AdoptionRange,
        from: SlotIndex,
        kept: Vec<Vec<u8>>,
        effects: &mut Effects,
    ) {
        let (name, slot) = (range.name, range.slot);
        let (Some(at), Some(source)) = (pairs.at(to), pairs.at(name.pair)) else {
            let why = "its target left";
            return effects.send(SplitMessage::Refused { name, why });
        };
        let pair = pairs.pair_mut(at);
        if !range.merges && (!pair.grant_first(slot) || !pair.reserve_slot(slot)) {
            let why = "its target's slot has no memory, or is taken";
            return effects.send(SplitMessage::Refused { name, why });
        }
        let source = pairs.pair(source).source_view(from);
        let adoption = Box::new(Adoption::new(range, kept));
        self.list.push(Target {
            name,
            at,
            slot,
            nodes: Nodes::Building { adoption, source, started: false },
            answer: None,
            asks_at_ns: None,
            opened_reported: false,
            reported: false,
        });
    }

    /// Goes on with an adoption that a recovery found unsettled. One whose source is truncated has the range:
    /// it must be readable when the pairs are served.
    pub(super) fn resume(&mut self, pairs: &mut Pairs, at: PairAt, name: SplitName, slot: SlotIndex) {
        let Some((state, _)) = state_of(pairs.pair(at), name) else { return };
        let mut target = Target::recovered(at, name, slot, state);
        // One that is to take over a range is whole and takes no writes. It was not linked: nobody is asked.
        if state == TargetState::Adopting && merges(pairs.pair(at), name) {
            target.answer = Some(SplitAnswer::No);
        }
        let source = pairs.at(name.pair).map(|at| pairs.pair(at));
        let truncated = source.is_some_and(|pair| pair.split_table().is_truncated(name));
        if state == TargetState::Adopted && truncated && merges(pairs.pair(at), name) {
            // The log takes that: nothing was written to it yet. If not, it is done with the next step.
            if !planted(Mutant::RecoveredMergeUnextended) {
                target.extend(pairs, &mut Effects::default());
            }
            target.answer = answer_here(pairs, name);
            if target.is_shown() {
                enter_directory(pairs, MeganodeAt { pair: at, slot }, name);
            }
        } else if state == TargetState::Adopted && truncated {
            while let Some(next) = pairs.pair_mut(at).show(slot, NodeIndex::ROOT, u32::MAX) {
                debug_assert!(next.0 > 0);
            }
            target.nodes = Nodes::Shown { source_notified: true };
            // One whose pair came before this one has said so already, to nobody.
            target.answer = answer_here(pairs, name);
            enter_directory(pairs, MeganodeAt { pair: at, slot }, name);
        }
        self.list.push(target);
    }

    /// Lets adoptions copy the next part. Whether one has more to do that waits for nothing.
    pub(super) fn build(&mut self, pairs: &mut Pairs, effects: &mut Effects) -> bool {
        let mut busy = false;
        for target in &mut self.list {
            busy |= target.build(pairs, effects);
        }
        busy
    }

    /// Takes each adoption a step further. Whether one went on.
    pub(super) fn step(&mut self, pairs: &mut Pairs, now_ns: u64, effects: &mut Effects) -> bool {
        let mut moved = false;
        self.list.retain_mut(|target| {
            let stepped = target.step(pairs, now_ns, effects);
            moved |= stepped != Stepped::Waits;
            stepped != Stepped::Over
        });
        moved
    }

    /// How far a source is, durably. It may be late, never wrong; who is notified again answers again.
    pub(super) fn on_answer(&mut self, pairs: &Pairs, to: PairId, name: SplitName, answer: SplitAnswer) {
        let Some(at) = pairs.at(to) else { return }; // one that is elsewhere learns it by a notice
        let Some(target) = self.list.iter_mut().find(|target| target.at == at && target.name == name) else {
            if matches!(answer, SplitAnswer::Linked | SplitAnswer::Open) {
                tracing::error!(%name, ?answer, "a split that is linked has no target");
            }
            return;
        };
        match answer {
            SplitAnswer::Linked => {
                if let Nodes::Shown { source_notified } = &mut target.nodes {
                    *source_notified = false;
                }
            }
            SplitAnswer::Open => target.opened_reported = false,
            SplitAnswer::No | SplitAnswer::Wait => {}
        }
        target.answer = Some(later(target.answer, answer));
    }

    /// What the owner of a source that is elsewhere has written down, if it is new to its target.
    pub(super) fn on_source_notice(
        &mut self,
        pairs: &Pairs,
        to: PairId,
        name: SplitName,
        answer: SourceNotice,
    ) {
        let answer = match answer {
            SourceNotice::No => SplitAnswer::No,
            SourceNotice::Linked => SplitAnswer::Linked,
            SourceNotice::Open => SplitAnswer::Open,
        };
        let Some(at) = pairs.at(to) else { return };
        let target = self.list.iter().find(|target| target.at == at && target.name == name);
        if target.is_some_and(|target| target.answer != Some(later(target.answer, answer))) {
            self.on_answer(pairs, to, name, answer);
        }
    }

    /// A session has ended: what of it goes along with an adoption is for nobody.
    pub(super) fn forget_session(&mut self, session: SessionId) {
        for target in &mut self.list {
            if let Nodes::Building { adoption, .. } = &mut target.nodes {
                adoption.forget_session(session);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether a pair is taking over entries that no leaf leads to yet.
    pub(super) fn are_building(&self, at: PairAt) -> bool {
        let building = |target: &Target| matches!(target.nodes, Nodes::Building { .. });
        self.list.iter().any(|target| target.at == at && building(target))
    }

    /// Whether a pair takes part in one of them.
    pub(super) fn are_at(&self, at: PairAt, pair: PairId) -> bool {
        self.list.iter().any(|target| target.at == at || target.name.pair == pair)
    }

    /// Whether a pair has an adoption that its source may still be asked about.
    pub(super) fn has(&self, at: PairAt, name: SplitName) -> bool {
        self.list.iter().any(|target| target.at == at && target.name == name)
    }

    /// The adoptions of which the source is elsewhere, each with how far it is.
    pub(super) fn elsewhere(&self, pairs: &Pairs) -> Vec<(SplitName, PairAt, TargetNotice)> {
        let elsewhere = self.list.iter().filter(|target| pairs.at(target.name.pair).is_none());
        let notice = |target: &Target| {
            let pair = pairs.pair(target.at);
            let state = match state_of(pair, target.name) {
                Some((TargetState::Opened, csn)) if may_be_noted(pair, csn) => TargetNotice::Opened,
                _ if target.is_shown() => TargetNotice::Readable,
                _ => TargetNotice::Hidden,
            };
            (target.name, target.at, state)
        };
        elsewhere.map(notice).collect()
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::Pointer;

    use super::*;
    use crate::leave_step::LeaveStep;
    use crate::split::tests::{LEFT, SIZES, Story};

    /// Answers come late, and in any order.
    #[test]
    fn later_answer_counts_but_takes_nothing_back() {
        use SplitAnswer::{Linked, No, Open, Wait};
        for now in [Wait, Linked, Open, No] {
            assert_eq!(later(None, now), now);
            assert_eq!(later(Some(No), now), No, "it is over");
        }
        assert_eq!([Wait, Linked, Open, No].map(|now| later(Some(Open), now)), [Open, Open, Open, No]);
        assert_eq!([Wait, Linked, Open, No].map(|now| later(Some(Linked), now)), [Linked, Linked, Open, No]);
        assert_eq!([Wait, Linked, Open, No].map(|now| later(Some(Wait), now)), [Wait, Linked, Open, No]);
    }

    #[test]
    fn adoption_is_at_both_of_its_pairs_and_belongs_to_its_own() {
        let [name, other] = [7, 8].map(|pair| SplitName { pair: PairId(pair), ..SplitName::default() });
        let (here, away) = (PairAt(1), PairAt(2));
        let adopted = Target::recovered(here, name, SlotIndex(0), TargetState::Adopted);
        let targets = Targets { list: vec![adopted] };
        assert!(!targets.is_empty() && Targets::default().is_empty());
        assert!(targets.are_at(here, PairId(1)) && targets.are_at(away, name.pair));
        assert!(!targets.are_at(away, PairId(1)) && !targets.are_building(here), "it is whole");
        assert!(targets.has(here, name) && !targets.has(away, name) && !targets.has(here, other));
    }

    /// Nobody would notify it unasked: its source's owner does not know of it.
    #[test]
    fn adoption_that_a_recovery_found_asks_at_once_unless_it_is_open() {
        let found =
            |state| Target::recovered(PairAt(1), SplitName::default(), SlotIndex(0), state).asks_at_ns;
        assert_eq!([TargetState::Adopted, TargetState::Opened].map(found), [Some(0), None]);
    }

    /// A range that goes to a meganode which has entries, or is not beside it, is lost to those who look for
    /// its keys; one of a pair that leaves would be in no log that its next owner reads.
    #[test]
    fn range_is_taken_over_by_an_empty_left_neighbour_whose_pair_stays() {
        let mut story = Story::begin(SIZES);
        (1..=100_u64).for_each(|number| story.put(number, &number.to_be_bytes()));
        story.divide();
        let there = MeganodeAt { pair: story.at, slot: LEFT };
        let low = story.pairs.directory.of(there).unwrap().high.clone().unwrap();
        let name = SplitName::default();
        let range = AdoptionRange { name, slot: LEFT, low, high: None, right: Pointer::NULL, merges: true };
        let why = |story: &Story, range: &AdoptionRange| why_not_absorbed(&story.pairs, there, range);
        assert_eq!(why(&story, &range), Some("its left neighbour is not empty"));
        let stays = |number: &u64| number.to_be_bytes()[..] < range.low[..];
        (1..=100_u64).filter(stays).for_each(|number| story.delete(100 + number, &number.to_be_bytes()));
        story.until("one tree node", |story| story.pairs.pair(story.at).mergeable_by(LEFT).is_some());
        assert_eq!(why(&story, &range), None);
        let beside = AdoptionRange { low: u64::MAX.to_be_bytes()[..].into(), ..range.clone() };
        assert_eq!(why(&story, &beside), Some("its left neighbour is another one by now"));
        let leaves = LeaveStep::Settling { since_ns: 0, copied: (0, 0) };
        story.pairs.get_mut(story.at).leaving = Some(leaves);
        assert_eq!(why(&story, &range), Some("its left neighbour's pair leaves"));
    }

    fn name_of(pair: u32, csn: u64) -> SplitName {
        SplitName { pair: PairId(pair), csn: Csn(csn), ..SplitName::default() }
    }

    /// Two adoptions of a pair, neither of which is open.
    fn two_at(at: PairAt, names: [SplitName; 2]) -> Targets {
        let adopted = |name| Target::recovered(at, name, SlotIndex(0), TargetState::Adopted);
        Targets { list: names.map(adopted).into() }
    }

    fn answers(targets: &Targets) -> Vec<Option<SplitAnswer>> {
        targets.list.iter().map(|target| target.answer).collect()
    }

    /// It would be thrown away though it is linked, or shown though it is not.
    #[test]
    fn answer_to_one_adoption_counts_for_no_other_of_its_pair() {
        let (story, names) = (Story::begin(SIZES), [name_of(7, 1), name_of(7, 2)]);
        let mut targets = two_at(story.at, names);
        targets.on_answer(&story.pairs, PairId(1), names[1], SplitAnswer::Linked);
        assert_eq!(answers(&targets), [None, Some(SplitAnswer::Linked)]);
        targets.on_source_notice(&story.pairs, PairId(1), names[0], SourceNotice::No);
        assert_eq!(answers(&targets), [Some(SplitAnswer::No), Some(SplitAnswer::Linked)]);
        targets.on_source_notice(&story.pairs, PairId(1), names[1], SourceNotice::Open);
        assert_eq!(answers(&targets), [Some(SplitAnswer::No), Some(SplitAnswer::Open)]);
    }

    /// Its source's owner may be away, and nobody notifies it unasked.
    #[test]
    fn adoption_that_is_not_answered_asks_again_after_a_while() {
        let (story, mut effects) = (Story::begin(SIZES), Effects::default());
        let mut target = Target::recovered(story.at, name_of(7, 1), SlotIndex(0), TargetState::Adopted);
        let mut asked_at = |now_ns| {
            let stepped = target.ask(&story.pairs, now_ns, &mut effects);
            (stepped, effects.messages.drain(..).count())
        };
        let (asks, waits) = ((Stepped::Moved, 1), (Stepped::Waits, 0));
        assert_eq!([5, 6, 4 + ASK_NS, 5 + ASK_NS].map(&mut asked_at), [asks, waits, waits, asks]);
        assert_eq!(asked_at(6 + ASK_NS), waits);
    }

    /// A source that hears too much gives its half away.
    #[test]
    fn owners_of_sources_elsewhere_learn_how_far_each_adoption_is() {
        let (story, names) = (Story::begin(SIZES), [name_of(7, 1), name_of(1, 2)]);
        let mut targets = two_at(story.at, names);
        assert_eq!(targets.elsewhere(&story.pairs), [(names[0], story.at, TargetNotice::Hidden)]);
        targets.list[0].nodes = Nodes::Shown { source_notified: false };
        assert_eq!(targets.elsewhere(&story.pairs), [(names[0], story.at, TargetNotice::Readable)]);
    }
}
