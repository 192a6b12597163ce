//! The wall clock jumps an hour ahead and back, again and again, while a small cluster serves under load.
//! Nothing that decides anything reads it: no lease ends, no node is started again, and no operation fails.
//! This sets the clock of the machine, so it runs in that of `tests/rdma-vm` alone, where nobody else goes by
//! it.

use std::process::Command;
use std::time::Duration;

use cell_tests::cluster::View;
use cell_tests::server::Server;
use cell_tests::traffic::Traffic;
use cell_tests::wait;
use rustix::process::Pid;
use serde_json::Value;

/// Set where a test may set the machine's clock.
const MAY_SET: &str = "CELL_TEST_SETS_CLOCK";
const HOUR_SECONDS: i64 = 3_600;
/// Jumps, each ahead and back.
const ROUNDS: u32 = 4;
const NODES: u16 = 2;
/// Of an emulated machine's memory.
const SMALL: [&str; 6] =
    ["--slot-bytes", "4MiB", "--node-region-bytes", "16MiB", "--extent-region-bytes", "48MiB"];
/// Clients that meet on shared keys: one of them searches the servers' memory itself.
const MEETING: u64 = 2;
/// How long each operation is tried. One that is not done by then has failed.
const DEADLINE: Duration = Duration::from_secs(60);
/// Writes after each jump.
const WRITES: u64 = 100;
const RENEWED: &str = "cell_lease_renewals_total";
const RAN_OUT: &str = "cell_lease_run_out_total";
/// They take longer than a lease, of which each is a fifth.
const RENEWALS: f64 = 6.0;

fn may_set_clock() -> bool {
    let may = std::env::var_os(MAY_SET).is_some();
    if !may {
        println!("SKIPPED: jumps of the wall clock: this machine's is not to be set");
    }
    may
}

/// What `date` prints, after it has done what it is asked to.
fn date(arguments: &[&str]) -> String {
    let said = Command::new("date").args(arguments).output().unwrap();
    assert!(said.status.success(), "{arguments:?}: {said:?}");
    String::from_utf8(said.stdout).unwrap()
}

fn wall_seconds() -> i64 {
    date(&["+%s"]).trim().parse().unwrap()
}

/// Sets the wall clock so many seconds ahead, or back.
fn jump(seconds: i64) {
    let wanted = wall_seconds() + seconds;
    date(&["-s", &format!("@{wanted}")]);
    let beyond = wall_seconds() - wanted;
    assert!((0..HOUR_SECONDS / 2).contains(&beyond), "the clock is {beyond} s from where it was set");
}

fn count(server: &Server, node: u16, name: &str) -> f64 {
    wait::until_some("the node shows its figures", || {
        let (_, text) = server.http_of(node, "/metrics")?;
        let count = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        count.parse().ok()
    })
}

/// Waits until each node has held its lease for longer than that lasts, all at the same time.
fn wait_renewed(server: &Server) {
    let wanted: Vec<f64> = (0..NODES).map(|node| count(server, node, RENEWED) + RENEWALS).collect();
    for (node, wanted) in (0..NODES).zip(wanted) {
        wait::until(&format!("node {node} has renewed its lease"), || count(server, node, RENEWED) >= wanted);
    }
}

/// The nodes' processes, and the incarnations that own the pairs.
fn lives(view: &View) -> (Vec<Pid>, Vec<Value>) {
    (view.processes(), view.pairs().iter().map(|row| row["owner"].clone()).collect())
}

#[test]
fn jumps_of_an_hour_ahead_and_back_end_no_lease_and_no_operation_fails() {
    if !may_set_clock() {
        return;
    }
    let nodes = format!("--nodes={NODES}");
    let flags = [&SMALL[..], &[&*nodes, "--allow-drills", "--balance=off"]].concat();
    let server = Server::start_steady(&flags);
    let before = lives(&server.wait_healthy());
    let ran_out = || (0..NODES).map(|node| count(&server, node, RAN_OUT)).sum::<f64>();
    let ran_out_before = ran_out();
    let traffic = Traffic::new(server.address());
    let (ledger, _) = traffic.during(MEETING, DEADLINE, || {
        traffic.wait_acknowledged(WRITES);
        for _ in 0..ROUNDS {
            for seconds in [HOUR_SECONDS, -HOUR_SECONDS] {
                jump(seconds);
                wait_renewed(&server);
                traffic.wait_acknowledged(WRITES);
            }
        }
    });
    assert_eq!(traffic.failed(), 0, "operations failed");
    assert_eq!(lives(&server.wait_healthy()), before, "a node has ended, or a pair was taken over");
    // An emulated machine may be late once or twice; by this clock each jump ahead would end both leases.
    let more = ran_out() - ran_out_before;
    assert!(more < f64::from(ROUNDS), "leases ran out {more} times");
    let keys = traffic.verify(&ledger);
    let operations = traffic.check_history();
    println!("{ROUNDS} jumps ahead and back: {keys} keys, {operations} operations checked");
}
