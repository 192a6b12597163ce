//! `moves`: pairs of several sizes that move to and fro between two nodes under YCSB A; and one-sided readers
//! of a store whose pairs move in turn. Either load keeps to half of the rate that one client reaches with 64
//! operations outstanding.

use std::time::{Duration, Instant};

use cell_client::{ClientOptions, Search, Transport};
use cell_random::Random;
use cell_tests::server::Server;
use serde_json::Value;

use crate::contest;
use crate::data::{Batch, Choice, Dataset};
use crate::disk;
use crate::figure::{Figure, Goal, Report, note};
use crate::options::{BenchError, MovesOptions};
use crate::ours::Sizes;
use crate::paced::{Probe, Pulse, Span, drive, half_rate, now, watch};
use crate::patience;
use crate::put::Scratch;
use crate::random::{popular, scatter};
use crate::reads::one_sided;
use crate::served::{BALANCE_OFF, Served, leases, many_meganodes, patient};
use crate::shown::{largest_pair, pairs};

/// A record: a key of 24 bytes, a value, and what a node has for both besides.
const VALUE: [u8; 1_000] = [b'v'; 1_000];
const RECORD_BYTES: u64 = 1_024;
/// Operations that are drawn beforehand, and done again and again.
const PROBES: usize = 100_000;
/// Records made at a time while a store is filled.
const BATCH: u64 = 10_000;
/// How long a rate is measured, and how long load goes on before that.
const LASTS: Duration = Duration::from_secs(6);
const SETTLES: Duration = Duration::from_secs(2);
/// Between two moves; the operations that one has held up end meanwhile.
const RESTS: Duration = Duration::from_millis(300);
/// Between two looks at how far a move is.
const LOOKS: Duration = Duration::from_millis(5);

/// Runs the bench.
///
/// # Errors
/// A node or a client that failed, or a pair that does not move.
pub fn run(options: &MovesOptions, report: &mut Report<'_>) -> Result<(), BenchError> {
    let folder = Scratch::new(options.options.dir.as_deref())?;
    let mut stalls = Vec::new();
    for megabytes in &options.sizes_mb {
        stalls.push((*megabytes, pair_of(*megabytes, &folder, options, report)?));
    }
    if let [(small, of_small), .., (large, of_large)] = stalls.as_slice() {
        let (bench, rival) = (format!("moves/longest stall, median, {large} MB"), format!("{small} MB"));
        report.add(Figure::beside(bench, "ms", *of_large, rival, *of_small, Goal::AtMost(1.5)))?;
    }
    readers(&folder, options, report)
}

fn key(record: u64) -> Vec<u8> {
    format!("user{:020}", scatter(record)).into_bytes()
}

/// A store of one pair with so many megabytes, and a node beside for it to move to; the median of the longest
/// stalls of its moves, in milliseconds.
fn pair_of(
    megabytes: u64,
    folder: &Scratch,
    options: &MovesOptions,
    report: &mut Report<'_>,
) -> Result<f64, BenchError> {
    let bytes = megabytes * 1_000_000;
    let records = (bytes / RECORD_BYTES).max(1);
    let slot_bytes = Sizes::for_entries(records).slot_bytes as u64;
    let sizes =
        [slot_bytes, slot_bytes * 4 + (2 << 20), 2 * bytes + (256 << 20)].map(|size| size.to_string());
    let flags = [
        ("--slot-bytes", sizes[0].as_str()),
        ("--node-region-bytes", sizes[1].as_str()),
        ("--extent-region-bytes", sizes[2].as_str()),
        ("--nodes", "2"),
        // All keys begin with `u`: the second node's pair is all but empty.
        ("--initial-split-keys", "v"),
        ("--memory-limit-bytes", "64GiB"),
        BALANCE_OFF,
    ];
    let place = folder.0.join(format!("moves-{megabytes}"));
    let mut served = Served::start_cluster(&place, records, &flags, leases(&options.options))?;
    for first in (0..records).step_by(usize::try_from(BATCH).unwrap_or(1)) {
        let mut batch = Batch::default();
        for record in first..(first + BATCH).min(records) {
            batch.keys.push_with(|bytes| bytes.extend(key(record)));
            batch.values.push_with(|bytes| bytes.extend(VALUE));
        }
        served.put(&batch, 1_024)?;
    }
    let mut random = Random::new(options.options.seed ^ 0x6D6F_7665);
    let mut probe = || -> Probe { (key(popular(&mut random, records)), random.below(2) == 0) };
    let probes: Vec<Probe> = (0..PROBES).map(|_| probe()).collect();
    let client = || served.client(ClientOptions { search: Search::Server, ..patient() });
    let [lasts, settles] = [LASTS, SETTLES].map(|whole| options.options.lasting(whole));
    let interval = half_rate(&mut client()?, &probes, &VALUE, [settles, lasts])?;
    let pulse = Pulse::default();
    let mut under = Under { server: &served.server, pulse: &pulse, began: now(), copying: Span::default() };
    let world = World { name: format!("{megabytes} MB"), moves: options.moves, lasts, settles };
    let stall = std::thread::scope(|scope| {
        let ending = pulse.ending();
        let (mut client, probes, pulse) = (client()?, &probes, &pulse);
        let load = scope.spawn(move || drive(&mut client, probes, &VALUE, Some(interval), pulse));
        let stall = under.moves_of_the_largest(&world, report);
        drop(ending);
        load.join().expect("the load does not panic")?;
        stall
    })?;
    let failed = pulse.failed() as f64;
    let bench = format!("moves/operations failed, {megabytes} MB");
    report.add(Figure::to_be_none(bench, "operations", failed))?;
    served.server.kill_all();
    drop(served);
    let _ = std::fs::remove_dir_all(place);
    Ok(stall)
}

