//! The blocking client over real sockets, against the model server on a thread of its own.

#![allow(clippy::unwrap_used, reason = "a test's helper may give up")]
#![allow(clippy::disallowed_methods, reason = "real sockets need the real clock")]

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::ops::{Bound, ControlFlow};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::model::{Peer, Server};
use cell_client::{
    AttemptError, Client, ClientError, ClientOptions, Condition, Fate, Operation, Output, ScanEntry,
    ScanRange, Search, Transport,
};
use cell_fabric::{
    ConnectionId, Endpoint, Event, FabricLimits, Poller, SendError, TcpEndpoint, TcpOptions, Waker,
};
use cell_protocol::{MULTI_GET_KEYS_MAX, Refusal};

/// How long anything may take that the machine only has to get done.
const PATIENCE: Duration = Duration::from_secs(120);

enum Order {
    CutAll,
    Stop,
}

/// The model server on its thread.
struct Service {
    address: SocketAddr,
    orders: Sender<Order>,
    waker: Waker,
    thread: Option<JoinHandle<Server>>,
}

impl Service {
    fn start() -> Service {
        Service::start_with(Server::default())
    }

    fn start_with(server: Server) -> Service {
        Service::start_under(FabricLimits::default(), server)
    }

    fn start_under(limits: FabricLimits, mut server: Server) -> Service {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut endpoint = TcpEndpoint::listen(any, &TcpOptions { limits, ..TcpOptions::default() }).unwrap();
        let address = endpoint.address().unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(endpoint.wake_descriptor().unwrap()).unwrap();
        let waker = poller.waker();
        let (orders, received) = channel();
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            let mut peers: HashMap<ConnectionId, Peer> = HashMap::new();
            let mut replies = Vec::new();
            loop {
                match received.try_recv() {
                    Ok(Order::Stop) => return server,
                    Ok(Order::CutAll) => peers.drain().for_each(|(connection, _)| endpoint.close(connection)),
                    Err(_) => {}
                }
                let count = endpoint.poll(&mut |event| match event {
                    Event::Accepted { connection, .. } => drop(peers.insert(connection, Peer::default())),
                    Event::Closed { connection, .. } => drop(peers.remove(&connection)),
                    Event::Message { connection, message } => {
                        if let Some(peer) = peers.get_mut(&connection) {
                            let mut out = Vec::new();
                            server.handle(peer, message, &mut out);
                            replies.extend(out.into_iter().map(|reply| (connection, reply)));
                        }
                    }
                    _ => {}
                });
                // What a connection does not take waits for it, and what follows on the connection too.
                let mut full = HashSet::new();
                replies.retain(|(connection, reply): &(ConnectionId, Vec<u8>)| {
                    let waits = full.contains(connection)
                        || endpoint.send(*connection, reply) == Err(SendError::Full);
                    if waits {
                        full.insert(*connection);
                    }
                    waits
                });
                endpoint.flush();
                endpoint.tick(u64::try_from(start.elapsed().as_nanos()).unwrap());
                if count == 0 && endpoint.prepare_sleep() {
                    poller.wait(Some(Duration::from_millis(50)));
                }
            }
        });
        Service { address, orders, waker, thread: Some(thread) }
    }

    fn order(&self, order: Order) {
        self.orders.send(order).unwrap();
        self.waker.wake();
    }

    fn stop(mut self) -> Server {
        self.order(Order::Stop);
        self.thread.take().unwrap().join().unwrap()
    }

    fn client(&self) -> Client {
        let options = ClientOptions { search: Search::Server, ..ClientOptions::default() };
        Client::connect(&self.address.to_string(), options).unwrap()
    }
}

#[test]
fn calls_do_what_they_say() {
    let service = Service::start();
    let mut client = service.client();
    assert!(!client.search(b"key").unwrap());
    assert_eq!(client.get(b"key").unwrap(), None);
    let first = client.put(b"key", b"one").unwrap();
    assert!(client.search(b"key").unwrap());
    let item = client.get(b"key").unwrap().unwrap();
    assert_eq!((item.version, item.value.as_slice()), (first, b"one".as_slice()));
    let second = client.cas(b"key", first, b"two").unwrap();
    let error = client.cas(b"key", first, b"three").unwrap_err();
    assert!(matches!(error, ClientError::ConditionFailed { current: Some(current) } if current == second));
    assert!(client.put_if(b"key", b"x", Condition::IfAbsent).is_err());
    assert!(client.delete_if(b"key", Condition::IfVersion(first)).is_err());
    assert!(client.delete(b"key").unwrap());
    assert!(!client.delete(b"key").unwrap());
    assert_eq!(client.status().unwrap().report().workers, 1);
    assert_eq!(client.check(PATIENCE).unwrap().report().violations, 0);
    assert_eq!(client.server().unwrap().name, "model");
    client.close();
    assert_eq!(service.stop().sessions(), 0, "the session was closed");
}

