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
mod tests {
    use cell_node::{FailureKind, NodeState, RecoveryProgress};

    use super::*;
    use crate::test_snapshot::snapshot;

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
