//! Putting a leaf entry straight into live memory, without a copy of the node: the common write. And marking
//! a node, because that is done to thousands at a time.
//!
//! It makes the same bytes as [`Page::put`](crate::page::Page::put) and readers see the same protocol (see
//! [`write_back`](crate::page::write_back)). What does not fit here goes that way: a node that must be
//! compacted, that carries its CRC-64, or whose arrays or cell are large.

use cell_terms::{Csn, WordsMut};

use crate::compose::{Value, slot_of, write_cell};
use crate::edit::{EditError, check_cell, insert_into_arrays, sound_header};
use crate::fence::Side;
use crate::hint;
use crate::layout::{
    COUNT, CRC, CSN_CHANGED, HEAP_LOW, HINT, KIND, LEAF_VALUE_BYTES, WORD_BYTES, cell_bytes, fixed_bytes,
};
use crate::page::{begin_change, end_change};
use crate::probe::Probe;
use crate::state::TreeNodeState;
use crate::view::{Header, LeafEntry, View};

/// Arrays of up to 41 entries.
const ARRAYS_MAX: usize = 256;
/// Cells of keys of up to 115 bytes behind the prefix.
const CELL_MAX: usize = 128;

/// Whether a change was made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patched {
    Done,
    /// It takes a copy of the node.
    No,
}

/// Adds a leaf entry to the node at word `base`, or replaces what the key had, and stamps the CSN.
pub(crate) fn put<W: WordsMut + ?Sized, const B: usize>(
    words: &mut W,
    base: usize,
    key: &[u8],
    entry: &LeafEntry,
    csn: Csn,
) -> Result<Patched, EditError> {
    let view = View::<W, B>::new(words, base);
    let header = sound_header(&view)?;
    let probe = Probe::new(key);
    if header.is_inner() {
        return Err(EditError::WrongKind);
    }
    let Side::Here(window) = view.side(&header, &probe) else { return Err(EditError::OutsideFences) };
    match view.find(&header, &probe, window) {
        (_, Some(cell)) => {
            check_cell::<B>(&header, &cell)?;
            begin_change::<W, B>(words, base);
            stamp(words, base, csn);
            store_bytes(words, base, cell.offset, &entry.to_bytes());
            end_change::<W, B>(words, base);
            Ok(Patched::Done)
        }
        (at, None) => Ok(insert::<W, B>(words, base, &header, at, &key[header.prefix..], entry, csn)),
    }
}

/// Marks the node at word `base` readable, hidden or free, and stamps the CSN, if there is one.
pub(crate) fn mark<W: WordsMut + ?Sized, const B: usize>(
    words: &mut W,
    base: usize,
    state: TreeNodeState,
    csn: Option<Csn>,
) {
    let [kind, rest @ ..] = words.load(base + KIND / WORD_BYTES).to_le_bytes();
    let [a, b, c, d, e, f, g] = rest;
    let shape = u64::from_le_bytes([state.mark(kind), a, b, c, d, e, f, g]);
    begin_change::<W, B>(words, base);
    if let Some(csn) = csn {
        stamp(words, base, csn);
    }
    words.store(base + KIND / WORD_BYTES, shape);
    end_change::<W, B>(words, base);
}

fn insert<W: WordsMut + ?Sized, const B: usize>(
    words: &mut W,
    base: usize,
    header: &Header,
    at: usize,
    suffix: &[u8],
    entry: &LeafEntry,
    csn: Csn,
) -> Patched {
    let (fixed, cell) = (fixed_bytes(false), cell_bytes(B, false, suffix.len()));
    let (heads, end) = (header.heads(), header.arrays_end() + fixed);
    if fixed + cell > header.free() || end - heads > ARRAYS_MAX || cell > CELL_MAX {
        return Patched::No;
    }
    let offset = header.heap_low - cell;
    let value = Value::Leaf(*entry);

    let mut arrays = [0; ARRAYS_MAX];
    let first = base + heads / WORD_BYTES;
    let count = (end - heads).div_ceil(WORD_BYTES);
    words.copy(first, &mut arrays.as_chunks_mut().0[..count]);
    let slot = slot_of(offset, cell, suffix.len());
    insert_into_arrays(&mut arrays[..end - heads], header.count, at, suffix, slot, value);
    let mut bytes = [0; CELL_MAX];
    write_cell::<B>(&mut bytes[..cell], suffix, value);

    let shape = words.load(base + KIND / WORD_BYTES);
    let shape = with_u16(with_u16(shape, COUNT, header.count + 1), HEAP_LOW, offset);
    let fences = words.load(base + HINT / WORD_BYTES);
    let fences = with_u16(fences, HINT, hint::after_insert(header.hint, at));
    begin_change::<W, B>(words, base);
    stamp(words, base, csn);
    words.store(base + KIND / WORD_BYTES, shape);
    words.store(base + HINT / WORD_BYTES, fences);
    let changed = at / 2;
    words.store_all(first + changed, &arrays.as_chunks().0[changed..count]);
    store_bytes(words, base, offset, &bytes[..cell]);
    end_change::<W, B>(words, base);
    Patched::Done
}

