//! `GET /api/v1/drains`, `POST /api/v1/drains`, `POST /api/v1/drains:end` and `POST /api/v1/nodes:remove`:
//! nodes that are to be emptied, and nodes that leave for good. They are rows of the coordinator; the
//! balancer moves the pairs.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use cell_cluster::{
    ClusterError, Coordinator, DrainAuthor, DrainPlanned, DrainRow, Drains, DrainsSeen, JoinedNodes,
    MemberRow, Members, NodeRefusal, Table, WORDS_BYTES_MAX,
};
use cell_node::NodeSnapshot;
use cell_placement::{DrainPlan, DrainRefusal};
use cell_terms::{Incarnation, NodeId};
use serde::Serialize;
use serde_json::Value;

use crate::access::Caller;
use crate::api::balance::why_nobody;
use crate::api::document::Document;
use crate::api::drain_figures::{DrainsPart, Rows};
use crate::api::drain_revision::{DrainRevision, stale};
use crate::api::gathered::{ClusterDocument, fitting};
use crate::api::moves::sentence;
use crate::api::params::Params;
use crate::api::tuning_patch::object;
use crate::clock::now_unix_ms;
use crate::coordination::{CHANGE_PATIENCE, Unanswered};
use crate::peers::{Gathered, MissingPeer, NodePart};
use crate::problem::{FieldProblem, Problem};
use crate::shared::Shared;

/// After so long it is said what keeps a node from being emptied.
const STALL_MS: u64 = 30_000;
const PATH: &str = "/api/v1/drains";
/// After a change of unknown outcome.
const LOOK: &str = "look with `cell node ls` (/api/v1/drains) before you repeat it";
/// Moves of a plan that are shown, at most in bytes of JSON.
const PLAN_BYTES_MAX: usize = 128 << 10;
/// Nodes that drain that are named where others were expected.
const NODES_NAMED: usize = 8;

/// A node that drains, or was removed.
#[derive(Debug, Serialize)]
pub(crate) struct DrainView {
    node: u32,
    who: String,
    why: Option<String>,
    since_unix_ms: u64,
    /// `draining`, `drained` or `removed`.
    state: &'static str,
    pairs_left: u64,
    /// Null: its node does not say.
    bytes_left: Option<u64>,
    stall: Option<String>,
}

/// `GET /api/v1/drains`.
pub(crate) struct DrainsDocument;

#[derive(Debug, Serialize)]
pub(crate) struct DrainsBody {
    drains: Vec<DrainView>,
}

impl ClusterDocument for DrainsDocument {
    type Part = DrainsPart;
    type Body = DrainsBody;
    const PATH: &'static str = PATH;

    fn part(shared: &Shared, snapshot: &NodeSnapshot) -> DrainsPart {
        DrainsPart::of(shared, snapshot)
    }

    fn body(
        _shared: &Shared,
        snapshot: &NodeSnapshot,
        parts: Vec<NodePart<DrainsPart>>,
        _missing: &[MissingPeer],
    ) -> DrainsBody {
        let cluster = &snapshot.cluster;
        let rows = Rows {
            members: cluster.members.clone(),
            pairs: cluster.pairs.clone(),
            drains: cluster.drains.clone(),
            moves: cluster.moves_that_bring(),
            nobody_balances: why_nobody(cluster).map(|why| format!("nobody balances: {why}")),
        };
        DrainsBody { drains: views(&rows, &parts, now_unix_ms()) }
    }
}

fn views(rows: &Rows, parts: &[NodePart<DrainsPart>], now_unix_ms: u64) -> Vec<DrainView> {
    rows.drains.iter().map(|row| view(row, rows, parts, now_unix_ms)).collect()
}

