//! Planned moves of pairs (`docs/design/moves.md`): the steps of a source (`source`) and of a target
//! (`target`), each a core of its own, and here what carries them out: calls of the coordinator, events for
//! the worker, copies (`copying`). The control driver steps it with each look at the cluster.

mod copying;
mod figures;
#[cfg(test)]
pub(crate) mod fixtures;
mod source;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cell_cluster::{
    ClusterError, ClusterView, CopyProgress, MoveDates, MoveName, MoveOutcome, MoveRow, MoveStage, Moves,
    Ownership, PairRow, Table, TakenBack,
};
use cell_pair::Pair;
use cell_recovery::Progress;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Epoch, Incarnation, PairId};

use crate::command::{ControlEvent, StayReason};
use crate::membership::{MembershipOptions, keeps_memory_for};
use crate::move_counts::{MoveCounts, MoveEnd};
use crate::takeovers::KeptPair;
use crate::wall_clock::WallClock;
use figures::MoveFigures;
use source::{Seen, SourceAction, SourceMove};
use target::{CopyState, TargetAction, TargetMove};

pub(crate) use source::{BOTH_ENDED, ROW_UNREADABLE, SOURCE_ENDED, SOURCE_STOPS, STALLED, TARGET_ENDED};
pub(crate) use target::{BEHIND, MEMORY_KEPT, TARGET_STOPS};

pub use copying::{CopyEnd, CopyJob, CopyOrders, CopyRun};
pub use source::is_source_gone;
pub use target::CopyFailure;

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
    /// Since when the pair is frozen, or was the last time.
    frozen_ns: u64,
    figures: MoveFigures,
    /// The memory of the pair, once that was handed over.
    frozen: Option<Box<Pair>>,
}

/// A move hither.
struct Target {
    core: TargetMove,
    job: Option<CopyJob>,
    figures: MoveFigures,
    /// The pair is served since the last look.
    is_fresh: bool,
}

/// See the module's text.
pub(crate) struct MovesDriver {
    options: MembershipOptions,
    table: Table,
    moves: Moves,
    sources: BTreeMap<PairId, Source>,
    targets: BTreeMap<PairId, Target>,
    /// Pairs that have come back with their memory, until they are taken over.
    kept: BTreeMap<PairId, KeptPair>,
    /// This node keeps its memory for others that it had.
    memory_kept: bool,
    tickets: u64,
    stopping: bool,
    back_after_ns: u64,
    counts: MoveCounts,
    wall: WallClock,
    /// As of the last look.
    now_ns: u64,
    /// When the rows are to be looked at next.
    due_ns: u64,
}

