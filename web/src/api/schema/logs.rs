//! Of logs and takeovers: `/wal`, `/recoveries`.

use serde_json::Value;

use super::build::{
    about, decimal, flag, integer, list, number, object, or_null, share, shared, text, tuple,
};
use super::envelope::{of_scope, shown};

/// `GET /api/v1/wal`.
pub(crate) fn wal() -> Value {
    let counts = || list(integer("Syncs."), "Syncs by bucket.");
    let times = object([
        ("step_ms", integer("Milliseconds of a row.")),
        ("times_unix_ms", list(integer("A time."), "When each row began, in milliseconds since 1970.")),
        ("ends_us", list(integer("A time."), "Where buckets end, in microseconds; the last one has no end.")),
        ("rows", list(counts(), "The rows, oldest first.")),
    ]);
    let whole = [
        ("pairs", list(shared("WalRow"), "The logs of each pair.")),
        ("sync_times", about(times, "How long the syncs of all nodes took, over the last seconds.")),
    ];
    let second = [integer("The second, since 1970."), counts()];
    let part = [
        ("pairs", list(shared("WalRow"), "The logs of its pairs.")),
        ("syncs", list(tuple(&second, "A second."), "How long its syncs took, by second.")),
    ];
    of_scope(whole.into_iter().chain(shown()), part)
}

/// A pair's logs.
pub(super) fn wal_row() -> Value {
    let time =
        |what: &str| or_null(integer(&format!("{what}, in microseconds. Null: none in the last second.")));
    let sync = object([
        ("p50", time("Half of the syncs took no longer")),
        ("p99", time("99 of 100 took no longer")),
        ("max", time("The longest")),
    ]);
    object([
        ("pair", integer("The pair.")),
        ("node", integer("The node that serves it.")),
        ("epoch", integer("Counts the owners.")),
        ("csn_appended", decimal("The last change that was handed to the log.")),
        ("csn_durable", decimal("All changes up to it are durable.")),
        ("csn_checkpointed", or_null(decimal("Where the last checkpoint begins. Null: there is none yet."))),
        ("lag_csn", integer("Changes that are not durable yet.")),
        ("lag_bytes", integer("Their bytes.")),
        (
            "lag_seconds",
            or_null(number("How long they take at the rate of the last second. Null: nothing was synced.")),
        ),
        ("log_bytes_since_checkpoint", integer("Log bytes since the last checkpoint.")),
        ("segments", or_null(segments())),
        (
            "batches_per_second",
            or_null(number("Batches synced a second. Null: nothing is known of the last second.")),
        ),
        ("bytes_per_batch", or_null(number("Bytes of a batch. Null: there was none."))),
        ("sync_us", sync),
        (
            "replay_seconds_estimate",
            or_null(number("Seconds of a replay, as fast as the last one. Null: none was seen.")),
        ),
        ("checkpoint_running", flag("Whether a checkpoint is being taken.")),
        ("checkpoints", integer("Checkpoints recorded since the node's start.")),
    ])
}

fn segments() -> Value {
    let both = |of: fn(&str) -> Value, meaning: &str| {
        tuple(&[of("Of the node log."), of("Of the extent log.")], meaning)
    };
    let segments = object([
        (
            "in_use",
            both(
                integer,
                "Segments with frames: the current one, and those that no checkpoint has released.",
            ),
        ),
        ("spare", both(integer, "Segments that are prepared, or being prepared, to move on to.")),
        ("released", both(integer, "Released segments whose files wait to be used again.")),
        ("bytes", both(integer, "Bytes of all these files.")),
        ("current", both(integer, "The current segment's number.")),
        ("current_fill", both(share, "How full the current segment is.")),
        ("csn_oldest", decimal("The least commit number whose record may still be in the logs.")),
    ]);
    about(segments, "Segments of the logs that this owner writes. Null: it writes none.")
}

/// `GET /api/v1/recoveries`.
pub(crate) fn recoveries() -> Value {
    let under_way = || ("under_way", list(shared("RecoveryRow"), "Takeovers that are under way."));
    let whole = [
        under_way(),
        ("incidents", list(incident(), "What is remembered of deaths, newest first.")),
        ("now_boottime_ms", integer("The answering machine's CLOCK_BOOTTIME, in milliseconds.")),
        ("total", integer("Shares that all the incidents have.")),
        ("truncated", flag("Whether shares of the oldest incidents are left out: more than 512.")),
    ];
    of_scope(whole, [under_way()])
}

/// A takeover that is under way.
pub(super) fn recovery_row() -> Value {
    object([
        ("pair", integer("The pair.")),
        ("node", integer("Who takes it over.")),
        ("stage", text("What it is at.")),
        ("bytes_done", integer("Bytes replayed.")),
        ("bytes_total", integer("Bytes that there are.")),
        ("bytes_per_second", number("Bytes a second since its start.")),
    ])
}

fn incident() -> Value {
    let time = |what: &str| integer(&format!("{what}, in milliseconds of CLOCK_BOOTTIME; 0: not yet."));
    let share = object([
        ("pair", integer("The pair.")),
        ("survivor", or_null(decimal("The incarnation that takes it over. Null: nobody has room for it."))),
        ("survivor_node", or_null(integer("Its node. Null: it lives no more, or there is none."))),
        ("claimed_ms", time("When the epoch was raised")),
        ("cut_ms", time("When the logs' end was recorded")),
        ("replayed_ms", time("When all was replayed and verified")),
        ("replayed_bytes", integer("Bytes of image and logs that were read.")),
        ("serving_ms", time("When it was served again")),
    ]);
    object([
        ("dead", decimal("The incarnation that died; 0: the pairs had no owner.")),
        ("node", or_null(integer("Its node. Null: the pairs had no owner."))),
        ("detected_ms", time("When the end of its lease was seen")),
        ("lease_seen_ms", time("The last look at which its lease lived")),
        (
            "all_back_ms",
            or_null(integer("When all pairs were back, in milliseconds of CLOCK_BOOTTIME. Null: not yet.")),
        ),
        ("shares", list(share, "What became of each pair.")),
    ])
}
