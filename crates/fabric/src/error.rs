//! What a fabric's calls answer when they cannot do what was asked.

use std::io;
use std::net::SocketAddr;

use cell_memory::MemoryError;

use crate::address::Address;
use crate::socket_name::SocketName;

/// A call that failed. What happens to a connection later is an event, not an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// Not an address: see the table in `address_text`.
    #[error("not a fabric address: it takes `127.0.0.1:7000`, `[::1]:7000`, `shm:/a/path` or `shm:@name`")]
    AddressInvalid,
    /// A name was not looked up yet, or leads nowhere.
    #[error("no address of that name is known")]
    NameUnknown,
    /// This provider does not reach that kind of address.
    #[error("this provider cannot reach {address}")]
    AddressUnsupported {
        /// The address asked for.
        address: Address,
    },
    /// The fabric listens on loopback only, unless its options permit more.
    #[error("{address} is not a loopback address, and listening beyond loopback was not permitted")]
    NotLoopback {
        /// What was asked for.
        address: SocketAddr,
    },
    /// The address cannot be listened on; most often another process does.
    #[error("cannot listen on {address}")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The unix socket cannot be listened on; most often another process does.
    #[error("cannot listen on the unix socket {name}")]
    ListenUnix {
        /// What was asked for.
        name: SocketName,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// No socket, no file descriptor, no local port: what a process runs out of.
    #[error("cannot open a connection")]
    Connect {
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The limit of connections is reached; close some first.
    #[error("{max} connections are open, the limit")]
    TooManyConnections {
        /// The setting.
        max: usize,
    },
    /// A greeting longer than a hello can carry; shorten the paths in it.
    #[error("the greeting takes {length} bytes, a hello carries at most {max}")]
    GreetingTooLong {
        /// Its encoded length.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// The kernel gave no epoll instance or event descriptor, or did not take one.
    #[error("cannot set up waiting for events")]
    Poll {
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// No service thread could be started.
    #[error("cannot start the thread that serves one-sided reads")]
    Service {
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The kernel gave no random bytes for a region key.
    #[error("no random bytes for a region key")]
    Random {
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The kernel gave no shared memory.
    #[error("cannot make shared memory")]
    SharedMemory {
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The region cannot be handed to another process: it is of this process alone, or no descriptor is free.
    #[error("the region cannot be handed to peers")]
    RegionNotShared {
        /// Why.
        #[source]
        source: MemoryError,
    },
    /// So many regions are registered, and no more can be.
    #[error("{max} regions are registered, the limit")]
    TooManyRegions {
        /// The limit.
        max: usize,
    },
    /// The provider does not let peers write to that region; register it for reading alone.
    #[error("this provider permits no one-sided writes of the region")]
    AccessUnavailable,
    /// RDMA was asked for, and this build has none.
    #[error("this binary has no RDMA: build it with `cargo build --release --features verbs`")]
    VerbsNotBuilt,
    /// RDMA was asked for, and cannot be had.
    #[cfg(feature = "verbs")]
    #[error(transparent)]
    Verbs {
        /// Why.
        #[from]
        source: crate::verbs::VerbsError,
    },
    /// Nobody serves one-sided reads here; see the options of the endpoint.
    #[error("this endpoint serves no one-sided reads, so no region can be registered")]
    OneSidedUnavailable,
}

impl FabricError {
    /// Whether RDMA was asked for and cannot be had: other addresses change nothing.
    #[must_use]
    pub fn is_about_verbs(&self) -> bool {
        match self {
            FabricError::VerbsNotBuilt => true,
            #[cfg(feature = "verbs")]
            FabricError::Verbs { .. } => true,
            _ => false,
        }
    }
}

/// A message that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The connection's output is full. Keep the message until [`crate::Event::Writable`].
    #[error("the connection's output is full")]
    Full,
    /// The connection is gone or was never there.
    #[error("the connection is closed")]
    Closed,
    /// Longer than a message may be.
    #[error("a message of {length} bytes, the limit is {max}")]
    TooLong {
        /// The message.
        length: usize,
        /// The limit: the smaller of both ends'.
        max: usize,
    },
}
