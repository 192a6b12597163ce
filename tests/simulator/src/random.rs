//! The simulator's randomness: one seed, one sequence (SplitMix64, Steele et al., OOPSLA 2014). Parts of the
//! world draw from sequences of their own, so that one more draw here does not change everything there.

/// A generator whose every number follows from its seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A generator of its own for a part of the world.
    pub fn part(&mut self) -> Random {
        Random(self.next())
    }

    /// The next number.
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
        low + self.below(high.saturating_sub(low) + 1)
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

/// SplitMix64's finaliser.
#[must_use]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

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
