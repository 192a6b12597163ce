//! The fabric: how threads of nodes and clients reach each other. Verbs-shaped: connections that carry whole
//! messages ([`Endpoint`]) and one-sided access to registered memory ([`OneSided`]); all is posted and
//! completes as an [`Event`] of a poll.
//!
//! | provider | what it is |
//! |---|---|
//! | [`TcpEndpoint`] | TCP, in the clear or under TLS ([`NodeTls`], [`TlsTrust`]), for any two processes |
//! | [`ShmEndpoint`] | shared memory, for two processes of one host; reads are loads of the peer's memory |
//! | [`HostEndpoint`] | the two above in one, by the kind of address |
//! | [`SimEndpoint`] | a simulated network, stepped and seeded, that does whatever a network may do |
//!
//! A provider that is added between processes is a folder with a `Transport` and a `Provider` under the
//! connections and the [`MessengerEndpoint`] that all share (`connections`), and a row in the list of `host`.
//! It passes the same conformance suite (`tests/suite/conformance`). Nothing here knows what a request or a
//! tree node is.

mod address;
mod address_text;
mod close;
mod connections;
mod counter;
mod endpoint;
mod error;
mod greeting;
mod hello;
mod host;
#[cfg(any(test, feature = "verbs"))]
mod key_permission;
mod limits;
mod mapped;
mod one_sided;
mod partition;
mod poller;
mod queue_pair_end;
mod read_permission;
mod ready_parts;
mod registry;
mod remote_access;
mod shm;
mod sim;
mod socket_name;
mod spin;
mod taken;
mod tcp;
mod tls;
mod tls_failure;
mod tls_settings;
#[cfg(feature = "verbs")]
mod verbs;
mod verbs_options;
mod version;

pub use address::{Address, PeerAddress};
pub use close::{CloseReason, HelloRefusal, QueuePairFailure, Stranger};
pub use connections::MessengerEndpoint;
pub use counter::{COUNTERS, FabricCounters};
pub use endpoint::{ConnectionId, Endpoint, Event};
pub use error::{FabricError, SendError};
pub use greeting::Greeting;
pub use host::{HostEndpoint, HostOptions};
pub use limits::{FabricLimits, MESSAGE_BYTES_MAX, SETTINGS, USERS};
pub use mapped::MappedRegion;
pub use one_sided::OneSided;
pub use partition::{Blocked, Partition};
pub use poller::{Poller, Wait, Waker};
pub use read_permission::ReadPermission;
pub use ready_parts::ReadyParts;
pub use remote_access::{
    READ_BYTES_MAX, READS_MAX, ReadFailure, ReadTag, RegionAccess, RegionKey, RemoteAccess, RemoteRead,
    RemoteSwap, RemoteWrite,
};
pub use shm::{ShmEndpoint, ShmOptions, peer_process, peer_user, users_of};
pub use sim::{SimCrash, SimEndpoint, SimNetwork, SimOptions};
pub use socket_name::SocketName;
pub use spin::{LookPause, Spin};
pub use taken::{RegionDevice, RegionTaker, TakenRegion};
pub use tcp::{TcpEndpoint, TcpOptions};
pub use tls::{NodeTls, TlsError, TlsFiles, TlsTrust};
pub use tls_failure::TlsFailure;
pub use tls_settings::{TLS_CERTIFICATE_FILE, TLS_KEY_FILE, TLS_SETTINGS, TLS_TRUST_FILE};
#[cfg(feature = "verbs")]
pub use verbs::VerbsError;
pub use verbs_options::{VerbsOffer, VerbsOptions};
