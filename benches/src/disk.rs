//! What the disk allows: a raw loop that syncs equal batches to two files, on the same ring as the logs but
//! without anything around it, and the sequential bandwidth that fio measures.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cell_terms::{Epoch, PairId, RegionKind};
use cell_tests::reaper;
use cell_wal::device::{LogWrite, PrepareSegment};
use cell_wal::ring::{Ring, RingOptions};
use cell_wal::{Errno, LogDevice, LogEvent, LogId, RealStorage, SegmentName};

use crate::options::{BenchError, Options};

/// A file of the raw loop; where figures mean nothing, the disk is others'.
const SEGMENT_BYTES: u64 = 256 << 20;
const SEGMENT_BYTES_REHEARSED: u64 = 16 << 20;
const BLOCK_BYTES: usize = 4096;
const KINDS: [RegionKind; 2] = [RegionKind::Node, RegionKind::Extent];
/// How long fio reads or writes its file of 1 MiB blocks, and two files at once.
const FIO_LASTS: Duration = Duration::from_secs(2);
const FIO_BATCHES_LAST: Duration = Duration::from_secs(1);
/// That file; where figures mean nothing, the disk is others'.
const FIO_BYTES: &str = "1G";
const FIO_BYTES_REHEARSED: &str = "64M";

/// Two zero-filled files, written in turns of one batch: both at once, each in one data-sync write past the
/// page cache, the next batch when both are on stable storage.
pub struct RawLoop {
    ring: Ring,
    log: LogId,
    segment_bytes: u64,
    offset: u64,
}

fn broken(errno: Errno) -> BenchError {
    BenchError::Io(std::io::Error::from_raw_os_error(errno.0))
}

impl RawLoop {
    /// Makes the files below `folder`, which is on the disk to be measured.
    ///
    /// # Errors
    /// What the disk or io_uring says.
    pub fn new(folder: &Path, options: &Options) -> Result<Self, BenchError> {
        let bytes = if options.is_rehearsal() { SEGMENT_BYTES_REHEARSED } else { SEGMENT_BYTES };
        Self::of(folder, bytes)
    }

    fn of(folder: &Path, segment_bytes: u64) -> Result<Self, BenchError> {
        std::fs::create_dir_all(folder)?;
        let storage = RealStorage::open(folder)?;
        let options = RingOptions { buffer_bytes: 4 << 20, buffers: 4, ..RingOptions::default() };
        let mut ring = Ring::open(&storage, options)?;
        let log = LogId { pair: PairId(1), epoch: Epoch(1) };
        for kind in KINDS {
            let segment = log.log(kind).segment(0);
            ring.prepare(PrepareSegment { log, kind, segment, bytes: segment_bytes, recycle: None });
        }
        let mut raw = Self { ring, log, segment_bytes, offset: 0 };
        raw.wait(KINDS.len())?;
        Ok(raw)
    }

    fn segment(&self, kind: RegionKind) -> SegmentName {
        self.log.log(kind).segment(0)
    }

