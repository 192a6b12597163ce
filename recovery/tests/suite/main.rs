//! The integration tests of this crate: one program, so that it is linked once.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

mod cluster;
mod copy;
mod crash;
mod damage;
mod large_values;
mod layout;
mod mutants;
mod order;
mod owner;
mod split;
mod survivors;
