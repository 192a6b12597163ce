#![allow(unsafe_code)] // the processor's carry-less multiplication, see `sum`
//! CRC-64 (XZ) by carry-less multiplication, sixteen bytes at a time, of any length from sixteen and at any
//! alignment, while the bytes pass by: who copies an extent need not look at it twice.
//!
//! Folding: sixteen bytes that stand `8 n` bits before others have the same remainder as their halves times
//! `x^(8n + 63)` and `x^(8n - 1)`, so they can be added to those others (Gopal et al., "Fast CRC Computation
//! for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009). A last part of fewer than sixteen bytes
//! is joined to what was folded by moving bytes, so no table is needed; `crc64fast` takes whatever is not a
//! whole aligned block of 128 bytes through tables of 32 KiB, which is most of a typical extent.

/// Sixteen bytes or fewer, the first eight as the first little-endian number, from wherever they are; what is
/// behind them is of no account.
pub(crate) trait Block {
    /// The two numbers.
    fn load(&self) -> [u64; 2];

    /// Both in one register, if one instruction loads them.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    fn load_at_once(&self) -> Option<std::arch::x86_64::__m128i> {
        None
    }
}

impl Block for [u8; 16] {
    #[inline(always)]
    fn load(&self) -> [u64; 2] {
        halves(self)
    }
}

/// Where sixteen bytes are kept when they have been added; `()` where nowhere.
pub(crate) trait BlockSink {
    fn keep(&mut self, block: [u8; 16]);
}

impl BlockSink for () {
    #[inline(always)]
    fn keep(&mut self, _block: [u8; 16]) {}
}

/// The end of a message, of one to fifteen bytes.
struct MessageEnd<'a> {
    /// The message's last sixteen bytes.
    last: &'a [u8; 16],
    len: usize,
}

impl Block for MessageEnd<'_> {
    #[inline(always)]
    fn load(&self) -> [u64; 2] {
        split(u128::from_le_bytes(*self.last) >> (8 * (16 - self.len)))
    }
}

/// A message in parts. Nothing of it is loaded before it is summed: two numbers that went there through
/// memory, to be loaded as sixteen bytes, would be waited for until all before them is done, and the sums of
/// several messages could not overlap.
pub(crate) struct Message<'a, B, R: ?Sized> {
    /// Its first sixteen bytes.
    pub(crate) first: &'a B,
    /// The whole blocks behind them.
    pub(crate) whole: &'a [B],
    /// What is behind those.
    pub(crate) rest: &'a R,
    /// How many bytes that has.
    pub(crate) rest_len: usize,
}

/// Whether this processor multiplies without carries.
#[inline]
pub(crate) fn is_fast() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return std::arch::is_x86_feature_detected!("pclmulqdq") && std::arch::is_x86_feature_detected!("sse4.1");
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

/// The first sixteen bytes of a message, and its checksum. What is behind those bytes is kept in `to`, the
/// rest as a block, too. `None`, and nothing is done, where the processor cannot multiply without carries.
///
/// # Panics
/// If `to` has fewer places than there are blocks to be kept.
#[inline]
pub(crate) fn sum<B: Block, R: Block + ?Sized, P: BlockSink>(
    message: &Message<'_, B, R>,
    to: &mut [P],
) -> Option<([u64; 2], u64)> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if is_fast() {
        // SAFETY: the processor has what the function is compiled for, seen just now.
        return Some(unsafe { x86::sum(message, to) });
    }
    let _ = (message, to);
    None
}

/// The checksum of bytes in memory of one's own; `None` where they are fewer than sixteen, too.
#[inline]
pub(crate) fn sum_of(bytes: &[u8]) -> Option<u64> {
    let (first, behind) = bytes.split_first_chunk::<16>()?;
    let (whole, rest) = behind.as_chunks::<16>();
    let end = MessageEnd { last: bytes.last_chunk()?, len: rest.len() };
    let message = Message { first, whole, rest: &end, rest_len: rest.len() };
    sum(&message, &mut vec![(); whole.len() + 1]).map(|(_, checksum)| checksum)
}

#[inline(always)]
fn halves(block: &[u8; 16]) -> [u64; 2] {
    split(u128::from_le_bytes(*block))
}

#[inline(always)]
fn split(both: u128) -> [u64; 2] {
    #[allow(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    [both as u64, (both >> 64) as u64]
}

/// The polynomial, its lowest power in the highest bit, without `x^64`.
const POLYNOMIAL: u64 = 0xc96c_5795_d787_0f42;

