//! Planned moves of pairs (`docs/design/moves.md`): the steps of a source (`source`) and of a target
//! (`target`), each a core of its own, and here what carries them out: calls of the coordinator, events for
//! the worker, copies (`copying`). The control driver steps it with each look at the cluster.

mod copying;
mod source;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cell_cluster::{
    ClusterError, ClusterView, CopyProgress, MoveOutcome, MoveRow, MoveStage, Moves, Ownership, PairRow,
    Table,
};
use cell_recovery::Progress;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Epoch, Incarnation, PairId};

use crate::command::{ControlEvent, StayReason};
use crate::membership::MembershipOptions;
use source::{Seen, SourceAction, SourceMove};
use target::{CopyState, TargetAction, TargetMove};

pub use copying::{CopyEnd, CopyJob, CopyOrders, CopyRun};

/// How often the rows are looked at by a target that waits for the handing.
const HASTE_NS: u64 = 2_000_000;

/// What the control driver is to do.
pub(crate) enum MoveEffect {
    /// Notify the worker.
    Notify(ControlEvent),
    /// Make a copy.
    Copy(CopyJob),
    /// Files of this pair that were kept are needed no more.
    Tidy(PairId),
}

/// A move away from here.
struct Source {
    core: SourceMove,
    /// Counts what was asked of the worker: an answer to an earlier question is none to this one.
    ticket: u64,
}

/// A move hither.
struct Target {
    core: TargetMove,
    job: Option<CopyJob>,
}

/// See the module's text.
pub(crate) struct MovesDriver {
    options: MembershipOptions,
    table: Table,
    moves: Moves,
    sources: BTreeMap<PairId, Source>,
    targets: BTreeMap<PairId, Target>,
    tickets: u64,
    stopping: bool,
    /// As of the last look.
    now_ns: u64,
    /// When the rows are to be looked at next.
    due_ns: u64,
}

/// The pairs that were handed over to an incarnation by moves that are under way: what becomes of them its
/// moves decide, and not its membership, which would claim them as takeovers that were broken off.
pub(crate) fn handed_to(view: &ClusterView, incarnation: Incarnation) -> BTreeSet<PairId> {
    let handed = |of: &&MoveRow| {
        of.is_under_way() && of.stage == MoveStage::Handed && of.target.incarnation == incarnation
    };
    let moves = view.moves.values().filter(|_| !planted(Mutant::HandedClaimed));
    moves.filter(handed).map(|of| of.pair).collect()
}

impl MovesDriver {
    pub(crate) fn new(options: MembershipOptions, table: &Table) -> MovesDriver {
        MovesDriver {
            options,
            table: table.clone(),
            moves: Moves::new(table.coordinator().clone()),
            sources: BTreeMap::new(),
            targets: BTreeMap::new(),
            tickets: 0,
            stopping: false,
            now_ns: 0,
            due_ns: u64::MAX,
        }
    }

    /// The node goes: nothing begins, and what was not handed over stays.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Breaks all copies off.
    pub(crate) fn stop_copies(&mut self) {
        let jobs = self.targets.values_mut().filter_map(|target| target.job.take());
        jobs.for_each(|job| job.orders.stop());
    }

    /// Whether log and images of a pair are kept for a copy.
    pub(crate) fn keeps(&self, pair: PairId) -> bool {
        self.sources.contains_key(&pair)
    }

