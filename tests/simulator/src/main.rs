//! The simulator's command line: one seed in words, or a sweep over many.

use std::process::ExitCode;
use std::time::Duration;

use cell_simulator::seeds::{Seeds, commit, commit_hash, fresh_from};
use cell_simulator::shrink::{Without, shortest};
use cell_simulator::sweep::{Sweep, serve, sweep};
use cell_simulator::{Event, OPERATIONS, RunOptions, run};
use cell_terms::mutant::Mutant;
use clap::Parser;

/// How long the shortest way to a failure is looked for.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs production cores under a seeded clock, disk, network and coordinator.
#[derive(Debug, Parser)]
#[command(name = "cell-simulator", version)]
struct Arguments {
    /// Run one seed and print what happens.
    #[arg(long, conflicts_with_all = ["seed_from", "seeds"])]
    seed: Option<u64>,
    /// With --seed: print only how it ends.
    #[arg(long, requires = "seed")]
    quiet: bool,
    /// First seed of a sweep. Without it, the seeds are fresh: they begin at a number drawn from the commit's
    /// hash.
    #[arg(long)]
    seed_from: Option<u64>,
    /// Before them, run the seeds that are kept because they failed once (`tests/simulator/seeds.txt`).
    #[arg(long, conflicts_with = "seed")]
    kept: bool,
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
    /// commas between them, are planted in turn. Only in debug builds.
    #[arg(long, value_parser = parse_mutant, value_delimiter = ',')]
    mutant: Vec<Mutant>,
    /// Plant each defect that there is in turn. Only in debug builds.
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
    if (options.mutant.is_some() || arguments.mutants) && cfg!(not(debug_assertions)) {
        eprintln!("this build has no mutants: build without --release");
        return ExitCode::FAILURE;
    }
    if arguments.seed.is_some() && arguments.mutant.len() > 1 {
        eprintln!("one seed is run with one mutant");
        return ExitCode::FAILURE;
    }
    match arguments.seed {
        Some(seed) if arguments.shortest => match shortest(seed, options, PATIENCE) {
            Some(found) => {
                found.print();
                ExitCode::FAILURE
            }
            None => {
                println!("seed {seed} passes");
                ExitCode::SUCCESS
            }
        },
        Some(seed) => one(seed, RunOptions { verbose: !arguments.quiet, ..options }),
        None if arguments.serve => {
            serve(arguments.seed_from.unwrap_or(1), arguments.seeds, options);
            ExitCode::SUCCESS
        }
        None => {
            let swept = match arguments.mutant.as_slice() {
                _ if arguments.mutants => mutants(&arguments, options, Mutant::ALL),
                several @ [_, ..] => mutants(&arguments, options, several),
                [] => many(&arguments, options),
            };
            swept.unwrap_or_else(|error| {
                eprintln!("the sweep cannot run: {error}");
                ExitCode::FAILURE
            })
        }
    }
}

/// Plants one defect after the other; each must be found.
fn mutants(arguments: &Arguments, options: RunOptions, planted: &[Mutant]) -> Result<ExitCode, String> {
    let wanted = sweep_of(arguments, options)?;
    let mut missed = 0;
    for mutant in planted {
        let options = RunOptions { mutant: Some(*mutant), ..options };
        let report = sweep(&Sweep { options, ..wanted.clone() }).map_err(|error| error.to_string())?;
        match report.failures.first() {
            Some((seed, why)) => {
                let why = why.split("\\n").next().unwrap_or_default();
                println!("mutant {} caught by seed {seed}: {why}", mutant.name());
            }
            None => {
                missed += 1;
                println!("mutant {} MISSED by {} seeds", mutant.name(), report.passed);
            }
        }
    }
    println!("{} passed, {missed} failed", planted.len() - missed);
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The sweep that was asked for; prints which seeds it runs.
fn sweep_of(arguments: &Arguments, options: RunOptions) -> Result<Sweep, String> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let children = if arguments.processes == 0 { cores } else { arguments.processes };
    let hash = commit_hash();
    let from = arguments.seed_from.unwrap_or_else(|| fresh_from(&hash));
    let fresh = Seeds::consecutive(from, arguments.seeds);
    let seeds = if arguments.kept { fresh.after_kept()? } else { fresh };
    let kept = seeds.count() - arguments.seeds;
    println!("{kept} seeds that are kept, then {} from {from} on; commit {}", arguments.seeds, commit());
    Ok(Sweep { seeds, children, options })
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

fn many(arguments: &Arguments, options: RunOptions) -> Result<ExitCode, String> {
    let report = sweep(&sweep_of(arguments, options)?).map_err(|error| error.to_string())?;
    report.print(&commit(), options);
    let good = report.failures.is_empty() && report.tame(options).is_empty();
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse_mutant(name: &str) -> Result<Mutant, String> {
    let known = Mutant::ALL.iter().find(|mutant| mutant.name() == name).copied();
    let names = || Mutant::ALL.iter().map(|mutant| mutant.name()).collect::<Vec<_>>().join(", ");
    known.ok_or_else(|| format!("one of {}", names()))
}
