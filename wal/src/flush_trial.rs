//! Which way logs are flushed faster on this disk: rounds of one pair's two writes, in turn each synced by
//! itself and both by one flush, through rings as a worker has them.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cell_terms::{Epoch, PairId, RegionKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::device::{LogDevice, LogEvent, LogWrite, PrepareSegment};
use crate::error::{DiskOperation, Errno, RingStep, StorageError, WalError};
use crate::flush_choice::{FlushChoice, FlushWay};
use crate::flush_ground::FlushGround;
use crate::flusher::Flusher;
use crate::real::RealStorage;
use crate::ring::{Ring, RingOptions};
use crate::segment::LogId;
use crate::storage::Storage;

const KINDS: [RegionKind; 2] = [RegionKind::Node, RegionKind::Extent];
/// Rounds of each way, and how many are enough to go by.
const ROUNDS: usize = 50;
const ROUNDS_MIN: usize = 10;
/// A slow disk is not tried for longer.
const LASTS_MAX: Duration = Duration::from_secs(2);
/// What a small batch writes to each log, and a file that is written from its begin again when it is full.
const WRITE_BYTES: usize = 8 << 10;
const SEGMENT_BYTES: u64 = 64 << 10;
/// With less room on the disk there is no trial: what little there is may be what a recovery waits for.
const FREE_MIN: u64 = 64 << 20;
/// A disk that does not answer for so long is not tried any further.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
const RING: RingOptions = RingOptions { entries: 8, buffers: 4, buffer_bytes: WRITE_BYTES };

/// What a round took: the medians.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushTrial {
    per_write: Duration,
    per_device: Duration,
    rounds: usize,
}

impl FlushTrial {
    /// Tries in a folder of its own below a log root, which nobody else uses, and removes it. `goes_on` is
    /// asked before each round; none: it says no.
    ///
    /// # Errors
    /// What the disk or io_uring says.
    pub fn run(
        storage: &RealStorage,
        folder: &str,
        ground: &FlushGround,
        goes_on: impl FnMut() -> bool,
    ) -> Result<Option<FlushTrial>, WalError> {
        let absolute = storage.absolute(folder);
        remove(&absolute, folder)?; // what a process left that was killed within its trial
        if storage.free_bytes()?.is_some_and(|free| free < FREE_MIN) {
            return Err(StorageError::new(DiskOperation::Write, folder, Errno::ENOSPC).into());
        }
        let tried = RealStorage::open(&absolute)
            .map_err(WalError::from)
            .and_then(|storage| rounds(&storage, ground, goes_on));
        remove(&absolute, folder)?;
        tried
    }

    /// What follows. One flush has to be faster by a tenth: no difference is no reason.
    #[must_use]
    pub fn choice(&self) -> FlushChoice {
        let FlushTrial { per_write, per_device, rounds } = *self;
        let [each, all] = [per_write, per_device].map(|time| time.as_micros());
        if rounds < ROUNDS_MIN {
            let why = format!("the disk is too slow to try: {rounds} rounds in {} s", LASTS_MAX.as_secs());
            return FlushChoice::new(FlushWay::PerWrite, &why);
        }
        let why = |better: &str| {
            format!(
                "{better}: {rounds} rounds took {each} us with a sync of each write, {all} us with one flush"
            )
        };
        if per_device.saturating_mul(10) <= per_write.saturating_mul(9) {
            FlushChoice::new(FlushWay::PerDevice, &why("one flush is faster here"))
        } else {
            FlushChoice::new(FlushWay::PerWrite, &why("one flush is not faster here"))
        }
    }
}