    /// When the rows are to be looked at next, for what this knows.
    pub(crate) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Takes each move a step further, by the rows as they are; `owned` are the pairs of this node.
    pub(crate) fn look(&mut self, view: &ClusterView, owned: &[Ownership], now_ns: u64) -> Vec<MoveEffect> {
        (self.now_ns, self.due_ns) = (now_ns, u64::MAX);
        let mut effects = Vec::new();
        let incarnation = self.options.incarnation;
        for of in view.moves.values().filter(|of| of.is_under_way()) {
            let owns = |own: &Ownership| (own.pair, own.epoch) == (of.pair, of.epoch);
            let is_source = of.source.incarnation == incarnation && owned.iter().any(owns);
            if is_source && !self.sources.contains_key(&of.pair) {
                tracing::info!(pair = of.pair.0, to = of.target.node.0, "a pair is to move away");
                self.sources.insert(of.pair, Source { core: SourceMove::new(of), ticket: 0 });
                effects.push(MoveEffect::Notify(ControlEvent::KeepLog { pair: of.pair, keep: true }));
            }
            if of.target.incarnation == incarnation && !self.targets.contains_key(&of.pair) {
                tracing::info!(pair = of.pair.0, from = of.source.node.0, "a pair is to move here");
                self.targets.insert(of.pair, Target { core: TargetMove::new(of), job: None });
            }
            let has_ended = |end: Incarnation| !view.lives(end);
            if view.lives(incarnation)
                && [of.source.incarnation, of.target.incarnation].into_iter().all(has_ended)
            {
                self.close_for_the_dead(of, view);
            }
        }
        for pair in self.sources.keys().copied().collect::<Vec<_>>() {
            self.step_source(pair, view, &mut effects);
        }
        for pair in self.targets.keys().copied().collect::<Vec<_>>() {
            self.step_target(pair, view, &mut effects);
        }
        effects
    }

    /// Nobody is left who would say what became of this move. Any member does, so that nobody waits for it.
    fn close_for_the_dead(&self, of: &MoveRow, view: &ClusterView) {
        let served = |pair: &PairRow| of.is_handed(pair) && pair.is_published();
        let outcome = match view.pairs.get(&of.pair) {
            Some(pair) if served(pair) => MoveOutcome::Moved,
            _ => MoveOutcome::GivenUp { why: "both of its ends have ended".to_owned() },
        };
        if let Err(error) = self.moves.close(of.name(), &outcome) {
            tracing::debug!(%error, pair = of.pair.0, "a move of the dead is not closed here just now");
        }
    }

    /// The worker has frozen a pair.
    pub(crate) fn frozen(
        &mut self,
        (pair, ticket): (PairId, u64),
        epoch: Epoch,
        cut: Csn,
        view: &ClusterView,
    ) -> Vec<MoveEffect> {
        let is_answer = |source: &&mut Source| source.ticket == ticket || planted(Mutant::StaleFreezeTaken);
        let source = self.sources.get_mut(&pair).filter(is_answer);
        if !source.is_some_and(|source| source.core.frozen(epoch, cut)) {
            // Nobody wants that any more.
            return vec![MoveEffect::Notify(ControlEvent::Thaw { pair, ticket })];
        }
        let mut effects = Vec::new();
        self.step_source(pair, view, &mut effects);
        effects
    }

    /// The worker does not freeze a pair.
    pub(crate) fn stays(&mut self, pair: PairId, why: StayReason) {
        if let Some(source) = self.sources.get_mut(&pair) {
            source.core.stays(why.words());
        }
    }

    /// A copy has ended.
    pub(crate) fn copied(&mut self, job: &CopyJob, end: CopyEnd) {
        let Some(target) = self.targets.get_mut(&job.name.pair) else { return };
        let is_present = |present: &CopyJob| Arc::ptr_eq(&present.orders, &job.orders);
        if target.core.name != job.name || !target.job.as_ref().is_some_and(is_present) {
            return;
        }
        target.job = None;
        match end {
            CopyEnd::Served => target.core.served(),
            CopyEnd::Failed { why, files_gone } => {
                tracing::warn!(pair = job.name.pair.0, why, "a copy of a pair came to nothing");
                target.core.copy_failed(&why, files_gone);
            }
        }
        self.due_ns = 0;
    }

    fn step_source(&mut self, pair: PairId, view: &ClusterView, effects: &mut Vec<MoveEffect>) {
        let Some(source) = self.sources.get_mut(&pair) else { return };
        let name = source.core.name;
        let of = view.moves.get(&pair).filter(|of| of.name() == name);
        let other_lives = of.is_some_and(|of| view.lives(of.target.incarnation));
        let (stopping, now_ns) = (self.stopping, self.now_ns);
        let seen = Seen { of, pair: view.pairs.get(&pair), other_lives, stopping, now_ns };
        let mut action = source.core.next(&seen);
        while let Some(next) = action {
            action = self.act_as_source(pair, next, of, effects);
        }
    }

