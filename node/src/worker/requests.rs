//! Requests: what may go on at once and what has to wait, and who carries each out; replies on their way.

use cell_fabric::ConnectionId;
use cell_protocol::{
    DecodeError, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Refusal, Reply, ReplyHeader, Request, RequestHeader,
};
use cell_terms::Csn;
use cell_terms::mutant::{Mutant, planted};

use super::handled::{Handled, Wait};
use super::{Worker, WorkerPhase};
use crate::directory::MeganodeAt;
use crate::latency::Arrival;
use crate::limits::IN_FLIGHT_MAX;
use crate::outbox::PairAt;
use crate::pairs::Dependence;

impl Worker {
    /// Handles a message that came at this time.
    pub(super) fn handle(&mut self, connection: ConnectionId, message: &[u8], arrived_ns: u64) -> Handled {
        if matches!(self.phase, WorkerPhase::Failed(_)) {
            return Handled::Done;
        }
        let Some(state) = self.connections.get(&connection) else { return Handled::Done };
        let (header, request) = match Request::decode(message) {
            Ok(decoded) => decoded,
            Err(error) => {
                self.count_in(connection);
                self.malformed(connection, message, &error);
                return Handled::Done;
            }
        };
        if state.greeted.is_none() {
            self.count_in(connection);
            self.greet(connection, header, &request);
        } else if !(state.grants.permit(&request) || planted(Mutant::RoleUnasked)) {
            self.count_in(connection);
            self.refuse(connection, header, Refusal::Unauthorized);
        } else if self.asks_first(connection, header, &request, message) {
            // It is handled again once the coordinator has said whether its session is open.
        } else {
            match self.must_wait(connection, header, &request) {
                Err(wait) if self.may_wait(connection, wait, &request) => return Handled::Waits(wait),
                Err(_) => self.turn_away(connection, header, &request),
                Ok(there) => {
                    self.arrival = Arrival::new(&request, arrived_ns);
                    self.carry_out(connection, header, &request, there);
                    self.arrival = Arrival::default();
                }
            }
        }
        Handled::Done
    }

    fn carry_out(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        request: &Request<'_>,
        there: Option<MeganodeAt>,
    ) {
        if matches!(request, Request::Chunk(_) | Request::Credit { .. } | Request::Cancel) {
            self.stream_step(connection, header, request); // no replies of their own: not counted in flight
        } else if self.count_in(connection) > IN_FLIGHT_MAX {
            self.refuse(connection, header, Refusal::Busy);
        } else {
            self.dispatch(connection, header, request, there);
        }
    }

    pub(super) fn count_in(&mut self, connection: ConnectionId) -> u32 {
        let Some(state) = self.connections.get_mut(&connection) else { return 0 };
        state.in_flight += 1;
        state.in_flight
    }

