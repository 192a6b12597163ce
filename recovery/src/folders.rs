//! What lies under a log root: which logs there are, and which nobody needs any more.

use std::collections::BTreeMap;

use cell_cluster::PairRow;
use cell_terms::{Epoch, RegionId};
use cell_wal::folder::written_bytes;
use cell_wal::segment::{
    ImageName, LogName, image_folder, parse_epoch, parse_image, parse_region, parse_unfinished_image,
    region_folder,
};
use cell_wal::storage::remove_files;
use cell_wal::{Errno, Storage, StorageError, WalError};

/// Each region that has log folders, with its highest epoch: for [`cell_cluster::Table::check_logs_found`],
/// before anything is claimed or created.
///
/// # Errors
/// What the disk says.
pub fn find_logs(storage: &dyn Storage) -> Result<Vec<(RegionId, Epoch)>, WalError> {
    let mut found = BTreeMap::new();
    for region in list(storage, "")?.iter().filter_map(|name| parse_region(name)) {
        if let Some(epoch) = epochs(storage, region)?.into_iter().max() {
            found.insert(region, epoch);
        }
    }
    Ok(found.into_iter().collect())
}

/// The highest epoch that either region of a pair has a log folder of.
pub(crate) fn highest_epoch(storage: &dyn Storage, row: &PairRow) -> Result<Option<Epoch>, WalError> {
    let node = epochs(storage, row.node_region)?;
    let extent = epochs(storage, row.extent_region)?;
    Ok(node.into_iter().chain(extent).max())
}

/// Removes log folders and images that no recovery of the pair needs: of epochs that the row's history does
/// not name, and images other than the recorded one. Called by the owner, with a row read after it published
/// or recorded a checkpoint. Says how many it removed.
///
/// # Errors
/// What the disk says; what is left over is removed the next time.
pub fn remove_unneeded(storage: &dyn Storage, row: &PairRow) -> Result<usize, WalError> {
    let mut removed = 0;
    for region in [row.node_region, row.extent_region] {
        for epoch in epochs(storage, region)? {
            let needed = row.history.iter().any(|old| old.epoch == epoch);
            // A later epoch than the row's is a later owner's: this one is superseded and does not know it
            // yet.
            if !needed && epoch < row.epoch {
                remove_files(storage, &LogName { region, epoch }.folder())?;
                removed += 1;
            }
        }
    }
    let folder = image_folder(row.pair);
    let recorded = row.checkpoint.as_ref().and_then(|checkpoint| checkpoint.file.strip_prefix(&*folder));
    let recorded = recorded.and_then(|name| name.strip_prefix('/'));
    let newest = recorded.and_then(parse_image);
    let superseded =
        |image: ImageName| image.epoch < row.epoch || newest.is_some_and(|newest| image < newest);
    for name in list(storage, &folder)? {
        // What a crash left unfinished belongs to an earlier owner: nobody else would remove it.
        let image = parse_image(&name).or_else(|| parse_unfinished_image(&name));
        if image.is_some_and(superseded) && recorded != Some(&*name) {
            storage.unlink(&format!("{folder}/{name}"))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Image and log bytes that the next recovery of a pair reads, at most: what a takeover of it costs.
///
/// # Errors
/// What the disk says.
pub fn replay_bytes(storage: &dyn Storage, row: &PairRow) -> Result<u64, WalError> {
    let first = row.checkpoint.as_ref().map_or(Epoch(0), |checkpoint| checkpoint.epoch);
    let mut bytes = 0;
    if let Some(checkpoint) = &row.checkpoint
        && let Ok(file) = storage.open(&checkpoint.file, cell_wal::storage::Access::Read)
    {
        bytes += file.length()?; // one that is missing is the recovery's to report
    }
    for old in row.history.iter().filter(|old| old.epoch >= first) {
        for region in [row.node_region, row.extent_region] {
            bytes += written_bytes(storage, LogName { region, epoch: old.epoch })?;
        }
    }
    Ok(bytes)
}

fn epochs(storage: &dyn Storage, region: RegionId) -> Result<Vec<Epoch>, WalError> {
    let names = list(storage, &region_folder(region))?;
    Ok(names.iter().filter_map(|name| parse_epoch(name)).collect())
}

/// A folder that is not there is empty.
fn list(storage: &dyn Storage, folder: &str) -> Result<Vec<String>, WalError> {
    match storage.list(folder) {
        Err(StorageError { errno: Errno::ENOENT, .. }) => Ok(Vec::new()),
        names => Ok(names?),
    }
}
