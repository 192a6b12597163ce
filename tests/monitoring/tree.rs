//! Where keys live, and what they have, as a cluster of real nodes returns it over HTTP.

use std::collections::BTreeSet;
use std::fs;

use cell_tests::server::Server;
use cell_tests::wait;
use serde_json::Value;

use crate::monitoring::conformity::check_answer;

const KEYS: usize = 400;
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Its value is longer than what is shown.
const LONG: (&str, usize) = ("grape", 100_000);

fn key(at: usize) -> String {
    let letters = ['0', 'A', 'K', 'a', 'g', 'é', 'p', 'z'];
    let letter = letters[at % letters.len()];
    format!("{letter}/{at:04}")
}

/// A cluster of three nodes with some keys of each, and one of a long value.
fn filled() -> Server {
    let server = Server::start_steady(&["--nodes", "3", "--slot-bytes", "8MiB"]);
    let mut lines: Vec<String> = (0..KEYS - 1).map(|at| format!("{}\tvalue {at}\n", key(at))).collect();
    lines.push(format!("{}\t{}\n", LONG.0, "x".repeat(LONG.1)));
    let file = server.folder().with_file_name("entries.tsv");
    fs::write(&file, lines.concat()).expect("the folder can be written");
    let loaded = server.cell(&["load", file.to_str().expect("it is text")]);
    assert_eq!(loaded.code, Some(0), "{loaded:?}");
    server.wait_http(0, "/api/v1/tree/buckets", &format!("\"entries_all\":{KEYS},"));
    server
}

/// What the first node answers, which is as the API's document says and not long.
fn ask(server: &Server, path: &str) -> (u16, Value) {
    let path = format!("/api/v1/{path}");
    let (status, body) = server.http(&path).expect("the node answers");
    assert!(body.len() <= ANSWER_BYTES_MAX, "{path}: {} bytes", body.len());
    let answer = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"));
    check_answer(server, &path, status, &answer);
    (status, answer)
}

fn get(server: &Server, path: &str) -> Value {
    let (status, document) = ask(server, path);
    assert_eq!(status, 200, "{path}: {document}");
    document
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("`{name}` is a list: {value}"))
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// All keys in hexadecimal digits, page by page.
fn pages(server: &Server, order: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut from = String::new();
    loop {
        let page = get(server, &format!("kv?limit=37&{order}{from}"));
        let hex = |entry: &Value| entry["key"]["hex"].as_str().expect("it is text").to_owned();
        keys.extend(list(&page, "entries").iter().map(hex));
        match page["next"].as_str() {
            Some(next) => from = format!("&from={next}"),
            None => return keys,
        }
    }
}

/// The buckets cover all keys, and each meganode has what its bucket says; the ids.
fn check_buckets(server: &Server) -> BTreeSet<String> {
    let document = wait::until_some("all nodes say what they have", || {
        Some(get(server, "tree/buckets?columns=256")).filter(|document| list(document, "missing").is_empty())
    });
    let buckets = list(&document, "buckets");
    assert_eq!(document["low"]["hex"], "");
    assert!(document["high"].is_null() && buckets.windows(2).all(|pair| pair[0]["high"] == pair[1]["low"]));
    let nodes: BTreeSet<_> = buckets.iter().map(|bucket| bucket["node"].as_u64()).collect();
    assert_eq!(nodes, BTreeSet::from([Some(0), Some(1), Some(2)]));
    let (mut entries, mut ids) = (0, BTreeSet::new());
    for bucket in buckets {
        let id = bucket["id"].as_str().expect("there are few of them");
        let meganode = get(server, &format!("tree/meganodes/{id}"));
        for name in ["low", "high", "node", "pair", "entries", "tree_nodes", "tree_nodes_all", "height"] {
            assert_eq!(meganode[name], bucket[name], "{name} of {id}");
        }
        assert_eq!((&meganode["use"], &bucket["state"]), (&"entries".into(), &"entries".into()));
        let root = get(server, &format!("tree/meganodes/{id}/nodes/0"));
        assert_eq!((&root["low"], &root["high"]), (&bucket["low"], &bucket["high"]));
        entries += bucket["entries"].as_u64().expect("it is a number");
        ids.insert(id.to_owned());
    }
    assert_eq!(entries, KEYS as u64);
    ids
}

