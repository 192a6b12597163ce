//! Which pairs are served of those that the region table says are: a node whose lease has run out answers
//! nobody, and what it saw of the cluster last is of the past; one that has failed serves nothing any more,
//! though the table has its pairs until somebody takes them over; and what no node reports is missing, if its
//! node says so or several looks show it.

use std::collections::{BTreeMap, BTreeSet};

use cell_cluster::{MemberRow, PairRow, PairState};
use cell_node::{ClusterSnapshot, NodeSnapshot, NodeState};
use cell_terms::{Incarnation, PairId};

use crate::api::cluster;
use crate::missing_pairs::MissingPairs;
use crate::peers::MissingPeer;

/// The word of [`NodeState::Failed`], whatever failed.
const FAILED: &str = "failed";

/// What helps where a pair passes to another owner by itself.
pub(crate) const NEXT_WAIT: &str = "Wait: a survivor, or its node once it is back, takes it over.";
/// What helps where nodes are silent.
const NEXT_SILENT: &str =
    "See whether the coordinator runs and can be reached: its nodes serve on once it answers.";
/// What helps where a node does not have what it is to serve.
const NEXT_MISSING: &str =
    "See the messages of its node. If that lasts, restart the node: the pair is recovered then.";
/// What helps where a node does not answer.
const NEXT_UNREPORTED: &str =
    "See whether its node runs and can be reached. Once its lease has ended, others take the pair over.";

/// Why a pair that the region table calls served is not, or is not known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotServed {
    /// Its node answers nobody.
    Silent { node: u32 },
    /// Its node has given its pairs up.
    Failed { node: u32 },
    /// Its owner is an earlier life of its node: the process is gone, its lease has not ended yet.
    Restarted { node: u32 },
    /// Nobody who answers has it, and its node is one of those.
    Missing { node: u32 },
    /// Nobody who answers has it, and its node does not answer: it may serve it.
    Unreported { node: u32 },
    /// Its node does not answer just now, and nobody else has it: it may serve it.
    Unanswered { node: u32 },
    /// Nobody says that it serves it, and the table is of the past: why.
    Unknown(&'static str),
}

impl NotServed {
    /// In one word.
    pub(crate) fn state(self) -> &'static str {
        match self {
            NotServed::Silent { .. } | NotServed::Failed { .. } | NotServed::Restarted { .. } => "unserved",
            NotServed::Missing { .. } | NotServed::Unreported { .. } => "missing",
            NotServed::Unanswered { .. } | NotServed::Unknown(_) => "unknown",
        }
    }

    /// Whether no node that answers has it, for no other reason that is known.
    pub(crate) fn is_missing(self) -> bool {
        matches!(self, NotServed::Missing { .. } | NotServed::Unreported { .. })
    }

    /// Whether no more is known than that its node does not answer just now.
    pub(crate) fn is_unanswered(self) -> bool {
        matches!(self, NotServed::Unanswered { .. })
    }

    /// Whether it comes to be served by itself, as far as that is known.
    pub(crate) fn passes(self) -> bool {
        !matches!(self, NotServed::Missing { .. })
    }

    /// For people, behind `pair 3 is`.
    pub(crate) fn what(self) -> String {
        match self {
            NotServed::Silent { node } => format!("silent: its node {node} waits for the coordinator"),
            NotServed::Failed { node } => format!("given up: its node {node} has failed"),
            NotServed::Restarted { node } => format!("not recovered yet: node {node} was started again"),
            NotServed::Missing { node } => {
                format!("missing: its node {node} answers, and does not report it")
            }
            NotServed::Unreported { node } => {
                format!("missing: its node {node} does not answer, and no other node reports it")
            }
            NotServed::Unanswered { node } => {
                format!("not known to be served: its node {node} does not answer")
            }
            NotServed::Unknown(why) => why.to_owned(),
        }
    }

    /// What helps.
    pub(crate) fn next(self) -> &'static str {
        match self {
            NotServed::Silent { .. } | NotServed::Unknown(_) => NEXT_SILENT,
            NotServed::Failed { .. } | NotServed::Restarted { .. } => NEXT_WAIT,
            NotServed::Missing { .. } => NEXT_MISSING,
            NotServed::Unreported { .. } | NotServed::Unanswered { .. } => NEXT_UNREPORTED,
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
    /// Those that it is to serve and does not have, as its own looks show; earlier versions do not say it.
    pub(crate) missing: Vec<u32>,
}

