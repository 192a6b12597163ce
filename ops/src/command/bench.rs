//! `cell bench`: measures a running server.

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, value_parser};
use serde_json::json;

use crate::args::{Global, ServerArgs};
use crate::bench::distribution::Pick;
use crate::bench::report::PhaseResult;
use crate::bench::thread::{Shared, Thread};
use crate::bench::workload::Workload;
use crate::exit::{Exit, Failure};
use crate::output::{bar, message, number};
use crate::signal;
use crate::store::Store;

/// Arguments of `cell bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

/// What to measure.
#[derive(Debug, Subcommand)]
enum What {
    /// The core workloads of YCSB (a to f): a load phase, then a run phase
    Ycsb(YcsbArgs),
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
    value_bytes: usize,
    /// Records are there from an earlier run with the same --records
    #[arg(long)]
    skip_load: bool,
    /// Runs with one seed pick the same records
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    server: ServerArgs,
}

/// Loads, runs and reports.
pub(crate) fn run(global: &Global, arguments: &BenchArgs) -> anyhow::Result<Exit> {
    let What::Ycsb(arguments) = &arguments.what;
    let stop = signal::stop_flag()?;
    let stopped = || stop.load(Ordering::Relaxed);
    let load = if arguments.skip_load { None } else { Some(load(arguments, &stopped)?) };
    let run = measure(arguments, &stopped)?;
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
            "load": load.as_ref().map(PhaseResult::to_json),
            "run": run.to_json(),
        }))?;
    } else {
        let mut out = io::stdout().lock();
        for (name, phase) in [("load", load.as_ref()), ("run", Some(&run))] {
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
    Ok(Exit::Ok)
}

fn pick_of(arguments: &YcsbArgs) -> Pick {
    arguments.pick.unwrap_or(arguments.workload.pick())
}

fn load(arguments: &YcsbArgs, stopped: &dyn Fn() -> bool) -> anyhow::Result<PhaseResult> {
    /// Loading is not what is measured; it keeps more in flight.
    const IN_FLIGHT_MIN: usize = 64;
    let depth = usize::from(arguments.in_flight).max(IN_FLIGHT_MIN);
    let shared = Shared::new(0, 0);
    let threads = u64::from(arguments.threads);
    run_threads("loading", arguments, &shared, arguments.records, depth, stopped, &|thread, number| {
        thread.load(number, threads, arguments.records, depth)
    })
}

fn measure(arguments: &YcsbArgs, stopped: &dyn Fn() -> bool) -> anyhow::Result<PhaseResult> {
    let shared = Shared::new(arguments.operations, arguments.records);
    let depth = usize::from(arguments.in_flight);
    run_threads("running", arguments, &shared, arguments.operations, depth, stopped, &|thread, _| {
        thread.run(depth)
    })
}

type Body<'a> = dyn Fn(Thread<'_>, u64) -> anyhow::Result<PhaseResult> + Sync + 'a;

fn run_threads(
    verb: &'static str,
    arguments: &YcsbArgs,
    shared: &Shared,
    total: u64,
    depth: usize,
    stopped: &dyn Fn() -> bool,
    body: &Body<'_>,
) -> anyhow::Result<PhaseResult> {
    let pick = pick_of(arguments);
    let stores = (0..arguments.threads)
        .map(|_| Store::connect_with(&arguments.server, Duration::from_secs(30), depth))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let bar = bar::Bar::new(verb, Some(total), false);
    let started = Instant::now();
    let results = thread::scope(|scope| {
        let start = |(number, store): (u64, Store)| {
            scope.spawn(move || {
                let seed = arguments.seed.wrapping_mul(1 << 16).wrapping_add(number);
                let workload = arguments.workload;
                let thread = Thread::new(store, shared, workload, pick, seed, arguments.value_bytes);
                let result = body(thread, number);
                if result.is_err() {
                    shared.stop.store(true, Ordering::Relaxed);
                }
                result
            })
        };
        let threads: Vec<_> = (0..).zip(stores).map(start).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            if stopped() {
                shared.stop.store(true, Ordering::Relaxed);
            }
            let done = shared.done.load(Ordering::Relaxed);
            bar.set(done, number::rate(number::per_second(done, started.elapsed())));
            thread::sleep(Duration::from_millis(10));
        }
        let joined = threads.into_iter().map(|thread| thread.join().expect("a bench thread does not panic"));
        joined.collect::<Vec<_>>()
    });
    let elapsed = started.elapsed();
    bar.finish();
    let mut phase = PhaseResult { elapsed, ..PhaseResult::default() };
    for result in results {
        phase.add(&result?);
    }
    if stopped() {
        return Err(Failure::new(Exit::Interrupted, "interrupted").into());
    }
    Ok(phase)
}
