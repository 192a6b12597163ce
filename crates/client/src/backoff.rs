//! How long to wait before the next attempt: twice as long each time, with jitter, so that many clients that
//! were refused together do not come back together.

/// A small generator (SplitMix64, Steele et al., OOPSLA 2014). Seeded by the shell, so that a simulated
/// client does the same again. Ours stays: with another generator each kept seed of the simulator would mean
/// another run.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Bounds of the wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    shortest_ns: u64,
    longest_ns: u64,
}

impl Backoff {
    pub(crate) fn new(shortest_ms: u64, longest_ms: u64) -> Backoff {
        let shortest_ns = shortest_ms.max(1).saturating_mul(1_000_000);
        Backoff { shortest_ns, longest_ns: longest_ms.saturating_mul(1_000_000).max(shortest_ns) }
    }

    /// The wait after so many failed attempts: between half of the doubled wait and the whole.
    pub(crate) fn wait_ns(&self, failed_count: u32, random: &mut Random) -> u64 {
        let doublings = failed_count.saturating_sub(1).min(40);
        let whole = self.shortest_ns.saturating_mul(1 << doublings).min(self.longest_ns);
        whole - random.next() % (whole / 2 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_grows_to_the_longest_and_stays_there() {
        let backoff = Backoff::new(1, 100);
        let mut random = Random::new(1);
        for failed_count in 1..200 {
            let whole = (1u64 << (failed_count - 1).min(20)).min(100) * 1_000_000;
            let wait = backoff.wait_ns(failed_count, &mut random);
            assert!(wait >= whole / 2 && wait <= whole, "{failed_count}: {wait}");
        }
    }

    #[test]
    fn random_same_seed_same_numbers() {
        let mut one = Random::new(7);
        let mut two = Random::new(7);
        let numbers: Vec<u64> = (0..4).map(|_| one.next()).collect();
        assert_eq!(numbers, (0..4).map(|_| two.next()).collect::<Vec<_>>());
        assert_eq!(numbers.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    }
}
