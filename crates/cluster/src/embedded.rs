//! The store on sled, hosted by one process of a single-machine cluster.
//!
//! sled holds three kinds of keys: `m` is [`StoreMeta`], `k` + key is a [`KeyValue`], `l` + lease
//! (big-endian) is its time to live in nanoseconds; values are JSON. A transaction is one sled batch. sled's
//! `flush` writes, but not through the disk's cache: the file `db` is synced here after each flush, before
//! the transaction counts.
//!
//! A failed write or sync stops the store for good: what is on stable storage is not known, and nothing
//! retries a failed sync. The next start reads what is there.
//!
//! One change at a time is on its way to the disk; leases are renewed meanwhile, so that a disk that takes
//! its time ends nobody's lease.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cell_terms::Incarnation;

use crate::clock::{BootClock, Clock};
use crate::coordinator::{Coordinator, initialise, parse, text};
use crate::error::ClusterError;
use crate::lock::FolderLock;
use crate::request::{KeyValue, Refusal, Request, Response};
use crate::store::{Delta, STORE_FORMAT_VERSION, Store, StoreImage, StoreMeta};

const KEY_META: &[u8] = b"m";
const PREFIX_KEY: u8 = b'k';
const PREFIX_LEASE: u8 = b'l';
/// sled's cache: the table is small, and the store keeps all of it anyway.
const CACHE_BYTES: u64 = 8 << 20;
/// sled's one data file, in its folder.
const SLED_FILE: &str = "db";
/// Where sled lives, in the coordinator's folder.
const SLED_FOLDER: &str = "table";

/// A coordinator in this process.
pub struct Embedded {
    /// Locked for a change from before it is decided until it counts; taken before `store`.
    disk: Mutex<Disk>,
    /// Locked for as long as memory takes.
    store: Mutex<Store>,
    stopped: AtomicBool,
    clock: Arc<dyn Clock>,
    folder: PathBuf,
}

struct Disk {
    database: sled::Db,
    file: File,
    _lock: FolderLock,
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
        let lock = FolderLock::acquire(folder)?;
        let sled_folder = folder.join(SLED_FOLDER);
        let database = sled::Config::new()
            .path(&sled_folder)
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(None)
            .open()
            .map_err(ClusterError::Store)?;
        let file_path = sled_folder.join(SLED_FILE);
        let file =
            File::open(&file_path).map_err(|source| ClusterError::Folder { path: file_path, source })?;
        for path in [&sled_folder, folder] {
            sync_folder(path)?;
        }
        let (store, fresh) = match load(&database)? {
            Some(image) => (Store::restore(image, clock.now_ns()), false),
            None => (Store::new(random_generation()?), true),
        };
        let meta = store.meta();
        let disk = Disk { database, file, _lock: lock };
        if fresh {
            disk.write_meta(&meta)?;
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

    fn store(&self) -> MutexGuard<'_, Store> {
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
    fn change(&self, disk: &Disk, delta: Delta) -> Result<(), ClusterError> {
        if delta.needs_storage() {
            disk.write(&delta).inspect_err(|_| self.stopped.store(true, Ordering::SeqCst))?;
        }
        self.store().commit(delta);
        Ok(())
    }
}

impl Coordinator for Embedded {
    fn call(&self, request: &Request) -> Result<Response, ClusterError> {
        if let Request::KeepAlive { lease } = request
            && self.renew(*lease)
        {
            return Ok(Response::Alive);
        }
        let disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stopped.load(Ordering::SeqCst) {
            return Ok(Response::Refused(Refusal::Stopped));
        }
        // The clock is read under the lock: a later change never sees an earlier time.
        let now_ns = self.clock.now_ns();
        let expiry = self.store().prepare_expiry(now_ns);
        if expiry.needs_storage() {
            self.change(&disk, expiry)?;
        }
        let (response, delta) = self.store().prepare(request, now_ns);
        self.change(&disk, delta)?;
        Ok(response)
    }
}

impl Disk {
    fn write_meta(&self, meta: &StoreMeta) -> Result<(), ClusterError> {
        let mut batch = sled::Batch::default();
        batch.insert(KEY_META, text(meta).as_bytes());
        self.apply(batch)
    }

