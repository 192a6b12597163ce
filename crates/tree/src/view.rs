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
    HEADS, HIGH_INFINITE, KIND, LEAF_VALUE_BYTES, LEVEL_MASK, RIGHT, SLOT_BYTES, SLOT_OFFSET_BITS,
    SLOT_OFFSET_MASK, WORD_BYTES, count_max, length_bytes, low_u32, low_usize,
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
    pub(crate) fn is_valid(&self) -> bool {
        self.kind & FLAG_VALID != 0
    }

    #[inline(always)]
    pub(crate) fn is_inner(&self) -> bool {
        self.kind & FLAG_INNER != 0
    }

    #[inline(always)]
    pub(crate) fn high_stored(&self) -> usize {
        if self.high_len == HIGH_INFINITE { 0 } else { self.high_len.saturating_sub(self.prefix) }
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

/// A key as a search carries it: its bytes, and its first sixteen as two numbers, because most windows are there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe<'k> {
    pub(crate) bytes: &'k [u8],
    /// Bytes 0..8, big-endian, zero padded.
    first: u64,
    /// Bytes 8..16, likewise.
    second: u64,
}

impl<'k> Probe<'k> {
    #[inline(always)]
    pub(crate) fn new(bytes: &'k [u8]) -> Probe<'k> {
        match bytes.as_chunks::<8>().0 {
            [first, second, ..] => {
                Probe { bytes, first: u64::from_be_bytes(*first), second: u64::from_be_bytes(*second) }
            }
            _ => Probe::of_short(bytes),
        }
    }

    #[inline(never)]
    fn of_short(bytes: &'k [u8]) -> Probe<'k> {
        let mut halves = [[0; 8]; 2];
        for (half, bytes) in halves.iter_mut().zip(bytes.chunks(8)) {
            half[..bytes.len()].copy_from_slice(bytes);
        }
        Probe { bytes, first: u64::from_be_bytes(halves[0]), second: u64::from_be_bytes(halves[1]) }
    }

    /// Eight bytes from `at` on, big-endian, zero padded. `at` may be past the end.
    #[inline(always)]
    pub(crate) fn window(&self, at: usize) -> u64 {
        if at < 8 {
            let shift = 8 * at;
            return (self.first << shift) | ((self.second >> 1) >> (63 - shift));
        }
        self.far_window(at)
    }

    /// Fewer than eight bytes, little-endian.
    #[inline(never)]
    fn short_tail(rest: &[u8]) -> u64 {
        rest.iter().rev().fold(0, |tail, byte| tail << 8 | u64::from(*byte))
    }

    #[inline(never)]
    fn far_window(&self, at: usize) -> u64 {
        let len = self.bytes.len();
        if at + 8 <= len
            && let Some(chunk) = self.bytes[at..].first_chunk::<8>()
        {
            return u64::from_be_bytes(*chunk);
        }
        match self.bytes.last_chunk::<8>() {
            // The last eight bytes, shifted until the one at `at` leads.
            Some(chunk) if at < len => u64::from_be_bytes(*chunk) << (8 * (8 - (len - at))),
            _ => 0,
        }
    }
}

/// The upper half of a word.
#[inline(always)]
fn upper(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Keeps the first `bytes` of a window.
#[inline(always)]
fn keep(window: u64, bytes: usize) -> u64 {
    if bytes >= 8 { window } else { window & !(u64::MAX >> (8 * bytes)) }
}

/// Bytes of a leaf that hold header, fences and the arrays of some twenty entries.
pub(crate) const LEAF_FRONT_BYTES: usize = 192;

/// Bytes of a cell that are worth asking for before it is known how long it is: keys of up to 50 bytes.
const CELL_BYTES_COMMON: usize = 64;

/// What the heads of a leaf say about a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Candidate {
    /// It is not there.
    None,
    /// Only the entry with this slot can be it.
    One(u16),
    /// Several entries have its head.
    Several,
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

/// Where a search goes from an inner node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hop {
    /// To the child that covers the key, one level down.
    Child(NodeIndex),
    /// The key is at or above the high fence: to the next node of the level.
    Right(Pointer),
    /// The node is not the one that was meant.
    Restart,
}

/// What a leaf says about a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lookup {
    /// Its entry.
    Hit(LeafEntry),
    /// It is not in the tree.
    Miss,
    /// It is at or above the high fence.
    Right(Pointer),
    /// The leaf is not the one that was meant.
    Restart,
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
        self.word(0) == version
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

    /// Whether the node has, from `offset` on, what a key has from `at` on. Their lengths are known to be equal.
    #[inline(always)]
    fn equals(&self, offset: usize, key: &Probe<'_>, at: usize) -> bool {
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
        let prefix = header.prefix;
        if prefix >= 8 {
            return self.begins_with_long_prefix(header, key);
        }
        let difference = self.word(FENCES / WORD_BYTES).swap_bytes() ^ key.first;
        (difference >> 1) >> (63 - 8 * prefix) == 0 && prefix <= key.bytes.len()
    }

    #[inline(never)]
    fn begins_with_long_prefix(&self, header: &Header, key: &Probe<'_>) -> bool {
        if key.bytes.len() < header.prefix {
            return false;
        }
        let mut difference = 0;
        for at in (0..header.prefix.min(B)).step_by(8) {
            let word = self.word((FENCES + at) / WORD_BYTES).swap_bytes();
            difference |= keep(word ^ key.window(at), header.prefix - at);
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
        if window > low && self.is_below_high(header, window) {
            Side::Here(window)
        } else {
            self.side_by_bytes(header, key, window)
        }
    }

    /// Whether the high fence is above all keys with this window. If not, it may still be above the one.
    #[inline(always)]
    fn is_below_high(&self, header: &Header, window: u64) -> bool {
        header.high_len == HIGH_INFINITE
            || window < keep(self.window(FENCES + header.low_len), header.high_stored())
    }

    /// Where a search goes from an inner node. A key below the low fence goes to the first child: it cannot be there
    /// either, and the leaf will say so.
    #[inline(always)]
    pub(crate) fn hop(&self, header: &Header, key: &Probe<'_>) -> Hop {
        if self.begins_with_prefix(header, key) {
            let window = key.window(header.prefix);
            if self.is_below_high(header, window) {
                return Hop::Child(self.child(header, self.route(header, key, window)));
            }
        }
        self.hop_by_bytes(header, key)
    }

    #[cold]
    fn hop_by_bytes(&self, header: &Header, key: &Probe<'_>) -> Hop {
        match self.side_by_bytes(header, key, key.window(header.prefix)) {
            Side::Here(window) => Hop::Child(self.child(header, self.route(header, key, window))),
            Side::Right => Hop::Right(self.right()),
            Side::Below => Hop::Restart,
        }
    }

    /// What a leaf says about a key. A hit needs no look at the fences, because entries are within them.
    #[inline(always)]
    pub(crate) fn lookup(&self, header: &Header, key: &Probe<'_>) -> Lookup {
        match self.candidate(header, key) {
            Candidate::One(slot) => match self.confirm(header.prefix, key, slot) {
                Some(entry) => Lookup::Hit(entry),
                None => self.miss(header, key),
            },
            Candidate::None => self.miss(header, key),
            Candidate::Several => self.lookup_among_equal_heads(header, key),
        }
    }

    /// What a leaf says about a key that it does not have.
    #[inline(always)]
    pub(crate) fn miss(&self, header: &Header, key: &Probe<'_>) -> Lookup {
        match self.side(header, key) {
            Side::Here(_) => Lookup::Miss,
            Side::Right => Lookup::Right(self.right()),
            Side::Below => Lookup::Restart,
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

    /// How many of the sorted heads satisfy `before`, which holds for a beginning of them. Without branches that
    /// depend on keys: halves the words, of two heads each, by their upper head.
    #[inline(always)]
    fn partition_heads(&self, header: &Header, before: impl Fn(u32) -> bool) -> usize {
        let base = header.heads() / WORD_BYTES;
        let mut at = 0;
        let mut len = header.count / 2;
        while len > 1 {
            let half = len / 2;
            at += select_unpredictable(before(upper(self.word(base + at + half - 1))), half, 0);
            len -= half;
        }
        at += usize::from(len == 1 && before(upper(self.word(base + at))));
        2 * at + usize::from(2 * at < header.count && before(low_u32(self.word(base + at))))
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
    fn leaf_cell(&self, slot: u16) -> Cell {
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
        let head = upper(window);
        let from = self.partition_heads(header, |other| other < head);
        let heads = header.heads();
        if from >= header.count || self.head(heads, from) != head || key.bytes.len() < header.prefix {
            return (from, None);
        }
        if from + 1 < header.count && self.head(heads, from + 1) == head {
            return self.find_among_equal_heads(header, key, head, from);
        }
        let cell = self.cell(header, from);
        if self.is_key(&cell, header.prefix, key) {
            return (from, Some(cell));
        }
        let after = usize::from(self.compare_behind_head(header, from, key) == Ordering::Less);
        (from + after, None)
    }

    /// Whether an entry whose head is the key's is the key.
    #[inline(always)]
    fn is_key(&self, cell: &Cell, prefix: usize, key: &Probe<'_>) -> bool {
        let key_len = key.bytes.len() - prefix;
        cell.suffix_len == key_len
            && (key_len <= HEAD_BYTES || self.equals(cell.rest, key, prefix + HEAD_BYTES))
    }

    /// The one entry of a leaf that can be the key's, by its head.
    #[inline(always)]
    pub(crate) fn candidate(&self, header: &Header, key: &Probe<'_>) -> Candidate {
        if !self.begins_with_prefix(header, key) {
            return Candidate::None;
        }
        let head = upper(key.window(header.prefix));
        let at = self.partition_heads(header, |other| other < head);
        let heads = header.heads();
        if at >= header.count || self.head(heads, at) != head {
            Candidate::None
        } else if at + 1 < header.count && self.head(heads, at + 1) == head {
            Candidate::Several
        } else {
            Candidate::One(self.u16_at(header.slots() + SLOT_BYTES * at))
        }
    }

    /// Asks for the cache lines of a candidate's cell.
    #[inline(always)]
    pub(crate) fn prefetch_cell(&self, slot: u16) {
        let offset = usize::from(slot & SLOT_OFFSET_MASK);
        self.prefetch(offset, offset + CELL_BYTES_COMMON);
    }

    /// The entry behind a candidate, if it is the key's.
    #[inline(always)]
    pub(crate) fn confirm(&self, prefix: usize, key: &Probe<'_>, slot: u16) -> Option<LeafEntry> {
        let cell = self.leaf_cell(slot);
        self.is_key(&cell, prefix, key).then(|| self.leaf_entry(&cell))
    }

    #[inline(never)]
    pub(crate) fn lookup_among_equal_heads(&self, header: &Header, key: &Probe<'_>) -> Lookup {
        match self.find(header, key, key.window(header.prefix)).1 {
            Some(cell) => Lookup::Hit(self.leaf_entry(&cell)),
            None => self.miss(header, key),
        }
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
        let head = upper(window);
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