#[test]
fn dropped_client_closes_its_session() {
    let service = Service::start();
    let mut client = service.client();
    client.put(b"key", b"value").unwrap();
    drop(client);
    let mut other = service.client();
    other.get(b"key").unwrap();
    assert_eq!(service.stop().sessions(), 0);
}

#[test]
fn large_values_go_both_ways() {
    let service = Service::start();
    let mut client = service.client();
    let value: Vec<u8> = (0..=255).cycle().take(5 << 20).collect();
    client.put(b"big", &value).unwrap();
    assert_eq!(client.get(b"big").unwrap().unwrap().value, value);
    assert_eq!(client.multi_get(&[b"big", b"none"]).unwrap()[0].as_ref().unwrap().value, value);
    let scanned: Vec<ScanEntry> = client.scan(ScanRange::default()).map(Result::unwrap).collect();
    assert_eq!(scanned[0].value, value);
    let too_large = vec![0; (16 << 20) + 1];
    let error = client.put(b"big", &too_large).unwrap_err();
    assert!(matches!(error, ClientError::Refused(Refusal::ValueTooLarge { .. })), "{error}");
}

#[test]
fn pipeline_of_many_operations_completes_all() {
    let service = Service::start();
    let mut client = service.client();
    let (mut submitted, mut completed) = (0u32, 0u32);
    while completed < 20_000 {
        while submitted < 20_000 {
            let key = submitted.to_be_bytes();
            let operation = Operation::Put { key: &key, value: b"value", condition: Condition::Always };
            match client.submit(&operation) {
                Ok(_) => submitted += 1,
                Err(ClientError::QueueFull { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        while let Some(completion) = client.poll(Duration::from_millis(10)) {
            assert!(matches!(completion.outcome, Ok(Output::Written(_))));
            completed += 1;
            if client.outstanding() < 1000 && submitted < 20_000 {
                break;
            }
        }
    }
    assert_eq!(client.outstanding(), 0);
    drop(client);
    assert_eq!(service.stop().applied.len(), 20_000);
}

#[test]
fn scans_page_resume_and_turn_round() {
    let service = Service::start();
    let mut client = service.client();
    let keys: Vec<Vec<u8>> = (0..3000u32).map(|at| format!("key-{at:05}").into_bytes()).collect();
    let value = vec![9; 300];
    for key in &keys {
        client.submit(&Operation::Put { key, value: &value, condition: Condition::Always }).unwrap();
    }
    while client.poll(PATIENCE).is_some() {}
    let keys_of = |scanned: Vec<ScanEntry>| scanned.into_iter().map(|e| e.key).collect::<Vec<_>>();

    let all: Vec<ScanEntry> = client.scan(ScanRange::default()).map(Result::unwrap).collect();
    assert!(all.iter().all(|entry| entry.value == value));
    assert_eq!(keys_of(all), keys);

    let reverse = ScanRange { reverse: true, keys_only: true, page_entries: 7, ..ScanRange::default() };
    let down: Vec<ScanEntry> = client.scan(reverse).map(Result::unwrap).collect();
    assert!(down.iter().all(|entry| entry.value.is_empty() && entry.value_len == 300));
    assert_eq!(keys_of(down), keys.iter().rev().cloned().collect::<Vec<_>>());

    let prefix: Vec<_> = client.scan(ScanRange::prefix(b"key-012")).map(Result::unwrap).collect();
    assert_eq!(keys_of(prefix), keys[1200..1300]);

    for reverse in [false, true] {
        let range = ScanRange {
            start: Bound::Excluded(keys[10].clone()),
            end: Bound::Included(keys[900].clone()),
            limit: 500,
            reverse,
            page_entries: 9,
            ..ScanRange::default()
        };
        let whole: Vec<_> = client.scan(range.clone()).map(Result::unwrap).collect();
        let (mut rest, mut parts) = (Some(range), Vec::new());
        while let Some(range) = rest {
            let mut scanner = client.scan(range);
            parts.extend(scanner.by_ref().take(13).map(Result::unwrap));
            rest = scanner.resume();
        }
        assert_eq!(parts, whole, "taken up again every 13 entries");
        assert_eq!(whole.len(), 500);
        assert_eq!(whole[0].key, if reverse { keys[900].clone() } else { keys[11].clone() });
    }
}

/// Keys and values.
type Visited = Vec<(Vec<u8>, Vec<u8>)>;

/// What a scan visits until it has come to so many entries, and what it leaves.
fn visit(client: &mut Client, range: ScanRange, most: usize) -> (Visited, Option<ScanRange>) {
    let mut visited = Vec::new();
    let rest = client.scan_with(range, |key, value| {
        visited.push((key.to_vec(), value.to_vec()));
        if visited.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    (visited, rest.unwrap())
}

#[test]
fn scan_with_visits_what_a_scan_yields_and_can_be_taken_up_again() {
    let service = Service::start();
    let mut client = service.client();
    let keys = fill(&mut client, 300);
    client.put(&keys[120], &vec![3; 1 << 20]).unwrap();
    for (reverse, keys_only) in [(false, false), (true, false), (false, true), (true, true)] {
        let range = ScanRange {
            start: Bound::Excluded(keys[10].clone()),
            end: Bound::Included(keys[260].clone()),
            limit: 200,
            reverse,
            keys_only,
            page_entries: 9,
        };
        let yielded: Vec<_> =
            client.scan(range.clone()).map(Result::unwrap).map(|entry| (entry.key, entry.value)).collect();
        assert_eq!(yielded.len(), 200);
        assert_eq!(visit(&mut client, range.clone(), usize::MAX), (yielded.clone(), None));
        let (mut rest, mut parts) = (Some(range), Vec::new());
        while let Some(range) = rest {
            let (part, left) = visit(&mut client, range, 13);
            parts.extend(part);
            rest = left;
        }
        assert_eq!(parts, yielded, "taken up again every 13 entries");
    }
    let nothing = ScanRange { limit: 0, ..ScanRange::default() };
    assert_eq!(visit(&mut client, nothing, 1), (Vec::new(), None));
    // Ended at the last entry there is, nothing is left, as where nobody ends it.
    for reverse in [false, true] {
        let range = ScanRange { end: Bound::Excluded(keys[2].clone()), reverse, ..ScanRange::default() };
        let (part, left) = visit(&mut client, range.clone(), 1);
        assert!(part.len() == 1 && left.is_some());
        assert_eq!(visit(&mut client, left.unwrap(), 1).1, None);
        assert_eq!(visit(&mut client, range, 2).1, None);
    }
    assert_eq!(client.outstanding(), 0);
}

/// Fills a store with so many entries.
fn fill(client: &mut Client, count: u32) -> Vec<Vec<u8>> {
    let keys: Vec<Vec<u8>> = (0..count).map(|at| format!("key-{at:05}").into_bytes()).collect();
    for key in &keys {
        client.submit(&Operation::Put { key, value: b"value", condition: Condition::Always }).unwrap();
        if client.outstanding() >= 1000 {
            while client.poll(PATIENCE).is_some() {}
        }
    }
    while client.poll(PATIENCE).is_some() {}
    keys
}

#[test]
fn scan_asks_for_the_next_page_while_one_is_yielded_and_for_none_past_its_limit() {
    let service = Service::start();
    let mut client = service.client();
    let keys = fill(&mut client, 40);
    let page = |limit| ScanRange { page_entries: 10, limit, ..ScanRange::default() };
    let mut scanner = client.scan(page(20));
    assert_eq!(scanner.next().unwrap().unwrap().key, keys[0]);
    // The model takes messages in their order: it has the next page's request when it answers this one.
    drop(scanner);
    client.get(&keys[0]).unwrap();
    assert_eq!(client.scan(page(20)).map(Result::unwrap).count(), 20);
    assert_eq!(client.scan(page(10)).map(Result::unwrap).count(), 10);
    drop(client);
    assert_eq!(service.stop().scans, 2 + 2 + 1);
}

#[test]
fn dropped_scan_leaves_neither_room_taken_nor_a_completion() {
    let service = Service::start();
    let keys = fill(&mut service.client(), 40);
    let options =
        ClientOptions { search: Search::Server, in_flight_max: 2, queue_max: 0, ..Default::default() };
    let mut client = Client::connect(&service.address.to_string(), options).unwrap();
    for _ in 0..5 {
        let mut scanner = client.scan(ScanRange { page_entries: 10, ..ScanRange::default() });
        assert_eq!(scanner.next().unwrap().unwrap().key, keys[0]);
        drop(scanner);
        assert_eq!(client.outstanding(), 0);
        assert!(client.poll(Duration::ZERO).is_none());
        let tickets = [0, 1].map(|at: usize| client.submit(&Operation::Get { key: &keys[at] }).unwrap());
        let mut ended: Vec<_> = (0..2).map(|_| client.poll(PATIENCE).expect("an answer").ticket).collect();
        ended.sort_unstable();
        assert_eq!(ended, tickets);
    }
}

#[test]
fn scan_with_room_for_one_operation_goes_on_without_looking_ahead() {
    let service = Service::start();
    let keys = fill(&mut service.client(), 40);
    service.client().put(&keys[7], &vec![1; 1 << 20]).unwrap();
    let options =
        ClientOptions { search: Search::Server, in_flight_max: 1, queue_max: 0, ..Default::default() };
    let mut client = Client::connect(&service.address.to_string(), options).unwrap();
    let range = ScanRange { page_entries: 5, ..ScanRange::default() };
    let found: Vec<Vec<u8>> = client.scan(range).map(|entry| entry.unwrap().key).collect();
    assert_eq!(found, keys);
}

/// The keys of a store whose entries but the first two do not fit a page with their values.
fn fill_with_large_values(service: &Service) -> Vec<Vec<u8>> {
    let mut client = service.client();
    let keys = fill(&mut client, 6);
    for key in &keys[2..] {
        client.put(key, &vec![1; 1 << 20]).unwrap();
    }
    keys
}

/// A page may name a thousand of them, and each may be 16 MiB long.
#[test]
fn scan_gets_a_value_that_does_not_fit_its_page_when_it_is_yielded() {
    let service = Service::start();
    let keys = fill_with_large_values(&service);
    let mut client = service.client();
    let mut scanner = client.scan(ScanRange { limit: 5, ..ScanRange::default() });
    let lengths: Vec<usize> = scanner.by_ref().take(3).map(|entry| entry.unwrap().value.len()).collect();
    assert_eq!(lengths, [5, 5, 1 << 20]);
    let rest = scanner.resume().unwrap();
    assert_eq!((rest.start, rest.limit), (Bound::Included(keys[3].clone()), 2));
    drop(scanner);
    drop(client);
    assert_eq!(service.stop().gets, 1);
}

#[test]
fn scan_leaves_out_what_is_gone_when_its_value_is_fetched_and_counts_it_for_no_limit() {
    let service = Service::start();
    let keys = fill_with_large_values(&service);
    let mut client = service.client();
    let mut scanner = client.scan(ScanRange { limit: 4, ..ScanRange::default() });
    assert_eq!(scanner.next().unwrap().unwrap().key, keys[0]);
    service.client().delete(&keys[2]).unwrap();
    let rest: Vec<Vec<u8>> = scanner.map(|entry| entry.unwrap().key).collect();
    assert_eq!(rest, [1, 3, 4].map(|at: usize| keys[at].clone()));
}

#[cfg(feature = "aio")]
#[test]
fn asynchronous_scan_gets_a_value_that_does_not_fit_its_page_when_it_is_yielded() {
    let service = Service::start();
    let keys = fill_with_large_values(&service);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = ClientOptions { search: Search::Server, ..ClientOptions::default() };
        let client = cell_client::aio::Client::connect(&service.address.to_string(), options).await.unwrap();
        let mut stream = client.scan(ScanRange { limit: 4, ..ScanRange::default() });
        for length in [5, 5, 1 << 20] {
            assert_eq!(stream.next().await.unwrap().unwrap().value.len(), length);
        }
        assert_eq!(stream.resume().unwrap().start, Bound::Included(keys[3].clone()));
        client.delete(&keys[3]).await.unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap().key, keys[4]);
        assert!(stream.next().await.is_none() && stream.resume().is_none());
        client.close().await;
    });
    assert_eq!(service.stop().gets, 3);
}

fn keys_of_a_message() -> u32 {
    u32::try_from(MULTI_GET_KEYS_MAX).unwrap()
}

/// The model answers no group before it has all three of them.
#[test]
fn multi_get_of_several_messages_has_them_under_way_together() {
    let mut server = Server::default();
    server.multi_gets_together = 3;
    let service = Service::start_with(server);
    let mut client = service.client();
    let keys = fill(&mut client, 3 * keys_of_a_message());
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    assert!(client.multi_get(&keys).unwrap().iter().all(Option::is_some));
}

#[cfg(feature = "aio")]
#[test]
fn asynchronous_multi_get_of_several_messages_has_them_under_way_together() {
    let mut server = Server::default();
    server.multi_gets_together = 3;
    let service = Service::start_with(server);
    let keys = fill(&mut service.client(), 3 * keys_of_a_message());
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = ClientOptions { search: Search::Server, ..ClientOptions::default() };
        let client = cell_client::aio::Client::connect(&service.address.to_string(), options).await.unwrap();
        assert!(client.multi_get(&keys).await.unwrap().iter().all(Option::is_some));
        assert!(client.selector_report().is_none(), "this client has no choice");
    });
}

#[test]
fn multi_get_that_fails_leaves_neither_room_taken_nor_a_completion() {
    let service = Service::start();
    let mut client = service.client();
    let keys = fill(&mut client, 3 * keys_of_a_message());
    let long = vec![0; 5000];
    // The first groups are under way when the last one proves unsendable.
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).chain([long.as_slice()]).collect();
    assert!(matches!(client.multi_get(&keys).unwrap_err(), ClientError::Unsendable(_)));
    assert_eq!(client.outstanding(), 0);
    assert!(client.poll(Duration::ZERO).is_none());
}

