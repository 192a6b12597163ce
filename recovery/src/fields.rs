//! Reading records: little-endian fields in order, and why that fails.

use cell_terms::{Csn, Epoch, PairId, Version};
use cell_tree::ChangeDecodeError;

/// Why a record could not be read: its frame's checksum held, so it was written by another format or by a
/// defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The record ends before its fields do.
    #[error("the record ends after {length} bytes, within its fields")]
    Short {
        /// Bytes there were.
        length: usize,
    },
    /// No such kind, outcome or flag.
    #[error("byte {offset} of the record is {value}, which this version does not know")]
    Unknown {
        /// Where.
        offset: usize,
        /// What.
        value: u8,
    },
    /// The tree change inside could not be read.
    #[error("the record's tree change cannot be read")]
    Change(#[source] ChangeDecodeError),
}

/// Reads little-endian fields in order.
pub(crate) struct Fields<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let short = RecordError::Short { length: self.bytes.len() };
        let bytes = self.bytes.get(self.at..self.at + N).ok_or(short)?;
        self.at += N;
        bytes.try_into().map_err(|_| short)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, RecordError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, RecordError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], RecordError> {
        let short = RecordError::Short { length: self.bytes.len() };
        let bytes = self.bytes.get(self.at..self.at + length).ok_or(short)?;
        self.at += length;
        Ok(bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, RecordError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, RecordError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn flag(&mut self) -> Result<bool, RecordError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(RecordError::Unknown { offset: self.at - 1, value }),
        }
    }

    pub(crate) fn version(&mut self) -> Result<Version, RecordError> {
        Ok(Version { pair: PairId(self.u32()?), epoch: Epoch(self.u32()?), csn: Csn(self.u64()?) })
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        &self.bytes[self.at..]
    }
}
