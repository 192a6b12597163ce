//! `balance`: loads into three nodes whose keys fall onto one of them, onto all alike, or onto one after the
//! other: how the nodes share bytes and operations with balance on and off, and what that costs a load beside
//! one into nodes that were split by hand. Each load has the machine to itself; they take turns. What pairs
//! and their moves took of each is noted beside it. And how long it takes until a node that was killed has
//! its share again.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use cell_tests::server::Server;

use crate::contest;
use crate::data::Dataset;
use crate::disk;
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options, PartOptions};
use crate::paced::now;
use crate::patience;
use crate::processor::{Used, written_bytes};
use crate::put::{SNAPSHOT_AGE, Scratch};
use crate::served::{Served, leases, many_meganodes};
use crate::shapes::{NAMES, Shape};
use crate::shown::{bytes_by_node, pairs};

const NODES: u16 = 3;
/// Puts outstanding.
const OUTSTANDING: usize = 1_024;
/// Entries made at a time.
const BATCH_ENTRIES: u64 = 20_000;
/// A pair holds a sixteenth of all, where one of `many_meganodes` holds a quarter: whole pairs move.
const FINER: u64 = 4;
/// How far the largest node may be above the mean, and when at the latest after the load's end.
const MOST: f64 = 1.25;
const WITHIN: Duration = Duration::from_secs(60);
/// The same where figures mean nothing; balance is then to act at once.
const WITHIN_REHEARSED: Duration = Duration::from_secs(3);
const REHEARSED: [(&str, &str); 2] = [("--balance-window-ms", "1s"), ("--balance-bytes-floor", "0")];
/// Between two looks at the nodes' figures.
const LOOKS: Duration = Duration::from_millis(500);
/// At how many looks in a row the nodes' bytes must be as they are to be: a move that goes too far passes
/// through what is right.
const HOLDS: usize = 5;
const HOLDS_REHEARSED: usize = 2;
/// The shape whose load is followed by the death of a node, and which one dies.
const KILLED_AFTER: &str = "paths";
const KILLED: u16 = 1;
/// Of the mean, what a node has at least that has its share.
const LEAST: f64 = 0.8;
/// So long after its start a node that was killed has its share again; for twice as long it is waited for.
const RETURNS_WITHIN: Duration = Duration::from_secs(180);
const RETURNS_REHEARSED: Duration = Duration::from_secs(10);

/// Three nodes that take a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum World {
    On,
    Off,
    /// Balance is off, and each node was given a third of the keys beforehand.
    Split,
}

const WORLDS: [World; 3] = [World::On, World::Off, World::Split];

/// How a load went.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    /// Puts a second.
    rate: f64,
    /// The largest node over the mean: in bytes at the end, in operations of the load's last quarter.
    bytes: f64,
    operations: f64,
    /// After how many seconds the bytes were as they are to be, and stayed so, if they were in time; of
    /// balance on alone.
    settled: Option<f64>,
    /// How many seconds after its start a node that was killed had its share again, if it was waited for and
    /// had it.
    returned: Option<f64>,
}

/// What the nodes had done from their start to a load's end: where its rate went.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Pairs that there were at the end.
    pairs: usize,
    /// Pairs that were handed over, and for how many seconds their keys waited, one after the other.
    moves: f64,
    frozen: f64,
    /// Bytes of images and logs that were read to copy them.
    copied_bytes: f64,
    /// Bytes that were written to the disk. Log segments are filled with zeros first: each pair's, and those
    /// of each further owner.
    written_bytes: u64,
    /// Seconds of processor time.
    processor: f64,
}

