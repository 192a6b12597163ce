//! `selector`: what `search = auto` reaches of the best fixed split of the searches between the server's
//! processor and one-sided reads, with the adaptive rule and with the paper's, while a competitor takes more
//! or less of the worker's core.
//!
//! Thirteen clients of one process, eleven with a fixed share and one a rule, take turns in short slices of
//! the same mix. The best share is picked by the even rounds' medians and compared in the odd rounds, so that
//! luck in the picking does not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cell_client::{Client, ClientOptions, Condition, Operation, Policy, Search, SelectorSettings, Transport};
use cell_protocol::{Bound, Scan};
use cell_selector::{Question, Sample, SearchKind, SearchPath, Selector};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::Pid;

use crate::contest::median;
use crate::data::{Choice, Dataset, Packed};
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, PartOptions};
use crate::processor::bind;
use crate::put::Scratch;
use crate::served::{Served, patient};

/// Fixed shares of the searches that go to the server: tenths.
const SHARES: u32 = 11;
const SLICE: Duration = Duration::from_millis(100);
/// With few rounds, which are no measurement.
const SLICE_SHORT: Duration = Duration::from_millis(4);
/// Operations between two looks at the clock.
const STEP: usize = 64;
/// Entries of a scan of YCSB's workload E: from 1 to so many.
const SCAN_ENTRIES_MAX: u32 = 100;
const VALUE: &[u8] = &[b'v'; 100];
/// A competitor works for a part of each of these.
const PERIOD: Duration = Duration::from_millis(4);
/// How much of the worker's core is taken, in percent of the competitor's time.
const LOADS: [u32; 3] = [0, 50, 100];
/// After a step in load: when the rate is looked at; it is for half as long.
const SETTLED: Duration = Duration::from_secs(1);
/// Steps of each contender.
const STEPS: usize = 4;

/// What part of its operations a workload has, in percent.
struct Mix {
    name: &'static str,
    in_flight: usize,
    choice: Choice,
    puts: u32,
    scans: u32,
    /// Whether reads look for entries only.
    searches: bool,
}

impl Mix {
    const fn of(name: &'static str, in_flight: usize, choice: Choice, puts: u32) -> Mix {
        Mix { name, in_flight, choice, puts, scans: 0, searches: false }
    }
}

/// The part that asks the selector alone, and how often in a round.
const DECISION: &str = "a decision and a sample";
const DECISIONS: u64 = 100_000;

const MIXES: [Mix; 8] = [
    Mix { searches: true, ..Mix::of("search", 1, Choice::Uniform, 0) },
    Mix { searches: true, ..Mix::of("search", 16, Choice::Uniform, 0) },
    Mix::of("get", 1, Choice::Uniform, 0),
    Mix::of("get", 16, Choice::Uniform, 0),
    Mix::of("YCSB A", 16, Choice::Zipf, 50),
    Mix::of("YCSB B", 16, Choice::Zipf, 5),
    Mix::of("YCSB C", 16, Choice::Zipf, 0),
    Mix { scans: 95, ..Mix::of("YCSB E", 16, Choice::Zipf, 5) },
];

/// Runs the bench.
///
/// # Errors
/// A node or a client that failed.
pub fn run(parts: &PartOptions, report: &mut Report<'_>) -> Result<(), BenchError> {
    parts.check(&names())?;
    let options = &parts.options;
    if parts.wants(DECISION) {
        decision(options.rounds, report)?;
    }
    if !names_served().iter().any(|name| parts.wants(name)) {
        return Ok(());
    }
    let data = Dataset { entries: options.entries, seed: options.seed };
    let folder = Scratch::new(options.dir.as_deref())?;
    let mut served = Served::start(&folder.0.join("node"), data.entries, &[])?;
    served.fill(&data)?;
    let competitor = Competitor::beside(served.server.node())?;
    if !competitor.shares_the_core {
        report.note("one core, or no leave to choose: worker, client and competitor run where they are put");
    }
    let keys = [Choice::Uniform, Choice::Zipf].map(|choice| {
        data.probes(choice, usize::try_from(data.entries).unwrap_or(usize::MAX).min(200_000), 7)
    });
    let bench =
        Bench { served: &served, keys: &keys, competitor: &competitor, rounds: usize::from(options.rounds) };
    for transport in [Transport::Tcp, Transport::Shm] {
        for mix in &MIXES {
            for load in LOADS {
                let what = name(transport, mix, load);
                if parts.wants(&what) {
                    bench.compare(&what, transport, mix, load, report)?;
                }
            }
        }
        if parts.wants(&name_of_steps(transport)) {
            bench.step_in_load(transport, &MIXES[3], report)?;
        }
    }
    served.server.kill_all();
    Ok(())
}

