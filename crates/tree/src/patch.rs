//! Putting a leaf entry straight into live memory, without a copy of the node: the common write. And marking
//! a node, because that is done to thousands at a time.
//!
//! It makes the same bytes as [`Page::put`](crate::page::Page::put) and readers see the same protocol (see
//! [`write_back`](crate::page::write_back)). What does not fit here goes that way: a node that must be
//! compacted, or that carries its CRC-64.

use cell_terms::{Csn, WordsMut};

use crate::compose::{head_of, slot_of};
use crate::edit::{EditError, check_cell, sound_header};
use crate::fence::Side;
use crate::hint;
use crate::layout::{
    CODE_LONG, COUNT, CRC, CSN_CHANGED, HEAD_BYTES, HEAP_LOW, HINT, KIND, LEAF_VALUE_BYTES, SLOT_BYTES,
    WORD_BYTES, cell_bytes, fixed_bytes, length_bytes, low_u16,
};
use crate::page::{begin_change, end_change};
use crate::placed::EntryPlace;
use crate::probe::Probe;
use crate::state::TreeNodeState;
use crate::view::{Header, LeafEntry, View};

const HEAD_BITS: usize = 8 * HEAD_BYTES;
const SLOT_BITS: usize = 8 * SLOT_BYTES;
/// What is left of a word behind a head, behind a slot.
const BEHIND_HEAD: usize = 64 - HEAD_BITS;
const BEHIND_SLOT: usize = 64 - SLOT_BITS;

/// Whether a change was made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patched {
    Done,
    /// It takes a copy of the node.
    No,
}

