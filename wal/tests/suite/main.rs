//! The integration tests of this crate: one program, so that it is linked once.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

mod crash;
mod damage;
mod faults;
mod flush_rounds;
mod follow;
mod golden;
mod growth;
mod harness;
mod hostile;
mod images;
mod last_segment;
mod mutants;
mod ring;
mod root;
mod write_and_read;
