//! The real device: io_uring on the file system under the target folder.
#![allow(missing_docs, clippy::cast_possible_truncation, clippy::unwrap_used)] // tests

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::{Written, assert_holds, log_id, payload, random_kind, read_storage, request, small};
use cell_terms::{Csn, RegionKind};
use cell_wal::device::LogWrite;
use cell_wal::folder::{give_back_past_end, list_segments};
use cell_wal::reader::{LogReader, LogStartAt};
use cell_wal::ring::{Ring, RingOptions};
use cell_wal::storage::Access;
use cell_wal::{
    FlushChoice, FlushWay, Flusher, LogDevice, LogEvent, LogOptions, LogRefusal, LogRoot, LogStart, PairLog,
    PairLogEnd, PairReader, Predecessor, ReadOptions, ReadRequest, RealStorage, Space, Storage, WalError,
    record_space,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

struct Real {
    _folder: tempfile::TempDir,
    storage: RealStorage,
    ring: Ring,
    flusher: Option<Arc<Flusher>>,
    log: PairLog,
    written: Written,
}

/// The flush that covers a folder's files; none, said loudly, where nobody knows that one does.
fn flusher(folder: &std::path::Path) -> Option<Arc<Flusher>> {
    match LogRoot::open(folder).unwrap().flush_ground {
        Ok(ground) => {
            Some(Flusher::start(Some(&ground), FlushChoice::new(FlushWay::PerDevice, "a test")).unwrap())
        }
        Err(why) => {
            println!("SKIPPED: one flush for all logs: {why}");
            None
        }
    }
}

/// Sleeps until ring or flush have something.
pub(crate) fn sleep(ring: &Ring, flusher: Option<&Flusher>) {
    let timeout = Timespec { tv_sec: 120, tv_nsec: 0 };
    let descriptors = [Some(ring.wake_fd()), flusher.map(Flusher::wake_fd)];
    let watched = descriptors.iter().flatten().map(|descriptor| PollFd::new(descriptor, PollFlags::IN));
    let ready = poll(&mut watched.collect::<Vec<_>>(), Some(&timeout));
    let is_woken = ready.map_or_else(|errno| errno == rustix::io::Errno::INTR, |ready| ready > 0);
    assert!(is_woken, "nothing woke the worker: {ready:?}");
    ring.clear_wake();
    flusher.into_iter().for_each(Flusher::clear_wake);
}

impl Real {
    fn open(options: LogOptions, ring: RingOptions) -> Real {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Real::open_in(folder, options, ring, None)
    }

    /// As [`Real::open`], with one flush for both logs.
    fn open_flushing(options: LogOptions, ring: RingOptions) -> Option<Real> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let flusher = flusher(folder.path())?;
        Some(Real::open_in(folder, options, ring, Some(flusher)))
    }

    fn open_in(
        folder: tempfile::TempDir,
        options: LogOptions,
        ring: RingOptions,
        flusher: Option<Arc<Flusher>>,
    ) -> Real {
        let storage = RealStorage::open(folder.path()).unwrap();
        let mut ring = Ring::open(&storage, ring).unwrap();
        flusher.iter().for_each(|flusher| ring.share(flusher));
        let start = LogStart { log: log_id(1), predecessor: Predecessor::default(), salt: 99 };
        let log = PairLog::create(start, options, &mut ring);
        let mut real = Real { _folder: folder, storage, ring, flusher, log, written: Written::new() };
        while !real.log.is_open() {
            real.wait();
        }
        real
    }

    /// Sleeps as an idle worker does, until the device has something.
    fn wait(&mut self) {
        self.ring.submit().unwrap();
        let mut events: Vec<LogEvent> = Vec::new();
        self.ring.poll(&mut events);
        if events.is_empty() {
            self.ring.submit().unwrap(); // a flush may be due
            sleep(&self.ring, self.flusher.as_deref());
            self.ring.poll(&mut events);
        }
        for event in events {
            self.log.on_event(event, &mut self.ring).unwrap();
        }
        self.ring.submit().unwrap();
    }

    fn put(&mut self, kind: RegionKind, length: usize) {
        let space = record_space(length);
        let (node, extent) = if kind == RegionKind::Node { (space, 0) } else { (0, space) };
        while let Err(refusal) = self.log.room_for(node, extent, Space::Ordinary) {
            assert!(matches!(refusal, LogRefusal::BatchFull | LogRefusal::Preparing), "{refusal}");
            self.log.submit(&mut self.ring).unwrap();
            self.wait();
        }
        let appended = self.log.append(kind, |csn, bytes| bytes.extend_from_slice(&payload(csn, length)));
        self.written.insert(appended.csn.0, (kind, payload(appended.csn, length)));
    }

    fn sync(&mut self) {
        while self.log.has_unsubmitted() || self.log.is_busy() {
            self.log.submit(&mut self.ring).unwrap();
            self.wait();
        }
    }

    fn read(&self, request: ReadRequest) -> Result<(PairLogEnd, Written), WalError> {
        let storage: Arc<dyn Storage> = Arc::new(self.storage.clone());
        let options = ReadOptions::default();
        read_storage(&storage, ReadRequest { options, ..request })
    }
}