/// What is measured of moves of one kind.
struct World {
    name: String,
    moves: u16,
    lasts: Duration,
    settles: Duration,
}

/// A store under load.
struct Under<'a> {
    server: &'a Server,
    pulse: &'a Pulse,
    began: Instant,
    /// What was done while targets copied.
    copying: Span,
}

impl Under<'_> {
    /// Moves the pair with most in it to and fro.
    fn moves_of_the_largest(&mut self, world: &World, report: &mut Report<'_>) -> Result<f64, BenchError> {
        let World { name, moves, lasts, settles } = world;
        let before = watch(self.pulse, [*settles, *lasts]);
        let calm = self.pulse.take_longest_ms();
        let pair = largest_pair(self.server)?;
        let (mut stalls, mut times) = (Vec::new(), Vec::new());
        for _ in 0..*moves {
            self.pulse.take_longest_ms();
            let began = now();
            self.move_once(pair, 2)?;
            times.push(began.elapsed().as_secs_f64());
            disk::pause(RESTS);
            stalls.push(self.pulse.take_longest_ms());
        }
        let (median, worst) = (contest::median(&stalls), stalls.iter().copied().fold(0.0, f64::max));
        let limits = [("median", median, 100.0), ("worst", worst, 300.0)];
        for (which, stall, limit) in limits {
            let (bench, rival) = (format!("moves/longest stall, {which}, {name}"), "the goal");
            report.add(Figure::beside(bench, "ms", stall, rival, limit, Goal::AtMost(1.0)))?;
        }
        report.add(Figure::alone(format!("moves/longest operation without a move, {name}"), "ms", calm))?;
        report.add(Figure::alone(format!("moves/a move, {name}"), "s", contest::median(&times)))?;
        let (bench, rate) = (format!("moves/operations during copies, {name}"), before.rate());
        if self.copying.time.is_zero() {
            report.note(&format!("SKIPPED: {bench}: the copies were over before they were seen"));
            report.add(Figure::alone(format!("moves/operations, {name}"), "op/s", rate))?;
        } else {
            let during = self.copying.rate();
            report.add(Figure::beside(bench, "op/s", during, "before", rate, Goal::AtLeast(0.9)))?;
        }
        Ok(median)
    }

    /// Moves a pair to the next node. A move may be given up, as beside a split that takes long: then it is
    /// asked for again.
    fn move_once(&mut self, pair: u64, nodes: u64) -> Result<(), BenchError> {
        patience::until_some_every(RESTS, &format!("pair {pair} moves"), || {
            self.try_once(pair, nodes).map(|is_moved| is_moved.then_some(())).transpose()
        })?
    }

    /// Asks for a pair's move to the next node, and looks on until it is over; whether it has moved.
    fn try_once(&mut self, pair: u64, nodes: u64) -> Result<bool, BenchError> {
        let mut last = Value::Null;
        // Nobody: its owner has just died.
        if let Some(at) = pairs(self.server)?.into_iter().find(|at| at.pair == pair) {
            let asked = self.server.try_move(0, pair, (at.node + 1) % nodes);
            let (status, answer) = asked.unwrap_or_default();
            let started = Some(&answer["move"]["number"]).filter(|_| status == 200).and_then(Value::as_u64);
            // An answer that says nothing, or does not come, may have started it: then it is under way.
            last = match started.or_else(|| self.under_way(pair)) {
                Some(number) => self.follow(pair, number)?,
                None => answer,
            };
        }
        let is_moved = last["outcome"] == "moved";
        if !is_moved {
            note(&format!("a move came to nothing: {last}"));
        }
        Ok(is_moved)
    }

    /// The number of a pair's move that is not over.
    fn under_way(&self, pair: u64) -> Option<u64> {
        self.server.move_of(0, pair).filter(|of| of["outcome"].is_null())?["number"].as_u64()
    }

    /// Looks at a move until it is over; its row then, or nothing if another one has followed.
    fn follow(&mut self, pair: u64, number: u64) -> Result<Value, BenchError> {
        let mut copies = None;
        patience::until_some_every(LOOKS, &format!("the move of pair {pair} ends"), || {
            let row = self.server.move_of(0, pair)?;
            let shown = row["number"].as_u64().filter(|shown| *shown >= number)?;
            if shown != number {
                return Some(Value::Null);
            }
            let seen = self.pulse.look(self.began);
            match (row["stage"] == "copying" && row["outcome"].is_null(), &copies) {
                (true, None) => copies = Some(seen),
                (false, Some(from)) => {
                    self.copying.add(&Span::between(from, &seen));
                    copies = None;
                }
                _ => {}
            }
            (!row["outcome"].is_null()).then_some(row)
        })
    }
}