/// The pairs that were handed over to an incarnation by moves that are under way: what becomes of them its
/// moves decide, and not its membership, which would claim them as takeovers that were broken off. A pair
/// that others have had since is none of them, whatever the move's row says still. `targets` are the pairs of
/// [`MovesDriver::targets`]: where a row does not read, none begins, and a pair that has none is nobody's
/// but its membership's.
pub(crate) fn handed_to(
    view: &ClusterView,
    incarnation: Incarnation,
    targets: &BTreeSet<PairId>,
) -> BTreeSet<PairId> {
    let has_gone_on = |of: &MoveRow, row: &PairRow| {
        let handed = (of.epoch_of_target(), Some(incarnation));
        row.epoch >= handed.0 && (row.epoch, row.owner) != handed
    };
    let handed = |of: &&MoveRow| {
        let is_at_it = view.move_reads(of.pair) || targets.contains(&of.pair);
        let is_its = is_at_it && of.stage == MoveStage::Handed && of.target.incarnation == incarnation;
        is_its && of.is_under_way() && !view.pairs.get(&of.pair).is_some_and(|row| has_gone_on(of, row))
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
            kept: BTreeMap::new(),
            memory_kept: false,
            tickets: 0,
            stopping: false,
            back_after_ns: source::BACK_AFTER_NS,
            counts: MoveCounts::default(),
            wall: WallClock::default(),
            now_ns: 0,
            due_ns: u64::MAX,
        }
    }

    /// What is written of moves is dated by this: what the wall clock showed when the looks' time was zero.
    pub(crate) fn set_wall_zero_ms(&mut self, wall_zero_ms: u64) {
        self.wall.set_zero_ms(wall_zero_ms);
    }

    /// What is written from here on happens at this time.
    fn note_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.moves = self.moves.clone().at(self.wall.at_ms(now_ns));
        self.table = self.table.dated(self.wall.dates(now_ns));
    }

    /// What has become of moves, and which are under way.
    pub(crate) fn counts(&self) -> MoveCounts {
        let sources = self.sources.values().map(|source| &source.figures);
        let all = sources.chain(self.targets.values().map(|target| &target.figures));
        MoveCounts { still_since_ns: all.map(MoveFigures::still_since_ns).min(), ..self.counts }
    }

    /// A pair that its target does not serve goes back so long after its handing: of moves that are yet to
    /// begin.
    pub(crate) fn set_back_after_ns(&mut self, back_after_ns: u64) {
        self.back_after_ns = back_after_ns;
    }

    /// The node goes: nothing begins, and what was not handed over stays. What was does not come back.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
        self.kept.clear();
        self.sources.values_mut().for_each(|source| source.frozen = None);
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

    /// Whether pairs are on their way from here, or hither.
    pub(crate) fn is_moving(&self) -> bool {
        !self.sources.is_empty() || !self.targets.is_empty()
    }

    /// The pairs of moves hither in which this node takes part.
    pub(crate) fn targets(&self) -> BTreeSet<PairId> {
        self.targets.keys().copied().collect()
    }

    /// When the rows are to be looked at next, for what this knows.
    pub(crate) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Takes each move a step further, by the rows as they are; `owned` are the pairs of this node.
    pub(crate) fn look(&mut self, view: &ClusterView, owned: &[Ownership], now_ns: u64) -> Vec<MoveEffect> {
        self.due_ns = u64::MAX;
        self.note_time(now_ns);
        let mut effects = Vec::new();
        for of in view.moves.values().filter(|of| of.is_under_way()) {
            let verdict = view.pairs.get(&of.pair).and_then(|pair| of.verdict(pair));
            if verdict.is_none() && view.move_reads(of.pair) {
                self.begin(of, owned, &mut effects);
            }
            if view.move_reads(of.pair) && self.is_to_close(of, view, verdict.is_some()) {
                self.close(of, verdict);
            }
        }
        let may_stand = |of: &PairRow, kept: &KeptPair| of.epoch <= kept.row.epoch;
        self.kept.retain(|pair, kept| view.pairs.get(pair).is_some_and(|of| may_stand(of, kept)));
        self.memory_kept = !self.targets.is_empty() && self.keeps_memory(view);
        for pair in self.sources.keys().copied().collect::<Vec<_>>() {
            self.step_source(pair, view, &mut effects);
        }
        for pair in self.targets.keys().copied().collect::<Vec<_>>() {
            self.step_target(pair, view, &mut effects);
        }
        effects
    }

    /// Whether pairs of which this node has not even the memory any more wait to be recovered here.
    fn keeps_memory(&self, view: &ClusterView) -> bool {
        let own = (self.options.node, self.options.incarnation);
        let mut missed = view.pairs.values().filter(|row| !self.kept.contains_key(&row.pair));
        missed.any(|row| keeps_memory_for(row, own, |of| view.lives(of)))
    }

    /// Takes part in a move that this node is an end of.
    fn begin(&mut self, of: &MoveRow, owned: &[Ownership], effects: &mut Vec<MoveEffect>) {
        let (incarnation, now_ns) = (self.options.incarnation, self.now_ns);
        let owns = |own: &Ownership| (own.pair, own.epoch) == (of.pair, of.epoch);
        let is_source = of.source.incarnation == incarnation && owned.iter().any(owns);
        if is_source && !self.sources.contains_key(&of.pair) {
            tracing::info!(pair = of.pair.0, to = of.target.node.0, "a pair is to move away");
            let figures = MoveFigures::begin(&mut self.counts.source, now_ns);
            let core = SourceMove::new(of, self.back_after_ns);
            self.sources.insert(of.pair, Source { core, ticket: 0, frozen_ns: 0, figures, frozen: None });
            effects.push(MoveEffect::Notify(ControlEvent::KeepLog { pair: of.pair, keep: true }));
        }
        if of.target.incarnation == incarnation && !self.targets.contains_key(&of.pair) {
            tracing::info!(pair = of.pair.0, from = of.source.node.0, "a pair is to move here");
            let figures = MoveFigures::begin(&mut self.counts.target, now_ns);
            let core = TargetMove::new(of);
            self.targets.insert(of.pair, Target { core, job: None, figures, is_fresh: false });
        }
    }

    /// Whether it is for this node to say in a move's row what became of it, though it takes no part in it,
    /// or does no more. Of a move that is decided the source does, if it lives, else the target: the one may
    /// have done with it because its last write was outrun, and the other one may have died since. Of one
    /// whose ends are both dead any member does. Else its row would be under way for ever. One that was
    /// handed over before is by whoever claims the pair: that is waited for.
    fn is_to_close(&self, of: &MoveRow, view: &ClusterView, is_decided: bool) -> bool {
        if planted(Mutant::MoveLeftOpen) {
            return false;
        }
        let me = self.options.incarnation;
        let takes_part = self.sources.contains_key(&of.pair) || self.targets.contains_key(&of.pair);
        let mut ends = [of.source.incarnation, of.target.incarnation].into_iter();
        match ends.find(|end| view.lives(*end)) {
            Some(end) => is_decided && !takes_part && (end == me || planted(Mutant::MoveClosedByAnybody)),
            None => {
                let awaits_claim = || view.pairs.get(&of.pair).is_some_and(|row| of.is_handed(row));
                view.lives(me) && (is_decided || !awaits_claim())
            }
        }
    }

    fn close(&self, of: &MoveRow, verdict: Option<MoveOutcome>) {
        let dead = || MoveOutcome::GivenUp { why: BOTH_ENDED.to_owned() };
        if let Err(error) = self.moves.close(of.name(), &verdict.unwrap_or_else(dead)) {
            tracing::debug!(%error, pair = of.pair.0, "a move that is decided is not closed here just now");
        }
    }

    /// The worker has frozen a pair: since when, and when it says so.
    pub(crate) fn frozen(
        &mut self,
        (pair, ticket): (PairId, u64),
        epoch: Epoch,
        cut: Csn,
        [since_ns, now_ns]: [u64; 2],
        view: &ClusterView,
    ) -> Vec<MoveEffect> {
        self.note_time(self.now_ns.max(now_ns));
        let is_answer = |source: &&mut Source| source.ticket == ticket || planted(Mutant::StaleFreezeTaken);
        let source = self.sources.get_mut(&pair).filter(is_answer);
        let is_asked = source.is_some_and(|source| {
            source.frozen_ns = since_ns;
            source.core.frozen(epoch, cut)
        });
        if !is_asked {
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
        let copied_bytes = job.state(self.now_ns).bytes_done;
        target.figures.copied(&mut self.counts, copied_bytes, true, self.now_ns);
        match end {
            CopyEnd::Served => {
                // Also where nobody can say so in the move's row any more.
                target.figures.decided(MoveEnd::Moved);
                target.is_fresh = true;
                target.core.served();
            }
            CopyEnd::Failed { why, failure } => {
                tracing::warn!(pair = job.name.pair.0, why, "a copy of a pair came to nothing");
                target.core.copy_failed(&why, failure);
            }
        }
        self.due_ns = 0;
    }

    fn step_source(&mut self, pair: PairId, view: &ClusterView, effects: &mut Vec<MoveEffect>) {
        let Some(source) = self.sources.get_mut(&pair) else { return };
        let name = source.core.name;
        let of = view.moves.get(&pair).filter(|of| of.name() == name);
        source.figures.look(of, self.now_ns);
        let other_lives = of.is_some_and(|of| view.lives(of.target.incarnation));
        let (stopping, memory_kept, now_ns) = (self.stopping, false, self.now_ns);
        let seen = Seen { of, pair: view.pairs.get(&pair), other_lives, stopping, memory_kept, now_ns };
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
        let (name, epoch, becomes) = (source.core.name, source.core.epoch(), action.becomes());
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
                let frozen_ms = self.wall.at_ms(source.frozen_ns);
                let dates = MoveDates { frozen_ms, ..self.wall.dates(self.now_ns) };
                wrote = self.table.dated(dates).hand(ownership, cut, name).map(drop);
                log_handing(pair, cut, wrote.is_ok());
                follows = source.core.hand_ended(wrote.as_ref().copied());
                if source.core.is_fencing() {
                    self.due_ns = 0; // nobody serves the pair before that
                }
            }
            SourceAction::PutAgain => {
                wrote = self.table.put_again(ownership);
                follows = source.core.put_ended(wrote.as_ref().copied());
            }
            SourceAction::Thaw => notify(ControlEvent::Thaw { pair, ticket }),
            SourceAction::Forget => notify(ControlEvent::Handed { pair, ticket }),
            SourceAction::TakeBack => wrote = self.take_back(pair, of),
            SourceAction::GiveUp { why } => {
                wrote = give_up(&self.moves, name, &why);
                source.core.write_ended(wrote.as_ref().copied());
            }
            SourceAction::Close(outcome) => {
                wrote = self.moves.close(name, &outcome).map(drop);
                source.core.close_ended(wrote.as_ref().copied());
                source.figures.decided(MoveEnd::of(&outcome));
            }
            SourceAction::End => {
                source.figures.end(&mut self.counts.source, of);
                self.sources.remove(&pair);
                notify(ControlEvent::KeepLog { pair, keep: false });
                effects.push(MoveEffect::Tidy(pair));
                return None;
            }
        }
        if let Some(source) = self.sources.get_mut(&pair) {
            source.figures.note_write(&wrote, becomes);
        }
        self.note_write(pair, &wrote);
        follows
    }

    /// Takes a pair back that its target does not serve. Its memory may be served again if the write that
    /// does it is this one, and is answered. Of a row that is looked at nobody here knows who has had the
    /// pair.
    fn take_back(&mut self, pair: PairId, of: Option<&MoveRow>) -> Result<(), ClusterError> {
        let (Some(source), Some(of)) = (self.sources.get_mut(&pair), of) else { return Ok(()) };
        let frozen = source.frozen.take();
        let back = self.table.take_back(of, "its target did not serve it in time");
        source.core.write_ended(back.as_ref().map(|_| ()));
        let is_own = back.as_ref().is_ok_and(|back| back.is_own);
        let kept = frozen.filter(|_| is_own);
        let (is_back, is_kept) = (back.is_ok(), kept.is_some());
        tracing::warn!(pair = pair.0, is_back, is_kept, "a pair that was handed over goes back");
        let TakenBack { row, .. } = back?;
        let kept = kept.map(|frozen| KeptPair { pair: frozen, row: Box::new(row) });
        self.kept.extend(kept.map(|kept| (pair, kept)));
        Ok(())
    }

    /// The worker has let a pair go that is another's by now, and this is its memory, if that can be of use.
    pub(crate) fn left(&mut self, frozen: Option<Box<Pair>>) {
        let Some(frozen) = frozen.filter(|_| !self.stopping) else { return };
        let source = self.sources.get_mut(&frozen.id());
        let awaits = |source: &&mut Source| source.core.is_handed() && source.core.epoch() == frozen.epoch();
        if let Some(source) = source.filter(awaits) {
            source.frozen = Some(frozen);
        }
    }

    /// The memory of a pair that is to be taken over, if it has come back with it and its row is what this
    /// node has made it.
    pub(crate) fn take_kept(&mut self, row: Option<&PairRow>, pair: PairId) -> Option<KeptPair> {
        let kept = self.kept.remove(&pair)?;
        let stands = row == Some(&*kept.row) || planted(Mutant::FrozenServedAfterAnotherRow);
        stands.then_some(kept)
    }

    fn step_target(&mut self, pair: PairId, view: &ClusterView, effects: &mut Vec<MoveEffect>) {
        let Some(target) = self.targets.get_mut(&pair) else { return };
        let name = target.core.name;
        let of = view.moves.get(&pair).filter(|of| of.name() == name);
        target.figures.look(of, self.now_ns);
        let other_lives = of.is_some_and(|of| view.lives(of.source.incarnation));
        let (stopping, memory_kept, now_ns) = (self.stopping, self.memory_kept, self.now_ns);
        let seen = Seen { of, pair: view.pairs.get(&pair), other_lives, stopping, memory_kept, now_ns };
        let copy = target.job.as_ref().map_or(CopyState::default(), |job| job.state(now_ns));
        target.figures.copied(&mut self.counts, copy.bytes_done, false, now_ns);
        if std::mem::take(&mut target.is_fresh) {
            target.figures.served(&mut self.counts, of, now_ns, self.wall.at_ms(self.now_ns));
        }
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
        let (name, becomes) = (target.core.name, action.becomes());
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
                target.figures.copy_began();
                effects.push(MoveEffect::Copy(job));
            }
            TargetAction::Drop => {
                if let Some(job) = target.job.take() {
                    let copied_bytes = job.state(self.now_ns).bytes_done;
                    target.figures.copied(&mut self.counts, copied_bytes, true, self.now_ns);
                    job.orders.stop();
                }
            }
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
                wrote = give_up(&self.moves, name, &why);
                target.core.write_ended(wrote.as_ref().copied());
            }
            TargetAction::Close(outcome) => {
                wrote = self.moves.close(name, &outcome).map(drop);
                target.core.close_ended(wrote.as_ref().copied());
                target.figures.decided(MoveEnd::of(&outcome));
            }
            TargetAction::End => {
                target.figures.end(&mut self.counts.target, seen.of);
                self.targets.remove(&pair);
                return None;
            }
        }
        target.figures.note_write(&wrote, becomes);
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