#[test]
fn connections_cut_under_load_lose_and_repeat_nothing() {
    let service = Service::start();
    let mut client = service.client();
    let mut written = 0;
    for round in 0..40u32 {
        for index in 0..50u32 {
            let key = (round * 50 + index).to_be_bytes();
            let operation = Operation::Put { key: &key, value: b"value", condition: Condition::Always };
            client.submit(&operation).unwrap();
        }
        service.order(Order::CutAll);
        while let Some(completion) = client.poll(PATIENCE) {
            completion.outcome.unwrap();
            written += 1;
        }
    }
    assert_eq!(written, 2000);
    drop(client);
    let server = service.stop();
    assert_eq!((server.applied.len(), server.entries.len()), (2000, 2000), "each applied once");
}

#[test]
fn server_gone_ends_operations_at_their_deadline() {
    let service = Service::start();
    let mut client = service.client();
    client.put(b"key", b"value").unwrap();
    service.stop();
    let ticket = client.submit_within(&Operation::Get { key: b"key" }, Duration::from_millis(300)).unwrap();
    let completion = client.poll(PATIENCE).unwrap();
    assert_eq!(completion.ticket, ticket);
    let error = completion.outcome.unwrap_err();
    assert_eq!(error.fate(), Fate::NotDone);
    assert!(matches!(error, ClientError::Deadline { last: Some(AttemptError::Closed(_)), .. }), "{error}");
    assert!(completion.elapsed_ns >= 300_000_000 && completion.elapsed_ns < 30_000_000_000);
}

