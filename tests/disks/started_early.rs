//! A flush that was under way when a write completed does not count for it: a power cut of a disk with a
//! volatile cache finds the log whole, and takes acknowledged batches where the flush does count.
//!
//! Under a whole node that is left to luck: below FUSE a write waits while a flush is under way, so hardly
//! one completes meanwhile. Here the real rings and the real flush write the logs of two pairs on such a
//! disk, and a flush is reported late: the disk has carried it out, and a write completes before anybody
//! knows.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use cell_terms::{Csn, Epoch, PairId, RegionKind};
use cell_tests::dice::Dice;
use cell_tests::faulty_disk::{Fault, FaultyDisk, FileSystem};
use cell_tests::repeats::Repeats;
use cell_tests::wait;
use cell_wal::mutant::{Mutant, plant};
use cell_wal::ring::{Ring, RingOptions};
use cell_wal::{
    FlushChoice, FlushGround, FlushWay, Flusher, LogDevice, LogEvent, LogId, LogOptions, LogRoot, LogStart,
    PairLog, PairReader, Predecessor, ReadOptions, ReadRequest, RealStorage, Storage, WalError,
};

use crate::disks::{DISK_MEBIBYTES, TWIN_CUTS};

/// What the lengths of records, and the numbers of batches before the cut, are drawn for.
const CONTENT: u64 = 1 << 33;
const BATCH_BYTES: usize = 64 << 10;
/// Of each log; so little of it is used that it keeps one spare.
const SEGMENT_BYTES: u64 = 256 << 10;
/// What is made ready of a pair: a first segment and a spare of both logs. Later ones would be synced, and so
/// flush the disk.
const SEGMENTS: usize = 4;
/// Of both pairs' last batches: a frame in each log.
const LAST_WRITES: f64 = 4.0;

const fn id(pair: u32) -> LogId {
    LogId { pair: PairId(pair), epoch: Epoch(1) }
}

/// What a record is filled with.
const fn content(csn: Csn) -> u8 {
    csn.0.to_le_bytes()[0]
}

struct Pair {
    ring: Ring,
    log: PairLog,
    /// Segments that were made ready.
    ready: usize,
}

impl Pair {
    /// With open logs, for whose segments nothing is left to be done. Each write syncs itself as yet.
    fn open(storage: &RealStorage, pair: u32) -> Pair {
        let options = RingOptions { entries: 8, buffers: 4, buffer_bytes: BATCH_BYTES };
        let mut ring = Ring::open(storage, options).expect("a ring can be set up");
        let options = LogOptions {
            segment_bytes: SEGMENT_BYTES,
            first_segment_bytes: SEGMENT_BYTES,
            batch_bytes: BATCH_BYTES,
            ..LogOptions::default()
        };
        let start = LogStart { log: id(pair), predecessor: Predecessor::default(), salt: u64::from(pair) };
        let log = PairLog::create(start, options, &mut ring);
        let mut opened = Pair { ring, log, ready: 0 };
        wait::until("the logs are open", || {
            opened.turn();
            opened.log.is_open() && opened.ready == SEGMENTS
        });
        opened
    }

    /// Takes what the disk has done. Nothing is sent, no flush either.
    fn take(&mut self) {
        let mut events = Vec::new();
        self.ring.poll(&mut events);
        for event in events {
            self.ready += usize::from(matches!(event, LogEvent::Prepared { result: Ok(()), .. }));
            self.log.on_event(event, &mut self.ring).expect("the disk is there");
        }
    }

    /// As a worker's turn: takes what the disk has done, and sends what is queued, or a flush that is due.
    fn turn(&mut self) {
        self.take();
        self.log.submit(&mut self.ring).expect("the disk is there");
        self.ring.submit().expect("the ring works");
    }

    /// A batch with records in both logs.
    fn append(&mut self, dice: &mut Dice) {
        for kind in [RegionKind::Node, RegionKind::Extent] {
            let length = usize::try_from(1 + dice.below(2_000)).expect("a few bytes");
            self.log.append_sized(kind, length, |csn, bytes| bytes.fill(content(csn)));
        }
    }

    fn is_durable(&self) -> bool {
        self.log.csn_durable() == self.log.csn_appended()
    }
}

/// How far the log reaches that is found on the disk.
fn read(root: &Path, pair: u32) -> Result<Csn, WalError> {
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::open(root)?);
    let options = ReadOptions::default();
    let request = ReadRequest { log: id(pair), base: Csn::ZERO, cut: None, required: Csn::ZERO, options };
    let mut reader = PairReader::open(&storage, request)?;
    while let Some(batch) = reader.next_batch()? {
        for (_, record) in batch.records() {
            assert!(record.payload.iter().all(|byte| *byte == content(record.csn)), "{:?}", record.csn);
        }
    }
    Ok(reader.ended().expect("it was read to its end").cut)
}

