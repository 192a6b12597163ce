//! Settling splits: what is left to do for each one, as tables.
//!
//! After a recovery, and on a timer while they live, pairs look at their unfinished splits. A source knows by
//! itself what to do ([`SOURCE_STEPS`]). A target asks the source's owner and goes by the answer
//! ([`TARGET_STEPS`]); an answer that is impossible is a contradiction between two logs, which nobody
//! resolves by guessing.
//!
//! What a source's owner answers ([`SplitTable::answer`]) must never be taken back by a crash, so it waits
//! for the record that it follows from:
//!
//! 1. the source appends `Aborted` and answers `no`; the target throws the meganode away and logs
//!    `Discarded`;
//! 2. power fails before `Aborted` is durable, and the source recovers with `Start` only. That is no harm
//!    yet; but had it been `Linked` that was appended, and `linked` that was answered, readers would have
//!    been led to a meganode whose split is aborted on recovery: they saw it, and then it was gone.
//!
//! A recovered owner that has no trace of a split answers `no`: an unfinished one is always in the log or in
//! the checkpoint's table, and a finished one is asked about only by a target that is open, which forgets it
//! then.

use cell_terms::{Csn, Root, SlotIndex};

use super::record::SplitName;
use super::table::{SlotUse, SourceState, SplitTable, TargetState};

/// What a source's owner says of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitAnswer {
    /// It is aborted, or over and forgotten.
    No,
    /// It is not decided, or the decision is not durable: ask again.
    Wait,
    /// It is linked: readable, not writable.
    Linked,
    /// The source's half is cut: writable.
    Open,
}

impl SplitAnswer {
    /// Every answer.
    pub const ALL: [SplitAnswer; 4] =
        [SplitAnswer::No, SplitAnswer::Wait, SplitAnswer::Linked, SplitAnswer::Open];
}

/// What a source has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceStep {
    /// Log that it is aborted. (Of a living source only when its deadline has passed.)
    Abort,
    /// Tell the target that it is linked, cut the own half, log that.
    Apply,
    /// Tell the target to open, insert the parent's entry, and log that it is finished when both are durable.
    OpenAndFinish,
    /// Nothing.
    Done,
}

/// What a target has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetStep {
    /// Ask the source's owner, later again.
    Ask,
    /// Throw the meganode away and log that.
    Discard,
    /// Make the meganode readable; ask again.
    Show,
    /// Make the meganode readable, log that it is open, and take writes once that is durable.
    Open,
    /// Forget the split.
    Forget,
    /// Nothing.
    Done,
    /// The two logs contradict each other: the pair is reported and the slot stays hidden.
    Contradiction,
}

/// By state, what a source does next.
pub(crate) const SOURCE_STEPS: [(SourceState, SourceStep); 5] = [
    (SourceState::Started, SourceStep::Abort),
    (SourceState::Linked, SourceStep::Apply),
    (SourceState::Applied, SourceStep::OpenAndFinish),
    (SourceState::Finished, SourceStep::Done),
    (SourceState::Aborted, SourceStep::Done),
];

/// By state and answer, what a target does next.
pub(crate) const TARGET_STEPS: [(TargetState, SplitAnswer, TargetStep); 16] = [
    // What was not whole when its builder died cannot have been linked.
    (TargetState::Adopting, SplitAnswer::No, TargetStep::Discard),
    (TargetState::Adopting, SplitAnswer::Wait, TargetStep::Ask),
    (TargetState::Adopting, SplitAnswer::Linked, TargetStep::Contradiction),
    (TargetState::Adopting, SplitAnswer::Open, TargetStep::Contradiction),
    (TargetState::Adopted, SplitAnswer::No, TargetStep::Discard),
    (TargetState::Adopted, SplitAnswer::Wait, TargetStep::Ask),
    (TargetState::Adopted, SplitAnswer::Linked, TargetStep::Show),
    (TargetState::Adopted, SplitAnswer::Open, TargetStep::Open),
    (TargetState::Opened, SplitAnswer::No, TargetStep::Forget),
    // The source was cut durably before it said open, and a cut split is never undecided again.
    (TargetState::Opened, SplitAnswer::Wait, TargetStep::Contradiction),
    (TargetState::Opened, SplitAnswer::Linked, TargetStep::Contradiction),
    (TargetState::Opened, SplitAnswer::Open, TargetStep::Done),
    (TargetState::Discarded, SplitAnswer::No, TargetStep::Done),
    (TargetState::Discarded, SplitAnswer::Wait, TargetStep::Done),
    (TargetState::Discarded, SplitAnswer::Linked, TargetStep::Contradiction),
    (TargetState::Discarded, SplitAnswer::Open, TargetStep::Contradiction),
];

