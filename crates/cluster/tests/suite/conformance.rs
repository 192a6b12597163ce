//! One suite for every provider of a coordinator: embedded (also under power cuts), remote over a socket and
//! over TLS, sim, and where it is installed etcd, of one member and of three.

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use cell_cluster::local_socket::own_user;
use cell_cluster::{
    ClusterError, Coordinator, CoordinatorRefusal, CoordinatorRequest, CoordinatorServer,
    CoordinatorTlsServer, Embedded, KeyCondition, ManualClock, Remote, Response, Sim, TlsAddress,
    Transaction, TransactionOutcome, initialise,
};
use cell_durable::PowerCutSyncer;
use cell_terms::Incarnation;
use tempfile::TempDir;

use crate::etcd::members::{EtcdMembers, is_installed, until};
use crate::test_tls::{Ends, TOKEN};

const MS: u64 = 1_000_000;

/// What the suite runs against: the coordinator, and how its clock is moved.
struct Subject {
    name: &'static str,
    coordinator: Arc<dyn Coordinator>,
    advance: Box<dyn Fn(u64)>,
    /// Whether its clock is given: then it is known to the millisecond when a lease ends.
    is_clock_given: bool,
    /// What has to live as long.
    _hold: Box<dyn std::any::Any>,
}

/// Those whose clock is given.
fn subjects() -> Vec<Subject> {
    let sim = Sim::new(7);
    let link = sim.link();
    let in_memory = Subject {
        name: "sim",
        coordinator: Arc::new(link),
        advance: Box::new(move |by| sim.advance(by)),
        is_clock_given: true,
        _hold: Box::new(()),
    };
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1));
    let on_sled = Embedded::open_with_clock(folder.path(), clock.clone()).unwrap();
    let on_sled = Subject {
        name: "embedded",
        coordinator: Arc::new(on_sled),
        advance: Box::new(move |by| clock.advance(by)),
        is_clock_given: true,
        _hold: Box::new(folder),
    };
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1));
    let served = Embedded::open_with_clock(folder.path(), clock.clone()).unwrap();
    let path = folder.path().join("coordinator.socket");
    let server = CoordinatorServer::start(Arc::new(served), &path, |_| Ok(own_user())).unwrap();
    let over_a_socket = Subject {
        name: "remote",
        coordinator: Arc::new(Remote::new(path, Duration::from_secs(120))),
        advance: Box::new(move |by| clock.advance(by)),
        is_clock_given: true,
        _hold: Box::new((server, folder)),
    };
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1));
    let served = Embedded::open_with_clock(folder.path(), clock.clone()).unwrap();
    let (ends, address) = (Ends::new(), "127.0.0.1:0".parse().unwrap());
    let server =
        CoordinatorTlsServer::start(Arc::new(served), address, ends.server(), Ends::check()).unwrap();
    let address = TlsAddress::parse(&format!("tls://{}", server.address())).unwrap().unwrap();
    let over_tls = Subject {
        name: "remote over TLS",
        coordinator: Arc::new(Remote::over_tls(address, ends.credentials(TOKEN), Duration::from_secs(120))),
        advance: Box::new(move |by| clock.advance(by)),
        is_clock_given: true,
        _hold: Box::new((server, folder)),
    };
    vec![in_memory, on_sled, over_a_socket, over_tls, cut_often()]
}

/// Real etcds, where that is installed.
fn sizes_of_etcd() -> &'static [(&'static str, usize)] {
    if is_installed() { &[("etcd", 1), ("etcd of three members", 3)] } else { &[] }
}

