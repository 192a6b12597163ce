//! Drills over HTTP. A node never runs a drill that is done to itself: such a request goes to another node.
//! Each node keeps the runs that it ran; a run's name says which node that is.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cell_cluster::MemberRow;
use cell_drill::{DrillError, FaultKind, Supervisors};
use cell_node::NodeSnapshot;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::access::Caller;
use crate::api::document::{Document, Scope};
use crate::api::drill_place::{self, FaultPlace, NamedAgent};
use crate::api::drill_preview;
use crate::api::gathered::{Shown, bytes_permitted, fitting, rows_wanted};
use crate::api::params::{Params, PathText};
use crate::api::tuning_patch::object;
use crate::clock::now_unix_ms;
use crate::drill::{BEGIN_WITHIN, DrillWanted, NotStarted, PREVIEW, RunPlace, RunRow, RunState, parameters};
use crate::idempotency::RepeatId;
use crate::peers::{Gathered, NodePart, others};
use crate::problem::{FieldProblem, Problem};
use crate::shared::Shared;
use crate::tokens;

/// How long another node may take to show a run.
const READ_DEADLINE: Duration = Duration::from_secs(1);
/// How long another node may take to halt a drill.
const HALT_DEADLINE: Duration = Duration::from_secs(6);
/// How long another node may take to begin a drill: it asks the others for their agents, begins then or does
/// not, and asks who has claimed it already; the rest is for the way there and back. Who gave up earlier
/// would ask the next node for a drill that may begin yet.
const BEGIN_DEADLINE: Duration =
    BEGIN_WITHIN.saturating_add(READ_DEADLINE.saturating_mul(2)).saturating_add(Duration::from_secs(1));
/// What distinguishes requests, from the node that one was sent to, to the node that runs the drill.
const REPEAT_FIELD: &str = "repeat_id";
/// Who asks, from the node that was asked to the node that runs the drill.
const WHO_FIELD: &str = "who";
/// Longest name of who asks, in bytes.
const WHO_MAX: usize = 100;
/// The token of who asks, which agents want, from the node that was asked to the node that runs the drill.
const TOKEN_FIELD: &str = "token";
/// A node's part with as few runs as can be: its agent is what is wanted.
const AGENT_PATH: &str = "/api/v1/drills?scope=node&limit=1";
const HALT: &str = ":halt";

/// A fault that can be done.
#[derive(Debug, Serialize)]
struct KindRow {
    kind: &'static str,
    meaning: &'static str,
    parameters: Value,
}

/// A node's part: what it ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct RunsPart {
    /// The newest of them, newest first.
    runs: Vec<RunRow>,
    /// How many it keeps.
    total: usize,
    /// Where the agent is that takes drills of it.
    agent: Option<String>,
}

impl RunsPart {
    /// Of all runs of a node, newest first.
    fn new(mut runs: Vec<RunRow>, rows: usize) -> RunsPart {
        let total = runs.len();
        limit(&mut runs, rows);
        RunsPart { runs, total, agent: None }
    }

    /// This node's own.
    fn own(shared: &Shared, rows: usize) -> RunsPart {
        RunsPart { agent: shared.sources.agent.clone(), ..RunsPart::new(shared.drills.rows(), rows) }
    }
}

/// Who the agent of each node is.
fn named(parts: &[NodePart<RunsPart>]) -> Vec<NamedAgent> {
    parts.iter().map(|NodePart { node, part }| (node.0, part.agent.clone())).collect()
}

/// Leaves at most so many runs, and no more of them than a document may have bytes: the newest one has them
/// all if it is that long. Gives how many are left.
fn limit(runs: &mut Vec<RunRow>, rows: usize) -> usize {
    runs.truncate(rows);
    runs.truncate(fitting(runs, bytes_permitted(rows)).max(1));
    runs.len()
}

/// The runs of all nodes, newest first, and how many there are.
fn listed(parts: impl IntoIterator<Item = RunsPart>, rows: usize) -> (Vec<RunRow>, Shown) {
    let (mut runs, mut total) = (Vec::new(), 0);
    for part in parts {
        total += part.total.max(part.runs.len());
        runs.extend(part.runs);
    }
    runs.sort_by_key(|run: &RunRow| std::cmp::Reverse(run.begun_unix_ms));
    let mut shown = Shown::default();
    shown.note(total, limit(&mut runs, rows));
    (runs, shown)
}

#[derive(Debug, Serialize)]
struct AllDrills {
    allowed: bool,
    why_not: Option<String>,
    kinds: Vec<KindRow>,
    runs: Vec<RunRow>,
    #[serde(flatten)]
    shown: Shown,
}

/// The answer to a request that began or halted one.
#[derive(Debug, Serialize)]
struct Started {
    operation: String,
    /// The node that runs it.
    runner: u32,
}

/// A run as a long operation.
#[derive(Debug, Serialize)]
struct DrillOperation {
    operation: &'static str,
    done: bool,
    #[serde(flatten)]
    run: RunRow,
}

/// `GET /api/v1/drills`.
pub(crate) async fn get_drills(
    State(shared): State<Arc<Shared>>,
    mut params: Params,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    let rows = rows_wanted(&mut params)?;
    params.end()?;
    let (snapshot, age) = shared.look();
    let own = RunsPart::own(&shared, rows);
    if scope == Scope::Node {
        return Ok(axum::Json(Document::of_node(own, age)).into_response());
    }
    let path = format!("/api/v1/drills?scope=node&limit={rows}");
    let Gathered { parts, missing } = shared.gather(&snapshot, own, &path).await;
    let place = match drill_place::of_folder(&shared).await {
        Ok(None) => drill_place::of_agents(&shared, &named(&parts)).map(drop),
        place => place.map(drop),
    };
    let why_not = place.err().map(|problem| problem.detail.to_string());
    let (runs, shown) = listed(parts.into_iter().map(|part| part.part), rows);
    let kind = |kind: FaultKind| KindRow {
        kind: kind.word(),
        meaning: kind.meaning(),
        parameters: parameters(kind),
    };
    let kinds = FaultKind::ALL.map(kind).into();
    let all = AllDrills { allowed: why_not.is_none(), why_not, kinds, runs, shown };
    Ok(axum::Json(Document::of_cluster(all, age, missing)).into_response())
}

