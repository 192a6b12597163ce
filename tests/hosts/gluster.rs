//! A log root on GlusterFS, with a copy on each of three hosts: docs/LOG-ROOT.md says what is relied on.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use cell_tests::hosts::{Etcd, EtcdOptions, Gluster, Hosts, Store, StoreOptions};
use cell_tests::wait;

use super::{Scene, WRITES_TO_ALL};

/// What etcd has by default: its members share their disks with the bricks.
const LEASE_MS: u64 = 5_000;
/// Files that one host makes and another one reads.
const ROUNDS: u8 = 20;
const BLOCK: usize = 4096;
/// What a node says when a sync takes long.
const STANDS: &str = "the disk of the logs does not answer";
/// What a node says when a write of a log has failed.
const FAILED: &str = "the log failed: this node gives its pair up";

/// Starts three hosts, GlusterFS, etcd and nodes whose log root it is, and does something with them, unless
/// this machine lacks what it takes.
fn on_gluster(what: impl FnOnce(&Scene<'_>, &Gluster<'_>)) {
    let Some(hosts) = Hosts::start(3) else { return };
    let Some(gluster) = Gluster::start(&hosts) else { return };
    let flags = ["--heartbeat-interval=100", "--election-timeout=1000"].map(str::to_owned).to_vec();
    let Some(etcd) = Etcd::start(&hosts, EtcdOptions { tls: true, flags }) else { return };
    let log_root = Some(gluster.log_root());
    let options = StoreOptions { lease_ms: LEASE_MS, log_root, ..StoreOptions::default() };
    let store = Store::start(&hosts, &etcd, options);
    what(&Scene { hosts: &hosts, etcd: &etcd, store: &store }, &gluster);
}

/// How long the log of each node is, by its host.
fn lengths(scene: &Scene<'_>) -> Vec<(u16, usize)> {
    scene.hosts.numbers().map(|host| (host, scene.store.log(host).len())).collect()
}

/// Waits until some node has said this, from where its log was.
fn wait_said(scene: &Scene<'_>, from: &[(u16, usize)], words: &str) {
    wait::until(&format!("a node says `{words}`"), || {
        let says = |(host, from): &(u16, usize)| {
            scene.store.log(*host).get(*from..).is_some_and(|said| said.contains(words))
        };
        from.iter().any(says)
    });
}

/// One cluster goes through all of it, because GlusterFS takes long to start. The loss of one copy comes
/// first: all three are whole again afterwards.
#[test]
fn log_root_is_served_without_one_copy_and_acknowledges_nothing_without_two() {
    on_gluster(|scene, gluster| {
        let victim = scene.busiest();
        take_over_from_the_other_copies(scene, gluster, victim);
        // Without this copy the one that has healed is one of the two that it takes.
        let other = scene.hosts.numbers().find(|number| *number != victim).expect("there are three hosts");
        serve_on_without_one_copy(scene, gluster, other);
        completed_writes_are_seen_at_another_host(scene, gluster);
        reads_go_on_until_a_write_fails(scene, gluster);
        nothing_is_acknowledged_without_two_copies(scene, gluster);
    });
}

/// A host has no power: its copy heals when it is back.
fn take_over_from_the_other_copies(scene: &Scene<'_>, gluster: &Gluster<'_>, victim: u16) {
    let host = scene.hosts.host(victim);
    let end = || {
        host.start_again();
        gluster.start_host(victim);
        scene.etcd.start_member(victim);
        scene.store.start_node(victim);
    };
    let name = "a host with a copy of the logs has no power";
    scene.taken_over(name, victim, None, || host.cut(), end);
    gluster.wait_healed();
}

fn serve_on_without_one_copy(scene: &Scene<'_>, gluster: &Gluster<'_>, other: u16) {
    scene.nothing_ends("a copy of the logs stands still, and ends", |traffic| {
        let from = lengths(scene);
        gluster.stop_brick(other);
        wait_said(scene, &from, STANDS);
        gluster.cont_brick(other);
        traffic.wait_acknowledged(WRITES_TO_ALL);
        gluster.kill_brick(other);
        traffic.wait_acknowledged(WRITES_TO_ALL);
        gluster.start_bricks();
    });
    gluster.wait_healed();
}

