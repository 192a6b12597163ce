//! The bytes of one-sided reads over TCP: ordinary messages of a lane, answered in order.
//!
//! | request: offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | region key |
//! | 8 | 8 | byte offset in the region |
//! | 16 | 4 | bytes to read |
//! | 20 | 4 | sequence number of the lane's requests, from 0, wrapping |
//!
//! | answer: offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | sequence number of the request |
//! | 4 | 4 | status: 0 done, 1 key unknown, 2 range invalid |
//! | 8 | - | the words read, in address order; none unless done |

use crate::remote_access::{ReadFailure, RegionKey, RemoteRead};

pub(super) const REQUEST_BYTES: usize = 24;
pub(super) const ANSWER_HEADER_BYTES: usize = 8;

const DONE: u32 = 0;
const KEY_UNKNOWN: u32 = 1;
const RANGE_INVALID: u32 = 2;

/// A request's bytes.
pub(super) fn encode_request(read: &RemoteRead, sequence: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[0..8].copy_from_slice(&read.key.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&read.offset.to_le_bytes());
    bytes[16..20].copy_from_slice(&read.length.to_le_bytes());
    bytes[20..24].copy_from_slice(&sequence.to_le_bytes());
    bytes
}

/// A request; none if the bytes are not one. Whether the range is permitted is for the service to judge.
pub(super) fn decode_request(bytes: &[u8]) -> Option<(RemoteRead, u32)> {
    let bytes: &[u8; REQUEST_BYTES] = bytes.try_into().ok()?;
    let key = RegionKey(u64_at(bytes, 0));
    let read = RemoteRead { key, offset: u64_at(bytes, 8), length: u32_at(bytes, 16) };
    Some((read, u32_at(bytes, 20)))
}

/// The header of an answer.
pub(super) fn encode_answer(sequence: u32, failure: Option<ReadFailure>) -> [u8; ANSWER_HEADER_BYTES] {
    let status = match failure {
        None => DONE,
        Some(ReadFailure::RangeInvalid) => RANGE_INVALID,
        // The service finds no other reason.
        Some(_) => KEY_UNKNOWN,
    };
    let mut bytes = [0; ANSWER_HEADER_BYTES];
    bytes[0..4].copy_from_slice(&sequence.to_le_bytes());
    bytes[4..8].copy_from_slice(&status.to_le_bytes());
    bytes
}

/// Judges the answer to the request of that number and length, and puts its words where they can be lent;
/// none if the bytes are not that answer.
pub(super) fn decode_answer(
    bytes: &[u8],
    sequence: u32,
    length: u32,
    words: &mut Vec<u64>,
) -> Option<Result<(), ReadFailure>> {
    let (header, data) = bytes.split_first_chunk::<ANSWER_HEADER_BYTES>()?;
    if u32_at(header, 0) != sequence {
        return None;
    }
    words.clear();
    match u32_at(header, 4) {
        DONE if data.len() as u64 == u64::from(length) => {
            words.extend(data.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)));
            Some(Ok(()))
        }
        KEY_UNKNOWN if data.is_empty() => Some(Err(ReadFailure::KeyUnknown)),
        RANGE_INVALID if data.is_empty() => Some(Err(ReadFailure::RangeInvalid)),
        _ => None,
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: RemoteRead = RemoteRead { key: RegionKey(0x0102_0304_0506_0708), offset: 4096, length: 16 };

    #[test]
    fn request_golden_bytes_round_trip() {
        let golden = [8, 7, 6, 5, 4, 3, 2, 1, 0, 16, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 9, 0, 0, 0];
        assert_eq!(encode_request(&READ, 9), golden);
        assert_eq!(decode_request(&golden), Some((READ, 9)));
        assert_eq!(decode_request(&golden[1..]), None);
    }

    #[test]
    fn answer_only_the_expected_one_is_taken() {
        let mut words = Vec::new();
        let mut bytes = encode_answer(9, None).to_vec();
        bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode_answer(&bytes, 9, 16, &mut words), Some(Ok(())));
        assert_eq!(words, [1, 2]);
        assert_eq!(decode_answer(&bytes, 8, 16, &mut words), None, "another request's");
        assert_eq!(decode_answer(&bytes, 9, 24, &mut words), None, "another length");
        assert_eq!(decode_answer(&bytes[..7], 9, 16, &mut words), None, "half a header");
        for failure in [ReadFailure::KeyUnknown, ReadFailure::RangeInvalid] {
            let answer = encode_answer(9, Some(failure));
            assert_eq!(decode_answer(&answer, 9, 16, &mut words), Some(Err(failure)));
        }
        bytes[4] = 77;
        assert_eq!(decode_answer(&bytes, 9, 16, &mut words), None, "an unknown status");
    }
}