/// Adds a leaf entry to the node at word `base`, or replaces what the key had, and stamps the CSN. The leaf
/// is searched unless it is as it was when the entry's place was found.
pub(crate) fn put<W: WordsMut + ?Sized, const B: usize>(
    words: &mut W,
    base: usize,
    key: &[u8],
    entry: &LeafEntry,
    csn: Csn,
    place: Option<EntryPlace>,
) -> Result<Patched, EditError> {
    let view = View::<W, B>::new(words, base);
    let header = sound_header(&view)?;
    if header.is_inner() {
        return Err(EditError::WrongKind);
    }
    let found = match place.filter(|place| place.holds(&view)) {
        Some(place) => (place.at(), place.is_there().then(|| view.cell(&header, place.at()))),
        None => {
            let probe = Probe::new(key);
            let Side::Here(window) = view.side(&header, &probe) else {
                return Err(EditError::OutsideFences);
            };
            view.find(&header, &probe, window)
        }
    };
    match found {
        (_, Some(cell)) => {
            check_cell::<B>(&header, &cell)?;
            begin_change::<W, B>(words, base);
            stamp(words, base, csn);
            store_bytes(words, base, cell.offset, &entry.to_bytes());
            end_change::<W, B>(words, base);
            Ok(Patched::Done)
        }
        (at, None) => Ok(insert::<W, B>(words, base, &header, at, key, entry, csn)),
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
    key: &[u8],
    entry: &LeafEntry,
    csn: Csn,
) -> Patched {
    let suffix = &key[header.prefix..];
    let cell = cell_bytes(B, false, suffix.len());
    if fixed_bytes(false) + cell > header.free() {
        return Patched::No;
    }
    let offset = header.heap_low - cell;
    let shape = words.load(base + KIND / WORD_BYTES);
    let shape = with_u16(with_u16(shape, COUNT, header.count + 1), HEAP_LOW, offset);
    let fences = words.load(base + HINT / WORD_BYTES);
    let fences = with_u16(fences, HINT, hint::after_insert(header.hint, at));
    begin_change::<W, B>(words, base);
    stamp(words, base, csn);
    words.store(base + KIND / WORD_BYTES, shape);
    words.store(base + HINT / WORD_BYTES, fences);
    let slot = low_u16(slot_of(offset, cell, suffix.len()));
    insert_into_arrays(words, base, header, at, (head_of(suffix), slot));
    store_cell::<W, B>(words, base, offset, (key, header.prefix), entry);
    end_change::<W, B>(words, base);
    Patched::Done
}

/// Puts head and slot of a new entry into a leaf's arrays, word by word from the new head on: what is behind
/// it moves up by a head, and behind the new slot by a slot more. What is behind the arrays stays.
fn insert_into_arrays<W: WordsMut + ?Sized>(
    words: &mut W,
    base: usize,
    header: &Header,
    at: usize,
    (head, slot): (u32, u16),
) {
    let head_at = header.heads() + HEAD_BYTES * at;
    let slot_at = header.slots() + HEAD_BYTES + SLOT_BYTES * at;
    let end = header.arrays_end() + fixed_bytes(false);
    let (mut index, of_slot, last) =
        (base + head_at / WORD_BYTES, base + slot_at / WORD_BYTES, base + (end - 1) / WORD_BYTES);
    let mut old = words.load(index);
    let mut moved = with_inserted(old, 8 * (head_at % WORD_BYTES), head.into(), HEAD_BITS);
    while index < of_slot {
        words.store(index, moved);
        let left_over = old >> BEHIND_HEAD;
        index += 1;
        old = words.load(index);
        moved = left_over | old << HEAD_BITS;
    }
    let mut new = with_inserted(moved, 8 * (slot_at % WORD_BYTES), slot.into(), SLOT_BITS);
    while index < last {
        words.store(index, new);
        let (left_over, left_over_twice) = (old >> BEHIND_HEAD, moved >> BEHIND_SLOT);
        index += 1;
        old = words.load(index);
        moved = left_over | old << HEAD_BITS;
        new = left_over_twice | moved << SLOT_BITS;
    }
    let arrays = u64::MAX >> (8 * (WORD_BYTES - 1 - (end - 1) % WORD_BYTES));
    words.store(last, new & arrays | old & !arrays);
}

/// A number of so many bits put into a word, below which `below` bits stay, while those above move up.
fn with_inserted(word: u64, below: usize, number: u64, bits: usize) -> u64 {
    let stay: u64 = (1 << below) - 1;
    let above = ((word & !stay) << (bits - 1)) << 1;
    word & stay | number << below | above
}

/// Stores a leaf entry's cell at an offset of the node.
fn store_cell<W: WordsMut + ?Sized, const B: usize>(
    words: &mut W,
    base: usize,
    offset: usize,
    (key, prefix): (&[u8], usize),
    entry: &LeafEntry,
) {
    let suffix_len = key.len() - prefix;
    let mut stores = ByteStores::begin(words, base, offset);
    let [place, crc] = entry.to_words();
    stores.word(place);
    stores.word(crc);
    if suffix_len >= CODE_LONG {
        stores.part((suffix_len - CODE_LONG) as u64, length_bytes(B));
    }
    stores.bytes_from(key, (prefix + HEAD_BYTES).min(key.len()));
    stores.end();
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
    let mut stores = ByteStores::begin(words, base, offset);
    stores.bytes_from(bytes, 0);
    stores.end();
}

/// Bytes that are stored one behind the other, from wherever in a word on, each word once it is whole. What
/// shares the first and the last word stays.
struct ByteStores<'w, W: WordsMut + ?Sized> {
    words: &'w mut W,
    /// The word that is not whole, the lower bits that it has, and how many these are: below 64.
    index: usize,
    lower: u64,
    bits: usize,
}

