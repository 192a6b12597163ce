//! The messaging half of the TCP provider: sockets, their readiness, and what to do with it.
//!
//! Every socket is registered once, edge-triggered for both directions, so that steady traffic costs one read
//! and one write a connection and batch and no `epoll_ctl`. An edge is remembered (`readable`, `blocked`)
//! until a short read or write has used it up.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::address::PeerAddress;
use crate::close::CloseReason;
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Event};
use crate::error::{FabricError, SendError};
use crate::handoff::Group;
use crate::limits::FabricLimits;
use crate::partition::Partition;
use crate::poller::{ReadyList, poll_error};
use crate::slots::{MARK_LANE, Slots};
use crate::sweep::{Sweep, Tick};

use super::connection::{Connection, ConnectionPhase};
use super::input::Received;
use super::output::Output;

/// Shared by all connections of an endpoint; one read takes at most this. Small, so that what was read is
/// still in the nearest caches when it is handled, and so that answers to the first requests of a long
/// queue leave while the rest is still handled (measured: gets with 1,024 in flight 1.6 M/s against 1.3 M/s
/// with 128 KiB).
const SCRATCH_BYTES: usize = 16 * 1024;
/// After so many events a poll serves no further connection; one read's worth may come on top.
const EVENTS_PER_POLL: usize = 1_024;
pub(super) const LISTENER_TOKEN: u64 = u64::MAX;
pub(super) const HANDOFF_TOKEN: u64 = u64::MAX - 1;

/// Where events go.
pub(super) type Sink<'s> = dyn FnMut(Event<'_>) + 's;

/// An event that did not arise in a poll and is reported by the next.
#[derive(Debug)]
enum Deferred {
    Writable(ConnectionId),
    Closed(ConnectionId, CloseReason),
    Refused(PeerAddress, CloseReason),
}

/// The sockets of one endpoint.
#[derive(Debug)]
pub(super) struct Messenger {
    pub(super) limits: FabricLimits,
    pub(super) epoll: OwnedFd,
    pub(super) slots: Slots<Connection>,
    pub(super) counters: FabricCounters,
    pub(super) listener: Option<super::listener::Listener>,
    /// Which queue of which group is ours, with our answer to a good hello.
    pub(super) acceptor: Option<(Arc<Group>, u16)>,
    pub(super) desk_ready: bool,
    /// What this endpoint answers to a good hello.
    pub(super) greeting: crate::greeting::Greeting,
    pub(super) partition: Partition,
    events: ReadyList,
    ready: VecDeque<ConnectionId>,
    dirty: Vec<ConnectionId>,
    deferred: VecDeque<Deferred>,
    scratch: Box<[u8]>,
    sweep: Sweep,
}

impl Messenger {
    pub(super) fn new(
        limits: FabricLimits,
        greeting: crate::greeting::Greeting,
    ) -> Result<Messenger, FabricError> {
        Ok(Messenger {
            limits: limits.checked(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(poll_error)?,
            slots: Slots::default(),
            counters: FabricCounters::default(),
            listener: None,
            acceptor: None,
            desk_ready: false,
            greeting,
            partition: Partition::default(),
            events: ReadyList::default(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            deferred: VecDeque::new(),
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            sweep: Sweep::default(),
        })
    }

    /// Gives a socket its place in the table and in the kernel's list.
    pub(super) fn adopt(
        &mut self,
        socket: OwnedFd,
        peer: PeerAddress,
        phase: ConnectionPhase,
        worker: u16,
        lane: bool,
    ) -> Result<ConnectionId, FabricError> {
        let (now_ns, max) = (self.now_ns(), self.limits.message_bytes_max);
        let id = self.slots.insert(if lane { MARK_LANE } else { 0 }, |id| {
            let mut connection = Connection::new(id, socket, peer, phase, worker);
            connection.heard_ns = now_ns;
            connection.message_bytes_max = max;
            connection
        });
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let added = self
            .slots
            .get(id)
            .map(|connection| epoll::add(&self.epoll, &connection.socket, EventData::new_u64(id.0), flags));
        if let Some(Err(errno)) = added {
            self.slots.remove(id);
            return Err(poll_error(errno));
        }
        Ok(id)
    }

    pub(super) fn send_parts(&mut self, id: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        let connection = self.slots.get_mut(id).filter(|connection| connection.deaf.is_none());
        let connection = connection.ok_or(SendError::Closed)?;
        let length = parts.iter().map(|part| part.len()).sum();
        let max = connection.message_bytes_max;
        let framed_length = u32::try_from(length).ok().filter(|_| length <= max);
        let framed_length = framed_length.ok_or(SendError::TooLong { length, max })?;
        let pending = connection.output.pending();
        if pending + Output::framed_bytes(length) > self.limits.connection_output_bytes_max {
            connection.full = true;
            self.counters.output_full += 1;
            return Err(SendError::Full);
        }
        connection.output.push(framed_length, parts);
        self.counters.messages_sent += 1;
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(id);
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) {
        if self.partition.is_on() {
            return;
        }
        for index in 0..self.dirty.len() {
            self.flush_one(self.dirty[index]);
        }
        self.dirty.clear();
    }

    fn flush_one(&mut self, id: ConnectionId) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        connection.dirty = false;
        if connection.phase != ConnectionPhase::Open || connection.blocked || connection.output.pending() == 0
        {
            return;
        }
        match connection.output.write(&connection.socket) {
            Ok(wrote) => {
                connection.blocked = wrote.blocked;
                self.counters.bytes_sent += wrote.count as u64;
            }
            Err(errno) => {
                // The connection ends after what the peer had still sent.
                connection.deaf = Some(CloseReason::network(errno));
                connection.hung_up = true;
                connection.readable = true;
                connection.output.clear();
            }
        }
        self.drained(id);
    }

    /// After output went: a waiting sender is told, and a connection that was not read because of it is read
    /// again.
    fn drained(&mut self, id: ConnectionId) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        if connection.output.pending() > self.limits.output_high_water() {
            return;
        }
        if std::mem::take(&mut connection.full) && connection.deaf.is_none() {
            self.deferred.push_back(Deferred::Writable(id));
        }
        if connection.readable && !connection.queued {
            connection.queued = true;
            self.ready.push_back(id);
        }
    }

