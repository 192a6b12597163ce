//! Rows that do not read, because somebody wrote them by hand or another version did: each costs what it says
//! itself, and nothing else.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::sync::Arc;

use cell_cluster::{
    ClaimReason, ClusterError, Coordinator, CopyProgress, Incidents, MemberRow, Members, MoveRow, Moves,
    NewIncident, NewPair, PairGeometry, ServingAddress, SessionRow, Sessions, ShareRow, Sim, SimLink, Table,
    Transaction, Watch,
};
use cell_terms::{Csn, Durability, Incarnation, NodeId, PairId, SessionId};

const GARBAGE: [&str; 5] = ["", "{", "garbage", r#"{"session":"x"}"#, "[1]"];
const LEASE_MS: u64 = 500;
const MS: u64 = 1_000_000;

fn put(link: &SimLink, key: &str, value: &str) {
    link.transact(Transaction::new().put(key, value)).unwrap();
}

fn lease(link: &SimLink) -> Incarnation {
    link.grant(LEASE_MS).unwrap().lease
}

fn session_key(session: SessionId) -> String {
    format!("session/{:016x}", session.0)
}

/// Whether a session whose row does not read is taken for an open one.
pub(crate) fn session_whose_row_does_not_read_is_open() -> bool {
    let sim = Sim::new(1);
    let (link, sessions) = (sim.link(), Sessions::new(Arc::new(sim.link())));
    let ids = sessions.open_many(lease(&link), 3).unwrap();
    GARBAGE.iter().all(|garbage| {
        put(&link, &session_key(ids[1]), garbage);
        let (rows, _) = sessions.open_sessions().unwrap();
        let of = |id: &SessionId| rows.iter().find(|row| row.session == *id).map(SessionRow::is_readable);
        ids.iter().map(of).collect::<Vec<_>>() == [Some(true), Some(false), Some(true)]
    })
}

#[test]
fn session_whose_row_does_not_read_is_open_for_who_speaks_for_it_next() {
    assert!(session_whose_row_does_not_read_is_open());
    let sim = Sim::new(1);
    let (link, sessions) = (sim.link(), Sessions::new(Arc::new(sim.link())));
    let (one, two) = (lease(&link), lease(&link));
    let ids = sessions.open_many(one, 3).unwrap();
    let keepers = || {
        let (rows, _) = sessions.open_sessions().unwrap();
        rows.iter().map(|row| row.keeper.0).collect::<Vec<_>>()
    };
    put(&link, &session_key(ids[0]), "garbage");
    sessions.adopt(ids[0], two).unwrap();
    assert_eq!(keepers(), [two.0, one.0, one.0], "its row reads again");
    // Nobody knows whether another one uses it: the first try ends nothing.
    put(&link, &session_key(ids[1]), "garbage");
    assert!(!sessions.end_idle(ids[1], two).unwrap());
    assert!(sessions.exists(ids[1]).unwrap());
    assert!(sessions.end_idle(ids[1], two).unwrap());
    put(&link, &session_key(ids[2]), "garbage");
    assert_eq!(sessions.orphans().unwrap(), []);
    sessions.end(ids[2]).unwrap();
    assert_eq!(keepers(), [two.0]);
    // What is no session's key is nobody's.
    put(&link, "session/x", "garbage");
    assert_eq!(keepers(), [two.0]);
}

#[test]
fn session_whose_row_does_not_read_is_reported_until_it_does() {
    let sim = Sim::new(1);
    let (link, sessions) = (sim.link(), Sessions::new(Arc::new(sim.link())));
    let keeper = lease(&link);
    let (early, late) = (sessions.open(keeper).unwrap(), sessions.open(keeper).unwrap());
    put(&link, &session_key(early), "garbage");
    let mut watch = Watch::new(Arc::new(sim.link()));
    watch.look().unwrap();
    // Who lists the sessions has met one.
    watch.report_session(early);
    put(&link, &session_key(late), "garbage");
    assert!(watch.look().unwrap().changed);
    let unreadable = &watch.view().unreadable;
    assert_eq!(unreadable.keys().collect::<Vec<_>>(), [&session_key(early), &session_key(late)]);
    assert!(unreadable.values().all(|why| why.contains("a session")), "{unreadable:?}");
    sessions.adopt(early, keeper).unwrap();
    sessions.end(late).unwrap();
    let look = watch.look().unwrap();
    assert_eq!((look.changed, look.ended), (true, vec![late]));
    assert!(watch.view().unreadable.is_empty());
}

fn member(incarnation: Incarnation, node: u32) -> MemberRow {
    MemberRow {
        incarnation,
        node: NodeId(node),
        fabric: "127.0.0.1:1".into(),
        http: String::new(),
        pid: 1,
        memory_limit_bytes: 0,
    }
}

#[test]
fn member_whose_row_does_not_read_is_left_out_and_lives_as_long_as_its_lease() {
    let sim = Sim::new(1);
    let link = sim.link();
    let members = Members::new(Arc::new(sim.link()));
    let (one, two) = (lease(&link), link.grant(10 * LEASE_MS).unwrap().lease);
    members.enter(&member(one, 1)).unwrap();
    members.enter(&member(two, 2)).unwrap();
    let mut watch = Watch::new(Arc::new(sim.link()));
    watch.look().unwrap();
    // It hangs on no lease any more, so that it would stay for ever.
    put(&link, &format!("member/{:016x}", one.0), "garbage");
    assert_eq!(members.list().unwrap(), [member(two, 2)]);
    assert!(watch.look().unwrap().changed);
    assert!(watch.view().lives(one), "what was known of it holds");
    sim.advance(LEASE_MS * MS);
    assert!(watch.look().unwrap().changed);
    assert!(!watch.view().lives(one) && watch.view().lives(two));
    assert_eq!(watch.view().unreadable.len(), 1, "an operator is still to remove the row");
}

fn death(dead: Incarnation) -> NewIncident {
    NewIncident { dead, node: NodeId(1), lease_seen_ms: 3, detected_ms: 4, host_lock: false }
}

/// One of many incidents, or of their shares, kept each from being claimed and planned.
#[test]
fn incident_that_does_not_read_is_claimed_anew_and_the_others_go_on() {
    let sim = Sim::new(1);
    let link = sim.link();
    let incidents = Incidents::new(Arc::new(sim.link()));
    let [dead, other] = [lease(&link), lease(&link)];
    sim.advance(LEASE_MS * MS);
    let (one, two) = (lease(&link), lease(&link));
    let key = |dead: Incarnation| format!("incident/{:016x}", dead.0);
    let share = |pair| ShareRow { pair: PairId(pair), survivor: Some(two), ..ShareRow::default() };
    assert!(incidents.claim(&death(dead), one, 5).unwrap());
    incidents.plan(dead, one, &[share(3), share(4)]).unwrap();
    let mut watch = Watch::new(Arc::new(sim.link()));
    watch.look().unwrap();
    for garbage in GARBAGE {
        put(&link, &key(dead), garbage);
        watch.look().unwrap();
        assert!(!watch.view().incident_reads(dead) && watch.view().incident_reads(other));
        // What needs it does nothing, and fails nobody.
        incidents.plan(dead, one, &[share(5)]).unwrap();
        incidents.close(dead, one, 6).unwrap();
        assert!(incidents.claim(&death(other), one, 5).unwrap());
        incidents.plan(other, one, &[share(9)]).unwrap();
        incidents.forget_old(one).unwrap();
        let listed: Vec<_> = incidents.list().unwrap().iter().map(|row| row.dead).collect();
        assert_eq!(listed, [other]);
        // Whoever comes first has it, with the shares of before.
        assert!(incidents.claim(&death(dead), two, 7).unwrap());
        assert!(!incidents.claim(&death(dead), one, 7).unwrap());
        watch.look().unwrap();
        assert!(watch.view().incident_reads(dead));
        assert_eq!(watch.view().incidents[&dead].claimed_by, two);
        assert_eq!(watch.view().incidents[&dead].plan.len(), 2);
        put(&link, &key(dead), "garbage");
        assert!(incidents.claim(&death(dead), one, 8).unwrap());
    }
    let share_key = format!("{}/00000003", key(dead));
    put(&link, &share_key, "garbage");
    watch.look().unwrap();
    assert!(!watch.view().share_reads(dead, PairId(3)) && watch.view().share_reads(dead, PairId(4)));
    assert_eq!(incidents.note(dead, PairId(3), two, |share| share.bytes = 1).unwrap(), None);
    assert_eq!(incidents.note(dead, PairId(4), two, |share| share.bytes = 1).unwrap().unwrap().bytes, 1);
    let row = incidents.list().unwrap().into_iter().find(|row| row.dead == dead).unwrap();
    assert_eq!(row.plan.iter().map(|share| share.pair.0).collect::<Vec<_>>(), [4]);
    // Who plans again writes it anew.
    incidents.plan(dead, one, &[share(3)]).unwrap();
    watch.look().unwrap();
    assert!(watch.view().share_reads(dead, PairId(3)));
}

/// Nobody gets a pair whose owner is not known, and who needs other rows alone goes on.
#[test]
fn pair_whose_row_does_not_read_is_claimed_by_nobody_and_hides_no_other() {
    let sim = Sim::new(1);
    let (link, table) = (sim.link(), Table::new(Arc::new(sim.link())));
    let geometry =
        PairGeometry { node_region_bytes: 1, extent_region_bytes: 1, slot_bytes: 1, node_bytes: 1 };
    assert_eq!(table.geometry().unwrap(), None);
    let new = NewPair { incarnation: lease(&link), node: NodeId(0), geometry };
    let pairs = [(); 2].map(|()| table.create_pair(&new).unwrap().row.pair);
    sim.advance(LEASE_MS * MS);
    put(&link, "pair/00000001", "garbage");
    let survivor = lease(&link);
    for reason in [ClaimReason::LeaseEnded, ClaimReason::HostLock] {
        let claimed = table.claim(pairs[0], survivor, NodeId(0), reason);
        assert!(matches!(claimed, Err(ClusterError::Unreadable { .. })), "{claimed:?}");
    }
    assert_eq!(link.read("pair/00000001").unwrap().unwrap().value, "garbage", "it is left to an operator");
    assert!(matches!(table.pairs(), Err(ClusterError::Unreadable { .. })));
    assert_eq!(table.geometry().unwrap(), Some(geometry));
    table.claim(pairs[1], survivor, NodeId(0), ClaimReason::LeaseEnded).unwrap();
    let created = table.create_pair(&NewPair { incarnation: survivor, ..new }).unwrap();
    assert_eq!(created.row.pair, PairId(3));
}

/// Its target could not serve it, and nobody did until somebody had mended the row.
#[test]
fn pair_that_was_handed_over_goes_back_though_the_moves_row_does_not_read() {
    let sim = Sim::new(1);
    let link = sim.link();
    let coordinator: Arc<dyn Coordinator> = Arc::new(sim.link());
    let (table, moves) = (Table::new(coordinator.clone()), Moves::new(coordinator));
    let (source, target) = (lease(&link), lease(&link));
    let geometry =
        PairGeometry { node_region_bytes: 1, extent_region_bytes: 1, slot_bytes: 1, node_bytes: 1 };
    let new = NewPair { incarnation: source, node: NodeId(0), geometry };
    let ownership = table.create_pair(&new).unwrap().ownership;
    let place = ServingAddress { address: String::new(), worker: 0, node_key: 0, extent_key: 0 };
    table.publish(ownership, Durability::Sync, &place).unwrap();
    let of = moves.begin(ownership.pair, &member(target, 1), "test").unwrap();
    moves.accept(of.name()).unwrap();
    moves.progress(of.name(), &CopyProgress { is_ready: true, ..CopyProgress::default() }).unwrap();
    let handed = table.hand(ownership, Csn(7), of.name()).unwrap();
    let mut watch = Watch::new(Arc::new(sim.link()));
    watch.look().unwrap();
    assert!(watch.view().move_reads(of.pair));
    put(&link, &MoveRow::key(of.pair), "garbage");
    watch.look().unwrap();
    assert!(!watch.view().move_reads(of.pair));
    let back = table.take_back(&of, "it cannot").unwrap();
    assert!(back.is_own);
    assert_eq!((back.row.epoch.0, back.row.owner), (handed.epoch.0 + 1, Some(source)));
    let left = link.read(&MoveRow::key(of.pair)).unwrap().unwrap().value;
    assert_eq!(left, "garbage", "it is left to an operator");
}

/// It was under way to all that had seen it, until they were restarted.
#[test]
fn move_whose_row_is_deleted_is_known_no_more() {
    let sim = Sim::new(7);
    let mut watch = Watch::new(Arc::new(sim.link()));
    let pair = crate::moves::wanted(&sim).row.pair;
    watch.look().unwrap();
    let (link, key) = (sim.link(), MoveRow::key(pair));
    link.transact(Transaction::new().put(&key, "garbage")).unwrap();
    watch.look().unwrap();
    assert!(!watch.view().move_reads(pair) && watch.view().moves.contains_key(&pair));
    link.transact(Transaction::new().delete(&key)).unwrap();
    assert!(watch.look().unwrap().changed);
    assert!(watch.view().move_reads(pair) && watch.view().moves.is_empty());
}

#[test]
fn move_or_drain_that_does_not_read_is_left_out_of_the_list() {
    let sim = Sim::new(1);
    let link = sim.link();
    put(&link, "move/00000001", "garbage");
    put(&link, "drain/00000001", "garbage");
    assert_eq!(Moves::new(Arc::new(sim.link())).list().unwrap(), []);
    let drains = cell_cluster::Drains::new(Arc::new(sim.link()));
    assert_eq!(drains.list().unwrap(), []);
    // What is decided from all of them is not.
    assert!(matches!(drains.check(&[NodeId(0)]), Err(ClusterError::Unreadable { .. })));
}
