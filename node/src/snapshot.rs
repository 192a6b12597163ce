//! What a node reports about itself: an immutable snapshot, published about once a second, read by `web`
//! without touching the data path. As JSON it is what `web` serves: names of fields are those of programs
//! outside, and change only with the version of that document.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use cell_cluster::{
    DrainRow, IncidentRow, JoinedRow, MemberRow, MoveRow, PairRow, RenewalFigures, TuningRow, number,
};
use cell_memory::BudgetFigures;
use cell_pair::CheckpointFailure;
use cell_recovery::{ProgressView, RecoveryStage};
use cell_terms::{CounterValue, Csn, Durability, Epoch, Incarnation, NodeId, PairId};
use cell_wal::{FlushChoice, LogSegments};
use serde::{Serialize, Serializer};

use crate::balance::BalanceSnapshot;
use crate::client_snapshot::{ClientSnapshot, ClientTotals};
use crate::counters::{SYNC_BUCKETS, WorkerCounts};
use crate::latency::{OperationHistograms, OperationLatencies};
use crate::move_counts::MoveCounts;
use crate::split::SplitCounts;
use crate::takeover_counts::TakeoverCounts;
use crate::tree_shape::TreeShape;

/// What a node is doing.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum NodeState {
    /// Waiting for its first lease.
    Starting(CoordinatorWait),
    /// Replaying its pairs.
    Recovering(RecoveryProgress),
    /// Serving every pair.
    Serving,
    /// Serving reads and deletes; writes are refused.
    ReadOnly(ReadOnlyReason),
    /// Its lease has run out: it answers nobody until the coordinator says what became of it.
    Silent,
    /// Taking a last checkpoint.
    Stopping,
    /// Has given its pairs up; the process exits.
    Failed(FailureKind),
}

/// The stage of a recovery whose disk has no room for the new epoch's logs.
pub const NO_ROOM: &str = RecoveryStage::NoRoom.name();

/// A coordinator that has not given a first lease yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoordinatorWait {
    /// Where it is asked.
    pub coordinator: Arc<str>,
    /// How often it was asked in vain.
    pub tries: u64,
    /// Why the last time.
    pub why: Option<Arc<str>>,
}

impl CoordinatorWait {
    /// For people: `waiting for the coordinator at X, tried 3 times: it refuses connections`.
    #[must_use]
    pub fn words(&self) -> String {
        let CoordinatorWait { coordinator, tries, why } = self;
        let times = if *tries == 1 { "once".to_owned() } else { format!("{tries} times") };
        let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        match tries {
            0 => format!("waiting for the coordinator at {coordinator}"),
            _ => format!("waiting for the coordinator at {coordinator}, tried {times}{why}"),
        }
    }
}

/// What a silent node is about, for people.
pub const SILENT_WORDS: &str = "silent: its lease has run out, and it waits for the coordinator";

impl NodeState {
    /// The state in one word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            NodeState::Starting(_) => "starting",
            NodeState::Recovering(_) => "recovering",
            NodeState::Serving => "serving",
            NodeState::ReadOnly(_) => "read_only",
            NodeState::Silent => "silent",
            NodeState::Stopping => "stopping",
            NodeState::Failed(_) => "failed",
        }
    }
}

/// `name`, and what belongs to that state.
impl Serialize for NodeState {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            name: &'static str,
            #[serde(flatten)]
            progress: Option<&'a RecoveryProgress>,
            #[serde(skip_serializing_if = "Option::is_none")]
            reason: Option<Cow<'static, str>>,
        }
        let (progress, reason) = match self {
            NodeState::Starting(wait) => (None, Some(wait.words().into())),
            NodeState::Recovering(progress) => (Some(progress), None),
            NodeState::ReadOnly(reason) => (None, Some(reason.words().into())),
            NodeState::Failed(kind) => (None, Some(kind.words().into())),
            NodeState::Silent => (None, Some(SILENT_WORDS.into())),
            NodeState::Serving | NodeState::Stopping => (None, None),
        };
        Document { name: self.word(), progress, reason }.serialize(to)
    }
}

/// How far a recovery is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
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
    /// The disk under the logs has no room for the segment that a refused write needs; shorter ones may find
    /// room in the last one.
    DiskFull,
    /// A region has no room for the entry, or for a split of its tree nodes.
    RegionFull,
}

