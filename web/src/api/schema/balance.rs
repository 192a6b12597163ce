//! Of balance: `/balance`.

use serde_json::Value;

use super::build::{Field, about, flag, integer, list, number, object, or_null, text, word};
use super::envelope::{of_scope, shown};

const STEPS: [&str; 3] = ["move", "cancel", "rest"];

fn fields() -> Vec<Field> {
    let node = object([
        ("node", integer("The node.")),
        ("pairs", integer("Its pairs.")),
        ("bytes", integer("Bytes of their entries and tree nodes.")),
        ("bytes_percent", or_null(integer("Of the mean. Null for all: there are too few bytes to count."))),
        ("load_share", number("Of its worker's time, with one-sided reads as clients report them.")),
        ("load_percent", or_null(integer("Of the mean. Null for all: there is too little load to count."))),
        ("draining", flag("Whether it is to be emptied.")),
        ("writes_wait", flag("Whether puts find no memory there: they wait, or are refused.")),
        (
            "words",
            text("How it stands, in a sentence: also what is not known of it, and for how long it rests."),
        ),
    ]);
    let pair = object([
        ("pair", integer("The pair.")),
        ("node", integer("Its node.")),
        ("bytes", or_null(integer("Bytes of its entries and tree nodes. Null: its owner has not reported."))),
        ("load_share", or_null(number("Of the worker's time. Null as above."))),
        ("obstacle", or_null(text("What keeps it where it is. Null: it could move, if that helped."))),
    ]);
    let moves = object([
        ("above", integer("Because a node was above the mean.")),
        ("below", integer("Because a node was below it.")),
        ("drain", integer("Because a node drains.")),
        ("fresh", integer("Because the pair was made for another node.")),
        ("full", integer("Because writes waited for memory at a node.")),
        ("cancelled", integer("Moves that were cancelled for a drain, a drill or a full node.")),
    ]);
    vec![
        ("on", flag("Whether pairs move by themselves.")),
        ("step", word(&STEPS, "What the balancer decided last.")),
        ("decision", text("The same with its reason, in a sentence.")),
        ("mean_bytes", integer("Bytes of a node on average.")),
        ("mean_load_share", number("Of a worker's time, on average.")),
        ("moves", about(moves, "Moves that the balancer has started since its process began, by why.")),
        ("nodes", list(node, "A row for each node, by number.")),
        ("pairs", list(pair, "A row for each pair, by number.")),
    ]
}

/// `GET /api/v1/balance`.
pub(crate) fn balance() -> Value {
    let balancer = or_null(integer("The node that balances. Null: none that answers does."));
    let cluster = [("balancer", balancer)].into_iter().chain(fields()).chain(shown());
    let part = [("balances", flag("Whether this node balances."))].into_iter().chain(fields());
    of_scope(cluster, part)
}
