//! `GET /api/v1/nodes`: a row for each node of the cluster, made by the node itself.

use std::net::SocketAddr;

use cell_node::{NodeSnapshot, NodeState};
use serde::{Deserialize, Serialize};

use crate::api::gathered::ClusterDocument;
use crate::clock::{LookTime, milliseconds};
use crate::freshness::STALE_AFTER;
use crate::history::{entries, queue_estimate_us};
use crate::known_nodes::AbsentNode;
use crate::peers::{MissingPeer, NodePart};
use crate::rates::Rates;
use crate::shared::Shared;

/// A node's state and figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeRow {
    pub(crate) node: u32,
    /// A decimal number: JavaScript's are too small.
    pub(crate) incarnation: String,
    /// Where clients reach it; empty if that is not known.
    pub(crate) address: String,
    pub(crate) http: String,
    /// One word: see `cell_node::NodeState::word`, or [`ABSENT`].
    pub(crate) state: String,
    pub(crate) state_detail: Option<String>,
    pub(crate) uptime_ms: u64,
    pub(crate) lease_remaining_ms: u64,
    pub(crate) connections: u64,
    pub(crate) memory: NodeMemory,
    pub(crate) backing: NodeBacking,
    /// The pairs that it serves.
    pub(crate) pairs: Vec<u32>,
    /// What the memory limit has granted to each of them.
    pub(crate) pairs_granted_bytes: Vec<u64>,
    /// Null: it has not its pairs yet, or not any more. That is no zero.
    pub(crate) entries: Option<u64>,
    /// Processors that the process keeps busy; null until two snapshots were seen, and while figures stand
    /// still.
    pub(crate) cpu_cores_used: Option<f64>,
    /// Likewise.
    pub(crate) operations_per_second: Option<f64>,
    /// How long a request waits for the worker; null if none came in the last second.
    pub(crate) queue_estimate_us: Option<f64>,
    /// Whether it is the node that made the document.
    pub(crate) is_self: bool,
    /// How long its figures stand still.
    pub(crate) age_ms: u64,
    /// It is to be emptied, and gets no pairs.
    pub(crate) draining: bool,
    /// Of a node whose lease has ended: since when, if that is known. Its row has no figures.
    pub(crate) absent_since_unix_ms: Option<u64>,
}

/// The state of a node that this one has known and whose lease has ended.
pub(crate) const ABSENT: &str = "absent";

impl NodeRow {
    /// Whether it serves and its figures can be believed.
    pub(crate) fn is_serving(&self) -> bool {
        self.state == "serving" && !self.is_stale()
    }

    /// Whether its figures are of the past.
    pub(crate) fn is_stale(&self) -> bool {
        self.age_ms > milliseconds(STALE_AFTER)
    }
}

/// What the process may hold, and what holds it, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeMemory {
    pub(crate) limit_bytes: u64,
    pub(crate) available_bytes: u64,
    pub(crate) regions_bytes: u64,
    pub(crate) ready_bytes: u64,
    pub(crate) logs_bytes: u64,
    pub(crate) process_bytes: u64,
}

/// Which pages back the regions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeBacking {
    pub(crate) node_region: String,
    pub(crate) extent_region: String,
}

/// A node's part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodesPart {
    row: NodeRow,
}

/// The rows of all that answered.
#[derive(Debug, Serialize)]
pub(crate) struct NodesBody {
    nodes: Vec<NodeRow>,
}

/// `GET /api/v1/nodes`.
pub(crate) struct Nodes;

impl ClusterDocument for Nodes {
    type Part = NodesPart;
    type Body = NodesBody;
    const PATH: &'static str = "/api/v1/nodes";

    fn part(shared: &Shared, snapshot: &NodeSnapshot) -> NodesPart {
        NodesPart { row: own_row(shared, snapshot) }
    }

