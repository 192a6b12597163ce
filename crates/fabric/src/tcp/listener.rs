//! The listening socket.

use std::net::SocketAddr;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::address::PeerAddress;
use crate::connections::Listener;
use crate::error::FabricError;
use crate::tls::{NodeTls, Socket};

const BACKLOG: i32 = 4_096;

/// A socket that listens.
#[derive(Debug)]
pub(crate) struct TcpListener {
    socket: OwnedFd,
    pub(super) address: SocketAddr,
    /// None: in the clear.
    tls: Option<NodeTls>,
}

impl TcpListener {
    /// Listens; on an address that is not loopback only if that is permitted.
    pub(super) fn open(
        address: SocketAddr,
        beyond_loopback: bool,
        tls: Option<NodeTls>,
    ) -> Result<TcpListener, FabricError> {
        if !beyond_loopback && !address.ip().to_canonical().is_loopback() {
            return Err(FabricError::NotLoopback { address });
        }
        let opened = || -> Result<TcpListener, Errno> {
            let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
            rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
            rustix::net::bind(&socket, &address)?;
            rustix::net::listen(&socket, BACKLOG)?;
            let address = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
            Ok(TcpListener { socket, address, tls })
        };
        opened().map_err(|errno| FabricError::Listen { address, source: errno.into() })
    }
}

impl Listener for TcpListener {
    fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    fn accept(&self) -> Result<Option<(Socket, PeerAddress)>, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (socket, peer) = rustix::net::acceptfrom_with(&self.socket, flags)?;
        // Without it replies are late, not wrong.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        let socket = Socket::accepted(socket, self.tls.as_ref().map(NodeTls::server));
        Ok(peer.map(|peer| (socket, PeerAddress::Tcp(peer))))
    }
}
