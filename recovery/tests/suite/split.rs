//! Splits of meganodes, and compactions after deletes, that a crash ends at every step, on one pair and on
//! two, with and without checkpoints in between; each recovery twice, and crashes in what is left to do too.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::collections::BTreeSet;

use crate::cluster::world::{Met, run, run_compaction};

/// Each round has other luck.
fn rounds() -> u64 {
    std::env::var("CELL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn every_crash_point(pairs: u32, checkpoints: bool) {
    let mut met = Met::default();
    for round in 0..rounds() {
        let mut fuel = 0;
        while run((round << 32) | (fuel + 1), pairs, checkpoints, fuel, &mut met) {
            fuel += 1;
            println!("round {round}, after {fuel} steps");
        }
        assert!(fuel > 100, "a split of {fuel} steps");
    }
    met.expect(checkpoints);
}

#[test]
fn split_within_a_pair_survives_a_crash_at_every_step() {
    every_crash_point(1, false);
}

#[test]
fn split_between_pairs_survives_a_crash_at_every_step() {
    every_crash_point(2, false);
}

#[test]
fn split_within_a_pair_with_checkpoints_survives_a_crash_at_every_step() {
    every_crash_point(1, true);
}

#[test]
fn split_between_pairs_with_checkpoints_survives_a_crash_at_every_step() {
    every_crash_point(2, true);
}

fn every_crash_point_of_a_compaction(pairs: u32, checkpoints: bool) {
    let mut sizes = BTreeSet::new();
    for round in 0..rounds() {
        let mut fuel = 0;
        while run_compaction((round << 32) | (fuel + 1), pairs, checkpoints, fuel, &mut sizes) {
            fuel += 1;
        }
        println!("round {round}: {fuel} steps, trees of {sizes:?} tree nodes recovered");
        assert!(fuel > 20, "a compaction of {fuel} steps");
    }
    let (least, most) = (sizes.first().unwrap(), sizes.last().unwrap());
    assert!(
        sizes.len() > 5 && least * 2 < *most,
        "recoveries before, amid and after a compaction: {sizes:?}"
    );
}

#[test]
fn compaction_of_the_only_meganode_survives_a_crash_at_every_step() {
    every_crash_point_of_a_compaction(1, false);
}

#[test]
fn compaction_of_several_meganodes_survives_a_crash_at_every_step() {
    every_crash_point_of_a_compaction(2, false);
}

#[test]
fn compaction_of_the_only_one_with_checkpoints_survives_a_crash_at_every_step() {
    every_crash_point_of_a_compaction(1, true);
}

#[test]
fn compaction_of_several_with_checkpoints_survives_a_crash_at_every_step() {
    every_crash_point_of_a_compaction(2, true);
}
