//! What every document of the API has: its version, when it was made, how old its figures are, and whose
//! answers it lacks.

use std::time::Duration;

use serde::Serialize;

use crate::clock::{milliseconds, now_unix_ms};
use crate::peers::MissingPeer;
use crate::problem::VERSION;

/// A document made from one node's figures, or from the parts of all.
#[derive(Debug, Serialize)]
pub(crate) struct Document<T> {
    version: u32,
    at_unix_ms: u64,
    /// Age of the answering node's figures.
    age_ms: u64,
    #[serde(flatten)]
    body: T,
    /// Only in documents for the whole cluster: whose answers are not in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<Vec<MissingPeer>>,
}

impl<T> Document<T> {
    /// What one node says.
    pub(crate) fn of_node(body: T, age: Duration) -> Document<T> {
        Document {
            version: VERSION,
            at_unix_ms: now_unix_ms(),
            age_ms: milliseconds(age),
            body,
            missing: None,
        }
    }

    /// What the nodes that answered say together.
    pub(crate) fn of_cluster(body: T, age: Duration, missing: Vec<MissingPeer>) -> Document<T> {
        Document { missing: Some(missing), ..Document::of_node(body, age) }
    }
}

/// Whose figures are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Of every node that answers.
    Cluster,
    /// Of the node that is asked alone: what nodes ask each other.
    Node,
}
