//! What the log costs here: sync latency beside a raw loop, group commit, reading. `measure [folder]
//! [scale]`; the folder must be on the disk of interest, the scale multiplies the amounts (default 1).
#![allow(clippy::disallowed_methods, reason = "a measuring program owns its clock")]
#![allow(missing_docs, clippy::unwrap_used)] // it may panic
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // figures for people
#![allow(unsafe_code)] // one pwritev2 of the raw loop

use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use cell_terms::{Csn, Epoch, PairId, RegionKind};
use cell_wal::buffer::LogBuffer;
use cell_wal::ring::{Ring, RingOptions};
use cell_wal::{
    LogDevice, LogEvent, LogId, LogOptions, LogStart, PairLog, PairReader, Predecessor, ReadOptions,
    ReadRequest, RealStorage, Space, Storage,
};

const OPTIONS: RingOptions = RingOptions { entries: 128, buffers: 8, buffer_bytes: 256 << 10 };

/// What a worker does while it waits for the disk. A spinning one keeps its processor from the kernel threads
/// that complete data-sync writes there; on few processors that costs a scheduler tick a commit.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    Spin,
    Yield,
    Sleep,
}

struct Bench {
    waiting: Waiting,
    ring: Ring,
    log: PairLog,
    events: Vec<LogEvent>,
    start: Instant,
}

impl Bench {
    fn open(storage: &RealStorage, epoch: u32, waiting: Waiting) -> Bench {
        let mut ring = Ring::open(storage, OPTIONS).unwrap();
        let log = LogId { pair: PairId(1), epoch: Epoch(epoch) };
        let start = LogStart { log, predecessor: Predecessor::default(), salt: 1 };
        let log = PairLog::create(start, LogOptions::default(), &mut ring);
        let mut bench = Bench { waiting, ring, log, events: Vec::new(), start: Instant::now() };
        while !bench.log.is_open() {
            bench.poll();
        }
        // Both spares ready, so that nothing is being zero-filled while a latency is taken.
        std::thread::sleep(Duration::from_millis(500));
        bench
    }

    fn poll(&mut self) -> bool {
        self.ring.submit().unwrap();
        self.ring.poll(&mut self.events);
        let mut durable = false;
        for event in self.events.drain(..) {
            durable |= self.log.on_event(event, &mut self.ring).unwrap().is_some();
        }
        durable
    }

    /// Writes the batch and waits until it is durable.
    fn commit(&mut self) {
        self.log.submit(&mut self.ring).unwrap();
        while !self.poll() {
            self.pause();
        }
    }

    /// Lets time pass, as the worker would that has nothing else to do.
    fn pause(&mut self) {
        match self.waiting {
            Waiting::Spin => std::hint::spin_loop(),
            Waiting::Yield => std::thread::yield_now(),
            Waiting::Sleep => {
                let timeout = Timespec { tv_sec: 1, tv_nsec: 0 };
                poll(&mut [PollFd::new(&self.ring.wake_fd(), PollFlags::IN)], Some(&timeout)).unwrap();
                self.ring.clear_wake();
            }
        }
    }
}

