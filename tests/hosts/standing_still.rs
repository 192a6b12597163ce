//! A node that stands still (SIGSTOP) while its host goes on.

use cell_tests::process;
use rustix::process::Signal;

use super::Scene;

/// It is taken over, and ends when it goes on.
pub(super) fn node_stands_still_past_its_lease(scene: &Scene<'_>) {
    let victim = scene.busiest();
    let node = scene.store.node(victim).expect("the node runs");
    let end = || {
        process::signal(node, Signal::CONT);
        process::wait_ended(&[node]);
    };
    scene.taken_over("a node stands still", victim, None, || process::stop(node), end);
}
