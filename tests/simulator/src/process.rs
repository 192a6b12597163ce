//! A process's grip on the world outside: its files and its coordinator. Every touch may be its last: a fuse
//! that burns down kills the process right before the touch takes effect, or right after, and nothing that it
//! does from then on reaches anything. Log writes go past this, through the simulated device.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use cell_cluster::{
    ClusterError, Coordinator, CoordinatorRequest, Fault, KeyOperation, PairRow, Response, SimLink,
};
use cell_terms::PairId;
use cell_wal::error::DiskOperation;
use cell_wal::storage::{Access, Storage, StorageFile};
use cell_wal::{Errno, StorageError};

use crate::calls;

/// Counts touches down. Clones are the same fuse.
#[derive(Clone, Debug)]
pub struct Fuse(Arc<FuseState>);

#[derive(Debug)]
struct FuseState {
    left: AtomicU64,
    after: AtomicBool,
    burnt: AtomicBool,
}

impl Fuse {
    /// A fuse that does not burn.
    #[must_use]
    pub fn new() -> Fuse {
        Fuse(Arc::new(FuseState {
            left: AtomicU64::new(u64::MAX),
            after: AtomicBool::new(false),
            burnt: AtomicBool::new(false),
        }))
    }

    /// Lets the process die at the touch after so many more; before or after it takes effect.
    pub fn light(&self, touches: u64, after: bool) {
        self.0.after.store(after, Ordering::Relaxed);
        self.0.left.store(touches, Ordering::Relaxed);
    }

    /// Lets it burn no further.
    pub fn put_out(&self) {
        self.0.left.store(u64::MAX, Ordering::Relaxed);
    }

    /// Whether the process has died.
    #[must_use]
    pub fn is_burnt(&self) -> bool {
        self.0.burnt.load(Ordering::Relaxed)
    }

    /// Touches the world, if the process lives.
    fn touch<T>(&self, act: impl FnOnce() -> T, dead: impl FnOnce() -> T) -> T {
        if self.is_burnt() {
            return dead();
        }
        let left = self.0.left.load(Ordering::Relaxed);
        if left == u64::MAX {
            return act();
        }
        if left > 0 {
            self.0.left.store(left - 1, Ordering::Relaxed);
            return act();
        }
        self.0.burnt.store(true, Ordering::Relaxed);
        if self.0.after.load(Ordering::Relaxed) {
            act();
        }
        dead()
    }
}

impl Default for Fuse {
    fn default() -> Fuse {
        Fuse::new()
    }
}

/// A process's way to its coordinator.
pub struct FusedLink {
    /// The simulated link, with its own faults.
    pub link: SimLink,
    /// The process's fuse.
    pub fuse: Fuse,
    /// After how many calls of anybody its next writes to the region table are carried out.
    pub late: Mutex<VecDeque<u64>>,
}

impl FusedLink {
    /// Lets the next writes to the region table time out, and be carried out after so many calls of anybody:
    /// when they were long written again, and other things since.
    pub fn delay(&self, calls: impl IntoIterator<Item = u64>) {
        self.late().extend(calls);
    }

    /// No write is late any more.
    pub fn hurry(&self) {
        self.late().clear();
    }

    /// How many of its next writes are to be late.
    pub fn late_left(&self) -> usize {
        self.late().len()
    }

    fn late(&self) -> std::sync::MutexGuard<'_, VecDeque<u64>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a call writes a row of the region table.
fn writes_pair(request: &CoordinatorRequest) -> bool {
    let CoordinatorRequest::Transact(transaction) = request else { return false };
    let puts = |operation: &KeyOperation| matches!(operation, KeyOperation::Put { key, .. } if is_pair(key));
    transaction.operations.iter().any(puts)
}

fn is_pair(key: &str) -> bool {
    key.starts_with(PairRow::key(PairId(0)).trim_end_matches('0'))
}

impl Coordinator for FusedLink {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        if let Some(calls) = writes_pair(request).then(|| self.late().pop_front()).flatten() {
            self.link.plan([Fault::Delayed { calls }]);
        }
        let dead = || Err(ClusterError::NotReached(io::ErrorKind::BrokenPipe.into()));
        let call = || {
            self.link.meet();
            self.link.call(request)
        };
        calls::around(|| self.fuse.touch(call, dead))
    }

    fn clock_ns(&self) -> Option<u64> {
        self.link.clock_ns()
    }
}

/// A process's files.
pub struct FusedStorage<S> {
    /// The disk.
    pub storage: S,
    /// The process's fuse.
    pub fuse: Fuse,
}

