//! Composing a tree node from entries in key order: split halves, compacted nodes, bulk builds.

use cell_terms::{Csn, Pointer, Words};

use crate::geometry::NodeIndex;
use crate::layout::{
    CHILD_BYTES, CODE_LONG, COUNT, CSN_CHANGED, CSN_REMOVED, FENCES, GARBAGE, HEAD_BYTES, HEADS, HEAP_LOW,
    HIGH_INFINITE, HIGH_LEN, HINT, KIND, LEAF_VALUE_BYTES, LOW_LEN, PREFIX_LEN, RIGHT, SLOT_BYTES,
    SLOT_OFFSET_BITS, WORD_BYTES, cell_bytes, common_prefix, fixed_bytes, heads_offset, heap_end, kind_of,
    length_bytes, low_u16,
};
use crate::page::Page;
use crate::role::MeganodeRole;
use crate::state::TreeNodeState;
use crate::view::{Cell, Header, LeafEntry, View};

/// Takes the suffix of any key: the longest is `key_max(4096)`.
pub(crate) const SUFFIX_BUFFER: usize = 800;

const _: () = assert!(SUFFIX_BUFFER >= crate::layout::key_max(4096));

/// What an entry leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Leaf(LeafEntry),
    Child(NodeIndex),
}

/// A node without its entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) role: MeganodeRole,
    pub(crate) level: u8,
    pub(crate) state: TreeNodeState,
    pub(crate) low: &'a [u8],
    /// `None` for plus infinity.
    pub(crate) high: Option<&'a [u8]>,
    pub(crate) right: Pointer,
    pub(crate) csn_changed: Csn,
    pub(crate) csn_removed: Csn,
}

impl<'a> Frame<'a> {
    /// Of a node that is written anew, readable at once; its change gets a CSN when it is logged.
    pub(crate) fn anew(
        (role, level): (MeganodeRole, u8),
        low: &'a [u8],
        high: Option<&'a [u8]>,
        csn_removed: Csn,
    ) -> Frame<'a> {
        let (state, right, csn_changed) = (TreeNodeState::Valid, Pointer::NULL, Csn::ZERO);
        Frame { role, level, state, low, high, right, csn_changed, csn_removed }
    }

    pub(crate) fn prefix(&self) -> usize {
        self.high.map_or(0, |high| common_prefix(self.low, high))
    }

    pub(crate) fn heads(&self) -> usize {
        heads_offset(self.low.len(), self.high.map_or(0, |high| high.len() - self.prefix()))
    }

    pub(crate) fn is_inner(&self) -> bool {
        self.level > 0
    }

    /// Bytes for entries.
    pub(crate) fn room<const B: usize>(&self) -> usize {
        heap_end(B).saturating_sub(self.heads())
    }
}

/// A node being composed: entries are pushed in key order, as many as were announced.
pub(crate) struct Composer<const B: usize> {
    page: Page<B>,
    inner: bool,
    heads: usize,
    prefix: usize,
    count: usize,
    pushed: usize,
    heap_low: usize,
}

impl<const B: usize> Composer<B> {
    /// Begins a node of `count` entries; `None` if frame and arrays alone do not fit.
    pub(crate) fn begin(frame: &Frame<'_>, count: usize) -> Option<Composer<B>> {
        let (prefix, heads, inner) = (frame.prefix(), frame.heads(), frame.is_inner());
        if heads + count * fixed_bytes(inner) > heap_end(B) {
            return None;
        }
        let mut page = Page::<B>::zeroed();
        page.set_word(CSN_CHANGED / WORD_BYTES, frame.csn_changed.0);
        page.set_word(CSN_REMOVED / WORD_BYTES, frame.csn_removed.0);
        page.set_word(RIGHT / WORD_BYTES, frame.right.0);
        let bytes = page.bytes_mut();
        bytes[KIND] = frame.state.mark(kind_of(frame.role, frame.level));
        bytes[HEADS] = low_u16(heads / WORD_BYTES).to_le_bytes()[0];
        bytes[FENCES..FENCES + frame.low.len()].copy_from_slice(frame.low);
        let stored = frame.high.map_or(&[][..], |high| &high[prefix..]);
        bytes[FENCES + frame.low.len()..][..stored.len()].copy_from_slice(stored);
        page.set_u16(COUNT, count);
        page.set_u16(PREFIX_LEN, prefix);
        page.set_u16(LOW_LEN, frame.low.len());
        page.set_u16(HIGH_LEN, frame.high.map_or(HIGH_INFINITE, <[u8]>::len));
        page.set_u16(GARBAGE, 0);
        page.set_u16(HINT, 0);
        Some(Composer { page, inner, heads, prefix, count, pushed: 0, heap_low: heap_end(B) })
    }

