//! The twins of the tests: with a rule taken out, its test must fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cell_terms::mutant::{Mutant, plant};

use cell_recovery::mutant as recovery;

use crate::worker_core::{
    access, across, adoptions, crashes, delayed, driver, full_router, grace, held, held_kinds, image_order,
    lease, leave, merges, packing, rest, sessions, short_wait, split_order, splits, spread, tree_check,
};

#[test]
fn every_mutant_of_the_worker_core_is_caught() {
    cell_terms::mutant::in_own_process(|| {
        let twins: &[(Mutant, fn())] = &[
            (Mutant::GraceBackdated, grace::freed_rests_from_a_time_after_the_free),
            (Mutant::GraceSkipped, grace::freed_rests_from_a_time_after_the_free),
            (Mutant::ImageNameReused, splits::image_whose_record_was_not_answered_is_not_written_over),
            (Mutant::AcknowledgeEarly, held::put_is_answered_when_it_is_durable),
            (Mutant::HitNotHeld, held::hit_is_answered_when_the_entry_is_durable),
            (Mutant::MissNotHeld, held::miss_is_answered_when_the_removal_is_durable),
            (Mutant::RepeatApplied, delayed::first_copy_does_nothing),
            (Mutant::FloorIgnored, delayed::first_copy_does_nothing),
            (Mutant::ResultsUndurable, adoptions::result_that_its_own_log_has_lost_is_not_believed_elsewhere),
            (Mutant::DiscardedResultsKept, adoptions::aborted_adoption_leaves_no_results),
            (Mutant::SlotUnreserved, adoptions::first_router_and_an_adoption_take_different_slots),
            (Mutant::EndedSessionsKnown, sessions::late_copy_of_an_ended_session_finds_its_pair_elsewhere),
            (
                Mutant::EndedResultsAdopted,
                sessions::session_that_ends_while_its_results_go_along_leaves_nothing,
            ),
            (
                Mutant::CompactedRunKept,
                tree_check::check_beside_writes_splits_and_compactions_reports_nothing,
            ),
            (Mutant::SplitSourcePacked, packing::packing_leaves_what_is_being_split_alone),
            (Mutant::RoleUnasked, access::token_is_asked_for_and_its_role_decides),
            (Mutant::RevokedStays, access::connection_ends_with_its_token_and_keeps_no_role_that_it_loses),
            (Mutant::FailedWorkerSends, lease::answer_of_the_control_thread_does_not_leave_after_a_failure),
            (Mutant::SilentSends, lease::acknowledgement_waits_until_the_lease_holds_again),
            (Mutant::SilentWorks, lease::silent_worker_takes_no_request_and_submits_nothing),
            (Mutant::TrustByLease, lease::trust_is_what_the_setting_permits_and_the_lease_at_most),
            (
                Mutant::LeaseIgnored,
                lease::answer_of_the_control_thread_waits_when_the_lease_ran_out_within_the_turn,
            ),
            (Mutant::ListNumberKept, leave::list_number_rises_when_a_registration_leaves),
            (Mutant::LeftWhileTrusted, leave::pair_is_served_until_trust_in_its_registrations_has_ended),
            (Mutant::SplitWhileLeaving, leave::no_split_begins_in_a_pair_that_leaves),
            (Mutant::SplitIntoLeaving, spread::pair_that_is_frozen_gets_no_half),
            (Mutant::SplitTwice, spread::meganode_that_is_being_split_is_left_alone),
            (Mutant::LeftAmidSplit, leave::pair_leaves_once_its_split_is_over),
            (Mutant::UnlinkedKept, leave::unlinked_split_is_aborted_so_that_its_pair_can_leave),
            (Mutant::CrowdHasPlace, access::crowd_keeps_no_operator_out),
            (Mutant::OperatorHasNoPlace, access::crowd_keeps_no_operator_out),
            (Mutant::DeviceLost, driver::pair_that_comes_as_another_leaves_keeps_its_log),
            (Mutant::LeftUnanswered, leave::pair_leaves_once_what_was_appended_is_durable_and_answered),
            (Mutant::CheckpointEarly, image_order::image_is_recorded_once_all_of_it_is_durable),
            (Mutant::ReleaseTooMuch, image_order::log_above_the_base_of_an_image_stays),
            (Mutant::CompletionsDropped, image_order::image_has_the_results_of_writes),
            (Mutant::ExtentNotRewritten, image_order::place_that_was_used_twice_has_what_came_last),
        ];
        expect_caught(twins);
    });
}

