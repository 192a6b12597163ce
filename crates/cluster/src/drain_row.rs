//! The row of a node that is to be emptied, or that was removed for good; why nodes are neither.

use cell_terms::NodeId;
use cell_terms::text::counted;
use serde::{Deserialize, Serialize};

use crate::number;

/// Under which the rows lie.
pub(crate) const KEY_DRAINS: &str = "drain/";
/// Nodes of one change, at most: a transaction has so many steps.
pub const DRAINS_AT_ONCE: usize = 100;

/// A node that is to be emptied, or that was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRow {
    /// The node.
    #[serde(with = "number")]
    pub node: NodeId,
    /// Who wanted it.
    pub who: String,
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Since when, in milliseconds since 1970, by the clock of the node that was asked.
    pub since_unix_ms: u64,
    /// The node was removed for good: it may not join any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// What has kept it from being emptied for a while, as the balancer found it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<String>,
}

/// Why a node is not drained, or not removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeRefusal {
    /// No such node lives.
    #[error("no {node} is in the cluster just now")]
    NotMember {
        /// Which.
        node: NodeId,
    },
    /// Nobody would be left.
    #[error("no other node would be left that serves: one node at least has to keep the pairs")]
    LastNode,
    /// There is nothing to take back.
    #[error("{node} does not drain")]
    NotDraining {
        /// Which.
        node: NodeId,
    },
    /// It has pairs.
    #[error("{node} still has {}", counted(*pairs, "pair", "pairs"))]
    OwnsPairs {
        /// Which.
        node: NodeId,
        /// How many.
        pairs: u64,
    },
    /// It runs, and is not drained.
    #[error("{node} runs and does not drain")]
    Runs {
        /// Which.
        node: NodeId,
    },
    /// It runs, and is not seen among the members.
    #[error("{node} runs, and its row of the members does not read")]
    Unreadable {
        /// Which.
        node: NodeId,
    },
    /// It was removed.
    #[error("{node} was removed from the cluster for good, by {who}")]
    Removed {
        /// Which.
        node: NodeId,
        /// By whom.
        who: String,
    },
    /// It was decided by what is not so any more: drains were started or ended since, or a node has ended
    /// that was to take pairs. Nothing was done.
    #[error(
        "drains were started or ended since it was looked at, or a node has ended that was to take pairs"
    )]
    Changed,
    /// More nodes than one change takes.
    #[error("at most {} nodes are drained by one command", DRAINS_AT_ONCE)]
    TooMany,
}

/// Who drains or removes nodes, why and when.
#[derive(Clone, Copy, Debug)]
pub struct DrainAuthor<'a> {
    /// Who.
    pub who: &'a str,
    /// Why.
    pub why: Option<&'a str>,
    /// Milliseconds since 1970.
    pub now_unix_ms: u64,
}

impl DrainRow {
    /// The row's key.
    pub(crate) fn key(node: NodeId) -> String {
        format!("{KEY_DRAINS}{:08}", node.0)
    }

    pub(crate) fn new(node: NodeId, author: &DrainAuthor<'_>, removed: bool) -> DrainRow {
        let (who, why) = (author.who.to_owned(), author.why.map(str::to_owned));
        DrainRow { node, who, why, since_unix_ms: author.now_unix_ms, removed, stall: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drain_row_text_is_pinned() {
        let author = DrainAuthor { who: "ops", why: None, now_unix_ms: 5 };
        let row = DrainRow::new(NodeId(3), &author, false);
        let text = r#"{"node":3,"who":"ops","since_unix_ms":5}"#;
        assert_eq!(serde_json::to_string(&row).unwrap(), text);
        assert_eq!(serde_json::from_str::<DrainRow>(text).unwrap(), row);
        let row = DrainRow { why: Some("w".into()), removed: true, stall: Some("s".into()), ..row };
        let text = r#"{"node":3,"who":"ops","why":"w","since_unix_ms":5,"removed":true,"stall":"s"}"#;
        assert_eq!(serde_json::to_string(&row).unwrap(), text);
        assert_eq!(serde_json::from_str::<DrainRow>(text).unwrap(), row);
    }
}