    pub(super) fn poll(&mut self, sink: &mut Sink<'_>) -> usize {
        let reported = Cell::new(0);
        let sink = &mut |event: Event<'_>| {
            reported.set(reported.get() + 1);
            sink(event);
        };
        if self.partition.is_on() {
            // Edges are kept for later: the thread must be able to sleep.
            self.gather();
            return 0;
        }
        self.report_deferred(sink);
        self.gather();
        self.accept(sink);
        self.take_handed(sink);
        for _ in 0..self.ready.len() {
            if reported.get() >= EVENTS_PER_POLL {
                break;
            }
            if let Some(id) = self.ready.pop_front() {
                self.serve(id, sink);
            }
        }
        reported.get()
    }

    fn report_deferred(&mut self, sink: &mut Sink<'_>) {
        while let Some(deferred) = self.deferred.pop_front() {
            match deferred {
                Deferred::Writable(connection) if self.slots.get(connection).is_some() => {
                    sink(Event::Writable { connection });
                }
                Deferred::Writable(_) => {}
                Deferred::Closed(connection, reason) => sink(Event::Closed { connection, reason }),
                Deferred::Refused(peer, reason) => sink(Event::Refused { peer, reason }),
            }
        }
    }

    /// Asks the kernel once and remembers its edges.
    fn gather(&mut self) {
        self.events.wait(&self.epoll, Some(Duration::ZERO));
        for (token, flags) in self.events.iter() {
            if token == HANDOFF_TOKEN {
                self.desk_ready = true;
                continue;
            }
            if token == LISTENER_TOKEN {
                if let Some(listener) = &mut self.listener {
                    listener.ready = true;
                }
                continue;
            }
            let Some(connection) = self.slots.get_mut(ConnectionId(token)) else { continue };
            let ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            connection.hung_up |= ending;
            connection.readable |= ending || flags.contains(EventFlags::IN);
            if flags.contains(EventFlags::OUT) && std::mem::take(&mut connection.blocked) && !connection.dirty
            {
                connection.dirty = true;
                self.dirty.push(connection.id);
            }
            if (connection.readable || connection.phase == ConnectionPhase::Connecting) && !connection.queued
            {
                connection.queued = true;
                self.ready.push_back(connection.id);
            }
        }
    }

    /// Does for one connection what its last edge permits, once.
    fn serve(&mut self, id: ConnectionId, sink: &mut Sink<'_>) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        connection.queued = false;
        let served = match connection.phase {
            ConnectionPhase::Connecting => self.finish_connect(id),
            ConnectionPhase::AnswerAwaited | ConnectionPhase::HelloAwaited => self.read_hello(id, sink),
            ConnectionPhase::Open => self.receive(id, sink),
        };
        match served {
            Ok(()) => self.queue_if_readable(id),
            Err(reason) => self.end(id, reason, sink),
        }
    }

    /// Puts a connection on the list for the next flush.
    pub(super) fn mark_dirty(&mut self, id: ConnectionId) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        if !std::mem::replace(&mut connection.dirty, true) {
            self.dirty.push(id);
        }
    }

    fn queue_if_readable(&mut self, id: ConnectionId) {
        let high_water = self.limits.output_high_water();
        let Some(connection) = self.slots.get_mut(id) else { return };
        if connection.readable && !connection.queued && !connection.is_paused(high_water) {
            connection.queued = true;
            self.ready.push_back(id);
        }
    }

    fn receive(&mut self, id: ConnectionId, sink: &mut Sink<'_>) -> Result<(), CloseReason> {
        let Some(connection) = self.slots.get_mut(id) else { return Ok(()) };
        if connection.is_paused(self.limits.output_high_water()) {
            return Ok(());
        }
        let Connection { input, socket, .. } = connection;
        let mut messages = 0;
        let read = |slices: &mut [io::IoSliceMut<'_>]| match slices {
            [one] => rustix::io::read(&*socket, &mut **one),
            several => rustix::io::readv(&*socket, several),
        };
        let received =
            input.receive(&mut self.scratch, self.limits.message_bytes_max, read, &mut |message| {
                messages += 1;
                sink(Event::Message { connection: id, message });
            });
        self.counters.messages_received += messages;
        match received? {
            Received::Bytes { count, all } => {
                self.counters.bytes_received += count as u64;
                connection.readable = all || connection.hung_up;
                connection.heard_ns = self.sweep.now_ns();
                Ok(())
            }
            Received::End => Err(match (connection.deaf, connection.input.unfinished_bytes()) {
                (Some(reason), _) => reason,
                (None, 0) => CloseReason::PeerClosed,
                (None, received) => CloseReason::Truncated { received },
            }),
            Received::Failed(Errno::AGAIN) => {
                connection.readable = false;
                connection.deaf.map_or(Ok(()), Err)
            }
            Received::Failed(Errno::INTR) => Ok(()),
            Received::Failed(errno) => Err(CloseReason::network(errno)),
        }
    }

    /// Takes a connection out and says so; one that never was a connection to the user was refused.
    pub(super) fn end(&mut self, id: ConnectionId, reason: CloseReason, sink: &mut Sink<'_>) {
        match self.take_out(id, reason) {
            Some(Deferred::Closed(connection, reason)) => sink(Event::Closed { connection, reason }),
            Some(Deferred::Refused(peer, reason)) => sink(Event::Refused { peer, reason }),
            Some(Deferred::Writable(_)) | None => {}
        }
    }

    /// [`Messenger::end`] where no events can be reported.
    pub(super) fn end_later(&mut self, id: ConnectionId, reason: CloseReason) {
        let deferred = self.take_out(id, reason);
        self.deferred.extend(deferred);
    }

    fn take_out(&mut self, id: ConnectionId, reason: CloseReason) -> Option<Deferred> {
        let connection = self.slots.remove(id)?;
        if matches!(reason, CloseReason::HandshakeTimeout | CloseReason::Idle | CloseReason::Stalled) {
            self.counters.timed_out += 1;
        }
        if connection.phase == ConnectionPhase::HelloAwaited {
            self.counters.refused += 1;
            return Some(Deferred::Refused(connection.peer, reason));
        }
        self.counters.closed += 1;
        Some(Deferred::Closed(id, reason))
    }

    pub(super) fn close(&mut self, id: ConnectionId) {
        self.flush_one(id);
        if self.slots.remove(id).is_some() {
            self.counters.closed += 1;
        }
        self.deferred.retain(|deferred| !matches!(deferred, Deferred::Closed(closed, _) if *closed == id));
    }

    pub(super) fn output_pending(&self, id: ConnectionId) -> usize {
        self.slots.get(id).map_or(0, |connection| connection.output.pending())
    }

    pub(super) fn prepare_sleep(&self) -> bool {
        if self.partition.is_on() {
            return true;
        }
        let listener_ready = self.listener.as_ref().is_some_and(|listener| listener.ready);
        self.deferred.is_empty()
            && self.ready.is_empty()
            && self.dirty.is_empty()
            && !self.events.is_full()
            && !self.desk_ready
            && !listener_ready
    }

    pub(super) fn counters(&self) -> FabricCounters {
        FabricCounters { connections: self.slots.len() as u64, ..self.counters }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.sweep.now_ns()
    }

    pub(super) fn tick(&mut self, now_ns: u64) {
        let Tick { first, due } = self.sweep.tick(now_ns, self.partition.is_on());
        if first {
            self.slots.iter_mut().for_each(|connection| connection.heard_ns = now_ns);
        }
        if !due {
            return;
        }
        if let Some(listener) = &mut self.listener {
            listener.retry();
        }
        for (id, reason) in self.overdue(now_ns) {
            self.end_later(id, reason);
        }
    }

    fn overdue(&mut self, now_ns: u64) -> Vec<(ConnectionId, CloseReason)> {
        let limits = self.limits;
        let judge = |connection: &mut Connection| {
            connection.input.relax();
            connection.output.relax();
            let silent_ns = now_ns.saturating_sub(connection.heard_ns);
            let (is_open, pending) =
                (connection.phase == ConnectionPhase::Open, connection.output.pending() > 0);
            limits.overdue(is_open, silent_ns, pending).map(|reason| (connection.id, reason))
        };
        self.slots.iter_mut().filter_map(judge).collect()
    }
}

impl Drop for Messenger {
    fn drop(&mut self) {
        if let Some((group, worker)) = &self.acceptor
            && let Some(queue) = group.queue(*worker)
        {
            queue.close();
        }
    }
}
