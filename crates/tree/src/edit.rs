//! Changing a tree node's copy. Every edit depends on nothing but the node and the change, so that replay
//! makes the same bytes.

use std::cmp::Ordering;

use cell_terms::{Csn, Pointer, Words};

use crate::compose::{Composer, Frame, SUFFIX_BUFFER, Value, head_of, slot_of, write_cell};
use crate::fence::Side;
use crate::geometry::NodeIndex;
use crate::hint;
use crate::layout::key_max;
use crate::layout::{
    CHILD_BYTES, COUNT, CSN_CHANGED, CSN_REMOVED, FENCES, GARBAGE, HEAD_BYTES, HEAP_LOW, HIGH_INFINITE, HINT,
    KIND, LEAF_VALUE_BYTES, RIGHT, SLOT_BYTES, WORD_BYTES, cell_bytes, fixed_bytes, heads_offset, heap_end,
    low_u16,
};
use crate::page::{Dirty, Page};
use crate::probe::Probe;
use crate::state::TreeNodeState;
use crate::view::{Cell, Header, LeafEntry, View};

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
    /// What the node holds breaks the rules of the layout.
    #[error("the tree node is damaged")]
    Damaged,
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
        let header = sound_header(&self.view())?;
        let probe = Probe::new(key);
        if header.is_inner() {
            return Err(EditError::WrongKind);
        }
        let Side::Here(window) = self.view().side(&header, &probe) else {
            return Err(EditError::OutsideFences);
        };
        match self.view().find(&header, &probe, window) {
            (_, Some(cell)) => {
                check_cell::<B>(&header, &cell)?;
                self.bytes_mut()[cell.offset..][..LEAF_VALUE_BYTES].copy_from_slice(&entry.to_bytes());
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
        let header = sound_header(&self.view())?;
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
        let header = sound_header(&self.view())?;
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
        check_cell::<B>(&header, &cell)?;
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
            self.set_u16(GARBAGE, (header.garbage + freed).min(heap_end(B)));
        }
        self.set_u16(COUNT, header.count - 1);
        self.set_u16(HINT, 0);
        self.set_word(CSN_REMOVED / WORD_BYTES, csn.0);
        let mut dirty = Dirty::NONE;
        dirty.mark(0, FENCES);
        dirty.mark(heads + HEAD_BYTES * at, end);
        Ok(dirty)
    }

    /// Lowers the high fence and sets the right link; entries at or above the fence go. Where the fence is
    /// there already, only the right link is set: at the edge of a meganode that is split, a level may have
    /// had its fence in that place.
    pub(crate) fn truncate(&mut self, high: &[u8], right: Pointer) -> Result<Dirty, EditError> {
        let view = self.view();
        let header = sound_header(&view)?;
        let probe = Probe::new(high);
        if view.compare_high(&header, &probe) == Ordering::Equal {
            self.set_word(RIGHT / WORD_BYTES, right.0);
            let mut dirty = Dirty::NONE;
            dirty.mark(0, FENCES);
            return Ok(dirty);
        }
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
            role: header.role(),
            level: header.level(),
            state: header.state(),
            low: &low[..low_len],
            high: Some(high),
            right,
            csn_changed: view.csn_changed(),
            csn_removed: view.csn_removed(),
        };
        *self = self.recompose(&header, &frame, count).ok_or(EditError::NoRoom)?;
        Ok(Dirty::all::<B>())
    }

    /// Marks a node readable, hidden or free.
    pub(crate) fn mark(&mut self, state: TreeNodeState) -> Dirty {
        let kind = &mut self.bytes_mut()[KIND];
        *kind = state.mark(*kind);
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
            role: header.role(),
            level: header.level(),
            state: header.state(),
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
        if !header.is_inner() && composer.prefix() == header.prefix {
            composer.push_cells(self, header, 0..count)?;
        } else {
            composer.push_from(&self.view(), header, 0..count)?;
        }
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

    fn insert_in_place(&mut self, header: &Header, at: usize, suffix: &[u8], value: Value) -> Dirty {
        let inner = header.is_inner();
        let cell = cell_bytes(B, inner, suffix.len());
        let offset = header.heap_low - cell;
        let end = header.arrays_end() + fixed_bytes(inner);
        let slot = slot_of(offset, cell, suffix.len());
        insert_into_arrays(&mut self.bytes_mut()[header.heads()..end], header.count, at, suffix, slot, value);
        write_cell::<B>(&mut self.bytes_mut()[offset..], suffix, value);
        self.set_u16(COUNT, header.count + 1);
        self.set_u16(HEAP_LOW, offset);
        self.set_u16(HINT, hint::after_insert(header.hint, at));
        let mut dirty = Dirty::NONE;
        dirty.mark(0, FENCES);
        dirty.mark(header.heads() + HEAD_BYTES * at, end);
        dirty.mark(offset, header.heap_low);
        dirty
    }
}

