//! Of the cluster's state: `/cluster/status`, `/nodes`, `/regions`.

use serde_json::Value;

use super::build::{
    Field, decimal, flag, integer, list, map, number, object, or_null, share, shared, text, tuple, word,
};
use super::envelope::{of_scope, shown};

/// `GET /api/v1/cluster/status`.
pub(crate) fn status() -> Value {
    of_scope(whole(), part())
}

fn whole() -> Vec<Field> {
    let verdict = object([
        ("level", word(&["ok", "warning", "critical"], "Whether to do nothing, to look, or to act.")),
        ("sentence", text("How the cluster is, in one sentence.")),
    ]);
    let survivable = object([
        ("nodes", integer("How many nodes can be lost now with all pairs served again.")),
        ("why", text("What bounds that.")),
    ]);
    let provider = "What it is: in the node's process, another process of its machine, one over TLS, or etcd. \
                    Null: the node was not told.";
    let coordinator = object([
        ("provider", or_null(word(&["embedded", "socket", "tls", "etcd"], provider))),
        (
            "addresses",
            list(
                text("A path, or an address."),
                "Where it is; each member of etcd, none of an embedded one.",
            ),
        ),
        ("reachable", flag("Whether it answered the node's last question.")),
        ("revision", decimal("Its revision at the node's last look.")),
        ("seen_ms_ago", or_null(integer("Milliseconds since it answered. Null: it never did."))),
    ]);
    vec![
        ("answered_by", integer("The node that made the document.")),
        ("verdict", verdict),
        ("faults_survivable", survivable),
        ("nodes", list(shared("NodeRow"), "A row for each node, absent ones included.")),
        ("pairs", pairs()),
        ("operations", list(operation(), "The requests of all nodes, by kind.")),
        ("searches", searches()),
        ("log", log_figures()),
        ("splits", shared("Splits")),
        ("recoveries", list(shared("RecoveryRow"), "Takeovers that are under way.")),
        ("coordinator", coordinator),
        ("events", list(shared("Event"), "The last events, newest first; at most ten.")),
        ("drills_allowed", flag("Whether drills can be run here.")),
        ("read_only", flag("Whether this node's HTTP refuses to change anything.")),
    ]
}

fn part() -> Vec<Field> {
    let rates = [number("By servers, a second."), number("One-sided, a second.")];
    vec![
        ("row", shared("NodeRow")),
        ("operations", list(operation(), "Its requests, by kind.")),
        (
            "times",
            list(shared("LatencyHistogram"), "What requests took, by kind, in the order of operations."),
        ),
        (
            "searches",
            or_null(tuple(
                &rates,
                "Searches, as clients report them. Null: nothing is known of the last second.",
            )),
        ),
        ("log", log_figures()),
        ("splits", shared("Splits")),
        ("recoveries", list(shared("RecoveryRow"), "Its takeovers.")),
        ("events", list(shared("Event"), "Its last events, newest first.")),
        ("own_missing_pairs", own_missing_pairs()),
    ]
}

/// What a node says that it lacks.
fn own_missing_pairs() -> Value {
    list(integer("A pair."), "Pairs that it is to serve and does not have, as two looks of its own found.")
}

fn pairs() -> Value {
    let unserved = object([
        ("pair", integer("The pair.")),
        ("what", text("Why it is not served, or not known to be.")),
        ("next", text("What to do.")),
    ]);
    object([
        ("all", integer("Pairs that there are.")),
        ("served", integer("Those that are known to be served.")),
        (
            "missing",
            integer(
                "Of the others, those that no node reports which answers, though the region table calls them \
                 served: their nodes say that they lack them, or two looks found it.",
            ),
        ),
        (
            "unknown",
            integer(
                "Of the others, those that are not known to be served, because their nodes did not answer \
                 the one that was asked.",
            ),
        ),
        ("unserved", list(unserved, "The others; at most 512.")),
    ])
}

fn operation() -> Value {
    let time = |what: &str| {
        let meaning = format!("{what} at the server, in the last second, in microseconds. Null: none came.");
        or_null(number(&meaning))
    };
    object([
        ("operation", word(&crate::rates::OPERATIONS, "The kind of request.")),
        ("per_second", or_null(number("How many a second. Null: nothing is known of the last second."))),
        ("p50_us", time("Half took no longer")),
        ("p99_us", time("99 of 100 took no longer")),
        ("p999_us", time("999 of 1000 took no longer")),
        ("max_us", time("The longest")),
    ])
}

fn searches() -> Value {
    let rate = |what: &str| or_null(number(&format!("{what} Null: nothing is known of the last second.")));
    object([
        ("server_per_second", rate("By servers, a second, as clients report them.")),
        ("one_sided_per_second", rate("By clients in the servers' memory, a second.")),
        ("one_sided_share", or_null(share("The one-sided part of all. Null: there were none."))),
    ])
}

fn log_figures() -> Value {
    let sync =
        |what: &str| or_null(integer(&format!("{what}, in microseconds. Null: none in the last second.")));
    object([
        ("lag_bytes", integer("Bytes of records that are not durable yet.")),
        ("lag_csn", integer("Records that are not durable yet.")),
        ("sync_p50_us", sync("Half of the syncs took no longer")),
        ("sync_p99_us", sync("99 of 100 syncs took no longer")),
        ("sync_max_us", sync("The longest sync")),
    ])
}

