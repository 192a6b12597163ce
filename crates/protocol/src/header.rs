//! The headers.
//!
//! Request header, [`REQUEST_HEADER_BYTES`] bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind ([`crate::RequestKind`]) |
//! | 1 | 1 | flags: none yet, zero |
//! | 2 | 2 | reserved, zero |
//! | 4 | 4 | pair that the sender means; 0: whichever the receiver serves |
//! | 8 | 8 | request id ([`RequestId`]); for chunks, credit and cancel the one that began the stream |
//!
//! Reply header, [`REPLY_HEADER_BYTES`] bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind ([`crate::ReplyKind`]) |
//! | 1 | 1 | flags: none yet, zero |
//! | 2 | 2 | status ([`crate::StatusCode`]) |
//! | 4 | 4 | pair that answers; 0 where no pair is concerned |
//! | 8 | 8 | request id |
//! | 16 | 4 | epoch of the pair |
//! | 20 | 4 | trust: for how long one-sided reads may be believed, microseconds |
//! | 24 | 8 | durable watermark of the pair, CSN |
//! | 32 | 8 | the list of registrations that trust is about; 0 with no trust |

use cell_terms::{Csn, Epoch, PairId, Watermark};

use crate::cursor::{Reader, Writer, u32_at, u64_at};
use crate::{DecodeError, EncodeError, StatusCode};

const KIND: usize = 0;
const FLAGS: usize = KIND + 1;
const RESERVED: usize = FLAGS + 1;
const REQUEST_PAIR: usize = RESERVED + 2;
const REQUEST_ID: usize = REQUEST_PAIR + 4;

/// Bytes of a request's header.
pub const REQUEST_HEADER_BYTES: usize = REQUEST_ID + 8;

const STATUS: usize = FLAGS + 1;
const PAIR: usize = STATUS + 2;
const ID: usize = PAIR + 4;
const EPOCH: usize = ID + 8;
const TRUST: usize = EPOCH + 4;
const WATERMARK: usize = TRUST + 4;
const LIST: usize = WATERMARK + 8;

/// Bytes of a reply's header.
pub const REPLY_HEADER_BYTES: usize = LIST + 8;

const _: () = assert!(REQUEST_HEADER_BYTES == 16);
const _: () = assert!(REPLY_HEADER_BYTES == 40);

/// Names a request among those in flight on a connection; chosen by the client, unique among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "request-{}", self.0)
    }
}

/// What every request says, its kind apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// The request, or for chunks, credit and cancel the request that began the stream.
    pub id: RequestId,
    /// The pair that the sender means; zero is whichever the receiver serves.
    pub pair: PairId,
}

/// What every reply says, kind and status apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The request that is answered.
    pub id: RequestId,
    /// The pair that answers; zero where no pair is concerned.
    pub pair: PairId,
    /// Epoch and durable watermark of the pair when the reply was released.
    pub watermark: Watermark,
    /// For how long one-sided reads of the owner's memory may be believed, counted from before the request
    /// was sent: its lease surely holds so long. Zero promises nothing.
    pub trust_us: u32,
    /// Of which list of registrations that may be believed: see [`crate::RegionsReply::list`]. Who knows
    /// another list learns nothing of trust by this reply.
    pub list: u64,
}

