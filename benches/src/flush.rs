//! `flush`: group commit of several pairs on one thread, as a worker has them: with a sync of each write, and
//! with one flush of the disk for the writes of all; in turns, and in turn with one pair that has all that is
//! in flight.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cell_terms::{Epoch, PairId, RegionKind};
use cell_wal::ring::{Ring, RingOptions};
use cell_wal::{
    FlushChoice, FlushGround, FlushWay, Flusher, LogDevice, LogEvent, LogId, LogOptions, LogRoot, LogStart,
    PairLog, Predecessor, RealStorage, Space,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::contest::{self, Contender, Outcome};
use crate::disk;
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::put::{First, Scratch};

/// How many pairs, and how many operations are outstanding, over all pairs evenly.
const PAIRS: [u32; 5] = [1, 2, 4, 8, 16];
const IN_FLIGHT: [u64; 3] = [64, 512, 4_096];
/// Pairs that are to be as fast as one, and nearly how fast.
const MANY: u32 = 8;
/// The folder of the one.
const ONE: &str = "one";
const MANY_GOAL: Goal = Goal::AtLeast(0.9);
/// One flush beside a sync of each write, for one pair with little outstanding.
const ONE_GOAL: Goal = Goal::AtLeast(1.3);
const RING: RingOptions = RingOptions { entries: 128, buffers: 8, buffer_bytes: 256 << 10 };
/// Short ones: sixteen pairs keep a hundred of them.
const SEGMENT_BYTES: u64 = 4 << 20;
/// Of a round of one way.
const SLICE: Duration = Duration::from_millis(200);
/// All spare segments are ready by then.
const SPARES_READY: Duration = Duration::from_millis(500);
/// The records of one operation, with what the log adds: a value of 100 bytes at a random key.
const NODE_RECORD: usize = 60;
const EXTENT_RECORD: usize = 140;
const ADDED: usize = 12;

/// Runs the bench.
///
/// # Errors
/// A disk that failed.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let folder = Scratch::new(options.dir.as_deref())?;
    let ground = match LogRoot::open(&folder.0)?.flush_ground {
        Ok(ground) => ground,
        Err(why) => {
            report.note(&format!("SKIPPED: one flush for all logs: {why}"));
            return Ok(());
        }
    };
    let time = options.lasting(SLICE);
    let place = |name: &str| folder.0.join(name);
    // It takes turns with each number of pairs: a disk is faster and slower in the course of a run.
    let mut one = Side::open(&place(ONE), FlushWay::PerDevice, &ground, 1)?;
    // A run that only shows that the bench works fills no disk.
    let pairs_max = if time < SLICE { 2 } else { u32::MAX };
    for pairs in PAIRS.into_iter().filter(|pairs| *pairs <= pairs_max) {
        let open = |way: FlushWay| Side::open(&place(way.word()), way, &ground, pairs);
        let (mut each, mut all) = (open(FlushWay::PerWrite)?, open(FlushWay::PerDevice)?);
        disk::pause(SPARES_READY.min(time));
        for (at, in_flight) in IN_FLIGHT.into_iter().enumerate() {
            let first = First::default();
            let mut contenders = vec![
                Contender::new("one flush", |_| first.count(all.during(time, in_flight))),
                Contender::new("a sync of each", |_| first.count(each.during(time, in_flight))),
            ];
            if pairs > 1 {
                contenders.push(Contender::new("one pair", |_| first.count(one.during(time, in_flight))));
            }
            let outcomes = contest::run(&mut contenders, 1, usize::from(options.rounds));
            drop(contenders);
            first.end()?;
            let rates: Vec<f64> = outcomes.iter().map(Outcome::rate).collect();
            let row = |name: &str, rival: &str, theirs, goal| {
                let name = format!("flush/{pairs} pairs, {in_flight} in flight{name}");
                Figure::beside(name, "op/s", rates[0], rival, theirs, goal)
            };
            let goal = if (pairs, at) == (1, 0) { ONE_GOAL } else { Goal::None };
            report.add(row("", "a sync of each write", rates[1], goal))?;
            let goal = if pairs == MANY { MANY_GOAL } else { Goal::None };
            for of_one in rates.iter().skip(2) {
                report.add(row(", beside one pair", "one pair, one flush", *of_one, goal))?;
            }
        }
        each.close(&place(FlushWay::PerWrite.word()))?;
        all.close(&place(FlushWay::PerDevice.word()))?;
    }
    one.close(&place(ONE))
}

