//! Load while a host is killed for good and replaced: YCSB A, and a client that keeps a ledger. No operation
//! may fail, and nothing that was acknowledged may be lost. Clients try for longer than by default: where the
//! machine is slow, nodes that have taken pairs over lose their own leases, too, while the log root stands.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cell_client::{ClientOptions, Transport};
use cell_fabric::TlsTrust;
use cell_tests::ending::Ending;
use cell_tests::ledger::Ledger;
use cell_tests::program::Said;
use cell_tests::traffic::Traffic;

use super::PATIENT;
use super::walk::Walk;

/// The nodes whose hosts are there all the time.
const SERVERS: &str = "host-1.test:7000,host-2.test:7000";
/// Writes before the host is lost, and after it was replaced.
const WRITES: u64 = 500;
/// Between two runs of YCSB, of which each takes about as long: what the page does has the processors then.
const REST: Duration = Duration::from_secs(1);
/// YCSB A over a few records, as the page's reader would run it.
const YCSB: &str = "cell bench ycsb --workload a --records 2000 --threads 2 --value-bytes 100";

/// Does something while clients write and read.
///
/// # Panics
/// If an operation fails, or a write is lost.
pub(super) fn under_load(walk: &Walk, what: impl FnOnce()) {
    let traffic = Traffic::at(SERVERS, options(walk)).easing();
    let loaded = ycsb(walk, "--operations 100");
    assert_eq!(loaded.code, Some(0), "{loaded:?}");
    let is_over = AtomicBool::new(false);
    let ledger = std::thread::scope(|scope| {
        let _over = Ending(&is_over);
        let ending = traffic.ending();
        let writer = scope.spawn(|| {
            walk.client().enter();
            traffic.keep_ledger(0, PATIENT)
        });
        let runs = scope.spawn(|| run_ycsb(walk, &is_over));
        traffic.wait_connected(1);
        traffic.wait_acknowledged(WRITES);
        what();
        traffic.wait_acknowledged(WRITES);
        is_over.store(true, Ordering::SeqCst);
        let runs = runs.join().expect("no operation of YCSB failed");
        assert!(runs > 1, "YCSB ran {runs} times while the host was replaced");
        drop(ending);
        writer.join().expect("the writer did not panic")
    });
    assert_eq!(traffic.failed(), 0, "operations were not answered within {PATIENT:?}");
    verify(walk, &traffic, &ledger);
}

/// Runs YCSB again and again until it is over; how often.
fn run_ycsb(walk: &Walk, is_over: &AtomicBool) -> u64 {
    let mut runs = 0;
    while !is_over.load(Ordering::SeqCst) {
        let said = ycsb(walk, "--operations 500 --skip-load");
        assert_eq!(said.code, Some(0), "an operation of YCSB failed: {said:?}");
        runs += 1;
        rest();
    }
    runs
}

#[allow(clippy::disallowed_methods, reason = "load that comes and goes has real time")]
fn rest() {
    std::thread::sleep(REST);
}

fn ycsb(walk: &Walk, flags: &str) -> Said {
    let patience = format!("--timeout {}s", PATIENT.as_secs());
    walk.type_on(None, &format!(". ./cell.env; CELL_SERVER={SERVERS} {YCSB} {patience} {flags}"))
}

fn verify(walk: &Walk, traffic: &Traffic, ledger: &Ledger) {
    let verified = walk.client().within(|| traffic.verify(ledger));
    assert!(verified > 0, "nothing was written");
}

/// What a client connects with that has the application's token.
fn options(walk: &Walk) -> ClientOptions {
    let trust = TlsTrust::open(&walk.on_client("ca/ca.crt")).expect("the page has made a CA");
    let token =
        std::fs::read_to_string(walk.on_client("application.token")).expect("the page has made a token");
    let token = token.trim_end().as_bytes().to_vec();
    ClientOptions { trust: Some(trust), token, transport: Transport::Tcp, ..ClientOptions::default() }
}
