//! What metrics, documents and events say of a planned move, in a cluster whose truth the test knows.

use std::time::{SystemTime, UNIX_EPOCH};

use cell_tests::known::{KnownCluster, rows};
use cell_tests::{program, wait};
use serde_json::{Value, json};

const FROM: u16 = 2;
const TO: u16 = 0;

#[allow(clippy::disallowed_methods, reason = "events have times of the wall clock")]
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later");
    u64::try_from(since.as_millis()).expect("it is not that late")
}

/// The pair's events as a node reports them, oldest first: what, and when.
fn move_events(events: &Value, pair: u64) -> Vec<(String, u64)> {
    let of_pair = |event: &&Value| event["details"]["pair"] == pair;
    let dated = |event: &Value| {
        let what = event["details"]["what"].as_str().expect("a text").to_owned();
        (what, event["at_unix_ms"].as_u64().expect("a number"))
    };
    rows(events, "events").iter().rev().filter(of_pair).map(dated).collect()
}

#[test]
fn move_is_counted_by_both_ends_and_reported_by_every_node_at_its_times() {
    let known = KnownCluster::start();
    let address = known.server.address().to_string();
    let regions = known.document(FROM, "regions");
    let row = rows(&regions, "regions").iter().find(|row| row["node"] == FROM).expect("it owns a pair");
    let pair = row["pair"].as_u64().expect("a number");
    let (number, to) = (pair.to_string(), TO.to_string());
    let before = unix_ms();
    let mut command = vec!["region", "move", &number, "--to", &to, "--server", &address];
    command.extend(["--reason", "to see it", "--wait=2m"]);
    let moved = program::run(&command);
    assert_eq!(moved.code, Some(0), "{moved:?}");

    let ended = |end: &str| format!("cell_moves_ended_total{{end=\"{end}\",outcome=\"moved\"}}");
    for (node, end) in [(FROM, "source"), (TO, "target")] {
        wait::until("each end counts it", || known.metric(node, &ended(end)) == 1);
        assert_eq!(known.metric(node, &format!("cell_moves_under_way{{end=\"{end}\"}}")), 0);
        assert_eq!(known.metric(node, &format!("cell_moves_begun_total{{end=\"{end}\"}}")), 1);
    }
    assert!(known.metric(TO, "cell_move_copied_bytes_total") > 0);
    for name in ["cell_move_seconds_count", "cell_move_frozen_seconds_count"] {
        assert_eq!([known.metric(FROM, name), known.metric(TO, name)], [0, 1], "{name}");
    }
    for node in known.nodes() {
        let events = known.wait_document(node, "events?kind=move", "the move is reported", |events| {
            move_events(events, pair).len() == 3
        });
        let steps = move_events(&events, pair);
        let (what, at): (Vec<_>, Vec<_>) = steps.iter().map(|(what, at)| (what.as_str(), *at)).unzip();
        assert_eq!(what, ["begun", "handed", "moved"]);
        assert!(at.is_sorted() && (before..=unix_ms()).contains(&at[0]), "{before} {steps:?}");
        let seen = known.wait_document(node, "moves?scope=node", "each node has seen it", |moves| {
            rows(moves, "moves").iter().any(|of| of["pair"] == pair && of["outcome"] == "moved")
        });
        let of = rows(&seen, "moves").iter().find(|of| of["pair"] == pair).expect("it was there");
        assert_eq!((&of["from"], &of["to"]), (&json!(FROM), &json!(TO)));
        assert_eq!((of["wanted_unix_ms"].as_u64(), of["over_unix_ms"].as_u64()), (Some(at[0]), Some(at[2])));
        assert!(of["why"].as_str().is_some_and(|why| why.ends_with(": to see it")), "{of}");
    }
    let owner = known.document(TO, "regions");
    assert!(rows(&owner, "regions").iter().all(|row| row["pair"] != pair || row["node"] == TO), "{owner}");
}
