//! Two nodes for tests that have something to report of everything: pairs in each state, deaths and
//! takeovers, clients, a tree, a node that does not answer and one that is gone. At each look they have done
//! more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cell_cluster::{
    CheckpointRow, DrainRow, EpochRow, Finding, HostId, IncidentRow, MemberRow, Missing, PairRow, PairState,
    RefutedFinding, ServingAddress, ShareRow, ShareTimes,
};
use cell_node::{
    BalanceLook, BalanceSnapshot, CheckpointFailure, ClientCounts, ClusterSnapshot, FailureKind,
    LatencyHistogram, LogSegments, NodeSnapshot, NodeState, OperationHistograms, PairRecovery, PairSnapshot,
    ReadOnlyReason, RecoveryProgress, RouterShape, SplitCounts, TreeShape,
};
use cell_placement::{
    Arrival, BalanceRules, Figures, HeldPair, MemberFigures, MemberState, PairHold, PairLoad,
};
use cell_terms::{Csn, Durability, Epoch, Incarnation, NodeId, PairId, RegionId, SlotIndex};

use crate::Sources;
use crate::api::regions::tests::pair_row;
use crate::api::tree::test_shape;
use crate::selector_history::tests::client;
use crate::test_cluster::TestCluster;

/// The client that reports.
pub(crate) const CLIENT: u64 = 7;
/// Looks at which the node that goes is still there.
const LOOKS_BEFORE: u64 = 4;

/// Starts them.
pub(crate) fn start() -> TestCluster {
    start_with(|sources| sources)
}

/// Starts them with more sources.
pub(crate) fn start_with(more: impl Fn(Sources) -> Sources) -> TestCluster {
    start_set(&[("http_changes_per_second", "10000")], more)
}

/// Starts them with these settings.
pub(crate) fn start_set(settings: &[(&str, &str)], more: impl Fn(Sources) -> Sources) -> TestCluster {
    TestCluster::start_with(2, settings, |sources| {
        let (inner, looks) = (Arc::clone(&sources.snapshots), AtomicU64::new(0));
        let look = move || {
            let looks = 1 + looks.fetch_add(1, Ordering::Relaxed);
            Arc::new(fuller(&inner.snapshot(), looks))
        };
        more(Sources { snapshots: Arc::new(look), ..sources })
    })
}

/// A snapshot with more in it, after so many looks.
fn fuller(inner: &NodeSnapshot, looks: u64) -> NodeSnapshot {
    let own = inner.node.0;
    let states = [
        NodeState::Serving,
        NodeState::Recovering(progress()),
        NodeState::ReadOnly(ReadOnlyReason::DiskFull),
        NodeState::Failed(FailureKind::LogFailed),
    ];
    let mut whole = NodeSnapshot {
        state: states[usize::try_from(looks).expect("few looks") % states.len()].clone(),
        uptime_ms: 1_000 * looks,
        warnings: looks.is_multiple_of(3).then(|| "a checkpoint failed".to_owned()).into_iter().collect(),
        splits: SplitCounts {
            begun: 2 * looks,
            finished: looks,
            aborted: looks,
            merged: looks,
            ..inner.splits
        },
        cpu_ns: [500_000_000 * looks, 1],
        latency_histograms: Arc::new(histograms()),
        pairs: vec![pair(own, looks)],
        tree: Arc::new(tree(own)),
        clients: vec![client(CLIENT, looks)],
        cluster: Arc::new(cluster(&inner.cluster, looks)),
        ..inner.clone()
    };
    whole.operations.get = 100 * looks;
    whole.latencies.queue_estimate_ns = 2_000;
    whole.client_totals.counts =
        ClientCounts { server: 30 * looks, one_sided: 10 * looks, ..Default::default() };
    whole
}

fn progress() -> RecoveryProgress {
    RecoveryProgress { stage: "replaying", bytes_done: 1, bytes_total: 4, bytes_per_second: 1.5 }
}

fn histograms() -> OperationHistograms {
    let text = r#"{"buckets": [[20, 9], [30, 1]], "sum_ns": 90000, "max_ns": 50000}"#;
    let one: LatencyHistogram = serde_json::from_str(text).expect("a histogram");
    let mut all = OperationHistograms::default();
    all.last_second = all.last_second.map(|_| one.clone());
    all
}

