//! The same over RDMA, on a device that the machine has: in `tests/rdma-vm`, or on hardware.

use cell_client::Transport;
use cell_tests::lease::LONG_LEASE;
use cell_tests::rdma::{SMALL, is_there};
use cell_tests::server::Server;

use crate::failover::stale::assert_nothing_stale_of;
use crate::moves::{FLAGS, load, stale};

/// Times that everybody goes over all keys: an emulated machine takes seconds for one.
const PASSES: u64 = 3;

#[test]
fn pairs_move_under_load_over_rdma_and_no_operation_fails() {
    if is_there() {
        let server = Server::start_with(
            &[&SMALL[..], &LONG_LEASE, &["--nodes=2", "--allow-drills", "--balance=off"]].concat(),
        );
        server.wait_healthy();
        load::pairs_move(&server, Transport::Verbs, &load::LIGHT, 2);
    }
}

/// The device goes on answering for a process that stands still. While the move is `ready`, seven and a half
/// seconds by this trust, the pair is read by messages, so that one read in five is asked to be one-sided. A
/// copy that has not come to the log's end for a second meanwhile is ready no more, and all of that begins
/// anew: the longer the trust, the more often on a machine that is slow.
#[test]
fn source_that_stands_still_across_the_handing_is_not_believed_over_rdma() {
    if is_there() {
        let more = ["--nodes=2", "--trust-max-ms=5s"];
        let server = Server::start_with(&[&SMALL[..], &FLAGS, &stale::LEASE, &more].concat());
        let seen = stale::seen_between_two_nodes(&server, Transport::Verbs, PASSES);
        assert_nothing_stale_of(&seen, 5);
    }
}
