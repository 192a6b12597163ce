//! `put`: durable puts through the client against a node in a process of its own, beside a node without a
//! log, beside a raw loop that syncs the same bytes, and large values beside the disk's bandwidth.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cell_client::{Client, ClientOptions, Condition, Operation, Transport};
use cell_tests::reaper;

use crate::contest::{self, Contender};
use crate::data::{Batch, Choice, Dataset, Packed};
use crate::disk::{self, RawLoop};
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::patience;
use crate::redis::{self, Keeps, Pipeline, Redis};
use crate::served::{Served, many_meganodes, patient, spread};

/// Puts that a client has outstanding.
pub(crate) const OUTSTANDING: [usize; 3] = [64, 256, 1024];
/// Connections of many clients, and the puts that each has outstanding.
const CONNECTIONS: usize = 50;
const EACH: usize = 16;
/// A large value.
const LARGE_BYTES: usize = 1 << 20;
/// Large values outstanding, and how many different keys they have.
const LARGE_OUTSTANDING: usize = 8;
const LARGE_KEYS: usize = 32;
/// A node's snapshot, which `/metrics` shows, is of the last second.
pub(crate) const SNAPSHOT_AGE: Duration = Duration::from_millis(2_200);
/// Checkpoints one after the other.
pub(crate) const CHECKPOINTING: [(&str, &str); 2] =
    [("--checkpoint-log-ratio", "0.05"), ("--checkpoint-log-bytes-min", "1MiB")];
/// No checkpoint while the others are measured.
pub(crate) const NO_CHECKPOINTS: [(&str, &str); 2] =
    [("--checkpoint-log-bytes-min", "512GiB"), ("--checkpoint-age-ms", "168 h")];

/// Runs the bench.
///
/// # Errors
/// A node, a client or a disk that failed.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let data = Dataset { entries: options.entries, seed: options.seed };
    let folder = Scratch::new(options.dir.as_deref())?;
    let rounds = usize::from(options.rounds);
    let work = Work::new(&data, rounds);
    let none_flags = [&NO_CHECKPOINTS[..], &[("--durability", "none")]].concat();
    let mut sync = Served::start(&folder.0.join("sync"), data.entries, &NO_CHECKPOINTS)?;
    sync.fill(&data)?;
    let mut none = Served::start(&folder.0.join("none"), data.entries, &none_flags)?;
    none.fill(&data)?;
    let mut raw = RawLoop::new(&folder.0.join("raw"), options)?;
    for outstanding in OUTSTANDING {
        small(&mut sync, &mut none, &mut raw, (&work, outstanding, options), report)?;
    }
    raw.close()?;
    beside_redis(&mut sync, &data, &work, &folder.0, report)?;
    many(&mut sync, &data, &work, &folder.0, report)?;
    large(&mut sync, &folder.0, options, report)?;
    drop(none);
    checkpointing(&mut sync, &data, &work, (&folder.0, options), report)
}

/// A new folder for data on the disk to be measured. It is removed at the end, also if a signal is the end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(dir: Option<&Path>) -> Result<Self, BenchError> {
        // Not TMPDIR: that is often in memory, where a sync costs nothing and no write goes past the cache.
        let parent = dir.map_or_else(std::env::current_dir, std::path::absolute)?;
        let name = format!("cell-benches-{}", std::process::id());
        let (mut folder, mut taken) = (parent.join(&name), 0);
        // One that is there is somebody else's, such as a bench's of another host whose process has the same
        // number, and is not to be removed with this one.
        while let Err(why) = std::fs::create_dir(&folder) {
            if why.kind() != ErrorKind::AlreadyExists {
                return Err(BenchError::Folder { path: folder, why });
            }
            taken += 1;
            folder = parent.join(format!("{name}-{taken}"));
        }
        reaper::remove(&folder);
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Gigabytes that nobody needs; what cannot be removed is left.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What everyone puts and gets: batches of updates of random entries, a batch a round.
pub(crate) struct Work {
    pub(crate) batches: Vec<Batch>,
    probes: Packed,
    size: usize,
}

impl Work {
    pub(crate) fn new(data: &Dataset, rounds: usize) -> Self {
        let size = usize::try_from(data.entries / 10).unwrap_or(usize::MAX).clamp(2_000, 100_000);
        let mut random = cell_random::Random::new(data.seed ^ 0x7075_7473);
        let mut batch = || {
            let mut batch = Batch::default();
            for _ in 0..size {
                let (key, value) = (random.below(data.entries), random.below(data.entries));
                batch.keys.push_with(|bytes| data.push_key(key, bytes));
                batch.values.push_with(|bytes| data.push_value(value, bytes));
            }
            batch
        };
        let batches = (0..=rounds).map(|_| batch()).collect();
        let probes = data.probes(Choice::Uniform, size * (rounds + 1), data.seed ^ 0x6765_7473);
        Self { batches, probes, size }
    }

