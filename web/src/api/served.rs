//! Which pairs are served of those that the region table says are: a node whose lease has run out answers
//! nobody, and what it saw of the cluster last is of the past.

use std::collections::BTreeSet;

use cell_cluster::PairRow;
use cell_node::{ClusterSnapshot, NodeSnapshot};

use crate::api::cluster;

/// What helps where nodes are silent.
pub(crate) const NEXT: &str =
    "See whether the coordinator runs and can be reached: its nodes serve on once it answers.";

/// Why a pair that the region table calls served is not, or is not known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Its node answers nobody.
    Silent { node: u32 },
    /// Nobody says that it serves it, and the table is of the past: why.
    Unknown(&'static str),
}

impl Doubt {
    /// In one word.
    pub(crate) fn state(self) -> &'static str {
        match self {
            Doubt::Silent { .. } => "unserved",
            Doubt::Unknown(_) => "unknown",
        }
    }

    /// For people, behind `pair 3 is`.
    pub(crate) fn what(self) -> String {
        match self {
            Doubt::Silent { node } => format!("silent: its node {node} waits for the coordinator"),
            Doubt::Unknown(why) => why.to_owned(),
        }
    }
}

/// What a node says of itself.
pub(crate) struct Voice {
    pub(crate) node: u32,
    pub(crate) is_silent: bool,
    /// The pairs that it has.
    pub(crate) pairs: Vec<u32>,
}

/// What all that answered say, beside the table.
pub(crate) struct Voices<'a> {
    cluster: &'a ClusterSnapshot,
    unknown: Option<&'static str>,
    silent: BTreeSet<u32>,
    served: BTreeSet<u32>,
}

impl Voices<'_> {
    /// Of the node that was asked, with its table, and of all that answered it.
    pub(crate) fn new(snapshot: &NodeSnapshot, all: impl IntoIterator<Item = Voice>) -> Voices<'_> {
        let (mut silent, mut served) = (BTreeSet::new(), BTreeSet::new());
        for Voice { node, is_silent, pairs } in all {
            if is_silent {
                silent.insert(node);
            } else {
                served.extend(pairs);
            }
        }
        Voices { cluster: &snapshot.cluster, unknown: cluster::unknown(snapshot), silent, served }
    }

    /// Of a pair that the table calls served.
    pub(crate) fn doubt(&self, row: &PairRow) -> Option<Doubt> {
        if self.served.contains(&row.pair.0) {
            return None;
        }
        let mut members = self.cluster.members.iter();
        let owner = members.find(|member| Some(member.incarnation) == row.owner).map(|owner| owner.node.0);
        match owner.filter(|node| self.silent.contains(node)) {
            Some(node) => Some(Doubt::Silent { node }),
            None => self.unknown.map(Doubt::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use cell_node::NodeState;

    use super::*;
    use crate::api::regions::tests::two_nodes;

    #[test]
    fn doubt_is_of_pairs_of_silent_nodes_and_of_what_nobody_says_while_the_table_is_old() {
        let voice = |node, is_silent| Voice { node, is_silent, pairs: vec![node - 2] };
        let doubts = |state, all: Vec<Voice>| {
            let snapshot = two_nodes(state);
            let voices = Voices::new(&snapshot, all);
            snapshot.cluster.pairs.iter().map(|row| voices.doubt(row)).collect::<Vec<_>>()
        };
        let silent = |node| Some(Doubt::Silent { node });
        let unknown = Some(Doubt::Unknown(cluster::WAITS_UNKNOWN));
        let all = |own, other| vec![voice(3, own), voice(4, other)];
        assert_eq!(doubts(NodeState::Serving, all(false, false)), [None, None]);
        assert_eq!(doubts(NodeState::Serving, vec![voice(3, false)]), [None, None], "the table is good");
        assert_eq!(doubts(NodeState::Serving, all(false, true)), [None, silent(4)]);
        assert_eq!(doubts(NodeState::Silent, all(true, true)), [silent(3), silent(4)]);
        assert_eq!(doubts(NodeState::Silent, all(true, false)), [silent(3), None], "node 4 says so");
        assert_eq!(doubts(NodeState::Silent, vec![voice(3, true)]), [silent(3), unknown]);
        // Node 4 has taken over what node 3 had.
        let other = Voice { node: 4, is_silent: false, pairs: vec![1, 2] };
        assert_eq!(doubts(NodeState::Silent, vec![voice(3, true), other]), [None, None]);
    }
}
