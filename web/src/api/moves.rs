//! `GET /api/v1/moves`, `POST /api/v1/moves` and `POST /api/v1/moves:cancel`: planned moves of pairs. They
//! are rows of the coordinator; what they lead to the nodes do. A node shows them as it saw them last, too
//! (`scope=node`): that needs no coordinator, and is what the console looks at each second.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cell_cluster::{
    ClusterError, Coordinator, MemberRow, Members, MoveOutcome, MoveRefusal, MoveRow, Moves, PairRow, Table,
    WORDS_BYTES_MAX,
};
use cell_node::{NodeSnapshot, PAIRS_MAX, memory_keepers};
use cell_terms::{NodeId, PairId};
use serde::Serialize;

use crate::access::Caller;
use crate::api::document::{Document, Scope};
use crate::api::drain_figures::DrainsPart;
use crate::api::params::Params;
use crate::api::tuning_patch::object;
use crate::clock::now_unix_ms;
use crate::coordination::{CHANGE_PATIENCE, Unanswered};
use crate::problem::{FieldProblem, Problem};
use crate::shared::Shared;

/// Rows that are shown if nothing is said.
const ROWS: u64 = 512;
/// How long each end may take to say what it has.
const READ_DEADLINE: Duration = Duration::from_secs(1);
/// After a change of unknown outcome.
const LOOK: &str = "look with `cell region ls` (/api/v1/moves) before you repeat it";

/// Where a revision is from.
const LOOK_FIRST: &str = "ask with ?dry_run=1: the ETag of that answer is the revision";

/// A move, as it is shown.
#[derive(Debug, Serialize)]
struct MoveView {
    pair: u32,
    number: u64,
    from: u32,
    to: u32,
    stage: &'static str,
    why: String,
    bytes_done: u64,
    bytes_total: u64,
    outcome: Option<&'static str>,
    because: Option<String>,
    cancelled_by: Option<String>,
    /// When it came how far; null: it did not, or that is not known.
    wanted_unix_ms: Option<u64>,
    copying_unix_ms: Option<u64>,
    ready_unix_ms: Option<u64>,
    handed_unix_ms: Option<u64>,
    over_unix_ms: Option<u64>,
    /// How long the source had frozen the pair when it handed it over.
    frozen_ms: Option<u64>,
    /// The names of all that this shows but how far it is.
    revision: String,
}

#[derive(Debug, Serialize)]
struct MovesAnswer {
    moves: Vec<MoveView>,
    total: u64,
    truncated: bool,
}

#[derive(Debug, Serialize)]
struct MoveAnswer {
    r#move: MoveView,
    dry_run: bool,
}

impl From<MoveRow> for MoveView {
    fn from(row: MoveRow) -> MoveView {
        let revision = row.revision();
        let (outcome, because) = match row.outcome {
            None => (None, None),
            Some(MoveOutcome::Moved) => (Some("moved"), None),
            Some(MoveOutcome::Cancelled) => (Some("cancelled"), None),
            Some(MoveOutcome::GivenUp { why }) => (Some("given_up"), Some(why)),
            Some(MoveOutcome::Back { why }) => (Some("back"), Some(why)),
        };
        let times = row.times;
        let known = |ms: u64| (ms > 0).then_some(ms);
        MoveView {
            revision,
            cancelled_by: row.cancelled_by,
            wanted_unix_ms: known(times.wanted_ms),
            copying_unix_ms: known(times.copying_ms),
            ready_unix_ms: known(times.ready_ms),
            handed_unix_ms: known(times.handed_ms),
            over_unix_ms: known(times.over_ms),
            frozen_ms: known(times.frozen_ms).map(|frozen_ms| times.handed_ms.saturating_sub(frozen_ms)),
            pair: row.pair.0,
            number: row.number,
            from: row.source.node.0,
            to: row.target.node.0,
            stage: row.stage.name(),
            why: row.why,
            bytes_done: row.bytes_done,
            bytes_total: row.bytes_total,
            outcome,
            because,
        }
    }
}

/// Why nothing was done.
enum Refused {
    /// It cannot be so.
    Move(MoveRefusal),
    /// No such pair.
    NoPair(PairId),
    /// No such node lives.
    NoNode(NodeId),
    /// The node has no memory for it.
    NoMemory { node: NodeId, pair: PairId, bytes: u64, left: u64 },
    /// What it has left is kept for others.
    MemoryKept { node: NodeId },
    /// Its disk has no room for the pair's logs.
    NoDiskRoom { node: NodeId, pair: PairId },
    /// It holds as many pairs as it may.
    Full { node: NodeId },
    /// An end has died since.
    Ended,
}

