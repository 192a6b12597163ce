//! Folders that are still there after a power cut.
//!
//! ```text
//! 1. a node makes /data/cell, and in it folders and logs; it syncs the logs, and the folders in /data/cell
//! 2. it acknowledges writes
//! 3. power goes: the name `cell` in /data was never synced, so all of it is gone
//! 4. the next start finds neither logs nor a table and takes that for a first start
//! ```

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use cell_terms::mutant::{Mutant, planted};

use crate::syncer::Syncer;

/// Makes a folder and those above it that are missing, and puts all their names on stable storage.
///
/// The names of folders that were there already are synced too: whoever made them, a process that crashed or
/// a person a second ago, may not have done so. There, folders above that may not be read, or that lie on a
/// file system which syncs no folders, are passed over.
///
/// # Errors
/// What the disk says. Nothing that is put into the folder is safe then.
pub fn create_folders(syncer: &dyn Syncer, folder: &Path) -> io::Result<()> {
    let folder = std::path::absolute(folder)?;
    let mut created = BTreeSet::new();
    for path in from_root(&folder) {
        match std::fs::create_dir(path) {
            Ok(()) => drop(created.insert(path.to_owned())),
            // Also where a folder that is there may not be written to: `/` of a container, say.
            Err(_) if path.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    if planted(Mutant::FolderNamesUnsynced) {
        return Ok(());
    }
    // A link on the way has a name of its own, and so has what it leads to.
    let real = folder.canonicalize()?;
    let mut synced: BTreeSet<PathBuf> = BTreeSet::new();
    for path in from_root(&folder).chain(from_root(&real)) {
        let Some(parent) = path.parent().filter(|parent| synced.insert(parent.to_path_buf())) else {
            continue;
        };
        match syncer.sync_folder(parent) {
            Err(error) if created.contains(path) || !is_passed_over(&error) => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// The path's ancestors and itself, the root first.
fn from_root(path: &Path) -> impl Iterator<Item = &Path> {
    let mut all: Vec<&Path> = path.ancestors().collect();
    all.reverse();
    all.into_iter()
}

/// Whether a folder of others cannot be synced by us, which is no failure of its disk.
fn is_passed_over(error: &io::Error) -> bool {
    use ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported | ReadOnlyFilesystem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::power_cut::PowerCutSyncer;

    fn left(syncer: &PowerCutSyncer, name: &str) -> bool {
        let after = tempfile::tempdir().unwrap();
        syncer.restore(after.path()).unwrap();
        after.path().join(name).is_dir()
    }

    #[test]
    fn create_folders_all_names_outlive_a_power_cut() {
        let root = tempfile::tempdir().unwrap();
        let syncer = PowerCutSyncer::new(root.path()).unwrap();
        create_folders(&syncer, &root.path().join("a/b/c")).unwrap();
        assert!(left(&syncer, "a/b/c"));
    }

    #[test]
    fn create_folders_that_another_made_are_synced_too() {
        let root = tempfile::tempdir().unwrap();
        let syncer = PowerCutSyncer::new(root.path()).unwrap();
        std::fs::create_dir_all(root.path().join("a/b")).unwrap();
        assert!(!left(&syncer, "a"));
        create_folders(&syncer, &root.path().join("a/b")).unwrap();
        assert!(left(&syncer, "a/b"));
    }

    #[test]
    fn create_folders_behind_a_link_have_both_names_synced() {
        let root = tempfile::tempdir().unwrap();
        let syncer = PowerCutSyncer::new(root.path()).unwrap();
        std::fs::create_dir(root.path().join("real")).unwrap();
        std::fs::create_dir(root.path().join("named")).unwrap();
        std::os::unix::fs::symlink("../real", root.path().join("named/link")).unwrap();
        create_folders(&syncer, &root.path().join("named/link/cell")).unwrap();
        assert!(left(&syncer, "real/cell") && left(&syncer, "named"));
    }

    /// A disk on which no folder can be synced.
    struct Failing(ErrorKind);

    impl Syncer for Failing {
        fn sync_file(&self, _: &std::fs::File) -> io::Result<()> {
            Ok(())
        }

        fn sync_folder(&self, _: &Path) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn create_folders_that_cannot_be_synced_fail_unless_they_are_of_others() {
        let root = tempfile::tempdir().unwrap();
        let made = root.path().join("a");
        assert!(create_folders(&Failing(ErrorKind::PermissionDenied), &made).is_err(), "this call made it");
        create_folders(&Failing(ErrorKind::PermissionDenied), &made).unwrap();
        assert!(create_folders(&Failing(ErrorKind::Other), &made).is_err(), "its disk has failed");
    }

    #[test]
    fn create_folders_where_a_file_is_in_the_way_is_refused() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("a"), "").unwrap();
        assert!(
            create_folders(&PowerCutSyncer::new(root.path()).unwrap(), &root.path().join("a/b")).is_err()
        );
    }
}
