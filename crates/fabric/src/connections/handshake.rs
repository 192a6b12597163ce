//! From a socket to an open connection: connecting, who may come in, and the hello in both directions.

use cell_terms::mutant::{Mutant, planted};

use crate::address::{Address, PeerAddress};
use crate::close::{CloseReason, HelloRefusal};
use crate::endpoint::{ConnectionId, Event};
use crate::error::FabricError;
use crate::hello::{Hello, WORKER};
use crate::limits::MESSAGE_BYTES_MAX;
use crate::tls::Socket;

use super::connection::Started;
use super::handoff::{Handed, Taker};
use super::listener::Listener;
use super::mark::wanted_number;
use super::messenger::Messenger;
use super::transport::{Greeted, Sink, Transport};

/// Sockets accepted in one poll.
const ACCEPTED_PER_POLL: usize = 64;

impl<T: Transport> Messenger<T> {
    /// Begins a connection whose id has that mark; what goes wrong after the socket exists is an event.
    ///
    /// # Errors
    /// An address of another kind, the limit of connections, or no socket.
    pub(crate) fn connect(&mut self, address: &Address, mark: u64) -> Result<ConnectionId, FabricError> {
        let limits = self.table.limits;
        if !self.table.has_room(false) {
            return Err(FabricError::TooManyConnections { max: limits.connections_max });
        }
        let hello = Hello::of_connector(wanted_number(mark), limits.message_bytes_max);
        let started = self.transport.connect(address, &hello)?;
        self.adopt(mark, started)
    }

    /// Accepts what is waiting, some of it.
    pub(super) fn accept(&mut self, sink: &mut Sink<'_>) {
        for _ in 0..ACCEPTED_PER_POLL {
            let Some(listening) = &mut self.listening else { return };
            let Some((mut socket, peer)) = listening.next() else { return };
            if !listening.listener.admits(&peer) {
                self.turn_away(&mut socket, peer, WORKER, HelloRefusal::NotPermitted, sink);
            } else {
                self.make_room(sink);
                // What the kernel does not take is closed, as if it had never been accepted.
                let _ = self.adopt(T::MARK, Started::accepted(socket, peer));
            }
        }
    }

    /// Turns the oldest one away that has not said its hello, if they are too many.
    fn make_room(&mut self, sink: &mut Sink<'_>) {
        let Some(id) = self.table.handshake_to_evict() else { return };
        let refusal = HelloRefusal::TooManyConnections;
        if let Some(connection) = self.table.get_mut(id) {
            // It may be late and not silent: it is asked to come again.
            T::refuse(&mut connection.socket, &refusal_of(WORKER, refusal));
        }
        self.table.counters.evicted += 1;
        self.end(id, CloseReason::Refused(refusal), sink);
    }

    /// Goes on with a connection that is not open.
    pub(super) fn shake_hands(&mut self, id: ConnectionId, sink: &mut Sink<'_>) -> Result<(), CloseReason> {
        let Some(connection) = self.table.get_mut(id) else { return Ok(()) };
        match self.transport.receive_hello(connection) {
            Ok(None) => Ok(()),
            Ok(Some(greeted)) if connection.accepted => self.judge_hello(id, greeted.hello, sink),
            Ok(Some(greeted)) => self.judge_answer(id, greeted, sink),
            Err(reason) => {
                if let Some(refusal) = reason.refusal().filter(|_| connection.accepted) {
                    T::refuse(&mut connection.socket, &refusal_of(WORKER, refusal));
                }
                Err(reason)
            }
        }
    }

    /// An acceptor's: answers the hello, or hands the socket over to who does, or refuses it.
    fn judge_hello(
        &mut self,
        id: ConnectionId,
        hello: Hello,
        sink: &mut Sink<'_>,
    ) -> Result<(), CloseReason> {
        let Some(acceptor) = &self.acceptor else { return Ok(()) };
        let is_known = self.is_known(id);
        let queue = match acceptor.taker(&hello) {
            Taker::Listener if self.table.has_room(is_known) || self.evict_stranger(sink) => {
                return self.welcome(id, &hello, sink);
            }
            Taker::Listener => Err(HelloRefusal::TooManyConnections),
            Taker::Queue(queue) => Ok(queue),
            Taker::Nobody(refusal) => Err(refusal),
        };
        let Some(connection) = self.table.remove(id) else { return Ok(()) };
        let (socket, peer) = (connection.socket, connection.peer);
        self.unwatch(&socket);
        let handed = Handed { socket, peer, hello: Box::new(hello) };
        let left = match queue {
            Ok(queue) => queue.leave(handed).map_err(|handed| (handed, HelloRefusal::NoSuchWorker)),
            Err(refusal) => Err((handed, refusal)),
        };
        if let Err((Handed { mut socket, hello, .. }, refusal)) = left {
            self.turn_away(&mut socket, peer, hello.worker, refusal, sink);
        }
        Ok(())
    }

