//! What `cell inspect log` and `cell verify` show: every frame of a log with its place, and the verdict on a
//! pair.

use std::sync::Arc;

use cell_terms::{Csn, RegionKind};

use crate::error::WalError;
use crate::frame::FrameHeader;
use crate::merge::{PairLogEnd, PairReader, ReadRequest};
use crate::reader::{LogEnd, LogReader, LogStartAt, ReadOptions};
use crate::record::Records;
use crate::segment::{LogId, LogPlace, SegmentName};
use crate::storage::Storage;

/// One sound frame of a log.
#[derive(Clone, Copy, Debug)]
pub struct InspectedFrame<'a> {
    /// File and offset.
    pub place: LogPlace,
    /// The header.
    pub header: FrameHeader,
    /// The records, not yet looked at.
    pub payload: &'a [u8],
}

impl<'a> InspectedFrame<'a> {
    /// The frame's records.
    #[must_use]
    pub const fn records(&self) -> Records<'a> {
        Records::new(self.payload, self.header.csn_first, self.header.csn_last)
    }
}

/// How a walk through a log ended.
#[derive(Clone, Copy, Debug)]
pub struct Walked {
    /// Where and how the sound frames end.
    pub end: LogEnd,
    /// A segment that is not there, and that nothing needs.
    pub skipped: Option<SegmentName>,
}

/// Shows every sound frame of a log, from its oldest segment on. What is at or below `base` is in an image.
///
/// # Errors
/// The log is missing or lacks a segment that holds more, the disk fails, or the format is of another
/// version.
pub fn walk_log(
    storage: &Arc<dyn Storage>,
    id: LogId,
    kind: RegionKind,
    base: Csn,
    mut visit: impl FnMut(&InspectedFrame<'_>),
) -> Result<Walked, WalError> {
    let options = ReadOptions { ahead: false, ..ReadOptions::default() };
    let mut reader = LogReader::open(Arc::clone(storage), id, kind, LogStartAt::Oldest(base), options)?;
    while reader.advance()? {
        if let (Some(header), Some(place)) = (reader.header(), reader.frame_place()) {
            visit(&InspectedFrame { place, header: *header, payload: reader.payload() });
        }
    }
    Ok(Walked { end: reader.finish()?, skipped: reader.skipped() })
}

/// Reads a pair's epoch as a recovery would, without using what it says.
///
/// # Errors
/// What would stop that recovery.
pub fn verify_pair(storage: &Arc<dyn Storage>, request: ReadRequest) -> Result<PairLogEnd, WalError> {
    let mut reader = PairReader::open(storage, request)?;
    while reader.next_batch()?.is_some() {}
    Ok(*reader.ended().expect("a reader that yields no more batches has ended"))
}
