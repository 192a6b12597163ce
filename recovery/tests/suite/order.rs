//! In what order a takeover does what the next recovery relies on, seen through a disk and a coordinator that
//! write down what is asked of them.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::sync::{Arc, Mutex};

use cell_cluster::{
    ClaimReason, ClusterError, Coordinator, CoordinatorRequest, HostId, KeyOperation, PairRow, PairState,
    Response, Sessions, Sim, Table,
};
use cell_terms::Epoch;
use cell_wal::sim::SimDisk;
use cell_wal::storage::{Access, StorageFile};
use cell_wal::{Storage, StorageError};

use crate::owner::{GEOMETRY, Owner, PAIR, start};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Read(String),
    Synced(String),
    FolderSynced(String),
    Cut,
    Published,
}

type Events = Arc<Mutex<Vec<Event>>>;

struct SpyStorage {
    disk: SimDisk,
    events: Events,
}

struct SpyFile {
    file: Box<dyn StorageFile>,
    path: String,
    events: Events,
}

impl StorageFile for SpyFile {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, StorageError> {
        self.events.lock().unwrap().push(Event::Read(self.path.clone()));
        self.file.read_at(offset, bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        self.file.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.file.sync()?;
        self.events.lock().unwrap().push(Event::Synced(self.path.clone()));
        Ok(())
    }

    fn length(&self) -> Result<u64, StorageError> {
        self.file.length()
    }
}

impl Storage for SpyStorage {
    fn open(&self, path: &str, access: Access) -> Result<Box<dyn StorageFile>, StorageError> {
        let file = self.disk.open(path, access)?;
        Ok(Box::new(SpyFile { file, path: path.to_owned(), events: Arc::clone(&self.events) }))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, StorageError> {
        self.disk.list(folder)
    }

    fn create_folder(&self, folder: &str) -> Result<(), StorageError> {
        self.disk.create_folder(folder)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        self.disk.rename(from, to)
    }

    fn unlink(&self, path: &str) -> Result<(), StorageError> {
        self.disk.unlink(path)
    }

    fn remove_folder(&self, folder: &str) -> Result<(), StorageError> {
        self.disk.remove_folder(folder)
    }

    fn sync_folder(&self, folder: &str) -> Result<(), StorageError> {
        self.disk.sync_folder(folder)?;
        self.events.lock().unwrap().push(Event::FolderSynced(folder.to_owned()));
        Ok(())
    }
}

struct SpyCoordinator {
    inner: Arc<dyn Coordinator>,
    disk: SimDisk,
    events: Events,
}

impl Coordinator for SpyCoordinator {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        if let CoordinatorRequest::Transact(transaction) = request {
            for operation in &transaction.operations {
                let KeyOperation::Put { key, value, .. } = operation else { continue };
                if key.starts_with("pair/") {
                    self.row(&serde_json::from_str(value).unwrap());
                }
            }
        }
        self.inner.call(request)
    }
}

impl SpyCoordinator {
    fn row(&self, row: &PairRow) {
        let mut events = self.events.lock().unwrap();
        if row.state == PairState::Recovering && row.epochs_needed().any(|old| old.cut.is_some()) {
            events.push(Event::Cut);
        }
        if row.state == PairState::Serving && row.epoch > Epoch(1) {
            // The next recovery expects both of the new epoch's logs now, even if the power fails at once.
            let fork = self.disk.fork(1);
            fork.power_cut(cell_wal::sim::PowerCut::CLEAN);
            let after = fork.process();
            for region in [row.node_region, row.extent_region] {
                let log = cell_wal::segment::LogName { region, epoch: row.epoch };
                let file = after.open(&log.segment(0).path(), Access::Read).expect("the new log is there");
                let mut first = [0; 8];
                file.read_at(0, &mut first).unwrap();
                assert_ne!(first, [0; 8], "with its opening frame");
            }
            events.push(Event::Published);
        }
    }
}

/// Spare segments are looked at too, but hold nothing that a cut relies on.
fn has_frames(disk: &SimDisk, path: &str) -> bool {
    disk.content(path).is_some_and(|content| content.iter().any(|byte| *byte != 0))
}

#[test]
pub(crate) fn takeover_syncs_what_it_read_then_records_the_cut_then_opens_new_logs_then_publishes() {
    let (disk, sim) = (SimDisk::new(3), Sim::new(7));
    let first = start(&disk, &sim, 1);
    let session = first.environment.sessions.open(first.lease).unwrap();
    let mut owner = Owner::publish(&first, first.restore(first.create(GEOMETRY)).unwrap(), session).unwrap();
    for key in 0..500_u32 {
        owner.put(&key.to_be_bytes(), &[7; 3000]);
        owner.settle();
    }
    first.disk.kill();

    let events = Events::default();
    let mut second = start(&disk, &sim, 1);
    let spy: Arc<dyn Coordinator> = Arc::new(SpyCoordinator {
        inner: Arc::new(second.link.clone()),
        disk: second.disk.clone(),
        events: Arc::clone(&events),
    });
    second.environment.table = Table::new(Arc::clone(&spy)).on_host(Some(HostId::new(1, 1)));
    second.environment.sessions = Sessions::new(spy);
    second.environment.storage =
        Arc::new(SpyStorage { disk: second.disk.clone(), events: Arc::clone(&events) });
    let restore = second.claim(PAIR, ClaimReason::HostLock).unwrap();
    Owner::publish(&second, restore, session).unwrap();

    let events = events.lock().unwrap();
    let at = |event: &Event| events.iter().position(|seen| seen == event);
    let last = |event: &Event| events.iter().rposition(|seen| seen == event);
    let cut = at(&Event::Cut).expect("the cut is recorded");
    assert!(cut < at(&Event::Published).expect("the pair is published"));
    let mut read: Vec<String> = events[..cut]
        .iter()
        .filter_map(|event| if let Event::Read(path) = event { Some(path.clone()) } else { None })
        .filter(|path| path.contains("/segment-") && has_frames(&disk, path))
        .collect();
    read.sort_unstable();
    read.dedup();
    assert!(read.len() > 2, "several segments: {read:?}");
    for path in read {
        let synced = last(&Event::Synced(path.clone())).expect("what was read is synced");
        // Only what is read before the cut is relied on; afterwards spares are looked at to be removed.
        let relied_on = events[..cut].iter().rposition(|seen| *seen == Event::Read(path.clone()));
        assert!(relied_on.unwrap() < synced, "{path} is synced after its last read");
        assert!(synced < cut, "{path} is synced before the cut is recorded");
        let folder = path.rsplit_once('/').unwrap().0.to_owned();
        assert!(last(&Event::FolderSynced(folder)).unwrap() < cut);
    }
}
