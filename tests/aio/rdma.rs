//! The same over RDMA, on a device that the machine has: in `tests/rdma-vm`, or on hardware.

use std::time::Duration;

use cell_client::{Search, Transport};
use cell_tests::rdma::{SMALL, is_there};
use cell_tests::server::Server;

use crate::aio::calls;

/// One after the other on one server: an emulated machine takes its time to start one.
#[test]
fn futures_and_streams_over_rdma_do_what_they_do_elsewhere() {
    if !is_there() {
        return;
    }
    let (server, verbs) = (Server::start_with(&SMALL), Transport::Verbs);
    calls::every_operation_by_each_search(&server, verbs);
    calls::increments_count_once(&server, verbs, 12, 4);
    calls::dropped_puts_are_overwritten(&server, verbs, 60, Duration::from_millis(20));
    calls::dropped_reads_leave_nothing_behind(&server, verbs, 24);
    calls::waiters_for_room_are_woken(&server, verbs, 10);
    calls::close_says_what_is_known_of_what_is_outstanding(&server, verbs);
    for search in [Search::Server, Search::Client] {
        calls::scans_broken_off_go_on(&server, verbs, search, &[1, 8, 1000]);
    }
}
