//! The integration tests of this crate: one program, so that it is linked once.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

mod client_core;
mod exactly_once;
mod model;
mod naming;
mod onesided;
mod quiet;
mod send_out;
mod sharing;
mod tcp;
