//! What a pair keeps from scan to scan.

use cell_tree::LeafSnapshot;

/// The leaves of a scan, in memory that is kept from scan to scan.
#[derive(Debug, Default)]
pub(crate) struct ScanBuffers {
    pub(crate) leaf: LeafSnapshot,
    pub(crate) next: LeafSnapshot,
}
