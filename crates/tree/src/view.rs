//! Reading a tree node, wherever it is: live memory that may change under the reader, or a copy.
//!
//! Nothing here trusts what it reads. Offsets are masked to the node, counts and lengths are capped, so torn
//! words make wrong answers, never a panic or an endless loop; who reads live memory asks for the version
//! again before it believes an answer ([`View::stable`]).

use std::cmp::Ordering;

use cell_terms::{Csn, ExtentOffset, Pointer, Words};

use crate::geometry::NodeIndex;
use crate::layout::key_max;
use crate::layout::{
    CHILD_BYTES, CODE_LONG, COUNT, CSN_CHANGED, CSN_REMOVED, FENCES, FLAG_INNER, HEAD_BYTES, HEADS,
    HIGH_INFINITE, KIND, LEAF_VALUE_BYTES, LEVEL_MASK, RIGHT, SLOT_BYTES, SLOT_OFFSET_BITS, SLOT_OFFSET_MASK,
    WORD_BYTES, count_max, length_bytes, low_u32, low_usize,
};

use crate::mutant::{self, Mutant};
use crate::probe::{Probe, keep, upper};
use crate::role::MeganodeRole;
use crate::state::TreeNodeState;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// What a leaf says about a key: where its extent is, and what must be found there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafEntry {
    /// The extent's place in the pair's extent region.
    pub offset: ExtentOffset,
    /// Length of the value in bytes, with the flags that the extent's author keeps in the upper bits.
    pub value_len: u32,
    /// CRC-64 over the whole extent.
    pub crc: u64,
}

impl LeafEntry {
    /// From a cell.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "each number's own bits are meant")]
    pub(crate) fn from_bytes(bytes: &[u8; LEAF_VALUE_BYTES]) -> LeafEntry {
        let all = u128::from_le_bytes(*bytes);
        LeafEntry { offset: ExtentOffset(all as u32), value_len: (all >> 32) as u32, crc: (all >> 64) as u64 }
    }

    /// As a cell holds it, in two words.
    #[inline(always)]
    pub(crate) fn to_words(self) -> [u64; 2] {
        [u64::from(self.offset.0) | u64::from(self.value_len) << 32, self.crc]
    }

    /// As a cell holds it.
    #[inline(always)]
    pub(crate) fn to_bytes(self) -> [u8; LEAF_VALUE_BYTES] {
        let [place, crc] = self.to_words();
        (u128::from(place) | u128::from(crc) << 64).to_le_bytes()
    }
}

/// The numbers of a node's header that describe its shape, capped so that they cannot lead out of the node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header {
    /// Level and flags.
    pub(crate) kind: u8,
    heads: usize,
    pub(crate) count: usize,
    pub(crate) prefix: usize,
    pub(crate) heap_low: usize,
    pub(crate) low_len: usize,
    /// [`HIGH_INFINITE`] where there is no bound.
    pub(crate) high_len: usize,
    pub(crate) garbage: usize,
    pub(crate) hint: usize,
}

