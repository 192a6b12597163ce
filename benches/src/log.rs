//! `log`: what a pair's log costs on this disk: the latency of a commit beside a raw loop of the same bytes,
//! group commit, writing and reading in one go.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cell_terms::{Csn, Epoch, PairId, RegionKind};
use cell_wal::frame::frame_bytes;
use cell_wal::ring::{Ring, RingOptions};
use cell_wal::{
    LogDevice, LogEvent, LogId, LogOptions, LogStart, PairLog, PairReader, Predecessor, ReadOptions,
    ReadRequest, RealStorage, Space, Storage,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::disk::{self, RawLoop};
use crate::figure::{Figure, Report};
use crate::options::{BenchError, Options};
use crate::processor::own_time_ns;
use crate::put::Scratch;
use crate::times::Times;

const RING: RingOptions = RingOptions { entries: 128, buffers: 8, buffer_bytes: 256 << 10 };
const LOG: LogId = LogId { pair: PairId(1), epoch: Epoch(1) };
/// What is measured in a round.
const SLICE: Duration = Duration::from_millis(100);
/// The spare segment is ready by then: none is zero-filled while a latency is taken, until a quarter of the
/// first one is used.
const SPARES_READY: Duration = Duration::from_millis(500);
/// Bytes of the records of a commit: a frame as small and as large as can be.
const SMALL: usize = 3_900;
const LARGE: usize = (128 << 10) - 200;
const COMMITS: [[usize; 2]; 4] = [[0, SMALL], [SMALL, SMALL], [0, LARGE], [LARGE, LARGE]];
/// Those who write together, and the records of one write, with what the log adds.
const WRITERS: [u64; 5] = [1, 16, 64, 256, 1_024];
const NODE_RECORD: usize = 60;
const EXTENT_RECORD: usize = 100;
const LARGE_RECORD: usize = 1_024;
const ADDED: usize = 12;
/// Streamed for each entry.
const ENTRY_BYTES: u64 = 200;

/// What a worker does while it waits for the disk. A spinning one keeps its processor from the kernel threads
/// that complete data-sync writes there; on few processors that costs a scheduler tick a commit.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    Spin,
    Yield,
    Sleep,
}

/// Runs the bench.
///
/// # Errors
/// A disk that failed.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let folder = Scratch::new(options.dir.as_deref())?;
    let time = options.lasting(SLICE) * u32::from(options.rounds);
    let mut raw = RawLoop::new(&folder.0.join("raw"), options)?;
    let limits: Vec<Times> = COMMITS
        .iter()
        .map(|bytes| Times::during(time, || raw.run(frames(*bytes), 1).map(drop)))
        .collect::<Result<_, _>>()?;
    raw.close()?;
    for waiting in [Waiting::Sleep, Waiting::Yield, Waiting::Spin] {
        for (bytes, limit) in COMMITS.into_iter().zip(&limits) {
            commits(&folder.0, waiting, bytes, (time, limit), report)?;
        }
        for writers in WRITERS {
            group(&folder.0, waiting, writers, time, report)?;
        }
    }
    stream(&folder.0, options.entries * ENTRY_BYTES, report)
}

struct Bench {
    waiting: Waiting,
    ring: Ring,
    log: PairLog,
    events: Vec<LogEvent>,
}

impl Bench {
    /// A new log in a folder of its own.
    fn open(folder: &Path, waiting: Waiting) -> Result<Bench, BenchError> {
        let mut ring = Ring::open(&RealStorage::open(folder)?, RING)?;
        let start = LogStart { log: LOG, predecessor: Predecessor::default(), salt: 1 };
        let options = LogOptions::default();
        // As those of a log that has been written for long.
        let options = LogOptions { first_segment_bytes: options.segment_bytes, ..options };
        let log = PairLog::create(start, options, &mut ring);
        let mut bench = Bench { waiting, ring, log, events: Vec::new() };
        while !bench.log.is_open() {
            bench.poll()?;
        }
        Ok(bench)
    }

    /// Whether something has become durable.
    fn poll(&mut self) -> Result<bool, BenchError> {
        self.ring.submit()?;
        self.ring.poll(&mut self.events);
        let mut durable = false;
        for event in self.events.drain(..) {
            durable |= self.log.on_event(event, &mut self.ring)?.is_some();
        }
        Ok(durable)
    }

    fn append(&mut self, node: usize, extent: usize) {
        for (kind, length) in [(RegionKind::Extent, extent), (RegionKind::Node, node)] {
            if length > 0 {
                self.log.append_sized(kind, length, |csn, bytes| bytes.fill(csn.0.to_le_bytes()[0]));
            }
        }
    }

    fn has_room(&mut self, node: usize, extent: usize) -> bool {
        self.log.room_for(node + ADDED, extent + ADDED, Space::Ordinary).is_ok()
    }

    /// Writes a batch and waits until it is durable.
    fn commit(&mut self, [node, extent]: [usize; 2]) -> Result<(), BenchError> {
        while !self.has_room(node, extent) {
            self.poll()?;
        }
        self.append(node, extent);
        self.log.submit(&mut self.ring)?;
        while !self.poll()? {
            self.pause()?;
        }
        Ok(())
    }

