//! Some dozens of seeds, the same seed twice, and checks that must fail.

use cell_cluster::Away;
use cell_simulator::faults::{AwayOnce, FAULTS};
use cell_simulator::plan::Plan;
use cell_simulator::shrink::Without;
use cell_simulator::{Coverage, Event, Passed, Planted, RunOptions, run};
use cell_tests::repeats::Repeats;

fn pass(seed: u64, options: RunOptions) -> Passed {
    run(seed, options).unwrap_or_else(|failed| panic!("seed {seed}: {}", failed.broken))
}

/// Fewer operations than a sweep's runs have: this is a quick test.
fn short() -> RunOptions {
    RunOptions { operations: 1_500, ..RunOptions::default() }
}

#[test]
fn seeds_each_hold_every_rule() {
    let mut seen = Coverage::default();
    for seed in 1..=40 {
        let coverage = pass(seed, short()).coverage;
        assert!(coverage.count(Event::Faults) >= 10, "seed {seed}: {}", coverage.count(Event::Faults));
        seen.merge(&coverage);
    }
    let survived = seen.count(Event::SurvivorRuns);
    assert!(survived >= 20, "takeovers by another host in {survived} of 40 seeds");
    let common = [
        Event::Acknowledged,
        Event::Unknown,
        Event::ConditionFailed,
        Event::Pages,
        Event::Streams,
        Event::Repeated,
        Event::Recoveries,
        Event::RecoveryDied,
        Event::RecoveryFailed,
        Event::Survivor,
        Event::Clusters,
        Event::Isolations,
        Event::AllStopped,
        Event::SplitsFinished,
        Event::FromCheckpoint,
        Event::CheckpointDied,
        Event::Rotations,
        Event::Kills,
        Event::PowerCuts,
        Event::PowerInOperation,
        Event::LateWrites,
        Event::InFlight,
        Event::Poisoned,
        Event::DiskFull,
        Event::LeaseLost,
        Event::Resets,
        Event::BitRot,
        Event::OneSided,
        Event::FellBack,
        Event::Torn,
        Event::RightLinks,
        Event::WatermarkWaits,
        Event::Overruns,
        Event::ClientPauses,
        Event::ClientStalls,
        Event::WorkerStalls,
        Event::DiskHung,
        Event::Interleaved,
        Event::CoordinatorPower,
        Event::CoordinatorStill,
        Event::ServedOn,
    ];
    for event in common {
        assert!(seen.count(event) > 0, "{} never happened", event.name());
    }
}

#[test]
fn same_seed_same_history() {
    let digests = [3, 17, 4_711].map(|seed| {
        let passed = pass(seed, short());
        assert_eq!(passed, pass(seed, short()), "seed {seed}");
        passed.digest
    });
    assert_ne!(digests[0], digests[1]);
}

/// The seeds of some that notice a planted defect, so many at most. A defect need not show in each: a write
/// may be lost that nobody misses, because the next one of its key came through.
fn caught(planted: Planted, most: usize) -> Vec<u64> {
    let options = RunOptions { planted: Some(planted), ..short() };
    (1..=20).filter(|seed| run(*seed, options).is_err()).take(most).collect()
}

#[test]
fn planted_defects_are_caught() {
    for planted in [Planted::WriteLost, Planted::EntryLost, Planted::ReadMissed, Planted::DeleteInvented] {
        let caught = caught(planted, 5);
        println!("{planted:?}: caught by the seeds {caught:?}");
        assert_eq!(caught.len(), 5, "{planted:?} was caught by {caught:?} alone of 20 seeds");
    }
}

/// For how long the coordinator is away: less than a lease, about one, and up to three hundred.
const AWAY_MS: [u64; 6] = [100, 300, 700, 1_500, 5_000, 30_000];

/// What happened in runs without other faults in which the coordinator was away once in this way, each from
/// a later call on. Of all calls of a run so many are tried, with the lengths in turn; all of them, each with
/// every length, in `tests/run long`.
fn away_from_every_call(how: Away) -> Coverage {
    let tries = Repeats { plain: 20, quick: 20, full: 150, long: u32::MAX }.of_this_run();
    let with_every_length = Repeats { plain: 0, quick: 0, full: 0, long: 1 }.of_this_run() > 0;
    let calm =
        RunOptions { operations: 80, stop_after: 80, without: Without::all(), ..RunOptions::default() };
    let mut seen = Coverage::default();
    // One seed of one node, one of two, one of three.
    for nodes in 1..=3 {
        let of_so_many = |seed: &u64| Plan::new(*seed, calm.operations, FAULTS.len()).nodes == nodes;
        let seed = (1..).find(of_so_many).expect("each number of nodes has seeds");
        let calls = pass(seed, calm).calls;
        let step = usize::try_from((calls / u64::from(tries)).max(1)).expect("calls are few");
        let of_each = if with_every_length { AWAY_MS.len() } else { 1 };
        let tried = (1..calls).step_by(step).enumerate();
        let tried = tried.flat_map(|(at, calls)| (at..at + of_each).map(move |at| (at, calls)));
        println!("{nodes} nodes: {calls} calls, one in {step} tried with {of_each} lengths");
        for (at, calls) in tried {
            let lasts_ns = AWAY_MS[at % AWAY_MS.len()] * 1_000_000;
            let away = Some(AwayOnce { calls, how, lasts_ns });
            let passed = run(seed, RunOptions { away, ..calm });
            let passed = passed.unwrap_or_else(|failed| panic!("seed {seed}, {away:?}: {}", failed.broken));
            if how == Away::Still {
                let lost = passed.coverage.count(Event::LeaseLost);
                assert_eq!(lost, 0, "seed {seed}, {away:?}: a process ended for want of its lease");
            }
            seen.merge(&passed.coverage);
        }
    }
    seen
}

/// Whenever it stands still, and however long: nobody ends, and what was served is served on.
#[test]
fn coordinator_standing_still_from_any_call_on_ends_no_process() {
    let seen = away_from_every_call(Away::Still);
    assert!(seen.count(Event::ServedOn) > 20, "{} served on", seen.count(Event::ServedOn));
}

/// One node does not reach it, whenever and however long; the others do, and take over what it has.
#[test]
fn node_that_does_not_reach_the_coordinator_from_any_call_on_serves_on_or_gives_way() {
    let seen = away_from_every_call(Away::Cut);
    for event in [Event::LeaseLost, Event::Survivor] {
        assert!(seen.count(event) > 0, "{} never happened", event.name());
    }
}

/// What a host without its log root cannot read, another node serves, and no operator is needed.
#[test]
fn pairs_that_one_host_cannot_read_are_served_by_others() {
    let (options, mut seen) = (RunOptions { unmounted: Some(1), ..short() }, Coverage::default());
    let of_several = |seed: &u64| Plan::new(*seed, options.operations, FAULTS.len()).may_unmount();
    for seed in (1..).filter(of_several).take(8) {
        seen.merge(&pass(seed, options).coverage);
    }
    assert!(seen.count(Event::Misread) > 0, "the host never looked at a pair");
}
