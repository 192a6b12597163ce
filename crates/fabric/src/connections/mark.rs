//! The mark in a connection's id: which provider has the connection, and whom its hello asks for.

use crate::endpoint::ConnectionId;
use crate::hello::{WORKER, WORKER_ONE_SIDED};

const MARK_SHIFT: u32 = 62;
/// A TCP connection.
pub(crate) const MARK_TCP: u64 = 0;
/// A connection over shared memory.
pub(crate) const MARK_SHM: u64 = 1 << MARK_SHIFT;
/// A TCP connection that carries one-sided reads. Its endpoint's user never sees it.
pub(crate) const MARK_LANE: u64 = 2 << MARK_SHIFT;
/// A connection over RDMA.
#[cfg(feature = "verbs")]
pub(crate) const MARK_VERBS: u64 = 3 << MARK_SHIFT;

impl ConnectionId {
    /// How many providers [`ConnectionId::provider`] distinguishes.
    pub const PROVIDERS: usize = 4;

    /// The number of the provider that has the connection: each has limits of its own.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "two bits")]
    pub const fn provider(self) -> usize {
        (self.0 >> MARK_SHIFT) as usize
    }
}

/// The mark that an id was given.
pub(crate) const fn mark_of(id: ConnectionId) -> u64 {
    id.0 >> MARK_SHIFT << MARK_SHIFT
}

/// The number in the hello of a connection with that mark.
pub(super) const fn wanted_number(mark: u64) -> u16 {
    if mark == MARK_LANE { WORKER_ONE_SIDED } else { WORKER }
}