/// What all that answered say, beside the table.
pub(crate) struct NodeReports<'a> {
    cluster: &'a ClusterSnapshot,
    unknown: Option<&'static str>,
    /// The nodes that answered.
    answered: BTreeSet<u32>,
    /// Those that were asked, and did not.
    unanswered: BTreeSet<u32>,
    /// Nodes that serve nothing, and why.
    idle: BTreeMap<u32, NotServed>,
    served: BTreeSet<u32>,
    /// The newest life of each node.
    present: BTreeSet<Incarnation>,
    /// Nodes, and pairs that these say they lack.
    own_missing: BTreeSet<(u32, PairId)>,
    /// Pairs that lack in all reports: their nodes say so, or they lacked before.
    missing: BTreeSet<PairId>,
}

impl NodeReports<'_> {
    /// Of the node that was asked, with its table, and of all that answered it.
    pub(crate) fn new(snapshot: &NodeSnapshot, all: impl IntoIterator<Item = NodeReport>) -> NodeReports<'_> {
        let (mut answered, mut idle, mut served) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        let mut own_missing = BTreeSet::new();
        for NodeReport { node, standing, pairs, missing } in all {
            answered.insert(node);
            own_missing.extend(missing.into_iter().map(|pair| (node, PairId(pair))));
            match standing {
                Standing::Serves => served.extend(pairs),
                Standing::Silent => _ = idle.insert(node, NotServed::Silent { node }),
                Standing::Failed => _ = idle.insert(node, NotServed::Failed { node }),
            }
        }
        let (cluster, unknown) = (&*snapshot.cluster, cluster::unknown(snapshot));
        let present = MemberRow::present_lives(&cluster.members);
        let (unanswered, missing) = (BTreeSet::new(), BTreeSet::new());
        NodeReports { cluster, unknown, answered, unanswered, idle, served, present, own_missing, missing }
    }

    /// These, where those nodes did not answer: their pairs may be served or not. A question may be late, so
    /// that it is no alarm yet; looks that lie apart make them missing.
    pub(crate) fn unanswered(mut self, missing: &[MissingPeer]) -> Self {
        self.unanswered = missing.iter().map(|peer| peer.node).collect();
        self
    }

    /// These, which are a look: with the pairs that lacked at looks before, too, and those that their nodes
    /// say they lack. Nodes look once a second, also while nobody asks.
    pub(crate) fn after(mut self, looks: &mut MissingPairs, at_ms: u64) -> Self {
        let lacking: Vec<&PairRow> = self.cluster.pairs.iter().filter(|row| self.lacks(row)).collect();
        let all: BTreeSet<_> = lacking.iter().map(|row| (row.pair, row.epoch)).collect();
        let mut missing = looks.look(at_ms, &all).clone();
        let says_so =
            |row: &PairRow| self.owner(row).is_some_and(|node| self.own_missing.contains(&(node, row.pair)));
        missing.extend(lacking.into_iter().filter(|row| says_so(row)).map(|row| row.pair));
        self.missing = missing;
        self
    }

    /// The pairs of the table that are not served though it may call them so, and why.
    pub(crate) fn not_served_rows(&self) -> impl Iterator<Item = (&PairRow, NotServed)> {
        self.cluster.pairs.iter().filter_map(move |row| Some((row, self.not_served(row)?)))
    }

    /// Whether the table calls a pair served that no report has, and nothing says why.
    fn lacks(&self, row: &PairRow) -> bool {
        let is_unreported = row.state == PairState::Serving && !self.served.contains(&row.pair.0);
        is_unreported && self.owner(row).is_some() && self.known_reason(row).is_none()
    }

    /// The node whose pair it is, if that lives.
    fn owner(&self, row: &PairRow) -> Option<u32> {
        let mut members = self.cluster.members.iter();
        members.find(|member| Some(member.incarnation) == row.owner).map(|owner| owner.node.0)
    }

    /// A node holds its folder's lock for life: where a newer life of it has joined, the owner's process is
    /// gone. Its pairs are recovered a few at a time, and till then have their row as it was.
    fn restarted(&self, row: &PairRow, owner: Option<u32>) -> Option<NotServed> {
        let is_past = row.owner.is_some_and(|owner| !self.present.contains(&owner));
        let node = owner.filter(|_| is_past && row.state == PairState::Serving)?;
        Some(NotServed::Restarted { node })
    }

    /// Why a pair is not served that the table calls served, or not known to be; none: it is.
    pub(crate) fn not_served(&self, row: &PairRow) -> Option<NotServed> {
        let is_unreported = row.state == PairState::Serving && !self.served.contains(&row.pair.0);
        let unanswered = self.owner(row).filter(|node| is_unreported && self.unanswered.contains(node));
        self.known_reason(row).or(unanswered.map(|node| NotServed::Unanswered { node }))
    }

    /// The same, as far as those who answered show.
    fn known_reason(&self, row: &PairRow) -> Option<NotServed> {
        if self.served.contains(&row.pair.0) {
            return None;
        }
        let owner = self.owner(row);
        let why = owner.and_then(|node| self.idle.get(&node).copied());
        let why = why.or_else(|| self.unknown.map(NotServed::Unknown));
        let why = why.or_else(|| self.restarted(row, owner));
        let lacking = owner.filter(|_| self.missing.contains(&row.pair));
        why.or_else(|| {
            let node = lacking?;
            let has_answered = self.answered.contains(&node);
            Some(if has_answered { NotServed::Missing { node } } else { NotServed::Unreported { node } })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cell_node::FailureKind;

    use super::*;
    use crate::api::regions::tests::two_nodes;
    use crate::test_members::life;

    fn not_served(state: NodeState, all: Vec<NodeReport>) -> Vec<Option<NotServed>> {
        let snapshot = two_nodes(state);
        let reports = NodeReports::new(&snapshot, all);
        snapshot.cluster.pairs.iter().map(|row| reports.not_served(row)).collect()
    }

    fn report(node: u32, standing: Standing) -> NodeReport {
        NodeReport { node, standing, pairs: vec![node - 2], missing: Vec::new() }
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
        let other = NodeReport { pairs: vec![1, 2], ..report(4, false) };
        assert_eq!(not_served(NodeState::Silent, vec![report(3, true), other]), [None, None]);
    }

    /// They were said to be served: by a node that answered and did not have them, or that did not answer.
    #[test]
    fn pairs_that_nobody_reports_at_two_looks_are_missing() {
        let snapshot = two_nodes(NodeState::Serving);
        let has =
            |node, pairs: &[u32]| NodeReport { pairs: pairs.to_vec(), ..report(node, Standing::Serves) };
        let looked = |all: Vec<Vec<NodeReport>>| {
            let (mut looks, mut found) = (MissingPairs::default(), Vec::new());
            for (reports, at_ms) in all.into_iter().zip([10_000, 13_000, 16_000]) {
                let reports = NodeReports::new(&snapshot, reports).after(&mut looks, at_ms);
                found = snapshot.cluster.pairs.iter().map(|row| reports.not_served(row)).collect();
            }
            found
        };
        let lacking = || vec![has(3, &[1]), has(4, &[])];
        assert_eq!(looked(vec![lacking()]), [None, None], "it may be between two owners");
        let missing = NotServed::Missing { node: 4 };
        assert_eq!(looked(vec![lacking(), lacking()]), [None, Some(missing)]);
        assert_eq!((missing.state(), missing.passes()), ("missing", false));
        let alone = || vec![has(3, &[1])];
        let unreported = NotServed::Unreported { node: 4 };
        assert_eq!(looked(vec![lacking(), alone()]), [None, Some(unreported)]);
        assert_eq!((unreported.state(), unreported.passes()), ("missing", true));
        let elsewhere = || vec![has(3, &[1, 2]), has(4, &[])];
        assert_eq!(looked(vec![lacking(), elsewhere()]), [None, None], "it has come to another one");
        assert_eq!(looked(vec![lacking(), elsewhere(), lacking()]), [None, None]);
        // What is known of its node says more.
        let silent = NodeReport { pairs: Vec::new(), ..report(4, Standing::Silent) };
        assert_eq!(
            looked(vec![lacking(), vec![has(3, &[1]), silent]]),
            [None, Some(NotServed::Silent { node: 4 })]
        );
    }

    /// They were said to be served while their node stood still: for two looks, and for whoever asked once
    /// until its lease had ended, which takes 5 s on etcd.
    #[test]
    fn pairs_of_a_node_that_does_not_answer_are_not_known_to_be_served() {
        let snapshot = two_nodes(NodeState::Serving);
        let away = [MissingPeer { node: 4, address: String::new(), why: "no answer within 200 ms".into() }];
        let mut looks = MissingPairs::default();
        let mut of_pair_2 = |all: Vec<NodeReport>, at_ms| {
            let reports = NodeReports::new(&snapshot, all).unanswered(&away).after(&mut looks, at_ms);
            reports.not_served(&snapshot.cluster.pairs[1])
        };
        let first = || report(3, Standing::Serves);
        let unanswered = NotServed::Unanswered { node: 4 };
        assert_eq!(of_pair_2(vec![first()], 10_000), Some(unanswered), "at the first look");
        assert_eq!((unanswered.state(), unanswered.passes()), ("unknown", true));
        assert!(!unanswered.is_missing());
        let taken = NodeReport { pairs: vec![1, 2], ..first() };
        assert_eq!(of_pair_2(vec![taken], 10_500), None, "another one has it by now");
        assert_eq!(of_pair_2(vec![first()], 11_000), Some(unanswered));
        assert_eq!(of_pair_2(vec![first()], 13_500), Some(NotServed::Unreported { node: 4 }), "it lasts");
    }

    /// Only who asked twice within five minutes got that; all others, that the pair was served.
    #[test]
    fn pair_that_its_node_says_it_lacks_is_missing_at_the_first_look() {
        let snapshot = two_nodes(NodeState::Serving);
        let of_pair_2 = |all: Vec<NodeReport>| {
            let reports = NodeReports::new(&snapshot, all).after(&mut MissingPairs::default(), 10_000);
            reports.not_served(&snapshot.cluster.pairs[1])
        };
        let says = |node, pairs: &[u32]| NodeReport {
            pairs: pairs.to_vec(),
            missing: vec![2],
            ..report(node, Standing::Serves)
        };
        let first = || report(3, Standing::Serves);
        assert_eq!(of_pair_2(vec![first(), says(4, &[])]), Some(NotServed::Missing { node: 4 }));
        // It has come to it since the node's own look, or to another one.
        assert_eq!(of_pair_2(vec![first(), says(4, &[2])]), None);
        let taken = NodeReport { pairs: vec![1, 2], ..first() };
        assert_eq!(of_pair_2(vec![taken, says(4, &[])]), None);
        // Whose it is not by the table knows nothing of it.
        let lacks = NodeReport { pairs: Vec::new(), ..report(4, Standing::Serves) };
        assert_eq!(of_pair_2(vec![says(3, &[1]), lacks]), None);
    }

    /// They were said to be missing, and that their node, which recovered them, should be restarted.
    #[test]
    fn pairs_of_an_earlier_life_wait_for_their_node_which_was_started_again() {
        let mut snapshot = two_nodes(NodeState::Serving);
        let mut cluster = (*snapshot.cluster).clone();
        cluster.members.push(life(4, 90));
        snapshot.cluster = Arc::new(cluster);
        let restarted = NotServed::Restarted { node: 4 };
        let mut looks = MissingPairs::default();
        for at_ms in [10_000, 13_000] {
            // Also where it says that it lacks it: the row is of its life before.
            let none = NodeReport { pairs: Vec::new(), missing: vec![2], ..report(4, Standing::Serves) };
            let all = vec![report(3, Standing::Serves), none];
            let reports = NodeReports::new(&snapshot, all).after(&mut looks, at_ms);
            let found: Vec<_> = snapshot.cluster.pairs.iter().map(|row| reports.not_served(row)).collect();
            assert_eq!(found, [None, Some(restarted)]);
        }
        assert_eq!((restarted.state(), restarted.passes()), ("unserved", true));
        assert!(!restarted.is_missing());
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
        let other = NodeReport { pairs: vec![1, 2], ..report(3, Standing::Serves) };
        assert_eq!(not_served(NodeState::Serving, vec![other, report(4, standing)]), [None, None]);
    }
}
