//! `memory`: what engines take after random inserts. Each fills itself in a process of its own, because what
//! counts is what the kernel gave: resident pages after, less those before.

use std::io::Write;
use std::process::Command;

use cell_memory::HugePages;
use cell_tests::reaper;
use serde::{Deserialize, Serialize};

use crate::data::Dataset;
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, MemoryOf, Options};
use crate::ours::{Footprint, Ours, Sizes};
use crate::put::Scratch;
use crate::redis::{self, Keeps, Redis};
use crate::rival::{Masstree, Rival, Standard};

/// Our engine's name on the command line of the child.
const OURS: &str = "cell";
/// Entries made at a time; their buffers are in the resident pages of all engines alike.
const BATCH_ENTRIES: u64 = 10_000;

/// What a child says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Taken {
    /// Resident bytes that filling added.
    resident: u64,
    /// What our own allocators say.
    ours: Option<Footprint>,
}

/// Runs the bench.
///
/// # Errors
/// A child that failed, or an output that cannot be written.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let data = Dataset { entries: options.entries, seed: options.seed };
    let raw = data.raw_bytes() as f64;
    let beside_raw = |bench: &str, bytes: u64, goal: Goal| {
        Figure::beside(format!("memory/{bench}"), "bytes", bytes as f64, "raw keys and values", raw, goal)
    };
    let ours = child(OURS, options)?;
    if let Some(Footprint { tree, extents, extents_wasted, populated }) = ours.ours {
        report.add(beside_raw("tree and extents", tree + extents, Goal::AtMost(1.6)))?;
        report.add(beside_raw("tree", tree, Goal::None))?;
        report.add(beside_raw("extents", extents, Goal::None))?;
        let (wasted, all) = (extents_wasted as f64, extents as f64);
        let bench = "memory/waste of extents";
        report.add(Figure::beside(bench, "bytes", wasted, "extents", all, Goal::AtMost(0.15)))?;
        report.add(beside_raw("populated ahead too", populated, Goal::None))?;
    }
    report.add(beside_raw("resident, cell", ours.resident, Goal::None))?;
    for rival in [Masstree::NAME, Standard::NAME] {
        let resident = child(rival, options)?.resident;
        report.add(beside_raw(&format!("resident, {rival}"), resident, Goal::None))?;
    }
    if !redis::is_installed() {
        report.note("SKIPPED: Redis's memory: redis-server is missing (apt install redis-server)");
        return Ok(());
    }
    let folder = Scratch::new(options.dir.as_deref())?;
    let mut server = Redis::start(&folder.0, Keeps::Dump)?;
    let before = server.resident_bytes();
    server.fill(&data)?;
    report.add(beside_raw("resident, Redis", server.resident_bytes() - before, Goal::None))?;
    Ok(())
}

fn child(engine: &str, options: &Options) -> Result<Taken, BenchError> {
    let mut command = Command::new(std::env::current_exe()?);
    reaper::mark(&mut command);
    let output = command
        .args(["memory-of", "--engine", engine])
        .args(["--entries", &options.entries.to_string(), "--seed", &options.seed.to_string()])
        .output()?;
    if !output.status.success() {
        // Who has closed standard error does not want to know.
        let _ = std::io::stderr().write_all(&output.stderr);
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The child: fills one engine and prints what it took.
///
/// # Errors
/// An unknown engine, or too little memory.
pub fn run_child(arguments: &MemoryOf) -> Result<String, BenchError> {
    let data = Dataset { entries: arguments.options.entries, seed: arguments.options.seed };
    let taken = match arguments.engine.as_str() {
        OURS => fill_ours(&data)?,
        name if name == Masstree::NAME => fill_rival::<Masstree>(&data)?,
        name if name == Standard::NAME => fill_rival::<Standard>(&data)?,
        _ => return Err(BenchError::Engine),
    };
    Ok(serde_json::to_string(&taken)?)
}

fn batches(data: &Dataset) -> impl Iterator<Item = (u64, u64)> + '_ {
    let starts = (0..data.entries).step_by(usize::try_from(BATCH_ENTRIES).unwrap_or(1));
    starts.map(|first| (first, (first + BATCH_ENTRIES).min(data.entries)))
}

fn fill_ours(data: &Dataset) -> Result<Taken, BenchError> {
    let before = resident()?;
    let mut ours = Ours::new(Sizes::for_entries(data.entries), HugePages::Auto)?;
    for (first, last) in batches(data) {
        ours.populate()?;
        ours.insert(&data.batch(first, last))?;
    }
    Ok(Taken { resident: resident()?.saturating_sub(before), ours: Some(ours.footprint()) })
}

fn fill_rival<R: Rival>(data: &Dataset) -> Result<Taken, BenchError> {
    let before = resident()?;
    let mut rival = R::new();
    for (first, last) in batches(data) {
        rival.insert(&data.batch(first, last));
    }
    let taken = Taken { resident: resident()?.saturating_sub(before), ours: None };
    // A map of millions of boxes takes seconds to drop; the process ends anyway.
    std::mem::forget(rival);
    Ok(taken)
}

/// Resident bytes of this process, shared mappings included.
fn resident() -> Result<u64, BenchError> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    Ok(pages * rustix::param::page_size() as u64)
}
