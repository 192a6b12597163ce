//! `cell inspect`: what is on disk, without a server, and the table of a coordinator wherever that is. Of
//! logs and images nothing is written, and a folder in use can be read too: what a living node is writing
//! shows as the log's end then. No row of a table is changed. The folder of an embedded coordinator's table
//! is opened as by that itself, so it is not read while that runs: its lock is taken, permissions are set,
//! the room that is kept for it is made, and tables are removed that do not count any more.

mod image;
mod log;
mod record;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use cell_wal::{RealStorage, Storage};
use clap::{ArgMatches, Args, Subcommand};

use crate::args::Global;
use crate::exit::{Exit, Failure};

/// Arguments of `cell inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(subcommand)]
    what: What,
}

/// What to look at.
#[derive(Debug, Subcommand)]
enum What {
    /// Logs: segments, frames, records, and where and how each log ends
    Log(log::LogArgs),
    /// Checkpoint images: what is in them, every block checked
    Image(image::ImageArgs),
    /// The region table: pairs, owners, epochs, cuts, checkpoints, and which nodes have joined
    Table(table::TableArgs),
}

/// Looks, and says what is there. Exit code 7 if something is damaged.
pub(crate) fn run(global: &Global, arguments: &InspectArgs, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let own = matches.subcommand().context("clap has taken a command")?.1;
    match &arguments.what {
        What::Log(arguments) => log::run(global, arguments),
        What::Image(arguments) => image::run(global, arguments),
        What::Table(arguments) => table::run(global, arguments, own),
    }
}

/// The log root of a data folder: `DIR/log` if there is one, else DIR itself.
fn log_root(dir: &Path) -> PathBuf {
    let below = dir.join("log");
    if below.is_dir() { below } else { dir.to_owned() }
}

/// The storage below a folder, which must be there.
fn storage(dir: &Path) -> anyhow::Result<Arc<dyn Storage>> {
    if !dir.is_dir() {
        let failure = Failure::usage(format!("there is no folder {}", dir.display()));
        return Err(failure.next("give the data folder of a node (./cell-data for `cell dev`)").into());
    }
    Ok(Arc::new(RealStorage::open(&log_root(dir))?))
}
