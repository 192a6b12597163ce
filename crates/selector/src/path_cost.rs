//! What a search costs on one path: the mean of its latency, freshly measured each interval.

/// So many earlier samples count at most beside those of an interval.
const MEMORY_SAMPLES: f64 = 16.0;

/// They count for less by this factor each interval: where samples are rare, each new one is news.
const MEMORY_DECAY: f64 = 0.9;

/// One interval lifts the mean to so many times itself at most: one slow sample is no news yet.
const RISE_MAX: f64 = 8.0;

/// See the module's text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathCost {
    /// Of the present interval.
    sum_ns: u64,
    count: u32,
    /// Since the history began.
    samples: u32,
    mean_ns: f64,
    /// The lowest since the history began.
    lowest_ns: Option<u64>,
    /// Earlier samples that count.
    memory: f64,
}

impl PathCost {
    /// Takes a latency in.
    #[inline]
    pub(crate) fn push(&mut self, latency_ns: u64) {
        self.sum_ns = self.sum_ns.saturating_add(latency_ns);
        self.lowest_ns = Some(self.lowest_ns.map_or(latency_ns, |lowest_ns| lowest_ns.min(latency_ns)));
        self.count = self.count.saturating_add(1);
        self.samples = self.samples.saturating_add(1);
    }

    /// Samples since the history began, and those of the present interval.
    pub(crate) fn samples(&self) -> u32 {
        self.samples
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The interval is over: the mean moves towards that of its samples, the further the more there were.
    pub(crate) fn fold(&mut self) {
        self.memory *= MEMORY_DECAY;
        if self.count == 0 {
            return;
        }
        let count = f64::from(self.count);
        let fresh_ns = self.sum_ns as f64 / count;
        if self.mean_ns == 0.0 {
            self.mean_ns = fresh_ns.max(1.0);
        } else {
            let fresh_ns = fresh_ns.clamp(1.0, self.mean_ns * RISE_MAX);
            self.mean_ns += (fresh_ns - self.mean_ns) * count / (count + self.memory);
        }
        self.memory = (self.memory + count).min(MEMORY_SAMPLES);
        (self.sum_ns, self.count) = (0, 0);
    }

    /// The lowest latency.
    pub(crate) fn lowest_ns(&self) -> Option<u64> {
        self.lowest_ns
    }

    /// The mean latency, once an interval with samples is over.
    pub(crate) fn mean_ns(&self) -> Option<f64> {
        (self.mean_ns > 0.0).then_some(self.mean_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold_of(cost: &mut PathCost, latencies: impl IntoIterator<Item = u64>) -> f64 {
        latencies.into_iter().for_each(|latency_ns| cost.push(latency_ns));
        cost.fold();
        cost.mean_ns().unwrap()
    }

    #[test]
    fn one_slow_sample_moves_the_mean_a_little_and_many_replace_it() {
        let mut cost = PathCost::default();
        assert_eq!(cost.mean_ns(), None);
        assert_eq!(fold_of(&mut cost, [1000; 50]), 1000.0);
        assert!(fold_of(&mut cost, [4_000_000]) < 1500.0);
        let mut intervals = 0;
        while fold_of(&mut cost, [4_000_000; 50]) < 3_900_000.0 {
            intervals += 1;
        }
        assert!(intervals < 12, "{intervals}");
    }

    #[test]
    fn stalls_that_are_rare_but_cost_much_count() {
        let mut cost = PathCost::default();
        fold_of(&mut cost, [30_000; 100]);
        for _ in 0..20 {
            fold_of(&mut cost, (0..100).map(|at| if at == 7 { 4_000_000 } else { 30_000 }));
        }
        assert!(cost.mean_ns().unwrap() > 60_000.0, "{cost:?}");
    }
}