/// What a call of the coordinator came to.
type Made = Result<MoveRow, Refused>;

/// `GET /api/v1/moves`: those under way, then the last ones of other pairs.
pub(crate) async fn get_moves(
    State(shared): State<Arc<Shared>>,
    mut params: Params,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    let limit = params.integer("limit", 1..=65_536, ROWS)?;
    params.end()?;
    let (snapshot, age) = shared.look();
    let list = |coordinator| Moves::new(coordinator).list();
    let mut rows = match scope {
        Scope::Cluster => {
            shared.coordination.call(CHANGE_PATIENCE, list).await.map_err(Unanswered::unread)?
        }
        Scope::Node => snapshot.cluster.moves.clone(),
    };
    rows.sort_by_key(|row| (!row.is_under_way(), row.pair));
    let total = rows.len() as u64;
    rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let truncated = total > rows.len() as u64;
    let moves = rows.into_iter().map(MoveView::from).collect();
    let answer = MovesAnswer { moves, total, truncated };
    Ok(axum::Json(Document::of_node(answer, age)).into_response())
}

/// The moves that are under way as a node saw them last, as JSON; not more than so many.
pub(crate) fn under_way(snapshot: &NodeSnapshot, rows: usize) -> serde_json::Value {
    let moves = snapshot.cluster.moves.iter().filter(|row| row.is_under_way());
    let views = moves.take(rows).cloned().map(MoveView::from);
    views.map(|view| serde_json::to_value(view).unwrap_or_default()).collect()
}

/// `POST /api/v1/moves`, with `{"pair": 3, "to": 1}`.
pub(crate) async fn post_move(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    mut params: Params,
    body: Bytes,
) -> Result<Response, Problem> {
    let dry_run = params.flag("dry_run")?;
    let reason = params.text("reason").filter(|reason| !reason.trim().is_empty());
    if reason.as_ref().is_some_and(|reason| reason.len() > WORDS_BYTES_MAX) {
        return Err(Params::refuse("reason", format!("a reason has at most {WORDS_BYTES_MAX} bytes")));
    }
    params.end()?;
    let [pair, to] = numbers(&body, ["pair", "to"])?;
    let why = match reason {
        Some(reason) => format!("{}: {reason}", caller.name),
        None => caller.name,
    };
    let (pair, to, seen) = (PairId(pair), NodeId(to), previewed(&headers, dry_run)?);
    let ends = shared.coordination.call(CHANGE_PATIENCE, move |coordinator| Ends::of(&coordinator, pair, to));
    let ends = made(ends.await.map_err(Unanswered::unstarted)?)?;
    if let Some(refused) = lacks_room(&shared, &ends).await {
        return Err(problem(refused));
    }
    let wanted = Wanted { pair, to, why, seen, dry_run };
    let begin = move |coordinator| begin(&coordinator, &wanted);
    let started = shared.coordination.call(CHANGE_PATIENCE, begin).await;
    let row = made(started.map_err(|error| if dry_run { error.unstarted() } else { error.undone(LOOK) })?)?;
    if !dry_run {
        tracing::info!(pair = pair.0, to = to.0, why = row.why, "a pair is to move");
    }
    Ok(answer(&shared, row, dry_run))
}

/// `POST /api/v1/moves:cancel`, with `{"pair": 3}`.
pub(crate) async fn post_cancel(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    params: Params,
    body: Bytes,
) -> Result<Response, Problem> {
    params.end()?;
    let [pair] = numbers(&body, ["pair"])?;
    let (pair, seen, who) = (PairId(pair), seen(&headers)?, caller.name.clone());
    let cancel = move |coordinator| cancel(&coordinator, pair, &who, seen.as_deref());
    let cancelled = shared.coordination.call(CHANGE_PATIENCE, cancel).await;
    let row = made(cancelled.map_err(|error| error.undone(LOOK))?)?;
    tracing::info!(pair = pair.0, who = caller.name, "a move of a pair is cancelled");
    Ok(answer(&shared, row, false))
}

