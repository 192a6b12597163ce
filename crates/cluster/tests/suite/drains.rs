//! Drains and removals over the simulated coordinator: who is refused, what outlasts what, and that answers
//! may be lost.

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cell_cluster::{
    ClusterError, ClusterTerms, Coordinator, CoordinatorRequest, CopyProgress, DrainAuthor, DrainPlanned,
    Drains, Fault, JoinedNodes, JoinedRow, Joining, LeaseTerms, MemberRow, Members, MoveOutcome, MoveRefusal,
    Moves, NewPair, NodeRefusal, Ownership, PairGeometry, Response, ServingAddress, Sim, SimLink, Table,
    Transaction, Watch,
};
use cell_terms::{Csn, Durability, Incarnation, NodeId};

const AUTHOR: DrainAuthor<'_> = DrainAuthor { who: "ops", why: Some("new disk"), now_unix_ms: 9 };
const LEASE_MS: u64 = 500;
const MS: u64 = 1_000_000;

fn row(node: u32, incarnation: Incarnation) -> MemberRow {
    MemberRow {
        incarnation,
        node: NodeId(node),
        fabric: String::new(),
        http: String::new(),
        pid: 1,
        memory_limit_bytes: 0,
    }
}

fn join(link: &SimLink, node: u32) -> Result<Incarnation, ClusterError> {
    let lease = link.grant(LEASE_MS).unwrap().lease;
    let terms = ClusterTerms::new(1, None, Durability::Sync, LeaseTerms::new(LEASE_MS, 0.05));
    let joining = Joining { terms, host: None, home: format!("/data/node-{node}") };
    Members::new(Arc::new(link.clone())).join(&row(node, lease), &joining).map(|()| lease)
}

fn cluster(nodes: u32) -> (Sim, SimLink, Drains, Vec<Incarnation>) {
    let sim = Sim::new(3);
    let link = sim.link();
    let leases = (0..nodes).map(|node| join(&link, node).unwrap()).collect();
    let drains = Drains::new(Arc::new(link.clone()));
    (sim, link, drains, leases)
}

fn create(link: &SimLink, node: u32, incarnation: Incarnation) -> Ownership {
    let geometry =
        PairGeometry { node_region_bytes: 1, extent_region_bytes: 1, slot_bytes: 1, node_bytes: 1 };
    let table = Table::new(Arc::new(link.clone()));
    let new = NewPair { incarnation, node: NodeId(node), geometry };
    let ownership = table.create_pair(&new).unwrap().ownership;
    table.publish(ownership, Durability::Sync, &place()).unwrap();
    ownership
}

fn place() -> ServingAddress {
    ServingAddress { address: String::new(), worker: 0, node_key: 0, extent_key: 0 }
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, ClusterError>) -> NodeRefusal {
    match answer {
        Err(ClusterError::Node(refusal)) => refusal,
        other => panic!("it was not refused: {other:?}"),
    }
}

#[test]
fn drain_is_seen_outlasts_the_node_and_is_taken_back() {
    let (sim, link, drains, _) = cluster(2);
    let mut watch = Watch::new(Arc::new(link.clone()));
    watch.look().unwrap();
    let rows = drains.begin(&[NodeId(1)], &AUTHOR).unwrap();
    assert_eq!((rows.len(), rows[0].who.as_str(), rows[0].since_unix_ms), (1, "ops", 9));
    let later = DrainAuthor { who: "other", why: None, now_unix_ms: 10 };
    assert_eq!(drains.begin(&[NodeId(1)], &later).unwrap(), rows, "it stays as it is");
    assert!(watch.look().unwrap().changed);
    assert!(watch.view().is_draining(NodeId(1)) && !watch.view().is_draining(NodeId(0)));
    sim.advance(2 * LEASE_MS * MS);
    let mut fresh = Watch::new(Arc::new(link.clone()));
    fresh.look().unwrap();
    assert_eq!(fresh.view().drains.values().collect::<Vec<_>>(), rows.iter().collect::<Vec<_>>());
    join(&link, 1).unwrap(); // it may run, and still drains
    assert_eq!(drains.end(&[NodeId(1)]).unwrap(), rows);
    watch.look().unwrap();
    assert!(!watch.view().is_draining(NodeId(1)));
    assert_eq!(refusal(drains.end(&[NodeId(1)])), NodeRefusal::NotDraining { node: NodeId(1) });
}

