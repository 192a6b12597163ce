//! Fields that records and the table have in common.

use cell_terms::{Csn, Epoch, PairId, Pointer};

use super::name::SplitName;
use crate::fields::{Fields, RecordError};

/// In place of a key's length: no key.
const NO_KEY: u16 = u16::MAX;

/// Length `u16`, then the key.
///
/// # Panics
/// If the key is longer than any tree node takes.
pub(crate) fn encode_key(key: &[u8], out: &mut Vec<u8>) {
    let len = u16::try_from(key.len()).ok().filter(|len| *len != NO_KEY).expect("a key of a tree is short");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(key);
}

/// As [`encode_key`]; the length is 65,535 where there is none.
pub(crate) fn encode_key_option(key: Option<&[u8]>, out: &mut Vec<u8>) {
    match key {
        Some(key) => encode_key(key, out),
        None => out.extend_from_slice(&NO_KEY.to_le_bytes()),
    }
}

impl SplitName {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.pair.0.to_le_bytes());
        out.extend_from_slice(&self.epoch.0.to_le_bytes());
        out.extend_from_slice(&self.csn.0.to_le_bytes());
    }
}

impl<'a> Fields<'a> {
    pub(crate) fn name(&mut self) -> Result<SplitName, RecordError> {
        Ok(SplitName { pair: PairId(self.u32()?), epoch: Epoch(self.u32()?), csn: Csn(self.u64()?) })
    }

    pub(crate) fn pointer(&mut self) -> Result<Pointer, RecordError> {
        Ok(Pointer(self.u64()?))
    }

    pub(crate) fn key_option(&mut self) -> Result<Option<&'a [u8]>, RecordError> {
        match self.u16()? {
            NO_KEY => Ok(None),
            len => self.bytes(len.into()).map(Some),
        }
    }

    pub(crate) fn key(&mut self) -> Result<&'a [u8], RecordError> {
        let at = self.at;
        self.key_option()?.ok_or(RecordError::Unknown { offset: at, value: u8::MAX })
    }

    /// Whether everything was read: bytes behind a record's fields are of another format.
    pub(crate) fn end(self) -> Result<(), RecordError> {
        match self.bytes.get(self.at) {
            None => Ok(()),
            Some(value) => Err(RecordError::Unknown { offset: self.at, value: *value }),
        }
    }
}
