//! The control thread: carries out what the worker asks for and must not wait for itself. Calls to the
//! coordinator are made here, copies and checks of the pairs on threads of their own.

use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};

use cell_cluster::{CheckpointRow, Sessions, Table, Tenure};
use cell_fabric::Waker;
use cell_recovery::image::{ImageBase, ImageSource, WrittenImage, write_image};
use cell_recovery::remove_unneeded;
use cell_terms::{Csn, Incarnation, PairId};
use cell_tree::Slot;
use cell_wal::Storage;

use crate::check::{CheckTarget, check};
use crate::shell::{Inbound, ServedPair};
use crate::start::NodeError;
use crate::store::{SlotEnds, Store};
use crate::worker::{CheckpointCommand, Command, ControlEvent};

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

    fn event(&self, event: ControlEvent) {
        self.send(Inbound::Control(event));
    }
}

/// What the thread works with, once the pairs are recovered.
pub(crate) struct Control<'b> {
    pub(crate) to_worker: ToWorker,
    pub(crate) table: Table,
    pub(crate) sessions: Sessions,
    pub(crate) incarnation: Incarnation,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) image_level: i32,
    pub(crate) pairs: Vec<PairControl>,
    /// Creates one more pair, ready to be served.
    pub(crate) grow: Box<dyn Fn() -> Result<(PairControl, ServedPair), NodeError> + 'b>,
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

impl Control<'_> {
    /// Serves commands until the worker is gone.
    pub(crate) fn run(&mut self, commands: &Receiver<Command>) {
        while let Ok(command) = commands.recv() {
            match command {
                Command::OpenSession { connection, header } => {
                    let session = self.sessions.open(self.incarnation);
                    let session = session.inspect_err(|error| tracing::warn!(%error, "no session")).ok();
                    self.to_worker.event(ControlEvent::SessionOpened { connection, header, session });
                }
                Command::EndSession { session, answer } => {
                    let ended = self.sessions.end(session);
                    let recorded =
                        ended.inspect_err(|error| tracing::warn!(%error, "a session goes on")).is_ok();
                    self.to_worker.event(ControlEvent::SessionEnded { session, answer, recorded });
                }
                Command::Check { connection, header } => self.check(connection, header),
                Command::Checkpoint(pair, command) => self.checkpoint(pair, command),
                Command::AddPair => self.add_pair(),
                Command::Failed(kind) => tracing::error!(?kind, "the worker has given its pairs up"),
            }
        }
    }

    fn add_pair(&mut self) {
        match (self.grow)() {
            Ok((control, served)) => {
                tracing::info!(pair = control.tenure.pair.0, "a pair is added");
                self.pairs.push(control);
                self.to_worker.send(Inbound::AddPair(Box::new(served)));
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "no pair can be added: the node's room is what it is");
                self.to_worker.event(ControlEvent::PairRefused);
            }
        }
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
        let targets: Vec<_> = self.pairs.iter().flat_map(PairControl::targets).collect();
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
        let (ends, written, level) = (of.ends.clone(), of.written.clone(), self.image_level);
        let pair = of.tenure.pair;
        let spawned = std::thread::Builder::new().name("cell-checkpoint".into()).spawn(move || {
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

impl PairControl {
    /// What a check looks at: every meganode.
    fn targets(&self) -> Vec<CheckTarget> {
        let target = |slot| CheckTarget {
            node: self.source.node.clone(),
            extent: self.source.extent.clone(),
            geometry: self.source.geometry,
            slot: Slot { region: self.source.node.spec().id, index: slot },
            nodes_end: self.ends.end(slot),
            router: self.ends.is_router(slot),
        };
        self.ends.used().map(target).collect()
    }
}
