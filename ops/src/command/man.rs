//! `cell man`: manual pages, made from the command line's definition.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};

use crate::exit::Exit;

/// Arguments of `cell man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write cell.1 and a page for each command into this folder, instead of cell.1 to stdout
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints or writes the pages of a command line.
pub(crate) fn run(arguments: &ManArgs, definition: Command) -> anyhow::Result<Exit> {
    match &arguments.dir {
        Some(dir) => {
            fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
            clap_mangen::generate_to(definition, dir)
                .with_context(|| format!("cannot write into {}", dir.display()))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(definition).render(&mut page)?;
            io::stdout().lock().write_all(&page)?;
        }
    }
    Ok(Exit::Ok)
}
