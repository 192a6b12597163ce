//! The lease's thread, and the way to a coordinator that comes and goes.

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::collections::BTreeSet;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cell_cluster::local_socket::own_user;
use cell_cluster::{
    ClusterError, Coordinator, CoordinatorRefusal, CoordinatorServer, Embedded, FirstLease, LeaseTerms,
    Remote, Transaction, boottime_ns,
};

use crate::etcd::members::copy_folder;

const MS: u64 = 1_000_000;
/// How long anything may take that the machine only has to get done.
const PATIENCE: Duration = Duration::from_secs(120);

/// The server of a test, in whose eyes every peer runs as the test does.
fn serve(coordinator: Arc<dyn Coordinator>, folder: &Path) -> CoordinatorServer {
    CoordinatorServer::start(coordinator, &folder.join("coordinator.socket"), |_| Ok(own_user())).unwrap()
}

/// Waits, past the end that a busy machine may need.
fn until(condition: impl Fn() -> bool) -> bool {
    let give_up_ns = boottime_ns() + 120_000 * MS;
    while !condition() {
        if boottime_ns() > give_up_ns {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    true
}

#[test]
fn lease_thread_renews_and_fences_itself_when_the_coordinator_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let embedded: Arc<dyn Coordinator> = Arc::new(Embedded::open(folder.path()).unwrap());
    let server = serve(embedded.clone(), folder.path());
    let remote = Arc::new(Remote::new(server.path(), Duration::from_millis(300)));
    // A busy machine may take a second to look that the node relies on its lease no more, and the coordinator
    // still does.
    let terms = LeaseTerms::new(3_000, 0.5);
    let lease = FirstLease::ask(remote, terms).unwrap().granted().unwrap();
    let first = lease.surely_until_ns().load(Ordering::Acquire);
    assert!(lease.holds() && first <= boottime_ns() + 1_500 * MS);
    assert!(until(|| lease.surely_until_ns().load(Ordering::Acquire) > first + 300 * MS));
    assert!(until(|| lease.counts().values(boottime_ns())[0].value >= 3.0));
    drop(server);
    assert!(until(|| !lease.holds()));
    let left = embedded.remaining_ns(lease.incarnation()).unwrap();
    assert!(left.is_some(), "the node stops relying on its lease before the coordinator ends it");
    assert!(lease.counts().values(boottime_ns())[1].value >= 1.0);
}

/// The coordinator's clock stands still meanwhile: it never ends the lease.
#[test]
fn lease_thread_whose_lease_ran_out_holds_it_again_when_the_coordinator_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(cell_cluster::ManualClock::new(1));
    let embedded: Arc<dyn Coordinator> =
        Arc::new(Embedded::open_with_clock(folder.path(), clock.clone()).unwrap());
    let server = serve(embedded.clone(), folder.path());
    let remote = Arc::new(Remote::new(server.path(), Duration::from_millis(300)));
    let lease = FirstLease::ask(remote, LeaseTerms::new(500, 0.05)).unwrap().granted().unwrap();
    drop(server);
    assert!(until(|| !lease.holds()));
    let run_out_ns = lease.surely_until_ns().load(Ordering::Acquire);
    assert_ne!(run_out_ns, 0, "it has run out and not ended");
    assert!(until(|| lease.counts().values(boottime_ns())[2].value >= 1.0));
    let _server = serve(embedded.clone(), folder.path());
    // A busy machine takes it away again now and then.
    assert!(until(|| lease.surely_until_ns().load(Ordering::Acquire) > run_out_ns));
    clock.advance(500 * MS);
    assert!(embedded.remaining_ns(lease.incarnation()).unwrap().is_none());
    assert!(until(|| lease.surely_until_ns().load(Ordering::Acquire) == 0), "it has ended, for good");
}

