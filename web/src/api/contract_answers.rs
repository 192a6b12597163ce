//! Tests that the document's answers are the API's, both ways: see [`crate::api::conformity`].

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::api::conformity::unmet;
use crate::api::routes::{Answer, ROUTES};
use crate::api::schema::components;
use crate::full_cluster::{self, CLIENT};
use crate::test_cluster::{TestCluster, TestRequest};

/// Routes that only a whole node answers with success, or only with a supervisor of drills. Their answers are
/// checked where they are made.
const ELSEWHERE: [&str; 16] = [
    "POST /api/v1/drains",
    "POST /api/v1/drains:end",
    "POST /api/v1/nodes:remove",
    "GET /api/v1/moves",
    "POST /api/v1/moves",
    "POST /api/v1/moves:cancel",
    "GET /api/v1/kv",
    "GET /api/v1/kv/{key}",
    "GET /api/v1/tree/locate",
    "GET /api/v1/tree/meganodes/{id}",
    "GET /api/v1/tree/meganodes/{id}/nodes/{index}",
    "GET /api/v1/drills/{id}",
    "GET /api/v1/operations/{id}",
    "POST /api/v1/drills",
    "POST /api/v1/drills/{id}:halt",
    "POST /api/v1/tree:check",
];

/// What no node of these tests has: a cluster that nobody balances; runs of drills, which are checked
/// elsewhere, and settings with choices, or that take none; what callers without the role reader get;
/// a client that is silent, and pairs that a node lacks for some time, which are tested where they are made.
const ABSENT: [&str; 8] = [
    "balance/0/balancer",
    "DrillRun",
    "/runs/-",
    "tuning/schema/settings/-/choices",
    "tuning/schema/settings/-/or_none",
    "keys_left_out",
    "SelectorPair/decision/path/1",
    "own_missing_pairs/-",
];

/// What is asked of both nodes until the answers have shown everything.
fn paths() -> Vec<String> {
    let scoped = [
        "cluster/status",
        "nodes",
        "regions",
        "drains",
        "balance",
        "wal",
        "recoveries",
        "events",
        "selector/pairs",
        "tree/buckets",
        "tree/heat",
        "tuning",
        "drills",
        "series?names=ops_get,latency_get_p99_us,one_sided_share",
    ];
    let mut paths: Vec<String> = scoped
        .iter()
        .flat_map(|path| {
            let with = if path.contains('?') { '&' } else { '?' };
            [(*path).to_owned(), format!("{path}{with}scope=node")]
        })
        .collect();
    let plain = [
        "status",
        "cluster",
        "tuning/schema",
        "tuning/history",
        "tuning/history?limit=1",
        "whoami",
        "regions?limit=1",
        "tree/buckets?columns=1",
        "tree/buckets?to=68",
        "tree/heat?to=68&step=60",
        "events?kind=drill&node=0",
        "drills/preview?kind=kill&node=1",
        "series?names=ops_get&node=0",
    ];
    paths.extend(plain.map(str::to_owned));
    paths.extend([0, 1].map(|node| format!("selector/pairs/{CLIENT}/{node}/series")));
    paths.into_iter().map(|path| format!("/api/v1/{path}")).collect()
}

