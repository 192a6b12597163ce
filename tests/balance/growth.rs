//! A cluster of three grows to five and shrinks to two by the commands alone, under YCSB A and under clients
//! that write and read, half of them one-sided: no operation fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cell_tests::cluster::View;
use cell_tests::ending::Ending;
use cell_tests::program;
use cell_tests::server::Server;
use cell_tests::traffic::Traffic;

use crate::balance::{assert_loaded, cluster, load};

/// Clients that meet on shared keys.
const MEETING: u64 = 3;
/// How long each operation is tried. One that is not done by then has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Writes between two changes.
const WRITES_MIN: u64 = 200;
/// A run of YCSB A, which ends with the first operation that fails.
const YCSB: [&str; 8] = [
    "bench",
    "ycsb",
    "--workload=a",
    "--records=2000",
    "--operations=2000",
    "--value-bytes=100",
    "--threads=2",
    "--timeout=60s",
];

/// `cell dev scale`.
fn scale(server: &Server, nodes: &str) {
    let folder = server.folder().to_str().expect("it is text");
    let said = program::run(&["dev", "scale", nodes, "--dir", folder, "--patience", "10m"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    println!("{}", said.out);
}

/// Whether there are so many nodes, and each has a pair.
fn each_has_one(view: &View, nodes: usize) -> bool {
    let owned = view.owned();
    owned.len() == nodes && owned.values().all(|pairs| !pairs.is_empty())
}

/// Runs of YCSB A, one after the other, until they are stopped; how many there were.
fn run_ycsb(server: &str, stop: &AtomicBool) -> u32 {
    let mut runs = 0;
    while runs == 0 || !stop.load(Ordering::SeqCst) {
        let skip_load: &[&str] = if runs == 0 { &[] } else { &["--skip-load"] };
        let said = program::run(&[&YCSB[..], &["--server", server], skip_load].concat());
        assert_eq!(said.code, Some(0), "no operation of YCSB A fails: {said:?}");
        runs += 1;
    }
    runs
}

/// Has YCSB A run while something is done.
fn under_ycsb(server: &Server, what: impl FnOnce()) {
    let (address, stop) = (server.address().to_string(), AtomicBool::new(false));
    let runs = std::thread::scope(|scope| {
        let running = scope.spawn(|| run_ycsb(&address, &stop));
        let ending = Ending(&stop);
        what();
        drop(ending);
        running.join().expect("no operation failed")
    });
    println!("{runs} runs of YCSB A");
}

#[test]
fn cluster_grows_to_five_and_shrinks_to_two_under_load_and_no_operation_fails() {
    let server = cluster();
    load(&server);
    let traffic = Traffic::new(server.address());
    let (ledger, _) = traffic.during(MEETING, PATIENCE, || {
        under_ycsb(&server, || {
            traffic.wait_acknowledged(WRITES_MIN);
            scale(&server, "5");
            server.wait_view("shared by five", |view| each_has_one(view, 5));
            traffic.wait_acknowledged(WRITES_MIN);
            scale(&server, "2");
            let view = server.wait_healthy();
            assert!(each_has_one(&view, 2), "{view:?}");
            traffic.wait_acknowledged(WRITES_MIN);
        });
    });
    assert_eq!(traffic.failed(), 0, "no operation fails");
    let keys = traffic.verify(&ledger);
    println!("{keys} keys, {} operations checked", traffic.check_history());
    assert_loaded(&server);
}
