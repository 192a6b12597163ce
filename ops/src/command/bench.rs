//! `cell bench`: measures a running server.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, value_parser};
use serde_json::json;

use crate::args::{Global, ServerArgs};
use crate::bench::distribution::Pick;
use crate::bench::report::PhaseResult;
use crate::bench::thread::{Shared, Thread};
use crate::bench::workload::Workload;
use crate::command::bench_clean::{self, CleanArgs};
use crate::exit::{Exit, Failure};
use crate::load::loader::Limits;
use crate::output::{bar, message, number};
use crate::signal;
use crate::store::Store;

/// How long threads that are to stop may wait for what is in flight.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// Arguments of `cell bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

/// What to measure.
#[derive(Debug, Subcommand)]
enum What {
    /// The core workloads of YCSB (a to f): a load phase, then a run phase. Its records stay in the store
    Ycsb(YcsbArgs),
    /// Remove the records that `ycsb` has left, by their keys
    Clean(CleanArgs),
}

/// Arguments of `cell bench ycsb`.
#[derive(Debug, Args)]
struct YcsbArgs {
    /// The workload
    #[arg(long, value_enum, default_value = "a")]
    workload: Workload,
    /// How records are picked; the workload's own way if not given
    #[arg(long, value_enum)]
    pick: Option<Pick>,
    /// Records that are loaded first
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = value_parser!(u64).range(1..))]
    records: u64,
    /// Operations that are measured
    #[arg(long, value_name = "M", default_value_t = 1_000_000)]
    operations: u64,
    /// Threads, each with a client of its own
    #[arg(long, value_name = "T", default_value_t = 8, value_parser = value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Operations that each thread keeps in flight
    #[arg(long, value_name = "D", default_value_t = 1, value_parser = value_parser!(u16).range(1..=16384))]
    in_flight: u16,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    value_bytes: u32,
    /// Records are there from an earlier run with the same --records
    #[arg(long)]
    skip_load: bool,
    /// Runs with one seed pick the same records
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the command.
pub(crate) fn run(global: &Global, arguments: &BenchArgs) -> anyhow::Result<Exit> {
    match &arguments.what {
        What::Ycsb(arguments) => ycsb(global, arguments),
        What::Clean(arguments) => bench_clean::run(global, arguments),
    }
}

/// Loads, runs and reports; however it ends, it says how the records are removed that stay.
fn ycsb(global: &Global, arguments: &YcsbArgs) -> anyhow::Result<Exit> {
    let stop = signal::stop_flag()?;
    let mut records = None;
    let phases = run_phases(arguments, &stop, &mut records);
    if let Some(records) = records {
        let clean = arguments.server.command(&format!("cell bench clean --records {records}"));
        message::note(&format!("the records of the benchmark stay in the store; {clean} removes them"));
    }
    let (load, run) = phases?;
    report(global, arguments, load.as_ref(), &run)?;
    Ok(Exit::Ok)
}

/// The load, if there is one, and the run. `records` is how many numbers of records may be in the store, once
/// something was asked of it.
fn run_phases(
    arguments: &YcsbArgs,
    stop: &AtomicBool,
    records: &mut Option<u64>,
) -> anyhow::Result<(Option<PhaseResult>, PhaseResult)> {
    let mut phase = |shared: &Shared, result: anyhow::Result<PhaseResult>| {
        let has_asked = shared.done.load(Ordering::Relaxed) > 0 || shared.is_left.load(Ordering::Relaxed);
        if result.is_ok() || has_asked {
            *records = Some(shared.records().max(arguments.records));
        }
        result
    };
    let load = match arguments.skip_load {
        true => None,
        false => {
            let shared = Arc::new(Shared::new(0, 0));
            Some(phase(&shared, load(arguments, &shared, stop))?)
        }
    };
    let shared = Arc::new(Shared::new(arguments.operations, arguments.records));
    let run = phase(&shared, measure(arguments, &shared, stop))?;
    Ok((load, run))
}

fn report(
    global: &Global,
    arguments: &YcsbArgs,
    load: Option<&PhaseResult>,
    run: &PhaseResult,
) -> anyhow::Result<()> {
    if global.json {
        message::print_json(json!({
            "bench": "ycsb",
            "workload": arguments.workload.name(),
            "pick": format!("{:?}", pick_of(arguments)).to_lowercase(),
            "records": arguments.records,
            "operations": arguments.operations,
            "threads": arguments.threads,
            "in_flight": arguments.in_flight,
            "value_bytes": arguments.value_bytes,
            "seed": arguments.seed,
            "load": load.map(PhaseResult::to_json),
            "run": run.to_json(),
        }))?;
    } else {
        let mut out = io::stdout().lock();
        for (name, phase) in [("load", load), ("run", Some(run))] {
            let Some(phase) = phase else { continue };
            let per_second = number::rate(number::per_second(phase.operations(), phase.elapsed));
            let operations = number::count(phase.operations());
            let elapsed = number::time(phase.elapsed);
            writeln!(
                out,
                "{name}: {operations} operations in {elapsed}, {per_second}\n{}",
                phase.to_table()
            )?;
        }
    }
    Ok(())
}

