//! Balance (`docs/design/balance.md`): what carries out what `cell_placement` decides. A core but for the
//! coordinator, which it is given; the control driver steps it with each look at the cluster.
//!
//! - Each member reports what it has (`reporting`), in a row of its own.
//! - One member has the balancer's seat. About once a second it makes a picture of the rows (`picture`), asks
//!   the core, and begins or cancels a move by its row. The steps of the move are `crate::moves`.
//! - The core learns what has come to nothing (`verdicts`).
//! - The worker gets what the others have (`spreading`): halves of its meganodes may go to them.

mod look;
mod options;
mod picture;
mod reporting;
mod room;
mod spreading;
mod verdicts;

use std::sync::Arc;

use cell_cluster::{
    Balance, BalancerWish, ClusterError, ClusterView, Coordinator, Drains, MoveMotive, MoveRefusal, Moves,
    ReportedArrival, SeatSeen,
};
use cell_placement::{
    Advice, Balancer, DrainStall, Figures, MoveFailure, MoveReason, NextStep, PlannedMove, relief_bytes,
};
use cell_terms::{NodeId, PairId};

use crate::command::ControlEvent;
use crate::figures::WorkerFigures;
use crate::membership::MembershipOptions;
use crate::split::SpreadView;
use crate::wall_clock::WallClock;
use picture::SeenFigures;
use reporting::{NodeRoom, Reporting};
use spreading::{Spreading, may_spread};
use verdicts::Verdicts;

pub use look::{BalanceCounts, BalanceLook, BalanceSnapshot};
pub use options::BalanceOptions;
pub use room::{CannotEmpty, HeldMemory, RoomElsewhere, held_memory, room_elsewhere};

/// The balancer decides so often, or each eighth of the window.
const STEP_MS: u64 = 1_000;
/// A look that says what the one before says is shown after so many, for the times in it.
const SHOWN_EVERY: u64 = 10;
/// What keeps a node from being emptied is written anew so often at most.
const STALL_EVERY_NS: u64 = 5_000_000_000;

/// The core of the member that balances.
struct Seated {
    core: Balancer,
    verdicts: Verdicts,
    due_ns: u64,
    look: Option<Arc<BalanceLook>>,
    /// The one that people were shown last.
    shown: Option<Arc<BalanceLook>>,
    stalls_noted_ns: u64,
}

/// See the module's text.
pub(crate) struct BalanceDriver {
    member: MembershipOptions,
    options: BalanceOptions,
    balance: Balance,
    moves: Moves,
    drains: Drains,
    reporting: Reporting,
    seen: SeenFigures,
    seated: Option<Seated>,
    spreading: Spreading,
    counts: BalanceCounts,
    wall: WallClock,
    stopping: bool,
    /// Something was written that is to be seen at once.
    wrote: bool,
    /// The balancer, as people were shown it last.
    shown: Option<NodeId>,
}

impl BalanceDriver {
    pub(crate) fn new(
        member: MembershipOptions,
        options: BalanceOptions,
        coordinator: &Arc<dyn Coordinator>,
    ) -> BalanceDriver {
        BalanceDriver {
            member,
            options,
            balance: Balance::new(coordinator.clone()),
            moves: Moves::new(coordinator.clone()),
            drains: Drains::new(coordinator.clone()),
            reporting: Reporting::default(),
            seen: SeenFigures::default(),
            seated: None,
            spreading: Spreading::default(),
            counts: BalanceCounts::default(),
            wall: WallClock::default(),
            stopping: false,
            wrote: false,
            shown: None,
        }
    }

    /// Other settings, from the next look on. Rules that cannot be are left out: the settings' bounds are the
    /// same.
    pub(crate) fn set_options(&mut self, options: BalanceOptions) {
        if let Some(seated) = &mut self.seated
            && let Err(error) = seated.core.set_rules(options.rules.clone())
        {
            tracing::error!(%error, "balance goes on by the rules before");
            return;
        }
        self.seated.iter_mut().for_each(|seated| seated.shown = None);
        self.options = options;
        self.spreading.hurry();
    }

