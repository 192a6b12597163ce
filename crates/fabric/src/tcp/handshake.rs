//! A hello over a TCP socket, in both directions: the first bytes of the stream.

use std::io;
use std::net::SocketAddr;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::address::{Address, PeerAddress};
use crate::close::CloseReason;
use crate::connections::{Connection, ConnectionPhase, Started};
use crate::error::FabricError;
use crate::hello::Hello;
use crate::tls::{Socket, TlsConnector};

use super::link::TcpLink;

/// Begins to connect a socket; the hello goes when it is through.
pub(crate) fn connect(address: &Address, tls: &TlsConnector) -> Result<Started, FabricError> {
    let (Address::Tcp(target) | Address::Verbs(target)) = *address else {
        return Err(FabricError::AddressUnsupported { address: *address });
    };
    let descriptor = open_socket(target).map_err(|source| FabricError::Connect { source: source.into() })?;
    let failed = match rustix::net::connect(&descriptor, &target) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => None,
        Err(errno) => Some(CloseReason::network(errno)),
    };
    let socket = tls.socket(descriptor, target).map_err(|source| FabricError::Connect { source })?;
    Ok(Started { socket, peer: PeerAddress::Tcp(target), phase: ConnectionPhase::Connecting, failed })
}

fn open_socket(target: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

/// Sends the hello once the connect is through.
pub(super) fn finish_connect(connection: &mut Connection<TcpLink>) -> Result<(), CloseReason> {
    if is_through(connection.socket.descriptor())? {
        let hello = connection.hello();
        send_hello(&mut connection.socket, &hello)?;
        connection.phase = ConnectionPhase::AnswerAwaited;
    }
    Ok(())
}

/// Whether a connect is through; an error if it failed.
pub(crate) fn is_through(socket: &OwnedFd) -> Result<bool, CloseReason> {
    match rustix::net::sockopt::socket_error(socket) {
        Ok(Ok(())) => {}
        Ok(Err(errno)) | Err(errno) => return Err(CloseReason::network(errno)),
    }
    match (rustix::net::getsockname(socket), rustix::net::getpeername(socket)) {
        // Not connected yet: an early edge.
        (_, Err(Errno::NOTCONN)) => Ok(false),
        (_, Err(errno)) | (Err(errno), _) => Err(CloseReason::network(errno)),
        // Where nobody listens on a port that the kernel also gives to connectors, it may happen to give
        // that very port, and TCP connects the socket to itself: it would answer its own requests.
        (Ok(near), Ok(far)) if far.as_ref() == Some(&near) => {
            Err(CloseReason::Network(io::ErrorKind::ConnectionRefused))
        }
        _ => Ok(true),
    }
}

/// Sends the first bytes that are the fabric's own.
pub(crate) fn send_hello(socket: &mut Socket, hello: &Hello) -> Result<(), CloseReason> {
    let bytes = hello.encode().map_err(|_| CloseReason::HelloInvalid)?;
    socket.send_first(&bytes)
}

/// Sends a peer the reason why it is turned away: the socket's unread bytes are taken off first, or closing
/// it would reset the connection and overtake the answer.
pub(crate) fn refuse(socket: &mut Socket, answer: &Hello) {
    if socket.turn_away_before_tls() || send_hello(socket, answer).is_ok() {
        let _ = rustix::net::shutdown(socket.descriptor(), rustix::net::Shutdown::Write);
        let _ = rustix::io::read(socket.descriptor(), &mut [0; 2_048]);
    }
}
