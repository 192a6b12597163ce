//! Pairs that `cell status` calls not served: those of which the region table says so, and those that it
//! calls served and that no node reports which answers. The nodes do not answer at one time, so that a pair
//! between two owners may be in nobody's report: it is missing if it lacked at two looks, in the same
//! hands. Where its node does not answer, not all are healthy anyway, and one look does.

use std::collections::BTreeSet;

use cell_protocol::report::PAIRS_MAX;
use cell_protocol::{OwnedState, StatusReport};
use cell_terms::{Epoch, NodeId, PairId};
use serde_json::{Value, json};

/// A pair's row of the region table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TablePair {
    pub(crate) pair: PairId,
    /// The owner's, or the last owner's.
    pub(crate) node: NodeId,
    pub(crate) epoch: Epoch,
    pub(crate) state: OwnedState,
}

/// A pair that no report has, and who is to serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MissingPair {
    pair: PairId,
    node: NodeId,
    epoch: Epoch,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnservedPairs {
    by_table: Vec<(PairId, OwnedState)>,
    missing: BTreeSet<MissingPair>,
    /// Whether the node of one of those has answered.
    is_doubtful: bool,
}

impl UnservedPairs {
    /// What one look found: the table, and what the nodes report that answered. If none did, nothing lacks.
    pub(crate) fn of<'r>(
        table: &[TablePair],
        reports: impl Iterator<Item = StatusReport<'r>>,
    ) -> UnservedPairs {
        let (mut reported, mut answered, mut full) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for report in reports {
            answered.insert(report.node);
            reported.extend(report.pairs.iter().map(|pair| pair.pair));
            full.extend((report.pairs.len() >= PAIRS_MAX).then_some(report.node)); // there may be more
        }
        let lacks = |row: &&TablePair| {
            let is_known = reported.contains(&row.pair) || full.contains(&row.node);
            !answered.is_empty() && row.state == OwnedState::Serving && !is_known
        };
        let missing = table.iter().filter(lacks);
        let missing: BTreeSet<_> =
            missing.map(|&TablePair { pair, node, epoch, .. }| MissingPair { pair, node, epoch }).collect();
        let is_doubtful = missing.iter().any(|pair| answered.contains(&pair.node));
        let unserved = table.iter().filter(|row| is_unserved(row.state));
        let by_table = unserved.map(|row| (row.pair, row.state)).collect();
        UnservedPairs { by_table, missing, is_doubtful }
    }

    /// Whether one look does not do.
    pub(crate) fn wants_second_look(&self) -> bool {
        self.is_doubtful
    }

    /// These, of a second look: missing are those that lacked at the first one, too.
    pub(crate) fn after(mut self, first: &UnservedPairs) -> UnservedPairs {
        self.missing.retain(|pair| first.missing.contains(pair));
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_table.is_empty() && self.missing.is_empty()
    }

    /// A line for each; nothing if there is none.
    pub(crate) fn text(&self) -> String {
        let by_table = self.by_table.iter().map(|(pair, state)| format!("{pair} is {}\n", word(*state)));
        let missing = self.missing.iter().map(|MissingPair { pair, node, .. }| {
            format!("{pair} is missing: {node} is to serve it, and no node that answers has it\n")
        });
        let (by_table, missing): (String, String) = (by_table.collect(), missing.collect());
        let why = if by_table.is_empty() { "" } else { "; a node's /readyz?verbose says why" };
        if self.is_empty() { String::new() } else { format!("\nNot served{why}:\n{by_table}{missing}") }
    }

    /// With what is not served by the table (`unserved`), and what is `missing`.
    pub(crate) fn add_to(&self, document: &mut Value) {
        let unserved = self.by_table.iter();
        document["unserved"] =
            unserved.map(|(pair, state)| json!({"pair": pair.0, "state": word(*state)})).collect();
        let missing = self.missing.iter();
        document["missing"] = missing.map(|pair| json!({"pair": pair.pair.0, "node": pair.node.0})).collect();
    }
}

fn is_unserved(state: OwnedState) -> bool {
    use OwnedState as S;
    matches!(state, S::Recovering | S::Unavailable | S::Released | S::Orphaned)
}

fn word(state: OwnedState) -> &'static str {
    match state {
        OwnedState::Serving => "serving",
        OwnedState::Recovering => "recovering",
        OwnedState::Unavailable => "unavailable",
        OwnedState::New => "new",
        OwnedState::Released => "released",
        OwnedState::Orphaned => "orphaned",
    }
}

