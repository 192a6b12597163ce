//! What the endpoints of some tests have no use for: the rest of their traits, which does nothing.

/// The rest of an `Endpoint` with so many connections.
macro_rules! rest_of_endpoint {
    (connections: $connections:literal) => {
        fn flush(&mut self) {}

        fn tick(&mut self, _: u64) {}

        fn set_limits(&mut self, _: cell_fabric::FabricLimits) {}

        fn close(&mut self, _: cell_fabric::ConnectionId) {}

        fn output_pending(&self, _: cell_fabric::ConnectionId) -> usize {
            0
        }

        fn connections(&self) -> usize {
            $connections
        }

        fn prepare_sleep(&mut self) -> bool {
            false
        }

        fn wake_descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            None
        }

        fn counters(&self) -> cell_fabric::FabricCounters {
            cell_fabric::FabricCounters::default()
        }
    };
}

/// A `OneSided` that registers nothing.
macro_rules! no_registrations {
    () => {
        fn register_for(
            &mut self,
            _: &cell_memory::Region,
            _: cell_fabric::RegionAccess,
        ) -> Result<cell_fabric::RegionKey, cell_fabric::FabricError> {
            Err(cell_fabric::FabricError::OneSidedUnavailable)
        }

        fn deregister(&mut self, _: cell_fabric::RegionKey) {}
    };
}

pub(crate) use {no_registrations, rest_of_endpoint};
