//! How often a client has read the meganodes of a node one-sidedly, as its reports say
//! ([`crate::client_report`]). For each meganode, 16 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | pair id |
//! | 4 | 4 | slot |
//! | 8 | 8 | reads since the last report; not zero |

use cell_terms::{PairId, SlotIndex};

use crate::cursor::{Reader, Writer};
use crate::{DecodeError, EncodeError};

const ROW_BYTES: usize = 16;

/// Most meganodes of one report.
pub const REPORTED_MEGANODES_MAX: usize = 1_024;

/// One-sided reads of a meganode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedRead {
    /// Its pair.
    pub pair: PairId,
    /// Its slot.
    pub slot: SlotIndex,
    /// How many.
    pub reads: u64,
}

/// The meganodes of a report, checked: those that arrived, or those to be sent.
#[derive(Clone, Copy, Debug)]
pub enum ReportedReads<'a> {
    /// Still as they arrived.
    Wire(
        /// Checked rows.
        WireReportedReads<'a>,
    ),
    /// To be sent.
    List(&'a [ReportedRead]),
}

/// Encoded rows that were checked on arrival.
#[derive(Clone, Copy, Debug)]
pub struct WireReportedReads<'a>(&'a [u8]);

impl Default for ReportedReads<'_> {
    fn default() -> Self {
        ReportedReads::List(&[])
    }
}

impl<'a> ReportedReads<'a> {
    /// How many meganodes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            ReportedReads::Wire(WireReportedReads(bytes)) => bytes.len() / ROW_BYTES,
            ReportedReads::List(list) => list.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = ReportedRead> + use<'a> {
        let (wire, list): (&'a [u8], &'a [ReportedRead]) = match *self {
            ReportedReads::Wire(WireReportedReads(bytes)) => (bytes, &[]),
            ReportedReads::List(list) => (&[], list),
        };
        let decoded =
            wire.chunks_exact(ROW_BYTES).map_while(|row| ReportedRead::decode(&mut Reader::new(row)).ok());
        decoded.chain(list.iter().copied())
    }

    pub(crate) fn count(&self) -> Result<u16, EncodeError> {
        let count = self.len();
        let short = u16::try_from(count).ok().filter(|_| count <= REPORTED_MEGANODES_MAX);
        short.ok_or(EncodeError::Count { count, max: REPORTED_MEGANODES_MAX })
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        self.iter().try_for_each(|row| {
            writer.u32(row.pair.0)?;
            writer.u32(row.slot.0)?;
            writer.u64(row.reads)
        })
    }

    pub(crate) fn decode(reader: &mut Reader<'a>, count: u16) -> Result<ReportedReads<'a>, DecodeError> {
        if usize::from(count) > REPORTED_MEGANODES_MAX {
            return Err(reader.bad_tag(count));
        }
        let bytes = reader.take(usize::from(count) * ROW_BYTES)?;
        for row in bytes.chunks_exact(ROW_BYTES) {
            ReportedRead::decode(&mut Reader::new(row))?;
        }
        Ok(ReportedReads::Wire(WireReportedReads(bytes)))
    }
}

impl ReportedRead {
    fn decode(reader: &mut Reader<'_>) -> Result<ReportedRead, DecodeError> {
        let (pair, slot) = (PairId(reader.u32()?), SlotIndex(reader.u32()?));
        let reads = reader.u64()?;
        if reads == 0 {
            return Err(reader.bad_tag(reads));
        }
        Ok(ReportedRead { pair, slot, reads })
    }
}

impl PartialEq for ReportedReads<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for ReportedReads<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(rows: &[ReportedRead]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        ReportedReads::List(rows).encode(&mut writer).unwrap();
        writer.complete();
        bytes
    }

    #[test]
    fn more_meganodes_than_a_report_may_have_are_refused_by_both_sides() {
        let rows = vec![ReportedRead { reads: 1, ..ReportedRead::default() }; REPORTED_MEGANODES_MAX + 1];
        assert!(ReportedReads::List(&rows[1..]).count().is_ok());
        assert!(matches!(ReportedReads::List(&rows).count(), Err(EncodeError::Count { .. })));
        let bytes = encoded(&rows);
        let count = u16::try_from(rows.len()).unwrap();
        let decoded = ReportedReads::decode(&mut Reader::new(&bytes), count - 1).unwrap();
        assert_eq!((decoded.len(), decoded), (REPORTED_MEGANODES_MAX, ReportedReads::List(&rows[1..])));
        assert!(ReportedReads::decode(&mut Reader::new(&bytes), count).is_err());
        assert!(ReportedReads::decode(&mut Reader::new(&bytes[..15]), 1).is_err(), "cut off");
    }

    #[test]
    fn meganode_without_a_read_is_refused() {
        let bytes = encoded(&[ReportedRead::default()]);
        assert!(ReportedReads::decode(&mut Reader::new(&bytes), 1).is_err());
    }
}
