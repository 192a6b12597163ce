//! `restart`: how long an empty `cell dev` takes until it serves and what it takes, and how fast a killed
//! node reads its log and a stopped one its image.

use std::time::{Duration, Instant};

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
/// The log keeps everything until the node is told to stop.
const NO_CHECKPOINTS: [(&str, &str); 2] =
    [("--checkpoint-log-bytes-min", "512GiB"), ("--checkpoint-age-ms", "168 h")];

/// One restart.
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
    let read_limit = disk::fio_read(&folder.0)?;
    disk::clean(&folder.0);
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    if read_limit.is_none() {
        report.note("SKIPPED: the disk's read bandwidth as a limit: fio is missing (apt install fio)");
    }
    let limit = read_limit.unwrap_or(f64::INFINITY).min(GOAL_BYTES * cores);
    let rival = if limit < GOAL_BYTES * cores { "the disk's read bandwidth" } else { "1 GB/s a core" };
    report.note(&format!("{cores} cores, disk reads {:.2} GB/s", read_limit.unwrap_or(0.0) / 1e9));
    let mut rates = Vec::new();
    let mut whole = [0.0; 2];
    for part in [2, 1] {
        let data = Dataset { entries: options.entries / part, seed: options.seed };
        let (log, image) = measure(&folder, &data)?;
        for (what, restart) in [("log", log), ("image", image)] {
            let rate = restart.bytes / restart.seconds;
            report.note(&format!(
                "{} entries from the {what}: {:.2} s, {:.0} MB",
                data.entries,
                restart.seconds,
                restart.bytes / 1e6
            ));
            if part == 1 {
                whole[usize::from(what == "image")] = data.raw_bytes() as f64 / restart.seconds;
                let bench = format!("restart/from the {what}");
                report.add(Figure::beside(bench, "bytes/s", rate, rival, limit, Goal::AtLeast(1.0)))?;
            }
        }
        rates.push(log.bytes / log.seconds);
    }
    beside_redis(&folder, options, whole, report)?;
    let bench = "restart/linear in the data";
    report.add(Figure::beside(
        bench,
        "bytes/s",
        rates[1],
        "with half the data",
        rates[0],
        Goal::AtLeast(0.9),
    ))?;
    Ok(())
}

/// Raw bytes of keys and values a second, ours from log and image, beside Redis from its log and its dump.
fn beside_redis(
    folder: &Scratch,
    options: &Options,
    ours: [f64; 2],
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    if !redis::is_installed() {
        report.note("SKIPPED: Redis beside our restart: redis-server is missing (apt install redis-server)");
        return Ok(());
    }
    let data = Dataset { entries: options.entries, seed: options.seed };
    for (what, keeps, ours) in [("log", Keeps::LogAlways, ours[0]), ("image", Keeps::Dump, ours[1])] {
        let mut redis = Redis::start(&folder.0.join(format!("redis-{what}")), keeps)?;
        redis.fill(&data)?;
        let theirs = data.raw_bytes() as f64 / redis.restart()?.as_secs_f64();
        let rival = if keeps == Keeps::LogAlways { "Redis from its AOF" } else { "Redis from its RDB" };
        let bench = format!("restart/raw data from the {what}");
        report.add(Figure::beside(bench, "bytes/s", ours, rival, theirs, Goal::None))?;
    }
    Ok(())
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

/// Fills a node, kills it and starts it again from its log; then stops it and starts it again from its image.
fn measure(folder: &Scratch, data: &Dataset) -> Result<(Restart, Restart), BenchError> {
    let path = folder.0.join(format!("restart-{}", data.entries));
    let mut node = Served::start(&path, data.entries, &NO_CHECKPOINTS)?;
    node.fill(data)?;
    node.server.kill_all();
    let log = restart(&mut node, false)?;
    node.server.stop();
    let image = restart(&mut node, true)?;
    node.server.kill_all();
    drop(node);
    let _ = std::fs::remove_dir_all(&path);
    Ok((log, image))
}

#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn restart(node: &mut Served, from_image: bool) -> Result<Restart, BenchError> {
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
    let bytes = if from_image { node.memory_used()? } else { log_bytes };
    Ok(Restart { seconds, bytes })
}
