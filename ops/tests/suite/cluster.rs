//! `cell dev --nodes N`: what is said, who listens where, and who stays when one goes.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::TcpStream;

use crate::harness::{Dev, FLAGS, command};
use cell_tests::lease::LONG_LEASE;
use cell_tests::process::{by_number, signal, wait_ended};
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// Keys of which every node has some.
const KEYS: [&str; 12] = ["0", "5", "9", "C", "H", "N", "T", "Z", "c", "j", "q", "x"];

/// The event that says that the cluster is up, and the process of each node.
fn up(dev: &mut Dev) -> (Value, Vec<Pid>) {
    let event = dev.wait_for("up");
    let nodes = event["nodes"].as_array().unwrap();
    let pids = nodes.iter().map(|node| by_number(node["pid"].as_u64().unwrap())).collect();
    (event, pids)
}

fn put_all(dev: &Dev, value: &str) {
    for key in KEYS {
        dev.out(&["put", "--timeout", "60s", key, value]);
    }
}

fn assert_all(dev: &Dev, value: &str) {
    for (number, key) in KEYS.iter().enumerate() {
        let server = format!("127.0.0.1:{}", usize::from(dev.server.port()) + number % 3);
        let got = dev.cell(&["get", key, "--server", &server]);
        // A node that is gone does not answer; what it had is found through the others.
        if got.status.code() != Some(4) {
            assert_eq!(
                String::from_utf8(got.stdout).unwrap(),
                format!("{value}\n"),
                "{key} through {server}"
            );
        }
        assert_eq!(dev.out(&["get", key]), format!("{value}\n"), "{key}");
    }
    assert_eq!(dev.out(&["count"]), format!("{}\n", KEYS.len()));
}

#[test]
fn dev_three_nodes_say_where_they_are_and_share_the_keys() {
    let mut dev = Dev::launched_with(&["--nodes=3", "--allow-drills"]);
    let (event, pids) = up(&mut dev);
    assert_eq!((pids.len(), &event["drills"]), (3, &true.into()));
    for (node, row) in (0..).zip(event["nodes"].as_array().unwrap()) {
        let port = |offset: u16| format!("127.0.0.1:{}", dev.server.port() + offset + node);
        assert_eq!((&row["server"], &row["http"]), (&port(0).into(), &port(80).into()));
        for offset in [0, 80] {
            TcpStream::connect(port(offset)).unwrap();
        }
    }
    put_all(&dev, "value");
    assert_all(&dev, "value");
    let listed = command(&["drill", "ls", "--json", "--dir", dev.data()]).output().unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let owners: std::collections::BTreeSet<u64> =
        listed["pairs"].as_array().unwrap().iter().map(|pair| pair["node"].as_u64().unwrap()).collect();
    assert_eq!(owners.len(), 3, "{listed}");
    assert_eq!(dev.stop(), Some(0));
    wait_ended(&pids);
    dev.restart();
    up(&mut dev);
    assert_all(&dev, "value");
    assert_eq!(dev.stop(), Some(0));
}

/// Pairs stay where they are at first: a folder that is started with more nodes or with fewer once said
/// nothing of it, and each drill of README was inconclusive.
#[test]
fn dev_of_a_folder_with_other_owners_says_which_nodes_own_nothing_and_which_are_missing() {
    let mut dev = Dev::start_with(&["--allow-drills"]);
    assert_eq!(dev.stop(), Some(0));
    let start = |dev: &mut Dev, nodes: &str| {
        dev.server.set_bare_flags(&[&FLAGS[..], &LONG_LEASE, &["--allow-drills", "--nodes", nodes]].concat());
        dev.server.launch();
    };
    start(&mut dev, "3");
    let idle = dev.wait_for("nodes_without_pairs");
    assert_eq!(idle["nodes"], serde_json::json!([1, 2]), "{idle}");
    let text = |event: &Value, name: &str| event[name].as_str().unwrap().to_owned();
    assert!(
        text(&idle, "message").starts_with("nodes 1 and 2 own no pair: this folder's only pair is "),
        "{idle}"
    );
    for command in [
        format!("`cell drill run kill --node 0 --dir {}`", dev.data()),
        format!("`cell balance status --server {}`", dev.address()),
    ] {
        assert!(text(&idle, "next").contains(&command), "{command}: {idle}");
    }
    up(&mut dev);
    let drill = ["drill", "run", "restart", "--node", "2", "--before", "1ms", "--dir", dev.data(), "--json"];
    let said = command(&drill).output().unwrap();
    let report: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(said.status.code(), Some(8), "{report}");
    let reasons = report["reasons"].to_string();
    assert!(reasons.contains("its loss shows nothing; drill node 0, which owned 1 pair"), "{reasons}");

    // What it recommends helps: the others have the pair then, and a start of the first node alone misses
    // one.
    let drill = ["drill", "run", "kill", "--node", "0", "--duration", "8s", "--dir", dev.data(), "--json"];
    let said = command(&drill).output().unwrap();
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    assert_eq!(dev.stop(), Some(0));
    start(&mut dev, "1");
    let missing = dev.wait_for("nodes_missing");
    assert_eq!(missing["nodes"].as_array().unwrap().len(), 1, "{missing}");
    assert!(
        text(&missing, "message").contains("owned 1 pair of this folder's 1, and who is started "),
        "{missing}"
    );
    assert!(text(&missing, "next").starts_with("--nodes "), "{missing}");
    dev.wait_for("nodes_without_pairs");
    dev.wait_for("serving");
    dev.wait_healthy();
    assert_eq!(dev.stop(), Some(0));
}

