//! Pairs that nobody can serve: there is no room for them, or their logs are gone or cannot be read. They are
//! reported with the reason, their keys are refused in time, everything else is served, and nothing is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use cell_client::{Client, ClientError, ClientOptions, Operation, Output};
use cell_terms::{PairId, RegionId};
use cell_tests::lease::LONG_LEASE;
use cell_tests::process::signal;
use cell_tests::program::{self, Said};
use cell_tests::server::Server;
use cell_tests::traffic::{put_all, repeated, spread};
use cell_tests::wait::{self, PATIENCE};
use rustix::process::Signal;

use crate::failover::FLAGS;

const KEYS: u64 = 62;
/// How long a key that nobody serves may hold its client up, each of the times that it is asked for.
const DEADLINE_MS: u64 = 2_000;
/// How often a key is asked for that is not answered, so that one of a busy node is not taken for unserved.
const LOOKS: usize = 2;
/// How long a key may take that is served, on a machine that does other things too.
const SERVED_WITHIN_MS: u64 = 60_000;
/// The exit code of a command that finds something unwell.
const UNHEALTHY: Option<i32> = Some(5);
/// The node that dies.
const VICTIM: u64 = 2;
/// A node that joins.
const JOINED: u16 = 3;
/// Enough for one pair that is filled, and not for two.
const SHORT: &str = "--memory-limit-bytes=256MiB";
/// Large values of [`Store::fill`], as many at each first letter.
const LARGE: u64 = 3 * KEYS;
const LARGE_BYTES: usize = 1_000 << 10;

/// A cluster with an entry under each key.
struct Store {
    server: Server,
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    round: u32,
    /// Nodes that clients and commands are given, dead or not.
    nodes: u16,
}

impl Store {
    fn start(more: &[&str]) -> Store {
        Store::start_of("--nodes=3", more)
    }

    fn start_of(nodes: &str, more: &[&str]) -> Store {
        let server = Server::start_with(&[&[nodes], &FLAGS[..], &LONG_LEASE, more].concat());
        server.wait_healthy();
        let mut store = Store { server, values: BTreeMap::new(), round: 0, nodes: 3 };
        store.write(&(0..KEYS).map(|number| spread(number, "-pair")).collect());
        store
    }

    /// Every node; one that is there is enough.
    fn survivor_address(&self) -> String {
        let first = self.server.address().port();
        (first..first + self.nodes).map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
    }

    fn client(&self, deadline_ms: u64) -> Client {
        let options = ClientOptions { deadline_ms, ..ClientOptions::default() };
        Client::connect(&self.survivor_address(), options).expect("a survivor is there")
    }

    fn cell(&self, arguments: &[&str]) -> Said {
        program::run(&[&arguments[..1], &["--server", &self.survivor_address()], &arguments[1..]].concat())
    }

    /// Gives these keys new values.
    fn write(&mut self, keys: &BTreeSet<Vec<u8>>) {
        self.round += 1;
        let value = format!("round {}", self.round).into_bytes();
        let mut client = self.client(SERVED_WITHIN_MS);
        for key in keys {
            client.put(key, &value).expect("it is served");
            self.values.insert(key.clone(), value.clone());
        }
    }

    /// Gives each pair some sixty megabytes.
    fn fill(&self) {
        let mut client = self.client(SERVED_WITHIN_MS);
        put_all(&mut client, 0..LARGE, 4, |number| (large_key(number), large_value(number)));
    }

    /// All that was filled in is there.
    fn assert_filled(&self) {
        let mut client = self.client(SERVED_WITHIN_MS);
        for number in 0..LARGE {
            let item = client.get(&large_key(number)).expect("it is served");
            assert!(item.is_some_and(|item| item.value == large_value(number)), "{number}");
        }
    }

    /// Reads every key, all at once. Those that are served within a time have their values; the others are
    /// returned, with what was said of one of them.
    fn unserved(&self, deadline_ms: u64) -> (BTreeSet<Vec<u8>>, Option<ClientError>) {
        let mut client = self.client(SERVED_WITHIN_MS);
        let (mut unserved, mut said): (BTreeSet<Vec<u8>>, _) = (self.values.keys().cloned().collect(), None);
        for _ in 0..LOOKS {
            (unserved, said) = self.unserved_of(&unserved, &mut client, deadline_ms);
        }
        (unserved, said)
    }

