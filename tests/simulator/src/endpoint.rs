//! A node's endpoint: the simulated one, with a look at each reply that leaves.

use std::os::fd::BorrowedFd;

use cell_fabric::{
    Address, ConnectionId, Endpoint, Event, FabricCounters, FabricError, FabricLimits, OneSided, ReadTag,
    RegionAccess, RegionKey, RemoteAccess, SendError, SimEndpoint,
};
use cell_memory::Region;
use cell_protocol::{Reply, StatusCode};

/// See the module's text.
#[derive(Debug)]
pub struct WatchedEndpoint {
    endpoint: SimEndpoint,
    /// Delayed copies of writes that were turned away.
    pub(crate) below_floor: u64,
    /// Why a reply could not be sent that should have been.
    pub(crate) failed: Option<SendError>,
}

impl WatchedEndpoint {
    /// Looks at what leaves by this endpoint.
    #[must_use]
    pub fn new(endpoint: SimEndpoint) -> WatchedEndpoint {
        WatchedEndpoint { endpoint, below_floor: 0, failed: None }
    }
}

impl Endpoint for WatchedEndpoint {
    fn connect(&mut self, address: &Address) -> Result<ConnectionId, FabricError> {
        self.endpoint.connect(address)
    }

    fn send_parts(&mut self, connection: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        let sent = self.endpoint.send_parts(connection, parts);
        match &sent {
            Ok(()) => self.below_floor += u64::from(is_below_floor(&parts.concat())),
            Err(SendError::Full | SendError::Closed) => {}
            Err(error) => self.failed = Some(*error),
        }
        sent
    }

    fn flush(&mut self) {
        self.endpoint.flush();
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        self.endpoint.poll(sink)
    }

    fn tick(&mut self, now_ns: u64) {
        self.endpoint.tick(now_ns);
    }

    fn set_limits(&mut self, limits: FabricLimits) {
        self.endpoint.set_limits(limits);
    }

    fn close(&mut self, connection: ConnectionId) {
        self.endpoint.close(connection);
    }

    fn output_pending(&self, connection: ConnectionId) -> usize {
        self.endpoint.output_pending(connection)
    }

    fn connections(&self) -> usize {
        self.endpoint.connections()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.endpoint.prepare_sleep()
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.endpoint.wake_descriptor()
    }

    fn counters(&self) -> FabricCounters {
        self.endpoint.counters()
    }
}

impl OneSided for WatchedEndpoint {
    fn register_for(&mut self, region: &Region, access: RegionAccess) -> Result<RegionKey, FabricError> {
        self.endpoint.register_for(region, access)
    }

    fn deregister(&mut self, key: RegionKey) {
        self.endpoint.deregister(key);
    }

    fn post(
        &mut self,
        connection: ConnectionId,
        access: RemoteAccess<'_>,
        tag: ReadTag,
    ) -> Result<(), SendError> {
        self.endpoint.post(connection, access, tag)
    }

    fn reads_ordered(&self) -> bool {
        self.endpoint.reads_ordered()
    }
}

/// Whether a reply turns a delayed copy of an acknowledged write away.
fn is_below_floor(reply: &[u8]) -> bool {
    let refused = StatusCode::NumberBelowFloor;
    matches!(Reply::decode(reply), Ok((_, Reply::Refused(refusal))) if refusal.status() == refused)
}
