//! Restoring an allocator from the extents that a recovered tree names, in any order.

use cell_terms::ExtentOffset;

use super::class::{Class, SLAB_BYTES};
use super::range::BLOCK_BYTES;
use super::slab::Claim;
use super::{BLOCKS_PER_SLAB, ExtentAllocator, ExtentPlace, HEADER_BLOCKS};
use crate::error::ReserveError;
use crate::extent::{EXTENT_BYTES_MAX, HEADER_BYTES_MIN, byte_offset};
use crate::width::{index, narrow};

/// An allocator that is being given what is in use. Nothing can be allocated until it is finished.
pub struct AllocatorRestore {
    allocator: ExtentAllocator,
    /// One bit a block: in use, by a slab or a long extent.
    taken: Vec<u64>,
}

impl AllocatorRestore {
    pub(super) fn new(allocator: ExtentAllocator) -> AllocatorRestore {
        let mut restore =
            AllocatorRestore { taken: vec![0; index(u64::from(allocator.blocks).div_ceil(64))], allocator };
        restore.take_blocks(0, HEADER_BLOCKS.min(restore.allocator.blocks));
        restore
    }

    /// Says that an extent is in use.
    ///
    /// # Errors The allocator cannot have placed it there, or it overlaps another one: what named it is
    /// corrupt. The restore stays as it was.
    pub fn reserve(&mut self, offset: ExtentOffset, extent_bytes: u32) -> Result<(), ReserveError> {
        let bytes = extent_bytes;
        if !(HEADER_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&bytes) {
            return Err(ReserveError::Length { bytes });
        }
        let end = byte_offset(offset) + u64::from(bytes);
        let capacity = u64::from(self.allocator.blocks) * u64::from(BLOCK_BYTES);
        if byte_offset(offset) < u64::from(HEADER_BLOCKS * BLOCK_BYTES) || end > capacity {
            return Err(ReserveError::OutOfRange { offset, bytes });
        }
        match ExtentPlace::of(offset, bytes) {
            ExtentPlace::Slot { unit, within, class } => {
                self.reserve_slot(offset, bytes, (unit, within, class))
            }
            ExtentPlace::Blocks { start: None, .. } => Err(ReserveError::Misplaced { offset, bytes }),
            ExtentPlace::Blocks { start: Some(start), blocks } => {
                self.reserve_blocks(offset, bytes, (start, blocks))
            }
        }?;
        self.allocator.note_allocated(bytes);
        Ok(())
    }

    /// The allocator: what was not named is free.
    #[must_use]
    pub fn finish(mut self) -> ExtentAllocator {
        let mut block = 0;
        while block < self.allocator.blocks {
            let begin = self.next(block, false);
            let end = self.next(begin, true);
            if begin < end {
                self.allocator.ranges.give(begin, end - begin);
            }
            block = end;
        }
        self.allocator
    }

    fn reserve_slot(
        &mut self,
        offset: ExtentOffset,
        bytes: u32,
        (unit, within, class): (u32, u32, Class),
    ) -> Result<(), ReserveError> {
        let slabs = &self.allocator.slabs;
        let begin = unit * BLOCKS_PER_SLAB;
        let fresh = slabs.class_of(unit).is_none();
        if begin + BLOCKS_PER_SLAB > self.allocator.blocks {
            return Err(ReserveError::OutOfRange { offset, bytes });
        }
        if fresh {
            if within % class.slot_bytes() != 0 || within / class.slot_bytes() >= class.slots() {
                return Err(ReserveError::Misplaced { offset, bytes });
            }
            if !self.are_free(begin, BLOCKS_PER_SLAB) {
                return Err(ReserveError::Overlap { offset, bytes });
            }
            self.take_blocks(begin, BLOCKS_PER_SLAB);
            self.allocator.slabs.open(unit, class);
            self.allocator.ranges.note_taken(begin, BLOCKS_PER_SLAB);
        }
        match self.allocator.slabs.claim(unit, within, class) {
            Claim::Taken => Ok(()),
            Claim::Overlap => Err(ReserveError::Overlap { offset, bytes }),
            Claim::Misplaced => Err(ReserveError::Misplaced { offset, bytes }),
        }
    }

    fn reserve_blocks(
        &mut self,
        offset: ExtentOffset,
        bytes: u32,
        (start, blocks): (u32, u32),
    ) -> Result<(), ReserveError> {
        if start + blocks > self.allocator.blocks {
            return Err(ReserveError::OutOfRange { offset, bytes });
        }
        if !self.are_free(start, blocks) {
            return Err(ReserveError::Overlap { offset, bytes });
        }
        self.take_blocks(start, blocks);
        self.allocator.ranges.tag_taken(start, blocks);
        self.allocator.ranges.note_taken(start, blocks);
        self.allocator.long_blocks += blocks;
        Ok(())
    }

    fn is_taken(&self, block: u32) -> bool {
        self.taken[(block / 64) as usize] >> (block % 64) & 1 == 1
    }

    fn are_free(&self, start: u32, blocks: u32) -> bool {
        self.next(start, true) >= start + blocks
    }

    fn take_blocks(&mut self, start: u32, blocks: u32) {
        for block in start..start + blocks {
            self.taken[(block / 64) as usize] |= 1 << (block % 64);
        }
    }

    /// The first block from `block` on that is taken, or that is not; the end if there is none.
    fn next(&self, mut block: u32, taken: bool) -> u32 {
        let whole = if taken { 0 } else { u64::MAX };
        while block < self.allocator.blocks && self.is_taken(block) != taken {
            let skip = block.is_multiple_of(64) && self.taken[(block / 64) as usize] == whole;
            block = (block + if skip { 64 } else { 1 }).min(self.allocator.blocks);
        }
        block
    }
}

const _: () = assert!(SLAB_BYTES / BLOCK_BYTES == BLOCKS_PER_SLAB && narrow(BLOCK_BYTES as u64) == 1024);
