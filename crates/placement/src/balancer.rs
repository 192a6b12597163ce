//! The balancer: what is to be done now, in the order of what goes first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use cell_terms::{NodeId, PairId};

use crate::drain::{DrainPlan, DrainRefusal, Emptying};
use crate::explanation::{Explanation, NodeStanding, PairStanding};
use crate::figures::{Arrival, BalancePause, Figures, HeldPair, MemberFigures, MoveCause, MoveUnderWay};
use crate::fresh::{FreshSplit, fresh_place};
use crate::history::History;
use crate::obstacle::{DrainStall, MoveFailure, PairObstacle};
use crate::reason::{CancelReason, HalfKnown, MoveReason, NextStep, PlannedMove, RestReason};
use crate::relief;
use crate::rules::{BalanceRules, RulesError};
use crate::search::Search;
use crate::survey::{Survey, known_load};
use crate::targets::{no_target, takes};

/// What a look comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What is to be done.
    pub step: NextStep,
    /// The pairs that have kept a drain from going on for longer than `stall_ms`.
    pub stalls: Vec<DrainStall>,
}

/// So many moves of fresh pairs in a row go before one of balance that is due.
const FRESH_IN_ROW_MAX: u32 = 4;

/// Pairs of nodes that drain which cannot move now.
type Blocked = Vec<(NodeId, PairId, PairObstacle)>;

/// See the crate's text. One for as long as a member is the balancer; a new one knows nothing.
#[derive(Clone, Debug)]
pub struct Balancer {
    rules: BalanceRules,
    history: History,
}

impl Balancer {
    /// A balancer that has seen nothing yet.
    ///
    /// # Errors
    /// See [`BalanceRules::check`].
    pub fn new(rules: BalanceRules) -> Result<Balancer, RulesError> {
        rules.check()?;
        Ok(Balancer { rules, history: History::default() })
    }

