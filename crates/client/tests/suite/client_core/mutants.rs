//! The twin of a test: with a rule taken out, it must fail.

use std::panic::catch_unwind;

use cell_client::mutant::{Mutant, plant};

use crate::client_core::repeats::write_that_is_given_up_is_not_sent_again_behind_a_later_one as twin;

#[test]
fn every_mutant_of_the_client_core_is_caught() {
    cell_terms::mutant::in_own_process(|| {
        assert!(catch_unwind(twin).is_ok(), "the test itself fails");
        plant(Some(Mutant::DroppedWriteKept));
        assert!(catch_unwind(twin).is_err(), "{} was not caught", Mutant::DroppedWriteKept.name());
        println!("mutant {} caught by cell-client's core", Mutant::DroppedWriteKept.name());
        plant(None);
    });
}
