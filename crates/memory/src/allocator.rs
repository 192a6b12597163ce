//! Where extents go in an extent region.
//!
//! Up to 8 KiB an extent takes a slot of a slab of its size class, O(1); a longer one takes whole blocks of 1
//! KiB from the free ranges. Slabs come from the free ranges too, and go back once they are empty. All of the
//! allocator's state is outside the region, and follows from (offset, length) of the extents: a recovery
//! passes them to [`ExtentAllocator::restore`] in any order.
//!
//! Bounded waste: below 512 bytes less than 16 bytes an extent; above, at most a ninth (slabs), or less than
//! 1 KiB of more than 8 (blocks). On top come the free slots of slabs in use. On values of 8 to 256 bytes, as
//! in the paper, a test holds all of it together under 15 %; [`AllocatorStats`] says what it is at any time.
//!
//! There is no grace period here: whoever frees has waited until no reader can still hold the pointer and the
//! record that freed it is durable.
//!
//! Nothing is held back for when a region is full: deletes and recoveries take no new extents, and a split
//! that finds no room for its target's is broken off.
//!
//! **Closed ranges.** What is not granted to the region must not be used. [`ExtentAllocator::close_unless`]
//! takes that out of the free ranges; it comes back, the lowest first, as it is granted
//! ([`ExtentAllocator::open`]).
//!
//! **Sparse slabs.** A slab with one extent takes 64 KiB, and a split takes half of the extents out of each.
//! Extents of its class fill it up again; for others [`ExtentAllocator::begin_packing`] names the sparsest
//! slabs, and who moves what they hold gets them back as free ranges.

mod class;
mod range;
mod restore;
mod slab;

use std::ops::Range;

use cell_terms::ExtentOffset;

use crate::extent::{EXTENT_BYTES_MAX, GRANULE_BYTES, HEADER_BYTES_MIN, byte_offset};
use crate::mapping::UNIT_BYTES;
use crate::region::{EXTENT_REGION_BYTES_MAX, HEADER_BYTES};
use crate::width::narrow;
use class::{Class, SLAB_BYTES};
use range::{BLOCK_BYTES, FreeRanges};
pub use restore::AllocatorRestore;
use slab::Slabs;

const BLOCKS_PER_SLAB: u32 = SLAB_BYTES / BLOCK_BYTES;
const HEADER_BLOCKS: u32 = narrow(HEADER_BYTES / BLOCK_BYTES as u64);
const GRANULES_PER_BLOCK: u32 = BLOCK_BYTES / GRANULE_BYTES;

/// Blocks of what is granted to a region at least.
const BLOCKS_PER_GRANT: u32 = narrow(UNIT_BYTES / BLOCK_BYTES as u64);

const _: () = assert!(HEADER_BYTES.is_multiple_of(BLOCK_BYTES as u64));
const _: () = assert!(BLOCK_BYTES.is_multiple_of(GRANULE_BYTES) && SLAB_BYTES.is_multiple_of(BLOCK_BYTES));

/// How a region's bytes are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorStats {
    /// Extents in use.
    pub live_extents: u64,
    /// Their lengths together, as they were asked for.
    pub live_bytes: u64,
    /// Bytes of the region that they take: slabs whole, free slots included, and blocks.
    pub allocated_bytes: u64,
    /// Of these, bytes in free slots: only extents of their class can take them, unless slabs are packed.
    pub slots_free_bytes: u64,
    /// Bytes in free ranges: what new slabs and long extents can come from.
    pub free_bytes: u64,
    /// Free bytes that are closed: they are to be granted first.
    pub closed_bytes: u64,
    /// Bytes that could be allocated in an empty region.
    pub capacity_bytes: u64,
}

impl AllocatorStats {
    /// The part of the allocated bytes that holds no extent, from 0 to 1: rounding, and free slots of slabs
    /// in use.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn waste(&self) -> f64 {
        if self.allocated_bytes == 0 {
            0.0
        } else {
            1.0 - self.live_bytes as f64 / self.allocated_bytes as f64
        }
    }
}

/// Allocates extents of one region. One owner, no locks, and no heap in the steady state.
pub struct ExtentAllocator {
    slabs: Slabs,
    ranges: FreeRanges,
    /// Free ranges that are not to be used yet: start and blocks, the highest first.
    closed: Vec<(u32, u32)>,
    closed_blocks: u32,
    /// Size of the region.
    blocks: u32,
    /// Blocks of long extents.
    long_blocks: u32,
    live_extents: u64,
    live_bytes: u64,
    ranges_taken: u64,
}

/// Where an extent of some length at some offset is; a function of the two alone.
enum ExtentPlace {
    /// In a slab.
    Slot { unit: u32, within: u32, class: Class },
    /// In blocks; `start` is `None` if the offset is between blocks.
    Blocks { start: Option<u32>, blocks: u32 },
}

