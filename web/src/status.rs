//! The snapshot as JSON, for programs and for `cell status`.

use std::time::Duration;

use cell_node::{FailureKind, NodeSnapshot, NodeState, PairSnapshot, ReadOnlyReason};
use cell_terms::Durability;
use serde_json::{Value, json};

/// Grows when a field changes its meaning or goes away; new fields may come without.
pub(crate) const STATUS_VERSION: u32 = 1;

pub(crate) fn document(snapshot: &NodeSnapshot, age: Duration) -> Value {
    json!({
        "version": STATUS_VERSION,
        "age_ms": u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
        "node": snapshot.node.0,
        "incarnation": snapshot.incarnation.0,
        "state": state(&snapshot.state),
        "durability": durability(snapshot.durability),
        "uptime_ms": snapshot.uptime_ms,
        "lease_remaining_ms": snapshot.lease_remaining_ms,
        "connections": snapshot.connections,
        "backing": {"node_region": snapshot.backing[0], "extent_region": snapshot.backing[1]},
        "memory": {
            "limit_bytes": snapshot.memory.limit,
            "available_bytes": snapshot.memory.available,
            "regions_bytes": snapshot.memory.regions,
            "ready_bytes": snapshot.memory.ready,
            "logs_bytes": snapshot.memory.logs,
            "process_bytes": snapshot.memory.process,
            "process_measured_bytes": snapshot.memory.process_measured,
            "refused": snapshot.memory.refused,
        },
        "operations": {
            "search": snapshot.operations.search,
            "get": snapshot.operations.get,
            "put": snapshot.operations.put,
            "delete": snapshot.operations.delete,
            "scan": snapshot.operations.scan,
            "refused": snapshot.operations.refused,
            "repeated": snapshot.operations.repeated,
        },
        "counters": counters(snapshot),
        "pairs": snapshot.pairs.iter().map(pair).collect::<Vec<_>>(),
    })
}

/// By the names of the metrics, without their prefix.
fn counters(snapshot: &NodeSnapshot) -> Value {
    let counted = snapshot.counters.iter().map(|one| (one.counter.name.to_owned(), one.value.into()));
    Value::Object(counted.collect())
}

fn pair(pair: &PairSnapshot) -> Value {
    json!({
        "pair": pair.pair.0,
        "epoch": pair.epoch.0,
        "csn_appended": pair.csn_appended.0,
        "csn_durable": pair.csn_durable.0,
        "csn_checkpointed": pair.csn_checkpointed.0,
        "entries": pair.entries,
        "tree_nodes": pair.tree_nodes,
        "tree_node_bytes": pair.tree_node_bytes,
        "extent_live_bytes": pair.extent_live_bytes,
        "extent_allocated_bytes": pair.extent_allocated_bytes,
        "extent_region_bytes": pair.extent_region_bytes,
        "node_region_bytes": pair.node_region_bytes,
        "populated_bytes": pair.populated_bytes,
        "huge_page_bytes": pair.huge_page_bytes,
        "grace_bytes": pair.grace_bytes,
        "log_bytes_since_checkpoint": pair.log_bytes_since_checkpoint,
        "log_bytes": pair.log_bytes,
        "batches": pair.batches,
        "completions": pair.completions,
        "replies_held": pair.replies_held,
        "checkpoints": pair.checkpoints,
        "rebuilds": pair.rebuilds,
        "rebuild_nodes_freed": pair.rebuild_nodes_freed,
        "checkpoint_running": pair.checkpoint_running,
        "sync_us": {"p50": pair.sync_us[0], "p99": pair.sync_us[1], "max": pair.sync_us[2]},
    })
}

fn state(state: &NodeState) -> Value {
    let mut document = json!({"name": state_word(state)});
    match state {
        NodeState::Recovering(progress) => {
            document["stage"] = progress.stage.into();
            document["bytes_done"] = progress.bytes_done.into();
            document["bytes_total"] = progress.bytes_total.into();
            document["bytes_per_second"] = progress.bytes_per_second.into();
        }
        NodeState::ReadOnly(reason) => document["reason"] = read_only_words(*reason).into(),
        NodeState::Failed(kind) => document["reason"] = failure_words(*kind).into(),
        _ => {}
    }
    document
}

/// The state in one word.
pub(crate) fn state_word(state: &NodeState) -> &'static str {
    match state {
        NodeState::Starting => "starting",
        NodeState::Recovering(_) => "recovering",
        NodeState::Serving => "serving",
        NodeState::ReadOnly(_) => "read_only",
        NodeState::Stopping => "stopping",
        NodeState::Failed(_) => "failed",
        _ => "unknown",
    }
}

/// Why writes are refused.
pub(crate) fn read_only_words(reason: ReadOnlyReason) -> &'static str {
    match reason {
        ReadOnlyReason::DiskFull => "read-only: the disk under the logs is full",
        ReadOnlyReason::RegionFull => "read-only: a region is full",
        _ => "read-only",
    }
}

/// Why a node gave up.
pub(crate) fn failure_words(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::LogFailed => "failed: a write or sync of a log failed",
        FailureKind::LeaseLost => "failed: the lease was lost",
        FailureKind::RecoveryRefused => "failed: recovery refused a pair",
        _ => "failed",
    }
}

fn durability(durability: Durability) -> &'static str {
    match durability {
        Durability::Sync => "sync",
        Durability::Async => "async",
        Durability::None => "none",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use cell_node::OperationCounts;
    use cell_terms::{Counter, CounterKind, CounterValue, Csn, Incarnation, NodeId, PairId};

    use super::*;

    const PAYLOAD: Counter =
        Counter { name: "log_payload_bytes_total", meaning: " Bytes of records.", kind: CounterKind::Total };

    /// A node that serves one pair.
    pub(crate) fn snapshot() -> NodeSnapshot {
        NodeSnapshot {
            node: NodeId(3),
            incarnation: Incarnation(77),
            state: NodeState::Serving,
            durability: Durability::Sync,
            uptime_ms: 12_000,
            lease_remaining_ms: 2_000,
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
            operations: OperationCounts { get: 10, put: 5, ..OperationCounts::default() },
            counters: vec![CounterValue { counter: &PAYLOAD, value: 4096.0 }],
            pairs: vec![PairSnapshot {
                pair: PairId(1),
                csn_durable: Csn(41),
                entries: 9,
                huge_page_bytes: 2 << 20,
                ..PairSnapshot::default()
            }],
            cluster: std::sync::Arc::default(),
        }
    }

    #[test]
    fn document_has_the_figures_under_stable_names() {
        let document = document(&snapshot(), Duration::from_millis(300));
        assert_eq!(document["version"], 1);
        assert_eq!(document["state"]["name"], "serving");
        assert_eq!(document["pairs"][0]["csn_durable"], 41);
        assert_eq!(document["operations"]["get"], 10);
        assert_eq!(document["counters"]["log_payload_bytes_total"], 4096.0);
        assert_eq!(document["age_ms"], 300);
    }
}