impl Cost {
    fn of(served: &Served) -> Result<Cost, BenchError> {
        let sum = |name: &str| (0..NODES).map(|node| served.metric_of(node, name)).sum::<Result<f64, _>>();
        let nodes = served.server.nodes();
        let used: Used = nodes.iter().map(|node| Used::of(*node)).sum();
        Ok(Cost {
            pairs: pairs(&served.server)?.len(),
            moves: sum("cell_move_frozen_seconds_count")?,
            frozen: sum("cell_move_frozen_seconds_sum")?,
            copied_bytes: sum("cell_move_copied_bytes_total")?,
            written_bytes: nodes.iter().map(|node| written_bytes(*node)).sum(),
            processor: used.since_ns(Used::default()) as f64 / 1e9,
        })
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost { pairs, moves, frozen, copied_bytes, written_bytes, processor } = self;
        let [copied, written] = [*copied_bytes, *written_bytes as f64].map(|bytes| bytes / 1e6);
        write!(f, "{pairs} pairs, {moves} moves that held up keys for {frozen:.2} s, {copied:.0} MB copied")?;
        write!(f, ", {written:.0} MB written, {processor:.1} s of the nodes' processor time")
    }
}

/// Looks in a row at which the bytes were as they are to be.
#[derive(Default)]
struct Streak {
    looks: usize,
    /// When the first one was.
    since: Option<Duration>,
}

impl Streak {
    fn look(&mut self, ratio: f64, at: Duration) {
        if ratio <= MOST {
            self.looks += 1;
            self.since.get_or_insert(at);
        } else {
            *self = Self::default();
        }
    }
}

/// Runs the bench.
///
/// # Errors
/// A node or a client that failed.
pub fn run(parts: &PartOptions, report: &mut Report<'_>) -> Result<(), BenchError> {
    parts.check(&NAMES.map(str::to_owned))?;
    let options = &parts.options;
    let data = Dataset { entries: options.entries, seed: options.seed };
    let folder = Scratch::new(options.dir.as_deref())?;
    for name in NAMES.into_iter().filter(|name| parts.wants(name)) {
        let shape = Shape::of(name, &data)?;
        let mut loaded: [Vec<Loaded>; 3] = Default::default();
        for turn in 0..options.repeats() {
            let mut order = [0, 1, 2];
            if turn % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let (world, kills) = (WORLDS[index], name == KILLED_AFTER);
                let load = Load { shape: &shape, data: &data, world, kills, options };
                let (done, cost) = load.run(&folder.0.join("balance"))?;
                report.note(&format!("{name}, {world:?}: {done:.2?}"));
                report.note(&format!("{name}, {world:?}: {cost}"));
                loaded[index].push(done);
            }
        }
        add_rows(name, &loaded, report)?;
        if name == KILLED_AFTER {
            add_return(name, &loaded[0], report)?;
        }
    }
    Ok(())
}

/// A load into fresh nodes.
struct Load<'a> {
    shape: &'a Shape,
    data: &'a Dataset,
    world: World,
    /// A node is killed afterwards, where balance is on.
    kills: bool,
    options: &'a Options,
}

