//! Incidents, notes and the watch, over every provider that stands for a real one.

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::sync::Arc;

use cell_cluster::{
    ClaimReason, ClusterError, Coordinator, Embedded, Fault, Incidents, Layout, ManualClock, MemberRow,
    Members, NOTICE_PREFIX, NewIncident, Notices, Sessions, ShareRow, Sim, Table, Watch,
};
use cell_terms::{Incarnation, NodeId, PairId};

const MS: u64 = 1_000_000;
const GEOMETRY: cell_cluster::PairGeometry =
    cell_cluster::PairGeometry { node_region_bytes: 1, extent_region_bytes: 1, slot_bytes: 1, node_bytes: 1 };

type Advance = Box<dyn Fn(u64)>;

fn each(check: impl Fn(&Arc<dyn Coordinator>, &dyn Fn(u64))) {
    let sim = Sim::new(7);
    let (link, advance): (_, Advance) = (sim.link(), Box::new(move |by| sim.advance(by)));
    let in_memory: Arc<dyn Coordinator> = Arc::new(link);
    check(&in_memory, &*advance);
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1));
    let on_sled: Arc<dyn Coordinator> =
        Arc::new(Embedded::open_with_clock(folder.path(), clock.clone()).unwrap());
    check(&on_sled, &move |by| clock.advance(by));
}

fn lease(coordinator: &Arc<dyn Coordinator>) -> Incarnation {
    coordinator.grant(500).unwrap().lease
}

fn death(dead: Incarnation) -> NewIncident {
    NewIncident { dead, node: NodeId(1), lease_seen_ms: 3, detected_ms: 4, host_lock: false }
}

#[test]
fn claim_of_a_living_ones_incident_is_refused_but_to_who_holds_its_lock() {
    each(|coordinator, advance| {
        let incidents = Incidents::new(coordinator.clone());
        let (one, two) = (lease(coordinator), lease(coordinator));
        assert!(!incidents.claim(&death(one), two, 5).unwrap());
        assert!(incidents.claim(&NewIncident { host_lock: true, ..death(one) }, two, 5).unwrap());
        advance(400 * MS);
        let three = lease(coordinator);
        advance(100 * MS);
        assert!(incidents.claim(&death(one), three, 6).unwrap(), "its claimer has died too");
        assert!(matches!(incidents.claim(&death(two), two, 6), Err(ClusterError::LeaseEnded { .. })));
    });
}

/// Seed 4142663028 of the simulator: it claimed what it had already, again and again.
#[test]
fn claim_of_ones_own_incident_is_refused_once_the_lease_has_ended() {
    each(|coordinator, advance| {
        let incidents = Incidents::new(coordinator.clone());
        let me = lease(coordinator);
        assert!(incidents.claim(&death(Incarnation(0)), me, 5).unwrap());
        advance(499 * MS);
        assert!(incidents.claim(&death(Incarnation(0)), me, 6).unwrap(), "it has it already");
        advance(MS);
        let again = incidents.claim(&death(Incarnation(0)), me, 7);
        assert!(matches!(again, Err(ClusterError::LeaseEnded { lease }) if lease == me), "{again:?}");
    });
}

