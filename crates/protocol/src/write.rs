//! Writes. Each carries the name under which it is done exactly once (RIFL, SOSP 2015).
//!
//! Put, delete and put-begin, after the request header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | session |
//! | 8 | 8 | number, from 1 |
//! | 16 | 8 | floor: the lowest number whose result the client still waits for; at most `number`, from 1 |
//! | 24 | 16 | version of the condition; zero unless the condition is if-version |
//! | 40 | 1 | condition: 0 always, 1 if absent, 2 if present, 3 if version |
//! | 41 | 1 | reserved, zero |
//! | 42 | 2 | key length |
//! | 44 | 4 | value length; for put-begin of the whole value; for delete zero |
//! | 48 | 8 | put-begin only: CRC-64/XZ of the whole value |
//! | 48 (56) | | key, then for put the value |
//!
//! A delete's condition is always or if-version.

use cell_terms::{OperationNumber, SessionId, Version};

use crate::cursor::{Reader, VERSION_BYTES, Writer, u32_at, u64_at, version_at};
use crate::header::REQUEST_HEADER_BYTES;
use crate::{DecodeError, EncodeError, KEY_BYTES_MAX, MESSAGE_BYTES_MAX};

const SESSION: usize = 0;
const NUMBER: usize = SESSION + 8;
const FLOOR: usize = NUMBER + 8;
const CONDITION_VERSION: usize = FLOOR + 8;
const CONDITION: usize = CONDITION_VERSION + VERSION_BYTES;
const RESERVED: usize = CONDITION + 1;
const KEY_LENGTH: usize = RESERVED + 1;
const VALUE_LENGTH: usize = KEY_LENGTH + 2;

/// Bytes of a write's fixed part, after the header.
pub const WRITE_BYTES: usize = VALUE_LENGTH + 4;

const _: () = assert!(WRITE_BYTES == 48);

/// The longest value that fits one put beside a key of `key_len` bytes; a longer one goes as a stream.
#[must_use]
pub const fn put_value_bytes_max(key_len: usize) -> usize {
    (MESSAGE_BYTES_MAX - REQUEST_HEADER_BYTES - WRITE_BYTES).saturating_sub(key_len)
}

const _: () = assert!(put_value_bytes_max(KEY_BYTES_MAX) > 63_000);

/// What names a write, and what its client does not wait for any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WriteName {
    /// The client's session.
    pub session: SessionId,
    /// The write's number in the session. Repeats of the write carry the same.
    pub number: OperationNumber,
    /// The lowest number whose result the client still waits for. Numbers below are refused from then on, so
    /// that a delayed first copy is not applied after its retry was, and their results may be dropped.
    pub floor: OperationNumber,
}

impl WriteName {
    /// Writes the name into an encoded put, delete or put-begin: a repeat carries the floor as of now, and a
    /// write may be encoded before its session is open.
    ///
    /// # Panics
    /// If `message` is shorter than a write's fixed part: it must be one that this crate encoded.
    pub fn stamp(&self, message: &mut [u8]) {
        let fields = &mut message[REQUEST_HEADER_BYTES..REQUEST_HEADER_BYTES + WRITE_BYTES];
        fields[SESSION..NUMBER].copy_from_slice(&self.session.0.to_le_bytes());
        fields[NUMBER..FLOOR].copy_from_slice(&self.number.0.to_le_bytes());
        fields[FLOOR..CONDITION_VERSION].copy_from_slice(&self.floor.0.to_le_bytes());
    }
}

/// When a write is to be done. It is decided once: a repeat gets the first decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Whatever is there.
    #[default]
    Always,
    /// Only if there is no entry.
    IfAbsent,
    /// Only if there is an entry.
    IfPresent,
    /// Only if there is an entry of this version.
    IfVersion(Version),
}

/// Writes an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put<'a> {
    /// The write's name.
    pub name: WriteName,
    /// When to do it.
    pub condition: Condition,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// Removes an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delete<'a> {
    /// The write's name.
    pub name: WriteName,
    /// When to do it: always or if-version.
    pub condition: Condition,
    /// The key.
    pub key: &'a [u8],
}

/// Begins to write an entry whose value does not fit one message; the stream is named by the request id. See
/// [`crate::stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutBegin<'a> {
    /// The write's name.
    pub name: WriteName,
    /// When to do it.
    pub condition: Condition,
    /// The key.
    pub key: &'a [u8],
    /// Length of the whole value.
    pub value_len: u32,
    /// CRC-64/XZ of the whole value; nothing is written unless it matches.
    pub value_crc: u64,
}

