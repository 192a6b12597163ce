//! Opens a log root: checks that it can do what is relied on (`log_root_need`), and finds its id.
//!
//! A log root has an id, random, in a file of its own: whoever reads the same id has the same folders before
//! it. It is made once, and never changed.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::rand::GetRandomFlags;

use crate::error::{DiskOperation, Errno, LogRootError, StorageError, WalError};
use crate::flush_ground::FlushGround;
use crate::flush_unfit::FlushUnfit;
use crate::log_root_need::LogRootNeed;
use crate::real::RealStorage;
use crate::root_id::{ID_FILE, parse_id, read_id};
use crate::storage::{Access, Storage, remove_files};

/// A file of one block that the check leaves, for the time being.
const WHOLE: &str = "whole";

/// A log root that was found fit.
#[derive(Clone, Debug)]
pub struct LogRoot {
    /// Its files.
    pub storage: RealStorage,
    /// Its id; none where it could not be made or read. Only leases show then whether an owner is gone.
    pub id: Option<u128>,
    /// Whether one flush of its disk covers all its logs.
    pub flush_ground: Result<FlushGround, FlushUnfit>,
}

impl LogRoot {
    /// Whether a node has started in this folder: there is an id, whatever it is.
    ///
    /// # Errors
    /// The system's: it is not known.
    pub fn has_started(folder: &Path) -> io::Result<bool> {
        folder.join(ID_FILE).try_exists()
    }

    /// The id that lies in this folder; none: what lies in its file is no id. Nothing is made.
    ///
    /// # Errors
    /// The system's; `NotFound`: no node has started there.
    pub fn id_of(folder: &Path) -> io::Result<Option<u128>> {
        std::fs::read(folder.join(ID_FILE)).map(|bytes| parse_id(&bytes))
    }

    /// Its id, and by device and inode the file that it lies in: a copy of the log root has the id, and
    /// another file. None: it has none, or does not say which file that is.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        let found = std::fs::metadata(self.storage.absolute(ID_FILE)).ok()?;
        Some(format!("{:032x} {:x}:{:x}", self.id?, found.dev(), found.ino()))
    }

    /// Opens the log root in `folder`, which is made if it is missing, and checks all that it needs. It takes
    /// a few syncs.
    ///
    /// # Errors
    /// [`WalError::LogRoot`] says what the folder cannot do, why that is needed, and what to do about it.
    pub fn open(folder: &Path) -> Result<LogRoot, WalError> {
        let storage = RealStorage::open(folder)?;
        let random =
            random_id().map_err(|errno| StorageError::new(DiskOperation::Read, "/dev/random", errno))?;
        let probes = format!("check-{random:032x}");
        let checked = check(&storage, &probes);
        let flush_ground = FlushGround::examine(&storage, &probes, &format!("{probes}/{WHOLE}"));
        // What is left over is in nobody's way: its name is no log's.
        let _ = remove_files(&storage, &probes);
        match checked {
            Err(LogRootError { errno: Some(errno), .. }) if errno.is_shortage() => {
                tracing::warn!(%errno, root = %storage.root().display(), "the log root was not checked");
            }
            checked => checked?,
        }
        let id = id(&storage, random).unwrap_or_else(|error| {
            tracing::warn!(%error, root = %storage.root().display(), "the log root has no id: what an \
                earlier process of this node owned is taken over when its lease has ended, and not before");
            None
        });
        Ok(LogRoot { storage: storage.with_id(id), id, flush_ground })
    }
}

/// Does each thing once that a node will rely on, in a folder of its own.
fn check(storage: &RealStorage, probes: &str) -> Result<(), LogRootError> {
    let lacks = |need, path: &str, errno| LogRootError {
        root: storage.root().to_string_lossy().into(),
        path: path.into(),
        need,
        errno,
    };
    let failed = |need| move |error: StorageError| lacks(need, &error.path, Some(error.errno));
    if let Some(path) = storage.on_other_device().map_err(failed(LogRootNeed::Write))? {
        return Err(lacks(LogRootNeed::OneDevice, &path, None));
    }
    storage.create_folder(probes).map_err(failed(LogRootNeed::Write))?;
    storage.sync_folder("").map_err(failed(LogRootNeed::SyncNames))?;

    let (unfinished, whole) = (format!("{probes}/unfinished"), format!("{probes}/{WHOLE}"));
    drop(storage.open(&unfinished, Access::CreateDirect).map_err(failed(LogRootNeed::Write))?);
    let is_kept = storage.try_data_sync(&unfinished).map_err(failed(LogRootNeed::DataSync))?;
    if !is_kept {
        return Err(lacks(LogRootNeed::DataSync, &unfinished, None));
    }
    storage.rename(&unfinished, &whole).map_err(failed(LogRootNeed::Rename))?;
    storage.sync_folder(probes).map_err(failed(LogRootNeed::SyncNames))?;

    let held = storage.try_lock(&whole).map_err(failed(LogRootNeed::Lock))?;
    let second = storage.try_lock(&whole).map_err(failed(LogRootNeed::Lock))?;
    if held.is_none() || second.is_some() {
        return Err(lacks(LogRootNeed::Lock, &whole, None));
    }
    Ok(())
}

