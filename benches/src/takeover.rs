//! `takeover`: `kill -9` of one node of a cluster that holds data, under the traffic of a drill: how long
//! until its first pair is served again, and until all of them are, by two survivors and by one.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use cell_tests::program;
use cell_tests::server::Server;
use serde_json::Value;

use crate::contest;
use crate::data::Dataset;
use crate::etcd::{self, Etcd};
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::patience;
use crate::put::Scratch;
use crate::redis::{self, Keeps, Redis};
use crate::served::Served;

/// The lease of a node, as `cell` has it unless set otherwise.
const LEASE_SECONDS: f64 = 0.5;
/// How long the killed node is away.
const DOWN: Duration = Duration::from_secs(20);
/// What the goal adds to it.
const ALLOWANCE_SECONDS: f64 = 0.5;
/// Bytes a second a core that a replay is to reach.
const REPLAY_RATE: f64 = 1e9;
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
    let mut drilled: [Vec<Drilled>; 5] = Default::default();
    let (mut etcd, mut redis) = (Vec::new(), Rival::new(&folder, &data, report)?);
    let down = options.lasting(DOWN);
    for turn in 0..options.repeats() {
        for ((nodes, logs, ready, _), drilled) in worlds.into_iter().zip(&mut drilled) {
            drilled.push(drill(&folder.0.join("takeover"), &data, (nodes, logs), ready, down)?);
        }
        etcd.extend(kill_etcd(&folder.0.join(format!("etcd-{turn}")), report)?);
        redis.restart()?;
    }
    for ((_, _, _, survivors), drilled) in worlds.into_iter().zip(&drilled) {
        add_rows(survivors, drilled, &etcd, cores, report)?;
    }
    let served = contest::median(&drilled[0].iter().map(|run| run.served).collect::<Vec<_>>());
    redis.compare(data.raw_bytes() as f64 / 3.0 / (served - LEASE_SECONDS).max(0.001), report)
}

/// The figures of one world, beside what a lease and the replay of its bytes must take.
fn add_rows(
    survivors: &str,
    drilled: &[Drilled],
    etcd: &[f64],
    cores: f64,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let middle = |of: fn(&Drilled) -> f64| contest::median(&drilled.iter().map(of).collect::<Vec<_>>());
    for run in drilled {
        let Drilled { first_served, served, unavailable, replayed, pairs } = run;
        report.note(&format!(
            "{survivors}: {pairs:.0} pairs, {:.0} MB replayed, first served after {first_served:.2} s, all \
             after {served:.2} s, a key waited {unavailable:.2} s at most",
            replayed / 1e6
        ));
    }
    let first = LEASE_SECONDS + ALLOWANCE_SECONDS;
    let rival = "lease + 0.5 s";
    let bench = format!("takeover/first pair, {survivors}");
    let ours = middle(|run| run.first_served);
    report.add(Figure::beside(bench, "s", ours, rival, first, Goal::AtMost(1.0)))?;
    let all = first + middle(|run| run.replayed) / (REPLAY_RATE * cores);
    let rival = "lease + 0.5 s + bytes / (1 GB/s x cores)";
    let bench = format!("takeover/all pairs, {survivors}");
    report.add(Figure::beside(bench, "s", middle(|run| run.served), rival, all, Goal::AtMost(1.0)))?;
    let (bench, ours) = (format!("takeover/a key unavailable, {survivors}"), middle(|run| run.unavailable));
    report.add(match etcd {
        [] => Figure::alone(bench, "s", ours),
        gaps => {
            let rival = "etcd, 3 members, leader killed";
            Figure::beside(bench, "s", ours, rival, contest::median(gaps), Goal::None)
        }
    })?;
    Ok(())
}

/// How long a write waits at most at an etcd whose leader is killed, in seconds; none without etcd.
fn kill_etcd(folder: &Path, report: &Report<'_>) -> Result<Option<f64>, BenchError> {
    if !etcd::is_installed() {
        report.note("SKIPPED: etcd's failover beside ours: etcd is missing (apt install etcd-server)");
        return Ok(None);
    }
    let gap = Etcd::start(folder)?.kill_leader()?;
    Ok(Some(gap.as_secs_f64()))
}

/// A Redis that loads as much as the dead node had.
struct Rival {
    redis: Option<Redis>,
    raw_bytes: f64,
    rates: Vec<f64>,
}