fn view(row: &DrainRow, rows: &Rows, parts: &[NodePart<DrainsPart>], now_unix_ms: u64) -> DrainView {
    let node = row.node;
    let pairs_left = rows.pairs_left(node);
    let reported = parts.iter().find(|part| part.node == node).map(|part| &part.part);
    let is_late = now_unix_ms.saturating_sub(row.since_unix_ms) >= STALL_MS;
    let waits = pairs_left > 0 && is_late;
    // What a balancer has noted says nothing any more where nobody balances.
    let idle = rows.nobody_balances.clone().filter(|_| waits);
    let stall = idle.or_else(|| row.stall.clone().filter(|_| pairs_left > 0));
    DrainView {
        node: node.0,
        who: row.who.clone(),
        why: row.why.clone(),
        since_unix_ms: row.since_unix_ms,
        state: match (row.removed, pairs_left) {
            (true, _) => "removed",
            (false, 0) => "drained",
            (false, _) => "draining",
        },
        pairs_left,
        bytes_left: reported.map(|reported| reported.pairs.iter().map(|pair| pair.bytes).sum()),
        stall: stall.or_else(|| rows.obstacle(parts, node).filter(|_| waits)),
    }
}

/// A move of a plan.
#[derive(Debug, Serialize)]
struct PlannedView {
    pair: u32,
    from: u32,
    to: u32,
    bytes: u64,
}

/// What a change of drains answers.
#[derive(Debug, Serialize)]
struct ChangeAnswer {
    nodes: Vec<u32>,
    /// Moves that are to come.
    moves: Vec<PlannedView>,
    /// As many as there are, also those that are not shown.
    moves_total: u64,
    bytes: u64,
    dry_run: bool,
    /// Of a preview: what its change is to name. Null: it was done.
    revision: Option<String>,
}

/// Which nodes a request is about.
#[derive(Clone, Debug)]
enum Which {
    Node(NodeId),
    /// All whose fabric address has this IP address.
    Host(String),
}

/// Why nothing was done.
enum Refused {
    Node(NodeRefusal),
    Plan(DrainRefusal),
    NoHost(String),
    Unknown(NodeId),
}

type Made<T> = Result<T, Refused>;

/// The rows, and what a drain that is planned from them is conditional on.
fn read_rows(coordinator: &Arc<dyn Coordinator>) -> Result<(Rows, DrainsSeen), ClusterError> {
    let seen = Drains::new(Arc::clone(coordinator)).seen()?;
    let rows = Rows {
        members: Members::new(Arc::clone(coordinator)).list()?,
        pairs: Table::new(Arc::clone(coordinator)).pairs()?.0,
        drains: seen.rows.clone(),
        ..Rows::default()
    };
    Ok((rows, seen))
}

/// `POST /api/v1/drains`, with `{"node": 3}` or `{"host": "10.0.0.5"}`.
pub(crate) async fn post_drain(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    mut params: Params,
    body: Bytes,
) -> Result<Response, Problem> {
    let (dry_run, reason) = (params.flag("dry_run")?, reason(&mut params)?);
    params.end()?;
    let (which, seen) = (which(&body)?, seen(&headers, dry_run)?);
    let mut plans = 1;
    let planned = loop {
        let planned = plan(&shared, &which, seen.as_ref()).await?;
        let Some(seen) = &seen else { break planned };
        match begin(&shared, &planned, seen.changes, &caller.name, reason.clone()).await? {
            Ok(()) => break planned,
            Err(Refused::Node(NodeRefusal::Changed)) if plans < DrainPlanned::PLANS_MAX => plans += 1,
            Err(refused) => return Err(problem(refused)),
        }
    };
    let Planned { nodes, plan, seen: read, .. } = planned;
    let plan = of_nodes(plan, &nodes);
    Ok(answer(shared.look().1, &nodes, &plan, dry_run.then_some(read.revision)))
}

/// A drain that may begin, and what that was decided from.
struct Planned {
    nodes: Vec<NodeId>,
    plan: DrainPlan,
    seen: DrainsSeen,
    /// The members that are to take the pairs.
    targets: Vec<Incarnation>,
}

