//! Drills on real processes, as a user runs them: faults of every kind on a cluster of three nodes and on one
//! node, over every transport; each must pass. Once over HTTP, of the node that is asked.

mod between_keys;
mod stalled_disk;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cell_tests::lease::{LEASE, LONG_LEASE};
use cell_tests::program::{self, Said};
use cell_tests::repeats::Repeats;
use cell_tests::server::Server;
use cell_tests::wait;
use serde_json::{Value, json};

/// Faults, and how long they last: until survivors have taken over; or over before anyone can.
pub(crate) const FAULTS: [(&str, Lasts); 7] = [
    ("kill", Lasts::PastTheLease),
    ("stop", Lasts::PastTheLease),
    ("partition", Lasts::PastTheLease),
    ("restart", Lasts::Moment),
    ("kill", Lasts::Moment),
    ("partition-in", Lasts::PastTheLastRenewal),
    ("partition-out", Lasts::PastTheLease),
];
/// The exit code of a drill that finds the cluster unwell before it begins.
const UNHEALTHY: i32 = 5;
/// How often a drill may find it so. A busy machine costs a node its lease now and then; a cluster that is
/// unwell each time is a defect, and not to be waited out.
const UNHEALTHY_STARTS_MAX: usize = 3;
/// Writes to the node's pairs that a drill needs to show anything.
const WRITES_MIN: u64 = 20;
const TRANSPORTS: [&str; 3] = ["auto", "tcp", "shm"];
/// Meganodes of 128 small tree nodes, in small pairs.
const SMALL_MEGANODES: [&str; 8] = [
    "--slot-bytes=64KiB",
    "--tree-node-bytes=512",
    "--node-region-bytes=512KiB",
    "--extent-region-bytes=8MiB",
    "--split-fill-percent=50",
    "--memory-limit-bytes=512MiB",
    "--log-segment-bytes=4MiB",
    "--checkpoint-log-bytes-min=2MiB",
];
/// Small regions: several pairs a node after a while.
const FLAGS: [&str; 6] = [
    "--allow-drills",
    "--node-region-bytes=64MiB",
    "--slot-bytes=4MiB",
    "--extent-region-bytes=256MiB",
    "--checkpoint-log-bytes-min=8MiB",
    "--tracing-filter=info",
];

/// How long a fault lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lasts {
    Moment,
    PastTheLease,
    /// The node hears nothing and renews its lease for as long as it relies on it; that ends a lease later.
    PastTheLastRenewal,
}

impl Lasts {
    /// As an argument, for clusters of this lease.
    fn argument(self, lease: Duration) -> String {
        // Time for survivors to take over and to serve.
        let past = (lease * 2 / 3).max(Duration::from_secs(1));
        match self {
            Lasts::Moment => "1ms".to_owned(),
            Lasts::PastTheLease => format!("{}ms", (lease + past).as_millis()),
            Lasts::PastTheLastRenewal => format!("{}ms", (2 * lease + past).as_millis()),
        }
    }
}

/// How many drills this run demands.
fn drills() -> usize {
    Repeats { plain: 7, quick: 7, full: 21, long: 84 }.of_this_run() as usize
}

fn drill(server: &Server, arguments: &[&str]) -> Said {
    let dir = server.folder().to_str().expect("the folder's name is UTF-8");
    program::run(&[&["--json", "drill"], arguments, &["--dir", dir]].concat())
}

fn json(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("not JSON: {said:?}"))
}

/// Waits until every node serves and every pair is served; which pairs each node owns.
fn wait_healthy(server: &Server) -> BTreeMap<u64, Vec<u64>> {
    server.wait_healthy().owned()
}

/// The shape of the tree, once all nodes report theirs.
fn shape(server: &Server) -> Value {
    let address = server.address().to_string();
    let answer = || {
        let said = program::run(&["--json", "tree", "show", "--server", &address]);
        Some(said).filter(|said| said.code == Some(0))
    };
    json(&wait::until_some("all nodes report the shape of their trees", answer))
}

