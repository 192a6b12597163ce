//! The snapshot as text of OpenMetrics. Every figure is listed once, in a table below; labels hold a pair's
//! number or a kind of operation, never a key.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cell_cluster::MemberRow;
use cell_node::{NodeSnapshot, NodeState, OperationCounts, PairSnapshot};
use cell_terms::{CounterKind, CounterValue};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::api::cluster;
use crate::balance_metrics;
use crate::client_metrics;
use crate::clock::milliseconds;
use crate::drain_events::pairs_of;
use crate::move_metrics;
use crate::operation_metrics;
use crate::server_figures::{self, ServerFigures};

const STATES: [&str; 7] = ["starting", "recovering", "serving", "read_only", "silent", "stopping", "failed"];

struct PairFigure {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
    read: fn(&PairSnapshot) -> u64,
}

macro_rules! figures {
    ($($kind:ident $name:literal $unit:expr, $help:literal, $read:expr;)+) => {
        &[$(PairFigure { name: $name, help: $help, unit: $unit, kind: MetricType::$kind, read: $read }),+]
    };
}

const PAIR_FIGURES: &[PairFigure] = figures! {
    Gauge "pair_epoch" None, "Epoch of the pair", |p| p.epoch.0.into();
    Counter "pair_csn_appended" None, "Records handed a commit sequence number", |p| p.csn_appended.0;
    Counter "pair_csn_durable" None, "Durable watermark", |p| p.csn_durable.0;
    Gauge "pair_csn_checkpointed" None, "Base of the last checkpoint; 0: there is none",
        |p| p.csn_checkpointed.0;
    Gauge "pair_entries" None, "Entries in the tree", |p| p.entries;
    Gauge "pair_tree_nodes" None, "Tree nodes in use", |p| p.tree_nodes;
    Gauge "pair_tree_node" Some(Unit::Bytes), "Size of one tree node", |p| p.tree_node_bytes;
    Gauge "pair_extent_live" Some(Unit::Bytes), "Live extents, as asked for", |p| p.extent_live_bytes;
    Gauge "pair_extent_allocated" Some(Unit::Bytes), "What live extents occupy", |p| p.extent_allocated_bytes;
    Gauge "pair_extent_slots_free" Some(Unit::Bytes), "Of the occupied, free for extents of some lengths",
        |p| p.extent_slots_free_bytes;
    Gauge "pair_extent_free" Some(Unit::Bytes), "Of the extent region, granted and not occupied",
        |p| p.extent_free_bytes;
    Gauge "pair_extent_region" Some(Unit::Bytes), "Size of the extent region", |p| p.extent_region_bytes;
    Gauge "pair_node_region" Some(Unit::Bytes), "Size of the node region", |p| p.node_region_bytes;
    Gauge "pair_granted" Some(Unit::Bytes), "Of both regions, granted by the memory limit",
        |p| p.granted_bytes;
    Gauge "pair_populated" Some(Unit::Bytes), "Of both regions, given memory ahead of use",
        |p| p.populated_bytes;
    Gauge "pair_huge_page" Some(Unit::Bytes), "Of the populated, on huge pages", |p| p.huge_page_bytes;
    Gauge "pair_grace" Some(Unit::Bytes), "Freed extents that wait for reuse", |p| p.grace_bytes;
    Gauge "pair_log_since_checkpoint" Some(Unit::Bytes), "Log to replay after a crash",
        |p| p.log_bytes_since_checkpoint;
    Counter "pair_log_synced" Some(Unit::Bytes), "Synced in both logs, padding included", |p| p.log_bytes;
    Counter "pair_batches" None, "Commit batches synced", |p| p.batches;
    Gauge "pair_sync_waiting" Some(Unit::Seconds),
        "How long the batch that is at the disk has waited for it; 0: there is none, or it gets on",
        |p| p.sync_waiting_ms / 1_000;
    Gauge "pair_completions" None, "Results kept for repeated writes", |p| p.completions;
    Gauge "pair_replies_held" None, "Replies that wait for the log", |p| p.replies_held;
    Counter "pair_checkpoints" None, "Checkpoints recorded", |p| p.checkpoints;
    Counter "pair_checkpoints_failed" None, "Checkpoints that failed", |p| p.checkpoints_failed;
    Gauge "pair_checkpoint_age" Some(Unit::Seconds),
        "Since the last checkpoint, or since this node serves the pair if none was recorded",
        |p| p.checkpoint_age_ms / 1_000;
    Counter "pair_compactions" None, "Meganodes compacted after deletes", |p| p.compactions;
    Counter "pair_compaction_nodes_freed" None, "Tree nodes freed by compactions", |p| p.compaction_nodes_freed;
    Counter "pair_packings" None, "Times that sparse slabs of extents were packed", |p| p.packings;
    Counter "pair_packed" Some(Unit::Bytes), "Extents that were moved for that", |p| p.packed_bytes;
    Gauge "pair_checkpoint_running" None, "1 while a checkpoint is written", |p| p.checkpoint_running.into();
};

