//! Splits of meganodes: their records, what a pair knows of them, and how they are settled after a crash.
//!
//! The protocol is described in `docs/design/splits.md`. One split moves the upper half of a meganode of the
//! *source* pair into a free slot of the *target* pair, which may be the same one. Each pair logs its own
//! part under the split's name and keeps, in its [`SplitTable`], where each unfinished one stands.
//!
//! ```text
//! source: Start .......................... Linked .......... Applied ............................ Finished
//! target:       Adopt, fills, .. Adopted ......... readable ......... Opened, takes writes
//! root:                                                                        parent entry
//! ```
//! Every arrow to the right waits until what is on its left is durable. `Linked` is the commit point: before
//! it the split can only end as `Aborted` and `Discarded`, after it only as `Finished` and `Opened`.

mod fields;
mod name;
mod record;
mod settle;
mod slot_use;
mod table;

pub use name::SplitName;
pub use record::{BOUNDARY_NODES_MAX, BoundaryNodes, SplitRecord};
pub use settle::{
    SourceStep, SplitAnswer, TargetProgress, TargetStep, Unsettled, step_of_source, step_of_target, unsettled,
};
pub use slot_use::SlotUse;
pub use table::{SourceSplit, SourceState, SplitTable, SplitTableError, TargetSplit, TargetState};

pub(crate) use record::{KIND_ABSORB, KIND_DISCARDED, KIND_MERGE, KIND_RETIRED, KIND_START};
