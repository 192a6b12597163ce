//! One table of the coordinator in sled, whose every change is on stable storage when it counts.
//!
//! What sled's keys hold is explained in [`crate::providers::pieces`]. A transaction is one sled batch.
//!
//! sled's `flush` writes, but not through the disk's cache, and a page that outgrows a quarter of a segment
//! (128 KiB) it writes to a file of its own in `blobs`, which it never syncs, nor that folder:
//!
//! ```text
//! 1. rows of some KiB come to lie in one page with the next pair's id, sixteen rows or so a page
//! 2. the page passes 128 KiB, and sled writes it to blobs/123; `db` gets a pointer
//! 3. `db` is synced, and the transaction is acknowledged
//! 4. power goes: blobs/123 is empty or not there, and with it all that lay in the page
//! ```
//!
//! So no page comes to that size, because rows are stored in small pieces; and after each flush everything
//! that sled has written is synced here before the transaction counts: blobs, their folder, then `db`.
//!
//! After a failed write or sync a table is of no use any more: what is on stable storage is not known, and
//! nothing retries a failed sync.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use cell_durable::Syncer;
use cell_terms::mutant::{Mutant, planted};

use crate::error::ClusterError;
use crate::providers::pieces::{self, Pieces};
use crate::providers::store::{Delta, StoreImage, StoreMeta};

/// sled's cache: the table is small, and the store keeps all of it anyway.
const CACHE_BYTES: u64 = 8 << 20;
/// sled's one data file, in its folder.
const SLED_FILE: &str = "db";
/// Where sled puts large pages, in its folder.
const SLED_BLOBS: &str = "blobs";
/// How the name of a snapshot ends that sled has not written to its end.
const SLED_UNFINISHED: &str = ".generating";
/// How often a flush is looked after.
const FLUSH_LOOK: Duration = Duration::from_millis(50);
/// How often it is, after a write has failed, before it counts as hanging.
const FLUSH_LOOKS_MAX: u32 = 100;

/// A table.
pub(crate) struct SledTable {
    config: sled::Config,
    database: sled::Db,
    pieces: Pieces,
    files: SledFiles,
}

/// What sled keeps on the disk.
struct SledFiles {
    syncer: Arc<dyn Syncer>,
    folder: PathBuf,
    database: File,
    /// The blobs that are on stable storage with their names.
    blobs: BTreeSet<OsString>,
}

/// Wakes who waits for a flush.
#[derive(Default)]
struct Signal {
    given: Mutex<bool>,
    change: Condvar,
}

impl SledTable {
    /// Opens the table in `folder`, or begins one there.
    pub(crate) fn open(folder: &Path, syncer: Arc<dyn Syncer>) -> Result<SledTable, ClusterError> {
        remove_unfinished(folder)
            .map_err(|source| ClusterError::Folder { path: folder.to_owned(), source })?;
        let config = sled::Config::new().path(folder).cache_capacity(CACHE_BYTES).flush_every_ms(None);
        let database = config.open().map_err(ClusterError::Store)?;
        match SledFiles::open(folder, syncer) {
            Ok(files) => Ok(SledTable { config, database, pieces: Pieces::default(), files }),
            Err(error) => {
                std::mem::forget(database); // as in `abandon`
                Err(error)
            }
        }
    }

    /// What is stored; none: nothing yet.
    pub(crate) fn load(&mut self) -> Result<Option<StoreImage>, ClusterError> {
        self.pieces.load(&self.database)
    }

    /// Writes the numbers of a store that has nothing else yet.
    pub(crate) fn begin(&mut self, meta: &StoreMeta) -> Result<(), ClusterError> {
        self.apply(pieces::meta_batch(meta))
    }

    /// Makes a change durable.
    pub(crate) fn write(&mut self, delta: &Delta) -> Result<(), ClusterError> {
        let batch = self.pieces.batch(delta);
        self.apply(batch)
    }

    /// Writes a whole store into a table that has nothing yet.
    pub(crate) fn fill(&mut self, image: StoreImage) -> Result<(), ClusterError> {
        for delta in image.into_deltas() {
            let batch = self.pieces.batch(&delta);
            self.database.apply_batch(batch).map_err(ClusterError::Store)?;
        }
        if planted(Mutant::RebuiltUnsynced) {
            return Ok(());
        }
        self.put_on_disk()
    }

    /// sled's file.
    pub(crate) fn file(&self) -> &File {
        &self.files.database
    }

    /// Lets go of a table that failed.
    pub(crate) fn abandon(self) {
        // When sled does not know of a failed sync, its end syncs once more, and panics where that fails.
        if self.config.global_error().is_ok() {
            std::mem::forget(self.database);
        }
    }

    fn apply(&mut self, batch: sled::Batch) -> Result<(), ClusterError> {
        self.database.apply_batch(batch).map_err(ClusterError::Store)?;
        self.put_on_disk()
    }

    fn put_on_disk(&mut self) -> Result<(), ClusterError> {
        self.flush()?;
        self.files.sync().map_err(|source| ClusterError::Store(sled::Error::Io(source)))
    }