type CountOf = fn(&OperationCounts) -> u64;

const OPERATIONS: &[(&str, CountOf)] = &[
    ("search", |counts| counts.search),
    ("get", |counts| counts.get),
    ("put", |counts| counts.put),
    ("delete", |counts| counts.delete),
    ("scan", |counts| counts.scan),
];

/// The whole text for a snapshot that is so old, and for what the server itself counts and sees.
pub(crate) fn render(
    snapshot: Arc<NodeSnapshot>,
    age: Duration,
    server: ServerFigures,
) -> Result<String, fmt::Error> {
    let started_unix_ms = server.started_unix_ms;
    let mut registry = Registry::with_prefix("cell");
    registry.register_collector(Box::new(SnapshotCollector { snapshot, age, server }));
    let mut of_process = Registry::default(); // whose names have no prefix
    of_process.register_collector(Box::new(ProcessCollector { started_unix_ms }));
    let mut out = String::new();
    text::encode_registry(&mut out, &registry)?;
    text::encode_registry(&mut out, &of_process)?;
    text::encode_eof(&mut out)?;
    Ok(out)
}

#[derive(Debug)]
struct SnapshotCollector {
    snapshot: Arc<NodeSnapshot>,
    age: Duration,
    server: ServerFigures,
}

#[derive(Debug)]
struct ProcessCollector {
    started_unix_ms: u64,
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        server_figures::encode_process(&mut encoder, self.started_unix_ms)
    }
}

impl Collector for SnapshotCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.encode_node(&mut encoder)?;
        self.encode_operations(&mut encoder)?;
        operation_metrics::encode(&mut encoder, &self.snapshot)?;
        let moves = &self.snapshot.cluster.move_counts;
        move_metrics::encode(&mut encoder, moves, self.server.boottime_ms)?;
        client_metrics::encode(&mut encoder, &self.snapshot.client_totals, &self.snapshot.clients)?;
        self.snapshot.counters.iter().try_for_each(|reading| encode_counter(&mut encoder, reading))?;
        for figure in PAIR_FIGURES {
            self.encode_pairs(&mut encoder, figure)?;
        }
        self.encode_segments(&mut encoder)?;
        self.encode_sync_times(&mut encoder)?;
        server_figures::encode(&mut encoder, &self.server)
    }
}

impl SnapshotCollector {
    fn encode_node(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let node = &*self.snapshot;
        let mut info = encoder.encode_descriptor("build", "Version of the node", None, MetricType::Info)?;
        info.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
        let word = node.state.word();
        let mut states = encoder.encode_descriptor(
            "node_state",
            "1 for the state that the node is in",
            None,
            MetricType::Gauge,
        )?;
        for state in STATES {
            let labels = [("state", state)];
            ConstGauge::new(u64::from(state == word)).encode(states.encode_family(&labels)?)?;
        }
        for (name, help, milliseconds) in [
            ("node_uptime", "Since the process started", node.uptime_ms),
            ("node_lease_remaining", "How long the lease surely holds", node.lease_remaining_ms),
            ("node_snapshot_age", "How long these figures stand still", milliseconds(self.age)),
        ] {
            let gauge = ConstGauge::new(seconds(milliseconds, 1e3));
            gauge.encode(encoder.encode_descriptor(
                name,
                help,
                Some(&Unit::Seconds),
                MetricType::Gauge,
            )?)?;
        }
        let connections = ConstGauge::new(node.connections);
        let help = "Connections of clients";
        connections.encode(encoder.encode_descriptor(
            "node_connections",
            help,
            None,
            MetricType::Gauge,
        )?)?;
        self.encode_cluster(encoder)?;
        balance_metrics::encode(encoder, &self.snapshot.cluster.balance)?;
        self.encode_memory(encoder)?;
        self.encode_recovery(encoder)
    }

