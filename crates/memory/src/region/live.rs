#![allow(unsafe_code)] // this file is the one place where live words are touched
//! Word-atomic access to a mapping: the only code that touches live memory.
//!
//! Every access is a load or a store of one aligned `AtomicU64`, so a reader and the writer, in one process
//! or in two, never race in the language's sense, and no reference to live memory ever exists. A word is
//! never torn; several words may be of different times, and whoever needs them together validates. The one
//! exception is what is loaded to be summed: assembly may load two words at once, and promises nothing of
//! them; the sum shows what they are.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cell_terms::WORDS_PER_LINE;

use crate::fold::{self, Block, BlockSink, Message};
use crate::mapping::Mapping;

/// A mapping's words. Cloning shares the mapping; the last clone unmaps it.
#[derive(Clone)]
pub(crate) struct Live {
    /// Of `mapping`, beside it so that a load needs no second pointer.
    base: NonNull<AtomicU64>,
    words: usize,
    mapping: Arc<Mapping>,
}

// SAFETY: `base` points into `mapping`, which is `Send` and `Sync` itself and lives as long as `self`;
// everything behind it is reached through atomics only.
unsafe impl Send for Live {}
// SAFETY: as above.
unsafe impl Sync for Live {}

impl Live {
    /// The first `words` words of a mapping.
    ///
    /// # Panics
    /// If the mapping is smaller.
    pub(crate) fn new(mapping: Arc<Mapping>, words: usize) -> Live {
        assert!(words <= mapping.bytes() / 8);
        Live { base: mapping.base(), words, mapping }
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.words
    }

