//! The messaging half of the provider: rings are looked at with each poll, the kernel only now and then.
//!
//! A poll loads one word a connection. The kernel is asked when the endpoint may have slept, while a hello
//! or a descriptor is awaited, and otherwise each [`KERNEL_EVERY`] polls, so that who spins makes no system
//! calls.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};

use crate::address::PeerAddress;
use crate::close::CloseReason;
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Event};
use crate::error::{FabricError, SendError};
use crate::greeting::Greeting;
use crate::handoff::Group;
use crate::limits::FabricLimits;
use crate::mapped::MappedRegion;
use crate::partition::Partition;
use crate::poller::{ReadyList, poll_error};
use crate::registry::Registry;
use crate::remote_access::{ReadTag, RegionKey, RemoteRead};
use crate::slots::{MARK_SHM, Slots};
use crate::sweep::Sweep;

use super::connection::{Connection, ConnectionPhase, Link};
use super::control;
use super::frame::{WORD_BYTES, frame_words, write_frame};
use super::listener::Listener;
use super::ring::Broken;

/// After so many events a poll serves no further connection; one ring's worth may come on top.
const EVENTS_PER_POLL: usize = 1_024;
/// Polls between two questions to the kernel while nothing is awaited from it.
const KERNEL_EVERY: u32 = 32;

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

/// What an acceptor is set up with.
#[derive(Debug)]
pub(super) struct Acceptor {
    pub(super) group: Arc<Group>,
    pub(super) worker: u16,
    pub(super) greeting: Greeting,
    /// None where no one-sided reads are served.
    pub(super) registry: Option<Arc<Registry>>,
    pub(super) ring_words: usize,
}

/// The connections of one endpoint.
#[derive(Debug)]
pub(super) struct Messenger {
    pub(super) limits: FabricLimits,
    pub(super) epoll: OwnedFd,
    pub(super) slots: Slots<Connection>,
    pub(super) counters: FabricCounters,
    pub(super) listener: Option<Listener>,
    pub(super) acceptor: Option<Acceptor>,
    /// Users, besides root and the own one, whose acceptors it shares memory with.
    pub(super) acceptors: Vec<u32>,
    pub(super) desk_ready: bool,
    pub(super) partition: Partition,
    /// Open connections, in no order.
    open: Vec<ConnectionId>,
    /// Where the next poll begins among them.
    turn: usize,
    /// Polls since the kernel was asked.
    kernel_age: u32,
    /// A descriptor of a region was awaited at the last look.
    asking: bool,
    events: ReadyList,
    /// Sockets to be read.
    ready: VecDeque<ConnectionId>,
    dirty: Vec<ConnectionId>,
    deferred: VecDeque<Deferred>,
    /// As large as the largest ring.
    scratch: Vec<[u8; WORD_BYTES]>,
    words: Vec<u64>,
    pub(super) sweep: Sweep,
}

