//! Some dozens of seeds, the same seed twice, and checks that must fail.

use cell_simulator::{Coverage, Event, Passed, Planted, RunOptions, run};

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
    ];
    for event in common {
        assert!(seen.count(event) > 0, "{} never happened", event.name());
    }
}

#[test]
fn same_seed_same_history() {
    for seed in [3, 17, 4_711] {
        assert_eq!(pass(seed, short()), pass(seed, short()), "seed {seed}");
    }
    assert_ne!(pass(3, short()).digest, pass(17, short()).digest);
}

/// How many of some seeds notice a planted defect. A defect need not show in each: a write may be lost that
/// nobody misses, because the next one of its key came through.
fn caught(planted: Planted) -> usize {
    let options = RunOptions { planted: Some(planted), ..short() };
    (1..=20).filter(|seed| run(*seed, options).is_err()).count()
}

#[test]
fn planted_defects_are_caught() {
    for planted in [Planted::WriteLost, Planted::EntryLost, Planted::ReadMissed, Planted::DeleteInvented] {
        let caught = caught(planted);
        println!("{planted:?}: caught in {caught} of 20 seeds");
        assert!(caught >= 5, "{planted:?} was caught in {caught} of 20 seeds");
    }
}
