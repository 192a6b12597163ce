//! The snapshot as JSON, for programs and for `cell status`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use cell_node::NodeSnapshot;
use serde::Serialize;

use crate::api::params::Params;
use crate::clock::milliseconds;
use crate::problem::Problem;
use crate::shared::Shared;

/// Grows when a field changes its meaning or goes away; new fields may come without.
pub(crate) const STATUS_VERSION: u32 = 1;

/// A snapshot as it is, with what only its reader knows.
#[derive(Debug, Serialize)]
pub(crate) struct StatusDocument<'a> {
    version: u32,
    age_ms: u64,
    #[serde(flatten)]
    snapshot: &'a NodeSnapshot,
}

fn document(snapshot: &NodeSnapshot, age: Duration) -> StatusDocument<'_> {
    StatusDocument { version: STATUS_VERSION, age_ms: milliseconds(age), snapshot }
}

/// `GET /api/v1/status`.
pub(crate) async fn get_status(
    State(shared): State<Arc<Shared>>,
    mut params: Params,
) -> Result<Response, Problem> {
    params.scope()?; // a node reports itself alone
    params.end()?;
    let (snapshot, age) = shared.look();
    Ok(axum::Json(document(&snapshot, age)).into_response())
}

#[cfg(test)]
pub(crate) mod tests {
    use cell_node::{
        FailureKind, NodeState, OperationCounts, OperationLatencies, PairSnapshot, RecoveryProgress,
        SplitCounts,
    };
    use cell_terms::{Counter, CounterKind, CounterValue, Csn, Durability, Incarnation, NodeId, PairId};

    use super::*;

    const PAYLOAD: Counter =
        Counter { name: "log_payload_bytes_total", meaning: " Bytes of records.", kind: CounterKind::Total };

    /// A node that serves one pair.
    pub(crate) fn snapshot() -> NodeSnapshot {
        NodeSnapshot {
            node: NodeId(3),
            incarnation: Incarnation(77),
            state: NodeState::Serving,
            warnings: Vec::new(),
            restarted_because: None,
            durability: Durability::Sync,
            uptime_ms: 12_000,
            lease_remaining_ms: 2_000,
            renewals: cell_node::RenewalFigures::default(),
            connections: 4,
            memory: cell_node::BudgetFigures {
                limit: 1_000,
                available: 190,
                regions: 300,
                ready: 100,
                logs: 10,
                process: 400,
                process_measured: 350,
                refused: 3,
            },
            memory_ready_bytes: 4 << 20,
            memory_ready_bytes_given: 2 << 20,
            backing: ["2 MiB", "4 KiB"],
            log_flush: cell_node::FlushChoice::new(cell_node::FlushWay::PerDevice, "faster here"),
            operations: OperationCounts { get: 10, put: 5, ..OperationCounts::default() },
            worker_counts: cell_node::WorkerCounts::default(),
            latencies: OperationLatencies::default(),
            latency_histograms: std::sync::Arc::default(),
            splits: SplitCounts::default(),
            cpu_ns: [5, 3],
            counters: vec![CounterValue { counter: &PAYLOAD, value: 4096.0 }],
            pairs: vec![PairSnapshot {
                pair: PairId(1),
                csn_durable: Csn(41),
                entries: 9,
                huge_page_bytes: 2 << 20,
                ..PairSnapshot::default()
            }],
            tree: std::sync::Arc::default(),
            clients: Vec::new(),
            client_totals: cell_node::ClientTotals::default(),
            cluster: std::sync::Arc::default(),
        }
    }

    #[test]
    fn document_has_the_figures_under_stable_names() {
        let document = serde_json::to_value(document(&snapshot(), Duration::from_millis(300))).unwrap();
        assert_eq!(document["version"], 1);
        assert_eq!(document["state"], serde_json::json!({"name": "serving"}));
        assert_eq!(document["pairs"][0]["csn_durable"], 41);
        assert_eq!(document["pairs"][0]["sync_us"], serde_json::json!({"p50": 0, "p99": 0, "max": 0}));
        assert_eq!(document["operations"]["get"], 10);
        assert_eq!(document["counters"]["log_payload_bytes_total"], 4096.0);
        assert_eq!(document["memory"]["process_measured_bytes"], 350);
        assert_eq!(document["backing"]["extent_region"], "4 KiB");
        assert_eq!(document["log_flush"], serde_json::json!({"way": "per_device", "why": "faster here"}));
        assert_eq!((&document["node"], &document["durability"]), (&3.into(), &"sync".into()));
        assert_eq!((&document["age_ms"], document.get("cluster")), (&300.into(), None));
    }

    #[test]
    fn document_says_more_of_states_that_have_more() {
        let state = |state| {
            let snapshot = NodeSnapshot { state, ..snapshot() };
            serde_json::to_value(document(&snapshot, Duration::ZERO)).unwrap()["state"].clone()
        };
        let progress =
            RecoveryProgress { stage: "logs", bytes_done: 43, bytes_total: 100, bytes_per_second: 1.5 };
        assert_eq!(
            state(NodeState::Recovering(progress)),
            serde_json::json!({
                "name": "recovering", "stage": "logs",
                "bytes_done": 43, "bytes_total": 100, "bytes_per_second": 1.5,
            })
        );
        let failed = state(NodeState::Failed(FailureKind::LeaseLost));
        assert_eq!(failed, serde_json::json!({"name": "failed", "reason": "failed: the lease was lost"}));
    }
}
