//! A disk that is full, a region that is full: writes are refused clearly, reads and deletes go on, and all
//! is well once there is room.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cell_client::{AttemptError, Client, ClientError, ClientOptions};
use cell_protocol::Refusal;
use cell_tests::ending::Ending;
use cell_tests::server::Server;
use cell_tests::small_disk::SmallDisk;
use cell_tests::wait;

/// Puts in a row of which nothing is said, each for its whole deadline.
const UNANSWERED_MAX: u32 = 40;

/// A client that reads and deletes.
fn connect(server: &Server) -> Client {
    connect_for(server, 60_000)
}

/// One that puts: a put into a full store ends at its deadline.
fn connect_to_put(server: &Server) -> Client {
    connect_for(server, 3_000)
}

fn connect_for(server: &Server, deadline_ms: u64) -> Client {
    let options = ClientOptions { deadline_ms, retries_max: 3, ..ClientOptions::default() };
    Client::connect(&server.address().to_string(), options).expect("the server is there")
}

/// Whether an error says that the pair takes no writes for want of room.
fn is_read_only(error: &ClientError) -> bool {
    let refusal = match error {
        ClientError::Refused(refusal) => *refusal,
        ClientError::Deadline { last: Some(AttemptError::Refused(refusal)), .. } => *refusal,
        _ => return false,
    };
    matches!(refusal, Refusal::ReadOnly { .. })
}

/// Whether the machine was too slow for an answer, or for what waits already: nothing is said of room.
fn is_unanswered(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Unknown { .. }
            | ClientError::Refused(Refusal::Busy)
            | ClientError::Deadline {
                last: None
                    | Some(
                        AttemptError::SessionAwaited
                            | AttemptError::Refused(Refusal::Busy | Refusal::CoordinatorAway)
                    ),
                ..
            }
    )
}

/// A value of its own for each number, which no compression makes smaller. Eight bytes at a time: this is not
/// optimised, and byte by byte it takes longer than a node takes to keep it.
fn noise(number: u32) -> Vec<u8> {
    let mut state = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes = Vec::with_capacity(8_000);
    (0..1_000).for_each(|_| bytes.extend_from_slice(&next().to_le_bytes()));
    bytes
}

/// Puts until the server refuses; how many it took.
fn fill(server: &Server, value: impl Fn(u32) -> Vec<u8>) -> u32 {
    let mut client = connect_to_put(server);
    let (mut number, mut unanswered) = (0, 0);
    while number < 100_000 {
        match client.put(format!("fill-{number:06}").as_bytes(), &value(number)) {
            Ok(_) => (number, unanswered) = (number + 1, 0),
            Err(error) if is_unanswered(&error) => {
                unanswered += 1;
                assert!(unanswered < UNANSWERED_MAX, "never refused for want of room: {error} ({error:?})");
            }
            Err(error) => {
                assert!(is_read_only(&error), "not what a full disk says: {error} ({error:?})");
                return number;
            }
        }
    }
    panic!("it never filled");
}

fn assert_all_there(client: &mut Client, count: u32, value: impl Fn(u32) -> Vec<u8>) {
    for number in (0..count).step_by(7) {
        let item = client.get(format!("fill-{number:06}").as_bytes()).expect("reads go on");
        assert_eq!(item.expect("it was acknowledged").value, value(number));
    }
}

/// Does some work on a full store while others go on reading, and putting what is refused or finds room.
fn under_load(server: &Server, count: u32, value: &[u8], work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&stop);
        let goes_on = || !stop.load(Ordering::Acquire);
        scope.spawn(move || {
            let mut client = connect(server);
            for number in (0..count).cycle().step_by(7).take_while(|_| goes_on()) {
                let item = client.get(format!("fill-{number:06}").as_bytes()).expect("reads go on");
                assert!(item.is_none_or(|item| item.value == value), "{number}");
            }
        });
        scope.spawn(move || {
            let mut client = connect_to_put(server);
            while goes_on() {
                if let Err(error) = client.put(b"load", value) {
                    let is_expected = is_read_only(&error) || is_unanswered(&error);
                    assert!(is_expected, "not what a full region says: {error} ({error:?})");
                }
            }
        });
        work();
    });
}

