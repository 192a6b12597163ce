//! How long the syncs of a node's logs took over the last two minutes: a row of counts for each second.

use std::collections::VecDeque;

use cell_node::{NodeSnapshot, SYNC_BUCKETS};

/// Rows that are kept, one a second.
pub(crate) const ROWS_MAX: usize = 120;

/// Syncs by how long they took; `cell_node::sync_bucket_end_us` says where buckets end.
pub(crate) type SyncCounts = [u64; SYNC_BUCKETS];

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct SyncHistory {
    /// By the number of the second; a second without a look has none.
    rows: VecDeque<(u64, SyncCounts)>,
}

impl SyncHistory {
    /// What came between two looks, the second of which was in this second.
    pub(crate) fn observe(&mut self, second: u64, before: &NodeSnapshot, after: &NodeSnapshot) {
        if self.rows.back().is_some_and(|(last, _)| *last >= second) {
            return;
        }
        let mut row = SyncCounts::default();
        for pair in &after.pairs {
            // A pair that has just been taken over counts from its own beginning.
            let then = before.pairs.iter().find(|then| then.pair == pair.pair && then.epoch == pair.epoch);
            let then = then.map(|then| then.sync_buckets).unwrap_or_default();
            for ((sum, now), then) in row.iter_mut().zip(pair.sync_buckets).zip(then) {
                *sum += now.saturating_sub(then);
            }
        }
        if self.rows.len() == ROWS_MAX {
            self.rows.pop_front();
        }
        self.rows.push_back((second, row));
    }

    /// The rows that are kept, oldest first.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &(u64, SyncCounts)> {
        self.rows.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_snapshot::snapshot;

    #[test]
    fn observe_counts_each_second_of_all_pairs_and_keeps_two_minutes() {
        let mut history = SyncHistory::default();
        let mut before = snapshot();
        before.pairs.push(before.pairs[0]);
        before.pairs[1].pair.0 += 1;
        for second in 0..200 {
            let mut after = before.clone();
            after.pairs[0].sync_buckets[3] += 5;
            after.pairs[1].sync_buckets[3] += 2;
            after.pairs[1].sync_buckets[15] += 1;
            history.observe(second, &before, &after);
            before = after;
        }
        let rows: Vec<_> = history.rows().collect();
        assert_eq!((rows.len(), rows[0].0, rows[119].0), (ROWS_MAX, 80, 199));
        assert!(rows.iter().all(|(_, row)| (row[3], row[15], row[0]) == (7, 1, 0)));
    }
}
