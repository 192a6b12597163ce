//! The whole takeover of a pair: claim, restore, new logs, wait, publish. [`Takeover`] is the core, stepped,
//! without a clock; [`take_over`] runs one on a control thread.
//!
//! The order is the point. The cut is recorded before the new logs are created, because their first frames
//! name it; the new logs are open (files and folders synced) before the pair is published, because a
//! published epoch's folders are expected by the next recovery; and nobody serves before the trust that
//! earlier owners granted has run out, which the publication's own transaction checks.
//!
//! 1. owner A answers a client at 0 ms: trust until 500 ms, and dies at 1 ms;
//! 2. B, on the same host, finds A's lock free and has replayed at 100 ms;
//! 3. if B served now, a write to B at 110 ms would be missed by the client's one-sided read of A's memory at
//!    120 ms.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use cell_cluster::{Claim, ClusterError, Missing, Ownership, ServingAddress};
use cell_terms::Durability;
use cell_terms::mutant::{Mutant, planted};
use cell_wal::{Errno, LogDevice, LogEvent, LogId, LogOptions, LogStart, PairLog, Predecessor};

use crate::environment::Environment;
use crate::error::RecoveryError;
use crate::leftovers::Leftovers;
use crate::progress::{Progress, RecoveryStage};
use crate::recovered::{OpenSessions, Recovered, Restored};
use crate::restore::{ClaimRequest, Restore, Step};

/// How long to wait before a call of the coordinator is made again.
const RETRY_NS: u64 = 20_000_000;
/// How long to wait for the disk before asking again.
const DISK_NS: u64 = 200_000;
/// How long to wait for what a log does not show yet.
const LATER_NS: u64 = 1_000_000;
/// Trust is asked about again at least so often: a coordinator that restarts counts leases as just granted.
const TRUST_NS: u64 = 50_000_000;

/// How the pair will be served.
#[derive(Clone, Debug)]
pub struct PublishRequest {
    /// When writes are acknowledged; with `none` there are no logs.
    pub durability: Durability,
    /// Where.
    pub place: ServingAddress,
    /// How logs are written.
    pub log: LogOptions,
    /// A random number that no client can guess, fresh for each takeover: see [`LogStart::salt`].
    pub salt: u64,
}

/// What a step of a takeover asks of whoever steps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Step again.
    More,
    /// Step again after so many nanoseconds, or later.
    Wait(u64),
    /// The pair is published: [`Takeover::finish`].
    Done,
}

/// A takeover in progress. Dropping it gives it up: the claim stands until somebody claims the pair again.
pub struct Takeover {
    environment: Environment,
    publish: PublishRequest,
    progress: Arc<Progress>,
    stage: Stage,
    /// The new logs, while their first frames are on their way.
    opening: Option<PairLog>,
    /// What earlier owners have left; from when their cuts are recorded on.
    leftovers: Option<Leftovers>,
    /// How often what they have left is still removed at once and the new logs are tried again, where these
    /// find no room: each of both may find none.
    retries_left: u8,
    events: Vec<LogEvent>,
    /// The opening log's clock: it only has to grow.
    waited_ns: u64,
    /// Why the last step has to be made again.
    transient: Option<RecoveryError>,
    /// The pair was handed over by an owner that lives: who cannot serve it gives it back.
    was_handed: bool,
}

enum Stage {
    Claim(ClaimRequest),
    Restore(Box<Restore>),
    /// Its memory was kept: what it knows of sessions is of another time.
    Kept(Box<Restored>),
    Open(Box<Restored>),
    Trust(Box<Restored>),
    Publish(Box<Restored>),
    Done(Box<Recovered>),
    /// What was wrong is to be said in the region table.
    Report(Box<Failure>),
    Failed,
}

/// What keeps a claimed pair from being served.
struct Failure {
    ownership: Ownership,
    missing: Missing,
    error: RecoveryError,
}

impl Takeover {
    /// A takeover that begins with the claim.
    #[must_use]
    pub fn new(
        environment: &Environment,
        claim: ClaimRequest,
        publish: PublishRequest,
        progress: &Arc<Progress>,
    ) -> Takeover {
        Takeover::at(Stage::Claim(claim), environment, publish, progress)
    }

