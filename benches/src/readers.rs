//! Readers in processes of their own beside one writer: one-sided gets and scans of a served store, beside
//! LMDB, whose file all processes of a host map. Both are read one by one, keys and values copied, by turns:
//! the same keys, as many readers. LMDB's are in a transaction a read, which is started or renewed for it.
//!
//! Readers begin together once all of them are ready, and what they have read counts over the time from the
//! first one's begin to the last one's end. A turn is so long that it matters little that they do not wake at
//! the same moment: of the fastest store, too, whose turn has as many reads as those of the others.
//!
//! Each store's writer makes a put when the one before is on stable storage. What a store's writers reach by
//! themselves is in the same run, because reads are not all that a store is chosen for. So is the memory that
//! a reader takes once it has read: its own, and what it has mapped. Of the store's memory there is one for
//! all readers; the rings of a reader of ours, up to 512 KiB, are mapped too, and each has its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::contest;
use crate::data::{Batch, EvenDataset};
use crate::figure::{Figure, Goal, Report};
use crate::lmdb;
use crate::options::{BenchError, Options, ReaderEngine};
use crate::paced::now;
use crate::put::Scratch;
use crate::reader_process::{ReadKind, ReadOrder, ReaderProcess, SCAN_ENTRIES};
use crate::rollup::{Rollup, Taken};
use crate::served::{Served, many_meganodes};
use crate::shared_file::SharedFile;
use crate::together::{self, Stint};

/// What a run says that has no LMDB to compare with.
pub(crate) const NO_LMDB: &str = "SKIPPED: LMDB beside our reads: this build has it not (--features lmdb)";

/// Readers at a time.
const READERS: [usize; 3] = [1, 2, 4];
const READERS_MAX: u64 = 4;
/// How long a turn of the fastest store is to last: in trials, which may have been slower than what follows;
/// and how many times as long one of the slowest may last for that.
const TURN: Duration = Duration::from_millis(300);
const SLOWEST_MAX: u32 = 10;
/// Reads of the first trial, by kind, and by how much a further one may have more.
const TRIAL_GETS: usize = 2_000;
const TRIAL_SCANS: usize = 200;
const GROWTH_MAX: f64 = 10.0;
/// Keys of a reader, at least and at most.
const KEYS: (usize, usize) = (8_000, 800_000);
/// Entries, unless fewer are asked for.
const ENTRIES_MAX: u64 = 1_000_000;
/// Entries that are put at a time while stores are filled, and ours outstanding then.
const BATCH_ENTRIES: u64 = 20_000;
const FILLING: usize = 1024;
/// A writer beside readers looks after so many puts whether it is to end.
const FEW: usize = 4;
const BATCHES: u64 = 512;
/// How rows name LMDB whose puts are durable one by one.
const EACH: &str = "LMDB, a commit each";
/// And its readers, by their transactions.
const STARTED: &str = "LMDB, a transaction each";
const RENEWED: &str = "LMDB, one transaction renewed";
/// Puts of ours that are outstanding where many are, as many as LMDB's in a commit; and how many are made
/// between two looks.
const OUTSTANDING: usize = 256;
const MANY: usize = 8_192;
/// How long durable puts are made at a time, and how often.
const SPAN: Duration = Duration::from_secs(1);
const SPANS: usize = 3;

/// Adds the rows.
///
/// # Errors
/// A node, a reader or LMDB that failed; stores that do not agree.
pub(crate) fn run(folder: &Scratch, options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let data = EvenDataset { entries: options.entries.min(ENTRIES_MAX), seed: options.seed };
    let (key_bytes, value_bytes) = (EvenDataset::KEY_BYTES, EvenDataset::VALUE_BYTES);
    report.note(&format!("readers: {} entries of {key_bytes} + {value_bytes} bytes", data.entries));
    let mut stores = Stores::fill(&data, folder)?;
    let [meganodes, pairs] = stores.served.shape()?;
    report.note(&format!("readers: of one node, {meganodes} meganodes in {pairs} pairs"));
    if stores.file.is_none() {
        report.note(NO_LMDB);
    }
    let puts = stores.durable_puts(options.lasting(SPAN))?;
    puts.add_rows(report)?;
    let mut readers = stores.readers(&data)?;
    for count in READERS {
        for kind in [ReadKind::Get, ReadKind::Scan] {
            let reads = stores.reads_a_turn(&mut readers, count, kind, options.lasting(TURN))?;
            let order = ReadOrder { kind, turn: 0, reads };
            let outcomes = stores.compare(&mut readers, count, order, usize::from(options.rounds))?;
            add_rows(count, kind, &outcomes, puts, report)?;
        }
    }
    add_memory_rows(&mut readers, &stores.served, report)?;
    drop(readers);
    stores.served.server.kill_all();
    Ok(())
}

