//! What an owner wishes of its pairs.

use cell_terms::Durability;

/// How a pair is kept.
#[derive(Clone, Copy, Debug)]
pub struct PairOptions {
    /// When a write may be acknowledged.
    pub durability: Durability,
    /// How long freed memory rests before it is used again, in nanoseconds.
    pub reuse_grace_ns: u64,
    /// Memory that the pair's allocators are granted at a time, in bytes.
    pub grant_chunk_bytes: u64,
    /// How much of a slot is in use when its meganode is to be split, in percent.
    pub split_fill_percent: usize,
    /// Tree nodes of which entries take less than so many thousandths are packed densely; 0: none are.
    pub compaction_permille: usize,
}
