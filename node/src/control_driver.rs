//! What the control thread decides: a core without thread, channel, socket, clock or file of its own. It is
//! informed of what has happened, calls the coordinator, which it is given, and answers with what is to be
//! done. The control thread steps it, and so does the simulator.
//!
//! ```text
//! command of the worker ─┐                    ┌─ events, pairs ──> worker
//! time: look             ├─> ControlDriver ───┼─ jobs ──────────> takeovers (`takeovers`)
//! pair taken or refused  │         │          ├─ ImageJob ──────> copies (`cell_pair`)
//! pair created or not   ─┘     coordinator    └─ checks, new pairs
//! ```
//!
//! `L` is what its shell keeps of a pair's log: its device.

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_cluster::{
    CheckpointRow, ClusterError, Coordinator, Joining, Layout, MemberRow, Members, Ownership, PairGeometry,
    PairRow, ShareTimes, TuningRow,
};
use cell_fabric::ConnectionId;
use cell_pair::{CheckTarget, ImageJob, ImageSubject, Pair, check_targets};
use cell_protocol::RequestHeader;
use cell_recovery::image::ImageBase;
use cell_recovery::{ClaimRequest, Environment, Progress, find_logs, remove_unneeded};
use cell_terms::{Csn, Incarnation, NodeId, PairId};
use cell_wal::WalError;

use crate::agent::{ClusterAgent, Installation, TakeoverWanted};
use crate::balance::{BalanceDriver, BalanceOptions};
use crate::command::{CheckpointCommand, Command, ControlEvent};
use crate::membership::{MembershipOptions, RefusedKind};
use crate::move_counts::MoveCounts;
use crate::moves::{CopyEnd, CopyJob, MoveEffect, MovesDriver};
use crate::snapshot::{ClusterSnapshot, PairRecovery};
use crate::takeover_counts::TakeoverCounts;
use crate::takeovers::TakeoverJob;

/// The worker is notified of a change of the disk's room that is no smaller than this.
const DISK_STEP_BYTES: u64 = 1 << 20;

/// What the shell is to do.
pub enum ControlEffect<L> {
    /// Notify the worker.
    Notify(ControlEvent),
    /// Let the worker serve, with these pairs.
    Install {
        /// Each with its log.
        pairs: Vec<(Pair, L)>,
        /// With what else.
        installation: Installation,
    },
    /// Give the worker, which serves, one more pair.
    AddPair(Box<(Pair, L)>),
    /// Take these pairs over; of each [`ControlDriver::taken`] or [`ControlDriver::refused`] reports.
    TakeOver(Vec<TakeoverJob>),
    /// Copy a pair that is to move here; [`ControlDriver::copied`] reports, and [`ControlDriver::taken`]
    /// before it if the pair is this node's by then.
    Copy(CopyJob),
    /// Create a pair; [`ControlDriver::created`] or [`ControlDriver::not_created`] reports.
    Create,
    /// Keep memory for pairs that this node had and that wait to be recovered, or do not: until they are,
    /// writes that need more are refused.
    HoldGrowth(bool),
    /// Put the values into force that the cluster is tuned to.
    Tune(Arc<TuningRow>),
    /// Check these meganodes; the worker is to be notified of it.
    Check {
        /// Who asked.
        connection: ConnectionId,
        /// What is to be answered.
        header: RequestHeader,
        /// All that are served.
        targets: Vec<CheckTarget>,
    },
    /// Write an image; the worker is to be notified of it.
    WriteImage(ImageJob),
}

/// A pair that is served, or gathered.
struct PairControl {
    ownership: Ownership,
    subject: ImageSubject,
}

