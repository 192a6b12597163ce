//! Power cuts of whole hosts: node, member of etcd and clients end at once, and nobody hears of it.

use super::{SHORT_LEASE_MS, on_three_hosts};

#[test]
fn host_without_power_is_taken_over_and_comes_back() {
    on_three_hosts(SHORT_LEASE_MS, |scene| {
        // etcd's leader dies with it.
        let victim = scene.etcd.wait_leader();
        let host = scene.hosts.host(victim);
        let end = || {
            host.start_again();
            scene.etcd.start_member(victim);
            scene.store.start_node(victim);
        };
        scene.taken_over("a host has no power", victim, None, || host.cut(), end);
    });
}
