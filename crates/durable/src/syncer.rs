//! How what was written is put on stable storage.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::retry_on_intr;

/// Puts what was written on stable storage. After an error nobody knows what is there, and a second try
/// proves nothing: the system may have taken the first for done.
pub trait Syncer: Send + Sync {
    /// Puts a file's bytes and length on stable storage. Its name is there when its folder is synced.
    ///
    /// # Errors
    /// What the disk says.
    fn sync_file(&self, file: &File) -> io::Result<()>;

    /// Puts a folder's names on stable storage; not what is in the files and folders that they name.
    ///
    /// # Errors
    /// What the disk says.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Has the disk keep room for the first `bytes` of a file, whatever others write. The file's length stays
    /// as it is.
    ///
    /// # Errors
    /// What the disk says: that it is full, or, of some file systems, that it keeps no room for anybody.
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes))?)
    }
}

/// The system's own calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemSyncer;

impl Syncer for SystemSyncer {
    fn sync_file(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}
