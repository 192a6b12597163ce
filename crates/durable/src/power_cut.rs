//! A rehearsal of power cuts over real files: what was synced is kept apart, and everything else is lost.
//!
//! Stricter than any disk: bytes count as of the last sync of their file, names as of the last sync of their
//! folder, and a sync of a file does nothing for its name. Only syncs that are asked of it count; what a
//! library syncs by itself does not.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::syncer::Syncer;

/// Device and inode: what a name leads to, whatever it is called.
type Inode = (u64, u64);

/// See the module's text.
pub struct PowerCutSyncer {
    root: PathBuf,
    synced: Mutex<Synced>,
}

#[derive(Default)]
struct Synced {
    files: HashMap<Inode, Vec<u8>>,
    folders: HashMap<Inode, BTreeMap<OsString, Named>>,
    /// Open for as long as this lives, so that no inode is given to another file.
    held: HashMap<Inode, File>,
}

#[derive(Clone, Copy)]
struct Named {
    inode: Inode,
    is_folder: bool,
}

impl PowerCutSyncer {
    /// Follows what is synced below `root`. What lies there now is on stable storage. Syncs of other folders
    /// do nothing.
    ///
    /// # Errors
    /// What the disk says.
    pub fn new(root: &Path) -> io::Result<PowerCutSyncer> {
        let syncer = PowerCutSyncer { root: root.canonicalize()?, synced: Mutex::default() };
        syncer.sync_all(&syncer.root)?;
        Ok(syncer)
    }

    fn sync_all(&self, folder: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => self.sync_all(&entry.path())?,
                kind if kind.is_file() => self.sync_file(&File::open(entry.path())?)?,
                _ => {}
            }
        }
        self.sync_folder(folder)
    }

    /// Writes into the empty folder `to` what a power cut at this moment leaves.
    ///
    /// # Errors
    /// What the disk says.
    pub fn restore(&self, to: &Path) -> io::Result<()> {
        let inode = inode(&std::fs::metadata(&self.root)?);
        self.synced().restore(inode, to)
    }

    fn synced(&self) -> MutexGuard<'_, Synced> {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Synced {
    fn hold(&mut self, inode: Inode, path: &Path) -> io::Result<()> {
        if let Entry::Vacant(unheld) = self.held.entry(inode) {
            unheld.insert(File::open(path)?);
        }
        Ok(())
    }

    fn restore(&self, folder: Inode, to: &Path) -> io::Result<()> {
        for (name, named) in self.folders.get(&folder).into_iter().flatten() {
            let path = to.join(name);
            if named.is_folder {
                std::fs::create_dir(&path)?;
                self.restore(named.inode, &path)?;
            } else {
                std::fs::write(&path, self.files.get(&named.inode).map_or(&[][..], Vec::as_slice))?;
            }
        }
        Ok(())
    }
}

impl Syncer for PowerCutSyncer {
    fn sync_file(&self, file: &File) -> io::Result<()> {
        let metadata = file.metadata()?;
        let mut bytes = vec![0; usize::try_from(metadata.len()).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0)?;
        let mut synced = self.synced();
        synced.files.insert(inode(&metadata), bytes);
        synced.held.entry(inode(&metadata)).or_insert(file.try_clone()?);
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        if !folder.canonicalize()?.starts_with(&self.root) {
            return Ok(());
        }
        let mut names = BTreeMap::new();
        let mut synced = self.synced();
        let own = inode(&std::fs::metadata(folder)?);
        synced.hold(own, folder)?;
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_symlink() || !(metadata.is_dir() || metadata.is_file()) {
                continue;
            }
            let named = Named { inode: inode(&metadata), is_folder: metadata.is_dir() };
            synced.hold(named.inode, &entry.path())?;
            names.insert(entry.file_name(), named);
        }
        synced.folders.insert(own, names);
        Ok(())
    }
}

fn inode(metadata: &Metadata) -> Inode {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restore_bytes_and_names_are_there_as_far_as_each_was_synced() {
        let root = tempfile::tempdir().unwrap();
        let syncer = PowerCutSyncer::new(root.path()).unwrap();
        let path = |name: &str| root.path().join(name);
        std::fs::create_dir(path("in")).unwrap();
        for name in ["whole", "unsynced", "nameless", "in/deep"] {
            std::fs::write(path(name), "first").unwrap();
        }
        for name in ["whole", "nameless", "in/deep"] {
            syncer.sync_file(&File::open(path(name)).unwrap()).unwrap();
        }
        std::fs::rename(path("nameless"), path("elsewhere")).unwrap();
        syncer.sync_folder(root.path()).unwrap();
        std::fs::rename(path("elsewhere"), path("nameless")).unwrap();
        std::fs::write(path("whole"), "second").unwrap();
        std::fs::write(path("new"), "").unwrap();

        let after = tempfile::tempdir().unwrap();
        syncer.restore(after.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(after.path().join(name)).ok();
        assert_eq!(read("whole").as_deref(), Some("first"));
        assert_eq!(read("unsynced").as_deref(), Some(""), "it has a name and no bytes");
        assert_eq!((read("nameless"), read("elsewhere").as_deref()), (None, Some("first")));
        assert_eq!((read("new"), read("in/deep")), (None, None));
        assert!(after.path().join("in").is_dir());
    }

    #[test]
    fn restore_what_was_there_before_is_there() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("in")).unwrap();
        std::fs::write(root.path().join("in/file"), "bytes").unwrap();
        let syncer = PowerCutSyncer::new(root.path()).unwrap();
        std::fs::write(root.path().join("in/file"), "other bytes").unwrap();
        let after = tempfile::tempdir().unwrap();
        syncer.restore(after.path()).unwrap();
        assert_eq!(std::fs::read_to_string(after.path().join("in/file")).unwrap(), "bytes");
    }

    #[test]
    fn restore_file_that_replaced_another_of_its_name_is_not_taken_for_it() {
        let root = tempfile::tempdir().unwrap();
        let syncer = PowerCutSyncer::new(root.path()).unwrap();
        let path = root.path().join("file");
        std::fs::write(&path, "old").unwrap();
        syncer.sync_file(&File::open(&path).unwrap()).unwrap();
        syncer.sync_folder(root.path()).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "new").unwrap();
        let read = || {
            let after = tempfile::tempdir().unwrap();
            syncer.restore(after.path()).unwrap();
            std::fs::read_to_string(after.path().join("file")).unwrap()
        };
        assert_eq!(read(), "old");
        syncer.sync_folder(root.path()).unwrap();
        assert_eq!(read(), "", "the name leads to the new file, whose bytes are not synced");
    }
}
