//! The twins of tests: with a rule taken out, they must fail.

use std::panic::catch_unwind;

use cell_client::mutant::{Mutant, plant};

use crate::client_core::connection::token_goes_in_no_message_over_rdma as token_said;
use crate::client_core::nodes::node_of_another_cluster_is_asked_for_nothing as other_cluster;
use crate::client_core::repeats::write_that_is_given_up_is_not_sent_again_behind_a_later_one as dropped_write;

#[test]
fn every_mutant_of_the_client_core_is_caught() {
    let twins: [(Mutant, fn()); 3] = [
        (Mutant::DroppedWriteKept, dropped_write),
        (Mutant::ClusterUnasked, other_cluster),
        (Mutant::TokenInMessage, token_said),
    ];
    cell_terms::mutant::in_own_process(|| {
        for (mutant, twin) in twins {
            plant(None);
            assert!(catch_unwind(twin).is_ok(), "the test itself fails");
            plant(Some(mutant));
            assert!(catch_unwind(twin).is_err(), "{} was not caught", mutant.name());
            println!("mutant {} caught by cell-client's core", mutant.name());
        }
        plant(None);
    });
}
