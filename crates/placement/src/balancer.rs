//! The balancer: what is to be done now, in the order of what goes first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use cell_terms::{NodeId, PairId};

use crate::drain::{DrainPlan, DrainRefusal, Emptying, Places};
use crate::explanation::{Explanation, NodeStanding, PairStanding};
use crate::figures::{Arrival, BalancePause, Figures, HeldPair, MemberFigures, MoveCause, MoveUnderWay};
use crate::fresh::{FreshSplit, fresh_place};
use crate::history::History;
use crate::obstacle::{DrainStall, MoveFailure, PairObstacle};
use crate::reason::{CancelReason, HalfKnown, Measure, MoveReason, NextStep, PlannedMove, RestReason};
use crate::relief;
use crate::rules::{BalanceRules, RulesError};
use crate::search::Search;
use crate::survey::{Standing, Survey, known_load};
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

/// What a look finds.
struct Found {
    step: NextStep,
    blocked: Blocked,
    /// Where the pairs of nodes that drain go; none: that is as it was.
    places: Option<Places>,
}

impl Found {
    fn of(step: NextStep, blocked: Blocked) -> Found {
        Found { step, blocked, places: None }
    }
}

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
        let Found { step, blocked, places } = self.step(now_ms, figures);
        self.history.note_blocked(now_ms, blocked.iter().map(|(_, pair, _)| *pair));
        if let Some(places) = places {
            self.history.keep_places(places);
        }
        match &step {
            NextStep::Move(planned) => self.begin(now_ms, figures, planned),
            NextStep::Cancel { .. } => figures.moving.iter().for_each(|moving| self.history.cancels(*moving)),
            NextStep::Rest(_) => {}
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
        let Found { step, blocked, .. } = self.step(now_ms, figures);
        let survey = Survey::new(figures, &self.history, &self.rules);
        let members = figures.members.iter().zip(&survey.nodes);
        let mut nodes: Vec<NodeStanding> = members
            .map(|(member, standing)| NodeStanding {
                node: member.node,
                state: member.state,
                draining: member.draining,
                pairs: u32::try_from(member.pairs.len()).unwrap_or(u32::MAX),
                bytes: standing.bytes,
                bytes_percent: survey.percent(Measure::Bytes, standing.shares),
                load_ns: standing.load_ns,
                load_percent: survey.percent(Measure::Load, standing.shares),
                full: member.writes_wait.then_some(member.memory_left_bytes),
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
            // Nor does relief, but for an operator's.
            _ if member.writes_wait && relief::may_leave(held, &self.rules) => None,
            _ => search.movable(held, member.node, None).err(),
        };
        let leaves = |member: &MemberFigures| member.draining;
        movable.or_else(|| {
            let why = no_target(figures, &self.history, &self.rules, (held, 0), member.node, leaves);
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
    fn step(&self, now_ms: u64, figures: &Figures) -> Found {
        let drains = figures.members.iter().any(MemberFigures::is_being_emptied);
        if let Some(moving) = figures.moving {
            let step = self.while_moving(now_ms, figures, moving);
            let blocked = match moving.cause {
                MoveCause::Operator => all_blocked(figures, PairObstacle::OtherMove { pair: moving.pair }),
                _ if drains => {
                    let mut blocked = self.emptying(figures, &[]).step().blocked;
                    // Its target keeps memory for it, and so seems to lack it.
                    blocked.retain(|(_, pair, _)| *pair != moving.pair);
                    blocked
                }
                _ => Vec::new(),
            };
            return Found::of(step, blocked);
        }
        if figures.takeovers_open > 0 {
            let pairs = figures.takeovers_open;
            let blocked = all_blocked(figures, PairObstacle::TakeoversOpen { pairs });
            return Found::of(NextStep::Rest(RestReason::TakeoversOpen { pairs }), blocked);
        }
        if drains {
            let drain = self.emptying(figures, &[]).step();
            let relief = relief::beside_drain(now_ms, figures, &drain, &self.history, &self.rules);
            let step = relief.map_or(drain.step, NextStep::Move);
            return Found { step, blocked: drain.blocked, places: drain.places };
        }
        let step = match self.balance(now_ms, figures) {
            Ok(planned) => NextStep::Move(planned),
            Err(why) => NextStep::Rest(why),
        };
        Found::of(step, Vec::new())
    }

    /// What becomes of a move that is under way.
    fn while_moving(&self, now_ms: u64, figures: &Figures, moving: MoveUnderWay) -> NextStep {
        let relieves = self.relieves(figures, moving);
        if let Some(why) = what_ends(figures, moving, relieves) {
            return NextStep::Cancel { pair: moving.pair, why };
        }
        let may_wait = moving.cause == MoveCause::Balance && !moving.handed && !relieves;
        let held_up = || relief::held_up(now_ms, figures, &self.history, &self.rules);
        match may_wait.then(held_up).flatten() {
            Some(node) => NextStep::Cancel { pair: moving.pair, why: CancelReason::WritesWait { node } },
            None => NextStep::Rest(RestReason::Moving(moving)),
        }
    }

    /// Whether a move is for a full node's sake. Who has become the balancer meanwhile sees that it still is.
    fn relieves(&self, figures: &Figures, moving: MoveUnderWay) -> bool {
        let is_full = |member: &MemberFigures| member.node == moving.from && member.writes_wait;
        let helps = || self.history.relieves(moving.pair) || figures.members.iter().any(is_full);
        moving.cause == MoveCause::Balance && helps()
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
        let Some(fresh) = fresh else {
            return self.compared(now_ms, figures).map_err(|why| {
                // What else there is to say comes after that.
                let full = relief::nothing(now_ms, figures, &self.history, &self.rules);
                full.map_or(why, |(node, why)| RestReason::Full { node, why })
            });
        };
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
        if fresh.is_empty() {
            return None;
        }
        fresh.sort_by_key(|(_, held, _)| (Reverse(held.held_ms), held.pair));
        let survey = Survey::new(figures, &self.history, &self.rules);
        fresh.into_iter().find_map(|(member, held, node)| {
            let to = self.fresh_target((figures, &survey), member.node, held, node)?;
            let (pair, from, bytes) = (held.pair, member.node, held.load?.bytes);
            Some(PlannedMove { pair, from, to, bytes, why: MoveReason::Fresh })
        })
    }

    /// Whom it was made for, or another one if that node takes it no more.
    fn fresh_target(
        &self,
        (figures, survey): (&Figures, &Survey),
        from: NodeId,
        held: &HeldPair,
        meant_for: NodeId,
    ) -> Option<NodeId> {
        let load = held.load?;
        let members = || figures.members.iter().zip(&survey.nodes);
        let of = |node: NodeId| members().find(|(member, _)| member.node == node);
        let can_take = |node: NodeId| {
            of(node).is_some_and(|(member, standing)| {
                let room = self.history.memory_left(member) >= load.memory_bytes;
                let place = crate::targets::pairs_left(member) > 0;
                let lifts = of(from).is_some_and(|(_, here)| self.lifts(survey, load.bytes, here, standing));
                takes(member, &self.rules) && room && place && !lifts && !self.history.was_full(member)
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

    /// Whether a node would have too many bytes with a pair that was made for it. It had few when it was
    /// chosen, and nodes that split at the same time do not see each other's choices.
    fn lifts(&self, survey: &Survey, bytes: u64, here: &Standing, there: &Standing) -> bool {
        let takes = survey.shares(bytes, 0).bytes;
        let (left, after) = (here.shares.bytes - takes, there.shares.bytes + takes);
        let is_much = after > 1.0 + self.rules.tolerance() && after > left;
        there.bytes > 0 && (there.shares.bytes > 1.0 || is_much)
    }

    /// Remembers a move that was advised: it may be over before the next look.
    fn begin(&mut self, now_ms: u64, figures: &Figures, planned: &PlannedMove) {
        let member = |node| figures.members.iter().find(|member| member.node == node);
        let held =
            member(planned.from).and_then(|from| from.pairs.iter().find(|held| held.pair == planned.pair));
        if let Some(held) = held {
            if let Some(to) = member(planned.to) {
                self.history.comes(now_ms, held, to, true);
            }
            self.history.carry(now_ms, held, &self.rules);
        }
        let ends = [planned.from, planned.to];
        self.history.forget_relief();
        match planned.why {
            MoveReason::Full { .. } | MoveReason::Above { .. } | MoveReason::Below { .. } => {
                if matches!(planned.why, MoveReason::Full { .. }) {
                    self.history.relieve(now_ms, planned.pair, planned.from);
                }
                self.history.moved(now_ms, planned.pair, ends);
                self.history.note_fresh(false);
            }
            MoveReason::Fresh => self.history.note_fresh(true),
            MoveReason::Drain { .. } => self.history.note_under_way(planned.pair, ends),
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

/// What goes before a move that is under way; none: nothing does, or it cannot be cancelled any more. A drain
/// does not go before one that relieves a full node: it is one pair, and puts are refused meanwhile.
fn what_ends(figures: &Figures, moving: MoveUnderWay, relieves: bool) -> Option<CancelReason> {
    let MoveUnderWay { to, cause, handed, .. } = moving;
    if handed {
        return None;
    }
    if figures.members.iter().any(|member| member.node == to && member.draining) {
        return Some(CancelReason::TargetDrains { node: to });
    }
    if !matches!(cause, MoveCause::Balance | MoveCause::Fresh) {
        return None;
    }
    let drains = figures.members.iter().filter(|member| member.is_being_emptied() && !relieves);
    if let Some(node) = drains.map(|member| member.node).min() {
        return Some(CancelReason::DrainBegan { node });
    }
    // What balance has started goes on where balance is switched off.
    let paused = figures.pause.filter(|pause| *pause != BalancePause::Off);
    paused.map(CancelReason::Paused)
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
    let Some(reported_ms_ago) = member.reported_ms_ago else { return Some(HalfKnown::Unreported) };
    if reported_ms_ago > rules.window_ms {
        return Some(HalfKnown::Old { reported_ms_ago });
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
