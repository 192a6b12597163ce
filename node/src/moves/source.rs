//! The source's part of a planned move: a core without coordinator, worker or clock. It is shown the move's
//! row and the pair's, says what to do next, and is given what came of it. One step that writes to the
//! coordinator is taken a look, so that each is decided by rows as they are.
//!
//! ```text
//! Holding ─ ready ─> Freezing ─ drained ─> Frozen ─ handing ─> Handed ─ published, or back ─> over
//!                        └── the move ends ──────┴─ put the row again ─> thawed ──────────────┘
//! ```

use cell_cluster::{ClusterError, MoveName, MoveOutcome, MoveRefusal, MoveRow, MoveStage, PairRow};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Epoch, Incarnation, PairId};

use crate::move_counts::MoveEnd;

/// So long after the source has seen the handing a pair that its target does not serve goes back: two leases
/// of the default length. A node goes by twice its own: where leases are long, everything takes longer.
pub(crate) const BACK_AFTER_NS: u64 = 1_000_000_000;
/// An end that sees nothing happen for so long gives the move up.
pub(super) const STALLED_NS: u64 = 60_000_000_000;
/// As long as the copy is ready, nothing of the move is written: its source waits for the pair's checkpoint,
/// and gives the move up if that does not go on.
pub(super) const READY_STALLED_NS: u64 = 600_000_000_000;

/// Why moves come to nothing whose sources go.
pub(crate) const SOURCE_ENDED: &str = "its source has ended";
pub(crate) const BOTH_ENDED: &str = "both of its ends have ended";
pub(crate) const SOURCE_STOPS: &str = "its source stops";
/// Why one does whose target goes.
pub(crate) const TARGET_ENDED: &str = "its target has ended";
/// Why one does that nobody hears of.
pub(crate) const STALLED: &str = "nothing has happened for too long";

/// Why one does whose row did not read when it was to be ended.
pub(crate) const ROW_UNREADABLE: &str = "its row could not be read for too long";

/// Why one does whose handing may have been under way.
const AT_HANDING: &str = "it came to nothing at the handing";

/// Whether that is why a move came to nothing: its pair does not stay where it is, but is taken over.
#[must_use]
pub fn is_source_gone(why: &str) -> bool {
    [SOURCE_ENDED, BOTH_ENDED, SOURCE_STOPS].contains(&why)
}

/// What a core of a move is shown.
pub(super) struct Seen<'a> {
    /// The move's row, unless another move of the pair has taken its place.
    pub(super) of: Option<&'a MoveRow>,
    /// The pair's.
    pub(super) pair: Option<&'a PairRow>,
    /// Whether the other end lives.
    pub(super) other_lives: bool,
    /// Whether this node goes.
    pub(super) stopping: bool,
    /// Whether this node keeps what memory it has left for pairs that it had. A source need not know.
    pub(super) memory_kept: bool,
    /// The time.
    pub(super) now_ns: u64,
}

impl Seen<'_> {
    /// How far the move is, if it is under way.
    pub(super) fn stage(&self) -> Option<MoveStage> {
        self.of.filter(|of| of.is_under_way()).map(|of| of.stage)
    }

    /// How far it is, if it goes on.
    fn goes_on(&self) -> Option<MoveStage> {
        self.stage().filter(|_| self.other_lives && !self.stopping)
    }
}

/// Notices that nothing happens.
#[derive(Debug, Default)]
pub(super) struct StallWatch {
    seen: Option<(MoveStage, u64, u64)>,
    since_ns: u64,
}

impl StallWatch {
    /// Whether nothing has happened for long to a move.
    pub(super) fn is_stalled(&mut self, of: &MoveRow, now_ns: u64) -> bool {
        let progress = of.progress();
        if self.seen.replace(progress) != Some(progress) {
            self.since_ns = now_ns;
        }
        let limit_ns = if of.stage == MoveStage::Ready { READY_STALLED_NS } else { STALLED_NS };
        now_ns.saturating_sub(self.since_ns) >= limit_ns
    }
}

/// What the source is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SourceAction {
    /// Say in the move's row that image and log are kept.
    Accept,
    /// Let the worker freeze the pair.
    Freeze,
    /// Hand it over.
    Hand {
        /// Where its logs end.
        cut: Csn,
    },
    /// Put the pair's row again, so that no handing takes effect any more.
    PutAgain,
    /// Let the worker serve the pair on.
    Thaw,
    /// Let the worker forget the pair.
    Forget,
    /// Take the pair back.
    TakeBack,
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