impl Messenger {
    pub(super) fn new(limits: FabricLimits) -> Result<Messenger, FabricError> {
        Ok(Messenger {
            limits: limits.checked(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(poll_error)?,
            slots: Slots::default(),
            counters: FabricCounters::default(),
            listener: None,
            acceptor: None,
            acceptors: Vec::new(),
            desk_ready: false,
            partition: Partition::default(),
            open: Vec::new(),
            turn: 0,
            kernel_age: 0,
            asking: false,
            events: ReadyList::default(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            deferred: VecDeque::new(),
            scratch: Vec::new(),
            words: Vec::new(),
            sweep: Sweep::default(),
        })
    }

    /// Gives a socket its place in the table and in the kernel's list.
    pub(super) fn adopt(
        &mut self,
        socket: OwnedFd,
        peer: PeerAddress,
        phase: ConnectionPhase,
    ) -> Result<ConnectionId, FabricError> {
        let (now_ns, max) = (self.sweep.now_ns(), self.limits.message_bytes_max);
        let id = self.slots.insert(MARK_SHM, |id| {
            let mut connection = Connection::new(id, socket, peer, phase);
            (connection.heard_ns, connection.message_bytes_max) = (now_ns, max);
            connection
        });
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
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

    /// Messages can flow: the connection is looked at from now on.
    pub(super) fn open(&mut self, id: ConnectionId, link: Link) {
        self.scratch.resize(self.scratch.len().max(link.ring_words), [0; WORD_BYTES]);
        let Some(connection) = self.slots.get_mut(id) else { return };
        (connection.link, connection.phase) = (Some(link), ConnectionPhase::Open);
        self.open.push(id);
        // Sends that were accepted meanwhile leave with the next flush.
        self.mark_dirty(id);
    }

    pub(super) fn send_parts(&mut self, id: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        let connection = self.slots.get_mut(id).ok_or(SendError::Closed)?;
        let length = parts.iter().map(|part| part.len()).sum();
        let max = connection.message_bytes_max;
        let framed_length = u32::try_from(length).ok().filter(|_| length <= max);
        let framed_length = framed_length.ok_or(SendError::TooLong { length, max })?;
        let wanted = frame_words(length);
        let pending = connection.backlog.pending();
        if pending + wanted * WORD_BYTES > self.limits.connection_output_bytes_max {
            connection.full = true;
            self.counters.output_full += 1;
            return Err(SendError::Full);
        }
        let link = connection.link.as_mut().filter(|_| pending == 0);
        match link.and_then(|link| has_room(link, wanted).then_some(link)) {
            Some(link) => write_frame(&mut link.outgoing, &link.words, framed_length, parts),
            None => connection.backlog.push(framed_length, parts),
        }
        self.counters.messages_sent += 1;
        self.mark_dirty(id);
        Ok(())
    }

    pub(super) fn post_read(
        &mut self,
        id: ConnectionId,
        read: RemoteRead,
        tag: ReadTag,
    ) -> Result<(), SendError> {
        let connection = self.slots.get_mut(id).ok_or(SendError::Closed)?;
        connection.reads.post(read, tag)?;
        self.counters.reads_posted += 1;
        self.mark_dirty(id);
        Ok(())
    }

    /// See [`crate::OneSided::mapped`].
    pub(super) fn mapped(&self, id: ConnectionId, key: RegionKey) -> Option<MappedRegion> {
        self.slots.get(id)?.reads.mapped(key)
    }

    /// Publishes what every connection has, then, after one fence for all, wakes the peers that sleep.
    pub(super) fn flush(&mut self) {
        if self.dirty.is_empty() || self.partition.is_on() {
            return;
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.retain(|id| self.publish(*id));
        fence(Ordering::SeqCst);
        for id in dirty.drain(..) {
            self.wake(id);
        }
        // Nothing was marked meanwhile; the room is kept.
        self.dirty = dirty;
    }

    /// Whether the peer may have to be woken.
    fn publish(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.slots.get_mut(id) else { return false };
        connection.dirty = false;
        // What was posted before the hellos were through goes with the flush that follows them.
        let Some(link) = &mut connection.link else { return false };
        connection.reads.flush();
        if connection.backlog.pending() > 0 {
            let waiting = connection.backlog.waiting();
            let room = match link.outgoing.room(&link.words, waiting.len()) {
                Ok(room) => room,
                Err(Broken) => {
                    self.end_later(id, CloseReason::SharedMemoryBroken);
                    return false;
                }
            };
            let count = room.min(waiting.len());
            link.outgoing.write(&link.words, &waiting[..count]);
            connection.backlog.take(count);
        }
        connection.blocked = connection.backlog.pending() > 0;
        let published = link.outgoing.publish(&link.words);
        self.counters.bytes_sent += (published * WORD_BYTES) as u64;
        link.published = published > 0;
        let wakes = link.published || link.consumed;
        if connection.full && connection.backlog.pending() <= self.limits.output_high_water() {
            connection.full = false;
            self.deferred.push_back(Deferred::Writable(id));
        }
        wakes
    }

    fn wake(&mut self, id: ConnectionId) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        let Some(link) = &mut connection.link else { return };
        // Only who waits for what there is now: a peer that sleeps until its answer comes is not woken
        // because its question was read.
        let published = std::mem::take(&mut link.published);
        let consumed = std::mem::take(&mut link.consumed);
        let for_data = published && link.outgoing.must_ring(&link.words);
        let for_room = consumed && link.incoming.must_ring(&link.words);
        if for_data || for_room {
            self.counters.wakes += 1;
            control::ring(&connection.socket);
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
        self.kernel_age += 1;
        if self.kernel_is_due() {
            self.gather();
            self.accept(sink);
            self.take_handed(sink);
        }
        for _ in 0..self.ready.len() {
            if let Some(id) = self.ready.pop_front() {
                self.serve(id, sink);
            }
        }
        self.look(&reported, sink);
        reported.get()
    }

    fn kernel_is_due(&self) -> bool {
        let awaited = self.asking || self.slots.len() > self.open.len();
        awaited
            || self.kernel_age >= KERNEL_EVERY
            || self.listener.as_ref().is_some_and(|listener| listener.ready)
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
        self.kernel_age = 0;
        self.events.wait(&self.epoll, Some(Duration::ZERO));
        for (token, _) in self.events.iter() {
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
            connection.readable = true;
            if !std::mem::replace(&mut connection.queued, true) {
                self.ready.push_back(connection.id);
            }
        }
    }

    /// Looks at every open connection once: its reads, its ring, its room.
    fn look(&mut self, reported: &Cell<usize>, sink: &mut Sink<'_>) {
        let count = self.open.len();
        let mut ended = Vec::new();
        self.asking = false;
        for _ in 0..count {
            if reported.get() >= EVENTS_PER_POLL {
                break;
            }
            self.turn = if self.turn + 1 < count { self.turn + 1 } else { 0 };
            let id = self.open[self.turn];
            if let Err(reason) = self.attend(id, sink) {
                ended.push((id, reason));
            }
        }
        for (id, reason) in ended {
            self.end(id, reason, sink);
        }
    }

    #[inline]
    fn attend(&mut self, id: ConnectionId, sink: &mut Sink<'_>) -> Result<(), CloseReason> {
        let high_water = self.limits.output_high_water();
        let Some(connection) = self.slots.get_mut(id) else { return Ok(()) };
        // A peer that has gone takes no replies, and writes nothing more: what it wrote is there.
        let paused = connection.is_paused(high_water) && !connection.hung_up;
        let Some(link) = &mut connection.link else { return Ok(()) };
        let broken = |Broken| CloseReason::SharedMemoryBroken;
        let available = if paused { 0 } else { link.incoming.available(&link.words).map_err(broken)? };
        if available > 0 {
            link.incoming.disarm(&link.words);
            let taken = &mut self.scratch[..available];
            link.incoming.read(&link.words, taken);
            link.incoming.release(&link.words);
            link.consumed = true;
            connection.heard_ns = self.sweep.now_ns();
            let counters = &mut self.counters;
            counters.bytes_received += (available * WORD_BYTES) as u64;
            let max = self.limits.message_bytes_max;
            connection.assembler.take(taken, max, &mut |message| {
                counters.messages_received += 1;
                sink(Event::Message { connection: id, message });
            })?;
        }
        if connection.hung_up {
            let received = connection.assembler.unfinished_bytes();
            let whole = received == 0;
            return Err(if whole { CloseReason::PeerClosed } else { CloseReason::Truncated { received } });
        }
        let has_room = connection.blocked && link.outgoing.room(&link.words, 1).map_err(broken)? > 0;
        if !connection.reads.is_quiet() {
            self.perform_reads(id, sink);
        } else {
            self.asking |= connection.reads.is_asking();
        }
        if available > 0 || has_room {
            self.mark_dirty(id);
        }
        Ok(())
    }

    fn perform_reads(&mut self, id: ConnectionId, sink: &mut Sink<'_>) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        let counters = &mut self.counters;
        connection.reads.perform(&connection.socket, &mut self.words, &mut |tag, outcome| {
            *if outcome.is_ok() { &mut counters.reads_done } else { &mut counters.reads_failed } += 1;
            sink(Event::ReadDone { connection: id, tag, outcome });
        });
        self.asking |= connection.reads.is_asking();
        if connection.reads.has_room_again() {
            sink(Event::Writable { connection: id });
        }
    }

    /// Puts a connection on the list for the next flush.
    pub(super) fn mark_dirty(&mut self, id: ConnectionId) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        if !std::mem::replace(&mut connection.dirty, true) {
            self.dirty.push(id);
        }
    }

    /// Puts a connection on the list of those whose socket is read.
    pub(super) fn queue(&mut self, id: ConnectionId) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        if !std::mem::replace(&mut connection.queued, true) {
            self.ready.push_back(id);
        }
    }

    /// Takes a connection out and says so; one that never was a connection to the user was refused.
    pub(super) fn end(&mut self, id: ConnectionId, reason: CloseReason, sink: &mut Sink<'_>) {
        if let Some(connection) = self.slots.get_mut(id) {
            let counters = &mut self.counters;
            connection.reads.fail_all(&mut |tag, outcome| {
                counters.reads_failed += 1;
                sink(Event::ReadDone { connection: id, tag, outcome });
            });
        }
        match self.take_out(id, reason) {
            Some(Deferred::Closed(connection, reason)) => sink(Event::Closed { connection, reason }),
            Some(Deferred::Refused(peer, reason)) => sink(Event::Refused { peer, reason }),
            Some(Deferred::Writable(_)) | None => {}
        }
    }

    /// [`Messenger::end`] where no events can be reported: the next poll does it.
    pub(super) fn end_later(&mut self, id: ConnectionId, reason: CloseReason) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        connection.ending = Some(reason);
        self.queue(id);
    }

    fn take_out(&mut self, id: ConnectionId, reason: CloseReason) -> Option<Deferred> {
        let connection = self.remove(id)?;
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

    /// Takes a connection out of every list. The socket may be handed to another endpoint: the kernel forgets
    /// it by itself only when nobody has it.
    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<Box<Connection>> {
        let connection = self.slots.remove(id)?;
        let _ = epoll::delete(&self.epoll, &connection.socket);
        if connection.link.is_some() {
            self.open.retain(|open| *open != id);
        }
        Some(connection)
    }

    pub(super) fn close(&mut self, id: ConnectionId) {
        if self.publish(id) {
            fence(Ordering::SeqCst);
            self.wake(id);
        }
        if self.remove(id).is_some() {
            self.counters.closed += 1;
        }
        self.deferred.retain(|deferred| !matches!(deferred, Deferred::Closed(closed, _) if *closed == id));
    }

    pub(super) fn output_pending(&self, id: ConnectionId) -> usize {
        self.slots.get(id).map_or(0, Connection::output_pending)
    }

    /// Whether there is nothing to do, with every peer told to ring; see the module text of `ring`.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        if self.partition.is_on() {
            return true;
        }
        let listener_ready = self.listener.as_ref().is_some_and(|listener| listener.ready);
        let idle = self.deferred.is_empty()
            && self.ready.is_empty()
            && self.dirty.is_empty()
            && !self.events.is_full()
            && !self.desk_ready
            && !listener_ready;
        if !idle {
            return false;
        }
        let high_water = self.limits.output_high_water();
        for id in &self.open {
            let Some(connection) = self.slots.get_mut(*id) else { continue };
            if !connection.reads.is_quiet() {
                return false;
            }
            let paused = connection.is_paused(high_water);
            let Some(link) = &mut connection.link else { continue };
            if !paused {
                link.incoming.arm(&link.words);
            }
            if connection.blocked {
                link.outgoing.ask_for_room(&link.words);
            }
        }
        fence(Ordering::SeqCst);
        let has_news = |connection: &mut Connection| {
            let paused = connection.is_paused(high_water);
            let Some(link) = &mut connection.link else { return false };
            (!paused && link.incoming.available(&link.words) != Ok(0))
                || (connection.blocked && link.outgoing.room(&link.words, 1) != Ok(0))
        };
        let slots = &mut self.slots;
        if self.open.iter().any(|id| slots.get_mut(*id).is_some_and(has_news)) {
            return false;
        }
        // The next poll follows a sleep, and asks what ended it.
        self.kernel_age = KERNEL_EVERY;
        true
    }

    pub(super) fn counters(&self) -> FabricCounters {
        FabricCounters { connections: self.slots.len() as u64, ..self.counters }
    }
}

impl Drop for Messenger {
    fn drop(&mut self) {
        if let Some(acceptor) = &self.acceptor
            && let Some(queue) = acceptor.group.queue(acceptor.worker)
        {
            queue.close();
        }
    }
}

/// Whether the ring takes so many words now. A count that cannot be is reported by the next flush or poll.
fn has_room(link: &mut Link, wanted: usize) -> bool {
    link.outgoing.room(&link.words, wanted).is_ok_and(|room| room >= wanted)
}
