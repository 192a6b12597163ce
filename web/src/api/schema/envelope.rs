//! What every answer has around its fields; see `api/document.rs`.

use serde_json::{Value, json};

use super::build::{Field, either, flag, integer, list, object, shared};

fn version() -> Field {
    let mut version = integer("Of the document. It grows when a field changes its meaning or goes away.");
    version["minimum"] = json!(1);
    ("version", version)
}

pub(super) fn at() -> Field {
    ("at_unix_ms", integer("When the answer was made, in milliseconds since 1970."))
}

pub(super) fn age() -> Field {
    ("age_ms", integer("How old the answering node's figures are, in milliseconds."))
}

/// A version and the age, for the documents that are a snapshot as it is.
pub(super) fn of_snapshot(fields: impl IntoIterator<Item = Field>) -> Value {
    object([version(), age()].into_iter().chain(fields))
}

/// What one node says.
pub(super) fn of_node(fields: impl IntoIterator<Item = Field>) -> Value {
    object([version(), at(), age()].into_iter().chain(fields))
}

/// What all nodes say together.
pub(super) fn of_cluster(fields: impl IntoIterator<Item = Field>) -> Value {
    let missing =
        list(shared("MissingPeer"), "Nodes whose answers are not in the document; empty if all answered.");
    of_node(fields.into_iter().chain([("missing", missing)]))
}

/// What all nodes say together, and with `scope=node` what the asked one says of itself.
pub(super) fn of_scope(
    cluster: impl IntoIterator<Item = Field>,
    node: impl IntoIterator<Item = Field>,
) -> Value {
    let mut whole = of_cluster(cluster);
    whole["title"] = json!("of the cluster");
    let mut part = of_node(node);
    part["title"] = json!(NODE_TITLE);
    either([whole, part])
}

/// The title of what `scope=node` answers.
pub(crate) const NODE_TITLE: &str = "with scope=node";

/// How much of a list is shown.
pub(super) fn shown() -> [Field; 2] {
    [
        ("total", integer("Rows that there are.")),
        ("truncated", flag("Whether rows are left out: more than limit, or than 512, or than 240 KiB hold.")),
    ]
}

/// A node that does not answer.
pub(super) fn missing_peer() -> Value {
    object([
        ("node", integer("Its number.")),
        ("address", super::build::text("Its HTTP address.")),
        ("why", super::build::text("Why its answer is not there.")),
    ])
}
