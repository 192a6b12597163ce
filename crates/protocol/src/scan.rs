//! Scans: a request for a range, and pages of entries.
//!
//! Scan, after the request header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | start bound: 0 none, 1 included, 2 excluded |
//! | 1 | 1 | end bound, likewise |
//! | 2 | 1 | flags: bit 0 reverse, bit 1 keys only |
//! | 3 | 1 | reserved, zero |
//! | 4 | 2 | length of the start key; zero when there is none |
//! | 6 | 2 | length of the end key, likewise |
//! | 8 | 4 | most entries wanted; 0: as many as the server gives |
//! | 12 | 4 | most bytes of keys and values wanted; 0: as many as fit |
//! | 16 | | start key, end key |
//!
//! Page, after the reply header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | count of entries |
//! | 2 | 1 | flags: bit 0 done: nothing follows in the range |
//! | 3 | 1 | resume bound: 0 none (only when done), 1 included, 2 excluded |
//! | 4 | 2 | length of the resume key |
//! | 6 | 2 | reserved, zero |
//! | 8 | | for each entry: |
//! | +0 | 1 | 0 the value follows, 1 the value did not fit: fetch it by get, 2 keys only |
//! | +1 | 1 | reserved, zero |
//! | +2 | 2 | key length |
//! | +4 | 4 | value length |
//! | +8 | 16 | version |
//! | +24 | | key, and the value when it follows |
//! | | | after all entries: resume key |
//!
//! `start` is the lower bound and `end` the upper one in both directions. A scan goes on with the resume
//! bound in place of the start, or of the end when reverse.

use cell_terms::Version;

use crate::cursor::{Reader, VERSION_BYTES, Writer, version_bytes};
use crate::header::REPLY_HEADER_BYTES;
use crate::kind::ReplyKind;
use crate::{DecodeError, EncodeError, KEY_BYTES_MAX, MESSAGE_BYTES_MAX, ReplyHeader, StatusCode};

const REVERSE: u8 = 1;
const KEYS_ONLY: u8 = 2;
const DONE: u8 = 1;

const INLINE: u8 = 0;
const LARGE: u8 = 1;
const KEY_ALONE: u8 = 2;

const PAGE_FIXED_BYTES: usize = 8;
const ENTRY_BYTES: usize = 8 + VERSION_BYTES;

/// Most bytes of entries (fixed parts, keys, values) in a page: room for the resume bound is always kept.
pub const PAGE_BYTES_MAX: usize = MESSAGE_BYTES_MAX - REPLY_HEADER_BYTES - PAGE_FIXED_BYTES - KEY_BYTES_MAX;

/// Most leaves that one page looks at, by whomever. Deletes leave leaves without entries: a scan over any
/// number of them would hold up a worker's turn, or take longer than a one-sided read may. The page ends
/// after so many with what it has, which may be nothing, and the scan goes on behind them. Where keys are
/// short they are more than a full page of entries takes; of long ones in leaves that are half full a page
/// has fewer entries for it.
pub const PAGE_LEAVES_MAX: usize = 256;

// The scan always advances: an entry of the longest key fits an empty page, if need be without its value.
const _: () = assert!(ENTRY_BYTES + KEY_BYTES_MAX <= PAGE_BYTES_MAX);
const _: () = assert!(PAGE_BYTES_MAX / ENTRY_BYTES <= u16::MAX as usize);

/// An end of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Bound<'a> {
    /// No bound.
    #[default]
    Unbounded,
    /// The key is in the range.
    Included(&'a [u8]),
    /// The key is not in the range.
    Excluded(&'a [u8]),
}

impl<'a> Bound<'a> {
    /// The key, if bounded.
    #[must_use]
    pub fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Bound::Unbounded => None,
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
        }
    }

    fn tag(&self) -> u8 {
        match self {
            Bound::Unbounded => 0,
            Bound::Included(_) => 1,
            Bound::Excluded(_) => 2,
        }
    }

    fn bytes(&self) -> &'a [u8] {
        self.key().unwrap_or_default()
    }

    fn decode(tag: u8, len: u16, reader: &mut Reader<'a>) -> Result<Bound<'a>, DecodeError> {
        let key = reader.key(len)?;
        match tag {
            0 if key.is_empty() => Ok(Bound::Unbounded),
            0 => Err(DecodeError::Reserved { at: reader.at() }),
            1 => Ok(Bound::Included(key)),
            2 => Ok(Bound::Excluded(key)),
            other => Err(reader.bad_tag(other)),
        }
    }
}

