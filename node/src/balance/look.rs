//! What a node shows of balance: who balances, and, if it does so itself, what it goes by.

use std::sync::Arc;

use cell_placement::{Advice, BalanceRules, Balancer, DrainStall, Explanation, Figures, PairStanding};
use cell_terms::{Incarnation, NodeId, PairId};

/// Moves that a node has started as the balancer, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalanceCounts {
    /// A node was above the mean.
    pub above: u64,
    /// A node was below it.
    pub below: u64,
    /// A node drains.
    pub drain: u64,
    /// A pair was made for another node.
    pub fresh: u64,
    /// Writes waited for memory at a node.
    pub full: u64,
    /// Moves that were cancelled, for a drain, a drill or a full node.
    pub cancelled: u64,
}

/// See the module's text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BalanceSnapshot {
    /// The node that balances, as far as this one has seen.
    pub balancer: Option<NodeId>,
    /// Its process, to whose lease that is bound.
    pub seat: Option<Incarnation>,
    /// Whether balance is on, by this node's settings.
    pub on: bool,
    /// Moves that this node has started as the balancer since its start.
    pub moves: BalanceCounts,
    /// What this node goes by as the balancer; none: another one is.
    pub look: Option<Arc<BalanceLook>>,
}

/// What the balancer went by at one time, so that anybody may ask it why.
#[derive(Clone, Debug)]
pub struct BalanceLook {
    /// The core, after it had looked.
    pub(super) core: Balancer,
    pub(super) figures: Figures,
    pub(super) at_ms: u64,
    pub(super) advice: Advice,
}

impl PartialEq for BalanceLook {
    fn eq(&self, other: &BalanceLook) -> bool {
        (self.at_ms, &self.advice, &self.figures) == (other.at_ms, &other.advice, &other.figures)
    }
}

impl BalanceLook {
    /// What a balancer goes by that has just started, by these rules; none: they cannot be.
    #[must_use]
    pub fn of(rules: BalanceRules, figures: Figures, at_ms: u64) -> Option<BalanceLook> {
        let mut core = Balancer::new(rules).ok()?;
        let advice = core.look(at_ms, &figures);
        Some(BalanceLook { core, figures, at_ms, advice })
    }

    /// Whether it says what an earlier one says, but for times that go on by themselves.
    pub(super) fn says_as(&self, before: &BalanceLook) -> bool {
        let stalls = |look: &BalanceLook| {
            let stalls = look.advice.stalls.iter().map(|stall| DrainStall { for_ms: 0, ..stall.clone() });
            stalls.collect::<Vec<_>>()
        };
        self.advice.step == before.advice.step
            && stalls(self) == stalls(before)
            && self.figures.differs_in_times_alone(&before.figures)
    }

    /// What was decided, and how each node stands.
    #[must_use]
    pub fn explain(&self) -> Explanation {
        let Advice { step, stalls } = self.advice.clone();
        Explanation { step, stalls, ..self.core.explain(self.at_ms, &self.figures) }
    }

    /// How a pair stands; none: no member has it.
    #[must_use]
    pub fn explain_pair(&self, pair: PairId) -> Option<PairStanding> {
        self.core.explain_pair(self.at_ms, &self.figures, pair)
    }

    /// How all pairs stand, by their numbers.
    pub fn pairs(&self) -> impl Iterator<Item = PairStanding> {
        let held = self.figures.members.iter().flat_map(|member| &member.pairs);
        held.filter_map(|held| self.explain_pair(held.pair))
    }
}
