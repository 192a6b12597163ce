//! `split`: what splits of meganodes cost a store under full write load: the same random inserts, in turns,
//! into a node of small slots, whose meganodes split all the time, and into one of a single large slot.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cell_client::{Client, ClientOptions, Condition, Operation, Search, Transport};

use crate::contest::{self, Contender};
use crate::data::{Batch, Dataset};
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::put::{First, Scratch};
use crate::served::Served;

/// Puts outstanding.
const OUTSTANDING: usize = 256;
/// Puts between two looks at whether a split runs.
const PIECE: usize = 1_024;
/// A node whose meganodes split.
const SMALL: [(&str, &str); 2] = [("--slot-bytes", "8MiB"), ("--node-region-bytes", "2050MiB")];

/// Runs the bench.
///
/// # Errors
/// A node or a client that failed.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let data = Dataset { entries: options.entries, seed: options.seed };
    let folder = Scratch::new(options.dir.as_deref())?;
    let small = Served::start(&folder.0.join("small"), data.entries, &SMALL)?;
    let large = Served::start(&folder.0.join("large"), data.entries, &[])?;
    let rounds = usize::from(options.rounds).max(50);
    let size = data.entries / rounds as u64;
    let batch = RefCell::new(Batch::default());
    let first = First::default();
    let writers = [Writer::new(&small, true)?, Writer::new(&large, false)?].map(RefCell::new);
    let mut reader = small.client(ClientOptions { search: Search::Client, ..plain() })?;
    let mut longest_get = Duration::ZERO;
    let put = |index: usize| {
        let done = writers[index].borrow_mut().put(&batch.borrow());
        first.count(done)
    };
    let mut contenders = [Contender::new("splits", |_| put(0)), Contender::new("one meganode", |_| put(1))];
    let outcomes = contest::run_prepared(&mut contenders, 0, rounds, |round| {
        let from = round as u64 * size;
        batch.replace(data.batch(from, from + size));
        if round > 0 {
            let mut key = Vec::new();
            data.push_key(from - 1, &mut key);
            let asked = now();
            // What it finds the tests look at; here its time counts.
            let _ = reader.get(&key);
            longest_get = longest_get.max(now() - asked);
        }
    });
    drop(contenders);
    first.end()?;
    let [with, without] = [0, 1].map(|index: usize| outcomes[index].rate_overall);
    let name = "split/puts while meganodes split";
    report.add(Figure::beside(name, "op/s", with, "puts into one meganode", without, Goal::None))?;
    let [ours, theirs] = [0, 1].map(|index: usize| writers[index].borrow().longest.as_secs_f64() * 1e3);
    report.add(Figure::beside("split/longest put", "ms", ours, "into one meganode", theirs, Goal::None))?;
    let [ours, theirs] = [0, 1].map(|index: usize| writers[index].borrow().share(999) * 1e3);
    report.add(Figure::beside(
        "split/p99.9 of a put",
        "ms",
        ours,
        "into one meganode",
        theirs,
        Goal::None,
    ))?;
    if let Some(watch) = &writers[0].borrow().watch {
        let [ours, theirs] = [&watch.splitting, &watch.calm].map(Span::rate);
        report.add(Figure::beside(
            "split/puts while one runs",
            "op/s",
            ours,
            "between",
            theirs,
            Goal::None,
        ))?;
        let [ours, theirs] = [&watch.splitting, &watch.calm].map(|span| span.longest.as_secs_f64() * 1e3);
        // Nobody waits longer than a write of the upper half: from the split's start until its target opens.
        let name = "split/longest write stall of an upper half";
        report.add(Figure::beside(name, "ms", ours, "longest put between", theirs, Goal::None))?;
    }
    let longest = longest_get.as_secs_f64() * 1e3;
    report.add(Figure::alone("split/longest get between", "ms", longest))?;
    let address = small.server.address().to_string();
    let shape = cell_tests::program::run(&["--json", "tree", "show", "--server", &address]);
    let meganodes = shape.out.matches("\"slot\"").count();
    report.add(Figure::alone("split/meganodes in the end", "meganodes", meganodes as f64))?;
    Ok(())
}

fn plain() -> ClientOptions {
    ClientOptions {
        transport: Transport::Auto,
        deadline_ms: 60_000,
        in_flight_max: 4096,
        ..ClientOptions::default()
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

/// Tells pieces in which a split ran from those in which none did.
struct Watch {
    client: Client,
    begun: u64,
    looked: Instant,
    ran: bool,
    splitting: Span,
    calm: Span,
}

impl Watch {
    fn new(served: &Served) -> Result<Self, BenchError> {
        let client = served.client(plain())?;
        let (splitting, calm) = (Span::default(), Span::default());
        Ok(Self { client, begun: 0, looked: now(), ran: false, splitting, calm })
    }

    /// A turn of this contender begins.
    fn begin(&mut self) {
        self.looked = now();
    }

    /// So many puts were done since the last look, the longest in so long.
    fn look(&mut self, puts: usize, longest: Duration) -> Result<(), BenchError> {
        let time = now() - self.looked;
        let [begun, _, _, under_way] = self.client.tree(u32::MAX)?.report().splits;
        let ran = std::mem::replace(&mut self.ran, under_way > 0) || begun != self.begun || under_way > 0;
        let span = if ran { &mut self.splitting } else { &mut self.calm };
        span.puts += puts as u64;
        span.time += time;
        span.longest = span.longest.max(longest);
        (self.begun, self.looked) = (begun, now());
        Ok(())
    }
}

/// Puts, each with its time.
struct Writer {
    client: Client,
    times: Vec<Duration>,
    longest: Duration,
    watch: Option<Watch>,
}

impl Writer {
    fn new(served: &Served, watched: bool) -> Result<Self, BenchError> {
        let watch = if watched { Some(Watch::new(served)?) } else { None };
        Ok(Self { client: served.client(plain())?, times: Vec::new(), longest: Duration::ZERO, watch })
    }

    fn put(&mut self, batch: &Batch) -> Result<u64, BenchError> {
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
                    self.longest = self.longest.max(took);
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

    /// The time within which so many of a thousand puts were done, in seconds.
    fn share(&self, of_thousand: usize) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        times.get(times.len() * of_thousand / 1000).map_or(0.0, Duration::as_secs_f64)
    }
}

#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn now() -> Instant {
    Instant::now()
}