/// Changes settings, for a while and for good, and takes a change back.
fn tune(cluster: &TestCluster) {
    let change = |revision: &str, query: &str, body: &str| {
        let request = TestRequest::new("PATCH", &format!("/api/v1/tuning{query}")).json(body);
        let answer = cluster.send(0, &request.header("if-match", &format!("\"{revision}\"")));
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    change("0", "?reason=because", r#"{"exploration": 0.02}"#);
    change("1", "?ttl_seconds=60", r#"{"exploration": 0.03, "fill_percent": "80"}"#);
    change("2", "?ttl_seconds=30", r#"{"exploration": 0.04}"#);
    change("3", "?dry_run=1", r#"{"exploration": null}"#);
    let revert = TestRequest::new("POST", "/api/v1/tuning:revert").json(r#"{"revision": "3"}"#);
    assert_eq!(cluster.send(1, &revert.header("if-match", "\"3\"")).status, 200);
    change("4", "?ttl_seconds=20", r#"{"exploration": 0.05}"#);
}

/// Waits until both nodes have looked at themselves: what changes from then on is an event.
fn wait_for_the_first_look(cluster: &TestCluster) {
    let has_looked = |node| {
        let events = &cluster.get(node, "/api/v1/events?scope=node").body["events"];
        events.as_array().is_some_and(|events| !events.is_empty())
    };
    while !(has_looked(0) && has_looked(1)) {
        thread::park_timeout(Duration::from_millis(10));
    }
}

#[test]
fn answers_are_as_the_document_says_and_show_all_of_it() {
    let cluster = full_cluster::start();
    wait_for_the_first_look(&cluster);
    tune(&cluster);
    cluster.get(0, "/api/openapi.json");
    let wrong = TestRequest::new("PATCH", "/api/v1/tuning").header("if-match", "\"5\"");
    assert_eq!(cluster.send(0, &wrong.json(r#"{"client_retry_shortest": "9 h"}"#)).status, 422);
    let deadline = crate::clock::now() + Duration::from_secs(20);
    loop {
        for (path, node) in paths().iter().flat_map(|path| [(path, 0), (path, 1)]) {
            let answer = cluster.get(node, path);
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
        }
        let unmet = unmet(&ELSEWHERE);
        let unmet: Vec<_> =
            unmet.iter().filter(|path| !ABSENT.iter().any(|one| path.contains(one))).collect();
        if unmet.is_empty() {
            return;
        }
        assert!(crate::clock::now() < deadline, "no answer had these: {unmet:#?}");
        thread::park_timeout(Duration::from_millis(300));
    }
}

#[test]
fn routes_each_have_a_schema_that_names_fields() {
    for route in ROUTES.iter().filter(|route| !route.path.ends_with("/stream")) {
        let Answer::Json(schema) = route.answer else { panic!("{route:?} has no schema") };
        let schema = schema();
        let branches = schema["anyOf"].as_array().cloned().unwrap_or_else(|| vec![schema]);
        for branch in branches {
            assert!(branch["properties"].as_object().is_some_and(|fields| !fields.is_empty()), "{route:?}");
        }
    }
}

/// The console's own description of the answers.
const TYPES: &str = include_str!("../../console/src/api/types.ts");

/// Routes whose answers the console does not read.
const NOT_READ: [&str; 7] = [
    "/api/openapi.json",
    "/api/v1/status",
    "/api/v1/cluster",
    "/api/v1/stream",
    "/api/v1/tuning/schema",
    "/api/v1/drills/{id}:halt",
    "/api/v1/operations/{id}",
];

/// The names of the fields of an answer, or of what answers share.
fn fields(schema: &Value) -> impl Iterator<Item = &String> {
    let whole = schema["anyOf"].get(0).unwrap_or(schema);
    whole["properties"].as_object().into_iter().flat_map(|fields| fields.keys())
}

#[test]
fn fields_of_the_document_are_in_the_types_of_the_console() {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let words: BTreeSet<&str> = TYPES.split(|letter| !is_part(letter)).collect();
    let read = ROUTES.iter().filter(|route| route.method == "GET" && !NOT_READ.contains(&route.path));
    let answers = read.filter_map(|route| match route.answer {
        Answer::Json(schema) => Some((route.path.to_owned(), schema())),
        Answer::Events | Answer::Plain(_) => None,
    });
    // What nodes send each other the console does not see; problems are in a file of their own.
    let shared = components().into_iter().filter(|(name, _)| name != "LatencyHistogram" && name != "Problem");
    for (name, schema) in answers.chain(shared) {
        let unknown: Vec<_> = fields(&schema).filter(|field| !words.contains(field.as_str())).collect();
        assert!(unknown.is_empty(), "types.ts has no {unknown:?} of {name}");
    }
}
