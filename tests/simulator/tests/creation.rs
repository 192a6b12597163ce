//! A pair that is made for a split, and whose creation is broken off once its row is there: its owner takes
//! it up, or the run ends with a pair that nobody serves.
#![cfg(debug_assertions)]

use cell_simulator::faults::FAULTS;
use cell_simulator::plan::Plan;
use cell_simulator::shrink::Without;
use cell_simulator::{RunOptions, run};
use cell_terms::mutant::{Mutant, in_own_process, plant};

/// Seeds in which a pair is created are looked for among so many, until there are enough.
const SEEDS: u64 = 80;
const SEEDS_ENOUGH: usize = 2;
/// Slots of a pair, the most: so few are soon full.
const SLOTS_MAX: u64 = 5;

/// Nothing else goes wrong.
fn broken_once() -> RunOptions {
    RunOptions {
        operations: 1_500,
        stop_after: 1_500,
        without: Without::all(),
        break_creation: true,
        ..RunOptions::default()
    }
}

/// Whether a node may add a pair, and soon wants one.
fn may_create(plan: &Plan) -> bool {
    let slots = plan.geometry.node_region_bytes / plan.geometry.slot_bytes;
    plan.pairs_max > 1 && plan.pairs_fit == 0 && (2..=SLOTS_MAX).contains(&slots)
}

/// It stayed New for as long as its owner lived, and no run missed it: nobody had ever served it.
#[test]
fn mutant_creation_left_is_caught_by_a_pair_that_nobody_serves() {
    in_own_process(|| {
        let options = broken_once();
        let wanted = |seed: &u64| may_create(&Plan::new(*seed, options.operations, FAULTS.len()));
        let mut caught = Vec::new();
        for seed in (1..=SEEDS).filter(wanted) {
            let passed = run(seed, options).unwrap_or_else(|failed| panic!("seed {seed}: {}", failed.broken));
            if !passed.creation_broken {
                continue;
            }
            let planted = run(seed, RunOptions { mutant: Some(Mutant::CreationLeft), ..options });
            let broken = planted.err().map(|failed| failed.broken.to_string()).unwrap_or_default();
            assert!(broken.contains("is not served: New"), "seed {seed}: {broken}");
            caught.push(seed);
            if caught.len() == SEEDS_ENOUGH {
                break;
            }
        }
        plant(None);
        assert_eq!(caught.len(), SEEDS_ENOUGH, "pairs were created in the runs of {caught:?} alone");
        println!("mutant {} caught by simulated runs' ends", Mutant::CreationLeft.name());
    });
}