    /// A takeover after its claim, or of a pair that was created.
    #[must_use]
    pub fn claimed(
        environment: &Environment,
        restore: Restore,
        publish: PublishRequest,
        progress: &Arc<Progress>,
    ) -> Takeover {
        Takeover::at(Stage::Restore(Box::new(restore)), environment, publish, progress)
    }

    /// What is left of a takeover after the handing of a planned move to a copy
    /// ([`crate::PairCopy::handed`]). One that fails reports nothing: the pair can go back to its source.
    #[must_use]
    pub fn handed(
        environment: &Environment,
        restore: Restore,
        publish: PublishRequest,
        progress: &Arc<Progress>,
    ) -> Takeover {
        let claimed = Takeover::claimed(environment, restore, publish, progress);
        Takeover { was_handed: true, ..claimed }
    }

    /// What is left of a takeover whose pair is in memory up to the last cut: it had been handed over, and
    /// has come back by this owner's own write, which made `claim`. None: that is another cut, and the
    /// memory counts for nothing.
    #[must_use]
    pub fn kept(
        environment: &Environment,
        claim: Claim,
        recovered: Recovered,
        publish: PublishRequest,
        progress: &Arc<Progress>,
    ) -> Option<Takeover> {
        let last = claim.row.history.last().filter(|last| last.cut == Some(recovered.csn_cut))?;
        let predecessor = Predecessor { epoch: last.epoch, cut: recovered.csn_cut };
        let recoveries = u32::try_from(claim.row.epochs_needed().count()).unwrap_or(u32::MAX);
        let recovered = Recovered { recoveries, ..recovered };
        let restored = Restored { claim, recovered, predecessor };
        Some(Takeover::at(Stage::Kept(Box::new(restored)), environment, publish, progress))
    }

    fn at(
        stage: Stage,
        environment: &Environment,
        publish: PublishRequest,
        progress: &Arc<Progress>,
    ) -> Takeover {
        Takeover {
            environment: environment.clone(),
            publish,
            progress: Arc::clone(progress),
            stage,
            opening: None,
            leftovers: None,
            retries_left: 2,
            events: Vec::new(),
            waited_ns: 0,
            transient: None,
            was_handed: false,
        }
    }

    /// Does the next piece of work. What keeps the pair from being served is written to the region table, if
    /// it is the pair's own data; until the table has answered, it is not reported that the data is at fault.
    ///
    /// # Errors
    /// See [`RecoveryError`]; nothing is served then, and the takeover is over.
    pub fn step(&mut self, device: &mut dyn LogDevice) -> Result<Turn, RecoveryError> {
        match self.advance(device) {
            Err(error) if error.is_transient() => {
                tracing::debug!(error = &error as &dyn Error, "recovery waits for the coordinator");
                self.transient = Some(error);
                Ok(Turn::Wait(RETRY_NS))
            }
            Err(error) => {
                self.progress.set_stage(RecoveryStage::Failed);
                self.transient = None;
                let ownership = self.ownership();
                let asked = matches!(std::mem::replace(&mut self.stage, Stage::Failed), Stage::Report(_));
                let reports = ownership.filter(|_| !self.was_handed);
                let error = if asked { error } else { self.blamed_on_the_root(error) };
                let missing = reports.and_then(|ownership| Some((ownership, error.missing(ownership.pair)?)));
                if let Some((ownership, missing)) = missing {
                    let pair = ownership.pair.0;
                    tracing::warn!(pair, error = &error as &dyn Error, "a recovery has failed");
                    self.stage = Stage::Report(Box::new(Failure { ownership, missing, error }));
                    return Ok(Turn::More);
                }
                if let Some(ownership) = ownership.filter(|_| !asked) {
                    let pair = ownership.pair.0;
                    tracing::error!(pair, error = &error as &dyn Error, "the pair cannot be recovered");
                }
                Err(error)
            }
            Ok(turn) => {
                self.transient = None;
                Ok(turn)
            }
        }
    }

