//! Seeded randomness for data and probes: SplitMix64, so that any item can be made again from its ordinal
//! alone.

use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::SplitMix64;

/// YCSB's skew, and the paper's.
const THETA: f64 = 0.99;

/// A SplitMix64 stream. Equal seeds give equal streams, on every machine.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

/// SplitMix64's first number of a seed: a bijection that scatters neighbouring inputs over all 64 bits.
#[inline]
pub fn scatter(input: u64) -> u64 {
    SplitMix64::seed_from_u64(input).next_u64()
}

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// The stream that belongs to item `ordinal` of the family `seed`: independent of its neighbours.
    pub fn of_item(seed: u64, ordinal: u64) -> Self {
        Self::new(scatter(seed ^ scatter(ordinal)))
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, uniform but for a bias of at most bound / 2^64. (By the library's own method
    /// the data of earlier figures would be other data.)
    ///
    /// # Panics
    /// If `bound` is zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        let product = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(product >> 64).expect("the high half of a 128-bit product fits 64 bits")
    }

    /// A number below `items` with YCSB's skew: ranks scattered by a hash, so that hot items lie apart.
    ///
    /// # Panics
    /// If `items` is zero.
    pub fn popular(&mut self, items: u64) -> u64 {
        scatter(self.rank(items)) % items
    }

    /// 0 is the hottest.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number from 1 on")]
    fn rank(&mut self, items: u64) -> u64 {
        let zipf = Zipf::new(items as f64, THETA).expect("some items, and a constant");
        (zipf.sample(&mut self.0) as u64).clamp(1, items) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_same_seed_repeats() {
        let (mut left, mut right) = (Random::new(7), Random::new(7));
        assert!((0..100).all(|_| left.next_u64() == right.next_u64()));
    }

    #[test]
    fn items_neighbouring_ordinals_differ() {
        assert_ne!(Random::of_item(1, 1).next_u64(), Random::of_item(1, 2).next_u64());
        assert_ne!(Random::of_item(1, 1).next_u64(), Random::of_item(2, 1).next_u64());
    }

    #[test]
    fn below_many_draws_stays_under_and_reaches_all() {
        let mut random = Random::new(3);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[usize::try_from(random.below(10)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|&count| count > 800), "{seen:?}");
    }

    #[test]
    fn ranks_default_skew_hottest_has_its_share() {
        let mut random = Random::new(11);
        let draws = 200_000;
        let mut counts = vec![0u32; 10_000];
        for _ in 0..draws {
            counts[usize::try_from(random.rank(10_000)).unwrap()] += 1;
        }
        let expected = 1.0 / (1..=10_000).map(|rank| f64::from(rank).powf(-THETA)).sum::<f64>();
        let share = f64::from(counts[0]) / f64::from(draws);
        assert!((share / expected - 1.0).abs() < 0.05, "share {share}, expected {expected}");
        assert!(counts[0] > counts[10] && counts[10] > counts[1_000]);
    }

    #[test]
    fn popular_single_item_is_always_it() {
        let mut random = Random::new(1);
        assert!((0..100).all(|_| random.popular(1) == 0));
    }

    /// Figures of earlier runs are over the same data.
    #[test]
    fn stream_is_splitmix64_as_it_was() {
        assert_eq!(scatter(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(Random::new(0).next_u64(), 0xe220_a839_7b1d_cdaf);
    }
}