/// `GET /api/v1/drills/{id}`.
pub(crate) async fn get_drill(
    State(shared): State<Arc<Shared>>,
    PathText(id): PathText<String>,
    mut params: Params,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    params.end()?;
    let run = find(&shared, &id, scope).await?;
    let (_, age) = shared.look();
    Ok(axum::Json(Document::of_node(run, age)).into_response())
}

/// A drill as `GET /api/v1/operations/{id}` shows it; none if no drill has such a name.
pub(crate) async fn operation(shared: &Shared, id: &str) -> Option<Result<Response, Problem>> {
    runner_of(id)?;
    let answer = |run: RunRow| {
        let (_, age) = shared.look();
        let shown = DrillOperation { operation: "drill", done: run.state.is_over(), run };
        axum::Json(Document::of_node(shown, age)).into_response()
    };
    Some(find(shared, id, Scope::Cluster).await.map(answer))
}

/// `POST /api/v1/drills`: begins one.
pub(crate) async fn post_drills(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    repeat_id: Option<Extension<RepeatId>>,
    headers: HeaderMap,
    mut params: Params,
    body: Bytes,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    params.end()?;
    let mut body = object(&body)?;
    let who = who(scope, &mut body, caller);
    let token = token(scope, &mut body, &headers);
    let repeat_id = match scope {
        Scope::Cluster => repeat_id.map(|Extension(RepeatId(id))| id),
        Scope::Node => body.remove(REPEAT_FIELD).and_then(|id| id.as_u64()),
    };
    let place = fault_place(&shared).await?;
    let mut wanted = DrillWanted::parse(body.clone())?;
    wanted.who = who;
    if scope == Scope::Cluster {
        drill_preview::check_seen(&shared, &wanted).await?;
        body.remove(PREVIEW); // another node would see another cluster
    }
    let (snapshot, _) = shared.look();
    if u32::from(wanted.node) == snapshot.node.0 {
        let survivors: Vec<_> = others(&snapshot).cloned().collect();
        if scope == Scope::Node || survivors.is_empty() {
            return Err(no_survivor(wanted.node));
        }
        body.insert(WHO_FIELD.to_owned(), wanted.who.into());
        if let FaultPlace::Agents(_) = place {
            body.insert(TOKEN_FIELD.to_owned(), token.into());
        }
        return forward(&shared, survivors, body, repeat_id).await;
    }
    let at = place.supervisors(&shared, &token);
    begin(shared, snapshot, at, wanted, repeat_id).await
}

/// Who does faults to all nodes. A node that does not say who its agent is keeps a drill from its begin.
async fn fault_place(shared: &Shared) -> Result<FaultPlace, Problem> {
    if let Some(place) = drill_place::of_folder(shared).await? {
        return Ok(place);
    }
    let (snapshot, _) = shared.look();
    let own = RunsPart::own(shared, 1);
    let Gathered { parts, missing } =
        shared.peers.gather_within(&snapshot, own, AGENT_PATH, READ_DEADLINE).await;
    let place = drill_place::of_agents(shared, &named(&parts))?;
    match missing.first() {
        None => Ok(place),
        Some(silent) => {
            let detail = format!("Node {} does not say who its agent is: {}.", silent.node, silent.why);
            Err(Problem::unavailable(detail).next("a drill begins with a healthy cluster: wait for it"))
        }
    }
}

/// The token of who asks: of what another node sends on, of who asked it.
fn token(scope: Scope, body: &mut Map<String, Value>, headers: &HeaderMap) -> String {
    let named = if scope == Scope::Node { body.remove(TOKEN_FIELD) } else { None };
    let named = named.as_ref().and_then(Value::as_str);
    named.or_else(|| tokens::bearer(headers)).unwrap_or_default().to_owned()
}

/// Who asks: of what another node sends on, who asked it.
fn who(scope: Scope, body: &mut Map<String, Value>, caller: Caller) -> String {
    let named = if scope == Scope::Node { body.remove(WHO_FIELD) } else { None };
    let named =
        named.as_ref().and_then(Value::as_str).map(|who| who[..who.floor_char_boundary(WHO_MAX)].to_owned());
    named.unwrap_or(caller.name)
}

/// `POST /api/v1/drills/{id}:halt`: takes the fault back and ends the drill.
pub(crate) async fn post_drill(
    State(shared): State<Arc<Shared>>,
    PathText(action): PathText<String>,
    Extension(caller): Extension<Caller>,
    mut params: Params,
    body: Bytes,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    params.end()?;
    let Some(id) = action.strip_suffix(HALT) else { return Err(Problem::method_not_allowed()) };
    let mut fields = if body.is_empty() { Map::new() } else { object(&body)? };
    let who = who(scope, &mut fields, caller);
    if let Some(name) = fields.keys().next() {
        let error = FieldProblem {
            pointer: format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            detail: "there is no such field: a halt needs none".to_owned(),
            ..FieldProblem::default()
        };
        return Err(Problem::bad_request(error).next("send no body, or {}"));
    }
    let (snapshot, _) = shared.look();
    if let Some(run) = shared.drills.find(id) {
        let before = run.halt(&who);
        if before.is_over() && before != RunState::Halted {
            return Err(over(id));
        }
        return Ok(accepted(&shared, id.to_owned(), snapshot.node.0));
    }
    let runner = runner_of(id).filter(|runner| scope == Scope::Cluster && *runner != snapshot.node.0);
    let Some(member) = runner.and_then(|runner| member(&snapshot, runner)) else { return Err(unknown(id)) };
    let path = format!("/api/v1/drills/{id}{HALT}?scope=node");
    let body = Some(serde_json::json!({WHO_FIELD: who}).to_string());
    let answer = shared.peers.send(&member, Method::POST, &path, body, HALT_DEADLINE).await;
    let (status, bytes) = answer.map_err(|why| unreachable(&member, &why))?;
    Ok(relayed(status, bytes, id))
}

