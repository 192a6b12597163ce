//! `console`: what it costs the data path that a browser watches a node, with its stream and what the tree's
//! page asks each second, and that Prometheus reads its metrics each second. The same gets by messages in
//! slices with and without watchers, in turn.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cell_tests::server::Server;

use crate::contest;
use crate::data::{Choice, Dataset, Packed};
use crate::figure::{Figure, Goal, Report, note};
use crate::options::{BenchError, Options};
use crate::processor;
use crate::put::Scratch;
use crate::served::Served;

/// What a slice lasts: watchers ask once a second.
const SLICE: Duration = Duration::from_secs(2);
/// Gets between two looks at the clock.
const GETS: usize = 20_000;
/// Gets outstanding.
const OUTSTANDING: usize = 64;
/// Keys that are got, again and again.
const KEYS: usize = 200_000;
/// What watching may cost.
const COST_MAX: f64 = 0.01;
/// The thread that serves the data path.
const WORKER: &str = "cell-worker";
/// What a browser follows, and asks once a second, on the page that asks most; and what Prometheus asks.
const STREAM: &str = "/api/v1/stream?topics=status,events";
const ASKED: [&str; 3] = ["/api/v1/tree/buckets?columns=256", "/api/v1/nodes", "/metrics"];

/// Whoever watches a node; until it is dropped.
struct Watchers {
    stream: TcpStream,
    threads: Vec<JoinHandle<()>>,
    is_over: &'static AtomicBool,
}

impl Watchers {
    fn begin(http: SocketAddr) -> Result<Watchers, BenchError> {
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        IS_OVER.store(false, Ordering::Release);
        let mut stream = TcpStream::connect(http)?;
        write!(stream, "GET {STREAM} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut lines = stream.try_clone()?;
        let follow = move || {
            let mut bytes = [0; 64 << 10];
            while lines.read(&mut bytes).is_ok_and(|length| length > 0) {}
        };
        let ask = move || {
            while !IS_OVER.load(Ordering::Acquire) {
                for path in ASKED {
                    if let Err(error) = asked(http, path) {
                        note(&format!("{path}: {error}"));
                    }
                }
                std::thread::park_timeout(Duration::from_secs(1));
            }
        };
        let threads = vec![std::thread::spawn(follow), std::thread::spawn(ask)];
        Ok(Watchers { stream, threads, is_over: &IS_OVER })
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let _ = self.stream.shutdown(Shutdown::Both); // a node that has gone has ended it
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join(); // it has said what went wrong
        }
    }
}

/// Asks as who keeps no connection, and reads the answer.
fn asked(http: SocketAddr, path: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(http)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer.starts_with(b"HTTP/1.1 200 ") { Ok(()) } else { Err(std::io::ErrorKind::InvalidData.into()) }
}

/// What a slice was: gets a second, and processor time a get, of all the node's threads and of its worker.
#[derive(Default)]
struct Slices {
    rates: Vec<f64>,
    node_us: Vec<f64>,
    worker_us: Vec<f64>,
    /// Of a second: of threads other than the worker.
    beside_ms: Vec<f64>,
}

/// The processor time of the node's threads, and of its worker.
fn processor_ns(server: &Server) -> [f64; 2] {
    let Some(node) = server.node() else { return [0.0; 2] };
    [processor::time_ns(node), processor::time_of_threads_ns(node, WORKER)].map(|ns| ns as f64)
}

impl Slices {
    #[allow(clippy::disallowed_methods, reason = "a bench measures time")]
    fn take(&mut self, served: &mut Served, keys: &Packed, slice: Duration) -> Result<(), BenchError> {
        let (begin, before, mut gets, mut first) = (Instant::now(), processor_ns(&served.server), 0, 0);
        while begin.elapsed() < slice {
            gets += served.get(keys, first, first + GETS, OUTSTANDING)?;
            first = (first + GETS) % KEYS;
        }
        let (seconds, after, gets) =
            (begin.elapsed().as_secs_f64(), processor_ns(&served.server), gets as f64);
        let [node, worker] = [after[0] - before[0], after[1] - before[1]];
        self.rates.push(gets / seconds);
        self.node_us.push(node / gets / 1e3);
        self.worker_us.push(worker / gets / 1e3);
        self.beside_ms.push((node - worker) / seconds / 1e6);
        Ok(())
    }
}

/// Runs the bench.
///
/// # Errors
/// A node or a client that failed.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let folder = Scratch::new(options.dir.as_deref())?;
    let data = Dataset { entries: options.entries, seed: options.seed };
    let more = crate::served::many_meganodes(data.entries);
    let more: Vec<(&str, &str)> = more.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut served = Served::start(&folder.0.join("console"), data.entries, &more)?;
    served.fill(&data)?;
    served.read_by_messages()?;
    let keys = data.probes(Choice::Uniform, KEYS, options.seed);
    let [meganodes, pairs] = served.shape()?;
    report.note(&format!("{} entries in {meganodes} meganodes of {pairs} pairs", data.entries));
    let mut warm_up = Slices::default();
    let slice = options.lasting(SLICE);
    warm_up.take(&mut served, &keys, slice)?;
    let (mut watched, mut alone) = (Slices::default(), Slices::default());
    for round in 0..options.rounds {
        // Each goes first as often as second.
        for is_watched in [round % 2 == 0, round % 2 == 1] {
            let watchers = is_watched.then(|| Watchers::begin(served.server.http_address())).transpose()?;
            let slices = if is_watched { &mut watched } else { &mut alone };
            slices.take(&mut served, &keys, slice)?;
            drop(watchers);
        }
    }
    served.check_node()?;
    add_rows(&watched, &alone, report)
}

fn add_rows(watched: &Slices, alone: &Slices, report: &mut Report<'_>) -> Result<(), BenchError> {
    let rival = "the same, nobody watching";
    let mut row = |bench: &str, unit, of: fn(&Slices) -> &Vec<f64>, goal| {
        let [ours, theirs] = [watched, alone].map(|slices| contest::median(of(slices)));
        report.add(Figure::beside(format!("console/{bench}"), unit, ours, rival, theirs, goal))
    };
    row("gets by messages", "op/s", |slices| &slices.rates, Goal::AtLeast(1.0 - COST_MAX))?;
    row("worker's processor", "us/op", |slices| &slices.worker_us, Goal::AtMost(1.0 + COST_MAX))?;
    row("node's processor", "us/op", |slices| &slices.node_us, Goal::AtMost(1.0 + COST_MAX))?;
    row("processor beside the worker", "ms/s", |slices| &slices.beside_ms, Goal::None)?;
    Ok(())
}
