//! The rows on a real etcd whose members are stopped, killed, cut short of room, compacted and restored.

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

mod clocks;
pub(crate) mod members;
mod secure;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cell_cluster::{
    ClaimReason, ClusterError, Coordinator, CoordinatorRefusal, Etcd, EtcdError, FirstLease, HostId,
    KeyCondition, LeaseTerms, LeaseThread, NewPair, PairGeometry, Sessions, Table, Transaction,
    TransactionOutcome,
};
use cell_terms::NodeId;
use serde_json::json;

use members::{EtcdMembers, copy_folder, until, until_some};

/// As nodes have it, with an election of half a second.
const DEADLINE: Duration = Duration::from_millis(300);
const TTL_MS: u64 = 3_000;

/// A lease that a thread renews, over a way of its own.
fn held(members: &EtcdMembers) -> LeaseThread {
    let terms = LeaseTerms::new(TTL_MS, 0.05);
    FirstLease::ask(Arc::new(members.way(DEADLINE)), terms).unwrap().granted().unwrap()
}

/// Until a renewal is answered that was asked for since.
fn wait_renewed(lease: &LeaseThread) {
    let surely_until_ns = lease.surely_until_ns();
    for _ in 0..2 {
        let before_ns = surely_until_ns.load(Ordering::SeqCst);
        until("the lease is renewed", || surely_until_ns.load(Ordering::SeqCst) > before_ns);
    }
}

/// Waits until a writer has heard that what it saw is gone; a way that sees what is there.
fn wait_lost(members: &EtcdMembers, way: &dyn Coordinator) -> Etcd {
    let lost = until_some("the writer hears of it", || match way.read("kept") {
        Err(error @ ClusterError::Etcd(_)) => Some(error),
        _ => None,
    });
    assert!(matches!(lost, ClusterError::Etcd(EtcdError::HistoryLost)), "{lost}");
    let again = members.way(DEADLINE);
    until("who comes anew reads what is there", || again.read("kept").is_ok_and(|entry| entry.is_some()));
    assert_eq!(again.list("lost/").unwrap().entries, []);
    again
}

/// Writes until a write is answered, looking for each whether it was done.
fn write(way: &dyn Coordinator, key: &str) {
    until(key, || {
        let absent = KeyCondition::Absent { key: key.to_owned() };
        let _ = way.transact(Transaction::new().when(absent).put(key, "v"));
        way.read(key).is_ok_and(|entry| entry.is_some())
    });
}

#[test]
fn leader_that_is_stopped_or_killed_costs_nobody_a_lease() {
    let Some(mut members) = EtcdMembers::start(3, &[]) else { return };
    let way = members.table(DEADLINE);
    let lease = held(&members);
    for round in 0..2 {
        let leader = members.leader();
        members.stop(leader);
        write(&way, &format!("stopped/{round}"));
        members.go_on(leader);
        write(&way, &format!("back/{round}"));
        let leader = members.leader();
        members.kill(leader);
        write(&way, &format!("killed/{round}"));
        members.begin(leader);
        write(&way, &format!("again/{round}"));
    }
    assert!(!lease.has_ended());
    assert!(way.remaining_ns(lease.incarnation()).unwrap().is_some());
}

#[test]
fn quorum_that_is_lost_for_longer_than_a_lease_ends_none() {
    let Some(members) = EtcdMembers::start(3, &[]) else { return };
    let way = members.table(DEADLINE);
    let leases = [held(&members), held(&members)];
    let before: Vec<_> = leases.iter().map(LeaseThread::incarnation).collect();
    members.stop(0);
    members.stop(1);
    until("the leases have run out", || leases.iter().all(|lease| !lease.holds()));
    assert!(way.read("a").is_err(), "a member without the others does not say what it does not know");
    members.go_on(0);
    members.go_on(1);
    until("the leases hold again", || leases.iter().all(LeaseThread::holds));
    assert!(leases.iter().all(|lease| !lease.has_ended()));
    assert_eq!(leases.iter().map(LeaseThread::incarnation).collect::<Vec<_>>(), before);
}

#[test]
fn lease_whose_holder_is_gone_ends_with_what_hangs_on_it() {
    let Some(members) = EtcdMembers::start(1, &[]) else { return };
    let way = members.table(DEADLINE);
    let (gone, _observer) = (held(&members), held(&members));
    let lease = gone.incarnation();
    way.transact(Transaction::new().put_leased("member/gone", "", lease)).unwrap();
    let seen = way.list("").unwrap().revision;
    drop(gone);
    until("it has ended", || way.remaining_ns(lease).is_ok_and(|left| left.is_none()));
    assert_eq!(way.read("member/gone").unwrap(), None);
    let (_, changes) = way.changes_since(seen).unwrap();
    assert!(changes.iter().any(|change| change.key == "member/gone" && change.value.is_none()));
}

#[test]
fn changes_since_what_etcd_has_forgotten_is_refused_and_a_listing_goes_on() {
    let Some(members) = EtcdMembers::start(1, &[]) else { return };
    let way = members.table(DEADLINE);
    let (seen, _) = way.changes_since(0).unwrap();
    for row in 0..5 {
        write(&way, &format!("row/{row}"));
    }
    let now = way.list("").unwrap().revision;
    members.post(0, "/v3/kv/compaction", &json!({"revision": now.to_string()}));
    let (_, kept) = way.changes_since(seen).unwrap();
    assert_eq!(kept.len(), 5, "whose watch was there before hears all");
    let refused = members.way(DEADLINE).changes_since(seen);
    assert!(matches!(refused, Err(ClusterError::Refused(CoordinatorRefusal::Compacted { .. }))));
    let listing = way.list("row/").unwrap();
    assert_eq!(listing.entries.len(), 5);
    write(&way, "row/5");
    let (_, changes) = way.changes_since(listing.revision).unwrap();
    assert_eq!(changes.iter().map(|change| change.key.as_str()).collect::<Vec<_>>(), ["row/5"]);
}

