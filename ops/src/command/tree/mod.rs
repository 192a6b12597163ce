//! `cell tree`: the shape of the tree, and where a key is in it.

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
}

/// Runs the command.
pub(crate) fn run(global: &Global, arguments: &TreeArgs) -> anyhow::Result<Exit> {
    match &arguments.what {
        TreeCommand::Show(arguments) => show::run(global, arguments),
        TreeCommand::Locate(arguments) => locate::run(global, arguments),
    }
}