impl ExtentPlace {
    #[inline]
    fn of(offset: ExtentOffset, extent_bytes: u32) -> ExtentPlace {
        match Class::of(extent_bytes) {
            Some(class) => {
                let bytes = byte_offset(offset);
                let within = narrow(bytes % u64::from(SLAB_BYTES));
                ExtentPlace::Slot { unit: narrow(bytes / u64::from(SLAB_BYTES)), within, class }
            }
            None => {
                let whole = offset.0.is_multiple_of(GRANULES_PER_BLOCK);
                let blocks = extent_bytes.div_ceil(BLOCK_BYTES);
                ExtentPlace::Blocks { start: whole.then_some(offset.0 / GRANULES_PER_BLOCK), blocks }
            }
        }
    }
}

impl ExtentAllocator {
    /// An allocator of an empty region of so many bytes, header included.
    ///
    /// # Panics
    /// If there is no such region: sizes are checked where the region is made.
    #[must_use]
    pub fn new(region_bytes: u64) -> ExtentAllocator {
        ExtentAllocator::restore(region_bytes).finish()
    }

    /// An allocator of a region with extents in it: name them all, then finish. Panics as
    /// [`ExtentAllocator::new`].
    #[must_use]
    pub fn restore(region_bytes: u64) -> AllocatorRestore {
        assert!(region_bytes <= EXTENT_REGION_BYTES_MAX && region_bytes.is_multiple_of(HEADER_BYTES));
        let blocks = narrow(region_bytes / u64::from(BLOCK_BYTES));
        AllocatorRestore::new(ExtentAllocator {
            slabs: Slabs::new(blocks / BLOCKS_PER_SLAB),
            ranges: FreeRanges::new(blocks),
            closed: Vec::new(),
            closed_blocks: 0,
            blocks,
            long_blocks: 0,
            live_extents: 0,
            live_bytes: 0,
            ranges_taken: 0,
        })
    }

    /// Closes all that is free in units (of 2 MiB, from the region's start) of which `is_granted` says no.
    /// Asked once, before anything is allocated.
    pub fn close_unless(&mut self, is_granted: impl Fn(Range<u64>) -> bool) {
        let is_open = |unit: u32| {
            let begin = u64::from(unit) * UNIT_BYTES;
            is_granted(begin..begin + UNIT_BYTES)
        };
        let mut closed = self.ranges.withhold(BLOCKS_PER_GRANT, is_open);
        closed.append(&mut self.closed);
        closed.sort_unstable_by_key(|(start, _)| std::cmp::Reverse(*start));
        self.closed_blocks = closed.iter().map(|(_, blocks)| blocks).sum();
        self.closed = closed;
    }

    /// The lowest range that is closed, in bytes from the region's start.
    #[must_use]
    pub fn closed(&self) -> Option<Range<u64>> {
        let bytes = |blocks: u32| u64::from(blocks) * u64::from(BLOCK_BYTES);
        self.closed.last().map(|&(start, blocks)| bytes(start)..bytes(start + blocks))
    }

    /// Opens the lowest closed range up to a byte of it: that much is granted. Nothing happens where it is
    /// not past the range's start; of a block that is cut, nothing is opened.
    pub fn open(&mut self, upto_bytes: u64) {
        let Some((start, blocks)) = self.closed.pop() else { return };
        let upto = (upto_bytes / u64::from(BLOCK_BYTES)).clamp(start.into(), (start + blocks).into());
        let opened = narrow(upto) - start;
        if opened < blocks {
            self.closed.push((start + opened, blocks - opened));
        }
        if opened > 0 {
            self.closed_blocks -= opened;
            self.ranges.give(start, opened);
        }
    }

    /// A place for an extent of so many bytes; `None` if the region is full, or what is open of it.
    ///
    /// # Panics
    /// If no extent has that length: lengths come from an [`crate::extent::ExtentShape`].
    #[inline]
    pub fn allocate(&mut self, extent_bytes: u32) -> Option<ExtentOffset> {
        check_length(extent_bytes);
        let granule = match Class::of(extent_bytes) {
            Some(class) => self.allocate_slot(class)?,
            None => self.allocate_blocks(extent_bytes.div_ceil(BLOCK_BYTES))?,
        };
        self.note_allocated(extent_bytes);
        Some(ExtentOffset(granule))
    }

    /// Whether [`ExtentAllocator::allocate`] would find a place. Panics as it does.
    #[must_use]
    pub fn can_allocate(&self, extent_bytes: u32) -> bool {
        check_length(extent_bytes);
        match Class::of(extent_bytes) {
            Some(class) if self.slabs.has_free(class) => true,
            Some(_) => self.ranges.has(BLOCKS_PER_SLAB, BLOCKS_PER_SLAB),
            None => self.ranges.has(extent_bytes.div_ceil(BLOCK_BYTES), 1),
        }
    }

