//! `GET /api/v1/cluster/status`: the cluster in one document, with one sentence that says how it is.

use std::collections::BTreeSet;

use cell_cluster::{PairRow, Trouble};
use cell_node::{LatencyHistogram, NO_ROOM, NodeSnapshot, SplitCounts};
use serde::{Deserialize, Serialize};

use crate::api::gathered::ClusterDocument;
use crate::api::nodes::{self, NodeRow};
use crate::api::recoveries::{self, RecoveryRow};
use crate::api::served::{self, NodeReport, NodeReports, NotServed, Standing};
use crate::api::verdict::{self, Survivable, Unserved, Verdict};
use crate::api::wal::SyncTimes;
use crate::clock::now_boottime_ms;
use crate::event_log::{self, Event};
use crate::history::{Times, percentile_us};
use crate::known_nodes::AbsentNode;
use crate::missing_pairs::MissingPairs;
use crate::peers::{MissingPeer, NodePart};
use crate::rates::{OPERATIONS, share};
use crate::shared::Shared;

/// Events in the document.
const EVENTS_SHOWN: usize = 10;

/// One kind of operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OperationRow {
    operation: String,
    /// Null: nothing is known of the last second.
    per_second: Option<f64>,
    /// At the server, in the last second, of the requests of all nodes. Null if there was none.
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
    max_us: Option<f64>,
}

/// Searches a second, as clients report them. Null: nothing is known of the last second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Searches {
    server_per_second: Option<f64>,
    one_sided_per_second: Option<f64>,
    one_sided_share: Option<f64>,
}

/// What is not durable yet, and how long syncs take: of all pairs together, times of the slowest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LogFigures {
    lag_bytes: u64,
    lag_csn: u64,
    sync_p50_us: Option<u64>,
    sync_p99_us: Option<u64>,
    sync_max_us: Option<u64>,
}

/// A count of splits since the nodes' starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Splits {
    begun: u64,
    finished: u64,
    aborted: u64,
    merged: u64,
    under_way: u64,
}

impl Splits {
    pub(crate) fn of(counts: &SplitCounts) -> Splits {
        let SplitCounts { begun, finished, aborted, merged, under_way, .. } = *counts;
        Splits { begun, finished, aborted, merged, under_way }
    }

    pub(crate) fn and(self, other: Splits) -> Splits {
        Splits {
            begun: self.begun + other.begun,
            finished: self.finished + other.finished,
            aborted: self.aborted + other.aborted,
            merged: self.merged + other.merged,
            under_way: self.under_way + other.under_way,
        }
    }
}

/// A node's part.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StatusPart {
    row: NodeRow,
    operations: Vec<OperationRow>,
    /// What requests took, in the order of [`OPERATIONS`].
    times: Vec<LatencyHistogram>,
    searches: Option<[f64; 2]>,
    log: LogFigures,
    splits: Splits,
    recoveries: Vec<RecoveryRow>,
    events: Vec<Event>,
    /// Pairs that it is to serve and does not have, as its own looks show. Earlier versions do not say it.
    #[serde(default)]
    own_missing_pairs: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct Pairs {
    all: usize,
    served: usize,
    /// Of the others, those that no node reports which answers, though the table calls them served.
    missing: usize,
    /// Those that are not known to be served, because their nodes did not answer.
    unknown: usize,
    unserved: Vec<Unserved>,
}

impl Pairs {
    fn of(all: usize, unserved: Vec<Unserved>, reports: &NodeReports<'_>) -> Pairs {
        let count = |of: fn(NotServed) -> bool| reports.not_served_rows().filter(|(_, why)| of(*why)).count();
        let (missing, unknown) = (count(NotServed::is_missing), count(NotServed::is_unanswered));
        Pairs { all, served: all - unserved.len(), missing, unknown, unserved }
    }
}

#[derive(Debug, Serialize)]
struct CoordinatorFigures {
    /// Null: nobody said.
    provider: Option<&'static str>,
    /// Where it is; of etcd each member.
    addresses: Vec<String>,
    reachable: bool,
    /// Of the node's last look, a decimal number.
    revision: String,
    seen_ms_ago: Option<u64>,
}

