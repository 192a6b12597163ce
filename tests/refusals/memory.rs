//! The memory limit, under load: nothing is held beyond it, nothing is killed for memory, and what does not
//! fit is refused: writes, a takeover, a start.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Scope;

use cell_client::{AttemptError, Client, ClientError, ClientOptions, Condition, Operation};
use cell_protocol::{ReadOnlyReason, Refusal};
use cell_tests::control_group::ControlGroup;
use cell_tests::ending::Ending;
use cell_tests::lease::LONG_LEASE;
use cell_tests::process::signal;
use cell_tests::program;
use cell_tests::server::Server;
use cell_tests::traffic::{repeated, spread};
use cell_tests::wait;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::refusals::assert_refused;

const USAGE: i32 = 2;
const MIB: u64 = 1 << 20;
/// What the node of the first test may hold.
const LIMIT: u64 = 192 * MIB;
/// What its control group has beyond that: the supervisor is in it, too.
const BESIDES: u64 = 64 * MIB;
const WRITERS: u64 = 4;
/// Refusals in a row after which a writer believes that the store is full.
const FULL_AFTER: u32 = 20;

fn connect(server: &Server) -> Client {
    let options = ClientOptions { deadline_ms: 20_000, ..ClientOptions::default() };
    Client::connect(&server.address().to_string(), options).expect("the server is there")
}

/// Whether an error says that there is no memory, and nothing else.
fn is_full(error: &ClientError) -> bool {
    let refusal = match error {
        ClientError::Refused(refusal) => *refusal,
        ClientError::Deadline { last: Some(AttemptError::Refused(refusal)), .. } => *refusal,
        _ => return false,
    };
    matches!(refusal, Refusal::ReadOnly { reason: ReadOnlyReason::RegionFull })
}

fn key(writer: u64, number: u64) -> Vec<u8> {
    let number = number * WRITERS + writer;
    spread(number, &format!("-{number:09}"))
}

fn at(number: u64) -> usize {
    usize::try_from(number).expect("it is small")
}

/// Values of many lengths, each of which names its key.
fn value(writer: u64, number: u64) -> Vec<u8> {
    let length = [100, 900, 4_000, 12_000][at(number % 4)];
    repeated(&format!("{writer}/{number};"), length)
}

