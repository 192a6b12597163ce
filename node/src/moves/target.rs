//! The target's part of a planned move: a core like the source's. The copy itself is made beside it
//! (`super::copying`).
//!
//! ```text
//! New ─ accepted ─> Copying ─ verified, close behind ─> Ready ─ handed ─> Finishing ─ published ─> over
//!  ^                   └─ files gone: anew ─┘              └─ no copy, or it fails: back ──────────┘
//! ```

use cell_cluster::{
    ClusterError, CopyProgress, MoveName, MoveOutcome, MoveRefusal, MoveRow, MoveStage, PairRow,
};
use cell_terms::{Csn, Epoch, Incarnation};
use cell_wal::LogPlace;

use super::source::{ROW_UNREADABLE, SOURCE_ENDED, STALLED, Seen, StallWatch};
use crate::move_counts::MoveEnd;

/// How often the move's row says how far the copy is.
const REPORT_NS: u64 = 1_000_000_000;
/// How long it takes until a copy is restarted whose first question was not answered.
const AGAIN_NS: u64 = 100_000_000;
/// A copy is started so often, because files that it wanted have gone; and so often one that was ready may
/// fall behind.
const TRIES_MAX: u32 = 5;

/// Why a move comes to nothing whose copy has fallen behind too often.
pub(crate) const BEHIND: &str = "its owner writes faster than its copy reads";
/// Why one does whose target stops.
pub(crate) const TARGET_STOPS: &str = "its target stops";

/// Why one does to whose target pairs come back that it had.
pub(crate) const MEMORY_KEPT: &str =
    "its target keeps what memory it has left for pairs that it had, and that wait to be recovered";

/// What the target is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetAction {
    /// Begin the copy.
    Copy,
    /// Give the copy up.
    Drop,
    /// Say in the move's row how far it is.
    Report(CopyProgress),
    /// The pair was handed over, and this is its row: the copy goes on with it.
    Finish(Box<PairRow>),
    /// Give the pair back.
    TakeBack {
        /// Why.
        why: String,
    },
    /// End the move before the handing.
    GiveUp {
        /// Why.
        why: String,
    },
    /// Note what became of it after the handing.
    Close(MoveOutcome),
    /// It is over here.
    End,
}

