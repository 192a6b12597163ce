//! The twins of the coordinator's tests: each defect must be caught by a check that is clean without it.
//! Built with `RUSTFLAGS="--cfg cell_mutants"`; empty otherwise.
#![cfg(cell_mutants)]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use cell_cluster::{Coordinator, Sim, Transaction};
use cell_terms::mutant::{Mutant, plant};

/// Whether what the simulated coordinator acknowledged outlives a power cut.
fn simulated_power_cut_is_clean() -> bool {
    let sim = Sim::new(7);
    let link = sim.link();
    for key in ["k/1", "k/2"] {
        link.transact(Transaction::new().put(key, "")).unwrap();
    }
    sim.cut_power();
    sim.power_on();
    link.list("k/").unwrap().entries.len() == 2
}

/// One test, because a defect is planted in the whole process.
#[test]
fn every_mutant_of_the_coordinator_is_caught() {
    let checks: &[(Mutant, &str, fn() -> bool)] =
        &[(Mutant::CoordinatorUnsynced, "simulated power cut", simulated_power_cut_is_clean)];
    for (mutant, name, is_clean) in checks {
        plant(None);
        assert!(is_clean(), "{name} is not clean");
        plant(Some(*mutant));
        assert!(!is_clean(), "{mutant:?} was not caught by: {name}");
        println!("mutant {} caught by cell-cluster's {name}", mutant.name());
    }
    plant(None);
}