/// Readers of one store.
struct Readers {
    engine: ReaderEngine,
    processes: Vec<ReaderProcess>,
}

/// Reads and puts a second of a turn, or of its store's turns in the middle.
#[derive(Clone, Copy, Debug)]
struct Beside {
    reads: f64,
    puts: f64,
}

/// What readers did together.
struct ReadTurn {
    rate: f64,
    /// Of the reader that was through first, by its own begin; and of all.
    shortest: Duration,
    wall: Duration,
    /// Of all that was read.
    bytes: u64,
}

/// Durable puts a second without readers: [`OUTSTANDING`] of ours outstanding, of LMDB's in a commit; and one
/// by one.
#[derive(Clone, Copy, Debug)]
struct DurablePuts {
    ours: [f64; 2],
    lmdb: Option<[f64; 2]>,
}

impl DurablePuts {
    fn add_rows(&self, report: &mut Report<'_>) -> Result<(), BenchError> {
        let together = format!("LMDB, {OUTSTANDING} a commit");
        let kinds = [(OUTSTANDING, together.as_str()), (1, EACH)];
        for (at, (outstanding, rival)) in kinds.into_iter().enumerate() {
            let bench = format!("onesided/readers: durable puts, 1 x {outstanding}");
            let lmdb = self.lmdb.map(|lmdb| lmdb[at]);
            report.add(beside_lmdb(bench, self.ours[at], rival, lmdb, Goal::None))?;
        }
        Ok(())
    }

    /// What LMDB's rows say of the writes of both, one by one.
    fn one_by_one(&self) -> String {
        let [_, lmdb] = self.lmdb.unwrap_or_default();
        let [_, ours] = self.ours;
        format!("{lmdb:.0} durable puts a second, ours {ours:.0}")
    }
}

/// A figure of ours beside LMDB's, if it is here.
fn beside_lmdb(bench: String, ours: f64, rival: &str, theirs: Option<f64>, goal: Goal) -> Figure {
    match theirs {
        Some(theirs) => Figure::beside(bench, "op/s", ours, rival, theirs, goal),
        None => Figure::alone(bench, "op/s", ours),
    }
}

/// `outcomes` are in the order of the readers: ours, then those of LMDB, if it is here.
fn add_rows(
    count: usize,
    kind: ReadKind,
    outcomes: &[Beside],
    puts: DurablePuts,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let what = match kind {
        ReadKind::Get => "get".to_owned(),
        ReadKind::Scan => format!("scan of {SCAN_ENTRIES}"),
    };
    let bench = format!("onesided/readers: {what}, {count} beside a writer");
    let [ours, started, renewed] = [0, 1, 2].map(|index: usize| outcomes.get(index).copied());
    let Some(ours) = ours else { return Ok(()) };
    let rival = format!("{STARTED}; {}", puts.one_by_one());
    let theirs = started.map(|started| started.reads);
    report.add(beside_lmdb(bench.clone(), ours.reads, &rival, theirs, Goal::AtLeast(1.5)))?;
    if let Some(renewed) = renewed {
        report.add(Figure::beside(bench, "op/s", ours.reads, RENEWED, renewed.reads, Goal::None))?;
    }
    let bench = format!("onesided/readers: durable puts, 1 x 1, beside {count} of {what}");
    let theirs = started.map(|started| started.puts);
    report.add(beside_lmdb(bench, ours.puts, EACH, theirs, Goal::None))?;
    Ok(())
}

