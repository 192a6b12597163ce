//! The one-sided path, step by step: a core that searches a memory which the test holds in its hands, with
//! torn reads, splits under way, reuse, watermarks behind, leases that end and clocks that jump.
//!
//! In debug builds each rule is taken out in turn, and its
//! test must fail.

#![allow(clippy::unwrap_used, reason = "a test's helper may give up")]
#![allow(clippy::cast_possible_truncation, reason = "a test's memory is small")]

mod again;
mod answers;
mod astray;
mod batched;
mod choice;
mod dropped;
mod ended;
mod in_place;
mod left;
mod mapping;
#[cfg(debug_assertions)]
mod mutants;
mod nodes;
mod owner;
mod read_harness;
mod read_reports;
mod rules;
mod scans;
mod shared;
mod stopped;