fn of_etcd((name, count): (&'static str, usize)) -> Option<Subject> {
    let members = EtcdMembers::start(count, &[])?;
    let table = members.table(Duration::from_secs(60));
    Some(Subject {
        name,
        coordinator: Arc::new(table),
        advance: Box::new(|_| {}), // its time passes by itself
        is_clock_given: false,
        _hold: Box::new(members),
    })
}

impl Subject {
    /// A length of leases. Whoever watches them must not be held up for a fifth of it.
    fn ttl_ms(&self) -> u64 {
        if self.is_clock_given { 100 } else { 5_000 }
    }

    /// Lets a lease end that nobody renews.
    fn let_end(&self, lease: Incarnation) {
        (self.advance)(self.ttl_ms() * MS);
        until("the lease has ended", || self.coordinator.remaining_ns(lease).unwrap().is_none());
    }
}

/// An embedded coordinator whose power might go after any call: what the disk would then hold is opened
/// beside it again and again, and has to be the same.
struct CutOften {
    disk: TempDir,
    syncer: Arc<PowerCutSyncer>,
    clock: Arc<ManualClock>,
    live: Embedded,
    /// Locked for reading by calls, for writing while both are compared.
    calls: RwLock<()>,
    count: AtomicUsize,
    granted: Mutex<Vec<Incarnation>>,
}

const FOLDER: &str = "data/coordinator";
/// Calls between two power cuts.
const CALLS: usize = 7;

fn cut_often() -> Subject {
    let disk = tempfile::tempdir().unwrap();
    let syncer = Arc::new(PowerCutSyncer::new(disk.path()).unwrap());
    let clock = Arc::new(ManualClock::new(1));
    let live = Embedded::open_with(&disk.path().join(FOLDER), clock.clone(), syncer.clone()).unwrap();
    let advanced = clock.clone();
    let (calls, count, granted) = (RwLock::default(), AtomicUsize::new(0), Mutex::default());
    Subject {
        name: "embedded, under power cuts",
        coordinator: Arc::new(CutOften { disk, syncer, clock, live, calls, count, granted }),
        advance: Box::new(move |by| advanced.advance(by)),
        is_clock_given: true,
        _hold: Box::new(()),
    }
}

impl Coordinator for CutOften {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        let calls = self.calls.read().unwrap();
        let response = self.live.call(request)?;
        if let Response::Granted(grant) = &response {
            self.granted.lock().unwrap().push(grant.lease);
        }
        drop(calls);
        if self.count.fetch_add(1, Ordering::SeqCst).is_multiple_of(CALLS) {
            self.compare();
        }
        Ok(response)
    }
}

impl CutOften {
    fn compare(&self) {
        let _calls = self.calls.write().unwrap();
        let all = self.live.list("").unwrap();
        let after = tempfile::tempdir().unwrap();
        self.syncer.restore(after.path()).unwrap();
        let cut = Embedded::open_with_clock(&after.path().join(FOLDER), self.clock.clone()).unwrap();
        assert_eq!(cut.list("").unwrap(), all, "{}", self.disk.path().display());
        for lease in self.granted.lock().unwrap().iter() {
            let lives = |of: &Embedded| of.remaining_ns(*lease).unwrap().is_some();
            assert_eq!(lives(&cut), lives(&self.live), "{lease}");
        }
    }
}

impl Drop for CutOften {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.compare();
        }
    }
}

fn each(check: impl Fn(&dyn Coordinator, &Subject) + Sync) {
    let check = &check;
    let check_one = move |subject: Subject| {
        println!("{}", subject.name);
        check(&subject.coordinator, &subject);
    };
    std::thread::scope(|scope| {
        // Where time passes by itself all wait at once.
        for size in sizes_of_etcd() {
            scope.spawn(move || of_etcd(*size).map(check_one));
        }
        subjects().into_iter().for_each(check_one);
    });
}

fn applied(outcome: TransactionOutcome) -> u64 {
    match outcome {
        TransactionOutcome::Applied { revision } => revision,
        TransactionOutcome::Refused { condition } => panic!("refused by condition {condition}"),
    }
}

#[test]
fn initialise_twice_keeps_the_first_generation() {
    each(|coordinator, _| {
        let generation = coordinator.generation().unwrap();
        assert_ne!(generation, 0);
        assert_eq!(initialise(coordinator, generation ^ 1).unwrap(), generation);
    });
}

#[test]
fn transact_every_condition_is_checked() {
    each(|coordinator, subject| {
        let first = applied(coordinator.transact(Transaction::new().put("a", "1")).unwrap());
        let lease = coordinator.grant(subject.ttl_ms()).unwrap().lease;
        let (key, value) = ("a".to_owned(), "1".to_owned());
        let holding = [
            KeyCondition::Absent { key: "b".into() },
            KeyCondition::Revision { key: key.clone(), revision: first },
            KeyCondition::Value { key: key.clone(), value },
            KeyCondition::LeaseAlive { lease },
            KeyCondition::LeaseEnded { lease: Incarnation(lease.0 + 1) },
        ];
        let failing = [
            KeyCondition::Absent { key: key.clone() },
            KeyCondition::Revision { key: key.clone(), revision: first + 1 },
            KeyCondition::Revision { key: "b".into(), revision: first },
            KeyCondition::Value { key, value: "2".into() },
            KeyCondition::Value { key: "b".into(), value: "2".into() },
            KeyCondition::LeaseAlive { lease: Incarnation(lease.0 + 1) },
            KeyCondition::LeaseEnded { lease },
        ];
        for condition in &holding {
            let write = Transaction::new().when(condition.clone()).put("touched", "");
            applied(coordinator.transact(write).unwrap());
        }
        for condition in &failing {
            let write = Transaction::new().when(holding[0].clone()).when(condition.clone()).put("b", "");
            let outcome = coordinator.transact(write).unwrap();
            assert_eq!(outcome, TransactionOutcome::Refused { condition: 1 }, "{condition:?}");
        }
        assert_eq!(coordinator.read("b").unwrap(), None);
        subject.let_end(lease);
        let after = Transaction::new().when(KeyCondition::LeaseEnded { lease }).put("b", "");
        applied(coordinator.transact(after).unwrap());
    });
}