/// What a reader takes of each store once it has read, in the middle of its readers; and what our node takes,
/// which readers of a file do without.
fn add_memory_rows(
    readers: &mut [Readers],
    served: &Served,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let taken: Result<Vec<[f64; 2]>, BenchError> = readers.iter_mut().map(Readers::memory).collect();
    let taken = taken?;
    let whats = ["private memory of a reader", "memory that a reader has mapped"];
    for (at, what) in whats.into_iter().enumerate() {
        let bench = format!("onesided/readers: {what}");
        let [ours, started, renewed] = [0, 1, 2].map(|of: usize| taken.get(of).map(|taken| taken[at]));
        let Some(ours) = ours else { continue };
        if started.is_none() {
            report.add(Figure::alone(bench.clone(), "bytes", ours))?;
        }
        for (rival, theirs) in [(STARTED, started), (RENEWED, renewed)] {
            if let Some(theirs) = theirs {
                report.add(Figure::beside(bench.clone(), "bytes", ours, rival, theirs, Goal::None))?;
            }
        }
    }
    served.check_node()?;
    let node = served.server.node().ok_or(BenchError::Engine)?;
    let Taken { private, mapped } = Rollup::of(node)?.taken();
    let whats = [("private memory of the node", private), ("memory that the node has mapped", mapped)];
    for (what, bytes) in whats {
        report.add(Figure::alone(format!("onesided/readers: {what}"), "bytes", bytes as f64))?;
    }
    Ok(())
}

impl Readers {
    /// Private memory of one of them, and what it has mapped.
    fn memory(&mut self) -> Result<[f64; 2], BenchError> {
        let taken: Result<Vec<Taken>, BenchError> =
            self.processes.iter_mut().map(ReaderProcess::memory).collect();
        let taken = taken?;
        let middle = |of: fn(&Taken) -> u64| {
            contest::median(&taken.iter().map(|taken| of(taken) as f64).collect::<Vec<_>>())
        };
        Ok([middle(|taken| taken.private), middle(|taken| taken.mapped)])
    }
}

/// Both stores with the same entries.
struct Stores {
    served: Served,
    file: Option<Box<dyn SharedFile>>,
    /// Where the file is.
    folder: String,
    few: Vec<Batch>,
    many: Vec<Batch>,
}

impl Stores {
    fn fill(data: &EvenDataset, folder: &Scratch) -> Result<Self, BenchError> {
        let more = many_meganodes(data.entries);
        let more: Vec<_> = more.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut served = Served::start(&folder.0.join("readers"), data.entries, &more)?;
        let folder = folder.0.join("lmdb");
        std::fs::create_dir_all(&folder)?;
        let file = lmdb::open(&folder, data.entries)?;
        for first in (0..data.entries).step_by(usize::try_from(BATCH_ENTRIES).unwrap_or(1)) {
            let batch = data.batch(first, (first + BATCH_ENTRIES).min(data.entries));
            served.put(&batch, FILLING)?;
            if let Some(file) = &file {
                file.insert(&batch)?;
            }
        }
        let few = (0..BATCHES).map(|number| data.updates(FEW, data.seed ^ (0x6665_7700 + number))).collect();
        let many = vec![data.updates(MANY, data.seed ^ 0x6D61_6E79)];
        Ok(Self { served, file, folder: folder.display().to_string(), few, many })
    }

    /// Starts as many readers of each store as read at a time.
    fn readers(&self, data: &EvenDataset) -> Result<Vec<Readers>, BenchError> {
        let keys = usize::try_from(data.entries / 5 * 4).unwrap_or(usize::MAX).clamp(KEYS.0, KEYS.1);
        let node = self.served.server.address().to_string();
        let mut engines = vec![(ReaderEngine::Cell, &node)];
        if self.file.is_some() {
            engines.push((ReaderEngine::Lmdb, &self.folder));
            engines.push((ReaderEngine::LmdbRenewed, &self.folder));
        }
        let start = |(engine, at): (ReaderEngine, &String)| -> Result<Readers, BenchError> {
            let processes: Result<Vec<ReaderProcess>, BenchError> =
                (0..READERS_MAX).map(|number| ReaderProcess::start(engine, at, number, keys, data)).collect();
            Ok(Readers { engine, processes: processes? })
        };
        engines.into_iter().map(start).collect()
    }

