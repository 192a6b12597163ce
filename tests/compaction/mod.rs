//! Real servers from which most entries are deleted: the tree shrinks while clients read it on both paths and
//! while the node is killed, and nothing that was kept is missed, nothing that was deleted comes back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cell_client::{Client, ClientOptions, Condition, Operation, Search, Transport};
use cell_tests::ending::Ending;
use cell_tests::server::Server;
use cell_tests::wait::{self, PATIENCE};

const KEYS: u32 = 20_000;
/// Of so many keys one is kept.
const KEEP_EVERY: u32 = 10;
/// Small tree nodes and slots: several meganodes, each of many nodes.
const SEVERAL: [&str; 6] =
    ["--slot-bytes", "1MiB", "--tree-node-bytes", "512", "--node-region-bytes", "4MiB"];
/// One meganode, which has the only slot.
const ALONE: [&str; 6] = ["--slot-bytes", "4MiB", "--tree-node-bytes", "512", "--node-region-bytes", "4MiB"];

fn key(number: u32) -> Vec<u8> {
    format!("key-{:06}", number.wrapping_mul(7_919) % KEYS).into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    vec![b'a' + (number % 23).to_le_bytes()[0]; 20 + (number % 90) as usize]
}

fn is_kept(number: u32) -> bool {
    number.is_multiple_of(KEEP_EVERY)
}

fn client(server: &Server, transport: Transport, search: Search) -> Client {
    // Longer than a restart takes.
    let options = ClientOptions { transport, search, deadline_ms: 60_000, ..ClientOptions::default() };
    Client::connect(&server.address().to_string(), options).expect("the server is there")
}

/// Has operations carried out, many at a time.
fn carry_out<'a>(client: &mut Client, operations: impl Iterator<Item = Operation<'a>>) {
    for operation in operations {
        while client.submit(&operation).is_err() {
            let done = client.poll(PATIENCE).expect("something completes");
            done.outcome.expect("it is carried out");
        }
    }
    while client.outstanding() > 0 {
        let done = client.poll(PATIENCE).expect("something completes");
        done.outcome.expect("it is carried out");
    }
}

fn load(client: &mut Client, numbers: impl Iterator<Item = u32>) {
    let entries: Vec<_> = numbers.map(|number| (key(number), value(number))).collect();
    let put = |(key, value)| Operation::Put { key, value, condition: Condition::Always };
    carry_out(client, entries.iter().map(|(key, value)| put((key, value))));
}

fn thin_out(client: &mut Client, numbers: impl Iterator<Item = u32>) {
    let keys: Vec<_> = numbers.filter(|number| !is_kept(*number)).map(key).collect();
    carry_out(client, keys.iter().map(|key| Operation::Delete { key, condition: Condition::Always }));
}

fn tree_nodes(client: &mut Client) -> u64 {
    let shape = client.tree(0).expect("the server returns its tree");
    shape.report().rows.iter().map(|row| u64::from(row.nodes)).sum()
}

/// Waits until the tree has at most so many nodes.
fn wait_shrunk(client: &mut Client, most: u64) -> u64 {
    let small = || Some(tree_nodes(client)).filter(|nodes| *nodes <= most);
    wait::until_some(&format!("the tree has at most {most} nodes"), small)
}

/// Everything that there is, in order, and what should be.
fn check(client: &mut Client) {
    let expected: BTreeMap<_, _> =
        (0..KEYS).filter(|number| is_kept(*number)).map(|number| (key(number), value(number))).collect();
    let range = cell_client::ScanRange::default();
    let found: Vec<_> = client.scan(range).map(|entry| entry.expect("an entry")).collect();
    assert_eq!(found.len(), expected.len());
    for (entry, (key, value)) in found.iter().zip(&expected) {
        assert!(entry.key == *key && entry.value == *value, "{}", key.escape_ascii());
    }
}

struct Readers {
    stop: AtomicBool,
    reads: AtomicU64,
}

impl Readers {
    /// Waits for so many reads more.
    fn wait(&self, more: u64) {
        let wanted = self.reads.load(Ordering::Relaxed) + more;
        wait::until("the readers go on", || self.reads.load(Ordering::Relaxed) >= wanted);
    }
}

