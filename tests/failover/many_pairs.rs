//! Many small pairs, whose regions could grow to more than any node may hold: those of nodes that died are
//! all served by who is left.

use std::fmt::Write;
use std::fs;

use cell_tests::cluster::View;
use cell_tests::lease::LONG_LEASE;
use cell_tests::server::Server;
use cell_tests::traffic::spread;
use tempfile::TempDir;

/// Regions of nodes are small, so that pairs are many. What values take has the size that follows from the
/// limit: of such pairs some ten could grow to all that a node may hold.
const FLAGS: [&str; 9] = [
    "--nodes=3",
    "--allow-drills",
    "--balance=off",
    "--tracing-filter=info",
    "--memory-limit-bytes=1GiB",
    "--node-region-bytes=1MiB",
    "--slot-bytes=256KiB",
    "--populate-chunk-bytes=2MiB",
    "--log-segment-bytes=4MiB",
];
/// Pairs that there are at least when nodes die.
const PAIRS: usize = 24;
/// Entries that are loaded at a time, and how often at most.
const ENTRIES: u64 = 12_400;
const LOADS_MAX: u64 = 20;

/// Long keys: few of them fill a slot.
fn key(number: u64) -> String {
    let key = spread(number, &format!("-{number:09}-{:0>130}", number % 97));
    String::from_utf8(key).expect("it is ASCII")
}

/// Loads entries until there are many pairs; how many entries.
fn load(server: &Server) -> u64 {
    let file = server.folder().with_file_name("entries.tsv");
    for load in 0..LOADS_MAX {
        let mut lines = String::new();
        for number in load * ENTRIES..(load + 1) * ENTRIES {
            let _ = writeln!(lines, "{}\t{number}", key(number)); // a string takes everything
        }
        fs::write(&file, lines).expect("the folder can be written");
        let said = server.cell(&["load", file.to_str().expect("it is text")]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let pairs = server.wait_healthy().pairs().len();
        println!("{} entries in {pairs} pairs", (load + 1) * ENTRIES);
        if pairs >= PAIRS {
            return (load + 1) * ENTRIES;
        }
    }
    panic!("there are too few pairs: {:?}", server.view());
}

/// Whether all pairs are served, each by one of these nodes.
fn are_served_by(view: &View, nodes: &[u64]) -> bool {
    view.pairs().iter().all(|row| {
        let (pair, node) = (row["pair"].as_u64().unwrap_or(0), row["node"].as_u64());
        view.is_served(pair) && node.is_some_and(|node| nodes.contains(&node))
    })
}

fn assert_loaded(server: &Server, entries: u64) {
    let counted = server.cell(&["count"]);
    assert_eq!((counted.code, counted.out.trim()), (Some(0), entries.to_string().as_str()), "{counted:?}");
    let verified = server.cell(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

/// A survivor was given no more pairs than could have grown to all that it may hold, though they were small:
/// the others were served by nobody.
#[test]
fn pairs_of_nodes_that_died_are_all_served_though_they_could_grow_beyond_every_limit() {
    let folder = TempDir::with_prefix("cell-many-pairs-").expect("a temporary folder can be made");
    let flags = [&FLAGS[..], &LONG_LEASE].concat();
    let mut server = Server::bare_with(&folder.path().join("data"), &flags);
    server.resume();
    server.wait_healthy();
    let entries = load(&server);
    server.take_down(1);
    server.wait_view("served by two", |view| are_served_by(view, &[0, 2]));
    server.take_down(2);
    let view = server.wait_view("served by one", |view| are_served_by(view, &[0]));
    assert!(view.pairs().len() >= PAIRS, "{view:?}");
    assert_loaded(&server, entries);
}
