//! The blocking client over shared memory, beside an owner on a thread of its own, whose regions it maps.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use cell_client::{Client, ClientOptions, OneSidedCounters, ScanRange};
use cell_fabric::{Endpoint, Event, HostEndpoint, HostOptions, ShmOptions, SocketName};
use cell_protocol::{Found, ReplyHeader, Request, RequestKind, ValuesWriter};

use crate::onesided::answers::{key, value};
use crate::onesided::owner::Owner;
use crate::onesided::read_harness::{options, reply_header, reply_on_itself};

/// Owners of this process so far: each has a socket of its own.
static OWNERS: AtomicU32 = AtomicU32::new(0);

/// An owner that serves clients of this host. It makes durable what was written when it is asked for entries.
struct Service {
    address: String,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<RequestKind>>,
}

impl Service {
    fn start(mut owner: Owner) -> Service {
        let number = OWNERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("@cell-client-test-{}-{number}", std::process::id());
        let shm = ShmOptions { one_sided: true, ..ShmOptions::default() };
        let options = HostOptions { shm, socket: SocketName::new(&name), ..HostOptions::default() };
        let mut endpoint = HostEndpoint::listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        owner.register(&mut endpoint);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || serve(&mut endpoint, &mut owner, &stopped));
        Service { address: format!("shm:{name}"), stop, thread }
    }

    /// Ends it; what it was asked about entries.
    fn stop(self) -> Vec<RequestKind> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

fn serve(endpoint: &mut HostEndpoint, owner: &mut Owner, stop: &AtomicBool) -> Vec<RequestKind> {
    let mut asked = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let mut replies = Vec::new();
        endpoint.poll(&mut |event| {
            if let Event::Message { connection, message } = event {
                replies.push((connection, answer(owner, message, &mut asked)));
            }
        });
        for (connection, reply) in replies {
            let _ = endpoint.send(connection, &reply); // a client that is gone wants none
        }
        endpoint.flush();
        std::thread::yield_now();
    }
    asked
}

fn answer(owner: &mut Owner, message: &[u8], asked: &mut Vec<RequestKind>) -> Vec<u8> {
    let (header, request) = Request::decode(message).unwrap();
    let rows: Vec<_> = owner.pairs.iter().map(|owned| owned.row()).collect();
    let stamped = |owner: &Owner| ReplyHeader { trust_us: 10_000_000, ..reply_header(owner, header.id) };
    let mut bytes = Vec::new();
    if let Some(reply) = reply_on_itself(&request, &rows) {
        reply.encode(&stamped(owner), &mut bytes).unwrap();
        return bytes;
    }
    asked.push(request.kind());
    let Request::MultiGet(keys) = request else { panic!("the server was asked {request:?}") };
    owner.raise();
    let mut values = ValuesWriter::begin(&stamped(owner), &keys, &mut bytes).unwrap();
    for key in keys.iter() {
        let entry = owner.entries.get(key);
        let found = entry.map(|&(version, ref value)| Found::Value { version, value });
        values.push(found.unwrap_or(Found::Absent)).unwrap();
    }
    values.finish();
    bytes
}

fn counters(client: &Client) -> OneSidedCounters {
    *client.one_sided_counters().unwrap()
}

/// A client that has mapped the owner's regions.
fn client(service: &Service) -> Client {
    let options = ClientOptions { deadline_ms: 60_000, ..options() };
    let mut client = Client::connect(&service.address, options).unwrap();
    for _ in 0..100 {
        let before = counters(&client).in_place;
        assert_eq!(client.get(&key(1)).unwrap().unwrap().value, value(1));
        if counters(&client).in_place > before {
            return client;
        }
    }
    panic!("the regions are not mapped");
}