/// Begins it here.
async fn begin(
    shared: Arc<Shared>,
    snapshot: Arc<NodeSnapshot>,
    at: Supervisors,
    wanted: DrillWanted,
    repeat_id: Option<u64>,
) -> Result<Response, Problem> {
    let coordinator = shared.sources.coordinator.clone();
    // Over hosts the drill's clients show what the agents are shown: who they are no kernel says there.
    let token = match &at {
        Supervisors::Folder(_) => shared.store.token(),
        Supervisors::Agents(agents) => agents.token.clone().into_bytes(),
    };
    let (runner, lease, trust) = (snapshot.node.0, snapshot.incarnation, shared.store.trust.clone());
    let place = RunPlace { at, runner, lease, coordinator, now_unix_ms, token, trust };
    let registry = Arc::clone(&shared);
    let started = tokio::task::spawn_blocking(move || registry.drills.begin(&place, wanted, repeat_id)).await;
    match started {
        // It may have been claimed by the same request before, at another node or by this one, whose agent
        // keeps the row of what it did not begin. Whether it runs its node knows.
        Ok(Ok((id, runner))) => {
            check_run_started(&id, runner, find(&shared, &id, Scope::Cluster).await)?;
            Ok(accepted(&shared, id, runner))
        }
        Ok(Err(why)) => Err(not_started(why)),
        Err(_) => Err(Problem::internal()),
    }
}

/// Has another node run it. If one is not reached, its answer is lost, or it cannot run drills itself, the
/// next one is asked: a number, which is drawn if the request has none, shows them that it is the same drill.
async fn forward(
    shared: &Shared,
    survivors: Vec<MemberRow>,
    mut body: Map<String, Value>,
    repeat_id: Option<u64>,
) -> Result<Response, Problem> {
    let repeat_id = repeat_id.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let has_token = body.contains_key(TOKEN_FIELD);
    body.insert(REPEAT_FIELD.to_owned(), repeat_id.into());
    let body = Value::Object(body).to_string();
    let (mut reasons, mut refused) = (Vec::new(), None);
    for member in survivors {
        if has_token && !shared.peers.keeps_secrets(&member) {
            reasons.push(format!(
                "node {}: it is on another host, and is sent no token in the clear",
                member.node.0
            ));
            continue;
        }
        let path = "/api/v1/drills?scope=node";
        match shared.peers.send(&member, Method::POST, path, Some(body.clone()), BEGIN_DEADLINE).await {
            Ok((status, answer)) if is_of_that_node(status) => refused = Some(relayed(status, answer, "")),
            Ok((status, answer)) => {
                let started: Option<Value> = serde_json::from_slice(&answer).ok();
                let id = started.as_ref().and_then(|started| started["operation"].as_str());
                let id = id.unwrap_or_default().to_owned();
                return Ok(relayed(status, answer, &id));
            }
            Err(why) => reasons.push(format!("node {}: {why}", member.node.0)),
        }
    }
    if let Some(refused) = refused {
        return Ok(refused);
    }
    let detail = format!("No other node could be asked to run the drill: {}.", reasons.join("; "));
    Err(Problem::unavailable(detail).next("wait until another node answers, or ask it yourself"))
}

/// Whether another node may answer otherwise: this one does not know the cluster's nodes, has no supervisor,
/// or does not reach what it needs.
fn is_of_that_node(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::SERVICE_UNAVAILABLE)
}

/// What another node answered, as it is.
fn relayed(status: StatusCode, body: Bytes, id: &str) -> Response {
    let is_good = status.is_success();
    let kind = if is_good { "application/json" } else { "application/problem+json" };
    let mut response = (status, [(header::CONTENT_TYPE, kind)], body).into_response();
    if is_good {
        locate(&mut response, id);
    }
    response
}

fn accepted(shared: &Shared, id: String, runner: u32) -> Response {
    let (_, age) = shared.look();
    let started = Document::of_node(Started { operation: id.clone(), runner }, age);
    let mut response = (StatusCode::ACCEPTED, axum::Json(started)).into_response();
    locate(&mut response, &id);
    response
}

fn locate(response: &mut Response, id: &str) {
    if let Ok(place) = HeaderValue::from_str(&format!("/api/v1/drills/{id}")) {
        response.headers_mut().insert(header::LOCATION, place);
    }
}

/// A run of this node, or of the node that its name names.
async fn find(shared: &Shared, id: &str, scope: Scope) -> Result<RunRow, Problem> {
    if let Some(run) = shared.drills.find(id) {
        return Ok(run.row());
    }
    let (snapshot, _) = shared.look();
    let runner = runner_of(id).filter(|runner| scope == Scope::Cluster && *runner != snapshot.node.0);
    let Some(member) = runner.and_then(|runner| member(&snapshot, runner)) else { return Err(unknown(id)) };
    let path = format!("/api/v1/drills/{id}?scope=node");
    match shared.peers.send(&member, Method::GET, &path, None, READ_DEADLINE).await {
        Ok((StatusCode::OK, body)) => serde_json::from_slice(&body)
            .map_err(|error| unreachable(&member, &format!("its answer cannot be read: {error}"))),
        Ok((StatusCode::NOT_FOUND, _)) => Err(unknown(id)),
        Ok((status, _)) => Err(unreachable(&member, &format!("it answers {status}"))),
        Err(why) => Err(unreachable(&member, &why)),
    }
}