    /// What is written of moves is dated by this: what the wall clock showed when the looks' time was zero.
    pub(crate) fn set_wall_zero_ms(&mut self, wall_zero_ms: u64) {
        self.wall.set_zero_ms(wall_zero_ms);
    }

    /// The node goes: another one is to balance.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// What the worker has.
    pub(crate) fn count(&mut self, figures: WorkerFigures) {
        self.reporting.count(figures, self.window_ms() * 1_000_000);
    }

    /// A pair was made here, for another node if there is one.
    pub(crate) fn created(&mut self, pair: PairId, meant_for: Option<NodeId>) {
        self.reporting.arrives(pair, ReportedArrival::Created(meant_for));
    }

    /// A pair has moved here.
    pub(crate) fn moved(&mut self, pair: PairId, motive: MoveMotive) {
        self.reporting.arrives(pair, ReportedArrival::Moved(motive));
    }

    /// For people.
    pub(crate) fn snapshot(&self, view: &ClusterView) -> BalanceSnapshot {
        BalanceSnapshot {
            balancer: view.balance.seat.map(|seen| seen.seat.node),
            seat: view.balance.seat.map(|seen| seen.seat.incarnation),
            on: self.options.on,
            moves: self.counts,
            look: self.seated.as_ref().and_then(|seated| seated.look.clone()),
        }
    }

    /// Whether something was written since this was asked last.
    pub(crate) fn take_wrote(&mut self) -> bool {
        std::mem::take(&mut self.wrote)
    }

    fn window_ms(&self) -> u64 {
        self.options.rules.window_ms
    }

    fn every_ms(&self) -> u64 {
        STEP_MS.min(self.window_ms() / 8).max(1)
    }

    /// What the worker is to get now of the others, if it is time.
    pub(crate) fn spread(&mut self, view: &ClusterView, now_ns: u64) -> Option<ControlEvent> {
        if !self.spreading.is_due(self.every_ms(), now_ns) {
            return None;
        }
        let shown = self.spread_view(view, now_ns);
        self.spreading.event(shown)
    }

    /// None: all halves stay here.
    fn spread_view(&self, view: &ClusterView, now_ns: u64) -> Option<SpreadView> {
        if self.stopping || !self.options.on || view.members.len() < 2 {
            return None;
        }
        let figures = picture::figures(view, &self.seen, self.options.on, now_ns);
        if !may_spread(&figures) {
            return None;
        }
        let others = view.balance.figures.values().filter(|(row, _)| row.node != self.member.node);
        let meganodes = others.fold(0, |sum: u64, (row, _)| sum.saturating_add(row.meganodes));
        let node = self.member.node;
        let shown = SpreadView {
            node,
            relief_bytes: relief_bytes(&figures, &self.options.rules, node),
            figures,
            meganodes,
            rules: self.options.rules.clone(),
            pairs_max: self.options.pairs_max,
            log_bytes: self.options.log_bytes,
        };
        Some(shown.summed())
    }

    /// Takes everything a step further, with so much memory left, and so much of the disk as far as that is
    /// known. Whether there is something new for people.
    pub(crate) fn look(
        &mut self,
        view: &ClusterView,
        (memory_left_bytes, disk_free_bytes): (u64, Option<u64>),
        now_ns: u64,
    ) -> bool {
        self.moves = self.moves.clone().at(self.wall.at_ms(now_ns));
        self.seen.observe(view, now_ns);
        self.report(memory_left_bytes, disk_free_bytes, now_ns);
        let balancer = view.balance.seat.map(|seen| seen.seat.node);
        let is_news = std::mem::replace(&mut self.shown, balancer) != balancer;
        let Some(seat) = self.sit(view, now_ns) else { return is_news };
        let is_due = self.seated.as_ref().is_some_and(|seated| now_ns >= seated.due_ns);
        if is_due {
            self.step(view, &seat, now_ns);
        }
        (is_due && self.is_look_news()) || is_news
    }

