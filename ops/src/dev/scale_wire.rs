//! What `cell dev scale` and the supervisor say to each other: one JSON object a line, a request and its
//! answer; and what the supervisor itself is asked.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use cell_cluster::DrainAuthor;
use cell_drill::wire::Refused;
use serde::{Deserialize, Serialize};

/// As whom nodes are drained and removed.
pub(crate) const SCALED_BY: &str = "cell dev scale";
/// Nodes of a cluster of `cell dev`, at most.
pub(crate) const NODES_MAX: u16 = 64;

/// The socket of the cluster in a folder.
pub(crate) fn socket(dir: &Path) -> PathBuf {
    dir.join("scale.socket")
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum ScaleRequest {
    /// Who is there, with how many pairs.
    Look,
    /// One more node, with the next number.
    Add,
    /// Wants the nodes from this number on empty, all at once: what leaves one does not go to another that
    /// leaves. Refused if the others lack room; while that is not known, it is said what is not.
    Drain { from: u16 },
    /// Wants a node empty no longer.
    Undrain { node: u16 },
    /// Stops the last node, which is empty.
    Retire { node: u16 },
    /// A node that was stopped is not expected back.
    Remove { node: u16 },
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScaleNode {
    pub(crate) node: u16,
    pub(crate) state: String,
    pub(crate) server: String,
    pub(crate) http: String,
    /// Pairs that it has, or that wait for it.
    pub(crate) pairs: usize,
    pub(crate) draining: bool,
    /// What keeps it from being emptied.
    pub(crate) stall: Option<String>,
}

/// What comes back: the nodes as they are then, or why nothing was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScaleAnswer {
    Nodes(Vec<ScaleNode>),
    Refused(Refused),
}

/// What the supervisor itself does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScaleStep {
    Look,
    Add,
    Retire(u16),
}

/// What became of that: the nodes, without what the coordinator knows.
pub(crate) type ScaleDone = Result<Vec<ScaleNode>, Refused>;

/// What was not done, and what to do.
pub(crate) fn refuse(what: String, next: &str) -> Refused {
    Refused { what, next: next.to_owned(), is_away: false }
}

/// The same: who is needed for it does not answer just now, or stops.
pub(crate) fn away(what: String, next: &str) -> Refused {
    Refused { is_away: true, ..refuse(what, next) }
}

/// Who drains nodes, now.
#[allow(clippy::disallowed_methods, reason = "when a drain began is for people")]
pub(crate) fn author(who: &str) -> DrainAuthor<'_> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_unix_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    DrainAuthor { who, why: None, now_unix_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_one_line() {
        let drain = ScaleRequest::Drain { from: 2 };
        for (request, text) in [(ScaleRequest::Add, r#"{"do":"add"}"#), (drain, r#"{"do":"drain","from":2}"#)]
        {
            assert_eq!(serde_json::to_string(&request).unwrap(), text);
            assert_eq!(serde_json::from_str::<ScaleRequest>(text).unwrap(), request);
        }
    }
}
