//! `split`: what splits of meganodes cost a store under full write load: the same random inserts, in turns,
//! into a node of small slots, whose meganodes split all the time, and into one of a single large slot, each
//! with a client that reads one-sided meanwhile. All of it is repeated with fresh nodes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cell_client::{Client, ClientOptions, Condition, Operation, Search};
use cell_random::Random;

use crate::contest::{self, Contender};
use crate::data::{Batch, Dataset};
use crate::disk;
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::put::{First, Scratch};
use crate::served::{Served, patient};

const OUTSTANDING: usize = 256;
/// Puts between two looks at whether a split runs.
const PIECE: usize = 1_024;
/// Turns of each fill, at least.
const ROUNDS: usize = 50;
/// A reader rests so long between two gets: it is there to see stalls, not to take a core.
const REST: Duration = Duration::from_micros(200);
/// A node whose meganodes split.
pub(crate) const SMALL: [(&str, &str); 2] = [("--slot-bytes", "8MiB"), ("--node-region-bytes", "2050MiB")];

/// Runs the bench.
///
/// # Errors
/// A node or a client that failed.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let data = Dataset { entries: options.entries, seed: options.seed };
    let fills: Result<Vec<Fill>, BenchError> = (0..options.repeats())
        .map(|_| Fill::run(&data, &Scratch::new(options.dir.as_deref())?, usize::from(options.rounds)))
        .collect();
    let fills = fills?;
    // With splits, and without.
    let middle = |of: &dyn Fn(&Fill) -> [f64; 2]| {
        [0, 1]
            .map(|side: usize| contest::median(&fills.iter().map(|fill| of(fill)[side]).collect::<Vec<_>>()))
    };
    let mut row = |bench: &str, unit, rival: &str, of: &dyn Fn(&Fill) -> [f64; 2]| {
        let [ours, theirs] = middle(of);
        report.add(Figure::beside(format!("split/{bench}"), unit, ours, rival, theirs, Goal::None))
    };
    let one = "into one meganode";
    row("puts while meganodes split", "op/s", one, &|fill| fill.rates)?;
    row("longest put", "ms", one, &|fill| fill.sides.each_ref().map(|side| share(&side.puts, 1_000)))?;
    row("p99.9 of a put", "ms", one, &|fill| fill.sides.each_ref().map(|side| share(&side.puts, 999)))?;
    let under = "under the same puts into one meganode";
    row("longest one-sided get", "ms", under, &|fill| {
        fill.sides.each_ref().map(|side| share(&side.gets, 1_000))
    })?;
    row("p99.9 of a one-sided get", "ms", under, &|fill| {
        fill.sides.each_ref().map(|side| share(&side.gets, 999))
    })?;
    // Small stores do not split, or in fewer puts than lie between two looks.
    if fills.iter().all(|fill| fill.splitting.puts > 0 && fill.calm.puts > 0) {
        row("puts while one runs", "op/s", "between", &|fill| [&fill.splitting, &fill.calm].map(Span::rate))?;
        // Nobody waits longer than a write of the upper half: from the split's start until its target opens.
        let stall = "longest write stall of an upper half";
        row(stall, "ms", "longest put between", &|fill| {
            [&fill.splitting, &fill.calm].map(|span| span.longest.as_secs_f64() * 1e3)
        })?;
    }
    let [meganodes, _] = middle(&|fill| [fill.meganodes as f64; 2]);
    if meganodes < 2.0 {
        report.note("so few entries are one meganode: none has split");
    }
    report.add(Figure::alone("split/meganodes in the end", "meganodes", meganodes))?;
    for fill in &fills {
        let longest = fill.sides.each_ref().map(|side| share(&side.puts, 1_000));
        report.note(&format!("puts/s {:.0?}, longest put {longest:.1?} ms", fill.rates));
    }
    Ok(())
}

/// Two fresh nodes, filled with the same data by turns.
struct Fill {
    rates: [f64; 2],
    /// With splits, and without.
    sides: [Times; 2],
    splitting: Span,
    calm: Span,
    meganodes: usize,
}

/// How long each put and each get took.
struct Times {
    puts: Vec<Duration>,
    gets: Vec<Duration>,
}

