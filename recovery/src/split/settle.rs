//! Settling splits: what is left to do for each one, as tables.
//!
//! Living splits and recovered ones go by the same two functions. What a source does next follows from its
//! state in the table and from what is known of its target ([`step_of_source`]). What a target does next
//! follows from its state and from what its source's owner has said ([`step_of_target`]); an answer that is
//! impossible is a contradiction between two logs, which nobody resolves by guessing.
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

use super::name::SplitName;
use super::slot_use::SlotUse;
use super::table::{SourceState, SplitTable, TargetState};

/// What a source's owner says of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitAnswer {
    /// It is aborted, or over and forgotten.
    No,
    /// It is not decided, or the decision is not durable: ask again.
    Wait,
    /// It is linked: readable, not writable.
    Linked,
    /// The source's half is truncated: writable.
    Open,
}

impl SplitAnswer {
    /// Every answer.
    pub const ALL: [SplitAnswer; 4] =
        [SplitAnswer::No, SplitAnswer::Wait, SplitAnswer::Linked, SplitAnswer::Open];
}

/// What the owner of a split's source knows of its target. It is in no log: a recovery begins with
/// [`TargetProgress::Unknown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetProgress {
    /// It is to be asked to adopt.
    Unasked,
    /// It was asked to adopt.
    Asked,
    /// It has adopted, durably.
    Adopted,
    /// It cannot adopt, or was silent for too long.
    Refused,
    /// A recovery found the split: whatever was said to the target is said again.
    Unknown,
    /// It was notified that the split is linked.
    NotifiedLinked,
    /// It is readable.
    Readable,
    /// It was asked to take writes.
    NotifiedOpen,
    /// It takes writes, durably; the router's entry is on its way.
    Opened,
    /// The router's entry is durable.
    Routed,
}

impl TargetProgress {
    /// Every one, in order.
    pub const ALL: [TargetProgress; 10] = [
        TargetProgress::Unasked,
        TargetProgress::Asked,
        TargetProgress::Adopted,
        TargetProgress::Refused,
        TargetProgress::Unknown,
        TargetProgress::NotifiedLinked,
        TargetProgress::Readable,
        TargetProgress::NotifiedOpen,
        TargetProgress::Opened,
        TargetProgress::Routed,
    ];
}

/// What a source has to do next. What it says to others waits until its state is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceStep {
    /// Ask the target to adopt.
    Ask,
    /// Log that the split is linked.
    Link,
    /// Log that it is aborted.
    Abort,
    /// Notify the target that it is linked: it becomes readable.
    NotifyLinked,
    /// Truncate the own half and log that.
    Truncate,
    /// Ask the target to take writes.
    NotifyOpen,
    /// Log that it is finished.
    Finish,
    /// Nothing before the target has got further.
    Wait,
    /// It is over; the target may forget it once that is durable.
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
    // The source was truncated durably before it said open, and a truncated split is never undecided again.
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
pub fn step_of_source(state: SourceState, target: TargetProgress) -> SourceStep {
    match (state, target) {
        (SourceState::Started, TargetProgress::Unasked) => SourceStep::Ask,
        (SourceState::Started, TargetProgress::Asked) => SourceStep::Wait,
        (SourceState::Started, TargetProgress::Adopted) => SourceStep::Link,
        // Whoever asked has died, and nobody knows what became of that. A target that was never notified that
        // it is linked is not readable, so nothing is lost. What comes later cannot be before it is linked.
        (SourceState::Started, _) => SourceStep::Abort,
        (SourceState::Linked, target) if target < TargetProgress::NotifiedLinked => SourceStep::NotifyLinked,
        (SourceState::Linked, TargetProgress::NotifiedLinked) => SourceStep::Wait,
        (SourceState::Linked, _) => SourceStep::Truncate,
        (SourceState::Applied, target) if target < TargetProgress::NotifiedOpen => SourceStep::NotifyOpen,
        (SourceState::Applied, TargetProgress::Routed) => SourceStep::Finish,
        (SourceState::Applied, _) => SourceStep::Wait,
        (SourceState::Finished | SourceState::Aborted, _) => SourceStep::Done,
    }
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

/// Something of a pair's splits that is not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsettled {
    /// A split of one of its meganodes: [`step_of_source`].
    Source {
        /// Which split.
        name: SplitName,
    },
    /// A split that it adopts, or has adopted: [`step_of_target`].
    Target {
        /// Which split.
        name: SplitName,
        /// Its slot.
        slot: SlotIndex,
    },
    /// A router that the root does not lead to: its builder died before the root was set. Log the slot
    /// as free; the parent's entry, which is still to be inserted, builds another.
    LostRouter {
        /// The slot.
        slot: SlotIndex,
    },
}

