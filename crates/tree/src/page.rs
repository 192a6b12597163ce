//! A tree node's copy: where it is edited, and what an optimistic reader copies to.

use cell_terms::{Words, WordsMut};

use crate::layout::{CRC, WORD_BYTES, low_u16};
use crate::mutant::{self, Mutant};

/// `B` bytes of a tree node, aligned as the checksum likes it.
#[derive(Clone)]
#[repr(C, align(128))]
pub(crate) struct Page<const B: usize> {
    bytes: [u8; B],
}

impl<const B: usize> Page<B> {
    pub(crate) const WORDS: usize = B / WORD_BYTES;

    pub(crate) fn zeroed() -> Page<B> {
        Page { bytes: [0; B] }
    }

    /// Copies a node as it stands, without a look at its versions: for the writer, whom nobody disturbs.
    #[inline]
    pub(crate) fn load<W: Words + ?Sized>(words: &W, base: usize) -> Page<B> {
        let mut page = Page::zeroed();
        page.load_over(words, base);
        page
    }

    /// As [`Page::load`], over what the page has.
    #[inline]
    pub(crate) fn load_over<W: Words + ?Sized>(&mut self, words: &W, base: usize) {
        words.copy(base, self.bytes.as_chunks_mut().0);
    }

    /// Copies a node in address order, as a network card would, front version first and back version last.
    /// The caller compares them: [`Page::is_consistent`].
    #[inline]
    pub(crate) fn copy_from<W: Words + ?Sized>(&mut self, words: &W, base: usize) {
        let chunks = self.bytes.as_chunks_mut::<WORD_BYTES>().0;
        let last = chunks.len() - 1;
        chunks[0] = words.load(base).to_le_bytes();
        words.fence_acquire();
        for (i, chunk) in chunks.iter_mut().enumerate().take(last).skip(1) {
            *chunk = words.load(base + i).to_le_bytes();
        }
        words.fence_acquire();
        chunks[last] = words.load(base + last).to_le_bytes();
    }

    /// Whether the versions are equal and even: what stands between them is of one time.
    #[inline]
    pub(crate) fn is_consistent(&self) -> bool {
        let front = self.word(0);
        front & 1 == 0 && front == self.word(Self::WORDS - 1)
    }

    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> u64 {
        u64::from_le_bytes(self.bytes.as_chunks::<WORD_BYTES>().0[index])
    }

    #[inline(always)]
    pub(crate) fn set_word(&mut self, index: usize, word: u64) {
        self.bytes.as_chunks_mut::<WORD_BYTES>().0[index] = word.to_le_bytes();
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8; B] {
        &self.bytes
    }

    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8; B] {
        &mut self.bytes
    }

    #[inline(always)]
    pub(crate) fn get_u16(&self, offset: usize) -> usize {
        usize::from(self.bytes[offset]) | usize::from(self.bytes[offset + 1]) << 8
    }

    /// Stores a number of a node's header or a slot: they are below 2^16, because nodes are.
    #[inline(always)]
    pub(crate) fn set_u16(&mut self, offset: usize, value: usize) {
        debug_assert!(value <= 0xFFFF);
        self.bytes[offset..offset + 2].copy_from_slice(&low_u16(value).to_le_bytes());
    }

    #[inline(always)]
    pub(crate) fn set_u32(&mut self, offset: usize, value: u32) {
        self.bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.bytes.as_chunks::<WORD_BYTES>().0.iter().map(|chunk| u64::from_le_bytes(*chunk))
    }

    /// The CRC-64 of the node, its own word taken as zero.
    pub(crate) fn crc(&self) -> u64 {
        let mut digest = crc64fast::Digest::new();
        digest.write(&self.bytes[..CRC]);
        digest.write(&[0; WORD_BYTES]);
        digest.write(&self.bytes[CRC + WORD_BYTES..]);
        digest.sum64()
    }
}

