//! The twins of the crash harness: each deliberate defect must be caught by a run that is clean without it.
//! Debug builds alone have them.
#![cfg(debug_assertions)]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::panic::catch_unwind;

use crate::cluster::world::{Met, run, run_compaction};
use crate::large_values::{
    damaged_extent_fails_the_image, takeover_takes_no_memory_for_an_image_that_does_not_fit,
};
use crate::order::takeover_syncs_what_it_read_then_records_the_cut_then_opens_new_logs_then_publishes;
use crate::owner::{GEOMETRY, Owner, start};
use crate::survivors::dead_owners_writes_that_land_while_a_survivor_serves_are_never_read;
use cell_cluster::Sim;
use cell_recovery::mutant::{Mutant, plant};
use cell_wal::sim::SimDisk;

/// What a mutant may be caught by.
#[derive(Clone, Copy, Debug)]
enum Case {
    ImageCounts,
    DamagedExtent,
    /// A story of so many pairs that a crash ends after so many steps.
    Crash {
        pairs: u32,
        checkpoints: bool,
        fuel: u64,
    },
    Compaction {
        pairs: u32,
        checkpoints: bool,
    },
}

impl Case {
    /// Goes through it; whether the story has a later crash point.
    fn goes_on(self) -> bool {
        match self {
            Case::ImageCounts => image_counts_what_freed_its_nodes(),
            Case::DamagedExtent => damaged_extent_fails_the_image(),
            Case::Crash { pairs, checkpoints, fuel } => {
                return run(fuel + 1, pairs, checkpoints, fuel, &mut Met::default());
            }
            Case::Compaction { pairs, checkpoints } => {
                run_compaction(1, pairs, checkpoints, u64::MAX, &mut BTreeSet::new());
            }
        }
        false
    }

    /// As [`Case::goes_on`]; none: it ends badly.
    fn passes(self) -> Option<bool> {
        catch_unwind(move || self.goes_on()).ok()
    }
}

/// The stories, by pairs and checkpoints. What takes least is the first.
const STORIES: [(u32, bool); 3] = [(2, false), (1, true), (2, true)];

/// The stories for a mutant, in their order: what an image has or lacks is met with checkpoints alone.
fn stories(mutant: Mutant) -> [(u32, bool); 3] {
    let mut stories = STORIES;
    if matches!(mutant, Mutant::BookDropped | Mutant::FilledNotCopied) {
        stories.rotate_left(1);
    }
    stories
}

/// The first of a story's cases that ends badly.
fn first_that_fails((pairs, checkpoints): (u32, bool)) -> Option<Case> {
    for case in (0..).map(|fuel| Case::Crash { pairs, checkpoints, fuel }) {
        match case.passes() {
            Some(true) => {}
            Some(false) => break,
            None => return Some(case),
        }
    }
    Some(Case::Compaction { pairs, checkpoints }).filter(|case| case.passes().is_none())
}

fn image_counts_what_freed_its_nodes() {
    let life = start(&SimDisk::new(1), &Sim::new(7), 1);
    let session = life.environment.sessions.open(life.lease).unwrap();
    let mut owner = Owner::publish(&life, life.restore(life.create(GEOMETRY)).unwrap(), session).unwrap();
    for key in 0..200_u32 {
        while !owner.put(&key.to_be_bytes(), &[7; 100]) {
            owner.settle();
        }
    }
    owner.image_counts_what_freed_its_nodes((0..200_u32).map(|key| key.to_be_bytes().to_vec()));
}

/// By a case that is clean without it. That every crash point is, the tests of `split` hold, which go through
/// the same ones.
#[test]
fn every_mutant_is_caught_by_the_crash_harness() {
    cell_terms::mutant::in_own_process(|| {
        let quick = [Case::ImageCounts, Case::DamagedExtent];
        let compactions = STORIES.map(|(pairs, checkpoints)| Case::Compaction { pairs, checkpoints });
        for case in quick.into_iter().chain(compactions) {
            assert!(case.passes().is_some(), "{case:?} is not clean");
        }
        for &mutant in Mutant::ALL {
            plant(Some(mutant));
            let caught = quick.into_iter().find(|case| case.passes().is_none());
            let caught = caught.or_else(|| stories(mutant).into_iter().find_map(first_that_fails));
            plant(None);
            let case = caught.unwrap_or_else(|| panic!("{mutant:?} was not caught"));
            assert!(case.passes().is_some(), "{case:?} is not clean");
            println!("mutant {} caught by cell-recovery's crash harness", mutant.name());
        }
    });
}

/// Those that the simulator plants too, each with one test of takeovers that fails.
#[test]
fn every_mutant_of_takeovers_is_caught() {
    use cell_terms::mutant::{Mutant, plant};
    cell_terms::mutant::in_own_process(|| {
        let order = takeover_syncs_what_it_read_then_records_the_cut_then_opens_new_logs_then_publishes;
        let late = dead_owners_writes_that_land_while_a_survivor_serves_are_never_read;
        let short = takeover_takes_no_memory_for_an_image_that_does_not_fit;
        let twins: [(Mutant, fn()); 4] = [
            (Mutant::CutUnsynced, order),
            (Mutant::CutIgnored, late),
            (Mutant::ZombieSegments, late),
            (Mutant::ShortageFoundLate, short),
        ];
        for (mutant, test) in twins {
            plant(None);
            assert!(catch_unwind(test).is_ok(), "{}: the test itself fails", mutant.name());
            plant(Some(mutant));
            assert!(catch_unwind(test).is_err(), "{} was not caught", mutant.name());
            println!("mutant {} caught by cell-recovery's takeovers", mutant.name());
        }
        plant(None);
    });
}