    /// Carries an action out; what follows at once.
    fn act_as_source(
        &mut self,
        pair: PairId,
        action: SourceAction,
        of: Option<&MoveRow>,
        effects: &mut Vec<MoveEffect>,
    ) -> Option<SourceAction> {
        let source = self.sources.get_mut(&pair)?;
        let (name, epoch) = (source.core.name, source.core.epoch());
        let ownership = Ownership { pair: source.core.pair(), epoch, incarnation: self.options.incarnation };
        let mut notify = |event| effects.push(MoveEffect::Notify(event));
        let ticket = source.ticket;
        let (mut follows, mut wrote) = (None, Ok(()));
        match action {
            SourceAction::Accept => wrote = self.moves.accept(name).map(drop),
            SourceAction::Freeze => {
                self.tickets += 1;
                source.ticket = self.tickets;
                notify(ControlEvent::Freeze { pair, ticket: source.ticket });
            }
            SourceAction::Hand { cut } => {
                wrote = self.table.hand(ownership, cut, name).map(drop);
                log_handing(pair, cut, wrote.is_ok());
                follows = source.core.hand_ended(wrote.as_ref().copied());
            }
            SourceAction::PutAgain => {
                wrote = self.table.put_again(ownership);
                follows = source.core.put_ended(wrote.as_ref().copied());
            }
            SourceAction::Thaw => notify(ControlEvent::Thaw { pair, ticket }),
            SourceAction::Forget => notify(ControlEvent::Handed { pair, ticket }),
            SourceAction::TakeBack => {
                let why = "its target did not serve it in time";
                wrote = of.map_or(Ok(()), |of| self.table.take_back(of, why).map(drop));
                log_way_back(pair, wrote.is_ok());
                source.core.write_ended(wrote.as_ref().copied());
            }
            SourceAction::GiveUp { why } => {
                tracing::warn!(pair = pair.0, why, "a move is given up");
                wrote = self.moves.end(name, &MoveOutcome::GivenUp { why }).map(drop);
                source.core.write_ended(wrote.as_ref().copied());
            }
            SourceAction::Close(outcome) => {
                wrote = self.moves.close(name, &outcome).map(drop);
                source.core.write_ended(wrote.as_ref().copied());
            }
            SourceAction::End => {
                self.sources.remove(&pair);
                notify(ControlEvent::KeepLog { pair, keep: false });
                effects.push(MoveEffect::Tidy(pair));
                return None;
            }
        }
        self.note_write(pair, &wrote);
        follows
    }

    fn step_target(&mut self, pair: PairId, view: &ClusterView, effects: &mut Vec<MoveEffect>) {
        let Some(target) = self.targets.get_mut(&pair) else { return };
        let name = target.core.name;
        let of = view.moves.get(&pair).filter(|of| of.name() == name);
        let other_lives = of.is_some_and(|of| view.lives(of.source.incarnation));
        let (stopping, now_ns) = (self.stopping, self.now_ns);
        let seen = Seen { of, pair: view.pairs.get(&pair), other_lives, stopping, now_ns };
        let copy = target.job.as_ref().map_or(CopyState::default(), CopyJob::state);
        if target.core.is_hasty(of) {
            self.due_ns = self.due_ns.min(now_ns + HASTE_NS);
        }
        let mut action = target.core.next(&seen, copy);
        while let Some(next) = action {
            action = self.act_as_target(pair, next, &seen, effects);
        }
    }

