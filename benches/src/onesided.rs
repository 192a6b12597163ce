//! `onesided`: what clients of a served store read a second, searching its memory themselves and by messages,
//! beside the same reads in this process, beside Redis and LMDB, and at what cost to the server's processor.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cell_client::{Client, ClientOptions, OneSidedCounters, Search, Transport};
use cell_memory::HugePages;

use crate::asynchronous;
use crate::contest::{self, Contender};
use crate::data::{Batch, Choice, Dataset};
use crate::figure::{Figure, Goal, Report};
use crate::in_place;
use crate::options::{BenchError, PartOptions};
use crate::ours::{Ours, Sizes};
use crate::put::{First, Scratch};
use crate::readers;
use crate::reads::{Reads, agreed, get_each, one_sided, options, timed};
use crate::redis::{self, Keeps, Redis};
use crate::redis_benchmark::{self, RedisBenchmark};
use crate::served::{Served, many_meganodes};
use crate::server_side::{self, Rivals};

/// How long one part with the server's processor time takes.
const PART: Duration = Duration::from_secs(2);
/// Turns of reads beside a writer and alone.
const WRITER_TURNS: usize = 3;
/// Reads between two looks at the clock where a rate is kept.
const READS_A_STEP: usize = 64;
/// Round trips whose times are measured.
const TRIPS: usize = 20_000;
/// Turns in which those are measured.
const TURNS: usize = 10;
/// Puts that a writer beside readers has outstanding.
const WRITING: usize = 256;

/// The parts, as `--only` knows them.
const ONE_THREAD: &str = "get";
const BY_MESSAGES: &str = "server-side";
const IN_PLACE: &str = "in place";
const BESIDE_WRITERS: &str = "beside a writer";
const LATENCY: &str = "p50";
const DOUBLING: &str = "server's cores";
const ASYNCHRONOUS: &str = "asynchronous";
/// It has data and a node of its own.
const READERS: &str = "readers in processes of their own";
const PARTS: [&str; 8] =
    [READERS, ONE_THREAD, BY_MESSAGES, IN_PLACE, BESIDE_WRITERS, LATENCY, DOUBLING, ASYNCHRONOUS];

/// Runs the bench.
///
/// # Errors
/// A node, a client or a rival that failed.
pub fn run(parts: &PartOptions, report: &mut Report<'_>) -> Result<(), BenchError> {
    parts.check(&PARTS.map(str::to_owned))?;
    let options = &parts.options;
    let folder = Scratch::new(options.dir.as_deref())?;
    if parts.wants(READERS) {
        readers::run(&folder, options, report)?;
    }
    if !PARTS.iter().any(|part| *part != READERS && parts.wants(part)) {
        return Ok(());
    }
    let data = Dataset { entries: options.entries, seed: options.seed };
    let rounds = usize::from(options.rounds);
    let size = usize::try_from(options.entries / 50).unwrap_or(usize::MAX).clamp(1_000, 20_000);
    let probes = data.probes(Choice::Uniform, size * (rounds + 1), data.seed ^ 0x6F6E_6573);
    let reads = Reads { probes, size, rounds };
    let local = local_store(&data)?;
    let redis = rival(&data, &folder, report)?;
    let tool = if parts.wants(BY_MESSAGES) { tool(redis.as_ref(), &data, &folder, report)? } else { None };
    let rivals = redis.as_ref().map(|redis| Rivals { redis, tool });
    for (shape, many) in [("", false), (", many meganodes", true)] {
        let more = if many { many_meganodes(data.entries).to_vec() } else { Vec::new() };
        let more: Vec<_> = more.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut served = Served::start(&folder.0.join(format!("node-{many}")), data.entries, &more)?;
        served.fill(&data)?;
        // Rows of a shape that it has not would be those of the other one again.
        let has_shape = !many || served.has_many_meganodes(report)?;
        let wants = |part: &str| has_shape && parts.wants(part);
        if wants(ONE_THREAD) {
            one_thread(&served, &local, &reads, shape, report)?;
        }
        if let Some(rivals) = rivals.as_ref().filter(|_| wants(BY_MESSAGES)) {
            server_side::run(&served, rivals, &reads, shape, report)?;
        }
        if many && parts.wants(IN_PLACE) {
            // Before there are writers: its contenders prove that they have read the same values.
            in_place::run(&served, &local, redis.as_ref(), &reads, report)?;
        }
        if wants(BESIDE_WRITERS) {
            beside_writers(&mut served, &data, &reads, (shape, options.lasting(PART)), report)?;
        }
        if !many {
            by_time(parts, &served, &reads, report)?;
        }
        served.server.kill_all();
    }
    Ok(())
}