impl ReadOnlyReason {
    /// For people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            ReadOnlyReason::DiskFull => {
                "read-only: the disk under the logs is full for writes as long as one refused"
            }
            ReadOnlyReason::RegionFull => "read-only: a region is full",
        }
    }
}

/// Why a node gave its pairs up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// A write or sync of a log failed; nothing retries it.
    LogFailed,
    /// The coordinator has ended the lease, so that others may have the pairs; or it had run out when the
    /// node was to stop.
    LeaseLost,
    /// Recovery refused a pair: a log that cannot be proven complete, or corruption.
    RecoveryRefused,
    /// It does not fit its cluster: other terms or sizes, or a number that another node has or that was
    /// removed.
    JoinRefused,
    /// The coordinator's rows are not those that it has seen: they were restored, or are another one's.
    HistoryLost,
}

impl FailureKind {
    /// For people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            FailureKind::LogFailed => "failed: a write or sync of a log failed",
            FailureKind::LeaseLost => "failed: the lease was lost",
            FailureKind::RecoveryRefused => "failed: recovery refused a pair",
            FailureKind::JoinRefused => "failed: the node does not fit its cluster",
            FailureKind::HistoryLost => "failed: the coordinator has another history than before",
        }
    }
}

/// Operations by kind, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PairSnapshot {
    /// The pair.
    #[serde(serialize_with = "number::serialize")]
    pub pair: PairId,
    /// Its epoch.
    #[serde(serialize_with = "number::serialize")]
    pub epoch: Epoch,
    /// Last CSN handed out.
    #[serde(serialize_with = "number::serialize")]
    pub csn_appended: Csn,
    /// Durable watermark.
    #[serde(serialize_with = "number::serialize")]
    pub csn_durable: Csn,
    /// Base of the last recorded checkpoint; 0: there is none.
    #[serde(serialize_with = "number::serialize")]
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
    /// Of these, free slots of slabs: extents of other lengths can use them once slabs were packed.
    pub extent_slots_free_bytes: u64,
    /// Bytes of the extent region that have memory and hold nothing.
    pub extent_free_bytes: u64,
    /// Bytes of the extent region.
    pub extent_region_bytes: u64,
    /// Bytes of the node region.
    pub node_region_bytes: u64,
    /// Bytes of both regions that were granted by the memory limit.
    pub granted_bytes: u64,
    /// Bytes of both regions that were given memory ahead of use.
    pub populated_bytes: u64,
    /// Those of them that are on huge pages, reserved or transparent.
    pub huge_page_bytes: u64,
    /// Freed bytes that wait for reuse.
    pub grace_bytes: u64,
    /// Log bytes since the last checkpoint.
    pub log_bytes_since_checkpoint: u64,
    /// Bytes of records that are not durable yet.
    pub log_bytes_pending: u64,
    /// Batches synced.
    pub batches: u64,
    /// Bytes synced in both logs, padding included.
    pub log_bytes: u64,
    /// Segments of the node log and of the extent log that this owner writes; none without logs.
    #[serde(serialize_with = "segments")]
    pub log_segments: Option<[LogSegments; 2]>,
    /// Results kept for repeats.
    pub completions: u64,
    /// Replies that wait for the log.
    pub replies_held: u64,
    /// Checkpoints recorded.
    pub checkpoints: u64,
    /// Times that a meganode was compacted after deletes.
    pub compactions: u64,
    /// Tree nodes that compactions have freed.
    pub compaction_nodes_freed: u64,
    /// Times that sparse slabs of extents were packed.
    pub packings: u64,
    /// Bytes of extents that were moved for that.
    pub packed_bytes: u64,
    /// Whether one is in progress.
    pub checkpoint_running: bool,
    /// Checkpoints that failed.
    pub checkpoints_failed: u64,
    /// Why the last one failed; none if it did not.
    #[serde(serialize_with = "in_words")]
    pub checkpoint_failure: Option<CheckpointFailure>,
    /// Milliseconds since the last one was recorded, or since the node serves the pair if none was; for
    /// metrics.
    #[serde(skip)]
    pub checkpoint_age_ms: u64,
    /// Batch sync times: microseconds, p50, p99, max of the last second; 0: there were none.
    #[serde(serialize_with = "sync_times")]
    pub sync_us: [u64; 3],
    /// Milliseconds for which the batch that is at the disk has waited for it; 0: there is none, or it gets
    /// on.
    #[serde(skip)]
    pub sync_waiting_ms: u64,
    /// Batches since the start by their sync times: bucket `i` ends at [`crate::sync_bucket_end_us`].
    #[serde(skip)]
    pub sync_buckets: [u64; SYNC_BUCKETS],
}

