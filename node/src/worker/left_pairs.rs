//! What a worker knows of pairs that leave it, and of those that have left.

use cell_protocol::PairRegions;
use cell_terms::PairId;

/// A pair that has left: what its driver gives back.
#[derive(Debug)]
pub(crate) struct LeftPair {
    /// The pair.
    pub(crate) pair: PairId,
    /// Its number.
    pub(crate) number: usize,
    /// Its registrations.
    pub(crate) regions: Option<PairRegions>,
}

/// What a worker knows of pairs that leave.
#[derive(Debug, Default)]
pub(super) struct LeftPairs {
    /// How many are on their way.
    pub(super) pairs: usize,
    /// Those that have left since this was taken last.
    pub(super) left: Vec<LeftPair>,
    /// When all trust that was granted so far has ended.
    pub(super) trusted_until_ns: u64,
}