/// A flush that is reported late.
struct Late {
    flusher: Arc<Flusher>,
    /// The disk has carried it out.
    flushed: Receiver<()>,
    /// Now it is reported.
    report: Sender<()>,
}

impl Late {
    fn over(ground: &FlushGround) -> Late {
        let (carried_out, flushed) = channel();
        let (report, reported) = channel();
        let late = move || {
            // Where the test is gone nothing is waited for.
            let _ = carried_out.send(());
            let _ = reported.recv();
        };
        let choice = FlushChoice::new(FlushWay::PerDevice, "a test");
        let flusher = Flusher::start_with(Some(ground), choice, late).expect("a thread can be started");
        Late { flusher, flushed, report }
    }

    /// Writes that have completed and were left to it.
    fn completed(&self) -> f64 {
        let mut values = self.flusher.values();
        values.find(|value| value.counter.name == "log_flushed_writes_total").map_or(0.0, |it| it.value)
    }

    /// Two pairs with some batches; their next writes are left to this flush.
    fn pairs(&self, storage: &RealStorage, dice: &mut Dice) -> [Pair; 2] {
        let mut pairs = [1, 2].map(|number| Pair::open(storage, number));
        for pair in &mut pairs {
            for _ in 0..dice.below(5) {
                pair.append(dice);
                wait::until("a batch is durable", || {
                    pair.turn();
                    pair.is_durable()
                });
            }
            pair.ring.share(&self.flusher);
        }
        pairs
    }
}

/// The first pair's writes complete, a flush begins and is reported late; meanwhile the second pair's
/// complete. Then the power goes. Whether the first and the second pair have lost what was acknowledged;
/// none, said loudly, where nobody knows that one flush covers all.
fn losses(disk: &mut FaultyDisk, folder: &str, dice: &mut Dice) -> Option<[bool; 2]> {
    let root = disk.mount().join(folder);
    let LogRoot { storage, flush_ground, .. } = LogRoot::open(&root).expect("a log root is fit");
    let ground = match flush_ground {
        Ok(ground) => ground,
        Err(why) => {
            println!("SKIPPED: one flush for all logs: {why}");
            return None;
        }
    };
    let late = Late::over(&ground);
    let mut pairs = late.pairs(&storage, dice);
    let [first, second] = &mut pairs;
    first.append(dice);
    wait::until("the disk has flushed", || {
        first.turn();
        late.flushed.try_recv().is_ok()
    });
    second.append(dice);
    second.turn();
    wait::until("the second pair's writes have completed", || {
        second.take();
        late.completed() >= LAST_WRITES
    });
    assert!(!first.is_durable() && !second.is_durable(), "the flush is under way");
    late.report.send(()).expect("the flush waits");
    wait::until("the flush has ended", || {
        first.take();
        first.is_durable()
    });
    second.take();

    let acknowledged = pairs.each_ref().map(|pair| pair.log.csn_durable());
    disk.unplug();
    drop((pairs, late, storage));
    disk.detach();
    disk.plug();
    let found = [1, 2].map(|number| read(&root, number));
    println!("{folder}: acknowledged {acknowledged:?}, found {found:?}");
    let is_there = |at: usize| found[at].as_ref().is_ok_and(|cut| *cut >= acknowledged[at]);
    Some([!is_there(0), !is_there(1)])
}

/// Both file systems in one test: a defect is planted in the whole process, and no other test of this program
/// has logs in it.
#[test]
fn batch_that_a_flush_started_before_its_completion_vouches_for_is_lost_by_a_power_cut() {
    let cuts = Repeats { plain: 1, quick: 1, full: 3, long: 30 }.of_this_run();
    let mut dice = Dice::drawn(CONTENT);
    for file_system in [FileSystem::Ext4, FileSystem::Xfs] {
        let Some(mut disk) = FaultyDisk::with(file_system, Fault::VolatileCache, DISK_MEBIBYTES) else {
            continue;
        };
        for cut in 0..cuts {
            let Some(lost) = losses(&mut disk, &format!("sound-{cut}"), &mut dice) else { return };
            assert_eq!(lost, [false; 2], "{file_system:?}: what was acknowledged is lost");
        }
        // The harness's twin that must fail. By chance the file system flushes of itself before the cut.
        plant(Some(Mutant::FlushBegunEarly));
        let is_caught = (0..TWIN_CUTS).any(|cut| {
            let lost = losses(&mut disk, &format!("early-{cut}"), &mut dice);
            let [first, second] = lost.expect("it is the same disk");
            assert!(!first, "{file_system:?}: the flush began when the first pair's writes had completed");
            second
        });
        plant(None);
        assert!(
            is_caught,
            "{file_system:?}: {TWIN_CUTS} cuts after a flush started early, and nobody noticed"
        );
        println!("mutant flush-begun-early caught by power cuts over {file_system:?}");
    }
}
