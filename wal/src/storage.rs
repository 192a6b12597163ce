//! The cold side of a disk: whole-file operations for recovery, checkpoints and tools. Paths are relative to
//! a log root and use `/`. [`crate::real::RealStorage`] and [`crate::sim::SimDisk`] implement it.
//!
//! Nothing is promised about what is on stable storage until the file (content) or the folder (names) is
//! synced.

use crate::error::StorageError;
use crate::mutant::{Mutant, planted};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Must exist; read only; through the page cache.
    Read,
    /// Must exist; read only; large sequential reads that bypass the page cache where the file system can.
    /// Offsets, lengths and addresses must be multiples of 4 KiB (a read may be short at the end of the
    /// file).
    ReadDirect,
    /// Must not exist; read and write.
    Create,
    /// Must not exist; written in large aligned pieces that bypass the page cache where the file system can.
    CreateDirect,
    /// Must exist; read and write; through the page cache. Not for a file that another process may still
    /// write to past the cache: Linux then fails the next sync of either with EIO.
    Write,
    /// Must exist; read and write; aligned as with [`Access::ReadDirect`], and past the page cache where the
    /// file system can.
    WriteDirect,
}

/// An open file.
pub trait StorageFile: Send + Sync {
    /// Reads until `bytes` is full or the file ends; says how many bytes were read.
    ///
    /// # Errors
    /// What the disk says. A read error is never a torn log.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, StorageError>;

    /// Writes all bytes.
    ///
    /// # Errors
    /// What the disk says; how much was written is unknown.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StorageError>;

    /// Puts content and length on stable storage.
    ///
    /// # Errors
    /// What the disk says. Never try again: write another file instead.
    fn sync(&self) -> Result<(), StorageError>;

    /// The file's length.
    ///
    /// # Errors
    /// What the disk says.
    fn length(&self) -> Result<u64, StorageError>;

    /// Gives the disk back what the file takes from `offset`, which is aligned, to its end: that reads as
    /// zeros, and the length stays. Does nothing where the file system has no such files.
    ///
    /// # Errors
    /// What the disk says; some of it may be given back.
    fn give_back_from(&self, offset: u64) -> Result<(), StorageError> {
        let _ = offset;
        Ok(())
    }
}

/// The files below a log root.
pub trait Storage: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// ENOENT, EEXIST as [`Access`] says, or what the disk says.
    fn open(&self, path: &str, access: Access) -> Result<Box<dyn StorageFile>, StorageError>;

    /// The names in a folder, in no order.
    ///
    /// # Errors
    /// ENOENT, or what the disk says.
    fn list(&self, folder: &str) -> Result<Vec<String>, StorageError>;

    /// Makes one folder; its parent must exist (the root, `""`, always does).
    ///
    /// # Errors
    /// EEXIST, or what the disk says.
    fn create_folder(&self, folder: &str) -> Result<(), StorageError>;

    /// Renames a file within its folder, replacing what has the new name.
    ///
    /// # Errors
    /// ENOENT, or what the disk says.
    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError>;

    /// Unlinks a file.
    ///
    /// # Errors
    /// ENOENT, or what the disk says.
    fn unlink(&self, path: &str) -> Result<(), StorageError>;

    /// Removes an empty folder.
    ///
    /// # Errors
    /// ENOENT, or what the disk says.
    fn remove_folder(&self, folder: &str) -> Result<(), StorageError>;

    /// Puts a folder's names on stable storage.
    ///
    /// # Errors
    /// What the disk says.
    fn sync_folder(&self, folder: &str) -> Result<(), StorageError>;

    /// Bytes that can still be written below the root; `None` where nobody knows.
    ///
    /// # Errors
    /// What the disk says.
    fn free_bytes(&self) -> Result<Option<u64>, StorageError> {
        Ok(None)
    }

    /// Looks whether the root's path still leads to the log root that was opened: it may have been unmounted,
    /// or another one mounted there. Where it was mounted anew, work goes on there. It takes a few system
    /// calls, which wait for the disk.
    ///
    /// # Errors
    /// [`Errno::ESTALE`](crate::error::Errno::ESTALE): it does not. Or nobody can tell. Never ENOENT, which
    /// would say that a file is missing.
    fn check_root(&self) -> Result<(), StorageError> {
        Ok(())
    }
}

/// The folder that a path is in; `""` is the root.
#[must_use]
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Makes a folder and those above it, each synced into its parent. What exists is synced all the same: who
/// made it may have crashed before its sync. Nothing is made where the log root is not there.
///
/// # Errors
/// What the disk says, or [`Storage::check_root`].
pub fn create_folders(storage: &dyn Storage, folder: &str) -> Result<(), StorageError> {
    if !planted(Mutant::FolderRootUnasked) {
        storage.check_root()?;
    }
    let mut end = 0;
    while end < folder.len() {
        end = folder[end + 1..].find('/').map_or(folder.len(), |next| end + 1 + next);
        let (above, name) = (parent(&folder[..end]), &folder[..end]);
        match storage.create_folder(name) {
            Err(error) if error.errno != crate::error::Errno::EEXIST => return Err(error),
            Ok(()) | Err(_) => storage.sync_folder(above)?,
        }
    }
    Ok(())
}

/// Removes a folder with the files in it; what is not there is fine: an owner's threads may remove the same
/// ones. Subfolders are an error.
///
/// # Errors
/// What the disk says.
pub fn remove_files(storage: &dyn Storage, folder: &str) -> Result<(), StorageError> {
    let is_gone = |error: &StorageError| error.errno == crate::error::Errno::ENOENT;
    let names = match storage.list(folder) {
        Err(error) if is_gone(&error) => return Ok(()),
        names => names?,
    };
    for name in names {
        storage
            .unlink(&format!("{folder}/{name}"))
            .or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })?;
    }
    storage.remove_folder(folder).or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })?;
    storage.sync_folder(parent(folder))
}
