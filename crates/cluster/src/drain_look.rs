//! Whether a node drains or was removed, for who writes on the condition that it is so.

use cell_terms::NodeId;

use crate::coordinator::{Coordinator, parse};
use crate::drain_row::DrainRow;
use crate::error::ClusterError;
use crate::request::KeyCondition;

/// A node's row, and that it is as it was read.
pub(crate) fn drain_of(
    coordinator: &dyn Coordinator,
    node: NodeId,
) -> Result<(Option<DrainRow>, KeyCondition), ClusterError> {
    let key = DrainRow::key(node);
    match coordinator.read(&key)? {
        Some(entry) => {
            let row = parse("a drain", &entry.value)?;
            Ok((Some(row), KeyCondition::Revision { key, revision: entry.revision }))
        }
        None => Ok((None, KeyCondition::Absent { key })),
    }
}