#[test]
fn connect_to_another_service_says_so() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let http = std::thread::spawn(move || {
        // Once to ask whether there is shared memory, once to connect.
        for _ in 0..2 {
            let (mut socket, _) = listener.accept().unwrap();
            let mut bytes = [0; 64];
            let _ = socket.read(&mut bytes);
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html>no</html>");
        }
    });
    let error = Client::connect(&address.to_string(), ClientOptions::default()).unwrap_err();
    assert!(
        matches!(&error, ClientError::WrongService { server, .. } if **server == address.into()),
        "{error}"
    );
    assert!(error.to_string().contains("is not a Cell server's fabric port"), "{error}");
    assert!(error.to_string().contains("speaks HTTP"), "{error}");
    http.join().unwrap();
}

/// A client that came a moment too early was turned away for good.
#[test]
fn connect_to_a_server_without_room_waits_for_it_as_long_as_an_operation_may_take() {
    let limits = FabricLimits { connections_max: 1, ..FabricLimits::default() };
    let service = Service::start_under(limits, Server::default());
    let options = |deadline_ms| ClientOptions {
        search: Search::Server,
        transport: Transport::Tcp,
        deadline_ms,
        ..ClientOptions::default()
    };
    let address = service.address.to_string();
    let first = Client::connect(&address, options(5_000)).unwrap();
    let error = Client::connect(&address, options(300)).unwrap_err();
    let ClientError::TooManyConnections { waited_ms, .. } = error else { panic!("{error}") };
    assert!(waited_ms >= 300, "{waited_ms}");
    let (connecting, trying) = channel();
    let second = std::thread::spawn(move || {
        connecting.send(()).unwrap();
        Client::connect(&address, options(120_000)).unwrap().get(b"key").unwrap()
    });
    trying.recv().unwrap();
    drop(first);
    assert_eq!(second.join().unwrap(), None);
}