#[test]
fn disk_full_refuses_writes_keeps_reads_and_recovers_with_room() {
    let Some(disk) = SmallDisk::new(96) else { return };
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![1u8; 24 << 20]).expect("there is room for ballast");
    // Checkpoints free the log until an image finds no room either: only the disk's end ends the writing.
    let flags = ["--log-segment-bytes", "4MiB", "--checkpoint-log-bytes-min", "1GiB"];
    let mut server = Server::prepared(&disk.path().join("data"), &flags);
    server.resume();
    let count = fill(&server, noise);
    let mut client = connect(&server);
    assert!(count > 100, "{count} entries fitted");
    assert_all_there(&mut client, count, noise);

    // Still full after a crash: recovery itself must work, with everything acknowledged.
    drop(client);
    server.kill_all();
    server.resume();
    let mut client = connect(&server);
    assert_all_there(&mut client, count, noise);

    fs::remove_file(&ballast).expect("ballast can be dropped");
    let mut client = connect_to_put(&server);
    wait::until("writes go on once there is room", || client.put(b"after", b"there is room").is_ok());
    let verified = server.cell(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    drop(client);
    server.kill_all();
}

/// On a disk that is too small a node once died again and again, or was "recovering 0 %" for ever, and nobody
/// said why.
#[test]
fn disk_too_small_for_a_store_is_refused_with_its_size() {
    let Some(disk) = SmallDisk::new(8) else { return };
    let data = disk.path().join("data");
    let mut server = Server::prepared(&data, &[]);
    let beside = tempfile::tempdir().expect("a temporary folder can be made");
    server.log_to(&beside.path().join("server-log"));
    server.launch();
    assert_eq!(server.wait_end(), Some(2), "{}", server.log());
    let said = server.log();
    assert!(
        said.contains("is too small: it has ") && said.contains("takes 14.5 MiB before anything"),
        "{said}"
    );
    assert!(said.contains("next: give a folder on a larger disk"), "{said}");
    assert!(!data.join("coordinator").exists(), "nothing is started");
    let node = server.node_command(0).args(["--log-segment-bytes", "8MiB"]).status();
    assert_eq!(node.expect("cell can be started").code(), Some(2), "nor by a node alone: {}", server.log());
}

/// A disk that others have filled while the store was down, so that a new epoch's logs find no room.
#[test]
fn disk_without_room_for_new_logs_is_named_and_waited_for() {
    let Some(disk) = SmallDisk::new(64) else { return };
    let data = disk.path().join("data");
    // What the epochs before leave is less than what the next one takes.
    let mut server = Server::prepared(&data, &["--log-segment-bytes", "1MiB"]);
    let beside = tempfile::tempdir().expect("a temporary folder can be made");
    server.log_to(&beside.path().join("server-log"));
    server.resume();
    assert_eq!(server.cell(&["put", "key", "value"]).code, Some(0));
    assert_eq!(server.stop(), Some(0));
    disk.fill();
    let before = server.log().len();
    server.set_flags(&["--log-segment-bytes", "16MiB"]);
    server.launch();
    server.wait_log(before, "node 0 is waiting for room on the disk: free some in its log root");
    wait::until("readiness says it", || {
        server.http("/readyz?verbose").is_some_and(|(_, said)| {
            said.contains("[-]reads: recovering, waiting for room on the disk, ")
                && said.contains("[-]warnings: the disk has no room for the logs")
        })
    });
    let status = server.cell(&["status"]);
    assert_eq!(status.code, Some(5), "{status:?}");
    assert!(status.out.contains("the disk has no room for the logs that it would write"), "{status:?}");
    disk.make_room();
    server.wait_ready();
    assert_eq!(server.cell(&["get", "key"]).out, "value\n");
    server.kill_all();
}

