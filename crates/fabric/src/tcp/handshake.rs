//! From a socket to an open connection: connecting, and the hello in both directions.

use std::io;
use std::net::SocketAddr;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::address::{Address, Host, PeerAddress};
use crate::close::CloseReason;
use crate::close::HelloRefusal;
use crate::endpoint::{ConnectionId, Event};
use crate::error::FabricError;
use crate::greeting::Greeting;
use crate::handoff::Handed;
use crate::hello::{Decoded, Hello};

use super::connection::{Connection, ConnectionPhase};
use super::messenger::{Messenger, Sink};

impl Messenger {
    /// Begins a connection; what goes wrong after the socket exists is an event.
    pub(super) fn connect(&mut self, address: &Address, lane: bool) -> Result<ConnectionId, FabricError> {
        let Host::Tcp(target) = address.host else {
            return Err(FabricError::AddressUnsupported { host: address.host });
        };
        if self.slots.len() >= self.limits.connections_max {
            return Err(FabricError::TooManyConnections { max: self.limits.connections_max });
        }
        let socket = open_socket(target).map_err(|source| FabricError::Connect { source: source.into() })?;
        let started = rustix::net::connect(&socket, &target);
        let id =
            self.adopt(socket, PeerAddress::Tcp(target), ConnectionPhase::Connecting, address.worker, lane)?;
        match started {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(errno) => self.end_later(id, CloseReason::network(errno)),
        }
        Ok(id)
    }

    /// The connect is through, or failed: sends the hello.
    pub(super) fn finish_connect(&mut self, id: ConnectionId) -> Result<(), CloseReason> {
        let max = self.limits.message_bytes_max;
        let Some(connection) = self.slots.get_mut(id) else { return Ok(()) };
        match rustix::net::sockopt::socket_error(&connection.socket) {
            Ok(Ok(())) => {}
            Ok(Err(errno)) | Err(errno) => return Err(CloseReason::network(errno)),
        }
        let (near, far) =
            (rustix::net::getsockname(&connection.socket), rustix::net::getpeername(&connection.socket));
        match (near, far) {
            // Not connected yet: an early edge.
            (_, Err(Errno::NOTCONN)) => return Ok(()),
            (_, Err(errno)) | (Err(errno), _) => return Err(CloseReason::network(errno)),
            // Where nobody listens on a port that the kernel also gives to connectors, it may happen to give
            // that very port, and TCP connects the socket to itself: it would answer its own requests.
            (Ok(near), Ok(far)) if far.as_ref() == Some(&near) => {
                return Err(CloseReason::Network(io::ErrorKind::ConnectionRefused));
            }
            _ => {}
        }
        let hello = Hello::of_connector(connection.worker, max);
        send_hello(&connection.socket, &hello)?;
        connection.phase = ConnectionPhase::AnswerAwaited;
        Ok(())
    }

    /// Reads the other end's hello, as far as it came and not a byte beyond.
    pub(super) fn read_hello(&mut self, id: ConnectionId, sink: &mut Sink<'_>) -> Result<(), CloseReason> {
        let Some(connection) = self.slots.get_mut(id) else { return Ok(()) };
        let decoded = match read_hello_bytes(connection) {
            Ok(decoded) => decoded,
            Err(reason) => {
                if matches!(reason, CloseReason::VersionUnknown { .. })
                    && connection.phase == ConnectionPhase::HelloAwaited
                {
                    refuse(&connection.socket, connection.worker, HelloRefusal::Version);
                }
                return Err(reason);
            }
        };
        match (decoded, connection.phase) {
            (Some(hello), ConnectionPhase::HelloAwaited) => self.judge_hello(id, hello, sink),
            (Some(hello), _) => self.judge_answer(id, &hello, sink),
            (None, _) => Ok(()),
        }
    }

    /// An acceptor's: this worker's own, another worker's, or nobody's.
    fn judge_hello(
        &mut self,
        id: ConnectionId,
        hello: Hello,
        sink: &mut Sink<'_>,
    ) -> Result<(), CloseReason> {
        if self.acceptor.as_ref().is_some_and(|(_, worker)| *worker == hello.worker) {
            return self.welcome(id, &hello, sink);
        }
        let Some(connection) = self.slots.remove(id) else { return Ok(()) };
        let Connection { socket, peer, .. } = *connection;
        let handed = Handed { socket, peer, hello };
        let left = match self.acceptor.as_ref().and_then(|(group, _)| group.queue(handed.hello.worker)) {
            Some(queue) => queue.leave(handed),
            None => Err(handed),
        };
        if let Err(handed) = left {
            refuse(&handed.socket, handed.hello.worker, HelloRefusal::NoSuchWorker);
            self.counters.refused += 1;
            sink(Event::Refused { peer, reason: CloseReason::Refused(HelloRefusal::NoSuchWorker) });
        }
        Ok(())
    }

