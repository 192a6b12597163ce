//! The embedded coordinator on a disk that others fill, and on one that fails.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use cell_cluster::local_socket::own_user;
use cell_cluster::{
    ClusterError, Coordinator, CoordinatorRefusal, CoordinatorServer, Embedded, ManualClock, Remote,
    Sessions, Transaction,
};
use cell_durable::{PowerCutSyncer, Syncer, SystemSyncer};
use cell_terms::Incarnation;
use tempfile::TempDir;

const FOLDER: &str = "coordinator";
const SECOND: u64 = 1_000_000_000;

/// A disk that keeps no more room for anybody while it is full, fails on request, and loses power.
struct Disk {
    power: PowerCutSyncer,
    full: AtomicBool,
    /// How the next sync of a file fails.
    fails: Mutex<Option<ErrorKind>>,
    /// Power goes at the sync after so many.
    left: AtomicU32,
}

impl Disk {
    fn burn(&self) -> io::Result<()> {
        let less = |left: u32| if left == u32::MAX { Some(left) } else { left.checked_sub(1) };
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        left.map(drop).map_err(|_| ErrorKind::Other.into())
    }
}

impl Syncer for Disk {
    fn sync_file(&self, file: &File) -> io::Result<()> {
        self.burn()?;
        match self.fails.lock().unwrap().take() {
            Some(kind) => Err(kind.into()),
            None => self.power.sync_file(file),
        }
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.burn()?;
        self.power.sync_folder(folder)
    }

    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        if self.full.load(Ordering::SeqCst) {
            return Err(ErrorKind::StorageFull.into());
        }
        SystemSyncer.allocate(file, bytes)
    }
}

/// A coordinator on such a disk.
struct Host {
    folder: TempDir,
    disk: Arc<Disk>,
    clock: Arc<ManualClock>,
    coordinator: Arc<Embedded>,
}

impl Host {
    fn start() -> Host {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(Disk {
            power: PowerCutSyncer::new(folder.path()).unwrap(),
            full: AtomicBool::new(false),
            fails: Mutex::new(None),
            left: AtomicU32::new(u32::MAX),
        });
        let clock = Arc::new(ManualClock::new(5));
        let opened = Embedded::open_with(&folder.path().join(FOLDER), clock.clone(), disk.clone());
        Host { folder, disk, clock, coordinator: Arc::new(opened.unwrap()) }
    }

    fn grant(&self) -> Incarnation {
        self.coordinator.grant(60_000).unwrap().lease
    }

    fn put(&self, key: &str, value: &str) -> Result<(), ClusterError> {
        self.coordinator.transact(Transaction::new().put(key, value)).map(drop)
    }

    /// Others take all that there is, and what was kept in the reserve with it.
    fn fill(&self) {
        self.disk.full.store(true, Ordering::SeqCst);
        let reserve = self.folder.path().join(FOLDER).join("reserve");
        OpenOptions::new().write(true).open(reserve).unwrap().set_len(0).unwrap();
    }

    /// Others leave room again, and some time passes.
    fn make_room(&self) {
        self.disk.full.store(false, Ordering::SeqCst);
        self.clock.advance(SECOND);
    }

    fn tables(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join(FOLDER)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("table")).collect()
    }
}

fn is_no_room<T>(result: &Result<T, ClusterError>) -> bool {
    matches!(result, Err(ClusterError::Refused(CoordinatorRefusal::NoRoom)))
}

#[test]
fn disk_full_sessions_are_refused_first_and_opened_again_with_room() {
    let host = Host::start();
    let keeper = host.grant();
    let sessions = Sessions::new(host.coordinator.clone());
    let early = sessions.open(keeper).unwrap();
    host.fill();
    let refused = sessions.open(keeper);
    assert!(is_no_room(&refused) && refused.unwrap_err().is_transient());
    // What nodes live by goes on out of the reserve, and so does what gives room back.
    host.coordinator.keep_alive(keeper).unwrap();
    let other = host.grant();
    host.put("pair/1", "claimed").unwrap();
    sessions.adopt(early, other).unwrap();
    sessions.end(early).unwrap();
    host.make_room();
    assert!(sessions.open(keeper).unwrap() > early);
}

#[test]
fn disk_full_past_the_reserve_changes_are_refused_and_leases_renewed() {
    let host = Host::start();
    let (lease, ends) = (host.grant(), host.coordinator.grant(1_000).unwrap().lease);
    host.fill();
    let mut rows = 0;
    let refused = loop {
        match host.put(&format!("k/{rows}"), &"x".repeat(30_000)) {
            Ok(()) => rows += 1,
            Err(error) => break error,
        }
        assert!(rows < 2_000, "it is never full");
    };
    assert!(is_no_room(&Err::<(), _>(refused)), "nothing was tried that could not be done");
    assert!(rows > 0);
    host.clock.advance(2 * SECOND);
    host.coordinator.keep_alive(lease).unwrap();
    assert_eq!(host.coordinator.list("k/").unwrap().entries.len(), rows);
    assert!(is_no_room(&host.coordinator.grant(1_000)));
    assert!(is_no_room(&host.coordinator.keep_alive(ends)), "it has run out");
    assert_eq!(host.coordinator.remaining_ns(ends).unwrap(), Some(0), "which is not written down yet");
    host.make_room();
    host.put("k/after", "").unwrap();
    assert_eq!(host.coordinator.remaining_ns(ends).unwrap(), None);
    assert!(host.coordinator.remaining_ns(lease).unwrap().is_some());
    assert_eq!(host.coordinator.list("k/").unwrap().entries.len(), rows + 1);
}

