//! Which pairs are served of those that the region table says are: a node whose lease has run out answers
//! nobody, and what it saw of the cluster last is of the past; one that has failed serves nothing any more,
//! though the table has its pairs until somebody takes them over.

use std::collections::{BTreeMap, BTreeSet};

use cell_cluster::PairRow;
use cell_node::{ClusterSnapshot, NodeSnapshot, NodeState};

use crate::api::cluster;

/// The word of [`NodeState::Failed`], whatever failed.
const FAILED: &str = "failed";

/// What helps where a pair passes to another owner by itself.
pub(crate) const NEXT_WAIT: &str = "Wait: a survivor, or its node once it is back, takes it over.";
/// What helps where nodes are silent.
const NEXT_SILENT: &str =
    "See whether the coordinator runs and can be reached: its nodes serve on once it answers.";

/// Why a pair that the region table calls served is not, or is not known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotServed {
    /// Its node answers nobody.
    Silent { node: u32 },
    /// Its node has given its pairs up.
    Failed { node: u32 },
    /// Nobody says that it serves it, and the table is of the past: why.
    Unknown(&'static str),
}

impl NotServed {
    /// In one word.
    pub(crate) fn state(self) -> &'static str {
        match self {
            NotServed::Silent { .. } | NotServed::Failed { .. } => "unserved",
            NotServed::Unknown(_) => "unknown",
        }
    }

    /// For people, behind `pair 3 is`.
    pub(crate) fn what(self) -> String {
        match self {
            NotServed::Silent { node } => format!("silent: its node {node} waits for the coordinator"),
            NotServed::Failed { node } => format!("given up: its node {node} has failed"),
            NotServed::Unknown(why) => why.to_owned(),
        }
    }

    /// What helps.
    pub(crate) fn next(self) -> &'static str {
        match self {
            NotServed::Silent { .. } | NotServed::Unknown(_) => NEXT_SILENT,
            NotServed::Failed { .. } => NEXT_WAIT,
        }
    }
}

/// Whether a node serves the pairs that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Serves,
    Silent,
    Failed,
}

impl Standing {
    /// By the word of its state.
    pub(crate) fn of_word(state: &str) -> Standing {
        if state == NodeState::Silent.word() {
            Standing::Silent
        } else if state == FAILED {
            Standing::Failed
        } else {
            Standing::Serves
        }
    }
}

/// What a node says of itself.
pub(crate) struct NodeReport {
    pub(crate) node: u32,
    pub(crate) standing: Standing,
    /// The pairs that it has.
    pub(crate) pairs: Vec<u32>,
}

/// What all that answered say, beside the table.
pub(crate) struct NodeReports<'a> {
    cluster: &'a ClusterSnapshot,
    unknown: Option<&'static str>,
    /// Nodes that serve nothing, and why.
    idle: BTreeMap<u32, NotServed>,
    served: BTreeSet<u32>,
}

impl NodeReports<'_> {
    /// Of the node that was asked, with its table, and of all that answered it.
    pub(crate) fn new(snapshot: &NodeSnapshot, all: impl IntoIterator<Item = NodeReport>) -> NodeReports<'_> {
        let (mut idle, mut served) = (BTreeMap::new(), BTreeSet::new());
        for NodeReport { node, standing, pairs } in all {
            match standing {
                Standing::Serves => served.extend(pairs),
                Standing::Silent => _ = idle.insert(node, NotServed::Silent { node }),
                Standing::Failed => _ = idle.insert(node, NotServed::Failed { node }),
            }
        }
        NodeReports { cluster: &snapshot.cluster, unknown: cluster::unknown(snapshot), idle, served }
    }

    /// Why a pair is not served that the table calls served; none: it is.
    pub(crate) fn not_served(&self, row: &PairRow) -> Option<NotServed> {
        if self.served.contains(&row.pair.0) {
            return None;
        }
        let mut members = self.cluster.members.iter();
        let owner = members.find(|member| Some(member.incarnation) == row.owner).map(|owner| owner.node.0);
        let why = owner.and_then(|node| self.idle.get(&node).copied());
        why.or_else(|| self.unknown.map(NotServed::Unknown))
    }
}

#[cfg(test)]
mod tests {
    use cell_node::FailureKind;

    use super::*;
    use crate::api::regions::tests::two_nodes;

    fn not_served(state: NodeState, all: Vec<NodeReport>) -> Vec<Option<NotServed>> {
        let snapshot = two_nodes(state);
        let reports = NodeReports::new(&snapshot, all);
        snapshot.cluster.pairs.iter().map(|row| reports.not_served(row)).collect()
    }

    fn report(node: u32, standing: Standing) -> NodeReport {
        NodeReport { node, standing, pairs: vec![node - 2] }
    }

    #[test]
    fn pairs_of_silent_nodes_and_what_nobody_says_while_the_table_is_old_are_not_served() {
        let report =
            |node, is_silent| report(node, if is_silent { Standing::Silent } else { Standing::Serves });
        let silent = |node| Some(NotServed::Silent { node });
        let unknown = Some(NotServed::Unknown(cluster::WAITS_UNKNOWN));
        let all = |own, other| vec![report(3, own), report(4, other)];
        assert_eq!(not_served(NodeState::Serving, all(false, false)), [None, None]);
        assert_eq!(not_served(NodeState::Serving, vec![report(3, false)]), [None, None], "the table is good");
        assert_eq!(not_served(NodeState::Serving, all(false, true)), [None, silent(4)]);
        assert_eq!(not_served(NodeState::Silent, all(true, true)), [silent(3), silent(4)]);
        assert_eq!(not_served(NodeState::Silent, all(true, false)), [silent(3), None], "node 4 says so");
        assert_eq!(not_served(NodeState::Silent, vec![report(3, true)]), [silent(3), unknown]);
        // Node 4 has taken over what node 3 had.
        let other = NodeReport { node: 4, standing: Standing::Serves, pairs: vec![1, 2] };
        assert_eq!(not_served(NodeState::Silent, vec![report(3, true), other]), [None, None]);
    }

    /// Until its process has ended, it was said to serve them.
    #[test]
    fn pairs_of_a_node_that_has_failed_are_not_served_until_another_serves_them() {
        let failed = NodeState::Failed(FailureKind::LeaseLost);
        let standing = Standing::of_word(failed.word());
        assert_eq!(standing, Standing::Failed);
        assert_eq!(Standing::of_word(NodeState::Serving.word()), Standing::Serves);
        let of_node_4 = Some(NotServed::Failed { node: 4 });
        let all = vec![report(3, Standing::Serves), report(4, standing)];
        assert_eq!(not_served(NodeState::Serving, all), [None, of_node_4]);
        let other = NodeReport { node: 3, standing: Standing::Serves, pairs: vec![1, 2] };
        assert_eq!(not_served(NodeState::Serving, vec![other, report(4, standing)]), [None, None]);
    }
}
