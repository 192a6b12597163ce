//! `cargo run --release -p cell-benches -- BENCH [--entries N] [--json]`, where BENCH is one of those in
//! `options.rs`: one row a figure.

use std::process::ExitCode;

use cell_benches::figure::Report;
use cell_benches::options::{BenchError, Cli, Command};
use cell_benches::{
    balance, checkpoint, console, coordinator, fabric, flush, footprint, gluster, local, log, moves,
    onesided, pages, paper, processes, put, reader_process, regions, restart, restore, rolling, selector,
    split, stall, takeover, tls, tree,
};
use clap::Parser;

fn run(cli: &Cli) -> Result<(), BenchError> {
    if matches!(cli.command, Command::Local(_)) {
        pages::for_rivals()?;
    }
    let mut out = std::io::stdout().lock();
    match &cli.command {
        Command::Local(options) => local::run(options, &mut Report::new(&mut out, options.json)),
        Command::Memory(options) => footprint::run(options, &mut Report::new(&mut out, options.json)),
        Command::Checkpoint(options) => checkpoint::run(options, &mut Report::new(&mut out, options.json)),
        Command::Console(options) => console::run(options, &mut Report::new(&mut out, options.json)),
        Command::Paper(options) => paper::run(options, &mut out),
        Command::Put(options) => put::run(options, &mut Report::new(&mut out, options.json)),
        Command::Onesided(parts) => onesided::run(parts, &mut Report::new(&mut out, parts.options.json)),
        Command::Restart(options) => restart::run(options, &mut Report::new(&mut out, options.json)),
        Command::Selector(parts) => selector::run(parts, &mut Report::new(&mut out, parts.options.json)),
        Command::Split(options) => split::run(options, &mut Report::new(&mut out, options.json)),
        Command::Stall(options) => stall::run(options, &mut Report::new(&mut out, options.json)),
        Command::Takeover(options) => takeover::run(options, &mut Report::new(&mut out, options.json)),
        Command::Coordinator(options) => coordinator::run(options, &mut Report::new(&mut out, options.json)),
        Command::Moves(moves) => moves::run(moves, &mut Report::new(&mut out, moves.options.json)),
        Command::Balance(parts) => balance::run(parts, &mut Report::new(&mut out, parts.options.json)),
        Command::Rolling(options) => rolling::run(options, &mut Report::new(&mut out, options.json)),
        Command::Processes(options) => processes::run(options, &mut Report::new(&mut out, options.json)),
        Command::Fabric(parts) => fabric::run(parts, &mut Report::new(&mut out, parts.options.json)),
        Command::Log(options) => log::run(options, &mut Report::new(&mut out, options.json)),
        Command::Flush(options) => flush::run(options, &mut Report::new(&mut out, options.json)),
        Command::Regions(options) => regions::run(options, &mut Report::new(&mut out, options.json)),
        Command::Restore(options) => restore::run(options, &mut Report::new(&mut out, options.json)),
        Command::Gluster(given) => gluster::run(given, &mut Report::new(&mut out, given.options.json)),
        Command::Tls(options) => tls::run(options, &mut Report::new(&mut out, options.json)),
        Command::Tree(tree) => tree::run(tree, &mut Report::new(&mut out, tree.options.json)),
        Command::Reader(arguments) => reader_process::run(arguments, &mut out),
        Command::MemoryOf(arguments) => {
            drop(out);
            println!("{}", footprint::run_child(arguments)?);
            Ok(())
        }
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cell-benches: {error}");
            ExitCode::FAILURE
        }
    }
}
