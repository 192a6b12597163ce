//! The bytes of a checkpoint image. Little-endian; reserved bytes are zero and checked.
//!
//! ```text
//! header, 4096 bytes | blocks, each at a multiple of 128 | index | zeros | footer, the last 128 bytes
//! ```
//! The file's length is a multiple of 4096, so that it can be written past the page cache.
//!
//! Header:
//!
//! | offset | bytes | field |
//! |-------:|------:|---|
//! | 0    | 8 | magic `CellImag` |
//! | 8    | 4 | format version |
//! | 12   | 4 | pair |
//! | 16   | 4 | epoch of the owner that wrote it |
//! | 20   | 4 | geometry bytes |
//! | 24   | 8 | base CSN: everything at or below is in the image |
//! | 32   | 32 | reserved |
//! | 64   | 3968 | geometry, then zeros |
//! | 4032 | 56 | reserved |
//! | 4088 | 8 | CRC-64 of bytes 0..4088 |
//!
//! Index, one entry a block, in file order:
//!
//! | offset | bytes | field |
//! |-------:|------:|---|
//! | 0  | 8 | where the block begins in the file |
//! | 8  | 4 | bytes in the file |
//! | 12 | 4 | bytes when decompressed |
//! | 16 | 2 | section |
//! | 18 | 2 | codec: 0 raw, 1 zstd |
//! | 20 | 4 | items in it |
//! | 24 | 8 | tag: the section's own (where its items belong) |
//! | 32 | 8 | CRC-64 of the bytes in the file |
//!
//! Footer:
//!
//! | offset | bytes | field |
//! |-------:|------:|---|
//! | 0   | 8 | magic `CellImgE` |
//! | 8   | 8 | file bytes |
//! | 16  | 8 | where the index begins |
//! | 24  | 4 | blocks |
//! | 28  | 4 | reserved |
//! | 32  | 8 | items in all blocks |
//! | 40  | 8 | decompressed bytes of all blocks |
//! | 48  | 8 | bytes of all blocks in the file |
//! | 56  | 8 | highest CSN in the image |
//! | 64  | 8 | the header's check: header and footer are of one image |
//! | 72  | 8 | CRC-64 of the index, and with it of every block's check |
//! | 80  | 40 | reserved |
//! | 120 | 8 | CRC-64 of bytes 0..120 |

use cell_terms::{Csn, Epoch, PairId};

use super::ImageFault;
use crate::check::{crc64, index};
use crate::frame::{read_u32, read_u64, write_u32, write_u64};

/// Format version of images, of their container and of what `cell_recovery` puts into it.
pub const IMAGE_VERSION: u32 = 2;
/// Most bytes of the opaque geometry.
pub const GEOMETRY_BYTES_MAX: usize = 3968;
/// Most bytes of one block, decompressed.
pub const BLOCK_BYTES_MAX: usize = 32 << 20;

pub(super) const FILE_ALIGN: usize = 4096;
pub(super) const BLOCK_ALIGN: usize = 128;
pub(super) const HEADER_BYTES: usize = 4096;
pub(super) const ENTRY_BYTES: usize = 40;
pub(super) const FOOTER_BYTES: usize = 128;

const MAGIC_HEADER: u64 = u64::from_le_bytes(*b"CellImag");
const MAGIC_FOOTER: u64 = u64::from_le_bytes(*b"CellImgE");

const HEADER_VERSION: usize = 8;
const HEADER_PAIR: usize = HEADER_VERSION + 4;
const HEADER_EPOCH: usize = HEADER_PAIR + 4;
const HEADER_GEOMETRY_BYTES: usize = HEADER_EPOCH + 4;
const HEADER_BASE: usize = HEADER_GEOMETRY_BYTES + 4;
const HEADER_RESERVED_1: usize = HEADER_BASE + 8;
const HEADER_GEOMETRY: usize = HEADER_RESERVED_1 + 32;
const HEADER_RESERVED_2: usize = HEADER_GEOMETRY + GEOMETRY_BYTES_MAX;
const HEADER_CHECK: usize = HEADER_RESERVED_2 + 56;
const _: () = assert!(HEADER_CHECK + 8 == HEADER_BYTES && HEADER_GEOMETRY == 64);

const ENTRY_STORED: usize = 8;
const ENTRY_RAW: usize = ENTRY_STORED + 4;
const ENTRY_SECTION: usize = ENTRY_RAW + 4;
const ENTRY_CODEC: usize = ENTRY_SECTION + 2;
const ENTRY_ITEMS: usize = ENTRY_CODEC + 2;
const ENTRY_TAG: usize = ENTRY_ITEMS + 4;
const ENTRY_CHECK: usize = ENTRY_TAG + 8;
const _: () = assert!(ENTRY_CHECK + 8 == ENTRY_BYTES);

