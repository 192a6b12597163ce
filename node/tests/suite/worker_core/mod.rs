//! The worker core on simulated disks and a simulated coordinator, message by message: delayed copies of
//! writes, the driver of splits and compactions; and the worker's loop.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

mod access;
mod across;
mod adoptions;
mod answers;
mod checkpoints;
mod client_reports;
mod crashes;
mod delayed;
mod driver;
mod filling;
mod full_router;
mod grace;
mod held;
mod held_kinds;
mod image_order;
mod lease;
mod leave;
mod live;
mod long_values;
mod merges;
#[cfg(debug_assertions)]
mod mutants;
mod operations;
mod packing;
mod pages;
mod relief;
mod reports;
mod rest;
mod results;
mod room;
mod sessions;
mod short_wait;
mod split_order;
mod splits;
mod spread;
mod stops;
mod streams;
mod tree_check;
mod tree_shape;
mod under_way;
mod waiting;
mod warnings;
mod world;
