//! The one-sided half of a fabric: regions are registered, peers access them without the owner's thread. The
//! registration says what is permitted: reads alone, in all providers so far.
//!
//! A read names the *registration*, not the region: keys are random and fresh each time, so a read that was
//! posted for an earlier registration fails instead of returning what stands there now. What a read returns
//! is whatever the memory held while it was read; a writer may have been at work. Readers validate, as the
//! module text of `tree` says, and a provider says by [`OneSided::reads_ordered`] whether a version word at
//! each end is enough.

use cell_memory::Region;

use crate::endpoint::{ConnectionId, Endpoint};
use crate::error::{FabricError, SendError};
use crate::mapped::MappedRegion;
use crate::remote_access::{ReadTag, RegionAccess, RegionKey, RemoteAccess, RemoteRead};

/// An endpoint with one-sided access.
pub trait OneSided: Endpoint {
    /// [`OneSided::register_for`] reads alone: all that the product asks for.
    ///
    /// # Errors
    /// As for [`OneSided::register_for`].
    fn register(&mut self, region: &Region) -> Result<RegionKey, FabricError> {
        self.register_for(region, RegionAccess::Read)
    }

    /// Lets peers access a region until it is deregistered. The key is random and fresh.
    ///
    /// # Errors
    /// No service for one-sided access at this endpoint, no random bytes, or
    /// [`FabricError::AccessUnavailable`]: this provider does not permit that access to this region.
    fn register_for(&mut self, region: &Region, access: RegionAccess) -> Result<RegionKey, FabricError>;

    /// Ends a registration. When this returns nothing is read through it any more by a provider's own code;
    /// an unknown key is ignored. A peer that has the memory mapped (`shm`) and goes round the provider can
    /// look at what it has until it unmaps: it cannot map it again, and epochs and the rules of trust make
    /// what it sees worthless.
    fn deregister(&mut self, key: RegionKey);

    /// Posts an operation on the peer's memory. What was posted leaves as one batch with the next flush, and
    /// [`crate::Event::ReadDone`] follows for each with its tag. Operations complete in any order, and in any
    /// order with messages. Only the end that connected can post them.
    ///
    /// # Errors
    /// As for a send: [`SendError::Full`] with [`crate::READS_MAX`] in flight on the connection,
    /// [`SendError::Closed`].
    fn post(
        &mut self,
        connection: ConnectionId,
        access: RemoteAccess<'_>,
        tag: ReadTag,
    ) -> Result<(), SendError>;

    /// [`OneSided::post`] of a read.
    ///
    /// # Errors
    /// As for [`OneSided::post`].
    fn post_read(
        &mut self,
        connection: ConnectionId,
        read: RemoteRead,
        tag: ReadTag,
    ) -> Result<(), SendError> {
        self.post(connection, RemoteAccess::Read(read), tag)
    }

    /// The region behind a key, where this provider's reads are loads of memory that is mapped: from the
    /// first read by that key on. Elsewhere, and before, there is none.
    fn mapped(&self, _connection: ConnectionId, _key: RegionKey) -> Option<MappedRegion> {
        None
    }

    /// Whether one read loads its cache lines in address order. Where it does not, tree nodes need a check
    /// that survives any order.
    fn reads_ordered(&self) -> bool;
}
