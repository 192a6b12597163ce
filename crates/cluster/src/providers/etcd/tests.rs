//! The provider over an etcd in memory, whose failures are ordered and whose clock is given.

use std::sync::Arc;
use std::time::Duration;

use cell_terms::Incarnation;

use super::fake::{FakeEtcd, FakeFault};
use super::*;
use crate::clock::ManualClock;
use crate::copy::copy_table;
use crate::providers::sim::Sim;
use crate::request::{KeyChange, KeyCondition, Revision, TransactionOutcome};

const SECOND: u64 = 1_000_000_000;
const TTL_MS: u64 = 5_000;

fn over(etcd: &FakeEtcd, clock: &Arc<ManualClock>) -> Etcd {
    with_user(etcd, clock, None)
}

fn with_user(etcd: &FakeEtcd, clock: &Arc<ManualClock>, user: Option<ask::User>) -> Etcd {
    let (gateway, clock) = (Box::new(etcd.clone()), clock.clone());
    // A log-in is waited for by another clock than this one, which stands still.
    Etcd::over(Asker::new(gateway, "cell", user, clock, Duration::from_secs(60)), None)
}

/// A table, its clock, and a way to it.
fn table(members: usize) -> (FakeEtcd, Arc<ManualClock>, Etcd) {
    let (etcd, clock) = (FakeEtcd::new(members), Arc::new(ManualClock::new(SECOND)));
    let way = over(&etcd, &clock);
    initialise(&way, 7).unwrap();
    (etcd, clock, way)
}

/// A lease that no thread of this test looks at.
fn lease(way: &Etcd) -> Incarnation {
    let until_ns = way.asker.deadline_from_now();
    match way.leases.grant(&way.asker, TTL_MS, until_ns).unwrap() {
        Response::Granted(grant) => grant.lease,
        other => panic!("{other:?}"),
    }
}

fn put(way: &Etcd, key: &str) -> Result<(), ClusterError> {
    way.transact(Transaction::new().put(key, "v")).map(drop)
}

fn changes(way: &Etcd, revision: Revision) -> (Revision, Vec<KeyChange>) {
    way.changes_since(revision).unwrap()
}

/// Looks at all leases each half of a second for so long.
fn watch_for(way: &Etcd, clock: &ManualClock, seconds: u64) {
    for _ in 0..2 * seconds {
        way.leases.look(&way.asker).unwrap();
        clock.advance(SECOND / 2);
    }
}

#[test]
fn call_of_a_write_that_may_be_done_is_unknown() {
    let (etcd, _, way) = table(3);
    etcd.take_asked();
    etcd.plan([Some(FakeFault::NotReached)]);
    put(&way, "a").unwrap();
    assert_eq!(etcd.take_asked(), [0, 1]);
    for (fault, done) in [(FakeFault::Lost, false), (FakeFault::AnswerLost, true)] {
        let key = format!("unknown/{done}");
        etcd.plan([Some(fault)]);
        assert!(matches!(put(&way, &key), Err(ClusterError::OutcomeUnknown(_))));
        assert_eq!(way.read(&key).unwrap().is_some(), done);
    }
    etcd.plan([Some(FakeFault::Late)]);
    assert!(matches!(put(&way, "late"), Err(ClusterError::OutcomeUnknown(_))));
    assert!(way.read("late").unwrap().is_some(), "it was carried out later");
    let no_leader = r#"{"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14}"#;
    etcd.plan([Some(FakeFault::Complains(503, no_leader))]);
    assert!(matches!(put(&way, "b"), Err(ClusterError::OutcomeUnknown(_))));
}

