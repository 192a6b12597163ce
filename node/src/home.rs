//! Which folder's lock a node holds, so that its successor knows whether it holds the same one.
//!
//! The path alone does not say that:
//!
//! 1. node 3 serves in a container, where `/data` is a disk of its own; the log root is mounted in it;
//! 2. somebody starts a node 3 in another container of that machine, with another disk as its `/data`: boot
//!    id, log root and path are the same, and nobody holds the lock there;
//! 3. if it took the first one's seat, it would cut the logs of a node that goes on acknowledging.
//!
//! So the file is named, too, by device and inode: as far as a host goes, which is one boot of one kernel,
//! that is one file.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cell_cluster::{ClusterError, FolderLock};
use cell_terms::Incarnation;
use cell_terms::mutant::{Mutant, planted};

/// The folder and its lock's file, for people and for comparison. A file that does not say which it is counts
/// as one that no other incarnation has.
pub(crate) fn home_name(folder: &Path, lock: &FolderLock, incarnation: Incarnation) -> String {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let folder = folder.display();
    if planted(Mutant::HomeByPath) {
        return folder.to_string();
    }
    match lock.file().metadata() {
        Ok(found) => format!("{folder} (lock {:x}:{:x})", found.dev(), found.ino()),
        Err(_) => format!("{folder} (lock of {incarnation})"),
    }
}

/// Refuses a folder whose file system has locks that exclude nobody: two processes could serve as one node.
/// The lock is held; whoever asks for it again, as any other process would, must not get it.
pub(crate) fn check_lock(folder: &Path, lock: &FolderLock) -> Result<(), ClusterError> {
    let again = || -> io::Result<()> {
        let mine = lock.file().metadata()?;
        let other = File::options().read(true).write(true).open(folder.join("lock"))?;
        let found = other.metadata()?;
        if (found.dev(), found.ino()) != (mine.dev(), mine.ino()) {
            return Err(io::Error::other("the lock was replaced while it was taken"));
        }
        match other.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Error(error)) => Err(error),
            Ok(()) => Err(io::Error::other("a lock excludes nobody there: use a local disk for data_dir")),
        }
    };
    again().map_err(|source| ClusterError::Folder { path: folder.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two folders under one path, one after the other: what is mounted there differs.
    fn other_folder_under_the_same_path_is_another_home() -> bool {
        let folder = tempfile::tempdir().unwrap();
        let (home, aside) = (folder.path().join("home"), folder.path().join("aside"));
        let first = FolderLock::acquire(&home).unwrap();
        let name = home_name(&home, &first, Incarnation(1));
        std::fs::rename(&home, &aside).unwrap();
        let second = FolderLock::acquire(&home).unwrap();
        home_name(&home, &second, Incarnation(2)) != name
    }

    #[test]
    fn home_is_named_by_its_locks_file_and_not_by_its_path_alone() {
        assert!(other_folder_under_the_same_path_is_another_home());
        let folder = tempfile::tempdir().unwrap();
        let name = |incarnation| {
            let lock = FolderLock::acquire(folder.path()).unwrap();
            home_name(folder.path(), &lock, Incarnation(incarnation))
        };
        let first = name(1);
        assert!(first.starts_with(&*folder.path().to_string_lossy()), "{first}");
        assert_eq!(name(2), first, "a successor holds the same lock");
    }

    #[test]
    fn check_lock_is_content_with_one_that_excludes_and_refuses_one_that_was_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::acquire(folder.path()).unwrap();
        check_lock(folder.path(), &lock).unwrap();
        std::fs::rename(folder.path().join("lock"), folder.path().join("aside")).unwrap();
        std::fs::write(folder.path().join("lock"), "").unwrap();
        assert!(check_lock(folder.path(), &lock).is_err(), "it excludes nobody who comes now");
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_home_by_path_is_caught() {
        use cell_terms::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::HomeByPath));
            let differs = other_folder_under_the_same_path_is_another_home();
            plant(None);
            assert!(!differs);
            println!("mutant {} caught by cell-node's name of a home", Mutant::HomeByPath.name());
        });
    }
}