/// Warns only where it took effect: of a row that does not read it is tried again with each look.
fn give_up(moves: &Moves, name: MoveName, why: &str) -> Result<(), ClusterError> {
    moves.end(name, &MoveOutcome::GivenUp { why: why.to_owned() })?;
    tracing::warn!(pair = name.pair.0, why, "a move is given up");
    Ok(())
}

fn log_handing(pair: PairId, cut: Csn, is_handed: bool) {
    tracing::info!(pair = pair.0, cut = cut.0, is_handed, "a pair is handed over");
}

#[cfg(test)]
mod tests {
    use cell_cluster::{
        Coordinator, EpochRow, MemberRow, Missing, MoveSide, PairState, Sim, SimLink, Transaction,
        TransactionOutcome,
    };
    use cell_terms::{Durability, NodeId};

    use super::fixtures::{SECOND, move_row, pair_row};
    use super::*;

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

    /// The moves of a process, by this link.
    fn driver_of(incarnation: Incarnation, link: SimLink) -> MovesDriver {
        let options = MembershipOptions { incarnation, node: NodeId(1), joined_ns: 0, grace_ns: 0 };
        MovesDriver::new(options, &Table::new(Arc::new(link)))
    }

    /// Those of the source, and that it owns the pair.
    fn driver(of: &MoveRow) -> (MovesDriver, Vec<Ownership>) {
        let incarnation = of.source.incarnation;
        let own = Ownership { pair: of.pair, epoch: of.epoch, incarnation };
        (driver_of(incarnation, Sim::new(1).link()), vec![own])
    }

