//! The coordinator's host alone: its process is killed and started again, while nodes of other hosts run on,
//! keep their leases or are silent until it is back.

use std::process::Child;
use std::time::Duration;

use cell_tests::lease::LEASE;
use cell_tests::process::signal;
use cell_tests::server::Server;
use cell_tests::wait;
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::failover::coordinator::{Dates, is_silent, nothing_is_lost_under};
use crate::failover::promise::now;

/// The nodes that the coordinator's host does not run.
const OTHERS: [u16; 2] = [1, 2];
/// Settings of every node, whoever runs it.
const SETTINGS: [&str; 3] =
    ["--node-region-bytes=64MiB", "--slot-bytes=4MiB", "--extent-region-bytes=128MiB"];
/// A lease within which the coordinator's host is back.
const LONGER: Duration = Duration::from_secs(9);

/// A cluster of three nodes, of which `cell dev` runs coordinator and node 0, and this test the others.
struct Hosts {
    others: Vec<Child>,
    lease: String,
}

impl Hosts {
    /// A cluster that has run on one host, and whose processes are gone.
    fn prepared(lease: Duration) -> (Server, Hosts) {
        let lease = format!("--lease-ms={}", lease.as_millis());
        // The first start spreads the keys over three nodes.
        let flags = [&["--nodes=3", "--allow-drills", &lease][..], &SETTINGS].concat();
        let mut server = Server::start_with(&flags);
        server.wait_healthy();
        assert_eq!(server.stop(), Some(0));
        server.set_flags(&[&["--nodes=1", &lease][..], &SETTINGS].concat());
        (server, Hosts { others: Vec::new(), lease })
    }

    fn start(lease: Duration) -> (Server, Hosts) {
        let (mut server, mut hosts) = Hosts::prepared(lease);
        server.launch();
        hosts.start_others(&server);
        hosts.wait_healthy(&mut server);
        (server, hosts)
    }

    fn start_others(&mut self, server: &Server) {
        self.others.clear();
        for node in OTHERS {
            let child = self.spawn(server, node, &SETTINGS);
            self.others.push(child);
        }
    }

    fn spawn(&self, server: &Server, node: u16, settings: &[&str]) -> Child {
        let mut command = server.node_command(node);
        let more = [&*self.lease, "--ready-memory-bytes=0", "--populate-chunk-bytes=8MiB"];
        command.args(settings).args(more).spawn().expect("cell can be started")
    }

    /// None of them has ended.
    fn demand_running(&mut self) {
        let ended: Vec<_> = self.others.iter_mut().map(|node| node.try_wait().expect("a child")).collect();
        assert!(ended.iter().all(Option::is_none), "nodes ended: {ended:?}");
    }

    fn wait_healthy(&mut self, server: &mut Server) {
        server.wait_ready();
        wait::until("its status is healthy", || server.cell(&["status"]).code == Some(0));
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for node in &mut self.others {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

/// What a node's HTTP answers, in words; none while it is not there.
fn answer(server: &Server, node: u16, path: &str) -> Option<String> {
    server.http_of(node, path).map(|(_, text)| text)
}

/// How often a node that waits for its first lease says it has asked.
fn tries(server: &Server, node: u16) -> Option<u64> {
    let status: Value = serde_json::from_str(&answer(server, node, "/api/v1/status")?).ok()?;
    let state = &status["state"];
    let (_, tried) =
        (state["name"] == "starting").then(|| state["reason"].as_str()?.split_once(", tried "))??;
    tried.split(' ').next()?.parse().ok()
}

/// HTTP came after the first lease: a node whose coordinator was away had no console, and ended after ten
/// seconds.
#[test]
fn nodes_that_start_before_the_coordinators_host_say_what_they_wait_for_and_serve_once_it_is_there() {
    let (mut server, mut hosts) = Hosts::prepared(LONGER);
    hosts.start_others(&server);
    let place = server.coordinator().display().to_string();
    for node in OTHERS {
        let asked = wait::until_some("it has asked more than once", || tries(&server, node));
        wait::until("it goes on asking", || tries(&server, node).is_some_and(|tries| tries > asked));
        let (ready, checks) = server.http_of(node, "/readyz?verbose").expect("it answers");
        let reads = format!("[-]reads: starting: waiting for the coordinator at {place}, tried ");
        assert!(ready == 503 && checks.contains(&reads) && checks.contains("[-]lease: none yet"), "{checks}");
        assert_eq!(server.http_of(node, "/livez").expect("it answers").0, 200);
        let (code, page) = server.http_of(node, "/console/overview").expect("it answers");
        assert!(code == 200 && page.contains("<script"), "{page}");
        let text = answer(&server, node, "/api/v1/cluster/status").expect("it answers");
        let status: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(status["verdict"]["level"], "critical", "{text}");
        assert!(status["verdict"]["sentence"].as_str().expect("a text").contains(&place), "{text}");
    }
    let mut ended = hosts.others.remove(0);
    signal(Pid::from_child(&ended), Signal::TERM);
    assert_eq!(ended.wait().expect("a child").code(), Some(0), "an operator ends it");
    // One that does not fit waits, too, and is refused as soon as there is somebody to refuse it.
    let sizes = [SETTINGS[0], SETTINGS[1], "--extent-region-bytes=64MiB"];
    let mut other = hosts.spawn(&server, OTHERS[0], &sizes);
    wait::until("it asks", || tries(&server, OTHERS[0]).is_some());
    let said = server.log().len();
    server.launch();
    assert_eq!(other.wait().expect("a child").code(), Some(2));
    server.wait_log(said, "extent_region_bytes");
    hosts.others.push(hosts.spawn(&server, OTHERS[0], &SETTINGS));
    hosts.wait_healthy(&mut server);
    hosts.demand_running();
}

#[test]
fn coordinators_host_killed_and_back_within_the_leases_the_other_nodes_keep_their_pairs() {
    let (mut server, mut hosts) = Hosts::start(LONGER);
    nothing_is_lost_under(&mut server, |server, _: &Dates| {
        server.kill_all();
        server.launch();
        hosts.wait_healthy(server);
        hosts.demand_running();
    });
    assert_eq!(server.cell(&["verify"]).code, Some(0));
}

#[test]
fn coordinators_host_away_past_the_leases_the_other_nodes_fence_themselves_and_nothing_is_lost() {
    let (mut server, mut hosts) = Hosts::start(LEASE);
    nothing_is_lost_under(&mut server, |server, dates| {
        server.kill_all();
        let killed = now();
        wait::until("nodes without a lease are silent", || {
            OTHERS.iter().all(|node| is_silent(server, *node))
        });
        let late = dates.count(killed + LEASE, now());
        assert_eq!(late, 0, "acknowledged writes that were started when every lease had run out");
        server.launch();
        hosts.wait_healthy(server);
        hosts.demand_running();
    });
    assert_eq!(server.cell(&["verify"]).code, Some(0));
}
