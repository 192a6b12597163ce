//! Optimistic readers on their own threads beside the one writer.
#![allow(clippy::unwrap_used, reason = "a test")]

use crate::harness::readers::run;

#[test]
fn readers_beside_a_writer_always_find_what_stays_512() {
    assert!(run(512, 100_000, false));
}

#[test]
fn readers_beside_a_writer_always_find_what_stays_1024_with_crc() {
    assert!(run(1024, 100_000, true));
}

#[test]
fn readers_beside_a_writer_always_find_what_stays_4096() {
    assert!(run(4096, 30_000, false));
}
