//! `stall`: gets by messages beside more writes than a slow disk takes, so that the node refuses most of them
//! for a while; and those writes beside as many that it need not refuse.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cell_client::{Client, ClientOptions, Condition, Operation, Search};
use cell_tests::ending::Ending;

use crate::data::{Choice, Dataset, Packed};
use crate::disk;
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::put::{NO_CHECKPOINTS, Scratch};
use crate::served::{Served, patient};
use crate::times::Times;

/// By how much a write of a log is slower: a batch of 60 values each time.
const DELAY: Duration = Duration::from_millis(10);
const WRITERS: usize = 8;
/// Puts that each has outstanding: four times what a node keeps waiting, and half of it.
const DEEP: usize = 512;
const SHALLOW: usize = 64;
const VALUE: [u8; 4 << 10] = [7; 4 << 10];
/// Keys of one writer.
const KEYS: usize = 1 << 12;
/// Keys that are got, again and again.
const PROBES: usize = 100_000;
/// How long each part lasts.
const LASTS: Duration = Duration::from_secs(6);
/// How long writers go on before anything is counted: until their waits have grown to their longest.
const SETTLES: Duration = Duration::from_secs(2);

/// Runs the bench.
///
/// # Errors
/// A node or a client that failed.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let data = Dataset { entries: options.entries, seed: options.seed };
    let folder = Scratch::new(options.dir.as_deref())?;
    let mut served =
        Served::start_cluster(&folder.0.join("node"), data.entries, &NO_CHECKPOINTS, &["--allow-drills"])?;
    served.fill(&data)?;
    let stall = Stall {
        served: &served,
        probes: data.probes(Choice::Uniform, PROBES, data.seed ^ 0x7374_616c),
        lasts: options.lasting(LASTS),
        settles: options.lasting(SETTLES),
    };
    let alone = stall.gets()?;
    let (beside_fast, fast) = stall.beside(DEEP)?;
    served.server.slow_disk(DELAY);
    let (beside_shallow, shallow) = stall.beside(SHALLOW)?;
    let (beside, deep) = stall.beside(DEEP)?;
    served.server.slow_disk(Duration::ZERO);

    let refused = served.metric("cell_operations_refused_total")?;
    report.note(&format!("{refused:.0} requests were refused; without a delay {fast:.0} puts a second"));
    for (rival, theirs, goal) in [
        ("nobody writes", &alone, Goal::None),
        ("as many writes, no delay", &beside_fast, Goal::AtMost(2.0)),
        ("writes that are not refused", &beside_shallow, Goal::None),
    ] {
        for (part, of_100, goal) in [("p50", 50, Goal::None), ("p99", 99, goal)] {
            let bench = format!("stall/get, {part}");
            report.add(Figure::beside(bench, "us", beside.at(of_100), rival, theirs.at(of_100), goal))?;
        }
    }
    let bench = format!("stall/puts, {WRITERS} x {DEEP}");
    let rival = format!("{WRITERS} x {SHALLOW}, not refused");
    report.add(Figure::beside(bench, "op/s", deep, rival, shallow, Goal::AtLeast(0.9)))?;
    Ok(())
}

/// Who reads and writes.
struct Stall<'a> {
    served: &'a Served,
    probes: Packed,
    lasts: Duration,
    settles: Duration,
}

impl Stall<'_> {
    fn client(&self) -> Result<Client, BenchError> {
        let options = ClientOptions { search: Search::Server, ..patient() };
        self.served.client(options)
    }

    /// Gets one after the other.
    fn gets(&self) -> Result<Times, BenchError> {
        let mut client = self.client()?;
        let mut next = 0;
        Times::during(self.lasts, || {
            client.get(self.probes.get(next % PROBES))?;
            next += 1;
            Ok(())
        })
    }

    /// The same beside writers, and how many puts a second these end meanwhile.
    #[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
    fn beside(&self, outstanding: usize) -> Result<(Times, f64), BenchError> {
        let (stop, ended) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let ending = Ending(&stop);
            let mut writers = Vec::new();
            for writer in 0..WRITERS {
                let (mut client, stop, ended) = (self.client()?, &stop, &ended);
                writers.push(scope.spawn(move || write(&mut client, writer, outstanding, stop, ended)));
            }
            disk::pause(self.settles);
            let (began, before) = (Instant::now(), ended.load(Ordering::Relaxed));
            let gets = self.gets()?;
            let puts = ended.load(Ordering::Relaxed) - before;
            let rate = puts as f64 / began.elapsed().as_secs_f64();
            drop(ending);
            for writer in writers {
                writer.join().expect("a writer does not panic")?;
            }
            Ok((gets, rate))
        })
    }
}

/// Keeps so many puts outstanding until it is stopped, and waits for their ends.
fn write(
    client: &mut Client,
    writer: usize,
    outstanding: usize,
    stop: &AtomicBool,
    ended: &AtomicU64,
) -> Result<(), BenchError> {
    let (mut begun, mut done) = (0, 0);
    loop {
        while !stop.load(Ordering::Relaxed) && begun - done < outstanding {
            let key = format!("stall {writer} {}", begun % KEYS);
            let put = Operation::Put { key: key.as_bytes(), value: &VALUE, condition: Condition::Always };
            client.submit(&put)?;
            begun += 1;
        }
        if begun == done {
            return Ok(());
        }
        if let Some(completion) = client.poll(Duration::from_millis(100)) {
            completion.outcome?;
            done += 1;
            ended.fetch_add(1, Ordering::Relaxed);
        }
    }
}
