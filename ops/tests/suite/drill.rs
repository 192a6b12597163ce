//! Drills on one node: who may, what is refused, and what they show.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Output, Stdio};

use crate::harness::{Dev, command};
use cell_tests::wait;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn drill(dev: &Dev, arguments: &[&str]) -> Output {
    command(&["drill"]).args(arguments).args(["--dir", dev.data()]).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// An error says what, why and what next, and has its exit code.
fn refused(output: &Output, exit: i32, words: &[&str]) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{error}");
    assert!(output.stdout.is_empty());
    for word in words.iter().chain(&["next: "]) {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}

fn raw(dev: &Dev, line: &str) -> Value {
    let stream = UnixStream::connect(dev.server.folder().join("drill.socket")).unwrap();
    writeln!(&stream, "{line}").unwrap();
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

#[test]
fn drill_arguments_that_make_no_sense_exit_with_2() {
    for arguments in [
        &["drill"][..],
        &["drill", "run", "explode", "--node", "0"],
        &["drill", "run", "kill"],
        &["drill", "run", "kill", "--node", "1024"],
        &["drill", "run", "stop", "--node", "0", "--duration", "soon"],
        &["drill", "run", "stop", "--node", "0", "--rate", "0"],
        &["drill", "run", "stop", "--node", "0", "--threads", "0"],
        &["drill", "run", "stop", "--node", "0", "--agents", "https://host-1:7090"],
        &["drill", "run", "stop", "--node", "0", "--agents", "host-1"],
        &["drill", "ls", "--dir", "data", "--agents", "host-1:7090"],
        &["drill", "run", "stop", "--node", "0", "--delay", "100ms"],
        &["drill", "run", "slow-disk", "--node", "0", "--delay", "3s"],
        &["drill", "run", "slow-disk", "--node", "0", "--delay", "0ms"],
        &["dev", "--nodes", "0"],
        &["dev", "--nodes", "65"],
        &["dev", "--restart", "maybe"],
    ] {
        let output = command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn drill_without_a_cluster_or_permission_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let words = ["drill.socket: there is none", "cell dev --allow-drills"];
    for arguments in [&["drill", "ls"][..], &["drill", "run", "kill", "--node", "0"], &["drill", "heal"]] {
        refused(&command(arguments).args(["--dir", dir]).output().unwrap(), 4, &words);
    }
    // A cluster that does not allow them has no socket, also where an earlier one left its own.
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    drop(std::os::unix::net::UnixListener::bind(data.join("drill.socket")).unwrap());
    refused(
        &command(&["drill", "ls", "--dir", data.to_str().unwrap()]).output().unwrap(),
        4,
        &["nobody listens"],
    );
    let mut dev = Dev::start();
    refused(&drill(&dev, &["run", "kill", "--node", "0"]), 4, &words);
    assert_eq!(dev.stop(), Some(0));
}

#[test]
fn drill_socket_takes_known_requests_of_its_user_alone() {
    let mut dev = Dev::start_with(&["--allow-drills"]);
    let socket = dev.server.folder().join("drill.socket");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    for (line, word) in [
        ("nonsense", "this is no request"),
        (r#"{"do":"explode","node":0}"#, "this is no request"),
        (r#"{"do":"kill"}"#, "this is no request"),
        (r#"{"do":"kill","node":7}"#, "there is no node 7: the cluster has 1"),
        (r#"{"do":"partition","node":0,"on":true,"way":"up"}"#, "this is no request"),
        (r#"{"do":"slow_disk","node":0,"delay_ms":2001}"#, "cannot be slower by 2001 ms"),
    ] {
        let answer = raw(&dev, line);
        assert!(answer["refused"]["what"].as_str().unwrap().contains(word), "{answer}");
        assert!(!answer["refused"]["next"].as_str().unwrap().is_empty());
    }
    let status = raw(&dev, r#"{"do":"status"}"#);
    assert_eq!(status["status"]["nodes"][0]["state"], "serving");
    refused(&drill(&dev, &["run", "kill", "--node", "3"]), 2, &["there is no node 3"]);

    assert_eq!(raw(&dev, r#"{"do":"stop","node":0}"#).get("refused"), None);
    let words = ["begins with a healthy cluster, but node 0 is stopped", "cell drill heal"];
    refused(&drill(&dev, &["run", "kill", "--node", "0"]), 5, &words);
    assert_eq!(text(&drill(&dev, &["heal"]).stdout), "node 0\n");
    dev.wait_healthy();

    assert_eq!(raw(&dev, r#"{"do":"slow_disk","node":0,"delay_ms":5}"#).get("refused"), None);
    assert!(text(&drill(&dev, &["ls"]).stdout).contains("serving, disk slower by 5 ms"));
    let words = ["begins with a healthy cluster, but node 0 is slowed down", "cell drill heal"];
    refused(&drill(&dev, &["run", "kill", "--node", "0"]), 5, &words);
    assert_eq!(text(&drill(&dev, &["heal"]).stdout), "node 0\n");
    assert_eq!(text(&drill(&dev, &["heal"]).stdout), "");

    // Killed, and not to come back for an hour: it does at once.
    assert_eq!(raw(&dev, r#"{"do":"kill","node":0,"down_ms":3600000}"#).get("refused"), None);
    let state = || raw(&dev, r#"{"do":"status"}"#)["status"]["nodes"][0]["state"].take();
    wait::until("the node is down", || state() == "down");
    assert_eq!(text(&drill(&dev, &["heal"]).stdout), "node 0\n");
    dev.wait_healthy();

    another_user_is_refused(&dev);
    dev.wait_healthy();
    assert_eq!(dev.stop(), Some(0));
    assert!(!socket.exists(), "it goes with the cluster");
}

/// Two at once took each other's drains away, and a node was removed in the middle of both.
#[test]
fn while_a_drill_runs_another_is_refused_and_no_node_comes_or_goes() {
    let mut dev = Dev::start_with(&["--allow-drills"]);
    let first = UnixStream::connect(dev.server.folder().join("drill.socket")).unwrap();
    let begin = r#"{"do":"begin","node":0}"#;
    writeln!(&first, "{begin}").unwrap();
    let mut answer = String::new();
    BufReader::new(&first).read_line(&mut answer).unwrap();
    assert!(!answer.contains("refused"), "{answer}");
    let scale = || command(&["dev", "scale", "2", "--dir", dev.data()]).output().unwrap();
    let words = ["a drill of node 0 is running"];
    refused(&drill(&dev, &["run", "rolling"]), 2, &words);
    refused(&scale(), 2, &words);
    assert_eq!(raw(&dev, r#"{"do":"status"}"#)["status"]["nodes"].as_array().map(Vec::len), Some(1));
    drop(first);
    let grown = scale();
    assert_eq!(grown.status.code(), Some(0), "{}", text(&grown.stderr));
    assert_eq!(dev.stop(), Some(0));
}

fn another_user_is_refused(dev: &Dev) {
    let data = dev.server.folder();
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(data.parent().unwrap(), 0o755);
    open(&data.join("drill.socket"), 0o666);
    let mut nobody = command(&["drill", "ls", "--dir", dev.data()]);
    match nobody.uid(65_534).output() {
        Ok(output) => refused(&output, 2, &["user 65534 may not inject faults"]),
        Err(error) => println!("SKIPPED: a drill by another user: {error}; it needs root"),
    }
}

#[test]
fn drill_of_an_only_node_passes_for_each_fault() {
    let mut dev = Dev::start_with(&["--allow-drills"]);
    dev.out(&["put", "greeting", "hello"]);
    let quick = ["--json", "--before", "300ms", "--rate", "1000"];
    for fault in
        [&["kill"][..], &["stop", "--duration", "4500ms"], &["restart"], &["kill", "--duration", "4s"]]
    {
        let output = drill(&dev, &[&["run", "--node", "0"], fault, &quick].concat());
        let report = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{fault:?}: {report} {}", text(&output.stderr));
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!((&report["verdict"], &report["lost"]), (&"PASS".into(), &0.into()), "{report}");
        assert_eq!(report["acknowledged"], report["found"]);
        assert!(report["served_ms"].as_f64().unwrap() > 0.0, "{report}");
        assert!(report["unavailable_ms_max"].as_f64() >= report["served_ms"].as_f64().map(|ms| ms / 2.0));
    }
    // What passed is tidied up; what was there stays.
    assert_eq!(dev.out(&["scan"]), "greeting\thello\n");
    let output =
        drill(&dev, &["run", "stop", "--node", "0", "--duration", "1ms", "--before", "1ms", "--rate", "1"]);
    assert_eq!(output.status.code(), Some(8), "{}", text(&output.stdout));
    assert!(text(&output.stdout).starts_with("INCONCLUSIVE: stop node 0\n"), "{}", text(&output.stdout));
    assert_eq!(dev.out(&["scan"]), "greeting\thello\n", "what shows nothing leaves nothing");
    kept_entries_are_cleaned(&dev);
    assert_eq!(dev.stop(), Some(0));
}

/// 22,237 entries of drills were once left in a store, and nobody said how to be rid of them.
fn kept_entries_are_cleaned(dev: &Dev) {
    dev.out(&["put", "a-drill-of-mine", "mine"]);
    let short = ["run", "restart", "--node", "0", "--before", "1ms", "--rate", "300", "--json"];
    let kept = drill(dev, &[&short[..], &["--keep"]].concat());
    let report: Value = serde_json::from_slice(&kept.stdout).unwrap();
    let (run, left) = (report["run"].as_str().unwrap(), report["entries_left"].as_u64().unwrap());
    assert!(left > 0, "{report}");
    let said = text(&kept.stderr);
    let clean = format!("`cell drill clean --run {run} --server {}` removes them", dev.address());
    assert!(said.contains(&clean), "{said}");
    let count = || dev.out(&["count"]).trim().parse::<u64>().unwrap();
    let before = count();
    assert!(2 < before && before <= left + 2, "{before} entries, {left} were left");
    let cleaned = |arguments: &[&str]| -> Value {
        let said = dev.out(&[&["--json", "drill", "clean"], arguments].concat());
        serde_json::from_str(&said).unwrap()
    };
    assert_eq!((&cleaned(&["--run", "00000000000000ff"])["count"], count()), (&0.into(), before));
    let all = cleaned(&["--run", run]);
    assert_eq!((&all["count"], &all["runs"]), (&(before - 2).into(), &serde_json::json!([run])));
    assert_eq!(dev.out(&["scan"]), "a-drill-of-mine\tmine\ngreeting\thello\n");
    assert_eq!(cleaned(&[])["count"], 0);
    // One that is interrupted says the same.
    let start = || command(&["drill", "run", "stop", "--node", "0", "--before", "60s", "--dir", dev.data()]);
    let child = start().stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let has_some = || count() > 3; // its mark is one
    wait::until("the drill writes", has_some);
    let goes_on = dev.cell(&["drill", "clean", "--json"]);
    assert_eq!(goes_on.status.code(), Some(6), "{}", text(&goes_on.stderr));
    let document: Value = serde_json::from_slice(&goes_on.stdout).unwrap();
    let run = document["going_on"][0].as_str().unwrap();
    assert_eq!(document["count"], 0, "nothing of it was removed");
    let ended = format!("`cell drill clean --run {run} --ended --server {}`", dev.address());
    assert!(text(&goes_on.stderr).contains(&ended), "{}", text(&goes_on.stderr));
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    let interrupted = child.wait_with_output().unwrap();
    let said = text(&interrupted.stderr);
    assert_eq!(interrupted.status.code(), Some(130), "a closed terminal stops it in order: {said}");
    assert!(said.contains("cell drill clean --run ") && said.contains("interrupted"), "{said}");
    dev.wait_healthy();
    assert!(cleaned(&[])["count"].as_u64() > Some(0));
    assert_eq!(count(), 2);
    // One that is killed leaves its mark.
    let mut child = start().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait::until("the drill writes", has_some);
    child.kill().unwrap();
    child.wait().unwrap();
    let refused = dev.cell(&["drill", "clean"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(6), "{said}");
    let run = said.split("--run ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(cleaned(&["--run", run, "--ended"])["count"].as_u64() > Some(0));
    assert_eq!((count(), &cleaned(&[])["count"]), (2, &0.into()), "its mark, too");
}

/// The twin that must fail: a store that logs nothing loses what it acknowledged, and the drill says so.
#[test]
fn drill_of_a_store_without_a_log_fails_and_names_what_is_lost() {
    let dev = Dev::start_with(&["--allow-drills", "--durability=none"]);
    let output = drill(&dev, &["run", "kill", "--node", "0", "--json", "--before", "3s"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(7), "{report}");
    assert_eq!(report["verdict"], "FAIL");
    assert!(report["lost"].as_u64().unwrap() > 100, "{report}");
    assert!(report["wrong"][0]["key"].as_str().unwrap().contains("-drill-"), "{report}");
    let ways = report["ways"].as_object().unwrap();
    assert_eq!(ways.keys().collect::<Vec<_>>(), ["client", "scan", "server"]);
}
