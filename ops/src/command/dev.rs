//! `cell dev`: a supervisor with the embedded coordinator and its nodes as children.

use std::path::PathBuf;

use clap::{ArgMatches, Args};

use crate::cli::Global;
use crate::exit::{Exit, Failure};

/// Arguments of `cell dev`.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Folder of all data; created if missing
    #[arg(long, value_name = "DIR", default_value = "./cell-data")]
    pub(crate) dir: PathBuf,
    /// First port P: node i on P+i, its HTTP on P+80+i, the coordinator on P+200
    #[arg(long, value_name = "P", default_value_t = 7000, value_parser = clap::value_parser!(u16).range(1024..=65000))]
    pub(crate) port: u16,
}

/// Runs until a signal.
pub(crate) fn run(_global: &Global, _arguments: &DevArgs, _matches: &ArgMatches) -> anyhow::Result<Exit> {
    Err(Failure::new(Exit::Error, "not wired yet").into())
}
