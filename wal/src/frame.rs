//! A frame: what one log holds of one commit batch, or an empty mark. Frames begin and end on 4 KiB, because
//! that is what O_DIRECT writes and what a disk may tear.
//!
//! | offset | bytes | field | meaning |
//! |-------:|------:|---|---|
//! | 0   | 8 | magic | `CellFram` |
//! | 8   | 4 | version | format version, [`FRAME_VERSION`] |
//! | 12  | 4 | flags | what kind of frame, see below |
//! | 16  | 4 | region | the log's region id |
//! | 20  | 4 | pair | the region's pair id |
//! | 24  | 4 | epoch | the owner's epoch |
//! | 28  | 4 | predecessor epoch | the epoch whose cut this one follows, 0: none |
//! | 32  | 4 | generation | of the segment: its number, never used twice within a log |
//! | 36  | 4 | sequence | of the frame within its segment, from 0, dense |
//! | 40  | 8 | first CSN | of the batch over *both* logs |
//! | 48  | 8 | last CSN | of the batch over both logs; an empty frame has first = last + 1 |
//! | 56  | 8 | durable CSN | the durable watermark when the frame was submitted |
//! | 64  | 8 | predecessor cut | the last CSN of the predecessor epoch that counts |
//! | 72  | 8 | salt | of the log, not guessable: stored values cannot pose as frames |
//! | 80  | 8 | segment bytes | length of this segment's file |
//! | 88  | 4 | payload bytes | records, without padding |
//! | 92  | 4 | records | how many records the payload holds |
//! | 96  | 4 | successor | generation of the next segment, in a rotate frame |
//! | 100 | 4 | reserved | zero |
//! | 104 | 8 | payload check | CRC-64 of everything from 128 to the end of the frame, padding included |
//! | 112 | 8 | reserved | zero |
//! | 120 | 8 | header check | CRC-64 of bytes 0..120, so it covers the payload check too |
//! | 128 |   | payload | records (see [`crate::record`]), then zeros up to the next 4 KiB |
//!
//! The header has a check of its own: a length is believed before the payload is read, and a header that
//! survives is proof that its frame was submitted even if its payload was torn. Magic, version and header
//! check keep their places in every version.
//!
//! Flags: bit 0 the other log has a frame of this batch; bit 1 the frame is empty (a seal); bit 2 it is the
//! first frame of the log (open); bit 3 it ends its segment and names the successor (rotate). 2 and 3 imply
//! 1.
//!
//! A `zerocopy` struct of these fields would have as many lines as their offsets, and decodes no faster
//! (11 ns without the check): it is not worth a dependency.

use cell_terms::{Csn, Epoch, PairId, RegionId};

use crate::check::{crc64, index};

/// Format version of frames.
pub const FRAME_VERSION: u32 = 1;
/// Frames begin and end on multiples of this.
pub const FRAME_ALIGN: usize = 4096;
/// Bytes before the payload.
pub const FRAME_HEADER_BYTES: usize = 128;
/// The length of a frame without records.
pub const EMPTY_FRAME_BYTES: usize = FRAME_ALIGN;

const MAGIC: u64 = u64::from_le_bytes(*b"CellFram");

const AT_MAGIC: usize = 0;
const AT_VERSION: usize = AT_MAGIC + 8;
const AT_FLAGS: usize = AT_VERSION + 4;
const AT_REGION: usize = AT_FLAGS + 4;
const AT_PAIR: usize = AT_REGION + 4;
const AT_EPOCH: usize = AT_PAIR + 4;
const AT_PREDECESSOR_EPOCH: usize = AT_EPOCH + 4;
const AT_GENERATION: usize = AT_PREDECESSOR_EPOCH + 4;
const AT_SEQUENCE: usize = AT_GENERATION + 4;
const AT_CSN_FIRST: usize = AT_SEQUENCE + 4;
const AT_CSN_LAST: usize = AT_CSN_FIRST + 8;
const AT_DURABLE: usize = AT_CSN_LAST + 8;
const AT_PREDECESSOR_CUT: usize = AT_DURABLE + 8;
const AT_SALT: usize = AT_PREDECESSOR_CUT + 8;
const AT_SEGMENT_BYTES: usize = AT_SALT + 8;
const AT_PAYLOAD_BYTES: usize = AT_SEGMENT_BYTES + 8;
const AT_RECORDS: usize = AT_PAYLOAD_BYTES + 4;
const AT_SUCCESSOR: usize = AT_RECORDS + 4;
const AT_RESERVED_1: usize = AT_SUCCESSOR + 4;
const AT_PAYLOAD_CHECK: usize = AT_RESERVED_1 + 4;
const AT_RESERVED_2: usize = AT_PAYLOAD_CHECK + 8;
const AT_HEADER_CHECK: usize = AT_RESERVED_2 + 8;

