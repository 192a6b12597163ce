//! Finding a key in one node: its child, its entry, or its place.
//!
//! Heads decide nearly always, so the common ways read heads and one cell; keys whose heads are equal are
//! distinguished off the common way.

use std::cmp::Ordering;
use std::hint::select_unpredictable;

use cell_terms::{Pointer, Words};

use crate::fence::Side;
use crate::geometry::NodeIndex;
use crate::layout::{HEAD_BYTES, SLOT_BYTES, SLOT_OFFSET_MASK, WORD_BYTES, low_u32};
use crate::mutant::{self, Mutant};
use crate::probe::{Probe, upper};
use crate::view::{Cell, Header, LeafEntry, View};

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
    Hit(LeafEntry),
    /// It is not in the tree.
    Miss,
    /// It is at or above the high fence.
    Right(Pointer),
    /// The leaf is not the one that was meant.
    Restart,
}

impl<W: Words + ?Sized, const B: usize> View<'_, W, B> {
    /// How many heads are below `head`, and the word that has the head behind them. Without branches that
    /// depend on keys: halves the words, of two heads each, by their upper head.
    #[inline(always)]
    fn heads_below(&self, header: &Header, head: u32) -> (usize, u64) {
        let base = header.heads() / WORD_BYTES;
        let mut at = 0;
        let mut len = header.count / 2;
        while len > 1 {
            let half = len / 2;
            at += select_unpredictable(upper(self.word(base + at + half - 1)) < head, half, 0);
            len -= half;
        }
        at += usize::from(len == 1 && upper(self.word(base + at)) < head);
        let word = self.word(base + at);
        (2 * at + usize::from(2 * at < header.count && low_u32(word) < head), word)
    }

    /// How many heads are not above `head`.
    fn heads_upto(&self, header: &Header, head: u32) -> usize {
        match head.checked_add(1) {
            Some(next) => self.heads_below(header, next).0,
            None => header.count,
        }
    }

    /// Where a search goes from an inner node. A key below the low fence goes to the first child: it cannot
    /// be there either, and the leaf will say so.
    #[inline(always)]
    pub(crate) fn hop(&self, header: &Header, key: &Probe<'_>) -> Hop {
        if self.begins_with_prefix(header.prefix, key) {
            let window = key.window(header.prefix);
            if self.is_below_high(header, window) {
                let head = upper(window);
                let (below, word) = self.heads_below(header, head);
                if low_u32(word >> (32 * (below & 1))) != head {
                    // The first entry's head is zero: only torn words can make this wrap.
                    return Hop::Child(self.child(header, below.saturating_sub(1)));
                }
            }
        }
        self.hop_by_bytes(key)
    }

    #[cold]
    #[inline(never)]
    fn hop_by_bytes(&self, key: &Probe<'_>) -> Hop {
        let header = self.header();
        match self.side_by_bytes(key) {
            Side::Here(window) => Hop::Child(self.child(&header, self.route(&header, key, window))),
            Side::Right => Hop::Right(self.right()),
            Side::Below => Hop::Restart,
        }
    }

    /// The entry of an inner node whose child covers the key: the last that is not above it.
    pub(crate) fn route(&self, header: &Header, key: &Probe<'_>, window: u64) -> usize {
        let (at, present) = self.find(header, key, window);
        if present.is_some() { at } else { at.saturating_sub(1) }
    }

    /// The entry of an inner node whose child covers the keys just below the bound, which is above the low
    /// fence.
    pub(crate) fn route_below(&self, header: &Header, bound: &Probe<'_>, window: u64) -> usize {
        let (at, _) = self.find(header, bound, window);
        at.saturating_sub(1)
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
            Candidate::Several => self.lookup_among_equal_heads(key),
        }
    }

    /// What a leaf says about a key that it does not have.
    #[inline(always)]
    pub(crate) fn miss(&self, header: &Header, key: &Probe<'_>) -> Lookup {
        if mutant::planted(Mutant::FencesIgnored) {
            return Lookup::Miss;
        }
        match self.side(header, key) {
            Side::Here(_) => Lookup::Miss,
            Side::Right => Lookup::Right(self.right()),
            Side::Below => Lookup::Restart,
        }
    }

    /// The one entry of a leaf that can be the key's, by its head.
    #[inline(always)]
    pub(crate) fn candidate(&self, header: &Header, key: &Probe<'_>) -> Candidate {
        if !self.begins_with_prefix(header.prefix, key) {
            return Candidate::None;
        }
        let head = upper(key.window(header.prefix));
        let (at, word) = self.heads_below(header, head);
        if at >= header.count || low_u32(word >> (32 * (at & 1))) != head {
            Candidate::None
        } else if at + 1 < header.count && self.head(header.heads(), at + 1) == head {
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
    pub(crate) fn lookup_among_equal_heads(&self, key: &Probe<'_>) -> Lookup {
        let header = self.header();
        match self.find(&header, key, key.window(header.prefix)).1 {
            Some(cell) => Lookup::Hit(self.leaf_entry(&cell)),
            None => self.miss(&header, key),
        }
    }

    /// The first entry that is not below the key, and whether it is the key. The key is within the fences and
    /// `window` is what follows the prefix.
    #[inline(always)]
    pub(crate) fn find(&self, header: &Header, key: &Probe<'_>, window: u64) -> (usize, Option<Cell>) {
        let head = upper(window);
        let (from, word) = self.heads_below(header, head);
        let same = low_u32(word >> (32 * (from & 1))) == head;
        if !same || from >= header.count || key.bytes.len() < header.prefix {
            return (from, None);
        }
        if from + 1 >= header.count || self.head(header.heads(), from + 1) != head {
            let cell = self.cell(header, from);
            if self.is_key(&cell, header.prefix, key) {
                return (from, Some(cell));
            }
        }
        self.find_from(header, key, head, from)
    }

    /// The first entry from `from` on, which has the key's head, that is not below the key, and whether it is
    /// the key.
    #[inline(never)]
    fn find_from(&self, header: &Header, key: &Probe<'_>, head: u32, from: usize) -> (usize, Option<Cell>) {
        let (mut from, mut to) = (from, self.heads_upto(header, head));
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

    /// Whether an entry whose head is the key's is the key.
    #[inline(always)]
    fn is_key(&self, cell: &Cell, prefix: usize, key: &Probe<'_>) -> bool {
        let key_len = key.bytes.len() - prefix;
        cell.suffix_len == key_len
            && (key_len <= HEAD_BYTES || self.equals(cell.rest, key, prefix + HEAD_BYTES))
    }

    /// Compares entry `i`'s suffix with a key's, their heads being equal.
    fn compare_behind_head(&self, header: &Header, i: usize, key: &Probe<'_>) -> Ordering {
        let cell = self.cell(header, i);
        let key_len = key.bytes.len() - header.prefix;
        if cell.suffix_len <= HEAD_BYTES || key_len <= HEAD_BYTES {
            // One's bytes are zeros at the other's end, or there are no more: the shorter is the other's
            // beginning.
            return cell.suffix_len.cmp(&key_len);
        }
        self.compare(cell.rest, cell.suffix_len - HEAD_BYTES, key, header.prefix + HEAD_BYTES)
    }
}
