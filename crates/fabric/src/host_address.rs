//! Where the fabric of a host can be reached, whichever of its workers is meant.

use std::fmt;
use std::net::SocketAddr;

use crate::socket_name::SocketName;

/// Where a host's fabric listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Host {
    /// Plain TCP.
    Tcp(SocketAddr),
    /// Shared memory on this host, handed out by that unix socket.
    Shm(SocketName),
    /// RDMA, where queue pairs are exchanged over that TCP address.
    Verbs(SocketAddr),
    /// A host of the simulated network, by number.
    Sim(u32),
}

impl Host {
    /// The name of the provider that reaches it.
    pub(crate) const fn provider(&self) -> &'static str {
        match self {
            Host::Tcp(_) => "tcp",
            Host::Shm(_) => "shm",
            Host::Verbs(_) => "verbs",
            Host::Sim(_) => "sim",
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Tcp(socket) => write!(f, "{socket}"),
            Host::Shm(name) => write!(f, "shm:{name}"),
            Host::Verbs(socket) => write!(f, "verbs:{socket}"),
            Host::Sim(host) => write!(f, "sim:{host}"),
        }
    }
}