const FEW: RingOptions = RingOptions { entries: 8, buffers: 4, buffer_bytes: 64 << 10 };

#[test]
fn batches_rotations_and_large_records_read_back_from_disk() {
    batches_rotations_and_large_records(Real::open(small(), FEW));
}

#[test]
fn batches_rotations_and_large_records_by_one_flush_read_back_from_disk() {
    let Some(real) = Real::open_flushing(small(), FEW) else { return };
    let flusher = real.flusher.clone().unwrap();
    batches_rotations_and_large_records(real);
    let counts: Vec<f64> = flusher.values().map(|count| count.value).collect();
    assert!(
        counts[0] > 0.0 && counts[1] > counts[0],
        "flushes, and writes that they made durable: {counts:?}"
    );
}

fn batches_rotations_and_large_records(mut real: Real) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for round in 0..600 {
        let length = if round % 50 == 0 { 300_000 } else { random.random_range(..20_000_usize) };
        real.put(random_kind(&mut random), length);
        if round % 7 == 0 {
            real.log.submit(&mut real.ring).unwrap();
        }
    }
    real.sync();
    let csn = real.log.csn_durable();
    assert_eq!(csn, Csn(600));
    assert!(real.log.counts().rotations > 5);
    let (ended, found) = real.read(request(1)).unwrap();
    assert_eq!((ended.cut, ended.tear), (csn, None));
    assert_holds(&found, &real.written, csn);
    real.log.release_below(csn, &mut real.ring);
    real.put(RegionKind::Node, 5);
    real.sync();
    let (ended, _) = real.read(ReadRequest { base: csn, ..request(1) }).unwrap();
    assert_eq!(ended.cut, Csn(601));
    real.ring.close().unwrap();
    let files = list_segments(&real.storage, log_id(1).log(RegionKind::Extent)).unwrap();
    assert!(files.len() <= 4, "{files:?}");
}

#[test]
fn dropped_ring_with_a_batch_in_flight_loses_nothing_that_was_durable() {
    for round in 0..20 {
        let mut real = Real::open(small(), RingOptions::default());
        for _ in 0..round {
            real.put(RegionKind::Node, 100);
            real.put(RegionKind::Extent, 3000);
            real.sync();
        }
        real.put(RegionKind::Extent, 50_000);
        real.put(RegionKind::Node, 50_000);
        real.log.submit(&mut real.ring).unwrap();
        real.ring.submit().unwrap();
        let durable = real.log.csn_durable();
        let Real { _folder, storage, ring, log, written, .. } = real;
        drop(ring);
        let storage: Arc<dyn Storage> = Arc::new(storage);
        let (ended, found) = read_storage(&storage, request(1)).unwrap();
        assert!(ended.cut >= durable && ended.cut <= log.csn_appended());
        assert_holds(&found, &written, ended.cut);
    }
}

