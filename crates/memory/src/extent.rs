//! One stored entry: an extent in an extent region, and the checksum that its leaf carries.
//!
//! | word | holds |
//! |---|---|
//! | 0 | low: shape (bits 0..25 value length, 25 `MOVED`, 26 `EXPIRY`, others reserved, zero); high: epoch |
//! | 1 | CSN of the record that wrote it to this region; a packing moves it within the region as it is |
//! | 2, 3 | with `MOVED`: the entry's version where it was first written (low: pair, high: epoch; CSN) |
//! | next | with `EXPIRY`: milliseconds since the Unix epoch at which it ends |
//! | then | the value, padded with zeros to a whole word |
//!
//! Little-endian. The version of an entry that was not moved is (this pair, epoch of word 0, CSN of word 1),
//! so an entry pays for it only once it moves. There is no key: the leaf has it. The CRC-64 (XZ) covers
//! everything up to the value's last byte, without the padding; extents have no other protection against a
//! reader that meets the writer.
//!
//! Lengths: 16 bytes of words 0 and 1, at most 24 more, a value of at most 16 MiB. The [`ExtentShape`] alone
//! gives the whole length, so a leaf that keeps the shape in place of the value's length spares its reader,
//! the allocator and a restore a look at the extent.

mod checksum;
mod codec;
mod reader;
mod shape;

use cell_terms::{ExtentOffset, WORDS_PER_LINE, Words};

use crate::region::{Region, RegionWriter};
use crate::width::index;

pub use checksum::checksum;
pub use codec::{EncodedExtent, ExtentEncoder, ExtentHeader, ExtentView};
pub use reader::{ExtentReader, read_header};
pub use shape::{
    EXTENT_BYTES_MAX, ExtentShape, GRANULE_BYTES, HEADER_BYTES_MAX, HEADER_BYTES_MIN, VALUE_BYTES_MAX,
};

/// Lines that [`prefetch`] asks for; the processor's own prefetcher takes over behind them.
const PREFETCH_LINES: usize = 6;

/// Writes an encoded extent (from an [`ExtentEncoder`], or out of a log record) to its place, by words. Until
/// the last word is stored, a reader's checksum fails.
///
/// # Panics
/// If it would end outside the region: the place came from the region's allocator.
pub fn store(region: &mut RegionWriter, offset: ExtentOffset, encoded: &[u8]) {
    region.write_bytes(byte_offset(offset), encoded);
}

/// Asks for an extent's first cache lines; a hint.
#[inline]
pub fn prefetch(region: &Region, offset: ExtentOffset, shape: ExtentShape) {
    prefetch_bytes(region, offset, shape.stored_bytes());
}

/// Asks for the cache lines of an extent's header; a hint.
#[inline]
pub fn prefetch_header(region: &Region, offset: ExtentOffset, shape: ExtentShape) {
    prefetch_bytes(region, offset, shape.header_bytes());
}

/// Asks for the first cache lines of so many bytes, whole words.
#[inline]
fn prefetch_bytes(region: &Region, offset: ExtentOffset, bytes: u32) {
    let first = index(byte_offset(offset) / 8);
    let end = first + index(bytes.into()) / 8;
    let (first, end) = (first / WORDS_PER_LINE, end.div_ceil(WORDS_PER_LINE));
    region.prefetch_lines(first * WORDS_PER_LINE, (end - first).min(PREFETCH_LINES));
}

/// Asks for several extents: for the first line of each before any other, because a request that misses the
/// TLB holds up what comes behind it, and side by side such misses overlap.
#[inline]
pub fn prefetch_all(region: &Region, extents: impl Iterator<Item = (ExtentOffset, ExtentShape)> + Clone) {
    for (offset, _) in extents.clone() {
        region.prefetch(index(byte_offset(offset) / 8));
    }
    for (offset, shape) in extents {
        prefetch(region, offset, shape);
    }
}

/// Where an extent begins, in bytes from the region's start.
#[inline]
#[must_use]
pub const fn byte_offset(offset: ExtentOffset) -> u64 {
    offset.0 as u64 * GRANULE_BYTES as u64
}
