//! `GET /api/v1/wal`: how far the logs of each pair are, and what a replay would cost.

use std::collections::BTreeMap;

use cell_node::{LogSegments, NodeSnapshot, PairSnapshot, SYNC_BUCKETS, sync_bucket_end_us};
use serde::{Deserialize, Serialize};

use crate::api::gathered::{ClusterDocument, Shown};
use crate::peers::{MissingPeer, NodePart};
use crate::rates::{PairRates, fill, share};
use crate::shared::Shared;
use crate::sync_history::{ROWS_MAX, SyncCounts};

/// A pair's logs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WalRow {
    pub(crate) pair: u32,
    pub(crate) node: u32,
    pub(crate) epoch: u64,
    /// Decimal numbers: JavaScript's are too small.
    pub(crate) csn_appended: String,
    pub(crate) csn_durable: String,
    /// None: there is no checkpoint yet.
    pub(crate) csn_checkpointed: Option<String>,
    /// What is appended and not durable.
    pub(crate) lag_csn: u64,
    pub(crate) lag_bytes: u64,
    /// How long what is pending takes at the rate of the last second; null if nothing was synced in it.
    pub(crate) lag_seconds: Option<f64>,
    pub(crate) log_bytes_since_checkpoint: u64,
    /// None without logs.
    pub(crate) segments: Option<Segments>,
    /// None: nothing is known of the last second.
    pub(crate) batches_per_second: Option<f64>,
    pub(crate) bytes_per_batch: Option<f64>,
    pub(crate) sync_us: SyncTimes,
    /// At the rate of the last takeover that the node has seen; null if it has seen none.
    pub(crate) replay_seconds_estimate: Option<f64>,
    pub(crate) checkpoint_running: bool,
    pub(crate) checkpoints: u64,
}

/// Segments of a pair's two logs: of the node log, then of the extent log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Segments {
    in_use: [u64; 2],
    spare: [u64; 2],
    released: [u64; 2],
    bytes: [u64; 2],
    /// The number of the current one.
    current: [u32; 2],
    current_fill: [f64; 2],
    /// Of both logs the lesser one.
    csn_oldest: String,
}

impl Segments {
    fn of(logs: &[LogSegments; 2]) -> Segments {
        let [node, extent] = logs;
        let both = |of: fn(&LogSegments) -> u64| logs.each_ref().map(of);
        Segments {
            in_use: both(|log| log.in_use),
            spare: both(|log| log.spare),
            released: both(|log| log.released),
            bytes: both(|log| log.bytes),
            current: logs.each_ref().map(|log| log.current),
            current_fill: logs.each_ref().map(|log| fill(log.current_bytes, log.current_bytes_all)),
            csn_oldest: node.csn_oldest.min(extent.csn_oldest).0.to_string(),
        }
    }
}

/// Of the last second; null if nothing was synced.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SyncTimes {
    pub(crate) p50: Option<u64>,
    pub(crate) p99: Option<u64>,
    pub(crate) max: Option<u64>,
}

impl SyncTimes {
    pub(crate) fn of([p50, p99, max]: [u64; 3]) -> SyncTimes {
        let some = |time: u64| (max > 0).then_some(time);
        SyncTimes { p50: some(p50), p99: some(p99), max: some(max) }
    }
}

/// The pairs of one node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WalPart {
    pairs: Vec<WalRow>,
    /// Seconds since 1970, and how long the syncs took in each of them.
    syncs: Vec<(u64, SyncCounts)>,
}

/// The pairs of all nodes.
#[derive(Debug, Serialize)]
pub(crate) struct WalBody {
    pairs: Vec<WalRow>,
    #[serde(flatten)]
    shown: Shown,
    sync_times: SyncTimesOverTime,
}

/// How long the syncs of all nodes took, a row for each of the last seconds.
#[derive(Debug, PartialEq, Serialize)]
struct SyncTimesOverTime {
    step_ms: u64,
    /// When each row's second began, oldest first.
    times_unix_ms: Vec<u64>,
    /// Where buckets end; the last one, of longer times, has no end.
    ends_us: Vec<u64>,
    /// Syncs by bucket.
    rows: Vec<SyncCounts>,
}

impl SyncTimesOverTime {
    /// Of what nodes report by second.
    fn new(nodes: impl IntoIterator<Item = (u64, SyncCounts)>) -> SyncTimesOverTime {
        let mut all: BTreeMap<u64, SyncCounts> = BTreeMap::new();
        for (second, counts) in nodes {
            let row = all.entry(second).or_default();
            row.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.saturating_add(count));
        }
        let left_out = all.len().saturating_sub(ROWS_MAX);
        let all = || all.iter().skip(left_out);
        SyncTimesOverTime {
            step_ms: 1_000,
            times_unix_ms: all().map(|(second, _)| second.saturating_mul(1_000)).collect(),
            ends_us: (0..SYNC_BUCKETS).filter_map(sync_bucket_end_us).collect(),
            rows: all().map(|(_, row)| *row).collect(),
        }
    }
}