/// Reads what stays, again and again, singly and in scans.
fn read_what_stays(readers: &Readers, mut client: Client) {
    let mut number = 0;
    while !readers.stop.load(Ordering::Relaxed) {
        number = (number + 7 * KEEP_EVERY) % KEYS;
        let found = client.get(&key(number)).expect("a read").map(|item| item.value);
        assert_eq!(found, Some(value(number)), "{}", key(number).escape_ascii());
        if number.is_multiple_of(50) {
            let from = format!("key-{:06}", number / 2);
            let range = cell_client::ScanRange {
                start: std::ops::Bound::Included(from.clone().into_bytes()),
                reverse: number.is_multiple_of(100),
                limit: 400,
                ..cell_client::ScanRange::default()
            };
            let reverse = range.reverse;
            let seen: Vec<_> = client.scan(range).map(|entry| entry.expect("an entry").key).collect();
            assert!(seen.is_sorted_by(|a, b| if reverse { a > b } else { a < b }), "from {from}");
            assert!(seen.len() > 30, "{} from {from}", seen.len());
        }
        readers.reads.fetch_add(1, Ordering::Relaxed);
    }
}

fn shrinks_while_it_is_read(flags: &[&str]) {
    let server = Server::start_steady(flags);
    let mut writer = client(&server, Transport::Tcp, Search::Server);
    load(&mut writer, 0..KEYS);
    let before = tree_nodes(&mut writer);
    let readers = Readers { stop: AtomicBool::new(false), reads: AtomicU64::new(0) };
    let paths = [
        (Transport::Tcp, Search::Server),
        (Transport::Tcp, Search::Client),
        (Transport::Shm, Search::Client),
    ];
    let after = std::thread::scope(|scope| {
        let reading = paths.map(|(transport, search)| {
            let (readers, client) = (&readers, client(&server, transport, search));
            scope.spawn(move || read_what_stays(readers, client))
        });
        let ending = Ending(&readers.stop);
        readers.wait(10); // they are at it
        thin_out(&mut writer, 0..KEYS);
        let after = wait_shrunk(&mut writer, before / 4);
        readers.wait(100); // over the packed tree too, however fast it was
        drop(ending);
        for reader in reading {
            reader.join().expect("a reader found what stays");
        }
        after
    });
    let reads = readers.reads.load(Ordering::Relaxed);
    for (transport, search) in paths {
        check(&mut client(&server, transport, search));
    }
    let (_, metrics) = server.http("/metrics").expect("the server returns its figures");
    assert!(metrics.contains("pair_compaction_nodes_freed"), "{metrics}");
    assert_eq!(server.cell(&["verify"]).code, Some(0));
    println!("{before} tree nodes became {after}; {reads} reads");
    // What was freed is used again: everything fits once more.
    load(&mut writer, 0..KEYS);
    assert!(tree_nodes(&mut writer) > after);
    assert_eq!(server.cell(&["verify"]).code, Some(0));
}

#[test]
fn delete_of_most_entries_shrinks_many_meganodes_under_readers_on_both_paths() {
    shrinks_while_it_is_read(&SEVERAL);
}

#[test]
fn delete_of_most_entries_shrinks_the_only_meganode_under_readers_on_both_paths() {
    shrinks_while_it_is_read(&ALONE);
}

#[test]
fn kill_under_compactions_keeps_what_was_kept_and_deletes_what_was_deleted() {
    // Runs that are sparse are packed early, so that there is always a compaction to hit.
    let early = ["--compaction-ratio", "0.7", "--checkpoint-log-bytes-min", "1MiB", "--allow-drills"];
    let mut server = Server::start_with(&[&SEVERAL[..], &early].concat());
    let mut writer = client(&server, Transport::Tcp, Search::Server);
    load(&mut writer, 0..KEYS);
    let before = tree_nodes(&mut writer);
    let parts = 6;
    std::thread::scope(|scope| {
        let (done, next) = std::sync::mpsc::channel();
        let writer = &mut writer;
        let deleting = scope.spawn(move || {
            for part in 0..parts {
                thin_out(writer, (0..KEYS).filter(|number| number / KEEP_EVERY % parts == part));
                done.send(()).expect("somebody waits");
            }
        });
        // The node dies between two parts and, with the next part, while it goes on.
        for _ in 0..parts / 2 {
            next.recv().expect("a part is deleted");
            server.replace_node();
            next.recv().expect("a part is deleted");
        }
        deleting.join().expect("everything was deleted");
    });
    wait_shrunk(&mut writer, before / 4);
    check(&mut client(&server, Transport::Tcp, Search::Server));
    server.kill_all();
    server.resume();
    check(&mut client(&server, Transport::Shm, Search::Client));
    wait_shrunk(&mut client(&server, Transport::Tcp, Search::Server), before / 4);
    assert_eq!(server.cell(&["verify"]).code, Some(0));
}
