//! Which lines of a source are settled: a contiguous count, and ranges of those settled out of order.

use std::collections::BTreeMap;

/// A set of line numbers (from 1) that grows mostly in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineSet {
    contiguous: u64,
    /// First line of a range to its last; disjoint, not touching, all beyond `contiguous + 1`.
    ranges: BTreeMap<u64, u64>,
}

impl LineSet {
    /// From its parts, as stored.
    ///
    /// Returns `None` if the ranges are not ordered, disjoint and beyond the contiguous count.
    pub(crate) fn from_parts(contiguous: u64, ranges: &[(u64, u64)]) -> Option<LineSet> {
        let mut last = contiguous;
        for &(first, end) in ranges {
            if first < last.checked_add(2)? || end < first {
                return None;
            }
            last = end;
        }
        Some(LineSet { contiguous, ranges: ranges.iter().copied().collect() })
    }

    /// Every line up to this one is in the set.
    pub(crate) fn contiguous(&self) -> u64 {
        self.contiguous
    }

    /// First and last line of each range beyond the contiguous ones.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(first, last)| (*first, *last))
    }

    /// Number of lines in the set.
    pub(crate) fn count(&self) -> u64 {
        self.contiguous + self.ranges().map(|(first, last)| last - first + 1).sum::<u64>()
    }

    /// Whether a line is in the set.
    pub(crate) fn contains(&self, line: u64) -> bool {
        line <= self.contiguous
            || self.ranges.range(..=line).next_back().is_some_and(|(_, last)| line <= *last)
    }

    /// Adds a line; adding it twice changes nothing.
    pub(crate) fn insert(&mut self, line: u64) {
        if self.contains(line) {
            return;
        }
        let mut first = line;
        let mut last = line;
        if let Some((&before, &end)) = self.ranges.range(..line).next_back()
            && end + 1 == line
        {
            first = before;
        }
        if let Some(&end) = self.ranges.get(&(line + 1)) {
            last = end;
            self.ranges.remove(&(line + 1));
        }
        if first == self.contiguous + 1 {
            self.ranges.remove(&first);
            self.contiguous = last;
        } else {
            self.ranges.insert(first, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn insert_any_order_equals_a_set() {
        let mut state = 7_u64;
        for _ in 0..200 {
            let (mut lines, mut model) = (LineSet::default(), BTreeSet::new());
            for _ in 0..60 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let line = (state >> 33) % 40 + 1;
                lines.insert(line);
                model.insert(line);
                assert_eq!(lines.count(), model.len() as u64);
                assert!((1..=41).all(|n| lines.contains(n) == model.contains(&n)));
                let gap = (1..).find(|n| !model.contains(n)).unwrap();
                assert_eq!(lines.contiguous(), gap - 1);
                let ranges: Vec<_> = lines.ranges().collect();
                assert_eq!(LineSet::from_parts(lines.contiguous(), &ranges), Some(lines.clone()));
            }
        }
    }

    #[test]
    fn from_parts_overlapping_or_touching_ranges_are_refused() {
        assert_eq!(LineSet::from_parts(5, &[(6, 7)]), None);
        assert_eq!(LineSet::from_parts(5, &[(9, 8)]), None);
        assert_eq!(LineSet::from_parts(5, &[(8, 9), (10, 11)]), None);
        assert_eq!(LineSet::from_parts(u64::MAX, &[(8, 9)]), None);
        assert!(LineSet::from_parts(5, &[(7, 9), (11, 11)]).is_some());
    }
}
