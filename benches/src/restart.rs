//! `restart`: how long an empty `cell dev` takes until it serves and what it takes, and how fast a killed
//! node reads its log and a stopped one its image.

use std::time::{Duration, Instant};

use crate::contest;
use crate::data::Dataset;
use crate::disk;
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::put::Scratch;
use crate::redis::{self, Keeps, Redis};
use crate::served::Served;

/// The goal: bytes a second a core.
const GOAL_BYTES: f64 = 1e9;
/// An empty `cell dev` serves within this, and takes less than that.
const START_SECONDS: f64 = 2.0;
const EMPTY_BYTES: f64 = 512.0 * 1024.0 * 1024.0;
/// The log keeps everything until the node is asked to stop.
const NO_CHECKPOINTS: [(&str, &str); 2] =
    [("--checkpoint-log-bytes-min", "512GiB"), ("--checkpoint-age-ms", "168 h")];

#[derive(Clone, Copy, Debug)]
struct Restart {
    /// From the start of the process until it serves.
    seconds: f64,
    /// What it read: log bytes, image bytes after decompression.
    bytes: f64,
}

/// Runs the bench.
///
/// # Errors
/// A node, a client or a disk that failed.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let folder = Scratch::new(options.dir.as_deref())?;
    empty(&folder, report)?;
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    let data = Dataset { entries: options.entries, seed: options.seed };
    let half = Dataset { entries: options.entries / 2, seed: options.seed };
    let mut field = Field::new(&folder, &data, &half, report)?;
    let raw = data.raw_bytes() as f64;
    for (what, from) in [("log", From::Log), ("image", From::Image)] {
        let (mut whole, mut part, mut redis, mut limits) = (Runs::new(), Runs::new(), Vec::new(), Vec::new());
        for _ in 0..options.repeats() {
            limits.extend(disk::fio_read(&folder.0, options)?);
            disk::clean(&folder.0);
            whole.push(restart(&mut field.whole, from)?);
            redis.extend(field.restart_redis(from)?.map(|time| raw / time.as_secs_f64()));
            part.push(restart(&mut field.part, from)?);
        }
        let (read_limit, goal) = (contest::median(&limits), GOAL_BYTES * cores);
        let limited = !limits.is_empty() && read_limit < goal;
        let limit = if limited { read_limit } else { goal };
        let rival = if limited { "the disk's read bandwidth" } else { "1 GB/s a core" };
        report.note(&format!(
            "{what}: {cores} cores, disk reads {read_limit:.3e} bytes/s, {whole:?}, {part:?}"
        ));
        let rate = whole.rate();
        let bench = format!("restart/from the {what}");
        report.add(Figure::beside(bench, "bytes/s", rate, rival, limit, Goal::AtLeast(1.0)))?;
        let bench = format!("restart/from the {what}, linear in the data");
        let rival = "with half the data";
        report.add(Figure::beside(bench, "bytes/s", rate, rival, part.rate(), Goal::AtLeast(0.9)))?;
        if !redis.is_empty() {
            let rival = if from == From::Log { "Redis from its AOF" } else { "Redis from its RDB" };
            let bench = format!("restart/raw data from the {what}");
            let ours = raw / whole.seconds();
            report.add(Figure::beside(bench, "bytes/s", ours, rival, contest::median(&redis), Goal::None))?;
        }
    }
    Ok(())
}

/// What a node starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// It was killed, and has all of its log.
    Log,
    /// It was stopped, and left an image.
    Image,
}

/// Restarts of one node from one thing.
#[derive(Debug)]
struct Runs(Vec<Restart>);

impl Runs {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn push(&mut self, run: Restart) {
        self.0.push(run);
    }

    fn rate(&self) -> f64 {
        contest::median(&self.0.iter().map(|run| run.bytes / run.seconds).collect::<Vec<_>>())
    }

    fn seconds(&self) -> f64 {
        contest::median(&self.0.iter().map(|run| run.seconds).collect::<Vec<_>>())
    }
}

/// Everyone who restarts, filled: two nodes, and a Redis that keeps a log and one that keeps a dump.
struct Field {
    whole: Served,
    part: Served,
    redis: Option<[Redis; 2]>,
}

impl Field {
    fn new(
        folder: &Scratch,
        data: &Dataset,
        half: &Dataset,
        report: &Report<'_>,
    ) -> Result<Self, BenchError> {
        let node = |data: &Dataset| -> Result<Served, BenchError> {
            let path = folder.0.join(format!("restart-{}", data.entries));
            // With the default lease: the next node waits until that of the one before is over.
            let mut node = Served::start_cluster(&path, data.entries, &NO_CHECKPOINTS, &[])?;
            node.fill(data)?;
            node.server.kill_all();
            Ok(node)
        };
        let (whole, part) = (node(data)?, node(half)?);
        if !redis::is_installed() {
            report.note(
                "SKIPPED: Redis beside our restart: redis-server is missing (apt install redis-server)",
            );
            return Ok(Self { whole, part, redis: None });
        }
        let rival = |name: &str, keeps: Keeps| -> Result<Redis, BenchError> {
            let mut redis = Redis::start(&folder.0.join(name), keeps)?;
            redis.fill(data)?;
            Ok(redis)
        };
        let redis = [rival("redis-log", Keeps::LogAlways)?, rival("redis-dump", Keeps::Dump)?];
        Ok(Self { whole, part, redis: Some(redis) })
    }

    fn restart_redis(&mut self, from: From) -> Result<Option<Duration>, BenchError> {
        let Some(redis) = &mut self.redis else { return Ok(None) };
        Ok(Some(redis[usize::from(from == From::Image)].restart()?))
    }
}

#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn empty(folder: &Scratch, report: &mut Report<'_>) -> Result<(), BenchError> {
    let started = Instant::now();
    let mut server = cell_tests::server::Server::bare(&folder.0.join("empty"));
    server.resume();
    let seconds = started.elapsed().as_secs_f64();
    report.add(Figure::beside(
        "restart/empty cell dev serves",
        "s",
        seconds,
        "goal",
        START_SECONDS,
        Goal::AtMost(1.0),
    ))?;
    let bytes = server.resident_bytes() as f64;
    report.add(Figure::beside(
        "restart/empty cell dev takes",
        "bytes",
        bytes,
        "goal",
        EMPTY_BYTES,
        Goal::AtMost(1.0),
    ))?;
    server.kill_all();
    Ok(())
}

/// Starts a node that does not run, and ends it again: killed, or stopped for the image that the next one
/// needs.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn restart(node: &mut Served, from: From) -> Result<Restart, BenchError> {
    if from == From::Image {
        // The first time its log is read and an image written; then there is nothing new to be kept.
        node.server.resume();
        node.server.stop();
    }
    // The predecessor's lease is over by then: what is measured is reading, not waiting.
    disk::pause(Duration::from_secs(1));
    let before = node.server.log().len();
    let started = Instant::now();
    node.server.resume();
    let seconds = started.elapsed().as_secs_f64();
    node.reconnect()?;
    let log = node.server.log();
    let taken_over = log.get(before..).unwrap_or_default();
    let log_bytes = taken_over
        .lines()
        .filter(|line| line.contains("pair taken over"))
        .filter_map(|line| line.split_once("log_bytes=")?.1.split_whitespace().next()?.parse::<f64>().ok())
        .sum();
    // An image holds the tree nodes and extents in use; after decompression it is as long as they are.
    let bytes = if from == From::Image { node.memory_used()? } else { log_bytes };
    node.server.kill_all();
    Ok(Restart { seconds, bytes })
}