/// A disk of 96 MB was full of log, for ever, before `checkpoint_log_bytes_min` was reached, though all that
/// was stored would have fitted many times.
#[test]
fn small_disk_takes_many_times_its_size_of_updates() {
    let Some(disk) = SmallDisk::new(96) else { return };
    let mut server = Server::prepared(&disk.path().join("data"), &["--log-segment-bytes", "8MiB"]);
    server.resume();
    let mut client = connect(&server);
    let large = |number: u32| (0..6).map(|part| noise(6 * number + part)).collect::<Vec<_>>().concat();
    let (keys, updates) = (60, 4_000); // 3 MB stored, 192 MB written
    for number in 0..updates {
        let put = client.put(format!("fill-{:06}", number % keys).as_bytes(), &large(number));
        assert!(put.is_ok(), "update {number}: {put:?}\n{}", server.log());
    }
    let written_by = |key: u32| (updates - keys..updates).find(|number| number % keys == key).unwrap_or(key);
    assert_all_there(&mut client, keys, |key| large(written_by(key)));
    drop(client);
    server.kill_all();
    server.resume();
    assert_all_there(&mut connect(&server), keys, |key| large(written_by(key)));
    let verified = server.cell(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    server.kill_all();
}

#[test]
fn region_full_refuses_writes_keeps_reads_and_deletes() {
    // Memory for some pairs of so small a region.
    let flags = ["--extent-region-bytes", "16MiB", "--memory-limit-bytes", "300MiB"];
    let mut server = Server::start_steady(&flags);
    let mut client = connect(&server);
    let value = vec![7u8; 8_000];
    let count = fill(&server, |_| value.clone());
    assert!(count > 500, "{count} entries fitted");
    assert_all_there(&mut client, count, |_| value.clone());
    under_load(&server, count, &value, || {
        for number in 0..200 {
            let deleted = client.delete(format!("fill-{number:06}").as_bytes()).expect("deletes go on");
            assert!(deleted);
        }
    });
    // Freed extents rest for the grace period, then there is room.
    let mut client = connect_to_put(&server);
    wait::until("deletes have made room", || client.put(b"after", &value).is_ok());
    server.kill_all();
    server.resume();
    let mut client = connect(&server);
    assert_eq!(client.get(b"after").expect("reads go on").map(|item| item.value), Some(value));
    assert!(client.get(b"fill-000000").expect("reads go on").is_none());
}

/// Others overwrite small entries of another meganode all the time, and each time an extent is freed and
/// rests: there is always something that will be free soon, and never room for a large one. (A put that finds
/// no room waited as long as any extent of the pair rested: for ever, beside steady updates.)
#[test]
fn region_full_beside_steady_updates_refuses_clearly_and_soon() {
    let flags = [
        &["--extent-region-bytes", "16MiB", "--memory-limit-bytes", "300MiB", "--slot-bytes", "64MiB"][..],
        &["--initial-split-keys", "c"],
    ];
    let server = Server::start_steady(&flags.concat());
    let mut client = connect(&server);
    let small = |number: u32| format!("a-small-{:03}", number % 200);
    for number in 0..200 {
        client.put(small(number).as_bytes(), &[1; 100]).expect("there is room");
    }
    let value = vec![7u8; 8_000];
    assert!(fill(&server, |_| value.clone()) > 500);
    let (stop, updates) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let ending = Ending(&stop);
        scope.spawn(|| {
            let mut client = connect_to_put(&server);
            for number in 0.. {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                match client.put(small(number).as_bytes(), &[2; 100]) {
                    Ok(_) => _ = updates.fetch_add(1, Ordering::SeqCst),
                    Err(error) if is_unanswered(&error) => {}
                    Err(error) => assert!(is_read_only(&error), "{error} ({error:?})"),
                }
            }
        });
        // No try of the client's own comes between: what the server says is what it gets.
        let options = ClientOptions { deadline_ms: 20_000, retries_max: 0, ..ClientOptions::default() };
        let mut client =
            Client::connect(&server.address().to_string(), options).expect("the server is there");
        let (mut refused, mut written) = (0, 0);
        while refused < 5 {
            let before = updates.load(Ordering::SeqCst);
            match client.put(format!("new-{written:06}").as_bytes(), &value) {
                Ok(_) => written += 1,
                Err(ClientError::Refused(Refusal::ReadOnly { .. })) => refused += 1,
                Err(ClientError::Deadline {
                    last: Some(AttemptError::Refused(Refusal::ReadOnly { .. })),
                    ..
                }) => {
                    refused += 1;
                }
                Err(error) => {
                    let updates = updates.load(Ordering::SeqCst) - before;
                    panic!("neither done nor refused, beside {updates} updates: {error} ({error:?})");
                }
            }
            assert!(written < 1_000, "it is not full");
            // The updates are steady: they are not what is refused.
            wait::until("a hundred updates more", || updates.load(Ordering::SeqCst) >= before + 100);
        }
        drop(ending);
    });
}

