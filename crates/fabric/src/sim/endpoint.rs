//! The simulated endpoint as its users see it.

use std::io;
use std::os::fd::BorrowedFd;

use crate::address::{Address, Host};
use crate::close::CloseReason;
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Endpoint, Event};
use crate::error::{FabricError, SendError};

use super::link::{ACCEPTOR, Arrival, Link, Segment, Side};
use super::network::{LinkId, SimNetwork, State};
use super::reads::Completed;

/// Events taken from one connection before the next one's turn.
const EVENTS_PER_TURN: usize = 64;
/// After so many events a poll serves no further connection.
const EVENTS_PER_POLL: usize = 1_024;
/// What a message costs beside its bytes, as on TCP.
const PREFIX_BYTES: usize = 4;

/// An endpoint on a [`SimNetwork`]. Dropping it closes its connections, as the end of a process does.
#[derive(Debug)]
pub struct SimEndpoint {
    pub(super) network: SimNetwork,
    pub(super) desk: usize,
}

impl SimEndpoint {
    pub(super) fn new(network: SimNetwork, desk: usize) -> SimEndpoint {
        SimEndpoint { network, desk }
    }
}

impl Endpoint for SimEndpoint {
    fn connect(&mut self, address: &Address) -> Result<ConnectionId, FabricError> {
        let Host::Sim(host) = address.host else {
            return Err(FabricError::AddressUnsupported { host: address.host });
        };
        let mut state = self.network.lock();
        let desk = &state.desks[self.desk];
        if !desk.alive {
            return Err(FabricError::Connect { source: io::ErrorKind::NetworkDown.into() });
        }
        let max = desk.limits.connections_max;
        if desk.connections.len() >= max {
            return Err(FabricError::TooManyConnections { max });
        }
        Ok(state.make_link(self.desk, host, address.worker))
    }

    fn send_parts(&mut self, connection: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        self.network.lock().send(self.desk, connection, parts)
    }

    fn flush(&mut self) {
        self.network.lock().flush(self.desk);
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let mut reported = 0;
        loop {
            // Taken out first: the sink may use the network.
            let Some((peer, reason)) = self.network.lock().desks[self.desk].refused.pop_front() else {
                break;
            };
            sink(Event::Refused { peer, reason });
            reported += 1;
        }
        // Completions first: those of a connection that ended come before its `Closed`.
        let completed = std::mem::take(&mut self.network.lock().desks[self.desk].completed);
        for Completed { connection, tag, outcome } in completed {
            sink(Event::ReadDone {
                connection,
                tag,
                outcome: outcome.as_deref().map_err(|failure| *failure),
            });
            reported += 1;
        }
        let turns = self.network.lock().desks[self.desk].ready.len();
        for _ in 0..turns {
            if reported >= EVENTS_PER_POLL {
                break;
            }
            let Some(connection) = self.network.lock().desks[self.desk].ready.pop_front() else { break };
            reported += self.turn(connection, sink);
        }
        reported
    }

    fn tick(&mut self, now_ns: u64) {
        self.network.lock().tick(self.desk, now_ns);
    }

    fn close(&mut self, connection: ConnectionId) {
        self.network.lock().close(self.desk, connection);
    }

    fn output_pending(&self, connection: ConnectionId) -> usize {
        let mut state = self.network.lock();
        state.end_of(self.desk, connection).map_or(0, |(link, side)| link.ends[side].output_bytes)
    }

    fn connections(&self) -> usize {
        self.network.lock().desks[self.desk].connections.len()
    }

    fn prepare_sleep(&mut self) -> bool {
        let state = self.network.lock();
        let desk = &state.desks[self.desk];
        desk.ready.is_empty()
            && desk.refused.is_empty()
            && desk.dirty.is_empty()
            && desk.posted.is_empty()
            && desk.completed.is_empty()
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> FabricCounters {
        self.network.lock().counters(self.desk)
    }
}

impl SimEndpoint {
    /// Reports what has arrived on one connection, some of it.
    fn turn(&mut self, connection: ConnectionId, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        for count in 0..EVENTS_PER_TURN {
            let Some(arrival) = self.network.lock().next_arrival(self.desk, connection) else { return count };
            match arrival {
                Arrival::Accepted(peer) => sink(Event::Accepted { connection, peer }),
                Arrival::Connected(greeting) => sink(Event::Connected { connection, greeting: &greeting }),
                Arrival::Message(message) => sink(Event::Message { connection, message: &message }),
                Arrival::Writable => sink(Event::Writable { connection }),
                Arrival::Closed(reason) => sink(Event::Closed { connection, reason }),
            }
        }
        self.network.lock().queue_again(self.desk, connection);
        EVENTS_PER_TURN
    }
}

impl Drop for SimEndpoint {
    fn drop(&mut self) {
        self.network.lock().leave(self.desk);
    }
}

impl State {
    pub(super) fn end_of(&mut self, desk: usize, connection: ConnectionId) -> Option<(&mut Link, Side)> {
        let (link, side) = *self.desks[desk].connections.get(&connection)?;
        Some((self.links.get_mut(&link)?, side))
    }