fn pair(own: u32, looks: u64) -> PairSnapshot {
    let mut pair = PairSnapshot {
        pair: PairId(own + 1),
        epoch: Epoch(1),
        csn_appended: Csn(10 * looks),
        csn_durable: Csn(10 * looks - 5),
        entries: 9,
        log_bytes_pending: 500,
        batches: looks,
        log_bytes: 4_096 * looks,
        log_bytes_since_checkpoint: 4_096,
        checkpoints: looks,
        checkpoints_failed: looks,
        checkpoint_failure: looks.is_multiple_of(2).then_some(CheckpointFailure::Busy),
        sync_us: [100, 200, 300],
        log_segments: Some([log_segments(looks), LogSegments { in_use: 1, ..log_segments(looks) }]),
        ..PairSnapshot::default()
    };
    pair.sync_buckets[3] = looks;
    pair
}

fn log_segments(looks: u64) -> LogSegments {
    LogSegments {
        in_use: 2,
        spare: 1,
        released: 1,
        bytes: 4 << 20,
        current: 3,
        current_bytes: 4_096 * (looks % 256),
        current_bytes_all: 1 << 20,
        csn_oldest: Csn(1),
    }
}

fn tree(own: u32) -> TreeShape {
    let (low, middle, high): (&[u8], &[u8], Option<&[u8]>) =
        if own == 0 { (b"", b"c-fence", Some(b"g-fence")) } else { (b"g-fence", b"p-fence", None) };
    let mut meganodes = vec![test_shape(own + 1, low, Some(middle), 4), test_shape(own + 1, middle, high, 5)];
    meganodes[0].splitting = true;
    meganodes[0].reads_per_second = Some(3.0);
    let router = RouterShape {
        pair: PairId(own + 1),
        slot: SlotIndex(9),
        height: 1,
        nodes: 1,
        nodes_all: 100,
        entries: 4,
    };
    TreeShape { pairs: vec![PairId(own + 1)], meganodes, router: (own == 0).then_some(router) }
}

fn cluster(inner: &ClusterSnapshot, looks: u64) -> ClusterSnapshot {
    let mut members = inner.members.clone();
    let member = |node: u32| MemberRow {
        incarnation: Incarnation(70 + u64::from(node)),
        node: NodeId(node),
        fabric: "127.0.0.1:1".to_owned(),
        http: "127.0.0.1:1".to_owned(),
        pid: 1,
        memory_limit_bytes: 0,
    };
    members.push(member(8));
    members.extend((looks <= LOOKS_BEFORE).then(|| member(9)));
    ClusterSnapshot {
        revision: looks,
        pairs: pairs(),
        members,
        incidents: incidents(looks),
        drains: vec![drain(1, false), drain(7, true)],
        recoveries: vec![PairRecovery { pair: PairId(4), progress: progress() }],
        tuning: inner.tuning.clone(),
        unreadable: vec!["`tuning/current`: cannot read the tuning".to_owned()],
        balance: balance(),
        ..ClusterSnapshot::default()
    }
}

/// A node that is to be emptied and does not come on, or one that was removed.
fn drain(node: u32, removed: bool) -> DrainRow {
    let (why, stall) = (Some("new disk".to_owned()), Some("pair-2 cannot move".to_owned()));
    DrainRow { node: NodeId(node), who: "ops".to_owned(), why, since_unix_ms: 5, removed, stall }
}