fn remove(absolute: &Path, folder: &str) -> Result<(), StorageError> {
    match std::fs::remove_dir_all(absolute) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StorageError::new(DiskOperation::RemoveFolder, folder, error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[allow(clippy::disallowed_methods, reason = "what is measured is time, and a trial of a slow disk ends")]
fn now() -> Instant {
    Instant::now()
}

fn rounds(
    storage: &RealStorage,
    ground: &FlushGround,
    mut goes_on: impl FnMut() -> bool,
) -> Result<Option<FlushTrial>, WalError> {
    let flusher = Flusher::start(Some(ground), FlushChoice::new(FlushWay::PerDevice, "a trial"))?;
    let mut sides = [Side::open(storage, 1, None)?, Side::open(storage, 2, Some(flusher))?];
    // Open files need no names: whoever kills the process from here on finds nothing of them.
    remove(storage.root(), "")?;
    let mut times: [Vec<Duration>; 2] = [const { Vec::new() }; 2];
    let started = now();
    while times[1].len() < ROUNDS && started.elapsed() < LASTS_MAX {
        if !goes_on() {
            return Ok(None);
        }
        for (side, times) in sides.iter_mut().zip(&mut times) {
            let began = now();
            side.round()?;
            times.push(began.elapsed());
        }
    }
    for side in sides {
        side.ring.close()?;
    }
    let rounds = times[1].len();
    let [per_write, per_device] = times.map(median);
    Ok(Some(FlushTrial { per_write, per_device, rounds }))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// One way of the two: a ring with a pair's logs.
struct Side {
    ring: Ring,
    flusher: Option<Arc<Flusher>>,
    log: LogId,
    offset: u64,
}

impl Side {
    fn open(storage: &RealStorage, pair: u32, flusher: Option<Arc<Flusher>>) -> Result<Side, WalError> {
        let mut ring = Ring::open(storage, RING)?;
        flusher.iter().for_each(|flusher| ring.share(flusher));
        let log = LogId { pair: PairId(pair), epoch: Epoch(1) };
        for kind in KINDS {
            let segment = log.log(kind).segment(0);
            ring.prepare(PrepareSegment { log, kind, segment, bytes: SEGMENT_BYTES, recycle: None });
        }
        let mut side = Side { ring, flusher, log, offset: 0 };
        side.wait()?;
        Ok(side)
    }

    /// Both writes at once, until both are on stable storage.
    fn round(&mut self) -> Result<(), WalError> {
        for kind in KINDS {
            let segment = self.log.log(kind).segment(0);
            let mut buffer = self.ring.buffer(WRITE_BYTES);
            buffer.bytes_mut().fill(self.offset.to_le_bytes()[1] | 1);
            let write =
                LogWrite { log: self.log, kind, segment, offset: self.offset, length: WRITE_BYTES, buffer };
            self.ring.write(write);
        }
        self.offset = (self.offset + WRITE_BYTES as u64) % SEGMENT_BYTES;
        self.wait()
    }

    /// Sleeps as an idle worker does, until both files' events are there.
    fn wait(&mut self) -> Result<(), WalError> {
        let mut events = Vec::new();
        let mut wanted = KINDS.len();
        loop {
            self.ring.submit()?;
            self.ring.poll(&mut events);
            for event in events.drain(..) {
                let (segment, offset, result) = match event {
                    LogEvent::Written { segment, offset, result, .. } => (segment, offset, result),
                    LogEvent::Prepared { segment, result, .. } => (segment, 0, result),
                };
                result.map_err(|errno| WalError::Poisoned { segment, offset, errno })?;
                wanted -= 1;
            }
            if wanted == 0 {
                return Ok(());
            }
            self.ring.submit()?; // a flush may be due
            self.sleep()?;
        }
    }

    fn sleep(&self) -> Result<(), WalError> {
        let unavailable = |errno| WalError::RingUnavailable { step: RingStep::Submit, errno };
        let shared = self.flusher.as_ref().map(|flusher| flusher.wake_fd());
        let descriptors = [Some(self.ring.wake_fd()), shared];
        let mut watched: Vec<PollFd<'_>> = descriptors
            .iter()
            .flatten()
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN))
            .collect();
        match poll(&mut watched, Some(&PATIENCE)) {
            Ok(0) => return Err(unavailable(Errno(libc::ETIMEDOUT))),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(unavailable(errno.into())),
        }
        drop(watched);
        self.ring.clear_wake();
        self.flusher.iter().for_each(|flusher| flusher.clear_wake());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(per_write: u64, per_device: u64, rounds: usize) -> FlushChoice {
        let [per_write, per_device] = [per_write, per_device].map(Duration::from_micros);
        FlushTrial { per_write, per_device, rounds }.choice()
    }

    #[test]
    fn choice_is_one_flush_where_it_is_faster_by_a_tenth() {
        for (per_write, per_device, rounds, way) in [
            (800, 250, ROUNDS, FlushWay::PerDevice),
            (100, 90, ROUNDS, FlushWay::PerDevice),
            (100, 91, ROUNDS, FlushWay::PerWrite),
            (25, 60, ROUNDS, FlushWay::PerWrite),
            (800, 250, ROUNDS_MIN - 1, FlushWay::PerWrite),
            (0, 0, 0, FlushWay::PerWrite),
        ] {
            assert_eq!(trial(per_write, per_device, rounds).way, way, "{per_write}, {per_device}, {rounds}");
        }
        let why = trial(800, 250, ROUNDS).why;
        assert!(why.contains("800 us") && why.contains("250 us") && why.contains("50 rounds"), "{why}");
    }

    /// On whatever file system the tests are: where one flush does not cover it, each write syncs itself, and
    /// the trial ends all the same.
    #[test]
    fn run_measures_both_ways_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let storage = RealStorage::open(folder.path()).unwrap();
        let ground = FlushGround { device: 0, file_system: "ext4", shares_blocks: false };
        std::fs::create_dir(folder.path().join("trial")).unwrap();
        std::fs::write(folder.path().join("trial/left"), "of a process that was killed").unwrap();
        let tried = FlushTrial::run(&storage, "trial", &ground, || true).unwrap().unwrap();
        assert!(tried.rounds > 0 && tried.per_write > Duration::ZERO, "{tried:?}");
        assert_eq!(FlushTrial::run(&storage, "trial", &ground, || false).unwrap(), None);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