    /// Writes a pair's row, and that of a move, if one is given.
    fn put(link: &SimLink, pair: &PairRow, of: Option<&MoveRow>) {
        let mut rows = Transaction::new().put(PairRow::key(pair.pair), serde_json::to_string(pair).unwrap());
        if let Some(of) = of {
            rows = rows.put(MoveRow::key(of.pair), serde_json::to_string(of).unwrap());
        }
        assert!(matches!(link.transact(rows).unwrap(), TransactionOutcome::Applied { .. }));
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
        let late = driver.frozen((of.pair, 1), of.epoch, Csn(5), [SECOND; 2], &view(&of));
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
    fn pair_is_not_copied_to_a_node_that_keeps_its_memory_for_one_that_it_had() {
        let of = move_row(MoveStage::Copying);
        let MoveSide { incarnation, node, .. } = of.target;
        let missing = Missing::Memory { bytes: 1 };
        let declined = PairRow {
            pair: PairId(4),
            owner: None,
            served_by: Some(node),
            state: PairState::Unavailable { missing },
            ..pair_row(&of, false)
        };
        let served = PairRow { owner: Some(incarnation), state: PairState::Serving, ..declined.clone() };
        for (had, is_copied) in [(served, true), (declined, false)] {
            let link = Sim::new(1).link();
            put(&link, &pair_row(&of, false), Some(&of));
            let options = MembershipOptions { incarnation, node, joined_ns: 0, grace_ns: 0 };
            let mut driver = MovesDriver::new(options, &Table::new(Arc::new(link.clone())));
            let mut seen = view(&of);
            seen.pairs.insert(had.pair, had);
            let effects = driver.look(&seen, &[], SECOND);
            assert_eq!(effects.iter().any(|effect| matches!(effect, MoveEffect::Copy(_))), is_copied);
            let outcome = Moves::new(Arc::new(link)).of(of.pair).unwrap().unwrap().outcome;
            let given_up = MoveOutcome::GivenUp { why: MEMORY_KEPT.to_owned() };
            assert_eq!(outcome, (!is_copied).then_some(given_up));
        }
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
        assert_eq!(handed_to(&view(&of), of.target.incarnation, &BTreeSet::new()), [of.pair].into());
        assert!(handed_to(&view(&of), of.source.incarnation, &BTreeSet::new()).is_empty());
    }

    /// Nobody served the pair until the next look at the cluster, 50 ms or more later.
    #[test]
    fn pair_whose_handing_is_refused_is_fenced_at_once() {
        let link = Sim::new(1).link();
        let of = move_row(MoveStage::Ready);
        let incarnation = of.source.incarnation;
        let behind = MoveRow { stage: MoveStage::Copying, ..of.clone() };
        put(&link, &pair_row(&of, false), Some(&behind));
        let own = [Ownership { pair: of.pair, epoch: of.epoch, incarnation }];
        let mut driver = driver_of(incarnation, link);
        assert_eq!(tickets(driver.look(&view(&of), &own, SECOND)), [(true, 1)]);
        assert!(driver.look(&view(&of), &own, SECOND).is_empty());
        assert_eq!(driver.due_ns(), u64::MAX, "the worker is at it");
        assert!(driver.frozen((of.pair, 1), of.epoch, Csn(7), [SECOND; 2], &view(&of)).is_empty());
        assert_eq!(driver.due_ns(), 0);
    }

    /// The pair's row once the target has published it.
    fn published_row(of: &MoveRow) -> PairRow {
        let mut row = pair_row(of, true);
        row.history.push(EpochRow { epoch: row.epoch, durability: Durability::Sync, cut: None });
        PairRow { state: PairState::Serving, ..row }
    }

    /// 1. the target publishes the pair, late;
    /// 2. its source, which has not seen that, wants it back, is refused, and has done with the move;
    /// 3. the target dies before it has said in the move's row what became of it.
    #[test]
    fn move_whose_target_dies_when_its_source_has_done_with_it_is_not_under_way_for_ever() {
        let link = Sim::new(1).link();
        let mut of = move_row(MoveStage::Ready);
        for side in [&mut of.source, &mut of.target] {
            side.incarnation = link.grant(1_000).unwrap().lease;
        }
        put(&link, &pair_row(&of, false), Some(&of));
        let incarnation = of.source.incarnation;
        let own = [Ownership { pair: of.pair, epoch: of.epoch, incarnation }];
        let mut driver = driver_of(incarnation, link.clone());
        assert_eq!(tickets(driver.look(&view(&of), &own, SECOND)), [(true, 1)]);
        driver.frozen((of.pair, 1), of.epoch, Csn(7), [SECOND; 2], &view(&of));
        let row = || Moves::new(Arc::new(link.clone())).of(of.pair).unwrap().unwrap();
        let handed = row();
        assert_eq!(handed.stage, MoveStage::Handed);
        let mut seen = view(&handed);
        seen.pairs.insert(of.pair, pair_row(&handed, true));
        driver.look(&seen, &[], SECOND);
        put(&link, &published_row(&handed), None);
        for _ in 0..2 {
            driver.look(&seen, &[], SECOND + source::BACK_AFTER_NS);
        }
        assert!(!driver.is_moving() && row().is_under_way(), "it was outrun");
        seen.pairs.insert(of.pair, published_row(&handed));
        seen.members.remove(&of.target.incarnation);
        driver.look(&seen, &[], 3 * SECOND);
        assert_eq!(row().outcome, Some(MoveOutcome::Moved));
    }

    /// It was counted as given up.
    #[test]
    fn move_that_its_target_serves_counts_as_moved_though_its_row_does_not_read() {
        let link = Sim::new(1).link();
        let mut of = move_row(MoveStage::Ready);
        for side in [&mut of.source, &mut of.target] {
            side.incarnation = link.grant(1_000).unwrap().lease;
        }
        put(&link, &pair_row(&of, false), Some(&of));
        let incarnation = of.source.incarnation;
        let own = [Ownership { pair: of.pair, epoch: of.epoch, incarnation }];
        let mut driver = driver_of(incarnation, link.clone());
        assert_eq!(tickets(driver.look(&view(&of), &own, SECOND)), [(true, 1)]);
        driver.frozen((of.pair, 1), of.epoch, Csn(7), [SECOND; 2], &view(&of));
        let handed = Moves::new(Arc::new(link.clone())).of(of.pair).unwrap().unwrap();
        assert_eq!(handed.stage, MoveStage::Handed);
        link.transact(Transaction::new().put(MoveRow::key(of.pair), "garbage")).unwrap();
        let mut seen = view(&handed);
        seen.unreadable = [(MoveRow::key(of.pair), "it does not read".to_owned())].into();
        seen.pairs.insert(of.pair, published_row(&handed));
        for _ in 0..3 {
            driver.look(&seen, &[], SECOND);
        }
        assert!(!driver.is_moving());
        let counts = driver.counts().source;
        assert_eq!((counts.moved, counts.given_up), (1, 0));
    }

    /// It was given up, though the target's node, or the source's, had the pair a moment later.
    #[test]
    fn move_whose_ends_have_died_after_the_handing_is_by_who_claims_the_pair() {
        let other = Incarnation(9);
        let dead = |of: &MoveRow, row: &PairRow| {
            let mut seen = view(of);
            let member = seen.members[&of.source.incarnation].clone();
            let member = MemberRow { incarnation: other, node: NodeId(3), ..member };
            (seen.members, seen.pairs) = ([(other, member)].into(), [(of.pair, row.clone())].into());
            seen
        };
        let closed = |of: &MoveRow, rows: &[PairRow]| {
            let link = Sim::new(1).link();
            put(&link, &rows[0], Some(of));
            let mut driver = driver_of(other, link.clone());
            rows.iter().for_each(|row| drop(driver.look(&dead(of, row), &[], SECOND)));
            Moves::new(Arc::new(link)).of(of.pair).unwrap().unwrap().outcome
        };
        let of = move_row(MoveStage::Handed);
        let handed = pair_row(&of, true);
        assert_eq!(closed(&of, std::slice::from_ref(&handed)), None, "nobody has claimed the pair");
        let back = PairRow { node: of.source.node, ..handed.clone() };
        for (row, is_moved) in [(&handed, true), (&back, false)] {
            let claimed = PairRow { epoch: Epoch(6), owner: Some(Incarnation(10)), ..row.clone() };
            let outcome = closed(&of, &[handed.clone(), claimed]).unwrap();
            assert_eq!(outcome == MoveOutcome::Moved, is_moved, "{outcome:?}");
            assert_eq!(matches!(outcome, MoveOutcome::Back { .. }), !is_moved, "{outcome:?}");
        }
        let of = move_row(MoveStage::Copying);
        let given_up = MoveOutcome::GivenUp { why: BOTH_ENDED.to_owned() };
        assert_eq!(closed(&of, &[pair_row(&of, false)]), Some(given_up), "before the handing");
    }

    fn decided_move_is_closed_by_one_end_or_by_anybody() {
        let of = move_row(MoveStage::Handed);
        let [source, target, other] = [of.source.incarnation, of.target.incarnation, Incarnation(9)];
        let claimed = PairRow { epoch: Epoch(6), owner: Some(other), node: NodeId(3), ..pair_row(&of, true) };
        let cases = [
            (source, vec![], true),
            (target, vec![], false),
            (other, vec![], false),
            (target, vec![source], true),
            (other, vec![source], false),
            (source, vec![target], true),
            (other, vec![source, target], true),
        ];
        for (me, dead, closes) in cases {
            let link = Sim::new(1).link();
            put(&link, &claimed, Some(&of));
            let mut driver = driver_of(me, link.clone());
            let mut seen = view(&of);
            seen.pairs.insert(of.pair, claimed.clone());
            let member = seen.members[&source].clone();
            seen.members.insert(other, MemberRow { incarnation: other, node: NodeId(3), ..member });
            seen.members.retain(|member, _| !dead.contains(member));
            assert!(driver.look(&seen, &[], SECOND).is_empty());
            let outcome = Moves::new(Arc::new(link)).of(of.pair).unwrap().unwrap().outcome;
            assert_eq!(outcome.is_some(), closes, "{me:?}, dead {dead:?}: {outcome:?}");
            assert!(
                matches!(outcome, None | Some(MoveOutcome::GivenUp { .. })),
                "the target never served it"
            );
        }
    }

    /// That was tried, and logged, with each look.
    #[test]
    fn decided_move_whose_row_does_not_read_is_closed_once_it_does() {
        let of = move_row(MoveStage::Handed);
        let link = Sim::new(1).link();
        put(&link, &published_row(&of), Some(&of));
        let mut driver = driver_of(of.source.incarnation, link.clone());
        let outcome = || Moves::new(Arc::new(link.clone())).of(of.pair).unwrap().unwrap().outcome;
        let mut seen = view(&of);
        seen.pairs.insert(of.pair, published_row(&of));
        seen.unreadable = [(MoveRow::key(of.pair), "it does not read".to_owned())].into();
        driver.look(&seen, &[], SECOND);
        assert_eq!(outcome(), None);
        seen.unreadable.clear();
        driver.look(&seen, &[], SECOND);
        assert_eq!(outcome(), Some(MoveOutcome::Moved));
    }

    #[test]
    fn decided_move_is_closed_by_its_source_or_else_its_target_or_else_by_anybody() {
        decided_move_is_closed_by_one_end_or_by_anybody();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutants_of_who_closes_a_move_are_caught() {
        use cell_terms::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            for mutant in [Mutant::MoveLeftOpen, Mutant::MoveClosedByAnybody] {
                plant(Some(mutant));
                let test = decided_move_is_closed_by_one_end_or_by_anybody;
                let passed = std::panic::catch_unwind(test).is_ok();
                plant(None);
                assert!(!passed, "{} was not caught", mutant.name());
                println!("mutant {} caught by cell-node's moves", mutant.name());
            }
        });
    }
}
