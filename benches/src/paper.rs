//! `paper`: the paper's tables by the model of `benches/paper`; with `--measured` one server and its clients
//! on this machine, beside the model that is made from what a single client measures. It is Figure 4 of the
//! paper as far as a machine goes: searches one by one, no cache of tree nodes, and ever more clients.
//!
//! Clients sleep until their answer is there (`client_spin_us` is 0). One that looks for it takes the core
//! from whom it waits for, where threads are more than cores; and what a search costs it would be lost in
//! what it spends on looking.

use std::io::Write;
use std::num::NonZero;
use std::sync::Barrier;
use std::time::Duration;

use cell_client::{Client, ClientOptions, Search, Transport};
use cell_paper::measured::{ClientsRow, OverTransport, SingleClient, SingleSearch, sheets};
use rustix::process::Pid;

use crate::contest::median;
use crate::data::{Choice, Dataset, Packed};
use crate::figure::note;
use crate::options::{BenchError, PaperBenchOptions};
use crate::paced::now;
use crate::processor::{monotonic_ns, thread_time_ns, time_of_threads_ns};
use crate::put::{NO_CHECKPOINTS, Scratch};
use crate::reads::options;
use crate::served::Served;
use crate::together::{self, Stint};

/// Clients that search at once.
const CLIENTS: [usize; 4] = [1, 2, 4, 8];
/// Who searches, in the order of [`cell_paper::measured::Method::ALL`].
const METHODS: [Search; 3] = [Search::Server, Search::Client, Search::Auto];
/// The node's threads that answer: searches, and one-sided reads over TCP.
const ANSWERING: [&str; 2] = ["cell-worker", "cell-one-sided"];
/// For so long the clients of one method search before it is the next one's turn.
const SLICE: Duration = Duration::from_millis(250);
/// Turns that do not count: within a second the selector has settled.
const WARM_UPS: usize = 4;
/// Searches between two looks at the clock.
const STEP: u64 = 16;
/// Keys that are looked for, again and again.
const KEYS: usize = 200_000;

/// Runs the bench.
///
/// # Errors
/// The output cannot be written, or a node or a client failed.
pub fn run(options: &PaperBenchOptions, out: &mut dyn Write) -> Result<(), BenchError> {
    // At once: what is measured comes after the minutes of the model.
    let folder = options.measured.then(|| Scratch::new(options.dir.as_deref())).transpose()?;
    if !options.measured || !options.model.named().is_empty() {
        cell_paper::run(&options.model, out)?;
    }
    if let Some(folder) = folder {
        let measured = measure(options, &folder)?;
        for sheet in sheets(&measured, options.model.seed, options.model.short) {
            sheet.write(out, options.model.json)?;
            if options.model.json {
                // For who looks on: another run would have other figures.
                // Who has closed standard error does not look on.
                let _ = sheet.write(&mut std::io::stderr(), false);
            }
        }
    }
    Ok(())
}

/// One server, over each transport that there is.
fn measure(options: &PaperBenchOptions, folder: &Scratch) -> Result<Vec<OverTransport>, BenchError> {
    let common = options.common();
    let data = Dataset { entries: common.entries, seed: common.seed };
    let flags: Vec<&str> = options.server_flag.iter().map(String::as_str).collect();
    let mut served = Served::start_cluster(&folder.0.join("node"), data.entries, &NO_CHECKPOINTS, &flags)?;
    served.fill(&data)?;
    let [meganodes, pairs] = served.shape()?;
    note(&format!("{} entries, {meganodes} meganodes in {pairs} pairs", data.entries));
    let count = usize::try_from(data.entries).unwrap_or(usize::MAX).min(KEYS);
    let keys = data.probes(Choice::Uniform, count, data.seed ^ 0x7061_7065);
    let node = served.server.node();
    let bench = Bench {
        served: &served,
        node,
        keys: &keys,
        slice: common.lasting(SLICE),
        warm_ups: if common.is_rehearsal() { 1 } else { WARM_UPS },
        rounds: usize::from(common.rounds),
    };
    let mut measured = vec![bench.over(Transport::Shm)?, bench.over(Transport::Tcp)?];
    // A device, a build that knows it and a node that offers it: without one of them there is no connection.
    match bench.client(Transport::Verbs, Search::Server).map(drop) {
        Ok(()) => measured.push(bench.over(Transport::Verbs)?),
        Err(error) => note(&format!("SKIPPED: one server and its clients over verbs: {error}")),
    }
    served.check_node()?;
    served.server.kill_all();
    Ok(measured)
}

