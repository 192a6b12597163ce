//! The store on sled, hosted by one process of a single-machine cluster.
//!
//! What sled's keys hold is explained in [`crate::pieces`]. A transaction is one sled batch.
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
//! A failed write or sync stops the store for good: what is on stable storage is not known, and nothing
//! retries a failed sync. The next start reads what is there.
//!
//! One change at a time is on its way to the disk; leases are renewed meanwhile, so that a disk that takes
//! its time ends nobody's lease.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cell_durable::{Syncer, SystemSyncer, create_folders};
use cell_terms::Incarnation;
use cell_terms::mutant::{Mutant, planted};

use crate::clock::{BootClock, Clock};
use crate::coordinator::{Coordinator, initialise};
use crate::error::ClusterError;
use crate::lock::FolderLock;
use crate::pieces::{self, Pieces};
use crate::request::{CoordinatorRefusal, CoordinatorRequest, Response};
use crate::store::{CoordinatorStore, Delta};

/// sled's cache: the table is small, and the store keeps all of it anyway.
const CACHE_BYTES: u64 = 8 << 20;
/// sled's one data file, in its folder.
const SLED_FILE: &str = "db";
/// Where sled puts large pages, in its folder.
const SLED_BLOBS: &str = "blobs";
/// Where sled lives, in the coordinator's folder.
const SLED_FOLDER: &str = "table";

/// A coordinator in this process.
pub struct Embedded {
    /// Locked for a change from before it is decided until it counts; taken before `store`.
    disk: Mutex<Disk>,
    /// Locked for as long as memory takes.
    store: Mutex<CoordinatorStore>,
    stopped: AtomicBool,
    clock: Arc<dyn Clock>,
    folder: PathBuf,
}

struct Disk {
    database: sled::Db,
    pieces: Pieces,
    files: SledFiles,
    _lock: FolderLock,
}

/// What sled keeps on the disk.
struct SledFiles {
    syncer: Arc<dyn Syncer>,
    folder: PathBuf,
    database: File,
    /// The blobs that are on stable storage with their names.
    blobs: BTreeSet<OsString>,
}

impl Embedded {
    /// Opens the table in `folder`, or begins one there with a random generation. All leases count as just
    /// granted.
    ///
    /// # Errors
    /// [`ClusterError::Held`] if a process has it open, [`ClusterError::Format`] if another version wrote it.
    pub fn open(folder: &Path) -> Result<Embedded, ClusterError> {
        Embedded::open_with_clock(folder, Arc::new(BootClock))
    }

    /// [`Embedded::open`] with a clock of the caller's.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub fn open_with_clock(folder: &Path, clock: Arc<dyn Clock>) -> Result<Embedded, ClusterError> {
        Embedded::open_with(folder, clock, Arc::new(SystemSyncer))
    }

    /// [`Embedded::open`] with a clock of the caller's, and its way to put files on stable storage.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub fn open_with(
        folder: &Path,
        clock: Arc<dyn Clock>,
        syncer: Arc<dyn Syncer>,
    ) -> Result<Embedded, ClusterError> {
        let created = create_folders(&*syncer, folder);
        created.map_err(|source| ClusterError::Folder { path: folder.to_owned(), source })?;
        let lock = FolderLock::acquire(folder)?;
        let sled_folder = folder.join(SLED_FOLDER);
        let database = sled::Config::new()
            .path(&sled_folder)
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(None)
            .open()
            .map_err(ClusterError::Store)?;
        let files = SledFiles::open(&sled_folder, syncer)?;
        let mut disk = Disk { database, pieces: Pieces::default(), files, _lock: lock };
        let (store, fresh) = match disk.pieces.load(&disk.database)? {
            Some(image) => (CoordinatorStore::restore(image, clock.now_ns()), false),
            None => (CoordinatorStore::new(random_generation()?), true),
        };
        let meta = store.meta();
        if fresh {
            disk.apply(pieces::meta_batch(&meta))?;
        }
        let embedded = Embedded {
            disk: Mutex::new(disk),
            store: Mutex::new(store),
            stopped: AtomicBool::new(false),
            clock,
            folder: folder.to_owned(),
        };
        initialise(&embedded, meta.generation)?;
        Ok(embedded)
    }

    /// The coordinator's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn store(&self) -> MutexGuard<'_, CoordinatorStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews a lease that has not run out. A change that is on its way to the disk does not depend on when a
    /// living lease ends.
    fn renew(&self, lease: Incarnation) -> bool {
        let mut store = self.store();
        // The clock is read under the lock: what ended a lease was decided at an earlier time.
        !self.stopped.load(Ordering::SeqCst) && store.renew(lease, self.clock.now_ns())
    }

    /// Makes a change durable, then lets it count.
    fn change(&self, disk: &mut Disk, delta: Delta) -> Result<(), ClusterError> {
        if delta.needs_storage() {
            disk.write(&delta).inspect_err(|_| self.stopped.store(true, Ordering::SeqCst))?;
        }
        self.store().commit(delta);
        Ok(())
    }
}

