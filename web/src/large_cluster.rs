//! Four nodes for tests, of a cluster of ten thousand meganodes: with as many pairs, clients, takeovers,
//! events and figures as it may have to report, and a history of six hours. At each second they have done
//! more.

use std::sync::{Arc, Mutex};

use cell_cluster::{EpochRow, IncidentRow, PairGeometry, PairRow, ShareRow, ShareTimes};
use cell_node::{
    ClientCounts, ClientSnapshot, ClusterSnapshot, LatencyHistogram, LogSegments, MeganodeShape,
    NodeSnapshot, OperationHistograms, PairSnapshot, RouterShape, SYNC_BUCKETS, TreeShape,
};
use cell_terms::{Csn, Durability, Epoch, Incarnation, NodeId, PairId, SlotIndex};

use crate::api::regions::tests::pair_row;
use crate::clock::{LookTime, now_unix_ms};
use crate::selector_history::tests::client;
use crate::shared::Shared;
use crate::source::{Sources, StatusSource};
use crate::test_cluster::TestCluster;

/// Its nodes.
pub(crate) const NODES: u32 = 4;
/// Its meganodes.
pub(crate) const MEGANODES: u32 = 10_000;
/// Of 2 GiB, in slots of 64 MiB.
const SLOTS_OF_PAIR: u32 = 32;
const PAIRS: u32 = MEGANODES.div_ceil(SLOTS_OF_PAIR).next_multiple_of(NODES);
/// Tree nodes of 1 KiB in a slot.
const TREE_NODES_OF_SLOT: u32 = 65_536;
/// Clients that report to each node: as many as it has room for.
const CLIENTS: u64 = 256;
/// Takeovers that the cluster remembers.
const INCIDENTS: u64 = 25;

/// Starts them.
pub(crate) fn start() -> TestCluster {
    let settings = [("http_changes_per_second", "10000")];
    TestCluster::start_prepared(
        NODES,
        &settings,
        |sources| {
            let inner = Arc::clone(&sources.snapshots);
            Sources { snapshots: Arc::new(Moving::new(inner)), ..sources }
        },
        prepare,
    )
}

/// What a node publishes: a snapshot each second.
struct Moving {
    inner: Arc<dyn StatusSource>,
    /// What stays.
    still: NodeSnapshot,
    last: Mutex<(u64, Arc<NodeSnapshot>)>,
}

impl Moving {
    fn new(inner: Arc<dyn StatusSource>) -> Moving {
        let still = still(&inner.snapshot());
        let last = Mutex::new((0, Arc::new(still.clone())));
        Moving { inner, still, last }
    }
}

impl StatusSource for Moving {
    fn snapshot(&self) -> Arc<NodeSnapshot> {
        let second = now_unix_ms() / 1_000;
        let inner = self.inner.snapshot();
        let mut last = self.last.lock().unwrap();
        if last.0 != second || last.1.cluster.members.len() != inner.cluster.members.len() {
            let (members, tuning) = (inner.cluster.members.clone(), inner.cluster.tuning.clone());
            let cluster = ClusterSnapshot { members, tuning, ..(*self.still.cluster).clone() };
            let still = NodeSnapshot { cluster: Arc::new(cluster), ..self.still.clone() };
            *last = (second, Arc::new(moved_on(still, second)));
        }
        Arc::clone(&last.1)
    }
}

/// The node of a pair.
fn node_of(pair: u32) -> u32 {
    pair % NODES
}

fn still(inner: &NodeSnapshot) -> NodeSnapshot {
    let own = inner.node.0;
    let cluster = ClusterSnapshot {
        revision: 2,
        pairs: (1..=PAIRS).map(pair_of_the_table).collect(),
        incidents: (0..INCIDENTS).map(incident).collect(),
        ..ClusterSnapshot::default()
    };
    let histogram = histogram();
    let mut times = OperationHistograms::default();
    times.last_second = times.last_second.map(|_| histogram.clone());
    NodeSnapshot {
        latency_histograms: Arc::new(times),
        pairs: (1..=PAIRS).filter(|pair| node_of(*pair) == own).map(pair_of_the_node).collect(),
        tree: Arc::new(tree(own)),
        clients: (0..CLIENTS).map(|number| client_of(own, number, 1)).collect(),
        cluster: Arc::new(cluster),
        ..inner.clone()
    }
}