/// All together.
#[derive(Debug, Serialize)]
pub(crate) struct StatusBody {
    answered_by: u32,
    verdict: Verdict,
    faults_survivable: Survivable,
    nodes: Vec<NodeRow>,
    pairs: Pairs,
    operations: Vec<OperationRow>,
    searches: Searches,
    log: LogFigures,
    splits: Splits,
    recoveries: Vec<RecoveryRow>,
    coordinator: CoordinatorFigures,
    events: Vec<Event>,
    drills_allowed: bool,
    read_only: bool,
}

/// See the module's text.
pub(crate) struct ClusterStatus;

impl ClusterDocument for ClusterStatus {
    type Part = StatusPart;
    type Body = StatusBody;
    const PATH: &'static str = "/api/v1/cluster/status";
    const REPORTS_UNSEEN: bool = true; // its verdict does

    fn part(shared: &Shared, snapshot: &NodeSnapshot) -> StatusPart {
        let rates = shared.history().rates().clone();
        // The last second of a snapshot that stands still is long over.
        let times = rates.known(snapshot.latency_histograms.last_second.clone()).unwrap_or_default();
        let log = log(snapshot);
        StatusPart {
            row: nodes::own_row(shared, snapshot),
            operations: operations(&times, &rates.operations.map(|rate| rates.known(rate))),
            times: times.to_vec(),
            searches: rates.known(rates.searches),
            log: if rates.is_known { log } else { log.without_times() },
            splits: Splits::of(&snapshot.splits),
            recoveries: recoveries::under_way(snapshot),
            events: shared.events().iter().rev().take(EVENTS_SHOWN).cloned().collect(),
            own_missing_pairs: shared.own_missing_pairs().numbers(),
        }
    }

    fn body(
        shared: &Shared,
        snapshot: &NodeSnapshot,
        parts: Vec<NodePart<StatusPart>>,
        missing: &[MissingPeer],
    ) -> StatusBody {
        let coordinator = shared.coordinator_seen();
        let place = &shared.sources.coordinator_place;
        let coordinator = CoordinatorFigures {
            provider: Some(place.provider).filter(|provider| !provider.is_empty()),
            addresses: place.addresses.clone(),
            reachable: coordinator.reachable,
            revision: snapshot.cluster.revision.to_string(),
            seen_ms_ago: coordinator.seen_ms_ago,
        };
        let flags = (shared.drill_permission.is_given(), shared.is_read_only());
        let absent = nodes::absent_nodes(shared);
        let mut looks = shared.missing_pairs();
        let looks = (&mut *looks, now_boottime_ms());
        together(snapshot, parts, (missing, &absent), coordinator, flags, looks)
    }

    fn limit(body: &mut StatusBody, rows: usize) -> usize {
        body.recoveries.truncate(rows);
        body.pairs.unserved.truncate(rows);
        body.recoveries.len().max(body.pairs.unserved.len())
    }
}

fn together(
    snapshot: &NodeSnapshot,
    parts: Vec<NodePart<StatusPart>>,
    (missing, absent): (&[MissingPeer], &[AbsentNode]),
    coordinator: CoordinatorFigures,
    (drills_allowed, read_only): (bool, bool),
    (looks, at_ms): (&mut MissingPairs, u64),
) -> StatusBody {
    let (mut nodes, mut reports) = (Vec::new(), Vec::new());
    let (mut per_second, mut times) = ([None; OPERATIONS.len()], Times::default());
    let (mut log, mut splits, mut searches) = (LogFigures::default(), Splits::default(), [None, None]);
    let (mut recoveries, mut events) = (Vec::new(), Vec::new());
    for NodePart { part, .. } in parts {
        reports.push(report(&part));
        nodes.push(NodeRow { is_self: part.row.node == snapshot.node.0, ..part.row });
        for ((per_second, known), row) in per_second.iter_mut().zip(OPERATIONS).zip(part.operations) {
            *per_second = sum(*per_second, row.per_second.filter(|_| row.operation == known));
        }
        times.iter_mut().zip(&part.times).for_each(|(all, of)| all.add(of));
        log = log.and(&part.log);
        splits = splits.and(part.splits);
        searches = [0, 1].map(|path| sum(searches[path], part.searches.map(|of| of[path])));
        recoveries.extend(part.recoveries);
        events.push(part.events);
    }
    let mut events = event_log::merge(events);
    events.truncate(EVENTS_SHOWN);
    let troubles = troubles(snapshot, &recoveries);
    let reports = NodeReports::new(snapshot, reports).unanswered(missing).after(looks, at_ms);
    let unserved = with_not_served(&troubles, &reports);
    let troubles = with_missing(troubles, &reports);
    let pairs_all = snapshot.cluster.pairs.len();
    let nodes = nodes::with_absent(nodes, absent);
    let pairs = &snapshot.cluster.pairs;
    let declining = verdict::declining(&snapshot.cluster.incidents);
    let faults_survivable =
        verdict::survivable(&nodes, pairs, &unserved, missing, &declining, coordinator.reachable);
    let verdict =
        verdict::of(&nodes, pairs_all, &troubles, missing, &faults_survivable, coordinator.reachable);
    let [server_per_second, one_sided_per_second] = searches;
    let all = sum(server_per_second, one_sided_per_second);
    let one_sided_share = one_sided_per_second.zip(all).and_then(|(part, all)| share(part, all));
    StatusBody {
        answered_by: snapshot.node.0,
        verdict,
        faults_survivable,
        nodes,
        pairs: Pairs::of(pairs_all, unserved, &reports),
        operations: operations(&times, &per_second),
        searches: Searches { server_per_second, one_sided_per_second, one_sided_share },
        log,
        splits,
        recoveries,
        coordinator,
        events,
        drills_allowed,
        read_only,
    }
}