    fn rounds(&self) -> usize {
        self.batches.len() - 1
    }
}

/// Keeps the first error of contenders, whose rounds cannot return one.
#[derive(Default)]
pub(crate) struct First(RefCell<Option<BenchError>>);

impl First {
    pub(crate) fn count(&self, done: Result<u64, BenchError>) -> (u64, u64) {
        match done {
            Ok(count) => (count, 0),
            Err(error) => {
                self.0.borrow_mut().get_or_insert(error);
                (1, 0)
            }
        }
    }

    /// As [`Self::count`], of so many operations with a proof of their work.
    pub(crate) fn proved(&self, operations: usize, proof: Result<u64, BenchError>) -> (u64, u64) {
        match proof {
            Ok(proof) => (operations as u64, proof),
            Err(error) => {
                self.0.borrow_mut().get_or_insert(error);
                (1, 0)
            }
        }
    }

    pub(crate) fn end(self) -> Result<(), BenchError> {
        self.0.into_inner().map_or(Ok(()), Err)
    }
}

/// How a node's batches turned out: what the raw loop repeats.
pub(crate) struct Shape {
    pub(crate) puts: f64,
    pub(crate) bytes: f64,
}

/// Puts for a while and reads off the node's counters how large its batches were.
pub(crate) fn shape(
    node: &mut Served,
    work: &Work,
    outstanding: usize,
    options: &Options,
) -> Result<Shape, BenchError> {
    let counters = |node: &Served| -> Result<(f64, f64), BenchError> {
        disk::pause(options.lasting(SNAPSHOT_AGE));
        Ok((node.metric("cell_pair_batches_total")?, node.metric("cell_pair_log_synced_bytes_total")?))
    };
    let (batches_before, bytes_before) = counters(node)?;
    let mut puts = 0;
    for batch in work.batches.iter().take(4) {
        puts += node.put(batch, outstanding)?;
    }
    // In a rehearsal the snapshot may be one of before the puts.
    let (batches_after, bytes_after) = patience::until_some("batches are counted", || {
        Some(counters(node)).filter(|now| !matches!(now, Ok((batches, _)) if *batches <= batches_before))
    })??;
    let batches = (batches_after - batches_before).max(1.0);
    Ok(Shape { puts: puts as f64 / batches, bytes: (bytes_after - bytes_before) / batches })
}

/// Small values at one depth.
fn small(
    sync: &mut Served,
    none: &mut Served,
    raw: &mut RawLoop,
    (work, outstanding, options): (&Work, usize, &Options),
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let shape = shape(sync, work, outstanding, options)?;
    report.note(&format!(
        "{outstanding} outstanding: {:.1} puts and {:.0} bytes a batch",
        shape.puts, shape.bytes
    ));
    let first = First::default();
    let none = RefCell::new(none);
    let batches_a_round = (work.size as f64 / shape.puts).ceil().max(1.0);
    // Half of the bytes in each file, as the logs of this data have it within a tenth.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and far below 2^63")]
    let (half, batches) = ((shape.bytes / 2.0) as u64, batches_a_round as u64);
    let mut contenders = [
        Contender::new("durable", |round| first.count(sync.put(&work.batches[round], outstanding))),
        Contender::new("no log", |round| {
            first.count(none.borrow_mut().put(&work.batches[round], outstanding))
        }),
        Contender::new("get", |round| {
            let (from, to) = (round * work.size, (round + 1) * work.size);
            first.count(none.borrow_mut().get(&work.probes, from, to, outstanding))
        }),
        Contender::new("raw", |_| first.count(raw.run([half, half], batches).map(|_| batches))),
    ];
    let outcomes = contest::run(&mut contenders, 1, work.rounds());
    drop(contenders);
    first.end()?;
    sync.check_node()?;
    none.borrow().check_node()?;
    let [durable, none, get] = [0, 1, 2].map(|index: usize| outcomes[index].rate());
    let raw = outcomes[3].rate() * shape.puts;
    let lower = if none < raw { "lower of both: no log" } else { "lower of both: raw loop" };
    let row = |bench: &str, ours, rival, theirs, goal| {
        Figure::beside(format!("put/{bench} {outstanding}"), "op/s", ours, rival, theirs, goal)
    };
    report.add(row("durable", durable, lower, none.min(raw), Goal::AtLeast(0.95)))?;
    report.add(row("durable", durable, "durability=none", none, Goal::None))?;
    report.add(row("durable", durable, "raw loop of the same batches", raw, Goal::None))?;
    report.add(row("no log", none, "server-side get", get, Goal::AtLeast(0.8)))?;
    Ok(())
}

