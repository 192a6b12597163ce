//! `gluster`: durable puts of a node whose log root is on a file system that replicates, GlusterFS say,
//! beside what fio's synced writes allow there: batches of the node's own size, to two files, in turns with
//! the puts.

use std::path::Path;
use std::time::Instant;

use crate::contest::median;
use crate::data::{Batch, Dataset};
use crate::disk;
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, GlusterOptions, Options};
use crate::put::{NO_CHECKPOINTS, OUTSTANDING, Scratch, Work, shape};
use crate::served::Served;

/// The part of what fio's writes allow.
const GOAL: Goal = Goal::AtLeast(0.5);
const BLOCK_BYTES: u64 = 4096;

/// Runs the bench.
///
/// # Errors
/// A node, a client, a disk or fio that failed.
pub fn run(given: &GlusterOptions, report: &mut Report<'_>) -> Result<(), BenchError> {
    if !disk::has("fio") {
        report.note("SKIPPED: our puts beside fio's synced writes: fio is missing (apt install fio)");
        return Ok(());
    }
    let options = &given.options;
    let data = Dataset { entries: options.entries, seed: options.seed };
    let own = Scratch::new(options.dir.as_deref())?;
    let shared = given.log_root.as_deref().map(|folder| Scratch::new(Some(folder))).transpose()?;
    let root = std::path::absolute(&shared.as_ref().unwrap_or(&own).0)?;
    // Locks, sockets and the coordinator stay on the local disk.
    let (home, logs) = (own.0.join("node"), root.join("logs"));
    std::fs::create_dir_all(&home)?;
    std::fs::create_dir_all(&logs)?;
    std::os::unix::fs::symlink(&logs, home.join("log"))?;
    let mut node = Served::start(&home, data.entries, &NO_CHECKPOINTS)?;
    node.fill(&data)?;
    let work = Work::new(&data, usize::from(options.rounds));
    for outstanding in OUTSTANDING {
        beside_fio(&mut node, &work, outstanding, &root, options, report)?;
    }
    Ok(())
}

/// Puts with so many outstanding beside fio, which writes as many bytes in as many writes.
fn beside_fio(
    node: &mut Served,
    work: &Work,
    outstanding: usize,
    root: &Path,
    options: &Options,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let shape = shape(node, work, outstanding, options)?;
    // Half of the bytes in each file, as the logs of this data have it within a tenth.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and far below 2^63")]
    let half = ((shape.bytes / 2.0) as u64).max(1).next_multiple_of(BLOCK_BYTES);
    report.note(&format!(
        "{outstanding} outstanding: {:.1} puts a batch; fio writes {half} bytes to each of two files",
        shape.puts
    ));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (round, batch) in work.batches.iter().enumerate() {
        let puts = rate(node, batch, outstanding)?;
        let batches = disk::fio_batches(root, options, half)?;
        // The first round is to warm up.
        if round > 0 {
            ours.push(puts);
            theirs.push(batches * shape.puts);
        }
    }
    node.check_node()?;
    let (bench, rival) = (format!("gluster/durable {outstanding}"), "fio, dsync writes of the same batches");
    report.add(Figure::beside(bench, "op/s", median(&ours), rival, median(&theirs), GOAL))?;
    Ok(())
}

/// Puts a second.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn rate(node: &mut Served, batch: &Batch, outstanding: usize) -> Result<f64, BenchError> {
    let started = Instant::now();
    let puts = node.put(batch, outstanding)?;
    Ok(puts as f64 / started.elapsed().as_secs_f64())
}
