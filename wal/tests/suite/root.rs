//! A log root that is unmounted while it is used, or has another one in its place. Nothing is made there, and
//! nothing of another's goes away; once it is back, work goes on.
#![allow(missing_docs, clippy::unwrap_used)] // tests

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use crate::harness::{PAIR, Written, assert_holds, log_id, payload, read_storage, request, small};
use crate::ring::sleep;
use cell_terms::{Csn, Epoch, RegionKind};
use cell_wal::device::PrepareSegment;
use cell_wal::image::{ImageHeader, ImageWriter};
use cell_wal::ring::{Ring, RingOptions};
use cell_wal::storage::{Access, create_folders};
use cell_wal::{
    Errno, LogDevice, LogEvent, LogRefusal, LogRoot, LogStart, PairLog, Predecessor, RealStorage, Space,
    Storage, StorageError, WalError, record_space,
};

const FEW: RingOptions = RingOptions { entries: 8, buffers: 4, buffer_bytes: 64 << 10 };
const IMAGE: &str = "pair-00000005/image";

/// A log root that can be taken from its path. By a path that is the same as a mount that comes and goes.
struct Mount {
    _folder: tempfile::TempDir,
    path: PathBuf,
    away: PathBuf,
    storage: RealStorage,
}

impl Mount {
    fn new() -> Mount {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let [path, away] = ["log", "away"].map(|name| folder.path().join(name));
        let storage = LogRoot::open(&path).unwrap().storage;
        Mount { _folder: folder, path, away, storage }
    }

    /// As `umount -l`: the folder below it can be written.
    fn unmount(&self) {
        fs::rename(&self.path, &self.away).unwrap();
        fs::create_dir(&self.path).unwrap();
    }

    /// Another cluster's is mounted in its place.
    fn replace(&self) {
        self.unmount();
        LogRoot::open(&self.path).unwrap();
    }

    fn mount(&self) {
        fs::remove_dir_all(&self.path).unwrap();
        fs::rename(&self.away, &self.path).unwrap();
    }

    /// What is in the folder that has the log root's path.
    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.path).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn is_away<T>(result: Result<T, StorageError>) -> bool {
    result.is_err_and(|error| error.errno == Errno::ESTALE)
}

/// Whether all that is done after another folder has come to the path is done in the one that was opened.
pub(crate) fn work_stays_in_the_opened_folder() -> bool {
    let mount = Mount::new();
    let storage = &mount.storage;
    drop(storage.open("old", Access::Create).unwrap());
    mount.unmount();
    fs::write(mount.path.join("old"), "another's").unwrap();
    drop(storage.open("new", Access::Create).unwrap());
    storage.create_folder("folder").unwrap();
    storage.sync_folder("").unwrap();
    storage.rename("new", "renamed").unwrap();
    storage.unlink("old").unwrap();
    let mut names = storage.list("").unwrap();
    names.sort();
    names == ["folder", "log-root-id", "renamed"] && mount.names() == ["old"]
}

/// Whether no segment is made ready while the log root is not there, and some are before and afterwards.
pub(crate) fn segments_ask() -> bool {
    let mount = Mount::new();
    let mut ring = Ring::open(&mount.storage, FEW).unwrap();
    let mut results = vec![prepare(&mut ring, 0)];
    mount.unmount();
    results.push(prepare(&mut ring, 1));
    mount.mount();
    results.push(prepare(&mut ring, 2));
    mount.replace();
    results.push(prepare(&mut ring, 3));
    ring.close().unwrap();
    results == [Ok(()), Err(Errno::ESTALE), Ok(()), Err(Errno::ESTALE)] && mount.names() == ["log-root-id"]
}

fn prepare(ring: &mut Ring, generation: u32) -> Result<(), Errno> {
    prepare_out_of(ring, generation, None)
}

