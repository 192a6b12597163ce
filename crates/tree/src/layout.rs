//! The bytes of a tree node: format version 2.
//!
//! A tree node has a fixed size B (512, 1024, 2048 or 4096 bytes) and a fixed place. It is read and written
//! as little-endian words of 8 bytes.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | version at the front: odd while the node changes |
//! | 8 | 8 | CSN of the last change |
//! | 16 | 8 | CSN of the last removal; a node that took entries from others inherits the highest of theirs |
//! | 24 | 8 | right link: pointer to the next tree node of this level, zero at the end |
//! | 32 | 8 | CRC-64 of the node with this word as zero; zero where nobody needs it |
//! | 40 | 1 | kind: level (lower 4 bits, 0 for leaves), 16 if valid, 32 if inner, 64 if of a router, 128 if built but hidden |
//! | 41 | 1 | where the heads begin, in words |
//! | 42 | 2 | count of entries |
//! | 44 | 2 | prefix length: bytes that every key of the node begins with |
//! | 46 | 2 | heap low: offset of the lowest byte of the heap |
//! | 48 | 2 | length of the low fence; keys of the node are at or above it |
//! | 50 | 2 | length of the high fence, 0xFFFF for plus infinity; keys are below it |
//! | 52 | 2 | garbage: bytes of the heap that no entry uses |
//! | 54 | 2 | insert hint: where the last entry was inserted, which way and how long inserts have been going |
//! | 56 | .. | low fence, whole (the prefix is its beginning), then the high fence behind the prefix; zero padded to 8 |
//! | .. | 4 x count | heads: the first four bytes of each key behind the prefix, big-endian as a number, zero padded |
//! | .. | 4 x count | children of an inner node: index in the slot. A leaf has none |
//! | .. | 2 x count | slots: length code (upper 4 bits), offset of the entry's cell (lower 12 bits) |
//! | .. | .. | free, zero in a fresh image |
//! | heap low | .. | heap: cells, growing down |
//! | B - 8 | 8 | version at the back, equal to the front |
//!
//! A key's *suffix* is what follows the prefix. The length code is the suffix's length when that is at most
//! 14; 15 says that the length less 15 stands in the cell. A cell holds, in this order and without padding:
//! of a leaf the extent's offset (4), the value's length (4) and the extent's CRC-64 (8); for code 15 the
//! length (1 byte where every key fits, else 2); and the suffix from its fifth byte on. What would be empty
//! has no cell and offset zero.
//!
//! An inner node's entry `i` leads to the keys from its own key up to the next entry's. Its first entry
//! stands for everything from the low fence: its suffix is empty. So every node, once it routes, has a child
//! for any key of its range, and equal keys never meet: a separator is above the low fence, so its suffix is
//! not empty.
//!
//! # What a key costs
//!
//! A leaf entry takes 4 (head) + 2 (slot) + 16 (value) bytes, one for the length of a suffix above 14, and
//! the suffix without its first four bytes: 19 + suffix length for common keys. Keys of 8 to 64 bytes (36 on
//! average) that share 3 cost 52 bytes in a full leaf, about 1.4 x raw at the fill of 90 % that a build
//! leaves. An inner entry takes 10 bytes for a separator of up to 4 bytes behind the prefix: 90 children a
//! node of 1 KiB.
//!
//! A search touches the header's line, one or two of heads and slots, and the one or two lines of one cell;
//! of an inner node the header, heads and one line of children.

use crate::role::MeganodeRole;

/// The sizes that a tree node can have, in bytes.
pub const NODE_BYTES: [usize; 4] = [512, 1024, 2048, 4096];

/// The format version of tree nodes.
pub const FORMAT_VERSION: u32 = 2;

/// Bytes of a word.
pub(crate) const WORD_BYTES: usize = 8;

pub(crate) const VERSION_FRONT: usize = 0;
pub(crate) const CSN_CHANGED: usize = VERSION_FRONT + 8;
pub(crate) const CSN_REMOVED: usize = CSN_CHANGED + 8;
pub(crate) const RIGHT: usize = CSN_REMOVED + 8;
pub(crate) const CRC: usize = RIGHT + 8;
pub(crate) const KIND: usize = CRC + 8;
pub(crate) const HEADS: usize = KIND + 1;
pub(crate) const COUNT: usize = HEADS + 1;
pub(crate) const PREFIX_LEN: usize = COUNT + 2;
pub(crate) const HEAP_LOW: usize = PREFIX_LEN + 2;
pub(crate) const LOW_LEN: usize = HEAP_LOW + 2;
pub(crate) const HIGH_LEN: usize = LOW_LEN + 2;
pub(crate) const GARBAGE: usize = HIGH_LEN + 2;
pub(crate) const HINT: usize = GARBAGE + 2;
pub(crate) const FENCES: usize = HINT + 2;

const _: () = assert!(FENCES == 56 && KIND == 40 && LOW_LEN == 48);
const _: () = assert!(FENCES.is_multiple_of(WORD_BYTES));

/// [`HIGH_LEN`] of a node without upper bound.
pub(crate) const HIGH_INFINITE: usize = 0xFFFF;