impl Coordinator for Embedded {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        if let CoordinatorRequest::KeepAlive { lease } = request
            && self.renew(*lease)
        {
            return Ok(Response::Alive);
        }
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stopped.load(Ordering::SeqCst) {
            return Ok(Response::Refused(CoordinatorRefusal::Stopped));
        }
        // The clock is read under the lock: a later change never sees an earlier time.
        let now_ns = self.clock.now_ns();
        let expiry = self.store().prepare_expiry(now_ns);
        if expiry.needs_storage() {
            self.change(&mut disk, expiry)?;
        }
        let (response, delta) = self.store().prepare(request, now_ns);
        self.change(&mut disk, delta)?;
        Ok(response)
    }

    fn clock_ns(&self) -> Option<u64> {
        Some(self.clock.now_ns())
    }
}

impl Disk {
    fn write(&mut self, delta: &Delta) -> Result<(), ClusterError> {
        let batch = self.pieces.batch(delta);
        self.apply(batch)
    }

    fn apply(&mut self, batch: sled::Batch) -> Result<(), ClusterError> {
        self.database.apply_batch(batch).map_err(ClusterError::Store)?;
        self.database.flush().map_err(ClusterError::Store)?;
        self.files.sync().map_err(|source| ClusterError::Store(sled::Error::Io(source)))
    }
}

impl SledFiles {
    /// The files of a database that was just opened, all of them synced: sled may have made them.
    fn open(folder: &Path, syncer: Arc<dyn Syncer>) -> Result<SledFiles, ClusterError> {
        let open = || {
            let database = File::open(folder.join(SLED_FILE))?;
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

/// 31 bits that another cluster, or this one after it lost its table, will hardly draw; never zero.
fn random_generation() -> Result<u32, ClusterError> {
    let path = PathBuf::from("/dev/urandom");
    let mut bytes = [0; 4];
    let read = File::open(&path).and_then(|mut source| source.read_exact(&mut bytes));
    read.map_err(|source| ClusterError::Folder { path, source })?;
    Ok((u32::from_le_bytes(bytes) >> 1).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::coordinator::text;
    use crate::pieces::KEY_META;
    use crate::request::{KeyCondition, Transaction, TransactionOutcome};
    use crate::store::{STORE_FORMAT_VERSION, StoreMeta};
    use cell_durable::PowerCutSyncer;

    #[test]
    fn open_restart_keeps_everything_acknowledged_and_the_generation() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(5));
        let open = || Embedded::open_with_clock(folder.path(), clock.clone()).unwrap();
        let first = open();
        let generation = first.generation().unwrap();
        let lease = first.grant(1000).unwrap().lease;
        first.transact(Transaction::new().put_leased("a", "1", lease).put("b", "2")).unwrap();
        drop(first);
        clock.advance(10_000_000_000);
        let second = open();
        assert_eq!(second.generation().unwrap(), generation);
        assert_eq!(second.remaining_ns(lease).unwrap(), Some(1_000_000_000), "as just granted");
        assert_eq!(second.read("a").unwrap().unwrap().value, "1");
        clock.advance(1_000_000_000);
        assert_eq!(second.read("a").unwrap(), None);
        drop(second);
        let third = open();
        assert_eq!(third.remaining_ns(lease).unwrap(), None, "an end is remembered");
        assert_eq!(third.read("b").unwrap().unwrap().value, "2");
    }

    #[test]
    fn keep_alive_while_the_disk_takes_its_time_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(5));
        let embedded = Embedded::open_with_clock(folder.path(), clock.clone()).unwrap();
        let lease = embedded.grant(1000).unwrap().lease;
        clock.advance(900_000_000);
        let busy = embedded.disk.lock().unwrap();
        embedded.keep_alive(lease).unwrap();
        clock.advance(900_000_000);
        embedded.keep_alive(lease).unwrap();
        drop(busy);
        assert_eq!(embedded.remaining_ns(lease).unwrap(), Some(1_000_000_000));
        clock.advance(1_000_000_000);
        let ended = embedded.keep_alive(lease);
        assert!(matches!(ended, Err(ClusterError::LeaseEnded { lease: of }) if of == lease));
    }

