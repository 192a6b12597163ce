//! Values that do not fit one message go in chunks, as far as the receiver has given credit.
//!
//! A stream is named by the id of the request that began it; chunks, credit and cancel carry that id in their
//! header.
//!
//! *Towards the server:* `PutBegin`, then chunks in order without gaps; the server's reply to the put comes
//! when the value is whole, checked and durable, or earlier with a refusal, after which chunks of the stream
//! are ignored.
//! *Towards the client:* `ValueBegin` answers a get, then come chunks; the value is whole when its length has
//! arrived and counts when its CRC matches.
//! Either way the sender has at most as many bytes on their way as it was given: what the receiver's hello
//! said to begin with, more with each credit. `Cancel` from the client ends a stream of either direction; the
//! server frees it and says nothing more on it. A cancelled put may have been done. A closed connection ends
//! its streams.
//!
//! | body | offset | bytes | field |
//! |---|---|---|---|
//! | chunk (both ways) | 0 | 4 | offset in the value |
//! | | 4 | 4 | length, not zero |
//! | | 8 | | bytes |
//! | credit (both ways) | 0 | 4 | bytes of credit added, not zero |
//! | | 4 | 4 | reserved, zero |
//! | value-begin (to the client) | 0 | 16 | version |
//! | | 16 | 4 | length of the whole value |
//! | | 20 | 4 | reserved, zero |
//! | | 24 | 8 | CRC-64/XZ of the whole value |

use cell_terms::Version;

use crate::cursor::{Reader, Writer};
use crate::header::REPLY_HEADER_BYTES;
use crate::{DecodeError, EncodeError, MESSAGE_BYTES_MAX};

const CHUNK_OFFSET: usize = 0;
const CHUNK_LENGTH: usize = CHUNK_OFFSET + 4;
const CHUNK_FIXED_BYTES: usize = CHUNK_LENGTH + 4;

/// Most bytes of a value in one chunk, either way.
pub const CHUNK_BYTES_MAX: usize = MESSAGE_BYTES_MAX - REPLY_HEADER_BYTES - CHUNK_FIXED_BYTES;

const _: () = assert!(CHUNK_FIXED_BYTES == 8);
const _: () = assert!(REPLY_HEADER_BYTES > crate::header::REQUEST_HEADER_BYTES);

/// A piece of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Where the piece stands in the value.
    pub offset: u32,
    /// The piece, not empty.
    pub bytes: &'a [u8],
}

/// Announces a value that comes in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueBegin {
    /// The entry's version.
    pub version: Version,
    /// Length of the whole value.
    pub value_len: u32,
    /// CRC-64/XZ of the whole value.
    pub value_crc: u64,
}

impl<'a> Chunk<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        if self.bytes.is_empty() {
            return Err(EncodeError::Count { count: 0, max: CHUNK_BYTES_MAX });
        }
        writer.u32(self.offset)?;
        writer.length(self.bytes.len())?;
        writer.bytes(self.bytes)
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Chunk<'a>, DecodeError> {
        let offset = reader.u32()?;
        let len = reader.length()?;
        let bytes = reader.take(len)?;
        let end = u32::try_from(len).ok().and_then(|len| offset.checked_add(len));
        if bytes.is_empty() || end.is_none() {
            return Err(DecodeError::Count { count: len as u64, max: CHUNK_BYTES_MAX as u64 });
        }
        Ok(Chunk { offset, bytes })
    }
}

impl ValueBegin {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.version(self.version)?;
        writer.u32(self.value_len)?;
        writer.reserved(4)?;
        writer.u64(self.value_crc)
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<ValueBegin, DecodeError> {
        let version = reader.version()?;
        let value_len = reader.u32()?;
        reader.reserved(4)?;
        Ok(ValueBegin { version, value_len, value_crc: reader.u64()? })
    }
}

pub(crate) fn encode_credit(writer: &mut Writer<'_>, bytes: u32) -> Result<(), EncodeError> {
    if bytes == 0 {
        return Err(EncodeError::Count { count: 0, max: VALUE_MAX });
    }
    writer.u32(bytes)?;
    writer.reserved(4)
}

pub(crate) fn decode_credit(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let bytes = reader.u32()?;
    reader.reserved(4)?;
    if bytes == 0 {
        return Err(DecodeError::Count { count: 0, max: VALUE_MAX as u64 });
    }
    Ok(bytes)
}

const VALUE_MAX: usize = crate::VALUE_BYTES_WIRE_MAX;
