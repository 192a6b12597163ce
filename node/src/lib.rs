//! A storage node: serves its pairs; one worker owns a pair.
//!
//! `worker` is the core, a state machine without clock, thread, socket or file; `store` is the pair in its
//! hands; `driver` is the worker's loop, and `shell` the thread around it. `start` brings a node up.
//! `control_driver` is the core that carries out what the worker asks for and follows the cluster, as `agent`
//! and in it `membership` decide; `takeovers` and `image_run` are one takeover and one copy at a time.
//! `moves` are the steps of planned moves, `balance` says which there are to be. `control` and `recoverer`
//! are the threads around these.

mod access;
mod agent;
mod backlog;
mod balance;
mod bring_up;
mod checkpoint;
mod client_snapshot;
mod command;
mod congestion;
mod control;
mod control_driver;
mod counters;
mod directory;
mod driver;
mod error;
mod failed_logins;
mod figures;
mod first_segments;
mod health;
mod home;
mod latency;
mod latency_histogram;
mod lease_end;
mod leave_step;
mod limits;
mod log_flush;
mod log_wait;
mod membership;
mod memory_plan;
mod memory_watch;
mod messages;
mod move_counts;
mod moves;
mod options;
mod others_wait;
mod outbox;
mod pairs;
mod populate;
mod process_warnings;
mod proven_root;
mod rate_limit;
mod ready;
mod recoverer;
mod reported_limit;
mod root_answers;
mod root_proof;
mod running_time;
mod second_look;
mod settings;
mod shell;
mod snapshot;
mod split;
mod start;
mod table_view;
mod takeover_counts;
mod takeovers;
mod tree_check;
mod tree_look;
mod tree_shape;
mod wall_clock;
mod warning;
mod worker;

pub use access::{AccessRules, Credential, Grants, TokenHolder, TokenRole, TokensError};
pub use agent::{ClusterAgent, Installation, Looked, TakeoverWanted};
pub use balance::{
    BalanceCounts, BalanceLook, BalanceOptions, BalanceSnapshot, CannotEmpty, HeldMemory, RoomElsewhere,
    held_memory, room_elsewhere,
};
pub use cell_cluster::RenewalFigures;
pub use cell_memory::BudgetFigures;
pub use cell_pair::CheckpointFailure;
pub use cell_placement::BalanceRules;
pub use cell_protocol::{ClientCounts, ClientEstimates, MeganodeUse, ReportPolicy, ReportTransport};
pub use cell_tree::{NodeIndex as TreeNodeIndex, PathStep, TreeNodeState};
pub use cell_wal::{FlushChoice, FlushWay, LogSegments};
pub use client_snapshot::{ClientSnapshot, ClientTotals};
pub use command::{CheckpointCommand, Command, ControlEvent, StayReason};
pub use congestion::REPLIES_BYTES_MIN;
pub use control_driver::{ControlDriver, ControlEffect, join_cluster};
pub use counters::{SYNC_BUCKETS, WorkerCounts, sync_bucket_end_us};
pub use driver::{Ended, Next, PairInput, WorkerClock, WorkerDriver, WorkerInput, WorkerTurn};
pub use error::NodeError;
pub use failed_logins::{FailedLogins, LoginPlace};
pub use figures::{FIGURES_EVERY_NS, PairUse, WorkerFigures};
pub use first_segments::first_segments_bytes;
pub use latency::{LatencySummary, OperationHistograms, OperationLatencies};
pub use latency_histogram::{LATENCY_BUCKETS_MAX, LatencyHistogram};
pub use limits::PAIRS_MAX;
pub use membership::{MembershipOptions, RefusedKind, memory_keepers};
pub use memory_plan::{set_aside_bytes, smallest_limit};
pub use move_counts::{MOVE_BUCKETS, MoveCounts, MoveDurations, MoveEndCounts, move_bucket_end_ms};
pub use moves::{CopyEnd, CopyFailure, CopyJob, CopyOrders, CopyRun, is_source_gone};
pub use options::NodeOptions;
pub use outbox::ReplyList;
pub use process_warnings::{ProcessWarnings, WarningSubject};
pub use rate_limit::RateLimit;
pub use settings::{ClientSettings, SETTINGS, WorkerOptions};
pub use snapshot::{
    ClusterSnapshot, CoordinatorWait, FailureKind, NO_ROOM, NodeSnapshot, NodeState, OperationCounts,
    PairRecovery, PairSnapshot, ReadOnlyReason, RecoveryProgress, SILENT_WORDS,
};
pub use split::{NoticeRow, NoticesView, SourceNotice, SplitCounts, SpreadView, TargetNotice};
pub use start::{NodeHandle, SnapshotWatch, StartingNode};
pub use table_view::TableView;
pub use takeover_counts::{TAKEOVER_BUCKETS, TakeoverCounts, takeover_bucket_end_ms};
pub use takeovers::{TakeoverJob, TakeoverQueue, TakeoverRun};
pub use tree_check::{TreeCheckOutcome, TreeCheckProgress, TreeCheckRun, TreeFault, TreePlace};
pub use tree_look::{LevelView, LookError, MeganodeView, TreeLook, TreeNodeView};
pub use tree_shape::{MeganodeShape, RouterShape, TreeShape};
pub use worker::{Worker, WorkerIdentity, pair_regions};