    #[test]
    fn open_second_time_names_the_holder() {
        let folder = tempfile::tempdir().unwrap();
        let _first = Embedded::open(folder.path()).unwrap();
        let second = Embedded::open(folder.path()).err().unwrap();
        assert!(matches!(second, ClusterError::Held { pid: Some(pid), .. } if pid == std::process::id()));
    }

    /// A database that was dropped keeps its lock until its threads have ended.
    fn open_once_free(folder: &Path) -> sled::Db {
        let tries = std::iter::repeat_with(|| {
            std::thread::yield_now();
            sled::open(folder)
        });
        tries.filter_map(Result::ok).next().unwrap()
    }

    #[test]
    fn open_other_format_is_refused_by_version() {
        let folder = tempfile::tempdir().unwrap();
        drop(Embedded::open(folder.path()).unwrap());
        for format in [1, 9] {
            let database = open_once_free(&folder.path().join(SLED_FOLDER));
            let meta = StoreMeta { format, revision: 0, generation: 1, lease_next: 1 };
            database.insert(KEY_META, text(&meta).as_bytes()).unwrap();
            drop(database);
            let mut refusals = std::iter::repeat_with(|| Embedded::open(folder.path()).err().unwrap());
            let versions = refusals.find_map(|refusal| match refusal {
                ClusterError::Format { found, known } => Some((found, known)),
                _ => None,
            });
            assert_eq!(versions, Some((format, STORE_FORMAT_VERSION)));
        }
    }

    #[test]
    fn open_other_row_format_is_refused_by_version() {
        let folder = tempfile::tempdir().unwrap();
        let first = Embedded::open(folder.path()).unwrap();
        first.transact(Transaction::new().put("cluster/format", "1")).unwrap();
        drop(first);
        let refused = Embedded::open(folder.path()).err().unwrap();
        assert!(matches!(refused, ClusterError::Format { found: 1, .. }));
    }

    #[test]
    fn transact_many_keys_all_are_there_after_restart() {
        let folder = tempfile::tempdir().unwrap();
        let first = Embedded::open(folder.path()).unwrap();
        for i in 0..300_u32 {
            let key = format!("k{i}");
            let outcome = first.transact(
                Transaction::new()
                    .when(KeyCondition::Absent { key: key.clone() })
                    .put(key, "x".repeat(usize::try_from(i).unwrap() * 10)),
            );
            assert!(matches!(outcome.unwrap(), TransactionOutcome::Applied { .. }));
        }
        drop(first);
        let second = Embedded::open(folder.path()).unwrap();
        assert_eq!(second.list("k").unwrap().entries.len(), 300);
    }

    /// Whether a page that sled has written to a file of its own outlives a power cut. No row makes such a
    /// page, but sled promises nobody that it makes none.
    fn blob_outlives_a_power_cut() -> bool {
        let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let syncer = Arc::new(PowerCutSyncer::new(before.path()).unwrap());
        let embedded =
            Embedded::open_with(before.path(), Arc::new(ManualClock::new(5)), syncer.clone()).unwrap();
        let large = vec![7; 200 << 10];
        let mut batch = sled::Batch::default();
        batch.insert(b"x", &*large);
        embedded.disk.lock().unwrap().apply(batch).unwrap();
        let blobs = std::fs::read_dir(before.path().join(SLED_FOLDER).join(SLED_BLOBS)).unwrap();
        assert!(blobs.count() > 0, "sled has written it to a file of its own");
        syncer.restore(after.path()).unwrap();
        let database = sled::open(after.path().join(SLED_FOLDER)).unwrap();
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
}