#[test]
fn last_frame_is_written_again_beside_its_owners_own_write() {
    let mut real = Real::open(small(), RingOptions::default());
    real.put(RegionKind::Node, 50_000);
    real.sync();
    let storage: Arc<dyn Storage> = Arc::new(real.storage.clone());
    let options = ReadOptions::default();
    let log = log_id(1);
    let (at, kind) = (LogStartAt::Oldest(Csn::ZERO), RegionKind::Node);
    let mut reader = LogReader::open(Arc::clone(&storage), log, kind, at, options).unwrap();
    while reader.advance().unwrap() {}
    let segment = log.log(RegionKind::Node).segment(0);
    let whole = storage.open(&segment.path(), Access::ReadDirect).unwrap();
    for _ in 0..200 {
        let mut buffer = real.ring.buffer(56 << 10);
        let length = whole.read_at(0, &mut buffer.bytes_mut()[..56 << 10]).unwrap();
        real.ring.write(LogWrite { log, kind, segment, offset: 0, length, buffer });
        real.ring.submit().unwrap();
        reader.rewrite_last().unwrap();
        reader.sync().unwrap();
        let mut events: Vec<LogEvent> = Vec::new();
        let written = |events: &[LogEvent]| {
            events.iter().find_map(|event| match event {
                LogEvent::Written { result, .. } => Some(*result),
                LogEvent::Prepared { .. } => None,
            })
        };
        while written(&events).is_none() {
            real.ring.poll(&mut events);
        }
        assert_eq!(written(&events), Some(Ok(())));
    }
    assert_holds(&real.read(request(1)).unwrap().1, &real.written, real.log.csn_durable());
}

#[test]
fn give_back_past_end_leaves_the_frames_and_no_block_behind_them() {
    let mut real = Real::open(small(), RingOptions::default());
    for _ in 0..10 {
        real.put(RegionKind::Node, 3_000);
        real.put(RegionKind::Extent, 9_000);
        real.sync();
    }
    let storage: Arc<dyn Storage> = Arc::new(real.storage.clone());
    let asked = ReadRequest { options: ReadOptions::default(), ..request(1) };
    let mut reader = PairReader::open(&storage, asked).unwrap();
    while reader.next_batch().unwrap().is_some() {}
    let cut = reader.ended().unwrap().cut;
    let ends: Vec<_> = reader.ends().collect();
    assert_eq!((cut, ends.len()), (Csn(20), 2));
    for end in ends {
        give_back_past_end(&*storage, end).unwrap();
        let about = std::fs::metadata(real.storage.absolute(&end.segment.path())).unwrap();
        assert_eq!(about.len(), 256 << 10);
        assert!(about.blocks() * 512 <= end.offset + 4096, "{} blocks, {end}", about.blocks());
    }
    let (ended, found) = real.read(ReadRequest { cut: Some(cut), ..request(1) }).unwrap();
    assert_eq!(ended.cut, cut);
    assert_holds(&found, &real.written, cut);
}

#[test]
fn sealed_idle_log_ends_in_seals() {
    let mut real = Real::open(small(), RingOptions::default());
    real.put(RegionKind::Node, 1);
    real.sync();
    real.log.tick(Duration::ZERO, &mut real.ring).unwrap();
    real.log.tick(Duration::from_secs(1), &mut real.ring).unwrap();
    real.sync();
    assert_eq!(real.log.counts().seals, 1);
    assert_eq!(real.read(request(1)).unwrap().0.frames, 5);
}

#[test]
fn sixteen_mib_value_goes_through_the_default_segments() {
    let mut real = Real::open(LogOptions::default(), RingOptions::default());
    for _ in 0..6 {
        real.put(RegionKind::Extent, 16 << 20);
        real.put(RegionKind::Node, 200);
    }
    real.sync();
    let (ended, found) = real.read(request(1)).unwrap();
    assert_eq!(ended.cut, Csn(12));
    assert_holds(&found, &real.written, ended.cut);
}

