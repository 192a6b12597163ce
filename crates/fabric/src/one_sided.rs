//! The one-sided half of a fabric: regions are registered, peers read them without the owner's thread.
//!
//! A read names the *registration*, not the region: keys are random and fresh each time, so a read that was
//! posted for an earlier registration fails instead of returning what stands there now. What a read returns
//! is whatever the memory held while it was read; a writer may have been at work. Readers validate, as the
//! module text of `tree` says, and a provider tells by [`OneSided::reads_ordered`] whether a version word at
//! each end is enough.

use std::fmt;

use cell_memory::Region;
use cell_terms::Words;

use crate::endpoint::{ConnectionId, Endpoint};
use crate::error::{FabricError, SendError};
use crate::mapped::MappedRegion;

/// Names one registration of a region for remote read. Whoever has it and can reach the fabric can read the
/// region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionKey(pub u64);

impl fmt::Display for RegionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key-{:016x}", self.0)
    }
}

/// The caller's own name for a read; nothing but it comes back with the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadTag(pub u64);

/// What to read. Offset and length are in bytes and multiples of 8: live memory is words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRead {
    /// The registration.
    pub key: RegionKey,
    /// Byte offset in the region, a multiple of 8.
    pub offset: u64,
    /// Bytes, a multiple of 8, from 8 to [`READ_BYTES_MAX`].
    pub length: u32,
}

/// The longest one-sided read.
pub const READ_BYTES_MAX: u32 = 32 * 1024;

/// Reads in flight on one connection.
pub const READS_MAX: usize = 1_024;

/// Why a read returned nothing. Each is definite: no memory was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadFailure {
    /// No such registration: the region was given up, or its owner changed. Look the region up again.
    #[error("the region key is unknown")]
    KeyUnknown,
    /// Beyond the region, not in words, empty, or longer than [`READ_BYTES_MAX`].
    #[error("the range of the read is not permitted")]
    RangeInvalid,
    /// The connection ended before the read was answered.
    #[error("the connection ended")]
    ConnectionClosed,
    /// The peer serves no one-sided reads.
    #[error("the peer serves no one-sided reads")]
    Unsupported,
}

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
    /// As for a send: [`SendError::Full`] with [`READS_MAX`] in flight on the connection,
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

const WORDS_PER_LINE: usize = 8;

impl RemoteRead {
    /// Loads the words that it names, one cache line after the other in the order of their addresses.
    ///
    /// # Errors
    /// [`ReadFailure::RangeInvalid`].
    pub(crate) fn load(&self, region: &Region, words: &mut Vec<u64>) -> Result<(), ReadFailure> {
        if !self.fits(region.len() as u64 * 8) {
            return Err(ReadFailure::RangeInvalid);
        }
        let first = usize::try_from(self.offset / 8).map_err(|_| ReadFailure::RangeInvalid)?;
        let count = usize::try_from(self.length / 8).map_err(|_| ReadFailure::RangeInvalid)?;
        words.resize(count, 0);
        // Up to the end of the first cache line, then whole ones, each loaded after the one before.
        let mut done = 0;
        while done < count {
            let line = WORDS_PER_LINE - (first + done) % WORDS_PER_LINE;
            let until = count.min(done + line);
            region.read_words(first + done, &mut words[done..until]);
            region.fence_acquire();
            done = until;
        }
        Ok(())
    }

    /// Whether offset and length are whole words, within the limit and within a region of that many bytes.
    pub(crate) fn fits(&self, region_bytes: u64) -> bool {
        self.length != 0
            && self.length <= READ_BYTES_MAX
            && self.length.is_multiple_of(8)
            && self.offset.is_multiple_of(8)
            && self.offset.checked_add(u64::from(self.length)).is_some_and(|end| end <= region_bytes)
    }
}
