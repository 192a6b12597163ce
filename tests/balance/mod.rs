//! Pairs that move by themselves, over real processes: a cluster that grows and shrinks under load, a load of
//! one prefix, a node that comes back, and balancers of whom one stands still.

mod growth;
mod seat;
mod shares;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use cell_tests::lease::LONG_LEASE;
use cell_tests::server::Server;
use cell_tests::wait;
use serde_json::Value;

/// Small pairs of small meganodes: some megabytes are many.
const SIZES: [&str; 5] = [
    "--node-region-bytes=4MiB",
    "--slot-bytes=256KiB",
    "--extent-region-bytes=32MiB",
    "--populate-chunk-bytes=2MiB",
    "--log-segment-bytes=4MiB",
];
/// Balance of few bytes, by figures over a moment, after short rests. Load, of which a busy machine has more
/// on one node than on another, does not count.
const SOON: [&str; 6] = [
    "--balance-window-ms=3s",
    "--balance-pair-rest-ms=1s",
    "--balance-node-rest-ms=0ms",
    "--balance-retry-ms=1s",
    "--balance-bytes-floor=1",
    "--balance-load-floor-us=1000000",
];
const FLAGS: [&str; 3] = ["--nodes=3", "--allow-drills", "--tracing-filter=info"];
/// Entries of [`load`], some megabytes together.
const ENTRIES: u64 = 20_000;
/// Of the mean, what the largest node may have in the end, and what each node has at least: in percent.
const LARGEST: u64 = 150;
const SMALLEST: u64 = 50;

/// A cluster of three.
fn cluster() -> Server {
    let server = Server::start_with(&[&FLAGS[..], &SIZES, &SOON, &LONG_LEASE].concat());
    server.wait_healthy();
    server
}

/// A path of files of many projects under one long prefix.
fn path(number: u64) -> String {
    let (project, folder) = (number % 7, number / 7 % 23);
    format!("/srv/storage/archive/customers/projects/{project:02}/data/{folder:03}/file-{number:06}.json")
}

/// Loads paths of one prefix, all of which one pair has at first.
fn load(server: &Server) {
    let mut lines = String::new();
    for number in 0..ENTRIES {
        let _ = writeln!(lines, "{}\t{number:064}", path(number)); // a string takes everything
    }
    let file = server.folder().with_file_name("paths.tsv");
    fs::write(&file, lines).expect("the folder can be written");
    let said = server.cell(&["load", file.to_str().expect("it is text")]);
    assert_eq!(said.code, Some(0), "{said:?}");
}

/// Everything that was loaded is there, and nothing that the tree promises is broken.
fn assert_loaded(server: &Server) {
    let counted = server.cell(&["count", "--prefix", "/srv/"]);
    assert_eq!((counted.code, counted.out.trim()), (Some(0), ENTRIES.to_string().as_str()), "{counted:?}");
    let verified = server.cell(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

/// What a node's API says of balance; none: nobody answers, or nobody balances.
fn balance(server: &Server, asked: u16) -> Option<Value> {
    let (_, body) = server.http_of(asked, "/api/v1/balance").filter(|(status, _)| *status == 200)?;
    let document: Value = serde_json::from_str(&body).ok()?;
    (!document["balancer"].is_null()).then_some(document)
}

/// Whether a node says that it balances itself.
pub(crate) fn balances(server: &Server, node: u16) -> bool {
    let part = server.http_of(node, "/api/v1/balance?scope=node").filter(|(status, _)| *status == 200);
    let part = part.and_then(|(_, body)| serde_json::from_str::<Value>(&body).ok());
    part.is_some_and(|part| part["balances"] == true)
}

/// The bytes of each node, as the balancer knows them.
fn bytes_of(document: &Value) -> BTreeMap<u64, u64> {
    let rows = document["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    rows.iter().filter_map(|row| Some((row["node"].as_u64()?, row["bytes"].as_u64()?))).collect()
}

/// Waits until each of so many nodes has its share of what was loaded.
fn wait_balanced(server: &Server, asked: u16, nodes: usize) {
    let (least, mut last) = (ENTRIES * 100, BTreeMap::new());
    // Pairs move one after the other.
    wait::within(4 * wait::PATIENCE, "each node has its share", || {
        let document = balance(server, asked)?;
        let bytes = bytes_of(&document);
        if bytes != last {
            println!("{bytes:?}: {}", document["decision"]);
            last.clone_from(&bytes);
        }
        let sum: u64 = bytes.values().sum();
        let share = |bytes: &u64| bytes * 100 * nodes as u64 / sum.max(1);
        let is_shared = sum >= least
            && bytes.len() == nodes
            && bytes.values().all(|bytes| (SMALLEST..=LARGEST).contains(&share(bytes)));
        is_shared.then_some(())
    });
}
