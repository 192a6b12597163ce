//! Where an endpoint can be reached, in the text form that the region table, flags and logs use.
//!
//! | text | means |
//! |---|---|
//! | `127.0.0.1:7400` or `[::1]:7400` | worker 0 behind that TCP address |
//! | `127.0.0.1:7400/3` | its worker 3 |
//! | `shm:/path` or `shm:@name` | worker 0 behind that unix socket, over shared memory |
//! | `shm:/path#3` | its worker 3 |
//! | `verbs:127.0.0.1:7400/3` | worker 3 behind that TCP address, over RDMA |
//! | `sim:5/3` | worker 3 of the simulated host 5 |

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::error::FabricError;
pub use crate::host_address::Host;
use crate::socket_name::SocketName;

/// One worker's endpoint on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The host's fabric.
    pub host: Host,
    /// Which of its workers, from 0.
    pub worker: u16,
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
    /// Worker 0 behind a TCP address.
    #[must_use]
    pub const fn tcp(socket: SocketAddr) -> Address {
        Address { host: Host::Tcp(socket), worker: 0 }
    }

    /// Worker 0 behind a unix socket, over shared memory.
    #[must_use]
    pub const fn shm(name: SocketName) -> Address {
        Address { host: Host::Shm(name), worker: 0 }
    }

    /// Worker 0 behind a TCP address, over RDMA.
    #[must_use]
    pub const fn verbs(socket: SocketAddr) -> Address {
        Address { host: Host::Verbs(socket), worker: 0 }
    }

    /// Worker 0 of a simulated host.
    #[must_use]
    pub const fn sim(host: u32) -> Address {
        Address { host: Host::Sim(host), worker: 0 }
    }

    /// Another worker of the same host.
    #[must_use]
    pub const fn with_worker(self, worker: u16) -> Address {
        Address { host: self.host, worker }
    }
}

impl From<SocketAddr> for Address {
    fn from(socket: SocketAddr) -> Address {
        Address::tcp(socket)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.host, self.worker) {
            (host, 0) => host.fmt(f),
            // A path may end in a number.
            (host @ Host::Shm(_), worker) => write!(f, "{host}#{worker}"),
            (host, worker) => write!(f, "{host}/{worker}"),
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

impl FromStr for Address {
    type Err = FabricError;

    fn from_str(text: &str) -> Result<Address, FabricError> {
        let (separator, shm) = match text.strip_prefix("shm:") {
            Some(name) => ('#', Some(name)),
            None => ('/', None),
        };
        let (host, worker) = match shm.unwrap_or(text).rsplit_once(separator) {
            Some((host, worker)) => (host, worker.parse().map_err(|_| FabricError::AddressInvalid)?),
            None => (shm.unwrap_or(text), 0),
        };
        if shm.is_some() {
            let name = SocketName::new(host).ok_or(FabricError::AddressInvalid)?;
            return Ok(Address::shm(name).with_worker(worker));
        }
        let host = match host.split_once(':') {
            Some(("sim", number)) => number.parse().ok().map(Host::Sim),
            Some(("verbs", socket)) => socket.parse().ok().map(Host::Verbs),
            _ => host.parse().ok().map(Host::Tcp),
        };
        Ok(Address { host: host.ok_or(FabricError::AddressInvalid)?, worker })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_text_round_trip_keeps_host_and_worker() {
        for text in [
            "127.0.0.1:7400",
            "127.0.0.1:7400/3",
            "[::1]:7400/65535",
            "verbs:127.0.0.1:7400/3",
            "verbs:[::1]:7400",
            "sim:5/3",
            "sim:0",
            "shm:/a/3",
            "shm:@b#7",
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        let worker = Address::sim(5).with_worker(3);
        assert_eq!("sim:5/3".parse::<Address>().unwrap(), worker);
    }

    #[test]
    fn address_text_nonsense_is_refused() {
        for text in [
            "",
            "localhost:7400",
            "127.0.0.1",
            "127.0.0.1:7400/",
            "127.0.0.1:7400/65536",
            "sim:x",
            "/1",
            "shm:a",
            "verbs:",
            "verbs:7400",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
