//! Per-region write-ahead logs on io_uring, checkpoint images, and the disk below them, real and simulated.
//!
//! Each region has its own log; a pair's two logs are written by one [`writer::PairLog`] and read by one
//! [`merge::PairReader`]. What a record means is not known here. See `docs/design/log.md`.
//!
//! Two logs an owner, and no other number: a frame says by one flag whether *the other* log has a part of its
//! batch. With a third log that flag could not distinguish a whole batch from a torn one; it takes another
//! format.
//!
//! The crate's edge are two traits, each with a real and a simulated implementation: [`Storage`] for files
//! and folders (it may wait) and [`LogDevice`] for what is appended (it never waits). What the real one must
//! be able to do is tried by [`LogRoot::open`].

pub mod batch;
pub mod buffer;
pub mod check;
pub mod corruption;
pub mod counter;
pub mod device;
pub mod error;
mod flush_choice;
mod flush_ground;
pub mod flush_rounds;
mod flush_trial;
mod flush_unfit;
mod flusher;
pub mod folder;
pub mod frame;
pub mod image;
pub mod inspect;
mod log_root;
mod log_root_need;
pub mod merge;
pub mod mutant;
mod preparer;
mod preparer_thread;
pub mod reader;
pub mod real;
pub mod record;
mod region_log;
pub mod ring;
mod root_id;
mod sealing;
pub mod segment;
mod segments;
pub mod setting;
pub mod sim;
mod slow;
pub mod storage;
mod stream;
pub mod writer;

pub use batch::Appended;
pub use counter::{COUNTERS, LogCounts};
pub use device::{LogDevice, LogEvent};
pub use error::{DiskOperation, Errno, LogRefusal, LogRootError, StorageError, WalError};
pub use flush_choice::{FlushChoice, FlushDecision, FlushWay};
pub use flush_ground::FlushGround;
pub use flush_trial::FlushTrial;
pub use flush_unfit::FlushUnfit;
pub use flusher::Flusher;
pub use frame::Predecessor;
pub use log_root::LogRoot;
pub use log_root_need::LogRootNeed;
pub use merge::{PairBatch, PairLogEnd, PairReader, ReadRequest};
pub use reader::ReadOptions;
pub use real::RealStorage;
pub use record::{Record, record_space};
pub use region_log::Space;
pub use segment::{LogId, LogName, LogPlace, SegmentName};
pub use segments::LogSegments;
pub use setting::{LogOptions, LogTimes, SETTINGS};
pub use slow::{DiskDelay, SlowDevice};
pub use storage::{Storage, StorageFile};
pub use writer::{LogStart, PairLog};
