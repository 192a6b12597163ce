//! Where an endpoint can be reached, and who is at the other end of a connection.

use std::fmt;
use std::net::SocketAddr;

use crate::socket_name::SocketName;

/// Where the fabric of a process listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Address {
    /// Plain TCP.
    Tcp(SocketAddr),
    /// Shared memory on this host, handed out by that unix socket.
    Shm(SocketName),
    /// RDMA, where queue pairs are exchanged over that TCP address.
    Verbs(SocketAddr),
    /// A host of the simulated network, by number.
    Sim(u32),
}

/// Who is at the other end of an accepted connection. It names, it does not authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PeerAddress {
    /// The peer's end of the TCP connection.
    Tcp(SocketAddr),
    /// A process of this host.
    Shm {
        /// The user that it ran as when it connected.
        user: u32,
    },
    /// The simulated host's number.
    Sim(u32),
}

impl Address {
    /// The name of the provider that reaches it.
    pub(crate) const fn provider(&self) -> &'static str {
        match self {
            Address::Tcp(_) => "tcp",
            Address::Shm(_) => "shm",
            Address::Verbs(_) => "verbs",
            Address::Sim(_) => "sim",
        }
    }
}

impl PeerAddress {
    /// Whether the kernel names the peer as this process's own user or as root.
    #[must_use]
    pub fn is_own_user(self) -> bool {
        let own = rustix::process::geteuid().as_raw();
        matches!(self, PeerAddress::Shm { user } if user == own || user == 0)
    }
}

impl From<SocketAddr> for Address {
    fn from(socket: SocketAddr) -> Address {
        Address::Tcp(socket)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(socket) => write!(f, "{socket}"),
            Address::Shm(name) => write!(f, "shm:{name}"),
            Address::Verbs(socket) => write!(f, "verbs:{socket}"),
            Address::Sim(host) => write!(f, "sim:{host}"),
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Tcp(socket) => write!(f, "{socket}"),
            PeerAddress::Shm { user } => write!(f, "shm:user-{user}"),
            PeerAddress::Sim(host) => write!(f, "sim:{host}"),
        }
    }
}
