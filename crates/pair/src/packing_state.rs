//! What a pair knows of its packings; `packing` is what they do.

use crate::figures::PackingCounts;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    pub(crate) under_way: bool,
    pub(crate) counts: PackingCounts,
    /// Ranges that the allocator had taken when that was looked at last.
    pub(crate) ranges_seen: u64,
    /// Live bytes after a packing that came to little: until they are others the next one would not, either.
    pub(crate) fruitless_at: Option<u64>,
}