fn has_room(log: &mut PairLog) -> bool {
    log.room_for(NODE_RECORD + ADDED, EXTENT_RECORD + ADDED, Space::Ordinary).is_ok()
}

/// Pairs whose logs are synced one way.
struct Side {
    pairs: Vec<Logs>,
    flusher: Option<Arc<Flusher>>,
    events: Vec<LogEvent>,
}

struct Logs {
    ring: Ring,
    log: PairLog,
}

impl Side {
    fn open(folder: &Path, way: FlushWay, ground: &FlushGround, pairs: u32) -> Result<Side, BenchError> {
        let storage = RealStorage::open(folder)?;
        let flusher = match way {
            FlushWay::PerWrite => None,
            FlushWay::PerDevice => Some(Flusher::start(Some(ground), FlushChoice::new(way, "a bench"))?),
        };
        let mut side = Side { pairs: Vec::new(), flusher, events: Vec::new() };
        for pair in 1..=pairs {
            let mut ring = Ring::open(&storage, RING)?;
            side.flusher.iter().for_each(|flusher| ring.share(flusher));
            let log = LogId { pair: PairId(pair), epoch: Epoch(1) };
            let start = LogStart { log, predecessor: Predecessor::default(), salt: u64::from(pair) };
            let options = LogOptions { segment_bytes: SEGMENT_BYTES, ..LogOptions::default() };
            let log = PairLog::create(start, options, &mut ring);
            side.pairs.push(Logs { ring, log });
        }
        while !side.pairs.iter().all(|pair| pair.log.is_open()) {
            side.turn(0)?;
        }
        Ok(side)
    }

    /// Lets so many operations be outstanding for a while; how many became durable.
    #[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
    fn during(&mut self, time: Duration, in_flight: u64) -> Result<u64, BenchError> {
        let before = self.durable();
        let each = (in_flight / self.pairs.len() as u64).max(1);
        let started = Instant::now();
        while started.elapsed() < time || self.durable() == before {
            self.turn(each)?;
        }
        let done = self.durable() - before;
        while self.pairs.iter().any(|pair| pair.log.is_busy() || pair.log.has_unsubmitted()) {
            self.turn(0)?;
        }
        Ok(done)
    }

    /// Operations that are durable.
    fn durable(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.log.csn_durable().0 / 2).sum()
    }

    /// A worker's turn: takes what has come, fills each pair up to so many operations, sends all, sleeps if
    /// nothing had come.
    fn turn(&mut self, each: u64) -> Result<(), BenchError> {
        let mut is_idle = true;
        for Logs { ring, log } in &mut self.pairs {
            ring.poll(&mut self.events);
            is_idle &= self.events.is_empty();
            for event in self.events.drain(..) {
                if let Some(durable) = log.on_event(event, ring)? {
                    log.release_below(durable, ring);
                }
            }
            let outstanding = |log: &PairLog| (log.csn_appended().0 - log.csn_durable().0) / 2;
            while log.is_open() && outstanding(log) < each && has_room(log) {
                log.append_sized(RegionKind::Extent, EXTENT_RECORD, |_, bytes| bytes.fill(1));
                log.append_sized(RegionKind::Node, NODE_RECORD, |_, bytes| bytes.fill(2));
            }
        }
        for Logs { ring, log } in &mut self.pairs {
            log.submit(ring)?;
        }
        for Logs { ring, .. } in &mut self.pairs {
            ring.submit()?;
        }
        if is_idle { self.sleep() } else { Ok(()) }
    }

    fn sleep(&self) -> Result<(), BenchError> {
        let flusher = self.flusher.as_deref();
        let rings = self.pairs.iter().map(|pair| pair.ring.wake_fd());
        let descriptors: Vec<BorrowedFd<'_>> = rings.chain(flusher.map(Flusher::wake_fd)).collect();
        let mut watched: Vec<PollFd<'_>> =
            descriptors.iter().map(|descriptor| PollFd::new(descriptor, PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: 1, tv_nsec: 0 };
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(std::io::Error::from(errno).into()),
        }
        self.pairs.iter().for_each(|pair| pair.ring.clear_wake());
        flusher.into_iter().for_each(Flusher::clear_wake);
        Ok(())
    }

    fn close(self, folder: &Path) -> Result<(), BenchError> {
        for pair in self.pairs {
            pair.ring.close()?;
        }
        Ok(std::fs::remove_dir_all(folder)?)
    }
}
