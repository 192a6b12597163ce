//! A node whose only pair was made by splits between two keys, as a split between keys of drills makes one:
//! keys of a drill lie there, too, and all of them are found again.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use cell_tests::lease::{LEASE, LONG_LEASE};
use cell_tests::program::{self, Said};
use cell_tests::server::Server;
use cell_tests::wait;
use serde_json::Value;

use crate::drills::{Lasts, SMALL_MEGANODES, json, pass_with, shape, wait_healthy};

/// Pairs move as the test says alone.
const FLAGS: [&str; 4] = ["--nodes=2", "--allow-drills", "--balance=off", "--http-changes-per-second=10000"];
/// No drill has a key between two of these.
const PREFIX: &str = "m-load-";
/// So many are loaded at once; so often, until a pair holds nothing else.
const LOADED_AT_ONCE: u64 = 10_000;
const LOADS_MAX: u64 = 10;
/// The node that is to own that pair alone.
const NODE: u64 = 1;
/// Exit codes.
const CAME_TO_NOTHING: i32 = 1;
const REFUSED: i32 = 3;
const TRAFFIC: [&str; 4] = ["--before", "300ms", "--rate", "1000"];

/// A command that must succeed.
fn done(said: Said) -> Said {
    assert_eq!(said.code, Some(0), "{said:?}");
    said
}

/// A command of the admin API. It is refused, or comes to nothing, while a node that has just started has not
/// reported what it has, and while a pair takes part in a split.
fn admin(server: &Server, arguments: &[&str]) {
    let http = server.http_address().to_string();
    wait::until(&format!("{arguments:?} is done"), || {
        let said = program::run(&[arguments, &["--http", &http]].concat());
        assert!(matches!(said.code, Some(0 | CAME_TO_NOTHING | REFUSED)), "{said:?}");
        said.code == Some(0)
    });
}

fn count(server: &Server, more: &[&str]) -> u64 {
    let said = done(server.cell(&[&["count"][..], more].concat()));
    said.out.trim().parse().expect("a number")
}

fn load(server: &Server, from: u64) {
    let mut lines = String::new();
    for number in from..from + LOADED_AT_ONCE {
        let _ = writeln!(lines, "{PREFIX}{number:06}\t{number}"); // a string takes everything
    }
    let file = server.folder().with_file_name(format!("entries-{from}.tsv"));
    fs::write(&file, lines).expect("the folder can be written");
    done(server.cell(&["load", file.to_str().expect("it is text")]));
}

/// A pair all of whose ranges lie between two of the keys that were loaded.
fn pair_between(shape: &Value) -> Option<u64> {
    let rows = shape["meganodes"].as_array().expect("rows");
    let of = |row: &Value| row["pair"].as_u64().expect("a number");
    if rows.iter().any(|row| row["use"] == "adopted") {
        return None; // a split is under way
    }
    let mut lie_between: BTreeMap<u64, bool> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate() {
        let begins = |row: Option<&Value>| {
            row.and_then(|row| row["low_key"].as_str()).is_some_and(|low| low.starts_with(PREFIX))
        };
        let is_between = row["use"] == "entries" && begins(Some(row)) && begins(rows.get(at + 1));
        *lie_between.entry(of(row)).or_insert(true) &= is_between;
    }
    lie_between.into_iter().find(|(_, are)| *are).map(|(pair, _)| pair)
}

/// Loads until there is such a pair; which, and how many entries there are.
fn load_until_between(server: &Server) -> (u64, u64) {
    for loads in 0..LOADS_MAX {
        load(server, loads * LOADED_AT_ONCE);
        if let Some(pair) = pair_between(&shape(server)) {
            return (pair, (loads + 1) * LOADED_AT_ONCE);
        }
    }
    panic!("no pair lies between two keys: {}", shape(server));
}

/// Has the node own that pair and no other one.
fn give(server: &Server, pair: u64) {
    wait_healthy(server);
    admin(server, &["node", "drain", &NODE.to_string(), "--wait"]);
    admin(server, &["node", "undrain", &NODE.to_string()]);
    admin(server, &["region", "move", &pair.to_string(), "--to", &NODE.to_string(), "--wait"]);
    assert_eq!(wait_healthy(server).get(&NODE), Some(&vec![pair]));
}

/// It ended as inconclusive, however high its rate was.
#[test]
fn drill_of_a_node_whose_pair_lies_between_two_keys_passes_and_leaves_nothing() {
    let server = Server::start_with(&[&FLAGS[..], &SMALL_MEGANODES, &LONG_LEASE].concat());
    let (pair, entries) = load_until_between(&server);
    give(&server, pair);
    pass_with(&server, NODE, ("kill", &Lasts::PastTheLease.argument(LEASE)), "auto", &TRAFFIC);
    assert_eq!(count(&server, &[]), entries, "its own are gone, the others are there");

    give(&server, pair);
    let kept = [&TRAFFIC[..], &["--keep"]].concat();
    let report = pass_with(&server, NODE, ("restart", &Lasts::Moment.argument(LEASE)), "auto", &kept);
    let run = report["run"].as_str().expect("it has a number");
    let left = count(&server, &[]) - entries;
    assert!(left > 0 && Some(left) <= report["entries_left"].as_u64(), "{left}: {report}");
    assert!(count(&server, &["--prefix", &format!("0-drilled-{run}-")]) > 0, "the pair was passed by");
    let between = count(&server, &["--prefix", PREFIX]) - entries;
    assert!(between > 20, "{between} keys lie between those that were loaded");
    let address = server.address().to_string();
    let cleaned = done(program::run(&["--json", "drill", "clean", "--server", &address]));
    assert_eq!(json(&cleaned)["count"], left, "{cleaned:?}");
    assert_eq!(count(&server, &[]), entries);
    assert_eq!(count(&server, &["--prefix", PREFIX]), entries);
    done(server.cell(&["verify"]));
}
