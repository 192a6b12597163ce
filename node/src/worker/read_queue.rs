//! Reads of one key that wait to be carried out together, and what other reads of a turn have cost.

use cell_fabric::ConnectionId;
use cell_protocol::RequestHeader;

use crate::latency::Arrival;

/// Their keys lie one behind the other.
#[derive(Debug, Default)]
pub(super) struct ReadQueue {
    pub(super) keys: Vec<u8>,
    pub(super) items: Vec<QueuedRead>,
    pub(super) value: Vec<u8>,
    /// Bytes of the leaves at which this turn's scans have looked, beyond those of their pages.
    pub(super) vain_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedRead {
    pub(super) connection: ConnectionId,
    pub(super) header: RequestHeader,
    pub(super) arrival: Arrival,
    pub(super) key_end: usize,
    pub(super) wants_value: bool,
}
