//! A hello over a unix socket, in both directions: one packet each, the acceptor's with the memory of the
//! connection. Who listens and who connects is known by its user before anything is said.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use crate::address::{Address, PeerAddress};
use crate::close::CloseReason;
use crate::connections::{Connection, ConnectionPhase, Greeted, Started};
use crate::error::FabricError;
use crate::hello::{Decoded, Hello};
use crate::tls::Socket;

use super::control::{self, Received};
use super::link::ShmLink;
use super::listener::{is_trusted, open_socket, peer_user};

/// Connects a socket to an acceptor that runs as root, as the own user, or as one of `trusted`, and sends the
/// hello.
pub(super) fn connect(address: &Address, hello: &Hello, trusted: &[u32]) -> Result<Started, FabricError> {
    let Address::Shm(name) = address else {
        return Err(FabricError::AddressUnsupported { address: *address });
    };
    let failed = |errno: Errno| FabricError::Connect { source: errno.into() };
    let socket = open_socket().map_err(failed)?;
    let target = name.socket_address().map_err(failed)?;
    let met = meet(&socket, &target, &hello.encode()?, trusted);
    let peer = PeerAddress::Shm { user: *met.as_ref().unwrap_or(&0) };
    Ok(Started {
        socket: Socket::plain(socket),
        peer,
        phase: ConnectionPhase::AnswerAwaited,
        failed: met.err(),
    })
}

/// Finds out who listens before anything is said to it, or taken from it: a name is anyone's who was
/// there first, and a descriptor of somebody's own file system can hold up even who only closes it.
fn meet(
    socket: &OwnedFd,
    target: &SocketAddrUnix,
    hello: &[u8],
    trusted: &[u32],
) -> Result<u32, CloseReason> {
    rustix::net::connect(socket, target).map_err(CloseReason::network)?;
    let user = peer_user(socket).map_err(|error| CloseReason::Network(error.kind()))?;
    if !is_trusted(user, trusted) {
        return Err(CloseReason::AcceptorNotTrusted { user });
    }
    match control::send(socket, hello, &[]) {
        // It has been turned away already: its answer is to be read.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(user),
        Err(errno) => Err(CloseReason::network(errno)),
    }
}

/// Reads the other end's hello. An acceptor takes no descriptors.
pub(super) fn read_hello(connection: &mut Connection<ShmLink>) -> Result<Option<Greeted>, CloseReason> {
    match control::receive(connection.socket.descriptor(), !connection.accepted) {
        Ok(Received::Packet(packet)) => {
            let hello = decode_hello(&packet.bytes)?;
            Ok(Some(Greeted { hello, descriptors: packet.descriptors }))
        }
        Ok(Received::Bell) => Err(CloseReason::Truncated { received: 1 }),
        Ok(Received::End) => Err(CloseReason::PeerClosed),
        Err(errno @ (Errno::AGAIN | Errno::INTR | Errno::CONNRESET)) => {
            // A reset is said once, before what the peer had sent.
            connection.readable = errno != Errno::AGAIN;
            Ok(None)
        }
        Err(errno) => Err(CloseReason::network(errno)),
    }
}

fn decode_hello(bytes: &[u8]) -> Result<Hello, CloseReason> {
    match Hello::decode(bytes)? {
        Decoded::Whole(hello) => Ok(hello),
        Decoded::Need(_) => Err(CloseReason::Truncated { received: bytes.len() }),
    }
}

/// Sends a peer the reason why it is turned away; a socket that takes nothing has lost its peer.
pub(super) fn refuse(socket: &Socket, answer: &Hello) {
    if let Ok(bytes) = answer.encode() {
        let _ = control::send(socket.descriptor(), &bytes, &[]);
    }
}
