//! The integration tests of this crate: one program, so that it is linked once.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

#[macro_use]
mod harness;
mod again;
mod aim;
mod backward;
mod compaction;
mod concurrent;
mod divide;
mod golden;
mod hostile;
mod interleavings;
mod model;
mod mutants;
mod places;
mod replay;
mod role;
