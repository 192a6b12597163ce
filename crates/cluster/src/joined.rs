//! The nodes that have joined, a row of each, which outlasts the node's process: the members are those that
//! live, and what a process has seen of others ends with it. A row goes when its node is removed for good.
//!
//! A table that an earlier version wrote has no such rows: they come as nodes join.

use std::sync::Arc;

use cell_terms::{Incarnation, NodeId};
use serde::{Deserialize, Serialize};

use crate::coordinator::{Coordinator, readable};
use crate::error::ClusterError;
use crate::number;

/// Under which the rows lie.
pub(crate) const KEY_JOINED: &str = "joined/";

/// A node that has joined, and was not removed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedRow {
    /// The node.
    #[serde(with = "number")]
    pub node: NodeId,
    /// Its last life that has joined.
    #[serde(with = "number")]
    pub incarnation: Incarnation,
}

impl JoinedRow {
    /// The row's key.
    pub(crate) fn key(node: NodeId) -> String {
        format!("{KEY_JOINED}{:08}", node.0)
    }
}

/// The nodes that have joined. Clones share the coordinator.
#[derive(Clone)]
pub struct JoinedNodes {
    coordinator: Arc<dyn Coordinator>,
}

impl JoinedNodes {
    /// Those that `coordinator` knows.
    #[must_use]
    pub fn new(coordinator: Arc<dyn Coordinator>) -> JoinedNodes {
        JoinedNodes { coordinator }
    }

    /// Every row that reads, by node.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn list(&self) -> Result<Vec<JoinedRow>, ClusterError> {
        let listing = self.coordinator.list(KEY_JOINED)?;
        Ok(readable("a node that has joined", &listing.entries).collect())
    }

    /// Whether a node has joined and was not removed since: its row is there, whether or not it reads.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn has(&self, node: NodeId) -> Result<bool, ClusterError> {
        Ok(self.coordinator.read(&JoinedRow::key(node))?.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_row_text_is_pinned() {
        let row = JoinedRow { node: NodeId(3), incarnation: Incarnation(9) };
        let text = r#"{"node":3,"incarnation":9}"#;
        assert_eq!(serde_json::to_string(&row).unwrap(), text);
        assert_eq!(serde_json::from_str::<JoinedRow>(text).unwrap(), row);
        assert_eq!(JoinedRow::key(NodeId(3)), "joined/00000003");
    }
}