impl RequestHeader {
    pub(crate) fn encode(&self, kind: u8, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let mut bytes = [0; REQUEST_HEADER_BYTES];
        bytes[KIND] = kind;
        bytes[REQUEST_PAIR..REQUEST_ID].copy_from_slice(&self.pair.0.to_le_bytes());
        bytes[REQUEST_ID..].copy_from_slice(&self.id.0.to_le_bytes());
        writer.bytes(&bytes)
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<(u8, RequestHeader), DecodeError> {
        let bytes: [u8; REQUEST_HEADER_BYTES] = reader.array()?;
        if bytes[FLAGS..REQUEST_PAIR] != [0; REQUEST_PAIR - FLAGS] {
            return Err(DecodeError::Reserved { at: REQUEST_PAIR });
        }
        let id = RequestId(u64_at(&bytes, REQUEST_ID));
        Ok((bytes[KIND], RequestHeader { id, pair: PairId(u32_at(&bytes, REQUEST_PAIR)) }))
    }

    /// Writes pair and id into an encoded request: a repeat is the same bytes under another id.
    ///
    /// # Panics
    /// If `message` is shorter than a request's header: it must be one that this crate encoded.
    pub fn stamp(&self, message: &mut [u8]) {
        message[REQUEST_PAIR..REQUEST_ID].copy_from_slice(&self.pair.0.to_le_bytes());
        message[REQUEST_ID..REQUEST_HEADER_BYTES].copy_from_slice(&self.id.0.to_le_bytes());
    }

    /// The header of bytes that may not be a whole request: what a refusal of a malformed one is addressed
    /// to.
    #[must_use]
    pub fn peek(message: &[u8]) -> Option<RequestHeader> {
        let pair = message.get(REQUEST_PAIR..REQUEST_ID)?.try_into().ok().map(u32::from_le_bytes)?;
        let id = message.get(REQUEST_ID..REQUEST_HEADER_BYTES)?.try_into().ok().map(u64::from_le_bytes)?;
        Some(RequestHeader { id: RequestId(id), pair: PairId(pair) })
    }
}

impl ReplyHeader {
    pub(crate) fn encode(
        &self,
        kind: u8,
        status: StatusCode,
        writer: &mut Writer<'_>,
    ) -> Result<(), EncodeError> {
        let mut bytes = [0; REPLY_HEADER_BYTES];
        bytes[KIND] = kind;
        bytes[STATUS..PAIR].copy_from_slice(&status.code().to_le_bytes());
        bytes[PAIR..ID].copy_from_slice(&self.pair.0.to_le_bytes());
        bytes[ID..EPOCH].copy_from_slice(&self.id.0.to_le_bytes());
        self.stamp(&mut bytes);
        writer.bytes(&bytes)
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<(u8, StatusCode, ReplyHeader), DecodeError> {
        let bytes: [u8; REPLY_HEADER_BYTES] = reader.array()?;
        if bytes[FLAGS] != 0 {
            return Err(DecodeError::Reserved { at: STATUS });
        }
        let code = u16::from_le_bytes([bytes[STATUS], bytes[STATUS + 1]]);
        let unknown = DecodeError::Tag { value: code.into(), at: PAIR };
        let status = StatusCode::from_code(code).ok_or(unknown)?;
        let header = ReplyHeader {
            id: RequestId(u64_at(&bytes, ID)),
            pair: PairId(u32_at(&bytes, PAIR)),
            watermark: Watermark { epoch: Epoch(u32_at(&bytes, EPOCH)), csn: Csn(u64_at(&bytes, WATERMARK)) },
            trust_us: u32_at(&bytes, TRUST),
            list: u64_at(&bytes, LIST),
        };
        Ok((bytes[KIND], status, header))
    }

    /// Writes watermark and trust into an encoded reply. A reply is made when its operation is, but leaves
    /// when it is durable: what it says about watermark and trust is as of then.
    ///
    /// # Panics
    /// If `message` is shorter than a reply's header: it must be one that this crate encoded.
    pub fn stamp(&self, message: &mut [u8]) {
        message[EPOCH..TRUST].copy_from_slice(&self.watermark.epoch.0.to_le_bytes());
        message[TRUST..WATERMARK].copy_from_slice(&self.trust_us.to_le_bytes());
        message[WATERMARK..LIST].copy_from_slice(&self.watermark.csn.0.to_le_bytes());
        message[LIST..REPLY_HEADER_BYTES].copy_from_slice(&self.list.to_le_bytes());
    }
}
