//! The control thread: carries out what the worker asks for and must not wait for itself, and follows the
//! cluster. Calls to the coordinator are made here; takeovers, new pairs, copies and checks of the pairs have
//! threads of their own.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cell_cluster::{CheckpointRow, Table, Tenure, boottime_ns};
use cell_fabric::Waker;
use cell_recovery::image::{ImageBase, ImageSource, WrittenImage, write_image};
use cell_recovery::{Environment, Progress, remove_unneeded};
use cell_terms::{Csn, PairId};
use cell_wal::Storage;

use crate::agent::ClusterAgent;
use crate::bring_up::{BringUp, Mine};
use crate::check::{check, check_targets};
use crate::membership::MembershipOptions;
use crate::recoverer::{Recoverer, TakeoverReport};
use crate::shell::{Inbound, ServedPair};
use crate::snapshot::FailureKind;
use crate::start::NodeError;
use crate::store::{SlotEnds, Store};
use crate::worker::{CheckpointCommand, Command, ControlEvent};

/// The worker is told of a change of the disk's room that is no smaller than this.
const DISK_STEP_BYTES: u64 = 1 << 20;

/// The way to the worker's thread; cloned into helper threads.
#[derive(Clone)]
pub(crate) struct ToWorker {
    pub(crate) inbound: Sender<Inbound>,
    pub(crate) waker: Waker,
}

impl ToWorker {
    pub(crate) fn send(&self, message: Inbound) {
        if self.inbound.send(message).is_ok() {
            self.waker.wake();
        }
    }

    pub(crate) fn event(&self, event: ControlEvent) {
        self.send(Inbound::Control(event));
    }

    /// Makes the worker give up, and waits until its thread has ended; whether it has. Its pairs may be given
    /// up only then: (1) the control thread gives a pair up; (2) another node takes it over; (3) the worker,
    /// whose lease still holds, acknowledges a write of it.
    #[allow(clippy::disallowed_methods, reason = "a shell: how long a thread is waited for is real time")]
    pub(crate) fn end_worker(&self, work: &Receiver<Work>, patience: Duration) -> bool {
        self.send(Inbound::GiveUp(FailureKind::RecoveryRefused));
        let until = Instant::now() + patience;
        loop {
            // What else is asked for is of no use any more.
            match work.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Work::WorkerEnded) | Err(RecvTimeoutError::Disconnected) => return true,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }
}

/// What reaches the control thread.
pub(crate) enum Work {
    /// Of the worker.
    Command(Command),
    /// Of the thread that takes pairs over.
    Takeover(TakeoverReport),
    /// One more pair, or why there is none.
    Grown(Result<Box<Mine>, NodeError>),
    /// The operator wants the node to stop: nothing more is taken over.
    Stopping,
    /// The worker's thread has ended.
    WorkerEnded,
}

/// What the thread works with.
pub(crate) struct Control {
    pub(crate) bring_up: Arc<BringUp>,
    environment: Environment,
    pub(crate) to_worker: ToWorker,
    table: Table,
    pub(crate) agent: ClusterAgent,
    pub(crate) recoverer: Recoverer,
    /// Takeovers under way.
    pub(crate) progress: BTreeMap<PairId, Arc<Progress>>,
    /// Pairs that are there before the worker serves.
    pub(crate) gathered: Vec<ServedPair>,
    /// Into this thread's own queue, for helpers.
    sender: Sender<Work>,
    storage: Arc<dyn Storage>,
    /// What the worker was told of the disk's room.
    disk_free: Option<u64>,
    image_level: i32,
    image_niceness: i32,
    pub(crate) pairs: Vec<PairControl>,
}

/// A pair that is served.
pub(crate) struct PairControl {
    pub(crate) tenure: Tenure,
    source: Arc<ImageSource>,
    /// How far the meganodes' nodes go, told by the worker before it makes new ones reachable.
    ends: Arc<SlotEnds>,
    /// The image that was written and is not recorded yet.
    written: Arc<Mutex<Option<WrittenImage>>>,
}