    /// Lets time pass, as the worker would that has nothing else to do.
    fn pause(&mut self) -> Result<(), BenchError> {
        match self.waiting {
            Waiting::Spin => std::hint::spin_loop(),
            Waiting::Yield => std::thread::yield_now(),
            Waiting::Sleep => {
                let timeout = Timespec { tv_sec: 1, tv_nsec: 0 };
                poll(&mut [PollFd::new(&self.ring.wake_fd(), PollFlags::IN)], Some(&timeout))
                    .map_err(std::io::Error::from)?;
                self.ring.clear_wake();
            }
        }
        Ok(())
    }

    fn close(self, folder: &Path) -> Result<(), BenchError> {
        self.ring.close()?;
        Ok(std::fs::remove_dir_all(folder)?)
    }
}

/// Bytes of the frames of a commit.
fn frames(bytes: [usize; 2]) -> [u64; 2] {
    bytes.map(|bytes| if bytes == 0 { 0 } else { frame_bytes(bytes + 8) as u64 })
}

/// The latency of a commit, beside that of a raw loop of as many bytes.
fn commits(
    folder: &Path,
    waiting: Waiting,
    bytes: [usize; 2],
    (time, limit): (Duration, &Times),
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let folder = folder.join("log");
    let mut bench = Bench::open(&folder, waiting)?;
    disk::pause(SPARES_READY.min(time));
    let times = Times::during(time, || bench.commit(bytes))?;
    let [node, extent] = frames(bytes).map(|bytes| bytes >> 10);
    let name = format!("log/{waiting:?}, commit of {node} + {extent} KiB");
    if !bench.ring.has_registered_buffers() {
        report.note(&format!("{name}: without registered buffers"));
    }
    bench.close(&folder)?;
    times.report(&name, Some(("raw loop of the same bytes, spinning", limit)), report)?;
    Ok(())
}

/// A closed loop of so many writers, each with one operation of two records outstanding.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn group(
    folder: &Path,
    waiting: Waiting,
    writers: u64,
    time: Duration,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let folder = folder.join("group");
    let mut bench = Bench::open(&folder, waiting)?;
    let durable = |bench: &Bench| bench.log.csn_durable().0 / 2;
    let started = Instant::now();
    while started.elapsed() < time || durable(&bench) == 0 {
        let acknowledged = durable(&bench);
        while bench.log.csn_appended().0 / 2 - acknowledged < writers
            && bench.has_room(NODE_RECORD, EXTENT_RECORD)
        {
            bench.append(NODE_RECORD, EXTENT_RECORD);
        }
        bench.log.submit(&mut bench.ring)?;
        if !bench.poll()? {
            bench.pause()?;
        }
        if durable(&bench) > acknowledged {
            bench.log.release_below(bench.log.csn_durable(), &mut bench.ring);
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let (done, counts) = (durable(&bench), bench.log.counts());
    bench.close(&folder)?;
    let name = format!("log/{waiting:?}, {writers} writers of 160 B");
    for (what, unit, count) in [
        ("", "op/s", done),
        (": batches", "1/s", counts.batches),
        (": frames", "bytes/s", counts.frame_bytes),
    ] {
        report.add(Figure::alone(format!("{name}{what}"), unit, count as f64 / seconds))?;
    }
    Ok(())
}

/// Values of 1 KiB one after the other, segments zero-filled ahead; and the same log read.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn stream(folder: &Path, bytes: u64, report: &mut Report<'_>) -> Result<(), BenchError> {
    let folder = folder.join("stream");
    let mut bench = Bench::open(&folder, Waiting::Sleep)?;
    let started = Instant::now();
    while bench.log.counts().payload_bytes < bytes {
        while bench.has_room(2 * NODE_RECORD, 2 * LARGE_RECORD) {
            bench.append(NODE_RECORD, LARGE_RECORD);
        }
        bench.log.submit(&mut bench.ring)?;
        if !bench.poll()? {
            bench.pause()?;
        }
    }
    let rate = bench.log.counts().frame_bytes as f64 / started.elapsed().as_secs_f64();
    report.add(Figure::alone("log/values of 1 KiB: frames written", "bytes/s", rate))?;
    let csn = bench.log.csn_durable();
    bench.ring.close()?;
    read(&folder, "ahead", csn, true, report)?;
    read(&folder, "in the same thread", csn, false, report)
}

#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn read(folder: &Path, how: &str, csn: Csn, ahead: bool, report: &mut Report<'_>) -> Result<(), BenchError> {
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::open(folder)?);
    let options = ReadOptions { ahead, ..ReadOptions::default() };
    let request = ReadRequest { log: LOG, base: Csn::ZERO, cut: None, required: csn, options };
    let (started, started_ns) = (Instant::now(), own_time_ns());
    let mut reader = PairReader::open(&storage, request)?;
    let mut records = 0u64;
    while let Some(batch) = reader.next_batch()? {
        records += batch.records().count() as u64;
    }
    let frames = reader.ended().expect("it was read to its end").frame_bytes as f64;
    let (seconds, processor) = (started.elapsed().as_secs_f64(), (own_time_ns() - started_ns) as f64 / 1e9);
    for (what, unit, figure) in [
        ("frames", "bytes/s", frames / seconds),
        ("frames a second of processor time", "bytes/s", frames / processor),
        ("records", "1/s", records as f64 / seconds),
    ] {
        report.add(Figure::alone(format!("log/read {how}: {what}"), unit, figure))?;
    }
    Ok(())
}
