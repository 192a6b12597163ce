//! `GET /api/v1/series`: figures over time, of one node or of all together, with the times at which settings
//! were changed.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use cell_node::LatencyHistogram;
use cell_terms::NodeId;
use serde::{Deserialize, Serialize, Serializer};

use crate::api::document::{Document, Scope};
use crate::api::params::Params;
use crate::clock::now_unix_ms;
use crate::event_log::EventLog;
use crate::history::{
    ALWAYS_KNOWN, KINDS, NodeHistory, SEARCHES_ONE_SIDED, SEARCHES_SERVER, STEPS, SeriesKind, Together,
    percentile_us,
};
use crate::peers::{Gathered, MissingPeer, NodePart};
use crate::problem::Problem;
use crate::rates::{OPERATIONS, share};
use crate::shared::Shared;

/// When settings were changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    at_unix_ms: u64,
    revision: String,
    names: Vec<String>,
}

/// A node's figures by name and step.
#[derive(Debug, Serialize, Deserialize)]
struct SeriesPart {
    series: Vec<Figures>,
    /// By the operations whose latencies were asked for: percentiles of several nodes are not made of theirs.
    times: Vec<OperationTimes>,
}

/// What requests of an operation took, by step.
#[derive(Debug, Serialize, Deserialize)]
struct OperationTimes {
    operation: String,
    values: Vec<Option<LatencyHistogram>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Figures {
    name: String,
    values: Vec<Option<f64>>,
}

#[derive(Debug, Serialize)]
struct SeriesBody {
    step_ms: u64,
    times_unix_ms: Vec<u64>,
    series: Vec<Series>,
    marks: Vec<Mark>,
}

#[derive(Debug, Serialize)]
struct Series {
    name: &'static str,
    unit: &'static str,
    node: Whose,
    values: Vec<Option<f64>>,
}

/// Of one node, or of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Node(u32),
    All,
}

impl Serialize for Whose {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Whose::Node(node) => to.serialize_u32(*node),
            Whose::All => to.serialize_str("all"),
        }
    }
}

/// Which steps are wanted, by their numbers: seconds since 1970 by the step.
#[derive(Clone, Copy, Debug)]
struct Window {
    step_s: u64,
    last: u64,
    count: u64,
}

/// Steps by which the clock of the node that asks may be ahead of this one's: they are not known here.
const AHEAD: u64 = 3_600;

impl Window {
    /// Steps up to `last`, at most those since 1970, and none that is further than `ahead` from the newest.
    fn new(step_s: u64, last: u64, count: u64, (newest, ahead): (u64, u64)) -> Window {
        let last = last.min(newest.saturating_add(ahead));
        Window { step_s, last, count: count.min(last.saturating_add(1)) }
    }

    fn numbers(self) -> impl Iterator<Item = u64> {
        self.last.saturating_sub(self.count - 1)..=self.last
    }
}

/// `GET /api/v1/series`.
pub(crate) async fn get_series(
    State(shared): State<Arc<Shared>>,
    mut params: Params,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    let wanted = kinds(&params.text("names").unwrap_or_default())?;
    let whose = whose(params.text("node").as_deref())?;
    let step_s = params.integer("step", 1..=60, 1)?;
    let Some((_, rows)) = STEPS.iter().find(|(step, _)| *step == step_s) else {
        return Err(Params::refuse("step", "steps are of 1, 10 or 60 seconds".to_owned()));
    };
    let kept_s = step_s * *rows as u64;
    let seconds = params.integer("seconds", step_s..=kept_s, 600.min(kept_s))?;
    // Of a step that is just over, not every node has its figure yet.
    let newest = (now_unix_ms() / 1_000 / step_s).saturating_sub(1);
    let last = params.integer("last", 0..=u64::MAX, newest.saturating_sub(u64::from(step_s == 1)))?;
    params.end()?;
    let ahead = if scope == Scope::Node { AHEAD } else { 0 };
    let window = Window::new(step_s, last, seconds / step_s, (newest, ahead));
    let (snapshot, age) = shared.look();
    let asked = with_parts(&wanted);
    let (own, members) = {
        let history = shared.history();
        (part(&history, &asked, window), members(&history, window))
    };
    if scope == Scope::Node {
        return Ok(axum::Json(Document::of_node(own, age)).into_response());
    }
    let names: Vec<&str> = asked.iter().map(|kind| kind.name).collect();
    let path = format!(
        "/api/v1/series?scope=node&names={}&step={step_s}&seconds={seconds}&last={}",
        names.join(","),
        window.last
    );
    let Gathered { mut parts, missing } = shared.gather(&snapshot, own, &path).await;
    if let Whose::Node(node) = whose {
        shared.check_node("node", node)?;
        parts.retain(|part| part.node.0 == node);
    }
    let known = match whose {
        Whose::Node(_) => vec![true; members.len()],
        Whose::All => known(&members, &parts, &missing),
    };
    let times_unix_ms: Vec<u64> = window.numbers().map(|number| number * step_s * 1_000).collect();
    let body = SeriesBody {
        step_ms: step_s * 1_000,
        series: wanted.into_iter().map(|kind| together(kind, whose, &parts, &known)).collect(),
        marks: marks(&shared.events(), times_unix_ms.first().copied().unwrap_or_default()),
        times_unix_ms,
    };
    Ok(axum::Json(Document::of_cluster(body, age, missing)).into_response())
}