    /// sled's `flush`. When a write fails whose buffer became full in the course of a change, sled wakes
    /// nobody, and who waits for it waits for ever: so it is looked whether one has failed.
    fn flush(&self) -> Result<(), ClusterError> {
        let signal = Arc::new(Signal::default());
        let waker = Waker::from(signal.clone());
        let mut context = Context::from_waker(&waker);
        let mut flushed = pin!(self.database.flush_async());
        let mut looks = 0;
        loop {
            if let Poll::Ready(done) = flushed.as_mut().poll(&mut context) {
                return done.map(drop).map_err(ClusterError::Store);
            }
            signal.wait(FLUSH_LOOK);
            if let Err(error) = self.config.global_error() {
                looks += 1;
                if looks > FLUSH_LOOKS_MAX {
                    return Err(ClusterError::StoreHangs(error));
                }
            }
        }
    }
}

impl Signal {
    fn wait(&self, most: Duration) {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.change.wait_timeout_while(given, most, |given| !*given);
        let (mut given, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *given = false;
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.change.notify_one();
    }
}

/// Removes the folder of a table, and gives its room back even if sled should still have a file of it open.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).open(folder.join(SLED_FILE)) {
        Ok(database) => database.set_len(0)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes what sled did not come to write to its end, on a full disk or in a crash: it would take it for its
/// newest snapshot, find that cut short, and open no more.
fn remove_unfinished(folder: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(SLED_UNFINISHED) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

impl SledFiles {
    /// The files of a database that was just opened, all of them synced: sled may have made them.
    fn open(folder: &Path, syncer: Arc<dyn Syncer>) -> Result<SledFiles, ClusterError> {
        let open = || {
            let database = OpenOptions::new().read(true).write(true).open(folder.join(SLED_FILE))?;
            let mut files = SledFiles { syncer, folder: folder.to_owned(), database, blobs: BTreeSet::new() };
            for entry in std::fs::read_dir(folder)? {
                let entry = entry?;
                if entry.file_type()?.is_file() {
                    files.syncer.sync_file(&File::open(entry.path())?)?;
                }
            }
            files.sync()?;
            for path in [&files.folder.join(SLED_BLOBS), &files.folder] {
                files.syncer.sync_folder(path)?;
            }
            if let Some(above) = files.folder.parent() {
                files.syncer.sync_folder(above)?;
            }
            Ok(files)
        };
        open().map_err(|source| ClusterError::Folder { path: folder.to_owned(), source })
    }

    /// Syncs what sled has written: blobs before what points to them.
    fn sync(&mut self) -> io::Result<()> {
        if planted(Mutant::CoordinatorUnsynced) {
            return Ok(());
        }
        if !planted(Mutant::BlobsUnsynced) {
            self.sync_blobs()?;
        }
        self.syncer.sync_file(&self.database)
    }

    fn sync_blobs(&mut self) -> io::Result<()> {
        let folder = self.folder.join(SLED_BLOBS);
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(&folder)? {
            let name = entry?.file_name();
            if !self.blobs.contains(&name) {
                match File::open(folder.join(&name)) {
                    Ok(blob) => self.syncer.sync_file(&blob)?,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue, // replaced since
                    Err(error) => return Err(error),
                }
            }
            found.insert(name);
        }
        if found != self.blobs {
            self.syncer.sync_folder(&folder)?;
            self.blobs = found;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_durable::{PowerCutSyncer, SystemSyncer};

    /// Whether a page that sled has written to a file of its own outlives a power cut. No row makes such a
    /// page, but sled promises nobody that it makes none.
    fn blob_outlives_a_power_cut() -> bool {
        let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let syncer = Arc::new(PowerCutSyncer::new(before.path()).unwrap());
        let folder = before.path().join("table");
        let mut table = SledTable::open(&folder, syncer.clone()).unwrap();
        let large = vec![7; 200 << 10];
        let mut batch = sled::Batch::default();
        batch.insert(b"x", &*large);
        table.apply(batch).unwrap();
        let blobs = std::fs::read_dir(folder.join(SLED_BLOBS)).unwrap();
        assert!(blobs.count() > 0, "sled has written it to a file of its own");
        syncer.restore(after.path()).unwrap();
        let database = sled::open(after.path().join("table")).unwrap();
        matches!(database.get(b"x"), Ok(Some(found)) if *found == *large)
    }

    #[test]
    fn apply_large_page_outlives_a_power_cut() {
        assert!(blob_outlives_a_power_cut());
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_blobs_unsynced_is_caught() {
        cell_terms::mutant::in_own_process(|| {
            cell_terms::mutant::plant(Some(Mutant::BlobsUnsynced));
            let outlived = blob_outlives_a_power_cut();
            cell_terms::mutant::plant(None);
            assert!(!outlived);
            println!("mutant {} caught by cell-cluster's power cut", Mutant::BlobsUnsynced.name());
        });
    }

    #[test]
    fn open_beside_a_snapshot_that_was_cut_short_reads_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let meta = crate::providers::store::CoordinatorStore::new(7).meta();
        let mut table = SledTable::open(folder.path(), Arc::new(SystemSyncer)).unwrap();
        table.begin(&meta).unwrap();
        drop(table);
        std::fs::write(folder.path().join("snap.00000000000000FF.generating"), "cut").unwrap();
        // A database that was dropped keeps its lock until its threads have ended.
        let opened = std::iter::repeat_with(|| {
            std::thread::yield_now();
            SledTable::open(folder.path(), Arc::new(SystemSyncer))
        });
        let is_locked = |error: &ClusterError| format!("{error:?}").contains("could not acquire lock");
        let mut opened = opened.skip_while(|table| table.as_ref().is_err_and(is_locked));
        assert_eq!(opened.next().unwrap().unwrap().load().unwrap().unwrap().meta, meta);
    }
}
