//! The cluster as a node saw it last, as JSON: members, pairs, incidents with their timelines, takeovers.
//!
//! Times in incidents are milliseconds of CLOCK_BOOTTIME of whoever wrote them; on one machine all read the
//! same clock. Zero: not yet.

use std::time::Duration;

use cell_cluster::{PairRow, Trouble, number};
use cell_node::{ClusterSnapshot, NodeSnapshot};
use cell_terms::{Incarnation, NodeId};
use serde::Serialize;

use crate::status::milliseconds;

/// What a node knows of its cluster, as it is, with who tells it.
#[derive(Debug, Serialize)]
pub(crate) struct ClusterDocument<'a> {
    version: u32,
    age_ms: u64,
    #[serde(serialize_with = "number::serialize")]
    node: NodeId,
    #[serde(serialize_with = "number::serialize")]
    incarnation: Incarnation,
    #[serde(flatten)]
    cluster: &'a ClusterSnapshot,
}

pub(crate) fn document(snapshot: &NodeSnapshot, age: Duration) -> ClusterDocument<'_> {
    let NodeSnapshot { node, incarnation, cluster, .. } = snapshot;
    ClusterDocument { version: 1, age_ms: milliseconds(age), node: *node, incarnation: *incarnation, cluster }
}

/// Pairs that are not served, and why, in words; none if all are.
pub(crate) fn troubles(snapshot: &NodeSnapshot) -> Vec<String> {
    let cluster = &snapshot.cluster;
    let lives = |owner| cluster.members.iter().any(|member| member.incarnation == owner);
    let words = |row: &PairRow| Trouble::of(row, lives, &cluster.incidents).map(|it| (row.pair, it.what));
    cluster.pairs.iter().filter_map(words).map(|(pair, what)| format!("{pair} is {what}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::snapshot;

    #[test]
    fn document_of_a_node_that_has_seen_nothing_is_whole() {
        let snapshot = snapshot();
        let document = serde_json::to_value(document(&snapshot, Duration::ZERO)).unwrap();
        assert_eq!((&document["version"], &document["revision"]), (&1.into(), &0.into()));
        for list in ["members", "pairs", "incidents", "recoveries"] {
            assert_eq!(document[list], serde_json::json!([]));
        }
        assert!(troubles(&snapshot).is_empty());
    }
}
