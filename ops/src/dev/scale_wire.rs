//! What `cell dev scale` and the supervisor say to each other: one JSON object a line, a request and its
//! answer; and what the supervisor itself is asked.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use cell_cluster::DrainAuthor;
use cell_drill::wire::Refused;
use serde::{Deserialize, Serialize};

/// As whom nodes are drained and removed.
pub(crate) const SCALED_BY: &str = "cell dev scale";
/// What to do where nodes have not reported yet what they have.
pub(crate) const UNREPORTED_NEXT: &str = "try again in a few seconds; `cell node ls` shows how the nodes are";
/// Nodes of a cluster of `cell dev`, at most.
pub(crate) const NODES_MAX: u16 = 64;

/// The socket of the cluster in a folder.
pub(crate) fn socket(dir: &Path) -> PathBuf {
    dir.join("scale.socket")
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum ScaleRequest {
    /// Who is there, with how many pairs.
    Look,
    /// Has a node run: one that was given up is started again, and a number that is free gets a place. That
    /// it was removed, or that a scale wanted it empty, is taken back.
    Start { node: u16 },
    /// Whether there is memory for so many nodes. While that is not known, it is said what is not.
    Memory { nodes: u16 },
    /// Wants these nodes empty, all or none: what leaves one does not go to another that leaves. Refused if
    /// the others lack room; while that is not known, it is said what is not.
    Drain { nodes: Vec<u16> },
    /// Wants those of these nodes empty no longer that a scale wanted empty.
    Undrain { nodes: Vec<u16> },
    /// Stops a node for good, which has no pairs.
    Retire { node: u16 },
    /// A node that was stopped is not expected back.
    Remove { node: u16 },
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScaleNode {
    pub(crate) node: u16,
    pub(crate) state: String,
    pub(crate) server: String,
    pub(crate) http: String,
    /// Pairs that it has, or that wait for it.
    pub(crate) pairs: usize,
    /// It is to be emptied.
    pub(crate) draining: bool,
    /// It was removed for good.
    pub(crate) removed: bool,
    /// Who wants it empty, or has removed it.
    pub(crate) drained_by: Option<String>,
    /// What keeps it from being emptied.
    pub(crate) stall: Option<String>,
    /// What it may hold in memory, where nodes share that.
    pub(crate) memory_limit_bytes: Option<u64>,
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
    Start(u16),
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
        let (start, drain) = (ScaleRequest::Start { node: 3 }, ScaleRequest::Drain { nodes: vec![1, 2] });
        for (request, text) in
            [(start, r#"{"do":"start","node":3}"#), (drain, r#"{"do":"drain","nodes":[1,2]}"#)]
        {
            assert_eq!(serde_json::to_string(&request).unwrap(), text);
            assert_eq!(serde_json::from_str::<ScaleRequest>(text).unwrap(), request);
        }
    }
}
