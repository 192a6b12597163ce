//! Drills: a fault on purpose, traffic with a ledger kept outside the cluster, and the proof that nothing
//! acknowledged was lost.

pub(crate) mod connection;
mod journal;
mod keys;
mod report;
pub(crate) mod run;
pub(crate) mod traffic;
mod verify;
mod watch;
pub(crate) mod wire;