    /// The same of these keys, asked for once.
    fn unserved_of(
        &self,
        keys: &BTreeSet<Vec<u8>>,
        client: &mut Client,
        deadline_ms: u64,
    ) -> (BTreeSet<Vec<u8>>, Option<ClientError>) {
        let deadline = Duration::from_millis(deadline_ms);
        let mut tickets = BTreeMap::new();
        for key in keys {
            let ticket = client.submit_within(&Operation::Get { key }, deadline);
            tickets.insert(ticket.expect("the queue has room"), key.clone());
        }
        let (mut unserved, mut said) = (BTreeSet::new(), None);
        while !tickets.is_empty() {
            let completion = client.poll(PATIENCE).expect("no operation hangs");
            let key = tickets.remove(&completion.ticket).expect("a ticket completes once");
            match completion.outcome {
                Ok(Output::Value(item)) => {
                    let found = item.map(|item| item.value);
                    assert_eq!(found.as_ref(), self.values.get(&key), "{}", key.escape_ascii());
                }
                Ok(other) => panic!("a get answers {other:?}"),
                Err(error) => {
                    said = Some(error);
                    unserved.insert(key);
                }
            }
        }
        (unserved, said)
    }

    /// The keys that are not served: some, and not those of other nodes, which take new values meanwhile.
    fn assert_a_part_is_served(&mut self) -> BTreeSet<Vec<u8>> {
        let (unserved, said) = self.unserved(DEADLINE_MS);
        assert!((5..=30).contains(&unserved.len()), "a third of the keys or so: {unserved:?}");
        let said = said.expect("an error for each");
        assert!(matches!(said, ClientError::Deadline { .. }), "surely not done: {said:?}");
        let served = self.values.keys().filter(|key| !unserved.contains(*key)).cloned().collect();
        self.write(&served);
        unserved
    }