    /// Whether people are to be shown the last look.
    fn is_look_news(&mut self) -> bool {
        let again_ms = self.every_ms() * SHOWN_EVERY;
        let Some(seated) = &mut self.seated else { return false };
        let is_known = match (&seated.look, &seated.shown) {
            (Some(look), Some(shown)) => look.at_ms < shown.at_ms + again_ms && look.says_as(shown),
            _ => false,
        };
        if !is_known {
            seated.shown.clone_from(&seated.look);
        }
        !is_known
    }

    fn report(&mut self, memory_left_bytes: u64, disk_free_bytes: Option<u64>, now_ns: u64) {
        let who = (self.member.incarnation, self.member.node);
        let BalanceOptions { pairs_max, log_bytes, first_segments_bytes, .. } = self.options;
        let disk_full = disk_free_bytes.is_some_and(|free| free < first_segments_bytes);
        let room = NodeRoom { memory_left_bytes, disk_full, pairs_max, log_bytes };
        let Some(row) = self.reporting.due(who, room, self.window_ms(), now_ns) else { return };
        match self.balance.report(&row) {
            Ok(()) => self.reporting.reported(row, now_ns),
            Err(error) => tracing::debug!(%error, "this node's figures are not told just now"),
        }
    }

    /// The seat, if it is this node's; one that is free is taken.
    fn sit(&mut self, view: &ClusterView, now_ns: u64) -> Option<SeatSeen> {
        let own = view.balance.seat.filter(|seen| seen.seat.incarnation == self.member.incarnation);
        if self.stopping || own.is_none() {
            self.seated = None;
        }
        let written = match (&view.balance.seat, own) {
            (None, _) if !self.stopping && view.lives(self.member.incarnation) => {
                let MembershipOptions { incarnation, node, .. } = self.member;
                match view.seat_reads() {
                    true => self.balance.take_seat(incarnation, node),
                    false => self.balance.take_unreadable_seat(incarnation, node),
                }
            }
            (_, Some(own)) if self.stopping => self.balance.leave_seat(&own),
            (_, Some(own)) => {
                self.begin(now_ns);
                return Some(own);
            }
            _ => return None,
        };
        match written {
            Ok(()) => self.wrote = true,
            Err(error) => tracing::debug!(%error, "who balances is not settled just now"),
        }
        None
    }

    fn begin(&mut self, now_ns: u64) {
        if self.seated.is_some() {
            return;
        }
        let core = Balancer::new(self.options.rules.clone());
        let core = core.or_else(|error| {
            tracing::error!(%error, "balance goes by the defaults");
            Balancer::new(cell_placement::BalanceRules::default())
        });
        let Ok(core) = core else { return };
        tracing::info!("this node balances");
        let verdicts = Verdicts::default();
        self.seated =
            Some(Seated { core, verdicts, due_ns: now_ns, look: None, shown: None, stalls_noted_ns: 0 });
    }

    /// Decides, and carries out what was decided.
    fn step(&mut self, view: &ClusterView, seat: &SeatSeen, now_ns: u64) {
        let figures = picture::figures(view, &self.seen, self.options.on, now_ns);
        let every_ms = self.every_ms();
        let now_ms = now_ns / 1_000_000;
        let Some(seated) = &mut self.seated else { return };
        seated.due_ns = now_ns.saturating_add(every_ms * 1_000_000);
        for (pair, to, why) in seated.verdicts.failures(view) {
            tracing::info!(pair = pair.0, to = to.0, %why, "a pair is not sent there again at once");
            seated.core.on_failure(now_ms, pair, to, why);
        }
        let advice = seated.core.look(now_ms, &figures);
        match &advice.step {
            NextStep::Move(planned) => self.begin_move(view, seat, planned, now_ms),
            NextStep::Cancel { pair, .. } => self.cancel(view, *pair, &advice.step),
            NextStep::Rest(_) => {}
        }
        self.note_stalls(view, &advice.stalls, now_ns);
        self.show(figures, advice, now_ms);
    }

    fn show(&mut self, figures: Figures, advice: Advice, at_ms: u64) {
        let Some(seated) = &mut self.seated else { return };
        let core = seated.core.clone();
        seated.look = Some(Arc::new(BalanceLook { core, figures, at_ms, advice }));
    }

