//! A coordinator that is away. `cell dev` hosts it in the supervisor's process: one that stands still leaves
//! nodes whose leases nobody renews, and who are silent until it goes on; one that is killed takes its nodes
//! with it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cell_client::{Client, ClientOptions};
use cell_tests::checker;
use cell_tests::ending::Ending;
use cell_tests::lease::{LEASE, LONG_LEASE};
use cell_tests::ledger::Ledger;
use cell_tests::process::{have_ended, signal, stop};
use cell_tests::server::Server;
use cell_tests::traffic::{Traffic, spread};
use cell_tests::wait::{self, PATIENCE};
use rustix::process::Signal;
use serde_json::Value;

use crate::failover::promise::{breathe, now};
use crate::failover::{FLAGS, rounds};

const WRITERS: u64 = 2;
const MEETING: u64 = 2;
/// Operations before a fault.
const OPERATIONS: u64 = 500;

fn cluster(more: &[&str]) -> Server {
    let server = Server::start_with(&[&["--nodes=3"], &FLAGS[..], more].concat());
    server.wait_healthy();
    server
}

/// When the writes were started that were acknowledged.
#[derive(Default)]
pub(crate) struct Dates {
    started: Mutex<Vec<Instant>>,
    stop: AtomicBool,
}

impl Dates {
    /// Writes all over the key space, and soon gives up each write.
    fn write(&self, server: std::net::SocketAddr) {
        let options = ClientOptions { deadline_ms: 50, ..ClientOptions::default() };
        let mut client = Client::connect(&server.to_string(), options).expect("the server is there");
        let mut number = 0;
        while !self.stop.load(Ordering::SeqCst) {
            number += 7;
            let started = now();
            if client.put(&spread(number, "-dated"), b"value").is_ok() {
                self.started.lock().expect("nobody panics with it").push(started);
            }
        }
    }

    fn ending(&self) -> Ending<'_> {
        Ending(&self.stop)
    }

    /// How many were acknowledged that were started in that time.
    pub(crate) fn count(&self, from: Instant, to: Instant) -> usize {
        let started = self.started.lock().expect("nobody panics with it");
        started.iter().filter(|started| (from..to).contains(*started)).count()
    }
}

/// Load by every kind of client while `fault` is done and mended, again and again; then everything that was
/// acknowledged is there and every key's history has an order.
pub(crate) fn nothing_is_lost_under(server: &mut Server, mut fault: impl FnMut(&mut Server, &Dates)) {
    let traffic = Traffic::new(server.address());
    let dates = Dates::default();
    let address = server.address();
    let ledgers: Vec<Ledger> = std::thread::scope(|scope| {
        let (traffic, dates) = (&traffic, &dates);
        let writers: Vec<_> =
            (0..WRITERS).map(|client| scope.spawn(move || traffic.keep_ledger(client, PATIENCE))).collect();
        let meeting: Vec<_> =
            (0..MEETING).map(|client| scope.spawn(move || traffic.meet(client, PATIENCE))).collect();
        let dating = scope.spawn(move || dates.write(address));
        let ending = (traffic.ending(), dates.ending());
        for _ in 0..rounds() {
            let ticks = traffic.recorder.ticks();
            while traffic.recorder.ticks() < ticks + 2 * OPERATIONS {
                breathe();
            }
            fault(server, dates);
        }
        drop(ending);
        dating.join().expect("a writer did not panic");
        for client in meeting {
            client.join().expect("a client that met others did not panic");
        }
        writers.into_iter().map(|writer| writer.join().expect("a writer did not panic")).collect()
    });
    let keys: usize = ledgers.iter().map(|ledger| traffic.verify(ledger)).sum();
    let acknowledged: u64 = ledgers.iter().map(|ledger| ledger.counts().0).sum();
    assert!(acknowledged > OPERATIONS, "there was load: {acknowledged} writes");
    for (key, history) in traffic.recorder.into_history() {
        if let Err(violation) = checker::check(&history, None) {
            panic!("{} is not linearizable: {violation:?}", key.escape_ascii());
        }
    }
    println!("{keys} keys verified, {acknowledged} writes acknowledged");
}

/// Whether a node says that its lease has run out and that it answers nobody.
pub(crate) fn is_silent(server: &Server, node: u16) -> bool {
    server
        .http_of(node, "/readyz?verbose")
        .is_some_and(|(status, text)| status == 503 && text.contains("silent"))
}

/// While all are silent, what they saw last is shown nowhere as if it were so.
fn assert_nothing_is_called_served(server: &Server, nodes: u16) {
    let answer = |node: u16, path: &str| server.http_of(node, path).expect("its HTTP answers").1;
    for node in 0..nodes {
        let ready = answer(node, "/readyz?verbose");
        assert!(!ready.contains("all served"), "{ready}");
        assert!(ready.contains("[-]warnings: this node waits for its coordinator"), "{ready}");
        let unserved = "\ncell_cluster_pairs_unserved NaN\n";
        assert!(answer(node, "/metrics").contains(unserved), "node {node} counts what it cannot know");
    }
    let status = answer(0, "/api/v1/cluster/status");
    let status: Value = serde_json::from_str(&status).expect("a document");
    assert_eq!((&status["pairs"]["served"], &status["verdict"]["level"]), (&0.into(), &"critical".into()));
}

/// Nodes of this lease, whose coordinator stands still until all are silent.
pub(crate) fn nothing_is_lost_while_the_coordinator_stands_still(flags: &[&str], lease: Duration) {
    const NODES: u16 = 3;
    nothing_is_lost_under(&mut cluster(flags), |server, dates| {
        let before = server.view();
        let processes = before.processes();
        assert_eq!(processes.len(), usize::from(NODES));
        stop(server.supervisor());
        let stopped = now();
        wait::until("nodes without a lease are silent", || {
            let ended = processes.iter().any(|process| have_ended(&[*process]));
            assert!(!ended, "a node whose lease has run out ends");
            (0..NODES).all(|node| is_silent(server, node))
        });
        let late = dates.count(stopped + lease, now());
        assert_eq!(late, 0, "acknowledged writes that were started when every lease had run out");
        assert_nothing_is_called_served(server, NODES);
        signal(server.supervisor(), Signal::CONT);
        let after = server.wait_healthy();
        assert_eq!(after.processes(), processes, "nodes were restarted");
        for pair in before.pairs() {
            let number = pair["pair"].as_u64().expect("a number");
            let owner = |pair: &Value| (pair["owner"].clone(), pair["epoch"].clone());
            assert_eq!(owner(after.pair(number)), owner(pair), "pair {number} was taken over");
        }
        let acknowledged = now();
        wait::until("writes are acknowledged again", || dates.count(acknowledged, now()) > 0);
    });
}

#[test]
fn coordinator_that_stands_still_past_the_leases_nothing_more_is_acknowledged_and_nothing_lost() {
    nothing_is_lost_while_the_coordinator_stands_still(&LONG_LEASE, LEASE);
}

#[test]
fn supervisor_killed_under_load_of_three_nodes_nothing_is_lost() {
    nothing_is_lost_under(&mut cluster(&LONG_LEASE), |server, _| {
        server.kill_all();
        server.resume();
        server.wait_healthy();
    });
}
