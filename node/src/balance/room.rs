//! Whether nodes can be emptied, by the coordinator's rows alone: for who has no node at hand to ask.

use cell_cluster::ClusterView;
use cell_placement::{BalanceRules, Balancer, DrainRefusal};
use cell_terms::NodeId;

use super::picture::{self, SeenFigures};

/// Why nodes cannot be emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotEmpty {
    /// In words.
    pub why: String,
    /// What helps; none: more room.
    pub next: Option<&'static str>,
}

/// Whether the others have room for what some nodes have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoomElsewhere {
    /// They have, as far as it goes by room.
    Enough,
    /// Nobody can say just now: why.
    Unknown(String),
    /// They have not.
    Lacks(CannotEmpty),
}

/// Whether these nodes could be emptied beside those that drain already. The view has to follow balance.
#[must_use]
pub fn room_elsewhere(view: &ClusterView, nodes: &[NodeId]) -> RoomElsewhere {
    let mut seen = SeenFigures::default();
    seen.observe(view, 0);
    let figures = picture::figures(view, &seen, true, 0);
    // It may have room, or much that needs some.
    if let Some(member) = figures.members.iter().find(|member| member.told_ms_ago.is_none()) {
        return RoomElsewhere::Unknown(format!("{} has not told yet what it has", member.node));
    }
    let Ok(balancer) = Balancer::new(BalanceRules::default()) else { return RoomElsewhere::Enough };
    match balancer.drain_plan(&figures, nodes) {
        Err(
            refusal @ (DrainRefusal::NoRoom { .. } | DrainRefusal::Held { .. } | DrainRefusal::NobodyLeft),
        ) => RoomElsewhere::Lacks(CannotEmpty { why: refusal.to_string(), next: refusal.next() }),
        Err(refusal @ (DrainRefusal::Owner { .. } | DrainRefusal::Unreported { .. })) => {
            RoomElsewhere::Unknown(refusal.to_string())
        }
        // Who begins the drain says so in words of its own.
        Err(DrainRefusal::Unknown { .. }) | Ok(_) => RoomElsewhere::Enough,
    }
}

/// What keeps these nodes from being emptied, as far as that is known for sure.
#[must_use]
pub fn lacks_room(view: &ClusterView, nodes: &[NodeId]) -> Option<CannotEmpty> {
    match room_elsewhere(view, nodes) {
        RoomElsewhere::Lacks(lacks) => Some(lacks),
        RoomElsewhere::Enough | RoomElsewhere::Unknown(_) => None,
    }
}