struct Bench<'a> {
    served: &'a Served,
    node: Option<Pid>,
    keys: &'a Packed,
    slice: Duration,
    warm_ups: usize,
    rounds: usize,
}

/// A client, and which key it looks for next.
struct Searcher {
    client: Client,
    next: usize,
}

/// What one searcher did.
struct Done {
    stint: Stint,
    client_ns: u64,
}

/// What all searchers of one method did.
#[derive(Default)]
struct Tally {
    /// Searches a second, of each slice.
    rates: Vec<f64>,
    searches: u64,
    client_ns: u64,
    /// Of the node's threads, by [`ANSWERING`].
    server_ns: [u64; 2],
    counted: Counted,
}

/// What clients have counted.
#[derive(Clone, Copy, Default)]
struct Counted {
    /// One-sided reads.
    reads: u64,
    /// Searches that a client has answered itself.
    done: u64,
    /// Decisions by a selector.
    by_server: u64,
    one_sided: u64,
}

impl Bench<'_> {
    fn client(&self, transport: Transport, search: Search) -> Result<Client, BenchError> {
        self.served.client(ClientOptions { cache_inner: false, spin_us: 0, ..options(transport, search) })
    }

    fn over(&self, transport: Transport) -> Result<OverTransport, BenchError> {
        let mut tallies = Vec::new();
        for clients in CLIENTS {
            tallies.push(self.take_turns(transport, clients)?);
        }
        let row = |(clients, methods): (usize, &[Tally; 3])| ClientsRow {
            clients,
            rates_k: methods.each_ref().map(|tally| median(&tally.rates) / 1e3),
            server_side_percent: methods[2].counted.server_side_percent(),
        };
        let single = SingleClient {
            cores: std::thread::available_parallelism().map_or(1, NonZero::get),
            by_server: tallies[0][0].single(0),
            one_sided: tallies[0][1].single(1),
        };
        let rows = CLIENTS.into_iter().zip(&tallies).map(row).collect();
        Ok(OverTransport { transport: transport.name(), single, rows })
    }

    /// So many clients by each method, slice by slice, in an order that reverses each round.
    fn take_turns(&self, transport: Transport, clients: usize) -> Result<[Tally; 3], BenchError> {
        let mut crews = Vec::new();
        for search in METHODS {
            let crew: Result<Vec<Searcher>, BenchError> = (0..clients)
                .map(|nth| {
                    let client = self.client(transport, search)?;
                    Ok(Searcher { client, next: nth * self.keys.len() / clients })
                })
                .collect();
            crews.push(crew?);
        }
        let mut tallies: [Tally; 3] = Default::default();
        for round in 0..self.warm_ups + self.rounds {
            let mut order = [0, 1, 2];
            if round % 2 == 1 {
                order.reverse();
            }
            for method in order {
                let slice = self.search(&mut crews[method])?;
                if round >= self.warm_ups {
                    tallies[method].add(slice);
                }
            }
        }
        tallies[1].demand_one_sided(transport)?;
        Ok(tallies)
    }

    /// All searchers of a method at once, for a slice.
    fn search(&self, crew: &mut [Searcher]) -> Result<Tally, BenchError> {
        let (used_ns, counted) = (self.answering_ns(), Counted::by(crew));
        let (start, keys, time) = (Barrier::new(crew.len()), self.keys, self.slice);
        let done: Result<Vec<Done>, BenchError> = std::thread::scope(|scope| {
            let start = &start;
            let searches: Vec<_> = crew
                .iter_mut()
                .map(|searcher| {
                    scope.spawn(move || {
                        start.wait();
                        searcher.search(keys, time)
                    })
                })
                .collect();
            searches.into_iter().map(|one| one.join().expect("a client does not panic")).collect()
        });
        let done = done?;
        let stints: Vec<Stint> = done.iter().map(|one| one.stint).collect();
        let [worker_ns, reader_ns] = self.answering_ns();
        Ok(Tally {
            rates: vec![together::rate(&stints)],
            searches: stints.iter().map(|stint| stint.operations).sum(),
            client_ns: done.iter().map(|one| one.client_ns).sum(),
            server_ns: [worker_ns.saturating_sub(used_ns[0]), reader_ns.saturating_sub(used_ns[1])],
            counted: Counted::by(crew).since(counted),
        })
    }

    fn answering_ns(&self) -> [u64; 2] {
        ANSWERING.map(|name| self.node.map_or(0, |node| time_of_threads_ns(node, name)))
    }
}

