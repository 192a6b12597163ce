//! Zipf-distributed ranks as YCSB draws them (Gray et al., "Quickly generating billion-record synthetic
//! databases", SIGMOD 1994), scattered over the items so that hot keys are not neighbours.

use crate::random::{Random, scatter};

/// YCSB's skew, and the paper's.
pub const THETA: f64 = 0.99;

/// Draws item ordinals below `items` with skew theta.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    alpha: f64,
    zeta_n: f64,
    eta: f64,
    half_power: f64,
}

impl Zipf {
    /// A distribution over `items` ordinals. Takes time linear in `items`, once.
    ///
    /// # Panics
    /// If `items` is zero or `theta` is not within (0, 1).
    pub fn new(items: u64, theta: f64) -> Self {
        assert!(items > 0 && theta > 0.0 && theta < 1.0, "Zipf needs items and a theta within (0, 1)");
        let zeta = |count: u64| -> f64 { (1..=count).map(|rank| (rank as f64).powf(-theta)).sum() };
        let zeta_n = zeta(items);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - zeta(2.min(items)) / zeta_n);
        Self { items, alpha: 1.0 / (1.0 - theta), zeta_n, eta, half_power: 0.5f64.powf(theta) }
    }

    /// A rank: 0 is the hottest.
    #[allow(clippy::cast_possible_truncation, reason = "the cast saturates: a rank past the end is the last")]
    pub fn rank(&self, random: &mut Random) -> u64 {
        let drawn = random.unit();
        let scaled = drawn * self.zeta_n;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + self.half_power {
            return 1.min(self.items - 1);
        }
        let rank = self.items as f64 * (self.eta * drawn - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }

    /// An item ordinal: ranks scattered by a hash, as YCSB's scrambled generator does.
    pub fn ordinal(&self, random: &mut Random) -> u64 {
        scatter(self.rank(random)) % self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_default_skew_hottest_has_its_share() {
        let zipf = Zipf::new(10_000, THETA);
        let mut random = Random::new(11);
        let draws = 200_000;
        let mut counts = vec![0u32; 10_000];
        for _ in 0..draws {
            counts[usize::try_from(zipf.rank(&mut random)).unwrap()] += 1;
        }
        let expected = 1.0 / (1..=10_000).map(|rank| f64::from(rank).powf(-THETA)).sum::<f64>();
        let share = f64::from(counts[0]) / f64::from(draws);
        assert!((share / expected - 1.0).abs() < 0.05, "share {share}, expected {expected}");
        assert!(counts[0] > counts[10] && counts[10] > counts[1_000]);
    }

    #[test]
    fn ordinals_single_item_is_always_it() {
        let zipf = Zipf::new(1, THETA);
        let mut random = Random::new(1);
        assert!((0..100).all(|_| zipf.ordinal(&mut random) == 0));
    }
}
