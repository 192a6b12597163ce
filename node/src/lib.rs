//! A storage node: serves its pairs; one worker owns a pair.
//!
//! `worker` is the core, a state machine without clock, thread, socket or file; `store` is the pair in its
//! hands;
//! `shell` is the thread around it; `start` brings a node up and `control` carries out what the worker asks
//! for and follows the cluster, as `membership`, a core too, decides.

mod bring_up;
mod check;
mod control;
mod counters;
mod directory;
mod follow;
mod grace;
mod membership;
mod outbox;
mod populate;
mod ready;
mod recoverer;
mod settings;
mod shell;
mod snapshot;
mod split;
mod start;
mod store;
mod table_view;
mod worker;

pub use check::{CheckOutcome, CheckTarget, check};
pub use membership::{
    Membership, MembershipCommand, MembershipOptions, Orphan, RefusedKind, memory_bytes, share_out,
};
pub use outbox::ReplyList;
pub use settings::{SETTINGS, WorkerOptions};
pub use shell::Ended;
pub use snapshot::{
    ClusterSnapshot, FailureKind, NodeSnapshot, NodeState, OperationCounts, PairRecovery, PairSnapshot,
    ReadOnlyReason, RecoveryProgress,
};
pub use split::{NotesView, SplitCounts};
pub use start::{NodeError, NodeHandle, NodeOptions, SnapshotWatch, start};
pub use store::{SlotEnds, Store};
pub use table_view::TableView;
pub use worker::{CheckpointCommand, Command, ControlEvent, Worker, WorkerIdentity, pair_regions};