/// The word with the number at byte `offset` of the node replaced.
fn with_u16(word: u64, offset: usize, number: usize) -> u64 {
    let shift = 8 * (offset % WORD_BYTES);
    (word & !(0xFFFF << shift)) | (number as u64) << shift
}

fn stamp<W: WordsMut + ?Sized>(words: &mut W, base: usize, csn: Csn) {
    words.store(base + CSN_CHANGED / WORD_BYTES, csn.0);
    words.store(base + CRC / WORD_BYTES, 0);
}

/// Stores bytes of a node; what shares their first and last word stays.
fn store_bytes<W: WordsMut + ?Sized>(words: &mut W, base: usize, offset: usize, bytes: &[u8]) {
    let shift = 8 * (offset % WORD_BYTES);
    let mut index = base + offset / WORD_BYTES;
    // What is left over of the word before, in the lower bytes.
    let mut carried = words.load(index) & !(u64::MAX << shift);
    let (chunks, rest) = bytes.as_chunks::<WORD_BYTES>();
    for chunk in chunks {
        let word = u64::from_le_bytes(*chunk);
        words.store(index, carried | word << shift);
        carried = (word >> 1) >> (63 - shift);
        index += 1;
    }
    let mut tail = [0; WORD_BYTES];
    tail[..rest.len()].copy_from_slice(rest);
    let tail = u64::from_le_bytes(tail);
    let bits = shift + 8 * rest.len();
    let low = carried | tail << shift;
    if bits > 64 {
        words.store(index, low);
        let keep = u64::MAX << (bits - 64);
        words.store(index + 1, (words.load(index + 1) & keep) | (tail >> 1) >> (63 - shift));
    } else if bits == 64 {
        words.store(index, low);
    } else if bits > 0 {
        words.store(index, (words.load(index) & (u64::MAX << bits)) | low);
    }
}

const _: () = assert!(LEAF_VALUE_BYTES == 16);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Page;

    #[test]
    fn store_bytes_anywhere_changes_those_only() {
        let bytes: Vec<u8> = (1..=40).collect();
        for offset in 0..20 {
            for len in 0..=bytes.len() {
                let mut words = [u64::MAX; 8];
                store_bytes(&mut words[..], 0, offset, &bytes[..len]);
                let stored: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let mut expected = vec![0xFF; 64];
                expected[offset..offset + len].copy_from_slice(&bytes[..len]);
                assert_eq!(stored, expected, "{len} bytes at {offset}");
            }
        }
    }

    /// Both ways of putting an entry make the same bytes.
    #[test]
    fn put_in_place_equals_put_in_a_copy() {
        let root = crate::empty_root(crate::Geometry::new(1024, 1 << 20, 4096).unwrap());
        let mut words = root;
        let mut state = 1u64;
        let mut patched = 0;
        for i in 0..2_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = vec![state.to_le_bytes()[5] % 7; 1 + usize::from(state.to_le_bytes()[6]) % 60];
            let entry = LeafEntry { offset: cell_terms::ExtentOffset(i), value_len: i ^ 77, crc: state };
            let mut page = Page::<1024>::load(&words[..], 0);
            let Ok(dirty) = page.put(&key, &entry) else {
                words = crate::empty_root(crate::Geometry::new(1024, 1 << 20, 4096).unwrap());
                continue;
            };
            page.stamp_changed(Csn(u64::from(i)));
            let mut copied = words.clone();
            crate::page::write_back(&mut copied[..], 0, &mut page, &dirty, false);
            if put::<[u64], 1024>(&mut words[..], 0, &key, &entry, Csn(u64::from(i))) == Ok(Patched::Done) {
                patched += 1;
                assert_eq!(words, copied);
            }
            words = copied;
        }
        assert!(patched > 1_000, "{patched}");
    }
}
