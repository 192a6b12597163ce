//! Changing a tree node's copy. Every edit depends on nothing but the node and the change, so that replay makes the
//! same bytes.

use cell_terms::{Csn, Pointer};

use crate::compose::{Composer, Frame, SUFFIX_BUFFER, Value, head_of, slot_of, write_cell, write_leaf_entry};
use crate::fence::Side;
use crate::geometry::NodeIndex;
use crate::hint;
use crate::layout::{
    CHILD_BYTES, COUNT, CSN_CHANGED, CSN_REMOVED, FENCES, FLAG_VALID, GARBAGE, HEAD_BYTES, HEAP_LOW, HINT,
    KIND, LEAF_VALUE_BYTES, SLOT_BYTES, WORD_BYTES, cell_bytes, fixed_bytes, heap_end,
};
use crate::page::{Dirty, Page};
use crate::probe::Probe;
use crate::view::{Header, LeafEntry, View};

/// Why a node cannot take a change. Live, it is our own broken promise; in replay, a damaged log or image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The entry does not fit.
    #[error("the tree node has no room for the entry")]
    NoRoom,
    /// The key is outside of the node's fences.
    #[error("the key is outside of the tree node's fences")]
    OutsideFences,
    /// There is no such key to remove.
    #[error("the tree node does not have the key")]
    KeyMissing,
    /// The separator is there already.
    #[error("the tree node has the separator already")]
    SeparatorPresent,
    /// A leaf's change for an inner node, or the other way round.
    #[error("the change is for a tree node of another kind")]
    WrongKind,
}