#[test]
fn claim_racing_survivors_one_has_it_and_keeps_the_shares() {
    each(|coordinator, advance| {
        let incidents = Incidents::new(coordinator.clone());
        let dead = lease(coordinator);
        advance(500 * MS);
        let (one, two) = (lease(coordinator), lease(coordinator));
        assert!(incidents.claim(&death(dead), one, 5).unwrap());
        assert!(incidents.claim(&death(dead), one, 5).unwrap(), "again");
        assert!(!incidents.claim(&death(dead), two, 5).unwrap());
        let share = ShareRow { pair: PairId(3), survivor: Some(two), ..ShareRow::default() };
        incidents.plan(dead, one, std::slice::from_ref(&share)).unwrap();
        incidents.plan(dead, two, &[ShareRow { pair: PairId(4), ..ShareRow::default() }]).unwrap();
        advance(400 * MS);
        coordinator.keep_alive(two).unwrap();
        advance(100 * MS);
        assert!(incidents.claim(&death(dead), two, 6).unwrap(), "the claimer has died");
        let row = incidents.list().unwrap().remove(0);
        assert_eq!((row.claimed_by, row.claimed_ms, row.plan), (two, 5, vec![share]), "who has it plans");
        incidents.close(dead, two, 9).unwrap();
        incidents.close(dead, two, 10).unwrap();
        assert_eq!(incidents.list().unwrap()[0].over_ms, 9, "it is over once");
        let three = lease(coordinator);
        assert!(incidents.claim(&death(dead), three, 10).unwrap(), "one that is over begins again");
        assert_eq!(incidents.list().unwrap()[0].plan, []);
        assert_eq!(
            incidents.note(dead, PairId(3), three, |row| row.bytes = 1).unwrap(),
            None,
            "there is none"
        );
    });
}

#[test]
fn forget_old_keeps_what_is_not_over_and_the_last() {
    each(|coordinator, _| {
        let incidents = Incidents::new(coordinator.clone());
        let me = lease(coordinator);
        for dead in 1..=40 {
            let new = NewIncident { host_lock: true, ..death(Incarnation(dead)) };
            incidents.claim(&new, me, 1).unwrap();
            if dead > 2 {
                // The later it is closed, the lower the time: by other hosts, or after a reboot.
                incidents.close(Incarnation(dead), me, 100 - dead).unwrap();
            }
        }
        incidents.forget_old(me).unwrap();
        let left: Vec<_> = incidents.list().unwrap().iter().map(|row| row.dead.0).collect();
        assert_eq!((left.len(), &left[..4]), (34, &[1, 2, 9, 10][..]));
        // As many as are kept are over: nothing goes until one more is.
        incidents.forget_old(me).unwrap();
        assert_eq!(incidents.list().unwrap().len(), 34);
        incidents.close(Incarnation(1), me, 1).unwrap();
        incidents.forget_old(me).unwrap();
        let left: Vec<_> = incidents.list().unwrap().iter().map(|row| row.dead.0).collect();
        assert_eq!((left.len(), &left[..4]), (33, &[1, 2, 10, 11][..]));
    });
}

/// The second incident of nobody's pairs took the place of the first one.
#[test]
fn claim_of_nobodys_pairs_again_is_another_incident_and_the_first_one_stays() {
    each(|coordinator, _| {
        let incidents = Incidents::new(coordinator.clone());
        let mut watch = Watch::new(coordinator.clone());
        let me = lease(coordinator);
        let share = ShareRow { pair: PairId(3), survivor: Some(me), ..ShareRow::default() };
        let mut claimed = Vec::new();
        for detected_ms in [10, 20, 30] {
            watch.look().unwrap();
            let dead = watch.view().next_of_nobody();
            let new = NewIncident { detected_ms, ..death(dead) };
            assert!(incidents.claim(&new, me, detected_ms + 1).unwrap());
            incidents.plan(dead, me, std::slice::from_ref(&share)).unwrap();
            incidents.close(dead, me, detected_ms + 5).unwrap();
            assert!(!incidents.claim(&new, me, 99).unwrap(), "who sees too little claims nothing");
            claimed.push(dead);
        }
        assert_eq!(claimed, [0, (1 << 63) + 1, (1 << 63) + 2].map(Incarnation));
        let kept = incidents.list().unwrap();
        let times = kept.iter().map(|row| (row.detected_ms, row.over_ms, row.plan.len()));
        assert_eq!(times.collect::<Vec<_>>(), [(10, 15, 1), (20, 25, 1), (30, 35, 1)]);
        assert!(kept.iter().all(|row| row.is_of_nobody()));
        watch.look().unwrap();
        assert_eq!(watch.view().incidents.values().cloned().collect::<Vec<_>>(), kept);
    });
}

