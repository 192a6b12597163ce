//! Of a node's own figures, `/status`, and of the cluster as it saw it last, `/cluster`.

use serde_json::{Value, json};

use super::build::{
    HOST, about, decimal, either, flag, integer, list, map, number, object, or_null, pattern, shared, text,
    tuple, word,
};
use super::cluster::backing;
use super::envelope::of_snapshot;

const DURABILITIES: [&str; 3] = ["sync", "async", "none"];

/// `GET /api/v1/status`.
pub(crate) fn status() -> Value {
    of_snapshot([
        ("node", integer("Its number.")),
        ("incarnation", integer("Its lease: another one at each start.")),
        ("state", state()),
        ("warnings", list(text("A warning, for people."), "What is wrong although it serves.")),
        ("durability", word(&DURABILITIES, "When writes are acknowledged.")),
        ("uptime_ms", integer("Milliseconds since its process started.")),
        ("lease_remaining_ms", integer("Milliseconds for which its lease surely holds.")),
        ("connections", integer("Connections of clients.")),
        ("memory", memory()),
        ("memory_ready_bytes", integer("Bytes held ready for takeovers.")),
        ("memory_ready_bytes_given", integer("Bytes that takeovers have had of them.")),
        ("backing", backing()),
        ("log_flush", log_flush()),
        ("operations", operations()),
        ("latencies", latencies()),
        ("splits", shared("Splits")),
        ("cpu_ns", cpu()),
        ("counters", map(number("Its value."), "What logs, fabric and lease count, by name.")),
        ("pairs", list(pair(), "Its pairs.")),
    ])
}