const FOOTER_FILE: usize = 8;
const FOOTER_INDEX: usize = FOOTER_FILE + 8;
const FOOTER_BLOCKS: usize = FOOTER_INDEX + 8;
const FOOTER_RESERVED_1: usize = FOOTER_BLOCKS + 4;
const FOOTER_ITEMS: usize = FOOTER_RESERVED_1 + 4;
const FOOTER_RAW: usize = FOOTER_ITEMS + 8;
const FOOTER_STORED: usize = FOOTER_RAW + 8;
const FOOTER_CSN_MAX: usize = FOOTER_STORED + 8;
const FOOTER_HEADER_CHECK: usize = FOOTER_CSN_MAX + 8;
const FOOTER_INDEX_CHECK: usize = FOOTER_HEADER_CHECK + 8;
const FOOTER_RESERVED_2: usize = FOOTER_INDEX_CHECK + 8;
const FOOTER_CHECK: usize = FOOTER_RESERVED_2 + 40;
const _: () = assert!(FOOTER_CHECK + 8 == FOOTER_BYTES);

/// Whose image this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageHeader {
    /// The pair.
    pub pair: PairId,
    /// The epoch of the owner that wrote it.
    pub epoch: Epoch,
    /// Everything at or below is in the image; some above may be.
    pub base: Csn,
    /// What the pair's regions look like; opaque here. At most [`GEOMETRY_BYTES_MAX`] bytes.
    pub geometry: Vec<u8>,
}

impl ImageHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        assert!(self.geometry.len() <= GEOMETRY_BYTES_MAX, "the geometry fits the header");
        let mut bytes = vec![0; HEADER_BYTES];
        write_u64(&mut bytes, 0, MAGIC_HEADER);
        write_u32(&mut bytes, HEADER_VERSION, IMAGE_VERSION);
        write_u32(&mut bytes, HEADER_PAIR, self.pair.0);
        write_u32(&mut bytes, HEADER_EPOCH, self.epoch.0);
        let geometry_bytes = u32::try_from(self.geometry.len()).expect("at most 3968, asserted");
        write_u32(&mut bytes, HEADER_GEOMETRY_BYTES, geometry_bytes);
        write_u64(&mut bytes, HEADER_BASE, self.base.0);
        bytes[HEADER_GEOMETRY..][..self.geometry.len()].copy_from_slice(&self.geometry);
        let check = crc64(&bytes[..HEADER_CHECK]);
        write_u64(&mut bytes, HEADER_CHECK, check);
        bytes
    }

    /// The header and its check.
    pub(super) fn decode(bytes: &[u8]) -> Result<(ImageHeader, u64), ImageFault> {
        if bytes.len() < HEADER_BYTES {
            return Err(ImageFault::Truncated);
        }
        if read_u64(bytes, 0) != MAGIC_HEADER {
            return Err(ImageFault::NotAnImage);
        }
        let check = read_u64(bytes, HEADER_CHECK);
        if crc64(&bytes[..HEADER_CHECK]) != check {
            return Err(ImageFault::HeaderCheck);
        }
        if read_u32(bytes, HEADER_VERSION) != IMAGE_VERSION {
            return Err(ImageFault::Version(read_u32(bytes, HEADER_VERSION)));
        }
        let length = index(u64::from(read_u32(bytes, HEADER_GEOMETRY_BYTES)));
        let room = &bytes[HEADER_GEOMETRY..HEADER_RESERVED_2];
        let (geometry, padding) = room.split_at_checked(length).ok_or(ImageFault::Contradiction)?;
        let mut reserved = bytes[HEADER_RESERVED_1..HEADER_GEOMETRY].iter().chain(padding);
        if reserved.any(|b| *b != 0) || bytes[HEADER_RESERVED_2..HEADER_CHECK].iter().any(|b| *b != 0) {
            return Err(ImageFault::Contradiction);
        }
        let header = ImageHeader {
            pair: PairId(read_u32(bytes, HEADER_PAIR)),
            epoch: Epoch(read_u32(bytes, HEADER_EPOCH)),
            base: Csn(read_u64(bytes, HEADER_BASE)),
            geometry: geometry.to_vec(),
        };
        Ok((header, check))
    }
}

/// How a block is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As it is: compression would not have saved a twentieth.
    Raw,
    /// zstd.
    Zstd,
}

/// What the index says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEntry {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its bytes in the file.
    pub stored_bytes: u32,
    /// Its bytes when decompressed.
    pub raw_bytes: u32,
    /// Its section; the meaning is the caller's.
    pub section: u16,
    /// How it is stored.
    pub codec: Codec,
    /// How many items it holds; the meaning is the caller's.
    pub items: u32,
    /// Where its items belong; the meaning is the caller's.
    pub tag: u64,
    /// CRC-64 of its bytes in the file.
    pub check: u64,
}

impl BlockEntry {
    pub(super) fn encode(&self, entry: &mut [u8]) {
        write_u64(entry, 0, self.offset);
        write_u32(entry, ENTRY_STORED, self.stored_bytes);
        write_u32(entry, ENTRY_RAW, self.raw_bytes);
        let codec = match self.codec {
            Codec::Raw => 0u16,
            Codec::Zstd => 1,
        };
        entry[ENTRY_SECTION..][..2].copy_from_slice(&self.section.to_le_bytes());
        entry[ENTRY_CODEC..][..2].copy_from_slice(&codec.to_le_bytes());
        write_u32(entry, ENTRY_ITEMS, self.items);
        write_u64(entry, ENTRY_TAG, self.tag);
        write_u64(entry, ENTRY_CHECK, self.check);
    }