/// The name of a mix at a load.
fn name(transport: Transport, mix: &Mix, load: u32) -> String {
    format!("{} x{}, {}, core taken {load} %", mix.name, mix.in_flight, word(transport))
}

fn name_of_steps(transport: Transport) -> String {
    format!("steps in load, {}", word(transport))
}

/// The parts, as `--only` knows them.
fn names() -> Vec<String> {
    [names_served(), vec![DECISION.to_owned()]].concat()
}

/// Those that want a served store.
fn names_served() -> Vec<String> {
    let of = |transport: Transport| {
        let mixes = MIXES.iter().flat_map(move |mix| LOADS.map(|load| name(transport, mix, load)));
        mixes.chain([name_of_steps(transport)])
    };
    [Transport::Tcp, Transport::Shm].into_iter().flat_map(of).collect()
}

/// What a search in place costs at the selector. The difference of two numbers of rounds under
/// `valgrind --tool=callgrind` tells the instructions of one.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn decision(rounds: u16, report: &mut Report<'_>) -> Result<(), BenchError> {
    let kind = SearchKind::Point;
    let random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut selector = Selector::new(SelectorSettings::default(), random);
    let (count, mut now_ns, started) = (DECISIONS * u64::from(rounds), 1, Instant::now());
    for at in 0..count {
        let question = Question { now_ns, kind, meganode: None, one_sided: Ok(()), in_hand: 0 };
        let (path, latency_ns) = (selector.decide(&question).path, 1_500 + at % 100);
        now_ns += latency_ns;
        let sample = match path {
            SearchPath::Server => Sample::Server { kind, latency_ns: 20 * latency_ns },
            SearchPath::OneSided => Sample::InPlace { kind, latency_ns },
        };
        selector.on_sample(now_ns, sample);
    }
    let ns = started.elapsed().as_secs_f64() * 1e9 / count as f64;
    report.note(&format!("{:?}", selector.decisions()));
    report.add(Figure::alone(format!("selector/{DECISION}"), "ns", ns))?;
    Ok(())
}

struct Bench<'a> {
    served: &'a Served,
    keys: &'a [Packed; 2],
    competitor: &'a Competitor,
    rounds: usize,
}

/// A client with one rule, and its rates, one a round.
struct Contender {
    client: Client,
    random: Xoshiro256PlusPlus,
    rates: Vec<f64>,
}

impl Contender {
    /// The median rate of the even rounds, or of the odd ones.
    fn rate(&self, odd: usize) -> f64 {
        median(&self.rates.iter().copied().skip(odd).step_by(2).collect::<Vec<_>>())
    }
}