impl Load<'_> {
    fn start(&self, place: &Path) -> Result<Served, BenchError> {
        let sizes = many_meganodes(self.data.entries / FINER);
        let thirds = self.shape.cuts(self.data, usize::from(NODES));
        let nodes = NODES.to_string();
        let mut flags: Vec<(&str, &str)> = sizes.iter().map(|(name, size)| (*name, size.as_str())).collect();
        flags.push(("--nodes", nodes.as_str()));
        flags.push(("--balance", if self.world == World::On { "on" } else { "off" }));
        if self.world == World::Split {
            flags.push(("--initial-split-keys", thirds.as_str()));
        }
        if self.options.is_rehearsal() {
            flags.extend(REHEARSED);
        }
        let words = [&["--allow-drills"][..], leases(self.options)].concat();
        Served::start_cluster(place, self.data.entries, &flags, &words)
    }

    fn run(&self, place: &Path) -> Result<(Loaded, Cost), BenchError> {
        let mut served = self.start(place)?;
        let entries = self.data.entries;
        let quarter = entries - entries / 4;
        let mut time = self.put(&mut served, 0, quarter)?;
        let before = self.operations(&served, quarter)?;
        time += self.put(&mut served, quarter, entries)?;
        let ended = now();
        let rate = entries as f64 / time.as_secs_f64().max(1e-9);
        let after = self.operations(&served, entries)?;
        let done: Vec<f64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
        let operations = over_mean("operations", &done)?;
        let cost = Cost::of(&served)?;
        let (bytes, settled) = self.settle(&served.server, ended)?;
        let is_killed = self.kills && self.world == World::On;
        let returned = if is_killed { self.kill_one(&served.server)? } else { None };
        served.server.kill_all();
        drop(served);
        let _ = std::fs::remove_dir_all(place);
        Ok((Loaded { rate, bytes, operations, settled, returned }, cost))
    }

    /// Kills a node, and starts it again once the others have all pairs; after how many seconds it has its
    /// share and nobody has too much, which has to hold.
    fn kill_one(&self, server: &Server) -> Result<Option<f64>, BenchError> {
        let killed = usize::from(KILLED);
        let known = || bytes_by_node(server, usize::from(NODES));
        server.take_down(KILLED.into());
        patience::until_some("the others have what it had", || known().filter(|bytes| bytes[killed] == 0.0))?;
        server.start_node(KILLED.into());
        let (began, mut streak) = (now(), Streak::default());
        let (within, holds) = match self.options.is_rehearsal() {
            true => (RETURNS_REHEARSED, HOLDS_REHEARSED),
            false => (2 * RETURNS_WITHIN, HOLDS),
        };
        loop {
            let bytes = patience::until_some("it is known what each node has", known)?;
            let mean = bytes.iter().sum::<f64>() / f64::from(NODES);
            let has_share = bytes[killed] >= LEAST * mean;
            let ratio = if has_share { over_mean("bytes", &bytes)? } else { f64::INFINITY };
            let took = began.elapsed();
            streak.look(ratio, took);
            match streak.since {
                Some(since) if streak.looks >= holds => return Ok(Some(since.as_secs_f64())),
                _ if took >= within => return Ok(None),
                _ => disk::pause(LOOKS),
            }
        }
    }

    /// What each node has been asked for so far, once the metrics have as many operations as there were puts.
    fn operations(&self, served: &Served, puts: u64) -> Result<Vec<f64>, BenchError> {
        disk::pause(self.options.lasting(SNAPSHOT_AGE));
        let what = format!("the nodes count {puts} operations");
        patience::until_some_every(LOOKS, &what, || {
            let nodes = (0..NODES).map(|node| served.metric_of(node, "cell_operations_total"));
            match nodes.collect::<Result<Vec<f64>, BenchError>>() {
                Ok(counts) if counts.iter().sum::<f64>() < puts as f64 => None,
                counts => Some(counts),
            }
        })?
    }

    /// Puts entries; how long that took.
    fn put(&self, served: &mut Served, first: u64, last: u64) -> Result<Duration, BenchError> {
        let mut took = Duration::ZERO;
        for from in (first..last).step_by(usize::try_from(BATCH_ENTRIES).unwrap_or(1)) {
            let batch = self.shape.batch(self.data, from, (from + BATCH_ENTRIES).min(last));
            let began = now();
            served.put(&batch, OUTSTANDING)?;
            took += began.elapsed();
        }
        Ok(took)
    }

    /// The largest node's bytes over the mean: where balance is on, once that is little enough and stays so,
    /// or in the end.
    fn settle(&self, server: &Server, ended: Instant) -> Result<(f64, Option<f64>), BenchError> {
        let (within, holds) =
            if self.options.is_rehearsal() { (WITHIN_REHEARSED, HOLDS_REHEARSED) } else { (WITHIN, HOLDS) };
        let mut streak = Streak::default();
        loop {
            let bytes = patience::until_some("it is known what each node has", || {
                bytes_by_node(server, usize::from(NODES))
            })?;
            let (ratio, took) = (over_mean("bytes", &bytes)?, ended.elapsed());
            if self.world != World::On {
                return Ok((ratio, None));
            }
            streak.look(ratio, took);
            match streak.since.filter(|since| *since <= within) {
                Some(since) if streak.looks >= holds => return Ok((ratio, Some(since.as_secs_f64()))),
                // One that began in time is looked at to its end.
                None if took >= within => return Ok((ratio, None)),
                _ => disk::pause(LOOKS),
            }
        }
    }
}