    /// Ends the connection that has waited for longest to be admitted; false if none waits.
    fn evict_stranger(&mut self, sink: &mut Sink<'_>) -> bool {
        let Some(id) = self.table.stranger_to_evict() else { return false };
        self.table.counters.evicted += 1;
        self.end(id, CloseReason::Refused(HelloRefusal::TooManyConnections), sink);
        true
    }

    /// Whether the kernel says of a connection's peer that places are kept for it.
    fn is_known(&self, id: ConnectionId) -> bool {
        let listener = self.listener();
        let peer = self.table.get(id).map(|connection| connection.peer);
        listener.zip(peer).is_some_and(|(listener, peer)| listener.knows(&peer))
    }

    /// Takes the sockets that another endpoint accepted for this one.
    pub(super) fn take_handed(&mut self, sink: &mut Sink<'_>) {
        if !std::mem::take(&mut self.handed_over) {
            return;
        }
        let Some(queue) = self.acceptor.as_ref().and_then(|acceptor| acceptor.own_queue.as_ref()) else {
            return;
        };
        let readers = self.acceptor.as_ref().and_then(|acceptor| acceptor.readers.clone());
        let now_ns = self.table.now_ns();
        for Handed { mut socket, peer, hello } in queue.take() {
            let is_refused =
                readers.as_ref().is_some_and(|readers| !readers.admits(peer, &hello.token, now_ns));
            if is_refused && !planted(Mutant::ReaderUnjudged) {
                self.turn_away(&mut socket, peer, hello.worker, HelloRefusal::NotPermitted, sink);
                continue;
            }
            if !self.table.has_room(false) {
                self.turn_away(&mut socket, peer, hello.worker, HelloRefusal::TooManyConnections, sink);
                continue;
            }
            // What the kernel does not take is as lost as a reset: the peer sees its socket close.
            let adopted = self.adopt(T::MARK, Started::accepted(socket, peer));
            let Ok(id) = adopted else { continue };
            if let Err(reason) = self.welcome(id, &hello, sink) {
                if let (Some(refusal), Some(connection)) = (reason.refusal(), self.table.get_mut(id)) {
                    T::refuse(&mut connection.socket, &refusal_of(hello.worker, refusal));
                }
                self.end(id, reason, sink);
            }
        }
    }

    /// Answers a good hello and opens the connection.
    fn welcome(&mut self, id: ConnectionId, hello: &Hello, sink: &mut Sink<'_>) -> Result<(), CloseReason> {
        let message_bytes_max = self.table.limits.message_bytes_max;
        let (Some(acceptor), Some(connection)) = (&self.acceptor, self.table.get_mut(id)) else {
            return Ok(());
        };
        let answer = Hello {
            one_sided: acceptor.one_sided,
            greeting: acceptor.greeting.clone(),
            ..Hello::of_connector(hello.worker, message_bytes_max)
        };
        self.transport.welcome(connection, hello, &answer)?;
        connection.token.clone_from(&hello.token);
        let peer = connection.peer;
        self.open(id, hello);
        self.table.counters.accepted += 1;
        sink(Event::Accepted { connection: id, peer, token: &hello.token });
        Ok(())
    }

    /// A connector's: the acceptor has spoken.
    fn judge_answer(
        &mut self,
        id: ConnectionId,
        greeted: Greeted,
        sink: &mut Sink<'_>,
    ) -> Result<(), CloseReason> {
        if let Some(refusal) = greeted.hello.refusal {
            return Err(CloseReason::RefusedByPeer(refusal));
        }
        let Some(connection) = self.table.get_mut(id) else { return Ok(()) };
        self.transport.welcomed(connection, &greeted.hello, greeted.descriptors)?;
        self.open(id, &greeted.hello);
        self.table.counters.connected += 1;
        sink(Event::Connected { connection: id, greeting: &greeted.hello.greeting });
        Ok(())
    }

    fn open(&mut self, id: ConnectionId, hello: &Hello) {
        self.table.opened(id);
        let Some(connection) = self.table.get_mut(id) else { return };
        let theirs = usize::try_from(hello.message_bytes_max).unwrap_or(usize::MAX);
        connection.message_bytes_max = connection.message_bytes_max.min(theirs);
        // Sends that were accepted meanwhile leave with the next flush.
        self.table.mark_dirty(id);
    }

    /// Refuses a socket that has no place in the table.
    fn turn_away(
        &mut self,
        socket: &mut Socket,
        peer: PeerAddress,
        worker: u16,
        refusal: HelloRefusal,
        sink: &mut Sink<'_>,
    ) {
        T::refuse(socket, &refusal_of(worker, refusal));
        self.table.counters.refused += 1;
        self.table.counters.refused_full += u64::from(refusal == HelloRefusal::TooManyConnections);
        sink(Event::Refused { peer, reason: CloseReason::Refused(refusal) });
    }
}

fn refusal_of(worker: u16, refusal: HelloRefusal) -> Hello {
    Hello { refusal: Some(refusal), ..Hello::of_connector(worker, MESSAGE_BYTES_MAX) }
}
