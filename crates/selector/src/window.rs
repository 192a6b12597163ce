//! A moving average of latencies, as the paper has it: the last `n` samples, outliers discarded; it says
//! when more are discarded than kept.

/// Below so many samples nothing is an outlier: their deviation says nothing.
const OUTLIER_SAMPLES_MIN: u32 = 10;

/// See the module's text. Sums are kept in whole nanoseconds, so that they do not drift.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    samples: Box<[u64]>,
    /// Samples in use.
    len: usize,
    /// Where the next one goes.
    next: usize,
    sum: u128,
    sum_of_squares: u128,
    deviations: f64,
    /// Samples kept and discarded in the present period of as many samples as the window has.
    kept: u32,
    discarded: u32,
}

/// Longer latencies count as this long: 1000 s.
const LATENCY_NS_MAX: u64 = 1 << 40;

impl Window {
    /// An empty window of so many samples, which discards what is off by so many standard deviations.
    pub(crate) fn new(samples: u32, deviations: f64) -> Window {
        Window {
            samples: vec![0; samples.max(1) as usize].into(),
            len: 0,
            next: 0,
            sum: 0,
            sum_of_squares: 0,
            deviations,
            kept: 0,
            discarded: 0,
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        (self.len, self.next, self.kept, self.discarded) = (0, 0, 0, 0);
        (self.sum, self.sum_of_squares) = (0, 0);
    }

    /// The mean of the samples, if there is any.
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.len > 0).then(|| self.sum as f64 / self.len as f64)
    }

    /// Takes a sample in, unless it is an outlier. False: more of a period's samples are outliers than not,
    /// so what was measured before says nothing of now.
    pub(crate) fn push(&mut self, latency_ns: u64) -> bool {
        let latency_ns = latency_ns.min(LATENCY_NS_MAX);
        if self.kept + self.discarded >= u32::try_from(self.samples.len()).unwrap_or(u32::MAX) {
            (self.kept, self.discarded) = (0, 0);
        }
        if self.is_outlier(latency_ns) {
            self.discarded += 1;
            return 2 * self.discarded as usize <= self.samples.len();
        }
        self.kept += 1;
        let square = |sample: u64| u128::from(sample) * u128::from(sample);
        if self.len == self.samples.len() {
            let oldest = self.samples[self.next];
            self.sum -= u128::from(oldest);
            self.sum_of_squares -= square(oldest);
        } else {
            self.len += 1;
        }
        self.samples[self.next] = latency_ns;
        self.next = (self.next + 1) % self.samples.len();
        self.sum += u128::from(latency_ns);
        self.sum_of_squares += square(latency_ns);
        true
    }

    fn is_outlier(&self, latency_ns: u64) -> bool {
        let Some(mean) = self.mean().filter(|_| self.len >= OUTLIER_SAMPLES_MIN as usize) else {
            return false;
        };
        let variance = (self.sum_of_squares as f64 / self.len as f64 - mean * mean).max(0.0);
        let off = (latency_ns as f64 - mean).abs();
        off > 0.0 && off >= self.deviations * variance.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mean_is_that_of_the_last_samples() {
        let mut window = Window::new(4, 1000.0);
        assert_eq!(window.mean(), None);
        for latency_ns in [10, 20, 30, 40, 50, 60] {
            window.push(latency_ns);
        }
        assert_eq!(window.mean(), Some(45.0));
    }

    #[test]
    fn outlier_is_discarded_and_a_new_level_replaces_the_history() {
        let mut window = Window::new(100, 3.0);
        for at in 0..100 {
            window.push(1000 + at % 10);
        }
        window.push(5000);
        assert!(window.mean().unwrap() < 1010.0, "one slow sample is an outlier");
        let mut needed = 0;
        while window.mean().is_none_or(|mean| mean < 4000.0) {
            if !window.push(5000 + needed % 10) {
                window.clear();
            }
            needed += 1;
        }
        assert!((51..=110).contains(&needed), "a new level is taken over within a period: {needed}");
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_samples_kept(latencies in proptest::collection::vec(any::<u64>(), 0..400)) {
            let mut window = Window::new(10, 3.0);
            for latency_ns in latencies {
                window.push(latency_ns);
                let kept = &window.samples[..window.len];
                prop_assert_eq!(window.sum, kept.iter().map(|kept| u128::from(*kept)).sum::<u128>());
            }
        }
    }
}
