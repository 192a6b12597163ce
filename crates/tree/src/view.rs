//! Reading a tree node, wherever it is: live memory that may change under the reader, or a copy.
//!
//! Nothing here trusts what it reads. Offsets are masked to the node, counts and lengths are capped, so torn words make
//! wrong answers, never a panic or an endless loop; who reads live memory asks for the version again before it
//! believes an answer ([`View::stable`]).

use std::cmp::Ordering;
use std::hint::select_unpredictable;

use cell_terms::{Csn, ExtentOffset, Pointer, Words};

use crate::geometry::NodeIndex;
use crate::layout::{
    CHILD_BYTES, CODE_LONG, COUNT, CSN_CHANGED, CSN_REMOVED, FENCES, FLAG_INNER, FLAG_VALID, HEAD_BYTES,
    HIGH_INFINITE, LEAF_VALUE_BYTES, LEVEL, RIGHT, SLOT_BYTES, SLOT_OFFSET_BITS, SLOT_OFFSET_MASK,
    WORD_BYTES, count_max, heads_offset, length_bytes, low_u32, low_usize,
};

/// What a leaf tells about a key: where its extent is, and what must be found there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafEntry {
    /// The extent's place in the pair's extent region.
    pub offset: ExtentOffset,
    /// Length of the value in bytes, with the flags that the extent's author keeps in the upper bits.
    pub value_len: u32,
    /// CRC-64 over the whole extent.
    pub crc: u64,
}

/// The numbers of a node's header that describe its shape, capped so that they cannot lead out of the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) level: u8,
    pub(crate) flags: u8,
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
    pub(crate) fn is_valid(&self) -> bool {
        self.flags & FLAG_VALID != 0
    }

    #[inline(always)]
    pub(crate) fn is_inner(&self) -> bool {
        self.flags & FLAG_INNER != 0
    }

    #[inline(always)]
    pub(crate) fn high_stored(&self) -> usize {
        if self.high_len == HIGH_INFINITE { 0 } else { self.high_len.saturating_sub(self.prefix) }
    }

    #[inline(always)]
    pub(crate) fn heads(&self) -> usize {
        heads_offset(self.low_len, self.high_stored())
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

/// A key as a search carries it: its bytes, and its first eight as a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe<'k> {
    pub(crate) bytes: &'k [u8],
    /// The first eight bytes, big-endian, zero padded.
    first: u64,
}

impl<'k> Probe<'k> {
    #[inline(always)]
    pub(crate) fn new(bytes: &'k [u8]) -> Probe<'k> {
        let first = match bytes.first_chunk::<8>() {
            Some(chunk) => u64::from_be_bytes(*chunk),
            None => short_window(bytes),
        };
        Probe { bytes, first }
    }

    /// Eight bytes from `at` on, big-endian, zero padded. `at` may be past the end.
    #[inline(always)]
    pub(crate) fn window(&self, at: usize) -> u64 {
        let len = self.bytes.len();
        if at + 8 <= len
            && let Some(chunk) = self.bytes[at..].first_chunk::<8>()
        {
            return u64::from_be_bytes(*chunk);
        }
        match self.bytes.last_chunk::<8>() {
            // The last eight bytes, shifted until the one at `at` leads.
            Some(chunk) if at < len => u64::from_be_bytes(*chunk) << (8 * (8 - (len - at))),
            None if at < 8 => self.first << (8 * at),
            _ => 0,
        }
    }
}

#[cold]
fn short_window(bytes: &[u8]) -> u64 {
    bytes.iter().zip(0u32..8).fold(0, |window, (byte, i)| window | u64::from(*byte) << (56 - 8 * i))
}

/// Keeps the first `bytes` of a window.
#[inline(always)]
fn keep(window: u64, bytes: usize) -> u64 {
    if bytes >= 8 { window } else { window & !(u64::MAX >> (8 * bytes)) }
}

/// Where a key is as seen from one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Within the fences. The key's eight bytes behind the prefix.
    Here(u64),
    /// At or above the high fence.
    Right,
    /// Below the low fence: the node was reused, or the reader came to the wrong tree.
    Below,
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

    /// Runs `read` and returns its answer if no change was seen: the front version was even and is still the same.
    #[inline(always)]
    pub(crate) fn stable<R>(&self, read: impl FnOnce(&Self) -> R) -> Option<R> {
        let version = self.word(0);
        if version & 1 != 0 {
            return None;
        }
        self.words.fence_acquire();
        let answer = read(self);
        self.words.fence_acquire();
        (self.word(0) == version).then_some(answer)
    }

