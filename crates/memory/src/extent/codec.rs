//! Extents as bytes: encoding for the log and the region, decoding of what was read and checked.

use cell_terms::{Csn, Epoch, PairId, Version};

use super::checksum;
use super::shape::{EXPIRY_BYTES, ExtentShape, HEADER_BYTES_MIN, MOVED_BYTES};
use crate::error::ExtentError;
use crate::width::{high, index, join, low};

/// What an extent says beside its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentHeader {
    /// The epoch under which it was written here.
    pub epoch: Epoch,
    /// The CSN of the record that wrote it here.
    pub csn: Csn,
    /// The entry's version, if it was first written elsewhere.
    pub moved: Option<Version>,
    /// When the entry ends, in milliseconds since the Unix epoch.
    pub expiry_ms: Option<u64>,
}

impl ExtentHeader {
    /// The entry's version, given the pair whose region holds it.
    #[must_use]
    pub fn version(&self, pair: PairId) -> Version {
        self.moved.unwrap_or(Version { pair, epoch: self.epoch, csn: self.csn })
    }

    /// The shape of an extent with this header and a value of so many bytes.
    ///
    /// # Errors
    /// [`ExtentError::ValueTooLong`].
    pub fn shape(&self, value_bytes: usize) -> Result<ExtentShape, ExtentError> {
        let (moved, expiry) = (self.moved.is_some(), self.expiry_ms.is_some());
        let short = u32::try_from(value_bytes).ok();
        let shape = short.and_then(|bytes| ExtentShape::new(bytes, moved, expiry));
        shape.ok_or(ExtentError::ValueTooLong { bytes: value_bytes })
    }

    /// Reads the header of an extent of this shape: its first [`ExtentShape::header_bytes`]. `None` if there
    /// are not so many bytes or they are of another shape. Nothing is checked but that: a header alone has no
    /// checksum.
    #[must_use]
    pub fn decode(shape: ExtentShape, head: &[u8]) -> Option<ExtentHeader> {
        if head.len() != index(shape.header_bytes().into()) {
            return None;
        }
        let word = |at: u32| {
            let at = index(at.into());
            head[at..].first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
        };
        if low(word(0)) != shape.bits() {
            return None;
        }
        let moved = shape.moved().then(|| Version {
            pair: PairId(low(word(HEADER_BYTES_MIN))),
            epoch: Epoch(high(word(HEADER_BYTES_MIN))),
            csn: Csn(word(HEADER_BYTES_MIN + MOVED_BYTES / 2)),
        });
        let expiry_ms = shape.expiry().then(|| word(shape.header_bytes() - EXPIRY_BYTES));
        Some(ExtentHeader { epoch: Epoch(high(word(0))), csn: Csn(word(8)), moved, expiry_ms })
    }

    /// Appends the header.
    #[inline]
    fn put(self, shape: ExtentShape, out: &mut Vec<u8>) {
        let both = u128::from(join(shape.bits(), self.epoch.0)) | u128::from(self.csn.0) << 64;
        out.extend_from_slice(&both.to_le_bytes());
        if let Some(version) = self.moved {
            out.extend_from_slice(&join(version.pair.0, version.epoch.0).to_le_bytes());
            out.extend_from_slice(&version.csn.0.to_le_bytes());
        }
        if let Some(expiry_ms) = self.expiry_ms {
            out.extend_from_slice(&expiry_ms.to_le_bytes());
        }
    }
}

/// An extent as its log record, its place in the region and its leaf want it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodedExtent<'a> {
    /// The extent without padding.
    pub bytes: &'a [u8],
    /// What its length depends on.
    pub shape: ExtentShape,
    /// Its checksum.
    pub checksum: u64,
}

/// Encodes extents, one after the other, in one buffer.
pub struct ExtentEncoder {
    bytes: Vec<u8>,
}

impl ExtentEncoder {
    /// An empty one.
    #[must_use]
    pub fn new() -> ExtentEncoder {
        ExtentEncoder { bytes: Vec::new() }
    }

    /// Encodes an extent. The answer is good until the next one is encoded.
    ///
    /// # Errors
    /// [`ExtentError::ValueTooLong`].
    pub fn encode(&mut self, header: &ExtentHeader, value: &[u8]) -> Result<EncodedExtent<'_>, ExtentError> {
        let shape = header.shape(value.len())?;
        self.bytes.clear();
        self.bytes.reserve(index(shape.extent_bytes().into()));
        header.put(shape, &mut self.bytes);
        self.bytes.extend_from_slice(value);
        Ok(EncodedExtent { bytes: &self.bytes, shape, checksum: checksum(&self.bytes) })
    }
}

impl Default for ExtentEncoder {
    fn default() -> ExtentEncoder {
        ExtentEncoder::new()
    }
}

/// A copied extent, decoded. The bytes are the caller's, not live memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentView<'a> {
    /// What its length depends on.
    pub shape: ExtentShape,
    /// What it says beside its value.
    pub header: ExtentHeader,
    /// The value.
    pub value: &'a [u8],
}

