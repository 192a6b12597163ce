//! `cell agent`: a supervisor of this host's nodes, which drills of the whole cluster reach.

use clap::{ArgMatches, Args, value_parser};

use crate::args::Global;
use crate::command::node_processes::{self, Wanted};
use crate::exit::Exit;

/// Arguments of `cell agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Do to the nodes what drills ask for; without it drills only learn how they are
    #[arg(long)]
    allow_drills: bool,
    /// Run so many nodes, as `cell node --processes N` does
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=64))]
    processes: u16,
    /// Give each process cores of its own
    #[arg(long)]
    pin_cores: bool,
}

/// Runs until a signal.
pub(crate) fn run(global: &Global, arguments: &AgentArgs, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let AgentArgs { allow_drills, processes, pin_cores } = *arguments;
    node_processes::run(global, Wanted { processes, pin_cores, agent: Some(allow_drills) }, matches)
}