    /// Carries an action out; what follows at once.
    fn act_as_target(
        &mut self,
        pair: PairId,
        action: TargetAction,
        seen: &Seen<'_>,
        effects: &mut Vec<MoveEffect>,
    ) -> Option<TargetAction> {
        let target = self.targets.get_mut(&pair)?;
        let name = target.core.name;
        let (mut follows, mut wrote) = (None, Ok(()));
        match action {
            TargetAction::Copy => {
                let job = CopyJob {
                    name,
                    row: Box::new(seen.pair?.clone()),
                    incarnation: self.options.incarnation,
                    node: self.options.node,
                    progress: Arc::new(Progress::new(0)),
                    orders: Arc::default(),
                };
                target.job = Some(job.clone());
                effects.push(MoveEffect::Copy(job));
            }
            TargetAction::Drop => target.job.take().into_iter().for_each(|job| job.orders.stop()),
            TargetAction::Report(copy) => {
                let copy = CopyProgress { host: self.table.host(), ..copy };
                wrote = self.moves.progress(name, &copy).map(drop);
            }
            TargetAction::Finish(row) => target.job.iter().for_each(|job| job.orders.hand(row.clone())),
            TargetAction::TakeBack { why } => {
                tracing::warn!(pair = pair.0, why, "a pair that was handed over here goes back");
                wrote = seen.of.map_or(Ok(()), |of| self.table.take_back(of, &why).map(drop));
                follows = target.core.return_ended(wrote.as_ref().copied());
            }
            TargetAction::GiveUp { why } => {
                tracing::warn!(pair = pair.0, why, "a move is given up");
                wrote = self.moves.end(name, &MoveOutcome::GivenUp { why }).map(drop);
                target.core.write_ended(wrote.as_ref().copied());
            }
            TargetAction::Close(outcome) => {
                wrote = self.moves.close(name, &outcome).map(drop);
                target.core.write_ended(wrote.as_ref().copied());
            }
            TargetAction::End => {
                self.targets.remove(&pair);
                return None;
            }
        }
        self.note_write(pair, &wrote);
        follows
    }

    /// What was written is to be seen at once; what was not is tried again with the next look.
    fn note_write(&mut self, pair: PairId, wrote: &Result<(), ClusterError>) {
        match wrote {
            Ok(()) => self.due_ns = 0,
            Err(error) => tracing::debug!(%error, %pair, "a move is not taken further just now"),
        }
    }
}

fn log_handing(pair: PairId, cut: Csn, is_handed: bool) {
    tracing::info!(pair = pair.0, cut = cut.0, is_handed, "a pair is handed over");
}

fn log_way_back(pair: PairId, is_back: bool) {
    tracing::warn!(pair = pair.0, is_back, "a pair that was handed over goes back");
}

#[cfg(test)]
mod tests {
    use cell_cluster::{EpochRow, MemberRow, MoveSide, PairGeometry, PairState, Sim};
    use cell_terms::{Durability, NodeId};

    use super::*;

    pub(super) const SECOND: u64 = 1_000_000_000;

    pub(super) fn move_row(stage: MoveStage) -> MoveRow {
        let side = |incarnation, node| MoveSide {
            incarnation: Incarnation(incarnation),
            node: NodeId(node),
            host: None,
        };
        MoveRow {
            pair: PairId(3),
            number: 1,
            epoch: Epoch(4),
            source: side(7, 1),
            target: side(8, 2),
            why: "test".to_owned(),
            stage,
            bytes_done: 0,
            bytes_total: 0,
            outcome: None,
        }
    }

    /// The pair's row before the handing, or after.
    pub(super) fn pair_row(of: &MoveRow, handed: bool) -> PairRow {
        let (side, epoch) = if handed { (of.target, of.epoch_of_target()) } else { (of.source, of.epoch) };
        let cut = handed.then_some(Csn(7));
        PairRow {
            pair: of.pair,
            node_region: of.pair.node_region(),
            extent_region: of.pair.extent_region(),
            owner: Some(side.incarnation),
            node: side.node,
            served_by: None,
            host: None,
            epoch,
            state: if handed { PairState::Recovering } else { PairState::Serving },
            place: None,
            geometry: PairGeometry {
                node_region_bytes: 1,
                extent_region_bytes: 1,
                slot_bytes: 1,
                node_bytes: 1,
            },
            history: vec![EpochRow { epoch: of.epoch, durability: Durability::Sync, cut }],
            checkpoint: None,
            trusted: Vec::new(),
            findings: Vec::new(),
            refuted: Vec::new(),
        }
    }

