//! What is tried with the asynchronous client, over any transport.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cell_client::aio::Client;
use cell_client::{ClientError, ClientOptions, Condition, Fate, ScanRange, Search, Transport};
use cell_tests::server::Server;
use cell_tests::wait::PATIENCE;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

pub(crate) fn on_one_thread<T>(test: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

pub(crate) fn on_two_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) async fn connect(server: &Server, options: ClientOptions) -> Client {
    Client::connect(&server.address().to_string(), options).await.expect("the server is there")
}

fn over(transport: Transport) -> ClientOptions {
    ClientOptions { transport, ..ClientOptions::default() }
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

/// Each operation, by each way of searching.
pub(crate) fn every_operation_by_each_search(server: &Server, transport: Transport) {
    for search in [Search::Server, Search::Client, Search::Auto] {
        let options = ClientOptions { search, ..over(transport) };
        on_one_thread(async {
            let client = connect(server, options.clone()).await;
            every_operation(&client, &format!("{transport:?} {search:?}")).await;
            if search == Search::Client {
                assert!(client.one_sided_counters().unwrap().done > 0);
            }
            client.close().await;
        });
    }
}

/// Many tasks on one client whose queue takes a few operations: the others wait for room.
pub(crate) fn increments_count_once(server: &Server, transport: Transport, tasks: u64, increments: u64) {
    on_two_threads().block_on(async {
        let client = connect(server, ClientOptions { in_flight_max: 8, ..over(transport) }).await;
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            let client = client.clone();
            running.spawn(async move {
                for _ in 0..increments {
                    increment(&client, b"counter").await;
                }
            });
        }
        while let Some(ended) = running.join_next().await {
            ended.unwrap();
        }
        assert_eq!(number(&client, b"counter").await, tasks * increments);
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

/// A put whose future is dropped at any moment is done or not; it never comes after a later put. The moments
/// are spread over so long.
pub(crate) fn dropped_puts_are_overwritten(
    server: &Server,
    transport: Transport,
    rounds: u64,
    longest: Duration,
) {
    on_two_threads().block_on(async {
        let client = connect(server, over(transport)).await;
        let mut dropped = 0;
        for round in 0..rounds {
            let early = client.put(b"key", b"early");
            let patience = longest * u32::try_from(round % 30).unwrap() / 29;
            dropped += u64::from(tokio::time::timeout(patience, early).await.is_err());
            client.put(b"key", &round.to_le_bytes()).await.unwrap();
            assert_eq!(number(&client, b"key").await, round);
        }
        assert!(dropped > 0, "no future was dropped before its end");
        // Whatever was under way has ended, and nothing is kept for those that nobody waits for.
        assert_eq!(client.outstanding(), 0);
        client.close().await;
        let after = connect(server, over(transport)).await;
        assert_eq!(number(&after, b"key").await, rounds - 1);
    });
}

/// Operations whose futures are dropped while there is no server are given up at once, and not done when it
/// is back.
pub(crate) fn calls_dropped_without_a_server_are_given_up(mut server: Server, transport: Transport) {
    on_one_thread(async {
        let few = ClientOptions { in_flight_max: 2, queue_max: 0, deadline_ms: 600_000, ..over(transport) };
        let client = connect(&server, few).await;
        client.put(b"key", b"early").await.unwrap();
        server.kill_all();
        for _ in 0..5 {
            let together = async { tokio::join!(client.put(b"key", b"dropped"), client.get(b"key")) };
            let ended = tokio::time::timeout(Duration::from_millis(20), together).await;
            assert!(ended.is_err(), "there is no server: {ended:?}");
            assert_eq!(client.outstanding(), 0);
        }
        server.launch();
        server.wait_ready();
        client.put(b"key", b"later").await.unwrap();
        assert_eq!(client.get(b"key").await.unwrap().unwrap().value, b"later");
        client.close().await;
    });
}

/// Gets and scans whose futures are dropped leave neither room taken nor anything outstanding.
pub(crate) fn dropped_reads_leave_nothing_behind(server: &Server, transport: Transport, rounds: u32) {
    for search in [Search::Server, Search::Client] {
        on_one_thread(async {
            let few = ClientOptions { in_flight_max: 2, queue_max: 0, search, ..over(transport) };
            let client = connect(server, few).await;
            for number in 0..30_u32 {
                client.put(format!("read/{number:02}").as_bytes(), &[7; 2_000]).await.unwrap();
            }
            for round in 0..rounds {
                let patience = Duration::from_micros(u64::from(round) * 40);
                let _ = tokio::time::timeout(patience, client.get(b"read/07")).await;
                let mut scan = client.scan(ScanRange { page_entries: 5, ..ScanRange::prefix(b"read/") });
                let taken = async {
                    for _ in 0..round % 12 {
                        scan.next().await.unwrap().unwrap();
                    }
                };
                let _ = tokio::time::timeout(patience * 4, taken).await;
                drop(scan);
                let together = async { tokio::join!(client.get(b"read/08"), client.search(b"read/09")) };
                let (got, found) = tokio::time::timeout(PATIENCE, together).await.expect("there is room");
                assert!(got.unwrap().unwrap().value == [7; 2_000] && found.unwrap());
            }
            assert_eq!(client.outstanding(), 0);
        });
    }
}

/// Two gets wait for room behind a put. What is answered by the client's own search when the put ends wakes
/// the next one.
pub(crate) fn waiters_for_room_are_woken(server: &Server, transport: Transport, rounds: u64) {
    let options = ClientOptions { search: Search::Client, in_flight_max: 1, queue_max: 0, ..over(transport) };
    on_one_thread(async {
        let client = connect(server, options).await;
        client.put(b"key", b"0").await.unwrap();
        for round in 0..rounds {
            let together = async {
                let value = round.to_le_bytes();
                tokio::join!(client.put(b"key", &value), client.get(b"key"), client.get(b"key"))
            };
            let ended = tokio::time::timeout(PATIENCE, together).await;
            let (put, first, second) = ended.expect("a get that waits for room was not woken");
            assert!(put.is_ok() && first.unwrap().is_some() && second.unwrap().is_some());
        }
        client.close().await;
    });
}

/// A scan's task asks for something else with each entry, while another one takes the room there is. A page
/// that was asked for ahead, and that nobody polls, must not be the one that is woken for room.
pub(crate) fn page_ahead_takes_no_turn_of_those_that_wait_for_room(
    server: &Server,
    transport: Transport,
    rounds: u32,
) {
    let few = ClientOptions { in_flight_max: 1, queue_max: 0, search: Search::Server, ..over(transport) };
    on_one_thread(async {
        let client = connect(server, few).await;
        for number in 0..12_u32 {
            client.put(format!("ahead/{number:02}").as_bytes(), b"value").await.unwrap();
        }
        for round in 0..rounds {
            let beside = async {
                for _ in 0..round % 8 {
                    assert!(client.get(b"ahead/03").await.unwrap().is_some());
                }
            };
            let scanning = async {
                let mut scan = client.scan(ScanRange { page_entries: 3, ..ScanRange::prefix(b"ahead/") });
                let mut count = 0;
                while let Some(entry) = scan.next().await {
                    assert!(client.get(&entry.unwrap().key).await.unwrap().is_some());
                    count += 1;
                }
                count
            };
            let together = async { tokio::join!(beside, scanning) };
            let ended = tokio::time::timeout(PATIENCE, together).await;
            let ((), count) = ended.expect("who waits for room was not woken");
            assert_eq!(count, 12);
        }
        client.close().await;
    });
}

/// A client that asks the server, with so long to look for an answer.
async fn looking(server: &Server, transport: Transport, spin_us: u64) -> Client {
    let client = connect(server, ClientOptions { search: Search::Server, spin_us, ..over(transport) }).await;
    look_again(&client).await;
    client
}

/// Asks so often that the client looks again after what it has not found, or not looked for, such as its
/// welcome.
async fn look_again(client: &Client) {
    for _ in 0..300 {
        assert_eq!(client.get(b"absent").await.unwrap(), None);
    }
}

/// A task that lets no other one run, the pump neither, takes its answer itself.
pub(crate) fn answer_is_taken_by_its_own_task(server: &Server, transport: Transport) {
    /// More than there is time for while a task looks; then each takes no time.
    const POLLS: usize = 1_000_000;
    /// On a busy machine server and task seldom run side by side for as long as one answer takes.
    const ATTEMPTS: usize = 500;
    on_one_thread(async {
        let client = looking(server, transport, 1_000_000).await;
        let attempt = || {
            let mut get = pin!(client.get(b"absent"));
            let mut context = Context::from_waker(Waker::noop());
            (0..POLLS).find_map(|_| match get.as_mut().poll(&mut context) {
                Poll::Ready(item) => Some(item),
                Poll::Pending => None,
            })
        };
        let mut found = attempt();
        for _ in 1..ATTEMPTS {
            if found.is_some() {
                break;
            }
            look_again(&client).await;
            found = attempt();
        }
        assert_eq!(found.expect("the task has looked for its answer").unwrap(), None);
        client.close().await;
    });
}

async fn poll_once(future: Pin<&mut impl Future>) -> bool {
    let mut future = Some(future);
    poll_fn(|context| Poll::Ready(future.take().is_some_and(|future| future.poll(context).is_ready()))).await
}

/// Two that are polled one after the other are under way together: the first does not look before the second
/// has had its turn.
pub(crate) fn operations_polled_together_are_under_way_together(server: &Server, transport: Transport) {
    on_one_thread(async {
        let client = looking(server, transport, 1_000_000).await;
        {
            let mut first = pin!(client.get(b"absent"));
            let mut second = pin!(client.get(b"absent"));
            assert!(!poll_once(first.as_mut()).await && !poll_once(second.as_mut()).await);
            assert_eq!(client.outstanding(), 2);
            let both = async { tokio::join!(first, second) };
            let (first, second) = tokio::time::timeout(PATIENCE, both).await.expect("both are answered");
            assert_eq!((first.unwrap(), second.unwrap()), (None, None));
        }
        client.close().await;
    });
}

/// A future that was polled once and no more: its operation ends, and others beside it.
pub(crate) fn operation_polled_once_ends(server: &Server, transport: Transport) {
    on_one_thread(async {
        let client = looking(server, transport, 50).await;
        for beside in [false, true] {
            let mut once = pin!(client.get(b"absent"));
            poll_once(once.as_mut()).await;
            if beside {
                let other = tokio::time::timeout(PATIENCE, client.get(b"absent")).await;
                assert_eq!(other.expect("another one is answered").unwrap(), None);
            }
            let ended = async {
                while client.outstanding() > 0 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, ended).await.expect("it ends without its task");
            assert_eq!(once.await.unwrap(), None);
        }
        client.close().await;
    });
}

/// What a client's end does to what is outstanding.
pub(crate) fn close_says_what_is_known_of_what_is_outstanding(server: &Server, transport: Transport) {
    on_one_thread(async {
        let client = connect(server, over(transport)).await;
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

/// Scans in both directions that are broken off after each so many entries, and taken up again.
pub(crate) fn scans_broken_off_go_on(
    server: &Server,
    transport: Transport,
    search: Search,
    strides: &[usize],
) {
    const ENTRIES: u32 = 100;
    on_one_thread(async {
        let client = connect(server, ClientOptions { search, ..over(transport) }).await;
        for number in 0..ENTRIES {
            client.put(format!("scan/{number:04}").as_bytes(), &number.to_le_bytes()).await.unwrap();
        }
        for reverse in [false, true] {
            for &stride in strides {
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