fn kinds(names: &str) -> Result<Vec<&'static SeriesKind>, Problem> {
    let names = names.split(',').filter(|name| !name.is_empty());
    let kind = |name: &str| {
        let known = KINDS.iter().find(|kind| kind.name == name);
        known.ok_or_else(|| {
            let all: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            Params::refuse("names", format!("there is no series `{name}`: {}", all.join(", ")))
        })
    };
    let mut kinds: Vec<&SeriesKind> = Vec::new();
    for name in names {
        add_kind(&mut kinds, kind(name)?);
    }
    if kinds.is_empty() {
        return Err(Params::refuse(
            "names",
            "names of series are wanted, with commas between them".to_owned(),
        ));
    }
    Ok(kinds)
}

/// Each kind once, however often it is named.
fn add_kind(kinds: &mut Vec<&'static SeriesKind>, kind: &'static SeriesKind) {
    if !kinds.iter().any(|known| known.name == kind.name) {
        kinds.push(kind);
    }
}

fn whose(node: Option<&str>) -> Result<Whose, Problem> {
    match node {
        None | Some("all") => Ok(Whose::All),
        Some(text) => text
            .parse()
            .map(Whose::Node)
            .map_err(|_| Params::refuse("node", format!("`{text}` is neither a node's number nor all"))),
    }
}

fn kind(name: &str) -> &'static SeriesKind {
    KINDS.iter().find(|kind| kind.name == name).expect("one of those that are kept")
}

/// The kinds that nodes are asked for: a share of all cannot be made of shares, and one figure shows of which
/// steps a node knows.
fn with_parts(wanted: &[&'static SeriesKind]) -> Vec<&'static SeriesKind> {
    let mut asked = wanted.to_vec();
    add_kind(&mut asked, kind(ALWAYS_KNOWN));
    if wanted.iter().any(|kind| kind.together == Together::OneSidedShare) {
        [SEARCHES_SERVER, SEARCHES_ONE_SIDED].map(kind).into_iter().for_each(|it| add_kind(&mut asked, it));
    }
    asked
}

fn part(history: &NodeHistory, kinds: &[&'static SeriesKind], window: Window) -> SeriesPart {
    let figures = |kind: &&'static SeriesKind| {
        let at = KINDS.iter().position(|known| known.name == kind.name).unwrap_or(0);
        let values = window.numbers().map(|number| history.figure(window.step_s, number, at));
        Figures { name: kind.name.to_owned(), values: values.collect() }
    };
    let times = |(at, operation): (usize, &&str)| OperationTimes {
        operation: (*operation).to_owned(),
        values: window.numbers().map(|number| history.times(window.step_s, number, at).cloned()).collect(),
    };
    let is_asked = |(at, _): &(usize, &&str)| {
        kinds
            .iter()
            .any(|kind| matches!(kind.together, Together::Latency { operation, .. } if operation == *at))
    };
    SeriesPart {
        series: kinds.iter().map(figures).collect(),
        times: OPERATIONS.iter().enumerate().filter(is_asked).map(times).collect(),
    }
}

/// Who was a member at each step, as far as this node knows.
fn members(history: &NodeHistory, window: Window) -> Vec<Option<Vec<NodeId>>> {
    window.numbers().map(|number| history.members(window.step_s, number).map(<[NodeId]>::to_vec)).collect()
}

/// Of each step, whether the figures of all are known that were members then; those who do not answer are
/// named besides. What a node that has died did is not known any more, and no sum leaves it out.
fn known(
    members: &[Option<Vec<NodeId>>],
    parts: &[NodePart<SeriesPart>],
    missing: &[MissingPeer],
) -> Vec<bool> {
    let reports = |node: NodeId, at: usize| {
        let part = parts.iter().find(|part| part.node == node);
        part.is_some_and(|part| figure(part, ALWAYS_KNOWN, at).is_some())
    };
    let is_named = |node: NodeId| missing.iter().any(|peer| peer.node == node.0);
    let is_known = |(at, members): (usize, &Option<Vec<NodeId>>)| {
        let members = members.as_deref();
        members.is_some_and(|all| all.iter().all(|node| is_named(*node) || reports(*node, at)))
    };
    members.iter().enumerate().map(is_known).collect()
}

fn figure(part: &NodePart<SeriesPart>, name: &str, at: usize) -> Option<f64> {
    let series = part.part.series.iter().find(|series| series.name == name)?;
    *series.values.get(at)?
}

/// What requests of an operation took at the nodes at a step.
fn times_at<'a>(
    parts: &'a [NodePart<SeriesPart>],
    operation: &'static str,
    at: usize,
) -> impl Iterator<Item = &'a LatencyHistogram> {
    let all = parts.iter().flat_map(|part| &part.part.times);
    all.filter(move |times| times.operation == operation)
        .filter_map(move |times| times.values.get(at)?.as_ref())
}