impl<const B: usize> Words for Page<B> {
    #[inline(always)]
    fn load(&self, index: usize) -> u64 {
        self.word(index)
    }

    #[inline(always)]
    fn len(&self) -> usize {
        Self::WORDS
    }

    #[inline(always)]
    fn prefetch(&self, _index: usize) {}

    #[inline(always)]
    fn fence_acquire(&self) {}
}

/// The words of a page that an edit changed, as a few ranges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dirty {
    ranges: [(usize, usize); 4],
    len: usize,
}

impl Dirty {
    pub(crate) const NONE: Dirty = Dirty { ranges: [(0, 0); 4], len: 0 };

    pub(crate) fn all<const B: usize>() -> Dirty {
        let mut dirty = Dirty::NONE;
        dirty.mark(0, B);
        dirty
    }

    /// Notes bytes `from..to`.
    ///
    /// # Panics
    /// At the fifth range: an edit touches header, arrays and one cell.
    #[inline]
    pub(crate) fn mark(&mut self, from: usize, to: usize) {
        if from < to {
            self.ranges[self.len] = (from / WORD_BYTES, to.div_ceil(WORD_BYTES));
            self.len += 1;
        }
    }
}

/// Writes the changed words of a page over the tree node at word `base`, so that every reader either sees all
/// of the change or knows that it did not.
///
/// # The order
///
/// 1. front version odd,
/// 2. back version odd,
/// 3. release fence,
/// 4. the changed words,
/// 5. release fence,
/// 6. back version even,
/// 7. front version even.
///
/// A reader in place loads the front, reads, and loads the front again. With step 1 behind step 4 it could
/// read: front 6 (even), one new word, front 6 again, and return half a change.
///
/// A reader that copies in address order loads the front first and the back last. With step 2 behind step 4:
/// it loads front 6; the writer stores some words; it copies them and words that are not yet stored; it loads
/// back 6, equal to the front. With step 6 before step 4 the same happens at the other end: front 8 is not
/// stored yet, so it sees front 7 and rejects; but with step 7 before step 4 it loads front 8, old words,
/// then the writer finishes and it loads back 8. So both odd versions come before, and both even ones after,
/// the changed words; among themselves each pair may be seen in any order, at the price of a retry.
#[inline]
pub(crate) fn write_back<W: WordsMut + ?Sized, const B: usize>(
    words: &mut W,
    base: usize,
    page: &mut Page<B>,
    dirty: &Dirty,
    with_crc: bool,
) {
    let last = Page::<B>::WORDS - 1;
    if with_crc {
        let even = (words.load(base) | 1).wrapping_add(1);
        page.set_word(0, even);
        page.set_word(last, even);
    }
    let crc = if with_crc { page.crc() } else { 0 };
    page.set_word(CRC / WORD_BYTES, crc);
    begin_change::<W, B>(words, base);
    for &(from, to) in &dirty.ranges[..dirty.len] {
        let (from, to) = (from.max(1), to.min(last));
        words.store_all(base + from, &page.bytes.as_chunks().0[from..to.max(from)]);
    }
    end_change::<W, B>(words, base);
}

/// Steps 1 to 3 of a change: both versions odd.
#[inline]
pub(crate) fn begin_change<W: WordsMut + ?Sized, const B: usize>(words: &mut W, base: usize) {
    let odd = words.load(base) | 1;
    if mutant::planted(Mutant::SilentChange) {
        return;
    }
    words.store(base, odd);
    words.store(base + Page::<B>::WORDS - 1, odd);
    words.fence_release();
}

/// Steps 5 to 7 of a change: both versions even, and higher than before.
#[inline]
pub(crate) fn end_change<W: WordsMut + ?Sized, const B: usize>(words: &mut W, base: usize) {
    words.fence_release();
    let even = (words.load(base) | 1).wrapping_add(1);
    words.store(base + Page::<B>::WORDS - 1, even);
    words.store(base, even);
}
