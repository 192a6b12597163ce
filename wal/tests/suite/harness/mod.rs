//! A pair's log on a simulated disk, with a memory of what was written and what was acknowledged.
// Each test binary uses its part.
#![allow(dead_code, unreachable_pub, clippy::cast_possible_truncation, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cell_terms::{Csn, Epoch, PairId, RegionKind};
use cell_wal::sim::{SimDevice, SimDisk};
use cell_wal::{
    FlushWay, LogDevice, LogId, LogOptions, LogRefusal, LogStart, PairLog, PairLogEnd, PairReader,
    Predecessor, ReadOptions, ReadRequest, Space, Storage, WalError, record_space,
};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

pub const PAIR: PairId = PairId(5);
pub const SALT: u64 = 0x5a17_5a17_5a17_5a17;

/// How logs are synced.
pub const WAYS: [FlushWay; 2] = [FlushWay::PerWrite, FlushWay::PerDevice];

/// A disk whose logs are synced so.
pub fn disk(seed: u64, way: FlushWay) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.set_log_flush(way);
    disk
}

pub type Written = BTreeMap<u64, (RegionKind, Vec<u8>)>;

/// The least segments that settings allow, and shorter ones before them, so that they fill up.
pub fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 1 << 20,
        first_segment_bytes: 256 << 10,
        batch_bytes: 64 << 10,
        ..LogOptions::default()
    }
}

pub fn log_id(epoch: u32) -> LogId {
    LogId { pair: PAIR, epoch: Epoch(epoch) }
}

/// A payload that names its number.
pub fn payload(csn: Csn, length: usize) -> Vec<u8> {
    (0..length as u64).map(|i| (csn.0.wrapping_mul(31).wrapping_add(i * 7) >> (i % 3)) as u8).collect()
}

pub struct Pair {
    pub disk: SimDisk,
    pub device: SimDevice,
    pub log: PairLog,
    pub written: Written,
    pub acked: Csn,
    /// Base of the last checkpoint, as it were.
    pub base: Csn,
    pub now: Duration,
}

impl Pair {
    /// Creates epoch 1's logs without waiting for them.
    pub fn create(disk: &SimDisk, options: LogOptions) -> Pair {
        Pair::create_after(disk, options, 1, Predecessor::default())
    }

    pub fn create_after(disk: &SimDisk, options: LogOptions, epoch: u32, predecessor: Predecessor) -> Pair {
        Pair::create_in(disk.process(), log_id(epoch), options, predecessor)
    }

    /// Another pair of the same process, whose logs are open.
    pub fn beside(&self, pair: PairId, options: LogOptions) -> Pair {
        let log = LogId { pair, epoch: Epoch(1) };
        let mut other = Pair::create_in(self.disk.clone(), log, options, Predecessor::default());
        other.settle().unwrap();
        assert!(other.log.is_open());
        other
    }

    fn create_in(disk: SimDisk, log: LogId, options: LogOptions, predecessor: Predecessor) -> Pair {
        let mut device = disk.device();
        let start = LogStart { log, predecessor, salt: SALT + u64::from(log.epoch.0) };
        let log = PairLog::create(start, options, &mut device);
        let now = Duration::ZERO;
        Pair { disk, device, log, written: Written::new(), acked: predecessor.cut, base: Csn::ZERO, now }
    }

    /// Creates epoch 1's logs and waits until they are open.
    pub fn open(disk: &SimDisk, options: LogOptions) -> Pair {
        let mut pair = Pair::create(disk, options);
        pair.settle().unwrap();
        assert!(pair.log.is_open());
        pair
    }

    pub fn room(&mut self, kind: RegionKind, length: usize, space: Space) -> Result<(), LogRefusal> {
        let bytes = record_space(length);
        match kind {
            RegionKind::Node => self.log.room_for(bytes, 0, space),
            RegionKind::Extent => self.log.room_for(0, bytes, space),
        }
    }

