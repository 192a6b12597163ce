//! `kill -9` of one of three nodes that hold data, in turn under the embedded coordinator, on etcd, and on
//! etcd whose leader is killed at the same moment: how long until the node's first pair is served again, and
//! until all of them are.

use std::io;
use std::path::Path;
use std::time::Duration;

use cell_tests::lease::LEASE;

use crate::contest;
use crate::data::Dataset;
use crate::disk;
use crate::drills::{self, Killed};
use crate::etcd::Etcd;
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::put::SNAPSHOT_AGE;
use crate::served::ready_bytes;

use super::nodes::{self, NODES};

/// How long the killed node is away: longer than a lease on etcd, an election and the takeover.
const DOWN: Duration = Duration::from_secs(30);
/// Leases as `cell` has them unless set otherwise, under the embedded coordinator and on etcd.
const LEASE_EMBEDDED: Duration = Duration::from_millis(500);
const LEASE_ETCD: Duration = Duration::from_secs(5);
/// What the goal adds to the lease.
const ALLOWANCE_SECONDS: f64 = 1.0;

/// Under which coordinator a node is killed, and what becomes of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum World {
    Embedded,
    Etcd,
    EtcdLeaderKilled,
}

impl World {
    const ALL: [World; 3] = [World::Embedded, World::Etcd, World::EtcdLeaderKilled];

    /// How rows name it.
    fn name(self) -> &'static str {
        match self {
            World::Embedded => "embedded coordinator",
            World::Etcd => "etcd",
            World::EtcdLeaderKilled => "etcd, its leader killed",
        }
    }

    /// How long leases last there, in seconds.
    fn lease(self, options: &Options) -> f64 {
        let lease = match self {
            _ if options.is_rehearsal() => LEASE,
            World::Embedded => LEASE_EMBEDDED,
            World::Etcd | World::EtcdLeaderKilled => LEASE_ETCD,
        };
        lease.as_secs_f64()
    }
}

/// A node that was killed, and how many entries it had.
struct Lost {
    killed: Killed,
    entries: f64,
}

/// Runs this part of the bench.
///
/// # Errors
/// A node, a client, a drill or etcd that failed.
pub(super) fn run(
    folder: &Path,
    data: &Dataset,
    options: &Options,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let raw = data.raw_bytes() as f64;
    report.note(&format!("{} entries, {:.0} MB of keys and values, {NODES} nodes", data.entries, raw / 1e6));
    let mut lost: [Vec<Lost>; 3] = Default::default();
    for turn in 0..options.repeats() {
        let mut order = World::ALL;
        if turn % 2 == 1 {
            order.reverse();
        }
        for world in order {
            let node = kill_under(world, folder, data, options)?;
            report.note(&format!("{}: {}", world.name(), node.killed.words()));
            lost[world as usize].push(node);
        }
    }
    add_rows(&lost, raw / data.entries as f64, options, report)
}

/// Starts nodes under this coordinator, and kills the one that owns most.
fn kill_under(world: World, folder: &Path, data: &Dataset, options: &Options) -> Result<Lost, BenchError> {
    let mut etcd = match world {
        World::Embedded => None,
        World::Etcd | World::EtcdLeaderKilled => Some(Etcd::start(&folder.join("etcd"))?),
    };
    let served = nodes::start(&folder.join("nodes"), data, etcd.as_ref(), options)?;
    let node = drills::busiest(&served.server)?;
    disk::pause(SNAPSHOT_AGE);
    let entries = served.metric_of(node, "cell_pair_entries")?;
    let mut leader_killed = None;
    let ready = (NODES, ready_bytes(data.entries, NODES));
    let killed = drills::kill(&served.server, node, ready, options.lasting(DOWN), &mut || {
        if let (World::EtcdLeaderKilled, Some(etcd)) = (world, &mut etcd) {
            leader_killed = Some(etcd.kill_leader());
        }
    })?;
    match leader_killed {
        Some(is_killed) => is_killed?,
        None if world == World::EtcdLeaderKilled => {
            return Err(io::Error::other("the drill did not say when it killed the node").into());
        }
        None => {}
    }
    served.remove();
    etcd.into_iter().for_each(Etcd::remove);
    Ok(Lost { killed, entries })
}

/// One figure of a killed node.
type OfLost = fn(&Lost) -> f64;

/// The figures of the killed nodes.
fn add_rows(
    lost: &[Vec<Lost>; 3],
    entry_bytes: f64,
    options: &Options,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let middle =
        |world: World, of: OfLost| contest::median(&lost[world as usize].iter().map(of).collect::<Vec<_>>());
    for world in World::ALL {
        let bench = format!("coordinator/data of the killed node, {}", world.name());
        let megabytes = middle(world, |node| node.entries) * entry_bytes / 1e6;
        report.add(Figure::alone(bench, "MB", megabytes))?;
    }
    let figures: [(&str, OfLost); 2] =
        [("first pair", |node| node.killed.first_served), ("all pairs", |node| node.killed.served)];
    for (figure, of) in figures {
        let embedded = middle(World::Embedded, of);
        let bench = |world: World| format!("coordinator/{figure}, {}", world.name());
        report.add(Figure::alone(bench(World::Embedded), "s", embedded))?;
        for world in [World::Etcd, World::EtcdLeaderKilled] {
            let (ours, lease) = (middle(world, of), world.lease(options));
            let (rival, most) = ("embedded + lease on etcd + 1 s", embedded + lease + ALLOWANCE_SECONDS);
            report.add(Figure::beside(bench(world), "s", ours, rival, most, Goal::AtMost(1.0)))?;
            let (rival, apart) = ("embedded + what leases differ by", lease - World::Embedded.lease(options));
            report.add(Figure::beside(bench(world), "s", ours, rival, embedded + apart, Goal::None))?;
        }
    }
    Ok(())
}