/// What is measured by times and by rates that are kept.
fn by_time(
    parts: &PartOptions,
    served: &Served,
    reads: &Reads,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    if parts.wants(LATENCY) {
        latency(served, reads, report)?;
    }
    if parts.wants(DOUBLING) {
        doubling(served, reads, parts.options.lasting(PART), report)?;
    }
    if parts.wants(ASYNCHRONOUS) {
        asynchronous::run(served, reads, report)?;
    }
    Ok(())
}

/// The same data in this process.
fn local_store(data: &Dataset) -> Result<Ours, BenchError> {
    let mut ours = Ours::new(Sizes::for_entries(data.entries), HugePages::Auto)?;
    for first in (0..data.entries).step_by(20_000) {
        ours.populate()?;
        ours.insert(&data.batch(first, (first + 20_000).min(data.entries)))?;
    }
    Ok(ours)
}

/// One client thread beside the same reads in this process.
fn one_thread(
    served: &Served,
    ours: &Ours,
    reads: &Reads,
    shape: &str,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let local = RefCell::new((ours.reader(), Vec::new()));
    let first = First::default();
    let [uncached, cached, tcp] = [(Transport::Shm, false), (Transport::Shm, true), (Transport::Tcp, true)]
        .map(|(transport, cache)| served.client(one_sided(transport, cache)).map(RefCell::new));
    let (uncached, cached, tcp) = (uncached?, cached?, tcp?);
    let by_client = |client: &RefCell<Client>, round: usize| {
        first.proved(reads.size, get_each(&mut client.borrow_mut(), reads.keys(round)))
    };
    let mut contenders = [
        Contender::new("local", |round| {
            let (reader, out) = &mut *local.borrow_mut();
            let from = round % (reads.rounds + 1) * reads.size;
            let got = reader.get(&reads.probes, from, from + reads.size, out);
            first.proved(reads.size, got.map_err(BenchError::from))
        }),
        Contender::new("shm", |round| by_client(&uncached, round)),
        Contender::new("shm, cached", |round| by_client(&cached, round)),
        Contender::new("tcp, cached", |round| by_client(&tcp, round)),
    ];
    let outcomes = contest::run(&mut contenders, 1, reads.rounds);
    drop(contenders);
    first.end()?;
    served.check_node()?;
    let outcomes = agreed(outcomes)?;
    let [local, shm, cached_rate, tcp_rate] = [0, 1, 2, 3].map(|index: usize| outcomes[index].rate());
    let row = |bench: &str, ours, goal| {
        let bench = format!("onesided/{bench}{shape}");
        Figure::beside(bench, "op/s", ours, "local get of this run", local, goal)
    };
    report.add(row("get shm, inner nodes not cached", shm, Goal::AtLeast(0.6)))?;
    report.add(row("get shm, inner nodes cached", cached_rate, Goal::None))?;
    report.add(row("get tcp, inner nodes cached", tcp_rate, Goal::None))?;
    report.note(&format!("shm, not cached: {:?}", counters(&uncached.borrow())));
    Ok(())
}

fn counters(client: &Client) -> OneSidedCounters {
    client.one_sided_counters().copied().unwrap_or_default()
}

/// Times of single gets beside those of what they are made of.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn latency(served: &Served, reads: &Reads, report: &mut Report<'_>) -> Result<(), BenchError> {
    let mut client = served.client(one_sided(Transport::Shm, false))?;
    let spinning = ClientOptions { spin_us: 100, ..options(Transport::Shm, Search::Server) };
    let mut server_side = served.client(spinning)?;
    let mut times: [Vec<Duration>; 4] = Default::default();
    // All four by turns, so that a slow moment of the machine is everyone's.
    for turn in 0..TURNS {
        for key in (turn..).flat_map(|round| reads.keys(round)).take(TRIPS / TURNS) {
            times[0].push(timed(|| client.get(key))?);
        }
        for key in (turn..).flat_map(|round| reads.keys(round)).take(TRIPS / TURNS) {
            times[1].push(timed(|| server_side.get(key))?);
        }
        times[2].extend(spins(TRIPS / TURNS));
        times[3].extend(wake_ups(TRIPS / TURNS)?);
    }
    served.check_node()?;
    let names = [
        "one-sided get shm",
        "server-side get shm, client spins",
        "spinning shared-memory round trip",
        "kernel wake-up round trip",
    ];
    for (name, mut times) in names.into_iter().zip(times) {
        times.sort_unstable();
        for (part, share) in [("p50", 50), ("p99", 99)] {
            let time = times.get(times.len() * share / 100).copied().unwrap_or_default();
            let name = format!("onesided/{part} of a {name}");
            report.add(Figure::alone(name, "us", time.as_secs_f64() * 1e6))?;
        }
    }
    Ok(())
}