#[test]
fn lease_thread_lost_lease_is_zero_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(cell_cluster::ManualClock::new(1));
    let embedded = Arc::new(Embedded::open_with_clock(folder.path(), clock.clone()).unwrap());
    let lease = FirstLease::ask(embedded, LeaseTerms::new(200, 0.05)).unwrap().granted().unwrap();
    clock.advance(200 * MS);
    assert!(until(|| lease.surely_until_ns().load(Ordering::Acquire) == 0));
    assert!(!lease.holds());
}

#[test]
fn remote_server_restart_is_survived() {
    let folder = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn Coordinator> { Arc::new(Embedded::open(folder.path()).unwrap()) };
    let server = serve(open(), folder.path());
    let remote = Remote::new(server.path(), Duration::from_millis(300));
    remote.transact(Transaction::new().put("a", "1")).unwrap();
    drop(server);
    assert!(remote.read("a").is_err_and(|error| error.is_unanswered()));
    assert!(matches!(remote.read("a"), Err(ClusterError::NotReached(_))));
    let mut again = None;
    assert!(until(|| Embedded::open(folder.path()).is_ok()), "the old one has let go");
    again.get_or_insert_with(|| serve(open(), folder.path()));
    assert!(until(|| remote.read("a").is_ok_and(|entry| entry.is_some())));
}

#[test]
fn remote_silent_server_times_out_within_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("silent");
    let _listener = UnixListener::bind(&path).unwrap();
    let remote = Remote::new(path, Duration::from_millis(100));
    let asked_ns = boottime_ns();
    let error = remote.read("a").unwrap_err();
    assert!(matches!(error, ClusterError::OutcomeUnknown(_)) && error.is_transient());
    assert!(boottime_ns() - asked_ns < 30_000 * MS, "it waited far longer than for its deadline");
}

/// With the deadline that it was made with it would wait for an hour.
#[test]
fn remote_goes_by_the_deadline_that_is_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("silent");
    let _listener = UnixListener::bind(&path).unwrap();
    let remote = Remote::new(path, Duration::from_secs(3_600));
    remote.set_deadline(Duration::from_millis(50));
    assert!(matches!(remote.read("a"), Err(ClusterError::OutcomeUnknown(_))));
}

/// Niceness of the threads of this process with that name, which the kernel cuts to 15 bytes.
fn niceness_of(name: &str) -> BTreeSet<i64> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    let niceness = stats.filter_map(|stat| {
        let (before, columns) = stat.rsplit_once(") ")?;
        let is_meant = before.split_once('(')?.1 == name;
        is_meant.then(|| columns.split(' ').nth(16).unwrap().parse().unwrap())
    });
    niceness.collect()
}

/// A renewal that timed out comes again over a new connection. Threads that began with the niceness of the
/// process would get to it when the lease has ended.
#[test]
fn server_takes_connections_in_as_urgently_as_it_answers() {
    let folder = tempfile::tempdir().unwrap();
    let embedded = Arc::new(Embedded::open(folder.path()).unwrap());
    let server = serve(embedded, folder.path());
    let remote = Remote::new(server.path(), PATIENCE);
    assert!(remote.read("a").unwrap().is_none());
    let names = ["coordinator", "coordinator-pee", "coordinator-tic"];
    let alike = || {
        let [accepts, answers, ticks] = names.map(niceness_of);
        accepts.len() == 1 && accepts == answers && answers == ticks
    };
    assert!(until(alike), "{:?}", names.map(niceness_of));
}

#[test]
fn server_garbage_is_answered_and_the_connection_closed() {
    use std::io::{Read, Write};
    let folder = tempfile::tempdir().unwrap();
    let embedded = Arc::new(Embedded::open(folder.path()).unwrap());
    let server = serve(embedded, folder.path());
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"{}\n", b"\xff\xfe\n", b"[[[[[[[[\n"] {
        let mut stream = UnixStream::connect(server.path()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(garbage).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.starts_with(b"{\"version\":3,\"number\":0"), "{}", String::from_utf8_lossy(&answer));
    }
}

