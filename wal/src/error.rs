//! What can go wrong with logs, images and the disk below them, and what the caller should do about it.

use std::fmt;

use cell_terms::{Epoch, PairId, RegionId};

use crate::corruption::Corruption;
use crate::flush_unfit::FlushUnfit;
use crate::log_root_need::LogRootNeed;
use crate::segment::SegmentName;

/// An operating system's error number. Copied around freely: a poisoned log answers with the same one again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// The device failed.
    pub const EIO: Errno = Errno(libc::EIO);
    /// The file system is full.
    pub const ENOSPC: Errno = Errno(libc::ENOSPC);
    /// Nothing has that name.
    pub const ENOENT: Errno = Errno(libc::ENOENT);
    /// What was opened is not there any more, or another has its place.
    pub const ESTALE: Errno = Errno(libc::ESTALE);
    /// Something has that name already.
    pub const EEXIST: Errno = Errno(libc::EEXIST);
    /// An argument (with O_DIRECT: an alignment) that the file refuses.
    pub const EINVAL: Errno = Errno(libc::EINVAL);

    /// The number inside a standard error; EIO where it has none (nothing that a disk says is taken for
    /// success).
    #[must_use]
    pub fn of(error: &std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }

    /// Whether the file system, or what its user may take of it, is full.
    #[must_use]
    pub const fn is_full(self) -> bool {
        matches!(self.0, libc::ENOSPC | libc::EDQUOT)
    }

    /// Whether the cause is a shortage that may pass (disk, quota, file table, memory), not damage.
    #[must_use]
    pub const fn is_shortage(self) -> bool {
        matches!(
            self.0,
            libc::ENOSPC
                | libc::EDQUOT
                | libc::EFBIG
                | libc::EMFILE
                | libc::ENFILE
                | libc::ENOMEM
                | libc::EAGAIN
        )
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Errno::ESTALE {
            // The system's words say nothing of what may have happened, and of what to do. NFS says so, too,
            // of a file that somebody else has removed.
            let words = "stale file handle: the log root may have been unmounted, or have another one in its \
                         place; see that the cluster's is mounted";
            return write!(f, "{words} (os error {})", self.0);
        }
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        Errno(errno.raw_os_error())
    }
}

/// What was asked of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskOperation {
    /// Open or create a file.
    Open,
    /// Read a file.
    Read,
    /// Write a file.
    Write,
    /// Sync a file.
    Sync,
    /// Ask a file's length.
    Length,
    /// List a folder.
    List,
    /// Create a folder.
    CreateFolder,
    /// Sync a folder.
    SyncFolder,
    /// Rename a file.
    Rename,
    /// Unlink a file.
    Unlink,
    /// Remove an empty folder.
    RemoveFolder,
    /// Lock a file.
    Lock,
    /// Give a file another name.
    Link,
}

impl fmt::Display for DiskOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DiskOperation::Open => "open",
            DiskOperation::Read => "read",
            DiskOperation::Write => "write",
            DiskOperation::Sync => "sync",
            DiskOperation::Length => "ask the length of",
            DiskOperation::List => "list",
            DiskOperation::CreateFolder => "create folder",
            DiskOperation::SyncFolder => "sync folder",
            DiskOperation::Rename => "rename",
            DiskOperation::Unlink => "unlink",
            DiskOperation::RemoveFolder => "remove folder",
            DiskOperation::Lock => "lock",
            DiskOperation::Link => "link",
        })
    }
}

/// A failed operation on a file or folder. The path is relative to the log root.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {operation} `{path}`: {errno}")]
pub struct StorageError {
    /// What was asked.
    pub operation: DiskOperation,
    /// Of which file or folder, relative to the log root.
    pub path: Box<str>,
    /// The answer.
    pub errno: Errno,
}

impl StorageError {
    pub(crate) fn new(operation: DiskOperation, path: &str, errno: impl Into<Errno>) -> StorageError {
        StorageError { operation, path: path.into(), errno: errno.into() }
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno::of(&error)
    }
}

/// Why a folder cannot be a log root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRootError {
    /// The log root.
    pub root: Box<str>,
    /// The file or folder in it with which this showed.
    pub path: Box<str>,
    /// What it cannot do.
    pub need: LogRootNeed,
    /// What the system said, if it said anything.
    pub errno: Option<Errno>,
}

impl fmt::Display for LogRootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogRootError { root, path, need, errno } = self;
        let [what, why, next] = need.texts();
        write!(f, "`{root}` cannot be a log root: {what} (`{path}`")?;
        if let Some(errno) = errno {
            write!(f, ": {errno}")?;
        }
        write!(f, "). {why}. {next}")
    }
}

impl std::error::Error for LogRootError {}

