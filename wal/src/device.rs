//! What a pair's log asks of the disk while it runs, and what it gets back. [`crate::ring::Ring`] is the
//! real device, [`crate::sim::SimDevice`] the simulated one; both are as strict.
//!
//! Requests do not block and do not fail: everything that happens comes back as an event, addressed to the
//! [`LogId`] that asked. A worker has one device for all its pairs.

use cell_terms::RegionKind;

use crate::buffer::LogBuffer;
use crate::error::{Errno, WalError};
use crate::segment::{LogId, SegmentName};

/// A write to a prepared segment. Its event means that the bytes are on stable storage, by a data-sync of
/// its own or by a flush that began after it had completed.
#[derive(Debug)]
pub struct LogWrite {
    /// Who is notified.
    pub log: LogId,
    /// Which of the pair's logs.
    pub kind: RegionKind,
    /// The file; its [`LogEvent::Prepared`] must have been seen.
    pub segment: SegmentName,
    /// Where, a multiple of 4 KiB.
    pub offset: u64,
    /// How many bytes of the buffer, a multiple of 4 KiB.
    pub length: usize,
    /// The bytes. The device owns them until the completion.
    pub buffer: LogBuffer,
}

/// A segment to be made ready: zero-filled, file and folder synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrepareSegment {
    /// Who is notified.
    pub log: LogId,
    /// Which of the pair's logs.
    pub kind: RegionKind,
    /// The file to be made; its folder is made too if need be.
    pub segment: SegmentName,
    /// Its length.
    pub bytes: u64,
    /// A released segment of the same log and length whose file is used again under the new name.
    pub recycle: Option<SegmentName>,
}

/// What a device reports.
#[derive(Debug)]
pub enum LogEvent {
    /// A write ended.
    Written {
        /// Whose.
        log: LogId,
        /// Which of the pair's logs.
        kind: RegionKind,
        /// Where it was written.
        segment: SegmentName,
        /// At which byte.
        offset: u64,
        /// The buffer; `None` if the device could not give it up (the ring itself broke).
        buffer: Option<LogBuffer>,
        /// Whether every byte is on stable storage.
        result: Result<(), Errno>,
    },
    /// A segment is ready, or could not be made ready (nothing of it is left then).
    Prepared {
        /// Whose.
        log: LogId,
        /// Which of the pair's logs.
        kind: RegionKind,
        /// Which segment.
        segment: SegmentName,
        /// Whether it may be written.
        result: Result<(), Errno>,
    },
}

impl LogEvent {
    /// Whose event this is.
    #[must_use]
    pub const fn log(&self) -> LogId {
        match self {
            LogEvent::Written { log, .. } | LogEvent::Prepared { log, .. } => *log,
        }
    }
}

/// The hot side of a disk.
pub trait LogDevice {
    /// A buffer of at least so many bytes, registered with the device where it can be.
    fn buffer(&mut self, bytes: usize) -> LogBuffer;

    /// Queues a write; [`LogDevice::submit`] sends it.
    ///
    /// # Panics
    /// If the segment was not prepared, or offset or length are not aligned or beyond its end: the writer's
    /// defect.
    fn write(&mut self, write: LogWrite);

    /// Asks for a segment. Never waits.
    fn prepare(&mut self, request: PrepareSegment);

    /// Closes and unlinks a segment that nothing needs any more. Failures are logged: the file is then left
    /// over.
    fn remove(&mut self, segment: SegmentName);

    /// Forgets a pair's files: its owner gives it up. Files stay; writes in flight complete.
    fn close(&mut self, log: LogId);

    /// Sends what is queued, all pairs' writes at once.
    ///
    /// # Errors
    /// The device itself is broken: give every pair up.
    fn submit(&mut self) -> Result<(), WalError>;

    /// Appends what has happened to `events`. No system call, no waiting.
    fn poll(&mut self, events: &mut Vec<LogEvent>);
}
