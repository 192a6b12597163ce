//! What requests, syncs and takeovers took at the node, as histograms, and what it does besides: queue,
//! splits, memory, damage, tuning.

use std::fmt;

use cell_node::{LatencyHistogram, NodeSnapshot, sync_bucket_end_us, takeover_bucket_end_ms};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::rates::OPERATIONS;

/// The buckets end at powers of two of 64 ns, where the node's own do: 4 us, 8 us, ... 4.3 s.
const ENDS_NS: [u64; 21] = {
    let mut ends = [64 << 6; 21];
    let mut at = 1;
    while at < ends.len() {
        ends[at] = ends[at - 1] * 2;
        at += 1;
    }
    ends
};

pub(crate) fn encode(encoder: &mut DescriptorEncoder<'_>, node: &NodeSnapshot) -> Result<(), fmt::Error> {
    encode_latencies(encoder, node)?;
    encode_syncs(encoder, node)?;
    encode_takeovers(encoder, node)?;
    encode_damage(encoder, node)?;
    encode_splits(encoder, node)?;
    let help = "Half of the turn of the worker that a request meets, in the last second";
    let unit = Some(&Unit::Seconds);
    let gauge = encoder.encode_descriptor("queue_latency_estimate", help, unit, MetricType::Gauge)?;
    ConstGauge::new(seconds(node.latencies.queue_estimate_ns)).encode(gauge)?;
    let [node_region, extent_region] = node.backing;
    let help = "Which pages back the regions";
    let mut info = encoder.encode_descriptor("memory_backing", help, None, MetricType::Info)?;
    info.encode_info(&[("node_region", node_region), ("extent_region", extent_region)])?;
    let help = "How writes of logs reach stable storage: each by itself, or by one flush for all pairs";
    let mut info = encoder.encode_descriptor("log_flush", help, None, MetricType::Info)?;
    info.encode_info(&[("way", node.log_flush.way.word())])?;
    let help = "Revision of the settings that the cluster is tuned to, as the node has seen it";
    let gauge = encoder.encode_descriptor("tuning_revision", help, None, MetricType::Gauge)?;
    ConstGauge::new(node.cluster.tuning.revision).encode(gauge)?;
    let help = "Rows of the coordinator that do not read, as the node has seen them; the last good ones hold";
    let gauge = encoder.encode_descriptor("coordinator_rows_unreadable", help, None, MetricType::Gauge)?;
    ConstGauge::new(node.cluster.unreadable.len() as u64).encode(gauge)
}

fn encode_latencies(encoder: &mut DescriptorEncoder<'_>, node: &NodeSnapshot) -> Result<(), fmt::Error> {
    let help = "What requests took at the server, since its start";
    let unit = Some(&Unit::Seconds);
    let mut family = encoder.encode_descriptor("operation_latency", help, unit, MetricType::Histogram)?;
    for (operation, times) in OPERATIONS.into_iter().zip(&node.latency_histograms.since_start) {
        let labels = [("operation", operation)];
        let mut metric = family.encode_family(&labels)?;
        let (sum, count) = (seconds(times.sum_ns()), times.count());
        metric.encode_histogram::<NoLabelSet>(sum, count, &buckets(times), None)?;
    }
    Ok(())
}

/// Of all pairs: one that moves takes no count with it.
fn encode_syncs(encoder: &mut DescriptorEncoder<'_>, node: &NodeSnapshot) -> Result<(), fmt::Error> {
    let counts = &node.worker_counts;
    let help = "What it took until a batch was durable in both logs of its pair";
    let unit = Some(&Unit::Seconds);
    let mut metric = encoder.encode_descriptor("log_sync", help, unit, MetricType::Histogram)?;
    let buckets = ended(&counts.sync_buckets, |bucket| Some(seconds(sync_bucket_end_us(bucket)? * 1_000)));
    let all = counts.sync_buckets.iter().sum();
    metric.encode_histogram::<NoLabelSet>(seconds(counts.sync_sum_ns), all, &buckets, None)
}

fn encode_takeovers(encoder: &mut DescriptorEncoder<'_>, node: &NodeSnapshot) -> Result<(), fmt::Error> {
    const NS_PER_MS: u64 = 1_000_000;
    let counts = &node.cluster.takeovers;
    let help = "What this node's takeovers of pairs took, its own at its start included";
    let unit = Some(&Unit::Seconds);
    let mut metric = encoder.encode_descriptor("takeover", help, unit, MetricType::Histogram)?;
    let end = |bucket| Some(seconds(takeover_bucket_end_ms(bucket)? * NS_PER_MS));
    let (buckets, all) = (ended(&counts.buckets, end), counts.buckets.iter().sum());
    let sum = seconds(counts.sum_ms.saturating_mul(NS_PER_MS));
    metric.encode_histogram::<NoLabelSet>(sum, all, &buckets, None)?;
    let help = "Takeovers of pairs that came to nothing, by why";
    let mut family = encoder.encode_descriptor("takeovers_refused", help, None, MetricType::Counter)?;
    for (reason, count) in
        [("damaged", counts.damaged), ("declined", counts.declined), ("failed", counts.failed)]
    {
        ConstCounter::new(count).encode(family.encode_family(&[("reason", reason)])?)?;
    }
    Ok(())
}

