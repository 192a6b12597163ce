//! What a region is to be: ids, sizes, epoch. Checked once, where it comes from settings or from a header.

use std::ops::Range;

use cell_terms::{Epoch, OFFSET_BITS, PairId, REGION_ID_BITS, RegionId, RegionKind, SlotIndex};

use crate::error::{GeometryFault, MemoryError};
use crate::width::{index, narrow};

/// Size of a region's header: slots and extents begin behind it, so offset 0 never names one.
pub const HEADER_BYTES: u64 = 4096;
pub(crate) const SLOT_BYTES_MIN: u64 = 64 << 10;
/// Sizes of tree nodes, powers of two between these.
pub(crate) const NODE_BYTES: Range<u64> = 512..4097;
/// Largest extent region: extents are named by 32 bits in units of 16 bytes.
pub(crate) const EXTENT_REGION_BYTES_MAX: u64 = 64 << 30;
/// Largest node region: a pointer's offset.
pub(crate) const NODE_REGION_BYTES_MAX: u64 = 1 << OFFSET_BITS;
/// What [`RegionSpec::node`] and [`RegionSpec::extent`] round sizes up to: one 2 MiB page.
const ROUND_BYTES: u64 = 2 << 20;

/// A region's identity and geometry. It is stored in the region's header and never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSpec {
    /// The region's id.
    pub id: RegionId,
    /// The pair that it belongs to.
    pub pair: PairId,
    /// What it holds.
    pub kind: RegionKind,
    /// Size in bytes, header included; a multiple of 4,096.
    pub bytes: u64,
    /// Size of a slot in bytes, a power of two; zero in extent regions.
    pub slot_bytes: u64,
    /// Size of a tree node in bytes, a power of two from 512 to 4,096; zero in extent regions.
    pub node_bytes: u32,
    /// The epoch of the owner that made it. A new owner makes a new region.
    pub epoch: Epoch,
}

impl RegionSpec {
    /// A node region of a pair with `capacity_bytes` of slots (rounded down to whole slots, at least one);
    /// the header comes on top and the sum is rounded up to 2 MiB.
    ///
    /// # Errors
    /// [`MemoryError::Geometry`] says which number is out of bounds.
    pub fn node(
        pair: PairId,
        epoch: Epoch,
        capacity_bytes: u64,
        slot_bytes: u64,
        node_bytes: u32,
    ) -> Result<RegionSpec, MemoryError> {
        if !slot_bytes.is_power_of_two() || slot_bytes < SLOT_BYTES_MIN || slot_bytes > capacity_bytes {
            return fault(GeometryFault::SlotBytes, slot_bytes);
        }
        if capacity_bytes >= NODE_REGION_BYTES_MAX {
            return fault(GeometryFault::RegionBytes, capacity_bytes);
        }
        let bytes = (HEADER_BYTES + capacity_bytes / slot_bytes * slot_bytes).next_multiple_of(ROUND_BYTES);
        let (id, kind) = (pair.node_region(), RegionKind::Node);
        RegionSpec { id, pair, kind, bytes, slot_bytes, node_bytes, epoch }.checked()
    }

    /// An extent region of a pair, header included; the size is rounded up to 2 MiB.
    ///
    /// # Errors
    /// [`MemoryError::Geometry`] says which number is out of bounds.
    pub fn extent(pair: PairId, epoch: Epoch, bytes: u64) -> Result<RegionSpec, MemoryError> {
        if bytes > EXTENT_REGION_BYTES_MAX {
            return fault(GeometryFault::RegionBytes, bytes);
        }
        let bytes = bytes.next_multiple_of(ROUND_BYTES);
        let (id, kind) = (pair.extent_region(), RegionKind::Extent);
        RegionSpec { id, pair, kind, bytes, slot_bytes: 0, node_bytes: 0, epoch }.checked()
    }

    /// Whether the numbers describe a region; [`crate::Region::create`] asks too.
    ///
    /// # Errors
    /// [`MemoryError::Geometry`] says which number is out of bounds.
    pub fn checked(self) -> Result<RegionSpec, MemoryError> {
        if self.id.0 == 0 || self.id.0 >> REGION_ID_BITS != 0 {
            return fault(GeometryFault::RegionId, self.id.0.into());
        }
        if self.epoch == Epoch(0) {
            return fault(GeometryFault::Epoch, 0);
        }
        let bytes_max = match self.kind {
            RegionKind::Node => NODE_REGION_BYTES_MAX,
            RegionKind::Extent => EXTENT_REGION_BYTES_MAX,
        };
        if !self.bytes.is_multiple_of(HEADER_BYTES) || self.bytes <= HEADER_BYTES || self.bytes > bytes_max {
            return fault(GeometryFault::RegionBytes, self.bytes);
        }
        match self.kind {
            RegionKind::Extent if self.slot_bytes != 0 => fault(GeometryFault::SlotBytes, self.slot_bytes),
            RegionKind::Extent if self.node_bytes != 0 => {
                fault(GeometryFault::NodeBytes, self.node_bytes.into())
            }
            RegionKind::Extent => Ok(self),
            RegionKind::Node => self.checked_slots(),
        }
    }