    /// Whether a write has to wait: for its pair's log, for a check of the pair, or for a split. Reads and
    /// other writes go on: of one that does it says where its key is, if that was looked up and is here.
    fn must_wait(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        request: &Request<'_>,
    ) -> Result<Option<MeganodeAt>, Wait> {
        if self.phase != WorkerPhase::Serving {
            return Ok(None);
        }
        let (key, value_len) = match request {
            Request::Put(put) => (put.key, put.value.len()),
            Request::PutBegin(begin) if begin.value_len == 0 => (begin.key, 0),
            // Its last chunk may wait. Where it could not even begin to, nothing is to come in vain.
            Request::PutBegin(begin) => {
                let awaited = self.awaited_at(begin.key);
                return awaited
                    .filter(|wait| !self.may_wait(connection, *wait, request))
                    .map_or(Ok(None), Err);
            }
            Request::Delete(delete) => (delete.key, 0),
            Request::Chunk(chunk) => match self.streams.completed_by((connection, header.id), chunk) {
                Some(completed) => completed,
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let Some(there) = self.pairs.find(key) else { return Ok(None) };
        if self.splits.holds_back(&self.pairs, there, key) {
            return Err(Wait::Split);
        }
        if !matches!(request, Request::Delete(_)) {
            let (nodes, extent) = self.pairs.pair_mut(there.pair).make_room(there.slot, value_len);
            let starves = !(nodes && extent);
            if starves && self.splits.starve(&mut self.pairs, there, !extent, self.now_ns) {
                return Err(Wait::Split);
            }
        }
        let owned = self.pairs.get_mut(there.pair);
        let behind = !self.draining && !owned.backlog.is_empty() && !planted(Mutant::BacklogPassed);
        let waits = behind || owned.pair.write_must_wait(there.slot, value_len);
        if waits { Err(Wait::Log(there.pair)) } else { Ok(Some(there)) }
    }

    fn dispatch(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        request: &Request<'_>,
        there: Option<MeganodeAt>,
    ) {
        // Only reads of one key wait to be carried out together; everything else comes after those before it.
        if !matches!(request, Request::Search { .. } | Request::Get { .. }) {
            self.carry_out_reads();
        }
        match request {
            Request::Hello(_) => self.greet(connection, header, request),
            Request::Search { key } => self.queue_read(connection, header, key, false),
            Request::Get { key } => self.queue_read(connection, header, key, true),
            Request::MultiGet(keys) => self.multi_get(connection, header, keys),
            Request::Scan(scan) => self.scan(connection, header, scan),
            Request::Put(put) => self.put(connection, header, put, there),
            Request::Delete(delete) => self.delete(connection, header, delete, there),
            Request::PutBegin(begin) => self.put_begin(connection, header, begin, there),
            Request::OpenSession => self.open_session(connection, header),
            Request::CloseSession { session } => self.close_session(connection, header, *session),
            Request::KeepAlive { session } => self.keep_alive(connection, header, *session),
            Request::Status => self.status(connection, header),
            Request::Check => self.check(connection, header),
            Request::Regions => self.regions(connection, header),
            Request::Tree { from } => self.tree(connection, header, *from),
            Request::Table { from } => self.table(connection, header, *from),
            Request::Report(report) => self.report(connection, header, report),
            Request::Chunk(_) | Request::Credit { .. } | Request::Cancel => {}
        }
    }

    fn malformed(&mut self, connection: ConnectionId, message: &[u8], error: &DecodeError) {
        let header = RequestHeader::peek(message).unwrap_or_default();
        let refusal = match error {
            DecodeError::Version { .. } => {
                Refusal::VersionUnsupported { min: PROTOCOL_VERSION_MIN, max: PROTOCOL_VERSION }
            }
            other => Refusal::Malformed { what: other.what() },
        };
        self.refuse(connection, header, refusal);
    }

    pub(super) fn refuse(&mut self, connection: ConnectionId, header: RequestHeader, refusal: Refusal) {
        self.operations.refused += 1;
        self.counts.refused(&refusal);
        self.reply(connection, header, Dependence::NOTHING, &Reply::Refused(refusal));
    }

    /// Queues a reply that may leave when its pair's watermark covers what it depends on.
    pub(super) fn reply(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        depends_on: Dependence,
        reply: &Reply<'_>,
    ) {
        let depends_on = match depends_on.pair {
            PairAt::NONE => Dependence::on(self.pairs.first(), Csn::ZERO),
            _ => depends_on,
        };
        let reply_header = self.reply_header(header, depends_on.pair);
        let arrival = self.arrival;
        let list = self.pairs.list(depends_on);
        list.push(connection, depends_on.pair, arrival, |bytes| {
            reply
                .encode(&reply_header, bytes)
                .expect("a worker's replies fit the wire: sizes are checked before");
        });
    }

    /// Watermark and lease are stamped when the reply leaves.
    pub(super) fn reply_header(&self, header: RequestHeader, at: PairAt) -> ReplyHeader {
        let pair = self.pairs.known(at).map(|owned| owned.pair.id()).unwrap_or_default();
        ReplyHeader { id: header.id, pair, ..ReplyHeader::default() }
    }
}
