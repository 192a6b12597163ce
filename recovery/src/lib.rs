//! Recovery: what log records mean, and how a pair is taken over by its next owner.
//!
//! A restart is a takeover of one's own pairs: one code path. A takeover claims the pair (its epoch rises),
//! finds the cut of its logs, records it, replays checkpoint and logs up to it, verifies, opens new logs and
//! publishes.

mod completion;
mod content;
mod copy;
mod cut;
mod environment;
mod error;
mod fields;
mod first;
mod folders;
pub mod image;
mod lane;
mod leftovers;
mod load;
pub mod mutant;
mod progress;
mod record;
mod recovered;
mod replay;
mod restore;
mod split;
mod takeover;
mod touched;
mod verify;

pub use completion::{Admission, CompletionTable, RESULT_WINDOW, RESULT_WINDOW_SHORT};
pub use copy::{CopyTurn, PairCopy};
pub use environment::{Environment, RecoveryOptions, RegionSource};
pub use error::{ContentFault, CopyFault, RecoveryError};
pub use fields::RecordError;
pub use folders::{find_logs, remove_unneeded, replay_bytes};
pub use leftovers::Leftovers;
pub use progress::{Progress, ProgressView, RecoveryStage};
pub use record::{
    COMPLETION_BYTES_MAX, EXTENT_RECORD_HEADER_BYTES, ExtentRecord, NodeRecord, TREE_RECORD_HEADER_BYTES_MAX,
    WriteCompletion, WriteOutcome,
};
pub use recovered::{OpenSessions, Recovered, RecoveredMeganode, Restored};
pub use restore::{ClaimRequest, Restore, Step};
pub use split::{
    BOUNDARY_NODES_MAX, BoundaryNodes, SlotUse, SourceSplit, SourceState, SourceStep, SplitAnswer, SplitName,
    SplitRecord, SplitTable, SplitTableError, TargetProgress, TargetSplit, TargetState, TargetStep,
    Unsettled, step_of_source, step_of_target, unsettled,
};
pub use takeover::{Pause, PublishRequest, Takeover, Turn, complete, take_over};