impl<'w, W: WordsMut + ?Sized> ByteStores<'w, W> {
    #[inline(always)]
    fn begin(words: &'w mut W, base: usize, offset: usize) -> ByteStores<'w, W> {
        let (index, bits) = (base + offset / WORD_BYTES, 8 * (offset % WORD_BYTES));
        let lower = words.load(index) & !(u64::MAX << bits);
        ByteStores { words, index, lower, bits }
    }

    /// Eight bytes.
    #[inline(always)]
    fn word(&mut self, word: u64) {
        self.words.store(self.index, self.lower | word << self.bits);
        self.lower = (word >> 1) >> (63 - self.bits);
        self.index += 1;
    }

    /// Fewer than eight bytes; the word has none above them.
    #[inline(always)]
    fn part(&mut self, word: u64, bytes: usize) {
        let bits = self.bits + 8 * bytes;
        if bits < 64 {
            self.lower |= word << self.bits;
        } else {
            self.word(word);
        }
        self.bits = bits % 64;
    }

    /// Bytes from one of them on to their end.
    #[inline(always)]
    fn bytes_from(&mut self, bytes: &[u8], from: usize) {
        let (chunks, rest) = bytes[from..].as_chunks::<WORD_BYTES>();
        chunks.iter().for_each(|chunk| self.word(u64::from_le_bytes(*chunk)));
        if !rest.is_empty() {
            let last = match bytes.last_chunk::<WORD_BYTES>() {
                Some(last) => u64::from_le_bytes(*last) >> (8 * (WORD_BYTES - rest.len())),
                None => Probe::short_tail(rest),
            };
            self.part(last, rest.len());
        }
    }

    #[inline(always)]
    fn end(self) {
        if self.bits > 0 {
            let above = self.words.load(self.index) & (u64::MAX << self.bits);
            self.words.store(self.index, above | self.lower);
        }
    }
}

const _: () = assert!(LEAF_VALUE_BYTES == 16);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compose::{Composer, Frame};
    use crate::layout::{key_max, low_usize};
    use crate::page::Page;
    use crate::role::MeganodeRole;

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

    fn place_of<const B: usize>(words: &[u64], key: &[u8]) -> EntryPlace {
        let view = View::<[u64], B>::new(words, 0);
        let (header, probe) = (view.header(), Probe::new(key));
        let Side::Here(window) = view.side(&header, &probe) else { panic!("it is not this leaf's") };
        let (at, cell) = view.find(&header, &probe, window);
        EntryPlace::found(&view, at, cell.is_some())
    }

    /// Puts entries into a leaf whose keys begin so, in both ways, and compares the bytes; how many were put
    /// where they are. No two bytes of a key that are near one another are the same.
    fn put_both_ways<const B: usize>(prefix: &[u8]) -> usize {
        let (low, high) = ([prefix, &[0_u8][..]].concat(), [prefix, &[0xFF_u8][..]].concat());
        let high = (!prefix.is_empty()).then_some(&high[..]);
        let frame = Frame::anew((MeganodeRole::Data, 0), &low, high, Csn::ZERO);
        let empty: Vec<u64> = Composer::<B>::begin(&frame, 0).unwrap().finish().words().collect();
        let lens_max = [24, key_max(B) - prefix.len()];
        let (mut words, mut state, mut patched) = (empty.clone(), 1_u64, 0);
        for (i, len_max) in (0..2_000_u32).zip(lens_max.into_iter().cycle()) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let len = 1 + low_usize(state >> 48) % len_max;
            let first = state.to_le_bytes()[5] % 7;
            let bytes = std::iter::successors(Some(first), |byte| Some(byte.wrapping_add(29)));
            let key = [prefix, &bytes.take(len).collect::<Vec<u8>>()[..]].concat();
            let entry = LeafEntry { offset: cell_terms::ExtentOffset(i), value_len: i ^ 77, crc: state };
            let mut page = Page::<B>::load(&words[..], 0);
            let Ok(dirty) = page.put(&key, &entry) else {
                words.clone_from(&empty);
                continue;
            };
            let csn = Csn(u64::from(i));
            page.stamp_changed(csn);
            let mut copied = words.clone();
            crate::page::write_back(&mut copied[..], 0, &mut page, &dirty, false);
            let place = (i % 3 == 0).then(|| place_of::<B>(&words, &key));
            if put::<[u64], B>(&mut words[..], 0, &key, &entry, csn, place) == Ok(Patched::Done) {
                patched += 1;
                assert_eq!(words, copied, "{key:?} in {B} bytes");
            }
            words = copied;
        }
        patched
    }

    /// Both ways of putting an entry make the same bytes.
    #[test]
    fn put_in_place_equals_put_in_a_copy() {
        for prefix in [&b""[..], b"some prefix"] {
            let patched = [
                put_both_ways::<512>(prefix),
                put_both_ways::<1024>(prefix),
                put_both_ways::<2048>(prefix),
                put_both_ways::<4096>(prefix),
            ];
            assert!(patched.iter().all(|patched| *patched > 1_000), "{patched:?}");
        }
    }
}
