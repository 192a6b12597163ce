//! A node that answers past its lease while the coordinator is away: nobody but its own clock shows that.
#![cfg(debug_assertions)]

use cell_cluster::Away;
use cell_simulator::faults::{AwayOnce, FAULTS};
use cell_simulator::plan::Plan;
use cell_simulator::serving::LATE_BY_ITS_CLOCK;
use cell_simulator::shrink::Without;
use cell_simulator::{Event, RunOptions, run};
use cell_terms::mutant::{Mutant, in_own_process, plant};

/// Longer than any lease.
const AWAY_NS: u64 = 30_000_000_000;
/// So many calls of a run are tried.
const TRIES: u64 = 12;

#[test]
fn mutant_lease_ignored_is_caught_by_the_nodes_own_clock() {
    in_own_process(|| {
        let calm =
            RunOptions { operations: 80, stop_after: 80, without: Without::all(), ..RunOptions::default() };
        let of_one = |seed: &u64| Plan::new(*seed, calm.operations, FAULTS.len()).nodes == 1;
        let seed = (1..).find(of_one).expect("some seeds have one node");
        let calls = run(seed, calm).unwrap_or_else(|failed| panic!("{}", failed.broken)).calls;
        let (mut silent, mut caught) = (0, 0);
        for calls in (1..calls).step_by(usize::try_from(calls.div_ceil(TRIES)).unwrap()) {
            let away = Some(AwayOnce { calls, how: Away::Still, lasts_ns: AWAY_NS });
            let passed = run(seed, RunOptions { away, ..calm });
            let passed = passed.unwrap_or_else(|failed| panic!("{away:?}: {}", failed.broken));
            silent += passed.coverage.count(Event::ServedOn);
            let planted = run(seed, RunOptions { away, mutant: Some(Mutant::LeaseIgnored), ..calm });
            let is_late = |broken: &str| broken.contains(LATE_BY_ITS_CLOCK);
            caught += u32::from(planted.is_err_and(|failed| is_late(&failed.broken.to_string())));
        }
        plant(None);
        assert!(silent > 0 && caught > 0, "{silent} times silent, {caught} times caught");
        println!("mutant {} caught by the simulated node's own clock", Mutant::LeaseIgnored.name());
    });
}
