//! Growing and shrinking a cluster by the commands alone, and what is refused on the way.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Output;

use crate::harness::{Dev, command};
use cell_tests::process::{by_number, signal};
use rustix::process::Signal;
use serde_json::Value;

fn scale(dev: &Dev, nodes: &str) -> Output {
    command(&["dev", "scale", nodes, "--json", "--dir", dev.data()]).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The nodes that there are, after a change that went well.
fn nodes(output: &Output) -> Vec<u64> {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["nodes"].as_array().unwrap().iter().map(|node| node["node"].as_u64().unwrap()).collect()
}

/// Runs a command that is refused; what it says.
fn refused(dev: &Dev, arguments: &[&str], exit: i32) -> String {
    let output = command(arguments).args(["--http", &dev.http()]).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {error}");
    assert!(error.contains("next: "), "{error}");
    error
}

fn done(dev: &Dev, arguments: &[&str]) -> String {
    let output = command(arguments).args(["--http", &dev.http()]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn cluster_grows_a_node_is_drained_and_leaves() {
    let mut dev = Dev::start_with(&["--allow-drills"]);
    dev.out(&["put", "key", "value"]);
    let last = refused(&dev, &["node", "drain", "0"], 3);
    assert!(last.contains("other node would be left"), "{last}");
    assert_eq!(nodes(&scale(&dev, "2")), [0, 1]);
    assert_eq!(dev.wait_for("added")["node"], 1);
    let second = format!("127.0.0.1:{}", dev.server.port() + 1);
    assert_eq!(dev.out(&["get", "key", "--server", &second]), "value\n");

    cell_tests::wait::until("the first node knows the second one", || {
        let listed = command(&["node", "ls", "--json", "--http", &dev.http()]).output().unwrap();
        let document: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        document["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2)
    });
    let unknown = refused(&dev, &["node", "drain", "9"], 3);
    assert!(unknown.contains("No node-9 is in the cluster"), "{unknown}");
    let running = refused(&dev, &["node", "remove", "1"], 3);
    assert!(running.contains("runs and does not drain"), "{running}");
    // What nodes say of themselves may be a moment old.
    cell_tests::wait::until("a plan can be made", || {
        let planned = command(&["node", "drain", "0", "--dry-run", "--http", &dev.http()]).output().unwrap();
        let words = "node 0 would be emptied of 1 pair";
        planned.status.success() && text(&planned.stdout).contains(words)
    });
    let drained = done(&dev, &["node", "drain", "1", "--reason", "new disk", "--wait=120s"]);
    assert_eq!(drained, "node 1 is empty, and can be stopped\n");
    cell_tests::wait::until("the list shows that it drains", || {
        let listed = command(&["node", "ls", "--http", &dev.http()]).output().unwrap();
        text(&listed.stdout).contains("node 1 drained: no pair is left")
    });
    assert!(refused(&dev, &["node", "drain", "0"], 3).contains("other node would be left"));
    assert!(refused(&dev, &["region", "move", "1", "--to", "1"], 3).contains("it gets no pairs"));
    let drill = command(&["drill", "run", "rolling", "--dir", dev.data()]).output().unwrap();
    assert_eq!(drill.status.code(), Some(5), "{}", text(&drill.stderr));
    assert!(text(&drill.stderr).contains("node 1 is to be emptied"), "{}", text(&drill.stderr));
    done(&dev, &["node", "undrain", "1"]);
    assert!(refused(&dev, &["node", "undrain", "1"], 3).contains("does not drain"));

    assert_eq!(nodes(&scale(&dev, "1")), [0]);
    assert_eq!(dev.wait_for("removed")["node"], 1);
    assert_eq!(nodes(&scale(&dev, "2")), [0, 1], "its number is permitted again");
    dev.wait_healthy();
    removed_node_stands_in_no_number_s_way(&mut dev);
    assert_eq!(dev.out(&["get", "key"]), "value\n");
    assert_eq!(dev.stop(), Some(0));
}

/// Once a node that an operator had removed was given up, no number of nodes was reached any more, and others
/// were taken away for it.
fn removed_node_stands_in_no_number_s_way(dev: &mut Dev) {
    let mut serving = dev.wait_for("serving");
    while serving["node"] != 1 {
        serving = dev.wait_for("serving");
    }
    done(dev, &["node", "drain", "1", "--wait=120s"]);
    done(dev, &["node", "remove", "1"]);
    signal(by_number(serving["pid"].as_u64().unwrap()), Signal::TERM);
    assert_eq!(dev.wait_for("given_up")["node"], 1);
    let back = scale(dev, "2");
    assert_eq!(nodes(&back), [0, 1]);
    let said = text(&back.stderr);
    assert!(said.contains("node 1 was removed for good, by "), "{said}");

    let pid = dev.wait_for("serving")["pid"].as_u64().unwrap();
    done(dev, &["node", "drain", "1", "--wait=120s"]);
    done(dev, &["node", "remove", "1"]);
    signal(by_number(pid), Signal::TERM);
    assert_eq!(dev.wait_for("given_up")["node"], 1);
    assert_eq!(nodes(&scale(dev, "1")), [0], "one is there");
    assert_eq!(dev.wait_for("removed")["node"], 1);
}

#[test]
fn scale_without_a_cluster_or_with_settings_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = command(&["dev", "scale", "3", "--dir", folder.path().to_str().unwrap()]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(4));
    assert!(text(&nobody.stderr).contains("scale.socket: there is none"), "{}", text(&nobody.stderr));
    for arguments in [
        &["dev", "scale", "0"][..],
        &["dev", "scale", "65"],
        &["dev", "--lease-ms=3000", "scale", "2"],
        &["drill", "run", "rolling", "--node", "0"],
        &["node", "drain"],
        &["node", "drain", "1", "--host", "127.0.0.1"],
    ] {
        let output = command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    }
}

/// Whether this version moves pairs by itself.
fn balances() -> bool {
    let listed = command(&["settings", "--json"]).output().unwrap();
    text(&listed.stdout).contains("\"balance\"")
}

#[test]
fn nodes_are_restarted_in_turn_under_load_and_the_last_one_leaves() {
    if !balances() {
        println!("SKIPPED: nothing moves pairs of nodes that drain in this version");
        return;
    }
    let mut dev = Dev::launched_with(&["--nodes=3", "--allow-drills"]);
    dev.wait_for("up");
    for key in ["0", "C", "T", "j", "x"] {
        dev.out(&["put", key, "value"]);
    }
    let drill =
        ["drill", "run", "rolling", "--threads", "2", "--rate", "500", "--patience", "120s", "--json"];
    let drill = command(&drill).args(["--dir", dev.data()]).output().unwrap();
    assert_eq!(drill.status.code(), Some(0), "{} {}", text(&drill.stdout), text(&drill.stderr));
    let report: Value = serde_json::from_slice(&drill.stdout).unwrap();
    assert_eq!((&report["drill"], &report["node"]), (&"rolling".into(), &Value::Null));
    let said = text(&drill.stderr);
    for words in ["node 0 is emptied", "node 1 is empty, and is restarted", "node 2 serves again"] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(nodes(&scale(&dev, "2")), [0, 1]);
    for key in ["0", "C", "T", "j", "x"] {
        assert_eq!(dev.out(&["get", key]), "value\n");
    }
    assert_eq!(dev.stop(), Some(0));
}
