//! `takeover`: `kill -9` of one node of a cluster that holds data, under the traffic of a drill: how long
//! until its first pair is served again, and until all of them are, by two survivors and by one.

use std::path::Path;
use std::time::Duration;

use cell_tests::program;
use cell_tests::server::Server;
use serde_json::Value;

use crate::data::Dataset;
use crate::disk;
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::put::Scratch;
use crate::redis::{self, Keeps, Redis};
use crate::served::Served;

/// The lease of a node, as `cell` has it unless told otherwise.
const LEASE_SECONDS: f64 = 0.5;
/// What the goal adds to it.
const ALLOWANCE_SECONDS: f64 = 0.5;
/// Bytes a second a core that a replay is to reach.
const REPLAY_RATE: f64 = 1e9;
/// A 3-member etcd at its defaults, from its leader's death to an accepted write: known, 1.0 to 1.8 s.
const ETCD_SECONDS: f64 = 1.0;
/// Pairs that a node has at least: what several survivors can share.
const PAIRS_A_NODE: u64 = 4;
/// Memory for an entry in extents, as everywhere, and in the tree, at most.
const EXTENT_BYTES_MAX: u64 = 400;
const TREE_BYTES_MAX: u64 = 320;

/// What a drill said.
struct Drilled {
    first_served: f64,
    served: f64,
    unavailable: f64,
    replayed: f64,
    pairs: f64,
}

/// Runs the bench.
///
/// # Errors
/// A node, a client or a drill that failed.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let folder = Scratch::new(options.dir.as_deref())?;
    let data = Dataset { entries: options.entries, seed: options.seed };
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    report.note(&format!(
        "{} entries, {:.0} MB of keys and values, {cores} cores",
        data.entries,
        data.raw_bytes() as f64 / 1e6
    ));
    let mut replay = 0.0;
    // A survivor's part of what a node has.
    let ready = |nodes: u64| {
        let entries = data.entries / nodes / (nodes - 1);
        (entries * (EXTENT_BYTES_MAX + TREE_BYTES_MAX)).next_multiple_of(2 << 20)
    };
    let worlds = [
        (3, Logs::Whole, 0, "two survivors"),
        (3, Logs::Whole, ready(3), "two survivors, memory ready"),
        (2, Logs::Whole, 0, "one survivor"),
        (2, Logs::Whole, ready(2), "one survivor, memory ready"),
        (3, Logs::Checkpointed, ready(3), "checkpoints, two survivors, memory ready"),
    ];
    for (nodes, logs, ready, survivors) in worlds {
        let drilled = drill(&folder.0.join("takeover"), &data, nodes, logs, ready)?;
        report.note(&format!(
            "{survivors}: {:.0} pairs, {:.0} MB replayed, a key waited {:.2} s at most",
            drilled.pairs,
            drilled.replayed / 1e6,
            drilled.unavailable
        ));
        let first = LEASE_SECONDS + ALLOWANCE_SECONDS;
        let rival = "lease + 0.5 s";
        let bench = format!("takeover/first pair, {survivors}");
        report.add(Figure::beside(bench, "s", drilled.first_served, rival, first, Goal::AtMost(1.0)))?;
        let all = first + drilled.replayed / (REPLAY_RATE * cores);
        let rival = "lease + 0.5 s + bytes / (1 GB/s x cores)";
        let bench = format!("takeover/all pairs, {survivors}");
        report.add(Figure::beside(bench, "s", drilled.served, rival, all, Goal::AtMost(1.0)))?;
        if (nodes, logs, ready) == (3, Logs::Whole, 0) {
            let rival = "etcd, 3 members, at best, as known";
            let bench = "takeover/a key unavailable";
            report.add(Figure::beside(bench, "s", drilled.unavailable, rival, ETCD_SECONDS, Goal::None))?;
            replay = data.raw_bytes() as f64 / f64::from(nodes) / (drilled.served - LEASE_SECONDS).max(0.001);
        }
    }
    beside_redis(&folder, &data, replay, report)
}