/// Decides anew whether nodes can be emptied, for an author who was shown that.
async fn plan(shared: &Shared, which: &Which, shown: Option<&DrainRevision>) -> Result<Planned, Problem> {
    let read = shared.coordination.call(CHANGE_PATIENCE, |coordinator| read_rows(&coordinator)).await;
    let (rows, seen) = read.map_err(Unanswered::unstarted)?;
    let nodes = as_seen(nodes(which, &rows.members), shown)?;
    if let Some(shown) = shown.filter(|shown| shown.changes != seen.revision && !rows.all_drain(&nodes)) {
        return Err(changed(shown, &rows.drains));
    }
    // Its words are plainer than those of a plan.
    let asked = nodes.clone();
    let check = move |coordinator| refusable(Drains::new(coordinator).check(&asked));
    let checked = shared.coordination.call(CHANGE_PATIENCE, check).await;
    problem_of(checked.map_err(Unanswered::unstarted)?)?;
    let (snapshot, _) = shared.look();
    let own = DrainsPart::of(shared, &snapshot);
    let Gathered { parts, .. } = shared.peers.gather(&snapshot, own, &format!("{PATH}?scope=node")).await;
    let plan = problem_of(rows.plan(&parts, &nodes).map_err(Refused::Plan))?;
    let takes = |member: &&MemberRow| plan.moves.iter().any(|planned| planned.to == member.node);
    let targets =
        MemberRow::present_rows(&rows.members).filter(takes).map(|member| member.incarnation).collect();
    Ok(Planned { nodes, plan, seen, targets })
}

/// Begins it, if all is still so that it was shown and decided from.
async fn begin(
    shared: &Shared,
    planned: &Planned,
    shown: u64,
    who: &str,
    reason: Option<String>,
) -> Result<Made<()>, Problem> {
    let Planned { nodes, seen, targets, .. } = planned;
    let (nodes, seen, targets, who) = (nodes.clone(), seen.clone(), targets.clone(), who.to_owned());
    let begin = move |coordinator| {
        let author = DrainAuthor { who: &who, why: reason.as_deref(), now_unix_ms: now_unix_ms() };
        let planned = DrainPlanned { seen: &seen, targets: &targets };
        let drains = Drains::new(coordinator).as_seen(shown);
        let rows = refusable(drains.begin_as_seen(&nodes, &author, &planned))?;
        Ok(rows.map(|rows| (rows, who)))
    };
    let started =
        shared.coordination.call(CHANGE_PATIENCE, begin).await.map_err(|error| error.undone(LOOK))?;
    Ok(started.map(|(rows, who)| {
        let nodes: Vec<NodeId> = rows.iter().map(|row| row.node).collect();
        tracing::info!(?nodes, who, "nodes are to be emptied");
    }))
}

/// `POST /api/v1/drains:end`, with `{"node": 3}` or `{"host": "10.0.0.5"}`.
pub(crate) async fn post_end(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    mut params: Params,
    body: Bytes,
) -> Result<Response, Problem> {
    let dry_run = params.flag("dry_run")?;
    params.end()?;
    let (which, seen) = (which(&body)?, seen(&headers, dry_run)?);
    let read = shared.coordination.call(CHANGE_PATIENCE, |coordinator| read_rows(&coordinator)).await;
    let (rows, DrainsSeen { revision: changes, .. }) = read.map_err(Unanswered::unstarted)?;
    if let Some(seen) = seen.as_ref().filter(|seen| seen.changes != changes) {
        return Err(changed(seen, &rows.drains));
    }
    let nodes = as_seen(nodes_to_end(&which, &rows), seen.as_ref())?;
    let ended = nodes.clone();
    let end = move |coordinator| {
        let drains = Drains::new(coordinator);
        refusable(match seen {
            None => drains.check_end(&ended),
            Some(seen) => drains.as_seen(seen.changes).end(&ended).map(drop),
        })
    };
    let made = shared.coordination.call(CHANGE_PATIENCE, end).await;
    problem_of(made.map_err(|error| if dry_run { error.unstarted() } else { error.undone(LOOK) })?)?;
    if !dry_run {
        tracing::info!(?nodes, who = caller.name, "nodes are not to be emptied any more");
    }
    Ok(answer(shared.look().1, &nodes, &nothing(), dry_run.then_some(changes)))
}

