//! What the rules of placement look at, made of the coordinator's rows and of what the nodes say of
//! themselves: whether nodes can be emptied, and what is in the way of a pair.

use std::collections::BTreeMap;

use cell_cluster::{DrainRow, MemberRow, MoveRow, PairRow, PairState, pairs_left};
use cell_node::{NodeSnapshot, NodeState, PAIRS_MAX, ReadOnlyReason, memory_keepers};
use cell_placement::{
    Arrival, BalanceRules, Balancer, DrainPlan, DrainRefusal, Figures, HeldPair, MemberFigures, MemberState,
    PairHold, PairLoad,
};
use cell_terms::{Durability, Incarnation, NodeId};
use serde::{Deserialize, Serialize};

use crate::peers::NodePart;
use crate::shared::Shared;

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DrainsPart {
    /// One word: see `cell_node::NodeState::word`.
    pub(crate) state: String,
    pub(crate) uptime_ms: u64,
    /// Memory that it may still take.
    pub(crate) memory_available_bytes: u64,
    /// The disk under its logs has no room for those of one more pair. Nodes of earlier versions do not say
    /// it.
    #[serde(default)]
    pub(crate) disk_full: bool,
    /// What its pairs take.
    pub(crate) pairs: Vec<PairPart>,
}

/// What a pair takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PairPart {
    pub(crate) pair: u32,
    /// Of entries and tree nodes.
    pub(crate) bytes: u64,
    /// Of its regions and its logs' buffers.
    pub(crate) memory_bytes: u64,
}

impl DrainsPart {
    /// This node's.
    pub(crate) fn of(shared: &Shared, snapshot: &NodeSnapshot) -> DrainsPart {
        DrainsPart { disk_full: shared.lacks_disk_room(), ..DrainsPart::seen(snapshot) }
    }

    fn seen(snapshot: &NodeSnapshot) -> DrainsPart {
        // Each pair has as many buffers.
        let log_bytes = snapshot.memory.logs.div_ceil(snapshot.pairs.len().max(1) as u64);
        let pair = |pair: &cell_node::PairSnapshot| PairPart {
            pair: pair.pair.0,
            bytes: pair
                .extent_live_bytes
                .saturating_add(pair.tree_nodes.saturating_mul(pair.tree_node_bytes)),
            memory_bytes: pair.granted_bytes.saturating_add(log_bytes),
        };
        let word = match &snapshot.state {
            // A pair whose region is full may leave, and others may come.
            NodeState::ReadOnly(ReadOnlyReason::RegionFull) => NodeState::Serving.word(),
            state => state.word(),
        };
        DrainsPart {
            state: word.to_owned(),
            uptime_ms: snapshot.uptime_ms,
            memory_available_bytes: snapshot.memory.available,
            disk_full: false,
            pairs: snapshot.pairs.iter().map(pair).collect(),
        }
    }
}

/// The coordinator's rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    pub(crate) members: Vec<MemberRow>,
    pub(crate) pairs: Vec<PairRow>,
    pub(crate) drains: Vec<DrainRow>,
    /// Those that may still bring a pair to a node. Only for how far a drain is: no plan asks for them.
    pub(crate) moves: Vec<MoveRow>,
    /// Why nobody balances, and so nobody carries drains out.
    pub(crate) nobody_balances: Option<String>,
}

impl Rows {
    /// The pairs of a node, also those that wait for it to come back.
    pub(crate) fn pairs_of(&self, node: NodeId) -> impl Iterator<Item = &PairRow> {
        self.pairs.iter().filter(move |row| row.node == node)
    }

    /// How many a node has left: also those that moves may still bring there.
    pub(crate) fn pairs_left(&self, node: NodeId) -> u64 {
        pairs_left(node, &self.pairs, &self.moves, |of| self.lives(of))
    }

    fn lives(&self, incarnation: Incarnation) -> bool {
        self.members.iter().any(|member| member.incarnation == incarnation)
    }

    /// A pair that a node does not have, and may still get by a move, in words.
    fn coming(&self, node: NodeId) -> Option<String> {
        let comes = |of: &&MoveRow| {
            let row = self.pairs.iter().find(|row| row.pair == of.pair);
            row.is_some_and(|row| of.may_come(node, row, &|of| self.lives(of)))
        };
        let of = self.moves.iter().filter(|of| of.is_under_way()).find(comes)?;
        Some(match of.target.node == node {
            true => format!("{} is on its way to the node (`cell region ls`)", of.pair),
            false => format!("{} was handed over, and {} does not serve it yet", of.pair, of.target.node),
        })
    }

    /// Whether all of these nodes drain.
    pub(crate) fn all_drain(&self, nodes: &[NodeId]) -> bool {
        nodes.iter().all(|node| self.drains.iter().any(|row| row.node == *node && !row.removed))
    }

    /// Whether a node is in the cluster, or any row tells that it was.
    pub(crate) fn knows(&self, node: NodeId) -> bool {
        self.members.iter().any(|member| member.node == node)
            || self.drains.iter().any(|row| row.node == node)
            || self.pairs_of(node).next().is_some()
    }