impl SourceAction {
    /// What the move becomes by what is written.
    pub(super) fn becomes(&self) -> Option<MoveEnd> {
        match self {
            SourceAction::TakeBack => Some(MoveEnd::Back),
            SourceAction::GiveUp { .. } => Some(MoveEnd::GivenUp),
            SourceAction::Close(outcome) => Some(MoveEnd::of(outcome)),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SourceState {
    /// The target copies.
    Holding,
    /// The worker freezes the pair.
    Freezing,
    /// It is frozen. Whether a handing was sent.
    Frozen { cut: Csn, sent: bool },
    /// A handing was sent that is not to take effect any more. Why the move comes to nothing; none: it waits
    /// for another copy, if it goes on.
    Fencing { why: Option<String> },
    /// The worker is to be notified, then the rest.
    Thawing { why: Option<String> },
    /// The pair is the target's: the worker is to be notified, then the rest.
    Forgetting { handed: bool },
    /// Since when.
    Handed { since_ns: u64 },
    /// The row is to say so.
    GivingUp { why: String },
    /// Nothing is left to do.
    Over,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct SourceMove {
    pub(super) name: MoveName,
    /// The epoch in which the pair is this node's.
    epoch: Epoch,
    target: Incarnation,
    back_after_ns: u64,
    state: SourceState,
    stall: StallWatch,
}

impl SourceMove {
    /// A move that has just been seen, of a pair that this node owns.
    pub(super) fn new(of: &MoveRow, back_after_ns: u64) -> SourceMove {
        SourceMove {
            back_after_ns,
            name: of.name(),
            epoch: of.epoch,
            target: of.target.incarnation,
            state: SourceState::Holding,
            stall: StallWatch::default(),
        }
    }

    pub(super) fn pair(&self) -> PairId {
        self.name.pair
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether the pair is the target's, as far as is known, and may come back.
    pub(super) fn is_handed(&self) -> bool {
        matches!(self.state, SourceState::Forgetting { handed: true } | SourceState::Handed { .. })
    }

    /// Whether the pair is frozen and is to be served on: nothing else than the write before that is waited
    /// for.
    pub(super) fn is_fencing(&self) -> bool {
        matches!(self.state, SourceState::Fencing { .. })
    }

    /// What is to be done now.
    pub(super) fn next(&mut self, seen: &Seen<'_>) -> Option<SourceAction> {
        match &self.state {
            SourceState::Holding => self.hold(seen),
            SourceState::Freezing => match seen.goes_on() {
                Some(MoveStage::Ready) => None,
                // The target has started its copy anew.
                Some(_) => self.thaw(None),
                None => self.thaw(Some(why_not(seen))),
            },
            SourceState::Frozen { cut, sent } => match seen.goes_on() {
                // A handing that has taken effect is known again by who makes it again.
                Some(MoveStage::Ready | MoveStage::Handed) => Some(SourceAction::Hand { cut: *cut }),
                goes_on if *sent => {
                    let why = goes_on.is_none().then(|| AT_HANDING.to_owned());
                    self.state = SourceState::Fencing { why };
                    Some(SourceAction::PutAgain)
                }
                Some(_) => self.thaw(None),
                None => self.thaw(Some(why_not(seen))),
            },
            SourceState::Fencing { .. } => Some(SourceAction::PutAgain),
            SourceState::Thawing { why } => {
                self.state = match why {
                    Some(why) => SourceState::GivingUp { why: why.clone() },
                    None => SourceState::Holding,
                };
                None
            }
            SourceState::Forgetting { handed } => {
                let since_ns = seen.now_ns;
                self.state = if *handed { SourceState::Handed { since_ns } } else { SourceState::Over };
                None
            }
            SourceState::Handed { since_ns } => self.await_publication(*since_ns, seen),
            SourceState::GivingUp { why } => match seen.stage() {
                Some(_) => Some(SourceAction::GiveUp { why: why.clone() }),
                None => self.end(),
            },
            SourceState::Over => Some(SourceAction::End),
        }
    }

    fn hold(&mut self, seen: &Seen<'_>) -> Option<SourceAction> {
        let (Some(stage), Some(of)) = (seen.stage(), seen.of) else { return self.end() };
        if seen.goes_on().is_none() {
            return self.give_up(why_not(seen));
        }
        if self.stall.is_stalled(of, seen.now_ns) {
            return self.give_up(STALLED.to_owned());
        }
        match stage {
            MoveStage::Wanted => Some(SourceAction::Accept),
            MoveStage::Ready => {
                self.state = SourceState::Freezing;
                Some(SourceAction::Freeze)
            }
            MoveStage::Copying | MoveStage::Handed => None,
        }
    }

    fn await_publication(&mut self, since_ns: u64, seen: &Seen<'_>) -> Option<SourceAction> {
        let (Some(of), Some(pair)) = (seen.of.filter(|of| of.is_under_way()), seen.pair) else {
            return self.end();
        };
        if let Some(outcome) = of.verdict(pair) {
            return Some(SourceAction::Close(outcome));
        }
        let is_late = seen.now_ns.saturating_sub(since_ns) >= self.back_after_ns;
        (is_late && !seen.stopping).then_some(SourceAction::TakeBack)
    }

    fn end(&mut self) -> Option<SourceAction> {
        self.state = SourceState::Over;
        Some(SourceAction::End)
    }

    fn give_up(&mut self, why: String) -> Option<SourceAction> {
        self.state = SourceState::GivingUp { why: why.clone() };
        Some(SourceAction::GiveUp { why })
    }

    /// Serves on; the move is given up, or waits for another copy.
    fn thaw(&mut self, why: Option<String>) -> Option<SourceAction> {
        self.state = SourceState::Thawing { why };
        Some(SourceAction::Thaw)
    }

    /// The worker has frozen the pair: all that it appended is durable and answered. Whether that was asked.
    pub(super) fn frozen(&mut self, epoch: Epoch, cut: Csn) -> bool {
        let is_asked = self.state == SourceState::Freezing && epoch == self.epoch;
        if is_asked {
            self.state = SourceState::Frozen { cut, sent: false };
        }
        is_asked
    }

    /// The worker does not freeze the pair.
    pub(super) fn stays(&mut self, why: &str) {
        if self.state == SourceState::Freezing {
            self.state = SourceState::GivingUp { why: why.to_owned() };
        }
    }

    /// What came of [`SourceAction::Hand`]: what follows at once.
    pub(super) fn hand_ended(&mut self, ended: Result<(), &ClusterError>) -> Option<SourceAction> {
        let SourceState::Frozen { cut, .. } = self.state else { return None };
        match ended {
            Ok(()) => self.forget(true),
            Err(error @ ClusterError::Superseded { .. }) => self.superseded(error),
            // It did not take effect, but an earlier try may. A row that does not read, or lacks the pair's
            // epoch, stays so until somebody mends it: the pair does not wait for that.
            Err(
                ClusterError::LeaseEnded { .. }
                | ClusterError::Unreadable { .. }
                | ClusterError::State { .. },
            ) => {
                self.state = SourceState::Fencing { why: Some(AT_HANDING.to_owned()) };
                None
            }
            // It is over, or its copy has fallen behind since and is waited for: the row says which.
            Err(ClusterError::Move(_)) => {
                self.state = SourceState::Fencing { why: None };
                None
            }
            Err(_) => {
                self.state = SourceState::Frozen { cut, sent: true };
                None
            }
        }
    }

    /// What came of [`SourceAction::PutAgain`]: what follows at once.
    pub(super) fn put_ended(&mut self, ended: Result<(), &ClusterError>) -> Option<SourceAction> {
        match ended {
            Ok(()) => {
                let why = match &self.state {
                    SourceState::Fencing { why } => why.clone(),
                    _ => None,
                };
                self.thaw(why)
            }
            Err(error @ ClusterError::Superseded { .. }) => self.superseded(error),
            Err(_) => None,
        }
    }

    /// The pair is another's: nothing of what is frozen here is served any more.
    fn superseded(&mut self, error: &ClusterError) -> Option<SourceAction> {
        if planted(Mutant::FrozenServedAnyway) {
            return self.thaw(None);
        }
        let handed = matches!(error, ClusterError::Superseded { epoch, owner, .. }
            if *epoch == Epoch(self.epoch.0 + 1) && *owner == Some(self.target));
        self.forget(handed)
    }

    fn forget(&mut self, handed: bool) -> Option<SourceAction> {
        self.state = SourceState::Forgetting { handed };
        Some(SourceAction::Forget)
    }

    /// What came of [`SourceAction::Close`]. The pair's row has decided. Where the move's does not read,
    /// nobody here waits for it, and who sees it read again closes it.
    pub(super) fn close_ended(&mut self, ended: Result<(), &ClusterError>) {
        match ended {
            Err(ClusterError::Unreadable { .. }) => self.state = SourceState::Over,
            ended => self.write_ended(ended),
        }
    }

    /// What came of a write after which nothing is left to do.
    pub(super) fn write_ended(&mut self, ended: Result<(), &ClusterError>) {
        if let (Err(ClusterError::Unreadable { .. }), SourceState::GivingUp { why }) =
            (ended, &mut self.state)
            && [STALLED, AT_HANDING].contains(&why.as_str())
        {
            ROW_UNREADABLE.clone_into(why); // that is why, and is said once it reads again
        }
        let is_over = match ended {
            Ok(()) => true,
            Err(ClusterError::Move(MoveRefusal::NotUnderWay { .. }) | ClusterError::Superseded { .. }) => {
                true
            }
            Err(ClusterError::LeaseEnded { .. }) => true,
            Err(_) => false,
        };
        if is_over {
            self.state = SourceState::Over;
        }
    }
}

/// Why a move does not go on.
fn why_not(seen: &Seen<'_>) -> String {
    let why = match (seen.stage(), seen.other_lives) {
        (None, _) => "it was ended",
        (Some(_), false) => TARGET_ENDED,
        (Some(_), true) => SOURCE_STOPS,
    };
    why.to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{SECOND, move_row, pair_row};
    use super::*;

    const CUT: Csn = Csn(7);

    fn unreadable() -> ClusterError {
        let source = serde_json::from_str::<u8>("garbage").unwrap_err();
        ClusterError::Unreadable { what: "a move", source }
    }

    /// The core, and what it is shown.
    struct Story {
        core: SourceMove,
        of: MoveRow,
        pair: PairRow,
        other_lives: bool,
        now_ns: u64,
    }

    impl Story {
        fn new() -> Story {
            let of = move_row(MoveStage::Wanted);
            let core = SourceMove::new(&of, BACK_AFTER_NS);
            Story { core, pair: pair_row(&of, false), of, other_lives: true, now_ns: SECOND }
        }

        /// Frozen, with nothing sent.
        fn frozen() -> Story {
            let mut story = Story::new();
            story.of.stage = MoveStage::Ready;
            assert_eq!(story.next(), Some(SourceAction::Freeze));
            assert_eq!(story.next(), None, "the worker is at it");
            assert!(!story.core.frozen(Epoch(9), CUT), "of another epoch");
            assert!(story.core.frozen(story.of.epoch, CUT));
            story
        }

        fn next(&mut self) -> Option<SourceAction> {
            let (of, pair) = (Some(&self.of), Some(&self.pair));
            let Story { other_lives, now_ns, .. } = *self;
            let (stopping, memory_kept) = (false, false);
            self.core.next(&Seen { of, pair, other_lives, stopping, memory_kept, now_ns })
        }

        fn cancel(&mut self) {
            self.of.outcome = Some(MoveOutcome::Cancelled);
        }

        /// A handing whose outcome is not known.
        fn send_into_the_dark(&mut self) {
            assert_eq!(self.next(), Some(SourceAction::Hand { cut: CUT }));
            let unknown = ClusterError::OutcomeUnknown(std::io::ErrorKind::TimedOut.into());
            assert_eq!(self.core.hand_ended(Err(&unknown)), None);
        }

        fn superseded(&self, by: Option<Incarnation>) -> ClusterError {
            let epoch = self.of.epoch_of_target();
            ClusterError::Superseded { pair: self.of.pair, epoch, owner: by }
        }
    }

    #[test]
    fn source_accepts_freezes_hands_and_forgets() {
        let mut story = Story::new();
        assert_eq!(story.next(), Some(SourceAction::Accept));
        story.of.stage = MoveStage::Copying;
        assert_eq!(story.next(), None);
        let mut story = Story::frozen();
        assert_eq!(story.next(), Some(SourceAction::Hand { cut: CUT }));
        assert_eq!(story.core.hand_ended(Ok(())), Some(SourceAction::Forget));
        story.of.stage = MoveStage::Handed;
        story.pair = pair_row(&story.of, true);
        assert_eq!((story.next(), story.next()), (None, None));
        story.now_ns += BACK_AFTER_NS;
        assert_eq!(story.next(), Some(SourceAction::TakeBack));
        story.pair.history.push(cell_cluster::EpochRow {
            epoch: story.pair.epoch,
            durability: cell_terms::Durability::Sync,
            cut: None,
        });
        assert_eq!(story.next(), Some(SourceAction::Close(MoveOutcome::Moved)));
        story.core.write_ended(Ok(()));
        assert_eq!(story.next(), Some(SourceAction::End));
    }

    #[test]
    fn cancelled_move_thaws_and_a_handing_that_was_sent_is_fenced_before() {
        let mut story = Story::frozen();
        story.cancel();
        assert_eq!(story.next(), Some(SourceAction::Thaw), "nothing was sent");
        assert_eq!((story.next(), story.next()), (None, Some(SourceAction::End)));
        let mut story = Story::frozen();
        story.send_into_the_dark();
        story.cancel();
        assert_eq!(story.next(), Some(SourceAction::PutAgain));
        let away = ClusterError::NotReached(std::io::ErrorKind::ConnectionRefused.into());
        assert_eq!(story.core.put_ended(Err(&away)), None);
        assert_eq!(story.next(), Some(SourceAction::PutAgain), "again and again");
        assert_eq!(story.core.put_ended(Ok(())), Some(SourceAction::Thaw));
    }

    #[test]
    fn refused_handing_is_fenced_before_the_pair_is_served_on() {
        let mut story = Story::frozen();
        assert_eq!(story.next(), Some(SourceAction::Hand { cut: CUT }));
        let dead = ClusterError::LeaseEnded { lease: story.of.target.incarnation };
        assert_eq!(story.core.hand_ended(Err(&dead)), None);
        assert_eq!(story.next(), Some(SourceAction::PutAgain));
    }

    /// On a busy machine a move was given up whose copy had fallen behind while the pair was frozen.
    #[test]
    fn copy_that_fell_behind_by_the_handing_is_waited_for() {
        let mut story = Story::frozen();
        assert_eq!(story.next(), Some(SourceAction::Hand { cut: CUT }));
        let behind = MoveRefusal::NotUnderWay { pair: story.of.pair };
        assert_eq!(story.core.hand_ended(Err(&behind.into())), None);
        assert_eq!(story.next(), Some(SourceAction::PutAgain));
        assert_eq!(story.core.put_ended(Ok(())), Some(SourceAction::Thaw));
        story.of.stage = MoveStage::Copying;
        assert_eq!((story.next(), story.next()), (None, None), "it is served on");
        story.of.stage = MoveStage::Ready;
        assert_eq!(story.next(), Some(SourceAction::Freeze));
    }

    /// The pair was frozen until somebody had mended the row.
    #[test]
    fn pair_whose_moves_row_does_not_read_is_fenced_served_on_and_not_frozen_again() {
        let mut story = Story::frozen();
        assert_eq!(story.next(), Some(SourceAction::Hand { cut: CUT }));
        assert_eq!(story.core.hand_ended(Err(&unreadable())), None);
        assert_eq!(story.next(), Some(SourceAction::PutAgain));
        assert_eq!(story.core.put_ended(Ok(())), Some(SourceAction::Thaw));
        assert_eq!(story.next(), None);
        // What was known of the row stays: by that the move is still ready.
        for _ in 0..3 {
            assert!(matches!(story.next(), Some(SourceAction::GiveUp { .. })));
            story.core.write_ended(Err(&unreadable()));
        }
        assert_eq!(story.next(), Some(SourceAction::GiveUp { why: ROW_UNREADABLE.to_owned() }));
        story.core.write_ended(Ok(()));
        assert_eq!(story.next(), Some(SourceAction::End));
    }

    /// It was said that its row could not be read.
    #[test]
    fn reason_of_a_move_stays_though_its_row_does_not_read_when_it_is_to_be_written() {
        let mut story = Story::new();
        story.other_lives = false;
        let why = SourceAction::GiveUp { why: TARGET_ENDED.to_owned() };
        assert_eq!(story.next(), Some(why.clone()));
        story.core.write_ended(Err(&unreadable()));
        assert_eq!(story.next(), Some(why));
    }

    /// Its memory was kept until somebody had mended the row.
    #[test]
    fn move_that_its_pairs_row_has_decided_is_over_though_its_own_does_not_read() {
        let mut story = Story::frozen();
        assert_eq!(story.next(), Some(SourceAction::Hand { cut: CUT }));
        assert_eq!(story.core.hand_ended(Ok(())), Some(SourceAction::Forget));
        story.of.stage = MoveStage::Handed;
        story.pair = pair_row(&story.of, true);
        assert_eq!((story.next(), story.next()), (None, None));
        story.core.write_ended(Err(&unreadable()));
        assert_eq!(story.next(), None, "it is not decided yet");
        story.pair.owner = Some(Incarnation(99));
        story.pair.epoch = Epoch(story.pair.epoch.0 + 1);
        assert!(matches!(story.next(), Some(SourceAction::Close(_))));
        story.core.close_ended(Err(&unreadable()));
        assert_eq!(story.next(), Some(SourceAction::End));
    }

    /// The row shows the handing, or yet another owner: what is frozen here is thrown away.
    fn frozen_memory_is_served_by_nobody_else_than_its_rows_owner() {
        for by in [Some(Story::new().of.target.incarnation), None, Some(Incarnation(99))] {
            let mut story = Story::frozen();
            story.send_into_the_dark();
            story.cancel();
            assert_eq!(story.next(), Some(SourceAction::PutAgain));
            let superseded = story.superseded(by);
            assert_eq!(story.core.put_ended(Err(&superseded)), Some(SourceAction::Forget));
        }
    }

    #[test]
    fn frozen_memory_is_forgotten_once_the_row_is_anothers() {
        frozen_memory_is_served_by_nobody_else_than_its_rows_owner();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_frozen_served_anyway_is_caught() {
        use cell_terms::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::FrozenServedAnyway));
            let test = frozen_memory_is_served_by_nobody_else_than_its_rows_owner;
            let passed = std::panic::catch_unwind(test).is_ok();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-node's source", Mutant::FrozenServedAnyway.name());
        });
    }

    #[test]
    fn source_gives_up_what_stands_still_or_has_lost_its_target() {
        let mut story = Story::new();
        story.of.stage = MoveStage::Copying;
        assert_eq!(story.next(), None);
        story.now_ns += STALLED_NS;
        assert!(matches!(story.next(), Some(SourceAction::GiveUp { .. })));
        let mut story = Story::new();
        story.other_lives = false;
        assert!(matches!(story.next(), Some(SourceAction::GiveUp { why }) if why.contains("target")));
        let mut story = Story::new();
        story.of.stage = MoveStage::Ready;
        assert_eq!(story.next(), Some(SourceAction::Freeze));
        story.core.stays("splits");
        assert_eq!(story.next(), Some(SourceAction::GiveUp { why: "splits".to_owned() }));
    }

    /// Of a large pair to which nothing was written the check took longer than a move may stand still.
    #[test]
    fn source_waits_for_a_check_that_goes_on() {
        let mut story = Story::new();
        story.of.stage = MoveStage::Copying;
        assert_eq!(story.next(), None);
        for _ in 0..3 {
            story.now_ns += STALLED_NS - 1;
            story.of.checked += 1;
            assert_eq!(story.next(), None);
        }
        story.now_ns += STALLED_NS;
        assert_eq!(story.next(), Some(SourceAction::GiveUp { why: STALLED.to_owned() }));
    }

    #[test]
    fn target_that_begins_its_copy_anew_thaws_the_pair_and_the_move_goes_on() {
        let mut story = Story::frozen();
        story.of.stage = MoveStage::Copying;
        assert_eq!(story.next(), Some(SourceAction::Thaw));
        assert_eq!((story.next(), story.next()), (None, None));
        story.of.stage = MoveStage::Ready;
        assert_eq!(story.next(), Some(SourceAction::Freeze));
    }
}