/// Durable puts beside Redis that syncs before it answers, as many outstanding.
fn beside_redis(
    sync: &mut Served,
    data: &Dataset,
    work: &Work,
    folder: &Path,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    if !redis::is_installed() {
        report.note("SKIPPED: Redis beside our puts: redis-server is missing (apt install redis-server)");
        return Ok(());
    }
    let mut redis = Redis::start(&folder.join("redis"), Keeps::LogAlways)?;
    redis.fill(data)?;
    for outstanding in OUTSTANDING {
        let first = First::default();
        let mut contenders = [
            Contender::new("ours", |round| first.count(sync.put(&work.batches[round], outstanding))),
            Contender::new("redis", |round| {
                first.count(redis.put(&work.batches[round], outstanding).map_err(BenchError::from))
            }),
        ];
        let outcomes = contest::run(&mut contenders, 1, work.rounds());
        drop(contenders);
        first.end()?;
        sync.check_node()?;
        let [ours, theirs] = [0, 1].map(|index: usize| outcomes[index].rate());
        let (bench, rival) = (format!("put/durable {outstanding}"), "Redis, appendfsync always, pipelined");
        report.add(Figure::beside(bench, "op/s", ours, rival, theirs, Goal::None))?;
    }
    connections(sync, &redis, work, report)
}

/// As many clients of both, each with a few puts outstanding: what a service of many users sees.
fn connections(sync: &Served, redis: &Redis, work: &Work, report: &mut Report<'_>) -> Result<(), BenchError> {
    let options = ClientOptions { transport: Transport::Tcp, ..patient() };
    let clients: Result<Vec<Client>, BenchError> =
        (0..CONNECTIONS).map(|_| sync.client(options.clone())).collect();
    let pipelines: std::io::Result<Vec<Pipeline>> = (0..CONNECTIONS).map(|_| redis.pipeline(false)).collect();
    let (clients, pipelines) = (RefCell::new(clients?), RefCell::new(pipelines?));
    let first = First::default();
    let mut contenders = [
        Contender::new("ours", |round| {
            let Batch { keys, values } = &work.batches[round];
            let put = |index: usize| {
                let (key, value) = (keys.get(index), values.get(index));
                Operation::Put { key, value, condition: Condition::Always }
            };
            let done = spread(&mut clients.borrow_mut(), keys.len(), EACH, put);
            first.count(done.map(|_| keys.len() as u64))
        }),
        Contender::new("redis", |round| {
            let done = spread_redis(&mut pipelines.borrow_mut(), &work.batches[round]);
            first.count(done.map_err(BenchError::from))
        }),
    ];
    let outcomes = contest::run(&mut contenders, 1, work.rounds());
    drop(contenders);
    first.end()?;
    sync.check_node()?;
    let [ours, theirs] = [0, 1].map(|index: usize| outcomes[index].rate());
    let bench = format!("put/durable, {CONNECTIONS} x {EACH} over TCP");
    let rival = "Redis, appendfsync always, as many";
    report.add(Figure::beside(bench, "op/s", ours, rival, theirs, Goal::None))?;
    Ok(())
}

fn spread_redis(pipelines: &mut [Pipeline], batch: &Batch) -> std::io::Result<u64> {
    let count = batch.keys.len();
    let all: Vec<usize> = (0..count).collect();
    for turn in all.chunks(pipelines.len() * EACH) {
        for (pipeline, part) in pipelines.iter_mut().zip(turn.chunks(EACH)) {
            pipeline.send_sets(part.iter().map(|&index| (batch.keys.get(index), batch.values.get(index))))?;
        }
        for (pipeline, part) in pipelines.iter_mut().zip(turn.chunks(EACH)) {
            pipeline.receive(part.len())?;
        }
    }
    Ok(count as u64)
}

/// Durable puts into a store of many meganodes in several pairs beside those into one meganode.
fn many(
    one: &mut Served,
    data: &Dataset,
    work: &Work,
    folder: &Path,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let sizes = many_meganodes(data.entries);
    let sizes = sizes.iter().map(|(name, value)| (*name, value.as_str()));
    let flags: Vec<_> = sizes.chain(NO_CHECKPOINTS).collect();
    let mut many = Served::start(&folder.join("many"), data.entries, &flags)?;
    many.fill(data)?;
    if !many.has_many_meganodes(report)? {
        return Ok(());
    }
    for outstanding in OUTSTANDING {
        let first = First::default();
        let mut contenders = [
            Contender::new("many", |round| first.count(many.put(&work.batches[round], outstanding))),
            Contender::new("one", |round| first.count(one.put(&work.batches[round], outstanding))),
        ];
        let outcomes = contest::run(&mut contenders, 1, work.rounds());
        drop(contenders);
        first.end()?;
        many.check_node()?;
        one.check_node()?;
        let [ours, theirs] = [0, 1].map(|index: usize| outcomes[index].rate());
        let bench = format!("put/durable {outstanding}, many meganodes");
        report.add(Figure::beside(bench, "op/s", ours, "one meganode", theirs, Goal::None))?;
    }
    Ok(())
}

