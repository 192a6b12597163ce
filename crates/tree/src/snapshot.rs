//! A leaf as of one moment: copied words, decoded entry by entry as they are asked for.
//!
//! Between two looks at a leaf's version only words are copied; a scan then takes the entries that it wants
//! from the copy, so that it pays for no key that nobody asked for, and one that it hands on is decoded
//! straight to where it goes ([`LeafSnapshot::append_key`]).

use std::cell::OnceCell;
use std::ops::Range;

use cell_terms::{Csn, Pointer, Words};

use crate::fence::Side;
use crate::geometry::NodeIndex;
use crate::layout::key_max;
use crate::layout::{
    CODE_LONG, FENCES, HEAD_BYTES, LEAF_VALUE_BYTES, SLOT_BYTES, SLOT_OFFSET_BITS, SLOT_OFFSET_MASK,
    WORD_BYTES, length_bytes,
};
use crate::probe::Probe;
use crate::search::sized;
use crate::view::{Header, LeafEntry, View};

/// Bytes that are copied at once, whatever a key's length is: keys of up to this behind prefix and head.
const WIDE_BYTES: usize = 64;
/// So a cell that begins at the last byte of a node, as only a damaged one does, can be looked at.
const SPARE_BYTES: usize = WIDE_BYTES + LEAF_VALUE_BYTES;

const _: () = assert!(SPARE_BYTES.is_multiple_of(WORD_BYTES));

/// One leaf as of one moment. It is filled again and again in the same memory; when that fails, it stays as
/// it was.
///
/// For each entry the durability rule of a hit holds; for what is not there, that of a miss:
/// [`LeafSnapshot::csn_removed`].
///
/// Who goes on from leaf to leaf gets what follows and nothing twice: a leaf that was compacted meanwhile,
/// and has what the one before had too, is seen from there on, as if it began (or going backward, ended)
/// there.
#[derive(Clone, Debug, Default)]
pub struct LeafSnapshot {
    /// Boxed, as the next one is, because they change places at each leaf.
    pub(crate) now: Box<Content>,
    /// Where the next is read to, until it is known to be of one moment.
    pub(crate) next: Box<Content>,
}

/// Which leaf a snapshot was taken of, and as of which of its changes: see [`crate::Meganode::is_unchanged`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafVersion {
    pub(crate) node: NodeIndex,
    pub(crate) version: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    words: Copied,
    node_bytes: usize,
    header: Header,
    /// The entries that are seen: all, unless the leaf was come to from another that has some of them.
    from: usize,
    to: usize,
    pub(crate) low: Vec<u8>,
    pub(crate) high: Vec<u8>,
    pub(crate) is_last: bool,
    pub(crate) right: Pointer,
    /// Where the leaf before this one was when it was looked for, if it was: advice.
    pub(crate) before: Option<NodeIndex>,
    node: NodeIndex,
    version: u64,
    csn_changed: Csn,
    csn_removed: Csn,
    /// All keys, once somebody asked for one in place.
    keys: OnceCell<Keys>,
}

#[derive(Clone, Debug, Default)]
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// Words of a node, and behind them room for a wide copy that begins at the last byte.
#[derive(Clone, Debug, Default)]
struct Copied(Vec<[u8; WORD_BYTES]>);

impl Words for Copied {
    #[inline(always)]
    fn load(&self, index: usize) -> u64 {
        u64::from_le_bytes(self.0[index])
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn prefetch(&self, _index: usize) {}

    #[inline(always)]
    fn fence_acquire(&self) {}
}

impl LeafSnapshot {
    /// An empty snapshot, to be filled.
    #[must_use]
    pub fn new() -> LeafSnapshot {
        LeafSnapshot::default()
    }

    /// How many entries the leaf has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.now.to - self.now.from
    }