/// See the module's text.
pub(crate) struct Wal;

impl ClusterDocument for Wal {
    type Part = WalPart;
    type Body = WalBody;
    const PATH: &'static str = "/api/v1/wal";
    const HAS_ROWS: bool = true;

    fn part(shared: &Shared, snapshot: &NodeSnapshot) -> WalPart {
        let history = shared.history();
        let rate = replay_rate(snapshot);
        let row = |pair: &PairSnapshot| {
            let rates = history.rates().pairs.get(&pair.pair).copied();
            row(pair, snapshot.node.0, rates, rate)
        };
        let syncs = history.syncs().map(|(second, counts)| (second, *counts)).collect();
        WalPart { pairs: snapshot.pairs.iter().map(row).collect(), syncs }
    }

    fn body(
        _shared: &Shared,
        _snapshot: &NodeSnapshot,
        parts: Vec<NodePart<WalPart>>,
        _missing: &[MissingPeer],
    ) -> WalBody {
        let syncs = parts.iter().flat_map(|part| part.part.syncs.iter().copied());
        let sync_times = SyncTimesOverTime::new(syncs);
        let mut pairs: Vec<WalRow> = parts.into_iter().flat_map(|part| part.part.pairs).collect();
        pairs.sort_by_key(|row| row.pair);
        WalBody { pairs, shown: Shown::default(), sync_times }
    }

    fn limit(body: &mut WalBody, rows: usize) -> usize {
        body.shown.limit(&mut body.pairs, rows)
    }
}

/// The rates are those of both logs, what is pending is written to each of them.
fn lag_seconds(lag_bytes: u64, rates: Option<PairRates>) -> Option<f64> {
    if lag_bytes == 0 { Some(0.0) } else { share(lag_bytes as f64, rates?.bytes / 2.0) }
}

/// Without rates nothing is known of the last second.
fn row(pair: &PairSnapshot, node: u32, rates: Option<PairRates>, replay_rate: Option<f64>) -> WalRow {
    let sync_us = if rates.is_some() { pair.sync_us } else { [0; 3] };
    WalRow {
        pair: pair.pair.0,
        node,
        epoch: u64::from(pair.epoch.0),
        csn_appended: pair.csn_appended.0.to_string(),
        csn_durable: pair.csn_durable.0.to_string(),
        csn_checkpointed: (pair.csn_checkpointed.0 > 0).then(|| pair.csn_checkpointed.0.to_string()),
        lag_csn: pair.csn_appended.0.saturating_sub(pair.csn_durable.0),
        lag_bytes: pair.log_bytes_pending,
        lag_seconds: lag_seconds(pair.log_bytes_pending, rates),
        log_bytes_since_checkpoint: pair.log_bytes_since_checkpoint,
        segments: pair.log_segments.as_ref().map(Segments::of),
        batches_per_second: rates.map(|rates| rates.batches),
        bytes_per_batch: rates.and_then(|rates| share(rates.bytes, rates.batches)),
        sync_us: SyncTimes::of(sync_us),
        replay_seconds_estimate: replay_rate
            .map(|bytes_per_second| pair.log_bytes_since_checkpoint as f64 / bytes_per_second),
        checkpoint_running: pair.checkpoint_running,
        checkpoints: pair.checkpoints,
    }
}

/// What a takeover that read less took says nothing of how fast logs are replayed: it was busy with all else.
const SIGNIFICANT_BYTES: u64 = 8 << 20;