#[test]
fn drain_of_nobody_or_of_the_last_one_is_refused_whole() {
    let (_sim, _link, drains, _) = cluster(2);
    let unknown = refusal(drains.begin(&[NodeId(0), NodeId(7)], &AUTHOR));
    assert_eq!(unknown, NodeRefusal::NotMember { node: NodeId(7) });
    assert_eq!(refusal(drains.begin(&[NodeId(0), NodeId(1)], &AUTHOR)), NodeRefusal::LastNode);
    assert_eq!(drains.list().unwrap(), [], "all or none");
    drains.begin(&[NodeId(0)], &AUTHOR).unwrap();
    assert_eq!(refusal(drains.check(&[NodeId(1)])), NodeRefusal::LastNode);
}

/// Also a test of a mutant.
#[test]
pub(crate) fn drains_of_the_last_two_nodes_at_once_leave_one() {
    let (sim, _link, drains, _) = cluster(2);
    let others = drains.clone();
    let slow = crate::moves::outrun_link(&sim, move || {
        others.begin(&[NodeId(1)], &AUTHOR).unwrap();
    });
    assert_eq!(refusal(Drains::new(Arc::new(slow)).begin(&[NodeId(0)], &AUTHOR)), NodeRefusal::LastNode);
    assert_eq!(drains.list().unwrap().len(), 1);
}

/// Each of two drains had room for it, and for both together there was none. Also a test of a mutant.
#[test]
pub(crate) fn drain_that_was_planned_before_another_began_is_refused() {
    let (_sim, _link, drains, leases) = cluster(4);
    let (first, second) = (drains.seen().unwrap(), drains.seen().unwrap());
    let targets = [leases[2], leases[3]];
    let planned = DrainPlanned { seen: &first, targets: &targets };
    let started = drains.begin_as_seen(&[NodeId(0)], &AUTHOR, &planned).unwrap();
    let late = DrainPlanned { seen: &second, targets: &targets };
    assert_eq!(refusal(drains.begin_as_seen(&[NodeId(1)], &AUTHOR, &late)), NodeRefusal::Changed);
    assert_eq!(drains.list().unwrap(), started, "nothing was done");
    assert_eq!(drains.begin_as_seen(&[NodeId(0)], &AUTHOR, &late).unwrap(), started, "it drains already");
    let seen = drains.seen().unwrap();
    assert_eq!(seen.rows, started);
    let anew = DrainPlanned { seen: &seen, targets: &targets };
    drains.begin_as_seen(&[NodeId(1)], &AUTHOR, &anew).unwrap();
}

/// Also a test of a mutant.
#[test]
pub(crate) fn drain_that_another_outruns_is_refused_if_it_was_planned_before() {
    let (sim, _link, drains, _) = cluster(4);
    let (others, seen) = (drains.clone(), drains.seen().unwrap());
    let slow = crate::moves::outrun_link(&sim, move || {
        others.begin(&[NodeId(1)], &AUTHOR).unwrap();
    });
    let planned = DrainPlanned { seen: &seen, targets: &[] };
    let refused = Drains::new(Arc::new(slow)).begin_as_seen(&[NodeId(0)], &AUTHOR, &planned);
    assert_eq!(refusal(refused), NodeRefusal::Changed);
    assert_eq!(drains.list().unwrap().len(), 1);
}

/// Also a test of a mutant.
#[test]
pub(crate) fn drain_whose_targets_have_died_is_refused() {
    let (sim, link, drains, leases) = cluster(3);
    let seen = drains.seen().unwrap();
    let planned = DrainPlanned { seen: &seen, targets: &leases[2..] };
    sim.advance(400 * MS);
    leases[..2].iter().for_each(|lease| link.keep_alive(*lease).unwrap());
    sim.advance(400 * MS);
    assert_eq!(refusal(drains.begin_as_seen(&[NodeId(0)], &AUTHOR, &planned)), NodeRefusal::Changed);
    assert_eq!(drains.list().unwrap(), []);
}