impl<'a> ExtentView<'a> {
    /// Decodes an extent without padding. Nothing is checked but its form: check its checksum first, or know
    /// from where it comes (a log frame has its own).
    ///
    /// # Errors [`ExtentError::Malformed`] if the first word does not say just as many bytes, or has an
    /// undefined flag.
    pub fn decode(bytes: &'a [u8]) -> Result<ExtentView<'a>, ExtentError> {
        let first = bytes.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
        let malformed = ExtentError::Malformed { shape: low(first), found: bytes.len() };
        let shape = ExtentShape::from_bits(low(first)).ok_or(malformed)?;
        if bytes.len() < index(HEADER_BYTES_MIN.into()) || bytes.len() != index(shape.extent_bytes().into()) {
            return Err(malformed);
        }
        let (head, value) = bytes.split_at(index(shape.header_bytes().into()));
        let header = ExtentHeader::decode(shape, head).ok_or(malformed)?;
        Ok(ExtentView { shape, header, value })
    }

    /// Decodes an extent without padding after comparing its checksum with its leaf's: for bytes that a
    /// one-sided read brought.
    ///
    /// # Errors
    /// [`ExtentError::Checksum`] for anything that is not the extent which the leaf means.
    pub fn verify(bytes: &'a [u8], expected: u64) -> Result<ExtentView<'a>, ExtentError> {
        let found = checksum(bytes);
        if found == expected {
            ExtentView::decode(bytes)
        } else {
            Err(ExtentError::Checksum { expected, found })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VERSION: Version = Version { pair: PairId(5), epoch: Epoch(6), csn: Csn(7) };

    #[test]
    fn extent_golden_bytes_do_not_change() {
        let mut encoder = ExtentEncoder::new();
        let plain =
            ExtentHeader { epoch: Epoch(2), csn: Csn(0x0102_0304_0506_0708), ..ExtentHeader::default() };
        let full = ExtentHeader { moved: Some(VERSION), expiry_ms: Some(1_700_000_000_123), ..plain };
        let mut bytes = Vec::new();
        for (header, value) in [(plain, &b"value"[..]), (full, &b"a longer value"[..]), (plain, &[])] {
            let encoded = encoder.encode(&header, value).unwrap();
            bytes.extend_from_slice(encoded.bytes);
            bytes.extend_from_slice(&encoded.checksum.to_le_bytes());
        }
        assert_eq!(bytes, include_bytes!("../../tests/golden/extents-v1.bin"));
    }

    #[test]
    fn encode_longest_value_fits_and_one_more_is_refused() {
        let mut encoder = ExtentEncoder::new();
        let header = ExtentHeader { moved: Some(VERSION), expiry_ms: Some(1), ..ExtentHeader::default() };
        let mut value = vec![7; 16 << 20];
        assert_eq!(encoder.encode(&header, &value).unwrap().bytes.len(), (16 << 20) + 40);
        value.push(7);
        let refused = ExtentError::ValueTooLong { bytes: (16 << 20) + 1 };
        assert_eq!(encoder.encode(&header, &value), Err(refused));
    }

    #[test]
    fn decode_undefined_flag_or_wrong_length_is_malformed() {
        let mut encoder = ExtentEncoder::new();
        let bytes = encoder.encode(&ExtentHeader::default(), b"0123").unwrap().bytes.to_vec();
        for length in 0..bytes.len() {
            assert!(matches!(ExtentView::decode(&bytes[..length]), Err(ExtentError::Malformed { .. })));
        }
        let mut flagged = bytes.clone();
        flagged[3] |= 0x80;
        assert!(matches!(ExtentView::decode(&flagged), Err(ExtentError::Malformed { .. })));
        assert!(matches!(ExtentView::decode(&[0xff; 64]), Err(ExtentError::Malformed { .. })));
    }

    proptest! {
        #[test]
        fn extent_round_trip_keeps_everything_and_any_flipped_bit_is_found(
            csn: u64, epoch: u32, moved: Option<(u32, u32, u64)>, expiry_ms: Option<u64>,
            value in proptest::collection::vec(any::<u8>(), 0..700), flip: prop::sample::Index,
        ) {
            let moved = moved.map(|(pair, epoch, csn)| {
                Version { pair: PairId(pair), epoch: Epoch(epoch), csn: Csn(csn) }
            });
            let header = ExtentHeader { epoch: Epoch(epoch), csn: Csn(csn), moved, expiry_ms };
            let mut encoder = ExtentEncoder::new();
            let encoded = encoder.encode(&header, &value).unwrap();
            let view = ExtentView::verify(encoded.bytes, encoded.checksum).unwrap();
            prop_assert_eq!((view.header, view.value, view.shape), (header, &value[..], encoded.shape));
            let mut bytes = encoded.bytes.to_vec();
            let bit = flip.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let refused = ExtentView::verify(&bytes, encoded.checksum);
            let found = matches!(refused, Err(ExtentError::Checksum { .. }));
            prop_assert!(found);
        }
    }
}