const _: () = assert!(AT_PAYLOAD_CHECK == 104 && AT_HEADER_CHECK == 120);
const _: () = assert!(AT_HEADER_CHECK + 8 == FRAME_HEADER_BYTES);
const _: () = assert!(FRAME_ALIGN.is_multiple_of(FRAME_HEADER_BYTES));

const FLAG_OTHER: u32 = 1 << 0;
const FLAG_SEAL: u32 = 1 << 1;
const FLAG_OPEN: u32 = 1 << 2;
const FLAG_ROTATE: u32 = 1 << 3;

/// The last CSN of an earlier epoch that counts, and that epoch. Every frame carries it: see
/// `docs/design/membership.md`. Epoch zero: there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Predecessor {
    /// The epoch before this one whose logs count.
    pub epoch: Epoch,
    /// Its recorded cut.
    pub cut: Csn,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// One log's part of a commit batch.
    Batch {
        /// Whether the other log has a frame of this batch too.
        other: bool,
    },
    /// Empty: everything before it is durable.
    Seal,
    /// Empty: the first frame of a log.
    Open,
    /// Empty: the last frame of a segment; a seal as well.
    Rotate {
        /// Where the log goes on.
        successor: u32,
    },
}

impl FrameKind {
    /// Whether the frame holds no records.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        !matches!(self, FrameKind::Batch { .. })
    }

    const fn flags(self) -> u32 {
        match self {
            FrameKind::Batch { other: false } => 0,
            FrameKind::Batch { other: true } => FLAG_OTHER,
            FrameKind::Seal => FLAG_SEAL,
            FrameKind::Open => FLAG_SEAL | FLAG_OPEN,
            FrameKind::Rotate { .. } => FLAG_SEAL | FLAG_ROTATE,
        }
    }

    const fn from_flags(flags: u32, successor: u32) -> Option<FrameKind> {
        const OPEN: u32 = FLAG_SEAL | FLAG_OPEN;
        const ROTATE: u32 = FLAG_SEAL | FLAG_ROTATE;
        match (flags, successor) {
            (0, 0) => Some(FrameKind::Batch { other: false }),
            (FLAG_OTHER, 0) => Some(FrameKind::Batch { other: true }),
            (FLAG_SEAL, 0) => Some(FrameKind::Seal),
            (OPEN, 0) => Some(FrameKind::Open),
            (ROTATE, 1..) => Some(FrameKind::Rotate { successor }),
            _ => None,
        }
    }
}

