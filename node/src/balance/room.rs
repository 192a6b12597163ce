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

/// What keeps these nodes from being emptied, beside those that drain already, as far as that is known for
/// sure: a member that has not told what it has may have room. The view has to follow balance.
#[must_use]
pub fn lacks_room(view: &ClusterView, nodes: &[NodeId]) -> Option<CannotEmpty> {
    let mut seen = SeenFigures::default();
    seen.observe(view, 0);
    let figures = picture::figures(view, &seen, true, 0);
    if figures.members.iter().any(|member| member.told_ms_ago.is_none()) {
        return None;
    }
    let balancer = Balancer::new(BalanceRules::default()).ok()?;
    match balancer.drain_plan(&figures, nodes) {
        Err(refusal @ (DrainRefusal::NoRoom { .. } | DrainRefusal::Held { .. })) => {
            Some(CannotEmpty { why: refusal.to_string(), next: refusal.next() })
        }
        _ => None,
    }
}
