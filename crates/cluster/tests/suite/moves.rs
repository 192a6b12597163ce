//! Planned moves of pairs over the simulated coordinator: what the handing and the way back are conditional
//! on, and what is refused.

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cell_cluster::{
    CheckpointRow, ClaimReason, ClusterError, Coordinator, CoordinatorRequest, CopyProgress, Fault,
    MemberRow, MoveDates, MoveOutcome, MoveRefusal, MoveRow, MoveStage, MoveTimes, Moves, NewPair, Ownership,
    PairGeometry, PairState, Response, ServingAddress, Sim, SimLink, Table, Transaction, Watch,
};
use cell_terms::{Csn, Durability, Epoch, Incarnation, NodeId};

const MS: u64 = 1_000_000;
const CUT: Csn = Csn(7);
const GEOMETRY: PairGeometry =
    PairGeometry { node_region_bytes: 1, extent_region_bytes: 1, slot_bytes: 1, node_bytes: 1 };

struct Member {
    sim: Sim,
    link: SimLink,
    lease: Incarnation,
    node: NodeId,
    table: Table,
    moves: Moves,
}

fn member(sim: &Sim, node: u32) -> Member {
    let link = sim.link();
    let lease = link.grant(500).unwrap().lease;
    let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
    let (table, moves) = (Table::new(coordinator.clone()), Moves::new(coordinator));
    Member { sim: sim.clone(), link, lease, node: NodeId(node), table, moves }
}

impl Member {
    fn row(&self) -> MemberRow {
        MemberRow {
            incarnation: self.lease,
            node: self.node,
            fabric: String::new(),
            http: String::new(),
            pid: 0,
            memory_limit_bytes: 0,
        }
    }

    fn create(&self, durability: Durability) -> Ownership {
        let new = NewPair { incarnation: self.lease, node: self.node, geometry: GEOMETRY };
        let ownership = self.table.create_pair(&new).unwrap().ownership;
        self.table.publish(ownership, durability, &self.place()).unwrap();
        ownership
    }

    fn place(&self) -> ServingAddress {
        ServingAddress { address: format!("sim:{}", self.node), worker: 0, node_key: 0, extent_key: 0 }
    }

    fn publish(&self, row: &cell_cluster::PairRow) -> Result<(), ClusterError> {
        let ownership = Ownership { pair: row.pair, epoch: row.epoch, incarnation: self.lease };
        self.table.publish(ownership, Durability::Sync, &self.place()).map(drop)
    }

    /// The leases of all others end.
    fn outlive(&self) {
        for _ in 0..2 {
            self.sim.advance(400 * MS);
            self.link.keep_alive(self.lease).unwrap();
        }
    }
}

/// A way to the coordinator on which another is faster, before the first write.
struct Outrun<F> {
    link: SimLink,
    is_outrun: AtomicBool,
    other: F,
}

impl<F: Fn() + Send + Sync> Coordinator for Outrun<F> {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        let is_write = matches!(request, CoordinatorRequest::Transact(_));
        if is_write && !self.is_outrun.swap(true, Ordering::SeqCst) {
            (self.other)();
        }
        self.link.call(request)
    }
}

