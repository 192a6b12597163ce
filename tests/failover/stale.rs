//! One-sided readers whose owner stands still past its lease, or is killed and back within it. Its memory can
//! be read on, and what is found there is what the keys were: nobody may believe it.

use cell_client::Transport;
use cell_tests::cluster::{View, signal, stop};
use cell_tests::server::Server;
use rustix::process::Signal;

use crate::board::{Board, Read};
use crate::{FLAGS, rounds};

const READERS: usize = 2;
/// Times that everybody goes over all keys before, during and after a fault.
const PASSES: u64 = 10;

/// What the readers of a run saw.
struct Seen {
    stale: Vec<String>,
    readers: Vec<Read>,
}

/// Has a board written and read while `fault` is done to the cluster.
fn under(server: &Server, transport: Transport, fault: impl Fn(&Server, &Board)) -> Seen {
    let board = Board::new(READERS);
    let readers = std::thread::scope(|scope| {
        let (board, at) = (&board, server.address());
        let writing = scope.spawn(move || board.write(at));
        let reading: Vec<_> =
            (1..=READERS).map(|reader| scope.spawn(move || board.read(at, reader, transport))).collect();
        for _ in 0..rounds() {
            server.wait_healthy();
            board.wait_passes(PASSES);
            fault(server, board);
        }
        board.stop();
        writing.join().expect("the writer did not panic");
        reading.into_iter().map(|reader| reader.join().expect("a reader did not panic")).collect()
    });
    Seen { stale: board.stale(), readers }
}

/// SIGSTOP until others serve all that it had and the keys have new values there, then SIGCONT.
fn stop_past_the_lease(server: &Server, board: &Board) {
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
    board.wait_passes(PASSES);
    signal(process, Signal::CONT);
    board.wait_passes(PASSES);
    // It finds its lease over and gives way to another process.
    server.wait_view("followed by another", |view| view.process(node) != Some(process));
}

/// `kill -9`; the process that follows is there at once, and must wait for what its predecessor has promised.
fn kill_within_the_lease(server: &Server, board: &Board) {
    let process = server.view().process(0).expect("it runs");
    signal(process, Signal::KILL);
    server.wait_view("back", |view| view.process(0).is_some_and(|now| now != process) && view.serves(0));
    board.wait_passes(PASSES);
}

fn stopped(transport: Transport) -> Seen {
    let server = Server::start_with(&[&["--nodes=3"], &FLAGS[..]].concat());
    under(&server, transport, stop_past_the_lease)
}

fn killed(transport: Transport) -> Seen {
    // Long enough for another process to be there within it, however busy the machine is.
    let server = Server::start_with(&[&["--lease-ms=2s"], &FLAGS[..]].concat());
    under(&server, transport, kill_within_the_lease)
}

fn assert_nothing_stale(seen: &Seen) {
    assert!(seen.stale.is_empty(), "{} stale reads: {:#?}", seen.stale.len(), seen.stale);
    for Read { reads, one_sided } in &seen.readers {
        assert!(one_sided.done * 2 > *reads, "most reads are one-sided: {one_sided:?} of {reads}");
        println!("{reads} reads, {one_sided:?}");
    }
}

#[test]
fn stop_past_the_lease_one_sided_readers_over_tcp_see_nothing_stale() {
    assert_nothing_stale(&stopped(Transport::Tcp));
}

#[test]
fn stop_past_the_lease_one_sided_readers_over_shared_memory_see_nothing_stale() {
    assert_nothing_stale(&stopped(Transport::Shm));
}

#[test]
fn kill_and_restart_within_the_lease_one_sided_readers_over_shared_memory_see_nothing_stale() {
    assert_nothing_stale(&killed(Transport::Shm));
}

/// The twins that must fail: the same runs by clients that believe a memory past its owner's lease.
#[cfg(cell_mutants)]
#[test]
fn mutant_that_believes_past_the_lease_is_caught() {
    use cell_terms::mutant::{Mutant, plant};
    plant(Some(Mutant::TrustUnchecked));
    for transport in [Transport::Tcp, Transport::Shm] {
        assert!(!stopped(transport).stale.is_empty(), "{transport:?}: nobody read anything stale");
    }
    plant(None);
}
