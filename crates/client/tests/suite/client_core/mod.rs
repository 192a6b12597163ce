//! The core, step by step: what it sends in answer to what happens. Each test plays the server by hand, or
//! lets the model server answer.

#![allow(clippy::unwrap_used, reason = "a test's helper may give up")]

mod cluster;
mod connection;
mod core_harness;
mod exchange;
mod moves;
#[cfg(debug_assertions)]
mod mutants;
mod nodes;
mod repeats;
mod reports;
mod streams;
mod tuned;
mod waits;
