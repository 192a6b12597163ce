//! The reader's side of one-sided reads over TCP: one lane a connection, opened with its first read.
//!
//! A lane is an ordinary connection of the same endpoint to the one-sided service of the peer's host; its id
//! carries a mark, and its events end here. When a lane is lost its reads fail and the next read opens
//! another.

use std::collections::{HashMap, VecDeque};

use crate::address::{Address, PeerAddress};
use crate::close::{CloseReason, HelloRefusal};
use crate::connections::{MARK_LANE, Sink};
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Event};
use crate::error::SendError;
use crate::remote_access::{READS_MAX, ReadFailure, ReadTag, RemoteAccess};

use super::read_wire::{decode_answer, encode_request};
use super::transport::TcpMessenger;

/// The lanes of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// By the connection that reads are posted on.
    lanes: HashMap<ConnectionId, Lane>,
    /// From a lane's own connection to the one above.
    users: HashMap<ConnectionId, ConnectionId>,
    /// Reads that failed without having been sent, reported by the next poll.
    failed: VecDeque<(ConnectionId, ReadTag, ReadFailure)>,
    /// Lanes' connections to be closed after a poll.
    closing: Vec<ConnectionId>,
    /// What the last answer held: answers come unaligned, words are lent.
    words: Vec<u64>,
    /// Of reads.
    pub(super) counters: FabricCounters,
    /// By which peers know this end as one that may read; empty: there is none.
    pub(super) token: Box<[u8]>,
}

#[derive(Debug)]
struct Lane {
    connection: ConnectionId,
    posted: VecDeque<(ReadTag, u32)>,
    /// The number of the next request.
    sequence: u32,
    /// A post was answered with `Full`.
    full: bool,
}

impl Lanes {
    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Whether something is to be reported.
    pub(super) fn is_quiet(&self) -> bool {
        self.failed.is_empty() && self.closing.is_empty()
    }

    pub(super) fn post(
        &mut self,
        messenger: &mut TcpMessenger,
        user: ConnectionId,
        access: &RemoteAccess<'_>,
        tag: ReadTag,
    ) -> Result<(), SendError> {
        if let Some(failure) = self.refusal(messenger, user, access)? {
            return self.fail(user, tag, failure);
        }
        if !self.lanes.contains_key(&user) {
            self.open(messenger, user);
        }
        let Some(lane) = self.lanes.get_mut(&user) else {
            // Out of descriptors or of connections.
            return self.fail(user, tag, ReadFailure::ConnectionClosed);
        };
        if lane.posted.len() >= READS_MAX {
            lane.full = true;
            return Err(SendError::Full);
        }
        let read = access.range();
        let request = encode_request(&read, lane.sequence);
        match messenger.send_parts(lane.connection, &[&request]) {
            Ok(()) => {}
            Err(SendError::Full) => {
                lane.full = true;
                return Err(SendError::Full);
            }
            // The lane is lost and the next poll reports it: this read fails with its others.
            Err(_) => return self.fail(user, tag, ReadFailure::ConnectionClosed),
        }
        self.counters.reads_posted += 1;
        lane.sequence = lane.sequence.wrapping_add(1);
        lane.posted.push_back((tag, read.length));
        Ok(())
    }

    /// Why an operation cannot even be tried.
    fn refusal(
        &self,
        messenger: &TcpMessenger,
        user: ConnectionId,
        access: &RemoteAccess<'_>,
    ) -> Result<Option<ReadFailure>, SendError> {
        let connection = messenger.table.get(user).filter(|connection| connection.link.broken.is_none());
        let connection = connection.ok_or(SendError::Closed)?;
        Ok(if connection.accepted || (connection.is_open() && !connection.link.one_sided) {
            Some(ReadFailure::Unsupported)
        } else if !access.range().fits(u64::MAX) {
            Some(ReadFailure::RangeInvalid)
        } else {
            access.refusal()
        })
    }

    fn open(&mut self, messenger: &mut TcpMessenger, user: ConnectionId) {
        let peer = messenger.table.get(user).map(|connection| connection.peer);
        let Some(PeerAddress::Tcp(target)) = peer else { return };
        let Ok(connection) = messenger.connect(&Address::Tcp(target), MARK_LANE) else { return };
        if let Some(lane) = messenger.table.get_mut(connection) {
            lane.token.clone_from(&self.token);
        }
        self.users.insert(connection, user);
        self.lanes.insert(user, Lane { connection, posted: VecDeque::new(), sequence: 0, full: false });
    }

    fn fail(&mut self, user: ConnectionId, tag: ReadTag, failure: ReadFailure) -> Result<(), SendError> {
        self.counters.reads_posted += 1;
        self.failed.push_back((user, tag, failure));
        Ok(())
    }