    /// Whether the leaf has no entries: deletes leave such leaves.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key of entry `i`. The first time it decodes all keys: who wants each of them once, in order, takes
    /// [`LeafSnapshot::append_key`].
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    pub fn key(&self, i: usize) -> &[u8] {
        let keys = self.now.keys.get_or_init(|| {
            let mut keys = Keys::default();
            for i in 0..self.len() {
                self.append_key(i, &mut keys.bytes);
                keys.ends.push(keys.bytes.len());
            }
            keys
        });
        let from = if i == 0 { 0 } else { keys.ends[i - 1] };
        &keys.bytes[from..keys.ends[i]]
    }

    /// Appends the key of entry `i` to `out`.
    ///
    /// # Panics
    /// If there is no such entry.
    #[inline]
    pub fn append_key(&self, i: usize, out: &mut Vec<u8>) {
        self.check(i);
        sized!(self.now, B => self.now.append_key::<B>(self.now.from + i, out));
    }

    /// Length of the key of entry `i`.
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    #[inline]
    pub fn key_len(&self, i: usize) -> usize {
        self.check(i);
        sized!(self.now, B => self.now.key_len::<B>(self.now.from + i))
    }

    /// Entry `i`.
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    #[inline]
    pub fn entry(&self, i: usize) -> LeafEntry {
        self.check(i);
        sized!(self.now, B => self.now.entry::<B>(self.now.from + i))
    }

    /// Appends entries to `out`, in their order.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn append_leaf_entries(&self, places: Range<usize>, out: &mut Vec<LeafEntry>) {
        let Some(last) = places.clone().next_back() else { return };
        self.check(last);
        let places = self.now.from + places.start..self.now.from + places.end;
        sized!(self.now, B => out.extend(places.map(|i| self.now.entry::<B>(i))));
    }

    /// Appends the keys of the entries at `places` to `out` and hands each entry over, with where its key
    /// stands there, until `take` refuses one, whose key does not stay: returns the place of that one.
    ///
    /// # Panics
    /// If there is no entry at one of the places.
    #[inline]
    pub fn append_entries(
        &self,
        places: impl Iterator<Item = usize>,
        out: &mut Vec<u8>,
        take: impl FnMut(LeafEntry, Range<usize>) -> bool,
    ) -> Option<usize> {
        let places = places.inspect(|i| self.check(*i));
        sized!(self.now, B => self.now.append_entries::<B>(places, out, take))
    }

    /// Keys and entries in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], LeafEntry)> + ExactSizeIterator + '_ {
        (0..self.len()).map(|i| (self.key(i), self.entry(i)))
    }

    /// The first entry that is not below `key`.
    #[must_use]
    pub fn position(&self, key: &[u8]) -> usize {
        self.find(key).0
    }

    /// The first entry that is not below `key`, and whether it is the key's.
    #[must_use]
    pub fn find(&self, key: &[u8]) -> (usize, bool) {
        let (at, present) = self.now.find(key);
        let seen = at.clamp(self.now.from, self.now.to);
        (seen - self.now.from, present && seen == at && at < self.now.to)
    }

    /// The leaf's keys are at or above this.
    #[must_use]
    pub fn low(&self) -> &[u8] {
        &self.now.low
    }

    /// The leaf's keys are below this; `None` for plus infinity.
    #[must_use]
    pub fn high(&self) -> Option<&[u8]> {
        (!self.now.is_last).then_some(&self.now.high)
    }

    /// The next leaf, perhaps another meganode's.
    #[must_use]
    pub fn right(&self) -> Pointer {
        self.now.right
    }

    /// The leaf.
    #[must_use]
    pub fn node(&self) -> NodeIndex {
        self.now.node
    }

    /// Which leaf it is of, and as of which of its changes.
    #[must_use]
    pub fn version(&self) -> LeafVersion {
        LeafVersion { node: self.now.node, version: self.now.version }
    }

    /// CSN of the leaf's last change.
    #[must_use]
    pub fn csn_changed(&self) -> Csn {
        self.now.csn_changed
    }

    /// CSN of the last removal of what was in the leaf's range.
    #[must_use]
    pub fn csn_removed(&self) -> Csn {
        self.now.csn_removed
    }

    /// Fills the snapshot from a copied leaf.
    pub(crate) fn fill<W: Words + ?Sized, const B: usize>(&mut self, view: &View<'_, W, B>, node: NodeIndex) {
        self.next.fill(view, &view.header(), node);
        std::mem::swap(&mut self.now, &mut self.next);
    }

    /// Sees the leaf from a key on, which is in its range.
    pub(crate) fn begin_at(&mut self, key: &[u8]) {
        if *self.now.low != *key {
            self.now.from = self.now.find(key).0.min(self.now.to);
            self.now.low.clear();
            self.now.low.extend_from_slice(key);
            self.now.keys.take();
        }
    }

    /// Sees the leaf up to a key, which is in its range or ends it.
    pub(crate) fn end_at(&mut self, key: &[u8]) {
        if self.now.is_last || *self.now.high != *key {
            self.now.to = self.now.find(key).0.max(self.now.from);
            self.now.high.clear();
            self.now.high.extend_from_slice(key);
            self.now.is_last = false;
            self.now.keys.take();
        }
    }

    #[inline]
    fn check(&self, i: usize) {
        if i >= self.len() {
            no_entry(self.len(), i);
        }
    }
}