struct FusedFile {
    file: Box<dyn StorageFile>,
    path: Box<str>,
    fuse: Fuse,
}

fn dead(operation: DiskOperation, path: &str) -> StorageError {
    StorageError { operation, path: path.into(), errno: Errno::EIO }
}

impl<S: Storage> FusedStorage<S> {
    fn touch<T>(
        &self,
        operation: DiskOperation,
        path: &str,
        act: impl FnOnce(&S) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        self.fuse.touch(|| act(&self.storage), || Err(dead(operation, path)))
    }
}

impl<S: Storage> Storage for FusedStorage<S> {
    fn open(&self, path: &str, access: Access) -> Result<Box<dyn StorageFile>, StorageError> {
        let file = self.touch(DiskOperation::Open, path, |storage| storage.open(path, access))?;
        Ok(Box::new(FusedFile { file, path: path.into(), fuse: self.fuse.clone() }))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, StorageError> {
        self.touch(DiskOperation::List, folder, |storage| storage.list(folder))
    }

    fn create_folder(&self, folder: &str) -> Result<(), StorageError> {
        self.touch(DiskOperation::CreateFolder, folder, |storage| storage.create_folder(folder))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        self.touch(DiskOperation::Rename, from, |storage| storage.rename(from, to))
    }

    fn unlink(&self, path: &str) -> Result<(), StorageError> {
        self.touch(DiskOperation::Unlink, path, |storage| storage.unlink(path))
    }

    fn remove_folder(&self, folder: &str) -> Result<(), StorageError> {
        self.touch(DiskOperation::RemoveFolder, folder, |storage| storage.remove_folder(folder))
    }

    fn sync_folder(&self, folder: &str) -> Result<(), StorageError> {
        self.touch(DiskOperation::SyncFolder, folder, |storage| storage.sync_folder(folder))
    }
}

/// A log root that is not mounted: there is nothing in it.
pub struct EmptyRoot;

fn nothing(operation: DiskOperation, path: &str) -> StorageError {
    StorageError { operation, path: path.into(), errno: Errno::ENOENT }
}

impl Storage for EmptyRoot {
    fn open(&self, path: &str, _access: Access) -> Result<Box<dyn StorageFile>, StorageError> {
        Err(nothing(DiskOperation::Open, path))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, StorageError> {
        Err(nothing(DiskOperation::List, folder))
    }

    fn create_folder(&self, folder: &str) -> Result<(), StorageError> {
        Err(nothing(DiskOperation::CreateFolder, folder))
    }

    fn rename(&self, from: &str, _to: &str) -> Result<(), StorageError> {
        Err(nothing(DiskOperation::Rename, from))
    }

    fn unlink(&self, path: &str) -> Result<(), StorageError> {
        Err(nothing(DiskOperation::Unlink, path))
    }

    fn remove_folder(&self, folder: &str) -> Result<(), StorageError> {
        Err(nothing(DiskOperation::RemoveFolder, folder))
    }

    fn sync_folder(&self, folder: &str) -> Result<(), StorageError> {
        Err(nothing(DiskOperation::SyncFolder, folder))
    }
}

impl FusedFile {
    fn touch<T>(
        &self,
        operation: DiskOperation,
        act: impl FnOnce(&dyn StorageFile) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        self.fuse.touch(|| act(&*self.file), || Err(dead(operation, &self.path)))
    }
}

impl StorageFile for FusedFile {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, StorageError> {
        self.touch(DiskOperation::Read, |file| file.read_at(offset, bytes))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        self.touch(DiskOperation::Write, |file| file.write_at(offset, bytes))
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.touch(DiskOperation::Sync, |file| file.sync())
    }

    fn length(&self) -> Result<u64, StorageError> {
        self.touch(DiskOperation::Length, |file| file.length())
    }

    fn give_back_from(&self, offset: u64) -> Result<(), StorageError> {
        self.touch(DiskOperation::Write, |file| file.give_back_from(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuse_burns_before_or_after_the_touch() {
        for (after, reached) in [(false, 2), (true, 3)] {
            let fuse = Fuse::new();
            let mut count = 0;
            fuse.light(2, after);
            let alive: Vec<bool> = (0..5)
                .map(|_| {
                    fuse.touch(
                        || {
                            count += 1;
                            true
                        },
                        || false,
                    )
                })
                .collect();
            assert_eq!(alive, [true, true, false, false, false]);
            assert_eq!(count, reached);
            assert!(fuse.is_burnt());
        }
    }
}