    fn body(
        shared: &Shared,
        snapshot: &NodeSnapshot,
        parts: Vec<NodePart<NodesPart>>,
        _missing: &[MissingPeer],
    ) -> NodesBody {
        NodesBody { nodes: with_absent(rows(parts, snapshot.node.0), &absent_nodes(shared)) }
    }
}

/// This node's row.
pub(crate) fn own_row(shared: &Shared, snapshot: &NodeSnapshot) -> NodeRow {
    let age_ms = milliseconds(shared.look().1);
    NodeRow { age_ms, ..row(snapshot, shared.history().rates(), shared.sources.fabric) }
}

/// The nodes whose leases have ended, as this node knows them.
pub(crate) fn absent_nodes(shared: &Shared) -> Vec<AbsentNode> {
    shared.known_nodes().absent(LookTime::now())
}

/// The rows, and one of each node that is absent.
pub(crate) fn with_absent(mut rows: Vec<NodeRow>, absent: &[AbsentNode]) -> Vec<NodeRow> {
    for node in absent {
        if !rows.iter().any(|row| row.node == node.node) {
            rows.push(absent_row(node));
        }
    }
    rows.sort_by_key(|row| row.node);
    rows
}

fn absent_row(absent: &AbsentNode) -> NodeRow {
    NodeRow {
        node: absent.node,
        incarnation: absent.incarnation.0.to_string(),
        address: String::new(),
        http: String::new(),
        state: ABSENT.to_owned(),
        state_detail: Some("its lease has ended".to_owned()),
        uptime_ms: 0,
        lease_remaining_ms: 0,
        connections: 0,
        memory: NodeMemory::default(),
        backing: NodeBacking::default(),
        pairs: Vec::new(),
        pairs_granted_bytes: Vec::new(),
        entries: None,
        cpu_cores_used: None,
        operations_per_second: None,
        queue_estimate_us: None,
        is_self: false,
        age_ms: 0,
        draining: absent.draining,
        absent_since_unix_ms: absent.since_unix_ms,
    }
}

fn rows(parts: Vec<NodePart<NodesPart>>, own: u32) -> Vec<NodeRow> {
    let row =
        |NodePart { part, .. }: NodePart<NodesPart>| NodeRow { is_self: part.row.node == own, ..part.row };
    parts.into_iter().map(row).collect()
}

/// A node's row of its own snapshot.
pub(crate) fn row(snapshot: &NodeSnapshot, rates: &Rates, fabric: Option<SocketAddr>) -> NodeRow {
    let NodeSnapshot { memory, backing: [node_region, extent_region], .. } = snapshot;
    let member = snapshot.cluster.members.iter().find(|member| member.incarnation == snapshot.incarnation);
    NodeRow {
        node: snapshot.node.0,
        incarnation: snapshot.incarnation.0.to_string(),
        address: match member {
            Some(member) => member.fabric.clone(),
            None => fabric.map(|address| address.to_string()).unwrap_or_default(),
        },
        http: member.map(|member| member.http.clone()).unwrap_or_default(),
        state: snapshot.state.word().to_owned(),
        state_detail: detail(&snapshot.state, &snapshot.warnings),
        uptime_ms: snapshot.uptime_ms,
        lease_remaining_ms: snapshot.lease_remaining_ms,
        connections: snapshot.connections,
        memory: NodeMemory {
            limit_bytes: memory.limit,
            available_bytes: memory.available,
            regions_bytes: memory.regions,
            ready_bytes: memory.ready,
            logs_bytes: memory.logs,
            process_bytes: memory.process,
        },
        backing: NodeBacking {
            node_region: (*node_region).to_owned(),
            extent_region: (*extent_region).to_owned(),
        },
        pairs: snapshot.pairs.iter().map(|pair| pair.pair.0).collect(),
        pairs_granted_bytes: snapshot.pairs.iter().map(|pair| pair.granted_bytes).collect(),
        entries: entries(snapshot),
        cpu_cores_used: rates.cpu_cores_used,
        operations_per_second: rates.known(rates.operations_all()),
        queue_estimate_us: rates.known(queue_estimate_us(snapshot)).flatten(),
        is_self: false,
        age_ms: 0,
        draining: snapshot.cluster.drains.iter().any(|row| row.node == snapshot.node),
        absent_since_unix_ms: None,
    }
}

