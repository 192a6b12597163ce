//! The control thread: carries out what its driver (`control_driver`) decides, on commands of the worker and
//! as the cluster changes. Calls to the coordinator are made on it; takeovers, new pairs, copies and checks
//! of the pairs have threads of their own.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cell_cluster::{ClusterError, TuningRow, boottime_ns};
use cell_fabric::ConnectionId;
use cell_pair::{CheckOutcome, CheckTarget, CheckpointFailure, ImageJob, check};
use cell_protocol::RequestHeader;
use cell_recovery::{Environment, RecoveryError};
use cell_settings::{Author, SettingsStore};
use cell_terms::PairId;
use cell_terms::setting::Settings;
use cell_terms::text::with_causes;
use cell_wal::Storage;
use cell_wal::folder::list_regions;
use rustix::time::{ClockId, clock_gettime};

use crate::balance::BalanceOptions;
use crate::bring_up::{BringUp, recovery_threads};
use crate::command::ControlEvent;
use crate::control_driver::{ControlDriver, ControlEffect, join_cluster};
use crate::error::NodeError;
use crate::membership::{MembershipOptions, RefusedKind};
use crate::messages::{Inbound, PairResources, RecoveredPair, ServedPair, TakeoverReport, ToWorker, Work};
use crate::moves::{CopyEnd, CopyFailure, CopyJob};
use crate::others_wait::{self, OthersWait};
use crate::proven_root::ProvenRoot;
use crate::recoverer::Recoverer;
use crate::reported_limit::ReportedLimit;
use crate::root_proof::RootProof;
use crate::settings::{ClientSettings, WorkerOptions};

/// What the thread works with.
pub(crate) struct Control {
    bring_up: Arc<BringUp>,
    environment: Environment,
    to_worker: ToWorker,
    driver: ControlDriver<PairResources>,
    recoverer: Recoverer,
    /// Into this thread's own queue, for helpers.
    sender: Sender<Work>,
    /// Threads that copy pairs which are to move here.
    copies: Vec<JoinHandle<()>>,
    images: ImageOptions,
    tuning: Arc<TuningRow>,
    store: Option<Arc<SettingsStore>>,
    reported_limit: ReportedLimit,
    /// When the worker last got a sign that this thread is at work.
    alive_ns: u64,
}

/// How often it gets one.
const ALIVE_EVERY_NS: u64 = 1_000_000_000;

/// How checkpoints are written.
#[derive(Clone, Copy)]
struct ImageOptions {
    zstd_level: i32,
    niceness: i32,
    /// The node stops: it serves nobody who would wait less, and waits for its checkpoints itself.
    stops: bool,
}

impl ImageOptions {
    fn from_settings(settings: &Settings) -> ImageOptions {
        let small = |name| i32::try_from(settings.integer(name)).unwrap_or(1);
        let (zstd_level, niceness) = (small("image_zstd_level"), small("checkpoint_niceness"));
        ImageOptions { zstd_level, niceness, stops: false }
    }

    /// Takes over what applies live.
    fn apply_live(&mut self, settings: &Settings) {
        *self = ImageOptions { stops: self.stops, ..ImageOptions::from_settings(settings) };
    }

    /// Starts the thread of one checkpoint. Its niceness stays: only root could lower it again.
    fn spawn(self, write: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
        let niceness = if self.stops { 0 } else { self.niceness };
        std::thread::Builder::new().name("cell-checkpoint".into()).spawn(move || {
            lower_priority(niceness); // the thread ends with the checkpoint
            write();
        })
    }
}

fn poll_ns(settings: &Settings) -> u64 {
    settings.integer("membership_poll_ms") * 1_000_000
}

fn grace_ns(settings: &Settings) -> u64 {
    settings.integer("unclaimed_grace_ms") * 1_000_000
}

/// How long a node that cannot go on waits for its worker to end. A turn of it takes milliseconds.
const WORKER_PATIENCE: Duration = Duration::from_secs(10);

