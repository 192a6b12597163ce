//! Pairs that the region table says are served, and that no node reports which answers. Nodes publish their
//! figures once a second, each by itself, and what the table says of a pair comes sooner or later than those:
//! a pair between two owners is in nobody's figures for a moment. So a pair is missing if it lacked at two
//! looks that lie apart, in the same hands. Each node looks at itself once a second; whoever makes a document
//! has its looks at all nodes as often as somebody asks. A pure core: it is shown what lacks, with the time.

use std::collections::{BTreeMap, BTreeSet};

use cell_cluster::PairState;
use cell_node::{NodeSnapshot, NodeState};
use cell_terms::{Epoch, PairId};

/// So far apart two looks are two: all nodes have published their figures anew, and seen the table.
const APART_MS: u64 = 2_000;
/// A look that is longer ago than this says nothing of now.
const FORGOTTEN_AFTER_MS: u64 = 300_000;

/// A pair, and in whose hands: the epoch counts its owners.
pub(crate) type PairEpoch = (PairId, Epoch);

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct MissingPairs {
    /// Since when which pairs lack at each look.
    since_ms: BTreeMap<PairEpoch, u64>,
    looked_ms: u64,
    missing: BTreeSet<PairId>,
}

impl MissingPairs {
    /// A look at which these lacked; those of them that are missing.
    pub(crate) fn look(&mut self, at_ms: u64, lacking: &BTreeSet<PairEpoch>) -> &BTreeSet<PairId> {
        if at_ms.saturating_sub(self.looked_ms) > FORGOTTEN_AFTER_MS {
            self.since_ms.clear();
        }
        self.looked_ms = at_ms;
        self.since_ms.retain(|pair, _| lacking.contains(pair));
        for pair in lacking {
            self.since_ms.entry(*pair).or_insert(at_ms);
        }
        let lasts = |since_ms: u64| at_ms.saturating_sub(since_ms) >= APART_MS;
        let missing = self.since_ms.iter().filter(|(_, since_ms)| lasts(**since_ms));
        self.missing = missing.map(|((pair, _), _)| *pair).collect();
        &self.missing
    }

    /// Those that are missing, as of the last look.
    pub(crate) fn missing(&self) -> &BTreeSet<PairId> {
        &self.missing
    }

    /// The same, as nodes report it to each other.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.missing.iter().map(|pair| pair.0).collect()
    }
}

/// The pairs that a node is to serve by the table, as far as it has seen that, and that it does not have.
pub(crate) fn lacking_at(node: &NodeSnapshot) -> BTreeSet<PairEpoch> {
    let serves = matches!(node.state, NodeState::Serving | NodeState::ReadOnly(_));
    if !serves || node.lease_remaining_ms == 0 {
        return BTreeSet::new();
    }
    let has: BTreeSet<PairId> = node.pairs.iter().map(|pair| pair.pair).collect();
    let rows = node.cluster.pairs.iter().filter(|row| row.state == PairState::Serving);
    let own = rows.filter(|row| row.owner == Some(node.incarnation) && !has.contains(&row.pair));
    own.map(|row| (row.pair, row.epoch)).collect()
}

/// Of those, for people.
pub(crate) fn words(missing: &BTreeSet<PairId>) -> Vec<String> {
    let words = |pair: &PairId| format!("{pair} is missing: this node is to serve it, and does not have it");
    missing.iter().map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::regions::tests::two_nodes;

    fn of(pair: u32, epoch: u32) -> PairEpoch {
        (PairId(pair), Epoch(epoch))
    }

    #[test]
    fn pair_that_lacks_at_two_looks_is_missing_and_one_between_two_owners_is_not() {
        let mut pairs = MissingPairs::default();
        let mut look = |at_ms: u64, lacking: &[PairEpoch]| {
            let lacking: BTreeSet<PairEpoch> = lacking.iter().copied().collect();
            pairs.look(at_ms, &lacking).iter().map(|pair| pair.0).collect::<Vec<_>>()
        };
        let stays = of(1, 4);
        assert!(look(10_000, &[stays, of(2, 7), of(3, 1)]).is_empty(), "it is the first look");
        assert!(look(10_900, &[stays, of(2, 7)]).is_empty(), "figures may be the same as before");
        // Pair 2 has come to another owner, who has not reported it yet; pair 3 was there in between.
        assert_eq!(look(12_000, &[stays, of(2, 8), of(3, 1)]), [1]);
        assert_eq!(look(14_000, &[stays, of(2, 8)]), [1, 2]);
        assert_eq!(look(14_100, &[stays]), [1]);
        assert!(look(14_200, &[]).is_empty());
        assert!(look(20_000, &[stays]).is_empty());
        assert!(look(20_001 + FORGOTTEN_AFTER_MS, &[stays]).is_empty(), "nobody has looked meanwhile");
    }

    #[test]
    fn pair_lacks_at_the_node_that_is_to_serve_it_while_that_serves_and_sees_the_table() {
        let mut node = two_nodes(NodeState::Serving);
        assert_eq!(lacking_at(&node), BTreeSet::new());
        node.pairs.clear();
        assert_eq!(lacking_at(&node), BTreeSet::from([of(1, 1)]), "pair 2 is another's");
        let silent = NodeSnapshot { state: NodeState::Silent, ..node.clone() };
        let stopping = NodeSnapshot { state: NodeState::Stopping, ..node.clone() };
        let over = NodeSnapshot { lease_remaining_ms: 0, ..node };
        assert!([silent, stopping, over].iter().all(|node| lacking_at(node).is_empty()));
    }
}
