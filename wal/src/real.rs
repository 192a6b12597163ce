//! A log root on a real file system.
//!
//! What has the log root's path may be another folder than the one that was opened:
//!
//! 1. the log root is unmounted under its node (`umount -l`), and below it is a folder that can be written;
//! 2. by its path the next segment is made in that folder, and what goes there is acknowledged;
//! 3. the log root is mounted again, or another node takes the pair over: nobody finds what was acknowledged.
//!
//! Where another cluster's log root took the place, the files that go away would be that one's, too. So all
//! is done in the folder that was opened, by its descriptor, and no path leads anywhere else. Two things
//! follow from that:
//!
//! - A descriptor keeps a file system alive that was unmounted, and writing on there would lose nothing. But
//!   nobody sees that file system any more, no other process finds it, and it never goes away. So
//!   [`Storage::check_root`] says whether the path still leads to the log root, by its id. It is asked before
//!   something begins to grow there (a segment, a folder, an image, a takeover), not for each write.
//! - The descriptor of a file system that has died (a FUSE process that ended) fails for ever, also once it
//!   is mounted anew. So a check that finds the log root at its path goes on with what it has found there,
//!   and an error that such a file system gives is followed by a check. Without an id nothing tells what is
//!   found from the folder below the mount point: then the descriptor stays, until the process is started
//!   again.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cell_durable::{SystemSyncer, create_folders};
use rustix::fs::{AtFlags, Dir, DirEntry, FallocateFlags, FlockOperation, Mode, OFlags, fallocate, openat};
use rustix::io::{Errno as SystemErrno, ReadWriteFlags, retry_on_intr};

use crate::buffer::LogBuffer;
use crate::error::{DiskOperation, Errno, StorageError};
use crate::frame::FRAME_ALIGN;
use crate::mutant::{Mutant, planted};
use crate::root_id::{ID_FILE, read_id};
use crate::storage::{Access, Storage, StorageFile};

/// How the root is opened: only to find what is in it, so a file system has nothing open for it.
const ROOT: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// How a folder is opened to be listed or synced.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Who may use a folder that is made, as far as the process's mask permits.
const FOLDER_MODE: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);
/// What a file system says that is there no more.
const GONE: [SystemErrno; 6] = [
    SystemErrno::NOTCONN,
    SystemErrno::CONNABORTED,
    SystemErrno::SHUTDOWN,
    SystemErrno::STALE,
    SystemErrno::NODEV,
    SystemErrno::IO,
];