/// The node that ran the drill of this name, `drill-NODE-DIGITS`. Other names are none of a drill, and never
/// part of an address that a peer is asked for.
fn runner_of(id: &str) -> Option<u32> {
    let (runner, digits) = id.strip_prefix("drill-")?.split_once('-')?;
    let is_name = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    runner.parse().ok().filter(|_| is_name)
}

fn member(snapshot: &NodeSnapshot, node: u32) -> Option<MemberRow> {
    others(snapshot).find(|member| member.node.0 == node).cloned()
}

fn conflict(code: &'static str, detail: String) -> Problem {
    Problem::new(StatusCode::CONFLICT, code, detail)
}

fn no_survivor(node: u16) -> Problem {
    let detail = format!(
        "A drill of node {node} is run by another node, and there is none: who runs it must outlive the \
         fault."
    );
    conflict("no_survivor", detail)
        .next(format!("`cell drill run kill --node {node}` runs it in a process of its own"))
}

fn over(id: &str) -> Problem {
    conflict("drill_over", format!("The drill {id} has ended already; there is nothing to halt."))
        .next(format!("`cell drill report {id}` shows how it ended"))
}

fn unknown(id: &str) -> Problem {
    let detail =
        format!("There is no drill `{id}`. A node keeps its last runs in memory, until it is restarted.");
    Problem::not_found(detail)
        .next("`cell drill report` without a name prints the newest; the console lists those that are kept")
}

fn unreachable(member: &MemberRow, why: &str) -> Problem {
    let detail = format!("Node {}, which runs the drill, does not answer: {why}.", member.node.0);
    Problem::unavailable(detail).next("try again in a second")
}

/// Whether a drill runs that a node has claimed, by what it shows of it: it may not begin yet.
fn check_run_started(id: &str, runner: u32, shown: Result<RunRow, Problem>) -> Result<(), Problem> {
    match shown {
        Ok(RunRow { state: RunState::Beginning, waits_for, .. }) => {
            let whom = waits_for.unwrap_or_else(|| "its turn".to_owned());
            Err(not_known_to_run(id, runner, &format!("It waits for {whom}.")))
        }
        Ok(_) => Ok(()),
        Err(why) => Err(not_known_to_run(id, runner, &why.detail)),
    }
}

/// A node has claimed a drill that was asked for twice, and does not show it, or not that it runs.
fn not_known_to_run(id: &str, runner: u32, why: &str) -> Problem {
    let detail = format!(
        "Node {runner} has claimed this drill ({id}), and has not started it so far as is known: {why}"
    );
    Problem::unavailable(detail)
        .next("ask again in a few seconds, with the same Idempotency-Key: it is not started twice")
}

fn not_started(why: NotStarted) -> Problem {
    match why {
        NotStarted::Late => {
            let detail = "No drill was started: another one took too long to begin, or the coordinator to \
                          answer.";
            Problem::unavailable(detail.to_owned()).next("try again in a second")
        }
        NotStarted::Busy(row) => {
            let detail = format!(
                "A drill is under way: {} ({} of node {}), run by node {}.",
                row.id, row.kind, row.node, row.runner
            );
            conflict("drill_running", detail).next("wait for its end, or halt it")
        }
        NotStarted::Coordinator(error) => {
            let detail = format!("The coordinator does not say whether another drill runs: {error}.");
            Problem::unavailable(detail).next("try again in a second")
        }
        NotStarted::Drill(error) => not_drilled(error),
        NotStarted::Thread(error) => {
            tracing::error!(%error, "no thread for a drill");
            Problem::internal()
        }
    }
}

