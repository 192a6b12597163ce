//! `POST /api/v1/tree:check`: a check of the whole tree, each node's part by its own worker, beside all that
//! it does. `GET /api/v1/operations/{id}` shows how far it is and what it found.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cell_cluster::MemberRow;
use cell_node::{NodeSnapshot, NodeState, TreeLook};
use serde::{Deserialize, Serialize};
use serde_json::Map;
use tokio::task::JoinSet;

use crate::api::document::{Document, Scope};
use crate::api::params::Params;
use crate::api::tuning_patch::object;
use crate::clock::now_unix_ms;
use crate::peers::{MissingPeer, others};
use crate::problem::{FieldProblem, Problem};
use crate::shared::Shared;
use crate::tree_check::{CheckPart, PeerCheck, TreeCheck, runner_of};

/// How long another node may take to begin its part, or to say how far it is.
const DEADLINE: Duration = Duration::from_secs(1);

/// The answer to a request that began one.
#[derive(Debug, Serialize, Deserialize)]
struct Started {
    operation: String,
    /// The node that keeps the operation.
    runner: u32,
}

/// A check as a long operation.
#[derive(Debug, Serialize)]
struct CheckOperation {
    operation: &'static str,
    id: String,
    runner: u32,
    done: bool,
    state: &'static str,
    begun_unix_ms: u64,
    /// Of the node that took longest.
    duration_us: Option<u64>,
    tree_nodes: u64,
    /// Tree nodes in use when it began: how far it is.
    tree_nodes_all: u64,
    entries: u64,
    violations: u64,
    /// Pairs of the region table that nobody has gone through; empty until it is done.
    unchecked_pairs: Vec<u32>,
    nodes: Vec<CheckPart>,
}

/// What is read of a peer's operation.
#[derive(Deserialize)]
struct PeerOperation {
    nodes: Vec<CheckPart>,
}

