//! Many keys in one request, and their values in one reply.
//!
//! Multi-get, after the request header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | count, at most [`MULTI_GET_KEYS_MAX`] |
//! | 2 | 6 | reserved, zero |
//! | 8 | | for each key: length u16, bytes |
//!
//! Values, after the reply header, in the order of the keys:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | count |
//! | 2 | 6 | reserved, zero |
//! | 8 | | for each key: |
//! | +0 | 1 | 0 absent, 1 the value follows, 2 the value did not fit: fetch it by get |
//! | +1 | 3 | reserved, zero |
//! | +4 | 4 | value length; zero when absent |
//! | +8 | 16 | version; zero when absent |
//! | +24 | | the value, when it follows |

use cell_terms::Version;

use crate::cursor::{Reader, VERSION_BYTES, Writer};
use crate::header::REPLY_HEADER_BYTES;
use crate::kind::ReplyKind;
use crate::kind::RequestKind;
use crate::{
    DecodeError, EncodeError, MESSAGE_BYTES_MAX, MULTI_GET_KEYS_MAX, ReplyHeader, RequestHeader, StatusCode,
};

const ABSENT: u8 = 0;
const INLINE: u8 = 1;
const LARGE: u8 = 2;

const COUNT_BYTES: usize = 8;
const ITEM_BYTES: usize = 8 + VERSION_BYTES;

// A reply can always answer for every key, if need be without any value.
const _: () =
    assert!(REPLY_HEADER_BYTES + COUNT_BYTES + MULTI_GET_KEYS_MAX * ITEM_BYTES <= MESSAGE_BYTES_MAX);

/// The keys of a multi-get, checked and still where they arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl<'a> Keys<'a> {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The keys, in the order of the request.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        (0..self.count).map_while(move |_| next_key(&mut reader).ok())
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.u16(self.count)?;
        writer.reserved(6)?;
        writer.bytes(self.bytes)
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Keys<'a>, DecodeError> {
        let count = count(reader)?;
        let bytes = reader.rest();
        for _ in 0..count {
            next_key(reader)?;
        }
        let used = bytes.len() - reader.rest().len();
        Ok(Keys { count, bytes: &bytes[..used] })
    }
}

fn next_key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = reader.u16()?;
    reader.key(len)
}

fn count(reader: &mut Reader<'_>) -> Result<u16, DecodeError> {
    let count = reader.u16()?;
    reader.reserved(6)?;
    if usize::from(count) > MULTI_GET_KEYS_MAX {
        return Err(DecodeError::Count { count: count.into(), max: MULTI_GET_KEYS_MAX as u64 });
    }
    Ok(count)
}

/// Makes a multi-get, key by key. Dropped unfinished, it leaves nothing behind.
#[derive(Debug)]
pub struct KeysWriter<'a> {
    writer: Writer<'a>,
    count: u16,
    count_at: usize,
}

impl<'a> KeysWriter<'a> {
    /// Begins the request at the end of `out`.
    ///
    /// # Errors
    /// None in practice: header and count fit an empty message.
    pub fn begin(header: RequestHeader, out: &'a mut Vec<u8>) -> Result<KeysWriter<'a>, EncodeError> {
        let mut writer = Writer::new(out);
        header.encode(RequestKind::MultiGet.code(), &mut writer)?;
        let count_at = writer.len();
        writer.reserved(COUNT_BYTES)?;
        Ok(KeysWriter { writer, count: 0, count_at })
    }

    /// Adds a key.
    ///
    /// # Errors
    /// The key is too long, the message is full, or there are [`MULTI_GET_KEYS_MAX`] keys; the request stays
    /// as it was and can be finished.
    pub fn push(&mut self, key: &[u8]) -> Result<(), EncodeError> {
        if usize::from(self.count) == MULTI_GET_KEYS_MAX {
            return Err(EncodeError::Count { count: MULTI_GET_KEYS_MAX + 1, max: MULTI_GET_KEYS_MAX });
        }
        let before = self.writer.len();
        let added = self.writer.key_length(key).and_then(|()| self.writer.bytes(key));
        match added {
            Ok(()) => self.count += 1,
            Err(_) => self.writer.truncate(before),
        }
        added
    }

    /// How long the message is so far: the key that was added last ends there.
    #[must_use]
    pub fn message_bytes(&self) -> usize {
        self.writer.len()
    }

    /// Completes the request.
    pub fn finish(mut self) {
        self.writer.patch(self.count_at, &self.count.to_le_bytes());
        self.writer.complete();
    }
}

/// What was found for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// There is no entry.
    Absent,
    /// The entry.
    Value {
        /// Its version.
        version: Version,
        /// Its value.
        value: &'a [u8],
    },
    /// The entry exists; its value did not fit this reply. Fetch it by a get.
    Large {
        /// Its version.
        version: Version,
        /// Length of its value.
        value_len: u32,
    },
}