#[test]
fn read_entry_has_the_revisions_that_wrote_it() {
    each(|coordinator, _| {
        let created = applied(coordinator.transact(Transaction::new().put("a", "1")).unwrap());
        let written = applied(coordinator.transact(Transaction::new().put("a", "2")).unwrap());
        let entry = coordinator.read("a").unwrap().unwrap();
        assert_eq!((entry.value.as_str(), entry.revision_created, entry.revision), ("2", created, written));
        applied(coordinator.transact(Transaction::new().delete("a").delete("never there")).unwrap());
        assert_eq!(coordinator.read("a").unwrap(), None);
    });
}

#[test]
fn list_and_watch_from_its_revision_misses_nothing() {
    each(|coordinator, _| {
        let many = (0..100).fold(Transaction::new(), |all, i| all.put(format!("x/{i:03}"), "v"));
        applied(coordinator.transact(many).unwrap());
        let listing = coordinator.list("x/").unwrap();
        assert_eq!(listing.entries.len(), 100);
        assert!(listing.entries.iter().map(|entry| &entry.key).is_sorted());
        let later =
            applied(coordinator.transact(Transaction::new().put("x/new", "1").delete("x/000")).unwrap());
        let (complete, changes) = coordinator.changes_since(listing.revision).unwrap();
        assert_eq!(complete, later);
        let mut seen: Vec<_> = changes.iter().map(|c| (c.key.as_str(), c.value.is_some())).collect();
        seen.sort_unstable();
        assert_eq!(seen, [("x/000", false), ("x/new", true)]);
        assert_eq!(coordinator.changes_since(complete).unwrap(), (complete, vec![]));
    });
}

#[test]
fn lease_ends_exactly_when_it_was_not_renewed_in_time() {
    each(|coordinator, subject| {
        if !subject.is_clock_given {
            return;
        }
        let advance = &*subject.advance;
        let lease = coordinator.grant(100).unwrap().lease;
        applied(coordinator.transact(Transaction::new().put_leased("m", "", lease)).unwrap());
        for _ in 0..5 {
            advance(90 * MS);
            coordinator.keep_alive(lease).unwrap();
        }
        advance(99 * MS);
        assert_eq!(coordinator.remaining_ns(lease).unwrap(), Some(MS));
        assert!(coordinator.read("m").unwrap().is_some());
        advance(MS);
        assert_eq!(coordinator.remaining_ns(lease).unwrap(), None);
        assert_eq!(coordinator.read("m").unwrap(), None);
        assert!(
            matches!(coordinator.keep_alive(lease), Err(ClusterError::LeaseEnded { lease: l }) if l == lease)
        );
        let dead = coordinator.transact(Transaction::new().put_leased("m", "", lease));
        assert!(matches!(dead, Err(ClusterError::LeaseEnded { .. })));
        assert_ne!(coordinator.grant(100).unwrap().lease, lease);
    });
}

#[test]
fn lease_that_is_not_renewed_ends_with_what_hangs_on_it_and_never_comes_back() {
    each(|coordinator, subject| {
        let [lease, other] = [subject.ttl_ms(), 3_600_000].map(|ttl| coordinator.grant(ttl).unwrap().lease);
        let put = Transaction::new().put_leased("m/1", "", lease).put_leased("m/2", "", lease);
        let before = applied(coordinator.transact(put.put_leased("n", "", other)).unwrap());
        // Whoever wrote a row last says on what it hangs.
        applied(coordinator.transact(Transaction::new().put_leased("m/2", "kept", other)).unwrap());
        let renewals = || coordinator.living_lease(lease).unwrap().unwrap().renewals;
        let granted = renewals();
        assert_eq!(renewals(), granted, "who asks renews nothing");
        coordinator.keep_alive(lease).unwrap();
        assert_eq!(renewals(), granted + 1);
        subject.let_end(lease);
        assert_eq!(coordinator.read("m/1").unwrap(), None);
        assert_eq!(coordinator.read("m/2").unwrap().unwrap().value, "kept");
        let (_, changes) = coordinator.changes_since(before).unwrap();
        let seen: Vec<_> = changes.iter().map(|c| (c.key.as_str(), c.value.is_some())).collect();
        assert_eq!(seen, [("m/2", true), ("m/1", false)]);
        assert!(
            matches!(coordinator.keep_alive(lease), Err(ClusterError::LeaseEnded { lease: l }) if l == lease)
        );
        let dead = coordinator.transact(Transaction::new().put_leased("m/1", "", lease));
        assert!(matches!(dead, Err(ClusterError::LeaseEnded { .. })));
        assert!(coordinator.grant(1_000).unwrap().lease > lease.max(other));
    });
}