    /// Gives an extent's place back, with the length that it was allocated with.
    ///
    /// # Panics
    /// If it is not allocated so: a place freed twice would be given to two extents.
    #[inline]
    pub fn free(&mut self, offset: ExtentOffset, extent_bytes: u32) {
        match ExtentPlace::of(offset, extent_bytes) {
            ExtentPlace::Slot { unit, within, class } => {
                if self.slabs.give(unit, within, class) {
                    self.ranges.give(unit * BLOCKS_PER_SLAB, BLOCKS_PER_SLAB);
                }
            }
            ExtentPlace::Blocks { start, blocks } => {
                let start = start.expect("freed an offset that is between blocks");
                self.ranges.give_tagged(start, blocks);
                self.long_blocks -= blocks;
            }
        }
        self.live_extents -= 1;
        self.live_bytes -= u64::from(extent_bytes);
    }

    /// Whether an extent of this length is allocated here.
    #[must_use]
    pub fn is_allocated(&self, offset: ExtentOffset, extent_bytes: u32) -> bool {
        match ExtentPlace::of(offset, extent_bytes) {
            ExtentPlace::Slot { unit, within, class } => {
                self.slabs.class_of(unit) == Some(class) && self.slabs.is_taken(unit, within, class)
            }
            ExtentPlace::Blocks { start, blocks } => {
                start.is_some_and(|start| self.ranges.is_tagged(start, blocks))
            }
        }
    }

    /// How the region is used.
    #[must_use]
    pub fn stats(&self) -> AllocatorStats {
        let bytes = |blocks: u32| u64::from(blocks) * u64::from(BLOCK_BYTES);
        AllocatorStats {
            live_extents: self.live_extents,
            live_bytes: self.live_bytes,
            allocated_bytes: bytes(self.slabs.count() * BLOCKS_PER_SLAB + self.long_blocks),
            slots_free_bytes: self.slabs.free_bytes(),
            free_bytes: bytes(self.ranges.free_blocks()),
            closed_bytes: bytes(self.closed_blocks),
            capacity_bytes: bytes(self.blocks.saturating_sub(HEADER_BLOCKS)),
        }
    }

    /// Bytes of the slabs that packing could empty: what the free slots amount to in whole slabs.
    #[must_use]
    pub fn packable_bytes(&self) -> u64 {
        u64::from(self.slabs.drainable()) * u64::from(SLAB_BYTES)
    }

    /// How many ranges were taken, for slabs and for long extents: while there are none, extents find free
    /// slots of their class.
    #[must_use]
    pub fn ranges_taken(&self) -> u64 {
        self.ranges_taken
    }

    /// Names sparse slabs, in which nothing is allocated from here on. False: there are none.
    pub fn begin_packing(&mut self) -> bool {
        self.slabs.drain()
    }

    /// Whether an extent is in a slab that is being emptied, so that it should be moved.
    #[inline]
    #[must_use]
    pub fn is_to_be_moved(&self, offset: ExtentOffset, extent_bytes: u32) -> bool {
        match ExtentPlace::of(offset, extent_bytes) {
            ExtentPlace::Slot { unit, .. } => self.slabs.is_drained(unit),
            ExtentPlace::Blocks { .. } => false,
        }
    }

    /// Slabs that are not empty yet are used like others again.
    pub fn end_packing(&mut self) {
        self.slabs.end_draining();
    }

    /// The byte behind the last one that was ever allocated: how far the region must have memory.
    #[must_use]
    pub fn high_water(&self) -> u64 {
        u64::from(self.ranges.high_water()) * u64::from(BLOCK_BYTES)
    }

    #[inline]
    fn allocate_slot(&mut self, class: Class) -> Option<u32> {
        let (unit, within) = match self.slabs.take(class) {
            Some(slot) => slot,
            None => {
                self.open_slab(class)?;
                self.slabs.take(class)?
            }
        };
        Some(unit * (SLAB_BYTES / GRANULE_BYTES) + within / GRANULE_BYTES)
    }

    #[cold]
    fn open_slab(&mut self, class: Class) -> Option<()> {
        let start = self.ranges.take(BLOCKS_PER_SLAB, BLOCKS_PER_SLAB)?;
        self.ranges_taken += 1;
        self.slabs.open(start / BLOCKS_PER_SLAB, class);
        Some(())
    }

    fn allocate_blocks(&mut self, blocks: u32) -> Option<u32> {
        let start = self.ranges.take(blocks, 1)?;
        self.ranges_taken += 1;
        self.ranges.tag_taken(start, blocks);
        self.long_blocks += blocks;
        Some(start * GRANULES_PER_BLOCK)
    }

    #[inline]
    fn note_allocated(&mut self, extent_bytes: u32) {
        self.live_extents += 1;
        self.live_bytes += u64::from(extent_bytes);
    }

    /// Everything about the allocator's own structures.
    #[cfg(test)]
    fn check(&self) {
        self.slabs.check();
        self.ranges.check();
        let stats = self.stats();
        assert_eq!(stats.allocated_bytes + stats.free_bytes + stats.closed_bytes, stats.capacity_bytes);
    }
}

#[inline]
fn check_length(extent_bytes: u32) {
    assert!(
        (HEADER_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&extent_bytes),
        "no extent has {extent_bytes} bytes"
    );
}

#[cfg(test)]
mod tests;
