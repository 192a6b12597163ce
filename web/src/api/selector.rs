//! `GET /api/v1/selector/pairs`: how each client searches each server, what it measures and why it decides as
//! it does, as the clients report it to the servers; and the same over time.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use cell_cluster::MemberRow;
use cell_node::{ClientCounts, NodeSnapshot};
use cell_terms::NodeId;
use serde::{Deserialize, Serialize};

use crate::api::document::{Document, Scope};
use crate::api::gathered::{ClusterDocument, Shown};
use crate::api::params::{Params, PathText};
use crate::api::sentence;
use crate::api::series::{Mark, marks};
use crate::clock::now_unix_ms;
use crate::peers::{MissingPeer, NodePart};
use crate::problem::Problem;
use crate::selector_history::{ClientHistory, SAMPLES_MAX, SelectorSample, share};
use crate::shared::Shared;

/// Of a client that has not reported for a while.
const SILENT: &str = "it is silent: where it searches now is not known";

/// A client and a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PairRow {
    /// A decimal number: JavaScript's are too small.
    pub(crate) client: String,
    pub(crate) client_name: String,
    pub(crate) transport: String,
    /// The server.
    pub(crate) node: u32,
    /// Age of the client's last report in its server's figures, whose own age counts besides.
    pub(crate) age_ms: u64,
    pub(crate) policy: String,
    pub(crate) settings_revision: String,
    pub(crate) searches_per_second: Option<f64>,
    pub(crate) one_sided_share: Option<f64>,
    pub(crate) ratio_10s: Option<f64>,
    pub(crate) l_s_ns: Option<u64>,
    pub(crate) l_r_ns: Option<u64>,
    pub(crate) rtt_ns: Option<u64>,
    pub(crate) m: Option<f64>,
    pub(crate) one_sided_ns: Option<u64>,
    /// The server's queue as the client sees it: `l_s - RTT`.
    pub(crate) queue_estimate_ns: Option<u64>,
    pub(crate) decision: DecisionRow,
    pub(crate) reasons: Reasons,
    pub(crate) cache_hits_per_second: Option<f64>,
    pub(crate) cache_hit_share: Option<f64>,
    pub(crate) reads_per_search: Option<f64>,
    pub(crate) retries: Retries,
    pub(crate) fallbacks_per_second: Option<f64>,
    pub(crate) in_hand: u32,
}

/// Where a client searches now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DecisionRow {
    /// `server` or `one_sided`: where most searches go. None: the client is silent.
    pub(crate) path: Option<String>,
    /// The two sides of the paper's inequality: `l_s - RTT` and `m (l_r - RTT)`.
    pub(crate) server_side_ns: Option<u64>,
    pub(crate) one_sided_side_ns: Option<u64>,
    pub(crate) sentence: String,
}

macro_rules! rates {
    ($(#[$doc:meta])* $name:ident { $($field:ident),+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub(crate) struct $name { $(pub(crate) $field: Option<f64>,)+ }

        impl $name {
            fn of(client: &ClientHistory) -> $name {
                $name { $($field: client.per_second(|counts| counts.$field),)+ }
            }
        }
    };
}

rates! {
    /// Decisions a second, by reason; none: the client is silent.
    Reasons {
        estimate, exploration, fixed_share, not_enough_samples, idle_reset, not_registered, not_permitted,
        not_trusted
    }
}
rates! {
    /// What was tried again, a second, by cause.
    Retries { torn, stale, fence, slow, watermark, trust, other }
}

/// A node's part: its clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PairsPart {
    pub(crate) pairs: Vec<PairRow>,
    /// Clients that report now and are not listed: there is no room.
    pub(crate) clients_dropped: u64,
}

/// The clients of all nodes.
#[derive(Debug, Serialize)]
pub(crate) struct PairsBody {
    #[serde(flatten)]
    all: PairsPart,
    #[serde(flatten)]
    shown: Shown,
}

/// One client and server, over time.
#[derive(Debug, Serialize, Deserialize)]
struct SeriesPart {
    client: String,
    node: u32,
    step_ms: u64,
    times_unix_ms: Vec<u64>,
    series: Series,
    /// When settings were changed.
    marks: Vec<Mark>,
}

