//! A node that stands still (SIGSTOP) while its host goes on.

use cell_tests::process;
use rustix::process::Signal;

use super::{SHORT_LEASE_MS, on_three_hosts};

#[test]
fn node_that_stands_still_past_its_lease_is_taken_over_and_ends_when_it_goes_on() {
    on_three_hosts(SHORT_LEASE_MS, |scene| {
        let victim = scene.busiest();
        let node = scene.store.node(victim).expect("the node runs");
        let end = || {
            process::signal(node, Signal::CONT);
            process::wait_ended(&[node]);
        };
        scene.taken_over("a node stands still", victim, None, || process::stop(node), end);
    });
}