/// Round trips between two threads that both look all the time.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn spins(trips: usize) -> Vec<Duration> {
    let (asked, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for trip in 1..=trips as u64 {
                while asked.load(Ordering::Acquire) != trip {
                    std::hint::spin_loop();
                }
                answered.store(trip, Ordering::Release);
            }
        });
        (1..=trips as u64)
            .map(|trip| {
                let began = Instant::now();
                asked.store(trip, Ordering::Release);
                while answered.load(Ordering::Acquire) != trip {
                    std::hint::spin_loop();
                }
                began.elapsed()
            })
            .collect()
    })
}

/// Round trips between two threads that sleep in the kernel for each other.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn wake_ups(trips: usize) -> Result<Vec<Duration>, BenchError> {
    use std::io::{Read, Write};
    let (mut here, mut there) = std::os::unix::net::UnixStream::pair()?;
    std::thread::scope(|scope| {
        let other = scope.spawn(move || -> std::io::Result<()> {
            let mut byte = [0];
            for _ in 0..trips {
                there.read_exact(&mut byte)?;
                there.write_all(&byte)?;
            }
            Ok(())
        });
        let mut times = Vec::with_capacity(trips);
        for _ in 0..trips {
            let began = Instant::now();
            here.write_all(&[1])?;
            here.read_exact(&mut [0])?;
            times.push(began.elapsed());
        }
        other.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))?;
        Ok(times)
    })
}

/// The server's processor while one-sided readers read at a rate, and at twice that rate.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn doubling(
    served: &Served,
    reads: &Reads,
    lasts: Duration,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let mut client = served.client(one_sided(Transport::Shm, false))?;
    let mut keys = (0..).flat_map(|round| reads.keys(round));
    let mut part = |idle: bool| -> Result<[f64; 2], BenchError> {
        let (began, used, mut count) = (Instant::now(), served.processor_ns(), 0u64);
        while began.elapsed() < lasts {
            let step = Instant::now();
            get_each(&mut client, keys.by_ref().take(READS_A_STEP))?;
            count += READS_A_STEP as u64;
            let took = step.elapsed();
            while idle && step.elapsed() < 2 * took {
                std::hint::spin_loop();
            }
        }
        let elapsed = began.elapsed().as_secs_f64();
        let used = served.processor_ns().saturating_sub(used) as f64 / 1e9;
        Ok([count as f64 / elapsed, used / elapsed])
    };
    let (mut slow, mut fast) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        slow.push(part(true)?);
        fast.push(part(false)?);
    }
    served.check_node()?;
    let middle = |parts: &[[f64; 2]], of: usize| {
        contest::median(&parts.iter().map(|part| part[of]).collect::<Vec<_>>())
    };
    let [half, before] = [0, 1].map(|of| middle(&slow, of));
    let [full, after] = [0, 1].map(|of| middle(&fast, of));
    report.note(&format!("{half:.0} and {full:.0} one-sided gets a second"));
    let name = "onesided/server's cores at half and full rate";
    report.add(Figure::beside(name, "cores", after, "at half the rate", before, Goal::None))?;
    let name = "onesided/server's cores more as the rate doubles";
    report.add(Figure::beside(
        name,
        "cores",
        (after - before).max(0.0),
        "1 % of a core",
        0.01,
        Goal::AtMost(1.0),
    ))?;
    Ok(())
}

/// A Redis with the same data; none, which is printed, where it is not installed.
fn rival(data: &Dataset, folder: &Scratch, report: &Report<'_>) -> Result<Option<Redis>, BenchError> {
    if !redis::is_installed() {
        report.note("SKIPPED: Redis beside our gets: redis-server is missing (apt install redis-server)");
        return Ok(None);
    }
    let mut redis = Redis::start(&folder.0.join("redis"), Keeps::Dump)?;
    redis.fill(data)?;
    Ok(Some(redis))
}