/// What has counted so far in a second since 1970.
fn moved_on(still: NodeSnapshot, second: u64) -> NodeSnapshot {
    let own = still.node.0;
    let mut moved = NodeSnapshot {
        uptime_ms: 1_000 * second,
        cpu_ns: [1_234_567_890 * second, 123_456_789 * second],
        clients: (0..CLIENTS).map(|number| client_of(own, number, second)).collect(),
        ..still
    };
    moved.operations.get = 1_234_567 * second;
    moved.operations.search = 123_457 * second;
    moved.operations.put = 234_567 * second;
    moved.operations.delete = 34_567 * second;
    moved.operations.scan = 4_567 * second;
    moved.splits.finished = second / 60;
    moved.client_totals.counts = counts(CLIENTS * second);
    for pair in &mut moved.pairs {
        pair.csn_appended = Csn(12_345 * second);
        pair.csn_durable = Csn(12_345 * second - 67);
        pair.csn_checkpointed = Csn(12_300 * second);
        pair.batches = 321 * second;
        pair.log_bytes = 7_654_321 * second;
        pair.log_bytes_pending = 65_536 + second % 4_096;
        pair.log_bytes_since_checkpoint = 123_456_789;
        pair.sync_buckets = [40 * second; SYNC_BUCKETS];
    }
    moved
}

fn counts(times: u64) -> ClientCounts {
    let all: [u64; ClientCounts::COUNT] = std::array::from_fn(|at| (217 + 7 * at as u64) * times);
    ClientCounts::from_array(all)
}

fn client_of(node: u32, number: u64, reports: u64) -> ClientSnapshot {
    let client_number = u64::MAX - 1_000_003 * number;
    let name = format!("bench-{node}-{number}@machine-{number}.example");
    ClientSnapshot { name: name.into(), counts: counts(reports), ..client(client_number, reports) }
}

/// Times of a node under load are in many buckets.
fn histogram() -> LatencyHistogram {
    let buckets: Vec<(u8, u64)> = (20..70).map(|bucket| (bucket, 123_456 / u64::from(bucket))).collect();
    let document = serde_json::json!({"buckets": buckets, "sum_ns": 987_654_321, "max_ns": 87_654_321});
    serde_json::from_value(document).expect("a histogram")
}

fn pair_of_the_table(pair: u32) -> PairRow {
    let node = node_of(pair);
    let epoch = Epoch(3);
    PairRow {
        node: NodeId(node),
        served_by: Some(NodeId(node)),
        epoch,
        history: vec![EpochRow { epoch, durability: Durability::Sync, cut: None }],
        geometry: PairGeometry {
            node_region_bytes: 2 << 30,
            extent_region_bytes: 8 << 30,
            slot_bytes: 64 << 20,
            node_bytes: 1_024,
        },
        ..pair_row(pair, 70 + u64::from(node))
    }
}

fn pair_of_the_node(pair: u32) -> PairSnapshot {
    PairSnapshot {
        pair: PairId(pair),
        epoch: Epoch(3),
        entries: 98_765_432,
        tree_nodes: 1_234_567,
        tree_node_bytes: 1_024,
        extent_live_bytes: 7_654_321_098,
        extent_allocated_bytes: 8_000_000_000,
        checkpoints: 17,
        sync_us: [123, 4_567, 89_012],
        replies_held: 12,
        log_segments: Some([log_segments(); 2]),
        ..PairSnapshot::default()
    }
}

fn log_segments() -> LogSegments {
    LogSegments {
        in_use: 12,
        spare: 2,
        released: 1,
        bytes: 15 * (64 << 20),
        current: 12_345,
        current_bytes: 23_456_789,
        current_bytes_all: 64 << 20,
        csn_oldest: Csn(12_345_678_901_234),
    }
}

