//! What an agent knows of its host.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use cell_cluster::Coordinator;

use crate::dev::drill_turn::DrillTurns;
use crate::dev::event::Event;

/// Its nodes, and how they are asked for something.
pub(crate) struct AgentHost {
    pub(crate) coordinator: Arc<dyn Coordinator>,
    /// To their supervisor.
    pub(crate) events: Sender<Event>,
    /// Whose turn it is here.
    pub(crate) turns: DrillTurns,
    /// The number of the first of them.
    pub(crate) first: u16,
    /// Whether faults may be done to them.
    pub(crate) allows_drills: bool,
    /// What to do where the coordinator does not answer.
    pub(crate) next_if_away: String,
}
