//! Widths of numbers: offsets are `u64` in formats and `usize` as indexes, and here those are one.

const _: () = assert!(usize::BITS == 64, "regions are larger than a 32-bit address space");
const _: () = assert!(cfg!(target_endian = "little"), "live words are the format's little-endian words");

/// A `u64` as an index: lossless, see the assertion above.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "usize has 64 bits, asserted above")]
pub(crate) const fn index(value: u64) -> usize {
    value as usize
}

/// The lower half of a word that holds two numbers.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the cut is what is asked for")]
pub(crate) const fn low(word: u64) -> u32 {
    word as u32
}

/// The upper half of a word that holds two numbers.
#[inline(always)]
pub(crate) const fn high(word: u64) -> u32 {
    low(word >> 32)
}

/// Joins two numbers to a word.
#[inline(always)]
pub(crate) const fn join(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// A number that its caller has bounded below 2^32.
///
/// # Panics
/// If it is not: a broken promise of this crate.
#[inline(always)]
pub(crate) const fn narrow(value: u64) -> u32 {
    assert!(value <= u32::MAX as u64);
    low(value)
}