/// Each test holds, and fails with its defect planted.
fn expect_caught(twins: &[(Mutant, fn())]) {
    let passes = |test: fn()| catch_unwind(AssertUnwindSafe(test)).is_ok();
    let mut clean: Vec<fn()> = Vec::new();
    let mut missed = Vec::new();
    for &(mutant, test) in twins {
        plant(None);
        if !clean.iter().any(|known| std::ptr::fn_addr_eq(*known, test)) {
            assert!(passes(test), "{}: the test itself fails", mutant.name());
            clean.push(test);
        }
        plant(Some(mutant));
        match passes(test) {
            true => missed.push(mutant.name()),
            false => println!("mutant {} caught by cell-node's worker core", mutant.name()),
        }
    }
    plant(None);
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

#[test]
fn every_mutant_of_what_is_answered_is_caught() {
    cell_terms::mutant::in_own_process(|| {
        let twins: &[(Mutant, fn())] = &[
            (Mutant::SearchHitNotHeld, held_kinds::search_that_hits_is_held),
            (Mutant::SearchMissNotHeld, held_kinds::search_that_misses_is_held),
            (Mutant::MultiGetHitNotHeld, held_kinds::multi_get_that_hits_is_held),
            (Mutant::MultiGetLargeNotHeld, held_kinds::multi_get_without_a_long_value_is_held),
            (Mutant::MultiGetMissNotHeld, held_kinds::multi_get_that_misses_is_held),
            (Mutant::ScanHitNotHeld, held_kinds::page_with_a_new_entry_is_held),
            (Mutant::ScanRemovalNotHeld, held_kinds::page_without_a_removed_entry_is_held),
            (Mutant::ScanNotHeld, held_kinds::page_with_a_new_entry_is_held),
            (Mutant::StreamNotHeld, held_kinds::value_in_chunks_is_held),
            (Mutant::RepeatNotHeld, held_kinds::repeat_is_held_like_the_first_copy),
            (Mutant::JointNotHeld, held_kinds::answer_from_two_pairs_is_held_for_both),
            (Mutant::FailedConditionUnlogged, held_kinds::failed_condition_is_failed_when_it_is_repeated),
            (
                Mutant::DeletedNothingUnlogged,
                held_kinds::delete_of_nothing_deletes_nothing_when_it_is_repeated,
            ),
            (Mutant::BacklogPassed, held_kinds::write_behind_one_that_waits_for_the_log_waits_too),
            (Mutant::StreamUnchecked, held_kinds::value_that_came_damaged_is_not_written),
        ];
        expect_caught(twins);
    });
}

#[test]
fn every_mutant_of_the_steps_of_splits_is_caught() {
    cell_terms::mutant::in_own_process(|| {
        let twins: &[(Mutant, fn())] = &[
            (Mutant::AskedEarly, split_order::target_is_asked_once_the_start_is_durable),
            (Mutant::AdoptedToldEarly, split_order::steps_go_by_what_is_durable),
            (Mutant::TruncatedEarly, split_order::steps_go_by_what_is_durable),
            (Mutant::OpenToldEarly, split_order::steps_go_by_what_is_durable),
            (Mutant::OpenedToldEarly, split_order::steps_go_by_what_is_durable),
            (Mutant::OpenedToldUnsealed, split_order::source_is_over_once_the_end_at_its_target_is_sealed),
            (Mutant::OpenedNotedUnsealed, across::note_of_an_open_target_waits_for_a_seal),
            (Mutant::OpenNotedUnsealed, across::note_of_a_truncated_source_waits_for_a_seal),
            (Mutant::AdoptedToldUnsealed, split_order::steps_that_last_wait_for_the_seal_of_the_other_side),
            (Mutant::OpenToldUnsealed, split_order::steps_that_last_wait_for_the_seal_of_the_other_side),
            (Mutant::EndToldUnsealed, split_order::steps_that_last_wait_for_the_seal_of_the_other_side),
            (Mutant::RecoveredSplitRests, short_wait::split_that_was_left_unfinished_holds_up_no_other),
            (
                Mutant::HeldSplitRests,
                short_wait::splits_that_failed_while_growth_was_held_hold_up_none_afterwards,
            ),
            (Mutant::RefusedWhileHeld, short_wait::write_waits_while_growth_is_held),
            (Mutant::RootSetEarly, split_order::steps_go_by_what_is_durable),
            (Mutant::RouteAddedEarly, split_order::steps_go_by_what_is_durable),
            (Mutant::RoutedToldEarly, split_order::steps_go_by_what_is_durable),
            (Mutant::SplitEndedEarly, split_order::split_is_over_once_its_end_is_durable),
            (Mutant::SplitPrunedEarly, split_order::split_is_over_once_its_end_is_durable),
            (Mutant::LinkedHalfWritten, split_order::steps_go_by_what_is_durable),
            (Mutant::ReadableEarly, split_order::steps_go_by_what_is_durable),
            (Mutant::WritableEarly, split_order::steps_go_by_what_is_durable),
            (Mutant::ImageAmidAdoption, split_order::no_image_begins_while_a_pair_adopts),
            (Mutant::MergedRouteKept, merges::merges_go_by_what_is_durable),
            (Mutant::RouteOvertaken, full_router::removal_comes_after_the_entry_that_it_undoes),
            (Mutant::MergedSlotReusedEarly, merges::merges_go_by_what_is_durable),
            (Mutant::MergeToldUnsealed, merges::merges_go_by_what_is_durable),
            (Mutant::UnroutedToldUnsealed, merges::merges_go_by_what_is_durable),
        ];
        expect_caught(twins);
        expect_caught_at_a_turn(Mutant::AbsorbedUnseen, merges::writes_amid_a_merge);
        expect_caught_at_a_turn(Mutant::MergedRangeUnclipped, |turns| {
            merges::range_of_a_merge_is_the_sources_until_it_is_gone(turns);
        });
        expect_caught_at_a_turn(Mutant::RecoveredMergeUnextended, |turns| {
            merges::range_of_who_is_gone_is_there_at_once(turns);
        });
    });
}

/// Of the many turns of a merge that a test goes through, the first that fails is enough, and holds without
/// the defect.
fn expect_caught_at_a_turn(mutant: Mutant, test: impl Fn(u32)) {
    let passes = |turns| catch_unwind(AssertUnwindSafe(|| test(turns))).is_ok();
    plant(Some(mutant));
    let mut all = merges::AMID_TURNS;
    let caught = all.find(|turns| !passes(*turns));
    plant(None);
    let turns = caught.unwrap_or_else(|| panic!("not caught: {}", mutant.name()));
    assert!(passes(turns), "{}: the test itself fails after {turns} turns", mutant.name());
    println!("mutant {} caught by cell-node's worker core", mutant.name());
}

#[test]
fn every_mutant_of_what_rests_is_caught() {
    cell_terms::mutant::in_own_process(|| {
        let twins: &[(Mutant, fn())] = &[
            (Mutant::ReplacedExtentUnrested, rest::extent_of_a_replaced_entry_rests),
            (Mutant::TruncatedHalfUnrested, rest::tree_nodes_of_a_truncated_half_rest),
            (Mutant::TruncatedHalfUnrested, rest::extents_of_a_truncated_half_rest),
            (Mutant::DiscardedAdoptionUnrested, rest::slot_of_a_discarded_adoption_rests),
            (Mutant::DiscardedAdoptionUnrested, rest::extents_of_a_discarded_adoption_rest),
            (Mutant::CompactedNodesUnrested, rest::tree_nodes_that_a_compaction_has_emptied_rest),
        ];
        expect_caught(twins);
    });
}

/// What recovery does with the records of splits, held by the worker core that writes them: by a crash point
/// that is clean without the defect. That all of them are, the tests of `crashes` hold.
#[test]
fn every_mutant_of_recovery_is_caught_by_the_crash_points_of_the_worker_core() {
    cell_terms::mutant::in_own_process(|| {
        let mut missed = Vec::new();
        // What the copier of an image does while the pair goes on is no matter of these stories, whose images
        // are made at once. The crash harness of recovery catches it, and for one of them:
        let copier = [
            recovery::Mutant::FilledNotCopied,
            recovery::Mutant::FreedNotCounted,
            recovery::Mutant::UnreadCounted,
        ];
        recovery::plant(Some(copier[0]));
        let copied =
            catch_unwind(AssertUnwindSafe(splits::compaction_goes_on_while_an_image_is_copied)).is_ok();
        recovery::plant(None);
        assert!(!copied, "{} was not caught", copier[0].name());
        for &mutant in recovery::Mutant::ALL.iter().filter(|mutant| !copier.contains(mutant)) {
            recovery::plant(Some(mutant));
            let caught = crashes::first_that_fails(mutant == recovery::Mutant::BookDropped);
            recovery::plant(None);
            match caught {
                Some(point) => {
                    assert!(!point.fails(), "the story itself fails: {point:?}");
                    println!("caught {}", mutant.name());
                }
                None => {
                    println!("MISSED {}", mutant.name());
                    missed.push(mutant.name());
                }
            }
        }
        assert!(missed.is_empty(), "not caught: {missed:?}");
    });
}
