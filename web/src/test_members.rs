//! Members' rows for tests.

use cell_cluster::MemberRow;
use cell_terms::{Incarnation, NodeId};

/// A life of a node, without addresses.
pub(crate) fn life(node: u32, incarnation: u64) -> MemberRow {
    MemberRow {
        incarnation: Incarnation(incarnation),
        node: NodeId(node),
        fabric: String::new(),
        http: String::new(),
        pid: 1,
        memory_limit_bytes: 0,
    }
}

/// The one that nodes of tests have: by their number.
pub(crate) fn member(node: u32) -> MemberRow {
    life(node, 70 + u64::from(node))
}
