//! What a search costs on one path: the mean of its latency, freshly measured each interval.

/// Earlier samples count for less by this factor each interval: two or three intervals are remembered. A
/// server whose core others use too stalls for several milliseconds at a time, so one interval has a stall
/// and the next has none; the mean has to cover both. A longer memory makes many clients swing together.
/// Where samples are rare, each new one is news.
const MEMORY_DECAY: f64 = 0.6;

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
        self.memory += count;
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

    /// Each second interval has 4 searches that waited for the worker's turn, among 40.
    #[test]
    fn stalls_of_each_second_interval_count_in_the_intervals_between() {
        let mut cost = PathCost::default();
        fold_of(&mut cost, [40_000; 40]);
        let means: Vec<f64> = (0..60)
            .map(|at| {
                let stalls = at % 2 == 0;
                fold_of(&mut cost, (0..40).map(|nth| if stalls && nth < 4 { 2_000_000 } else { 40_000 }))
            })
            .collect();
        let settled = &means[40..];
        assert!(settled.iter().all(|mean| (110_000.0..170_000.0).contains(mean)), "{settled:?}");
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
