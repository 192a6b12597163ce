//! Drains and removals over HTTP, on simulated coordinators: what is done, refused and shown.

use std::sync::atomic::{AtomicBool, Ordering};

use cell_cluster::{
    ClusterTerms, CoordinatorRequest, Joining, LeaseTerms, Missing, MoveOutcome, MoveRow, MoveStage, NewPair,
    PairGeometry, PairRow, PairState, Response as CoordinatorAnswer, ServingAddress, SimLink,
};
use cell_node::PairSnapshot;
use cell_terms::{Durability, PairId};
use serde_json::json;

use super::*;
use crate::api::conformity::covers;
use crate::api::drain_figures::PairPart;
use crate::move_events::tests::move_row;
use crate::test_cluster::{TestAnswer, TestCluster, TestRequest};

const GEOMETRY: PairGeometry =
    PairGeometry { node_region_bytes: 60, extent_region_bytes: 40, slot_bytes: 1, node_bytes: 1 };

fn member(node: u32, incarnation: Incarnation) -> MemberRow {
    MemberRow {
        incarnation,
        node: NodeId(node),
        fabric: format!("10.0.0.{node}:7000"),
        http: String::new(),
        pid: 1,
        memory_limit_bytes: 0,
    }
}

fn enter(link: &SimLink, node: u32) -> Incarnation {
    let incarnation = link.grant(3_600_000).unwrap().lease;
    Members::new(Arc::new(link.clone())).enter(&member(node, incarnation)).unwrap();
    incarnation
}

