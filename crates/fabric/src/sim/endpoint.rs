//! The simulated endpoint as its users see it.

use std::io;
use std::os::fd::BorrowedFd;

use crate::address::Address;
use crate::close::CloseReason;
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Endpoint, Event};
use crate::error::{FabricError, SendError};
use crate::greeting::Greeting;
use crate::limits::FabricLimits;

use super::link::{ACCEPTOR, Arrival, Link, LinkId, Segment, Side};
use super::network::{NetworkState, SimNetwork, chance};
use super::read_state::Completed;

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
    pub(super) endpoint: usize,
}

impl SimNetwork {
    /// A host's endpoint that accepts; it takes the place of an earlier one, as a restarted process does.
    #[must_use]
    pub fn listen(&self, host: u32, limits: FabricLimits, greeting: Greeting) -> SimEndpoint {
        let mut state = self.lock();
        let endpoint = state.add_endpoint(host, limits, greeting);
        state.listening.insert(host, endpoint);
        SimEndpoint { network: self.clone(), endpoint }
    }

    /// An endpoint on a host that only connects.
    #[must_use]
    pub fn client(&self, host: u32, limits: FabricLimits) -> SimEndpoint {
        let endpoint = self.lock().add_endpoint(host, limits, Greeting::default());
        SimEndpoint { network: self.clone(), endpoint }
    }
}

impl Endpoint for SimEndpoint {
    fn connect(&mut self, address: &Address) -> Result<ConnectionId, FabricError> {
        let Address::Sim(host) = *address else {
            return Err(FabricError::AddressUnsupported { address: *address });
        };
        let mut state = self.network.lock();
        let endpoint = &state.endpoints[self.endpoint];
        if !endpoint.alive {
            return Err(FabricError::Connect { source: io::ErrorKind::NetworkDown.into() });
        }
        let max = endpoint.limits.connections_max;
        if endpoint.connections.len() >= max {
            return Err(FabricError::TooManyConnections { max });
        }
        Ok(state.make_link(self.endpoint, host))
    }

    fn send_parts(&mut self, connection: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        self.network.lock().send(self.endpoint, connection, parts)
    }

    fn flush(&mut self) {
        self.network.lock().flush(self.endpoint);
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        if !self.network.lock().endpoints[self.endpoint].has_events() {
            return 0;
        }
        let mut reported = 0;
        loop {
            // Taken out first: the sink may use the network.
            let Some((peer, reason)) = self.network.lock().endpoints[self.endpoint].refused.pop_front()
            else {
                break;
            };
            sink(Event::Refused { peer, reason });
            reported += 1;
        }
        // Completions first: those of a connection that ended come before its `Closed`.
        let completed = std::mem::take(&mut self.network.lock().endpoints[self.endpoint].completed);
        for Completed { connection, tag, outcome } in completed {
            sink(Event::ReadDone {
                connection,
                tag,
                outcome: outcome.as_deref().map_err(|failure| *failure),
            });
            reported += 1;
        }
        let turns = self.network.lock().endpoints[self.endpoint].ready.len();
        for _ in 0..turns {
            if reported >= EVENTS_PER_POLL {
                break;
            }
            let Some(connection) = self.network.lock().endpoints[self.endpoint].ready.pop_front() else {
                break;
            };
            reported += self.turn(connection, sink);
        }
        reported
    }

    fn tick(&mut self, now_ns: u64) {
        self.network.lock().tick(self.endpoint, now_ns);
    }

    fn set_limits(&mut self, limits: FabricLimits) {
        let endpoint = &mut self.network.lock().endpoints[self.endpoint];
        endpoint.limits = limits.after(endpoint.limits);
    }

    fn close(&mut self, connection: ConnectionId) {
        self.network.lock().close(self.endpoint, connection);
    }

    fn output_pending(&self, connection: ConnectionId) -> usize {
        let mut state = self.network.lock();
        state.end_of(self.endpoint, connection).map_or(0, |(link, side)| link.ends[side].output_bytes)
    }

    fn connections(&self) -> usize {
        self.network.lock().endpoints[self.endpoint].connections.len()
    }

    fn prepare_sleep(&mut self) -> bool {
        let state = self.network.lock();
        let endpoint = &state.endpoints[self.endpoint];
        !endpoint.has_events() && endpoint.dirty.is_empty() && endpoint.posted.is_empty()
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> FabricCounters {
        self.network.lock().counters(self.endpoint)
    }
}

impl SimEndpoint {
    /// Reports what has arrived on one connection, some of it.
    fn turn(&mut self, connection: ConnectionId, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        for count in 0..EVENTS_PER_TURN {
            let Some(arrival) = self.network.lock().next_arrival(self.endpoint, connection) else {
                return count;
            };
            match arrival {
                Arrival::Accepted(peer) => sink(Event::Accepted { connection, peer, token: &[] }),
                Arrival::Connected(greeting) => sink(Event::Connected { connection, greeting: &greeting }),
                Arrival::Message(message) => sink(Event::Message { connection, message: &message }),
                Arrival::Writable => sink(Event::Writable { connection }),
                Arrival::Closed(reason) => sink(Event::Closed { connection, reason }),
            }
        }
        self.network.lock().queue_again(self.endpoint, connection);
        EVENTS_PER_TURN
    }
}

impl Drop for SimEndpoint {
    fn drop(&mut self) {
        self.network.lock().leave(self.endpoint);
    }
}

impl NetworkState {
    pub(super) fn end_of(&mut self, endpoint: usize, connection: ConnectionId) -> Option<(&mut Link, Side)> {
        let (link, side) = *self.endpoints[endpoint].connections.get(&connection)?;
        Some((self.links.get_mut(&link)?, side))
    }