    /// Length of what all keys begin with; pushed suffixes begin behind it.
    pub(crate) fn prefix(&self) -> usize {
        self.prefix
    }

    /// Whether the next entry is the first child of an inner node, which stands for everything from the low
    /// fence.
    pub(crate) fn wants_first_child(&self) -> bool {
        self.inner && self.pushed == 0
    }

    /// Adds the next entry; `None` if its cell does not fit.
    ///
    /// # Panics
    /// If more are pushed than were announced.
    pub(crate) fn push(&mut self, suffix: &[u8], value: Value) -> Option<()> {
        assert!(self.pushed < self.count, "more entries than announced");
        let arrays_end = self.heads + self.count * fixed_bytes(self.inner);
        let cell = cell_bytes(B, self.inner, suffix.len());
        let offset = self.heap_low.checked_sub(cell).filter(|offset| *offset >= arrays_end)?;
        let i = self.pushed;
        self.page.set_u32(self.heads + HEAD_BYTES * i, head_of(suffix));
        let mut slots = self.heads + HEAD_BYTES * self.count;
        if let Value::Child(child) = value {
            self.page.set_u32(slots + CHILD_BYTES * i, child.0);
        }
        if self.inner {
            slots += CHILD_BYTES * self.count;
        }
        self.page.set_u16(slots + SLOT_BYTES * i, slot_of(offset, cell, suffix.len()));
        write_cell::<B>(&mut self.page.bytes_mut()[offset..], suffix, value);
        self.heap_low = offset;
        self.pushed += 1;
        Some(())
    }

    /// Adds entries of another node whose prefix is not longer than this one's.
    pub(crate) fn push_from<W: Words + ?Sized>(
        &mut self,
        view: &View<'_, W, B>,
        header: &Header,
        entries: std::ops::Range<usize>,
    ) -> Option<()> {
        let mut buffer = [0; SUFFIX_BUFFER];
        for i in entries {
            let len = view.suffix(header, i, &mut buffer);
            let shorter = self.prefix - header.prefix;
            let from = if self.wants_first_child() { len } else { shorter.min(len) };
            self.push(&buffer[from..len], value_of(view, header, i))?;
        }
        Some(())
    }

    /// Adds entries of another leaf with this one's prefix: behind it their suffixes are the same, so heads
    /// and cells are taken as they are. `None` if a cell does not fit, or is not in the other leaf.
    ///
    /// # Panics
    /// If more are added than were announced.
    pub(crate) fn push_cells(
        &mut self,
        from: &Page<B>,
        header: &Header,
        entries: std::ops::Range<usize>,
    ) -> Option<()> {
        assert!(!self.inner && self.prefix == header.prefix, "the suffixes are others");
        assert!(self.pushed + entries.len() <= self.count, "more entries than announced");
        let view = from.view();
        let arrays_end = self.heads + self.count * fixed_bytes(false);
        let slots = self.heads + HEAD_BYTES * self.count;
        for i in entries {
            let Cell { offset, suffix_len, .. } = view.cell(header, i);
            let cell = cell_bytes(B, false, suffix_len);
            let bytes = from.bytes().get(offset..offset + cell)?;
            let to = self.heap_low.checked_sub(cell).filter(|to| *to >= arrays_end)?;
            self.page.bytes_mut()[to..to + cell].copy_from_slice(bytes);
            self.page.set_u32(self.heads + HEAD_BYTES * self.pushed, view.head(header.heads(), i));
            self.page.set_u16(slots + SLOT_BYTES * self.pushed, slot_of(to, cell, suffix_len));
            self.heap_low = to;
            self.pushed += 1;
        }
        Some(())
    }

