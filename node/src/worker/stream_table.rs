//! Streams of all connections, and the memory that they hold.

use std::collections::HashMap;

use cell_fabric::ConnectionId;
use cell_pair::EntryHead;
use cell_protocol::{Chunk, RequestHeader, RequestId, WriteName};
use cell_terms::SessionId;

use crate::limits::STREAMS_MAX;
use crate::outbox::PairAt;

pub(super) type StreamKey = (ConnectionId, RequestId);

/// Streams of all connections, and the memory that they hold.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) inward: HashMap<StreamKey, InwardStream>,
    pub(super) outward: HashMap<StreamKey, OutwardStream>,
    pub(super) bytes: usize,
}

/// A value on its way in.
#[derive(Debug)]
pub(super) struct InwardStream {
    pub(super) header: RequestHeader,
    pub(super) name: WriteName,
    pub(super) condition: cell_protocol::Condition,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) value_len: usize,
    pub(super) value_crc: u64,
    /// Bytes that the client may still send before it gets more credit.
    pub(super) credit: usize,
}

/// A value on its way out.
#[derive(Debug)]
pub(super) struct OutwardStream {
    pub(super) header: RequestHeader,
    pub(super) pair: PairAt,
    pub(super) head: EntryHead,
    pub(super) value: Vec<u8>,
    pub(super) sent: usize,
    pub(super) credit: usize,
    pub(super) started: bool,
}

impl Streams {
    fn of(&self, connection: ConnectionId) -> usize {
        let inward = self.inward.keys().filter(|(other, _)| *other == connection).count();
        inward + self.outward.keys().filter(|(other, _)| *other == connection).count()
    }

    pub(super) fn close_connection(&mut self, connection: ConnectionId) {
        self.inward.retain(|(other, _), _| *other != connection);
        self.outward.retain(|(other, _), _| *other != connection);
        self.recount();
    }

    /// Whether values wait for a pair's log.
    pub(super) fn are_held_for(&self, pair: PairAt) -> bool {
        self.outward.values().any(|stream| stream.pair == pair && !stream.started)
    }

    /// A pair has left: values of it that are on their way were copied.
    pub(super) fn pair_left(&mut self, pair: PairAt) {
        self.outward.values_mut().filter(|stream| stream.pair == pair).for_each(|stream| {
            stream.pair = PairAt::NONE;
        });
    }

    /// Counts the memory that the streams hold.
    pub(super) fn recount(&mut self) {
        let inward: usize = self.inward.values().map(|stream| stream.value_len).sum();
        self.bytes = inward + self.outward.values().map(|stream| stream.value.len()).sum::<usize>();
    }

    /// Key and length of the value that a chunk makes whole, if it does.
    pub(super) fn completed_by(&self, stream_key: StreamKey, chunk: &Chunk<'_>) -> Option<(&[u8], usize)> {
        let stream = self.inward.get(&stream_key)?;
        let whole = stream.value.len() + chunk.bytes.len() == stream.value_len;
        whole.then_some((&stream.key, stream.value_len))
    }

    /// Whose write a stream towards the server is.
    pub(super) fn session_of(&self, stream_key: StreamKey) -> Option<SessionId> {
        self.inward.get(&stream_key).map(|stream| stream.name.session)
    }

    /// Whether one more stream of so many bytes may be opened.
    pub(super) fn admits(&self, connection: ConnectionId, value_len: usize, bytes_max: usize) -> bool {
        self.of(connection) < STREAMS_MAX as usize && self.bytes + value_len <= bytes_max
    }
}
