//! Three hosts with a node and a member of etcd each, and what befalls hosts, network and etcd. Clients on a
//! further host, and on the one that a fault is about, write and read meanwhile. Whatever happens: no write
//! that was acknowledged is lost, each key's history has an order, so that a pair never has two owners that
//! answer, and everything is served again.

mod drills;
mod etcd_lost;
mod gluster;
mod partitions;
mod power;
mod replaced;
mod standing_still;
mod walk;
mod walk_through;

use std::collections::BTreeMap;
use std::time::Duration;

use cell_client::{Client, ClientError, ClientOptions, Condition, Operation};
use cell_tests::hosts::{Etcd, EtcdOptions, Hosts, Store, StoreOptions, pairs_of, runs_of};
use cell_tests::ledger::Ledger;
use cell_tests::traffic::{Traffic, spread};
use cell_tests::wait;

/// A lease that is waited for when somebody has died.
const SHORT_LEASE_MS: u64 = 3_000;
/// A lease within which etcd elects, and a member stands still, also on a busy machine.
const LONG_LEASE_MS: u64 = 8_000;
/// How long clients try that are to be answered in the end.
const PATIENT: Duration = Duration::from_secs(100);
/// How long clients try that are on the host of a fault.
const IMPATIENT: Duration = Duration::from_millis(500);
/// Writes before a fault, and while it lasts: a fault without load proves nothing.
const WRITES: u64 = 200;
/// Writes after which each pair has answered some. A writer has 64 outstanding, of keys of all pairs: with a
/// pair that does not answer it comes to a few hundred.
const WRITES_TO_ALL: u64 = 2_000;
/// How long a client that is to be answered nothing tries to connect: a node that is silent by itself
/// welcomes nobody.
const SILENT: Duration = Duration::from_secs(2);
/// How long it tries each write.
const SILENT_MS: u64 = 1_000;
/// Keys that it writes, spread over the key space: each pair has some of them.
const SPREAD: u64 = 62;
/// Clients on the client's host that meet on keys.
const MEETING: u64 = 3;

/// Hosts, etcd and a cluster.
struct Scene<'s> {
    hosts: &'s Hosts,
    etcd: &'s Etcd<'s>,
    store: &'s Store<'s>,
}