/// Why the cluster cannot be drilled now.
fn not_drilled(error: DrillError) -> Problem {
    let words = format!("No drill was started: {error}.");
    match error {
        DrillError::NoSuchNode { .. } => {
            let pointer = "/node".to_owned();
            let error = FieldProblem { pointer, detail: error.to_string(), ..FieldProblem::default() };
            let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", words);
            Problem { errors: vec![error], ..problem.next("`cell node ls` lists the nodes") }
        }
        DrillError::Unhealthy { .. } => conflict("unhealthy", words)
            .next("wait until every node serves; `cell drill heal` takes back a fault that was left"),
        DrillError::NoSupervisor { path, why } => drill_place::no_supervisor(&path, &why),
        DrillError::Refused { next, .. } | DrillError::NotLetIn { next, .. } => {
            conflict("refused", words).next(next)
        }
        DrillError::AgentAway { .. } => Problem::unavailable(words).next(
            "see whether `cell agent` runs there, and whether its agent_address is reached from this node's \
             host",
        ),
        DrillError::Away { next, .. } => Problem::unavailable(words).next(next),
        _ => Problem::unavailable(words).next("try again in a second"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    use cell_cluster::Coordinator as _;
    use cell_drill::wire::{DrillAnswer, NodeView, Refused, Status};
    use cell_drill::{ClaimRow, drill_socket};
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::api::conformity::covers;
    use crate::test_cluster::{TestAnswer, TestCluster, TestRequest};
    use crate::test_snapshot::snapshot;
    use crate::{Sources, test_members};

    const DRILLS: &str = "/api/v1/drills";

    /// Nodes without a coordinator, and a supervisor that says once that all is well, then nothing until it
    /// is let go, and then that it stops.
    struct Drilled {
        cluster: TestCluster,
        let_go: Option<Sender<()>>,
        _folder: TempDir,
    }

    impl Drilled {
        fn start(nodes: u16) -> Drilled {
            let folder = TempDir::new().unwrap();
            let (let_go, held) = channel();
            let listener = UnixListener::bind(drill_socket(folder.path())).unwrap();
            thread::spawn(move || {
                supervise(&listener, nodes, &Arc::new((AtomicUsize::new(0), Mutex::new(held))))
            });
            let path = folder.path().to_owned();
            let more = move |sources: Sources| Sources { coordinator: None, ..sources.data_folder(&path) };
            let cluster = TestCluster::start_with(u32::from(nodes), &[], more);
            Drilled { cluster, let_go: Some(let_go), _folder: folder }
        }

        fn post(&self, node: usize, body: Value) -> TestAnswer {
            self.cluster.send(node, &TestRequest::new("POST", DRILLS).json(&body.to_string()))
        }

        fn kill(&self, asked: usize, victim: u16) -> TestAnswer {
            self.post(asked, json!({"kind": "kill", "node": victim, "confirm": format!("node-{victim}")}))
        }

        /// How a run looks at its end.
        fn ended(&mut self, node: usize, id: &str) -> Value {
            drop(self.let_go.take());
            let deadline = crate::clock::now() + Duration::from_secs(30);
            loop {
                let run = self.cluster.get(node, &format!("{DRILLS}/{id}")).body;
                if run["ended_unix_ms"].is_number() {
                    return run;
                }
                assert!(crate::clock::now() < deadline, "{run}");
                thread::park_timeout(Duration::from_millis(5));
            }
        }
    }

    fn supervise(listener: &UnixListener, nodes: u16, state: &Arc<(AtomicUsize, Mutex<Receiver<()>>)>) {
        for stream in listener.incoming() {
            let (stream, state) = (stream.unwrap(), Arc::clone(state));
            thread::spawn(move || answer(&stream, nodes, &state));
        }
    }

    fn view(node: u16) -> NodeView {
        let address = "127.0.0.1:1".parse().unwrap();
        NodeView {
            node,
            pid: Some(1),
            state: "serving".to_owned(),
            lives: 1,
            partitioned: false,
            partition: None,
            disk_delay_ms: 0,
            why: None,
            drained_by: None,
            drain_stall: None,
            server: address,
            http: address,
        }
    }

    fn answer(mut stream: &UnixStream, nodes: u16, (asked, held): &(AtomicUsize, Mutex<Receiver<()>>)) {
        let mut is_started = false;
        for line in BufReader::new(stream).lines() {
            let (line, mut said) = (line.unwrap(), DrillAnswer::default());
            match asked.fetch_add(1, Ordering::Relaxed) {
                0 => {
                    assert!(line.starts_with(r#"{"do":"begin","#), "{line}");
                    is_started = true;
                }
                1 => {
                    assert_eq!(line, r#"{"do":"status"}"#);
                    said.status = Some(Status { nodes: (0..nodes).map(view).collect(), ..Status::default() });
                }
                _ => {
                    // Who comes again has let others begin meanwhile, and is hung up on.
                    assert!(is_started, "a drill is run in the turn in which it was checked");
                    let _ = held.lock().unwrap().recv(); // nobody holds it any more
                    let (what, next) = ("it stops".to_owned(), "start it".to_owned());
                    said.refused = Some(Refused { what, next, is_away: true });
                }
            }
            writeln!(stream, "{}", serde_json::to_string(&said).unwrap()).unwrap();
        }
    }

    #[test]
    fn runs_are_as_the_document_says() {
        let node = |body| serde_json::to_value(Document::of_node(body, Duration::ZERO)).unwrap();
        let ended = crate::drill::test_row();
        let mut beginning = ended.clone();
        (beginning.state, beginning.report) = (RunState::Beginning, None);
        beginning.waits_for = Some("the agent at a:1".to_owned());
        covers("GET", "/api/v1/drills/drill-2-1", &[node(ended.clone()), node(beginning)]);
        let shown = DrillOperation { operation: "drill", done: true, run: ended };
        let shown = serde_json::to_value(Document::of_node(shown, Duration::ZERO)).unwrap();
        let mut running = shown.clone();
        running["report"] = Value::Null;
        covers("GET", "/api/v1/operations/drill-2-1", &[shown, running]);
        let part = RunsPart::new(vec![crate::drill::test_row()], 1);
        let part = serde_json::to_value(Document::of_node(part, Duration::ZERO)).unwrap();
        covers("GET", "/api/v1/drills?scope=node", &[part]);
    }

    /// One that another node has claimed and still waits to begin was said to run.
    #[test]
    fn drill_that_waits_for_its_begin_is_not_said_to_run() {
        let mut row = crate::drill::test_row();
        assert!(check_run_started("drill-2-1", 2, Ok(row.clone())).is_ok());
        (row.state, row.waits_for) = (RunState::Beginning, Some("the agent at a:1".to_owned()));
        let problem = check_run_started("drill-2-1", 2, Ok(row)).unwrap_err();
        assert_eq!(problem.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(problem.detail.ends_with("as is known: It waits for the agent at a:1."), "{problem:?}");
    }

    #[test]
    fn listed_runs_are_the_newest_that_fit_and_the_others_are_counted() {
        let run = |begun_unix_ms| {
            let mut row = crate::drill::test_row();
            row.begun_unix_ms = begun_unix_ms;
            row
        };
        let part = |started: std::ops::Range<u64>| started.rev().map(run).collect::<Vec<_>>();
        let parts = |rows| [RunsPart::new(part(0..200), rows), RunsPart::new(part(200..400), rows)];
        let (runs, shown) = listed(parts(512), 512);
        let bytes = serde_json::to_string(&runs).unwrap().len();
        assert!(runs.len() > 20 && bytes <= 256 << 10, "{} runs, {bytes} bytes", runs.len());
        assert!(runs.iter().map(|run| run.begun_unix_ms).eq((0..400).rev().take(runs.len())));
        let shown = serde_json::to_value(shown).unwrap();
        assert_eq!((&shown["total"], &shown["truncated"]), (&400.into(), &true.into()));
        assert_eq!(listed(parts(600), 600).0.len(), 400, "who asks for more gets them");
    }

    #[test]
    fn drill_is_seen_at_every_node_until_its_end_and_nobody_begins_another() {
        let mut drilled = Drilled::start(3);
        let started = drilled.kill(0, 1);
        assert_eq!((started.status, &started.body["runner"]), (202, &json!(0)), "{started:?}");
        let id = started.body["operation"].as_str().unwrap().to_owned();
        assert_eq!(started.header("location"), Some(&*format!("{DRILLS}/{id}")));
        let busy = drilled.kill(0, 2);
        assert_eq!(busy.problem(), (409, "drill_running"));
        assert!(busy.body["detail"].as_str().unwrap().contains(&id));
        for node in 0..3 {
            let all = drilled.cluster.get(node, DRILLS).body;
            assert_eq!(
                (&all["allowed"], &all["why_not"], &all["missing"]),
                (&json!(true), &Value::Null, &json!([]))
            );
            assert_eq!((&all["runs"][0]["id"], &all["runs"][1]), (&json!(id), &Value::Null));
            assert_eq!(all["kinds"].as_array().unwrap().len(), FaultKind::ALL.len());
            let run = drilled.cluster.get(node, &format!("/api/v1/operations/{id}")).body;
            assert_eq!(
                (&run["state"], &run["done"], &run["node"]),
                (&json!("running"), &json!(false), &json!(1))
            );
        }
        let run = drilled.ended(2, &id);
        assert_eq!(
            (&run["state"], &run["report"]["verdict"]),
            (&json!("inconclusive"), &json!("INCONCLUSIVE"))
        );
        assert_eq!(run["report"]["reasons"], json!(["it stops; start it"]));
        let late = drilled.cluster.send(1, &TestRequest::new("POST", &format!("{DRILLS}/{id}:halt")));
        assert_eq!(late.problem(), (409, "drill_over"));
    }

    #[test]
    fn drill_of_the_node_that_is_asked_is_run_by_another_and_halted_through_any() {
        let mut drilled = Drilled::start(2);
        let body = json!({"kind": "stop", "node": 1, "confirm": "node-1"}).to_string();
        let request = TestRequest::new("POST", DRILLS).json(&body).header("idempotency-key", "k");
        let started = drilled.cluster.send(1, &request);
        assert_eq!((started.status, &started.body["runner"]), (202, &json!(0)), "{started:?}");
        let id = started.body["operation"].as_str().unwrap().to_owned();
        assert_eq!(started.header("location"), Some(&*format!("{DRILLS}/{id}")));
        // Sent again to another node it is the same one.
        let again = drilled.cluster.send(0, &request);
        assert_eq!((again.status, &again.body["operation"]), (202, &json!(id)));
        assert_eq!(drilled.cluster.get(0, &format!("{DRILLS}/{id}")).body["who"], "admin");
        let halt = TestRequest::new("POST", &format!("{DRILLS}/{id}:halt")).json("{}");
        assert_eq!(drilled.cluster.send(1, &halt).status, 202);
        assert_eq!(drilled.cluster.get(1, &format!("{DRILLS}/{id}")).body["state"], "healing");
        let ended = drilled.ended(1, &id);
        assert_eq!((&ended["state"], &ended["halted_by"]), (&json!("halted"), &json!("admin")));
        assert_eq!(drilled.cluster.send(0, &halt).status, 202, "once more does no harm");
    }

    #[test]
    fn post_what_cannot_be_done_is_refused_with_what_to_do() {
        let drilled = Drilled::start(1);
        assert_eq!(drilled.kill(0, 0).problem(), (409, "no_survivor"));
        let bad = drilled.post(0, json!({"kind": "slow", "node": 1, "rate": 0}));
        assert_eq!((bad.problem(), bad.pointers()), ((422, "invalid"), vec!["/kind", "/rate"]));
        let unconfirmed = drilled.post(0, json!({"kind": "kill", "node": 1, "confirm": "node-2"}));
        assert_eq!(unconfirmed.problem(), (422, "not_confirmed"));
        let unknown = drilled.kill(0, 1);
        assert_eq!((unknown.problem(), unknown.pointers()), ((422, "invalid"), vec!["/node"]));
        let untyped = TestRequest::new("POST", DRILLS).raw(b"{}");
        assert_eq!(drilled.cluster.send(0, &untyped).problem(), (415, "unsupported_media_type"));
        for id in ["drill-0-7", "drill-9-7", "drill-x", "..%2Fnodes"] {
            let answer = drilled.cluster.get(0, &format!("{DRILLS}/{id}"));
            assert_eq!(answer.problem(), (404, "not_found"), "{id}");
        }
        let extra = TestRequest::new("POST", &format!("{DRILLS}/drill-0-7:halt")).json(r#"{"a":1}"#);
        assert_eq!(drilled.cluster.send(0, &extra).pointers(), ["/a"]);
    }

    /// Where an agent of this node listens. It says that all is well until a drill that was checked begins,
    /// and then that it stops; `asked` has each line that it was sent.
    fn agent(node: u16, asked: &Sender<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, asked) = (stream.unwrap(), asked.clone());
                thread::spawn(move || answer_as_agent(&stream, node, &asked));
            }
        });
        address
    }

    fn answer_as_agent(mut stream: &TcpStream, node: u16, asked: &Sender<String>) {
        let mut begins = 0;
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut said = DrillAnswer::default();
            begins += u32::from(line.contains(r#""do":"begin""#));
            if begins > 1 {
                let (what, next) = ("it stops".to_owned(), "start it".to_owned());
                said.refused = Some(Refused { what, next, is_away: true });
            } else if line.contains("status") || line.contains("nodes") {
                said.status = Some(Status { nodes: vec![view(node)], ..Status::default() });
            }
            let _ = asked.send(line); // the test may be over
            if writeln!(stream, "{}", serde_json::to_string(&said).unwrap()).is_err() {
                return;
            }
        }
    }

    /// Nodes without a coordinator, each with such an agent or none.
    fn with_agents(agents: &[Option<String>]) -> TestCluster {
        let nth = AtomicUsize::new(0);
        let nodes = u32::try_from(agents.len()).unwrap();
        TestCluster::start_with(nodes, &[], |sources| {
            let agent = agents[nth.fetch_add(1, Ordering::Relaxed)].clone();
            Sources { coordinator: None, ..sources.agent(agent) }
        })
    }

    /// The drills as all nodes report them: one that takes 200 ms is left out.
    fn whole(cluster: &TestCluster) -> Value {
        let deadline = crate::clock::now() + Duration::from_secs(30);
        loop {
            let all = cluster.get(0, DRILLS).body;
            if all["missing"] == json!([]) {
                return all;
            }
            assert!(crate::clock::now() < deadline, "{all}");
        }
    }

    #[test]
    fn drill_by_agents_shows_them_the_callers_token_whichever_node_runs_it() {
        for victim in [0, 1] {
            let (asked, lines) = channel();
            let cluster = with_agents(&[0, 1].map(|node| Some(agent(node, &asked))));
            let all = whole(&cluster);
            assert_eq!((&all["allowed"], &all["why_not"]), (&json!(true), &Value::Null));
            let body = json!({"kind": "kill", "node": victim, "confirm": format!("node-{victim}")});
            let request = TestRequest::new("POST", DRILLS).json(&body.to_string());
            let started = cluster.send(0, &request.header("authorization", "Bearer secret"));
            let runner = 1 - victim;
            assert_eq!((started.status, &started.body["runner"]), (202, &json!(runner)), "{started:?}");
            let id = started.body["operation"].as_str().unwrap();
            let deadline = crate::clock::now() + Duration::from_secs(30);
            while cluster.get(0, &format!("{DRILLS}/{id}")).body["ended_unix_ms"].is_null() {
                assert!(crate::clock::now() < deadline, "it does not end");
                thread::park_timeout(Duration::from_millis(5));
            }
            let run = cluster.get(0, &format!("{DRILLS}/{id}")).body;
            assert_eq!(run["report"]["reasons"], json!(["it stops; start it"]));
            let lines: Vec<String> = lines.try_iter().collect();
            let hellos: Vec<&String> = lines.iter().filter(|line| line.contains("wire")).collect();
            assert_eq!(hellos, [r#"{"wire":2,"token":"secret"}"#; 2]);
            let claim = u64::from_str_radix(id.rsplit_once('-').unwrap().1, 16).unwrap();
            let begin = format!(r#"{{"do":"begin","node":{victim},"claim":{claim}}}"#);
            assert_eq!(lines.iter().filter(|line| **line == begin).count(), 2, "{begin}: {lines:?}");
        }
    }

    /// Whoever gave up waiting for a node asked the next one: that one found the claim of the first, and said
    /// that the drill runs. It never did where an agent stood still.
    #[test]
    fn drill_that_a_node_has_claimed_and_not_started_is_not_said_to_run() {
        let (asked, lines) = channel();
        let (agents, nth) = ([0, 1, 2].map(|node| agent(node, &asked)), AtomicUsize::new(0));
        let cluster = TestCluster::start_with(3, &[], |sources| {
            sources.agent(Some(agents[nth.fetch_add(1, Ordering::Relaxed)].clone()))
        });
        whole(&cluster);
        let link = &cluster.nodes[2].link;
        let lease = link.grant(600_000).unwrap().lease;
        let (id, kind) = ("drill-0-7".to_owned(), "kill".to_owned());
        let claim = ClaimRow { id, runner: 0, kind, node: 1, repeat_id: Some(9), kept_by: None };
        assert_eq!(claim.take(link, lease).unwrap(), None);
        let body = json!({"kind": "kill", "node": 1, "confirm": "node-1", REPEAT_FIELD: 9}).to_string();
        let request = TestRequest::new("POST", "/api/v1/drills?scope=node").json(&body);
        let answer = cluster.send(2, &request);
        assert_eq!(answer.problem(), (503, "unavailable"), "{answer:?}");
        let words = answer.body["detail"].as_str().unwrap();
        assert!(words.contains("Node 0 has claimed this drill (drill-0-7)"), "{words}");
        // Its own one, which an agent keeps that has answered too late.
        claim.try_release(link).unwrap();
        let own = ClaimRow { id: "drill-2-8".to_owned(), runner: 2, kept_by: Some(lease.0), ..claim };
        assert_eq!(own.take(link, lease).unwrap(), None);
        let answer = cluster.send(2, &request);
        assert_eq!(answer.problem(), (503, "unavailable"), "{answer:?}");
        let words = answer.body["detail"].as_str().unwrap();
        assert!(words.contains("Node 2 has claimed this drill (drill-2-8)"), "{words}");
        assert_eq!(lines.try_iter().count(), 0, "nothing is asked of an agent");
    }

    /// The row of a member names any host. An agent there is sent no token without TLS either.
    #[tokio::test]
    async fn token_goes_to_no_other_host_in_the_clear() {
        let shared = Shared::new(Sources::new(Arc::new(|| Arc::new(snapshot()))));
        let far = MemberRow { http: "192.0.2.1:7080".to_owned(), ..test_members::member(4) };
        let Value::Object(body) = json!({"kind": "kill", TOKEN_FIELD: "secret"}) else { panic!("no object") };
        let problem = forward(&shared, vec![far], body, None).await.unwrap_err();
        let why = "node 4: it is on another host, and is sent no token in the clear";
        assert!(problem.status == 503 && problem.detail.contains(why), "{}", problem.detail);
    }

    #[test]
    fn drill_is_refused_where_a_node_has_no_agent_or_does_not_say_who_it_is() {
        let (asked, lines) = channel();
        let [first, other] = [0, 1].map(|node| agent(node, &asked));
        let kill = TestRequest::new("POST", DRILLS).json(r#"{"kind":"kill","node":1,"confirm":"node-1"}"#);
        let cluster = with_agents(&[Some(first.clone()), None]);
        let all = whole(&cluster);
        let why = all["why_not"].as_str().unwrap();
        assert!(all["allowed"] == false && why.contains("node 1 has no agent"), "{all}");
        let refused = cluster.send(0, &kill);
        assert_eq!(refused.problem(), (403, "drills_not_allowed"));
        assert_eq!(refused.body["detail"], why);

        let mut cluster = with_agents(&[Some(first), Some(other)]);
        cluster.nodes.remove(1).server.shutdown();
        let refused = cluster.send(0, &kill);
        assert_eq!(refused.problem(), (503, "unavailable"));
        assert!(refused.body["detail"].as_str().unwrap().contains("Node 1 does not say"), "{refused:?}");
        assert_eq!(lines.try_iter().count(), 0, "nothing is asked of an agent");
    }

    #[test]
    fn drills_of_a_cluster_that_allows_none_say_why() {
        let folder = TempDir::new().unwrap();
        for has_folder in [false, true] {
            let more =
                |sources: Sources| if has_folder { sources.data_folder(folder.path()) } else { sources };
            let cluster = TestCluster::start_with(1, &[], more);
            let all = cluster.get(0, DRILLS).body;
            assert_eq!(all["allowed"], false);
            let why = all["why_not"].as_str().unwrap();
            assert_eq!(why.contains("cell dev --allow-drills"), has_folder, "{why}");
            let body = json!({"kind": "kill", "node": 1, "confirm": "node-1"}).to_string();
            let refused = cluster.send(0, &TestRequest::new("POST", DRILLS).json(&body));
            assert_eq!(refused.problem(), (403, "drills_not_allowed"));
            assert_eq!(refused.body["detail"], why);
        }
    }

    /// A supervisor that had died once made drills look forbidden.
    #[test]
    fn drill_at_a_socket_where_nobody_listens_is_unavailable() {
        let folder = TempDir::new().unwrap();
        drop(UnixListener::bind(drill_socket(folder.path())).unwrap());
        let cluster = TestCluster::start_with(1, &[], |sources| sources.data_folder(folder.path()));
        let body = json!({"kind": "kill", "node": 1, "confirm": "node-1"}).to_string();
        let refused = cluster.send(0, &TestRequest::new("POST", DRILLS).json(&body));
        assert_eq!(refused.problem(), (503, "unavailable"));
    }

    #[test]
    fn socket_that_a_supervisor_left_behind_keeps_no_agent_from_drills() {
        let folder = TempDir::new().unwrap();
        drop(UnixListener::bind(drill_socket(folder.path())).unwrap());
        let (asked, _) = channel();
        let address = agent(0, &asked);
        let cluster = TestCluster::start_with(1, &[], |sources| {
            sources.agent(Some(address.clone())).data_folder(folder.path())
        });
        let all = whole(&cluster);
        assert_eq!((&all["allowed"], &all["why_not"]), (&json!(true), &Value::Null));
    }

    #[test]
    fn drill_of_the_node_that_is_asked_goes_on_to_the_next_if_one_cannot_run_it() {
        let supervised = Drilled::start(3);
        let socketless = TempDir::new().unwrap();
        let (path, empty) = (supervised._folder.path().to_owned(), socketless.path().to_owned());
        let nth = AtomicUsize::new(0);
        let cluster = TestCluster::start_with(3, &[], |sources| {
            let is_second = nth.fetch_add(1, Ordering::Relaxed) == 1;
            Sources { coordinator: None, ..sources.data_folder(if is_second { &empty } else { &path }) }
        });
        let body = json!({"kind": "kill", "node": 0, "confirm": "node-0"}).to_string();
        let started = cluster.send(0, &TestRequest::new("POST", DRILLS).json(&body));
        assert_eq!((started.status, &started.body["runner"]), (202, &json!(2)), "{started:?}");
    }

    /// A drill was once started whatever had become of its preview.
    #[test]
    fn drill_that_would_stop_something_else_than_its_preview_showed_is_refused() {
        let mut drilled = Drilled::start(3);
        let preview = drilled.cluster.get(0, &format!("{DRILLS}/preview?kind=stop&node=1")).body;
        let body =
            |revision: &Value| json!({"kind": "stop", "node": 1, "confirm": "node-1", "preview": revision});
        let other = drilled.post(0, body(&json!("0")));
        assert_eq!(other.problem(), (412, "stale_preview"));
        assert!(other.body["detail"].as_str().unwrap().contains("Node 1 owns"), "{other:?}");
        drilled.cluster.nodes.remove(2).server.shutdown();
        let survivor_less = drilled.post(0, body(&preview["revision"]));
        assert_eq!(survivor_less.problem(), (412, "stale_preview"));
        let preview = drilled.cluster.get(1, &format!("{DRILLS}/preview?kind=stop&node=1")).body;
        let started = drilled.post(1, body(&preview["revision"]));
        assert_eq!(started.status, 202, "{started:?}");
        let id = started.body["operation"].as_str().unwrap().to_owned();
        drilled.ended(0, &id);
    }

    #[test]
    fn preview_says_what_stops_and_names_bad_parameters() {
        let cluster = TestCluster::start(2);
        let preview = cluster.get(0, &format!("{DRILLS}/preview?kind=kill&node=1")).body;
        assert_eq!((&preview["confirm"], &preview["survivors"]), (&json!("node-1"), &json!([0])));
        assert_eq!((&preview["entries"], &preview["key_share"]), (&json!(9), &json!(0.5)));
        for (query, pointer) in [
            ("kind=x&node=1", "kind"),
            ("kind=kill&node=7", "node"),
            ("kind=kill&node=1&a", "a"),
            ("kind=slow-disk&node=1&delay_ms=2001", "delay_ms"),
        ] {
            let bad = cluster.get(0, &format!("{DRILLS}/preview?{query}"));
            assert_eq!((bad.status, bad.pointers()), (400, vec![&*format!("/query/{pointer}")]));
        }
    }
}
