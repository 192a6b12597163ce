//! The connections of one endpoint: what is sent on them, which of them have work, how they end.

use std::collections::VecDeque;

use crate::close::{CloseReason, Stranger};
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Event};
use crate::error::SendError;
use crate::limits::FabricLimits;

use super::connection::{Connection, ConnectionPhase, Link, Started};
use super::slots::Slots;
use super::sweep::{Sweep, Tick};
use super::waiting::Waiting;

/// Connections beyond the limit where the user admits peers: it decides who gets one of them. As many again
/// are kept for those whom the kernel names.
const KEPT: usize = 16;
/// How long the user may take to admit a peer before it makes room for another: a client says who it is right
/// behind its hello.
const STRANGER_NS: u64 = 1_000_000_000;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct ConnectionTable<L> {
    pub(crate) limits: FabricLimits,
    pub(crate) counters: FabricCounters,
    slots: Slots<L>,
    /// How many accepted connections' hellos are awaited.
    handshakes: usize,
    /// Those whose hello is awaited.
    arrivals: Waiting,
    /// The user admits peers once it knows who they are.
    pub(super) awaits_admission: bool,
    /// Those that are open and wait to be admitted.
    strangers: Waiting,
    /// Connections to be served.
    pub(super) ready: VecDeque<ConnectionId>,
    /// Connections that the next flush looks at.
    pub(super) dirty: Vec<ConnectionId>,
    /// Connections whose full output has room again.
    pub(super) writable: VecDeque<ConnectionId>,
    sweep: Sweep,
}

impl<L: Link> ConnectionTable<L> {
    pub(super) fn new(limits: FabricLimits) -> ConnectionTable<L> {
        ConnectionTable {
            limits: limits.checked(),
            counters: FabricCounters::default(),
            slots: Slots::default(),
            handshakes: 0,
            arrivals: Waiting::with_patience(0),
            awaits_admission: false,
            strangers: Waiting::with_patience(STRANGER_NS),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            writable: VecDeque::new(),
            sweep: Sweep::default(),
        }
    }

    pub(crate) fn set_limits(&mut self, limits: FabricLimits) {
        self.limits = limits.after(self.limits);
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is room for one more connection whose hellos are through, or that this end opens.
    pub(super) fn has_room(&self, is_known: bool) -> bool {
        let kept = match (self.awaits_admission, is_known) {
            (false, _) => 0,
            (true, false) => KEPT,
            (true, true) => 2 * KEPT,
        };
        self.len() - self.handshakes < self.limits.connections_max + kept
    }

    /// Whose hello has been awaited for longest, if as many are awaited as may be: it makes room for the
    /// next. Who is silent keeps nobody out, however many they are.
    pub(super) fn handshake_to_evict(&mut self) -> Option<ConnectionId> {
        if self.handshakes < self.limits.handshakes_max {
            return None;
        }
        let (now_ns, slots) = (self.now_ns(), &self.slots);
        self.arrivals.take_oldest(now_ns, |id| slots.get(id).is_some_and(Connection::is_hello_awaited))
    }

    /// The hellos of a connection are through.
    pub(super) fn opened(&mut self, id: ConnectionId) {
        let now_ns = self.now_ns();
        let Some(connection) = self.slots.get_mut(id) else { return };
        self.handshakes -= usize::from(connection.is_hello_awaited());
        connection.phase = ConnectionPhase::Open;
        connection.received_ns = now_ns;
        if self.awaits_admission && !connection.admitted {
            let slots = &self.slots;
            let waits = |id| slots.get(id).is_some_and(Connection::is_stranger);
            self.strangers.push(id, now_ns, slots.len(), waits);
        }
    }

    /// Its user knows who the peer is: it makes room for nobody.
    pub(super) fn admit(&mut self, id: ConnectionId) {
        if let Some(connection) = self.slots.get_mut(id) {
            connection.admitted = true;
        }
    }

    /// Whether its user knows who the peer is, or does not say so of any.
    #[cfg(feature = "verbs")]
    pub(crate) fn is_admitted(&self, id: ConnectionId) -> bool {
        self.slots.get(id).is_some_and(|connection| connection.admitted || !self.awaits_admission)
    }

    /// The connection that has waited for longest to be admitted, once that is too long. Whoever says a hello
    /// and nothing of who they are keeps nobody out for longer, however many they are.
    pub(super) fn stranger_to_evict(&mut self) -> Option<ConnectionId> {
        let (now_ns, slots) = (self.now_ns(), &self.slots);
        self.strangers.take_oldest(now_ns, |id| slots.get(id).is_some_and(Connection::is_stranger))
    }

    /// The connection, unless it is gone.
    #[inline]
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection<L>> {
        self.slots.get(id)
    }

    /// The connection, unless it is gone.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection<L>> {
        self.slots.get_mut(id)
    }

    /// The open connections whose tokens are such.
    pub(crate) fn open_with(&self, is_such: impl Fn(&[u8]) -> bool) -> Vec<ConnectionId> {
        let open = self.slots.iter().filter(|connection| connection.is_open());
        open.filter(|connection| is_such(&connection.token)).map(|connection| connection.id).collect()
    }

    /// The connection, unless it is gone, with the counters.
    #[inline]
    pub(crate) fn get_counted(
        &mut self,
        id: ConnectionId,
    ) -> Option<(&mut Connection<L>, &mut FabricCounters)> {
        Some((self.slots.get_mut(id)?, &mut self.counters))
    }