    /// What the node saw of its cluster. What it saw before its lease ran out is not known any more.
    fn encode_cluster(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (cluster, own) = (&self.snapshot.cluster, self.snapshot.node);
        let drains = || cluster.drains.iter().filter(|row| !row.removed);
        let drain = drains().any(|row| row.node == own);
        let left = if drain { usize::try_from(pairs_of(cluster, own)).unwrap_or(usize::MAX) } else { 0 };
        let unserved = cluster::troubles(&self.snapshot).len();
        let is_known = cluster::unknown(&self.snapshot).is_none();
        let seen = |count: usize| is_known.then_some(count);
        let members = MemberRow::present_rows(&cluster.members).count();
        for (name, help, count) in [
            ("cluster_members", "Nodes whose leases live; NaN: not known", seen(members)),
            ("cluster_pairs", "Pairs of the region table; NaN: not known", seen(cluster.pairs.len())),
            ("cluster_pairs_unserved", "Pairs that nobody serves; NaN: not known", seen(unserved)),
            (
                "cluster_nodes_draining",
                "Nodes that are to be emptied; NaN: not known",
                seen(drains().count()),
            ),
            ("cluster_takeovers", "Takeovers under way at this node", Some(cluster.recoveries.len())),
            ("node_draining", "1 if the node is to be emptied", Some(usize::from(drain))),
            ("node_drain_pairs_left", "Pairs that the node is to give away", Some(left)),
        ] {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            match count {
                Some(count) => ConstGauge::new(u64::try_from(count).unwrap_or(u64::MAX)).encode(gauge)?,
                None => ConstGauge::new(f64::NAN).encode(gauge)?,
            }
        }
        Ok(())
    }

    fn encode_memory(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (ready, given) = (self.snapshot.memory_ready_bytes, self.snapshot.memory_ready_bytes_given);
        let help = "Memory that is ready for takeovers";
        let bytes = Some(&Unit::Bytes);
        let gauge = encoder.encode_descriptor("memory_ready", help, bytes, MetricType::Gauge)?;
        ConstGauge::new(ready).encode(gauge)?;
        let help = "Ready memory that takeovers were given";
        let counter = encoder.encode_descriptor("memory_ready_given", help, bytes, MetricType::Counter)?;
        ConstCounter::new(given).encode(counter)?;
        let memory = &self.snapshot.memory;
        for (name, help, value) in [
            ("memory_limit", "What the node may hold, or less, if the machine has less", memory.limit),
            ("memory_available", "Of the limit, what can still be taken", memory.available),
            ("memory_process_measured", "Held besides what is counted, as measured", memory.process_measured),
        ] {
            let gauge = encoder.encode_descriptor(name, help, bytes, MetricType::Gauge)?;
            ConstGauge::new(value).encode(gauge)?;
        }
        let help = "Of the limit, what is taken, by what takes it";
        let mut used = encoder.encode_descriptor("memory_used", help, bytes, MetricType::Gauge)?;
        for (kind, value) in [
            ("regions", memory.regions),
            ("ready", memory.ready),
            ("logs", memory.logs),
            ("process", memory.process),
        ] {
            ConstGauge::new(value).encode(used.encode_family(&[("kind", kind)])?)?;
        }
        let help = "Times that memory was asked for in vain";
        let refused = encoder.encode_descriptor("memory_refused", help, None, MetricType::Counter)?;
        ConstCounter::new(memory.refused).encode(refused)
    }

    fn encode_recovery(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let NodeState::Recovering(progress) = &self.snapshot.state else { return Ok(()) };
        for (name, help, bytes) in [
            ("recovery_done", "Log and image bytes replayed", progress.bytes_done),
            ("recovery_total", "Log and image bytes to replay", progress.bytes_total),
        ] {
            let gauge = ConstGauge::new(bytes);
            gauge.encode(encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?)?;
        }
        Ok(())
    }