    /// Other rules from now on; what was seen is kept.
    ///
    /// # Errors
    /// See [`BalanceRules::check`]; the old rules stay.
    pub fn set_rules(&mut self, rules: BalanceRules) -> Result<(), RulesError> {
        rules.check()?;
        self.rules = rules;
        Ok(())
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> &BalanceRules {
        &self.rules
    }

    /// What is to be done now. `now_ms` is the caller's clock, which never goes back.
    pub fn look(&mut self, now_ms: u64, figures: &Figures) -> Advice {
        self.history.observe(now_ms, figures, &self.rules);
        let (step, blocked) = self.step(now_ms, figures);
        self.history.note_blocked(now_ms, blocked.iter().map(|(_, pair, _)| *pair));
        if let NextStep::Move(planned) = &step {
            self.begin(now_ms, figures, planned);
        }
        Advice { step, stalls: self.stalls(now_ms, figures, blocked) }
    }

    /// A move that was advised, or another's, came to nothing.
    pub fn on_failure(&mut self, now_ms: u64, pair: PairId, to: NodeId, why: MoveFailure) {
        self.history.fail(now_ms, pair, to, why);
    }

    /// What [`Balancer::look`] would say, and how each node stands. It changes nothing.
    #[must_use]
    pub fn explain(&self, now_ms: u64, figures: &Figures) -> Explanation {
        let (step, blocked) = self.step(now_ms, figures);
        let survey = Survey::new(figures, &self.history, &self.rules);
        let members = figures.members.iter().zip(&survey.nodes);
        let mut nodes: Vec<NodeStanding> = members
            .map(|(member, standing)| NodeStanding {
                node: member.node,
                state: member.state,
                draining: member.draining,
                pairs: u32::try_from(member.pairs.len()).unwrap_or(u32::MAX),
                bytes: standing.bytes,
                bytes_percent: crate::words::percent(standing.shares.bytes),
                load_ns: standing.load_ns,
                load_percent: crate::words::percent(standing.shares.load),
                unknown: half_known(&self.history, &self.rules, member),
                gives_in_ms: self.history.gives_in_ms(now_ms, member.node, &self.rules),
                takes_in_ms: self.history.takes_in_ms(now_ms, member.node, &self.rules),
            })
            .collect();
        nodes.sort_by_key(|standing| standing.node);
        let (mean_bytes, mean_load_ns) = (survey.mean_bytes, survey.mean_load_ns);
        Explanation { step, mean_bytes, mean_load_ns, nodes, stalls: self.stalls(now_ms, figures, blocked) }
    }

    /// How one pair stands: what it takes, and what keeps it where it is, if anything does. None: no member
    /// has it.
    #[must_use]
    pub fn explain_pair(&self, now_ms: u64, figures: &Figures, pair: PairId) -> Option<PairStanding> {
        let found = figures
            .members
            .iter()
            .find_map(|member| member.pairs.iter().find(|held| held.pair == pair).map(|held| (member, held)));
        let (member, held) = found?;
        let obstacle = self.obstacle(now_ms, figures, member, held);
        Some(PairStanding { pair, node: member.node, load: held.load, obstacle })
    }

    fn obstacle(
        &self,
        now_ms: u64,
        figures: &Figures,
        member: &MemberFigures,
        held: &HeldPair,
    ) -> Option<PairObstacle> {
        if !member.can_give() {
            return Some(PairObstacle::Owner { node: member.node, state: member.state });
        }
        let survey = Survey::new(figures, &self.history, &self.rules);
        let search = Search { now_ms, figures, survey: &survey, history: &self.history, rules: &self.rules };
        let movable = match held.hold {
            // A drain waits for no rest.
            None if member.draining => None,
            _ => search.movable(held, member.node, None).err(),
        };
        let leaves = |member: &MemberFigures| member.draining;
        movable.or_else(|| {
            let why = no_target(figures, &self.history, &self.rules, held, member.node, leaves);
            why.map(PairObstacle::NoTarget)
        })
    }

    /// Where the pairs of these nodes would go if they were to be emptied beside those that drain already.
    ///
    /// # Errors
    /// Why they cannot be emptied.
    pub fn drain_plan(&self, figures: &Figures, nodes: &[NodeId]) -> Result<DrainPlan, DrainRefusal> {
        self.emptying(figures, nodes).plan()
    }

    fn emptying<'a>(&'a self, figures: &'a Figures, also: &'a [NodeId]) -> Emptying<'a> {
        Emptying { figures, history: &self.history, rules: &self.rules, also }
    }

    /// The step, and the pairs that a drain cannot move.
    fn step(&self, now_ms: u64, figures: &Figures) -> (NextStep, Blocked) {
        let drains = figures.members.iter().any(MemberFigures::is_being_emptied);
        if let Some(moving) = figures.moving {
            let step = while_moving(figures, moving);
            let blocked = match moving.cause {
                MoveCause::Operator => all_blocked(figures, PairObstacle::OtherMove { pair: moving.pair }),
                _ if drains => {
                    let mut blocked = self.emptying(figures, &[]).step().1;
                    // Its target keeps memory for it, and so seems to lack it.
                    blocked.retain(|(_, pair, _)| *pair != moving.pair);
                    blocked
                }
                _ => Vec::new(),
            };
            return (step, blocked);
        }
        if figures.takeovers_open > 0 {
            let pairs = figures.takeovers_open;
            let blocked = all_blocked(figures, PairObstacle::TakeoversOpen { pairs });
            return (NextStep::Rest(RestReason::TakeoversOpen { pairs }), blocked);
        }
        if drains {
            return self.emptying(figures, &[]).step();
        }
        let step = match self.balance(now_ms, figures) {
            Ok(planned) => NextStep::Move(planned),
            Err(why) => NextStep::Rest(why),
        };
        (step, Vec::new())
    }

    /// The next move while nothing moves and no node drains.
    fn balance(&self, now_ms: u64, figures: &Figures) -> Result<PlannedMove, RestReason> {
        if let Some(pause) = figures.pause {
            return Err(RestReason::Paused(pause));
        }
        let fresh = self.fresh(figures);
        // After each move of relief a pair has its turn that was made for another node.
        let is_relief_turn = fresh.is_none() || self.history.fresh_in_row() > 0;
        let relieves = is_relief_turn.then(|| relief::next(now_ms, figures, &self.history, &self.rules));
        if let Some(planned) = relieves.flatten() {
            return Ok(planned);
        }
        let Some(fresh) = fresh else { return self.compared(now_ms, figures) };
        // Under a load there is always another one.
        let is_others_turn = self.history.fresh_in_row() >= FRESH_IN_ROW_MAX;
        let compared = is_others_turn.then(|| self.compared(now_ms, figures)).and_then(Result::ok);
        Ok(compared.unwrap_or(fresh))
    }

    /// The next move of balance among pairs that were not just made for another node.
    fn compared(&self, now_ms: u64, figures: &Figures) -> Result<PlannedMove, RestReason> {
        let rules = &self.rules;
        if figures.members.iter().filter(|member| member.shares_load()).count() < 2 {
            return Err(RestReason::OneNode);
        }
        if let Some(left_ms) = self.history.watches_ms(now_ms, rules) {
            return Err(RestReason::NewBalancer { left_ms });
        }
        if let Some(left_ms) = self.history.after_drain_ms(now_ms, rules) {
            return Err(RestReason::AfterDrain { left_ms });
        }
        for member in figures.members.iter().filter(|member| !member.draining) {
            if let Some(why) = half_known(&self.history, rules, member) {
                return Err(RestReason::HalfKnown { node: member.node, why });
            }
        }
        let survey = Survey::new(figures, &self.history, rules);
        if !survey.counts() {
            return Err(RestReason::TooLittle);
        }
        Search { now_ms, figures, survey: &survey, history: &self.history, rules }.next()
    }

    /// The move of a pair that was made for another node and whose split is open: the one that has waited for
    /// longest, whichever node has it. One that could not leave while it was young is a pair like any other
    /// from then on.
    fn fresh(&self, figures: &Figures) -> Option<PlannedMove> {
        let members = figures.members.iter().filter(|member| member.can_give());
        let held = members.flat_map(|member| member.pairs.iter().map(move |held| (member, held)));
        let mut fresh: Vec<(&MemberFigures, &HeldPair, NodeId)> = held
            .filter_map(|(member, held)| {
                let Arrival::Created { meant_for: Some(node) } = held.arrival else { return None };
                let is_young = held.held_ms < self.rules.window_ms;
                let may_leave = is_young && held.hold.is_none() && held.load.is_some() && node != member.node;
                may_leave.then_some((member, held, node))
            })
            .collect();
        fresh.sort_by_key(|(_, held, _)| (Reverse(held.held_ms), held.pair));
        fresh.into_iter().find_map(|(member, held, node)| {
            let to = self.fresh_target(figures, member.node, held, node)?;
            let (pair, from, bytes) = (held.pair, member.node, held.load?.bytes);
            Some(PlannedMove { pair, from, to, bytes, why: MoveReason::Fresh })
        })
    }

    /// Whom it was made for, or another one if that node takes it no more.
    fn fresh_target(
        &self,
        figures: &Figures,
        from: NodeId,
        held: &HeldPair,
        meant_for: NodeId,
    ) -> Option<NodeId> {
        let load = held.load?;
        let can_take = |node: NodeId| {
            let member = figures.members.iter().find(|member| member.node == node);
            member.is_some_and(|member| {
                let room = member.memory_left_bytes >= load.memory_bytes;
                let place = crate::targets::pairs_left(member) > 0;
                takes(member, &self.rules) && room && place && !self.history.was_full(member)
            }) && self.history.failure(held.pair, node).is_none()
        };
        if can_take(meant_for) {
            return Some(meant_for);
        }
        let (pair, memory_bytes) = (held.pair, load.memory_bytes);
        let split = FreshSplit { from, pair, bytes: load.bytes, memory_bytes };
        // Nodes do not know who was full a short time ago, and has least for that.
        let mut others = figures.clone();
        others.members.iter_mut().for_each(|member| member.writes_wait = self.history.was_full(member));
        let place = fresh_place(&others, &self.rules, &split);
        (place.node != from && can_take(place.node)).then_some(place.node)
    }

    /// Remembers a move that was advised: it may be over before the next look.
    fn begin(&mut self, now_ms: u64, figures: &Figures, planned: &PlannedMove) {
        let from = figures.members.iter().find(|member| member.node == planned.from);
        let held = from.and_then(|from| from.pairs.iter().find(|held| held.pair == planned.pair));
        if let Some(held) = held {
            self.history.carry(now_ms, held, &self.rules);
        }
        match planned.why {
            MoveReason::Full { .. } | MoveReason::Above { .. } | MoveReason::Below { .. } => {
                if matches!(planned.why, MoveReason::Full { .. }) {
                    self.history.relieve(now_ms, planned.from);
                }
                self.history.moved(now_ms, planned.pair, [planned.from, planned.to]);
                self.history.note_fresh(false);
            }
            MoveReason::Fresh => self.history.note_fresh(true),
            MoveReason::Drain { .. } => {}
        }
    }

    /// The pairs that cannot move now, or of which one move after the other has come to nothing, once that
    /// has lasted.
    fn stalls(&self, now_ms: u64, figures: &Figures, blocked: Blocked) -> Vec<DrainStall> {
        let mut stalls: BTreeMap<(NodeId, PairId), DrainStall> = BTreeMap::new();
        for (node, pair, why) in blocked {
            let for_ms = self.history.blocked_ms(now_ms, pair);
            stalls.insert((node, pair), DrainStall { node, pair, for_ms, why });
        }
        for (pair, failing_ms, why) in self.history.failing(now_ms) {
            let has = |member: &&MemberFigures| member.pairs.iter().any(|held| held.pair == pair);
            let drains = figures.members.iter().filter(|member| member.draining);
            let Some(MemberFigures { node, .. }) = drains.into_iter().find(has) else { continue };
            let failing = DrainStall { node: *node, pair, for_ms: failing_ms, why };
            let stall = stalls.entry((*node, pair)).or_insert(failing);
            stall.for_ms = stall.for_ms.max(failing_ms);
        }
        stalls.into_values().filter(|stall| stall.for_ms >= self.rules.stall_ms).collect()
    }
}

