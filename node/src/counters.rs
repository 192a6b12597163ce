//! Running figures of a pair.

const WINDOW: usize = 512;

/// Counts a pair's batches and the times of the last ones.
#[derive(Debug)]
pub(crate) struct BatchCounters {
    pub(crate) batches: u64,
    pub(crate) log_bytes: u64,
    pub(crate) checkpoints: u64,
    sync_ns: [u64; WINDOW],
    syncs: usize,
}

impl BatchCounters {
    pub(crate) fn new() -> BatchCounters {
        BatchCounters { batches: 0, log_bytes: 0, checkpoints: 0, sync_ns: [0; WINDOW], syncs: 0 }
    }

    /// A batch became durable after so long.
    pub(crate) fn batch(&mut self, sync_ns: u64, bytes: u64) {
        self.sync_ns[self.syncs % WINDOW] = sync_ns;
        self.syncs += 1;
        self.batches += 1;
        self.log_bytes += bytes;
    }

    /// p50, p99 and the longest of the last batches, in microseconds.
    pub(crate) fn sync_us(&self) -> [u64; 3] {
        let mut times = self.sync_ns[..self.syncs.min(WINDOW)].to_vec();
        times.sort_unstable();
        let at = |share: usize| times.get((times.len() * share / 100).min(times.len().saturating_sub(1)));
        [50, 99, 100].map(|share| at(share).copied().unwrap_or(0) / 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_us_of_the_last_batches() {
        let mut counters = BatchCounters::new();
        assert_eq!(counters.sync_us(), [0, 0, 0]);
        for i in 1..=100 {
            counters.batch(i * 1_000, 4_096);
        }
        assert_eq!(counters.sync_us(), [51, 100, 100]);
    }
}