/// Bytes that the files of a folder take on the disk.
fn taken(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |path: &Path| match fs::metadata(path) {
        Ok(about) if about.is_dir() => taken(path),
        about => about.map_or(0, |about| about.blocks() * 512), // it may be removed just now
    };
    entries.map(|entry| of(&entry.path())).sum()
}

/// Short leases, small segments and early checkpoints, and a supervisor that kills as often as a test likes.
const OFTEN_RESTARTED: [&str; 7] = [
    "--lease-ms=1s",
    "--coordinator-deadline-ms=300ms",
    "--log-segment-bytes",
    "4MiB",
    "--checkpoint-log-bytes-min",
    "8MiB",
    "--allow-drills",
];
const RESTARTS: u32 = 12;

/// Each restart left a first segment of 4 MiB in both logs, and no checkpoint ever came.
#[test]
fn restarts_of_an_idle_node_do_not_fill_the_disk() {
    let Some(disk) = SmallDisk::new(256) else { return };
    let mut server = Server::prepared(&disk.path().join("data"), &OFTEN_RESTARTED);
    server.resume();
    connect(&server).put(b"key", b"value").expect("there is room");
    for _ in 0..RESTARTS {
        server.replace_node();
    }
    // The living logs have a first segment and two spares each.
    let log = server.folder().join("log");
    let bytes = taken(&log);
    assert!(bytes < 40 << 20, "{bytes} bytes of log for one entry");
    let epochs = || fs::read_dir(log.join("region-00000002")).map_or(0, Iterator::count);
    wait::until("a checkpoint has made the epochs before it needless", || epochs() < 8);
    assert!(connect(&server).get(b"key").expect("it is served").is_some());
    server.kill_all();
}

/// Puts some keys again and again until it is to end.
fn overwrite(address: &str, ends: &AtomicBool, written: &AtomicU32) {
    let options = ClientOptions { deadline_ms: 60_000, ..ClientOptions::default() };
    let mut client = Client::connect(address, options).expect("the server is there");
    for number in 0.. {
        if ends.load(Ordering::Acquire) {
            return;
        }
        let value = noise(number);
        client.put(format!("load-{:02}", number % 50).as_bytes(), &value).expect("the node comes back");
        written.fetch_add(1, Ordering::Release);
    }
}

/// Under load each restart left what was prepared and not yet covered by a checkpoint: 1.1 GB after twelve.
#[test]
fn restarts_of_a_node_under_load_do_not_fill_the_disk() {
    let Some(disk) = SmallDisk::new(256) else { return };
    let mut server = Server::prepared(&disk.path().join("data"), &OFTEN_RESTARTED);
    server.resume();
    let log = server.folder().join("log");
    let (ends, written) = (AtomicBool::new(false), AtomicU32::new(0));
    let mut most = 0;
    let address = server.address().to_string();
    std::thread::scope(|scope| {
        let ending = Ending(&ends);
        scope.spawn(|| overwrite(&address, &ends, &written));
        for _ in 0..RESTARTS {
            let before = written.load(Ordering::Acquire);
            wait::until("some hundred writes", || written.load(Ordering::Acquire) > before + 300);
            server.replace_node();
            most = most.max(taken(&log));
        }
        drop(ending);
    });
    println!("{} writes of 8 kB, {most} bytes of log at most", written.load(Ordering::Acquire));
    assert!(most < 64 << 20, "{most} bytes of log for 50 entries of 8 kB");
    let epochs = || fs::read_dir(log.join("region-00000002")).map_or(0, Iterator::count);
    wait::until("a checkpoint has made the epochs before it needless", || epochs() < 8);
    server.kill_all();
}
