//! `cargo run --release -p cell-benches -- BENCH [--entries N] [--json]`, where BENCH is one of those in
//! `options.rs`: one row a figure.

use std::io::Write;
use std::process::ExitCode;

use cell_benches::figure::Report;
use cell_benches::options::{BenchError, Cli, Command, Options};
use cell_benches::{
    balance, binary, checkpoint, console, coordinator, fabric, flush, footprint, gluster, local, log, moves,
    onesided, pages, paper, processes, put, reader_process, regions, restart, restore, rolling, selector,
    split, stall, takeover, tls, tree,
};
use clap::Parser;

/// How often a bench measures what has a goal.
#[derive(Clone, Copy)]
enum Measured {
    EachRound,
    /// It takes so long that it is done less often.
    EachRepeat,
    /// As often as it is whatever the rounds, or nothing has a goal.
    Else,
}

/// What a bench reports to.
fn reporting<'a>(options: &Options, measured: Measured, out: &'a mut dyn Write) -> Report<'a> {
    let report = Report::new(out, options.json);
    match measured {
        Measured::EachRound => report.measured(options.rounds.into()),
        Measured::EachRepeat => report.measured(options.repeats()),
        Measured::Else => report,
    }
}

fn run(cli: &Cli) -> Result<(), BenchError> {
    use Measured::{EachRepeat, EachRound, Else};
    if matches!(cli.command, Command::Local(_)) {
        pages::for_rivals()?;
    }
    if cli.command.starts_nodes() {
        binary::choose()?;
    }
    let mut out = std::io::stdout().lock();
    match &cli.command {
        Command::Local(options) => local::run(options, &mut reporting(options, EachRound, &mut out)),
        Command::Memory(options) => footprint::run(options, &mut reporting(options, Else, &mut out)),
        Command::Checkpoint(options) => checkpoint::run(options, &mut reporting(options, Else, &mut out)),
        Command::Console(options) => console::run(options, &mut reporting(options, EachRound, &mut out)),
        Command::Paper(options) => paper::run(options, &mut out),
        Command::Put(options) => put::run(options, &mut reporting(options, EachRound, &mut out)),
        Command::Onesided(parts) => onesided::run(parts, &mut reporting(&parts.options, EachRound, &mut out)),
        Command::Restart(options) => restart::run(options, &mut reporting(options, EachRepeat, &mut out)),
        Command::Selector(parts) => selector::run(parts, &mut reporting(&parts.options, EachRound, &mut out)),
        Command::Split(options) => split::run(options, &mut reporting(options, EachRepeat, &mut out)),
        Command::Stall(options) => stall::run(options, &mut reporting(options, Else, &mut out)),
        Command::Takeover(options) => takeover::run(options, &mut reporting(options, EachRepeat, &mut out)),
        Command::Coordinator(options) => {
            coordinator::run(options, &mut reporting(options, EachRepeat, &mut out))
        }
        Command::Moves(moves) => {
            let report = reporting(&moves.options, Else, &mut out);
            moves::run(moves, &mut report.measured(moves.moves.into()))
        }
        Command::Balance(parts) => balance::run(parts, &mut reporting(&parts.options, EachRepeat, &mut out)),
        Command::Rolling(options) => rolling::run(options, &mut reporting(options, Else, &mut out)),
        Command::Processes(options) => processes::run(options, &mut reporting(options, EachRound, &mut out)),
        Command::Fabric(parts) => fabric::run(parts, &mut reporting(&parts.options, Else, &mut out)),
        Command::Log(options) => log::run(options, &mut reporting(options, Else, &mut out)),
        Command::Flush(options) => flush::run(options, &mut reporting(options, EachRound, &mut out)),
        Command::Regions(options) => regions::run(options, &mut reporting(options, Else, &mut out)),
        Command::Restore(options) => restore::run(options, &mut reporting(options, EachRepeat, &mut out)),
        Command::Gluster(given) => gluster::run(given, &mut reporting(&given.options, EachRound, &mut out)),
        Command::Tls(options) => tls::run(options, &mut reporting(options, EachRound, &mut out)),
        Command::Tree(tree) => tree::run(tree, &mut reporting(&tree.options, Else, &mut out)),
        Command::Reader(arguments) => reader_process::run(arguments, &mut out),
        Command::MemoryOf(arguments) => Ok(writeln!(out, "{}", footprint::run_child(arguments)?)?),
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // It ends with that code also where nobody reads why.
            let _ = writeln!(std::io::stderr(), "cell-benches: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