/// A frame's header, without magic, version and header check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the frame is.
    pub kind: FrameKind,
    /// The log's region.
    pub region: RegionId,
    /// The region's pair.
    pub pair: PairId,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// What the epoch follows.
    pub predecessor: Predecessor,
    /// The segment's generation.
    pub generation: u32,
    /// The frame's number within its segment.
    pub sequence: u32,
    /// First CSN of the batch over both logs.
    pub csn_first: Csn,
    /// Last CSN of the batch over both logs.
    pub csn_last: Csn,
    /// The durable watermark at submission.
    pub csn_durable: Csn,
    /// The log's salt.
    pub salt: u64,
    /// Length of the segment's file.
    pub segment_bytes: u64,
    /// Bytes of records.
    pub payload_bytes: u32,
    /// Number of records.
    pub records: u32,
    /// CRC-64 of payload and padding. Filled in by [`finish`].
    pub payload_check: u64,
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameFault {
    /// Nothing was written here.
    #[error("zeros where a frame should begin")]
    Zeros,
    /// The file ends here.
    #[error("the file ends where a frame should begin or go on")]
    EndOfFile,
    /// Not a frame header.
    #[error("no frame header")]
    Magic,
    /// The header is damaged.
    #[error("the frame header's check does not match")]
    HeaderCheck,
    /// The payload is damaged.
    #[error("the frame payload's check does not match")]
    PayloadCheck,
    /// A sound header with fields that no writer produces.
    #[error("the frame header contradicts itself")]
    Contradiction,
    /// A frame of an earlier use of this file.
    #[error("a stale frame of an earlier use of the file")]
    Stale,
    /// A frame that belongs elsewhere: another region, epoch, segment or place.
    #[error("a frame that belongs elsewhere")]
    Foreign,
    /// A sound header of another format version.
    #[error("a frame of format version {0}")]
    Version(u32),
}

impl FrameHeader {
    /// The frame's whole length, header and padding included.
    #[must_use]
    pub const fn frame_bytes(&self) -> usize {
        frame_bytes(index(self.payload_bytes as u64))
    }

    /// Reads a header from the first bytes of a frame.
    ///
    /// # Errors
    /// Why these bytes are not a frame's beginning. The caller still has to compare identity and place.
    ///
    /// # Panics
    /// If there are fewer than [`FRAME_HEADER_BYTES`] bytes.
    pub fn decode(bytes: &[u8]) -> Result<FrameHeader, FrameFault> {
        let bytes = &bytes[..FRAME_HEADER_BYTES];
        if read_u64(bytes, AT_MAGIC) != MAGIC {
            return Err(if bytes.iter().all(|b| *b == 0) { FrameFault::Zeros } else { FrameFault::Magic });
        }
        if crc64(&bytes[..AT_HEADER_CHECK]) != read_u64(bytes, AT_HEADER_CHECK) {
            return Err(FrameFault::HeaderCheck);
        }
        if read_u32(bytes, AT_VERSION) != FRAME_VERSION {
            return Err(FrameFault::Version(read_u32(bytes, AT_VERSION)));
        }
        let kind = FrameKind::from_flags(read_u32(bytes, AT_FLAGS), read_u32(bytes, AT_SUCCESSOR));
        let header = FrameHeader {
            kind: kind.ok_or(FrameFault::Contradiction)?,
            region: RegionId(read_u32(bytes, AT_REGION)),
            pair: PairId(read_u32(bytes, AT_PAIR)),
            epoch: Epoch(read_u32(bytes, AT_EPOCH)),
            predecessor: Predecessor {
                epoch: Epoch(read_u32(bytes, AT_PREDECESSOR_EPOCH)),
                cut: Csn(read_u64(bytes, AT_PREDECESSOR_CUT)),
            },
            generation: read_u32(bytes, AT_GENERATION),
            sequence: read_u32(bytes, AT_SEQUENCE),
            csn_first: Csn(read_u64(bytes, AT_CSN_FIRST)),
            csn_last: Csn(read_u64(bytes, AT_CSN_LAST)),
            csn_durable: Csn(read_u64(bytes, AT_DURABLE)),
            salt: read_u64(bytes, AT_SALT),
            segment_bytes: read_u64(bytes, AT_SEGMENT_BYTES),
            payload_bytes: read_u32(bytes, AT_PAYLOAD_BYTES),
            records: read_u32(bytes, AT_RECORDS),
            payload_check: read_u64(bytes, AT_PAYLOAD_CHECK),
        };
        let reserved = read_u32(bytes, AT_RESERVED_1) == 0 && read_u64(bytes, AT_RESERVED_2) == 0;
        if reserved && header.is_consistent() { Ok(header) } else { Err(FrameFault::Contradiction) }
    }

