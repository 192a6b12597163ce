//! Of entries, `/kv…`, and of what is no resource: `/whoami`, the document, problems.

use serde_json::Value;

use super::build::{
    HEX, VERSION, about, anything, flag, integer, list, object, or_null, pattern, shared, text, word,
};
use super::envelope::{age, at, of_node};

const ROLES: [&str; 5] = ["reader", "writer", "viewer", "operator", "admin"];

/// `GET /api/v1/kv`.
pub(crate) fn page() -> Value {
    let entry = object([
        ("key", shared("Key")),
        ("value_preview", text("The value's first bytes; empty where it is too long to be read for that.")),
        ("bytes", integer("Bytes of the value.")),
        ("version", pattern(VERSION, "Another one after each write: PAIR.EPOCH.CSN.")),
    ]);
    of_node([
        ("entries", list(entry, "The entries in order.")),
        ("next", or_null(pattern(HEX, "What from is to be for the next page. Null: this is the last."))),
    ])
}

/// `GET /api/v1/kv/{key}`, whose version is the entry's.
pub(crate) fn entry() -> Value {
    let value = object([
        ("text", or_null(text("As text. Null: it is no UTF-8."))),
        ("base64", text("In base 64.")),
        ("bytes", integer("Bytes of the whole.")),
        ("truncated", flag("Whether only the beginning is shown.")),
    ]);
    object([
        at(),
        age(),
        ("key", shared("Key")),
        ("value", value),
        ("version", pattern(VERSION, "Of the entry, another one after each write: PAIR.EPOCH.CSN.")),
        ("node", integer("The node that has it.")),
        ("pair", integer("The pair.")),
        ("found_by", word(&["server"], "By whom it was searched.")),
    ])
}

/// `GET /api/v1/whoami`.
pub(crate) fn whoami() -> Value {
    of_node([
        ("name", text("The caller's name.")),
        ("role", word(&ROLES, "Of the caller's roles the one that permits most.")),
        ("roles", list(word(&ROLES, "A role."), "What the caller may do.")),
        ("tokens_required", flag("Whether the node asks for tokens.")),
    ])
}

/// `GET /api/openapi.json`.
pub(crate) fn document() -> Value {
    let info = object([
        ("title", text("The API's name.")),
        ("version", text("The API's version.")),
        ("description", text("What it is.")),
    ]);
    object([
        ("openapi", word(&["3.1.0"], "The format's version.")),
        ("info", info),
        ("paths", anything("The routes.")),
        ("components", anything("What the routes share.")),
        ("security", list(anything("A way."), "How callers say who they are.")),
    ])
}

/// An error.
pub(super) fn problem() -> Value {
    let field = object([
        ("pointer", text("/query/NAME, /path/NAME, /header/NAME, or a JSON pointer into the body.")),
        ("detail", text("What is wrong with it.")),
        ("min?", text("The least that is taken.")),
        ("max?", text("The most that is taken.")),
        ("unit?", text("Of the bounds.")),
    ]);
    let problem = object([
        ("version", integer("Of the document.")),
        ("type", text("about:blank.")),
        ("title", text("The status in words.")),
        ("status", integer("The status.")),
        ("detail", text("What is wrong.")),
        ("code", text("A word that programs compare.")),
        ("request_id", text("The request's name, as in the node's log.")),
        ("next?", text("What to do.")),
        ("errors?", list(field, "The parts of the request that are wrong.")),
    ]);
    about(problem, "An error, as RFC 9457 has it.")
}
