//! Values that do not fit one message: chunks in both directions, as far as credit goes. A value towards the
//! server is applied once it is complete and its checksum matches.

use cell_fabric::ConnectionId;
use cell_memory::extent::checksum as crc64;
use cell_pair::EntryHead;
use cell_protocol::{
    Chunk, Malformed, Put, PutBegin, Refusal, Reply, Request, RequestHeader, ValueBegin,
    stream::CHUNK_BYTES_MAX,
};
use cell_terms::Csn;
use cell_terms::mutant::{Mutant, planted};

use super::Worker;
use super::stream_table::{InwardStream, OutwardStream, StreamKey};
use crate::directory::MeganodeAt;
use crate::limits::STREAM_CREDIT_BYTES;
use crate::outbox::{PairAt, Release};
use crate::pairs::Dependence;

impl Worker {
    /// Begins to take a value in.
    pub(super) fn put_begin(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        begin: &PutBegin<'_>,
        there: Option<MeganodeAt>,
    ) {
        let value_len = begin.value_len as usize;
        let there = match self.write_place(begin.key, value_len, &begin.name, there) {
            Ok(there) => there,
            Err(refusal) => return self.refuse_write(connection, header, begin.key, refusal),
        };
        if self.answer_repeat(connection, header, there.pair, &begin.name) {
            return;
        }
        let stream_key = (connection, header.id);
        if self.streams.inward.contains_key(&stream_key) {
            return self.refuse(connection, header, Refusal::Malformed { what: Malformed::Order });
        }
        if !self.streams.admits(connection, value_len, self.options.stream_bytes_max) {
            return self.refuse(connection, header, Refusal::Busy);
        }
        let stream = InwardStream {
            header,
            name: begin.name,
            condition: begin.condition,
            key: begin.key.to_vec(),
            value: Vec::new(), // grows with what arrives, not by what was announced
            value_len,
            value_crc: begin.value_crc,
            credit: STREAM_CREDIT_BYTES as usize,
        };
        self.streams.bytes += value_len;
        self.streams.inward.insert(stream_key, stream);
        self.complete_if_whole(stream_key);
    }

    /// A chunk, credit or a cancel. None has a reply of its own; those of a stream that is gone are ignored.
    pub(super) fn stream_step(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        request: &Request<'_>,
    ) {
        let stream_key = (connection, header.id);
        match request {
            Request::Chunk(chunk) => self.chunk(stream_key, chunk),
            Request::Credit { bytes } => {
                if let Some(stream) = self.streams.outward.get_mut(&stream_key) {
                    stream.credit = stream.credit.saturating_add(*bytes as usize);
                }
                self.pump(stream_key);
            }
            _ => self.cancel(stream_key),
        }
    }

    fn cancel(&mut self, stream_key: StreamKey) {
        let inward = self.streams.inward.remove(&stream_key).is_some();
        if inward || self.streams.outward.remove(&stream_key).is_some() {
            self.streams.recount();
            if let Some(state) = self.connections.get_mut(&stream_key.0) {
                state.in_flight = state.in_flight.saturating_sub(1);
            }
        }
    }

    fn chunk(&mut self, stream_key: StreamKey, chunk: &Chunk<'_>) {
        let Some(stream) = self.streams.inward.get_mut(&stream_key) else { return };
        let follows = chunk.offset as usize == stream.value.len();
        if !follows || chunk.bytes.len() > stream.credit.min(stream.value_len - stream.value.len()) {
            let header = stream.header;
            self.streams.inward.remove(&stream_key);
            self.streams.recount();
            return self.refuse(stream_key.0, header, Refusal::Malformed { what: Malformed::Order });
        }
        stream.credit -= chunk.bytes.len();
        stream.value.extend_from_slice(chunk.bytes);
        self.give_credit(stream_key);
        self.complete_if_whole(stream_key);
    }

    fn give_credit(&mut self, stream_key: StreamKey) {
        let Some(stream) = self.streams.inward.get_mut(&stream_key) else { return };
        let used = STREAM_CREDIT_BYTES as usize - stream.credit;
        if used < STREAM_CREDIT_BYTES as usize / 2 || stream.value.len() == stream.value_len {
            return;
        }
        stream.credit += used;
        let (header, bytes) = (stream.header, u32::try_from(used).unwrap_or(STREAM_CREDIT_BYTES));
        self.step_reply(stream_key.0, header, PairAt::NONE, &Reply::Credit { bytes });
    }

