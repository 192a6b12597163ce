//! `GET /api/v1/regions`: the two regions of each pair, with their owner and how full they are.

use std::collections::BTreeMap;

use cell_cluster::{PairRow, Trouble};
use cell_node::{NodeSnapshot, NodeState};
use cell_terms::RegionKind;
use serde::{Deserialize, Serialize};

use crate::api::gathered::{ClusterDocument, Shown};
use crate::api::served::{NodeReport, NodeReports, Standing};
use crate::clock::now_boottime_ms;
use crate::peers::{MissingPeer, NodePart};
use crate::shared::Shared;

/// A region.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RegionRow {
    region: u32,
    /// `node` or `extent`.
    kind: &'static str,
    pair: u32,
    /// The node that owns it now.
    node: Option<u32>,
    /// The owner's incarnation, a decimal number.
    owner: Option<String>,
    epoch: u64,
    bytes: u64,
    /// Null while its owner does not report.
    used_bytes: Option<u64>,
    /// `served`, `unserved`, `missing`, or `unknown`.
    state: &'static str,
    /// Why it is not served, or not known.
    what: Option<String>,
}

/// What the owner of pairs knows of them: bytes used of the node region and of the extent region, by pair.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct RegionsPart {
    used: BTreeMap<u32, [u64; 2]>,
    /// It answers nobody.
    #[serde(default)]
    silent: bool,
    /// It has given its pairs up.
    #[serde(default)]
    failed: bool,
    /// Pairs that it is to serve and does not have, as its own looks show. Earlier versions do not say it.
    #[serde(default)]
    own_missing_pairs: Vec<u32>,
}

/// The rows.
#[derive(Debug, Serialize)]
pub(crate) struct RegionsBody {
    regions: Vec<RegionRow>,
    #[serde(flatten)]
    shown: Shown,
}

/// See the module's text.
pub(crate) struct Regions;

impl ClusterDocument for Regions {
    type Part = RegionsPart;
    type Body = RegionsBody;
    const PATH: &'static str = "/api/v1/regions";
    const HAS_ROWS: bool = true;

    fn part(shared: &Shared, snapshot: &NodeSnapshot) -> RegionsPart {
        let used = snapshot
            .pairs
            .iter()
            .map(|pair| (pair.pair.0, [pair.tree_nodes * pair.tree_node_bytes, pair.extent_allocated_bytes]));
        RegionsPart {
            used: used.collect(),
            silent: snapshot.state == NodeState::Silent,
            failed: matches!(snapshot.state, NodeState::Failed(_)),
            own_missing_pairs: shared.own_missing_pairs().numbers(),
        }
    }

    fn body(
        shared: &Shared,
        snapshot: &NodeSnapshot,
        parts: Vec<NodePart<RegionsPart>>,
        missing: &[MissingPeer],
    ) -> RegionsBody {
        let reports = reports(snapshot, &parts).unanswered(missing);
        let reports = reports.after(&mut shared.missing_pairs(), now_boottime_ms());
        let rows = snapshot.cluster.pairs.iter();
        let regions = rows.flat_map(|pair| rows_of(pair, snapshot, &parts, &reports)).collect();
        RegionsBody { regions, shown: Shown::default() }
    }

    fn limit(body: &mut RegionsBody, rows: usize) -> usize {
        body.shown.limit(&mut body.regions, rows)
    }
}

impl RegionsPart {
    fn standing(&self) -> Standing {
        match self {
            RegionsPart { failed: true, .. } => Standing::Failed,
            RegionsPart { silent: true, .. } => Standing::Silent,
            _ => Standing::Serves,
        }
    }
}

fn reports<'a>(snapshot: &'a NodeSnapshot, parts: &[NodePart<RegionsPart>]) -> NodeReports<'a> {
    let report = |NodePart { node, part }: &NodePart<RegionsPart>| NodeReport {
        node: node.0,
        standing: part.standing(),
        pairs: part.used.keys().copied().collect(),
        missing: part.own_missing_pairs.clone(),
    };
    NodeReports::new(snapshot, parts.iter().map(report))
}