/// The values of a multi-get, checked and still where they arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl<'a> Values<'a> {
    /// How many keys are answered.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What was found, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = Found<'a>> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        (0..self.count).map_while(move |_| next_found(&mut reader).ok())
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.u16(self.count)?;
        writer.reserved(6)?;
        writer.bytes(self.bytes)
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Values<'a>, DecodeError> {
        let count = count(reader)?;
        let bytes = reader.rest();
        for _ in 0..count {
            next_found(reader)?;
        }
        let used = bytes.len() - reader.rest().len();
        Ok(Values { count, bytes: &bytes[..used] })
    }
}

fn next_found<'a>(reader: &mut Reader<'a>) -> Result<Found<'a>, DecodeError> {
    let tag = reader.u8()?;
    reader.reserved(3)?;
    match tag {
        ABSENT => reader.reserved(ITEM_BYTES - 4).map(|()| Found::Absent),
        INLINE => {
            let len = reader.length()?;
            let version = reader.version()?;
            Ok(Found::Value { version, value: reader.take(len)? })
        }
        LARGE => {
            let value_len = reader.u32()?;
            Ok(Found::Large { version: reader.version()?, value_len })
        }
        other => Err(reader.bad_tag(other)),
    }
}

/// Makes the reply to a multi-get, value by value. Dropped unfinished, it leaves nothing behind.
#[derive(Debug)]
pub struct ValuesWriter<'a> {
    writer: Writer<'a>,
    count: u16,
    count_at: usize,
    expected: u16,
}

impl<'a> ValuesWriter<'a> {
    /// Begins the reply for `keys` at the end of `out`.
    ///
    /// # Errors
    /// None in practice: header and count fit an empty message.
    pub fn begin(
        header: &ReplyHeader,
        keys: &Keys<'_>,
        out: &'a mut Vec<u8>,
    ) -> Result<ValuesWriter<'a>, EncodeError> {
        let mut writer = Writer::new(out);
        header.encode(ReplyKind::Values.code(), StatusCode::Ok, &mut writer)?;
        let count_at = writer.len();
        writer.reserved(COUNT_BYTES)?;
        Ok(ValuesWriter { writer, count: 0, count_at, expected: keys.count })
    }

    /// The longest value that [`ValuesWriter::push`] would now take in: room for the keys to come is kept.
    #[must_use]
    pub fn value_bytes_max(&self) -> usize {
        let to_come = usize::from(self.expected.saturating_sub(self.count));
        self.writer.room().saturating_sub(to_come * ITEM_BYTES)
    }

    /// Answers for the next key. A value that does not fit any more becomes [`Found::Large`] by itself.
    ///
    /// # Errors
    /// More answers than keys were asked for.
    pub fn push(&mut self, found: Found<'_>) -> Result<(), EncodeError> {
        if self.count == self.expected {
            return Err(EncodeError::Count { count: self.len() + 1, max: self.len() });
        }
        let (tag, len, version, value): (u8, u32, Version, &[u8]) = match found {
            Found::Absent => (ABSENT, 0, Version::default(), &[]),
            Found::Large { version, value_len } => (LARGE, value_len, version, &[]),
            Found::Value { version, value } => {
                let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
                let fits = value.len() <= self.value_bytes_max();
                if fits { (INLINE, len, version, value) } else { (LARGE, len, version, &[]) }
            }
        };
        let before = self.writer.len();
        let added = self.push_fields(tag, len, version, value);
        match added {
            Ok(()) => self.count += 1,
            Err(_) => self.writer.truncate(before),
        }
        added
    }

    fn push_fields(&mut self, tag: u8, len: u32, version: Version, value: &[u8]) -> Result<(), EncodeError> {
        self.writer.u8(tag)?;
        self.writer.reserved(3)?;
        self.writer.u32(len)?;
        self.writer.version(version)?;
        self.writer.bytes(value)
    }

    /// Keys answered so far.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether none is answered yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Completes the reply.
    pub fn finish(mut self) {
        self.writer.patch(self.count_at, &self.count.to_le_bytes());
        self.writer.complete();
    }
}