pub(crate) const LEVEL_MASK: u8 = 0x0F;
pub(crate) const FLAG_VALID: u8 = 0x10;
pub(crate) const FLAG_INNER: u8 = 0x20;
/// Never together with [`FLAG_VALID`].
pub(crate) const FLAG_HIDDEN: u8 = 0x80;

pub(crate) const HEAD_BYTES: usize = 4;
pub(crate) const CHILD_BYTES: usize = 4;
pub(crate) const SLOT_BYTES: usize = 2;
/// Offset, value length and CRC of a leaf entry.
pub(crate) const LEAF_VALUE_BYTES: usize = 16;

/// Levels of a meganode, leaves included: more than 2^24 nodes of three children need.
pub(crate) const LEVELS_MAX: usize = 16;

const _: () = assert!(LEVELS_MAX == LEVEL_MASK as usize + 1);
// Where the heads begin fits its byte, behind two of the longest fences.
const _: () = assert!(heads_offset(key_max(4096), key_max(4096)) / WORD_BYTES <= 0xFF);

/// The kind of a valid node of a level.
#[inline(always)]
pub(crate) const fn kind_of(role: MeganodeRole, level: u8) -> u8 {
    role.mark(level | FLAG_VALID | if level > 0 { FLAG_INNER } else { 0 })
}

pub(crate) const SLOT_OFFSET_BITS: u32 = 12;
pub(crate) const SLOT_OFFSET_MASK: u16 = (1 << SLOT_OFFSET_BITS) - 1;
/// The length code of a suffix whose length stands in its cell.
pub(crate) const CODE_LONG: usize = 15;

const _: () = assert!(NODE_BYTES[3] == 1 << SLOT_OFFSET_BITS);

/// The longest key that a tree node of `node_bytes` takes: two full fences and three leaf entries fit, so
/// that every split of a full tree node leaves room for the entry that caused it.
#[must_use]
pub const fn key_max(node_bytes: usize) -> usize {
    let room = node_bytes - FENCES - WORD_BYTES - (WORD_BYTES - 1);
    // Two bytes for the length, which small nodes do not need: see [`length_bytes`].
    let beside_key = HEAD_BYTES + SLOT_BYTES + LEAF_VALUE_BYTES + 2 - HEAD_BYTES;
    (room - 3 * beside_key) / 5
}

const _: () = assert!(key_max(512) == 76);
const _: () = assert!(key_max(1024) == 178 && key_max(1024) >= 160);
const _: () = assert!(key_max(2048) == 383);
const _: () = assert!(key_max(4096) == 793);

/// Bytes of the length in a cell of code 15.
pub(crate) const fn length_bytes(node_bytes: usize) -> usize {
    if key_max(node_bytes) - CODE_LONG <= 0xFF { 1 } else { 2 }
}

/// Bytes of a cell behind the leaf's value, for a suffix of `len` bytes.
pub(crate) const fn rest_bytes(node_bytes: usize, len: usize) -> usize {
    let length = if len >= CODE_LONG { length_bytes(node_bytes) } else { 0 };
    length + len.saturating_sub(HEAD_BYTES)
}

/// Bytes of a cell for a suffix of `len` bytes.
pub(crate) const fn cell_bytes(node_bytes: usize, inner: bool, len: usize) -> usize {
    (if inner { 0 } else { LEAF_VALUE_BYTES }) + rest_bytes(node_bytes, len)
}

/// Bytes of an entry in the arrays.
pub(crate) const fn fixed_bytes(inner: bool) -> usize {
    HEAD_BYTES + SLOT_BYTES + if inner { CHILD_BYTES } else { 0 }
}

/// Bytes of an entry with a suffix of `len` bytes, cell included.
pub(crate) const fn entry_bytes(node_bytes: usize, inner: bool, len: usize) -> usize {
    fixed_bytes(inner) + cell_bytes(node_bytes, inner, len)
}

/// Offset of the heads behind fences of these lengths (the high one as it is stored, without the prefix).
pub(crate) const fn heads_offset(low_len: usize, high_stored: usize) -> usize {
    (FENCES + low_len + high_stored).next_multiple_of(WORD_BYTES)
}

/// Highest offset of the heap, exclusive.
pub(crate) const fn heap_end(node_bytes: usize) -> usize {
    node_bytes - WORD_BYTES
}

/// More entries than this no node can have.
pub(crate) const fn count_max(node_bytes: usize) -> usize {
    (node_bytes - FENCES - WORD_BYTES) / (HEAD_BYTES + SLOT_BYTES)
}

/// The lower 16 bits: numbers within a node are below 2^16, because nodes are.
#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the upper bits are meant to go; nothing within a node has any"
)]
pub(crate) const fn low_u16(number: usize) -> u16 {
    number as u16
}

/// The lower 32 bits.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the upper bits are meant to go")]
pub(crate) const fn low_u32(word: u64) -> u32 {
    word as u32
}

/// The lower 16 bits as a length or an offset.
#[inline(always)]
pub(crate) const fn low_usize(word: u64) -> usize {
    (word & 0xFFFF) as usize
}

/// Bytes that `a` and `b` share at their beginning.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
