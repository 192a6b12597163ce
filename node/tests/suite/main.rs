//! The integration tests of this crate: one program, so that it is linked once.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

mod agent;
mod control_driver;
mod coordinator_calls;
mod joined;
mod many_pairs;
mod membership;
mod moves;
mod worker_core;
