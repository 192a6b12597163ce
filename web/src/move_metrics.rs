//! Planned moves of pairs as metrics. Each end of a move counts it; who sums over a cluster takes one end.

use std::fmt;

use cell_node::{MoveCounts, MoveDurations, MoveEndCounts, move_bucket_end_ms};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

type CountOf = fn(&MoveEndCounts) -> u64;

const OUTCOMES: [(&str, CountOf); 4] = [
    ("moved", |counts| counts.moved),
    ("cancelled", |counts| counts.cancelled),
    ("given_up", |counts| counts.given_up),
    ("back", |counts| counts.back),
];

/// At a time of CLOCK_BOOTTIME.
pub(crate) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    counts: &MoveCounts,
    boottime_ms: u64,
) -> Result<(), fmt::Error> {
    let ends = [("source", &counts.source), ("target", &counts.target)];
    let help = "Planned moves of pairs, by which end of them the node is";
    let mut family = encoder.encode_descriptor("moves_begun", help, None, MetricType::Counter)?;
    for (end, of_end) in ends {
        ConstCounter::new(of_end.started).encode(family.encode_family(&[("end", end)])?)?;
    }
    let help = "Planned moves of pairs that are over, by end and by what became of them";
    let mut family = encoder.encode_descriptor("moves_ended", help, None, MetricType::Counter)?;
    for (end, of_end) in ends {
        for (outcome, read) in OUTCOMES {
            let labels = [("end", end), ("outcome", outcome)];
            ConstCounter::new(read(of_end)).encode(family.encode_family(&labels)?)?;
        }
    }
    let help = "Planned moves of pairs that are under way, by end";
    let mut family = encoder.encode_descriptor("moves_under_way", help, None, MetricType::Gauge)?;
    for (end, of_end) in ends {
        ConstGauge::new(of_end.under_way).encode(family.encode_family(&[("end", end)])?)?;
    }
    let (help, unit) = ("Images and logs that were read for moves to this node", Some(&Unit::Bytes));
    let counter = encoder.encode_descriptor("move_copied", help, unit, MetricType::Counter)?;
    ConstCounter::new(counts.copied_bytes).encode(counter)?;
    let help = "How long the move has made no progress that has made none for longest; 0 without a move";
    let unit = Some(&Unit::Seconds);
    let gauge = encoder.encode_descriptor("move_still", help, unit, MetricType::Gauge)?;
    let still_ms = |since_ns: u64| boottime_ms.saturating_sub(since_ns / 1_000_000);
    let still_ms = counts.still_since_ns.map_or(0, still_ms);
    ConstGauge::new(seconds(still_ms)).encode(gauge)?;
    let help = "What moves of pairs to this node took, from when it saw them to the pair's publication";
    encode_durations(encoder, ("move", help), &counts.took)?;
    let help = "How long pairs that moved to this node were not served, by the clocks of both ends";
    encode_durations(encoder, ("move_frozen", help), &counts.frozen)
}

fn encode_durations(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    times: &MoveDurations,
) -> Result<(), fmt::Error> {
    let unit = Some(&Unit::Seconds);
    let mut metric = encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?;
    let end = |bucket| move_bucket_end_ms(bucket).map_or(f64::INFINITY, seconds);
    let buckets: Vec<_> = times.buckets.iter().enumerate().map(|(at, count)| (end(at), *count)).collect();
    metric.encode_histogram::<NoLabelSet>(seconds(times.sum_ms), times.buckets.iter().sum(), &buckets, None)
}

#[allow(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use cell_node::ClusterSnapshot;

    use super::*;
    use crate::server_figures::ServerFigures;
    use crate::test_snapshot::snapshot;

    #[test]
    fn moves_are_counted_by_end_and_outcome_with_their_times() {
        let mut counts = MoveCounts {
            source: MoveEndCounts { started: 3, under_way: 1, moved: 1, back: 1, ..Default::default() },
            target: MoveEndCounts { started: 2, cancelled: 1, given_up: 1, ..Default::default() },
            copied_bytes: 4_096,
            still_since_ns: Some(7_000_000_000),
            ..MoveCounts::default()
        };
        (counts.took.buckets[8], counts.took.sum_ms) = (1, 2_140);
        (counts.frozen.buckets[4], counts.frozen.sum_ms) = (1, 90);
        let cluster = ClusterSnapshot { move_counts: counts, ..ClusterSnapshot::default() };
        let mut node = snapshot();
        node.cluster = Arc::new(cluster);
        let figures = ServerFigures { boottime_ms: 9_500, ..ServerFigures::default() };
        let text = crate::metrics::render(Arc::new(node), Duration::ZERO, figures).unwrap();
        for line in [
            "# TYPE cell_moves_begun counter",
            "cell_moves_begun_total{end=\"source\"} 3",
            "cell_moves_begun_total{end=\"target\"} 2",
            "cell_moves_ended_total{end=\"source\",outcome=\"moved\"} 1",
            "cell_moves_ended_total{end=\"source\",outcome=\"back\"} 1",
            "cell_moves_ended_total{end=\"source\",outcome=\"cancelled\"} 0",
            "cell_moves_ended_total{end=\"target\",outcome=\"given_up\"} 1",
            "cell_moves_under_way{end=\"source\"} 1",
            "cell_moves_under_way{end=\"target\"} 0",
            "cell_move_copied_bytes_total 4096",
            "cell_move_still_seconds 2.5",
            "# TYPE cell_move_seconds histogram",
            "cell_move_seconds_sum 2.14",
            "cell_move_seconds_bucket{le=\"1.0\"} 0",
            "cell_move_seconds_bucket{le=\"2.5\"} 1",
            "cell_move_seconds_count 1",
            "cell_move_frozen_seconds_sum 0.09",
            "cell_move_frozen_seconds_bucket{le=\"0.1\"} 1",
            "cell_move_frozen_seconds_bucket{le=\"+Inf\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        let none = crate::metrics::render(Arc::new(snapshot()), Duration::ZERO, ServerFigures::default());
        assert!(none.unwrap().contains("cell_move_still_seconds 0.0\n"));
    }
}
