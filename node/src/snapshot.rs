//! What a node tells about itself: an immutable snapshot, published about once a second, read by `web`
//! without touching the data path.

use std::sync::Arc;

use cell_cluster::{IncidentRow, MemberRow, PairRow};
use cell_memory::BudgetFigures;
use cell_recovery::ProgressView;
use cell_terms::{CounterValue, Csn, Durability, Epoch, Incarnation, NodeId, PairId};

/// What a node is doing.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum NodeState {
    /// Joining the cluster: lease, claim.
    Starting,
    /// Replaying its pairs.
    Recovering(RecoveryProgress),
    /// Serving every pair.
    Serving,
    /// Serving reads and deletes; writes are refused.
    ReadOnly(ReadOnlyReason),
    /// Taking a last checkpoint.
    Stopping,
    /// Has given its pairs up; the process exits.
    Failed(FailureKind),
}

/// How far a recovery is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RecoveryProgress {
    /// What it is at: claiming, loading, replaying, recording, verifying, opening, waiting.
    pub stage: &'static str,
    /// Log and image bytes replayed.
    pub bytes_done: u64,
    /// Log and image bytes there are.
    pub bytes_total: u64,
    /// Bytes a second since the start.
    pub bytes_per_second: f64,
}

/// Why writes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadOnlyReason {
    /// The disk under the logs has no room for the next segment.
    DiskFull,
    /// A region has no room for the entry, or for a split of its tree nodes.
    RegionFull,
}

/// Why a node gave its pairs up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// A write or sync of a log failed; nothing retries it.
    LogFailed,
    /// The lease could not be renewed in time.
    LeaseLost,
    /// Recovery refused a pair: a log that cannot be proven complete, or corruption.
    RecoveryRefused,
}

/// Operations by kind, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounts {
    /// `search`.
    pub search: u64,
    /// `get`, multi-get keys included.
    pub get: u64,
    /// `put`, conditional ones included.
    pub put: u64,
    /// `delete`.
    pub delete: u64,
    /// Pages of scans.
    pub scan: u64,
    /// Requests answered with an error.
    pub refused: u64,
    /// Writes answered from the completion table.
    pub repeated: u64,
}

/// One pair's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PairSnapshot {
    /// The pair.
    pub pair: PairId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Last CSN handed out.
    pub csn_appended: Csn,
    /// Durable watermark.
    pub csn_durable: Csn,
    /// Base of the last recorded checkpoint.
    pub csn_checkpointed: Csn,
    /// Entries in the tree.
    pub entries: u64,
    /// Tree nodes in use.
    pub tree_nodes: u64,
    /// Bytes of one tree node.
    pub tree_node_bytes: u64,
    /// Bytes of live extents, as asked for.
    pub extent_live_bytes: u64,
    /// Bytes that live extents occupy.
    pub extent_allocated_bytes: u64,
    /// Bytes of the extent region.
    pub extent_region_bytes: u64,
    /// Bytes of the node region.
    pub node_region_bytes: u64,
    /// Bytes of both regions that were given memory ahead of use.
    pub populated_bytes: u64,
    /// Those of them that are on huge pages, reserved or transparent.
    pub huge_page_bytes: u64,
    /// Freed bytes that wait for reuse.
    pub grace_bytes: u64,
    /// Log bytes since the last checkpoint.
    pub log_bytes_since_checkpoint: u64,
    /// Batches synced.
    pub batches: u64,
    /// Bytes synced in both logs, padding included.
    pub log_bytes: u64,
    /// Results kept for repeats.
    pub completions: u64,
    /// Replies that wait for the log.
    pub replies_held: u64,
    /// Checkpoints recorded.
    pub checkpoints: u64,
    /// Times that a meganode was rebuilt after deletes.
    pub rebuilds: u64,
    /// Tree nodes that rebuilds have freed.
    pub rebuild_nodes_freed: u64,
    /// Whether one is in progress.
    pub checkpoint_running: bool,
    /// Batch sync times: microseconds, p50, p99, max of the last period.
    pub sync_us: [u64; 3],
}

/// A takeover that this node is at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairRecovery {
    /// The pair.
    pub pair: PairId,
    /// How far it is.
    pub progress: RecoveryProgress,
}

impl PairRecovery {
    pub(crate) fn new(pair: PairId, view: &ProgressView) -> PairRecovery {
        PairRecovery {
            pair,
            progress: RecoveryProgress {
                stage: view.stage.name(),
                bytes_done: view.bytes_done,
                bytes_total: view.bytes_total,
                bytes_per_second: view.bytes_per_second,
            },
        }
    }
}

/// The cluster as the node's last look showed it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterSnapshot {
    /// The coordinator's revision; zero: nothing was seen yet.
    pub revision: u64,
    /// The region table.
    pub pairs: Vec<PairRow>,
    /// Who lives.
    pub members: Vec<MemberRow>,
    /// What became of the pairs of those that died.
    pub incidents: Vec<IncidentRow>,
    /// Takeovers under way at this node.
    pub recoveries: Vec<PairRecovery>,
}

/// A node's figures.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSnapshot {
    /// The node.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// What it is doing.
    pub state: NodeState,
    /// Its durability setting.
    pub durability: Durability,
    /// Milliseconds since the process started.
    pub uptime_ms: u64,
    /// How long the lease surely holds from the snapshot on.
    pub lease_remaining_ms: u64,
    /// Connections of clients.
    pub connections: u64,
    /// What the process may hold, and what holds it.
    pub memory: BudgetFigures,
    /// Memory that the process holds ready for takeovers.
    pub memory_ready_bytes: u64,
    /// What takeovers have had of it.
    pub memory_ready_bytes_given: u64,
    /// Which pages back the node region, then the extent region.
    pub backing: [&'static str; 2],
    /// Operations since the start.
    pub operations: OperationCounts,
    /// What its logs, its fabric and its lease count, as their crates declare it.
    pub counters: Vec<CounterValue>,
    /// Its pairs.
    pub pairs: Vec<PairSnapshot>,
    /// The others.
    pub cluster: Arc<ClusterSnapshot>,
}
