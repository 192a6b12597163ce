//! From a socket to an open connection: connecting, who may come in, the hellos, and the memory that comes
//! with the acceptor's; and what goes over the socket of an open connection.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use crate::address::{Address, Host, PeerAddress};
use crate::close::CloseReason;
use crate::close::HelloRefusal;
use crate::endpoint::{ConnectionId, Event};
use crate::error::FabricError;
use crate::handoff::Handed;
use crate::hello::{Decoded, Hello};
use crate::registry::LedgerView;

use super::connection::{Connection, ConnectionPhase, Link};
use super::control::{self, Packet, RegionAnswer};
use super::listener::{is_trusted, open_socket, peer_user};
use super::messenger::{Messenger, Sink};

/// Packets of one connection that one poll reads.
const PACKETS_PER_POLL: usize = 16;
/// Sockets accepted in one poll.
const ACCEPTED_PER_POLL: usize = 64;
/// What an acceptor's socket may hold that its peer has not taken: a hello, or some answers, so that few
/// descriptors are ever under way to a peer that takes none.
const SEND_BUFFER_BYTES: usize = 8 * 1024;

impl Messenger {
    /// Begins a connection; what goes wrong after the socket exists is an event.
    pub(super) fn connect(&mut self, address: &Address) -> Result<ConnectionId, FabricError> {
        let Host::Shm(name) = address.host else {
            return Err(FabricError::AddressUnsupported { host: address.host });
        };
        if self.slots.len() >= self.limits.connections_max {
            return Err(FabricError::TooManyConnections { max: self.limits.connections_max });
        }
        let failed = |errno: Errno| FabricError::Connect { source: errno.into() };
        let socket = open_socket().map_err(failed)?;
        let target = name.socket_address().map_err(failed)?;
        let hello = Hello::of_connector(address.worker, self.limits.message_bytes_max);
        let bytes = hello.encode()?;
        let begun = self.meet(&socket, &target, &bytes);
        let user = *begun.as_ref().unwrap_or(&0);
        let id = self.adopt(socket, PeerAddress::Shm { user }, ConnectionPhase::AnswerAwaited)?;
        if let Err(reason) = begun {
            self.end_later(id, reason);
        }
        Ok(id)
    }

    /// Finds out who listens before anything is said to it, or taken from it: a name is anyone's who was
    /// there first, and a descriptor of somebody's own file system can hold up even who only closes it.
    fn meet(&self, socket: &OwnedFd, target: &SocketAddrUnix, hello: &[u8]) -> Result<u32, CloseReason> {
        rustix::net::connect(socket, target).map_err(CloseReason::network)?;
        let user = peer_user(socket).map_err(|error| CloseReason::Network(error.kind()))?;
        if !is_trusted(user, &self.acceptors) {
            return Err(CloseReason::AcceptorNotTrusted { user });
        }
        match control::send(socket, hello, &[]) {
            // It has been turned away already: its answer is to be read.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(user),
            Err(errno) => Err(CloseReason::network(errno)),
        }
    }

