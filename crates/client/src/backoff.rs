//! How long to wait before the next attempt: twice as long each time, with jitter, so that many clients that
//! were refused together do not come back together.

use cell_random::Random;

/// Bounds of the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}