/// Asks for a page of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan<'a> {
    /// Lower end, in both directions.
    pub start: Bound<'a>,
    /// Upper end, in both directions.
    pub end: Bound<'a>,
    /// From the upper end down.
    pub reverse: bool,
    /// Values are not wanted.
    pub keys_only: bool,
    /// Most entries wanted; 0 is as many as the server gives.
    pub limit_entries: u32,
    /// Most bytes of keys and values wanted; 0 is as many as fit. At least one entry comes if there is one.
    pub limit_bytes: u32,
}

impl<'a> Scan<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.u8(self.start.tag())?;
        writer.u8(self.end.tag())?;
        writer.u8(if self.reverse { REVERSE } else { 0 } | if self.keys_only { KEYS_ONLY } else { 0 })?;
        writer.reserved(1)?;
        writer.key_length(self.start.bytes())?;
        writer.key_length(self.end.bytes())?;
        writer.u32(self.limit_entries)?;
        writer.u32(self.limit_bytes)?;
        writer.bytes(self.start.bytes())?;
        writer.bytes(self.end.bytes())
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Scan<'a>, DecodeError> {
        let (start_tag, end_tag, flags) = (reader.u8()?, reader.u8()?, reader.u8()?);
        if flags & !(REVERSE | KEYS_ONLY) != 0 {
            return Err(reader.bad_tag(flags));
        }
        reader.reserved(1)?;
        let (start_len, end_len) = (reader.u16()?, reader.u16()?);
        let (limit_entries, limit_bytes) = (reader.u32()?, reader.u32()?);
        let start = Bound::decode(start_tag, start_len, reader)?;
        let end = Bound::decode(end_tag, end_len, reader)?;
        let (reverse, keys_only) = (flags & REVERSE != 0, flags & KEYS_ONLY != 0);
        Ok(Scan { start, end, reverse, keys_only, limit_entries, limit_bytes })
    }
}

/// What a page says about an entry's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryValue<'a> {
    /// The value.
    Inline(&'a [u8]),
    /// It did not fit: fetch it by a get. The length is as of the scan.
    Large {
        /// Length of the value.
        value_len: u32,
    },
    /// Not asked for.
    Omitted {
        /// Length of the value.
        value_len: u32,
    },
}

/// An entry of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The version.
    pub version: Version,
    /// The value, or why it is not here.
    pub value: EntryValue<'a>,
}

/// A page of a scan, checked and still where it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<'a> {
    count: u16,
    entries: &'a [u8],
    /// Where the scan goes on: in place of the start, or of the end when reverse. Unbounded when done.
    pub resume: Bound<'a>,
    /// Nothing follows in the range.
    pub done: bool,
}

impl<'a> Page<'a> {
    /// How many entries; none does not mean done.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there is no entry; that does not mean done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The entries, in the direction of the scan.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let mut reader = Reader::new(self.entries);
        (0..self.count).map_while(move |_| next_entry(&mut reader).ok())
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.u16(self.count)?;
        writer.u8(if self.done { DONE } else { 0 })?;
        writer.u8(self.resume.tag())?;
        writer.key_length(self.resume.bytes())?;
        writer.reserved(2)?;
        writer.bytes(self.entries)?;
        writer.bytes(self.resume.bytes())
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Page<'a>, DecodeError> {
        let (count, flags, tag, resume_len) = (reader.u16()?, reader.u8()?, reader.u8()?, reader.u16()?);
        reader.reserved(2)?;
        if flags & !DONE != 0 {
            return Err(reader.bad_tag(flags));
        }
        let rest = reader.rest();
        for _ in 0..count {
            next_entry(reader)?;
        }
        let entries = &rest[..rest.len() - reader.rest().len()];
        let resume = Bound::decode(tag, resume_len, reader)?;
        let done = flags & DONE != 0;
        // Going on from nowhere would be the scan from its start again: a loop without end.
        if done != (resume == Bound::Unbounded) {
            return Err(reader.bad_tag(tag));
        }
        Ok(Page { count, entries, resume, done })
    }
}