    /// Asks for the cache lines of bytes `from..to` of the node.
    #[inline(always)]
    pub(crate) fn prefetch(&self, from: usize, to: usize) {
        for line in from / 64..to.min(B).div_ceil(64) {
            self.words.prefetch(self.base + line * 8);
        }
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
    fn window(&self, offset: usize) -> u64 {
        self.bytes8(offset).swap_bytes()
    }

    #[inline(always)]
    fn u16_at(&self, offset: usize) -> u16 {
        (self.word(offset / WORD_BYTES) >> (8 * (offset % WORD_BYTES)) & 0xFFFF) as u16
    }

    #[inline(always)]
    pub(crate) fn header(&self) -> Header {
        let shape = self.word(LEVEL / WORD_BYTES);
        let fences = self.word(LEVEL / WORD_BYTES + 1);
        const { assert!(COUNT == LEVEL + 2) };
        Header {
            level: (shape & 0xFF) as u8,
            flags: (shape >> 8 & 0xFF) as u8,
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

    /// Whether `len` bytes of the node at `offset` are a key's bytes from `at` on to its end.
    #[inline(always)]
    fn equals(&self, offset: usize, len: usize, key: &Probe<'_>, at: usize) -> bool {
        if len != key.bytes.len().saturating_sub(at) {
            return false;
        }
        let len = len.min(B);
        let mut difference = 0;
        let mut i = 0;
        while i < len {
            difference |= keep(self.window(offset + i) ^ key.window(at + i), len - i);
            i += 8;
        }
        difference == 0
    }

    /// Compares the low fence with a key.
    pub(crate) fn compare_low(&self, header: &Header, key: &Probe<'_>) -> Ordering {
        self.compare(FENCES, header.low_len, key, 0)
    }

    /// Compares the high fence with a key.
    pub(crate) fn compare_high(&self, header: &Header, key: &Probe<'_>) -> Ordering {
        if header.high_len == HIGH_INFINITE {
            Ordering::Greater
        } else if self.begins_with_prefix(header, key) {
            self.compare(FENCES + header.low_len, header.high_stored(), key, header.prefix)
        } else {
            self.compare(FENCES, header.prefix, key, 0)
        }
    }

    /// Whether the key begins with what all keys of the node begin with.
    #[inline(always)]
    pub(crate) fn begins_with_prefix(&self, header: &Header, key: &Probe<'_>) -> bool {
        if key.bytes.len() < header.prefix {
            return false;
        }
        let mut at = 0;
        let mut difference = 0;
        while at < header.prefix.min(B) {
            let word = self.word((FENCES + at) / WORD_BYTES).swap_bytes();
            difference |= keep(word ^ key.window(at), header.prefix - at);
            at += 8;
        }
        difference == 0
    }

    /// Where the key is as seen from this node.
    #[inline(always)]
    pub(crate) fn side(&self, header: &Header, key: &Probe<'_>) -> Side {
        if !self.begins_with_prefix(header, key) {
            return self.side_by_bytes(header, key, 0);
        }
        let window = key.window(header.prefix);
        let low = keep(self.window(FENCES + header.prefix), header.low_len.saturating_sub(header.prefix));
        let high_stored = header.high_stored();
        let high = keep(self.window(FENCES + header.low_len), high_stored);
        if window > low && (window < high || header.high_len == HIGH_INFINITE) {
            Side::Here(window)
        } else {
            self.side_by_bytes(header, key, window)
        }
    }

    #[cold]
    fn side_by_bytes(&self, header: &Header, key: &Probe<'_>, window: u64) -> Side {
        if self.compare_low(header, key) == Ordering::Greater {
            Side::Below
        } else if self.compare_high(header, key) != Ordering::Greater {
            Side::Right
        } else {
            Side::Here(window)
        }
    }

    #[inline(always)]
    pub(crate) fn head(&self, heads: usize, i: usize) -> u32 {
        low_u32(self.word(heads / WORD_BYTES + i / 2) >> (32 * (i & 1)))
    }

    /// How many of the sorted heads satisfy `before`, which holds for a beginning of them.
    #[inline(always)]
    fn partition_heads(&self, header: &Header, before: impl Fn(u32) -> bool) -> usize {
        let heads = header.heads();
        let mut base = 0;
        let mut len = header.count;
        while len > 1 {
            let half = len / 2;
            base += select_unpredictable(before(self.head(heads, base + half - 1)), half, 0);
            len -= half;
        }
        base + usize::from(len == 1 && before(self.head(heads, base)))
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
        let offset = usize::from(slot & SLOT_OFFSET_MASK);
        let code = usize::from(slot >> SLOT_OFFSET_BITS);
        let behind = offset + if header.is_inner() { 0 } else { LEAF_VALUE_BYTES };
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
            value_len: (place >> 32) as u32,
            crc: self.bytes8(cell.offset + 8),
        }
    }

    /// Asks for the cache lines of the cell that the key with this window would have.
    #[inline(always)]
    pub(crate) fn prefetch_candidate(&self, header: &Header, window: u64) {
        let head = (window >> 32) as u32;
        let at = self.partition_heads(header, |other| other < head);
        let slot = self.u16_at(header.slots() + SLOT_BYTES * at);
        let offset = usize::from(slot & SLOT_OFFSET_MASK);
        self.prefetch(offset, offset + 64);
    }

    /// Compares entry `i`'s suffix with a key's, their heads being equal.
    #[inline]
    fn compare_behind_head(&self, header: &Header, i: usize, key: &Probe<'_>) -> Ordering {
        let cell = self.cell(header, i);
        let key_len = key.bytes.len() - header.prefix;
        if cell.suffix_len <= HEAD_BYTES || key_len <= HEAD_BYTES {
            // One's bytes are zeros at the other's end, or there are no more: the shorter is the other's beginning.
            return cell.suffix_len.cmp(&key_len);
        }
        self.compare(cell.rest, cell.suffix_len - HEAD_BYTES, key, header.prefix + HEAD_BYTES)
    }

    /// The first entry that is not below the key, and whether it is the key. The key is within the fences and
    /// `window` is what follows the prefix.
    #[inline(always)]
    pub(crate) fn find(&self, header: &Header, key: &Probe<'_>, window: u64) -> (usize, Option<Cell>) {
        let head = (window >> 32) as u32;
        let from = self.partition_heads(header, |other| other < head);
        let heads = header.heads();
        if from >= header.count || self.head(heads, from) != head || key.bytes.len() < header.prefix {
            return (from, None);
        }
        if from + 1 < header.count && self.head(heads, from + 1) == head {
            return self.find_among_equal_heads(header, key, head, from);
        }
        let cell = self.cell(header, from);
        let key_len = key.bytes.len() - header.prefix;
        if cell.suffix_len == key_len
            && (key_len <= HEAD_BYTES
                || self.equals(cell.rest, key_len - HEAD_BYTES, key, header.prefix + HEAD_BYTES))
        {
            return (from, Some(cell));
        }
        let after = usize::from(self.compare_behind_head(header, from, key) == Ordering::Less);
        (from + after, None)
    }

    #[inline(never)]
    fn find_among_equal_heads(
        &self,
        header: &Header,
        key: &Probe<'_>,
        head: u32,
        from: usize,
    ) -> (usize, Option<Cell>) {
        let (mut from, mut to) = (from, self.partition_heads(header, |other| other <= head));
        while from < to {
            let middle = usize::midpoint(from, to);
            match self.compare_behind_head(header, middle, key) {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => return (middle, Some(self.cell(header, middle))),
            }
        }
        (from, None)
    }

    /// The entry of an inner node whose child covers the key: the last that is not above it.
    #[inline(always)]
    pub(crate) fn route(&self, header: &Header, key: &Probe<'_>, window: u64) -> usize {
        let head = (window >> 32) as u32;
        let to = self.partition_heads(header, |other| other <= head);
        // The first entry's suffix is empty: its head is zero, so there is always one (but for torn words).
        let last = to.saturating_sub(1);
        if self.head(header.heads(), last) != head || key.bytes.len() < header.prefix {
            return last;
        }
        self.route_among_equal_heads(header, key, head, to)
    }

    #[inline(never)]
    fn route_among_equal_heads(&self, header: &Header, key: &Probe<'_>, head: u32, to: usize) -> usize {
        let (mut from, mut to) = (self.partition_heads(header, |other| other < head), to);
        while from < to {
            let middle = usize::midpoint(from, to);
            if self.compare_behind_head(header, middle, key) == Ordering::Greater {
                to = middle;
            } else {
                from = middle + 1;
            }
        }
        from.saturating_sub(1)
    }

    /// The entry of an inner node whose child covers the keys just below the bound, which is above the low fence.
    pub(crate) fn route_below(&self, header: &Header, bound: &Probe<'_>, window: u64) -> usize {
        let (at, _) = self.find(header, bound, window);
        at.saturating_sub(1)
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
        for (i, chunk) in out.chunks_mut(8).enumerate() {
            chunk.copy_from_slice(&self.bytes8(offset + 8 * i).to_le_bytes()[..chunk.len()]);
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