/// Large values beside what fio measures.
fn large(
    node: &mut Served,
    folder: &Path,
    options: &Options,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let mut batch = Batch::default();
    for index in 0..LARGE_KEYS {
        batch.keys.push_with(|bytes| bytes.extend_from_slice(format!("large-{index}").as_bytes()));
        let fill = u8::try_from(index).unwrap_or(0);
        batch.values.push_with(|bytes| bytes.resize(bytes.len() + LARGE_BYTES, fill));
    }
    let Some(limit) = disk::fio_write(folder, options)? else {
        report.note("SKIPPED: large values beside the disk's bandwidth: fio is missing (apt install fio)");
        return Ok(());
    };
    let first = First::default();
    let mut contenders = [Contender::new("large", |_| first.count(node.put(&batch, LARGE_OUTSTANDING)))];
    let outcomes = contest::run(&mut contenders, 1, usize::from(options.rounds));
    drop(contenders);
    first.end()?;
    node.check_node()?;
    let again = disk::fio_write(folder, options)?.unwrap_or(limit);
    disk::clean(folder);
    let (ours, theirs) = (outcomes[0].rate() * LARGE_BYTES as f64, f64::midpoint(limit, again));
    let rival = "fio, 1 MiB sequential dsync writes";
    report.add(Figure::beside("put/large 1 MiB", "bytes/s", ours, rival, theirs, Goal::AtLeast(0.85)))?;
    Ok(())
}

/// Puts while checkpoints follow each other, beside puts without.
fn checkpointing(
    still: &mut Served,
    data: &Dataset,
    work: &Work,
    (folder, options): (&Path, &Options),
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let mut busy = Served::start(&folder.join("checkpointing"), data.entries, &CHECKPOINTING)?;
    busy.fill(data)?;
    let outstanding = OUTSTANDING[1];
    let before = busy.metric("cell_pair_checkpoints_total")?;
    let first = First::default();
    let running = RefCell::new(Vec::new());
    let busy = RefCell::new(busy);
    let mut contenders = [
        Contender::new("with checkpoints", |round| {
            let mut busy = busy.borrow_mut();
            let done = busy.put(&work.batches[round], outstanding).and_then(|done| {
                running.borrow_mut().push(busy.metric("cell_pair_checkpoint_running")?);
                Ok(done)
            });
            first.count(done)
        }),
        Contender::new("without", |round| first.count(still.put(&work.batches[round], outstanding))),
    ];
    let outcomes = contest::run(&mut contenders, 1, work.rounds());
    drop(contenders);
    first.end()?;
    still.check_node()?;
    busy.borrow().check_node()?;
    disk::pause(options.lasting(SNAPSHOT_AGE));
    let taken = busy.borrow().metric("cell_pair_checkpoints_total")? - before;
    let running = running.into_inner();
    let share = running.iter().sum::<f64>() / running.len() as f64;
    report.note(&format!(
        "{taken:.0} checkpoints were recorded; one was running in {:.0} % of looks",
        share * 100.0
    ));
    let [with, without] = [0, 1].map(|index: usize| outcomes[index].rate());
    let bench = format!("put/during checkpoints {outstanding}");
    report.add(Figure::beside(bench, "op/s", with, "the same without", without, Goal::AtLeast(0.85)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was taken for the bench's own, and went with it.
    #[test]
    fn scratch_is_a_new_folder_and_what_was_there_stays() {
        let parent = tempfile::tempdir().expect("a temporary folder can be made");
        let others = parent.path().join(format!("cell-benches-{}", std::process::id()));
        let kept = others.join("kept");
        std::fs::create_dir(&others).expect("it is not there");
        std::fs::write(&kept, "").expect("it is a folder");
        let [first, second] = [(); 2].map(|()| Scratch::new(Some(parent.path())).expect("there is room"));
        let folders = [first.0.clone(), second.0.clone()];
        assert!(folders.iter().all(|folder| folder.is_dir() && *folder != others), "{folders:?}");
        assert_ne!(folders[0], folders[1]);
        drop((first, second));
        assert!(kept.is_file() && !folders.iter().any(|folder| folder.exists()), "{folders:?}");
    }
}
