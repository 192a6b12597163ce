#![allow(unsafe_code)] // bytes of an aligned buffer of words, see `Scratch`
//! CRC-64 (XZ) of extents, and the buffer in which it is fast.
//!
//! `crc64fast` folds blocks of 128 *aligned* bytes with carry-less multiplication, and takes what is before
//! and behind them through tables of 32 KiB, which cost time and the tree its level-1 cache. A typical extent
//! that lies anywhere has no whole aligned block at all, so extents are encoded and copied into a buffer
//! where they begin with one. (Placing them so that tables are never needed, behind a prefix that leaves the
//! register at zero, was measured too: 4 % of a read from random places, not worth its cleverness.)

use crc64fast::Digest;

use crate::width::index;

/// What `crc64fast` folds at once.
const BLOCK_BYTES: usize = 128;

/// CRC-64 (XZ) of an encoded extent, or of anything else.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut digest = Digest::new();
    digest.write(bytes);
    digest.sum64()
}

#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Block([u64; BLOCK_BYTES / 8]);

const _: () = assert!(size_of::<Block>() == BLOCK_BYTES, "no padding between or in blocks");
const ZERO: Block = Block([0; BLOCK_BYTES / 8]);

/// An aligned buffer that holds one extent at a time. It grows to the longest that it has held.
pub(super) struct Scratch {
    blocks: Vec<Block>,
    /// Length of the extent.
    length: usize,
}

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch { blocks: vec![ZERO; 4], length: 0 }
    }

    /// Makes room for an extent of so many bytes, whose content is arbitrary at first.
    pub(super) fn place(&mut self, bytes: u32) -> &mut [u8] {
        self.length = index(bytes.into());
        let blocks = self.length.div_ceil(BLOCK_BYTES);
        if blocks > self.blocks.len() {
            self.blocks.resize(blocks, ZERO);
        }
        let (first, length) = (self.blocks.as_mut_ptr().cast(), self.length);
        // SAFETY: `length` bytes of the vector's initialised blocks, which are plain bytes without padding
        // (asserted), borrowed exclusively as `self` is; every bit pattern is a valid `u64`.
        unsafe { std::slice::from_raw_parts_mut(first, length) }
    }

    /// The extent.
    pub(super) fn extent(&self) -> &[u8] {
        let first = self.blocks.as_ptr().cast();
        // SAFETY: as in `place`, which made room for `length` bytes; borrowed shared as `self` is.
        unsafe { std::slice::from_raw_parts(first, self.length) }
    }

    /// The extent's checksum.
    pub(super) fn checksum(&self) -> u64 {
        checksum(self.extent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_of_check_string_is_the_published_one() {
        assert_eq!(checksum(b"123456789"), 0x995d_c9bb_df19_39fa);
    }

    #[test]
    fn scratch_of_every_length_is_aligned_and_has_the_plain_checksum() {
        let source: Vec<u8> = (0..2000u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
        let mut scratch = Scratch::new();
        for bytes in 0..2000 {
            let plain = &source[..index(bytes.into())];
            scratch.place(bytes).copy_from_slice(plain);
            assert_eq!((scratch.extent(), scratch.checksum()), (plain, checksum(plain)));
            assert!(scratch.extent().as_ptr().addr().is_multiple_of(BLOCK_BYTES));
        }
    }
}