#[test]
fn dev_without_restarts_serves_everything_until_one_node_is_left() {
    let mut dev = Dev::launched_with(&["--nodes=3", "--restart=off"]);
    let (_, pids) = up(&mut dev);
    put_all(&dev, "first");
    for (killed, value) in [(2, "second"), (1, "third")] {
        signal(pids[killed], Signal::KILL);
        let died = dev.wait_for("given_up");
        assert_eq!(died["node"], killed);
        put_all(&dev, value);
        assert_all(&dev, value);
    }
    signal(pids[0], Signal::KILL);
    assert_eq!(dev.server.wait_end(), Some(1), "nobody is left");
}

#[test]
fn dev_a_killed_supervisor_takes_all_its_nodes_along() {
    let mut dev = Dev::launched_with(&["--nodes=3"]);
    up(&mut dev);
    put_all(&dev, "value");
    dev.server.kill_all();
    dev.restart();
    up(&mut dev);
    assert_all(&dev, "value");
}

/// What cannot be asked is a row that says so, and what can be is shown.
#[test]
fn tree_show_and_verify_name_a_node_that_cannot_be_reached() {
    // No survivor takes over within the test: the dead node's pair stays its own.
    let mut dev = Dev::launched_with(&["--nodes=3", "--restart=off", "--lease-ms=60000"]);
    let (_, pids) = up(&mut dev);
    put_all(&dev, "value");
    let whole: Value = serde_json::from_str(&dev.out(&["tree", "show", "--json"])).unwrap();
    assert_eq!(whole["unreachable"].as_array().map(Vec::len), Some(0), "{whole}");
    signal(pids[1], Signal::KILL);
    dev.wait_for("given_up");
    let dead = format!("127.0.0.1:{}", dev.server.port() + 1);
    let shown = dev.cell(&["tree", "show", "--json"]);
    assert_eq!(shown.status.code(), Some(6), "{shown:?}");
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let missing = shown["unreachable"].as_array().unwrap();
    assert_eq!((missing.len(), &missing[0]["server"]), (1, &dead.as_str().into()), "{shown}");
    assert_eq!((&missing[0]["node"], &missing[0]["error"]["code"]), (&1.into(), &"unreachable".into()));
    assert!(!missing[0]["pairs"].as_array().unwrap().is_empty(), "{shown}");
    let count = |document: &Value| document["meganodes"].as_array().unwrap().len();
    assert!(count(&shown) > 0 && count(&shown) < count(&whole), "{shown}");
    let shown = dev.cell(&["tree", "show"]);
    assert_eq!(shown.status.code(), Some(6));
    let printed = String::from_utf8(shown.stdout).unwrap();
    assert!(printed.contains("of the nodes that answered") && printed.contains(&dead), "{printed}");

    // By the dead one first, too; what it has cannot be verified, and that is said by name.
    let servers = format!("{dead},{}", dev.address());
    let verified = dev.cell(&["verify", "--server", &servers]);
    assert_eq!(verified.status.code(), Some(4), "{verified:?}");
    assert!(String::from_utf8(verified.stderr).unwrap().contains(&dead));
}
