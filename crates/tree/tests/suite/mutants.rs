//! The twins of the tests: each deliberate defect must be caught by a run that is clean without it.
//! Debug builds alone have them.
#![cfg(debug_assertions)]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use crate::harness;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cell_tree::mutant::{Mutant, plant};

/// Whether a run is clean; a defect may also make it panic.
fn clean(run: impl Fn() -> bool) -> bool {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(false)
}

fn readers() -> bool {
    (0..10).all(|_| harness::readers::run(512, 100_000, false))
}

fn harness(mutant: Mutant) -> fn() -> bool {
    match mutant {
        Mutant::TornRead | Mutant::SilentChange | Mutant::FencesIgnored => readers,
        Mutant::RemovalForgotten => harness::removal::misses_depend_on_the_last_removal,
        Mutant::ReplayRepeats => harness::removal::replaying_twice_is_once,
        Mutant::StalePlaceTaken => harness::places::entries_go_where_they_belong,
        Mutant::ChangedNodeUnchecked => harness::again::changed_nodes_are_checked_again,
        Mutant::RoleIgnored => harness::role::routers_are_no_meganodes_of_entries,
    }
}

#[test]
fn every_mutant_is_caught_by_its_harness() {
    cell_terms::mutant::in_own_process(|| {
        // Some share a harness: that it is clean is asked once.
        let mut known: Vec<fn() -> bool> = Vec::new();
        for &mutant in Mutant::ALL {
            let harness = harness(mutant);
            plant(None);
            if !known.iter().any(|known| std::ptr::fn_addr_eq(*known, harness)) {
                assert!(clean(harness), "{mutant:?}: its harness is not clean");
                known.push(harness);
            }
            plant(Some(mutant));
            assert!(!clean(harness), "{mutant:?} was not caught");
            println!("mutant {} caught by cell-tree's harnesses", mutant.name());
        }
        plant(None);
    });
}
