//! The integration tests of this crate: one program, so that it is linked once.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]
#![allow(clippy::cast_possible_truncation, reason = "the tests' numbers are small")]

mod balance;
mod beside_drains;
mod cancels;
mod cluster;
mod dividing;
mod drains;
mod explain;
mod fresh;
mod half_known;
mod model;
mod others;
mod relief;
mod settles;