    /// Of a log root that is away, or has another in its place, every log looks missing: that is this node's
    /// trouble, and says nothing of the pair's data.
    fn blamed_on_the_root(&self, error: RecoveryError) -> RecoveryError {
        if error.is_of_this_survivor() {
            return error;
        }
        let checked = match &error {
            RecoveryError::Cluster(_) | RecoveryError::GivenUp => Ok(()),
            _ => self.environment.check_root(),
        };
        match checked {
            Ok(()) => error,
            Err(root) => {
                tracing::warn!(error = &error as &dyn Error, "the log root is not the one that was opened");
                RecoveryError::Log(root)
            }
        }
    }

    /// What was taken over.
    ///
    /// # Panics
    /// Before [`Turn::Done`].
    #[must_use]
    pub fn finish(self) -> Recovered {
        let Stage::Done(recovered) = self.stage else { panic!("a takeover is finished when it is done") };
        Recovered { leftovers: self.leftovers, ..*recovered }
    }

    /// The claim, once it is made and until the takeover has ended.
    #[must_use]
    pub fn ownership(&self) -> Option<Ownership> {
        match &self.stage {
            Stage::Restore(restore) => Some(restore.ownership()),
            Stage::Kept(restored)
            | Stage::Open(restored)
            | Stage::Trust(restored)
            | Stage::Publish(restored) => Some(restored.claim.ownership),
            Stage::Report(failure) => Some(failure.ownership),
            Stage::Claim(_) | Stage::Done(_) | Stage::Failed => None,
        }
    }

