//! Records inside a frame's payload: what a record means is not known here.
//!
//! | offset | bytes | field |
//! |-------:|------:|---|
//! | 0 | 4 | payload length, without padding |
//! | 4 | 4 | the record's CSN minus the batch's first CSN |
//! | 8 |   | payload, then zeros up to the next multiple of 8 |
//!
//! Payloads begin on multiples of 8 (frames on 4 KiB, headers of 128 bytes), so that they can be taken for
//! words.

use cell_terms::Csn;

use crate::check::index;
use crate::frame::{read_u32, write_u32};

/// Bytes before a record's payload.
pub const RECORD_HEADER_BYTES: usize = 8;
/// Records begin on multiples of this within the payload of a frame.
pub const RECORD_ALIGN: usize = 8;

const AT_LENGTH: usize = 0;
const AT_DELTA: usize = AT_LENGTH + 4;
const _: () = assert!(AT_DELTA + 4 == RECORD_HEADER_BYTES);

/// What a record with so many payload bytes takes of a batch: the unit of
/// [`crate::writer::PairLog::room_for`].
#[must_use]
pub const fn record_space(payload_bytes: usize) -> usize {
    RECORD_HEADER_BYTES + payload_bytes.next_multiple_of(RECORD_ALIGN)
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number.
    pub csn: Csn,
    /// What it says.
    pub payload: &'a [u8],
}

/// A frame whose checks match but whose records do not parse: written by a broken writer, or forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the frame's records do not parse")]
pub struct RecordFault;

/// Writes a record's header and padding into the space that it takes; the payload is between them.
///
/// # Panics
/// If the space is not [`record_space`] of the length.
pub(crate) fn frame_record(space: &mut [u8], payload_bytes: u32, delta: u32) {
    let length = index(u64::from(payload_bytes));
    assert_eq!(space.len(), record_space(length));
    write_u32(space, AT_LENGTH, payload_bytes);
    write_u32(space, AT_DELTA, delta);
    space[RECORD_HEADER_BYTES + length..].fill(0);
}

/// Iterates the records of a payload, in the order in which they were appended.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    payload: &'a [u8],
    csn_first: Csn,
    csn_last: Csn,
    csn_before: Option<Csn>,
}

impl<'a> Records<'a> {
    /// The records of a frame's payload, whose batch has this CSN range.
    #[must_use]
    pub const fn new(payload: &'a [u8], csn_first: Csn, csn_last: Csn) -> Records<'a> {
        Records { payload, csn_first, csn_last, csn_before: None }
    }

    fn take(&mut self) -> Option<Record<'a>> {
        if self.payload.len() < RECORD_HEADER_BYTES {
            return None;
        }
        let length = index(u64::from(read_u32(self.payload, AT_LENGTH)));
        let space = record_space(length);
        let csn = Csn(self.csn_first.0.checked_add(u64::from(read_u32(self.payload, AT_DELTA)))?);
        if self.payload.len() < space || csn > self.csn_last || self.csn_before.is_some_and(|b| b >= csn) {
            return None;
        }
        let (record, rest) = self.payload.split_at(space);
        let (payload, padding) = record[RECORD_HEADER_BYTES..].split_at(length);
        if padding.iter().any(|b| *b != 0) {
            return None;
        }
        self.payload = rest;
        self.csn_before = Some(csn);
        Some(Record { csn, payload })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.payload.is_empty() {
            return None;
        }
        let record = self.take().ok_or(RecordFault);
        if record.is_err() {
            self.payload = &[];
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload_of(records: &[(u32, &[u8])]) -> Vec<u8> {
        let mut payload = Vec::new();
        for (delta, bytes) in records {
            let begin = payload.len();
            payload.resize(begin + record_space(bytes.len()), 0xaa);
            payload[begin + RECORD_HEADER_BYTES..][..bytes.len()].copy_from_slice(bytes);
            frame_record(&mut payload[begin..], u32::try_from(bytes.len()).unwrap(), *delta);
        }
        payload
    }

    #[test]
    fn records_round_trip_keeps_csns_and_payloads() {
        let payload = payload_of(&[(0, b"one"), (2, b""), (3, b"12345678")]);
        let records: Vec<_> = Records::new(&payload, Csn(7), Csn(10)).map(Result::unwrap).collect();
        assert_eq!(records[0], Record { csn: Csn(7), payload: b"one" });
        assert_eq!(records[1], Record { csn: Csn(9), payload: b"" });
        assert_eq!(records[2], Record { csn: Csn(10), payload: b"12345678" });
    }

    #[test]
    fn records_forged_lengths_deltas_or_padding_are_faults() {
        let good = payload_of(&[(0, b"one"), (1, b"two")]);
        let parse =
            |bytes: &[u8]| Records::new(bytes, Csn(1), Csn(2)).try_for_each(|record| record.map(|_| ()));
        assert!(parse(&good).is_ok());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x80;
            let payload_byte = (at % 16 >= 8) && (at % 16 < 11);
            assert_eq!(parse(&bad).is_err(), !payload_byte, "byte {at}");
        }
        assert!(parse(&good[..good.len() - 1]).is_err());
    }
}