    /// Polls until so many events have come.
    fn wait(&mut self, wanted: usize) -> Result<(), BenchError> {
        let mut events = Vec::new();
        let mut seen = 0;
        while seen < wanted {
            self.ring.poll(&mut events);
            for event in events.drain(..) {
                match event {
                    LogEvent::Written { result, .. } | LogEvent::Prepared { result, .. } => {
                        result.map_err(broken)?;
                    }
                }
                seen += 1;
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Writes `batches` batches of so many bytes to each file, rounded up to blocks, to one of none not at
    /// all; returns batches a second.
    ///
    /// # Errors
    /// A write that failed.
    ///
    /// # Panics
    /// If a batch is larger than a file.
    #[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
    pub fn run(&mut self, bytes: [u64; 2], batches: u64) -> Result<f64, BenchError> {
        let lengths =
            bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX).next_multiple_of(BLOCK_BYTES));
        let written = || KINDS.into_iter().zip(lengths).filter(|(_, length)| *length > 0);
        let longest = lengths[0].max(lengths[1]) as u64;
        assert!(longest <= self.segment_bytes, "a batch fits its file");
        let started = Instant::now();
        for _ in 0..batches {
            if self.offset + longest > self.segment_bytes {
                self.offset = 0;
            }
            for (kind, length) in written() {
                let (segment, buffer) = (self.segment(kind), self.ring.buffer(length));
                let write = LogWrite { log: self.log, kind, segment, offset: self.offset, length, buffer };
                self.ring.write(write);
            }
            self.ring.submit()?;
            self.wait(written().count())?;
            self.offset += longest;
        }
        Ok(batches as f64 / started.elapsed().as_secs_f64())
    }

    /// Ends the ring.
    ///
    /// # Errors
    /// A broken ring.
    pub fn close(self) -> Result<(), BenchError> {
        Ok(self.ring.close()?)
    }
}

/// Whether a command is installed.
pub fn has(command: &str) -> bool {
    let quiet = Command::new(command).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

/// Sequential data-sync writes of 1 MiB to a file below `folder` as fio measures them, in bytes a second: the
/// best of one, two and four writes in flight. `None` without fio.
///
/// # Errors
/// fio's output is not what it was.
pub fn fio_write(folder: &Path, options: &Options) -> Result<Option<f64>, BenchError> {
    if !has("fio") {
        return Ok(None);
    }
    // Blocks that were never written cost more: fill first.
    fio(folder, options, &["--rw=write", "--iodepth=4"])?;
    let (mut best, lasts) = (0f64, runtime(options, FIO_LASTS));
    for depth in ["--iodepth=1", "--iodepth=2", "--iodepth=4"] {
        let timed = ["--rw=write", "--sync=dsync", "--time_based", lasts.as_str(), "--overwrite=1", depth];
        best = best.max(fio(folder, options, &timed)?.write);
    }
    Ok(Some(best))
}

/// Sequential reads of 1 MiB past the page cache, in bytes a second. `None` without fio.
///
/// # Errors
/// fio's output is not what it was.
pub fn fio_read(folder: &Path, options: &Options) -> Result<Option<f64>, BenchError> {
    if !has("fio") {
        return Ok(None);
    }
    fio(folder, options, &["--rw=write", "--iodepth=4"])?;
    let lasts = runtime(options, FIO_LASTS);
    Ok(Some(fio(folder, options, &["--rw=read", "--iodepth=8", "--time_based", &lasts])?.read))
}

/// How many times a second fio ends writes of so many bytes to both of two files below `folder`, each in one
/// data-sync write past the page cache and without waiting for the other file: at least what a loop allows
/// that waits for both.
///
/// # Errors
/// fio is not there, or its output is not what it was.
pub fn fio_batches(folder: &Path, options: &Options, bytes: u64) -> Result<f64, BenchError> {
    let output = fio_in(folder)
        .args(["--name=batches", "--numjobs=2", "--group_reporting", "--size=64M", "--rw=write"])
        .args(["--direct=1", "--sync=dsync", "--ioengine=psync", "--overwrite=1"])
        .args(["--time_based", "--output-format=json"])
        .args([runtime(options, FIO_BATCHES_LAST), format!("--bs={bytes}")])
        .output()?;
    let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let writes = said["jobs"][0]["write"]["iops"].as_f64().filter(|writes| *writes > 0.0);
    let words = || String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(writes.ok_or_else(|| std::io::Error::other(words()))? / 2.0)
}

/// fio in this folder. It ends with this process: it would write there while that is removed.
fn fio_in(folder: &Path) -> Command {
    let mut command = Command::new("fio");
    reaper::mark(&mut command);
    command.current_dir(folder);
    command
}

/// How long fio goes on, as its options say.
fn runtime(options: &Options, whole: Duration) -> String {
    format!("--runtime={}ms", options.lasting(whole).as_millis())
}

/// Bytes a second, each way.
struct Bandwidth {
    read: f64,
    write: f64,
}

fn fio(folder: &Path, options: &Options, arguments: &[&str]) -> Result<Bandwidth, BenchError> {
    std::fs::create_dir_all(folder)?;
    let size = if options.is_rehearsal() { FIO_BYTES_REHEARSED } else { FIO_BYTES };
    let output = fio_in(folder)
        .args([
            "--name=limit",
            "--filename=fio-limit",
            "--size",
            size,
            "--bs=1M",
            "--direct=1",
            "--ioengine=io_uring",
        ])
        .args(["--output-format=json"])
        .args(arguments)
        .output()?;
    let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let rate = |way: &str| said["jobs"][0][way]["bw_bytes"].as_f64().unwrap_or(0.0);
    Ok(Bandwidth { read: rate("read"), write: rate("write") })
}

/// Removes what the functions of this module left in a folder.
pub fn clean(folder: &Path) {
    let _ = std::fs::remove_file(folder.join("fio-limit"));
}

/// Waits; benches of real processes have real time.
#[allow(clippy::disallowed_methods, reason = "a bench of real processes has real time")]
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_loop_batches_of_two_sizes_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut raw = RawLoop::of(folder.path(), SEGMENT_BYTES_REHEARSED).unwrap();
        assert!(raw.run([4096, 20_000], 50).unwrap() > 0.0);
        raw.close().unwrap();
    }
}