    fn is_consistent(&self) -> bool {
        let range = match self.kind {
            FrameKind::Batch { .. } => self.csn_first <= self.csn_last && self.records > 0,
            _ => {
                self.csn_last.0.checked_add(1) == Some(self.csn_first.0)
                    && self.csn_durable == self.csn_last
                    && self.payload_bytes == 0
                    && self.records == 0
            }
        };
        // CSNs end long before they could overflow where they are counted on.
        range && self.csn_first.0 > 0 && self.csn_last.0 < u64::MAX / 2 && self.csn_durable < self.csn_first
    }

    fn encode(&self, bytes: &mut [u8]) {
        let successor = if let FrameKind::Rotate { successor } = self.kind { successor } else { 0 };
        bytes[..FRAME_HEADER_BYTES].fill(0);
        write_u64(bytes, AT_MAGIC, MAGIC);
        write_u32(bytes, AT_VERSION, FRAME_VERSION);
        write_u32(bytes, AT_FLAGS, self.kind.flags());
        write_u32(bytes, AT_REGION, self.region.0);
        write_u32(bytes, AT_PAIR, self.pair.0);
        write_u32(bytes, AT_EPOCH, self.epoch.0);
        write_u32(bytes, AT_PREDECESSOR_EPOCH, self.predecessor.epoch.0);
        write_u32(bytes, AT_GENERATION, self.generation);
        write_u32(bytes, AT_SEQUENCE, self.sequence);
        write_u64(bytes, AT_CSN_FIRST, self.csn_first.0);
        write_u64(bytes, AT_CSN_LAST, self.csn_last.0);
        write_u64(bytes, AT_DURABLE, self.csn_durable.0);
        write_u64(bytes, AT_PREDECESSOR_CUT, self.predecessor.cut.0);
        write_u64(bytes, AT_SALT, self.salt);
        write_u64(bytes, AT_SEGMENT_BYTES, self.segment_bytes);
        write_u32(bytes, AT_PAYLOAD_BYTES, self.payload_bytes);
        write_u32(bytes, AT_RECORDS, self.records);
        write_u32(bytes, AT_SUCCESSOR, successor);
        write_u64(bytes, AT_PAYLOAD_CHECK, self.payload_check);
        let check = crc64(&bytes[..AT_HEADER_CHECK]);
        write_u64(bytes, AT_HEADER_CHECK, check);
    }
}

/// The whole length of a frame with so many bytes of records.
#[must_use]
pub const fn frame_bytes(payload_bytes: usize) -> usize {
    (FRAME_HEADER_BYTES + payload_bytes).next_multiple_of(FRAME_ALIGN)
}

/// Completes a frame whose payload already stands at [`FRAME_HEADER_BYTES`]: zeros the padding, computes both
/// checks, writes the header. `bytes` is the whole frame.
///
/// # Panics
/// If `bytes` has not the length that the header's payload needs.
pub fn finish(bytes: &mut [u8], header: &mut FrameHeader) {
    assert_eq!(bytes.len(), header.frame_bytes(), "a frame is as long as its payload needs");
    bytes[FRAME_HEADER_BYTES + index(u64::from(header.payload_bytes))..].fill(0);
    header.payload_check = crc64(&bytes[FRAME_HEADER_BYTES..]);
    header.encode(bytes);
}

/// Whether a whole frame's payload and padding are what its header says.
///
/// # Panics
/// If `frame` is not as long as the header says.
#[must_use]
pub fn payload_matches(header: &FrameHeader, frame: &[u8]) -> bool {
    crc64(&frame[FRAME_HEADER_BYTES..header.frame_bytes()]) == header.payload_check
}

/// The records of a whole frame.
///
/// # Panics
/// If `frame` is not as long as the header says.
#[must_use]
pub fn payload<'a>(header: &FrameHeader, frame: &'a [u8]) -> &'a [u8] {
    &frame[FRAME_HEADER_BYTES..][..index(u64::from(header.payload_bytes))]
}

pub(crate) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

pub(crate) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

pub(crate) fn write_u32(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

pub(crate) fn write_u64(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}
