//! A small seeded generator: xoshiro256++ (Blackman and Vigna), seeded by splitmix64. Runs with one seed
//! repeat.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    /// A stream of its own for each seed.
    pub(crate) fn new(seed: u64) -> Random {
        let mut seed = seed;
        Random { state: std::array::from_fn(|_| split_mix(&mut seed)) }
    }

    /// The next 64 bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        let state = &mut self.state;
        let result = state[0].wrapping_add(state[3]).rotate_left(23).wrapping_add(state[0]);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }

    /// A number below `bound`, each as likely as any other to within 2^-64.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        u64::try_from((u128::from(self.next_u64()) * u128::from(bound)) >> 64).expect("below the bound")
    }

    /// A real number in [0, 1).
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit a double")]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_one_seed_repeats_and_another_differs() {
        let draw = |seed| {
            (0..4)
                .map({
                    let mut r = Random::new(seed);
                    move |_| r.next_u64()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn below_stays_below_and_covers() {
        let mut random = Random::new(3);
        let mut seen = [0_u32; 7];
        for _ in 0..7000 {
            seen[usize::try_from(random.below(7)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
    }
}
