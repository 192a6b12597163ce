//! `cell completion`: scripts that complete commands and options in a shell.

use std::io::{self, Write};

use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::Exit;

/// Arguments of `cell completion`.
#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script for a command line.
pub(crate) fn run(arguments: &CompletionArgs, mut definition: Command) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut definition, "cell", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(Exit::Ok)
}