/// What a node shows that balances, after a while: a pair that could move, and one that cannot.
fn balance() -> BalanceSnapshot {
    const HOUR_MS: u64 = 3_600_000;
    let held = |pair, hold| HeldPair {
        pair: PairId(pair),
        load: Some(PairLoad { bytes: 1 << 30, memory_bytes: 1 << 30, load_ns: 1 << 28 }),
        held_ms: HOUR_MS,
        arrival: Arrival::TakenOver,
        hold,
    };
    let member = |node, pairs| MemberFigures {
        node: NodeId(node),
        state: MemberState::Serving,
        draining: false,
        reported_ms_ago: Some(1),
        serving_ms: HOUR_MS,
        memory_left_bytes: 1 << 40,
        writes_wait: false,
        disk_full: false,
        keeps_memory: false,
        pairs_max: 8,
        pairs,
    };
    let pairs = vec![held(1, None), held(2, Some(PairHold::Check))];
    let figures = Figures { members: vec![member(0, pairs), member(1, Vec::new())], ..Figures::default() };
    let look = BalanceLook::of(BalanceRules::default(), figures, HOUR_MS);
    let (balancer, look) = (Some(NodeId(0)), look.map(Arc::new));
    BalanceSnapshot { balancer, on: true, look, ..BalanceSnapshot::default() }
}

/// What a node found.
fn finding(missing: &Missing) -> Finding {
    Finding { incarnation: Incarnation(71), node: NodeId(1), missing: missing.clone() }
}

/// What a node found that another one did not.
fn refuted(missing: &Missing) -> RefutedFinding {
    RefutedFinding { finding: finding(missing), read_by: NodeId(0) }
}

/// One that is served, one that nobody serves, and one for each thing that may be missing.
fn pairs() -> Vec<PairRow> {
    let file = || "1.node/e1/0.log".to_owned();
    let region = RegionId(2);
    let missing = [
        Missing::Log { region, epoch: Epoch(1) },
        Missing::Corruption { file: file(), offset: 7 },
        Missing::Checkpoint { file: file() },
        Missing::Unreadable { file: file(), errno: 5 },
        Missing::Record { region, csn: Csn(3) },
        Missing::Verification { region },
        Missing::Memory { bytes: 9 },
    ];
    let served = PairRow {
        served_by: Some(NodeId(0)),
        host: Some(HostId::new(1, 2)),
        place: Some(ServingAddress {
            address: "127.0.0.1:1".to_owned(),
            worker: 0,
            node_key: 1,
            extent_key: 2,
        }),
        history: vec![EpochRow { epoch: Epoch(1), durability: Durability::Sync, cut: Some(Csn(4)) }],
        checkpoint: Some(CheckpointRow {
            epoch: Epoch(1),
            csn: Csn(1),
            csn_max: Csn(2),
            file: "1.checkpoint".to_owned(),
        }),
        trusted: vec![Incarnation(5)],
        refuted: missing.iter().map(refuted).collect(),
        node: NodeId(0),
        ..pair_row(1, 70)
    };
    let gone = PairRow { owner: None, state: PairState::Released, node: NodeId(8), ..pair_row(4, 0) };
    let mut all = vec![served, PairRow { node: NodeId(1), ..pair_row(2, 71) }, gone];
    for (number, missing) in (5..).zip(missing) {
        let findings = vec![finding(&missing)];
        let state = PairState::Unavailable { missing };
        all.push(PairRow { state, findings, node: NodeId(9), ..pair_row(number, 78) });
    }
    all
}

/// A death, which is over after some looks, and pairs that nobody had.
fn incidents(looks: u64) -> Vec<IncidentRow> {
    let times = ShareTimes {
        claimed_ms: 10,
        cut_ms: 20,
        replayed_ms: 90,
        serving_ms: if looks > LOOKS_BEFORE { 95 } else { 0 },
        replayed_bytes: 16 << 20,
        refused_ms: 0,
    };
    let (survivor, declined) = (Some(Incarnation(70)), vec![Incarnation(71)]);
    let plan = vec![
        ShareRow { pair: PairId(1), survivor, bytes: 7, declined, times },
        ShareRow { pair: PairId(4), ..ShareRow::default() },
    ];
    let dead = IncidentRow {
        dead: Incarnation(79),
        node: NodeId(9),
        claimed_by: Incarnation(70),
        lease_seen_ms: 1,
        detected_ms: 5,
        claimed_ms: 6,
        over_ms: if looks > LOOKS_BEFORE { 96 } else { 0 },
        plan,
    };
    let nobody = IncidentRow { dead: Incarnation(0), plan: Vec::new(), ..dead.clone() };
    vec![dead, nobody]
}