/// The same without pairs that have no range of keys, as one that was made ahead of need: a drill of a node
/// with such pairs alone shows nothing.
fn wait_owned_keys(server: &Server) -> BTreeMap<u64, Vec<u64>> {
    let mut owned = wait_healthy(server);
    let shape = shape(server);
    let rows = shape["meganodes"].as_array().expect("rows");
    for pairs in owned.values_mut() {
        pairs.retain(|pair| rows.iter().any(|row| row["use"] == "entries" && row["pair"] == *pair));
    }
    owned
}

/// One drill, which must pass.
fn pass(server: &Server, node: u64, fault: (&str, &str), transport: &str) -> Value {
    pass_with(server, node, fault, transport, &[])
}

/// The drill of this number, for clusters of this lease.
fn fault(number: usize, lease: Duration) -> (&'static str, String) {
    let (kind, lasts) = FAULTS[number % FAULTS.len()];
    (kind, lasts.argument(lease))
}

/// One drill with further arguments, which must pass.
fn pass_with(server: &Server, node: u64, fault: (&str, &str), transport: &str, more: &[&str]) -> Value {
    let (kind, duration) = fault;
    let node = node.to_string();
    let arguments = [
        &["run", kind, "--node", &node, "--duration", duration, "--transport", transport][..],
        if more.is_empty() { &["--before", "300ms", "--rate", "1000"] } else { more },
    ]
    .concat();
    let mut said = drill(server, &arguments);
    let mut unhealthy_starts = 0;
    while said.code == Some(UNHEALTHY) && unhealthy_starts < UNHEALTHY_STARTS_MAX {
        unhealthy_starts += 1;
        println!("unhealthy start {unhealthy_starts} of {UNHEALTHY_STARTS_MAX} permitted: {}", said.err);
        wait_healthy(server);
        said = drill(server, &arguments);
    }
    assert_eq!(said.code, Some(0), "{kind} node {node} over {transport}: {said:?}");
    let report = json(&said);
    assert_eq!(report["verdict"], "PASS", "{report}");
    assert_eq!(report["found"], report["acknowledged"], "{report}");
    assert!(report["acknowledged"].as_u64() > Some(50), "{report}");
    assert!(report["pairs_owned"].as_u64() > Some(0), "{report}");
    assert!(report["writes_during_fault"].as_u64() >= Some(WRITES_MIN), "{report}");
    assert_eq!(report["read_back_by_server"], 0, "{report}");
    println!(
        "{kind} for {duration} of node {node} over {transport}: {} keys found, {} writes to its pairs during the \
         fault, {unhealthy_starts} unhealthy starts, detected {} ms, first served {} ms, served {} ms, \
         unavailable {} ms, {} bytes replayed",
        report["found"],
        report["writes_during_fault"],
        report["detected_ms"],
        report["first_served_ms"],
        report["served_ms"],
        report["unavailable_ms_max"],
        report["replayed_bytes"],
    );
    report
}

/// So many drills, of every fault in turn, on three nodes of this lease.
pub(crate) fn three_nodes_pass(drills: usize, flags: &[&str], lease: Duration) {
    let mut server = Server::start_with(&[&["--nodes", "3"], &FLAGS[..], flags].concat());
    let (mut last, mut recorded) = (BTreeMap::new(), 0);
    for number in 0..drills {
        let owned = wait_owned_keys(&server);
        // Who owns something, and was not drilled for the longest.
        let owners = owned.iter().filter(|(_, pairs)| !pairs.is_empty()).map(|(node, _)| *node);
        let node = owners.min_by_key(|node| last.get(node).copied()).expect("somebody owns a pair");
        last.insert(node, number);
        let (kind, lasts) = fault(number, lease);
        let report = pass(&server, node, (kind, &lasts), TRANSPORTS[number % TRANSPORTS.len()]);
        assert!(report["served_ms"].is_number(), "what it owned was taken over: {report}");
        // On a machine that stands still a node may be back before a survivor has claimed its pairs. It
        // recovers them itself then, and no survivor records what was replayed.
        let replayed = report["replayed_bytes"].as_u64();
        assert_ne!(replayed, Some(0), "its log was replayed: {report}");
        recorded += usize::from(replayed.is_some());
    }
    assert!(2 * recorded > drills, "survivors replayed logs: {recorded} of {drills}");
    assert!(last.len() > 1, "nodes took over from one another: {last:?}");
    wait_healthy(&server);
    server.kill_all();
    server.resume();
    wait_healthy(&server);
    assert_eq!(server.stop(), Some(0), "{}", server.log());
}

