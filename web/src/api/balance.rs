//! `GET /api/v1/balance`: who balances, what is next and why, or why nothing moves; how each node and each
//! pair stands. The node that balances says it; the others ask that one.

use cell_node::{BalanceCounts, BalanceLook, BalanceSnapshot, ClusterSnapshot, NodeSnapshot};
use cell_placement::{Explanation, NextStep, NodeStanding, PairStanding};
use cell_terms::NodeId;
use serde::{Deserialize, Serialize};

use crate::api::gathered::{ClusterDocument, Shown};
use crate::peers::{MissingPeer, NodePart};
use crate::shared::Shared;

/// What is said where no node has the seat.
const FREE_SEAT: &str =
    "no node has the balancer's seat just now (`balance/seat`), and nothing moves until one has it";

/// Why nobody balances, as far as a node sees that: for drains, too, which nobody else carries out.
pub(crate) fn why_nobody(cluster: &ClusterSnapshot) -> Option<String> {
    let BalanceSnapshot { balancer, seat, .. } = &cluster.balance;
    let (Some(node), Some(seat)) = (balancer, seat) else { return Some(FREE_SEAT.to_owned()) };
    let lives = cluster.members.iter().any(|member| member.incarnation == *seat);
    let until = "nothing moves until another node has it";
    (!lives).then(|| format!("the balancer's seat is of {node}, which has ended, and {until}"))
}

/// What is said where no node that answers balances.
fn nobody(cluster: &ClusterSnapshot) -> String {
    let silent =
        |node: NodeId| format!("{node} has the balancer's seat, and does not say just now what it does");
    why_nobody(cluster).or_else(|| cluster.balance.balancer.map(silent)).unwrap_or_default()
}

/// How a node stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeBalance {
    pub(crate) node: u32,
    /// Its pairs.
    pub(crate) pairs: u32,
    /// Theirs, of entries and tree nodes.
    pub(crate) bytes: u64,
    /// Of the mean. None for all: there are too few to count.
    pub(crate) bytes_percent: Option<u32>,
    /// Of its worker's time.
    pub(crate) load_share: f64,
    /// Of the mean. None as above.
    pub(crate) load_percent: Option<u32>,
    pub(crate) draining: bool,
    /// Puts find no memory there. Nodes of earlier versions do not say it.
    #[serde(default)]
    pub(crate) writes_wait: bool,
    /// All that is to be said, in a sentence.
    pub(crate) words: String,
}

/// How a pair stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PairBalance {
    pub(crate) pair: u32,
    pub(crate) node: u32,
    /// None: its owner has not reported.
    pub(crate) bytes: Option<u64>,
    /// Of the worker's time. None as above.
    pub(crate) load_share: Option<f64>,
    /// What keeps it where it is; null: nothing does, if a move helps.
    pub(crate) obstacle: Option<String>,
}

/// Moves that the balancer has started since its process began, by why; and those that it has cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MovesStarted {
    pub(crate) above: u64,
    pub(crate) below: u64,
    pub(crate) drain: u64,
    pub(crate) fresh: u64,
    /// Nodes of earlier versions do not say it.
    #[serde(default)]
    pub(crate) full: u64,
    pub(crate) cancelled: u64,
}

/// What a node says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BalancePart {
    /// Whether it is the one that balances.
    pub(crate) balances: bool,
    /// Whether balance is on.
    pub(crate) on: bool,
    /// `move`, `cancel` or `rest`.
    pub(crate) step: String,
    /// What is done and why, or why nothing is.
    pub(crate) decision: String,
    /// Of a node.
    pub(crate) mean_bytes: u64,
    /// Of a node's worker.
    pub(crate) mean_load_share: f64,
    pub(crate) moves: MovesStarted,
    pub(crate) nodes: Vec<NodeBalance>,
    pub(crate) pairs: Vec<PairBalance>,
}

/// What all say together.
#[derive(Debug, Serialize)]
pub(crate) struct BalanceBody {
    /// The node that balances; null: none that answers does.
    balancer: Option<u32>,
    on: bool,
    step: String,
    decision: String,
    mean_bytes: u64,
    mean_load_share: f64,
    moves: MovesStarted,
    nodes: Vec<NodeBalance>,
    pairs: Vec<PairBalance>,
    /// Of the pairs.
    #[serde(flatten)]
    shown: Shown,
}

/// See the module's text.
pub(crate) struct BalanceDocument;

/// Nanoseconds a second as a part of the second.
fn share(load_ns: u64) -> f64 {
    load_ns as f64 / 1e9
}

fn step_word(step: &NextStep) -> &'static str {
    match step {
        NextStep::Move(_) => "move",
        NextStep::Cancel { .. } => "cancel",
        NextStep::Rest(_) => "rest",
    }
}

fn of_node(standing: &NodeStanding) -> NodeBalance {
    NodeBalance {
        node: standing.node.0,
        pairs: standing.pairs,
        bytes: standing.bytes,
        bytes_percent: standing.bytes_percent,
        load_share: share(standing.load_ns),
        load_percent: standing.load_percent,
        draining: standing.draining,
        writes_wait: standing.full.is_some(),
        words: standing.to_string(),
    }
}

