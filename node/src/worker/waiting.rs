//! Writes that have to wait: for a pair's log, for a split, for what the coordinator says of their session.
//! Each of these queues has a bound. A write that comes when it is reached is answered `Busy` and comes
//! again, under the same name: nothing was done, and nothing is kept of it. So writes that wait take a
//! bounded part of memory, and everything that needs no place in a queue (reads, hellos, signs of life) goes
//! on beside them. The last part of a queue is for connections that have nothing in it: one that sends as
//! much as it can does not keep out who has little to say, and does not let it wait for all of its own.

use cell_fabric::ConnectionId;
use cell_protocol::{Refusal, Request, RequestHeader};

use super::Worker;
use super::handled::{Handled, Wait};
use crate::backlog::WaitingMessage;
use crate::outbox::PairAt;
use crate::pairs::{BACKLOG_BYTES_MAX, waiting_bytes};

/// Messages of sessions that the coordinator is asked about.
pub(super) const ASKING_BYTES_MAX: usize = 8 << 20;

/// By how much last chunks of values may go beyond a bound. What came before them is here, and would have to
/// come again; their own bytes are counted as their stream's.
const LAST_CHUNKS_BYTES_MAX: usize = 4 << 20;

/// What part of a queue is kept for connections that have nothing in it.
const KEPT_PART: usize = 8;

/// Queues that connections' messages are counted in.
pub(super) const QUEUES: usize = 2;

/// In which of them a message is that waits for this.
fn queue_of(wait: Wait) -> usize {
    match wait {
        Wait::Log(_) => 0,
        Wait::Split => 1,
    }
}

impl Worker {
    pub(super) fn wait(&mut self, wait: Wait, waiting: WaitingMessage) {
        let is_single = self.note_waiting(wait, waiting.connection);
        match wait {
            Wait::Log(at) => self.pairs.push_backlog(at, waiting, is_single),
            Wait::Split => {
                self.parked_bytes += waiting_bytes(&waiting.message);
                self.parked.push_back(waiting);
            }
        }
    }

    /// A message of this connection waits from now on, if the connection is still there. Whether it is the
    /// only one.
    fn note_waiting(&mut self, wait: Wait, connection: ConnectionId) -> bool {
        let Some(state) = self.connections.get_mut(&connection) else { return false };
        let waiting = &mut state.waiting[queue_of(wait)];
        *waiting += 1;
        *waiting == 1
    }

    /// One of its messages was taken out of a queue.
    fn note_waited(&mut self, wait: Wait, connection: ConnectionId) {
        if let Some(state) = self.connections.get_mut(&connection) {
            let waiting = &mut state.waiting[queue_of(wait)];
            *waiting = waiting.saturating_sub(1);
        }
    }

    /// Whether one more message of a connection may wait.
    pub(super) fn may_wait(&self, connection: ConnectionId, wait: Wait, request: &Request<'_>) -> bool {
        let (bytes, max) = match wait {
            // It has waited, and keeps its place: its bytes were taken off for the moment.
            Wait::Log(_) if self.draining => return true,
            Wait::Log(_) => (self.pairs.backlog_bytes(), BACKLOG_BYTES_MAX),
            Wait::Split => (self.parked_bytes, self.options.parked_bytes_max),
        };
        let beyond = if matches!(request, Request::Chunk(_)) { LAST_CHUNKS_BYTES_MAX } else { 0 };
        let state = self.connections.get(&connection);
        let has_waiting = state.is_some_and(|state| state.waiting[queue_of(wait)] > 0);
        let kept = if has_waiting { max / KEPT_PART } else { 0 };
        bytes < (max - kept).saturating_add(beyond)
    }

    /// What a write of this key would wait for now, whatever its length.
    pub(super) fn awaited_at(&self, key: &[u8]) -> Option<Wait> {
        let there = self.pairs.find(key)?;
        if self.splits.holds_back(&self.pairs, there, key) {
            return Some(Wait::Split);
        }
        (!self.pairs.get(there.pair).backlog.is_empty()).then_some(Wait::Log(there.pair))
    }

    /// Answers a write that may not wait. With a chunk its whole stream ends, which the answer is to.
    pub(super) fn turn_away(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        request: &Request<'_>,
    ) {
        let stream_key = (connection, header.id);
        let streams = matches!(request, Request::Chunk(_) | Request::Credit { .. } | Request::Cancel);
        if streams {
            self.sessions.forget_stream(stream_key);
        }
        if streams && self.streams.inward.remove(&stream_key).is_some() {
            self.streams.recount(); // it is in flight since its beginning
        } else {
            self.count_in(connection);
        }
        self.refuse(connection, header, Refusal::Busy);
    }

    pub(super) fn drain_parked(&mut self) {
        self.parked_bytes = 0;
        for waiting in std::mem::take(&mut self.parked) {
            let WaitingMessage { connection, arrived_ns, ref message } = waiting;
            self.note_waited(Wait::Split, connection);
            if let Handled::Waits(wait) = self.handle(connection, message, arrived_ns) {
                self.wait(wait, waiting);
            }
        }
    }

    pub(super) fn drain_backlog(&mut self, at: PairAt) {
        if self.is_silent() {
            return;
        }
        self.draining = true;
        while let Some((waiting, lane)) = self.pairs.pop_backlog(at) {
            let WaitingMessage { connection, arrived_ns, ref message } = waiting;
            self.note_waited(Wait::Log(at), connection);
            match self.handle(connection, message, arrived_ns) {
                Handled::Done => {}
                Handled::Waits(Wait::Log(now)) if now == at => {
                    self.note_waiting(Wait::Log(at), connection);
                    self.pairs.unpop_backlog(at, waiting, lane);
                    break;
                }
                Handled::Waits(wait) => self.wait(wait, waiting),
            }
        }
        self.draining = false;
    }

    pub(super) fn drain_backlogs(&mut self) {
        self.pairs.all().for_each(|at| self.drain_backlog(at));
    }
}