    /// Appends a record that was asked for.
    pub fn put(&mut self, kind: RegionKind, length: usize) -> Csn {
        let mut bytes = Vec::new();
        let appended = if length.is_multiple_of(2) {
            self.log.append_sized(kind, length, |csn, target| {
                bytes = payload(csn, length);
                target.copy_from_slice(&bytes);
            })
        } else {
            self.log.append(kind, |csn, target| {
                bytes = payload(csn, length);
                target.extend_from_slice(&bytes);
            })
        };
        assert_eq!(self.log.payload(&appended), &bytes[..]);
        self.written.insert(appended.csn.0, (kind, bytes));
        appended.csn
    }

    pub fn submit(&mut self) -> Result<bool, WalError> {
        let submitted = self.log.submit(&mut self.device);
        // A simulated device's submit fails when its process is dead; tests look at that where they mean it.
        let _ = self.device.submit();
        submitted
    }

    /// Takes what the device reports.
    pub fn pump(&mut self) -> Result<(), WalError> {
        let mut events = Vec::new();
        self.device.poll(&mut events);
        for event in events {
            if let Some(csn) = self.log.on_event(event, &mut self.device)? {
                assert!(csn > self.acked && csn == self.log.csn_durable());
                self.acked = csn;
            }
        }
        let _ = self.device.submit();
        Ok(())
    }

    /// Completes and submits until nothing is left to do.
    pub fn settle(&mut self) -> Result<(), WalError> {
        loop {
            self.submit()?;
            if !self.disk.step() {
                return Ok(());
            }
            self.pump()?;
        }
    }

    pub fn tick(&mut self, passed: Duration) -> Result<(), WalError> {
        self.now += passed;
        let ticked = self.log.tick(self.now, &mut self.device);
        let _ = self.device.submit();
        ticked
    }

    /// Waits for the idle seal.
    pub fn seal(&mut self) {
        self.settle().unwrap();
        self.tick(Duration::ZERO).unwrap();
        self.tick(Duration::from_secs(1)).unwrap();
        self.settle().unwrap();
    }
}

/// A pair whose logs both end in the last block of their segments: what is written next, even a seal, goes to
/// a new one. As many small batches as it takes, each with a frame of one block in both logs.
pub fn fill_segments(pair: &mut Pair, segment_bytes: u64) {
    let kinds = [RegionKind::Node, RegionKind::Extent];
    while pair.log.segments().map(|log| log.current_bytes) != [segment_bytes - 4096; 2] {
        let rotations = pair.log.counts().rotations;
        kinds.into_iter().for_each(|kind| _ = pair.put(kind, 10));
        pair.settle().unwrap();
        assert_eq!(pair.log.counts().rotations, rotations);
    }
}

pub fn request(epoch: u32) -> ReadRequest {
    let options = ReadOptions { chunk_bytes: 64 << 10, ahead: false };
    ReadRequest { log: log_id(epoch), base: Csn::ZERO, cut: None, required: Csn::ZERO, options }
}

/// Reads a pair's epoch as recovery does.
pub fn read(disk: &SimDisk, request: ReadRequest) -> Result<(PairLogEnd, Written), WalError> {
    let storage: Arc<dyn Storage> = Arc::new(disk.process());
    read_storage(&storage, request)
}

pub fn read_storage(
    storage: &Arc<dyn Storage>,
    request: ReadRequest,
) -> Result<(PairLogEnd, Written), WalError> {
    let mut reader = PairReader::open(storage, request)?;
    let mut found = Written::new();
    while let Some(batch) = reader.next_batch()? {
        for (kind, record) in batch.records() {
            assert!(found.insert(record.csn.0, (kind, record.payload.to_vec())).is_none());
        }
    }
    let ended = *reader.ended().unwrap();
    reader.rewrite_and_sync()?;
    assert!(reader.next_batch()?.is_none());
    Ok((ended, found))
}

/// Everything up to the cut is there and is what was written.
pub fn assert_holds(found: &Written, written: &Written, cut: Csn) {
    let expected: Written = written.range(..=cut.0).map(|(csn, record)| (*csn, record.clone())).collect();
    assert!(*found == expected, "read back {} records, expected {}", found.len(), expected.len());
}

pub fn random_kind(random: &mut Xoshiro256PlusPlus) -> RegionKind {
    if random.random() { RegionKind::Node } else { RegionKind::Extent }
}