/// Of what is known.
fn sum(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(|sum, rate| sum + rate)
}

fn operations(times: &Times, rates: &[Option<f64>; OPERATIONS.len()]) -> Vec<OperationRow> {
    let row = |((operation, per_second), of): ((&&str, &Option<f64>), &LatencyHistogram)| OperationRow {
        operation: (*operation).to_owned(),
        per_second: *per_second,
        p50_us: percentile_us([of], 500),
        p99_us: percentile_us([of], 990),
        p999_us: percentile_us([of], 999),
        max_us: percentile_us([of], 1_000),
    };
    OPERATIONS.iter().zip(rates).zip(times).map(row).collect()
}

fn log(snapshot: &NodeSnapshot) -> LogFigures {
    let of_pair = |pair: &cell_node::PairSnapshot| {
        let SyncTimes { p50, p99, max } = SyncTimes::of(pair.sync_us);
        LogFigures {
            lag_bytes: pair.log_bytes_pending,
            lag_csn: pair.csn_appended.0.saturating_sub(pair.csn_durable.0),
            sync_p50_us: p50,
            sync_p99_us: p99,
            sync_max_us: max,
        }
    };
    snapshot.pairs.iter().map(of_pair).fold(LogFigures::default(), |sum, pair| sum.and(&pair))
}

impl LogFigures {
    /// Nothing is known of the last second.
    fn without_times(self) -> LogFigures {
        LogFigures { lag_bytes: self.lag_bytes, lag_csn: self.lag_csn, ..LogFigures::default() }
    }

    fn and(&self, other: &LogFigures) -> LogFigures {
        LogFigures {
            lag_bytes: self.lag_bytes + other.lag_bytes,
            lag_csn: self.lag_csn + other.lag_csn,
            sync_p50_us: self.sync_p50_us.max(other.sync_p50_us),
            sync_p99_us: self.sync_p99_us.max(other.sync_p99_us),
            sync_max_us: self.sync_max_us.max(other.sync_max_us),
        }
    }
}

/// What a node says of its pairs.
fn report(StatusPart { row, own_missing_pairs, .. }: &StatusPart) -> NodeReport {
    NodeReport {
        node: row.node,
        standing: Standing::of_word(&row.state),
        pairs: row.pairs.clone(),
        missing: own_missing_pairs.clone(),
    }
}

/// A pair that the table calls served.
fn unserved((row, why): (&PairRow, NotServed)) -> Unserved {
    Unserved { pair: row.pair.0, what: why.what(), next: why.next().to_owned(), passes: why.passes() }
}

/// Those, and pairs that the last look shows as served by nodes that answer nobody, have failed or do not
/// have them, or that are not known to be served.
fn with_not_served(troubles: &[Unserved], reports: &NodeReports<'_>) -> Vec<Unserved> {
    let troubled: BTreeSet<u32> = troubles.iter().map(|of| of.pair).collect();
    let others = reports.not_served_rows().filter(|(row, _)| !troubled.contains(&row.pair.0));
    let mut all: Vec<Unserved> = troubles.iter().cloned().chain(others.map(unserved)).collect();
    all.sort_by_key(|of| of.pair);
    all
}