fn state() -> Value {
    const STATES: [&str; 7] =
        ["starting", "recovering", "serving", "read_only", "silent", "stopping", "failed"];
    object([
        ("name", word(&STATES, "What it is doing.")),
        ("stage?", text("Of a recovery: what it is at.")),
        ("bytes_done?", integer("Of a recovery: bytes replayed.")),
        ("bytes_total?", integer("Of a recovery: bytes that there are.")),
        ("bytes_per_second?", number("Of a recovery: bytes a second.")),
        (
            "reason?",
            text("What it waits for, why writes are refused, why it is silent, or why it has failed."),
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
        ("process_bytes", integer("Bytes that count for the rest of the process.")),
        ("process_measured_bytes", integer("Bytes of the rest of the process, as the system reports them.")),
        ("refused", integer("How often memory was refused.")),
    ])
}

fn log_flush() -> Value {
    let ways = "How: each write by itself, or one flush of the disk for the writes of all pairs.";
    let log_flush =
        object([("way", word(&["per_write", "per_device"], ways)), ("why", text("Why so, for people."))]);
    about(log_flush, "How writes of logs reach stable storage.")
}

fn operations() -> Value {
    let count = |what: &str| integer(&format!("{what} since the start."));
    object([
        ("search", count("Searches")),
        ("get", count("Gets, the keys of a multi-get each,")),
        ("put", count("Puts, conditional ones included,")),
        ("delete", count("Deletes")),
        ("scan", count("Pages of scans")),
        ("refused", count("Requests answered with an error")),
        ("repeated", count("Writes that were sent again and not done again")),
    ])
}

fn latencies() -> Value {
    let summary = |what: &str| {
        let summary = object([
            ("count", integer("How many were answered.")),
            ("p50_ns", integer("Half took no longer, in nanoseconds.")),
            ("p99_ns", integer("99 of 100 took no longer, in nanoseconds.")),
            ("max_ns", integer("The longest, in nanoseconds.")),
        ]);
        about(summary, &format!("{what} of the last second."))
    };
    object([
        ("get", summary("Gets")),
        ("search", summary("Searches")),
        ("put", summary("Puts")),
        ("delete", summary("Deletes")),
        ("scan", summary("Pages of scans")),
        (
            "queue_estimate_ns",
            integer("How long a request waited for the worker on average, in nanoseconds."),
        ),
    ])
}

fn cpu() -> Value {
    object([
        ("process", integer("Processor time of the process since its start, in nanoseconds.")),
        ("worker", integer("The worker's part of it, in nanoseconds.")),
    ])
}

/// Of a pair's logs.
fn log_segments() -> Value {
    let of_log = |meaning: &str| {
        let log = object([
            (
                "in_use",
                integer("Segments with frames, the current one and those that no checkpoint has released."),
            ),
            ("spare", integer("Segments that are prepared, or being prepared.")),
            ("released", integer("Released segments whose files wait to be used again.")),
            ("bytes", integer("Bytes of all these files.")),
            ("current", integer("The current segment's number.")),
            ("current_bytes", integer("Bytes of frames in it.")),
            ("current_bytes_all", integer("Bytes that it has room for.")),
            ("csn_oldest", integer("The least commit number whose record may still be in the log.")),
        ]);
        about(log, meaning)
    };
    let logs =
        object([("node", of_log("The node region's log.")), ("extent", of_log("The extent region's log."))]);
    about(logs, "Segments of the logs that this owner writes. Null: it writes none.")
}

fn pair() -> Value {
    let sync = object([
        ("p50", integer("Half took no longer, in microseconds.")),
        ("p99", integer("99 of 100 took no longer, in microseconds.")),
        ("max", integer("The longest, in microseconds.")),
    ]);
    object([
        ("pair", integer("Its number.")),
        ("epoch", integer("Counts its owners.")),
        ("csn_appended", integer("The last change that was handed to the log.")),
        ("csn_durable", integer("All changes up to it are durable.")),
        ("csn_checkpointed", integer("Where the last checkpoint begins; 0: there is none yet.")),
        ("entries", integer("Entries.")),
        ("tree_nodes", integer("Tree nodes in use.")),
        ("tree_node_bytes", integer("Bytes of a tree node.")),
        ("extent_live_bytes", integer("Bytes of live extents, as asked for.")),
        ("extent_allocated_bytes", integer("Bytes that live extents occupy.")),
        (
            "extent_slots_free_bytes",
            integer("Of these, free slots of slabs: for extents of their length, or once slabs were packed."),
        ),
        ("extent_free_bytes", integer("Bytes of the extent region that have memory and hold nothing.")),
        ("extent_region_bytes", integer("Bytes of the extent region.")),
        ("node_region_bytes", integer("Bytes of the node region.")),
        ("granted_bytes", integer("Bytes of both that the memory limit has granted.")),
        ("populated_bytes", integer("Bytes of both that were given memory ahead of use.")),
        ("huge_page_bytes", integer("Those of them that are on huge pages.")),
        ("grace_bytes", integer("Freed bytes that wait for reuse.")),
        ("log_bytes_since_checkpoint", integer("Log bytes since the last checkpoint.")),
        ("log_bytes_pending", integer("Bytes of records that are not durable yet.")),
        ("batches", integer("Batches synced since the start.")),
        ("log_bytes", integer("Bytes synced in both logs since the start, padding included.")),
        ("log_segments", or_null(log_segments())),
        ("completions", integer("Results kept for repeats.")),
        ("replies_held", integer("Replies that wait for the log.")),
        ("checkpoints", integer("Checkpoints recorded since the start.")),
        ("compactions", integer("Times that a meganode was compacted after deletes.")),
        ("compaction_nodes_freed", integer("Tree nodes that compactions have freed.")),
        ("packings", integer("Times that sparse slabs of extents were packed.")),
        ("packed_bytes", integer("Bytes of extents that were moved for that.")),
        ("checkpoint_running", flag("Whether a checkpoint is being taken.")),
        ("checkpoints_failed", integer("Checkpoints that failed since the start.")),
        ("checkpoint_failure", or_null(text("Why the last one failed, for people. Null: it did not."))),
        ("sync_us", about(sync, "What syncs of batches took in the last second; 0: there were none.")),
    ])
}

/// `GET /api/v1/cluster`.
pub(crate) fn cluster() -> Value {
    let tuning = object([
        ("revision", integer("Counts the changes of settings; 0: there was none.")),
        ("values", map(tuned_value(), "The values that the cluster is tuned to, by setting.")),
    ]);
    of_snapshot([
        ("node", integer("The node that reports it.")),
        ("incarnation", integer("Its lease.")),
        ("current", flag("false: its lease has run out, and this is what it saw before that.")),
        ("revision", integer("The coordinator's revision at the node's last look; 0: none yet.")),
        ("pairs", list(pair_row(), "The region table.")),
        ("members", list(member(), "Who lives.")),
        ("incidents", list(incident(), "What became of the pairs of those that died.")),
        ("drains", list(drain(), "Nodes that are to be emptied, and those that were removed.")),
        ("recoveries", list(recovery(), "Takeovers under way at this node.")),
        ("tuning", tuning),
        ("unreadable", list(text("Which, and why."), "Rows that do not read; the last good ones hold.")),
    ])
}

fn drain() -> Value {
    object([
        ("node", integer("The node.")),
        ("who", text("Who wanted it.")),
        ("why?", text("Why; none: they did not say.")),
        ("since_unix_ms", integer("Since when, in milliseconds since 1970.")),
        ("removed?", flag("true: it was removed for good.")),
        ("stall?", text("What has kept it from being emptied for a while; none: nothing.")),
    ])
}

fn tuned_value() -> Value {
    let expires = || integer("When it ends, in milliseconds since 1970.");
    let after = || text("The value that is in force after that; none: what each node was started with.");
    let step = object([("expires_unix_ms", expires()), ("after?", after())]);
    object([
        ("text", text("The value as people write it.")),
        ("expires_unix_ms?", expires()),
        ("after?", after()),
        ("later?", list(step, "The ends of the value after it and of what follows that, in order.")),
    ])
}

fn pair_row() -> Value {
    let region = "Its number.";
    let place = object([
        ("address", text("The owner's fabric address.")),
        ("worker", integer("The worker that owns the pair.")),
        ("node_key", integer("The key of the node region; 0: the fabric has none.")),
        ("extent_key", integer("The key of the extent region.")),
    ]);
    let epoch = object([
        ("epoch", integer("The epoch.")),
        ("durability", word(&DURABILITIES, "When its writes were acknowledged.")),
        ("cut", or_null(integer("The change at which its logs end. Null: not found yet."))),
    ]);
    let checkpoint = object([
        ("epoch", integer("The epoch whose owner wrote it.")),
        ("csn", integer("Recovery replays what is above this change.")),
        ("csn_max", integer("The highest change in it.")),
        ("file", text("Its file, below the log root.")),
    ]);
    let read_by = ("read_by", integer("The node that read it."));
    let refuted = object([("finding", finding()), read_by]);
    object([
        ("pair", integer("The pair.")),
        ("node_region", integer(region)),
        ("extent_region", integer(region)),
        ("owner", or_null(integer("The incarnation that owns it. Null after a clean exit."))),
        ("node", integer("The owner's node, or the last owner's.")),
        ("served_by?", integer("The node that served it last.")),
        ("host?", pattern(HOST, "The host on which the owner runs.")),
        ("epoch", integer("Counts the owners.")),
        ("state", pair_state()),
        ("place", or_null(about(place, "Where it is served. Null while it is not."))),
        ("geometry", geometry()),
        ("history", list(epoch, "The epochs whose logs a recovery needs, oldest first.")),
        ("checkpoint", or_null(about(checkpoint, "Where a recovery begins. Null: at the logs' begin."))),
        ("trusted", list(integer("An incarnation."), "Earlier owners whose leases may last.")),
        ("findings?", list(finding(), "Who looked at its data since it was served, and found damage.")),
        ("refuted?", list(refuted, "Whose findings others have refuted, because they read the pair.")),
    ])
}

fn finding() -> Value {
    object([
        ("incarnation", integer("The member that looked.")),
        ("node", integer("Its node.")),
        ("missing", missing("What it found: one of these fields.")),
    ])
}

fn geometry() -> Value {
    object([
        ("node_region_bytes", integer("Bytes of the node region.")),
        ("extent_region_bytes", integer("Bytes of the extent region.")),
        ("slot_bytes", integer("Bytes of a meganode's slot.")),
        ("node_bytes", integer("Bytes of a tree node.")),
    ])
}

fn missing(what: &str) -> Value {
    let file = || ("file", text("The file, below the log root."));
    let region = || ("region", integer("The region."));
    let errno = json!({"type": "integer", "description": "The system's error number."});
    let missing = object([
        ("log?", object([region(), ("epoch", integer("The epoch."))])),
        ("corruption?", object([file(), ("offset", integer("The byte at which it shows."))])),
        ("checkpoint?", object([file()])),
        ("unreadable?", object([file(), ("errno", errno)])),
        ("record?", object([region(), ("csn", integer("The record."))])),
        ("verification?", object([region()])),
        ("memory?", object([("bytes", integer("Bytes that it takes."))])),
    ]);
    about(missing, what)
}

fn pair_state() -> Value {
    let missing = missing("What is missing: one of these fields.");
    either([
        word(&["new", "recovering", "serving", "released"], "What can be done with it."),
        object([("unavailable", object([("missing", missing)]))]),
    ])
}

fn member() -> Value {
    object([
        ("incarnation", integer("Its lease.")),
        ("node", integer("Its node.")),
        ("fabric", text("Its fabric address.")),
        ("http", text("Its HTTP address; empty if it has none.")),
        ("pid", integer("Its process.")),
        ("memory_limit_bytes", integer("Bytes that it may hold, as given last; 0: what the machine has.")),
    ])
}

fn incident() -> Value {
    let boottime = "in milliseconds of CLOCK_BOOTTIME; 0: not yet.";
    let time = |what: &str| integer(&format!("{what}, {boottime}"));
    let times = object([
        ("claimed_ms", time("When the epoch was raised")),
        ("cut_ms", time("When the logs' end was recorded")),
        ("replayed_ms", time("When all was replayed and verified")),
        ("serving_ms", time("When it was served again")),
        ("replayed_bytes", integer("Bytes of image and logs that were read.")),
        ("refused_ms", time("When the takeover was refused")),
    ]);
    let share = object([
        ("pair", integer("The pair.")),
        ("survivor", or_null(integer("Who is to take it over. Null while nobody can."))),
        ("bytes", integer("Bytes to replay.")),
        ("declined", list(integer("An incarnation."), "Those that lacked the room, or could not read it.")),
        ("times", times),
    ]);
    object([
        ("dead", integer("The incarnation that died; 0, and from 2^63 on: the pairs had no owner.")),
        ("node", integer("Its node.")),
        ("claimed_by", integer("The incarnation that plans.")),
        ("lease_seen_ms", time("The last look at which its lease lived")),
        ("detected_ms", time("When its end was seen")),
        ("claimed_ms", time("When the incident was claimed")),
        ("over_ms", time("When every pair was served again or reported")),
        ("plan", list(share, "The shares, by pair.")),
    ])
}

fn recovery() -> Value {
    object([
        ("pair", integer("The pair.")),
        ("stage", text("What it is at.")),
        ("bytes_done", integer("Bytes replayed.")),
        ("bytes_total", integer("Bytes that there are.")),
        ("bytes_per_second", number("Bytes a second since its start.")),
    ])
}

/// How often which times were measured.
pub(super) fn latency_histogram() -> Value {
    let bucket = [integer("The bucket's number."), integer("Times in it.")];
    object([
        ("buckets", list(tuple(&bucket, "A bucket."), "The buckets that are not empty, by number.")),
        ("sum_ns", integer("All times together, in nanoseconds.")),
        ("max_ns", integer("The longest, in nanoseconds.")),
    ])
}

/// When settings were changed.
pub(super) fn mark() -> Value {
    object([
        ("at_unix_ms", integer("When, in milliseconds since 1970.")),
        ("revision", decimal("The revision that the change made.")),
        ("names", list(text("A setting."), "The settings that it changed.")),
    ])
}
