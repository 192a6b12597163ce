//! `takeover`: `kill -9` of one node of a cluster that holds data, under the traffic of a drill: how long
//! until its first pair is served again, and until all of them are, by two survivors and by one.

use std::path::Path;
use std::time::Duration;

use crate::contest;
use crate::data::Dataset;
use crate::drills::{self, Killed};
use crate::etcd::{self, Etcd};
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::put::Scratch;
use crate::redis::{self, Keeps, Redis};
use crate::served::{Served, ready_bytes, several_pairs};

/// The lease of a node, as `cell` has it unless set otherwise.
const LEASE_SECONDS: f64 = 0.5;
/// How long the killed node is away. Where figures mean nothing, some leases are enough.
const DOWN: Duration = Duration::from_secs(20);
const DOWN_REHEARSED: Duration = Duration::from_millis(2_500);
/// What the goal adds to it.
const ALLOWANCE_SECONDS: f64 = 0.5;
/// Bytes a second a core that a replay is to reach.
const REPLAY_RATE: f64 = 1e9;

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
    let ready = |nodes: u16| ready_bytes(data.entries, nodes);
    let worlds = [
        (3, Logs::Whole, 0, "two survivors"),
        (3, Logs::Whole, ready(3), "two survivors, memory ready"),
        (2, Logs::Whole, 0, "one survivor"),
        (2, Logs::Whole, ready(2), "one survivor, memory ready"),
        (3, Logs::Checkpointed, ready(3), "checkpoints, two survivors, memory ready"),
    ];
    let mut killed: [Vec<Killed>; 5] = Default::default();
    let (mut etcd, mut redis) = (Vec::new(), Rival::new(&folder, &data, report)?);
    let down = if options.is_rehearsal() { DOWN_REHEARSED } else { DOWN };
    for turn in 0..options.repeats() {
        for ((nodes, logs, ready, _), killed) in worlds.into_iter().zip(&mut killed) {
            killed.push(drill(&folder.0.join("takeover"), &data, (nodes, logs), ready, down)?);
        }
        etcd.extend(kill_etcd(&folder.0.join(format!("etcd-{turn}")), report)?);
        redis.restart()?;
    }
    for ((_, _, _, survivors), killed) in worlds.into_iter().zip(&killed) {
        add_rows(survivors, killed, &etcd, cores, report)?;
    }
    let served = contest::median(&killed[0].iter().map(|run| run.served).collect::<Vec<_>>());
    redis.compare(data.raw_bytes() as f64 / 3.0 / (served - LEASE_SECONDS).max(0.001), report)
}

/// The figures of one world, beside what a lease and the replay of its bytes must take.
fn add_rows(
    survivors: &str,
    killed: &[Killed],
    etcd: &[f64],
    cores: f64,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let middle = |of: fn(&Killed) -> f64| contest::median(&killed.iter().map(of).collect::<Vec<_>>());
    for run in killed {
        report.note(&format!("{survivors}: {}", run.words()));
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
    let gap = Etcd::start(folder)?.kill_leader_under_writes()?;
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
) -> Result<Killed, BenchError> {
    let sizes = several_pairs(data.entries, nodes, 1);
    let (nodes_text, ready_text) = (nodes.to_string(), ready.to_string());
    let mut flags: Vec<_> = sizes.iter().map(|(name, size)| (*name, size.as_str())).collect();
    flags.extend([("--nodes", nodes_text.as_str()), ("--ready-memory-bytes", ready_text.as_str())]);
    if logs == Logs::Whole {
        flags.push(("--checkpoint-log-bytes-min", "512GiB"));
    }
    let mut served = Served::start_cluster(folder, data.entries, &flags, &["--allow-drills"])?;
    served.fill(data)?;
    let node = drills::busiest(&served.server)?;
    let killed = drills::kill(&served.server, node, (nodes, ready), down, &mut || {})?;
    served.remove();
    Ok(killed)
}