/// Bytes a second at which the cluster has replayed logs of late: those of the newest takeover that is over
/// and read enough to tell. None: there was none.
fn replay_rate(snapshot: &NodeSnapshot) -> Option<f64> {
    let shares = snapshot.cluster.incidents.iter().flat_map(|incident| &incident.plan);
    let over = shares.map(|share| &share.times).filter(|times| times.replayed_ms > times.cut_ms);
    let newest = over
        .filter(|times| times.replayed_bytes >= SIGNIFICANT_BYTES)
        .max_by_key(|times| times.replayed_ms)?;
    Some(newest.replayed_bytes as f64 * 1e3 / (newest.replayed_ms - newest.claimed_ms).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cell_cluster::{IncidentRow, ShareRow, ShareTimes};
    use cell_node::ClusterSnapshot;
    use cell_terms::{Csn, Incarnation, NodeId};

    use super::*;
    use crate::test_snapshot::snapshot;

    #[test]
    fn row_has_the_lag_and_no_figure_that_nobody_knows() {
        let mut pair = snapshot().pairs[0];
        pair.csn_appended.0 = 60;
        let rates = Some(PairRates { batches: 4.0, bytes: 8_192.0 });
        let row = serde_json::to_value(row(&pair, 3, rates, None)).unwrap();
        assert_eq!(
            (&row["csn_appended"], &row["lag_csn"], &row["node"]),
            (&"60".into(), &19.into(), &3.into())
        );
        assert_eq!(row["bytes_per_batch"], 2_048.0);
        assert_eq!(row["sync_us"], serde_json::json!({"p50": null, "p99": null, "max": null}));
        assert!(row["replay_seconds_estimate"].is_null());
        assert!(row["csn_checkpointed"].is_null(), "there is no checkpoint yet: 0 looked like one");
    }

    /// Of a node that has just started, or whose figures stand still: its last second is not this one.
    #[test]
    fn row_without_rates_has_nothing_of_the_last_second() {
        let mut pair = snapshot().pairs[0];
        (pair.sync_us, pair.log_bytes_pending) = ([100, 200, 300], 50);
        let of = |rates| serde_json::to_value(row(&pair, 3, rates, None)).unwrap();
        assert_eq!(of(Some(PairRates::default()))["sync_us"]["p99"], 200);
        let unknown = of(None);
        for figure in ["batches_per_second", "bytes_per_batch", "lag_seconds"] {
            assert!(unknown[figure].is_null(), "{figure}: {unknown}");
        }
        assert!(unknown["sync_us"]["p99"].is_null(), "{unknown}");
    }

    #[test]
    fn row_has_the_segments_of_both_logs_and_null_without_logs() {
        let mut pair = snapshot().pairs[0];
        let segments = |pair: &PairSnapshot| {
            serde_json::to_value(row(pair, 3, Some(PairRates::default()), None)).unwrap()["segments"].clone()
        };
        assert!(segments(&pair).is_null());
        let node = LogSegments {
            in_use: 3,
            spare: 1,
            released: 1,
            bytes: 500,
            current: 17,
            current_bytes: 250,
            current_bytes_all: 1_000,
            csn_oldest: Csn(90),
        };
        let extent =
            LogSegments { in_use: 2, csn_oldest: Csn(70), current_bytes: 0, current_bytes_all: 0, ..node };
        pair.log_segments = Some([node, extent]);
        let expected = serde_json::json!({
            "in_use": [3, 2], "spare": [1, 1], "released": [1, 1], "bytes": [500, 500], "current": [17, 17],
            "current_fill": [0.25, 0.0], "csn_oldest": "70",
        });
        assert_eq!(segments(&pair), expected);
    }

    #[test]
    fn lag_seconds_is_what_the_pending_bytes_take_at_the_present_rate() {
        let rates = Some(PairRates { batches: 1.0, bytes: 2_000.0 });
        assert_eq!((lag_seconds(0, None), lag_seconds(500, rates)), (Some(0.0), Some(0.5)));
        assert_eq!((lag_seconds(500, Some(PairRates::default())), lag_seconds(500, None)), (None, None));
    }

    #[test]
    fn sync_times_of_all_nodes_add_up_by_second_and_are_bounded() {
        let counts = |count| {
            let mut counts = SyncCounts::default();
            counts[4] = count;
            counts
        };
        let one = (1_000..1_120).map(|second| (second, counts(1)));
        let other = (1_010..1_130).map(|second| (second, counts(2)));
        let all = SyncTimesOverTime::new(one.chain(other));
        assert_eq!((all.rows.len(), all.times_unix_ms[0], all.ends_us.len()), (120, 1_010_000, 15));
        assert_eq!((all.rows[0][4], all.rows[119][4]), (3, 2));
    }

    /// A takeover of 4 KiB in 100 ms once made "445 s" of what took one.
    #[test]
    fn replay_rate_is_of_the_newest_takeover_that_read_enough_to_tell() {
        let share = |claimed_ms, replayed_bytes| ShareRow {
            times: ShareTimes {
                claimed_ms,
                cut_ms: claimed_ms + 1,
                replayed_ms: claimed_ms + 100,
                replayed_bytes,
                ..ShareTimes::default()
            },
            ..ShareRow::default()
        };
        let rate = |plan: Vec<ShareRow>| {
            let incident = IncidentRow {
                dead: Incarnation(1),
                node: NodeId(1),
                claimed_by: Incarnation(2),
                lease_seen_ms: 1,
                detected_ms: 2,
                claimed_ms: 3,
                over_ms: 4,
                plan,
            };
            let cluster = ClusterSnapshot { incidents: vec![incident], ..ClusterSnapshot::default() };
            replay_rate(&NodeSnapshot { cluster: Arc::new(cluster), ..snapshot() })
        };
        assert_eq!(rate(vec![share(500, 4_096)]), None);
        let significant = vec![share(10, 16 << 20), share(200, 8 << 20), share(900, 4_096)];
        assert_eq!(rate(significant), Some(f64::from(80 << 20)));
    }

    #[test]
    fn row_estimates_a_replay_at_the_rate_that_was_seen() {
        let mut pair = snapshot().pairs[0];
        pair.log_bytes_since_checkpoint = 3_000;
        let row = row(&pair, 3, Some(PairRates::default()), Some(1_500.0));
        assert_eq!((row.replay_seconds_estimate, row.bytes_per_batch), (Some(2.0), None));
    }
}