    /// Begins a move, if this node still balances and nothing was started since its seat was seen.
    fn begin_move(&mut self, view: &ClusterView, seat: &SeatSeen, planned: &PlannedMove, now_ms: u64) {
        let PlannedMove { pair, to, why, .. } = *planned;
        let Some(target) = view.members.values().rev().find(|member| member.node == to) else { return };
        let words = planned.to_string();
        let cause = match why {
            MoveReason::Drain { .. } => MoveMotive::Drain,
            MoveReason::Fresh => MoveMotive::Fresh,
            MoveReason::Full { .. } | MoveReason::Above { .. } | MoveReason::Below { .. } => {
                MoveMotive::Balance
            }
        };
        match self.moves.begin_as(pair, target, &BalancerWish { cause, why: &words, seat }) {
            Ok(_) => {
                tracing::info!("{words}");
                self.wrote = true;
                let count = match why {
                    MoveReason::Drain { .. } => &mut self.counts.drain,
                    MoveReason::Fresh => &mut self.counts.fresh,
                    MoveReason::Full { .. } => &mut self.counts.full,
                    MoveReason::Above { .. } => &mut self.counts.above,
                    MoveReason::Below { .. } => &mut self.counts.below,
                };
                *count += 1;
            }
            // The rows have changed since: the next look shows it.
            Err(ClusterError::Move(MoveRefusal::NotBalancer)) => self.wrote = true,
            Err(error) => {
                tracing::info!(%error, "a move is not begun: {words}");
                // Who has ended is seen to have by the next look, and who does not answer is asked again. A
                // row that does not read stays so: others are not to wait for it.
                let is_refused = !error.is_transient() && !matches!(error, ClusterError::LeaseEnded { .. });
                if let Some(seated) = self.seated.as_mut().filter(|_| is_refused) {
                    let why = match error {
                        ClusterError::Unreadable { .. } => MoveFailure::RowUnreadable,
                        _ => MoveFailure::NotStarted,
                    };
                    seated.core.on_failure(now_ms, pair, to, why);
                }
            }
        }
    }

    fn cancel(&mut self, view: &ClusterView, pair: PairId, step: &NextStep) {
        let Some(of) = view.moves.get(&pair).filter(|of| of.is_under_way()) else { return };
        tracing::info!("{step}");
        if let Some(seated) = &mut self.seated {
            seated.verdicts.cancels(of.name());
        }
        match self.moves.cancel(of.name(), &format!("the balancer, {}", self.member.node)) {
            Ok(_) => {
                self.counts.cancelled += 1;
                self.wrote = true;
            }
            Err(error) => tracing::info!(%error, "a move goes on that was to be cancelled"),
        }
    }

    /// Says in the rows of drains what keeps a node from being emptied.
    fn note_stalls(&mut self, view: &ClusterView, stalls: &[DrainStall], now_ns: u64) {
        let Some(seated) = &mut self.seated else { return };
        let is_due = now_ns.saturating_sub(seated.stalls_noted_ns) >= STALL_EVERY_NS;
        for (node, row) in view.drains.iter().filter(|(_, row)| !row.removed) {
            let words = stalls.iter().find(|stall| stall.node == *node).map(in_words);
            let is_news = row.stall.is_some() != words.is_some();
            if row.stall == words || !(is_news || is_due) {
                continue;
            }
            seated.stalls_noted_ns = now_ns;
            if let Some(words) = &words {
                tracing::warn!(node = node.0, "a node that drains cannot be emptied: {words}");
            }
            if let Err(error) = self.drains.note_stall(*node, words.as_deref()) {
                tracing::debug!(%error, "what keeps a node from being emptied is not noted just now");
            }
        }
    }
}

/// What keeps a node from being emptied, without the time, which goes on.
fn in_words(stall: &DrainStall) -> String {
    format!("{} cannot move: {}", stall.pair, stall.why)
}

#[cfg(test)]
mod tests;