/// With one copy of three nothing is written, and nothing is read either, because it may be behind.
fn nothing_is_acknowledged_without_two_copies(scene: &Scene<'_>, gluster: &Gluster<'_>) {
    scene.under_load("two copies of three end", None, |_| {
        let from = lengths(scene);
        end_two_copies(scene, gluster);
        wait_said(scene, &from, FAILED);
        scene.hosts.numbers().for_each(|host| scene.demand_silence(host));
        gluster.start_bricks();
    });
}

fn end_two_copies(scene: &Scene<'_>, gluster: &Gluster<'_>) {
    scene.hosts.numbers().skip(1).for_each(|host| gluster.kill_brick(host));
    wait::until("no host reaches two copies", || scene.hosts.numbers().all(|host| !gluster.is_served(host)));
}

/// What a recovery relies on: names, lengths and bytes are at another host what they are where they were
/// made, as soon as that has returned. `cell doctor` says so, too.
fn completed_writes_are_seen_at_another_host(scene: &Scene<'_>, gluster: &Gluster<'_>) {
    let (here, there) = (scene.hosts.host(1), scene.hosts.host(2));
    let root = gluster.log_root();
    let (unfinished, whole) = (root.with_file_name("unfinished"), root.with_file_name("whole"));
    for round in 1..=ROUNDS {
        // A name that was looked for in vain is there once it is made.
        there.within(|| assert!(!unfinished.exists() && !whole.exists(), "round {round}"));
        here.within(|| {
            let file = File::create_new(&unfinished).unwrap();
            file.write_all_at(&[round; BLOCK], 0).unwrap();
            file.sync_data().unwrap();
            fs::rename(&unfinished, &whole).unwrap();
        });
        there.within(|| {
            assert!(!unfinished.exists(), "round {round}");
            assert!(fs::read(&whole).unwrap() == [round; BLOCK], "round {round}");
        });
        here.within(|| {
            let file = File::options().write(true).open(&whole).unwrap();
            file.write_all_at(&[!round; BLOCK], 0).unwrap();
            file.write_all_at(&[round; BLOCK], BLOCK as u64).unwrap();
        });
        there.within(|| {
            let expected = [[!round; BLOCK], [round; BLOCK]].concat();
            assert!(fs::read(&whole).unwrap() == expected, "round {round}");
        });
        here.within(|| fs::remove_file(&whole).unwrap());
    }
    let again = "/mnt/again";
    gluster.mount(1, again);
    let beside = format!("{again}/log");
    let said = here.run(["cell", "doctor", "--config", "/etc/cell/node-1.toml", "--beside", &beside]);
    assert!(format!("{}{}", said.out, said.err).contains("[well] seen beside"), "{said:?}");
    here.done(["umount", again]);
}

/// What nodes have in memory is read on without two copies, until a write of theirs has failed.
fn reads_go_on_until_a_write_fails(scene: &Scene<'_>, gluster: &Gluster<'_>) {
    let servers = scene.store.servers();
    let cell = |arguments: &[&str]| scene.store.cell(scene.hosts.client(), &servers, arguments);
    let written = cell(&["put", "0-kept", "value"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    // Nodes that prepare segments write by themselves.
    let none = format!("! ls {}/*/*/preparing-* 2>/dev/null", gluster.log_root().display());
    wait::until("all segments are ready", || scene.hosts.host(1).run(["sh", "-c", &none]).code == Some(0));
    let from = lengths(scene);
    end_two_copies(scene, gluster);
    let read = cell(&["get", "0-kept"]);
    assert_eq!(read.code, Some(0), "{read:?}");
    let refused = cell(&["put", "0-doubtful", "value", "--timeout", "2s"]);
    assert_ne!(refused.code, Some(0), "a write is acknowledged that two copies do not have: {refused:?}");
    wait_said(scene, &from, FAILED);
    gluster.start_bricks();
    scene.store.wait_served();
    let read = cell(&["get", "0-kept"]);
    assert_eq!(read.code, Some(0), "{read:?}");
}