/// Raw bytes of the dead node's data a second, from its lease's end, beside a Redis that loads as much.
fn beside_redis(
    folder: &Scratch,
    data: &Dataset,
    ours: f64,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    if !redis::is_installed() {
        report.note("SKIPPED: Redis loading as much: redis-server is missing (apt install redis-server)");
        return Ok(());
    }
    let part = Dataset { entries: (data.entries / 3).max(1), seed: data.seed };
    let mut redis = Redis::start(&folder.0.join("takeover-redis"), Keeps::LogAlways)?;
    redis.fill(&part)?;
    let theirs = part.raw_bytes() as f64 / redis.restart()?.as_secs_f64();
    let rival = "Redis from its AOF";
    report.add(Figure::beside("takeover/raw data", "bytes/s", ours, rival, theirs, Goal::None))?;
    Ok(())
}

/// What is there to be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logs {
    /// Everything that was ever written: the most that there can be.
    Whole,
    /// What the default settings leave behind the last checkpoint, and its image.
    Checkpointed,
}

/// Fills a cluster, kills the node that owns most, and says what the drill saw.
fn drill(folder: &Path, data: &Dataset, nodes: u16, logs: Logs, ready: u64) -> Result<Drilled, BenchError> {
    let pairs = u64::from(nodes) * PAIRS_A_NODE;
    // Not less than the smallest pair.
    let extents = (data.entries * EXTENT_BYTES_MAX / pairs).max(48 << 20).to_string();
    let tree = (data.entries * TREE_BYTES_MAX / pairs).max(16 << 20).to_string();
    let (nodes_text, ready_text) = (nodes.to_string(), ready.to_string());
    let mut flags = vec![
        ("--nodes", nodes_text.as_str()),
        ("--extent-region-bytes", extents.as_str()),
        ("--node-region-bytes", tree.as_str()),
        ("--slot-bytes", "8MiB"),
        ("--memory-limit-bytes", "64GiB"),
        ("--ready-memory-bytes", ready_text.as_str()),
    ];
    if logs == Logs::Whole {
        flags.push(("--checkpoint-log-bytes-min", "512GiB"));
    }
    let mut served = Served::start_cluster(folder, data.entries, &flags, &["--allow-drills"])?;
    served.fill(data)?;
    let node = busiest(&served.server)?;
    for survivor in (0..nodes).filter(|survivor| *survivor != node) {
        served.server.wait_http(survivor, "/metrics", &format!("cell_memory_ready_bytes {ready}\n"));
    }
    let node = node.to_string();
    let said = ask(
        &served.server,
        &["run", "kill", "--node", &node, "--duration", "20s", "--patience", "300s", "--before", "1s"],
    )?;
    served.server.kill_all();
    drop(served);
    let _ = std::fs::remove_dir_all(folder);
    if said["verdict"] != "PASS" {
        return Err(BenchError::Io(std::io::Error::other(format!("the drill did not pass: {said}"))));
    }
    let number = |name: &str| said[name].as_f64().unwrap_or(0.0);
    Ok(Drilled {
        first_served: number("first_served_ms") / 1e3,
        served: number("served_ms") / 1e3,
        unavailable: number("unavailable_ms_max") / 1e3,
        replayed: number("replayed_bytes"),
        pairs: number("pairs_owned"),
    })
}

/// The node with most pairs, once all of them serve.
fn busiest(server: &Server) -> Result<u16, BenchError> {
    loop {
        let status = ask(server, &["ls"])?;
        let empty = Vec::new();
        let pairs = status["pairs"].as_array().unwrap_or(&empty);
        if pairs.iter().all(|pair| pair["state"] == "serving") {
            let of = |node: u16| pairs.iter().filter(|pair| pair["node"] == node).count();
            let nodes = status["nodes"].as_array().map_or(0, Vec::len);
            let nodes = u16::try_from(nodes).unwrap_or(u16::MAX);
            return Ok((0..nodes).max_by_key(|node| of(*node)).unwrap_or(0));
        }
        disk::pause(Duration::from_millis(20));
    }
}

fn ask(server: &Server, arguments: &[&str]) -> Result<Value, BenchError> {
    let dir = server.folder().to_string_lossy().into_owned();
    let said = program::run(&[&["--json", "drill"], arguments, &["--dir", &dir]].concat());
    serde_json::from_str(&said.out)
        .map_err(|_| BenchError::Io(std::io::Error::other(format!("no drill: {}", said.err))))
}
