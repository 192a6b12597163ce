//! Power cuts of whole hosts: node, member of etcd and clients end at once, and nobody hears of it.

use super::etcd_lost::quorum_is_away_past_the_leases;
use super::standing_still::node_stands_still_past_its_lease;
use super::{SHORT_LEASE_MS, Scene, on_three_hosts};

/// One cluster goes through all of it: without quorum nodes and pairs stay as they were, and when a host has
/// no power each survivor has pairs still.
#[test]
fn quorum_that_is_away_host_without_power_and_node_that_stands_still_lose_nothing() {
    on_three_hosts(SHORT_LEASE_MS, |scene| {
        quorum_is_away_past_the_leases(scene);
        host_has_no_power(scene);
        node_stands_still_past_its_lease(scene);
    });
}

/// It is taken over, and comes back.
fn host_has_no_power(scene: &Scene<'_>) {
    // etcd's leader dies with it.
    let victim = scene.etcd.wait_leader();
    let host = scene.hosts.host(victim);
    let end = || {
        host.start_again();
        scene.etcd.start_member(victim);
        scene.store.start_node(victim);
    };
    scene.taken_over("a host has no power", victim, None, || host.cut(), end);
}
