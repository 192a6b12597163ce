//! The one seeded generator: SplitMix64 (Steele et al., OOPSLA 2014). Simulated network and disk, the
//! simulator, the client's waits, tests and benches draw from it.
//!
//! Written out here and not a library's: what the simulator's kept seeds mean depends on each of its numbers,
//! so no method may draw more or fewer numbers than it does. Secrets take the system's randomness.

/// A generator whose every number follows from its seed, on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed; any seed is as good as any other.
    #[must_use]
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A generator of its own for a part, so that one more draw there does not change everything here.
    pub fn part(&mut self) -> Random {
        Random(self.next())
    }

    /// The next number.
    #[inline]
    #[allow(
        clippy::should_implement_trait,
        reason = "adapters of an endless iterator hide how much is drawn"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// From 0 up to, not including, `limit`; 0 if the limit is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// An index into something of this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// One of some.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// True so many times of a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// An index, with these weights.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        0
    }

    /// A length of time: often near `typical`, now and then up to twenty times as long.
    pub fn time_ns(&mut self, typical: u64) -> u64 {
        let most = if self.percent(10) { typical * 20 } else { typical * 2 };
        self.between(1, most.max(1))
    }
}

/// SplitMix64's finaliser: a bijection that scatters neighbouring inputs.
#[must_use]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the authors' program. The kept seeds rest on these numbers.
    #[test]
    fn stream_is_splitmix64() {
        let mut random = Random::new(0);
        let first = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!(first.map(|_| random.next()), first);
        let mut random = Random::new(1_234_567);
        let second = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(second.map(|_| random.next()), second);
    }

    /// Each draws as many numbers as ever, whatever there is to choose from.
    #[test]
    fn draws_of_one_seed_are_pinned() {
        let mut random = Random::new(42);
        let drawn = (random.below(0), random.below(1_000), random.between(7, 7), random.between(5, 9));
        assert_eq!(drawn, (0, 291, 7, 9));
        let drawn =
            (random.index(10), random.pick(&[1, 2, 3]), random.percent(50), random.weighted(&[1, 0, 3]));
        assert_eq!(drawn, (0, 1, true, 0));
        let drawn = (random.time_ns(1_000), random.part().next(), random.next());
        assert_eq!(drawn, (8_975, 15_294_288_501_336_970_633, 9_094_045_341_461_139_646));
    }

    #[test]
    fn weighted_picks_none_without_weight() {
        let mut random = Random::new(1);
        let mut seen = [0; 3];
        for _ in 0..1_000 {
            seen[random.weighted(&[1, 0, 3])] += 1;
        }
        assert!(seen[0] > 100 && seen[1] == 0 && seen[2] > 500, "{seen:?}");
    }
}