/// It was answered, and could not read what it was answered.
#[test]
fn server_question_of_another_version_is_answered_with_the_one_that_is_spoken() {
    use std::io::{Read, Write};
    let folder = tempfile::tempdir().unwrap();
    let embedded = Arc::new(Embedded::open(folder.path()).unwrap());
    let server = serve(embedded, folder.path());
    let of_before = "{\"number\":1,\"request\":{\"read\":{\"key\":\"a\"}}}\n".to_owned();
    for (asked, question) in [(0, of_before), (9, "{\"version\":9,\"ask\":[]}\n".to_owned())] {
        let mut stream = UnixStream::connect(server.path()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(question.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let refused = format!("{{\"refused\":{{\"version\":{{\"asked\":{asked},\"known\":3}}}}}}");
        assert!(answer.starts_with("{\"version\":3,\"number\":0") && answer.contains(&refused), "{answer}");
    }
}

/// Whoever the file's rights let in: what counts is what the kernel says of the peer.
#[test]
fn server_serves_its_own_user_and_root_alone() {
    let folder = tempfile::tempdir().unwrap();
    let embedded: Arc<dyn Coordinator> = Arc::new(Embedded::open(folder.path()).unwrap());
    let path = folder.path().join("coordinator.socket");
    let start = |peer_user| CoordinatorServer::start(embedded.clone(), &path, peer_user).unwrap();
    let remote = || Remote::new(path.clone(), PATIENCE);
    let server = start(|_| Ok(own_user() + 1));
    let stranger = own_user() + 1;
    for _ in 0..3 {
        let refused = remote().grant(1_000).unwrap_err();
        assert!(
            matches!(refused, ClusterError::Refused(CoordinatorRefusal::Stranger { user, own })
                if user == stranger && own == own_user()),
            "{refused}"
        );
    }
    assert!(matches!(remote().read("a"), Err(ClusterError::Refused(_))));
    drop(server);
    assert!(!path.exists());
    let server = start(|_| Ok(0));
    remote().grant(1_000).unwrap();
    drop(server);
    let _server = start(|_| Err(std::io::ErrorKind::Other.into()));
    assert!(remote().read("a").is_err(), "of whom nobody says who it is is not served");
}

#[test]
fn server_gives_one_connection_its_share_of_the_leases() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(cell_cluster::ManualClock::new(1));
    let embedded = Arc::new(Embedded::open_with_clock(folder.path(), clock.clone()).unwrap());
    let server = serve(embedded, folder.path());
    let [greedy, other] = [Remote::new(server.path(), PATIENCE), Remote::new(server.path(), PATIENCE)];
    let refused =
        (0..100).find_map(|_| greedy.grant(60_000).err()).expect("it does not get a hundred leases");
    assert!(refused.to_string().contains("refused") && refused.is_transient(), "{refused}");
    assert!(matches!(refused, ClusterError::Refused(CoordinatorRefusal::Quota { .. })));
    let lease = other.grant(60_000).unwrap().lease;
    other.keep_alive(lease).unwrap();
    clock.advance(60_000 * MS);
    greedy.grant(60_000).unwrap();
}

/// A folder goes back to what a copy of it has, and the process begins again there.
#[test]
fn leases_of_a_restored_folder_are_none_that_were_given_since_the_copy() {
    let place = tempfile::tempdir().unwrap();
    let (folder, copy) = (place.path().join("table"), place.path().join("copy"));
    let grant = || {
        let embedded = Embedded::open(&folder).unwrap();
        [(); 3].map(|()| embedded.grant(60_000).unwrap().lease)
    };
    let before = grant();
    copy_folder(&folder, &copy);
    let since = grant();
    std::fs::remove_dir_all(&folder).unwrap();
    copy_folder(&copy, &folder);
    let again = grant();
    assert!(again.iter().all(|lease| !since.contains(lease)), "{again:?} were {since:?}");
    assert!(before.iter().all(|old| since.iter().chain(&again).all(|new| new > old)), "ids grow");
}
