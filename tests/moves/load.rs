//! Pairs move under clients that write and read one-sided: no operation fails, each has its place in one
//! order.

use std::time::Duration;

use cell_client::Transport;
use cell_tests::server::Server;
use cell_tests::traffic::Traffic;

use crate::moves::{Ends, assert_sound, cluster, move_and_wait};

/// Clients that meet on shared keys: half of them search themselves.
const MEETING: u64 = 4;
/// How long each operation is tried. One that is not done by then has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Writes between two moves.
const WRITES_MIN: u64 = 100;

/// So many moves, one after the other, of the pairs in turn.
pub(super) fn pairs_move(server: &Server, transport: Transport, moves: usize) {
    let traffic = Traffic::new(server.address()).over(transport);
    let (ledger, counters) = traffic.during(MEETING, PATIENCE, || {
        for number in 0..moves {
            traffic.wait_acknowledged(WRITES_MIN);
            move_and_wait(server, &Ends::of(&server.view(), number));
        }
        traffic.wait_acknowledged(WRITES_MIN);
    });
    assert_eq!(traffic.failed(), 0, "no operation fails");
    assert!(counters.done > 0, "{counters:?}");
    let keys = traffic.verify(&ledger);
    let operations = traffic.check_history();
    println!("{transport:?}, {moves} moves: {keys} keys, {operations} operations checked; {counters:?}");
}

#[test]
fn pairs_move_under_load_over_shm_and_tcp_and_no_operation_fails() {
    let server = cluster("--nodes=3", &[]);
    for transport in [Transport::Shm, Transport::Tcp] {
        pairs_move(&server, transport, 3);
    }
    assert_sound(&server);
}