fn next_entry<'a>(reader: &mut Reader<'a>) -> Result<Entry<'a>, DecodeError> {
    let tag = reader.u8()?;
    reader.reserved(1)?;
    let key_len = reader.u16()?;
    let value_len = reader.u32()?;
    let version = reader.version()?;
    let key = reader.key(key_len)?;
    let value = match tag {
        INLINE => EntryValue::Inline(reader.take(usize::try_from(value_len).unwrap_or(usize::MAX))?),
        LARGE => EntryValue::Large { value_len },
        KEY_ALONE => EntryValue::Omitted { value_len },
        other => return Err(reader.bad_tag(other)),
    };
    Ok(Entry { key, version, value })
}

/// What still fits a page: the rule by which a worker fills pages, and by which a client that reads leaves
/// itself plans them.
#[derive(Clone, Copy, Debug)]
pub struct PageRoom {
    entries: u32,
    bytes: usize,
    entries_max: u32,
    bytes_max: usize,
}

impl PageRoom {
    /// The room of an empty page. The limits are the request's, as far as the server permits them; zero is no
    /// limit but the page's own.
    #[must_use]
    pub fn new(limit_entries: u32, limit_bytes: u32) -> PageRoom {
        let entries_max = if limit_entries == 0 { u32::MAX } else { limit_entries };
        let bytes_max = match usize::try_from(limit_bytes) {
            Ok(0) | Err(_) => PAGE_BYTES_MAX,
            Ok(limit) => limit.min(PAGE_BYTES_MAX),
        };
        PageRoom { entries: 0, bytes: 0, entries_max, bytes_max }
    }

    /// For how many more entries there is room at most.
    #[must_use]
    pub fn entries_left(&self) -> usize {
        usize::try_from(self.entries_max - self.entries).unwrap_or(usize::MAX)
    }

    /// Takes an entry in, by the lengths of its key and of the value that is to stand beside it. `None`: the
    /// page is full and goes on at this entry. Else whether the value stands in the page: one that does not
    /// fit even an empty page does not. The first entry is always taken.
    pub fn admit(&mut self, key_len: usize, value_len: usize) -> Option<bool> {
        let alone = ENTRY_BYTES.saturating_add(key_len);
        let whole = alone.saturating_add(value_len);
        let inline = whole <= PAGE_BYTES_MAX;
        let bytes = self.bytes.saturating_add(if inline { whole } else { alone });
        let is_wanted = self.entries < self.entries_max && (self.entries == 0 || bytes <= self.bytes_max);
        if !is_wanted || bytes > PAGE_BYTES_MAX {
            return None;
        }
        (self.entries, self.bytes) = (self.entries + 1, bytes);
        Some(inline)
    }
}

/// Makes a page, entry by entry. Dropped unfinished, it leaves nothing behind.
#[derive(Debug)]
pub struct PageWriter<'a> {
    writer: Writer<'a>,
    room: PageRoom,
    fixed_at: usize,
}

