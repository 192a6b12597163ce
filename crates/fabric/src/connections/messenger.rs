//! The loop of one endpoint over its table of connections, the same for all providers.
//!
//! Every socket is registered once, edge-triggered, so that steady traffic costs no `epoll_ctl`. An edge is
//! remembered (`readable`, `blocked`) until a short read or write has used it up. Room for output is watched
//! for only while a socket has none: one that has some would pass for one that has something to read.

use std::cell::Cell;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::close::CloseReason;
use crate::endpoint::{ConnectionId, Event};
use crate::error::{FabricError, SendError};
use crate::limits::FabricLimits;
use crate::partition::Partition;
use crate::poller::{ReadyList, poll_error};
use crate::tls::Socket;

use super::ahead::ReadAhead;
use super::connection::{Connection, ConnectionPhase, Link, Started};
use super::handoff::Acceptor;
use super::listener::{Listener, Listening};
use super::table::ConnectionTable;
use super::transport::{Sink, Transport};

/// After so many events a poll serves no further connection; one read's or ring's worth may come on top.
pub(crate) const EVENTS_PER_POLL: usize = 1_024;
/// Hand-shakes of TLS that one poll goes on with: a step of one may be a signature, and whoever is connected
/// waits for it. The others are gone on with by the next polls.
const TLS_STEPS_PER_POLL: usize = 8;
const LISTENER_TOKEN: u64 = u64::MAX;
const HANDOFF_TOKEN: u64 = u64::MAX - 1;
const TRANSPORT_TOKEN: u64 = u64::MAX - 2;

/// The connections of one endpoint, and where it waits for what comes on them.
#[derive(Debug)]
pub(crate) struct Messenger<T: Transport> {
    pub(crate) table: ConnectionTable<T::Link>,
    pub(crate) transport: T,
    pub(super) listening: Option<Listening<T::Listener>>,
    pub(super) acceptor: Option<Acceptor>,
    /// The endpoint that listens left accepted sockets for this one.
    pub(super) handed_over: bool,
    epoll: OwnedFd,
    events: ReadyList,
    ahead: ReadAhead,
    /// The next poll may follow a sleep: what ended it may be anybody's.
    may_have_slept: bool,
    partition: Partition,
    withheld: Withheld<T::Link>,
    /// Left of [`TLS_STEPS_PER_POLL`].
    tls_steps: usize,
}

/// What waits until the host may send again.
#[derive(Debug)]
struct Withheld<L> {
    /// Connections that are not open: the hello of each is to be answered. They stay marked as queued.
    hellos: Vec<ConnectionId>,
    /// Connections that the user closed: peers are to be notified of that.
    closed: Vec<Box<Connection<L>>>,
}

