//! What was done in a run, and how long it took.

/// Steps of a latency's doubling that are distinguished: two per cent.
const STEPS: u64 = 32;

/// How often which latency occurred.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    counts: Vec<u32>,
    sum_ns: f64,
    count: u64,
}

impl Latencies {
    pub(crate) fn add(&mut self, latency_ns: u64) {
        let at = bucket(latency_ns);
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.sum_ns += latency_ns as f64;
        self.count += 1;
    }

    /// The latency that this part of all do not exceed, in microseconds; 0 of nothing.
    pub(crate) fn quantile_us(&self, part: f64) -> f64 {
        let mut left = part * self.count as f64;
        for (at, count) in self.counts.iter().enumerate() {
            left -= f64::from(*count);
            if left <= 0.0 && *count > 0 {
                return middle_ns(at) / 1e3;
            }
        }
        0.0
    }

    pub(crate) fn mean_us(&self) -> f64 {
        self.sum_ns / self.count.max(1) as f64 / 1e3
    }

    pub(crate) fn merge(&mut self, other: &Latencies) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(ours, theirs)| *ours += theirs);
        self.sum_ns += other.sum_ns;
        self.count += other.count;
    }
}

fn bucket(latency_ns: u64) -> usize {
    let latency_ns = latency_ns.max(STEPS);
    let doublings = latency_ns.ilog2() - STEPS.ilog2();
    let at = u64::from(doublings) * STEPS + (latency_ns >> doublings) - STEPS;
    usize::try_from(at).expect("64 bits")
}

fn middle_ns(bucket: usize) -> f64 {
    let (doublings, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    ((STEPS + step) as f64 + 0.5) * (1_u64 << doublings) as f64
}

/// From which one on all hold: the first after the last that does not. Nothing if the last one does not.
pub(crate) fn stays_from(holds: &[bool]) -> Option<usize> {
    let from = holds.iter().rposition(|holds| !holds).map_or(0, |at| at + 1);
    (from < holds.len()).then_some(from)
}

/// What a group of clients did within a window of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    pub(crate) done: u64,
    /// Of these: searches and gets, and those of them that the server did.
    pub(crate) searches: u64,
    pub(crate) server_side: u64,
    /// Of searches and gets.
    pub(crate) latencies: Latencies,
}

impl Window {
    fn add(&mut self, other: &Window) {
        self.done += other.done;
        self.searches += other.searches;
        self.server_side += other.server_side;
        self.latencies.merge(&other.latencies);
    }

    /// The part of the searches that the server did.
    pub(crate) fn share(&self) -> f64 {
        self.server_side as f64 / self.searches.max(1) as f64
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub(crate) window_ns: u64,
    /// Windows that are not counted.
    pub(crate) warm: usize,
    /// By group and window.
    pub(crate) windows: Vec<Vec<Window>>,
    /// After the warm time. Operations by process, and the parts of that time that its core was busy.
    pub(crate) done: Vec<u64>,
    pub(crate) core_busy: Vec<f64>,
    /// The parts of it that the two engines of each card were busy.
    pub(crate) card_busy: Vec<[f64; 2]>,
    /// Meganodes whose split has started.
    pub(crate) splits: u64,
    /// Decisions, and those that were made without enough samples.
    pub(crate) decided: u64,
    pub(crate) unknown: u64,
}

impl Observed {
    /// Everything that a group did between two windows.
    pub(crate) fn between(&self, group: usize, from: usize, to: usize) -> Window {
        let mut all = Window::default();
        self.windows[group][from..to].iter().for_each(|window| all.add(window));
        all
    }

    /// What all groups did after the warm time.
    pub(crate) fn total(&self) -> Window {
        let mut all = Window::default();
        for group in 0..self.windows.len() {
            all.add(&self.between(group, self.warm, self.windows[group].len()));
        }
        all
    }

    fn counted_ns(&self) -> f64 {
        let windows = self.windows.first().map_or(0, Vec::len) - self.warm;
        windows as f64 * self.window_ns as f64
    }

    /// Thousands of operations a second.
    pub(crate) fn rate_k(&self) -> f64 {
        self.total().done as f64 / self.counted_ns() * 1e6
    }

    /// Percentage of searches by the server.
    pub(crate) fn server_percent(&self) -> f64 {
        100.0 * self.total().share()
    }

    /// Standard deviation of the windows' shares of the first group, in percent: how much all clients swing
    /// together.
    pub(crate) fn swing_percent(&self) -> f64 {
        let shares =
            self.windows[0][self.warm..].iter().filter(|window| window.searches > 0).map(Window::share);
        let shares: Vec<f64> = shares.collect();
        let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        let squares = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>();
        100.0 * (squares / shares.len().max(1) as f64).sqrt()
    }

    /// Percentage of the decisions that lacked samples.
    pub(crate) fn unknown_percent(&self) -> f64 {
        100.0 * self.unknown as f64 / self.decided.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_two_per_cent() {
        let mut latencies = Latencies::default();
        (1..=10_000).for_each(|at| latencies.add(at * 100));
        for part in [0.1, 0.5, 0.9, 0.99] {
            let quantile = latencies.quantile_us(part);
            assert!((quantile / (part * 1000.0) - 1.0).abs() < 0.02, "{part}: {quantile}");
        }
        assert!((latencies.mean_us() - 500.05).abs() < 0.01);
        assert_eq!(Latencies::default().quantile_us(0.5), 0.0);
    }

    #[test]
    fn what_holds_in_the_end_holds_from_the_last_failure_on() {
        assert_eq!(stays_from(&[true, true]), Some(0));
        assert_eq!(stays_from(&[true, false, true, false, true, true]), Some(4));
        assert_eq!(stays_from(&[true, true, false]), None, "the last one does not hold");
        assert_eq!(stays_from(&[]), None, "nothing was seen");
    }

    #[test]
    fn buckets_hold_what_their_middle_says() {
        for latency_ns in [32_u64, 33, 63, 64, 65, 1_000, 123_456, 9_999_999_999] {
            let middle = middle_ns(bucket(latency_ns));
            assert!((middle / latency_ns as f64 - 1.0).abs() < 0.02, "{latency_ns}: {middle}");
        }
    }
}