/// The most resident bytes that a process has had, everything included.
fn resident_peak(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// What a writer has had acknowledged: keys `from..to`, those below `from` deleted.
#[derive(Default)]
struct Kept {
    from: AtomicU64,
    to: AtomicU64,
}

/// Puts until the store is full, then goes on putting, and is refused, until it is to stop.
fn write(server: &Server, writer: u64, kept: &Kept, full: &AtomicU64, stop: &AtomicBool) {
    let mut client = connect(server);
    let (mut refused, mut counted) = (0, false);
    while !stop.load(Ordering::Acquire) {
        let number = kept.to.load(Ordering::Acquire);
        match client.put(&key(writer, number), &value(writer, number)) {
            Ok(_) => {
                kept.to.store(number + 1, Ordering::Release);
                refused = 0;
            }
            Err(error) => {
                assert!(is_full(&error), "not what a full store says: {error} ({error:?})");
                refused += 1;
                // Else four of them take the processors from whoever makes room.
                wait::pause();
            }
        }
        if refused >= FULL_AFTER && !std::mem::replace(&mut counted, true) {
            full.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Reads what is there, again and again, and watches what the node holds.
fn read(server: &Server, kept: &[Kept], peak: &AtomicU64, stop: &AtomicBool) {
    let mut client = connect(server);
    let node = server.node().expect("the node runs");
    let mut round = 0_u64;
    while !stop.load(Ordering::Acquire) {
        round += 1;
        let writer = round % WRITERS;
        let of = &kept[at(writer)];
        let (from, to) = (of.from.load(Ordering::Acquire), of.to.load(Ordering::Acquire));
        if from < to {
            let number = from + round.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (to - from);
            let item = client.get(&key(writer, number)).expect("reads go on");
            // Whoever deletes says so before it does.
            if number >= of.from.load(Ordering::Acquire) {
                assert_eq!(item.map(|item| item.value), Some(value(writer, number)), "{writer}/{number}");
            }
        }
        // The kernel keeps it: of what is held between two looks nothing is missed.
        peak.fetch_max(resident_peak(node), Ordering::AcqRel);
        wait::pause();
    }
}

/// Begins a thread; one that fails does not leave the others running for ever.
fn begin<'scope>(
    scope: &'scope Scope<'scope, '_>,
    stop: &'scope AtomicBool,
    work: impl FnOnce() + Send + 'scope,
) {
    scope.spawn(move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            stop.store(true, Ordering::Release);
            resume_unwind(panic);
        }
    });
}

/// `cell dev --memory-limit-bytes 256MiB` once held 1.2 GB: the limit was held against pairs that were added,
/// and by the address space of their regions.
#[test]
fn memory_full_under_load_refuses_writes_keeps_reads_and_deletes_and_nothing_is_killed() {
    let Some(group) = ControlGroup::new(LIMIT + BESIDES) else { return };
    let folder = TempDir::with_prefix("cell-memory-").expect("a temporary folder can be made");
    let limit = LIMIT.to_string();
    let mut server = Server::bare_with(&folder.path().join("data"), &["--memory-limit-bytes", &limit]);
    server.run_in(&group);
    server.resume();
    let node = server.node().expect("the node runs");
    let kept: Vec<Kept> = (0..WRITERS).map(|_| Kept::default()).collect();
    let (stop, full, peak) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (server, kept, stop, full, peak) = (&server, &kept, &stop, &full, &peak);
        for writer in 0..WRITERS {
            begin(scope, stop, move || write(server, writer, &kept[at(writer)], full, stop));
        }
        begin(scope, stop, move || read(server, kept, peak, stop));
        let ending = Ending(stop);
        let stopped = || stop.load(Ordering::Acquire);
        wait::until("the store is full", || full.load(Ordering::Acquire) == WRITERS || stopped());
        let at_full: Vec<u64> = kept.iter().map(|of| of.to.load(Ordering::Acquire)).collect();
        // Deletes go on while the others go on putting, reading and being refused; and they make room.
        let mut client = connect(server);
        let mut rounds = 0;
        while !stopped()
            && kept.iter().zip(&at_full).any(|(of, before)| of.to.load(Ordering::Acquire) < before + 50)
        {
            rounds += 1;
            for (writer, of) in (0..).zip(kept) {
                let from = of.from.load(Ordering::Acquire);
                assert!(from + 20 < of.to.load(Ordering::Acquire), "deletes made no room");
                of.from.store(from + 20, Ordering::Release);
                for number in from..from + 20 {
                    assert!(client.delete(&key(writer, number)).expect("deletes go on"));
                }
            }
        }
        let status = server.http("/api/v1/status").expect("it answers").1;
        let memory =
            serde_json::from_str::<serde_json::Value>(&status).expect("it is JSON")["memory"].clone();
        println!("{at_full:?} puts filled it, {rounds} times 20 deletes each made room for 50 more");
        // It is the limit that is in the way: what is left of it would not hold half of a meganode.
        assert!(
            memory["limit_bytes"].as_u64() <= Some(LIMIT)
                && memory["available_bytes"].as_u64() < Some(LIMIT / 8),
            "{memory}"
        );
        assert!(memory["regions_bytes"].as_u64() > Some(30 * MIB), "it held something: {memory}");
        drop(ending);
    });
    let peak = peak.into_inner();
    println!("at most {} MiB of {} MiB; the group {:?}", peak / MIB, LIMIT / MIB, group.peak_bytes());
    assert!(peak <= LIMIT, "{peak} bytes were resident, {LIMIT} are permitted");
    assert_eq!((group.kills(), server.node()), (Some(0), Some(node)), "nobody was killed");

    // As full as it is, it comes back.
    server.kill_all();
    server.resume();
    let mut client = connect(&server);
    for (writer, of) in (0..).zip(&kept) {
        let (from, to) = (of.from.load(Ordering::Acquire), of.to.load(Ordering::Acquire));
        for number in (from..to).step_by(17) {
            let item = client.get(&key(writer, number)).expect("reads go on");
            assert_eq!(item.map(|item| item.value), Some(value(writer, number)), "{writer}/{number}");
        }
        assert!(from == 0 || client.get(&key(writer, from - 1)).expect("reads go on").is_none());
    }
    drop(client);
    let verified = server.cell(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert_eq!(group.kills(), Some(0));
    server.kill_all();
}

#[test]
fn memory_limit_too_small_is_refused_with_the_smallest_that_works() {
    let folder = TempDir::with_prefix("cell-memory-").expect("a temporary folder can be made");
    let mut server = Server::bare_with(&folder.path().join("data"), &["--memory-limit-bytes", "16MiB"]);
    server.launch();
    assert_eq!(server.wait_end(), Some(USAGE), "{}", server.log());
    let log = server.log();
    let smallest = log.split("what is asked for needs ").nth(1).and_then(|rest| rest.split(' ').next());
    let smallest: u64 = smallest.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{log}"));
    assert!((16 * MIB..256 * MIB).contains(&smallest), "{smallest}");
    server.set_bare_flags(&["--memory-limit-bytes", &smallest.to_string()]);
    server.resume();
    let mut client = connect(&server);
    for number in 0..200 {
        client.put(&key(0, number), &value(0, number)).expect("the smallest limit works");
    }
    assert_eq!(client.get(&key(0, 7)).expect("it reads").map(|item| item.value), Some(value(0, 7)));

    let node = ["node", "--memory-limit-bytes", "16MiB", "--listen-address", "127.0.0.1:0"];
    let data = folder.path().join("other");
    let data = ["--data-dir", data.to_str().expect("it is UTF-8"), "--http-address", "127.0.0.1:0"];
    assert_refused(
        &program::run(&[&node[..], &data[..]].concat()),
        USAGE,
        &["memory_limit_bytes", "at least"],
    );
}