    fn encode_operations(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = &self.snapshot.operations;
        let mut family =
            encoder.encode_descriptor("operations", "Requests, by kind", None, MetricType::Counter)?;
        for (kind, read) in OPERATIONS {
            ConstCounter::new(read(counts)).encode(family.encode_family(&[("operation", *kind)])?)?;
        }
        let help = "Requests answered with an error, by why";
        let mut family = encoder.encode_descriptor("operations_refused", help, None, MetricType::Counter)?;
        for (reason, count) in self.snapshot.worker_counts.refusals() {
            ConstCounter::new(count).encode(family.encode_family(&[("reason", reason)])?)?;
        }
        let help = "Writes answered from the completion table";
        let counter = encoder.encode_descriptor("operations_repeated", help, None, MetricType::Counter)?;
        ConstCounter::new(counts.repeated).encode(counter)
    }

    fn encode_pairs(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        figure: &PairFigure,
    ) -> Result<(), fmt::Error> {
        let mut family =
            encoder.encode_descriptor(figure.name, figure.help, figure.unit.as_ref(), figure.kind)?;
        for pair in &self.snapshot.pairs {
            let labels = [("pair", pair.pair.0)];
            let value = (figure.read)(pair);
            match figure.kind {
                MetricType::Counter => ConstCounter::new(value).encode(family.encode_family(&labels)?)?,
                _ => ConstGauge::new(value).encode(family.encode_family(&labels)?)?,
            }
        }
        Ok(())
    }

