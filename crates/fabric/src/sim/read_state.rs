//! What the network keeps of one-sided reads: those under way, and the registrations that they read from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cell_memory::Region;

use crate::endpoint::ConnectionId;
use crate::remote_access::{ReadFailure, ReadTag, RegionKey, RemoteRead};

use super::link::{LinkId, Side};

/// A read's name within the network.
pub(super) type ReadId = u64;

/// An operation that was posted and not flushed.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) connection: ConnectionId,
    /// The words that it touches.
    pub(super) read: RemoteRead,
    /// Why no region permits it.
    pub(super) refusal: Option<ReadFailure>,
    pub(super) tag: ReadTag,
}

/// A read that ended.
#[derive(Debug)]
pub(super) struct Completed {
    pub(super) connection: ConnectionId,
    pub(super) tag: ReadTag,
    pub(super) outcome: Result<Vec<u64>, ReadFailure>,
}

/// The reads under way, and the registrations.
#[derive(Debug, Default)]
pub(super) struct Reads {
    pub(super) registered: BTreeMap<RegionKey, Registration>,
    pub(super) under_way: BTreeMap<ReadId, Read>,
    pub(super) started: u64,
    /// What came due while its direction was blocked.
    pub(super) stalled: Vec<(ReadId, bool)>,
}

#[derive(Debug)]
pub(super) struct Registration {
    pub(super) host: u32,
    pub(super) region: Region,
    /// For those who have it mapped. The end of a process does not notify them.
    pub(super) ended: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(super) struct Read {
    pub(super) endpoint: usize,
    pub(super) posted: Posted,
    pub(super) link: LinkId,
    pub(super) side: Side,
    /// The reader's host and the one that it reads from.
    pub(super) hosts: (u32, u32),
    pub(super) words: Vec<u64>,
    /// Which words each moment loads.
    pub(super) moments: Vec<Vec<usize>>,
    pub(super) failure: Option<ReadFailure>,
}
