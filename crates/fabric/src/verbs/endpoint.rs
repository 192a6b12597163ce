//! The RDMA endpoint as the endpoint of its host sees it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use cell_memory::Region;

use crate::address::Address;
use crate::connections::{Acceptor, MARK_VERBS, Messenger};
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Endpoint, Event};
use crate::error::{FabricError, SendError};
use crate::limits::FabricLimits;
use crate::one_sided::OneSided;
use crate::partition::Partition;
use crate::registry::Registry;
use crate::remote_access::{ReadTag, RegionAccess, RegionKey, RemoteAccess};

use super::completion::CompletionQueue;
use super::device::Device;
use super::transport::{VerbsMessenger, VerbsTransport};

/// An endpoint over RDMA. Its sockets are accepted by the `tcp` endpoint of the same process.
#[derive(Debug)]
pub(crate) struct VerbsEndpoint {
    messenger: VerbsMessenger,
    reads_ordered: bool,
}

impl VerbsEndpoint {
    /// An endpoint that only connects.
    ///
    /// # Errors
    /// The device has no completion queue, or the process is out of descriptors.
    pub(crate) fn client(limits: FabricLimits, device: &Arc<Device>) -> Result<VerbsEndpoint, FabricError> {
        let transport = VerbsTransport::new(CompletionQueue::new(device)?, None, Partition::default());
        Ok(VerbsEndpoint::of(Messenger::new(limits, transport)?, device))
    }

    /// An endpoint that finds its sockets on the acceptor's queue.
    ///
    /// # Errors
    /// As for [`VerbsEndpoint::client`].
    pub(crate) fn accepting(
        limits: FabricLimits,
        device: &Arc<Device>,
        acceptor: Acceptor,
        registry: Option<Arc<Registry>>,
    ) -> Result<VerbsEndpoint, FabricError> {
        let partition = acceptor.partition().clone();
        let transport = VerbsTransport::new(CompletionQueue::new(device)?, registry, partition);
        Ok(VerbsEndpoint::of(Messenger::accepting(limits, transport, acceptor)?, device))
    }

    fn of(messenger: VerbsMessenger, device: &Device) -> VerbsEndpoint {
        VerbsEndpoint { messenger, reads_ordered: device.reads_ordered() }
    }
}

impl Endpoint for VerbsEndpoint {
    fn connect(&mut self, address: &Address) -> Result<ConnectionId, FabricError> {
        self.messenger.connect(address, MARK_VERBS)
    }

    fn send_parts(&mut self, connection: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        self.messenger.send_parts(connection, parts)
    }

    fn flush(&mut self) {
        self.messenger.flush();
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        self.messenger.poll(sink)
    }

    fn tick(&mut self, now_ns: u64) {
        self.messenger.tick(now_ns);
    }

    fn set_limits(&mut self, limits: FabricLimits) {
        self.messenger.table.set_limits(limits);
    }

    fn close(&mut self, connection: ConnectionId) {
        self.messenger.close(connection);
    }

    fn output_pending(&self, connection: ConnectionId) -> usize {
        self.messenger.output_pending(connection)
    }

    fn connections(&self) -> usize {
        self.messenger.table.len()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.messenger.prepare_sleep()
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.messenger.wake_descriptor())
    }

    fn counters(&self) -> FabricCounters {
        self.messenger.table.counters()
    }
}

impl OneSided for VerbsEndpoint {
    fn register_for(&mut self, region: &Region, access: RegionAccess) -> Result<RegionKey, FabricError> {
        let registry = self.messenger.transport.registry.as_ref();
        registry.ok_or(FabricError::OneSidedUnavailable)?.register(region, access)
    }

    fn deregister(&mut self, key: RegionKey) {
        if let Some(registry) = &self.messenger.transport.registry {
            registry.deregister(key);
        }
    }

    fn post(
        &mut self,
        connection: ConnectionId,
        access: RemoteAccess<'_>,
        tag: ReadTag,
    ) -> Result<(), SendError> {
        let VerbsMessenger { table, transport, .. } = &mut self.messenger;
        let (found, counters) = table.get_counted(connection).ok_or(SendError::Closed)?;
        found.link.operations.post(&access, tag, found.accepted)?;
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