fn answer(shared: &Shared, row: MoveRow, dry_run: bool) -> Response {
    let etag = HeaderValue::from_str(&format!("\"{}\"", row.revision()));
    let answer = MoveAnswer { r#move: row.into(), dry_run };
    let mut response = axum::Json(Document::of_node(answer, shared.look().1)).into_response();
    etag.into_iter().for_each(|etag| drop(response.headers_mut().insert(header::ETAG, etag)));
    response
}

/// The revision of the preview that a move is to be as; one that is only tried is its preview.
fn previewed(headers: &HeaderMap, dry_run: bool) -> Result<Option<String>, Problem> {
    match seen(headers)? {
        None if !dry_run => {
            let detail = "A move needs If-Match with the revision of its preview.";
            let problem = Problem::new(StatusCode::PRECONDITION_REQUIRED, "precondition_required", detail);
            Err(problem.next(LOOK_FIRST))
        }
        seen => Ok(seen),
    }
}

/// The revision that the caller has been shown, if it says so.
fn seen(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(given) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let text = given.to_str().ok().map(str::trim);
    let revision = text.and_then(|text| text.strip_prefix('"')?.strip_suffix('"'));
    revision.map(|revision| Some(revision.to_owned())).ok_or_else(|| {
        let detail = "it takes one revision in quotation marks, as the ETag of an answer has it".to_owned();
        let pointer = "/header/if-match".to_owned();
        Problem::bad_request(FieldProblem { pointer, detail, ..FieldProblem::default() }).next(LOOK_FIRST)
    })
}

/// The whole numbers that a body has under these names, and nothing else.
fn numbers<const N: usize>(body: &Bytes, names: [&str; N]) -> Result<[u32; N], Problem> {
    let mut fields = object(body)?;
    let wrong = |name: &str, detail: &str| {
        let (pointer, detail) = (format!("/{name}"), detail.to_owned());
        Problem::bad_request(FieldProblem { pointer, detail, ..FieldProblem::default() })
    };
    let mut found = [0; N];
    for (found, name) in found.iter_mut().zip(names) {
        let number = fields.remove(name).and_then(|value| value.as_u64());
        let number = number.and_then(|number| u32::try_from(number).ok());
        *found = number.ok_or_else(|| wrong(name, "it takes a whole number"))?;
    }
    match fields.keys().next() {
        Some(name) => Err(wrong(name, "it is not known here")),
        None => Ok(found),
    }
}

/// A move that is asked for.
struct Wanted {
    pair: PairId,
    to: NodeId,
    why: String,
    /// What the caller has been shown that it would be.
    seen: Option<String>,
    dry_run: bool,
}

fn begin(coordinator: &Arc<dyn Coordinator>, wanted: &Wanted) -> Result<Made, ClusterError> {
    let Wanted { pair, to, why, seen, dry_run } = wanted;
    let (pair, to) = (*pair, *to);
    let members = Members::new(Arc::clone(coordinator)).list()?;
    let Some(target) = MemberRow::present(&members, to) else {
        return Ok(Err(Refused::NoNode(to)));
    };
    let moves = Moves::new(Arc::clone(coordinator)).at(now_unix_ms());
    refusable(match dry_run {
        true => moves.plan(pair, target, why),
        false => moves.begin_as_seen(pair, target, why, seen.as_deref()),
    })
}

/// A pair, who has it, and who is to have it.
struct Ends {
    row: PairRow,
    source: Option<MemberRow>,
    target: MemberRow,
    /// The target keeps what memory it has left for pairs that it had.
    keeps_memory: bool,
}

impl Ends {
    fn of(
        coordinator: &Arc<dyn Coordinator>,
        pair: PairId,
        to: NodeId,
    ) -> Result<Result<Ends, Refused>, ClusterError> {
        let members = Members::new(Arc::clone(coordinator)).list()?;
        let Some(target) = MemberRow::present(&members, to).cloned() else {
            return Ok(Err(Refused::NoNode(to)));
        };
        let (rows, _) = Table::new(Arc::clone(coordinator)).pairs()?;
        let lives = |of| members.iter().any(|member| member.incarnation == of);
        let keepers = memory_keepers(&rows, MemberRow::present_rows(&members), lives);
        let keeps_memory = keepers.contains(&to);
        let Some(row) = rows.into_iter().find(|row| row.pair == pair) else {
            return Ok(Err(Refused::NoPair(pair)));
        };
        let source = members.into_iter().find(|member| row.owner == Some(member.incarnation));
        Ok(Ok(Ends { row, source, target, keeps_memory }))
    }
}

/// Whether a node has no room for one more pair, as drains and balance have it. Where an end does not say,
/// the copy shows it.
async fn lacks_room(shared: &Shared, ends: &Ends) -> Option<Refused> {
    let Ends { row, source, target, keeps_memory } = ends;
    let source = source.as_ref().filter(|source| source.node != target.node)?;
    if *keeps_memory {
        return Some(Refused::MemoryKept { node: target.node });
    }
    let (from, to) = tokio::join!(part_of(shared, source), part_of(shared, target));
    room_lacks(row.pair, target.node, from.as_ref(), &to?)
}

/// What a node lacks for a pair: room on its disk, a place among its pairs, or memory, by what was granted.
fn room_lacks(pair: PairId, node: NodeId, from: Option<&DrainsPart>, to: &DrainsPart) -> Option<Refused> {
    if to.disk_full {
        return Some(Refused::NoDiskRoom { node, pair });
    }
    if to.pairs.len() as u64 >= u64::from(PAIRS_MAX) {
        return Some(Refused::Full { node });
    }
    let bytes = from?.pairs.iter().find(|part| part.pair == pair.0)?.memory_bytes;
    let left = to.memory_available_bytes;
    (bytes > left).then_some(Refused::NoMemory { node, pair, bytes, left })
}

/// What a member says that it has.
async fn part_of(shared: &Shared, member: &MemberRow) -> Option<DrainsPart> {
    let (snapshot, _) = shared.look();
    if member.node == snapshot.node {
        return Some(DrainsPart::of(shared, &snapshot));
    }
    let path = "/api/v1/drains?scope=node";
    let (status, body) = shared.peers.send(member, Method::GET, path, None, READ_DEADLINE).await.ok()?;
    (status == StatusCode::OK).then(|| serde_json::from_slice(&body).ok()).flatten()
}

fn cancel(
    coordinator: &Arc<dyn Coordinator>,
    pair: PairId,
    who: &str,
    seen: Option<&str>,
) -> Result<Made, ClusterError> {
    let moves = Moves::new(Arc::clone(coordinator)).at(now_unix_ms());
    let under_way = moves.of(pair)?.filter(MoveRow::is_under_way);
    let Some(row) = under_way else {
        return Ok(Err(Refused::Move(MoveRefusal::NotUnderWay { pair })));
    };
    if seen.is_some_and(|seen| seen != row.revision()) {
        return Ok(Err(Refused::Move(MoveRefusal::Changed { pair })));
    }
    refusable(moves.cancel(row.name(), who))
}

/// A refusal is an answer.
fn refusable(row: Result<MoveRow, ClusterError>) -> Result<Made, ClusterError> {
    match row {
        Ok(row) => Ok(Ok(row)),
        Err(ClusterError::Move(refusal)) => Ok(Err(Refused::Move(refusal))),
        Err(ClusterError::PairUnknown { pair }) => Ok(Err(Refused::NoPair(pair))),
        Err(ClusterError::LeaseEnded { .. }) => Ok(Err(Refused::Ended)),
        Err(error) => Err(error),
    }
}

fn made<T>(made: Result<T, Refused>) -> Result<T, Problem> {
    made.map_err(problem)
}

fn problem(refused: Refused) -> Problem {
    let conflict = |code, detail: String| Problem::new(StatusCode::CONFLICT, code, detail);
    match refused {
        Refused::Move(refusal @ MoveRefusal::Changed { .. }) => {
            let detail = format!("Nothing was done: {refusal}.");
            Problem::new(StatusCode::PRECONDITION_FAILED, "stale_preview", detail)
                .next("look at what would be done now, with dry_run=1, and decide anew")
        }
        Refused::Move(refusal) => conflict("move_refused", sentence(&refusal.to_string()))
            .next("`cell region ls` shows who has it, and what moves"),
        Refused::Ended => {
            let detail =
                "The node that has the pair, or the one that is to have it, has just ended.".to_owned();
            conflict("move_refused", detail).next("wait until the pair is served, then try again")
        }
        Refused::NoMemory { node, pair, bytes, left } => {
            let detail = format!("{node} has memory for {left} bytes more, and {pair} takes {bytes}.");
            conflict("no_memory", sentence(&detail)).next("choose a node with more room, or give it more")
        }
        Refused::MemoryKept { node } => {
            let detail = format!(
                "{node} keeps what memory it has left for pairs that it had, and that wait to be recovered."
            );
            conflict("no_memory", sentence(&detail)).next(
                "`cell status` names them and says what helps; wait until they are served, or choose another node",
            )
        }
        Refused::NoDiskRoom { node, pair } => {
            let detail = format!("{node} has no room on its disk for the logs of {pair}.");
            conflict("no_disk_room", sentence(&detail)).next("make room on its disk, or choose another node")
        }
        Refused::Full { node } => {
            let detail = format!("{node} holds {PAIRS_MAX} pairs, as many as it may.");
            conflict("too_many_pairs", sentence(&detail))
                .next("choose another node, or move pairs away first")
        }
        Refused::NoPair(pair) => {
            Problem::not_found(format!("There is no {pair}.")).next("`cell region ls` lists the pairs")
        }
        Refused::NoNode(node) => Problem::not_found(format!("No {node} is in the cluster just now."))
            .next("`cell node ls` lists the nodes"),
    }
}

/// With a capital letter and a full stop.
pub(crate) fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    let end = if words.ends_with('.') { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use cell_cluster::{
        Missing, MoveStage, MoveTimes, NewPair, PairGeometry, PairState, ServingAddress, SimLink, Transaction,
    };
    use cell_node::{ClusterSnapshot, PairSnapshot};
    use cell_terms::{Durability, Incarnation};
    use serde_json::{Value, json};

    use super::*;
    use crate::api::conformity::covers;
    use crate::api::drain_figures::PairPart;
    use crate::move_events::tests::move_row;
    use crate::test_cluster::{TestAnswer, TestCluster, TestRequest};

    const GEOMETRY: PairGeometry =
        PairGeometry { node_region_bytes: 60, extent_region_bytes: 40, slot_bytes: 1, node_bytes: 1 };

    /// Enters a node that is asked there; its lease.
    fn enter(link: &SimLink, node: u32, http: SocketAddr) -> Incarnation {
        let incarnation = link.grant(3_600_000).unwrap().lease;
        let row = MemberRow {
            incarnation,
            node: NodeId(node),
            fabric: String::new(),
            http: http.to_string(),
            pid: 1,
            memory_limit_bytes: 0,
        };
        Members::new(Arc::new(link.clone())).enter(&row).unwrap();
        incarnation
    }

    /// What was granted to pair 1 at node 0 makes 10 bytes with its logs' buffers; its regions may grow to
    /// far more. Node 1 has as much left, node 2 a byte less.
    fn figures(node: &mut NodeSnapshot) {
        let pair = PairSnapshot { pair: PairId(1), granted_bytes: 7, ..PairSnapshot::default() };
        let (pairs, available) = match node.node.0 {
            0 => (vec![pair], 0),
            1 => (Vec::new(), 10),
            _ => (Vec::new(), 9),
        };
        (node.pairs, node.memory.available, node.memory.logs) = (pairs, available, 3);
    }

    /// Node 0 serves pair 1; nodes 1 and 2 have none.
    fn cluster() -> TestCluster {
        let cluster = TestCluster::start_with(3, &[], |sources| {
            let inner = Arc::clone(&sources.snapshots);
            let look = move || {
                let mut node = (*inner.snapshot()).clone();
                figures(&mut node);
                Arc::new(node)
            };
            crate::Sources { snapshots: Arc::new(look), ..sources }
        });
        let link = &cluster.nodes[0].link;
        let http = |node: usize| cluster.nodes[node].server.address();
        let owner = enter(link, 0, http(0));
        enter(link, 1, http(1));
        enter(link, 2, http(2));
        let table = Table::new(Arc::new(link.clone()));
        let new = NewPair { incarnation: owner, node: NodeId(0), geometry: GEOMETRY };
        let ownership = table.create_pair(&new).unwrap().ownership;
        let place = ServingAddress { address: String::new(), worker: 0, node_key: 0, extent_key: 0 };
        table.publish(ownership, Durability::Sync, &place).unwrap();
        cluster
    }

    fn post(cluster: &TestCluster, path: &str, body: &Value) -> TestAnswer {
        cluster.send(0, &TestRequest::new("POST", path).json(&body.to_string()))
    }

    /// Asks for a move as it is shown that it would be.
    fn begin_move(cluster: &TestCluster, query: &str, wanted: &Value) -> TestAnswer {
        let planned = post(cluster, "/api/v1/moves?dry_run=1", wanted);
        let revision = planned.header("etag").expect("a preview has a revision");
        let request = TestRequest::new("POST", &format!("/api/v1/moves{query}")).json(&wanted.to_string());
        cluster.send(0, &request.header("if-match", revision))
    }

    #[test]
    fn move_is_asked_for_shown_and_cancelled() {
        let cluster = cluster();
        let wanted = json!({"pair": 1, "to": 1});
        let before_ms = now_unix_ms();
        let planned = post(&cluster, "/api/v1/moves?dry_run=1", &wanted);
        assert_eq!((planned.status, &planned.body["dry_run"]), (200, &true.into()));
        assert_eq!(cluster.get(0, "/api/v1/moves").body["moves"], json!([]), "nothing was done");
        let started = begin_move(&cluster, "?reason=more%20room", &wanted);
        assert_eq!(started.status, 200, "{started:?}");
        let row = &started.body["move"];
        assert_eq!((&row["from"], &row["to"], &row["stage"]), (&0.into(), &1.into(), &"wanted".into()));
        assert!(row["why"].as_str().unwrap().ends_with(": more room"), "{row}");
        let shown = cluster.get(0, "/api/v1/moves");
        assert_eq!((&shown.body["moves"][0], &shown.body["total"]), (row, &1.into()));
        let again = post(&cluster, "/api/v1/moves?dry_run=1", &wanted);
        assert_eq!(again.problem(), (409, "move_refused"));
        let cancelled = post(&cluster, "/api/v1/moves:cancel", &json!({"pair": 1}));
        assert_eq!(cancelled.body["move"]["outcome"], "cancelled");
        let who = &cancelled.body["move"]["cancelled_by"];
        assert!(who.as_str().is_some_and(|who| row["why"].as_str().unwrap().starts_with(who)), "{who} {row}");
        for (at, of) in [("wanted_unix_ms", row), ("over_unix_ms", &cancelled.body["move"])] {
            let at = of[at].as_u64().unwrap();
            assert!((before_ms..=now_unix_ms()).contains(&at), "{at} {of}");
        }
        let nothing = post(&cluster, "/api/v1/moves:cancel", &json!({"pair": 1}));
        assert_eq!(nothing.problem(), (409, "move_refused"));
        let moves = Moves::new(Arc::new(cluster.nodes[0].link.clone()));
        begin_move(&cluster, "", &wanted);
        let name = moves.of(PairId(1)).unwrap().unwrap().name();
        moves.end(name, &MoveOutcome::GivenUp { why: "no room".to_owned() }).unwrap();
        let given_up = cluster.get(0, "/api/v1/moves");
        assert_eq!(given_up.body["moves"][0]["because"], "no room");
        let mut whole = cancelled.body.clone();
        whole["move"] = serde_json::to_value(MoveView::from(whole_row())).unwrap();
        assert_eq!(
            (&whole["move"]["frozen_ms"], &whole["move"]["handed_unix_ms"]),
            (&40.into(), &1_240.into())
        );
        let mut listed = given_up.body.clone();
        listed["moves"] = json!([whole["move"]]);
        covers("GET", "/api/v1/moves", &[shown.body, given_up.body, listed]);
        covers("POST", "/api/v1/moves", &[started.body, whole.clone()]);
        covers("POST", "/api/v1/moves:cancel", &[cancelled.body, whole]);
    }

    /// A node that left in order and is back has two rows until its former lease ends. The move went to the
    /// former life, and was given up when that lease ended.
    #[test]
    fn move_to_a_node_that_is_back_goes_to_its_present_life() {
        let cluster = cluster();
        let link = &cluster.nodes[0].link;
        let back = enter(link, 1, cluster.nodes[1].server.address());
        assert_eq!(begin_move(&cluster, "", &json!({"pair": 1, "to": 1})).status, 200);
        let started = Moves::new(Arc::new(link.clone())).of(PairId(1)).unwrap().unwrap();
        assert_eq!((started.target.node, started.target.incarnation), (NodeId(1), back));
    }

    /// One of which everything is known.
    fn whole_row() -> MoveRow {
        let times = MoveTimes {
            wanted_ms: 1_000,
            copying_ms: 1_050,
            ready_ms: 1_100,
            frozen_ms: 1_200,
            handed_ms: 1_240,
            over_ms: 1_300,
        };
        MoveRow {
            outcome: Some(MoveOutcome::Back { why: "it is slow".to_owned() }),
            cancelled_by: Some("ann".to_owned()),
            times,
            ..move_row(MoveStage::Handed)
        }
    }

    #[test]
    fn move_is_started_and_cancelled_as_it_was_shown_or_not_at_all() {
        let cluster = cluster();
        let wanted = json!({"pair": 1, "to": 1});
        let send = |path: &str, body: &Value, revision: &str| {
            let request = TestRequest::new("POST", path).json(&body.to_string());
            cluster.send(0, &request.header("if-match", &format!("\"{revision}\"")))
        };
        let revision = |answer: &TestAnswer| answer.body["move"]["revision"].as_str().unwrap().to_owned();
        let planned = post(&cluster, "/api/v1/moves?dry_run=1", &wanted);
        let seen = revision(&planned);
        assert_eq!(planned.header("etag"), Some(format!("\"{seen}\"").as_str()));
        // As drains do: what was not looked at is not done.
        let unseen = post(&cluster, "/api/v1/moves", &wanted);
        assert_eq!(unseen.problem(), (428, "precondition_required"));
        assert!(unseen.body["next"].as_str().unwrap().contains("dry_run"), "{unseen:?}");
        assert_eq!(cluster.get(0, "/api/v1/moves").body["moves"], json!([]));
        let started = send("/api/v1/moves", &wanted, &seen);
        assert_eq!((started.status, revision(&started)), (200, seen.clone()));
        let other = send("/api/v1/moves:cancel", &json!({"pair": 1}), "1.9.9.9.9");
        assert_eq!(other.problem(), (412, "stale_preview"));
        assert_eq!(send("/api/v1/moves:cancel", &json!({"pair": 1}), &seen).status, 200);
        let stale = send("/api/v1/moves", &wanted, &seen);
        assert_eq!(stale.problem(), (412, "stale_preview"), "it has moved since");
        let next = stale.body["next"].as_str().unwrap();
        assert!(next.contains("dry_run"), "{next}");
        let request = TestRequest::new("POST", "/api/v1/moves").json(&wanted.to_string());
        assert_eq!(cluster.send(0, &request.header("if-match", "*")).problem(), (400, "bad_request"));
    }

    #[test]
    fn moves_as_the_node_saw_them_last_need_no_coordinator() {
        let link = cell_cluster::Sim::new(9).link();
        link.set_cut(true);
        let cluster = TestCluster::start_with(1, &[], |sources| {
            let inner = Arc::clone(&sources.snapshots);
            let look = move || {
                let mut node = (*inner.snapshot()).clone();
                let over = MoveRow { pair: PairId(1), ..whole_row() };
                let moves = vec![over, move_row(MoveStage::Copying)];
                node.cluster = Arc::new(ClusterSnapshot { moves, ..(*node.cluster).clone() });
                Arc::new(node)
            };
            crate::Sources { snapshots: Arc::new(look), ..sources }.coordinator(Arc::new(link.clone()))
        });
        let unread = cluster.get(0, "/api/v1/moves");
        assert_eq!(unread.problem(), (503, "coordinator_down"));
        assert!(!unread.body["detail"].as_str().unwrap().contains("changed"), "{unread:?}");
        let seen = cluster.get(0, "/api/v1/moves?scope=node&limit=1");
        assert_eq!(
            (seen.status, &seen.body["total"], &seen.body["truncated"]),
            (200, &2.into(), &true.into())
        );
        assert_eq!(seen.body["moves"][0]["pair"], 3, "those under way come first: {seen:?}");
        assert_eq!(cluster.get(0, "/api/v1/moves").status, 503);
        let page = TestRequest::new("GET", "/status").exchange(cluster.nodes[0].server.address());
        assert!(page.contains("Pairs that move") && page.contains("ann: more room"), "{page}");
        assert!(!page.contains("it is slow"), "those under way alone: {page}");
    }

    #[test]
    fn move_that_cannot_be_says_why_and_what_next() {
        let cluster = cluster();
        let refused = |body: Value| {
            let answer = post(&cluster, "/api/v1/moves?dry_run=1", &body);
            assert!(answer.body["next"].is_string() || answer.status == 400, "{answer:?}");
            (answer.status, answer.body["code"].as_str().unwrap().to_owned())
        };
        let conflict = |code: &str| (409, code.to_owned());
        assert_eq!(refused(json!({"pair": 1, "to": 0})), conflict("move_refused"));
        assert_eq!(refused(json!({"pair": 1, "to": 7})).0, 404);
        assert_eq!(refused(json!({"pair": 9, "to": 1})).0, 404);
        for wrong in [json!({"pair": 1}), json!({"pair": "x", "to": 1}), json!({"pair": 1, "to": 1, "x": 1})]
        {
            assert_eq!(refused(wrong).0, 400);
        }
        assert_eq!(cluster.get(0, "/api/v1/moves").body["moves"], json!([]));
    }

    /// A dry run said that it could be, and the copy was given up.
    #[test]
    fn move_is_refused_to_a_node_with_a_full_disk_or_as_many_pairs_as_it_may_hold() {
        let pair = |pair| PairPart { pair, bytes: 1, memory_bytes: 10 };
        let part = |pairs: u32, disk_full| DrainsPart {
            state: "serving".to_owned(),
            uptime_ms: 1,
            memory_available_bytes: 10,
            disk_full,
            pairs: (1..=pairs).map(pair).collect(),
        };
        let from = part(1, false);
        let code =
            |to: &DrainsPart, from| room_lacks(PairId(1), NodeId(2), from, to).map(|why| problem(why).code);
        assert_eq!(code(&part(PAIRS_MAX - 1, false), Some(&from)), None);
        assert_eq!(code(&part(PAIRS_MAX, false), Some(&from)), Some("too_many_pairs"));
        assert_eq!(code(&part(0, true), Some(&from)), Some("no_disk_room"));
        assert_eq!(code(&part(0, true), None), Some("no_disk_room"), "whatever the pair takes");
        let small = DrainsPart { memory_available_bytes: 9, ..part(0, false) };
        assert_eq!(code(&small, Some(&from)), Some("no_memory"));
        assert_eq!(code(&small, None), None, "the copy shows it");
    }

    /// It began, and its target gave it up at once.
    #[test]
    fn move_is_refused_to_a_node_that_keeps_its_memory_for_a_pair_that_it_had() {
        let cluster = cluster();
        let link = &cluster.nodes[0].link;
        let (rows, _) = Table::new(Arc::new(link.clone())).pairs().unwrap();
        let (pair, missing) = (PairId(2), Missing::Memory { bytes: 1 });
        let had = PairRow {
            pair,
            node_region: pair.node_region(),
            extent_region: pair.extent_region(),
            owner: None,
            served_by: Some(NodeId(1)),
            state: PairState::Unavailable { missing },
            ..rows[0].clone()
        };
        let row = serde_json::to_string(&had).unwrap();
        link.transact(Transaction::new().put(PairRow::key(pair), row)).unwrap();
        let refused = post(&cluster, "/api/v1/moves?dry_run=1", &json!({"pair": 1, "to": 1}));
        assert_eq!(refused.problem(), (409, "no_memory"));
        let detail = refused.body["detail"].as_str().unwrap();
        assert!(detail.starts_with("Node-1 keeps what memory it has left for pairs that it had"), "{detail}");
    }

    /// It was decided by what regions could grow to, and so refused where balance moved pairs all the time.
    #[test]
    fn move_is_refused_by_what_was_granted_and_not_by_what_regions_could_grow_to() {
        let cluster = cluster();
        let tried = |to: u32| post(&cluster, "/api/v1/moves?dry_run=1", &json!({"pair": 1, "to": to}));
        // On a busy machine an end may not say in time what it has: then the copy shows it.
        let refused =
            (0..100).map(|_| tried(2)).find(|answer| answer.status != 200).expect("it lacks a byte");
        assert_eq!(refused.problem(), (409, "no_memory"));
        assert_eq!(refused.body["detail"], "Node-2 has memory for 9 bytes more, and pair-1 takes 10.");
        assert_eq!(tried(1).status, 200, "it has as much as was granted");
        assert_eq!(GEOMETRY.bytes(), 100, "far less than its regions could grow to");
    }
}
