//! The region table as nodes report it: which pair is where. Advice, like the cached paths.

use cell_protocol::{OwnedState, TableReport};
use cell_terms::{Incarnation, NodeId, PairId};

/// Rows that are asked for, at most: a table that says it has more is believed so far.
const ROWS_MAX: u32 = 1 << 16;

/// A pair's owner, or a node without a pair (pair 0).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) pair: PairId,
    pub(crate) node: NodeId,
    pub(crate) owner: Incarnation,
    pub(crate) state: OwnedState,
    pub(crate) address: Box<str>,
}

/// What a report led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableProgress {
    /// Rows from this one on are still to come.
    More(u32),
    /// The table is here.
    Whole {
        /// Whether it differs from what was known.
        changed: bool,
    },
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    revision: u64,
    rows: Vec<Peer>,
    incoming: Vec<Peer>,
    incoming_revision: u64,
    address_count: usize,
}

impl Peers {
    /// Whether a table was ever received.
    pub(crate) fn is_known(&self) -> bool {
        self.revision > 0
    }

    /// How many addresses the owners have together.
    pub(crate) fn address_count(&self) -> usize {
        self.address_count
    }

    /// The rows: nodes without a pair first, then the pairs by id.
    pub(crate) fn rows(&self) -> &[Peer] {
        &self.rows
    }

    /// Where owners are, each address once or more.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> + Clone {
        self.rows.iter().map(|row| &*row.address).filter(|address| !address.is_empty())
    }

    /// The owner of a pair.
    pub(crate) fn of(&self, pair: PairId) -> Option<&Peer> {
        let first = self.rows.partition_point(|row| row.pair < pair);
        self.rows.get(first).filter(|row| row.pair == pair)
    }

    /// The owner of the lowest pair, and with it of the router.
    pub(crate) fn first(&self) -> Option<&Peer> {
        self.rows.get(self.rows.partition_point(|row| row.pair == PairId(0)))
    }

    /// Takes rows in that were asked for from the row of this number on.
    pub(crate) fn take(&mut self, from: u32, report: &TableReport<'_>) -> TableProgress {
        if from == 0 {
            self.incoming.clear();
            self.incoming_revision = report.revision;
        }
        let goes_on = usize::try_from(from) == Ok(self.incoming.len());
        if !goes_on || report.revision != self.incoming_revision {
            self.incoming.clear();
            // It has changed between two parts, or another node was asked meanwhile.
            return TableProgress::More(0);
        }
        self.incoming.extend(report.rows.iter().map(|row| Peer {
            pair: row.pair,
            node: row.node,
            owner: row.owner,
            state: row.state,
            address: row.address.into(),
        }));
        let here = u32::try_from(self.incoming.len()).unwrap_or(u32::MAX);
        if here < report.rows_all.min(ROWS_MAX) && !report.rows.is_empty() {
            return TableProgress::More(here);
        }
        let mut rows = std::mem::take(&mut self.incoming);
        rows.sort_by_key(|row| row.pair);
        // A node that just knows less than another is no reason to go back.
        let newer = report.revision > self.revision;
        let changed = newer && rows != self.rows;
        if newer {
            self.revision = report.revision;
            let mut addresses: Vec<&str> = rows.iter().map(|row| &*row.address).collect();
            addresses.sort_unstable();
            addresses.dedup();
            self.address_count = addresses.iter().filter(|address| !address.is_empty()).count();
            self.rows = rows;
        }
        TableProgress::Whole { changed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_protocol::{TableRow, TableRows};
    use cell_terms::Epoch;

    fn row(pair: u32, address: &str) -> TableRow<'_> {
        TableRow {
            pair: PairId(pair),
            node: NodeId(1),
            owner: Incarnation(1),
            epoch: Epoch(1),
            state: OwnedState::Serving,
            address,
            http: "",
        }
    }

    #[test]
    fn take_in_parts_is_whole_at_the_end_and_begins_again_when_it_changes() {
        let mut peers = Peers::default();
        let rows = [row(2, "b"), row(1, "a"), row(0, "c"), row(3, "")];
        let part = |revision, from: usize, upto: usize| TableReport {
            revision,
            rows_all: 4,
            rows: TableRows::List(&rows[from..upto]),
        };
        let take = |peers: &mut Peers, revision, from: usize, upto| {
            peers.take(u32::try_from(from).unwrap(), &part(revision, from, upto))
        };
        assert_eq!(take(&mut peers, 5, 0, 3), TableProgress::More(3));
        assert_eq!(take(&mut peers, 6, 3, 4), TableProgress::More(0), "another table");
        assert_eq!(take(&mut peers, 6, 0, 2), TableProgress::More(2));
        assert_eq!(take(&mut peers, 6, 2, 4), TableProgress::Whole { changed: true });
        assert_eq!((peers.address_count(), peers.first().unwrap().pair), (3, PairId(1)));
        assert_eq!(peers.of(PairId(2)).map(|peer| &*peer.address), Some("b"));
        assert_eq!(peers.of(PairId(4)), None);
        assert_eq!(take(&mut peers, 5, 0, 4), TableProgress::Whole { changed: false }, "an older one");
        assert_eq!(take(&mut peers, 7, 0, 4), TableProgress::Whole { changed: false }, "the same rows");
    }

    /// The node that sent the first part fell silent, and another node sends the same table from the start:
    /// the rows that had come were counted twice, and the last ones never came.
    #[test]
    fn take_from_the_start_again_keeps_no_row_of_before() {
        let mut peers = Peers::default();
        let rows = [row(1, "a"), row(2, "b"), row(3, "c")];
        let part = |from: usize, upto: usize| TableReport {
            revision: 5,
            rows_all: 3,
            rows: TableRows::List(&rows[from..upto]),
        };
        assert_eq!(peers.take(0, &part(0, 2)), TableProgress::More(2));
        assert_eq!(peers.take(0, &part(0, 2)), TableProgress::More(2));
        assert_eq!(peers.take(1, &part(1, 2)), TableProgress::More(0), "an answer to nobody's question");
        assert_eq!(peers.take(0, &part(0, 2)), TableProgress::More(2));
        assert_eq!(peers.take(2, &part(2, 3)), TableProgress::Whole { changed: true });
        let pairs: Vec<u32> = peers.rows().iter().map(|row| row.pair.0).collect();
        assert_eq!(pairs, [1, 2, 3]);
    }

    #[test]
    fn take_of_a_table_without_end_ends() {
        let mut peers = Peers::default();
        let rows = vec![row(1, "a"); 1 << 14];
        let report = TableReport { revision: 1, rows_all: u32::MAX, rows: TableRows::List(&rows) };
        for part in 0..3 {
            assert_eq!(peers.take(part << 14, &report), TableProgress::More((part + 1) << 14));
        }
        assert_eq!(peers.take(3 << 14, &report), TableProgress::Whole { changed: true });
    }
}
