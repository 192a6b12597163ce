//! What a node did over the last minutes and hours, one figure a name and step: each second for ten minutes,
//! each ten seconds and each minute for six hours. A pure core: it is shown a snapshot with the time, once a
//! second.
//!
//! Rows are numbered by a clock that is never set, so that a change of the wall clock neither stops nor
//! overwrites them. Whoever asks names steps by the wall clock as it is now.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use cell_cluster::MemberRow;
use cell_node::{LatencyHistogram, NodeSnapshot, NodeState};
use cell_terms::NodeId;

use crate::clock::LookTime;
use crate::heat_history::{self, HeatHistory, HeatRows};
use crate::rates::{OPERATIONS, Rates, share};
use crate::sync_history::{SyncCounts, SyncHistory};

/// How the figures of several nodes, or of several seconds, become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// Of nodes their sum, of seconds their mean.
    Sum,
    /// The largest.
    Largest,
    /// What requests took: of nodes and of seconds the percentile of all their requests together.
    Latency {
        /// The operation's place in [`OPERATIONS`].
        operation: usize,
        /// Which percentile, by 1,000; that of 1,000 is the longest.
        per_thousand: u64,
    },
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

/// A figure that is known of each step of which anything is.
pub(crate) const ALWAYS_KNOWN: &str = "ops_get";
pub(crate) const SEARCHES_SERVER: &str = "searches_server";
pub(crate) const SEARCHES_ONE_SIDED: &str = "searches_one_sided";

macro_rules! kinds {
    (
        latencies: $($latency:literal, $operation:literal, $per_thousand:literal;)+
        others: $($name:expr, $unit:literal, $together:ident, $of:expr;)+
    ) => {
        /// All that are kept.
        pub(crate) static KINDS: [SeriesKind; [$($latency,)+ $($name),+].len()] = [
            $(SeriesKind {
                name: $latency,
                unit: "us",
                together: Together::Latency { operation: $operation, per_thousand: $per_thousand },
                of: |node, _| {
                    let times = &node.latency_histograms.last_second[$operation];
                    times.percentile_ns($per_thousand).map(micros)
                },
            },)+
            $(SeriesKind { name: $name, unit: $unit, together: Together::$together, of: $of }),+
        ];
    };
}