    fn complete_if_whole(&mut self, stream_key: StreamKey) {
        let whole = |stream: &InwardStream| stream.value.len() == stream.value_len;
        if !self.streams.inward.get(&stream_key).is_some_and(whole) {
            return;
        }
        let Some(stream) = self.streams.inward.remove(&stream_key) else { return };
        self.streams.recount();
        if crc64(&stream.value) != stream.value_crc && !planted(Mutant::StreamUnchecked) {
            let what = Malformed::Order;
            return self.refuse(stream_key.0, stream.header, Refusal::Malformed { what });
        }
        let put =
            Put { name: stream.name, condition: stream.condition, key: &stream.key, value: &stream.value };
        self.put(stream_key.0, stream.header, &put, None);
    }

    /// Begins to send a value that does not fit one reply.
    pub(super) fn begin_value(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        pair: PairAt,
        head: EntryHead,
        value: Vec<u8>,
    ) {
        if !self.streams.admits(connection, value.len(), self.options.stream_bytes_max) {
            return self.refuse(connection, header, Refusal::Busy);
        }
        let Some(state) = self.connections.get(&connection) else { return };
        let credit = state.stream_credit_bytes as usize;
        self.streams.bytes += value.len();
        let stream = OutwardStream { header, pair, head, value, sent: 0, credit, started: false };
        self.streams.outward.insert((connection, header.id), stream);
        self.pump((connection, header.id));
    }

    /// Streams that waited for the watermark go on.
    pub(super) fn unblock_streams(&mut self) {
        let waiting = self.streams.outward.iter().filter(|(_, stream)| !stream.started);
        let mut waiting: Vec<_> = waiting.map(|(stream_key, _)| *stream_key).collect();
        waiting.sort_unstable(); // a core's order follows from its input alone
        for stream_key in waiting {
            self.pump(stream_key);
        }
    }

    /// Sends what credit permits, once the entry is durable.
    fn pump(&mut self, stream_key: StreamKey) {
        let Some(mut stream) = self.streams.outward.remove(&stream_key) else { return };
        let owned = self.pairs.known(stream.pair); // none: all of it was durable when the pair left
        let durable = owned.is_none_or(|owned| owned.held.release(stream.head.csn) == Release::Now)
            || planted(Mutant::StreamNotHeld);
        if durable && !stream.started {
            stream.started = true;
            let reply = Reply::ValueBegin(ValueBegin {
                version: stream.head.version,
                value_len: u32::try_from(stream.value.len()).unwrap_or(u32::MAX),
                value_crc: crc64(&stream.value),
            });
            self.step_reply(stream_key.0, stream.header, stream.pair, &reply);
        }
        while durable && stream.sent < stream.value.len() && stream.credit > 0 {
            let length = CHUNK_BYTES_MAX.min(stream.credit).min(stream.value.len() - stream.sent);
            let bytes = &stream.value[stream.sent..stream.sent + length];
            let offset = u32::try_from(stream.sent).unwrap_or(u32::MAX);
            stream.credit -= length;
            stream.sent += length;
            let last = stream.sent == stream.value.len();
            let reply = Reply::Chunk(Chunk { offset, bytes });
            if last {
                // Answers the get: one less in flight.
                self.reply(stream_key.0, stream.header, Dependence::on(stream.pair, Csn::ZERO), &reply);
            } else {
                self.step_reply(stream_key.0, stream.header, stream.pair, &reply);
            }
        }
        if stream.sent < stream.value.len() {
            self.streams.outward.insert(stream_key, stream);
        } else {
            self.streams.recount();
        }
    }

    /// A message on the way to an answer: it does not end its request.
    fn step_reply(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        pair: PairAt,
        reply: &Reply<'_>,
    ) {
        if let Some(state) = self.connections.get_mut(&connection) {
            state.in_flight += 1; // taken back when it leaves, as with every message
        }
        self.reply(connection, header, Dependence::on(pair, Csn::ZERO), reply);
    }
}
