//! What whole-system tests share: histories of operations, and the check that they are linearizable.

pub mod history;
pub mod linearizability;