#[test]
fn drain_with_a_plan_whose_answer_is_lost_is_started_once() {
    let (_sim, link, drains, leases) = cluster(2);
    let seen = drains.seen().unwrap();
    link.plan([Fault::None, Fault::None, Fault::None, Fault::AnswerLost]); // the write's
    let planned = DrainPlanned { seen: &seen, targets: &leases[..1] };
    let started = drains.begin_as_seen(&[NodeId(1)], &AUTHOR, &planned).unwrap();
    assert_eq!(started, drains.list().unwrap());
}

#[test]
fn drains_whose_answers_are_lost_are_started_and_ended_once() {
    let (_sim, link, drains, _) = cluster(2);
    link.plan([Fault::None, Fault::None, Fault::None, Fault::AnswerLost]); // the write's
    let started = drains.begin(&[NodeId(1)], &AUTHOR).unwrap();
    assert_eq!(started, drains.list().unwrap());
    link.plan([Fault::None, Fault::None, Fault::AnswerLost]);
    assert_eq!(drains.end(&[NodeId(1)]).unwrap(), started);
    assert_eq!(drains.list().unwrap(), []);
}

/// "The coordinator cannot be reached. Nothing was changed.", of a drain that the try before had started.
#[test]
fn drains_whose_answers_are_lost_before_the_coordinator_goes_are_of_unknown_outcome() {
    let (_sim, link, drains, _) = cluster(2);
    let is_unknown = |result: Result<Vec<_>, ClusterError>| {
        let error = result.unwrap_err();
        let words = cell_terms::text::with_causes(&error);
        assert!(words.contains("cannot be reached"), "{words}");
        matches!(error, ClusterError::OutcomeUnknown(_))
    };
    link.plan([Fault::None, Fault::None, Fault::None, Fault::AnswerLost, Fault::NotReached]);
    assert!(is_unknown(drains.begin(&[NodeId(1)], &AUTHOR)));
    assert_eq!(drains.list().unwrap().len(), 1, "it was started");
    link.plan([Fault::None, Fault::None, Fault::AnswerLost, Fault::NotReached]);
    assert!(is_unknown(drains.end(&[NodeId(1)])));
    assert_eq!(drains.list().unwrap(), [], "it was ended");
    link.plan([Fault::NotReached]);
    let error = drains.begin(&[NodeId(1)], &AUTHOR).unwrap_err();
    assert!(matches!(error, ClusterError::NotReached(_)), "nothing was sent: {error}");
}

/// What was confirmed was not what was done: another operator had drained another node meanwhile.
#[test]
pub(crate) fn change_is_refused_if_drains_were_changed_since_it_was_looked_at() {
    let (_sim, link, drains, _) = cluster(4);
    let seen = |revision| drains.clone().as_seen(revision);
    let first = drains.revision().unwrap();
    drains.check(&[NodeId(1)]).unwrap();
    assert_eq!(drains.revision().unwrap(), first, "a look changes nothing");
    let started = seen(first).begin(&[NodeId(1)], &AUTHOR).unwrap();
    let second = drains.revision().unwrap();
    assert_ne!(second, first);
    assert_eq!(refusal(seen(first).begin(&[NodeId(2)], &AUTHOR)), NodeRefusal::Changed);
    assert_eq!(refusal(seen(first).end(&[NodeId(1)])), NodeRefusal::Changed);
    assert_eq!(refusal(seen(first).remove(NodeId(1), &AUTHOR)), NodeRefusal::Changed);
    assert_eq!(drains.list().unwrap(), started, "nothing was done");
    // It is so already, which is all that was wanted.
    assert_eq!(seen(first).begin(&[NodeId(1)], &AUTHOR).unwrap(), started);
    // An answer that is lost is no change of others.
    link.plan([Fault::None, Fault::None, Fault::None, Fault::AnswerLost]); // the write's
    seen(second).begin(&[NodeId(2)], &AUTHOR).unwrap();
    let third = drains.revision().unwrap();
    link.plan([Fault::None, Fault::None, Fault::AnswerLost]);
    seen(third).end(&[NodeId(2)]).unwrap();
    let fourth = drains.revision().unwrap();
    let removed = seen(fourth).remove(NodeId(1), &AUTHOR).unwrap();
    assert_eq!(drains.list().unwrap(), [removed]);
    assert_eq!(refusal(drains.check_end(&[NodeId(2)])), NodeRefusal::NotDraining { node: NodeId(2) });
    drains.check_end(&[NodeId(1)]).unwrap();
}

