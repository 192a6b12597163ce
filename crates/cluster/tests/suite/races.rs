//! Changes whose writer is outrun by another time and again: each lost race is somebody's success, so the
//! writer goes on, long past the tries that it makes where nobody answers.

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cell_cluster::{
    ClusterError, Coordinator, CoordinatorRequest, Fault, Incidents, NewIncident, NewPair, PairGeometry,
    Response, Sessions, ShareRow, Sim, SimLink, Table,
};
use cell_terms::{Incarnation, NodeId, PairId};

/// More than any change is tried where nobody answers.
const RACES: u32 = 100;
const GEOMETRY: PairGeometry =
    PairGeometry { node_region_bytes: 1, extent_region_bytes: 1, slot_bytes: 1, node_bytes: 1 };

/// A way to the coordinator on which, before each of the first transactions, another is faster.
struct Outrun<F> {
    link: SimLink,
    races: AtomicU32,
    other: F,
}

impl<F: Fn() + Send + Sync> Coordinator for Outrun<F> {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        let less = |left: u32| left.checked_sub(1);
        if matches!(request, CoordinatorRequest::Transact(_))
            && self.races.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
        {
            (self.other)();
        }
        self.link.call(request)
    }
}

/// A coordinator, the lease of one who is outrun `races` times by `other`, and the way that it has.
fn outrun<F: Fn() + Send + Sync + 'static>(
    sim: &Sim,
    races: u32,
    other: F,
) -> (Arc<dyn Coordinator>, Incarnation) {
    let lease = lease(sim);
    (Arc::new(Outrun { link: sim.link(), races: AtomicU32::new(races), other }), lease)
}

fn lease(sim: &Sim) -> Incarnation {
    sim.link().grant(500).unwrap().lease
}

fn new_pair(incarnation: Incarnation) -> NewPair {
    NewPair { incarnation, node: NodeId(0), geometry: GEOMETRY }
}

/// Lets another, by its own way, create a pair.
fn pair_by_another(sim: &Sim) -> impl Fn() + Send + Sync + 'static {
    let (other, table) = (lease(sim), Table::new(Arc::new(sim.link())));
    move || drop(table.create_pair(&new_pair(other)).unwrap())
}

#[test]
fn create_pair_outrun_a_hundred_times_comes_through() {
    let sim = Sim::new(1);
    let (way, lease) = outrun(&sim, RACES, pair_by_another(&sim));
    let claim = Table::new(way).create_pair(&new_pair(lease)).unwrap();
    assert_eq!(claim.row.pair, PairId(RACES + 1));
}

#[test]
fn create_pair_outrun_without_end_says_so() {
    let sim = Sim::new(1);
    let (way, lease) = outrun(&sim, u32::MAX, pair_by_another(&sim));
    let error = Table::new(way).create_pair(&new_pair(lease)).unwrap_err();
    assert!(matches!(error, ClusterError::Contended { .. }) && error.is_transient(), "{error}");
}

#[test]
fn create_pair_that_nobody_answers_is_given_up_soon() {
    let sim = Sim::new(1);
    let (lease, link) = (lease(&sim), sim.link());
    // The counter is read and the transaction lost; from then on its pair is looked for, too.
    link.plan([Fault::None, Fault::Lost]);
    link.plan([Fault::None, Fault::None, Fault::Lost].repeat(99));
    let calls = sim.calls();
    let error = Table::new(Arc::new(link)).create_pair(&new_pair(lease)).unwrap_err();
    assert!(matches!(error, ClusterError::OutcomeUnknown(_)), "nobody was faster: {error}");
    assert!(sim.calls() - calls < u64::from(RACES), "{} calls", sim.calls() - calls);
}

/// Its row was there, and who had asked for it got the error that it could not be created.
#[test]
fn create_pair_looks_again_for_what_it_has_tried_where_that_look_has_no_answer_either() {
    for (tried, look) in [
        (Fault::AnswerLost, Fault::Lost),
        (Fault::AnswerLost, Fault::NotReached),
        (Fault::Lost, Fault::Lost),
        (Fault::Lost, Fault::NotReached),
    ] {
        let sim = Sim::new(1);
        let (lease, link) = (lease(&sim), sim.link());
        // The counter and the transaction; the counter; the counter and the pair.
        link.plan([Fault::None, tried, look, Fault::None, look]);
        let table = Table::new(Arc::new(link));
        let claim = table.create_pair(&new_pair(lease)).unwrap();
        let (rows, _) = table.pairs().unwrap();
        assert_eq!((claim.row.pair, rows), (PairId(1), vec![claim.row]), "{tried:?}, {look:?}");
    }
}

#[test]
fn open_outrun_a_hundred_times_comes_through() {
    let sim = Sim::new(1);
    let (other, sessions) = (lease(&sim), Sessions::new(Arc::new(sim.link())));
    let (way, lease) = outrun(&sim, RACES, move || {
        sessions.open(other).unwrap();
    });
    let session = Sessions::new(way).open(lease).unwrap();
    assert_eq!(session.0 & 0xffff_ffff, u64::from(RACES) + 1);
}

#[test]
fn share_of_an_incident_outrun_a_hundred_times_is_written_and_no_other_is_lost() {
    let sim = Sim::new(1);
    let (other, incidents) = (lease(&sim), Incidents::new(Arc::new(sim.link())));
    let new = NewIncident {
        dead: Incarnation(9),
        node: NodeId(1),
        lease_seen_ms: 1,
        detected_ms: 1,
        host_lock: true,
    };
    assert!(incidents.claim(&new, other, 1).unwrap());
    let pair = PairId(3);
    incidents.plan(new.dead, other, &[ShareRow { pair, ..ShareRow::default() }]).unwrap();
    let add = |share: &mut ShareRow| share.declined.push(Incarnation(1));
    let (way, lease) = outrun(&sim, RACES, move || drop(incidents.note(new.dead, pair, other, add).unwrap()));
    let share = Incidents::new(way).note(new.dead, pair, lease, add).unwrap().unwrap();
    assert_eq!(share.declined.len(), RACES as usize + 1);
}

/// Whenever the write of a creation takes effect, one pair comes of it.
#[test]
fn create_pair_whose_write_is_late_creates_one_pair() {
    for calls in 1..8 {
        let sim = Sim::new(3);
        let link = Arc::new(sim.link());
        let lease = link.grant(60_000).unwrap().lease;
        link.plan([Fault::None, Fault::Delayed { calls }]); // the counter, then the transaction
        let claim = Table::new(link.clone()).create_pair(&new_pair(lease)).unwrap();
        for _ in 0..8 {
            link.read("nothing").unwrap(); // what is late comes
        }
        let (rows, _) = Table::new(link).pairs().unwrap();
        let pairs: Vec<_> = rows.iter().map(|row| row.pair).collect();
        assert_eq!(pairs, [claim.ownership.pair], "after {calls} calls");
    }
}