fn encode_damage(encoder: &mut DescriptorEncoder<'_>, node: &NodeSnapshot) -> Result<(), fmt::Error> {
    let counts = &node.worker_counts;
    let help = "Times that damage was found, by what found it: a request, a check, a takeover";
    let mut family = encoder.encode_descriptor("corruption_found", help, None, MetricType::Counter)?;
    for (by, count) in [
        ("request", counts.damage_met),
        ("check", counts.damage_checked),
        ("takeover", node.cluster.takeovers.damaged),
    ] {
        ConstCounter::new(count).encode(family.encode_family(&[("by", by)])?)?;
    }
    Ok(())
}

/// Where each bucket ends, in seconds, and what is in it.
fn ended(counts: &[u64], end: impl Fn(usize) -> Option<f64>) -> Vec<(f64, u64)> {
    counts.iter().enumerate().map(|(at, count)| (end(at).unwrap_or(f64::INFINITY), *count)).collect()
}

/// Where buckets end, in seconds, and how many times are in each of them alone.
fn buckets(times: &LatencyHistogram) -> Vec<(f64, u64)> {
    let mut below = 0;
    let ends = ENDS_NS.map(|end| (seconds(end), times.count_below(end)));
    let all = ends.into_iter().chain([(f64::INFINITY, times.count())]);
    all.map(|(end, count)| (end, count - std::mem::replace(&mut below, count))).collect()
}

fn encode_splits(encoder: &mut DescriptorEncoder<'_>, node: &NodeSnapshot) -> Result<(), fmt::Error> {
    let splits = &node.splits;
    let help = "Splits of meganodes, by how far they came, and merges of those that were emptied";
    let mut family = encoder.encode_descriptor("splits", help, None, MetricType::Counter)?;
    for (step, count) in [
        ("begun", splits.begun),
        ("finished", splits.finished),
        ("aborted", splits.aborted),
        ("merged", splits.merged),
    ] {
        ConstCounter::new(count).encode(family.encode_family(&[("step", step)])?)?;
    }
    let help = "Splits of meganodes that are under way";
    let gauge = encoder.encode_descriptor("splits_in_progress", help, None, MetricType::Gauge)?;
    ConstGauge::new(splits.under_way).encode(gauge)
}

#[allow(clippy::cast_precision_loss, reason = "2^53 ns are 104 days")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::test_snapshot::snapshot;

    #[test]
    fn encode_has_a_histogram_for_each_operation_and_what_the_node_does_besides() {
        let mut node = snapshot();
        let text = r#"{"buckets": [[0, 2], [60, 3], [119, 1]], "sum_ns": 2500000000, "max_ns": 9}"#;
        let mut histograms = cell_node::OperationHistograms::default();
        histograms.since_start[2] = serde_json::from_str(text).unwrap();
        node.latency_histograms = Arc::new(histograms);
        node.latencies.queue_estimate_ns = 2_000;
        (node.splits.begun, node.splits.under_way, node.splits.merged) = (3, 1, 2);
        node.worker_counts.sync_buckets[2] = 4;
        (node.worker_counts.sync_sum_ns, node.worker_counts.damage_checked) = (500_000_000, 7);
        let mut cluster = cell_node::ClusterSnapshot::default();
        cluster.takeovers.buckets[3] = 2;
        (cluster.takeovers.sum_ms, cluster.takeovers.damaged) = (900, 1);
        node.cluster = Arc::new(cluster);
        let text = crate::metrics::render(Arc::new(node), Duration::ZERO, Default::default()).unwrap();
        for line in [
            "# TYPE cell_operation_latency_seconds histogram",
            "cell_operation_latency_seconds_sum{operation=\"put\"} 2.5",
            "cell_operation_latency_seconds_count{operation=\"put\"} 6",
            "cell_operation_latency_seconds_bucket{le=\"0.000004096\",operation=\"put\"} 2",
            "cell_operation_latency_seconds_bucket{le=\"4.294967296\",operation=\"put\"} 5",
            "cell_operation_latency_seconds_bucket{le=\"+Inf\",operation=\"put\"} 6",
            "cell_operation_latency_seconds_count{operation=\"scan\"} 0",
            "cell_queue_latency_estimate_seconds 0.000002",
            "cell_splits_total{step=\"begun\"} 3",
            "cell_splits_total{step=\"merged\"} 2",
            "cell_splits_in_progress 1",
            "cell_memory_backing_info{node_region=\"2 MiB\",extent_region=\"4 KiB\"} 1",
            "cell_log_flush_info{way=\"per_device\"} 1",
            "cell_tuning_revision 0",
            "cell_coordinator_rows_unreadable 0",
            "cell_log_sync_seconds_sum 0.5",
            "cell_log_sync_seconds_count 4",
            "cell_log_sync_seconds_bucket{le=\"0.000064\"} 0",
            "cell_log_sync_seconds_bucket{le=\"0.000128\"} 4",
            "cell_log_sync_seconds_bucket{le=\"+Inf\"} 4",
            "cell_takeover_seconds_sum 0.9",
            "cell_takeover_seconds_bucket{le=\"0.25\"} 0",
            "cell_takeover_seconds_bucket{le=\"0.5\"} 2",
            "cell_takeover_seconds_count 2",
            "cell_takeovers_refused_total{reason=\"damaged\"} 1",
            "cell_corruption_found_total{by=\"check\"} 7",
            "cell_corruption_found_total{by=\"takeover\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
