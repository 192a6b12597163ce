//! What the web needs of a node.

use std::sync::Arc;

use cell_node::NodeSnapshot;

/// Whoever publishes snapshots of a node.
pub trait StatusSource: Send + Sync + 'static {
    /// The newest snapshot. Called for every request: it must not wait and not take a lock of the data path.
    fn snapshot(&self) -> Arc<NodeSnapshot>;
}

impl<F: Fn() -> Arc<NodeSnapshot> + Send + Sync + 'static> StatusSource for F {
    fn snapshot(&self) -> Arc<NodeSnapshot> {
        self()
    }
}