/// A count of splits.
pub(super) fn splits() -> Value {
    object([
        ("begun", integer("Splits of meganodes that began since the nodes' starts.")),
        ("finished", integer("Those that finished.")),
        ("aborted", integer("Those that failed.")),
        ("merged", integer("Empty meganodes that were merged into their left neighbours.")),
        ("under_way", integer("Those that are under way now.")),
    ])
}

/// `GET /api/v1/nodes`.
pub(crate) fn nodes() -> Value {
    let whole = [("nodes", list(shared("NodeRow"), "A row for each node, absent ones included."))];
    of_scope(whole, [("row", shared("NodeRow"))])
}

/// A node's row.
pub(super) fn node_row() -> Value {
    const STATES: [&str; 8] = [
        "starting",
        "recovering",
        "serving",
        "read_only",
        "silent",
        "stopping",
        "failed",
        crate::api::nodes::ABSENT,
    ];
    object([
        ("node", integer("Its number.")),
        ("incarnation", decimal("Its lease: another one at each start.")),
        ("address", text("Where clients reach it; empty if that is not known.")),
        ("http", text("Its HTTP address; empty if that is not known.")),
        ("state", word(&STATES, "What it is doing. absent: its lease has ended, and it has no figures.")),
        ("state_detail", or_null(text("What the state's word leaves out, for people."))),
        ("uptime_ms", integer("Milliseconds since its process started.")),
        ("lease_remaining_ms", integer("Milliseconds for which its lease surely holds.")),
        ("connections", integer("Connections of clients.")),
        ("memory", memory()),
        ("backing", backing()),
        ("pairs", list(integer("A pair."), "The pairs that it serves.")),
        (
            "pairs_granted_bytes",
            list(integer("Bytes."), "What the memory limit has granted to each of them, in their order."),
        ),
        (
            "entries",
            or_null(integer("Entries of its pairs. Null: it has not its pairs yet, or not any more.")),
        ),
        ("cpu_cores_used", or_null(number("Processors that it keeps busy. Null: not known yet."))),
        (
            "operations_per_second",
            or_null(number("Requests a second. Null: nothing is known of the last second.")),
        ),
        (
            "queue_estimate_us",
            or_null(number("How long a request waits for the worker, in microseconds. Null: none came.")),
        ),
        ("is_self", flag("Whether it is the node that made the document.")),
        ("age_ms", integer("For how many milliseconds its figures stand still.")),
        ("draining", flag("Whether it is to be emptied: it gets no pairs.")),
        (
            "absent_since_unix_ms",
            or_null(integer(
                "When its lease ended, in milliseconds since 1970. Null: it lives, or is absent since a time \
                 that no node has seen.",
            )),
        ),
    ])
}

fn memory() -> Value {
    object([
        ("limit_bytes", integer("Bytes that the process may hold.")),
        ("available_bytes", integer("Bytes that it may still take.")),
        ("regions_bytes", integer("Bytes of regions.")),
        ("ready_bytes", integer("Bytes held ready for takeovers.")),
        ("logs_bytes", integer("Bytes of the logs' buffers.")),
        ("process_bytes", integer("Bytes of the rest of the process.")),
    ])
}

pub(super) fn backing() -> Value {
    object([
        ("node_region", text("Pages that back the node regions.")),
        ("extent_region", text("Pages that back the extent regions.")),
    ])
}

/// `GET /api/v1/regions`.
pub(crate) fn regions() -> Value {
    let whole = [("regions", list(region(), "Two regions of each pair, by pair."))];
    let bytes = [integer("Of the node region."), integer("Of the extent region.")];
    let used = map(tuple(&bytes, "Bytes in use."), "By the number of the pair.");
    let silent = flag("Whether its lease has run out: it answers nobody.");
    let failed = flag("Whether it has given its pairs up.");
    let own_missing = ("own_missing_pairs", own_missing_pairs());
    let part = [("used", used), ("silent", silent), ("failed", failed), own_missing];
    of_scope(whole.into_iter().chain(shown()), part)
}

fn region() -> Value {
    object([
        ("region", integer("Its number.")),
        ("kind", word(&["node", "extent"], "What it holds: tree nodes, or keys and values.")),
        ("pair", integer("Its pair.")),
        ("node", or_null(integer("The node that owns it. Null: nobody who lives."))),
        ("owner", or_null(decimal("The owner's incarnation. Null after a clean exit."))),
        ("epoch", integer("Counts the owners.")),
        ("bytes", integer("Its size in bytes.")),
        ("used_bytes", or_null(integer("Bytes in use. Null while its owner does not report."))),
        (
            "state",
            word(
                &["served", "unserved", "missing", "unknown"],
                "Whether its keys can be reached. missing: no node reports it which answers, though the \
                 table calls it served. unknown: nobody says that it serves the pair, and the pair's node \
                 did not answer, or the node that was asked waits for the coordinator.",
            ),
        ),
        ("what", or_null(text("Why it is not served, or not known. Null: it is served."))),
    ])
}
