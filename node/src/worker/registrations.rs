//! Which regions clients may read, and under which keys.

use cell_fabric::RegionKey;
use cell_memory::{HEADER_BYTES, Region};
use cell_protocol::PairRegions;

/// The registrations that are reported to clients, by pair.
#[derive(Debug, Default)]
pub(super) struct RegionRegistrations {
    pub(super) rows: Vec<PairRegions>,
}

/// A pair's row: what its regions are and under which keys they were registered.
///
/// # Panics
/// If the regions' sizes do not fit the wire's fields: they were checked when the regions were made.
#[must_use]
pub fn pair_regions(
    node: &Region,
    extent: &Region,
    node_crc: bool,
    node_key: RegionKey,
    extent_key: RegionKey,
) -> PairRegions {
    let (node, extent) = (node.spec(), extent.spec());
    PairRegions {
        pair: node.pair,
        epoch: node.epoch,
        node_region: node.id,
        extent_region: extent.id,
        node_key: node_key.0,
        extent_key: extent_key.0,
        node_region_bytes: node.bytes,
        extent_region_bytes: extent.bytes,
        slot_bytes: node.slot_bytes,
        tree_node_bytes: node.node_bytes,
        header_bytes: u32::try_from(HEADER_BYTES).expect("a header is a page"),
        node_crc,
    }
}