impl Bench<'_> {
    /// Clients with fixed shares, by tenths, then with the paper's rule and with the adaptive one.
    fn contenders(&self, transport: Transport) -> Result<Vec<Contender>, BenchError> {
        let plain = ClientOptions::default().selector;
        let fixed = |tenths: u32| {
            let fixed_share = f64::from(tenths) / f64::from(SHARES - 1);
            SelectorSettings { policy: Policy::Fixed, fixed_share, ..plain.clone() }
        };
        let rule = |policy| SelectorSettings { policy, ..plain.clone() };
        let settings = (0..SHARES).map(fixed).chain([Policy::Paper, Policy::Adaptive].map(rule));
        settings
            .enumerate()
            .map(|(index, selector)| self.contender(transport, selector, index as u64))
            .collect()
    }

    fn contender(
        &self,
        transport: Transport,
        selector: SelectorSettings,
        seed: u64,
    ) -> Result<Contender, BenchError> {
        let options = ClientOptions { transport, search: Search::Auto, selector, ..patient() };
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Ok(Contender { client: self.served.client(options)?, random, rates: Vec::new() })
    }

    fn slice(&self) -> Duration {
        if self.rounds < 5 { SLICE_SHORT } else { SLICE }
    }

    /// One mix at one load: both rules beside the best fixed share.
    fn compare(
        &self,
        what: &str,
        transport: Transport,
        mix: &Mix,
        load: u32,
        report: &mut Report<'_>,
    ) -> Result<(), BenchError> {
        self.competitor.take(load);
        let mut contenders = self.contenders(transport)?;
        let warm_up = if self.rounds < 5 { 1 } else { 4 };
        for round in 0..warm_up + 2 * self.rounds {
            let turn = round % contenders.len();
            for at in 0..contenders.len() {
                let contender = &mut contenders[(at + turn) % usize::try_from(SHARES + 2).unwrap_or(1)];
                let rate = self.work(contender, mix, self.slice())?;
                if round >= warm_up {
                    contender.rates.push(rate);
                }
            }
        }
        self.competitor.take(0);
        self.served.check_node()?;
        report_rules(&contenders, what, 0.97, report)
    }

    /// Both rules while the competitor comes and goes: the rate a second after each step beside that of the
    /// best fixed share at that load. Picked by half of the steps and compared by the other, as in `compare`.
    fn step_in_load(
        &self,
        transport: Transport,
        mix: &Mix,
        report: &mut Report<'_>,
    ) -> Result<(), BenchError> {
        let settled = if self.rounds < 5 { SLICE / 5 } else { SETTLED };
        for load in [100, 0] {
            let mut contenders = self.contenders(transport)?;
            for _ in 0..STEPS {
                for contender in &mut contenders {
                    self.competitor.take(100 - load);
                    self.work(contender, mix, settled)?;
                    self.competitor.take(load);
                    self.work(contender, mix, settled)?;
                    let rate = self.work(contender, mix, settled / 2)?;
                    contender.rates.push(rate);
                }
            }
            self.served.check_node()?;
            let what = format!(
                "{} x{}, {}, 1 s after the core was {}",
                mix.name,
                mix.in_flight,
                word(transport),
                if load == 0 { "given back" } else { "taken" }
            );
            report_rules(&contenders, &what, 0.95, report)?;
        }
        self.competitor.take(0);
        Ok(())
    }

    /// Does operations of a mix for so long; how many a second it was.
    #[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
    fn work(&self, contender: &mut Contender, mix: &Mix, time: Duration) -> Result<f64, BenchError> {
        let Contender { client, random, .. } = contender;
        let keys = &self.keys[usize::from(mix.choice != Choice::Uniform)];
        let began = Instant::now();
        let (mut submitted, mut completed) = (0_usize, 0_usize);
        loop {
            let goes_on = submitted % STEP != 0 || began.elapsed() < time;
            while goes_on && submitted - completed < mix.in_flight {
                let first = random.random_range(0..keys.len());
                client.submit(&operation(mix, keys.get(first), random))?;
                submitted += 1;
                if submitted.is_multiple_of(STEP) {
                    break;
                }
            }
            if submitted == completed {
                return Ok(completed as f64 / began.elapsed().as_secs_f64());
            }
            let mut next = client.poll(Duration::from_millis(100));
            while let Some(completion) = next {
                completion.outcome?;
                completed += 1;
                next = if submitted > completed { client.poll(Duration::ZERO) } else { None };
            }
        }
    }
}