/// A way to the coordinator on which `other` is done right before the first write.
pub(crate) fn outrun_link(sim: &Sim, other: impl Fn() + Send + Sync + 'static) -> impl Coordinator + 'static {
    Outrun { link: sim.link(), is_outrun: AtomicBool::new(false), other }
}

fn outrun(sim: &Sim, other: impl Fn() + Send + Sync + 'static) -> Table {
    Table::new(Arc::new(outrun_link(sim, other)))
}

/// A source that serves a pair, a target, and the move between them.
pub(crate) struct Moving {
    source: Member,
    target: Member,
    ownership: Ownership,
    pub(crate) row: MoveRow,
}

/// A move whose target has only been asked.
pub(crate) fn wanted(sim: &Sim) -> Moving {
    let (source, target) = (member(sim, 0), member(sim, 1));
    let ownership = source.create(Durability::Sync);
    let row = target.moves.begin(ownership.pair, &target.row(), "test").unwrap();
    Moving { source, target, ownership, row }
}

/// A move that is ready to be handed over.
fn ready(sim: &Sim) -> Moving {
    let moving = wanted(sim);
    moving.source.moves.accept(moving.row.name()).unwrap();
    let copy = CopyProgress { bytes_done: 5, bytes_total: 5, is_ready: true, ..CopyProgress::default() };
    let row = moving.target.moves.progress(moving.row.name(), &copy).unwrap();
    Moving { row, ..moving }
}

/// A move that was handed over; the pair's row.
fn handed(sim: &Sim) -> (Moving, cell_cluster::PairRow) {
    let moving = ready(sim);
    let row = moving.source.table.hand(moving.ownership, CUT, moving.row.name()).unwrap();
    (moving, row)
}

#[test]
fn handing_makes_the_target_the_owner_at_the_recorded_cut_and_awaits_no_trust() {
    let sim = Sim::new(7);
    let (moving, row) = handed(&sim);
    let Moving { source, target, ownership, row: of } = moving;
    assert_eq!((row.owner, row.node, row.epoch), (Some(target.lease), target.node, Epoch(2)));
    assert_eq!((&row.state, &row.place, row.trusted.len()), (&PairState::Recovering, &None, 0));
    assert_eq!(row.history[0].cut, Some(CUT));
    assert_eq!(target.moves.of(row.pair).unwrap().unwrap().stage, MoveStage::Handed);
    assert_eq!(source.table.hand(ownership, CUT, of.name()).unwrap(), row, "twice is once");
    let cancelled = target.moves.end(of.name(), &MoveOutcome::Cancelled);
    assert!(matches!(cancelled, Err(ClusterError::Move(MoveRefusal::HandedOver { .. }))), "too late");
    target.publish(&row).unwrap();
    target.moves.close(of.name(), &MoveOutcome::Moved).unwrap();
    let row = source.table.pair(row.pair).unwrap();
    assert_eq!((&row.state, row.is_published()), (&PairState::Serving, true));
    assert!(source.link.remaining_ns(source.lease).unwrap().is_some(), "its lease goes on");
}

#[test]
fn handing_whose_answers_are_lost_happens_once() {
    let sim = Sim::new(7);
    let Moving { source, target, ownership, row } = ready(&sim);
    source.link.plan([Fault::None, Fault::None, Fault::AnswerLost]);
    let handed = source.table.hand(ownership, CUT, row.name()).unwrap();
    assert_eq!((handed.epoch, handed.owner), (Epoch(2), Some(target.lease)));
    target.publish(&handed).unwrap();
    assert!(source.table.hand(ownership, CUT, row.name()).unwrap().is_published(), "it knows it again");
}

pub(crate) fn handing_to_a_dead_target_is_refused() {
    let sim = Sim::new(7);
    let Moving { source, target, ownership, row } = ready(&sim);
    source.outlive();
    let refused = source.table.hand(ownership, CUT, row.name());
    assert!(matches!(refused, Err(ClusterError::LeaseEnded { lease }) if lease == target.lease));
    let row = source.table.pair(row.pair).unwrap();
    assert_eq!((row.owner, row.epoch), (Some(source.lease), Epoch(1)));
}

#[test]
fn handing_by_a_dead_source_is_refused() {
    let sim = Sim::new(7);
    let Moving { source, target, ownership, row } = ready(&sim);
    target.outlive();
    let refused = source.table.hand(ownership, CUT, row.name());
    assert!(matches!(refused, Err(ClusterError::LeaseEnded { lease }) if lease == source.lease));
}

pub(crate) fn handing_of_a_move_that_was_cancelled_since_is_refused() {
    let sim = Sim::new(7);
    let Moving { source, target, ownership, row } = ready(&sim);
    let (moves, name) = (target.moves.clone(), row.name());
    let slow = outrun(&sim, move || drop(moves.end(name, &MoveOutcome::Cancelled).unwrap()));
    let refused = slow.hand(ownership, CUT, name);
    assert!(matches!(refused, Err(ClusterError::Move(MoveRefusal::NotUnderWay { .. }))), "{refused:?}");
    assert_eq!(source.table.pair(row.pair).unwrap().owner, Some(source.lease));
}

#[test]
fn handing_waits_for_a_target_that_is_ready() {
    let sim = Sim::new(7);
    let moving = wanted(&sim);
    let hand = || moving.source.table.hand(moving.ownership, CUT, moving.row.name());
    assert!(matches!(hand(), Err(ClusterError::Move(MoveRefusal::NotUnderWay { .. }))));
    moving.source.moves.accept(moving.row.name()).unwrap();
    let ready = CopyProgress { is_ready: true, ..CopyProgress::default() };
    moving.target.moves.progress(moving.row.name(), &ready).unwrap();
    moving.target.moves.progress(moving.row.name(), &CopyProgress::default()).unwrap();
    assert!(matches!(hand(), Err(ClusterError::Move(MoveRefusal::NotUnderWay { .. }))), "it lost its copy");
    moving.target.moves.progress(moving.row.name(), &ready).unwrap();
    hand().unwrap();
}

/// Sends a handing that is not answered, and is carried out after so many more calls of anybody.
fn send_late(moving: &Moving, calls: u64) {
    let Moving { source, ownership, row, .. } = moving;
    source.link.plan([Fault::None, Fault::None, Fault::Delayed { calls }, Fault::NotReached]);
    let unknown = source.table.hand(*ownership, CUT, row.name());
    assert!(matches!(unknown, Err(ClusterError::NotReached(_))), "{unknown:?}");
    source.link.mend();
}

pub(crate) fn handing_that_comes_late_changes_nothing_once_the_row_was_put_again() {
    let sim = Sim::new(7);
    let moving = ready(&sim);
    send_late(&moving, 6);
    moving.source.table.put_again(moving.ownership).unwrap();
    for _ in 0..20 {
        moving.source.moves.list().unwrap();
    }
    let row = moving.source.table.pair(moving.row.pair).unwrap();
    assert_eq!((row.owner, row.epoch), (Some(moving.source.lease), Epoch(1)), "it serves the pair on");
}

/// Garbage in the move's row says nothing of whose the pair is.
#[test]
fn pair_whose_moves_row_does_not_read_is_whose_its_own_row_says() {
    let garble = |moving: &Moving| {
        let key = format!("move/{:08}", moving.row.pair.0);
        moving.source.link.transact(Transaction::new().put(key, "garbage")).unwrap();
    };
    let hand = |moving: &Moving| moving.source.table.hand(moving.ownership, CUT, moving.row.name());
    let sim = Sim::new(7);
    let moving = ready(&sim);
    garble(&moving);
    let refused = hand(&moving);
    assert!(matches!(refused, Err(ClusterError::Unreadable { what: "a move", .. })), "{refused:?}");
    moving.source.table.put_again(moving.ownership).unwrap();
    let sim = Sim::new(7);
    let (moving, row) = handed(&sim);
    garble(&moving);
    let refused = hand(&moving);
    let Err(ClusterError::Superseded { epoch, owner, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((epoch, owner), (row.epoch, Some(moving.target.lease)));
}

#[test]
fn row_that_shows_the_handing_is_not_put_again() {
    let sim = Sim::new(7);
    let moving = ready(&sim);
    send_late(&moving, 0);
    let target = moving.target.lease;
    let refused = moving.source.table.put_again(moving.ownership);
    let Err(ClusterError::Superseded { epoch, owner, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((epoch, owner), (Epoch(2), Some(target)));
}

pub(crate) fn row_that_was_put_without_an_answer_is_not_taken_for_put() {
    let sim = Sim::new(7);
    let Moving { source, ownership, .. } = ready(&sim);
    source.link.plan([Fault::None, Fault::Lost, Fault::NotReached]);
    assert!(source.table.put_again(ownership).is_err());
    source.link.mend();
    source.table.put_again(ownership).unwrap();
}

#[test]
fn pair_that_is_not_published_goes_back_and_the_target_cannot_publish_it_any_more() {
    let sim = Sim::new(7);
    let (Moving { source, target, row: of, .. }, row) = handed(&sim);
    let back = source.table.take_back(&of, "it is slow").unwrap();
    assert!(back.is_own);
    let back = back.row;
    assert_eq!((back.owner, back.node, back.epoch), (Some(source.lease), source.node, Epoch(3)));
    assert_eq!((&back.state, back.is_published()), (&PairState::Recovering, false));
    assert_eq!(target.table.take_back(&of, "it cannot").unwrap().row, back, "twice is once");
    let late = target.publish(&row);
    assert!(matches!(late, Err(ClusterError::Superseded { epoch: Epoch(3), .. })), "{late:?}");
    let outcome = source.moves.of(row.pair).unwrap().unwrap().outcome;
    assert_eq!(outcome, Some(MoveOutcome::Back { why: "it is slow".to_owned() }));
    // The source recovers it by a claim of its own: nothing of its earlier trust is left.
    let claim = source.table.claim(row.pair, source.lease, source.node, ClaimReason::HostLock).unwrap();
    assert_eq!((claim.row.epoch, claim.row.history[0].cut), (Epoch(4), Some(CUT)));
    source.publish(&claim.row).unwrap();
}

pub(crate) fn pair_that_its_target_serves_does_not_go_back() {
    let sim = Sim::new(7);
    let (Moving { source, target, row: of, .. }, row) = handed(&sim);
    target.publish(&row).unwrap();
    let late = source.table.take_back(&of, "it is slow");
    assert!(matches!(late, Err(ClusterError::Superseded { epoch: Epoch(2), .. })), "{late:?}");
    assert_eq!(source.table.pair(row.pair).unwrap().owner, Some(target.lease));
}

pub(crate) fn pair_that_a_survivor_has_claimed_does_not_go_back() {
    let sim = Sim::new(7);
    let (Moving { source, row: of, .. }, row) = handed(&sim);
    source.outlive();
    let survivor = member(&sim, 2);
    let (lease, pair) = (survivor.lease, row.pair);
    let claim = move || drop(survivor.table.claim(pair, lease, NodeId(2), ClaimReason::LeaseEnded).unwrap());
    let refused = outrun(&sim, claim).take_back(&of, "it is dead");
    assert!(matches!(refused, Err(ClusterError::Superseded { .. })), "{refused:?}");
    assert_eq!(source.table.pair(pair).unwrap().owner, Some(lease));
}

/// The other end's write, and one of its own whose answer was lost.
pub(crate) fn pair_that_came_back_by_a_write_without_an_answer_may_have_been_anothers() {
    let sim = Sim::new(7);
    let (Moving { source, target, row: of, .. }, _) = handed(&sim);
    assert!(target.table.take_back(&of, "it cannot").unwrap().is_own);
    let looked_at = source.table.take_back(&of, "it is slow").unwrap();
    assert_eq!((looked_at.row.epoch, looked_at.is_own), (Epoch(3), false));
    let sim = Sim::new(7);
    let (Moving { source, row: of, .. }, _) = handed(&sim);
    source.link.plan([Fault::None, Fault::None, Fault::AnswerLost]);
    let looked_at = source.table.take_back(&of, "it is slow").unwrap();
    assert_eq!((looked_at.row.epoch, looked_at.is_own), (Epoch(3), false));
    let sim = Sim::new(7);
    let (Moving { source, row: of, .. }, _) = handed(&sim);
    source.link.plan([Fault::None, Fault::None, Fault::Lost]);
    assert!(source.table.take_back(&of, "it is slow").unwrap().is_own, "of two tries the second one");
}

#[test]
fn way_back_is_its_writers_own_by_an_answer_alone() {
    pair_that_came_back_by_a_write_without_an_answer_may_have_been_anothers();
}

/// Both ends die before either has said in the move's row what became of it, and a survivor's checkpoint
/// drops the target's epoch: the move counted as given up.
#[test]
fn move_that_was_served_is_no_failure_once_its_epoch_is_dropped() {
    let sim = Sim::new(7);
    let (Moving { target, .. }, row) = handed(&sim);
    let pair = row.pair;
    target.publish(&row).unwrap();
    let survivor = member(&sim, 2);
    survivor.outlive();
    let verdict = || {
        let of = survivor.moves.of(pair).unwrap().unwrap();
        assert!(of.is_under_way());
        of.verdict(&survivor.table.pair(pair).unwrap())
    };
    let claim = survivor.table.claim(pair, survivor.lease, NodeId(2), ClaimReason::LeaseEnded).unwrap();
    survivor.table.record_cut(claim.ownership, row.epoch, Csn(9)).unwrap();
    survivor.publish(&claim.row).unwrap();
    assert_eq!(verdict(), Some(MoveOutcome::Moved));
    let checkpoint =
        CheckpointRow { epoch: claim.row.epoch, csn: Csn(10), csn_max: Csn(10), file: "image".to_owned() };
    survivor.table.record_checkpoint(claim.ownership, &checkpoint).unwrap();
    assert_eq!(verdict(), Some(MoveOutcome::Moved));
}

#[test]
fn pair_of_a_dead_source_does_not_go_back_to_it() {
    let sim = Sim::new(7);
    let (Moving { source, target, row: of, .. }, row) = handed(&sim);
    target.outlive();
    let refused = target.table.take_back(&of, "it cannot");
    assert!(matches!(refused, Err(ClusterError::LeaseEnded { lease }) if lease == source.lease));
    // So it recovers the pair itself, as what it claimed and does not serve.
    let claim = target.table.claim(row.pair, target.lease, target.node, ClaimReason::HostLock).unwrap();
    assert_eq!(claim.row.epoch, Epoch(3));
}

#[test]
fn move_that_cannot_be_is_refused_in_clear_words() {
    let sim = Sim::new(7);
    let (source, target) = (member(&sim, 0), member(&sim, 1));
    let ownership = source.create(Durability::Sync);
    let pair = ownership.pair;
    let refused = |error: Result<MoveRow, ClusterError>| match error {
        Err(ClusterError::Move(refusal)) => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    let begin = |pair, to: &Member| to.moves.begin(pair, &to.row(), "test");
    assert!(refused(begin(pair, &source)).contains("already"));
    let unknown = begin(cell_terms::PairId(99), &target);
    assert!(matches!(unknown, Err(ClusterError::PairUnknown { .. })));
    let without = source.create(Durability::None).pair;
    assert!(refused(begin(without, &target)).contains("durability = none"));
    let first = begin(pair, &target).unwrap();
    assert!(refused(begin(pair, &member(&sim, 2))).contains("cancel it first"));
    target.moves.end(first.name(), &MoveOutcome::Cancelled).unwrap();
    let again = target.moves.end(first.name(), &MoveOutcome::Cancelled);
    assert!(refused(again).contains("no move"));
    let second = begin(pair, &target).unwrap();
    assert_eq!((first.number, second.number), (1, 2));
    let late = target.moves.progress(first.name(), &CopyProgress::default());
    assert!(matches!(late, Err(ClusterError::Move(MoveRefusal::NotUnderWay { .. }))), "of another move");
    source.outlive();
    let third = begin(pair, &member(&sim, 2)).unwrap();
    assert_eq!(third.number, 3, "a dead target has cancelled its move");
    source.table.release(ownership).unwrap();
    assert!(refused(begin(pair, &member(&sim, 3))).contains("not served"));
}

#[test]
fn watch_shows_a_move_and_what_became_of_it() {
    let sim = Sim::new(7);
    let mut watch = Watch::new(Arc::new(sim.link()));
    watch.look().unwrap();
    let moving = wanted(&sim);
    assert!(watch.look().unwrap().changed);
    assert_eq!(watch.view().moves[&moving.row.pair], moving.row);
    moving.target.moves.end(moving.row.name(), &MoveOutcome::Cancelled).unwrap();
    watch.look().unwrap();
    assert!(!watch.view().moves[&moving.row.pair].is_under_way());
    let mut other = Watch::new(Arc::new(sim.link()));
    other.look().unwrap();
    assert_eq!(other.view().moves, watch.view().moves);
}

#[test]
fn move_whose_answer_was_lost_begins_once() {
    let sim = Sim::new(7);
    let (source, target) = (member(&sim, 0), member(&sim, 1));
    let pair = source.create(Durability::Sync).pair;
    // The calls before the write: the pair's row, the target's drain, and the earlier move's row.
    target.link.plan([Fault::None, Fault::None, Fault::None, Fault::AnswerLost]);
    let row = target.moves.begin(pair, &target.row(), "test").unwrap();
    assert_eq!((row.number, target.moves.of(pair).unwrap()), (1, Some(row)));
}

/// A way to the coordinator that loses the answer of the first write, or the write itself; `other` is done
/// before that is noticed.
struct Lossy<F> {
    link: SimLink,
    has_lost: AtomicBool,
    is_carried_out: bool,
    other: F,
}

impl<F: Fn() + Send + Sync> Coordinator for Lossy<F> {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        let is_write = matches!(request, CoordinatorRequest::Transact(_));
        if !is_write || self.has_lost.swap(true, Ordering::SeqCst) {
            return self.link.call(request);
        }
        if self.is_carried_out {
            self.link.call(request)?;
        }
        (self.other)();
        Err(ClusterError::OutcomeUnknown(std::io::ErrorKind::TimedOut.into()))
    }
}

/// What a caller gets that begins a move as it was seen, while that happens.
fn started_while(
    is_carried_out: bool,
    other: impl Fn(&Moving) + Send + Sync + 'static,
) -> (Result<MoveRow, ClusterError>, MoveRow) {
    let sim = Sim::new(7);
    let moving = wanted(&sim);
    moving.source.moves.end(moving.row.name(), &MoveOutcome::Cancelled).unwrap();
    let (pair, to, moves) = (moving.ownership.pair, moving.target.row(), moving.source.moves.clone());
    let seen = moves.plan(pair, &to, "").unwrap().revision();
    let (link, has_lost) = (sim.link(), AtomicBool::new(false));
    let lossy = Lossy { link, has_lost, is_carried_out, other: move || other(&moving) };
    let answer = Moves::new(Arc::new(lossy)).at(5).begin_as_seen(pair, &to, "mine", Some(&seen));
    (answer, moves.of(pair).unwrap().unwrap())
}

/// The pair's move as it is.
fn present(moving: &Moving) -> MoveRow {
    moving.source.moves.of(moving.ownership.pair).unwrap().unwrap()
}

#[test]
fn own_move_is_recognised_however_far_it_is_when_its_answer_was_lost() {
    let (answer, row) = started_while(true, |moving| {
        moving.source.moves.accept(present(moving).name()).unwrap();
    });
    assert_eq!((answer.unwrap(), row.stage), (row.clone(), MoveStage::Copying));
    let (answer, row) = started_while(true, |moving| {
        let name = present(moving).name();
        moving.source.moves.accept(name).unwrap();
        let copy = CopyProgress { is_ready: true, ..CopyProgress::default() };
        moving.target.moves.progress(name, &copy).unwrap();
        let handed = moving.source.table.hand(moving.ownership, CUT, name).unwrap();
        moving.target.publish(&handed).unwrap();
        moving.target.moves.close(name, &MoveOutcome::Moved).unwrap();
    });
    assert_eq!((answer.unwrap(), &row.outcome), (row.clone(), &Some(MoveOutcome::Moved)));
}

#[test]
fn move_of_another_is_not_taken_for_ones_own() {
    let begin_other = |moving: &Moving| {
        let (moves, pair) = (&moving.target.moves, moving.ownership.pair);
        moves.begin(pair, &moving.target.row(), "another's").unwrap()
    };
    let (answer, row) = started_while(false, move |moving| drop(begin_other(moving)));
    assert!(matches!(answer, Err(ClusterError::Move(MoveRefusal::UnderWay { .. }))), "{answer:?}");
    assert_eq!(row.why, "another's");
    let (answer, _) = started_while(false, move |moving| {
        let other = begin_other(moving);
        moving.target.moves.end(other.name(), &MoveOutcome::Cancelled).unwrap();
    });
    assert!(matches!(answer, Err(ClusterError::Move(MoveRefusal::Changed { .. }))), "{answer:?}");
    let (answer, row) = started_while(true, move |moving| {
        moving.target.moves.end(present(moving).name(), &MoveOutcome::Cancelled).unwrap();
        begin_other(moving);
    });
    assert!(matches!(answer, Err(ClusterError::OutcomeUnknown(_))), "its own move's row is gone: {answer:?}");
    assert_eq!(row.why, "another's");
}

#[test]
fn cancel_whose_answer_is_lost_before_the_coordinator_goes_is_of_unknown_outcome() {
    let sim = Sim::new(7);
    let Moving { source, target, row, .. } = wanted(&sim);
    let cancel = || target.moves.cancel(row.name(), "ann");
    let cancel_is_unknown = || matches!(cancel(), Err(ClusterError::OutcomeUnknown(_)));
    let is_under_way = || source.moves.of(row.pair).unwrap().unwrap().is_under_way();
    // A look and a write, twice: the second write does not reach it, or the second look.
    target.link.plan([Fault::None, Fault::Lost, Fault::None, Fault::NotReached]);
    assert!(cancel_is_unknown() && is_under_way());
    target.link.plan([Fault::None, Fault::AnswerLost, Fault::NotReached]);
    assert!(cancel_is_unknown() && !is_under_way());
}

#[test]
fn handing_to_a_dead_target_is_refused_and_the_pair_stays() {
    handing_to_a_dead_target_is_refused();
}

#[test]
fn handing_goes_by_the_moves_row_as_it_is() {
    handing_of_a_move_that_was_cancelled_since_is_refused();
}

#[test]
fn handing_of_unknown_outcome_is_fenced_by_a_write() {
    handing_that_comes_late_changes_nothing_once_the_row_was_put_again();
}

#[test]
fn fence_of_unknown_outcome_is_none() {
    row_that_was_put_without_an_answer_is_not_taken_for_put();
}

#[test]
fn way_back_ends_with_the_publication() {
    pair_that_its_target_serves_does_not_go_back();
}

#[test]
fn way_back_ends_with_another_claim() {
    pair_that_a_survivor_has_claimed_does_not_go_back();
}

#[test]
fn move_says_when_it_came_how_far_and_who_cancelled_it() {
    let sim = Sim::new(1);
    let Moving { source, target, ownership, row } = wanted(&sim);
    let at = |member: &Member, at_ms| member.moves.clone().at(at_ms);
    assert_eq!(row.times, MoveTimes::default(), "nobody said when that was");
    let cancelled = at(&target, 900).cancel(row.name(), "ann").unwrap();
    assert_eq!((cancelled.cancelled_by.as_deref(), cancelled.times.over_ms), (Some("ann"), 900));
    let row = at(&target, 1_000).begin(ownership.pair, &target.row(), "again").unwrap();
    at(&source, 1_100).accept(row.name()).unwrap();
    let copy = CopyProgress { bytes_done: 5, bytes_total: 5, is_ready: true, ..CopyProgress::default() };
    at(&target, 1_200).progress(row.name(), &copy).unwrap();
    let dates = MoveDates { at_ms: 1_350, frozen_ms: 1_300 };
    let handed = source.table.dated(dates).hand(ownership, CUT, row.name()).unwrap();
    target.publish(&handed).unwrap();
    let over = at(&target, 1_400).close(row.name(), &MoveOutcome::Moved).unwrap();
    let noted = MoveTimes {
        wanted_ms: 1_000,
        copying_ms: 1_100,
        ready_ms: 1_200,
        frozen_ms: 1_300,
        handed_ms: 1_350,
        over_ms: 1_400,
    };
    assert_eq!((over.times, over.cancelled_by), (noted, None));
}

#[test]
fn move_is_started_as_it_was_seen_or_not_at_all() {
    let sim = Sim::new(1);
    let Moving { source, target, ownership, row } = wanted(&sim);
    source.moves.end(row.name(), &MoveOutcome::Cancelled).unwrap();
    let (pair, to) = (ownership.pair, target.row());
    let seen = source.moves.plan(pair, &to, "").unwrap().revision();
    assert_ne!(seen, row.revision(), "it would be another one");
    let started = source.moves.begin_as_seen(pair, &to, "test", Some(&seen)).unwrap();
    assert_eq!(started.revision(), seen);
    source.moves.end(started.name(), &MoveOutcome::Cancelled).unwrap();
    let stale = source.moves.begin_as_seen(pair, &to, "test", Some(&seen));
    assert!(matches!(stale, Err(ClusterError::Move(MoveRefusal::Changed { .. }))), "{stale:?}");
    assert!(!source.moves.of(pair).unwrap().unwrap().is_under_way());
}