    fn assert_all_is_served(&mut self) {
        self.server.wait_healthy();
        assert_eq!(self.unserved(SERVED_WITHIN_MS).0, BTreeSet::new());
        self.write(&self.values.keys().cloned().collect());
        let verified = self.cell(&["verify"]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
    }

    fn ls(&self) -> Said {
        program::run(&["drill", "ls", "--dir", self.server.folder().to_str().expect("it is UTF-8")])
    }

    /// Waits until a pair is reported with this reason, everywhere that a person looks, and the others are
    /// served.
    fn wait_reported(&self, pair: u64, reason: &str) {
        self.server.wait_view(reason, |view| {
            let row = view.pair(pair);
            let is_reported = row["trouble"].as_str().is_some_and(|trouble| trouble.contains(reason))
                && row["next"].is_string();
            let others = view.pairs().iter().filter_map(|row| row["pair"].as_u64()).filter(|it| *it != pair);
            is_reported && others.into_iter().all(|other| view.is_served(other))
        });
        // Whoever is asked again looks at it, and it is reported once more.
        wait::until("the command says so", || {
            let said = self.ls().out;
            let unavailable = format!("pair-{pair} is unavailable: ");
            [&unavailable, reason, "next: "].iter().all(|words| said.contains(words))
        });
        let status = self.cell(&["status"]);
        assert_eq!(status.code, UNHEALTHY, "{status:?}");
        // A survivor's own view is some moments older.
        self.server.wait_http(1, "/readyz?verbose", reason);
    }

    /// The folder of a region's logs.
    fn logs(&self, region: RegionId) -> PathBuf {
        let folder = self.server.folder().join("log").join(format!("region-{:08x}", region.0));
        assert!(folder.is_dir(), "{} is there", folder.display());
        folder
    }

    /// The node that holds a pair, and its process, killed; another one follows at once.
    fn restart_holder(&self, pair: u64) {
        let view = self.server.view();
        let node = view.pair(pair)["node"].as_u64().expect("somebody holds it");
        assert_ne!(node, VICTIM, "{view:?}");
        let process = view.process(node).expect("it runs");
        signal(process, Signal::KILL);
        // Whoever looks at it next is another life.
        let before = view.pair(pair)["owner"].clone();
        self.server.wait_view("looked at again", |view| view.pair(pair)["owner"] != before);
    }
}

fn large_key(number: u64) -> Vec<u8> {
    spread(number, &format!("-large-{number:03}"))
}

fn large_value(number: u64) -> Vec<u8> {
    repeated(&format!("{number};"), LARGE_BYTES)
}

/// The only pair of a node.
fn pair_of(server: &Server, node: u64) -> u64 {
    let owned = server.view().owned();
    let [pair] = owned[&node][..] else { panic!("one pair a node: {owned:?}") };
    pair
}

fn pair_id(pair: u64) -> PairId {
    PairId(u32::try_from(pair).expect("a pair's number is small"))
}

/// Each of three nodes has a pair that takes more than half of its memory, by what was granted: the sizes of
/// regions, of which each node could hold one as well, say nothing of it.
#[test]
fn survivors_short_of_memory_report_the_pair_and_serve_the_rest_until_there_is_room() {
    let mut store = Store::start(&[SHORT, "--balance=off"]);
    store.fill();
    // The first node has the router, by which clients find the others.
    for victim in [VICTIM, 0] {
        let pair = pair_of(&store.server, victim);
        store.server.take_down(victim);
        store.wait_reported(pair, "bytes of memory");
        let unserved = store.assert_a_part_is_served();
        // Each of the others is asked, again and again, and finds itself that it has no room.
        let mut asked = BTreeSet::new();
        wait::until("both are asked", || {
            let row = store.server.view().pair(pair).clone();
            assert_ne!(row["state"], "serving", "{row}");
            asked.extend(row["node"].as_u64().filter(|node| *node != victim));
            asked.len() == 2
        });
        let key = String::from_utf8(unserved.first().expect("some").clone()).expect("it is ASCII");
        // Without the router nobody knows whose the key is.
        let named = format!("nobody serves pair-{pair} now: ");
        let reason = if victim == VICTIM { &named } else { "nobody serves its pair" };
        // Whoever tries it at that moment says that it recovers.
        wait::until("it is said why", || {
            let said = store.cell(&["get", "--timeout", "5s", &key]);
            assert_eq!(said.code, UNHEALTHY, "{said:?}");
            said.err.contains(reason)
        });

        store.server.start_node(victim);
        store.assert_all_is_served();
        store.assert_filled();
    }
    // A node that comes, and has room, is enough.
    let pair = pair_of(&store.server, VICTIM);
    store.server.take_down(VICTIM);
    store.wait_reported(pair, "bytes of memory");
    let mut command = store.server.node_command(JOINED);
    command.args(&FLAGS[1..]).args(LONG_LEASE).args([SHORT, "--balance=off"]);
    let joined = Stray(command.spawn().expect("cell can be started"));
    store.server.wait_view("served by who came", |view| {
        let row = view.pair(pair);
        row["state"] == "serving" && row["node"] == JOINED
    });
    store.nodes = JOINED + 1;
    assert_eq!(store.unserved(SERVED_WITHIN_MS).0, BTreeSet::new());
    store.assert_filled();
    drop(joined);
}

#[test]
fn log_folder_removed_from_a_dead_node_is_refused_and_reported_until_it_is_back() {
    let mut store = Store::start(&[]);
    let pair = pair_of(&store.server, VICTIM);
    let (node, extent) = (pair_id(pair).node_region(), pair_id(pair).extent_region());
    let aside = store.server.folder().join("aside");
    store.server.take_down(VICTIM); // nobody looks into the folder before its lease has ended
    let folder = store.logs(node);
    fs::rename(&folder, &aside).expect("a folder can be moved");
    // One survivor's word would not do.
    let reason = format!("the log of {node}, epoch 1, is missing (found by node 0 and node 1");
    store.wait_reported(pair, &reason);
    let unserved = store.assert_a_part_is_served();
    // The node itself, back again, does not serve it either, nor does who is started anew.
    store.server.start_node(VICTIM);
    store.server.wait_view("back", |view| view.serves(VICTIM));
    assert_eq!(store.assert_a_part_is_served(), unserved);
    store.restart_holder(pair);
    store.wait_reported(pair, &reason);
    assert_eq!(store.assert_a_part_is_served(), unserved);

    fs::rename(&aside, &folder).expect("a folder can be moved");
    store.restart_holder(pair);
    store.assert_all_is_served();

    // The other log, and nobody ever brings it back: a start of the whole cluster serves nothing of it.
    store.server.kill_all();
    fs::remove_dir_all(store.logs(extent)).expect("a folder can be removed");
    store.server.resume();
    store.wait_reported(pair, &format!("the log of {extent}, epoch "));
    assert_eq!(store.assert_a_part_is_served(), unserved);
}

/// A node, run by this test, with a folder of its own: there the log root has the right id and nothing
/// else, as if what the others share had come to an end under this node alone.
struct Stray(Child);

impl Stray {
    fn start(server: &Server, node: u16, folder: &Path) -> Stray {
        let root = folder.join("log");
        fs::create_dir(&root).expect("a folder can be made");
        let id = "log-root-id";
        fs::copy(server.folder().join("log").join(id), root.join(id)).expect("a file can be copied");
        let address = |offset: u16| format!("127.0.0.1:{}", server.port() + offset);
        let mut command = program::command();
        command
            .args(["node", "--node-id", &node.to_string()])
            .args(["--log-segment-bytes=8MiB", "--populate-chunk-bytes=8MiB"])
            .args(LONG_LEASE)
            .args(["--listen-address", &address(node), "--http-address", &address(80 + node), "--data-dir"])
            .arg(folder)
            .arg("--coordinator-address")
            .arg(server.coordinator());
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let stray = Stray(command.spawn().expect("cell can be started"));
        // What it makes there, for the others to see that they have the same log root, they are given.
        let shared = server.folder().join("log");
        wait::until("it asks whether its log root is theirs", || {
            let names = fs::read_dir(&root)
                .expect("it can be listed")
                .map(|entry| entry.expect("a name").file_name());
            let asked: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("joining-")).collect();
            asked.iter().for_each(|name| fs::write(shared.join(name), "").expect("a file can be made"));
            !asked.is_empty()
        });
        stray
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        // The test is over, well or not.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The one that could not read the pair kept it, and it was unserved until that node was stopped.
#[test]
fn pair_that_one_survivor_cannot_read_is_served_by_another_and_the_one_is_warned_of() {
    let mut store = Store::start_of("--nodes=2", &[]);
    let pair = pair_of(&store.server, 1);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let stray = Stray::start(&store.server, 2, folder.path());
    store.server.wait_http(2, "/readyz?verbose", "[+]reads: serving");
    // It has no pair yet, so the share is its own.
    store.server.take_down(1);
    store
        .server
        .wait_view("served by who can read it", |view| view.is_served(pair) && view.pair(pair)["node"] == 0);
    let warning = format!("could not read the log of pair {pair} that node 0 read: look at its mount");
    store.server.wait_http(2, "/readyz?verbose", &format!("[-]warnings: it {warning}"));
    store.server.wait_http(0, "/api/v1/events", &format!("node-2 {warning}"));
    let shown = store.cell(&["status"]);
    assert!(shown.out.contains(&format!("it {warning}")), "{shown:?}");
    assert_eq!(store.unserved(SERVED_WITHIN_MS).0, BTreeSet::new(), "and nothing is lost");
    store.write(&store.values.keys().cloned().collect());
    // Its other life knows nothing of that, and the pair's own node is back.
    drop(stray);
    store.server.start_node(1);
    store.nodes = 2;
    wait::until("the other's lease is over", || store.cell(&["status"]).code == Some(0));
    store.assert_all_is_served();
}

#[test]
fn log_that_cannot_be_read_is_reported_and_served_when_it_can_without_a_restart() {
    let mut store = Store::start(&[]);
    let pair = pair_of(&store.server, VICTIM);
    store.server.take_down(VICTIM);
    // A folder in a segment's place: it is there, and every read of it is an error.
    let epoch = store.logs(pair_id(pair).extent_region()).join("epoch-00000001");
    let mut segments: Vec<PathBuf> =
        fs::read_dir(&epoch).expect("it is there").map(|entry| entry.expect("an entry").path()).collect();
    segments.sort();
    let segment = segments.into_iter().find(|path| path.to_string_lossy().contains("segment-")).expect("one");
    let aside = store.server.folder().join("aside");
    fs::rename(&segment, &aside).expect("a file can be moved");
    fs::create_dir(&segment).expect("a folder can be made");
    store.wait_reported(pair, "cannot be read, error ");
    store.assert_a_part_is_served();
    let lives = |view: &cell_tests::cluster::View| view.processes();
    let before = lives(&store.server.view());

    fs::remove_dir(&segment).expect("a folder can be removed");
    fs::rename(&aside, &segment).expect("a file can be moved");
    store.server.wait_view("served", |view| view.is_served(pair));
    assert_eq!(lives(&store.server.view()), before, "nobody was restarted");
    store.server.start_node(VICTIM);
    store.assert_all_is_served();
}
