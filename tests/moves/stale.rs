//! One-sided readers whose pair moves away while its source stands still: its memory can be read on, and what
//! is found there is what the keys were before they had new values at the target.

use cell_client::Transport;
use cell_tests::cluster::View;
use cell_tests::server::Server;

use crate::failover::board::Board;
use crate::failover::stale::{PASSES, assert_nothing_stale, under};
use crate::moves::{Ends, SLOW, Stage, cluster, fill, hold, move_and_wait};

/// The source stands still from before the copy is ready on, goes on for the handing alone, and stands still
/// again until the keys have new values at the target. Then the pair goes back to where its readers knew it.
fn source_stands_still_across_the_handing(server: &Server, board: &Board) {
    let mut held = hold(server, 0, Stage::Handed);
    let (ends, [source, target]) = (held.ends, held.processes);
    held.stop(source);
    held.go_on(target);
    let moved = |view: &View| view.is_served(ends.pair) && view.pair(ends.pair)["node"] == ends.target;
    server.wait_view("served by its target", moved);
    board.wait_written(PASSES);
    board.wait_moved(PASSES);
    held.go_on(source);
    board.wait_passes(PASSES);
    server.wait_healthy();
    move_and_wait(server, &Ends { source: ends.target, target: ends.source, ..ends });
    board.wait_passes(PASSES);
}

#[test]
fn source_that_stands_still_across_the_handing_is_not_believed_over_shm_and_tcp() {
    let server = cluster("--nodes=3", &SLOW);
    fill(&server);
    for transport in [Transport::Shm, Transport::Tcp] {
        assert_nothing_stale(&under(&server, transport, source_stands_still_across_the_handing));
    }
}
