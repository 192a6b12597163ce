//! The asynchronous client against a real server: each operation over each transport and path, many tasks on
//! one client, futures that are dropped, clients that are closed.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy takes for more")]

use std::future::Future;
use std::time::Duration;

use cell_client::aio::Client;
use cell_client::{ClientError, ClientOptions, Condition, Fate, ScanRange, Search, Transport};
use cell_tests::server::Server;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

fn on_one_thread<T>(test: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

fn on_two_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn connect(server: &Server, options: ClientOptions) -> Client {
    Client::connect(&server.address().to_string(), options).await.expect("the server is there")
}

async fn every_operation(client: &Client, prefix: &str) {
    let key = |name: &str| format!("{prefix}/{name}").into_bytes();
    let large = vec![7; 1 << 20];
    let version = client.put(&key("a"), b"1").await.unwrap();
    client.put(&key("large"), &large).await.unwrap();
    assert_eq!(client.get(&key("a")).await.unwrap().unwrap().version, version);
    assert!(client.search(&key("a")).await.unwrap() && !client.search(&key("b")).await.unwrap());
    let refused = client.put_if(&key("a"), b"2", Condition::IfAbsent).await.unwrap_err();
    assert!(matches!(refused, ClientError::ConditionFailed { current: Some(current) } if current == version));
    client.cas(&key("a"), version, b"3").await.unwrap();
    let (a, b, l) = (key("a"), key("b"), key("large"));
    let found = client.multi_get(&[&a, &b, &l]).await.unwrap();
    let values: Vec<_> = found.into_iter().map(|item| item.map(|item| item.value)).collect();
    assert_eq!(values, [Some(b"3".to_vec()), None, Some(large.clone())]);
    let mut scan = client.scan(ScanRange::prefix(prefix.as_bytes()));
    let mut lengths = Vec::new();
    while let Some(entry) = scan.next().await {
        lengths.push(entry.unwrap().value.len());
    }
    assert_eq!(lengths, [1, large.len()]);
    assert!(client.delete(&key("a")).await.unwrap() && !client.delete(&key("a")).await.unwrap());
    assert_eq!(client.get(&key("a")).await.unwrap(), None);
    assert!(client.status().await.is_ok());
    assert_eq!(client.outstanding(), 0);
}

#[test]
fn every_operation_over_each_transport_and_path() {
    let server = Server::start();
    for transport in [Transport::Tcp, Transport::Shm] {
        for search in [Search::Server, Search::Client] {
            let options = ClientOptions { transport, search, ..ClientOptions::default() };
            on_one_thread(async {
                let client = connect(&server, options.clone()).await;
                every_operation(&client, &format!("{transport:?} {search:?}")).await;
                if search == Search::Client {
                    assert!(client.one_sided_counters().unwrap().done > 0);
                }
                client.close().await;
            });
        }
    }
}

#[test]
fn tasks_beyond_the_queue_wait_for_room_and_each_increment_counts_once() {
    const TASKS: u64 = 40;
    const INCREMENTS: u64 = 25;
    let server = Server::start();
    on_two_threads().block_on(async {
        let client = connect(&server, ClientOptions { in_flight_max: 8, ..ClientOptions::default() }).await;
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let client = client.clone();
            tasks.spawn(async move {
                for _ in 0..INCREMENTS {
                    increment(&client, b"counter").await;
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        assert_eq!(number(&client, b"counter").await, TASKS * INCREMENTS);
    });
}

async fn number(client: &Client, key: &[u8]) -> u64 {
    let item = client.get(key).await.unwrap();
    item.map_or(0, |item| u64::from_le_bytes(item.value.try_into().unwrap()))
}

async fn increment(client: &Client, key: &[u8]) {
    loop {
        let item = client.get(key).await.unwrap();
        let (condition, old) = match &item {
            Some(item) => (Condition::IfVersion(item.version), item.value.clone()),
            None => (Condition::IfAbsent, vec![0; 8]),
        };
        let new = u64::from_le_bytes(old.try_into().unwrap()) + 1;
        match client.put_if(key, &new.to_le_bytes(), condition).await {
            Ok(_) => return,
            Err(ClientError::ConditionFailed { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// A put whose future is dropped at any moment is done or not; it never comes after a later put.
#[test]
fn dropped_puts_never_overwrite_a_later_one() {
    const ROUNDS: u64 = 300;
    let server = Server::start();
    on_two_threads().block_on(async {
        let client = connect(&server, ClientOptions::default()).await;
        let mut dropped = 0;
        for round in 0..ROUNDS {
            let early = client.put(b"key", b"early");
            let patience = Duration::from_micros(round % 30 * 20);
            dropped += u64::from(tokio::time::timeout(patience, early).await.is_err());
            client.put(b"key", &round.to_le_bytes()).await.unwrap();
            assert_eq!(number(&client, b"key").await, round);
        }
        assert!(dropped > 0, "no future was dropped before its end");
        // Whatever was under way has ended, and nothing is kept for those that nobody waits for.
        assert_eq!(client.outstanding(), 0);
        client.close().await;
        let after = connect(&server, ClientOptions::default()).await;
        assert_eq!(number(&after, b"key").await, ROUNDS - 1);
    });
}

/// Two gets waited for room behind a put. The first was answered by the client's own search when the put
/// ended, woke nobody, and the second slept for ever.
#[test]
fn waiters_for_room_each_go_on_also_behind_one_that_is_answered_at_once() {
    let server = Server::start();
    let options = ClientOptions {
        transport: Transport::Shm,
        search: Search::Client,
        in_flight_max: 1,
        queue_max: 0,
        ..ClientOptions::default()
    };
    on_one_thread(async {
        let client = connect(&server, options).await;
        client.put(b"key", b"0").await.unwrap();
        for round in 0..100_u64 {
            let together = async {
                let value = round.to_le_bytes();
                tokio::join!(client.put(b"key", &value), client.get(b"key"), client.get(b"key"))
            };
            let ended = tokio::time::timeout(Duration::from_secs(20), together).await;
            let (put, first, second) = ended.expect("a get that waits for room was not woken");
            assert!(put.is_ok() && first.unwrap().is_some() && second.unwrap().is_some());
        }
        client.close().await;
    });
}

#[test]
fn close_ends_what_is_outstanding_and_says_what_is_known_of_it() {
    let server = Server::start();
    on_one_thread(async {
        let client = connect(&server, ClientOptions::default()).await;
        let mut writes = JoinSet::new();
        let mut reads = JoinSet::new();
        for number in 0..20_u64 {
            let (writer, reader) = (client.clone(), client.clone());
            writes.spawn(async move { writer.put(&number.to_le_bytes(), &[1; 4096]).await });
            reads.spawn(async move { reader.get(&number.to_le_bytes()).await });
        }
        let other = client.clone();
        tokio::task::yield_now().await; // all are submitted; none has its answer, for the pump has not run
        client.close().await;
        let mut closed = 0;
        while let Some(ended) = writes.join_next().await {
            match ended.unwrap() {
                Err(error @ ClientError::Closed { .. }) => {
                    assert_eq!(error.fate(), Fate::Unknown, "{error}");
                    closed += 1;
                }
                other => drop(other.unwrap()),
            }
        }
        while let Some(ended) = reads.join_next().await {
            match ended.unwrap() {
                Err(error @ ClientError::Closed { .. }) => assert_eq!(error.fate(), Fate::NotDone),
                other => drop(other.unwrap()),
            }
        }
        assert!(closed > 0, "all ended before the client was closed");
        let late = other.put(b"late", b"").await.unwrap_err();
        assert_eq!((matches!(late, ClientError::Closed { .. }), late.fate()), (true, Fate::NotDone));
        assert!(late.to_string().contains("closed"), "{late}");
    });
}

#[test]
fn runtime_that_ends_takes_its_client_with_it() {
    let server = Server::start();
    let first = on_two_threads();
    let client = first.block_on(connect(&server, ClientOptions::default()));
    drop(first);
    let ended = on_one_thread(client.get(b"key"));
    assert!(matches!(ended, Err(ClientError::Closed { fate: Fate::NotDone })), "{ended:?}");
}

#[test]
fn scan_broken_off_anywhere_goes_on_where_it_was() {
    const ENTRIES: u32 = 100;
    let server = Server::start();
    on_one_thread(async {
        let client = connect(&server, ClientOptions::default()).await;
        for number in 0..ENTRIES {
            client.put(format!("scan/{number:04}").as_bytes(), &number.to_le_bytes()).await.unwrap();
        }
        for reverse in [false, true] {
            for stride in [1, 6, 7, 8, 1000] {
                let mut rest =
                    Some(ScanRange { reverse, page_entries: 7, limit: 90, ..ScanRange::prefix(b"scan/") });
                let mut keys = Vec::new();
                while let Some(range) = rest {
                    let mut scan = client.scan(range);
                    for _ in 0..stride {
                        match scan.next().await {
                            Some(entry) => keys.push(entry.unwrap().key),
                            None => break,
                        }
                    }
                    rest = scan.resume();
                }
                let mut wanted: Vec<_> =
                    (0..ENTRIES).map(|at| format!("scan/{at:04}").into_bytes()).collect();
                if reverse {
                    wanted.reverse();
                }
                wanted.truncate(90);
                assert_eq!(keys, wanted, "reverse {reverse}, {stride} at a time");
            }
        }
    });
}
