//! What a node did over the last minutes and hours, one figure a name and step: each second for ten minutes,
//! each ten seconds for six hours. A pure core: it is shown a snapshot with the time, once a second.

use std::collections::VecDeque;
use std::sync::Arc;

use cell_node::{LatencySummary, NodeSnapshot};

use crate::rates::{Rates, share};

/// How the figures of several nodes, or of several seconds, become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// Of nodes their sum, of seconds their mean.
    Sum,
    /// The largest: times of several nodes have no common percentile.
    Largest,
    /// [`SEARCHES_ONE_SIDED`] as a part of it and [`SEARCHES_SERVER`].
    OneSidedShare,
}

/// A figure that is kept.
#[derive(Debug)]
pub(crate) struct SeriesKind {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) together: Together,
    of: fn(&NodeSnapshot, &Rates) -> Option<f64>,
}

pub(crate) const SEARCHES_SERVER: &str = "searches_server";
pub(crate) const SEARCHES_ONE_SIDED: &str = "searches_one_sided";

macro_rules! kinds {
    ($($name:expr, $unit:literal, $together:ident, $of:expr;)+) => {
        /// All that are kept.
        pub(crate) static KINDS: [SeriesKind; [$($name),+].len()] =
            [$(SeriesKind { name: $name, unit: $unit, together: Together::$together, of: $of }),+];
    };
}

kinds! {
    "ops_get", "1/s", Sum, |_, rates| Some(rates.operations[0]);
    "ops_search", "1/s", Sum, |_, rates| Some(rates.operations[1]);
    "ops_put", "1/s", Sum, |_, rates| Some(rates.operations[2]);
    "ops_delete", "1/s", Sum, |_, rates| Some(rates.operations[3]);
    "ops_scan", "1/s", Sum, |_, rates| Some(rates.operations[4]);
    "latency_get_p50_us", "us", Largest, |node, _| micros(&node.latencies.get, |of| of.p50_ns);
    "latency_get_p99_us", "us", Largest, |node, _| micros(&node.latencies.get, |of| of.p99_ns);
    "latency_put_p50_us", "us", Largest, |node, _| micros(&node.latencies.put, |of| of.p50_ns);
    "latency_put_p99_us", "us", Largest, |node, _| micros(&node.latencies.put, |of| of.p99_ns);
    "queue_estimate_us", "us", Largest, |node, _| queue_estimate_us(node);
    SEARCHES_SERVER, "1/s", Sum, |_, rates| Some(rates.searches[0]);
    SEARCHES_ONE_SIDED, "1/s", Sum, |_, rates| Some(rates.searches[1]);
    "one_sided_share", "share", OneSidedShare, |_, Rates { searches: [server, one_sided], .. }| {
        share(*one_sided, server + one_sided)
    };
    "retries", "1/s", Sum, |_, rates| Some(rates.retries);
    "log_bytes", "B/s", Sum, |_, rates| Some(rates.pairs.values().map(|pair| pair.bytes).sum());
    "log_batches", "1/s", Sum, |_, rates| Some(rates.pairs.values().map(|pair| pair.batches).sum());
    "log_lag_bytes", "bytes", Sum, |node, _| sum(node, |pair| pair.log_bytes_pending);
    "sync_p50_us", "us", Largest, |node, _| sync_us(node, 0);
    "sync_p99_us", "us", Largest, |node, _| sync_us(node, 1);
    "sync_max_us", "us", Largest, |node, _| sync_us(node, 2);
    "replies_held", "", Sum, |node, _| sum(node, |pair| pair.replies_held);
    "connections", "", Sum, |node, _| Some(node.connections as f64);
    "cpu_cores_used", "", Sum, |_, rates| rates.cpu_cores_used;
    "memory_used_bytes", "bytes", Sum, |node, _| {
        Some(node.memory.limit.saturating_sub(node.memory.available) as f64)
    };
    "entries", "", Sum, |node, _| sum(node, |pair| pair.entries);
    "tree_nodes", "", Sum, |node, _| sum(node, |pair| pair.tree_nodes);
    "extent_live_bytes", "bytes", Sum, |node, _| sum(node, |pair| pair.extent_live_bytes);
    "splits_finished", "1/s", Sum, |_, rates| Some(rates.splits_finished);
}