/// What becomes of a move that is under way.
fn while_moving(figures: &Figures, moving: MoveUnderWay) -> NextStep {
    let MoveUnderWay { pair, to, cause, handed, .. } = moving;
    let cancel = |why| NextStep::Cancel { pair, why };
    if handed {
        return NextStep::Rest(RestReason::Moving(moving));
    }
    if figures.members.iter().any(|member| member.node == to && member.draining) {
        return cancel(CancelReason::TargetDrains { node: to });
    }
    if matches!(cause, MoveCause::Balance | MoveCause::Fresh) {
        let drains = figures.members.iter().filter(|member| member.is_being_emptied());
        if let Some(node) = drains.map(|member| member.node).min() {
            return cancel(CancelReason::DrainBegan { node });
        }
        // What balance has begun goes on where balance is switched off.
        if let Some(pause @ (BalancePause::Drill | BalancePause::RollingRestart)) = figures.pause {
            return cancel(CancelReason::Paused(pause));
        }
    }
    NextStep::Rest(RestReason::Moving(moving))
}

/// Every pair that is to leave, if nothing moves at all.
fn all_blocked(figures: &Figures, why: PairObstacle) -> Blocked {
    let draining = figures.members.iter().filter(|member| member.draining);
    draining
        .flat_map(|member| member.pairs.iter().map(|held| (member.node, held.pair, why.clone())))
        .collect()
}

/// What is not known of a member.
fn half_known(history: &History, rules: &BalanceRules, member: &MemberFigures) -> Option<HalfKnown> {
    if !member.can_give() {
        return Some(HalfKnown::State(member.state));
    }
    let Some(told_ms_ago) = member.told_ms_ago else { return Some(HalfKnown::Unreported) };
    if told_ms_ago > rules.window_ms {
        return Some(HalfKnown::Old { told_ms_ago });
    }
    let left_ms = rules.window_ms.saturating_sub(member.serving_ms);
    if left_ms > 0 {
        return Some(HalfKnown::Began { left_ms });
    }
    member.pairs.iter().find_map(|held| {
        let pair = held.pair;
        if known_load(held, history, rules).is_none() {
            return Some(HalfKnown::Pair { pair });
        }
        let left_ms = rules.window_ms.saturating_sub(held.held_ms);
        (held.arrival == Arrival::TakenOver && left_ms > 0).then_some(HalfKnown::TakenOver { pair, left_ms })
    })
}