    fn send(&mut self, desk: usize, connection: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        let output_bytes_max = self.desks[desk].limits.connection_output_bytes_max;
        let (link, side) = self.end_of(desk, connection).ok_or(SendError::Closed)?;
        let end = &mut link.ends[side];
        if end.ended {
            return Err(SendError::Closed);
        }
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > end.message_bytes_max {
            return Err(SendError::TooLong { length, max: end.message_bytes_max });
        }
        if end.output_bytes + PREFIX_BYTES + length > output_bytes_max {
            end.full = true;
            self.desks[desk].counters.output_full += 1;
            return Err(SendError::Full);
        }
        end.output_bytes += PREFIX_BYTES + length;
        end.output.push_back(parts.concat().into_boxed_slice());
        let dirty = std::mem::replace(&mut end.dirty, true);
        let desk = &mut self.desks[desk];
        desk.counters.messages_sent += 1;
        if !dirty {
            desk.dirty.push(connection);
        }
        Ok(())
    }

    fn flush(&mut self, desk: usize) {
        for connection in std::mem::take(&mut self.desks[desk].dirty) {
            let Some((link, side)) = self.desks[desk].connections.get(&connection).copied() else { continue };
            self.flush_end(desk, link, side);
        }
        self.flush_reads(desk);
    }

    fn flush_end(&mut self, desk: usize, id: LinkId, side: Side) {
        let high_water = self.desks[desk].limits.output_high_water();
        let window_bytes = self.options.window_bytes.max(1);
        loop {
            let Some(link) = self.links.get_mut(&id) else { return };
            let end = &mut link.ends[side];
            end.dirty = false;
            if !end.open || end.ended || end.in_flight_bytes >= window_bytes {
                break;
            }
            let Some(message) = end.output.pop_front() else { break };
            let bytes = PREFIX_BYTES + message.len();
            end.output_bytes -= bytes;
            end.in_flight_bytes += bytes;
            self.desks[desk].counters.bytes_sent += bytes as u64;
            if self.random.chance(self.options.reset_per_million) {
                self.break_link(id, std::io::ErrorKind::ConnectionReset);
                return;
            }
            self.transmit(id, side, Segment::Message(message));
        }
        let Some(link) = self.links.get_mut(&id) else { return };
        let end = &mut link.ends[side];
        if end.ended || end.output_bytes > high_water {
            return;
        }
        let writable = std::mem::take(&mut end.full);
        let resumed = !end.arrived.is_empty();
        if writable {
            self.report(id, side, Arrival::Writable);
        } else if resumed && let Some((desk, connection)) = end.held {
            self.queue_again(desk, connection);
        }
    }

    /// Takes the next arrival; none while there is none or the connection's output is over its high-water
    /// mark.
    fn next_arrival(&mut self, desk: usize, connection: ConnectionId) -> Option<Arrival> {
        let high_water = self.desks[desk].limits.output_high_water();
        let now_ns = self.desks[desk].now_ns();
        let (id, side) = *self.desks[desk].connections.get(&connection)?;
        let link = self.links.get_mut(&id)?;
        let end = &mut link.ends[side];
        end.queued = false;
        // A connector always reads: were both ends to wait for the other, nobody would ever go on.
        let paused = side == ACCEPTOR
            && end.output_bytes > high_water
            && matches!(end.arrived.front(), Some(Arrival::Message(_)));
        if paused && !end.ended {
            return None;
        }
        let arrival = end.arrived.pop_front()?;
        end.heard_ns = now_ns;
        match &arrival {
            Arrival::Message(message) => self.polled(desk, id, side, PREFIX_BYTES + message.len()),
            Arrival::Connected(_) => self.wake_output(id, side),
            Arrival::Closed(_) => self.let_go(desk, connection),
            Arrival::Accepted(_) | Arrival::Writable => {}
        }
        Some(arrival)
    }

