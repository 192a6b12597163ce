//! The simulator's command line: one seed in words, or a sweep over many.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use cell_simulator::shrink::{Without, shortest};
use cell_simulator::sweep::{Sweep, serve, sweep};
use cell_simulator::{Event, OPERATIONS, RunOptions, run};
use cell_terms::mutant::Mutant;
use clap::Parser;

/// A run is millions of small allocations on one thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long the shortest way to a failure is looked for.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs production cores under a seeded clock, disk, network and coordinator.
#[derive(Debug, Parser)]
#[command(name = "cell-simulator", version)]
struct Arguments {
    /// Run one seed and tell what happens.
    #[arg(long, conflicts_with_all = ["seed_from", "seeds"])]
    seed: Option<u64>,
    /// With --seed: tell only how it ends.
    #[arg(long, requires = "seed")]
    quiet: bool,
    /// First seed of a sweep.
    #[arg(long, default_value_t = 1)]
    seed_from: u64,
    /// Seeds of a sweep.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// Operations of each run.
    #[arg(long, default_value_t = OPERATIONS)]
    operations: u64,
    /// Operations after which the clients of a run ask no more: see the shortest way to a failure.
    #[arg(long, default_value_t = 0)]
    stop_after: u64,
    /// Faults of a run that do not happen, by number.
    #[arg(long, value_parser = Without::parse, default_value = "")]
    without: Without,
    /// With --seed: look for the shortest way to its failure.
    #[arg(long, requires = "seed")]
    shortest: bool,
    /// Processes of a sweep; 0 takes one a core.
    #[arg(long, default_value_t = 0)]
    processes: usize,
    /// Plant a defect that the checks must find; the sweep then succeeds if a seed fails. Several, with
    /// commas between them, are planted in turn. Only in builds with RUSTFLAGS="--cfg cell_mutants".
    #[arg(long, value_parser = parse_mutant, value_delimiter = ',')]
    mutant: Vec<Mutant>,
    /// Plant each defect that there is in turn. Only in such builds.
    #[arg(long, conflicts_with_all = ["seed", "mutant"])]
    mutants: bool,
    /// Serve a sweep: one line for each seed that begins or ends.
    #[arg(long, hide = true)]
    serve: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let options = RunOptions {
        operations: arguments.operations,
        stop_after: arguments.stop_after,
        without: arguments.without,
        mutant: arguments.mutant.first().copied(),
        ..RunOptions::default()
    };
    if (options.mutant.is_some() || arguments.mutants) && cfg!(not(cell_mutants)) {
        eprintln!("this build has no mutants: build with RUSTFLAGS=\"--cfg cell_mutants\"");
        return ExitCode::FAILURE;
    }
    if arguments.seed.is_some() && arguments.mutant.len() > 1 {
        eprintln!("one seed is run with one mutant");
        return ExitCode::FAILURE;
    }
    match arguments.seed {
        Some(seed) if arguments.shortest => match shortest(seed, options, PATIENCE) {
            Some(found) => {
                found.tell();
                ExitCode::FAILURE
            }
            None => {
                println!("seed {seed} passes");
                ExitCode::SUCCESS
            }
        },
        Some(seed) => one(seed, RunOptions { verbose: !arguments.quiet, ..options }),
        None if arguments.serve => {
            serve(arguments.seed_from, arguments.seeds, options);
            ExitCode::SUCCESS
        }
        None if arguments.mutants => mutants(&arguments, options, Mutant::ALL),
        None if arguments.mutant.len() > 1 => mutants(&arguments, options, &arguments.mutant),
        None => many(&arguments, options),
    }
}

/// Plants one defect after the other; each must be found.
fn mutants(arguments: &Arguments, options: RunOptions, planted: &[Mutant]) -> ExitCode {
    let mut missed = 0;
    for mutant in planted {
        let wanted = sweep_of(arguments, RunOptions { mutant: Some(*mutant), ..options });
        match sweep(wanted) {
            Ok(report) => match report.failures.first() {
                Some((seed, why)) => {
                    let why = why.split("\\n").next().unwrap_or_default();
                    println!("{:<24} caught by seed {seed}: {why}", mutant.name());
                }
                None => {
                    missed += 1;
                    println!("{:<24} MISSED by {} seeds", mutant.name(), report.passed);
                }
            },
            Err(error) => {
                eprintln!("the sweep cannot run: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{} passed, {missed} failed", planted.len() - missed);
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn sweep_of(arguments: &Arguments, options: RunOptions) -> Sweep {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let children = if arguments.processes == 0 { cores } else { arguments.processes };
    Sweep { from: arguments.seed_from, seeds: arguments.seeds, children, options }
}

fn one(seed: u64, options: RunOptions) -> ExitCode {
    if options.verbose {
        tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_writer(std::io::stderr)
            .without_time()
            .init();
    }
    println!("seed {seed}, commit {}", commit());
    let (coverage, verdict) = match run(seed, options) {
        Ok(passed) => {
            let milliseconds = passed.elapsed_ns / 1_000_000;
            println!("digest {:016x}, {} turns, {milliseconds} simulated ms", passed.digest, passed.turns);
            (passed.coverage, None)
        }
        Err(failed) => (failed.coverage.clone(), Some(failed)),
    };
    for event in Event::ALL.iter().filter(|event| coverage.count(**event) > 0) {
        println!("{:>12}  {}", coverage.count(*event), event.name());
    }
    match verdict {
        None => {
            println!("1 passed, 0 failed");
            ExitCode::SUCCESS
        }
        Some(failed) => {
            println!("FAILED at {} simulated us: {}", failed.now_ns / 1_000, failed.broken);
            println!("0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

fn many(arguments: &Arguments, options: RunOptions) -> ExitCode {
    match sweep(sweep_of(arguments, options)) {
        Ok(report) => {
            report.tell(&commit(), options);
            // A mutant is there to be caught.
            let good = match options.mutant {
                Some(_) => !report.failures.is_empty(),
                None => report.failures.is_empty() && !report.lacks_takeovers(),
            };
            if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("the sweep cannot run: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse_mutant(name: &str) -> Result<Mutant, String> {
    let known = Mutant::ALL.iter().find(|mutant| mutant.name() == name).copied();
    let names = || Mutant::ALL.iter().map(|mutant| mutant.name()).collect::<Vec<_>>().join(", ");
    known.ok_or_else(|| format!("one of {}", names()))
}

/// The commit that the sources are at, and whether they were changed since.
fn commit() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let described = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .current_dir(folder)
        .output();
    let described = described.ok().filter(|output| output.status.success());
    described.map_or("unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
