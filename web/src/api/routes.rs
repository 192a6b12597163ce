//! Every route of the API in words: what it answers, whom it answers, and what it takes. The document that
//! describes the API is made from this table, the guard of the router goes by it, and tests hold it and the
//! router to each other, both ways.

use cell_drill::DELAY_MS;
use cell_node::TokenRole;
use serde_json::Value;

use crate::api::parameter::{
    DRY_RUN, IF_MATCH, IF_PREVIEWED, IF_SEEN, NOT_KEPT, REASON, REPEAT, ROWS, SCOPE, header, needed, path,
    query,
};
use crate::api::schema::{
    balance, cluster, drains, drills, kv, logs, moves, node, selector, series, tree, tuning,
};
use crate::api::tuning::HISTORY_MAX;
use crate::api::tuning_change::TTL_SECONDS_MAX;
use crate::exposition::Format;

pub(crate) use crate::api::parameter::{Parameter, Place, Takes};

/// A route.
#[derive(Debug)]
pub(crate) struct RouteText {
    pub(crate) method: &'static str,
    /// As the router has it; `{id}:halt` is the router's `{id}`.
    pub(crate) path: &'static str,
    /// The role that its caller must have; none: whoever has a token may ask.
    pub(crate) role: Option<TokenRole>,
    /// Members of its answer that have keys: callers who do not read entries get it without them.
    pub(crate) keys: &'static [&'static str],
    /// What it belongs to.
    pub(crate) tag: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) parameters: &'static [Parameter],
    /// The body that it takes; none if it takes none.
    pub(crate) body: Option<BodyText>,
    /// The status of its answer.
    pub(crate) success: u16,
    pub(crate) answer: Answer,
    /// Statuses of problems besides those that all routes of its kind have; see `problem_text`.
    pub(crate) problems: &'static [u16],
}

/// A body.
#[derive(Debug)]
pub(crate) struct BodyText {
    /// Makes its JSON Schema.
    pub(crate) schema: fn() -> Value,
    /// One that is taken.
    pub(crate) example: &'static str,
    pub(crate) is_required: bool,
}

/// What a route answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// A JSON document; makes its JSON Schema.
    Json(fn() -> Value),
    /// Server-sent events.
    Events,
    /// Text of these types.
    Plain(&'static [&'static str]),
}

const DRILL: Parameter = path("id", Takes::Text, "The drill's name, as its begin was answered.", "drill-0-1");
const NODE: Parameter = query("node", Takes::Text, "A node's number, or all.", "all");
const KIND_OF_FAULT: Takes =
    Takes::Choice(&["kill", "stop", "restart", "partition", "partition-in", "partition-out", "slow-disk"]);

const DELAY: Parameter = query(
    "delay_ms",
    Takes::Integer(*DELAY_MS.start(), *DELAY_MS.end()),
    "By how much a slow disk is slower; nothing of other faults.",
    "100",
);

const fn get(
    path: &'static str,
    tag: &'static str,
    summary: &'static str,
    parameters: &'static [Parameter],
    answer: fn() -> Value,
) -> RouteText {
    let (method, role, answer) = ("GET", Some(TokenRole::Viewer), Answer::Json(answer));
    RouteText {
        method,
        path,
        role,
        keys: &[],
        tag,
        summary,
        parameters,
        body: None,
        success: 200,
        answer,
        problems: &[],
    }
}

/// The same for those who read entries: the answer is about keys.
const fn for_readers(route: RouteText) -> RouteText {
    RouteText { role: Some(TokenRole::Reader), ..route }
}

/// The same for whoever has a token.
const fn for_all(route: RouteText) -> RouteText {
    RouteText { role: None, ..route }
}

/// The same with keys in these members of the answer.
const fn with_keys(keys: &'static [&'static str], route: RouteText) -> RouteText {
    RouteText { keys, ..route }
}

