//! What a worker asks of its shell, and what comes back.

use std::collections::BTreeSet;
use std::sync::Arc;

use cell_cluster::NoticeRow;
use cell_fabric::ConnectionId;
use cell_pair::{CheckOutcome, ImageEnd};
use cell_protocol::RequestHeader;
use cell_terms::{Csn, PairId, SessionId};

use super::checkpointing::CheckpointCommand;
use super::{Worker, WorkerPhase};
use crate::snapshot::{ClusterSnapshot, FailureKind};
use crate::split::NoticesView;
use crate::table_view::TableView;

/// Work for the shell's control thread. Each, but for `Failed`, is answered by a [`ControlEvent`].
#[derive(Debug)]
pub enum Command {
    /// Open a session in the coordinator.
    OpenSession {
        /// Who asked.
        connection: ConnectionId,
        /// What is to be answered.
        header: RequestHeader,
    },
    /// Record a session's end in the coordinator.
    EndSession {
        /// The session.
        session: SessionId,
        /// Who asked, if a client did.
        answer: Option<(ConnectionId, RequestHeader)>,
    },
    /// Is a session open? If it is, this node speaks for it from now on.
    AskSession {
        /// The session.
        session: SessionId,
    },
    /// Which sessions are open now?
    ListSessions {
        /// Of these it is to be known: they were open once.
        before: Vec<SessionId>,
    },
    /// Check the trees and every extent of all pairs.
    Check {
        /// Who asked.
        connection: ConnectionId,
        /// What is to be answered.
        header: RequestHeader,
    },
    /// A step of a pair's checkpoint.
    Checkpoint(PairId, CheckpointCommand),
    /// Create one more pair for this node and hand it over ([`Worker::add_pair`]), if there is memory.
    AddPair,
    /// Write a notice of a split, or with none remove it; answered by [`ControlEvent::NoticeWritten`].
    Note {
        /// Its key.
        key: String,
        /// What it says.
        notice: Option<NoticeRow>,
    },
    /// The worker has given its pair up: nothing may be sent any more, the process exits.
    Failed(FailureKind),
}

/// What became of a [`Command`].
#[derive(Debug)]
pub enum ControlEvent {
    /// Of [`Command::OpenSession`]; `None` when the coordinator did not answer in time.
    SessionOpened {
        /// Who asked.
        connection: ConnectionId,
        /// What is to be answered.
        header: RequestHeader,
        /// The session.
        session: Option<SessionId>,
    },
    /// Of [`Command::EndSession`].
    SessionEnded {
        /// The session.
        session: SessionId,
        /// Who asked.
        answer: Option<(ConnectionId, RequestHeader)>,
        /// Whether the coordinator has recorded it.
        recorded: bool,
    },
    /// Of [`Command::AskSession`].
    SessionAsked {
        /// The session.
        session: SessionId,
        /// Whether it is open; `None` when the coordinator did not answer in time.
        open: Option<bool>,
    },
    /// Sessions may have ended without a [`ControlEvent::SessionEnded`].
    SessionsMissed,
    /// Of [`Command::ListSessions`].
    SessionsListed {
        /// As in the command.
        before: Vec<SessionId>,
        /// Those that are open, read after the command; `None` when the coordinator did not answer in time.
        open: Option<BTreeSet<SessionId>>,
    },
    /// Of [`Command::Check`]: the trees have been walked, writes may go on.
    StructureChecked,
    /// Of [`Command::Check`], at its end.
    Checked {
        /// Who asked.
        connection: ConnectionId,
        /// What is to be answered.
        header: RequestHeader,
        /// What was found.
        outcome: CheckOutcome,
    },
    /// The image is written and synced; `csn_max` is the highest CSN in it. `None`: it failed and was
    /// removed.
    ImageWritten {
        /// The pair.
        pair: PairId,
        /// Highest CSN in the image.
        csn_max: Option<Csn>,
    },
    /// The checkpoint is recorded in the region table, or could not be.
    CheckpointRecorded {
        /// The pair.
        pair: PairId,
        /// Whether it is.
        recorded: bool,
    },
    /// The region table, as clients are told it from now on.
    Table(Arc<TableView>),
    /// The cluster, as it is shown to people from now on.
    Cluster(Arc<ClusterSnapshot>),
    /// The notes of splits, as all nodes have written them.
    Notices(Arc<NoticesView>),
    /// Of [`Command::Note`], unless it failed.
    NoticeWritten {
        /// Its key.
        key: String,
        /// The coordinator's revision from which on it is seen.
        revision: u64,
    },
    /// Of [`Command::AddPair`]: it was added.
    PairAdded,
    /// Of [`Command::AddPair`]: there is no memory for one, or it could not be created.
    PairRefused,
    /// So many bytes can still be written to the disk of the logs.
    DiskFree(u64),
    /// The operator wants the node to stop, with a last checkpoint or without.
    Stop {
        /// Whether to take one.
        checkpoint: bool,
    },
}

impl From<ImageEnd> for ControlEvent {
    fn from(end: ImageEnd) -> ControlEvent {
        ControlEvent::ImageWritten { pair: end.pair, csn_max: end.csn_max }
    }
}

impl Worker {
    /// Takes the answer to a command, or a wish of the operator's.
    pub fn control(&mut self, event: ControlEvent) {
        match event {
            ControlEvent::SessionOpened { connection, header, session } => {
                self.session_opened(connection, header, session);
            }
            ControlEvent::SessionEnded { session, answer, recorded } => {
                self.session_ended(session, answer, recorded);
            }
            ControlEvent::SessionAsked { session, open } => self.session_asked(session, open),
            ControlEvent::SessionsMissed => self.sessions_missed(),
            ControlEvent::SessionsListed { before, open } => self.sessions_listed(before, open.as_ref()),
            ControlEvent::Checked { connection, header, outcome } => {
                self.checked(connection, header, &outcome)
            }
            ControlEvent::StructureChecked => self.structure_checked(),
            ControlEvent::Table(table) => self.on_table(table),
            ControlEvent::Cluster(cluster) => self.cluster = cluster,
            ControlEvent::Notices(notices) => self.splits.on_notices(notices),
            ControlEvent::NoticeWritten { key, revision } => self.splits.notice_written(&key, revision),
            ControlEvent::PairAdded => self.splits.pair_added(true, self.now_ns),
            ControlEvent::PairRefused => self.splits.pair_added(false, self.now_ns),
            ControlEvent::ImageWritten { pair, csn_max } => self.image_written(pair, csn_max),
            ControlEvent::CheckpointRecorded { pair, recorded } => self.checkpoint_recorded(pair, recorded),
            ControlEvent::DiskFree(bytes) => self.disk_free = Some(bytes),
            ControlEvent::Stop { checkpoint } => match self.phase {
                WorkerPhase::Serving => {
                    self.phase = WorkerPhase::Stopping;
                    self.pairs.iter_mut().for_each(|pair| pair.checkpointing.stop(checkpoint));
                }
                WorkerPhase::Recovering => self.phase = WorkerPhase::Stopping,
                WorkerPhase::Stopping | WorkerPhase::Failed(_) => {}
            },
        }
        self.drain_backlogs();
        if self.phase != WorkerPhase::Serving {
            self.drain_parked(); // refused now
        }
    }
}