/// The time within which so many of a thousand were done, in milliseconds.
fn share(times: &[Duration], of_thousand: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    times.get((times.len() * of_thousand / 1000).min(last)).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

impl Fill {
    fn run(data: &Dataset, folder: &Scratch, rounds: usize) -> Result<Self, BenchError> {
        let mut small = Served::start(&folder.0.join("small"), data.entries, &SMALL)?;
        let large = Served::start(&folder.0.join("large"), data.entries, &[])?;
        let rounds = rounds.max(ROUNDS);
        let size = data.entries / rounds as u64;
        let batch = RefCell::new(Batch::default());
        let first = First::default();
        let writers = [Writer::new(&small, true)?, Writer::new(&large, false)?].map(RefCell::new);
        let readers = [Reader::start(&small, *data)?, Reader::start(&large, *data)?];
        let put = |index: usize, round: usize| {
            let reader = &readers[index];
            reader.reads(true);
            let done = writers[index].borrow_mut().put(&batch.borrow());
            reader.reads(false);
            reader.written.store((round as u64 + 1) * size, Ordering::Relaxed);
            first.count(done)
        };
        let mut contenders = [
            Contender::new("splits", |round| put(0, round)),
            Contender::new("one meganode", |round| put(1, round)),
        ];
        let outcomes = contest::run_prepared(&mut contenders, 0, rounds, |round| {
            let from = round as u64 * size;
            batch.replace(data.batch(from, from + size));
        });
        drop(contenders);
        first.end()?;
        small.check_node()?;
        large.check_node()?;
        let [gets, gets_large] = readers.map(Reader::end);
        let [splits, one] = writers.map(RefCell::into_inner);
        let (splitting, calm) = splits.watch.map(|watch| (watch.splitting, watch.calm)).unwrap_or_default();
        let [meganodes, _] = small.shape()?;
        Ok(Self {
            rates: [0, 1].map(|index: usize| outcomes[index].rate_overall),
            sides: [Times { puts: splits.times, gets: gets? }, Times { puts: one.times, gets: gets_large? }],
            splitting,
            calm,
            meganodes,
        })
    }
}

/// A thread that reads one-sided while its node is written.
struct Reader {
    thread: JoinHandle<Result<Vec<Duration>, BenchError>>,
    reading: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    /// Entries that are there.
    written: Arc<AtomicU64>,
}

impl Reader {
    fn start(served: &Served, data: Dataset) -> Result<Self, BenchError> {
        let mut client = served.client(ClientOptions { search: Search::Client, ..patient() })?;
        let [reading, stop] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let written = Arc::new(AtomicU64::new(0));
        let (reads, ends, there) = (Arc::clone(&reading), Arc::clone(&stop), Arc::clone(&written));
        let thread = std::thread::spawn(move || {
            let (mut times, mut key) = (Vec::new(), Vec::new());
            let mut random = Random::new(data.seed ^ 0x7265_6164);
            while !ends.load(Ordering::Relaxed) {
                let entries = there.load(Ordering::Relaxed);
                if entries > 0 && reads.load(Ordering::Relaxed) {
                    key.clear();
                    data.push_key(random.below(entries), &mut key);
                    let asked = now();
                    client.get(&key)?;
                    times.push(now() - asked);
                }
                disk::pause(REST);
            }
            Ok(times)
        });
        Ok(Self { thread, reading, stop, written })
    }

    fn reads(&self, reads: bool) {
        self.reading.store(reads, Ordering::Relaxed);
    }

    fn end(self) -> Result<Vec<Duration>, BenchError> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(Err(BenchError::Engine))
    }
}

/// What was put while splits ran, or while none did.
#[derive(Default)]
struct Span {
    puts: u64,
    time: Duration,
    longest: Duration,
}

impl Span {
    fn rate(&self) -> f64 {
        self.puts as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

/// Distinguishes pieces in which a split ran from those in which none did.
struct Watch {
    client: Client,
    started: u64,
    looked: Instant,
    ran: bool,
    splitting: Span,
    calm: Span,
}

impl Watch {
    fn new(served: &Served) -> Result<Self, BenchError> {
        let client = served.client(patient())?;
        let (splitting, calm) = (Span::default(), Span::default());
        Ok(Self { client, started: 0, looked: now(), ran: false, splitting, calm })
    }

    /// A turn of this contender begins.
    fn begin(&mut self) {
        self.looked = now();
    }

    /// So many puts were done since the last look, the longest in so long.
    fn look(&mut self, puts: usize, longest: Duration) -> Result<(), BenchError> {
        let time = now() - self.looked;
        let [started, _, _, under_way] = self.client.tree(u32::MAX)?.report().splits;
        let ran = std::mem::replace(&mut self.ran, under_way > 0) || started != self.started || under_way > 0;
        let span = if ran { &mut self.splitting } else { &mut self.calm };
        span.puts += puts as u64;
        span.time += time;
        span.longest = span.longest.max(longest);
        (self.started, self.looked) = (started, now());
        Ok(())
    }
}

/// Puts, each with its time.
pub(crate) struct Writer {
    client: Client,
    pub(crate) times: Vec<Duration>,
    watch: Option<Watch>,
}

impl Writer {
    pub(crate) fn new(served: &Served, watched: bool) -> Result<Self, BenchError> {
        let watch = if watched { Some(Watch::new(served)?) } else { None };
        Ok(Self { client: served.client(patient())?, times: Vec::new(), watch })
    }

    pub(crate) fn put(&mut self, batch: &Batch) -> Result<u64, BenchError> {
        let (count, mut submitted) = (batch.keys.len(), 0);
        let mut under_way = BTreeMap::new();
        let (mut piece, mut longest) = (0, Duration::ZERO);
        if let Some(watch) = &mut self.watch {
            watch.begin();
        }
        while submitted < count || !under_way.is_empty() {
            while submitted < count && under_way.len() < OUTSTANDING {
                let (key, value) = (batch.keys.get(submitted), batch.values.get(submitted));
                let put = Operation::Put { key, value, condition: Condition::Always };
                under_way.insert(self.client.submit(&put)?, now());
                submitted += 1;
            }
            if let Some(completion) = self.client.poll(Duration::from_millis(100)) {
                completion.outcome?;
                if let Some(asked) = under_way.remove(&completion.ticket) {
                    let took = now() - asked;
                    self.times.push(took);
                    (piece, longest) = (piece + 1, longest.max(took));
                }
            }
            if piece >= PIECE
                && let Some(watch) = &mut self.watch
            {
                watch.look(std::mem::take(&mut piece), std::mem::take(&mut longest))?;
            }
        }
        Ok(count as u64)
    }
}

#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
