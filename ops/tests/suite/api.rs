//! Commands that ask the admin API of a real cluster: what they print, and how they end.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Output;

use crate::harness::Dev;
use cell_tests::process::{by_number, signal};
use cell_tests::wait;
use rustix::process::Signal;
use serde_json::Value;

/// The exit code of a command to which not all nodes have answered.
const PARTIAL: i32 = 6;

/// Asks the first node.
fn ask(dev: &Dev, arguments: &[&str]) -> Output {
    dev.cell(&[arguments, &["--http", &dev.http()]].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit code, standard output, standard error.
fn printed(output: &Output) -> (i32, String, String) {
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// What a command prints as JSON, which carries a version, and how it ends.
fn json(dev: &Dev, arguments: &[&str], exit: i32) -> Value {
    let arguments = [arguments, &["--json"]].concat();
    let output = if exit == PARTIAL { ask(dev, &arguments) } else { ask_whole(dev, &arguments) };
    let (code, out, error) = printed(&output);
    assert_eq!(code, exit, "{arguments:?}: {out} {error}");
    document(&out)
}

/// A document that a command has printed.
fn document(out: &str) -> Value {
    let document: Value = serde_json::from_str(out).unwrap_or_else(|_| panic!("{out}"));
    assert_eq!(document["version"], 1, "{document}");
    document
}

/// Asks until no node is late: a peer that takes 200 ms is left out.
fn ask_whole(dev: &Dev, arguments: &[&str]) -> Output {
    let whole = || Some(ask(dev, arguments)).filter(|output| output.status.code() != Some(PARTIAL));
    wait::until_some("every node answers", whole)
}

fn len(value: &Value, name: &str) -> usize {
    value[name].as_array().unwrap_or_else(|| panic!("{name}: {value}")).len()
}

/// `POST` of a JSON body to the first node; the answer's document.
fn post(dev: &Dev, path: &str, body: &str) -> Value {
    let (_, document) = dev.server.http_post(0, path, body).unwrap();
    serde_json::from_str(&document).unwrap_or_else(|_| panic!("{path}: {document}"))
}

/// A new cluster spreads its tree over its nodes, and a key whose meganode is on its way has no place for a
/// moment: it is to be asked for again.
fn keys_are_located(dev: &Dev) {
    dev.out(&["put", "greeting", "hello"]);
    wait::until("the keys have a place that lasts", || are_keys_located(dev));
    assert_eq!(printed(&ask(dev, &["tree", "locate", ""])).0, 2);
}

/// False while a key is on its way.
fn are_keys_located(dev: &Dev) -> bool {
    let locate = |arguments: &[&str]| printed(&ask(dev, &[&["tree", "locate"], arguments].concat()));
    let looks = [
        locate(&["greeting", "--json"]),
        locate(&["--hex", "6772656574696e67"]),
        locate(&["nobody", "--json"]),
    ];
    if let Some((_, out, error)) = looks.iter().find(|(code, ..)| *code == 4) {
        assert!(format!("{out}{error}").contains("ask again"), "{out} {error}");
        return false;
    }
    let [(found, json, error), (hex_found, text, _), (nobody_found, nobody, _)] = looks;
    assert_eq!((found, hex_found, nobody_found), (0, 0, 3), "{json} {error} {text} {nobody}");
    let located = document(&json);
    assert_eq!((&located["found"], &located["bytes"]), (&true.into(), &5.into()));
    assert_eq!(document(&nobody)["found"], false);
    assert!(text.starts_with("greeting: an entry with a value of 5 B\n") && text.contains("leaf"), "{text}");
    text.contains(&format!("meganode {}\n", located["meganode"].as_str().unwrap()))
}

fn nodes_and_regions_are_listed(dev: &Dev) {
    let nodes = json(dev, &["node", "ls"], 0);
    assert_eq!((len(&nodes, "nodes"), len(&nodes, "missing")), (2, 0), "{nodes}");
    let (code, out, _) = printed(&ask_whole(dev, &["node", "ls"]));
    assert_eq!((code, out.lines().count(), out.matches("serving").count()), (0, 3, 2), "{out}");
    let (code, _, error) = printed(&dev.cell(&["node", "--node-id", "1", "ls"]));
    assert!(code == 2 && error.contains("--node-id is a setting of a node that runs"), "{code} {error}");
    let regions = json(dev, &["region", "ls"], 0);
    assert!(len(&regions, "regions") >= 4, "{regions}");
    let (code, out, _) = printed(&ask_whole(dev, &["region", "ls"]));
    assert_eq!((code, out.matches("served").count()), (0, len(&regions, "regions")), "{out}");
}

/// They took `--http` alone, and `cell selector --server` was a usage error.
fn nodes_are_found_by_their_fabric(dev: &Dev) {
    let server = dev.address();
    for command in [&["node", "ls"][..], &["selector"], &["tune", "diff"], &["events"], &["region", "ls"]] {
        // a node that is late makes an answer partial
        let by_server = [command, &["--server", &server]].concat();
        wait::until(&format!("{by_server:?}"), || dev.code(&by_server) == 0);
        wait::until(&format!("CELL_SERVER is enough for {command:?}"), || dev.code(command) == 0);
        let nobody = printed(&dev.cell(&[command, &["--server", "127.0.0.1:1"]].concat()));
        assert!(nobody.0 == 4 && nobody.2.contains("is a node running at 127.0.0.1:1?"), "{nobody:?}");
    }
    let (code, _, error) = printed(&dev.cell(&["tune", "get", "nothing", "--server", &server]));
    assert!(code == 3 && error.contains(&format!("`cell tune ls --server {server}` lists")), "{error}");
    assert_eq!(dev.code(&["tune", "ls", "--server", &server, "--http", &dev.http()]), 2);
}

fn unknown_nodes_are_refused(dev: &Dev) {
    let (code, _, error) = printed(&ask(dev, &["events", "--node", "9"]));
    assert!(code == 2 && error.contains("there is no node 9; those that are: 0, 1"), "{code} {error}");
}

fn tree_is_checked(dev: &Dev) {
    let checked = json(dev, &["tree", "check"], 0);
    assert_eq!((&checked["state"], &checked["violations"]), (&"passed".into(), &0.into()), "{checked}");
    assert_eq!((len(&checked, "nodes"), &checked["entries"]), (2, &1.into()), "{checked}");
    let (code, out, _) = printed(&ask_whole(dev, &["tree", "check"]));
    assert!(code == 0 && out.starts_with("no violations: "), "{code} {out}");
}

fn drill_is_reported(dev: &Dev) {
    let (code, _, error) = printed(&ask(dev, &["drill", "report"]));
    assert!(code == 3 && error.contains("next:"), "{code} {error}");
    let wanted = r#"{"kind": "restart", "node": 1, "confirm": "node-1", "before_ms": 500}"#;
    let started = post(dev, "/api/v1/drills", wanted);
    let id = started["operation"].as_str().unwrap_or_else(|| panic!("{started}"));
    wait::until("the drill ends", || !json_of_run(dev, id)["ended_unix_ms"].is_null());
    let run = json_of_run(dev, id);
    let exit = match run["state"].as_str() {
        Some("passed") => 0,
        Some("failed") => 7,
        _ => 8,
    };
    let newest = json(dev, &["drill", "report"], exit);
    assert_eq!((&newest["id"], len(&newest, "missing")), (&id.into(), 0), "{newest}");
    let (code, out, _) = printed(&ask(dev, &["drill", "report", id]));
    let verdict = run["report"]["verdict"].as_str().unwrap();
    assert!(code == exit && out.starts_with(&format!("{verdict}: restart node 1\n")), "{code} {out}");
    assert!(out.contains("writes acknowledged") && out.contains("linearizable"), "all was read: {out}");
    assert_eq!(printed(&ask(dev, &["drill", "report", "drill-0-0"])).0, 3);
}

fn json_of_run(dev: &Dev, id: &str) -> Value {
    let output = ask(dev, &["drill", "report", id, "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{:?}", printed(&output)))
}

#[test]
fn commands_over_the_api_print_what_two_nodes_return() {
    let mut dev = Dev::launched_with(&["--nodes=2", "--allow-drills"]);
    dev.wait_for("up");
    dev.wait_healthy();
    keys_are_located(&dev);
    nodes_and_regions_are_listed(&dev);
    nodes_are_found_by_their_fabric(&dev);
    unknown_nodes_are_refused(&dev);
    tree_is_checked(&dev);
    drill_is_reported(&dev);
}

/// What cannot be asked is named, and what can be is shown.
#[test]
fn commands_over_the_api_name_a_node_that_does_not_answer() {
    // No survivor takes over within the test: the dead node stays a member.
    let mut dev = Dev::launched_with(&["--nodes=3", "--restart=off", "--lease-ms=60000"]);
    let up = dev.wait_for("up");
    dev.wait_healthy();
    cell_tests::wait::until("the first node knows all others", || {
        let (_, out, _) = printed(&ask(&dev, &["node", "ls", "--json"]));
        len(&document(&out), "nodes") == 3
    });
    let pid = up["nodes"][1]["pid"].as_u64().unwrap();
    signal(by_number(pid), Signal::KILL);
    dev.wait_for("given_up");
    for command in [&["node", "ls"][..], &["region", "ls"], &["tree", "check"]] {
        // What a node has heard of another one may be a moment old.
        cell_tests::wait::until("it is missed", || printed(&ask(&dev, command)).0 == 6);
        let document = json(&dev, command, 6);
        assert_eq!(document["missing"][0]["node"], 1, "{command:?}: {document}");
        let (code, _, error) = printed(&ask(&dev, command));
        assert!(code == 6 && error.contains("node 1 at 127.0.0.1:"), "{command:?}: {code} {error}");
    }
    let checked = json(&dev, &["tree", "check"], 6);
    assert_eq!((&checked["state"], len(&checked, "unchecked_pairs")), (&"incomplete".into(), 1), "{checked}");
    let (_, out, _) = printed(&ask(&dev, &["node", "ls"]));
    assert!(out.contains("no answer"), "{out}");
    let nobody = ["--http", "127.0.0.1:1"];
    for command in [&["node", "ls"][..], &["region", "ls"], &["tree", "check"], &["drill", "report"]] {
        assert_eq!(printed(&dev.cell(&[command, &nobody].concat())).0, 4, "{command:?}");
    }
}
