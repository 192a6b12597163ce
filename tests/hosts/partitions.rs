//! Faults of the network: hosts that are cut off, from all or from some, both ways or one; packets that are
//! lost or wait; hosts that are far from each other.

use std::time::Duration;

use cell_tests::hosts::{Hosts, StoreOptions};
use cell_tests::wait;

use super::{SHORT_LEASE_MS, Scene, WRITES, WRITES_TO_ALL, on_three_hosts, on_three_hosts_with};

/// Where etcd's members are asked.
const ETCD_PORT: u16 = 2379;
/// How long it takes from a host to another one, at least: as between towns.
const FAR: Duration = Duration::from_millis(5);

/// Of the first fault each survivor has pairs still, so that one cluster goes through both.
#[test]
fn host_that_is_cut_off_and_then_node_that_does_not_reach_etcd_are_taken_over() {
    on_three_hosts(SHORT_LEASE_MS, |scene| {
        host_is_cut_off(scene);
        node_does_not_reach_etcd(scene);
    });
}

/// It acknowledges nothing past its lease.
fn host_is_cut_off(scene: &Scene<'_>) {
    // etcd's leader: the others also elect meanwhile.
    let victim = scene.etcd.wait_leader();
    let begin = || scene.hosts.network().cut_off(victim);
    let end = || {
        scene.demand_silence(victim);
        scene.hosts.heal();
    };
    scene.taken_over("a host is cut off", victim, Some(victim), begin, end);
}

/// All reach it.
fn node_does_not_reach_etcd(scene: &Scene<'_>) {
    let victim = scene.busiest_of(scene.followers());
    let begin = || scene.hosts.host(victim).close_port(ETCD_PORT);
    let end = || scene.hosts.heal();
    scene.taken_over("a node does not reach etcd", victim, Some(victim), begin, end);
}

#[test]
fn host_that_is_heard_by_nobody_or_hears_nobody_acknowledges_nothing_past_its_lease() {
    on_three_hosts(SHORT_LEASE_MS, |scene| {
        let network = scene.hosts.network();
        let victim = scene.followers()[0];
        let end = |victim| {
            scene.demand_silence(victim);
            scene.hosts.heal();
        };
        let name = "what a host sends is lost";
        scene.taken_over(name, victim, Some(victim), || network.mute(victim), || end(victim));
        let victim = scene.busiest();
        let name = "what is sent to a host is lost";
        scene.taken_over(name, victim, Some(victim), || network.deafen(victim), || end(victim));
    });
}

#[test]
fn hosts_that_are_far_from_each_other_answer_all_and_take_over_from_one_that_is_cut_off() {
    let options = StoreOptions { lease_ms: SHORT_LEASE_MS, ..StoreOptions::default() };
    let far = |hosts: &Hosts| hosts.far(FAR);
    on_three_hosts_with(options, far, |scene, far| {
        let victim = scene.busiest();
        let begin = || scene.hosts.network().cut_off(victim);
        let end = || {
            scene.demand_silence(victim);
            scene.hosts.heal();
        };
        scene.taken_over("a host is cut off that is far from the others", victim, None, begin, end);
        let passed = far.passed();
        assert!(passed > WRITES, "{passed} pieces came by the long way");
    });
}

/// None of these cuts a host off from all others, so that one cluster goes through all of them.
#[test]
fn packets_that_are_lost_or_wait_and_hosts_that_do_not_hear_each_other_lose_nothing() {
    on_three_hosts(SHORT_LEASE_MS, |scene| {
        packets_are_lost_or_wait(scene);
        hosts_do_not_hear_each_other(scene);
    });
}

fn packets_are_lost_or_wait(scene: &Scene<'_>) {
    let network = scene.hosts.network();
    let victim = scene.followers()[0];
    scene.under_load("one packet of ten is lost", Some(victim), |traffic| {
        network.loss(victim, 10);
        traffic.wait_acknowledged(WRITES_TO_ALL);
        scene.hosts.heal();
    });
    scene.under_load("a host is sent 4 Mbit/s at most", Some(victim), |traffic| {
        network.slow(victim, 4_000);
        traffic.wait_acknowledged(WRITES_TO_ALL);
        scene.hosts.heal();
    });
}

/// The third host hears both.
fn hosts_do_not_hear_each_other(scene: &Scene<'_>) {
    let network = scene.hosts.network();
    let followers = scene.followers();
    scene.under_load("followers of etcd do not hear each other", Some(followers[0]), |traffic| {
        network.part(followers[0], followers[1]);
        traffic.wait_acknowledged(WRITES_TO_ALL);
        scene.hosts.heal();
    });
    let leader = scene.etcd.wait_leader();
    let other = scene.followers()[0];
    scene.under_load("etcd's leader and one other do not hear each other", Some(other), |traffic| {
        network.part(leader, other);
        let has_noticed = || scene.etcd.says(other, "etcd_server_has_leader 0") || !scene.etcd.leads(leader);
        wait::until("the member of etcd has noticed", has_noticed);
        traffic.wait_acknowledged(WRITES);
        scene.hosts.heal();
    });
    let name = "what one host sends to another is lost";
    scene.under_load(name, Some(followers[0]), |traffic| {
        network.drop_one_way(followers[0], followers[1]);
        traffic.wait_acknowledged(WRITES_TO_ALL);
        scene.hosts.heal();
    });
}
