//! Members of etcd that are killed or stand still (SIGSTOP): its leader, a follower, and so many that it has
//! no quorum.

use cell_tests::wait;

use super::{LONG_LEASE_MS, Scene, WRITES_TO_ALL, on_three_hosts};

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

/// Waits until one member leads and all others follow it: right after a fault some may not yet.
fn wait_whole(scene: &Scene<'_>) {
    let all = scene.hosts.numbers().count();
    wait::until("all members of etcd follow one", || {
        let count =
            |line: &str| scene.hosts.numbers().filter(|member| scene.etcd.says(*member, line)).count();
        count("etcd_server_has_leader 1") == all && count("etcd_server_is_leader 1") == 1
    });
}

/// Each fault leaves nodes and pairs as they were, so that one cluster goes through all of them.
#[test]
fn leader_that_is_killed_or_stands_still_and_quorum_away_within_the_leases_end_no_node() {
    on_three_hosts(LONG_LEASE_MS, |scene| {
        for fault in [follower_stands_still, leader_stands_still, quorum_is_away, leader_is_killed] {
            wait_whole(scene);
            fault(scene);
        }
    });
}

fn follower_stands_still(scene: &Scene<'_>) {
    let follower = scene.followers()[0];
    scene.nothing_ends("a follower of etcd stands still", |traffic| {
        scene.etcd.stop(follower);
        traffic.wait_acknowledged(WRITES_TO_ALL);
        scene.etcd.cont(follower);
    });
}

fn leader_stands_still(scene: &Scene<'_>) {
    let leader = scene.etcd.wait_leader();
    scene.nothing_ends("etcd's leader stands still", |traffic| {
        scene.etcd.stop(leader);
        let leads = || scene.hosts.numbers().any(|member| member != leader && scene.etcd.leads(member));
        wait::until("another member of etcd leads", leads);
        traffic.wait_acknowledged(WRITES_TO_ALL);
        scene.etcd.cont(leader);
    });
}

fn quorum_is_away(scene: &Scene<'_>) {
    scene.nothing_ends("etcd has no quorum for less than a lease", |_| {
        let (followers, from) = (scene.followers(), lengths(scene));
        followers.iter().for_each(|member| scene.etcd.stop(*member));
        wait_all_say(scene, &from, "the lease was not renewed");
        followers.iter().for_each(|member| scene.etcd.cont(*member));
    });
}

fn leader_is_killed(scene: &Scene<'_>) {
    let leader = scene.etcd.wait_leader();
    scene.nothing_ends("etcd's leader is killed", |traffic| {
        scene.etcd.kill(leader);
        scene.etcd.wait_leader();
        traffic.wait_acknowledged(WRITES_TO_ALL);
        scene.etcd.start_member(leader);
    });
}

/// Nodes fence themselves, nobody takes anything over, and when etcd is back they serve on from memory.
pub(super) fn quorum_is_away_past_the_leases(scene: &Scene<'_>) {
    scene.nothing_ends("etcd has no quorum for longer than a lease", |_| {
        let (followers, from) = (scene.followers(), lengths(scene));
        followers.iter().for_each(|member| scene.etcd.kill(*member));
        wait_all_say(scene, &from, "the lease has run out");
        scene.hosts.numbers().for_each(|host| scene.demand_silence(host));
        followers.iter().for_each(|member| scene.etcd.start_member(*member));
        wait_all_say(scene, &from, "the lease holds again");
    });
}
