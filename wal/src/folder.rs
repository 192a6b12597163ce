//! What is in a log root: regions, epochs, segments, images; and the removal of what nothing needs any more.

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Epoch, PairId, RegionId};

use crate::buffer::LogBuffer;
use crate::error::{Errno, StorageError, WalError};
use crate::frame::{FRAME_ALIGN, FrameFault, FrameHeader};
use crate::segment::{
    ImageName, LogName, LogPlace, SegmentName, image_folder, parse_epoch, parse_image, parse_region,
    parse_segment, region_folder,
};
use crate::storage::{Access, Storage};

/// The regions that have logs.
///
/// # Errors
/// What the disk says.
pub fn list_regions(storage: &dyn Storage) -> Result<Vec<RegionId>, StorageError> {
    let mut regions: Vec<_> = storage.list("")?.iter().filter_map(|name| parse_region(name)).collect();
    regions.sort_unstable();
    Ok(regions)
}

/// The epochs of a region's logs, ascending; none if the region has no folder. Recovery refuses a region
/// table that is older than the last one.
///
/// # Errors
/// What the disk says.
pub fn list_epochs(storage: &dyn Storage, region: RegionId) -> Result<Vec<Epoch>, StorageError> {
    let mut epochs: Vec<_> =
        list_or_none(storage, &region_folder(region))?.iter().filter_map(|name| parse_epoch(name)).collect();
    epochs.sort_unstable();
    Ok(epochs)
}

/// The generations of a log's segments, ascending.
///
/// # Errors
/// [`WalError::FolderMissing`], or what the disk says.
pub fn list_segments(storage: &dyn Storage, name: LogName) -> Result<Vec<u32>, WalError> {
    let names = storage.list(&name.folder()).map_err(|error| match error.errno {
        Errno::ENOENT => WalError::FolderMissing { region: name.region, epoch: name.epoch },
        _ => error.into(),
    })?;
    let mut generations: Vec<u32> = names.iter().filter_map(|name| parse_segment(name)).collect();
    generations.sort_unstable();
    Ok(generations)
}

/// Bytes of a log's files, without the spares at its end that nothing was written to: what a reader reads, at
/// most. None if there is no such log.
///
/// # Errors
/// What the disk says.
pub fn written_bytes(storage: &dyn Storage, name: LogName) -> Result<u64, WalError> {
    Ok(written_lengths(storage, name)?.iter().sum())
}

/// The same without the last file that something was written to: of a log that is still being written nobody
/// knows how much of it is.
///
/// # Errors
/// What the disk says.
pub fn closed_bytes(storage: &dyn Storage, name: LogName) -> Result<u64, WalError> {
    Ok(written_lengths(storage, name)?.iter().skip(1).sum())
}

/// The lengths of a log's files that something was written to, the newest first.
fn written_lengths(storage: &dyn Storage, name: LogName) -> Result<Vec<u64>, WalError> {
    let generations = match list_segments(storage, name) {
        Err(WalError::FolderMissing { .. }) => return Ok(Vec::new()),
        generations => generations?,
    };
    let mut lengths = Vec::new();
    let mut is_spare = true;
    for segment in generations.into_iter().rev().map(|generation| name.segment(generation)) {
        let header = if is_spare { read_first_header(storage, segment)? } else { None };
        // A recycled file has the frames of an earlier use.
        is_spare &= header.is_none_or(|header| header.generation != segment.generation);
        if is_spare {
            continue;
        }
        match storage.open(&segment.path(), Access::Read) {
            Ok(file) => lengths.push(file.length()?),
            Err(error) if error.errno == Errno::ENOENT => {} // released just now
            Err(error) => return Err(error.into()),
        }
    }
    Ok(lengths)
}

/// A pair's whole images, ascending; none if it has no folder.
///
/// # Errors
/// What the disk says.
pub fn list_images(storage: &dyn Storage, pair: PairId) -> Result<Vec<ImageName>, StorageError> {
    let mut images: Vec<_> =
        list_or_none(storage, &image_folder(pair))?.iter().filter_map(|name| parse_image(name)).collect();
    images.sort_unstable();
    Ok(images)
}

/// Removes those files of an ended epoch's log that hold nothing at or below its recorded cut: the spares
/// that its owner had prepared or was preparing. On a full disk this makes the room that the next epoch's
/// first segments need. Says how many.
///
/// # Errors
/// What the disk says; call it again later.
pub fn remove_past_cut(storage: &dyn Storage, name: LogName, cut: Csn) -> Result<usize, WalError> {
    let mut removed = 0;
    let folder = name.folder();
    let generations = list_segments(storage, name)?;
    for unfinished in storage.list(&folder)?.iter().filter(|file| parse_segment(file).is_none()) {
        storage.unlink(&format!("{folder}/{unfinished}"))?;
        removed += 1;
    }
    for generation in generations {
        let segment = name.segment(generation);
        let header = read_first_header(storage, segment)?;
        let needed = header.is_some_and(|header| {
            let of_segment = (header.region, header.epoch) == (name.region, name.epoch);
            of_segment && header.generation == generation && header.csn_first <= cut.next()
        });
        if !needed {
            storage.unlink(&segment.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Gives the disk back what a segment of an ended epoch's log holds past the end of its frames: the rest of
/// what was prepared for its owner. The file keeps its length, by which a reader knows that it is whole.
///
/// The epoch's cut must be recorded: what is given back is not read again. What its dead owner still has on
/// its way there takes its blocks again.
///
/// # Errors
/// What the disk says; call it again later.
pub fn give_back_past_end(storage: &dyn Storage, end: LogPlace) -> Result<(), WalError> {
    let align = FRAME_ALIGN as u64;
    let from = if planted(Mutant::FramesGivenBack) { end.offset / 2 / align * align } else { end.offset };
    match storage.open(&end.segment.path(), Access::WriteDirect) {
        Err(error) if error.errno == Errno::ENOENT => Ok(()), // nothing was written to it
        file => Ok(file?.give_back_from(from)?),
    }
}

/// The sound header at the beginning of a segment, if one is there. A segment that was just released has
/// none.
pub(crate) fn read_first_header(
    storage: &dyn Storage,
    segment: SegmentName,
) -> Result<Option<FrameHeader>, WalError> {
    Ok(decode_first_block(storage, segment)?.ok())
}

/// The same, or what is there instead.
pub(crate) fn decode_first_block(
    storage: &dyn Storage,
    segment: SegmentName,
) -> Result<Result<FrameHeader, FrameFault>, WalError> {
    let file = match storage.open(&segment.path(), Access::ReadDirect) {
        Err(error) if error.errno == Errno::ENOENT => return Ok(Err(FrameFault::EndOfFile)),
        file => file?,
    };
    let mut block = LogBuffer::heap(FRAME_ALIGN);
    let length = file.read_at(0, block.bytes_mut())?;
    Ok(if length < FRAME_ALIGN { Err(FrameFault::EndOfFile) } else { FrameHeader::decode(block.bytes()) })
}

fn list_or_none(storage: &dyn Storage, folder: &str) -> Result<Vec<String>, StorageError> {
    match storage.list(folder) {
        Err(error) if error.errno == Errno::ENOENT => Ok(Vec::new()),
        names => names,
    }
}
