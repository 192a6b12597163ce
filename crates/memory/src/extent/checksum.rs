#![allow(unsafe_code)] // bytes of an aligned buffer of words, see `Scratch`
//! CRC-64 (XZ) of extents, and the buffer in which it is fast.
//!
//! `crc64fast` folds blocks of 128 aligned bytes with carry-less multiplication, and takes what is before and behind
//! them through 32 KiB of tables, which for a typical extent is all of it, and costs the tree its level-1 cache. So a
//! short extent is laid in a [`Scratch`] such that it *ends* with a block, behind a prefix that the checksum cannot
//! see: the register starts as 2^64-1, eight bytes of ones make it zero, zeros keep it zero, and inverting the extent's
//! first eight bytes stands for the start value that it would have met.

use crc64fast::Digest;

/// What `crc64fast` folds at once.
const BLOCK_BYTES: usize = 128;
/// The ones before the zeros.
const PREFIX_BYTES: usize = 8;

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

const ZERO: Block = Block([0; BLOCK_BYTES / 8]);

/// An aligned buffer that holds one extent at a time, so placed that its checksum needs no table. It grows to the
/// largest extent it has held.
pub(super) struct Scratch {
    blocks: Vec<Block>,
    /// Where the extent begins.
    begin: usize,
    end: usize,
}

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch { blocks: vec![ZERO; 4], begin: 0, end: 0 }
    }

    /// Makes room for an extent of `bytes` bytes, whose content is arbitrary at first.
    pub(super) fn place(&mut self, bytes: usize) -> &mut [u8] {
        // Room for the prefix, then up to a block's end.
        let end = (PREFIX_BYTES + bytes).next_multiple_of(BLOCK_BYTES);
        let blocks = end / BLOCK_BYTES;
        if blocks > self.blocks.len() {
            self.blocks.resize(blocks, ZERO);
        }
        (self.begin, self.end) = (end - bytes, end);
        let range = self.begin..self.end;
        &mut self.bytes_mut()[range]
    }

    /// The extent, without padding.
    pub(super) fn extent(&self) -> &[u8] {
        &self.bytes()[self.begin..self.end]
    }

    /// The extent's checksum.
    pub(super) fn checksum(&mut self) -> u64 {
        let (begin, end) = (self.begin, self.end);
        if end - begin < PREFIX_BYTES {
            return checksum(self.extent());
        }
        let bytes = self.bytes_mut();
        bytes[..PREFIX_BYTES].fill(0xff);
        bytes[PREFIX_BYTES..begin].fill(0);
        invert(&mut bytes[begin..begin + PREFIX_BYTES]);
        let sum = checksum(&bytes[..end]);
        invert(&mut bytes[begin..begin + PREFIX_BYTES]);
        sum
    }

    fn bytes(&self) -> &[u8] {
        let (first, bytes) = (self.blocks.as_ptr().cast(), self.blocks.len() * BLOCK_BYTES);
        // SAFETY: the vector's initialised blocks are `bytes` plain bytes without padding, borrowed as `self` is.
        unsafe { std::slice::from_raw_parts(first, bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let (first, bytes) = (self.blocks.as_mut_ptr().cast(), self.blocks.len() * BLOCK_BYTES);
        // SAFETY: as in `bytes`, borrowed exclusively as `self` is; every bit pattern is a valid `u64`.
        unsafe { std::slice::from_raw_parts_mut(first, bytes) }
    }
}

const _: () = assert!(size_of::<Block>() == BLOCK_BYTES, "no padding between or in blocks");

fn invert(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_of_check_string_is_the_published_one() {
        assert_eq!(checksum(b"123456789"), 0x995d_c9bb_df19_39fa);
    }

    #[test]
    fn scratch_checksum_of_every_length_is_the_plain_one() {
        let source: Vec<u8> = (0..2000u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
        let mut scratch = Scratch::new();
        for bytes in 0..source.len() {
            scratch.place(bytes).copy_from_slice(&source[..bytes]);
            assert_eq!(scratch.checksum(), checksum(&source[..bytes]), "{bytes} bytes");
            assert_eq!(scratch.extent(), &source[..bytes]);
        }
    }
}
