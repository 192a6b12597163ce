//! etcd is away while clients read and write: all of its members stand still for a while, or are killed and
//! started again. What fails of a load whose clients have their sessions and a deadline of 30 s, how many
//! nodes are restarted, how many pairs are claimed, and how long the longest operation takes.

use std::io;
use std::path::Path;
use std::time::Duration;

use cell_client::{ClientOptions, Search};
use cell_random::Random;
use serde_json::Value;

use crate::data::{Choice, Dataset};
use crate::disk;
use crate::drills::all_served;
use crate::etcd::Etcd;
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::paced::{Probe, Pulse, drive, now, watch};
use crate::served::{Served, patient};

use super::nodes;

/// How long etcd is away, before it elects. In a rehearsal, too: there it is longer than a lease.
const AWAY: Duration = Duration::from_secs(5);
/// How long a client tries each operation.
const DEADLINE_MS: u64 = 30_000;
/// How each client searches.
const SEARCHES: [Search; 2] = [Search::Server, Search::Client];
/// Between two operations of a client: far below what a node can do, so that what has waited is done soon.
const INTERVAL: Duration = Duration::from_millis(1);
/// How long load goes on before it is looked at, and once all is back; and how long a look takes.
const SETTLES: Duration = Duration::from_secs(2);
const LASTS: Duration = Duration::from_secs(5);
/// What is put: as long as the data's values on average.
const VALUE: [u8; 132] = [b'v'; 132];
/// Operations of a client that are drawn beforehand, and done again and again.
const PROBES: usize = 50_000;
/// More data would say no more: nothing of it is read from disk.
const ENTRIES_MAX: u64 = 500_000;

/// How etcd goes away.
#[derive(Clone, Copy, Debug)]
enum Outage {
    StandsStill,
    Killed,
}

impl Outage {
    const ALL: [Outage; 2] = [Outage::StandsStill, Outage::Killed];

    /// How rows name it.
    fn name(self) -> &'static str {
        match self {
            Outage::StandsStill => "etcd stands still",
            Outage::Killed => "etcd killed",
        }
    }

    /// Takes etcd away, and gives it back; from when on until a write was accepted again.
    fn pass(self, etcd: &mut Etcd) -> io::Result<Duration> {
        let began = now();
        match self {
            Outage::StandsStill => etcd.stop_members(),
            Outage::Killed => etcd.kill_members()?,
        }
        disk::pause(AWAY);
        match self {
            Outage::StandsStill => etcd.continue_members()?,
            Outage::Killed => etcd.start_members()?,
        }
        Ok(began.elapsed())
    }
}

/// What was seen of one or several outages.
#[derive(Debug, Default)]
struct Seen {
    done: u64,
    failed: u64,
    nodes_restarted: usize,
    pairs_claimed: usize,
    /// The longest operation without an outage.
    calm_ms: f64,
    longest_ms: f64,
    away_seconds: f64,
}

impl Seen {
    /// Takes another outage in: counts are of all, times those of the longest one.
    fn add(&mut self, other: &Seen) {
        self.done += other.done;
        self.failed += other.failed;
        self.nodes_restarted += other.nodes_restarted;
        self.pairs_claimed += other.pairs_claimed;
        self.calm_ms = self.calm_ms.max(other.calm_ms);
        self.longest_ms = self.longest_ms.max(other.longest_ms);
        self.away_seconds = self.away_seconds.max(other.away_seconds);
    }
}

/// Runs this part of the bench.
///
/// # Errors
/// A node, a client or etcd that failed.
pub(super) fn run(
    folder: &Path,
    data: &Dataset,
    options: &Options,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let data = Dataset { entries: data.entries.min(ENTRIES_MAX), ..*data };
    let mut etcd = Etcd::start(&folder.join("etcd"))?;
    let served = nodes::start(&folder.join("nodes"), &data, Some(&etcd), options)?;
    // Uniform, so that each pair is asked for something all the time.
    let packed = data.probes(Choice::Uniform, PROBES * SEARCHES.len(), data.seed ^ 0x6F75_7461);
    let mut random = Random::new(data.seed ^ 0x6765_7473);
    let probes: Vec<Probe> =
        (0..packed.len()).map(|at| (packed.get(at).to_vec(), random.below(2) == 0)).collect();
    let times = [SETTLES, LASTS].map(|whole| options.lasting(whole));
    let mut seen: [Seen; 2] = Default::default();
    for _ in 0..options.repeats() {
        for (outage, seen) in Outage::ALL.into_iter().zip(&mut seen) {
            seen.add(&look(outage, &mut etcd, &served, &probes, times)?);
        }
    }
    served.remove();
    etcd.remove();
    for (outage, seen) in Outage::ALL.into_iter().zip(&seen) {
        add_rows(outage, seen, report)?;
    }
    Ok(())
}

