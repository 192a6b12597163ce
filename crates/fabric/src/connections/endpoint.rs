//! An endpoint over a messenger, as its users see it: the same for all providers.
#![allow(private_bounds, reason = "who is outside names no provider, but `TcpEndpoint` or `ShmEndpoint`")]

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use cell_memory::Region;

use crate::address::Address;
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Endpoint, Event};
use crate::error::{FabricError, SendError};
use crate::limits::FabricLimits;
use crate::mapped::MappedRegion;
use crate::one_sided::OneSided;
use crate::ready_parts::ReadyParts;
use crate::registry::Registry;
use crate::remote_access::{ReadTag, RegionAccess, RegionKey, RemoteAccess};

use super::connection::Link;
use super::messenger::Messenger;
use super::provider::Provider;
use super::transport::Transport;

/// An endpoint of one provider, [`crate::TcpEndpoint`] or [`crate::ShmEndpoint`]: a node's, which accepts, or
/// a client's, which only connects.
#[derive(Debug)]
pub struct MessengerEndpoint<P: Provider> {
    pub(crate) messenger: Messenger<P::Transport>,
    pub(crate) provider: P,
    /// An acceptor's; none where no one-sided reads are served.
    pub(crate) registry: Option<Arc<Registry>>,
}

impl<P: Provider> Endpoint for MessengerEndpoint<P> {
    fn connect(&mut self, address: &Address) -> Result<ConnectionId, FabricError> {
        self.messenger.connect(address, P::Transport::MARK)
    }

    fn name_address(&mut self, address: SocketAddr, host: &str) {
        self.messenger.transport.name_address(address, host);
    }

    fn send_parts(&mut self, connection: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        self.messenger.send_parts(connection, parts)
    }

    fn flush(&mut self) {
        self.messenger.flush();
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        self.provider.poll(&mut self.messenger, sink)
    }

    fn tick(&mut self, now_ns: u64) {
        self.messenger.tick(now_ns);
    }

    fn set_limits(&mut self, limits: FabricLimits) {
        self.messenger.table.set_limits(limits);
        self.provider.set_limits(&mut self.messenger, limits);
    }

    fn close(&mut self, connection: ConnectionId) {
        self.provider.closing(&mut self.messenger, connection);
        self.messenger.close(connection);
    }

    fn await_admission(&mut self) {
        self.messenger.await_admission();
    }

    fn admit(&mut self, connection: ConnectionId) {
        self.messenger.admit(connection);
    }

    fn output_pending(&self, connection: ConnectionId) -> usize {
        self.messenger.output_pending(connection)
    }

    fn connections(&self) -> usize {
        self.messenger.table.len().saturating_sub(self.provider.own_connections())
    }

    fn prepare_sleep(&mut self) -> bool {
        self.messenger.prepare_sleep() && self.provider.is_quiet()
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.messenger.wake_descriptor())
    }

    fn woken(&mut self, parts: ReadyParts) {
        if !parts.has(0) {
            self.messenger.slept_through();
        }
    }

    fn counters(&self) -> FabricCounters {
        let mut counters = self.messenger.table.counters();
        counters.add(&self.provider.counters());
        counters
    }
}

impl<P: Provider> OneSided for MessengerEndpoint<P> {
    fn register_for(&mut self, region: &Region, access: RegionAccess) -> Result<RegionKey, FabricError> {
        self.registry.as_ref().ok_or(FabricError::OneSidedUnavailable)?.register(region, access)
    }

    fn deregister(&mut self, key: RegionKey) {
        if let Some(registry) = &self.registry {
            registry.deregister(key);
        }
    }

    fn post(
        &mut self,
        connection: ConnectionId,
        access: RemoteAccess<'_>,
        tag: ReadTag,
    ) -> Result<(), SendError> {
        self.provider.post(&mut self.messenger, connection, &access, tag)
    }

    fn mapped(&self, connection: ConnectionId, key: RegionKey) -> Option<MappedRegion> {
        self.messenger.table.get(connection)?.link.mapped(key)
    }

    fn reads_ordered(&self) -> bool {
        self.provider.reads_ordered()
    }
}