fn percentiles(what: &str, mut samples: Vec<Duration>) {
    samples.sort();
    let at = |part: f64| samples[((samples.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    println!("{what:<58} p50 {:8.1} us   p99 {:8.1} us   ({} samples)", at(0.5), at(0.99), samples.len());
}

fn raw_loop(folder: &Path, bytes: usize, count: usize) {
    let path = folder.join("raw");
    let mut options = std::fs::OpenOptions::new();
    let file =
        options.create(true).truncate(true).write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let buffer = LogBuffer::heap(1 << 20);
    let write = |bytes: usize, offset: usize, flags: i32| {
        let vector = rustix_free_iovec(&buffer, bytes);
        // SAFETY: the vector points to `bytes` bytes of a living buffer that nobody changes; the file is
        // open.
        let written = unsafe { libc::pwritev2(file.as_raw_fd(), &vector, 1, offset as i64, flags) };
        assert_eq!(written, bytes as isize);
    };
    for chunk in 0..64 {
        write(1 << 20, chunk << 20, 0);
    }
    file.sync_all().unwrap();
    let samples = (0..count).map(|i| {
        let begin = Instant::now();
        write(bytes, (i * bytes) % ((64 << 20) - bytes) / 4096 * 4096, libc::RWF_DSYNC);
        begin.elapsed()
    });
    percentiles(&format!("raw loop: pwritev2 O_DIRECT RWF_DSYNC, {} KiB", bytes >> 10), samples.collect());
    std::fs::remove_file(path).unwrap();
}

fn rustix_free_iovec(buffer: &LogBuffer, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: buffer.bytes().as_ptr().cast_mut().cast(), iov_len: bytes }
}

fn commit_latency(
    storage: &RealStorage,
    epoch: u32,
    waiting: Waiting,
    node: usize,
    extent: usize,
    count: usize,
) {
    let mut bench = Bench::open(storage, epoch, waiting);
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        while bench.log.room_for(node + 8, extent + 8, Space::Ordinary).is_err() {
            bench.poll();
        }
        let begin = Instant::now();
        for (kind, length) in [(RegionKind::Extent, extent), (RegionKind::Node, node)] {
            if length > 0 {
                bench.log.append_sized(kind, length, |csn, bytes| bytes.fill(csn.0 as u8));
            }
        }
        bench.commit();
        samples.push(begin.elapsed());
    }
    let kib = |bytes: usize| cell_wal::frame::frame_bytes(bytes + 8) * usize::from(bytes > 0) / 1024;
    percentiles(&format!("commit: node frame {} KiB, extent frame {} KiB", kib(node), kib(extent)), samples);
    println!("{:<58} registered buffers: {}", "", bench.ring.has_registered_buffers());
    bench.ring.close().unwrap();
}

/// A closed loop of `clients` writers, each with one operation of 100 + 60 bytes outstanding.
fn group_commit(storage: &RealStorage, epoch: u32, waiting: Waiting, clients: u64, seconds: f64) {
    let mut bench = Bench::open(storage, epoch, waiting);
    let mut done = 0u64;
    bench.start = Instant::now();
    while bench.start.elapsed().as_secs_f64() < seconds {
        let acked = bench.log.csn_durable().0 / 2;
        while bench.log.csn_appended().0 / 2 - acked < clients {
            if bench.log.room_for(72, 112, Space::Ordinary).is_err() {
                break;
            }
            bench.log.append_sized(RegionKind::Extent, 100, |csn, bytes| bytes.fill(csn.0 as u8));
            bench.log.append_sized(RegionKind::Node, 60, |csn, bytes| bytes.fill(csn.0 as u8));
        }
        bench.log.submit(&mut bench.ring).unwrap();
        if !bench.poll() {
            bench.pause();
        }
        done = bench.log.csn_durable().0 / 2;
        if done > acked {
            bench.log.release_below(bench.log.csn_durable(), &mut bench.ring);
        }
    }
    let elapsed = bench.start.elapsed().as_secs_f64();
    let counts = bench.log.counts();
    println!(
        "group commit, {clients:>5} writers of 160 B: {:>10.0} ops/s, {:>7.0} batches/s, {:>6.1} MB/s",
        done as f64 / elapsed,
        counts.batches as f64 / elapsed,
        counts.frame_bytes as f64 / elapsed / 1e6
    );
    bench.ring.close().unwrap();
}

fn stream(storage: &RealStorage, epoch: u32, waiting: Waiting, bytes: u64) -> Csn {
    let mut bench = Bench::open(storage, epoch, waiting);
    bench.start = Instant::now();
    while bench.log.counts().payload_bytes < bytes {
        while bench.log.room_for(2 * 72, 2 * 1024 + 32, Space::Ordinary).is_ok() {
            bench.log.append_sized(RegionKind::Extent, 1024, |csn, bytes| bytes.fill(csn.0 as u8));
            bench.log.append_sized(RegionKind::Node, 60, |csn, bytes| bytes.fill(csn.0 as u8));
        }
        bench.log.submit(&mut bench.ring).unwrap();
        if !bench.poll() {
            bench.pause();
        }
    }
    let elapsed = bench.start.elapsed().as_secs_f64();
    println!(
        "stream of 1 KiB values: {:.2} GB/s of frames written and synced, segments zero-filled ahead",
        bench.log.counts().frame_bytes as f64 / elapsed / 1e9
    );
    let csn = bench.log.csn_durable();
    bench.ring.close().unwrap();
    csn
}

fn read(what: &str, storage: &RealStorage, epoch: u32, csn: Csn, ahead: bool) {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    let request = ReadRequest {
        log: LogId { pair: PairId(1), epoch: Epoch(epoch) },
        base: Csn::ZERO,
        cut: None,
        required: csn,
        options: ReadOptions { ahead, ..ReadOptions::default() },
    };
    let begin = Instant::now();
    let begin_cpu = cpu_seconds();
    let mut reader = PairReader::open(&storage, request).unwrap();
    let (mut records, mut payload) = (0u64, 0u64);
    while let Some(batch) = reader.next_batch().unwrap() {
        for (_, record) in batch.records() {
            records += 1;
            payload += record.payload.len() as u64;
        }
    }
    let ended = reader.ended().unwrap();
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{what}: {:.2} GB/s of frames, {:.2} GB a CPU second, {:.1} M records/s ({payload} bytes, {:.2} s)",
        ended.frame_bytes as f64 / seconds / 1e9,
        ended.frame_bytes as f64 / (cpu_seconds() - begin_cpu) / 1e9,
        records as f64 / seconds / 1e6,
        seconds
    );
}

/// CPU time of this process: what counts when others use the machine too.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let root = PathBuf::from(arguments.next().unwrap_or_else(|| "/var/tmp".to_owned()));
    let scale: f64 = arguments.next().map_or(1.0, |scale| scale.parse().unwrap());
    let folder = root.join(format!("cell-wal-measure-{}", std::process::id()));
    let storage = RealStorage::open(&folder).unwrap();
    let count = (3000.0 * scale) as usize + 10;
    println!("folder {}", folder.display());
    raw_loop(&folder, 4096, count);
    raw_loop(&folder, 128 << 10, count);
    let mut epoch = 0;
    let mut next = || {
        epoch += 1;
        epoch
    };
    let full = (128 << 10) - 200;
    for waiting in [Waiting::Sleep, Waiting::Yield, Waiting::Spin] {
        println!("a waiting worker: {waiting:?}");
        for (node, extent) in [(0, 3900), (3900, 3900), (0, full), (full, full)] {
            commit_latency(&storage, next(), waiting, node, extent, count);
        }
        for clients in [1, 16, 64, 256, 1024] {
            group_commit(&storage, next(), waiting, clients, 2.0 * scale);
        }
    }
    let streamed = next();
    let csn = stream(&storage, streamed, Waiting::Sleep, (f64::from(1 << 30) * scale) as u64);
    read("read, O_DIRECT, ahead", &storage, streamed, csn, true);
    read("read, O_DIRECT, same thread", &storage, streamed, csn, false);
    std::fs::remove_dir_all(folder).unwrap();
}
