//! Reading and appending fields. A reader never goes past its message; a message is taken back when it cannot
//! be completed.

use cell_terms::{Csn, Epoch, PairId, Version};

use crate::{DecodeError, EncodeError, KEY_BYTES_MAX, MESSAGE_BYTES_MAX};

/// Bytes of a [`Version`]: pair u32, epoch u32, CSN u64.
pub(crate) const VERSION_BYTES: usize = 16;

/// Walks a message from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// Starts at the front of a whole message, whose length is checked first.
    pub(crate) fn message(bytes: &'a [u8]) -> Result<Reader<'a>, DecodeError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(DecodeError::TooLong { len: bytes.len() });
        }
        Ok(Reader::new(bytes))
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let needed = self.at.saturating_add(count);
        let field = self.bytes.get(self.at..needed);
        let field = field.ok_or(DecodeError::Truncated { needed, len: self.bytes.len() })?;
        self.at = needed;
        Ok(field)
    }

    /// A fixed part, with one look at the length.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length of 32 bits as an index.
    #[inline]
    pub(crate) fn length(&mut self) -> Result<usize, DecodeError> {
        // Cell runs on 64-bit machines only; where usize were narrower the length could not fit the message
        // anyway.
        self.u32().map(|length| usize::try_from(length).unwrap_or(usize::MAX))
    }

    #[inline]
    pub(crate) fn reserved(&mut self, count: usize) -> Result<(), DecodeError> {
        let zero = self.take(count)?.iter().all(|&byte| byte == 0);
        if zero { Ok(()) } else { Err(DecodeError::Reserved { at: self.at }) }
    }

    #[inline]
    pub(crate) fn version(&mut self) -> Result<Version, DecodeError> {
        let bytes: [u8; VERSION_BYTES] = self.array()?;
        Ok(version_at(&bytes, 0))
    }

    /// Bytes of a key whose length stood elsewhere.
    #[inline]
    pub(crate) fn key(&mut self, len: u16) -> Result<&'a [u8], DecodeError> {
        let len = usize::from(len);
        if len > KEY_BYTES_MAX {
            return Err(DecodeError::Key { len });
        }
        self.take(len)
    }

    #[inline]
    pub(crate) fn text(&mut self, len: u16, max: usize) -> Result<&'a str, DecodeError> {
        let bytes = self.take(usize::from(len))?;
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= max);
        text.ok_or(DecodeError::Text { at: self.at })
    }

    /// The error of a tag that was just read and has no meaning.
    pub(crate) fn bad_tag(&self, value: impl Into<u64>) -> DecodeError {
        DecodeError::Tag { value: value.into(), at: self.at }
    }

    /// The body must end here.
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            count => Err(DecodeError::Trailing { count }),
        }
    }
}

/// A field of a fixed part.
#[inline]
pub(crate) fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A field of a fixed part.
#[inline]
pub(crate) fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// A version of a fixed part.
#[inline]
pub(crate) fn version_at<const N: usize>(bytes: &[u8; N], at: usize) -> Version {
    let csn = Csn(u64_at(bytes, at + 8));
    Version { pair: PairId(u32_at(bytes, at)), epoch: Epoch(u32_at(bytes, at + 4)), csn }
}

/// A version as it is on the wire.
#[inline]
pub(crate) fn version_bytes(version: Version) -> [u8; VERSION_BYTES] {
    let mut bytes = [0; VERSION_BYTES];
    bytes[..4].copy_from_slice(&version.pair.0.to_le_bytes());
    bytes[4..8].copy_from_slice(&version.epoch.0.to_le_bytes());
    bytes[8..].copy_from_slice(&version.csn.0.to_le_bytes());
    bytes
}

/// Appends one message to the caller's bytes; what is not completed is taken back.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    complete: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Writer<'a> {
        let start = out.len();
        Writer { out, start, complete: false }
    }

    /// Bytes of the message so far.
    pub(crate) fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Bytes that still fit.
    pub(crate) fn room(&self) -> usize {
        MESSAGE_BYTES_MAX.saturating_sub(self.len())
    }

    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        if bytes.len() > self.room() {
            return Err(EncodeError::TooLong { len: self.len().saturating_add(bytes.len()) });
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    #[inline]
    pub(crate) fn u8(&mut self, value: u8) -> Result<(), EncodeError> {
        self.bytes(&[value])
    }

    #[inline]
    pub(crate) fn u16(&mut self, value: u16) -> Result<(), EncodeError> {
        self.bytes(&value.to_le_bytes())
    }

    #[inline]
    pub(crate) fn u32(&mut self, value: u32) -> Result<(), EncodeError> {
        self.bytes(&value.to_le_bytes())
    }

    #[inline]
    pub(crate) fn u64(&mut self, value: u64) -> Result<(), EncodeError> {
        self.bytes(&value.to_le_bytes())
    }

    #[inline]
    pub(crate) fn length(&mut self, len: usize) -> Result<(), EncodeError> {
        self.u32(u32::try_from(len).map_err(|_| EncodeError::TooLong { len })?)
    }

    #[inline]
    pub(crate) fn reserved(&mut self, count: usize) -> Result<(), EncodeError> {
        const ZEROS: [u8; 16] = [0; 16];
        self.bytes(&ZEROS[..count])
    }

    #[inline]
    pub(crate) fn version(&mut self, version: Version) -> Result<(), EncodeError> {
        self.bytes(&version_bytes(version))
    }

    pub(crate) fn key_length(&mut self, key: &[u8]) -> Result<(), EncodeError> {
        match u16::try_from(key.len()) {
            Ok(len) if key.len() <= KEY_BYTES_MAX => self.u16(len),
            _ => Err(EncodeError::Key { len: key.len() }),
        }
    }

    pub(crate) fn text_length(&mut self, text: &[u8], max: usize) -> Result<(), EncodeError> {
        match u16::try_from(text.len()) {
            Ok(len) if text.len() <= max => self.u16(len),
            _ => Err(EncodeError::Text { len: text.len(), max }),
        }
    }

    /// Lets `copy` append so many bytes.
    #[inline]
    pub(crate) fn copied<T, E: From<EncodeError>>(
        &mut self,
        len: usize,
        copy: impl FnOnce(&mut Vec<u8>) -> Result<T, E>,
    ) -> Result<T, E> {
        let end = self.out.len() + len;
        if len > self.room() {
            return Err(EncodeError::TooLong { len: self.len().saturating_add(len) }.into());
        }
        let answer = copy(self.out)?;
        if self.out.len() != end {
            return Err(EncodeError::TooLong { len: self.len() }.into());
        }
        Ok(answer)
    }

    /// Overwrites bytes that were appended before.
    pub(crate) fn patch(&mut self, at: usize, bytes: &[u8]) {
        let at = self.start + at;
        self.out[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Takes back everything after `len` bytes of the message.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.out.truncate(self.start + len);
    }

    /// The message stands.
    pub(crate) fn complete(mut self) {
        self.complete = true;
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if !self.complete {
            self.out.truncate(self.start);
        }
    }
}