/// Of a host those that drain; if none does, all of it, for what is said then.
fn nodes_to_end(which: &Which, rows: &Rows) -> Made<Vec<NodeId>> {
    let of_host = match which {
        Which::Node(node) => return Ok(vec![*node]),
        Which::Host(_) => nodes(which, &rows.members)?,
    };
    let drains = |node: &NodeId| rows.drains.iter().any(|row| row.node == *node);
    let draining: Vec<NodeId> = of_host.iter().copied().filter(drains).collect();
    Ok(if draining.is_empty() { of_host } else { draining })
}

/// `POST /api/v1/nodes:remove`, with `{"node": 3}`.
pub(crate) async fn post_remove(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    mut params: Params,
    body: Bytes,
) -> Result<Response, Problem> {
    let (dry_run, reason) = (params.flag("dry_run")?, reason(&mut params)?);
    params.end()?;
    let Which::Node(node) = which(&body)? else {
        return Err(wrong("/host", "one node is removed at a time"));
    };
    let seen = seen(&headers, dry_run)?;
    seen.iter().try_for_each(|seen| seen.check_nodes(&[node]))?;
    // This node may not have looked at the cluster since that one joined. In a table of an earlier version,
    // what it has seen may be all that is known of that one.
    let has_seen = shared.knows_node(node.0);
    let who = caller.name;
    let remove = move |coordinator: Arc<dyn Coordinator>| {
        let drains = Drains::new(Arc::clone(&coordinator));
        let changes = drains.revision()?;
        if !has_seen && !is_in_rows(&coordinator, node)? {
            return Ok(Err(Refused::Unknown(node)));
        }
        let author = DrainAuthor { who: &who, why: reason.as_deref(), now_unix_ms: now_unix_ms() };
        let removed = match seen {
            None => drains.check_remove(node),
            Some(seen) => drains.as_seen(seen.changes).remove(node, &author).map(drop),
        };
        Ok(refusable(removed)?.map(|()| (who, changes)))
    };
    let removed = shared.coordination.call(CHANGE_PATIENCE, remove).await;
    let undone = |error: Unanswered| if dry_run { error.unstarted() } else { error.undone(LOOK) };
    let (who, changes) = problem_of(removed.map_err(undone)?)?;
    if !dry_run {
        tracing::info!(node = node.0, who, "a node is removed from the cluster");
    }
    Ok(answer(shared.look().1, &[node], &nothing(), dry_run.then_some(changes)))
}

/// Whether a node has joined, or any other row tells that it is or was there.
fn is_in_rows(coordinator: &Arc<dyn Coordinator>, node: NodeId) -> Result<bool, ClusterError> {
    let has_joined = JoinedNodes::new(Arc::clone(coordinator)).has(node)?;
    Ok(has_joined || read_rows(coordinator)?.0.knows(node))
}

/// What the author of a change has been shown; nothing of one that is only tried.
fn seen(headers: &HeaderMap, dry_run: bool) -> Result<Option<DrainRevision>, Problem> {
    if dry_run { Ok(None) } else { DrainRevision::in_headers(headers).map(Some) }
}

/// The nodes that a change is about, if they are those of its preview.
fn as_seen(nodes: Made<Vec<NodeId>>, seen: Option<&DrainRevision>) -> Result<Vec<NodeId>, Problem> {
    if let (Err(Refused::NoHost(_)), Some(seen)) = (&nodes, seen) {
        seen.check_nodes(&[])?;
    }
    let nodes = problem_of(nodes)?;
    seen.map_or(Ok(()), |seen| seen.check_nodes(&nodes))?;
    Ok(nodes)
}

