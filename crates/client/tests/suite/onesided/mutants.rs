//! The twins of the tests: with a rule taken out, its test must fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cell_client::mutant as own;
use cell_terms::mutant::{Mutant, plant};
use cell_tree::mutant as tree;

use crate::onesided::{
    astray, batched, dropped, ended, in_place, left, mapping, nodes, rules, scans, stopped,
};

fn passes(test: fn()) -> bool {
    catch_unwind(AssertUnwindSafe(test)).is_ok()
}

#[test]
fn every_mutant_of_the_one_sided_path_is_caught() {
    cell_terms::mutant::in_own_process(|| {
        let twins: [(Mutant, fn()); 11] = [
            (Mutant::WatermarkUnchecked, rules::not_durable_is_waited_for),
            (Mutant::WatermarkEpochIgnored, rules::watermark_of_another_epoch_vouches_for_nothing),
            (Mutant::ClockUnchecked, rules::operation_that_took_too_long_is_thrown_away),
            (Mutant::TrustUnchecked, rules::nothing_is_returned_past_the_lease),
            (Mutant::HeaderUnconfirmed, rules::header_of_another_entry_is_not_believed),
            (Mutant::ClockBeforeLoads, in_place::held_operation_is_validated_by_a_time_after_its_loads),
            (Mutant::ClockBeforeLoads, in_place::batched_read_is_validated_by_a_time_after_its_loads),
            (Mutant::WatermarkUnchecked, batched::one_that_is_not_durable_yet_holds_up_no_other),
            (Mutant::ClockUnchecked, batched::what_took_too_long_is_looked_for_again),
            (Mutant::TrustUnchecked, batched::past_the_lease_nothing_is_returned),
            (
                Mutant::ClockNotReadAgain,
                stopped::process_stopped_between_clock_and_loads_returns_nothing_past_the_lease,
            ),
        ];
        for (mutant, test) in twins {
            plant(None);
            assert!(passes(test), "{}: the test itself fails", mutant.name());
            plant(Some(mutant));
            assert!(!passes(test), "{} was not caught", mutant.name());
            println!("mutant {} caught by cell-client's one-sided rules", mutant.name());
        }
        // The same rules, where an answer does not wait to be looked at.
        for mutant in [Mutant::WatermarkUnchecked, Mutant::ClockUnchecked, Mutant::TrustUnchecked] {
            plant(Some(mutant));
            assert!(!passes(in_place::what_is_not_believed_is_not_answered_at_once), "{}", mutant.name());
            assert!(!passes(scans::page_that_is_not_believed_is_not_answered_at_once), "{}", mutant.name());
        }
        for mutant in [Mutant::WatermarkUnchecked, Mutant::TrustUnchecked] {
            plant(Some(mutant));
            assert!(!passes(in_place::entry_that_is_not_durable_is_not_found_at_once), "{}", mutant.name());
        }
        plant(None);
        let twins: [(tree::Mutant, fn()); 3] = [
            (tree::Mutant::FencesIgnored, astray::stale_parents_cost_a_step_aside),
            (tree::Mutant::RoleIgnored, astray::router_is_not_taken_for_entries),
            (tree::Mutant::RoleIgnored, scans::router_is_not_scanned_in_place),
        ];
        for (mutant, test) in twins {
            assert!(passes(test), "{mutant:?}: the test itself fails");
            tree::plant(Some(mutant));
            assert!(!passes(test), "{mutant:?} was not caught");
            tree::plant(None);
        }
        let twins: [(own::Mutant, fn()); 15] = [
            (
                own::Mutant::EndedUnnumbered,
                dropped::slot_of_a_scan_dropped_after_its_end_has_the_next_operation_alone,
            ),
            (own::Mutant::EndedMappingRead, ended::leaf_whose_registration_has_ended_answers_nothing),
            (own::Mutant::EndedMappingRead, mapping::pair_without_entries_answers_by_its_own_registration),
            (own::Mutant::EndedExtentRead, ended::extent_whose_registration_has_ended_answers_nothing),
            (own::Mutant::EndedExtentRead, ended::page_whose_registration_has_ended_answers_nothing),
            (own::Mutant::EndedWatermarkRead, ended::watermark_whose_registration_has_ended_covers_nothing),
            (own::Mutant::MultiGetUntimed, ended::multi_get_in_place_that_took_too_long_is_thrown_away),
            (own::Mutant::ScanUntimed, ended::scan_in_place_that_took_too_long_is_thrown_away),
            (own::Mutant::ImmediateUntimed, in_place::what_is_not_believed_is_not_answered_at_once),
            (own::Mutant::ImmediateUntimed, scans::page_that_is_not_believed_is_not_answered_at_once),
            (
                own::Mutant::InPlaceUntimed,
                nodes::search_in_place_takes_no_longer_than_each_node_on_its_way_permits,
            ),
            (own::Mutant::EarlierHeaderTaken, nodes::header_read_under_earlier_registrations_is_nobodys),
            (own::Mutant::TrustByLink, left::trust_is_about_the_list_of_registrations_that_is_known),
            (own::Mutant::LeftRegistrationCounted, left::read_under_a_registration_that_left_counts_no_more),
            (own::Mutant::WalkRoleUnasked, astray::router_is_not_scanned_for_entries),
        ];
        let mut missed = Vec::new();
        for (mutant, test) in twins {
            assert!(passes(test), "{}: the test itself fails", mutant.name());
            own::plant(Some(mutant));
            match passes(test) {
                true => missed.push(mutant.name()),
                false => println!("mutant {} caught by cell-client's one-sided rules", mutant.name()),
            }
            own::plant(None);
        }
        assert!(missed.is_empty(), "not caught: {missed:?}");
    });
}
