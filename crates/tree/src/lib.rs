//! B-link trees of small tree nodes, in any source of words: live memory, a copy, a model checker's cells.
//!
//! A *meganode* is one slot of a node region and holds a whole B-link tree ([Cell, ATC 2016], sections 2.2 to
//! 2.4). Its tree nodes are small enough to be read over a network in one go, and every reader, the owner
//! included, reads them by one protocol: load, then validate versions, valid flag and fences, else retry,
//! follow the right link or start again. There is one writer.
//!
//! | for | see |
//! |---|---|
//! | sizes and places | [`Geometry`], [`Slot`], [`NodeIndex`], [`key_max`] |
//! | reading in place | [`Meganode::search`], [`Meganode::search_batch`], [`LeafSnapshot`] for scans |
//! | reading a copy | [`NodeRef`], [`Aim`] |
//! | writing | [`plan_put`], [`plan_remove`] make a [`Plan`] of [`Change`]s; record them; [`apply_placed`] them |
//! | recovery | [`Change::decode`], [`replay`], [`Meganode::allocator`] |
//! | building anew | [`bulk_build`], in steps [`BulkBuilder`] |
//! | splitting a meganode | [`Meganode::division`], [`plan_fence`], [`SplitPlan`], [`show`] |
//! | compaction after deletes | [`Meganode::plan_compaction`] |
//! | routing | [`Meganode::predecessor`], [`NodeRef::predecessor`], [`LeafEntry::to_meganode`] |
//! | checking | [`Meganode::validate`], [`NodeRef::check`] |
//! | showing | [`Meganode::node_shape`], [`Meganode::path_to`], [`NodeRef::keys`] |
//!
//! The layout of a tree node, and what a key costs, is described in `layout.rs`; the order of a change's
//! stores, and what it prevents, in `page.rs`; the encoding of changes in `change.rs`.
//!
//! What is deliberately absent: I/O, clocks, threads, unsafe code; merging of nodes by deletes (an emptied
//! leaf stays usable; sparse runs are compacted when their owner sees fit); any idea of what a value is,
//! beyond [`LeafEntry`].
//!
//! [Cell, ATC 2016]: https://www.usenix.org/conference/atc16/technical-sessions/presentation/mitchell

mod aim;
mod apply;
mod batch;
mod bulk;
mod change;
mod check;
mod compaction;
mod compose;
mod divide;
mod edit;
mod fence;
mod fence_heads;
mod geometry;
mod hint;
mod layout;
mod meganode_fences;
pub mod mutant;
mod node;
mod page;
mod patch;
mod placed;
mod plan;
mod predecessor;
mod probe;
mod range;
mod role;
mod scan;
mod search;
mod seek;
mod slot;
mod snapshot;
mod split;
mod state;
mod survey;
mod validate;
mod validate_node;
mod view;

pub use aim::{Aim, Way};
pub use apply::{
    ReplayError, Replayed, apply, apply_placed, empty_root, empty_router, free_nodes, prefetch,
    prefetch_mark, replay, show,
};
pub use batch::{LANES, search_across};
pub use bulk::{BulkBuilder, BulkError, BulkFrame, BulkSummary, bulk_build};
pub use change::{Change, ChangeDecodeError, Image};
pub use check::NodeImageError;
pub use compaction::{CompactionLimits, CompactionNext, CompactionPlan};
pub use divide::{Division, NodeBits, NodeSet, SplitPlan};
pub use edit::EditError;
pub use fence_heads::{FenceHeads, fence_head};
pub use geometry::{Geometry, GeometryError, NodeIndex, Slot};
pub use layout::{FORMAT_VERSION, NODE_BYTES, key_max};
pub use meganode_fences::MeganodeFences;
pub use node::{CopyError, NodeRef, NodeStep, node_crc};
pub use placed::PlacedChange;
pub use plan::{Plan, PlanError, plan_ahead, plan_fence, plan_put, plan_remove};
pub use range::{KeyRange, ScanDirection};
pub use role::MeganodeRole;
pub use search::{Meganode, RETRY_COUNT_MAX, ReadError, SearchResult};
pub use slot::SlotAllocator;
pub use snapshot::{LeafSnapshot, LeafVersion};
pub use state::TreeNodeState;
pub use survey::{NodeShape, PathStep};
pub use validate::{LevelStats, StructureViolation, TreeStats};
pub use validate_node::CheckedNode;
pub use view::LeafEntry;