    pub(super) fn decode(entry: &[u8]) -> Result<BlockEntry, ImageFault> {
        let short = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let codec = match short(ENTRY_CODEC) {
            0 => Codec::Raw,
            1 => Codec::Zstd,
            _ => return Err(ImageFault::Contradiction),
        };
        let block = BlockEntry {
            offset: read_u64(entry, 0),
            stored_bytes: read_u32(entry, ENTRY_STORED),
            raw_bytes: read_u32(entry, ENTRY_RAW),
            section: short(ENTRY_SECTION),
            codec,
            items: read_u32(entry, ENTRY_ITEMS),
            tag: read_u64(entry, ENTRY_TAG),
            check: read_u64(entry, ENTRY_CHECK),
        };
        let sizes = match codec {
            Codec::Raw => block.stored_bytes == block.raw_bytes,
            Codec::Zstd => block.stored_bytes < block.raw_bytes,
        };
        let limited = index(u64::from(block.raw_bytes)) <= BLOCK_BYTES_MAX;
        let aligned = block.offset.is_multiple_of(BLOCK_ALIGN as u64);
        if sizes && limited && aligned { Ok(block) } else { Err(ImageFault::Contradiction) }
    }
}

/// What an image holds, over all blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageSummary {
    /// Length of the file.
    pub file_bytes: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Items in all blocks.
    pub items: u64,
    /// Decompressed bytes of all blocks.
    pub raw_bytes: u64,
    /// Bytes of all blocks in the file.
    pub stored_bytes: u64,
    /// Highest CSN in the image: the log is required up to here.
    pub csn_max: Csn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) summary: ImageSummary,
    pub(super) index_offset: u64,
    pub(super) header_check: u64,
    pub(super) index_check: u64,
}

impl Footer {
    pub(super) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        write_u64(&mut bytes, 0, MAGIC_FOOTER);
        write_u64(&mut bytes, FOOTER_FILE, self.summary.file_bytes);
        write_u64(&mut bytes, FOOTER_INDEX, self.index_offset);
        write_u32(&mut bytes, FOOTER_BLOCKS, self.summary.blocks);
        write_u64(&mut bytes, FOOTER_ITEMS, self.summary.items);
        write_u64(&mut bytes, FOOTER_RAW, self.summary.raw_bytes);
        write_u64(&mut bytes, FOOTER_STORED, self.summary.stored_bytes);
        write_u64(&mut bytes, FOOTER_CSN_MAX, self.summary.csn_max.0);
        write_u64(&mut bytes, FOOTER_HEADER_CHECK, self.header_check);
        write_u64(&mut bytes, FOOTER_INDEX_CHECK, self.index_check);
        let check = crc64(&bytes[..FOOTER_CHECK]);
        write_u64(&mut bytes, FOOTER_CHECK, check);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Footer, ImageFault> {
        let sound = read_u64(bytes, 0) == MAGIC_FOOTER
            && crc64(&bytes[..FOOTER_CHECK]) == read_u64(bytes, FOOTER_CHECK);
        if !sound {
            return Err(ImageFault::FooterCheck);
        }
        let reserved = read_u32(bytes, FOOTER_RESERVED_1) == 0;
        if !reserved || bytes[FOOTER_RESERVED_2..FOOTER_CHECK].iter().any(|b| *b != 0) {
            return Err(ImageFault::Contradiction);
        }
        Ok(Footer {
            summary: ImageSummary {
                file_bytes: read_u64(bytes, FOOTER_FILE),
                blocks: read_u32(bytes, FOOTER_BLOCKS),
                items: read_u64(bytes, FOOTER_ITEMS),
                raw_bytes: read_u64(bytes, FOOTER_RAW),
                stored_bytes: read_u64(bytes, FOOTER_STORED),
                csn_max: Csn(read_u64(bytes, FOOTER_CSN_MAX)),
            },
            index_offset: read_u64(bytes, FOOTER_INDEX),
            header_check: read_u64(bytes, FOOTER_HEADER_CHECK),
            index_check: read_u64(bytes, FOOTER_INDEX_CHECK),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_of_another_version_is_refused_by_its_number() {
        let header =
            ImageHeader { pair: PairId(5), epoch: Epoch(3), base: Csn(77), geometry: b"geometry".to_vec() };
        let written = header.encode();
        assert_eq!(ImageHeader::decode(&written).unwrap().0, header);
        for version in [1, 3, u32::MAX] {
            let mut bytes = written.clone();
            write_u32(&mut bytes, HEADER_VERSION, version);
            let check = crc64(&bytes[..HEADER_CHECK]);
            write_u64(&mut bytes, HEADER_CHECK, check);
            assert!(
                matches!(ImageHeader::decode(&bytes), Err(ImageFault::Version(found)) if found == version)
            );
        }
    }
}
