//! The integration tests of this crate: one program, so that it is linked once.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

#[macro_use]
mod harness;
mod conformance;
mod hostile;
mod kernel_calls;
mod partition;
mod readers;
mod shm;
mod shm_handed_out;
mod shm_hostile;
mod simulated;
mod tls;
mod verbs;
