//! `cell node`: one storage node.

use cell_terms::setting::{Applies, Bounds, Setting};
use clap::{ArgMatches, Args};

use crate::cli::Global;
use crate::exit::{Exit, Failure};

/// Settings of the process itself; those of the store are declared by the crates that use them.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        name: "node_id",
        meaning: "The node's number in its cluster. Two living nodes must not share one.",
        default: "0",
        bounds: Bounds::Integer { min: 0, max: 63 },
        applies: Applies::Restart,
    },
    Setting {
        name: "listen_address",
        meaning: "Where clients and peers connect (the fabric). Only loopback addresses are possible so far.",
        default: "127.0.0.1:7000",
        bounds: Bounds::Text { max: 256 },
        applies: Applies::Restart,
    },
    Setting {
        name: "http_address",
        meaning: "Where health checks, metrics and the admin API are served. Only loopback addresses are possible \
                  so far.",
        default: "127.0.0.1:7080",
        bounds: Bounds::Text { max: 256 },
        applies: Applies::Restart,
    },
    Setting {
        name: "coordinator_address",
        meaning: "Where the coordinator of the cluster listens.",
        default: "127.0.0.1:7200",
        bounds: Bounds::Text { max: 256 },
        applies: Applies::Restart,
    },
    Setting {
        name: "data_dir",
        meaning: "The folder of logs and checkpoints. All nodes of a cluster must be able to read it.",
        default: "./cell-data",
        bounds: Bounds::Text { max: 4096 },
        applies: Applies::Restart,
    },
    Setting {
        name: "tracing_filter",
        meaning: "What is reported on stderr, in the directives of tracing-subscriber's EnvFilter.",
        default: "info",
        bounds: Bounds::Text { max: 1024 },
        applies: Applies::Restart,
    },
];

/// Arguments of `cell node`.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// End when stdin ends: a supervisor holds its other end
    #[arg(long, hide = true)]
    pub(crate) supervised: bool,
}

/// Runs until a signal.
pub(crate) fn run(_global: &Global, _arguments: &NodeArgs, _matches: &ArgMatches) -> anyhow::Result<Exit> {
    Err(Failure::new(Exit::Error, "not wired yet").into())
}