fn micros(summary: &LatencySummary, of: fn(&LatencySummary) -> u64) -> Option<f64> {
    (summary.count > 0).then(|| of(summary) as f64 / 1e3)
}

/// How long a request waited for the worker; none if there was no request.
pub(crate) fn queue_estimate_us(node: &NodeSnapshot) -> Option<f64> {
    let known = &node.latencies;
    let kinds = [known.get, known.search, known.put, known.delete, known.scan];
    kinds.iter().any(|kind| kind.count > 0).then(|| known.queue_estimate_ns as f64 / 1e3)
}

fn sum(node: &NodeSnapshot, of: fn(&cell_node::PairSnapshot) -> u64) -> Option<f64> {
    Some(node.pairs.iter().map(of).sum::<u64>() as f64)
}

/// The slowest pair's; none if nothing was synced.
fn sync_us(node: &NodeSnapshot, at: usize) -> Option<f64> {
    let slowest = node.pairs.iter().map(|pair| pair.sync_us[at]).max()?;
    (slowest > 0).then_some(slowest as f64)
}

/// Figures of one step; NaN: not known.
type Row = [f32; KINDS.len()];
const UNKNOWN: Row = [f32::NAN; KINDS.len()];

/// Rows one step apart, the newest last.
#[derive(Debug)]
struct Ring {
    step_s: u64,
    rows_max: usize,
    /// The number of the newest row: seconds since 1970 by the step.
    newest: u64,
    rows: VecDeque<Row>,
}

impl Ring {
    fn new(step_s: u64, rows_max: usize) -> Ring {
        Ring { step_s, rows_max, newest: 0, rows: VecDeque::new() }
    }

    /// Rows that were left out before this one are not known.
    fn push(&mut self, number: u64, row: Row) {
        if self.rows.is_empty() {
            self.newest = number.saturating_sub(1);
        }
        let Some(steps @ 1..) = number.checked_sub(self.newest) else { return };
        for left_out in (0..steps.min(self.rows_max as u64)).rev() {
            if self.rows.len() == self.rows_max {
                self.rows.pop_front();
            }
            self.rows.push_back(if left_out == 0 { row } else { UNKNOWN });
        }
        self.newest = number;
    }