    /// Of each of a pair's two logs; a pair without logs has none.
    fn encode_segments(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let logs = || {
            let pairs = self.snapshot.pairs.iter().filter_map(|pair| Some((pair.pair.0, pair.log_segments?)));
            pairs.flat_map(|(pair, logs)| ["node", "extent"].into_iter().zip(logs).map(move |it| (pair, it)))
        };
        let help = "Log segments: with frames, prepared ahead, and released for use again";
        let mut family = encoder.encode_descriptor("pair_log_segments", help, None, MetricType::Gauge)?;
        for (pair, (log, segments)) in logs() {
            let states =
                [("in_use", segments.in_use), ("spare", segments.spare), ("released", segments.released)];
            for (state, count) in states {
                let labels =
                    [("pair", pair.to_string()), ("log", log.to_owned()), ("state", state.to_owned())];
                ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Files of a log's segments, those ahead included";
        let bytes = Some(&Unit::Bytes);
        let mut family = encoder.encode_descriptor("pair_log_held", help, bytes, MetricType::Gauge)?;
        for (pair, (log, segments)) in logs() {
            let labels = [("pair", pair.to_string()), ("log", log.to_owned())];
            ConstGauge::new(segments.bytes).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn encode_sync_times(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Sync time of a batch in the last second: median, 99 of 100, longest; NaN without any";
        let mut family =
            encoder.encode_descriptor("pair_sync", help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for pair in &self.snapshot.pairs {
            for (statistic, microseconds) in ["p50", "p99", "max"].into_iter().zip(pair.sync_us) {
                let labels = [("pair", pair.pair.0.to_string()), ("statistic", statistic.to_owned())];
                let [.., longest] = pair.sync_us;
                let time = if longest == 0 { f64::NAN } else { seconds(microseconds, 1e6) };
                ConstGauge::new(time).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// A counter that another crate declares, whose name ends with what the encoder adds: the unit, then
/// `_total`.
fn encode_counter(encoder: &mut DescriptorEncoder<'_>, reading: &CounterValue) -> Result<(), fmt::Error> {
    let CounterValue { counter, value } = reading;
    let name = counter.name.trim_end_matches("_total");
    let units = [("_bytes", Unit::Bytes), ("_seconds", Unit::Seconds)];
    let with_unit = units.into_iter().find_map(|(end, unit)| Some((name.strip_suffix(end)?, Some(unit))));
    let (name, unit) = with_unit.unwrap_or((name, None));
    let help = counter.meaning.trim().trim_end_matches('.');
    let kind = match counter.kind {
        CounterKind::Total => MetricType::Counter,
        CounterKind::Gauge => MetricType::Gauge,
    };
    let descriptor = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
    match counter.kind {
        CounterKind::Total => ConstCounter::new(*value).encode(descriptor),
        CounterKind::Gauge => ConstGauge::new(*value).encode(descriptor),
    }
}

/// A time in seconds, from so many parts of one.
#[allow(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
fn seconds(parts: u64, per_second: f64) -> f64 {
    parts as f64 / per_second
}

#[cfg(test)]
mod tests {
    use cell_node::{ClusterSnapshot, LogSegments};

    use super::*;
    use crate::test_members::life;
    use crate::test_snapshot::snapshot;

    /// They were twice as many for as long as the leases of the lives before lasted on.
    #[test]
    fn nodes_that_are_back_are_members_once() {
        let members = vec![life(3, 7), life(4, 8), life(3, 77), life(4, 78)];
        let cluster = Arc::new(ClusterSnapshot { members, ..ClusterSnapshot::default() });
        let node = Arc::new(NodeSnapshot { cluster, ..snapshot() });
        let text = render(node, Duration::ZERO, ServerFigures::default()).unwrap();
        assert!(text.lines().any(|line| line == "cell_cluster_members 2"), "{text}");
    }

    #[test]
    fn render_names_have_prefix_unit_and_kind() {
        let mut node = snapshot();
        let (log, other) = (LogSegments { bytes: 7, ..Default::default() }, LogSegments::default());
        node.pairs[0].checkpoint_age_ms = 2_999;
        node.pairs[0].sync_waiting_ms = 7_999;
        node.pairs[0].log_segments = Some([log, LogSegments { spare: 1, ..other }]);
        let text = render(Arc::new(node), Duration::from_millis(1_500), ServerFigures::default()).unwrap();
        for line in [
            "# TYPE cell_operations counter",
            "cell_operations_total{operation=\"get\"} 10",
            "cell_node_state{state=\"serving\"} 1",
            "cell_node_uptime_seconds 12.0",
            "cell_memory_ready_bytes 4194304",
            "cell_memory_limit_bytes 1000",
            "cell_memory_used_bytes{kind=\"regions\"} 300",
            "cell_memory_used_bytes{kind=\"process\"} 400",
            "cell_memory_available_bytes 190",
            "cell_memory_refused_total 3",
            "cell_memory_ready_given_bytes_total 2097152",
            "# HELP cell_log_payload_bytes Bytes of records",
            "# UNIT cell_log_payload_bytes bytes",
            "# TYPE cell_log_payload_bytes counter",
            "cell_log_payload_bytes_total 4096.0",
            "cell_pair_entries{pair=\"1\"} 9",
            "cell_pair_csn_durable_total{pair=\"1\"} 41",
            "# UNIT cell_pair_extent_live_bytes bytes",
            "cell_pair_huge_page_bytes{pair=\"1\"} 2097152",
            "cell_pair_sync_seconds{pair=\"1\",statistic=\"p99\"} NaN",
            "cell_pair_log_segments{pair=\"1\",log=\"extent\",state=\"spare\"} 1",
            "cell_pair_log_held_bytes{pair=\"1\",log=\"node\"} 7",
            "cell_node_snapshot_age_seconds 1.5",
            "cell_pair_checkpoint_age_seconds{pair=\"1\"} 2",
            "cell_pair_sync_waiting_seconds{pair=\"1\"} 7",
            "cell_operations_refused_total{reason=\"busy\"} 0",
            "cell_operations_repeated_total 0",
            "cell_cluster_pairs_unserved 0",
            "cell_node_draining 0",
            "cell_node_drain_pairs_left 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        let silent = Arc::new(NodeSnapshot { state: NodeState::Silent, lease_remaining_ms: 0, ..snapshot() });
        let silent = render(silent, Duration::ZERO, ServerFigures::default()).unwrap();
        for name in ["members", "pairs", "pairs_unserved", "nodes_draining"] {
            let line = format!("cell_cluster_{name} NaN");
            assert!(
                silent.lines().any(|found| found == line),
                "{line}: it saw them before its lease ran out"
            );
        }
        assert!(text.ends_with("# EOF\n"));
        let is_ours = |line: &str| ["#", "cell_", "process_"].iter().any(|start| line.starts_with(start));
        assert!(text.lines().all(is_ours), "{text}");
    }
}