    /// Whether every cut is recorded.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        match &self.stage {
            Stage::Restore(restore) => restore.predecessor().is_some(),
            Stage::Claim(_) | Stage::Report(_) | Stage::Failed => false,
            _ => true,
        }
    }

    /// Whether everything up to the cut is restored and verified.
    #[must_use]
    pub fn is_restored(&self) -> bool {
        !matches!(self.stage, Stage::Restore(_)) && self.is_cut()
    }

    /// Nobody steps it any more: why it is given up.
    fn given_up(self) -> RecoveryError {
        self.transient.unwrap_or(RecoveryError::GivenUp)
    }

    /// A step that fails leaves its stage in place: it can be made again if the failure may pass.
    fn advance(&mut self, device: &mut dyn LogDevice) -> Result<Turn, RecoveryError> {
        match &mut self.stage {
            Stage::Claim(claim) => {
                let restore = Restore::claim(&self.environment, claim, &self.progress)?;
                self.stage = Stage::Restore(Box::new(restore));
                Ok(Turn::More)
            }
            Stage::Restore(_) => self.restore(device),
            Stage::Kept(_) => self.reopen(device),
            Stage::Open(_) => self.open_log(device),
            Stage::Trust(restored) => {
                let remaining = self.environment.table.trust_remaining_ns(&restored.claim)?;
                if let Some(remaining_ns) = remaining {
                    return Ok(Turn::Wait(remaining_ns.clamp(1, TRUST_NS)));
                }
                self.stage = match std::mem::replace(&mut self.stage, Stage::Failed) {
                    Stage::Trust(restored) => Stage::Publish(restored),
                    other => other,
                };
                Ok(Turn::More)
            }
            Stage::Publish(_) => self.publish(),
            Stage::Done(_) => Ok(Turn::Done),
            Stage::Report(failure) => {
                failure.report(&self.environment)?;
                Err(match std::mem::replace(&mut self.stage, Stage::Failed) {
                    Stage::Report(failure) => failure.error,
                    _ => RecoveryError::GivenUp,
                })
            }
            Stage::Failed => Err(RecoveryError::GivenUp),
        }
    }

    fn restore(&mut self, device: &mut dyn LogDevice) -> Result<Turn, RecoveryError> {
        let Stage::Restore(restore) = &mut self.stage else { return Err(RecoveryError::GivenUp) };
        let log = LogId { pair: restore.ownership().pair, epoch: restore.ownership().epoch };
        let step = restore.step()?;
        // The disk makes the first segments ready while the restore is verified.
        if let (None, Some(predecessor)) = (&self.opening, restore.predecessor()) {
            self.leftovers = Some(Leftovers::new(log, restore.log_ends()));
            self.opening = begin_log(log, predecessor, &self.publish, device)?;
        }
        if step == Step::Done
            && let Stage::Restore(restore) = std::mem::replace(&mut self.stage, Stage::Failed)
        {
            self.stage = Stage::Open(Box::new(restore.finish()));
            self.progress.set_stage(RecoveryStage::Opening);
        }
        Ok(if step == Step::Later { Turn::Wait(LATER_NS) } else { Turn::More })
    }

    /// Of a pair whose memory was kept: forgets the sessions that have ended, and begins the new logs.
    fn reopen(&mut self, device: &mut dyn LogDevice) -> Result<Turn, RecoveryError> {
        let Stage::Kept(restored) = &mut self.stage else { return Err(RecoveryError::GivenUp) };
        let open = OpenSessions::list(&self.environment.sessions)?;
        open.forget_ended(&mut restored.recovered.completions);
        restored.recovered.sessions = open;
        let Ownership { pair, epoch, .. } = restored.claim.ownership;
        let (log, predecessor) = (LogId { pair, epoch }, restored.predecessor);
        self.leftovers = Some(Leftovers::new(log, &[]));
        self.opening = begin_log(log, predecessor, &self.publish, device)?;
        if let Stage::Kept(restored) = std::mem::replace(&mut self.stage, Stage::Failed) {
            self.stage = Stage::Open(restored);
            self.progress.set_stage(RecoveryStage::Opening);
        }
        Ok(Turn::More)
    }

    /// Waits until both logs' opening frames are durable.
    fn open_log(&mut self, device: &mut dyn LogDevice) -> Result<Turn, RecoveryError> {
        if let Some(log) = self.opening.as_mut().filter(|log| !log.is_open()) {
            device.poll(&mut self.events);
            let (idle, mut lacked_room) = (self.events.is_empty(), false);
            if idle {
                log.tick(Duration::from_nanos(self.waited_ns), device)?;
                self.waited_ns += DISK_NS;
            }
            for event in self.events.drain(..) {
                // A person may have to make room: the pair is served once both logs have their first segment.
                if let LogEvent::Prepared { result, .. } = &event {
                    let is_full = result.is_err_and(Errno::is_full);
                    lacked_room |= is_full;
                    let stage = if is_full { RecoveryStage::NoRoom } else { RecoveryStage::Opening };
                    self.progress.set_stage(stage);
                }
                log.on_event(event, device)?;
            }
            if lacked_room
                && let Some(leftovers) = &self.leftovers
                && self.retries_left > 0
            {
                self.retries_left -= 1;
                leftovers.remove(&self.environment);
                log.retry(device);
            }
            device.submit()?;
            return Ok(if idle { Turn::Wait(DISK_NS) } else { Turn::More });
        }
        self.progress.set_stage(RecoveryStage::Waiting);
        if let Stage::Open(mut restored) = std::mem::replace(&mut self.stage, Stage::Failed) {
            restored.recovered.log = self.opening.take();
            self.stage = Stage::Trust(restored);
        }
        Ok(Turn::More)
    }

    fn publish(&mut self) -> Result<Turn, RecoveryError> {
        let Stage::Publish(restored) = &self.stage else { return Err(RecoveryError::GivenUp) };
        let ownership = restored.claim.ownership;
        let PublishRequest { durability, place, .. } = &self.publish;
        let published = match self.was_handed && planted(Mutant::ToldUnpublished) {
            true => Ok(restored.claim.row.clone()),
            false => self.environment.table.publish(ownership, *durability, place),
        };
        self.stage = match (published, std::mem::replace(&mut self.stage, Stage::Failed)) {
            (Ok(_), Stage::Publish(restored)) => Stage::Done(Box::new(restored.recovered)),
            (Err(ClusterError::TrustRemains { .. }), Stage::Publish(restored)) => Stage::Trust(restored),
            (Err(error), stage) => {
                self.stage = stage;
                return Err(error.into());
            }
            (Ok(_), stage) => stage,
        };
        if let Stage::Done(recovered) = &self.stage {
            self.progress.set_stage(RecoveryStage::Serving);
            tracing::info!(
                pair = ownership.pair.0,
                epoch = ownership.epoch.0,
                cut = recovered.csn_cut.0,
                entries = recovered.entries,
                image_bytes = recovered.image_bytes,
                log_bytes = recovered.log_bytes,
                "pair taken over"
            );
        }
        Ok(Turn::More)
    }
}

