//! What several do at the same time, each by a clock that all of them have: all of it over the time from the
//! first one's begin to the last one's end. By the longest own time, or by a sum of rates, those who came one
//! after the other would have been side by side.

use serde::{Deserialize, Serialize};

/// What one of them did, and when by [`crate::processor::monotonic_ns`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stint {
    pub(crate) operations: u64,
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
}

/// The shortest of them.
pub(crate) fn shortest_ns(stints: &[Stint]) -> u64 {
    stints.iter().map(|stint| stint.ended_ns.saturating_sub(stint.began_ns)).min().unwrap_or(0)
}

/// From the first one's begin to the last one's end.
pub(crate) fn wall_ns(stints: &[Stint]) -> u64 {
    let began = stints.iter().map(|stint| stint.began_ns).min().unwrap_or(0);
    let ended = stints.iter().map(|stint| stint.ended_ns).max().unwrap_or(0);
    ended.saturating_sub(began).max(1)
}

/// Operations a second of all of them.
pub(crate) fn rate(stints: &[Stint]) -> f64 {
    let operations: u64 = stints.iter().map(|stint| stint.operations).sum();
    operations as f64 * 1e9 / wall_ns(stints) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two readers of LMDB had 5.9 million gets a second on two cores, where one had 1.7: one was through
    /// before the other had started, and what both had read was divided by the longest own time.
    #[test]
    fn rate_of_stints_one_after_the_other_is_that_of_one() {
        let stint = |began_ns, ended_ns| Stint { operations: 1_000, began_ns, ended_ns };
        let (first, beside, after) = (stint(5_000, 6_000), stint(5_000, 6_000), stint(6_000, 7_000));
        assert_eq!(rate(&[first]), 1e9);
        assert_eq!(rate(&[first, beside]), 2e9);
        assert_eq!(rate(&[after, first]), 1e9);
        assert_eq!(wall_ns(&[first, stint(9_000, 9_500)]), 4_500, "who rests between is not left out");
        assert_eq!((shortest_ns(&[stint(1, 400), after]), shortest_ns(&[])), (399, 0));
        assert_eq!(wall_ns(&[]), 1);
    }
}