/// Everything of a pair's splits that is not settled. `root_slot` is the slot of this pair that the root
/// leads to, if it is one of this pair's.
#[must_use]
pub fn unsettled(table: &SplitTable, root: Root, root_slot: Option<SlotIndex>) -> Vec<Unsettled> {
    let sources = table.sources().filter(|(_, split)| !split.state.is_over());
    let targets = table.targets().filter(|(_, split)| split.state != TargetState::Discarded);
    let is_lost = |slot| !(root.router && root_slot == Some(slot));
    let routers = table.slots().filter(|(slot, used)| *used == SlotUse::Router && is_lost(*slot));
    sources
        .map(|(name, _)| Unsettled::Source { name })
        .chain(targets.map(|(name, split)| Unsettled::Target { name, slot: split.slot }))
        .chain(routers.map(|(slot, _)| Unsettled::LostRouter { slot }))
        .collect()
}

impl SplitTable {
    /// Whether a split of one of the pair's meganodes has given the upper half away.
    #[must_use]
    pub fn is_truncated(&self, name: SplitName) -> bool {
        self.source(name)
            .is_some_and(|split| matches!(split.state, SourceState::Applied | SourceState::Finished))
    }

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
    fn target_table_has_one_row_for_each_case() {
        for state in TargetState::ALL {
            for answer in SplitAnswer::ALL {
                let rows = TARGET_STEPS.iter().filter(|(of, said, _)| (*of, *said) == (state, answer));
                assert_eq!(rows.count(), 1, "{state:?} {answer:?}");
            }
        }
        assert_eq!(TARGET_STEPS.len(), TargetState::ALL.len() * SplitAnswer::ALL.len());
    }

    /// A living split and one that a recovery found go the same way, in this order, and no other.
    #[test]
    fn step_of_source_never_truncates_before_the_target_is_readable_nor_aborts_what_is_linked() {
        for (state, target) in
            SourceState::ALL.into_iter().flat_map(|state| TargetProgress::ALL.map(|at| (state, at)))
        {
            let step = step_of_source(state, target);
            match step {
                SourceStep::Ask => {
                    assert_eq!((state, target), (SourceState::Started, TargetProgress::Unasked))
                }
                SourceStep::Link => {
                    assert_eq!((state, target), (SourceState::Started, TargetProgress::Adopted))
                }
                SourceStep::Abort => assert_eq!(state, SourceState::Started),
                SourceStep::NotifyLinked => {
                    assert!(state == SourceState::Linked && target < TargetProgress::Readable)
                }
                SourceStep::Truncate => {
                    assert!(state == SourceState::Linked && target >= TargetProgress::Readable)
                }
                SourceStep::NotifyOpen => {
                    assert!(state == SourceState::Applied && target < TargetProgress::Opened)
                }
                SourceStep::Finish => {
                    assert_eq!((state, target), (SourceState::Applied, TargetProgress::Routed))
                }
                SourceStep::Wait => assert!(!state.is_over()),
                SourceStep::Done => assert!(state.is_over()),
            }
        }
        let recovered = SourceState::ALL.map(|state| step_of_source(state, TargetProgress::Unknown));
        let expected = [
            SourceStep::Abort,
            SourceStep::NotifyLinked,
            SourceStep::NotifyOpen,
            SourceStep::Done,
            SourceStep::Done,
        ];
        assert_eq!(recovered, expected);
    }

    /// A split that can be opened has been truncated; one that is thrown away was never linked.
    #[test]
    fn step_of_target_never_shows_what_may_be_aborted_nor_discards_what_is_linked() {
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
        let boundary = crate::split::BoundaryNodes::new(&[cell_tree::NodeIndex::ROOT]).unwrap();
        let (right, freed) = (Pointer::new(RegionId(4), 4096), cell_tree::NodeBits::default());
        apply(
            &mut table,
            SplitRecord::Applied { name: name(), slot, right, boundary, high: b"m", freed },
            15,
        );
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
    fn unsettled_is_what_is_left_in_both_roles_and_lost_routers() {
        let mut table = SplitTable::new(SOURCE);
        let (slot, target_slot) = (SlotIndex(0), SlotIndex(2));
        apply(&mut table, SplitRecord::Start { slot, key: b"m", target: SOURCE, target_slot }, 10);
        let right = Pointer::NULL;
        let adopt =
            SplitRecord::Adopt { name: name(), slot: target_slot, low: b"m", high: None, right, kept: &[] };
        apply(&mut table, adopt, 11);
        let router = NodeRecord::SlotUse { slot: SlotIndex(1), used: SlotUse::Router };
        table.apply(&router, EPOCH, Csn(12)).unwrap();
        let source = Unsettled::Source { name: name() };
        let target = Unsettled::Target { name: name(), slot: target_slot };
        let lost = Unsettled::LostRouter { slot: SlotIndex(1) };
        assert_eq!(unsettled(&table, Root::NONE, None), [source, target, lost]);
        apply(&mut table, SplitRecord::Aborted { name: name() }, 13);
        let root = Root::router(Pointer::new(RegionId(2), 4096));
        assert_eq!(unsettled(&table, root, Some(SlotIndex(1))), [target]);
        apply(&mut table, SplitRecord::Discarded { name: name(), slot: target_slot }, 14);
        assert_eq!(unsettled(&table, root, Some(SlotIndex(1))), []);
    }
}