#[test]
fn move_to_a_node_that_drains_is_refused() {
    let (_sim, link, drains, leases) = cluster(3);
    let pair = create(&link, 0, leases[0]).pair;
    drains.begin(&[NodeId(1)], &AUTHOR).unwrap();
    let moves = Moves::new(Arc::new(link));
    let refused = moves.begin(pair, &row(1, leases[1]), "test");
    let Err(ClusterError::Move(why)) = refused else { panic!("{refused:?}") };
    assert_eq!(why, MoveRefusal::TargetDrains { node: NodeId(1) });
    // One that was removed and still runs was said to drain.
    drains.remove(NodeId(1), &AUTHOR).unwrap();
    let refused = moves.begin(pair, &row(1, leases[1]), "test");
    let Err(ClusterError::Move(why)) = refused else { panic!("{refused:?}") };
    assert_eq!(why, MoveRefusal::TargetRemoved { node: NodeId(1) });
    moves.begin(pair, &row(2, leases[2]), "test").unwrap();
}

/// Also a test of a mutant.
#[test]
pub(crate) fn move_does_not_begin_past_a_drain_that_came_first() {
    let (sim, link, drains, leases) = cluster(3);
    let pair = create(&link, 0, leases[0]).pair;
    let slow = crate::moves::outrun_link(&sim, move || {
        drains.begin(&[NodeId(1)], &AUTHOR).unwrap();
    });
    let refused = Moves::new(Arc::new(slow)).begin(pair, &row(1, leases[1]), "test");
    assert!(matches!(refused, Err(ClusterError::Move(MoveRefusal::TargetDrains { .. }))), "{refused:?}");
}

#[test]
fn node_is_removed_when_it_has_nothing_and_does_not_run_or_drains() {
    let (sim, link, drains, leases) = cluster(3);
    assert_eq!(refusal(drains.remove(NodeId(1), &AUTHOR)), NodeRefusal::Runs { node: NodeId(1) });
    create(&link, 1, leases[1]);
    drains.begin(&[NodeId(1)], &AUTHOR).unwrap();
    let owns = NodeRefusal::OwnsPairs { node: NodeId(1), pairs: 1 };
    assert_eq!(refusal(drains.check_remove(NodeId(1))), owns);
    let moves = Moves::new(Arc::new(link.clone()));
    let of = moves.begin(create(&link, 0, leases[0]).pair, &row(2, leases[2]), "test").unwrap();
    drains.begin(&[NodeId(2)], &AUTHOR).unwrap();
    let comes = NodeRefusal::OwnsPairs { node: NodeId(2), pairs: 1 };
    assert_eq!(refusal(drains.remove(NodeId(2), &AUTHOR)), comes, "one is on its way there");
    moves.cancel(of.name(), "ops").unwrap();
    assert!(drains.remove(NodeId(2), &AUTHOR).unwrap().removed, "it drains and is empty");
    sim.advance(2 * LEASE_MS * MS);
    assert_eq!(refusal(drains.remove(NodeId(1), &AUTHOR)), owns, "stopped, and its pair waits for it");
    let gone = refusal(join(&link, 2));
    assert_eq!(gone, NodeRefusal::Removed { node: NodeId(2), who: "ops".into() });
    assert!(drains.remove(NodeId(2), &AUTHOR).unwrap().removed, "twice is once");
    assert!(matches!(refusal(drains.begin(&[NodeId(2)], &AUTHOR)), NodeRefusal::Removed { .. }));
    drains.end(&[NodeId(2)]).unwrap();
    join(&link, 2).unwrap();
}

/// A way to the coordinator on which another does something right after the moves or the pairs were listed,
/// whichever is first.
struct Between<F> {
    link: SimLink,
    is_done: AtomicBool,
    other: F,
}

impl<F: Fn() + Send + Sync> Coordinator for Between<F> {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        let response = self.link.call(request);
        let is_listed = matches!(request, CoordinatorRequest::List { prefix, .. }
            if prefix == "move/" || prefix == "pair/");
        if is_listed && !self.is_done.swap(true, Ordering::SeqCst) {
            (self.other)();
        }
        response
    }
}