/// A takeover that this node is at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PairRecovery {
    /// The pair.
    #[serde(serialize_with = "number::serialize")]
    pub pair: PairId,
    /// How far it is.
    #[serde(flatten)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClusterSnapshot {
    /// The coordinator's revision; zero: nothing was seen yet.
    pub revision: u64,
    /// The region table.
    pub pairs: Vec<PairRow>,
    /// Who lives.
    pub members: Vec<MemberRow>,
    /// What became of the pairs of those that died.
    pub incidents: Vec<IncidentRow>,
    /// The nodes that are to be emptied, and those that were removed.
    pub drains: Vec<DrainRow>,
    /// The nodes that have joined and were not removed since. Those of them that are no members are rows of
    /// the list of nodes.
    #[serde(skip)]
    pub joined: Vec<JoinedRow>,
    /// Takeovers under way at this node.
    pub recoveries: Vec<PairRecovery>,
    /// Takeovers of this node that have ended, for metrics.
    #[serde(skip)]
    pub takeovers: TakeoverCounts,
    /// Planned moves of pairs that are under way, and of other pairs the last ones; they have a document of
    /// their own.
    #[serde(skip)]
    pub moves: Vec<MoveRow>,
    /// What this node counts of them, for metrics.
    #[serde(skip)]
    pub move_counts: MoveCounts,
    /// The settings that the cluster is tuned to.
    pub tuning: TuningRow,
    /// Rows of the coordinator that do not read: which, and why.
    pub unreadable: Vec<String>,
    /// Who balances, and why so; it has a document of its own.
    #[serde(skip)]
    pub balance: BalanceSnapshot,
}

impl ClusterSnapshot {
    /// Whether the node has not seen the coordinator's rows yet: of those, each cluster has some.
    #[must_use]
    pub fn is_unseen(&self) -> bool {
        self.revision == 0 && self.members.is_empty() && self.pairs.is_empty()
    }

    /// Whether an incarnation lives, as the last look showed it.
    #[must_use]
    pub fn lives(&self, incarnation: Incarnation) -> bool {
        self.members.iter().any(|member| member.incarnation == incarnation)
    }

    /// Whether the row of a pair's move reads; of one that does not, what is known is of before.
    #[must_use]
    pub fn move_reads(&self, pair: PairId) -> bool {
        let key = format!("`{}`", MoveRow::key(pair));
        !self.unreadable.iter().any(|row| row.starts_with(&key))
    }

    /// The moves under way that may still bring a pair to a node. By a row that does not read nothing is
    /// handed over: where that has not happened before, such a move brings nothing.
    #[must_use]
    pub fn moves_that_bring(&self) -> Vec<MoveRow> {
        let is_handed = |of: &MoveRow| self.pairs.iter().any(|row| row.pair == of.pair && of.is_handed(row));
        let brings = |of: &&MoveRow| of.is_under_way() && (self.move_reads(of.pair) || is_handed(of));
        self.moves.iter().filter(brings).cloned().collect()
    }
}

