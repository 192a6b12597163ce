//! `restart`: how long an empty `cell dev` takes until it serves and what it takes, and how fast a killed
//! node reads its log and a stopped one its image.

use std::time::{Duration, Instant};

use crate::data::Dataset;
use crate::disk;
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::put::Scratch;
use crate::served::Served;

/// The goal: bytes a second a core.
const GOAL_BYTES: f64 = 1e9;
/// An empty `cell dev` serves within this, and takes less than that.
const START_SECONDS: f64 = 2.0;
const EMPTY_BYTES: f64 = 512.0 * 1024.0 * 1024.0;
/// The log keeps everything until the node is told to stop.
const NO_CHECKPOINTS: [(&str, &str); 2] =
    [("--checkpoint-log-bytes-min", "512GiB"), ("--checkpoint-age-ms", "7 d")];

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
                let bench = format!("restart/from the {what}");
                report.add(Figure::beside(bench, "bytes/s", rate, rival, limit, Goal::AtLeast(1.0)))?;
            }
        }
        rates.push(log.bytes / log.seconds);
    }
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
    let log = restart(&mut node)?;
    node.server.stop();
    let image = restart(&mut node)?;
    node.server.kill_all();
    drop(node);
    let _ = std::fs::remove_dir_all(&path);
    Ok((log, image))
}

#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn restart(node: &mut Served) -> Result<Restart, BenchError> {
    // The predecessor's lease is over by then: what is measured is reading, not waiting.
    disk::pause(Duration::from_secs(1));
    let before = node.server.log().len();
    let started = Instant::now();
    node.server.resume();
    let seconds = started.elapsed().as_secs_f64();
    node.reconnect()?;
    let log = node.server.log();
    let said = log.get(before..).unwrap_or_default();
    let field = |name: &str| -> f64 {
        let values = said.lines().filter(|line| line.contains("pair taken over")).filter_map(|line| {
            let (_, rest) = line.split_once(&format!("{name}="))?;
            rest.split_whitespace().next()?.parse::<f64>().ok()
        });
        values.sum()
    };
    Ok(Restart { seconds, bytes: field("log_bytes") + field("image_bytes") })
}