/// A transaction that comes late: the planner has tried again meanwhile, and a survivor has noted something.
#[test]
fn plan_that_comes_late_undoes_no_note() {
    let sim = Sim::new(7);
    let link = sim.link();
    let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
    let incidents = Incidents::new(coordinator.clone());
    let me = lease(&coordinator);
    let dead = Incarnation(9);
    incidents.claim(&NewIncident { host_lock: true, ..death(dead) }, me, 1).unwrap();
    let share = ShareRow { pair: PairId(3), survivor: Some(me), ..ShareRow::default() };
    // The incident and its shares are read, and the transaction is late.
    link.plan([Fault::None, Fault::None, Fault::Delayed { calls: 12 }]);
    incidents.plan(dead, me, std::slice::from_ref(&share)).unwrap();
    incidents.note(dead, PairId(3), me, |share| share.declined.push(me)).unwrap();
    for _ in 0..20 {
        assert_eq!(incidents.list().unwrap()[0].plan[0].declined, [me]);
    }
}

#[test]
fn forget_old_keeps_few_shares_of_what_is_over_and_all_of_the_last() {
    each(|coordinator, _| {
        let incidents = Incidents::new(coordinator.clone());
        let me = lease(coordinator);
        let share = |pair| ShareRow { pair: PairId(pair), ..ShareRow::default() };
        for dead in 1..=4 {
            let new = NewIncident { host_lock: true, ..death(Incarnation(dead)) };
            incidents.claim(&new, me, 1).unwrap();
            let shares = if dead == 4 { 2_500 } else { 500 };
            incidents.plan(Incarnation(dead), me, &(1..=shares).map(share).collect::<Vec<_>>()).unwrap();
            incidents.close(Incarnation(dead), me, dead).unwrap();
        }
        incidents.forget_old(me).unwrap();
        let left: Vec<_> = incidents.list().unwrap().iter().map(|row| (row.dead.0, row.plan.len())).collect();
        assert_eq!(left, [(4, 2_500)]);
        assert_eq!(coordinator.list("incident/").unwrap().entries.len(), 2_501, "nothing is left behind");
    });
}

#[test]
fn plan_of_2000_pairs_is_written_watched_noted_and_started_again() {
    each(|coordinator, advance| {
        let incidents = Incidents::new(coordinator.clone());
        let mut watch = Watch::new(coordinator.clone());
        watch.look().unwrap();
        let dead = lease(coordinator);
        advance(500 * MS);
        let (one, two) = (lease(coordinator), lease(coordinator));
        incidents.claim(&death(dead), one, 5).unwrap();
        // The largest that a share becomes: everybody of a large cluster has declined it.
        let declined: Vec<_> = (0..64).map(|n| Incarnation(dead.0 + n)).collect();
        let share = |pair| ShareRow {
            pair: PairId(pair),
            survivor: Some(two),
            bytes: u64::MAX,
            declined: declined.clone(),
            ..ShareRow::default()
        };
        let plan: Vec<_> = (1..=2_000).map(share).collect();
        incidents.plan(dead, one, &plan).unwrap();
        let noted = incidents.note(dead, PairId(2_000), two, |share| share.times.serving_ms = 7).unwrap();
        assert_eq!(noted.unwrap().times.serving_ms, 7);
        let mut fresh = Watch::new(coordinator.clone());
        fresh.look().unwrap();
        assert!(watch.look().unwrap().changed);
        assert_eq!(watch.view().incidents, fresh.view().incidents, "by changes and by listing");
        let incident = &fresh.view().incidents[&dead];
        assert_eq!(incident.plan[..1_999], plan[..1_999]);
        assert_eq!(incident.share(PairId(2_000)).unwrap().times.serving_ms, 7);
        incidents.close(dead, one, 9).unwrap();
        incidents.claim(&death(dead), two, 10).unwrap();
        watch.look().unwrap();
        assert_eq!(watch.view().incidents[&dead].plan, [], "it has started again");
        assert_eq!(incidents.list().unwrap()[0].plan, []);
    });
}

