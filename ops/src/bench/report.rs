//! What a run measured: latencies by kind of operation, counts and rates.

use std::collections::BTreeMap;
use std::time::Duration;

use cell_client::OneSidedCounters;
use cell_terms::CounterValue;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::workload::Kind;
use crate::output::number::{count, per_second, rate, time};
use crate::output::table;

/// Three digits that matter, from 1 ns to one minute; longer counts as a minute.
const HIGHEST_NS: u64 = 60_000_000_000;

/// Latencies of one kind of operation.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    histogram: Histogram<u64>,
    /// Reads that found nothing, conditions that failed: answered, but not as hoped.
    pub(crate) missed: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("constant bounds are right");
        Latencies { histogram, missed: 0 }
    }
}

impl Latencies {
    /// Takes one in.
    pub(crate) fn record(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(HIGHEST_NS).clamp(1, HIGHEST_NS);
        self.histogram.record(ns).expect("clamped to the bounds");
    }

    /// Adds those of another thread.
    pub(crate) fn add(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("equal bounds");
        self.missed += other.missed;
    }

    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    fn quantile(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile)
    }
}

/// What one phase measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct PhaseResult {
    /// By kind of operation.
    pub(crate) kinds: BTreeMap<Kind, Latencies>,
    /// How long the phase took.
    pub(crate) elapsed: Duration,
    /// What the clients' one-sided paths counted, where they search themselves.
    pub(crate) one_sided: Option<OneSidedCounters>,
}

impl PhaseResult {
    /// Adds what another thread measured; the phase's time is set by whoever ran it.
    pub(crate) fn add(&mut self, other: &PhaseResult) {
        for (kind, latencies) in &other.kinds {
            self.kinds.entry(*kind).or_default().add(latencies);
        }
        if let Some(counters) = &other.one_sided {
            self.one_sided.get_or_insert_default().add(counters);
        }
    }

    /// Operations of all kinds.
    pub(crate) fn operations(&self) -> u64 {
        self.kinds.values().map(Latencies::count).sum()
    }

    pub(crate) fn to_json(&self) -> Value {
        let kind = |latencies: &Latencies| {
            json!({
                "operations": latencies.count(),
                "operations_per_second": per_second(latencies.count(), self.elapsed),
                "missed": latencies.missed,
                "latency_ns": {
                    "mean": latencies.histogram.mean(),
                    "p50": latencies.quantile(0.5),
                    "p90": latencies.quantile(0.9),
                    "p99": latencies.quantile(0.99),
                    "p999": latencies.quantile(0.999),
                    "max": latencies.histogram.max(),
                },
            })
        };
        let kinds: serde_json::Map<_, _> =
            self.kinds.iter().map(|(name, latencies)| (name.name().to_owned(), kind(latencies))).collect();
        json!({
            "seconds": self.elapsed.as_secs_f64(),
            "operations": self.operations(),
            "operations_per_second": per_second(self.operations(), self.elapsed),
            "kinds": kinds,
            "one_sided": self.one_sided.map(|counters| {
                let named = |value: CounterValue| (value.counter.name.to_owned(), json!(value.value));
                counters.values().into_iter().map(named).collect::<serde_json::Map<_, _>>()
            }),
        })
    }

    pub(crate) fn to_table(&self) -> String {
        let ns = |latencies: &Latencies, quantile| time(Duration::from_nanos(latencies.quantile(quantile)));
        let row = |(kind, latencies): (&Kind, &Latencies)| {
            vec![
                kind.name().replace('_', "-"),
                count(latencies.count()),
                rate(per_second(latencies.count(), self.elapsed)),
                ns(latencies, 0.5),
                ns(latencies, 0.99),
                ns(latencies, 0.999),
                ns(latencies, 1.0),
                count(latencies.missed),
            ]
        };
        let headings = ["operation", "count", "rate", "p50", "p99", "p99.9", "max", "missed"];
        let mut text = table::plain(&headings, &[1, 2, 3, 4, 5, 6, 7], self.kinds.iter().map(row).collect());
        if let Some(counters) = &self.one_sided {
            let short =
                |name: &'static str| name.trim_start_matches("client_one_sided_").trim_end_matches("_total");
            let words = counters.values().into_iter().filter(|value| value.value > 0.0);
            let words = words.map(|value| format!("{} {}", short(value.counter.name), value.value));
            text.push_str(&format!("\none-sided: {}", words.collect::<Vec<_>>().join(", ")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phase_merges_threads_and_reports_quantiles() {
        let mut total = PhaseResult { elapsed: Duration::from_secs(2), ..PhaseResult::default() };
        for thread in 0..2 {
            let mut phase = PhaseResult::default();
            for n in 1..=1000_u32 {
                let latency = Duration::from_micros(u64::from(n + thread));
                phase.kinds.entry(Kind::Read).or_default().record(latency);
            }
            total.add(&phase);
        }
        let document = total.to_json();
        assert_eq!(document["operations"], 2000);
        assert_eq!(document["operations_per_second"], 1000.0);
        let p50 = document["kinds"]["read"]["latency_ns"]["p50"].as_u64().unwrap();
        assert!((499_000..=502_000).contains(&p50), "{p50}");
        assert!(total.to_table().contains("2,000"));
    }
}