/// One outage under load.
fn look(
    outage: Outage,
    etcd: &mut Etcd,
    served: &Served,
    probes: &[Probe],
    times: [Duration; 2],
) -> Result<Seen, BenchError> {
    let before = all_served(&served.server)?;
    let pulse = Pulse::default();
    let began = now();
    let (calm_ms, done_before, away) = std::thread::scope(|scope| -> Result<_, BenchError> {
        let ending = pulse.ending();
        let mut loads = Vec::new();
        for (search, probes) in SEARCHES.into_iter().zip(probes.chunks(PROBES)) {
            let options = ClientOptions { search, deadline_ms: DEADLINE_MS, ..patient() };
            let (mut client, pulse) = (served.client(options)?, &pulse);
            loads.push(scope.spawn(move || drive(&mut client, probes, &VALUE, Some(INTERVAL), pulse)));
        }
        // Clients have their sessions by now.
        watch(&pulse, times);
        let (calm_ms, done_before) = (pulse.take_longest_ms(), pulse.look(began).done);
        let away = outage.pass(etcd)?;
        all_served(&served.server)?;
        disk::pause(times[0]);
        drop(ending);
        for load in loads {
            load.join().expect("the load does not panic")?;
        }
        Ok((calm_ms, done_before, away))
    })?;
    let after = all_served(&served.server)?;
    Ok(Seen {
        done: pulse.look(began).done - done_before,
        failed: pulse.failed(),
        nodes_restarted: changed(&before, &after, "nodes", "node", &["pid", "lives"]),
        pairs_claimed: changed(&before, &after, "pairs", "pair", &["epoch"]),
        calm_ms,
        longest_ms: pulse.take_longest_ms(),
        away_seconds: away.as_secs_f64(),
    })
}

/// How many rows of a list are gone, or differ in one of these fields; a row is known by its number.
fn changed(before: &Value, after: &Value, list: &str, number: &str, fields: &[&str]) -> usize {
    let rows = |status: &Value| status[list].as_array().cloned().unwrap_or_default();
    let later = rows(after);
    let is_same = |row: &Value| {
        let found = later.iter().find(|other| other[number] == row[number]);
        found.is_some_and(|other| fields.iter().all(|field| other[*field] == row[*field]))
    };
    rows(before).iter().filter(|row| !is_same(row)).count()
}

fn add_rows(outage: Outage, seen: &Seen, report: &mut Report<'_>) -> Result<(), BenchError> {
    let name = |what: &str| format!("coordinator/{what}, {}", outage.name());
    for (what, unit, count) in [
        ("operations failed", "operations", seen.failed as f64),
        ("nodes restarted", "nodes", seen.nodes_restarted as f64),
        ("pairs claimed", "pairs", seen.pairs_claimed as f64),
    ] {
        report.add(Figure::to_be_none(name(what), unit, count))?;
    }
    let (longest, calm) = (seen.longest_ms, seen.calm_ms);
    report.add(Figure::beside(name("longest stall"), "ms", longest, "before", calm, Goal::None))?;
    let (away, rival) = (AWAY.as_secs_f64(), "away, without the election");
    let bench = name("etcd accepts no write");
    report.add(Figure::beside(bench, "s", seen.away_seconds, rival, away, Goal::None))?;
    report.add(Figure::alone(name("operations done"), "operations", seen.done as f64))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changed_counts_rows_that_are_gone_or_others_and_none_that_are_new() {
        let of = |pids: [u64; 2], epochs: &[(u64, u64)]| {
            let nodes: Vec<Value> =
                (0..).zip(pids).map(|(node, pid)| json!({"node": node, "pid": pid, "lives": 1})).collect();
            let pairs: Vec<Value> =
                epochs.iter().map(|(pair, epoch)| json!({"pair": pair, "epoch": epoch})).collect();
            json!({"nodes": nodes, "pairs": pairs})
        };
        let before = of([7, 8], &[(1, 1), (2, 5)]);
        let count = |after: &Value| {
            [
                changed(&before, after, "nodes", "node", &["pid", "lives"]),
                changed(&before, after, "pairs", "pair", &["epoch"]),
            ]
        };
        assert_eq!(count(&of([7, 8], &[(2, 5), (3, 1), (1, 1)])), [0, 0], "another order, and a new pair");
        assert_eq!(count(&of([7, 9], &[(1, 2), (2, 5)])), [1, 1]);
        assert_eq!(count(&of([7, 8], &[(2, 6)])), [0, 2]);
    }
}
