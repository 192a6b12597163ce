//! A folder that one process holds for as long as it lives.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use cell_durable::{SystemSyncer, create_folders};

use crate::error::ClusterError;

const LOCK_FILE: &str = "lock";

/// An exclusive lock on a folder, held until it is dropped or the process ends, however it ends. The lock
/// file names the holder's process, so that whoever comes second can say who is in the way. Advisory: only
/// Cell looks at it.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
}

impl FolderLock {
    /// Creates the folder if need be, its name on stable storage, and locks it.
    ///
    /// # Errors
    /// [`ClusterError::Held`] names the folder and the process that holds it.
    pub fn acquire(folder: &Path) -> Result<FolderLock, ClusterError> {
        let failed = |path: PathBuf| move |source| ClusterError::Folder { path, source };
        create_folders(&SystemSyncer, folder).map_err(failed(folder.to_owned()))?;
        let path = folder.join(LOCK_FILE);
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = options.map_err(failed(path.clone()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(ClusterError::Held { folder: folder.to_owned(), pid: read_pid(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(ClusterError::Folder { path, source }),
        }
        write_pid(&mut file).map_err(failed(path))?;
        Ok(FolderLock { file })
    }

    /// The locked file's own descriptor, for whoever wants to hand it on.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

fn write_pid(file: &mut File) -> std::io::Result<()> {
    let text = format!("{}\n", std::process::id());
    file.rewind()?;
    file.write_all(text.as_bytes())?; // over what is there: a full disk has no block for more
    file.set_len(text.len() as u64)
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquire_held_folder_names_folder_and_process() {
        let folder = tempfile::tempdir().unwrap();
        let first = FolderLock::acquire(folder.path()).unwrap();
        let error = FolderLock::acquire(folder.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        assert!(error.contains(&*folder.path().to_string_lossy()), "{error}");
        drop(first);
        FolderLock::acquire(folder.path()).unwrap();
    }
}