/// What a source does next.
#[must_use]
pub fn step_of_source(state: SourceState) -> SourceStep {
    SOURCE_STEPS.iter().find(|(of, _)| *of == state).map_or(SourceStep::Done, |(_, step)| *step)
}

/// What a target does next; `None` stands for an owner that has not answered yet.
#[must_use]
pub fn step_of_target(state: TargetState, answer: Option<SplitAnswer>) -> TargetStep {
    let Some(answer) = answer else {
        return if state == TargetState::Discarded { TargetStep::Done } else { TargetStep::Ask };
    };
    let row = TARGET_STEPS.iter().find(|(of, said, _)| (*of, *said) == (state, answer));
    row.map_or(TargetStep::Contradiction, |(_, _, step)| *step)
}

/// One thing to do for one split, or for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// In the source's role.
    Source {
        /// Which split.
        name: SplitName,
        /// Its slot.
        slot: SlotIndex,
        /// What to do.
        step: SourceStep,
    },
    /// In the target's role.
    Target {
        /// Which split.
        name: SplitName,
        /// Its slot.
        slot: SlotIndex,
        /// What to do.
        step: TargetStep,
    },
    /// A router that the root does not lead to: its builder died before the root was set. Log the slot as
    /// free; the parent's entry, which is still to be inserted, builds another.
    FreeRouter {
        /// The slot.
        slot: SlotIndex,
    },
}

/// Everything that is left to do of a pair's splits. `answer` tells what a split's source says, `None` while
/// it has not; `root_slot` is the slot of this pair that the root leads to, if it is one of this pair's.
#[must_use]
pub fn settle(
    table: &SplitTable,
    root: Root,
    root_slot: Option<SlotIndex>,
    mut answer: impl FnMut(SplitName) -> Option<SplitAnswer>,
) -> Vec<Settlement> {
    let mut left = Vec::new();
    for (name, split) in table.sources() {
        let step = step_of_source(split.state);
        if step != SourceStep::Done {
            left.push(Settlement::Source { name, slot: split.slot, step });
        }
    }
    for (name, split) in table.targets() {
        let step = step_of_target(split.state, answer(name));
        if step != TargetStep::Done {
            left.push(Settlement::Target { name, slot: split.slot, step });
        }
    }
    let lost = table
        .slots()
        .filter(|(slot, used)| *used == SlotUse::Router && !(root.router && root_slot == Some(*slot)));
    left.extend(lost.map(|(slot, _)| Settlement::FreeRouter { slot }));
    left
}