    /// A message was polled: it no longer fills the sender's window.
    fn polled(&mut self, desk: usize, id: LinkId, side: Side, bytes: usize) {
        let counters = &mut self.desks[desk].counters;
        counters.messages_received += 1;
        counters.bytes_received += bytes as u64;
        let Some(link) = self.links.get_mut(&id) else { return };
        let sender = &mut link.ends[1 - side];
        sender.in_flight_bytes = sender.in_flight_bytes.saturating_sub(bytes);
        self.wake_output(id, 1 - side);
    }

    /// The end's endpoint has to flush what waits there.
    fn wake_output(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let end = &mut link.ends[side];
        if end.output.is_empty() || end.dirty {
            return;
        }
        if let Some((desk, connection)) = end.held {
            end.dirty = true;
            self.desks[desk].dirty.push(connection);
        }
    }

    fn queue_again(&mut self, desk: usize, connection: ConnectionId) {
        let Some((link, side)) = self.end_of(desk, connection) else { return };
        let end = &mut link.ends[side];
        if !end.arrived.is_empty() && !std::mem::replace(&mut end.queued, true) {
            self.desks[desk].ready.push_back(connection);
        }
    }

    /// Forgets an endpoint's end of a link without a word to the peer.
    fn let_go(&mut self, desk: usize, connection: ConnectionId) {
        let Some((id, side)) = self.desks[desk].connections.remove(&connection) else { return };
        self.desks[desk].counters.closed += 1;
        self.forget_reads(desk, Some(connection));
        if let Some(link) = self.links.get_mut(&id) {
            let end = &mut link.ends[side];
            end.held = None;
            end.output.clear();
            end.arrived.clear();
        }
        self.forget_if_over(id);
    }

    pub(super) fn close(&mut self, desk: usize, connection: ConnectionId) {
        let Some((id, side)) = self.desks[desk].connections.get(&connection).copied() else { return };
        self.flush_end(desk, id, side);
        let ended = self.links.get(&id).is_none_or(|link| link.ends[side].ended);
        if !ended {
            self.transmit(id, side, Segment::End);
        }
        self.let_go(desk, connection);
        self.desks[desk].completed.retain(|completed| completed.connection != connection);
    }

    /// The endpoint is dropped.
    fn leave(&mut self, desk: usize) {
        let connections: Vec<ConnectionId> = self.desks[desk].connections.keys().copied().collect();
        for connection in connections {
            self.close(desk, connection);
        }
        self.desks[desk].alive = false;
        self.listening.retain(|_, listening| *listening != desk);
        let host = self.desks[desk].host;
        if !self.host_alive(host) {
            self.end_registrations(host);
        }
    }

    fn tick(&mut self, desk: usize, now_ns: u64) {
        let first = self.desks[desk].clock_ns.replace(now_ns).is_none();
        let held: Vec<_> = self.desks[desk].connections.values().copied().collect();
        for (id, side) in held {
            let limits = self.desks[desk].limits;
            let Some(link) = self.links.get_mut(&id) else { continue };
            let end = &mut link.ends[side];
            if first {
                end.heard_ns = now_ns;
            }
            let silent_ns = now_ns.saturating_sub(end.heard_ns);
            let reason = if end.ended {
                continue;
            } else if !end.open {
                (silent_ns >= limits.handshake_timeout_ns).then_some(CloseReason::HandshakeTimeout)
            } else if limits.idle_timeout_ns == 0 || silent_ns < limits.idle_timeout_ns {
                None
            } else if end.output_bytes > 0 {
                Some(CloseReason::Stalled)
            } else {
                Some(CloseReason::Idle)
            };
            if let Some(reason) = reason {
                self.time_out(desk, id, side, reason);
            }
        }
    }

    fn time_out(&mut self, desk: usize, id: LinkId, side: Side, reason: CloseReason) {
        self.desks[desk].counters.timed_out += 1;
        self.report(id, side, Arrival::Closed(reason));
        self.transmit(id, side, Segment::End);
    }
}
