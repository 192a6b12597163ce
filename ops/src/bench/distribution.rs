//! Which record an operation picks: the generators of YCSB (Cooper et al., SoCC 2010), restated.
//!
//! * Zipfian: rank r of n is drawn with probability proportional to 1 / r^0.99, by the method of Gray et al.
//!   (SIGMOD 1994). Its normaliser zeta(n) is computed once and extended when records are added.
//! * Scrambled: the rank is hashed over the records, so that popular ones are spread over the key space.
//! * Latest: rank 0 is the newest record.

use clap::ValueEnum;

use super::random::Random;
use crate::output::number::real;

/// YCSB's constant: how uneven the popularity is.
pub(crate) const THETA: f64 = 0.99;

/// Draws ranks below a count that may grow.
#[derive(Clone, Debug)]
pub(crate) struct Zipfian {
    count: u64,
    zeta: f64,
    zeta_2: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    /// Over `count` ranks. Takes time proportional to the count, once.
    pub(crate) fn new(count: u64) -> Zipfian {
        assert!(count > 0, "a distribution over nothing");
        let mut zipfian = Zipfian {
            count: 0,
            zeta: 0.0,
            zeta_2: 1.0 + 0.5_f64.powf(THETA),
            alpha: 1.0 / (1.0 - THETA),
            eta: 0.0,
        };
        zipfian.grow(count);
        zipfian
    }

    /// Makes it a distribution over more ranks; fewer are ignored.
    pub(crate) fn grow(&mut self, count: u64) {
        if count <= self.count {
            return;
        }
        for rank in self.count + 1..=count {
            self.zeta += 1.0 / real(rank).powf(THETA);
        }
        self.count = count;
        self.eta = (1.0 - (2.0 / real(count)).powf(1.0 - THETA)) / (1.0 - self.zeta_2 / self.zeta);
    }

    /// A rank from 0, the most popular, to `count - 1`.
    pub(crate) fn next(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 || self.count == 1 {
            return 0;
        }
        if scaled < self.zeta_2 || self.count == 2 {
            return 1;
        }
        let rank = real(self.count) * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        whole(rank).min(self.count - 1)
    }
}

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

/// What picks records.
#[derive(Clone, Debug)]
pub(crate) enum Distribution {
    /// Each as likely.
    Uniform,
    /// Few are popular, spread over the key space.
    Scrambled(Zipfian),
    /// The newest are popular.
    Latest(Zipfian),
}

impl Distribution {
    /// Picks in this way among `records`; takes time proportional to them, once.
    pub(crate) fn new(pick: Pick, records: u64) -> Distribution {
        match pick {
            Pick::Uniform => Distribution::Uniform,
            Pick::Zipfian => Distribution::Scrambled(Zipfian::new(records)),
            Pick::Latest => Distribution::Latest(Zipfian::new(records)),
        }
    }

    /// A record number below `count`, the number of records there are now.
    pub(crate) fn next(&mut self, random: &mut Random, count: u64) -> u64 {
        match self {
            Distribution::Uniform => random.below(count),
            Distribution::Scrambled(zipfian) => fnv64(zipfian.next(random)) % count,
            Distribution::Latest(zipfian) => {
                zipfian.grow(count);
                count - 1 - zipfian.next(random).min(count - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frequencies(count: u64, draws: u32) -> Vec<f64> {
        let (zipfian, mut random) = (Zipfian::new(count), Random::new(1));
        let mut seen = vec![0.0; usize::try_from(count).unwrap()];
        for _ in 0..draws {
            seen[usize::try_from(zipfian.next(&mut random)).unwrap()] += 1.0 / f64::from(draws);
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
            // Gray's method is exact for the first two ranks and an approximation beyond.
            assert!((found / expected - 1.0).abs() < 0.25, "rank {rank}: {found} for {expected}");
        }
    }

    #[test]
    fn grow_equals_a_new_one() {
        let mut grown = Zipfian::new(10);
        grown.grow(1000);
        let fresh = Zipfian::new(1000);
        assert!((grown.zeta - fresh.zeta).abs() < 1e-9 && (grown.eta - fresh.eta).abs() < 1e-9);
    }

    #[test]
    fn next_stays_below_the_count_and_latest_prefers_the_newest() {
        let mut random = Random::new(2);
        for count in [1, 2, 3, 50] {
            for pick in [Pick::Uniform, Pick::Zipfian, Pick::Latest] {
                let mut distribution = Distribution::new(pick, count);
                assert!((0..2000).all(|_| distribution.next(&mut random, count) < count), "{distribution:?}");
            }
        }
        let mut latest = Distribution::Latest(Zipfian::new(100));
        let newest = (0..1000).filter(|_| latest.next(&mut random, 100) >= 90).count();
        assert!(newest > 400, "{newest}");
    }
}
