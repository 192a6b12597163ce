//! The nodes of the cluster that have joined, also those whose leases have ended: who lives does not show
//! who is missing. They are known by their rows; what this node has seen of them says since when they are
//! absent, and is all that is known where the table has no such rows yet. A pure core: it is shown a snapshot
//! with the time, once a second.

use std::collections::BTreeMap;

use cell_node::NodeSnapshot;
use cell_terms::Incarnation;

use crate::clock::LookTime;

/// Nodes that are remembered, at most: as many as a cluster has.
const NODES_MAX: usize = 1_024;
/// A node that is absent for so long is not expected back.
const EXPECTED_MS: u64 = 24 * 3_600 * 1_000;

/// A node that has no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AbsentNode {
    pub(crate) node: u32,
    /// Its last incarnation.
    pub(crate) incarnation: Incarnation,
    /// Since when, by the clock that is never set, as far as this node has seen.
    since_ms: u64,
    /// The same in milliseconds since 1970. None: it is known by its row alone, and nobody has seen it end.
    pub(crate) since_unix_ms: Option<u64>,
    /// It is to be emptied.
    pub(crate) draining: bool,
}

#[derive(Clone, Copy, Debug)]
struct KnownNode {
    incarnation: Incarnation,
    /// None: it is a member.
    absent: Option<AbsentNode>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct KnownNodes {
    nodes: BTreeMap<u32, KnownNode>,
}

impl KnownNodes {
    /// A look at the cluster. Before a node has seen its cluster, nothing is known of others.
    pub(crate) fn observe(&mut self, at: LookTime, snapshot: &NodeSnapshot) {
        let cluster = &snapshot.cluster;
        if cluster.members.is_empty() {
            return;
        }
        for member in &cluster.members {
            let known = KnownNode { incarnation: member.incarnation, absent: None };
            self.keep(member.node.0, known);
        }
        let is_member = |node: u32| cluster.members.iter().any(|member| member.node.0 == node);
        for (&node, known) in self.nodes.iter_mut().filter(|(node, _)| !is_member(**node)) {
            let incarnation = known.incarnation;
            known.absent.get_or_insert(absent(node, incarnation, at, at.boottime_ms));
        }
        let row_of = |node: u32| cluster.drains.iter().find(|row| row.node.0 == node);
        // Who was removed is not taken for one that failed.
        let is_removed = |node: u32| row_of(node).is_some_and(|row| row.removed);
        self.nodes.retain(|node, _| is_member(*node) || !is_removed(*node));
        for (node, known) in &mut self.nodes {
            if let Some(absent) = &mut known.absent {
                absent.draining = row_of(*node).is_some();
            }
        }
        // A node that died before this one looked for the first time is known by what became of its pairs.
        for incident in cluster.incidents.iter().filter(|incident| !incident.is_of_nobody()) {
            let node = incident.node.0;
            if !is_member(node) && !self.nodes.contains_key(&node) && !is_removed(node) {
                let absent = absent(node, incident.dead, at, incident.detected_ms.min(at.boottime_ms));
                self.keep(node, KnownNode { incarnation: incident.dead, absent: Some(absent) });
            }
        }
        // Of one that nobody who lives has seen, its row is left.
        for row in &cluster.joined {
            let node = row.node.0;
            if !is_member(node) && !self.nodes.contains_key(&node) && !is_removed(node) {
                let absent = absent(node, row.incarnation, at, at.boottime_ms);
                let absent = AbsentNode { since_unix_ms: None, ..absent };
                self.keep(node, KnownNode { incarnation: row.incarnation, absent: Some(absent) });
            }
        }
    }

    /// Whether there is or was such a node.
    pub(crate) fn knows(&self, node: u32) -> bool {
        self.nodes.contains_key(&node)
    }

    fn keep(&mut self, node: u32, known: KnownNode) {
        if self.nodes.len() < NODES_MAX || self.nodes.contains_key(&node) {
            self.nodes.insert(node, known);
        }
    }