impl Rival {
    fn new(folder: &Scratch, data: &Dataset, report: &Report<'_>) -> Result<Self, BenchError> {
        let part = Dataset { entries: (data.entries / 3).max(1), seed: data.seed };
        let raw_bytes = part.raw_bytes() as f64;
        if !redis::is_installed() {
            report.note("SKIPPED: Redis loading as much: redis-server is missing (apt install redis-server)");
            return Ok(Self { redis: None, raw_bytes, rates: Vec::new() });
        }
        let mut redis = Redis::start(&folder.0.join("takeover-redis"), Keeps::LogAlways)?;
        redis.fill(&part)?;
        Ok(Self { redis: Some(redis), raw_bytes, rates: Vec::new() })
    }

    fn restart(&mut self) -> Result<(), BenchError> {
        if let Some(redis) = &mut self.redis {
            self.rates.push(self.raw_bytes / redis.restart()?.as_secs_f64());
        }
        Ok(())
    }

    /// Raw bytes of the dead node's data a second, from its lease's end, beside its own.
    fn compare(&self, ours: f64, report: &mut Report<'_>) -> Result<(), BenchError> {
        if !self.rates.is_empty() {
            let (rival, theirs) = ("Redis from its AOF", contest::median(&self.rates));
            report.add(Figure::beside("takeover/raw data", "bytes/s", ours, rival, theirs, Goal::None))?;
        }
        Ok(())
    }
}

/// What is there to be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logs {
    /// Everything that was ever written: the most that there can be.
    Whole,
    /// What the default settings leave behind the last checkpoint, and its image.
    Checkpointed,
}

/// Fills a cluster, kills the node that owns most for so long, and says what the drill saw.
fn drill(
    folder: &Path,
    data: &Dataset,
    (nodes, logs): (u16, Logs),
    ready: u64,
    down: Duration,
) -> Result<Drilled, BenchError> {
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
    let (node, down) = (node.to_string(), format!("{}ms", down.as_millis()));
    let said = ask(
        &served.server,
        &["run", "kill", "--node", &node, "--duration", &down, "--patience", "300s", "--before", "1s"],
    )?;
    served.server.kill_all();
    drop(served);
    let _ = std::fs::remove_dir_all(folder);
    if said["verdict"] != "PASS" {
        return Err(BenchError::Io(io::Error::other(format!("the drill did not pass: {said}"))));
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
pub(crate) fn busiest(server: &Server) -> Result<u16, BenchError> {
    patience::until_some("every pair is served", || {
        // A supervisor that has much to do may not answer just now.
        let status = ask(server, &["ls"]).ok()?;
        let pairs = status["pairs"].as_array().filter(|pairs| !pairs.is_empty())?;
        let are_served = pairs.iter().all(|pair| pair["state"] == "serving");
        let of = |node: u16| pairs.iter().filter(|pair| pair["node"] == node).count();
        let nodes = status["nodes"].as_array().map_or(0, Vec::len);
        let nodes = (0..u16::try_from(nodes).unwrap_or(u16::MAX)).filter(|_| are_served);
        nodes.max_by_key(|node| of(*node))
    })
}

/// What `cell drill` says to this, in JSON.
pub(crate) fn ask(server: &Server, arguments: &[&str]) -> Result<Value, BenchError> {
    ask_and_hear(server, arguments, &mut |_| {})
}

/// As [`ask`]; hands on each line of what it notes meanwhile, as it comes.
pub(crate) fn ask_and_hear(
    server: &Server,
    arguments: &[&str],
    hear: &mut dyn FnMut(&str),
) -> Result<Value, BenchError> {
    let mut command = program::command();
    command.args(["--json", "drill"]).args(arguments).arg("--dir").arg(server.folder());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pipes = child.stdout.take().zip(child.stderr.take());
    let (out, notes) = pipes.expect("its output is two pipes");
    let mut heard = String::new();
    let said = std::thread::scope(|scope| -> io::Result<String> {
        let said = scope.spawn(move || io::read_to_string(out));
        for line in BufReader::new(notes).lines() {
            let line = line?;
            hear(&line);
            heard.push_str(&line);
            heard.push('\n');
        }
        said.join().expect("reading does not panic")
    })?;
    child.wait()?;
    serde_json::from_str(&said).map_err(|_| BenchError::Io(io::Error::other(format!("no drill: {heard}"))))
}