    /// Rows and what the nodes say, put together.
    pub(crate) fn figures(&self, parts: &[NodePart<DrainsPart>]) -> Figures {
        let reported: BTreeMap<NodeId, &DrainsPart> =
            parts.iter().map(|part| (part.node, &part.part)).collect();
        let present = || MemberRow::present_rows(&self.members);
        let keepers = memory_keepers(&self.pairs, present(), |of| self.lives(of));
        let members = present().map(|member| MemberFigures {
            keeps_memory: keepers.contains(&member.node),
            ..self.member(member, reported.get(&member.node).copied())
        });
        Figures { members: members.collect(), ..Figures::default() }
    }

    fn member(&self, member: &MemberRow, reported: Option<&DrainsPart>) -> MemberFigures {
        let own = self.pairs.iter().filter(|row| row.owner == Some(member.incarnation));
        MemberFigures {
            node: member.node,
            state: reported.map_or(MemberState::Silent, |reported| state(&reported.state)),
            draining: self.drains.iter().any(|row| row.node == member.node),
            reported_ms_ago: reported.map(|_| 0),
            serving_ms: reported.map_or(0, |reported| reported.uptime_ms),
            memory_left_bytes: reported.map_or(0, |reported| reported.memory_available_bytes),
            writes_wait: false, // no drain asks
            disk_full: reported.is_some_and(|reported| reported.disk_full),
            keeps_memory: false, // all rows say
            pairs_max: PAIRS_MAX,
            pairs: own.map(|row| held(row, reported)).collect(),
        }
    }

    /// Where the pairs of these nodes would go; or why they cannot be emptied.
    pub(crate) fn plan(
        &self,
        parts: &[NodePart<DrainsPart>],
        nodes: &[NodeId],
    ) -> Result<DrainPlan, DrainRefusal> {
        balancer().drain_plan(&self.figures(parts), nodes)
    }

    /// What keeps a node that drains from being emptied, as far as that is seen at a look: the first of its
    /// pairs that has something in its way.
    pub(crate) fn obstacle(&self, parts: &[NodePart<DrainsPart>], node: NodeId) -> Option<String> {
        let (balancer, figures) = (balancer(), self.figures(parts));
        let obstacle = self.pairs_of(node).find_map(|row| {
            let pair = row.pair;
            let Some(standing) = balancer.explain_pair(0, &figures, pair) else {
                return Some(format!("{pair} cannot move: nobody serves it"));
            };
            standing.obstacle.map(|why| format!("{pair} cannot move: {why}"))
        });
        obstacle.or_else(|| self.coming(node))
    }
}

fn balancer() -> Balancer {
    Balancer::new(BalanceRules::default()).expect("the default rules are within their bounds")
}

fn state(word: &str) -> MemberState {
    match word {
        "serving" => MemberState::Serving,
        "read_only" => MemberState::ReadOnly,
        "starting" | "recovering" => MemberState::Recovering,
        "stopping" => MemberState::Stopping,
        _ => MemberState::Silent,
    }
}

fn held(row: &PairRow, reported: Option<&DrainsPart>) -> HeldPair {
    let part = reported.and_then(|reported| reported.pairs.iter().find(|part| part.pair == row.pair.0));
    let has_no_log = row.history.last().is_some_and(|epoch| epoch.durability == Durability::None);
    HeldPair {
        pair: row.pair,
        load: part.map(|part| PairLoad { bytes: part.bytes, memory_bytes: part.memory_bytes, load_ns: 0 }),
        held_ms: reported.map_or(0, |reported| reported.uptime_ms),
        arrival: Arrival::TakenOver,
        hold: match row.state {
            _ if has_no_log => Some(PairHold::NoLog),
            PairState::Unavailable { .. } => Some(PairHold::Damaged),
            PairState::Recovering | PairState::Released => Some(PairHold::Takeover),
            PairState::New | PairState::Serving => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_snapshot::snapshot;

    /// Several MiB a pair were left out, and more was sent to a node than it had room for.
    #[test]
    fn pair_takes_its_logs_buffers_along() {
        let mut node = snapshot();
        node.pairs[0].granted_bytes = 100;
        let second = cell_node::PairSnapshot { granted_bytes: 7, ..cell_node::PairSnapshot::default() };
        node.pairs.push(second);
        let part = DrainsPart::seen(&node);
        let memory: Vec<u64> = part.pairs.iter().map(|pair| pair.memory_bytes).collect();
        assert_eq!(memory, [105, 12], "of 10 bytes of buffers half each");
    }

    /// It was no target of a plan, and the balancer sent pairs there.
    #[test]
    fn node_with_a_full_region_takes_pairs_and_one_with_a_full_disk_does_not() {
        let mut node = snapshot();
        let reasons = [ReadOnlyReason::RegionFull, ReadOnlyReason::DiskFull];
        let states = reasons.map(|reason| {
            node.state = NodeState::ReadOnly(reason);
            state(&DrainsPart::seen(&node).state)
        });
        assert_eq!(states, [MemberState::Serving, MemberState::ReadOnly]);
    }
}