/// Apart from the check, which would keep both numbers in memory for the text.
#[cold]
#[inline(never)]
fn no_entry(entries: usize, i: usize) -> ! {
    panic!("a leaf of {entries} entries has no entry {i}");
}

impl Content {
    fn node_bytes(&self) -> usize {
        self.node_bytes
    }

    #[inline(always)]
    fn view<const B: usize>(&self) -> View<'_, Copied, B> {
        View::new(&self.words, 0)
    }

    pub(crate) fn fill<W: Words + ?Sized, const B: usize>(
        &mut self,
        view: &View<'_, W, B>,
        header: &Header,
        node: NodeIndex,
    ) {
        self.words.0.resize((B + SPARE_BYTES) / WORD_BYTES, [0; WORD_BYTES]);
        let words = B / WORD_BYTES;
        let arrays_end = header.arrays_end().div_ceil(WORD_BYTES).min(words);
        // Between arrays and heap there is nothing.
        for range in [0..arrays_end, (header.heap_low / WORD_BYTES).clamp(arrays_end, words)..words] {
            view.copy(range.start, &mut self.words.0[range]);
        }
        (self.node_bytes, self.header, self.node) = (B, *header, node);
        // Still the one that was seen before, or what was read since is thrown away.
        self.version = view.word(0);
        (self.from, self.to) = (0, header.count);
        (self.right, self.before) = (view.right(), None);
        self.csn_changed = view.csn_changed();
        self.csn_removed = view.csn_removed();
        self.low.resize(header.low_len.min(key_max(B)), 0);
        view.low(header, &mut self.low);
        self.high.resize(header.high_bytes().unwrap_or(0).min(key_max(B)), 0);
        self.is_last = view.high(header, &mut self.high).is_none();
        self.keys.take();
    }

    /// The first of all entries that is not below `key`, and whether it is the key's.
    fn find(&self, key: &[u8]) -> (usize, bool) {
        if self.header.count == 0 {
            return (0, false);
        }
        let probe = Probe::new(key);
        sized!(self, B => {
            let view = self.view::<B>();
            match view.side(&self.header, &probe) {
                Side::Below => (0, false),
                Side::Here(window) => {
                    let (at, cell) = view.find(&self.header, &probe, window);
                    (at, cell.is_some())
                }
                Side::Right => (self.header.count, false),
            }
        })
    }

    /// Slot of entry `i`.
    #[inline(always)]
    fn slot<const B: usize>(&self, bytes: &[u8], i: usize) -> u16 {
        // Of a damaged leaf, arrays may be said to be anywhere.
        let slot = bytes[(self.header.slots() + SLOT_BYTES * i) % B..].first_chunk();
        slot.map_or(0, |slot| u16::from_le_bytes(*slot))
    }

    #[inline]
    fn entry<const B: usize>(&self, i: usize) -> LeafEntry {
        let bytes = self.words.0.as_flattened();
        let offset = usize::from(self.slot::<B>(bytes, i) & SLOT_OFFSET_MASK) % B;
        bytes[offset..].first_chunk().map_or_else(LeafEntry::default, LeafEntry::from_bytes)
    }

    /// Prefix and suffix of the key of entry `i`, in bytes, and where in the node the suffix goes on behind
    /// the head.
    #[inline(always)]
    fn key_parts<const B: usize>(&self, bytes: &[u8], i: usize) -> (usize, usize, usize) {
        let slot = self.slot::<B>(bytes, i);
        let cell = usize::from(slot & SLOT_OFFSET_MASK) % B + LEAF_VALUE_BYTES;
        let (suffix_len, rest) = match usize::from(slot >> SLOT_OFFSET_BITS) {
            CODE_LONG if length_bytes(B) == 1 => (CODE_LONG + usize::from(bytes[cell]), cell + 1),
            CODE_LONG => {
                (CODE_LONG + usize::from(bytes[cell]) + (usize::from(bytes[cell + 1]) << 8), cell + 2)
            }
            len => (len, cell),
        };
        (self.header.prefix.min(self.low.len()), suffix_len.min(key_max(B)), rest)
    }

    #[inline]
    fn key_len<const B: usize>(&self, i: usize) -> usize {
        let (prefix, suffix_len, _) = self.key_parts::<B>(self.words.0.as_flattened(), i);
        prefix + suffix_len
    }

    #[inline(always)]
    fn append_entries<const B: usize>(
        &self,
        places: impl Iterator<Item = usize>,
        out: &mut Vec<u8>,
        mut take: impl FnMut(LeafEntry, Range<usize>) -> bool,
    ) -> Option<usize> {
        for place in places {
            let (i, begin) = (self.from + place, out.len());
            let entry = self.entry::<B>(i);
            self.append_key::<B>(i, out);
            if !take(entry, begin..out.len()) {
                out.truncate(begin);
                return Some(place);
            }
        }
        None
    }

    #[inline]
    fn append_key<const B: usize>(&self, i: usize, out: &mut Vec<u8>) {
        let bytes = self.words.0.as_flattened();
        let (prefix, suffix_len, rest) = self.key_parts::<B>(bytes, i);
        let rest = &bytes[rest..];
        let rest_len = suffix_len.saturating_sub(HEAD_BYTES);
        let head = bytes[(self.header.heads() + HEAD_BYTES * i) % B..].first_chunk();
        let head = head.map_or(0, |head| u32::from_le_bytes(*head)).swap_bytes();
        out.reserve(prefix + HEAD_BYTES + rest_len.max(WIDE_BYTES));
        let len = out.len() + prefix;
        match bytes[FENCES..].first_chunk::<WORD_BYTES>() {
            // All prefixes that are common, by one store.
            Some(begin) if prefix <= WORD_BYTES => {
                out.extend_from_slice(begin);
                out.truncate(len);
            }
            _ => out.extend_from_slice(&self.low[..prefix]),
        }
        out.extend_from_slice(&head.to_le_bytes());
        match rest.first_chunk::<WIDE_BYTES>() {
            Some(wide) if rest_len <= WIDE_BYTES => out.extend_from_slice(wide),
            _ => out.extend_from_slice(&rest[..rest_len.min(rest.len())]),
        }
        // Of a damaged leaf, a key may be said to be longer than the leaf.
        out.resize(len + suffix_len, 0);
    }
}