impl PairControl {
    pub(crate) fn new(tenure: Tenure, store: &Store) -> PairControl {
        PairControl {
            tenure,
            source: Arc::new(store.source()),
            ends: store.slot_ends(),
            written: Arc::default(),
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
            grace_ns: settings.integer("unclaimed_grace_ms") * 1_000_000,
        };
        let (storage, every_ns) =
            (environment.storage.clone(), settings.integer("membership_poll_ms") * 1_000_000);
        Control {
            to_worker: bring_up.to_worker.clone(),
            table: environment.table.clone(),
            agent: ClusterAgent::new(&bring_up.coordinator, storage, options, every_ns),
            recoverer,
            progress: BTreeMap::new(),
            gathered: Vec::new(),
            sender,
            storage: environment.storage.clone(),
            disk_free: None,
            image_level: i32::try_from(settings.integer("image_zstd_level")).unwrap_or(1),
            image_niceness: i32::try_from(settings.integer("checkpoint_niceness")).unwrap_or(0),
            pairs: Vec::new(),
            bring_up,
            environment,
        }
    }

    /// Serves the worker and follows the cluster until the worker is gone.
    pub(crate) fn run(&mut self, work: &Receiver<Work>) -> Result<(), NodeError> {
        loop {
            let wait_ns = self.agent.due_ns().saturating_sub(boottime_ns());
            match work.recv_timeout(Duration::from_nanos(wait_ns)) {
                Ok(Work::WorkerEnded) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(Work::Command(command)) => self.carry_out(command),
                Ok(Work::Takeover(report)) => self.on_takeover(report)?,
                Ok(Work::Grown(grown)) => self.grown(grown),
                Ok(Work::Stopping) => self.agent.stop(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if boottime_ns() >= self.agent.due_ns() {
                self.look()?;
                self.look_at_disk();
            }
        }
    }

    /// Tells the worker what room the disk has, when that has changed.
    fn look_at_disk(&mut self) {
        // What the disk cannot say, its next write will.
        let Ok(Some(free)) = self.storage.free_bytes() else { return };
        if self.disk_free.is_none_or(|told| told.abs_diff(free) >= DISK_STEP_BYTES) {
            self.disk_free = Some(free);
            self.to_worker.event(ControlEvent::DiskFree(free));
        }
    }

    /// The worker is gone: breaks takeovers off and says which pairs are to be given up.
    pub(crate) fn end(self) -> Vec<Tenure> {
        self.pairs.iter().map(|pair| pair.tenure).collect()
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::OpenSession { connection, header } => {
                self.to_worker.event(self.agent.open_session(connection, header));
            }
            Command::EndSession { session, answer } => {
                self.to_worker.event(self.agent.end_session(session, answer));
            }
            Command::AskSession { session } => self.to_worker.event(self.agent.ask_session(session)),
            Command::ListSessions { before } => self.to_worker.event(self.agent.list_sessions(before)),
            Command::Check { connection, header } => self.check(connection, header),
            Command::Checkpoint(pair, command) => self.checkpoint(pair, command),
            Command::AddPair => self.grow(),
            Command::Note { key, notice } => {
                let written = self.agent.write_notice(key, notice.as_ref());
                written.into_iter().for_each(|event| self.to_worker.event(event));
            }
            Command::Failed(kind) => tracing::error!(?kind, "the worker has given its pairs up"),
        }
    }

    /// Creates one more pair on a thread of its own: it waits for the disk.
    fn grow(&self) {
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

    fn grown(&mut self, grown: Result<Box<Mine>, NodeError>) {
        match grown.and_then(|mine| self.bring_up.serve(*mine)) {
            Ok((control, served)) => {
                tracing::info!(pair = control.tenure.pair.0, "a pair is added");
                self.pairs.push(control);
                self.to_worker.send(Inbound::AddPair(Box::new(served)));
                self.to_worker.event(ControlEvent::PairAdded);
            }
            Err(error) => self.not_grown(&error),
        }
    }

    fn not_grown(&self, error: &NodeError) {
        let error = error as &dyn std::error::Error;
        tracing::warn!(error, "no pair can be added: the node's room is what it is");
        self.to_worker.event(ControlEvent::PairRefused);
    }

    fn checkpoint(&self, pair: PairId, command: CheckpointCommand) {
        let Some(of) = self.pairs.iter().find(|of| of.tenure.pair == pair) else { return };
        match command {
            CheckpointCommand::WriteImage { base } => self.write_image(of, *base),
            CheckpointCommand::Record { base, csn_max } => {
                let recorded = self.record(of, base, csn_max);
                self.to_worker.event(ControlEvent::CheckpointRecorded { pair, recorded });
            }
        }
    }

    #[allow(clippy::disallowed_methods, reason = "a shell: how long a check took is told to a person")]
    fn check(&self, connection: cell_fabric::ConnectionId, header: cell_protocol::RequestHeader) {
        let to_worker = self.to_worker.clone();
        let targets: Vec<_> =
            self.pairs.iter().flat_map(|pair| check_targets(&pair.source, &pair.ends)).collect();
        let spawned = std::thread::Builder::new().name("cell-check".into()).spawn(move || {
            let begun = std::time::Instant::now();
            let mut outcome = check(&targets, || to_worker.event(ControlEvent::StructureChecked));
            outcome.duration_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            to_worker.event(ControlEvent::Checked { connection, header, outcome });
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for a check");
            let outcome = crate::check::CheckOutcome {
                violations: 1,
                first_violation: "the check could not be started: no thread".to_owned(),
                ..Default::default()
            };
            self.to_worker.event(ControlEvent::Checked { connection, header, outcome });
        }
    }

    fn write_image(&self, of: &PairControl, base: ImageBase) {
        let (source, storage, to_worker) = (of.source.clone(), self.storage.clone(), self.to_worker.clone());
        let (ends, written) = (of.ends.clone(), of.written.clone());
        let (level, niceness) = (self.image_level, self.image_niceness);
        let pair = of.tenure.pair;
        let spawned = std::thread::Builder::new().name("cell-checkpoint".into()).spawn(move || {
            // Of this thread alone, which ends with the checkpoint.
            if let Err(error) = rustix::process::nice(niceness) {
                tracing::debug!(%error, "a checkpoint is written as eagerly as everything else");
            }
            let result = write_image(&source, storage, level, base, &|slot| ends.end(slot));
            let image = result
                .inspect_err(|error| tracing::error!(%error, "a checkpoint failed; the log goes on growing"))
                .ok();
            let csn_max = image.as_ref().map(|image| image.csn_max);
            if let Ok(mut slot) = written.lock() {
                *slot = image;
            }
            to_worker.event(ControlEvent::ImageWritten { pair, csn_max });
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for a checkpoint");
            self.to_worker.event(ControlEvent::ImageWritten { pair, csn_max: None });
        }
    }

    fn record(&self, of: &PairControl, base: Csn, csn_max: Csn) -> bool {
        let Some(image) = of.written.lock().ok().and_then(|mut slot| slot.take()) else { return false };
        let row = CheckpointRow { epoch: of.tenure.epoch, csn: base, csn_max, file: image.path.clone() };
        let row = match self.table.record_checkpoint(of.tenure, &row) {
            Ok(row) => row,
            Err(error) => {
                tracing::error!(%error, "a checkpoint could not be recorded");
                return false;
            }
        };
        tracing::info!(
            pair = of.tenure.pair.0,
            base = base.0,
            csn_max = csn_max.0,
            bytes = image.summary.stored_bytes,
            "checkpoint recorded"
        );
        // The table names the new image: older images and epochs are needed by nobody.
        if let Err(error) = remove_unneeded(&*self.storage, &row) {
            tracing::warn!(%error, "files of earlier epochs are left over");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// A worker's thread that gives up when it is told to, after some last commands.
    #[test]
    fn end_worker_returns_when_the_thread_has_ended_and_not_before() {
        let (inbound, worker_hears) = channel();
        let (work, control_hears) = channel();
        let poller = cell_fabric::Poller::new().unwrap();
        let to_worker = ToWorker { inbound, waker: poller.waker() };
        let serves = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let still = serves.clone();
        let worker = std::thread::spawn(move || {
            assert!(matches!(worker_hears.recv(), Ok(Inbound::GiveUp(FailureKind::RecoveryRefused))));
            for _ in 0..100 {
                work.send(Work::Command(Command::AddPair)).unwrap();
                std::thread::yield_now();
            }
            still.store(false, std::sync::atomic::Ordering::SeqCst);
            work.send(Work::WorkerEnded).unwrap();
        });
        assert!(to_worker.end_worker(&control_hears, Duration::from_secs(3_600)));
        assert!(!serves.load(std::sync::atomic::Ordering::SeqCst), "a pair is given up while it is served");
        worker.join().unwrap();
    }

    #[test]
    fn end_worker_says_so_when_the_thread_goes_on() {
        let (inbound, worker_hears) = channel();
        let (work, control_hears) = channel();
        let poller = cell_fabric::Poller::new().unwrap();
        let to_worker = ToWorker { inbound, waker: poller.waker() };
        work.send(Work::Command(Command::AddPair)).unwrap();
        assert!(!to_worker.end_worker(&control_hears, Duration::ZERO));
        assert!(matches!(worker_hears.recv(), Ok(Inbound::GiveUp(_))));
    }
}