/// Others have changed drains since a preview: which there are now.
fn changed(seen: &DrainRevision, drains: &[DrainRow]) -> Problem {
    let words = |row: &DrainRow| {
        let what = if row.removed { "was removed by" } else { "drains, by" };
        format!("{} {what} {}", row.node, row.who)
    };
    let now: Vec<String> = drains.iter().take(NODES_NAMED).map(words).collect();
    let now = if now.is_empty() { "no node drains".to_owned() } else { now.join("; ") };
    let more = drains.len().saturating_sub(NODES_NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    stale(&format!("drains were changed since revision {seen} was shown; now {now}{more}"))
}

/// What a change answers, or its preview, which was made of this revision of the drains.
fn answer(age: Duration, nodes: &[NodeId], plan: &DrainPlan, preview: Option<u64>) -> Response {
    let revision = preview.map(|changes| DrainRevision::of(changes, nodes));
    let document = Document::of_node(change(nodes, plan, revision.as_ref()), age);
    let document = axum::Json(document);
    match revision {
        Some(revision) => (revision.etag(), document).into_response(),
        None => document.into_response(),
    }
}

fn nothing() -> DrainPlan {
    DrainPlan { moves: Vec::new(), bytes: 0 }
}

/// The part of a plan that is about these nodes: others may drain already.
fn of_nodes(plan: DrainPlan, nodes: &[NodeId]) -> DrainPlan {
    let mut moves = plan.moves;
    moves.retain(|planned| nodes.contains(&planned.from));
    let bytes = moves.iter().fold(0_u64, |sum, planned| sum.saturating_add(planned.bytes));
    DrainPlan { moves, bytes }
}

fn change(nodes: &[NodeId], plan: &DrainPlan, revision: Option<&DrainRevision>) -> ChangeAnswer {
    let view = |planned: &cell_placement::PlannedMove| PlannedView {
        pair: planned.pair.0,
        from: planned.from.0,
        to: planned.to.0,
        bytes: planned.bytes,
    };
    let mut moves: Vec<PlannedView> = plan.moves.iter().map(view).collect();
    let moves_total = moves.len() as u64;
    moves.truncate(fitting(&moves, PLAN_BYTES_MAX));
    let nodes = nodes.iter().map(|node| node.0).collect();
    let (dry_run, revision) = (revision.is_some(), revision.map(DrainRevision::to_string));
    ChangeAnswer { nodes, moves, moves_total, bytes: plan.bytes, dry_run, revision }
}

fn reason(params: &mut Params) -> Result<Option<String>, Problem> {
    let reason = params.text("reason").filter(|reason| !reason.trim().is_empty());
    if reason.as_ref().is_some_and(|reason| reason.len() > WORDS_BYTES_MAX) {
        return Err(Params::refuse("reason", format!("a reason has at most {WORDS_BYTES_MAX} bytes")));
    }
    Ok(reason)
}

fn wrong(pointer: &str, detail: &str) -> Problem {
    let (pointer, detail) = (pointer.to_owned(), detail.to_owned());
    Problem::bad_request(FieldProblem { pointer, detail, ..FieldProblem::default() })
}

/// Which nodes a body names: one, or those of a host.
fn which(body: &Bytes) -> Result<Which, Problem> {
    let mut fields = object(body)?;
    let (node, host) = (fields.remove("node"), fields.remove("host"));
    if let Some(name) = fields.keys().next() {
        return Err(wrong(
            &format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            "it is not known here",
        ));
    }
    match (node, host) {
        (Some(node), None) => {
            let number = node.as_u64().and_then(|number| u32::try_from(number).ok());
            number
                .map(|number| Which::Node(NodeId(number)))
                .ok_or_else(|| wrong("/node", "it takes a whole number"))
        }
        (None, Some(Value::String(host))) if !host.is_empty() => Ok(Which::Host(host)),
        (None, Some(_)) => Err(wrong("/host", "it takes an address, such as 10.0.0.5")),
        (Some(_), Some(_)) => Err(wrong("/host", "give a node or a host, not both")),
        (None, None) => Err(wrong("/node", "give a node's number, or a host")),
    }
}

/// The members that are meant, in the order of their numbers: they are listed in that in which they joined.
/// One that is named by its number need not be there.
fn nodes(which: &Which, members: &[MemberRow]) -> Made<Vec<NodeId>> {
    let host = match which {
        Which::Node(node) => return Ok(vec![*node]),
        Which::Host(host) => host,
    };
    let of_host = |member: &&MemberRow| {
        let place = member.fabric.rsplit_once(':').map_or(&*member.fabric, |(place, _)| place);
        place.trim_matches(['[', ']']) == host.trim_matches(['[', ']'])
    };
    let present = MemberRow::present_rows(members);
    let mut nodes: Vec<NodeId> = present.filter(of_host).map(|member| member.node).collect();
    nodes.sort_unstable();
    if nodes.is_empty() { Err(Refused::NoHost(host.clone())) } else { Ok(nodes) }
}

/// A refusal is an answer.
fn refusable<T>(done: Result<T, ClusterError>) -> Result<Made<T>, ClusterError> {
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(ClusterError::Node(refusal)) => Ok(Err(Refused::Node(refusal))),
        Err(error) => Err(error),
    }
}

