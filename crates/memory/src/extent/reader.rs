//! Reading an extent out of live memory: copy by words, then the checksum shows whether it is the leaf's.

use cell_terms::{Csn, Epoch, ExtentOffset, Words};

use super::checksum;
use super::codec::{ExtentHeader, ExtentView};
use super::shape::ExtentShape;
use super::{HEADER_BYTES_MAX, HEADER_BYTES_MIN, VALUE_BYTES_MAX, byte_offset};
use crate::error::ExtentError;
use crate::region::Region;
use crate::width::{high, index, low};

/// What precedes the value of a common extent.
const HEADER_WIDTH: usize = HEADER_BYTES_MIN as usize;

/// Reads extents, one after the other, into one buffer, which grows to the largest of them.
#[derive(Debug)]
pub struct ExtentReader {
    extent: Vec<u8>,
}

impl ExtentReader {
    /// An empty one.
    #[must_use]
    pub fn new() -> ExtentReader {
        ExtentReader { extent: Vec::new() }
    }

    /// Copies an extent and checks it against its leaf's checksum. The answer is good until the next read. A
    /// writer may reuse the place meanwhile; then the checksum does not match, and the leaf is to be read
    /// again.
    ///
    /// # Errors
    /// [`ExtentError::Checksum`], or [`ExtentError::OutOfRange`] for a place that cannot be.
    #[inline]
    pub fn read(
        &mut self,
        region: &Region,
        offset: ExtentOffset,
        shape: ExtentShape,
        checksum: u64,
    ) -> Result<ExtentView<'_>, ExtentError> {
        let found = self.copy(region, offset, shape)?;
        if found != checksum {
            return Err(ExtentError::Checksum { expected: checksum, found });
        }
        ExtentView::decode(&self.extent)
    }

    /// As [`ExtentReader::read`], with the value appended to `out`, in one pass where that can be; `out` is
    /// as it was if the extent is not what it should be.
    ///
    /// # Errors
    /// As [`ExtentReader::read`].
    #[inline]
    pub fn append(
        &mut self,
        region: &Region,
        offset: ExtentOffset,
        shape: ExtentShape,
        checksum: u64,
        out: &mut Vec<u8>,
    ) -> Result<ExtentHeader, ExtentError> {
        let begin = place(region, offset, shape)?;
        if shape.is_plain() {
            let (len, bytes) = (out.len(), index(shape.extent_bytes().into()));
            if let Some((first, found)) = region.append_summed(begin, bytes, HEADER_WIDTH, out) {
                let [shape_and_epoch, csn] = first;
                if found == checksum && low(shape_and_epoch) == shape.bits() {
                    let (epoch, csn) = (Epoch(high(shape_and_epoch)), Csn(csn));
                    return Ok(ExtentHeader { epoch, csn, moved: None, expiry_ms: None });
                }
                out.truncate(len);
                return Err(ExtentError::Checksum { expected: checksum, found });
            }
        }
        self.append_read(region, offset, shape, checksum, out)
    }

    /// As [`ExtentReader::append`], in two passes.
    #[inline(never)]
    fn append_read(
        &mut self,
        region: &Region,
        offset: ExtentOffset,
        shape: ExtentShape,
        checksum: u64,
        out: &mut Vec<u8>,
    ) -> Result<ExtentHeader, ExtentError> {
        let view = self.read(region, offset, shape, checksum)?;
        out.extend_from_slice(view.value);
        Ok(view.header)
    }

    /// As [`ExtentReader::read`], where the leaf gives the value's length but no flags: the extent's first
    /// word is asked for them.
    ///
    /// # Errors
    /// As [`ExtentReader::read`].
    #[inline]
    pub fn read_value(
        &mut self,
        region: &Region,
        offset: ExtentOffset,
        value_bytes: u32,
        checksum: u64,
    ) -> Result<ExtentView<'_>, ExtentError> {
        let first = index(byte_offset(offset) / 8);
        if first >= region.len() || value_bytes > VALUE_BYTES_MAX {
            return Err(ExtentError::OutOfRange { offset, bytes: value_bytes });
        }
        let word = region.load(first);
        match ExtentShape::from_bits(low(word)) {
            Some(shape) if shape.value_bytes() == value_bytes => self.read(region, offset, shape, checksum),
            _ => Err(ExtentError::Malformed { shape: low(word), found: index(value_bytes.into()) }),
        }
    }

    /// The extent that was last read, as it lies in memory, without padding.
    #[must_use]
    pub fn extent(&self) -> &[u8] {
        &self.extent
    }

    /// Copies an extent and returns its checksum.
    fn copy(
        &mut self,
        region: &Region,
        offset: ExtentOffset,
        shape: ExtentShape,
    ) -> Result<u64, ExtentError> {
        let (begin, bytes) = (place(region, offset, shape)?, index(shape.extent_bytes().into()));
        self.extent.clear();
        if let Some((_, sum)) = region.append_summed(begin, bytes, 0, &mut self.extent) {
            return Ok(sum);
        }
        self.extent.resize(bytes, 0);
        region.read_bytes(begin, &mut self.extent);
        Ok(checksum(&self.extent))
    }
}

/// Reads an extent's header alone. No checksum covers it: its reader must know otherwise that the extent was
/// its leaf's while it was read.
///
/// # Errors
/// [`ExtentError::OutOfRange`] for a place that cannot be, [`ExtentError::Malformed`] for a header of another
/// shape.
pub fn read_header(
    region: &Region,
    offset: ExtentOffset,
    shape: ExtentShape,
) -> Result<ExtentHeader, ExtentError> {
    let begin = place(region, offset, shape)?;
    let mut bytes = [0; HEADER_BYTES_MAX as usize];
    let header = &mut bytes[..index(shape.header_bytes().into())];
    region.read_bytes(begin, header);
    let malformed = ExtentError::Malformed { shape: shape.bits(), found: header.len() };
    ExtentHeader::decode(shape, header).ok_or(malformed)
}

/// Where an extent begins, if it is inside the region.
#[inline]
fn place(region: &Region, offset: ExtentOffset, shape: ExtentShape) -> Result<u64, ExtentError> {
    let begin = byte_offset(offset);
    // By the length that loads are checked by, which is at hand.
    let words = index((begin + u64::from(shape.stored_bytes())) / 8);
    if words > region.len() {
        return Err(ExtentError::OutOfRange { offset, bytes: shape.extent_bytes() });
    }
    Ok(begin)
}

impl Default for ExtentReader {
    fn default() -> ExtentReader {
        ExtentReader::new()
    }
}
