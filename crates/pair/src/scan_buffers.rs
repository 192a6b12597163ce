//! What a pair keeps from scan to scan.

use cell_memory::extent::ExtentShape;
use cell_terms::ExtentOffset;
use cell_tree::LeafSnapshot;

/// The leaves of a scan, and where their extents are, in memory that is kept from scan to scan.
#[derive(Debug, Default)]
pub(crate) struct ScanBuffers {
    pub(crate) leaf: LeafSnapshot,
    pub(crate) next: LeafSnapshot,
    pub(crate) places: Vec<(ExtentOffset, ExtentShape)>,
}
