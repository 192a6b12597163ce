//! Whole-system tests: one program, so that it is linked once.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

mod aio;
mod allocations;
mod balance;
mod compaction;
mod crash;
mod default_lease;
mod disks;
mod drills;
mod failed_tests;
mod failover;
mod hostile;
mod hosts;
mod large_values;
mod leftovers;
mod monitoring;
mod moves;
mod onesided;
mod refusals;
mod tls;
mod wall_clock;
