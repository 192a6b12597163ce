//! What this machine's memory costs, measured in the run that is judged by it: a dependent miss (a pointer
//! chase over every line of an area far larger than the caches) and an independent one (random lines that the
//! processor may fetch side by side).

use std::time::Instant;

use cell_random::Random;
use cell_terms::{Words, WordsMut};

use crate::random::scaled;

/// Words of a cache line.
pub const LINE_WORDS: usize = 8;

/// Nanoseconds a miss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// When the next address is only known once the line is there.
    pub dependent_ns: f64,
    /// When addresses are known beforehand.
    pub independent_ns: f64,
}

/// Writes one cycle through all lines of `words` from line `first` on, in random order (Sattolo's shuffle).
///
/// # Panics
/// If fewer than two lines are left.
pub fn prepare<W: WordsMut + ?Sized>(words: &mut W, first: usize, seed: u64) {
    let lines = words.len() / LINE_WORDS;
    assert!(lines > first + 1, "a chase needs two lines");
    let mut order: Vec<usize> = (first..lines).collect();
    let mut random = Random::new(seed);
    for index in (1..order.len()).rev() {
        order.swap(index, random.index(index));
    }
    for (position, &line) in order.iter().enumerate() {
        let next = order[(position + 1) % order.len()];
        words.store(line * LINE_WORDS, next as u64);
    }
}

/// Chases and strides `steps` lines of words that [`prepare`] wrote.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
pub fn measure<W: Words + ?Sized>(words: &W, first: usize, steps: usize, seed: u64) -> Latency {
    let start = Instant::now();
    let mut line = first;
    for _ in 0..steps {
        line = usize::try_from(words.load(line * LINE_WORDS)).unwrap_or(first);
    }
    std::hint::black_box(line);
    let dependent = start.elapsed();

    let lines = (words.len() / LINE_WORDS - first) as u64;
    let mut random = Random::new(seed);
    let start = Instant::now();
    let mut sum = 0u64;
    for _ in 0..steps {
        let line = first + usize::try_from(scaled(&mut random, lines)).unwrap_or(0);
        sum = sum.wrapping_add(words.load(line * LINE_WORDS));
    }
    std::hint::black_box(sum);
    let independent = start.elapsed();
    let nanoseconds = |taken: std::time::Duration| taken.as_secs_f64() * 1e9 / steps as f64;
    Latency { dependent_ns: nanoseconds(dependent), independent_ns: nanoseconds(independent) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepare_any_area_is_one_cycle_through_all_lines() {
        let mut words = vec![0u64; 100 * LINE_WORDS];
        prepare(words.as_mut_slice(), 3, 1);
        let mut line = 3;
        let mut seen = std::collections::HashSet::new();
        while seen.insert(line) {
            line = usize::try_from(words[line * LINE_WORDS]).unwrap();
        }
        assert_eq!(seen.len(), 97);
        let latency = measure(words.as_slice(), 3, 1_000, 1);
        assert!(latency.dependent_ns > 0.0 && latency.independent_ns > 0.0);
        assert_eq!(words.as_slice().load(0), 0);
    }
}