/// Keys with each first character and a value of each length: where none fits, all is full.
const ROUND: u64 = 200;
/// As many are put side by side until the first one is refused.
const ROUND_WITH_ROOM: u64 = 1_000;

/// Puts all of these, and returns those that were not refused.
fn put_side_by_side(client: &mut Client, numbers: Range<u64>) -> Vec<u64> {
    let mut tickets = BTreeMap::new();
    for number in numbers {
        let (key, value) = (key(0, number), value(0, number));
        let put = Operation::Put { key: &key, value: &value, condition: Condition::Always };
        tickets.insert(client.submit(&put).expect("the queue has room"), number);
    }
    let mut fitted = Vec::new();
    while !tickets.is_empty() {
        let completion = client.poll(wait::PATIENCE).expect("each put ends");
        let number = tickets.remove(&completion.ticket).expect("a ticket completes once");
        match completion.outcome {
            Ok(_) => fitted.push(number),
            Err(error) => assert!(is_full(&error), "not what a full store says: {error} ({error:?})"),
        }
    }
    fitted
}

/// Gets all of these side by side: those that nobody serves take their whole deadline. How many are answered.
fn count_answered<'a>(client: &mut Client, numbers: impl Iterator<Item = &'a u64>) -> usize {
    let mut outstanding = 0;
    for number in numbers {
        client.submit(&Operation::Get { key: &key(0, *number) }).expect("the queue has room");
        outstanding += 1;
    }
    let outcomes = (0..outstanding).map(|_| client.poll(wait::PATIENCE).expect("each get ends").outcome);
    outcomes.filter(Result::is_ok).count()
}

/// Two nodes share what the control group has; both are full when one dies. The other has no memory for its
/// pairs: it says so, serves its own, and holds no more than it may.
#[test]
fn takeover_without_memory_is_declined_and_nothing_is_killed() {
    let Some(group) = ControlGroup::new(512 * MIB) else { return };
    let folder = TempDir::with_prefix("cell-memory-").expect("a temporary folder can be made");
    let flags = [&["--nodes=2", "--allow-drills"][..], &LONG_LEASE].concat();
    let mut server = Server::bare_with(&folder.path().join("data"), &flags);
    server.run_in(&group);
    server.resume();
    server.wait_healthy();
    let first = server.address().port();
    let servers = format!("127.0.0.1:{first},127.0.0.1:{}", first + 1);
    let options = ClientOptions { deadline_ms: 60_000, ..ClientOptions::default() };
    let mut client = Client::connect(&servers, options).expect("the server is there");
    let (mut kept, mut next, mut round) = (Vec::new(), 0, ROUND_WITH_ROOM);
    loop {
        let fitted = put_side_by_side(&mut client, next..next + round);
        if fitted.is_empty() {
            break;
        }
        next += round;
        if fitted.len() as u64 != round {
            round = ROUND;
        }
        kept.extend(fitted);
    }
    let survivor = server.view().process(0).expect("it runs");
    server.take_down(1);
    server.wait_view("declined", |view| {
        let declined = |row: &&serde_json::Value| {
            row["trouble"].as_str().is_some_and(|trouble| trouble.contains("bytes of memory"))
        };
        view.pairs().iter().any(|row| declined(&row))
    });
    let view = server.view();
    assert_eq!((view.process(0), group.kills()), (Some(survivor), Some(0)), "nobody was killed");
    signal(survivor, Signal::WINCH); // it is there
    let short = ClientOptions { deadline_ms: 3_000, ..ClientOptions::default() };
    let mut reader = Client::connect(&servers, short).expect("a survivor is there");
    assert!(count_answered(&mut reader, kept.iter().step_by(200)) > 0, "the survivor serves its own pairs");

    // Nothing new takes the memory that its pairs had: they all come back, though it was full.
    server.start_node(1);
    server.wait_view("served whole", |view| {
        // Full nodes say that they are: `read_only`.
        view.pairs().iter().all(|row| row["state"] == "serving" && row["trouble"].is_null())
    });
    for &number in kept.iter().step_by(29) {
        let item = client.get(&key(0, number)).expect("all are served");
        assert_eq!(item.map(|item| item.value), Some(value(0, number)), "{number}");
    }
    assert_eq!(group.kills(), Some(0));
}
