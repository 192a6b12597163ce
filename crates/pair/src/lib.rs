//! One pair in its owner's hands: the write path, reads, splits' and compactions' steps, images, checks;
//! everything but the network. No connection, session table, membership, clock, thread or file in here.
//!
//! ```text
//! recovery ── Recovered ──> Pair ─┬─ PairMemory   both regions, the one place where memory changes
//!                                 ├─ CommitLog    records, room, batches, watermarks
//!                                 ├─ Meganodes    free tree nodes and counts by slot
//!                                 ├─ extents      where entries go; the grace queue on their way back
//!                                 ├─ completions  results of writes, exactly once
//!                                 └─ splits       the table of unfinished splits
//! ```
//!
//! `write` is the write path, `read` and `scan` are the reads, `room` finds memory before an operation
//! begins, `split`, `adoption`, `compaction` and `packing` are steps of their protocols, `image_run` and
//! `check` read a pair beside its owner, `check_node` is a check by the owner itself, `kept` is a pair that
//! comes back to its owner.

mod adoption;
mod check;
mod check_node;
mod checkpoint_failure;
mod compaction;
mod error;
mod figures;
mod grace;
mod image_run;
mod kept;
mod log;
mod meganodes;
mod memory;
mod merge;
mod options;
mod packing;
mod packing_state;
mod pair;
mod read;
mod room;
mod scan;
mod scan_buffers;
mod split;
mod write;

pub use adoption::{Adoption, AdoptionRange, AdoptionStep, SourceView};
pub use check::{CheckOutcome, CheckTarget, check, check_targets};
pub use check_node::{NodeLook, TreeViolation};
pub use checkpoint_failure::CheckpointFailure;
pub use compaction::{CompactionStep, CompactionWalk};
pub use error::{ExtentFault, NoRoom, PairError, WriteError};
pub use figures::{CompactionCounts, MeganodeFigures, PackingCounts, PairFigures};
pub use image_run::{ImageEnd, ImageJob, ImageRun, ImageSubject, ImageTurn};
pub use log::SyncedBatch;
pub use meganodes::{Fences, SlotEnds};
pub use memory::MemoryObserver;
pub use options::PairOptions;
pub use packing::{PackingStep, PackingWalk};
pub use pair::Pair;
pub use read::{BATCH, EntryHead, Located, shape_of, value_len};
pub use scan::{LeafItem, ScanEnd};
pub use split::{Fencing, TruncatedHalf};
