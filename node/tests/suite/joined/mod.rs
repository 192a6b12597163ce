//! A node that has joined a simulated cluster, with an empty disk: every pair has as little to replay.

use std::sync::Arc;

use cell_cluster::{Coordinator, HostId, Layout, MemberRow, Members, PairGeometry, Sim, SimLink, Table};
use cell_node::{ClusterAgent, MembershipOptions};
use cell_terms::{Incarnation, NodeId};
use cell_wal::sim::SimDisk;

pub(crate) const MS: u64 = 1_000_000;
const LEASE_MS: u64 = 500;
const GRACE_NS: u64 = 2_000 * MS;
const GEOMETRY: PairGeometry =
    PairGeometry { node_region_bytes: 4, extent_region_bytes: 4, slot_bytes: 1, node_bytes: 1 };

pub(crate) struct Joined {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) link: SimLink,
    pub(crate) table: Table,
    pub(crate) agent: ClusterAgent,
}

/// Enters a node among the members; its side, which looks at the cluster every so often.
pub(crate) fn enter(
    coordinator: &Arc<dyn Coordinator>,
    options: MembershipOptions,
    every_ns: u64,
) -> ClusterAgent {
    let MembershipOptions { incarnation, node, .. } = options;
    let row = MemberRow {
        incarnation,
        node,
        fabric: format!("sim:{}", node.0),
        http: String::new(),
        pid: node.0,
        memory_limit_bytes: 0,
    };
    Members::new(coordinator.clone()).enter(&row).unwrap();
    ClusterAgent::new(coordinator, Arc::new(SimDisk::new(0)), options, every_ns)
}

/// A node of a cluster of so many, which looks at it every so often.
pub(crate) fn join(sim: &Sim, node: u32, nodes: u32, every_ns: u64) -> Joined {
    let link = sim.link();
    let incarnation = link.grant(LEASE_MS).unwrap().lease;
    let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
    let table = Table::new(coordinator.clone()).on_host(Some(HostId::new(1, 1)));
    table.lay_out(&Layout::even(nodes, 2), GEOMETRY, incarnation).unwrap();
    let node = NodeId(node);
    let options = MembershipOptions { incarnation, node, joined_ns: sim.now_ns(), grace_ns: GRACE_NS };
    let agent = enter(&coordinator, options, every_ns);
    Joined { node, incarnation, link, table, agent }
}
