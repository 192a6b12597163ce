//! Several processes of one machine: `cell node --processes N`.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};

use crate::harness::{FLAGS, command};
use cell_tests::lease::LONG_LEASE;
use cell_tests::ports::Ports;
use cell_tests::process::{by_number, signal, wait_ended};
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// The next event of this name.
fn event(lines: &mut Lines<BufReader<ChildStdout>>, name: &str) -> Value {
    let mut events = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    events.find(|event| event["event"] == name).unwrap()
}

fn pids(up: &Value) -> Vec<Pid> {
    up["nodes"].as_array().unwrap().iter().map(|node| by_number(node["pid"].as_u64().unwrap())).collect()
}

#[test]
fn processes_share_a_machine_one_that_dies_comes_back_alone_and_all_end_with_their_supervisor() {
    let folder = tempfile::tempdir().unwrap();
    let ports = Ports::take();
    let address = |by: u16| format!("127.0.0.1:{}", ports.first + by);
    let (server, http, data) = (address(0), address(80), folder.path().join("data"));
    let mut started: Child = command(&["node", "--json", "--processes=3"])
        .args(["--slot-bytes=8MiB", "--ready-memory-bytes=0"])
        .args(FLAGS)
        .args(LONG_LEASE)
        .args(["--memory-limit-bytes=3GiB", "--listen-address", &server, "--http-address", &http])
        .args(["--data-dir", data.to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(started.stdout.take().unwrap()).lines();
    let up = event(&mut lines, "up");
    let before = pids(&up);
    assert_eq!(before.len(), 3, "{up}");
    let client = |arguments: &[&str]| {
        let output = command(arguments).args(["--server", &server]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for key in ["0", "T", "x"] {
        assert_eq!(client(&["put", key, "value"]).0, Some(0));
    }
    cell_tests::wait::until("status has a line of each", || {
        let (_, said) = client(&["status"]);
        (0..3).all(|by| said.lines().any(|line| line.contains(&address(by))))
    });

    signal(before[1], Signal::KILL);
    assert_eq!(event(&mut lines, "died")["node"], 1);
    let again = event(&mut lines, "serving");
    assert_eq!((&again["node"], &again["life"]), (&1.into(), &2.into()), "{again}");
    let mut after = before.clone();
    after[1] = by_number(again["pid"].as_u64().unwrap());
    assert!(cell_tests::process::children(Pid::from_child(&started)).contains(&before[0]));
    for key in ["0", "T", "x"] {
        assert_eq!(client(&["get", key]).1, "value\n");
    }

    signal(Pid::from_child(&started), Signal::KILL);
    started.wait().unwrap();
    wait_ended(&after);
}

#[test]
fn processes_that_cannot_be_are_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for (arguments, words) in [
        (&["--processes=0"][..], "1..=64"),
        (&["--processes=65"][..], "1..=64"),
        (&["--processes=2", "--node-id=1023"][..], "would end at 1024"),
        (&["--processes=2", "--listen-address=127.0.0.1:65535"][..], "would need port 65536"),
        (&["--processes=2", "--http-address=127.0.0.1:7001"][..], "collide"),
        (&["--processes=4", "--memory-limit-bytes=200MiB"][..], "too few for 4 processes"),
        (&["--processes=2", "ls"][..], "--processes is for nodes that are to run"),
    ] {
        let mut node = command(&["node", "--data-dir", data.to_str().unwrap()]);
        let output = node.args(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
    assert!(!data.exists());
}
