//! What a run measured: latencies by kind of operation, counts and rates.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cell_client::{Decisions, Estimates, OneSidedCounters, SelectorReport};
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
    /// Reads and scans that found nothing, conditions that failed: answered, but not as hoped.
    pub(crate) missed: u64,
    /// Entries that scans found.
    pub(crate) entries: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("constant bounds are right");
        Latencies { histogram, missed: 0, entries: 0 }
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
        self.entries += other.entries;
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
    /// Gets and pages of scans that were answered, those of read-modify-writes too.
    pub(crate) searches: u64,
    /// How long the phase took: to the end of its last operation.
    pub(crate) elapsed: Duration,
    /// When that ended.
    pub(crate) last_ended: Option<Instant>,
    /// What the clients' one-sided paths counted, where they search themselves.
    pub(crate) one_sided: Option<OneSidedCounters>,
    /// What each client decided on who searches, where that was its choice.
    pub(crate) selectors: Vec<SelectorReport>,
}

impl PhaseResult {
    /// The phase of threads that have started at this time.
    pub(crate) fn of_threads(started: Instant, threads: &[PhaseResult]) -> PhaseResult {
        let mut phase = PhaseResult::default();
        threads.iter().for_each(|thread| phase.add(thread));
        phase.elapsed =
            phase.last_ended.map_or(Duration::ZERO, |ended| ended.saturating_duration_since(started));
        phase
    }

    /// Adds what another thread measured.
    fn add(&mut self, other: &PhaseResult) {
        for (kind, latencies) in &other.kinds {
            self.kinds.entry(*kind).or_default().add(latencies);
        }
        self.searches += other.searches;
        self.last_ended = self.last_ended.max(other.last_ended);
        if let Some(counters) = &other.one_sided {
            self.one_sided.get_or_insert_default().add(counters);
        }
        self.selectors.extend_from_slice(&other.selectors);
    }

    /// What the clients decided together, and what they know in the mean.
    fn selector(&self) -> Option<SelectorReport> {
        let mut all = SelectorReport::default();
        self.selectors.iter().for_each(|report| all.decisions.add(&report.decisions));
        let mean = |of: fn(&Estimates) -> Option<f64>| {
            let known: Vec<f64> = self.selectors.iter().filter_map(|report| of(&report.estimates)).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
        };
        all.estimates = Estimates {
            server_ns: mean(|estimates| estimates.server_ns),
            read_ns: mean(|estimates| estimates.read_ns),
            one_sided_ns: mean(|estimates| estimates.one_sided_ns),
            rtt_ns: mean(|estimates| estimates.rtt_ns),
            reads: mean(|estimates| Some(estimates.reads)).unwrap_or(0.0),
            share: mean(|estimates| estimates.share),
        };
        (!self.selectors.is_empty()).then_some(all)
    }

    /// Who searched. Where the client had no choice its counters show it: what it did not answer itself the
    /// server did. The mean of reads and scans stands by who answered most of them. None if nothing was read.
    fn searches(&self) -> Option<SelectorReport> {
        if let Some(report) = self.selector() {
            return Some(report);
        }
        let all = Some(self.searches).filter(|all| *all > 0)?;
        let reads = [Kind::Read, Kind::Scan].iter().filter_map(|kind| self.kinds.get(kind));
        let (count, sum_ns) = reads.fold((0, 0.0), |(count, sum_ns), latencies| {
            let own = latencies.count();
            (count + own, sum_ns + latencies.histogram.mean() * own as f64)
        });
        let mean_ns = (count > 0).then(|| sum_ns / count as f64);
        let counters = self.one_sided.unwrap_or_default();
        let one_sided = counters.done.min(all);
        let decisions = Decisions { server: all - one_sided, one_sided, ..Decisions::default() };
        let is_mostly_one_sided = decisions.one_sided > decisions.server;
        let estimates = Estimates {
            server_ns: mean_ns.filter(|_| !is_mostly_one_sided),
            one_sided_ns: mean_ns.filter(|_| is_mostly_one_sided),
            reads: counters.reads as f64 / counters.done.max(1) as f64,
            share: Some(if one_sided > 0 { 0.0 } else { 1.0 }),
            ..Estimates::default()
        };
        Some(SelectorReport { decisions, estimates })
    }