const fn plain(
    path: &'static str,
    summary: &'static str,
    parameters: &'static [Parameter],
    types: &'static [&'static str],
) -> RouteText {
    RouteText { answer: Answer::Plain(types), ..get(path, "health", summary, parameters, kv::document) }
}

const fn needed_body(schema: fn() -> Value, example: &'static str) -> Option<BodyText> {
    Some(BodyText { schema, example, is_required: true })
}

/// The type of plain text, as health checks have it.
pub(crate) const PLAIN: &str = "text/plain; charset=utf-8";

const METRICS: &[&str] = &[Format::Text.content_type(), Format::OpenMetrics.content_type()];

/// What whoever watches a node asks for, without a token.
pub(crate) static HEALTH_ROUTES: [RouteText; 3] = [
    plain("/livez", "200 while the process answers; it depends on nothing else.", &[], &[PLAIN]),
    RouteText {
        problems: &[503],
        ..plain(
            "/readyz",
            "200 when the node serves reads, else 503.",
            &[query("verbose", Takes::Text, "Whatever it is: the checks, a line each.", "1")],
            &[PLAIN],
        )
    },
    plain("/metrics", "Metrics for Prometheus, or as OpenMetrics for those who accept that.", &[], METRICS),
];

/// Every route below `/api/`.
pub(crate) static ROUTES: [RouteText; 41] = [
    for_all(get("/api/openapi.json", "api", "This document.", &[], kv::document)),
    get(
        "/api/v1/cluster/status",
        "cluster",
        "The cluster in one document, with a sentence that says how it is.",
        &[SCOPE, NOT_KEPT],
        cluster::status,
    ),
    get(
        "/api/v1/cluster",
        "cluster",
        "Members, pairs and incidents as this node saw them last.",
        &[SCOPE],
        node::cluster,
    ),
    get("/api/v1/status", "cluster", "This node's own figures.", &[SCOPE], node::status),
    get("/api/v1/nodes", "cluster", "A row for each node.", &[SCOPE, NOT_KEPT], cluster::nodes),
    get(
        "/api/v1/regions",
        "cluster",
        "The regions of each pair: owner, epoch, size, how full.",
        &[SCOPE, NOT_KEPT, ROWS],
        cluster::regions,
    ),
    get(
        "/api/v1/moves",
        "cluster",
        "Planned moves of pairs: those under way, and the last one of each other pair; of the node alone, as it \
         saw them last.",
        &[SCOPE, ROWS],
        moves::moves,
    ),
    RouteText {
        role: Some(TokenRole::Operator),
        body: needed_body(moves::wanted, "{\"pair\": 1, \"to\": 1}"),
        problems: &[404, 428],
        method: "POST",
        ..get(
            "/api/v1/moves",
            "cluster",
            "Lets a pair move to another node while both live.",
            &[IF_PREVIEWED, REPEAT, DRY_RUN, REASON],
            moves::started,
        )
    },
    RouteText {
        role: Some(TokenRole::Operator),
        body: needed_body(moves::cancelled, "{\"pair\": 1}"),
        method: "POST",
        ..get(
            "/api/v1/moves:cancel",
            "cluster",
            "Ends a move of which nothing is handed over yet.",
            &[IF_SEEN, REPEAT],
            moves::ended,
        )
    },
    get(
        "/api/v1/balance",
        "cluster",
        "Who balances, what it has decided and why; how each node and each pair stands.",
        &[SCOPE, NOT_KEPT, ROWS],
        balance::balance,
    ),
    get(
        "/api/v1/drains",
        "cluster",
        "Nodes that are to be emptied: since when, by whom, and what is left; and those that were removed.",
        &[SCOPE, NOT_KEPT],
        drains::drains,
    ),
    RouteText {
        role: Some(TokenRole::Operator),
        body: needed_body(drains::which, "{\"node\": 1}"),
        problems: &[404, 428],
        method: "POST",
        ..get(
            "/api/v1/drains",
            "cluster",
            "Wants a node, or all of a host, emptied: its pairs move to the others, and it gets none.",
            &[IF_PREVIEWED, REPEAT, DRY_RUN, REASON],
            drains::change,
        )
    },
    RouteText {
        role: Some(TokenRole::Operator),
        body: needed_body(drains::which, "{\"node\": 1}"),
        problems: &[404, 428],
        method: "POST",
        ..get(
            "/api/v1/drains:end",
            "cluster",
            "Ends drains: the nodes get pairs again. Of a node that was removed it permits the number again.",
            &[IF_PREVIEWED, REPEAT, DRY_RUN],
            drains::change,
        )
    },
    RouteText {
        role: Some(TokenRole::Operator),
        body: needed_body(drains::one, "{\"node\": 1}"),
        problems: &[404, 428],
        method: "POST",
        ..get(
            "/api/v1/nodes:remove",
            "cluster",
            "Removes a node for good that has no pairs, and that drains or does not run.",
            &[IF_PREVIEWED, REPEAT, DRY_RUN, REASON],
            drains::change,
        )
    },
    get(
        "/api/v1/wal",
        "cluster",
        "How far the logs of each pair are, how long syncs took, and what a replay would cost.",
        &[SCOPE, NOT_KEPT, ROWS],
        logs::wal,
    ),
    get(
        "/api/v1/recoveries",
        "cluster",
        "Takeovers under way, and what is remembered of earlier ones.",
        &[SCOPE, NOT_KEPT],
        logs::recoveries,
    ),
    get(
        "/api/v1/events",
        "cluster",
        "What happened, newest first.",
        &[
            SCOPE,
            NOT_KEPT,
            query("limit", Takes::Integer(1, 1_000), "At most so many.", "20"),
            query("kind", Takes::Choice(crate::event_kind::EVENT_KINDS), "Of this kind alone.", "split"),
            query("node", Takes::Integer(0, u32::MAX as u64), "Of this node alone.", "0"),
            query("after", Takes::Text, "Only what is newer than the event of this id.", "1-1"),
            query(
                "cursor",
                Takes::Text,
                "All that came after the answer that had this cursor; limit is not looked at.",
                "0:1.7,1:2.9,*:1700000000000",
            ),
        ],
        series::events,
    ),
    get(
        "/api/v1/series",
        "cluster",
        "Figures over time: of a second each for ten minutes, of ten seconds or a minute each for six hours.",
        &[
            SCOPE,
            needed("names", Takes::Text, "Names of series, with commas between them.", "ops_get,entries"),
            NODE,
            query("step", Takes::Integer(1, 60), "Seconds of a figure: 1, 10 or 60.", "1"),
            query(
                "seconds",
                Takes::Integer(1, 21_600),
                "How far back, at most what the step is kept for.",
                "60",
            ),
            query(
                "last",
                Takes::Integer(0, u64::MAX),
                "The last step's number; without it the newest.",
                "1700000000",
            ),
        ],
        series::series,
    ),
    RouteText {
        answer: Answer::Events,
        ..get(
            "/api/v1/stream",
            "cluster",
            "Documents as server-sent events, each topic once a second.",
            &[
                needed(
                    "topics",
                    Takes::Text,
                    "Of status, selector, recoveries, events and tuning, with commas between them.",
                    "status,events",
                ),
                header(
                    "Last-Event-ID",
                    false,
                    "The id of the last line of events that was seen.",
                    "0:1.7,1:2.9,*:1700000000000",
                ),
            ],
            kv::document,
        )
    },
    get(
        "/api/v1/selector/pairs",
        "selector",
        "How each client searches each server, and why.",
        &[SCOPE, NOT_KEPT, ROWS],
        selector::pairs,
    ),
    get(
        "/api/v1/selector/pairs/{client}/{node}/series",
        "selector",
        "A client and a server over time.",
        &[
            path("client", Takes::Text, "The client's number.", "1"),
            path("node", Takes::Text, "The server's number.", "0"),
            query("seconds", Takes::Integer(1, 600), "How far back.", "60"),
            SCOPE,
        ],
        selector::series,
    ),
    with_keys(
        &["low", "high", "rows"],
        get(
            "/api/v1/tree/buckets",
            "tree",
            "The key space in ranges: owner, entries, fill, reads and writes a second.",
            &[
                SCOPE,
                query("columns", Takes::Integer(1, 512), "At most so many.", "64"),
                query("from", Takes::Hex, "Keys from this one on.", "61"),
                query("to", Takes::Hex, "Keys before this one.", "7a"),
            ],
            tree::buckets,
        ),
    ),
    for_readers(get(
        "/api/v1/tree/heat",
        "tree",
        "Writes and reads over time by ranges of keys: of ten seconds each for ten minutes, of a minute each \
         for an hour.",
        &[
            SCOPE,
            query(
                "columns",
                Takes::Integer(1, 512),
                "At most so many ranges; fewer if it would be long.",
                "64",
            ),
            query("from", Takes::Hex, "Keys from this one on.", "61"),
            query("to", Takes::Hex, "Keys before this one.", "7a"),
            query("step", Takes::Integer(10, 60), "Seconds of a row: 10 or 60.", "10"),
            query("seconds", Takes::Integer(10, 3_600), "How far back, at most 60 steps.", "600"),
            query(
                "last",
                Takes::Integer(0, u64::MAX),
                "The last step's number; without it now's.",
                "170000000",
            ),
        ],
        tree::heat,
    )),
    with_keys(
        &["low", "high"],
        get(
            "/api/v1/tree/meganodes/{id}",
            "tree",
            "A meganode: its levels and its slot.",
            &[path("id", Takes::Text, "PAIR.SLOT", "1.0"), SCOPE],
            tree::meganode,
        ),
    ),
    for_readers(get(
        "/api/v1/tree/meganodes/{id}/nodes/{index}",
        "tree",
        "A tree node: its fences and the first of its keys.",
        &[
            path("id", Takes::Text, "PAIR.SLOT", "1.0"),
            path("index", Takes::Text, "Its place in the slot.", "0"),
            SCOPE,
        ],
        tree::tree_node,
    )),
    for_readers(get(
        "/api/v1/tree/locate",
        "tree",
        "Where a key is, and by which tree nodes a search comes to it.",
        &[needed("key", Takes::Hex, "The key.", "61"), SCOPE],
        tree::locate,
    )),
    RouteText {
        role: Some(TokenRole::Operator),
        body: Some(BodyText { schema: tree::check_wanted, example: "{}", is_required: false }),
        method: "POST",
        success: 202,
        ..get(
            "/api/v1/tree:check",
            "tree",
            "Begins a check of the whole tree, beside what the nodes do; the operation shows what it found.",
            &[REPEAT, SCOPE],
            tree::check_started,
        )
    },
    for_readers(get(
        "/api/v1/kv",
        "data",
        "Entries in order.",
        &[
            query("prefix", Takes::Hex, "Keys that begin with this.", "61"),
            query("from", Takes::Hex, "Keys from this one on, or down.", "6162"),
            query("reverse", Takes::Flag, "1: downwards.", "0"),
            query("limit", Takes::Integer(1, 200), "At most so many.", "20"),
        ],
        kv::page,
    )),
    for_readers(get(
        "/api/v1/kv/{key}",
        "data",
        "One entry.",
        &[path("key", Takes::Hex, "The key.", "61")],
        kv::entry,
    )),
    get(
        "/api/v1/tuning",
        "tuning",
        "Every setting with its value for the cluster.",
        &[SCOPE],
        tuning::tuning,
    ),
    get("/api/v1/tuning/schema", "tuning", "What each setting takes.", &[], tuning::schema),
    get(
        "/api/v1/tuning/history",
        "tuning",
        "Who changed what, when and why: the last 10,000 changes, a page at a time.",
        &[
            query("limit", Takes::Integer(1, HISTORY_MAX), "At most so many.", "20"),
            query("before", Takes::Integer(1, u64::MAX), "Only those before this revision.", "7"),
            query("seen", Takes::Text, "Any text: it changes nothing of the answer.", "7"),
        ],
        tuning::history,
    ),
    RouteText {
        role: Some(TokenRole::Operator),
        body: needed_body(tuning::patch, "{\"client_selector_exploration\": \"0.02\"}"),
        method: "PATCH",
        ..get(
            "/api/v1/tuning",
            "tuning",
            "Changes settings on all nodes, all or none; null gives back what each node was started with.",
            &[
                IF_MATCH,
                REPEAT,
                DRY_RUN,
                REASON,
                query("ttl_seconds", Takes::Integer(1, TTL_SECONDS_MAX), "Only for so long.", "60"),
            ],
            tuning::change,
        )
    },
    RouteText {
        role: Some(TokenRole::Operator),
        body: needed_body(tuning::revert, "{\"revision\": \"1\"}"),
        problems: &[404],
        method: "POST",
        ..get(
            "/api/v1/tuning:revert",
            "tuning",
            "Takes a change back.",
            &[IF_MATCH, REPEAT, DRY_RUN, REASON],
            tuning::change,
        )
    },
    get(
        "/api/v1/drills",
        "drills",
        "Whether drills are allowed, their kinds, and the runs of all nodes.",
        &[SCOPE, ROWS],
        drills::drills,
    ),
    get(
        "/api/v1/drills/preview",
        "drills",
        "What a fault of a node would stop.",
        &[
            needed("kind", KIND_OF_FAULT, "The fault.", "kill"),
            needed("node", Takes::Integer(0, u32::MAX as u64), "Whose.", "0"),
            DELAY,
        ],
        drills::preview,
    ),
    get(
        "/api/v1/drills/{id}",
        "drills",
        "One run: timeline, the clients' lane, report.",
        &[DRILL, SCOPE],
        drills::drill,
    ),
    RouteText {
        role: Some(TokenRole::Admin),
        body: needed_body(drills::wanted, "{\"kind\": \"kill\", \"node\": 0, \"confirm\": \"node-0\"}"),
        problems: &[412],
        method: "POST",
        success: 202,
        ..get(
            "/api/v1/drills",
            "drills",
            "Begins a drill; the node's name must be typed.",
            &[REPEAT, SCOPE],
            drills::started,
        )
    },
    RouteText {
        role: Some(TokenRole::Admin),
        body: Some(BodyText { schema: drills::halt, example: "{}", is_required: false }),
        method: "POST",
        success: 202,
        ..get(
            "/api/v1/drills/{id}:halt",
            "drills",
            "Takes the fault back and ends the drill.",
            &[DRILL, REPEAT, SCOPE],
            drills::started,
        )
    },
    get(
        "/api/v1/operations/{id}",
        "api",
        "How far something is that a request has started.",
        &[path("id", Takes::Text, "Its name.", "drill-0-1")],
        drills::operation,
    ),
    for_all(get(
        "/api/v1/whoami",
        "api",
        "Who the caller is to this node, and what they may do.",
        &[],
        kv::whoami,
    )),
];

/// The route of this method and of this path as the router has it.
pub(crate) fn find(method: &str, path: &str) -> Option<&'static RouteText> {
    ROUTES.iter().find(|route| route.method == method && route.is_at(path))
}

/// Whether a path, as the router has it, is in the table.
pub(crate) fn is_known(path: &str) -> bool {
    ROUTES.iter().any(|route| route.is_at(path))
}

impl RouteText {
    fn is_at(&self, path: &str) -> bool {
        let own = self.path.strip_suffix(":halt").filter(|own| own.ends_with('}'));
        own.unwrap_or(self.path) == path
    }
}