    fn checked_slots(self) -> Result<RegionSpec, MemoryError> {
        let slot_fits = self.slot_bytes >= SLOT_BYTES_MIN && self.slot_bytes <= self.bytes - HEADER_BYTES;
        if !self.slot_bytes.is_power_of_two() || !slot_fits {
            return fault(GeometryFault::SlotBytes, self.slot_bytes);
        }
        if !self.node_bytes.is_power_of_two() || !NODE_BYTES.contains(&self.node_bytes.into()) {
            return fault(GeometryFault::NodeBytes, self.node_bytes.into());
        }
        Ok(self)
    }

    /// How many slots a node region has; zero in an extent region.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        match self.kind {
            RegionKind::Node => narrow((self.bytes - HEADER_BYTES) / self.slot_bytes),
            RegionKind::Extent => 0,
        }
    }

    /// How many tree nodes a slot has; zero in an extent region.
    #[must_use]
    pub const fn nodes_per_slot(&self) -> u32 {
        match self.kind {
            RegionKind::Node => narrow(self.slot_bytes / self.node_bytes as u64),
            RegionKind::Extent => 0,
        }
    }

    /// Where a slot begins, in bytes.
    ///
    /// # Panics
    /// If the region has no such slot.
    #[must_use]
    pub const fn slot_offset(&self, slot: SlotIndex) -> u64 {
        assert!(slot.0 < self.slots());
        HEADER_BYTES + slot.0 as u64 * self.slot_bytes
    }

    /// Size in words.
    #[must_use]
    pub const fn words(&self) -> usize {
        index(self.bytes / 8)
    }
}

const fn fault<T>(fault: GeometryFault, value: u64) -> Result<T, MemoryError> {
    Err(MemoryError::Geometry { fault, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault_of(result: Result<RegionSpec, MemoryError>) -> GeometryFault {
        match result {
            Err(MemoryError::Geometry { fault, .. }) => fault,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn node_header_comes_on_top_of_whole_slots() {
        let spec = RegionSpec::node(PairId(3), Epoch(1), (8 << 20) + 5, 4 << 20, 1024).unwrap();
        assert_eq!((spec.bytes, spec.slots(), spec.nodes_per_slot()), (10 << 20, 2, 4096));
        assert_eq!(spec.slot_offset(SlotIndex(1)), 4096 + (4 << 20));
        assert_eq!(spec.id, RegionId(6));
    }

    #[test]
    fn spec_out_of_bounds_names_the_number() {
        let node = |slot, node| RegionSpec::node(PairId(1), Epoch(1), 1 << 20, slot, node);
        assert_eq!(fault_of(node(2 << 20, 1024)), GeometryFault::SlotBytes);
        assert_eq!(fault_of(node(3 << 16, 1024)), GeometryFault::SlotBytes);
        assert_eq!(fault_of(node(32 << 10, 1024)), GeometryFault::SlotBytes);
        assert_eq!(fault_of(node(1 << 16, 1000)), GeometryFault::NodeBytes);
        assert_eq!(fault_of(node(1 << 16, 256)), GeometryFault::NodeBytes);
        assert_eq!(fault_of(node(1 << 16, 8192)), GeometryFault::NodeBytes);
        assert_eq!(fault_of(RegionSpec::extent(PairId(1), Epoch(1), 0)), GeometryFault::RegionBytes);
        assert_eq!(
            fault_of(RegionSpec::extent(PairId(1), Epoch(1), (64 << 30) + 1)),
            GeometryFault::RegionBytes
        );
        assert_eq!(fault_of(RegionSpec::extent(PairId(1), Epoch(0), 1 << 20)), GeometryFault::Epoch);
        assert_eq!(fault_of(RegionSpec::extent(PairId(1 << 23), Epoch(1), 1 << 20)), GeometryFault::RegionId);
        assert_eq!(
            fault_of(RegionSpec::node(PairId(1), Epoch(1), u64::MAX, 1 << 16, 1024)),
            GeometryFault::RegionBytes
        );
        assert!(RegionSpec::extent(PairId(1), Epoch(1), 64 << 30).is_ok());
    }
}
