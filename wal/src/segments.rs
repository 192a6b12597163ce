//! How many segments a log has, and how far it is in the current one.

use cell_terms::Csn;

/// The segments of one log, now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSegments {
    /// Those with frames: the current one, and filled ones that no checkpoint has released.
    pub in_use: u64,
    /// Those that are prepared, or being prepared, for the log to move on to.
    pub spare: u64,
    /// Released ones whose files wait to be used again.
    pub released: u64,
    /// Bytes of all these files.
    pub bytes: u64,
    /// The number (generation) of the current segment.
    pub current: u32,
    /// Bytes of frames in the current segment.
    pub current_bytes: u64,
    /// Bytes that the current segment has room for.
    pub current_bytes_all: u64,
    /// The least commit number whose record may still be in the log.
    pub csn_oldest: Csn,
}
