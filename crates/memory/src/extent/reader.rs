//! Reading an extent out of live memory: copy by words, then the checksum tells whether it is the leaf's.

use cell_terms::{ExtentOffset, Words};

use super::checksum::Scratch;
use super::codec::ExtentView;
use super::shape::ExtentShape;
use super::{VALUE_BYTES_MAX, byte_offset};
use crate::error::ExtentError;
use crate::region::Region;
use crate::width::{index, low};

/// Reads extents, one after the other, into one buffer, which grows to the largest of them.
pub struct ExtentReader {
    scratch: Scratch,
}

impl ExtentReader {
    /// An empty one.
    #[must_use]
    pub fn new() -> ExtentReader {
        ExtentReader { scratch: Scratch::new() }
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
        ExtentView::decode(self.scratch.extent())
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
        self.scratch.extent()
    }

    /// Copies an extent and returns its checksum.
    fn copy(
        &mut self,
        region: &Region,
        offset: ExtentOffset,
        shape: ExtentShape,
    ) -> Result<u64, ExtentError> {
        let (begin, bytes) = (byte_offset(offset), shape.extent_bytes());
        if begin + u64::from(shape.stored_bytes()) > region.spec().bytes {
            return Err(ExtentError::OutOfRange { offset, bytes });
        }
        region.read_bytes(begin, self.scratch.place(bytes));
        Ok(self.scratch.checksum())
    }
}

impl Default for ExtentReader {
    fn default() -> ExtentReader {
        ExtentReader::new()
    }
}