macro_rules! series {
    ($($name:ident),+) => {
        /// By name, one figure a step; null where nothing is known.
        #[derive(Debug, Serialize, Deserialize)]
        struct Series { $($name: Vec<Option<f64>>,)+ }

        impl Series {
            fn of(samples: &[&SelectorSample]) -> Series {
                Series { $($name: samples.iter().map(|sample| figure::$name(sample)).collect(),)+ }
            }
        }
    };
}

series! {
    l_s_ns, l_r_ns, rtt_ns, m, one_sided_share, searches_per_second, queue_estimate_ns, one_sided_ns,
    cache_hit_share, fallbacks_per_second
}

/// What each series shows of a sample.
mod figure {
    use crate::selector_history::SelectorSample as Sample;

    pub(super) fn l_s_ns(sample: &Sample) -> Option<f64> {
        sample.server_ns()
    }
    pub(super) fn l_r_ns(sample: &Sample) -> Option<f64> {
        sample.read_ns()
    }
    pub(super) fn rtt_ns(sample: &Sample) -> Option<f64> {
        sample.rtt_ns()
    }
    pub(super) fn m(sample: &Sample) -> Option<f64> {
        sample.reads()
    }
    pub(super) fn one_sided_share(sample: &Sample) -> Option<f64> {
        sample.one_sided_share()
    }
    pub(super) fn searches_per_second(sample: &Sample) -> Option<f64> {
        sample.searches_per_second()
    }
    pub(super) fn queue_estimate_ns(sample: &Sample) -> Option<f64> {
        sample.queue_estimate_ns()
    }
    pub(super) fn one_sided_ns(sample: &Sample) -> Option<f64> {
        sample.one_sided_ns()
    }
    pub(super) fn cache_hit_share(sample: &Sample) -> Option<f64> {
        sample.cache_hit_share()
    }
    pub(super) fn fallbacks_per_second(sample: &Sample) -> Option<f64> {
        sample.fallbacks_per_second()
    }
}

/// `GET /api/v1/selector/pairs`.
pub(crate) struct SelectorPairs;

impl ClusterDocument for SelectorPairs {
    type Part = PairsPart;
    type Body = PairsBody;
    const PATH: &'static str = "/api/v1/selector/pairs";
    const HAS_ROWS: bool = true;

    fn part(shared: &Shared, snapshot: &NodeSnapshot) -> PairsPart {
        let clients = shared.selectors();
        PairsPart {
            pairs: clients.live().map(|it| row(it, snapshot.node.0)).collect(),
            clients_dropped: clients.unlisted() + snapshot.client_totals.unlisted,
        }
    }

    fn body(
        _shared: &Shared,
        _snapshot: &NodeSnapshot,
        parts: Vec<NodePart<PairsPart>>,
        _missing: &[MissingPeer],
    ) -> PairsBody {
        PairsBody { all: all(parts.into_iter().map(|part| part.part)), shown: Shown::default() }
    }

    fn limit(body: &mut PairsBody, rows: usize) -> usize {
        body.shown.limit(&mut body.all.pairs, rows)
    }
}

fn all(parts: impl Iterator<Item = PairsPart>) -> PairsPart {
    let mut all = PairsPart { pairs: Vec::new(), clients_dropped: 0 };
    for part in parts {
        all.pairs.extend(part.pairs);
        all.clients_dropped += part.clients_dropped;
    }
    all.pairs.sort_by(|one, other| {
        (&one.client_name, &one.client, one.node).cmp(&(&other.client_name, &other.client, other.node))
    });
    all
}

/// `GET /api/v1/selector/pairs/{client}/{node}/series`.
pub(crate) async fn get_series(
    State(shared): State<Arc<Shared>>,
    PathText((client_text, node_text)): PathText<(String, String)>,
    mut params: Params,
) -> Result<Response, Problem> {
    let seconds = params.integer("seconds", 1..=SAMPLES_MAX as u64, 120)?;
    let scope = params.scope()?;
    params.end()?;
    let none = || Problem::not_found(format!("Node {node_text} does not know client {client_text}."));
    let (Ok(client), Ok(node)) = (client_text.parse::<u64>(), node_text.parse::<u32>()) else {
        return Err(none());
    };
    let (snapshot, age) = shared.look();
    if node == snapshot.node.0 || scope == Scope::Node {
        let marks = marks(&shared.events(), now_unix_ms().saturating_sub(seconds * 1_000));
        let own = shared.selectors().client(client).map(|it| series(it, snapshot.node.0, seconds, marks));
        let own = own.filter(|_| node == snapshot.node.0).ok_or_else(none)?;
        return Ok(axum::Json(Document::of_node(own, age)).into_response());
    }
    let member = MemberRow::present(&snapshot.cluster.members, NodeId(node)).ok_or_else(none)?;
    let path = format!("/api/v1/selector/pairs/{client}/{node}/series?seconds={seconds}&scope=node");
    let part: SeriesPart = shared.peers.ask(member, &path).await.map_err(|why| {
        Problem::unavailable(format!("Node {node} does not report client {client}: {why}."))
    })?;
    Ok(axum::Json(Document::of_node(part, age)).into_response())
}