/// What a state's word leaves out, for people.
fn detail(state: &NodeState, warnings: &[String]) -> Option<String> {
    let more = match state {
        NodeState::Starting(wait) => Some(wait.words()),
        NodeState::Recovering(progress) => {
            let percent = u128::from(progress.bytes_done) * 100;
            let percent = percent.checked_div(u128::from(progress.bytes_total));
            Some(match percent {
                Some(percent) => format!("{}, {} %", progress.stage, percent.min(100)),
                None => progress.stage.to_owned(),
            })
        }
        NodeState::ReadOnly(reason) => Some(reason.words().to_owned()),
        NodeState::Silent => Some(cell_node::SILENT_WORDS.to_owned()),
        NodeState::Failed(kind) => Some(kind.words().to_owned()),
        _ => None,
    };
    let all: Vec<String> = more.into_iter().chain(warnings.iter().cloned()).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

#[cfg(test)]
mod tests {
    use cell_node::{ReadOnlyReason, RecoveryProgress};
    use cell_terms::NodeId;

    use super::*;
    use crate::test_snapshot::snapshot;

    #[test]
    fn row_of_a_snapshot_without_members_has_the_fabrics_own_address() {
        let row = row(&snapshot(), &Rates::default(), Some("127.0.0.1:7".parse().unwrap()));
        assert_eq!((row.node, &*row.incarnation, &*row.address, &*row.http), (3, "77", "127.0.0.1:7", ""));
        assert_eq!((row.pairs, row.entries, row.memory.limit_bytes), (vec![1], Some(9), 1_000));
    }

    /// It was counted as one that holds nothing.
    #[test]
    fn row_of_a_node_that_recovers_has_no_entries_to_count() {
        for state in [NodeState::Recovering(RecoveryProgress::default()), NodeState::Stopping] {
            let is_known = state == NodeState::Stopping;
            let snapshot = NodeSnapshot { state, pairs: Vec::new(), ..snapshot() };
            assert_eq!(row(&snapshot, &Rates::default(), None).entries, is_known.then_some(0));
        }
    }

    #[test]
    fn detail_says_what_the_word_leaves_out() {
        let progress =
            RecoveryProgress { stage: "replaying", bytes_done: 1, bytes_total: 4, bytes_per_second: 1.0 };
        assert_eq!(detail(&NodeState::Recovering(progress), &[]).unwrap(), "replaying, 25 %");
        let unknown = RecoveryProgress { bytes_total: 0, ..progress };
        assert_eq!(detail(&NodeState::Recovering(unknown), &[]).unwrap(), "replaying");
        let full = NodeState::ReadOnly(ReadOnlyReason::DiskFull);
        assert!(detail(&full, &[]).unwrap().contains("disk"));
        assert!(detail(&full, &["more".to_owned()]).unwrap().ends_with("; more"));
        assert_eq!(detail(&NodeState::Serving, &[]), None);
        assert_eq!(detail(&NodeState::Serving, &["one".to_owned(), "two".to_owned()]).unwrap(), "one; two");
    }

    #[test]
    fn rows_mark_the_answering_node_alone() {
        let part = |node| {
            let row = row(&NodeSnapshot { node: NodeId(node), ..snapshot() }, &Rates::default(), None);
            NodePart { node: NodeId(node), part: NodesPart { row } }
        };
        let rows = rows(vec![part(1), part(2)], 2);
        assert_eq!(
            rows.iter().map(|row| (row.node, row.is_self)).collect::<Vec<_>>(),
            [(1, false), (2, true)]
        );
    }
}
