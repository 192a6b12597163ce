//! Why an operation on a pair was not carried out.

use cell_memory::ExtentError;
use cell_terms::{ExtentOffset, SlotIndex};
use cell_tree::{LeafEntry, PlanError, ReadError};

/// Memory that is not what it must be: damage, or a defect. Nothing is guessed; the request is refused.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// The tree could not be searched by its own writer.
    #[error("the tree cannot be searched: {0}")]
    Tree(ReadError),
    /// A leaf points to an extent that is not it.
    #[error("a leaf's extent at {offset} is damaged: {why}")]
    Extent {
        /// The extent's offset.
        offset: ExtentOffset,
        /// What is wrong with it.
        why: ExtentFault,
    },
    /// A plan failed for a reason that the room check excludes.
    #[error("a change could not be planned: {0}")]
    Plan(PlanError),
    /// A slot that holds no meganode was asked for.
    #[error("{0} holds no meganode")]
    NoMeganode(SlotIndex),
    /// An entry that was to be removed, or written, is not as its caller checked it.
    #[error("an entry changed between check and write")]
    EntryChanged,
}

impl From<ReadError> for PairError {
    fn from(error: ReadError) -> PairError {
        PairError::Tree(error)
    }
}

/// What is wrong with an extent.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtentFault {
    /// Its checksum is not its leaf's.
    #[error("checksum {found:#018x}, the leaf has {expected:#018x}")]
    Checksum {
        /// The leaf's.
        expected: u64,
        /// What was computed.
        found: u64,
    },
    /// The leaf gives it an impossible length, or its header cannot be read.
    #[error("its length or header cannot be")]
    Form,
}

/// Why a write was not started. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The batch that fills must be submitted first, or a segment is being prepared: the request waits.
    LogBusy,
    /// The disk has no room for the next segment.
    DiskFull,
    /// The extent region has no room for the entry.
    Region,
    /// The meganode has no tree nodes for the splits that a put may need: it must be split itself.
    Slot,
}

/// Why a write was not done.
#[derive(Clone, Copy, Debug)]
pub enum WriteError {
    /// There was no room for it.
    NoRoom(NoRoom),
    /// The pair is damaged.
    Pair(PairError),
}

impl From<PairError> for WriteError {
    fn from(error: PairError) -> WriteError {
        WriteError::Pair(error)
    }
}

pub(crate) fn form_fault(entry: &LeafEntry) -> PairError {
    PairError::Extent { offset: entry.offset, why: ExtentFault::Form }
}

pub(crate) fn extent_fault(entry: &LeafEntry, error: &ExtentError) -> PairError {
    let why = match error {
        ExtentError::Checksum { expected, found } => {
            ExtentFault::Checksum { expected: *expected, found: *found }
        }
        _ => ExtentFault::Form,
    };
    PairError::Extent { offset: entry.offset, why }
}
