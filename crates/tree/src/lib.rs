//! B-link trees in any source of words.
mod apply;
mod change;
mod check;
mod compose;
mod edit;
mod geometry;
mod hint;
mod layout;
mod page;
mod plan;
mod search;
mod slot;
mod split;
mod view;

pub use apply::{ReplayError, Replayed, apply, empty_root, prefetch, replay};
pub use change::{Change, DecodeError, Image};
pub use check::ImageError;
pub use edit::EditError;
pub use geometry::{Geometry, GeometryError, NODE_BYTES, NodeIndex, Slot, key_max};
pub use layout::FORMAT_VERSION;
pub use plan::{Plan, PlanError, plan_put, plan_remove};
pub use search::{Found, Meganode, RETRY_COUNT_MAX, ReadError};
pub use slot::SlotAllocator;
pub use view::LeafEntry;
