//! A node's figures for tests.

use std::sync::Arc;

use cell_node::{
    BudgetFigures, ClientTotals, FlushChoice, FlushWay, NodeSnapshot, NodeState, OperationCounts,
    OperationLatencies, PairSnapshot, RenewalFigures, SplitCounts, WorkerCounts,
};
use cell_terms::{Counter, CounterKind, CounterValue, Csn, Durability, Incarnation, NodeId, PairId};

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
        renewals: RenewalFigures::default(),
        connections: 4,
        memory: BudgetFigures {
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
        log_flush: FlushChoice::new(FlushWay::PerDevice, "faster here"),
        operations: OperationCounts { get: 10, put: 5, ..OperationCounts::default() },
        worker_counts: WorkerCounts::default(),
        latencies: OperationLatencies::default(),
        latency_histograms: Arc::default(),
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
        tree: Arc::default(),
        clients: Vec::new(),
        client_totals: ClientTotals::default(),
        cluster: Arc::default(),
    }
}