#[test]
fn watch_follows_pairs_members_incidents_and_notes_and_reports_ended_sessions() {
    each(|coordinator, advance| {
        let mut watch = Watch::new(coordinator.clone());
        let (one, two) = (lease(coordinator), lease(coordinator));
        let row = |incarnation, node| MemberRow {
            incarnation,
            node: NodeId(node),
            fabric: String::new(),
            http: String::new(),
            pid: 1,
            memory_limit_bytes: 0,
        };
        let members = Members::new(coordinator.clone());
        members.enter(&row(one, 1)).unwrap();
        assert!(watch.look().unwrap().changed);
        assert!(watch.view().lives(one) && !watch.view().lives(two));
        assert!(!watch.look().unwrap().changed, "nothing since");
        members.enter(&row(two, 2)).unwrap();
        Table::new(coordinator.clone()).lay_out(&Layout::even(2, 1), GEOMETRY, one).unwrap();
        let session = Sessions::new(coordinator.clone()).open(one).unwrap();
        let notices = Notices::new(coordinator.clone());
        let (key, notice) = (format!("{NOTICE_PREFIX}1.2.3/source"), "linked");
        let table = Table::new(coordinator.clone());
        let claim = |pair, by| table.claim(PairId(pair), by, NodeId(0), ClaimReason::LeaseEnded).unwrap();
        let (of_one, of_two) = (claim(1, one).ownership, claim(2, two).ownership);
        let written = notices.set(&key, Some(notice), of_two).unwrap();
        assert!(watch.look().unwrap().changed);
        assert_eq!(
            (watch.view().pairs.len(), watch.view().notices.get(&key).map(String::as_str)),
            (2, Some(notice))
        );
        assert!(watch.view().revision >= written);
        Sessions::new(coordinator.clone()).end(session).unwrap();
        notices.set(&key, None, of_two).unwrap();
        let look = watch.look().unwrap();
        assert_eq!((look.ended, watch.view().notices.len()), (vec![session], 0));
        advance(400 * MS);
        coordinator.keep_alive(two).unwrap();
        advance(100 * MS);
        assert!(watch.look().unwrap().changed, "its row goes with its lease");
        assert!(!watch.view().lives(one) && watch.view().lives(two));
        assert!(matches!(notices.set(&key, Some(notice), of_one), Err(ClusterError::LeaseEnded { .. })));
    });
}

#[test]
fn watch_of_a_coordinator_that_restarted_begins_again() {
    let sim = Sim::new(7);
    let coordinator: Arc<dyn Coordinator> = Arc::new(sim.link());
    let mut watch = Watch::new(coordinator.clone());
    watch.look().unwrap();
    let one = lease(&coordinator);
    Table::new(coordinator.clone()).lay_out(&Layout::single(), GEOMETRY, one).unwrap();
    sim.restart();
    assert!(watch.look().unwrap().changed);
    assert_eq!(watch.view().pairs.len(), 1);
}

#[test]
fn end_idle_session_is_ended_by_who_speaks_for_it_alone() {
    each(|coordinator, advance| {
        let sessions = Sessions::new(coordinator.clone());
        let (one, two) = (lease(coordinator), lease(coordinator));
        let session = sessions.open(one).unwrap();
        assert!(!sessions.end_idle(session, two).unwrap());
        sessions.adopt(session, two).unwrap();
        assert!(!sessions.end_idle(session, one).unwrap());
        assert!(sessions.end_idle(session, two).unwrap());
        assert!(sessions.end_idle(session, one).unwrap(), "it is over");
        let orphan = sessions.open(one).unwrap();
        advance(500 * MS);
        assert!(sessions.end_idle(orphan, lease(coordinator)).unwrap(), "nobody else speaks for it");
    });
}
