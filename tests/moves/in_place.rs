//! A reader over shared memory of two nodes, wherever their pairs are: it reads in place. All keys are in the
//! second pair's range. The first one has the router and no entries, so nothing reads its extents.

use cell_client::{Client, ClientOptions, OneSidedCounters, Search, Transport};
use cell_tests::server::Server;
use cell_tests::wait;

use crate::moves::{Ends, cluster, move_and_wait};

const KEYS: u64 = 100;

fn key(number: u64) -> Vec<u8> {
    format!("user-{number:03}").into_bytes()
}

/// A reader that has written what it will read.
fn reader(server: &Server) -> Client {
    let (transport, search) = (Transport::Shm, Search::Client);
    let options = ClientOptions { transport, search, deadline_ms: 60_000, ..ClientOptions::default() };
    let mut client = Client::connect(&server.address().to_string(), options).expect("the server is there");
    for number in 0..KEYS {
        client.put(&key(number), &key(number)).expect("there is room");
    }
    client
}

fn counters(client: &Client) -> OneSidedCounters {
    *client.one_sided_counters().expect("it reads one-sidedly")
}

/// Reads all keys again and again, until nothing but mapped memory was looked at for them.
fn wait_in_place(client: &mut Client) {
    wait::until("all keys are read in place", || {
        let before = counters(client);
        for number in 0..KEYS {
            let item = client.get(&key(number)).expect("it is served");
            assert!(item.is_some_and(|item| item.value == key(number)), "{number}");
        }
        let after = counters(client);
        after.in_place - before.in_place >= KEYS && after.reads == before.reads
    });
}

#[test]
fn keys_are_read_in_place_over_shm_before_and_after_pairs_have_moved() {
    let server = cluster("--nodes=2", &["--initial-split-keys=k"]);
    let mut client = reader(&server);
    wait_in_place(&mut client);
    for number in 0..2 {
        move_and_wait(&server, &Ends::of(&server.view(), number));
        wait_in_place(&mut client);
    }
    client.close();
}
