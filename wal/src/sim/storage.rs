//! The simulated disk as cold storage.

use super::SimDisk;
use crate::error::{DiskOperation, Errno, StorageError};
use crate::frame::FRAME_ALIGN;
use crate::storage::{Access, Storage, StorageFile};

struct SimFile {
    disk: SimDisk,
    inode: u64,
    access: Access,
    path: Box<str>,
}

impl SimDisk {
    fn with<T>(
        &self,
        operation: DiskOperation,
        path: &str,
        call: impl FnOnce(&mut super::SimState) -> Result<T, Errno>,
    ) -> Result<T, StorageError> {
        let mut state = self.state();
        let done = state.check_alive(self.process).and_then(|()| call(&mut state));
        done.map_err(|errno| StorageError::new(operation, path, errno))
    }
}

impl Storage for SimDisk {
    fn open(&self, path: &str, access: Access) -> Result<Box<dyn StorageFile>, StorageError> {
        let inode = self.with(DiskOperation::Open, path, |state| match access {
            Access::Create | Access::CreateDirect => state.create(path),
            Access::Read | Access::ReadDirect | Access::Write | Access::WriteDirect => state.file(path),
        })?;
        Ok(Box::new(SimFile { disk: self.clone(), inode, access, path: path.into() }))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, StorageError> {
        self.with(DiskOperation::List, folder, |state| state.list(folder))
    }

    fn create_folder(&self, folder: &str) -> Result<(), StorageError> {
        self.with(DiskOperation::CreateFolder, folder, |state| state.create_folder(folder))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        self.with(DiskOperation::Rename, from, |state| state.rename(from, to))
    }

    fn unlink(&self, path: &str) -> Result<(), StorageError> {
        self.with(DiskOperation::Unlink, path, |state| state.unlink(path))
    }

    fn remove_folder(&self, folder: &str) -> Result<(), StorageError> {
        self.with(DiskOperation::RemoveFolder, folder, |state| state.remove_folder(folder))
    }

    fn sync_folder(&self, folder: &str) -> Result<(), StorageError> {
        self.with(DiskOperation::SyncFolder, folder, |state| state.sync_folder(folder))
    }
}

impl SimFile {
    /// What O_DIRECT demands.
    fn check_direct(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let aligned = offset.is_multiple_of(FRAME_ALIGN as u64)
            && bytes.len().is_multiple_of(FRAME_ALIGN)
            && bytes.as_ptr().addr().is_multiple_of(FRAME_ALIGN);
        let direct = matches!(self.access, Access::ReadDirect | Access::CreateDirect);
        if aligned || !direct { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

impl StorageFile for SimFile {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, StorageError> {
        self.disk.with(DiskOperation::Read, &self.path, |state| {
            self.check_direct(offset, bytes)?;
            state.read(self.inode, offset, bytes)
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        self.disk.with(DiskOperation::Write, &self.path, |state| {
            if matches!(self.access, Access::Read | Access::ReadDirect) {
                return Err(Errno(libc::EBADF));
            }
            self.check_direct(offset, bytes)?;
            state.write(self.inode, offset, bytes)
        })
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.disk.with(DiskOperation::Sync, &self.path, |state| state.sync(self.inode))
    }

    fn length(&self) -> Result<u64, StorageError> {
        self.disk.with(DiskOperation::Length, &self.path, |state| state.length(self.inode))
    }

    fn give_back_from(&self, offset: u64) -> Result<(), StorageError> {
        self.disk.with(DiskOperation::Write, &self.path, |state| {
            let readable = matches!(self.access, Access::Read | Access::ReadDirect);
            if readable || !offset.is_multiple_of(FRAME_ALIGN as u64) {
                return Err(Errno::EINVAL); // strict: whole blocks, of a file that is open for writing
            }
            state.give_back(self.inode, offset)
        })
    }
}