/// A node's figures. The JSON leaves the cluster out: it has a document of its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeSnapshot {
    /// The node.
    #[serde(serialize_with = "number::serialize")]
    pub node: NodeId,
    /// Its incarnation.
    #[serde(serialize_with = "number::serialize")]
    pub incarnation: Incarnation,
    /// What it is doing.
    pub state: NodeState,
    /// What an operator should know although it serves; nothing if all is well.
    pub warnings: Vec<String>,
    /// What ended the processes before this one, in words without a subject, if they ended the same way.
    #[serde(skip)]
    pub restarted_because: Option<Arc<str>>,
    /// Its durability setting.
    #[serde(serialize_with = "number::durability::serialize")]
    pub durability: Durability,
    /// Milliseconds since the process started.
    pub uptime_ms: u64,
    /// How long the lease surely holds from the snapshot on.
    pub lease_remaining_ms: u64,
    /// How its renewals went; metrics have it.
    #[serde(skip)]
    pub renewals: RenewalFigures,
    /// Connections of clients.
    pub connections: u64,
    /// What the process may hold, and what holds it.
    #[serde(serialize_with = "budget")]
    pub memory: BudgetFigures,
    /// Memory that the process holds ready for takeovers.
    pub memory_ready_bytes: u64,
    /// What takeovers have had of it.
    pub memory_ready_bytes_given: u64,
    /// Which pages back the node region, then the extent region.
    #[serde(serialize_with = "backing")]
    pub backing: [&'static str; 2],
    /// How its logs are synced, and why so.
    #[serde(serialize_with = "log_flush")]
    pub log_flush: FlushChoice,
    /// Operations since the start.
    pub operations: OperationCounts,
    /// What the worker counts besides, for metrics.
    #[serde(skip)]
    pub worker_counts: WorkerCounts,
    /// What requests took at the server in the last second.
    pub latencies: OperationLatencies,
    /// The same with how often which times were; they have documents of their own.
    #[serde(skip)]
    pub latency_histograms: Arc<OperationHistograms>,
    /// Splits of meganodes since the start.
    pub splits: SplitCounts,
    /// Processor time of the process, and of it the worker's, in nanoseconds since the start.
    #[serde(serialize_with = "processor_time")]
    pub cpu_ns: [u64; 2],
    /// What its logs, its fabric and its lease count, as their crates declare it.
    #[serde(serialize_with = "counters")]
    pub counters: Vec<CounterValue>,
    /// Its pairs.
    pub pairs: Vec<PairSnapshot>,
    /// The shape of its part of the tree; it has documents of its own.
    #[serde(skip)]
    pub tree: Arc<TreeShape>,
    /// The connections of clients that report their searches; they have a document of their own.
    #[serde(skip)]
    pub clients: Vec<ClientSnapshot>,
    /// What clients have reported since the start.
    #[serde(skip)]
    pub client_totals: ClientTotals,
    /// The others.
    #[serde(skip)]
    pub cluster: Arc<ClusterSnapshot>,
}

fn in_words<S: Serializer>(failure: &Option<CheckpointFailure>, to: S) -> Result<S::Ok, S::Error> {
    failure.map(|failure| failure.to_string()).serialize(to)
}

fn sync_times<S: Serializer>([p50, p99, max]: &[u64; 3], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map([("p50", p50), ("p99", p99), ("max", max)])
}

/// By log; null without logs.
fn segments<S: Serializer>(logs: &Option<[LogSegments; 2]>, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct OfLog {
        in_use: u64,
        spare: u64,
        released: u64,
        bytes: u64,
        current: u32,
        current_bytes: u64,
        current_bytes_all: u64,
        csn_oldest: u64,
    }
    let of_log = |log: LogSegments| OfLog {
        in_use: log.in_use,
        spare: log.spare,
        released: log.released,
        bytes: log.bytes,
        current: log.current,
        current_bytes: log.current_bytes,
        current_bytes_all: log.current_bytes_all,
        csn_oldest: log.csn_oldest.0,
    };
    let logs =
        logs.map(|[node, extent]| BTreeMap::from([("node", of_log(node)), ("extent", of_log(extent))]));
    logs.serialize(to)
}

fn backing<S: Serializer>([node, extent]: &[&'static str; 2], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map([("node_region", node), ("extent_region", extent)])
}

fn log_flush<S: Serializer>(FlushChoice { way, why }: &FlushChoice, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map([("way", way.word()), ("why", &**why)])
}

fn processor_time<S: Serializer>([process, worker]: &[u64; 2], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map([("process", process), ("worker", worker)])
}

fn budget<S: Serializer>(figures: &BudgetFigures, to: S) -> Result<S::Ok, S::Error> {
    let BudgetFigures { limit, available, regions, ready, logs, process, process_measured, refused } =
        figures;
    to.collect_map([
        ("limit_bytes", limit),
        ("available_bytes", available),
        ("regions_bytes", regions),
        ("ready_bytes", ready),
        ("logs_bytes", logs),
        ("process_bytes", process),
        ("process_measured_bytes", process_measured),
        ("refused", refused),
    ])
}

/// By the names of the metrics, without their prefix.
fn counters<S: Serializer>(values: &[CounterValue], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(values.iter().map(|one| (one.counter.name, one.value)))
}