    fn write(&self, delta: &Delta) -> Result<(), ClusterError> {
        let mut batch = sled::Batch::default();
        batch.insert(KEY_META, text(&delta.meta).as_bytes());
        for id in &delta.ended {
            batch.remove(lease_key(*id));
        }
        for (id, ttl_ns) in &delta.granted {
            batch.insert(lease_key(*id), text(ttl_ns).as_bytes());
        }
        for key in &delta.removed {
            batch.remove(entry_key(key));
        }
        for entry in &delta.written {
            batch.insert(entry_key(&entry.key), text(entry).as_bytes());
        }
        self.apply(batch)
    }

    fn apply(&self, batch: sled::Batch) -> Result<(), ClusterError> {
        self.database.apply_batch(batch).map_err(ClusterError::Store)?;
        self.database.flush().map_err(ClusterError::Store)?;
        self.file.sync_data().map_err(|source| ClusterError::Store(sled::Error::Io(source)))
    }
}

fn load(database: &sled::Db) -> Result<Option<StoreImage>, ClusterError> {
    let Some(meta) = database.get(KEY_META).map_err(ClusterError::Store)? else { return Ok(None) };
    let meta: StoreMeta = parse_bytes("the store's numbers", &meta)?;
    if meta.format != STORE_FORMAT_VERSION {
        return Err(ClusterError::Format { found: meta.format, known: STORE_FORMAT_VERSION });
    }
    let mut image = StoreImage { meta, keys: Vec::new(), leases: Vec::new() };
    for row in database.scan_prefix([PREFIX_KEY]) {
        let (_, value) = row.map_err(ClusterError::Store)?;
        image.keys.push(parse_bytes::<KeyValue>("a key of the store", &value)?);
    }
    for row in database.scan_prefix([PREFIX_LEASE]) {
        let (key, value) = row.map_err(ClusterError::Store)?;
        let id = key.get(1..).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes);
        let id = id.ok_or(ClusterError::Answer)?;
        image.leases.push((Incarnation(id), parse_bytes("a lease of the store", &value)?));
    }
    Ok(Some(image))
}

fn parse_bytes<T: serde::de::DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, ClusterError> {
    let text = std::str::from_utf8(bytes).unwrap_or("\u{fffd}"); // not JSON either way
    parse(what, text)
}

fn entry_key(key: &str) -> Vec<u8> {
    [&[PREFIX_KEY], key.as_bytes()].concat()
}

fn lease_key(lease: Incarnation) -> Vec<u8> {
    [&[PREFIX_LEASE][..], &lease.0.to_be_bytes()].concat()
}

fn sync_folder(path: &Path) -> Result<(), ClusterError> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(|source| ClusterError::Folder { path: path.to_owned(), source })
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
    use crate::request::{Condition, Transaction, TransactionOutcome};

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

    #[test]
    fn open_other_format_is_refused_by_version() {
        let folder = tempfile::tempdir().unwrap();
        drop(Embedded::open(folder.path()).unwrap());
        let database = sled::open(folder.path().join(SLED_FOLDER)).unwrap();
        let meta = StoreMeta { format: 9, revision: 0, generation: 1, lease_next: 1 };
        database.insert(KEY_META, text(&meta).as_bytes()).unwrap();
        drop(database);
        let refused = Embedded::open(folder.path()).err().unwrap();
        assert!(matches!(refused, ClusterError::Format { found: 9, known: STORE_FORMAT_VERSION }));
    }

    #[test]
    fn open_other_row_format_is_refused_by_version() {
        let folder = tempfile::tempdir().unwrap();
        let first = Embedded::open(folder.path()).unwrap();
        first.transact(Transaction::new().put("cluster/format", "77")).unwrap();
        drop(first);
        let refused = Embedded::open(folder.path()).err().unwrap();
        assert!(matches!(refused, ClusterError::Format { found: 77, .. }));
    }

    #[test]
    fn transact_many_keys_all_are_there_after_restart() {
        let folder = tempfile::tempdir().unwrap();
        let first = Embedded::open(folder.path()).unwrap();
        for i in 0..300_u32 {
            let key = format!("k{i}");
            let outcome = first.transact(
                Transaction::new()
                    .when(Condition::Absent { key: key.clone() })
                    .put(key, "x".repeat(usize::try_from(i).unwrap() * 10)),
            );
            assert!(matches!(outcome.unwrap(), TransactionOutcome::Applied { .. }));
        }
        drop(first);
        let second = Embedded::open(folder.path()).unwrap();
        assert_eq!(second.list("k").unwrap().entries.len(), 300);
    }
}