/// A figure for each step that is known.
fn together(
    kind: &'static SeriesKind,
    whose: Whose,
    parts: &[NodePart<SeriesPart>],
    known: &[bool],
) -> Series {
    // Whoever knows of the step has to know its figure: no sum leaves one out.
    let sum = |name: &str, at: usize| -> Option<f64> {
        let known = parts.iter().filter(|part| figure(part, ALWAYS_KNOWN, at).is_some());
        let figures = known.map(|part| figure(part, name, at)).collect::<Option<Vec<f64>>>()?;
        figures.into_iter().reduce(|sum, figure| sum + figure)
    };
    let value = |at| match kind.together {
        Together::Sum => sum(kind.name, at),
        // Of a node that did nothing there is none.
        Together::Largest => {
            parts.iter().filter_map(|part| figure(part, kind.name, at)).max_by(f64::total_cmp)
        }
        Together::Latency { operation, per_thousand } => {
            percentile_us(times_at(parts, OPERATIONS[operation], at), per_thousand)
        }
        Together::OneSidedShare => {
            let one_sided = sum(SEARCHES_ONE_SIDED, at)?;
            share(one_sided, one_sided + sum(SEARCHES_SERVER, at)?)
        }
    };
    let values = known.iter().enumerate().map(|(at, is_known)| is_known.then(|| value(at)).flatten());
    Series { name: kind.name, unit: kind.unit, node: whose, values: values.collect() }
}