    /// Accepts what is waiting, some of it.
    pub(super) fn accept(&mut self, sink: &mut Sink<'_>) {
        for _ in 0..ACCEPTED_PER_POLL {
            let Some(listener) = self.listener.as_mut().filter(|listener| listener.ready) else { return };
            let Some((socket, user)) = listener.next() else { return };
            let (peer, admitted) = (PeerAddress::Shm { user }, listener.admits(user));
            // Without it a peer that takes nothing could have more descriptors under way.
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES);
            if !admitted {
                self.turn_away(&socket, peer, HelloRefusal::NotPermitted, sink);
            } else if self.slots.len() >= self.limits.connections_max {
                self.turn_away(&socket, peer, HelloRefusal::TooManyConnections, sink);
            } else if let Ok(id) = self.adopt(socket, peer, ConnectionPhase::HelloAwaited) {
                self.queue(id);
            }
        }
    }

    /// Reads a connection's packets, some of them.
    pub(super) fn serve(&mut self, id: ConnectionId, sink: &mut Sink<'_>) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        connection.queued = false;
        if let Some(reason) = connection.ending {
            return self.end(id, reason, sink);
        }
        for _ in 0..PACKETS_PER_POLL {
            let Some(connection) = self.slots.get_mut(id) else { return };
            let served = match control::receive(&connection.socket, !connection.accepted) {
                Ok(Some(packet)) => self.take_packet(id, packet, sink),
                Ok(None) => return self.hang_up(id, sink),
                Err(Errno::AGAIN) => {
                    connection.readable = false;
                    return;
                }
                // Said once, before what the peer had sent.
                Err(Errno::INTR | Errno::CONNRESET) => Ok(()),
                Err(errno) => Err(CloseReason::network(errno)),
            };
            if let Err(reason) = served {
                return self.end(id, reason, sink);
            }
        }
        self.queue(id);
    }

    /// The peer's end is closed: an open connection ends after what is in its ring.
    fn hang_up(&mut self, id: ConnectionId, sink: &mut Sink<'_>) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        if connection.phase == ConnectionPhase::Open {
            connection.hung_up = true;
        } else {
            self.end(id, CloseReason::PeerClosed, sink);
        }
    }

    fn take_packet(
        &mut self,
        id: ConnectionId,
        packet: Packet,
        sink: &mut Sink<'_>,
    ) -> Result<(), CloseReason> {
        let Some(connection) = self.slots.get_mut(id) else { return Ok(()) };
        match connection.phase {
            // It has done its work: the poll that reads it looks at the ring as well.
            ConnectionPhase::Open if control::is_bell(&packet) => Ok(()),
            ConnectionPhase::Open if connection.accepted => self.hand_region(id, &packet),
            ConnectionPhase::Open => self.take_region(id, packet, sink),
            phase => match (decode_hello(&packet.bytes), phase) {
                (Ok(hello), ConnectionPhase::HelloAwaited) => self.judge_hello(id, hello, sink),
                (Ok(hello), _) => self.judge_answer(id, &hello, packet, sink),
                (Err(reason), ConnectionPhase::HelloAwaited) => {
                    if matches!(reason, CloseReason::VersionUnknown { .. }) {
                        refuse(&connection.socket, HelloRefusal::Version);
                    }
                    Err(reason)
                }
                (Err(reason), _) => Err(reason),
            },
        }
    }

    /// An acceptor's: this worker's own, another worker's, or nobody's.
    fn judge_hello(
        &mut self,
        id: ConnectionId,
        hello: Hello,
        sink: &mut Sink<'_>,
    ) -> Result<(), CloseReason> {
        if self.acceptor.as_ref().is_some_and(|acceptor| acceptor.worker == hello.worker) {
            return self.welcome(id, &hello, sink);
        }
        let Some(connection) = self.remove(id) else { return Ok(()) };
        let Connection { socket, peer, .. } = *connection;
        let handed = Handed { socket, peer, hello };
        let left = match self.acceptor.as_ref().and_then(|acceptor| acceptor.group.queue(handed.hello.worker))
        {
            Some(queue) => queue.leave(handed),
            None => Err(handed),
        };
        if let Err(handed) = left {
            self.turn_away(&handed.socket, peer, HelloRefusal::NoSuchWorker, sink);
        }
        Ok(())
    }

    /// Takes the sockets that another endpoint accepted for this one.
    pub(super) fn take_handed(&mut self, sink: &mut Sink<'_>) {
        if !std::mem::take(&mut self.desk_ready) {
            return;
        }
        let Some(acceptor) = &self.acceptor else { return };
        let worker = acceptor.worker;
        let handed = acceptor.group.queue(worker).map(|queue| queue.take()).unwrap_or_default();
        for Handed { socket, peer, hello } in handed {
            if self.slots.len() >= self.limits.connections_max {
                self.turn_away(&socket, peer, HelloRefusal::TooManyConnections, sink);
                continue;
            }
            // What the kernel does not take is as lost as a reset: the peer sees its socket close.
            let Ok(id) = self.adopt(socket, peer, ConnectionPhase::HelloAwaited) else { continue };
            if let Err(reason) = self.welcome(id, &hello, sink) {
                self.end(id, reason, sink);
            }
        }
    }

    /// Answers a good hello with the connection's memory and opens it.
    fn welcome(&mut self, id: ConnectionId, hello: &Hello, sink: &mut Sink<'_>) -> Result<(), CloseReason> {
        let Some(acceptor) = &self.acceptor else { return Ok(()) };
        let Some(connection) = self.slots.get_mut(id) else { return Ok(()) };
        let (link, file) =
            Link::make(acceptor.ring_words).map_err(|error| CloseReason::Network(error.kind()))?;
        let ledger = acceptor.registry.as_ref().and_then(|registry| registry.ledger());
        let answer = Hello {
            one_sided: ledger.is_some(),
            greeting: acceptor.greeting.clone(),
            ..Hello::of_connector(hello.worker, self.limits.message_bytes_max)
        };
        let bytes = answer.encode().map_err(|_| CloseReason::HelloInvalid)?;
        let descriptors: Vec<_> = std::iter::once(file.as_fd()).chain(ledger).collect();
        control::send(&connection.socket, &bytes, &descriptors).map_err(CloseReason::network)?;
        let peer = connection.peer;
        agree(connection, hello);
        self.open(id, link);
        self.counters.accepted += 1;
        sink(Event::Accepted { connection: id, peer });
        Ok(())
    }

    /// A connector's: the acceptor has spoken.
    fn judge_answer(
        &mut self,
        id: ConnectionId,
        hello: &Hello,
        packet: Packet,
        sink: &mut Sink<'_>,
    ) -> Result<(), CloseReason> {
        if let Some(refusal) = hello.refusal {
            return Err(CloseReason::RefusedByPeer(refusal));
        }
        let mut descriptors = packet.descriptors.into_iter();
        // An acceptor of another version hands over more: its version is told before what else is wrong.
        let link = Link::open(&descriptors.next().ok_or(CloseReason::HelloInvalid)?)?;
        let ledger = descriptors.next();
        if ledger.is_some() != hello.one_sided || descriptors.next().is_some() {
            return Err(CloseReason::HelloInvalid);
        }
        let ledger = ledger.map(|file| LedgerView::open(&file)).transpose();
        let ledger = ledger.map_err(|_| CloseReason::SharedMemoryBroken)?;
        let Some(connection) = self.slots.get_mut(id) else { return Ok(()) };
        connection.reads.ledger = ledger.map(Arc::new);
        agree(connection, hello);
        self.open(id, link);
        self.counters.connected += 1;
        sink(Event::Connected { connection: id, greeting: &hello.greeting });
        Ok(())
    }

    /// An acceptor's: the peer asks for a region.
    fn hand_region(&mut self, id: ConnectionId, packet: &Packet) -> Result<(), CloseReason> {
        let key = control::decode_request(&packet.bytes).ok_or(CloseReason::SharedMemoryBroken)?;
        let now_ns = self.now_ns();
        let Some(connection) = self.slots.get_mut(id) else { return Ok(()) };
        let socket = &connection.socket;
        let registry = self.acceptor.as_ref().and_then(|acceptor| acceptor.registry.as_ref());
        let handed = registry.and_then(|registry| {
            registry.with_share(key, |share| {
                let answer = control::encode_answer(&RegionAnswer { key, slot: Some(share.slot) });
                control::send(socket, &answer, &[share.file.as_fd()])
            })
        });
        let unknown =
            || control::send(socket, &control::encode_answer(&RegionAnswer { key, slot: None }), &[]);
        match handed.unwrap_or_else(unknown) {
            Ok(()) => {
                connection.heard_ns = now_ns;
                Ok(())
            }
            // The peer's end is reported by the socket itself, after what is in the ring.
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            // It asks and does not read.
            Err(Errno::AGAIN | Errno::TOOMANYREFS) => Err(CloseReason::Stalled),
            Err(errno) => Err(CloseReason::network(errno)),
        }
    }

    /// A connector's: a region that was asked for, or not.
    fn take_region(
        &mut self,
        id: ConnectionId,
        packet: Packet,
        sink: &mut Sink<'_>,
    ) -> Result<(), CloseReason> {
        let answer = control::decode_answer(&packet.bytes).ok_or(CloseReason::SharedMemoryBroken)?;
        let Some(connection) = self.slots.get_mut(id) else { return Ok(()) };
        let file = packet.descriptors.into_iter().next();
        let counters = &mut self.counters;
        let fits = connection.reads.answered(answer, file, &connection.socket, &mut |tag, outcome| {
            counters.reads_failed += 1;
            sink(Event::ReadDone { connection: id, tag, outcome });
        });
        if fits { Ok(()) } else { Err(CloseReason::SharedMemoryBroken) }
    }

    /// Refuses a socket that has no place in the table.
    fn turn_away(&mut self, socket: &OwnedFd, peer: PeerAddress, refusal: HelloRefusal, sink: &mut Sink<'_>) {
        refuse(socket, refusal);
        self.counters.refused += 1;
        sink(Event::Refused { peer, reason: CloseReason::Refused(refusal) });
    }
}

fn decode_hello(bytes: &[u8]) -> Result<Hello, CloseReason> {
    match Hello::decode(bytes)? {
        Decoded::Whole(hello) => Ok(hello),
        Decoded::Need(_) => Err(CloseReason::Truncated { received: bytes.len() }),
    }
}

/// The longest message is what both ends take.
fn agree(connection: &mut Connection, hello: &Hello) {
    let theirs = usize::try_from(hello.message_bytes_max).unwrap_or(usize::MAX);
    connection.message_bytes_max = connection.message_bytes_max.min(theirs);
}

/// Tells a peer why it is turned away; a socket that takes nothing has lost its peer.
fn refuse(socket: &OwnedFd, refusal: HelloRefusal) {
    let answer = Hello { refusal: Some(refusal), ..Hello::of_connector(0, crate::limits::MESSAGE_BYTES_MAX) };
    if let Ok(bytes) = answer.encode() {
        let _ = control::send(socket, &bytes, &[]);
    }
}
