//! The cluster as a node saw it last, as JSON: members, pairs, incidents with their timelines, takeovers.
//!
//! Times in incidents are milliseconds of CLOCK_BOOTTIME of whoever wrote them; on one machine all read the
//! same clock. Zero: not yet.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use cell_cluster::{PairRow, Trouble, number};
use cell_node::{ClusterSnapshot, NO_ROOM, NodeSnapshot, NodeState, PairRecovery};
use cell_terms::{Incarnation, NodeId};
use serde::Serialize;

use crate::api::params::Params;
use crate::clock::milliseconds;
use crate::problem::Problem;
use crate::shared::Shared;

/// What a node knows of its cluster, as it is, with who reports it.
#[derive(Debug, Serialize)]
pub(crate) struct ClusterDocument<'a> {
    version: u32,
    age_ms: u64,
    #[serde(serialize_with = "number::serialize")]
    node: NodeId,
    #[serde(serialize_with = "number::serialize")]
    incarnation: Incarnation,
    /// Whether it is what the node sees now, not what it saw before its lease ran out.
    current: bool,
    #[serde(flatten)]
    cluster: &'a ClusterSnapshot,
}

fn document(snapshot: &NodeSnapshot, age: Duration) -> ClusterDocument<'_> {
    let NodeSnapshot { node, incarnation, cluster, .. } = snapshot;
    ClusterDocument {
        version: 1,
        age_ms: milliseconds(age),
        node: *node,
        incarnation: *incarnation,
        current: unknown(snapshot).is_none(),
        cluster,
    }
}

/// `GET /api/v1/cluster`.
pub(crate) async fn get_cluster(
    State(shared): State<Arc<Shared>>,
    mut params: Params,
) -> Result<Response, Problem> {
    params.scope()?; // a node returns what it has seen itself
    params.end()?;
    let (snapshot, age) = shared.look();
    Ok(axum::Json(document(&snapshot, age)).into_response())
}

/// What is known of pairs at a node that waits for its coordinator.
pub(crate) const WAITS_UNKNOWN: &str = "not known: this node waits for its coordinator";

/// Why what the node saw of its cluster is not so any more, or was never seen; none while its lease holds.
pub(crate) fn unknown(snapshot: &NodeSnapshot) -> Option<&'static str> {
    match &snapshot.state {
        NodeState::Starting(_) | NodeState::Recovering(_) if snapshot.cluster.is_unseen() => {
            Some("not known yet")
        }
        NodeState::Silent => Some(WAITS_UNKNOWN),
        _ if snapshot.lease_remaining_ms == 0 => Some("not known: the lease of this node is over"),
        _ => None,
    }
}

/// What is answered in place of an empty cluster by a node that has not seen its own yet.
pub(crate) fn unseen(snapshot: &NodeSnapshot) -> Option<Problem> {
    snapshot.cluster.is_unseen().then(|| {
        let (node, state) = (snapshot.node.0, snapshot.state.word());
        let detail =
            format!("Not known yet: node {node} is {state} and has not seen its cluster since its start.");
        Problem::unavailable(detail)
            .next("ask again in a moment, or ask another node; `cell status` says what this one waits for")
            .retry_after(Duration::from_secs(1))
    })
}

/// Pairs that are not served, and why, in words; none if all are.
pub(crate) fn troubles(snapshot: &NodeSnapshot) -> Vec<String> {
    let cluster = &snapshot.cluster;
    let lives = |owner| cluster.members.iter().any(|member| member.incarnation == owner);
    let words = |row: &PairRow| {
        let Trouble { what, next } = Trouble::of(row, lives, &cluster.incidents)?;
        let lacks_room = |of: &PairRecovery| of.pair == row.pair && of.progress.stage == NO_ROOM;
        let why = match next.is_none() && cluster.recoveries.iter().any(lacks_room) {
            true => format!(", {NO_ROOM} of node {}: make room there", snapshot.node.0),
            false => String::new(),
        };
        Some(format!("{} is {what}{why}", row.pair))
    };
    cluster.pairs.iter().filter_map(words).collect()
}

#[cfg(test)]
mod tests {
    use cell_cluster::PairState;
    use cell_node::{CoordinatorWait, RecoveryProgress};
    use cell_terms::PairId;

    use super::*;
    use crate::api::regions::tests::pair_row;
    use crate::test_snapshot::snapshot;

    #[test]
    fn document_of_a_node_that_has_seen_nothing_is_whole() {
        let snapshot = snapshot();
        let document = serde_json::to_value(document(&snapshot, Duration::ZERO)).unwrap();
        assert_eq!((&document["version"], &document["revision"]), (&1.into(), &0.into()));
        assert_eq!(document["current"], true);
        for list in ["members", "pairs", "incidents", "recoveries", "unreadable"] {
            assert_eq!(document[list], serde_json::json!([]));
        }
        assert!(troubles(&snapshot).is_empty());
    }

    #[test]
    fn trouble_of_a_takeover_without_room_says_where_room_is_to_be_made() {
        let progress = RecoveryProgress { stage: NO_ROOM, ..RecoveryProgress::default() };
        let recoveries = vec![PairRecovery { pair: PairId(2), progress }];
        let pairs = [2, 3].map(|pair| PairRow { state: PairState::Recovering, ..pair_row(pair, 78) });
        let cluster = ClusterSnapshot { recoveries, pairs: pairs.into(), ..ClusterSnapshot::default() };
        let said = troubles(&NodeSnapshot { cluster: Arc::new(cluster), ..snapshot() });
        let first = "pair-2 is recovering, waiting for room on the disk of node 3: make room there";
        assert_eq!(said, [first, "pair-3 is recovering"]);
    }

    #[test]
    fn nothing_is_known_at_a_node_that_has_not_seen_its_cluster() {
        let node = |state| NodeSnapshot { state, ..snapshot() };
        let starting = NodeState::Starting(CoordinatorWait::default());
        for young in [starting, NodeState::Recovering(RecoveryProgress::default())] {
            let mut node = node(young);
            assert_eq!(unknown(&node), Some("not known yet"));
            assert_eq!(serde_json::to_value(document(&node, Duration::ZERO)).unwrap()["current"], false);
            assert!(unseen(&node).is_some());
            node.cluster = Arc::new(ClusterSnapshot { revision: 1, ..ClusterSnapshot::default() });
            assert!(unknown(&node).is_none() && unseen(&node).is_none());
        }
    }

    #[test]
    fn document_of_a_silent_node_says_that_it_is_of_the_past() {
        let silent = NodeSnapshot { state: NodeState::Silent, lease_remaining_ms: 0, ..snapshot() };
        let document = serde_json::to_value(document(&silent, Duration::ZERO)).unwrap();
        assert_eq!(document["current"], false);
        let over = NodeSnapshot { lease_remaining_ms: 0, ..snapshot() };
        assert!(unknown(&over).is_some() && unknown(&snapshot()).is_none());
    }
}
