//! Pairs move under clients that write and read one-sided: no operation fails, each has its place in one
//! order.

use std::time::Duration;

use cell_client::Transport;
use cell_tests::server::Server;
use cell_tests::traffic::Traffic;
use cell_tests::wait;

use crate::moves::{Ends, assert_sound, cluster, move_and_wait};

/// What clients do while pairs move. Beside them is one that keeps a ledger.
pub(super) struct Load {
    /// Clients that meet on shared keys: half of them search themselves.
    meeting: u64,
    /// How long each operation is tried. One that is not done by then has failed.
    patience: Duration,
    /// Writes between two moves.
    writes_min: u64,
    /// The writer waits for each answer, too.
    one_by_one: bool,
}

/// As much as they can do.
const FULL: Load = Load { meeting: 4, patience: Duration::from_secs(60), writes_min: 100, one_by_one: false };
/// What leaves an emulated machine time for something else: with [`FULL`] its clients were all that it did,
/// no node answered the command that was to move a pair, and clients lost their connections.
pub(super) const LIGHT: Load =
    Load { meeting: 2, patience: wait::PATIENCE, writes_min: 20, one_by_one: true };

/// So many moves, one after the other, of the pairs in turn.
pub(super) fn pairs_move(server: &Server, transport: Transport, load: &Load, moves: usize) {
    let traffic = Traffic::new(server.address()).over(transport);
    let traffic = if load.one_by_one { traffic.one_by_one() } else { traffic };
    let (ledger, counters) = traffic.during(load.meeting, load.patience, || {
        for number in 0..moves {
            traffic.wait_acknowledged(load.writes_min);
            move_and_wait(server, &Ends::of(&server.view(), number));
        }
        traffic.wait_acknowledged(load.writes_min);
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
        pairs_move(&server, transport, &FULL, 3);
    }
    assert_sound(&server);
}