#[test]
fn lease_that_its_holder_ends_is_over_at_once_with_all_that_hangs_on_it() {
    each(|coordinator, _| {
        let [lease, other] = [(); 2].map(|()| coordinator.grant(60_000).unwrap().lease);
        let put = Transaction::new().put_leased("m/1", "", lease).put_leased("m/2", "", other);
        let before = applied(coordinator.transact(put).unwrap());
        coordinator.end_lease(lease).unwrap();
        assert_eq!(coordinator.remaining_ns(lease).unwrap(), None);
        let keys = coordinator.list("m/").unwrap().entries;
        assert_eq!(keys.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["m/2"]);
        let (_, changes) = coordinator.changes_since(before).unwrap();
        assert_eq!(changes.iter().map(|change| change.key.as_str()).collect::<Vec<_>>(), ["m/1"]);
        assert!(matches!(coordinator.keep_alive(lease), Err(ClusterError::LeaseEnded { .. })));
        coordinator.end_lease(lease).unwrap();
        coordinator.keep_alive(other).unwrap();
        let after = Transaction::new().when(KeyCondition::LeaseEnded { lease }).put("b", "");
        applied(coordinator.transact(after).unwrap());
    });
}

#[test]
fn call_out_of_limits_is_refused_and_changes_nothing() {
    each(|coordinator, _| {
        let (before, _) = coordinator.changes_since(0).unwrap_or((0, vec![]));
        let large = coordinator.transact(Transaction::new().put("k", "v".repeat(1 << 20)));
        assert!(matches!(large, Err(ClusterError::Refused(CoordinatorRefusal::TooLarge { .. }))));
        let long_key = coordinator.transact(Transaction::new().put("k".repeat(1000), ""));
        assert!(matches!(long_key, Err(ClusterError::Refused(CoordinatorRefusal::TooLarge { .. }))));
        let many = (0..1000).fold(Transaction::new(), |all, i| all.put(i.to_string(), ""));
        assert!(matches!(
            coordinator.transact(many),
            Err(ClusterError::Refused(CoordinatorRefusal::TooLarge { .. }))
        ));
        assert!(matches!(
            coordinator.grant(0),
            Err(ClusterError::Refused(CoordinatorRefusal::LeaseTime { ttl_ms: 0 }))
        ));
        assert_eq!(coordinator.list("k").unwrap().entries, []);
        assert!(coordinator.list("").unwrap().revision >= before);
        at_the_limit_of_steps(coordinator);
    });
}

/// As many conditions, or operations, as etcd takes in a list, and not one more.
fn at_the_limit_of_steps(coordinator: &dyn Coordinator) {
    const STEPS: usize = 128;
    let keys = |count: usize| (0..count).map(|step| format!("step/{step:03}"));
    let absent = |all: Transaction, key| all.when(KeyCondition::Absent { key });
    let conditions = |count| keys(count).fold(Transaction::new().put("last", ""), absent);
    let operations = |count| keys(count).fold(Transaction::new(), |all, key| all.put(key, ""));
    for step in [conditions(STEPS + 1), operations(STEPS + 1)] {
        let refused = coordinator.transact(step);
        let is_too_large =
            matches!(refused, Err(ClusterError::Refused(CoordinatorRefusal::TooLarge { limit: STEPS, .. })));
        assert!(is_too_large, "{refused:?}");
    }
    applied(coordinator.transact(conditions(STEPS)).unwrap());
    applied(coordinator.transact(operations(STEPS)).unwrap());
    assert_eq!(coordinator.list("step/").unwrap().entries.len(), STEPS);
}

#[test]
fn transact_racing_writers_one_wins_each_round() {
    each(|coordinator, _| {
        let rounds = 50;
        let wins = std::thread::scope(|scope| {
            let race = |name: &'static str| {
                let won = move |round: &u32| {
                    let key = format!("race/{round}");
                    let take =
                        Transaction::new().when(KeyCondition::Absent { key: key.clone() }).put(key, name);
                    matches!(coordinator.transact(take).unwrap(), TransactionOutcome::Applied { .. })
                };
                scope.spawn(move || (0..rounds).filter(won).count())
            };
            ["a", "b", "c"].map(race).map(|thread| thread.join().unwrap())
        });
        assert_eq!(wins.iter().sum::<usize>(), usize::try_from(rounds).unwrap());
    });
}