/// The files below a folder.
#[derive(Clone, Debug)]
pub struct RealStorage {
    root: PathBuf,
    /// The id of the log root; none where it has none, or was not opened as one.
    id: Option<u128>,
    /// The folder, as it was opened last. Clones have it together.
    folder: Arc<Mutex<Arc<OwnedFd>>>,
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
        let found = root.canonicalize().map_err(failed)?;
        let folder = open_root(&found).map_err(|errno| failed(errno.into()))?;
        Ok(RealStorage::of_folder(found, folder))
    }

    fn of_folder(root: PathBuf, folder: OwnedFd) -> RealStorage {
        RealStorage { root, id: None, folder: Arc::new(Mutex::new(Arc::new(folder))) }
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

    /// The absolute path of a file, as long as the log root is not unmounted.
    #[must_use]
    pub fn absolute(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn folder(&self) -> Arc<OwnedFd> {
        if planted(Mutant::RootByPath)
            && let Ok(there) = open_root(&self.root)
        {
            return Arc::new(there);
        }
        Arc::clone(&self.folder.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does something in the folder. If its file system is gone and was mounted anew, that fails once: what
    /// is done next is done there.
    fn within<T>(
        &self,
        act: impl FnOnce(BorrowedFd<'_>) -> Result<T, SystemErrno>,
    ) -> Result<T, SystemErrno> {
        let done = act(self.folder().as_fd());
        if done.as_ref().is_err_and(|errno| GONE.contains(errno)) {
            let _ = self.check_root(); // the first failure is the one that counts
        }
        done
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
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP;
        let open = |flags: OFlags| self.within(|folder| openat(folder, path, flags | OFlags::CLOEXEC, mode));
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
        self.within(|folder| rustix::fs::linkat(folder, path, folder, other, AtFlags::empty()))
            .map_err(|errno| StorageError::new(DiskOperation::Link, other, errno))
    }

    /// A file or folder right below the root that lies on another file system.
    pub(crate) fn on_other_device(&self) -> Result<Option<String>, StorageError> {
        let device = |path: &str| {
            let data = self.within(|folder| rustix::fs::statat(folder, entry(path), AtFlags::empty()));
            data.map(|data| data.st_dev).map_err(|errno| StorageError::new(DiskOperation::List, path, errno))
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
}

fn open_root(root: &Path) -> Result<OwnedFd, SystemErrno> {
    retry_on_intr(|| rustix::fs::open(root, ROOT, Mode::empty()))
}

/// A path as system calls take it: the root is no empty one there.
fn entry(path: &str) -> &str {
    if path.is_empty() { "." } else { path }
}

impl Storage for RealStorage {
    fn check_root(&self) -> Result<(), StorageError> {
        let Some(id) = self.id else { return Ok(()) };
        let failed = |errno: Errno| StorageError::new(DiskOperation::Read, ID_FILE, errno);
        let there = match open_root(&self.root) {
            Ok(folder) => RealStorage::of_folder(self.root.clone(), folder),
            Err(SystemErrno::NOENT | SystemErrno::NOTDIR) => return Err(failed(Errno::ESTALE)),
            Err(errno) => return Err(failed(errno.into())),
        };
        match read_id(&there) {
            Ok(found) if found == Some(id) => {
                let there = there.folder();
                let mut folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
                let before = std::mem::replace(&mut *folder, there);
                drop(folder);
                drop(before); // it may be the last that keeps an unmounted file system
                Ok(())
            }
            Err(error) if error.errno != Errno::ENOENT => Err(error),
            _ => Err(failed(Errno::ESTALE)),
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
        let free = self.within(|folder| {
            let found = rustix::fs::fstatvfs(folder)?;
            Ok(found.f_bavail.saturating_mul(found.f_frsize))
        });
        free.map(Some).map_err(|errno| StorageError::new(DiskOperation::List, "", errno))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, StorageError> {
        let failed = |errno: SystemErrno| StorageError::new(DiskOperation::List, folder, errno);
        let opened = self.within(|root| openat(root, entry(folder), FOLDER, Mode::empty()));
        let entries = opened.and_then(Dir::new).map_err(failed)?;
        let name = |found: DirEntry| {
            let name = found.file_name().to_str().ok()?;
            (!matches!(name, "." | "..")).then(|| name.to_owned())
        };
        let names = entries.filter_map(|found| found.map(name).transpose());
        names.collect::<Result<Vec<String>, SystemErrno>>().map_err(failed)
    }

    fn create_folder(&self, folder: &str) -> Result<(), StorageError> {
        self.within(|root| rustix::fs::mkdirat(root, folder, FOLDER_MODE))
            .map_err(|errno| StorageError::new(DiskOperation::CreateFolder, folder, errno))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        self.within(|folder| rustix::fs::renameat(folder, from, folder, to))
            .map_err(|errno| StorageError::new(DiskOperation::Rename, from, errno))
    }

    fn unlink(&self, path: &str) -> Result<(), StorageError> {
        self.within(|folder| rustix::fs::unlinkat(folder, path, AtFlags::empty()))
            .map_err(|errno| StorageError::new(DiskOperation::Unlink, path, errno))
    }

    fn remove_folder(&self, folder: &str) -> Result<(), StorageError> {
        self.within(|root| rustix::fs::unlinkat(root, folder, AtFlags::REMOVEDIR))
            .map_err(|errno| StorageError::new(DiskOperation::RemoveFolder, folder, errno))
    }

    fn sync_folder(&self, folder: &str) -> Result<(), StorageError> {
        let synced = self.within(|root| {
            let opened = retry_on_intr(|| openat(root, entry(folder), FOLDER, Mode::empty()))?;
            retry_on_intr(|| rustix::fs::fsync(&opened))
        });
        synced.map_err(|errno| StorageError::new(DiskOperation::SyncFolder, folder, errno))
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