/// What the node with most has over the mean.
///
/// # Errors
/// None has any: the figures are missing, and do not show that the nodes are alike.
fn over_mean(what: &str, numbers: &[f64]) -> Result<f64, BenchError> {
    let sum: f64 = numbers.iter().sum();
    if sum <= 0.0 {
        return Err(BenchError::Io(std::io::Error::other(format!("no node shows any {what}"))));
    }
    let largest = numbers.iter().copied().fold(0.0, f64::max);
    Ok(largest * numbers.len() as f64 / sum)
}

/// The figures of one shape.
fn add_rows(shape: &str, loaded: &[Vec<Loaded>; 3], report: &mut Report<'_>) -> Result<(), BenchError> {
    let middle = |of: fn(&Loaded) -> f64| {
        loaded.each_ref().map(|loads| contest::median(&loads.iter().map(of).collect::<Vec<_>>()))
    };
    let bench = |what: &str| format!("balance/{shape}: {what}");
    for (what, [on, off, split]) in [
        ("bytes, largest over mean", middle(|load| load.bytes)),
        ("operations of the last quarter, largest over mean", middle(|load| load.operations)),
    ] {
        for (rival, theirs, goal) in [
            ("the mean", 1.0, Goal::AtMost(MOST)),
            ("balance off", off, Goal::None),
            ("split by hand", split, Goal::None),
        ] {
            report.add(Figure::beside(bench(what), "of the mean", on, rival, theirs, goal))?;
        }
    }
    let settled: Option<Vec<f64>> = loaded[0].iter().map(|load| load.settled).collect();
    match settled {
        Some(times) => {
            let what = bench("bytes as they are to be after");
            report.add(Figure::alone(what, "s", contest::median(&times)))?;
        }
        None => report.note(&format!("{shape}: not each load's bytes were shared out in time")),
    }
    let [on, off, split] = middle(|load| load.rate);
    for (rival, theirs, goal) in
        [("split by hand", split, Goal::AtLeast(0.9)), ("balance off", off, Goal::None)]
    {
        report.add(Figure::beside(bench("puts"), "op/s", on, rival, theirs, goal))?;
    }
    Ok(())
}

/// The figure of nodes that were killed.
fn add_return(shape: &str, loads: &[Loaded], report: &mut Report<'_>) -> Result<(), BenchError> {
    let returned: Option<Vec<f64>> = loads.iter().map(|load| load.returned).collect();
    let Some(times) = returned else {
        report.note(&format!("{shape}: not each node that was killed had its share again in time"));
        return Ok(());
    };
    let bench = format!("balance/{shape}: a node that was killed has its share after");
    let (took, within) = (contest::median(&times), RETURNS_WITHIN.as_secs_f64());
    report.add(Figure::beside(bench, "s", took, "three minutes", within, Goal::AtMost(1.0)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_mean_of_equal_nodes_is_one_and_of_one_that_has_all_their_number() {
        assert_eq!(over_mean("bytes", &[2.0, 2.0, 2.0]).unwrap(), 1.0);
        assert_eq!(over_mean("bytes", &[0.0, 6.0, 0.0]).unwrap(), 3.0);
        assert!(over_mean("bytes", &[0.0; 3]).is_err());
    }

    #[test]
    fn streak_begins_anew_after_a_look_at_which_one_node_has_too_much() {
        let mut streak = Streak::default();
        for (second, ratio) in [2.0, 1.2, 1.3, 1.25, 1.1].into_iter().enumerate() {
            streak.look(ratio, Duration::from_secs(second as u64));
        }
        assert_eq!((streak.looks, streak.since), (2, Some(Duration::from_secs(3))));
        streak.look(1.26, Duration::from_secs(5));
        assert_eq!((streak.looks, streak.since), (0, None));
    }
}