#[test]
fn tree_and_entries_of_three_nodes_are_returned_by_one() {
    let server = filled();
    let ids = check_buckets(&server);
    let forth = pages(&server, "");
    assert_eq!((forth.len(), forth.is_sorted()), (KEYS, true));
    assert_eq!(pages(&server, "reverse=1"), forth.iter().rev().cloned().collect::<Vec<_>>());
    assert_eq!(
        pages(&server, &format!("prefix={}", hex("é/"))).len(),
        forth.iter().filter(|key| key.starts_with("c3a9")).count()
    );
    for at in [0, 1, 2, 3, 4, 5, 6, 7, KEYS - 2] {
        let key = key(at);
        let located = get(&server, &format!("tree/locate?key={}", hex(&key)));
        assert_eq!((&located["found"], &located["key"]["text"]), (&true.into(), &key.as_str().into()));
        assert_eq!(located["bytes"], format!("value {at}").len());
        let id = located["meganode"].as_str().expect("it is text");
        assert!(ids.contains(id), "{id} of {ids:?}");
        let leaf = &list(&located, "path").last().expect("there is a way")["index"];
        let leaf = get(&server, &format!("tree/meganodes/{id}/nodes/{leaf}"));
        assert!(list(&leaf, "keys").contains(&located["key"]), "{key}: {leaf}");
        let entry = get(&server, &format!("kv/{}", hex(&key)));
        assert_eq!(entry["value"]["text"], format!("value {at}"));
        assert_eq!((&entry["node"], &entry["pair"]), (&located["node"], &located["pair"]));
    }
    let long = get(&server, &format!("kv/{}", hex(LONG.0)));
    assert_eq!((&long["value"]["bytes"], &long["value"]["truncated"]), (&LONG.1.into(), &true.into()));
    documents_are_as_the_api_says(&server);
}

/// What does not depend on the tree: `ask` checks each answer.
fn documents_are_as_the_api_says(server: &Server) {
    let both = ["cluster/status", "nodes", "regions", "wal", "recoveries", "events", "tuning", "drills"];
    let of_tree = ["selector/pairs", "tree/buckets?columns=1", "series?names=ops_get,latency_put_p99_us"];
    for path in both.into_iter().chain(of_tree) {
        let with = if path.contains('?') { '&' } else { '?' };
        get(server, path);
        get(server, &format!("{path}{with}scope=node"));
    }
    let here = ["status", "cluster", "whoami", "tuning/schema", "tuning/history"];
    here.into_iter().chain(["drills/preview?kind=kill&node=1"]).for_each(|path| {
        get(server, path);
    });
}

#[test]
fn what_is_not_there_or_is_asked_wrongly_is_a_problem_that_names_it() {
    let server = Server::start_steady(&[]);
    server.wait_http(0, "/api/v1/tree/locate?key=6e6f", "\"found\""); // a new tree asks to be asked again
    let nothing = get(&server, "tree/locate?key=6e6f");
    assert_eq!((&nothing["found"], &nothing["bytes"]), (&false.into(), &Value::Null));
    for path in ["kv/6e6f", "tree/meganodes/99.0", "tree/meganodes/1.7", "tree/meganodes/1.0/nodes/9"] {
        let (status, problem) = ask(&server, path);
        assert_eq!((status, &problem["code"]), (404, &"not_found".into()), "{path}");
    }
    for (path, pointer) in [
        ("kv/6", "/path/key"),
        (&*format!("kv/{}", "61".repeat(900)), "/path/key"),
        ("kv?from=x", "/query/from"),
        ("kv?limit=201", "/query/limit"),
        ("tree/locate", "/query/key"),
        ("tree/locate?key=zz", "/query/key"),
        ("tree/meganodes/one", "/path/id"),
        ("tree/meganodes/1.0/nodes/x", "/path/index"),
        ("tree/buckets?columns=513", "/query/columns"),
        ("tree/buckets?from=61&to=61", "/query/to"),
    ] {
        let (status, problem) = ask(&server, path);
        assert_eq!((status, &problem["errors"][0]["pointer"]), (400, &pointer.into()), "{path}: {problem}");
    }
}