/// The id, made if there is none. None: what lies in its file is no id.
///
/// 1. Two nodes start over an empty log root; each writes an id to a file of its own, and syncs it.
/// 2. Both give that file the one name for ids, which only one can: a link is never put over a name.
/// 3. Both sync the folder and read what has the name.
fn id(storage: &RealStorage, random: u128) -> Result<Option<u128>, StorageError> {
    let found = read_id(storage);
    if !matches!(&found, Err(error) if error.errno == Errno::ENOENT) {
        return found;
    }
    let own = format!("{ID_FILE}-{random:032x}");
    let file = storage.open(&own, Access::Create)?;
    file.write_at(0, format!("{random:032x}\n").as_bytes())?;
    file.sync()?;
    let linked = storage.link(&own, ID_FILE);
    storage.unlink(&own)?;
    if let Err(error) = linked
        && error.errno != Errno::EEXIST
    {
        return Err(error);
    }
    storage.sync_folder("")?;
    read_id(storage)
}

fn random_id() -> Result<u128, Errno> {
    let mut bytes = [0; size_of::<u128>()];
    let count = rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())?;
    if count == bytes.len() { Ok(u128::from_le_bytes(bytes)) } else { Err(Errno::EIO) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_root_keeps_its_id_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("log");
        let ids: Vec<_> = std::thread::scope(|scope| {
            let open = |_| scope.spawn(|| LogRoot::open(&root).unwrap().id.unwrap());
            let started: Vec<_> = (0..4).map(open).collect();
            started.into_iter().map(|started| started.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0] && *id != 0), "{ids:?}");
        let names = std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), [ID_FILE]);
        let other = LogRoot::open(&folder.path().join("other")).unwrap().id;
        assert_ne!(other, Some(ids[0]));
        assert_eq!(LogRoot::id_of(&root).unwrap(), Some(ids[0]));
        assert_eq!(LogRoot::id_of(folder.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn log_root_with_an_id_that_is_none_opens_without() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["", "x", &"f".repeat(40)] {
            std::fs::write(folder.path().join(ID_FILE), text).unwrap();
            assert_eq!(LogRoot::open(folder.path()).unwrap().id, None, "{text}");
            assert_eq!(LogRoot::id_of(folder.path()).unwrap(), None, "{text}");
        }
    }

    #[test]
    fn log_root_that_is_away_or_another_is_distinguished_from_the_one_that_was_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (root, away) = (folder.path().join("log"), folder.path().join("away"));
        let storage = LogRoot::open(&root).unwrap().storage;
        assert!(storage.check_root().is_ok());
        std::fs::rename(&root, &away).unwrap();
        assert_eq!(storage.check_root().unwrap_err().errno, Errno::ESTALE, "nothing is there");
        std::fs::create_dir(&root).unwrap();
        assert_eq!(storage.check_root().unwrap_err().errno, Errno::ESTALE, "an empty folder is there");
        LogRoot::open(&root).unwrap();
        assert_eq!(storage.check_root().unwrap_err().errno, Errno::ESTALE, "another one is there");
        std::fs::remove_dir_all(&root).unwrap();
        std::fs::rename(&away, &root).unwrap();
        assert!(storage.check_root().is_ok(), "it is back");
    }

    #[test]
    fn log_root_error_says_what_why_and_what_next() {
        let error = LogRootError {
            root: "/mnt/x".into(),
            path: "check-1/unfinished".into(),
            need: LogRootNeed::DataSync,
            errno: Some(Errno(libc::EOPNOTSUPP)),
        };
        let text = error.to_string();
        for part in ["/mnt/x", "RWF_DSYNC", "check-1/unfinished", "not supported", "Each commit", "ext4"] {
            assert!(text.contains(part), "{text}");
        }
    }

    /// A file system of the kernel's own that is there everywhere and can do next to nothing.
    #[test]
    fn log_root_that_cannot_be_written_is_refused_by_name() {
        let refused = check(&RealStorage::open(Path::new("/proc")).unwrap(), "check").unwrap_err();
        assert_eq!((refused.need, &*refused.root, &*refused.path), (LogRootNeed::Write, "/proc", "check"));
    }
}