/// Out of a released segment, if one is given.
fn prepare_out_of(ring: &mut Ring, generation: u32, released: Option<u32>) -> Result<(), Errno> {
    let (log, kind) = (log_id(1), RegionKind::Node);
    let segment = |generation| log.log(kind).segment(generation);
    let (segment, recycle) = (segment(generation), released.map(segment));
    ring.prepare(PrepareSegment { log, kind, segment, bytes: 64 << 10, recycle });
    let mut events = Vec::new();
    loop {
        ring.poll(&mut events);
        match events.pop() {
            Some(LogEvent::Prepared { result, .. }) => return result,
            Some(event) => panic!("{event:?}"),
            None => sleep(ring, None),
        }
    }
}

/// Whether no folder is made and no image started while the log root is not there.
pub(crate) fn folders_and_images_ask() -> bool {
    let mount = Mount::new();
    let storage: Arc<dyn Storage> = Arc::new(mount.storage.clone());
    let folder = log_id(1).log(RegionKind::Node).folder();
    let begin_image = || {
        let header = ImageHeader { pair: PAIR, epoch: Epoch(1), base: Csn(1), geometry: Vec::new() };
        match ImageWriter::create(Arc::clone(&storage), IMAGE, &header, 1) {
            Ok(image) => {
                image.abandon().unwrap();
                Ok(())
            }
            Err(WalError::Storage(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    };
    mount.unmount();
    let mut asked = is_away(create_folders(&*storage, &folder)) && is_away(begin_image());
    mount.mount();
    mount.replace();
    asked &= is_away(create_folders(&*storage, &folder)) && is_away(begin_image());
    mount.mount();
    asked &= mount.names() == ["log-root-id"];
    create_folders(&*storage, &folder).unwrap();
    begin_image().unwrap();
    asked
}

#[test]
fn work_after_an_unmount_is_done_in_the_folder_that_was_opened() {
    assert!(work_stays_in_the_opened_folder());
}

#[test]
fn segments_are_not_made_without_the_log_root_and_are_once_it_is_back() {
    assert!(segments_ask());
}

/// Nobody named it any more, and it took its room until the epoch's logs went.
#[test]
fn released_segment_goes_where_the_next_one_is_not_made_for_want_of_the_log_root() {
    let mount = Mount::new();
    let mut ring = Ring::open(&mount.storage, FEW).unwrap();
    prepare(&mut ring, 0).unwrap();
    mount.unmount();
    assert_eq!(prepare_out_of(&mut ring, 1, Some(0)), Err(Errno::ESTALE));
    ring.close().unwrap();
    let names = mount.storage.list(&log_id(1).log(RegionKind::Node).folder()).unwrap();
    assert!(names.is_empty(), "{names:?}");
}

#[test]
fn folders_and_images_are_not_created_without_the_log_root() {
    assert!(folders_and_images_ask());
}

/// The descriptor of a mount that has died fails for ever, also once the log root is mounted anew.
#[test]
fn log_root_that_is_mounted_anew_is_worked_in_from_the_next_look_on() {
    let mount = Mount::new();
    mount.unmount();
    fs::copy(mount.away.join("log-root-id"), mount.path.join("log-root-id")).unwrap();
    let clone = mount.storage.clone();
    mount.storage.check_root().unwrap();
    drop(clone.open("new", Access::Create).unwrap());
    assert_eq!(mount.names(), ["log-root-id", "new"]);
    assert!(!mount.away.join("new").exists());
}

#[test]
fn error_of_a_log_root_that_is_away_says_what_why_and_what_next() {
    let mount = Mount::new();
    mount.unmount();
    let text = mount.storage.check_root().unwrap_err().to_string();
    let parts =
        ["`log-root-id`", "stale file handle", "may have been unmounted", "another one", "is mounted"];
    for part in parts {
        assert!(text.contains(part), "{text}");
    }
}

/// What was acknowledged in the folder below the mount point was found by nobody.
#[test]
fn log_whose_root_is_unmounted_ends_with_its_next_segment_and_keeps_what_was_acknowledged() {
    const SMALL: usize = 100;
    /// Of which the first segment takes four.
    const LENGTH: usize = 50_000;
    /// Fits a spare, and not the rest of the first segment.
    const LARGE: usize = 200_000;
    let mount = Mount::new();
    let mut ring = Ring::open(&mount.storage, FEW).unwrap();
    let start = LogStart { log: log_id(1), predecessor: Predecessor::default(), salt: 99 };
    let mut log = PairLog::create(start, small(), &mut ring);
    let mut written = Written::new();
    while log.room_for(SMALL, SMALL, Space::Ordinary).is_err() {
        turn(&mut log, &mut ring).unwrap();
    }
    // With a record that no checkpoint covers a log has to have both of its spares before it rotates.
    append(&mut log, &mut written, RegionKind::Node, SMALL / 2);
    append(&mut log, &mut written, RegionKind::Extent, SMALL / 2);
    log.submit(&mut ring).unwrap();
    // More than a quarter of the first segment: the second spare is asked for.
    for _ in 0..2 {
        turns(&mut log, &mut ring).unwrap();
        append(&mut log, &mut written, RegionKind::Extent, LENGTH);
        log.submit(&mut ring).unwrap();
    }
    // Until it is there, and nothing is asked for.
    while log.is_busy() || !log.has_space_for(0, record_space(LARGE), Space::Ordinary) {
        turn(&mut log, &mut ring).unwrap();
    }
    mount.unmount();
    let error = loop {
        // Far more than what can be prepared by now.
        assert!(log.csn_appended() < Csn(200), "it has got segments elsewhere");
        match log.room_for(0, record_space(LENGTH), Space::Ordinary) {
            Ok(()) => append(&mut log, &mut written, RegionKind::Extent, LENGTH),
            Err(refusal) => assert_eq!(refusal, LogRefusal::Preparing),
        }
        log.submit(&mut ring).unwrap();
        if let Err(error) = turns(&mut log, &mut ring) {
            break error;
        }
    };
    assert!(matches!(error, WalError::Poisoned { errno: Errno::ESTALE, .. }), "{error}");
    assert_eq!(log.room_for(0, 1, Space::Reserve), Err(LogRefusal::Poisoned));
    // The small ones, those that the first segment takes, and one in a spare.
    assert!(log.csn_durable() > Csn(2 + 4), "what is open is on the log root, unmounted or not");
    assert!(mount.names().is_empty(), "{:?}", mount.names());
    mount.mount();
    let storage: Arc<dyn Storage> = Arc::new(mount.storage.clone());
    let (ended, found) = read_storage(&storage, request(1)).unwrap();
    assert!(ended.cut >= log.csn_durable() && ended.cut <= log.csn_appended());
    assert_holds(&found, &written, ended.cut);
}

/// Appends a record that names its number.
fn append(log: &mut PairLog, written: &mut Written, kind: RegionKind, length: usize) {
    let bytes = |csn| payload(csn, length);
    let appended = log.append(kind, |csn, record| record.extend_from_slice(&bytes(csn)));
    written.insert(appended.csn.0, (kind, bytes(appended.csn)));
}

/// Sleeps until the device has something, and takes it.
fn turn(log: &mut PairLog, ring: &mut Ring) -> Result<(), WalError> {
    ring.submit()?;
    let mut events = Vec::new();
    ring.poll(&mut events);
    if events.is_empty() {
        sleep(ring, None);
        ring.poll(&mut events);
    }
    for event in events {
        log.on_event(event, ring)?;
    }
    ring.submit()
}

/// At least one turn, and as many as it takes until nothing is in flight.
fn turns(log: &mut PairLog, ring: &mut Ring) -> Result<(), WalError> {
    turn(log, ring)?;
    while log.is_busy() {
        turn(log, ring)?;
    }
    Ok(())
}