/// The fixed part, as it was read.
struct Fixed {
    name: WriteName,
    condition: Condition,
    key_len: u16,
    value_len: u32,
}

fn encode_fixed(
    writer: &mut Writer<'_>,
    name: &WriteName,
    condition: Condition,
    key: &[u8],
    value_len: usize,
) -> Result<(), EncodeError> {
    let (tag, version) = match condition {
        Condition::Always => (0, Version::default()),
        Condition::IfAbsent => (1, Version::default()),
        Condition::IfPresent => (2, Version::default()),
        Condition::IfVersion(version) => (3, version),
    };
    let mut bytes = [0; CONDITION_VERSION];
    bytes[SESSION..NUMBER].copy_from_slice(&name.session.0.to_le_bytes());
    bytes[NUMBER..FLOOR].copy_from_slice(&name.number.0.to_le_bytes());
    bytes[FLOOR..].copy_from_slice(&name.floor.0.to_le_bytes());
    writer.bytes(&bytes)?;
    writer.version(version)?;
    writer.bytes(&[tag, 0])?;
    writer.key_length(key)?;
    writer.length(value_len)
}

fn decode_fixed(reader: &mut Reader<'_>) -> Result<Fixed, DecodeError> {
    let bytes: [u8; WRITE_BYTES] = reader.array()?;
    let (session, number, floor) = (u64_at(&bytes, SESSION), u64_at(&bytes, NUMBER), u64_at(&bytes, FLOOR));
    if session == 0 || number == 0 || floor == 0 || floor > number {
        return Err(DecodeError::WriteName { session, number, floor });
    }
    let name = WriteName {
        session: SessionId(session),
        number: OperationNumber(number),
        floor: OperationNumber(floor),
    };
    let version = version_at(&bytes, CONDITION_VERSION);
    let tag = bytes[CONDITION];
    let condition = match tag {
        0 => Condition::Always,
        1 => Condition::IfAbsent,
        2 => Condition::IfPresent,
        3 => Condition::IfVersion(version),
        other => return Err(reader.bad_tag(other)),
    };
    if bytes[RESERVED] != 0 || (tag != 3 && version != Version::default()) {
        return Err(DecodeError::Reserved { at: reader.at() });
    }
    let key_len = u16::from_le_bytes([bytes[KEY_LENGTH], bytes[KEY_LENGTH + 1]]);
    Ok(Fixed { name, condition, key_len, value_len: u32_at(&bytes, VALUE_LENGTH) })
}

impl<'a> Put<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        encode_fixed(writer, &self.name, self.condition, self.key, self.value.len())?;
        writer.bytes(self.key)?;
        writer.bytes(self.value)
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Put<'a>, DecodeError> {
        let fixed = decode_fixed(reader)?;
        let key = reader.key(fixed.key_len)?;
        let value = reader.take(usize::try_from(fixed.value_len).unwrap_or(usize::MAX))?;
        Ok(Put { name: fixed.name, condition: fixed.condition, key, value })
    }
}

impl<'a> Delete<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        encode_fixed(writer, &self.name, self.condition, self.key, 0)?;
        writer.bytes(self.key)
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Delete<'a>, DecodeError> {
        let fixed = decode_fixed(reader)?;
        if fixed.value_len != 0 {
            return Err(DecodeError::Reserved { at: reader.at() });
        }
        match fixed.condition {
            Condition::Always | Condition::IfVersion(_) => {}
            Condition::IfAbsent => return Err(reader.bad_tag(1u8)),
            Condition::IfPresent => return Err(reader.bad_tag(2u8)),
        }
        let key = reader.key(fixed.key_len)?;
        Ok(Delete { name: fixed.name, condition: fixed.condition, key })
    }
}

impl<'a> PutBegin<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let value_len = usize::try_from(self.value_len).unwrap_or(usize::MAX);
        encode_fixed(writer, &self.name, self.condition, self.key, value_len)?;
        writer.u64(self.value_crc)?;
        writer.bytes(self.key)
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<PutBegin<'a>, DecodeError> {
        let Fixed { name, condition, key_len, value_len } = decode_fixed(reader)?;
        let value_crc = reader.u64()?;
        Ok(PutBegin { name, condition, key: reader.key(key_len)?, value_len, value_crc })
    }
}