    /// The node.
    ///
    /// # Panics
    /// If fewer entries were pushed than were announced.
    pub(crate) fn finish(mut self) -> Page<B> {
        assert!(self.pushed == self.count, "fewer entries than announced");
        self.page.set_u16(HEAP_LOW, self.heap_low);
        self.page
    }
}

/// What entry `i` leads to.
#[inline]
pub(crate) fn value_of<W: Words + ?Sized, const B: usize>(
    view: &View<'_, W, B>,
    header: &Header,
    i: usize,
) -> Value {
    if header.is_inner() {
        Value::Child(view.child(header, i))
    } else {
        Value::Leaf(view.leaf_entry(&view.cell(header, i)))
    }
}

/// The first four bytes of a suffix as a number that sorts like them, zero padded.
#[inline]
pub(crate) fn head_of(suffix: &[u8]) -> u32 {
    match suffix.first_chunk::<HEAD_BYTES>() {
        Some(chunk) => u32::from_be_bytes(*chunk),
        None => suffix.iter().zip(0u32..4).fold(0, |head, (byte, i)| head | u32::from(*byte) << (24 - 8 * i)),
    }
}

/// The slot of an entry whose cell of `cell` bytes begins at `offset`.
#[inline]
pub(crate) fn slot_of(offset: usize, cell: usize, suffix_len: usize) -> usize {
    let offset = if cell == 0 { 0 } else { offset };
    suffix_len.min(CODE_LONG) << SLOT_OFFSET_BITS | offset
}

/// Writes an entry's cell to `out`, which has its size.
#[inline]
pub(crate) fn write_cell<const B: usize>(out: &mut [u8], suffix: &[u8], value: Value) {
    let mut at = 0;
    if let Value::Leaf(entry) = value {
        out[..LEAF_VALUE_BYTES].copy_from_slice(&entry.to_bytes());
        at += LEAF_VALUE_BYTES;
    }
    if suffix.len() >= CODE_LONG {
        let more = low_u16(suffix.len() - CODE_LONG).to_le_bytes();
        out[at..at + length_bytes(B)].copy_from_slice(&more[..length_bytes(B)]);
        at += length_bytes(B);
    }
    if let Some(rest) = suffix.get(HEAD_BYTES..) {
        out[at..at + rest.len()].copy_from_slice(rest);
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::ExtentOffset;

    use super::*;

    type Push = fn(&mut Composer<1024>, &Page<1024>, &Header) -> Option<()>;

    #[test]
    fn cells_as_they_are_make_the_node_that_entries_put_together_make() {
        let frame = Frame::anew((MeganodeRole::Data, 0), b"", None, Csn::ZERO);
        let mut page = Composer::<1024>::begin(&frame, 0).unwrap().finish();
        for i in 0..14u8 {
            let key = vec![b'a' + i * 5 % 14; 1 + usize::from(i) * 3];
            let entry = LeafEntry { offset: ExtentOffset(i.into()), value_len: 7, crc: u64::MAX - 1 };
            page.put(&key, &entry).unwrap();
        }
        let header = page.view().header();
        let composed = |push: Push| {
            let mut composer = Composer::begin(&frame, 10).unwrap();
            push(&mut composer, &page, &header).unwrap();
            composer.finish()
        };
        let as_they_are = composed(|composer, page, header| composer.push_cells(page, header, 2..12));
        let anew = composed(|composer, page, header| composer.push_from(&page.view(), header, 2..12));
        assert_eq!((as_they_are.view().header().count, header.count), (10, 14));
        assert!(as_they_are.bytes() == anew.bytes());
    }
}
