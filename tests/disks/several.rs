//! Power cuts of a whole cluster: three nodes on one disk, whose pairs are split and taken over meanwhile.

use std::time::{Duration, Instant};

use cell_client::{Client, ClientOptions};
use cell_tests::cluster::View;
use cell_tests::faulty_disk::{Fault, FaultyDisk};
use cell_tests::lease::LONG_LEASE;
use cell_tests::ledger::Ledger;
use cell_tests::repeats::Repeats;
use cell_tests::server::Server;
use cell_tests::traffic::Traffic;
use cell_tests::wait;

use crate::disks::PATIENCE;

const DISK_MEBIBYTES: u64 = 1536;
/// Writers of each round, each with keys of its own: the tree grows from round to round.
const WRITERS: u64 = 3;
const NODES: u16 = 3;
/// How long may be waited for what a cut is to meet; then it comes without.
const MEETS_WITHIN: Duration = Duration::from_secs(60);
/// Nothing is split any more where the last split has started so long ago.
const STILL_FOR: Duration = Duration::from_secs(15);

/// Slots of 128 tree nodes, so that some thousand entries are split again and again.
const FLAGS: [&str; 13] = [
    LONG_LEASE[0],
    LONG_LEASE[1],
    "--nodes=3",
    "--allow-drills",
    "--slot-bytes=64KiB",
    "--tree-node-bytes=512",
    "--node-region-bytes=1MiB",
    "--extent-region-bytes=8MiB",
    "--split-fill-percent=50",
    "--memory-limit-bytes=512MiB",
    "--log-segment-bytes=1MiB",
    // Several pairs a node: one flush makes the writes of all of them durable.
    "--log-flush=per_device",
    "--checkpoint-log-bytes-min=2MiB",
];

/// What is under way when power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meets {
    /// A split that has started and is not settled.
    Split,
    /// A pair whose owner has died.
    Takeover,
    /// Both sides of splits, at survivors who have just taken them over.
    Successors,
}

const MEETS: [Meets; 3] = [Meets::Takeover, Meets::Split, Meets::Successors];

fn cuts() -> u32 {
    Repeats { plain: 3, quick: 3, full: 6, long: 30 }.of_this_run()
}

#[allow(clippy::disallowed_methods, reason = "real clusters have real time")]
fn now() -> Instant {
    Instant::now()
}

/// A client of each node, to ask it for its splits.
struct Watch(Vec<Client>);

impl Watch {
    fn new(server: &Server) -> Watch {
        let first = server.address().port();
        let connect = |node| {
            let options = ClientOptions { deadline_ms: 1_000, ..ClientOptions::default() };
            Client::connect(&format!("127.0.0.1:{}", first + node), options).expect("every node is there")
        };
        Watch((0..NODES).map(connect).collect())
    }

    /// Splits since the nodes' starts: started, and under way.
    fn splits(&mut self) -> (u64, u64) {
        let shapes = self.0.iter_mut().filter_map(|client| client.tree(0).ok());
        shapes.fold((0, 0), |sum, shape| {
            let [started, _, _, under_way] = shape.report().splits;
            (sum.0 + started, sum.1 + under_way)
        })
    }
}

/// Looks at splits, those since `started` and those under way, until they are as wanted, and `rests` between
/// two looks; whether that came soon enough. Once there were some, it does not come any more where none
/// starts for long.
#[allow(clippy::disallowed_methods, reason = "real clusters have real time")]
fn comes(watch: &mut Watch, started: u64, wanted: impl Fn(u64, u64) -> bool, rests: fn()) -> bool {
    let start = now();
    let (mut before, mut since) = (0, start);
    loop {
        let (all, under_way) = watch.splits();
        let new = all.saturating_sub(started);
        if wanted(new, under_way) {
            return true;
        }
        if new != before {
            (before, since) = (new, now());
        }
        if start.elapsed() > MEETS_WITHIN || (new > 0 && since.elapsed() > STILL_FOR) {
            return false;
        }
        rests();
    }
}

fn is_whole(view: &View) -> bool {
    view.pairs().iter().all(|row| view.is_served(row["pair"].as_u64().unwrap_or(0)))
}

/// Brings about what the cut is to meet; whether it is met, as far as one can see from outside. `started`:
/// splits before this round's writers. They may have written all of their keys by now, and nothing be split
/// any more.
fn meet(server: &Server, meets: Meets, mut watch: Watch, started: u64) -> bool {
    if meets == Meets::Split {
        // It is soon over.
        let is_met = |new: u64, under_way: u64| new > 0 && under_way > 0;
        return comes(&mut watch, started, is_met, std::thread::yield_now);
    }
    comes(&mut watch, started, |new, _| new > 0, wait::pause);
    server.take_down(server.view().busiest());
    if meets == Meets::Takeover {
        return !is_whole(&server.view());
    }
    server.wait_view("taken over", is_whole);
    true
}

#[test]
fn power_cut_of_three_nodes_amid_splits_and_takeovers_keeps_everything_acknowledged() {
    let Some(mut disk) = FaultyDisk::new(Fault::VolatileCache, DISK_MEBIBYTES) else { return };
    let mut server = Server::prepared(&disk.mount().join("data"), &FLAGS);
    let log = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    server.log_to(log.path());
    server.resume();
    let mut ledgers: Vec<Ledger> = Vec::new();
    let mut met = [0; MEETS.len()];
    for cut in 0..cuts() {
        server.wait_healthy();
        let mut watch = Watch::new(&server);
        let started = watch.splits().0;
        let traffic = Traffic::new(server.address());
        let kind = cut as usize % MEETS.len();
        std::thread::scope(|scope| {
            let traffic = &traffic;
            let writer = |number: u64| {
                scope.spawn(move || traffic.keep_ledger(u64::from(cut) * WRITERS + number, PATIENCE))
            };
            let writers: Vec<_> = (0..WRITERS).map(writer).collect();
            let ending = traffic.ending();
            let is_met = meet(&server, MEETS[kind], watch, started);
            met[kind] += u32::from(is_met);
            println!("cut {cut}: a {:?} is met: {is_met}", MEETS[kind]);
            // From now on they write on to be there, and leave the processors to who comes back.
            traffic.ease();
            disk.unplug();
            server.kill_all();
            disk.detach();
            disk.plug();
            server.resume();
            server.wait_healthy();
            drop(ending);
            ledgers.extend(writers.into_iter().map(|writer| writer.join().expect("a writer did not panic")));
        });
        // What was acknowledged before this cut, or before any other.
        let keys: usize = ledgers.iter().map(|ledger| traffic.verify(ledger)).sum();
        let verified = server.cell(&["verify"]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
        println!("cut {cut} amid a {:?}: {keys} keys verified", MEETS[kind]);
    }
    assert!(met.iter().all(|met| *met > 0), "{MEETS:?} were met {met:?} times");
    let acknowledged: u64 = ledgers.iter().map(|ledger| ledger.counts().0).sum();
    assert!(acknowledged > u64::from(cuts()) * 100, "there was load: {acknowledged} writes");
    server.kill_all();
}