    /// Takes the sockets that another endpoint accepted for this one.
    pub(super) fn take_handed(&mut self, sink: &mut Sink<'_>) {
        if !std::mem::take(&mut self.desk_ready) {
            return;
        }
        let Some((group, worker)) = self.acceptor.clone() else { return };
        let handed = group.queue(worker).map(|queue| queue.take()).unwrap_or_default();
        for Handed { socket, peer, hello } in handed {
            if self.slots.len() >= self.limits.connections_max {
                self.turn_away(&socket, peer, HelloRefusal::TooManyConnections, sink);
                continue;
            }
            // What the kernel does not take is as lost as a reset: the peer sees its socket close.
            let Ok(id) = self.adopt(socket, peer, ConnectionPhase::HelloAwaited, worker, false) else {
                continue;
            };
            if let Err(reason) = self.welcome(id, &hello, sink) {
                self.end(id, reason, sink);
            }
        }
    }

    /// Answers a good hello and opens the connection.
    fn welcome(&mut self, id: ConnectionId, hello: &Hello, sink: &mut Sink<'_>) -> Result<(), CloseReason> {
        let one_sided = self.acceptor.as_ref().is_some_and(|(group, _)| group.serves_one_sided());
        let answer = Hello {
            one_sided,
            greeting: self.greeting.clone(),
            ..Hello::of_connector(hello.worker, self.limits.message_bytes_max)
        };
        let Some(connection) = self.slots.get_mut(id) else { return Ok(()) };
        send_hello(&connection.socket, &answer)?;
        self.counters.accepted += 1;
        let peer = connection.peer;
        self.open(id, hello);
        sink(Event::Accepted { connection: id, peer });
        Ok(())
    }

    /// A connector's: the acceptor has spoken.
    fn judge_answer(
        &mut self,
        id: ConnectionId,
        hello: &Hello,
        sink: &mut Sink<'_>,
    ) -> Result<(), CloseReason> {
        if let Some(refusal) = hello.refusal {
            return Err(CloseReason::RefusedByPeer(refusal));
        }
        self.counters.connected += 1;
        self.open(id, hello);
        sink(Event::Connected { connection: id, greeting: &hello.greeting });
        // Sends that were accepted meanwhile leave now.
        self.mark_dirty(id);
        Ok(())
    }

    fn open(&mut self, id: ConnectionId, hello: &Hello) {
        let Some(connection) = self.slots.get_mut(id) else { return };
        connection.phase = ConnectionPhase::Open;
        connection.hello = Vec::new();
        connection.one_sided = hello.one_sided;
        let theirs = usize::try_from(hello.message_bytes_max).unwrap_or(usize::MAX);
        connection.message_bytes_max = connection.message_bytes_max.min(theirs);
    }

    /// Refuses a socket that has no place in the table.
    pub(super) fn turn_away(
        &mut self,
        socket: &OwnedFd,
        peer: PeerAddress,
        refusal: HelloRefusal,
        sink: &mut Sink<'_>,
    ) {
        refuse(socket, 0, refusal);
        self.counters.refused += 1;
        sink(Event::Refused { peer, reason: CloseReason::Refused(refusal) });
    }
}

fn open_socket(target: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

fn read_hello_bytes(connection: &mut Connection) -> Result<Option<Hello>, CloseReason> {
    loop {
        let needed = match Hello::decode(&connection.hello)? {
            Decoded::Whole(hello) => return Ok(Some(hello)),
            Decoded::Need(needed) => needed,
        };
        let held = connection.hello.len();
        connection.hello.resize(needed, 0);
        let read = rustix::io::read(&connection.socket, &mut connection.hello[held..]);
        connection.hello.truncate(held + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) if held == 0 => return Err(CloseReason::PeerClosed),
            Ok(0) => return Err(CloseReason::Truncated { received: held }),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                connection.readable = false;
                return Ok(None);
            }
            Err(errno) => return Err(CloseReason::network(errno)),
        }
    }
}

/// The first bytes on a socket: a kernel that does not take them whole has lost the connection.
fn send_hello(socket: &OwnedFd, hello: &Hello) -> Result<(), CloseReason> {
    let bytes = hello.encode().map_err(|_| CloseReason::HelloInvalid)?;
    match rustix::net::send(socket, &bytes, SendFlags::NOSIGNAL) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(CloseReason::Network(io::ErrorKind::WriteZero)),
        Err(errno) => Err(CloseReason::network(errno)),
    }
}

/// Tells a peer why it is turned away, as well as that can be done without waiting: the socket's unread bytes
/// are taken off first, or closing it would reset the connection and overtake the answer.
fn refuse(socket: &OwnedFd, worker: u16, refusal: HelloRefusal) {
    let answer = Hello {
        refusal: Some(refusal),
        greeting: Greeting::default(),
        ..Hello::of_connector(worker, crate::limits::MESSAGE_BYTES_MAX)
    };
    if send_hello(socket, &answer).is_ok() {
        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
        let _ = rustix::io::read(socket, &mut [0; 1_024]);
    }
}