fn problem_of<T>(made: Made<T>) -> Result<T, Problem> {
    made.map_err(problem)
}

fn problem(refused: Refused) -> Problem {
    let conflict = |code, words: &str, next: Cow<'static, str>| {
        Problem::new(StatusCode::CONFLICT, code, sentence(words)).next(next)
    };
    let list = "`cell node ls` lists the nodes";
    match refused {
        Refused::Node(refusal @ NodeRefusal::NotMember { .. }) => {
            Problem::not_found(sentence(&refusal.to_string())).next(list)
        }
        Refused::Unknown(node) => {
            let words = format!("No {node} is in the cluster, and none is known to have been.");
            Problem::not_found(words).next(list)
        }
        Refused::NoHost(host) => {
            Problem::not_found(format!("No node of the cluster is reached at {host:?}.")).next(list)
        }
        Refused::Node(refusal @ NodeRefusal::Changed) => stale(&refusal.to_string()),
        Refused::Node(refusal) => {
            let words = refusal.to_string();
            let next: Cow<'static, str> = match refusal {
                NodeRefusal::LastNode => "add a node first, or undrain another one".into(),
                NodeRefusal::OwnsPairs { .. } => {
                    "drain it while it runs; the pairs of one that is gone are taken over by others: wait for that"
                        .into()
                }
                NodeRefusal::Runs { node } => {
                    format!("drain it first (`cell node drain {}`), or stop it", node.0).into()
                }
                NodeRefusal::Unreadable { .. } => {
                    "restart its process, which writes the row anew, or stop it; `cell status` names the row"
                        .into()
                }
                NodeRefusal::Removed { node, .. } => {
                    format!("`cell node undrain {}` permits the number again; else give another one", node.0)
                        .into()
                }
                _ => "`cell node ls` shows which nodes drain".into(),
            };
            conflict("node_refused", &words, next)
        }
        Refused::Plan(refusal) => {
            let next = match refusal {
                DrainRefusal::Unreported { .. } => "try again in a moment",
                DrainRefusal::NoRoom { why: Some(why), .. } if why.no_disk > 0 => {
                    "make room on the disks of logs that have none; `cell status` names them"
                }
                DrainRefusal::NoRoom { why: Some(why), .. } if why.keeping > 0 => {
                    "`cell status` names the pairs that wait, and says what helps"
                }
                DrainRefusal::NoRoom { .. } => {
                    "add a node, or give the others more memory (memory_limit_bytes)"
                }
                DrainRefusal::NobodyLeft => "add a node first, or undrain another one",
                _ => refusal.next().unwrap_or("`cell status` shows how the nodes are"),
            };
            conflict("drain_refused", &refusal.to_string(), next.into())
        }
    }
}

#[cfg(test)]
mod tests;
