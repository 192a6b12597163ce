//! The reads of one extent: whole, in pieces where it is longer than one read, or its header alone.

use cell_fabric::{READ_BYTES_MAX, RegionKey, RemoteRead};
use cell_memory::extent::{ExtentHeader, ExtentShape, ExtentView, byte_offset};
use cell_terms::{Csn, PairId, Version};
use cell_tree::LeafEntry;

/// Pieces of one extent on their way at a time.
const PIECES_AHEAD: u32 = 16;

/// An extent on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    entry: LeafEntry,
    shape: ExtentShape,
    /// Its value is wanted, and not only its header.
    whole: bool,
    /// Where its bytes begin in the operation's buffer.
    begin: usize,
    pieces_posted: u32,
    pieces_here: u32,
}

/// What an extent says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// The entry's version.
    pub(crate) version: Version,
    /// The CSN that must be covered by the watermark.
    pub(crate) csn: Csn,
    /// Length of the value.
    pub(crate) value_len: u32,
    /// Where the value stands in the operation's buffer, if it was wanted.
    pub(crate) value: Option<(usize, usize)>,
}

/// Length of an entry's value, as its leaf has it; none if the leaf's word cannot be.
pub(crate) fn value_len(entry: &LeafEntry) -> Option<u32> {
    ExtentShape::from_bits(entry.value_len).map(ExtentShape::value_bytes)
}

impl Fetch {
    /// Makes room in the buffer. `None`: the leaf's word cannot be a shape.
    pub(crate) fn begin(entry: LeafEntry, whole: bool, bytes: &mut Vec<u8>) -> Option<Fetch> {
        let shape = ExtentShape::from_bits(entry.value_len)?;
        let mut fetch = Fetch { entry, shape, whole, begin: bytes.len(), pieces_posted: 0, pieces_here: 0 };
        if fetch.pieces() > 1 {
            bytes.resize(fetch.begin + fetch.stored_bytes() as usize, 0);
        } else {
            fetch.begin = usize::MAX; // appended when it is here
        }
        Some(fetch)
    }

    fn stored_bytes(&self) -> u32 {
        if self.whole { self.shape.stored_bytes() } else { self.shape.header_bytes() }
    }

    fn pieces(&self) -> u32 {
        self.stored_bytes().div_ceil(READ_BYTES_MAX)
    }

    /// The next piece to be posted, with its number, if there is one that may.
    pub(crate) fn next_piece(&mut self, key: u64) -> Option<(u16, RemoteRead)> {
        let piece = self.pieces_posted;
        if piece >= self.pieces() || piece >= self.pieces_here + PIECES_AHEAD {
            return None;
        }
        self.pieces_posted += 1;
        let begin = piece * READ_BYTES_MAX;
        let length = (self.stored_bytes() - begin).min(READ_BYTES_MAX);
        let offset = byte_offset(self.entry.offset) + u64::from(begin);
        Some((u16::try_from(piece).ok()?, RemoteRead { key: RegionKey(key), offset, length }))
    }

    /// A piece is here: true when it was the last.
    pub(crate) fn take(&mut self, piece: u16, words: &[u64], bytes: &mut Vec<u8>) -> bool {
        let at = if self.begin == usize::MAX {
            self.begin = bytes.len();
            bytes.resize(self.begin + words.len() * 8, 0);
            self.begin
        } else {
            self.begin + usize::from(piece) * READ_BYTES_MAX as usize
        };
        let out = &mut bytes[at..at + words.len() * 8];
        for (out, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *out = word.to_le_bytes();
        }
        self.pieces_here += 1;
        self.pieces_here == self.pieces()
    }

    /// Checks what is here against the leaf: the CRC of a whole extent; of a header its form, and the leaf is
    /// to confirm it. `None`: it is not the leaf's extent.
    pub(crate) fn finish(&self, pair: PairId, bytes: &[u8]) -> Option<Fetched> {
        let value_len = self.shape.value_bytes();
        if !self.whole {
            let head = &bytes[self.begin..self.begin + self.shape.header_bytes() as usize];
            let header = ExtentHeader::decode(self.shape, head)?;
            let (version, csn) = (header.version(pair), header.csn);
            return Some(Fetched { version, csn, value_len, value: None });
        }
        let end = self.begin + self.shape.extent_bytes() as usize;
        let view = ExtentView::verify(&bytes[self.begin..end], self.entry.crc).ok()?;
        let value = Some((end - value_len as usize, end));
        Some(Fetched { version: view.header.version(pair), csn: view.header.csn, value_len, value })
    }
}
