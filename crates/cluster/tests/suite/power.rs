//! The embedded coordinator under power cuts, over real files: everything that it did not sync is lost, names
//! of files and folders included (see `cell_durable::PowerCutSyncer`).

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cell_cluster::{ClusterError, Coordinator, Embedded, KeyOperation, ManualClock, Transaction};
use cell_durable::{PowerCutSyncer, Syncer};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tempfile::TempDir;

/// Below the folder that is there from the start: the names on the way are the coordinator's to keep, too.
const FOLDER: &str = "data/coordinator";

/// Power goes at the sync after so many: nothing is synced from then on.
struct Fuse {
    syncer: PowerCutSyncer,
    left: AtomicU32,
}

impl Fuse {
    fn burn(&self) -> io::Result<()> {
        let less = |left: u32| if left == u32::MAX { Some(left) } else { left.checked_sub(1) };
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        left.map(drop).map_err(|_| io::ErrorKind::Other.into())
    }
}

impl Syncer for Fuse {
    fn sync_file(&self, file: &File) -> io::Result<()> {
        self.burn()?;
        self.syncer.sync_file(file)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.burn()?;
        self.syncer.sync_folder(folder)
    }
}

/// A host with a disk, on which the coordinator runs.
struct Host {
    disk: TempDir,
    fuse: Arc<Fuse>,
    coordinator: Option<Embedded>,
}

impl Host {
    fn start(disk: TempDir) -> Host {
        let mut host = Host::off(disk);
        host.power_on().unwrap();
        host
    }

    fn off(disk: TempDir) -> Host {
        let syncer = PowerCutSyncer::new(disk.path()).unwrap();
        Host { fuse: Arc::new(Fuse { syncer, left: AtomicU32::new(u32::MAX) }), disk, coordinator: None }
    }

    fn power_on(&mut self) -> Result<(), ClusterError> {
        let folder = self.disk.path().join(FOLDER);
        let clock = Arc::new(ManualClock::new(1));
        self.coordinator = Some(Embedded::open_with(&folder, clock, self.fuse.clone())?);
        Ok(())
    }

    fn coordinator(&self) -> &Embedded {
        self.coordinator.as_ref().unwrap()
    }

    /// The disk as a power cut at this moment leaves it.
    fn disk_after_cut(&self) -> TempDir {
        let after = tempfile::tempdir().unwrap();
        self.fuse.syncer.restore(after.path()).unwrap();
        after
    }

    fn put(&self, key: &str, value: &str) -> Result<(), ClusterError> {
        self.coordinator().transact(Transaction::new().put(key, value)).map(drop)
    }

    fn rows(&self) -> Rows {
        let entries = self.coordinator().list("").unwrap().entries;
        let own = entries.into_iter().filter(|entry| !entry.key.starts_with("cluster/"));
        own.map(|entry| (entry.key, entry.value)).collect()
    }
}

/// Issue 11, finding 2: seventeen rows of 7.7 KB take the counters with them, because sled writes the page
/// that they lie in to a file of its own.
#[test]
fn rows_of_some_kilobytes_beside_the_counters_outlive_a_power_cut() {
    let host = Host::start(tempfile::tempdir().unwrap());
    host.put("counter/pair", "18").unwrap();
    let lease = host.coordinator().grant(60_000).unwrap().lease;
    for (round, size) in [7_700, 8_000, 30_000].into_iter().enumerate() {
        for incident in 0..40 {
            host.put(&format!("incident/{round}{incident:015x}"), &"x".repeat(size)).unwrap();
            host.put("counter/session", &incident.to_string()).unwrap();
        }
    }
    let rows = host.rows();
    let generation = host.coordinator().generation().unwrap();
    let again = Host::start(host.disk_after_cut());
    assert_eq!(again.coordinator().generation().unwrap(), generation);
    assert_eq!(again.rows(), rows);
    assert!(again.coordinator().remaining_ns(lease).unwrap().is_some());
}

/// sled syncs no file of its own for a page, so none is to come to that: rows of any size and number leave
/// that folder empty.
#[test]
fn rows_of_every_size_are_never_written_to_files_of_their_own() {
    let host = Host::start(tempfile::tempdir().unwrap());
    for size in [100, 4_000, 7_700, 32 << 10] {
        for row in 0..60 {
            host.put(&format!("{}/{row}", "k".repeat(250)), &"\"".repeat(size)).unwrap();
        }
        let blobs = host.disk.path().join(FOLDER).join("table/blobs");
        assert_eq!(std::fs::read_dir(blobs).unwrap().count(), 0, "with rows of {size} bytes");
    }
}

#[test]
fn power_cuts_between_and_within_changes_lose_nothing_acknowledged() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let mut acknowledged = Rows::new();
    // What the change that power interrupted would have made of it.
    let mut interrupted = None;
    let mut disk = tempfile::tempdir().unwrap();
    let mut lives = 0;
    for _ in 0..40 {
        let mut host = Host::off(disk);
        host.fuse.left.store(random.random_range(..200_u32), Ordering::SeqCst);
        if host.power_on().is_ok() {
            lives += 1;
            let rows = host.rows();
            assert!(rows == acknowledged || interrupted.as_ref() == Some(&rows), "life {lives}");
            (acknowledged, interrupted) = (rows, None);
            while interrupted.is_none() {
                let mut next = acknowledged.clone();
                match random_change(&mut random, &host, &mut next) {
                    Ok(()) => acknowledged = next,
                    Err(_) => interrupted = Some(next),
                }
            }
        }
        disk = host.disk_after_cut();
    }
    assert!(lives > 20 && acknowledged.len() > 20, "{lives} lives, {} rows", acknowledged.len());
}

type Rows = BTreeMap<String, String>;

/// Writes or removes some rows in one transaction, on the host and in `rows`.
fn random_change(random: &mut Xoshiro256PlusPlus, host: &Host, rows: &mut Rows) -> Result<(), ClusterError> {
    let mut transaction = Transaction::new().put("counter/pair", random.random_range(..u32::MAX).to_string());
    for row in 0..random.random_range(..4_u32) {
        let key = format!("incident/{row}{:03}", random.random_range(..20_u32));
        transaction = match random.random_range(..5_u32) {
            0 => transaction.delete(key),
            size => {
                let most = [0, 100, 4_200, 8_000, 32_000][size as usize];
                transaction.put(key, "v".repeat(random.random_range(..most)))
            }
        };
    }
    for operation in &transaction.operations {
        match operation {
            KeyOperation::Put { key, value, .. } => drop(rows.insert(key.clone(), value.clone())),
            KeyOperation::Delete { key } => drop(rows.remove(key)),
        }
    }
    host.coordinator().transact(transaction).map(drop)
}