/// Makes a node that has a lease a member of its cluster. The first start of all says how the key space is
/// spread, as `wanted` has it; one of several nodes wins. `joining` sees the sizes that the cluster's pairs
/// have, and says what the node joins with.
///
/// # Errors
/// The log folders have what the table does not know; what does not fit the cluster; the coordinator's.
pub fn join_cluster<E: From<ClusterError> + From<WalError>>(
    environment: &Environment,
    member: &MemberRow,
    wanted: impl FnOnce() -> Result<(Layout, PairGeometry), E>,
    joining: impl FnOnce(PairGeometry) -> Result<Joining, E>,
) -> Result<(), E> {
    let table = &environment.table;
    table.check_logs_found(&find_logs(&*environment.storage)?)?;
    let (mut rows, _) = table.pairs()?;
    if rows.is_empty() {
        let (layout, geometry) = wanted()?;
        table.lay_out(&layout, geometry, member.incarnation)?;
        rows = table.pairs()?.0;
    }
    // All pairs have the same sizes.
    let geometry = rows.first().ok_or(ClusterError::NotInitialised)?.geometry;
    Ok(Members::new(table.coordinator().clone()).join(member, &joining(geometry)?)?)
}

/// See the module's text. Times are the caller's, in nanoseconds.
pub struct ControlDriver<L> {
    options: MembershipOptions,
    environment: Environment,
    agent: ClusterAgent,
    /// Of the node's own pairs: the worker reports it until it serves.
    own_progress: Arc<Progress>,
    /// Takeovers under way.
    progress: BTreeMap<PairId, Arc<Progress>>,
    /// Those that have ended.
    takeovers: TakeoverCounts,
    /// Of them, what was reported to the worker.
    takeovers_reported: TakeoverCounts,
    /// Pairs that are there before the worker serves.
    gathered: Vec<(Pair, L)>,
    pairs: Vec<PairControl>,
    /// Pairs that have left the worker, and where their logs end: what is still to be written to the table.
    left: Vec<(Ownership, Csn)>,
    moves: MovesDriver,
    /// Of moves, what was reported to the worker.
    moves_reported: MoveCounts,
    /// None: this node has no part in balance.
    balance: Option<BalanceDriver>,
    /// The node that the pair is for which is being created; none: this one.
    meant_for: Option<NodeId>,
    /// What was reported to the worker of the disk's room.
    disk_free: Option<u64>,
    unplaced: usize,
    /// Of the tuning that the shell was given.
    tuning_revision: u64,
}

impl<L> ControlDriver<L> {
    /// Of a node that has just joined. It looks at the cluster every so often at least; `own_progress` is
    /// what the worker reports until it serves.
    #[must_use]
    pub fn new(
        environment: &Environment,
        coordinator: &Arc<dyn Coordinator>,
        options: MembershipOptions,
        every_ns: u64,
        own_progress: Arc<Progress>,
    ) -> ControlDriver<L> {
        ControlDriver {
            options,
            environment: environment.clone(),
            agent: ClusterAgent::new(coordinator, environment.storage.clone(), options, every_ns),
            own_progress,
            progress: BTreeMap::new(),
            takeovers: TakeoverCounts::default(),
            takeovers_reported: TakeoverCounts::default(),
            gathered: Vec::new(),
            pairs: Vec::new(),
            left: Vec::new(),
            moves: MovesDriver::new(options, &environment.table),
            moves_reported: MoveCounts::default(),
            balance: None,
            meant_for: None,
            disk_free: None,
            unplaced: 0,
            tuning_revision: 0,
        }
    }

    /// One that takes part in balance: it reports what its node has, and balances if nobody else does.
    #[must_use]
    pub fn balancing(mut self, options: BalanceOptions) -> ControlDriver<L> {
        self.agent.follow_balance();
        self.balance = Some(BalanceDriver::new(self.options, options, self.environment.table.coordinator()));
        self
    }

    /// Other settings of balance, from its next look on.
    pub(crate) fn set_balance(&mut self, options: BalanceOptions) {
        self.balance.iter_mut().for_each(|balance| balance.set_options(options.clone()));
    }

    /// It looks at the cluster every so often at least, from its next look on.
    pub(crate) fn set_every_ns(&mut self, every_ns: u64) {
        self.agent.set_every_ns(every_ns);
    }

    /// Pairs of others are left to them for so long, from its next look on.
    pub(crate) fn set_grace_ns(&mut self, grace_ns: u64) {
        self.agent.set_grace_ns(grace_ns);
    }

