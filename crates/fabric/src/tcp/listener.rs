//! The listening socket.

use std::net::SocketAddr;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::address::PeerAddress;
use crate::close::HelloRefusal;
use crate::error::FabricError;
use crate::poller::poll_error;

use super::connection::ConnectionPhase;
use super::messenger::{LISTENER_TOKEN, Messenger, Sink};

const BACKLOG: i32 = 1_024;
/// Sockets accepted in one poll.
const ACCEPTED_PER_POLL: usize = 64;

/// A listener and what is known of it.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    pub(super) address: SocketAddr,
    /// Somebody may be waiting.
    pub(super) ready: bool,
    /// The process was out of descriptors; tried again with each sweep, not in a busy loop.
    starved: bool,
}

impl Listener {
    pub(super) fn open(address: SocketAddr) -> Result<Listener, FabricError> {
        if !address.ip().is_loopback() {
            return Err(FabricError::NotLoopback { address });
        }
        let opened = || -> Result<Listener, Errno> {
            let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
            rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
            rustix::net::bind(&socket, &address)?;
            rustix::net::listen(&socket, BACKLOG)?;
            let address = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
            Ok(Listener { socket, address, ready: true, starved: false })
        };
        opened().map_err(|errno| FabricError::Listen { address, source: errno.into() })
    }

    pub(super) fn retry(&mut self) {
        self.ready |= std::mem::take(&mut self.starved);
    }

    fn next(&mut self) -> Option<(OwnedFd, PeerAddress)> {
        loop {
            match rustix::net::acceptfrom_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok((socket, peer)) => {
                    let Some(peer) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) else { continue };
                    return Some((socket, PeerAddress::Tcp(peer)));
                }
                // The peer was gone before it was accepted.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => {
                    self.ready = false;
                    self.starved = errno != Errno::AGAIN;
                    return None;
                }
            }
        }
    }
}

impl Messenger {
    /// Makes this the endpoint that accepts.
    pub(super) fn install_listener(&mut self, listener: Listener) -> Result<(), FabricError> {
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&self.epoll, &listener.socket, EventData::new_u64(LISTENER_TOKEN), flags)
            .map_err(poll_error)?;
        self.listener = Some(listener);
        Ok(())
    }

    /// Accepts what is waiting, some of it.
    pub(super) fn accept(&mut self, sink: &mut Sink<'_>) {
        for _ in 0..ACCEPTED_PER_POLL {
            let Some(listener) = self.listener.as_mut().filter(|listener| listener.ready) else { return };
            let Some((socket, peer)) = listener.next() else { return };
            // Without it replies are late, not wrong.
            let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
            if self.slots.len() >= self.limits.connections_max {
                self.turn_away(&socket, peer, HelloRefusal::TooManyConnections, sink);
                continue;
            }
            // What the kernel does not take is closed, as if it had never been accepted.
            let _ = self.adopt(socket, peer, ConnectionPhase::HelloAwaited, 0, false);
        }
    }
}
