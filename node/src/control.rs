//! The control thread: carries out what the worker asks for and must not wait for itself. Calls to the
//! coordinator are
//! made here, copies and checks of the pair on threads of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use cell_cluster::{CheckpointRow, Sessions, Table, Tenure};
use cell_fabric::Waker;
use cell_recovery::image::{ImageSource, WrittenImage, write_image};
use cell_recovery::remove_unneeded;
use cell_terms::{Csn, Incarnation};
use cell_tree::NodeIndex;
use cell_wal::Storage;

use crate::check::{CheckTarget, check};
use crate::shell::Inbound;
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

/// What the thread works with, once the pair is recovered.
pub(crate) struct Control {
    pub(crate) to_worker: ToWorker,
    pub(crate) table: Table,
    pub(crate) sessions: Sessions,
    pub(crate) tenure: Tenure,
    pub(crate) incarnation: Incarnation,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) image_level: i32,
    pub(crate) source: Arc<ImageSource>,
    /// How far the meganode's nodes go, told by the worker before it makes new ones reachable.
    pub(crate) nodes_end: Arc<AtomicU32>,
    /// The image that was written and is not recorded yet.
    pub(crate) written: Arc<std::sync::Mutex<Option<WrittenImage>>>,
}

impl Control {
    /// Serves commands until the worker is gone.
    pub(crate) fn run(&self, commands: &Receiver<Command>) {
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
                Command::Checkpoint(CheckpointCommand::WriteImage { base, completions }) => {
                    self.write_image(base, completions);
                }
                Command::Checkpoint(CheckpointCommand::Record { base, csn_max }) => {
                    let recorded = self.record(base, csn_max);
                    self.to_worker.event(ControlEvent::CheckpointRecorded { recorded });
                }
                Command::Failed(kind) => tracing::error!(?kind, "the worker has given its pair up"),
            }
        }
    }

    #[allow(clippy::disallowed_methods, reason = "a shell: how long a check took is told to a person")]
    fn check(&self, connection: cell_fabric::ConnectionId, header: cell_protocol::RequestHeader) {
        let (source, to_worker) = (self.source.clone(), self.to_worker.clone());
        let nodes_end = NodeIndex(self.nodes_end.load(Ordering::Acquire));
        let spawned = std::thread::Builder::new().name("cell-check".into()).spawn(move || {
            let begun = std::time::Instant::now();
            let target = CheckTarget {
                node: source.node.clone(),
                extent: source.extent.clone(),
                geometry: source.geometry,
                slot: source.slot,
                nodes_end,
            };
            let mut outcome = check(&target, || to_worker.event(ControlEvent::StructureChecked));
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

    fn write_image(&self, base: Csn, completions: Vec<u8>) {
        let (source, storage, to_worker) =
            (self.source.clone(), self.storage.clone(), self.to_worker.clone());
        let (nodes_end, written, level) = (self.nodes_end.clone(), self.written.clone(), self.image_level);
        let spawned = std::thread::Builder::new().name("cell-checkpoint".into()).spawn(move || {
            let end = || NodeIndex(nodes_end.load(Ordering::Acquire));
            let result = write_image(&source, storage, level, base, &completions, &end);
            let image = result
                .inspect_err(|error| tracing::error!(%error, "a checkpoint failed; the log goes on growing"))
                .ok();
            let csn_max = image.as_ref().map(|image| image.csn_max);
            if let Ok(mut slot) = written.lock() {
                *slot = image;
            }
            to_worker.event(ControlEvent::ImageWritten { csn_max });
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for a checkpoint");
            self.to_worker.event(ControlEvent::ImageWritten { csn_max: None });
        }
    }

    fn record(&self, base: Csn, csn_max: Csn) -> bool {
        let Some(image) = self.written.lock().ok().and_then(|mut slot| slot.take()) else { return false };
        let row = CheckpointRow { epoch: self.tenure.epoch, csn: base, csn_max, file: image.path.clone() };
        let row = match self.table.record_checkpoint(self.tenure, &row) {
            Ok(row) => row,
            Err(error) => {
                tracing::error!(%error, "a checkpoint could not be recorded");
                return false;
            }
        };
        tracing::info!(
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