impl Header {
    #[inline(always)]
    pub(crate) fn level(&self) -> u8 {
        self.kind & LEVEL_MASK
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> TreeNodeState {
        TreeNodeState::of(self.kind)
    }

    #[inline(always)]
    pub(crate) fn role(&self) -> MeganodeRole {
        MeganodeRole::of(self.kind)
    }

    #[inline(always)]
    pub(crate) fn is_inner(&self) -> bool {
        self.kind & FLAG_INNER != 0
    }

    #[inline(always)]
    pub(crate) fn high_stored(&self) -> usize {
        if self.high_len == HIGH_INFINITE { 0 } else { self.high_len.saturating_sub(self.prefix) }
    }

    /// Length of the high fence; nothing for plus infinity.
    #[inline(always)]
    pub(crate) fn high_bytes(&self) -> Option<usize> {
        (self.high_len != HIGH_INFINITE).then(|| self.prefix + self.high_stored())
    }

    #[inline(always)]
    pub(crate) fn heads(&self) -> usize {
        self.heads
    }

    #[inline(always)]
    pub(crate) fn children(&self) -> usize {
        self.heads() + self.count * HEAD_BYTES
    }

    #[inline(always)]
    pub(crate) fn slots(&self) -> usize {
        self.children() + if self.is_inner() { self.count * CHILD_BYTES } else { 0 }
    }

    /// End of the arrays, exclusive.
    #[inline(always)]
    pub(crate) fn arrays_end(&self) -> usize {
        self.slots() + self.count * SLOT_BYTES
    }

    /// Bytes between the arrays and the heap.
    #[inline(always)]
    pub(crate) fn free(&self) -> usize {
        self.heap_low.saturating_sub(self.arrays_end())
    }
}

/// An entry's cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    /// Offset of the cell; zero if it has none.
    pub(crate) offset: usize,
    /// Offset of the suffix's fifth byte.
    pub(crate) rest: usize,
    /// Length of the whole suffix, its head included.
    pub(crate) suffix_len: usize,
}

/// A tree node of `B` bytes that begins at word `base`.
pub(crate) struct View<'a, W: Words + ?Sized, const B: usize> {
    words: &'a W,
    base: usize,
}

impl<W: Words + ?Sized, const B: usize> Clone for View<'_, W, B> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<W: Words + ?Sized, const B: usize> Copy for View<'_, W, B> {}

impl<'a, W: Words + ?Sized, const B: usize> View<'a, W, B> {
    const MASK: usize = B / WORD_BYTES - 1;

    #[inline(always)]
    pub(crate) fn new(words: &'a W, base: usize) -> Self {
        View { words, base }
    }