/// Changes of settings since a time, oldest first.
pub(crate) fn marks(events: &EventLog, since_unix_ms: u64) -> Vec<Mark> {
    let settings = events.iter().filter(|event| event.kind == "setting" && event.at_unix_ms >= since_unix_ms);
    let mark = |event: &crate::event_log::Event| Mark {
        at_unix_ms: event.at_unix_ms,
        revision: event.details["revision"].as_str().unwrap_or_default().to_owned(),
        names: serde_json::from_value(event.details["names"].clone()).unwrap_or_default(),
    };
    settings.map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_node(node: u32, all: &[(&str, &[Option<f64>])]) -> NodePart<SeriesPart> {
        let figures = |(name, values): &(&str, &[Option<f64>])| Figures {
            name: (*name).to_owned(),
            values: values.to_vec(),
        };
        let part = SeriesPart { series: all.iter().map(figures).collect(), times: Vec::new() };
        NodePart { node: NodeId(node), part }
    }

    #[test]
    fn together_adds_takes_the_largest_and_makes_the_share_of_all() {
        let parts = [
            of_node(
                1,
                &[
                    ("ops_get", &[Some(1.0), None, None]),
                    ("sync_p99_us", &[Some(5.0), Some(7.0), None]),
                    (SEARCHES_SERVER, &[Some(90.0), Some(0.0), None]),
                    (SEARCHES_ONE_SIDED, &[Some(0.0), Some(0.0), None]),
                ],
            ),
            of_node(
                2,
                &[
                    ("ops_get", &[Some(2.0), Some(4.0), None]),
                    ("sync_p99_us", &[Some(6.0), None, None]),
                    (SEARCHES_SERVER, &[Some(0.0), Some(0.0), None]),
                    (SEARCHES_ONE_SIDED, &[Some(10.0), Some(0.0), None]),
                ],
            ),
        ];
        let values = |name| together(kind(name), Whose::All, &parts, &[true; 3]).values;
        assert_eq!(values("ops_get"), [Some(3.0), Some(4.0), None]);
        assert_eq!(values("sync_p99_us"), [Some(6.0), Some(7.0), None]);
        assert_eq!(values("one_sided_share"), [Some(0.1), None, None]);
    }

    /// Once a node had died, seconds in which it had served nearly all read as what the others had served.
    #[test]
    fn together_of_steps_that_a_member_does_not_report_is_not_known() {
        let nodes = |numbers: &[u32]| Some(numbers.iter().copied().map(NodeId).collect::<Vec<_>>());
        // Node 2 has died, after it had served; node 3 has come.
        let members = [None, nodes(&[1, 2]), nodes(&[1, 2]), nodes(&[1]), nodes(&[1, 3]), nodes(&[1, 3])];
        let own = [None, Some(1.0), Some(1.0), Some(1.0), Some(1.0), Some(1.0)];
        let new = [None, None, None, None, None, Some(7.0)];
        let parts = [of_node(1, &[("ops_get", &own[..])]), of_node(3, &[("ops_get", &new[..])])];
        let values = |known: &[bool]| together(kind("ops_get"), Whose::All, &parts, known).values;
        let shown = known(&members, &parts, &[]);
        assert_eq!(values(&shown), [None, None, None, Some(1.0), None, Some(8.0)]);
        // Who is a member and does not answer is named, and the others' figures are shown.
        let missing = [MissingPeer { node: 2, address: String::new(), why: String::new() }];
        let shown = known(&members, &parts, &missing);
        assert_eq!(values(&shown), [None, Some(1.0), Some(1.0), Some(1.0), None, Some(8.0)]);
    }

    /// A node that recovers does not know what it holds, and the others' entries passed for all.
    #[test]
    fn together_of_steps_of_which_a_member_knows_another_figure_alone_is_not_known() {
        let some = Some(5.0);
        let parts = [
            of_node(1, &[("ops_get", &[some; 3]), ("entries", &[some; 3]), ("sync_p99_us", &[some; 3])]),
            of_node(2, &[("ops_get", &[None, some, some]), ("entries", &[None, None, some])]),
        ];
        let values = |name| together(kind(name), Whose::All, &parts, &[true; 3]).values;
        assert_eq!(values("entries"), [some, None, Some(10.0)], "the first step it does not know at all");
        assert_eq!(values("sync_p99_us"), [some; 3], "it synced nothing");
    }

    #[test]
    fn kinds_that_are_not_kept_are_named() {
        assert_eq!(kinds("ops_get,entries").unwrap().len(), 2);
        for wrong in ["", ",", "ops_get,nothing"] {
            assert_eq!(kinds(wrong).unwrap_err().errors[0].pointer, "/query/names", "{wrong}");
        }
        assert!(whose(Some("x")).is_err() && whose(Some("3")).unwrap() == Whose::Node(3));
    }

    #[test]
    fn whose_figures_they_are_is_a_number_or_all() {
        let text = |whose| serde_json::to_string(&whose).unwrap();
        assert_eq!((text(Whose::All), text(Whose::Node(3))), ("\"all\"".into(), "3".into()));
    }

    /// The p50 of a cluster was once that of its slowest node.
    #[test]
    fn together_of_latencies_is_the_percentile_of_all_requests() {
        let of_node = |node, bucket: u8, count: u64| {
            let text = format!(r#"{{"buckets": [[{bucket}, {count}]], "sum_ns": 1, "max_ns": 99000000000}}"#);
            let values = vec![serde_json::from_str(&text).unwrap(), None];
            let times = vec![OperationTimes { operation: "put".to_owned(), values }];
            NodePart { node: NodeId(node), part: SeriesPart { series: Vec::new(), times } }
        };
        let values = |parts: &[_], name| together(kind(name), Whose::All, parts, &[true; 2]).values;
        let fast = values(&[of_node(1, 20, 99)], "latency_put_p50_us")[0].unwrap();
        let parts = [of_node(1, 20, 99), of_node(2, 80, 1)];
        let both = values(&parts, "latency_put_p50_us");
        assert!((both[0].unwrap() - fast).abs() < fast / 10.0, "{both:?} {fast}");
        assert_eq!(both[1], None);
        assert!(values(&parts, "latency_put_max_us")[0].unwrap() > 1_000.0 * fast);
        assert_eq!(values(&parts, "latency_get_p50_us"), [None, None]);
    }

    /// All names once grew by two on the way to the peers, who then refused them.
    #[test]
    fn kinds_are_each_asked_for_once() {
        let all: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        let wanted = kinds(&format!("{},ops_get", all.join(","))).unwrap();
        assert_eq!((wanted.len(), with_parts(&wanted).len()), (KINDS.len(), KINDS.len()));
        assert_eq!(with_parts(&kinds("one_sided_share").unwrap()).len(), 4);
    }

    #[test]
    fn window_has_as_many_steps_as_times_and_ends_at_the_newest() {
        let steps = |window: Window| (window.numbers().count() as u64, window.count, window.last);
        assert_eq!(steps(Window::new(1, 0, 600, (1_000, 0))), (1, 1, 0));
        assert_eq!(steps(Window::new(1, 99, 600, (1_000, 0))), (100, 100, 99));
        assert_eq!(steps(Window::new(1, 1_002, 600, (1_000, 0))), (600, 600, 1_000));
        assert_eq!(steps(Window::new(1, 1_002, 600, (1_000, AHEAD))), (600, 600, 1_002), "for who is ahead");
    }
}