/// A step of setting up an io_uring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingStep {
    /// io_uring_setup.
    Setup,
    /// The wake descriptor.
    EventFd,
    /// The thread that prepares segments.
    Thread,
    /// io_uring_enter.
    Submit,
}

impl fmt::Display for RingStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RingStep::Setup => "io_uring_setup",
            RingStep::EventFd => "creating its wake descriptor",
            RingStep::Thread => "starting the segment preparer",
            RingStep::Submit => "io_uring_enter",
        })
    }
}

/// Errors of this crate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WalError {
    /// A cold operation failed. Nothing is known about damage; the caller decides whether to try again.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The folder cannot be a log root. An operator has to choose another one, or to change it.
    #[error(transparent)]
    LogRoot(#[from] LogRootError),
    /// One flush for all logs is demanded where it may not cover them all: a power cut would take what was
    /// acknowledged.
    #[error(
        "`log_flush` is per_device, and one flush may not cover all logs below `{root}`: {why}. A power cut would \
         take what was acknowledged. Set `log_flush` to auto or per_write"
    )]
    FlushUnsure {
        /// The log root.
        root: Box<str>,
        /// Why not.
        why: FlushUnfit,
    },
    /// A write or sync of a log failed, so the log accepts nothing any more and nothing is tried again. The
    /// node stops acknowledging, gives its pairs up and exits.
    #[error("the log is poisoned: {segment} at offset {offset}: {errno}")]
    Poisoned {
        /// Where.
        segment: SegmentName,
        /// At which byte.
        offset: u64,
        /// The first failure.
        errno: Errno,
    },
    /// This machine has no usable io_uring. Check `kernel.io_uring_disabled`, seccomp filters and container
    /// policy.
    #[error(
        "io_uring is not available ({step}: {errno}); see kernel.io_uring_disabled and the seccomp policy"
    )]
    RingUnavailable {
        /// The step that failed.
        step: RingStep,
        /// The answer.
        errno: Errno,
    },
    /// The folder of a region's epoch is missing although it was published. The pair must not be served.
    #[error("the log folder of {region}, {epoch} is missing")]
    FolderMissing {
        /// The region.
        region: RegionId,
        /// The epoch.
        epoch: Epoch,
    },
    /// A segment that must be there is not. The pair must not be served.
    #[error("the log segment {segment} is missing")]
    SegmentMissing {
        /// The segment.
        segment: SegmentName,
    },
    /// A file of a format that this build does not read; nothing was changed.
    #[error("{segment} at offset {offset} has log format version {found}; this build reads version {known}")]
    LogVersion {
        /// Where.
        segment: SegmentName,
        /// At which byte.
        offset: u64,
        /// What was found.
        found: u32,
        /// What this build reads.
        known: u32,
    },
    /// The log is damaged at or below what was acknowledged. Recovery stops; the pair must not be served.
    #[error(transparent)]
    Corrupt(Box<Corruption>),
    /// A checkpoint image was refused. It must not be used, and its log tail must not be served alone.
    #[error("checkpoint image `{path}` refused: {why}")]
    Image {
        /// The file, relative to the log root.
        path: Box<str>,
        /// Why.
        why: crate::image::ImageFault,
    },
    /// A block that no image can have. The image is given up.
    #[error("a block of an image has 1 to {max} bytes, and this one has {bytes}")]
    BlockLength {
        /// What it has.
        bytes: usize,
        /// What a block can have.
        max: usize,
    },
    /// The logs of a pair's epoch disagree about who wrote them: files were mixed up by hand.
    #[error("the two logs of {pair}, {epoch} were not written by one owner")]
    Mismatch {
        /// The pair.
        pair: PairId,
        /// The epoch.
        epoch: Epoch,
    },
}

/// Why an operation cannot be logged now. Nothing was appended and no CSN used: refuse it before changing
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogRefusal {
    /// The batch that is filling must be submitted first: try again after the next completion.
    #[error("the commit batch is full")]
    BatchFull,
    /// The operation can never be logged with this segment size.
    #[error("an operation of {bytes} log bytes is above the limit of {max}")]
    TooLarge {
        /// What it would take in one log.
        bytes: usize,
        /// What a frame can hold.
        max: usize,
    },
    /// The next segment is being prepared, or is asked for by the next submission: answer `Busy`, try again
    /// after the next event.
    #[error("the next log segment is not prepared yet")]
    Preparing,
    /// The disk is short: writes are refused, deletes may use the reserve.
    #[error("no log space: {errno}")]
    NoSpace {
        /// Why the next segment could not be prepared.
        errno: Errno,
    },
    /// The log's first frames are not durable yet.
    #[error("the log is not open yet")]
    Opening,
    /// A write or sync failed; see [`WalError::Poisoned`].
    #[error("the log is poisoned")]
    Poisoned,
}
