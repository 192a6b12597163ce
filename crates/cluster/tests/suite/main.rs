//! The integration tests of this crate: one program, so that it is linked once.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

mod balance;
mod conformance;
mod drains;
mod full_disk;
mod incident;
mod joining;
mod lease;
mod moves;
mod mutants;
mod pages;
mod power;
mod process;
mod races;
mod table;
mod tuning;
mod unreadable;
