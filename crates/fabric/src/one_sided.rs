//! The one-sided half of a fabric: regions are registered, peers read them without the owner's thread.
//!
//! A read names the *registration*, not the region: keys are random and fresh each time, so a read that was
//! posted for an earlier registration fails instead of returning what stands there now. What a read returns
//! is whatever the memory held while it was read; a writer may have been at work. Readers validate, as the
//! module text of `tree` says, and a provider tells by [`OneSided::reads_ordered`] whether a version word at
//! each end is enough.

use cell_memory::Region;

use crate::endpoint::{ConnectionId, Endpoint};
use crate::error::{FabricError, SendError};
use crate::mapped::MappedRegion;
use crate::remote_access::{ReadTag, RegionKey, RemoteRead};

/// An endpoint with one-sided reads.
pub trait OneSided: Endpoint {
    /// Lets peers read a region until it is deregistered. The key is random and fresh. Registrations belong
    /// to the process, not to the endpoint: they hold, and may be ended, at any endpoint of it.
    ///
    /// # Errors
    /// No service for one-sided reads at this endpoint, or no random bytes.
    fn register(&mut self, region: &Region) -> Result<RegionKey, FabricError>;

    /// Ends a registration. When this returns nothing is read through it any more by a provider's own code;
    /// an unknown key is ignored. A peer that has the memory mapped (`shm`) and goes round the provider can
    /// look at what it has until it unmaps: it cannot map it again, and epochs and the rules of trust make
    /// what it sees worthless.
    fn deregister(&mut self, key: RegionKey);

    /// Posts a read of the peer's memory; it leaves with the next flush and [`crate::Event::ReadDone`]
    /// follows with the tag. Reads complete in any order, and in any order with messages. Only the end that
    /// connected can read.
    ///
    /// # Errors
    /// As for a send: [`SendError::Full`] with [`crate::READS_MAX`] in flight on the connection,
    /// [`SendError::Closed`].
    fn post_read(
        &mut self,
        connection: ConnectionId,
        read: RemoteRead,
        tag: ReadTag,
    ) -> Result<(), SendError>;

    /// The region behind a key, where this provider's reads are loads of memory that is mapped: from the
    /// first read by that key on. Elsewhere, and before, there is none.
    fn mapped(&self, _connection: ConnectionId, _key: RegionKey) -> Option<MappedRegion> {
        None
    }

    /// Whether one read loads its cache lines in address order. Where it does not, tree nodes need a check
    /// that survives any order.
    fn reads_ordered(&self) -> bool;
}