/// `POST /api/v1/tree:check`.
pub(crate) async fn post_check(
    State(shared): State<Arc<Shared>>,
    mut params: Params,
    body: Bytes,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    params.end()?;
    let fields = if body.is_empty() { Map::new() } else { object(&body)? };
    if let Some(name) = fields.keys().next() {
        let error = FieldProblem {
            pointer: format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            detail: "there is no such field: a check needs none".to_owned(),
            ..FieldProblem::default()
        };
        return Err(Problem::bad_request(error).next("send no body, or {}"));
    }
    let (snapshot, age) = shared.look();
    let check = begin(&shared, &snapshot)?;
    if scope == Scope::Cluster {
        let peers = begin_at_peers(&shared, &snapshot).await;
        *check.peers() = peers;
    }
    let started = Started { operation: check.id.clone(), runner: check.runner };
    let mut response = (StatusCode::ACCEPTED, axum::Json(Document::of_node(started, age))).into_response();
    if let Ok(place) = HeaderValue::from_str(&format!("/api/v1/operations/{}", check.id)) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// Begins this node's part.
fn begin(shared: &Shared, snapshot: &NodeSnapshot) -> Result<Arc<TreeCheck>, Problem> {
    let look = look_of(shared, snapshot)?;
    let runner = snapshot.node.0;
    let check = shared.tree_checks.begin(|| TreeCheck::new(runner, now_unix_ms(), look.begin_check()));
    let check = check.ok_or_else(|| {
        let detail = format!("Too many checks of the tree are under way at node {runner}.");
        Problem::new(StatusCode::CONFLICT, "checks_running", detail).next("wait for their end")
    })?;
    tracing::info!(check = check.id, "a check of the tree begins");
    Ok(check)
}

/// The way to the worker, if it serves.
fn look_of(shared: &Shared, snapshot: &NodeSnapshot) -> Result<TreeLook, Problem> {
    let serves = matches!(snapshot.state, NodeState::Serving | NodeState::ReadOnly(_));
    shared.sources.tree.clone().filter(|_| serves).ok_or_else(|| {
        let detail =
            format!("Node {} does not serve, so its part of the tree cannot be checked.", snapshot.node.0);
        Problem::unavailable(detail).next("ask again when the node serves; /readyz?verbose says why")
    })
}

/// Has the other nodes begin their parts, all at a time.
async fn begin_at_peers(shared: &Shared, snapshot: &NodeSnapshot) -> Vec<PeerCheck> {
    let mut asked = JoinSet::new();
    for member in others(snapshot).cloned() {
        let peers = shared.peers.clone();
        asked.spawn(async move {
            let (path, body) = ("/api/v1/tree:check?scope=node", Some("{}".to_owned()));
            let answer = peers.send(&member, Method::POST, path, body, DEADLINE).await;
            let operation = answer.and_then(|(status, body)| read::<Started>(status, &body));
            PeerCheck::new(member, operation.and_then(name_of))
        });
    }
    let mut peers = asked.join_all().await;
    peers.sort_by_key(|peer| peer.member.node);
    peers
}

/// The name of a peer's operation, which becomes part of an address.
fn name_of(started: Started) -> Result<String, String> {
    match runner_of(&started.operation) {
        Some(_) => Ok(started.operation),
        None => Err("its answer cannot be read: it names no check".to_owned()),
    }
}

fn read<T: for<'d> Deserialize<'d>>(status: StatusCode, body: &Bytes) -> Result<T, String> {
    if !status.is_success() {
        return Err(format!("it answers {status}"));
    }
    serde_json::from_slice(body).map_err(|error| format!("its answer cannot be read: {error}"))
}

/// A check as `GET /api/v1/operations/{id}` shows it; none if no check has such a name.
pub(crate) async fn check_operation(shared: &Shared, id: &str) -> Option<Result<Response, Problem>> {
    let runner = runner_of(id)?;
    let (snapshot, age) = shared.look();
    if let Some(check) = shared.tree_checks.find(id) {
        hear_peers(shared, &check).await;
        let (operation, missing) = shown(&check, &snapshot);
        return Some(Ok(axum::Json(Document::of_cluster(operation, age, missing)).into_response()));
    }
    if runner == snapshot.node.0 {
        return Some(Err(unknown(id)));
    }
    let member = others(&snapshot).find(|member| member.node.0 == runner).cloned();
    let Some(member) = member else { return Some(Err(no_member(id, runner))) };
    Some(relayed(shared, &member, id).await)
}

/// What the node that keeps the operation says of it.
async fn relayed(shared: &Shared, member: &MemberRow, id: &str) -> Result<Response, Problem> {
    let path = format!("/api/v1/operations/{id}");
    // It asks its peers for their parts before it answers.
    let answer = shared.peers.send(member, Method::GET, &path, None, 2 * DEADLINE).await;
    match answer {
        Ok((StatusCode::OK, body)) => {
            Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
        }
        Ok((StatusCode::NOT_FOUND, _)) => Err(unknown(id)),
        Ok((status, _)) => Err(unreachable(member, &format!("it answers {status}"))),
        Err(why) => Err(unreachable(member, &why)),
    }
}

fn unknown(id: &str) -> Problem {
    let detail =
        format!("There is no check `{id}`. A node keeps its last checks in memory, until it is restarted.");
    Problem::not_found(detail).next("`cell tree check` begins one")
}

fn no_member(id: &str, runner: u32) -> Problem {
    let detail =
        format!("Node {runner}, which would keep the check `{id}`, is no member that this node knows.");
    Problem::not_found(detail)
        .next("ask again in a second if it has just joined; `cell tree check` begins one")
}

fn unreachable(member: &MemberRow, why: &str) -> Problem {
    let detail = format!("Node {}, which keeps the operation, does not answer: {why}.", member.node.0);
    Problem::unavailable(detail).next("try again in a second")
}

/// Asks the other nodes how far they are, all at a time.
async fn hear_peers(shared: &Shared, check: &TreeCheck) {
    let mut asked = JoinSet::new();
    for (at, peer) in check.peers().iter().enumerate().filter(|(_, peer)| !peer.is_over()) {
        let Ok(operation) = &peer.operation else { continue };
        let (peers, member) = (shared.peers.clone(), peer.member.clone());
        let path = format!("/api/v1/operations/{operation}");
        asked.spawn(async move {
            let answer = peers.send(&member, Method::GET, &path, None, DEADLINE).await;
            let operation = answer.and_then(|(status, body)| read::<PeerOperation>(status, &body));
            let part = operation.and_then(|mut operation| {
                let own = operation.nodes.iter().position(|part| part.node == member.node.0);
                own.map(|own| operation.nodes.swap_remove(own))
                    .ok_or("it does not report its part".to_owned())
            });
            (at, part)
        });
    }
    for (at, part) in asked.join_all().await {
        if let Some(peer) = check.peers().get_mut(at) {
            peer.on_answer(part);
        }
    }
}

/// All parts together, and whose are missing.
fn shown(check: &TreeCheck, snapshot: &NodeSnapshot) -> (CheckOperation, Vec<MissingPeer>) {
    let (mut nodes, mut missing) = (vec![check.own_part()], Vec::new());
    let mut done = nodes[0].done;
    for peer in check.peers().iter() {
        done &= peer.is_over();
        match peer.part() {
            Ok(part) => nodes.push(part.clone()),
            Err(why) => {
                let (node, address) = (peer.member.node.0, peer.member.http.clone());
                missing.push(MissingPeer { node, address, why });
            }
        }
    }
    nodes.sort_by_key(|part| part.node);
    let is_of_cluster = !check.peers().is_empty() || others(snapshot).next().is_none();
    let gone_through: BTreeSet<u32> = nodes.iter().flat_map(|part| part.pairs.iter().copied()).collect();
    let all = snapshot.cluster.pairs.iter().map(|row| row.pair.0);
    let unchecked_pairs: Vec<u32> =
        all.filter(|pair| done && is_of_cluster && !gone_through.contains(pair)).collect();
    let sum = |of: fn(&CheckPart) -> u64| nodes.iter().map(of).sum::<u64>();
    let violations = sum(|part| part.violations);
    let state = match (done, violations, missing.is_empty() && unchecked_pairs.is_empty()) {
        (false, ..) => "running",
        (true, 0, true) => "passed",
        (true, 0, false) => "incomplete",
        (true, ..) => "failed",
    };
    let operation = CheckOperation {
        operation: "tree_check",
        id: check.id.clone(),
        runner: check.runner,
        done,
        state,
        begun_unix_ms: check.begun_unix_ms,
        duration_us: if done { nodes.iter().filter_map(|part| part.duration_us).max() } else { None },
        tree_nodes: sum(|part| part.tree_nodes),
        tree_nodes_all: sum(|part| part.tree_nodes_all),
        entries: sum(|part| part.entries),
        violations,
        unchecked_pairs,
        nodes,
    };
    (operation, missing)
}

#[cfg(test)]
mod tests {
    use cell_node::ClusterSnapshot;
    use cell_node::TreeCheckRun;

    use super::*;
    use crate::api::conformity::covers;
    use crate::api::regions::tests::pair_row;
    use crate::test_cluster::{TestCluster, TestRequest};
    use crate::test_snapshot::snapshot;
    use crate::tree_check::tests::{part, peer};

    /// A check of a node whose own part is over or not, and of others.
    fn shown_of(own_done: bool, peers: Vec<PeerCheck>) -> (CheckOperation, Vec<MissingPeer>) {
        let run = if own_done { TreeCheckRun::ended(Vec::new()) } else { TreeCheckRun::default() };
        let check = TreeCheck::new(0, 1_000, Arc::new(run));
        *check.peers() = peers;
        let pairs = vec![pair_row(1, 70), pair_row(2, 70)];
        let cluster = Arc::new(ClusterSnapshot { pairs, ..ClusterSnapshot::default() });
        shown(&check, &NodeSnapshot { cluster, ..snapshot() })
    }

    fn answered(node: u32, done: bool, violations: u64) -> PeerCheck {
        let mut peer = peer(node, Ok("check-1-0"));
        peer.on_answer(Ok(part(node, done, violations)));
        peer
    }

    #[test]
    fn shown_adds_parts_up_and_says_what_was_not_gone_through() {
        let (operation, missing) = shown_of(true, vec![answered(1, true, 0), answered(2, false, 0)]);
        assert_eq!((operation.state, operation.done, operation.tree_nodes), ("running", false, 20));
        assert_eq!((operation.unchecked_pairs.len(), missing.len()), (0, 0));
        let (operation, _) = shown_of(true, vec![answered(1, true, 0), answered(2, true, 0)]);
        assert_eq!((operation.state, operation.duration_us, operation.entries), ("passed", Some(5), 200));
        let (operation, _) = shown_of(true, vec![answered(1, true, 0)]);
        assert_eq!((operation.state, &*operation.unchecked_pairs), ("incomplete", &[2][..]));
        let silent = vec![answered(1, true, 0), answered(2, true, 0), peer(3, Err("it is gone"))];
        let (operation, missing) = shown_of(true, silent);
        assert_eq!((operation.state, missing[0].node, &*missing[0].why), ("incomplete", 3, "it is gone"));
        let (operation, _) = shown_of(true, vec![answered(1, true, 2), answered(2, true, 0)]);
        assert_eq!((operation.state, operation.violations), ("failed", 2));
        let (operation, _) = shown_of(false, vec![answered(1, true, 2)]);
        assert_eq!((operation.state, operation.done), ("running", false));
    }

    #[test]
    fn answers_are_as_the_document_says() {
        let value = |operation, missing| {
            serde_json::to_value(Document::of_cluster(operation, Duration::ZERO, missing)).unwrap()
        };
        let (ended, none) = shown_of(true, vec![answered(1, true, 0)]);
        let silent = vec![answered(1, true, 2), peer(3, Err("it is gone"))];
        let (failed, missing) = shown_of(true, silent);
        let (running, _) = shown_of(false, vec![answered(1, false, 0)]);
        let answers = [value(ended, none), value(failed, missing), value(running, Vec::new())];
        covers("GET", "/api/v1/operations/check-0-1", &answers);
        let started = Started { operation: "check-0-1".to_owned(), runner: 0 };
        let started = serde_json::to_value(Document::of_node(started, Duration::ZERO)).unwrap();
        covers("POST", "/api/v1/tree:check", &[started]);
    }

    #[test]
    fn post_at_a_node_without_a_worker_and_names_that_are_none_are_problems() {
        let cluster = TestCluster::start(1);
        let answer = cluster.send(0, &TestRequest::new("POST", "/api/v1/tree:check").json("{}"));
        assert_eq!((answer.status, answer.body["code"].as_str()), (503, Some("unavailable")));
        let answer = cluster.send(0, &TestRequest::new("POST", "/api/v1/tree:check").json("{\"a\": 1}"));
        assert_eq!((answer.status, answer.pointers()), (400, vec!["/a"]));
        for id in ["check-0-0", "check-9-0", "check-0-x"] {
            let answer = cluster.get(0, &format!("/api/v1/operations/{id}"));
            assert_eq!(answer.status, 404, "{id}");
            let is_of_no_member =
                answer.body["detail"].as_str().unwrap().starts_with("Node 9, which would keep");
            assert_eq!(is_of_no_member, id == "check-9-0", "{}", answer.body);
        }
    }
}