/// How often a node that joins looks whether a member has seen its log root.
const LOG_ROOT_LOOK_NS: u64 = 100_000_000;

/// Brings the node's pairs up, and runs until the worker is gone.
pub(crate) fn run(
    bring_up: &Arc<BringUp>,
    sender: &Sender<Work>,
    work: &Receiver<Work>,
) -> Result<(), NodeError> {
    let environment = bring_up.environment();
    let Some(early) = join(bring_up, &environment, work)? else { return Ok(()) };
    let recoverer = Recoverer::start(bring_up.clone(), environment.clone(), sender.clone())?;
    let mut control = Control::new(bring_up.clone(), environment.clone(), sender.clone(), recoverer);
    let ended = control.run(early, work);
    let mut driver = control.end();
    let worker_runs = ended.is_err() && !bring_up.to_worker.end_worker(work, WORKER_PATIENCE);
    if worker_runs {
        tracing::error!("the worker does not end: its pairs stay in this node's name until its lease ends");
        return ended;
    }
    // The worker has stopped appending and answering: nothing of it is in flight any more.
    driver.release();
    ended
}

/// Joins the cluster. What was asked meanwhile is returned; none: the worker has ended, as it does when the
/// operator wants the node to stop.
fn join(
    bring_up: &BringUp,
    environment: &Environment,
    work: &Receiver<Work>,
) -> Result<Option<VecDeque<Work>>, NodeError> {
    let lease_ns = bring_up.options.settings.integer("lease_ms") * 1_000_000;
    let storage = &bring_up.log_root.storage;
    let random = RandomState::new().build_hasher().finish();
    let mut proof = RootProof::new(bring_up.coordinator.clone(), bring_up.member_row(), random);
    let known = ProvenRoot::new(&bring_up.options.home, bring_up.log_root.name());
    if known.is_known() {
        proof.known();
    }
    let joined = join_patiently(work, lease_ns, || {
        proof.step(storage, environment.table.host(), boottime_ns())?;
        let geometry = |geometry| bring_up.joining(environment.table.host(), geometry);
        join_cluster(environment, &bring_up.member_row(), || bring_up.layout_wanted(), geometry)
    });
    proof.end(storage);
    if proof.is_proven() && joined.as_ref().is_ok_and(Option::is_some) {
        known.note();
    }
    joined.map_err(|error| of_bare_root(error, &*environment.storage))
}

/// Another log root than the cluster's that has no logs is a folder where the cluster's is not mounted, or
/// not yet.
fn of_bare_root(error: NodeError, storage: &dyn Storage) -> NodeError {
    let is_bare = || list_regions(storage).is_ok_and(|regions| regions.is_empty());
    match error {
        NodeError::Cluster(ClusterError::Terms(difference)) if difference.is_of_log_root() && is_bare() => {
            NodeError::LogRootBare { difference }
        }
        other => other,
    }
}

/// A coordinator that went after it gave the lease is waited for, for as long as that has not ended. Of a
/// process with this node's number that is gone, and of which only the lease says so, the lease's end is
/// waited for; so it is of others, while this node was given terms that change only without them.
fn join_patiently(
    work: &Receiver<Work>,
    lease_ns: u64,
    mut attempt: impl FnMut() -> Result<(), NodeError>,
) -> Result<Option<VecDeque<Work>>, NodeError> {
    let (mut early, mut said, mut elsewhere_until_ns) = (VecDeque::new(), None, None);
    let mut others_wait = OthersWait::default();
    loop {
        let Err(error) = attempt() else { return Ok(Some(early)) };
        let now_ns = boottime_ns();
        let mut whom = String::new();
        let waits = match &error {
            NodeError::Cluster(ClusterError::NodeElsewhere { .. }) => {
                let until_ns = elsewhere_until_ns.get_or_insert(now_ns.saturating_add(2 * lease_ns));
                (now_ns < *until_ns).then_some("waiting for the other one's lease to end, if it is gone")
            }
            NodeError::Cluster(ClusterError::Terms(difference))
                if others_wait.goes_on(&difference.others) =>
            {
                whom = others_wait::words(&difference.others);
                Some("waiting for leases of the cluster's last run to end, if nobody renews them")
            }
            NodeError::LogRootUnanswered => {
                Some("waiting for a living node to look for a file of this node in its own log root")
            }
            NodeError::Cluster(error) if error.is_transient() => {
                Some("waiting for the coordinator, which was there when it gave the lease")
            }
            _ => None,
        };
        let Some(waits) = waits else { return Err(error) };
        if said.replace(waits) != Some(waits) {
            tracing::info!(error = &error as &dyn std::error::Error, "{waits}{whom}");
        }
        let look_ns = match &error {
            NodeError::LogRootUnanswered => LOG_ROOT_LOOK_NS.min(lease_ns / 8),
            _ => lease_ns / 8,
        };
        match work.recv_timeout(Duration::from_nanos(look_ns)) {
            Ok(Work::WorkerEnded) | Err(RecvTimeoutError::Disconnected) => return Ok(None),
            asked => early.extend(asked),
        }
    }
}

