//! The endpoint over RDMA: how it is set up, and its one-sided operations.

use std::sync::Arc;

use crate::connections::{Acceptor, Messenger, MessengerEndpoint, Provider};
use crate::endpoint::ConnectionId;
use crate::error::{FabricError, SendError};
use crate::key_permission::KeyPermission;
use crate::limits::FabricLimits;
use crate::partition::Partition;
use crate::read_permission::ReadPermission;
use crate::registry::Registry;
use crate::remote_access::{ReadTag, RemoteAccess};
use crate::tls::TlsTrust;

use super::completion::CompletionQueue;
use super::device::Device;
use super::transport::{VerbsMessenger, VerbsTransport};

/// An endpoint over RDMA. Its sockets are accepted by the `tcp` endpoint of the same process.
pub(crate) type VerbsEndpoint = MessengerEndpoint<Verbs>;

/// The provider: operations are the device's.
#[derive(Debug)]
pub(crate) struct Verbs {
    reads_ordered: bool,
}

impl VerbsEndpoint {
    /// An endpoint that only connects.
    ///
    /// # Errors
    /// The device has no completion queue, or the process is out of descriptors.
    pub(crate) fn client(limits: FabricLimits, device: &Arc<Device>) -> Result<VerbsEndpoint, FabricError> {
        let keys = KeyPermission::default();
        let transport = VerbsTransport::new(CompletionQueue::new(device)?, None, keys, Partition::default());
        let (messenger, provider) = (Messenger::new(limits, transport)?, Verbs::of(device));
        Ok(VerbsEndpoint { messenger, provider, registry: None })
    }

    /// An endpoint that finds its sockets on the acceptor's queue, and tells these who may read where regions
    /// are; none: whoever comes.
    ///
    /// # Errors
    /// As for [`VerbsEndpoint::client`].
    pub(crate) fn accepting(
        limits: FabricLimits,
        device: &Arc<Device>,
        acceptor: Acceptor,
        registry: Option<Arc<Registry>>,
        readers: Option<Arc<dyn ReadPermission>>,
    ) -> Result<VerbsEndpoint, FabricError> {
        let (keys, partition) = (KeyPermission::of(readers), acceptor.partition().clone());
        let transport = VerbsTransport::new(CompletionQueue::new(device)?, registry.clone(), keys, partition);
        let messenger = Messenger::accepting(limits, transport, acceptor)?;
        Ok(VerbsEndpoint { messenger, provider: Verbs::of(device), registry })
    }

    /// Begins connections under TLS from now on, to ends that this trusts.
    pub(crate) fn trust(&mut self, trust: TlsTrust) {
        self.messenger.transport.tls.trust(trust);
    }

    /// What shows peers, when a connection to them is made, by whom that is.
    pub(crate) fn set_token(&mut self, token: &[u8]) {
        self.messenger.transport.token = token.into();
    }
}

impl Verbs {
    fn of(device: &Device) -> Verbs {
        Verbs { reads_ordered: device.reads_ordered() }
    }
}

impl Provider for Verbs {
    type Transport = VerbsTransport;

    fn post(
        &mut self,
        messenger: &mut VerbsMessenger,
        connection: ConnectionId,
        access: &RemoteAccess<'_>,
        tag: ReadTag,
    ) -> Result<(), SendError> {
        let VerbsMessenger { table, transport, .. } = messenger;
        let (found, counters) = table.get_counted(connection).ok_or(SendError::Closed)?;
        found.link.operations.post(access, tag, found.accepted)?;
        counters.reads_posted += 1;
        let lacks_landing = found.link.channel.as_ref().is_some_and(|channel| channel.pair.landing.is_none());
        if found.link.operations.has_refused() || lacks_landing {
            transport.touch(connection, table);
        }
        table.mark_dirty(connection);
        Ok(())
    }

    fn reads_ordered(&self) -> bool {
        self.reads_ordered
    }
}
