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

/// Whether every crash point, with and without checkpoints, ends well. What takes least is tried first.
fn clean() -> bool {
    let story = |pairs: u32, checkpoints: bool| {
        catch_unwind(move || {
            let (mut fuel, mut met) = (0, Met::default());
            while run(fuel + 1, pairs, checkpoints, fuel, &mut met) {
                fuel += 1;
            }
            run_compaction(1, pairs, checkpoints, u64::MAX, &mut BTreeSet::new());
        })
        .is_ok()
    };
    catch_unwind(image_counts_what_freed_its_nodes).is_ok()
        && catch_unwind(damaged_extent_fails_the_image).is_ok()
        && story(2, false)
        && story(1, true)
        && story(2, true)
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

#[test]
fn every_mutant_is_caught_by_the_crash_harness() {
    cell_terms::mutant::in_own_process(|| {
        plant(None);
        assert!(clean(), "the harness is not clean");
        for &mutant in Mutant::ALL {
            plant(Some(mutant));
            assert!(!clean(), "{mutant:?} was not caught");
            println!("mutant {} caught by cell-recovery's crash harness", mutant.name());
        }
        plant(None);
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
