//! What a client's reads allocate once they are warm: the value that the caller is given, and nothing else.
//! The counts are of the calling thread alone. What endpoints allocate stands in `endpoints`.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy takes for more")]

mod endpoints;
mod renewals;

use allocation_counter::measure;
use cell_client::{Client, ClientOptions, Operation, Search, Transport};
use cell_tests::server::Server;
use cell_tests::wait::PATIENCE;

const KEYS: usize = 1_000;
/// What is allocated now and then, not by each operation: signs of life, registrations that are asked anew.
const OTHERS_MAX: u64 = KEYS as u64 / 20;

fn keys() -> Vec<Vec<u8>> {
    (0..KEYS).map(|number| format!("key-{number:05}").into_bytes()).collect()
}

/// A client over shared memory that has read every key in every way already. It does not report, because a
/// report is one a second, however many reads there are.
fn warm_client(server: &Server, search: Search) -> Client {
    let options =
        ClientOptions { transport: Transport::Shm, search, report_ms: 0, ..ClientOptions::default() };
    let mut client = Client::connect(&server.address().to_string(), options).unwrap();
    for key in keys() {
        client.put(&key, &[7; 100]).unwrap();
    }
    for key in keys() {
        assert!(client.get(&key).unwrap().is_some() && client.search(&key).unwrap());
    }
    pipelined(&mut client, &keys());
    client
}

fn pipelined(client: &mut Client, keys: &[Vec<u8>]) {
    for group in keys.chunks(16) {
        for key in group {
            client.submit(&Operation::Get { key }).unwrap();
        }
        for _ in group {
            let completion = client.poll(PATIENCE).expect("an answer comes");
            assert!(completion.outcome.is_ok());
        }
    }
}

fn allocations(work: impl FnOnce()) -> u64 {
    measure(work).count_total
}

#[track_caller]
fn assert_about(counted: u64, an_operation: u64, what: &str) {
    let most = an_operation * KEYS as u64 + OTHERS_MAX;
    assert!(counted <= most, "{what}: {counted} allocations of {KEYS} operations, at most {most} wanted");
}

fn check(search: Search) {
    let server = Server::start_steady(&[]);
    let (mut client, keys) = (warm_client(&server, search), keys());
    let counted = allocations(|| keys.iter().for_each(|key| drop(client.get(key).unwrap().unwrap())));
    assert_about(counted, 1, "get");
    let counted = allocations(|| pipelined(&mut client, &keys));
    assert_about(counted, 1, "get, 16 submitted");
    let counted = allocations(|| keys.iter().for_each(|key| assert!(client.search(key).unwrap())));
    assert_about(counted, 0, "search");
    let counted = allocations(|| {
        for _ in 0..KEYS {
            assert!(client.get(b"no such key").unwrap().is_none());
        }
    });
    assert_about(counted, 0, "get of no entry");
    if search == Search::Client {
        let counters = client.one_sided_counters().unwrap();
        assert!(counters.in_place >= 4 * KEYS as u64, "the client has searched itself: {counters:?}");
    }
}

#[test]
fn warm_one_sided_reads_allocate_the_value_alone() {
    check(Search::Client);
}

#[test]
fn warm_reads_by_message_allocate_the_value_alone() {
    check(Search::Server);
}
