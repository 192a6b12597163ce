//! What clients have reported of their searches, as metrics of the node: no client has a label of its own.

use std::fmt;

use cell_node::{ClientCounts, ClientEstimates, ClientSnapshot, ClientTotals};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

type CountOf = fn(&ClientCounts) -> u64;

struct Family {
    name: &'static str,
    help: &'static str,
    label: &'static str,
    members: &'static [(&'static str, CountOf)],
}

const FAMILIES: &[Family] = &[
    Family {
        name: "client_searches",
        help: "Searches that clients have reported, by who did them; those after the last report are unknown",
        label: "path",
        members: &[("server", |counts| counts.server), ("one_sided", |counts| counts.one_sided)],
    },
    Family {
        name: "client_decisions",
        help: "Decisions of clients on who searches, by reason",
        label: "reason",
        members: &[
            ("estimate", |counts| counts.estimate),
            ("exploration", |counts| counts.exploration),
            ("fixed_share", |counts| counts.fixed_share),
            ("not_enough_samples", |counts| counts.not_enough_samples),
            ("idle_reset", |counts| counts.idle_reset),
            ("not_registered", |counts| counts.not_registered),
            ("not_permitted", |counts| counts.not_permitted),
            ("not_trusted", |counts| counts.not_trusted),
        ],
    },
    Family {
        name: "client_retries",
        help: "What clients tried again in one-sided searches, by cause",
        label: "cause",
        members: &[
            ("torn", |counts| counts.torn),
            ("stale", |counts| counts.stale),
            ("fence", |counts| counts.fence),
            ("slow", |counts| counts.slow),
            ("watermark", |counts| counts.watermark),
            ("trust", |counts| counts.trust),
            ("other", |counts| counts.other),
        ],
    },
    Family {
        name: "client_cache_lookups",
        help: "Tree nodes above the leaves that clients looked for in their caches",
        label: "result",
        members: &[("hit", |counts| counts.cache_hits), ("miss", |counts| counts.cache_misses)],
    },
];

type LatencyOf = fn(&ClientEstimates) -> u64;

const LATENCIES: &[(&str, &str, LatencyOf)] = &[
    ("client_server_search_mean", "Search by the server, as clients see it (l_s)", |known| known.server_ns),
    ("client_read_mean", "One-sided read, as clients see it (l_r)", |known| known.read_ns),
    ("client_read_lowest", "Lowest latency of a one-sided read (RTT)", |known| known.rtt_ns),
    ("client_one_sided_search_mean", "Search with one-sided reads", |known| known.one_sided_ns),
];

/// All of them: totals since the node's start, and means over the clients that report now, each of the weight
/// of its searches.
pub(crate) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    totals: &ClientTotals,
    clients: &[ClientSnapshot],
) -> Result<(), fmt::Error> {
    for family in FAMILIES {
        let mut encoder = encoder.encode_descriptor(family.name, family.help, None, MetricType::Counter)?;
        for (member, count) in family.members {
            let labels = [(family.label, *member)];
            ConstCounter::new(count(&totals.counts)).encode(encoder.encode_family(&labels)?)?;
        }
    }
    for (name, help, count) in [
        ("client_fallbacks", "Searches that one-sided reads did not answer", totals.counts.fallbacks),
        ("client_reads", "One-sided reads that clients have reported", totals.counts.reads),
        ("client_reads_told", "One-sided reads of which clients told the meganode", totals.reported_reads),
        (
            "client_reads_untold",
            "One-sided reads that are in no meganode's figures",
            totals.unattributed_reads,
        ),
        ("client_reports", "Reports of clients", totals.reports),
        ("client_reports_dropped", "Reports of clients for which there was no room", totals.dropped),
    ] {
        let counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(count).encode(counter)?;
    }
    let help = "Connections of clients that report";
    let gauge = encoder.encode_descriptor("clients_reporting", help, None, MetricType::Gauge)?;
    ConstGauge::new(clients.len() as u64).encode(gauge)?;
    for (name, help, latency) in LATENCIES {
        if let Some(ns) = mean(clients, |known| latency(known) as f64) {
            let gauge = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
            ConstGauge::new(ns / 1e9).encode(gauge)?;
        }
    }
    if let Some(reads) = mean(clients, |known| f64::from(known.reads_thousandths) / 1e3) {
        let help = "One-sided reads that a search needs (m)";
        let gauge =
            encoder.encode_descriptor("client_reads_per_search_mean", help, None, MetricType::Gauge)?;
        ConstGauge::new(reads).encode(gauge)?;
    }
    Ok(())
}

/// The mean of a figure over the clients that know it, by their searches of late.
fn mean(clients: &[ClientSnapshot], figure: impl Fn(&ClientEstimates) -> f64) -> Option<f64> {
    let known = clients.iter().map(|client| (figure(&client.estimates), client.last_searches as f64));
    let known = known.filter(|(figure, weight)| *figure > 0.0 && *weight > 0.0);
    let (sum, weights) =
        known.fold((0.0, 0.0), |(sum, weights), (figure, weight)| (sum + figure * weight, weights + weight));
    (weights > 0.0).then(|| sum / weights)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::selector_history::tests::client;

    #[test]
    fn mean_is_by_searches_of_clients_that_know_the_figure() {
        let mut clients = vec![client(1, 1), client(2, 1), client(3, 1)];
        (clients[1].estimates.server_ns, clients[1].last_searches) = (60_000, 20);
        clients[2].estimates.server_ns = 0;
        assert_eq!(mean(&clients, |known| known.server_ns as f64), Some(40_000.0));
        assert_eq!(mean(&[], |known| known.server_ns as f64), None);
    }

    #[test]
    fn encode_has_totals_by_kind_and_means_without_a_label_for_a_client() {
        let mut snapshot = crate::test_snapshot::snapshot();
        let counts =
            ClientCounts { one_sided: 9, torn: 2, not_trusted: 3, fallbacks: 4, ..ClientCounts::default() };
        let totals = ClientTotals { reports: 5, dropped: 1, counts, ..ClientTotals::default() };
        snapshot.client_totals = ClientTotals { reported_reads: 7, unattributed_reads: 6, ..totals };
        snapshot.clients = vec![client(1, 1), client(2, 1)];
        let text = crate::metrics::render(std::sync::Arc::new(snapshot), Duration::ZERO, Default::default())
            .unwrap();
        for line in [
            "cell_client_searches_total{path=\"one_sided\"} 9",
            "cell_client_decisions_total{reason=\"not_trusted\"} 3",
            "cell_client_retries_total{cause=\"torn\"} 2",
            "cell_client_fallbacks_total 4",
            "cell_client_reads_told_total 7",
            "cell_client_reads_untold_total 6",
            "cell_client_reports_total 5",
            "cell_client_reports_dropped_total 1",
            "cell_clients_reporting 2",
            "cell_client_reads_per_search_mean 2.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert!(text.contains("\ncell_client_server_search_mean_seconds "), "{text}");
        assert!(text.contains("those after the last report are unknown"), "{text}");
    }
}
