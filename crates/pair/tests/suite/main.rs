//! The integration tests of this crate: one program, so that it is linked once.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

mod owner;
mod reads;
mod room;
mod split;
mod writes;