fn rows_of(
    pair: &PairRow,
    snapshot: &NodeSnapshot,
    parts: &[NodePart<RegionsPart>],
    reports: &NodeReports<'_>,
) -> [RegionRow; 2] {
    let cluster = &snapshot.cluster;
    let member = |owner| cluster.members.iter().find(|member| member.incarnation == owner);
    let trouble = Trouble::of(pair, |owner| member(owner).is_some(), &cluster.incidents);
    let not_served = reports.not_served(pair).filter(|_| trouble.is_none());
    let (state, what) = match (&trouble, not_served) {
        (Some(trouble), _) => ("unserved", Some(trouble.what.clone())),
        (None, Some(why)) => (why.state(), Some(why.what())),
        (None, None) => ("served", None),
    };
    let node = pair.owner.and_then(member).map(|member| member.node);
    let used =
        parts.iter().filter(|part| Some(part.node) == node).find_map(|part| part.part.used.get(&pair.pair.0));
    [RegionKind::Node, RegionKind::Extent].map(|kind| {
        let (name, bytes, at) = match kind {
            RegionKind::Node => ("node", pair.geometry.node_region_bytes, 0),
            RegionKind::Extent => ("extent", pair.geometry.extent_region_bytes, 1),
        };
        RegionRow {
            region: pair.region(kind).0,
            kind: name,
            pair: pair.pair.0,
            node: node.map(|node| node.0),
            owner: pair.owner.map(|owner| owner.0.to_string()),
            epoch: u64::from(pair.epoch.0),
            bytes,
            used_bytes: used.map(|used| used[at]),
            state,
            what: what.clone(),
        }
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use cell_cluster::{PairGeometry, PairState};
    use cell_node::ClusterSnapshot;
    use cell_terms::{Epoch, Incarnation, NodeId, PairId};

    use super::*;
    use crate::test_members::life;
    use crate::test_snapshot::snapshot;

    pub(crate) fn pair_row(pair: u32, owner: u64) -> PairRow {
        PairRow {
            pair: PairId(pair),
            node_region: PairId(pair).node_region(),
            extent_region: PairId(pair).extent_region(),
            owner: Some(Incarnation(owner)),
            node: NodeId(3),
            served_by: None,
            host: None,
            epoch: Epoch(1),
            state: PairState::Serving,
            place: None,
            geometry: PairGeometry {
                node_region_bytes: 4_000,
                extent_region_bytes: 6_000,
                slot_bytes: 2,
                node_bytes: 1,
            },
            history: Vec::new(),
            checkpoint: None,
            trusted: Vec::new(),
            findings: Vec::new(),
            refuted: Vec::new(),
        }
    }

    /// Two nodes, 3 and 4, with a pair each, as node 3 has seen them last.
    pub(crate) fn two_nodes(state: NodeState) -> NodeSnapshot {
        let members = vec![life(3, 77), life(4, 78)];
        let pairs = vec![pair_row(1, 77), pair_row(2, 78)];
        let cluster = ClusterSnapshot { members, pairs, ..ClusterSnapshot::default() };
        let lease_remaining_ms = if state == NodeState::Silent { 0 } else { 2_000 };
        NodeSnapshot { state, lease_remaining_ms, cluster: Arc::new(cluster), ..snapshot() }
    }

    fn rows(snapshot: &NodeSnapshot, parts: &[NodePart<RegionsPart>]) -> Vec<RegionRow> {
        let (rows, reports) = (snapshot.cluster.pairs.iter(), reports(snapshot, parts));
        rows.flat_map(|pair| rows_of(pair, snapshot, parts, &reports)).collect()
    }

    /// They were "served" for as long as the coordinator was away.
    #[test]
    fn rows_of_silent_nodes_are_unserved_and_those_that_nobody_reports_unknown() {
        let snapshot = two_nodes(NodeState::Silent);
        let part = |node: u32| NodePart {
            node: NodeId(node),
            part: RegionsPart {
                used: BTreeMap::from([(node - 2, [1, 2])]),
                silent: true,
                ..RegionsPart::default()
            },
        };
        let states = |parts: &[NodePart<RegionsPart>]| {
            rows(&snapshot, parts).iter().map(|row| (row.node, row.state)).collect::<Vec<_>>()
        };
        let unserved = [(Some(3), "unserved"); 2];
        assert_eq!(states(&[part(3), part(4)]), [unserved, [(Some(4), "unserved"); 2]].concat());
        assert_eq!(states(&[part(3)]), [unserved, [(Some(4), "unknown"); 2]].concat());
        let what = rows(&snapshot, &[part(3)])[0].what.clone();
        assert_eq!(what.as_deref(), Some("silent: its node 3 waits for the coordinator"));
        let mut failed = part(4);
        (failed.part.silent, failed.part.failed) = (false, true);
        let of_it = rows(&two_nodes(NodeState::Serving), &[failed]).remove(2);
        assert_eq!((of_it.node, of_it.state), (Some(4), "unserved"));
        assert_eq!(of_it.what.as_deref(), Some("given up: its node 4 has failed"));
    }

    #[test]
    fn rows_have_the_owner_s_figures_and_say_what_is_not_served() {
        let pairs = vec![pair_row(1, 77), pair_row(2, 78)];
        let cluster = ClusterSnapshot { members: vec![life(3, 77)], pairs, ..ClusterSnapshot::default() };
        let snapshot = NodeSnapshot { cluster: Arc::new(cluster), ..snapshot() };
        let used = BTreeMap::from([(1, [100, 200])]);
        let part = RegionsPart { used, ..RegionsPart::default() };
        let parts = [NodePart { node: NodeId(3), part }];
        let rows = rows(&snapshot, &parts);
        assert_eq!(
            rows.iter().map(|row| row.used_bytes).collect::<Vec<_>>(),
            [Some(100), Some(200), None, None]
        );
        assert_eq!((rows[0].node, rows[0].state, rows[0].kind), (Some(3), "served", "node"));
        assert_eq!((rows[3].node, rows[3].state, rows[3].bytes), (None, "unserved", 6_000));
        assert_eq!(rows[2].what.as_deref(), Some("orphaned: its owner has died"));
    }
}
