//! The simulated network's own randomness: one seed, one sequence (SplitMix64).

/// A generator whose every number follows from its seed.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `low` to `high`, both included. The bias of the remainder does not matter here.
    pub(super) const fn between(&mut self, low: u64, high: u64) -> u64 {
        if high <= low {
            return low;
        }
        low + self.next() % (high - low).saturating_add(1)
    }

    /// From 0 up to, not including, `count`, which is not zero.
    pub(super) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % (count as u64)).unwrap_or(0)
    }

    /// True `per_million` times of a million.
    pub(super) const fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.next() % 1_000_000 < per_million as u64
    }
}
