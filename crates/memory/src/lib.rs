//! Live memory: hugepage regions that anyone may read and one writer may change, extents, and their
//! allocator.
//!
//! * [`Region`] is shared, sealed memory, read one word at a time; [`RegionWriter`] is its single writer.
//!   Nothing here   lends a `&[u8]` of live memory: bytes are copied out by words, and whoever copied them
//!   validates them.
//! * [`extent`] is the layout of one stored entry and its checksum.
//! * [`ExtentAllocator`] says where extents go. Its state is outside the region, and follows from the extents
//!   alone.
//! * [`Budget`] says how much memory the process may hold; regions are granted their parts by it.
//! * [`RegionPopulator`] gives memory to a region ahead of its allocators; [`make_ready`] keeps some for a
//!   takeover.
//! * [`give_back_freed`] has the heap give back what large blocks took.
//!
//! Nothing here knows what a tree node is, reads a clock or starts a thread.

mod allocator;
mod budget;
mod error;
pub mod extent;
mod fold;
mod heap;
mod machine;
mod mapping;
mod observe;
mod pair;
mod ready;
mod region;
mod setting;
mod width;

pub use allocator::{AllocatorRestore, AllocatorStats, ExtentAllocator};
pub use budget::{Budget, BudgetFigures, BudgetFull, MemoryKind, MemoryObservation, Reservation};
pub use error::{ExtentError, GeometryFault, MemoryError, ReserveError};
pub use heap::give_back_freed;
pub use machine::{available_bytes, total_bytes};
pub use observe::observe;
pub use pair::PairWriter;
pub use ready::{give_up_for, make_ready, ready_bytes, ready_bytes_given};
pub use region::{
    Backing, HEADER_BYTES, HugePages, Region, RegionHeader, RegionOptions, RegionPopulator, RegionSpec,
    RegionWriter, Watermarks, header_word,
};
pub use setting::{RegionSettings, SETTINGS};