/// Those, and pairs that are missing at nodes that answer, or that those have not recovered yet. Of the
/// others that are not served their nodes' states say more.
fn with_missing(troubles: Vec<Unserved>, reports: &NodeReports<'_>) -> Vec<Unserved> {
    let lacks = |why: &NotServed| matches!(why, NotServed::Missing { .. } | NotServed::Restarted { .. });
    let missing = reports.not_served_rows().filter(|(_, why)| lacks(why)).map(unserved);
    troubles.into_iter().chain(missing).collect()
}

/// Pairs that nobody serves, as the node's last look and the takeovers that are under way show them.
fn troubles(snapshot: &NodeSnapshot, recoveries: &[RecoveryRow]) -> Vec<Unserved> {
    let cluster = &snapshot.cluster;
    let lives = |owner| cluster.members.iter().any(|member| member.incarnation == owner);
    let troubles = cluster.pairs.iter().filter_map(|row| {
        let Trouble { what, next } = Trouble::of(row, lives, &cluster.incidents)?;
        let lacks_room = recoveries.iter().find_map(|recovery| recovery.lacks_room(row.pair.0));
        if let Some(node) = lacks_room.filter(|_| next.is_none()) {
            let what = format!("{what}, {NO_ROOM} of node {node}");
            let next = format!("Make room on the disk of node {node}: the takeover goes on by itself then.");
            return Some(Unserved { pair: row.pair.0, what, next, passes: false });
        }
        let passes = next.is_none();
        let next = next.unwrap_or(served::NEXT_WAIT.into()).into_owned();
        Some(Unserved { pair: row.pair.0, what, next, passes })
    });
    troubles.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cell_cluster::PairState;
    use cell_node::{ClusterSnapshot, FailureKind, NodeState, PairRecovery, RecoveryProgress};
    use cell_terms::{NodeId, PairId};

    use super::*;
    use crate::api::cluster;
    use crate::api::regions::tests::{pair_row, two_nodes};
    use crate::missing_pairs::lacking_at;
    use crate::rates::Rates;
    use crate::test_cluster::TestCluster;
    use crate::test_members::life;
    use crate::test_snapshot::snapshot;

    /// So many times of about 1 us for each of the bucket's doublings.
    fn times(bucket: u8, count: u64) -> LatencyHistogram {
        let text = format!(r#"{{"buckets": [[{bucket}, {count}]], "sum_ns": 1, "max_ns": 99000000000}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn part(node: u32, gets: Option<f64>, of_gets: LatencyHistogram, lag_bytes: u64) -> NodePart<StatusPart> {
        let snapshot = NodeSnapshot { node: NodeId(node), ..snapshot() };
        let mut all = Times::default();
        all[0] = of_gets;
        let part = StatusPart {
            row: nodes::row(&snapshot, &Rates::default(), None),
            operations: operations(&all, &[gets, gets.map(|_| 0.0), None, None, None]),
            times: all.to_vec(),
            searches: gets.map(|_| [30.0, 10.0]),
            log: LogFigures { lag_bytes, sync_max_us: Some(lag_bytes), ..LogFigures::default() },
            splits: Splits { begun: 2, finished: 1, aborted: 0, merged: 0, under_way: 1 },
            recoveries: Vec::new(),
            events: Vec::new(),
            own_missing_pairs: Vec::new(),
        };
        NodePart { node: NodeId(node), part }
    }

    fn coordinator(seen_ms_ago: u64) -> CoordinatorFigures {
        CoordinatorFigures {
            provider: Some("tls"),
            addresses: vec!["tls://cell-1.example:7200".to_owned()],
            reachable: true,
            revision: "9".into(),
            seen_ms_ago: Some(seen_ms_ago),
        }
    }

    #[test]
    fn together_adds_rates_and_times_of_all_requests() {
        let parts = vec![
            part(1, Some(10.0), times(20, 99), 100),
            part(3, Some(5.0), times(80, 1), 50),
            part(4, None, LatencyHistogram::default(), 0),
        ];
        let coordinator = coordinator(20);
        let body = together(
            &snapshot(),
            parts,
            (&[], &[]),
            coordinator,
            (false, true),
            (&mut MissingPairs::default(), 0),
        );
        let body = serde_json::to_value(body).unwrap();
        assert_eq!((&body["answered_by"], &body["nodes"][1]["is_self"]), (&3.into(), &true.into()));
        let get = &body["operations"][0];
        assert_eq!((&get["operation"], &get["per_second"]), (&"get".into(), &15.0.into()));
        assert!(get["p50_us"].as_f64().unwrap() < 10.0, "not that of the slower node: {get}");
        assert!(get["max_us"].as_f64().unwrap() > 10_000.0, "{get}");
        assert_eq!(
            (&body["operations"][4]["operation"], &body["operations"][4]["p50_us"]),
            (&"scan".into(), &serde_json::Value::Null)
        );
        assert_eq!(
            (&body["operations"][1]["per_second"], &body["operations"][2]["per_second"]),
            (&0.0.into(), &serde_json::Value::Null),
            "what no node knows is not zero"
        );
        assert_eq!(body["searches"]["one_sided_share"], 0.25);
        assert_eq!((&body["log"]["lag_bytes"], &body["log"]["sync_max_us"]), (&150.into(), &100.into()));
        assert_eq!(body["splits"]["under_way"], 3);
        assert_eq!((&body["coordinator"]["seen_ms_ago"], &body["read_only"]), (&20.into(), &true.into()));
        assert_eq!(body["coordinator"]["provider"], "tls");
        assert_eq!(body["coordinator"]["addresses"][0], "tls://cell-1.example:7200");
    }

    /// It was to be waited for, and `/api/v1/recoveries` alone had for what the takeover waited.
    #[test]
    fn together_says_on_which_node_room_is_to_be_made_for_a_takeover() {
        let mut snapshot = two_nodes(NodeState::Serving);
        let mut cluster = ClusterSnapshot::clone(&snapshot.cluster);
        cluster.pairs[1].state = PairState::Recovering;
        let progress = RecoveryProgress { stage: NO_ROOM, ..RecoveryProgress::default() };
        cluster.recoveries = vec![PairRecovery { pair: PairId(2), progress }];
        snapshot.cluster = Arc::new(cluster);
        let unserved = |recoveries| {
            let mut part = part(3, None, LatencyHistogram::default(), 0);
            part.part.row.pairs = vec![1];
            part.part.recoveries = recoveries;
            let looks = &mut MissingPairs::default();
            let (parts, flags) = (vec![part], (false, true));
            let body = together(&snapshot, parts, (&[], &[]), coordinator(20), flags, (looks, 0));
            body.pairs.unserved.into_iter().find(|of| of.pair == 2).unwrap()
        };
        let found = unserved(recoveries::under_way(&snapshot));
        assert_eq!(found.what, "recovering, waiting for room on the disk of node 3");
        assert_eq!(found.next, "Make room on the disk of node 3: the takeover goes on by itself then.");
        assert!(!found.passes);
        assert_eq!(unserved(Vec::new()).next, served::NEXT_WAIT);
    }

    /// All pairs were said to be served while each node waited for its coordinator.
    #[test]
    fn together_counts_no_pair_of_a_silent_node_as_served() {
        let snapshot = two_nodes(NodeState::Silent);
        let row = |node: u32, state: NodeState| {
            let of = NodeSnapshot { node: NodeId(node), state, ..snapshot.clone() };
            let mut part = part(node, None, LatencyHistogram::default(), 0);
            part.part.row = NodeRow { pairs: vec![node - 2], ..nodes::row(&of, &Rates::default(), None) };
            part
        };
        let body = |parts| {
            let looks = &mut MissingPairs::default();
            let body = together(&snapshot, parts, (&[], &[]), coordinator(900), (false, true), (looks, 0));
            serde_json::to_value(body).unwrap()
        };
        let both = body(vec![row(3, NodeState::Silent), row(4, NodeState::Silent)]);
        assert_eq!((&both["pairs"]["all"], &both["pairs"]["served"]), (&2.into(), &0.into()));
        assert_eq!(both["pairs"]["unserved"][1]["what"], "silent: its node 4 waits for the coordinator");
        assert_eq!(both["verdict"]["level"], "critical");
        let sentence = both["verdict"]["sentence"].as_str().unwrap();
        assert!(sentence.starts_with("Node 3 is silent"), "{sentence}");
        assert_eq!(both["faults_survivable"]["nodes"], 0);
        let one = body(vec![row(3, NodeState::Silent), row(4, NodeState::Serving)]);
        assert_eq!(one["pairs"]["served"], 1);
        let alone = body(vec![row(3, NodeState::Silent)]);
        assert_eq!(alone["pairs"]["unserved"][1]["what"], cluster::WAITS_UNKNOWN);
        // Nor one of a node that has failed, until its process ends.
        let failed = body(vec![row(3, NodeState::Silent), row(4, NodeState::Failed(FailureKind::LeaseLost))]);
        assert_eq!(failed["pairs"]["served"], 0);
        assert_eq!(failed["pairs"]["unserved"][1]["what"], "given up: its node 4 has failed");
    }

    /// "All 2 nodes serve", and no pair was not served, while a node did not have one that was its own.
    #[test]
    fn together_counts_no_pair_as_served_that_nobody_reports_at_two_looks() {
        let snapshot = two_nodes(NodeState::Serving);
        let row = |node: u32, pairs: &[u32]| {
            let of = NodeSnapshot { node: NodeId(node), ..snapshot.clone() };
            let mut part = part(node, None, LatencyHistogram::default(), 0);
            part.part.row = NodeRow { pairs: pairs.to_vec(), ..nodes::row(&of, &Rates::default(), None) };
            part
        };
        let mut looks = MissingPairs::default();
        let mut body = |parts, missing: &[MissingPeer], at_ms: u64| {
            let flags = (false, true);
            let looks = (&mut looks, at_ms);
            let body = together(&snapshot, parts, (missing, &[]), coordinator(20), flags, looks);
            serde_json::to_value(body).unwrap()
        };
        let first = body(vec![row(3, &[1]), row(4, &[])], &[], 10_000);
        assert_eq!((&first["pairs"]["served"], &first["pairs"]["missing"]), (&2.into(), &0.into()));
        let second = body(vec![row(3, &[1]), row(4, &[])], &[], 13_000);
        assert_eq!((&second["pairs"]["served"], &second["pairs"]["missing"]), (&1.into(), &1.into()));
        let what = "missing: its node 4 answers, and does not report it";
        assert_eq!(second["pairs"]["unserved"][0]["what"], what);
        assert_eq!(second["verdict"]["level"], "critical");
        let sentence = format!("1 of 2 pairs is not served: pair 2 is {what}.");
        assert_eq!(second["verdict"]["sentence"], sentence);
        assert_eq!(second["faults_survivable"]["nodes"], 0);
        // Of a node that does not answer nothing is known: that is said, and is no alarm by itself.
        let away = MissingPeer { node: 4, address: String::new(), why: "no answer within 200 ms".into() };
        let unreported = body(vec![row(3, &[1])], &[away], 14_000);
        assert_eq!((&unreported["pairs"]["served"], &unreported["pairs"]["missing"]), (&1.into(), &1.into()));
        assert_eq!(unreported["verdict"]["level"], "warning");
        let back = body(vec![row(3, &[1]), row(4, &[2])], &[], 15_000);
        assert_eq!((&back["pairs"]["served"], &back["pairs"]["missing"]), (&2.into(), &0.into()));
    }

    /// Its pair was counted as served until its lease had ended.
    #[test]
    fn together_counts_no_pair_of_a_node_that_does_not_answer_as_served_and_raises_no_alarm() {
        let snapshot = two_nodes(NodeState::Serving);
        let mut first = part(3, None, LatencyHistogram::default(), 0);
        first.part.row.pairs = vec![1];
        let away = [MissingPeer { node: 4, address: String::new(), why: "no answer within 200 ms".into() }];
        let looks = &mut MissingPairs::default();
        let body =
            together(&snapshot, vec![first], (&away, &[]), coordinator(20), (false, true), (looks, 10_000));
        let body = serde_json::to_value(body).unwrap();
        let pairs = &body["pairs"];
        assert_eq!((&pairs["served"], &pairs["missing"]), (&1.into(), &0.into()));
        assert_eq!(pairs["unknown"], 1);
        assert_eq!(pairs["unserved"][0]["what"], "not known to be served: its node 4 does not answer");
        assert_eq!(body["verdict"]["level"], "warning");
        assert_eq!(body["verdict"]["sentence"], "Node 4 does not answer: no answer within 200 ms.");
    }

    #[test]
    fn part_of_an_earlier_version_does_not_say_what_it_lacks() {
        let mut text = serde_json::to_value(part(4, None, LatencyHistogram::default(), 0).part).unwrap();
        assert!(text.as_object_mut().unwrap().remove("own_missing_pairs").is_some());
        let read: StatusPart = serde_json::from_value(text).unwrap();
        assert!(read.own_missing_pairs.is_empty());
    }

    /// Only who asked twice within five minutes got that: without a console all was said to be served.
    #[test]
    fn pair_that_a_node_lacks_for_some_time_is_missing_for_whoever_asks_once() {
        let lacks_pair_2 = |sources: crate::Sources| {
            let inner = Arc::clone(&sources.snapshots);
            let look = move || {
                let mut node = (*inner.snapshot()).clone();
                let pairs = vec![pair_row(2, node.incarnation.0)];
                node.cluster = Arc::new(ClusterSnapshot { pairs, ..(*node.cluster).clone() });
                Arc::new(node)
            };
            crate::Sources { snapshots: Arc::new(look), ..sources }
        };
        let has_looked = |shared: &Shared| {
            let ((snapshot, _), now_ms) = (shared.look(), now_boottime_ms());
            let lacking = lacking_at(&snapshot);
            assert_eq!(lacking.len(), 1);
            let mut looks = shared.own_missing_pairs();
            looks.look(now_ms - 3_000, &lacking);
            looks.look(now_ms, &lacking);
        };
        let cluster = TestCluster::start_prepared(1, &[], lacks_pair_2, has_looked);
        let status = cluster.get(0, "/api/v1/cluster/status").body;
        assert_eq!((&status["pairs"]["served"], &status["pairs"]["missing"]), (&0.into(), &1.into()));
        assert_eq!(status["verdict"]["level"], "critical", "{}", status["verdict"]);
        // Nobody looks between: this is the first look of another node.
        let cluster = TestCluster::start_prepared(1, &[], lacks_pair_2, has_looked);
        let regions = cluster.get(0, "/api/v1/regions").body;
        assert_eq!(regions["regions"][0]["state"], "missing", "{regions}");
        for path in ["cluster/status", "regions"] {
            let part = cluster.get(0, &format!("/api/v1/{path}?scope=node")).body;
            assert_eq!(part["own_missing_pairs"], serde_json::json!([2]), "{path}");
        }
    }

    /// The verdict left them out while the lease of the life before lasted, and said to restart their node.
    #[test]
    fn together_counts_no_pair_as_served_that_a_node_which_was_started_again_has_not_recovered() {
        let mut snapshot = two_nodes(NodeState::Serving);
        let mut cluster = (*snapshot.cluster).clone();
        cluster.members.push(life(4, 90));
        snapshot.cluster = Arc::new(cluster);
        let mut parts = [3, 4].map(|node| part(node, None, LatencyHistogram::default(), 0));
        parts[0].part.row.pairs = vec![1];
        parts[1].part.row.pairs = Vec::new();
        let looks = &mut MissingPairs::default();
        let body =
            together(&snapshot, parts.into(), (&[], &[]), coordinator(20), (false, true), (looks, 10_000));
        let body = serde_json::to_value(body).unwrap();
        let what = "not recovered yet: node 4 was started again";
        let sentence = format!("1 of 2 pairs is not served: pair 2 is {what}.");
        assert_eq!(body["verdict"]["sentence"], sentence);
        assert_eq!((&body["pairs"]["served"], &body["pairs"]["missing"]), (&1.into(), &0.into()));
    }

    /// A node that has just started, or whose control thread hangs, once reported no operations and the times
    /// of the last second in which it moved.
    #[test]
    fn part_of_a_node_that_stands_still_has_nothing_of_the_last_second() {
        let cluster = TestCluster::start(1);
        let body = cluster.get(0, "/api/v1/cluster/status").body;
        let null = serde_json::Value::Null;
        for operation in body["operations"].as_array().unwrap() {
            assert_eq!((&operation["per_second"], &operation["p99_us"]), (&null, &null), "{operation}");
        }
        assert_eq!(body["searches"]["one_sided_per_second"], null);
        assert_eq!(body["nodes"][0]["operations_per_second"], null);
        assert_eq!(cluster.get(0, "/api/v1/wal").body["pairs"][0]["batches_per_second"], null);
    }
}