#[test]
fn transact_without_room_is_refused_clearly_and_ends_no_lease() {
    let Some(members) = EtcdMembers::start(1, &["--quota-backend-bytes", "1000000"]) else { return };
    let way = members.table(DEADLINE);
    let lease = held(&members);
    let value = "x".repeat(32 << 10);
    let refused =
        until_some("its room is used up", || match way.transact(Transaction::new().put("a", &value)) {
            Err(error @ ClusterError::Refused(_)) => Some(error),
            _ => None,
        });
    assert!(matches!(refused, ClusterError::Refused(CoordinatorRefusal::SpaceAlarm)), "{refused:?}");
    assert!(way.read("a").unwrap().is_some(), "what is there is read");
    until("the lease has run out", || !lease.holds());
    let now = way.list("").unwrap().revision;
    members.post(0, "/v3/kv/compaction", &json!({"revision": now.to_string(), "physical": true}));
    members.post(0, "/v3/maintenance/defragment", &json!({}));
    members.disarm();
    until("the lease holds again", || lease.holds());
    assert!(!lease.has_ended());
    write(&way, "b");
}

#[test]
fn etcd_that_was_restored_ends_who_saw_what_is_gone() {
    let Some(mut members) = EtcdMembers::start(1, &[]) else { return };
    let way = members.table(DEADLINE);
    write(&way, "kept");
    members.kill(0);
    let (data, backup) = (members.data(0), members.data(0).with_extension("backup"));
    copy_folder(&data, &backup);
    members.begin(0);
    let lease = held(&members);
    for row in 0..20 {
        write(&way, &format!("lost/{row}"));
    }
    members.kill(0);
    std::fs::remove_dir_all(&data).unwrap();
    copy_folder(&backup, &data);
    members.begin(0);
    until("its holder hears of it", || lease.has_ended());
    let again = wait_lost(&members, &way);
    let outcome = again.transact(Transaction::new().put("new", "")).unwrap();
    assert!(matches!(outcome, TransactionOutcome::Applied { .. }));
}

/// As an operator goes back to a snapshot who has forgotten to stop nodes: etcd 3.4 gives its members the ids
/// that they had, and its revisions begin where the snapshot ends.
#[test]
fn etcd_of_three_that_was_restored_from_a_snapshot_ends_who_saw_what_is_gone() {
    let Some(mut members) = EtcdMembers::start(3, &[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("snapshot");
    let way = members.table(DEADLINE);
    write(&way, "kept");
    let earlier = held(&members);
    if !members.save_snapshot(&file) {
        return;
    }
    let later = held(&members);
    for row in 0..20 {
        write(&way, &format!("lost/{row}"));
    }
    // Who has seen nothing that is gone goes on, and may.
    [&earlier, &later].into_iter().for_each(wait_renewed);
    (0..3).for_each(|member| members.kill(member));
    (0..3).for_each(|member| members.restore_snapshot(member, &file));
    (0..3).for_each(|member| members.begin(member));
    until("holders hear of it, also of a row that is there", || earlier.has_ended() && later.has_ended());
    wait_lost(&members, &way);
    let since = held(&members);
    assert!(![earlier, later].map(|lease| lease.incarnation()).contains(&since.incarnation()));
}

/// What was given since the backup is not given again, and logs that were written since show that it is one.
#[test]
fn etcd_that_was_restored_gives_no_id_again_and_is_refused_by_logs_that_know_more() {
    let Some(mut members) = EtcdMembers::start(1, &[]) else { return };
    let way = Arc::new(members.table(DEADLINE));
    let (first, node) = (held(&members), NodeId(0));
    let table = Table::new(way.clone()).on_host(Some(HostId::new(1, 1)));
    let geometry =
        PairGeometry { node_region_bytes: 1, extent_region_bytes: 1, slot_bytes: 1, node_bytes: 1 };
    let new = NewPair { incarnation: first.incarnation(), node, geometry };
    let pair = until_some("there is a pair", || table.create_pair(&new).ok()).row.pair;
    members.kill(0);
    let (data, backup) = (members.data(0), members.data(0).with_extension("backup"));
    copy_folder(&data, &backup);
    members.begin(0);

    let second = held(&members);
    let sessions = Sessions::new(way.clone());
    let since = until_some("sessions are open", || sessions.open_many(second.incarnation(), 3).ok());
    let claim = || table.claim(pair, second.incarnation(), node, ClaimReason::HostLock).ok();
    let claimed = until_some("the pair is claimed", claim).row;
    members.kill(0);
    std::fs::remove_dir_all(&data).unwrap();
    copy_folder(&backup, &data);
    members.begin(0);

    let again = Arc::new(members.way(DEADLINE));
    let third = held(&members);
    assert_ne!(third.incarnation(), second.incarnation());
    let sessions = Sessions::new(again.clone());
    let reopened = until_some("others are open", || sessions.open_many(third.incarnation(), 3).ok());
    assert!(reopened.iter().all(|session| !since.contains(session)), "{reopened:?} were {since:?}");
    let found = [(claimed.node_region, claimed.epoch)];
    let refused =
        until_some("the table is looked at", || match Table::new(again.clone()).check_logs_found(&found) {
            Err(error) if error.is_transient() => None,
            looked => Some(looked),
        });
    assert!(matches!(refused, Err(ClusterError::TableOlder { .. })), "{refused:?}");
}
