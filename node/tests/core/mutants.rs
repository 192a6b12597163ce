//! The twins of the tests: with a rule taken out, its test must fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cell_terms::mutant::{Mutant, plant};

use crate::grace;

#[test]
fn every_mutant_of_the_worker_core_is_caught() {
    let twins: [(Mutant, fn()); 1] =
        [(Mutant::GraceBackdated, grace::freed_rests_from_a_time_after_the_free)];
    for (mutant, test) in twins {
        let passes = || catch_unwind(AssertUnwindSafe(test)).is_ok();
        plant(None);
        assert!(passes(), "{}: the test itself fails", mutant.name());
        plant(Some(mutant));
        assert!(!passes(), "{} was not caught", mutant.name());
    }
    plant(None);
}
