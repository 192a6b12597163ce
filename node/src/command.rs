//! What a worker asks of the control thread, and what comes back.

use std::collections::BTreeSet;
use std::sync::Arc;

use cell_fabric::ConnectionId;
use cell_pair::{CheckOutcome, CheckpointFailure, ImageEnd, Pair};
use cell_protocol::{Refusal, RequestHeader};
use cell_recovery::image::ImageBase;
use cell_terms::{Csn, Epoch, NodeId, PairId, SessionId};

use crate::figures::WorkerFigures;
use crate::settings::WorkerOptions;
use crate::snapshot::{ClusterSnapshot, FailureKind};
use crate::split::{NoticeRow, NoticesView, SpreadView};
use crate::table_view::TableView;
use crate::tree_check::TreeCheckRun;

/// A step that the shell carries out.
#[derive(Debug)]
pub enum CheckpointCommand {
    /// Copy the pair into an image.
    WriteImage {
        /// What the pair was at the start.
        base: Box<ImageBase>,
    },
    /// Record the image in the region table.
    Record {
        /// What `WriteImage` was given.
        base: Csn,
        /// The highest CSN in the image.
        csn_max: Csn,
    },
}

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
    AddPair {
        /// The node that it is to be handed to as soon as the split is open for which it is made; none: it is
        /// to stay.
        meant_for: Option<NodeId>,
    },
    /// Write a notice of a split, or with none remove it; answered by [`ControlEvent::NoticeWritten`].
    Note {
        /// Its key.
        key: String,
        /// What it says.
        notice: Option<NoticeRow>,
        /// The pair in whose name it is written.
        pair: PairId,
        /// The epoch in which that is this node's.
        epoch: Epoch,
    },
    /// Of [`ControlEvent::Leave`]: the pair has left the worker, and others may have it. Its logs end at the
    /// cut, and all trust in its registrations has ended. Not answered.
    Left {
        /// The pair.
        pair: PairId,
        /// The epoch in which it was this worker's.
        epoch: Epoch,
        /// The last CSN that was appended; it is durable.
        cut: Csn,
        /// It was handed over: the table says so already.
        handed: bool,
        /// Its memory then, which may be served again should the pair come back before anybody has served it.
        frozen: Option<Box<Pair>>,
    },
    /// Of [`ControlEvent::Freeze`]: nothing of the pair is in flight, nobody trusts its registrations, and
    /// none of its operations begins. Answered by [`ControlEvent::Handed`] or [`ControlEvent::Thaw`].
    Frozen {
        /// The pair.
        pair: PairId,
        /// Of the question.
        ticket: u64,
        /// The epoch in which it is this worker's.
        epoch: Epoch,
        /// The last CSN that was appended; it is durable.
        cut: Csn,
        /// Since when none of its operations begins.
        since_ns: u64,
        /// When the worker says so.
        now_ns: u64,
    },
    /// Of [`ControlEvent::Leave`] or [`ControlEvent::Freeze`]: the pair does not leave. Not answered.
    Stays {
        /// The pair.
        pair: PairId,
        /// Why.
        why: StayReason,
    },
    /// What the worker has, for balance. Not answered.
    Figures(Box<WorkerFigures>),
    /// The worker has given its pair up: nothing may be sent any more, the process exits.
    Failed(FailureKind),
}

/// Why a pair does not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StayReason {
    /// The worker does not serve it.
    NotServed,
    /// It has no log (`durability = none`): its entries would be lost.
    NoLog,
    /// Splits in which it takes part did not come to their end in time.
    Splits,
    /// Its checkpoint, or a check of it, did not.
    Busy,
}

impl StayReason {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            StayReason::NotServed => "its node does not serve it just now, or it leaves already",
            StayReason::NoLog => "it has no log (`durability = none`)",
            StayReason::Splits => "its meganodes are being split: try again",
            StayReason::Busy => "its checkpoint, or a check of it, takes too long: try again",
        }
    }
}

/// What became of a [`Command`].
#[derive(Debug)]
pub enum ControlEvent {
    /// Of [`Command::OpenSession`].
    SessionOpened {
        /// Who asked.
        connection: ConnectionId,
        /// What is to be answered.
        header: RequestHeader,
        /// The session, or what the client is answered.
        session: Result<SessionId, Refusal>,
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
    /// The image is written and synced, or it failed and was removed.
    ImageWritten {
        /// The pair.
        pair: PairId,
        /// The highest CSN in the image.
        written: Result<Csn, CheckpointFailure>,
    },
    /// The checkpoint is recorded in the region table, or could not be.
    CheckpointRecorded {
        /// The pair.
        pair: PairId,
        /// Whether it is.
        recorded: bool,
    },
    /// The region table, as clients get it from now on.
    Table(Arc<TableView>),
    /// The cluster, as it is shown to people from now on.
    Cluster(Arc<ClusterSnapshot>),
    /// The notes of splits, as all nodes have written them.
    Notices(Arc<NoticesView>),
    /// Of [`Command::Note`]: that has ended.
    NoticeWritten {
        /// Its key.
        key: String,
        /// The coordinator's revision from which on it is seen; none: it failed.
        revision: Option<u64>,
    },
    /// Of [`Command::AddPair`]: it was added.
    PairAdded {
        /// The pair.
        pair: PairId,
        /// As in the command.
        meant_for: Option<NodeId>,
    },
    /// Of [`Command::AddPair`]: there is no memory for one, or it could not be created.
    PairRefused,
    /// A pair is to leave, so that another node may have it: [`Command::Left`] or [`Command::Stays`].
    Leave {
        /// The pair.
        pair: PairId,
    },
    /// A pair is to be frozen for a planned move: [`Command::Frozen`] or [`Command::Stays`].
    Freeze {
        /// The pair.
        pair: PairId,
        /// Distinguishes the question, and what belongs to it, from others.
        ticket: u64,
    },
    /// A pair that was frozen, or was to be, is served on.
    Thaw {
        /// The pair.
        pair: PairId,
        /// Of the question.
        ticket: u64,
    },
    /// A pair that was frozen is another node's: [`Command::Left`].
    Handed {
        /// The pair.
        pair: PairId,
        /// Of the question.
        ticket: u64,
    },
    /// A pair's log is to be kept for a copy of it, also where a checkpoint covers it, or not any more.
    KeepLog {
        /// The pair.
        pair: PairId,
        /// Whether it is.
        keep: bool,
    },
    /// So many bytes can still be written to the disk of the logs.
    DiskFree(u64),
    /// The control thread is at work: it says so after each thing that it has done, about once a second at
    /// most. While the coordinator hangs one thing takes as long as its calls (`coordinator_deadline_ms`).
    Alive,
    /// The coordinator has not answered a look at the cluster, or has refused it, and why, for people; none:
    /// it answers again.
    CoordinatorFails(Option<Arc<str>>),
    /// What the others have, by which halves of meganodes go to other nodes; none: all stay here.
    Spread(Option<Arc<SpreadView>>),
    /// Settings that apply live have changed; of these options only those count.
    OptionsChanged(Box<WorkerOptions>),
    /// Somebody wants the tree checked, beside everything else; the run shows what comes of it.
    CheckTree(Arc<TreeCheckRun>),
    /// The operator wants the node to stop, with a last checkpoint or without.
    Stop {
        /// Whether to take one.
        checkpoint: bool,
    },
}

impl From<ImageEnd> for ControlEvent {
    fn from(end: ImageEnd) -> ControlEvent {
        ControlEvent::ImageWritten { pair: end.pair, written: end.written }
    }
}
