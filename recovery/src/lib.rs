//! Recovery: what log records mean, and how a pair is taken over by its next owner.
//!
//! A restart is a takeover of one's own pairs: one code path. A takeover claims the pair (its epoch rises), finds the
//! cut of its logs, records it, replays checkpoint and logs up to it, verifies, opens new logs and publishes.

mod completion;
pub mod image;
mod record;
mod recovered;

pub use completion::{Admission, CompletionTable};
pub use record::{
    COMPLETION_BYTES_MAX, Completion, EXTENT_RECORD_HEADER_BYTES, ExtentRecord, NodeRecord, Outcome,
    RecordError, TREE_RECORD_HEADER_BYTES_MAX,
};
pub use recovered::Recovered;
