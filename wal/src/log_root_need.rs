//! What a folder must be able to do to be a log root. All of it is tried when a node starts: see `log_root`.
//!
//! | need | because | where it is relied on |
//! |---|---|---|
//! | [`LogRootNeed::Write`] | logs and images are made in it | everywhere |
//! | [`LogRootNeed::SyncNames`] | a synced file is lost with a folder whose names are not | `storage`, `preparer`, `image` |
//! | [`LogRootNeed::DataSync`] | each commit is one such write | `ring` |
//! | [`LogRootNeed::Rename`] | a file gets its name when it is whole | `preparer`, `image` |
//! | [`LogRootNeed::Lock`] | two processes must not serve as one node | `cell_cluster`'s folder lock |
//! | [`LogRootNeed::OneDevice`] | free space is asked for once, for all of it | a node's watch over its disk |
//!
//! Wanted and not needed: O_DIRECT. Where it is refused, logs go through the page cache, still synced by each
//! write, and slower. Space is taken by writing zeros, never by `fallocate` (see `preparer`), so any file
//! system can do that. A shortage (a full disk, say) is no lack: a recovery may be what makes room.

/// Something that a log root must be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRootNeed {
    /// Folders and files can be made, written and read.
    Write,
    /// A folder's names can be put on stable storage.
    SyncNames,
    /// A write can be one that is on stable storage when it ends (RWF_DSYNC).
    DataSync,
    /// A file can be renamed.
    Rename,
    /// A lock on a file excludes others.
    Lock,
    /// All folders in it lie on one file system.
    OneDevice,
}

impl LogRootNeed {
    /// What is wrong, why it matters, and what to do.
    pub(crate) const fn texts(self) -> [&'static str; 3] {
        let local = "Use a local file system, ext4 or XFS best";
        match self {
            LogRootNeed::Write => [
                "it cannot be written",
                "Logs and checkpoints are made in it",
                "Give the folder to the user that runs the node, and see that it is not mounted read-only",
            ],
            LogRootNeed::SyncNames => [
                "its folders cannot be synced",
                "A file whose name is not on stable storage is gone after a power cut",
                local,
            ],
            LogRootNeed::DataSync => [
                "it takes no writes that sync themselves (RWF_DSYNC), or does not give back what they wrote",
                "Each commit is such a write",
                "Use Linux 4.7 or later, and a local file system, ext4 or XFS best",
            ],
            LogRootNeed::Rename => {
                ["its files cannot be renamed", "A log's file gets its name when it is whole", local]
            }
            LogRootNeed::Lock => [
                "a lock on a file in it excludes nobody",
                "Two processes could serve as the same node",
                "Use a local file system, or mount a shared one with locks",
            ],
            LogRootNeed::OneDevice => [
                "a folder in it lies on another file system",
                "Free space is watched for the whole log root at once",
                "Move that folder's files to the log root's own file system",
            ],
        }
    }
}
