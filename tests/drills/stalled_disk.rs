//! A disk that stalls: writes wait for it, more of them than a node keeps. All else is served meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cell_client::{Client, ClientOptions, Condition, Operation, Output, Search};
use cell_tests::ending::Ending;
use cell_tests::server::Server;
use cell_tests::wait::{self, PATIENCE};

/// As long as a drill permits.
const STALL: Duration = Duration::from_secs(2);
const WRITERS: u64 = 8;
/// Writes that each of them has under way: together four times what may wait at the node.
const OUTSTANDING: u64 = 512;
const VALUE: [u8; 4 << 10] = [7; 4 << 10];
/// Entries that nobody writes, each read in a round.
const ENTRIES: u64 = 50;

fn options(search: Search) -> ClientOptions {
    let deadline_ms = u64::try_from(PATIENCE.as_millis()).expect("it is short");
    ClientOptions { search, deadline_ms, retries_max: u32::MAX, ..ClientOptions::default() }
}

fn client(server: &Server, search: Search) -> Client {
    Client::connect(&server.address().to_string(), options(search)).expect("the server is there")
}

fn entry(number: u64) -> Vec<u8> {
    format!("entry {number}").into_bytes()
}

fn written(writer: u64, number: u64) -> Vec<u8> {
    format!("written {writer} {number}").into_bytes()
}

/// Keeps its writes under way until it is stopped, and waits for their ends; how many it wrote.
fn write(server: &Server, writer: u64, stop: &AtomicBool, ended: &AtomicU64) -> u64 {
    let mut client = client(server, Search::Server);
    let (mut submitted, mut done) = (0, 0);
    loop {
        while !stop.load(Ordering::SeqCst) && submitted - done < OUTSTANDING {
            let key = written(writer, submitted);
            let put = Operation::Put { key: &key, value: &VALUE, condition: Condition::Always };
            client.submit(&put).expect("there is room for it");
            submitted += 1;
        }
        if submitted == done {
            return done;
        }
        if let Some(completion) = client.poll(Duration::from_millis(100)) {
            let outcome = completion.outcome;
            assert!(matches!(outcome, Ok(Output::Written(_))), "{outcome:?}");
            done += 1;
            ended.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Strangers come and read, one of them by messages and one without the worker.
fn read_as_strangers(server: &Server) {
    for search in [Search::Server, Search::Client] {
        let mut stranger = client(server, search);
        for number in 0..ENTRIES {
            let found = stranger.get(&entry(number)).expect("the node serves");
            assert_eq!(found.map(|item| item.value), Some(entry(number)));
        }
    }
}

/// While nothing that the writers have under way ends, the disk does nothing.
#[test]
fn strangers_come_and_read_while_a_stalled_disk_blocks_writers() {
    let server = Server::start_steady(&["--allow-drills"]);
    let mut loader = client(&server, Search::Server);
    for number in 0..ENTRIES {
        loader.put(&entry(number), &entry(number)).expect("the node serves");
    }
    let (stop, ended) = (AtomicBool::new(false), AtomicU64::new(0));
    server.slow_disk(STALL);
    let done: Vec<u64> = std::thread::scope(|scope| {
        let ending = Ending(&stop);
        let writers = (0..WRITERS).map(|writer| {
            let (server, stop, ended) = (&server, &stop, &ended);
            scope.spawn(move || write(server, writer, stop, ended))
        });
        let writers: Vec<_> = writers.collect();
        wait::until("a batch that was written in spite of the stall", || ended.load(Ordering::SeqCst) > 0);
        wait::until("reads that all end between two writes of the log", || {
            let before = ended.load(Ordering::SeqCst);
            read_as_strangers(&server);
            ended.load(Ordering::SeqCst) == before
        });
        server.slow_disk(Duration::ZERO);
        drop(ending);
        writers.into_iter().map(|writer| writer.join().expect("its writes end")).collect()
    });
    assert!(done.iter().all(|done| *done >= OUTSTANDING), "{done:?}");
    for (writer, done) in (0..).zip(done) {
        for number in 0..done {
            let found = loader.get(&written(writer, number)).expect("the node serves");
            assert_eq!(found.map(|item| item.value), Some(VALUE.to_vec()), "{number} of writer {writer}");
        }
    }
}
