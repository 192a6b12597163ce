//! Why a checkpoint came to nothing, for the pair's owner and for its operator.

use std::fmt;

use cell_recovery::image::ImageError;
use cell_wal::{Errno, WalError};

/// Why a checkpoint came to nothing. The log has everything, and grows until one succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointFailure {
    /// The disk under the logs is full, or fails.
    Disk(Errno),
    /// There was no thread that could write it.
    Thread,
    /// Writers were always at one of the pair's tree nodes.
    Busy,
    /// The pair's memory is not what it should be.
    Damaged,
    /// What was to be written is no image, by the format.
    Format,
    /// The coordinator did not answer, or did not take it.
    NotRecorded,
}

impl From<&ImageError> for CheckpointFailure {
    fn from(error: &ImageError) -> CheckpointFailure {
        match error {
            ImageError::Wal(WalError::Storage(error)) => CheckpointFailure::Disk(error.errno),
            ImageError::Busy(_) => CheckpointFailure::Busy,
            ImageError::Damaged { .. } => CheckpointFailure::Damaged,
            _ => CheckpointFailure::Format,
        }
    }
}

impl fmt::Display for CheckpointFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointFailure::Disk(errno) => write!(f, "the disk under the logs says: {errno}"),
            CheckpointFailure::Thread => f.write_str("there was no thread to write it"),
            CheckpointFailure::Busy => f.write_str("a tree node was written all the time"),
            CheckpointFailure::Damaged => f.write_str("the pair's memory is damaged; restart the node"),
            CheckpointFailure::Format => f.write_str("it cannot be written; the node's messages say more"),
            CheckpointFailure::NotRecorded => f.write_str("the coordinator has not recorded it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_of_a_block_that_is_too_long_is_one_of_format_and_of_the_disk_has_its_words() {
        let long = ImageError::Wal(WalError::BlockLength { bytes: 1 << 30, max: 1 });
        assert_eq!(CheckpointFailure::from(&long), CheckpointFailure::Format);
        let full = CheckpointFailure::Disk(Errno::ENOSPC).to_string();
        assert!(full.contains("No space left on device"), "{full}");
    }
}
