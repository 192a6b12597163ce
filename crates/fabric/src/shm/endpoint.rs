//! The endpoint over shared memory: how it is set up, and its one-sided reads.

use std::sync::Arc;

use cell_terms::setting::Settings;

use crate::connections::{Acceptor, Messenger, MessengerEndpoint, Provider};
use crate::endpoint::ConnectionId;
use crate::error::{FabricError, SendError};
use crate::greeting::Greeting;
use crate::limits::FabricLimits;
use crate::partition::Partition;
use crate::read_permission::ReadPermission;
use crate::registry::Registry;
use crate::remote_access::{ReadTag, RemoteAccess};
use crate::socket_name::SocketName;

use super::layout::RING_WORDS;
use super::listener::ShmListener;
use super::transport::{ShmMessenger, ShmTransport};

/// How an endpoint is set up.
#[derive(Clone, Debug, Default)]
pub struct ShmOptions {
    /// What peers can make it hold.
    pub limits: FabricLimits,
    /// What it says of itself to those who connect.
    pub greeting: Greeting,
    /// Whether regions can be registered, and so be mapped by peers.
    pub one_sided: bool,
    /// Bytes of memory a connection and direction, rounded up to a power of two; zero: 256 KiB.
    pub ring_bytes: usize,
    /// Users that may connect besides root and the one that this process runs as.
    pub users: Vec<u32>,
    /// The filter under all connections.
    pub partition: Partition,
    /// Who may read one-sided over TCP and RDMA, beside it; none: whoever reaches the address.
    pub readers: Option<Arc<dyn ReadPermission>>,
}

/// An endpoint over shared memory.
pub type ShmEndpoint = MessengerEndpoint<Shm>;

/// The provider: reads are loads from regions that the peer has handed over.
#[derive(Debug)]
pub struct Shm;

/// Of each ring: four messages of the longest kind, so that a stream of chunks need not wait for each one's
/// turn.
const RING_BYTES: usize = 256 * 1024;

impl ShmOptions {
    /// The settings in force, with nothing to say of itself.
    ///
    /// # Panics
    /// If [`crate::SETTINGS`] are not among the declarations.
    #[must_use]
    pub fn from_settings(settings: &Settings) -> ShmOptions {
        ShmOptions {
            limits: FabricLimits::from_settings(settings),
            greeting: Greeting::default(),
            one_sided: true,
            ring_bytes: usize::try_from(settings.integer("fabric_shm_ring_bytes")).unwrap_or(RING_BYTES),
            users: users_of(settings.text("fabric_shm_users")),
            partition: Partition::default(),
            readers: None,
        }
    }
}

/// The words of a ring of so many bytes; zero: of as many as are usual.
fn ring_words(bytes: usize) -> usize {
    let bytes = if bytes == 0 { RING_BYTES } else { bytes };
    (bytes / 8).clamp(*RING_WORDS.start(), *RING_WORDS.end()).next_power_of_two()
}

/// The users of a text that [`crate::USERS`] takes.
#[must_use]
pub fn users_of(text: &str) -> Vec<u32> {
    text.split(',').filter_map(|user| user.trim().parse().ok()).collect()
}

impl ShmEndpoint {
    /// An endpoint that only connects, to servers that run as root or as the own user.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn client(limits: FabricLimits) -> Result<ShmEndpoint, FabricError> {
        ShmEndpoint::client_of(limits, &[])
    }

    /// As [`ShmEndpoint::client`], to servers that run as one of `users` too. Who shares memory with a server
    /// takes files from it, and so trusts its user not to hold it up.
    ///
    /// # Errors
    /// As there.
    pub fn client_of(limits: FabricLimits, users: &[u32]) -> Result<ShmEndpoint, FabricError> {
        let messenger = Messenger::new(limits, ShmTransport::of_connector(users))?;
        Ok(ShmEndpoint { messenger, provider: Shm, registry: None })
    }

    /// An endpoint that accepts at that unix socket. A socket file whose listener is gone is replaced. It
    /// must be polled for anyone to get in.
    ///
    /// # Errors
    /// A name that is taken or cannot be made, a greeting that is too long, no descriptors, or no memory.
    pub fn listen(name: SocketName, options: &ShmOptions) -> Result<ShmEndpoint, FabricError> {
        ShmEndpoint::listen_with(name, options, &Arc::new(Registry::with_ledger()?))
    }

    /// As [`ShmEndpoint::listen`], with the registrations that another provider serves too.
    pub(crate) fn listen_with(
        name: SocketName,
        options: &ShmOptions,
        registry: &Arc<Registry>,
    ) -> Result<ShmEndpoint, FabricError> {
        let ShmOptions { limits, greeting, one_sided, users, partition, .. } = options;
        let acceptor = Acceptor::new(greeting, *one_sided, partition)?;
        let listener = ShmListener::open(name, users)?;
        let registry = one_sided.then(|| Arc::clone(registry));
        let ring_words = ring_words(options.ring_bytes);
        let transport = ShmTransport::of_acceptor(registry.clone(), ring_words, partition.clone());
        let mut messenger = Messenger::accepting(*limits, transport, acceptor)?;
        messenger.listen(listener)?;
        Ok(ShmEndpoint { messenger, provider: Shm, registry })
    }

    /// Where this endpoint listens; `None` of one that only connects.
    #[must_use]
    pub fn name(&self) -> Option<SocketName> {
        self.messenger.listener().map(|listener| listener.name)
    }
}

impl Provider for Shm {
    type Transport = ShmTransport;

    fn post(
        &mut self,
        messenger: &mut ShmMessenger,
        connection: ConnectionId,
        access: &RemoteAccess<'_>,
        tag: ReadTag,
    ) -> Result<(), SendError> {
        let (found, counters) = messenger.table.get_counted(connection).ok_or(SendError::Closed)?;
        found.link.reads.post(access, tag)?;
        counters.reads_posted += 1;
        messenger.table.mark_dirty(connection);
        Ok(())
    }

    fn set_limits(&mut self, messenger: &mut ShmMessenger, limits: FabricLimits) {
        messenger.transport.set_ring_words(ring_words(limits.shm_ring_bytes));
    }
}
