//! One-sided readers whose owner stands still past its lease, or is killed and back within it. Its memory can
//! be read on, and what is found there is what the keys were: nobody may believe it.

use cell_client::{Client, ClientOptions, Transport};
use cell_tests::cluster::View;
use cell_tests::lease::LONG_LEASE;
use cell_tests::process::{signal, stop};
use cell_tests::server::Server;
use rustix::process::Signal;

use crate::failover::board::{Board, Read};
use crate::failover::promise::{now, promised_until};
use crate::failover::{FLAGS, rounds};

const READERS: usize = 2;
/// Times that everybody goes over all keys before, during and after a fault.
pub(crate) const PASSES: u64 = 10;

/// What the readers of a run saw.
pub(crate) struct Seen {
    stale: Vec<String>,
    readers: Vec<Read>,
}

/// Has a board written and read while `fault` is done to the cluster, once everybody has gone over all keys
/// so many times.
pub(crate) fn under(
    server: &Server,
    transport: Transport,
    passes: u64,
    fault: impl Fn(&Server, &Board),
) -> Seen {
    let board = Board::new(READERS);
    let readers = std::thread::scope(|scope| {
        let (board, at) = (&board, server.address());
        let writing = scope.spawn(move || board.write(at));
        let reading: Vec<_> =
            (1..=READERS).map(|reader| scope.spawn(move || board.read(at, reader, transport))).collect();
        let ending = board.ending();
        for _ in 0..rounds() {
            server.wait_healthy();
            board.wait_passes(passes);
            fault(server, board);
        }
        drop(ending);
        writing.join().expect("the writer did not panic");
        reading.into_iter().map(|reader| reader.join().expect("a reader did not panic")).collect()
    });
    Seen { stale: board.stale(), readers }
}

/// Two stops: when the old owner wakes up, a reader has gone to the new one, or all may wait for it still.
fn stop_past_the_lease(server: &Server, board: &Board) {
    stop_until(server, board, Board::wait_moved);
    if !board.stale().is_empty() {
        return;
    }
    server.wait_healthy();
    board.wait_passes(PASSES);
    stop_until(server, board, Board::wait_written);
}

/// SIGSTOP until others serve all that it had and the keys have new values there, then SIGCONT.
fn stop_until(server: &Server, board: &Board, passed: fn(&Board, u64)) {
    let before = server.view();
    let node = before.busiest();
    let process = before.process(node).expect("it runs");
    let had = &before.owned()[&node];
    assert!(!had.is_empty(), "{before:?}");
    stop(process);
    let moved = |view: &View| {
        let elsewhere = |pair: &u64| view.pair(*pair)["node"] != node && view.is_served(*pair);
        had.iter().all(elsewhere)
    };
    server.wait_view("taken over", moved);
    passed(board, PASSES);
    signal(process, Signal::CONT);
    board.wait_passes(PASSES);
    if board.stale().is_empty() {
        // It finds its lease over and gives way to another process.
        server.wait_view("followed by another", |view| view.process(node) != Some(process));
    }
}

/// `kill -9`; the process that follows is there at once, and acknowledges nothing before all that its
/// predecessor promised is over.
fn kill_within_the_lease(server: &Server, board: &Board) {
    let process = server.view().process(0).expect("it runs");
    let options = ClientOptions { deadline_ms: 60_000, ..ClientOptions::default() };
    let mut heir = Client::connect(&server.address().to_string(), options).expect("the server is there");
    heir.put(b"heir", b"before").expect("it is served");
    let promised = promised_until(server.address());
    signal(process, Signal::KILL);
    heir.put(b"heir", b"after").expect("it is served again");
    let early = promised.saturating_duration_since(now());
    assert!(early.is_zero(), "a write is acknowledged {early:?} before the promise of the dead process ends");
    server.wait_view("back", |view| view.process(0).is_some_and(|now| now != process) && view.serves(0));
    board.wait_passes(PASSES);
}

/// Readers over this transport, of a cluster of three nodes with these flags one of which is stopped.
pub(crate) fn stopped(transport: Transport, flags: &[&str]) -> Seen {
    let server = Server::start_with(&[&["--nodes=3"], &FLAGS[..], flags].concat());
    under(&server, transport, PASSES, stop_past_the_lease)
}

fn killed(transport: Transport) -> Seen {
    // Long enough for another process to be there within it, however busy the machine is.
    let server = Server::start_with(&[&FLAGS[..], &LONG_LEASE].concat());
    under(&server, transport, PASSES, kill_within_the_lease)
}

pub(crate) fn assert_nothing_stale(seen: &Seen) {
    assert_nothing_stale_of(seen, 2);
}

/// Nothing that was read was stale, and more than one of so many reads was one-sided.
pub(crate) fn assert_nothing_stale_of(seen: &Seen, of: u64) {
    assert!(seen.stale.is_empty(), "stale reads, the first ones: {:#?}", seen.stale);
    for Read { reads, one_sided } in &seen.readers {
        assert!(one_sided.done * of > *reads, "one of {of} reads is one-sided: {one_sided:?} of {reads}");
        println!("{reads} reads, {one_sided:?}");
    }
}

#[test]
fn stop_past_the_lease_one_sided_readers_over_tcp_see_nothing_stale() {
    assert_nothing_stale(&stopped(Transport::Tcp, &LONG_LEASE));
}

#[test]
fn stop_past_the_lease_one_sided_readers_over_shared_memory_see_nothing_stale() {
    assert_nothing_stale(&stopped(Transport::Shm, &LONG_LEASE));
}

#[test]
fn kill_and_restart_within_the_lease_one_sided_readers_over_shared_memory_see_nothing_stale() {
    assert_nothing_stale(&killed(Transport::Shm));
}

/// The twin that must fail: the same run by clients that believe a memory past its owner's lease.
#[cfg(debug_assertions)]
#[test]
fn mutant_that_believes_past_the_lease_is_caught() {
    cell_terms::mutant::in_own_process(|| {
        use cell_terms::mutant::{Mutant, plant};
        plant(Some(Mutant::TrustUnchecked));
        // Over TCP nobody answers for a process that stands still, and one that wakes up ends at once.
        let seen = stopped(Transport::Shm, &LONG_LEASE);
        plant(None);
        assert!(!seen.stale.is_empty(), "nobody read anything stale");
    });
}