    /// Those that have no lease and are expected back, by number.
    pub(crate) fn absent(&self, at: LookTime) -> Vec<AbsentNode> {
        let absent = self.nodes.values().filter_map(|known| known.absent);
        absent.filter(|absent| at.boottime_ms.saturating_sub(absent.since_ms) < EXPECTED_MS).collect()
    }
}

fn absent(node: u32, incarnation: Incarnation, at: LookTime, since_ms: u64) -> AbsentNode {
    let since_unix_ms = Some(at.unix_ms.saturating_sub(at.boottime_ms.saturating_sub(since_ms)));
    AbsentNode { node, incarnation, since_ms, since_unix_ms, draining: false }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cell_cluster::{DrainRow, IncidentRow, JoinedRow};
    use cell_node::ClusterSnapshot;
    use cell_terms::NodeId;

    use super::*;
    use crate::test_members::member;
    use crate::test_snapshot::snapshot;

    fn at(second: u64) -> LookTime {
        LookTime { boottime_ms: second * 1_000, unix_ms: (1_000_000 + second) * 1_000 }
    }

    fn cluster(nodes: &[u32], dead: &[u32]) -> NodeSnapshot {
        let incident = |node: &u32| IncidentRow {
            dead: Incarnation(70 + u64::from(*node)),
            node: NodeId(*node),
            claimed_by: Incarnation(70),
            lease_seen_ms: 0,
            detected_ms: 40_000,
            claimed_ms: 0,
            over_ms: 0,
            plan: Vec::new(),
        };
        let members = nodes.iter().copied().map(member).collect();
        let incidents = dead.iter().map(incident).collect();
        let cluster = ClusterSnapshot { members, incidents, ..ClusterSnapshot::default() };
        NodeSnapshot { cluster: Arc::new(cluster), ..snapshot() }
    }

    /// Nobody has seen since when.
    const UNKNOWN: u64 = u64::MAX;

    fn listed(known: &KnownNodes, second: u64) -> Vec<(u32, u64)> {
        let since = |absent: &AbsentNode| absent.since_unix_ms.map_or(UNKNOWN, |since| since / 1_000);
        known.absent(at(second)).iter().map(|absent| (absent.node, since(absent))).collect()
    }

    /// A node that was killed was once gone from all lists as soon as its lease had ended.
    #[test]
    fn node_without_a_lease_is_absent_until_it_is_back_or_not_expected_any_more() {
        let mut known = KnownNodes::default();
        known.observe(at(10), &cluster(&[0, 1, 2], &[]));
        assert_eq!(listed(&known, 10), []);
        known.observe(at(20), &cluster(&[0, 1], &[]));
        known.observe(at(30), &cluster(&[0, 1], &[]));
        assert_eq!(listed(&known, 30), [(2, 1_000_020)]);
        assert_eq!(listed(&known, 20 + 24 * 3_600), []);
        known.observe(at(40), &cluster(&[0, 1, 2], &[]));
        assert_eq!(listed(&known, 40), []);
    }

    #[test]
    fn node_that_died_before_the_first_look_is_known_by_its_incident() {
        let mut known = KnownNodes::default();
        known.observe(at(50), &cluster(&[], &[1]));
        assert_eq!(listed(&known, 50), [], "the cluster was not seen yet");
        known.observe(at(60), &cluster(&[0, 3], &[1, 3]));
        assert_eq!(listed(&known, 60), [(1, 1_000_040)]);
    }

    fn with_joined(looked: NodeSnapshot, joined: &[u32]) -> NodeSnapshot {
        let row =
            |&node: &u32| JoinedRow { node: NodeId(node), incarnation: Incarnation(60 + u64::from(node)) };
        let joined = joined.iter().map(row).collect();
        let cluster = ClusterSnapshot { joined, ..(*looked.cluster).clone() };
        NodeSnapshot { cluster: Arc::new(cluster), ..looked }
    }

    /// A lost node was unknown to survivors that had all been restarted since.
    #[test]
    fn node_that_nobody_who_lives_has_seen_is_known_by_its_row() {
        let mut known = KnownNodes::default();
        known.observe(at(50), &with_joined(cluster(&[], &[]), &[0, 1, 2]));
        assert_eq!(listed(&known, 50), [], "the cluster was not seen yet");
        known.observe(at(60), &with_joined(cluster(&[0, 1], &[]), &[0, 1, 2]));
        assert_eq!(listed(&known, 60), [(2, UNKNOWN)], "that is not the time of the first look");
        assert_eq!(listed(&known, 60 + 24 * 3_600), [], "it is not expected for ever");
        assert_eq!(known.absent(at(60))[0].incarnation, Incarnation(62));
        assert!(known.knows(2) && !known.knows(3));
        known.observe(at(70), &with_joined(cluster(&[0, 1, 2], &[]), &[0, 1, 2]));
        assert_eq!(listed(&known, 70), [], "it is back");
        // What became of its pairs says better since when.
        let mut other = KnownNodes::default();
        other.observe(at(60), &with_joined(cluster(&[0, 1], &[2]), &[0, 1, 2]));
        assert_eq!(listed(&other, 60), [(2, 1_000_040)]);
    }

    #[test]
    fn node_that_was_removed_is_not_expected_back() {
        let row = |removed| DrainRow {
            node: NodeId(2),
            who: "ops".to_owned(),
            why: None,
            since_unix_ms: 0,
            removed,
            stall: None,
        };
        let with = |rows: Vec<DrainRow>| {
            let snapshot = cluster(&[0, 1], &[2]);
            let cluster = ClusterSnapshot { drains: rows, ..(*snapshot.cluster).clone() };
            NodeSnapshot { cluster: Arc::new(cluster), ..snapshot }
        };
        let mut known = KnownNodes::default();
        known.observe(at(10), &cluster(&[0, 1, 2], &[]));
        known.observe(at(50), &with(vec![row(false)]));
        assert!(known.absent(at(50))[0].draining);
        known.observe(at(60), &with(vec![row(true)]));
        assert_eq!(listed(&known, 60), []);
        let mut later = KnownNodes::default();
        later.observe(at(60), &with(vec![row(true)]));
        assert_eq!(listed(&later, 60), [], "nor by what became of its pairs");
    }

    #[test]
    fn nodes_past_the_bound_are_not_remembered() {
        let mut known = KnownNodes::default();
        known.observe(at(1), &cluster(&(0..1_100).collect::<Vec<_>>(), &[]));
        known.observe(at(2), &cluster(&[0], &[]));
        assert_eq!(listed(&known, 2).len(), NODES_MAX - 1);
    }
}