#[test]
fn write_that_finds_no_room_is_unknown_and_the_table_is_built_anew() {
    let host = Host::start();
    let lease = host.grant();
    host.put("k/before", "1").unwrap();
    *host.disk.fails.lock().unwrap() = Some(ErrorKind::StorageFull);
    assert!(matches!(host.put("k/unknown", ""), Err(ClusterError::OutcomeUnknown(_))));
    host.coordinator.keep_alive(lease).unwrap();
    // No room for a new one either, for a second.
    *host.disk.fails.lock().unwrap() = Some(ErrorKind::QuotaExceeded);
    for _ in 0..3 {
        assert!(is_no_room(&host.put("k/after", "")));
        assert_eq!(host.coordinator.read("k/before").unwrap().unwrap().value, "1");
    }
    host.make_room();
    host.put("k/after", "").unwrap();
    let keys: Vec<_> = host.coordinator.list("k/").unwrap().entries.into_iter().map(|of| of.key).collect();
    assert_eq!(keys, ["k/after", "k/before"]);
    assert_eq!(host.tables(), ["table-3"], "those that failed are gone");
    let generation = host.coordinator.generation().unwrap();
    let Host { folder, coordinator, .. } = host;
    drop(coordinator);
    // What has failed for sled is let go of with its process: the next one finds the table that counts.
    let after = tempfile::tempdir().unwrap();
    copy(&folder.path().join(FOLDER), &after.path().join(FOLDER));
    let again = Embedded::open_with_clock(&after.path().join(FOLDER), Arc::new(ManualClock::new(9))).unwrap();
    assert_eq!(again.generation().unwrap(), generation);
    assert_eq!(again.list("k/").unwrap().entries.len(), 2);
    assert!(again.remaining_ns(lease).unwrap().is_some());
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match from.is_dir() {
            true => copy(&from, &to),
            false => std::fs::write(to, std::fs::read(from).unwrap()).unwrap(),
        }
    }
}

#[test]
fn disk_that_fails_stops_the_coordinator_and_says_so_once() {
    let host = Host::start();
    let lease = host.grant();
    let (sender, stops) = mpsc::channel();
    host.coordinator.on_stop(move |error| sender.send(format!("{error:?}")).unwrap());
    let path = host.folder.path().join("coordinator.socket");
    let server = CoordinatorServer::start(host.coordinator.clone(), &path, |_| Ok(own_user())).unwrap();
    let remote = Remote::new(path, std::time::Duration::from_secs(60));
    *host.disk.fails.lock().unwrap() = Some(io::Error::from_raw_os_error(5).kind());
    let write = || remote.transact(Transaction::new().put("k", ""));
    assert!(matches!(write(), Err(ClusterError::OutcomeUnknown(_))));
    assert!(write().is_err() && host.coordinator.keep_alive(lease).is_err());
    drop((server, host));
    assert_eq!(stops.iter().count(), 1);
}

/// Power goes at the sync after so many, while a table is built anew. Whether it had to, and whether all that
/// was acknowledged is there afterwards.
fn cut_while_building(syncs: u32) -> (bool, bool) {
    let host = Host::start();
    for row in 0..20 {
        host.put(&format!("k/{row:02}"), &"v".repeat(3_000)).unwrap();
    }
    let mut acknowledged = host.coordinator.list("k/").unwrap().entries;
    *host.disk.fails.lock().unwrap() = Some(ErrorKind::StorageFull);
    host.put("unknown", "").unwrap_err();
    host.disk.left.store(syncs, Ordering::SeqCst);
    let built = host.put("k/after", "").is_ok();
    if built {
        acknowledged.push(host.coordinator.read("k/after").unwrap().unwrap());
    }
    let after = tempfile::tempdir().unwrap();
    host.disk.power.restore(after.path()).unwrap();
    let Ok(cut) = Embedded::open_with_clock(&after.path().join(FOLDER), Arc::new(ManualClock::new(1))) else {
        return (built, false);
    };
    let found = cut.list("k/").unwrap().entries;
    (built, acknowledged.iter().all(|entry| found.contains(entry)))
}

/// How many syncs it took, and whether any cut lost what was acknowledged.
fn cuts_while_building() -> (u32, bool) {
    let mut lost = false;
    for syncs in 0..100 {
        let (built, clean) = cut_while_building(syncs);
        lost |= !clean;
        if built {
            return (syncs, lost);
        }
    }
    panic!("it is never built")
}

#[test]
fn power_cuts_while_the_table_is_built_anew_lose_nothing_acknowledged() {
    let (syncs, lost) = cuts_while_building();
    assert!(!lost && syncs > 5, "{syncs}");
}

#[test]
#[cfg(debug_assertions)]
fn mutant_rebuilt_unsynced_is_caught() {
    use cell_terms::mutant::{Mutant, in_own_process, plant};
    in_own_process(|| {
        plant(Some(Mutant::RebuiltUnsynced));
        let (_, lost) = cuts_while_building();
        plant(None);
        assert!(lost);
        println!("mutant {} caught by cell-cluster's power cut", Mutant::RebuiltUnsynced.name());
    });
}
