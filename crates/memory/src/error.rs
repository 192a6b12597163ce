//! What can go wrong. Bytes from outside and requests of the operator make errors; broken promises of this
//! process panic.

use std::io;

use cell_terms::ExtentOffset;

use crate::budget::BudgetFull;

/// What is wrong with a region's geometry. The number that comes with it is the offending value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryFault {
    /// Region ids have 24 bits and begin at 1.
    #[error("region id")]
    RegionId,
    /// A whole number of 4 KiB pages, room for the header and one slot, and at most what an offset can name.
    #[error("region size")]
    RegionBytes,
    /// A power of two of at least 64 KiB, and no larger than the region without its header; zero in extent
    /// regions.
    #[error("slot size")]
    SlotBytes,
    /// A power of two from 512 to 4,096; zero in extent regions.
    #[error("tree node size")]
    NodeBytes,
    /// Epochs begin at 1.
    #[error("epoch")]
    Epoch,
    /// The first file offset of the data is not the one that this format has.
    #[error("header size")]
    HeaderBytes,
    /// Neither a node region nor an extent region.
    #[error("region kind")]
    Kind,
    /// The region's size is not the size of the file that holds it.
    #[error("file size")]
    FileBytes,
}

/// Why a region could not be made, opened or given memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The settings, or the header of an opened region, do not describe a region. Correct the setting; a
    /// header like that is damage or another program's file.
    #[error("{fault} cannot be {value}")]
    Geometry {
        /// Which number.
        fault: GeometryFault,
        /// The number.
        value: u64,
    },
    /// The file does not begin like a region. It is not one.
    #[error("not a region: it begins with {found:#018x}")]
    Magic {
        /// The word where the magic should be.
        found: u64,
    },
    /// The region was made by another version of Cell. Both ends must speak one format.
    #[error("region format {found}, this build reads format {supported}")]
    FormatVersion {
        /// The version in the header.
        found: u32,
        /// The version of this build.
        supported: u32,
    },
    /// A reserved word of the header is not zero: damage, or a format that should have raised its version.
    #[error("reserved header word {word} is {found:#x}")]
    Reserved {
        /// Index of the word.
        word: usize,
        /// What it holds.
        found: u64,
    },
    /// The machine, or the process's control group, does not have the memory for the whole region. Make the
    /// region smaller, or stop something else.
    #[error("the region needs {needed} bytes of memory, {available} are available")]
    MemoryShort {
        /// Bytes of the region.
        needed: u64,
        /// Bytes that are free or easily freed, less what other regions of this process may still take.
        available: u64,
    },
    /// The process may not take that much memory. Raise `memory_limit_bytes`, or do without.
    #[error("no memory for a region: {0}")]
    LimitReached(BudgetFull),
    /// The huge pages that were asked for by name are not reserved. Reserve them (`vm.nr_hugepages`), or let
    /// `auto` choose.
    #[error("the region needs {needed} free huge pages of {page_bytes} bytes, {free} are free")]
    HugePagesShort {
        /// Size of one page.
        page_bytes: u64,
        /// Pages that the whole region needs.
        needed: u64,
        /// Pages that are free and not promised to someone else.
        free: u64,
    },
    /// The kernel would not make the shared file.
    #[error("cannot create a memory file of {bytes} bytes")]
    Create {
        /// Its size.
        bytes: u64,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The kernel would not map the shared file.
    #[error("cannot map {bytes} bytes")]
    Map {
        /// Its size.
        bytes: u64,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The kernel would not seal the shared file, so it must not be shared.
    #[error("cannot seal the memory file")]
    Seal {
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The file is not sealed: its maker could take pages away under a reader. Refused.
    #[error("the memory file is not sealed against new writers and a change of its size")]
    NotSealed,
    /// No descriptor could be made to share the region, or it has none ([`crate::Region::create_private`]).
    #[error("cannot share the region")]
    Share {
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The kernel had no memory for a part of the region. Nothing is lost: what the region holds stays, but a
    /// first touch of that part may end the process, so stop allocating.
    #[error("cannot give memory to the region at offset {offset}")]
    Populate {
        /// Where in the region.
        offset: u64,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

/// Why an extent was not returned or not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtentError {
    /// The bytes are not what the leaf's checksum says: overwritten, torn or damaged. Read the leaf again;
    /// for the owner of the pair it is corruption.
    #[error("extent checksum is {found:#018x}, its leaf says {expected:#018x}")]
    Checksum {
        /// The checksum in the leaf.
        expected: u64,
        /// The checksum of the bytes.
        found: u64,
    },
    /// The extent would end outside the region: the pointer is stale or damaged.
    #[error("{offset} with {bytes} bytes is outside the region")]
    OutOfRange {
        /// Where it would begin.
        offset: ExtentOffset,
        /// How long it would be.
        bytes: u32,
    },
    /// Fewer or more bytes than the first word says, or an undefined flag.
    #[error("{found} bytes do not hold the extent that their first word {shape:#010x} describes")]
    Malformed {
        /// Lower half of the first word.
        shape: u32,
        /// How many bytes there are.
        found: usize,
    },
    /// The value is longer than an extent may hold. Refuse the request.
    #[error("a value of {bytes} bytes is too long")]
    ValueTooLong {
        /// The value's length.
        bytes: usize,
    },
}

/// Why a restore refused an extent: the tree that named it is not one that this allocator's user can have
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// No extent has this length.
    #[error("no extent has {bytes} bytes")]
    Length {
        /// The length.
        bytes: u32,
    },
    /// In the header or past the region's end.
    #[error("{offset} with {bytes} bytes is outside the region")]
    OutOfRange {
        /// Where it would begin.
        offset: ExtentOffset,
        /// Its length.
        bytes: u32,
    },
    /// The allocator never places an extent of this length here.
    #[error("{offset} is no place for {bytes} bytes")]
    Misplaced {
        /// Where it would begin.
        offset: ExtentOffset,
        /// Its length.
        bytes: u32,
    },
    /// Some of it belongs to an extent that was named before.
    #[error("{offset} with {bytes} bytes overlaps another extent")]
    Overlap {
        /// Where it would begin.
        offset: ExtentOffset,
        /// Its length.
        bytes: u32,
    },
}