/// Starts three hosts, etcd and nodes with such a lease, and does something with them, unless this machine
/// lacks what it takes.
fn on_three_hosts(lease_ms: u64, what: impl FnOnce(&Scene<'_>)) {
    let options = StoreOptions { lease_ms, ..StoreOptions::default() };
    on_three_hosts_with(options, |_| (), |scene, _| what(scene));
}

/// The same with other nodes, on hosts to which something is done before, which lasts as long as they do.
fn on_three_hosts_with<T>(
    options: StoreOptions,
    prepare: impl FnOnce(&Hosts) -> T,
    what: impl FnOnce(&Scene<'_>, &T),
) {
    let Some(hosts) = Hosts::start(3) else { return };
    let prepared = prepare(&hosts);
    // A tenth of its own second, and half of it: it elects within a third of the short lease.
    let flags = ["--heartbeat-interval=100", "--election-timeout=500"].map(str::to_owned).to_vec();
    let Some(etcd) = Etcd::start(&hosts, EtcdOptions { tls: true, flags }) else { return };
    let store = Store::start(&hosts, &etcd, options);
    what(&Scene { hosts: &hosts, etcd: &etcd, store: &store }, &prepared);
}

/// Says at a failure during which fault it came.
struct Fault(&'static str);

impl Drop for Fault {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the fault was: {}", self.0);
        }
    }
}

impl Scene<'_> {
    /// Something happens while clients write and read, on the client's host and on one of the others; then
    /// all is as it must be. How many operations were not answered in their time.
    fn under_load(&self, name: &'static str, inside: Option<u16>, what: impl FnOnce(&Traffic)) -> u64 {
        let _named = Fault(name);
        let traffic = Traffic::at(&self.store.servers(), self.store.client_options()).scoped(name);
        let ledgers = self.ledgers(&traffic, inside, what);
        self.store.wait_served();
        self.hosts.client().within(|| {
            let verified: usize = ledgers.iter().map(|ledger| traffic.verify(ledger)).sum();
            assert!(verified > 0, "nothing was written");
        });
        let failed = traffic.failed();
        assert!(traffic.check_history() > 0, "nobody met");
        failed
    }

    /// What writers were answered while something happened.
    fn ledgers(&self, traffic: &Traffic, inside: Option<u16>, what: impl FnOnce(&Traffic)) -> Vec<Ledger> {
        let client = self.hosts.client();
        std::thread::scope(|scope| {
            let ending = traffic.ending();
            let mut writers = vec![scope.spawn(|| {
                client.enter();
                traffic.keep_ledger(0, PATIENT)
            })];
            let mut meeting = Vec::new();
            for number in 0..MEETING {
                meeting.push(scope.spawn(move || {
                    client.enter();
                    traffic.meet(number, PATIENT)
                }));
            }
            let mut clients = 1 + MEETING;
            if let Some(number) = inside {
                let (host, server) = (self.hosts.host(number), self.store.server(number));
                let own = server.clone();
                writers.push(scope.spawn(move || {
                    host.enter();
                    traffic.keep_ledger_at(&own, 1, IMPATIENT)
                }));
                for number in MEETING..MEETING + 2 {
                    let server = server.clone();
                    meeting.push(scope.spawn(move || {
                        host.enter();
                        traffic.meet_at(&server, number, IMPATIENT)
                    }));
                }
                clients += 3;
            }
            traffic.wait_connected(clients);
            traffic.wait_acknowledged(WRITES);
            what(traffic);
            traffic.wait_acknowledged(WRITES_TO_ALL);
            drop(ending);
            for client in meeting {
                client.join().expect("a client that met others did not panic");
            }
            writers.into_iter().map(|writer| writer.join().expect("a writer did not panic")).collect()
        })
    }

    /// A fault of a host after which the others take its node's pairs over, while clients go on. Those that
    /// are not on that host are all answered in their time.
    fn taken_over(
        &self,
        name: &'static str,
        victim: u16,
        inside: Option<u16>,
        begin: impl FnOnce(),
        end: impl FnOnce(),
    ) {
        let before = pairs_of(&self.store.wait_served());
        let lost: Vec<u64> =
            before.iter().filter(|(_, (host, _))| *host == victim).map(|(pair, _)| *pair).collect();
        assert!(!lost.is_empty(), "{name}: host {victim} has no pair to lose: {before:?}");
        let failed = self.under_load(name, inside, |traffic| {
            let taken = self.store.takeovers() + lost.len();
            begin();
            wait::until("the others have taken its pairs over", || self.store.takeovers() >= taken);
            traffic.wait_acknowledged(WRITES_TO_ALL);
            end();
        });
        // Clients on the host give up by design, and are counted, too.
        if inside.is_none() {
            assert_eq!(failed, 0, "{name}: operations failed that had {PATIENT:?}");
        }
        let after = pairs_of(&self.store.wait_served());
        for pair in lost {
            let (epoch, new) = (before[&pair].1, after[&pair].1);
            assert!(new > epoch, "{name}: pair {pair} had epoch {epoch}, and has {new}");
        }
    }

    /// A fault that ends no node and moves no pair, and after which each operation was answered in its time.
    fn nothing_ends(&self, name: &'static str, what: impl FnOnce(&Traffic)) {
        let before = self.store.wait_served();
        let failed = self.under_load(name, None, what);
        // Counted once all clients have ended: one that waits for its answer has failed nothing yet.
        assert_eq!(failed, 0, "{name}: operations failed");
        let after = self.store.wait_served();
        assert_eq!(runs_of(&after), runs_of(&before), "{name}: a node has ended");
        assert_eq!(pairs_of(&after), pairs_of(&before), "{name}: a pair was taken over");
    }

    /// The host whose node has most of the pairs.
    fn busiest(&self) -> u16 {
        self.busiest_of(self.hosts.numbers())
    }

    /// The same of some hosts.
    fn busiest_of(&self, hosts: impl IntoIterator<Item = u16>) -> u16 {
        let pairs = pairs_of(&self.store.wait_served());
        let of = |host: &u16| pairs.values().filter(|(owner, _)| owner == host).count();
        hosts.into_iter().max_by_key(of).expect("there are hosts")
    }

    /// The members of etcd that follow.
    fn followers(&self) -> Vec<u16> {
        let leader = self.etcd.wait_leader();
        self.hosts.numbers().filter(|member| *member != leader).collect()
    }

    /// Demands that a host's node acknowledges no write of a client beside it, which reaches it by all means:
    /// neither of keys of its own pairs nor of others'.
    fn demand_silence(&self, host: u16) {
        let server = self.store.server(host);
        let options = ClientOptions { deadline_ms: SILENT_MS, ..self.store.client_options() };
        let acknowledged = self.hosts.host(host).within(|| acknowledged_writes(&server, options));
        assert!(acknowledged.is_empty(), "the node of host {host} answers past its lease: {acknowledged:?}");
    }
}

/// The keys of which a server acknowledges a write, of some that are spread over the key space.
fn acknowledged_writes(server: &str, options: ClientOptions) -> Vec<String> {
    let mut client = match Client::connect_within(server, options, SILENT) {
        Ok(client) => client,
        Err(error @ ClientError::Unauthorized) => panic!("{server} refuses the token of tests: {error}"),
        // Who lets nobody in acknowledges nothing.
        Err(_) => return Vec::new(),
    };
    let mut asked = BTreeMap::new();
    for number in 0..SPREAD {
        let key = spread(number, "-of-nobody");
        let put = Operation::Put { key: &key, value: b"x", condition: Condition::Always };
        let ticket = client.submit(&put).expect("the queue has room");
        asked.insert(ticket, key.escape_ascii().to_string());
    }
    let mut acknowledged = Vec::new();
    while let Some(completion) = client.poll(wait::PATIENCE) {
        let key = asked.remove(&completion.ticket).expect("a ticket completes once");
        if completion.outcome.is_ok() {
            acknowledged.push(key);
        }
    }
    assert!(asked.is_empty(), "each write ends at its deadline: {asked:?}");
    acknowledged
}
