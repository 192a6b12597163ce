//! Live memory as words. `tree` searches and changes any source of words: a mapped region, a copied tree
//! node, a model checker's cells.

/// Words of a cache line.
pub const WORDS_PER_LINE: usize = 8;

/// Reads of live memory, one 64-bit word at a time, while a writer may change it.
///
/// Loads are atomic and relaxed: a word is never torn, but two words may be of different times. A reader that
/// needs a consistent picture validates versions around its loads, with the fences below.
pub trait Words {
    /// The word at `index`. Relaxed.
    ///
    /// # Panics
    /// If `index` is out of range: callers check geometry before they follow a pointer.
    fn load(&self, index: usize) -> u64;

    /// Copies words out as they are stored, from `start` on, each atomic, not together so. Relaxed.
    ///
    /// # Panics
    /// If they are not all in range.
    #[inline]
    fn copy(&self, start: usize, out: &mut [[u8; 8]]) {
        for (i, to) in out.iter_mut().enumerate() {
            *to = self.load(start + i).to_le_bytes();
        }
    }

    /// As [`Words::copy`], as numbers.
    ///
    /// # Panics
    /// If they are not all in range.
    #[inline]
    fn copy_words(&self, start: usize, out: &mut [u64]) {
        for (i, to) in out.iter_mut().enumerate() {
            *to = self.load(start + i);
        }
    }

    /// How many words there are.
    fn len(&self) -> usize;

    /// Whether there is no word at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks for the cache line of `index`; a hint, no effect that can be seen. Out of range is ignored.
    fn prefetch(&self, index: usize);

    /// As [`Words::prefetch`], of so many lines from that of `index` on.
    #[inline(always)]
    fn prefetch_lines(&self, index: usize, lines: usize) {
        (0..lines).for_each(|line| self.prefetch(index + WORDS_PER_LINE * line));
    }

    /// Loads before this fence are ordered before loads after it (acquire).
    fn fence_acquire(&self) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
    }
}

/// Writes of live memory, by the single writer of a pair.
pub trait WordsMut: Words {
    /// Stores a word. Relaxed.
    ///
    /// # Panics
    /// If `index` is out of range.
    fn store(&mut self, index: usize, word: u64);

    /// Stores words as they are copied, from `start` on, each atomic, not together so. Relaxed.
    ///
    /// # Panics
    /// If they are not all in range.
    #[inline]
    fn store_all(&mut self, start: usize, words: &[[u8; 8]]) {
        for (i, word) in words.iter().enumerate() {
            self.store(start + i, u64::from_le_bytes(*word));
        }
    }

    /// Stores before this fence are ordered before stores after it (release).
    fn fence_release(&self) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
    }
}

impl Words for [u64] {
    #[inline(always)]
    fn load(&self, index: usize) -> u64 {
        self[index]
    }

    #[inline(always)]
    fn len(&self) -> usize {
        <[u64]>::len(self)
    }

    #[inline(always)]
    fn prefetch(&self, _index: usize) {}
}

impl WordsMut for [u64] {
    #[inline(always)]
    fn store(&mut self, index: usize, word: u64) {
        self[index] = word;
    }
}
