//! `cell tree`: the shape of the tree, where a key is in it, whether it keeps its rules.

mod check;
mod locate;
mod show;

use clap::{Args, Subcommand};

use crate::args::Global;
use crate::exit::Exit;

/// Arguments of `cell tree`.
#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    #[command(subcommand)]
    what: TreeCommand,
}

/// What to do with the tree.
#[derive(Debug, Subcommand)]
enum TreeCommand {
    /// Print the meganodes in key order: where they are, how full, from which key on
    Show(show::ShowArgs),
    /// Print where a key is, and by which tree nodes a search comes to it
    Locate(locate::LocateArgs),
    /// Check every tree node while the cluster serves; `cell verify` also compares all checksums
    Check(check::CheckArgs),
}

/// Runs the command.
pub(crate) fn run(global: &Global, arguments: &TreeArgs) -> anyhow::Result<Exit> {
    match &arguments.what {
        TreeCommand::Show(arguments) => show::run(global, arguments),
        TreeCommand::Locate(arguments) => locate::run(global, arguments),
        TreeCommand::Check(arguments) => check::run(global, arguments),
    }
}
