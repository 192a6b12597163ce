//! A log root on a real file system.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use cell_durable::{SystemSyncer, create_folders};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate};
use rustix::io::{Errno as SystemErrno, ReadWriteFlags, retry_on_intr};

use crate::buffer::LogBuffer;
use crate::error::{DiskOperation, Errno, StorageError};
use crate::frame::FRAME_ALIGN;
use crate::root_id::{ID_FILE, read_id};
use crate::storage::{Access, Storage, StorageFile};

/// The files below a folder.
#[derive(Clone, Debug)]
pub struct RealStorage {
    root: PathBuf,
    /// The id of the log root; none where it has none, or was not opened as one.
    id: Option<u128>,
}

struct RealFile {
    file: File,
    /// Whether it bypasses the page cache: then every address, offset and length is aligned.
    direct: bool,
    path: Box<str>,
}

impl RealStorage {
    /// The storage below `root`, which is made if it is missing; its name, and those above it, are on stable
    /// storage afterwards either way.
    ///
    /// # Errors
    /// What the disk says.
    pub fn open(root: &Path) -> Result<RealStorage, StorageError> {
        let failed = |error| {
            StorageError::new(DiskOperation::CreateFolder, &root.to_string_lossy(), Errno::of(&error))
        };
        create_folders(&SystemSyncer, root).map_err(failed)?;
        Ok(RealStorage { root: root.canonicalize().map_err(failed)?, id: None })
    }

