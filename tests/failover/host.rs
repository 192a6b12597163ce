//! The coordinator's host alone: its process is killed and started again, while nodes of other hosts run on,
//! keep their leases or are silent until it is back.

use std::process::Child;
use std::time::Duration;

use cell_tests::lease::LEASE;
use cell_tests::server::Server;
use cell_tests::wait::{self, PATIENCE};

use crate::failover::coordinator::{Dates, is_silent, nothing_is_lost_under};
use crate::failover::promise::{breathe, now};

/// The nodes that the coordinator's host does not run.
const OTHERS: [u16; 2] = [1, 2];
/// Settings of every node, whoever runs it.
const SETTINGS: [&str; 3] =
    ["--node-region-bytes=64MiB", "--slot-bytes=4MiB", "--extent-region-bytes=128MiB"];
/// A lease within which the coordinator's host is back.
const LONGER: Duration = Duration::from_secs(12);

/// A cluster of three nodes, of which `cell dev` runs coordinator and node 0, and this test the others.
struct Hosts {
    others: Vec<Child>,
    lease: String,
}

impl Hosts {
    fn start(lease: Duration) -> (Server, Hosts) {
        let lease = format!("--lease-ms={}", lease.as_millis());
        // The first start spreads the keys over three nodes.
        let flags = [&["--nodes=3", "--allow-drills", &lease][..], &SETTINGS].concat();
        let mut server = Server::start_with(&flags);
        server.wait_healthy();
        assert_eq!(server.stop(), Some(0));
        server.set_flags(&[&["--nodes=1", &lease][..], &SETTINGS].concat());
        server.launch();
        let mut hosts = Hosts { others: Vec::new(), lease };
        hosts.start_others(&server);
        hosts.wait_healthy(&mut server);
        (server, hosts)
    }

    fn start_others(&mut self, server: &Server) {
        self.others.clear();
        for node in OTHERS {
            let mut command = server.node_command(node);
            command.args(SETTINGS).args([
                &self.lease,
                "--ready-memory-bytes=0",
                "--populate-chunk-bytes=8MiB",
            ]);
            self.others.push(command.spawn().expect("cell can be started"));
        }
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
        while !OTHERS.iter().all(|node| is_silent(server, *node)) {
            assert!(killed.elapsed() < PATIENCE, "nodes without a lease go on");
            breathe();
        }
        let late = dates.count(killed + LEASE, now());
        assert_eq!(late, 0, "acknowledged writes that were started when every lease had run out");
        server.launch();
        hosts.wait_healthy(server);
        hosts.demand_running();
    });
    assert_eq!(server.cell(&["verify"]).code, Some(0));
}