#[test]
fn call_of_a_read_goes_to_the_next_member_whatever_became_of_it() {
    let (etcd, _, way) = table(3);
    put(&way, "a").unwrap();
    etcd.take_asked();
    etcd.plan([Some(FakeFault::Lost), Some(FakeFault::NotReached)]);
    assert!(way.read("a").unwrap().is_some());
    assert_eq!(etcd.take_asked(), [0, 1, 2]);
    etcd.plan([Some(FakeFault::Lost), Some(FakeFault::Lost), Some(FakeFault::Lost)]);
    assert!(matches!(way.read("a"), Err(ClusterError::NotReached(_))));
}

#[test]
fn call_goes_by_members_that_are_none_of_etcds() {
    let password = tempfile::NamedTempFile::new().unwrap();
    let not_implemented = r#"{"error":"e","message":"e","code":12}"#;
    for (status, text) in [(404, "Not Found\n"), (501, not_implemented), (200, "<html></html>"), (200, "{}")]
    {
        let (etcd, clock, way) = table(3);
        let held = lease(&way);
        put(&way, "a").unwrap();
        etcd.make_stranger(0, status, text);
        assert!(way.read("a").unwrap().is_some(), "{text}");
        way.keep_alive(held).unwrap();
        let begins_there = over(&etcd, &clock);
        let written = put(&begins_there, "b");
        match status {
            200 => assert!(matches!(written, Err(ClusterError::OutcomeUnknown(_))), "{text}"),
            _ => written.unwrap(),
        }
        put(&begins_there, "c").unwrap();
        etcd.want_token("token");
        let user = ("cell".to_owned(), password.path().to_owned());
        assert!(with_user(&etcd, &clock, Some(user)).read("c").unwrap().is_some(), "{text}");
        (1..3).for_each(|member| etcd.make_stranger(member, status, text));
        let nobody = way.read("a").unwrap_err();
        match status {
            200 => assert!(matches!(nobody, ClusterError::NotReached(_)), "{nobody}"),
            _ => assert!(matches!(nobody, ClusterError::Etcd(EtcdError::NoGateway { .. })), "{nobody}"),
        }
    }
}

/// Another cluster of etcd, with rows and a history that is further than `etcd`'s.
fn other_cluster(clock: &Arc<ManualClock>) -> FakeEtcd {
    let other = FakeEtcd::of_cluster(1, 9);
    let there = over(&other, clock);
    initialise(&there, 8).unwrap();
    (0..100).for_each(|row| put(&there, &format!("other/{row}")).unwrap());
    other
}

/// Whether a member that belongs to another cluster is gone by, and nothing of it is believed.
fn other_cluster_is_not_believed() -> bool {
    let (etcd, clock, way) = table(3);
    let held = lease(&way);
    put(&way, "a").unwrap();
    let other = other_cluster(&clock);
    etcd.replace(0, &other);
    let reads = way.read("a").is_ok_and(|found| found.is_some());
    etcd.replace(1, &other);
    let writes = put(&way, "b").is_ok();
    let lists = way.list("other/").is_ok_and(|page| page.entries.is_empty());
    reads && writes && lists && way.keep_alive(held).is_ok()
}

#[test]
fn call_goes_by_members_of_another_cluster_until_all_are() {
    assert!(other_cluster_is_not_believed());
    let (etcd, clock, way) = table(3);
    let held = lease(&way);
    let other = other_cluster(&clock);
    (0..2).for_each(|member| etcd.replace(member, &other));
    etcd.plan([Some(FakeFault::NotReached)]);
    let away = way.keep_alive(held).unwrap_err();
    assert!(matches!(away, ClusterError::NotReached(_)), "its own member may come back: {away}");
    way.keep_alive(held).unwrap();
    etcd.replace(2, &other);
    assert!(matches!(way.keep_alive(held), Err(ClusterError::LeaseEnded { .. })));
    assert!(matches!(way.read("a"), Err(ClusterError::Etcd(EtcdError::HistoryLost))));
}

