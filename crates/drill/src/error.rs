//! Why a drill could not be run.

use std::path::PathBuf;

use cell_client::ClientError;

/// Why a drill could not be run, or not to its end. That data was lost is no error: the report shows it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrillError {
    /// The cluster has no such node.
    #[error("there is no node {node}: the cluster has {count}, counted from 0")]
    NoSuchNode {
        /// What was asked for.
        node: u16,
        /// How many there are.
        count: usize,
    },
    /// The cluster is not healthy, so a drill would show nothing.
    #[error("a drill begins with a healthy cluster, but node {node} is {state}")]
    Unhealthy {
        /// The first node that is not.
        node: u16,
        /// How it is, in a word.
        state: String,
    },
    /// There is no supervisor that does faults.
    #[error("no drill without {}: {why}", path.display())]
    NoSupervisor {
        /// Its socket.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The supervisor refused.
    #[error("{what}")]
    Refused {
        /// What it refused and why.
        what: String,
        /// What to do next.
        next: String,
    },
    /// The supervisor ended, or says nothing that can be understood.
    #[error("the supervisor {0}")]
    Supervisor(String),
    /// A client failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Whoever ran it has stopped it. The fault is taken back.
    #[error("interrupted")]
    Interrupted,
}
