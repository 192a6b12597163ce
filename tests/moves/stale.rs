//! One-sided readers whose pair moves away while its source stands still: its memory can be read on, and what
//! is found there is what the keys were before they had new values at the target.

use cell_client::Transport;
use cell_tests::cluster::View;
use cell_tests::server::Server;
use cell_tests::wait;
use serde_json::Value;

use crate::failover::board::Board;
use crate::failover::stale::{PASSES, Seen, assert_nothing_stale, assert_nothing_stale_of, under};
use crate::moves::{
    Ends, FLAGS, Held, SIZES, SLOW, Stage, TRIES_MAX, cluster, fill, hold, is_over, move_and_wait,
};

/// Ends stand still within it for as long as a slow machine takes to write and read.
pub(super) const LEASE: [&str; 2] = ["--lease-ms=60s", "--coordinator-deadline-ms=5s"];

/// The source stands still from before the copy is ready on, goes on for the handing alone, and stands still
/// again until the keys have new values at the target. Then the pair goes back to where its readers knew it.
fn source_stands_still_across_the_handing(server: &Server, board: &Board) {
    stand_still(server, board, hold(server, 0, Stage::Handed), PASSES);
}

/// From the handing on, with everybody going over all keys so many times.
fn stand_still(server: &Server, board: &Board, mut held: Held, passes: u64) {
    let (ends, [source, target]) = (held.ends, held.processes);
    held.stop(source);
    held.go_on(target);
    let moved = |view: &View| view.is_served(ends.pair) && view.pair(ends.pair)["node"] == ends.target;
    server.wait_view("served by its target", moved);
    board.wait_written(passes);
    board.wait_moved(passes);
    held.go_on(source);
    board.wait_passes(passes);
    server.wait_healthy();
    move_and_wait(server, &back(&ends));
    board.wait_passes(passes);
}

/// The move that brings the pair back.
fn back(ends: &Ends) -> Ends {
    Ends { source: ends.target, target: ends.source, ..*ends }
}

/// Readers of two nodes, of which the source stands still from the handing on and has no pair then. Trust is
/// long: so is the time for which the source waits it out, and within which its target can be stopped.
pub(super) fn seen_between_two_nodes(server: &Server, transport: Transport, passes: u64) -> Seen {
    under(server, transport, passes, |server, board| {
        stand_still(server, board, hold_by_trust(server), passes);
    })
}

/// Begins moves of the first pair until one has been handed over to a target that stands still.
fn hold_by_trust(server: &Server) -> Held {
    for _ in 0..TRIES_MAX {
        let view = server.wait_healthy();
        let ends = Ends::of(&view, 0);
        let mut held = Held { ends, processes: ends.processes(&view), stopped: Vec::new() };
        if is_handed_to_who_stands_still(server, &mut held) {
            return held;
        }
        drop(held);
        server.wait_move(ends.asked, ends.pair, "over", is_over);
        if server.wait_healthy().pair(ends.pair)["node"] == ends.target {
            move_and_wait(server, &back(&ends));
        }
    }
    panic!("no move of {TRIES_MAX} was handed over to a target that stood still");
}

fn is_handed_to_who_stands_still(server: &Server, held: &mut Held) -> bool {
    let (Ends { pair, target, asked, .. }, [_, target_process]) = (held.ends, held.processes);
    let Some(number) = begin(server, &held.ends) else { return false };
    let is_its = |of: &Value| of["number"] == number;
    let is_ready = |of: &Value| of["stage"] == "ready";
    let of = server.wait_move(asked, pair, "ready or over", |of| is_its(of) && (is_ready(of) || is_over(of)));
    if is_over(&of) {
        return false;
    }
    held.stop(target_process);
    // It may have served the pair before. Or its copy is not ready any more, and it is waited for.
    let goes_on = |of: &Value| is_its(of) && !is_over(of) && (is_ready(of) || of["stage"] == "handed");
    wait::until_some("handed over, or not to be", || {
        let view = server.view();
        if view.pair(pair)["node"] == target {
            return Some(!view.is_served(pair));
        }
        server.move_of(asked, pair).is_some_and(|of| !goes_on(&of)).then_some(false)
    })
}

/// Begins a move; its number, if it is not over by the time that anybody knows it. A node that has much to do
/// answers late, or not at all.
fn begin(server: &Server, ends: &Ends) -> Option<Value> {
    let Ends { pair, target, asked, .. } = *ends;
    wait::until_some("the move has started", || match server.try_move(asked, pair, target) {
        Some((200, answer)) => Some(Some(answer["move"]["number"].clone())),
        _ if server.view().pair(pair)["node"] == target => Some(None),
        _ => {
            let under_way = server.move_of(asked, pair).filter(|of| !is_over(of));
            under_way.map(|of| Some(of["number"].clone()))
        }
    })
}

#[test]
fn source_that_stands_still_across_the_handing_is_not_believed_over_shm_and_tcp() {
    let server = cluster("--nodes=3", &SLOW);
    fill(&server);
    for transport in [Transport::Shm, Transport::Tcp] {
        let seen = under(&server, transport, PASSES, source_stands_still_across_the_handing);
        assert_nothing_stale(&seen);
    }
}

/// As over RDMA (`rdma.rs`), where a machine has no device. While a move is `ready`, three seconds by this
/// trust, half of the keys are read by messages.
#[test]
fn source_of_two_nodes_that_stands_still_from_the_handing_on_is_not_believed_over_shm() {
    let more = ["--nodes=2", "--trust-max-ms=2s"];
    let server = Server::start_with(&[&SIZES[..], &FLAGS, &LEASE, &more].concat());
    assert_nothing_stale_of(&seen_between_two_nodes(&server, Transport::Shm, PASSES), 4);
}