    /// The time, as it was given last.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.sweep.now_ns()
    }

    /// Gives a connection its id, with that mark, and its place.
    pub(super) fn insert(&mut self, mark: u64, started: Started) -> ConnectionId {
        let (received_ns, message_bytes_max) = (self.now_ns(), self.limits.message_bytes_max);
        let Started { socket, peer, phase, failed } = started;
        let accepted = phase == ConnectionPhase::HelloAwaited;
        let id = self.slots.insert(mark, |id| Connection {
            id,
            socket,
            peer,
            phase,
            accepted,
            admitted: !accepted,
            message_bytes_max,
            received_ns,
            readable: false,
            hung_up: false,
            queued: false,
            dirty: false,
            blocked: false,
            watches_room: false,
            full: false,
            token: Box::default(),
            ending: failed,
            link: L::default(),
        });
        if accepted {
            self.handshakes += 1;
            let slots = &self.slots;
            let waits = |id| slots.get(id).is_some_and(Connection::is_hello_awaited);
            self.arrivals.push(id, received_ns, self.handshakes, waits);
        }
        id
    }

    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<Box<Connection<L>>> {
        let connection = self.slots.remove(id)?;
        self.handshakes -= usize::from(connection.is_hello_awaited());
        Some(connection)
    }

    pub(crate) fn send_parts(&mut self, id: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        let connection = self.slots.get_mut(id).filter(|connection| !connection.link.is_broken());
        let connection = connection.ok_or(SendError::Closed)?;
        let length = parts.iter().map(|part| part.len()).sum();
        let max = connection.message_bytes_max;
        let framed_length = u32::try_from(length).ok().filter(|_| length <= max);
        let framed_length = framed_length.ok_or(SendError::TooLong { length, max })?;
        let output_bytes = connection.link.pending() + L::framed_bytes(length);
        if output_bytes > self.limits.connection_output_bytes_max {
            connection.full = true;
            self.counters.output_full += 1;
            return Err(SendError::Full);
        }
        connection.link.push(framed_length, parts);
        self.counters.messages_sent += 1;
        if !std::mem::replace(&mut connection.dirty, true) {
            self.dirty.push(id);
        }
        Ok(())
    }

    /// Puts a connection on the list for the next flush.
    pub(crate) fn mark_dirty(&mut self, id: ConnectionId) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        if !std::mem::replace(&mut connection.dirty, true) {
            self.dirty.push(id);
        }
    }

    /// Puts a connection on the list of those to be served.
    pub(crate) fn queue(&mut self, id: ConnectionId) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        if !std::mem::replace(&mut connection.queued, true) {
            self.ready.push_back(id);
        }
    }

    pub(super) fn queue_if_readable(&mut self, id: ConnectionId) {
        let high_water = self.limits.output_high_water();
        let Some(connection) = self.slots.get_mut(id) else { return };
        if connection.readable && !connection.queued && !connection.is_paused(high_water) {
            connection.queued = true;
            self.ready.push_back(id);
        }
    }

    /// After output went: a waiting sender is notified, and a connection that was not read because of it is
    /// read again.
    pub(super) fn output_went(&mut self, id: ConnectionId) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        if connection.link.pending() > self.limits.output_high_water() {
            return;
        }
        if std::mem::take(&mut connection.full) && !connection.link.is_broken() {
            self.writable.push_back(id);
        }
        if connection.readable && !connection.queued {
            connection.queued = true;
            self.ready.push_back(id);
        }
    }

    /// Ends a connection where no events can be reported: the next poll does it.
    pub(crate) fn end_later(&mut self, id: ConnectionId, reason: CloseReason) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        connection.ending = Some(reason);
        self.queue(id);
    }

    /// Counts the end of a connection that was taken out, and returns what to report of it; one that never
    /// was a connection to the user was refused, unless it left by itself.
    pub(super) fn count_end(&mut self, connection: &Connection<L>, reason: CloseReason) -> Event<'static> {
        if matches!(reason, CloseReason::HandshakeTimeout | CloseReason::Idle | CloseReason::Stalled) {
            self.counters.timed_out += 1;
        }
        if connection.phase == ConnectionPhase::HelloAwaited {
            let asked = CloseReason::Stranger(Stranger::Probe);
            self.counters.refused += u64::from(reason != CloseReason::PeerClosed && reason != asked);
            return Event::Refused { peer: connection.peer, reason };
        }
        self.counters.closed += 1;
        Event::Closed { connection: connection.id, reason }
    }

    /// Whether no connection has anything to do for a poll.
    pub(super) fn is_quiet(&self) -> bool {
        self.ready.is_empty() && self.writable.is_empty()
    }

    /// Whether a flush would look at something.
    pub(super) fn has_output(&self) -> bool {
        !self.dirty.is_empty()
    }

    pub(crate) fn counters(&self) -> FabricCounters {
        FabricCounters { connections: self.len() as u64, ..self.counters }
    }

    /// Takes the time in, and ends what is overdue. Whether this was one of the looks for time-outs; there is
    /// none while the host is cut off.
    pub(super) fn tick(&mut self, now_ns: u64, cut_off: bool) -> bool {
        let Tick { first, due } = self.sweep.tick(now_ns, cut_off);
        if first {
            self.slots.iter_mut().for_each(|connection| connection.received_ns = now_ns);
        }
        if due {
            for (id, reason) in self.overdue(now_ns) {
                self.end_later(id, reason);
            }
        }
        due
    }

    fn overdue(&mut self, now_ns: u64) -> Vec<(ConnectionId, CloseReason)> {
        let limits = self.limits;
        let judge = |connection: &mut Connection<L>| {
            connection.link.relax();
            let silent_ns = now_ns.saturating_sub(connection.received_ns);
            let pending = connection.link.pending() > 0;
            limits.overdue(connection.is_open(), silent_ns, pending).map(|reason| (connection.id, reason))
        };
        self.slots.iter_mut().filter_map(judge).collect()
    }
}