/// The first group is returned before the second is looked for. One entry of the second is not durable, so it
/// and all after it go on by a message. Of its answer, a value that does not fit is brought by a get.
#[test]
fn multi_get_started_at_once_goes_on_by_messages_from_a_group_that_cannot_be_returned() {
    let mut owner = Owner::shareable();
    for number in 0..200 {
        owner.put(&key(number), &value(number));
    }
    owner.put(&key(150), &vec![b'v'; 100_000]);
    owner.delete(&key(20));
    owner.delete(&key(170));
    owner.put_unseen(&key(100), b"not durable yet");
    let expected = owner.entries.clone();
    let service = Service::start(owner);
    let mut client = client(&service);
    let keys: Vec<Vec<u8>> = (0..200).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let before = counters(&client);
    let found = client.multi_get(&keys).unwrap();
    let after = counters(&client);
    assert_eq!(found.len(), keys.len());
    for (key, item) in keys.iter().zip(found) {
        let found = item.map(|item| (item.version, item.value));
        assert_eq!(found.as_ref(), expected.get(*key), "{}", key.escape_ascii());
    }
    assert_eq!(after.fell_back - before.fell_back, 1, "the rest is one group for messages");
    assert_eq!(after.done - before.done, 2, "the first group, and the get of the long value");
    client.close();
    assert_eq!(service.stop(), [RequestKind::MultiGet]);
}

/// How many of what is read at once a task has before another one of its thread has run; so many at most.
#[cfg(feature = "aio")]
async fn before_another_task_runs(mut read: impl AsyncFnMut()) -> usize {
    const MANY: usize = 10_000;
    let has_run = Arc::new(AtomicBool::new(false));
    let other = Arc::clone(&has_run);
    let running = tokio::spawn(async move { other.store(true, Ordering::SeqCst) });
    let mut count = 0;
    while count < MANY && !has_run.load(Ordering::SeqCst) {
        read().await;
        count += 1;
    }
    running.await.unwrap();
    count
}

/// Who asks without an end for what is answered at once had the thread for itself.
#[cfg(feature = "aio")]
#[test]
fn asynchronous_reads_of_mapped_memory_let_other_tasks_run() {
    let mut owner = Owner::shareable();
    for number in 0..300 {
        owner.put(&key(number), &value(number));
    }
    let service = Service::start(owner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = ClientOptions { deadline_ms: 60_000, ..options() };
        let client = cell_client::aio::Client::connect(&service.address, options).await.unwrap();
        let in_place = || client.one_sided_counters().unwrap().in_place;
        let mut attempts = 0;
        while in_place() == 0 {
            assert_eq!(client.get(&key(1)).await.unwrap().unwrap().value, value(1));
            attempts += 1;
            assert!(attempts < 100, "the regions are not mapped");
        }
        let get = async || assert!(client.get(&key(1)).await.unwrap().is_some());
        assert!(before_another_task_runs(get).await < 1_000);
        let mut scan = client.scan(ScanRange::default());
        let entry = async || match scan.next().await {
            Some(entry) => assert!(entry.unwrap().value_len > 0),
            None => scan = client.scan(ScanRange::default()),
        };
        assert!(before_another_task_runs(entry).await < 1_000);
        client.close().await;
    });
    assert_eq!(service.stop(), []);
}

/// Pages of several sizes, values too long for a page among them, and entries that were removed.
#[test]
fn scan_with_visits_mapped_memory_and_asks_the_server_nothing() {
    let mut owner = Owner::shareable();
    for number in 0..300 {
        owner.put(&key(number), &value(number));
    }
    owner.put(&key(150), &vec![b'v'; 100_000]);
    (40..90).for_each(|number| owner.delete(&key(number)));
    let entries = owner.entries.iter();
    let mut expected: Vec<_> = entries.map(|(key, (_, value))| (key.clone(), value.clone())).collect();
    let service = Service::start(owner);
    let mut client = client(&service);
    let before = counters(&client);
    for reverse in [false, true] {
        for page_entries in [0, 7] {
            let range = ScanRange { reverse, page_entries, ..ScanRange::default() };
            let mut visited = Vec::new();
            let rest = client.scan_with(range, |key, value| {
                visited.push((key.to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            });
            assert_eq!((rest.unwrap(), &visited), (None, &expected), "{page_entries} entries a page");
        }
        expected.reverse();
    }
    let after = counters(&client);
    let done = after.done - before.done;
    assert!(done >= 2 * (1 + 36), "{done} pages");
    assert_eq!((after.in_place - before.in_place, after.fell_back - before.fell_back), (done, 0));
    client.close();
    assert_eq!(service.stop(), []);
}