/// Eight pairs, each with a ring of its own, as a worker has them; one flush for all.
#[test]
fn many_rings_share_one_flush() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(flusher) = flusher(folder.path()) else { return };
    let storage = RealStorage::open(folder.path()).unwrap();
    let id = |pair| cell_wal::LogId { pair: cell_terms::PairId(pair), epoch: cell_terms::Epoch(1) };
    let mut pairs: Vec<(Ring, PairLog)> = (1..9)
        .map(|pair| {
            let mut ring = Ring::open(&storage, FEW).unwrap();
            ring.share(&flusher);
            let start =
                LogStart { log: id(pair), predecessor: Predecessor::default(), salt: u64::from(pair) };
            let log = PairLog::create(start, small(), &mut ring);
            (ring, log)
        })
        .collect();
    let mut events = Vec::new();
    while pairs.iter().any(|(_, log)| log.csn_durable() < Csn(20)) {
        for (ring, log) in &mut pairs {
            ring.poll(&mut events);
            for event in events.drain(..) {
                log.on_event(event, ring).unwrap();
            }
            if log.is_open() && log.csn_appended() < Csn(20) && !log.is_busy() {
                log.append_sized(RegionKind::Node, 50, |_, bytes| bytes.fill(1));
                log.append_sized(RegionKind::Extent, 500, |_, bytes| bytes.fill(2));
            }
        }
        for (ring, log) in &mut pairs {
            log.submit(ring).unwrap();
        }
        pairs.iter_mut().for_each(|(ring, _)| ring.submit().unwrap());
    }
    for (ring, log) in pairs {
        let storage: Arc<dyn Storage> = Arc::new(storage.clone());
        let (ended, _) = read_storage(&storage, ReadRequest { log: log.id(), ..request(1) }).unwrap();
        assert_eq!(ended.cut, Csn(20));
        ring.close().unwrap();
    }
}

#[test]
fn many_pairs_share_one_ring_with_few_entries() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let storage = RealStorage::open(folder.path()).unwrap();
    let options = RingOptions { entries: 2, buffers: 3, buffer_bytes: 64 << 10 };
    let mut ring = Ring::open(&storage, options).unwrap();
    let id = |pair| cell_wal::LogId { pair: cell_terms::PairId(pair), epoch: cell_terms::Epoch(1) };
    let mut logs: Vec<PairLog> = (1..9)
        .map(|pair| {
            let start =
                LogStart { log: id(pair), predecessor: Predecessor::default(), salt: u64::from(pair) };
            PairLog::create(start, small(), &mut ring)
        })
        .collect();
    let mut events = Vec::new();
    while logs.iter().any(|log| log.csn_durable() < Csn(20)) {
        for log in logs.iter_mut().filter(|log| log.is_open() && log.csn_appended() < Csn(20)) {
            log.append_sized(RegionKind::Node, 50, |_, bytes| bytes.fill(1));
            log.append_sized(RegionKind::Extent, 500, |_, bytes| bytes.fill(2));
        }
        for log in &mut logs {
            log.submit(&mut ring).unwrap();
        }
        ring.submit().unwrap();
        ring.poll(&mut events);
        for event in events.drain(..) {
            let log = &mut logs[event.log().pair.0 as usize - 1];
            log.on_event(event, &mut ring).unwrap();
        }
    }
    for log in &logs {
        let storage: Arc<dyn Storage> = Arc::new(storage.clone());
        let (ended, _) = read_storage(&storage, ReadRequest { log: log.id(), ..request(1) }).unwrap();
        assert_eq!(ended.cut, Csn(20));
    }
    for log in logs {
        ring.submit().unwrap();
        LogDevice::close(&mut ring, log.id());
    }
    ring.close().unwrap();
}

#[test]
fn existing_segment_of_a_new_epoch_is_refused() {
    // Only files that the owner created are written: what is there already belongs to somebody else.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let storage = RealStorage::open(folder.path()).unwrap();
    let segment = log_id(1).log(RegionKind::Node).segment(0);
    cell_wal::storage::create_folders(&storage, &segment.log.folder()).unwrap();
    drop(storage.open(&segment.path(), Access::Create).unwrap());
    let mut ring = Ring::open(&storage, RingOptions::default()).unwrap();
    let start = LogStart { log: log_id(1), predecessor: Predecessor::default(), salt: 1 };
    let mut log = PairLog::create(start, small(), &mut ring);
    let mut events = Vec::new();
    let error = loop {
        ring.poll(&mut events);
        let failed = events.drain(..).find_map(|event| log.on_event(event, &mut ring).err());
        if let Some(error) = failed {
            break error;
        }
        ring.submit().unwrap();
    };
    assert!(matches!(error, WalError::Poisoned { .. }), "{error}");
}

#[test]
fn lock_is_held_by_one_and_free_after_it() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let storage = RealStorage::open(folder.path()).unwrap();
    let held = storage.try_lock("owner.lock").unwrap();
    assert!(held.is_some());
    assert!(storage.try_lock("owner.lock").unwrap().is_none());
    drop(held);
    assert!(storage.try_lock("owner.lock").unwrap().is_some());
}