impl Searcher {
    /// Looks for one key after the other; each of them is there.
    fn search(&mut self, keys: &Packed, time: Duration) -> Result<Done, BenchError> {
        let (began, began_ns, used_ns) = (now(), monotonic_ns(), thread_time_ns());
        let (mut searches, mut found) = (0, 0);
        while searches == 0 || began.elapsed() < time {
            for _ in 0..STEP {
                found += u64::from(self.client.search(keys.get(self.next))?);
                self.next = (self.next + 1) % keys.len();
            }
            searches += STEP;
        }
        let (ended_ns, client_ns) = (monotonic_ns(), thread_time_ns() - used_ns);
        if found != searches {
            return Err(BenchError::Disagreement { ours: found, theirs: searches });
        }
        Ok(Done { stint: Stint { operations: searches, began_ns, ended_ns }, client_ns })
    }
}

impl Counted {
    fn by(crew: &[Searcher]) -> Counted {
        let mut counted = Counted::default();
        for Searcher { client, .. } in crew {
            if let Some(counters) = client.one_sided_counters() {
                counted.reads += counters.reads;
                counted.done += counters.done;
            }
            if let Some(report) = client.selector_report() {
                counted.by_server += report.decisions.server;
                counted.one_sided += report.decisions.one_sided;
            }
        }
        counted
    }

    fn since(self, before: Counted) -> Counted {
        Counted {
            reads: self.reads - before.reads,
            done: self.done - before.done,
            by_server: self.by_server - before.by_server,
            one_sided: self.one_sided - before.one_sided,
        }
    }

    fn server_side_percent(self) -> f64 {
        100.0 * self.by_server as f64 / (self.by_server + self.one_sided).max(1) as f64
    }
}

impl Tally {
    fn add(&mut self, slice: Tally) {
        self.rates.extend(slice.rates);
        self.searches += slice.searches;
        self.client_ns += slice.client_ns;
        self.server_ns = [0, 1].map(|at: usize| self.server_ns[at] + slice.server_ns[at]);
        self.counted.reads += slice.counted.reads;
        self.counted.done += slice.counted.done;
        self.counted.by_server += slice.counted.by_server;
        self.counted.one_sided += slice.counted.one_sided;
    }

    /// A client whose reads a server does not permit, or a device does not do, has the server search: that is
    /// not what was to be measured. One in ten may be such, of a node that a busy machine held up.
    fn demand_one_sided(&self, transport: Transport) -> Result<(), BenchError> {
        let by_server = self.searches.saturating_sub(self.counted.done);
        if by_server * 10 > self.searches {
            let (transport, searches) = (transport.name(), self.searches);
            return Err(BenchError::ByServer { transport, by_server, searches });
        }
        Ok(())
    }

    /// One search, answered by this one of [`ANSWERING`].
    fn single(&self, answering: usize) -> SingleSearch {
        let each = |all: u64| all as f64 / self.searches.max(1) as f64;
        SingleSearch {
            whole_ns: 1e9 / median(&self.rates),
            client_ns: each(self.client_ns),
            server_ns: each(self.server_ns[answering]),
            reads: each(self.counted.reads),
        }
    }
}
