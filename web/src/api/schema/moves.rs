//! Of planned moves of pairs: `/moves…`, and the bodies that begin and end them.

use serde_json::Value;

use super::build::{about, flag, integer, list, object, or_null, text, word};
use super::envelope::{of_node, shown};

const STAGES: [&str; 4] = ["wanted", "copying", "ready", "handed"];
const OUTCOMES: [&str; 4] = ["moved", "cancelled", "given_up", "back"];

fn row() -> Value {
    row_with(or_null(word(&OUTCOMES, "What became of it. Null: it is under way.")))
}

fn row_with(outcome: Value) -> Value {
    object([
        ("pair", integer("The pair.")),
        ("number", integer("Counts the pair's moves.")),
        ("from", integer("The node that has it, or had it.")),
        ("to", integer("The node that is to have it.")),
        (
            "stage",
            word(&STAGES, "How far it is, or was at its end. handed: served by the target in a moment."),
        ),
        ("why", text("Who wanted it, and why.")),
        ("bytes_done", integer("Bytes of image and logs that the target has read.")),
        (
            "bytes_total",
            integer(
                "Bytes of image and logs that it has to read, as far as it knows: of a file that is still \
                 being written, what it has read.",
            ),
        ),
        ("outcome", outcome),
        ("because", or_null(text("Why it came to that. Null: nothing is to be said."))),
        ("cancelled_by", or_null(text("Who cancelled it. Null: nobody did, or did not say who."))),
        ("wanted_unix_ms", or_null(integer("When it was asked for. Null here: not known, or not yet."))),
        ("copying_unix_ms", or_null(integer("When the source kept the log for the copy."))),
        ("ready_unix_ms", or_null(integer("When the copy was ready, the last time."))),
        ("handed_unix_ms", or_null(integer("When it was handed over."))),
        ("over_unix_ms", or_null(integer("When it was over."))),
        ("frozen_ms", or_null(integer("How long the pair had been frozen when it was handed over."))),
        ("revision", text("Another one where it is another move, or would be: for If-Match.")),
    ])
}

/// `GET /api/v1/moves`.
pub(crate) fn moves() -> Value {
    let rows = list(row(), "Moves under way, then the last one of each other pair.");
    of_node([("moves", rows)].into_iter().chain(shown()))
}

/// What `POST /api/v1/moves` answers.
pub(crate) fn started() -> Value {
    change(row())
}

/// What `POST /api/v1/moves:cancel` answers.
pub(crate) fn ended() -> Value {
    change(row_with(word(&OUTCOMES, "What became of it.")))
}

fn change(row: Value) -> Value {
    of_node([
        ("move", about(row, "The move as it is now.")),
        ("dry_run", flag("Whether it was only checked.")),
    ])
}

/// The body of `POST /api/v1/moves`.
pub(crate) fn wanted() -> Value {
    object([("pair", integer("The pair that is to move.")), ("to", integer("The node that is to have it."))])
}

/// The body of `POST /api/v1/moves:cancel`.
pub(crate) fn cancelled() -> Value {
    object([("pair", integer("The pair that is to stay where it is."))])
}