#[test]
fn drills_of_every_fault_on_three_nodes_pass() {
    three_nodes_pass(drills(), &LONG_LEASE, LEASE);
}

#[test]
fn drills_of_an_only_node_pass_over_each_transport() {
    let server = Server::start_with(&[&FLAGS[..], &LONG_LEASE].concat());
    let faults = if drills() > FAULTS.len() { FAULTS.len() } else { 2 };
    for number in 0..faults {
        wait_healthy(&server);
        let (kind, lasts) = fault(number, LEASE);
        pass(&server, 0, (kind, &lasts), TRANSPORTS[number % TRANSPORTS.len()]);
    }
}

/// The lease holds: nobody takes over. Each write waits for the disk; reads go on meanwhile.
#[test]
fn drills_of_a_slow_disk_pass_and_nobody_takes_over() {
    const DELAY_MS: f64 = 80.0;
    let server = Server::start_with(&[&["--nodes", "3"], &FLAGS[..], &LONG_LEASE].concat());
    let mut undisturbed = 0;
    for transport in TRANSPORTS {
        let owned = wait_owned_keys(&server);
        let node = owned.iter().max_by_key(|(_, pairs)| pairs.len()).map_or(0, |(node, _)| *node);
        let more = ["--delay", "80ms", "--before", "300ms", "--rate", "1000", "--threads", "8"];
        let report = pass_with(&server, node, ("slow-disk", "2s"), transport, &more);
        assert_eq!(report["delay_ms"], 80, "{report}");
        let takeover = ["lease_ended_ms", "claimed_ms", "replayed_bytes"];
        undisturbed += usize::from(takeover.iter().all(|field| report[*field].is_null()));
        let slowest = report["slowest"].as_array().expect("a list");
        assert!(slowest[0]["ms"].as_f64() >= Some(DELAY_MS), "writes wait for the disk: {report}");
        let healed = report["timeline"].as_array().expect("a list").iter().find(|it| it["event"] == "healed");
        assert!(healed.is_some_and(|it| it["at_ms"].as_f64() >= Some(2_000.0)), "{report}");
    }
    // A busy machine costs a node its lease now and then, whatever its disk does.
    assert!(undisturbed >= 2, "the lease held in {undisturbed} of {} drills", TRANSPORTS.len());
    wait_healthy(&server);
}

/// How long a drill over HTTP may take.
const HTTP_DRILL: Duration = Duration::from_secs(150);

/// What a node answers to a request over HTTP, which must be of this status.
fn answered(answer: Option<(u16, String)>, expected: u16) -> Value {
    let (status, body) = answer.expect("the node answers");
    assert_eq!(status, expected, "{body}");
    serde_json::from_str(&body).expect("it is JSON")
}

/// Begins a drill by asking a node; its path and the node that runs it. Until the cluster is well it is asked
/// again.
fn begin_over_http(server: &Server, asked: u16, wanted: &Value) -> (String, u16) {
    let preview = format!("/api/v1/drills/preview?kind=kill&node={asked}");
    // What a node shows of the cluster may be older than what the supervisor says.
    wait::until("it sees the other nodes", || {
        let survivors = answered(server.http_of(asked, &preview), 200)["survivors"].clone();
        survivors.as_array().is_some_and(|survivors| !survivors.is_empty())
    });
    for _ in 0..=UNHEALTHY_STARTS_MAX {
        wait_healthy(server);
        let answer = server.http_post(asked, "/api/v1/drills", &wanted.to_string());
        if !answer.as_ref().is_some_and(|(status, body)| *status == 409 && body.contains("unhealthy")) {
            let started = answered(answer, 202);
            let id = started["operation"].as_str().expect("it has a name");
            let runner = started["runner"].as_u64().and_then(|runner| u16::try_from(runner).ok());
            return (format!("/api/v1/drills/{id}"), runner.expect("a node's number"));
        }
    }
    panic!("the cluster is unwell each time");
}