/// The tool that comes with Redis, and a server for it; none, which is printed, where it is not installed.
fn tool(
    redis: Option<&Redis>,
    data: &Dataset,
    folder: &Scratch,
    report: &Report<'_>,
) -> Result<Option<RefCell<RedisBenchmark>>, BenchError> {
    if redis.is_none() {
        return Ok(None);
    }
    if !redis_benchmark::is_installed() {
        report.note("SKIPPED: redis-benchmark beside our gets: it is missing (apt install redis-tools)");
        return Ok(None);
    }
    Ok(Some(RefCell::new(RedisBenchmark::start(&folder.0.join("redis-benchmark"), data)?)))
}

/// One-sided gets beside a writer at full rate, by turns with the same gets alone.
fn beside_writers(
    served: &mut Served,
    data: &Dataset,
    reads: &Reads,
    (shape, part): (&str, Duration),
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let mut reader = served.client(one_sided(Transport::Shm, true))?;
    let before = counters(&reader);
    let batch = updates(data, reads.size);
    let (mut alone, mut beside, mut puts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..WRITER_TURNS {
        alone.push(read_for(part, &mut reader, reads)?);
        let stop = AtomicBool::new(false);
        let (got, put) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| -> Result<f64, BenchError> {
                let (mut count, began) = (0, now());
                while !stop.load(Ordering::Relaxed) {
                    count += served.put(&batch, WRITING)?;
                }
                Ok(count as f64 / (now() - began).as_secs_f64())
            });
            let got = read_for(part, &mut reader, reads);
            stop.store(true, Ordering::Relaxed);
            (got, writer.join().unwrap_or(Err(BenchError::Engine)))
        });
        beside.push(got?);
        puts.push(put?);
    }
    served.check_node()?;
    let after = counters(&reader);
    let started = (after.started - before.started).max(1) as f64;
    let retries = |counters: &OneSidedCounters| {
        counters.torn + counters.invalid + counters.fence + counters.crc + counters.watermark + counters.clock
    };
    let named = |name: &str| format!("onesided/beside a writer: {name}{shape}");
    let rate = |spans: &[Span]| contest::median(&spans.iter().map(|span| span.rate).collect::<Vec<_>>());
    let longest =
        |spans: &[Span]| spans.iter().map(|span| span.longest).max().unwrap_or_default().as_secs_f64();
    report.add(Figure::alone(named("puts"), "op/s", contest::median(&puts)))?;
    let (ours, theirs) = (rate(&beside), rate(&alone));
    report.add(Figure::beside(named("gets"), "op/s", ours, "the same gets alone", theirs, Goal::None))?;
    let (ours, theirs) = (longest(&beside) * 1e6, longest(&alone) * 1e6);
    report.add(Figure::beside(
        named("longest get"),
        "us",
        ours,
        "the same gets alone",
        theirs,
        Goal::None,
    ))?;
    let retried = (retries(&after) - retries(&before)) as f64;
    report.add(Figure::alone(named("retries a get"), "retries", retried / started))?;
    let fell_back = (after.fell_back - before.fell_back) as f64;
    report.add(Figure::alone(named("share that the server answered"), "share", fell_back / started))?;
    report.note(&format!("{after:?}"));
    Ok(())
}

/// What one reader did in a while.
struct Span {
    rate: f64,
    longest: Duration,
}

fn read_for(time: Duration, reader: &mut Client, reads: &Reads) -> Result<Span, BenchError> {
    let (mut count, began, mut longest) = (0usize, now(), Duration::ZERO);
    for key in (0..).flat_map(|round| reads.keys(round)) {
        if now() - began >= time {
            break;
        }
        longest = longest.max(timed(|| reader.get(key))?);
        count += 1;
    }
    Ok(Span { rate: count as f64 / (now() - began).as_secs_f64(), longest })
}

/// Values for keys that are there.
fn updates(data: &Dataset, size: usize) -> Batch {
    let mut random = cell_random::Random::new(data.seed ^ 0x7570_6474);
    let mut batch = Batch::default();
    for _ in 0..size {
        let (key, value) = (random.below(data.entries), random.below(data.entries));
        batch.keys.push_with(|bytes| data.push_key(key, bytes));
        batch.values.push_with(|bytes| data.push_value(value, bytes));
    }
    batch
}

#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn now() -> Instant {
    Instant::now()
}