    fn figure(&self, number: u64, at: usize) -> Option<f64> {
        let back = usize::try_from(self.newest.checked_sub(number)?).ok()?;
        let index = self.rows.len().checked_sub(back + 1)?;
        let figure = self.rows[index][at];
        (!figure.is_nan()).then_some(f64::from(figure))
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct NodeHistory {
    last: Option<Arc<NodeSnapshot>>,
    rates: Rates,
    seconds: Ring,
    tens: Ring,
    /// Of the ten seconds that are not over.
    open: Vec<Row>,
}

/// Steps at which figures can be asked for, in seconds, and how many rows of each are kept.
pub(crate) const STEPS: [(u64, usize); 2] = [(1, 600), (10, 2_160)];

/// A look that comes this much later than the one before it still tells of the seconds between.
const COVERED_S: u64 = 3;

impl Default for NodeHistory {
    fn default() -> NodeHistory {
        let [seconds, tens] = STEPS.map(|(step_s, rows)| Ring::new(step_s, rows));
        NodeHistory { last: None, rates: Rates::default(), seconds, tens, open: Vec::new() }
    }
}

impl NodeHistory {
    /// What the node does now.
    pub(crate) fn rates(&self) -> &Rates {
        &self.rates
    }

    /// A look at the node.
    #[allow(clippy::cast_possible_truncation, reason = "a chart needs no more digits")]
    pub(crate) fn observe(&mut self, at_unix_ms: u64, snapshot: &Arc<NodeSnapshot>) {
        let second = at_unix_ms / 1_000;
        let before = self.last.replace(Arc::clone(snapshot));
        let Some(before) = before else { return };
        if before.uptime_ms != snapshot.uptime_ms {
            self.rates = Rates::between(&before, snapshot);
        }
        let figure = |kind: &SeriesKind| (kind.of)(snapshot, &self.rates).map_or(f32::NAN, |it| it as f32);
        let row: Row = std::array::from_fn(|at| figure(&KINDS[at]));
        let first = match second.saturating_sub(self.seconds.newest) {
            late @ 1..=COVERED_S if !self.seconds.rows.is_empty() => second + 1 - late,
            _ => second,
        };
        (first..=second).for_each(|second| self.push(second, row));
    }

    fn push(&mut self, second: u64, row: Row) {
        if second <= self.seconds.newest {
            return;
        }
        let ten = second / self.tens.step_s;
        if ten != self.seconds.newest / self.tens.step_s && !self.open.is_empty() {
            let over = std::mem::take(&mut self.open);
            self.tens.push(self.seconds.newest / self.tens.step_s, together(&over));
        }
        self.open.push(row);
        self.seconds.push(second, row);
    }

    /// The number of the newest step that is over, of steps of so many seconds; zero before there is one.
    #[cfg(test)]
    pub(crate) fn newest(&self, step_s: u64) -> u64 {
        self.ring(step_s).newest
    }

    /// A figure at a step, if it is known.
    pub(crate) fn figure(&self, step_s: u64, number: u64, kind: usize) -> Option<f64> {
        self.ring(step_s).figure(number, kind)
    }

    fn ring(&self, step_s: u64) -> &Ring {
        if step_s == self.tens.step_s { &self.tens } else { &self.seconds }
    }
}

/// One row of several seconds.
fn together(rows: &[Row]) -> Row {
    std::array::from_fn(|at| {
        let known = rows.iter().map(|row| row[at]).filter(|figure| !figure.is_nan());
        match KINDS[at].together {
            Together::Largest => known.fold(f32::NAN, f32::max),
            Together::Sum | Together::OneSidedShare => {
                let (count, sum) = known.fold((0.0, 0.0), |(count, sum), figure| (count + 1.0, sum + figure));
                if count > 0.0 { sum / count } else { f32::NAN }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::status::tests::snapshot;

    fn kind(name: &str) -> usize {
        KINDS.iter().position(|kind| kind.name == name).unwrap()
    }

    /// A node that serves `gets` a second, looked at once in each of so many seconds from 1,000 on.
    fn history(seconds: u64, gets: u64) -> NodeHistory {
        let mut history = NodeHistory::default();
        for second in 0..=seconds {
            let mut node = snapshot();
            node.uptime_ms = 5_000 + second * 1_000;
            node.operations.get = second * gets;
            history.observe((1_000 + second) * 1_000 + 3, &Arc::new(node));
        }
        history
    }

    #[test]
    fn figures_are_those_of_their_second() {
        let history = history(30, 70);
        let gets = kind("ops_get");
        assert_eq!(history.newest(1), 1_030);
        assert_eq!(history.figure(1, 1_030, gets), Some(70.0));
        assert_eq!(history.figure(1, 1_001, gets), Some(70.0));
        assert_eq!((history.figure(1, 1_000, gets), history.figure(1, 1_031, gets)), (None, None));
        assert_eq!(history.figure(1, 1_030, kind("latency_get_p50_us")), None);
        assert_eq!((history.newest(10), history.figure(10, 102, gets)), (102, Some(70.0)));
    }

    #[test]
    fn a_look_that_comes_late_tells_of_the_second_between_but_not_of_a_pause() {
        let mut history = history(10, 70);
        let mut node = snapshot();
        (node.uptime_ms, node.operations.get) = (17_000, 900);
        history.observe(1_012_000, &Arc::new(node.clone()));
        let gets = kind("ops_get");
        assert_eq!(history.figure(1, 1_011, gets), Some(100.0));
        assert_eq!(history.figure(1, 1_012, gets), Some(100.0));
        node.uptime_ms += 60_000;
        history.observe(1_072_000, &Arc::new(node));
        assert_eq!(history.figure(1, 1_072, gets), Some(0.0));
        assert_eq!(history.figure(1, 1_050, gets), None);
    }

    #[test]
    fn the_rings_keep_ten_minutes_and_no_more() {
        let history = history(700, 10);
        let gets = kind("ops_get");
        assert_eq!(history.figure(1, 1_700, gets), Some(10.0));
        assert_eq!(history.figure(1, 1_101, gets), Some(10.0));
        assert_eq!(history.figure(1, 1_100, gets), None);
        assert_eq!(history.figure(10, 110, gets), Some(10.0));
    }
}