/// One-sided readers of a store of three nodes whose pairs move in turn.
fn readers(folder: &Scratch, options: &MovesOptions, report: &mut Report<'_>) -> Result<(), BenchError> {
    let data = Dataset { entries: options.options.entries, seed: options.options.seed };
    let shape = many_meganodes(data.entries);
    let mut flags: Vec<_> = shape.iter().map(|(name, value)| (*name, value.as_str())).collect();
    flags.extend([("--nodes", "3"), BALANCE_OFF]);
    let (place, words) = (folder.0.join("readers"), leases(&options.options));
    let mut served = Served::start_cluster(&place, data.entries, &flags, words)?;
    served.fill(&data)?;
    let packed = data.probes(Choice::Uniform, PROBES, data.seed ^ 0x7265_6164);
    let probes: Vec<Probe> = (0..packed.len()).map(|at| (packed.get(at).to_vec(), false)).collect();
    let [lasts, settles] = [LASTS, SETTLES].map(|whole| options.options.lasting(whole));
    report.note(&format!("one-sided readers: {} pairs on three nodes", pairs(&served.server)?.len()));
    for (transport, name) in [(Transport::Tcp, "tcp"), (Transport::Shm, "shm")] {
        let client = || served.client(one_sided(transport, true));
        let interval = half_rate(&mut client()?, &probes, &VALUE, [settles, lasts])?;
        let pulse = Pulse::default();
        let mut under =
            Under { server: &served.server, pulse: &pulse, began: now(), copying: Span::default() };
        let spans = std::thread::scope(|scope| {
            let ending = pulse.ending();
            let (mut client, probes, pulse) = (client()?, &probes, &pulse);
            let load = scope.spawn(move || drive(&mut client, probes, &VALUE, Some(interval), pulse));
            let spans = under.moves_of_all(options.moves, [settles, lasts]);
            drop(ending);
            load.join().expect("the load does not panic")?;
            spans
        })?;
        add_reader_rows(name, &spans, pulse.failed(), report)?;
    }
    served.server.kill_all();
    Ok(())
}

impl Under<'_> {
    /// What is done before the moves, and while the pairs move in turn.
    fn moves_of_all(&mut self, moves: u16, times: [Duration; 2]) -> Result<[Span; 2], BenchError> {
        let before = watch(self.pulse, times);
        let from = self.pulse.look(self.began);
        for number in 0..usize::from(moves) {
            let pairs = pairs(self.server)?;
            let Some(at) = pairs.get(number % pairs.len().max(1)) else { break };
            self.move_once(at.pair, 3)?;
            disk::pause(RESTS);
        }
        Ok([before, Span::between(&from, &self.pulse.look(self.began))])
    }
}

/// What readers lose by moves.
fn add_reader_rows(
    transport: &str,
    [before, during]: &[Span; 2],
    failed: u64,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let mut row = |what: &str, unit, of: &dyn Fn(&Span) -> f64, goal| {
        let bench = format!("moves/readers over {transport}: {what}");
        report.add(Figure::beside(bench, unit, of(during), "before the moves", of(before), goal))
    };
    let goal = Goal::AtLeast(0.9);
    let a_get = |count: u64, span: &Span| count as f64 / (span.one_sided.done as f64).max(1.0);
    row("gets", "op/s", &Span::rate, goal)?;
    // Over shared memory answers are found in place, and hardly one needs the cache.
    if before.one_sided.cached > 0 || transport == "tcp" {
        row("cached tree nodes a get", "tree nodes", &|span| a_get(span.one_sided.cached, span), goal)?;
    }
    if before.one_sided.in_place > 0 || transport == "shm" {
        row("answers in place, of one-sided", "", &|span| a_get(span.one_sided.in_place, span), goal)?;
    }
    let by_reads = |span: &Span| span.one_sided.done as f64 / (span.done as f64).max(1.0);
    row("answered one-sided, of all", "", &by_reads, Goal::None)?;
    let bench = format!("moves/readers over {transport}: gets failed");
    report.add(Figure::to_be_none(bench, "operations", failed as f64))?;
    Ok(())
}