impl SplitTable {
    /// What this pair, the source, answers when a target asks for a split. `durable` is the pair's durable
    /// watermark; of a pair in recovery that is its recorded cut.
    #[must_use]
    pub fn answer(&self, name: SplitName, durable: Csn) -> SplitAnswer {
        let Some(split) = self.source(name) else { return SplitAnswer::No };
        let is_durable = split.csn <= durable;
        match split.state {
            SourceState::Started => SplitAnswer::Wait,
            SourceState::Linked if is_durable => SplitAnswer::Linked,
            // Linked is durable long since.
            SourceState::Applied if !is_durable => SplitAnswer::Linked,
            SourceState::Applied | SourceState::Finished => SplitAnswer::Open,
            SourceState::Aborted if is_durable => SplitAnswer::No,
            SourceState::Linked | SourceState::Aborted => SplitAnswer::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::{Epoch, PairId, Pointer, RegionId};

    use super::*;
    use crate::record::NodeRecord;
    use crate::split::SplitRecord;

    #[test]
    fn settle_tables_have_one_row_for_each_case() {
        for state in SourceState::ALL {
            assert_eq!(SOURCE_STEPS.iter().filter(|(of, _)| *of == state).count(), 1, "{state:?}");
        }
        for state in TargetState::ALL {
            for answer in SplitAnswer::ALL {
                let rows = TARGET_STEPS.iter().filter(|(of, said, _)| (*of, *said) == (state, answer));
                assert_eq!(rows.count(), 1, "{state:?} {answer:?}");
            }
        }
        assert_eq!(SOURCE_STEPS.len(), SourceState::ALL.len());
        assert_eq!(TARGET_STEPS.len(), TargetState::ALL.len() * SplitAnswer::ALL.len());
    }

    /// A split that can be opened has been cut; one that is thrown away was never linked.
    #[test]
    fn settle_never_shows_what_may_be_aborted_nor_discards_what_is_linked() {
        for (state, answer, step) in TARGET_STEPS {
            match step {
                TargetStep::Discard => assert_eq!(answer, SplitAnswer::No),
                TargetStep::Show => assert_eq!((state, answer), (TargetState::Adopted, SplitAnswer::Linked)),
                TargetStep::Open => assert_eq!((state, answer), (TargetState::Adopted, SplitAnswer::Open)),
                TargetStep::Forget => assert_eq!((state, answer), (TargetState::Opened, SplitAnswer::No)),
                TargetStep::Ask => assert_eq!(answer, SplitAnswer::Wait),
                TargetStep::Done | TargetStep::Contradiction => {}
            }
        }
        for state in TargetState::ALL {
            let step = step_of_target(state, None);
            assert!(
                matches!(step, TargetStep::Ask | TargetStep::Done),
                "nothing without an answer: {step:?}"
            );
        }
    }

    const SOURCE: PairId = PairId(1);
    const TARGET: PairId = PairId(2);
    const EPOCH: Epoch = Epoch(3);

    fn name() -> SplitName {
        SplitName { pair: SOURCE, epoch: EPOCH, csn: Csn(10) }
    }

    fn apply(table: &mut SplitTable, record: SplitRecord<'_>, csn: u64) {
        table.apply(&NodeRecord::Split(record), EPOCH, Csn(csn)).unwrap();
    }

    #[test]
    fn answer_is_given_only_for_what_is_durable() {
        let mut table = SplitTable::new(SOURCE);
        assert_eq!(table.answer(name(), Csn(100)), SplitAnswer::No, "no trace");
        let (slot, target_slot) = (SlotIndex(0), SlotIndex(0));
        apply(&mut table, SplitRecord::Start { slot, key: b"m", target: TARGET, target_slot }, 10);
        assert_eq!(table.answer(name(), Csn(10)), SplitAnswer::Wait, "not decided");
        let mut aborted = table.clone();
        apply(&mut aborted, SplitRecord::Aborted { name: name() }, 12);
        assert_eq!(
            [11, 12].map(|csn| aborted.answer(name(), Csn(csn))),
            [SplitAnswer::Wait, SplitAnswer::No]
        );
        aborted.prune(Csn(11));
        assert_eq!(aborted.answer(name(), Csn(11)), SplitAnswer::Wait, "kept until it is durable");
        aborted.prune(Csn(12));
        assert_eq!((aborted.answer(name(), Csn(12)), aborted.sources().count()), (SplitAnswer::No, 0));
        apply(&mut table, SplitRecord::Linked { name: name() }, 12);
        assert_eq!(
            [11, 12].map(|csn| table.answer(name(), Csn(csn))),
            [SplitAnswer::Wait, SplitAnswer::Linked]
        );
        let cuts = crate::split::Cuts::new(&[cell_tree::NodeIndex::ROOT]).unwrap();
        let (right, freed) = (Pointer::new(RegionId(4), 4096), cell_tree::NodeBits::default());
        apply(&mut table, SplitRecord::Applied { name: name(), slot, right, cuts, high: b"m", freed }, 15);
        assert_eq!(
            [14, 15].map(|csn| table.answer(name(), Csn(csn))),
            [SplitAnswer::Linked, SplitAnswer::Open]
        );
        apply(&mut table, SplitRecord::Finished { name: name() }, 20);
        assert_eq!(
            [19, 20].map(|csn| table.answer(name(), Csn(csn))),
            [SplitAnswer::Open, SplitAnswer::Open]
        );
        table.prune(Csn(20));
        assert_eq!(table.answer(name(), Csn(20)), SplitAnswer::No);
    }

    #[test]
    fn settle_lists_what_is_left_in_both_roles_and_lost_routers() {
        let mut table = SplitTable::new(SOURCE);
        let (slot, target_slot) = (SlotIndex(0), SlotIndex(2));
        apply(&mut table, SplitRecord::Start { slot, key: b"m", target: SOURCE, target_slot }, 10);
        let right = Pointer::NULL;
        let adopt =
            SplitRecord::Adopt { name: name(), slot: target_slot, low: b"m", high: None, right, kept: &[] };
        apply(&mut table, adopt, 11);
        let router = NodeRecord::SlotUse { slot: SlotIndex(1), used: SlotUse::Router };
        table.apply(&router, EPOCH, Csn(12)).unwrap();
        let answer = |table: &SplitTable, name| Some(table.answer(name, Csn(12)));
        let left = settle(&table, Root::NONE, None, |name| answer(&table, name));
        let source = Settlement::Source { name: name(), slot, step: SourceStep::Abort };
        let target = |step| Settlement::Target { name: name(), slot: target_slot, step };
        let lost = Settlement::FreeRouter { slot: SlotIndex(1) };
        assert_eq!(left, [source, target(TargetStep::Ask), lost]);
        apply(&mut table, SplitRecord::Aborted { name: name() }, 13);
        let root = Root::router(Pointer::new(RegionId(2), 4096));
        let left = settle(&table, root, Some(SlotIndex(1)), |name| Some(table.answer(name, Csn(13))));
        assert_eq!(left, [target(TargetStep::Discard)]);
    }
}