    /// The same, as the log root with this id.
    pub(crate) fn with_id(self, id: Option<u128>) -> RealStorage {
        RealStorage { id, ..self }
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The absolute path of a file.
    #[must_use]
    pub fn absolute(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Opens a descriptor, bypassing the page cache if `direct` and the file system can; says whether it
    /// does.
    pub(crate) fn open_descriptor(
        &self,
        path: &str,
        flags: OFlags,
        direct: bool,
    ) -> Result<(OwnedFd, bool), StorageError> {
        let failed = |errno: SystemErrno| StorageError::new(DiskOperation::Open, path, errno);
        let absolute = self.c_path(path).map_err(failed)?;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP;
        let open = |flags| rustix::fs::open(absolute.as_c_str(), flags | OFlags::CLOEXEC, mode);
        if direct {
            match open(flags | OFlags::DIRECT) {
                // The file may have been created before O_DIRECT was refused.
                Err(SystemErrno::INVAL | SystemErrno::OPNOTSUPP) => {
                    return open(flags - OFlags::EXCL).map(|fd| (fd, false)).map_err(failed);
                }
                opened => return opened.map(|fd| (fd, true)).map_err(failed),
            }
        }
        open(flags).map(|fd| (fd, false)).map_err(failed)
    }

    /// Takes a lock on a file, which is made if need be: held while the descriptor is open. None if somebody
    /// else holds it.
    ///
    /// # Errors
    /// What the disk says.
    pub fn try_lock(&self, path: &str) -> Result<Option<OwnedFd>, StorageError> {
        let (fd, _) = self.open_descriptor(path, OFlags::RDWR | OFlags::CREATE, false)?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(fd)),
            Err(SystemErrno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(StorageError::new(DiskOperation::Lock, path, errno)),
        }
    }

    /// Gives a file another name too, which nothing may have.
    pub(crate) fn link(&self, path: &str, other: &str) -> Result<(), StorageError> {
        std::fs::hard_link(self.absolute(path), self.absolute(other))
            .map_err(|error| StorageError::new(DiskOperation::Link, other, error))
    }

    /// A file or folder right below the root that lies on another file system.
    pub(crate) fn on_other_device(&self) -> Result<Option<String>, StorageError> {
        let device = |path: &str| {
            let data = std::fs::metadata(self.absolute(path));
            data.map(|data| data.dev()).map_err(|error| StorageError::new(DiskOperation::List, path, error))
        };
        let own = device("")?;
        for name in self.list("")? {
            match device(&name) {
                Err(error) if error.errno == Errno::ENOENT => {} // removed just now
                found => {
                    if found? != own {
                        return Ok(Some(name));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Writes a frame's least to an empty file as logs are written, past the page cache where the file system
    /// can (said once if not), and reads it. Whether it is what was written.
    pub(crate) fn try_data_sync(&self, path: &str) -> Result<bool, StorageError> {
        let (fd, direct) = self.open_descriptor(path, OFlags::RDWR, true)?;
        if !direct {
            tracing::warn!(root = %self.root.display(), "this file system refuses O_DIRECT: logs are written \
                through the page cache, still synced by every write, but slower");
        }
        let mut written = LogBuffer::heap(FRAME_ALIGN);
        written.bytes_mut().fill(0xa5);
        let sent = [std::io::IoSlice::new(written.bytes())];
        let count = rustix::io::pwritev2(&fd, &sent, 0, ReadWriteFlags::DSYNC)
            .map_err(|errno| StorageError::new(DiskOperation::Write, path, errno))?;
        let mut read = LogBuffer::heap(FRAME_ALIGN);
        let file = RealFile { file: File::from(fd), direct, path: path.into() };
        let found = file.read_at(0, read.bytes_mut())?;
        Ok((count, found) == (FRAME_ALIGN, FRAME_ALIGN) && read.bytes() == written.bytes())
    }

    fn c_path(&self, path: &str) -> Result<CString, SystemErrno> {
        CString::new(self.absolute(path).into_os_string().into_encoded_bytes())
            .map_err(|_| SystemErrno::INVAL)
    }
}

impl Storage for RealStorage {
    fn check_root(&self) -> Result<(), StorageError> {
        let Some(id) = self.id else { return Ok(()) };
        let stale = || StorageError::new(DiskOperation::Read, ID_FILE, Errno::ESTALE);
        match read_id(self) {
            Ok(found) if found == Some(id) => Ok(()),
            Err(error) if error.errno != Errno::ENOENT => Err(error),
            _ => Err(stale()),
        }
    }

    fn open(&self, path: &str, access: Access) -> Result<Box<dyn StorageFile>, StorageError> {
        let create = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let (flags, direct) = match access {
            Access::Read => (OFlags::RDONLY, false),
            Access::ReadDirect => (OFlags::RDONLY, true),
            Access::Create => (create, false),
            Access::CreateDirect => (create, true),
            Access::Write => (OFlags::RDWR, false),
            Access::WriteDirect => (OFlags::RDWR, true),
        };
        let (fd, bypasses) = self.open_descriptor(path, flags, direct)?;
        if access == Access::ReadDirect && !bypasses {
            // A hint only: without it the pages are merely read ahead less.
            let _ = rustix::fs::fadvise(&fd, 0, None, rustix::fs::Advice::Sequential);
        }
        Ok(Box::new(RealFile { file: File::from(fd), direct: bypasses, path: path.into() }))
    }

    fn free_bytes(&self) -> Result<Option<u64>, StorageError> {
        let found = rustix::fs::statvfs(self.absolute(""));
        let found = found.map_err(|errno| StorageError::new(DiskOperation::List, "", errno))?;
        Ok(Some(found.f_bavail.saturating_mul(found.f_frsize)))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, StorageError> {
        let failed = |error| StorageError::new(DiskOperation::List, folder, Errno::of(&error));
        let entries = std::fs::read_dir(self.absolute(folder)).map_err(failed)?;
        let name = |entry: std::io::Result<std::fs::DirEntry>| Ok(entry?.file_name().into_string().ok());
        entries.filter_map(|entry| name(entry).transpose()).collect::<std::io::Result<_>>().map_err(failed)
    }

    fn create_folder(&self, folder: &str) -> Result<(), StorageError> {
        std::fs::create_dir(self.absolute(folder))
            .map_err(|error| StorageError::new(DiskOperation::CreateFolder, folder, error))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        std::fs::rename(self.absolute(from), self.absolute(to))
            .map_err(|error| StorageError::new(DiskOperation::Rename, from, error))
    }

    fn unlink(&self, path: &str) -> Result<(), StorageError> {
        std::fs::remove_file(self.absolute(path))
            .map_err(|error| StorageError::new(DiskOperation::Unlink, path, error))
    }

    fn remove_folder(&self, folder: &str) -> Result<(), StorageError> {
        std::fs::remove_dir(self.absolute(folder))
            .map_err(|error| StorageError::new(DiskOperation::RemoveFolder, folder, error))
    }

    fn sync_folder(&self, folder: &str) -> Result<(), StorageError> {
        File::open(self.absolute(folder))
            .and_then(|file| file.sync_all())
            .map_err(|error| StorageError::new(DiskOperation::SyncFolder, folder, error))
    }
}

impl RealFile {
    fn failed(&self, operation: DiskOperation) -> impl Fn(std::io::Error) -> StorageError + '_ {
        move |error| StorageError::new(operation, &self.path, error)
    }
}

impl StorageFile for RealFile {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, StorageError> {
        let mut count = 0;
        while count < bytes.len() {
            match self.file.read_at(&mut bytes[count..], offset + count as u64) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(DiskOperation::Read)(error)),
            }
            if self.direct && !count.is_multiple_of(FRAME_ALIGN) {
                break; // the end of the file: only there a direct read is short
            }
        }
        Ok(count)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        self.file.write_all_at(bytes, offset).map_err(self.failed(DiskOperation::Write))
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.file.sync_all().map_err(self.failed(DiskOperation::Sync))
    }

    fn length(&self) -> Result<u64, StorageError> {
        self.file.metadata().map(|data| data.len()).map_err(self.failed(DiskOperation::Length))
    }

    fn give_back_from(&self, offset: u64) -> Result<(), StorageError> {
        let bytes = self.length()?.saturating_sub(offset);
        if bytes == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| fallocate(&self.file, flags, offset, bytes)) {
            Ok(()) | Err(SystemErrno::OPNOTSUPP | SystemErrno::NOSYS) => Ok(()),
            Err(errno) => Err(StorageError::new(DiskOperation::Write, &self.path, errno)),
        }
    }
}
