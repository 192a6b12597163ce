//! Which nodes there are to be, as operators have it.

use std::collections::{BTreeMap, BTreeSet};

use cell_terms::Incarnation;

/// What operators have decided about nodes.
#[derive(Debug, Default)]
pub(crate) struct NodesWanted {
    /// How many processes there are to be.
    pub(crate) count: usize,
    /// Hosts whose nodes drain, or were removed.
    pub(crate) draining: BTreeSet<u32>,
    /// Hosts whose nodes were removed for good.
    pub(crate) removed: BTreeSet<u32>,
    /// Processes that have had pairs while they drained, and are not empty yet.
    pub(crate) emptying: BTreeMap<u32, Incarnation>,
}

impl NodesWanted {
    /// So many processes, none of which drains.
    pub(crate) fn new(count: usize) -> NodesWanted {
        NodesWanted { count, ..NodesWanted::default() }
    }

    /// Whether a process may be started on a host.
    pub(crate) fn permits(&self, host: u32) -> bool {
        !self.removed.contains(&host)
    }
}