fn pick_of(arguments: &YcsbArgs) -> Pick {
    arguments.pick.unwrap_or(arguments.workload.pick())
}

fn load(arguments: &YcsbArgs, shared: &Arc<Shared>, stop: &AtomicBool) -> anyhow::Result<PhaseResult> {
    /// Loading is not what is measured; it keeps more in flight.
    const IN_FLIGHT_MIN: usize = 64;
    let depth = usize::from(arguments.in_flight).max(IN_FLIGHT_MIN);
    let (threads, records) = (u64::from(arguments.threads), arguments.records);
    let body = move |thread: Thread<'_>, number: u64| thread.load(number, threads, records, depth);
    run_threads("loading", arguments, shared, records, depth, stop, &(Arc::new(body) as Body))
}

fn measure(arguments: &YcsbArgs, shared: &Arc<Shared>, stop: &AtomicBool) -> anyhow::Result<PhaseResult> {
    let depth = usize::from(arguments.in_flight);
    let body = move |thread: Thread<'_>, _: u64| thread.run(depth);
    run_threads("running", arguments, shared, arguments.operations, depth, stop, &(Arc::new(body) as Body))
}

type Body = Arc<dyn Fn(Thread<'_>, u64) -> anyhow::Result<PhaseResult> + Send + Sync>;

fn run_threads(
    verb: &'static str,
    arguments: &YcsbArgs,
    shared: &Arc<Shared>,
    total: u64,
    depth: usize,
    stop: &AtomicBool,
    body: &Body,
) -> anyhow::Result<PhaseResult> {
    let (pick, value_bytes) = (pick_of(arguments), usize::try_from(arguments.value_bytes)?);
    let stores = (0..arguments.threads)
        .map(|_| Store::connect_unless(stop, &arguments.server, Duration::from_secs(30), depth))
        .collect::<anyhow::Result<Vec<_>>>()?;
    stores.first().map_or(Ok(()), |store| check_value(value_bytes, store.limits()))?;
    let bar = bar::Bar::new(verb, Some(total), false);
    let started = Instant::now();
    let start = |(number, store): (u64, Store)| {
        let (shared, body) = (Arc::clone(shared), Arc::clone(body));
        let workload = arguments.workload;
        let seed = arguments.seed.wrapping_mul(1 << 16).wrapping_add(number);
        thread::spawn(move || {
            let thread = Thread::new(store, &shared, workload, pick, seed, value_bytes);
            let result = body(thread, number);
            if result.is_err() {
                shared.stop.store(true, Ordering::Relaxed);
            }
            result
        })
    };
    let threads: Vec<_> = (0..).zip(stores).map(start).collect();
    let mut stopped_at: Option<Instant> = None;
    while threads.iter().any(|thread| !thread.is_finished()) {
        if stop.load(Ordering::Relaxed) {
            shared.stop.store(true, Ordering::Relaxed);
            // What they wait for is left behind with them: the process ends.
            if stopped_at.get_or_insert_with(Instant::now).elapsed() >= STOP_PATIENCE {
                shared.is_left.store(true, Ordering::Relaxed);
                bar.finish();
                return Err(interrupted());
            }
        }
        let done = shared.done.load(Ordering::Relaxed);
        bar.set(done, number::rate(number::per_second(done, started.elapsed())));
        thread::sleep(Duration::from_millis(10));
    }
    bar.finish();
    let joined = threads.into_iter().map(|thread| thread.join().expect("a bench thread does not panic"));
    let results = joined.collect::<anyhow::Result<Vec<_>>>()?;
    if stop.load(Ordering::Relaxed) {
        return Err(interrupted());
    }
    Ok(PhaseResult::of_threads(started, &results))
}

/// Whether the store takes values of this length: each thread makes one before it asks.
fn check_value(bytes: usize, limits: Limits) -> Result<(), Failure> {
    let max = limits.value_bytes_max;
    if bytes <= max {
        return Ok(());
    }
    let failure =
        Failure::usage(format!("values of {bytes} bytes are too long for the store: {max} are permitted"));
    Err(failure.next("give less --value-bytes; the longest goes by `value_bytes_max`"))
}

fn interrupted() -> anyhow::Error {
    Failure::new(Exit::Interrupted, "interrupted").into()
}