    /// Word `index` of the node; wraps around its end.
    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.words.load(self.base + (index & Self::MASK))
    }

    /// Copies words of the node from `first` on.
    ///
    /// # Panics
    /// If they are not all the node's.
    #[inline]
    pub(crate) fn copy(&self, first: usize, out: &mut [[u8; WORD_BYTES]]) {
        assert!(first + out.len() <= B / WORD_BYTES, "words behind the node");
        self.words.copy(self.base + first, out);
    }

    /// Runs `read` and returns its answer if no change was seen: the front version was even and is still the
    /// same.
    #[inline(always)]
    pub(crate) fn stable<R>(&self, read: impl FnOnce(&Self) -> R) -> Option<R> {
        let version = self.begin()?;
        let answer = read(self);
        self.is_still(version).then_some(answer)
    }

    /// The front version, before all other loads; none while the node changes.
    #[inline(always)]
    pub(crate) fn begin(&self) -> Option<u64> {
        let version = self.word(0);
        self.words.fence_acquire();
        (version & 1 == 0).then_some(version)
    }

    /// Whether the front version is still this one, all loads before being done.
    #[inline(always)]
    pub(crate) fn is_still(&self, version: u64) -> bool {
        self.words.fence_acquire();
        self.word(0) == version || mutant::planted(Mutant::TornRead)
    }

    /// Asks for the cache lines of bytes `from..to` of the node.
    #[inline(always)]
    pub(crate) fn prefetch(&self, from: usize, to: usize) {
        let (first, end) = (from / LINE_BYTES, to.min(B).div_ceil(LINE_BYTES));
        let words = self.base + first * (LINE_BYTES / WORD_BYTES);
        self.words.prefetch_lines(words, end.saturating_sub(first));
    }

    /// Eight bytes at any offset, little-endian.
    #[inline(always)]
    fn bytes8(&self, offset: usize) -> u64 {
        let (index, shift) = (offset / WORD_BYTES, 8 * (offset % WORD_BYTES));
        let low = self.word(index) >> shift;
        let high = (self.word(index + 1) << 1) << (63 - shift);
        low | high
    }

    /// Eight bytes at any offset as a window: big-endian.
    #[inline(always)]
    pub(crate) fn window(&self, offset: usize) -> u64 {
        self.bytes8(offset).swap_bytes()
    }

    #[inline(always)]
    pub(crate) fn u16_at(&self, offset: usize) -> u16 {
        (self.word(offset / WORD_BYTES) >> (8 * (offset % WORD_BYTES)) & 0xFFFF) as u16
    }

    #[inline(always)]
    pub(crate) fn header(&self) -> Header {
        let shape = self.word(KIND / WORD_BYTES);
        let fences = self.word(KIND / WORD_BYTES + 1);
        const { assert!(HEADS == KIND + 1 && COUNT == KIND + 2) };
        Header {
            kind: (shape & 0xFF) as u8,
            heads: low_usize(shape >> 8 & 0xFF) * WORD_BYTES,
            count: low_usize(shape >> 16).min(count_max(B)),
            prefix: low_usize(shape >> 32),
            heap_low: low_usize(shape >> 48),
            low_len: low_usize(fences),
            high_len: low_usize(fences >> 16),
            garbage: low_usize(fences >> 32),
            hint: low_usize(fences >> 48),
        }
    }

    #[inline(always)]
    pub(crate) fn csn_changed(&self) -> Csn {
        Csn(self.word(CSN_CHANGED / WORD_BYTES))
    }

    #[inline(always)]
    pub(crate) fn csn_removed(&self) -> Csn {
        Csn(self.word(CSN_REMOVED / WORD_BYTES))
    }

    #[inline(always)]
    pub(crate) fn right(&self) -> Pointer {
        Pointer(self.word(RIGHT / WORD_BYTES))
    }

    /// Compares `len` bytes of the node at `offset` with a key's bytes from `at` on.
    pub(crate) fn compare(&self, offset: usize, len: usize, key: &Probe<'_>, at: usize) -> Ordering {
        let key_len = key.bytes.len().saturating_sub(at);
        let both = len.min(key_len).min(B);
        for i in (0..both).step_by(8) {
            let ours = keep(self.window(offset + i), both - i);
            let theirs = keep(key.window(at + i), both - i);
            if ours != theirs {
                return ours.cmp(&theirs);
            }
        }
        len.cmp(&key_len)
    }

    /// Whether the node has, from `offset` on, what a key has from `at` on. Their lengths are known to be
    /// equal.
    #[inline(always)]
    pub(crate) fn equals(&self, offset: usize, key: &Probe<'_>, at: usize) -> bool {
        let (chunks, rest) = key.bytes.get(at..).unwrap_or_default().as_chunks::<8>();
        let shift = 8 * (offset % WORD_BYTES);
        let mut index = offset / WORD_BYTES;
        let mut low = self.word(index);
        let mut difference = 0;
        for chunk in chunks {
            index += 1;
            let high = self.word(index);
            difference |= ((low >> shift) | ((high << 1) << (63 - shift))) ^ u64::from_le_bytes(*chunk);
            low = high;
        }
        if !rest.is_empty() {
            let high = self.word(index + 1);
            let ours = (low >> shift) | ((high << 1) << (63 - shift));
            let unused = 8 * (8 - rest.len());
            let theirs = match key.bytes.last_chunk::<8>() {
                Some(chunk) => u64::from_le_bytes(*chunk) >> unused,
                None => Probe::short_tail(rest),
            };
            difference |= (ours ^ theirs) << unused;
        }
        difference == 0
    }

    #[inline(always)]
    pub(crate) fn head(&self, heads: usize, i: usize) -> u32 {
        low_u32(self.word(heads / WORD_BYTES + i / 2) >> (32 * (i & 1)))
    }

    #[inline(always)]
    pub(crate) fn child(&self, header: &Header, i: usize) -> NodeIndex {
        let offset = header.children() + CHILD_BYTES * i;
        let word = self.word(offset / WORD_BYTES) >> (8 * (offset % WORD_BYTES));
        NodeIndex(low_u32(word))
    }

    #[inline(always)]
    pub(crate) fn cell(&self, header: &Header, i: usize) -> Cell {
        let slot = self.u16_at(header.slots() + SLOT_BYTES * i);
        self.cell_of(slot, if header.is_inner() { 0 } else { LEAF_VALUE_BYTES })
    }

    #[inline(always)]
    pub(crate) fn leaf_cell(&self, slot: u16) -> Cell {
        self.cell_of(slot, LEAF_VALUE_BYTES)
    }

    #[inline(always)]
    fn cell_of(&self, slot: u16, value_bytes: usize) -> Cell {
        let offset = usize::from(slot & SLOT_OFFSET_MASK);
        let code = usize::from(slot >> SLOT_OFFSET_BITS);
        let behind = offset + value_bytes;
        if code == CODE_LONG {
            let mask = if length_bytes(B) == 1 { 0xFF } else { 0xFFFF };
            let more = low_usize(self.bytes8(behind) & mask);
            Cell { offset, rest: behind + length_bytes(B), suffix_len: CODE_LONG + more }
        } else {
            Cell { offset, rest: behind, suffix_len: code }
        }
    }

    #[inline(always)]
    pub(crate) fn leaf_entry(&self, cell: &Cell) -> LeafEntry {
        let place = self.bytes8(cell.offset);
        LeafEntry {
            offset: ExtentOffset(low_u32(place)),
            value_len: upper(place),
            crc: self.bytes8(cell.offset + 8),
        }
    }

    /// Appends entry `i`'s suffix.
    #[inline(always)]
    pub(crate) fn append_suffix(&self, header: &Header, i: usize, cell: &Cell, out: &mut Vec<u8>) {
        let end = out.len() + cell.suffix_len.min(key_max(B));
        out.reserve(key_max(B) + WORD_BYTES);
        out.extend_from_slice(&self.head(header.heads(), i).to_be_bytes());
        let mut offset = cell.rest;
        while out.len() < end {
            out.extend_from_slice(&self.bytes8(offset).to_le_bytes());
            offset += 8;
        }
        out.truncate(end);
    }

    /// Writes entry `i`'s suffix to `out` and returns its length, capped at what `out` takes.
    pub(crate) fn suffix(&self, header: &Header, i: usize, out: &mut [u8]) -> usize {
        let cell = self.cell(header, i);
        let len = cell.suffix_len.min(out.len());
        let head = self.head(header.heads(), i).to_be_bytes();
        let in_head = len.min(HEAD_BYTES);
        out[..in_head].copy_from_slice(&head[..in_head]);
        self.read(cell.rest, &mut out[in_head..len]);
        len
    }

    /// Copies bytes of the node.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        let (whole, rest) = out.as_chunks_mut::<WORD_BYTES>();
        let mut at = offset;
        for chunk in whole {
            *chunk = self.bytes8(at).to_le_bytes();
            at += WORD_BYTES;
        }
        if !rest.is_empty() {
            rest.copy_from_slice(&self.bytes8(at).to_le_bytes()[..rest.len()]);
        }
    }

    /// Writes the low fence to `out`; returns its length.
    pub(crate) fn low(&self, header: &Header, out: &mut [u8]) -> usize {
        let len = header.low_len.min(out.len());
        self.read(FENCES, &mut out[..len]);
        len
    }

    /// Writes the high fence to `out`; returns its length, or nothing for plus infinity.
    pub(crate) fn high(&self, header: &Header, out: &mut [u8]) -> Option<usize> {
        if header.high_len == HIGH_INFINITE {
            return None;
        }
        let prefix = header.prefix.min(out.len());
        let len = (prefix + header.high_stored()).min(out.len());
        self.read(FENCES, &mut out[..prefix]);
        self.read(FENCES + header.low_len, &mut out[prefix..len]);
        Some(len)
    }
}
