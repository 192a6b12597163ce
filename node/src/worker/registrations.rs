//! Which regions clients may read, and under which keys.

use cell_fabric::RegionKey;
use cell_memory::{HEADER_BYTES, Region};
use cell_protocol::PairRegions;
use cell_terms::PairId;
use cell_terms::mutant::{Mutant, planted};

/// The registrations that are reported to clients, by pair. Trust is granted in the list as a whole, by its
/// number: that rises when a registration leaves, so that nobody who knows the list from before is trusted
/// any longer than was granted then. One that comes is known to nobody, and changes no number.
#[derive(Debug)]
pub(super) struct RegionRegistrations {
    pub(super) rows: Vec<PairRegions>,
    pub(super) list: u64,
}

impl Default for RegionRegistrations {
    fn default() -> RegionRegistrations {
        RegionRegistrations { rows: Vec::new(), list: 1 }
    }
}

impl RegionRegistrations {
    /// A registration comes, in place of what was there of its pair.
    pub(super) fn insert(&mut self, regions: PairRegions) {
        match self.rows.binary_search_by_key(&regions.pair, |row| row.pair) {
            Ok(at) if self.rows[at] == regions => {}
            Ok(at) => {
                self.rows[at] = regions;
                self.raise();
            }
            Err(at) => self.rows.insert(at, regions),
        }
    }

    /// A pair's registration leaves, if it has one.
    pub(super) fn remove(&mut self, pair: PairId) -> Option<PairRegions> {
        let at = self.rows.binary_search_by_key(&pair, |row| row.pair).ok()?;
        self.raise();
        Some(self.rows.remove(at))
    }

    fn raise(&mut self) {
        self.list += u64::from(!planted(Mutant::ListNumberKept));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pair: u32, node_key: u64) -> PairRegions {
        PairRegions { pair: PairId(pair), node_key, ..PairRegions::default() }
    }

    /// Who knows the list by its number knows the keys: one that changes is one that leaves.
    #[test]
    fn list_has_another_number_once_a_registration_changes_or_leaves() {
        let mut known = RegionRegistrations::default();
        known.insert(row(2, 20));
        known.insert(row(1, 10));
        known.insert(row(2, 20));
        assert_eq!((&known.rows[..], known.list), (&[row(1, 10), row(2, 20)][..], 1));
        known.insert(row(2, 21));
        assert_eq!((known.rows[1], known.list), (row(2, 21), 2));
        assert_eq!((known.remove(PairId(3)), known.list), (None, 2));
        assert_eq!((known.remove(PairId(1)), known.list), (Some(row(1, 10)), 3));
        assert_eq!(known.rows, [row(2, 21)]);
    }
}