    /// What writers reach that have the machine to themselves, by turns.
    fn durable_puts(&mut self, lasts: Duration) -> Result<DurablePuts, BenchError> {
        let mut rates: [Vec<f64>; 4] = Default::default();
        for _ in 0..SPANS {
            let spans = [
                (ReaderEngine::Cell, OUTSTANDING, &self.many),
                (ReaderEngine::Cell, 1, &self.few),
                (ReaderEngine::Lmdb, OUTSTANDING, &self.many),
                (ReaderEngine::Lmdb, 1, &self.few),
            ];
            for ((engine, outstanding, batches), rates) in spans.into_iter().zip(&mut rates) {
                let writer = writer(engine, &mut self.served, self.file.as_deref());
                let Some(mut writer) = writer else { continue };
                let began = now();
                let rate = writer.write(batches, outstanding, || began.elapsed() < lasts);
                self.served.check_node()?;
                rates.push(rate?);
            }
        }
        let [many, few, lmdb_many, lmdb_few] = rates.map(|rates| contest::median(&rates));
        let lmdb = self.file.is_some().then_some([lmdb_many, lmdb_few]);
        Ok(DurablePuts { ours: [many, few], lmdb })
    }

    /// How many reads a turn of so many readers has to have to last so long, whichever store is read.
    fn reads_a_turn(
        &mut self,
        readers: &mut [Readers],
        count: usize,
        kind: ReadKind,
        lasts: Duration,
    ) -> Result<usize, BenchError> {
        let mut reads = match kind {
            ReadKind::Get => TRIAL_GETS,
            ReadKind::Scan => TRIAL_SCANS,
        };
        loop {
            let (mut shortest, mut longest) = (Duration::MAX, Duration::ZERO);
            for store in readers.iter_mut() {
                let (_, turn) = self.turn(store, count, ReadOrder { kind, turn: 0, reads })?;
                shortest = shortest.min(turn.shortest);
                longest = longest.max(turn.wall);
            }
            match more_reads(reads, [shortest, longest], lasts) {
                Some(more) => reads = more,
                None => return Ok(reads),
            }
        }
    }

    /// Reads a second of so many readers of each store, by turns, and their writers' puts. The first turn is
    /// to warm up.
    fn compare(
        &mut self,
        readers: &mut [Readers],
        count: usize,
        order: ReadOrder,
        rounds: usize,
    ) -> Result<Vec<Beside>, BenchError> {
        let mut turns = vec![Vec::new(); readers.len()];
        for round in 0..=rounds {
            let mut stores: Vec<usize> = (0..readers.len()).collect();
            if round % 2 == 1 {
                stores.reverse();
            }
            let mut proof = None;
            for index in stores {
                let order = ReadOrder { turn: round, ..order };
                let (beside, ReadTurn { bytes, .. }) = self.turn(&mut readers[index], count, order)?;
                let ours = *proof.get_or_insert(bytes);
                if ours != bytes {
                    return Err(BenchError::Disagreement { ours, theirs: bytes });
                }
                if round > 0 {
                    turns[index].push(beside);
                }
            }
        }
        let middle = |turns: &[Beside], of: fn(&Beside) -> f64| {
            contest::median(&turns.iter().map(of).collect::<Vec<_>>())
        };
        let outcome = |turns: &Vec<Beside>| Beside {
            reads: middle(turns, |turn| turn.reads),
            puts: middle(turns, |turn| turn.puts),
        };
        Ok(turns.iter().map(outcome).collect())
    }