/// Both rules, the last two contenders, beside the best fixed share of the others: it is picked by the even
/// rates of each and compared by the odd ones.
fn report_rules(
    contenders: &[Contender],
    what: &str,
    goal: f64,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let (fixed, rules) = contenders.split_at(contenders.len() - 2);
    let best = (0..fixed.len()).max_by(|a, b| fixed[*a].rate(0).total_cmp(&fixed[*b].rate(0)));
    let best = best.unwrap_or(0);
    let rates: Vec<String> = fixed.iter().map(|one| format!("{:.0}", one.rate(1) / 1000.0)).collect();
    report.note(&format!(
        "{what}: thousand op/s by fixed shares, 0 to 100 % by the server: {}",
        rates.join(" ")
    ));
    for (contender, rule) in rules.iter().zip(["paper", "adaptive"]) {
        let rival = format!("best fixed share, {} % by the server", best * 10);
        let goal = if rule == "adaptive" { Goal::AtLeast(goal) } else { Goal::None };
        let name = format!("selector/{rule}, {what}");
        report.add(Figure::beside(
            name.clone(),
            "op/s",
            contender.rate(1),
            rival,
            fixed[best].rate(1),
            goal,
        ))?;
        if let Some(decisions) = contender.client.selector_report().map(|report| report.decisions) {
            let all = (decisions.server + decisions.one_sided).max(1);
            report.note(&format!("{name}: {} % by the server", decisions.server * 100 / all));
        }
    }
    Ok(())
}

fn operation<'k>(mix: &Mix, key: &'k [u8], random: &mut impl Rng) -> Operation<'k> {
    let drawn = random.random_range(0..100);
    if drawn < mix.puts {
        return Operation::Put { key, value: VALUE, condition: Condition::Always };
    }
    if drawn < mix.puts + mix.scans {
        let limit_entries = random.random_range(1..=SCAN_ENTRIES_MAX);
        return Operation::Scan(Scan { start: Bound::Included(key), limit_entries, ..Scan::default() });
    }
    if mix.searches { Operation::Search { key } } else { Operation::Get { key } }
}

fn word(transport: Transport) -> &'static str {
    match transport {
        Transport::Shm => "shm",
        _ => "tcp",
    }
}

/// Who takes a part of the worker's core.
struct Competitor {
    /// In percent; above 100: end.
    load: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
    /// Whether worker and competitor have one core, and the client another.
    shares_the_core: bool,
}

impl Competitor {
    /// Binds a node's worker and the competitor to the first core; this thread to the second, with what
    /// stands for the node's network card.
    fn beside(node: Option<Pid>) -> Result<Competitor, BenchError> {
        let shares_the_core = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1)
            && node.is_some_and(|node| bind_threads(node).is_ok())
            && bind(None, 1).is_ok();
        let load = Arc::new(AtomicU32::new(0));
        let shared = Arc::clone(&load);
        let thread = std::thread::Builder::new().name("competitor".into()).spawn(move || {
            if shares_the_core {
                let _ = bind(None, 0); // it was permitted to this process a moment ago
            }
            compete(&shared);
        })?;
        Ok(Competitor { load, thread: Some(thread), shares_the_core })
    }

    fn take(&self, percent: u32) {
        self.load.store(percent, Ordering::Relaxed);
    }
}

impl Drop for Competitor {
    fn drop(&mut self) {
        self.load.store(u32::MAX, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a competitor that panicked has ended as well
        }
    }
}

/// Works for a part of each period.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn compete(load: &AtomicU32) {
    let mut sum = 0_u64;
    loop {
        let percent = load.load(Ordering::Relaxed);
        if percent > 100 {
            return;
        }
        let works = PERIOD * percent / 100;
        let began = Instant::now();
        while began.elapsed() < works {
            for step in 0..1_000 {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(step));
            }
        }
        std::thread::sleep(PERIOD - works);
    }
}

/// Binds the worker of a node to the first core and all its other threads to the second.
fn bind_threads(node: Pid) -> std::io::Result<()> {
    for task in std::fs::read_dir(format!("/proc/{}/task", node.as_raw_nonzero()))? {
        let task = task?;
        let number = task.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
        let name = std::fs::read_to_string(task.path().join("comm"))?;
        bind(number, usize::from(name.trim() != "cell-worker"))?;
    }
    Ok(())
}
