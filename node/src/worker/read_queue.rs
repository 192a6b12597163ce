//! Reads of one key that wait to be carried out together.

use cell_fabric::ConnectionId;
use cell_protocol::RequestHeader;

use crate::latency::Arrival;

/// Their keys lie one behind the other.
#[derive(Debug, Default)]
pub(super) struct ReadQueue {
    pub(super) keys: Vec<u8>,
    pub(super) items: Vec<QueuedRead>,
    pub(super) value: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedRead {
    pub(super) connection: ConnectionId,
    pub(super) header: RequestHeader,
    pub(super) arrival: Arrival,
    pub(super) key_end: usize,
    pub(super) wants_value: bool,
}