impl<const B: usize> Page<B> {
    #[inline(always)]
    pub(crate) fn view(&self) -> View<'_, Page<B>, B> {
        View::new(self, 0)
    }

    #[inline]
    pub(crate) fn stamp_changed(&mut self, csn: Csn) {
        self.set_word(CSN_CHANGED / WORD_BYTES, csn.0);
    }

    /// Adds a leaf entry, or replaces what the key had.
    pub(crate) fn put(&mut self, key: &[u8], entry: &LeafEntry) -> Result<Dirty, EditError> {
        let header = self.view().header();
        let probe = Probe::new(key);
        if header.is_inner() {
            return Err(EditError::WrongKind);
        }
        let Side::Here(window) = self.view().side(&header, &probe) else {
            return Err(EditError::OutsideFences);
        };
        match self.view().find(&header, &probe, window) {
            (_, Some(cell)) => {
                write_leaf_entry(self, cell.offset, entry);
                let mut dirty = Dirty::NONE;
                dirty.mark(0, FENCES);
                dirty.mark(cell.offset, cell.offset + LEAF_VALUE_BYTES);
                Ok(dirty)
            }
            (at, None) => self.insert(&header, at, &key[header.prefix..], Value::Leaf(*entry)),
        }
    }

    /// Adds a child to an inner node: keys from the separator on lead to it.
    pub(crate) fn link(&mut self, separator: &[u8], child: NodeIndex) -> Result<Dirty, EditError> {
        let header = self.view().header();
        let probe = Probe::new(separator);
        if !header.is_inner() {
            return Err(EditError::WrongKind);
        }
        let Side::Here(window) = self.view().side(&header, &probe) else {
            return Err(EditError::OutsideFences);
        };
        match self.view().find(&header, &probe, window) {
            (_, Some(_)) | (0, None) => Err(EditError::SeparatorPresent),
            (at, None) => self.insert(&header, at, &separator[header.prefix..], Value::Child(child)),
        }
    }

    /// Takes a key out of a leaf; stamps the CSN of the removal.
    pub(crate) fn remove(&mut self, key: &[u8], csn: Csn) -> Result<Dirty, EditError> {
        let header = self.view().header();
        let probe = Probe::new(key);
        if header.is_inner() {
            return Err(EditError::WrongKind);
        }
        let Side::Here(window) = self.view().side(&header, &probe) else {
            return Err(EditError::OutsideFences);
        };
        let (at, Some(cell)) = self.view().find(&header, &probe, window) else {
            return Err(EditError::KeyMissing);
        };
        let (heads, slots, end) = (header.heads(), header.slots(), header.arrays_end());
        let bytes = self.bytes_mut();
        bytes.copy_within(heads + HEAD_BYTES * (at + 1)..slots + SLOT_BYTES * at, heads + HEAD_BYTES * at);
        let slots_new = slots - HEAD_BYTES;
        bytes.copy_within(slots + SLOT_BYTES * (at + 1)..end, slots_new + SLOT_BYTES * at);
        let freed = cell_bytes(B, false, cell.suffix_len);
        if header.count == 1 {
            self.set_u16(HEAP_LOW, heap_end(B));
            self.set_u16(GARBAGE, 0);
        } else if cell.offset == header.heap_low {
            self.set_u16(HEAP_LOW, header.heap_low + freed);
        } else {
            self.set_u16(GARBAGE, header.garbage + freed);
        }
        self.set_u16(COUNT, header.count - 1);
        self.set_u16(HINT, 0);
        self.set_word(CSN_REMOVED / WORD_BYTES, csn.0);
        let mut dirty = Dirty::NONE;
        dirty.mark(0, FENCES);
        dirty.mark(heads + HEAD_BYTES * at, end);
        Ok(dirty)
    }

    /// Lowers the high fence and sets the right link; entries at or above the fence go.
    pub(crate) fn cut(&mut self, high: &[u8], right: Pointer) -> Result<Dirty, EditError> {
        let view = self.view();
        let header = view.header();
        let probe = Probe::new(high);
        let Side::Here(window) = view.side(&header, &probe) else {
            return Err(EditError::OutsideFences);
        };
        let (count, _) = view.find(&header, &probe, window);
        let mut low = [0; SUFFIX_BUFFER];
        let low_len = view.low(&header, &mut low);
        if low_len == high.len() && low[..low_len] == *high {
            return Err(EditError::OutsideFences);
        }
        let frame = Frame {
            level: header.level(),
            valid: header.is_valid(),
            low: &low[..low_len],
            high: Some(high),
            right,
            csn_changed: view.csn_changed(),
            csn_removed: view.csn_removed(),
        };
        *self = self.recompose(&header, &frame, count).ok_or(EditError::NoRoom)?;
        Ok(Dirty::all::<B>())
    }

    /// Marks a node readable or not.
    pub(crate) fn mark(&mut self, valid: bool) -> Dirty {
        let kind = &mut self.bytes_mut()[KIND];
        *kind = if valid { *kind | FLAG_VALID } else { *kind & !FLAG_VALID };
        let mut dirty = Dirty::NONE;
        dirty.mark(0, FENCES);
        dirty
    }

    /// Writes the heap anew, without garbage.
    fn compact(&mut self, header: &Header) -> Result<(), EditError> {
        let view = self.view();
        let (mut low, mut high) = ([0; SUFFIX_BUFFER], [0; SUFFIX_BUFFER]);
        let low_len = view.low(header, &mut low);
        let high_len = view.high(header, &mut high);
        let frame = Frame {
            level: header.level(),
            valid: header.is_valid(),
            low: &low[..low_len],
            high: high_len.map(|len| &high[..len]),
            right: view.right(),
            csn_changed: view.csn_changed(),
            csn_removed: view.csn_removed(),
        };
        let mut page = self.recompose(header, &frame, header.count).ok_or(EditError::NoRoom)?;
        page.set_u16(HINT, header.hint);
        *self = page;
        Ok(())
    }

    fn recompose(&self, header: &Header, frame: &Frame<'_>, count: usize) -> Option<Page<B>> {
        let mut composer = Composer::begin(frame, count)?;
        composer.push_from(&self.view(), header, 0..count)?;
        Some(composer.finish())
    }

    fn insert(
        &mut self,
        header: &Header,
        at: usize,
        suffix: &[u8],
        value: Value,
    ) -> Result<Dirty, EditError> {
        let inner = header.is_inner();
        let (fixed, cell) = (fixed_bytes(inner), cell_bytes(B, inner, suffix.len()));
        if fixed + cell <= header.free() {
            return Ok(self.insert_in_place(header, at, suffix, value));
        }
        if fixed + cell > header.free() + header.garbage {
            return Err(EditError::NoRoom);
        }
        self.compact(header)?;
        let header = self.view().header();
        if fixed + cell > header.free() {
            return Err(EditError::NoRoom);
        }
        self.insert_in_place(&header, at, suffix, value);
        Ok(Dirty::all::<B>())
    }

    /// Makes room at `at` in the arrays, from the last one to the first, and writes the entry.
    fn insert_in_place(&mut self, header: &Header, at: usize, suffix: &[u8], value: Value) -> Dirty {
        let (heads, children, slots, end) =
            (header.heads(), header.children(), header.slots(), header.arrays_end());
        let inner = header.is_inner();
        let cell = cell_bytes(B, inner, suffix.len());
        let offset = header.heap_low - cell;
        let slots_new = slots + HEAD_BYTES + if inner { CHILD_BYTES } else { 0 };
        let slot_at = slots + SLOT_BYTES * at;
        let slot_new = slots_new + SLOT_BYTES * at;
        let bytes = self.bytes_mut();
        bytes.copy_within(slot_at..end, slot_new + SLOT_BYTES);
        bytes.copy_within(slots..slot_at, slots_new);
        if inner {
            let child_at = children + CHILD_BYTES * at;
            bytes.copy_within(child_at..slots, child_at + HEAD_BYTES + CHILD_BYTES);
            bytes.copy_within(children..child_at, children + HEAD_BYTES);
        }
        let head_at = heads + HEAD_BYTES * at;
        bytes.copy_within(head_at..children, head_at + HEAD_BYTES);
        self.set_u32(head_at, head_of(suffix));
        if let Value::Child(child) = value {
            self.set_u32(children + HEAD_BYTES + CHILD_BYTES * at, child.0);
        }
        self.set_u16(slot_new, slot_of(offset, cell, suffix.len()));
        write_cell(self, offset, suffix, value);
        self.set_u16(COUNT, header.count + 1);
        self.set_u16(HEAP_LOW, offset);
        self.set_u16(HINT, hint::after_insert(header.hint, at));
        let mut dirty = Dirty::NONE;
        dirty.mark(0, FENCES);
        dirty.mark(head_at, end + fixed_bytes(inner));
        dirty.mark(offset, header.heap_low);
        dirty
    }
}