/// The header of a node that an edit may follow without leaving the node.
#[inline]
pub(crate) fn sound_header<W: Words + ?Sized, const B: usize>(
    view: &View<'_, W, B>,
) -> Result<Header, EditError> {
    let header = view.header();
    let prefix_max = if header.high_len == HIGH_INFINITE { 0 } else { header.low_len.min(header.high_len) };
    let sound = header.prefix <= prefix_max
        && header.low_len <= key_max(B)
        && header.high_stored() <= key_max(B)
        && header.heads() == heads_offset(header.low_len, header.high_stored())
        && header.arrays_end() <= header.heap_low
        && header.heap_low + header.garbage <= heap_end(B);
    if sound { Ok(header) } else { Err(EditError::Damaged) }
}

/// Whether a leaf's cell is in the heap.
#[inline]
pub(crate) fn check_cell<const B: usize>(header: &Header, cell: &Cell) -> Result<(), EditError> {
    let end = cell.offset + cell_bytes(B, false, cell.suffix_len);
    if cell.offset < header.heap_low || end > heap_end(B) { Err(EditError::Damaged) } else { Ok(()) }
}

/// Makes room at `at` in the arrays of `count` entries, from the last one to the first, and writes head,
/// child and slot. `arrays` ends where they will.
#[inline]
pub(crate) fn insert_into_arrays(
    arrays: &mut [u8],
    count: usize,
    at: usize,
    suffix: &[u8],
    slot: usize,
    value: Value,
) {
    let heads_end = HEAD_BYTES * count;
    let child_bytes = if matches!(value, Value::Child(_)) { CHILD_BYTES } else { 0 };
    let slots = heads_end + child_bytes * count;
    let end = slots + SLOT_BYTES * count;
    let (slot_at, slots_new) = (slots + SLOT_BYTES * at, slots + HEAD_BYTES + child_bytes);
    let slot_new = slots_new + SLOT_BYTES * at;
    arrays.copy_within(slot_at..end, slot_new + SLOT_BYTES);
    arrays.copy_within(slots..slot_at, slots_new);
    arrays[slot_new..slot_new + SLOT_BYTES].copy_from_slice(&low_u16(slot).to_le_bytes());
    if let Value::Child(child) = value {
        let child_at = heads_end + CHILD_BYTES * at;
        arrays.copy_within(child_at..slots, child_at + HEAD_BYTES + CHILD_BYTES);
        arrays.copy_within(heads_end..child_at, heads_end + HEAD_BYTES);
        let child_new = child_at + HEAD_BYTES;
        arrays[child_new..child_new + CHILD_BYTES].copy_from_slice(&child.0.to_le_bytes());
    }
    let head_at = HEAD_BYTES * at;
    arrays.copy_within(head_at..heads_end, head_at + HEAD_BYTES);
    arrays[head_at..head_at + HEAD_BYTES].copy_from_slice(&head_of(suffix).to_le_bytes());
}
