//! Which record an operation picks: the generators of YCSB (Cooper et al., SoCC 2010), restated.
//!
//! * Zipfian: rank r of n is drawn with probability proportional to 1 / r^0.99.
//! * Scrambled: the rank is hashed over the records, so that popular ones are spread over the key space.
//! * Latest: rank 1 is the newest record.

use clap::ValueEnum;
use rand::{Rng, RngExt};
use rand_distr::{Distribution as _, Zipf};

use crate::output::number::real;

/// YCSB's constant: how uneven the popularity is.
pub(crate) const THETA: f64 = 0.99;

/// The whole part of a number that is not negative.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, which is what is wanted"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

/// FNV-1a over the number's eight bytes, as YCSB hashes record numbers.
pub(crate) fn fnv64(number: u64) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    number.to_le_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// A way of picking records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pick {
    /// Each as likely.
    Uniform,
    /// Few are popular, spread over the key space.
    Zipfian,
    /// The newest are popular.
    Latest,
}

/// Picks records in one way, draw by draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Picker {
    pick: Pick,
    /// What draws of a rank go by, and the number of records that it is for: it costs a power to make.
    zipf: Option<(u64, Zipf<f64>)>,
}

impl Picker {
    /// Picks so.
    pub(crate) fn new(pick: Pick) -> Picker {
        Picker { pick, zipf: None }
    }

    /// A record number below `count`, the number of records there are now.
    pub(crate) fn next(&mut self, random: &mut impl Rng, count: u64) -> u64 {
        match self.pick {
            Pick::Uniform => random.random_range(0..count),
            Pick::Zipfian => fnv64(self.rank(random, count)) % count,
            Pick::Latest => count - self.rank(random, count),
        }
    }

    /// A rank from 1, the most popular, to `count`.
    fn rank(&mut self, random: &mut impl Rng, count: u64) -> u64 {
        let zipf = match self.zipf {
            Some((known, zipf)) if known == count => zipf,
            _ => Zipf::new(real(count), THETA).expect("some records, and a constant"),
        };
        self.zipf = Some((count, zipf));
        whole(zipf.sample(random)).clamp(1, count)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn frequencies(count: u64, draws: u32) -> Vec<f64> {
        let (mut random, mut picker) = (Xoshiro256PlusPlus::seed_from_u64(1), Picker::new(Pick::Zipfian));
        let mut seen = vec![0.0; usize::try_from(count).unwrap()];
        for _ in 0..draws {
            seen[usize::try_from(picker.rank(&mut random, count) - 1).unwrap()] += 1.0 / f64::from(draws);
        }
        seen
    }

    #[test]
    fn next_popularity_follows_the_power_law() {
        let seen = frequencies(1000, 400_000);
        let zeta: f64 = (1..=1000).map(|rank| 1.0 / f64::from(rank).powf(THETA)).sum();
        for rank in [1_u32, 2, 10, 100] {
            let expected = 1.0 / f64::from(rank).powf(THETA) / zeta;
            let found = seen[usize::try_from(rank - 1).unwrap()];
            // Five standard deviations of the rarest of them.
            assert!((found / expected - 1.0).abs() < 0.2, "rank {rank}: {found} for {expected}");
        }
    }

    #[test]
    fn next_stays_below_the_count_and_latest_prefers_the_newest() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        for count in [1, 2, 3, 50] {
            for pick in [Pick::Uniform, Pick::Zipfian, Pick::Latest] {
                let mut picker = Picker::new(pick);
                assert!((0..2000).all(|_| picker.next(&mut random, count) < count), "{pick:?}");
            }
        }
        let mut latest = Picker::new(Pick::Latest);
        let newest = (0..1000).filter(|_| latest.next(&mut random, 100) >= 90).count();
        assert!(newest > 400, "{newest}");
    }

    /// While records are inserted their number changes now and then.
    #[test]
    fn next_of_a_picker_that_has_drawn_is_that_of_a_new_one() {
        for pick in [Pick::Uniform, Pick::Zipfian, Pick::Latest] {
            let [mut random, mut other] = [5, 5].map(Xoshiro256PlusPlus::seed_from_u64);
            let mut picker = Picker::new(pick);
            for count in [1000, 1000, 1001, 7, 1000, 1 << 40, 1 << 40] {
                let anew = Picker::new(pick).next(&mut other, count);
                assert_eq!(picker.next(&mut random, count), anew, "{pick:?} of {count}");
            }
        }
    }

    #[test]
    fn next_of_one_seed_repeats_and_of_another_differs() {
        let draw = |seed| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut picker = Picker::new(Pick::Zipfian);
            (0..8).map(|_| picker.next(&mut random, 1 << 40)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