/// Looks at a run until it is as wanted.
#[allow(clippy::disallowed_methods, reason = "a test of real processes has real time")]
fn run_until(server: &Server, node: u16, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + HTTP_DRILL;
    loop {
        let run = answered(server.http_of(node, path), 200);
        if is_wanted(&run) {
            return run;
        }
        assert!(run["ended_unix_ms"].is_null() && Instant::now() < deadline, "{run}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The node that is asked dies of it; another one runs the drill, and everybody can look on.
#[test]
fn drill_over_http_of_the_node_that_is_asked_passes_and_another_is_halted() {
    let server = Server::start_with(&[&["--nodes", "3"], &FLAGS[..], &LONG_LEASE].concat());
    let owner = |owned: &BTreeMap<u64, Vec<u64>>| {
        let owner = owned.iter().find(|(_, pairs)| !pairs.is_empty()).map(|(node, _)| *node);
        u16::try_from(owner.expect("somebody owns a pair")).expect("a node's number")
    };
    let owned = wait_healthy(&server);
    let victim = owner(&wait_owned_keys(&server));
    let preview = server.http_of(victim, &format!("/api/v1/drills/preview?kind=kill&node={victim}"));
    let preview = answered(preview, 200);
    assert_eq!(preview["pairs"].as_array().map(Vec::len), owned.get(&u64::from(victim)).map(Vec::len));
    let kill = json!({"kind": "kill", "node": victim, "down_ms": 5_000, "before_ms": 300, "rate": 1000,
        "confirm": preview["confirm"]});
    let (path, runner) = begin_over_http(&server, victim, &kill);
    assert_ne!(runner, victim, "it would die with its own drill");
    let second = answered(server.http_post(runner, "/api/v1/drills", &kill.to_string()), 409);
    assert_eq!(second["code"], "drill_running", "{second}");
    let run = run_until(&server, runner, &path, |run| run["ended_unix_ms"].is_number());
    assert_eq!((&run["state"], &run["report"]["verdict"]), (&json!("passed"), &json!("PASS")), "{run}");
    assert_eq!(run["report"]["found"], run["report"]["acknowledged"], "{run}");
    assert!(run["report"]["writes_during_fault"].as_u64() >= Some(WRITES_MIN), "{run}");
    let attempts = |run: &Value| {
        let steps = run["lane"].as_array().expect("it has a lane").iter();
        steps.filter_map(|step| step["attempted"].as_u64()).sum::<u64>()
    };
    assert!(attempts(&run) >= run["report"]["operations"].as_u64().expect("a number"), "{run}");

    let victim = owner(&wait_owned_keys(&server));
    let stop =
        json!({"kind": "stop", "node": victim, "down_ms": 60_000, "confirm": format!("node-{victim}")});
    let (path, runner) = begin_over_http(&server, victim, &stop);
    let is_detected = |run: &Value| {
        run["timeline"]
            .as_array()
            .is_some_and(|moments| moments.iter().any(|moment| moment["name"] == "detected"))
    };
    run_until(&server, runner, &path, is_detected);
    let halted = answered(server.http_post(runner, &format!("{path}:halt"), "{}"), 202);
    assert!(path.ends_with(halted["operation"].as_str().expect("it has a name")), "{halted}");
    let run = run_until(&server, runner, &path, |run| run["ended_unix_ms"].is_number());
    assert_eq!((&run["state"], &run["report"]), (&json!("halted"), &Value::Null), "{run}");
    wait_healthy(&server);
}

/// Meganodes of 128 small tree nodes, and a tree that grows from drill to drill: nodes die within splits, and
/// sides of a split are at different nodes. (Found so: a router that was to be split, a compaction of a slot
/// that holds nothing.)
#[test]
fn drills_under_splits_pass_and_the_trees_are_sound() {
    let flags = ["--nodes=3", "--allow-drills"];
    let server = Server::start_with(&[&LONG_LEASE[..], &flags, &SMALL_MEGANODES].concat());
    let drills = if drills() > FAULTS.len() { 8 } else { 2 };
    for number in 0..drills {
        let owned = wait_owned_keys(&server);
        let node = owned.iter().max_by_key(|(_, pairs)| pairs.len()).map_or(0, |(node, _)| *node);
        let (kind, lasts) = fault(number, LEASE);
        let load = ["--keep", "--before", "1s", "--rate", "3000"];
        pass_with(&server, node, (kind, &lasts), "auto", &load);
    }
    wait_healthy(&server);
    let verified = server.cell(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}
