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

#[cfg(test)]
mod tests {
    use cell_terms::{Csn, OperationNumber, Version};

    use super::*;

    const ONE: ConnectionId = ConnectionId::from_number(1);
    const OTHER: ConnectionId = ConnectionId::from_number(2);
    const PAIR: PairAt = PairAt(3);

    fn name() -> WriteName {
        let (number, floor) = (OperationNumber(1), OperationNumber(1));
        WriteName { session: SessionId(5), number, floor }
    }

    impl Streams {
        fn add_inward(&mut self, of: ConnectionId, id: u64, value_len: usize) {
            let stream = InwardStream {
                header: RequestHeader::default(),
                name: name(),
                condition: cell_protocol::Condition::Always,
                key: b"key".to_vec(),
                value: Vec::new(),
                value_len,
                value_crc: 0,
                credit: 0,
            };
            self.inward.insert((of, RequestId(id)), stream);
            self.recount();
        }

        fn add_outward(&mut self, of: ConnectionId, id: u64, bytes: usize, pair: PairAt, started: bool) {
            let head = EntryHead { version: Version::default(), csn: Csn(1) };
            let (header, value) = (RequestHeader::default(), vec![0; bytes]);
            let stream = OutwardStream { header, pair, head, value, sent: 0, credit: 0, started };
            self.outward.insert((of, RequestId(id)), stream);
            self.recount();
        }
    }

    #[test]
    fn admits_so_many_of_a_connection_and_so_many_bytes_of_all() {
        let mut streams = Streams::default();
        for id in 1..u64::from(STREAMS_MAX) {
            assert!(streams.admits(ONE, 10, 10_000));
            if id.is_multiple_of(2) {
                streams.add_inward(ONE, id, 10);
            } else {
                streams.add_outward(ONE, id, 10, PAIR, true);
            }
        }
        let bytes = streams.bytes;
        assert_eq!(bytes, 10 * (STREAMS_MAX as usize - 1));
        assert!(streams.admits(ONE, 10, bytes + 10) && !streams.admits(ONE, 11, bytes + 10));
        streams.add_inward(ONE, 0, 10);
        assert!(!streams.admits(ONE, 10, 10_000), "it has all that it may");
        assert!(streams.admits(OTHER, 10, 10_000));
    }

    #[test]
    fn connection_that_closes_takes_its_own_streams_along() {
        let mut streams = Streams::default();
        for (of, bytes) in [(ONE, 5), (OTHER, 7)] {
            streams.add_inward(of, 1, bytes);
            streams.add_outward(of, 2, 2 * bytes, PAIR, true);
        }
        assert_eq!(streams.bytes, 36);
        streams.close_connection(ONE);
        assert_eq!(streams.bytes, 21);
        let left: Vec<StreamKey> = streams.inward.keys().chain(streams.outward.keys()).copied().collect();
        assert_eq!(left, [(OTHER, RequestId(1)), (OTHER, RequestId(2))]);
    }

    /// A pair leaves once none of its values waits for its log. Those on their way were copied.
    #[test]
    fn values_are_held_for_their_pair_until_they_have_started_to_leave() {
        let mut streams = Streams::default();
        streams.add_outward(ONE, 1, 10, PAIR, true);
        streams.add_outward(ONE, 2, 10, PairAt(4), false);
        assert_eq!([PAIR, PairAt(4)].map(|pair| streams.are_held_for(pair)), [false, true]);
        streams.pair_left(PAIR);
        let pairs = [1, 2].map(|id| streams.outward[&(ONE, RequestId(id))].pair);
        assert_eq!(pairs, [PairAt::NONE, PairAt(4)]);
    }

    #[test]
    fn completed_by_is_the_chunk_that_brings_the_last_byte() {
        let mut streams = Streams::default();
        streams.add_inward(ONE, 1, 10);
        let stream_key = (ONE, RequestId(1));
        streams.inward.get_mut(&stream_key).unwrap().value = vec![0; 4];
        let bytes = [0; 8];
        let completed = |length: usize| {
            let chunk = Chunk { offset: 4, bytes: &bytes[..length] };
            streams.completed_by(stream_key, &chunk).map(|(key, value_len)| (key.to_vec(), value_len))
        };
        assert_eq!([5, 7].map(&completed), [None, None]);
        assert_eq!(completed(6), Some((b"key".to_vec(), 10)));
    }
}
