//! The twins of the tests: with a rule taken out, its test must fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cell_terms::mutant::{Mutant, plant};

use cell_recovery::mutant as recovery;

use crate::worker_core::{
    access, adoptions, crashes, delayed, grace, held, lease, sessions, splits, tree_check,
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
            (Mutant::RoleUnasked, access::token_is_asked_for_and_its_role_decides),
            (Mutant::FailedWorkerSends, lease::answer_of_the_control_thread_does_not_leave_after_a_failure),
        ];
        for &(mutant, test) in twins {
            let passes = || catch_unwind(AssertUnwindSafe(test)).is_ok();
            plant(None);
            assert!(passes(), "{}: the test itself fails", mutant.name());
            plant(Some(mutant));
            assert!(!passes(), "{} was not caught", mutant.name());
            println!("mutant {} caught by cell-node's worker core", mutant.name());
        }
        plant(None);
    });
}

/// What recovery does with the records of splits, held by the worker core that writes them.
#[test]
fn every_mutant_of_recovery_is_caught_by_the_crash_points_of_the_worker_core() {
    cell_terms::mutant::in_own_process(|| {
        let ends_well = || catch_unwind(AssertUnwindSafe(crashes::stories)).is_ok();
        assert!(ends_well(), "the stories themselves fail");
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
            let caught = !ends_well();
            recovery::plant(None);
            println!("{} {}", if caught { "caught" } else { "MISSED" }, mutant.name());
            missed.extend((!caught).then_some(mutant.name()));
        }
        assert!(missed.is_empty(), "not caught: {missed:?}");
    });
}