impl TargetAction {
    /// What the move becomes by what is written.
    pub(super) fn becomes(&self) -> Option<MoveEnd> {
        match self {
            TargetAction::TakeBack { .. } => Some(MoveEnd::Back),
            TargetAction::GiveUp { .. } => Some(MoveEnd::GivenUp),
            TargetAction::Close(outcome) => Some(MoveEnd::of(outcome)),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TargetState {
    /// There is no copy.
    New,
    /// There is one.
    Copying,
    /// The pair is this node's, and the copy is made whole.
    Finishing,
    /// It is served.
    Served,
    /// It cannot be served here.
    Returning { why: String },
    /// The copy is to be dropped, then the rest.
    Dropping { why: Option<String> },
    /// The row is to say so.
    GivingUp { why: String },
    /// Nothing is left to do.
    Over,
}

/// What another copy may hope for after one that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFailure {
    /// Nothing: it would fail as well.
    Final,
    /// Files that were wanted have gone, as they may beside their owner's work.
    FilesGone,
    /// The coordinator did not answer when it began. That says nothing of the pair: it is restarted for as
    /// long as a move may stand still.
    Unanswered,
    /// A log looks damaged. So it does if its owner has given a file back meanwhile, because a checkpoint
    /// covers it, and has used it again. A copy of the pair as it is then does not read that any more: what
    /// it finds at the same change is damage.
    LooksDamaged {
        /// The first change that cannot be read, and its place; none if the two logs do not fit together.
        at: Option<(Csn, LogPlace)>,
    },
}

/// How far a copy is, as its thread reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CopyState {
    pub(super) bytes_done: u64,
    pub(super) bytes_total: u64,
    /// Entries.
    pub(super) checked: u64,
    pub(super) is_ready: bool,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct TargetMove {
    pub(super) name: MoveName,
    /// What the pair's row shows from the handing on, and as long as the pair is this node's.
    handed: (Epoch, Incarnation),
    state: TargetState,
    tries: u32,
    /// The last copy had no answer.
    is_unanswered: bool,
    /// The next one is not to begin before.
    again_ns: u64,
    /// What looked like damage to the last copy that met some.
    suspicion: Option<CopyFailure>,
    /// How often the copy was ready and has fallen behind since.
    falls: u32,
    /// It has, and the row says still that it is ready.
    is_behind: bool,
    stall: StallWatch,
    reported_ns: u64,
}

impl TargetMove {
    /// A move that has just been seen.
    pub(super) fn new(of: &MoveRow) -> TargetMove {
        TargetMove {
            name: of.name(),
            handed: (of.epoch_of_target(), of.target.incarnation),
            state: TargetState::New,
            tries: 0,
            is_unanswered: false,
            again_ns: 0,
            suspicion: None,
            falls: 0,
            is_behind: false,
            stall: StallWatch::default(),
            reported_ns: 0,
        }
    }

    /// Whether the handing may come at any moment: the rows are to be looked at without pause.
    pub(super) fn is_hasty(&self, of: Option<&MoveRow>) -> bool {
        let is_ready = of.is_some_and(|of| of.is_under_way() && of.stage == MoveStage::Ready);
        self.state == TargetState::Copying && is_ready
    }

    /// What is to be done now. `copy` is how far the copy is.
    pub(super) fn next(&mut self, seen: &Seen<'_>, copy: CopyState) -> Option<TargetAction> {
        match &self.state {
            TargetState::New => self.begin(seen),
            TargetState::Copying => self.copy(seen, copy),
            TargetState::Finishing => {
                // The pair's row decides. The move may be over already: its source closes it as soon as it
                // sees the pair published, which this node hears of later.
                let (epoch, owner) = self.handed;
                let is_ours = seen.pair.is_some_and(|pair| (pair.epoch, pair.owner) == (epoch, Some(owner)));
                if is_ours { None } else { self.drop_copy(None) }
            }
            TargetState::Served => match seen.stage() {
                Some(_) => Some(TargetAction::Close(MoveOutcome::Moved)),
                None => self.end(),
            },
            TargetState::Returning { why } => match seen.stage() {
                Some(_) => Some(TargetAction::TakeBack { why: why.clone() }),
                None => self.end(),
            },
            TargetState::Dropping { why } => {
                self.state = match why {
                    Some(why) => TargetState::GivingUp { why: why.clone() },
                    None => TargetState::Over,
                };
                None
            }
            TargetState::GivingUp { why } => match seen.stage() {
                Some(MoveStage::Handed) => {
                    self.state = TargetState::Returning { why: why.clone() };
                    None
                }
                Some(_) => Some(TargetAction::GiveUp { why: why.clone() }),
                None => self.end(),
            },
            TargetState::Over => Some(TargetAction::End),
        }
    }

    fn begin(&mut self, seen: &Seen<'_>) -> Option<TargetAction> {
        let (Some(stage), Some(of)) = (seen.stage(), seen.of) else { return self.end() };
        if stage == MoveStage::Handed {
            let why = "its target has lost the copy".to_owned();
            self.state = TargetState::Returning { why: why.clone() };
            return Some(TargetAction::TakeBack { why });
        }
        if let Some(why) = self.why_not(of, seen) {
            self.state = TargetState::GivingUp { why: why.clone() };
            return Some(TargetAction::GiveUp { why });
        }
        if std::mem::take(&mut self.is_unanswered) {
            self.again_ns = seen.now_ns.saturating_add(AGAIN_NS);
        }
        match stage {
            MoveStage::Copying if seen.now_ns < self.again_ns => None,
            MoveStage::Copying => {
                self.state = TargetState::Copying;
                Some(TargetAction::Copy)
            }
            // The copy that was ready is gone: the source is to know before another one begins.
            MoveStage::Ready => Some(TargetAction::Report(CopyProgress::default())),
            MoveStage::Wanted | MoveStage::Handed => None,
        }
    }

    fn copy(&mut self, seen: &Seen<'_>, copy: CopyState) -> Option<TargetAction> {
        let (Some(stage), Some(of)) = (seen.stage(), seen.of) else { return self.drop_copy(None) };
        if stage == MoveStage::Handed
            && let Some(pair) = seen.pair.filter(|pair| of.is_handed(pair) && !pair.is_published())
        {
            self.state = TargetState::Finishing;
            return Some(TargetAction::Finish(Box::new(pair.clone())));
        }
        if let Some(why) = self.why_not(of, seen) {
            return self.drop_copy(Some(why));
        }
        let CopyState { bytes_done, bytes_total, checked, is_ready } = copy;
        let becomes_ready = is_ready && stage == MoveStage::Copying;
        let falls_behind = !is_ready && stage == MoveStage::Ready;
        let was_behind = std::mem::replace(&mut self.is_behind, falls_behind);
        if falls_behind && !was_behind {
            self.falls += 1;
            if self.falls > TRIES_MAX {
                return self.drop_copy(Some(BEHIND.to_owned()));
            }
        }
        let noted = (of.bytes_done, of.bytes_total, of.checked);
        let has_news = (bytes_done, bytes_total, checked) != noted;
        let is_due = has_news && seen.now_ns.saturating_sub(self.reported_ns) >= REPORT_NS;
        // As long as it is ready, nothing is written that the handing would be outrun by.
        if becomes_ready || falls_behind || is_due && stage == MoveStage::Copying {
            self.reported_ns = seen.now_ns;
            return Some(TargetAction::Report(CopyProgress {
                bytes_done,
                bytes_total,
                checked,
                is_ready,
                host: None,
            }));
        }
        None
    }

    /// Why the move does not go on.
    fn why_not(&mut self, of: &MoveRow, seen: &Seen<'_>) -> Option<String> {
        let foreign = seen.pair.is_none_or(|pair| pair.epoch != of.epoch && !of.is_handed(pair));
        let why = if foreign {
            let claimed = seen.pair.filter(|pair| pair.epoch > of.epoch);
            claimed.map_or("another node has the pair now", |pair| of.why_claimed(pair))
        } else if !seen.other_lives {
            SOURCE_ENDED
        } else if seen.stopping {
            TARGET_STOPS
        } else if seen.memory_kept {
            MEMORY_KEPT
        } else if self.stall.is_stalled(of, seen.now_ns) {
            STALLED
        } else {
            return None;
        };
        Some(why.to_owned())
    }

    fn end(&mut self) -> Option<TargetAction> {
        self.state = TargetState::Over;
        Some(TargetAction::End)
    }

    fn drop_copy(&mut self, why: Option<String>) -> Option<TargetAction> {
        self.state = TargetState::Dropping { why };
        Some(TargetAction::Drop)
    }

    /// The copy came to nothing. It is started anew where that may help.
    pub(super) fn copy_failed(&mut self, why: &str, failure: CopyFailure) {
        let may_help = match failure {
            CopyFailure::Final => false,
            CopyFailure::FilesGone | CopyFailure::Unanswered => true,
            CopyFailure::LooksDamaged { .. } => self.suspicion.replace(failure) != Some(failure),
        };
        match self.state {
            TargetState::Copying if failure == CopyFailure::Unanswered => {
                (self.state, self.is_unanswered) = (TargetState::New, true);
            }
            TargetState::Copying if may_help && self.tries < TRIES_MAX => {
                self.tries += 1;
                self.state = TargetState::New;
            }
            TargetState::Copying => self.state = TargetState::GivingUp { why: why.to_owned() },
            TargetState::Finishing => self.state = TargetState::Returning { why: why.to_owned() },
            _ => {}
        }
    }

    /// The pair is published, and served from here on.
    pub(super) fn served(&mut self) {
        self.state = TargetState::Served;
    }

    /// What came of [`TargetAction::TakeBack`]. Of a dead source nothing can be given back: the pair is
    /// recovered here, like any that this node has claimed; the move is closed for that.
    pub(super) fn return_ended(&mut self, ended: Result<(), &ClusterError>) -> Option<TargetAction> {
        let TargetState::Returning { why } = &self.state else { return None };
        match ended {
            Err(ClusterError::LeaseEnded { .. }) => {
                Some(TargetAction::Close(MoveOutcome::GivenUp { why: why.clone() }))
            }
            Ok(()) | Err(ClusterError::Superseded { .. }) => self.end(),
            Err(_) => None,
        }
    }

    /// What came of [`TargetAction::Close`], as at the source.
    pub(super) fn close_ended(&mut self, ended: Result<(), &ClusterError>) {
        match ended {
            Err(ClusterError::Unreadable { .. }) => self.state = TargetState::Over,
            ended => self.write_ended(ended),
        }
    }

    /// What came of a write after which nothing is left to do.
    pub(super) fn write_ended(&mut self, ended: Result<(), &ClusterError>) {
        match ended {
            Err(ClusterError::Unreadable { .. }) => {
                if let TargetState::GivingUp { why } = &mut self.state
                    && why.as_str() == STALLED
                {
                    ROW_UNREADABLE.clone_into(why); // that is why, and is said once it reads again
                }
            }
            Ok(()) | Err(ClusterError::Move(MoveRefusal::NotUnderWay { .. })) => {
                self.state = TargetState::Over;
            }
            // It was too late to give it up.
            Err(ClusterError::Move(MoveRefusal::HandedOver { .. })) => {
                if let TargetState::GivingUp { why } = &self.state {
                    self.state = TargetState::Returning { why: why.clone() };
                }
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::{PairId, RegionKind};
    use cell_wal::LogId;

    use super::super::fixtures::{SECOND, move_row, pair_row};
    use super::super::source::{READY_STALLED_NS, STALLED_NS};
    use super::*;

    struct Story {
        core: TargetMove,
        of: MoveRow,
        pair: PairRow,
        other_lives: bool,
        memory_kept: bool,
        now_ns: u64,
        copy: CopyState,
    }

    impl Story {
        fn new(stage: MoveStage) -> Story {
            let of = move_row(stage);
            let (core, pair) = (TargetMove::new(&of), pair_row(&of, stage == MoveStage::Handed));
            let copy = CopyState::default();
            let (memory_kept, now_ns) = (false, 10 * SECOND);
            Story { core, of, pair, other_lives: true, memory_kept, now_ns, copy }
        }

        fn copying() -> Story {
            let mut story = Story::new(MoveStage::Copying);
            assert_eq!(story.next(), Some(TargetAction::Copy));
            story
        }

        fn hand(&mut self) {
            self.of.stage = MoveStage::Handed;
            self.pair = pair_row(&self.of, true);
        }

        fn next(&mut self) -> Option<TargetAction> {
            let (of, pair) = (Some(&self.of), Some(&self.pair));
            let Story { other_lives, memory_kept, now_ns, copy, .. } = *self;
            self.core.next(&Seen { of, pair, other_lives, stopping: false, memory_kept, now_ns }, copy)
        }
    }

    #[test]
    fn target_copies_reports_and_takes_what_it_is_handed() {
        let mut story = Story::new(MoveStage::Wanted);
        assert_eq!(story.next(), None, "the source keeps nothing yet");
        let mut story = Story::copying();
        story.copy = CopyState { bytes_done: 5, bytes_total: 9, ..CopyState::default() };
        let report = CopyProgress { bytes_done: 5, bytes_total: 9, ..CopyProgress::default() };
        assert_eq!(story.next(), Some(TargetAction::Report(report)));
        assert_eq!(story.next(), None, "not all the time");
        story.copy = CopyState { bytes_done: 9, bytes_total: 9, checked: 3, is_ready: true };
        let ready = CopyProgress { bytes_done: 9, bytes_total: 9, checked: 3, is_ready: true, host: None };
        assert_eq!(story.next(), Some(TargetAction::Report(ready)), "at once");
        assert!(!story.core.is_hasty(Some(&story.of)));
        story.of.stage = MoveStage::Ready;
        assert!(story.core.is_hasty(Some(&story.of)));
        story.copy.bytes_done = 10;
        story.now_ns += 5 * SECOND;
        assert_eq!(story.next(), None, "nothing outruns the handing");
        story.hand();
        assert_eq!(story.next(), Some(TargetAction::Finish(Box::new(story.pair.clone()))));
        assert_eq!(story.next(), None);
        story.core.served();
        assert_eq!(story.next(), Some(TargetAction::Close(MoveOutcome::Moved)));
        story.core.write_ended(Ok(()));
        assert_eq!(story.next(), Some(TargetAction::End));
    }

    /// Its source had frozen the pair then, and what the copy lacked was read while nobody served it.
    #[test]
    fn copy_that_falls_behind_is_ready_no_more_and_does_so_a_few_times_at_most() {
        let mut story = Story::copying();
        let is_ready = |action| match action {
            Some(TargetAction::Report(copy)) => Some(copy.is_ready),
            _ => None,
        };
        let catch_up = |story: &mut Story| {
            (story.copy.is_ready, story.of.stage) = (true, MoveStage::Copying);
            assert_eq!(is_ready(story.next()), Some(true));
            story.of.stage = MoveStage::Ready;
            assert_eq!(story.next(), None);
            story.copy.is_ready = false;
        };
        for _ in 0..TRIES_MAX {
            catch_up(&mut story);
            for _ in 0..2 * TRIES_MAX {
                assert_eq!(is_ready(story.next()), Some(false), "again and again until the row says so");
            }
        }
        catch_up(&mut story);
        assert_eq!(story.next(), Some(TargetAction::Drop));
        assert_eq!(story.next(), None);
        assert!(matches!(story.next(), Some(TargetAction::GiveUp { why }) if why == BEHIND));
    }

    /// It had room for a copy, and then none for a pair of its own that everybody else had declined.
    #[test]
    fn node_that_keeps_memory_for_pairs_that_it_had_takes_none_before_and_serves_what_was_handed() {
        let given_up = Some(TargetAction::GiveUp { why: MEMORY_KEPT.to_owned() });
        for stage in [MoveStage::Wanted, MoveStage::Copying, MoveStage::Ready] {
            let mut story = Story::new(stage);
            story.memory_kept = true;
            assert_eq!(story.next(), given_up, "{stage:?}");
        }
        let mut story = Story::copying();
        story.memory_kept = true;
        assert_eq!(story.next(), Some(TargetAction::Drop));
        assert_eq!(story.next(), None);
        assert_eq!(story.next(), given_up);
        let mut story = Story::copying();
        story.hand();
        story.memory_kept = true;
        assert!(matches!(story.next(), Some(TargetAction::Finish(_))));
    }

    #[test]
    fn pair_whose_move_its_source_closes_before_the_copy_has_ended_is_kept() {
        let mut story = Story::copying();
        story.hand();
        assert!(matches!(story.next(), Some(TargetAction::Finish(_))));
        story.pair.state = cell_cluster::PairState::Serving;
        story.pair.served_by = Some(story.of.target.node);
        story.of.outcome = Some(MoveOutcome::Moved);
        assert_eq!(story.next(), None, "it is published: nobody else serves it");
        story.core.served();
        assert_eq!(story.next(), Some(TargetAction::End));
        let mut story = Story::copying();
        story.hand();
        assert!(matches!(story.next(), Some(TargetAction::Finish(_))));
        story.pair.epoch = Epoch(story.pair.epoch.0 + 1);
        assert_eq!(story.next(), Some(TargetAction::Drop), "it went back");
    }

    #[test]
    fn target_without_a_copy_gives_the_pair_back_at_once_and_recovers_it_from_a_dead_source() {
        let mut story = Story::new(MoveStage::Handed);
        assert!(matches!(story.next(), Some(TargetAction::TakeBack { .. })));
        let away = ClusterError::NotReached(std::io::ErrorKind::ConnectionRefused.into());
        assert_eq!(story.core.return_ended(Err(&away)), None);
        assert!(matches!(story.next(), Some(TargetAction::TakeBack { .. })), "again");
        let dead = ClusterError::LeaseEnded { lease: story.of.source.incarnation };
        let closed = story.core.return_ended(Err(&dead));
        assert!(matches!(closed, Some(TargetAction::Close(MoveOutcome::GivenUp { .. }))), "{closed:?}");
        let mut story = Story::copying();
        story.hand();
        assert!(matches!(story.next(), Some(TargetAction::Finish(_))));
        story.core.copy_failed("the disk", CopyFailure::FilesGone);
        assert_eq!(story.next(), Some(TargetAction::TakeBack { why: "the disk".to_owned() }));
        assert_eq!(story.core.return_ended(Ok(())), Some(TargetAction::End));
    }

    #[test]
    fn move_whose_row_does_not_read_is_given_up_once_it_does_and_a_served_pair_waits_for_none() {
        let unreadable = || {
            let source = serde_json::from_str::<u8>("garbage").unwrap_err();
            ClusterError::Unreadable { what: "a move", source }
        };
        let mut story = Story::copying();
        story.core.copy_failed("no memory", CopyFailure::Final);
        assert_eq!(story.next(), Some(TargetAction::GiveUp { why: "no memory".to_owned() }));
        story.core.write_ended(Err(&unreadable()));
        assert_eq!(story.next(), Some(TargetAction::GiveUp { why: "no memory".to_owned() }), "as it was");
        let mut story = Story::copying();
        assert_eq!(story.next(), None);
        story.now_ns += STALLED_NS;
        assert_eq!((story.next(), story.next()), (Some(TargetAction::Drop), None));
        assert_eq!(story.next(), Some(TargetAction::GiveUp { why: STALLED.to_owned() }));
        story.core.write_ended(Err(&unreadable()));
        assert_eq!(story.next(), Some(TargetAction::GiveUp { why: ROW_UNREADABLE.to_owned() }));
        let mut story = Story::copying();
        story.hand();
        assert!(matches!(story.next(), Some(TargetAction::Finish(_))));
        story.core.served();
        assert_eq!(story.next(), Some(TargetAction::Close(MoveOutcome::Moved)));
        story.core.close_ended(Err(&unreadable()));
        assert_eq!(story.next(), Some(TargetAction::End));
    }

    #[test]
    fn copy_whose_files_have_gone_is_restarted_a_few_times() {
        let mut story = Story::copying();
        for _ in 0..TRIES_MAX {
            story.core.copy_failed("gone", CopyFailure::FilesGone);
            story.of.stage = MoveStage::Ready;
            let report = TargetAction::Report(CopyProgress::default());
            assert_eq!(story.next(), Some(report), "the source must not hand over");
            story.of.stage = MoveStage::Copying;
            assert_eq!(story.next(), Some(TargetAction::Copy));
        }
        story.core.copy_failed("gone", CopyFailure::FilesGone);
        assert_eq!(story.next(), Some(TargetAction::GiveUp { why: "gone".to_owned() }));
        let mut story = Story::copying();
        story.core.copy_failed("no memory", CopyFailure::Final);
        assert_eq!(story.next(), Some(TargetAction::GiveUp { why: "no memory".to_owned() }));
    }

    /// The move was given up, and its pair not sent there again for a minute, because the coordinator had
    /// not answered once.
    #[test]
    fn copy_that_the_coordinator_did_not_answer_is_restarted_while_a_move_may_stand_still() {
        let mut story = Story::copying();
        for _ in 0..3 * TRIES_MAX {
            story.core.copy_failed("no answer", CopyFailure::Unanswered);
            assert_eq!((story.next(), story.next()), (None, None), "not at once");
            story.now_ns += AGAIN_NS;
            assert_eq!(story.next(), Some(TargetAction::Copy));
        }
        story.core.copy_failed("no answer", CopyFailure::Unanswered);
        story.now_ns += STALLED_NS;
        assert_eq!(story.next(), Some(TargetAction::GiveUp { why: STALLED.to_owned() }));
    }

    /// Each of six copies read all there was before it met the same damage.
    #[test]
    fn damage_that_a_second_copy_finds_at_the_same_change_is_said_at_once() {
        let damaged = |csn| {
            let log = LogId { pair: PairId(1), epoch: Epoch(4) }.log(RegionKind::Node);
            let place = LogPlace { segment: log.segment(1), offset: 4_096 };
            CopyFailure::LooksDamaged { at: Some((Csn(csn), place)) }
        };
        let mut story = Story::copying();
        // The owner goes on, and gives back what its checkpoints cover.
        for failure in [damaged(5), CopyFailure::FilesGone, damaged(9)] {
            story.core.copy_failed("it looks damaged", failure);
            assert_eq!(story.next(), Some(TargetAction::Copy), "{failure:?}");
        }
        story.core.copy_failed("it is damaged", damaged(9));
        assert_eq!(story.next(), Some(TargetAction::GiveUp { why: "it is damaged".to_owned() }));
    }

    #[test]
    fn copy_of_a_pair_that_another_node_has_is_dropped() {
        let mut story = Story::copying();
        story.pair.epoch = cell_terms::Epoch(story.of.epoch.0 + 1);
        (story.pair.owner, story.pair.node) = (Some(Incarnation(77)), cell_terms::NodeId(3));
        let restarted = (story.of.source.node, Some(Incarnation(78)));
        assert_eq!(story.next(), Some(TargetAction::Drop));
        assert_eq!(story.next(), None);
        assert!(matches!(story.next(), Some(TargetAction::GiveUp { why }) if why.contains("another node")));
        // Its source's node in its next life was "another node", and the source's end was not named.
        let mut story = Story::copying();
        story.pair.epoch = Epoch(story.of.epoch.0 + 1);
        (story.pair.node, story.pair.owner) = restarted;
        assert_eq!((story.next(), story.next()), (Some(TargetAction::Drop), None));
        assert!(matches!(story.next(), Some(TargetAction::GiveUp { why }) if why.starts_with(SOURCE_ENDED)));
        let mut story = Story::copying();
        story.of.outcome = Some(MoveOutcome::Cancelled);
        assert_eq!(story.next(), Some(TargetAction::Drop));
        assert_eq!((story.next(), story.next()), (None, Some(TargetAction::End)));
        let mut story = Story::copying();
        story.other_lives = false;
        assert_eq!(story.next(), Some(TargetAction::Drop));
        let mut story = Story::copying();
        assert_eq!(story.next(), None);
        story.now_ns += STALLED_NS;
        assert_eq!(story.next(), Some(TargetAction::Drop));
    }

    /// Of a large pair to which nothing was written the check took longer than a move may stand still.
    #[test]
    fn check_that_goes_on_is_reported_and_is_no_standstill() {
        let mut story = Story::copying();
        for _ in 0..3 {
            story.now_ns += STALLED_NS - 1;
            story.copy.checked += 1;
            let report = CopyProgress { checked: story.copy.checked, ..CopyProgress::default() };
            assert_eq!(story.next(), Some(TargetAction::Report(report)));
            story.of.checked = story.copy.checked;
            assert_eq!(story.next(), None);
        }
        story.now_ns += STALLED_NS;
        assert_eq!(story.next(), Some(TargetAction::Drop));
    }

    /// Nothing of the move is written while its source waits for a checkpoint of the pair.
    #[test]
    fn target_whose_copy_is_ready_waits_longer_for_its_source() {
        let mut story = Story::copying();
        story.of.stage = MoveStage::Ready;
        story.copy.is_ready = true;
        assert_eq!(story.next(), None);
        story.now_ns += READY_STALLED_NS - 1;
        assert_eq!(story.next(), None);
        story.now_ns += 1;
        assert_eq!(story.next(), Some(TargetAction::Drop));
    }
}
