//! Moves into nodes that have no room: the source serves on, and it is said why.

use std::process::{Child, Stdio};

use cell_tests::cluster::View;
use cell_tests::lease::LONG_LEASE;
use cell_tests::program::Said;
use cell_tests::server::Server;
use cell_tests::small_disk::SmallDisk;
use cell_tests::wait;

use crate::moves::{Ends, FLAGS, SIZES, VALUE, assert_filled, connect, fill, is_over, region_move};

/// The node that joins, with none of the pairs.
const JOINED: u16 = 2;
/// Enough for one pair that is filled, and not for two. Regions could grow to more.
const LIMIT: [&str; 3] =
    ["--memory-limit-bytes=140MiB", "--memory-check=false", "--populate-chunk-bytes=2MiB"];
/// More values, at a key of each of two nodes: with them a pair takes more than half of what such a node has.
const MORE: [(char, u64); 2] = [('0', 130), ('z', 70)];

/// A node of a cluster that this test runs itself, with logs of its own size.
struct Joined(Child);

impl Joined {
    fn start(server: &Server, more: &[&str]) -> Joined {
        let mut command = server.node_command(JOINED);
        command.args(SIZES).args(LONG_LEASE).args(LIMIT).args(more);
        let joined = Joined(command.stdout(Stdio::null()).spawn().expect("cell can be started"));
        wait::until("the node that joins is ready", || {
            server.http_of(JOINED, "/readyz").is_some_and(|(status, _)| status == 200)
        });
        joined
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        // The test is over, well or not.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Gives each of two pairs more than fits beside it.
fn fill_more(server: &Server) {
    fill(server);
    let mut client = connect(server);
    for (first, count) in MORE {
        for number in 0..count {
            client.put(format!("{first}-more-{number:03}").as_bytes(), &VALUE).expect("there is room");
        }
    }
}

/// The pair is at its source, and whoever asks for its keys is answered.
fn assert_serves_on(server: &Server, ends: &Ends) {
    let serves = |view: &View| view.is_served(ends.pair) && view.pair(ends.pair)["node"] == ends.source;
    assert!(serves(&server.view()), "{:?}", server.view());
    assert_filled(server);
}

/// What a move is answered while the disk is full. A log or an image that goes may make room after it was
/// filled: then the move is done, and tried again from the start.
fn move_into_full_disk(server: &Server, ends: &Ends, disk: &SmallDisk) -> Said {
    let move_to = |asked, node: u64, how| {
        let (pair, to) = (ends.pair.to_string(), node.to_string());
        region_move(server, asked, &[&pair, "--to", &to, how])
    };
    for _ in 0..10 {
        disk.fill();
        let said = move_to(ends.asked, ends.target, "--wait");
        if said.code != Some(0) {
            return said;
        }
        disk.make_room();
        // That it has the pair's memory again is known of it some time later.
        wait::until("the pair may go back", || move_to(ends.asked, ends.source, "--dry-run").code == Some(0));
        let back = move_to(ends.asked, ends.source, "--wait");
        assert_eq!(back.code, Some(0), "{back:?}");
    }
    panic!("the disk does not stay full");
}

/// On a disk without room the target has no logs to write, and the source would find no room for new ones
/// either once it has handed the pair over.
#[test]
fn move_into_a_node_without_memory_or_disk_is_refused_or_given_up_and_the_source_serves_on() {
    let Some(disk) = SmallDisk::new(128) else { return };
    let beside = tempfile::tempdir().expect("a temporary folder can be made");
    let small = ["--nodes=2", "--log-segment-bytes=1MiB"];
    let flags = [&small[..], &LIMIT, &SIZES, &FLAGS, &LONG_LEASE].concat();
    let mut server = Server::prepared(&disk.path().join("data"), &flags);
    server.log_to(&beside.path().join("server-log"));
    server.resume();
    server.wait_healthy();
    fill_more(&server);
    let ends = Ends::of(&server.view(), 0);
    let (pair, to) = (ends.pair.to_string(), ends.target.to_string());
    // What a node has left is known of it some time later.
    wait::until("the move is refused as it is planned", || {
        region_move(&server, ends.asked, &[&pair, "--to", &to, "--dry-run"]).code == Some(3)
    });
    let said = region_move(&server, ends.asked, &[&pair, "--to", &to, "--wait"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(
        said.err.contains("has memory for") && said.err.contains("choose a node with more room"),
        "{said:?}"
    );
    assert_eq!(server.move_of(ends.asked, ends.pair), None, "nothing has started");

    let joined = Joined::start(&server, &["--log-segment-bytes=16MiB"]);
    let ends = Ends { target: JOINED.into(), ..ends };
    let said = move_into_full_disk(&server, &ends, &disk);
    assert_eq!(said.code, Some(1), "{said:?}");
    let stays = format!("it stays at node {}", ends.source);
    let words = ["given up", "the disk has no room for the logs", stays.as_str()];
    assert!(words.iter().all(|words| said.err.contains(words)), "{said:?}");
    assert_serves_on(&server, &ends);
    disk.make_room();
    let said = region_move(&server, ends.asked, &[&pair, "--to", "2", "--wait"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_filled(&server);

    // It has memory for one pair, and has one.
    let other = Ends { target: JOINED.into(), ..Ends::of(&server.view(), 1) };
    let (pair, to) = (other.pair.to_string(), other.target.to_string());
    wait::until("that it has it is known", || {
        region_move(&server, other.asked, &[&pair, "--to", &to, "--dry-run"]).code == Some(3)
    });
    let (status, refused) = server.ask_move(other.asked, other.pair, other.target);
    assert_eq!((status, &refused["code"]), (409, &"no_memory".into()), "{refused}");
    assert!(server.move_of(other.asked, ends.pair).is_some_and(|of| is_over(&of)));
    let verified = server.cell(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    drop(joined);
    server.kill_all();
}