#[cfg(test)]
mod tests {
    use cell_protocol::{PairActivity, PairStatus, PairStatuses};
    use cell_terms::{Csn, Incarnation};

    use super::*;

    fn row(pair: u32, node: u32, state: OwnedState) -> TablePair {
        TablePair { pair: PairId(pair), node: NodeId(node), epoch: Epoch(1), state }
    }

    fn statuses(pairs: impl IntoIterator<Item = u32>) -> Vec<PairStatus> {
        let status = |pair| PairStatus {
            pair: PairId(pair),
            epoch: Epoch(1),
            state: PairActivity::Serving,
            worker: 0,
            durable: Csn::ZERO,
            visible: Csn::ZERO,
            checkpoint: Csn::ZERO,
            entries: 0,
            node_bytes_used: 0,
            node_bytes: 0,
            extent_bytes_used: 0,
            extent_bytes: 0,
            log_bytes: 0,
            sessions: 0,
        };
        pairs.into_iter().map(status).collect()
    }

    fn report(node: u32, pairs: &[PairStatus]) -> StatusReport<'_> {
        StatusReport {
            node: NodeId(node),
            incarnation: Incarnation(1),
            uptime_ms: 1,
            workers: 1,
            connections: 0,
            pairs: PairStatuses::List(pairs),
            warnings: "",
            coordinator: "",
        }
    }

    /// "All serve", though a node did not have a pair of which the table said that it served it.
    #[test]
    fn pair_that_no_report_has_at_two_looks_is_missing() {
        let table = [row(1, 0, OwnedState::Serving), row(2, 1, OwnedState::Serving)];
        let (own, none) = (statuses([1]), statuses([]));
        let look =
            |table: &[TablePair]| UnservedPairs::of(table, [report(0, &own), report(1, &none)].into_iter());
        let first = look(&table);
        assert!(first.wants_second_look());
        let second = look(&table).after(&first);
        assert!(!second.is_empty());
        let line = "pair-2 is missing: node-1 is to serve it, and no node that answers has it\n";
        assert_eq!(second.text(), format!("\nNot served:\n{line}"));
        let mut document = json!({});
        second.add_to(&mut document);
        assert_eq!(document, json!({"unserved": [], "missing": [{"pair": 2, "node": 1}]}));
        // It has come to another owner, who had not been asked again yet.
        let handed = TablePair { epoch: Epoch(2), ..row(2, 0, OwnedState::Serving) };
        assert!(look(&[table[0], handed]).after(&first).is_empty());
        let both = statuses([1, 2]);
        let there = UnservedPairs::of(&table, [report(0, &both)].into_iter());
        assert!(there.is_empty() && there.text().is_empty(), "whoever reports it");
        assert!(UnservedPairs::of(&table, std::iter::empty()).is_empty(), "nobody reports: nothing is known");
    }

    /// With hosts that were not reached `cell status` waited for each of them twice.
    #[test]
    fn pair_of_a_node_that_does_not_answer_needs_no_second_look() {
        let table = [row(1, 0, OwnedState::Serving), row(2, 1, OwnedState::Serving)];
        let (own, none) = (statuses([1]), statuses([]));
        let found = UnservedPairs::of(&table, [report(0, &own)].into_iter());
        assert!(!found.wants_second_look() && !found.is_empty());
        let mut document = json!({});
        found.add_to(&mut document);
        assert_eq!(document["missing"], json!([{"pair": 2, "node": 1}]));
        assert!(
            UnservedPairs::of(&table, [report(0, &none)].into_iter()).wants_second_look(),
            "node 0 lacks"
        );
    }

    #[test]
    fn pair_that_the_table_calls_unserved_is_not_missing_and_a_full_report_may_lack_some() {
        let table = [row(1, 0, OwnedState::Recovering), row(2, 1, OwnedState::New)];
        let none = statuses([]);
        let found = UnservedPairs::of(&table, [report(0, &none)].into_iter());
        assert!(!found.wants_second_look() && !found.is_empty());
        let head = "\nNot served; a node's /readyz?verbose says why:\n";
        assert_eq!(found.text(), format!("{head}pair-1 is recovering\n"));
        let last = u32::try_from(PAIRS_MAX).unwrap() + 1;
        let full = statuses(1..last);
        let table = [row(last, 0, OwnedState::Serving)];
        assert!(UnservedPairs::of(&table, [report(0, &full)].into_iter()).is_empty());
    }
}