    /// Operations of all kinds.
    pub(crate) fn operations(&self) -> u64 {
        self.kinds.values().map(Latencies::count).sum()
    }

    pub(crate) fn to_json(&self) -> Value {
        let kind = |kind: Kind, latencies: &Latencies| {
            json!({
                "operations": latencies.count(),
                "operations_per_second": per_second(latencies.count(), self.elapsed),
                "missed": latencies.missed,
                "entries": (kind == Kind::Scan).then_some(latencies.entries),
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
        let kinds: serde_json::Map<_, _> = self
            .kinds
            .iter()
            .map(|(name, latencies)| (name.name().to_owned(), kind(*name, latencies)))
            .collect();
        json!({
            "seconds": self.elapsed.as_secs_f64(),
            "operations": self.operations(),
            "operations_per_second": per_second(self.operations(), self.elapsed),
            "kinds": kinds,
            "selector": self.searches().map(|report| selector_json(&report)),
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
        if let Some(scans) = self.kinds.get(&Kind::Scan) {
            let mean = scans.entries as f64 / scans.count().max(1) as f64;
            text.push_str(&format!("\nscans: {} entries, {mean:.1} each", count(scans.entries)));
        }
        if let Some(report) = self.searches() {
            text.push_str(&selector_text(&report));
        }
        if let Some(counters) = &self.one_sided {
            let short =
                |name: &'static str| name.trim_start_matches("client_one_sided_").trim_end_matches("_total");
            let words = counters.values().into_iter().filter(|value| value.value > 0.0);
            let words = words.map(|value| format!("{} {}", short(value.counter.name), value.value));
            let is_none = counters.done == 0 && self.searches > 0;
            let none = is_none.then(|| "no search, the servers answered them all".to_owned());
            let words: Vec<_> = none.into_iter().chain(words).collect();
            text.push_str(&format!("\none-sided: {}", words.join(", ")));
        }
        text
    }
}

fn selector_json(SelectorReport { decisions, estimates }: &SelectorReport) -> Value {
    json!({
        "server_share": decisions.server_share(),
        "server": decisions.server,
        "one_sided": decisions.one_sided,
        "explored": decisions.exploration,
        "only_server": decisions.only_server(),
        "server_latency_ns": estimates.server_ns,
        "read_latency_ns": estimates.read_ns,
        "one_sided_latency_ns": estimates.one_sided_ns,
        "rtt_ns": estimates.rtt_ns,
        "reads_per_search": estimates.reads,
        "share_at_the_end": estimates.share,
    })
}

fn selector_text(SelectorReport { decisions, estimates }: &SelectorReport) -> String {
    let known = |ns: Option<f64>| ns.map_or("?".to_owned(), |ns| time(Duration::from_secs_f64(ns / 1e9)));
    let share = decisions.server_share().map_or("?".to_owned(), |share| format!("{:.1} %", 100.0 * share));
    format!(
        "\nselector: {share} server-side ({} server, {} one-sided, {} explored), l_s {}, l_r {}, one-sided search {}, \
         RTT {}, m {:.1}",
        count(decisions.server),
        count(decisions.one_sided),
        count(decisions.exploration),
        known(estimates.server_ns),
        known(estimates.read_ns),
        known(estimates.one_sided_ns),
        known(estimates.rtt_ns),
        estimates.reads,
    )
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

    /// A run that was shorter than the time between two looks at its threads took that long.
    #[test]
    fn phase_ends_with_its_last_operation() {
        let started = Instant::now();
        let ended = |after| Some(started + Duration::from_micros(after));
        let threads = [ended(300), None, ended(200)]
            .map(|last_ended| PhaseResult { last_ended, ..PhaseResult::default() });
        assert_eq!(PhaseResult::of_threads(started, &threads).elapsed, Duration::from_micros(300));
        assert_eq!(PhaseResult::of_threads(started, &[]).elapsed, Duration::ZERO);
    }

    #[test]
    fn searches_without_a_choice_are_reported_by_counters_and_latencies() {
        let mut phase = PhaseResult { searches: 10, ..PhaseResult::default() };
        for _ in 0..10 {
            phase.kinds.entry(Kind::Read).or_default().record(Duration::from_micros(30));
            phase.kinds.entry(Kind::Update).or_default().record(Duration::from_millis(9));
        }
        let shown = phase.to_json()["selector"].clone();
        assert_eq!((shown["server_share"].as_f64(), shown["server"].as_u64()), (Some(1.0), Some(10)));
        let server_ns = shown["server_latency_ns"].as_f64().unwrap();
        assert!((29_900.0..30_100.0).contains(&server_ns), "{server_ns}");
        assert!(shown["one_sided_latency_ns"].is_null());

        phase.one_sided =
            Some(OneSidedCounters { done: 8, fell_back: 2, reads: 24, ..OneSidedCounters::default() });
        let shown = phase.to_json()["selector"].clone();
        assert_eq!(
            (shown["server_share"].as_f64(), shown["reads_per_search"].as_f64()),
            (Some(0.2), Some(3.0))
        );
        assert!(shown["server_latency_ns"].is_null() && shown["one_sided_latency_ns"].is_f64());
    }

    #[test]
    fn scans_are_shown_with_the_entries_that_they_found() {
        let mut total = PhaseResult::default();
        for (entries, missed) in [(30, 0), (0, 1)] {
            let mut phase = PhaseResult::default();
            let scans = phase.kinds.entry(Kind::Scan).or_default();
            scans.record(Duration::from_micros(30));
            (scans.entries, scans.missed) = (entries, missed);
            phase.kinds.entry(Kind::Insert).or_default().record(Duration::from_micros(30));
            total.add(&phase);
        }
        let shown = total.to_json()["kinds"].clone();
        assert_eq!((&shown["scan"]["entries"], &shown["scan"]["missed"]), (&json!(30), &json!(1)));
        assert!(shown["insert"]["entries"].is_null(), "{shown}");
        assert!(total.to_table().contains("scans: 30 entries, 15.0 each"));
    }

    /// Reads that were refused before they were tried stand in no counter: they were said to be one-sided.
    #[test]
    fn searches_that_the_client_was_not_permitted_are_the_servers() {
        let one_sided = Some(OneSidedCounters { started: 2, fell_back: 2, ..OneSidedCounters::default() });
        let mut phase = PhaseResult { searches: 10, one_sided, ..PhaseResult::default() };
        (0..10).for_each(|_| phase.kinds.entry(Kind::Read).or_default().record(Duration::from_micros(30)));
        let shown = phase.to_json()["selector"].clone();
        let (server, one_sided) = (&shown["server"], &shown["one_sided"]);
        assert_eq!((server, one_sided, &shown["server_share"]), (&json!(10), &json!(0), &json!(1.0)));
        assert!(shown["server_latency_ns"].is_f64() && shown["one_sided_latency_ns"].is_null(), "{shown}");
        let table = phase.to_table();
        assert!(table.contains("one-sided: no search, the servers answered them all"), "{table}");
    }

    #[test]
    fn selector_that_decided_nothing_has_no_share() {
        let phase = PhaseResult { selectors: vec![SelectorReport::default()], ..PhaseResult::default() };
        assert!(phase.to_json()["selector"]["server_share"].is_null());
        assert!(phase.to_table().contains("selector: ? server-side (0 server"), "{}", phase.to_table());
    }

    /// Gets of read-modify-writes were left out where the client had no choice.
    #[test]
    fn searches_are_counted_of_every_kind_of_operation() {
        let mut total = PhaseResult::default();
        for searches in [3, 4] {
            let mut phase = PhaseResult { searches, ..PhaseResult::default() };
            phase.kinds.entry(Kind::ReadModifyWrite).or_default().record(Duration::from_micros(30));
            total.add(&phase);
        }
        let shown = total.to_json()["selector"].clone();
        assert_eq!((&shown["server"], shown["server_latency_ns"].is_null()), (&json!(7), true), "{shown}");
    }
}