impl<T: Transport> Messenger<T> {
    /// A messenger that only connects.
    ///
    /// # Errors
    /// No descriptors.
    pub(crate) fn new(limits: FabricLimits, transport: T) -> Result<Messenger<T>, FabricError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(poll_error)?;
        if let Some(descriptor) = transport.descriptor() {
            let token = EventData::new_u64(TRANSPORT_TOKEN);
            epoll::add(&epoll, descriptor, token, EventFlags::IN).map_err(poll_error)?;
        }
        Ok(Messenger {
            table: ConnectionTable::new(limits),
            transport,
            listening: None,
            acceptor: None,
            handed_over: false,
            epoll,
            events: ReadyList::default(),
            ahead: ReadAhead::default(),
            may_have_slept: false,
            partition: Partition::default(),
            withheld: Withheld { hellos: Vec::new(), closed: Vec::new() },
            tls_steps: 0,
        })
    }

    /// A messenger that accepts: from its own queue, or by [`Messenger::listen`].
    ///
    /// # Errors
    /// No descriptors.
    pub(crate) fn accepting(
        limits: FabricLimits,
        transport: T,
        acceptor: Acceptor,
    ) -> Result<Messenger<T>, FabricError> {
        let mut messenger = Messenger::new(limits, transport)?;
        if let Some(queue) = &acceptor.own_queue {
            messenger.watch(&queue.bell, HANDOFF_TOKEN)?;
        }
        messenger.partition = acceptor.partition.clone();
        messenger.acceptor = Some(acceptor);
        Ok(messenger)
    }

    /// Makes this the endpoint that listens.
    ///
    /// # Errors
    /// The kernel does not watch the socket.
    pub(crate) fn listen(&mut self, listener: T::Listener) -> Result<(), FabricError> {
        self.watch(listener.socket(), LISTENER_TOKEN)?;
        self.listening = Some(Listening::new(listener));
        Ok(())
    }

    /// The listener of the endpoint that listens.
    pub(crate) fn listener(&self) -> Option<&T::Listener> {
        self.listening.as_ref().map(|listening| &listening.listener)
    }

    /// How it takes connections; none of one that only connects.
    #[cfg(feature = "verbs")]
    pub(crate) fn acceptor_mut(&mut self) -> Option<&mut Acceptor> {
        self.acceptor.as_mut()
    }

    fn watch(&self, descriptor: &OwnedFd, token: u64) -> Result<(), FabricError> {
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&self.epoll, descriptor, EventData::new_u64(token), flags).map_err(poll_error)
    }

    /// Gives a connection its place in the table and in the kernel's list.
    pub(super) fn adopt(&mut self, mark: u64, started: Started) -> Result<ConnectionId, FabricError> {
        let id = self.table.insert(mark, started);
        let Some(connection) = self.table.get_mut(id) else { return Ok(id) };
        connection.watches_room = connection.phase == ConnectionPhase::Connecting;
        let edges = edges::<T>(connection.watches_room);
        let added = epoll::add(&self.epoll, &connection.socket, EventData::new_u64(id.0), edges);
        if let Err(errno) = added {
            self.table.remove(id);
            return Err(poll_error(errno));
        }
        // What has come already, or why it has failed, is found by the next poll.
        self.table.queue(id);
        Ok(id)
    }

    /// Has the kernel report room in a connection's socket while it waits for some, and no longer. Room that
    /// there is by now is reported at once.
    fn watch_room(&mut self, id: ConnectionId) {
        let Some(connection) = self.table.get_mut(id) else { return };
        let waits = connection.blocked || connection.phase == ConnectionPhase::Connecting;
        if T::ROOM_EDGES.is_empty() || std::mem::replace(&mut connection.watches_room, waits) == waits {
            return;
        }
        let token = EventData::new_u64(id.0);
        if let Err(errno) = epoll::modify(&self.epoll, &connection.socket, token, edges::<T>(waits)) {
            self.table.end_later(id, CloseReason::network(errno));
        }
    }

    /// Takes a socket out of the kernel's list, which forgets by itself only what is closed.
    pub(super) fn unwatch(&self, socket: &Socket) {
        let _ = epoll::delete(&self.epoll, socket);
    }

    pub(crate) fn send_parts(&mut self, id: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        self.table.send_parts(id, parts)
    }

    /// Hands the output of all connections on, then wakes those peers that sleep.
    pub(crate) fn flush(&mut self) {
        if self.table.dirty.is_empty() || self.partition.blocks_outbound() {
            return;
        }
        let mut dirty = std::mem::take(&mut self.table.dirty);
        dirty.retain(|id| self.flush_one(*id));
        T::wake(&mut self.table, &dirty);
        dirty.clear();
        // Nothing was marked meanwhile; the room is kept.
        self.table.dirty = dirty;
    }

    /// Whether the peer may have to be woken.
    fn flush_one(&mut self, id: ConnectionId) -> bool {
        let Some((connection, counters)) = self.table.get_counted(id) else { return false };
        connection.dirty = false;
        let wakes = match T::write(connection) {
            Ok(written) => {
                counters.bytes_sent += written.bytes as u64;
                counters.kernel_calls += written.calls;
                self.table.output_went(id);
                written.wakes
            }
            Err(reason) => {
                self.table.end_later(id, reason);
                false
            }
        };
        self.watch_room(id);
        wakes
    }

    pub(crate) fn poll(&mut self, sink: &mut Sink<'_>) -> usize {
        let reported = Cell::new(0);
        let sink = &mut |event: Event<'_>| {
            reported.set(reported.get() + 1);
            sink(event);
        };
        if self.partition.blocks_inbound() {
            // Edges are kept for later: the thread must be able to sleep.
            self.gather();
            return 0;
        }
        let cannot_send = self.partition.blocks_outbound();
        if !cannot_send {
            self.release_withheld();
        }
        while let Some(connection) = self.table.writable.pop_front() {
            if self.table.get(connection).is_some() {
                sink(Event::Writable { connection });
            }
        }
        let may_have_slept = std::mem::take(&mut self.may_have_slept);
        let others_wait = self.listener_ready() || self.handed_over;
        let asks = self.transport.asks_kernel(self.table.len()) || others_wait;
        let reads_ahead = !others_wait && (may_have_slept || T::MESSAGES_BY_SOCKET);
        if asks && !(reads_ahead && self.read_ahead(may_have_slept, sink)) {
            self.gather();
            self.ahead.asked(&self.table.ready);
            if !cannot_send {
                self.accept(sink);
                self.take_handed(sink);
            }
        }
        self.tls_steps = TLS_STEPS_PER_POLL;
        for _ in 0..self.table.ready.len() {
            if reported.get() >= EVENTS_PER_POLL {
                break;
            }
            if let Some(id) = self.table.ready.pop_front() {
                self.serve(id, sink);
            }
        }
        for (id, reason) in self.transport.look(&mut self.table, &reported, sink) {
            self.end(id, reason, sink);
        }
        reported.get()
    }

    /// Reads who is expected to have something. False: the kernel is to be asked who has.
    fn read_ahead(&mut self, may_have_slept: bool, sink: &mut Sink<'_>) -> bool {
        let Some(id) = self.ahead.next() else { return false };
        let is_idle = |connection: &Connection<T::Link>| {
            connection.is_open() && !connection.queued && connection.ending.is_none()
        };
        if !self.table.get(id).is_some_and(is_idle) {
            return false;
        }
        match self.transport.read_ahead(id, &mut self.table, sink) {
            Ok(came) => {
                self.table.queue_if_readable(id);
                self.watch_room(id);
                // Where it did not end the sleep, somebody else did.
                let suffices = came || !may_have_slept;
                if suffices {
                    self.transport.kernel_asked();
                }
                suffices
            }
            Err(reason) => {
                self.end(id, reason, sink);
                false
            }
        }
    }

    /// Goes on with what waited while the host could not send.
    fn release_withheld(&mut self) {
        let Withheld { hellos, closed } = &mut self.withheld;
        self.table.ready.extend(hellos.drain(..));
        closed.clear();
    }

    fn listener_ready(&self) -> bool {
        self.listening.as_ref().is_some_and(|listening| listening.ready)
    }

    /// Asks the kernel once and remembers its edges.
    fn gather(&mut self) {
        self.transport.kernel_asked();
        self.table.counters.kernel_calls += 1;
        self.events.wait(&self.epoll, Some(Duration::ZERO));
        for (token, flags) in self.events.iter() {
            if token == HANDOFF_TOKEN {
                self.handed_over = true;
                continue;
            }
            if token == TRANSPORT_TOKEN {
                self.transport.rung();
                continue;
            }
            if token == LISTENER_TOKEN {
                if let Some(listening) = &mut self.listening {
                    listening.ready = true;
                }
                continue;
            }
            let id = ConnectionId(token);
            let Some(connection) = self.table.get_mut(id) else { continue };
            let ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            connection.hung_up |= ending;
            connection.readable |= ending || flags.contains(EventFlags::IN);
            let is_served = connection.readable || connection.phase == ConnectionPhase::Connecting;
            if flags.contains(EventFlags::OUT) && std::mem::take(&mut connection.blocked) {
                self.table.mark_dirty(id);
            }
            if is_served {
                self.table.queue(id);
            }
        }
    }

    /// Does for one connection what its last edge permits, once.
    fn serve(&mut self, id: ConnectionId, sink: &mut Sink<'_>) {
        let Some(connection) = self.table.get_mut(id) else { return };
        if !connection.is_open() && self.partition.blocks_outbound() {
            return self.withheld.hellos.push(id);
        }
        if !connection.is_open() && connection.socket.is_shaking_hands() {
            if self.tls_steps == 0 {
                return self.table.ready.push_back(id);
            }
            self.tls_steps -= 1;
        }
        connection.queued = false;
        let served = match (connection.ending, connection.phase) {
            (Some(reason), _) => Err(reason),
            (None, ConnectionPhase::Open) => self.transport.receive(id, &mut self.table, sink),
            (None, _) => self.shake_hands(id, sink),
        };
        match served {
            Ok(()) => {
                self.table.queue_if_readable(id);
                self.watch_room(id);
            }
            Err(reason) => self.end(id, reason, sink),
        }
    }

    /// Takes a connection out and says so.
    pub(super) fn end(&mut self, id: ConnectionId, reason: CloseReason, sink: &mut Sink<'_>) {
        let Some(mut connection) = self.remove(id) else { return };
        T::ending(&mut connection, &mut self.table.counters, sink);
        let event = self.table.count_end(&connection, reason);
        // Its descriptors are free again when the user learns of it.
        drop(connection);
        sink(event);
    }

    fn remove(&mut self, id: ConnectionId) -> Option<Box<Connection<T::Link>>> {
        let connection = self.table.remove(id)?;
        self.transport.removed(&connection);
        Some(connection)
    }

    /// See [`crate::Endpoint::await_admission`].
    pub(crate) fn await_admission(&mut self) {
        self.table.awaits_admission = true;
    }

    /// See [`crate::Endpoint::admit`].
    pub(crate) fn admit(&mut self, id: ConnectionId) {
        self.table.admit(id);
    }

    /// Ends a connection for its user, without an event. What is in its output leaves if it can at once.
    pub(crate) fn close(&mut self, id: ConnectionId) {
        let cannot_send = self.partition.blocks_outbound();
        if !cannot_send && self.flush_one(id) {
            T::wake(&mut self.table, &[id]);
        }
        let Some(connection) = self.remove(id) else { return };
        self.table.counters.closed += 1;
        if cannot_send {
            self.withheld.closed.push(connection);
        } else {
            self.transport.part(*connection, self.table.now_ns());
        }
    }

    pub(crate) fn output_pending(&self, id: ConnectionId) -> usize {
        self.table.get(id).map_or(0, |connection| connection.link.output_pending())
    }

    /// See [`crate::Endpoint::prepare_sleep`].
    pub(crate) fn prepare_sleep(&mut self) -> bool {
        if self.partition.blocks_inbound() {
            return true;
        }
        let cannot_send = self.partition.blocks_outbound();
        let waits = !cannot_send && (self.table.has_output() || self.handed_over || self.listener_ready());
        let is_idle = self.table.is_quiet() && !self.events.is_full() && !waits;
        self.may_have_slept = is_idle && self.transport.prepare_sleep(&mut self.table);
        self.may_have_slept
    }

    /// A sleep has ended, and nothing of this had been readable by then.
    pub(crate) fn slept_through(&mut self) {
        self.may_have_slept = false;
        self.transport.kernel_asked();
    }

    /// Readable when a poll has something.
    pub(crate) fn wake_descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub(crate) fn tick(&mut self, now_ns: u64) {
        let looked = self.table.tick(now_ns, self.partition.is_on());
        if let Some(listening) = self.listening.as_mut().filter(|_| looked) {
            listening.retry();
        }
    }
}

/// What the kernel is to report of a socket.
fn edges<T: Transport>(room: bool) -> EventFlags {
    if room { T::EDGES.union(T::ROOM_EDGES) } else { T::EDGES }
}

impl<T: Transport> Drop for Messenger<T> {
    fn drop(&mut self) {
        if let Some(queue) = self.acceptor.as_ref().and_then(|acceptor| acceptor.own_queue.as_ref()) {
            queue.close();
        }
    }
}