/// Waits for so many nanoseconds, or longer; `false` gives the takeover up.
pub type Pause<'a> = dyn FnMut(u64) -> bool + 'a;

/// Takes a pair over, from the claim to its publication.
///
/// # Errors
/// See [`RecoveryError`]. Nothing is served then; the claim stands until somebody claims the pair again.
pub fn take_over(
    environment: &Environment,
    claim: &ClaimRequest,
    publish: &PublishRequest,
    device: &mut dyn LogDevice,
    progress: &Arc<Progress>,
    pause: &mut Pause<'_>,
) -> Result<Recovered, RecoveryError> {
    run(Takeover::new(environment, *claim, publish.clone(), progress), environment, device, pause)
}

/// [`take_over`] after the claim.
///
/// # Errors
/// As [`take_over`].
pub fn complete(
    environment: &Environment,
    restore: Restore,
    publish: &PublishRequest,
    device: &mut dyn LogDevice,
    progress: &Arc<Progress>,
    pause: &mut Pause<'_>,
) -> Result<Recovered, RecoveryError> {
    run(Takeover::claimed(environment, restore, publish.clone(), progress), environment, device, pause)
}

fn run(
    mut takeover: Takeover,
    environment: &Environment,
    device: &mut dyn LogDevice,
    pause: &mut Pause<'_>,
) -> Result<Recovered, RecoveryError> {
    loop {
        match takeover.step(device)? {
            Turn::More => {}
            Turn::Wait(for_ns) if pause(for_ns) => {}
            Turn::Wait(_) => return Err(takeover.given_up()),
            Turn::Done => {
                let mut recovered = takeover.finish();
                recovered.remove_leftovers(environment);
                return Ok(recovered);
            }
        }
    }
}

fn begin_log(
    log: LogId,
    predecessor: Predecessor,
    publish: &PublishRequest,
    device: &mut dyn LogDevice,
) -> Result<Option<PairLog>, RecoveryError> {
    if publish.durability == Durability::None {
        return Ok(None);
    }
    let start = LogStart { log, predecessor, salt: publish.salt };
    let log = PairLog::create(start, publish.log, device);
    device.submit()?;
    Ok(Some(log))
}

impl Failure {
    /// Says in the region table what keeps the pair from being served: others look then, until two have found
    /// damage. Who was superseded meanwhile finds files gone that nobody needs any more: that is the reason
    /// then, and the pair is another's. So a table that does not answer is asked again, and the failure is
    /// the pair's only once it has answered:
    ///
    /// 1. A claims the pair with checkpoint 1 in its row, and stands still past its lease;
    /// 2. B takes the pair over, records checkpoint 2 and removes the file of checkpoint 1;
    /// 3. A goes on, does not find the file, and does not reach the coordinator just now.
    fn report(&self, environment: &Environment) -> Result<(), RecoveryError> {
        let Failure { ownership, missing, error } = self;
        let table = &environment.table;
        // Of what keeps this survivor alone from the pair nothing is to be believed.
        let marked = match error.is_of_this_survivor() {
            true => table.decline(*ownership, missing).map(|()| false),
            false => table.report_damage(*ownership, missing),
        };
        let (pair, error) = (ownership.pair.0, error as &dyn Error);
        match marked {
            Err(failed) if failed.is_transient() && !planted(Mutant::ReportUnanswered) => {
                return Err(failed.into());
            }
            Err(superseded @ ClusterError::Superseded { .. }) => return Err(superseded.into()),
            Err(failed) => {
                let failed = &failed as &dyn Error;
                tracing::warn!(
                    pair,
                    error = failed,
                    "the region table does not say that the pair is unavailable"
                );
            }
            Ok(true) => {
                tracing::error!(pair, error, "the pair cannot be recovered: others found damage, too")
            }
            Ok(false) => tracing::error!(pair, error, "the pair cannot be recovered here: others may try"),
        }
        Ok(())
    }
}
