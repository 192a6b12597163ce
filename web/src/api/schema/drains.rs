//! Of nodes that are to be emptied: `/drains…`, `/nodes:remove`, and the bodies that begin and end them.

use serde_json::Value;

use super::build::{flag, integer, list, object, or_null, text, word};
use super::envelope::{of_node, of_scope};

fn row() -> Value {
    const STATES: [&str; 3] = ["draining", "drained", "removed"];
    let stall = "What keeps it from being emptied: a pair that has not been able to move for a while, or \
                 that nobody balances. Null: nothing.";
    object([
        ("node", integer("The node.")),
        ("who", text("Who wanted it.")),
        ("why", or_null(text("Why. Null: they did not say."))),
        ("since_unix_ms", integer("Since when, in milliseconds since 1970.")),
        ("state", word(&STATES, "How far it is. removed: it may not join any more.")),
        ("pairs_left", integer("Pairs that it has, that wait for it, or that moves may still bring there.")),
        ("bytes_left", or_null(integer("Bytes of its entries and tree nodes. Null: it does not say."))),
        ("stall", or_null(text(stall))),
    ])
}

/// `GET /api/v1/drains`.
pub(crate) fn drains() -> Value {
    let pair = object([
        ("pair", integer("The pair.")),
        ("bytes", integer("Bytes of its entries and tree nodes.")),
        ("memory_bytes", integer("Bytes of memory that its regions and its logs' buffers take.")),
    ]);
    let part = [
        ("state", text("What the node is doing, in one word.")),
        ("uptime_ms", integer("Milliseconds since its process started.")),
        ("memory_available_bytes", integer("Bytes that it may still take.")),
        ("disk_full", flag("Whether the disk under its logs has no room for those of one more pair.")),
        ("pairs", list(pair, "What its pairs take.")),
    ];
    of_scope([("drains", list(row(), "A row for each of them, by node."))], part)
}

/// What a change of drains answers.
pub(crate) fn change() -> Value {
    let planned = object([
        ("pair", integer("The pair.")),
        ("from", integer("Its node.")),
        ("to", integer("Where it would go, as things are.")),
        ("bytes", integer("Its bytes.")),
    ]);
    of_node([
        ("nodes", list(integer("A node."), "The nodes that it is about.")),
        ("moves", list(planned, "The moves that are to come; some may be left out.")),
        ("moves_total", integer("How many there are.")),
        ("bytes", integer("Bytes of all of them.")),
        ("dry_run", flag("Whether it was only checked.")),
        ("revision", or_null(text("Of a preview: for If-Match of the change. Null: it was done."))),
    ])
}

/// The body of `POST /api/v1/drains` and `POST /api/v1/drains:end`.
pub(crate) fn which() -> Value {
    object([
        ("node?", integer("The node. Or a host.")),
        ("host?", text("The IP address of all nodes of a machine. Or a node.")),
    ])
}

/// The body of `POST /api/v1/nodes:remove`.
pub(crate) fn one() -> Value {
    object([("node", integer("The node."))])
}
