//! The same over RDMA, on a device that the machine has: in `tests/rdma-vm`, or on hardware.

use cell_client::Transport;
use cell_tests::lease::LONG_LEASE;
use cell_tests::rdma::{SMALL, is_there};
use cell_tests::server::Server;

use crate::moves::load;

#[test]
fn pairs_move_under_load_over_rdma_and_no_operation_fails() {
    if is_there() {
        let server = Server::start_with(
            &[&SMALL[..], &LONG_LEASE, &["--nodes=2", "--allow-drills", "--balance=off"]].concat(),
        );
        server.wait_healthy();
        load::pairs_move(&server, Transport::Verbs, 2);
    }
}
