//! What a node does a second: its counters over the time between two of its snapshots.

use std::collections::BTreeMap;

use cell_node::{ClientCounts, NodeSnapshot, OperationCounts};
use cell_terms::PairId;

/// Rates of a node; none of them known before two snapshots were seen, or while its figures stand still.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// If not, the others are zero and mean nothing: see [`Rates::known`].
    pub(crate) is_known: bool,
    /// Operations a second, by the names that [`OPERATIONS`] has.
    pub(crate) operations: [f64; OPERATIONS.len()],
    /// Processors that the process keeps busy.
    pub(crate) cpu_cores_used: Option<f64>,
    /// Searches a second that clients report: answered by the server, and by their own reads.
    pub(crate) searches: [f64; 2],
    /// What clients tried again, a second.
    pub(crate) retries: f64,
    pub(crate) splits_finished: f64,
    pub(crate) pairs: BTreeMap<PairId, PairRates>,
}

/// What a pair's logs do a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PairRates {
    pub(crate) batches: f64,
    pub(crate) bytes: f64,
}

/// The kinds of operations, in the order of [`Rates::operations`].
pub(crate) const OPERATIONS: [&str; 5] = ["get", "search", "put", "delete", "scan"];

fn operation_counts(counts: &OperationCounts) -> [u64; OPERATIONS.len()] {
    [counts.get, counts.search, counts.put, counts.delete, counts.scan]
}

impl Rates {
    /// A figure of the last second, if anything is known of that.
    pub(crate) fn known<T>(&self, figure: T) -> Option<T> {
        self.is_known.then_some(figure)
    }

    /// Operations a second, of all kinds.
    pub(crate) fn operations_all(&self) -> f64 {
        self.operations.iter().sum()
    }

    /// Between two snapshots of one process, the second one later.
    pub(crate) fn between(before: &NodeSnapshot, after: &NodeSnapshot) -> Rates {
        let seconds = after.uptime_ms.saturating_sub(before.uptime_ms) as f64 / 1e3;
        let rate = |before: u64, after: u64| {
            if seconds > 0.0 { after.saturating_sub(before) as f64 / seconds } else { 0.0 }
        };
        let (then, now) = (operation_counts(&before.operations), operation_counts(&after.operations));
        let clients = after.client_totals.counts.since(&before.client_totals.counts);
        let ClientCounts { server, one_sided, torn, stale, fence, slow, watermark, trust, other, .. } =
            clients;
        let retries = [torn, stale, fence, slow, watermark, trust, other].iter().sum();
        let pair = |pair: &cell_node::PairSnapshot| {
            // A pair that has just been taken over counts from its own beginning.
            let then = before.pairs.iter().find(|then| then.pair == pair.pair && then.epoch == pair.epoch);
            let (batches, bytes) = then.map_or((0, 0), |then| (then.batches, then.log_bytes));
            let rates =
                PairRates { batches: rate(batches, pair.batches), bytes: rate(bytes, pair.log_bytes) };
            (pair.pair, rates)
        };
        Rates {
            is_known: seconds > 0.0,
            operations: std::array::from_fn(|at| rate(then[at], now[at])),
            cpu_cores_used: (seconds > 0.0).then(|| rate(before.cpu_ns[0], after.cpu_ns[0]) / 1e9),
            searches: [rate(0, server), rate(0, one_sided)],
            retries: rate(0, retries),
            splits_finished: rate(before.splits.finished, after.splits.finished),
            pairs: after.pairs.iter().map(pair).collect(),
        }
    }
}

/// A part of a whole that there is.
pub(crate) fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// How full something is, in thousandths.
pub(crate) fn fill(used: u64, all: u64) -> f64 {
    (used as f64 / all.max(1) as f64 * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_snapshot::snapshot;

    #[test]
    fn between_counts_over_the_node_s_own_time() {
        let before = snapshot();
        let mut after = snapshot();
        after.uptime_ms += 2_000;
        after.operations.get += 500;
        after.cpu_ns[0] += 1_000_000_000;
        after.client_totals.counts.one_sided = 40;
        after.client_totals.counts.torn = 6;
        after.pairs[0].log_bytes = 8_192;
        let rates = Rates::between(&before, &after);
        assert_eq!((rates.operations[0], rates.known(rates.operations_all())), (250.0, Some(250.0)));
        assert_eq!((rates.cpu_cores_used, rates.searches, rates.retries), (Some(0.5), [0.0, 20.0], 3.0));
        assert_eq!(rates.pairs[&PairId(1)].bytes, 4_096.0);
    }

    #[test]
    fn between_a_snapshot_and_itself_is_nothing() {
        let rates = Rates::between(&snapshot(), &snapshot());
        assert_eq!((rates.known(rates.operations_all()), rates.cpu_cores_used), (None, None));
    }
}