/// `x^power` modulo the polynomial, bits in the same order.
const fn power_of_x(power: u32) -> u64 {
    let (mut remainder, mut left) = (1 << 63, power);
    while left > 0 {
        remainder = (remainder >> 1) ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 };
        left -= 1;
    }
    remainder
}

/// The lower 64 bits of a product without carries.
const fn product(a: u64, b: u64) -> u64 {
    let (mut product, mut bit) = (0, 0);
    while bit < 64 {
        product ^= if b >> bit & 1 == 1 { a << bit } else { 0 };
        bit += 1;
    }
    product
}

/// The number whose product with an odd one is 1, in 64 bits without carries: each step of Newton's doubles
/// the bits that are right, and the square of the first is right in three.
const fn inverse(odd: u64) -> u64 {
    let (mut inverse, mut right) = (odd, 1);
    while right < 64 {
        inverse = product(product(inverse, inverse), odd);
        right *= 2;
    }
    inverse
}

/// The polynomial with `x^64`, which stands in the lowest bit, and without its lowest power.
const REDUCE: u64 = POLYNOMIAL << 1 | 1;
const QUOTIENT: u64 = inverse(REDUCE);

const _: () = assert!(product(REDUCE, QUOTIENT) == 1);
const _: () = assert!(REDUCE == 0x92d8_af2b_af0e_1e85 && QUOTIENT == 0x9c3e_466c_1729_63d5);
const _: () = assert!(power_of_x(127) == 0xdabe_95af_c787_5f40 && power_of_x(191) == 0xe05d_d497_ca39_3ae4);

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::{
        __m128i, _mm_clmulepi64_si128, _mm_extract_epi64, _mm_set_epi64x, _mm_shuffle_epi8, _mm_slli_si128,
        _mm_srli_si128, _mm_xor_si128,
    };

    use super::{Block, BlockSink, Message, QUOTIENT, REDUCE, halves, power_of_x};

    /// From so many whole blocks on four are folded side by side: each fold waits six cycles for the one
    /// before. Fewer are multiplied each by its own factors, and wait for none.
    const LONG_BLOCKS: usize = 7;

    /// What the halves of a block are multiplied with to be added to the one `bytes` later.
    const fn factors(bytes: u32) -> [u64; 2] {
        [power_of_x(8 * bytes + 63), power_of_x(8 * bytes - 1)]
    }

    /// What brings a block so many blocks on; the first, which is none, has no use.
    const BY_BLOCKS: [[u64; 2]; LONG_BLOCKS] = {
        let (mut by, mut bytes) = ([[0; 2]; LONG_BLOCKS], 0);
        let mut blocks = 1;
        while blocks < LONG_BLOCKS {
            bytes += 16;
            by[blocks] = factors(bytes);
            blocks += 1;
        }
        by
    };

    const BY_16: [u64; 2] = factors(16);
    const BY_32: [u64; 2] = factors(32);
    const BY_48: [u64; 2] = factors(48);
    const BY_64: [u64; 2] = factors(64);

    /// Where each byte comes from when a block's first bytes go to its end: from `TO_END[n..][..16]` for `n`
    /// of them; what comes from nowhere becomes zero.
    const TO_END: [u8; 32] = places(16);
    /// Likewise when the first `n` bytes go and the others move up.
    const TO_FRONT: [u8; 32] = places(0);

    const fn places(first: usize) -> [u8; 32] {
        let (mut places, mut at) = ([0x80; 32], 0);
        while at < 16 {
            #[allow(clippy::cast_possible_truncation, reason = "below sixteen")]
            {
                places[first + at] = at as u8;
            }
            at += 1;
        }
        places
    }

    #[inline(always)]
    fn window(places: &[u8; 32], from: usize) -> [u64; 2] {
        places[from..].first_chunk().map_or([0; 2], halves)
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq,sse4.1")]
    fn vector([low, high]: [u64; 2]) -> __m128i {
        _mm_set_epi64x(high.cast_signed(), low.cast_signed())
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq,sse4.1")]
    fn fold(block: __m128i, factors: [u64; 2], onto: __m128i) -> __m128i {
        let factors = vector(factors);
        let low = _mm_clmulepi64_si128::<0x00>(block, factors);
        let high = _mm_clmulepi64_si128::<0x11>(block, factors);
        _mm_xor_si128(_mm_xor_si128(low, high), onto)
    }

    /// A block, kept on its way.
    #[inline]
    #[target_feature(enable = "pclmulqdq,sse4.1")]
    fn pass<B: Block + ?Sized, P: BlockSink>(block: &B, to: &mut P) -> __m128i {
        let block = match block.load_at_once() {
            Some(block) => block,
            None => vector(block.load()),
        };
        // SAFETY: both are sixteen bytes, any of which make such an array.
        to.keep(unsafe { std::mem::transmute::<__m128i, [u8; 16]>(block) });
        block
    }

    /// See [`super::sum`].
    #[target_feature(enable = "pclmulqdq,sse4.1")]
    pub(super) fn sum<B: Block, R: Block + ?Sized, P: BlockSink>(
        message: &Message<'_, B, R>,
        to: &mut [P],
    ) -> ([u64; 2], u64) {
        let mut whole = message.whole;
        let (mut to, end_to) = to.split_at_mut(whole.len());
        let first = message.first.load();
        // The register begins as ones.
        let mut folded = _mm_xor_si128(vector(first), vector([!0, 0]));
        if whole.len() >= LONG_BLOCKS {
            let (ahead, behind) = whole.split_at(3);
            let (ahead_to, behind_to) = std::mem::take(&mut to).split_at_mut(3);
            let mut side = [0, 1, 2].map(|lane: usize| pass(&ahead[lane], &mut ahead_to[lane]));
            let (fours, rest) = behind.as_chunks::<4>();
            let (fours_to, rest_to) = behind_to.as_chunks_mut::<4>();
            for (four, [a, b, c, d]) in fours.iter().zip(fours_to) {
                folded = fold(folded, BY_64, pass(&four[0], a));
                side[0] = fold(side[0], BY_64, pass(&four[1], b));
                side[1] = fold(side[1], BY_64, pass(&four[2], c));
                side[2] = fold(side[2], BY_64, pass(&four[3], d));
            }
            folded = fold(folded, BY_48, fold(side[0], BY_32, fold(side[1], BY_16, side[2])));
            (whole, to) = (rest, rest_to);
        }
        if let ([before @ .., last], [before_to @ .., last_to]) = (whole, to) {
            folded = fold(folded, BY_BLOCKS[before.len() + 1], vector([0, 0]));
            let factors = BY_BLOCKS[1..=before.len()].iter().rev();
            for ((block, to), factors) in before.iter().zip(before_to).zip(factors) {
                folded = fold(pass(block, to), *factors, folded);
            }
            folded = _mm_xor_si128(folded, pass(last, last_to));
        }
        let rest_len = message.rest_len;
        if rest_len > 0 {
            let rest = pass(message.rest, &mut end_to[0]);
            let to_end = vector(window(&TO_END, rest_len));
            let behind = _mm_shuffle_epi8(rest, to_end);
            let moved = _mm_shuffle_epi8(folded, vector(window(&TO_FRONT, rest_len)));
            let before = _mm_shuffle_epi8(folded, to_end);
            folded = fold(before, BY_16, _mm_xor_si128(moved, behind));
        }
        (first, !reduce(folded))
    }

    /// Sixteen bytes to their remainder: first to eight, then by Barrett's reduction.
    #[inline]
    #[target_feature(enable = "pclmulqdq,sse4.1")]
    fn reduce(block: __m128i) -> u64 {
        let factors = vector([const { power_of_x(127) }, 0]);
        let eight = _mm_xor_si128(_mm_clmulepi64_si128::<0x00>(block, factors), _mm_srli_si128::<8>(block));
        let factors = vector([QUOTIENT, REDUCE]);
        let quotient = _mm_clmulepi64_si128::<0x00>(eight, factors);
        let multiple = _mm_clmulepi64_si128::<0x10>(quotient, factors);
        let multiple = _mm_xor_si128(multiple, _mm_slli_si128::<8>(quotient));
        _mm_extract_epi64::<1>(_mm_xor_si128(multiple, eight)).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_of_every_length_and_alignment_is_that_of_crc64fast() {
        let source: Vec<u8> = (0..1500u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
        for len in (0..700).chain([1023, 1024, 1025, 1400]) {
            for from in [0, 1, 7, 8, 64] {
                let bytes = &source[from..from + len];
                let mut digest = crc64fast::Digest::new_table();
                digest.write(bytes);
                match sum_of(bytes) {
                    Some(sum) => assert_eq!(sum, digest.sum64(), "{len} bytes from {from}"),
                    None => assert!(len < 16 || !is_fast()),
                }
            }
        }
    }
}