/// Nodes 0 and 1, of which node 0 serves pair 1.
fn cluster() -> TestCluster {
    let cluster = TestCluster::start(2);
    let link = &cluster.nodes[0].link;
    let owner = enter(link, 0);
    enter(link, 1);
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

/// The same as a preview: what it answers, and the revision that it names.
fn preview(cluster: &TestCluster, path: &str, body: &Value) -> (TestAnswer, Option<String>) {
    let mark = if path.contains('?') { '&' } else { '?' };
    let answer = post(cluster, &format!("{path}{mark}dry_run=1"), body);
    let etag = answer.header("etag").map(str::to_owned);
    assert_eq!(etag, answer.body["revision"].as_str().map(|revision| format!("\"{revision}\"")));
    (answer, etag)
}

fn post_as_seen(cluster: &TestCluster, path: &str, body: &Value, revision: &str) -> TestAnswer {
    let request = TestRequest::new("POST", path).json(&body.to_string());
    cluster.send(0, &request.header("if-match", revision))
}

/// Makes a change as its preview shows it; what refuses the one refuses the other.
fn change_previewed(cluster: &TestCluster, path: &str, body: &Value) -> TestAnswer {
    match preview(cluster, path, body) {
        (_, Some(revision)) => post_as_seen(cluster, path, body, &revision),
        (refused, None) => refused,
    }
}

fn list(cluster: &TestCluster) -> Vec<DrainRow> {
    Drains::new(Arc::new(cluster.nodes[0].link.clone())).list().unwrap()
}

#[test]
fn drain_is_planned_started_and_ended() {
    let cluster = cluster();
    let planned = post(&cluster, "/api/v1/drains?dry_run=1", &json!({"node": 0}));
    assert_eq!(planned.status, 200, "{planned:?}");
    let move_of = json!([{"pair": 1, "from": 0, "to": 1, "bytes": 0}]);
    assert_eq!((&planned.body["moves"], &planned.body["dry_run"]), (&move_of, &true.into()));
    assert_eq!(list(&cluster), [], "nothing was done");
    let started =
        change_previewed(&cluster, "/api/v1/drains?reason=new%20disk", &json!({"host": "10.0.0.0"}));
    assert_eq!((started.status, &started.body["nodes"]), (200, &json!([0])), "{started:?}");
    assert_eq!(list(&cluster)[0].why.as_deref(), Some("new disk"));
    let last = change_previewed(&cluster, "/api/v1/drains", &json!({"node": 1}));
    assert_eq!(last.problem(), (409, "node_refused"));
    let tried = post(&cluster, "/api/v1/drains:end?dry_run=1", &json!({"host": "10.0.0.0"}));
    assert_eq!(
        (tried.status, &tried.body["nodes"], list(&cluster).len()),
        (200, &json!([0]), 1),
        "{tried:?}"
    );
    let ended = change_previewed(&cluster, "/api/v1/drains:end", &json!({"host": "10.0.0.0"}));
    assert_eq!((ended.status, &ended.body["nodes"]), (200, &json!([0])), "{ended:?}");
    assert_eq!(list(&cluster), []);
    let again = change_previewed(&cluster, "/api/v1/drains:end", &json!({"node": 0}));
    assert_eq!(again.problem(), (409, "node_refused"));
    for (path, answer) in [("drains", &started), ("drains:end", &ended)] {
        // An end of a drain plans no moves; its document is the same.
        let bodies = [answer.body.clone(), planned.body.clone()];
        covers("POST", &format!("/api/v1/{path}"), &bodies);
    }
}

#[test]
fn node_is_removed_once_it_has_no_pairs_and_drains() {
    let cluster = cluster();
    let refused = |node: u32| change_previewed(&cluster, "/api/v1/nodes:remove", &json!({"node": node}));
    let runs = refused(1);
    assert_eq!(runs.problem(), (409, "node_refused"), "it runs");
    assert_eq!(
        runs.body["next"], "drain it first (`cell node drain 1`), or stop it",
        "a command as it is typed"
    );
    assert_eq!(refused(9).status, 404, "nobody knows it");
    enter(&cluster.nodes[0].link, 5);
    assert_eq!(refused(5).problem(), (409, "node_refused"), "it has just joined, and runs");
    change_previewed(&cluster, "/api/v1/drains", &json!({"node": 1}));
    let tried = post(&cluster, "/api/v1/nodes:remove?dry_run=1", &json!({"node": 1}));
    assert_eq!((tried.status, list(&cluster)[0].removed), (200, false), "{tried:?}");
    let removed = refused(1);
    assert_eq!((removed.status, list(&cluster)[0].removed), (200, true), "{removed:?}");
    change_previewed(&cluster, "/api/v1/drains:end", &json!({"node": 1}));
    let planned = post(&cluster, "/api/v1/drains?dry_run=1", &json!({"node": 0}));
    covers("POST", "/api/v1/nodes:remove", &[removed.body, planned.body]);
    change_previewed(&cluster, "/api/v1/drains", &json!({"node": 0}));
    let owns = refused(0);
    assert_eq!(owns.problem(), (409, "node_refused"));
    assert_eq!(owns.body["detail"], "Node-0 still has 1 pair.");
}

/// A lost node was said not to be there and never to have been, once all others had been restarted.
#[test]
fn node_that_no_node_has_seen_is_removed_by_its_row() {
    let cluster = cluster();
    let link = &cluster.nodes[0].link;
    let lease = link.grant(3_600_000).unwrap().lease;
    let terms = ClusterTerms::new(1, None, Durability::Sync, LeaseTerms::new(500, 0.05));
    let joining = Joining { terms, host: None, home: "/data".to_owned() };
    Members::new(Arc::new(link.clone())).join(&member(9, lease), &joining).unwrap();
    link.end_lease(lease).unwrap();
    let remove = || change_previewed(&cluster, "/api/v1/nodes:remove", &json!({"node": 9}));
    let removed = remove();
    assert_eq!((removed.status, list(&cluster)[0].removed), (200, true), "{removed:?}");
    assert_eq!(remove().status, 200, "twice is once");
    change_previewed(&cluster, "/api/v1/drains:end", &json!({"node": 9}));
    assert_eq!(remove().status, 404, "nothing is left of it");
}

#[test]
fn drains_that_cannot_be_say_why() {
    let cluster = cluster();
    let status = |path: &str, body: Value| post(&cluster, path, &body).status;
    assert_eq!(status("/api/v1/drains?dry_run=1", json!({"node": 7})), 404);
    assert_eq!(status("/api/v1/drains?dry_run=1", json!({"host": "10.0.0.77"})), 404);
    for wrong in [
        json!({}),
        json!({"node": "x"}),
        json!({"node": 1, "host": "h"}),
        json!({"host": 1}),
        json!({"x": 1}),
    ] {
        assert_eq!(status("/api/v1/drains", wrong.clone()), 400, "{wrong}");
        assert_eq!(status("/api/v1/drains:end", wrong), 400);
    }
    assert_eq!(status("/api/v1/nodes:remove", json!({"host": "10.0.0.1"})), 400);
    assert_eq!(list(&cluster), []);
}

/// They were done at once, whatever had become of what their author had been shown.
#[test]
fn changes_want_the_revision_of_their_preview() {
    let cluster = cluster();
    enter(&cluster.nodes[0].link, 2);
    for path in ["drains", "drains:end", "nodes:remove"].map(|path| format!("/api/v1/{path}")) {
        let refused = post(&cluster, &path, &json!({"node": 1}));
        assert_eq!(refused.problem(), (428, "precondition_required"), "{path}");
        let wrong = post_as_seen(&cluster, &path, &json!({"node": 1}), "7");
        assert_eq!((wrong.status, wrong.pointers()), (400, vec!["/header/if-match"]), "{path}");
    }
    let stale = |answer: &TestAnswer, what: &str| {
        assert_eq!(answer.problem(), (412, "stale_preview"), "{answer:?}");
        let detail = answer.body["detail"].as_str().unwrap();
        assert!(detail.starts_with("Nothing was done: ") && detail.contains(what), "{detail}");
    };
    let (_, first) = preview(&cluster, "/api/v1/drains", &json!({"node": 1}));
    let first = first.unwrap();
    let other = post_as_seen(&cluster, "/api/v1/drains", &json!({"node": 2}), &first);
    stale(&other, "it was about node-1, and would be about node-2 now");
    assert_eq!(change_previewed(&cluster, "/api/v1/drains", &json!({"node": 2})).status, 200);
    stale(
        &post_as_seen(&cluster, "/api/v1/drains", &json!({"node": 1}), &first),
        "now node-2 drains, by admin",
    );
    let drained = list(&cluster);
    assert_eq!(drained.iter().map(|row| row.node).collect::<Vec<_>>(), [NodeId(2)], "nothing was done");
    // That node 2 drains is what was wanted, whoever did it.
    let (_, again) = preview(&cluster, "/api/v1/drains", &json!({"node": 2}));
    let (ended, removed) = (json!({"node": 2}), json!({"node": 2}));
    let (_, end) = preview(&cluster, "/api/v1/drains:end", &ended);
    let (_, remove) = preview(&cluster, "/api/v1/nodes:remove", &removed);
    assert_eq!(post_as_seen(&cluster, "/api/v1/drains", &ended, &again.unwrap()).status, 200);
    assert_eq!(change_previewed(&cluster, "/api/v1/drains", &json!({"node": 1})).status, 200);
    let both = "now node-1 drains, by admin; node-2 drains, by admin";
    stale(&post_as_seen(&cluster, "/api/v1/drains:end", &ended, &end.unwrap()), both);
    let late = post_as_seen(&cluster, "/api/v1/nodes:remove", &removed, &remove.unwrap());
    stale(&late, "drains were started or ended since");
    assert_eq!(list(&cluster).len(), 2);
    let repeat = post_as_seen(&cluster, "/api/v1/drains", &json!({"node": 1}), &first);
    assert_eq!(repeat.status, 200, "it is so already");
}

/// The nodes of a host were found when the drain began, and not when it was looked at.
#[test]
fn drain_of_a_host_is_of_the_nodes_that_its_preview_named() {
    let cluster = cluster();
    let (shown, revision) = preview(&cluster, "/api/v1/drains", &json!({"host": "10.0.0.1"}));
    let revision = revision.unwrap();
    assert_eq!(shown.body["nodes"], json!([1]));
    // Another node starts on the same machine.
    let link = &cluster.nodes[0].link;
    let incarnation = link.grant(3_600_000).unwrap().lease;
    let neighbour = MemberRow { fabric: "10.0.0.1:7777".to_owned(), ..member(4, incarnation) };
    Members::new(Arc::new(link.clone())).enter(&neighbour).unwrap();
    let refused = post_as_seen(&cluster, "/api/v1/drains", &json!({"host": "10.0.0.1"}), &revision);
    assert_eq!(refused.problem(), (412, "stale_preview"), "{refused:?}");
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(detail.contains("it was about node-1, and would be about node-1, node-4 now"), "{detail}");
    assert_eq!(list(&cluster), []);
    let gone = post_as_seen(&cluster, "/api/v1/drains", &json!({"host": "10.0.0.9"}), &revision);
    assert_eq!(gone.problem(), (412, "stale_preview"), "{gone:?}");
    let both = change_previewed(&cluster, "/api/v1/drains", &json!({"host": "10.0.0.1"}));
    assert_eq!((both.status, &both.body["nodes"]), (200, &json!([1, 4])), "{both:?}");
}

#[test]
fn nodes_of_a_host_are_in_the_order_of_their_numbers() {
    let of_host = |node: u32, lease: u64| MemberRow {
        fabric: format!("10.0.0.5:{}", 7_000 + node),
        ..member(node, Incarnation(lease))
    };
    let members = [of_host(3, 70), member(1, Incarnation(71)), of_host(2, 72)];
    let found = nodes(&Which::Host("10.0.0.5".to_owned()), &members);
    assert_eq!(found.ok(), Some(vec![NodeId(2), NodeId(3)]));
}

/// A way to the coordinator on which another drains a node right before the first drain is written.
struct Outrun {
    inner: Arc<dyn Coordinator>,
    drained: NodeId,
    is_outrun: AtomicBool,
}

impl Coordinator for Outrun {
    fn call(&self, request: &CoordinatorRequest) -> Result<CoordinatorAnswer, ClusterError> {
        let is_write = matches!(request, CoordinatorRequest::Transact(_));
        let is_of_drains = is_write && format!("{request:?}").contains("counter/drain");
        if is_of_drains && !self.is_outrun.swap(true, Ordering::SeqCst) {
            let author = DrainAuthor { who: "another", why: None, now_unix_ms: 1 };
            Drains::new(Arc::clone(&self.inner)).begin(&[self.drained], &author).unwrap();
        }
        self.inner.call(request)
    }
}

/// Nodes 0 and 2 serve pairs of 60 bytes; node 1 has none and 100 bytes left; node 3 has nothing at all.
/// Another drains a node while one is asked for.
fn cluster_outrun_by(drained: u32) -> TestCluster {
    let cluster = TestCluster::start_with(4, &[], |sources| {
        let (inner, coordinator) = (Arc::clone(&sources.snapshots), sources.coordinator.clone().unwrap());
        let look = move || {
            let mut node = (*inner.snapshot()).clone();
            let pair = |pair| PairSnapshot { pair, granted_bytes: 60, ..PairSnapshot::default() };
            let (pairs, available) = match node.node.0 {
                0 => (vec![pair(PairId(1))], 0),
                1 => (Vec::new(), 100),
                2 => (vec![pair(PairId(2))], 0),
                _ => (Vec::new(), 0),
            };
            (node.pairs, node.memory.available) = (pairs, available);
            Arc::new(node)
        };
        let outrun =
            Outrun { inner: coordinator, drained: NodeId(drained), is_outrun: AtomicBool::new(false) };
        crate::Sources { snapshots: Arc::new(look), ..sources }.coordinator(Arc::new(outrun))
    });
    let link = &cluster.nodes[0].link;
    let owners: Vec<Incarnation> = (0..4).map(|node| enter(link, node)).collect();
    let table = Table::new(Arc::new(link.clone()));
    for node in [0, 2] {
        let new = NewPair { incarnation: owners[node as usize], node: NodeId(node), geometry: GEOMETRY };
        let ownership = table.create_pair(&new).unwrap().ownership;
        let place = ServingAddress { address: String::new(), worker: 0, node_key: 0, extent_key: 0 };
        table.publish(ownership, Durability::Sync, &place).unwrap();
    }
    cluster
}

/// Whether there was room was decided before the row was written, and of two drains both began.
#[test]
fn of_two_drains_at_once_the_one_that_was_shown_the_cluster_without_the_other_is_refused() {
    for other in [2, 3] {
        let cluster = cluster_outrun_by(other);
        let body = json!({"node": 0});
        // On a busy machine not every node says in time what it has: then there seems to be less.
        let mut previews = (0..100).filter_map(|_| preview(&cluster, "/api/v1/drains", &body).1);
        let revision = previews.next().expect("there is room for one");
        let answer = post_as_seen(&cluster, "/api/v1/drains", &body, &revision);
        assert_eq!(answer.problem(), (412, "stale_preview"));
        let detail = answer.body["detail"].as_str().unwrap();
        assert!(detail.contains(&format!("node-{other} drains, by another")), "{detail}");
        let draining: Vec<u32> = list(&cluster).iter().map(|row| row.node.0).collect();
        assert_eq!(draining, [other]);
    }
}

#[test]
fn drain_that_others_outrun_again_and_again_says_that_it_was_shown_something_else() {
    let problem = problem(Refused::Node(NodeRefusal::Changed));
    assert!(problem.detail.contains("drains were started or ended since"), "{}", problem.detail);
}

fn served(pair: u32, owner: u64, node: u32) -> PairRow {
    PairRow { node: NodeId(node), ..crate::api::regions::tests::pair_row(pair, owner) }
}

fn part(node: u32, available: u64, pairs: &[(u32, u64)]) -> NodePart<DrainsPart> {
    let pair = |(pair, bytes): &(u32, u64)| PairPart { pair: *pair, bytes: *bytes, memory_bytes: *bytes };
    let part = DrainsPart {
        state: "serving".to_owned(),
        uptime_ms: 100_000,
        memory_available_bytes: available,
        disk_full: false,
        pairs: pairs.iter().map(pair).collect(),
    };
    NodePart { node: NodeId(node), part }
}

fn drain(node: u32) -> DrainRow {
    let who = "ops".to_owned();
    DrainRow { node: NodeId(node), who, why: None, since_unix_ms: 1_000, removed: false, stall: None }
}

#[test]
fn drain_without_room_elsewhere_is_refused_with_what_lacks() {
    let members = vec![member(0, Incarnation(70)), member(1, Incarnation(71))];
    let pairs = vec![served(1, 70, 0), served(2, 70, 0)];
    let mut rows = Rows { members, pairs, ..Rows::default() };
    let mut parts = [part(0, 0, &[(1, 60 << 20), (2, 50 << 20)]), part(1, 57 << 20, &[])];
    let refused = rows.plan(&parts, &[NodeId(0)]).unwrap_err();
    let problem = problem_of::<()>(Err(Refused::Plan(refused))).unwrap_err();
    let detail = problem.detail;
    assert!(detail.starts_with("The other nodes lack room for 1 pair with 60"), "{detail}");
    assert!(detail.contains("lacks the memory"), "{detail}");
    parts[1].part = DrainsPart { memory_available_bytes: 1 << 40, disk_full: true, ..parts[1].part.clone() };
    let refused = rows.plan(&parts, &[NodeId(0)]).unwrap_err();
    let problem = problem_of::<()>(Err(Refused::Plan(refused))).unwrap_err();
    assert!(problem.detail.contains("1 has no room on its disk for the logs"), "{}", problem.detail);
    assert!(problem.next.is_some_and(|next| next.contains("disks of logs")));
    parts[1].part.disk_full = false;
    assert!(rows.plan(&parts, &[NodeId(0)]).is_ok());
    let missing = Missing::Memory { bytes: 1 };
    let (owner, served_by, state) = (None, Some(NodeId(1)), PairState::Unavailable { missing });
    rows.pairs.push(PairRow { owner, served_by, state, ..served(3, 70, 0) });
    let refused = rows.plan(&parts, &[NodeId(0)]).unwrap_err();
    let problem = problem_of::<()>(Err(Refused::Plan(refused))).unwrap_err();
    assert!(problem.detail.contains("1 keeps its memory for pairs that it had"), "{}", problem.detail);
    assert!(problem.next.is_some_and(|next| next.contains("names the pairs that wait")));
    let silent = [part(0, 0, &[(1, 1), (2, 1)])];
    assert_eq!(rows.plan(&silent, &[NodeId(0)]), Err(DrainRefusal::NobodyLeft));
}

/// A node that left in order and is back was there twice, and so was the room that it has.
#[test]
fn node_that_is_back_is_planned_with_once() {
    let members = vec![member(0, Incarnation(70)), member(1, Incarnation(71)), member(1, Incarnation(80))];
    let of_host = nodes(&Which::Host("10.0.0.1".to_owned()), &members);
    assert_eq!(of_host.ok(), Some(vec![NodeId(1)]));
    let rows = Rows { members, pairs: vec![served(1, 80, 1)], ..Rows::default() };
    let figures = rows.figures(&[part(0, 0, &[]), part(1, 55 << 20, &[(1, 60 << 20)])]);
    let held: Vec<_> = figures.members.iter().map(|of| (of.node.0, of.pairs.len())).collect();
    assert_eq!(held, [(0, 0), (1, 1)]);
}

#[test]
fn view_says_how_far_a_drain_is_and_after_30_s_what_keeps_it() {
    let members = vec![member(0, Incarnation(70)), member(1, Incarnation(71))];
    let (pairs, drains) = (vec![served(1, 70, 0)], vec![drain(0), drain(1)]);
    let rows = Rows { members, pairs, drains, ..Rows::default() };
    let parts = [part(0, 0, &[(1, 60)]), part(1, 999, &[])];
    let soon = views(&rows, &parts, 2_000);
    assert_eq!((soon[0].state, soon[0].pairs_left, soon[0].bytes_left), ("draining", 1, Some(60)));
    assert_eq!((soon[0].stall.as_deref(), soon[1].state), (None, "drained"));
    let late = views(&rows, &parts, 31_001);
    let stall = late[0].stall.as_deref().unwrap();
    assert!(stall.starts_with("pair-1 cannot move: ") && stall.contains("drains itself"), "{stall}");
    assert_eq!(late[1].stall, None, "it is empty");
    let said = DrainRow { stall: Some("the balancer says so".to_owned()), ..drain(0) };
    let rows = Rows { drains: vec![said], ..rows };
    assert_eq!(views(&rows, &parts, 2_000)[0].stall.as_deref(), Some("the balancer says so"));
    let nobody = Rows { drains: vec![drain(0)], members: Vec::new(), ..rows };
    let stall = views(&nobody, &parts[..1], 31_001)[0].stall.clone();
    assert_eq!(stall.as_deref(), Some("pair-1 cannot move: nobody serves it"));
}

/// It was called drained, and had a pair a moment later.
#[test]
fn node_to_which_a_pair_is_on_its_way_is_not_drained() {
    let members = vec![member(0, Incarnation(70)), member(1, Incarnation(71))];
    let pairs = vec![served(3, 70, 0)];
    let of = MoveRow { epoch: pairs[0].epoch, ..move_row(MoveStage::Copying) };
    let (drains, moves) = (vec![drain(1)], vec![of.clone()]);
    let rows = Rows { members, pairs, drains, moves, ..Rows::default() };
    let parts = [part(0, 0, &[(3, 60)]), part(1, 999, &[])];
    let view = &views(&rows, &parts, 31_001)[0];
    assert_eq!((view.state, view.pairs_left), ("draining", 1));
    assert_eq!(view.stall.as_deref(), Some("pair-3 is on its way to the node (`cell region ls`)"));
    let over = MoveRow { outcome: Some(MoveOutcome::Cancelled), ..of };
    let view = &views(&Rows { moves: vec![over], ..rows }, &parts, 31_001)[0];
    assert_eq!((view.state, view.pairs_left, view.stall.as_deref()), ("drained", 0, None));
}

/// A drain stood still without a word.
#[test]
fn drain_that_nobody_carries_out_says_so_after_30_s() {
    let members = vec![member(0, Incarnation(70)), member(1, Incarnation(71))];
    let said = DrainRow { stall: Some("what a balancer said".to_owned()), ..drain(0) };
    let nobody_balances = Some("nobody balances".to_owned());
    let (pairs, drains) = (vec![served(1, 70, 0)], vec![said, drain(1)]);
    let rows = Rows { members, pairs, drains, nobody_balances, ..Rows::default() };
    let parts = [part(0, 0, &[(1, 60)]), part(1, 999, &[])];
    assert_eq!(views(&rows, &parts, 2_000)[0].stall.as_deref(), Some("what a balancer said"));
    let late = views(&rows, &parts, 31_001);
    assert_eq!(late[0].stall.as_deref(), Some("nobody balances"));
    assert_eq!(late[1].stall, None, "it is empty");
}
