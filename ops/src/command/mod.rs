//! One file a command: its arguments and what it does.

pub(crate) mod bench;
pub(crate) mod cas;
pub(crate) mod completion;
pub(crate) mod del;
pub(crate) mod dev;
pub(crate) mod drill;
pub(crate) mod dump;
pub(crate) mod get;
pub(crate) mod inspect;
pub(crate) mod load;
pub(crate) mod man;
pub(crate) mod node;
pub(crate) mod put;
pub(crate) mod scan;
pub(crate) mod settings;
pub(crate) mod status;
pub(crate) mod tree;
pub(crate) mod verify;

use clap::ArgMatches;

use crate::cli::{Cli, Command};
use crate::exit::Exit;

/// Runs the command that was given.
pub(crate) fn run(cli: &Cli, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let own = matches.subcommand().expect("clap demands a command").1;
    let global = &cli.global;
    match &cli.command {
        Command::Dev(arguments) => dev::run(global, arguments, own),
        Command::Node(arguments) => node::run(global, arguments, own),
        Command::Get(arguments) => get::run(global, arguments),
        Command::Put(arguments) => put::run(global, arguments),
        Command::Del(arguments) => del::run(global, arguments),
        Command::Cas(arguments) => cas::run(global, arguments),
        Command::Scan(arguments) => scan::run_scan(global, arguments),
        Command::Count(arguments) => scan::run_count(global, arguments),
        Command::Load(arguments) => load::run(global, arguments),
        Command::Drill(arguments) => drill::run(global, arguments),
        Command::Dump(arguments) => dump::run(global, arguments),
        Command::Status(arguments) => status::run(global, arguments),
        Command::Tree(arguments) => tree::run(global, arguments),
        Command::Verify(arguments) => verify::run(global, arguments),
        Command::Inspect(arguments) => inspect::run(global, arguments),
        Command::Bench(arguments) => bench::run(global, arguments),
        Command::Settings(arguments) => settings::run(global, arguments),
        Command::Completion(arguments) => completion::run(arguments),
        Command::Man(arguments) => man::run(arguments),
    }
}