    /// Reports reads that failed before they left.
    pub(super) fn report_failed(&mut self, sink: &mut Sink<'_>) -> usize {
        let count = self.failed.len();
        self.counters.reads_failed += count as u64;
        for (connection, tag, failure) in self.failed.drain(..) {
            sink(Event::ReadDone { connection, tag, outcome: Err(failure) });
        }
        count
    }

    /// An event of a lane's own connection.
    pub(super) fn take(&mut self, event: &Event<'_>, sink: &mut Sink<'_>) {
        match *event {
            Event::Message { connection, message } => self.answered(connection, message, sink),
            Event::Closed { connection, reason } => {
                let refusals = [HelloRefusal::NoSuchWorker, HelloRefusal::NotPermitted];
                let unsupported = refusals.map(CloseReason::RefusedByPeer).contains(&reason);
                let failure =
                    if unsupported { ReadFailure::Unsupported } else { ReadFailure::ConnectionClosed };
                self.lost(connection, failure, sink);
            }
            Event::Writable { connection } => self.writable(connection, sink),
            Event::Accepted { .. }
            | Event::Connected { .. }
            | Event::Refused { .. }
            | Event::ReadDone { .. } => {}
        }
    }

    fn answered(&mut self, connection: ConnectionId, message: &[u8], sink: &mut Sink<'_>) {
        let Some(user) = self.users.get(&connection).copied() else { return };
        let Some(lane) = self.lanes.get_mut(&user) else { return };
        let sequence = lane.sequence.wrapping_sub(u32::try_from(lane.posted.len()).unwrap_or(0));
        let expected = lane.posted.front().copied();
        let decoded = expected.and_then(|(tag, length)| {
            Some((tag, decode_answer(message, sequence, length, &mut self.words)?))
        });
        let Some((tag, outcome)) = decoded else {
            // Not an answer to what was asked: the peer is broken, and so is everything after it.
            self.closing.push(connection);
            return self.lost(connection, ReadFailure::ConnectionClosed, sink);
        };
        lane.posted.pop_front();
        let outcome = outcome.map(|()| self.words.as_slice());
        match outcome {
            Ok(_) => self.counters.reads_done += 1,
            Err(_) => self.counters.reads_failed += 1,
        }
        sink(Event::ReadDone { connection: user, tag, outcome });
        if lane.full && lane.posted.len() <= READS_MAX / 2 {
            lane.full = false;
            sink(Event::Writable { connection: user });
        }
    }

    fn writable(&mut self, connection: ConnectionId, sink: &mut Sink<'_>) {
        let Some(user) = self.users.get(&connection).copied() else { return };
        let lane = self.lanes.get_mut(&user);
        if lane.is_some_and(|lane| std::mem::take(&mut lane.full)) {
            sink(Event::Writable { connection: user });
        }
    }

    /// A lane is gone: its reads fail.
    fn lost(&mut self, connection: ConnectionId, failure: ReadFailure, sink: &mut Sink<'_>) {
        let Some(user) = self.users.remove(&connection) else { return };
        let Some(lane) = self.lanes.remove(&user) else { return };
        self.counters.reads_failed += lane.posted.len() as u64;
        for (tag, _) in lane.posted {
            sink(Event::ReadDone { connection: user, tag, outcome: Err(failure) });
        }
        if lane.full {
            sink(Event::Writable { connection: user });
        }
    }

    /// The connection that reads were posted on is gone: its lane goes too, and its reads fail first.
    pub(super) fn user_closed(&mut self, user: ConnectionId, sink: &mut Sink<'_>) {
        let (gone, others): (VecDeque<_>, _) =
            self.failed.drain(..).partition(|(connection, ..)| *connection == user);
        self.failed = others;
        self.counters.reads_failed += gone.len() as u64;
        for (connection, tag, failure) in gone {
            sink(Event::ReadDone { connection, tag, outcome: Err(failure) });
        }
        let Some(lane) = self.lanes.get_mut(&user) else { return };
        lane.full = false;
        let connection = lane.connection;
        self.closing.push(connection);
        self.lost(connection, ReadFailure::ConnectionClosed, sink);
    }

    /// The user closes the connection: its lane goes without a word.
    pub(super) fn close(&mut self, messenger: &mut TcpMessenger, user: ConnectionId) {
        self.failed.retain(|(connection, ..)| *connection != user);
        if let Some(lane) = self.lanes.remove(&user) {
            self.users.remove(&lane.connection);
            messenger.close(lane.connection);
        }
    }

    /// Closes what a poll found to be over.
    pub(super) fn close_lost(&mut self, messenger: &mut TcpMessenger) {
        for connection in self.closing.drain(..) {
            messenger.close(connection);
        }
    }
}
