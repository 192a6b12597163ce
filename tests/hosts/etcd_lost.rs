//! Members of etcd that are killed: its leader, and so many that it has no quorum.

use cell_tests::wait;

use super::{LONG_LEASE_MS, SHORT_LEASE_MS, Scene, WRITES_TO_ALL, on_three_hosts};

/// Waits until the log of each node, from where it was, has these words.
fn wait_all_say(scene: &Scene<'_>, from: &[usize], words: &str) {
    for (host, from) in scene.hosts.numbers().zip(from) {
        wait::until(&format!("the node of host {host} says `{words}`"), || {
            scene.store.log(host).get(*from..).is_some_and(|said| said.contains(words))
        });
    }
}

/// How long the log of each node is.
fn lengths(scene: &Scene<'_>) -> Vec<usize> {
    scene.hosts.numbers().map(|host| scene.store.log(host).len()).collect()
}

#[test]
fn leader_of_etcd_is_killed_and_nobody_notices() {
    on_three_hosts(LONG_LEASE_MS, |scene| {
        let leader = scene.etcd.wait_leader();
        scene.nothing_ends("etcd's leader is killed", |traffic| {
            scene.etcd.kill(leader);
            scene.etcd.wait_leader();
            traffic.wait_acknowledged(WRITES_TO_ALL);
            scene.etcd.start_member(leader);
        });
    });
}

#[test]
fn quorum_away_within_the_leases_ends_nobody() {
    on_three_hosts(LONG_LEASE_MS, |scene| {
        scene.nothing_ends("etcd has no quorum for less than a lease", |_| {
            let (followers, from) = (scene.followers(), lengths(scene));
            followers.iter().for_each(|member| scene.etcd.stop(*member));
            wait_all_say(scene, &from, "the lease was not renewed");
            followers.iter().for_each(|member| scene.etcd.cont(*member));
        });
    });
}

/// Nodes fence themselves, nobody takes anything over, and when etcd is back they serve on from memory.
#[test]
fn quorum_away_past_the_leases_all_nodes_are_silent_and_none_is_taken_over() {
    on_three_hosts(SHORT_LEASE_MS, |scene| {
        scene.nothing_ends("etcd has no quorum for longer than a lease", |_| {
            let (followers, from) = (scene.followers(), lengths(scene));
            followers.iter().for_each(|member| scene.etcd.kill(*member));
            wait_all_say(scene, &from, "the lease has run out");
            scene.hosts.numbers().for_each(|host| scene.demand_silence(host));
            followers.iter().for_each(|member| scene.etcd.start_member(*member));
            wait_all_say(scene, &from, "the lease holds again");
        });
    });
}
