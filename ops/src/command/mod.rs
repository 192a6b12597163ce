//! One file a command: its arguments and what it does.

pub(crate) mod completion;
pub(crate) mod dev;
pub(crate) mod man;
pub(crate) mod node;
pub(crate) mod settings;

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
        Command::Settings(arguments) => settings::run(global, arguments),
        Command::Completion(arguments) => completion::run(arguments),
        Command::Man(arguments) => man::run(arguments),
    }
}
