//! Processes that stand still (SIGSTOP) while their host goes on.

use cell_tests::process;
use cell_tests::wait;
use rustix::process::Signal;

use super::{LONG_LEASE_MS, SHORT_LEASE_MS, WRITES_TO_ALL, on_three_hosts};

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

#[test]
fn member_of_etcd_that_stands_still_ends_no_node() {
    on_three_hosts(LONG_LEASE_MS, |scene| {
        let follower = scene.followers()[0];
        scene.nothing_ends("a follower of etcd stands still", |traffic| {
            scene.etcd.stop(follower);
            traffic.wait_acknowledged(WRITES_TO_ALL);
            scene.etcd.cont(follower);
        });
        let leader = scene.etcd.wait_leader();
        scene.nothing_ends("etcd's leader stands still", |traffic| {
            scene.etcd.stop(leader);
            let leads = || scene.hosts.numbers().any(|member| member != leader && scene.etcd.leads(member));
            wait::until("another member of etcd leads", leads);
            traffic.wait_acknowledged(WRITES_TO_ALL);
            scene.etcd.cont(leader);
        });
    });
}
