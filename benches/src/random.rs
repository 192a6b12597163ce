//! Seeded randomness for data and probes: SplitMix64, so that any item can be made again from its ordinal
//! alone.

/// A SplitMix64 stream. Equal seeds give equal streams, on every machine.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64's finaliser: a bijection that scatters neighbouring inputs over all 64 bits.
#[inline]
pub fn scatter(input: u64) -> u64 {
    let mut mixed = input.wrapping_add(GOLDEN);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The stream that belongs to item `ordinal` of the family `seed`: independent of its neighbours.
    pub fn of_item(seed: u64, ordinal: u64) -> Self {
        Self { state: scatter(seed ^ scatter(ordinal)) }
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let output = scatter(self.state);
        self.state = self.state.wrapping_add(GOLDEN);
        output
    }

    /// A number below `bound`, uniform but for a bias of at most bound / 2^64.
    ///
    /// # Panics
    /// If `bound` is zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        let product = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(product >> 64).expect("the high half of a 128-bit product fits 64 bits")
    }

    /// A number in [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        // 53 bits: what a double holds exactly.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
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
}
