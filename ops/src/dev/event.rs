//! What happens to a supervisor: signals, words and ends of its nodes, wishes of drills.

use std::sync::mpsc::Sender;

use cell_drill::wire::{DrillAnswer, DrillRequest};

use super::link::Report;
use super::scale_wire::{ScaleDone, ScaleStep};

/// What the supervisor waits for.
#[derive(Debug)]
pub(crate) enum Event {
    /// The first signal.
    Stop,
    /// The nodes are to read their configuration again.
    Reload,
    /// The coordinator has stopped for good, for this reason.
    CoordinatorFailed(String),
    /// A node said something.
    Report {
        node: u16,
        /// Which start of the node.
        life: u64,
        /// What it said.
        report: Report,
    },
    /// A node's process has ended.
    Ended {
        node: u16,
        /// Which start of the node.
        life: u64,
    },
    /// Nodes are to come or to go.
    Scale {
        step: ScaleStep,
        /// Where the answer goes.
        answer: Sender<ScaleDone>,
    },
    /// A drill asks for something.
    Drill {
        request: DrillRequest,
        /// Where the answer goes.
        answer: Sender<DrillAnswer>,
    },
}