fn series(client: &ClientHistory, node: u32, seconds: u64, marks: Vec<Mark>) -> SeriesPart {
    let samples: Vec<_> = client.samples(usize::try_from(seconds).unwrap_or(SAMPLES_MAX)).collect();
    SeriesPart {
        client: client.latest.client.to_string(),
        node,
        step_ms: 1_000,
        times_unix_ms: samples.iter().map(|sample| sample.at_unix_ms).collect(),
        series: Series::of(&samples),
        marks,
    }
}

/// A live client's row.
fn row(client: &ClientHistory, node: u32) -> PairRow {
    let latest = &client.latest;
    let part = |part: fn(&ClientCounts) -> u64, all: fn(&ClientCounts) -> u64| {
        client.counts_now().and_then(|counts| share(part(counts), all(counts)))
    };
    let known = &latest.estimates;
    let some = |figure: u64| (figure > 0).then_some(figure);
    let (server_ns, read_ns, rtt_ns) = (some(known.server_ns), some(known.read_ns), some(known.rtt_ns));
    let m = (known.reads_thousandths > 0).then(|| f64::from(known.reads_thousandths) / 1e3);
    PairRow {
        client: latest.client.to_string(),
        client_name: latest.name.to_string(),
        transport: latest.transport.name().to_owned(),
        node,
        age_ms: latest.age_ms,
        policy: latest.policy.name().to_owned(),
        settings_revision: latest.settings_revision.to_string(),
        searches_per_second: client.per_second(ClientCounts::searches),
        one_sided_share: part(|counts| counts.one_sided, ClientCounts::searches),
        ratio_10s: client.ratio_10s(),
        l_s_ns: server_ns,
        l_r_ns: read_ns,
        rtt_ns,
        m,
        one_sided_ns: some(known.one_sided_ns),
        queue_estimate_ns: server_ns.zip(rtt_ns).map(|(server_ns, rtt_ns)| server_ns.saturating_sub(rtt_ns)),
        decision: decision(client),
        reasons: Reasons::of(client),
        cache_hits_per_second: client.per_second(|counts| counts.cache_hits),
        cache_hit_share: part(|counts| counts.cache_hits, |counts| counts.cache_hits + counts.cache_misses),
        reads_per_search: part(|counts| counts.reads, |counts| counts.one_sided),
        retries: Retries::of(client),
        fallbacks_per_second: client.per_second(|counts| counts.fallbacks),
        in_hand: latest.in_hand,
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time; a cast of a float saturates"
)]
fn decision(client: &ClientHistory) -> DecisionRow {
    let known = &client.latest.estimates;
    let over_rtt =
        |figure: u64| (figure > 0 && known.rtt_ns > 0).then(|| figure.saturating_sub(known.rtt_ns));
    let server_side_ns = over_rtt(known.server_ns);
    let one_sided_side_ns = over_rtt(known.read_ns)
        .map(|over_ns| (f64::from(known.reads_thousandths) / 1e3 * over_ns as f64) as u64);
    let Some(counts) = client.counts_now() else {
        let sentence = SILENT.to_owned();
        return DecisionRow { path: None, server_side_ns, one_sided_side_ns, sentence };
    };
    let (path, sentence) = sentence::of(&sentence::Facts {
        policy: client.latest.policy,
        counts,
        server_ns: known.server_ns,
        one_sided_ns: known.one_sided_ns,
        sides_ns: server_side_ns.zip(one_sided_side_ns),
        share: known.share_millionths.map(|share| f64::from(share) / 1e6),
    });
    DecisionRow { path: Some(path.to_owned()), server_side_ns, one_sided_side_ns, sentence }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::selector_history::SelectorHistory;
    use crate::selector_history::tests::client;

    fn history(seconds: u64) -> SelectorHistory {
        let mut history = SelectorHistory::default();
        (1..=seconds).for_each(|second| history.observe(second * 1_000, 0, &[client(u64::MAX, second)]));
        history
    }

    #[test]
    fn row_has_the_figures_of_the_contract_under_its_names() {
        let row = serde_json::to_value(row(history(3).live().next().unwrap(), 2)).unwrap();
        assert_eq!(row["client"], "18446744073709551615");
        assert_eq!(
            (&row["client_name"], &row["transport"], &row["node"]),
            (&"17@host".into(), &"tcp".into(), &2.into())
        );
        assert_eq!((&row["age_ms"], &row["l_s_ns"], &row["m"]), (&100.into(), &30_000.into(), &2.0.into()));
        assert_eq!((&row["searches_per_second"], &row["one_sided_share"]), (&40.0.into(), &0.25.into()));
        assert_eq!((&row["queue_estimate_ns"], &row["reasons"]["estimate"]), (&25_000.into(), &40.0.into()));
        assert_eq!(row["decision"]["server_side_ns"], 25_000);
        assert_eq!(row["decision"]["one_sided_side_ns"], 2_000);
        assert_eq!(row["decision"]["path"], "server");
        assert_eq!(row["retries"]["torn"], 0.0);
        assert_eq!(row["settings_revision"], "0");
    }

    /// Its last rates stood there for as long as it was silent, and those that nobody knew were 0.
    #[test]
    fn row_of_a_client_that_went_silent_has_no_rates() {
        let mut history = history(3);
        let silent = cell_node::ClientSnapshot { age_ms: 3_000, ..client(u64::MAX, 3) };
        history.observe(6_000, 0, &[silent]);
        let row = serde_json::to_value(row(history.live().next().unwrap(), 2)).unwrap();
        for name in
            ["searches_per_second", "cache_hits_per_second", "fallbacks_per_second", "one_sided_share"]
        {
            assert!(row[name].is_null(), "{name}: {row}");
        }
        for name in ["cache_hit_share", "reads_per_search"] {
            assert!(row[name].is_null(), "{name}: {row}");
        }
        for rates in ["reasons", "retries"] {
            assert!(row[rates].as_object().unwrap().values().all(serde_json::Value::is_null), "{row}");
        }
        assert_eq!((&row["decision"]["path"], &row["decision"]["sentence"]), (&Value::Null, &SILENT.into()));
        assert_eq!(
            (&row["age_ms"], &row["l_s_ns"]),
            (&3_000.into(), &30_000.into()),
            "as it was measured last"
        );
        // One that has sent no report yet has done nothing that anybody knows of.
        let mut fresh = SelectorHistory::default();
        fresh.observe(
            1_000,
            0,
            &[cell_node::ClientSnapshot { counts: ClientCounts::default(), reported_ns: 0, ..client(7, 0) }],
        );
        let row = super::row(fresh.live().next().unwrap(), 2);
        assert_eq!((row.searches_per_second, row.reasons.estimate, row.decision.path), (None, None, None));
    }

    #[test]
    fn series_has_a_figure_for_each_second_and_null_where_nothing_is_known() {
        let mut history = history(3);
        history.observe(4_000, 0, &[]);
        let series =
            serde_json::to_value(series(history.client(u64::MAX).unwrap(), 2, 2, Vec::new())).unwrap();
        assert_eq!(series["times_unix_ms"], serde_json::json!([3_000, 4_000]));
        assert_eq!(series["series"]["searches_per_second"], serde_json::json!([40.0, null]));
        assert_eq!(series["series"]["l_s_ns"], serde_json::json!([30_000.0, null]));
        assert_eq!((&series["step_ms"], &series["marks"]), (&1_000.into(), &serde_json::json!([])));
    }

    #[test]
    fn all_of_several_nodes_is_by_client_and_node() {
        let history = history(1);
        let part = |node| PairsPart {
            pairs: history.live().map(|client| row(client, node)).collect(),
            clients_dropped: u64::from(node),
        };
        let all = all([part(5), part(1)].into_iter());
        assert_eq!(all.pairs.iter().map(|row| row.node).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(all.clients_dropped, 6);
    }
}
