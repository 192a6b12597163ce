//! The integration tests of this crate: one program, so that it is linked once.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

mod address;
mod agents;
mod api;
mod cli;
mod cluster;
mod coordinator_tls;
mod doctor;
mod drill;
mod dump;
mod etcd;
mod harness;
mod live;
mod process;
mod processes;
mod scale;
mod store;
mod units;