/// Where a meganode's keys begin: 16 bytes of which most are no text.
fn low_key(number: u32) -> Arc<[u8]> {
    if number == 0 {
        return Arc::from(&b""[..]);
    }
    let spread = u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let key = u128::from(number) * (u128::MAX / u128::from(MEGANODES)) + spread;
    Arc::from(key.to_be_bytes())
}

fn tree(own: u32) -> TreeShape {
    let shape = |number: u32| MeganodeShape {
        pair: PairId(1 + number / SLOTS_OF_PAIR),
        slot: SlotIndex(number % SLOTS_OF_PAIR),
        low: low_key(number),
        high: (number + 1 < MEGANODES).then(|| low_key(number + 1)),
        height: 4,
        nodes: 40_000 + number,
        nodes_all: TREE_NODES_OF_SLOT,
        entries: 3_000_000 + u64::from(number),
        splitting: number.is_multiple_of(1_000),
        writes_per_second: Some(12.5),
        reads_per_second: Some(1_234.5),
    };
    let meganodes = (0..MEGANODES).map(shape).filter(|shape| node_of(shape.pair.0) == own).collect();
    let router = RouterShape {
        pair: PairId(NODES),
        slot: SlotIndex(SLOTS_OF_PAIR),
        height: 3,
        nodes: 300,
        nodes_all: TREE_NODES_OF_SLOT,
        entries: MEGANODES.into(),
    };
    let pairs = (1..=PAIRS).filter(|pair| node_of(*pair) == own).map(PairId).collect();
    TreeShape { pairs, meganodes, router: (node_of(NODES) == own).then_some(router) }
}

/// A node died, and the others took its pairs over.
fn incident(number: u64) -> IncidentRow {
    let node = u32::try_from(number).expect("few incidents") % NODES;
    let died_ms = 60_000 * (number + 1);
    let share = |pair: u32| ShareRow {
        pair: PairId(pair),
        survivor: Some(Incarnation(70 + u64::from((node + 1) % NODES))),
        bytes: 123_456_789,
        times: ShareTimes {
            claimed_ms: died_ms + 100,
            cut_ms: died_ms + 150,
            replayed_ms: died_ms + 900,
            serving_ms: died_ms + 1_000,
            replayed_bytes: 123_456_789,
            refused_ms: 0,
        },
        ..ShareRow::default()
    };
    IncidentRow {
        dead: Incarnation(7_000_000_000_000_000_000 + number),
        node: NodeId(node),
        claimed_by: Incarnation(70 + u64::from((node + 1) % NODES)),
        lease_seen_ms: died_ms - 100,
        detected_ms: died_ms,
        claimed_ms: died_ms + 50,
        over_ms: died_ms + 1_000,
        plan: (1..=PAIRS).filter(|pair| node_of(*pair) == node).map(share).collect(),
    }
}

/// What a node has seen before: six hours of figures, ten minutes of clients, all the takeovers.
fn prepare(shared: &Shared) {
    let (at, (now, _)) = (LookTime::now(), shared.look());
    let second = at.unix_ms / 1_000;
    let before = Arc::new(moved_on((*now).clone(), second - 1));
    shared.history().fill(at, [&before, &now]);
    for then in second - 600..second {
        let clients: Vec<_> = (0..CLIENTS).map(|number| client_of(now.node.0, number, then)).collect();
        shared.selectors().observe(1_000 * then, 0, &clients);
    }
    let cluster = ClusterSnapshot { revision: 1, incidents: Vec::new(), ..(*now.cluster).clone() };
    let quiet = NodeSnapshot { cluster: Arc::new(cluster), ..(*before).clone() };
    let ago = |ms: u64| LookTime { boottime_ms: at.boottime_ms.saturating_sub(ms), unix_ms: at.unix_ms - ms };
    shared.events().observe(ago(2_000), &Arc::new(quiet));
    shared.events().observe(ago(1_000), &before);
}
