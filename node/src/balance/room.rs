//! Whether nodes can be emptied, and what they hold, by the coordinator's rows alone: for who has no node at
//! hand to ask. What a member has not reported is not known: it may have room, or much that needs some.

use cell_cluster::ClusterView;
use cell_placement::{BalanceRules, Balancer, DrainRefusal, Figures};
use cell_terms::NodeId;
use cell_terms::text::counted;

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

/// What a member's pairs take in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldMemory {
    /// The member's node.
    pub node: NodeId,
    /// All of them.
    pub bytes: u64,
    /// The largest one.
    pub largest_bytes: u64,
}

/// Whether these nodes could be emptied beside those that drain already. The view has to follow balance.
#[must_use]
pub fn room_elsewhere(view: &ClusterView, nodes: &[NodeId]) -> RoomElsewhere {
    let figures = figures(view);
    if let Some(why) = unreported(&figures) {
        return RoomElsewhere::Unknown(why);
    }
    let Ok(balancer) = Balancer::new(BalanceRules::default()) else { return RoomElsewhere::Enough };
    match balancer.drain_plan(&figures, nodes) {
        // Memory is kept for these: a moment later it may be enough.
        Err(DrainRefusal::NoRoom { .. }) if figures.takeovers_open > 0 => {
            RoomElsewhere::Unknown(takeovers_open(&figures))
        }
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

/// What the pairs of each member take. The view has to follow balance.
///
/// # Errors
/// Why nobody can say just now, in words.
pub fn held_memory(view: &ClusterView) -> Result<Vec<HeldMemory>, String> {
    let figures = figures(view);
    if let Some(why) = unreported(&figures) {
        return Err(why);
    }
    if figures.takeovers_open > 0 {
        return Err(takeovers_open(&figures));
    }
    let held = figures.members.iter().map(|member| {
        let mut held = HeldMemory { node: member.node, bytes: 0, largest_bytes: 0 };
        for pair in &member.pairs {
            let why_unknown = || format!("{} has not reported yet what its pairs take", member.node);
            let load = pair.load.ok_or_else(why_unknown)?;
            held.bytes = held.bytes.saturating_add(load.memory_bytes);
            held.largest_bytes = held.largest_bytes.max(load.memory_bytes);
        }
        Ok(held)
    });
    held.collect()
}

fn figures(view: &ClusterView) -> Figures {
    let mut seen = SeenFigures::default();
    seen.observe(view, 0);
    picture::figures(view, &seen, true, 0)
}

/// That pairs wait to be recovered, in words.
fn takeovers_open(figures: &Figures) -> String {
    let pairs = counted(u64::from(figures.takeovers_open), "pair is", "pairs are");
    format!("{pairs} to be taken over")
}

/// A member that has reported nothing yet, in words.
fn unreported(figures: &Figures) -> Option<String> {
    let member = figures.members.iter().find(|member| member.reported_ms_ago.is_none())?;
    Some(format!("{} has not reported yet what it has", member.node))
}
