//! Whether a disk is large enough for a store at all. One that is not keeps a node waiting for room that no
//! deletion makes.

use std::path::Path;

use cell_cluster::COORDINATOR_BYTES_MIN;
use cell_terms::setting::Settings;
use cell_wal::LogOptions;

use crate::exit::{Exit, Failure};
use crate::folders::Folders;
use crate::output::number::bytes;

/// A file system's size, and what is free of it for whoever asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DiskSize {
    all: u64,
    free: u64,
}

/// Refuses to begin `nodes` nodes, and the coordinator if it has its table in the data folder, on disks
/// without the room that they take before anything is written. Where something is stored already, a disk that
/// others have filled is started on: reads and deletes are served.
pub(crate) fn refuse_small(
    folders: &Folders,
    settings: &Settings,
    nodes: u16,
    with_coordinator: bool,
) -> Result<(), Failure> {
    let who = match (nodes, with_coordinator) {
        (1, false) => "a node".to_owned(),
        (1, true) => "a cluster of one node".to_owned(),
        (nodes, _) => format!("a cluster of {nodes} nodes"),
    };
    let coordinator = if with_coordinator { COORDINATOR_BYTES_MIN } else { 0 };
    let logs = u64::from(nodes) * node_bytes(settings);
    let is_new = folders.are_new();
    if folders.are_on_one_disk() {
        return refuse_smaller(folders.data(), coordinator + logs, is_new, &who);
    }
    refuse_smaller(folders.log_root(), logs, is_new, &who)?;
    refuse_smaller(folders.data(), coordinator, is_new, "the coordinator")
}

/// Refuses a disk without the room that somebody takes.
fn refuse_smaller(folder: &Path, needs: u64, is_new: bool, who: &str) -> Result<(), Failure> {
    // What the file system does not say, its first write will.
    let Some(size) = disk_size(folder) else { return Ok(()) };
    match lacking(size, needs, is_new) {
        None => Ok(()),
        Some(lacking) => {
            let what = format!(
                "the disk under {} is too small: it has {}, {who} takes {} before anything is stored",
                folder.display(),
                lacking.has,
                bytes(lacking.needs)
            );
            let next = "give a folder on a larger disk, or a smaller log_segment_bytes; a store wants many \
                        times that";
            Err(Failure::new(Exit::Usage, what).next(next))
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Lacking {
    has: String,
    needs: u64,
}

fn lacking(size: DiskSize, needs: u64, is_new: bool) -> Option<Lacking> {
    let DiskSize { all, free } = size;
    if all < needs {
        return Some(Lacking { has: format!("{} in all", bytes(all)), needs });
    }
    let is_lacking = is_new && free < needs;
    is_lacking.then(|| Lacking { has: format!("{} free of {}", bytes(free), bytes(all)), needs })
}

/// The first segments of a pair's two logs.
fn node_bytes(settings: &Settings) -> u64 {
    if settings.text("durability") == "none" {
        return 0;
    }
    let log = LogOptions::from_settings(settings);
    2 * log.first_segment_bytes.min(log.segment_bytes)
}

/// Of the file system of a folder, or of where it is going to be; none if that does not say.
fn disk_size(folder: &Path) -> Option<DiskSize> {
    let folder = std::path::absolute(folder).ok()?;
    let found = folder.ancestors().find_map(|path| rustix::fs::statvfs(path).ok())?;
    let [all, free] = [found.f_blocks, found.f_bavail].map(|blocks| blocks.saturating_mul(found.f_frsize));
    (all > 0).then_some(DiskSize { all, free })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lacking_is_a_disk_that_never_has_the_room_and_a_new_store_without_it_now() {
        let size = |all: u64, free: u64| DiskSize { all: all << 20, free: free << 20 };
        let has = |size, is_new| lacking(size, 15 << 20, is_new).map(|lacking| lacking.has);
        assert_eq!(has(size(8, 8), false).as_deref(), Some("8.00 MiB in all"));
        assert_eq!(has(size(420, 3), true).as_deref(), Some("3.00 MiB free of 420 MiB"));
        assert_eq!(has(size(420, 3), false), None, "it is started, and says that the disk is full");
        assert_eq!(has(size(16, 15), true), None);
    }

    #[test]
    fn disk_size_of_a_folder_to_come_is_that_of_where_it_will_be() {
        let folder = tempfile::tempdir().unwrap();
        let size = |path: &Path| disk_size(path).map(|size| size.all);
        assert_eq!(size(&folder.path().join("a/b")), size(folder.path()));
    }
}