    /// A pair that was handed over and is not served so long afterwards goes back.
    pub(crate) fn set_back_after_ns(&mut self, back_after_ns: u64) {
        self.moves.set_back_after_ns(back_after_ns);
    }

    /// What is written for people is dated by this: what the wall clock showed, in milliseconds since 1970,
    /// when the caller's time was zero.
    pub fn set_wall_zero_ms(&mut self, wall_zero_ms: u64) {
        self.moves.set_wall_zero_ms(wall_zero_ms);
        self.balance.iter_mut().for_each(|balance| balance.set_wall_zero_ms(wall_zero_ms));
    }

    /// What has become of planned moves from here and to here.
    #[must_use]
    pub fn move_counts(&self) -> MoveCounts {
        self.moves.counts()
    }

    /// When [`ControlDriver::look`] is to be called next.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.agent.due_ns()
    }

    /// The pairs that are served or gathered.
    pub fn ownerships(&self) -> impl Iterator<Item = Ownership> {
        self.pairs.iter().map(|pair| pair.ownership)
    }

    /// Whether pairs are there that the worker does not serve yet.
    #[must_use]
    pub fn is_gathering(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// Whether it is an end of a planned move that is under way.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.moves.is_moving()
    }

    /// For how many pairs the last look found nobody alive who has memory.
    #[must_use]
    pub fn unplaced(&self) -> usize {
        self.unplaced
    }

    /// The operator wants the node to stop: nothing more is taken over.
    pub fn stop(&mut self) {
        self.agent.stop();
        self.moves.stop();
        self.balance.iter_mut().for_each(BalanceDriver::stop);
    }

    /// Breaks copies of pairs off that were to move here.
    pub fn stop_copies(&mut self) {
        self.moves.stop_copies();
    }

    /// Looks at the cluster, and at the disk's room.
    ///
    /// # Errors
    /// What the coordinator returns cannot be read: the node has to end.
    pub fn look(&mut self, now_ns: u64) -> Result<Vec<ControlEffect<L>>, ClusterError> {
        self.record_left();
        self.agent.set_targets(self.moves.targets());
        let looked = self.agent.look(now_ns)?;
        self.unplaced = looked.unplaced;
        let mut effects = vec![ControlEffect::HoldGrowth(self.agent.has_left_behind())];
        effects.extend(self.tuned());
        effects.extend(looked.events.into_iter().map(ControlEffect::Notify));
        let is_news = looked.answered && self.look_at_balance(now_ns);
        if looked.answered {
            let spread = self.balance.as_mut().and_then(|balance| balance.spread(self.agent.view(), now_ns));
            effects.extend(spread.map(ControlEffect::Notify));
        }
        let moves = self.moves.counts();
        let counted = self.takeovers != self.takeovers_reported || moves != self.moves_reported;
        if looked.changed || counted || is_news || !self.progress.is_empty() {
            (self.takeovers_reported, self.moves_reported) = (self.takeovers, moves);
            effects.push(ControlEffect::Notify(self.cluster(now_ns)));
        }
        let jobs: Vec<_> = looked.take_over.into_iter().map(|wanted| self.job(wanted, now_ns)).collect();
        effects.extend((!jobs.is_empty()).then_some(ControlEffect::TakeOver(jobs)));
        effects.extend(self.install(false));
        effects.extend(self.disk_room().map(ControlEffect::Notify));
        let owned: Vec<_> = self.ownerships().collect();
        let moved = self.moves.look(self.agent.view(), &owned, now_ns);
        effects.extend(self.follow_moves(moved));
        Ok(effects)
    }

    /// Takes balance a step further. Whether there is something new for people.
    fn look_at_balance(&mut self, now_ns: u64) -> bool {
        let Some(balance) = &mut self.balance else { return false };
        let memory_left_bytes = self.environment.budget.figures().available;
        let left = (memory_left_bytes, self.disk_free);
        let is_news = balance.look(self.agent.view(), left, now_ns);
        if balance.take_wrote() {
            self.agent.hurry(0);
        }
        is_news
    }

    /// What planned moves lead to.
    fn follow_moves(&mut self, moved: Vec<MoveEffect>) -> Vec<ControlEffect<L>> {
        self.agent.hurry(self.moves.due_ns());
        let mut effects = Vec::new();
        for effect in moved {
            match effect {
                MoveEffect::Notify(event) => effects.push(ControlEffect::Notify(event)),
                MoveEffect::Copy(job) => effects.push(ControlEffect::Copy(job)),
                MoveEffect::Tidy(pair) => self.tidy(pair),
            }
        }
        effects
    }

    /// A copy that was to be made has come to nothing, or is served by now.
    pub fn copied(&mut self, job: &CopyJob, end: CopyEnd) {
        let of = self.agent.view().moves.get(&job.name.pair).filter(|of| of.name() == job.name);
        if let (CopyEnd::Served, Some(of), Some(balance)) = (&end, of, &mut self.balance) {
            balance.moved(of.pair, of.cause);
        }
        self.moves.copied(job, end);
        self.agent.hurry(self.moves.due_ns());
    }

    /// Removes what was kept for a copy.
    fn tidy(&self, pair: PairId) {
        let Some(of) = self.pair(pair) else { return };
        match self.environment.table.pair(pair) {
            Ok(row) if (row.epoch, row.owner) == (of.ownership.epoch, Some(of.ownership.incarnation)) => {
                self.remove_unneeded(&row);
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, %pair, "what was kept for a copy stays for a while"),
        }
    }

    fn remove_unneeded(&self, row: &PairRow) {
        if let Err(error) = remove_unneeded(&*self.environment.storage, row) {
            tracing::warn!(%error, "files of earlier epochs are left over");
        }
    }

    /// The tuning, when it has changed.
    fn tuned(&mut self) -> Option<ControlEffect<L>> {
        let tuning = &self.agent.view().tuning;
        let revision = std::mem::replace(&mut self.tuning_revision, tuning.revision);
        (revision != tuning.revision).then(|| ControlEffect::Tune(Arc::new(tuning.clone())))
    }

    /// What the worker is to be notified of the disk's room, when that has changed.
    fn disk_room(&mut self) -> Option<ControlEvent> {
        // What the disk cannot say, its next write will.
        let free = self.environment.storage.free_bytes().ok()??;
        let changed = self.disk_free.is_none_or(|reported| reported.abs_diff(free) >= DISK_STEP_BYTES);
        changed.then(|| {
            self.disk_free = Some(free);
            ControlEvent::DiskFree(free)
        })
    }

    /// For people, by way of the worker's snapshots.
    fn cluster(&self, now_ns: u64) -> ControlEvent {
        let (pairs, members) = self.agent.rows();
        let view = self.agent.view();
        let recoveries = self.progress.iter();
        let recoveries = recoveries.map(|(pair, progress)| PairRecovery::new(*pair, &progress.view(now_ns)));
        let cluster = ClusterSnapshot {
            revision: view.revision,
            pairs,
            members,
            incidents: view.incidents.values().cloned().collect(),
            drains: view.drains.values().cloned().collect(),
            joined: view.joined.values().copied().collect(),
            recoveries: recoveries.collect(),
            takeovers: self.takeovers,
            moves: view.moves.values().cloned().collect(),
            move_counts: self.moves.counts(),
            tuning: view.tuning.clone(),
            unreadable: view.unreadable.iter().map(|(key, why)| format!("`{key}`: {why}")).collect(),
            balance: self.balance.as_ref().map(|balance| balance.snapshot(view)).unwrap_or_default(),
        };
        ControlEvent::Cluster(Arc::new(cluster))
    }

    fn job(&mut self, wanted: TakeoverWanted, now_ns: u64) -> TakeoverJob {
        let TakeoverWanted { pair, reason, dead, replay_bytes } = wanted;
        let MembershipOptions { incarnation, node, .. } = self.options;
        // The first ones are the node's own; of those the worker reports how far it is.
        let first = !self.agent.is_installed();
        let progress = if first { self.own_progress.clone() } else { Arc::new(Progress::new(now_ns)) };
        self.progress.insert(pair, progress.clone());
        let claim = ClaimRequest { pair, incarnation, node, reason };
        let kept = self.moves.take_kept(self.agent.view().pairs.get(&pair), pair);
        let replay_bytes = if kept.is_some() { 0 } else { replay_bytes };
        TakeoverJob { claim, replay_bytes, dead, progress, kept }
    }

    /// Notes how far a takeover has come.
    pub fn times(&mut self, pair: PairId, dead: Incarnation, times: ShareTimes) {
        self.takeovers.taken(&times);
        self.agent.times(pair, dead, times);
    }

    /// A pair was taken over: it is served, alone or with the others that the node starts with.
    pub fn taken(&mut self, pair: Pair, log: L) -> Option<ControlEffect<L>> {
        let id = pair.id();
        self.progress.remove(&id);
        self.begin(&pair);
        let effect = if self.agent.is_installed() {
            Some(ControlEffect::AddPair(Box::new((pair, log))))
        } else {
            self.gathered.push((pair, log));
            self.install(true)
        };
        self.agent.taken(id);
        effect
    }

    /// A takeover failed. False: the node is alone and does not begin to serve a part of its pairs;
    /// it has to end.
    #[must_use]
    pub fn refused(&mut self, pair: PairId, dead: Incarnation, kind: RefusedKind, now_ns: u64) -> bool {
        self.progress.remove(&pair);
        self.takeovers.refused(kind);
        self.agent.refused(pair, dead, kind, now_ns)
    }

    /// One more pair is there, as the worker wished.
    pub fn created(&mut self, pair: Pair, log: L) -> [ControlEffect<L>; 2] {
        tracing::info!(pair = pair.id().0, "a pair is added");
        self.agent.creation_ended();
        let (id, meant_for) = (pair.id(), self.meant_for.take());
        self.balance.iter_mut().for_each(|balance| balance.created(id, meant_for));
        self.begin(&pair);
        let added = ControlEvent::PairAdded { pair: id, meant_for };
        [ControlEffect::AddPair(Box::new((pair, log))), ControlEffect::Notify(added)]
    }

    /// There is no room for one more pair, or it could not be created.
    #[must_use]
    pub fn not_created(&mut self) -> ControlEffect<L> {
        self.agent.creation_ended();
        ControlEffect::Notify(ControlEvent::PairRefused)
    }

    fn begin(&mut self, pair: &Pair) {
        let subject = ImageSubject::new(pair);
        let (pair, epoch) = (subject.source.pair, subject.source.epoch);
        let ownership = Ownership { pair, epoch, incarnation: self.options.incarnation };
        self.pairs.push(PairControl { ownership, subject });
    }

    /// Lets the worker serve, as soon as it may.
    fn install(&mut self, pair_came: bool) -> Option<ControlEffect<L>> {
        let installation = self.agent.install(pair_came)?;
        let pairs = std::mem::take(&mut self.gathered);
        Some(ControlEffect::Install { pairs, installation })
    }

    /// Carries a command of the worker's out.
    pub fn carry_out(&mut self, command: Command) -> Option<ControlEffect<L>> {
        let event = match command {
            Command::OpenSession { connection, header } => self.agent.open_session(connection, header),
            Command::EndSession { session, answer } => self.agent.end_session(session, answer),
            Command::AskSession { session } => self.agent.ask_session(session),
            Command::ListSessions { before } => self.agent.list_sessions(before),
            Command::Note { key, notice, pair, epoch } => {
                let writer = Ownership { pair, epoch, incarnation: self.options.incarnation };
                self.agent.write_notice(key, notice.as_ref(), writer)
            }
            Command::Checkpoint(pair, CheckpointCommand::Record { base, csn_max }) => {
                self.record(pair, base, csn_max)?
            }
            Command::Checkpoint(pair, CheckpointCommand::WriteImage { base }) => {
                return self.image_job(pair, *base).map(ControlEffect::WriteImage);
            }
            Command::Check { connection, header } => {
                let pairs = self.pairs.iter().map(|pair| &pair.subject);
                let targets = pairs.flat_map(|of| check_targets(&of.source, &of.ends)).collect();
                return Some(ControlEffect::Check { connection, header, targets });
            }
            Command::AddPair { meant_for } => {
                self.meant_for = meant_for; // it asks for one at a time
                self.agent.creation_begins();
                return Some(ControlEffect::Create);
            }
            Command::Frozen { pair, ticket, epoch, cut, since_ns, now_ns } => {
                let (of, times) = ((pair, ticket), [since_ns, now_ns]);
                let moved = self.moves.frozen(of, epoch, cut, times, self.agent.view());
                return self.follow_moves(moved).pop(); // one at most
            }
            Command::Left { pair, epoch, cut, handed, frozen } => {
                let ownership = Ownership { pair, epoch, incarnation: self.options.incarnation };
                self.left(ownership, cut, handed, frozen);
                return None;
            }
            Command::Stays { pair, why } => {
                tracing::warn!(pair = pair.0, ?why, "a pair does not leave this node");
                self.moves.stays(pair, why);
                return None;
            }
            Command::Figures(figures) => {
                if let Some(balance) = &mut self.balance {
                    balance.count(*figures);
                }
                return None;
            }
            Command::Failed(kind) => {
                tracing::error!(?kind, "the worker has given its pairs up");
                return None;
            }
        };
        Some(ControlEffect::Notify(event))
    }

    /// The worker has let a pair go. It may be this node's in a later epoch by now.
    fn left(&mut self, ownership: Ownership, cut: Csn, handed: bool, frozen: Option<Box<Pair>>) {
        self.pairs.retain(|of| of.ownership != ownership);
        if handed {
            return self.moves.left(frozen);
        }
        self.left.push((ownership, cut));
        self.record_left();
    }

    /// Says in the table which pairs have left, so that others take them over; again and again until it has
    /// answered.
    fn record_left(&mut self) {
        let table = &self.environment.table;
        self.left.retain(|(ownership, cut)| match table.leave(*ownership, *cut) {
            Ok(()) => false,
            Err(error) if error.is_transient() => true,
            Err(error) => {
                tracing::warn!(%error, "a pair that has left is not this node's to give up any more");
                false
            }
        });
    }

    fn pair(&self, pair: PairId) -> Option<&PairControl> {
        self.pairs.iter().find(|of| of.ownership.pair == pair)
    }

    /// What readers beside the owner of a pair that is served here may hold.
    pub(crate) fn subject(&self, pair: PairId) -> Option<&ImageSubject> {
        self.pair(pair).map(|of| &of.subject)
    }

    fn image_job(&self, pair: PairId, base: ImageBase) -> Option<ImageJob> {
        Some(ImageJob::new(&self.pair(pair)?.subject, base))
    }

    /// Records the image that was written last in the region table.
    fn record(&self, pair: PairId, base: Csn, csn_max: Csn) -> Option<ControlEvent> {
        let of = self.pair(pair)?;
        let recorded = self.record_of(of, base, csn_max);
        Some(ControlEvent::CheckpointRecorded { pair, recorded })
    }

    fn record_of(&self, of: &PairControl, base: Csn, csn_max: Csn) -> bool {
        let Some(image) = of.subject.take_written() else { return false };
        let row = CheckpointRow { epoch: of.ownership.epoch, csn: base, csn_max, file: image.path };
        let row = match self.environment.table.record_checkpoint(of.ownership, &row) {
            Ok(row) => row,
            Err(error) => {
                tracing::error!(%error, "a checkpoint could not be recorded");
                return false;
            }
        };
        tracing::info!(
            pair = of.ownership.pair.0,
            base = base.0,
            csn_max = csn_max.0,
            bytes = image.summary.stored_bytes,
            "checkpoint recorded"
        );
        // The table names the new image: older images and epochs are needed by nobody.
        if !self.moves.keeps(of.ownership.pair) {
            self.remove_unneeded(&row);
        }
        true
    }

    /// Gives all pairs up in the table: the worker has stopped appending and answering, and no takeover is
    /// under way.
    pub fn release(&mut self) {
        self.gathered.clear();
        self.record_left();
        for ownership in self.ownerships() {
            if let Err(error) = self.environment.table.release(ownership) {
                tracing::warn!(%error, "a pair stays in this node's name until its lease ends");
            }
        }
    }
}