fn of_pair(standing: &PairStanding) -> PairBalance {
    PairBalance {
        pair: standing.pair.0,
        node: standing.node.0,
        bytes: standing.load.map(|load| load.bytes),
        load_share: standing.load.map(|load| share(load.load_ns)),
        obstacle: standing.obstacle.as_ref().map(ToString::to_string),
    }
}

impl From<BalanceCounts> for MovesStarted {
    fn from(counts: BalanceCounts) -> MovesStarted {
        let BalanceCounts { above, below, drain, fresh, full, cancelled } = counts;
        MovesStarted { above, below, drain, fresh, full, cancelled }
    }
}

impl BalancePart {
    /// This node's.
    pub(crate) fn of(snapshot: &NodeSnapshot) -> BalancePart {
        let balance = &snapshot.cluster.balance;
        let nothing = BalancePart {
            balances: false,
            on: balance.on,
            step: "rest".to_owned(),
            decision: nobody(&snapshot.cluster),
            mean_bytes: 0,
            mean_load_share: 0.0,
            moves: balance.moves.into(),
            nodes: Vec::new(),
            pairs: Vec::new(),
        };
        match &balance.look {
            Some(look) => nothing.with(look),
            None => nothing,
        }
    }

    fn with(self, look: &BalanceLook) -> BalancePart {
        let Explanation { step, mean_bytes, mean_load_ns, nodes, .. } = look.explain();
        let mut pairs: Vec<PairBalance> = look.pairs().map(|standing| of_pair(&standing)).collect();
        pairs.sort_by_key(|pair| pair.pair);
        BalancePart {
            balances: true,
            step: step_word(&step).to_owned(),
            decision: step.to_string(),
            mean_bytes,
            mean_load_share: share(mean_load_ns),
            nodes: nodes.iter().map(of_node).collect(),
            pairs,
            ..self
        }
    }
}

impl ClusterDocument for BalanceDocument {
    type Part = BalancePart;
    type Body = BalanceBody;
    const PATH: &'static str = "/api/v1/balance";
    const HAS_ROWS: bool = true;

    fn part(_shared: &Shared, snapshot: &NodeSnapshot) -> BalancePart {
        BalancePart::of(snapshot)
    }

    fn body(
        _shared: &Shared,
        snapshot: &NodeSnapshot,
        parts: Vec<NodePart<BalancePart>>,
        _missing: &[MissingPeer],
    ) -> BalanceBody {
        let found = parts.into_iter().find(|part| part.part.balances);
        let balancer = found.as_ref().map(|part| part.node.0);
        let part =
            found.map_or_else(|| BalancePart { balances: false, ..BalancePart::of(snapshot) }, |of| of.part);
        let BalancePart { on, step, decision, mean_bytes, mean_load_share, moves, nodes, pairs, .. } = part;
        let shown = Shown::default();
        BalanceBody { balancer, on, step, decision, mean_bytes, mean_load_share, moves, nodes, pairs, shown }
    }

    fn limit(body: &mut BalanceBody, rows: usize) -> usize {
        body.shown.limit(&mut body.pairs, rows)
    }
}

#[cfg(test)]
mod tests {
    use cell_cluster::MemberRow;
    use cell_placement::PairLoad;
    use cell_terms::{Incarnation, PairId};

    use super::*;

    #[test]
    fn why_nobody_balances_is_that_the_seat_is_free_or_of_a_dead_one() {
        let member = MemberRow {
            incarnation: Incarnation(72),
            node: NodeId(2),
            fabric: String::new(),
            http: String::new(),
            pid: 1,
            memory_limit_bytes: 0,
        };
        let seen = |seat: Option<u64>| {
            let (balancer, seat) = (seat.map(|_| NodeId(2)), seat.map(Incarnation));
            let balance = BalanceSnapshot { balancer, seat, ..BalanceSnapshot::default() };
            ClusterSnapshot { balance, members: vec![member.clone()], ..ClusterSnapshot::default() }
        };
        assert_eq!(nobody(&seen(None)), FREE_SEAT);
        assert!(nobody(&seen(Some(71))).contains("the balancer's seat is of node-2, which has ended"));
        assert_eq!(why_nobody(&seen(Some(72))), None);
        assert!(nobody(&seen(Some(72))).starts_with("node-2 has the balancer's seat"));
    }

    /// It was said to have 0 bytes.
    #[test]
    fn pair_that_nobody_has_reported_has_unknown_bytes() {
        let standing =
            |load| of_pair(&PairStanding { pair: PairId(3), node: NodeId(1), load, obstacle: None });
        let unknown = standing(None);
        assert_eq!((unknown.bytes, unknown.load_share), (None, None));
        let known = standing(Some(PairLoad { bytes: 5, memory_bytes: 9, load_ns: 500_000_000 }));
        assert_eq!((known.bytes, known.load_share), (Some(5), Some(0.5)));
    }
}