kinds! {
    latencies:
    "latency_get_p50_us", 0, 500;
    "latency_get_p99_us", 0, 990;
    "latency_get_p999_us", 0, 999;
    "latency_get_max_us", 0, 1000;
    "latency_search_p50_us", 1, 500;
    "latency_search_p99_us", 1, 990;
    "latency_search_p999_us", 1, 999;
    "latency_search_max_us", 1, 1000;
    "latency_put_p50_us", 2, 500;
    "latency_put_p99_us", 2, 990;
    "latency_put_p999_us", 2, 999;
    "latency_put_max_us", 2, 1000;
    "latency_delete_p50_us", 3, 500;
    "latency_delete_p99_us", 3, 990;
    "latency_delete_p999_us", 3, 999;
    "latency_delete_max_us", 3, 1000;
    "latency_scan_p50_us", 4, 500;
    "latency_scan_p99_us", 4, 990;
    "latency_scan_p999_us", 4, 999;
    "latency_scan_max_us", 4, 1000;
    others:
    ALWAYS_KNOWN, "1/s", Sum, |_, rates| Some(rates.operations[0]);
    "ops_search", "1/s", Sum, |_, rates| Some(rates.operations[1]);
    "ops_put", "1/s", Sum, |_, rates| Some(rates.operations[2]);
    "ops_delete", "1/s", Sum, |_, rates| Some(rates.operations[3]);
    "ops_scan", "1/s", Sum, |_, rates| Some(rates.operations[4]);
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
    "entries", "", Sum, |node, _| held(node, |pair| pair.entries);
    "tree_nodes", "", Sum, |node, _| held(node, |pair| pair.tree_nodes);
    "extent_live_bytes", "bytes", Sum, |node, _| held(node, |pair| pair.extent_live_bytes);
    "splits_finished", "1/s", Sum, |_, rates| Some(rates.splits_finished);
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
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

/// What a node's pairs hold.
fn held(node: &NodeSnapshot, of: fn(&cell_node::PairSnapshot) -> u64) -> Option<f64> {
    if has_pairs(node) { sum(node, of) } else { None }
}

/// Whether what a node's pairs hold is known: not before it has them, nor once it has failed.
fn has_pairs(node: &NodeSnapshot) -> bool {
    !matches!(node.state, NodeState::Starting(_) | NodeState::Recovering(_) | NodeState::Failed(_))
}

/// How many entries a node's pairs hold, where that is known.
pub(crate) fn entries(node: &NodeSnapshot) -> Option<u64> {
    has_pairs(node).then(|| node.pairs.iter().map(|pair| pair.entries).sum())
}

/// The slowest pair's; none if nothing was synced.
fn sync_us(node: &NodeSnapshot, at: usize) -> Option<f64> {
    let slowest = node.pairs.iter().map(|pair| pair.sync_us[at]).max()?;
    (slowest > 0).then_some(slowest as f64)
}

/// What requests took, by operation.
pub(crate) type Times = [LatencyHistogram; OPERATIONS.len()];

/// One step.
#[derive(Clone, Debug)]
struct Row {
    /// NaN: not known.
    figures: [f32; KINDS.len()],
    /// None: not known, or no requests.
    times: Option<Arc<Times>>,
    /// Who was a member by the node's look; none if the step is not known, or the node had not seen its
    /// cluster yet: whatever it did then was not what all did.
    members: Option<Arc<[NodeId]>>,
}

const UNKNOWN: Row = Row { figures: [f32::NAN; KINDS.len()], times: None, members: None };

/// Rows one step apart, the newest last.
#[derive(Debug)]
struct Ring {
    step_s: u64,
    rows_max: usize,
    /// The number of the newest row: seconds by the step, see [`NodeHistory::second`].
    newest: u64,
    rows: VecDeque<Row>,
}

impl Ring {
    fn new(step_s: u64, rows_max: usize) -> Ring {
        Ring { step_s, rows_max, newest: 0, rows: VecDeque::new() }
    }

    /// Rows that were left out before this one are not known.
    fn push(&mut self, number: u64, row: &Row) {
        if self.rows.is_empty() {
            self.newest = number.saturating_sub(1);
        }
        let Some(steps @ 1..) = number.checked_sub(self.newest) else { return };
        for left_out in (0..steps.min(self.rows_max as u64)).rev() {
            if self.rows.len() == self.rows_max {
                self.rows.pop_front();
            }
            self.rows.push_back(if left_out == 0 { row.clone() } else { UNKNOWN });
        }
        self.newest = number;
    }

    fn row(&self, number: u64) -> Option<&Row> {
        let back = usize::try_from(self.newest.checked_sub(number)?).ok()?;
        self.rows.get(self.rows.len().checked_sub(back + 1)?)
    }
}

/// Rows of several seconds each.
#[derive(Debug)]
struct LongerSteps {
    ring: Ring,
    /// The seconds of the step that is not over.
    open: Vec<Row>,
}

impl LongerSteps {
    /// A second's row; `newest` is the second before it.
    fn push(&mut self, newest: u64, second: u64, row: &Row) {
        let step = newest / self.ring.step_s;
        if second / self.ring.step_s != step && !self.open.is_empty() {
            self.ring.push(step, &together(&std::mem::take(&mut self.open)));
        }
        self.open.push(row.clone());
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct NodeHistory {
    last: Option<Arc<NodeSnapshot>>,
    /// The first look: rows are numbered from it on.
    first: Option<LookTime>,
    /// When the node's uptime last moved on, by the clock that is never set.
    moved_ms: u64,
    /// Seconds by which the wall clock is ahead of the numbers of rows.
    wall_ahead_s: i64,
    rates: Rates,
    seconds: Ring,
    longer: [LongerSteps; 2],
    syncs: SyncHistory,
    heat: HeatHistory,
}

/// Steps at which figures can be asked for, in seconds, and how many rows of each are kept. Six hours by
/// minutes are as many columns as a chart has; by ten seconds they are too much for one answer to a browser.
pub(crate) const STEPS: [(u64, usize); 3] = [(1, 600), (10, 2_160), (60, 360)];

/// A look that comes this much later than the one before it still covers the seconds between.
const COVERED_S: u64 = 3;

/// Once the node's uptime stands still for so long, nothing is known of what it does now.
const STILL_MS: u64 = 2_000;

impl Default for NodeHistory {
    fn default() -> NodeHistory {
        let [seconds, tens, minutes] = STEPS.map(|(step_s, rows)| Ring::new(step_s, rows));
        NodeHistory {
            last: None,
            first: None,
            moved_ms: 0,
            wall_ahead_s: 0,
            rates: Rates::default(),
            seconds,
            longer: [tens, minutes].map(|ring| LongerSteps { ring, open: Vec::new() }),
            syncs: SyncHistory::default(),
            heat: HeatHistory::default(),
        }
    }
}

impl NodeHistory {
    /// What the node does now.
    pub(crate) fn rates(&self) -> &Rates {
        &self.rates
    }

    /// A look at the node.
    pub(crate) fn observe(&mut self, at: LookTime, snapshot: &Arc<NodeSnapshot>) {
        let second = self.second(at);
        let before = self.last.replace(Arc::clone(snapshot));
        let Some(before) = before else {
            self.moved_ms = at.boottime_ms;
            return;
        };
        if before.uptime_ms != snapshot.uptime_ms {
            self.moved_ms = at.boottime_ms;
            self.rates = Rates::between(&before, snapshot);
            self.syncs.observe(second, &before, snapshot);
            // Before it has its pairs, that it shows no tree says nothing.
            if has_pairs(snapshot) {
                self.heat.observe(second, &snapshot.tree);
            }
        }
        if at.boottime_ms.saturating_sub(self.moved_ms) >= STILL_MS {
            self.rates = Rates::default();
        }
        if !self.rates.is_known {
            return self.push(second, &UNKNOWN);
        }
        let row = self.row_of(snapshot);
        let first = match second.saturating_sub(self.seconds.newest) {
            late @ 1..=COVERED_S if !self.seconds.rows.is_empty() => second + 1 - late,
            _ => second,
        };
        (first..=second).for_each(|second| self.push(second, &row));
    }

    /// A look's figures, at the rates of now.
    #[allow(clippy::cast_possible_truncation, reason = "a chart needs no more digits")]
    fn row_of(&self, snapshot: &NodeSnapshot) -> Row {
        let figure = |kind: &SeriesKind| (kind.of)(snapshot, &self.rates).map_or(f32::NAN, |it| it as f32);
        let times = &snapshot.latency_histograms.last_second;
        let times = times.iter().any(|of| of.count() > 0).then(|| Arc::new(times.clone()));
        let cluster = &snapshot.cluster;
        let members = || MemberRow::present_rows(&cluster.members).map(|member| member.node).collect();
        let members = (!cluster.is_unseen()).then(members);
        Row { figures: std::array::from_fn(|at| figure(&KINDS[at])), times, members }
    }

    /// All rows up to now, as if the node had always done about what it did between these two looks.
    #[cfg(test)]
    pub(crate) fn fill(&mut self, at: LookTime, [before, now]: [&Arc<NodeSnapshot>; 2]) {
        let second = self.second(at);
        (self.moved_ms, self.last) = (at.boottime_ms, Some(Arc::clone(now)));
        self.rates = Rates::between(before, now);
        let row = self.row_of(now);
        for number in second - 6 * 3_600..second {
            let mut row = row.clone();
            row.figures.iter_mut().for_each(|figure| *figure *= 1.0 + (number % 997) as f32 / 9_973.0);
            self.push(number, &row);
            self.syncs.observe(number, before, now);
            if number % heat_history::STEP_S == 0 {
                self.heat.observe(number, &now.tree);
            }
        }
    }

    /// The number of a look's second: what the wall clock would show had nobody set it since the first look.
    #[allow(clippy::cast_possible_wrap, reason = "milliseconds since 1970, and differences of them")]
    fn second(&mut self, at: LookTime) -> u64 {
        let first = *self.first.get_or_insert(at);
        let number_ms = first.unix_ms + at.boottime_ms.saturating_sub(first.boottime_ms);
        let ahead_ms = at.unix_ms as i64 - number_ms as i64;
        self.wall_ahead_s = (ahead_ms + 500).div_euclid(1_000);
        number_ms / 1_000
    }

    fn push(&mut self, second: u64, row: &Row) {
        if second <= self.seconds.newest {
            return;
        }
        for steps in &mut self.longer {
            steps.push(self.seconds.newest, second, row);
        }
        self.seconds.push(second, row);
    }

    /// The number of the newest step that is over, of steps of so many seconds; zero before there is one.
    #[cfg(test)]
    pub(crate) fn newest(&self, step_s: u64) -> u64 {
        self.ring(step_s).newest
    }

    /// A figure at a step, if it is known. The step's number is the wall clock's, by seconds of the step.
    pub(crate) fn figure(&self, step_s: u64, number: u64, kind: usize) -> Option<f64> {
        let figure = self.row(step_s, number)?.figures[kind];
        (!figure.is_nan()).then_some(f64::from(figure))
    }

    /// What requests of an operation took at a step, if there were any.
    pub(crate) fn times(&self, step_s: u64, number: u64, operation: usize) -> Option<&LatencyHistogram> {
        let times = &self.row(step_s, number)?.times.as_ref()?[operation];
        (times.count() > 0).then_some(times)
    }

    /// Who was a member at a step, by this node's looks; none if it does not know of that step, or did not
    /// know its cluster in it.
    pub(crate) fn members(&self, step_s: u64, number: u64) -> Option<&[NodeId]> {
        self.row(step_s, number)?.members.as_deref()
    }

    /// How long syncs took, with the seconds since 1970, oldest first.
    pub(crate) fn syncs(&self) -> impl Iterator<Item = (u64, &SyncCounts)> {
        let rows = self.syncs.rows();
        rows.map(|(second, row)| (second.saturating_add_signed(self.wall_ahead_s), row))
    }

    /// Writes and reads by ranges of keys, of so many steps up to `last`. A step is of ten seconds, or of a
    /// multiple of them.
    pub(crate) fn heat(&self, step_s: u64, last: u64, steps: u64) -> HeatRows {
        let ahead = self.wall_ahead_s.div_euclid(heat_history::STEP_S.cast_signed());
        self.heat.rows(ahead, step_s / heat_history::STEP_S, last, steps)
    }

    fn row(&self, step_s: u64, number: u64) -> Option<&Row> {
        let ahead = self.wall_ahead_s.div_euclid(i64::try_from(step_s).ok()?);
        self.ring(step_s).row(number.checked_add_signed(-ahead)?)
    }

    fn ring(&self, step_s: u64) -> &Ring {
        let longer = self.longer.iter().map(|steps| &steps.ring).find(|ring| ring.step_s == step_s);
        longer.unwrap_or(&self.seconds)
    }
}

/// One row of several seconds.
#[allow(clippy::cast_possible_truncation, reason = "a chart needs no more digits")]
fn together(rows: &[Row]) -> Row {
    let mut times = Times::default();
    for row in rows.iter().filter_map(|row| row.times.as_ref()) {
        times.iter_mut().zip(row.iter()).for_each(|(all, of)| all.add(of));
    }
    let figures = std::array::from_fn(|at| {
        let known = rows.iter().map(|row| row.figures[at]).filter(|figure| !figure.is_nan());
        match KINDS[at].together {
            Together::Largest => known.fold(f32::NAN, f32::max),
            Together::Latency { operation, per_thousand } => {
                times[operation].percentile_ns(per_thousand).map_or(f32::NAN, |ns| micros(ns) as f32)
            }
            Together::Sum | Together::OneSidedShare => {
                let (count, sum) = known.fold((0.0, 0.0), |(count, sum), figure| (count + 1.0, sum + figure));
                if count > 0.0 { sum / count } else { f32::NAN }
            }
        }
    });
    let is_known = times.iter().any(|of| of.count() > 0);
    Row { figures, times: is_known.then(|| Arc::new(times)), members: members_of(rows) }
}

/// Who was a member in some of these seconds.
fn members_of(rows: &[Row]) -> Option<Arc<[NodeId]>> {
    let mut known = rows.iter().filter_map(|row| row.members.as_deref()).peekable();
    known.peek()?;
    let members: BTreeSet<NodeId> = known.flatten().copied().collect();
    Some(members.into_iter().collect())
}

/// What requests of an operation took at several nodes, or in several seconds, as one figure.
pub(crate) fn percentile_us<'a>(
    times: impl IntoIterator<Item = &'a LatencyHistogram>,
    per_thousand: u64,
) -> Option<f64> {
    let mut all = LatencyHistogram::default();
    times.into_iter().for_each(|of| all.add(of));
    all.percentile_ns(per_thousand).map(micros)
}

#[cfg(test)]
mod tests {
    use cell_node::{ClusterSnapshot, RecoveryProgress};

    use super::*;
    use crate::test_members::member;
    use crate::test_snapshot::snapshot;

    fn kind(name: &str) -> usize {
        KINDS.iter().position(|kind| kind.name == name).unwrap()
    }

    /// So many seconds since 1970, on a machine that was started then.
    fn at(second: u64) -> LookTime {
        LookTime { boottime_ms: second * 1_000 + 3, unix_ms: second * 1_000 + 3 }
    }

    /// A node that serves `gets` a second, looked at once in each of so many seconds from 1,000 on.
    fn history(seconds: u64, gets: u64) -> NodeHistory {
        let mut history = NodeHistory::default();
        for second in 0..=seconds {
            let mut node = snapshot();
            node.uptime_ms = 5_000 + second * 1_000;
            node.operations.get = second * gets;
            history.observe(at(1_000 + second), &Arc::new(node));
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
        assert_eq!(history.figure(60, 17, gets), None, "it is not over");
    }

    #[test]
    fn minutes_that_are_over_have_the_mean_of_their_seconds() {
        let history = history(90, 70);
        let gets = kind("ops_get");
        assert_eq!((history.newest(60), history.figure(60, 17, gets)), (17, Some(70.0)));
        assert_eq!(history.figure(60, 18, gets), None);
    }

    #[test]
    fn a_look_that_comes_late_covers_the_second_between_but_not_a_pause() {
        let mut history = history(10, 70);
        let mut node = snapshot();
        (node.uptime_ms, node.operations.get) = (17_000, 900);
        history.observe(at(1_012), &Arc::new(node.clone()));
        let gets = kind("ops_get");
        assert_eq!(history.figure(1, 1_011, gets), Some(100.0));
        assert_eq!(history.figure(1, 1_012, gets), Some(100.0));
        node.uptime_ms += 60_000;
        history.observe(at(1_072), &Arc::new(node));
        assert_eq!(history.figure(1, 1_072, gets), Some(0.0));
        assert_eq!(history.figure(1, 1_050, gets), None);
    }

    /// A worker that hung for a minute was once charted at the rate that it had before.
    #[test]
    fn an_uptime_that_stands_still_is_charted_as_unknown_after_two_seconds() {
        let mut history = history(10, 70);
        let mut node = snapshot();
        (node.uptime_ms, node.operations.get) = (15_000, 700);
        for second in 1_011..=1_070 {
            history.observe(at(second), &Arc::new(node.clone()));
        }
        let gets = kind("ops_get");
        assert_eq!(history.figure(1, 1_011, gets), Some(70.0), "a look may come between two snapshots");
        for second in 1_012..=1_070 {
            assert_eq!(history.figure(1, second, gets), None, "{second}");
        }
        assert_eq!(history.rates().operations_all(), 0.0);
        (node.uptime_ms, node.operations.get) = (76_000, 700 + 610);
        history.observe(at(1_071), &Arc::new(node));
        assert_eq!(history.figure(1, 1_071, gets), Some(10.0));
        assert_eq!(history.figure(1, 1_070, gets), None);
    }

    /// A node whose figures had not moved on since the first look was charted as one that does nothing.
    #[test]
    fn new_node_is_charted_from_its_first_rates_on() {
        let mut history = NodeHistory::default();
        let mut node = snapshot();
        history.observe(at(1_000), &Arc::new(node.clone()));
        history.observe(at(1_001), &Arc::new(node.clone()));
        let gets = kind("ops_get");
        assert_eq!((history.figure(1, 1_001, gets), history.members(1, 1_001)), (None, None));
        (node.uptime_ms, node.operations.get) = (node.uptime_ms + 2_000, node.operations.get + 60);
        history.observe(at(1_002), &Arc::new(node));
        assert_eq!(history.figure(1, 1_002, gets), Some(30.0));
        for second in [0, 999, 1_000, 1_001, 1_003] {
            assert_eq!(history.figure(1, second, gets), None, "{second}");
        }
        for step_s in [10, 60] {
            assert_eq!(history.figure(step_s, 1_000 / step_s - 1, gets), None, "{step_s}");
        }
    }

    /// What a node did before it had seen its cluster passed for what all did.
    #[test]
    fn members_are_not_known_before_the_node_has_seen_its_cluster() {
        let mut history = NodeHistory::default();
        for second in 0..=4 {
            let mut node = snapshot();
            node.uptime_ms = 5_000 + second * 1_000;
            let members = if second < 3 { Vec::new() } else { vec![member(3)] };
            node.cluster = Arc::new(ClusterSnapshot { members, ..ClusterSnapshot::default() });
            history.observe(at(1_000 + second), &Arc::new(node));
        }
        let gets = kind(ALWAYS_KNOWN);
        assert_eq!((history.figure(1, 1_002, gets), history.members(1, 1_002)), (Some(0.0), None));
        assert_eq!(history.members(1, 1_003), Some(&[NodeId(3)][..]));
    }

    /// A node that was started again was charted as one that has lost its entries.
    #[test]
    fn entries_of_a_node_that_recovers_are_not_known() {
        let mut history = NodeHistory::default();
        for second in 0..=3 {
            let mut node = snapshot();
            node.uptime_ms = 5_000 + second * 1_000;
            if second < 3 {
                (node.state, node.pairs) = (NodeState::Recovering(RecoveryProgress::default()), Vec::new());
            }
            history.observe(at(1_000 + second), &Arc::new(node));
        }
        for name in ["entries", "tree_nodes", "extent_live_bytes"] {
            assert_eq!(history.figure(1, 1_002, kind(name)), None, "{name}");
            assert!(history.figure(1, 1_003, kind(name)).is_some(), "{name}");
        }
        assert_eq!(history.figure(1, 1_002, kind("ops_get")), Some(0.0), "it serves nothing");
    }

    /// Rows were once numbered by the wall clock: set back by an hour, it stopped all charts for an hour.
    #[test]
    fn a_wall_clock_that_is_set_moves_the_times_and_stops_nothing() {
        for (ahead, now) in [(-3_600_i64, 6_425_u64), (3_600, 13_625)] {
            let mut history = NodeHistory::default();
            for second in 0..=25 {
                let mut node = snapshot();
                (node.uptime_ms, node.operations.get) = (5_000 + second * 1_000, second * 10);
                let wall = if second < 20 { 0 } else { ahead };
                let unix_ms = (10_000 + second).checked_add_signed(wall).unwrap() * 1_000;
                history.observe(LookTime { boottime_ms: second * 1_000, unix_ms }, &Arc::new(node));
            }
            let gets = kind("ops_get");
            for back in 0..25 {
                assert_eq!(history.figure(1, now - back, gets), Some(10.0), "{ahead} {back}");
            }
            assert_eq!(history.figure(10, now / 10 - 1, gets), Some(10.0), "{ahead}");
            assert_eq!(history.figure(1, now + 1, gets), None);
        }
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

    #[test]
    fn members_of_ten_seconds_are_those_of_any_of_them() {
        let mut history = NodeHistory::default();
        for second in 0..=20 {
            let mut node = snapshot();
            node.uptime_ms = 5_000 + second * 1_000;
            let numbers: &[u32] = if second < 5 { &[1, 2] } else { &[1, 3] };
            let members = numbers.iter().copied().map(member).collect();
            node.cluster = Arc::new(ClusterSnapshot { members, ..ClusterSnapshot::default() });
            history.observe(at(1_000 + second), &Arc::new(node));
        }
        let members = |step, number| history.members(step, number).map(<[NodeId]>::to_vec);
        let nodes = |numbers: &[u32]| Some(numbers.iter().copied().map(NodeId).collect::<Vec<_>>());
        assert_eq!((members(1, 1_004), members(1, 1_005)), (nodes(&[1, 2]), nodes(&[1, 3])));
        assert_eq!((members(10, 100), members(10, 101)), (nodes(&[1, 2, 3]), nodes(&[1, 3])));
        assert_eq!((members(1, 999), members(10, 99)), (None, None));
        assert!(history.figure(10, 100, kind(ALWAYS_KNOWN)).is_some());
    }

    /// A histogram of one time, counted so often.
    fn times(bucket: u8, count: u64) -> LatencyHistogram {
        let text =
            format!("{{\"buckets\": [[{bucket}, {count}]], \"sum_ns\": 1, \"max_ns\": {}}}", u64::MAX >> 1);
        serde_json::from_str(&text).unwrap()
    }

    /// The p50 of ten seconds was once the largest of ten p50s.
    #[test]
    fn percentile_of_ten_seconds_is_that_of_all_their_requests() {
        let mut history = NodeHistory::default();
        for second in 0..=20 {
            let mut node = snapshot();
            node.uptime_ms = 5_000 + second * 1_000;
            let mut histograms = cell_node::OperationHistograms::default();
            histograms.last_second[0] = if second == 13 { times(80, 1) } else { times(20, 1_000) };
            node.latency_histograms = Arc::new(histograms);
            history.observe(at(1_000 + second), &Arc::new(node));
        }
        let p50 = |step, number| history.figure(step, number, kind("latency_get_p50_us")).unwrap();
        assert!(p50(1, 1_013) > 1_000.0 * p50(1, 1_012));
        assert!((p50(10, 101) - p50(1, 1_012)).abs() < 1.0, "{} {}", p50(10, 101), p50(1, 1_012));
        assert!(history.figure(10, 101, kind("latency_get_max_us")).unwrap() >= p50(1, 1_013));
        assert_eq!(history.figure(10, 101, kind("latency_scan_p50_us")), None);
        assert_eq!(history.times(10, 101, 0).unwrap().count(), 9_001);
    }
}
