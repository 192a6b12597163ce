//! A disk that takes every write and flushes none of them: what its cache has, nobody has.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cell_client::{Client, ClientOptions};
use cell_tests::ending::Ending;
use cell_tests::faulty_disk::{Fault, FaultyDisk};
use cell_tests::ledger::Ledger;
use cell_tests::server::Server;
use cell_tests::traffic::Traffic;
use cell_tests::wait;

use crate::disks::{DISK_MEBIBYTES, PATIENCE, says_why};

/// Writes that must be acknowledged before the disk fails.
const BEFORE: usize = 300;

/// When the writes were started that were acknowledged.
#[derive(Default)]
struct Dates {
    started: Mutex<Vec<Instant>>,
    stop: AtomicBool,
}

#[allow(clippy::disallowed_methods, reason = "real disks have real time")]
fn now() -> Instant {
    Instant::now()
}

impl Dates {
    /// One write after the other, each given up soon.
    fn write(&self, server: SocketAddr) {
        let options = ClientOptions { deadline_ms: 50, ..ClientOptions::default() };
        let mut client = Client::connect(&server.to_string(), options).expect("the server is there");
        for number in 0_u64.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let started = now();
            if client.put(format!("dated-{}", number % 100).as_bytes(), b"value").is_ok() {
                self.started.lock().expect("nobody panics with it").push(started);
            }
        }
    }

    fn since(&self, from: Instant) -> usize {
        self.started.lock().expect("nobody panics with it").iter().filter(|started| **started >= from).count()
    }
}

/// Lets a node write on a disk whose flushes fail from some time on, then takes its power away. How many
/// writes were acknowledged that were started after the first flush could have failed, and whether all that
/// was acknowledged is there.
fn flushes_fail(flags: &[&str]) -> Option<(usize, bool)> {
    let mut disk = FaultyDisk::new(Fault::FlushErrors, DISK_MEBIBYTES)?;
    let flags = [&["--restart", "off"], flags].concat();
    let mut server = Server::prepared(&disk.mount().join("data"), &flags);
    let log = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    server.log_to(log.path());
    server.resume();
    let (traffic, dates, address) = (Traffic::new(server.address()), Dates::default(), server.address());
    let start = now();
    let (ledger, failed): (Ledger, Instant) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| traffic.keep_ledger(0, Duration::from_secs(2)));
        let dated = scope.spawn(|| dates.write(address));
        let ending = (traffic.ending(), Ending(&dates.stop));
        while dates.since(start) < BEFORE {
            assert!(start.elapsed() < PATIENCE, "there is no load");
            wait::pause();
        }
        disk.fail(true);
        let failed = now();
        // A failed flush poisons the log: the node gives its pairs up and ends; nothing retries it.
        let code = server.wait_end();
        assert!(code.is_some_and(|code| code != 0), "{code:?}");
        drop(ending);
        dated.join().expect("a writer did not panic");
        (writer.join().expect("a writer did not panic"), failed)
    });
    assert!(says_why(&server.log()), "{}", server.log());
    disk.unplug();
    disk.detach();
    disk.fail(false);
    disk.plug();
    server.resume();
    let check = std::panic::AssertUnwindSafe(|| traffic.verify(&ledger));
    let is_whole = std::panic::catch_unwind(check).is_ok();
    if is_whole {
        let verified = server.cell(&["verify"]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
    }
    server.kill_all();
    let (acknowledged, unknown) = ledger.counts();
    println!("{acknowledged} writes acknowledged, {unknown} unknown; {} late", dates.since(failed));
    Some((dates.since(failed), is_whole))
}

#[test]
fn flushes_that_fail_end_every_acknowledgement_and_nothing_acknowledged_is_lost() {
    let Some(found) = flushes_fail(&["--log-flush", "per_write"]) else { return };
    assert_eq!(found, (0, true), "late acknowledgements, and whether all is there");
}

#[test]
fn flushes_for_all_logs_that_fail_end_every_acknowledgement_and_nothing_acknowledged_is_lost() {
    let Some(found) = flushes_fail(&["--log-flush", "per_device"]) else { return };
    assert_eq!(found, (0, true), "late acknowledgements, and whether all is there");
}

/// The harness's twin that must fail: with `async` a node acknowledges what was never flushed.
#[test]
fn flushes_that_fail_under_an_async_node_are_noticed_by_the_same_check() {
    let Some((late, is_whole)) = flushes_fail(&["--durability", "async"]) else { return };
    assert!(late > 0 || !is_whole, "a node that acknowledges early, and nobody noticed");
}
