//! Counts the cache lines that a search touches, and how many of them a last-level cache would not have had.
//!
//! Guests have no counters of cache misses, so a model stands in: every load goes through a set-associative
//! cache with least-recently-used replacement, of this machine's last level's size. It knows no prefetcher,
//! no other levels and no other tenants; cachegrind is the second witness.

use std::cell::RefCell;

use cell_terms::Words;

use crate::chase::LINE_WORDS;

const WAYS: usize = 16;

/// What was touched since the last [`Traced::take`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Distinct lines.
    pub lines: usize,
    /// Of those, the lines that the cache did not have.
    pub misses: usize,
    /// Tree nodes (of the block size given) that had at least one such line: a chain of misses, each of which
    /// had to end before the next could begin.
    pub blocks_missed: usize,
}

#[derive(Debug)]
struct Trace {
    /// Lines of this operation.
    seen: Vec<usize>,
    missed: Vec<usize>,
    sets: Vec<[usize; WAYS]>,
}

/// Words that keep account of what is read of them.
pub struct Traced<'a, W: ?Sized> {
    words: &'a W,
    block_lines: usize,
    trace: RefCell<Trace>,
}

impl<'a, W: Words + ?Sized> Traced<'a, W> {
    /// Traces `words` through a cache of `cache_bytes`; blocks are `block_bytes` long.
    pub fn new(words: &'a W, cache_bytes: usize, block_bytes: usize) -> Self {
        let sets = (cache_bytes / 64 / WAYS).next_power_of_two();
        let trace = Trace { seen: Vec::new(), missed: Vec::new(), sets: vec![[usize::MAX; WAYS]; sets] };
        Self { words, block_lines: block_bytes / 64, trace: RefCell::new(trace) }
    }

    /// Ends an operation: what it touched.
    pub fn take(&self) -> Touched {
        let mut trace = self.trace.borrow_mut();
        let lines = trace.seen.len();
        let misses = trace.missed.len();
        let mut blocks: Vec<usize> = trace.missed.iter().map(|line| line / self.block_lines).collect();
        blocks.sort_unstable();
        blocks.dedup();
        trace.seen.clear();
        trace.missed.clear();
        Touched { lines, misses, blocks_missed: blocks.len() }
    }
}

impl Trace {
    fn touch(&mut self, line: usize) {
        if self.seen.contains(&line) {
            return;
        }
        self.seen.push(line);
        let index =
            usize::try_from(crate::random::scatter(line as u64)).unwrap_or(line) & (self.sets.len() - 1);
        let set = &mut self.sets[index];
        let place = set.iter().position(|&kept| kept == line);
        if place.is_none() {
            self.missed.push(line);
        }
        set[..=place.unwrap_or(WAYS - 1)].rotate_right(1);
        set[0] = line;
    }
}

impl<W: Words + ?Sized> Words for Traced<'_, W> {
    fn load(&self, index: usize) -> u64 {
        self.trace.borrow_mut().touch(index / LINE_WORDS);
        self.words.load(index)
    }

    fn len(&self) -> usize {
        self.words.len()
    }

    fn prefetch(&self, _index: usize) {}
}

/// Bytes of this machine's last-level cache, 32 MiB where it cannot be learnt.
pub fn cache_bytes() -> usize {
    (0..8)
        .filter_map(|level| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{level}/size");
            let text = std::fs::read_to_string(path).ok()?;
            text.trim().strip_suffix('K')?.parse::<usize>().ok()
        })
        .max()
        .map_or(32 << 20, |kibibytes| kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_repeated_loads_count_once_and_hit_the_second_time() {
        let words = vec![7u64; 1024];
        let traced = Traced::new(words.as_slice(), 1 << 20, 1024);
        for index in [0, 1, 7, 8, 128] {
            traced.load(index);
        }
        assert_eq!(traced.take(), Touched { lines: 3, misses: 3, blocks_missed: 2 });
        traced.load(3);
        assert_eq!(traced.take(), Touched { lines: 1, misses: 0, blocks_missed: 0 });
    }

    #[test]
    fn trace_more_than_the_cache_holds_evicts_the_oldest() {
        let words = vec![0u64; 1 << 16];
        let traced = Traced::new(words.as_slice(), 64 * WAYS, 1024);
        for line in 0..=WAYS {
            traced.load(line * LINE_WORDS);
        }
        traced.take();
        traced.load(0);
        assert_eq!(traced.take().misses, 1);
    }
}
