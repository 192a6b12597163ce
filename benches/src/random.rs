//! What data and probes are drawn by, so that any item can be made again from its ordinal alone.

use cell_random::Random;
use rand::SeedableRng;
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::SplitMix64;

/// YCSB's skew, and the paper's.
const THETA: f64 = 0.99;

/// The first number of a seed: a bijection that scatters neighbouring inputs over all 64 bits.
#[inline]
pub fn scatter(input: u64) -> u64 {
    Random::new(input).next()
}

/// The stream that belongs to item `ordinal` of the family `seed`: independent of its neighbours.
pub fn of_item(seed: u64, ordinal: u64) -> Random {
    Random::new(scatter(seed ^ scatter(ordinal)))
}

/// A number below `bound`, as [`Random::below`] but without a division: for timed loops, and for the data,
/// which is that of earlier figures.
///
/// # Panics
/// If `bound` is zero.
#[inline]
pub fn scaled(random: &mut Random, bound: u64) -> u64 {
    assert!(bound > 0, "no number is below zero");
    let product = u128::from(random.next()) * u128::from(bound);
    u64::try_from(product >> 64).expect("the high half of a 128-bit product fits 64 bits")
}

/// A number below `items` with YCSB's skew: ranks scattered by a hash, so that hot items lie apart.
///
/// # Panics
/// If `items` is zero.
pub fn popular(random: &mut Random, items: u64) -> u64 {
    scatter(rank(random, items)) % items
}

/// 0 is the hottest.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number from 1 on")]
fn rank(random: &mut Random, items: u64) -> u64 {
    let zipf = Zipf::new(items as f64, THETA).expect("some items, and a constant");
    // The library draws by its own generators.
    let mut generator = SplitMix64::seed_from_u64(random.next());
    (zipf.sample(&mut generator) as u64).clamp(1, items) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_neighbouring_ordinals_differ() {
        assert_ne!(of_item(1, 1).next(), of_item(1, 2).next());
        assert_ne!(of_item(1, 1).next(), of_item(2, 1).next());
    }

    #[test]
    fn scaled_many_draws_stays_under_and_reaches_all() {
        let mut random = Random::new(3);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[usize::try_from(scaled(&mut random, 10)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|&count| count > 800), "{seen:?}");
    }

    #[test]
    fn ranks_default_skew_hottest_has_its_share() {
        let mut random = Random::new(11);
        let draws = 200_000;
        let mut counts = vec![0u32; 10_000];
        for _ in 0..draws {
            counts[usize::try_from(rank(&mut random, 10_000)).unwrap()] += 1;
        }
        let expected = 1.0 / (1..=10_000).map(|rank| f64::from(rank).powf(-THETA)).sum::<f64>();
        let share = f64::from(counts[0]) / f64::from(draws);
        assert!((share / expected - 1.0).abs() < 0.05, "share {share}, expected {expected}");
        assert!(counts[0] > counts[10] && counts[10] > counts[1_000]);
    }

    #[test]
    fn popular_single_item_is_always_it() {
        let mut random = Random::new(1);
        assert!((0..100).all(|_| popular(&mut random, 1) == 0));
    }
}