impl<'a> PageWriter<'a> {
    /// Begins the page at the end of `out`. `limit_entries` and `limit_bytes` are the request's, as far as
    /// the server permits them; zero is no limit but the page's own.
    ///
    /// # Errors
    /// None in practice: the fixed part fits an empty message.
    pub fn begin(
        header: &ReplyHeader,
        limit_entries: u32,
        limit_bytes: u32,
        out: &'a mut Vec<u8>,
    ) -> Result<PageWriter<'a>, EncodeError> {
        let mut writer = Writer::new(out);
        header.encode(ReplyKind::Page.code(), StatusCode::Ok, &mut writer)?;
        let fixed_at = writer.len();
        writer.reserved(PAGE_FIXED_BYTES)?;
        Ok(PageWriter { writer, room: PageRoom::new(limit_entries, limit_bytes), fixed_at })
    }

    /// Adds an entry; false is a full page, which goes on at this entry. The first entry is always taken, and
    /// a value that does not fit even an empty page becomes [`EntryValue::Large`] by itself.
    ///
    /// # Errors
    /// The key is longer than the wire permits.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<bool, EncodeError> {
        let (tag, value_len, value): (u8, u32, &[u8]) = match entry.value {
            EntryValue::Inline(value) => (INLINE, u32::try_from(value.len()).unwrap_or(u32::MAX), value),
            EntryValue::Large { value_len } => (LARGE, value_len, &[]),
            EntryValue::Omitted { value_len } => (KEY_ALONE, value_len, &[]),
        };
        self.push_fields(tag, entry.key.len(), value_len, |out, has_value| {
            out.extend_from_slice(entry.key);
            out.extend_from_slice(if has_value { value } else { &[] });
            Ok(entry.version)
        })
    }

    /// As [`PageWriter::push`], for an owner that copies key and value straight into the page: `copy` appends
    /// the key, then the value if it is asked to, of just these lengths, and answers with the version. It is
    /// not called if the page is full. After an error the page is to be dropped.
    ///
    /// # Errors
    /// The key is longer than the wire permits, or what `copy` answers.
    #[inline]
    pub fn push_with<E: From<EncodeError>>(
        &mut self,
        key_len: usize,
        value_len: u32,
        keys_only: bool,
        copy: impl FnOnce(&mut Vec<u8>, bool) -> Result<Version, E>,
    ) -> Result<bool, E> {
        self.push_fields(if keys_only { KEY_ALONE } else { INLINE }, key_len, value_len, copy)
    }

    fn push_fields<E: From<EncodeError>>(
        &mut self,
        mut tag: u8,
        key_len: usize,
        value_len: u32,
        copy: impl FnOnce(&mut Vec<u8>, bool) -> Result<Version, E>,
    ) -> Result<bool, E> {
        let Some(wire_len) = u16::try_from(key_len).ok().filter(|_| key_len <= KEY_BYTES_MAX) else {
            return Err(EncodeError::Key { len: key_len }.into());
        };
        let inline_len = if tag == INLINE { usize::try_from(value_len).unwrap_or(usize::MAX) } else { 0 };
        let Some(inline) = self.room.admit(key_len, inline_len) else { return Ok(false) };
        if !inline {
            tag = LARGE;
        }
        let has_value = tag == INLINE;
        let copied_len = key_len + if has_value { inline_len } else { 0 };
        let at = self.writer.len();
        let mut fixed = [0; ENTRY_BYTES];
        fixed[0] = tag;
        fixed[2..4].copy_from_slice(&wire_len.to_le_bytes());
        fixed[4..8].copy_from_slice(&value_len.to_le_bytes());
        self.writer.bytes(&fixed)?;
        let version = self.writer.copied(copied_len, |out| copy(out, has_value))?;
        self.writer.patch(at + 8, &version_bytes(version));
        Ok(true)
    }

    /// Entries so far.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.room.entries).unwrap_or(usize::MAX)
    }

    /// Whether there is no entry yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.room.entries == 0
    }

    /// Completes the page. `None`: nothing follows. `Some(bound)`: the scan goes on there; it must not be
    /// unbounded.
    ///
    /// # Errors
    /// The resume key is longer than the wire permits, or the bound is none; nothing is left behind.
    pub fn finish(mut self, resume: Option<Bound<'_>>) -> Result<(), EncodeError> {
        let bound = resume.unwrap_or_default();
        if resume == Some(Bound::Unbounded) {
            return Err(EncodeError::Count { count: 0, max: 1 });
        }
        let key = bound.bytes();
        let key_len = u16::try_from(key.len()).ok().filter(|_| key.len() <= KEY_BYTES_MAX);
        let key_len = key_len.ok_or(EncodeError::Key { len: key.len() })?;
        self.writer.bytes(key)?;
        let count = u16::try_from(self.room.entries).unwrap_or(u16::MAX); // a page has room for fewer
        let [count_low, count_high] = count.to_le_bytes();
        let [key_low, key_high] = key_len.to_le_bytes();
        let done = if resume.is_none() { DONE } else { 0 };
        self.writer.patch(self.fixed_at, &[count_low, count_high, done, bound.tag(), key_low, key_high]);
        self.writer.complete();
        Ok(())
    }
}
