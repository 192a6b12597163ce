//! Drills of nodes that an agent a host supervises (`cell agent`): by `cell drill` on the client's host, over
//! the API of a node, and while the host of an agent is cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use cell_tests::hosts::{StoreOptions, is_possible, pairs_of};
use cell_tests::program::Said;
use cell_tests::wait;
use serde_json::{Value, json};

use super::{SHORT_LEASE_MS, Scene, on_three_hosts_with};

/// How a drill ends before its begin where the cluster is unwell, and where another one has its turn.
const NOT_NOW: [Option<i32>; 2] = [Some(5), Some(2)];
/// How often it may.
const STARTS_MAX: usize = 20;
/// How it ends where an agent does not answer.
const AWAY: Option<i32> = Some(4);
/// How long a fault lasts, so that the lease ends meanwhile.
const PAST_THE_LEASE_MS: u64 = 3 * SHORT_LEASE_MS;

/// Has an agent supervise the node of each of three hosts, and does something with them.
fn on_agents(what: impl FnOnce(&Scene<'_>)) {
    let options = StoreOptions { lease_ms: SHORT_LEASE_MS, agents: true, ..StoreOptions::default() };
    on_three_hosts_with(options, |_| (), |scene, _| what(scene));
}

/// The number of a host's node.
fn node_on(host: u16) -> u16 {
    host - 1
}

/// `cell drill` on the client's host, to its end.
fn drill(scene: &Scene<'_>, arguments: &[&str]) -> Said {
    let mut drill = scene.store.drill(scene.hosts.client(), arguments);
    drill.output().expect("nsenter can be started").into()
}

/// What the agents say; none: one of them does not.
fn look(scene: &Scene<'_>) -> Option<Value> {
    let said = drill(scene, &["ls", "--json"]);
    if said.code == Some(0) { serde_json::from_str(&said.out).ok() } else { None }
}

/// How a host's node is, in a word.
fn is_in_state(scene: &Scene<'_>, host: u16, state: &str) -> bool {
    let nodes = look(scene).map_or(Value::Null, |mut status| status["nodes"].take());
    let nodes = nodes.as_array().map_or(&[][..], Vec::as_slice);
    nodes.iter().any(|node| node["node"] == node_on(host) && node["state"] == state)
}

/// Waits until all nodes and pairs are served and no fault lasts.
fn wait_well(scene: &Scene<'_>) {
    let is_well = |status: &Value| {
        let [nodes, pairs] =
            ["nodes", "pairs"].map(|of| status[of].as_array().map_or(&[][..], Vec::as_slice));
        let fit = |node: &Value| {
            let faults = node["partitioned"] == true || node["disk_delay_ms"] != 0;
            node["state"] == "serving" && !faults && node["drained_by"].is_null()
        };
        let is_served = |pair: &Value| pair["state"] == "serving" && pair["trouble"].is_null();
        nodes.len() == scene.hosts.numbers().count() && nodes.iter().all(fit) && pairs.iter().all(is_served)
    };
    wait::until("all is well", || look(scene).is_some_and(|status| is_well(&status)));
    scene.store.wait_served();
}

/// How many pairs with keys the node of each host has that has any.
fn keyed_pairs(scene: &Scene<'_>) -> BTreeMap<u16, usize> {
    let (client, servers) = (scene.hosts.client(), scene.store.servers());
    let shape = wait::until_some("all nodes report the shape of their trees", || {
        let said = scene.store.cell(client, &servers, &["tree", "show", "--json"]);
        serde_json::from_str::<Value>(&said.out).ok().filter(|_| said.code == Some(0))
    });
    let rows = shape["meganodes"].as_array().expect("there are meganodes").iter();
    let keyed: BTreeSet<u64> =
        rows.filter(|row| row["use"] == "entries").filter_map(|row| row["pair"].as_u64()).collect();
    let mut counts = BTreeMap::new();
    for (pair, (host, _)) in pairs_of(&scene.store.wait_served()) {
        if keyed.contains(&pair) {
            *counts.entry(host).or_insert(0) += 1;
        }
    }
    counts
}

/// The host whose node has most of them.
fn busiest(scene: &Scene<'_>) -> u16 {
    let counts = keyed_pairs(scene);
    let (host, _) = counts.iter().max_by_key(|(_, count)| **count).expect("some pair has keys");
    *host
}

/// A drill of the busiest node, or of all, that must pass. It may have to wait for the end of another one.
fn pass(scene: &Scene<'_>, kind: &str, more: &[&str]) {
    let flags = ["--json", "--before", "300ms", "--rate", "1000", "--transport", "tcp", "--patience", "100s"];
    for _ in 0..STARTS_MAX {
        wait_well(scene);
        let node = node_on(busiest(scene)).to_string();
        let named = ["--node", &node];
        let of = if kind == "rolling" { &[][..] } else { &named[..] };
        let said = drill(scene, &[&["run", kind][..], of, &flags, more].concat());
        if NOT_NOW.contains(&said.code) {
            println!("not now: {}", said.err);
            continue;
        }
        assert_eq!(said.code, Some(0), "{kind} of node {node}: {said:?}");
        let report: Value = serde_json::from_str(&said.out).expect("it prints a report");
        assert_eq!((&report["verdict"], &report["lost"]), (&"PASS".into(), &0.into()), "{report}");
        assert_eq!(report["found"], report["acknowledged"], "{report}");
        return;
    }
    panic!("the cluster is unwell each time");
}

#[test]
fn drills_by_the_agents_of_three_hosts_pass_from_the_clients_and_over_the_api() {
    on_agents(|scene| {
        let lasts = format!("{PAST_THE_LEASE_MS}ms");
        pass(scene, "kill", &["--duration", &lasts]);
        pass(scene, "stop", &["--duration", &lasts]);
        pass(scene, "rolling", &[]);
        if is_possible("drills over the API of hosts (apt install curl)", &["curl"]) {
            pass_over_the_api(scene);
        }
    });
}

/// The node that is drilled is asked. Another one runs the drill, and shows the agents the caller's token.
fn pass_over_the_api(scene: &Scene<'_>) {
    const DRILLS: &str = "/api/v1/drills";
    let (victim, began) = wait::until_some("a drill begins over the API", || {
        wait_well(scene);
        let victim = busiest(scene);
        let node = node_on(victim);
        let body = json!({
            "kind": "kill", "node": node, "confirm": format!("node-{node}"), "down_ms": PAST_THE_LEASE_MS,
            "before_ms": 300, "rate": 1_000,
        });
        let answer = scene.store.ask(victim, "POST", DRILLS, &body.to_string())?;
        if answer["operation"].is_null() {
            println!("not now: {answer}");
        }
        answer["operation"].is_string().then_some((victim, answer))
    });
    assert_ne!(began["runner"], node_on(victim), "{began}");
    let runner = began["runner"].as_u64().and_then(|node| u16::try_from(node + 1).ok());
    let runner = runner.expect("a node runs it");
    let path = format!("{DRILLS}/{}", began["operation"].as_str().expect("it has a name"));
    let run = wait::until_some("the drill has ended", || {
        let run = scene.store.ask(runner, "GET", &path, "")?;
        run["ended_unix_ms"].is_number().then_some(run)
    });
    assert_eq!((&run["state"], &run["who"]), (&"passed".into(), &"tests".into()), "{run}");
    wait_well(scene);
    let all = scene.store.ask(victim, "GET", DRILLS, "").expect("a node that serves answers");
    assert_eq!((&all["allowed"], &all["why_not"]), (&true.into(), &Value::Null), "{all}");
}

/// Nobody reaches the agent, which lets its node go on by itself: a node that nobody lets go on is lost.
#[test]
fn drill_whose_agents_host_is_cut_off_ends_and_its_fault_is_taken_back_there() {
    on_agents(|scene| {
        wait_well(scene);
        // Not etcd's leader: the coordinator is to answer the other agents.
        let keyed = keyed_pairs(scene);
        let victim = scene.followers().into_iter().find(|host| keyed.contains_key(host));
        let victim = victim.expect("of three nodes with a pair each, two have keys");
        let node = node_on(victim).to_string();
        let flags = ["--duration", "10m", "--before", "300ms", "--patience", "30s", "--transport", "tcp"];
        let arguments = [&["run", "stop", "--node", &node][..], &flags].concat();
        let mut stop = scene.store.drill(scene.hosts.client(), &arguments);
        let mut stop = stop.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("nsenter starts");
        wait::until("the node stands still", || is_in_state(scene, victim, "stopped"));
        let from = scene.store.log(victim).len();
        scene.hosts.network().cut_off(victim);
        let has_ended = || stop.try_wait().expect("a child can be waited for").is_some();
        wait::until("the drill has ended", has_ended);
        let said = Said::from(stop.wait_with_output().expect("its output can be read"));
        let agent = scene.store.agent(victim);
        assert!(said.code == AWAY && said.err.contains(&format!("the agent at {agent}")), "{said:?}");
        wait::until("its agent has let the node go on", || {
            let log = scene.store.log(victim);
            log.get(from..).is_some_and(|said| said.contains("what a drill has left was taken back: cont"))
        });
        let other = scene.hosts.numbers().find(|host| *host != victim).map(node_on);
        let other = other.expect("there are three hosts").to_string();
        let refused = drill(scene, &["run", "kill", "--node", &other]);
        let words = format!("the agent at {agent} is not reached");
        assert!(refused.code == AWAY && refused.err.contains(&words), "{refused:?}");
        scene.hosts.heal();
        wait_well(scene);
        let healed = drill(scene, &["heal"]);
        assert_eq!((healed.code, healed.out.as_str()), (Some(0), ""), "nothing lasts: {healed:?}");
        pass(scene, "restart", &[]);
    });
}