    /// One turn of a store's readers beside its writer.
    fn turn(
        &mut self,
        readers: &mut Readers,
        count: usize,
        order: ReadOrder,
    ) -> Result<(Beside, ReadTurn), BenchError> {
        let engine = readers.engine;
        let readers = &mut readers.processes[..count];
        readers.iter_mut().try_for_each(|reader| reader.prepare(order))?;
        let (few, stop) = (&self.few, AtomicBool::new(false));
        let writer = writer(engine, &mut self.served, self.file.as_deref());
        let mut writer = writer.ok_or(BenchError::Engine)?;
        let (read, puts) = std::thread::scope(|scope| {
            let writes = scope.spawn(|| writer.write(few, 1, || !stop.load(Ordering::Relaxed)));
            let read = read_together(readers);
            stop.store(true, Ordering::Relaxed);
            (read, writes.join().unwrap_or(Err(BenchError::Engine)))
        });
        // Before errors: a node that has ended is their cause.
        self.served.check_node()?;
        let read = read?;
        Ok((Beside { reads: read.rate, puts: puts? }, read))
    }
}

/// How many reads a turn is to have in place of these, which took so long at least and at most; none if that
/// was enough.
fn more_reads(reads: usize, [shortest, longest]: [Duration; 2], lasts: Duration) -> Option<usize> {
    if shortest >= lasts || longest >= SLOWEST_MAX * lasts {
        return None;
    }
    let growth = (lasts.as_secs_f64() * 1.1 / shortest.as_secs_f64().max(1e-9)).clamp(1.1, GROWTH_MAX);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and far below 2^63")]
    let more = (reads as f64 * growth).ceil() as usize;
    Some(more)
}

/// Readers that are ready read at the same time.
fn read_together(readers: &mut [ReaderProcess]) -> Result<ReadTurn, BenchError> {
    readers.iter_mut().try_for_each(ReaderProcess::begin)?;
    let (mut stints, mut bytes) = (Vec::<Stint>::new(), 0);
    for reader in readers {
        let turn = reader.end()?;
        stints.push(turn.stint);
        bytes += turn.bytes;
    }
    let [shortest, wall] =
        [together::shortest_ns, together::wall_ns].map(|of| Duration::from_nanos(of(&stints)));
    Ok(ReadTurn { rate: together::rate(&stints), shortest, wall, bytes })
}

/// The one writer of a store.
enum Writer<'a> {
    Node(&'a mut Served),
    File(&'a dyn SharedFile),
}

/// That of the store which is read so; none if it is not here.
fn writer<'a>(
    engine: ReaderEngine,
    served: &'a mut Served,
    file: Option<&'a dyn SharedFile>,
) -> Option<Writer<'a>> {
    match engine {
        ReaderEngine::Cell => Some(Writer::Node(served)),
        ReaderEngine::Lmdb | ReaderEngine::LmdbRenewed => file.map(Writer::File),
    }
}

impl Writer<'_> {
    /// Makes the puts of batch after batch, so many outstanding at a node or in a commit of a file, for as
    /// long as it goes on after one; puts a second.
    fn write(
        &mut self,
        batches: &[Batch],
        outstanding: usize,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<f64, BenchError> {
        let (began, mut puts) = (now(), 0);
        for batch in batches.iter().cycle() {
            puts += match self {
                Writer::Node(served) => served.put(batch, outstanding)?,
                Writer::File(file) => file.put_durably(batch, outstanding)?,
            };
            if !goes_on() {
                break;
            }
        }
        Ok(puts as f64 / began.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn of microseconds is one in which readers do not overlap.
    #[test]
    fn more_reads_are_wanted_until_a_turn_lasts_long_enough() {
        let (lasts, mut reads, mut trials) = (Duration::from_millis(300), TRIAL_GETS, 0);
        let took = |reads: usize| Duration::from_nanos(100 * reads as u64);
        while let Some(more) = more_reads(reads, [took(reads), 2 * took(reads)], lasts) {
            assert!(more > reads && trials < 10, "{more} after {reads}");
            (reads, trials) = (more, trials + 1);
        }
        assert!(took(reads) >= lasts && took(reads) < 2 * lasts, "{reads}");
        assert_eq!(more_reads(7, [Duration::ZERO; 2], lasts), Some(70));
        assert_eq!(more_reads(7, [Duration::ZERO, 10 * lasts], lasts), None, "the slowest takes its time");
    }
}
