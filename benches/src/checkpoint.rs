//! `checkpoint`: what checkpoints cost a store whose meganodes split under full write load: the same random
//! inserts, in turns, into a node that takes one checkpoint after the other, into one whose checkpoints do
//! not stand back (`checkpoint_niceness` 0), and into one that takes none.

use std::time::Duration;

use cell_client::ClientOptions;

use crate::data::{Batch, Dataset};
use crate::disk;
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::put::{CHECKPOINTING, NO_CHECKPOINTS, SNAPSHOT_AGE, Scratch};
use crate::served::Served;
use crate::split::{SMALL, Writer, now};

/// Parts in which the entries are put, in turns.
const ROUNDS_LEAST: usize = 20;

/// Slots that so many entries split many times are those of `split`; for fewer they are smaller.
const MANY: u64 = 500_000;
const FEW_ENTRIES: [(&str, &str); 2] = [("--slot-bytes", "1MiB"), ("--node-region-bytes", "66MiB")];

/// The thread that writes a checkpoint is one of equals.
const EAGER: [(&str, &str); 1] = [("--checkpoint-niceness", "0")];

/// A node, and what its turns took.
struct Turns {
    node: Served,
    writer: Writer,
    puts: u64,
    time: Duration,
}

impl Turns {
    fn new(node: Served) -> Result<Self, BenchError> {
        let writer = Writer::new(&node, false)?;
        Ok(Self { node, writer, puts: 0, time: Duration::ZERO })
    }

    fn put(&mut self, batch: &Batch) -> Result<(), BenchError> {
        let started = now();
        self.puts += self.writer.put(batch)?;
        self.time += now() - started;
        // A copy that still goes on must not slow the other nodes down.
        while self.node.metric("cell_pair_checkpoint_running")? > 0.0 {
            disk::pause(SNAPSHOT_AGE / 4);
        }
        Ok(())
    }

    fn checkpoints(&self) -> Result<f64, BenchError> {
        self.node.metric("cell_pair_checkpoints_total")
    }

    /// The time within which so many of a thousand puts were done, in milliseconds.
    fn share_ms(&self, of_thousand: usize) -> f64 {
        let mut times = self.writer.times.clone();
        times.sort_unstable();
        let last = times.len().saturating_sub(1);
        times.get(last.min(times.len() * of_thousand / 1000)).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }

    fn rate(&self) -> f64 {
        self.puts as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

/// Runs the bench.
///
/// # Errors
/// A node or a client that failed.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let data = Dataset { entries: options.entries, seed: options.seed };
    let folder = Scratch::new(options.dir.as_deref())?;
    let start = |name: &str, more: &[(&str, &str)]| {
        let slots = if data.entries < MANY { FEW_ENTRIES } else { SMALL };
        Turns::new(Served::start(&folder.0.join(name), data.entries, &[&slots[..], more].concat())?)
    };
    let (mut with, mut without) = (start("with", &CHECKPOINTING)?, start("without", &NO_CHECKPOINTS)?);
    let mut eager = start("eager", &[&CHECKPOINTING[..], &EAGER].concat())?;
    let rounds = usize::from(options.rounds).max(ROUNDS_LEAST);
    let size = data.entries / rounds as u64;
    for round in 0..rounds as u64 {
        let batch = data.batch(round * size, (round + 1) * size);
        with.put(&batch)?;
        without.put(&batch)?;
        eager.put(&batch)?;
    }
    disk::pause(SNAPSHOT_AGE);
    for turns in [&with, &without, &eager] {
        turns.node.check_node()?;
    }
    let (taken, eagerly, none) = (with.checkpoints()?, eager.checkpoints()?, without.checkpoints()?);
    report.note(&format!(
        "{taken:.0} checkpoints in {rounds} turns of {size} puts, {eagerly:.0} at niceness 0; {none:.0} without"
    ));
    report.add(Figure::alone("checkpoint/checkpoints taken", "checkpoints", taken))?;
    let [_, splits, ..] = with.node.client(ClientOptions::default())?.tree(u32::MAX)?.report().splits;
    report.add(Figure::alone("checkpoint/splits meanwhile", "splits", splits as f64))?;
    let beside = |name: &str, unit, ours, theirs, goal| {
        Figure::beside(format!("checkpoint/{name}"), unit, ours, "the same without checkpoints", theirs, goal)
    };
    report.add(beside("inserts", "op/s", with.rate(), without.rate(), Goal::AtLeast(0.9)))?;
    let [ours, theirs] = [&with, &without].map(|turns| turns.share_ms(1000));
    report.add(beside("longest insert", "ms", ours, theirs, Goal::AtMost(1.5)))?;
    let [ours, theirs] = [&with, &without].map(|turns| turns.share_ms(999));
    report.add(beside("p99.9 of an insert", "ms", ours, theirs, Goal::None))?;
    report.add(beside("inserts, niceness 0", "op/s", eager.rate(), without.rate(), Goal::None))?;
    let ours = eager.share_ms(1000);
    let theirs = without.share_ms(1000);
    report.add(beside("longest insert, niceness 0", "ms", ours, theirs, Goal::None))?;
    Ok(())
}
