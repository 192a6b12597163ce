//! Drills of a cluster whose nodes are supervised by an agent a host: over TCP and TLS, by a token of the
//! role admin. Here the hosts are folders of one machine with one log root; the coordinator is a process of
//! its own.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::{Child, Command, Output, Stdio};

use crate::harness::{FLAGS, command};
use cell_tests::lease::LONG_LEASE;
use cell_tests::ports::Ports;
use cell_tests::process::{children, signal, wait_ended};
use cell_tests::wait;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

/// SHA-256 of `secret` and of `a`.
const TOKENS: &str = "\
    admin ann 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n\
    viewer screen ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\n";
/// The exit code of a drill that finds the cluster unwell before it begins, and how often it may.
const UNHEALTHY: i32 = 5;
const UNHEALTHY_STARTS_MAX: usize = 3;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An error has this exit code, says this, and what next.
fn refused(output: &Output, exit: i32, words: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{said}");
    assert!(said.contains(words) && said.contains("next: "), "`{words}` is not in: {said}");
}

/// A coordinator, and hosts with an agent and a node each.
struct Hosts {
    folder: TempDir,
    ports: Ports,
    coordinator: Child,
    agents: Vec<Child>,
}

impl Hosts {
    /// Starts an agent for each of these, which says whether it allows drills; waits until all is well.
    fn start(allow: &[bool]) -> Hosts {
        let (folder, ports) = (tempfile::tempdir().unwrap(), Ports::take());
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("shared")).unwrap();
        std::fs::write(path("tokens"), TOKENS).unwrap();
        for (ca, out) in [("ca", "tls"), ("other-ca", "other-tls")] {
            let mut make = command(&["certificates", "make", "--host", "127.0.0.1"]);
            let made = make.arg("--ca").arg(path(ca)).arg("--out").arg(path(out)).output().unwrap();
            assert!(made.status.success(), "{}", text(&made.stderr));
        }
        let mut coordinator = command(&["coordinator", "--data-dir"]);
        let coordinator = coordinator.arg(path("coordinator")).stdout(Stdio::null()).spawn().unwrap();
        wait::until("the coordinator listens", || path("coordinator/coordinator.socket").exists());
        let mut hosts = Hosts { folder, ports, coordinator, agents: Vec::new() };
        for (node, allows) in (0..).zip(allow) {
            let agent = hosts.launch(node, allow.len(), *allows);
            hosts.agents.push(agent);
        }
        hosts.wait_healthy();
        hosts
    }

    /// Starts the agent of the host of this node, and waits for nothing.
    fn launch(&self, node: u16, nodes: usize, allows: bool) -> Child {
        let (coordinator, log_root) = (self.path("coordinator/coordinator.socket"), self.path("shared"));
        let mut agent = self.agent_command(node, node);
        agent.args(["--cluster-nodes", &nodes.to_string(), "--coordinator-address", &coordinator]);
        agent.args(["--log-root", &log_root]);
        if allows {
            agent.arg("--allow-drills");
        }
        agent.spawn().unwrap()
    }

    /// An agent of a cluster of its own, unless it is given another one, in this place among the hosts.
    fn agent_command(&self, place: u16, node: u16) -> Command {
        let at = |port: u16| format!("127.0.0.1:{port}");
        let fabric = self.ports.first + place;
        let mut agent = command(&["agent", "--slot-bytes=8MiB", "--ready-memory-bytes=0"]);
        agent.args(FLAGS).args(LONG_LEASE);
        agent.arg("--memory-limit-bytes=1200MiB");
        agent.args([format!("--node-id={node}"), format!("--listen-address={}", at(fabric))]);
        agent.args([
            format!("--http-address={}", at(fabric + 80)),
            format!("--agent-address={}", self.agent(place)),
        ]);
        agent.args(["--data-dir".to_owned(), self.path(&format!("host-{place}"))]);
        for (flag, file) in [
            ("--tls-certificate-file", "tls/node.crt"),
            ("--tls-key-file", "tls/node.key"),
            ("--tls-trust-file", "tls/ca.crt"),
            ("--tokens-file", "tokens"),
        ] {
            agent.arg(flag).arg(self.path(file));
        }
        agent.stdout(Stdio::null());
        agent
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Where the agent of this node listens.
    fn agent(&self, node: u16) -> String {
        format!("127.0.0.1:{}", self.ports.first + 200 + node)
    }

    fn all(&self) -> String {
        let agents = (0..u16::try_from(self.agents.len()).unwrap()).map(|node| self.agent(node));
        agents.collect::<Vec<_>>().join(",")
    }

    /// `cell drill` by these agents.
    fn by(&self, agents: &str, arguments: &[&str]) -> Command {
        let mut drill = command(&["drill"]);
        drill.args(arguments).args(["--agents", agents, "--ca", &self.path("tls/ca.crt")]);
        drill.env("CELL_TOKEN", "secret");
        drill
    }

    /// The same by all of them.
    fn drill(&self, arguments: &[&str]) -> Command {
        self.by(&self.all(), arguments)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.drill(arguments).output().unwrap()
    }

    /// What all agents say; none if one does not answer.
    fn look(&self) -> Option<Value> {
        let output = self.run(&["ls", "--json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// How a node is.
    fn state(&self, node: usize) -> Value {
        self.look().map_or(Value::Null, |mut status| status["nodes"][node].take())
    }

    /// Waits until all nodes and pairs are served and no fault lasts.
    fn wait_healthy(&self) -> Value {
        let is_well = |status: &Value| {
            let [nodes, pairs] = ["nodes", "pairs"].map(|of| status[of].as_array().unwrap());
            let fit = |node: &Value| {
                let faults = node["partitioned"] == true || node["disk_delay_ms"] != 0;
                node["state"] == "serving" && !faults && node["drained_by"].is_null()
            };
            let is_served = |pair: &Value| pair["state"] == "serving" && pair["trouble"].is_null();
            nodes.iter().all(fit) && !pairs.is_empty() && pairs.iter().all(is_served)
        };
        wait::until_some("all is well", || self.look().filter(is_well))
    }

    /// The node that has most pairs with keys, of those in a status.
    fn busiest(&self, status: &Value) -> String {
        let server = format!("127.0.0.1:{}", self.ports.first);
        let shape = wait::until_some("all nodes report the shape of their trees", || {
            let mut show = command(&["--json", "tree", "show", "--server", &server, "--ca"]);
            let output = show.arg(self.path("tls/ca.crt")).env("CELL_TOKEN", "secret").output().unwrap();
            output.status.success().then(|| serde_json::from_slice::<Value>(&output.stdout).unwrap())
        });
        let rows = shape["meganodes"].as_array().unwrap();
        let has_keys = |pair: &Value| rows.iter().any(|row| row["use"] == "entries" && row["pair"] == *pair);
        let pairs = status["pairs"].as_array().unwrap();
        let count =
            |node: u64| pairs.iter().filter(|pair| pair["node"] == node && has_keys(&pair["pair"])).count();
        let nodes = status["nodes"].as_array().unwrap().iter().map(|node| node["node"].as_u64().unwrap());
        nodes.max_by_key(|node| count(*node)).unwrap().to_string()
    }

    /// A drill of the busiest node that must pass; its report.
    fn pass(&self, kind: &str, more: &[&str]) -> Value {
        for _ in 0..=UNHEALTHY_STARTS_MAX {
            let node = self.busiest(&self.wait_healthy());
            let mut drill = self.drill(&["run", kind, "--json", "--before", "300ms", "--rate", "1000"]);
            drill.args(["--transport", "tcp"]).args(more);
            if kind != "rolling" {
                drill.args(["--node", &node]);
            }
            let output = drill.output().unwrap();
            if output.status.code() == Some(UNHEALTHY) {
                println!("an unhealthy start: {}", text(&output.stderr));
                continue;
            }
            assert_eq!(output.status.code(), Some(0), "{kind} node {node}: {output:?}");
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!((&report["verdict"], &report["lost"]), (&"PASS".into(), &0.into()), "{report}");
            assert_eq!(report["found"], report["acknowledged"], "{report}");
            return report;
        }
        panic!("the cluster is unwell each time");
    }

    /// Kills an agent, with whatever it supervises.
    fn kill(&mut self, node: usize) {
        let nodes = children(Pid::from_child(&self.agents[node]));
        self.agents[node].kill().unwrap();
        self.agents[node].wait().unwrap();
        wait_ended(&nodes);
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for child in self.agents.iter_mut().chain([&mut self.coordinator]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn drills_of_every_kind_by_the_agents_of_three_hosts_pass() {
    let hosts = Hosts::start(&[true, true, true]);
    let report = hosts.pass("kill", &["--duration", "5s"]);
    assert!(report["served_ms"].is_number() && report["lease_ended_ms"].is_number(), "{report}");
    hosts.pass("stop", &["--duration", "5s"]);
    hosts.pass("restart", &[]);
    hosts.pass("partition", &["--duration", "5s"]);
    hosts.pass("partition-in", &["--duration", "8s"]);
    hosts.pass("partition-out", &["--duration", "5s"]);
    let report = hosts.pass("slow-disk", &["--duration", "2s", "--delay", "80ms", "--threads", "8"]);
    assert_eq!(report["delay_ms"], 80, "{report}");
    hosts.pass("rolling", &[]);
    let lives = hosts.wait_healthy();
    let lives = lives["nodes"].as_array().unwrap().iter().map(|node| node["lives"].as_u64().unwrap());
    assert!(lives.clone().all(|lives| lives > 1), "each was restarted: {:?}", lives.collect::<Vec<_>>());
}

/// A drill whose driver is killed once left its fault, and the node out of the cluster.
#[test]
fn what_a_drill_does_ends_with_its_driver_and_with_an_agent_of_it() {
    let mut hosts = Hosts::start(&[true, true]);
    let begin = |kind: &str| {
        let mut drill = hosts.drill(&["run", kind, "--node", "0", "--duration", "5m", "--before", "1ms"]);
        drill.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut driver = begin("partition");
    wait::until("the node is cut off", || hosts.state(0)["partitioned"] == true);
    refused(&hosts.run(&["run", "kill", "--node", "1"]), 2, "a drill of node 0 is running");
    refused(
        &hosts.by(&hosts.agent(0), &["run", "rolling"]).output().unwrap(),
        2,
        "a drill of node 0 is running",
    );
    driver.kill().unwrap();
    driver.wait().unwrap();
    wait::until("the node is let back", || hosts.state(0)["partitioned"] == false);
    hosts.wait_healthy();

    let driver = begin("stop");
    wait::until("the node stands still", || hosts.state(0)["state"] == "stopped");
    signal(Pid::from_child(&driver), Signal::INT);
    assert_eq!(driver.wait_with_output().unwrap().status.code(), Some(130));
    hosts.wait_healthy();

    // The agent of the other host, and that of the node itself.
    for killed in [1, 0] {
        let mut drill =
            hosts.drill(&["run", "slow-disk", "--node", "0", "--duration", "5m", "--before", "1ms"]);
        let driver = drill.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        wait::until("the node's disk is slow", || hosts.state(0)["disk_delay_ms"] == 100);
        hosts.kill(usize::from(killed));
        let output = driver.wait_with_output().unwrap();
        refused(&output, 4, &format!("the agent at {} is gone", hosts.agent(killed)));
        let again = hosts.launch(killed, 2, true);
        hosts.agents[usize::from(killed)] = again;
        hosts.wait_healthy();
    }
    assert_eq!(text(&hosts.run(&["heal"]).stdout), "", "nothing lasts");
}

#[test]
fn agents_say_why_a_drill_cannot_be() {
    let mut hosts = Hosts::start(&[true, false]);
    let kill = ["run", "kill", "--node", "1", "--before", "1ms"];
    refused(&hosts.run(&kill), 2, "the agent does not allow drills");
    refused(&hosts.run(&["run", "kill", "--node", "9"]), 2, "there is no node 9: there is node 0 to node 1");
    let all = hosts.all();
    refused(
        &hosts.by(&hosts.agent(0), &["run", "kill", "--node", "0"]).output().unwrap(),
        2,
        "node 1 of the cluster has no agent",
    );
    let twice = format!("{all},{}", hosts.agent(1));
    refused(&hosts.by(&twice, &["ls"]).output().unwrap(), 2, "both have a node 1");
    let away = format!("{all},127.0.0.1:{}", hosts.ports.first + 290);
    refused(&hosts.by(&away, &["ls"]).output().unwrap(), 4, "is not reached");
    for (token, words) in [("nope", "does not know the token"), ("a", "has not the role admin")] {
        refused(&hosts.drill(&["ls", "--token", token]).output().unwrap(), 1, words);
    }
    refused(&hosts.drill(&["ls"]).env_remove("CELL_TOKEN").output().unwrap(), 1, "wants a token");
    let mut other_ca = command(&["drill", "ls", "--agents", &all, "--ca", &hosts.path("other-tls/ca.crt")]);
    refused(&other_ca.output().unwrap(), 4, "cannot be spoken to over TLS");
    let in_the_clear = command(&["drill", "ls", "--agents", &all]).output().unwrap();
    assert_eq!(in_the_clear.status.code(), Some(4), "{in_the_clear:?}");

    // A cluster of its own, beside that one.
    let stranger = hosts.agent_command(7, 0).spawn().unwrap();
    hosts.agents.push(stranger);
    let both = format!("{},{}", hosts.agent(0), hosts.agent(7));
    wait::until("the agents are seen to be of two clusters", || {
        let output = hosts.by(&both, &["ls"]).output().unwrap();
        output.status.code() == Some(2) && text(&output.stderr).contains("are of two clusters")
    });

    // Who may is read again.
    std::fs::write(hosts.path("tokens"), TOKENS.replace("admin ann", "operator ann")).unwrap();
    signal(Pid::from_child(&hosts.agents[0]), Signal::HUP);
    wait::until("the token counts no more", || {
        let output = hosts.by(&hosts.agent(0), &["ls"]).output().unwrap();
        output.status.code() == Some(1) && text(&output.stderr).contains("has not the role admin")
    });

    // What is wrong with the settings is said before anything is made.
    let (data, tokens) = (hosts.path("nothing"), hosts.path("tokens"));
    let in_the_clear = ["--agent-address=0.0.0.0:0", "--tokens-file", &tokens];
    for (flags, words) in [
        (&["--agent-address="][..], "agent_address is not given"),
        (&["--agent-address=127.0.0.1:0"][..], "tokens_file is not given"),
        (&in_the_clear[..], "is not a loopback address"),
    ] {
        let output = command(&["agent", "--data-dir", &data]).args(flags).output().unwrap();
        refused(&output, 2, words);
        assert!(!std::path::Path::new(&data).exists());
    }
}
