//! Where keys are that the asked worker does not have: a refusal with a hint.
//!
//! Elsewhere reply, after the reply header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | pair that has the keys, not 0 |
//! | 4 | 2 | length of the low key |
//! | 6 | 2 | length of the high key |
//! | 8 | 1 | flags: bit 0 there is a high key; without it the range has no upper end |
//! | 9 | 7 | reserved, zero |
//! | 16 | | low key, high key |
//!
//! A hint is advice: it may be stale, which costs time and never truth, because every worker knows its own
//! keys.

use cell_terms::PairId;

use crate::cursor::{Reader, Writer};
use crate::{DecodeError, EncodeError};

const BOUNDED: u8 = 1;

/// A range of keys and the pair that has it, as far as the sender knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route<'a> {
    /// Keys at or above this.
    pub low: &'a [u8],
    /// Keys below this; none: all above.
    pub high: Option<&'a [u8]>,
    /// The pair that has them.
    pub pair: PairId,
}

impl<'a> Route<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        if self.pair == PairId(0) {
            return Err(EncodeError::Count { count: 0, max: 0 }); // nobody is called pair 0
        }
        let high = self.high.unwrap_or_default();
        writer.u32(self.pair.0)?;
        writer.key_length(self.low)?;
        writer.key_length(high)?;
        writer.u8(if self.high.is_some() { BOUNDED } else { 0 })?;
        writer.reserved(7)?;
        writer.bytes(self.low)?;
        writer.bytes(high)
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Route<'a>, DecodeError> {
        let pair = PairId(reader.u32()?);
        if pair == PairId(0) {
            return Err(reader.bad_tag(0u8));
        }
        let (low_len, high_len, flags) = (reader.u16()?, reader.u16()?, reader.u8()?);
        if flags & !BOUNDED != 0 || (flags == 0 && high_len != 0) {
            return Err(reader.bad_tag(flags));
        }
        reader.reserved(7)?;
        let low = reader.key(low_len)?;
        let high = reader.key(high_len)?;
        Ok(Route { low, high: (flags == BOUNDED).then_some(high), pair })
    }

    /// Whether a key is in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.low && self.high.is_none_or(|high| key < high)
    }
}