#[test]
fn changes_since_a_watch_of_another_cluster_are_none() {
    let (etcd, clock, way) = table(3);
    let (start, _) = changes(&way, 0);
    put(&way, "a").unwrap();
    etcd.replace(1, &other_cluster(&clock));
    // The head is read of the first member, which is gone when a watch is opened.
    etcd.plan([None, Some(FakeFault::NotReached)]);
    assert!(matches!(way.changes_since(start), Err(ClusterError::NotReached(_))));
    let (_, seen) = changes(&way, start);
    assert_eq!(seen.iter().map(|change| change.key.as_str()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn grant_over_members_of_different_clusters_is_refused_and_says_which_are_which() {
    let (etcd, clock) = (FakeEtcd::new(3), Arc::new(ManualClock::new(SECOND)));
    etcd.replace(1, &other_cluster(&clock));
    let checked = over(&etcd, &clock).check().unwrap_err();
    assert!(matches!(checked, ClusterError::Etcd(EtcdError::Clusters { .. })), "{checked}");
    let refused = over(&etcd, &clock).grant(60_000).unwrap_err();
    assert!(matches!(&refused, ClusterError::Etcd(EtcdError::Clusters { .. })), "{refused}");
    assert_eq!(etcd.keys(), Vec::<String>::new(), "nothing was started there");
    let words = refused.to_string();
    assert!(words.contains("fake, fake of 7; fake of 9"), "{words}");
}

#[test]
fn rows_of_another_layout_are_refused_at_the_first_look() {
    let (etcd, clock, way) = table(1);
    put(&way, "a").unwrap();
    etcd.set(way.asker.keys.head(), "2");
    let refusals = [
        over(&etcd, &clock).grant(60_000).map(drop),
        over(&etcd, &clock).list("").map(drop),
        over(&etcd, &clock).changes_since(1).map(drop),
    ];
    for refused in refusals {
        assert!(matches!(refused, Err(ClusterError::Format { found: 2, known: 1 })), "{refused:?}");
    }
}

/// A gateway that takes little at a time from its own etcd.
#[test]
fn answers_that_a_gateway_takes_in_parts_alone_are_asked_for_in_parts() {
    let (etcd, _, way) = table(1);
    let (start, _) = changes(&way, 0);
    let long = "x".repeat(3_000);
    for row in 0..20 {
        way.transact(Transaction::new().put(format!("row/{row:02}"), &long)).unwrap();
    }
    etcd.limit_answers(10_000);
    let listed = way.list("row/").unwrap().entries;
    assert_eq!(listed.len(), 20);
    assert!(listed.iter().all(|entry| entry.value == long));
    let (_, seen) = changes(&way, start);
    assert_eq!(seen.len(), 20);
}

#[test]
fn call_without_room_is_refused_and_says_what_to_do() {
    let (etcd, _, way) = table(1);
    let full = r#"{"error":"e","message":"etcdserver: mvcc: database space exceeded","code":8}"#;
    etcd.plan([Some(FakeFault::Complains(429, full))]);
    let refused = put(&way, "a").unwrap_err();
    assert!(refused.is_transient() && refused.is_refused_for_room(), "{refused}");
    let words = cell_terms::text::with_causes(&refused);
    assert!(words.contains("etcdctl alarm disarm"), "{words}");
}

#[test]
fn call_with_a_token_that_is_none_any_more_logs_in_again() {
    let (etcd, clock, _) = table(1);
    let password = tempfile::NamedTempFile::new().unwrap();
    let user = ("cell".to_owned(), password.path().to_owned());
    etcd.want_token("first");
    let way = with_user(&etcd, &clock, Some(user));
    put(&way, "a").unwrap();
    etcd.want_token("second");
    put(&way, "b").unwrap();
    let stranger = over(&etcd, &clock);
    assert!(matches!(put(&stranger, "c"), Err(ClusterError::Etcd(EtcdError::NoUser))));
}

/// Takeovers, which ask again each 20 ms, logged in each time.
#[test]
fn log_in_that_is_refused_backs_off_ever_longer_and_another_password_is_tried_at_once() {
    let (etcd, clock, _) = table(3);
    let password = tempfile::NamedTempFile::new().unwrap();
    let write = |text: &str| std::fs::write(password.path(), text).unwrap();
    write("wrong\n");
    etcd.want_token("first");
    etcd.want_password("right");
    let way = with_user(&etcd, &clock, Some(("cell".to_owned(), password.path().to_owned())));
    let refused = || matches!(way.read("a"), Err(ClusterError::Etcd(EtcdError::Credentials)));
    for _ in 0..500 {
        assert!(refused());
        clock.advance(SECOND / 50);
    }
    let log_ins = etcd.take_log_ins();
    assert!((25..35).contains(&log_ins), "{log_ins} in ten seconds");
    write("right\n");
    way.read("a").unwrap();
    assert_eq!(etcd.take_log_ins(), 1);

    // What is put right in etcd, and not in the file, counts within 400 ms.
    etcd.want_token("second");
    etcd.want_password("another");
    for _ in 0..500 {
        assert!(refused());
        clock.advance(SECOND / 50);
    }
    etcd.want_password("right");
    let counts = (0..=20).any(|_| {
        clock.advance(SECOND / 50);
        way.read("a").is_ok()
    });
    assert!(counts);
}

#[test]
fn changes_since_says_all_of_each_revision_and_nothing_of_leases() {
    let (etcd, _, way) = table(1);
    let (start, _) = changes(&way, 0);
    assert_eq!(changes(&way, start), (start, vec![]));
    let held = lease(&way);
    way.keep_alive(held).unwrap();
    let (after, seen) = changes(&way, start);
    assert_eq!(seen, []);
    assert!(after > start, "renewals are writes");
    way.transact(Transaction::new().put("x/1", "").put_leased("x/2", "", held)).unwrap();
    way.transact(Transaction::new().delete("x/1")).unwrap();
    way.end_lease(held).unwrap();
    let (now, seen) = changes(&way, after);
    let seen: Vec<_> = seen.iter().map(|change| (change.key.as_str(), change.value.is_some())).collect();
    assert_eq!(seen, [("x/1", true), ("x/2", true), ("x/1", false), ("x/2", false)]);
    assert_eq!(changes(&way, now), (now, vec![]));
    put(&way, "y").unwrap();
    etcd.compact();
    let refused = way.changes_since(now);
    assert!(matches!(refused, Err(ClusterError::Refused(CoordinatorRefusal::Compacted { .. }))));
    assert_eq!(way.list("y").unwrap().entries.len(), 1);
}

#[test]
fn changes_since_after_a_watch_that_broke_reads_on_from_what_was_whole() {
    let (etcd, _, way) = table(1);
    let (start, _) = changes(&way, 0);
    put(&way, "a").unwrap();
    let (after_a, seen) = changes(&way, start);
    assert_eq!(seen.len(), 1);
    put(&way, "b").unwrap();
    // The watch that was kept has ended with what was there then: another one is opened.
    let (_, seen) = changes(&way, after_a);
    assert_eq!(seen.iter().map(|change| change.key.as_str()).collect::<Vec<_>>(), ["b"]);
    put(&way, "c").unwrap();
    etcd.plan([None, Some(FakeFault::Lost)]);
    let (_, seen) = changes(&way, after_a);
    assert_eq!(seen.iter().map(|change| change.key.as_str()).collect::<Vec<_>>(), ["b", "c"]);
}

#[test]
fn lease_that_nobody_renews_ends_with_what_hangs_on_it_alone() {
    let (etcd, clock, way) = table(3);
    let [dead, lives] = [(); 2].map(|()| lease(&way));
    let hang = Transaction::new().put_leased("seat", "dead", dead).put_leased("member", "", dead);
    way.transact(hang).unwrap();
    way.transact(Transaction::new().put_leased("seat", "lives", lives)).unwrap();
    for _ in 0..20 {
        way.keep_alive(lives).unwrap();
        watch_for(&way, &clock, 1);
    }
    assert_eq!(way.remaining_ns(dead).unwrap(), None);
    assert!(way.remaining_ns(lives).unwrap().is_some());
    assert_eq!(way.read("member").unwrap(), None);
    assert_eq!(way.read("seat").unwrap().unwrap().value, "lives");
    assert!(matches!(way.keep_alive(dead), Err(ClusterError::LeaseEnded { lease }) if lease == dead));
    let late = way.transact(Transaction::new().put_leased("member", "", dead));
    assert!(matches!(late, Err(ClusterError::LeaseEnded { .. })));
    let of_dead = format!("{:016x}", dead.0);
    assert!(!etcd.keys().iter().any(|key| key.contains(&of_dead)), "{:?}", etcd.keys());
}

#[test]
fn end_of_a_lease_with_more_rows_than_one_transaction_takes_leaves_none() {
    let (etcd, _, way) = table(1);
    let held = lease(&way);
    for some in (0..3_400).collect::<Vec<_>>().chunks(60) {
        let write = some
            .iter()
            .fold(Transaction::new(), |all, row| all.put_leased(format!("row/{row:05}"), "", held));
        way.transact(write).unwrap();
    }
    way.end_lease(held).unwrap();
    assert_eq!(way.list("row/").unwrap().entries, []);
    assert!(!etcd.keys().iter().any(|key| key.contains("/hang/")));
}

#[test]
fn grant_gives_ids_that_grow_to_processes_that_ask_at_the_same_time() {
    let (etcd, clock, way) = table(1);
    let first = lease(&way);
    let other = over(&etcd, &clock);
    etcd.plan([
        None,
        Some(FakeFault::After(Box::new({
            let (etcd, clock) = (etcd.clone(), clock.clone());
            move |_: &FakeEtcd| {
                lease(&over(&etcd, &clock));
            }
        }))),
    ]);
    let second = lease(&other);
    assert!(second > first);
    assert_eq!(etcd.keys().iter().filter(|key| key.contains("/lease/")).count(), 3);
}

/// `cell agent` asks for nothing more: it holds a lease for each drill.
#[test]
fn grant_has_the_process_watch_all_leases_from_then_on() {
    let (_, _, way) = table(1);
    let watches = || way.observer.lock().unwrap().is_some();
    way.list("").unwrap();
    assert!(!watches(), "who holds none need not");
    way.grant(60_000).unwrap();
    assert!(watches());
}

/// Where ids pass a power of two, nodes on both sides of it looked like two clusters' to clients:
/// the lower 32 bits were used up after some 8,000 starts of nodes.
#[test]
fn grant_gives_ids_of_one_cluster_however_many_were_given() {
    let (etcd, _, way) = table(1);
    let first = lease(&way);
    let counter = way.asker.keys.lease_next();
    let begin = first.0 - 1;
    for given in [(1 << 32) - 1, (1 << 33) - 2, (1 << 40) - (1 << 21), (1 << 40) - 4] {
        etcd.set(&counter, &(begin + given).to_string());
        let [one, other] = [lease(&way), lease(&way)];
        assert!(one.0 >= begin + given && other > one, "{one}, {other} after {given}");
        assert_eq!([one, other].map(Incarnation::cluster), [first.cluster(); 2], "after {given}");
    }
    // Of four that were left two were given; the third is, and the last one is not.
    lease(&way);
    let until_ns = way.asker.deadline_from_now();
    let refused = way.leases.grant(&way.asker, TTL_MS, until_ns);
    assert!(matches!(refused, Err(ClusterError::IdsUsedUp { what: "leases" })), "{refused:?}");
}

#[test]
fn grant_over_a_table_that_was_copied_gives_no_id_that_its_rows_may_name() {
    let from = Sim::new(7);
    let given = from.link().grant(TTL_MS).unwrap().lease;
    from.advance(TTL_MS * SECOND / 1_000);
    let (etcd, clock) = (FakeEtcd::new(1), Arc::new(ManualClock::new(SECOND)));
    let way = over(&etcd, &clock);
    copy_table(&from.link(), &way).unwrap();
    assert_eq!(way.generation().unwrap(), 7, "sessions are those of before");
    assert_ne!(lease(&way), given, "pairs of who died would be another one's");
}

#[test]
fn keep_alive_after_a_renewal_whose_answer_was_lost_goes_on_from_what_is_there() {
    let (etcd, _, way) = table(1);
    let held = lease(&way);
    etcd.plan([Some(FakeFault::AnswerLost), Some(FakeFault::Lost)]);
    assert!(matches!(way.keep_alive(held), Err(ClusterError::OutcomeUnknown(_))));
    way.keep_alive(held).unwrap();
    let stranger = over(&etcd, &Arc::new(ManualClock::new(1)));
    stranger.keep_alive(held).unwrap();
    way.keep_alive(held).unwrap();
}

#[test]
fn grant_after_etcd_was_restored_gives_no_id_that_was_given_since_the_backup() {
    let (etcd, clock, way) = table(1);
    let before = lease(&way);
    let backup = etcd.backup();
    let since = [lease(&way), lease(&way)];
    etcd.restore(&backup);
    let again = lease(&over(&etcd, &clock));
    assert!(again > before && !since.contains(&again), "{again} was another one's, who may still serve");
}

/// etcd was restored to when a lease was younger, and went on; its holder had renewed it since.
fn restored_lease_is_not_renewed() -> bool {
    let (etcd, clock, way) = table(1);
    let held = lease(&way);
    let backup = etcd.backup();
    way.keep_alive(held).unwrap();
    etcd.restore(&backup);
    // Its revisions are soon further than those that the holder has seen.
    let other = over(&etcd, &clock);
    (0..10).for_each(|row| put(&other, &format!("row/{row}")).unwrap());
    way.keep_alive(held).is_err() && way.asker.has_lost_history()
}

#[test]
fn keep_alive_of_a_lease_whose_row_is_older_than_it_was_left_ends_it() {
    assert!(restored_lease_is_not_renewed());
}

/// A renewal is asked for when the lease has ended: its row stays gone.
fn ended_stays_ended() -> bool {
    let (etcd, clock, way) = table(1);
    let held = lease(&way);
    let observer = over(&etcd, &clock);
    watch_for(&observer, &clock, 7);
    way.keep_alive(held).is_err() && observer.remaining_ns(held).unwrap().is_none()
}

#[test]
fn keep_alive_of_a_lease_that_has_ended_brings_nothing_back() {
    assert!(ended_stays_ended());
}

/// A renewal comes between an observer's look at a lease that seems over and the end of that.
fn renewed_at_the_last_moment_lives() -> bool {
    let (etcd, clock, way) = table(1);
    let held = lease(&way);
    let observer = over(&etcd, &clock);
    watch_for(&observer, &clock, 5);
    clock.advance(SECOND / 2);
    let way = Arc::new(way);
    let renews = way.clone();
    // The look, what hangs on the lease, and then the end itself.
    let renewal = FakeFault::After(Box::new(move |_: &FakeEtcd| renews.keep_alive(held).unwrap()));
    etcd.plan([None, None, Some(renewal)]);
    observer.leases.look(&observer.asker).unwrap();
    way.keep_alive(held).is_ok()
}

#[test]
fn look_ends_no_lease_that_was_renewed_meanwhile() {
    assert!(renewed_at_the_last_moment_lives());
}

const NO_SPACE: &str = r#"{"error":"e","message":"etcdserver: mvcc: database space exceeded","code":8}"#;

#[test]
fn leases_that_etcd_had_no_room_to_renew_are_there_when_there_is_room() {
    let (etcd, clock, way) = table(1);
    let other_way = over(&etcd, &clock);
    let (own, other) = (lease(&way), lease(&other_way));
    for _ in 0..4 * TTL_MS / 1_000 {
        etcd.plan([Some(FakeFault::Complains(429, NO_SPACE))]);
        assert!(way.keep_alive(own).unwrap_err().is_refused_for_room());
        way.leases.look(&way.asker).unwrap();
        clock.advance(SECOND / 2);
    }
    way.leases.look(&way.asker).unwrap();
    for (way, lease) in [(&way, own), (&other_way, other)] {
        way.keep_alive(lease).unwrap();
    }
}

#[test]
fn look_whose_end_of_a_lease_had_no_room_counts_anew() {
    let (etcd, clock, way) = table(1);
    let held = lease(&way);
    let observer = over(&etcd, &clock);
    watch_for(&observer, &clock, 5);
    clock.advance(SECOND / 2);
    etcd.plan([None, None, Some(FakeFault::Complains(429, NO_SPACE))]);
    assert!(observer.leases.look(&observer.asker).is_err());
    observer.leases.look(&observer.asker).unwrap();
    way.keep_alive(held).unwrap();
}

#[test]
fn look_ends_the_other_leases_when_one_cannot_be_ended() {
    let (etcd, clock, way) = table(1);
    let [kept, ended] = [(); 2].map(|()| lease(&way));
    let observer = over(&etcd, &clock);
    watch_for(&observer, &clock, 5);
    clock.advance(SECOND / 2);
    // The look, what hangs on the first lease, and the end itself.
    let too_large = r#"{"error":"e","message":"etcdserver: request is too large","code":3}"#;
    etcd.plan([None, None, Some(FakeFault::Complains(400, too_large))]);
    assert!(observer.leases.look(&observer.asker).is_err());
    assert!(observer.remaining_ns(kept).unwrap().is_some());
    assert_eq!(observer.remaining_ns(ended).unwrap(), None);
}

#[test]
fn call_after_etcd_was_restored_ends_the_own_lease_and_says_nothing_of_others() {
    let (etcd, clock, way) = table(1);
    let backup = etcd.backup();
    let [own, other] = [lease(&way), lease(&over(&etcd, &clock))];
    put(&way, "a").unwrap();
    etcd.restore(&backup);
    assert!(matches!(way.read("a"), Err(ClusterError::Etcd(EtcdError::HistoryLost))));
    assert!(matches!(way.keep_alive(own), Err(ClusterError::LeaseEnded { .. })));
    assert_eq!(way.remaining_ns(own).unwrap(), None);
    assert!(way.remaining_ns(other).is_err(), "nobody takes over what may live");
    let unchanged = Transaction::new().when(KeyCondition::Absent { key: "a".into() }).put("a", "");
    assert!(way.transact(unchanged).is_err());
    let again = over(&etcd, &clock);
    assert!(matches!(
        again.transact(Transaction::new().put("a", "")).unwrap(),
        TransactionOutcome::Applied { .. }
    ));
}

#[test]
#[cfg(debug_assertions)]
fn mutants_of_leases_on_etcd_are_caught() {
    use cell_terms::mutant::{Mutant, plant};
    cell_terms::mutant::in_own_process(|| {
        let twins: [(Mutant, fn() -> bool); 4] = [
            (Mutant::OtherClusterBelieved, other_cluster_is_not_believed),
            (Mutant::RestoredLeaseRenewed, restored_lease_is_not_renewed),
            (Mutant::EndedLeaseRenewed, ended_stays_ended),
            (Mutant::RenewedLeaseEnded, renewed_at_the_last_moment_lives),
        ];
        for (mutant, is_clean) in twins {
            plant(Some(mutant));
            let caught = !is_clean();
            plant(None);
            assert!(caught, "{} was not caught", mutant.name());
            println!("mutant {} caught by cell-cluster's leases on etcd", mutant.name());
        }
    });
}
