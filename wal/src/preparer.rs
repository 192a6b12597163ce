//! Makes segments ready: creates and zero-fills them ahead of use, syncs file and folder. Zero-filled,
//! because a write into merely allocated space also has to sync the file system's metadata (measured: 35
//! against 22 us).
//!
//! The order keeps a reader's rule simple, that every `segment-*` file has its full length:
//!
//! 1. create `preparing-N`, fill it, sync it; 2. rename it to `segment-N`; 3. sync the folder; 4. only now a
//!    frame may be written, and only after that frame's predecessor names N is N relied on.
//!
//! Before all that the log root is looked at: see [`crate::real`]. One that is not there ends the log, and
//! with it the node, as a disk that fails does: the node's other segments are on a file system that nobody
//! sees, others can take the pairs over, and whoever starts the node again mounts the log root first.

use crate::buffer::LogBuffer;
use crate::device::PrepareSegment;
use crate::error::{DiskOperation, Errno, StorageError};
use crate::mutant::{Mutant, planted};
use crate::storage::{Access, Storage, StorageFile, create_folders, parent};

/// Bytes of one write of zeros.
const FILL_BYTES: usize = 1 << 20;

/// Makes a segment ready. On failure nothing of it is left, the recycled file included.
pub(crate) fn prepare(storage: &dyn Storage, request: &PrepareSegment) -> Result<(), StorageError> {
    if !planted(Mutant::SegmentRootUnasked)
        && let Err(error) = storage.check_root()
    {
        // Nobody names it any more, also where a look that failed for a shortage is made again. It lies in
        // the folder that was opened, whatever has the log root's path.
        let _ = request.recycle.map(|released| storage.unlink(&released.path()));
        return Err(error);
    }
    let path = request.segment.path();
    let preparing = request.segment.path_preparing();
    let done = match request.recycle {
        Some(released) => recycle(storage, &released.path(), &path),
        None => fill(storage, &preparing, &path, request.bytes),
    };
    if done.as_ref().is_err_and(|error| error.errno != Errno::EEXIST) {
        for left in [Some(preparing), Some(path), request.recycle.map(|released| released.path())] {
            // What cannot be unlinked either is left for the removal of the whole folder; readers never need
            // it.
            let _ = left.map(|left| storage.unlink(&left));
        }
    }
    done
}

fn fill(storage: &dyn Storage, preparing: &str, path: &str, bytes: u64) -> Result<(), StorageError> {
    if storage.open(path, Access::Read).is_ok() {
        // Only files that this owner created are written: whose is that one?
        return Err(StorageError::new(DiskOperation::Open, path, Errno::EEXIST));
    }
    if planted_zombie(storage, path)? {
        return storage.sync_folder(parent(path));
    }
    let file = create(storage, preparing)?;
    let zeros = LogBuffer::heap(crate::check::index(bytes.min(FILL_BYTES as u64)));
    let mut offset = 0;
    while offset < bytes {
        let count = crate::check::index((bytes - offset).min(FILL_BYTES as u64));
        file.write_at(offset, &zeros.bytes()[..count])?;
        offset += count as u64;
    }
    if !planted(Mutant::SkipSegmentSync) {
        file.sync()?;
    }
    storage.rename(preparing, path)?;
    if planted(Mutant::SkipFolderSync) { Ok(()) } else { storage.sync_folder(parent(path)) }
}

/// With that defect planted: takes the segment of an earlier epoch that its owner wrote last, if there are
/// others. What that owner had in flight lands in it.
fn planted_zombie(storage: &dyn Storage, path: &str) -> Result<bool, StorageError> {
    if !cell_terms::mutant::planted(cell_terms::mutant::Mutant::ZombieSegments) {
        return Ok(false);
    }
    let (folder, region) = (parent(path), parent(parent(path)));
    create_folders(storage, folder)?;
    let mut epochs = storage.list(region)?;
    epochs.sort_unstable();
    let older = epochs.iter().rev().map(|epoch| format!("{region}/{epoch}")).find(|epoch| epoch != folder);
    let Some(older) = older.filter(|_| path.ends_with("00000000.log")) else { return Ok(false) };
    let mut segments = storage.list(&older)?;
    segments.retain(|name| name.starts_with("segment-"));
    segments.sort_unstable();
    if segments.len() < 2 {
        return Ok(false);
    }
    for segment in segments.into_iter().rev().map(|name| format!("{older}/{name}")) {
        let mut first = [0];
        storage.open(&segment, Access::Read)?.read_at(0, &mut first)?;
        if first != [0] {
            storage.rename(&segment, path)?;
            return Ok(true);
        }
    }
    Ok(false)
}

fn create(storage: &dyn Storage, path: &str) -> Result<Box<dyn StorageFile>, StorageError> {
    match storage.open(path, Access::CreateDirect) {
        Err(error) if error.errno == Errno::ENOENT => {
            create_folders(storage, parent(path))?;
            storage.open(path, Access::CreateDirect)
        }
        file => file,
    }
}

fn recycle(storage: &dyn Storage, released: &str, path: &str) -> Result<(), StorageError> {
    storage.rename(released, path)?;
    storage.sync_folder(parent(path))
}
