//! Nodes that do not fit the cluster that they are started for.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use cell_tests::lease::LONG_LEASE;
use cell_tests::process::signal;
use cell_tests::program::{self, Said};
use cell_tests::server::Server;
use cell_tests::wait;
use rustix::process::{Pid, Signal};

/// Regions and segments as those of the servers of tests.
const SIZES: [&str; 4] = [
    "--node-region-bytes=256MiB",
    "--slot-bytes=128MiB",
    "--extent-region-bytes=512MiB",
    "--log-segment-bytes=8MiB",
];

/// A node that differed once joined, and took the next dead node's pair to leave it unserved.
#[test]
fn node_that_differs_from_its_cluster_is_refused_with_both_values() {
    let server = Server::start_steady(&[]);
    assert_eq!(server.cell(&["put", "key", "value"]).code, Some(0));
    let differing: [(&[&str], &str); 4] = [
        (
            &["--durability=async", "--lease-ms=3s"],
            "this node does not fit the cluster: durability is async here and sync in the cluster",
        ),
        (&["--lease-ms=5s"], "lease_ms is 5000 ms here and 3000 ms in the cluster"),
        (
            &["--lease-drift-margin=0.1", "--lease-ms=3s"],
            "lease_drift_margin is 300 ms of 3000 ms here and 150 ms of 3000 ms in the cluster",
        ),
        (
            &["--tree-node-bytes=2KiB", "--lease-ms=3s"],
            "`tree_node_bytes` is 2048, but the pair was created with 1024; remove the setting or start a new",
        ),
    ];
    for (flags, words) in differing {
        let mut node = server.node_command(1);
        node.args(SIZES).arg("--coordinator-deadline-ms=1s").args(flags).stderr(Stdio::piped());
        let said: Said = node.output().expect("cell can be started").into();
        assert_eq!(said.code, Some(2), "{flags:?}: {said:?}");
        assert!(said.err.contains(words), "{words}: {said:?}");
    }
    assert_eq!(server.cell(&["get", "key"]).out, "value\n");
}

/// A copy of the log root has its id. A node over one joined, took a dead one's pair over, and served what
/// was in the copy: all that was acknowledged since was lost. Here the copy has nothing but the id.
#[test]
fn node_over_a_copy_of_the_log_root_is_refused_while_another_one_lives() {
    let server = Server::start_steady(&[]);
    assert_eq!(server.cell(&["put", "key", "value"]).code, Some(0));
    let elsewhere = tempfile::tempdir().expect("a temporary folder can be made");
    let (log, copy) = (server.folder().join("log"), elsewhere.path().join("log"));
    fs::create_dir(&copy).expect("a folder can be made");
    fs::copy(log.join("log-root-id"), copy.join("log-root-id")).expect("the log root has an id");
    let address = |offset: u16| format!("127.0.0.1:{}", server.port() + offset);
    let mut node = program::command();
    node.args(["node", "--node-id=1"])
        .args(LONG_LEASE)
        .args(SIZES)
        .args(["--listen-address", &address(1), "--http-address", &address(81), "--data-dir"])
        .arg(elsewhere.path())
        .arg("--coordinator-address")
        .arg(server.coordinator());
    let said: Said = node.output().expect("cell can be started").into();
    assert_eq!(said.code, Some(2), "{said:?}");
    for words in [
        "node 0 does not see in its log root what this node has just made",
        "mount the cluster's log root there",
    ] {
        assert!(said.err.contains(words), "{words}: {said:?}");
    }
    for root in [&log, &copy] {
        let names =
            fs::read_dir(root).expect("it can be listed").map(|entry| entry.expect("a name").file_name());
        let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("joining-")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert_eq!(server.cell(&["get", "key"]).out, "value\n");
}

/// The leases of the nodes that were stopped outlived them, and whoever was started with another durability
/// was refused for their sake, later on had to wait for their ends.
#[test]
fn durability_of_a_cluster_changes_once_all_its_nodes_were_stopped() {
    let flags = |more: &[&'static str]| [&LONG_LEASE[..], more].concat();
    let mut server = Server::start_with(&flags(&["--nodes=2"]));
    assert_eq!(server.cell(&["put", "key", "value"]).code, Some(0));
    for next in [["--nodes=2", "--durability=async"], ["--nodes=1", "--durability=sync"]] {
        assert_eq!(server.stop(), Some(0));
        let before = server.log().len();
        server.set_flags(&flags(&next));
        server.resume();
        wait::until("all pairs are served", || server.cell(&["count"]).out.trim_end() == "1");
        let said = server.log()[before..].to_owned();
        assert!(!["node 0 died", "node 1 died"].iter().any(|end| said.contains(end)), "{next:?}: {said}");
        assert!(!said.contains("waiting for leases of the cluster's last run"), "{next:?}: {said}");
    }
}

/// It waits for the other one's lease, which may be as long as a minute; an operator who has started it by
/// mistake does not.
#[test]
fn node_that_waits_for_another_of_its_number_stops_when_it_is_asked_to() {
    let server = Server::start_with(&["--lease-ms=60s", LONG_LEASE[1]]);
    let elsewhere = tempfile::tempdir().expect("a temporary folder can be made");
    let address = |offset: u16| format!("127.0.0.1:{}", server.port() + offset);
    let mut node = program::command();
    node.args(["node", "--node-id=0", "--lease-ms=60s", LONG_LEASE[1]])
        .args(SIZES)
        .args(["--listen-address", &address(1), "--http-address", &address(81), "--data-dir"])
        .arg(elsewhere.path())
        .arg("--coordinator-address")
        .arg(server.coordinator());
    let mut node = node.stderr(Stdio::piped()).spawn().expect("cell can be started");
    let mut said = BufReader::new(node.stderr.take().expect("it is a pipe")).lines().map_while(Result::ok);
    assert!(
        said.any(|line| line.contains("waiting for the other one's lease to end")),
        "it ended without waiting"
    );
    signal(Pid::from_child(&node), Signal::TERM);
    let rest: Vec<String> = said.collect();
    assert_eq!(node.wait().expect("a child can be waited for").code(), Some(0), "{rest:?}");
}