impl Control {
    pub(crate) fn new(
        bring_up: Arc<BringUp>,
        environment: Environment,
        sender: Sender<Work>,
        recoverer: Recoverer,
    ) -> Control {
        let settings = &bring_up.options.settings;
        let options = MembershipOptions {
            incarnation: bring_up.incarnation,
            node: bring_up.options.node,
            joined_ns: boottime_ns(),
            grace_ns: grace_ns(settings),
        };
        let every_ns = poll_ns(settings);
        let (coordinator, progress) = (&bring_up.coordinator, bring_up.progress.clone());
        let mut driver = ControlDriver::new(&environment, coordinator, options, every_ns, progress)
            .balancing(BalanceOptions::from_settings(settings));
        driver.set_back_after_ns(2 * settings.integer("lease_ms") * 1_000_000);
        let reported_limit = ReportedLimit::new(coordinator, bring_up.member_row(), bring_up.plan.limit);
        Control {
            to_worker: bring_up.to_worker.clone(),
            driver,
            recoverer,
            sender,
            copies: Vec::new(),
            images: ImageOptions::from_settings(settings),
            tuning: Arc::default(),
            store: None,
            reported_limit,
            alive_ns: 0,
            bring_up,
            environment,
        }
    }

    /// Serves the worker and follows the cluster until the worker is gone; `early` was asked before.
    pub(crate) fn run(&mut self, mut early: VecDeque<Work>, work: &Receiver<Work>) -> Result<(), NodeError> {
        loop {
            let wait_ns = self.driver.due_ns().saturating_sub(boottime_ns());
            let asked = early.pop_front().map(Ok);
            match asked.unwrap_or_else(|| work.recv_timeout(Duration::from_nanos(wait_ns))) {
                Ok(Work::WorkerEnded) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(Work::Command(command)) => {
                    let effect = self.driver.carry_out(command);
                    self.follow(effect);
                }
                Ok(Work::Takeover(report)) => self.on_takeover(report)?,
                Ok(Work::Copied { job, ended }) => self.copied(&job, ended),
                Ok(Work::Grown(grown)) => self.grown(grown),
                Ok(Work::Stopping) => self.stop(),
                Ok(Work::Settings(settings)) => self.apply_live(&settings),
                Ok(Work::Look { pair, answer }) => {
                    let _ = answer.send(self.driver.subject(pair).cloned()); // unless nobody waits any more
                }
                Ok(Work::Store(store)) => {
                    self.store = Some(store);
                    self.tune();
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.say_alive();
            let now_ns = boottime_ns();
            if now_ns >= self.driver.due_ns() {
                self.driver.set_wall_zero_ms(wall_ms().saturating_sub(now_ns / 1_000_000));
                let effects = self.driver.look(now_ns)?;
                self.follow(effects);
                self.reported_limit.report(self.bring_up.budget.given_limit(), now_ns);
                self.say_alive();
            }
        }
    }

    /// The operator wants the node to stop. The worker is asked for its last checkpoints after this.
    fn stop(&mut self) {
        self.images.stops = true;
        self.driver.stop();
    }

    /// Notifies the worker now and then that this thread is at work. A call for a log root that does not
    /// answer may never come back, and one for a coordinator that hangs takes its whole deadline.
    fn say_alive(&mut self) {
        let now_ns = boottime_ns();
        if now_ns.saturating_sub(self.alive_ns) >= ALIVE_EVERY_NS {
            self.alive_ns = now_ns;
            self.to_worker.event(ControlEvent::Alive);
        }
    }

    /// The worker is gone: breaks takeovers off. What is left is to give the pairs up.
    pub(crate) fn end(mut self) -> ControlDriver<PairResources> {
        self.driver.stop_copies();
        self.copies.drain(..).for_each(|thread| drop(thread.join()));
        self.driver
    }

    /// Takes over what applies live: here and in the worker.
    fn apply_live(&mut self, settings: &Settings) {
        self.images.apply_live(settings);
        self.driver.set_every_ns(poll_ns(settings));
        self.driver.set_grace_ns(grace_ns(settings));
        self.driver.set_balance(BalanceOptions::from_settings(settings));
        self.bring_up.threads.store(recovery_threads(settings), Ordering::Relaxed);
        self.environment.options.threads = recovery_threads(settings);
        let rate = settings.integer("move_bytes_per_second");
        self.bring_up.move_bytes_per_second.store(rate, Ordering::Relaxed);
        let client_settings = Some(Arc::new(client_settings(&self.tuning)));
        let fitted = self.bring_up.plan.fitted(settings);
        let options = WorkerOptions { client_settings, ..WorkerOptions::from_settings(&fitted) };
        self.to_worker.event(ControlEvent::OptionsChanged(Box::new(options)));
    }

    /// Puts into force what the cluster is tuned to.
    #[allow(
        clippy::disallowed_methods,
        reason = "a shell: when a value came into force is shown to an operator"
    )]
    fn tune(&mut self) {
        let Some(store) = self.store.clone() else { return };
        let values = self.tuning.values.iter().map(|(name, value)| (name.clone(), value.text.clone()));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let author = Author {
            name: format!("tuning, revision {}", self.tuning.revision),
            at_unix_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        };
        match store.tune(author, &values.collect()) {
            Ok(taken) => {
                for change in taken.revision.iter().flat_map(|revision| &revision.changes) {
                    tracing::info!(old = change.old, new = change.new, "`{}` is tuned", change.name);
                }
                taken.refused.iter().for_each(|refusal| tracing::warn!("{refusal}"));
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "the cluster's tuning does not fit this node's settings: all stay");
            }
        }
        // Also where nothing changed for this node: it informs its clients.
        self.apply_live(&store.current().0);
    }

    /// Does what the driver says.
    fn follow(&mut self, effects: impl IntoIterator<Item = ControlEffect<PairResources>>) {
        let served = |(pair, resources)| ServedPair { pair, resources };
        for effect in effects {
            match effect {
                ControlEffect::Notify(event) => self.to_worker.event(event),
                ControlEffect::Install { pairs, installation } => {
                    let pairs = pairs.into_iter().map(served).collect();
                    self.to_worker.send(Inbound::Install { pairs, installation });
                }
                ControlEffect::AddPair(pair) => {
                    self.to_worker.send(Inbound::AddPair(Box::new(served(*pair))));
                }
                ControlEffect::TakeOver(jobs) => self.recoverer.push(jobs),
                ControlEffect::Copy(job) => self.copy(job),
                ControlEffect::Create => self.grow(),
                ControlEffect::HoldGrowth(held) => self.hold_growth(held),
                ControlEffect::Tune(tuning) => {
                    self.tuning = tuning;
                    self.tune();
                }
                ControlEffect::Check { connection, header, targets } => {
                    self.check(connection, header, targets);
                }
                ControlEffect::WriteImage(job) => self.write_image(job),
            }
        }
    }

    fn hold_growth(&self, held: bool) {
        let budget = &self.bring_up.budget;
        if held != budget.is_growth_held() {
            tracing::info!(held, "memory is kept for pairs that this node had and that wait to be recovered");
            budget.hold_growth(held);
        }
    }

    /// What became of a takeover.
    ///
    /// # Errors
    /// A node that is alone does not begin to serve a part of its pairs.
    fn on_takeover(&mut self, report: TakeoverReport) -> Result<(), NodeError> {
        match report {
            TakeoverReport::Times { pair, dead, times } => self.driver.times(pair, dead, times),
            TakeoverReport::Taken { mine } => {
                let ServedPair { pair, resources } = self.bring_up.serve(*mine);
                let effect = self.driver.taken(pair, resources);
                self.follow(effect);
            }
            TakeoverReport::Refused { pair, dead, error } => {
                tracing::warn!(%pair, error = &error as &dyn std::error::Error, "a pair is not taken over");
                if !self.driver.refused(pair, dead, refused_kind(&error, pair), boottime_ns()) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Copies a pair that is to move here, on a thread of its own.
    fn copy(&mut self, job: CopyJob) {
        let (bring_up, environment) = (self.bring_up.clone(), self.environment.clone());
        let (sender, of) = (self.sender.clone(), job.clone());
        let spawned = std::thread::Builder::new().name("cell-move".into()).spawn(move || {
            let mut ended = bring_up.copy(&environment, job.clone()).map(Box::new);
            let leftovers = ended.as_mut().ok().and_then(|mine| mine.recovered.leftovers.take());
            let _ = sender.send(Work::Copied { job, ended }); // the control thread has ended: so has the node
            leftovers.into_iter().for_each(|left| left.remove(&environment));
        });
        self.copies.retain(|thread| !thread.is_finished());
        match spawned {
            Ok(thread) => self.copies.push(thread),
            Err(error) => self.driver.copied(&of, CopyEnd::of(&RecoveryError::Thread(error), of.row.epoch)),
        }
    }

    /// A copy has ended.
    fn copied(&mut self, job: &CopyJob, ended: Result<Box<RecoveredPair>, NodeError>) {
        let end = match ended {
            Ok(mine) => {
                let ServedPair { pair, resources } = self.bring_up.serve(*mine);
                let effect = self.driver.taken(pair, resources);
                self.follow(effect);
                CopyEnd::Served
            }
            Err(NodeError::Recovery(error)) => CopyEnd::of(&error, job.row.epoch),
            Err(error) => CopyEnd::Failed { why: with_causes(&error), failure: CopyFailure::Final },
        };
        self.driver.copied(job, end);
    }

    /// Creates one more pair on a thread of its own: it waits for the disk.
    fn grow(&mut self) {
        let (bring_up, environment) = (self.bring_up.clone(), self.environment.clone());
        let sender = self.sender.clone();
        let spawned = std::thread::Builder::new().name("cell-grow".into()).spawn(move || {
            let grown = bring_up.grow(&environment).map(Box::new);
            let _ = sender.send(Work::Grown(grown)); // the control thread has ended: so has the node
        });
        if let Err(error) = spawned {
            self.not_grown(&NodeError::Thread(error));
        }
    }

    fn grown(&mut self, grown: Result<Box<RecoveredPair>, NodeError>) {
        match grown {
            Ok(mine) => {
                let ServedPair { pair, resources } = self.bring_up.serve(*mine);
                let effects = self.driver.created(pair, resources);
                self.follow(effects);
            }
            Err(error) => self.not_grown(&error),
        }
    }

    fn not_grown(&mut self, error: &NodeError) {
        let error = error as &dyn std::error::Error;
        tracing::warn!(error, "no pair can be added: the node's room is what it is");
        let effect = self.driver.not_created();
        self.follow([effect]);
    }

    #[allow(clippy::disallowed_methods, reason = "a shell: how long a check took is shown to an operator")]
    fn check(&self, connection: ConnectionId, header: RequestHeader, targets: Vec<CheckTarget>) {
        let to_worker = self.to_worker.clone();
        let spawned = std::thread::Builder::new().name("cell-check".into()).spawn(move || {
            let started = std::time::Instant::now();
            let mut outcome = check(&targets, || to_worker.event(ControlEvent::StructureChecked));
            outcome.duration_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            to_worker.event(ControlEvent::Checked { connection, header, outcome });
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for a check");
            let outcome = CheckOutcome {
                violations: 1,
                first_violation: "the check could not be started: no thread".to_owned(),
                ..Default::default()
            };
            self.to_worker.event(ControlEvent::Checked { connection, header, outcome });
        }
    }

    fn write_image(&self, job: ImageJob) {
        let (storage, to_worker) = (self.environment.storage.clone(), self.to_worker.clone());
        let (pair, zstd_level) = (job.pair(), self.images.zstd_level);
        let spawned = self.images.spawn(move || to_worker.event(job.run(storage, zstd_level).into()));
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for a checkpoint");
            let written = Err(CheckpointFailure::Thread);
            self.to_worker.event(ControlEvent::ImageWritten { pair, written });
        }
    }
}

/// Milliseconds since 1970.
fn wall_ms() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    let parts = [time.tv_sec, time.tv_nsec / 1_000_000].map(|part| u64::try_from(part).unwrap_or(0));
    parts[0] * 1_000 + parts[1]
}

/// What the cluster is tuned to, of what clients go by.
fn client_settings(tuning: &TuningRow) -> ClientSettings {
    let of_clients = tuning.values.iter().filter(|(name, _)| name.starts_with("client_"));
    let values = of_clients.map(|(name, value)| (name.clone(), value.text.clone())).collect();
    ClientSettings { revision: tuning.revision, values }
}

/// What a takeover's failure means for the pair.
fn refused_kind(error: &NodeError, pair: PairId) -> RefusedKind {
    match error {
        NodeError::Cluster(error) => RefusedKind::of_cluster(error),
        NodeError::Recovery(error) => RefusedKind::of(error, pair),
        // The pair is whole: this node is not made for it.
        NodeError::Geometry { .. } => RefusedKind::Declined,
        _ => RefusedKind::Passing,
    }
}

/// Lets other threads run before this one, and nobody else's.
fn lower_priority(niceness: i32) {
    if let Err(error) = rustix::process::nice(niceness) {
        tracing::debug!(%error, "a checkpoint is written as eagerly as everything else");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use cell_cluster::{LivingLease, OtherMember, TermsDifference};
    use cell_terms::Incarnation;
    use cell_terms::setting::Source;
    use cell_wal::RealStorage;

    use super::*;

    const LEASE_NS: u64 = 80_000_000;

    fn away() -> NodeError {
        ClusterError::NotReached(std::io::ErrorKind::ConnectionRefused.into()).into()
    }

    /// The process ended, and was started again for as long as the coordinator was away.
    #[test]
    fn join_waits_for_a_coordinator_that_went_after_it_gave_the_lease() {
        let (sender, work) = mpsc::channel();
        let mut outcomes = vec![Ok(()), Err(away()), Err(away()), Err(away())];
        sender.send(Work::Stopping).unwrap();
        let early = join_patiently(&work, LEASE_NS, || outcomes.pop().unwrap()).unwrap().unwrap();
        assert!(outcomes.is_empty());
        assert!(matches!(early.front(), Some(Work::Stopping)) && early.len() == 1, "it is kept for later");
    }

    #[test]
    fn join_ends_with_the_lease_the_worker_or_what_is_no_outage() {
        let (sender, work) = mpsc::channel();
        let lease = cell_terms::Incarnation(1);
        let mut outcomes = vec![Err(ClusterError::LeaseEnded { lease }.into()), Err(away())];
        let ended = join_patiently(&work, LEASE_NS, || outcomes.pop().unwrap());
        assert!(matches!(ended, Err(NodeError::Cluster(ClusterError::LeaseEnded { .. }))));
        sender.send(Work::WorkerEnded).unwrap();
        assert!(join_patiently(&work, LEASE_NS, || Err(away())).unwrap().is_none());
    }

    /// There is another member, whose lease was renewed so often.
    fn other_durability(renewals: Option<u64>) -> NodeError {
        let other = |renewals| {
            let lease = LivingLease { remaining_ns: LEASE_NS, renewals };
            OtherMember { incarnation: Incarnation(7), node: None, lease }
        };
        let difference = TermsDifference {
            what: "durability",
            here: "async".into(),
            cluster: "sync".into(),
            next: "",
            others: renewals.map(other).into_iter().collect(),
        };
        ClusterError::Terms(difference).into()
    }

    /// The leases of a cluster that was stopped outlive it: its durability could not be changed.
    #[test]
    fn join_with_other_terms_waits_for_leases_that_nobody_renews() {
        let (_sender, work) = mpsc::channel();
        let mut left = 3;
        let joined = join_patiently(&work, LEASE_NS, || match left {
            0 => Ok(()),
            _ => {
                left -= 1;
                Err(other_durability(Some(9)))
            }
        });
        assert!(joined.unwrap().is_some());
        assert_eq!(left, 0);
    }

    #[test]
    fn join_with_other_terms_is_refused_where_others_renew_or_nobody_is_in_the_way() {
        let (_sender, work) = mpsc::channel();
        let mut others = (0..).map(|renewals| other_durability(Some(renewals)));
        let refused = |of: &mut dyn FnMut() -> NodeError| {
            let joined = join_patiently(&work, LEASE_NS, || Err(of()));
            assert!(matches!(joined, Err(NodeError::Cluster(ClusterError::Terms(_)))));
        };
        refused(&mut || other_durability(None));
        refused(&mut || others.next().unwrap());
    }

    /// It was never started again, also once the log root was mounted.
    #[test]
    fn join_over_a_folder_without_logs_may_be_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let storage = RealStorage::open(folder.path()).unwrap();
        let joined = |what: &'static str| {
            let (here, cluster, others) = ("7".to_owned(), "8".to_owned(), Box::default());
            let difference = TermsDifference { what, here, cluster, next: "", others };
            of_bare_root(ClusterError::Terms(difference).into(), &storage)
        };
        let root = "the log root's id";
        assert!(matches!(joined(root), NodeError::LogRootBare { .. }));
        assert!(matches!(joined("durability"), NodeError::Cluster(ClusterError::Terms(_))));
        storage.create_folder("region-0000000a").unwrap();
        assert!(matches!(joined(root), NodeError::Cluster(ClusterError::Terms(_))), "another store's");
    }

    #[test]
    fn lower_priority_makes_its_own_thread_nicer_and_no_other() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let before = niceness();
        let nicer = std::thread::spawn(move || {
            lower_priority(3);
            niceness()
        });
        assert_eq!(nicer.join().unwrap(), (before + 3).min(19));
        assert_eq!(niceness(), before);
    }

    /// Where other processes keep the cores busy, the stop waited for a thread that stood back.
    #[test]
    fn checkpoint_of_a_stop_stands_back_for_nobody_whatever_is_set_meanwhile() {
        fn niceness() -> i32 {
            rustix::process::getpriority_process(None).unwrap()
        }
        let of_thread = |images: ImageOptions| {
            let (sender, seen) = mpsc::channel();
            images.spawn(move || sender.send(niceness()).unwrap()).unwrap().join().unwrap();
            seen.recv().unwrap()
        };
        let mut settings = Settings::new(&[crate::SETTINGS, cell_wal::SETTINGS]);
        settings.set("checkpoint_niceness", "3", Source::Flag).unwrap();
        let (own, mut images) = (niceness(), ImageOptions::from_settings(&settings));
        assert_eq!(of_thread(images), (own + 3).min(19));
        images.stops = true;
        assert_eq!(of_thread(images), own);
        images.apply_live(&settings);
        assert_eq!(of_thread(images), own);
    }
}