/// It was counted by neither: the pair was seen before it came, and the move when it was over.
#[test]
fn pair_that_comes_while_the_rows_are_read_is_left() {
    let (_sim, link, drains, leases) = cluster(2);
    let (ownership, target) = (create(&link, 0, leases[0]), leases[1]);
    let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
    let (table, moves) = (Table::new(coordinator.clone()), Moves::new(coordinator));
    let of = moves.begin(ownership.pair, &row(1, target), "test").unwrap();
    moves.accept(of.name()).unwrap();
    moves.progress(of.name(), &CopyProgress { is_ready: true, ..CopyProgress::default() }).unwrap();
    drains.begin(&[NodeId(1)], &AUTHOR).unwrap();
    let other = move || {
        let handed = table.hand(ownership, Csn(7), of.name()).unwrap();
        let handed = Ownership { pair: handed.pair, epoch: handed.epoch, incarnation: target };
        table.publish(handed, Durability::Sync, &place()).unwrap();
        moves.close(of.name(), &MoveOutcome::Moved).unwrap();
    };
    let slow = Between { link, is_done: AtomicBool::new(false), other };
    let owns = NodeRefusal::OwnsPairs { node: NodeId(1), pairs: 1 };
    assert_eq!(refusal(Drains::new(Arc::new(slow)).check_remove(NodeId(1))), owns);
}

/// It was known to nobody once it was lost and the others were restarted.
#[test]
fn node_that_lives_when_its_removal_is_taken_back_has_joined() {
    let (sim, link, drains, leases) = cluster(3);
    let joined = JoinedNodes::new(Arc::new(link));
    for node in [NodeId(1), NodeId(2)] {
        drains.begin(&[node], &AUTHOR).unwrap();
        drains.remove(node, &AUTHOR).unwrap();
        assert!(!joined.has(node).unwrap());
    }
    drains.end(&[NodeId(1)]).unwrap();
    let row = JoinedRow { node: NodeId(1), incarnation: leases[1] };
    assert!(joined.list().unwrap().contains(&row));
    sim.advance(2 * LEASE_MS * MS);
    drains.end(&[NodeId(2)]).unwrap();
    assert!(!joined.has(NodeId(2)).unwrap(), "it has gone, and may join");
}

/// It was said that others kept changing the drains, and a node that was to drain was said not to be there.
#[test]
fn node_whose_row_does_not_read_is_said_to_run_until_its_lease_has_ended() {
    let (sim, link, drains, leases) = cluster(3);
    let key = format!("member/{:016x}", leases[1].0);
    link.transact(Transaction::new().put(key, "garbage")).unwrap();
    let node = NodeId(1);
    assert_eq!(refusal(drains.remove(node, &AUTHOR)), NodeRefusal::Unreadable { node });
    assert_eq!(refusal(drains.check_remove(node)), NodeRefusal::Unreadable { node });
    assert_eq!(refusal(drains.begin(&[node], &AUTHOR)), NodeRefusal::Unreadable { node });
    assert_eq!(drains.list().unwrap(), []);
    sim.advance(2 * LEASE_MS * MS);
    assert!(drains.remove(node, &AUTHOR).unwrap().removed, "it has gone");
}

#[test]
fn node_that_joins_while_it_is_removed_stays() {
    let (sim, link, drains, _) = cluster(2);
    sim.advance(2 * LEASE_MS * MS);
    join(&link, 0).unwrap();
    let slow = crate::moves::outrun_link(&sim, move || {
        join(&link, 1).unwrap();
    });
    let refused = Drains::new(Arc::new(slow)).remove(NodeId(1), &AUTHOR);
    assert_eq!(refusal(refused), NodeRefusal::Runs { node: NodeId(1) });
    assert_eq!(drains.list().unwrap(), []);
}

#[test]
fn stall_is_noted_and_goes() {
    let (_sim, _link, drains, _) = cluster(2);
    drains.note_stall(NodeId(1), Some("no room")).unwrap();
    assert_eq!(drains.list().unwrap(), [], "it does not drain");
    drains.begin(&[NodeId(1)], &AUTHOR).unwrap();
    drains.note_stall(NodeId(1), Some("no room")).unwrap();
    assert_eq!(drains.list().unwrap()[0].stall.as_deref(), Some("no room"));
    drains.note_stall(NodeId(1), None).unwrap();
    assert_eq!(drains.list().unwrap()[0].stall, None);
}
