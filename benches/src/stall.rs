//! `stall`: gets by messages beside more writes than a slow disk takes, so that the node refuses most of them
//! for a while; and those writes beside as many that it need not refuse.
//!
//! A get is due each millisecond, and its time counts from then. Of a client that waits for each answer, a
//! stall of seconds would be one slow get among thousands of fast ones, and no hundredth of them.
//!
//! The goal of gets is beside those while nobody writes, and beside those with the same slow disk and fewer
//! writes. Beside as many writes without a delay there is none: they take the whole machine, and gets beside
//! them are slow in any case.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cell_client::{Client, ClientOptions, Condition, Operation, Search};
use cell_tests::ending::Ending;

use crate::data::{Choice, Dataset};
use crate::disk;
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::paced::{Probe, Pulse, drive, now, watch};
use crate::put::{NO_CHECKPOINTS, Scratch};
use crate::served::{Served, leases, patient};

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
/// A get is due each time that this has passed.
const INTERVAL: Duration = Duration::from_millis(1);
/// How long each part lasts.
const LASTS: Duration = Duration::from_secs(6);
/// How long writers go on before anything is counted: until their waits have grown to their longest.
const SETTLES: Duration = Duration::from_secs(2);
/// Requests that the node has refused.
const REFUSED: &str = "cell_operations_refused_total";

/// Runs the bench.
///
/// # Errors
/// A node or a client that failed; a node that has refused nothing, beside which nothing is shown.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let data = Dataset { entries: options.entries, seed: options.seed };
    let folder = Scratch::new(options.dir.as_deref())?;
    let words = [&["--allow-drills"][..], leases(options)].concat();
    let mut served = Served::start_cluster(&folder.0.join("node"), data.entries, &NO_CHECKPOINTS, &words)?;
    served.fill(&data)?;
    let keys = data.probes(Choice::Uniform, PROBES, data.seed ^ 0x7374_616c);
    let stall = Stall {
        served: &served,
        probes: (0..keys.len()).map(|at| (keys.get(at).to_vec(), false)).collect(),
        lasts: options.lasting(LASTS),
        settles: options.lasting(SETTLES),
    };
    let alone = stall.gets()?;
    let (beside_fast, fast) = stall.beside(DEEP)?;
    served.server.slow_disk(DELAY);
    let (beside_shallow, shallow) = stall.beside(SHALLOW)?;
    let refused_before = served.metric(REFUSED)?;
    let (beside, deep) = stall.beside(DEEP)?;
    let refused = served.metric(REFUSED)? - refused_before;
    served.server.slow_disk(Duration::ZERO);
    served.check_node()?;

    if refused < 1.0 {
        return Err(wrong("the node has refused no write: it was not stalled"));
    }
    report.note(&format!("{refused:.0} requests were refused; without a delay {fast:.0} puts a second"));
    for (rival, theirs, goal) in [
        ("nobody writes", &alone, Goal::AtMost(2.0)),
        ("writes that are not refused", &beside_shallow, Goal::AtMost(2.0)),
        ("as many writes, no delay", &beside_fast, Goal::None),
    ] {
        let row = |part: &str, ours: f64, theirs: f64, goal| {
            Figure::beside(format!("stall/get, {part}"), "us", ours * 1e3, rival, theirs * 1e3, goal)
        };
        report.add(row("p99", beside.p99_ms, theirs.p99_ms, goal))?;
        report.add(row("longest", beside.longest_ms, theirs.longest_ms, Goal::None))?;
    }
    let bench = format!("stall/puts, {WRITERS} x {DEEP}");
    let rival = format!("{WRITERS} x {SHALLOW}, not refused");
    report.add(Figure::beside(bench, "op/s", deep, rival, shallow, Goal::AtLeast(0.9)))?;
    Ok(())
}

fn wrong(what: &str) -> BenchError {
    BenchError::Io(std::io::Error::other(what.to_owned()))
}

/// How long gets took, each from when it was due.
struct Gets {
    p99_ms: f64,
    longest_ms: f64,
}

/// Who reads and writes.
struct Stall<'a> {
    served: &'a Served,
    probes: Vec<Probe>,
    lasts: Duration,
    settles: Duration,
}

impl Stall<'_> {
    fn client(&self) -> Result<Client, BenchError> {
        let options = ClientOptions { search: Search::Server, ..patient() };
        self.served.client(options)
    }

    /// Gets at their rate. Those that are due in the end are waited for: they may be what took longest.
    fn gets(&self) -> Result<Gets, BenchError> {
        let (mut client, probes, pulse) = (self.client()?, &self.probes, Pulse::default());
        std::thread::scope(|scope| {
            let ending = pulse.ending();
            let load = scope.spawn(|| drive(&mut client, probes, &[], Some(INTERVAL), &pulse));
            watch(&pulse, [Duration::ZERO, self.lasts]);
            drop(ending);
            load.join().expect("the load does not panic")
        })?;
        if pulse.failed() > 0 {
            return Err(wrong("gets failed"));
        }
        Ok(Gets { p99_ms: pulse.take_p99_ms(), longest_ms: pulse.take_longest_ms() })
    }

    /// The same beside writers, and how many puts a second these end meanwhile.
    fn beside(&self, outstanding: usize) -> Result<(Gets, f64), BenchError> {
        let (stop, ended) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let ending = Ending(&stop);
            let mut writers = Vec::new();
            for writer in 0..WRITERS {
                let (mut client, stop, ended) = (self.client()?, &stop, &ended);
                writers.push(scope.spawn(move || write(&mut client, writer, outstanding, stop, ended)));
            }
            disk::pause(self.settles);
            let (began, before) = (now(), ended.load(Ordering::Relaxed));
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
    let (mut submitted, mut done) = (0, 0);
    loop {
        while !stop.load(Ordering::Relaxed) && submitted - done < outstanding {
            let key = format!("stall {writer} {}", submitted % KEYS);
            let put = Operation::Put { key: key.as_bytes(), value: &VALUE, condition: Condition::Always };
            client.submit(&put)?;
            submitted += 1;
        }
        if submitted == done {
            return Ok(());
        }
        if let Some(completion) = client.poll(Duration::from_millis(100)) {
            completion.outcome?;
            done += 1;
            ended.fetch_add(1, Ordering::Relaxed);
        }
    }
}
