//! What memory counts: all of it can be read off a region and its allocator at any time.

use cell_terms::{Counter, CounterKind, CounterValue};

use crate::allocator::AllocatorStats;
use crate::region::Region;

macro_rules! gauges {
    ($($field:ident $name:literal $meaning:literal),* $(,)?) => {
        /// Declarations of this crate's counters.
        pub const COUNTERS: &[Counter] =
            &[$(Counter { name: $name, meaning: $meaning, kind: CounterKind::Gauge }),*];

        /// One pair's, or several pairs', use of memory.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct MemoryCounts {
            $(#[doc = $meaning] pub $field: u64,)*
        }

        impl MemoryCounts {
            /// The counts with their declarations, in the order of [`COUNTERS`].
            #[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
            pub fn values(&self) -> impl Iterator<Item = CounterValue> + use<> {
                let values = [$(self.$field as f64),*];
                COUNTERS.iter().zip(values).map(|(counter, value)| CounterValue { counter, value })
            }

            /// Adds another pair's counts to these.
            pub fn add(&mut self, other: &MemoryCounts) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

gauges! {
    region_bytes "memory_region_bytes" "Size of regions, headers included.",
    populated_bytes "memory_populated_bytes" "Bytes of regions that were given memory ahead of use.",
    huge_bytes "memory_huge_page_bytes" "Populated bytes on huge pages, reserved or transparent.",
    extents "memory_extents" "Extents in use.",
    extent_live_bytes "memory_extent_live_bytes" "Bytes of extents in use, as asked for.",
    extent_allocated_bytes "memory_extent_allocated_bytes"
        "Bytes of extent regions taken by extents, rounding and free slots of slabs in use included.",
    extent_free_bytes "memory_extent_free_bytes"
        "Bytes of extent regions that anything can be allocated from.",
    extent_capacity_bytes "memory_extent_capacity_bytes" "Bytes of empty extent regions.",
}

impl MemoryCounts {
    /// A pair's counts.
    #[must_use]
    pub fn of_pair(node: &Region, extent: &Region, allocator: &AllocatorStats) -> MemoryCounts {
        MemoryCounts {
            region_bytes: node.spec().bytes + extent.spec().bytes,
            populated_bytes: node.populated_bytes() + extent.populated_bytes(),
            huge_bytes: node.huge_bytes() + extent.huge_bytes(),
            extents: allocator.live_extents,
            extent_live_bytes: allocator.live_bytes,
            extent_allocated_bytes: allocator.allocated_bytes,
            extent_free_bytes: allocator.free_bytes,
            extent_capacity_bytes: allocator.capacity_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExtentAllocator, RegionSpec};
    use cell_terms::{Epoch, PairId};

    #[test]
    fn counts_of_a_pair_name_every_counter_once() {
        let node = RegionSpec::node(PairId(1), Epoch(1), 1 << 20, 1 << 16, 1024).unwrap();
        let extent = RegionSpec::extent(PairId(1), Epoch(1), 2 << 20).unwrap();
        let (node, _) = Region::create_private(&node).unwrap();
        let (extent, _) = Region::create_private(&extent).unwrap();
        let mut allocator = ExtentAllocator::new(extent.spec().bytes);
        allocator.allocate(100).unwrap();
        let mut counts = MemoryCounts::of_pair(&node, &extent, &allocator.stats());
        counts.add(&MemoryCounts::default());
        assert_eq!((counts.extent_live_bytes, counts.extent_allocated_bytes), (100, 65_536));
        let names: Vec<_> = counts.values().map(|value| value.counter.name).collect();
        assert!(names.iter().enumerate().all(|(i, name)| !names[..i].contains(name)));
        assert_eq!(names.len(), COUNTERS.len());
    }
}