    /// The word at `index`, as an atomic that must not outlive this call's caller.
    #[inline(always)]
    fn word(&self, index: usize) -> &AtomicU64 {
        if index >= self.words {
            word_outside(index);
        }
        // SAFETY: `index < words`, and `words` aligned words from `base` are inside one mapping (`new`).
        let word = unsafe { self.base.add(index) };
        // SAFETY: `word` is aligned (the mapping is page aligned), mapped and initialised (zero or stored),
        // its mapping outlives the returned borrow of `self`, and nobody holds a plain reference to it.
        unsafe { word.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn load_acquire(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    /// For [`super::RegionWriter`] only: a mapping of someone else's region is read-only, and a store ends
    /// the process.
    #[inline(always)]
    pub(super) fn store(&self, index: usize, word: u64) {
        self.word(index).store(word, Ordering::Relaxed);
    }

    /// The word at `index`, for [`cell_terms::publish_watermarks`] and its reader.
    #[inline(always)]
    pub(super) fn shared(&self, index: usize) -> &AtomicU64 {
        self.word(index)
    }

    /// As [`Live::store`], ordered after every store before it.
    #[inline(always)]
    pub(super) fn store_release(&self, index: usize, word: u64) {
        self.word(index).store(word, Ordering::Release);
    }

    /// The words from `start` on, `count` of them, checked once.
    #[inline(always)]
    fn span(&self, start: usize, count: usize) -> &[AtomicU64] {
        if start > self.words || count > self.words - start {
            span_outside(start, count);
        }
        // SAFETY: `start <= words`, so this is inside the mapping or one past its last word.
        let first = unsafe { self.base.add(start) };
        // SAFETY: `count` aligned, mapped, initialised words from `first`, checked above, of a mapping that
        // outlives the borrow; a slice of atomics is no plain reference to their values. Regions are far
        // below isize::MAX.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), count) }
    }

    #[inline]
    pub(crate) fn read_words(&self, start: usize, out: &mut [u64]) {
        let span = self.span(start, out.len());
        for (to, from) in out.iter_mut().zip(span) {
            *to = from.load(Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn write_words(&self, start: usize, words: &[u64]) {
        for (to, &from) in self.span(start, words.len()).iter().zip(words) {
            to.store(from, Ordering::Relaxed);
        }
    }

    /// Bytes from word `start` on; the last word may be used in part.
    #[inline]
    pub(crate) fn read_bytes(&self, start: usize, out: &mut [u8]) {
        let span = self.span(start, out.len().div_ceil(8));
        let (whole, rest) = out.as_chunks_mut::<8>();
        let (span, last) = span.split_at(whole.len());
        copy_out(span, whole);
        if let [last] = last {
            rest.copy_from_slice(&last.load(Ordering::Relaxed).to_le_bytes()[..rest.len()]);
        }
    }

    /// Appends `len` bytes, at least sixteen, from word `start` on to `out`, all but the first `skip`:
    /// nothing or sixteen. Returns those sixteen and the checksum of all; `None` where that is no faster than
    /// one pass for each.
    #[inline]
    pub(crate) fn append_summed(
        &self,
        start: usize,
        len: usize,
        skip: usize,
        out: &mut Vec<u8>,
    ) -> Option<([u64; 2], u64)> {
        let span = self.span(start, len.div_ceil(8));
        let (first, behind) = span.split_first_chunk::<2>()?;
        let (whole, rest) = behind.split_at(2 * (len / 16 - 1));
        let message = Message { first, whole: whole.as_chunks::<2>().0, rest, rest_len: len % 16 };
        out.reserve((len - skip).next_multiple_of(16));
        let (to, _) = out.spare_capacity_mut().as_chunks_mut::<16>();
        let (head, to) = to.split_at_mut(usize::from(skip == 0));
        let (first, sum) = fold::sum(&message, to)?;
        let [low, high] = first.map(u128::from);
        head.iter_mut().for_each(|head| head.keep((low | high << 64).to_le_bytes()));
        // SAFETY: so many bytes behind the vector's end are inside its capacity, reserved above, and were
        // written: each whole block and the rest by the sum, which panics where `to` has too few places, and
        // the first block just now if it is not skipped.
        unsafe { out.set_len(out.len() + len - skip) };
        Some((first, sum))
    }

    /// Bytes from word `start` on; what the last word has beyond them becomes zero.
    #[inline]
    pub(super) fn write_bytes(&self, start: usize, bytes: &[u8]) {
        let span = self.span(start, bytes.len().div_ceil(8));
        let (whole, rest) = bytes.as_chunks::<8>();
        let (span, last) = span.split_at(whole.len());
        copy_in(whole, span);
        if let [last] = last {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            last.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
    }

    /// Asks for the cache line of a word. Out of range is ignored.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: usize) {
        if index < self.words {
            prefetch_line(self.base.as_ptr().wrapping_add(index));
        }
    }

    /// As [`Live::prefetch`], of so many lines from a word on; where all of them are in range, by one check.
    #[inline(always)]
    pub(crate) fn prefetch_lines(&self, index: usize, lines: usize) {
        if index <= self.words && lines <= (self.words - index) / WORDS_PER_LINE {
            let first = self.base.as_ptr().wrapping_add(index);
            (0..lines).for_each(|line| prefetch_line(first.wrapping_add(WORDS_PER_LINE * line)));
        } else {
            self.prefetch_lines_inside(index, lines);
        }
    }

    /// Apart, because what leads out of the region is damaged or torn.
    #[cold]
    #[inline(never)]
    fn prefetch_lines_inside(&self, index: usize, lines: usize) {
        (0..lines).for_each(|line| self.prefetch(index.saturating_add(WORDS_PER_LINE * line)));
    }
}

/// Copies as many words as there are on both sides, a line at a time: the compiler does not unroll loops of
/// atomic words itself.
#[inline(always)]
fn copy_out(from: &[AtomicU64], to: &mut [[u8; 8]]) {
    let (lines, rest) = from.as_chunks::<WORDS_PER_LINE>();
    let (lines_to, rest_to) = to.as_chunks_mut::<WORDS_PER_LINE>();
    let copy = |(from, to): (&AtomicU64, &mut [u8; 8])| *to = from.load(Ordering::Relaxed).to_le_bytes();
    lines.iter().zip(lines_to).for_each(|(from, to)| from.iter().zip(to).for_each(copy));
    rest.iter().zip(rest_to).for_each(copy);
}

/// As [`copy_out`], the other way.
#[inline(always)]
fn copy_in(from: &[[u8; 8]], to: &[AtomicU64]) {
    let (lines, rest) = from.as_chunks::<WORDS_PER_LINE>();
    let (lines_to, rest_to) = to.as_chunks::<WORDS_PER_LINE>();
    let copy = |(from, to): (&[u8; 8], &AtomicU64)| to.store(u64::from_le_bytes(*from), Ordering::Relaxed);
    lines.iter().zip(lines_to).for_each(|(from, to)| from.iter().zip(to).for_each(copy));
    rest.iter().zip(rest_to).for_each(copy);
}

/// Apart from the loads, which would each keep their index in memory for the text.
#[cold]
#[inline(never)]
fn word_outside(index: usize) -> ! {
    panic!("word {index} is outside the region");
}

#[cold]
#[inline(never)]
fn span_outside(start: usize, count: usize) -> ! {
    panic!("{count} words from word {start} are outside the region");
}

impl Block for [AtomicU64; 2] {
    #[inline(always)]
    fn load(&self) -> [u64; 2] {
        [self[0].load(Ordering::Relaxed), self[1].load(Ordering::Relaxed)]
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    fn load_at_once(&self) -> Option<std::arch::x86_64::__m128i> {
        Some(load_two(self))
    }
}

/// Two words by one instruction. By two they come to two registers, and from these to one, through the port
/// of the processor through which the multiplications of a sum go, too.
///
/// While a writer stores to them any of the sixteen bytes may be of before or after: processors promise of
/// such a load neither that a word comes whole nor which comes first. Nothing rests on either. What is loaded
/// here is kept and summed out of this one register, and is believed only if the sum is the one that was
/// expected: a mixture has another.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn load_two(words: &[AtomicU64; 2]) -> std::arch::x86_64::__m128i {
    let loaded: std::arch::x86_64::__m128i;
    // SAFETY: it reads the sixteen bytes of two atomics that live as long as the borrow, and writes nothing
    // but the register, which any bits may be in. To the language it is no access but assembly, so it is no
    // race with the writer's stores, whatever it finds of them.
    unsafe {
        std::arch::asm!(
            "movdqu {loaded}, [{words}]",
            loaded = out(xmm_reg) loaded,
            words = in(reg) words.as_ptr(),
            options(nostack, preserves_flags, readonly),
        );
    }
    loaded
}

/// Of two words as many as there are.
impl Block for [AtomicU64] {
    #[inline(always)]
    fn load(&self) -> [u64; 2] {
        match self {
            [] => [0; 2],
            [low] => [low.load(Ordering::Relaxed), 0],
            [low, high, ..] => [low.load(Ordering::Relaxed), high.load(Ordering::Relaxed)],
        }
    }
}

impl BlockSink for [MaybeUninit<u8>; 16] {
    #[inline(always)]
    fn keep(&mut self, block: [u8; 16]) {
        self.write_copy_of_slice(&block);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn prefetch_line(word: *const AtomicU64) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch is a hint: it reads nothing that the program can see and faults on no address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(word.cast()) }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
fn prefetch_line(_word: *const AtomicU64) {}