/// Checks follow one another while entries are loaded and meganodes are split: none reports a violation, and
/// what they cost the data path is a few tree nodes each turn. A check leaves out what balance moves
/// meanwhile, so nothing moves here.
#[test]
fn checks_of_the_tree_under_load_with_splits_report_nothing() {
    const ENTRIES: usize = 120_000;
    let server = Server::start_steady(&["--nodes", "2", "--slot-bytes", "256KiB", "--balance", "off"]);
    await_both_nodes(&server);
    let line = |at: usize| format!("{}/{:08}\tvalue {at}\n", key(at), at.wrapping_mul(0x9E37_79B9) % ENTRIES);
    let file = server.folder().with_file_name("entries.tsv");
    fs::write(&file, (0..ENTRIES).map(line).collect::<String>()).expect("the folder can be written");
    let mut checks = Vec::new();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| server.cell(&["load", file.to_str().expect("it is text")]));
        while !load.is_finished() {
            checks.push(checked(&server));
        }
        let loaded = load.join().expect("it ends");
        assert_eq!(loaded.code, Some(0), "{loaded:?}");
    });
    assert!(!checks.is_empty(), "how many there is time for is the machine's affair");
    wait::until("meganodes were split, and none is any more", || {
        let splits = &get(&server, "cluster/status")["splits"];
        splits["under_way"] == 0 && splits["finished"].as_u64() > Some(3)
    });
    // What the status says is a second old: a split may have started since.
    wait::until("a check meets each entry once", || checked(&server)["entries"] == ENTRIES);
}

/// Waits until each of two nodes knows the other: they learn of it within a moment of their start.
fn await_both_nodes(server: &Server) {
    for node in [0, 1] {
        // One that has not seen its cluster yet has no list.
        let rows = || parsed(server.http_of(node, "/api/v1/nodes")).1["nodes"].as_array().map(Vec::len);
        let knows_both = || rows() == Some(2);
        wait::until("each node knows the other", knows_both);
    }
}

/// An answer and its status.
fn parsed(answer: Option<(u16, String)>) -> (u16, Value) {
    let (status, body) = answer.expect("it answers");
    (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
}

/// A check that one node is asked for, and that another one reports. It ends well.
fn checked(server: &Server) -> Value {
    // Each node limits how often checks begin, so the asked node may begin one that the other still refuses;
    // under load the other may be late.
    let is_refused = |operation: &Value| {
        let missing = operation["missing"].as_array();
        missing.is_some_and(|all| {
            let is_reason = |why: &str| why.contains("429") || why.contains("no answer within");
            all.iter().any(|node| node["why"].as_str().is_some_and(is_reason))
        })
    };
    let operation = wait::until_some("a check of both nodes ends", || {
        Some(check_once(server)).filter(|operation| !is_refused(operation))
    });
    let outcome = (&operation["state"], &operation["violations"]);
    assert_eq!(outcome, (&"passed".into(), &0.into()), "{operation}");
    assert_eq!(list(&operation, "nodes").len(), 2, "{operation}");
    operation
}

fn check_once(server: &Server) -> Value {
    // Checks end sooner than they may begin.
    let (status, started) = wait::until_some("a check may begin", || {
        Some(parsed(server.http_post(0, "/api/v1/tree:check", "{}"))).filter(|(status, _)| *status != 429)
    });
    assert_eq!(status, 202, "{started}");
    let id = started["operation"].as_str().expect("it is text");
    wait::until_some("the check ends", || {
        let (status, operation) = parsed(server.http_of(1, &format!("/api/v1/operations/{id}")));
        assert_eq!(status, 200, "{operation}");
        (operation["done"] == true).then_some(operation)
    })
}