    /// A cluster in which both ends of the move live.
    fn view(of: &MoveRow) -> ClusterView {
        let member = |side: MoveSide| MemberRow {
            incarnation: side.incarnation,
            node: side.node,
            fabric: String::new(),
            http: String::new(),
            pid: 0,
            memory_limit_bytes: 0,
        };
        let members = [of.source, of.target].map(|side| (side.incarnation, member(side)));
        ClusterView {
            pairs: [(of.pair, pair_row(of, false))].into(),
            members: members.into(),
            moves: [(of.pair, of.clone())].into(),
            ..ClusterView::default()
        }
    }

    fn driver(of: &MoveRow) -> (MovesDriver, Vec<Ownership>) {
        let MoveSide { incarnation, node, .. } = of.source;
        let options = MembershipOptions { incarnation, node, joined_ns: 0, grace_ns: 0 };
        let table = Table::new(Arc::new(Sim::new(1).link()));
        let own = Ownership { pair: of.pair, epoch: of.epoch, incarnation };
        (MovesDriver::new(options, &table), vec![own])
    }

    fn tickets(effects: Vec<MoveEffect>) -> Vec<(bool, u64)> {
        let ticket = |effect| match effect {
            MoveEffect::Notify(ControlEvent::Freeze { ticket, .. }) => Some((true, ticket)),
            MoveEffect::Notify(ControlEvent::Thaw { ticket, .. }) => Some((false, ticket)),
            _ => None,
        };
        effects.into_iter().filter_map(ticket).collect()
    }

    /// The worker's answer to a question that was taken back comes when the question was asked anew: the pair
    /// was served meanwhile, and its log goes on past what the answer says.
    fn answer_to_an_earlier_freeze_hands_nothing_over() {
        let mut of = move_row(MoveStage::Ready);
        let (mut driver, own) = driver(&of);
        assert_eq!(tickets(driver.look(&view(&of), &own, SECOND)), [(true, 1)]);
        of.stage = MoveStage::Copying;
        assert_eq!(tickets(driver.look(&view(&of), &own, SECOND)), [(false, 1)]);
        assert!(driver.look(&view(&of), &own, SECOND).is_empty());
        of.stage = MoveStage::Ready;
        assert_eq!(tickets(driver.look(&view(&of), &own, SECOND)), [(true, 2)]);
        let late = driver.frozen((of.pair, 1), of.epoch, Csn(5), &view(&of));
        assert_eq!(tickets(late), [(false, 1)], "the worker ignores that");
        let stopped = driver.look(&view(&of), &own, SECOND);
        assert!(stopped.is_empty(), "it waits for the answer to the second question");
    }

    #[test]
    fn worker_is_not_taken_at_an_earlier_word() {
        answer_to_an_earlier_freeze_hands_nothing_over();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_stale_freeze_taken_is_caught() {
        use cell_terms::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::StaleFreezeTaken));
            let passed = std::panic::catch_unwind(answer_to_an_earlier_freeze_hands_nothing_over).is_ok();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-node's moves", Mutant::StaleFreezeTaken.name());
        });
    }

    #[test]
    fn log_is_kept_from_the_first_sight_of_a_move_to_its_end() {
        let mut of = move_row(MoveStage::Copying);
        let (mut driver, own) = driver(&of);
        let kept = |effects: Vec<MoveEffect>| {
            let keep = |effect| match effect {
                MoveEffect::Notify(ControlEvent::KeepLog { keep, .. }) => Some(keep),
                _ => None,
            };
            effects.into_iter().filter_map(keep).collect::<Vec<_>>()
        };
        assert_eq!(kept(driver.look(&view(&of), &own, SECOND)), [true]);
        assert!(driver.keeps(of.pair));
        of.outcome = Some(MoveOutcome::Cancelled);
        assert_eq!(kept(driver.look(&view(&of), &own, SECOND)), [false]);
        assert!(!driver.keeps(of.pair));
        let of = move_row(MoveStage::Handed);
        assert_eq!(handed_to(&view(&of), of.target.incarnation), [of.pair].into());
        assert!(handed_to(&view(&of), of.source.incarnation).is_empty());
    }
}