    fn send(&mut self, endpoint: usize, connection: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        let output_bytes_max = self.endpoints[endpoint].limits.connection_output_bytes_max;
        let (link, side) = self.end_of(endpoint, connection).ok_or(SendError::Closed)?;
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
            self.endpoints[endpoint].counters.output_full += 1;
            return Err(SendError::Full);
        }
        end.output_bytes += PREFIX_BYTES + length;
        end.output.push_back(parts.concat().into_boxed_slice());
        let dirty = std::mem::replace(&mut end.dirty, true);
        let endpoint = &mut self.endpoints[endpoint];
        endpoint.counters.messages_sent += 1;
        if !dirty {
            endpoint.dirty.push(connection);
        }
        Ok(())
    }

    fn flush(&mut self, endpoint: usize) {
        for connection in std::mem::take(&mut self.endpoints[endpoint].dirty) {
            let Some((link, side)) = self.endpoints[endpoint].connections.get(&connection).copied() else {
                continue;
            };
            self.flush_end(endpoint, link, side);
        }
        self.flush_reads(endpoint);
    }

    fn flush_end(&mut self, endpoint: usize, id: LinkId, side: Side) {
        let high_water = self.endpoints[endpoint].limits.output_high_water();
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
            self.endpoints[endpoint].counters.bytes_sent += bytes as u64;
            if chance(&mut self.random, self.options.reset_per_million) {
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
        } else if resumed && let Some((endpoint, connection)) = end.held {
            self.queue_again(endpoint, connection);
        }
    }

    /// Takes the next arrival; none while there is none or the connection's output is over its high-water
    /// mark.
    fn next_arrival(&mut self, endpoint: usize, connection: ConnectionId) -> Option<Arrival> {
        let high_water = self.endpoints[endpoint].limits.output_high_water();
        let now_ns = self.endpoints[endpoint].now_ns();
        let (id, side) = *self.endpoints[endpoint].connections.get(&connection)?;
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
        end.received_ns = now_ns;
        match &arrival {
            Arrival::Message(message) => self.polled(endpoint, id, side, PREFIX_BYTES + message.len()),
            Arrival::Connected(_) => self.wake_output(id, side),
            Arrival::Closed(_) => self.let_go(endpoint, connection),
            Arrival::Accepted(_) | Arrival::Writable => {}
        }
        Some(arrival)
    }

    /// A message was polled: it no longer fills the sender's window.
    fn polled(&mut self, endpoint: usize, id: LinkId, side: Side, bytes: usize) {
        let counters = &mut self.endpoints[endpoint].counters;
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
        if let Some((endpoint, connection)) = end.held {
            end.dirty = true;
            self.endpoints[endpoint].dirty.push(connection);
        }
    }

    fn queue_again(&mut self, endpoint: usize, connection: ConnectionId) {
        let Some((link, side)) = self.end_of(endpoint, connection) else { return };
        let end = &mut link.ends[side];
        if !end.arrived.is_empty() && !std::mem::replace(&mut end.queued, true) {
            self.endpoints[endpoint].ready.push_back(connection);
        }
    }

    /// Forgets an endpoint's end of a link without a word to the peer.
    fn let_go(&mut self, endpoint: usize, connection: ConnectionId) {
        let Some((id, side)) = self.endpoints[endpoint].connections.remove(&connection) else { return };
        self.endpoints[endpoint].counters.closed += 1;
        self.forget_reads(endpoint, Some(connection));
        if let Some(link) = self.links.get_mut(&id) {
            let end = &mut link.ends[side];
            end.held = None;
            end.output.clear();
            end.arrived.clear();
        }
        self.forget_if_over(id);
    }

    pub(super) fn close(&mut self, endpoint: usize, connection: ConnectionId) {
        let Some((id, side)) = self.endpoints[endpoint].connections.get(&connection).copied() else { return };
        self.flush_end(endpoint, id, side);
        let ended = self.links.get(&id).is_none_or(|link| link.ends[side].ended);
        if !ended {
            self.transmit(id, side, Segment::End);
        }
        self.let_go(endpoint, connection);
        self.endpoints[endpoint].completed.retain(|completed| completed.connection != connection);
    }

    /// The endpoint is dropped.
    fn leave(&mut self, endpoint: usize) {
        let connections: Vec<ConnectionId> = self.endpoints[endpoint].connections.keys().copied().collect();
        for connection in connections {
            self.close(endpoint, connection);
        }
        self.endpoints[endpoint].alive = false;
        self.listening.retain(|_, listening| *listening != endpoint);
        let host = self.endpoints[endpoint].host;
        if !self.host_alive(host) {
            self.end_registrations(host);
        }
    }

    fn tick(&mut self, endpoint: usize, now_ns: u64) {
        let first = self.endpoints[endpoint].clock_ns.replace(now_ns).is_none();
        let held: Vec<_> = self.endpoints[endpoint].connections.values().copied().collect();
        for (id, side) in held {
            let limits = self.endpoints[endpoint].limits;
            let Some(link) = self.links.get_mut(&id) else { continue };
            let end = &mut link.ends[side];
            if first {
                end.received_ns = now_ns;
            }
            let silent_ns = now_ns.saturating_sub(end.received_ns);
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
                self.time_out(endpoint, id, side, reason);
            }
        }
    }

    fn time_out(&mut self, endpoint: usize, id: LinkId, side: Side, reason: CloseReason) {
        self.endpoints[endpoint].counters.timed_out += 1;
        self.report(id, side, Arrival::Closed(reason));
        self.transmit(id, side, Segment::End);
    }
}
