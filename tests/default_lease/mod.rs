//! The lease of a user who sets none, half a second, and faults that last longer. A busy machine takes such a
//! lease from a node now and then: these tests have the machine for themselves (`.config/nextest.toml`). All
//! others with several nodes set a lease that a busy machine leaves them, `cell_tests::lease::LONG_LEASE`.

use std::time::Duration;

use cell_client::Transport;

use crate::drills::{FAULTS, three_nodes_pass};
use crate::failover::coordinator::nothing_is_lost_while_the_coordinator_stands_still;
use crate::failover::stale::{assert_nothing_stale, stopped};

const LEASE: Duration = Duration::from_millis(500);

#[test]
fn drills_of_every_fault_on_three_nodes_pass() {
    three_nodes_pass(FAULTS.len(), &[], LEASE);
}

#[test]
fn stop_past_the_lease_one_sided_readers_over_shared_memory_see_nothing_stale() {
    assert_nothing_stale(&stopped(Transport::Shm, &[]));
}

#[test]
fn coordinator_that_stands_still_past_the_leases_nothing_more_is_acknowledged_and_nothing_lost() {
    nothing_is_lost_while_the_coordinator_stands_still(&[], LEASE);
}
