//! What the documents say beside what is: of a cluster whose truth the test knows, whole, without one node's
//! answers, after a node died, and while clients read one-sidedly.

use std::time::{SystemTime, UNIX_EPOCH};

use cell_client::{Client, ClientOptions, Search, Transport};
use cell_tests::known::{KnownCluster, rows};
use cell_tests::process::{signal, stop};
use cell_tests::wait;
use rustix::process::Signal;
use serde_json::Value;

/// The node that something is done to.
const AWAY: u64 = 2;

#[allow(clippy::disallowed_methods, reason = "events have times of the wall clock")]
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later");
    u64::try_from(since.as_millis()).expect("it is not that late")
}

fn entries(status: &Value) -> u64 {
    rows(status, "nodes").iter().filter_map(|row| row["entries"].as_u64()).sum()
}

fn is_whole(status: &Value, entries_all: u64) -> bool {
    rows(status, "missing").is_empty()
        && entries(status) == entries_all
        && status["pairs"]["served"] == status["pairs"]["all"]
}

/// The events of a node's death, as one node reports them, newest first: id and time.
fn death_events(document: &Value, incarnation: &str) -> Vec<(String, u64)> {
    let of = |event: &Value| {
        let id = event["id"].as_str().expect("a text").to_owned();
        (id, event["at_unix_ms"].as_u64().expect("a number"))
    };
    let is_of = |id: &str| {
        id == format!("left-{incarnation}")
            || ["incident", "over"].iter().any(|kind| id.starts_with(&format!("{kind}-{incarnation}-")))
            || (id.starts_with("takeover-") && id.contains(&format!("-{incarnation}-")))
    };
    rows(document, "events").iter().map(of).filter(|(id, _)| is_of(id)).collect()
}

/// Where the events have the return of the node that was this incarnation.
fn joined(events: &Value, before: &str) -> Option<usize> {
    rows(events, "events").iter().position(|event| {
        let id = event["id"].as_str().unwrap_or_default();
        event["node"] == AWAY && id.starts_with("joined-") && id != format!("joined-{before}")
    })
}

#[test]
fn documents_say_what_is_true_whole_in_part_and_after_a_death() {
    let known = KnownCluster::start();
    let all = known.entries();
    known.wait_document(0, "cluster/status", "all is well, and idle", |status| {
        is_whole(status, all)
            && status["verdict"]["sentence"]
                .as_str()
                .is_some_and(|says| says.starts_with("All 3 nodes serve"))
            && status["log"]["sync_p50_us"].is_null()
            && status["log"]["lag_bytes"] == 0
            && status["searches"]["one_sided_share"].is_null()
    });

    // One node's answers are missing: sums leave its part out and say so, and nothing is green.
    let process = known.server.view().process(AWAY).expect("it runs");
    stop(process);
    let entries_reported = all - known.entries_of(AWAY);
    let status = known.wait_document(0, "cluster/status", "a node is missing", |status| {
        rows(status, "missing").len() == 1 && status["missing"][0]["node"] == AWAY
    });
    signal(process, Signal::CONT); // long before its lease ends
    assert_eq!(entries(&status), entries_reported, "{status}");
    assert_ne!(status["verdict"]["level"], "ok", "{status}");
    assert_eq!(status["faults_survivable"]["nodes"], 0, "{status}");
    known.wait_document(0, "cluster/status", "all is reported again", |status| is_whole(status, all));

    // A death: what came of it is reported in its order and at its times.
    let row = |status: &Value| rows(status, "nodes").iter().find(|row| row["node"] == AWAY).cloned();
    let status = known.wait_document(0, "nodes", "its row is there", |status| row(status).is_some());
    let incarnation = row(&status).expect("its row")["incarnation"].as_str().expect("a text").to_owned();
    let killed = unix_ms();
    signal(process, Signal::KILL);
    let is_over = |events: &Value| {
        let seen = death_events(events, &incarnation);
        let has = |kind: &str| seen.iter().any(|(id, _)| id.starts_with(kind));
        has("left-") && (!has("incident-") || has("over-")) && joined(events, &incarnation).is_some()
    };
    known.wait_document(0, "cluster/status", "every pair is served again", |status| {
        let lives =
            row(status).is_some_and(|row| row["incarnation"] != *incarnation && row["state"] == "serving");
        lives && is_whole(status, all)
    });
    let events = known.wait_document(0, "events", "its death is reported", is_over);
    let now = unix_ms();
    let seen = death_events(&events, &incarnation);
    assert!(seen.iter().all(|(_, at)| (killed..=now).contains(at)), "{killed}..{now}: {seen:?}");
    let place = |kind: &str| seen.iter().position(|(id, _)| id.starts_with(kind));
    // Newest first.
    for (later, earlier) in [("over-", "takeover-"), ("takeover-", "incident-"), ("incident-", "left-")] {
        if let (Some(later), Some(earlier)) = (place(later), place(earlier)) {
            assert!(later < earlier, "{seen:?}");
        }
    }
    let left = rows(&events, "events").iter().position(|event| event["id"] == format!("left-{incarnation}"));
    assert!(joined(&events, &incarnation) < left, "{events}");
}

/// One-sided reads of each client.
const READS: u64 = 3_000;

/// The column of a key in a document that has where ranges begin, in hexadecimal digits.
fn column(document: &Value, key: &[u8]) -> usize {
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    rows(document, "lows")
        .iter()
        .rposition(|low| low.as_str().is_some_and(|low| low <= &*key))
        .expect("a range")
}

/// The columns of which a row of heat has some reads.
fn hot(heat: &Value) -> Vec<usize> {
    let rows = rows(heat, "reads").iter().filter_map(Value::as_array);
    let cells = rows.flat_map(|row| row.iter().enumerate());
    cells.filter(|(_, rate)| rate.as_f64().is_some_and(|rate| rate > 0.0)).map(|(at, _)| at).collect()
}

#[test]
fn one_sided_reads_are_in_the_heat_of_their_range_and_in_no_other() {
    let known = KnownCluster::start();
    let reported = |node| known.metric(node, "cell_client_reads_told_total");
    let all_reported = || known.nodes().map(reported).sum::<u64>();
    let key = known.key(7);
    let mut made = 0;
    for transport in [Transport::Tcp, Transport::Shm] {
        let before = all_reported();
        let options = ClientOptions { transport, search: Search::Client, ..ClientOptions::default() };
        let address = known.server.address().to_string();
        let mut client = Client::connect(&address, options).expect("the cluster serves");
        for _ in 0..READS {
            assert!(client.get(&key).expect("it is served").is_some());
        }
        wait::until("the client's reads are reported", || {
            client.get(&key).expect("it is served"); // a report leaves when the client is at work
            all_reported() - before >= READS * 9 / 10
        });
        made += client.one_sided_counters().expect("it reads one-sidedly").started;
    }
    // A read that was tried again counts again; there are few of them, and nobody else reads.
    assert!(all_reported() <= made + made / 5, "{} were reported of {made}", all_reported());
    assert_eq!(known.nodes().filter(|node| reported(*node) > 0).count(), 1, "by one node, whose key it is");
    for node in known.nodes() {
        let path = "tree/heat?columns=512&step=10";
        let heat = known.wait_document(node, path, "the heat is there", |heat| {
            rows(heat, "missing").is_empty() && !hot(heat).is_empty()
        });
        let at = column(&heat, &key);
        assert!(hot(&heat).iter().all(|hot| *hot == at), "{at} alone is read: {heat}");
    }
}
